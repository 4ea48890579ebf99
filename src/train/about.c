/* about.c: the description that makes a model file usable by itself: input shape, normalisation, classes, as JSON.
 * Written by run.c into every model file, read by infer.c. */
#include "io/json.h"
#include "train/run.h"
#include <jansson.h>
#include <stdio.h>

void sw__about_free(sw__model_about *a)
{
    for (int64_t i = 0; a->class_names && i < a->classes; i++) sw__free(a->class_names[i]);
    sw__free(a->class_names);
    sw_normalization_free(&a->normalization);
    sw__free(a->model);
    *a = (sw__model_about){0};
}

static sw_status copy_normalization(const float *mean, const float *std, int64_t channels, sw_normalization *out)
{
    *out = (sw_normalization){.channels = channels, .mean = sw__malloc((size_t)channels * sizeof(float)),
                              .std = sw__malloc((size_t)channels * sizeof(float))};
    if (!out->mean || !out->std) return sw__no_memory((size_t)channels * sizeof(float), "a normalisation");
    memcpy(out->mean, mean, (size_t)channels * sizeof(float));
    memcpy(out->std, std, (size_t)channels * sizeof(float));
    return SW_OK;
}

static sw_status copy_names(const sw_dataset *d, sw__model_about *a)
{
    if (a->classes <= 0) return SW_OK;
    a->class_names = sw__calloc((size_t)a->classes, sizeof *a->class_names);
    if (!a->class_names) return sw__no_memory((size_t)a->classes * sizeof *a->class_names, "class names");
    for (int64_t i = 0; i < a->classes; i++) {
        const char *name = sw_dataset_class_name(d, i);
        if (name && !(a->class_names[i] = sw__strdup(name))) return sw__no_memory(strlen(name), "a class name");
    }
    return SW_OK;
}

const char *sw__model_text(const char *model)
{
    return sw_model_layers_of(model) ? "layers" : model;
}

/* What data sets of text call themselves, by coding. */
static const char *const formats[] = {"", "text", "bytes", "lines"};

sw_status sw__about_of(const sw_dataset *d, const char *model, int64_t outputs, sw__model_about *out)
{
    const sw_dataset_info *info = sw_dataset_about(d);
    const sw_normalization *n = sw_dataset_normalization(d);
    sw__model_about a = {.outputs = outputs, .classes = info->classes, .target = info->target, .x_rank = info->x_rank,
                         .y_rank = info->y_rank, .tokens = info->x_dtype == SW_I64};
    for (int i = 1; a.tokens && i < (int)SW_COUNT(formats); i++)
        if (strcmp(info->format, formats[i]) == 0) a.coding = (sw__coding)i;
    memcpy(a.x_shape, info->x_shape, sizeof a.x_shape);
    memcpy(a.y_shape, info->y_shape, sizeof a.y_shape);
    a.model = sw__strdup(model);
    sw_status st = a.model ? copy_names(d, &a) : sw__no_memory(strlen(model), "a model's description");
    if (st == SW_OK && n) st = copy_normalization(n->mean, n->std, n->channels, &a.normalization);
    if (st != SW_OK) {
        sw__about_free(&a);
        return st;
    }
    *out = a;
    return SW_OK;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

static void put_floats(sw__text *t, const char *key, const float *v, int64_t n)
{
    sw__text_add(t, ", \"%s\": [", key);
    for (int64_t i = 0; i < n; i++) {
        if (i) sw__text_add(t, ", ");
        sw__json_number(t, (double)v[i]);
    }
    sw__text_add(t, "]");
}

static void put_shape(sw__text *t, const char *key, int rank, const int64_t *shape)
{
    sw__text_add(t, ", \"%s\": [", key);
    for (int i = 0; i < rank; i++) sw__text_add(t, "%s%lld", i ? ", " : "", (long long)shape[i]);
    sw__text_add(t, "]");
}

sw_status sw__about_write(const sw__model_about *a, sw__text *t)
{
    sw__text_add(t, "{\"model\": ");
    sw__json_string(t, a->model);
    sw__text_add(t, ", \"outputs\": %lld, \"classes\": %lld, \"target\": %d, \"tokens\": %s",
                 (long long)a->outputs, (long long)a->classes, (int)a->target, a->tokens ? "true" : "false");
    put_shape(t, "x_shape", a->x_rank, a->x_shape);
    if (a->y_rank >= 0) put_shape(t, "y_shape", a->y_rank, a->y_shape);
    if (a->coding) sw__text_add(t, ", \"coding\": \"%s\"", formats[a->coding]);
    sw__text_add(t, ", \"precision\": \"%s\"", sw_precision_name(a->precision));
    put_floats(t, "mean", a->normalization.mean, a->normalization.channels);
    put_floats(t, "std", a->normalization.std, a->normalization.channels);
    if (a->class_names) {
        sw__text_add(t, ", \"class_names\": [");
        for (int64_t i = 0; i < a->classes; i++) {
            if (i) sw__text_add(t, ", ");
            if (a->class_names[i])
                sw__json_string(t, a->class_names[i]);
            else
                sw__text_add(t, "null");
        }
        sw__text_add(t, "]");
    }
    sw__text_add(t, "}");
    return t->failed ? sw__no_memory(t->capacity, "a model's description") : SW_OK;
}

static bool read_shape(const json_t *shape, int *rank, int64_t *dims)
{
    if (!json_is_array(shape) || json_array_size(shape) > SW_MAX_RANK) return false;
    *rank = (int)json_array_size(shape);
    for (int i = 0; i < *rank; i++) {
        const json_t *v = json_array_get(shape, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
        dims[i] = json_integer_value(v);
    }
    return true;
}

static sw_status read_normalization(const json_t *o, sw__model_about *a, bool *good)
{
    const json_t *mean = json_object_get(o, "mean"), *std = json_object_get(o, "std");
    const size_t n = json_array_size(mean);
    *good = json_array_size(std) == n;
    if (!*good || n == 0) return SW_OK;
    a->normalization = (sw_normalization){.channels = (int64_t)n, .mean = sw__malloc(n * sizeof(float)),
                                          .std = sw__malloc(n * sizeof(float))};
    if (!a->normalization.mean || !a->normalization.std) return sw__no_memory(n * sizeof(float), "a normalisation");
    for (size_t i = 0; i < n; i++) {
        a->normalization.mean[i] = (float)json_number_value(json_array_get(mean, i));
        a->normalization.std[i] = (float)json_number_value(json_array_get(std, i));
        if (!(a->normalization.std[i] > 0)) *good = false;
    }
    return SW_OK;
}

static sw_status read_names(const json_t *o, sw__model_about *a, bool *good)
{
    const json_t *names = json_object_get(o, "class_names");
    *good = !names || json_array_size(names) == (size_t)a->classes;
    if (!names || !*good || a->classes == 0) return SW_OK;
    a->class_names = sw__calloc((size_t)a->classes, sizeof *a->class_names);
    if (!a->class_names) return sw__no_memory((size_t)a->classes * sizeof *a->class_names, "class names");
    for (int64_t i = 0; i < a->classes; i++) {
        const char *s = json_string_value(json_array_get(names, (size_t)i));
        if (s && !(a->class_names[i] = sw__strdup(s))) return sw__no_memory(strlen(s), "a class name");
    }
    return SW_OK;
}

static sw_status read_about(const json_t *o, sw__model_about *a, bool *good)
{
    const char *model = json_string_value(json_object_get(o, "model"));
    a->model = sw__strdup(model ? model : "");
    if (!a->model) return sw__no_memory(1, "a model's description");
    const char *const precision = json_string_value(json_object_get(o, "precision"));
    const bool known = !precision || sw_precision_find(precision, &a->precision); /* files from before there was a choice */
    a->outputs = json_integer_value(json_object_get(o, "outputs"));
    a->classes = json_integer_value(json_object_get(o, "classes"));
    a->target = (sw_target)json_integer_value(json_object_get(o, "target"));
    a->tokens = json_is_true(json_object_get(o, "tokens"));
    const char *const coding = json_string_value(json_object_get(o, "coding"));
    const bool named = json_is_string(json_array_get(json_object_get(o, "class_names"), 0));
    if (a->tokens && named && !coding) a->coding = SW__CODING_CHARACTERS; /* older files do not say it */
    for (int i = 1; coding && i < (int)SW_COUNT(formats); i++)
        if (strcmp(coding, formats[i]) == 0) a->coding = (sw__coding)i;
    *good = model && known && a->outputs > 0 && a->classes >= 0 && a->classes < 1 << 24 && a->target >= SW_TARGET_CLASS &&
            a->target <= SW_TARGET_SEQUENCE && read_shape(json_object_get(o, "x_shape"), &a->x_rank, a->x_shape);
    const json_t *const answer = json_object_get(o, "y_shape"); /* older files have none */
    a->y_rank = -1;
    if (*good && answer) *good = read_shape(answer, &a->y_rank, a->y_shape);
    if (*good) SW_TRY(read_normalization(o, a, good));
    if (*good) SW_TRY(read_names(o, a, good));
    if (*good && a->coding == SW__CODING_CHARACTERS) *good = a->class_names != NULL;
    return SW_OK;
}

sw_status sw__about_read(const char *path, sw__model_about *out)
{
    sw_safetensors *f = NULL;
    SW_TRY(sw_safetensors_open(path, &f));
    const char *text = sw_safetensors_metadata(f, SW__INFO_KEY);
    sw__model_about a = {0};
    bool good = false;
    json_error_t error;
    json_t *o = text ? json_loads(text, 0, &error) : NULL;
    sw_status st = o ? read_about(o, &a, &good) : SW_OK;
    json_decref(o);
    sw_safetensors_close(f);
    if (st == SW_OK && !good)
        st = sw__fail(SW_ERR_FORMAT, "%s: %s, so it is not known which model and which input these weights are for", path,
                      text ? "its metadata '" SW__INFO_KEY "' is not as swoop writes it"
                           : "it has no metadata '" SW__INFO_KEY "'");
    if (st != SW_OK) {
        sw__about_free(&a);
        return st;
    }
    *out = a;
    return SW_OK;
}

sw_status sw__about_apply(const sw__model_about *a, sw_dataset *d)
{
    const sw_dataset_info *info = sw_dataset_about(d);
    bool same = info->x_rank == a->x_rank;
    for (int i = 0; same && i < a->x_rank; i++) same = info->x_shape[i] == a->x_shape[i];
    if (!same) {
        sw__text want = {0}, have = {0};
        for (int i = 0; i < a->x_rank; i++) sw__text_add(&want, "%s%lld", i ? "x" : "", (long long)a->x_shape[i]);
        for (int i = 0; i < info->x_rank; i++) sw__text_add(&have, "%s%lld", i ? "x" : "", (long long)info->x_shape[i]);
        const sw_status st = sw__fail(SW_ERR_DATA, "%s: its samples are %s, but the model was trained on %s", info->name,
                                      have.s ? have.s : "?", want.s ? want.s : "?");
        sw__text_free(&want);
        sw__text_free(&have);
        return st;
    }
    SW_TRY(sw_dataset_normalize(d, a->normalization.channels ? &a->normalization : NULL));
    if (!a->class_names || info->target != SW_TARGET_CLASS || info->classes != a->classes) return SW_OK;
    for (int64_t i = 0; i < a->classes; i++)
        if (!a->class_names[i]) return SW_OK;
    return sw_dataset_set_class_names(d, (const char *const *)a->class_names, a->classes);
}
