/* pool.h: pooling as the kernels see it: planes of D x H x W places of C neighbouring values: covers channels last
 * (planes = N) and row-major (planes = N * C, one value a place). Between op_pool.c and pool_simd.c. */
#ifndef SW_BACKEND_CPU_POOL_H
#define SW_BACKEND_CPU_POOL_H

#include "backend/cpu/simd.h"

typedef struct sw__pool {
    int64_t planes, c;
    int64_t x[3], y[3], kernel[3], stride[3], pad[3];
    bool max, include_pad;
    bool disjoint[3]; /* windows do not overlap along the axis */
    bool covers;      /* disjoint everywhere and every x lies in a window */
} sw__pool;

/* What of the window at position o of an axis lies inside: first <= k < last. */
static inline void sw__pool_window(const sw__pool *p, int axis, int64_t o, int64_t *first, int64_t *last)
{
    const int64_t start = o * p->stride[axis] - p->pad[axis];
    *first = start < 0 ? -start : 0;
    *last = SW_MIN(p->kernel[axis], p->x[axis] - start);
}

/* What the sum over the window at (d, h, w) is divided by. */
static inline double sw__pool_divisor(const sw__pool *p, const int64_t at[3])
{
    int64_t n = 1;
    for (int i = 0; i < 3; i++) {
        int64_t first = 0, last = p->kernel[i];
        if (!p->include_pad) sw__pool_window(p, i, at[i], &first, &last);
        n *= last - first;
    }
    return n > 0 ? (double)n : 1.0;
}

/* Strides in elements of [n, c, three spatial axes], 0 where there is no such axis. */
typedef struct sw__pool_strides { int64_t x[5], y[5], dy[5], dx[5]; } sw__pool_strides;

/* Image n, channel c, any strides, f32 and f64. Gradient: x and y are looked at for max only; out is dx. */
void sw__pool_loops(const sw__pool *p, const sw__pool_strides *s, bool grad, sw_dtype t, const void *x, const void *y,
                    const void *dy, void *out, int64_t n, int64_t c);

/* One row of results, row = d * y[1] + h of a plane. line: room for x[2] * c floats. */
SW__SIMD_DECLARE(void, sw__pool_row, (const sw__pool *p, const float *x, float *y, int64_t row, float *line));
/* The gradient of one whole plane. y is looked at for max only. line: max: y[2] * c, average: x[2] * c floats. */
SW__SIMD_DECLARE(void, sw__pool_grad_plane,
                 (const sw__pool *p, const float *x, const float *y, const float *dy, float *dx, float *line));

#endif
