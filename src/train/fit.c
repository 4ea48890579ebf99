/* fit.c: the training loop: epochs of steps, validation, best and last, checkpoints, early stop, events.
 * Between run.c (or a user's program) and trainer.c, which does the single step. */
#include "train/trainer.h"
#include <math.h>
#include <stdio.h>

/* A fit under way. */
typedef struct fit {
    sw_trainer *t;
    const sw_dataset *data;
    const sw_fit_options *o;
    sw_loader *loader;
    sw_batch next;           /* with `ahead`: the batch that comes next, which the device has already */
    bool ahead;
    bool unsent;             /* … has not: it is sent when its turn comes */
    sw__fit_state s;
    int64_t epochs;          /* to run in all; INT64_MAX where steps or time decide */
    int64_t epoch_steps, total_steps; /* total 0: unknown (time decides) */
    double started, wait_before; /* this process's share of the clocks: see seconds_now, loader wait at the epoch's start */
    double epoch_started;
    sw_metrics valid;
    double loss, accuracy;   /* of the last whole epoch */
    int64_t samples;         /* of this process's steps */
    sw_device *beside;       /* shadow steps: the other device */
    int64_t shadowed;
    bool early;
    bool saved;              /* the present state is on disk */
} fit;

static double seconds_now(const fit *f)
{
    return f->s.seconds + sw__now() - f->started;
}

static double epoch_seconds_now(const fit *f)
{
    return f->s.epoch_seconds + sw__now() - f->epoch_started;
}

/* ---- events -------------------------------------------------------------------------------------------------------------- */

static sw_event describe(const fit *f, sw_event_kind kind)
{
    const sw__fit_state *s = &f->s;
    const double in_epoch = epoch_seconds_now(f), here = sw__now() - f->epoch_started;
    const bool classes = f->t->target == SW_TARGET_CLASS;
    const double rate = in_epoch > 0 ? (double)s->samples / in_epoch : 0;
    const int64_t step = f->t->step + s->skipped;
    sw_event e = {
        .kind = kind,
        .epoch = s->epoch + 1,
        .epochs = f->epochs == INT64_MAX ? 0 : f->epochs,
        .step = step,
        .steps = f->total_steps,
        .epoch_step = s->at.batch,
        .epoch_steps = f->epoch_steps,
        .loss = s->samples ? s->loss_sum / (double)s->samples : NAN,
        .accuracy = classes && s->samples ? (double)s->correct / (double)(s->samples * f->t->positions) : NAN,
        .lr = sw__trainer_lr(f->t, f->t->step > 0 ? f->t->step - 1 : 0),
        .seconds = seconds_now(f),
        .epoch_seconds = in_epoch,
        .samples_per_second = rate,
        .input_wait = here > 0 ? SW_MIN((sw_loader_wait_seconds(f->loader) - f->wait_before) / here, 1.0) : 0,
        .eta = NAN,
        .message = "",
    };
    if (f->total_steps > 0 && s->at.batch > 0)
        e.eta = (double)(f->total_steps - step) * in_epoch / (double)s->at.batch;
    return e;
}

static sw_status emit(const fit *f, const sw_event *e)
{
    return f->o->event ? f->o->event(f->o->context, e) : SW_OK;
}

/* ---- saving -------------------------------------------------------------------------------------------------------------- */

static sw_status save_model(const fit *f, const char *name)
{
    char epoch[32], metric[48], path[1100];
    snprintf(epoch, sizeof epoch, "%lld", (long long)f->s.epoch + 1);
    snprintf(metric, sizeof metric, "%.9g", f->s.best);
    const size_t n = f->o->n_metadata;
    sw_text_pair *all = sw__malloc((n + 3) * sizeof *all);
    if (!all) return sw__no_memory((n + 3) * sizeof *all, "metadata");
    if (n) memcpy(all, f->o->metadata, n * sizeof *all);
    all[n] = (sw_text_pair){"swoop.epoch", epoch};
    all[n + 1] = (sw_text_pair){"swoop.monitor", f->o->monitor ? f->o->monitor : "val_loss"};
    all[n + 2] = (sw_text_pair){"swoop.best", metric};
    snprintf(path, sizeof path, "%s/%s", f->o->checkpoint, name);
    const sw_status st = sw_trainer_save(f->t, path, all, n + 3);
    sw__free(all);
    return st;
}

static sw_status checkpoint(fit *f)
{
    if (!f->o->checkpoint || f->saved) return SW_OK;
    sw__fit_state s = f->s;
    s.seconds = seconds_now(f);
    s.epoch_seconds = epoch_seconds_now(f);
    SW_TRY(sw__checkpoint_write(f->t, f->o->checkpoint, &s));
    f->saved = true;
    const sw_event e = describe(f, SW_EVENT_CHECKPOINT);
    return emit(f, &e);
}

/* ---- one step -------------------------------------------------------------------------------------------------------------- */

/* Does it again for as long as the device is out of memory and the step can be planned with less. */
static sw_status send_batch(fit *f, const sw_batch *b)
{
    sw_status st = sw__trainer_send(f->t, b->x, b->y, b->n);
    while (st == SW_ERR_MEMORY) {
        SW_TRY(sw__memory_shrink(f->t));
        st = sw__trainer_send(f->t, b->x, b->y, b->n);
    }
    return st;
}

static sw_status launch_batch(fit *f, const sw_batch *b)
{
    sw_status st = sw__trainer_launch(f->t, b->n);
    while (st == SW_ERR_MEMORY) {
        SW_TRY(sw__memory_shrink(f->t));
        SW_TRY(send_batch(f, b));
        st = sw__trainer_launch(f->t, b->n);
    }
    return st;
}

static sw_status next_batch(fit *f, sw_batch *b)
{
    const bool sent = f->ahead && !f->unsent;
    if (f->ahead) *b = f->next;
    else SW_TRY(sw_loader_next(f->loader, b));
    f->ahead = f->unsent = false;
    return b->n && !sent ? send_batch(f, b) : SW_OK;
}

/* The batch after the one that is at work, on its way before anybody waits for that. If it cannot be read, that is told
 * when its turn comes: the loader fails again. One of another size waits: its program might have to be made, and move the
 * memory in which the present step leaves its loss. */
static sw_status send_ahead(fit *f, const sw_batch *now)
{
    if (f->o->steps > 0 && f->t->step + f->s.skipped + 1 >= f->o->steps) return SW_OK;
    if (sw_loader_next(f->loader, &f->next) != SW_OK) return SW_OK;
    f->unsent = f->next.n != now->n;
    if (f->next.n && !f->unsent) SW_TRY(sw__trainer_send(f->t, f->next.x, f->next.y, f->next.n));
    f->ahead = true;
    return SW_OK;
}

/* The batch of the last step again: another may lie in its memory. */
static sw_status diagnose(fit *f, double scale, char *where, size_t size)
{
    sw_batch b;
    sw_loader_position before = f->s.at;
    before.batch--;
    f->ahead = false;
    SW_TRY(sw_loader_seek(f->loader, before));
    SW_TRY(sw_loader_next(f->loader, &b));
    return sw__diagnose(f->t, b.x, b.y, b.n, scale, where, size);
}

/* The loss was NaN or infinite: the optimiser has left the weights alone. Says where it began; stops unless told not to. */
static sw_status not_finite(fit *f, double loss)
{
    char where[512];
    const sw_status st = diagnose(f, 0, where, sizeof where);
    if (st != SW_OK) snprintf(where, sizeof where, "the search for its origin failed: %.400s", sw_error());
    f->s.skipped++;
    sw_event e = describe(f, SW_EVENT_NOT_FINITE);
    char message[800];
    snprintf(message, sizeof message, "the loss is %s at step %lld (epoch %lld): %s", isnan(loss) ? "NaN" : "infinite",
             (long long)e.step, (long long)e.epoch, where);
    e.message = message;
    SW_TRY(emit(f, &e));
    if (f->o->continue_on_nan) return SW_OK;
    return sw__fail(SW_ERR_DIVERGED, "%s; the weights are those before this step; try a lower learning rate, or look at "
                    "the data", message);
}

#define LEAST_SCALE 0x1p-16 /* gradients that f16 cannot hold even so are no matter of scale */

/* Gradients that f16 could not hold: the optimiser has left the weights alone and halved the scale. To be expected now and
 * then, above all in the first steps. */
static sw_status overflow(fit *f)
{
    char where[512], message[800];
    const double scale = f->t->scale;
    if (diagnose(f, scale, where, sizeof where) != SW_OK)
        snprintf(where, sizeof where, "the search for its origin failed: %.400s", sw_error());
    f->s.skipped++;
    f->s.overflows++;
    sw_event e = describe(f, SW_EVENT_OVERFLOW);
    snprintf(message, sizeof message, "gradients overflow at step %lld with loss scale %g, which becomes %g: %s",
             (long long)e.step, scale, scale / 2, where);
    e.message = message;
    SW_TRY(emit(f, &e));
    if (scale / 2 >= LEAST_SCALE) return SW_OK;
    return sw__fail(SW_ERR_DIVERGED, "%s; no loss scale helps: try a lower learning rate, or bf16", message);
}

static bool time_is_up(const fit *f)
{
    return f->o->time > 0 && seconds_now(f) >= f->o->time * 3600;
}

static bool steps_are_done(const fit *f)
{
    return f->o->steps > 0 && f->t->step + f->s.skipped >= f->o->steps;
}

/* The step that comes, op by op, beside another device: nothing is changed. */
static sw_status shadow(fit *f, const sw_batch *b, double *loss)
{
    char wrong[800];
    SW_TRY(sw__shadow(f->t, f->beside, b->x, b->y, b->n, loss, wrong, sizeof wrong));
    f->shadowed++;
    if (!*wrong) return SW_OK;
    f->shadowed--;
    return sw__fail(SW_ERR_DEVICE, "shadow of step %lld: %s", (long long)(f->t->step + f->s.skipped + 1), wrong);
}

/* The step as it is taken has fused kernels, and sums in other orders: but not another loss. */
static sw_status compare_loss(const fit *f, double loss, double unfused)
{
    const sw_precision p = f->t->o.precision;
    const bool half = p == SW_PRECISION_BF16 || p == SW_PRECISION_F16; /* fused kernels round less often */
    const double bound = (half ? 3e-2 : 1e-3) * (1 + fabs(unfused));
    if (!isfinite(loss) || !isfinite(unfused) || fabs(loss - unfused) <= bound) return SW_OK;
    return sw__fail(SW_ERR_DEVICE, "shadow: every op is right by itself, but the step as a whole has the loss %.9g instead of "
                    "%.9g: a fused kernel is wrong (they may differ by %.3g)", loss, unfused, bound);
}

/* A batch is done: counts, events, and whatever is due. */
static sw_status step(fit *f, const sw_batch *b)
{
    double loss, correct, unfused = 0;
    const bool shadowed = f->beside && (f->t->step + f->s.skipped + 1) % f->o->shadow_every == 0;
    if (shadowed) SW_TRY(shadow(f, b, &unfused));
    SW_TRY(launch_batch(f, b));
    const sw_loader_position after = sw_loader_tell(f->loader);
    SW_TRY(send_ahead(f, b));
    SW_TRY(sw__trainer_read(f->t, b->n, &loss, &correct));
    f->s.at = after;
    f->saved = false;
    if (shadowed) SW_TRY(compare_loss(f, loss, unfused));
    if (!isfinite(loss)) return not_finite(f, loss);
    if (f->t->overflow) return overflow(f);
    f->s.loss_sum += loss * (double)b->n;
    f->s.correct += (int64_t)correct;
    f->s.samples += b->n;
    f->samples += b->n;
    sw_event e = describe(f, SW_EVENT_STEP);
    e.loss = loss;
    SW_TRY(emit(f, &e));
    if (f->t->stop) return sw__fail(SW_ERR_INTERRUPTED, "interrupted at step %lld", (long long)e.step);
    if (f->o->save_every > 0 && e.step % f->o->save_every == 0) return checkpoint(f);
    return SW_OK;
}

/* ---- one epoch -------------------------------------------------------------------------------------------------------------- */

sw_status sw__fit_check_monitor(const sw_trainer *t, const char *monitor)
{
    static const char *const known[] = {"val_loss", "val_acc", "loss", "acc"};
    bool found = !monitor;
    for (size_t i = 0; i < SW_COUNT(known) && !found; i++) found = strcmp(known[i], monitor) == 0;
    if (!found) return sw__fail(SW_ERR_ARGUMENT, "monitor is '%s', and must be one of val_loss, val_acc, loss, acc", monitor);
    if (monitor && strcmp(monitor, "acc") == 0 && t->target == SW_TARGET_SEQUENCE)
        return sw__fail(SW_ERR_ARGUMENT, "monitor is acc, but while sequences are learnt nothing is read: monitor val_acc, val_loss "
                        "or loss");
    if (monitor && strstr(monitor, "acc") && t->target != SW_TARGET_CLASS && t->target != SW_TARGET_SEQUENCE)
        return sw__fail(SW_ERR_ARGUMENT, "monitor is %s, but the answers are values, which have no accuracy: monitor val_loss "
                        "or loss", monitor);
    return SW_OK;
}

/* The monitored figure, and whether less is better. */
static double monitored(const fit *f, bool has_valid, bool *less)
{
    const char *m = f->o->monitor ? f->o->monitor : "val_loss";
    const bool accuracy = strstr(m, "acc") != NULL;
    *less = !accuracy;
    if (strncmp(m, "val_", 4) == 0 && has_valid) return accuracy ? f->valid.accuracy : f->valid.loss;
    return accuracy ? f->accuracy : f->loss;
}

/* After a whole epoch: one that is cut off by a limit of steps is judged once more when the run goes on. */
static void reduce(fit *f, bool has_valid)
{
    bool less = true;
    if (f->t->o.schedule.kind != SW_SCHEDULE_PLATEAU) return;
    const double figure = monitored(f, has_valid, &less);
    const double lr = sw_plateau_step(&f->t->o.schedule, &f->s.plateau, figure, less, f->t->schedule_lr);
    if (lr != f->t->schedule_lr)
        sw__log(SW_LOG_INFO, "no gain after epoch %lld: the learning rate goes from %g to %g", (long long)f->s.epoch + 1,
                f->t->schedule_lr, lr);
    f->t->schedule_lr = lr;
}

static void warn_no_figure(const fit *f)
{
    if (f->s.samples == 0)
        sw__log(SW_LOG_WARN, "epoch %lld: every one of its steps was skipped, so nothing was learnt in it",
                (long long)f->s.epoch + 1);
    else
        sw__log(SW_LOG_WARN, "epoch %lld: %s is not a number, so it cannot be the best epoch", (long long)f->s.epoch + 1,
                f->o->monitor ? f->o->monitor : "val_loss");
}

static bool judge(fit *f, bool has_valid)
{
    bool less = true;
    const double now = monitored(f, has_valid, &less);
    const bool better = !isnan(now) && (f->s.best_epoch == 0 || (less ? now < f->s.best : now > f->s.best));
    if (isnan(now) || f->s.samples == 0) warn_no_figure(f);
    if (better) {
        f->s.best = now;
        f->s.best_epoch = f->s.epoch + 1;
        f->s.since_best = 0;
    } else {
        f->s.since_best++;
    }
    return better;
}

static sw_status evaluate(fit *f)
{
    sw_status st = sw_trainer_evaluate(f->t, f->o->valid, &f->valid, NULL);
    while (st == SW_ERR_MEMORY) {
        SW_TRY(sw__memory_shrink(f->t));
        st = sw_trainer_evaluate(f->t, f->o->valid, &f->valid, NULL);
    }
    return st;
}

/* After the last batch of an epoch (or of the run): validation, best, last, checkpoint, event. */
static sw_status end_epoch(fit *f, bool whole)
{
    sw_event e = describe(f, SW_EVENT_EPOCH);
    f->loss = e.loss;
    f->accuracy = e.accuracy;
    const int64_t every = f->o->val_every > 0 ? f->o->val_every : 1;
    const bool last = !whole || f->s.epoch + 1 >= f->epochs || steps_are_done(f);
    e.has_valid = f->o->valid && (last || (f->s.epoch + 1) % every == 0);
    if (f->t->swa_now && whole) SW_TRY(sw__average_add(f->t));
    if (e.has_valid) SW_TRY(evaluate(f));
    e.valid = f->valid;
    const bool judged = e.has_valid || !f->o->valid;
    if (judged) e.best = judge(f, e.has_valid);
    if (judged && whole) reduce(f, e.has_valid);
    if (f->o->checkpoint) {
        if (e.best) SW_TRY(save_model(f, "best.safetensors"));
        SW_TRY(save_model(f, "last.safetensors"));
    }
    if (whole) { /* the state that a resumed fit starts from is that of the next epoch's start */
        f->s.seconds = seconds_now(f);
        f->started = f->epoch_started = sw__now();
        f->s.epoch_seconds = 0;
        f->wait_before = sw_loader_wait_seconds(f->loader);
        f->s.epoch++;
        f->s.at = (sw_loader_position){f->s.epoch, 0};
        f->s.loss_sum = 0;
        f->s.correct = f->s.samples = 0;
        f->saved = false;
    }
    e.seconds = seconds_now(f);
    SW_TRY(emit(f, &e));
    SW_TRY(checkpoint(f));
    if (f->o->patience > 0 && judged && f->s.since_best >= f->o->patience) {
        f->early = true;
        sw_event stop = describe(f, SW_EVENT_STOPPED);
        char message[160];
        snprintf(message, sizeof message, "no gain for %lld validations: the best was epoch %lld", (long long)f->s.since_best,
                 (long long)f->s.best_epoch);
        stop.message = message;
        return emit(f, &stop);
    }
    return SW_OK;
}

/* What changes with the number of the epoch. */
static sw_status begin_epoch(fit *f)
{
    sw_trainer *const t = f->t;
    t->swa_now = t->o.swa_start > 0 && f->s.epoch + 1 >= t->o.swa_start;
    if (t->o.freeze_epochs == 0 || f->s.epoch < t->o.freeze_epochs || t->thawed_at >= 0) return SW_OK;
    SW_TRY(sw_trainer_thaw(t));
    return sw__trainer_build(t);
}

static sw_status run_epoch(fit *f)
{
    SW_TRY(begin_epoch(f));
    for (;;) {
        sw_batch b;
        if (steps_are_done(f) || time_is_up(f)) {
            const bool whole = f->s.at.batch >= f->epoch_steps;
            return f->s.samples > 0 ? end_epoch(f, whole) : SW_OK;
        }
        SW_TRY(next_batch(f, &b));
        if (b.n == 0) return end_epoch(f, true);
        SW_TRY(step(f, &b));
    }
}

static bool finished(const fit *f)
{
    return f->early || f->s.epoch >= f->epochs || steps_are_done(f) || time_is_up(f);
}

/* ---- beginning -------------------------------------------------------------------------------------------------------------- */

static sw_status open_loader(fit *f)
{
    const sw_loader_options o = {.batch = f->t->o.batch, .shuffle = !f->o->keep_order, .drop_last = f->o->drop_last,
                                 .seed = f->t->o.seed, .workers = f->o->workers};
    SW_TRY(sw_loader_open(f->data, &o, &f->loader));
    f->epoch_steps = sw_loader_batches(f->loader);
    return SW_OK;
}

static void set_totals(fit *f)
{
    const sw_fit_options *o = f->o;
    f->epochs = o->epochs > 0 ? o->epochs : o->steps > 0 || o->time > 0 ? INT64_MAX : 1;
    f->total_steps = f->epochs == INT64_MAX ? 0 : sw__steps_of(f->epochs, f->epoch_steps);
    if (o->steps > 0) f->total_steps = f->total_steps > 0 ? SW_MIN(o->steps, f->total_steps) : o->steps;
}

/* Every program that this fit will run, so that their kernels are built together, and none in the middle. */
static sw_status make_all_programs(const fit *f)
{
    sw_trainer *const t = f->t;
    const bool whole_epochs = f->total_steps == 0 || f->total_steps >= f->epoch_steps;
    SW_TRY(sw__trainer_programs(t, SW__TRAIN, sw_dataset_about(f->data)->count, t->o.batch,
                                f->o->drop_last || !whole_epochs));
    if (f->o->valid) {
        const int64_t count = sw_dataset_about(f->o->valid)->count, averaged = t->averaged;
        if (t->o.ema > 0) t->averaged = SW_MAX(averaged, (int64_t)1); /* there will be one by then */
        const sw_status st = sw__trainer_programs(t, SW__EVAL, count, sw__eval_batch(t, count), false);
        t->averaged = averaged;
        SW_TRY(st);
    }
    SW_TRY(sw__average_prepare(t));
    return sw__trainer_build(t);
}

static sw_status make_programs(const fit *f)
{
    sw_status st = make_all_programs(f);
    while (st == SW_ERR_MEMORY) {
        SW_TRY(sw__memory_shrink(f->t));
        st = make_all_programs(f);
    }
    return st;
}

/* What must be as it was, so that the resumed fit goes on with the same samples in the same order. */
static sw_status check_resumed(const fit *f)
{
    const sw__fit_state *s = &f->s;
    if (s->seed != (int64_t)f->t->o.seed)
        return sw__fail(SW_ERR_ARGUMENT, "resume: seed was %lld and cannot become %lld", (long long)s->seed,
                        (long long)f->t->o.seed);
    if (s->shuffle == f->o->keep_order) return sw__fail(SW_ERR_ARGUMENT, "resume: shuffle cannot change");
    if (s->drop_last != f->o->drop_last) return sw__fail(SW_ERR_ARGUMENT, "resume: drop_last cannot change");
    return SW_OK;
}

/* Only these know when training ends; the others go on as they were. */
static bool has_end(sw_schedule_kind kind)
{
    return kind == SW_SCHEDULE_COSINE || kind == SW_SCHEDULE_LINEAR || kind == SW_SCHEDULE_POLYNOMIAL ||
           kind == SW_SCHEDULE_ONECYCLE;
}

/* Another end than planned: the rest of the schedule is laid from the present rate over the new remainder. A cycle does not
 * rise again: its way down is a cosine. */
static void plan_rest(sw_trainer *t, int64_t wanted)
{
    sw_schedule *const s = &t->o.schedule;
    if (wanted <= t->step || s->total + t->schedule_from == wanted) return;
    if (!has_end(s->kind)) {
        s->total = wanted - t->schedule_from;
        return;
    }
    const double highest = t->o.optimizer.lr, lr = sw__trainer_lr(t, t->step);
    if (s->kind == SW_SCHEDULE_ONECYCLE) {
        const bool rises = sw__trainer_lr(t, t->step + 1) > lr;
        if (rises) {
            s->total = wanted - t->schedule_from;
            return;
        }
        s->min_lr = sw__trainer_lr(t, wanted + s->total); /* where it ends */
        s->kind = SW_SCHEDULE_COSINE;
        s->warmup = 0;
    }
    s->warmup = SW_MAX(s->warmup - (t->step - t->schedule_from), (int64_t)0);
    t->schedule_lr = lr;
    t->schedule_from = t->step;
    s->total = wanted - t->step;
    if (lr <= s->min_lr * (1 + 1e-9) && highest > lr) { /* it had come to its end: at this rate nothing would be learnt */
        t->schedule_lr = highest;
        sw__log(SW_LOG_WARN, "the schedule had come to its end: it begins again at lr %g", highest);
    }
}

static sw_status resume(fit *f)
{
    sw_trainer *t = f->t;
    const int64_t old_total = t->o.schedule.total;
    SW_TRY(sw__checkpoint_read(t, f->o->resume, &f->s));
    SW_TRY(check_resumed(f));
    if (f->s.batch != t->o.batch) /* go on after the same samples, as nearly as whole batches can */
        f->s.at.batch = (f->s.at.batch * f->s.batch + t->o.batch - 1) / t->o.batch;
    f->s.batch = t->o.batch;
    f->s.at.batch = SW_MIN(f->s.at.batch, f->epoch_steps);
    plan_rest(t, old_total > 0 ? old_total : f->total_steps);
    SW_TRY(sw_loader_seek(f->loader, f->s.at));
    f->saved = f->o->checkpoint && strcmp(f->o->checkpoint, f->o->resume) == 0;
    return SW_OK;
}

static void begin(fit *f)
{
    sw_trainer *t = f->t;
    f->s = (sw__fit_state){.batch = t->o.batch, .seed = (int64_t)t->o.seed, .shuffle = !f->o->keep_order,
                           .drop_last = f->o->drop_last};
    if (t->o.schedule.total == 0) t->o.schedule.total = f->total_steps;
    const int64_t swa = t->o.swa_start;
    if (f->o->epochs > 0 && swa > f->o->epochs)
        sw__log(SW_LOG_WARN, "swa_start is epoch %lld, but training ends with epoch %lld: no average is made",
                (long long)swa, (long long)f->o->epochs);
    if (!f->o->valid && (!f->o->monitor || strncmp(f->o->monitor, "val_", 4) == 0))
        sw__log(f->o->monitor && strcmp(f->o->monitor, "val_loss") != 0 ? SW_LOG_WARN : SW_LOG_INFO, /* the default */
                "no validation set: the best epoch is chosen by the training figure instead of %s",
                f->o->monitor ? f->o->monitor : "val_loss");
    t->stop = 0;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------------- */

static void report(const fit *f, sw_fit_result *r)
{
    *r = (sw_fit_result){
        .epochs = f->s.epoch,
        .steps = f->t->step,
        .samples = f->samples,
        .seconds = seconds_now(f),
        .loss = f->s.samples ? f->s.loss_sum / (double)f->s.samples : f->loss,
        .accuracy = f->accuracy,
        .valid = f->valid,
        .best_epoch = f->s.best_epoch,
        .best = f->s.best,
        .skipped = f->s.skipped,
        .shrunk = f->t->shrunk,
        .overflows = f->s.overflows,
        .loss_scale = f->t->scale,
        .early = f->early,
        .shadowed = f->shadowed,
    };
}

/* Not one step of the whole run has changed a weight. */
static sw_status nothing_learnt(const fit *f)
{
    if (f->t->step > 0 || f->s.skipped == 0) return SW_OK;
    if (f->s.overflows < f->s.skipped)
        return sw__fail(SW_ERR_DIVERGED, "all %lld steps were skipped, %lld of them for a loss that is not finite: nothing was learnt",
                        (long long)f->s.skipped, (long long)(f->s.skipped - f->s.overflows));
    return sw__fail(SW_ERR_DIVERGED, "all %lld steps were skipped, as their gradients overflow f16 (the loss scale came down to %g): "
                    "nothing was learnt; train for more steps, with a lower learning rate, or in bf16", (long long)f->s.skipped,
                    f->t->scale / 2);
}

/* Whatever ends a fit with good weights saves them: an interruption, a callback's wish, time, a device without memory. */
static sw_status save_at_end(fit *f, sw_status st)
{
    const bool good = st == SW_OK || st == SW_ERR_INTERRUPTED || st == SW_ERR_DIVERGED || st == SW_ERR_MEMORY;
    if (!good || !f->o->checkpoint || !f->loader) return st;
    char why[1024];
    snprintf(why, sizeof why, "%s", sw_error());
    const sw_status saving = checkpoint(f);
    if (st == SW_OK) return saving;
    return saving == SW_OK ? sw__fail(st, "%s", why)
                           : sw__fail(saving, "%.500s; and the checkpoint could not be written: %.400s", why, sw_error());
}

sw_status sw_trainer_fit(sw_trainer *t, const sw_dataset *train, const sw_fit_options *o, sw_fit_result *result)
{
    if (!t || !train || !o) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_fit: trainer, data set or options is NULL");
    if ((o->checkpoint && !*o->checkpoint) || (o->resume && !*o->resume))
        return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_fit: checkpoint or resume is \"\"; NULL is no folder, \".\" this");
    if (!o->metadata && o->n_metadata) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_fit: metadata is NULL");
    fit f = {.t = t, .data = train, .o = o, .loss = NAN, .accuracy = NAN};
    f.started = f.epoch_started = sw__now();
    if (o->checkpoint) SW_TRY(sw__make_folder(o->checkpoint));
    sw_status st = sw_trainer_prepare(t, train);
    if (st == SW_OK) st = sw__fit_check_monitor(t, o->monitor);
    if (st == SW_OK && o->valid) st = sw_dataset_about(o->valid)->target == SW_TARGET_NONE
                                          ? sw__fail(SW_ERR_DATA, "the validation set has no labels") : SW_OK;
    if (st == SW_OK) st = open_loader(&f);
    if (st == SW_OK && o->shadow_every > 0) st = sw_device_open(o->shadow ? o->shadow : "ref", NULL, &f.beside);
    if (st == SW_OK) {
        set_totals(&f);
        begin(&f);
        if (o->resume) st = resume(&f);
        if (st == SW_OK && !finished(&f)) st = make_programs(&f);
        f.started = f.epoch_started = sw__now(); /* what is compiled first is no training */
    }
    if (st == SW_OK && o->checkpoint && !o->resume) st = checkpoint(&f); /* a kill in the first epoch can be resumed too */
    while (st == SW_OK && !finished(&f)) st = run_epoch(&f);
    if (st == SW_OK) st = nothing_learnt(&f);
    st = save_at_end(&f, st);
    if (result && f.loader) report(&f, result);
    sw_loader_close(f.loader);
    sw_device_close(f.beside);
    return st;
}
