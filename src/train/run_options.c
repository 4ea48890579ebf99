/* run_options.c: what the keys of a run say of the trainer: optimiser, schedule, loss, initialisation.
 * run.c opens everything and asks here; run_plan.c does so for a model that is only planned. */
#include "train/run_options.h"
#include "train/trainer.h"
#include <math.h>
#include <stdlib.h>
#include <stdio.h>

sw_status sw__run_choose(sw_config *c, sw_key k, const char *fmt, double value)
{
    char text[64];
    snprintf(text, sizeof text, fmt, value);
    return sw_config_is_auto(c, k) ? sw_config_choose(c, k, text) : SW_OK;
}

/* ---- initialisation ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    sw_init init;
} schemes[] = {
    {"default", {.kind = SW_INIT_ZEROS}},
    {"xavier_uniform", {.kind = SW_INIT_XAVIER_UNIFORM}},
    {"xavier_normal", {.kind = SW_INIT_XAVIER_NORMAL}},
    {"he_uniform", {.kind = SW_INIT_HE_UNIFORM}},
    {"he_normal", {.kind = SW_INIT_HE_NORMAL}},
    {"uniform", {.kind = SW_INIT_UNIFORM, .a = -0.05, .b = 0.05}},
    {"normal", {.kind = SW_INIT_NORMAL, .a = 0, .b = 0.02}},
    {"constant", {.kind = SW_INIT_CONSTANT, .a = 0}},
};

bool sw__run_init_scheme(const char *name, sw_init *init)
{
    for (size_t i = 0; i < SW_COUNT(schemes); i++)
        if (strcmp(schemes[i].name, name) == 0) {
            *init = schemes[i].init;
            return true;
        }
    return false;
}

sw_status sw__run_no_scheme(const char *name)
{
    char all[256] = "";
    for (size_t i = 0; i < SW_COUNT(schemes); i++) {
        const size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", schemes[i].name);
    }
    return sw__fail(SW_ERR_ARGUMENT, "init is '%.60s', neither a file nor one of %s", name, all);
}

/* ---- optimiser and schedule -------------------------------------------------------------------------------------- */

/* A zero that the user gave is meant. */
static double exactly(double v)
{
    return v == 0 ? SW_ZERO : v;
}

static bool has_momentum(sw_optimizer_kind kind)
{
    return kind == SW_SGD || kind == SW_RMSPROP;
}

/* Keys that would do nothing, or the opposite of what they say. */
static sw_status check_optimisation(const sw_config *c, const sw_optimizer *o)
{
    const char *const schedule = sw_config_text(c, SW_KEY_SCHEDULE);
    const bool falls = strcmp(schedule, "cosine") == 0 || strcmp(schedule, "linear") == 0 ||
                       strcmp(schedule, "polynomial") == 0 || strcmp(schedule, "restarts") == 0;
    if (sw_config_number(c, SW_KEY_MOMENTUM) > 0 && !has_momentum(o->kind))
        return sw__fail(SW_ERR_ARGUMENT, "momentum is of sgd and rmsprop; %s has betas instead: leave it out, or auto",
                        sw_optimizer_name(o->kind));
    if (o->nesterov && o->kind != SW_SGD)
        return sw__fail(SW_ERR_ARGUMENT, "nesterov is of sgd, but optimizer is %s", sw_optimizer_name(o->kind));
    if (falls && sw_config_number(c, SW_KEY_MIN_LR) > o->lr && o->lr > 0)
        return sw__fail(SW_ERR_ARGUMENT, "min_lr %g is above lr %g, from which the %s schedule comes down",
                        sw_config_number(c, SW_KEY_MIN_LR), o->lr, schedule);
    if (sw_config_number(c, SW_KEY_SWA_LR) > 0 && sw_config_int(c, SW_KEY_SWA_START) == 0)
        return sw__fail(SW_ERR_ARGUMENT, "swa_lr is the rate from swa_start on, but swa_start is not given");
    const char *const precision = sw_config_text(c, SW_KEY_PRECISION);
    const bool half = strcmp(precision, "bf16") == 0 || strcmp(precision, "f16") == 0;
    if (sw_config_bool(c, SW_KEY_STOCHASTIC_ROUNDING) && !half)
        return sw__fail(SW_ERR_ARGUMENT, "stochastic_rounding is of bf16 and f16, but precision is %s", precision);
    return SW_OK;
}

/* What is auto is left to the optimiser: Lion's betas are not Adam's. */
static sw_optimizer optimizer_of(const sw_config *c)
{
    sw_optimizer o = {0};
    for (int k = 0; k < SW_OPTIMIZER_COUNT; k++)
        if (strcmp(sw_optimizer_name((sw_optimizer_kind)k), sw_config_text(c, SW_KEY_OPTIMIZER)) == 0)
            o.kind = (sw_optimizer_kind)k;
    const bool sgd = o.kind == SW_SGD;
    if (!sw_config_is_auto(c, SW_KEY_LR)) o.lr = exactly(sw_config_number(c, SW_KEY_LR));
    if (sgd && sw_config_is_auto(c, SW_KEY_MOMENTUM)) o.momentum = 0.9;
    else if (sgd || (o.kind == SW_RMSPROP && !sw_config_is_auto(c, SW_KEY_MOMENTUM)))
        o.momentum = exactly(sw_config_number(c, SW_KEY_MOMENTUM));
    o.nesterov = sw_config_bool(c, SW_KEY_NESTEROV);
    for (int i = 0; i < 2 && !sw_config_is_auto(c, SW_KEY_BETAS); i++) o.betas[i] = exactly(sw_config_pair(c, SW_KEY_BETAS, i));
    if (!sw_config_is_auto(c, SW_KEY_EPS)) o.eps = sw_config_number(c, SW_KEY_EPS);
    o.weight_decay = exactly(sw_config_number(c, SW_KEY_WEIGHT_DECAY));
    o.decay_matrices = strcmp(sw_config_text(c, SW_KEY_DECAY_ON), "matrices") == 0;
    o.clip_norm = sw_config_number(c, SW_KEY_CLIP_GRAD);
    o.clip_value = sw_config_number(c, SW_KEY_CLIP_VALUE);
    return sw_optimizer_resolved(&o);
}

/* Every effective key stands in config.yaml: what the optimiser chose, too. What it has not (lion has no eps, rmsprop no
 * betas) stays auto. */
sw_status sw__run_note_chosen(sw_config *c, const sw_optimizer *o)
{
    char betas[64];
    snprintf(betas, sizeof betas, "%.17g,%.17g", o->betas[0], o->betas[1]);
    SW_TRY(sw__run_choose(c, SW_KEY_LR, "%.17g", o->lr));
    if (has_momentum(o->kind)) SW_TRY(sw__run_choose(c, SW_KEY_MOMENTUM, "%.17g", o->momentum));
    if (o->eps > 0) SW_TRY(sw__run_choose(c, SW_KEY_EPS, "%.17g", o->eps));
    const bool wanted = o->betas[1] > 0 && sw_config_is_auto(c, SW_KEY_BETAS);
    return wanted ? sw_config_choose(c, SW_KEY_BETAS, betas) : SW_OK;
}

/* Keys of a schedule, and the schedules that read them, with a bar on both sides of each. */
static const struct { sw_key key; const char *schedules; } schedule_keys[] = {
    {SW_KEY_WARMUP, "|cosine|constant|step|multistep|linear|exponential|polynomial|restarts|plateau|"},
    {SW_KEY_MIN_LR, "|cosine|linear|polynomial|restarts|plateau|"},
    {SW_KEY_STEP_SIZE, "|step|restarts|"},
    {SW_KEY_GAMMA, "|step|multistep|exponential|plateau|"},
    {SW_KEY_POWER, "|polynomial|"},
    {SW_KEY_GROWTH, "|restarts|"},
    {SW_KEY_MILESTONES, "|multistep|"},
    {SW_KEY_PLATEAU_PATIENCE, "|plateau|"},
    {SW_KEY_PLATEAU_THRESHOLD, "|plateau|"},
    {SW_KEY_PLATEAU_COOLDOWN, "|plateau|"},
};

/* "|step|restarts|" as "step, restarts". */
static void say_list(const char *bars, char *out, size_t size)
{
    size_t n = 0;
    for (const char *p = bars + 1; *p && n + 3 < size; p++) {
        if (*p != '|') out[n++] = *p;
        else if (p[1]) n += (size_t)snprintf(out + n, size - n, ", ");
    }
    out[n] = '\0';
}

/* A key that the schedule does not read would change nothing: somebody who gives it means another schedule. As it stands by
 * default it is in every run's config.yaml. */
static sw_status check_schedule_keys(const sw_config *c)
{
    char bars[64], list[160];
    const char *const schedule = sw_config_text(c, SW_KEY_SCHEDULE);
    snprintf(bars, sizeof bars, "|%.60s|", schedule);
    for (size_t i = 0; i < SW_COUNT(schedule_keys); i++) {
        const sw_key k = schedule_keys[i].key;
        const sw_key_info *const about = sw_config_about(k);
        if (sw_config_origin(c, k) == SW_FROM_DEFAULT || strcmp(sw_config_text(c, k), about->fallback) == 0) continue;
        if (strstr(schedule_keys[i].schedules, bars)) continue;
        say_list(schedule_keys[i].schedules, list, sizeof list);
        return sw__fail(SW_ERR_ARGUMENT, "%s is given, but schedule is %s, which does not read it; those that do: %s", about->name, schedule,
                        list);
    }
    return SW_OK;
}

sw_status sw__run_schedule(const sw_config *c, int64_t epoch_steps, int64_t total, sw_schedule *out)
{
    sw_schedule s = {0};
    for (int k = 0; sw_schedule_name((sw_schedule_kind)k) != NULL; k++)
        if (strcmp(sw_schedule_name((sw_schedule_kind)k), sw_config_text(c, SW_KEY_SCHEDULE)) == 0)
            s.kind = (sw_schedule_kind)k;
    s.total = total;
    s.warmup = (int64_t)llround(sw_config_number(c, SW_KEY_WARMUP) * (double)s.total);
    s.min_lr = sw_config_number(c, SW_KEY_MIN_LR);
    s.step_size = sw__steps_of(sw_config_int(c, SW_KEY_STEP_SIZE), epoch_steps);
    if (s.kind == SW_SCHEDULE_EXPONENTIAL) s.step_size = epoch_steps;
    if (!sw_config_is_auto(c, SW_KEY_GAMMA)) s.gamma = sw_config_number(c, SW_KEY_GAMMA);
    s.power = sw_config_number(c, SW_KEY_POWER);
    s.growth = sw_config_number(c, SW_KEY_GROWTH);
    s.patience = sw_config_int(c, SW_KEY_PLATEAU_PATIENCE);
    s.threshold = exactly(sw_config_number(c, SW_KEY_PLATEAU_THRESHOLD));
    s.cooldown = sw_config_int(c, SW_KEY_PLATEAU_COOLDOWN);
    *out = s;
    return sw__run_milestones(c, epoch_steps, out);
}

/* ---- loss, and all of it ----------------------------------------------------------------------------------------- */

static sw_t mean_l1(sw_t output, sw_t target) { return sw_l1_loss(output, target, SW_REDUCE_MEAN); }
static sw_t mean_smooth_l1(sw_t output, sw_t target) { return sw_smooth_l1_loss(output, target, 1, SW_REDUCE_MEAN); }
static sw_t mean_huber(sw_t output, sw_t target) { return sw_huber_loss(output, target, 1, SW_REDUCE_MEAN); }

static sw_t mean_bce(sw_t output, sw_t target) { return sw_bce_with_logits_loss(output, target, SW_NONE, SW_REDUCE_MEAN); }

static const struct { const char *name; sw_loss_fn loss; bool values; } losses[] = {
    {"cross_entropy", sw_cross_entropy, false}, {"mse", sw_mse, true}, {"l1", mean_l1, true},
    {"smooth_l1", mean_smooth_l1, true}, {"huber", mean_huber, true}, {"bce_with_logits", mean_bce, true},
    {"ctc", sw_ctc, false},
};

static sw_status loss_of(const sw_config *c, const sw_dataset_info *d, sw_loss_fn *out)
{
    *out = NULL;
    for (size_t i = 0; i < SW_COUNT(losses); i++) {
        if (strcmp(sw_config_text(c, SW_KEY_LOSS), losses[i].name) != 0) continue;
        if (losses[i].values && d->classes > 0)
            return sw__fail(SW_ERR_ARGUMENT, "loss %s compares values, but the labels are classes: use %s", losses[i].name,
                            d->target == SW_TARGET_SEQUENCE ? "ctc" : "cross_entropy");
        *out = losses[i].loss;
    }
    return SW_OK;
}

/* "800M", "1.5GiB", "4096": bytes; units are powers of 1024. */
static bool read_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    double v = *text >= '0' && *text <= '9' ? strtod(text, &end) : -1;
    if (!end || v <= 0) return false;
    const char *const unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        for (const char *u = units; u <= unit; u++) v *= 1024;
        end++;
        if (strncmp(end, "iB", 2) == 0) end += 2;
        else if (*end == 'B') end++;
    }
    if (*end || v < 1 || v > 1e18) return false;
    *out = (uint64_t)v;
    return true;
}

sw_status sw__run_memory(const sw_config *c, sw_trainer_options *out)
{
    const char *const memory = sw_config_text(c, SW_KEY_MEMORY);
    if (*memory && !read_bytes(memory, &out->memory))
        return sw__fail(SW_ERR_ARGUMENT, "memory is '%s', and must be a size such as 800M, 1.5GiB or 8G", memory);
    out->grad_accum = sw_config_int(c, SW_KEY_GRAD_ACCUM);
    if (out->grad_accum > sw_config_int(c, SW_KEY_BATCH_SIZE))
        return sw__fail(SW_ERR_ARGUMENT, "grad_accum is %lld, but a batch of %lld samples cannot be cut so often",
                        (long long)out->grad_accum, (long long)sw_config_int(c, SW_KEY_BATCH_SIZE));
    out->shrink = strcmp(sw_config_text(c, SW_KEY_ON_OOM), "shrink") == 0;
    return SW_OK;
}

sw_status sw__run_trainer_options(const sw_config *c, const sw_dataset_info *d, const sw__run_lists *l,
                                  sw_trainer_options *out)
{
    const char *model = sw_config_text(c, SW_KEY_MODEL);
    if (!*model) return sw__fail(SW_ERR_ARGUMENT, "no model: say --model, for instance --model lenet or --model mlp:256,128");
    *out = (sw_trainer_options){
        .model_name = model,
        .label_smoothing = sw_config_number(c, SW_KEY_LABEL_SMOOTHING),
        .optimizer = optimizer_of(c),
        .batch = sw_config_int(c, SW_KEY_BATCH_SIZE),
        .outputs = d->classes,
        .seed = (uint64_t)sw_config_int(c, SW_KEY_SEED),
        .profile = sw_config_int(c, SW_KEY_PROFILE) > 0,
        .stochastic_rounding = sw_config_bool(c, SW_KEY_STOCHASTIC_ROUNDING),
        .ema = sw_config_number(c, SW_KEY_EMA),
        .swa_start = sw_config_int(c, SW_KEY_SWA_START),
        .swa_lr = sw_config_number(c, SW_KEY_SWA_LR),
        .freeze_epochs = sw_config_int(c, SW_KEY_FREEZE_EPOCHS),
        .class_weights = l->class_weights,
        .n_class_weights = l->n_class_weights,
    };
    SW_TRY(sw__run_memory(c, out));
    if (!sw_precision_find(sw_config_text(c, SW_KEY_PRECISION), &out->precision))
        return sw__fail(SW_ERR_ARGUMENT, "precision '%s' is not known", sw_config_text(c, SW_KEY_PRECISION));
    if (l->n_groups > 0) {
        out->optimizer.groups = l->groups;
        out->optimizer.n_groups = l->n_groups;
    }
    sw__run_init_scheme(sw_config_text(c, SW_KEY_INIT), &out->init);
    SW_TRY(check_optimisation(c, &out->optimizer));
    SW_TRY(check_schedule_keys(c));
    return loss_of(c, d, &out->loss);
}
