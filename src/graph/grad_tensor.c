/* grad_tensor.c: gradient rules of the primitives that move, reduce, order, index and contract.
 * Called by grad.c's walk. */
#include "graph/grad.h"

/* ---- movement ---------------------------------------------------------------------------------------------------- */

RULE(sw__grad_reshape)
{
    if (want[0]) dx[0] = sw__reshape_like(dy[0], sw__arg(g, id, 0));
}

RULE(sw__grad_permute)
{
    if (!want[0]) return;
    const sw__node *n = &g->nodes[id], *d = sw__node_of(dy[0]);
    int back[SW_MAX_RANK];
    for (int i = 0; i < n->rank; i++) back[n->attr.perm.axes[i]] = i;
    /* a gradient that was made for this axis order (see matmul's) is taken as it was before */
    const bool same = d->op == SW_OP_PERMUTE && memcmp(d->attr.perm.axes, n->attr.perm.axes, n->rank) == 0;
    dx[0] = same ? sw__arg(g, dy[0].id, 0) : sw_permute(dy[0], back);
}

RULE(sw__grad_expand)
{
    if (!want[0]) return;
    const sw__node *n = &g->nodes[id], *x = &g->nodes[n->in[0]];
    const int more = n->rank - x->rank; /* axes put in front */
    uint32_t axes = 0;
    for (int i = 0; i < n->rank; i++) {
        if (i < more || x->dim[i - more] != n->dim[i]) axes |= SW_AXIS(i);
    }
    dx[0] = sw__reshape_like(sw_sum(dy[0], axes, true), sw__arg(g, id, 0));
}

RULE(sw__grad_pad)
{
    if (!want[0]) return;
    const sw__node *n = &g->nodes[id], *x = &g->nodes[n->in[0]];
    int64_t start[SW_MAX_RANK], stop[SW_MAX_RANK], step[SW_MAX_RANK];
    for (int i = 0; i < n->rank; i++) {
        start[i] = n->attr.pad.lo[i];
        step[i] = n->attr.pad.interior[i] + 1;
        stop[i] = start[i] + (x->dim[i] > 0 ? (x->dim[i] - 1) * step[i] + 1 : 0);
    }
    dx[0] = sw_slice(dy[0], start, stop, step);
}

RULE(sw__grad_slice)
{
    if (!want[0]) return;
    const sw__node *n = &g->nodes[id], *x = &g->nodes[n->in[0]];
    if (sw__node_elements(n) == 0) return; /* nothing arrives */
    int64_t lo[SW_MAX_RANK], hi[SW_MAX_RANK], interior[SW_MAX_RANK];
    for (int i = 0; i < n->rank; i++) {
        const int64_t step = n->attr.slice.step[i];
        lo[i] = n->attr.slice.start[i];
        interior[i] = step - 1;
        hi[i] = x->dim[i] - (lo[i] + (n->dim[i] - 1) * step + 1);
    }
    dx[0] = sw_pad(dy[0], lo, hi, interior, 0.0);
}

RULE(sw__grad_concat)
{
    const int axis = g->nodes[id].attr.axis.axis;
    const uint32_t n_in = g->nodes[id].n_in;
    int64_t start = 0;
    for (uint32_t i = 0; i < n_in; i++) {
        const int64_t length = sw_dim(sw__arg(g, id, i), axis);
        if (want[i]) dx[i] = sw_narrow(dy[0], axis, start, length);
        start += length;
    }
}

RULE(sw__grad_copy)
{
    if (want[0]) dx[0] = dy[0];
}

/* The sum over all processes is symmetric: each process's operand gets the sum of their gradients. */
RULE(sw__grad_all_reduce)
{
    if (want[0]) dx[0] = sw__node_add(g, SW_OP_ALL_REDUCE, &dy[0], 1, NULL, NULL);
}

/* ---- reduce and order -------------------------------------------------------------------------------------------- */

RULE(sw__grad_reduce_sum)
{
    if (want[0]) dx[0] = sw__expand_like(dy[0], sw__arg(g, id, 0));
}

/* max and min: equal elements share equally. If the result is NaN nobody equals it, the count is 0, and 0 * (dy/0)
 * makes the gradient NaN too. */
RULE(sw__grad_reduce_max)
{
    if (!want[0]) return;
    const sw_t x = sw__arg(g, id, 0);
    const uint32_t axes = g->nodes[id].attr.axes.axes;
    const sw_t hit = sw_cast(sw_eq(x, sw__expand_like(sw__value(g, id), x)), sw_type(x));
    const sw_t share = sw_div(dy[0], sw_sum(hit, axes, true));
    dx[0] = sw_mul(hit, sw__expand_like(share, x));
}

/* The product of all elements but each one, over the last axis of p [rows, n]: neighbours are multiplied in pairs until
 * one product is left, and on the way back each gets its parent's product times its neighbour. No division: exact where
 * elements are 0, and so is every further derivative. */
static sw_t product_of_others(sw_t p)
{
    enum { MAX_LEVELS = 64 };
    sw_t level[MAX_LEVELS];
    int64_t size[MAX_LEVELS];
    const int64_t rows = sw_dim(p, 0);
    int n = 0;
    for (; sw_valid(p) && sw_dim(p, 1) > 1; n++) {
        size[n] = sw_dim(p, 1);
        const int64_t none[2] = { 0, 0 }, one[2] = { 0, size[n] % 2 };
        if (one[1]) p = sw_pad(p, none, one, NULL, 1.0);
        const int64_t half = (size[n] + 1) / 2;
        level[n] = sw_reshape(p, 3, (int64_t[]){ rows, half, 2 });
        p = sw_mul(sw_narrow(level[n], 2, 0, 1), sw_narrow(level[n], 2, 1, 1));
        p = sw_reshape(p, 2, (int64_t[]){ rows, half });
    }
    sw_t others = sw__const_like(p, 1.0); /* of the only one: the empty product */
    while (n-- > 0) {
        const sw_t pair[2] = { sw_narrow(level[n], 2, 1, 1), sw_narrow(level[n], 2, 0, 1) };
        const int64_t half = (size[n] + 1) / 2;
        const sw_t parent = sw__expand_like(sw_reshape(others, 3, (int64_t[]){ rows, half, 1 }), level[n]);
        others = sw_reshape(sw__times(parent, sw_concat(pair, 2, 2)), 2, (int64_t[]){ rows, half * 2 });
        if (half * 2 != size[n]) others = sw_narrow(others, 1, 0, size[n]);
    }
    return others;
}

RULE(sw__grad_reduce_prod)
{
    if (!want[0]) return;
    const sw_t x = sw__arg(g, id, 0);
    const sw__node n = *sw__node_of(x);
    if (sw__node_elements(&n) == 0) return;
    const uint32_t axes = g->nodes[id].attr.axes.axes;
    int forth[SW_MAX_RANK], back[SW_MAX_RANK], k = 0;
    int64_t moved[SW_MAX_RANK], count = 1;
    for (int reduced = 0; reduced < 2; reduced++) { /* the kept axes, then the reduced ones */
        for (int i = 0; i < n.rank; i++) {
            if (((axes >> i) & 1u) != (unsigned)reduced) continue;
            moved[k] = n.dim[i];
            back[i] = k;
            forth[k++] = i;
            if (reduced) count *= n.dim[i];
        }
    }
    const int64_t rows = sw__node_elements(&n) / count;
    sw_t others = product_of_others(sw_reshape(sw_permute(x, forth), 2, (int64_t[]){ rows, count }));
    others = sw_permute(sw_reshape(others, n.rank, moved), back);
    dx[0] = sw__times(sw__expand_like(dy[0], x), others);
}

RULE(sw__grad_scan_sum)
{
    if (want[0]) dx[0] = sw_cumsum(dy[0], g->nodes[id].attr.axis.axis, !g->nodes[id].attr.axis.flag);
}

/* Back to where they came from; equal elements went in order, as they do in argsort. */
RULE(sw__grad_sort)
{
    if (!want[0]) return;
    const int axis = g->nodes[id].attr.axis.axis;
    const sw_t from = sw_argsort(sw__arg(g, id, 0), axis, g->nodes[id].attr.axis.flag);
    dx[0] = sw_scatter_add(sw__const_like(dy[0], 0.0), from, dy[0], axis);
}

/* ---- index ------------------------------------------------------------------------------------------------------- */

RULE(sw__grad_gather)
{
    if (!want[0]) return;
    const sw_t x = sw__arg(g, id, 0);
    dx[0] = sw_scatter_add(sw__const_like(x, 0.0), sw__arg(g, id, 1), dy[0], g->nodes[id].attr.axis.axis);
}

RULE(sw__grad_scatter_add)
{
    if (want[0]) dx[0] = dy[0];
    if (want[2]) dx[2] = sw_gather(dy[0], sw__arg(g, id, 1), g->nodes[id].attr.axis.axis);
}

/* Of several entries that are written to one place the last one stays, and alone gets the gradient: each place notes
 * who wrote it last. */
RULE(sw__grad_scatter_set)
{
    const int axis = g->nodes[id].attr.axis.axis;
    const sw_t index = sw__arg(g, id, 1), src = sw__arg(g, id, 2);
    if (want[0]) dx[0] = sw_scatter_set(dy[0], index, sw__const_like(src, 0.0), axis);
    if (!want[2]) return;
    const sw__node y = g->nodes[id], s = *sw__node_of(src);
    const sw_t nobody = sw_full(g, SW_I64, y.rank, y.dim, -1.0);
    const sw_t who = sw_iota(g, SW_I64, s.rank, s.dim, axis);
    const sw_t last = sw_gather(sw_scatter_set(nobody, index, who, axis), index, axis);
    dx[2] = sw__keep_if(sw_eq(last, who), sw_gather(dy[0], index, axis));
}

/* Base and entries that equal the maximum share the gradient equally, as in reduce_max. */
RULE(sw__grad_scatter_max)
{
    const int axis = g->nodes[id].attr.axis.axis;
    const sw_t base = sw__arg(g, id, 0), index = sw__arg(g, id, 1), src = sw__arg(g, id, 2), y = sw__value(g, id);
    const sw_t base_hit = sw_cast(sw_eq(base, y), sw_type(y));
    const sw_t src_hit = sw_cast(sw_eq(src, sw_gather(y, index, axis)), sw_type(y));
    const sw_t share = sw_div(dy[0], sw_scatter_add(base_hit, index, src_hit, axis));
    /* nobody equals a NaN: its share is dy/0, which only the entries of that place may see */
    if (want[0]) dx[0] = sw_mul(base_hit, share);
    if (want[2]) dx[2] = sw_mul(src_hit, sw_gather(share, index, axis));
}

/* ---- contract ---------------------------------------------------------------------------------------------------- */

/* y = a b: da = dy b^T, db = a^T dy */
RULE(sw__grad_dot)
{
    const int r = g->nodes[id].rank;
    if (want[0]) dx[0] = sw_dot(dy[0], sw_transpose(sw__arg(g, id, 1), r - 2, r - 1));
    if (want[1]) dx[1] = sw_dot(sw_transpose(sw__arg(g, id, 0), r - 2, r - 1), dy[0]);
}
