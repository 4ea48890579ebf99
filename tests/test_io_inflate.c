/* test_io_inflate.c: the DEFLATE decoder against zlib's encoder: levels, strategies, pieces of any size, every cut.
 * Tests of src/io/inflate.c (tests/fuzz/fuzz_inflate.c compares it to zlib's decoder on bad data). */
#include "io_test.h"
#include "io/inflate.h"
#include <zlib.h>

typedef struct source {
    const uint8_t *bytes;
    size_t n, step;
} source;

static sw_status give(void *context, void *dst, size_t n, size_t *got)
{
    source *const s = context;
    *got = SW_MIN(SW_MIN(s->n, s->step), n);
    if (*got > 0) memcpy(dst, s->bytes, *got);
    s->bytes += *got;
    s->n -= *got;
    return SW_OK;
}

enum { MOST = 300000 };

/* A mixture of everything: noise, runs, text-like letters, copies of what was before. */
static void make_data(uint8_t *data, size_t n, uint64_t seed)
{
    sw__rng r;
    sw__rng_init(&r, seed, 0);
    for (size_t at = 0; at < n;) {
        const size_t run = SW_MIN(1 + sw__rng_below(&r, sw__rng_below(&r, 2) ? 20 : 2000), n - at);
        const uint64_t kind = sw__rng_below(&r, 5);
        const size_t back = at > 0 ? 1 + sw__rng_below(&r, SW_MIN(at, sw__rng_below(&r, 2) ? 12 : 40000)) : 0;
        for (size_t i = 0; i < run; i++, at++) {
            data[at] = kind == 0                ? (uint8_t)sw__rng_u32(&r)
                       : kind == 1              ? 0
                       : kind == 2 || back == 0 ? (uint8_t)('a' + sw__rng_below(&r, 20))
                                                : data[at - back];
        }
    }
}

static size_t pack(const uint8_t *data, size_t n, int level, int strategy, uint8_t *packed, size_t most)
{
    z_stream z = { .next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)n };
    z.next_out = packed;
    z.avail_out = (uInt)most;
    assert_int_equal(deflateInit2(&z, level, Z_DEFLATED, -15, 8, strategy), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

/* Unpacks in pieces, each into a buffer of just its size; gives the message for bad data, or NULL. */
static const char *unpack(const uint8_t *packed, size_t n, size_t step, size_t piece, uint8_t *out, size_t most,
                          size_t *size)
{
    source s = { packed, n, step };
    sw__inflate *const z = sw__inflate_new(give, &s);
    assert_non_null(z);
    const char *wrong = NULL;
    for (*size = 0; wrong == NULL && !sw__inflate_ended(z) && *size < most;) {
        const size_t want = SW_MIN(piece, most - *size);
        uint8_t *const exact = malloc(want);
        size_t got;
        assert_non_null(exact);
        OK(sw__inflate_read(z, exact, want, &got, &wrong));
        memcpy(out + *size, exact, got);
        free(exact);
        *size += got;
    }
    if (wrong == NULL) {
        uint8_t tail[8];
        size_t got;
        OK(sw__inflate_plain(z, tail, sizeof tail, &got));
        assert_int_equal(got, 4);
        assert_memory_equal(tail, "tail", 4);
    }
    sw__free(z);
    return wrong;
}

static void round_trips(void **state)
{
    (void)state;
    static uint8_t data[MOST], packed[2 * MOST], out[MOST + 1];
    static const int levels[] = { 0, 1, 6, 9 }, strategies[] = { Z_DEFAULT_STRATEGY, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED };
    static const size_t pieces[] = { MOST + 1, 65536, 4000, 275, 3 }, sizes[] = { MOST, 70000, 1000, 1, 0 };
    for (size_t k = 0; k < SW_COUNT(sizes); k++) {
        make_data(data, sizes[k], k);
        for (size_t i = 0; i < SW_COUNT(levels) * SW_COUNT(strategies); i++) {
            const size_t n = pack(data, sizes[k], levels[i % 4], strategies[i / 4], packed, sizeof packed - 4);
            place(packed + n, "tail", 4);
            for (size_t p = 0; p < SW_COUNT(pieces); p++) {
                size_t size;
                const char *const wrong =
                    unpack(packed, n + 4, p % 2 ? 1 << 20 : 37, pieces[p], out, sizeof out, &size);
                if (wrong != NULL) fail_msg("%s", wrong);
                assert_int_equal(size, sizes[k]);
                assert_memory_equal(data, out, size);
            }
        }
    }
}

/* A last block of no bytes that ends where the source ends. */
static void empty_stored(void **state)
{
    (void)state;
    source s = { (const uint8_t *)"\1\0\0\xFF\xFF", 5, 5 };
    sw__inflate *const z = sw__inflate_new(give, &s);
    uint8_t out[4];
    size_t got;
    const char *wrong;
    assert_non_null(z);
    OK(sw__inflate_read(z, out, sizeof out, &got, &wrong));
    assert_true(got == 0 && wrong == NULL && sw__inflate_ended(z));
    sw__free(z);
}

static void cuts(void **state)
{
    (void)state;
    static uint8_t data[3000], packed[6000], out[4000];
    make_data(data, sizeof data, 9);
    static const int strategies[] = { Z_DEFAULT_STRATEGY, Z_FIXED };
    for (int level = 0; level <= 9; level += 9) {
        for (size_t i = 0; i < SW_COUNT(strategies); i++) {
            const size_t n = pack(data, sizeof data, level, strategies[i], packed, sizeof packed);
            for (size_t cut = 0; cut < n; cut++) {
                size_t size;
                const char *const wrong = unpack(packed, cut, 4096, sizeof out, out, sizeof out, &size);
                if (wrong == NULL || strstr(wrong, "cut short") == NULL)
                    fail_msg("cut to %zu: %s", cut, wrong ? wrong : "good");
            }
        }
    }
}

static sw_status refuse(void *context, void *dst, size_t n, size_t *got)
{
    (void)context;
    (void)dst;
    (void)n;
    *got = 0;
    return sw__fail(SW_ERR_IO, "the disk is gone");
}

static void source_fails(void **state)
{
    (void)state;
    sw__inflate *const z = sw__inflate_new(refuse, NULL);
    uint8_t out[10];
    size_t got;
    const char *wrong;
    assert_non_null(z);
    FAILS(SW_ERR_IO, sw__inflate_read(z, out, sizeof out, &got, &wrong), "the disk is gone");
    assert_int_equal(got, 0);
    sw__free(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(round_trips), cmocka_unit_test(empty_stored),
                                        cmocka_unit_test(cuts), cmocka_unit_test(source_fails) };
    return cmocka_run_group_tests_name("io_inflate", tests, NULL, NULL);
}
