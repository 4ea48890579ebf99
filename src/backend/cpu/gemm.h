/* gemm.h: matrix products in own code: what is to be computed, the tile that vector code computes, the blocked driver.
 * Between op_matmul.c, op_conv.c and gemm.c (loops, blocking), gemm_simd.c (tiles). */
#ifndef SW_BACKEND_CPU_GEMM_H
#define SW_BACKEND_CPU_GEMM_H

#include "backend/cpu/simd.h"
#include "backend/desc.h"

/* c[m][n] = relu(bias[n] + sum over k of a[m][k] b[k][n]), for each point of the batch axes. Strides in elements. */
typedef struct sw__gemm {
    SW_MATRICES_MEMBER;
    int64_t bias_stride;
    bool bias, relu;
} sw__gemm;

/* Plain loops for f32 and f64, any strides; each row of c by one thread, k in order. */
void sw__gemm_loops(const sw__gemm *g, sw_dtype t, const void *a, const void *b, const void *bias, void *c,
                    int threads);

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* `rows` x `cols` of c (+)= sum over runs i and k < run of a[a_run[i] + r * ra + k * ka] * b[b_run[i] + k * kb + j].
 * ra or ka is 1. b has full vectors to read past cols, unless `narrow`. */
typedef struct sw__tile {
    const float *a, *b;
    float *c;
    const float *bias;            /* cols of them, NULL: 0 */
    int64_t ra, ka, kb, rc;       /* rc: c's row stride */
    int64_t runs, run;
    const int64_t *a_run, *b_run; /* NULL: one run at 0 */
    int rows, cols;
    bool add, relu, narrow;       /* add: to what is in c already */
} sw__tile;

typedef struct sw__tile_shape { int vl, rows, wide_rows; } sw__tile_shape; /* see sw__tile_shape_of */
/* Floats in a vector; the most rows of a tile one vector wide, and of one two vectors wide. */
static inline sw__tile_shape sw__tile_shape_of(sw__simd level)
{
    return level == SW_SIMD_AVX512 ? (sw__tile_shape){16, 14, 14}
           : level == SW_SIMD_AVX2 ? (sw__tile_shape){8, 12, 6}
                                   : (sw__tile_shape){4, 12, 6};
}
SW__SIMD_DECLARE(void, sw__tile_run, (const sw__tile *t));
/* to[c * ld_to + r] = from[r * ld_from + c] for r < rows, c < cols. */
SW__SIMD_DECLARE(void, sw__transpose,
                 (const float *from, int64_t ld_from, int64_t rows, int64_t cols, float *to, int64_t ld_to));
/* Copies `count` rows of n <= two vectors of floats and fills each with zeros up to `width`. */
SW__SIMD_DECLARE(void, sw__copy_rows,
                 (const float *from, int64_t ld_from, int64_t count, int n, float *to, int width));

/* ---- blocked products -------------------------------------------------------------------------------------------- */

/* c[m][n] (row stride cm) = relu(bias[n] + a b), where a and b are given by functions that copy a part of them into the
 * order in which tiles read: to[k * rows + r] and to[k * width + j], with zeros from cols to width. k is cut into
 * blocks of kc; a sum runs over them in order, whatever the number of threads. */
typedef struct sw__blocked {
    int64_t m, n, k, kc;
    void (*pack_a)(const void *ctx, int64_t m0, int rows, int64_t k0, int64_t count, float *to);
    void (*pack_b)(const void *ctx, int64_t n0, int cols, int width, int64_t k0, int64_t count, float *to);
    const void *ctx;
    int64_t cm;
    bool relu;
} sw__blocked;

size_t sw__blocked_workspace(const sw__blocked *g, sw__simd level, int threads);
void sw__blocked_run(const sw__blocked *g, sw__simd level, int threads, const float *bias, float *c, void *workspace);

/* A product of matrices that way. c must have unit stride along n or m. */
bool sw__gemm_own_can(const sw__gemm *g);
size_t sw__gemm_own_workspace(const sw__gemm *g, sw__simd level, int threads);
void sw__gemm_own(const sw__gemm *g, sw__simd level, int threads, const float *a, const float *b, const float *bias,
                  float *c, void *workspace);

#endif
