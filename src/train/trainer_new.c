/* trainer_new.c: a trainer from its options, which are checked and copied. trainer.c does the rest. */
#include "exec/exec.h"
#include "train/trainer.h"
#include <math.h>
#include <stdio.h>

static sw_status check_averages(const sw_trainer_options *o)
{
    if (!(o->ema >= 0 && o->ema < 1)) return sw__fail(SW_ERR_ARGUMENT, "ema is %g, and must be at least 0 and below 1", o->ema);
    if (o->swa_start < 0 || o->freeze_epochs < 0 || !(o->swa_lr >= 0))
        return sw__fail(SW_ERR_ARGUMENT, "swa_start, swa_lr and freeze_epochs must be at least 0");
    if (o->ema > 0 && o->swa_start > 0)
        return sw__fail(SW_ERR_ARGUMENT, "ema and swa_start are two averages of the weights: give one of them");
    return SW_OK;
}

/* The trainer's own list of groups. Those that are frozen only for some epochs are late in either phase. */
static sw_status copy_groups(sw_trainer *t)
{
    const int n = t->o.optimizer.n_groups;
    size_t bytes = 0, at = 0;
    if (n <= 0 || n > SW_MAX_PARAM_GROUPS || !t->o.optimizer.groups) return SW_OK; /* sw_optimizer_apply says what is wrong */
    for (int i = 0; i < n; i++) bytes += (t->o.optimizer.groups[i].pattern ? strlen(t->o.optimizer.groups[i].pattern) : 0) + 1;
    t->patterns = sw__malloc(bytes);
    if (!t->patterns) return sw__no_memory(bytes, "parameter groups");
    for (int i = 0; i < n; i++) {
        t->groups[i] = t->o.optimizer.groups[i];
        if (t->groups[i].frozen && t->o.freeze_epochs > 0) t->groups[i].late = true;
        if (!t->groups[i].pattern) continue;
        const size_t length = strlen(t->groups[i].pattern) + 1;
        memcpy(t->patterns + at, t->groups[i].pattern, length);
        t->groups[i].pattern = t->patterns + at;
        at += length;
    }
    t->o.optimizer.groups = t->groups;
    return SW_OK;
}

static sw_status copy_class_weights(sw_trainer *t)
{
    const int64_t n = t->o.n_class_weights;
    if (!t->o.class_weights) return SW_OK;
    if (n < 1) return sw__fail(SW_ERR_ARGUMENT, "n_class_weights is %lld", (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (!(t->o.class_weights[i] >= 0) || !isfinite(t->o.class_weights[i]))
            return sw__fail(SW_ERR_ARGUMENT, "the weight of class %lld is %g, and must be at least 0", (long long)i,
                            t->o.class_weights[i]);
    t->class_weights = sw__malloc((size_t)n * sizeof *t->class_weights);
    if (!t->class_weights) return sw__no_memory((size_t)n * sizeof *t->class_weights, "class weights");
    memcpy(t->class_weights, t->o.class_weights, (size_t)n * sizeof *t->class_weights);
    t->o.class_weights = t->class_weights;
    return SW_OK;
}

static const char *const precisions[SW_PRECISION_COUNT] = {
    [SW_PRECISION_F32] = "f32", [SW_PRECISION_TF32] = "tf32", [SW_PRECISION_BF16] = "bf16", [SW_PRECISION_F16] = "f16",
};

const char *sw_precision_name(sw_precision p)
{
    return (unsigned)p < SW_PRECISION_COUNT ? precisions[p] : NULL;
}

bool sw_precision_find(const char *name, sw_precision *out)
{
    for (int i = 0; name && i < SW_PRECISION_COUNT; i++) {
        if (strcmp(name, precisions[i]) != 0) continue;
        *out = (sw_precision)i;
        return true;
    }
    return false;
}

void sw_precision_note(sw_precision p, const sw_plan *plan, const sw_device_properties *d, char *buf, size_t size)
{
    const char *const name = sw_precision_name(p);
    if (size > 0) *buf = '\0';
    if (!name || !plan || !d || (p != SW_PRECISION_BF16 && p != SW_PRECISION_F16)) return;
    if (plan->emulated > 0)
        snprintf(buf, size, "%s: %d of %d ops run on f32 copies, as %s has no %s arithmetic for them: that saves memory, no time",
                 name, plan->emulated, plan->ops, d->id, name);
    else if (strcmp(d->backend, "opencl") == 0)
        snprintf(buf, size, "%s in memory, arithmetic in f32: that saves memory and transfers, no operations", name);
    else
        snprintf(buf, size, "%s products, sums in f32", name);
}

sw_status sw_trainer_new(sw_device *d, const sw_trainer_options *o, sw_trainer **out)
{
    if (!d || !o || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_new: device, options or out is NULL");
    if (!o->model == !o->model_name)
        return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_new: give either .model (a function) or .model_name");
    if (o->batch < 0) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_new: batch is %lld", (long long)o->batch);
    if (o->grad_accum < 0) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_new: grad_accum is %lld", (long long)o->grad_accum);
    if ((unsigned)o->precision >= SW_PRECISION_COUNT)
        return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_new: %d is no precision", (int)o->precision);
    sw_trainer *t = sw__calloc(1, sizeof *t);
    if (!t) return sw__no_memory(sizeof *t, "a trainer");
    t->device = sw__device_use(d);
    t->o = *o;
    t->o.optimizer = sw_optimizer_resolved(&o->optimizer);
    t->o.optimizer.skip_nonfinite = true; /* a NaN must not reach the weights: fit says where it came from */
    if (t->o.precision != SW_PRECISION_F16) t->o.optimizer.loss_scale = 0; /* others have f32's range */
    else if (t->o.optimizer.loss_scale <= 0) t->o.optimizer.loss_scale = 65536;
    if (t->o.batch == 0) t->o.batch = 64;
    t->schedule_lr = t->o.optimizer.lr;
    t->thawed_at = t->known_rank = -1;
    sw_status st = check_averages(o);
    if (st == SW_OK) st = copy_groups(t);
    if (st == SW_OK) st = copy_class_weights(t);
    if (st != SW_OK) {
        sw_trainer_free(t);
        return st;
    }
    if (o->model_name && !(t->model_name = sw__strdup(o->model_name))) {
        sw_trainer_free(t);
        return sw__no_memory(strlen(o->model_name), "a model's name");
    }
    t->o.model_name = t->model_name;
    *out = t;
    return SW_OK;
}

void sw_trainer_free(sw_trainer *t)
{
    if (!t) return;
    for (int i = 0; i < t->n_programs; i++) sw_program_free(t->programs[i].program);
    sw_program_free(t->average);
    sw_params_free(t->params);
    sw__free(t->model_name);
    sw__free(t->patterns);
    sw__free(t->class_weights);
    sw_device_close(t->device);
    sw__free(t);
}
