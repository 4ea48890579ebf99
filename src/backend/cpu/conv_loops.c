/* conv_loops.c: convolution and its gradients in plain loops, straight from the definition: for f64, empty tensors, and
 * strides that nothing faster takes. Called by op_conv.c.
 * Each thread writes elements of its own, sums run in a fixed order: the same bits for any number of threads. */
#include "backend/cpu/conv.h"

/* Positions o of a result axis for which o * stride - pad + k * dilation lies in [0, size): lo <= o < hi. */
static void valid(int64_t size, int64_t positions, int64_t stride, int64_t offset, int64_t *lo, int64_t *hi)
{
    *lo = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    *hi = size - offset <= 0 ? 0 : SW_MIN(positions, (size - 1 - offset) / stride + 1);
}

/* One point of the kernel: which results it touches and where in the image they look. */
typedef struct tap {
    int64_t at[3];     /* in the kernel */
    int64_t lo[3], hi[3], offset[3];
} tap;

static tap tap_of(const sw__conv *c, int64_t k)
{
    tap t = {.at = {k / (c->w[1] * c->w[2]), k / c->w[2] % c->w[1], k % c->w[2]}};
    for (int i = 0; i < 3; i++) {
        t.offset[i] = t.at[i] * c->dilation[i] - c->pad[i];
        valid(c->x[i], c->y[i], c->stride[i], t.offset[i], &t.lo[i], &t.hi[i]);
    }
    return t;
}

static int64_t spatial(const int64_t *strides, int64_t a, int64_t b, int64_t c)
{
    return a * strides[2] + b * strides[3] + c * strides[4];
}

/* Runs BODY for the rows of results of a tap; yi, xi: places of the first element, sy, sx: steps along the row. */
#define FOR_ROWS(c, t, BODY)                                                                                           \
    for (int64_t i0 = (t).lo[0]; i0 < (t).hi[0]; i0++)                                                                 \
        for (int64_t i1 = (t).lo[1]; i1 < (t).hi[1]; i1++) {                                                           \
            const int64_t yi = spatial((c)->ys, i0, i1, (t).lo[2]), sy = (c)->ys[4];                                   \
            const int64_t xi = spatial((c)->xs, i0 * (c)->stride[0] + (t).offset[0],                                   \
                                       i1 * (c)->stride[1] + (t).offset[1],                                            \
                                       (t).lo[2] * (c)->stride[2] + (t).offset[2]);                                    \
            const int64_t sx = (c)->xs[4] * (c)->stride[2];                                                            \
            const int64_t count = (t).hi[2] - (t).lo[2];                                                               \
            BODY                                                                                                       \
        }

#define FOR_PLANE(strides, size, p, BODY)                                                                              \
    for (int64_t i0 = 0; i0 < (size)[0]; i0++)                                                                         \
        for (int64_t i1 = 0; i1 < (size)[1]; i1++)                                                                     \
            for (int64_t i2 = 0; i2 < (size)[2]; i2++) {                                                               \
                (p)[spatial(strides, i0, i1, i2)] BODY;                                                                \
            }

#define DEFINE(T)                                                                                                      \
    /* image n, result channel `out` (over all groups) */                                                              \
    static void forward_##T(const sw__conv *c, const T *x, const T *w, const T *bias, T *y, int64_t n, int64_t out)    \
    {                                                                                                                  \
        const int64_t g = out / c->o, taps = c->w[0] * c->w[1] * c->w[2];                                              \
        const T start = bias != NULL ? bias[out * c->bias_stride] : 0;                                                 \
        T *const to = y + n * c->ys[0] + out * c->ys[1];                                                               \
        FOR_PLANE(c->ys, c->y, to, = start)                                                                            \
        for (int64_t i = 0; i < c->c; i++)                                                                             \
            for (int64_t k = 0; k < taps; k++) {                                                                       \
                const tap t = tap_of(c, k);                                                                            \
                const T *const from = x + n * c->xs[0] + (g * c->c + i) * c->xs[1];                                    \
                const T v = w[out * c->ws[0] + i * c->ws[1] + spatial(c->ws, t.at[0], t.at[1], t.at[2])];              \
                FOR_ROWS(c, t, for (int64_t e = 0; e < count; e++) to[yi + e * sy] += v * from[xi + e * sx];)          \
            }                                                                                                          \
        if (!c->relu) return;                                                                                          \
        for (int64_t i0 = 0; i0 < c->y[0]; i0++)                                                                       \
            for (int64_t i1 = 0; i1 < c->y[1]; i1++)                                                                   \
                for (int64_t i2 = 0; i2 < c->y[2]; i2++) {                                                             \
                    T *const v = &to[spatial(c->ys, i0, i1, i2)];                                                      \
                    *v = *v < 0 ? 0 : *v; /* NaN stays */                                                              \
                }                                                                                                      \
    }                                                                                                                  \
    /* image n, channel `in` (over all groups) */                                                                      \
    static void grad_x_##T(const sw__conv *c, T *x, const T *w, const T *y, int64_t n, int64_t in)                     \
    {                                                                                                                  \
        const int64_t g = in / c->c, i = in % c->c, taps = c->w[0] * c->w[1] * c->w[2];                                \
        T *const to = x + n * c->xs[0] + in * c->xs[1];                                                                \
        FOR_PLANE(c->xs, c->x, to, = 0)                                                                                \
        for (int64_t o = g * c->o; o < (g + 1) * c->o; o++)                                                            \
            for (int64_t k = 0; k < taps; k++) {                                                                       \
                const tap t = tap_of(c, k);                                                                            \
                const T *const from = y + n * c->ys[0] + o * c->ys[1];                                                 \
                const T v = w[o * c->ws[0] + i * c->ws[1] + spatial(c->ws, t.at[0], t.at[1], t.at[2])];                \
                FOR_ROWS(c, t, for (int64_t e = 0; e < count; e++) to[xi + e * sx] += v * from[yi + e * sy];)          \
            }                                                                                                          \
    }                                                                                                                  \
    /* result channel `out` (over all groups), channel i of its group */                                               \
    static void grad_w_##T(const sw__conv *c, const T *x, T *w, const T *y, int64_t out, int64_t i)                    \
    {                                                                                                                  \
        const int64_t g = out / c->o, taps = c->w[0] * c->w[1] * c->w[2];                                              \
        for (int64_t k = 0; k < taps; k++) {                                                                           \
            const tap t = tap_of(c, k);                                                                                \
            double sum = 0;                                                                                            \
            for (int64_t n = 0; n < c->n; n++) {                                                                       \
                const T *const from = x + n * c->xs[0] + (g * c->c + i) * c->xs[1];                                    \
                const T *const dy = y + n * c->ys[0] + out * c->ys[1];                                                 \
                FOR_ROWS(c, t, for (int64_t e = 0; e < count; e++) sum +=                                              \
                                   (double)from[xi + e * sx] * (double)dy[yi + e * sy];)                               \
            }                                                                                                          \
            w[out * c->ws[0] + i * c->ws[1] + spatial(c->ws, t.at[0], t.at[1], t.at[2])] = (T)sum;                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void part_##T(const sw__conv *c, T *x, T *w, const T *bias, T *y, int64_t outer, int64_t inner)             \
    {                                                                                                                  \
        if (c->direction == SW_DNN_FORWARD) forward_##T(c, x, w, bias, y, outer, inner);                               \
        else if (c->direction == SW_DNN_GRAD_X) grad_x_##T(c, x, w, y, outer, inner);                                  \
        else grad_w_##T(c, x, w, y, outer, inner);                                                                     \
    }
DEFINE(float)
DEFINE(double)

void sw__conv_loops(const sw__conv *c, sw_dtype t, void *x, void *w, const void *bias, void *y, int threads)
{
    const bool gw = c->direction == SW_DNN_GRAD_W;
    const int64_t outer = gw ? c->groups * c->o : c->n;
    const int64_t inner = gw ? c->c : c->groups * (c->direction == SW_DNN_FORWARD ? c->o : c->c);
    const int n_threads = outer * inner < 2 ? 1 : threads;
#pragma omp parallel for num_threads(n_threads) schedule(static) collapse(2) if (n_threads > 1)
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++) {
            if (t == SW_F64) part_double(c, x, w, bias, y, i, j);
            else part_float(c, x, w, bias, y, i, j);
        }
}
