/* gemv.h: one row times a matrix, y = relu(bias + x w): bound by reading the matrix, so it is read where it lies and once.
 * Between op_matmul.c and gemv_simd.c. */
#ifndef SW_BACKEND_CPU_GEMV_H
#define SW_BACKEND_CPU_GEMV_H

#include "backend/cpu/simd.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sw__gemv {
    const float *x, *w, *bias; /* bias: NULL if there is none */
    float *y;
    int64_t k, ld;
    bool relu;                 /* NaN stays */
} sw__gemv;

/* y[n] of n0 <= n < n1; the same bits whatever the range. rows: w[n ld + k], as a model's linear layers lie; columns: w[k ld + n]. */
SW__SIMD_DECLARE(void, sw__gemv_rows, (const sw__gemv *g, int64_t n0, int64_t n1));
SW__SIMD_DECLARE(void, sw__gemv_columns, (const sw__gemv *g, int64_t n0, int64_t n1));

#endif
