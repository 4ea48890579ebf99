/* build.c: what all builders share: nodes with one or two operands, axes, broadcasting.
 * Between the public builders (ops_*.c) and sw__node_add; see build.h. */
#include "graph/build.h"

sw_t sw__with_attr(sw__op op, sw_t x, const sw__attr *attr)
{
    return sw__node_add(x.graph, op, &x, 1, attr, NULL);
}

sw_t sw__unary(sw__op op, sw_t x)
{
    return sw__with_attr(op, x, NULL);
}

sw_t sw__binary(sw__op op, sw_t a, sw_t b)
{
    sw_t xs[2] = { a, b }, invalid;
    if (!sw__broadcast(op, xs, 2, &invalid)) return invalid;
    return sw__node_add(xs[0].graph, op, xs, 2, NULL, NULL);
}

int sw__axis_of(sw__op op, sw_t x, int axis)
{
    if (!sw_valid(x) || x.graph->status != SW_OK) return -1;
    const int rank = sw_rank(x), at = axis < 0 ? axis + rank : axis;
    if (at >= 0 && at < rank) return at;
    char text[SW__TEXT_BYTES];
    sw__value_text(x.graph, x.id, text);
    if (rank == 0)
        sw__op_error(x.graph, op, SW_ERR_SHAPE, "%s has no axis %d: it is a scalar", text, axis);
    else
        sw__op_error(x.graph, op, SW_ERR_SHAPE, "%s has no axis %d: it must be %d to %d", text, axis, -rank, rank - 1);
    return -1;
}

sw_t sw__const_like(sw_t x, double c)
{
    if (!sw_valid(x)) return (sw_t){ x.graph, 0 };
    const sw__node n = *sw__node_of(x);
    return sw_full(x.graph, (sw_dtype)n.dtype, n.rank, n.dim, c);
}

/* ---- broadcasting --------------------------------------------------------------------------------------------- */

sw_t sw__per_channel(sw_t v, int rank)
{
    int64_t dim[SW_MAX_RANK];
    if (rank < 0) return SW_NONE;
    for (int i = 0; i < rank; i++) dim[i] = i == 1 ? sw_dim(v, 0) : 1;
    return sw_reshape(v, rank, dim);
}

sw_t sw__expand_to(sw_t x, int rank, const int64_t *dim)
{
    if (!sw_valid(x)) return (sw_t){ x.graph, 0 };
    const sw__node from = *sw__node_of(x);
    sw__node to = { .dtype = from.dtype, .rank = (uint8_t)rank };
    for (int i = 0; i < rank; i++) to.dim[i] = dim[i];
    if (sw__same_shape(&from, &to)) return x;
    if (from.op == SW_OP_CONST) return sw__node_add(x.graph, SW_OP_CONST, NULL, 0, &from.attr, &to);
    if (from.rank < rank) {
        int64_t ones[SW_MAX_RANK];
        for (int i = 0; i < rank; i++) ones[i] = i < rank - from.rank ? 1 : from.dim[i - (rank - from.rank)];
        x = sw_reshape(x, rank, ones);
        if (sw_valid(x) && sw__same_shape(sw__node_of(x), &to)) return x;
    }
    return sw__node_add(x.graph, SW_OP_EXPAND, &x, 1, NULL, &to);
}

/* Merges the shape of n into `to`; false if an axis differs and neither side is 1. */
static bool merge(sw__node *to, const sw__node *n)
{
    const int rank = SW_MAX(to->rank, n->rank);
    int64_t dim[SW_MAX_RANK] = { 0 };
    for (int i = 1; i <= rank; i++) {
        const int64_t a = i <= to->rank ? to->dim[to->rank - i] : 1, b = i <= n->rank ? n->dim[n->rank - i] : 1;
        if (a != b && a != 1 && b != 1) return false;
        dim[rank - i] = a == 1 ? b : a;
    }
    to->rank = (uint8_t)rank;
    memcpy(to->dim, dim, sizeof dim);
    return true;
}

bool sw__broadcast(sw__op op, sw_t *xs, uint32_t n, sw_t *invalid)
{
    if (!sw__operands(op, xs, n, invalid)) return false;
    sw_graph *const g = xs[0].graph;
    sw__node common = { .rank = 0 };
    for (uint32_t i = 0; i < n; i++) {
        if (merge(&common, sw__node_of(xs[i]))) continue;
        char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
        if (n == 2)
            sw__op_error(g, op, SW_ERR_SHAPE, "shapes do not broadcast: %s and %s: aligned at the last axis, sizes "
                         "must be equal or 1", sw__value_text(g, xs[0].id, a), sw__value_text(g, xs[1].id, b));
        else
            sw__op_error(g, op, SW_ERR_SHAPE, "shapes do not broadcast: %s does not fit %s of the operands before it: "
                         "aligned at the last axis, sizes must be equal or 1", sw__value_text(g, xs[i].id, a),
                         sw__dims_text(common.rank, common.dim, b, sizeof b));
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        xs[i] = sw__expand_to(xs[i], common.rank, common.dim);
        if (!sw_valid(xs[i])) return false;
    }
    return true;
}
