/* plain.c: the schedule for a device without kernels (ref): one op a node on dense row-major tensors, nothing fused.
 * Called by schedule.c instead of fuse.c and emit.c. Outputs, assigns, concat and pack are schedule.c's. */
#include "pass/sched.h"

sw_status sw__sched_plain(sw__sched *b)
{
    for (uint32_t i = 1; i < b->g->n_nodes; i++) {
        const sw__node *n = &b->g->nodes[i];
        if (b->role[i] != SW_ROLE_OP) continue;
        sw__tensor *in = sw__calloc((size_t)n->n_in + 1, sizeof *in);
        if (!in) return sw__no_memory(((size_t)n->n_in + 1) * sizeof *in, "an op's inputs");
        sw_status st = SW_OK;
        for (uint32_t k = 0; k < n->n_in && st == SW_OK; k++) st = sw__sched_tensor(b, n->in[k], &in[k]);
        if (st == SW_OK) st = sw__sched_op(b, i, in);
        sw__free(in);
        SW_TRY(st);
    }
    return SW_OK;
}
