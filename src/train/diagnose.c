/* diagnose.c: which value was the first to turn NaN or infinite in a step whose loss, or whose gradients in f16, did.
 * Called by fit.c; the optimiser has not touched the variables, so the same step can be run again and looked at. */
#include "graph/build.h"
#include "train/trainer.h"
#include <math.h>
#include <stdio.h>

/* The gradients of loss times scale; *first: their first node. */
static sw_status differentiate(sw_graph *g, double scale, uint32_t *first)
{
    const sw_t loss = sw_graph_output(g, "loss");
    const int n = sw_graph_variables(g, SW_VAR_PARAM, NULL, 0);
    *first = g->n_nodes;
    sw_t *const params = sw__malloc(2 * SW_MAX((size_t)n, (size_t)1) * sizeof *params);
    if (!params) return sw__no_memory(2 * (size_t)n * sizeof *params, "the list of parameters");
    sw_graph_variables(g, SW_VAR_PARAM, params, n);
    const sw_t seed = sw__const_like(loss, scale);
    const sw_status st = sw_grad_from(loss, seed, params, n, params + n);
    sw__free(params);
    return st;
}

/* Makes every float value that the loss is computed from an output, named by its id; nothing is assigned. */
static sw_status expose(sw_graph *g, uint32_t first)
{
    const uint32_t n = g->n_nodes;
    g->n_assigns = 0;
    g->n_outputs = 0;
    for (uint32_t i = first; i < n; i++) {
        const sw__node *node = &g->nodes[i];
        char name[24];
        if (!sw__dtype_is_float((sw_dtype)node->dtype) || node->op == SW_OP_CONST || node->op == SW_OP_ASSIGN ||
            sw__node_elements(node) == 0)
            continue;
        snprintf(name, sizeof name, "%u", i);
        sw_output(sw__value(g, i), name);
    }
    return sw_graph_status(g);
}

/* Place of the first NaN (or, if wanted, infinity) among n values, or -1. */
static int64_t first_bad(const float *v, int64_t n, bool infinite)
{
    for (int64_t i = 0; i < n; i++)
        if (infinite ? isinf(v[i]) : isnan(v[i])) return i;
    return -1;
}

/* The nearest name among a value and what it is computed from. */
static const char *nearest_name(const sw_graph *g, uint32_t id, int depth)
{
    const sw__node *const n = &g->nodes[id];
    if (n->name && *n->name) return n->name;
    for (uint32_t k = n->n_in; k-- > 0 && depth > 0;) {
        const char *const found = nearest_name(g, n->in[k], depth - 1);
        if (*found) return found;
    }
    return "";
}

/* A gradient has no name of its own: it goes by that of what the next product or function takes beside it, which is a layer's
 * weight or what the layer kept; if that has none, by what it is computed from. */
static const char *name_of_gradient(const sw_graph *g, uint32_t id)
{
    uint32_t at = id;
    for (uint32_t i = id + 1; i < g->n_nodes; i++) {
        const sw__node *const n = &g->nodes[i];
        bool uses = false;
        for (uint32_t k = 0; k < n->n_in; k++) uses |= n->in[k] == at;
        for (uint32_t k = 0; uses && k < n->n_in; k++) {
            const char *const found = n->in[k] != at ? nearest_name(g, n->in[k], 3) : "";
            if (*found) return found;
        }
        if (uses) at = i;
    }
    return nearest_name(g, id, 4);
}

/* What the gradient of an op is called. */
static void tell_gradient(const sw_graph *g, uint32_t id, int64_t at, float value, char *message, size_t size)
{
    const sw__node *const n = &g->nodes[id];
    char shape[128];
    const char *const name = name_of_gradient(g, id);
    snprintf(message, size, "the first that is %s is %s%s%s%s %s, element %lld", isnan(value) ? "NaN" : "infinite",
             sw__op_table[n->op].name, *name ? " of the gradient at '" : " of the gradient", name, *name ? "'" : "",
             sw__shape_text(n, shape, sizeof shape), (long long)at);
}

static void tell(const sw_graph *g, uint32_t id, int64_t at, bool infinite, char *message, size_t size)
{
    const sw__node *n = &g->nodes[id];
    char shape[128];
    const char *what = sw__op_table[n->op].name, *name = sw_name(sw__value((sw_graph *)(uintptr_t)g, id));
    if (n->op == SW_OP_VAR) what = "variable";
    snprintf(message, size, "the first %s value is %s%s%s%s %s, element %lld%s", infinite ? "infinite" : "NaN", what,
             *name ? " '" : "", name, *name ? "'" : "", sw__shape_text(n, shape, sizeof shape), (long long)at,
             n->op == SW_OP_VAR ? ": an earlier update made it so" : n->op == SW_OP_INPUT ? ": it came with the data" : "");
}

/* Two rounds over the values in the order of their computation: NaN first, since infinities may be meant. */
static sw_status search(const sw_graph *g, sw_program *p, float *values, char *message, size_t size)
{
    for (int round = 0; round < 2; round++)
        for (uint32_t k = 0; k < g->n_outputs; k++) {
            const uint32_t id = g->outputs[k].node;
            const int64_t n = sw__node_elements(&g->nodes[id]);
            SW_TRY(sw_program_get(p, (int)k, SW_F32, values, n));
            const int64_t at = first_bad(values, n, round == 1);
            if (at < 0) continue;
            tell(g, id, at, round == 1, message, size);
            return SW_OK;
        }
    snprintf(message, size, "run again, every value of the forward pass is finite");
    return SW_OK;
}

/* Among gradients no infinity is meant: the first of either kind, in the order of their computation. */
static sw_status search_gradients(const sw_graph *g, sw_program *p, float *values, char *message, size_t size)
{
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        const uint32_t id = g->outputs[k].node;
        const int64_t n = sw__node_elements(&g->nodes[id]);
        SW_TRY(sw_program_get(p, (int)k, SW_F32, values, n));
        for (int64_t i = 0; i < n; i++) {
            if (isfinite(values[i])) continue;
            tell_gradient(g, id, i, values[i], message, size);
            return SW_OK;
        }
    }
    snprintf(message, size, "run again, every gradient is finite");
    return SW_OK;
}

static int64_t largest_output(const sw_graph *g)
{
    int64_t most = 1;
    for (uint32_t k = 0; k < g->n_outputs; k++) most = SW_MAX(most, sw__node_elements(&g->nodes[g->outputs[k].node]));
    return most;
}

sw_status sw__diagnose(sw_trainer *t, const void *x, const void *y, int64_t n, double scale, char *message, size_t size)
{
    sw_graph *g = NULL;
    sw_program *program = NULL;
    float *values = NULL;
    SW_TRY(sw__trainer_graph(t, SW__DIAGNOSE, n, &g));
    uint32_t first = 1;
    sw_status st = scale > 0 ? differentiate(g, scale, &first) : SW_OK;
    if (st == SW_OK) st = expose(g, first);
    const sw_compile_options o = {.params = t->params, .no_simplify = true, .no_fuse = true};
    if (st == SW_OK) st = sw_compile(g, t->device, &o, &program);
    if (st == SW_OK) {
        sw__batch_program p = {.program = program, .n = n};
        sw__trainer_places(t, &p);
        st = sw__trainer_set_batch(&p, t, x, y);
    }
    if (st == SW_OK) st = sw_program_run(program);
    if (st == SW_OK) {
        values = sw__malloc((size_t)largest_output(g) * sizeof *values);
        st = !values ? sw__no_memory((size_t)largest_output(g) * 4, "a search")
                     : (scale > 0 ? search_gradients : search)(g, program, values, message, size);
    }
    sw__free(values);
    sw_program_free(program);
    sw_graph_free(g);
    return st;
}
