/* ptx_instruction.h: single PTX instructions on rows of values against what plain C says, for tests of the PTX
 * interpreter: lists of CASE(text, signature, expression of a, b, c). */
#ifndef SWOOP_TESTS_PTX_INSTRUCTION_H
#define SWOOP_TESTS_PTX_INSTRUCTION_H

#include "ptx_case.h"

#include <math.h>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

/* ---- one instruction on many values ------------------------------------------------------------------------------ */

/* Registers of a class: their letter, and how 64 bits get in and out of them. */
static const struct { char type; const char *letter, *in, *out;
} classes[] = { { 'w', "r", "cvt.u32.u64 %%r%d, %%rd%d;", "cvt.u64.u32 %%rd%d, %%r%d;" },
                { 'h', "h", "cvt.u16.u64 %%h%d, %%rd%d;", "cvt.u64.u16 %%rd%d, %%h%d;" },
                { 'd', "rd", "mov.b64 %%rd%d, %%rd%d;", "mov.b64 %%rd%d, %%rd%d;" },
                { 'f', "f", "cvt.u32.u64 %%r9, %%rd%2$d; mov.b32 %%f%1$d, %%r9;",
                  "mov.b32 %%r9, %%f%2$d; cvt.u64.u32 %%rd%1$d, %%r9;" },
                { 'F', "d", "mov.b64 %%d%d, %%rd%d;", "mov.b64 %%rd%d, %%d%d;" },
                { 'p', "p", "setp.ne.u64 %%p%d, %%rd%d, 0;", "selp.u64 %%rd%d, 1, 0, %%p%d;" } };

static int class_of(char type)
{
    int k = 0;
    while (classes[k].type != type) k++;
    return k;
}

static int in_or_out(char *to, size_t n, const char *form, int a, int b)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return snprintf(to, n, form, a, b);
#pragma GCC diagnostic pop
}

/* text: $d, $a, $b, $c are registers of the classes sig[0], … Runs it on n rows of three values. */
static void instruction(const char *text, const char *sig, const u64 *rows, int n, u64 *results)
{
    char body[4000];
    int at = 0;
    for (int k = 1; sig[k]; k++) {
        at += snprintf(body + at, sizeof body - (size_t)at,
                       "mul.lo.u64 %%rd30, %%rd21, 3; add.u64 %%rd30, %%rd30, %%rd0;"
                       "ld.global.u64 %%rd31, [%%rd30+%d];",
                       8 * (k - 1));
        at += in_or_out(body + at, sizeof body - (size_t)at, classes[class_of(sig[k])].in, 10 + k, 31);
    }
    for (const char *s = text; *s; s++) {
        const int k = *s == '$' ? s[1] == 'd' ? 0 : s[1] - 'a' + 1 : -1;
        if (k < 0) body[at++] = *s;
        else
            at += snprintf(body + at, sizeof body - (size_t)at, "%%%s%d", classes[class_of(sig[k])].letter, 10 + k),
                s++;
    }
    body[at++] = '\n';
    at += in_or_out(body + at, sizeof body - (size_t)at, classes[class_of(sig[0])].out, 31, 10);
    snprintf(body + at, sizeof body - (size_t)at,
             "add.u64 %%rd30, %%rd1, %%rd21; st.global.u64 [%%rd30], %%rd31; ret;");
    const int padded = (n + 63) / 64 * 64;
    u64 *const all = calloc((size_t)padded * 3, sizeof *all);
    assert_non_null(all);
    memcpy(all, rows, (size_t)n * 3 * sizeof *all);
    const u64 in = give_copy(all, (size_t)padded * 3 * sizeof *all), out = give((size_t)padded * sizeof *all);
    free(all);
    BODY(2, body);
    RUN("k", (unsigned)padded / 64, 64, in, out);
    memcpy(results, host(out), (size_t)n * sizeof *results);
    clean(NULL);
}

typedef struct value_case { const char *text, *sig; } value_case;
typedef u64 wanted(int k, u64 a, u64 b, u64 c); /* of the list's k-th */

static u64 edges[40];
static int n_edges;

/* which NaN is nobody's business */
static bool both_nan(char type, u64 a, u64 b)
{
    const u64 least = type == 'f' ? 0x7F800000 : 0x7FF0000000000000,
              ones = type == 'f' ? 0x7FFFFFFF : 0x7FFFFFFFFFFFFFFF;
    return (type == 'f' || type == 'F') && (a & ones) > least && (b & ones) > least;
}

static void check(const value_case *c, int k, wanted *want_of, const u64 *rows, int n)
{
    u64 *const have = malloc((size_t)n * sizeof *have);
    assert_non_null(have);
    instruction(c->text, c->sig, rows, n, have);
    for (int i = 0; i < n; i++) {
        const u64 *const r = &rows[3 * i], want = want_of(k, r[0], r[1], r[2]);
        if (have[i] != want && !both_nan(c->sig[0], have[i], want))
            fail_msg("%s of %llx %llx %llx: %llx, not %llx", c->text, (unsigned long long)r[0],
                     (unsigned long long)r[1], (unsigned long long)r[2], (unsigned long long)have[i],
                     (unsigned long long)want);
    }
    free(have);
}

/* each with each, and some third */
static void check_all(const value_case *cases, size_t n, wanted *want_of)
{
    static u64 rows[40 * 40 * 3];
    for (int i = 0; i < n_edges; i++)
        for (int k = 0; k < n_edges; k++) {
            u64 *const r = &rows[3 * (i * n_edges + k)];
            r[0] = edges[i], r[1] = edges[k], r[2] = edges[(i * 7 + k * 3) % n_edges];
        }
    for (size_t i = 0; i < n; i++) check(&cases[i], (int)i, want_of, rows, n_edges * n_edges);
}

#define LINE(text, sig, expr) { text, sig },
#define WANT(text, sig, expr) if (k-- == 0) return (u64)(expr);

#endif
