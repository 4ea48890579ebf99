/* memory.c: training within so many bytes: values are recomputed, then batches are cut into micro-batches, until the plan
 * fits; and what is done when a device runs out of memory all the same. Plans only: nothing is allocated to find out.
 * Called by trainer.c before the first program is compiled, by fit.c after SW_ERR_MEMORY. */
#include "exec/exec.h"
#include "train/trainer.h"
#include <stdio.h>

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

/* Beside a step's own inputs there are those of the last batch of an epoch, and of evaluation, whose batches are no larger:
 * arenas are shared, inputs are not. */
static uint64_t others_inputs(const sw_graph *g)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const sw__node *n = &g->nodes[g->inputs[i].node];
        bytes += ((uint64_t)sw__node_elements(n) * sw_dtype_size((sw_dtype)n->dtype) + 255) / 256 * 256;
    }
    return 3 * bytes;
}

uint64_t sw__memory_for(const sw_trainer *t, const sw_graph *g)
{
    if (t->o.memory == 0) return 0;
    const uint64_t kept = others_inputs(g);
    return t->o.memory > kept ? t->o.memory - kept : 1;
}

static uint64_t variables(const sw_params *p)
{
    return p->bytes[SW_VAR_PARAM] + p->bytes[SW_VAR_BUFFER] + p->bytes[SW_VAR_STATE];
}

/* Bytes of the variables that all programs of a step have between them. */
static sw_status variable_bytes(sw_trainer *t, sw_device *d, int64_t n, uint64_t *bytes)
{
    sw_graph *g = NULL;
    sw_params layout = {0};
    SW_TRY(sw__trainer_variables_graph(t, t->micro.n > 0 ? SW__BOTH : SW__TRAIN, n, &g));
    const sw_status st = sw__params_layout(g, d->traits, &layout);
    *bytes = variables(&layout);
    sw__params_layout_free(&layout);
    sw_graph_free(g);
    return st;
}

/* The plan of one program on n samples, with all variables of the step, within the budget if there is one. */
static sw_status plan_mode(sw_trainer *t, sw_device *d, sw__mode mode, int64_t n, sw_plan_launch_fn each, void *context,
                           sw_plan *out)
{
    sw_graph *g = NULL;
    sw_params layout = {0};
    uint64_t all = 0;
    if (mode != SW__TRAIN || t->o.memory > 0) SW_TRY(variable_bytes(t, d, n, &all));
    SW_TRY(sw__trainer_graph(t, mode, n, &g));
    sw_status st = sw__params_layout(g, d->traits, &layout);
    const uint64_t extra = all - SW_MIN(all, variables(&layout)), allowed = sw__memory_for(t, g);
    sw__params_layout_free(&layout);
    const sw_compile_options o = {.memory = allowed == 0 ? 0 : allowed > extra ? allowed - extra : 1};
    *out = (sw_plan){0};
    if (st == SW_OK) st = sw_plan_launches(g, d, &o, out, each, context);
    sw_graph_free(g);
    out->state += extra;
    out->total += extra;
    out->again.without += extra;
    return st;
}

static sw_status plan_step(sw_trainer *t, sw_device *d, int64_t n, sw_plan *out)
{
    sw_plan update;
    if (t->micro.n == 0) return plan_mode(t, d, SW__TRAIN, n, NULL, NULL, out);
    SW_TRY(plan_mode(t, d, SW__ACCUM, SW_MIN(t->micro.n, n), NULL, NULL, out));
    const sw_status st = plan_mode(t, d, SW__UPDATE, 1, NULL, NULL, &update);
    if (st == SW_ERR_MEMORY) *out = update; /* it is the update that has no room */
    return st;
}

#define MOST_TRIES 40 /* of a figure that is told: each is a plan */

/* ---- how a batch of n samples is done ----------------------------------------------------------------------------- */

/* What a budget for this plan has to be at least: with the inputs of other programs that sw__memory_for keeps. */
static sw_status least_for(sw_trainer *t, sw__mode mode, int64_t n, const sw_plan *p, uint64_t *bytes)
{
    sw_graph *g = NULL;
    SW_TRY(sw__trainer_graph(t, mode, n, &g));
    *bytes = p->total + others_inputs(g);
    sw_graph_free(g);
    return SW_OK;
}

/* The least that is told has to do: it is planned with, and raised to what that says until both programs fit. */
static sw_status find_least(sw_trainer *t, sw_device *d, int64_t n, uint64_t *least)
{
    static const sw__mode modes[] = {SW__ACCUM, SW__UPDATE};
    const uint64_t given = t->o.memory;
    sw_status st = SW_OK;
    *least = given;
    for (int tries = 0; tries < MOST_TRIES && st == SW_OK; tries++) {
        uint64_t needed = 0;
        t->o.memory = *least;
        for (size_t i = 0; i < SW_COUNT(modes) && st == SW_OK; i++) {
            uint64_t bytes = 0;
            sw_plan p;
            const int64_t m = modes[i] == SW__UPDATE ? 1 : SW_MIN(t->micro.n, n);
            st = plan_mode(t, d, modes[i], m, NULL, NULL, &p);
            if (st != SW_ERR_MEMORY) continue;
            st = least_for(t, modes[i], m, &p, &bytes);
            needed = SW_MAX(needed, SW_MAX(bytes, *least + *least / 256 + 1));
        }
        if (st != SW_OK || needed == 0) break;
        *least = needed;
    }
    t->o.memory = given;
    return st;
}

static sw_status too_little(sw_trainer *t, sw_device *d, int64_t n, const sw_plan *p)
{
    uint64_t least = 0;
    char largest[400] = "";
    for (int i = 0; i < p->peak.n_largest && i < 3; i++) {
        const size_t at = strlen(largest);
        snprintf(largest + at, sizeof largest - at, "%s%s of %.60s %llu", i ? ", " : "", p->peak.largest[i].kind,
                 p->peak.largest[i].name, (unsigned long long)p->peak.largest[i].bytes);
    }
    SW_TRY(find_least(t, d, n, &least));
    return sw__fail(SW_ERR_MEMORY, "memory is %llu bytes, but a step on a batch of %lld needs %llu at least, in "
                    "micro-batches of %lld with all recomputed that helps: parameters %llu, statistics %llu, optimizer "
                    "state %llu, inputs and constants %llu (three more of them for other programs), activations %llu, "
                    "gradients %llu, workspace %llu; the largest: %s", (unsigned long long)t->o.memory, (long long)n,
                    (unsigned long long)least, (long long)SW_MAX(t->micro.n, (int64_t)1),
                    (unsigned long long)p->params, (unsigned long long)p->buffers, (unsigned long long)p->state,
                    (unsigned long long)(p->inputs + p->constants), (unsigned long long)p->peak.activations,
                    (unsigned long long)p->peak.gradients, (unsigned long long)p->peak.workspace, largest);
}

static sw_status fits_in(sw_trainer *t, sw_device *d, int64_t n, int64_t parts, sw_plan *plan, bool *yes)
{
    t->micro.n = (n + parts - 1) / parts;
    const sw_status st = plan_step(t, d, n, plan);
    *yes = st == SW_OK;
    return st == SW_ERR_MEMORY ? SW_OK : st;
}

/* As few parts as fit: doubled until they do, then halfway between. */
static sw_status find_parts(sw_trainer *t, sw_device *d, int64_t n)
{
    int64_t low = SW_MAX(t->o.grad_accum, (int64_t)1), high = low;
    sw_plan plan;
    bool yes = false;
    while (!yes && high < n) {
        low = high;
        high = SW_MIN(high * 2, n);
        SW_TRY(fits_in(t, d, n, high, &plan, &yes));
    }
    if (!yes) SW_TRY(fits_in(t, d, n, n, &plan, &yes));
    if (!yes) return too_little(t, d, n, &plan);
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        SW_TRY(fits_in(t, d, n, middle, &plan, &yes));
        *(yes ? &high : &low) = middle;
    }
    t->micro.n = (n + high - 1) / high;
    return SW_OK;
}

sw_status sw__memory_decide(sw_trainer *t, sw_device *d, int64_t n)
{
    sw_plan plan;
    t->micro.n = t->o.grad_accum > 1 ? (n + t->o.grad_accum - 1) / t->o.grad_accum : 0;
    if (t->o.memory == 0) return SW_OK;
    const sw_status st = plan_step(t, d, n, &plan);
    return st == SW_ERR_MEMORY ? find_parts(t, d, n) : st;
}

sw_status sw__memory_plan(sw_trainer *t, sw_device *d, int64_t n, sw_plan_launch_fn each, void *context, sw_plan *out)
{
    SW_TRY(sw__memory_decide(t, d, n));
    if (t->micro.n == 0) return plan_mode(t, d, SW__TRAIN, n, each, context, out);
    return plan_mode(t, d, SW__ACCUM, SW_MIN(t->micro.n, n), each, context, out);
}

sw_status sw__memory_plan_whole(sw_trainer *t, sw_device *d, int64_t n, sw_plan *out)
{
    const int64_t before = t->micro.n;
    t->micro.n = t->o.grad_accum > 1 ? (n + t->o.grad_accum - 1) / t->o.grad_accum : 0;
    const sw_status st = plan_step(t, d, n, out);
    t->micro.n = before;
    return st;
}

/* ---- out of memory all the same ------------------------------------------------------------------------------------ */

#define MOST_SHRINKS 24

/* Other variables (there are accumulated gradients now), the same values. The old ones go last, so that nothing is lost if
 * there is no room for both. */
static sw_status move_variables(sw_trainer *t, int64_t n)
{
    sw_graph *g = NULL;
    sw_params *to = NULL;
    SW_TRY(sw__trainer_variables_graph(t, SW__BOTH, n, &g));
    sw_status st = sw_params_new(t->device, g, t->o.seed, &to);
    if (st == SW_OK) st = sw__params_copy(t->params, to);
    sw_graph_free(g);
    if (st == SW_OK) {
        sw_params_free(t->params);
        t->params = to;
    } else {
        sw_params_free(to);
    }
    return st;
}

static sw_status compile_anew(sw_trainer *t, bool had_parts)
{
    sw__batch_program *p = NULL;
    if (t->params && t->micro.n > 0 && !had_parts) SW_TRY(move_variables(t, t->micro.n));
    return t->micro.n > 0 ? sw__trainer_program(t, SW__ACCUM, SW_MIN(t->micro.n, t->batch_of_plan), &p)
                          : sw__trainer_program(t, SW__TRAIN, t->batch_of_plan, &p);
}

static void free_programs(sw_trainer *t)
{
    for (int i = 0; i < t->n_programs; i++) sw_program_free(t->programs[i].program);
    t->n_programs = 0;
    sw_program_free(t->average);
    t->average = NULL;
}

/* Four fifths of what the step takes now, again and again until the device has it. */
sw_status sw__memory_shrink(sw_trainer *t)
{
    char why[700];
    snprintf(why, sizeof why, "%s", sw_error());
    if (!t->o.shrink || t->batch_of_plan == 0) return sw__fail(SW_ERR_MEMORY, "%s", why);
    sw_status st = SW_ERR_MEMORY;
    while (st == SW_ERR_MEMORY && t->shrunk < MOST_SHRINKS) {
        sw_plan now;
        SW_TRY(plan_step(t, t->device, t->batch_of_plan, &now));
        const uint64_t takes = now.total + 3 * now.inputs, least = t->o.memory ? SW_MIN(t->o.memory, takes) : takes;
        free_programs(t);
        t->o.memory = least / 5 * 4;
        t->shrunk++;
        const bool had_parts = t->micro.n > 0;
        st = sw__memory_decide(t, t->device, t->batch_of_plan);
        if (st != SW_OK) break; /* less than that cannot be */
        st = compile_anew(t, had_parts);
    }
    if (st != SW_OK) {
        char then[900];
        snprintf(then, sizeof then, "%s", sw_error());
        return sw__fail(st, "%s; and with less: %s", why, then);
    }
    const sw_plan *p = sw_program_plan(t->programs[0].program);
    sw__log(SW_LOG_WARN, "out of memory (%s): the step is planned anew within %llu bytes: %d launches recomputed, "
            "micro-batches of %lld", why, (unsigned long long)t->o.memory, p->again.launches,
            (long long)(t->micro.n > 0 ? t->micro.n : t->batch_of_plan));
    return SW_OK;
}

sw_status sw_trainer_memory(const sw_trainer *t, sw_trainer_memory_info *out)
{
    if (!t || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_memory: trainer or out is NULL");
    const sw_plan *p = sw_trainer_plan((sw_trainer *)(uintptr_t)t);
    const int64_t n = t->batch_of_plan, m = t->micro.n;
    *out = (sw_trainer_memory_info){.memory = t->o.memory, .micro_batch = m > 0 ? SW_MIN(m, n) : n,
                                    .parts = m > 0 ? (n + m - 1) / m : 1, .shrunk = t->shrunk};
    if (p) out->plan = *p;
    return SW_OK;
}
