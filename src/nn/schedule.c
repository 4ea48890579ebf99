/* schedule.c: learning rates over the steps of a training. Definitions are torch.optim.lr_scheduler's, counted in steps.
 * Called by the trainer before each step. */
#include "base/base.h"
#include "swoop/nn.h"
#include <math.h>

/* What a schedule's shape knows of step s. */
typedef struct place {
    double lr, min_lr;
    int64_t s, after; /* step, and steps since the warm-up */
    double done;      /* share of the steps after the warm-up, 0 … 1 */
} place;

static double half_cosine(double from, double to, double done)
{
    return to + (from - to) / 2 * (1 + cos(acos(-1) * done));
}

static double constant(const sw_schedule *c, const place *p)
{
    (void)c;
    return p->lr;
}

static double gamma_of(const sw_schedule *c, double otherwise)
{
    return c->gamma > 0 ? c->gamma : otherwise;
}

static double step(const sw_schedule *c, const place *p)
{
    return p->lr * pow(gamma_of(c, 0.1), (double)(c->step_size > 0 ? p->s / c->step_size : 0));
}

static double multistep(const sw_schedule *c, const place *p)
{
    int drops = 0;
    for (int i = 0; i < c->n_milestones; i++) drops += p->s >= c->milestones[i];
    return p->lr * pow(gamma_of(c, 0.1), drops);
}

/* gamma is for step_size steps (0: for each), so that it can be given for an epoch. */
static double exponential(const sw_schedule *c, const place *p)
{
    return p->lr * pow(gamma_of(c, 0.95), (double)p->after / (double)SW_MAX(c->step_size, (int64_t)1));
}

static double polynomial(const sw_schedule *c, const place *p)
{
    return p->min_lr + (p->lr - p->min_lr) * pow(1 - p->done, c->power > 0 ? c->power : 1);
}

static double cosine(const sw_schedule *c, const place *p)
{
    (void)c;
    return half_cosine(p->lr, p->min_lr, p->done);
}

/* Warm restarts (Loshchilov & Hutter 2017): periods of step_size steps, each `growth` times as long as the last. */
static double restarts(const sw_schedule *c, const place *p)
{
    double period = (double)SW_MAX(c->step_size, (int64_t)1), at = (double)p->after;
    const double growth = c->growth > 1 ? c->growth : 1;
    if (growth == 1) at = fmod(at, period);
    while (at >= period) {
        at -= period;
        period *= growth;
    }
    return half_cosine(p->lr, p->min_lr, at / period);
}

static double linear(const sw_schedule *c, const place *p)
{
    (void)c;
    return p->lr + (p->min_lr - p->lr) * p->done;
}

/* Smith & Topin 2018, as torch's OneCycleLR with its defaults: up from lr/25 by a half cosine over 30 % of the steps, then
 * down to lr/250000. It is its own warm-up. */
static double onecycle(const sw_schedule *c, const place *p)
{
    const double start = p->lr / 25, last = start / 1e4, top = 0.3 * (double)c->total - 1;
    if ((double)p->s <= top) return half_cosine(start, p->lr, top > 0 ? (double)p->s / top : 1);
    const double rest = (double)(c->total - 1) - top;
    return half_cosine(p->lr, last, rest > 0 ? fmin(((double)p->s - top) / rest, 1) : 1);
}

static const struct { const char *name; double (*lr)(const sw_schedule *c, const place *p); bool warm; } shapes[] = {
    [SW_SCHEDULE_CONSTANT] = {"constant", constant, true},
    [SW_SCHEDULE_STEP] = {"step", step, true},
    [SW_SCHEDULE_COSINE] = {"cosine", cosine, true},
    [SW_SCHEDULE_LINEAR] = {"linear", linear, true},
    [SW_SCHEDULE_MULTISTEP] = {"multistep", multistep, true},
    [SW_SCHEDULE_EXPONENTIAL] = {"exponential", exponential, true},
    [SW_SCHEDULE_POLYNOMIAL] = {"polynomial", polynomial, true},
    [SW_SCHEDULE_RESTARTS] = {"restarts", restarts, true},
    [SW_SCHEDULE_ONECYCLE] = {"onecycle", onecycle, false},
    [SW_SCHEDULE_PLATEAU] = {"plateau", constant, true},
};

const char *sw_schedule_name(sw_schedule_kind kind)
{
    return (unsigned)kind < SW_COUNT(shapes) ? shapes[kind].name : NULL;
}

double sw_schedule_lr(const sw_schedule *c, double lr, int64_t s)
{
    if (!c || (unsigned)c->kind >= SW_COUNT(shapes)) return lr;
    const int64_t warmup = shapes[c->kind].warm ? c->warmup : 0, span = c->total - warmup;
    if (s < warmup) return lr * (double)(s + 1) / (double)warmup;
    const place p = {.lr = lr, .min_lr = c->min_lr, .s = s, .after = s - warmup,
                     .done = span > 0 ? (double)SW_MIN(s - warmup, span) / (double)span : 1};
    return shapes[c->kind].lr(c, &p);
}

/* A figure that is NaN is no gain, as with torch. */
static bool is_gain(const sw_schedule *c, const sw_plateau *p, double figure, bool less)
{
    const double t = c->threshold == 0 ? (signbit(c->threshold) ? 0 : 1e-4) : c->threshold;
    if (!p->begun) return !isnan(figure);
    return less ? figure < p->best * (1 - t) : figure > p->best * (1 + t);
}

double sw_plateau_step(const sw_schedule *c, sw_plateau *p, double figure, bool less, double lr)
{
    if (!c || !p) return lr;
    if (is_gain(c, p, figure, less)) {
        p->best = figure;
        p->begun = true;
        p->bad = 0;
    } else {
        p->bad++;
    }
    if (p->cooldown > 0) {
        p->cooldown--;
        p->bad = 0;
    }
    if (p->bad <= c->patience) return lr;
    p->cooldown = c->cooldown;
    p->bad = 0;
    const double lower = fmax(lr * gamma_of(c, 0.1), c->min_lr);
    return lr - lower > 1e-8 ? lower : lr;
}
