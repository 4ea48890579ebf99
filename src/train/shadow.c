/* shadow.c: a training step once more, node by node, beside another device: the first op that is computed wrongly.
 * Called by fit.c before a step is taken. Every value of the step's graph is computed on the training's device, unfused; then
 * each op by itself on the other one (ref: in double) from the very inputs that it had, so that what differs is that op's own
 * doing and not its inputs'. docs/checks.md has the bounds. */
#include "exec/exec.h"
#include "graph/build.h"
#include "graph/custom.h"
#include "train/trainer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct shadow {
    sw_trainer *t;
    sw_device *beside;
    sw_graph *g;
    sw__batch_program device;   /* every value of g is an output of it */
    uint32_t n_nodes;
    uint32_t loss;
    int *output;                /* [n_nodes] which; -1: none */
    char *message;
    size_t size;
    bool found;
} shadow;

/* ---- how far two results may be apart ---------------------------------------------------------------------------- */

typedef enum closeness {
    SMOOTH, /* 64 eps (|y| + max|y| / 64): functions that are approximated, each element by itself */
    EXACT,  /* nothing is computed: moved, chosen, compared */
    ROUND,  /* 8 eps |y|: one operation that is rounded */
    SUM,    /* (16 + 2 sqrt(K)) eps sum|products|, K: elements of the largest input; the op is linear in each of its inputs */
    NORM,   /* 4096 eps max|y| + 64 eps max|inputs|: several sums and functions in one op */
} closeness;

static const unsigned char bounds[SW_OP_COUNT] = {
    [SW_OP_RANDOM] = EXACT, [SW_OP_NEG] = EXACT, [SW_OP_FLOOR] = EXACT, [SW_OP_CAST] = ROUND, [SW_OP_MAX] = EXACT,
    [SW_OP_MIN] = EXACT, [SW_OP_LT] = EXACT, [SW_OP_EQ] = EXACT, [SW_OP_AND] = EXACT, [SW_OP_OR] = EXACT,
    [SW_OP_XOR] = EXACT, [SW_OP_SHL] = EXACT, [SW_OP_SHR] = EXACT, [SW_OP_WHERE] = EXACT, [SW_OP_RESHAPE] = EXACT,
    [SW_OP_PERMUTE] = EXACT, [SW_OP_EXPAND] = EXACT, [SW_OP_PAD] = EXACT, [SW_OP_SLICE] = EXACT, [SW_OP_CONCAT] = EXACT,
    [SW_OP_COPY] = EXACT, [SW_OP_PACK] = EXACT, [SW_OP_REDUCE_MAX] = EXACT, [SW_OP_REDUCE_MIN] = EXACT,
    [SW_OP_ARGMAX] = EXACT, [SW_OP_ARGMIN] = EXACT, [SW_OP_SORT] = EXACT, [SW_OP_ARGSORT] = EXACT, [SW_OP_GATHER] = EXACT,
    [SW_OP_SCATTER_SET] = EXACT, [SW_OP_SCATTER_MAX] = EXACT, [SW_OP_STOP_GRADIENT] = EXACT, [SW_OP_MAX_POOL] = EXACT,
    [SW_OP_EMBEDDING] = EXACT,
    [SW_OP_ADD] = ROUND, [SW_OP_SUB] = ROUND, [SW_OP_MUL] = ROUND, [SW_OP_DIV] = ROUND, [SW_OP_SQRT] = ROUND,
    [SW_OP_REDUCE_SUM] = SUM, [SW_OP_SCAN_SUM] = SUM, [SW_OP_SCATTER_ADD] = SUM, [SW_OP_DOT] = SUM, [SW_OP_ALL_REDUCE] = SUM,
    [SW_OP_MATMUL] = SUM, [SW_OP_CONV] = SUM, [SW_OP_CONV_GRAD_X] = SUM, [SW_OP_CONV_GRAD_W] = SUM, [SW_OP_AVG_POOL] = SUM,
    [SW_OP_AVG_POOL_GRAD] = SUM, [SW_OP_EMBEDDING_GRAD] = SUM,
    [SW_OP_REDUCE_PROD] = NORM, [SW_OP_MAX_POOL_GRAD] = NORM, [SW_OP_BATCH_NORM] = NORM, [SW_OP_BATCH_NORM_GRAD] = NORM,
    [SW_OP_LAYER_NORM] = NORM, [SW_OP_LAYER_NORM_GRAD] = NORM, [SW_OP_SOFTMAX] = NORM, [SW_OP_LOG_SOFTMAX] = NORM,
    [SW_OP_CROSS_ENTROPY] = NORM, [SW_OP_CUSTOM] = NORM, [SW_OP_CUSTOM_GRAD] = NORM, [SW_OP_OUTPUT] = NORM,
};

/* Big ops that have no row of their own are sums and functions in one. */
static closeness closeness_of(const sw_graph *g, const sw__node *n)
{
    if (n->op == SW_OP_OUTPUT) return closeness_of(g, &g->nodes[n->in[0]]);
    if (bounds[n->op] == SMOOTH && sw__op_table[n->op].cls >= SW_CLASS_CONTRACT) return NORM;
    return (closeness)bounds[n->op];
}

static double epsilon(sw_dtype type)
{
    switch (type) {
    case SW_F64: return 0x1p-52;
    case SW_F16: return 0x1p-11;
    case SW_BF16: return 0x1p-8;
    default: return 0x1p-24;
    }
}

/* ---- values of the training's device ----------------------------------------------------------------------------- */

/* Every value but constants becomes an output, named by its id; nothing is assigned. */
static sw_status expose(shadow *s)
{
    sw_graph *const g = s->g;
    s->n_nodes = g->n_nodes;
    s->output = sw__malloc(s->n_nodes * sizeof *s->output);
    if (!s->output) return sw__no_memory(s->n_nodes * sizeof *s->output, "the shadow's outputs");
    s->loss = sw_graph_output(g, "loss").id;
    g->n_assigns = g->n_outputs = 0;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        char name[24];
        s->output[i] = -1;
        const sw__node *const n = &g->nodes[i];
        if (i == 0 || n->op == SW_OP_CONST || n->op == SW_OP_ASSIGN || sw__node_elements(n) == 0) continue;
        s->output[i] = (int)g->n_outputs;
        snprintf(name, sizeof name, "%u", i);
        sw_output(sw__value(g, i), name);
    }
    return sw_graph_status(g);
}

static sw_status run_device(shadow *s, const void *x, const void *y, int64_t n)
{
    const sw_compile_options o = {.params = s->t->params, .no_simplify = true, .no_fuse = true};
    SW_TRY(sw_compile(s->g, s->t->device, &o, &s->device.program));
    s->device.n = n;
    sw__trainer_places(s->t, &s->device);
    SW_TRY(sw__trainer_set_batch(&s->device, s->t, x, y));
    SW_TRY(sw__trainer_set_scalars(s->t, &s->device));
    return sw_program_run(s->device.program);
}

/* Floats as doubles, others as 64-bit integers. */
static sw_dtype wide(const sw__node *n)
{
    return sw__dtype_is_float((sw_dtype)n->dtype) ? SW_F64 : SW_I64;
}

static sw_status device_value(const shadow *s, uint32_t id, void **out)
{
    const sw__node *const n = &s->g->nodes[id];
    const int64_t count = sw__node_elements(n);
    *out = sw__malloc((size_t)SW_MAX(count, (int64_t)1) * 8);
    if (!*out) return sw__no_memory((size_t)count * 8, "a value of the shadow");
    if (n->op != SW_OP_CONST) return sw_program_get(s->device.program, s->output[id], wide(n), *out, count);
    double rounded = n->attr.constant.value, stored; /* as the device has it: 0.1 in single precision */
    if (wide(n) == SW_F64) {
        sw__convert(&stored, (sw_dtype)n->dtype, &rounded, SW_F64, 1);
        sw__convert(&rounded, SW_F64, &stored, (sw_dtype)n->dtype, 1);
    }
    for (int64_t i = 0; i < count; i++) {
        if (wide(n) == SW_F64) ((double *)*out)[i] = rounded;
        else ((int64_t *)*out)[i] = n->attr.constant.ivalue;
    }
    return SW_OK;
}

/* ---- one op by itself -------------------------------------------------------------------------------------------- */

/* The packed group of a PACK, which takes its places from it. */
static sw_status copy_group(const sw_graph *from, uint32_t group, sw_graph *to)
{
    const sw__group *const k = &from->groups[group];
    sw_t *const vars = sw__malloc(SW_MAX(k->n, 1u) * sizeof *vars);
    uint32_t made = 0;
    if (!vars) return sw__no_memory(k->n * sizeof *vars, "a group of the shadow");
    for (uint32_t i = 0; i < k->n; i++) {
        const sw__var *const v = &from->vars[k->vars[i]];
        vars[i] = sw_variable(to, v->name, v->kind, v->dtype, v->rank, v->dim, (sw_init){0});
    }
    const sw_status st = sw__var_group(to, vars, k->n, &made);
    sw__free(vars);
    return st;
}

/* The operand: an input that is set to the device's value. */
static sw_t operand(const shadow *s, sw_graph *h, uint32_t id)
{
    const sw__node n = s->g->nodes[id];
    char name[24];
    snprintf(name, sizeof name, "%u", id);
    for (uint32_t i = 0; i < h->n_inputs; i++)
        if (strcmp(h->inputs[i].name, name) == 0) return sw__value(h, h->inputs[i].node);
    return sw_input(h, name, (sw_dtype)n.dtype, n.rank, n.dim);
}

static sw_status record_op(const shadow *s, uint32_t id, sw_graph *h)
{
    const sw__node result = s->g->nodes[id];
    const uint32_t of = result.op == SW_OP_OUTPUT ? result.in[0] : id;
    const sw__node n = s->g->nodes[of];
    sw__attr attr = n.attr;
    sw_t *const in = sw__malloc(SW_MAX(n.n_in, 1u) * sizeof *in);
    if (!in) return sw__no_memory(n.n_in * sizeof *in, "the operands of an op");
    sw_status st = SW_OK;
    if (n.op == SW_OP_PACK) {
        st = copy_group(s->g, n.attr.slot.index, h);
        attr.slot.index = 0;
    }
    for (uint32_t i = 0; i < n.n_in; i++) in[i] = operand(s, h, n.in[i]);
    if (st == SW_OK) {
        const sw_t y = sw__node_add(h, (sw__op)n.op, in, n.n_in, &attr, &n);
        sw_output(result.op == SW_OP_OUTPUT ? sw__output_of(y, result.attr.axis.axis) : y, "y");
        st = sw_graph_status(h);
    }
    sw__free(in);
    return st;
}

/* Sets the operands to the device's values, or for a bound to their magnitudes. *most: the largest of them. */
static sw_status set_operands(const shadow *s, const sw_graph *h, sw_program *p, bool magnitudes, double *most)
{
    *most = 0;
    for (uint32_t i = 0; i < h->n_inputs; i++) {
        const uint32_t id = (uint32_t)strtoul(h->inputs[i].name, NULL, 10);
        const sw__node *const n = &s->g->nodes[id];
        const int64_t count = sw__node_elements(n);
        void *value = NULL;
        if (count == 0) continue;
        sw_status st = device_value(s, id, &value);
        double *const v = value;
        for (int64_t k = 0; st == SW_OK && wide(n) == SW_F64 && k < count; k++) {
            *most = fmax(*most, fabs(v[k]));
            if (magnitudes) v[k] = fabs(v[k]);
        }
        if (st == SW_OK) st = sw_program_set(p, (int)i, wide(n), value, count);
        sw__free(value);
        SW_TRY(st);
    }
    return SW_OK;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

typedef struct pair {
    void *here, *there; /* of the training's device, of the other */
    double *sums;       /* SUM: what the same op makes of magnitudes; else NULL */
    double most_in, most; /* largest magnitude of an input, of the result */
    int64_t n, k;       /* elements; of the largest input */
    double eps, tiny;   /* tiny: results that small may be flushed to 0, or have few bits */
} pair;

static double bound_of(closeness c, const pair *p, int64_t i)
{
    const double y = fabs(((const double *)p->there)[i]);
    switch (c) {
    case EXACT: return 0;
    case ROUND: return 8 * p->eps * y + p->tiny;
    case SUM: return (16 + 2 * sqrt((double)p->k)) * p->eps * (p->sums ? p->sums[i] : p->most) + p->tiny;
    case NORM: return 4096 * p->eps * p->most + 64 * p->eps * p->most_in + p->tiny;
    default: return 64 * p->eps * (y + p->most / 64) + p->tiny;
    }
}

static void tell(shadow *s, uint32_t id, int64_t at, const char *here, const char *there, double bound)
{
    const sw__node *const n = &s->g->nodes[id], *const op = n->op == SW_OP_OUTPUT ? &s->g->nodes[n->in[0]] : n;
    char shape[128], limit[64] = "they must be equal";
    const char *own = op->op == SW_OP_CUSTOM || op->op == SW_OP_CUSTOM_GRAD ? op->attr.custom.op->name : "";
    if (op->name && strcmp(own, op->name) == 0) own = "";
    if (bound > 0) snprintf(limit, sizeof limit, "they may differ by %.3g", bound);
    snprintf(s->message, s->size, "op %s%s%s%s%s%s (%%%u %s): element %lld is %s on %s, but %s on %s from the same inputs; %s",
             sw__op_table[op->op].name, *own ? " " : "", own, op->name ? " '" : "", op->name ? op->name : "",
             op->name ? "'" : "", (unsigned)id, sw__shape_text(n, shape, sizeof shape), (long long)at, here,
             sw_device_info(s->t->device)->id, there, sw_device_info(s->beside)->id, limit);
    s->found = true;
}

static void compare(shadow *s, uint32_t id, const pair *p)
{
    const sw__node *const n = &s->g->nodes[id];
    const closeness c = closeness_of(s->g, n);
    char here[32], there[32];
    for (int64_t i = 0; i < p->n; i++) {
        if (wide(n) == SW_I64) {
            const int64_t a = ((const int64_t *)p->here)[i], b = ((const int64_t *)p->there)[i];
            if (a == b) continue;
            snprintf(here, sizeof here, "%lld", (long long)a);
            snprintf(there, sizeof there, "%lld", (long long)b);
            tell(s, id, i, here, there, 0);
            return;
        }
        const double a = ((const double *)p->here)[i], b = ((const double *)p->there)[i], bound = bound_of(c, p, i);
        if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= bound) continue;
        snprintf(here, sizeof here, "%.9g", a);
        snprintf(there, sizeof there, "%.9g", b);
        tell(s, id, i, here, there, bound);
        return;
    }
}

static int64_t largest_operand(const sw_graph *h, const shadow *s)
{
    int64_t most = 1;
    for (uint32_t i = 0; i < h->n_inputs; i++)
        most = SW_MAX(most, sw__node_elements(&s->g->nodes[strtoul(h->inputs[i].name, NULL, 10)]));
    return most;
}

static double epsilon_of(const shadow *s, const sw_graph *h, const sw__node *result)
{
    double eps = epsilon((sw_dtype)result->dtype);
    if (s->t->device->tf32 && closeness_of(s->g, result) == SUM) eps = fmax(eps, 0x1p-11);
    for (uint32_t i = 0; i < h->n_inputs; i++) {
        const sw_dtype type = (sw_dtype)h->nodes[h->inputs[i].node].dtype;
        if (sw__dtype_is_float(type)) eps = fmax(eps, epsilon(type));
    }
    return eps;
}

/* Runs op `id` on the other device: its result, and where the bound needs them the sums of magnitudes. */
static sw_status run_beside(const shadow *s, uint32_t id, const sw_graph *h, sw_program *q, pair *p)
{
    const sw__node *const n = &s->g->nodes[id];
    const bool sums = closeness_of(s->g, n) == SUM && wide(n) == SW_F64;
    double most = 0;
    p->n = sw__node_elements(n);
    p->k = largest_operand(h, s);
    p->eps = epsilon_of(s, h, n);
    p->tiny = p->eps == epsilon(SW_F16) ? 0x1p-23 : 0x1p-125;
    p->there = sw__malloc((size_t)p->n * 8);
    if (sums) p->sums = sw__malloc((size_t)p->n * 8);
    if (!p->there || (sums && !p->sums)) return sw__no_memory((size_t)p->n * 8, "a value of the shadow");
    if (sums) {
        SW_TRY(set_operands(s, h, q, true, &most));
        SW_TRY(sw_program_run(q));
        SW_TRY(sw_program_get(q, 0, SW_F64, p->sums, p->n));
        for (int64_t i = 0; i < p->n; i++) p->sums[i] = fabs(p->sums[i]);
    }
    SW_TRY(set_operands(s, h, q, false, &p->most_in));
    SW_TRY(sw_program_run(q));
    SW_TRY(sw_program_get(q, 0, wide(n), p->there, p->n));
    for (int64_t i = 0; wide(n) == SW_F64 && i < p->n; i++)
        if (isfinite(((double *)p->there)[i])) p->most = fmax(p->most, fabs(((double *)p->there)[i]));
    return SW_OK;
}

static sw_status check_op(shadow *s, uint32_t id)
{
    sw_graph *h = NULL;
    sw_program *q = NULL;
    pair p = {0};
    SW_TRY(sw_graph_new(&h));
    sw_status st = record_op(s, id, h);
    if (st == SW_OK) st = sw_compile(h, s->beside, &(sw_compile_options){.no_simplify = true}, &q);
    if (st == SW_OK) st = run_beside(s, id, h, q, &p);
    if (st == SW_OK) st = device_value(s, id, &p.here);
    if (st == SW_OK) compare(s, id, &p);
    sw_program_free(q);
    sw_graph_free(h);
    sw__free(p.here);
    sw__free(p.there);
    sw__free(p.sums);
    return st;
}

/* What is given, not computed: inputs and variables. */
static bool is_given(const sw__node *n)
{
    return n->op == SW_OP_INPUT || n->op == SW_OP_VAR || n->op == SW_OP_VARPACK || n->op == SW_OP_LITERAL;
}

sw_status sw__shadow(sw_trainer *t, sw_device *beside, const void *x, const void *y, int64_t n, double *loss, char *message,
                     size_t size)
{
    shadow s = {.t = t, .beside = beside, .message = message, .size = size};
    *message = 0;
    SW_TRY(sw__trainer_graph(t, SW__TRAIN, n, &s.g));
    sw_status st = expose(&s);
    if (st == SW_OK) st = run_device(&s, x, y, n);
    if (st == SW_OK) st = sw_program_get(s.device.program, s.output[s.loss], SW_F64, loss, 1);
    for (uint32_t id = 1; st == SW_OK && id < s.n_nodes && !s.found; id++)
        if (s.output[id] >= 0 && !is_given(&s.g->nodes[id])) st = check_op(&s, id);
    sw_program_free(s.device.program);
    sw_graph_free(s.g);
    sw__free(s.output);
    return st;
}
