/* test_base.c: the lowest floor: messages, memory, arena, text, data types, Philox, names.
 * Known answers of Philox are those published with Random123. */
#include "base/base.h"

#include <setjmp.h>
#include <cmocka.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- failure ----------------------------------------------------------------------------------------------------- */

static sw_status fails(void)
{
    return sw__fail(SW_ERR_IO, "%s: %d", "file", 7);
}

static sw_status passes_on(void)
{
    SW_TRY(fails());
    return SW_OK;
}

static void test_message(void **state)
{
    (void)state;
    assert_int_equal(passes_on(), SW_ERR_IO);
    assert_string_equal(sw_error(), "file: 7");
    assert_int_equal(sw__prefix(SW_ERR_IO, "line %d", 3), SW_ERR_IO);
    assert_string_equal(sw_error(), "line 3: file: 7");
    sw__fail(SW_ERR_DATA, "again: %s", sw_error()); /* the argument is the old message itself */
    assert_string_equal(sw_error(), "again: line 3: file: 7");
    sw__no_memory(12, "weights");
    assert_string_equal(sw_error(), "out of memory: 12 bytes for weights");
    for (int s = 0; s < SW_STATUS_COUNT; s++) assert_string_not_equal(sw_status_name((sw_status)s), "unknown status");
    assert_string_equal(sw_status_name((sw_status)99), "unknown status");
    assert_string_equal(sw_status_name((sw_status)-1), "unknown status");
    assert_string_equal(sw_version(), "0.1.0");
}

static void test_message_is_cut(void **state)
{
    (void)state;
    char *const text = sw__malloc(5001);
    assert_non_null(text);
    memset(text, 'x', 5000);
    text[5000] = '\0';
    sw__fail(SW_ERR_IO, "%s", text);
    assert_int_equal(strlen(sw_error()), 1023);
    sw__prefix(SW_ERR_IO, "%s", "front");
    assert_int_equal(strlen(sw_error()), 1023);
    assert_memory_equal(sw_error(), "front: xxx", 10);
    sw__prefix(SW_ERR_IO, "%s", text);
    assert_int_equal(strlen(sw_error()), 1023);

    for (size_t start = 1019; start <= 1023; start++) { /* "€" has three bytes and is kept whole or not at all */
        memset(text, 'x', 5000);
        memcpy(text + start, "\xE2\x82\xAC", 3);
        sw__fail(SW_ERR_IO, "%s", text);
        assert_int_equal(strlen(sw_error()), start + 3 <= 1023 ? 1023 : start);
    }
    sw__free(text);
}

/* What a message quotes may be anything; it is UTF-8 without control characters all the same. */
static void test_message_is_escaped(void **state)
{
    (void)state;
    static const struct { const char *given, *kept; } cases[] = {
        { "a\033[31mb", "a\\x1b[31mb" },
        { "line\nand\ttab", "line\nand\ttab" },
        { "\x7f\x01", "\\x7f\\x01" },
        { "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x9f", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x9f" },
        { "\xff\xfe", "\\xff\\xfe" },
        { "\xc3", "\\xc3" },                 /* half a character */
        { "\xc0\xaf", "\\xc0\\xaf" },       /* longer than need be */
        { "\xe0\x80\xaf", "\\xe0\\x80\\xaf" },
        { "\xed\xa0\x80", "\\xed\\xa0\\x80" }, /* a surrogate */
        { "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" },
        { "\xc2\x9b" "2J", "\\xc2\\x9b2J" }, /* an escape of terminals in eight bits */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw__fail(SW_ERR_DATA, "%s", cases[i].given);
        assert_string_equal(sw_error(), cases[i].kept);
        sw__fail(SW_ERR_DATA, "%s", sw_error()); /* once is enough */
        assert_string_equal(sw_error(), cases[i].kept);
        sw__fail(SW_ERR_DATA, "x");
        sw__prefix(SW_ERR_DATA, "%s", cases[i].given);
        assert_memory_equal(sw_error(), cases[i].kept, strlen(cases[i].kept));
    }
    char raw[2001]; /* four times as long as the room that there is */
    memset(raw, 1, 2000);
    raw[2000] = '\0';
    sw__fail(SW_ERR_DATA, "%s", raw);
    assert_int_equal(strlen(sw_error()), 1020); /* no half of an escape */
}

static void *other_thread(void *arg)
{
    (void)arg;
    const bool clean = sw_error()[0] == '\0';
    sw__fail(SW_ERR_DATA, "in the other thread");
    return clean ? "clean" : NULL;
}

static void test_message_per_thread(void **state)
{
    (void)state;
    sw__fail(SW_ERR_DATA, "in this thread");
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    assert_string_equal(sw_error(), "in this thread");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void test_memory(void **state)
{
    (void)state;
    void *p = sw__malloc(0);
    assert_non_null(p);
    assert_null(sw__realloc(p, SIZE_MAX / 2, 3)); /* overflow: p stays valid */
    p = sw__realloc(p, 3, 5);
    assert_non_null(p);
    sw__free(p);
    volatile size_t many = SIZE_MAX / 2;
    assert_null(sw__calloc(many, 3));
    assert_null(sw__malloc_aligned(64, SIZE_MAX - 3));
    for (size_t align = 1; align <= 4096; align *= 2) {
        p = sw__malloc_aligned(align, 17);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        sw__free(p);
    }
    sw__free(NULL);

    assert_null(sw__strdup(NULL));
    assert_null(sw__strndup(NULL, 3));
    char *s = sw__strndup("abcdef", 3);
    assert_string_equal(s, "abc");
    sw__free(s);
    s = sw__strndup("ab", 30);
    assert_string_equal(s, "ab");
    sw__free(s);
    s = sw__asprintf("%s-%d", "x", 42);
    assert_string_equal(s, "x-42");
    sw__free(s);

    size_t out = 0;
    assert_true(sw__mul_size(6, 7, &out));
    assert_int_equal(out, 42);
    assert_false(sw__mul_size(SIZE_MAX, 2, &out));
    assert_true(sw__add_size(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_false(sw__add_size(SIZE_MAX, 1, &out));
}

static void test_grow(void **state)
{
    (void)state;
    int *items = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(sw__grow(&items, &capacity, (size_t)i + 1, sizeof *items, "items"), SW_OK);
        assert_true(capacity > (size_t)i);
        items[i] = i;
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(items[i], i);
    const size_t before = capacity;
    assert_int_equal(sw__grow(&items, &capacity, SIZE_MAX / 2, sizeof *items, "items"), SW_ERR_MEMORY);
    assert_non_null(strstr(sw_error(), "items"));
    assert_int_equal(capacity, before);
    assert_int_equal(items[999], 999);
    sw__free(items);
}

static void test_arena(void **state)
{
    (void)state;
    sw__arena arena = { 0 };
    size_t bytes = 0;
    for (size_t n = 0; n < 9000; n = n * 2 + 1) {
        unsigned char *const p = sw__arena_alloc(&arena, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xAA, n);
        bytes += n;
    }
    assert_true(arena.used >= bytes);
    unsigned char *const large = sw__arena_alloc(&arena, 3 << 20);
    assert_non_null(large);
    assert_int_equal(large[(3 << 20) - 1], 0);
    assert_string_equal(sw__arena_strdup(&arena, "word"), "word");
    assert_null(sw__arena_strdup(&arena, NULL));
    assert_string_equal(sw__arena_printf(&arena, "%d + %d", 1, 2), "1 + 2");
    assert_null(sw__arena_alloc(&arena, SIZE_MAX));
    assert_null(sw__arena_alloc(&arena, SIZE_MAX - 64));
    sw__arena_free(&arena);
    assert_null(arena.head);
    assert_int_equal(arena.used, 0);
    sw__arena_free(&arena);
}

static void test_text(void **state)
{
    (void)state;
    sw__text text = { 0 };
    sw__text_put(&text, NULL, 0);
    assert_string_equal(text.s, "");
    for (int i = 0; i < 500; i++) sw__text_add(&text, "%d,", i % 10);
    sw__text_put(&text, "a\0b", 3);
    assert_false(text.failed);
    assert_int_equal(text.len, 1003);
    assert_memory_equal(text.s, "0,1,2,", 6);
    assert_memory_equal(text.s + 1000, "a\0b", 4);
    text.failed = true;
    sw__text_add(&text, "ignored");
    sw__text_put(&text, "ignored", 7);
    assert_int_equal(text.len, 1003);
    sw__text_free(&text);
    assert_null(text.s);
}

/* ---- data types -------------------------------------------------------------------------------------------------- */

static void test_dtype_names(void **state)
{
    (void)state;
    static const size_t sizes[SW_DTYPE_COUNT] = { 4, 8, 2, 2, 4, 8, 1, 1, 4 };
    for (int t = 0; t < SW_DTYPE_COUNT; t++) {
        sw_dtype parsed = SW_DTYPE_COUNT;
        assert_int_equal(sw_dtype_size((sw_dtype)t), sizes[t]);
        assert_true(sw__dtype_parse(sw_dtype_name((sw_dtype)t), &parsed));
        assert_int_equal(parsed, t);
        assert_int_equal(sw__dtype_is_float((sw_dtype)t), t <= SW_BF16);
    }
    sw_dtype untouched = SW_U8;
    assert_false(sw__dtype_parse("f31", &untouched));
    assert_int_equal(untouched, SW_U8);
    assert_int_equal(sw_dtype_size((sw_dtype)77), 0);
    assert_string_equal(sw_dtype_name((sw_dtype)-1), "?");
    assert_false(sw__dtype_is_float((sw_dtype)77));
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The value of a 16-bit float from its definition; NaN and infinity as they are. */
static double half_value(uint16_t h, int exponent_bits)
{
    const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = h >> mantissa_bits & ((1 << exponent_bits) - 1), mantissa = h & ((1 << mantissa_bits) - 1);
    double v;
    if (exponent == (1 << exponent_bits) - 1) v = mantissa != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0) v = ldexp(mantissa, 1 - bias - mantissa_bits);
    else v = ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return (h & 0x8000) != 0 ? -v : v;
}

typedef struct half_kind {
    uint16_t (*down)(float);
    float (*up)(uint16_t);
    int exponent_bits;
    sw_dtype dtype;
} half_kind;

static const half_kind halves[] = {
    { sw__f32_to_f16, sw__f16_to_f32, 5, SW_F16 },
    { sw__f32_to_bf16, sw__bf16_to_f32, 8, SW_BF16 },
};

/* Every 16-bit pattern: its value, and back to the same pattern. */
static void test_half_round_trip(void **state)
{
    (void)state;
    for (size_t k = 0; k < SW_COUNT(halves); k++) {
        for (uint32_t i = 0; i <= 0xFFFF; i++) {
            const uint16_t h = (uint16_t)i;
            const double want = half_value(h, halves[k].exponent_bits);
            const float got = halves[k].up(h);
            if (isnan(want)) {
                assert_true(isnan(got));
                assert_true(isnan(halves[k].up(halves[k].down(got))));
                continue;
            }
            assert_true((double)got == want);
            assert_int_equal(signbit(got) != 0, h >> 15);
            assert_int_equal(halves[k].down(got), h);
        }
    }
}

/* Between any two neighbours: just below the middle goes down, the middle to even, just above goes up. */
static void test_half_rounding(void **state)
{
    (void)state;
    for (size_t k = 0; k < SW_COUNT(halves); k++) {
        const uint16_t infinity = (uint16_t)(((1 << halves[k].exponent_bits) - 1) << (15 - halves[k].exponent_bits));
        for (uint16_t h = 0; h < infinity; h++) {
            const double low = half_value(h, halves[k].exponent_bits);
            const double step = h + 1 < infinity ? half_value((uint16_t)(h + 1), halves[k].exponent_bits) - low
                                                 : low - half_value((uint16_t)(h - 1), halves[k].exponent_bits);
            const double middle = low + step / 2;
            double wide[6];
            uint16_t narrow[6];
            const uint16_t even = (h & 1) == 0 ? h : (uint16_t)(h + 1), up = (uint16_t)(h + 1);
            const uint16_t want[6] = { even, h, up, (uint16_t)(even | 0x8000), (uint16_t)(h | 0x8000),
                                       (uint16_t)(up | 0x8000) };
            wide[0] = middle;
            wide[1] = nextafter(middle, 0.0); /* a double rounding through float would lose these */
            wide[2] = nextafter(middle, INFINITY);
            for (int i = 0; i < 3; i++) wide[i + 3] = -wide[i];
            sw__convert(narrow, halves[k].dtype, wide, SW_F64, 6);
            assert_memory_equal(narrow, want, sizeof want);

            const float f = (float)middle; /* exact, save below the least float */
            if ((double)f != middle) continue;
            assert_int_equal(halves[k].down(f), even);
            assert_int_equal(halves[k].down(float_of(bits_of(f) - 1)), h);
            assert_int_equal(halves[k].down(float_of(bits_of(f) + 1)), up);
            assert_int_equal(halves[k].down(-f), even | 0x8000);
        }
    }
    assert_true(isnan(sw__f16_to_f32(sw__f32_to_f16(float_of(0x7F800001u)))));
    assert_true(isnan(sw__bf16_to_f32(sw__f32_to_bf16(float_of(0x7F800001u)))));
    assert_true(isnan(sw__bf16_to_f32(sw__f32_to_bf16(float_of(0xFFFFFFFFu)))));
}

static void test_convert(void **state)
{
    (void)state;
    static const double wild[] = { NAN, INFINITY, -INFINITY, 1e300, -1e300, 2.9, -2.9, -0.0,
                                   255.99, 256.0, 4294967295.5 };
    enum { N = SW_COUNT(wild) };
    int32_t i32[N];
    int64_t i64[N];
    uint32_t u32[N];
    uint8_t u8[N], b[N];
    sw__convert(i32, SW_I32, wild, SW_F64, N);
    sw__convert(i64, SW_I64, wild, SW_F64, N);
    sw__convert(u32, SW_U32, wild, SW_F64, N);
    sw__convert(u8, SW_U8, wild, SW_F64, N);
    sw__convert(b, SW_BOOL, wild, SW_F64, N);
    static const int32_t want_i32[N] = { 0, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 2, -2, 0, 255, 256, INT32_MAX };
    static const int64_t want_i64[N] = { 0, INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN, 2, -2, 0,
                                         255, 256, 4294967295 };
    static const uint32_t want_u32[N] = { 0, UINT32_MAX, 0, UINT32_MAX, 0, 2, 0, 0, 255, 256, UINT32_MAX };
    static const uint8_t want_u8[N] = { 0, 255, 0, 255, 0, 2, 0, 0, 255, 255, 255 };
    static const uint8_t want_b[N] = { 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1 };
    assert_memory_equal(i32, want_i32, sizeof i32);
    assert_memory_equal(i64, want_i64, sizeof i64);
    assert_memory_equal(u32, want_u32, sizeof u32);
    assert_memory_equal(u8, want_u8, sizeof u8);
    assert_memory_equal(b, want_b, sizeof b);

    static const int64_t big[] = { INT64_MIN, INT64_MAX, -1, 256, 65519, 65520, (INT64_C(1) << 60) + 1 };
    static const uint8_t want_wrapped[] = { 0, 255, 255, 0, 239, 240, 1 };
    uint8_t wrapped[SW_COUNT(big)];
    uint16_t half[SW_COUNT(big)];
    sw__convert(wrapped, SW_U8, big, SW_I64, SW_COUNT(big));
    assert_memory_equal(wrapped, want_wrapped, sizeof wrapped);
    sw__convert(half, SW_F16, big, SW_I64, SW_COUNT(big));
    assert_true(isinf(sw__f16_to_f32(half[0])) && isinf(sw__f16_to_f32(half[1])));
    assert_true(sw__f16_to_f32(half[2]) == -1.0f);
    assert_true(sw__f16_to_f32(half[4]) == 65504.0f && isinf(sw__f16_to_f32(half[5])));

    /* 2^60 + 2^52 is half a bf16 step above 2^60; one more rounds up, in one step only */
    static const int64_t tie[] = { (INT64_C(1) << 60) + (INT64_C(1) << 52), (INT64_C(1) << 60) + (INT64_C(1) << 52) + 1,
                                   -(INT64_C(1) << 60) - (INT64_C(1) << 52) - 1,
                                   (INT64_C(1) << 60) + (INT64_C(1) << 52) - 1 };
    static const double want_tie[] = { 0x1p60, 0x1.02p60, -0x1.02p60, 0x1p60 };
    sw__convert(half, SW_BF16, tie, SW_I64, SW_COUNT(tie));
    for (size_t i = 0; i < SW_COUNT(tie); i++) assert_true((double)sw__bf16_to_f32(half[i]) == want_tie[i]);
}

/* Small integers survive the way from any type to any other, at lengths around the chunk's. */
static void test_convert_all_pairs(void **state)
{
    (void)state;
    static const size_t lengths[] = { 0, 1, 255, 256, 257, 1000 };
    uint8_t start[1000], end[1000];
    double a[1000], b[1000]; /* as bytes, wide enough for every type */
    for (int i = 0; i < 1000; i++) start[i] = (uint8_t)(i % 2);
    for (int from = 0; from < SW_DTYPE_COUNT; from++) {
        for (int to = 0; to < SW_DTYPE_COUNT; to++) {
            for (size_t k = 0; k < SW_COUNT(lengths); k++) {
                const size_t n = lengths[k];
                memset(end, 0, sizeof end);
                sw__convert(a, (sw_dtype)from, start, SW_U8, n);
                sw__convert(b, (sw_dtype)to, a, (sw_dtype)from, n);
                sw__convert(end, SW_U8, b, (sw_dtype)to, n);
                assert_memory_equal(end, start, n);
            }
        }
    }
}

/* ---- Philox ------------------------------------------------------------------------------------------------------ */

static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < SW_COUNT(known); i++) {
        uint32_t out[4];
        sw__philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    sw__rng r;
    sw__rng_init(&r, 0, 0);
    for (int i = 0; i < 4; i++) assert_int_equal(sw__rng_u32(&r), known[0].out[i]);
    const uint32_t second[4] = { 1, 0, 0, 0 };
    uint32_t out[4];
    sw__philox(second, known[0].key, out);
    assert_int_equal(sw__rng_u32(&r), out[0]);
}

static void test_rng(void **state)
{
    (void)state;
    const int count = 200000;
    const double n = count;
    sw__rng r, same, other;
    sw__rng_init(&r, 7, 1);
    sw__rng_init(&same, 7, 1);
    sw__rng_init(&other, 7, 2);
    int equal = 0;
    for (int i = 0; i < 100; i++) {
        const uint32_t x = sw__rng_u32(&r);
        assert_int_equal(x, sw__rng_u32(&same));
        equal += x == sw__rng_u32(&other);
    }
    assert_int_equal(equal, 0);

    double sum = 0, square = 0, mean = 0;
    for (int i = 0; i < count; i++) {
        const double u = sw__rng_uniform(&r), z = sw__rng_normal(&r);
        assert_true(u >= 0.0 && u < 1.0);
        assert_true(isfinite(z));
        mean += u / n;
        sum += z;
        square += z * z;
    }
    assert_true(fabs(mean - 0.5) < 5 * 0.289 / sqrt(n));
    assert_true(fabs(sum / n) < 5 / sqrt(n));
    assert_true(fabs(square / n - 1) < 5 * sqrt(2.0 / n));

    int counts[6] = { 0 };
    for (int i = 0; i < 60000; i++) counts[sw__rng_below(&r, 6)]++;
    for (int i = 0; i < 6; i++) assert_true(abs(counts[i] - 10000) < 500);
    for (int i = 0; i < 1000; i++) assert_true(sw__rng_below(&r, (UINT64_C(1) << 63) + 1) <= UINT64_C(1) << 63);
    assert_int_equal(sw__rng_below(&r, 1), 0);

    int64_t items[100];
    bool seen[100] = { false };
    int moved = 0;
    for (int i = 0; i < 100; i++) items[i] = i;
    sw__rng_shuffle(&r, items, 100);
    for (int i = 0; i < 100; i++) {
        assert_true(items[i] >= 0 && items[i] < 100 && !seen[items[i]]);
        seen[items[i]] = true;
        moved += items[i] != i;
    }
    assert_true(moved > 80);
    sw__rng_shuffle(&r, items, 0);
}

/* ---- names, clock, log ------------------------------------------------------------------------------------------- */

static void test_nearest(void **state)
{
    (void)state;
    static const char *const keys[] = { "epochs", "batch_size", "lr", "weight_decay", NULL, "momentum" };
    static const struct {
        const char *word, *want;
    } cases[] = {
        { "epoch", "epochs" },          { "Batch-Size", "batch_size" }, { "bacth_size", "batch_size" },
        { "weigth_deacy", "weight_decay" }, { "rl", "lr" },                 { "l", "lr" },
        { "", NULL },                   { "zebra", NULL },              { "momentumn", "momentum" },
    };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        const char *const got = sw__nearest(cases[i].word, keys, SW_COUNT(keys));
        if (cases[i].want == NULL) assert_null(got);
        else assert_string_equal(got != NULL ? got : "(none)", cases[i].want);
    }
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *const long_keys[] = { longest };
    assert_null(sw__nearest(longest, keys, SW_COUNT(keys)));
    assert_null(sw__nearest("aaa", long_keys, 1));
    assert_null(sw__nearest("aaa", NULL, 0));
}

static void test_clock_and_log(void **state)
{
    (void)state;
    const double start = sw__now();
    assert_true(sw__now() >= start);
    assert_true(sw__log_on(SW_LOG_ERROR) && sw__log_on(SW_LOG_WARN));
    assert_false(sw__log_on(SW_LOG_INFO));
    assert_false(sw__log_on(99));
    sw__log(SW_LOG_TRACE, "not shown: %d", 1);
}

/* A caller's locale with a decimal comma makes no comma in what the library writes, and is left as it was. */
static void test_text_in_locale(void **state)
{
    (void)state;
    char folder[] = "/tmp/swoop-locale-XXXXXX", command[200];
    sw__text t = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", folder);
    const bool made = system(command) >= 0 && setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    if (!made) print_message("no locale with a decimal comma can be made: not tested\n");
    sw__text_add(&t, "%.2f %s", 1.5, "\xC3\xA4");
    if (made) assert_string_equal(localeconv()->decimal_point, ",");
    setlocale(LC_ALL, "C");
    assert_string_equal(t.s, "1.50 \xC3\xA4");
    sw__text_free(&t);
    assert_int_equal(unsetenv("LOCPATH"), 0);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* From any place in a stream: what that many calls one after the other give. */
static void test_draws_from_any_place(void **state)
{
    (void)state;
    enum { N = 40 };
    sw__rng fresh, u, g;
    double uniform[N], normal[N], part[N];
    sw__rng_init(&fresh, 77, 0x123456789abcdefu);
    u = g = fresh;
    for (int i = 0; i < N; i++) {
        uniform[i] = sw__rng_uniform(&u);
        normal[i] = sw__rng_normal(&g);
    }
    for (size_t from = 0; from < N; from++) {
        sw__rng_uniforms(&fresh, from, part, N - from);
        assert_memory_equal(part, uniform + from, (N - from) * sizeof *part);
        sw__rng_normals(&fresh, from, part, N - from);
        assert_memory_equal(part, normal + from, (N - from) * sizeof *part);
    }
}

static void test_names(void **state)
{
    (void)state;
    enum { N = 1000 };
    static char key[N][8];
    sw__names t = { 0 };
    uint32_t value = 0;
    assert_false(sw__names_find(&t, "0", &value));
    for (uint32_t i = 0; i < N; i++) {
        snprintf(key[i], sizeof key[i], "%u", i);
        assert_false(sw__names_find(&t, key[i], &value));
        assert_int_equal(sw__names_put(&t, key[i], 3 * i), SW_OK);
    }
    assert_int_equal(sw__names_put(&t, "17", 5), SW_OK); /* replaces */
    assert_int_equal(t.n, N);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(sw__names_find(&t, key[i], &value));
        assert_int_equal(value, i == 17 ? 5 : 3 * i);
    }
    assert_false(sw__names_find(&t, "1000", &value));
    sw__names_free(&t);
}

int main(void)
{
    unsetenv("SWOOP_LOG");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_from_any_place), cmocka_unit_test(test_names),
        cmocka_unit_test(test_message),       cmocka_unit_test(test_message_is_cut),
        cmocka_unit_test(test_message_is_escaped),
        cmocka_unit_test(test_message_per_thread), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_grow),          cmocka_unit_test(test_arena),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_text_in_locale),
        cmocka_unit_test(test_dtype_names),
        cmocka_unit_test(test_half_round_trip), cmocka_unit_test(test_half_rounding),
        cmocka_unit_test(test_convert),       cmocka_unit_test(test_convert_all_pairs),
        cmocka_unit_test(test_philox),        cmocka_unit_test(test_rng),
        cmocka_unit_test(test_nearest),       cmocka_unit_test(test_clock_and_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
