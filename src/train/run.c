/* run.c: a whole training run by configuration: open everything, check everything, make the run folder, train.
 * The library side of `swoop train`; files of the run are written by run_files.c. */
#include "train/hashes.h"
#include "train/run.h"
#include "train/run_files.h"
#include "train/run_options.h"
#include "train/trainer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct run {
    sw_config *c;
    const sw_run_callbacks *cb;
    sw_dataset *train, *val, *test;
    sw_device *device;
    sw_trainer *trainer;
    sw__run_files files;
    sw__hashes hashes;
    const sw__replay *replay;  /* NULL: a run of its own */
    const char *why;           /* the device was chosen; "": the user did */
    const char *write_kernels; /* NULL, or the folder of sw_run_kernels */
    bool tune;                 /* sw_run_tune */
    sw__run_shadow shadow;
    sw__model_about about;
    sw__text info;
    char resume[SW__PATH]; /* folder, or "" */
    int64_t total_steps;
} run;

static void note(const run *r, const char *label, const char *fmt, ...) SW_PRINTF(3, 4);
static void note(const run *r, const char *label, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sw__run_files_log(&r->files, "%-7s %s", label, text);
    if (r->cb->note) r->cb->note(r->cb->context, label, text);
}

/* ---- resuming: the old configuration, with the changes that are allowed ------------------------------------------ */

static sw_status find_resumed(run *r)
{
    const char *name = sw_config_text(r->c, SW_KEY_RESUME);
    if (!*name) return SW_OK;
    if (strcmp(name, "last") == 0)
        snprintf(r->resume, sizeof r->resume, "%s/last", sw_config_text(r->c, SW_KEY_PROJECT));
    else
        snprintf(r->resume, sizeof r->resume, "%s", name);
    struct stat s;
    if (stat(r->resume, &s) != 0 || !S_ISDIR(s.st_mode))
        return sw__fail(SW_ERR_ARGUMENT, "resume: there is no run folder '%s'", r->resume);
    return SW_OK;
}

static sw_status take_key(run *r, const sw_config *old, sw_key k)
{
    const sw_key_info *info = sw_config_about(k);
    if (k == SW_KEY_RESUME || k == SW_KEY_DRY_RUN || k == SW_KEY_EXIST_OK || k == SW_KEY_PROJECT) return SW_OK;
    const char *was = sw_config_text(old, k), *now = sw_config_text(r->c, k);
    if (sw_config_origin(r->c, k) == SW_FROM_DEFAULT) return strcmp(was, now) == 0 ? SW_OK : sw_config_choose(r->c, k, was);
    if (strcmp(was, now) == 0) return SW_OK;
    if (!info->may_change)
        return sw__fail(SW_ERR_ARGUMENT, "resume: %s was %s and cannot become %s; what may change: epochs, steps, time, "
                        "patience, device, threads, workers, batch_size, kernels, no_tune, preflight, shadow, "
                        "hashes, memory, grad_accum, on_oom", info->name, was, now);
    note(r, "change", "%s %s (was %s)", info->name, now, was);
    return SW_OK;
}

static sw_status merge_resumed(run *r)
{
    char path[SW__PATH + 16];
    snprintf(path, sizeof path, "%s/config.yaml", r->resume);
    sw_config *old = NULL;
    SW_TRY(sw_config_new(&old));
    sw_status st = sw_config_load(old, path);
    for (int k = 0; k < SW_KEY_COUNT && st == SW_OK; k++) st = take_key(r, old, (sw_key)k);
    sw_config_free(old);
    return st;
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static sw_status parse_normalize(const char *text, sw_normalization *n)
{
    char *colon, *end = NULL;
    const float mean = strtof(text, &colon), std = *colon == ':' ? strtof(colon + 1, &end) : 0;
    if (colon == text || *colon != ':' || end == colon + 1 || *end != '\0')
        return sw__fail(SW_ERR_ARGUMENT, "normalize: '%s' is neither train, none, nor MEAN:STD such as 0.5:0.25", text);
    if (!isfinite(mean) || !(std > 0) || !isfinite(std))
        return sw__fail(SW_ERR_ARGUMENT, "normalize: '%s' needs a finite mean and a positive deviation", text);
    *n->mean = mean;
    *n->std = std;
    return SW_OK;
}

static sw_status apply_normalization(run *r, const sw_normalization *n)
{
    SW_TRY(sw_dataset_normalize(r->train, n));
    if (r->val) SW_TRY(sw_dataset_normalize(r->val, n));
    return r->test ? sw_dataset_normalize(r->test, n) : SW_OK;
}

static sw_status normalize(run *r)
{
    const char *how = sw_config_text(r->c, SW_KEY_NORMALIZE);
    if (strcmp(how, "none") == 0) return SW_OK;
    if (sw_dataset_about(r->train)->x_dtype != SW_F32)
        return strcmp(how, "train") == 0
                   ? SW_OK
                   : sw__fail(SW_ERR_ARGUMENT, "normalize is '%.60s', but the samples of %s are tokens: leave it out",
                              how, sw_dataset_about(r->train)->name);
    if (strcmp(how, "train") == 0) {
        sw_normalization n = {0};
        SW_TRY(sw_dataset_measure(r->train, &n));
        const sw_status st = apply_normalization(r, &n);
        sw_normalization_free(&n);
        return st;
    }
    float mean = 0, std = 1;
    sw_normalization n = {.channels = 1, .mean = &mean, .std = &std};
    SW_TRY(parse_normalize(how, &n));
    return apply_normalization(r, &n);
}

/* Where validation is from: a set of its own, the end of a text, or a part that was drawn. */
static void say_held(const run *r, char *held, size_t size)
{
    const sw_dataset_info *const d = sw_dataset_about(r->train);
    const char *const given = sw_config_text(r->c, SW_KEY_VAL);
    const double part = 100 * sw_config_number(r->c, SW_KEY_VAL_SPLIT);
    *held = 0;
    if (!r->val) return;
    const long long n = (long long)sw_dataset_about(r->val)->count;
    if (*given)
        snprintf(held, size, ", %lld val (%.80s)", n, given);
    else if (d->x_dtype == SW_I64 && (strcmp(d->format, "text") == 0 || strcmp(d->format, "bytes") == 0))
        snprintf(held, size, ", %lld val (%g %%, the end)", n, part);
    else
        snprintf(held, size, ", %lld val (%g %%, %sseed %lld)", n, part,
                 d->target == SW_TARGET_CLASS && d->y_rank == 0 ? "stratified, " : "",
                 (long long)sw_config_int(r->c, SW_KEY_SEED));
}

/* What there is an answer for. */
static void say_answers(const sw_dataset_info *d, char *text, size_t size)
{
    *text = 0;
    if (d->x_dtype == SW_I64) snprintf(text, size, " tokens a sample");
    if (d->target == SW_TARGET_SEQUENCE) snprintf(text, size, ", sequences of up to %lld labels", (long long)d->y_shape[0]);
    if (d->target != SW_TARGET_CLASS || d->y_rank < 2) return;
    snprintf(text, size, ", a class for each of ");
    sw__sample_shape(d->y_rank, d->y_shape, text + strlen(text), size - strlen(text));
}

static void note_data(const run *r)
{
    const sw_dataset_info *d = sw_dataset_about(r->train);
    const sw_normalization *n = sw_dataset_normalization(r->train);
    char shape[96], held[160], norm[96] = "", answers[128], kind[64] = ", values";
    sw__sample_shape(d->x_rank, d->x_shape, shape, sizeof shape);
    say_held(r, held, sizeof held);
    say_answers(d, answers, sizeof answers);
    if (n && n->channels == 1)
        snprintf(norm, sizeof norm, ", mean %.3f std %.3f", (double)n->mean[0], (double)n->std[0]);
    else if (n)
        snprintf(norm, sizeof norm, ", normalised per channel");
    if (d->classes > 0) snprintf(kind, sizeof kind, ", %lld classes", (long long)d->classes);
    note(r, "data", "%s (%s): %lld train%s%s, %s%s%s", d->name, d->format, (long long)d->count, held, kind, shape, answers, norm);
}

/* ---- model and trainer ------------------------------------------------------------------------------------------- */

static int64_t epoch_steps(const run *r)
{
    const int64_t n = sw_dataset_about(r->train)->count, batch = sw_config_int(r->c, SW_KEY_BATCH_SIZE);
    return sw_config_bool(r->c, SW_KEY_DROP_LAST) ? n / batch : (n + batch - 1) / batch;
}

static void set_total_steps(run *r)
{
    const int64_t steps = sw_config_int(r->c, SW_KEY_STEPS);
    r->total_steps = sw__steps_of(sw_config_int(r->c, SW_KEY_EPOCHS), epoch_steps(r));
    if (steps > 0) r->total_steps = SW_MIN(steps, r->total_steps);
}

/* Starting weights from a file: of a golden or benchmark file ("init.…"), or a model's own. */
static sw_status load_weights(run *r)
{
    const char *init = sw_config_text(r->c, SW_KEY_INIT), *weights = sw_config_text(r->c, SW_KEY_WEIGHTS);
    sw_init scheme;
    if (*weights) {
        char path[SW__PATH + 32];
        struct stat s;
        const bool folder = stat(weights, &s) == 0 && S_ISDIR(s.st_mode);
        snprintf(path, sizeof path, "%.1150s%s", weights, folder ? "/best.safetensors" : "");
        SW_TRY(sw_trainer_load(r->trainer, path, NULL));
    }
    if (sw__run_init_scheme(init, &scheme)) return SW_OK;
    sw_safetensors *f = NULL;
    struct stat there;
    if (stat(init, &there) != 0 && !strchr(init, '/') && !strchr(init, '.')) return sw__run_no_scheme(init);
    SW_TRY(sw_safetensors_open(init, &f));
    bool prefixed = false;
    for (size_t i = 0; i < sw_safetensors_count(f); i++)
        if (strncmp(sw_safetensors_at(f, i)->name, "init.", 5) == 0) prefixed = true;
    sw_safetensors_close(f);
    return sw_trainer_load(r->trainer, init, prefixed ? "init." : NULL);
}

/* The device of the shadow steps is there: fit opens it again. */
static sw_status check_beside(const sw__run_shadow *shadow)
{
    sw_device *beside = NULL;
    if (shadow->every == 0 || !shadow->device) return SW_OK;
    const sw_status st = sw_device_open(shadow->device, NULL, &beside);
    sw_device_close(beside);
    return st == SW_OK ? SW_OK : sw__prefix(st == SW_ERR_ARGUMENT ? SW_ERR_DEVICE : st, "shadow");
}

static sw_status new_trainer(run *r, const sw__run_lists *lists)
{
    const sw_dataset_info *d = sw_dataset_about(r->train);
    sw_trainer_options o;
    SW_TRY(sw__run_shadow_of(r->c, &r->shadow)); /* used by fit, but told before there is a folder */
    SW_TRY(check_beside(&r->shadow));
    SW_TRY(sw__run_trainer_options(r->c, d, lists, &o));
    SW_TRY(sw__run_schedule(r->c, epoch_steps(r), r->total_steps, &o.schedule));
    SW_TRY(sw_trainer_new(r->device, &o, &r->trainer));
    char shape[96];
    sw__sample_shape(d->x_rank, d->x_shape, shape, sizeof shape);
    const sw_status st = sw_trainer_prepare(r->trainer, r->train);
    if (st != SW_OK) return sw__prefix(st, "model %s on samples of %s", sw__model_text(o.model_name), shape);
    SW_TRY(sw__run_lists_check(lists, sw_trainer_params(r->trainer)));
    SW_TRY(sw__fit_check_monitor(r->trainer, sw_config_text(r->c, SW_KEY_MONITOR)));
    SW_TRY(load_weights(r));
    return sw__run_note_chosen(r->c, &o.optimizer);
}

static sw_status make_trainer(run *r)
{
    sw__run_lists lists;
    SW_TRY(sw__run_lists_read(&lists, r->c));
    sw_status st = sw__run_class_weights(&lists, r->c, r->train);
    if (st == SW_OK) st = new_trainer(r, &lists);
    sw__run_lists_free(&lists);
    return st;
}

static int64_t count_parameters(sw_params *p)
{
    int64_t n = 0;
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        if (sw_params_info(p, i, &v) == SW_OK && v.kind == SW_VAR_PARAM) n += v.elements;
    }
    return n;
}

typedef char size_text[32];

static const char *say_size(size_text text, uint64_t bytes)
{
    const double kib = (double)bytes / 1024;
    const bool small = kib < 102.4; /* which would be 0.0 MiB */
    snprintf(text, sizeof(size_text), "%.1f %s", small ? kib : kib / 1024, small ? "KiB" : "MiB");
    return text;
}

/* What is done so that the step fits, and what it costs. */
static void note_memory(const run *r)
{
    size_text allowed, planned;
    sw_trainer_memory_info m;
    if (sw_trainer_memory(r->trainer, &m) != SW_OK) return;
    const sw_plan_again *const a = &m.plan.again;
    if (m.memory == 0 && m.parts == 1) return;
    char again[240] = "nothing recomputed", parts[200] = "";
    if (a->launches > 0)
        snprintf(again, sizeof again, "%d of %d launches recomputed (%d products; %.1f %% more operations, some %.0f %% "
                 "more time; without %.1f MiB)", a->launches, m.plan.launches, a->products,
                 100 * a->flops / (m.plan.flops - a->flops), 100 * a->slower, (double)a->without / 1048576);
    if (m.parts > 1)
        snprintf(parts, sizeof parts, "; %lld micro-batches of %lld, whose gradients add up to the batch's (batch norm sees "
                 "micro-batches)", (long long)m.parts, (long long)m.micro_batch);
    if (m.memory > 0) note(r, "memory", "%s allowed, %s planned: %s%s", say_size(allowed, m.memory), say_size(planned, m.plan.total),
                           again, parts);
    else note(r, "memory", "%s%s", again, parts);
}

static void note_training(const run *r)
{
    const sw_config *c = r->c;
    const sw_device_properties *d = sw_device_info(r->device);
    const sw_plan *plan = sw_trainer_plan(r->trainer);
    note(r, "model", "%s, %lld parameters", sw__model_text(sw_config_text(c, SW_KEY_MODEL)),
         (long long)count_parameters(sw_trainer_params(r->trainer)));
    const char *const schedule = sw_config_text(c, SW_KEY_SCHEDULE);
    char warmup[40] = "";
    if (strcmp(schedule, "onecycle") != 0) /* which is its own */
        snprintf(warmup, sizeof warmup, ", warmup %g %%", 100 * sw_config_number(c, SW_KEY_WARMUP));
    note(r, "train", "%s lr %g weight_decay %g, %s%s, batch %lld, %lld steps an epoch, %lld in all, %s, seed %lld",
         sw_config_text(c, SW_KEY_OPTIMIZER), sw_config_number(c, SW_KEY_LR), sw_config_number(c, SW_KEY_WEIGHT_DECAY),
         schedule, warmup, (long long)sw_config_int(c, SW_KEY_BATCH_SIZE), (long long)epoch_steps(r), (long long)r->total_steps,
         sw_config_text(c, SW_KEY_PRECISION), (long long)sw_config_int(c, SW_KEY_SEED));
    sw_precision precision = SW_PRECISION_F32;
    char how[256];
    sw_precision_find(sw_config_text(c, SW_KEY_PRECISION), &precision);
    sw_precision_note(precision, plan, d, how, sizeof how);
    if (*how) note(r, "mixed", "%s", how);
    size_text planned;
    note(r, "device", "%s %s, %s; %s planned of %.1f GiB free%s", d->id, d->name, d->compute, say_size(planned, plan->total),
         (double)d->memory_free / 1073741824, r->why);
    note_memory(r);
}

/* Figures of a device that computes nothing would be made up. */
sw_status sw__run_check_computes(const sw_device *d)
{
    if (strcmp(sw_device_info(d)->backend, "null") != 0) return SW_OK;
    return sw__fail(SW_ERR_DEVICE, "device null computes nothing: it is for plans (swoop train --dry-run)");
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static sw_status on_event(void *context, const sw_event *e)
{
    run *r = context;
    if (r->cb->stop && *r->cb->stop) sw_trainer_stop(r->trainer);
    SW_TRY(sw__run_files_event(&r->files, e));
    if (sw_config_bool(r->c, SW_KEY_HASHES)) SW_TRY(sw__hashes_event(&r->hashes, sw_trainer_params(r->trainer), e));
    return r->cb->event ? r->cb->event(r->cb->context, e) : SW_OK;
}

/* What decides on the steps that are done, and so is the same when they are done again. */
static sw_fit_options how_to_fit(run *r)
{
    const sw_config *const c = r->c;
    return (sw_fit_options){
        .epochs = sw_config_int(c, SW_KEY_EPOCHS),
        .steps = sw_config_int(c, SW_KEY_STEPS),
        .val_every = sw_config_int(c, SW_KEY_VAL_EVERY),
        .keep_order = !sw_config_bool(c, SW_KEY_SHUFFLE),
        .drop_last = sw_config_bool(c, SW_KEY_DROP_LAST),
        .workers = (int)sw_config_int(c, SW_KEY_WORKERS),
        .continue_on_nan = strcmp(sw_config_text(c, SW_KEY_ON_NAN), "continue") == 0,
        .context = r,
    };
}

static sw_status fit(run *r, sw_fit_result *result)
{
    const sw_config *const c = r->c;
    const sw_text_pair metadata[] = {{SW__INFO_KEY, r->info.s}, {"swoop.version", sw_version()}};
    sw_fit_options o = how_to_fit(r);
    o.time = sw_config_number(c, SW_KEY_TIME);
    o.valid = r->val;
    o.monitor = sw_config_text(c, SW_KEY_MONITOR);
    o.patience = sw_config_int(c, SW_KEY_PATIENCE);
    o.checkpoint = r->files.folder;
    o.resume = *r->resume ? r->resume : NULL;
    o.save_every = sw_config_int(c, SW_KEY_SAVE_EVERY);
    o.event = on_event;
    o.metadata = metadata;
    o.n_metadata = SW_COUNT(metadata);
    o.shadow_every = r->shadow.every;
    o.shadow = r->shadow.device;
    return sw_trainer_fit(r->trainer, r->train, &o, result);
}

/* The test at the end is the best epoch's, as the file that is kept. */
static sw_status run_test(run *r, sw_run_result *out)
{
    char path[SW__PATH + 32];
    if (!r->test) return SW_OK;
    snprintf(path, sizeof path, "%s/best.safetensors", r->files.folder);
    if (out->fit.best_epoch > 0) SW_TRY(sw_trainer_load(r->trainer, path, NULL));
    SW_TRY(sw_trainer_evaluate(r->trainer, r->test, &out->test, NULL));
    out->has_test = true;
    return SW_OK;
}

static sw_status open_all(run *r)
{
    const sw_config *c = r->c;
    SW_TRY(sw__run_open_data(c, true, &r->train, &r->val, &r->test));
    const char *const kernels = sw_config_text(c, SW_KEY_KERNELS);
    const sw_device_options device = {.threads = sw_config_is_auto(c, SW_KEY_THREADS) ? 0
                                                                                     : (int)sw_config_int(c, SW_KEY_THREADS),
                                      .kernels = *kernels ? kernels : NULL, .write_kernels = r->write_kernels,
                                      .no_tune = sw_config_bool(c, SW_KEY_NO_TUNE), .tune_all = r->tune,
                                      .tf32 = strcmp(sw_config_text(c, SW_KEY_PRECISION), "tf32") == 0};
    SW_TRY(sw_device_open(sw_config_is_auto(c, SW_KEY_DEVICE) ? NULL : sw_config_text(c, SW_KEY_DEVICE), &device, &r->device));
    if (sw_config_is_auto(c, SW_KEY_DEVICE)) {
        const char *wish = getenv("SWOOP_DEVICE");
        r->why = wish && *wish && strcmp(wish, "auto") != 0                ? " (SWOOP_DEVICE)"
                 : strcmp(sw_device_info(r->device)->type, "cpu") == 0 ? " (auto: there is no GPU that works)"
                                                                       : " (auto: the first GPU that works)";
        SW_TRY(sw_config_choose(r->c, SW_KEY_DEVICE, sw_device_info(r->device)->id));
    }
    const char *const type = sw_device_info(r->device)->backend;
    if (*kernels && (strcmp(type, "cpu") == 0 || strcmp(type, "ref") == 0))
        return sw__fail(SW_ERR_ARGUMENT, "kernels '%.200s' are a GPU's, but the device is %s, which has none to load",
                        kernels, type);
    if (!sw_config_bool(c, SW_KEY_DRY_RUN) && !r->write_kernels) SW_TRY(sw__run_check_computes(r->device));
    SW_TRY(sw__run_choose(r->c, SW_KEY_THREADS, "%.0f", SW_MAX(sw_device_info(r->device)->compute_units, 1)));
    SW_TRY(sw__run_choose(r->c, SW_KEY_WORKERS, "%.0f", 1));
    set_total_steps(r);
    if (r->total_steps == 0)
        return sw__fail(SW_ERR_DATA, "%s: %lld samples do not fill one batch of %lld, and drop_last leaves it out",
                        sw_dataset_about(r->train)->name, (long long)sw_dataset_about(r->train)->count,
                        (long long)sw_config_int(c, SW_KEY_BATCH_SIZE));
    SW_TRY(make_trainer(r));
    SW_TRY(sw_dataset_ready(r->train));
    SW_TRY(normalize(r));
    return sw_dataset_about(r->train)->classes > 0
               ? sw__run_choose(r->c, SW_KEY_NUM_CLASSES, "%.0f", (double)sw_dataset_about(r->train)->classes)
               : SW_OK;
}

static sw_status describe_model(run *r)
{
    const bool classes = r->trainer->target == SW_TARGET_CLASS;
    const int64_t outputs = classes ? sw_trainer_output_size(r->trainer) / r->trainer->positions
                                    : r->trainer->outputs; /* of an output for each pixel: channels */
    SW_TRY(sw__about_of(r->train, sw_config_text(r->c, SW_KEY_MODEL), outputs, &r->about));
    sw_precision_find(sw_config_text(r->c, SW_KEY_PRECISION), &r->about.precision);
    return sw__about_write(&r->about, &r->info);
}

static sw_status write_profile(run *r)
{
    if (sw_config_int(r->c, SW_KEY_PROFILE) == 0) return SW_OK;
    static const struct { sw_profile_format format; const char *file; } parts[] = {
        {SW_PROFILE_TABLE, "profile.txt"}, {SW_PROFILE_JSON, "profile.json"}, {SW_PROFILE_TRACE, "trace.json"}};
    sw_status st = SW_OK;
    for (size_t i = 0; i < SW_COUNT(parts) && st == SW_OK; i++) {
        char *text = NULL;
        st = sw_trainer_profile(r->trainer, parts[i].format, &text);
        if (st == SW_OK) st = sw__run_files_write(&r->files, parts[i].file, text);
        sw_string_free(text);
    }
    return st;
}

static void on_finding(void *context, const sw_finding *f)
{
    static const char *const labels[] = {"note", "warning", "error"};
    const run *const r = context;
    if (f->level != SW_FINDING_ERROR) note(r, labels[f->level], "%s: %s", f->check, f->message);
}

/* Where a loss that is not finite is no reason to stop, it is none here. A folder of kernels has none for this. */
static sw_status preflight(run *r)
{
    if (!sw_config_bool(r->c, SW_KEY_PREFLIGHT) || *sw_config_text(r->c, SW_KEY_KERNELS) || *r->resume) return SW_OK;
    const sw_status st = sw_trainer_preflight(r->trainer, r->train, !sw_config_bool(r->c, SW_KEY_SHUFFLE), on_finding, r);
    if (st == SW_ERR_DIVERGED && strcmp(sw_config_text(r->c, SW_KEY_ON_NAN), "continue") == 0) return SW_OK;
    return st;
}

static sw_status go(run *r, sw_run_result *out)
{
    SW_TRY(sw__run_files_check(r->c));
    SW_TRY(find_resumed(r));
    if (*r->resume) SW_TRY(merge_resumed(r));
    SW_TRY(open_all(r));
    note_data(r);
    note_training(r);
    if (sw_config_bool(r->c, SW_KEY_DRY_RUN)) return SW_OK;
    SW_TRY(describe_model(r));
    SW_TRY(sw__run_files_open(&r->files, r->c, r->resume));
    snprintf(out->folder, sizeof out->folder, "%.1000s", r->files.folder);
    SW_TRY(sw__run_files_describe(&r->files, r->c, r->device, sw_trainer_plan(r->trainer)));
    note(r, "run", "%s", r->files.folder);
    snprintf(r->hashes.path, sizeof r->hashes.path, "%s/hashes.csv", r->files.folder);
    r->hashes.every = sw_config_int(r->c, SW_KEY_LOG_EVERY);
    sw_status st = preflight(r);
    if (st == SW_OK) st = fit(r, &out->fit);
    if (st != SW_OK) {
        char why[1024];
        snprintf(why, sizeof why, "%s", sw_error());
        sw__run_files_log(&r->files, "error   %s", why);
        return sw__fail(st, "%s", why);
    }
    if (*r->resume && out->fit.samples == 0)
        note(r, "done", "nothing was left to do: %lld epochs, %lld steps are trained; for more give epochs or steps",
             (long long)out->fit.epochs, (long long)out->fit.steps);
    if (out->fit.shadowed > 0)
        note(r, "shadow", "%lld steps beside another device: every op within its bound", (long long)out->fit.shadowed);
    SW_TRY(write_profile(r));
    return run_test(r, out);
}

static void run_free(run *r)
{
    sw__run_files_close(&r->files);
    sw__hashes_close(&r->hashes);
    sw_trainer_free(r->trainer);
    sw_device_close(r->device);
    sw_dataset_close(r->train);
    sw_dataset_close(r->val);
    sw_dataset_close(r->test);
    sw__about_free(&r->about);
    sw__text_free(&r->info);
}

static const sw_run_callbacks silent;

sw_status sw_run_train(sw_config *c, const sw_run_callbacks *cb, sw_run_result *out)
{
    if (!c || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_run_train: configuration or out is NULL");
    *out = (sw_run_result){0};
    run r = {.c = c, .cb = cb ? cb : &silent, .why = ""};
    const sw_status st = go(&r, out);
    run_free(&r);
    return st;
}

/* ---- a run again, without its files ------------------------------------------------------------------------------ */

static sw_status on_replayed(void *context, const sw_event *e)
{
    run *const r = context;
    return r->replay->event(r->replay->context, r->trainer, e);
}

/* Validation changes nothing but the rate on a plateau. */
static sw_status replay(run *r)
{
    const sw_config *const c = r->c;
    const bool plateau = strcmp(sw_config_text(c, SW_KEY_SCHEDULE), "plateau") == 0;
    sw_fit_options o = how_to_fit(r);
    o.valid = plateau ? r->val : NULL;
    o.monitor = plateau ? sw_config_text(c, SW_KEY_MONITOR) : NULL;
    o.resume = r->replay->from_start ? NULL : r->replay->folder;
    o.event = on_replayed;
    r->trainer->from_previous = true;
    r->replay->opened(r->replay->context, r->device, c);
    return sw_trainer_fit(r->trainer, r->train, &o, NULL);
}

sw_status sw__run_replay(sw_config *c, const sw__replay *how)
{
    run r = {.c = c, .cb = &silent, .why = "", .replay = how};
    sw_status st = open_all(&r);
    if (st == SW_OK) st = replay(&r);
    run_free(&r);
    return st;
}

/* All that the run would compile, and its kernels. */
static sw_status compile_all(run *r)
{
    const sw_config *const c = r->c;
    note_data(r);
    note_training(r);
    SW_TRY(sw__trainer_programs(r->trainer, SW__TRAIN, sw_dataset_about(r->train)->count,
                                sw_config_int(c, SW_KEY_BATCH_SIZE), sw_config_bool(c, SW_KEY_DROP_LAST)));
    const sw_dataset *const sets[] = {r->val, r->test};
    for (size_t i = 0; i < SW_COUNT(sets); i++) {
        if (!sets[i]) continue;
        const int64_t count = sw_dataset_about(sets[i])->count;
        SW_TRY(sw__trainer_programs(r->trainer, SW__EVAL, count, sw__eval_batch(r->trainer, count), false));
    }
    SW_TRY(sw__average_prepare(r->trainer));
    SW_TRY(sw__trainer_build(r->trainer));
    if (sw_config_int(c, SW_KEY_FREEZE_EPOCHS) == 0) return SW_OK;
    SW_TRY(sw_trainer_thaw(r->trainer)); /* the steps of after that, too */
    return sw__trainer_build(r->trainer);
}

sw_status sw_run_kernels(sw_config *c, const char *folder, const sw_run_callbacks *cb)
{
    if (!c || !folder || !*folder) return sw__fail(SW_ERR_ARGUMENT, "sw_run_kernels: configuration or folder is missing");
    run r = {.c = c, .cb = cb ? cb : &silent, .why = "", .write_kernels = folder};
    sw_status st = open_all(&r);
    if (st == SW_OK) st = compile_all(&r);
    run_free(&r);
    return st;
}

sw_status sw_run_tune(sw_config *c, const sw_run_callbacks *cb, sw_tune_result *out)
{
    if (!c || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_run_tune: configuration or out is NULL");
    *out = (sw_tune_result){0};
    run r = {.c = c, .cb = cb ? cb : &silent, .why = "", .tune = true};
    sw_status st = open_all(&r);
    if (st == SW_OK) st = compile_all(&r);
    if (st == SW_OK) st = sw_device_tuned(r.device, out);
    run_free(&r);
    return st;
}
