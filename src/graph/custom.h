/* custom.h: a user's op as the library keeps it (swoop/kernel.h has the user's side). Registered in custom.c;
 * carried by nodes in attr.custom; run by the backends through what backend/source.h makes of it. */
#ifndef SW_GRAPH_CUSTOM_H
#define SW_GRAPH_CUSTOM_H

#include "graph/graph.h"
#include "swoop/kernel.h"

typedef struct sw__custom_kernel {
    sw_kernel_source source; /* its texts are copies; the name is never NULL */
    sw_op_grid_rule *grid;
    uint32_t local;
} sw__custom_kernel;

/* Lives until the process ends, so that graphs and programs may point to it. */
typedef struct sw__custom {
    char *name;
    int n_in, n_out, n_saved;
    sw_dtype in_type[SW_OP_MAX_IN], out_type[SW_OP_MAX_OUT];
    sw_op_shape_rule *shape;
    sw__custom_kernel forward, backward;
    bool differentiable;
    int n_dx;                    /* inputs with a gradient, in order: the outputs of CUSTOM_GRAD */
    uint8_t dx[SW_OP_MAX_IN];
    bool has_check;
    sw_shape check[SW_OP_MAX_IN];
} sw__custom;

/* Registers without checking the gradient; and takes an op back that nothing refers to. */
sw_status sw__custom_add(const sw_op_def *def, sw_op_id *out);
void sw__custom_remove(sw_op_id id);
const sw__custom *sw__custom_of(sw_op_id id); /* NULL if there is none */
/* How many outputs a CUSTOM or CUSTOM_GRAD node has; and the shape of output k of `from`. */
int sw__custom_outputs(const sw__node *n);
sw_status sw__custom_output(const sw_graph *g, const sw__node *from, int k, sw__node *n);

static inline const sw__custom_kernel *sw__custom_kernel_of(const sw__custom *c, uint16_t op)
{
    return op == SW_OP_CUSTOM_GRAD ? &c->backward : &c->forward;
}

#endif
