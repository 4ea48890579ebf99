/* optim.c: the graph around an optimiser: gradients, groups of parameters, clipping, the scalars that the host sets. The
 * updates themselves are in optim_rules.c. Appended to a training graph by sw_optimizer_apply. */
#include "nn/optim.h"
#include <fnmatch.h>
#include <math.h>

/* An option left at 0 takes the default; SW_ZERO (-0.0) means zero, and stays what it is: the command resolves its
 * options, and so do the trainer and sw_optimizer_apply. */
static double or_default(double given, double otherwise)
{
    return given == 0 && !signbit(given) ? otherwise : given;
}

const char *sw_optimizer_name(sw_optimizer_kind kind)
{
    return (unsigned)kind < SW_OPTIMIZER_COUNT ? sw__rules[kind].name : NULL;
}

sw_optimizer sw_optimizer_resolved(const sw_optimizer *o)
{
    if ((unsigned)o->kind >= SW_OPTIMIZER_COUNT) return *o;
    const sw_optimizer *const d = &sw__rules[o->kind].defaults;
    sw_optimizer r = *o;
    r.lr = or_default(o->lr, d->lr);
    r.momentum = or_default(o->momentum, 0);
    r.dampening = or_default(o->dampening, 0);
    r.betas[0] = or_default(o->betas[0], d->betas[0]);
    r.betas[1] = or_default(o->betas[1], d->betas[1]);
    r.eps = or_default(o->eps, d->eps);
    r.alpha = or_default(o->alpha, d->alpha);
    r.lr_decay = or_default(o->lr_decay, 0);
    r.momentum_decay = or_default(o->momentum_decay, d->momentum_decay);
    r.weight_decay = or_default(o->weight_decay, d->weight_decay);
    r.clip_norm = or_default(o->clip_norm, 0);
    r.clip_value = or_default(o->clip_value, 0);
    return r;
}

void sw_optimizer_scalars(const sw_optimizer *o, int64_t t, double lr, double *lr_out, double *bias1, double *bias2)
{
    sw__scalars s = {lr, 1, 1};
    const sw_optimizer r = sw_optimizer_resolved(o);
    if ((unsigned)r.kind < SW_OPTIMIZER_COUNT && sw__rules[r.kind].scalars) sw__rules[r.kind].scalars(&r, t, &s);
    *lr_out = s.lr;
    *bias1 = s.bias1;
    *bias2 = s.bias2;
}

/* ---- which parameters are treated alike ---------------------------------------------------------------------------------------- */

#define MAX_CLASSES (2 * (SW_MAX_PARAM_GROUPS + 1)) /* a group's decayed parameters, and those that are not */

typedef struct selection {
    sw_t *params; /* to learn, class by class */
    uint32_t n[MAX_CLASSES], total;
    double decay[MAX_CLASSES], scale[MAX_CLASSES];
    bool late[MAX_CLASSES];
    bool apart; /* there are late ones: groups stay apart, so that they lie in the same places with some of them frozen */
    int classes;
} selection;

static bool is_frozen(sw_t p, const sw_t *frozen, int n)
{
    for (int i = 0; i < n; i++)
        if (frozen[i].id == p.id) return true;
    return false;
}

int sw__optimizer_group(const sw_optimizer *o, const char *name)
{
    int i = 0;
    while (i < o->n_groups && fnmatch(o->groups[i].pattern, name, 0) != 0) i++;
    return i;
}

static bool belongs(const sw_optimizer *o, sw_t p, int group, bool decayed)
{
    return sw__optimizer_group(o, sw_name(p)) == group && (!o->decay_matrices || sw_rank(p) >= 2) == decayed;
}

static void open_class(const sw_optimizer *o, int group, bool decayed, selection *s)
{
    const sw_param_group *const own = group < o->n_groups ? &o->groups[group] : NULL;
    const double decay = own ? or_default(own->weight_decay, o->weight_decay) : o->weight_decay;
    s->decay[s->classes] = decayed ? decay : 0;
    s->scale[s->classes] = own ? or_default(own->lr_scale, 1) : 1;
    s->late[s->classes] = own && own->late;
    s->n[s->classes] = 0;
}

/* Classes without a difference between them (no decay at all) become one. */
static bool same_class(const selection *s, int a, int b)
{
    return s->decay[a] == s->decay[b] && s->scale[a] == s->scale[b];
}

static sw_status select_params(sw_graph *g, const sw_optimizer *o, const sw_t *frozen, int n_frozen, selection *s)
{
    const int count = sw_graph_variables(g, SW_VAR_PARAM, NULL, 0);
    sw_t *const all = sw__malloc(2 * SW_MAX((size_t)count, (size_t)1) * sizeof *all);
    if (!all) return sw__no_memory((size_t)count * sizeof *all, "the list of parameters");
    sw_t *const from = all + count;
    sw_graph_variables(g, SW_VAR_PARAM, from, count);
    s->params = all;
    for (int i = 0; i < o->n_groups; i++) s->apart |= o->groups[i].late;
    for (int group = 0; group <= o->n_groups; group++) {
        if (group < o->n_groups && o->groups[group].frozen) continue;
        const int first = s->classes;
        for (int part = 0; part < 2; part++) {
            open_class(o, group, part == 0, s);
            for (int i = 0; i < count; i++) {
                if (!belongs(o, from[i], group, part == 0) || is_frozen(from[i], frozen, n_frozen)) continue;
                all[s->total++] = from[i];
                s->n[s->classes]++;
            }
            const int last = s->classes - 1;
            if (s->n[s->classes] == 0) continue;
            if (last >= (s->apart ? first : 0) && same_class(s, last, s->classes)) s->n[last] += s->n[s->classes];
            else s->classes++;
        }
    }
    return SW_OK;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------------- */

/* Scales all gradients so that the L2 norm over all of them is at most `most`:
 * g *= min(1, most / (norm + 1e-6)) (Pascanu et al. 2013, torch.nn.utils.clip_grad_norm_). */
static void clip_norm(sw_graph *g, sw__flat *f, int n, double most)
{
    sw_t sum = SW_NONE;
    for (int i = 0; i < n; i++) {
        const sw_t squares = sw_sum(sw_mul(f[i].grad, f[i].grad), SW_ALL_AXES, false);
        sum = i ? sw_add(sum, squares) : squares;
    }
    const sw_t norm = sw_output(sw_sqrt(sum), "grad_norm");
    const sw_t scale = sw_min(sw_const(g, SW_F32, 1), sw_div(sw_const(g, SW_F32, most), sw_add_scalar(norm, 1e-6)));
    for (int i = 0; i < n; i++) f[i].grad = sw_mul(f[i].grad, scale);
}

/* Each element between -most and most (torch.nn.utils.clip_grad_value_). */
static void clip_value(sw_graph *g, sw__flat *f, int n, double most)
{
    for (int i = 0; i < n; i++)
        f[i].grad = sw_max(sw_min(f[i].grad, sw_const(g, SW_F32, most)), sw_const(g, SW_F32, -most));
}

static sw_status make_flat(sw__flat *f, sw_graph *g, const sw_optimizer *o, const sw_t *params, const sw_t *grads,
                           uint32_t n, double decay)
{
    *f = (sw__flat){.g = g, .o = o, .params = params, .n = n, .decay = decay};
    SW_TRY(sw__var_group(g, params, n, &f->group));
    f->p = sw__varpack(g, f->group);
    if (grads) f->grad = sw__pack(g, f->group, grads);
    return SW_OK;
}

/* The gradients of the micro-batches so far, this one's added: the first replaces what is left from the step before. */
static void accumulate(sw__flat *f, const sw__accumulate *a)
{
    const sw_t sum = sw__flat_state(f, SW__ACCUMULATED);
    if (a->part != SW__PART_UPDATE) {
        f->grad = sw_add(sw_where(a->keep, sum, sw_const(f->g, SW_F32, 0)), sw_mul(f->grad, a->scale));
        sw_assign(sum, f->grad);
    } else {
        f->grad = sum;
    }
}

/* What the host sets for each step, only what this optimiser reads; and whether the step counts at all. */
static sw__flat make_scalars(sw_graph *g, const sw_optimizer *o, sw_t loss, bool late)
{
    const sw__rule *const rule = &sw__rules[o->kind];
    sw__flat f = {.lr = sw_input(g, late ? SW_INPUT_LR SW_INPUT_LATE : SW_INPUT_LR, SW_F32, 0, NULL)};
    if (rule->bias1 && (o->kind != SW_SGD || o->dampening != 0))
        f.bias1 = sw_input(g, late ? SW_INPUT_BIAS1 SW_INPUT_LATE : SW_INPUT_BIAS1, SW_F32, 0, NULL);
    if (rule->bias2) f.bias2 = sw_input(g, late ? SW_INPUT_BIAS2 SW_INPUT_LATE : SW_INPUT_BIAS2, SW_F32, 0, NULL);
    if (o->skip_nonfinite) f.good = sw_eq(sw_sub(loss, loss), sw_const(g, sw_type(loss), 0)); /* inf - inf is NaN */
    return f;
}

static sw_status check_options(const sw_optimizer *o)
{
    if (o->nesterov && (o->kind != SW_SGD || o->momentum <= 0 || o->dampening != 0))
        return sw__fail(SW_ERR_ARGUMENT, "nesterov needs sgd with momentum > 0 and no dampening");
    if (o->n_groups < 0 || o->n_groups > SW_MAX_PARAM_GROUPS || (o->n_groups > 0 && !o->groups))
        return sw__fail(SW_ERR_ARGUMENT, "%d parameter groups; at most %d can be given", o->n_groups, SW_MAX_PARAM_GROUPS);
    for (int i = 0; i < o->n_groups; i++)
        if (!o->groups[i].pattern) return sw__fail(SW_ERR_ARGUMENT, "parameter group %d has no pattern", i);
    return SW_OK;
}

static sw_status append(sw_graph *g, const sw_optimizer *o, sw_t loss, const selection *s, const sw_t *grads,
                        const sw__loss_scale *scale, const sw__accumulate *a)
{
    sw_t finite = SW_NONE;
    sw__flat f[MAX_CLASSES];
    uint32_t at = 0;
    for (int i = 0; i < s->classes; at += s->n[i++])
        SW_TRY(make_flat(&f[i], g, o, s->params + at, grads ? grads + at : NULL, s->n[i], s->decay[i]));
    for (int i = 0; i < s->classes && a->part != SW__PART_WHOLE; i++) accumulate(&f[i], a);
    if (a->part == SW__PART_ACCUMULATE) return sw_graph_status(g);
    if (o->loss_scale > 0) finite = sw__scale_step(g, o, scale, f, s->classes);
    if (o->clip_value > 0) clip_value(g, f, s->classes, o->clip_value);
    if (o->clip_norm > 0) clip_norm(g, f, s->classes, o->clip_norm);
    sw__flat scalars[2];
    bool made[2] = {false, false};
    for (int i = 0; i < s->classes; i++) {
        sw__flat *const from = &scalars[s->late[i]];
        if (!made[s->late[i]]) *from = make_scalars(g, o, loss, s->late[i]);
        made[s->late[i]] = true;
        f[i].lr = s->scale[i] == 1 ? from->lr : sw_mul_scalar(from->lr, s->scale[i]);
        f[i].bias1 = from->bias1;
        f[i].bias2 = from->bias2;
        f[i].good = !sw_valid(finite) ? from->good : sw_valid(from->good) ? sw_and(from->good, finite) : finite;
        sw__rules[o->kind].update(&f[i]);
    }
    return sw_graph_status(g);
}

sw_status sw_optimizer_apply(const sw_optimizer *optimizer, sw_t loss, const sw_t *frozen, int n_frozen)
{
    return sw__optimizer_part(optimizer, loss, frozen, n_frozen, &(sw__accumulate){.part = SW__PART_WHOLE});
}

sw_status sw__optimizer_part(const sw_optimizer *optimizer, sw_t loss, const sw_t *frozen, int n_frozen,
                             const sw__accumulate *a)
{
    if (!optimizer || (unsigned)optimizer->kind >= SW_OPTIMIZER_COUNT)
        return sw__fail(SW_ERR_ARGUMENT, "sw_optimizer_apply: no such optimiser");
    if (!loss.graph) return sw__fail(SW_ERR_ARGUMENT, "sw_optimizer_apply: the loss is invalid");
    sw_graph *g = loss.graph;
    SW_TRY(sw_graph_status(g));
    const sw_optimizer o = sw_optimizer_resolved(optimizer);
    SW_TRY(check_options(&o));
    selection s = {0};
    sw_t *grads = NULL;
    sw_status st = select_params(g, &o, frozen, n_frozen, &s);
    if (st == SW_OK && s.total == 0)
        st = sw__fail(SW_ERR_ARGUMENT, "sw_optimizer_apply: there is nothing to learn: the graph has no parameter (sw_param, or of a "
                      "layer) that is not frozen");
    const bool derive = a->part != SW__PART_UPDATE, scaled = o.loss_scale > 0;
    if (st == SW_OK && derive && !(grads = sw__malloc(s.total * sizeof *grads)))
        st = sw__no_memory(s.total * sizeof *grads, "the list of gradients");
    sw__loss_scale scale = {0};
    const sw_t seed = st == SW_OK && scaled ? sw__scale_of(loss, &o, &scale) : SW_NONE;
    if (st == SW_OK && derive) st = scaled ? sw_grad_from(loss, seed, s.params, (int)s.total, grads)
                                           : sw_grad(loss, s.params, (int)s.total, grads);
    if (st == SW_OK) st = append(g, &o, loss, &s, grads, &scale, a);
    sw__free(grads);
    sw__free(s.params);
    return st;
}
