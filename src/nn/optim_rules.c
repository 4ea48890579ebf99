/* optim_rules.c: the update rules of optimisers, each as a graph over one flat tensor of parameters, with its defaults and
 * the scalars that the host computes for each step. Definitions are torch.optim's unless a paper is named; t counts from 1
 * in the formulas. A new rule is a function here, a row of the table and a name in the enum. Used by optim.c. */
#include "nn/optim.h"
#include <math.h>
#include <stdio.h>

sw_t sw__flat_state(const sw__flat *f, const char *what)
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
static void assign(const sw__flat *f, sw_t variable, sw_t value)
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
static void update_sgd(const sw__flat *f)
{
    const sw_optimizer *o = f->o;
    const sw_t g = f->decay > 0 ? mix(1, f->grad, f->decay, f->p) : f->grad;
    sw_t step = g;
    if (o->momentum != 0) {
        const sw_t state = sw__flat_state(f, "momentum_buffer");
        const sw_t v = sw_add(sw_mul_scalar(state, o->momentum), o->dampening != 0 ? sw_mul(g, f->bias1) : g);
        assign(f, state, v);
        step = o->nesterov ? mix(1, g, o->momentum, v) : v;
    }
    assign(f, f->p, sw_sub(f->p, sw_mul(step, f->lr)));
}

/* Adam's two moments of g, as the step leaves them: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g². */
typedef struct moments { sw_t m, v; } moments;

static moments next_moments(const sw__flat *f, sw_t g)
{
    const double b1 = f->o->betas[0], b2 = f->o->betas[1];
    const sw_t m_state = sw__flat_state(f, "exp_avg"), v_state = sw__flat_state(f, "exp_avg_sq");
    const moments next = {mix(b1, m_state, 1 - b1, g), mix(b2, v_state, 1 - b2, sw_mul(g, g))};
    assign(f, m_state, next.m);
    assign(f, v_state, next.v);
    return next;
}

/* AMSGrad (Reddi et al. 2018) divides by the greatest v so far. */
static sw_t second_moment(const sw__flat *f, sw_t v)
{
    if (!f->o->amsgrad) return v;
    const sw_t state = sw__flat_state(f, "max_exp_avg_sq"), most = sw_max(state, v);
    assign(f, state, most);
    return most;
}

/* m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
 * Adam (Kingma & Ba 2015) adds wd p to g; AdamW (Loshchilov & Hutter 2019) scales p by 1 - lr wd first. */
static void update_adam(const sw__flat *f)
{
    const sw_optimizer *o = f->o;
    sw_t p = f->p, g = f->grad;
    if (f->decay > 0 && o->kind == SW_ADAM) g = mix(1, g, f->decay, p);
    if (f->decay > 0 && o->kind == SW_ADAMW) p = sw_sub(p, sw_mul(p, sw_mul_scalar(f->lr, f->decay)));
    const moments next = next_moments(f, g);
    /* the scalars lr/(1 - b1^t) and 1/sqrt(1 - b2^t) are computed once, not for each element */
    const sw_t rate = sw_div(f->lr, f->bias1), spread = sw_rsqrt(f->bias2);
    const sw_t denominator = sw_add_scalar(sw_mul(sw_sqrt(second_moment(f, next.v)), spread), o->eps);
    assign(f, f->p, sw_sub(p, sw_div(sw_mul(next.m, rate), denominator)));
}

static sw_t decayed(const sw__flat *f)
{
    return f->decay > 0 ? mix(1, f->grad, f->decay, f->p) : f->grad;
}

/* Nesterov's momentum in Adam (Dozat 2016): with mu_t = b1 (1 - 0.96^(t md) / 2) and M_t their product,
 * p -= lr ((1 - mu_t)/(1 - M_t) g + mu_(t+1)/(1 - M_(t+1)) m) / (sqrt(v / (1 - b2^t)) + eps).
 * The host puts the first factor into lr, and the second over the first into bias1. */
static void update_nadam(const sw__flat *f)
{
    const sw_t g = decayed(f);
    const moments next = next_moments(f, g);
    const sw_t denominator = sw_add_scalar(sw_mul(sw_sqrt(next.v), sw_rsqrt(f->bias2)), f->o->eps);
    assign(f, f->p, sw_sub(f->p, sw_div(sw_mul(sw_add(g, sw_mul(next.m, f->bias1)), f->lr), denominator)));
}

static double nadam_mu(const sw_optimizer *o, double t)
{
    return o->betas[0] * (1 - 0.5 * pow(0.96, t * o->momentum_decay));
}

static void nadam_scalars(const sw_optimizer *o, int64_t t, sw__scalars *s)
{
    double product = 1; /* once it is below 1e-20, 1 - product is 1 */
    for (int64_t i = 1; i <= t + 1 && product > 1e-20; i++) product *= nadam_mu(o, (double)i);
    const double mu = nadam_mu(o, (double)(t + 1)), next = nadam_mu(o, (double)(t + 2));
    const double of_g = (1 - mu) / (1 - product), of_m = next / (1 - product * next);
    s->lr *= of_g;
    s->bias1 = of_m / of_g;
    s->bias2 = 1 - pow(o->betas[1], (double)(t + 1));
}

/* Rectified Adam (Liu et al. 2020): p -= lr / (1 - b1^t) m (r_t sqrt(1 - b2^t) / (sqrt(v) + eps)) once the variance of the
 * adaptive rate is tractable, p -= lr / (1 - b1^t) m before. bias1 is the factor of the former, bias2 of the latter. */
static void update_radam(const sw__flat *f)
{
    const moments next = next_moments(f, decayed(f));
    const sw_t rate = sw_add(sw_div(f->bias1, sw_add_scalar(sw_sqrt(next.v), f->o->eps)), f->bias2);
    assign(f, f->p, sw_sub(f->p, sw_mul(sw_mul(next.m, f->lr), rate)));
}

static void radam_scalars(const sw_optimizer *o, int64_t t, sw__scalars *s)
{
    const double n = (double)(t + 1), b2t = pow(o->betas[1], n), most = 2 / (1 - o->betas[1]) - 1;
    const double length = most - 2 * n * b2t / (1 - b2t); /* of the simple moving average that approximates it */
    s->lr /= 1 - pow(o->betas[0], n);
    const bool tractable = length > 5;
    const double r = tractable ? sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) : 0;
    s->bias1 = r * sqrt(1 - b2t);
    s->bias2 = tractable ? 0 : 1;
}

/* Tieleman & Hinton 2012: v = alpha v + (1 - alpha) g²; p -= lr g / (sqrt(v) + eps). centered: of the variance, v minus the
 * mean's square (Graves 2013). With momentum: b = momentum b + g / (sqrt(v) + eps); p -= lr b. */
static void update_rmsprop(const sw__flat *f)
{
    const double a = f->o->alpha;
    const sw_t g = decayed(f), state = sw__flat_state(f, "square_avg"), v = mix(a, state, 1 - a, sw_mul(g, g));
    assign(f, state, v);
    sw_t spread = v;
    if (f->o->centered) {
        const sw_t mean_state = sw__flat_state(f, "grad_avg"), mean = mix(a, mean_state, 1 - a, g);
        assign(f, mean_state, mean);
        spread = sw_sub(v, sw_mul(mean, mean));
    }
    sw_t move = sw_div(g, sw_add_scalar(sw_sqrt(spread), f->o->eps));
    if (f->o->momentum != 0) {
        const sw_t buffer = sw__flat_state(f, "momentum_buffer");
        move = mix(f->o->momentum, buffer, 1, move);
        assign(f, buffer, move);
    }
    assign(f, f->p, sw_sub(f->p, sw_mul(move, f->lr)));
}

/* Duchi et al. 2011: s += g²; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). */
static void update_adagrad(const sw__flat *f)
{
    const sw_t g = decayed(f), state = sw__flat_state(f, "sum"), s = sw_add(state, sw_mul(g, g));
    assign(f, state, s);
    assign(f, f->p, sw_sub(f->p, sw_div(sw_mul(g, f->lr), sw_add_scalar(sw_sqrt(s), f->o->eps))));
}

static void adagrad_scalars(const sw_optimizer *o, int64_t t, sw__scalars *s)
{
    s->lr /= 1 + (double)t * o->lr_decay;
}

/* Zeiler 2012: v = alpha v + (1 - alpha) g²; d = sqrt(u + eps) / sqrt(v + eps) g; u = alpha u + (1 - alpha) d²; p -= lr d. */
static void update_adadelta(const sw__flat *f)
{
    const double a = f->o->alpha;
    const sw_t g = decayed(f), v_state = sw__flat_state(f, "square_avg"), u_state = sw__flat_state(f, "acc_delta");
    const sw_t v = mix(a, v_state, 1 - a, sw_mul(g, g));
    const sw_t ratio = sw_div(sw_sqrt(sw_add_scalar(u_state, f->o->eps)), sw_sqrt(sw_add_scalar(v, f->o->eps)));
    const sw_t d = sw_mul(ratio, g);
    assign(f, v_state, v);
    assign(f, u_state, mix(a, u_state, 1 - a, sw_mul(d, d)));
    assign(f, f->p, sw_sub(f->p, sw_mul(d, f->lr)));
}

/* Adam with the infinity norm (Kingma & Ba 2015): u = max(b2 u, |g| + eps); p -= lr / (1 - b1^t) m / u. */
static void update_adamax(const sw__flat *f)
{
    const double b1 = f->o->betas[0], b2 = f->o->betas[1];
    const sw_t g = decayed(f), m_state = sw__flat_state(f, "exp_avg"), u_state = sw__flat_state(f, "exp_inf");
    const sw_t m = mix(b1, m_state, 1 - b1, g);
    const sw_t u = sw_max(sw_mul_scalar(u_state, b2), sw_add_scalar(sw_abs(g), f->o->eps));
    assign(f, m_state, m);
    assign(f, u_state, u);
    assign(f, f->p, sw_sub(f->p, sw_div(sw_mul(m, f->lr), u)));
}

static void adamax_scalars(const sw_optimizer *o, int64_t t, sw__scalars *s)
{
    s->lr /= 1 - pow(o->betas[0], (double)(t + 1));
}

static sw_t sign(sw_t x)
{
    const sw_t zero = sw_mul_scalar(sw_stop_gradient(x), 0), one = sw_const(x.graph, sw_type(x), 1);
    return sw_where(sw_gt(x, zero), one, sw_where(sw_lt(x, zero), sw_neg(one), zero)); /* NaN stays NaN */
}

/* Chen et al. 2023: p -= lr (sign(b1 m + (1 - b1) g) + wd p); m = b2 m + (1 - b2) g. */
static void update_lion(const sw__flat *f)
{
    const double b1 = f->o->betas[0], b2 = f->o->betas[1];
    const sw_t state = sw__flat_state(f, "exp_avg");
    sw_t move = sign(mix(b1, state, 1 - b1, f->grad));
    if (f->decay > 0) move = mix(1, move, f->decay, f->p);
    assign(f, state, mix(b2, state, 1 - b2, f->grad));
    assign(f, f->p, sw_sub(f->p, sw_mul(move, f->lr)));
}

static sw_t norm(sw_t x)
{
    return sw_sqrt(sw_sum(sw_mul(x, x), SW_ALL_AXES, false));
}

/* You et al. 2020, per tensor: r = m̂ / (sqrt(v̂) + eps) + wd p; p -= lr |p| / |r| r, and a ratio of 1 where a norm is 0. */
static void update_lamb(const sw__flat *f)
{
    const moments next = next_moments(f, f->grad);
    const sw_t spread = sw_add_scalar(sw_mul(sw_sqrt(next.v), sw_rsqrt(f->bias2)), f->o->eps);
    sw_t r = sw_div(sw_div(next.m, f->bias1), spread);
    if (f->decay > 0) r = mix(1, r, f->decay, f->p);
    sw_t *const ratios = sw__malloc(f->n * sizeof *ratios);
    if (!ratios) {
        sw__graph_error(f->g, SW_ERR_MEMORY, "out of memory: trust ratios");
        return;
    }
    const sw_t zero = sw_const(f->g, SW_F32, 0), one = sw_const(f->g, SW_F32, 1);
    for (uint32_t i = 0; i < f->n; i++) {
        int64_t shape[SW_MAX_RANK];
        for (int k = 0; k < sw_rank(f->params[i]); k++) shape[k] = sw_dim(f->params[i], k);
        const int64_t place = f->g->vars[f->g->nodes[f->params[i].id].attr.slot.index].place;
        const sw_t of_p = norm(f->params[i]), of_r = norm(sw_narrow(r, 0, place, sw_elements(f->params[i])));
        const sw_t both = sw_and(sw_gt(of_p, zero), sw_gt(of_r, zero));
        ratios[i] = sw_expand(sw_where(both, sw_div(of_p, of_r), one), sw_rank(f->params[i]), shape);
    }
    const sw_t ratio = sw__pack(f->g, f->group, ratios);
    sw__free(ratios);
    assign(f, f->p, sw_sub(f->p, sw_mul(sw_mul(r, ratio), f->lr)));
}

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

/* The first gradient enters the momentum undamped. */
static void sgd_scalars(const sw_optimizer *o, int64_t t, sw__scalars *s)
{
    s->bias1 = t == 0 ? 1 : 1 - o->dampening;
}

static void adam_scalars(const sw_optimizer *o, int64_t t, sw__scalars *s)
{
    s->bias1 = 1 - pow(o->betas[0], (double)(t + 1));
    s->bias2 = 1 - pow(o->betas[1], (double)(t + 1));
}

#define BETAS(A, B) .betas = {A, B}, .eps = 1e-8
const sw__rule sw__rules[SW_OPTIMIZER_COUNT] = {
    [SW_SGD] = {"sgd", update_sgd, sgd_scalars, true, false, {.lr = 0.05, BETAS(0.9, 0.999)}},
    [SW_ADAM] = {"adam", update_adam, adam_scalars, true, true, {.lr = 1e-3, BETAS(0.9, 0.999)}},
    [SW_ADAMW] = {"adamw", update_adam, adam_scalars, true, true, {.lr = 1e-3, BETAS(0.9, 0.999), .weight_decay = 0.01}},
    [SW_NADAM] = {"nadam", update_nadam, nadam_scalars, true, true,
                  {.lr = 2e-3, BETAS(0.9, 0.999), .momentum_decay = 4e-3}},
    [SW_RADAM] = {"radam", update_radam, radam_scalars, true, true, {.lr = 1e-3, BETAS(0.9, 0.999)}},
    [SW_RMSPROP] = {"rmsprop", update_rmsprop, NULL, false, false, {.lr = 1e-2, .eps = 1e-8, .alpha = 0.99}},
    [SW_ADAGRAD] = {"adagrad", update_adagrad, adagrad_scalars, false, false, {.lr = 1e-2, .eps = 1e-10}},
    [SW_ADADELTA] = {"adadelta", update_adadelta, NULL, false, false, {.lr = 1, .eps = 1e-6, .alpha = 0.9}},
    [SW_ADAMAX] = {"adamax", update_adamax, adamax_scalars, false, false, {.lr = 2e-3, BETAS(0.9, 0.999)}},
    [SW_LION] = {"lion", update_lion, NULL, false, false, {.lr = 1e-4, .betas = {0.9, 0.99}}},
    [SW_LAMB] = {"lamb", update_lamb, adam_scalars, true, true, {.lr = 1e-3, .betas = {0.9, 0.999}, .eps = 1e-6}},
};
