/* test_ptx_values.c: what the PTX interpreter computes, instruction by instruction, against plain C: integers at their edges,
 * comparisons, conversions (all values of f16), roundings, and functions within bounds of libm. Hand-written PTX: needs no NVRTC. */
#include "ptx_case.h"

#include <fenv.h>
#include <math.h>

/* uses: fakeptx */

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

/* ---- one instruction on many values ------------------------------------------------------------------------------------------ */

/* Registers of a class: their letter, and how 64 bits get in and out of them. */
static const struct { char type; const char *letter, *in, *out; } classes[] = {
    { 'w', "r", "cvt.u32.u64 %%r%d, %%rd%d;", "cvt.u64.u32 %%rd%d, %%r%d;" },
    { 'h', "h", "cvt.u16.u64 %%h%d, %%rd%d;", "cvt.u64.u16 %%rd%d, %%h%d;" },
    { 'd', "rd", "mov.b64 %%rd%d, %%rd%d;", "mov.b64 %%rd%d, %%rd%d;" },
    { 'f', "f", "cvt.u32.u64 %%r9, %%rd%2$d; mov.b32 %%f%1$d, %%r9;", "mov.b32 %%r9, %%f%2$d; cvt.u64.u32 %%rd%1$d, %%r9;" },
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
        at += snprintf(body + at, sizeof body - (size_t)at, "mul.lo.u64 %%rd30, %%rd21, 3; add.u64 %%rd30, %%rd30, %%rd0;"
                       "ld.global.u64 %%rd31, [%%rd30+%d];", 8 * (k - 1));
        at += in_or_out(body + at, sizeof body - (size_t)at, classes[class_of(sig[k])].in, 10 + k, 31);
    }
    for (const char *s = text; *s; s++) {
        const int k = *s == '$' ? s[1] == 'd' ? 0 : s[1] - 'a' + 1 : -1;
        if (k < 0) body[at++] = *s;
        else at += snprintf(body + at, sizeof body - (size_t)at, "%%%s%d", classes[class_of(sig[k])].letter, 10 + k), s++;
    }
    body[at++] = '\n';
    at += in_or_out(body + at, sizeof body - (size_t)at, classes[class_of(sig[0])].out, 31, 10);
    snprintf(body + at, sizeof body - (size_t)at, "add.u64 %%rd30, %%rd1, %%rd21; st.global.u64 [%%rd30], %%rd31; ret;");
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
    const u64 least = type == 'f' ? 0x7F800000 : 0x7FF0000000000000, ones = type == 'f' ? 0x7FFFFFFF : 0x7FFFFFFFFFFFFFFF;
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
            fail_msg("%s of %llx %llx %llx: %llx, not %llx", c->text, (unsigned long long)r[0], (unsigned long long)r[1],
                     (unsigned long long)r[2], (unsigned long long)have[i], (unsigned long long)want);
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

/* ---- integers -------------------------------------------------------------------------------------------------------------------- */

static u32 bits_reversed(u32 v)
{
    u32 r = 0;
    for (int k = 0; k < 32; k++) r |= (v >> k & 1) << (31 - k);
    return r;
}
static u32 leading(u64 v, int width)
{
    u32 n = 0;
    while ((int)n < width && !(v >> (width - 1 - (int)n) & 1)) n++;
    return n;
}
static u32 ones(u64 v)
{
    u32 n = 0;
    for (; v; v >>= 1) n += v & 1;
    return n;
}
static u32 byte_permuted(u32 a, u32 b, u32 s)
{
    u8 from[8], to[4];
    memcpy(from, &a, 4), memcpy(from + 4, &b, 4);
    for (int k = 0; k < 4; k++) {
        to[k] = from[s >> 4 * k & 7];
        if (s >> (4 * k + 3) & 1) to[k] = (u8)((s8)to[k] < 0 ? 255 : 0);
    }
    u32 r;
    memcpy(&r, to, 4);
    return r;
}
static u64 shifted_left(u64 v, u32 n, u32 width) { return n >= width ? 0 : v << n; }
static s64 shifted_right(s64 v, u32 n) { return n > 63 ? (v < 0 ? -1 : 0) : v >> n; }
static s64 extracted(s64 v, u32 at, u32 n, int width, bool is_signed) /* by the manual's loop over bits */
{
    at &= 255, n &= 255;
    const int msb = width - 1, last = (int)(at + n) - 1;
    const u64 sign = !is_signed || n == 0 ? 0 : (u64)v >> (last < msb ? last : msb) & 1;
    u64 d = 0;
    for (int i = 0; i <= msb; i++) d |= (i < (int)n && i + (int)at <= msb ? (u64)v >> (i + (int)at) & 1 : sign) << i;
    return (s64)d;
}
static u64 inserted(u64 a, u64 b, u32 at, u32 n, int width)
{
    u64 f = b;
    at &= 255, n &= 255;
    for (int i = 0; i < (int)n && i + (int)at < width; i++) {
        f &= ~(1ull << (i + (int)at));
        f |= (a >> i & 1) << (i + (int)at);
    }
    return f;
}
static u32 table3(u32 a, u32 b, u32 c, u32 t)
{
    u32 r = 0;
    for (int k = 0; k < 32; k++) r |= (t >> ((a >> k & 1) * 4 + (b >> k & 1) * 2 + (c >> k & 1)) & 1) << k;
    return r;
}
static s32 clamped(s64 v) { return (s32)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v); }

#define INTEGER_CASES(_) \
    _("add.s32 $d, $a, $b;", "www", (u32)a + (u32)b) \
    _("add.s64 $d, $a, $b;", "ddd", a + b) \
    _("add.u16 $d, $a, $b;", "hhh", (u16)(a + b)) \
    _("add.sat.s32 $d, $a, $b;", "www", (u32)clamped((s64)(s32)a + (s32)b)) \
    _("sub.s32 $d, $a, $b;", "www", (u32)a - (u32)b) \
    _("sub.s16 $d, $a, $b;", "hhh", (u16)(a - b)) \
    _("mul.lo.s32 $d, $a, $b;", "www", (u32)a * (u32)b) \
    _("mul.lo.u64 $d, $a, $b;", "ddd", a * b) \
    _("mul.lo.s16 $d, $a, $b;", "hhh", (u16)((u32)a * (u32)b)) \
    _("mul.hi.s32 $d, $a, $b;", "www", (u32)((u64)((s64)(s32)a * (s32)b) >> 32)) \
    _("mul.hi.u32 $d, $a, $b;", "www", (u64)(u32)a * (u32)b >> 32) \
    _("mul.hi.s64 $d, $a, $b;", "ddd", (u64)((u128)((s128)(s64)a * (s64)b) >> 64)) \
    _("mul.hi.u64 $d, $a, $b;", "ddd", (u64)((u128)a * b >> 64)) \
    _("mul.wide.s32 $d, $a, $b;", "dww", (u64)((s64)(s32)a * (s32)b)) \
    _("mul.wide.u32 $d, $a, $b;", "dww", (u64)(u32)a * (u32)b) \
    _("mul.wide.s16 $d, $a, $b;", "whh", (u32)((s32)(s16)a * (s16)b)) \
    _("mul.wide.u16 $d, $a, $b;", "whh", (u32)(u16)a * (u16)b) \
    _("mad.lo.s32 $d, $a, $b, $c;", "wwww", (u32)a * (u32)b + (u32)c) \
    _("mad.hi.s32 $d, $a, $b, $c;", "wwww", (u32)((u64)((s64)(s32)a * (s32)b) >> 32) + (u32)c) \
    _("mad.wide.s32 $d, $a, $b, $c;", "dwwd", (u64)((s64)(s32)a * (s32)b) + c) \
    _("mul24.lo.s32 $d, $a, $b;", "www", (u32)((s64)((s32)((u32)a << 8) / 256) * ((s32)((u32)b << 8) / 256))) \
    _("mul24.lo.u32 $d, $a, $b;", "www", (u32)((a & 0xFFFFFF) * (b & 0xFFFFFF))) \
    _("sad.s32 $d, $a, $b, $c;", "wwww", \
      (u32)c + (u32)((s32)a > (s32)b ? (s64)(s32)a - (s32)b : (s64)(s32)b - (s32)a)) \
    _("sad.u32 $d, $a, $b, $c;", "wwww", (u32)c + ((u32)a > (u32)b ? (u32)a - (u32)b : (u32)b - (u32)a)) \
    _("div.s32 $d, $a, $b;", "www", (u32)((u32)b == 0 ? UINT32_MAX : (u32)((s64)(s32)a / (s32)b))) \
    _("div.u64 $d, $a, $b;", "ddd", b == 0 ? UINT64_MAX : a / b) \
    _("div.s64 $d, $a, $b;", "ddd", b == 0 ? UINT64_MAX : (u64)((s128)(s64)a / (s64)b)) \
    _("rem.s32 $d, $a, $b;", "www", (u32)b == 0 ? (u32)a : (u32)((s64)(s32)a % (s32)b)) \
    _("rem.u32 $d, $a, $b;", "www", (u32)b == 0 ? (u32)a : (u32)a % (u32)b) \
    _("rem.s64 $d, $a, $b;", "ddd", b == 0 ? a : (u64)((s128)(s64)a % (s64)b)) \
    _("min.s32 $d, $a, $b;", "www", (u32)((s32)a < (s32)b ? a : b)) \
    _("max.u32 $d, $a, $b;", "www", (u32)a > (u32)b ? (u32)a : (u32)b) \
    _("min.s64 $d, $a, $b;", "ddd", (s64)a < (s64)b ? a : b) \
    _("max.s16 $d, $a, $b;", "hhh", (u16)((s16)a > (s16)b ? a : b)) \
    _("neg.s32 $d, $a;", "ww", 0 - (u32)a) \
    _("abs.s32 $d, $a;", "ww", (s32)a < 0 ? 0 - (u32)a : (u32)a) \
    _("abs.s64 $d, $a;", "dd", (s64)a < 0 ? 0 - a : a) \
    _("and.b32 $d, $a, $b;", "www", (u32)(a & b)) \
    _("or.b64 $d, $a, $b;", "ddd", a | b) \
    _("xor.b16 $d, $a, $b;", "hhh", (u16)(a ^ b)) \
    _("not.b32 $d, $a;", "ww", (u32)~a) \
    _("cnot.b32 $d, $a;", "ww", (u32)a == 0) \
    _("shl.b32 $d, $a, $b;", "www", (u32)shifted_left((u32)a, (u32)b, 32)) \
    _("shl.b64 $d, $a, $b;", "ddw", shifted_left(a, (u32)b, 64)) \
    _("shl.b16 $d, $a, $b;", "hhw", (u16)shifted_left((u16)a, (u32)b, 16)) \
    _("shr.u32 $d, $a, $b;", "www", (u32)b > 31 ? 0 : (u32)a >> (u32)b) \
    _("shr.s32 $d, $a, $b;", "www", (u32)shifted_right((s32)a, (u32)b)) \
    _("shr.s64 $d, $a, $b;", "ddw", (u64)shifted_right((s64)a, (u32)b)) \
    _("shr.s16 $d, $a, $b;", "hhw", (u16)shifted_right((s16)a, (u32)b)) \
    _("shf.l.wrap.b32 $d, $a, $b, $c;", "wwww", (u32)((((u64)(u32)b << 32 | (u32)a) << (c & 31)) >> 32)) \
    _("shf.r.wrap.b32 $d, $a, $b, $c;", "wwww", (u32)(((u64)(u32)b << 32 | (u32)a) >> (c & 31))) \
    _("shf.l.clamp.b32 $d, $a, $b, $c;", "wwww", \
      (u32)c > 31 ? (u32)a : (u32)((((u64)(u32)b << 32 | (u32)a) << (u32)c) >> 32)) \
    _("shf.r.clamp.b32 $d, $a, $b, $c;", "wwww", (u32)c > 31 ? (u32)b : (u32)(((u64)(u32)b << 32 | (u32)a) >> (u32)c)) \
    _("popc.b32 $d, $a;", "ww", ones((u32)a)) \
    _("popc.b64 $d, $a;", "wd", ones(a)) \
    _("clz.b32 $d, $a;", "ww", leading((u32)a, 32)) \
    _("clz.b64 $d, $a;", "wd", leading(a, 64)) \
    _("brev.b32 $d, $a;", "ww", bits_reversed((u32)a)) \
    _("brev.b64 $d, $a;", "dd", (u64)bits_reversed((u32)a) << 32 | bits_reversed((u32)(a >> 32))) \
    _("bfind.u32 $d, $a;", "ww", (u32)a == 0 ? UINT32_MAX : 31 - leading((u32)a, 32)) \
    _("bfind.s32 $d, $a;", "ww", \
      (u32)a == 0 || (u32)a == UINT32_MAX ? UINT32_MAX : 31 - leading((u32)((s32)a < 0 ? ~a : a), 32)) \
    _("bfe.u32 $d, $a, $b, $c;", "wwww", (u32)extracted((u32)a, (u32)b, (u32)c, 32, false)) \
    _("bfe.s32 $d, $a, $b, $c;", "wwww", (u32)extracted((u32)a, (u32)b, (u32)c, 32, true)) \
    _("bfe.s64 $d, $a, $b, $c;", "ddww", (u64)extracted((s64)a, (u32)b, (u32)c, 64, true)) \
    _("bfi.b32 $d, $a, $b, $c, 9;", "wwww", (u32)inserted((u32)a, (u32)b, (u32)c, 9, 32)) \
    _("bfi.b64 $d, $a, $b, 5, $c;", "dddw", inserted(a, b, 5, (u32)c, 64)) \
    _("prmt.b32 $d, $a, $b, $c;", "wwww", byte_permuted((u32)a, (u32)b, (u32)c)) \
    _("lop3.b32 $d, $a, $b, $c, 0xCA;", "wwww", table3((u32)a, (u32)b, (u32)c, 0xCA)) \
    _("lop3.b32 $d, $a, $b, $c, 0x1E;", "wwww", table3((u32)a, (u32)b, (u32)c, 0x1E)) \
    _("dp4a.s32.u32 $d, $a, $b, $c;", "wwww", \
      (u32)c + (u32)((s8)a * (u8)b + (s8)(a >> 8) * (u8)(b >> 8) + (s8)(a >> 16) * (u8)(b >> 16) + \
                     (s8)(a >> 24) * (u8)(b >> 24))) \
    _("dp2a.hi.u32.s32 $d, $a, $b, $c;", "wwww", (u32)c + (u32)((u16)a * (s8)(b >> 16) + (u16)(a >> 16) * (s8)(b >> 24))) \
    _("add.cc.u32 %r20, $a, $b; addc.u32 $d, $c, 0;", "wwww", (u32)c + ((u32)a + (u32)b < (u32)a)) \
    _("sub.cc.u64 %rd25, $a, $b; subc.u64 $d, $c, 0;", "dddd", c - (a < b)) \
    _("add.cc.u32 %r20, $a, $b; addc.cc.u32 %r21, $a, $c; addc.u32 $d, 0, 0;", "wwww", \
      ((u64)(u32)a + (u32)c + ((u32)a + (u32)b < (u32)a)) >> 32) \
    _("mad.lo.cc.u32 %r20, $a, $b, $c; madc.hi.u32 $d, $a, $b, 0;", "wwww", ((u64)(u32)a * (u32)b + (u32)c) >> 32) \
    _("mov.b32 {%h20, %h21}, $a; mov.b32 $d, {%h21, %h20};", "ww", (u32)a >> 16 | (u32)a << 16) \
    _("mov.b64 {%r20, %r21}, $a; mov.b64 $d, {%r21, %r20};", "dd", a >> 32 | a << 32) \
    _("mov.b64 {%h20, _, %h22, %h23}, $a; mov.b64 $d, {%h23, 7, %h22, %h20};", "dd", \
      (u16)(a >> 48) | 7u << 16 | (u64)(u16)(a >> 32) << 32 | (u64)(u16)a << 48) \
    _("cvt.u8.u32 $d, $a;", "ww", (u8)a) \
    _("cvt.s8.s32 $d, $a;", "ww", (u32)(s8)a) \
    _("cvt.s16.s64 $d, $a;", "wd", (u32)(s16)a) \
    _("cvt.s64.s8 $d, $a;", "dd", (u64)(s8)a) \
    _("cvt.sat.u8.s32 $d, $a;", "ww", (s32)a < 0 ? 0 : (s32)a > 255 ? 255 : (u32)a) \
    _("cvt.sat.s32.s64 $d, $a;", "wd", (u32)clamped((s64)a)) \
    _("cvt.sat.u32.s64 $d, $a;", "wd", (s64)a < 0 ? 0 : (s64)a > UINT32_MAX ? UINT32_MAX : (u32)a) \
    _("selp.b32 $d, $a, $b, $c;", "wwwp", c ? (u32)a : (u32)b) \
    _("slct.u32.s32 $d, $a, $b, $c;", "wwww", (s32)c >= 0 ? (u32)a : (u32)b) \
    _("setp.lt.s32 $d, $a, $b;", "pww", (s32)a < (s32)b) \
    _("setp.hi.u32 $d, $a, $b;", "pww", (u32)a > (u32)b) \
    _("setp.ge.s64 $d, $a, $b;", "pdd", (s64)a >= (s64)b) \
    _("setp.ne.s16 $d, $a, $b;", "phh", (u16)a != (u16)b) \
    _("setp.gt.s16 $d, $a, $b;", "phh", (s16)a > (s16)b) \
    _("setp.lt.and.u32 $d, $a, $b, $c;", "pwwp", (u32)a < (u32)b && c) \
    _("setp.lt.or.u32 $d|%p30, $a, $b, !$c;", "pwwp", (u32)a < (u32)b || !c) \
    _("setp.lt.xor.u32 %p30|$d, $a, $b, $c;", "pwwp", ((u32)a >= (u32)b) != (c != 0)) \
    _("setp.eq.u32 %p30|$d, $a, $b;", "pww", (u32)a != (u32)b) \
    _("set.gt.u32.s32 $d, $a, $b;", "www", (s32)a > (s32)b ? UINT32_MAX : 0) \
    _("setp.lt.u32 %p30, $a, $b; mov.u32 $d, 5; @%p30 mov.u32 $d, 6; @!%p30 add.u32 $d, $d, 2;", "www", \
      (u32)a < (u32)b ? 6 : 7) \
    _("not.pred $d, $a;", "pp", a == 0) \
    _("xor.pred $d, $a, $b;", "ppp", (a != 0) != (b != 0))

#define LINE(text, sig, expr) { text, sig },
#define WANT(text, sig, expr) if (k-- == 0) return (u64)(expr);
static const value_case integer_cases[] = { INTEGER_CASES(LINE) };
static u64 integer_want(int k, u64 a, u64 b, u64 c)
{
    INTEGER_CASES(WANT)
    return 0;
}

static void test_integers(void **state)
{
    (void)state;
    static const u64 some[] = { 0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 255, 256, 32767, 32768, 65535, 65536,
                                0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0x100000000, 0x0123456789ABCDEF,
                                0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFEDCBA9876543210 };
    memcpy(edges, some, sizeof some);
    n_edges = COUNT(some);
    check_all(integer_cases, COUNT(integer_cases), integer_want);
}

/* ---- floats ------------------------------------------------------------------------------------------------------------------------ */

static float f32(u64 b)
{
    const u32 low = (u32)b;
    float v;
    memcpy(&v, &low, 4);
    return v;
}
static double f64(u64 b)
{
    double v;
    memcpy(&v, &b, 8);
    return v;
}
static u64 b32(float v)
{
    u32 b;
    memcpy(&b, &v, 4);
    return b;
}
static u64 b64(double v)
{
    u64 b;
    memcpy(&b, &v, 8);
    return b;
}

/* the host's own arithmetic, rounded another way; volatile keeps it at its place */
static float rounded(int mode, char op, float a, float b, float c)
{
    volatile float x = a, y = b, z = c, r;
    fesetround(mode);
    r = op == '+' ? x + y : op == '*' ? x * y : op == '/' ? x / y : op == 'q' ? sqrtf(x) : fmaf(x, y, z);
    fesetround(FE_TONEAREST);
    return r;
}
static float flushed(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }
static bool below(float a, float b) { return a < b || (a == b && signbit(a) && !signbit(b)); }
static float lesser(float a, float b) { return isnan(a) ? b : isnan(b) ? a : below(b, a) ? b : a; }
static float greater(float a, float b) { return isnan(a) ? b : isnan(b) ? a : below(a, b) ? b : a; }
static float in_unit(float v) { return !(v > 0) ? 0 : v > 1 ? 1 : v; }
static s64 to_int(double v, double low, double high, bool nan_is_0, s64 low_int, s64 high_int)
{
    return isnan(v) ? (nan_is_0 ? 0 : low_int) : v <= low ? low_int : v >= high ? high_int : (s64)v;
}
#define S32(v, z) (u32)to_int(v, -2147483648.0, 2147483647.0, z, INT32_MIN, INT32_MAX)
#define S64(v) (u64)to_int(v, -0x1p63, 0x1p63, false, INT64_MIN, INT64_MAX)

#define A f32(a)
#define B f32(b)
#define C f32(c)
#define FLOAT_CASES(_) \
    _("add.f32 $d, $a, $b;", "fff", b32(A + B)) \
    _("add.rn.f32 $d, $a, $b;", "fff", b32(A + B)) \
    _("add.rz.f32 $d, $a, $b;", "fff", b32(rounded(FE_TOWARDZERO, '+', A, B, 0))) \
    _("add.ftz.f32 $d, $a, $b;", "fff", b32(flushed(flushed(A) + flushed(B)))) \
    _("sub.f32 $d, $a, $b;", "fff", b32(A - B)) \
    _("mul.f32 $d, $a, $b;", "fff", b32(A * B)) \
    _("mul.rm.f32 $d, $a, $b;", "fff", b32(rounded(FE_DOWNWARD, '*', A, B, 0))) \
    _("mul.sat.f32 $d, $a, $b;", "fff", b32(in_unit(A * B))) \
    _("fma.rn.f32 $d, $a, $b, $c;", "ffff", b32(fmaf(A, B, C))) \
    _("fma.rz.f32 $d, $a, $b, $c;", "ffff", b32(rounded(FE_TOWARDZERO, 'f', A, B, C))) \
    _("fma.rm.f32 $d, $a, $b, $c;", "ffff", b32(rounded(FE_DOWNWARD, 'f', A, B, C))) \
    _("fma.rp.f32 $d, $a, $b, $c;", "ffff", b32(rounded(FE_UPWARD, 'f', A, B, C))) \
    _("div.rn.f32 $d, $a, $b;", "fff", b32(A / B)) \
    _("div.rp.f32 $d, $a, $b;", "fff", b32(rounded(FE_UPWARD, '/', A, B, 0))) \
    _("div.approx.f32 $d, $a, $b;", "fff", b32(A / B)) \
    _("rcp.rn.f32 $d, $a;", "ff", b32(1 / A)) \
    _("rcp.approx.ftz.f32 $d, $a;", "ff", b32(flushed(1 / flushed(A)))) \
    _("sqrt.rn.f32 $d, $a;", "ff", b32(sqrtf(A))) \
    _("sqrt.rm.f32 $d, $a;", "ff", b32(rounded(FE_DOWNWARD, 'q', A, 0, 0))) \
    _("min.f32 $d, $a, $b;", "fff", b32(lesser(A, B))) \
    _("max.f32 $d, $a, $b;", "fff", b32(greater(A, B))) \
    _("max.NaN.f32 $d, $a, $b;", "fff", isnan(A) || isnan(B) ? 0x7FFFFFFF : b32(greater(A, B))) \
    _("neg.f32 $d, $a;", "ff", (u32)a ^ 0x80000000u) \
    _("abs.f32 $d, $a;", "ff", (u32)a & 0x7FFFFFFFu) \
    _("copysign.f32 $d, $a, $b;", "fff", ((u32)a & 0x80000000u) | ((u32)b & 0x7FFFFFFFu)) \
    _("setp.lt.f32 $d, $a, $b;", "pff", A < B) \
    _("setp.ne.f32 $d, $a, $b;", "pff", A < B || A > B) \
    _("setp.neu.f32 $d, $a, $b;", "pff", A != B) \
    _("setp.equ.f32 $d, $a, $b;", "pff", !(A < B || A > B)) \
    _("setp.ltu.f32 $d, $a, $b;", "pff", !(A >= B)) \
    _("setp.geu.f32 $d, $a, $b;", "pff", !(A < B)) \
    _("setp.num.f32 $d, $a, $b;", "pff", !isnan(A) && !isnan(B)) \
    _("setp.nan.f32 $d, $a, $b;", "pff", isnan(A) || isnan(B)) \
    _("testp.finite.f32 $d, $a;", "pf", isfinite(A) != 0) \
    _("testp.infinite.f32 $d, $a;", "pf", isinf(A) != 0) \
    _("testp.normal.f32 $d, $a;", "pf", isnormal(A) != 0) \
    _("testp.subnormal.f32 $d, $a;", "pf", fpclassify(A) == FP_SUBNORMAL) \
    _("cvt.rni.f32.f32 $d, $a;", "ff", b32(rintf(A))) \
    _("cvt.rzi.f32.f32 $d, $a;", "ff", b32(truncf(A))) \
    _("cvt.rmi.f32.f32 $d, $a;", "ff", b32(floorf(A))) \
    _("cvt.rpi.f32.f32 $d, $a;", "ff", b32(ceilf(A))) \
    _("cvt.sat.f32.f32 $d, $a;", "ff", b32(in_unit(A))) \
    _("cvt.rni.s32.f32 $d, $a;", "wf", S32(rint(A), true)) \
    _("cvt.rzi.s32.f32 $d, $a;", "wf", S32(trunc(A), true)) \
    _("cvt.rmi.s32.f32 $d, $a;", "wf", S32(floor(A), true)) \
    _("cvt.rpi.s32.f64 $d, $a;", "wF", S32(ceil(f64(a)), false)) \
    _("cvt.rzi.s64.f32 $d, $a;", "df", S64(trunc(A))) \
    _("cvt.rni.s64.f64 $d, $a;", "dF", S64(rint(f64(a)))) \
    _("cvt.rzi.u32.f32 $d, $a;", "wf", (u32)to_int(trunc(A), 0, 4294967295.0, true, 0, UINT32_MAX)) \
    _("cvt.rzi.u8.f32 $d, $a;", "wf", (u32)to_int(trunc(A), 0, 255, true, 0, 255)) \
    _("cvt.rn.f32.s32 $d, $a;", "fw", b32((float)(s32)a)) \
    _("cvt.rn.f32.u64 $d, $a;", "fd", b32((float)a)) \
    _("cvt.rn.f64.s64 $d, $a;", "Fd", b64((double)(s64)a)) \
    _("cvt.rn.f32.u8 $d, $a;", "fw", b32((float)(u8)a)) \
    _("cvt.f64.f32 $d, $a;", "Ff", b64((double)A)) \
    _("cvt.rn.f32.f64 $d, $a;", "fF", b32((float)f64(a))) \
    _("add.f64 $d, $a, $b;", "FFF", b64(f64(a) + f64(b))) \
    _("mul.f64 $d, $a, $b;", "FFF", b64(f64(a) * f64(b))) \
    _("fma.rn.f64 $d, $a, $b, $c;", "FFFF", b64(fma(f64(a), f64(b), f64(c)))) \
    _("div.rn.f64 $d, $a, $b;", "FFF", b64(f64(a) / f64(b))) \
    _("sqrt.rn.f64 $d, $a;", "FF", b64(sqrt(f64(a)))) \
    _("setp.gtu.f64 $d, $a, $b;", "pFF", !(f64(a) <= f64(b)))
static const value_case float_cases[] = { FLOAT_CASES(LINE) };
static u64 float_want(int k, u64 a, u64 b, u64 c)
{
    FLOAT_CASES(WANT)
    return 0;
}

/* As f32 the low halves count, as f64 the whole: each value is of interest as both. */
static void test_floats(void **state)
{
    (void)state;
    static const float some[] = { 0.0f, -0.0f, 1, -1, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, 3.1415927f, 1e-3f, -1e10f, 2147483520.0f, 2147483648.0f,
                                  -2147483904.0f, 4294967040.0f, 4294967296.0f, 9.3e18f, -9.3e18f, 255.5f, 1e-45f, -1e-40f,
                                  0x1p-126f, 3.4e38f, -3.4e38f, INFINITY, -INFINITY, NAN, 0x1.000002p0f, 16777217.0f };
    n_edges = 0;
    for (size_t i = 0; i < COUNT(some); i++) edges[n_edges++] = (b64(some[i]) & ~0xFFFFFFFFull) | b32(some[i]);
    check_all(float_cases, COUNT(float_cases), float_want);
}

/* ---- halves ------------------------------------------------------------------------------------------------------------------------ */

static double half_value(u32 h) /* by the format's definition */
{
    const int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    const double size = e == 31 ? (m ? (double)NAN : (double)INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -size : size;
}

/* the nearest of all halves, of two the even one */
static u32 nearest_half(double v)
{
    const u32 sign = signbit(v) ? 0x8000u : 0;
    u32 low = 0, high = 0x7C00;
    v = fabs(v);
    if (isnan(v)) return 0x7FFF;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (half_value(middle) <= v) low = middle;
        else high = middle;
    }
    const double a = v - half_value(low), b = (high == 0x7C00 ? 65536.0 : half_value(high)) - v;
    return sign | (v >= 65520 || b < a || (a == b && (high & 1) == 0) ? high : low);
}

static void test_f16(void **state)
{
    (void)state;
    enum { N = 65536 };
    static u64 rows[3 * N], have[N];
    for (u32 h = 0; h < N; h++) rows[3 * h] = h, rows[3 * h + 1] = (h * 40503u + 7) & 0xFFFF;
    instruction("cvt.f32.f16 $d, $a;", "fh", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (isnan(half_value(h)) ? !isnan(f32(have[h])) : have[h] != b32((float)half_value(h))) fail_msg("f16 %x", h);
    for (u32 h = 0; h < N; h++) rows[3 * h] = b32((float)half_value(h));
    instruction("cvt.rn.f16.f32 $d, $a;", "hf", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (have[h] != (isnan(half_value(h)) ? 0x7FFF : h)) fail_msg("f16 %x there and back: %x", h, (u32)have[h]);
    for (u32 h = 0; h < N; h++) rows[3 * h] = h * 65537ull + h % 7; /* floats of all kinds */
    instruction("cvt.rn.f16.f32 $d, $a;", "hf", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (have[h] != nearest_half((double)f32(rows[3 * h]))) fail_msg("f32 %llx: %x", (unsigned long long)rows[3 * h], (u32)have[h]);
    for (u32 h = 0; h < N; h++) rows[3 * h] = h;
    instruction("add.f16 $d, $a, $b;", "hhh", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (have[h] != nearest_half(half_value(h) + half_value((u32)rows[3 * h + 1]))) fail_msg("add.f16 %x: %x", h, (u32)have[h]);
    instruction("mul.rn.f16 $d, $a, $b;", "hhh", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (have[h] != nearest_half(half_value(h) * half_value((u32)rows[3 * h + 1]))) fail_msg("mul.f16 %x: %x", h, (u32)have[h]);
}

static void test_f16x2_bf16(void **state)
{
    (void)state;
    enum { N = 4096 };
    static u64 rows[3 * N], have[N];
    u64 random = 5;
    for (u32 k = 0; k < 3 * N; k++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        rows[k] = random >> 32;
    }
    instruction("cvt.rn.bf16.f32 $d, $a;", "hf", rows, N, have);
    for (u32 k = 0; k < N; k++) {
        const u32 b = (u32)rows[3 * k], want = isnan(f32(b)) ? 0x7FFF : (b + 0x7FFF + (b >> 16 & 1)) >> 16;
        if (have[k] != want) fail_msg("bf16 of %x: %x", b, (u32)have[k]);
    }
    instruction("cvt.rn.f16x2.f32 $d, $a, $b;", "wff", rows, N, have);
    for (u32 k = 0; k < N; k++)
        assert_int_equal(have[k], nearest_half((double)f32(rows[3 * k])) << 16 | nearest_half((double)f32(rows[3 * k + 1])));
    instruction("fma.rn.f16x2 $d, $a, $b, $c;", "wwww", rows, N, have);
    for (u32 k = 0; k < N; k++)
        for (int part = 0; part < 2; part++) { /* the product is exact, and long double holds most sums */
            const u64 *const r = &rows[3 * k];
            const long double p = (long double)half_value((u32)r[0] >> 16 * part & 0xFFFF) *
                                  (long double)half_value((u32)r[1] >> 16 * part & 0xFFFF);
            const long double exact = p + (long double)half_value((u32)r[2] >> 16 * part & 0xFFFF);
            const u32 h = (u32)have[k] >> 16 * part & 0xFFFF;
            if ((long double)(double)exact == exact && h != nearest_half((double)exact)) fail_msg("fma.f16x2: %x", h);
        }
    instruction("add.rn.bf16x2 $d, $a, $b;", "www", rows, N, have);
    for (u32 k = 0; k < N; k++) {
        const double sum = (double)f32((u32)rows[3 * k] & 0xFFFF0000u) + (double)f32((u32)rows[3 * k + 1] & 0xFFFF0000u);
        if ((double)(float)sum != sum) continue; /* then twice rounded is once rounded */
        const u32 b = (u32)b32((float)sum), want = isnan(sum) ? 0x7FFF : (b + 0x7FFF + (b >> 16 & 1)) >> 16;
        assert_int_equal(have[k] >> 16, want);
    }
}

/* ---- functions --------------------------------------------------------------------------------------------------------------------- */

static void test_functions(void **state)
{
    (void)state;
    static const struct { const char *text; double (*f)(double); double low, high, relative, absolute; } all[] = {
        { "ex2.approx.f32 $d, $a;", exp2, -160, 140, 1.2e-7, 1e-45 }, { "lg2.approx.f32 $d, $a;", log2, 1e-30, 1e30, 2e-7, 1e-7 },
        { "sin.approx.f32 $d, $a;", sin, -50, 50, 2e-7, 1e-7 }, { "cos.approx.f32 $d, $a;", cos, -50, 50, 2e-7, 1e-7 },
        { "tanh.approx.f32 $d, $a;", tanh, -20, 20, 3e-7, 0 }, { "sqrt.approx.f32 $d, $a;", sqrt, 0, 1e38, 6e-8, 0 } };
    enum { N = 20000 };
    static u64 rows[3 * N], have[N];
    for (size_t k = 0; k < COUNT(all); k++) {
        for (int i = 0; i < N; i++) rows[3 * i] = b32((float)(all[k].low + (all[k].high - all[k].low) * i / (N - 1)));
        instruction(all[k].text, "ff", rows, N, have);
        for (int i = 0; i < N; i++) {
            const double x = (double)f32(rows[3 * i]), want = all[k].f(x), got = (double)f32(have[i]);
            if (fabs(want) < 3e38 && !(fabs(got - want) <= fabs(want) * all[k].relative + all[k].absolute))
                fail_msg("%s of %g: %g, not %g", all[k].text, x, got, want);
        }
    }
    const u64 corner[] = { b32(NAN), 0, 0, b32(INFINITY), 0, 0, b32(-INFINITY), 0, 0, b32(1e30f), 0, 0 };
    instruction("ex2.approx.ftz.f32 $d, $a;", "ff", corner, 4, have);
    assert_true(isnan(f32(have[0])) && have[1] == b32(INFINITY) && have[2] == 0 && have[3] == b32(INFINITY));
    const u64 third[] = { b64(3), 0, 0, 0, 0, 0 };
    instruction("rcp.approx.ftz.f64 $d, $a;", "FF", third, 2, have);
    assert_true(fabs(f64(have[0]) * 3 - 1) < 1e-6 && (have[0] & 0xFFFFFFFF) == 0 && isinf(f64(have[1])));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_integers), cmocka_unit_test(test_floats),
                                        cmocka_unit_test(test_f16), cmocka_unit_test(test_f16x2_bf16),
                                        cmocka_unit_test(test_functions) };
    setenv("FAKECUDA_NO_AVX2", "1", 1); /* with the code for any CPU, then with that for this one */
    const int plain = cmocka_run_group_tests(tests, NULL, NULL);
    unsetenv("FAKECUDA_NO_AVX2");
    return plain + cmocka_run_group_tests(tests, NULL, NULL);
}
