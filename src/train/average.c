/* average.c: an average of the weights beside the weights: exponential, in the step's own graph, or equal, at epochs' ends.
 * Called by trainer.c when it records a graph, by fit.c at an epoch's end. The average of X is the state variable X.averaged:
 * checkpoints have it like any other state, and graphs that evaluate read it in X's place. */
#include "graph/graph.h"
#include "train/trainer.h"
#include <stdio.h>

#define SUFFIX ".averaged"
#define INPUT_WEIGHT "average_weight"

static bool wanted(const sw_trainer *t)
{
    return t->o.ema > 0 || t->o.swa_start > 0;
}

/* Parameters and the running statistics; counters are taken as they are. */
static bool is_averaged(sw_var_kind kind, sw_dtype type)
{
    return (kind == SW_VAR_PARAM || kind == SW_VAR_BUFFER) && type == SW_F32;
}

static void averaged_name(const char *name, char *out, size_t size)
{
    snprintf(out, size, "%.480s" SUFFIX, name);
}

static sw_t declare(sw_graph *g, uint32_t var)
{
    char name[512];
    const sw__var v = g->vars[var];
    averaged_name(v.name, name, sizeof name);
    return sw_variable(g, name, SW_VAR_STATE, SW_F32, v.rank, v.dim, (sw_init){0});
}

/* a += w (p - a), as torch.optim.swa_utils has it; the first time (w = 1) p to the bit. */
static void approach(sw_t average, sw_t p, sw_t weight, sw_t good)
{
    const sw_t one = sw_const(average.graph, SW_F32, 1);
    const sw_t next = sw_where(sw_eq(weight, one), p, sw_add(average, sw_mul(sw_sub(p, average), weight)));
    sw_assign(average, sw_valid(good) ? sw_where(good, next, average) : next);
}

/* The variables of a packed group, and what the step makes of them, as one flat tensor. */
static sw_status follow_group(sw_graph *g, uint32_t group, sw_t value, sw_t weight, sw_t good, bool *done)
{
    const sw__group from = g->groups[group];
    sw_t *const vars = sw__malloc(SW_MAX(from.n, 1u) * sizeof *vars);
    if (!vars) return sw__no_memory(from.n * sizeof *vars, "the list of averages");
    uint32_t to = 0;
    for (uint32_t i = 0; i < from.n; i++) {
        vars[i] = declare(g, from.vars[i]);
        done[from.vars[i]] = true;
    }
    const sw_status st = sw__var_group(g, vars, from.n, &to);
    sw__free(vars);
    SW_TRY(st);
    approach(sw__varpack(g, to), value, weight, good);
    return sw_graph_status(g);
}

static sw_status follow_assign(sw_graph *g, uint32_t assign, uint32_t n_vars, sw_t weight, sw_t good, bool *done)
{
    const sw__node a = g->nodes[assign], target = g->nodes[a.in[0]];
    const sw_t value = sw__value(g, a.in[1]);
    const uint32_t slot = target.attr.slot.index;
    if (target.op == SW_OP_VARPACK) {
        const sw__var first = g->vars[g->groups[slot].vars[0]];
        return first.kind == SW_VAR_PARAM && is_averaged(first.kind, first.dtype)
                   ? follow_group(g, slot, value, weight, good, done) : SW_OK;
    }
    if (target.op != SW_OP_VAR || slot >= n_vars || !is_averaged(g->vars[slot].kind, g->vars[slot].dtype)) return SW_OK;
    done[slot] = true;
    approach(declare(g, slot), value, weight, good);
    return sw_graph_status(g);
}

/* What the step leaves alone (frozen layers) is its own average. */
static void follow_rest(sw_graph *g, uint32_t n_vars, sw_t weight, const bool *done)
{
    for (uint32_t i = 0; i < n_vars; i++)
        if (!done[i] && is_averaged(g->vars[i].kind, g->vars[i].dtype))
            approach(declare(g, i), sw__value(g, g->vars[i].node), weight, SW_NONE);
}

static sw_status follow_all(sw_graph *g, sw_t loss, bool *done)
{
    const uint32_t n_assigns = g->n_assigns, n_vars = g->n_vars;
    const sw_t weight = sw_input(g, INPUT_WEIGHT, SW_F32, 0, NULL);
    sw_t good = sw_eq(sw_sub(loss, loss), sw_const(g, sw_type(loss), 0)); /* a step that is skipped does not count */
    const sw_t finite = sw_graph_output(g, SW_OUTPUT_FINITE);
    if (sw_valid(finite)) good = sw_and(good, sw_eq(finite, sw_const(g, SW_F32, 1)));
    SW_TRY(sw_graph_status(g));
    for (uint32_t i = 0; i < n_assigns; i++) SW_TRY(follow_assign(g, g->assigns[i], n_vars, weight, good, done));
    follow_rest(g, n_vars, weight, done);
    return sw_graph_status(g);
}

sw_status sw__average_record(const sw_trainer *t, sw_graph *g, sw_t loss)
{
    if (!wanted(t)) return SW_OK;
    const uint32_t n_vars = g->n_vars;
    if (t->o.ema <= 0) { /* at epochs' ends: here is only the place for them */
        for (uint32_t i = 0; i < n_vars; i++)
            if (is_averaged(g->vars[i].kind, g->vars[i].dtype)) declare(g, i);
        return sw_graph_status(g);
    }
    bool *const done = sw__calloc(SW_MAX(n_vars, 1u), sizeof *done);
    if (!done) return sw__no_memory(n_vars, "the list of averages");
    const sw_status st = follow_all(g, loss, done);
    sw__free(done);
    return st;
}

int sw__average_of(const sw_params *p, const char *name)
{
    char averaged[512];
    averaged_name(name, averaged, sizeof averaged);
    return sw_params_find(p, averaged);
}

sw_status sw__average_read(const sw_trainer *t, sw_graph *g)
{
    if (!wanted(t) || t->averaged == 0) return SW_OK;
    for (uint32_t i = 0; i < g->n_vars; i++) {
        sw__var *const v = &g->vars[i];
        if (!is_averaged(v->kind, v->dtype) || sw__average_of(t->params, v->name) < 0) continue;
        v->name = sw__arena_printf(&g->arena, "%s" SUFFIX, v->name);
        if (!v->name) return sw__no_memory(512, "a variable's name");
        v->kind = SW_VAR_STATE;
    }
    return SW_OK;
}

/* ---- equal averages: a program of its own ------------------------------------------------------------------------ */

static sw_status record_equal(const sw_trainer *t, sw_graph *g)
{
    const sw_t weight = sw_input(g, INPUT_WEIGHT, SW_F32, 0, NULL);
    for (int i = 0; i < sw_params_count(t->params); i++) {
        sw_var_info v;
        SW_TRY(sw_params_info(t->params, i, &v));
        if (!is_averaged(v.kind, v.dtype)) continue;
        const sw_t p = sw_variable(g, v.name, v.kind, v.dtype, v.rank, v.shape, (sw_init){0});
        SW_TRY(sw_graph_status(g));
        approach(declare(g, g->n_vars - 1), p, weight, SW_NONE);
    }
    return sw_graph_status(g);
}

sw_status sw__average_prepare(sw_trainer *t)
{
    sw_graph *g = NULL;
    if (t->average || t->o.swa_start == 0) return SW_OK;
    SW_TRY(sw_graph_new(&g));
    sw_status st = record_equal(t, g);
    const sw_compile_options o = {.params = t->params, .build_later = true};
    if (st == SW_OK) st = sw_compile(g, t->device, &o, &t->average);
    sw_graph_free(g);
    return st;
}

sw_status sw__average_add(sw_trainer *t)
{
    SW_TRY(sw__average_prepare(t));
    const double weight = 1 / (double)(t->averaged + 1);
    SW_TRY(sw_program_set(t->average, sw_program_input(t->average, INPUT_WEIGHT), SW_F64, &weight, 1));
    SW_TRY(sw_program_run(t->average));
    t->averaged++;
    return SW_OK;
}

sw_status sw__average_weight(const sw_trainer *t, sw_program *p)
{
    const int input = sw_program_input(p, INPUT_WEIGHT);
    const double weight = t->averaged == 0 ? 1 : 1 - t->o.ema;
    return input < 0 ? SW_OK : sw_program_set(p, input, SW_F64, &weight, 1);
}
