/* gemm.h: a batch of matrix products with arbitrary strides, and the CPU backend's own ways to compute it.
 * Between op_matmul.c and gemm.c, gemm_simd.c. */
#ifndef SW_BACKEND_CPU_GEMM_H
#define SW_BACKEND_CPU_GEMM_H

#include "base/base.h"

/* c[m][n] = relu(bias[n] + sum over k of a[m][k] b[k][n]), for each point of the batch axes. Strides in elements. */
typedef struct sw__gemm {
    int rank; /* batch axes */
    int64_t batch[SW_MAX_RANK], as[SW_MAX_RANK], bs[SW_MAX_RANK], cs[SW_MAX_RANK];
    int64_t m, n, k, am, ak, bk, bn, cm, cn, bias_stride;
    bool bias, relu;
} sw__gemm;

/* Plain loops for f32 and f64, any strides; each row of c by one thread, k in order. */
void sw__gemm_loops(const sw__gemm *g, sw_dtype t, const void *a, const void *b, const void *bias, void *c,
                    int threads);

#endif
