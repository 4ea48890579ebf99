/* budget.c: what a plan's launches are in all, what lives where it is fullest, and plans that must not take more than so many bytes. Called by
 * compile.c once every byte is known; recomputing itself is pass/recompute.c. */
#include "exec/exec.h"
#include <stdio.h>

/* ---- all launches ------------------------------------------------------------------------------------------------- */

void sw__plan_count(sw_program *p, const sw__schedule *s)
{
    const sw__backend *const b = p->device->backend;
    sw_plan *const plan = &p->plan;
    plan->flops = plan->traffic = 0;
    plan->kernels = plan->ops = plan->copies = plan->emulated = 0;
    plan->launches = (int)s->n_steps;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const sw__launch *const l = &p->launches[i];
        plan->flops += l->flops;
        plan->traffic += l->bytes;
        plan->emulated += l->is_op && b->op_on_copies && b->op_on_copies(l->built);
        *(l->is_op ? &plan->ops : s->steps[i].copy ? &plan->copies : &plan->kernels) += 1;
    }
}

/* ---- the fullest moment ------------------------------------------------------------------------------------------ */

static bool lives(const sw__storage *s, int32_t step)
{
    return s->kind == SW_STORE_ARENA && s->first >= 0 && s->bytes > 0 && s->first <= step && step <= s->last;
}

/* In the step of a handover both have the same memory: it counts once, as the new one's. */
static bool handed_over(const sw__schedule *s, uint32_t storage, int32_t step)
{
    if (s->storages[storage].last != step) return false;
    const sw__step *t = &s->steps[step];
    for (int k = t->n_in; k < t->n_in + t->n_out; k++)
        if (s->storages[t->refs[k].storage].reuse == (int32_t)storage) return true;
    return false;
}

/* The first step at which most bytes of the arena are in use, and how many. */
static sw_status fullest(const sw__schedule *s, int *step, uint64_t *most)
{
    /* by step: the bytes that come to life, less those that went with the step before */
    int64_t *const change = sw__calloc((size_t)s->n_steps + 2, sizeof *change);
    if (!change) return sw__no_memory(((size_t)s->n_steps + 2) * sizeof *change, "the plan's bytes by launch");
    for (uint32_t i = 0; i < s->n_storages; i++) {
        const sw__storage *const t = &s->storages[i];
        if (t->kind != SW_STORE_ARENA || t->first < 0 || t->bytes == 0) continue;
        const bool over = t->last < (int32_t)s->n_steps && handed_over(s, i, t->last);
        change[t->first] += (int64_t)t->bytes;
        change[over ? t->last : t->last + 1] -= (int64_t)t->bytes;
    }
    int64_t now = 0;
    *most = 0;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        now += change[i];
        if (now <= (int64_t)*most) continue;
        *most = (uint64_t)now;
        *step = (int)i;
    }
    sw__free(change);
    return SW_OK;
}

static const char *name_of(const sw__schedule *s, uint32_t storage)
{
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const sw__step *t = &s->steps[i];
        if (t->workspace == (int32_t)storage) return t->name;
        for (int k = t->n_in; k < t->n_in + t->n_out; k++)
            if (t->refs[k].storage == (int32_t)storage) return t->name;
    }
    return "";
}

static bool is_workspace(const sw__schedule *s, uint32_t storage)
{
    const sw__storage *t = &s->storages[storage];
    return t->first == t->last && t->first < (int32_t)s->n_steps && s->steps[t->first].workspace == (int32_t)storage;
}

/* Keeps the largest few, the larger first. */
static void note_tensor(const sw__schedule *s, uint32_t storage, const char *kind, sw_plan_peak *p)
{
    const uint64_t bytes = s->storages[storage].bytes;
    int at = p->n_largest;
    while (at > 0 && p->largest[at - 1].bytes < bytes) at--;
    if (at == SW_PLAN_TENSORS) return;
    const int moved = SW_MIN(p->n_largest, SW_PLAN_TENSORS - 1) - at;
    if (moved > 0) memmove(&p->largest[at + 1], &p->largest[at], (size_t)moved * sizeof *p->largest);
    p->largest[at] = (sw_plan_tensor){.kind = kind, .bytes = bytes};
    snprintf(p->largest[at].name, sizeof p->largest[at].name, "%s", name_of(s, storage));
    p->n_largest = SW_MIN(p->n_largest + 1, SW_PLAN_TENSORS);
}

sw_status sw__plan_peak(const sw__schedule *s, sw_plan *plan)
{
    sw_plan_peak *const p = &plan->peak;
    *p = (sw_plan_peak){.name = ""};
    uint64_t most = 0;
    SW_TRY(fullest(s, &p->launch, &most));
    if (most > 0) snprintf(p->name, sizeof p->name, "%s", s->steps[p->launch].name);
    for (uint32_t i = 0; i < s->n_storages && most > 0; i++) {
        if (!lives(&s->storages[i], p->launch) || handed_over(s, i, p->launch)) continue;
        const bool work = is_workspace(s, i), gradient = s->storages[i].gradient;
        *(work ? &p->workspace : gradient ? &p->gradients : &p->activations) += s->storages[i].bytes;
        note_tensor(s, i, work ? "workspace" : gradient ? "gradients" : "activation", p);
    }
    p->unused = plan->arena > most ? plan->arena - most : 0;
    return SW_OK;
}

/* ---- within so many bytes ---------------------------------------------------------------------------------------- */

/* The launches of the steps as they are now: repeated ones share what the backend made of the first. */
static sw_status follow(sw_program *p, const sw__schedule *s)
{
    sw__launch *const launches = sw__calloc(SW_MAX(s->n_steps, 1u), sizeof *launches);
    if (!launches) return sw__no_memory(s->n_steps * sizeof *launches, "the launch list");
    for (uint32_t i = 0; i < s->n_steps; i++) {
        launches[i] = p->launches[s->steps[i].origin];
        launches[i].shared |= s->steps[i].again;
    }
    sw__free(p->launches);
    p->launches = launches;
    p->n_launches = s->n_steps;
    sw__plan_count(p, s);
    return SW_OK;
}

sw_status sw__plan_within(sw_program *p, sw__schedule *s, const sw__traits *t, uint64_t budget)
{
    sw_plan *const plan = &p->plan;
    const uint64_t fixed = plan->total - plan->arena;
    plan->again.without = plan->total;
    if (budget == 0 || plan->total <= budget) return SW_OK;
    sw__recomputed r;
    SW_TRY(sw__recompute_until(s, t, budget > fixed ? (size_t)(budget - fixed) : 0, &r));
    SW_TRY(follow(p, s));
    plan->arena = s->arena_bytes;
    plan->total = fixed + plan->arena;
    plan->again.launches = (int)r.steps;
    plan->again.products = (int)r.dear;
    plan->again.flops = r.flops;
    plan->again.traffic = r.bytes;
    plan->again.slower = r.slower;
    if (r.fits) return SW_OK;
    return sw__fail(SW_ERR_MEMORY, "%s: %llu bytes are allowed, but the program needs %llu at least: %llu for variables, "
                    "%llu for inputs and constants, %llu for activations and gradients with all recomputed that helps",
                    p->device->info.id, (unsigned long long)budget, (unsigned long long)plan->total,
                    (unsigned long long)(plan->params + plan->buffers + plan->state),
                    (unsigned long long)(plan->inputs + plan->constants), (unsigned long long)plan->arena);
}
