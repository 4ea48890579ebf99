/* grad.h: small helpers that the gradient rules and the lowerings share.
 * Private to grad*.c and lower*.c; above the builders. */
#ifndef SW_GRAPH_GRAD_H
#define SW_GRAPH_GRAD_H

#include "graph/build.h"
#include "graph/rules.h"

/* Every rule has the same five arguments; that some need only a few of them is said here once. */
#define RULE(name)                                                                                                     \
    void name(sw_graph *g SW_UNUSED, uint32_t id SW_UNUSED, const sw_t *dy SW_UNUSED, const bool *want SW_UNUSED,      \
              sw_t *dx SW_UNUSED)

/* Node pointers die when a node is added (the array moves): rules keep values (sw_t) and small copies instead. */
static inline sw_t sw__arg(sw_graph *g, uint32_t id, uint32_t i)
{
    return sw__value(g, g->nodes[id].in[i]);
}

/* The scalar `value` of x's type: broadcasts in the builders. */
sw_t sw__scalar_like(sw_t x, double value);
/* x with the shape of `like`; x itself if it has it already. */
sw_t sw__reshape_like(sw_t x, sw_t like);
sw_t sw__expand_like(sw_t x, sw_t like);
/* a*b, or the other factor where one is a constant 1 of the same shape. */
sw_t sw__times(sw_t a, sw_t b);
/* dy where the condition holds, 0 elsewhere; and the other way round. */
sw_t sw__keep_if(sw_t condition, sw_t dy);
sw_t sw__drop_if(sw_t condition, sw_t dy);
/* Is x a constant (under reshape and expand)? Then its value. */
bool sw__constant_of(sw_t x, double *value);

/* Gradients of node `id`'s inputs by lowering it into the same graph and differentiating that. As sw__op_info.grad. */
void sw__grad_by_lowering(sw_graph *g, uint32_t id, const sw_t *dy, const bool *want, sw_t *dx);

/* Appends the gradients of the sum over roots of <root, seed> with respect to wrt[], looking at nodes from `first` on;
 * out[i] is invalid where nothing arrived. */
void sw__grad_since(sw_graph *g, uint32_t first, const sw_t *roots, const sw_t *seeds, uint32_t n_roots,
                    const sw_t *wrt, uint32_t n_wrt, sw_t *out);

/* The bits of all axes of rank-r x but one. */
static inline uint32_t sw__axes_but(int rank, int axis)
{
    return ((1u << rank) - 1u) & ~SW_AXIS(axis);
}

#endif
