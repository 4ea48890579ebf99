/* run_files.c: makes the run folder and keeps config.yaml, machine.json, plan.json, results.csv and log.txt in it.
 * Under run.c. Every file but the log is replaced whole and atomically. */
#include "train/run_files.h"
#include "io/atomic.h"
#include "io/json.h"
#include "io/stream.h"
#include "train/trainer.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- the folder ------------------------------------------------------------------------------------------------------------ */

#define MOST_PROJECT 1000
#define MOST_NAME 150

sw_status sw__run_files_check(const sw_config *c)
{
    const char *project = sw_config_text(c, SW_KEY_PROJECT), *name = sw_config_text(c, SW_KEY_NAME);
    if (!*project) return sw__fail(SW_ERR_ARGUMENT, "project is empty; for runs in this folder itself: project .");
    if (strlen(project) > MOST_PROJECT)
        return sw__fail(SW_ERR_ARGUMENT, "project is %zu bytes long; at most %d fit", strlen(project), MOST_PROJECT);
    if (strlen(name) > MOST_NAME)
        return sw__fail(SW_ERR_ARGUMENT, "name is %zu bytes long; at most %d fit", strlen(name), MOST_NAME);
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return sw__fail(SW_ERR_ARGUMENT, "name is '%s', and must be the name of a folder in project, without /", name);
    if (strcmp(name, "last") == 0)
        return sw__fail(SW_ERR_ARGUMENT, "name is 'last', which is the link to the last run: choose another");
    return SW_OK;
}

static sw_status new_folder(sw__run_files *f, const char *project, const char *name, bool exist_ok)
{
    SW_TRY(sw__make_folder(project));
    for (int i = 1; i < 100000; i++) {
        if (i == 1)
            snprintf(f->folder, sizeof f->folder, "%.1000s/%.150s", project, name);
        else
            snprintf(f->folder, sizeof f->folder, "%.1000s/%.150s-%d", project, name, i);
        if (mkdir(f->folder, 0777) == 0 || (errno == EEXIST && exist_ok)) return SW_OK;
        if (errno != EEXIST) {
            const sw_status st = sw__fail(SW_ERR_IO, "%s: cannot make the run folder: %s", f->folder, strerror(errno));
            f->folder[0] = 0;
            return st;
        }
    }
    return sw__fail(SW_ERR_IO, "%s/%s: there are 99,999 runs of that name already", project, name);
}

/* PROJECT/last -> NAME; a file system without links just has none. */
static void link_last(const char *folder)
{
    char link_path[SW__PATH + 16], temporary[SW__PATH + 32];
    const char *slash = strrchr(folder, '/');
    if (!slash || strcmp(slash, "/last") == 0) return;
    snprintf(link_path, sizeof link_path, "%.*s/last", (int)(slash - folder), folder);
    snprintf(temporary, sizeof temporary, "%s.%ld", link_path, (long)getpid());
    struct stat s;
    if (lstat(link_path, &s) == 0 && !S_ISLNK(s.st_mode)) return; /* somebody's own file or folder */
    if (symlink(slash + 1, temporary) != 0 || rename(temporary, link_path) != 0) {
        sw__log(SW_LOG_DEBUG, "%s: not linked: %s", link_path, strerror(errno));
        unlink(temporary);
    }
}

static sw_status read_results(sw__run_files *f)
{
    char path[SW__PATH + 16], *text = NULL;
    size_t n = 0;
    snprintf(path, sizeof path, "%s/results.csv", f->folder);
    if (access(path, F_OK) != 0 && errno == ENOENT) return SW_OK;
    SW_TRY(sw__file_read(path, SIZE_MAX - 1, &text, &n));
    sw__text_put(&f->results, text, n);
    sw__free(text);
    return f->results.failed ? sw__no_memory(f->results.capacity, "results.csv") : SW_OK;
}

static sw_status open_log(sw__run_files *f)
{
    char path[SW__PATH + 16];
    snprintf(path, sizeof path, "%s/log.txt", f->folder);
    f->log = fopen(path, "a");
    if (!f->log) return sw__fail(SW_ERR_IO, "%s: cannot write to the run folder: %s", path, strerror(errno));
    if (f->early.len) fputs(f->early.s, f->log);
    fflush(f->log);
    return SW_OK;
}

sw_status sw__run_files_open(sw__run_files *f, const sw_config *c, const char *resume)
{
    f->log_every = sw_config_int(c, SW_KEY_LOG_EVERY);
    if (*resume) {
        char *real = realpath(resume, NULL); /* through "last" to the folder itself, but keep relative names short */
        struct stat s;
        if (real && lstat(resume, &s) == 0 && S_ISLNK(s.st_mode) && strrchr(resume, '/'))
            snprintf(f->folder, sizeof f->folder, "%.*s%s", (int)(strrchr(resume, '/') - resume), resume, strrchr(real, '/'));
        else
            snprintf(f->folder, sizeof f->folder, "%s", resume);
        free(real); /* realpath's own allocation */
        SW_TRY(read_results(f));
    } else {
        SW_TRY(new_folder(f, sw_config_text(c, SW_KEY_PROJECT), sw_config_text(c, SW_KEY_NAME),
                          sw_config_bool(c, SW_KEY_EXIST_OK)));
    }
    SW_TRY(open_log(f));
    link_last(f->folder);
    return SW_OK;
}

void sw__run_files_close(sw__run_files *f)
{
    if (f->log) fclose(f->log);
    sw__text_free(&f->results);
    sw__text_free(&f->early);
}

sw_status sw__run_files_write(const sw__run_files *f, const char *name, const char *text)
{
    char path[SW__PATH + 64];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return sw__atomic_write(path, text, strlen(text));
}

/* ---- the log ---------------------------------------------------------------------------------------------------------------- */

void sw__run_files_log(const sw__run_files *f, const char *fmt, ...)
{
    char line[1200], when[32];
    const time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (f->log) {
        fprintf(f->log, "%s %s\n", when, line);
        fflush(f->log);
    } else {
        sw__text_add((sw__text *)(uintptr_t)&f->early, "%s %s\n", when, line);
    }
}

/* ---- what the run is ---------------------------------------------------------------------------------------------------------- */

static void put_pair(sw__text *t, const char *key, const char *value, const char *end)
{
    sw__text_add(t, "  \"%s\": ", key);
    sw__json_string(t, value);
    sw__text_add(t, "%s\n", end);
}

static sw_status write_text(const sw__run_files *f, const char *name, sw__text *t)
{
    const sw_status st = t->failed ? sw__no_memory(t->capacity, name) : sw__run_files_write(f, name, t->s);
    sw__text_free(t);
    return st;
}

static sw_status write_machine(const sw__run_files *f, const sw_device *d)
{
    const sw_device_properties *p = sw_device_info(d);
    struct utsname os;
    sw__text t = {0};
    sw__text_add(&t, "{\n");
    put_pair(&t, "swoop", sw_version(), ",");
    put_pair(&t, "system", uname(&os) == 0 ? os.sysname : "?", ",");
    put_pair(&t, "release", uname(&os) == 0 ? os.release : "?", ",");
    put_pair(&t, "device", p->id, ",");
    put_pair(&t, "name", p->name, ",");
    put_pair(&t, "compute", p->compute, ",");
    put_pair(&t, "driver", p->driver, ",");
    sw__text_add(&t, "  \"memory_total\": %llu,\n  \"memory_free\": %llu\n}\n", (unsigned long long)p->memory_total,
                 (unsigned long long)p->memory_free);
    return write_text(f, "machine.json", &t);
}

static sw_status write_plan(const sw__run_files *f, const sw_plan *p)
{
    const struct { const char *name; uint64_t bytes; } rows[] = {
        {"params", p->params}, {"buffers", p->buffers}, {"state", p->state}, {"inputs", p->inputs},
        {"constants", p->constants}, {"arena", p->arena}, {"workspace", p->workspace}, {"total", p->total}};
    sw__text t = {0};
    sw__text_add(&t, "{\n  \"bytes\": {");
    for (size_t i = 0; i < SW_COUNT(rows); i++)
        sw__text_add(&t, "%s\"%s\": %llu", i ? ", " : "", rows[i].name, (unsigned long long)rows[i].bytes);
    sw__text_add(&t, "},\n  \"step\": {\"flops\": %.0f, \"traffic\": %.0f, \"launches\": %d, \"kernels\": %d, \"ops\": %d, "
                 "\"copies\": %d, \"nodes\": %d}\n}\n", p->flops, p->traffic, p->launches, p->kernels, p->ops, p->copies,
                 p->nodes);
    return write_text(f, "plan.json", &t);
}

sw_status sw__run_files_describe(sw__run_files *f, sw_config *c, const sw_device *d, const sw_plan *plan)
{
    const char *yaml = NULL;
    SW_TRY(sw_config_yaml(c, &yaml));
    SW_TRY(sw__run_files_write(f, "config.yaml", yaml));
    SW_TRY(write_machine(f, d));
    return write_plan(f, plan);
}

/* ---- results ------------------------------------------------------------------------------------------------------------------- */

static const char header[] = "epoch,step,time,lr,loss,acc,val_loss,val_acc,samples_s,input_wait,mem,best\n";

/* Cuts the rows from this epoch on: a resumed run does again what it had done after its checkpoint. */
static void cut_results(sw__text *t, int64_t epoch)
{
    if (!t->len || strncmp(t->s, header, strlen(header)) != 0) {
        t->len = 0;
        sw__text_add(t, "%s", header);
        return;
    }
    for (char *row = t->s + strlen(header); *row;) {
        char *end = strchr(row, '\n');
        if (!end || strtoll(row, NULL, 10) >= epoch) {
            *row = 0;
            t->len = (size_t)(row - t->s);
            return;
        }
        row = end + 1;
    }
}

static void put_figure(sw__text *t, bool known, double v)
{
    if (known && isfinite(v)) sw__text_add(t, "%.9g", v);
    sw__text_add(t, ",");
}

static double resident_mib(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (double)u.ru_maxrss / 1024 : NAN;
}

static sw_status add_result(sw__run_files *f, const sw_event *e)
{
    sw__text *t = &f->results;
    cut_results(t, e->epoch);
    sw__text_add(t, "%lld,%lld,%.3f,%.9g,", (long long)e->epoch, (long long)e->step, e->seconds, e->lr);
    put_figure(t, true, e->loss);
    put_figure(t, true, e->accuracy);
    put_figure(t, e->has_valid, e->valid.loss);
    put_figure(t, e->has_valid, e->valid.accuracy);
    put_figure(t, true, e->samples_per_second);
    put_figure(t, true, e->input_wait);
    put_figure(t, true, resident_mib());
    sw__text_add(t, "%d\n", e->best ? 1 : 0);
    if (t->failed) return sw__no_memory(t->capacity, "results.csv");
    return sw__run_files_write(f, "results.csv", t->s);
}

static void log_epoch(const sw__run_files *f, const sw_event *e)
{
    char valid[96] = "";
    if (e->has_valid)
        snprintf(valid, sizeof valid, " val_loss %.6f val_acc %.4f", e->valid.loss, e->valid.accuracy);
    sw__run_files_log(f, "epoch   %lld loss %.6f acc %.4f%s%s", (long long)e->epoch, e->loss, e->accuracy, valid,
                      e->best ? " *" : "");
}

sw_status sw__run_files_event(sw__run_files *f, const sw_event *e)
{
    switch (e->kind) {
    case SW_EVENT_STEP:
        if (e->step % f->log_every == 0 || e->step == 1)
            sw__run_files_log(f, "step    %lld loss %.9g lr %.6g", (long long)e->step, e->loss, e->lr);
        return SW_OK;
    case SW_EVENT_EPOCH:
        log_epoch(f, e);
        return add_result(f, e);
    case SW_EVENT_CHECKPOINT: return SW_OK;
    case SW_EVENT_NOT_FINITE:
    case SW_EVENT_OVERFLOW:
    case SW_EVENT_STOPPED: sw__run_files_log(f, "note    %s", e->message); return SW_OK;
    }
    return SW_OK;
}
