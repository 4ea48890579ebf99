/* grad_big.c: gradient rules of the big ops, in big ops where there is one for the job.
 * Called by grad.c's walk. An op that has no rule here is lowered and its parts are differentiated. */
#include "graph/grad.h"

/* dy where the fused activation passed the value on (attr.act of matmul, conv): relu by its result. */
static sw_t before_activation(sw_t y, int act, sw_t dy)
{
    if (act != SW_ACT_RELU) return dy;
    return sw__keep_if(sw_lt(sw__scalar_like(y, 0.0), y), dy);
}

/* dz summed to the one axis that a bias has. */
static sw_t bias_gradient(sw_t dz, int axis)
{
    return sw_sum(dz, sw__axes_but(sw_rank(dz), axis), false);
}

/* ---- contractions ------------------------------------------------------------------------------------------------ */

/* Is x another tensor with its last two axes swapped? */
static bool swaps_matrix(sw_t x)
{
    const sw__node *n = sw__node_of(x);
    if (n->op != SW_OP_PERMUTE) return false;
    for (int i = 0; i < n->rank - 2; i++) {
        if (n->attr.perm.axes[i] != i) return false;
    }
    return n->attr.perm.axes[n->rank - 1] == n->rank - 2;
}

static sw_t plain_matmul(sw_t a, sw_t b)
{
    const sw_t in[2] = { a, b };
    return sw__node_add(a.graph, SW_OP_MATMUL, in, 2, NULL, NULL);
}

/* x with its last two axes swapped; the operand where x is such a swap itself. */
static sw_t matrix_transpose(sw_t x)
{
    const int r = sw_rank(x);
    if (r < 2) return (sw_t){ x.graph, 0 };
    return swaps_matrix(x) ? sw__arg(x.graph, x.id, 0) : sw_transpose(x, r - 2, r - 1);
}

/* y = a b: da = dz b^T, db = a^T dz. Where b is a transposed tensor w^T (linear layers), its gradient is formed as
 * (dz^T a)^T, so that w's, dz^T a, comes out as w lies in memory; the same for a. */
RULE(sw__grad_matmul)
{
    const sw_t a = sw__arg(g, id, 0), b = sw__arg(g, id, 1);
    const sw_t dz = before_activation(sw__value(g, id), g->nodes[id].attr.act.act, dy[0]);
    if (want[0] && swaps_matrix(a)) {
        dx[0] = matrix_transpose(plain_matmul(b, matrix_transpose(dz)));
    } else if (want[0]) {
        dx[0] = plain_matmul(dz, matrix_transpose(b));
    }
    if (want[1] && swaps_matrix(b)) {
        dx[1] = matrix_transpose(plain_matmul(matrix_transpose(dz), a));
    } else if (want[1]) {
        dx[1] = plain_matmul(matrix_transpose(a), dz);
    }
    if (g->nodes[id].n_in > 2 && want[2]) dx[2] = bias_gradient(dz, g->nodes[id].rank - 1);
}

/* The three convolutions are bilinear in x [N, C, …], w [O, C/groups, …] and what the output pairs with, dy [N, O, …]:
 * each one's gradients are the two others with its own geometry. */
typedef enum conv_part { CONV_Y, CONV_X, CONV_W } conv_part;

static sw_t conv_part_of(const sw__attr *geometry, conv_part part, sw_t a, sw_t b, sw_t like)
{
    static const sw__op op[] = { [CONV_Y] = SW_OP_CONV, [CONV_X] = SW_OP_CONV_GRAD_X, [CONV_W] = SW_OP_CONV_GRAD_W };
    const sw_t in[2] = { a, b };
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.conv = geometry->conv;
    attr.conv.act = SW_ACT_NONE;
    memset(attr.conv.dim, 0, sizeof attr.conv.dim);
    if (part != CONV_Y) {
        const sw__node *n = sw__node_of(like);
        memcpy(attr.conv.dim, n->dim, n->rank * sizeof n->dim[0]);
    }
    return sw__node_add(a.graph, op[part], in, 2, &attr, NULL);
}

RULE(sw__grad_conv)
{
    const sw__attr attr = g->nodes[id].attr;
    const sw_t x = sw__arg(g, id, 0), w = sw__arg(g, id, 1);
    const sw_t dz = before_activation(sw__value(g, id), attr.conv.act, dy[0]);
    if (want[0]) dx[0] = conv_part_of(&attr, CONV_X, dz, w, x);
    if (want[1]) dx[1] = conv_part_of(&attr, CONV_W, x, dz, w);
    if (g->nodes[id].n_in > 2 && want[2]) dx[2] = bias_gradient(dz, 1);
}

/* inputs dy, weight; result like x */
RULE(sw__grad_conv_gx)
{
    const sw__attr attr = g->nodes[id].attr;
    const sw_t w = sw__arg(g, id, 1);
    if (want[0]) dx[0] = conv_part_of(&attr, CONV_Y, dy[0], w, SW_NONE);
    if (want[1]) dx[1] = conv_part_of(&attr, CONV_W, dy[0], sw__arg(g, id, 0), w);
}

/* inputs x, dy; result like the weight */
RULE(sw__grad_conv_gw)
{
    const sw__attr attr = g->nodes[id].attr;
    const sw_t x = sw__arg(g, id, 0);
    if (want[0]) dx[0] = conv_part_of(&attr, CONV_X, sw__arg(g, id, 1), dy[0], x);
    if (want[1]) dx[1] = conv_part_of(&attr, CONV_Y, x, dy[0], SW_NONE);
}

/* ---- pooling ----------------------------------------------------------------------------------------------------- */

RULE(sw__grad_max_pool)
{
    if (!want[0]) return;
    const sw__attr attr = g->nodes[id].attr;
    const sw_t in[3] = { sw__arg(g, id, 0), sw__value(g, id), dy[0] };
    dx[0] = sw__node_add(g, SW_OP_MAX_POOL_GRAD, in, 3, &attr, NULL);
}

RULE(sw__grad_avg_pool)
{
    if (!want[0]) return;
    sw__attr attr = g->nodes[id].attr;
    const sw__node *x = &g->nodes[g->nodes[id].in[0]];
    memcpy(attr.pool.dim, x->dim, x->rank * sizeof x->dim[0]);
    dx[0] = sw__node_add(g, SW_OP_AVG_POOL_GRAD, &dy[0], 1, &attr, NULL);
}

RULE(sw__grad_avg_pool_gx)
{
    if (!want[0]) return;
    sw__attr attr = g->nodes[id].attr;
    memset(attr.pool.dim, 0, sizeof attr.pool.dim);
    dx[0] = sw__node_add(g, SW_OP_AVG_POOL, &dy[0], 1, &attr, NULL);
}

/* ---- normalisation ----------------------------------------------------------------------------------------------- */

RULE(sw__grad_batch_norm)
{
    if (sw_valid(dy[1]) || sw_valid(dy[2])) { /* somebody differentiates the statistics themselves */
        sw__grad_by_lowering(g, id, dy, want, dx);
        return;
    }
    const sw__attr attr = g->nodes[id].attr;
    const sw_t y = sw__value(g, id);
    const sw_t in[5] = { sw__arg(g, id, 0), dy[0], sw__arg(g, id, 1), sw__output_of(y, 1), sw__output_of(y, 2) };
    const sw_t d = sw__node_add(g, SW_OP_BATCH_NORM_GRAD, in, 5, &attr, NULL);
    for (int i = 0; i < 3; i++) {
        if (want[i]) dx[i] = sw__output_of(d, i);
    }
}

RULE(sw__grad_layer_norm)
{
    if (sw_valid(dy[1]) || sw_valid(dy[2])) {
        sw__grad_by_lowering(g, id, dy, want, dx);
        return;
    }
    const sw__attr attr = g->nodes[id].attr;
    const uint32_t n_in = g->nodes[id].n_in;
    const uint32_t rows = (1u << (g->nodes[id].rank - attr.norm.n_axes)) - 1u; /* the axes that are not normalised */
    const sw_t x = sw__arg(g, id, 0), y = sw__value(g, id), mean = sw__output_of(y, 1), rstd = sw__output_of(y, 2);
    if (want[0]) {
        const sw_t in[5] = { x, dy[0], mean, rstd, n_in > 1 ? sw__arg(g, id, 1) : SW_NONE };
        dx[0] = sw__node_add(g, SW_OP_LAYER_NORM_GRAD, in, n_in > 1 ? 5 : 4, &attr, NULL);
    }
    if (n_in > 1 && want[1]) dx[1] = sw_sum(sw_mul(dy[0], sw_mul(sw_sub(x, mean), rstd)), rows, false);
    if (n_in > 2 && want[2]) dx[2] = sw_sum(dy[0], rows, false);
}

/* ---- softmax and the loss on it ---------------------------------------------------------------------------------- */

/* dx = y (dy - sum(dy y)) */
RULE(sw__grad_softmax)
{
    if (!want[0]) return;
    const sw_t y = sw__value(g, id);
    const sw_t inner = sw_sum(sw_mul(dy[0], y), SW_AXIS(g->nodes[id].attr.axis.axis), true);
    dx[0] = sw_mul(y, sw_sub(dy[0], inner));
}

/* dx = dy - exp(y) sum(dy) */
RULE(sw__grad_log_softmax)
{
    if (!want[0]) return;
    const sw_t total = sw_sum(dy[0], SW_AXIS(g->nodes[id].attr.axis.axis), true);
    dx[0] = sw_sub(dy[0], sw_mul(sw_exp(sw__value(g, id)), total));
}

/* loss = -sum(t log_softmax(x)) for probabilities t: dx = (softmax(x) sum(t) - t) dl, dt = -log_softmax(x) dl. A class
 * index is t = 1 at its place: an equality with iota rather than a scatter, so that all is one kernel over rows. */
RULE(sw__grad_cross_entropy)
{
    const sw_t x = sw__arg(g, id, 0), target = sw__arg(g, id, 1);
    const sw__node n = *sw__node_of(x);
    const int64_t column[2] = { n.dim[0], 1 };
    const sw_t dl = sw_reshape(dy[0], 2, column);
    if (sw_rank(target) == 1) {
        if (!want[0]) return;
        const sw_t classes = sw_iota(g, sw_type(target), 2, n.dim, 1);
        const sw_t hit = sw_cast(sw_eq(classes, sw_reshape(target, 2, column)), (sw_dtype)n.dtype);
        dx[0] = sw_mul(sw_sub(sw_softmax(x, 1), hit), dl);
        return;
    }
    if (want[0]) {
        const sw_t p = sw_mul(sw_softmax(x, 1), sw_sum(target, SW_AXIS(1), true));
        dx[0] = sw_mul(sw_sub(p, target), dl);
    }
    if (want[1]) dx[1] = sw_mul(sw_log_softmax(x, 1), sw_neg(dl));
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

RULE(sw__grad_embedding)
{
    if (!want[0]) return;
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis.size = sw_dim(sw__arg(g, id, 0), 0);
    const sw_t in[2] = { sw__arg(g, id, 1), dy[0] };
    dx[0] = sw__node_add(g, SW_OP_EMBEDDING_GRAD, in, 2, &attr, NULL);
}

/* inputs index, dy; result like the weight */
RULE(sw__grad_embedding_grad)
{
    if (want[1]) dx[1] = sw_embedding_op(dy[0], sw__arg(g, id, 0));
}
