/* infer.h: small checks that all shape rules share. A rule fails through sw__fail; sw__node_add puts the op in front.
 * Between rules.h and infer*.c. */
#ifndef SW_GRAPH_INFER_H
#define SW_GRAPH_INFER_H

#include "graph/build.h"
#include "graph/rules.h"

static inline const sw__node *sw__in(const sw_graph *g, const sw__node *n, uint32_t i)
{
    return &g->nodes[n->in[i]];
}

/* Takes type and shape of `from`. */
static inline void sw__take(sw__node *n, const sw__node *from)
{
    n->dtype = from->dtype;
    n->rank = from->rank;
    memcpy(n->dim, from->dim, sizeof n->dim);
}

/* What kind of type an operand may have. */
typedef enum sw__want {
    SW_WANT_FLOAT, SW_WANT_INT, SW_WANT_INDEX, SW_WANT_NUMBER, SW_WANT_BITS, SW_WANT_BOOL
} sw__want;
sw_status sw__want_type(const sw_graph *g, const sw__node *n, uint32_t i, sw__want want);
sw_status sw__want_same_type(const sw_graph *g, const sw__node *n);      /* all inputs alike */
sw_status sw__want_same_shape(const sw_graph *g, const sw__node *n, uint32_t i, uint32_t j);
sw_status sw__want_rank(const sw_graph *g, const sw__node *n, uint32_t i, int lo, int hi);
sw_status sw__want_axis(const sw_graph *g, const sw__node *n, uint32_t i); /* attr.axis.axis is an axis of input i */
sw_status sw__want_dims(const sw_graph *g, const sw__node *n, uint32_t i, int rank, const int64_t *dim,
                         const char *why);

#endif
