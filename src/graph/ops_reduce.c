/* ops_reduce.c: public builders of reductions, ordering, indexing, the plain dot, and assignment.
 * Between swoop/graph.h and sw__node_add. */
#include "graph/build.h"

/* ---- reduce --------------------------------------------------------------------------------------------------- */

/* x without the axes of `axes`, which have size 1. */
static sw_t squeeze(sw_t x, uint32_t axes)
{
    if (!sw_valid(x)) return x;
    int64_t dim[SW_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < sw_rank(x); i++)
        if ((axes >> i & 1u) == 0) dim[rank++] = sw_dim(x, i);
    return sw_reshape(x, rank, dim);
}

/* The bits of axes that x has; SW_ALL_AXES means all there are, other bits beyond them are left for the shape rule. */
static uint32_t axes_of(sw_t x, uint32_t axes)
{
    return axes == SW_ALL_AXES && sw_valid(x) ? (1u << sw_rank(x)) - 1 : axes;
}

static sw_t reduce(sw__op op, sw_t x, uint32_t axes, bool keep)
{
    const sw__attr attr = { .axes = { axes_of(x, axes) } };
    const sw_t y = sw__with_attr(op, x, &attr);
    return keep ? y : squeeze(y, attr.axes.axes);
}

sw_t sw_sum(sw_t x, uint32_t axes, bool keep)
{
    return reduce(SW_OP_REDUCE_SUM, x, axes, keep);
}

sw_t sw_reduce_max(sw_t x, uint32_t axes, bool keep)
{
    return reduce(SW_OP_REDUCE_MAX, x, axes, keep);
}

sw_t sw_reduce_min(sw_t x, uint32_t axes, bool keep)
{
    return reduce(SW_OP_REDUCE_MIN, x, axes, keep);
}

sw_t sw_prod(sw_t x, uint32_t axes, bool keep)
{
    return reduce(SW_OP_REDUCE_PROD, x, axes, keep);
}

/* Sum over count; the mean of nothing is 0/0, NaN. */
sw_t sw_mean(sw_t x, uint32_t axes, bool keep)
{
    char text[SW__TEXT_BYTES];
    if (sw_valid(x) && !sw__dtype_is_float(sw_type(x)))
        return sw__op_error(x.graph, SW_OP_REDUCE_SUM, SW_ERR_SHAPE, "the mean needs a floating-point type, not %s: "
                            "sw_cast it first", sw__value_text(x.graph, x.id, text));
    const sw_t sum = sw_sum(x, axes, keep);
    if (!sw_valid(sum)) return sum;
    int64_t count = 1;
    for (int i = 0; i < sw_rank(x); i++)
        if ((axes_of(x, axes) >> i & 1u) != 0) count *= sw_dim(x, i);
    return sw_div(sum, sw__const_like(sum, (double)count));
}

/* ---- order ---------------------------------------------------------------------------------------------------- */

static sw_t along(sw__op op, sw_t x, int axis, bool flag)
{
    const int at = sw__axis_of(op, x, axis);
    if (at < 0) return sw_valid(x) ? (sw_t){ x.graph, 0 } : sw__unary(op, x);
    const sw__attr attr = { .axis = { at, flag, 0 } };
    return sw__with_attr(op, x, &attr);
}

static sw_t arg_reduce(sw__op op, sw_t x, int axis, bool keep)
{
    const sw_t y = along(op, x, axis, false);
    return keep || !sw_valid(y) ? y : squeeze(y, SW_AXIS(sw__node_of(y)->attr.axis.axis));
}

sw_t sw_argmax(sw_t x, int axis, bool keep)
{
    return arg_reduce(SW_OP_ARGMAX, x, axis, keep);
}

sw_t sw_argmin(sw_t x, int axis, bool keep)
{
    return arg_reduce(SW_OP_ARGMIN, x, axis, keep);
}

sw_t sw_cumsum(sw_t x, int axis, bool reverse)
{
    return along(SW_OP_SCAN_SUM, x, axis, reverse);
}

sw_t sw_sort(sw_t x, int axis, bool descending)
{
    return along(SW_OP_SORT, x, axis, descending);
}

sw_t sw_argsort(sw_t x, int axis, bool descending)
{
    return along(SW_OP_ARGSORT, x, axis, descending);
}

sw_t sw_softmax(sw_t x, int axis)
{
    return along(SW_OP_SOFTMAX, x, axis, false);
}

sw_t sw_log_softmax(sw_t x, int axis)
{
    return along(SW_OP_LOG_SOFTMAX, x, axis, false);
}

/* ---- index and contract --------------------------------------------------------------------------------------- */

static sw_t indexed(sw__op op, const sw_t *xs, uint32_t n, int axis)
{
    sw_t invalid;
    if (!sw__operands(op, xs, n, &invalid)) return invalid;
    const int at = sw__axis_of(op, xs[0], axis);
    if (at < 0) return (sw_t){ xs[0].graph, 0 };
    const sw__attr attr = { .axis = { at, false, 0 } };
    return sw__node_add(xs[0].graph, op, xs, n, &attr, NULL);
}

sw_t sw_gather(sw_t x, sw_t index, int axis)
{
    return indexed(SW_OP_GATHER, (sw_t[]){ x, index }, 2, axis);
}

sw_t sw_scatter_add(sw_t base, sw_t index, sw_t src, int axis)
{
    return indexed(SW_OP_SCATTER_ADD, (sw_t[]){ base, index, src }, 3, axis);
}

sw_t sw_scatter_set(sw_t base, sw_t index, sw_t src, int axis)
{
    return indexed(SW_OP_SCATTER_SET, (sw_t[]){ base, index, src }, 3, axis);
}

sw_t sw_scatter_max(sw_t base, sw_t index, sw_t src, int axis)
{
    return indexed(SW_OP_SCATTER_MAX, (sw_t[]){ base, index, src }, 3, axis);
}

sw_t sw_dot(sw_t a, sw_t b)
{
    const sw_t xs[2] = { a, b };
    return sw__node_add(a.graph != NULL ? a.graph : b.graph, SW_OP_DOT, xs, 2, NULL, NULL);
}

/* ---- control -------------------------------------------------------------------------------------------------- */

sw_t sw_assign(sw_t variable, sw_t value)
{
    const sw_t xs[2] = { variable, value };
    return sw__node_add(variable.graph != NULL ? variable.graph : value.graph, SW_OP_ASSIGN, xs, 2, NULL, NULL);
}
