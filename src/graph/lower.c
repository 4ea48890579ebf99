/* lower.c: matmul, norms, softmax, cross-entropy and embedding in terms of primitives.
 * Used by pass/lower for ops that a device does not take whole, by grad.c for second derivatives, by tests as oracle.
 * Convolution and pooling: lower_window.c. */
#include "graph/grad.h"

#include <math.h>

/* ---- matmul ------------------------------------------------------------------------------------------------------ */

void sw__lower_matmul(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    (void)g;
    sw_t y = sw_dot(in[0], in[1]);
    if (n->n_in > 2) y = sw_add(y, in[2]);
    out[0] = n->attr.act.act == SW_ACT_RELU ? sw_relu(y) : y;
}

/* ---- batch norm -------------------------------------------------------------------------------------------------- */

/* [1, C, 1, …] as [C]. */
static sw_t from_channels(sw_t v)
{
    const int64_t dim = sw_dim(v, 1);
    return sw_reshape(v, 1, &dim);
}

/* How many elements a channel has. */
static double channel_count(const sw__node *n)
{
    const int64_t count = sw__node_elements(n) / n->dim[1];
    return (double)count;
}

/* Statistics from one pass over x: sums of x - K and (x - K)^2, K being each channel's first element. Any K gives the
 * same variance; one near the mean keeps the subtraction below from cancelling. */
static void batch_statistics(sw_t x, double count, sw_t *mean, sw_t *var)
{
    const uint32_t axes = sw__axes_but(sw_rank(x), 1);
    int64_t start[SW_MAX_RANK] = { 0 }, stop[SW_MAX_RANK];
    for (int i = 0; i < sw_rank(x); i++) stop[i] = i == 1 ? sw_dim(x, 1) : 1;
    const sw_t k = sw_stop_gradient(sw_slice(x, start, stop, NULL));
    const sw_t d = sw_sub(x, k);
    const sw_t d_mean = sw_mul_scalar(sw_sum(d, axes, true), 1.0 / count);
    const sw_t square_mean = sw_mul_scalar(sw_sum(sw_square(d), axes, true), 1.0 / count);
    *mean = sw_add(k, d_mean);
    *var = sw_relu(sw_sub(square_mean, sw_square(d_mean)));
}

/* y = x scale + shift, scale = weight/sqrt(var + eps), shift = bias - mean scale: one multiplication and one addition
 * an element. */
void sw__lower_batch_norm(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    const sw_t x = in[0];
    const int64_t channels = n->dim[1];
    if (sw__node_elements(n) == 0) { /* the mean of nothing is no number */
        out[0] = sw__const_like(x, 0.0);
        out[1] = out[2] = sw_full(g, (sw_dtype)n->dtype, 1, &channels, NAN);
        return;
    }
    sw_t mean, var;
    batch_statistics(x, channel_count(n), &mean, &var);
    const sw_t scale = sw_mul(sw__per_channel(in[1], sw_rank(x)), sw_rsqrt(sw_add_scalar(var, n->attr.norm.eps)));
    const sw_t shift = sw_sub(sw__per_channel(in[2], sw_rank(x)), sw_mul(mean, scale));
    out[0] = sw_add(sw_mul(x, scale), shift);
    out[1] = from_channels(mean);
    out[2] = from_channels(var);
}

/* With r = 1/sqrt(var + eps), S = sum(dy), T = sum(dy (x - mean)), m elements a channel:
 * dbias = S, dweight = r T, dx = w r (dy - S/m - (x - mean) r^2 T/m) = a dy + b x + c, coefficients per channel. */
void sw__lower_batch_norm_grad(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    const sw_t x = in[0], dy = in[1];
    const int64_t channels = n->dim[1];
    if (sw__node_elements(n) == 0) { /* sums over nothing */
        out[0] = sw__const_like(x, 0.0);
        out[1] = out[2] = sw_full(g, (sw_dtype)n->dtype, 1, &channels, 0.0);
        return;
    }
    const uint32_t axes = sw__axes_but(n->rank, 1);
    const double share = 1.0 / channel_count(n);
    const sw_t w = sw__per_channel(in[2], sw_rank(x)), mean = sw__per_channel(in[3], sw_rank(x)), var = sw__per_channel(in[4], sw_rank(x));
    const sw_t r = sw_rsqrt(sw_add_scalar(var, n->attr.norm.eps));
    const sw_t s = sw_sum(dy, axes, true);
    const sw_t t = sw_sum(sw_mul(dy, sw_sub(x, mean)), axes, true);
    const sw_t dweight = sw_mul(t, r);
    const sw_t a = sw_mul(w, r);
    const sw_t b = sw_neg(sw_mul(sw_mul(a, r), sw_mul_scalar(dweight, share)));
    const sw_t c = sw_neg(sw_add(sw_mul(a, sw_mul_scalar(s, share)), sw_mul(b, mean)));
    out[0] = sw_add(sw_mul(dy, a), sw_add(sw_mul(x, b), c));
    out[1] = from_channels(dweight);
    out[2] = from_channels(s);
}

/* ---- layer norm -------------------------------------------------------------------------------------------------- */

/* The last n axes of a tensor of this rank. */
static uint32_t last_axes(int rank, int n)
{
    return ((1u << n) - 1u) << (rank - n);
}

static double last_count(const sw__node *n)
{
    return (double)sw__dims_product(n->dim + n->rank - n->attr.norm.n_axes, n->attr.norm.n_axes);
}

/* Mean first, then the squares of what is left: no cancellation, and still one kernel over rows. */
void sw__lower_layer_norm(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    const sw_t x = in[0];
    const uint32_t axes = last_axes(n->rank, n->attr.norm.n_axes);
    if (sw__node_elements(n) == 0) {
        int64_t dim[SW_MAX_RANK];
        for (int i = 0; i < n->rank; i++) dim[i] = i < n->rank - n->attr.norm.n_axes ? n->dim[i] : 1;
        out[0] = sw__const_like(x, 0.0);
        out[1] = out[2] = sw_full(g, (sw_dtype)n->dtype, n->rank, dim, NAN);
        return;
    }
    const double share = 1.0 / last_count(n);
    const sw_t mean = sw_mul_scalar(sw_sum(x, axes, true), share);
    const sw_t d = sw_sub(x, mean);
    const sw_t var = sw_mul_scalar(sw_sum(sw_square(d), axes, true), share);
    const sw_t rstd = sw_rsqrt(sw_add_scalar(var, n->attr.norm.eps));
    sw_t y = sw_mul(d, rstd);
    if (n->n_in > 1) y = sw_mul(y, in[1]);
    if (n->n_in > 2) y = sw_add(y, in[2]);
    out[0] = y;
    out[1] = mean;
    out[2] = rstd;
}

/* With h = (x - mean) rstd and e = dy weight: dx = rstd (e - mean(e) - h mean(e h)). */
void sw__lower_layer_norm_grad(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    (void)g;
    const sw_t x = in[0], dy = in[1], mean = in[2], rstd = in[3];
    if (sw__node_elements(n) == 0) {
        out[0] = sw__const_like(x, 0.0);
        return;
    }
    const uint32_t axes = last_axes(n->rank, n->attr.norm.n_axes);
    const double share = 1.0 / last_count(n);
    const sw_t h = sw_mul(sw_sub(x, mean), rstd);
    const sw_t e = n->n_in > 4 ? sw_mul(dy, in[4]) : dy;
    const sw_t e_mean = sw_mul_scalar(sw_sum(e, axes, true), share);
    const sw_t eh_mean = sw_mul_scalar(sw_sum(sw_mul(e, h), axes, true), share);
    out[0] = sw_mul(sw_sub(sw_sub(e, e_mean), sw_mul(h, eh_mean)), rstd);
}

/* ---- softmax and cross-entropy ----------------------------------------------------------------------------------- */

/* x less its maximum over an axis: exp cannot overflow. The result of what follows does not depend on the maximum, so
 * no gradient goes through it. A row of -inf gives NaN (-inf - -inf), as does one with +inf. */
static sw_t less_maximum(sw_t x, int axis)
{
    return sw_sub(x, sw_stop_gradient(sw_reduce_max(x, SW_AXIS(axis), true)));
}

void sw__lower_softmax(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    (void)g;
    const int axis = n->attr.axis.axis;
    const sw_t e = sw_exp(less_maximum(in[0], axis));
    out[0] = sw_div(e, sw_sum(e, SW_AXIS(axis), true));
}

void sw__lower_log_softmax(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    (void)g;
    const int axis = n->attr.axis.axis;
    const sw_t d = less_maximum(in[0], axis);
    out[0] = sw_sub(d, sw_log(sw_sum(sw_exp(d), SW_AXIS(axis), true)));
}

/* With d = x - max and L = log(sum(exp(d))): class c loses L - d[c], probabilities t lose L sum(t) - sum(t d). The
 * index goes through gather, so that a label out of range stops the run. */
void sw__lower_cross_entropy(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    const sw_t x = in[0], target = in[1];
    const int64_t rows = sw_dim(x, 0), column[2] = { rows, 1 };
    if (sw_dim(x, 1) == 0 && sw_rank(target) == 2) { /* a sum over no class, not 0 log(0) */
        out[0] = sw_full(g, (sw_dtype)n->dtype, 1, n->dim, 0.0);
        return;
    }
    sw_t loss;
    if (sw_rank(target) == 1) {
        const sw_t top = sw_stop_gradient(sw_reduce_max(x, SW_AXIS(1), true));
        const sw_t log_sum = sw_log(sw_sum(sw_exp(sw_sub(x, top)), SW_AXIS(1), true));
        const sw_t hit = sw_gather(x, sw_reshape(target, 2, column), 1);
        loss = sw_sub(log_sum, sw_sub(hit, top));
    } else {
        const sw_t d = less_maximum(x, 1);
        const sw_t log_sum = sw_log(sw_sum(sw_exp(d), SW_AXIS(1), true));
        loss = sw_sub(sw_mul(log_sum, sw_sum(target, SW_AXIS(1), true)), sw_sum(sw_mul(target, d), SW_AXIS(1), true));
    }
    out[0] = sw_reshape(loss, 1, n->dim);
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

/* One index a row of [R, D]. */
static sw_t row_index(sw_t index, int64_t width)
{
    const int64_t rows = sw_elements(index), column[2] = { rows, 1 }, full[2] = { rows, width };
    return sw_expand(sw_reshape(index, 2, column), 2, full);
}

void sw__lower_embedding(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    (void)g;
    const sw_t rows = sw_gather(in[0], row_index(in[1], sw_dim(in[0], 1)), 0);
    out[0] = sw_reshape(rows, n->rank, n->dim);
}

void sw__lower_embedding_grad(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    const int64_t rows[2] = { sw_elements(in[0]), n->dim[1] };
    const sw_t zeros = sw_full(g, (sw_dtype)n->dtype, 2, n->dim, 0.0);
    out[0] = sw_scatter_add(zeros, row_index(in[0], n->dim[1]), sw_reshape(in[1], 2, rows), 0);
}
