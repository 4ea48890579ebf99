/* gemm_simd.c: the tile that all own matrix products and convolutions are made of, see sw__tile in gemm.h.
 * Compiled once per instruction set. Called by gemm_blocked.c and wino.c.
 * A tile's sums stay in registers; every count is a compile-time constant of a function in the tables below. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/simd_vec.h"

#define INLINE static inline __attribute__((always_inline))

INLINE void store_row(const sw__tile *t, float *c, vf *sum, const int V, const vmask last)
{
    UNROLL for (int v = 0; v < V; v++)
    {
        if (t->relu) sum[v] = v_relu(sum[v]);
        if (v < V - 1) v_store(c + v * VL, sum[v]);
        else v_store_some(c + v * VL, last, sum[v]);
    }
}

/* P rows, V vectors; NARROW: nothing is read past the columns of b; UNIT: ra is 1. */
INLINE void tile(const sw__tile *t, const int P, const int V, const bool NARROW, const bool UNIT)
{
    vf sum[14][2];
    const vmask last = v_first(t->cols - (V - 1) * VL);
    UNROLL for (int r = 0; r < P; r++)
    {
        UNROLL for (int v = 0; v < V; v++)
        {
            const vmask m = v < V - 1 ? v_first(VL) : last;
            sum[r][v] = t->add          ? v_load_some(t->c + r * t->rc + v * VL, m)
                        : t->bias != NULL ? v_load_some(t->bias + v * VL, m)
                                          : v_set(0);
        }
    }
    const int64_t ra = UNIT ? 1 : t->ra, ka = UNIT ? t->ka : 1, kb = t->kb;
    for (int64_t i = 0; i < t->runs; i++) {
        /* three rows to a pointer: the addressing modes then need few registers */
        const float *a[5], *b = t->b + (t->b_run != NULL ? t->b_run[i] : 0);
        UNROLL for (int j = 0; j < 5; j++) a[j] = t->a + (t->a_run != NULL ? t->a_run[i] : 0) + 3 * j * ra;
        for (int64_t k = 0; k < t->run; k++) {
            vf bv[2];
            UNROLL for (int v = 0; v < V; v++)
                bv[v] = NARROW && v == V - 1 ? v_load_some(b + v * VL, last) : v_load(b + v * VL);
            UNROLL for (int r = 0; r < P; r++)
            {
                const vf av = v_set(a[r / 3][(r % 3) * ra]);
                UNROLL for (int v = 0; v < V; v++) sum[r][v] = v_fma(av, bv[v], sum[r][v]);
            }
            b += kb;
            UNROLL for (int j = 0; j < (P + 2) / 3; j++) a[j] += ka;
        }
    }
    UNROLL for (int r = 0; r < P; r++) store_row(t, t->c + r * t->rc, sum[r], V, last);
}

#ifdef SW_SIMD_PLAIN
void SW__SIMD_NAME(sw__tile_run)(const sw__tile *t)
{
    tile(t, (int)t->rows, t->cols > VL ? 2 : 1, t->narrow, t->ra == 1);
}
#else
typedef void tile_fn(const sw__tile *t);

#define KERNEL(P, V, NARROW, UNIT)                                                                                     \
    static void tile_##P##_##V##_##NARROW##_##UNIT(const sw__tile *t) { tile(t, P, V, NARROW, UNIT); }
#define KERNELS(P, V) KERNEL(P, V, 0, 0) KERNEL(P, V, 0, 1) KERNEL(P, V, 1, 1)
#define EACH_6(F, V) F(1, V) F(2, V) F(3, V) F(4, V) F(5, V) F(6, V)
#define EACH_12(F, V) EACH_6(F, V) F(7, V) F(8, V) F(9, V) F(10, V) F(11, V) F(12, V)
#define EACH_14(F, V) EACH_12(F, V) F(13, V) F(14, V)
#if SW_SIMD_LEVEL == 2
#define ONE(F) EACH_14(F, 1)
#define TWO(F) EACH_14(F, 2)
#else
#define ONE(F) EACH_12(F, 1)
#define TWO(F) EACH_6(F, 2)
#endif
ONE(KERNELS)
TWO(KERNELS)

/* [narrow and unit][rows - 1] */
#define ENTRY_0(P, V) tile_##P##_##V##_0_0,
#define ENTRY_1(P, V) tile_##P##_##V##_0_1,
#define ENTRY_2(P, V) tile_##P##_##V##_1_1,
static tile_fn *const one[3][14] = {{ONE(ENTRY_0)}, {ONE(ENTRY_1)}, {ONE(ENTRY_2)}};
static tile_fn *const two[3][14] = {{TWO(ENTRY_0)}, {TWO(ENTRY_1)}, {TWO(ENTRY_2)}};

void SW__SIMD_NAME(sw__tile_run)(const sw__tile *t)
{
    const int kind = t->narrow ? 2 : t->ra == 1 ? 1 : 0;
    (t->cols > VL ? two : one)[kind][t->rows - 1](t);
}
#endif

/* ---- transposing ------------------------------------------------------------------------------------------------- */

#if SW_SIMD_LEVEL >= 1
/* Eight rows of eight. */
INLINE void transpose_8(const float *from, int64_t lf, float *to, int64_t lt)
{
    __m256 v[8], w[8];
    for (int i = 0; i < 8; i++) v[i] = _mm256_loadu_ps(from + i * lf);
    for (int i = 0; i < 8; i += 2) {
        w[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        w[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_shuffle_ps(w[i], w[i + 2], 0x44);
        v[i + 1] = _mm256_shuffle_ps(w[i], w[i + 2], 0xee);
        v[i + 2] = _mm256_shuffle_ps(w[i + 1], w[i + 3], 0x44);
        v[i + 3] = _mm256_shuffle_ps(w[i + 1], w[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * lt, _mm256_permute2f128_ps(v[i], v[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * lt, _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
    }
}

/* Four rows of four. */
INLINE void transpose_4(const float *from, int64_t lf, float *to, int64_t lt)
{
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + lf), c = _mm_loadu_ps(from + 2 * lf),
           d = _mm_loadu_ps(from + 3 * lf);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + lt, b);
    _mm_storeu_ps(to + 2 * lt, c);
    _mm_storeu_ps(to + 3 * lt, d);
}
#endif

void SW__SIMD_NAME(sw__transpose)(const float *from, int64_t ld_from, int64_t rows, int64_t cols, float *to,
                                  int64_t ld_to)
{
    int64_t r = 0;
#if SW_SIMD_LEVEL >= 1
    for (; r + 8 <= rows; r += 8) {
        int64_t c = 0;
        for (; c + 8 <= cols; c += 8) transpose_8(from + r * ld_from + c, ld_from, to + c * ld_to + r, ld_to);
        for (; c < cols; c++)
            for (int64_t i = r; i < r + 8; i++) to[c * ld_to + i] = from[i * ld_from + c];
    }
    for (; r + 4 <= rows; r += 4) {
        int64_t c = 0;
        for (; c + 4 <= cols; c += 4) transpose_4(from + r * ld_from + c, ld_from, to + c * ld_to + r, ld_to);
        for (; c < cols; c++)
            for (int64_t i = r; i < r + 4; i++) to[c * ld_to + i] = from[i * ld_from + c];
    }
#endif
    for (; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[c * ld_to + r] = from[r * ld_from + c];
}

void SW__SIMD_NAME(sw__copy_rows)(const float *from, int64_t ld_from, int64_t count, int n, float *to, int width)
{
    const vmask m0 = v_first(n), m1 = v_first(n - VL), w0 = v_first(width), w1 = v_first(width - VL);
    for (int64_t i = 0; i < count; i++) {
        v_store_some(to, w0, v_load_some(from, m0));
        if (width > VL) v_store_some(to + VL, w1, n > VL ? v_load_some(from + VL, m1) : v_set(0));
        from += ld_from;
        to += width;
    }
}
