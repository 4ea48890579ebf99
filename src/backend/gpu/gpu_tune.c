/* gpu_tune.c: the trial: of the products and convolutions of a program nobody has measured yet, those that matter are run in
 * each of their variants on scratch memory, within a budget of time, before the program is planned. Called by
 * exec/compile.c; what is found goes to gpu_choice.c. See tune.h. */
#include "backend/gpu/tune.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_OPS 8        /* measured in a program */
#define SHARE 0.95        /* … or as many as do this part of its arithmetic */
#define LEAST_FLOPS 2e6   /* smaller ones are a matter of microseconds, whichever way */
#define GAIN 0.95         /* of the rules' time: what does not reach it is noise */
#define LIBRARY_START 0.5 /* seconds that a library may cost every process, once */
enum { RUNS = 5 };

typedef struct candidate { const sw__op_desc *d; char *key; double flops, total; } candidate;
typedef struct candidates { candidate *list; size_t n, capacity; double flops; } candidates;

/* An op under trial, and what is known so far. rule NULL: it cannot be measured. */
typedef struct job {
    const candidate *c;
    sw__gpu_plan *rule, *best;
    double rule_time, ratio; /* best's time to the rules' */
    int compared;
} job;

/* All ops under trial share scratch memory. Plans stay to the end: others may want the same kernels. */
typedef struct trial {
    sw__gpu *g;
    job *jobs;
    size_t n_jobs;
    struct { sw__gpu_plan *plan; const job *of; } *plans;
    size_t n_plans, capacity;
    double start, anyway, compiling; /* anyway: seconds that do not count; compiling: the last kernel's */
    sw__bind tensors[SW__GPU_MAX_REFS];
    size_t bytes[SW__GPU_MAX_REFS];
    size_t workspace_bytes;
    sw__bind workspace;
} trial;

/* ---- scratch memory ------------------------------------------------------------------------------------------------------ */

/* From the first to the last element; 0: it cannot be told. */
static size_t extent(const sw__desc *d)
{
    size_t last = 0;
    for (int i = 0; i < d->rank; i++) {
        if (d->stride[i] < 0 || d->dim[i] < 1) return 0;
        last += (size_t)(d->dim[i] - 1) * (size_t)d->stride[i];
    }
    return (last + 1) * sw_dtype_size((sw_dtype)d->dtype);
}

static const sw__desc *tensor(const sw__op_desc *d, int i)
{
    return i < d->n_in ? &d->in[i] : &d->out[i - d->n_in];
}

/* Numbers that are neither zero nor denormal: bytes 0x3c are 0.0115 in f32 and bf16, 1.06 in f16. */
static sw_status make_buffer(const trial *t, sw__bind *b, size_t bytes)
{
    SW_TRY(t->g->driver->alloc(t->g->dev, bytes, &b->buffer));
    return t->g->driver->fill(t->g->dev, b->buffer, 0, bytes, 0x3c);
}

/* The largest first, second, … tensor of all ops. */
static sw_status make_buffers(trial *t)
{
    for (size_t j = 0; j < t->n_jobs; j++) {
        const sw__op_desc *const d = t->jobs[j].c->d;
        for (int i = 0; i < d->n_in + d->n_out; i++) t->bytes[i] = SW_MAX(t->bytes[i], extent(tensor(d, i)));
    }
    for (int i = 0; i < SW__GPU_MAX_REFS; i++)
        if (t->bytes[i] > 0) SW_TRY(make_buffer(t, &t->tensors[i], t->bytes[i]));
    return SW_OK;
}

static void drop_buffer(const trial *t, sw__bind *b)
{
    if (b->buffer != NULL) t->g->driver->release(t->g->dev, b->buffer);
    *b = (sw__bind){0};
}

static sw_status make_workspace(trial *t, size_t bytes)
{
    if (bytes <= t->workspace_bytes) return SW_OK;
    SW_TRY(t->g->driver->finish(t->g->dev));
    drop_buffer(t, &t->workspace);
    t->workspace_bytes = 0;
    SW_TRY(make_buffer(t, &t->workspace, bytes));
    t->workspace_bytes = bytes;
    return SW_OK;
}

/* The op's tensors, then its workspace. */
static void bind_plan(const trial *t, const sw__gpu_plan *p, sw__bind *to)
{
    for (int i = 0; i < p->n_bind; i++) to[i] = t->tensors[i];
    to[p->n_bind] = t->workspace;
}

/* ---- plans --------------------------------------------------------------------------------------------------------------- */

static bool same_arg(const sw__gpu_arg *a, const sw__gpu_arg *b)
{
    return a->kind == b->kind && a->bind == b->bind && a->at == b->at && a->i == b->i;
}

static bool same_launch(const sw__gpu_launch *a, const sw__gpu_launch *b)
{
    if (a->kernel != b->kernel || a->n_args != b->n_args || a->call.exec != NULL || b->call.exec != NULL) return false;
    for (int i = 0; i < 3; i++)
        if (a->groups[i] != b->groups[i] || a->local[i] != b->local[i]) return false;
    for (int i = 0; i < a->n_args; i++)
        if (!same_arg(&a->arg[i], &b->arg[i])) return false;
    return true;
}

/* Another variant of the op comes to the same. */
static bool is_known(const trial *t, const job *j, const sw__gpu_plan *p)
{
    for (size_t i = 0; i < t->n_plans; i++) {
        const sw__gpu_plan *const q = t->plans[i].plan;
        bool same = t->plans[i].of == j && q->n_launches == p->n_launches;
        for (int l = 0; l < p->n_launches && same; l++) same = same_launch(&p->launch[l], &q->launch[l]);
        if (same) return true;
    }
    return false;
}

static bool calls_library(const sw__gpu_plan *p)
{
    for (int i = 0; i < p->n_launches; i++)
        if (p->launch[i].call.exec != NULL) return true;
    return false;
}

/* The budget is for what a trial costs beside compiling by the rules; a kernel that is being compiled is waited for. */
static bool has_time(const trial *t, double more)
{
    const sw__gpu_tuning *const k = t->g->tuning;
    return k->all || k->seconds + sw__now() - t->start - t->anyway + more < k->budget;
}

/* Compiles, where that is still to be done and there is time; *built tells. */
static sw_status build(trial *t, sw__gpu_plan *p, bool *built)
{
    const double start = sw__now();
    *built = sw__gpu_plan_ready(p) == SW_OK;
    if (*built || (p->variant != 0 && !has_time(t, t->compiling))) return SW_OK;
    SW_TRY(sw__gpu_build(t->g));
    if (p->variant != 0) t->compiling = sw__now() - start;
    else t->anyway += sw__now() - start;
    *built = true;
    return sw__gpu_plan_ready(p);
}

/* A plan of this variant, ready to run; *out NULL: it comes to the same as an earlier one, or there is no time for it. */
static sw_status make_plan(trial *t, const job *j, int variant, sw__gpu_plan **out)
{
    sw__gpu_plan *p = NULL;
    bool built = false;
    *out = NULL;
    SW_TRY(sw__grow(&t->plans, &t->capacity, t->n_plans + 1, sizeof *t->plans, "a trial's plans"));
    SW_TRY(sw__gpu_op_plan_as(t->g, j->c->d, variant, &p));
    const bool wanted = (variant & SW__GPU_LIBRARY) != 0 || t->g->driver->library_name == NULL;
    const bool other = calls_library(p) ? !wanted : (variant & ~(SW__GPU_LIBRARY - 1)) != 0;
    sw_status st = other || is_known(t, j, p) ? SW_OK : build(t, p, &built);
    if (st == SW_OK && built) st = make_workspace(t, p->workspace);
    if (st != SW_OK || !built) { /* a kernel that does not compile must not be asked for any more */
        sw__gpu_plan_free(p);
        return st;
    }
    t->plans[t->n_plans].of = j;
    t->plans[t->n_plans++].plan = *out = p;
    return SW_OK;
}

/* ---- time ---------------------------------------------------------------------------------------------------------------- */

sw_status sw__gpu_run_timed(sw__gpu_plan *p, const sw__bind *bind, double *seconds)
{
    const sw__gpu_driver *const driver = p->gpu->driver;
    void *const dev = p->gpu->dev;
    *seconds = 0;
    if (driver->timer != NULL) {
        SW_TRY(driver->timer(dev, seconds));
        const sw_status st = sw__gpu_plan_run(p, bind);
        const sw_status after = driver->timer(dev, NULL);
        return st != SW_OK ? st : after;
    }
    SW_TRY(driver->finish(dev));
    const double start = sw__now();
    SW_TRY(sw__gpu_plan_run(p, bind));
    SW_TRY(driver->finish(dev));
    *seconds = sw__now() - start;
    return SW_OK;
}

/* Two plans in turn, since machines are shared: the shortest run of each. Fewer runs where it is clear. */
static sw_status time_pair(const trial *t, sw__gpu_plan *const p[2], int runs, double shortest[2])
{
    sw__bind bind[2][SW__GPU_MAX_REFS + 1];
    double once = 0, spent = 0;
    for (int k = 0; k < 2; k++) {
        bind_plan(t, p[k], bind[k]);
        shortest[k] = 1e9;
    }
    SW_TRY(sw__gpu_run_timed(p[1], bind[1], &once)); /* the first run of a kernel may cost more */
    for (int i = 0; i < runs; i++) {
        for (int k = 0; k < 2; k++) {
            SW_TRY(sw__gpu_run_timed(p[k], bind[k], &once));
            shortest[k] = SW_MIN(once, shortest[k]);
            spent += once;
        }
        if (shortest[1] > 1.3 * shortest[0] || (spent > 0.08 && i > 0)) break;
    }
    return SW_OK;
}

/* Seconds of a run among many, by the host's clock: what a step pays, launching included. */
static sw_status time_stream(const trial *t, sw__gpu_plan *p, double *seconds)
{
    sw__gpu *const g = t->g;
    sw__bind bind[SW__GPU_MAX_REFS + 1];
    bind_plan(t, p, bind);
    for (int times = 1; times <= 1024; times *= 4) {
        SW_TRY(g->driver->finish(g->dev));
        const double start = sw__now();
        for (int i = 0; i < times; i++) SW_TRY(sw__gpu_plan_run(p, bind));
        SW_TRY(g->driver->finish(g->dev));
        const double one = (sw__now() - start) / times;
        *seconds = times == 1 ? one : SW_MIN(one, *seconds);
        if (one * times > 0.1) break;
    }
    return SW_OK;
}

/* ---- the trial ----------------------------------------------------------------------------------------------------------- */

static void note_pair(const trial *t, job *j, sw__gpu_plan *p, const double time[2])
{
    const double ratio = time[1] / SW_MAX(time[0], 1e-9);
    sw__log(SW_LOG_TRACE, "%s: %s: variant %d, %s: %.1f us, the rules' %.1f us", t->g->backend, j->c->key, p->variant,
            p->note, time[1] * 1e6, time[0] * 1e6);
    j->rule_time = SW_MIN(j->rule_time, time[0]);
    j->compared++;
    if (ratio >= j->ratio) return;
    j->best = p;
    j->ratio = ratio;
}

/* A library that has one way to do it leaves nothing to choose; swoop tune wants its time all the same. */
static bool has_choice(const trial *t, const sw__gpu_plan *p)
{
    return !calls_library(p) || p->ways > 1 || t->g->tuning->all;
}

/* The rules' variant of an op, run once; without it nothing can be said. */
static void try_rule(trial *t, job *j)
{
    double time = 0;
    sw__bind bind[SW__GPU_MAX_REFS + 1];
    sw__gpu_plan *p = NULL;
    if (!has_time(t, 0)) return;
    sw_status st = make_plan(t, j, 0, &p);
    if (st == SW_OK && p != NULL && !has_choice(t, p)) return;
    if (st == SW_OK && p != NULL) {
        bind_plan(t, p, bind);
        st = sw__gpu_run_timed(p, bind, &time);
    }
    if (st != SW_OK) sw__log(SW_LOG_INFO, "%s: %s is not tuned: %s", t->g->backend, j->c->key, sw_error());
    if (st != SW_OK || p == NULL) return;
    j->rule = j->best = p;
    j->rule_time = time;
    j->ratio = GAIN;
}

/* The number of our variants, or of the algorithms of the library that does it. */
static int ways_of(const trial *t, const job *j)
{
    if (calls_library(j->rule)) return SW_MIN(j->rule->ways, SW__GPU_MOST_WAYS);
    return sw__gpu_ops[j->c->d->op].variants(t->g, j->c->d);
}

/* Another one; if it fails (memory, a compiler), it is left out. */
static void try_variant(trial *t, job *j, int variant)
{
    double time[2];
    sw__gpu_plan *p = NULL;
    if (j->rule == NULL || !has_time(t, 0) || variant >= ways_of(t, j)) return;
    if (calls_library(j->rule)) variant *= SW__GPU_WAY;
    sw_status st = make_plan(t, j, variant, &p);
    if (st == SW_OK && p != NULL) st = time_pair(t, (sw__gpu_plan *const[2]){j->rule, p}, RUNS, time);
    if (st != SW_OK)
        sw__log(SW_LOG_INFO, "%s: variant %d of %s is left out: %s", t->g->backend, variant, j->c->key, sw_error());
    if (st == SW_OK && p != NULL) note_pair(t, j, p, time);
}

/* What looked faster has to be so again. */
static sw_status confirm(const trial *t, job *j, double *best_time)
{
    double time[2];
    *best_time = j->rule_time;
    if (j->best == j->rule) return SW_OK;
    SW_TRY(time_pair(t, (sw__gpu_plan *const[2]){j->rule, j->best}, RUNS, time));
    j->rule_time = SW_MIN(j->rule_time, time[0]);
    if (time[1] < GAIN * time[0] && time[1] < GAIN * j->rule_time) *best_time = time[1];
    else j->best = j->rule;
    if (j->best == j->rule) *best_time = j->rule_time;
    return SW_OK;
}

/* The library beside our best, where there is one that takes the op. */
static sw_status try_library(trial *t, const job *j, sw__gpu_choice *out)
{
    const sw__gpu_driver *const driver = t->g->driver;
    const char *const name = driver->library_name != NULL ? driver->library_name(t->g->dev) : NULL;
    sw__gpu_plan *p = NULL;
    double ours = 0, start = 0;
    if (name == NULL) return SW_OK;
    t->g->tuning->library_tried = true;
    SW_TRY(make_plan(t, j, SW__GPU_LIBRARY, &p));
    if (p == NULL) return SW_OK;
    SW_TRY(time_stream(t, j->best, &ours));
    SW_TRY(time_stream(t, p, &out->library));
    if (out->library >= GAIN * ours) return SW_OK;
    SW_TRY(driver->library_start(t->g->dev, j->c->d, &start));
    if (start > LIBRARY_START) {
        sw__log(SW_LOG_INFO, "%s: %s would be faster for %s, but costs %.1f s at the start of every process", t->g->backend,
                name, j->c->key, start);
        return SW_OK;
    }
    out->variant |= SW__GPU_LIBRARY;
    snprintf(out->note, sizeof out->note, "%s", p->note);
    return SW_OK;
}

static sw_status settle(trial *t, job *j, sw__gpu_choice *out)
{
    double best_time = 0;
    SW_TRY(confirm(t, j, &best_time));
    *out = (sw__gpu_choice){.variant = j->best->variant, .rule = j->rule_time, .best = best_time, .flops = j->c->flops};
    snprintf(out->note, sizeof out->note, "%s", j->best->note);
    if (t->g->tuning->all && try_library(t, j, out) != SW_OK)
        sw__log(SW_LOG_INFO, "%s: the library is not used for %s: %s", t->g->backend, j->c->key, sw_error());
    return SW_OK;
}

/* Variant by variant, so that a kernel that several ops share is compiled for all of them. */
static sw_status try_all(trial *t)
{
    SW_TRY(make_buffers(t));
    for (size_t j = 0; j < t->n_jobs; j++) try_rule(t, &t->jobs[j]);
    for (int v = 1; v < SW__GPU_MOST_VARIANTS; v++)
        for (size_t j = 0; j < t->n_jobs; j++) try_variant(t, &t->jobs[j], v);
    return SW_OK;
}

static void end_trial(trial *t)
{
    if (t->n_jobs > 0) (void)t->g->driver->finish(t->g->dev); /* nothing may be at work on what is given back */
    for (int i = 0; i < SW__GPU_MAX_REFS; i++) drop_buffer(t, &t->tensors[i]);
    drop_buffer(t, &t->workspace);
    for (size_t i = 0; i < t->n_plans; i++) sw__gpu_plan_free(t->plans[i].plan);
    sw__free(t->plans);
    sw__free(t->jobs);
}

/* ---- the ops of a program -------------------------------------------------------------------------------------------------- */

static int by_arithmetic(const void *pa, const void *pb)
{
    const candidate *const a = pa, *const b = pb;
    if (a->total < b->total || a->total > b->total) return a->total < b->total ? 1 : -1;
    return strcmp(a->key, b->key);
}

static sw_status add_candidate(sw__gpu *g, candidates *cs, const sw__op_desc *d, double flops)
{
    const sw__gpu_op *const op = &sw__gpu_ops[d->op];
    sw__text key = {0};
    if (op->variants == NULL || flops < LEAST_FLOPS || op->variants(g, d) < 2) return SW_OK;
    for (int i = 0; i < d->n_in + d->n_out; i++)
        if (extent(tensor(d, i)) == 0) return SW_OK;
    if (!sw__gpu_op_key(g, d, &key)) {
        sw__text_free(&key);
        return sw__no_memory(64, "an op's name");
    }
    if (key.s == NULL) return SW_OK;
    candidate *c = NULL;
    for (size_t i = 0; i < cs->n && c == NULL; i++)
        if (strcmp(cs->list[i].key, key.s) == 0) c = &cs->list[i];
    sw_status st = SW_OK;
    const sw__gpu_choice *const known = sw__gpu_find_choice(g, key.s);
    if (c == NULL && (known == NULL || (g->tuning->all && *known->note == '\0'))) {
        st = sw__grow(&cs->list, &cs->capacity, cs->n + 1, sizeof *cs->list, "the ops of a program");
        if (st == SW_OK) {
            c = &cs->list[cs->n++];
            *c = (candidate){.d = d, .key = key.s, .flops = flops};
            key = (sw__text){0};
        }
    }
    sw__text_free(&key);
    if (c != NULL) {
        c->total += flops;
        cs->flops += flops;
    }
    return st;
}

typedef struct outcome { int measured, faster; double most; } outcome;

static sw_status keep(trial *t, const candidate *c, job *j, outcome *o)
{
    sw__gpu_choice choice = {.flops = c->flops};
    if (j != NULL && (j->compared > 0 || (t->g->tuning->all && j->rule != NULL))) {
        const sw_status st = settle(t, j, &choice);
        if (st != SW_OK) sw__log(SW_LOG_INFO, "%s: %s is not tuned: %s", t->g->backend, c->key, sw_error());
        if (st != SW_OK) choice = (sw__gpu_choice){.flops = c->flops};
        else o->measured++;
        if (choice.variant != 0) o->faster++;
        if (choice.variant != 0 && choice.variant != SW__GPU_LIBRARY) o->most = SW_MAX(o->most, choice.rule / choice.best);
    }
    return sw__gpu_choose(t->g, c->key, &choice);
}

/* seconds: what the trial cost beside compiling by the rules. */
static void tell(const sw__gpu *g, const outcome *o, double seconds)
{
    if (o->measured == 0) return;
    char more[64] = ": the rules are right";
    if (o->faster > 0)
        snprintf(more, sizeof more, ": %d faster than by the rules, up to %.2f times", o->faster, o->most);
    sw__log(SW_LOG_INFO, "%s: tuned %d products and convolutions in %.1f s%s", g->backend, o->measured, seconds, more);
}

/* Those that matter are measured; all get an entry, so that the next process does the same. */
static sw_status decide(trial *t, const candidates *cs, bool may_measure)
{
    double covered = 0;
    outcome o = {.most = 1};
    t->start = sw__now();
    t->jobs = sw__calloc(cs->n, sizeof *t->jobs);
    if (t->jobs == NULL) return sw__no_memory(cs->n * sizeof *t->jobs, "a trial");
    while (may_measure && t->n_jobs < cs->n) {
        if (!t->g->tuning->all && (t->n_jobs == MOST_OPS || covered > SHARE * cs->flops)) break;
        t->jobs[t->n_jobs].c = &cs->list[t->n_jobs];
        covered += cs->list[t->n_jobs++].total;
    }
    if (t->n_jobs > 0) SW_TRY(t->g->driver->finish(t->g->dev)); /* what failed before is no variant's fault, and is told */
    if (t->n_jobs > 0 && try_all(t) != SW_OK)
        sw__log(SW_LOG_INFO, "%s: nothing is measured: %s", t->g->backend, sw_error());
    for (size_t i = 0; i < cs->n; i++) SW_TRY(keep(t, &cs->list[i], i < t->n_jobs ? &t->jobs[i] : NULL, &o));
    t->g->tuning->measured += o.measured;
    t->g->tuning->seconds += sw__now() - t->start - t->anyway;
    tell(t->g, &o, sw__now() - t->start - t->anyway);
    return SW_OK;
}

static void hint(sw__gpu *g)
{
    sw__gpu_tuning *const k = g->tuning;
    if (k->hinted || k->library_tried || g->driver->library_name == NULL) return;
    k->hinted = true;
    const char *const name = g->driver->library_name(g->dev);
    if (name != NULL)
        sw__log(SW_LOG_INFO, "%s: %s is installed, but whether it is faster on this device was never measured: swoop tune",
                g->backend, name);
}

sw_status sw__gpu_tune(sw__gpu *g, const sw__op_desc *d, const double *flops, int n, bool may_measure)
{
    trial t = {.g = g};
    candidates cs = {0};
    sw_status st = SW_OK;
    if (g->read_from != NULL || g->write_to != NULL) return SW_OK; /* a folder's kernels are those of the rules */
    for (int i = 0; i < n && st == SW_OK; i++) st = add_candidate(g, &cs, &d[i], flops[i]);
    if (st == SW_OK && cs.n > 0 && !g->tuning->never) {
        qsort(cs.list, cs.n, sizeof *cs.list, by_arithmetic);
        if (!g->tuning->all) hint(g);
        st = decide(&t, &cs, may_measure);
        sw__gpu_keep_choices(g, g->tuning->all);
    }
    end_trial(&t);
    for (size_t i = 0; i < cs.n; i++) sw__free(cs.list[i].key);
    sw__free(cs.list);
    return st;
}

static void fill_row(const sw__gpu_choice *c, sw_tuned *out)
{
    *out = (sw_tuned){.flops = c->flops, .rule = c->rule, .best = c->best, .library = c->library, .faster = c->variant != 0};
    snprintf(out->op, sizeof out->op, "%s", c->key);
    snprintf(out->chosen, sizeof out->chosen, "%s", c->note);
}

/* The label as a pattern that matches it and nothing else: a device's name may have brackets in it. */
static void put_pattern(const sw__gpu *g, sw__text *out)
{
    char label[384];
    sw__gpu_device_label(g, label, sizeof label);
    for (const char *c = label; *c != '\0'; c++) sw__text_add(out, "%s%c", strchr("*?[]\\", *c) != NULL ? "\\" : "", *c);
}

sw_status sw__gpu_tuned(const sw__gpu *g, sw_tune_result *out)
{
    sw__text table = {0};
    const sw__gpu_tuning *const t = g->tuning;
    out->ops = sw__malloc(SW_MAX(t->n, (size_t)1) * sizeof *out->ops);
    if (out->ops == NULL) return sw__no_memory(t->n * sizeof *out->ops, "what was measured");
    sw__text_add(&table, "version %d\n[", SW__GPU_VARIANTS);
    put_pattern(g, &table);
    sw__text_add(&table, "]\n");
    for (size_t i = 0; i < t->n; i++) {
        if (*t->list[i].note == '\0') continue; /* not in this process */
        fill_row(&t->list[i], &out->ops[out->n++]);
        sw__gpu_write_choice(&t->list[i], &table);
    }
    if (table.failed) {
        sw__text_free(&table);
        return sw__no_memory(table.len, "a tuning table");
    }
    if (out->n > 0) out->table = table.s;
    else sw__text_free(&table);
    return SW_OK;
}
