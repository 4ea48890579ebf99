/* rewrite.c: making one graph from another: what every graph -> graph pass starts from and ends with.
 * Between graph.c, node.c and the passes. */
#include "graph/build.h"

/* ---- shell ---------------------------------------------------------------------------------------------------- */

static sw_status no_copy(void)
{
    return sw__fail(SW_ERR_MEMORY, "out of memory: copying a graph's inputs and variables");
}

static sw_status copy_inputs(sw_graph *out, const sw_graph *g)
{
    SW_TRY(sw__grow(&out->inputs, &out->cap_inputs, g->n_inputs, sizeof *out->inputs, "inputs"));
    for (; out->n_inputs < g->n_inputs; out->n_inputs++) {
        const char *const name = sw__arena_strdup(&out->arena, g->inputs[out->n_inputs].name);
        if (name == NULL) return no_copy();
        out->inputs[out->n_inputs] = (sw__input){ name, 0 };
    }
    return SW_OK;
}

static sw_status copy_vars(sw_graph *out, const sw_graph *g)
{
    SW_TRY(sw__grow(&out->vars, &out->cap_vars, g->n_vars, sizeof *out->vars, "variables"));
    for (; out->n_vars < g->n_vars; out->n_vars++) {
        sw__var *const v = &out->vars[out->n_vars];
        *v = g->vars[out->n_vars];
        v->node = 0;
        v->name = sw__arena_strdup(&out->arena, v->name);
        if (v->name == NULL) return no_copy();
    }
    return SW_OK;
}

static sw_status copy_groups(sw_graph *out, const sw_graph *g)
{
    SW_TRY(sw__grow(&out->groups, &out->cap_groups, g->n_groups, sizeof *out->groups, "groups"));
    for (; out->n_groups < g->n_groups; out->n_groups++) {
        const sw__group *const from = &g->groups[out->n_groups];
        uint32_t *const vars = sw__calloc(from->n, sizeof *vars);
        if (vars == NULL) return no_copy();
        memcpy(vars, from->vars, from->n * sizeof *vars);
        out->groups[out->n_groups] = (sw__group){ vars, from->n, from->dtype, from->elements };
    }
    return SW_OK;
}

sw_status sw__graph_like(const sw_graph *g, sw_graph **out)
{
    SW_TRY(sw_graph_status(g));
    sw_graph *copy;
    SW_TRY(sw_graph_new(&copy));
    copy->training = g->training;
    copy->seed = g->seed;
    sw_status st;
    SW_TRY_GOTO(copy_inputs(copy, g), fail);
    SW_TRY_GOTO(copy_vars(copy, g), fail);
    SW_TRY_GOTO(copy_groups(copy, g), fail);
    *out = copy;
    return SW_OK;
fail:
    sw_graph_free(copy);
    return st;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------- */

/* What the copy of a literal carries must live in the new graph: the old one may go first. */
static bool own_literal(sw_graph *out, sw__attr *attr)
{
    void *const data = sw__arena_alloc(&out->arena, attr->literal.bytes);
    if (data == NULL) return false;
    if (attr->literal.bytes > 0) memcpy(data, attr->literal.data, attr->literal.bytes);
    attr->literal.data = data;
    return true;
}

/* The name as the new graph has it: a slot's own, or a copy. False if memory is out. */
static bool own_name(sw_graph *out, sw__node *n, const char *name)
{
    if (n->op == SW_OP_INPUT)
        n->name = out->inputs[n->attr.slot.index].name;
    else if (n->op == SW_OP_VAR)
        n->name = out->vars[n->attr.slot.index].name;
    else if (name != NULL)
        n->name = sw__arena_strdup(&out->arena, name);
    return name == NULL || n->name != NULL;
}

static void register_slot(sw_graph *out, uint32_t id)
{
    const sw__node *const n = &out->nodes[id];
    if (n->op == SW_OP_INPUT) out->inputs[n->attr.slot.index].node = id;
    if (n->op == SW_OP_VAR) out->vars[n->attr.slot.index].node = id;
}

sw_t sw__node_copy(sw_graph *out, const sw_graph *g, uint32_t id, const sw_t *map)
{
    if (out == NULL || out->status != SW_OK) return (sw_t){ out, 0 };
    const sw__node from = g->nodes[id]; /* by value: out may be g, whose nodes move as it grows */
    sw__attr attr = from.attr;
    sw_t few[8];
    sw_t *const in = from.n_in <= SW_COUNT(few) ? few : sw__calloc(from.n_in, sizeof *in);
    if (in == NULL || (from.op == SW_OP_LITERAL && !own_literal(out, &attr))) {
        if (in != few) sw__free(in);
        return sw__graph_error(out, SW_ERR_MEMORY, "out of memory: copying node %%%u", id);
    }
    for (uint32_t i = 0; i < from.n_in; i++) in[i] = map[from.in[i]];
    const sw_t t = sw__node_add(out, (sw__op)from.op, in, from.n_in, &attr, &from);
    if (in != few) sw__free(in);
    if (!sw_valid(t)) return t;
    if (!own_name(out, sw__node_of(t), from.name))
        return sw__graph_error(out, SW_ERR_MEMORY, "out of memory: the name of node %%%u", id);
    memcpy(sw__node_of(t)->order, from.order, sizeof from.order);
    register_slot(out, t.id);
    return t;
}

/* Inputs and variables that nothing uses any more keep a node: programs still show them and take their values. */
sw_status sw__graph_finish(sw_graph *out, const sw_graph *g, const sw_t *map)
{
    SW_TRY(sw_graph_status(out));
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (out->inputs[i].node == 0) sw__node_copy(out, g, g->inputs[i].node, map);
    for (uint32_t i = 0; i < g->n_vars; i++)
        if (out->vars[i].node == 0) sw__node_copy(out, g, g->vars[i].node, map);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const sw_t t = map[g->outputs[i].node];
        if (!sw_valid(t))
            return sw__fail(SW_ERR_ARGUMENT, "output '%s': %%%u has no counterpart in the rewritten graph",
                            g->outputs[i].name, g->outputs[i].node);
        sw_output(t, g->outputs[i].name);
    }
    return sw_graph_status(out);
}

sw_status sw__graph_live(const sw_graph *g, bool **live)
{
    bool *const l = sw__calloc(g->n_nodes, sizeof *l);
    if (l == NULL) return sw__no_memory(g->n_nodes * sizeof *l, "marking live nodes");
    for (uint32_t i = 0; i < g->n_outputs; i++) l[g->outputs[i].node] = true;
    for (uint32_t i = 0; i < g->n_assigns; i++) l[g->assigns[i]] = true;
    /* Inputs have smaller ids, so one sweep from the end reaches all. */
    for (uint32_t id = g->n_nodes; id-- > 1;)
        for (uint32_t i = 0; l[id] && i < g->nodes[id].n_in; i++) l[g->nodes[id].in[i]] = true;
    *live = l;
    return SW_OK;
}
