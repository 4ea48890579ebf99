/* lower.c: graph -> graph: ops that the device does not take whole become smaller ones, down to what it takes or fuses.
 * After simplify; before epilogue. The lowerings themselves are in graph/lower*.c. */
#include "pass/pass.h"


/* The device can do with the op as it is: it takes it, or the scheduler knows what to make of it. */
static bool stays(const sw__traits *t, const sw__node *n)
{
    return t->takes[n->op] || (sw__op_table[n->op].lower == NULL && !(n->op == SW_OP_DOT && t->takes[SW_OP_MATMUL]));
}

/* Lowers the values that a lowering has added, from `first` on, until nothing is left to lower. Nodes that are replaced
 * stay behind, dead; map sends them to what they have become. */
static sw_status lower_graph(const sw_graph *g, const sw__traits *t, sw_graph **out, bool *changed)
{
    sw_t *map = sw__calloc(g->n_nodes, sizeof *map);
    sw_t (*outs)[SW__MAX_OUT] = sw__calloc(g->n_nodes, sizeof *outs);
    bool *live = NULL;
    sw_graph *o = NULL;
    sw_status st = map && outs ? sw__graph_live(g, &live) : sw__no_memory(g->n_nodes * sizeof *outs, "lowering");
    if (st == SW_OK) st = sw__graph_like(g, &o);
    for (uint32_t i = 1; st == SW_OK && i < g->n_nodes && o->status == SW_OK; i++) {
        const sw__node *n = &g->nodes[i];
        sw_t in[8];
        if (!live[i]) continue;
        if (n->op == SW_OP_OUTPUT && sw_valid(outs[n->in[0]][0])) {
            map[i] = outs[n->in[0]][n->attr.axis.axis];
            continue;
        }
        if (stays(t, n)) {
            map[i] = sw__node_copy(o, g, i, map);
            continue;
        }
        for (uint32_t k = 0; k < n->n_in && k < SW_COUNT(in); k++) in[k] = map[n->in[k]];
        *changed = true;
        if (n->op == SW_OP_DOT) {
            const sw__attr none = {0};
            map[i] = sw__node_add(o, SW_OP_MATMUL, in, 2, &none, NULL);
            continue;
        }
        const uint32_t before = o->n_nodes;
        sw__op_table[n->op].lower(o, n, in, outs[i]);
        map[i] = outs[i][0];
        for (uint32_t k = before; n->name && k < o->n_nodes; k++) /* whatever fails there is the op's failure */
            if (!o->nodes[k].name) sw_named(sw__value(o, k), n->name);
    }
    if (st == SW_OK) st = sw__graph_finish(o, g, map);
    if (st == SW_OK) *out = o;
    else sw_graph_free(o);
    sw__free(live);
    sw__free(map);
    sw__free(outs);
    return st;
}

sw_status sw__pass_lower(const sw_graph *g, const sw__traits *t, sw_graph **out)
{
    sw_graph *now = NULL;
    bool changed = true;
    for (int depth = 0; changed; depth++) {
        sw_graph *next = NULL;
        changed = false;
        const sw_status st = depth < 16 ? lower_graph(now ? now : g, t, &next, &changed)
                                        : sw__fail(SW_ERR_UNSUPPORTED, "lowering does not come to an end");
        sw_graph_free(now);
        if (st != SW_OK) return st;
        now = next;
    }
    *out = now;
    return SW_OK;
}
