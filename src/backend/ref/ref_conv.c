/* ref_conv.c: the reference backend's contractions: dot, matmul, convolution and its two gradients.
 * Called by ref.c. Plain loops, ordered so that the innermost one runs along memory. */
#include "backend/ref/ref.h"

/* ---- dot, matmul ------------------------------------------------------------------------------------------------- */

static void matmul(const double *a, const double *b, double *y, int64_t m, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < m * n; i++) y[i] = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++) y[i * n + j] += a[i * k + p] * b[p * n + j];
}

static void bias_and_act(double *y, int64_t rows, int64_t n, const double *bias, int32_t act)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) y[i * n + j] = sw__ref_act(act, y[i * n + j] + (bias ? bias[j] : 0));
}

/* a [B…, M, K], b [B…, K, N] -> [B…, M, N]; matmul: plus an optional bias [N], then the activation */
sw_status sw__ref_matmul(const sw__ref_call *c)
{
    const sw__desc *const a = &c->d->in[0], *const y = &c->d->out[0];
    const int64_t m = y->dim[y->rank - 2], n = y->dim[y->rank - 1], k = a->dim[a->rank - 1];
    const int64_t batch = sw__dims_product(y->dim, y->rank - 2);
    const double *const da = c->in[0], *const db = c->in[1];
    double *const dy = c->out[0];
    for (int64_t i = 0; i < batch; i++) matmul(da + i * m * k, db + i * k * n, dy + i * m * n, m, k, n);
    if (c->d->op == SW_OP_MATMUL) bias_and_act(dy, batch * m, n, c->d->n_in > 2 ? c->in[2] : NULL, c->attr->act.act);
    return SW_OK;
}

/* ---- convolution: always seen as 3-D, missing leading axes have size 1 ------------------------------------------- */

typedef struct conv {
    int64_t batch, groups, in_channels, out_channels; /* channels of one group */
    int64_t x[3], k[3], y[3];                         /* spatial sizes: input, kernel, output */
    int64_t stride[3], pad[3], dilation[3];           /* pad: at the low end; the high end only decides y's size */
} conv;

static conv conv_of(const sw__attr *attr, const int64_t *x, const int64_t *w, const int64_t *y)
{
    const int nd = attr->conv.nd;
    conv v = { .batch = x[0], .groups = attr->conv.groups };
    v.in_channels = w[1];
    v.out_channels = w[0] / v.groups;
    for (int i = 0; i < 3; i++) {
        const int s = i - (3 - nd); /* spatial axis, or < 0 */
        v.x[i] = s < 0 ? 1 : x[2 + s];
        v.k[i] = s < 0 ? 1 : w[2 + s];
        v.y[i] = s < 0 ? 1 : y[2 + s];
        v.stride[i] = s < 0 ? 1 : attr->conv.stride[s];
        v.pad[i] = s < 0 ? 0 : attr->conv.pad_lo[s];
        v.dilation[i] = s < 0 ? 1 : attr->conv.dilation[s];
    }
    return v;
}

static int64_t volume(const int64_t *d)
{
    return d[0] * d[1] * d[2];
}

/* Outputs along axis i whose input for kernel position k lies inside: first <= o < last. */
static void valid_outputs(const conv *v, int i, int64_t k, int64_t *first, int64_t *last)
{
    const int64_t shift = k * v->dilation[i] - v->pad[i]; /* input = o * stride + shift */
    *first = shift >= 0 ? 0 : (-shift + v->stride[i] - 1) / v->stride[i];
    *last = shift >= v->x[i] ? 0 : SW_MIN(v->y[i], (v->x[i] - 1 - shift) / v->stride[i] + 1);
    *last = SW_MAX(*last, *first);
}

typedef enum conv_role { FORWARD, GRAD_X, GRAD_W } conv_role;

/* One plane of x, one of y and one kernel between them: every pair of an input and an output that a kernel position
 * joins contributes x * w to y, or dy * w to dx, or x * dy to dw. */
static void conv_plane(const conv *v, conv_role role, double *x, double *w, double *y)
{
    int64_t k[3] = { 0 }, lo[3], hi[3], o[3];
    for (int64_t e = 0; e < volume(v->k); e++, sw__ref_step(k, v->k, 3)) {
        for (int i = 0; i < 3; i++) valid_outputs(v, i, k[i], &lo[i], &hi[i]);
        const double weight = w[e];
        double sum = 0;
        for (int64_t row = 0; row < (hi[0] - lo[0]) * (hi[1] - lo[1]); row++) {
            o[0] = lo[0] + row / (hi[1] - lo[1]);
            o[1] = lo[1] + row % (hi[1] - lo[1]);
            const int64_t x0 = o[0] * v->stride[0] + k[0] * v->dilation[0] - v->pad[0];
            const int64_t x1 = o[1] * v->stride[1] + k[1] * v->dilation[1] - v->pad[1];
            const int64_t x2 = k[2] * v->dilation[2] - v->pad[2], s = v->stride[2];
            double *const xr = x + (x0 * v->x[1] + x1) * v->x[2];
            double *const yr = y + (o[0] * v->y[1] + o[1]) * v->y[2];
            for (o[2] = lo[2]; o[2] < hi[2]; o[2]++) {
                if (role == FORWARD) yr[o[2]] += xr[o[2] * s + x2] * weight;
                else if (role == GRAD_X) xr[o[2] * s + x2] += yr[o[2]] * weight;
                else sum += xr[o[2] * s + x2] * yr[o[2]];
            }
        }
        if (role == GRAD_W) w[e] += sum;
    }
}

/* All planes: image, group, output channel, input channel. The role says which of x, w, y is written. */
static void conv_planes(const conv *v, conv_role role, double *x, double *w, double *y)
{
    const int64_t xs = volume(v->x), ks = volume(v->k), ys = volume(v->y);
    for (int64_t n = 0; n < v->batch; n++)
        for (int64_t g = 0; g < v->groups; g++)
            for (int64_t o = 0; o < v->out_channels; o++)
                for (int64_t i = 0; i < v->in_channels; i++) {
                    const int64_t in = g * v->in_channels + i, out = g * v->out_channels + o;
                    conv_plane(v, role, x + (n * v->groups * v->in_channels + in) * xs,
                               w + (out * v->in_channels + i) * ks,
                               y + (n * v->groups * v->out_channels + out) * ys);
                }
}

/* The tensor that the role does not write is only read; one pointer type for all three keeps one set of loops. */
static double *readable(const void *p)
{
    return (double *)(uintptr_t)p;
}

static void zero(void *p, const sw__desc *d)
{
    double *const y = p;
    const int64_t n = sw__ref_count(d);
    for (int64_t i = 0; i < n; i++) y[i] = 0;
}

/* x [N, C, …], w [O, C/groups, …], optional bias [O] -> y [N, O, …] */
sw_status sw__ref_conv(const sw__ref_call *c)
{
    const sw__desc *const yd = &c->d->out[0];
    const conv v = conv_of(c->attr, c->d->in[0].dim, c->d->in[1].dim, yd->dim);
    const double *const bias = c->d->n_in > 2 ? c->in[2] : NULL;
    double *const y = c->out[0];
    zero(y, yd);
    conv_planes(&v, FORWARD, readable(c->in[0]), readable(c->in[1]), y);
    const int64_t channels = yd->dim[1], plane = volume(v.y), n = sw__ref_count(yd);
    for (int64_t i = 0; i < n; i++)
        y[i] = sw__ref_act(c->attr->conv.act, y[i] + (bias ? bias[i / plane % channels] : 0));
    return SW_OK;
}

/* dy, w -> dx */
sw_status sw__ref_conv_grad_x(const sw__ref_call *c)
{
    const conv v = conv_of(c->attr, c->d->out[0].dim, c->d->in[1].dim, c->d->in[0].dim);
    zero(c->out[0], &c->d->out[0]);
    conv_planes(&v, GRAD_X, c->out[0], readable(c->in[1]), readable(c->in[0]));
    return SW_OK;
}

/* x, dy -> dw */
sw_status sw__ref_conv_grad_w(const sw__ref_call *c)
{
    const conv v = conv_of(c->attr, c->d->in[0].dim, c->d->out[0].dim, c->d->in[1].dim);
    zero(c->out[0], &c->d->out[0]);
    conv_planes(&v, GRAD_W, readable(c->in[0]), c->out[0], readable(c->in[1]));
    return SW_OK;
}
