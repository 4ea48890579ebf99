/* graph.c: life of a graph, its sticky error, scopes, inputs, variables, outputs and packed groups.
 * First stop of every build; nodes themselves enter through node.c. */
#include "graph/build.h"

#include <stdio.h>

sw_status sw_graph_new(sw_graph **out)
{
    if (out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_graph_new: out is NULL: pass the address of a sw_graph *");
    sw_graph *const g = sw__calloc(1, sizeof *g);
    if (g == NULL) return sw__no_memory(sizeof *g, "a graph");
    const sw_status st = sw__grow(&g->nodes, &g->cap_nodes, 1, sizeof *g->nodes, "nodes of a graph");
    if (st != SW_OK) {
        sw__free(g);
        return st;
    }
    g->nodes[0] = (sw__node){ 0 };
    g->n_nodes = 1;
    g->training = true;
    *out = g;
    return SW_OK;
}

void sw_graph_free(sw_graph *g)
{
    if (g == NULL) return;
    for (uint32_t i = 0; i < g->n_groups; i++) sw__free(g->groups[i].vars);
    sw__free(g->nodes);
    sw__free(g->inputs);
    sw__free(g->vars);
    sw__names_free(&g->var_names);
    sw__names_free(&g->counted);
    sw__free(g->groups);
    sw__free(g->outputs);
    sw__free(g->assigns);
    sw__free(g->scope_marks);
    sw__text_free(&g->scope);
    sw__arena_free(&g->arena);
    sw__free(g);
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

sw_status sw_graph_status(const sw_graph *g)
{
    if (g == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_graph_status: the graph is NULL");
    return g->status == SW_OK ? SW_OK : sw__fail(g->status, "%s", g->message);
}

sw_t sw__graph_error(sw_graph *g, sw_status s, const char *fmt, ...)
{
    if (g == NULL || g->status != SW_OK) return (sw_t){ g, 0 };
    va_list ap;
    va_start(ap, fmt);
    g->status = sw__failv(s, fmt, ap);
    va_end(ap);
    snprintf(g->message, sizeof g->message, "%s", sw_error());
    return (sw_t){ g, 0 };
}

sw_t sw__op_error(sw_graph *g, sw__op op, sw_status s, const char *fmt, ...)
{
    if (g == NULL || g->status != SW_OK) return (sw_t){ g, 0 };
    va_list ap;
    va_start(ap, fmt);
    sw__failv(s, fmt, ap);
    va_end(ap);
    char label[SW__TEXT_BYTES];
    sw__prefix(s, "%s", sw__op_label(g, op, 0, label, sizeof label));
    return sw__graph_error(g, s, "%s", sw_error());
}

/* ---- settings and scopes -------------------------------------------------------------------------------------- */

void sw_graph_set_training(sw_graph *g, bool training)
{
    if (g != NULL) g->training = training;
}

bool sw_graph_is_training(const sw_graph *g)
{
    return g != NULL && g->training;
}

void sw_graph_set_seed(sw_graph *g, uint64_t seed)
{
    if (g != NULL) g->seed = seed;
}

/* Appends "NAME." to the scope; an empty name leaves it as it is. */
static void append_scope(sw_graph *g, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    char *const name = n < 0 ? NULL : sw__malloc((size_t)n + 2);
    if (name == NULL) {
        sw__graph_error(g, SW_ERR_MEMORY, "out of memory: the name of a scope");
    } else if (n > 0) {
        vsnprintf(name, (size_t)n + 1, fmt, again);
        name[n] = '.';
        sw__text_put(&g->scope, name, (size_t)n + 1);
        if (g->scope.failed) sw__graph_error(g, SW_ERR_MEMORY, "out of memory: the name of a scope");
    }
    sw__free(name);
    va_end(again);
}

void sw_scope_push(sw_graph *g, const char *fmt, ...)
{
    if (g == NULL) return;
    if (fmt == NULL) sw__graph_error(g, SW_ERR_ARGUMENT, "sw_scope_push: the name is NULL");
    /* Once a push fails, all until its pop are only counted, so that pops stay matched. */
    if (fmt == NULL || g->lost_scopes > 0 ||
        sw__grow(&g->scope_marks, &g->cap_scopes, g->n_scopes + 1, sizeof *g->scope_marks, "scopes") != SW_OK) {
        if (g->status == SW_OK) sw__graph_error(g, SW_ERR_MEMORY, "out of memory: scopes");
        g->lost_scopes++;
        return;
    }
    g->scope_marks[g->n_scopes++] = g->scope.len;
    va_list ap;
    va_start(ap, fmt);
    append_scope(g, fmt, ap);
    va_end(ap);
}

void sw_scope_pop(sw_graph *g)
{
    if (g == NULL) return;
    if (g->lost_scopes > 0) {
        g->lost_scopes--;
    } else if (g->n_scopes == 0) {
        sw__graph_error(g, SW_ERR_ARGUMENT, "sw_scope_pop without a sw_scope_push: every pop needs its push");
    } else {
        g->scope.len = g->scope_marks[--g->n_scopes];
        if (g->scope.s != NULL) g->scope.s[g->scope.len] = '\0';
    }
}

/* The name with the present scope in front, in the arena; NULL (and an error) if memory is out. */
static const char *scoped(sw_graph *g, const char *name)
{
    const char *const scope = g->scope.len > 0 ? g->scope.s : "";
    const char *const full = sw__arena_printf(&g->arena, "%s%s", scope, name);
    if (full == NULL) sw__graph_error(g, SW_ERR_MEMORY, "out of memory: the name '%s%s'", scope, name);
    return full;
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

static bool keeps_name(const sw__node *n)
{
    return n->op == SW_OP_INPUT || n->op == SW_OP_VAR;
}

sw_t sw_named(sw_t t, const char *name)
{
    if (!sw_valid(t) || t.graph->status != SW_OK) return t;
    if (name == NULL) return sw__graph_error(t.graph, SW_ERR_ARGUMENT, "sw_named: the name of %%%u is NULL", t.id);
    if (keeps_name(sw__node_of(t))) return t;
    const char *const full = scoped(t.graph, name);
    if (full == NULL) return (sw_t){ t.graph, 0 };
    sw__node_of(t)->name = full;
    return t;
}

const char *sw_name(sw_t t)
{
    return sw_valid(t) && sw__node_of(t)->name != NULL ? sw__node_of(t)->name : "";
}

/* ---- inputs and variables ------------------------------------------------------------------------------------- */

/* Fills a node that only says a type and a shape; false and the error recorded if they are not legal. */
static bool given_shape(sw_graph *g, const char *what, const char *name, sw_dtype type, int rank, const int64_t *shape,
                        sw__node *n)
{
    if (name == NULL || name[0] == '\0') {
        sw__graph_error(g, SW_ERR_ARGUMENT, "%s: it has no name: give one, it is found by it later", what);
        return false;
    }
    if (sw_dtype_size(type) == 0) {
        sw__graph_error(g, SW_ERR_ARGUMENT, "%s '%s': %d is no data type", what, name, (int)type);
        return false;
    }
    if (rank < 0 || rank > SW_MAX_RANK || (rank > 0 && shape == NULL)) {
        sw__graph_error(g, SW_ERR_SHAPE, "%s '%s': %s (rank %d; at most %d axes)", what, name,
                        rank > 0 && shape == NULL ? "the shape is NULL" : "impossible rank", rank, SW_MAX_RANK);
        return false;
    }
    *n = (sw__node){ .dtype = (uint8_t)type, .rank = (uint8_t)rank };
    for (int i = 0; i < rank; i++) n->dim[i] = shape[i];
    return true;
}

sw_t sw_input(sw_graph *g, const char *name, sw_dtype type, int rank, const int64_t *shape)
{
    sw__node n;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (g == NULL || g->status != SW_OK || !given_shape(g, "input", name, type, rank, shape, &n)) return (sw_t){ g, 0 };
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (strcmp(g->inputs[i].name, name) != 0) continue;
        return sw__graph_error(g, SW_ERR_ARGUMENT, "input '%s' of %s: %s already has this name: names of inputs are "
                               "unique", name, sw__shape_text(&n, a, sizeof a), sw__value_text(g, g->inputs[i].node, b));
    }
    const char *const own = sw__arena_strdup(&g->arena, name);
    if (own == NULL ||
        sw__grow(&g->inputs, &g->cap_inputs, (size_t)g->n_inputs + 1, sizeof *g->inputs, "inputs") != SW_OK)
        return sw__graph_error(g, SW_ERR_MEMORY, "out of memory: input '%s'", name);
    const sw__attr attr = { .slot = { g->n_inputs } };
    const sw_t t = sw__node_add(g, SW_OP_INPUT, NULL, 0, &attr, &n);
    if (!sw_valid(t)) return t;
    sw__node_of(t)->name = own;
    g->inputs[g->n_inputs++] = (sw__input){ own, t.id };
    return t;
}

bool sw__var_find(sw_graph *g, const char *name, uint32_t *var)
{
    while (g->var_names.n < g->n_vars) {
        const uint32_t i = (uint32_t)g->var_names.n;
        if (sw__names_put(&g->var_names, g->vars[i].name, i) == SW_OK) continue;
        sw__graph_error(g, SW_ERR_MEMORY, "out of memory: the names of %u variables", g->n_vars);
        return false;
    }
    return sw__names_find(&g->var_names, name, var);
}

sw_t sw_variable(sw_graph *g, const char *name, sw_var_kind kind, sw_dtype type, int rank, const int64_t *shape,
                 sw_init init)
{
    sw__node n;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (g == NULL || g->status != SW_OK || !given_shape(g, "variable", name, type, rank, shape, &n))
        return (sw_t){ g, 0 };
    const char *const full = scoped(g, name);
    if (full == NULL) return (sw_t){ g, 0 };
    uint32_t other = 0;
    if (sw__var_find(g, full, &other))
        return sw__graph_error(g, SW_ERR_ARGUMENT, "variable '%s' of %s: %s already has this name: give the layer "
                               "another one, or keep the value and use it twice", full, sw__shape_text(&n, a, sizeof a),
                               sw__value_text(g, g->vars[other].node, b));
    if (g->status != SW_OK) return (sw_t){ g, 0 };
    if (sw__grow(&g->vars, &g->cap_vars, (size_t)g->n_vars + 1, sizeof *g->vars, "variables") != SW_OK)
        return sw__graph_error(g, SW_ERR_MEMORY, "out of memory: variable '%s'", full);
    const sw__attr attr = { .slot = { g->n_vars } };
    const sw_t t = sw__node_add(g, SW_OP_VAR, NULL, 0, &attr, &n);
    if (!sw_valid(t)) return t;
    sw__node_of(t)->name = full;
    sw__var *const v = &g->vars[g->n_vars++];
    *v = (sw__var){ .name = full, .kind = kind, .dtype = type, .rank = n.rank, .init = init, .node = t.id };
    v->group = -1;
    memcpy(v->dim, n.dim, sizeof v->dim);
    return t;
}

sw_t sw_param(sw_graph *g, const char *name, int rank, const int64_t *shape, sw_init init)
{
    return sw_variable(g, name, SW_VAR_PARAM, SW_F32, rank, shape, init);
}

int sw_graph_variables(const sw_graph *g, sw_var_kind kind, sw_t *out, int max)
{
    if (g == NULL) return 0;
    int n = 0;
    for (uint32_t i = 0; i < g->n_vars; i++) {
        if (g->vars[i].kind != kind) continue;
        /* A sw_t is not const: whoever holds one may add nodes. The list itself changes nothing. */
        if (out != NULL && n < max) out[n] = (sw_t){ (sw_graph *)(uintptr_t)g, g->vars[i].node };
        n++;
    }
    return n;
}

/* ---- outputs -------------------------------------------------------------------------------------------------- */

sw_t sw_graph_output(sw_graph *g, const char *name)
{
    for (uint32_t i = 0; g && name && i < g->n_outputs; i++)
        if (strcmp(g->outputs[i].name, name) == 0) return sw__value(g, g->outputs[i].node);
    return (sw_t){ g, 0 };
}

sw_t sw_output(sw_t x, const char *name)
{
    sw_graph *const g = x.graph;
    if (g == NULL || g->status != SW_OK) return (sw_t){ g, 0 };
    if (name == NULL || name[0] == '\0')
        return sw__graph_error(g, SW_ERR_ARGUMENT, "output %%%u: it has no name: results are read by name", x.id);
    if (!sw_valid(x)) return sw__graph_error(g, SW_ERR_ARGUMENT, "output '%s': its value is not valid", name);
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) != 0) continue;
        return sw__graph_error(g, SW_ERR_ARGUMENT, "output '%s' for %s: %s already has this name: names of outputs are "
                               "unique", name, sw__value_text(g, x.id, a), sw__value_text(g, g->outputs[i].node, b));
    }
    const char *const own = sw__arena_strdup(&g->arena, name);
    if (own == NULL ||
        sw__grow(&g->outputs, &g->cap_outputs, (size_t)g->n_outputs + 1, sizeof *g->outputs, "outputs") != SW_OK)
        return sw__graph_error(g, SW_ERR_MEMORY, "out of memory: output '%s'", name);
    g->outputs[g->n_outputs++] = (sw__named_output){ own, x.id };
    return x;
}

/* ---- packed groups -------------------------------------------------------------------------------------------- */

enum { GROUP_ALIGN = 16 }; /* elements: one cache line of f32, and whole vectors for every instruction set */

/* Finds the variables, checks them and gives each its place; returns how many elements they span, -1 on error. */
static int64_t place_group(sw_graph *g, const sw_t *vars, uint32_t n, bool *seen, int64_t *place)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!sw_valid(vars[i]) || vars[i].graph != g || sw__node_of(vars[i])->op != SW_OP_VAR) {
            sw__graph_error(g, SW_ERR_ARGUMENT, "group: entry %u is not a variable of this graph", i);
            return -1;
        }
        const uint32_t index = sw__node_of(vars[i])->attr.slot.index;
        const sw__var *const v = &g->vars[index];
        const sw__var *const first = &g->vars[sw__node_of(vars[0])->attr.slot.index];
        const bool twice = v->group >= 0 || seen[index];
        seen[index] = true;
        if (twice || v->dtype != first->dtype) {
            sw__graph_error(g, twice ? SW_ERR_ARGUMENT : SW_ERR_SHAPE, "group: variable '%s' (%s) %s", v->name,
                            sw_dtype_name(v->dtype),
                            twice ? "is already in a group" : "has another type than the first of the group");
            return -1;
        }
        place[i] = total;
        const int64_t size = sw__dims_product(v->dim, v->rank);
        if (size > INT64_MAX / 8 - GROUP_ALIGN - total) {
            sw__graph_error(g, SW_ERR_SHAPE, "group: with variable '%s' it has more elements than 64 bits can "
                            "count", v->name);
            return -1;
        }
        total += (size + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
    }
    return total;
}

sw_status sw__var_group(sw_graph *g, const sw_t *vars, uint32_t n, uint32_t *group)
{
    SW_TRY(sw_graph_status(g));
    if (vars == NULL || n == 0 || group == NULL) {
        sw__graph_error(g, SW_ERR_ARGUMENT, "group: it needs at least one variable");
        return sw_graph_status(g);
    }
    uint32_t *const members = sw__calloc(n, sizeof *members);
    int64_t *const place = sw__calloc(n, sizeof *place);
    bool *const seen = sw__calloc((size_t)g->n_vars + 1, sizeof *seen);
    int64_t total = -1;
    if (members == NULL || place == NULL || seen == NULL ||
        sw__grow(&g->groups, &g->cap_groups, (size_t)g->n_groups + 1, sizeof *g->groups, "groups") != SW_OK)
        sw__graph_error(g, SW_ERR_MEMORY, "out of memory: a group of %u variables", n);
    else
        total = place_group(g, vars, n, seen, place);
    if (total >= 0) {
        for (uint32_t i = 0; i < n; i++) {
            members[i] = sw__node_of(vars[i])->attr.slot.index;
            g->vars[members[i]].group = (int32_t)g->n_groups;
            g->vars[members[i]].place = place[i];
        }
        *group = g->n_groups;
        g->groups[g->n_groups++] = (sw__group){ members, n, g->vars[members[0]].dtype, total };
    } else {
        sw__free(members);
    }
    sw__free(place);
    sw__free(seen);
    return sw_graph_status(g);
}

static bool group_node(sw_graph *g, uint32_t group, const char *what, sw__node *n)
{
    if (g == NULL || g->status != SW_OK) return false;
    if (group >= g->n_groups) {
        sw__graph_error(g, SW_ERR_ARGUMENT, "%s: there is no group %u (the graph has %u)", what, group, g->n_groups);
        return false;
    }
    *n = (sw__node){ .dtype = (uint8_t)g->groups[group].dtype, .rank = 1, .dim = { g->groups[group].elements } };
    return true;
}

sw_t sw__varpack(sw_graph *g, uint32_t group)
{
    sw__node n;
    if (!group_node(g, group, "varpack", &n)) return (sw_t){ g, 0 };
    const sw__attr attr = { .slot = { group } };
    return sw__node_add(g, SW_OP_VARPACK, NULL, 0, &attr, &n);
}

sw_t sw__pack(sw_graph *g, uint32_t group, const sw_t *values)
{
    sw__node n;
    if (!group_node(g, group, "pack", &n)) return (sw_t){ g, 0 };
    const sw__attr attr = { .slot = { group } };
    return sw__node_add(g, SW_OP_PACK, values, g->groups[group].n, &attr, &n);
}
