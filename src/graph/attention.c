/* attention.c: scaled dot-product attention whole: builder, shape rules, gradient, lowering (Vaswani et al. 2017;
 * devices that take the op do it without the matrix of scores, Dao et al. 2022). Between swoop/graph.h and
 * sw__node_add.
 *
 * The nodes have time before heads, [B, T, H, D], though the builder takes [B, H, T, D]: so what comes out of a linear
 * layer is cut into heads by strides alone, and the result goes into the next layer as it lies. */
#include "graph/grad.h"
#include "graph/infer.h"

#include <math.h>

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* What does not fit, as a text, or NULL. dim: as the node has them. */
static const char *misfit(const int64_t *q, const int64_t *k, const int64_t *v)
{
    if (q[0] != k[0] || k[0] != v[0]) return "the batch, axis 0, must be the same";
    if (k[1] != v[1]) return "v must have as many steps of time as k";
    if (k[2] != v[2]) return "v must have as many heads as k";
    if (k[2] == 0 ? q[2] != 0 : q[2] % k[2] != 0) return "the heads of q must be a multiple of those of k and v";
    if (q[3] == 0 || v[3] == 0) return "there must be at least one feature";
    if (q[3] != k[3]) return "q and k must have the same last axis";
    return NULL;
}

/* The mask broadcasts: each axis is as long as the scores' or 1. */
static bool mask_fits(const int64_t *mask, const int64_t *scores)
{
    for (int i = 0; i < 4; i++)
        if (mask[i] != 1 && mask[i] != scores[i]) return false;
    return true;
}

static sw_status want_mask(const sw_graph *g, const sw__node *n, uint32_t i)
{
    const sw__node *const q = sw__in(g, n, 0), *const k = sw__in(g, n, 1), *const mask = sw__in(g, n, i);
    const int64_t scores[4] = { q->dim[0], q->dim[2], q->dim[1], k->dim[1] };
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (mask->dtype != SW_BOOL && mask->dtype != q->dtype)
        return sw__fail(SW_ERR_SHAPE, "the mask, %s, must be bool (true: may attend) or have the type of q, "
                        "to be added to the scores", sw__value_text(g, n->in[i], a));
    if (mask->rank == 4 && mask_fits(mask->dim, scores)) return SW_OK;
    return sw__fail(SW_ERR_SHAPE, "the mask, %s, must have 4 axes that broadcast to the scores %s",
                    sw__value_text(g, n->in[i], a), sw__dims_text(4, scores, b, sizeof b));
}

/* q, k, v; scale. */
static sw_status want_operands(const sw_graph *g, const sw__node *n)
{
    const sw__node *const q = sw__in(g, n, 0);
    for (uint32_t i = 0; i < 3; i++) {
        SW_TRY(sw__want_type(g, n, i, SW_WANT_FLOAT));
        SW_TRY(sw__want_rank(g, n, i, 4, 4));
        if (sw__in(g, n, i)->dtype == q->dtype) continue;
        char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
        return sw__fail(SW_ERR_SHAPE, "types differ: %s and %s: sw_cast one of them", sw__value_text(g, n->in[0], a),
                        sw__value_text(g, n->in[i], b));
    }
    if (!isfinite(n->attr.attention.scale))
        return sw__fail(SW_ERR_ARGUMENT, "scale is %g: it must be a finite number", n->attr.attention.scale);
    const char *const why = misfit(q->dim, sw__in(g, n, 1)->dim, sw__in(g, n, 2)->dim);
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES], c[SW__TEXT_BYTES];
    if (why == NULL) return SW_OK;
    return sw__fail(SW_ERR_SHAPE, "q %s, k %s, v %s, each [batch, time, heads, features]: %s",
                    sw__value_text(g, n->in[0], a), sw__value_text(g, n->in[1], b), sw__value_text(g, n->in[2], c),
                        why);
}

sw_status sw__infer_attention(const sw_graph *g, sw__node *n)
{
    SW_TRY(want_operands(g, n));
    if (n->n_in > 3) SW_TRY(want_mask(g, n, 3));
    sw__take(n, sw__in(g, n, 0));
    n->dim[3] = sw__in(g, n, 2)->dim[3];
    return SW_OK;
}

/* Log-sum-exps are not rounded to 16 bits: e to their power is what probabilities are made of. */
static sw_dtype wide_type(sw_dtype t)
{
    return t == SW_F16 || t == SW_BF16 ? SW_F32 : t;
}

void sw__attention_output(const sw_graph *g, const sw__node *from, sw__node *n)
{
    (void)g;
    n->dtype = (uint8_t)wide_type((sw_dtype)from->dtype);
    n->rank = 3;
    n->dim[0] = from->dim[0];
    n->dim[1] = from->dim[2];
    n->dim[2] = from->dim[1];
}

/* Outputs 1 and 2: like k and v. */
void sw__attention_grad_output(const sw_graph *g, const sw__node *from, sw__node *n)
{
    sw__take(n, sw__in(g, from, (uint32_t)n->attr.axis.axis));
}

/* q, k, v, y, log-sum-exp, dy, mask */
sw_status sw__infer_attention_grad(const sw_graph *g, sw__node *n)
{
    SW_TRY(want_operands(g, n));
    const sw__node *const q = sw__in(g, n, 0);
    const int64_t y[4] = { q->dim[0], q->dim[1], q->dim[2], sw__in(g, n, 2)->dim[3] };
    const int64_t lse[3] = { q->dim[0], q->dim[2], q->dim[1] };
    SW_TRY(sw__want_dims(g, n, 3, 4, y, "that is what attention gives"));
    SW_TRY(sw__want_dims(g, n, 4, 3, lse, "one value for each row of scores"));
    SW_TRY(sw__want_dims(g, n, 5, 4, y, "that is what attention gives"));
    for (uint32_t i = 3; i < 6; i++) {
        const sw_dtype want = i == 4 ? wide_type((sw_dtype)q->dtype) : (sw_dtype)q->dtype;
        char a[SW__TEXT_BYTES];
        if (sw__in(g, n, i)->dtype != want)
            return sw__fail(SW_ERR_SHAPE, "operand %u, %s, must be %s", i + 1, sw__value_text(g, n->in[i], a),
                            sw_dtype_name(want));
    }
    if (n->n_in > 6) SW_TRY(want_mask(g, n, 6));
    sw__take(n, q);
    return SW_OK;
}

/* ---- builder ----------------------------------------------------------------------------------------------------- */

/* [B, H, T, D] <-> [B, T, H, D] */
static sw_t swap_heads(sw_t x)
{
    return sw_permute(x, (const int[]){ 0, 2, 1, 3 });
}

/* The mask with 4 axes, the first of them 1 where it has fewer. */
static sw_t mask_of(sw_t mask)
{
    int64_t dim[4] = { 1, 1, 1, 1 };
    const int rank = sw_rank(mask);
    for (int i = 0; i < rank; i++) dim[4 - rank + i] = sw_dim(mask, i);
    return rank == 4 ? mask : sw_reshape(mask, 4, dim);
}

/* As the user wrote them: [batch, heads, time, features]. */
static bool check(sw_t q, sw_t k, sw_t v, sw_t mask)
{
    const sw_t all[3] = { q, k, v };
    int64_t dim[3][4];
    bool four = true;
    for (int i = 0; i < 3; i++) {
        four = four && sw_rank(all[i]) == 4;
        for (int a = 0; a < 4 && four; a++) dim[i][a] = sw_dim(all[i], a == 1 ? 2 : a == 2 ? 1 : a);
    }
    const char *why = four ? misfit(dim[0], dim[1], dim[2]) : "each must have 4 axes";
    const bool masked = mask.graph != NULL;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES], c[SW__TEXT_BYTES];
    if (why == NULL && masked && sw_rank(mask) > 4) why = "the mask must have at most 4 axes";
    if (why == NULL) return true;
    sw__op_error(q.graph, SW_OP_ATTENTION, SW_ERR_SHAPE, "q %s, k %s, v %s, each [batch, heads, time, features]: %s",
                 sw__value_text(q.graph, q.id, a), sw__value_text(q.graph, k.id, b), sw__value_text(q.graph, v.id, c),
                 why);
    return false;
}

sw_t sw_attention_with(sw_t q, sw_t k, sw_attention_options o)
{
    sw_t xs[4] = { q, k, o.v, o.mask }, invalid;
    const uint32_t n = o.mask.graph != NULL ? 4 : 3;
    if (!sw__operands(SW_OP_ATTENTION, xs, n, &invalid)) return invalid;
    if (!check(q, k, o.v, o.mask)) return (sw_t){ q.graph, 0 };
    const double features = (double)SW_MAX(sw_dim(q, 3), (int64_t)1);
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.attention.scale = o.scale != 0 ? o.scale : 1 / sqrt(features);
    attr.attention.causal = o.causal;
    for (int i = 0; i < 3; i++) xs[i] = swap_heads(xs[i]);
    if (n == 4) xs[3] = mask_of(o.mask);
    return swap_heads(sw__node_add(q.graph, SW_OP_ATTENTION, xs, n, &attr, NULL));
}

/* ---- gradient ---------------------------------------------------------------------------------------------------- */

/* A mask that is learnt, and whoever differentiates the log-sum-exp, go by the lowering: both need the scores. */
RULE(sw__grad_attention)
{
    const uint32_t n_in = g->nodes[id].n_in;
    if (sw_valid(dy[1]) || (n_in > 3 && want[3])) {
        sw__grad_by_lowering(g, id, dy, want, dx);
        return;
    }
    const sw__attr attr = g->nodes[id].attr;
    const sw_t y = sw__value(g, id), lse = sw__output_of(y, 1);
    const sw_t in[7] = { sw__arg(g, id, 0), sw__arg(g, id, 1), sw__arg(g, id, 2), y, lse, dy[0],
                         n_in > 3 ? sw__arg(g, id, 3) : SW_NONE };
    const sw_t d = sw__node_add(g, SW_OP_ATTENTION_GRAD, in, n_in > 3 ? 7 : 6, &attr, NULL);
    for (int i = 0; i < 3; i++)
        if (want[i]) dx[i] = sw__output_of(d, i);
}

/* ---- lowering ---------------------------------------------------------------------------------------------------- */

/* 16-bit floats are computed with as f32. */
static sw_t wide(sw_t x)
{
    if (!sw_valid(x)) return x;
    const sw_dtype t = sw_type(x), to = wide_type(t);
    return t == to ? x : sw_cast(x, to);
}

/* x [B, T, H, D] as [B, G, H/G T, D]: the heads that share keys become rows of one matrix. */
static sw_t fold_heads(sw_t x, int64_t groups)
{
    x = swap_heads(x);
    if (!sw_valid(x) || sw_dim(x, 1) == groups) return x;
    return sw_reshape(x, 4, (int64_t[]){ sw_dim(x, 0), groups, sw_dim(x, 1) / groups * sw_dim(x, 2), sw_dim(x, 3) });
}

/* And back: [B, G, H/G T, D] as [B, T, H, D]. */
static sw_t unfold_heads(sw_t x, int64_t heads, int64_t time)
{
    if (!sw_valid(x)) return x;
    if (sw_dim(x, 1) != heads) x = sw_reshape(x, 4, (int64_t[]){ sw_dim(x, 0), heads, time, sw_dim(x, 3) });
    return swap_heads(x);
}

typedef struct parts {
    sw_t q, k, v;   /* [B, G, rows or keys, features], wide */
    sw_t scores;    /* [B, H, Tq, Tk], scaled and masked */
    int64_t batch, heads, groups, rows, keys; /* rows: of one head */
} parts;

/* Scores: scale q k^T, plus the mask or minus infinity where it forbids. in: q, k, v of a node. */
static parts scores_of(sw_graph *g, const sw__node *n, const sw_t *in, sw_t mask)
{
    parts p = { .batch = sw_dim(in[0], 0), .rows = sw_dim(in[0], 1), .heads = sw_dim(in[0], 2),
                .keys = sw_dim(in[1], 1),
                .groups = sw_dim(in[1], 2) };
    p.q = fold_heads(wide(in[0]), p.groups);
    p.k = swap_heads(wide(in[1]));
    p.v = swap_heads(wide(in[2]));
    const int64_t dim[4] = { p.batch, p.heads, p.rows, p.keys };
    sw_t s = sw_reshape(sw_matmul(p.q, sw_transpose(p.k, 2, 3)), 4, dim);
    s = sw_mul_scalar(s, n->attr.attention.scale);
    const sw_t never = sw_valid(s) ? sw_const(g, sw_type(s), -(double)INFINITY) : s;
    if (mask.graph != NULL) s = sw_type(mask) == SW_BOOL ? sw_where(mask, s, never) : sw_add(s, wide(mask));
    if (n->attr.attention.causal) {
        const sw_t row = sw_iota(g, SW_I32, 2, dim + 2, 0), key = sw_iota(g, SW_I32, 2, dim + 2, 1);
        s = sw_where(sw_le(key, row), s, never);
    }
    p.scores = s;
    return p;
}

/* x, and `other` where it is minus infinity. */
static sw_t unless_minus_infinity(sw_t x, double other)
{
    return sw_where(sw_eq(x, sw__scalar_like(x, -(double)INFINITY)), sw__scalar_like(x, other), x);
}

/* A matrix [B, H, Tq, Tk] as [B, G, H/G Tq, Tk]. */
static sw_t by_groups(const parts *p, sw_t x)
{
    if (p->heads == p->groups) return x;
    return sw_reshape(x, 4, (int64_t[]){ p->batch, p->groups, p->heads / p->groups * p->rows, p->keys });
}

static sw_t narrowed(sw_t x, const sw__node *n)
{
    return sw_valid(x) && sw_type(x) != (sw_dtype)n->dtype ? sw_cast(x, (sw_dtype)n->dtype) : x;
}

/* Nothing attends to anything. */
static bool any_empty(sw_t q, sw_t k, sw_t v)
{
    return sw_elements(q) == 0 || sw_elements(k) == 0 || sw_elements(v) == 0;
}

/* Softmax with the maximum taken out; a row whose every score is minus infinity gives 0 and not NaN. */
static void lower_rows(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    const parts p = scores_of(g, n, in, n->n_in > 3 ? in[3] : SW_NONE);
    const sw_t top = unless_minus_infinity(sw_stop_gradient(sw_reduce_max(p.scores, SW_AXIS(3), true)), 0);
    const sw_t e = sw_exp(sw_sub(p.scores, top)), sum = sw_sum(e, SW_AXIS(3), true);
    const sw_t nothing = sw_eq(sum, sw__scalar_like(sum, 0.0));
    const sw_t by = sw_where(nothing, sw__scalar_like(sum, 1.0), sum);
    const sw_t y = sw_matmul(by_groups(&p, sw_div(e, by)), p.v);
    out[0] = narrowed(unfold_heads(y, p.heads, p.rows), n);
    const sw_t lse = sw_where(nothing, sw__scalar_like(sum, -(double)INFINITY), sw_add(top, sw_log(by)));
    out[1] = sw_reshape(lse, 3, (int64_t[]){ p.batch, p.heads, p.rows });
}

void sw__lower_attention(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    if (!any_empty(in[0], in[1], in[2])) {
        lower_rows(g, n, in, out);
        return;
    }
    out[0] = sw_full(g, (sw_dtype)n->dtype, n->rank, n->dim, 0);
    const int64_t dim[3] = { n->dim[0], n->dim[2], n->dim[1] };
    out[1] = sw_full(g, wide_type((sw_dtype)n->dtype), 3, dim, -(double)INFINITY);
}

/* With p = e^(scores - lse) and s = dy v^T: dv = p^T dy, ds = p (s - sum(dy y)), dq = scale ds k, dk = scale ds^T q. */
void sw__lower_attention_grad(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    if (any_empty(in[0], in[1], in[2])) {
        for (int i = 0; i < 3; i++) out[i] = sw__const_like(in[i], 0);
        return;
    }
    const parts a = scores_of(g, n, in, n->n_in > 6 ? in[6] : SW_NONE);
    const int64_t column[4] = { a.batch, a.heads, a.rows, 1 }, matrix[4] = { a.batch, a.heads, a.rows, a.keys };
    const sw_t dy = wide(in[5]), d = fold_heads(dy, a.groups);
    const sw_t p = sw_exp(sw_sub(a.scores, sw_reshape(unless_minus_infinity(in[4], 0), 4, column)));
    const sw_t inner = swap_heads(sw_sum(sw_mul(dy, wide(in[3])), SW_AXIS(3), true));
    const sw_t s = sw_reshape(sw_matmul(d, sw_transpose(a.v, 2, 3)), 4, matrix);
    const sw_t ds = by_groups(&a, sw_mul_scalar(sw_mul(p, sw_sub(s, inner)), n->attr.attention.scale));
    out[0] = narrowed(unfold_heads(sw_matmul(ds, a.k), a.heads, a.rows), n);
    out[1] = narrowed(swap_heads(sw_matmul(sw_transpose(ds, 2, 3), a.q)), n);
    out[2] = narrowed(swap_heads(sw_matmul(sw_transpose(by_groups(&a, p), 2, 3), d)), n);
}
