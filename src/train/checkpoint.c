/* checkpoint.c: variables and the state of a fit to files and back. One safetensors file holds a whole checkpoint, so one
 * rename makes it valid; its predecessor is kept. Model files (weights and buffers only) are written here as well. */
#include "io/atomic.h"
#include "io/json.h"
#include "train/trainer.h"
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define STATE_KEY "swoop.state"

sw_status sw__make_folder(const char *path)
{
    char part[1024];
    if (strlen(path) >= sizeof part) return sw__fail(SW_ERR_ARGUMENT, "%s: the path is too long", path);
    for (size_t i = 0;; i++) {
        part[i] = path[i];
        if ((path[i] != '/' && path[i]) || i == 0) {
            if (!path[i]) break;
            continue;
        }
        part[i] = 0;
        struct stat about;
        if (mkdir(part, 0777) != 0 && (errno != EEXIST || stat(part, &about) != 0 || !S_ISDIR(about.st_mode)))
            return sw__fail(SW_ERR_IO, "%s: cannot make this folder: %s", part, strerror(errno == EEXIST ? ENOTDIR : errno));
        part[i] = path[i];
        if (!path[i]) break;
    }
    return SW_OK;
}

/* ---- host copies of variables --------------------------------------------------------------------------------------------- */

typedef struct snapshot {
    sw_named_array *arrays;
    size_t n;
    uint64_t hash;
} snapshot;

static void snapshot_free(snapshot *s)
{
    for (size_t i = 0; i < s->n; i++) sw__free(s->arrays[i].array.data);
    sw__free(s->arrays);
}

/* Copies the variables (without the optimiser's, if model_only) to the host in their declared types; averaged: with the
 * averages in their place. */
static sw_status snapshot_take(sw_params *p, bool model_only, bool averaged, snapshot *s)
{
    *s = (snapshot){0};
    const int count = sw_params_count(p);
    s->arrays = sw__calloc((size_t)SW_MAX(count, 1), sizeof *s->arrays);
    if (!s->arrays) return sw__no_memory((size_t)count * sizeof *s->arrays, "a checkpoint");
    for (int i = 0; i < count; i++) {
        sw_var_info v;
        SW_TRY(sw_params_info(p, i, &v));
        if (v.kind == SW_VAR_STATE && (model_only || sw__micro_is_state(v.name))) continue;
        sw_named_array *a = &s->arrays[s->n];
        a->name = v.name;
        a->array = (sw_array){.dtype = v.dtype, .rank = v.rank, .bytes = (size_t)v.elements * sw_dtype_size(v.dtype)};
        memcpy(a->array.shape, v.shape, sizeof v.shape);
        a->array.data = sw__malloc(a->array.bytes);
        if (!a->array.data) return sw__no_memory(a->array.bytes, "a checkpoint");
        s->n++;
        const int average = averaged ? sw__average_of(p, v.name) : -1;
        SW_TRY(sw_params_get(p, average >= 0 ? average : i, v.dtype, a->array.data, v.elements));
        s->hash = XXH3_64bits_withSeed(a->array.data, a->array.bytes, s->hash);
    }
    return SW_OK;
}

/* ---- state of a fit, as JSON ------------------------------------------------------------------------------------------------ */

/* Every field once: writing and reading walk the same table. */
typedef struct field {
    const char *name;
    enum { INTEGER, REAL, FLAG } type;
    size_t offset;
    bool newer; /* checkpoints of earlier versions lack it: 0 */
} field;
#define STATE(type, member) {#member, type, offsetof(sw__fit_state, member), false}
#define PLATEAU(type, member) {"plateau_" #member, type, offsetof(sw__fit_state, plateau.member), true}
static const field fields[] = {
    STATE(INTEGER, epoch),      {"at_epoch", INTEGER, offsetof(sw__fit_state, at.epoch), false},
    STATE(REAL, loss_sum),      {"at_batch", INTEGER, offsetof(sw__fit_state, at.batch), false},
    STATE(INTEGER, correct),    STATE(INTEGER, samples),    STATE(REAL, seconds),       STATE(REAL, epoch_seconds),
    STATE(REAL, best),          STATE(INTEGER, best_epoch), STATE(INTEGER, since_best), STATE(INTEGER, skipped),
    STATE(INTEGER, batch),      STATE(INTEGER, seed),       STATE(FLAG, shuffle),       STATE(FLAG, drop_last),
    PLATEAU(FLAG, begun),       PLATEAU(REAL, best),        PLATEAU(INTEGER, bad),      PLATEAU(INTEGER, cooldown),
    {"overflows", INTEGER, offsetof(sw__fit_state, overflows), true},
};

static void put_number(sw__text *t, const char *name, double value)
{
    sw__text_add(t, ", \"%s\": ", name);
    sw__json_number(t, value);
}

static void state_text(const sw_trainer *t, const sw__fit_state *s, uint64_t hash, sw__text *out)
{
    const sw_schedule *c = &t->o.schedule;
    sw__text_add(out, "{\"version\": 1, \"hash\": \"%016llx\", \"step\": %lld, \"schedule\": {\"kind\": %d, \"warmup\": %lld, "
                 "\"total\": %lld, \"step_size\": %lld, \"from\": %lld", (unsigned long long)hash, (long long)t->step,
                 (int)c->kind, (long long)c->warmup, (long long)c->total, (long long)c->step_size,
                 (long long)t->schedule_from);
    put_number(out, "min_lr", c->min_lr);
    put_number(out, "gamma", c->gamma);
    put_number(out, "power", c->power);
    put_number(out, "growth", c->growth);
    put_number(out, "lr", t->schedule_lr);
    sw__text_add(out, ", \"milestones\": [");
    for (int i = 0; i < c->n_milestones; i++) sw__text_add(out, "%s%lld", i ? ", " : "", (long long)c->milestones[i]);
    sw__text_add(out, "]}, \"averaged\": %lld, \"thawed_at\": %lld", (long long)t->averaged, (long long)t->thawed_at);
    for (size_t i = 0; i < SW_COUNT(fields); i++) {
        const char *at = (const char *)s + fields[i].offset;
        if (fields[i].type == REAL)
            put_number(out, fields[i].name, *(const double *)(const void *)at);
        else if (fields[i].type == INTEGER)
            sw__text_add(out, ", \"%s\": %lld", fields[i].name, (long long)*(const int64_t *)(const void *)at);
        else
            sw__text_add(out, ", \"%s\": %s", fields[i].name, *(const bool *)at ? "true" : "false");
    }
    sw__text_add(out, "}");
}

static bool read_field(const json_t *o, const field *f, sw__fit_state *s)
{
    char *at = (char *)s + f->offset;
    const json_t *v = json_object_get(o, f->name);
    if (!v && f->newer) return true;
    if (f->type == INTEGER && json_is_integer(v)) *(int64_t *)(void *)at = json_integer_value(v);
    else if (f->type == REAL && json_is_number(v)) *(double *)(void *)at = json_number_value(v);
    else if (f->type == REAL && json_is_null(v)) *(double *)(void *)at = 0;
    else if (f->type == FLAG && json_is_boolean(v)) *(bool *)at = json_is_true(v);
    else return false;
    return true;
}

static bool read_integer(const json_t *o, const char *name, int64_t *out)
{
    const json_t *v = json_object_get(o, name);
    *out = json_integer_value(v);
    return json_is_integer(v);
}

/* A number that checkpoints of earlier versions lack keeps the value that the trainer was given. */
static void read_number(const json_t *o, const char *name, double *out)
{
    const json_t *v = json_object_get(o, name);
    if (v) *out = json_number_value(v);
}

static bool read_milestones(const json_t *c, sw_schedule *to)
{
    const json_t *list = json_object_get(c, "milestones");
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > SW_MAX_MILESTONES) return false;
    to->n_milestones = (int)json_array_size(list);
    for (int i = 0; i < to->n_milestones; i++) to->milestones[i] = json_integer_value(json_array_get(list, (size_t)i));
    return true;
}

static bool read_schedule(const json_t *c, sw_trainer *t)
{
    int64_t kind;
    sw_schedule *to = &t->o.schedule;
    if (!read_integer(c, "kind", &kind) || !read_integer(c, "warmup", &to->warmup) ||
        !read_integer(c, "total", &to->total) || !read_integer(c, "step_size", &to->step_size) ||
        !read_integer(c, "from", &t->schedule_from) || kind < 0 || kind > INT_MAX || !sw_schedule_name((sw_schedule_kind)kind))
        return false;
    to->kind = (sw_schedule_kind)kind;
    read_number(c, "min_lr", &to->min_lr);
    read_number(c, "gamma", &to->gamma);
    read_number(c, "power", &to->power);
    read_number(c, "growth", &to->growth);
    read_number(c, "lr", &t->schedule_lr);
    return read_milestones(c, to);
}

static bool read_state(const json_t *o, sw_trainer *t, sw__fit_state *s)
{
    if (!read_integer(o, "step", &t->step) || !read_schedule(json_object_get(o, "schedule"), t)) return false;
    s->plateau = (sw_plateau){0};
    t->averaged = json_integer_value(json_object_get(o, "averaged")); /* 0 if there is none */
    for (size_t i = 0; i < SW_COUNT(fields); i++)
        if (!read_field(o, &fields[i], s)) return false;
    return s->epoch >= 0 && s->at.batch >= 0 && s->batch > 0;
}

/* ---- checkpoints -------------------------------------------------------------------------------------------------------------- */

#define PATH_SIZE 1200

/* Keeps the checkpoint that is about to be replaced under a second name. Where the file system has no links there is just
 * no predecessor. */
static void keep_previous(const char *current, const char *previous)
{
    unlink(previous);
    if (link(current, previous) != 0 && errno != ENOENT)
        sw__log(SW_LOG_DEBUG, "%s: no predecessor is kept: %s", current, strerror(errno));
}

sw_status sw__checkpoint_write(sw_trainer *t, const char *folder, const sw__fit_state *s)
{
    char path[PATH_SIZE], previous[PATH_SIZE];
    snprintf(path, sizeof path, "%.1023s/checkpoint", folder);
    SW_TRY(sw__make_folder(path));
    snprintf(path, sizeof path, "%.1023s/checkpoint/state.safetensors", folder);
    snprintf(previous, sizeof previous, "%.1023s/checkpoint/previous.safetensors", folder);
    snapshot all;
    sw__text state = {0};
    sw_status st = snapshot_take(t->params, false, false, &all);
    if (st == SW_OK) state_text(t, s, all.hash, &state);
    if (st == SW_OK && state.failed) st = sw__no_memory(4096, "a checkpoint's state");
    if (st == SW_OK) {
        const sw_text_pair metadata[] = {{STATE_KEY, state.s}, {"swoop.version", sw_version()}};
        keep_previous(path, previous);
        st = sw_safetensors_write(path, all.arrays, all.n, metadata, SW_COUNT(metadata));
    }
    snapshot_free(&all);
    sw__text_free(&state);
    return st;
}

/* Sets every variable of the trainer from the file, which must have just these. */
static sw_status load_all(sw_trainer *t, const sw_safetensors *f, uint64_t *hash)
{
    *hash = 0;
    for (int i = 0; i < sw_params_count(t->params); i++) {
        sw_var_info v;
        sw_array a;
        SW_TRY(sw_params_info(t->params, i, &v));
        if (v.kind == SW_VAR_STATE && sw__micro_is_state(v.name)) continue;
        SW_TRY(sw_safetensors_array(f, v.name, &a));
        bool same = a.dtype == v.dtype && a.rank == v.rank;
        for (int k = 0; same && k < v.rank; k++) same = a.shape[k] == v.shape[k];
        if (!same)
            return sw__fail(SW_ERR_DATA, "%s: '%s' has another shape or type than in this model", sw_safetensors_path(f),
                            v.name);
        *hash = XXH3_64bits_withSeed(a.data, a.bytes, *hash);
        SW_TRY(sw_params_set(t->params, i, a.dtype, a.data, v.elements));
    }
    return SW_OK;
}

/* A fit that had thawed its frozen groups goes on with them. */
static sw_status thaw(sw_trainer *t, const json_t *o)
{
    int64_t at;
    if (!read_integer(o, "thawed_at", &at) || at < 0) return SW_OK;
    SW_TRY(sw_trainer_thaw(t));
    t->thawed_at = at;
    return SW_OK;
}

static sw_status read_file(sw_trainer *t, const char *path, sw__fit_state *s)
{
    sw_safetensors *f = NULL;
    SW_TRY(sw_safetensors_open(path, &f));
    const char *text = sw_safetensors_metadata(f, STATE_KEY);
    json_error_t error;
    json_t *o = text ? json_loads(text, 0, &error) : NULL;
    uint64_t hash = 0;
    char wanted[24];
    sw_status st = o && read_state(o, t, s) ? SW_OK
                                            : sw__fail(SW_ERR_FORMAT, "%s: this is no checkpoint of swoop: its '%s' is %s",
                                                       path, STATE_KEY, text ? "not as it should be" : "missing");
    if (st == SW_OK) st = thaw(t, o);
    if (st == SW_OK) st = load_all(t, f, &hash);
    snprintf(wanted, sizeof wanted, "%016llx", (unsigned long long)hash);
    if (st == SW_OK) {
        const char *said = json_string_value(json_object_get(o, "hash"));
        if (!said || strcmp(said, wanted) != 0)
            st = sw__fail(SW_ERR_FORMAT, "%s: the tensors' checksum is %s, not %s as written: the file was damaged", path,
                          wanted, said ? said : "(missing)");
    }
    json_decref(o);
    sw_safetensors_close(f);
    return st;
}

sw_status sw__checkpoint_read(sw_trainer *t, const char *folder, sw__fit_state *s)
{
    char path[PATH_SIZE], why[512];
    if (t->from_previous) {
        snprintf(path, sizeof path, "%.1023s/checkpoint/previous.safetensors", folder);
        return read_file(t, path, s);
    }
    snprintf(path, sizeof path, "%.1023s/checkpoint/state.safetensors", folder);
    const sw_status first = read_file(t, path, s);
    if (first == SW_OK) return SW_OK;
    snprintf(why, sizeof why, "%s", sw_error());
    snprintf(path, sizeof path, "%.1023s/checkpoint/previous.safetensors", folder);
    if ((first == SW_ERR_FORMAT || first == SW_ERR_IO) && read_file(t, path, s) == SW_OK) {
        sw__log(SW_LOG_WARN, "%s; going on from %s", why, path);
        return SW_OK;
    }
    return sw__fail(first, "%s", why);
}

/* ---- model files --------------------------------------------------------------------------------------------------------------- */

sw_status sw_trainer_save(sw_trainer *t, const char *path, const sw_text_pair *metadata, size_t n)
{
    if (!t || !t->params || !path) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_save: nothing to save, or no path");
    if (!metadata && n) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_save: metadata is NULL");
    sw_text_pair *pairs = sw__malloc((n + 1) * sizeof *pairs);
    if (!pairs) return sw__no_memory((n + 1) * sizeof *pairs, "metadata");
    if (n) memcpy(pairs, metadata, n * sizeof *pairs);
    if (t->model_name) pairs[n++] = (sw_text_pair){"swoop.model", t->model_name};
    snapshot model;
    sw_status st = snapshot_take(t->params, true, t->averaged > 0, &model);
    if (st == SW_OK) st = sw_safetensors_write(path, model.arrays, model.n, pairs, n);
    snapshot_free(&model);
    sw__free(pairs);
    return st;
}

static sw_status load_variable(sw_trainer *t, const sw_safetensors *f, int i, const sw_var_info *v, const char *prefix)
{
    char name[600];
    sw_array a;
    snprintf(name, sizeof name, "%s%s", prefix, v->name);
    SW_TRY(sw_safetensors_array(f, name, &a));
    bool same = a.rank == v->rank;
    for (int k = 0; same && k < v->rank; k++) same = a.shape[k] == v->shape[k];
    if (same) return sw_params_set(t->params, i, a.dtype, a.data, v->elements);
    sw__text file = {0}, model = {0};
    for (int k = 0; k < a.rank; k++) sw__text_add(&file, "%s%lld", k ? "x" : "", (long long)a.shape[k]);
    for (int k = 0; k < v->rank; k++) sw__text_add(&model, "%s%lld", k ? "x" : "", (long long)v->shape[k]);
    const sw_status st = sw__fail(SW_ERR_DATA, "%s: '%s' is %s in the file but %s in the model", sw_safetensors_path(f), name,
                                  file.s ? file.s : "a scalar", model.s ? model.s : "a scalar");
    sw__text_free(&file);
    sw__text_free(&model);
    return st;
}

/* "fc1.weight.exp_avg" is of "fc1.weight"; "dropout.counter" is of a layer that may have no variable beside. */
static bool is_state(const sw_trainer *t, const char *name)
{
    char of[512];
    const char *const dot = strrchr(name, '.');
    if (!dot || (size_t)(dot - name) >= sizeof of) return false;
    snprintf(of, sizeof of, "%.*s", (int)(dot - name), name);
    return strcmp(dot, ".counter") == 0 || sw_params_find(t->params, of) >= 0;
}

/* Optimiser state of the file's own making is no part of the model and is passed over. */
static sw_status check_surplus(const sw_trainer *t, const sw_safetensors *f)
{
    for (size_t i = 0; i < sw_safetensors_count(f); i++) {
        const char *name = sw_safetensors_at(f, i)->name;
        if (sw_params_find(t->params, name) < 0 && !is_state(t, name))
            return sw__fail(SW_ERR_DATA, "%s: it has '%s', but the model has no such variable", sw_safetensors_path(f), name);
    }
    return SW_OK;
}

sw_status sw_trainer_load(sw_trainer *t, const char *path, const char *prefix)
{
    if (!t || !t->params || !path) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_load: call sw_trainer_prepare first");
    sw_safetensors *f = NULL;
    SW_TRY(sw_safetensors_open(path, &f));
    sw_status st = prefix ? SW_OK : check_surplus(t, f);
    for (int i = 0; i < sw_params_count(t->params) && st == SW_OK; i++) {
        sw_var_info v;
        st = sw_params_info(t->params, i, &v);
        if (st == SW_OK && v.kind != SW_VAR_STATE) st = load_variable(t, f, i, &v, prefix ? prefix : "");
    }
    t->averaged = 0; /* an average begins with the weights that were loaded */
    sw_safetensors_close(f);
    return st;
}
