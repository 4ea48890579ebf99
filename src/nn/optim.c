/* optim.c: optimisers as graphs over packed variables, and learning-rate schedules. Definitions are torch.optim's.
 * Appended to a training graph by sw_optimizer_apply; the trainer sets the scalars before each run. */
#include "graph/graph.h"
#include "swoop/nn.h"
#include <math.h>
#include <stdio.h>

/* An option left at 0 takes the default; SW_ZERO (-0.0) means zero. */
static double or_default(double given, double otherwise)
{
    if (given == 0) return signbit(given) ? 0 : otherwise;
    return given;
}

sw_optimizer sw_optimizer_resolved(const sw_optimizer *o)
{
    sw_optimizer r = *o;
    r.lr = or_default(o->lr, o->kind == SW_SGD ? 0.05 : 1e-3);
    r.momentum = or_default(o->momentum, 0);
    r.dampening = or_default(o->dampening, 0);
    r.betas[0] = or_default(o->betas[0], 0.9);
    r.betas[1] = or_default(o->betas[1], 0.999);
    r.eps = or_default(o->eps, 1e-8);
    r.weight_decay = or_default(o->weight_decay, o->kind == SW_ADAMW ? 0.01 : 0);
    r.clip_norm = or_default(o->clip_norm, 0);
    return r;
}

void sw_optimizer_scalars(const sw_optimizer *o, int64_t t, double lr, double *lr_out, double *bias1, double *bias2)
{
    const sw_optimizer r = sw_optimizer_resolved(o);
    *lr_out = lr;
    if (r.kind == SW_SGD) { /* the first gradient enters the momentum undamped */
        *bias1 = t == 0 ? 1 : 1 - r.dampening;
        *bias2 = 1;
        return;
    }
    *bias1 = 1 - pow(r.betas[0], (double)(t + 1));
    *bias2 = 1 - pow(r.betas[1], (double)(t + 1));
}

/* ---- one flat update -------------------------------------------------------------------------------------------------------- */

/* A group of parameters as one flat tensor: values, gradients, and what the update needs. */
typedef struct flat {
    sw_graph *g;
    const sw_optimizer *o;
    uint32_t group;
    const sw_t *params; /* the n parameters of the group */
    uint32_t n;
    sw_t p, grad;       /* flat */
    sw_t lr, bias1, bias2;
    sw_t good;          /* skip_nonfinite: the loss is finite (bool scalar); else invalid */
    double decay;
} flat;

/* One state variable for each parameter ("fc1.weight.exp_avg"), packed like the parameters: the flat tensor. */
static sw_t flat_state(const flat *f, const char *what)
{
    sw_t *vars = sw__malloc(f->n * sizeof *vars);
    if (!vars) return sw__graph_error(f->g, SW_ERR_MEMORY, "out of memory: optimiser state");
    for (uint32_t i = 0; i < f->n; i++) {
        char name[512];
        int64_t shape[SW_MAX_RANK];
        for (int k = 0; k < sw_rank(f->params[i]); k++) shape[k] = sw_dim(f->params[i], k);
        snprintf(name, sizeof name, "%s.%s", sw_name(f->params[i]), what);
        vars[i] = sw_variable(f->g, name, SW_VAR_STATE, SW_F32, sw_rank(f->params[i]), shape, (sw_init){0});
    }
    uint32_t group = 0;
    const sw_status st = sw__var_group(f->g, vars, f->n, &group);
    sw__free(vars);
    return st == SW_OK ? sw__varpack(f->g, group) : SW_NONE;
}

/* variable takes value, but keeps its own if the loss was not finite and such steps are to be skipped. */
static void assign(const flat *f, sw_t variable, sw_t value)
{
    sw_assign(variable, sw_valid(f->good) ? sw_where(f->good, value, variable) : value);
}

static sw_t scaled(sw_t x, double c)
{
    return c == 1 ? x : sw_mul_scalar(x, c);
}

/* a x + b y */
static sw_t mix(double a, sw_t x, double b, sw_t y)
{
    return sw_add(scaled(x, a), scaled(y, b));
}

/* g += wd p; v = momentum v + (1 - dampening) g (v = g at first); p -= lr v, or lr (g + momentum v) with Nesterov. */
static void update_sgd(const flat *f)
{
    const sw_optimizer *o = f->o;
    const sw_t g = f->decay > 0 ? mix(1, f->grad, f->decay, f->p) : f->grad;
    sw_t step = g;
    if (o->momentum != 0) {
        const sw_t state = flat_state(f, "momentum_buffer");
        const sw_t v = sw_add(sw_mul_scalar(state, o->momentum), o->dampening != 0 ? sw_mul(g, f->bias1) : g);
        assign(f, state, v);
        step = o->nesterov ? mix(1, g, o->momentum, v) : v;
    }
    assign(f, f->p, sw_sub(f->p, sw_mul(step, f->lr)));
}

/* m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
 * Adam (Kingma & Ba 2015) adds wd p to g; AdamW (Loshchilov & Hutter 2019) scales p by 1 - lr wd first. */
static void update_adam(const flat *f)
{
    const sw_optimizer *o = f->o;
    const double b1 = o->betas[0], b2 = o->betas[1];
    sw_t p = f->p, g = f->grad;
    if (f->decay > 0 && o->kind == SW_ADAM) g = mix(1, g, f->decay, p);
    if (f->decay > 0 && o->kind == SW_ADAMW) p = sw_sub(p, sw_mul(p, sw_mul_scalar(f->lr, f->decay)));
    const sw_t m_state = flat_state(f, "exp_avg"), v_state = flat_state(f, "exp_avg_sq");
    const sw_t m = mix(b1, m_state, 1 - b1, g), v = mix(b2, v_state, 1 - b2, sw_mul(g, g));
    assign(f, m_state, m);
    assign(f, v_state, v);
    /* the scalars lr/(1 - b1^t) and 1/sqrt(1 - b2^t) are computed once, not for each element */
    const sw_t rate = sw_div(f->lr, f->bias1), spread = sw_rsqrt(f->bias2);
    const sw_t denominator = sw_add_scalar(sw_mul(sw_sqrt(v), spread), o->eps);
    assign(f, f->p, sw_sub(p, sw_div(sw_mul(m, rate), denominator)));
}

static void (*const updates[])(const flat *) = {
    [SW_SGD] = update_sgd,
    [SW_ADAM] = update_adam,
    [SW_ADAMW] = update_adam,
};

/* ---- the whole -------------------------------------------------------------------------------------------------------------- */

static bool is_frozen(sw_t p, const sw_t *frozen, int n)
{
    for (int i = 0; i < n; i++)
        if (frozen[i].id == p.id) return true;
    return false;
}

/* The parameters to learn, those of the first group (decayed, if only matrices are) before the others. */
static sw_status collect(sw_graph *g, bool split, const sw_t *frozen, int n_frozen, sw_t **out, uint32_t n[2])
{
    const int count = sw_graph_variables(g, SW_VAR_PARAM, NULL, 0);
    sw_t *all = sw__malloc(2 * SW_MAX((size_t)count, (size_t)1) * sizeof *all);
    if (!all) return sw__no_memory((size_t)count * sizeof *all, "the list of parameters");
    sw_t *from = all + count;
    sw_graph_variables(g, SW_VAR_PARAM, from, count);
    uint32_t at = 0;
    for (int part = 0; part < 2; part++) {
        n[part] = 0;
        for (int i = 0; i < count; i++) {
            const bool second = split && sw_rank(from[i]) < 2;
            if (second != (part == 1) || is_frozen(from[i], frozen, n_frozen)) continue;
            all[at++] = from[i];
            n[part]++;
        }
    }
    *out = all;
    return SW_OK;
}

/* Scales both groups' gradients so that the L2 norm over all of them is at most `most`:
 * g *= min(1, most / (norm + 1e-6)) (Pascanu et al. 2013, torch.nn.utils.clip_grad_norm_). */
static void clip(sw_graph *g, flat f[2], int n, double most)
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

static sw_status make_flat(flat *f, sw_graph *g, const sw_optimizer *o, const sw_t *params, const sw_t *grads, uint32_t n,
                           double decay)
{
    *f = (flat){.g = g, .o = o, .params = params, .n = n, .decay = decay};
    SW_TRY(sw__var_group(g, params, n, &f->group));
    f->p = sw__varpack(g, f->group);
    f->grad = sw__pack(g, f->group, grads);
    return SW_OK;
}

/* What the host sets for each step, only what this optimiser reads; and whether the step counts at all. */
static flat make_scalars(sw_graph *g, const sw_optimizer *o, sw_t loss)
{
    flat f = {.lr = sw_input(g, SW_INPUT_LR, SW_F32, 0, NULL)};
    if (o->kind != SW_SGD || o->dampening != 0) f.bias1 = sw_input(g, SW_INPUT_BIAS1, SW_F32, 0, NULL);
    if (o->kind != SW_SGD) f.bias2 = sw_input(g, SW_INPUT_BIAS2, SW_F32, 0, NULL);
    if (o->skip_nonfinite) f.good = sw_eq(sw_sub(loss, loss), sw_const(g, sw_type(loss), 0)); /* inf - inf is NaN */
    return f;
}

sw_status sw_optimizer_apply(const sw_optimizer *optimizer, sw_t loss, const sw_t *frozen, int n_frozen)
{
    if (!optimizer || (unsigned)optimizer->kind >= SW_COUNT(updates))
        return sw__fail(SW_ERR_ARGUMENT, "sw_optimizer_apply: no such optimiser");
    if (!loss.graph) return sw__fail(SW_ERR_ARGUMENT, "sw_optimizer_apply: the loss is invalid");
    sw_graph *g = loss.graph;
    SW_TRY(sw_graph_status(g));
    const sw_optimizer o = sw_optimizer_resolved(optimizer);
    if (o.nesterov && (o.kind != SW_SGD || o.momentum <= 0 || o.dampening != 0))
        return sw__fail(SW_ERR_ARGUMENT, "nesterov needs sgd with momentum > 0 and no dampening");
    const bool split = o.decay_matrices && o.weight_decay > 0;
    sw_t *params = NULL;
    uint32_t n[2];
    SW_TRY(collect(g, split, frozen, n_frozen, &params, n));
    const uint32_t total = n[0] + n[1];
    sw_t *grads = sw__malloc(SW_MAX(total, 1u) * sizeof *grads);
    sw_status st = grads ? SW_OK : sw__no_memory(total * sizeof *grads, "the list of gradients");
    if (st == SW_OK && total == 0)
        st = sw__fail(SW_ERR_ARGUMENT, "there is nothing to learn: the graph has no parameter that is not frozen");
    if (st == SW_OK) st = sw_grad(loss, params, (int)total, grads);
    flat f[2];
    int flats = 0;
    for (uint32_t part = 0, at = 0; part < 2 && st == SW_OK; at += n[part++])
        if (n[part])
            st = make_flat(&f[flats++], g, &o, params + at, grads + at, n[part], part == 0 ? o.weight_decay : 0);
    if (st == SW_OK) {
        if (o.clip_norm > 0) clip(g, f, flats, o.clip_norm);
        const flat scalars = make_scalars(g, &o, loss);
        for (int i = 0; i < flats; i++) {
            f[i].lr = scalars.lr;
            f[i].bias1 = scalars.bias1;
            f[i].bias2 = scalars.bias2;
            f[i].good = scalars.good;
            updates[o.kind](&f[i]);
        }
        st = sw_graph_status(g);
    }
    sw__free(grads);
    sw__free(params);
    return st;
}

/* ---- schedules ---------------------------------------------------------------------------------------------------------------- */

double sw_schedule_lr(const sw_schedule *c, double lr, int64_t s)
{
    if (!c) return lr;
    if (s < c->warmup) return lr * (double)(s + 1) / (double)c->warmup;
    const int64_t span = c->total - c->warmup;
    const double done = span > 0 ? (double)SW_MIN(s - c->warmup, span) / (double)span : 1;
    switch (c->kind) {
    case SW_SCHEDULE_CONSTANT: return lr;
    case SW_SCHEDULE_STEP: {
        const int64_t drops = c->step_size > 0 ? s / c->step_size : 0;
        return lr * pow(c->gamma > 0 ? c->gamma : 0.1, (double)drops);
    }
    case SW_SCHEDULE_COSINE: return c->min_lr + (lr - c->min_lr) / 2 * (1 + cos(acos(-1) * done));
    case SW_SCHEDULE_LINEAR: return lr + (c->min_lr - lr) * done;
    }
    return lr;
}
