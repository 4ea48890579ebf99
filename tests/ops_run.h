/* ops_run.h: runs a case of the op tables: makes its values, its graph (with gradients), runs it on a device, compares.
 * Included by test_ops.c. A problem is printed and counted, so that one run shows all of them. */
#ifndef SW_TESTS_OPS_RUN_H
#define SW_TESTS_OPS_RUN_H

#include "ops_case.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How the operands reach the op. */
typedef enum route {
    PLAIN,
    PERMUTED, /* the input has its axes in reverse order and is permuted */
    SLICED,   /* the input is twice as large along each axis, every second element is taken */
    EXPANDED, /* the input has size 1 along axis 0 and is expanded */
    ROUTES
} route;
static const char *const route_name[ROUTES] = { "plain", "permuted", "sliced", "expanded" };

/* A run-time input of a graph of tests: its name and values. */
typedef struct slot {
    char name[16];
    sw_dtype type;
    int rank;
    int64_t dim[SW_MAX_RANK], n;
    double *f;
    int64_t *i;
} slot;

#define MAX_SLOTS 40
#define MAX_RESULTS 24

typedef struct trial {
    const ops_case *c;
    operand in[MAX_OPERANDS]; /* the case's, or with another shape */
    int n_in;
    route route;
    int order;                /* 1: the op's gradients; 2: gradients of its gradients */
    slot slots[MAX_SLOTS];
    int n_slots;
    int n_wrt, wrt[MAX_OPERANDS]; /* slots that gradients are taken for */
    sw__arena memory;
} trial;

typedef struct result {
    char name[16];
    sw_dtype type;
    int64_t n;
    double *f;
    int64_t *i;
} result;

typedef struct results { result r[MAX_RESULTS]; int n; sw__arena memory; } results;

static int problems;

static void describe(const trial *t, char *buf, size_t size)
{
    size_t at = (size_t)snprintf(buf, size, "%s%s%s%s (%s, order %d)", sw__op_table[t->c->op].name,
                                 t->c->name[0] ? " '" : "", t->c->name, t->c->name[0] ? "'" : "", route_name[t->route],
                                 t->order);
    for (int i = 0; i < t->n_in && at < size; i++) {
        sw__node shape = { .dtype = (uint8_t)t->in[i].type, .rank = (uint8_t)t->in[i].rank };
        char text[96];
        memcpy(shape.dim, t->in[i].dim, sizeof shape.dim);
        at += (size_t)snprintf(buf + at, size - at, " %s", sw__shape_text(&shape, text, sizeof text));
    }
}

static void problem(const trial *t, const char *fmt, ...) SW_PRINTF(2, 3);

static void problem(const trial *t, const char *fmt, ...)
{
    char what[512], why[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    describe(t, what, sizeof what);
    fprintf(stderr, "  %s: %s\n", what, why);
    problems++;
}

static void *take(sw__arena *memory, int64_t n, size_t size)
{
    void *const p = sw__arena_alloc(memory, ((size_t)n + 1) * size);
    if (!p) abort();
    return p;
}

/* ---- the table of docs/ops.md -------------------------------------------------------------------------------------- */

/* What a device was right about and wrong about, by op and type of the case's first operand. */
typedef struct verdicts { bool right[SW_OP_COUNT][SW_DTYPE_COUNT], wrong[SW_OP_COUNT][SW_DTYPE_COUNT]; } verdicts;

SW_UNUSED static void judge(verdicts *v, const trial *t, int problems_before)
{
    const sw_dtype type = t->n_in > 0 ? t->in[0].type : (sw_dtype)t->c->like.dtype;
    (problems == problems_before ? v->right : v->wrong)[t->c->op][type] = true;
}

/* Adds lines "device op type" to the file that SWOOP_OPS_TABLE names; scripts/ops-table makes the table of them. */
SW_UNUSED static void write_verdicts(const verdicts *v, const char *device)
{
    const char *const path = getenv("SWOOP_OPS_TABLE");
    FILE *const f = path ? fopen(path, "a") : NULL;
    for (int op = 0; f && op < SW_OP_COUNT; op++)
        for (int t = 0; t < SW_DTYPE_COUNT; t++)
            if (v->right[op][t] && !v->wrong[op][t])
                fprintf(f, "%s %s %s\n", device, sw__op_table[op].name, sw_dtype_name((sw_dtype)t));
    if (f) fclose(f);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static const double special_floats[32] = {
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, -2.5, 10.0, -10.0, 88.0, -87.0,
    104.0, -104.0, 1e-10, -1e-10, 1e-30, -1e-30, 1e-38, 65504.0, -70000.0, 2147483648.0, 1e20, -1e20, 3e38,
    (double)INFINITY, -(double)INFINITY, (double)NAN,
};

static const int64_t int_low[SW_DTYPE_COUNT] = { [SW_I32] = INT32_MIN, [SW_I64] = INT64_MIN };
static const int64_t int_high[SW_DTYPE_COUNT] = {
    [SW_I32] = INT32_MAX, [SW_I64] = INT64_MAX, [SW_U8] = UINT8_MAX, [SW_U32] = UINT32_MAX, [SW_BOOL] = 1,
};

static int64_t special_int(sw_dtype t, int64_t k)
{
    const int64_t near[14] = { 0, 1, 2, 3, 5, 7, 8, 31, 32, 33, 63, 64, 100, 127 };
    const int64_t low = int_low[t], high = int_high[t];
    const int64_t v = k < 14   ? near[k]
                      : k < 20 ? -near[k - 13]
                      : k < 24 ? low + (k - 20)
                      : k < 28 ? high - (k - 24)
                               : high / (k - 25);
    return SW_MAX(low, SW_MIN(high, v));
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

static double one_float(fill how, sw__rng *rng)
{
    switch (how) {
    case POSITIVE: return 0.5 + 2 * sw__rng_uniform(rng);
    case NEGATIVE: return -0.5 - 2 * sw__rng_uniform(rng);
    case UNIT: return 1.8 * sw__rng_uniform(rng) - 0.9;
    case TIES: return 0.5 * (double)sw__rng_below(rng, 5) - 1;
    case SOME_ZERO: return sw__rng_below(rng, 3) == 0 ? 0 : 0.5 + 2 * sw__rng_uniform(rng);
    case HUGE_VALUES: return sw__rng_normal(rng) * 1e30;
    case TINY_VALUES: return sw__rng_normal(rng) * 1e-30;
    case PROBABILITIES: return 0.1 + sw__rng_uniform(rng);
    default: return sw__rng_normal(rng);
    }
}

static int64_t one_int(const operand *o, sw__rng *rng)
{
    const int64_t low = int_low[o->type], high = int_high[o->type];
    switch (o->fill) {
    case INDEX: return (int64_t)sw__rng_below(rng, (uint64_t)SW_MAX(o->extent, 1));
    case FLAGS: return (int64_t)sw__rng_below(rng, 2);
    case SMALL_INT: return (int64_t)sw__rng_below(rng, 7) - (low < 0 ? 3 : 0);
    default: {
        const uint64_t bits = (uint64_t)sw__rng_u32(rng) << 32 | sw__rng_u32(rng);
        return o->type == SW_I64 ? (int64_t)bits : low + (int64_t)(bits % ((uint64_t)(high - low) + 1));
    }
    }
}

/* A fresh shuffle of 0 … extent-1 for each line along `axis`. */
static void fill_shuffled(const slot *s, const operand *o, int axis, sw__rng *rng)
{
    const int64_t length = s->dim[axis], inner = sw__dims_product(s->dim + axis + 1, s->rank - axis - 1);
    for (int64_t line = 0; line < s->n / SW_MAX(length, 1); line++) {
        int64_t all[64];
        for (int64_t k = 0; k < o->extent; k++) all[k] = k;
        sw__rng_shuffle(rng, all, (size_t)o->extent);
        for (int64_t k = 0; k < length; k++) s->i[(line / inner * length + k) * inner + line % inner] = all[k];
    }
}

static void fill_distinct(const slot *s, int operand_index, sw__rng *rng)
{
    for (int64_t e = 0; e < s->n; e++) s->i[e] = e;
    sw__rng_shuffle(rng, s->i, (size_t)s->n);
    const int64_t middle = s->n / 2;
    for (int64_t e = 0; e < s->n; e++) s->f[e] = (double)(s->i[e] - middle) * 0.1 + 0.03 * (operand_index + 1);
}

static void fill_floats(const slot *s, const operand *o, int operand_index, sw__rng *rng)
{
    const int64_t width = s->rank > 0 ? s->dim[s->rank - 1] : 1;
    if (o->fill == DISTINCT) fill_distinct(s, operand_index, rng);
    for (int64_t e = 0; e < s->n && o->fill != DISTINCT; e++) {
        if (o->fill == SPECIAL_ROWS) s->f[e] = special_floats[e / 32 % 32];
        else if (o->fill == SPECIAL_COLS) s->f[e] = special_floats[e % 32];
        else s->f[e] = one_float(o->fill, rng);
    }
    for (int64_t row = 0; o->fill == PROBABILITIES && row < s->n / width; row++) {
        double sum = 0;
        for (int64_t k = 0; k < width; k++) sum += s->f[row * width + k];
        for (int64_t k = 0; k < width; k++) s->f[row * width + k] /= sum;
    }
    const sw_dtype rounded = s->type == SW_F64 ? SW_F32 : s->type;
    for (int64_t e = 0; e < s->n; e++) {
        char narrow[8];
        sw__convert(narrow, rounded, &s->f[e], SW_F64, 1);
        sw__convert(&s->f[e], SW_F64, narrow, rounded, 1);
    }
}

static void fill_slot(const trial *t, const slot *s, const operand *o, int operand_index)
{
    sw__rng rng;
    const uint64_t seed = hash_text(hash_text(14695981039346656037u, sw__op_table[t->c->op].name), t->c->name);
    sw__rng_init(&rng, seed, hash_text(0, s->name));
    if (sw__dtype_is_float(s->type)) {
        fill_floats(s, o, operand_index, &rng);
    } else if (o->fill == SHUFFLED) {
        fill_shuffled(s, o, t->c->attr.axis.axis, &rng);
    } else {
        for (int64_t e = 0; e < s->n; e++)
            s->i[e] = o->fill == SPECIAL_ROWS   ? special_int(s->type, e / 32 % 32)
                      : o->fill == SPECIAL_COLS ? special_int(s->type, e % 32)
                                                : one_int(o, &rng);
    }
}

/* The slot of this name; made and filled if it is new. */
static slot *slot_for(trial *t, const char *name, sw_dtype type, int rank, const int64_t *dim, const operand *o,
                      int index)
{
    for (int i = 0; i < t->n_slots; i++)
        if (strcmp(t->slots[i].name, name) == 0) return &t->slots[i];
    slot *const s = &t->slots[t->n_slots++];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->type = type;
    s->rank = rank;
    if (rank > 0) memcpy(s->dim, dim, (size_t)rank * sizeof *dim);
    s->n = sw__dims_product(dim, rank);
    s->f = take(&t->memory, s->n, sizeof *s->f);
    s->i = take(&t->memory, s->n, sizeof *s->i);
    fill_slot(t, s, o, index);
    return s;
}

static void trial_free(trial *t)
{
    sw__arena_free(&t->memory);
    t->n_slots = 0;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static sw_t input_of(trial *t, sw_graph *g, int i, const int64_t *dim)
{
    const operand *const o = &t->in[i];
    char name[16];
    snprintf(name, sizeof name, "x%d", i);
    slot *const s = slot_for(t, name, o->type, o->rank, dim, o, i);
    if (sw__dtype_is_float(o->type) && !o->fixed && t->n_wrt < MAX_OPERANDS) t->wrt[t->n_wrt++] = (int)(s - t->slots);
    return sw_input(g, name, o->type, o->rank, dim);
}

/* Operand i as the op is to see it; *source is the input that it comes from. */
static sw_t operand_of(trial *t, sw_graph *g, int i, sw_t *source)
{
    const operand *const o = &t->in[i];
    int64_t dim[SW_MAX_RANK], start[SW_MAX_RANK], step[SW_MAX_RANK];
    int axes[SW_MAX_RANK];
    for (int k = 0; k < o->rank; k++) {
        axes[k] = o->rank - 1 - k;
        start[k] = 1;
        step[k] = 2;
        dim[k] = t->route == PERMUTED ? o->dim[o->rank - 1 - k] : t->route == SLICED ? 2 * o->dim[k] + 1 : o->dim[k];
    }
    if (t->route == EXPANDED && o->rank > 0) dim[0] = 1;
    *source = input_of(t, g, i, dim);
    if (t->route == PERMUTED) return sw_permute(*source, axes);
    if (t->route == SLICED) return sw_slice(*source, start, dim, step);
    return t->route == EXPANDED ? sw_expand(*source, o->rank, o->dim) : *source;
}

static sw_t add_op(const trial *t, sw_graph *g, const sw_t *in)
{
    if (t->c->build) return t->c->build(g, in, t->c);
    return sw__node_add(g, t->c->op, in, (uint32_t)t->n_in, &t->c->attr, &t->c->like);
}

/* Sum over all float values of value times a random factor: a scalar that depends on every element differently. */
static sw_t weigh(trial *t, sw_graph *g, const sw_t *y, int n, const char *prefix)
{
    const operand normal = { .fill = NORMAL };
    sw_t loss = SW_NONE;
    for (int k = 0; k < n; k++) {
        if (!sw__dtype_is_float(sw_type(y[k]))) continue;
        const sw__node node = *sw__node_of(y[k]);
        char name[16];
        snprintf(name, sizeof name, "%s%d", prefix, k);
        slot_for(t, name, (sw_dtype)node.dtype, node.rank, node.dim, &normal, 0);
        const sw_t factor = sw_input(g, name, (sw_dtype)node.dtype, node.rank, node.dim);
        const sw_t part = sw_cast(sw_sum(sw_mul(y[k], factor), SW_ALL_AXES, false), SW_F32);
        loss = loss.graph ? sw_add(loss, part) : part;
    }
    return loss;
}

static void give(sw_t y, const char *prefix, int k)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", prefix, k);
    sw_output(y, name);
}

/* The graph of a trial. only_loss: nothing but the scalar, for differences; otherwise the op's outputs, the loss, and
 * its gradients. Of order 2 the loss is made of the gradients of the loss of order 1. */
SW_UNUSED static sw_status make_graph(trial *t, bool only_loss, sw_graph **out)
{
    sw_t in[MAX_OPERANDS], source[MAX_OPERANDS], wrt[MAX_OPERANDS], y[SW__MAX_OUT + MAX_OPERANDS];
    sw_graph *g = NULL;
    SW_TRY(sw_graph_new(&g));
    *out = g;
    t->n_wrt = 0;
    int n_wrt = 0;
    for (int i = 0; i < t->n_in; i++) {
        const int before = t->n_wrt;
        in[i] = operand_of(t, g, i, &source[i]);
        if (t->n_wrt > before) wrt[n_wrt++] = source[i];
    }
    y[0] = add_op(t, g, in);
    if (!sw_valid(y[0])) return sw_graph_status(g) != SW_OK ? sw_graph_status(g) : SW_ERR_ARGUMENT;
    int n = sw__node_outputs(sw__node_of(y[0]));
    for (int k = 1; k < n; k++) y[k] = sw__output_of(y[0], k);
    sw_t loss = weigh(t, g, y, t->c->flags & FIRST_OUTPUT ? 1 : n, "s");
    if (t->order == 2 && sw_valid(loss) && n_wrt > 0) {
        SW_TRY(sw_grad(loss, wrt, n_wrt, y));
        n = n_wrt;
        loss = weigh(t, g, y, n, "t");
    }
    for (int k = 0; k < n && !only_loss; k++) give(y[k], "y", k);
    if (sw_valid(loss)) give(loss, "loss", 0);
    if (!only_loss && sw_valid(loss) && n_wrt > 0) {
        SW_TRY(sw_grad(loss, wrt, n_wrt, y));
        for (int k = 0; k < n_wrt; k++) give(y[k], "g", k);
    }
    return sw_graph_status(g);
}

/* ---- trials of a case ---------------------------------------------------------------------------------------------- */

static bool has_special_fill(const ops_case *c)
{
    for (int i = 0; i < MAX_OPERANDS; i++) {
        const fill f = c->in[i].fill;
        if (f == SPECIAL_ROWS || f == SPECIAL_COLS || f == DISTINCT || f == PROBABILITIES || f == SHUFFLED) return true;
    }
    return false;
}

/* Does the route make sense for the case's operands? Values that depend on their place must stay there. */
static bool route_fits(const ops_case *c, const trial *t, route r)
{
    bool any_axis = false;
    for (int i = 0; i < t->n_in; i++) any_axis = any_axis || t->in[i].rank > (r == PERMUTED ? 1 : 0);
    if (r == PLAIN) return true;
    if (!any_axis || c->op == SW_OP_INPUT) return false;
    if (c->op == SW_OP_BATCH_NORM && r == EXPANDED) return false; /* equal images: variance 0, 1/sqrt(eps) of noise */
    if (r == SLICED || r == PERMUTED) return !has_special_fill(c) || c->in[0].fill == DISTINCT;
    return !has_special_fill(c) && c->in[0].fill != TIES;
}

static trial trial_of(const ops_case *c, route r, int order)
{
    trial t = { .c = c, .route = r, .order = order };
    memcpy(t.in, c->in, sizeof t.in);
    while (t.n_in < MAX_OPERANDS && c->in[t.n_in].fill) t.n_in++;
    return t;
}

static void each_shape(const ops_case *c, void (*visit)(trial *t))
{
    static const operand shapes[] = {
        { DIMS(1) }, { .rank = 0 }, { DIMS(0, 3) }, { DIMS(1, 1, 1) }, { DIMS(1031) },
        { DIMS(2, 1, 3, 1, 2) }, { DIMS(7, 129) },
    };
    for (size_t s = 0; s < SW_COUNT(shapes); s++) {
        trial t = trial_of(c, PLAIN, 1);
        for (int i = 0; i < t.n_in; i++) {
            t.in[i].rank = shapes[s].rank;
            memcpy(t.in[i].dim, shapes[s].dim, sizeof t.in[i].dim);
        }
        visit(&t);
    }
}

/* Every way in which a case is run. visit frees what it is given. */
SW_UNUSED static void each_trial(const ops_case *c, void (*visit)(trial *t))
{
    for (int r = 0; r < ROUTES; r++) {
        trial t = trial_of(c, (route)r, 1);
        if (route_fits(c, &t, (route)r)) visit(&t);
    }
    if (c->flags & ALL_SHAPES) each_shape(c, visit);
    bool differentiable = false;
    for (int i = 0; i < MAX_OPERANDS; i++)
        differentiable = differentiable || (c->in[i].fill && sw__dtype_is_float(c->in[i].type) && !c->in[i].fixed);
    if (!differentiable || (c->flags & (NO_SECOND | NO_DIFFERENCES))) return;
    trial t = trial_of(c, PLAIN, 2);
    visit(&t);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static sw_status set_slot(sw_program *p, const slot *s)
{
    const int at = sw_program_input(p, s->name);
    if (at < 0) return SW_OK; /* the result does not depend on it */
    if (sw__dtype_is_float(s->type)) return sw_program_set(p, at, SW_F64, s->f, s->n);
    return sw_program_set(p, at, SW_I64, s->i, s->n);
}

static sw_status set_slots(sw_program *p, const trial *t)
{
    for (int i = 0; i < t->n_slots; i++) SW_TRY(set_slot(p, &t->slots[i]));
    return SW_OK;
}

static sw_status get_results(sw_program *p, const sw_graph *g, results *out)
{
    for (uint32_t k = 0; k < g->n_outputs && out->n < MAX_RESULTS; k++) {
        result *const r = &out->r[out->n++];
        const int at = sw_program_output(p, g->outputs[k].name);
        sw_var_info info;
        SW_TRY(sw_program_output_info(p, at, &info));
        snprintf(r->name, sizeof r->name, "%s", info.name);
        r->type = info.dtype;
        r->n = info.elements;
        r->f = take(&out->memory, r->n, sizeof *r->f);
        r->i = take(&out->memory, r->n, sizeof *r->i);
        if (sw__dtype_is_float(r->type)) SW_TRY(sw_program_get(p, at, SW_F64, r->f, r->n));
        else SW_TRY(sw_program_get(p, at, SW_I64, r->i, r->n));
    }
    return SW_OK;
}

static void results_free(results *r)
{
    sw__arena_free(&r->memory);
    r->n = 0;
}

/* Compiles, runs once, reads everything. */
static sw_status run_graph(const trial *t, const sw_graph *g, sw_device *d, const sw_compile_options *o, results *out)
{
    sw_program *p = NULL;
    memset(out, 0, sizeof *out);
    SW_TRY(sw_compile(g, d, o, &p));
    sw_status st = set_slots(p, t);
    if (st == SW_OK) st = sw_program_run(p);
    if (st == SW_OK) st = get_results(p, g, out);
    sw_program_free(p);
    return st;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* NaN for NaN, infinity for infinity (which in the narrower type may stand for what is too large for it); otherwise the
 * difference is at most bound times the element, or times the tensor's largest. */
static bool near(double have, double want, double bound, double scale, sw_dtype type)
{
    const double largest = type == SW_F64 ? DBL_MAX : type == SW_F16 ? 65504.0 : (double)FLT_MAX;
    if (isnan(want)) return isnan(have);
    if (fabs(want) > largest / 8) { /* a sum may be too large on the way */
        if (isinf(have)) return (have > 0) == (want > 0);
        return fabs(have - want) <= bound * fabs(want);
    }
    const double tiny = type == SW_F16 ? 0x1p-24 : (double)FLT_MIN;
    return fabs(have - want) <= bound * SW_MAX(fabs(want), scale) + tiny;
}

static double largest_finite(const result *r)
{
    double m = 0;
    for (int64_t e = 0; e < r->n; e++)
        if (isfinite(r->f[e]) && fabs(r->f[e]) <= (double)FLT_MAX) m = SW_MAX(m, fabs(r->f[e]));
    return m;
}

/* ref rounds nothing to the narrow types. */
static double bound_of_type(sw_dtype type, double bound)
{
    return type == SW_F16 ? SW_MAX(bound, 0x1p-10) : type == SW_BF16 ? SW_MAX(bound, 0x1p-7) : bound;
}

static void compare_one(const trial *t, const char *who, const result *have, const result *want, double bound)
{
    bound = bound_of_type(want->type, bound);
    const bool is_float = sw__dtype_is_float(want->type), gradient = want->name[0] == 'g';
    double scale = is_float && (gradient || !(t->c->flags & ELEMENTWISE)) ? largest_finite(want) : 0;
    if (gradient) scale = SW_MAX(scale, 0.1); /* of terms around 1 that cancel */
    if (have->type != want->type || have->n != want->n || strcmp(have->name, want->name) != 0) {
        problem(t, "%s: output %s is %s[%lld], not %s %s[%lld]", who, have->name, sw_dtype_name(have->type),
                (long long)have->n, want->name, sw_dtype_name(want->type), (long long)want->n);
        return;
    }
    for (int64_t e = 0; e < want->n; e++) {
        if (is_float ? near(have->f[e], want->f[e], bound, scale, want->type) : have->i[e] == want->i[e]) continue;
        if (is_float)
            problem(t, "%s: %s[%lld] is %.9g, not %.9g (bound %g of %g)", who, want->name, (long long)e, have->f[e],
                    want->f[e], bound, SW_MAX(scale, fabs(want->f[e])));
        else
            problem(t, "%s: %s[%lld] is %lld, not %lld", who, want->name, (long long)e, (long long)have->i[e],
                    (long long)want->i[e]);
        return; /* one element a tensor says enough */
    }
}

static void compare(const trial *t, const char *who, const results *have, const results *want, double bound)
{
    if (have->n != want->n) {
        problem(t, "%s: %d outputs, not %d", who, have->n, want->n);
        return;
    }
    for (int k = 0; k < want->n; k++) /* the loss is there for its gradients: a sum that may cancel */
        if (strcmp(want->r[k].name, "loss0") != 0) compare_one(t, who, &have->r[k], &want->r[k], bound);
}

/* The graph as sw__pass_simplify leaves it must mean the same, on ref. Constants are folded in their own type. */
SW_UNUSED static void check_simplified(const trial *t, const sw_graph *g, sw_device *on, const results *oracle,
                                       double bound)
{
    sw_graph *simple = NULL;
    results have = { .n = 0 };
    if (sw__pass_simplify(g, &simple) != SW_OK) problem(t, "simplify: %s", sw_error());
    else if (run_graph(t, simple, on, NULL, &have) != SW_OK) problem(t, "simplified, on ref: %s", sw_error());
    else compare(t, "simplified, on ref", &have, oracle, bound);
    results_free(&have);
    sw_graph_free(simple);
}

#endif
