/* ref_norm.c: the reference backend's normalisations: batch norm, layer norm, softmax, log-softmax, cross-entropy.
 * Called by ref.c. Mean first, then the variance around it (two passes), then the values. */
#include "backend/ref/ref.h"

/* ---- batch norm: x as [N, C, plane] ------------------------------------------------------------------------------ */

typedef struct channels { int64_t n, c, plane; } channels;

static channels channels_of(const sw__desc *x)
{
    return (channels){ x->dim[0], x->dim[1], sw__dims_product(x->dim + 2, x->rank - 2) };
}

/* Sum over a channel of x - a, of (x - a)^2, or of (x - a) * y: all that batch norm needs. */
static long double channel_sum(const double *x, const double *times, const channels *s, int64_t c, double a,
                               bool squared)
{
    long double sum = 0;
    for (int64_t n = 0; n < s->n; n++) {
        const int64_t base = (n * s->c + c) * s->plane;
        for (int64_t i = base; i < base + s->plane; i++) {
            const long double d = (long double)x[i] - a;
            sum += squared ? d * d : times ? d * times[i] : d;
        }
    }
    return sum;
}

/* x, weight, bias -> y, mean, biased variance */
sw_status sw__ref_batch_norm(const sw__ref_call *c)
{
    const channels s = channels_of(&c->d->in[0]);
    const double *const x = c->in[0], *const weight = c->in[1], *const bias = c->in[2];
    double *const y = c->out[0];
    const long double count = (long double)(s.n * s.plane);
    for (int64_t k = 0; k < s.c; k++) {
        const double mean = (double)(channel_sum(x, NULL, &s, k, 0, false) / count);
        const double var = (double)(channel_sum(x, NULL, &s, k, mean, true) / count);
        const double rstd = 1 / sqrt(var + c->attr->norm.eps);
        for (int64_t n = 0; n < s.n; n++)
            for (int64_t i = (n * s.c + k) * s.plane; i < (n * s.c + k + 1) * s.plane; i++)
                y[i] = (x[i] - mean) * rstd * weight[k] + bias[k];
        if (c->d->n_out > 1) ((double *)c->out[1])[k] = mean;
        if (c->d->n_out > 2) ((double *)c->out[2])[k] = var;
    }
    return SW_OK;
}

/* x, dy, weight, mean, var -> dx, dweight, dbias. With xhat = (x - mean) rstd and means over the channel:
 * dx = weight rstd (dy - mean(dy) - xhat mean(dy xhat)) */
sw_status sw__ref_batch_norm_grad(const sw__ref_call *c)
{
    const channels s = channels_of(&c->d->in[0]);
    const double *const x = c->in[0], *const dy = c->in[1], *const weight = c->in[2];
    double *const dx = c->out[0];
    const double count = (double)(s.n * s.plane);
    for (int64_t k = 0; k < s.c; k++) {
        const double mean = ((const double *)c->in[3])[k], var = ((const double *)c->in[4])[k];
        const double rstd = 1 / sqrt(var + c->attr->norm.eps);
        const double dbias = (double)channel_sum(dy, NULL, &s, k, 0, false);
        const double dweight = count > 0 ? (double)channel_sum(x, dy, &s, k, mean, false) * rstd : 0; /* mean is NaN */
        for (int64_t n = 0; n < s.n; n++)
            for (int64_t i = (n * s.c + k) * s.plane; i < (n * s.c + k + 1) * s.plane; i++)
                dx[i] = weight[k] * rstd * (dy[i] - dbias / count - (x[i] - mean) * rstd * dweight / count);
        if (c->d->n_out > 1) ((double *)c->out[1])[k] = dweight;
        if (c->d->n_out > 2) ((double *)c->out[2])[k] = dbias;
    }
    return SW_OK;
}

/* ---- layer norm: x as [rows, width] ------------------------------------------------------------------------------ */

static void rows_of(const sw__desc *x, int n_axes, int64_t *rows, int64_t *width)
{
    *rows = sw__dims_product(x->dim, x->rank - n_axes);
    *width = sw__dims_product(x->dim + x->rank - n_axes, n_axes);
}

/* x, optional weight, bias -> y, mean, 1/sqrt(var + eps) */
sw_status sw__ref_layer_norm(const sw__ref_call *c)
{
    int64_t rows, width;
    rows_of(&c->d->in[0], c->attr->norm.n_axes, &rows, &width);
    const double *const weight = c->d->n_in > 1 ? c->in[1] : NULL, *const bias = c->d->n_in > 2 ? c->in[2] : NULL;
    for (int64_t r = 0; r < rows; r++) {
        const double *const x = (const double *)c->in[0] + r * width;
        double *const y = (double *)c->out[0] + r * width;
        long double sum = 0, squares = 0;
        for (int64_t i = 0; i < width; i++) sum += x[i];
        const double mean = (double)(sum / (long double)width);
        for (int64_t i = 0; i < width; i++) squares += ((long double)x[i] - mean) * ((long double)x[i] - mean);
        const double rstd = 1 / sqrt((double)(squares / (long double)width) + c->attr->norm.eps);
        for (int64_t i = 0; i < width; i++)
            y[i] = (x[i] - mean) * rstd * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
        if (c->d->n_out > 1) ((double *)c->out[1])[r] = mean;
        if (c->d->n_out > 2) ((double *)c->out[2])[r] = rstd;
    }
    return SW_OK;
}

/* x, dy, mean, rstd, optional weight -> dx. With g = dy weight: dx = rstd (g - mean(g) - xhat mean(g xhat)) */
sw_status sw__ref_layer_norm_grad(const sw__ref_call *c)
{
    int64_t rows, width;
    rows_of(&c->d->in[0], c->attr->norm.n_axes, &rows, &width);
    const double *const weight = c->d->n_in > 4 ? c->in[4] : NULL;
    for (int64_t r = 0; r < rows; r++) {
        const double *const x = (const double *)c->in[0] + r * width, *const dy = (const double *)c->in[1] + r * width;
        const double mean = ((const double *)c->in[2])[r], rstd = ((const double *)c->in[3])[r];
        double *const dx = (double *)c->out[0] + r * width;
        long double sum = 0, dot = 0;
        for (int64_t i = 0; i < width; i++) {
            const double g = dy[i] * (weight ? weight[i] : 1);
            sum += g;
            dot += (long double)g * (x[i] - mean) * rstd;
        }
        const double mean_g = (double)(sum / (long double)width), mean_gx = (double)(dot / (long double)width);
        for (int64_t i = 0; i < width; i++)
            dx[i] = rstd * (dy[i] * (weight ? weight[i] : 1) - mean_g - (x[i] - mean) * rstd * mean_gx);
    }
    return SW_OK;
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Greatest value and the sum of exp(x - greatest) of a row. */
static void row_sums(const double *x, int64_t n, int64_t stride, double *greatest, double *sum)
{
    double m = -INFINITY;
    long double s = 0;
    for (int64_t i = 0; i < n; i++) m = sw__ref_fmax(m, x[i * stride]);
    for (int64_t i = 0; i < n; i++) s += exp(x[i * stride] - m);
    *greatest = m;
    *sum = (double)s;
}

/* softmax and log_softmax along one axis */
sw_status sw__ref_softmax(const sw__ref_call *c)
{
    const sw__ref_axis s = sw__ref_split(&c->d->in[0], c->attr->axis.axis);
    for (int64_t r = 0; r < s.outer * s.inner; r++) {
        const int64_t base = r / s.inner * s.length * s.inner + r % s.inner;
        const double *const x = (const double *)c->in[0] + base;
        double *const y = (double *)c->out[0] + base;
        double greatest, sum;
        row_sums(x, s.length, s.inner, &greatest, &sum);
        for (int64_t i = 0; i < s.length; i++) {
            const double d = x[i * s.inner] - greatest;
            y[i * s.inner] = c->d->op == SW_OP_SOFTMAX ? exp(d) / sum : d - log(sum);
        }
    }
    return SW_OK;
}

/* logits [R, C], target: classes [R] or probabilities [R, C] -> loss [R] = -sum target log_softmax(logits) */
sw_status sw__ref_cross_entropy(const sw__ref_call *c)
{
    const int64_t rows = c->d->in[0].dim[0], classes = c->d->in[0].dim[1];
    const bool by_index = !sw__ref_is_float(&c->d->in[1]);
    const sw_dtype index_type = (sw_dtype)c->d->in[1].dtype;
    double *const loss = c->out[0];
    for (int64_t r = 0; r < rows; r++) {
        const double *const x = (const double *)c->in[0] + r * classes;
        double greatest, sum;
        row_sums(x, classes, 1, &greatest, &sum);
        if (by_index) {
            const int64_t k = sw__ref_get_int(c->in[1], index_type, r);
            if (k < 0 || k >= classes) return sw__ref_bad_index(c, "target", r, k, classes);
            loss[r] = log(sum) - (x[k] - greatest);
            continue;
        }
        const double *const p = (const double *)c->in[1] + r * classes;
        long double total = 0;
        for (int64_t i = 0; i < classes; i++) total += (long double)p[i] * (log(sum) - (x[i] - greatest));
        loss[r] = (double)total;
    }
    return SW_OK;
}
