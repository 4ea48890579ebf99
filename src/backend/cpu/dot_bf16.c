/* dot_bf16.c: see dot_bf16.h. Compiled for AVX512_BF16 (src/CMakeLists.txt), whose dot products of pairs take twice the
 * numbers of an f32 multiply-add. A tile's sums stay in registers, as in gemm_simd.c. */
#include "backend/cpu/dot_bf16.h"

#include <immintrin.h>
#include <string.h>

#define VL 16
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

static inline __mmask16 first(int64_t n)
{
    return (__mmask16)(n >= VL ? 0xffffu : n > 0 ? (1u << n) - 1u : 0u);
}

/* Two neighbouring numbers, in every pair of a vector. */
static inline __m512bh both(const uint16_t *a)
{
    int pair;
    memcpy(&pair, a, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

static inline __m512bh pairs_at(const uint16_t *b)
{
    return (__m512bh)_mm512_loadu_si512(b);
}

INLINE void tile(const sw__dot_tile *t, const int P)
{
    __m512 sum[SW__DOT_ROWS][2];
    const __mmask16 m[2] = { first(t->cols), first(t->cols - VL) };
    UNROLL for (int r = 0; r < P; r++)
    {
        UNROLL for (int v = 0; v < 2; v++) sum[r][v] = t->add ? _mm512_maskz_loadu_ps(m[v], t->c + r * t->rc + v * VL)
                                                       : t->bias != NULL ? _mm512_maskz_loadu_ps(m[v], t->bias + v * VL)
                                                                         : _mm512_setzero_ps();
    }
    /* three rows to a pointer: the addressing modes then need few registers */
    const uint16_t *a[5], *b = t->b;
    const int64_t ra = t->ra;
    UNROLL for (int j = 0; j < 5; j++) a[j] = t->a + 3 * j * ra;
    for (int64_t k = 0; k < t->pairs; k++) {
        const __m512bh b0 = pairs_at(b), b1 = pairs_at(b + 2 * VL);
        UNROLL for (int r = 0; r < P; r++)
        {
            const __m512bh av = both(a[r / 3] + (r % 3) * ra);
            sum[r][0] = _mm512_dpbf16_ps(sum[r][0], av, b0);
            sum[r][1] = _mm512_dpbf16_ps(sum[r][1], av, b1);
        }
        b += 2 * SW__DOT_WIDTH;
        UNROLL for (int j = 0; j < (P + 2) / 3; j++) a[j] += 2;
    }
    UNROLL for (int r = 0; r < P; r++)
    {
        UNROLL for (int v = 0; v < 2; v++) _mm512_mask_storeu_ps(t->c + r * t->rc + v * VL, m[v], sum[r][v]);
    }
}

#define KERNEL(P)                                                                                                      \
    static void tile_##P(const sw__dot_tile *t)                                                                        \
    {                                                                                                                  \
        tile(t, P);                                                                                                    \
    }
#define ENTRY(P) tile_##P,
#define EACH(F) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14)
EACH(KERNEL)
static void (*const kernels[SW__DOT_ROWS])(const sw__dot_tile *) = { EACH(ENTRY) };

void sw__dot_tile_run(const sw__dot_tile *t)
{
    kernels[t->rows - 1](t);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

void sw__dot_interleave(const uint16_t *from, const uint16_t *next, int64_t n, uint16_t *to)
{
    for (int64_t j = 0; j < n; j++) {
        to[2 * j] = from[j];
        to[2 * j + 1] = next != NULL ? next[j] : 0;
    }
}

void sw__dot_narrow(uint16_t *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) {
        const __mmask16 m = first(n - i);
        _mm256_mask_storeu_epi16(to + i, m, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(m, from + i)));
    }
}

void sw__dot_widen(float *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) {
        const __mmask16 m = first(n - i);
        const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, from + i));
        _mm512_mask_storeu_epi32(to + i, m, _mm512_slli_epi32(wide, 16));
    }
}
