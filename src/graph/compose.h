/* compose.h: what the builders that have no op of their own share: checks and messages under the builder's name.
 * Between build.h and ops_arrange.c, ops_index.c, ops_stat.c, ops_signal.c, einsum.c. */
#ifndef SW_GRAPH_COMPOSE_H
#define SW_GRAPH_COMPOSE_H

#include "graph/build.h"

/* Records "einsum in 'layer1': …" as the graph's error. Returns invalid. */
sw_t sw__compose_error(sw_graph *g, const char *what, sw_status s, const char *fmt, ...) SW_PRINTF(4, 5);
/* True if all n operands are values of one graph without an error; as sw__operands. */
bool sw__compose_operands(const char *what, const sw_t *xs, uint32_t n, sw_t *invalid);
static inline bool sw__compose_operand(const char *what, sw_t x, sw_t *invalid)
{
    return sw__compose_operands(what, &x, 1, invalid);
}
/* Axis of a usable x counted from the end if negative; -1, and the error recorded, if there is none such. */
int sw__compose_axis(const char *what, sw_t x, int axis);
/* The bits of axes that x has (SW_ALL_AXES: all); false, and the error recorded, if one is named that it has not. */
bool sw__compose_axes(const char *what, sw_t x, uint32_t *axes);
/* True if x has a floating-point type; the error otherwise. */
bool sw__compose_float(const char *what, sw_t x);

/* The dims of a usable x; returns its rank. */
int sw__dims_of(sw_t x, int64_t dim[SW_MAX_RANK]);
/* x as [outer, size of the axis, inner]; and back, with the axis' size changed to `size`. */
sw_t sw__around_axis(sw_t x, int axis);
sw_t sw__from_axis(sw_t y, sw_t x, int axis, int64_t size);
/* sqrt(x) for x >= 0, with gradient 0 where x is 0: what norms and deviations want there. */
sw_t sw__safe_sqrt(sw_t x);

#endif
