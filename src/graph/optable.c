/* optable.c: op.def turned into the table that the rest of swoop asks.
 * Above the rules (infer, grad, lower), below everything that walks a graph. */
#include "graph/rules.h"

#define PW SW_OPF_PW
#define COMM SW_OPF_COMM
#define VIEW SW_OPF_VIEW
#define PURE SW_OPF_PURE

const sw__op_info sw__op_table[SW_OP_COUNT] = {
    [SW_OP_NONE] = { .name = "none" },
#define SW_OP(ENUM, name, lo, hi, cls, attr, infer, grad, lower, flags)                                                \
    [SW_OP_##ENUM] = { name, lo, hi, SW_CLASS_##cls, SW_ATTR_##attr, flags, infer, grad, lower },
#include "graph/op.def"
#undef SW_OP
};

void sw__grad_none(sw_graph *g, uint32_t id, const sw_t *dy, const bool *want, sw_t *dx)
{
    (void)g, (void)id, (void)dy, (void)want, (void)dx; /* dx arrives as invalid values and stays so */
}
