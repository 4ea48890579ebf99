/* ops_big.c: public builders of the big ops: matmul, convolution, pooling, norms, losses, embedding. They bring their
 * operands to the one form that the node has. Between swoop/graph.h and sw__node_add. */
#include "graph/build.h"

/* ---- matmul --------------------------------------------------------------------------------------------------- */

/* a [B…, M, K] x b [K, N]: one product of [B M, K] and [K, N], for a row-major a only another reading of it. */
static sw_t matmul_flat(sw_t a, sw_t b)
{
    const sw__node n = *sw__node_of(a);
    const int last = n.rank - 1;
    int64_t dim[SW_MAX_RANK];
    memcpy(dim, n.dim, sizeof dim);
    dim[last] = sw_dim(b, 1);
    const sw_t xs[2] = { sw_reshape(a, 2, (int64_t[]){ sw__dims_product(n.dim, last), n.dim[last] }), b };
    return sw_reshape(sw__node_add(a.graph, SW_OP_MATMUL, xs, 2, NULL, NULL), n.rank, dim);
}

/* Batch axes broadcast: both sides get all of them. */
static sw_t matmul_batched(sw_t a, sw_t b)
{
    const sw__node na = *sw__node_of(a), nb = *sw__node_of(b);
    const int rank = SW_MAX(na.rank, nb.rank);
    int64_t to_a[SW_MAX_RANK], to_b[SW_MAX_RANK];
    for (int i = 1; i <= rank; i++) {
        const int64_t da = i <= na.rank ? na.dim[na.rank - i] : 1, db = i <= nb.rank ? nb.dim[nb.rank - i] : 1;
        to_a[rank - i] = i <= 2 ? da : da == 1 ? db : da;
        to_b[rank - i] = i <= 2 ? db : db == 1 ? da : db;
        if (to_a[rank - i] == to_b[rank - i] || i <= 2) continue;
        char left[SW__TEXT_BYTES], right[SW__TEXT_BYTES];
        return sw__op_error(a.graph, SW_OP_MATMUL, SW_ERR_SHAPE, "batch axes do not broadcast: %s x %s: sizes must be equal or 1",
                            sw__value_text(a.graph, a.id, left), sw__value_text(a.graph, b.id, right));
    }
    const sw_t xs[2] = { sw__expand_to(a, rank, to_a), sw__expand_to(b, rank, to_b) };
    return sw__node_add(a.graph, SW_OP_MATMUL, xs, 2, NULL, NULL);
}

/* The product of two operands of rank 2 or more. */
static sw_t matmul(sw_t a, sw_t b)
{
    if (sw_rank(b) == 2 && sw_rank(a) > 2) return matmul_flat(a, b);
    return matmul_batched(a, b);
}

sw_t sw_matmul(sw_t a, sw_t b)
{
    const sw_t xs[2] = { a, b };
    sw_t invalid;
    char left[SW__TEXT_BYTES], right[SW__TEXT_BYTES];
    if (!sw__operands(SW_OP_MATMUL, xs, 2, &invalid)) return invalid;
    if (sw_rank(a) == 0 || sw_rank(b) == 0)
        return sw__op_error(a.graph, SW_OP_MATMUL, SW_ERR_SHAPE, "operand %d, %s, is a scalar: sw_mul multiplies by one",
                            sw_rank(a) == 0 ? 1 : 2, sw__value_text(a.graph, sw_rank(a) == 0 ? a.id : b.id, left));
    const bool vector_a = sw_rank(a) == 1, vector_b = sw_rank(b) == 1;
    const int64_t k_a = sw_dim(a, -1), k_b = sw_dim(b, vector_b ? 0 : -2);
    if (k_a != k_b) /* the shape rule would see it too, but after operands were reshaped and expanded */
        return sw__op_error(a.graph, SW_OP_MATMUL, SW_ERR_SHAPE, "inner sizes differ: %s x %s (%lld against %lld): "
                            "the last axis of the left side must equal the last but one of the right",
                            sw__value_text(a.graph, a.id, left), sw__value_text(b.graph, b.id, right), (long long)k_a,
                            (long long)k_b);
    if (vector_a) a = sw_reshape(a, 2, (int64_t[]){ 1, sw_dim(a, 0) });
    if (vector_b) b = sw_reshape(b, 2, (int64_t[]){ sw_dim(b, 0), 1 });
    const sw_t y = matmul(a, b);
    if (!sw_valid(y) || (!vector_a && !vector_b)) return y;
    /* The axis that a vector lent goes again. */
    int64_t dim[SW_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < sw_rank(y); i++)
        if (!(vector_a && i == sw_rank(y) - 2) && !(vector_b && i == sw_rank(y) - 1)) dim[rank++] = sw_dim(y, i);
    return sw_reshape(y, rank, dim);
}

sw_t sw_linear_op(sw_t x, sw_t weight, sw_t bias)
{
    sw_t xs[3] = { x, weight, bias }, invalid;
    const uint32_t n = bias.graph != NULL ? 3 : 2;
    if (!sw__operands(SW_OP_MATMUL, xs, n, &invalid)) return invalid;
    const sw__node from = *sw__node_of(x);
    const int last = from.rank - 1;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (from.rank < 1 || sw_rank(weight) != 2 || sw_dim(x, -1) != sw_dim(weight, 1))
        return sw__op_error(x.graph, SW_OP_MATMUL, SW_ERR_SHAPE, "linear takes x [.., K] and a weight [N, K]; x is "
                            "%s, the weight %s", sw__value_text(x.graph, x.id, a),
                            sw__value_text(x.graph, weight.id, b));
    int64_t dim[SW_MAX_RANK];
    memcpy(dim, from.dim, sizeof dim);
    dim[last] = sw_dim(weight, 0);
    xs[0] = sw_reshape(x, 2, (int64_t[]){ sw__dims_product(from.dim, last), from.dim[last] });
    xs[1] = sw_transpose(weight, 0, 1);
    return sw_reshape(sw__node_add(x.graph, SW_OP_MATMUL, xs, n, NULL, NULL), from.rank, dim);
}

/* ---- convolution and pooling ---------------------------------------------------------------------------------- */

/* Spatial axes of x [N, C, spatial…], 0 and the error recorded if it has none or too many. */
static int spatial(sw__op op, sw_t x)
{
    const int nd = sw_rank(x) - 2;
    if (nd >= 1 && nd <= 3) return nd;
    char text[SW__TEXT_BYTES];
    sw__op_error(x.graph, op, SW_ERR_SHAPE, "x must be [N, C, spatial…] with 1 to 3 spatial axes, not %s",
                 sw__value_text(x.graph, x.id, text));
    return 0;
}

static int64_t or_one(int64_t v)
{
    return v == 0 ? 1 : v;
}

sw_t sw_conv_op(sw_t x, sw_t weight, sw_t bias, const sw_conv_options *o)
{
    static const sw_conv_options defaults;
    if (o == NULL) o = &defaults;
    const sw_t xs[3] = { x, weight, bias };
    const uint32_t n = bias.graph != NULL ? 3 : 2;
    sw_t invalid;
    if (!sw__operands(SW_OP_CONV, xs, n, &invalid)) return invalid;
    const int nd = spatial(SW_OP_CONV, x);
    if (nd == 0) return (sw_t){ x.graph, 0 };
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.conv.nd = nd;
    attr.conv.groups = or_one(o->groups);
    for (int i = 0; i < nd; i++) {
        attr.conv.stride[i] = or_one(o->stride[i]);
        attr.conv.dilation[i] = or_one(o->dilation[i]);
        attr.conv.pad_lo[i] = o->pad_lo[i];
        attr.conv.pad_hi[i] = o->pad_hi[i];
    }
    return sw__node_add(x.graph, SW_OP_CONV, xs, n, &attr, NULL);
}

/* ceil_mode: padding behind that makes room for a last window that begins before the padding and would otherwise be left out.
 * Numbers that are no pooling's are left to the shape rule. */
static int64_t room_behind(int64_t n, int64_t kernel, int64_t stride, int64_t lo, int64_t hi)
{
    const int64_t most = INT64_MAX / 8;
    if (n < 1 || kernel < 1 || stride < 1 || lo < 0 || hi < 0 || n > most || kernel > most || stride > most || lo > most ||
        hi > most || n + lo + hi + stride <= kernel)
        return hi;
    int64_t out = (n + lo + hi - kernel + stride - 1) / stride + 1;
    if ((out - 1) * stride >= n + lo) out--;
    return SW_MAX(hi, (out - 1) * stride + kernel - n - lo);
}

bool sw__pool_attr(sw__op op, sw_t x, const sw_pool_options *o, sw__attr *attr)
{
    sw_t invalid;
    if (!sw__operands(op, &x, 1, &invalid)) return false;
    if (o == NULL) {
        sw__op_error(x.graph, op, SW_ERR_ARGUMENT, "the options are NULL: they hold the kernel's size");
        return false;
    }
    const int nd = spatial(op, x);
    if (nd == 0) return false;
    memset(attr, 0, sizeof *attr);
    attr->pool.nd = nd;
    attr->pool.include_pad = op == SW_OP_AVG_POOL && o->count_include_pad;
    for (int i = 0; i < nd; i++) {
        const int64_t stride = o->stride[i] != 0 ? o->stride[i] : o->kernel[i], lo = o->pad_lo[i], hi = o->pad_hi[i];
        attr->pool.kernel[i] = o->kernel[i];
        attr->pool.stride[i] = stride;
        attr->pool.pad_lo[i] = lo;
        attr->pool.pad_hi[i] = o->ceil_mode ? room_behind(sw_dim(x, i + 2), o->kernel[i], stride, lo, hi) : hi;
    }
    return true;
}

sw_t sw_max_pool_op(sw_t x, const sw_pool_options *o)
{
    sw__attr attr;
    return sw__pool_attr(SW_OP_MAX_POOL, x, o, &attr) ? sw__with_attr(SW_OP_MAX_POOL, x, &attr) : (sw_t){ x.graph, 0 };
}

/* What the last window of y has less than the kernel along spatial axis i, it is not divided by: PyTorch counts the padding
 * that was asked for, not the room that ceil_mode adds. */
static sw_t without_room(sw_t y, const sw__attr *attr, int i, int64_t room)
{
    const int64_t m = sw_dim(y, i + 2), kernel = attr->pool.kernel[i];
    if (room <= 0 || m < 1) return y;
    int64_t shape[SW_MAX_RANK] = { 1, 1, 1, 1, 1 };
    shape[i + 2] = m;
    const sw_t at = sw_iota(y.graph, SW_I64, sw_rank(y), shape, i + 2);
    const sw_t last = sw_eq(at, sw_const(y.graph, SW_I64, (double)(m - 1)));
    const sw_t share = sw_const(y.graph, sw_type(y), (double)kernel / (double)(kernel - room));
    return sw_mul(y, sw_where(last, share, sw_const(y.graph, sw_type(y), 1.0)));
}

sw_t sw_avg_pool_op(sw_t x, const sw_pool_options *o)
{
    sw__attr attr;
    if (!sw__pool_attr(SW_OP_AVG_POOL, x, o, &attr)) return (sw_t){ x.graph, 0 };
    bool padded = false;
    for (int i = 0; i < attr.pool.nd; i++) padded = padded || o->pad_lo[i] != 0 || o->pad_hi[i] != 0;
    attr.pool.include_pad = attr.pool.include_pad && padded; /* with nothing but room behind, what is there is counted */
    sw_t y = sw__with_attr(SW_OP_AVG_POOL, x, &attr);
    for (int i = 0; i < attr.pool.nd && attr.pool.include_pad && sw_valid(y); i++) {
        const int64_t used = (sw_dim(y, i + 2) - 1) * attr.pool.stride[i] + attr.pool.kernel[i];
        y = without_room(y, &attr, i, used - sw_dim(x, i + 2) - attr.pool.pad_lo[i] - o->pad_hi[i]);
    }
    return y;
}

/* ---- norms ---------------------------------------------------------------------------------------------------- */

/* There is one node for each output, however often it is asked for: whoever schedules gives it one place. */
sw_t sw__output_of(sw_t t, int k)
{
    if (k == 0 || !sw_valid(t)) return t;
    for (uint32_t i = t.id + 1; i < t.graph->n_nodes; i++) {
        const sw__node *const n = &t.graph->nodes[i];
        if (n->op == SW_OP_OUTPUT && n->in[0] == t.id && n->attr.axis.axis == k) return sw__value(t.graph, i);
    }
    const sw__attr attr = { .axis = { k, false, 0 } };
    return sw__with_attr(SW_OP_OUTPUT, t, &attr);
}

sw_t sw_batch_norm_op(sw_t x, sw_t weight, sw_t bias, double eps, sw_t *mean, sw_t *var)
{
    const sw_t xs[3] = { x, weight, bias };
    const sw__attr attr = { .norm = { .eps = eps } };
    sw_t invalid, y;
    if (sw__operands(SW_OP_BATCH_NORM, xs, 3, &invalid))
        y = sw__node_add(x.graph, SW_OP_BATCH_NORM, xs, 3, &attr, NULL);
    else
        y = invalid;
    if (mean != NULL) *mean = sw__output_of(y, 1);
    if (var != NULL) *var = sw__output_of(y, 2);
    return y;
}

sw_t sw_layer_norm_op(sw_t x, sw_t weight, sw_t bias, int n_axes, double eps)
{
    if (!sw_valid(x)) return sw__unary(SW_OP_LAYER_NORM, x);
    /* A bias alone: the node has it only after a weight. */
    if (weight.graph == NULL && bias.graph != NULL) weight = sw__const_like(bias, 1);
    const sw_t xs[3] = { x, weight, bias };
    const uint32_t n = bias.graph != NULL ? 3 : weight.graph != NULL ? 2 : 1;
    const sw__attr attr = { .norm = { .eps = eps, .n_axes = n_axes } };
    return sw__node_add(x.graph, SW_OP_LAYER_NORM, xs, n, &attr, NULL);
}

/* ---- losses and embedding ------------------------------------------------------------------------------------- */

sw_t sw_cross_entropy_rows(sw_t logits, sw_t target)
{
    sw_t xs[2] = { logits, target }, invalid;
    if (!sw__operands(SW_OP_CROSS_ENTROPY, xs, 2, &invalid)) return invalid;
    const sw__node from = *sw__node_of(logits), to = *sw__node_of(target);
    const int lead = from.rank - 1; /* axes of rows */
    const bool same = sw__same_shape(&from, &to);
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (lead < 0 || (!same && (to.rank != lead || memcmp(from.dim, to.dim, (size_t)lead * sizeof to.dim[0]) != 0)))
        return sw__op_error(logits.graph, SW_OP_CROSS_ENTROPY, SW_ERR_SHAPE, "logits are %s, the target %s: it must "
                            "be class indices (the logits' shape without the last axis) or probabilities (the "
                            "logits' shape)",
                            sw__value_text(logits.graph, logits.id, a), sw__value_text(logits.graph, target.id, b));
    const int64_t matrix[2] = { sw__dims_product(from.dim, lead), from.dim[lead] };
    xs[0] = sw_reshape(logits, 2, matrix);
    xs[1] = sw_reshape(target, same ? 2 : 1, matrix);
    return sw_reshape(sw__node_add(logits.graph, SW_OP_CROSS_ENTROPY, xs, 2, NULL, NULL), lead, from.dim);
}

sw_t sw_cross_entropy(sw_t logits, sw_t target)
{
    return sw_mean(sw_cross_entropy_rows(logits, target), SW_ALL_AXES, false);
}

/* Shapes must be equal: [N] against [N, 1] would silently compare all pairs. */
sw_t sw_mse(sw_t prediction, sw_t target)
{
    const sw_t xs[2] = { prediction, target };
    sw_graph *const g = prediction.graph != NULL ? prediction.graph : target.graph;
    return sw_mean(sw_square(sw__node_add(g, SW_OP_SUB, xs, 2, NULL, NULL)), SW_ALL_AXES, false);
}

sw_t sw_embedding_op(sw_t weight, sw_t index)
{
    const sw_t xs[2] = { weight, index };
    sw_graph *const g = weight.graph != NULL ? weight.graph : index.graph;
    return sw__node_add(g, SW_OP_EMBEDDING, xs, 2, NULL, NULL);
}
