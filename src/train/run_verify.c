/* run_verify.c: steps of a run once more, and whether they come to the same bits: the library side of `swoop verify`.
 * run.c replays them from the run's earlier checkpoint or its start; here their hashes are compared with the recorded ones. */
#include "io/stream.h"
#include "train/hashes.h"
#include "train/run.h"
#include "train/trainer.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct verify {
    const sw_verify_options *o;
    const sw_run_callbacks *cb;
    sw_verify_result *out;
    const char *folder;
    char threads[32]; /* the run's */
    char *file;       /* hashes.csv, lines ended by 0 */
    size_t length;
    size_t row;       /* where the next row begins */
    int64_t stop;     /* last step to do; 0: not known yet */
    bool done;
} verify;

static void note(const verify *v, const char *fmt, ...) SW_PRINTF(2, 3);
static void note(const verify *v, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (v->cb->note) v->cb->note(v->cb->context, "note", text);
}

/* ---- what was recorded ------------------------------------------------------------------------------------------- */

static sw_status read_hashes(verify *v)
{
    char path[SW__PATH + 16];
    snprintf(path, sizeof path, "%.1150s/hashes.csv", v->folder);
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return sw__fail(SW_ERR_DATA, "%s: there is none: the run recorded no hashes (key hashes), or did no step", path);
    SW_TRY(sw__file_read(path, SIZE_MAX - 1, &v->file, &v->length));
    if (!v->length || v->file[v->length - 1] != '\n') return sw__fail(SW_ERR_FORMAT, "%s: its last line is cut off", path);
    for (size_t i = 0; i < v->length; i++)
        if (v->file[i] == '\n') v->file[i] = 0;
    v->row = strlen(v->file) + 1;
    return SW_OK;
}

static const char *row_at(const verify *v, size_t at)
{
    return at < v->length ? v->file + at : NULL;
}

/* The last recorded step that is at most `most`, from `from` on; 0: none. */
static int64_t last_row(const verify *v, int64_t from, int64_t most)
{
    int64_t last = 0;
    const char *row;
    for (size_t at = v->row; (row = row_at(v, at)); at += strlen(row) + 1) {
        const int64_t step = strtoll(row, NULL, 10);
        if (step >= from && step <= most) last = step;
    }
    return last;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* Field k of a line of commas, to a buffer. */
static void field(const char *line, int k, char *out, size_t size)
{
    while (k-- > 0 && line) line = strchr(line, ',') ? strchr(line, ',') + 1 : NULL;
    snprintf(out, size, "%.*s", line ? (int)strcspn(line, ",") : 0, line ? line : "");
}

static int count_fields(const char *line)
{
    int n = 1;
    for (; *line; line++) n += *line == ',';
    return n;
}

static sw_status compare_row(verify *v, sw_params *p, int64_t step, const char *recorded)
{
    sw_verify_result *const out = v->out;
    sw__text row = {0};
    const sw_status st = sw__hashes_row(p, &row);
    const int n = count_fields(v->file) - 1;
    for (int k = 0; st == SW_OK && k < n; k++) {
        char want[64], have[64];
        field(recorded, k + 1, want, sizeof want);
        field(row.s, k, have, sizeof have);
        out->tensors = n;
        if (strcmp(want, have) == 0) continue;
        if (out->differing++ > 0) continue;
        field(v->file, k + 1, out->tensor, sizeof out->tensor);
        out->step = step;
    }
    sw__text_free(&row);
    SW_TRY(st);
    out->compared++;
    out->equal = out->differing == 0;
    if (out->equal) out->same_to = step;
    v->done = !out->equal || step >= v->stop;
    return SW_OK;
}

/* The variables must be those of the file. */
static sw_status check_header(const verify *v, const sw_params *p)
{
    sw__text header = {0};
    sw_status st = sw__hashes_header(p, &header);
    if (st == SW_OK && strcmp(header.s, v->file) != 0)
        st = sw__fail(SW_ERR_DATA, "%s/hashes.csv: it is of other tensors than this model's", v->folder);
    sw__text_free(&header);
    return st;
}

static sw_status begin(verify *v, const sw_params *p, int64_t step)
{
    v->out->from = step - 1;
    SW_TRY(check_header(v, p));
    const int64_t most = v->o->steps > 0 ? step - 1 + v->o->steps : INT64_MAX;
    v->stop = last_row(v, step, most);
    v->out->to = v->stop;
    if (v->stop > 0) return SW_OK;
    const int64_t any = last_row(v, step, INT64_MAX);
    return any > 0 ? sw__fail(SW_ERR_DATA, "%s: no hash was recorded in the %lld steps after step %lld: take more steps",
                              v->folder, (long long)v->o->steps, (long long)(step - 1))
                   : sw__fail(SW_ERR_DATA, "%s: no hash was recorded after step %lld, where the replay begins: --from start "
                              "replays from the beginning", v->folder, (long long)(step - 1));
}

static sw_status on_event(void *context, sw_trainer *t, const sw_event *e)
{
    verify *const v = context;
    if (v->cb->stop && *v->cb->stop) return sw__fail(SW_ERR_INTERRUPTED, "interrupted at step %lld", (long long)e->step);
    if (v->cb->event) SW_TRY(v->cb->event(v->cb->context, e));
    if (e->kind != SW_EVENT_STEP) return SW_OK;
    if (v->stop == 0) SW_TRY(begin(v, sw_trainer_params(t), e->step));
    const char *row;
    while ((row = row_at(v, v->row)) && strtoll(row, NULL, 10) < e->step) v->row += strlen(row) + 1;
    if (row && strtoll(row, NULL, 10) == e->step) SW_TRY(compare_row(v, sw_trainer_params(t), e->step, row));
    return v->done ? sw__fail(SW_ERR_INTERRUPTED, "all steps are replayed") : SW_OK;
}

/* ---- where it is done -------------------------------------------------------------------------------------------- */

/* What may account for other bits: the machine's description then and now. */
static void compare_machine(void *context, const sw_device *d, const sw_config *c)
{
    verify *const v = context;
    const sw_device_properties *const now = sw_device_info(d);
    const struct { const char *key, *what, *now; } rows[] = {{"swoop", "version of swoop", sw_version()},
                                                             {"device", "device", now->id}, {"name", "name", now->name},
                                                             {"compute", "way to compute", now->compute},
                                                             {"driver", "driver", now->driver}};
    char path[SW__PATH + 16];
    json_error_t error;
    snprintf(path, sizeof path, "%.1150s/machine.json", v->folder);
    json_t *const then = json_load_file(path, 0, &error);
    for (size_t i = 0; then && i < SW_COUNT(rows); i++) {
        const char *const was = json_string_value(json_object_get(then, rows[i].key));
        if (!was || strcmp(was, rows[i].now) == 0) continue;
        note(v, "the %s was %.100s, and is %.100s: bits may differ", rows[i].what, was, rows[i].now);
        v->out->elsewhere = true;
    }
    json_decref(then);
    if (strcmp(v->threads, sw_config_text(c, SW_KEY_THREADS)) == 0) return;
    note(v, "there were %s threads, and are %s: bits may differ", v->threads, sw_config_text(c, SW_KEY_THREADS));
    v->out->elsewhere = true;
}

static sw_status configure(verify *v, sw_config *c)
{
    char path[SW__PATH + 16], number[32];
    snprintf(path, sizeof path, "%.1150s/config.yaml", v->folder);
    SW_TRY(sw_config_load(c, path));
    snprintf(v->threads, sizeof v->threads, "%s", sw_config_text(c, SW_KEY_THREADS));
    if (v->o->device) SW_TRY(sw_config_set(c, "device", v->o->device));
    snprintf(number, sizeof number, "%d", v->o->threads);
    return v->o->threads > 0 ? sw_config_set(c, "threads", number) : SW_OK;
}

static const sw_run_callbacks silent;
static const sw_verify_options usual;

sw_status sw_run_verify(const char *folder, const sw_verify_options *o, const sw_run_callbacks *cb, sw_verify_result *out)
{
    if (!folder || !*folder || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_run_verify: folder or out is missing");
    *out = (sw_verify_result){0};
    verify v = {.o = o ? o : &usual, .cb = cb ? cb : &silent, .out = out, .folder = folder};
    sw_config *c = NULL;
    SW_TRY(sw_config_new(&c));
    sw_status st = configure(&v, c);
    if (st == SW_OK) st = read_hashes(&v);
    const sw__replay how = {.folder = folder, .from_start = v.o->from_start, .event = on_event, .opened = compare_machine,
                            .context = &v};
    if (st == SW_OK) st = sw__run_replay(c, &how);
    if (v.done && st == SW_ERR_INTERRUPTED) st = SW_OK;
    else if (st == SW_OK) st = sw__fail(SW_ERR_DATA, "%s: the run's own keys let no step be replayed", folder);
    sw__free(v.file);
    sw_config_free(c);
    return st;
}
