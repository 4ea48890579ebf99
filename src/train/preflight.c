/* preflight.c: what can be known to go wrong before the first step: the first batch, the way of the gradient, its first values.
 * Called by run.c before fit.c, or by a user's program. One forward and backward pass in a graph of its own, on the training's
 * variables, which it does not change; for a GPU on the cpu, where nothing has to be compiled. docs/checks.md has the limits. */
#include "exec/exec.h"
#include "graph/rules.h"
#include "nn/optim.h"
#include "train/trainer.h"
#include <math.h>
#include <stdio.h>

#define MOST_SAMPLES ((int64_t)64) /* of the first batch for the passes: it need not be all */
#define MOST_BESIDE ((int64_t)16)  /* the same where the cpu does it for a GPU */
#define VANISHING 1e-7             /* |gradient| / |weights| of a parameter of two or more axes */
#define EXPLODING 1e3

typedef struct preflight {
    sw_trainer *t;
    sw_finding_fn each;
    void *context;
    sw_status status;    /* of the first error */
    char message[1024];
    sw_graph *g;
    uint32_t n_nodes;    /* of the forward pass */
    bool *flows, *needs; /* of each of them: the loss's gradient comes here; the loss depends on it */
    sw_device *device;   /* where the passes are made: the training's, or the cpu … */
    sw_params *params;   /* … with the variables of there */
    uint32_t *learnt;    /* variables that are learnt, and whose gradient is looked at */
    uint32_t n_learnt;
} preflight;

static void find(preflight *f, sw_finding_level level, sw_status st, const char *check, const char *fmt, ...)
    SW_PRINTF(5, 6);
static void find(preflight *f, sw_finding_level level, sw_status st, const char *check, const char *fmt, ...)
{
    char text[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (level == SW_FINDING_ERROR && f->status == SW_OK) {
        f->status = st;
        snprintf(f->message, sizeof f->message, "%s", text);
    }
    if (f->each) f->each(f->context, &(sw_finding){.level = level, .check = check, .message = text});
}
#define WARN(f, check, ...) find(f, SW_FINDING_WARNING, SW_OK, check, __VA_ARGS__)
#define FAIL(f, st, check, ...) find(f, SW_FINDING_ERROR, st, check, __VA_ARGS__)

/* ---- the first batch --------------------------------------------------------------------------------------------- */

/* Values of one kind: is one of them not finite, are all the same? */
static void look_at_floats(preflight *f, const char *check, const char *what, const float *v, int64_t n, const sw_batch *b)
{
    bool constant = n > 1;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) {
            FAIL(f, SW_ERR_DATA, check, "the first batch's %s are not finite: %g at element %lld of sample %lld", what,
                 (double)v[i], (long long)(i % (n / b->n)), (long long)b->samples[i / (n / b->n)]);
            return;
        }
        constant = constant && v[i] == v[0];
    }
    if (constant) WARN(f, check, "all the first batch's %s are %g: there is nothing to learn from them", what, (double)v[0]);
}

static void look_at_classes(preflight *f, const int64_t *y, int64_t n)
{
    const int64_t classes = f->t->output_size / SW_MAX(f->t->positions, (int64_t)1);
    bool constant = n >= 16;
    for (int64_t i = 0; i < n; i++) {
        if (y[i] < 0 || y[i] >= classes) {
            FAIL(f, SW_ERR_DATA, "labels", "label %lld of the first batch is %lld, but the model's classes are 0 to %lld",
                 (long long)i, (long long)y[i], (long long)classes - 1);
            return;
        }
        constant = constant && y[i] == y[0];
    }
    if (constant && f->t->classes > 1)
        WARN(f, "labels", "all %lld labels of the first batch are class %lld: is the data sorted, and not shuffled?",
             (long long)n, (long long)y[0]);
}

static void look_at_batch(preflight *f, const sw_batch *b)
{
    const sw_trainer *const t = f->t;
    if (t->x_dtype == SW_F32) look_at_floats(f, "inputs", "inputs", b->x, b->n * sw__dims_product(t->x_shape, t->x_rank), b);
    const int64_t n = b->n * sw__dims_product(t->y_shape, t->y_rank);
    if (t->y_dtype == SW_F32) look_at_floats(f, "labels", "target values", b->y, n, b);
    if (t->target == SW_TARGET_CLASS && t->y_dtype == SW_I64 && !t->o.loss) look_at_classes(f, b->y, n);
}

/* A class without a sample cannot be learnt. */
static sw_status look_at_counts(preflight *f, const sw_dataset *d)
{
    const sw_dataset_info *const about = sw_dataset_about(d);
    if (about->target != SW_TARGET_CLASS || about->classes < 1 || f->t->positions > 1) return SW_OK;
    int64_t *const counts = sw__malloc((size_t)about->classes * sizeof *counts), missing = 0, first = -1;
    if (!counts) return sw__no_memory((size_t)about->classes * sizeof *counts, "class counts");
    const sw_status st = sw_dataset_class_counts(d, counts);
    for (int64_t i = 0; st == SW_OK && i < about->classes; i++) {
        if (counts[i] > 0) continue;
        if (missing++ == 0) first = i;
    }
    sw__free(counts);
    if (st == SW_ERR_ARGUMENT) return SW_OK; /* a user's function, whose labels are not known before */
    if (st == SW_OK && missing > 0)
        WARN(f, "labels", "%lld of %lld classes have no training sample, class %lld the first of them", (long long)missing,
             (long long)about->classes, (long long)first);
    return st;
}

/* ---- the way of the gradient ------------------------------------------------------------------------------------- */

static bool lets_through(const sw__node *n)
{
    return n->op == SW_OP_OUTPUT || sw__op_table[n->op].grad != sw__grad_none;
}

static void trace_loss(preflight *f, uint32_t loss)
{
    const sw_graph *const g = f->g;
    f->flows[loss] = f->needs[loss] = true;
    for (uint32_t id = loss; id > 0; id--) {
        const sw__node *const n = &g->nodes[id];
        const bool flows = f->flows[id] && lets_through(n);
        for (uint32_t i = 0; f->needs[id] && i < n->n_in; i++) {
            f->needs[n->in[i]] = true;
            if (flows && sw__dtype_is_float((sw_dtype)g->nodes[n->in[i]].dtype)) f->flows[n->in[i]] = true;
        }
    }
}

/* The first op on a way from the variable to the loss that lets no gradient through; 0: there is no such way. */
static sw_status find_cut(const preflight *f, uint32_t from, uint32_t *cut)
{
    const sw_graph *const g = f->g;
    bool *const reached = sw__calloc(f->n_nodes, sizeof *reached);
    if (!reached) return sw__no_memory(f->n_nodes, "the search for a gradient's way");
    *cut = 0;
    reached[from] = true;
    for (uint32_t id = from + 1; id < f->n_nodes && !*cut; id++) {
        for (uint32_t i = 0; i < g->nodes[id].n_in; i++) reached[id] |= reached[g->nodes[id].in[i]];
        if (!reached[id] || !f->needs[id]) continue;
        if (!lets_through(&g->nodes[id]) || !sw__dtype_is_float((sw_dtype)g->nodes[id].dtype)) *cut = id;
    }
    sw__free(reached);
    return SW_OK;
}

static sw_status tell_no_way(preflight *f, const sw__var *v)
{
    uint32_t cut = 0;
    char shape[128];
    if (!f->needs[v->node]) {
        WARN(f, "gradient", "parameter %s has no gradient: the loss does not depend on it", v->name);
        return SW_OK;
    }
    SW_TRY(find_cut(f, v->node, &cut));
    const sw__node *const n = &f->g->nodes[cut];
    WARN(f, "gradient", "parameter %s has no gradient: %s%s%s%s (%%%u %s) lets none through", v->name,
         sw__op_table[n->op].name, n->name ? " '" : "", n->name ? n->name : "", n->name ? "'" : "", (unsigned)cut,
         sw__shape_text(n, shape, sizeof shape));
    return SW_OK;
}

/* The group of a parameter that is frozen now, else NULL. */
static const sw_param_group *frozen_in(const sw_trainer *t, const char *name)
{
    const sw_optimizer *const o = &t->o.optimizer;
    const int i = sw__optimizer_group(o, name);
    if (i == o->n_groups || !o->groups[i].frozen || (o->groups[i].late && t->thawed_at >= 0)) return NULL;
    return &o->groups[i];
}

static void tell_frozen(preflight *f, int64_t frozen, int64_t late, const char *of_all, const char *names)
{
    char until[64] = "";
    if (late == frozen) snprintf(until, sizeof until, " for the first epochs");
    else if (late > 0) snprintf(until, sizeof until, ", %lld of them for the first epochs only", (long long)late);
    find(f, SW_FINDING_NOTE, SW_OK, "frozen", "%s are frozen%s: %s%s", of_all, until, names, frozen > 4 ? " …" : "");
}

/* Every parameter: frozen, without a way, or learnt. */
static sw_status sort_parameters(preflight *f)
{
    int64_t frozen = 0, late = 0, values = 0, all = 0, n = 0;
    char of_all[128];
    sw__text names = {0};
    sw_status st = SW_OK;
    for (uint32_t i = 0; i < f->g->n_vars && st == SW_OK; i++) {
        const sw__var *const v = &f->g->vars[i];
        if (v->kind != SW_VAR_PARAM) continue;
        n++;
        all += sw__dims_product(v->dim, v->rank);
        const sw_param_group *const group = frozen_in(f->t, v->name);
        if (group) {
            late += group->late;
            values += sw__dims_product(v->dim, v->rank);
            if (frozen++ < 4) sw__text_add(&names, "%s%s", names.len ? ", " : "", v->name);
        } else if (f->flows[v->node]) {
            f->learnt[f->n_learnt++] = i;
        } else {
            st = tell_no_way(f, v);
        }
    }
    snprintf(of_all, sizeof of_all, "%lld of %lld parameters (%lld of %lld values)", (long long)frozen, (long long)n,
             (long long)values, (long long)all);
    if (st == SW_OK && frozen > 0) tell_frozen(f, frozen, late, of_all, names.s ? names.s : "");
    if (st == SW_OK && f->n_learnt == 0)
        FAIL(f, SW_ERR_ARGUMENT, "gradient", "there is nothing to learn: no parameter that is not frozen has a gradient");
    sw__text_free(&names);
    return st;
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static bool is_relu(const sw__node *n)
{
    return n->op == SW_OP_MAX && n->attr.tie.second && sw__node_elements(n) > 0;
}

static sw_t squares(sw_t x)
{
    return sw_sum(sw_mul(x, x), SW_ALL_AXES, false);
}

/* Gradients in f16 need a scale, or they are 0. */
static double scale_of(const preflight *f)
{
    return f->t->o.precision == SW_PRECISION_F16 ? 1024 : 1;
}

/* Outputs: the loss; of each learnt parameter the squares of gradient and weights; the greatest value of each relu. */
static sw_status add_outputs(preflight *f, sw_t loss)
{
    sw_graph *const g = f->g;
    char name[32];
    sw_t *const wrt = sw__malloc(2 * SW_MAX(f->n_learnt, 1u) * sizeof *wrt);
    if (!wrt) return sw__no_memory(2 * f->n_learnt * sizeof *wrt, "the list of gradients");
    sw_t *const dx = wrt + f->n_learnt;
    for (uint32_t i = 0; i < f->n_learnt; i++) wrt[i] = sw__value(g, g->vars[f->learnt[i]].node);
    const sw_status st = sw_grad_from(loss, sw_const(g, sw_type(loss), scale_of(f)), wrt, (int)f->n_learnt, dx);
    g->n_assigns = g->n_outputs = 0; /* statistics and counters stay as they are */
    sw_output(loss, "loss");
    for (uint32_t i = 0; st == SW_OK && i < f->n_learnt; i++) {
        snprintf(name, sizeof name, "g%u", i);
        sw_output(squares(dx[i]), name);
        snprintf(name, sizeof name, "w%u", i);
        sw_output(squares(wrt[i]), name);
    }
    sw__free(wrt);
    SW_TRY(st);
    for (uint32_t id = 1; id < f->n_nodes; id++) {
        if (!is_relu(&g->nodes[id])) continue;
        snprintf(name, sizeof name, "r%u", id);
        sw_output(sw_reduce_max(sw__value(g, id), SW_ALL_AXES, false), name);
    }
    return sw_graph_status(g);
}

static sw_status make_graph(preflight *f, int64_t n)
{
    SW_TRY(sw__trainer_graph(f->t, SW__DIAGNOSE, n, &f->g));
    f->n_nodes = f->g->n_nodes;
    const sw_t loss = sw_graph_output(f->g, "loss");
    f->flows = sw__calloc(f->n_nodes, sizeof *f->flows);
    f->needs = sw__calloc(f->n_nodes, sizeof *f->needs);
    f->learnt = sw__calloc(SW_MAX(f->g->n_vars, 1u), sizeof *f->learnt);
    if (!f->flows || !f->needs || !f->learnt) return sw__no_memory(2 * f->n_nodes, "the preflight");
    trace_loss(f, loss.id);
    SW_TRY(sort_parameters(f));
    return f->status == SW_OK ? add_outputs(f, loss) : SW_OK;
}

/* ---- the passes -------------------------------------------------------------------------------------------------- */

static sw_status output(sw_program *p, const char *name, double *value)
{
    return sw_program_get(p, sw_program_output(p, name), SW_F64, value, 1);
}

static sw_status look_at_relus(preflight *f, sw_program *p)
{
    for (uint32_t id = 1; id < f->n_nodes; id++) {
        double most;
        char name[32], shape[128];
        const sw__node *const n = &f->g->nodes[id];
        if (!is_relu(n)) continue;
        snprintf(name, sizeof name, "r%u", id);
        SW_TRY(output(p, name, &most));
        if (most > 0 || isnan(most)) continue;
        const sw__node *const from = &f->g->nodes[n->in[0]];
        WARN(f, "relu", "a relu%s%s%s (%%%u %s) is dead: it gives 0 for the whole first batch, and nothing before it learns",
             from->name ? " after '" : "", from->name ? from->name : "", from->name ? "'" : "", (unsigned)id,
             sw__shape_text(n, shape, sizeof shape));
    }
    return SW_OK;
}

static sw_status look_at_gradients(preflight *f, sw_program *p)
{
    for (uint32_t i = 0; i < f->n_learnt; i++) {
        char name[32];
        double g, w;
        const sw__var *const v = &f->g->vars[f->learnt[i]];
        snprintf(name, sizeof name, "g%u", i);
        SW_TRY(output(p, name, &g));
        snprintf(name, sizeof name, "w%u", i);
        SW_TRY(output(p, name, &w));
        g = sqrt(g) / scale_of(f);
        w = sqrt(w);
        if (!isfinite(g))
            WARN(f, "gradient", "the first gradient of %s is not finite", v->name);
        else if (g == 0)
            WARN(f, "gradient", "the first gradient of %s is 0 in every element", v->name);
        else if (v->rank >= 2 && g < VANISHING * w)
            WARN(f, "gradient", "the first gradient of %s vanishes: its norm is %.2g, that of the weights %.2g", v->name, g, w);
        else if (v->rank >= 2 && w > 0 && g > EXPLODING * w)
            WARN(f, "gradient", "the first gradient of %s explodes: its norm is %.2g, that of the weights %.2g; a lower "
                 "learning rate or clip_grad may help", v->name, g, w);
    }
    return SW_OK;
}

/* Own ops may have no function for the cpu: then it has to be the training's device after all. */
static sw_status compile(preflight *f, sw_program **p)
{
    sw_trainer *const t = f->t;
    const sw_compile_options here = {.params = t->params, .no_keep = true, .memory = sw__memory_for(t, f->g),
                                     .shares = t->n_programs > 0 ? t->programs[0].program : NULL};
    if (f->device == t->device) return sw_compile(f->g, t->device, &here, p);
    sw_status st = sw_params_new(f->device, f->g, t->o.seed, &f->params);
    if (st == SW_OK) st = sw__params_copy(t->params, f->params);
    if (st == SW_OK) st = sw_compile(f->g, f->device, &(sw_compile_options){.params = f->params}, p);
    return st == SW_ERR_UNSUPPORTED ? sw_compile(f->g, t->device, &here, p) : st;
}

static sw_status run(preflight *f, const sw_batch *b, int64_t n)
{
    sw_program *p = NULL;
    sw_trainer *const t = f->t;
    sw_status st = compile(f, &p);
    if (st == SW_OK) {
        sw__batch_program places = {.program = p, .n = n};
        sw__trainer_places(t, &places);
        st = sw__trainer_set_batch(&places, t, b->x, b->y);
    }
    double loss = 0;
    if (st == SW_OK) st = sw_program_run(p);
    if (st == SW_OK) st = output(p, "loss", &loss);
    if (st == SW_OK && !isfinite(loss)) {
        char where[512] = "";
        st = sw__diagnose(t, b->x, b->y, n, 0, where, sizeof where);
        FAIL(f, SW_ERR_DIVERGED, "loss", "the loss of the first batch is %s before any step: %s",
             isnan(loss) ? "NaN" : "infinite", where);
    } else if (st == SW_OK) {
        st = look_at_relus(f, p);
        if (st == SW_OK) st = look_at_gradients(f, p);
    }
    sw_program_free(p);
    return st;
}

static sw_status check(preflight *f, const sw_dataset *d, const sw_batch *b)
{
    const char *const backend = sw_device_info(f->t->device)->backend;
    const bool beside = strcmp(backend, "cpu") != 0 && strcmp(backend, "ref") != 0;
    const int64_t n = SW_MIN(b->n, beside ? MOST_BESIDE : MOST_SAMPLES);
    f->device = f->t->device;
    if (beside) SW_TRY(sw_device_open("cpu", NULL, &f->device));
    SW_TRY(look_at_counts(f, d));
    look_at_batch(f, b);
    if (f->status != SW_OK) return SW_OK;
    SW_TRY(make_graph(f, n));
    if (f->status != SW_OK) return SW_OK;
    const sw_status st = run(f, b, n);
    if (st != SW_ERR_MEMORY || (!f->device->full && f->t->o.memory == 0)) return st;
    find(f, SW_FINDING_NOTE, SW_OK, "memory", "there is no room beside the training to look at its first gradients");
    return SW_OK;
}

sw_status sw_trainer_preflight(sw_trainer *t, const sw_dataset *train, bool keep_order, sw_finding_fn each, void *context)
{
    if (!t || !train) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_preflight: trainer or data set is NULL");
    preflight f = {.t = t, .each = each, .context = context};
    sw_loader *loader = NULL;
    sw_batch b;
    SW_TRY(sw_trainer_prepare(t, train));
    SW_TRY(sw_loader_open(train, &(sw_loader_options){.batch = t->o.batch, .shuffle = !keep_order, .seed = t->o.seed},
                          &loader));
    sw_status st = sw_loader_next(loader, &b);
    if (st == SW_OK) st = check(&f, train, &b);
    sw_loader_close(loader);
    sw__free(f.flows);
    sw__free(f.needs);
    sw__free(f.learnt);
    sw_graph_free(f.g);
    sw_params_free(f.params);
    if (f.device != t->device) sw_device_close(f.device);
    SW_TRY(st);
    return f.status == SW_OK ? SW_OK : sw__fail(f.status, "%s", f.message);
}
