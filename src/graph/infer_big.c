/* infer_big.c: shape rules of the big ops, and of the further outputs that some of them have.
 * Called by sw__node_add, which puts the op, its id and the scope in front of a message. */
#include "graph/custom.h"
#include "graph/infer.h"
#include "graph/recurrent.h"

/* ---- matmul --------------------------------------------------------------------------------------------------- */

static sw_status want_act(int32_t act)
{
    if (act == SW_ACT_NONE || act == SW_ACT_RELU) return SW_OK;
    return sw__fail(SW_ERR_ARGUMENT, "%d is no activation", (int)act);
}

sw_status sw__infer_matmul(const sw_graph *g, sw__node *n)
{
    SW_TRY(want_act(n->attr.act.act));
    SW_TRY(sw__infer_dot(g, n));
    if (n->n_in == 3) return sw__want_dims(g, n, 2, 1, &n->dim[n->rank - 1], "one bias for each column of the result");
    return SW_OK;
}

/* ---- windows: convolution and pooling ------------------------------------------------------------------------- */

/* One spatial axis under a sliding window: how many positions there are. `what` names the window. */
static sw_status slide(const char *what, int axis, int64_t size, int64_t kernel, int64_t stride, int64_t lo, int64_t hi,
                       int64_t dilation, int64_t *out)
{
    if (kernel < 1 || stride < 1 || dilation < 1 || lo < 0 || hi < 0)
        return sw__fail(SW_ERR_ARGUMENT, "spatial axis %d: kernel %lld, stride %lld, dilation %lld must be at least "
                        "1 and padding %lld, %lld not negative", axis, (long long)kernel, (long long)stride,
                        (long long)dilation, (long long)lo, (long long)hi);
    int64_t padded, reach;
    if (__builtin_add_overflow(size, lo, &padded) || __builtin_add_overflow(padded, hi, &padded) ||
        __builtin_mul_overflow(kernel - 1, dilation, &reach) || reach == INT64_MAX)
        return sw__fail(SW_ERR_ARGUMENT, "spatial axis %d: padding or dilation is too large", axis);
    reach++;
    if (reach > padded)
        return sw__fail(SW_ERR_SHAPE, "spatial axis %d: the %s spans %lld but there are only %lld elements (%lld with "
                        "padding): use a smaller one or more padding", axis, what, (long long)reach, (long long)size,
                        (long long)padded);
    *out = (padded - reach) / stride + 1;
    return SW_OK;
}

/* Shape of the result of a convolution of x by w (both dims in full, and as text), checked; nd is in the attribute. */
static sw_status conv_shape(const sw__attr *attr, const int64_t *x, const int64_t *w, const char *xs, const char *ws,
                            int64_t *out)
{
    const int64_t groups = attr->conv.groups;
    const int nd = attr->conv.nd;
    if (groups < 1) return sw__fail(SW_ERR_ARGUMENT, "groups is %lld: it must be at least 1", (long long)groups);
    if (x[1] % groups != 0 || w[0] % groups != 0)
        return sw__fail(SW_ERR_SHAPE, "%lld channels in (x %s) and %lld out (weight %s) must be multiples of "
                        "groups = %lld", (long long)x[1], xs, (long long)w[0], ws, (long long)groups);
    if (w[1] != x[1] / groups)
        return sw__fail(SW_ERR_SHAPE, "x %s has %lld channels in %lld groups, so the weight %s must have %lld in "
                        "axis 1, not %lld", xs, (long long)x[1], (long long)groups, ws, (long long)(x[1] / groups),
                        (long long)w[1]);
    out[0] = x[0];
    out[1] = w[0];
    for (int i = 0; i < nd; i++) {
        const sw_status st = slide("kernel", i, x[i + 2], w[i + 2], attr->conv.stride[i], attr->conv.pad_lo[i],
                                   attr->conv.pad_hi[i], attr->conv.dilation[i], &out[i + 2]);
        if (st != SW_OK) return sw__prefix(st, "x %s, weight %s", xs, ws);
    }
    return SW_OK;
}

static sw_status conv_nd(const sw__attr *attr)
{
    if (attr->conv.nd < 1 || attr->conv.nd > 3)
        return sw__fail(SW_ERR_ARGUMENT, "%d spatial axes: there can be 1 to 3", (int)attr->conv.nd);
    return want_act(attr->conv.act);
}

/* The first two operands are float tensors of one type with nd spatial axes. */
static sw_status conv_operands(const sw_graph *g, const sw__node *n)
{
    SW_TRY(conv_nd(&n->attr));
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    SW_TRY(sw__want_same_type(g, n));
    const int rank = n->attr.conv.nd + 2;
    SW_TRY(sw__want_rank(g, n, 0, rank, rank));
    return sw__want_rank(g, n, 1, rank, rank);
}

sw_status sw__infer_conv(const sw_graph *g, sw__node *n)
{
    SW_TRY(conv_operands(g, n));
    const sw__node *const x = sw__in(g, n, 0), *const w = sw__in(g, n, 1);
    sw__take(n, x);
    char xs[SW__TEXT_BYTES], ws[SW__TEXT_BYTES];
    sw__value_text(g, n->in[0], xs);
    sw__value_text(g, n->in[1], ws);
    SW_TRY(conv_shape(&n->attr, x->dim, w->dim, xs, ws, n->dim));
    return n->n_in == 3 ? sw__want_dims(g, n, 2, 1, &w->dim[0], "one bias for each output channel") : SW_OK;
}

/* dy, weight -> dx, whose shape the attribute has. */
sw_status sw__infer_conv_gx(const sw_graph *g, sw__node *n)
{
    SW_TRY(conv_operands(g, n));
    int64_t dy[SW_MAX_RANK];
    char xs[SW__TEXT_BYTES], ws[SW__TEXT_BYTES];
    sw__dims_text(n->attr.conv.nd + 2, n->attr.conv.dim, xs, sizeof xs);
    sw__value_text(g, n->in[1], ws);
    SW_TRY(conv_shape(&n->attr, n->attr.conv.dim, sw__in(g, n, 1)->dim, xs, ws, dy));
    SW_TRY(sw__want_dims(g, n, 0, n->attr.conv.nd + 2, dy, "that is what the convolution gives"));
    sw__take(n, sw__in(g, n, 0));
    memcpy(n->dim, n->attr.conv.dim, sizeof n->attr.conv.dim);
    return SW_OK;
}

/* x, dy -> dweight, whose shape the attribute has. */
sw_status sw__infer_conv_gw(const sw_graph *g, sw__node *n)
{
    SW_TRY(conv_operands(g, n));
    int64_t dy[SW_MAX_RANK];
    char xs[SW__TEXT_BYTES], ws[SW__TEXT_BYTES];
    sw__value_text(g, n->in[0], xs);
    sw__dims_text(n->attr.conv.nd + 2, n->attr.conv.dim, ws, sizeof ws);
    SW_TRY(conv_shape(&n->attr, sw__in(g, n, 0)->dim, n->attr.conv.dim, xs, ws, dy));
    SW_TRY(sw__want_dims(g, n, 1, n->attr.conv.nd + 2, dy, "that is what the convolution gives"));
    sw__take(n, sw__in(g, n, 0));
    memcpy(n->dim, n->attr.conv.dim, sizeof n->attr.conv.dim);
    return SW_OK;
}

static sw_status pool_shape(const sw__attr *attr, const int64_t *x, const char *text, int64_t *out)
{
    const int nd = attr->pool.nd;
    out[0] = x[0];
    out[1] = x[1];
    for (int i = 0; i < nd; i++) {
        const int64_t kernel = attr->pool.kernel[i], lo = attr->pool.pad_lo[i], hi = attr->pool.pad_hi[i];
        const sw_status st = slide("window", i, x[i + 2], kernel, attr->pool.stride[i], lo, hi, 1, &out[i + 2]);
        if (st != SW_OK) return sw__prefix(st, "x %s", text);
        if (lo >= kernel || hi >= kernel || x[i + 2] == 0)
            return sw__fail(SW_ERR_SHAPE, "x %s, spatial axis %d: with a window of %lld, padding %lld, %lld there "
                            "would be windows of nothing but padding: pad less than the window", text, i, (long long)kernel,
                            (long long)lo,
                            (long long)hi);
    }
    return SW_OK;
}

static sw_status pool_nd(const sw__attr *attr)
{
    if (attr->pool.nd >= 1 && attr->pool.nd <= 3) return SW_OK;
    return sw__fail(SW_ERR_ARGUMENT, "%d spatial axes: there can be 1 to 3", (int)attr->pool.nd);
}

sw_status sw__infer_pool(const sw_graph *g, sw__node *n)
{
    SW_TRY(pool_nd(&n->attr));
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    SW_TRY(sw__want_rank(g, n, 0, n->attr.pool.nd + 2, n->attr.pool.nd + 2));
    sw__take(n, sw__in(g, n, 0));
    char text[SW__TEXT_BYTES];
    return pool_shape(&n->attr, sw__in(g, n, 0)->dim, sw__value_text(g, n->in[0], text), n->dim);
}

/* dy -> dx, whose shape the attribute has. */
sw_status sw__infer_avg_gx(const sw_graph *g, sw__node *n)
{
    SW_TRY(pool_nd(&n->attr));
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    int64_t dy[SW_MAX_RANK];
    char text[SW__TEXT_BYTES];
    sw__dims_text(n->attr.pool.nd + 2, n->attr.pool.dim, text, sizeof text);
    SW_TRY(pool_shape(&n->attr, n->attr.pool.dim, text, dy));
    SW_TRY(sw__want_dims(g, n, 0, n->attr.pool.nd + 2, dy, "that is what the pooling gives"));
    sw__take(n, sw__in(g, n, 0));
    memcpy(n->dim, n->attr.pool.dim, sizeof n->attr.pool.dim);
    return SW_OK;
}

/* Operands of layer_norm_grad after x and dy: mean, rstd [rows, 1…], optional weight. */
static sw_status layer_norm_grad_operands(const sw_graph *g, const sw__node *n)
{
    const sw__node *const x = sw__in(g, n, 0);
    const int axes = n->attr.norm.n_axes;
    if (axes < 1 || axes > x->rank) return sw__fail(SW_ERR_SHAPE, "%d axes to normalise over", axes);
    int64_t rows[SW_MAX_RANK];
    for (int i = 0; i < x->rank; i++) rows[i] = i < x->rank - axes ? x->dim[i] : 1;
    SW_TRY(sw__want_same_shape(g, n, 0, 1));
    SW_TRY(sw__want_dims(g, n, 2, x->rank, rows, "one mean for each row"));
    SW_TRY(sw__want_dims(g, n, 3, x->rank, rows, "one 1/deviation for each row"));
    return n->n_in < 5 ? SW_OK : sw__want_dims(g, n, 4, axes, &x->dim[x->rank - axes], "the axes normalised over");
}

/* max_pool_grad (x, y, dy) and layer_norm_grad (x, dy, …): the result is like operand 0. */
sw_status sw__infer_like0(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    SW_TRY(sw__want_same_type(g, n));
    if (n->op == SW_OP_MAX_POOL_GRAD) {
        SW_TRY(pool_nd(&n->attr));
        SW_TRY(sw__want_rank(g, n, 0, n->attr.pool.nd + 2, n->attr.pool.nd + 2));
        int64_t y[SW_MAX_RANK];
        char text[SW__TEXT_BYTES];
        SW_TRY(pool_shape(&n->attr, sw__in(g, n, 0)->dim, sw__value_text(g, n->in[0], text), y));
        SW_TRY(sw__want_dims(g, n, 1, n->attr.pool.nd + 2, y, "that is what the pooling gives"));
        SW_TRY(sw__want_same_shape(g, n, 1, 2));
    } else {
        SW_TRY(layer_norm_grad_operands(g, n));
    }
    sw__take(n, sw__in(g, n, 0));
    return SW_OK;
}

/* ---- norms ---------------------------------------------------------------------------------------------------- */

/* Operands from `first` on are [C], C being axis 1 of operand 0. */
static sw_status per_channel(const sw_graph *g, const sw__node *n, uint32_t first)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    SW_TRY(sw__want_same_type(g, n));
    SW_TRY(sw__want_rank(g, n, 0, 2, SW_MAX_RANK));
    for (uint32_t i = first; i < n->n_in; i++)
        SW_TRY(sw__want_dims(g, n, i, 1, &sw__in(g, n, 0)->dim[1], "one value for each channel (axis 1)"));
    return SW_OK;
}

sw_status sw__infer_batch_norm(const sw_graph *g, sw__node *n)
{
    SW_TRY(per_channel(g, n, 1));
    sw__take(n, sw__in(g, n, 0));
    return SW_OK;
}

sw_status sw__infer_batch_norm_grad(const sw_graph *g, sw__node *n)
{
    SW_TRY(per_channel(g, n, 2));
    SW_TRY(sw__want_same_shape(g, n, 0, 1));
    sw__take(n, sw__in(g, n, 0));
    return SW_OK;
}

sw_status sw__infer_layer_norm(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    SW_TRY(sw__want_same_type(g, n));
    const sw__node *const x = sw__in(g, n, 0);
    const int axes = n->attr.norm.n_axes;
    if (axes < 1 || axes > x->rank) {
        char text[SW__TEXT_BYTES];
        return sw__fail(SW_ERR_SHAPE, "%d axes to normalise over: %s has %d", axes, sw__value_text(g, n->in[0], text),
                        x->rank);
    }
    for (uint32_t i = 1; i < n->n_in; i++)
        SW_TRY(sw__want_dims(g, n, i, axes, &x->dim[x->rank - axes], "the axes that are normalised over"));
    sw__take(n, x);
    return SW_OK;
}

/* ---- losses and embedding ------------------------------------------------------------------------------------- */

/* logits [R, C], target [R] of class indices or [R, C] of probabilities -> [R]. */
sw_status sw__infer_cross_entropy(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    SW_TRY(sw__want_rank(g, n, 0, 2, 2));
    const sw__node *const logits = sw__in(g, n, 0), *const target = sw__in(g, n, 1);
    if (target->rank == 2) {
        SW_TRY(sw__want_same_type(g, n));
        SW_TRY(sw__want_same_shape(g, n, 0, 1));
    } else {
        SW_TRY(sw__want_type(g, n, 1, SW_WANT_INDEX));
        SW_TRY(sw__want_dims(g, n, 1, 1, logits->dim, "one class for each row of logits (or probabilities, of the "
                             "logits' shape)"));
    }
    sw__take(n, logits);
    n->rank = 1;
    return SW_OK;
}

/* weight [V, D], index […] -> […, D]. */
sw_status sw__infer_embedding(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_rank(g, n, 0, 2, 2));
    SW_TRY(sw__want_type(g, n, 1, SW_WANT_INDEX));
    SW_TRY(sw__want_rank(g, n, 1, 0, SW_MAX_RANK - 1));
    sw__take(n, sw__in(g, n, 1));
    n->dtype = sw__in(g, n, 0)->dtype;
    n->dim[n->rank++] = sw__in(g, n, 0)->dim[1];
    return SW_OK;
}

/* index […], dy […, D] -> [rows, D]. */
sw_status sw__infer_embedding_grad(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_INDEX));
    SW_TRY(sw__want_type(g, n, 1, SW_WANT_NUMBER));
    const sw__node *const index = sw__in(g, n, 0), *const dy = sw__in(g, n, 1);
    SW_TRY(sw__want_rank(g, n, 1, index->rank + 1, index->rank + 1));
    int64_t want[SW_MAX_RANK];
    memcpy(want, dy->dim, sizeof want);
    for (int i = 0; i < index->rank; i++) want[i] = index->dim[i];
    SW_TRY(sw__want_dims(g, n, 1, dy->rank, want, "that of the index with one axis more"));
    n->dtype = dy->dtype;
    n->rank = 2;
    n->dim[0] = n->attr.axis.size;
    n->dim[1] = dy->dim[dy->rank - 1];
    return SW_OK;
}

/* ---- further outputs ------------------------------------------------------------------------------------------ */

/* batch_norm: mean, var; batch_norm_grad: dweight, dbias: all [C]. */
static void output_per_channel(const sw_graph *g, const sw__node *from, sw__node *n)
{
    (void)g;
    n->rank = 1;
    n->dim[0] = from->dim[1];
}

/* layer_norm: mean and 1/sqrt(var + eps): x's shape with the normalised axes as size 1. */
static void output_per_row(const sw_graph *g, const sw__node *from, sw__node *n)
{
    (void)g;
    sw__take(n, from);
    for (int i = from->rank - from->attr.norm.n_axes; i < from->rank; i++) n->dim[i] = 1;
}

/* ctc_loss: its derivative by operand 0. */
static void output_like_first(const sw_graph *g, const sw__node *from, sw__node *n)
{
    sw__take(n, sw__in(g, from, 0));
}

/* Ops with several outputs: how many, and the shape of those beyond the first (their type is the first's where the function
 * sets no other). */
static const struct {
    uint8_t op, outputs;
    void (*shape)(const sw_graph *g, const sw__node *from, sw__node *n);
} several[] = {
    { SW_OP_BATCH_NORM, 3, output_per_channel },
    { SW_OP_BATCH_NORM_GRAD, 3, output_per_channel },
    { SW_OP_LAYER_NORM, 3, output_per_row },
    { SW_OP_LSTM, 4, sw__recurrent_output },
    { SW_OP_GRU, 3, sw__recurrent_output },
    { SW_OP_RNN, 2, sw__recurrent_output },
    { SW_OP_LSTM_GRAD, 4, sw__recurrent_output },
    { SW_OP_GRU_GRAD, 3, sw__recurrent_output },
    { SW_OP_RNN_GRAD, 2, sw__recurrent_output },
    { SW_OP_CTC_LOSS, 2, output_like_first },
    { SW_OP_ATTENTION, 2, sw__attention_output },
    { SW_OP_ATTENTION_GRAD, 3, sw__attention_grad_output },
};

int sw__node_outputs(const sw__node *n)
{
    if (sw__op_table[n->op].cls == SW_CLASS_OWN) return sw__custom_outputs(n);
    for (size_t i = 0; i < SW_COUNT(several); i++)
        if (several[i].op == n->op) return several[i].outputs;
    return 1;
}

sw_status sw__infer_output(const sw_graph *g, sw__node *n)
{
    const sw__node *const from = sw__in(g, n, 0);
    const int k = n->attr.axis.axis;
    n->dtype = from->dtype;
    if (sw__op_table[from->op].cls == SW_CLASS_OWN && k >= 1 && k < sw__custom_outputs(from))
        return sw__custom_output(g, from, k, n);
    for (size_t i = 0; i < SW_COUNT(several); i++) {
        if (several[i].op != from->op || k < 1 || k >= several[i].outputs) continue;
        several[i].shape(g, from, n);
        return SW_OK;
    }
    char text[SW__TEXT_BYTES];
    return sw__fail(SW_ERR_ARGUMENT, "%s has no output %d beside itself", sw__value_text(g, n->in[0], text), k);
}
