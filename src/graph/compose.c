/* compose.c: checks and messages of the builders that have no op of their own; see compose.h. */
#include "graph/compose.h"

sw_t sw__compose_error(sw_graph *g, const char *what, sw_status s, const char *fmt, ...)
{
    if (g == NULL || g->status != SW_OK) return (sw_t){ g, 0 };
    va_list ap;
    va_start(ap, fmt);
    sw__failv(s, fmt, ap);
    va_end(ap);
    const int scope = g->scope.len > 0 ? (int)SW_MIN(g->scope.len - 1, 128) : 0; /* without its last point */
    if (scope > 0)
        sw__prefix(s, "%s in '%.*s'", what, scope, g->scope.s);
    else
        sw__prefix(s, "%s", what);
    return sw__graph_error(g, s, "%s", sw_error());
}

bool sw__compose_operands(const char *what, const sw_t *xs, uint32_t n, sw_t *invalid)
{
    sw_graph *g = NULL;
    for (uint32_t i = 0; i < n && g == NULL; i++) g = xs[i].graph;
    *invalid = (sw_t){ g, 0 };
    if (g == NULL || g->status != SW_OK) return false;
    for (uint32_t i = 0; i < n; i++) {
        const bool foreign = xs[i].graph != NULL && xs[i].graph != g;
        if (!foreign && sw_valid(xs[i])) continue;
        sw__compose_error(g, what, SW_ERR_ARGUMENT, "operand %u %s", i + 1,
                          foreign ? "belongs to another graph: values of two graphs do not mix"
                                  : "is no value (SW_NONE, or never set)");
        return false;
    }
    return true;
}

int sw__compose_axis(const char *what, sw_t x, int axis)
{
    const int rank = sw_rank(x), at = axis < 0 ? axis + rank : axis;
    if (at >= 0 && at < rank) return at;
    char text[SW__TEXT_BYTES];
    sw__value_text(x.graph, x.id, text);
    if (rank == 0)
        sw__compose_error(x.graph, what, SW_ERR_SHAPE, "%s has no axis %d: it is a scalar", text, axis);
    else
        sw__compose_error(x.graph, what, SW_ERR_SHAPE, "%s has no axis %d: it must be %d to %d", text, axis, -rank,
                          rank - 1);
    return -1;
}

bool sw__compose_axes(const char *what, sw_t x, uint32_t *axes)
{
    const uint32_t all = (1u << sw_rank(x)) - 1;
    if (*axes == SW_ALL_AXES) *axes = all;
    if ((*axes & ~all) == 0) return true;
    char text[SW__TEXT_BYTES];
    sw__compose_error(x.graph, what, SW_ERR_SHAPE, "axes 0x%x name an axis that %s does not have: bits 0 to %d", *axes,
                      sw__value_text(x.graph, x.id, text), sw_rank(x) - 1);
    return false;
}

bool sw__compose_float(const char *what, sw_t x)
{
    if (sw__dtype_is_float(sw_type(x))) return true;
    char text[SW__TEXT_BYTES];
    sw__compose_error(x.graph, what, SW_ERR_SHAPE, "%s must have a floating-point type (sw_cast(x, SW_F32))",
                      sw__value_text(x.graph, x.id, text));
    return false;
}

int sw__dims_of(sw_t x, int64_t dim[SW_MAX_RANK])
{
    const int rank = sw_valid(x) ? sw_rank(x) : 0;
    for (int i = 0; i < SW_MAX_RANK; i++) dim[i] = i < rank ? sw_dim(x, i) : 0;
    return rank;
}

sw_t sw__around_axis(sw_t x, int axis)
{
    int64_t dim[SW_MAX_RANK];
    const int rank = sw__dims_of(x, dim);
    const int64_t outer = sw__dims_product(dim, axis), inner = sw__dims_product(dim + axis + 1, rank - axis - 1);
    return sw_reshape(x, 3, (int64_t[]){ outer, dim[axis], inner });
}

sw_t sw__from_axis(sw_t y, sw_t x, int axis, int64_t size)
{
    int64_t dim[SW_MAX_RANK];
    const int rank = sw__dims_of(x, dim);
    dim[axis] = size;
    return sw_reshape(y, rank, dim);
}

sw_t sw__safe_sqrt(sw_t x)
{
    const sw_t zero = sw__const_like(x, 0), none = sw_eq(x, zero);
    return sw_where(none, zero, sw_sqrt(sw_where(none, sw__const_like(x, 1), x)));
}
