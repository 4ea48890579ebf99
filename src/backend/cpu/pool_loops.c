/* pool_loops.c: pooling and its gradients one window at a time, for f64 and for strides that pool_simd.c does not take.
 * Called by op_pool.c. */
#include "backend/cpu/pool.h"

#include <math.h>

/* Values of one image and channel: base pointers and spatial strides. */
#define FOR_WINDOW(p, at, BODY)                                                                                        \
    do {                                                                                                               \
        int64_t lo[3], hi[3];                                                                                          \
        for (int i = 0; i < 3; i++) sw__pool_window(p, i, (at)[i], &lo[i], &hi[i]);                                    \
        for (int64_t k0 = lo[0]; k0 < hi[0]; k0++)                                                                     \
            for (int64_t k1 = lo[1]; k1 < hi[1]; k1++)                                                                 \
                for (int64_t k2 = lo[2]; k2 < hi[2]; k2++) {                                                           \
                    const int64_t xi = ((at)[0] * (p)->stride[0] - (p)->pad[0] + k0) * s->x[2] +                       \
                                       ((at)[1] * (p)->stride[1] - (p)->pad[1] + k1) * s->x[3] +                       \
                                       ((at)[2] * (p)->stride[2] - (p)->pad[2] + k2) * s->x[4];                        \
                    BODY                                                                                               \
                }                                                                                                      \
    } while (0)

#define DEFINE(T)                                                                                                      \
    static void forward_##T(const sw__pool *p, const sw__pool_strides *s, const T *x, T *y)                            \
    {                                                                                                                  \
        for (int64_t o = 0; o < p->y[0] * p->y[1] * p->y[2]; o++) {                                                    \
            const int64_t at[3] = {o / (p->y[1] * p->y[2]), o / p->y[2] % p->y[1], o % p->y[2]};                       \
            T v = p->max ? -(T)INFINITY : 0;                                                                           \
            FOR_WINDOW(p, at, if (!p->max) v += x[xi]; else if (x[xi] > v || x[xi] != x[xi]) v = x[xi];);              \
            if (!p->max) v = (T)((double)v / sw__pool_divisor(p, at));                                                 \
            y[at[0] * s->y[2] + at[1] * s->y[3] + at[2] * s->y[4]] = v;                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void grad_##T(const sw__pool *p, const sw__pool_strides *s, const T *x, const T *y, const T *dy, T *dx)     \
    {                                                                                                                  \
        for (int64_t i = 0; i < p->x[0]; i++)                                                                          \
            for (int64_t j = 0; j < p->x[1]; j++)                                                                      \
                for (int64_t k = 0; k < p->x[2]; k++) dx[i * s->dx[2] + j * s->dx[3] + k * s->dx[4]] = 0;              \
        for (int64_t o = 0; o < p->y[0] * p->y[1] * p->y[2]; o++) {                                                    \
            const int64_t at[3] = {o / (p->y[1] * p->y[2]), o / p->y[2] % p->y[1], o % p->y[2]};                       \
            const T g = dy[at[0] * s->dy[2] + at[1] * s->dy[3] + at[2] * s->dy[4]];                                    \
            const T share = p->max ? g : (T)((double)g / sw__pool_divisor(p, at));                                     \
            const T top = p->max ? y[at[0] * s->y[2] + at[1] * s->y[3] + at[2] * s->y[4]] : 0;                         \
            bool open = true;                                                                                          \
            FOR_WINDOW(p, at, if (p->max && (!open || (x[xi] != top && x[xi] == x[xi]))) continue; open = false;       \
                       dx[((at)[0] * p->stride[0] - p->pad[0] + k0) * s->dx[2] +                                       \
                          ((at)[1] * p->stride[1] - p->pad[1] + k1) * s->dx[3] +                                       \
                          ((at)[2] * p->stride[2] - p->pad[2] + k2) * s->dx[4]] += share;);                            \
        }                                                                                                              \
    }
DEFINE(float)
DEFINE(double)

void sw__pool_loops(const sw__pool *p, const sw__pool_strides *s, bool grad, sw_dtype t, const void *x, const void *y,
                    const void *dy, void *out, int64_t n, int64_t c)
{
    const int64_t size = (int64_t)sw_dtype_size(t);
#define AT(base, strides) ((const char *)(base) + (n * (strides)[0] + c * (strides)[1]) * size)
    char *const to = (char *)out + (grad ? n * s->dx[0] + c * s->dx[1] : n * s->y[0] + c * s->y[1]) * size;
    if (t == SW_F64 && grad)
        grad_double(p, s, (const double *)(const void *)AT(x, s->x), (const double *)(const void *)AT(y, s->y),
                    (const double *)(const void *)AT(dy, s->dy), (double *)(void *)to);
    else if (t == SW_F64) forward_double(p, s, (const double *)(const void *)AT(x, s->x), (double *)(void *)to);
    else if (grad)
        grad_float(p, s, (const float *)(const void *)AT(x, s->x), (const float *)(const void *)AT(y, s->y),
                   (const float *)(const void *)AT(dy, s->dy), (float *)(void *)to);
    else forward_float(p, s, (const float *)(const void *)AT(x, s->x), (float *)(void *)to);
}
