/* lower_window.c: convolution and pooling, forward and backward, in terms of primitives.
 * As lower.c. Each is a sum (or maximum) over the positions in the kernel of strided slices of the padded input: as
 * many terms as the kernel has positions, each a plain dot or pointwise op that any device can do. */
#include "graph/grad.h"

#include <math.h>

/* A window moved over nd spatial axes (axes 2.. of the tensors). */
typedef struct window {
    int nd;
    int64_t batch, in_channels, out_channels; /* of x and of y; equal for pooling */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], lo[3], hi[3];
} window;

/* Geometry of a convolution whose x, weight and y have these shapes (two are known at each call). */
static window conv_window(const sw__attr *attr, const int64_t *x, const int64_t *w, const int64_t *y)
{
    window c = { .nd = attr->conv.nd, .batch = x[0], .in_channels = x[1], .out_channels = w[0] };
    for (int i = 0; i < c.nd; i++) {
        c.in[i] = x[2 + i];
        c.out[i] = y[2 + i];
        c.kernel[i] = w[2 + i];
        c.stride[i] = attr->conv.stride[i];
        c.dilation[i] = attr->conv.dilation[i];
        c.lo[i] = attr->conv.pad_lo[i];
        c.hi[i] = attr->conv.pad_hi[i];
    }
    return c;
}

static window pool_window(const sw__attr *attr, const int64_t *x, const int64_t *y)
{
    window c = { .nd = attr->pool.nd, .batch = x[0], .in_channels = x[1], .out_channels = x[1] };
    for (int i = 0; i < c.nd; i++) {
        c.in[i] = x[2 + i];
        c.out[i] = y[2 + i];
        c.kernel[i] = attr->pool.kernel[i];
        c.stride[i] = attr->pool.stride[i];
        c.dilation[i] = 1;
        c.lo[i] = attr->pool.pad_lo[i];
        c.hi[i] = attr->pool.pad_hi[i];
    }
    return c;
}

/* Position number p of the kernel (row-major) as an offset along each axis. */
static void position(const window *c, int64_t p, int64_t at[3])
{
    for (int i = c->nd; i-- > 0; p /= c->kernel[i]) at[i] = p % c->kernel[i];
}

static bool is_padded(const window *c)
{
    for (int i = 0; i < c->nd; i++) {
        if (c->lo[i] || c->hi[i]) return true;
    }
    return false;
}

/* x with its padding. */
static sw_t padded(const window *c, sw_t x, double value)
{
    if (!is_padded(c)) return x;
    int64_t lo[5] = { 0 }, hi[5] = { 0 };
    memcpy(lo + 2, c->lo, sizeof c->lo);
    memcpy(hi + 2, c->hi, sizeof c->hi);
    return sw_pad(x, lo, hi, NULL, value);
}

/* Of the padded x, one sample and channel: false on padding. SW_NONE: there is none. */
static sw_t not_padding(sw_graph *g, const window *c)
{
    if (!is_padded(c)) return SW_NONE;
    int64_t one[5] = { 1, 1 };
    memcpy(one + 2, c->in, sizeof c->in);
    return padded(c, sw_full(g, SW_BOOL, 2 + c->nd, one, 1.0), 0.0);
}

/* What position p sees of the padded x: one element for each of y's. */
static sw_t seen(const window *c, sw_t xp, int64_t p)
{
    int64_t at[3], start[5] = { 0 }, stop[5] = { sw_dim(xp, 0), sw_dim(xp, 1) }, step[5] = { 1, 1, 1, 1, 1 };
    position(c, p, at);
    for (int i = 0; i < c->nd; i++) {
        start[2 + i] = at[i] * c->dilation[i];
        stop[2 + i] = start[2 + i] + (c->out[i] - 1) * c->stride[i] + 1;
        step[2 + i] = c->stride[i];
    }
    return sw_slice(xp, start, stop, step);
}

/* The reverse of `seen`: v, of y's spatial shape, put where position p saw it, zeros elsewhere in the padded shape. */
static sw_t put_back(const window *c, sw_t v, int64_t p)
{
    int64_t at[3], lo[5] = { 0 }, hi[5] = { 0 }, interior[5] = { 0 };
    position(c, p, at);
    for (int i = 0; i < c->nd; i++) {
        const int64_t last = at[i] * c->dilation[i] + (c->out[i] - 1) * c->stride[i];
        lo[2 + i] = at[i] * c->dilation[i];
        hi[2 + i] = c->in[i] + c->lo[i] + c->hi[i] - 1 - last;
        interior[2 + i] = c->stride[i] - 1;
    }
    return sw_pad(v, lo, hi, interior, 0.0);
}

/* The reverse of `padded`. */
static sw_t unpadded(const window *c, sw_t v)
{
    if (!is_padded(c)) return v;
    int64_t start[5] = { 0 }, stop[5] = { sw_dim(v, 0), sw_dim(v, 1) };
    for (int i = 0; i < c->nd; i++) {
        start[2 + i] = c->lo[i];
        stop[2 + i] = c->lo[i] + c->in[i];
    }
    return sw_slice(v, start, stop, NULL);
}

static sw_t plus(sw_t sum, sw_t term)
{
    return sum.graph ? sw_add(sum, term) : term;
}

/* No output element, or nothing to add up: the result is zeros. */
static bool is_empty(const window *c)
{
    return c->batch == 0 || c->in_channels == 0 || c->out_channels == 0 || sw__dims_product(c->in, c->nd) == 0 ||
           sw__dims_product(c->out, c->nd) == 0 || sw__dims_product(c->kernel, c->nd) == 0;
}

static sw_t zeros_of(sw_graph *g, const sw__node *n)
{
    return sw_full(g, (sw_dtype)n->dtype, n->rank, n->dim, 0.0);
}

/* ---- convolution: groups are a batch axis of dot ----------------------------------------------------------------- */

/* The weight at position p as [1, G, O/G, C/G], repeated over the batch. */
static sw_t weight_at(const window *c, sw_t w, int64_t p, int64_t groups)
{
    int64_t at[3], start[5] = { 0 }, stop[5] = { sw_dim(w, 0), sw_dim(w, 1) };
    position(c, p, at);
    for (int i = 0; i < c->nd; i++) {
        start[2 + i] = at[i];
        stop[2 + i] = at[i] + 1;
    }
    int64_t dim[4] = { 1, groups, c->out_channels / groups, c->in_channels / groups };
    const sw_t slice = sw_reshape(sw_slice(w, start, stop, NULL), 4, dim);
    dim[0] = c->batch;
    return sw_expand(slice, 4, dim);
}

/* [N, channels, spatial…] as [N, G, channels/G, positions]. */
static sw_t in_groups(const window *c, sw_t v, int64_t channels, int64_t groups)
{
    return sw_reshape(v, 4, (int64_t[]){ c->batch, groups, channels / groups, sw__dims_product(c->out, c->nd) });
}

static sw_t out_of_groups(const window *c, sw_t v, int64_t channels)
{
    int64_t dim[5] = { c->batch, channels };
    memcpy(dim + 2, c->out, sizeof c->out);
    return sw_reshape(v, 2 + c->nd, dim);
}

void sw__lower_conv(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    if (!sw_valid(in[0]) || !sw_valid(in[1])) return;
    const window c = conv_window(&n->attr, sw__node_of(in[0])->dim, sw__node_of(in[1])->dim, n->dim);
    const int64_t groups = n->attr.conv.groups, positions = sw__dims_product(c.kernel, c.nd);
    sw_t y = SW_NONE;
    if (is_empty(&c)) {
        y = zeros_of(g, n);
    } else {
        const sw_t xp = padded(&c, in[0], 0.0);
        for (int64_t p = 0; p < positions; p++) {
            const sw_t x = in_groups(&c, seen(&c, xp, p), c.in_channels, groups);
            y = plus(y, sw_dot(weight_at(&c, in[1], p, groups), x));
        }
        y = out_of_groups(&c, y, c.out_channels);
    }
    if (n->n_in > 2) y = sw_add(y, sw__per_channel(in[2], 2 + c.nd));
    out[0] = n->attr.conv.act == SW_ACT_RELU ? sw_relu(y) : y;
}

/* in: dy, weight; result of x's shape */
void sw__lower_conv_gx(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    if (!sw_valid(in[0]) || !sw_valid(in[1])) return;
    const window c = conv_window(&n->attr, n->dim, sw__node_of(in[1])->dim, sw__node_of(in[0])->dim);
    const int64_t groups = n->attr.conv.groups, positions = sw__dims_product(c.kernel, c.nd);
    if (is_empty(&c)) {
        out[0] = zeros_of(g, n);
        return;
    }
    const sw_t dy = in_groups(&c, in[0], c.out_channels, groups);
    sw_t dx = SW_NONE;
    for (int64_t p = 0; p < positions; p++) {
        const sw_t wt = sw_transpose(weight_at(&c, in[1], p, groups), 2, 3);
        dx = plus(dx, put_back(&c, out_of_groups(&c, sw_dot(wt, dy), c.in_channels), p));
    }
    out[0] = unpadded(&c, dx);
}

/* in: x, dy; result of the weight's shape. Batch and positions are contracted together. */
void sw__lower_conv_gw(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    if (!sw_valid(in[0]) || !sw_valid(in[1])) return;
    const window c = conv_window(&n->attr, sw__node_of(in[0])->dim, n->dim, sw__node_of(in[1])->dim);
    const int64_t groups = n->attr.conv.groups, positions = sw__dims_product(c.kernel, c.nd);
    if (is_empty(&c)) {
        out[0] = zeros_of(g, n);
        return;
    }
    sw_t *parts = sw__calloc((size_t)positions, sizeof *parts);
    if (!parts) {
        sw__graph_error(g, SW_ERR_MEMORY, "out of memory: %lld parts of a weight gradient", (long long)positions);
        return;
    }
    const int64_t o = c.out_channels / groups, i = c.in_channels / groups, terms = c.batch * sw__dims_product(c.out, c.nd);
    const sw_t dy = sw_reshape(sw_permute(in_groups(&c, in[1], c.out_channels, groups), (int[]){ 1, 2, 0, 3 }), 3,
                               (int64_t[]){ groups, o, terms });
    const sw_t xp = padded(&c, in[0], 0.0);
    for (int64_t p = 0; p < positions; p++) {
        const sw_t x = in_groups(&c, seen(&c, xp, p), c.in_channels, groups);
        const sw_t xt = sw_reshape(sw_permute(x, (int[]){ 1, 0, 3, 2 }), 3, (int64_t[]){ groups, terms, i });
        parts[p] = sw_reshape(sw_dot(dy, xt), 3, (int64_t[]){ c.out_channels, i, 1 });
    }
    out[0] = sw_reshape(positions == 1 ? parts[0] : sw_concat(parts, (int)positions, 2), n->rank, n->dim);
    sw__free(parts);
}

/* ---- maximum pooling --------------------------------------------------------------------------------------------- */

void sw__lower_max_pool(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    if (!sw_valid(in[0])) return;
    const window c = pool_window(&n->attr, sw__node_of(in[0])->dim, n->dim);
    if (sw__node_elements(n) == 0) {
        out[0] = zeros_of(g, n);
        return;
    }
    sw__attr tie;
    memset(&tie, 0, sizeof tie);
    tie.tie.second = true; /* the earlier position takes the gradient */
    const sw_t xp = padded(&c, in[0], -INFINITY);
    const int64_t positions = sw__dims_product(c.kernel, c.nd);
    sw_t y = seen(&c, xp, 0);
    for (int64_t p = 1; p < positions; p++) {
        const sw_t pair[2] = { seen(&c, xp, p), y };
        y = sw__node_add(g, SW_OP_MAX, pair, 2, &tie, NULL);
    }
    out[0] = y;
}

/* in: x, y, dy. The first position (row-major) that equals y, or is NaN where y is, takes dy; padding never does, not
 * even where the whole window is -inf. */
void sw__lower_max_pool_grad(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    if (!sw_valid(in[0]) || !sw_valid(in[1])) return;
    const sw_t x = in[0], y = in[1], dy = in[2];
    const window c = pool_window(&n->attr, n->dim, sw__node_of(y)->dim);
    if (is_empty(&c)) {
        out[0] = zeros_of(g, n);
        return;
    }
    const sw_t xp = padded(&c, x, -INFINITY);
    const sw_t real = not_padding(g, &c);
    const int64_t positions = sw__dims_product(c.kernel, c.nd);
    sw_t taken = SW_NONE, dx = SW_NONE;
    for (int64_t p = 0; p < positions; p++) {
        const sw_t v = seen(&c, xp, p);
        sw_t hit = sw_or(sw_eq(v, y), sw_ne(v, v));
        if (real.graph) hit = sw_and(hit, seen(&c, real, p));
        const sw_t take = taken.graph ? sw_and(hit, sw_not(taken)) : hit;
        dx = plus(dx, put_back(&c, sw__keep_if(take, dy), p));
        taken = taken.graph ? sw_or(taken, hit) : hit;
    }
    out[0] = unpadded(&c, dx);
}

/* Of each window's first element: its place in the plane of x, as if there were no edge. */
static sw_t window_places(sw_graph *g, const window *c, int rank, const int64_t *dim)
{
    sw_t place = sw_full(g, SW_I64, rank, dim, 0.0);
    int64_t row = 1;
    for (int i = c->nd; i-- > 0; row *= c->in[i]) {
        const sw_t at = sw_iota(g, SW_I64, rank, dim, 2 + i);
        const sw_t from = sw_add_scalar(sw_mul_scalar(at, (double)c->stride[i]), -(double)c->lo[i]);
        place = sw_add(place, sw_mul_scalar(from, (double)row));
    }
    return place;
}

/* How much further than the window's first element position p is. */
static double place_of(const window *c, int64_t p)
{
    int64_t at[3], row = 1, sum = 0;
    position(c, p, at);
    for (int i = c->nd; i-- > 0; row *= c->in[i]) sum += at[i] * row;
    return (double)sum;
}

/* As max_pool_grad finds it: the first position that is greatest, or the first NaN; never padding. */
sw_t sw__max_pool_index(sw_graph *g, const sw__node *n, sw_t x)
{
    const window c = pool_window(&n->attr, sw__node_of(x)->dim, n->dim);
    if (is_empty(&c)) return sw_full(g, SW_I64, n->rank, n->dim, 0.0);
    const sw_t xp = padded(&c, x, -INFINITY);
    const sw_t real = not_padding(g, &c);
    const int64_t positions = sw__dims_product(c.kernel, c.nd);
    sw_t best = seen(&c, xp, 0), place = sw_full(g, SW_I64, n->rank, n->dim, 0.0);
    sw_t have = real.graph ? seen(&c, real, 0) : SW_NONE;
    for (int64_t p = 1; p < positions; p++) {
        const sw_t v = seen(&c, xp, p);
        sw_t better = sw_or(sw_gt(v, best), sw_and(sw_ne(v, v), sw_eq(best, best)));
        if (real.graph) {
            const sw_t is_real = seen(&c, real, p);
            better = sw_and(is_real, sw_or(better, sw_not(have)));
            have = sw_or(have, is_real);
        }
        place = sw_where(better, sw_const(g, SW_I64, place_of(&c, p)), place);
        best = sw_where(better, v, best);
    }
    return sw_add(window_places(g, &c, n->rank, n->dim), place);
}

/* ---- average pooling --------------------------------------------------------------------------------------------- */

/* How many elements of x (not of the padding) output o of axis i sees. */
static int64_t real_count(const window *c, int i, int64_t o)
{
    const int64_t from = o * c->stride[i] - c->lo[i], to = from + c->kernel[i];
    const int64_t first = SW_MAX(from, 0), past = SW_MIN(to, c->in[i]);
    return past - first; /* at least 1: no window lies in the padding altogether (infer) */
}

/* The divisor of each output, [1, 1, out…]: how many elements it averages. */
static sw_t real_counts(sw_graph *g, const window *c, sw_dtype type)
{
    const int64_t n = sw__dims_product(c->out, c->nd);
    int64_t *counts = sw__calloc((size_t)n, sizeof *counts);
    void *data = sw__calloc((size_t)n, sw_dtype_size(type));
    sw_t result = { g, 0 };
    if (counts && data) {
        for (int64_t e = 0; e < n; e++) {
            int64_t rest = e, count = 1;
            for (int i = c->nd; i-- > 0; rest /= c->out[i]) count *= real_count(c, i, rest % c->out[i]);
            counts[e] = count;
        }
        sw__convert(data, type, counts, SW_I64, (size_t)n);
        int64_t dim[5] = { 1, 1 };
        memcpy(dim + 2, c->out, sizeof c->out);
        result = sw_literal(g, type, 2 + c->nd, dim, data);
    } else {
        sw__graph_error(g, SW_ERR_MEMORY, "out of memory: %lld divisors of an average pooling", (long long)n);
    }
    sw__free(counts);
    sw__free(data);
    return result;
}

/* v, of y's shape, divided by what each output averages. */
static sw_t averaged(sw_graph *g, const window *c, bool include_pad, sw_t v)
{
    if (include_pad || !is_padded(c)) {
        return sw_div(v, sw__scalar_like(v, (double)sw__dims_product(c->kernel, c->nd)));
    }
    return sw_div(v, real_counts(g, c, sw_type(v)));
}

void sw__lower_avg_pool(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    if (!sw_valid(in[0])) return;
    const window c = pool_window(&n->attr, sw__node_of(in[0])->dim, n->dim);
    if (sw__node_elements(n) == 0) {
        out[0] = zeros_of(g, n);
        return;
    }
    const sw_t xp = padded(&c, in[0], 0.0);
    const int64_t positions = sw__dims_product(c.kernel, c.nd);
    sw_t y = SW_NONE;
    for (int64_t p = 0; p < positions; p++) y = plus(y, seen(&c, xp, p));
    out[0] = averaged(g, &c, n->attr.pool.include_pad, y);
}

/* in: dy; result of x's shape */
void sw__lower_avg_pool_grad(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    if (!sw_valid(in[0])) return;
    const window c = pool_window(&n->attr, n->dim, sw__node_of(in[0])->dim);
    if (is_empty(&c)) {
        out[0] = zeros_of(g, n);
        return;
    }
    const sw_t v = averaged(g, &c, n->attr.pool.include_pad, in[0]);
    const int64_t positions = sw__dims_product(c.kernel, c.nd);
    sw_t dx = SW_NONE;
    for (int64_t p = 0; p < positions; p++) dx = plus(dx, put_back(&c, v, p));
    out[0] = unpadded(&c, dx);
}
