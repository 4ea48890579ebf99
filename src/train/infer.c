/* infer.c: evaluating and predicting with the model of a run or a model file; nothing else is needed than that file.
 * The library side of `swoop eval` and `swoop predict`. */
#include "train/infer.h"
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

/* A run folder stands for its best model, or its last if no epoch was finished. */
static sw_status find_file(sw__infer *s, const char *path)
{
    struct stat about;
    if (!path || !*path) return sw__fail(SW_ERR_ARGUMENT, "no run folder or model file given");
    if (stat(path, &about) != 0) return sw__fail(SW_ERR_IO, "%s: there is no such run folder or model file", path);
    if (!S_ISDIR(about.st_mode)) {
        snprintf(s->file, sizeof s->file, "%s", path);
        return SW_OK;
    }
    snprintf(s->config, sizeof s->config, "%.1000s/config.yaml", path);
    snprintf(s->file, sizeof s->file, "%.1000s/best.safetensors", path);
    if (stat(s->file, &about) != 0) snprintf(s->file, sizeof s->file, "%.1000s/last.safetensors", path);
    if (stat(s->file, &about) != 0)
        return sw__fail(SW_ERR_IO, "%s: it holds no best.safetensors or last.safetensors: no epoch of this run was finished",
                        path);
    return SW_OK;
}

/* The data of the run itself: its test split if there is one, else what was held out for validation. */
static sw_status open_own_data(sw__infer *s, const char *split)
{
    if (!*s->config)
        return sw__fail(SW_ERR_ARGUMENT, "%s: a model file does not say on which data: give --data", s->file);
    sw_config *c = NULL;
    sw_dataset *train = NULL, *val = NULL, *test = NULL;
    SW_TRY(sw_config_new(&c));
    sw_status st = sw_config_load(c, s->config);
    if (st == SW_OK) st = sw__run_open_data(c, false, &train, &val, &test);
    if (st == SW_OK && !test && (!split || strcmp(split, "test") == 0)) {
        const sw_dataset_options o = {.split = "test", .format = sw_config_text(c, SW_KEY_FORMAT),
                                      .num_classes = s->about.classes};
        const sw_status opened = sw_dataset_open(sw_config_text(c, SW_KEY_DATA), &o, &test);
        if (opened != SW_OK && split) st = opened;
        if (opened != SW_OK && !split) split = val ? "val" : "train";
    }
    sw_dataset **wanted = !split || strcmp(split, "test") == 0 ? &test : strcmp(split, "val") == 0 ? &val : &train;
    if (st == SW_OK && split && strcmp(split, "val") != 0 && strcmp(split, "test") != 0 && strcmp(split, "train") != 0)
        st = sw__fail(SW_ERR_ARGUMENT, "split '%s': choose from train, val, test", split);
    if (st == SW_OK && !*wanted) st = sw__fail(SW_ERR_ARGUMENT, "%s: the run had no %s data", s->config, split ? split : "test");
    if (st == SW_OK) {
        s->split = split ? split : "test";
        s->data = *wanted;
        *wanted = NULL;
    }
    sw_dataset_close(train);
    sw_dataset_close(val);
    sw_dataset_close(test);
    sw_config_free(c);
    return st;
}

static sw_status open_data(sw__infer *s, const char *data, const char *split, bool labels)
{
    if (!data) return open_own_data(s, split);
    sw_dataset_options o = {.split = split ? split : "test", .tokens = s->about.tokens,
                            .num_classes = labels ? s->about.classes : 0,
                            .target = !labels ? SW_TARGET_NONE
                                      : s->about.target == SW_TARGET_SEQUENCE ? SW_TARGET_SEQUENCE : SW_TARGET_AUTO,
                            .shape_rank = s->about.x_rank};
    memcpy(o.shape, s->about.x_shape, sizeof o.shape);
    if (s->about.coding != SW__CODING_NUMBERS) o.sequence = s->about.x_shape[0];
    if (s->about.coding == SW__CODING_BYTES) o.format = "bytes";
    if (s->about.coding == SW__CODING_LINES) o.format = "lines";
    if (s->about.coding == SW__CODING_CHARACTERS || s->about.coding == SW__CODING_LINES) {
        o.vocabulary = (const char *const *)s->about.class_names;
        o.n_vocabulary = s->about.classes;
    }
    if (!split && !sw_dataset_has_split(data, &o, "test")) o.split = "train"; /* single files are one set only */
    s->split = o.split;
    return sw_dataset_open(data, &o, &s->data);
}

sw_status sw__infer_find(sw__infer *s, const char *path)
{
    SW_TRY(find_file(s, path));
    return sw__about_read(s->file, &s->about);
}

sw_status sw__infer_start(sw__infer *s, const char *device, int threads)
{
    SW_TRY(sw_device_open(device, &(sw_device_options){.threads = threads}, &s->device));
    SW_TRY(sw__run_check_computes(s->device));
    const sw_trainer_options o = {.model_name = s->about.model, .outputs = s->about.outputs, .batch = 64,
                                  .precision = s->about.precision};
    SW_TRY(sw_trainer_new(s->device, &o, &s->trainer));
    s->trainer->known_target = s->about.target;
    s->trainer->known_rank = s->about.y_rank;
    memcpy(s->trainer->known_shape, s->about.y_shape, sizeof s->about.y_shape);
    return SW_OK;
}

static sw_status open_all(sw__infer *s, const char *path, const char *data, const char *split, const char *device, int threads,
                          bool labels)
{
    SW_TRY(sw__infer_find(s, path));
    SW_TRY(open_data(s, data, split, labels));
    SW_TRY(sw__about_apply(&s->about, s->data));
    return sw__infer_start(s, device, threads);
}

void sw__infer_close(sw__infer *s)
{
    sw_trainer_free(s->trainer);
    sw_device_close(s->device);
    sw_dataset_close(s->data);
    sw__about_free(&s->about);
}

/* ---- eval ------------------------------------------------------------------------------------------------------------------ */

void sw_eval_result_free(sw_eval_result *r)
{
    if (!r) return;
    for (int64_t i = 0; r->class_names && i < r->classes; i++) sw__free(r->class_names[i]);
    sw__free(r->class_names);
    sw__free(r->confusion);
    *r = (sw_eval_result){0};
}

static sw_status prepare_result(const sw__infer *s, sw_eval_result *out)
{
    snprintf(out->model, sizeof out->model, "%s", sw__model_text(s->about.model));
    snprintf(out->file, sizeof out->file, "%.1020s", s->file);
    snprintf(out->data, sizeof out->data, "%.255s", sw_dataset_about(s->data)->name);
    snprintf(out->split, sizeof out->split, "%.7s", s->split);
    if (sw_dataset_about(s->data)->target != SW_TARGET_CLASS) return SW_OK;
    const int64_t n = s->about.outputs;
    out->confusion = sw__calloc((size_t)(n * n), sizeof *out->confusion);
    out->class_names = sw__calloc((size_t)n, sizeof *out->class_names);
    if (!out->confusion || !out->class_names) return sw__no_memory((size_t)(n * n) * 8, "a confusion matrix");
    out->classes = n;
    for (int64_t i = 0; i < n; i++) {
        const char *name = s->about.class_names && i < s->about.classes ? s->about.class_names[i] : NULL;
        if (!name && i < sw_dataset_about(s->data)->classes) name = sw_dataset_class_name(s->data, i);
        if (name && !(out->class_names[i] = sw__strdup(name))) return sw__no_memory(strlen(name), "a class name");
    }
    return SW_OK;
}

sw_status sw_run_eval(const char *path, const char *data, const char *split, const char *device, int threads,
                      sw_eval_result *out)
{
    if (!out) return sw__fail(SW_ERR_ARGUMENT, "sw_run_eval: out is NULL");
    sw__infer s = {0};
    sw_eval_result r = {0};
    sw_status st = open_all(&s, path, data, split, device, threads, true);
    if (st == SW_OK) st = sw__trainer_prepare(s.trainer, s.data, SW__EVAL);
    if (st == SW_OK) st = sw_trainer_load(s.trainer, s.file, NULL);
    if (st == SW_OK) st = prepare_result(&s, &r);
    if (st == SW_OK) st = sw_trainer_evaluate(s.trainer, s.data, &r.metrics, r.confusion);
    sw__infer_close(&s);
    if (st != SW_OK) {
        sw_eval_result_free(&r);
        return st;
    }
    *out = r;
    return SW_OK;
}

/* ---- predict ---------------------------------------------------------------------------------------------------------------- */

/* In place: values -> softmax; returns the place of the greatest. */
static int64_t to_probabilities(float *v, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (v[i] > v[best]) best = i;
    const double most = (double)v[best];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp((double)v[i] - most);
    for (int64_t i = 0; i < n; i++) v[i] = (float)(exp((double)v[i] - most) / sum);
    return best;
}

static sw_status hand_over_one(const sw__infer *s, sw_prediction p, float *outputs, sw_prediction_fn each, void *context)
{
    p.outputs = outputs;
    p.label = -1;
    if (s->about.target == SW_TARGET_CLASS) p.label = to_probabilities(outputs, p.n);
    if (p.label >= 0 && s->about.class_names && p.n <= s->about.classes) {
        p.class_names = (const char *const *)s->about.class_names;
        p.class_name = p.class_names[p.label];
    }
    return each(context, &p);
}

/* CTC: what is read, then the probabilities of each step. */
static sw_status hand_over_read(const sw__infer *s, sw_prediction p, float *outputs, int64_t *labels, sw_prediction_fn each,
                                void *context)
{
    const int64_t classes = s->trainer->output_classes, steps = p.n / classes;
    p.outputs = outputs;
    p.label = -1;
    p.labels = labels;
    p.n_labels = sw_ctc_greedy(outputs, steps, classes, labels);
    for (int64_t i = 0; i < steps; i++) (void)to_probabilities(outputs + i * classes, classes);
    if (s->about.class_names && classes <= s->about.classes) p.class_names = (const char *const *)s->about.class_names;
    return each(context, &p);
}

static sw_status hand_over_sequences(const sw__infer *s, float *outputs, int64_t first, int64_t n, sw_prediction_fn each,
                                     void *context)
{
    const int64_t all = sw_trainer_output_size(s->trainer);
    int64_t *const labels = sw__malloc((size_t)all * sizeof *labels);
    sw_status st = labels ? SW_OK : sw__no_memory((size_t)all * sizeof *labels, "what is read");
    for (int64_t i = 0; i < n && st == SW_OK; i++)
        st = hand_over_read(s, (sw_prediction){.index = first + i, .n = all, .positions = 1}, outputs + i * all, labels, each,
                            context);
    sw__free(labels);
    return st;
}

/* Of a sequence only what comes after it; of an image all places. */
static sw_status hand_over(const sw__infer *s, float *outputs, int64_t first, int64_t n, sw_prediction_fn each, void *context)
{
    const bool classes = s->about.target == SW_TARGET_CLASS;
    const int64_t all = sw_trainer_output_size(s->trainer), places = classes ? s->trainer->positions : 1, size = all / places;
    const bool mask = places > 1 && s->trainer->y_rank > 1;
    for (int64_t i = 0; i < n; i++) {
        sw_prediction p = {.index = first + i, .n = size, .positions = mask ? places : 1,
                           .rank = mask ? s->trainer->y_rank : 0, .shape = mask ? s->trainer->y_shape : NULL};
        for (; p.position < p.positions; p.position++)
            SW_TRY(hand_over_one(s, p, outputs + (i + 1) * all - (p.positions - p.position) * size, each, context));
    }
    return SW_OK;
}

static sw_status predict_all(sw__infer *s, sw_prediction_fn each, void *context)
{
    const int64_t count = sw_dataset_about(s->data)->count, batch = SW_MIN((int64_t)256, count);
    const size_t bytes = (size_t)(batch * sw_trainer_output_size(s->trainer)) * sizeof(float);
    float *outputs = sw__malloc(bytes);
    int64_t *indices = sw__malloc((size_t)batch * sizeof *indices);
    sw_status st = outputs && indices ? SW_OK : sw__no_memory(bytes, "outputs");
    for (int64_t i = 0; i < count && st == SW_OK; i += batch) {
        const int64_t n = SW_MIN(batch, count - i);
        for (int64_t k = 0; k < n; k++) indices[k] = i + k;
        st = sw_trainer_predict(s->trainer, s->data, indices, n, outputs);
        const bool sequences = s->about.target == SW_TARGET_SEQUENCE;
        if (st == SW_OK) st = (sequences ? hand_over_sequences : hand_over)(s, outputs, i, n, each, context);
    }
    sw__free(outputs);
    sw__free(indices);
    return st;
}

sw_status sw_run_predict(const char *path, const char *data, const char *split, const char *device, int threads,
                         sw_prediction_fn each, void *context)
{
    if (!each) return sw__fail(SW_ERR_ARGUMENT, "sw_run_predict: each is NULL");
    sw__infer s = {0};
    sw_status st = open_all(&s, path, data, split, device, threads, data == NULL);
    if (st == SW_OK) st = sw__trainer_prepare(s.trainer, s.data, SW__PREDICT);
    if (st == SW_OK) st = sw_trainer_load(s.trainer, s.file, NULL);
    if (st == SW_OK) st = predict_all(&s, each, context);
    sw__infer_close(&s);
    return st;
}
