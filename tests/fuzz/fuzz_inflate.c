/* fuzz_inflate.c: any bytes as a deflate stream: zlib's output, in pieces of any size, or an error for both.
 * libFuzzer target over src/io/inflate.c; seeds in corpus/inflate. The first byte chooses the sizes of the pieces. */
#include "io/inflate.h"
#include <stdlib.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST = 1 << 17 };

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

/* Unpacks all, up to MOST bytes, in pieces; true if the stream was good. *rest: bytes after its end. */
static bool unpack(const uint8_t *bytes, size_t n, size_t step, size_t piece, uint8_t *out, size_t *size, size_t *rest)
{
    source s = { bytes, n, step };
    sw__inflate *const z = sw__inflate_new(give, &s);
    if (z == NULL) abort();
    const char *wrong = NULL;
    size_t got = 1;
    for (*size = 0; *size < MOST && wrong == NULL && !sw__inflate_ended(z); *size += got) {
        /* a buffer of just that size: what is written beyond it is found */
        const size_t want = SW_MIN(piece, MOST - *size);
        uint8_t *const exact = malloc(want);
        if (exact == NULL || sw__inflate_read(z, exact, want, &got, &wrong) != SW_OK) abort();
        memcpy(out + *size, exact, got);
        free(exact);
    }
    const bool good = wrong == NULL && sw__inflate_ended(z);
    uint8_t tail[4096];
    for (*rest = 0; good && sw__inflate_plain(z, tail, sizeof tail, &got) == SW_OK && got > 0;) *rest += got;
    sw__free(z);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static uint8_t want[MOST], got[MOST];
    if (n < 1) return 0;
    const size_t pieces[] = { MOST, 1, 7, 300, 1000, 32768, 40000, 65536 };
    const size_t piece = pieces[bytes[0] & 7], step = bytes[0] & 8 ? 1 + (bytes[0] >> 4) : 4096;
    bytes++;
    n--;
    z_stream z = { .next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)n, .next_out = want, .avail_out = MOST };
    if (inflateInit2(&z, -15) != Z_OK) return 0;
    const int r = inflate(&z, Z_FINISH);
    const size_t size = MOST - z.avail_out, left = z.avail_in;
    inflateEnd(&z);
    if (size == MOST) return 0; /* longer than we follow */
    size_t mine, rest;
    const bool good = unpack(bytes, n, step, piece, got, &mine, &rest);
    if (good != (r == Z_STREAM_END)) abort();
    if (good && (mine != size || rest != left || memcmp(want, got, size) != 0)) abort();
    return 0;
}
