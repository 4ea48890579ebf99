/* test_pass_random.c: random graphs through all passes for devices of many kinds (traits), run by sim.h, against ref.
 * What is wrong in fusion, order, in-place writes or the memory plan gives other numbers or NaN. SWOOP_TEST_SEED=n runs
 * one. */
#include "sim.h"

#include "swoop/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define GRAPHS 400
#define MAX_VALUES 64

typedef struct maker {
    sw__rng rng;
    sw_graph *g;
    sw_t v[MAX_VALUES];
    int n;
} maker;

static int64_t below(maker *m, int64_t n) { return (int64_t)sw__rng_below(&m->rng, (uint64_t)n); }
static sw_t pick(maker *m) { return m->v[below(m, m->n)]; }
static sw_t tame(sw_t x) { return sw_tanh(sw_mul_scalar(x, 0.7)); }

/* ---- kinds of nodes: an invalid value without error if it does not apply ----------------------------------------- */

static sw_t unary(maker *m)
{
    const sw_t x = pick(m);
    switch (below(m, 8)) {
    case 0: return sw_neg(x);
    case 1: return sw_exp(tame(x));
    case 2: return sw_tanh(x);
    case 3: return sw_relu(x);
    case 4: return sw_sqrt(sw_add_scalar(sw_square(x), 0.5));
    case 5: return sw_sigmoid(x);
    case 6: return sw_div(x, sw_const(m->g, sw_type(x), 4));
    default: return sw_sub(x, sw_const(m->g, sw_type(x), 0.25));
    }
}

static sw_t partner(maker *m, sw_t x)
{
    for (int tries = 0; tries < 8; tries++) {
        const sw_t y = pick(m);
        bool fits = sw_rank(y) <= sw_rank(x);
        for (int i = 1; fits && i <= sw_rank(y); i++) fits = sw_dim(y, -i) == sw_dim(x, -i) || sw_dim(y, -i) == 1;
        if (fits) return y;
    }
    return sw_rank(x) ? sw_mean(x, SW_AXIS(below(m, sw_rank(x))), true) : x;
}

static sw_t binary(maker *m)
{
    const sw_t x = pick(m), y = partner(m, x);
    switch (below(m, 6)) {
    case 0: return sw_add(x, y);
    case 1: return sw_sub(x, y);
    case 2: return sw_mul(tame(x), y);
    case 3: return sw_max(x, y);
    case 4: return sw_where(sw_lt(x, y), x, sw_mul_scalar(y, 0.5));
    default: return sw_div(x, sw_add_scalar(sw_square(y), 1));
    }
}

static sw_t movement(maker *m)
{
    const sw_t x = pick(m);
    const int rank = sw_rank(x);
    int axes[SW_MAX_RANK];
    int64_t a[SW_MAX_RANK], b[SW_MAX_RANK], c[SW_MAX_RANK];
    if (rank == 0) return SW_NONE;
    for (int i = 0; i < rank; i++) {
        axes[i] = i;
        a[i] = below(m, 2);
        b[i] = below(m, 3);
        c[i] = below(m, 4) == 0;
    }
    switch (below(m, 7)) {
    case 0:
        for (int i = rank - 1; i > 0; i--) {
            const int j = (int)below(m, i + 1), t = axes[i];
            axes[i] = axes[j];
            axes[j] = t;
        }
        return sw_permute(x, axes);
    case 1: return sw_elements(x) < 3000 ? sw_pad(x, a, b, below(m, 2) ? c : NULL, below(m, 2) ? 0 : 0.5) : SW_NONE;
    case 2:
        for (int i = 0; i < rank; i++) {
            a[i] = below(m, SW_MAX(sw_dim(x, i), 1));
            b[i] = a[i] + below(m, sw_dim(x, i) - a[i] + 1);
            if (b[i] == a[i] && sw_dim(x, i) > a[i]) b[i]++;
            c[i] = 1 + below(m, 2);
        }
        return sw_slice(x, a, b, c);
    case 3: {
        const int64_t flat[2] = {sw_dim(x, 0), -1};
        return sw_dim(x, 0) ? sw_reshape(x, 2, flat) : SW_NONE;
    }
    case 4: {
        int64_t shape[SW_MAX_RANK];
        if (rank > 5 || sw_elements(x) > 2000) return SW_NONE;
        for (int i = 0; i < rank; i++) shape[i + 1] = sw_dim(x, i);
        shape[0] = 1 + below(m, 3);
        return sw_expand(x, rank + 1, shape);
    }
    case 5: {
        const int axis = (int)below(m, rank);
        const sw_t parts[3] = {x, sw_mul_scalar(x, 2), x};
        return sw_elements(x) < 2000 ? sw_concat(parts, 2 + (int)below(m, 2), axis) : SW_NONE;
    }
    default: {
        int64_t shape[SW_MAX_RANK + 1];
        const int at = (int)below(m, rank + 1);
        if (rank > 5) return SW_NONE;
        for (int i = 0; i <= rank; i++) shape[i] = i < at ? sw_dim(x, i) : i == at ? 1 : sw_dim(x, i - 1);
        return sw_reshape(x, rank + 1, shape);
    }
    }
}

static sw_t reduction(maker *m)
{
    const sw_t x = pick(m);
    const int rank = sw_rank(x);
    if (rank == 0) return SW_NONE;
    const uint32_t axes = (uint32_t)(1 + below(m, (1 << rank) - 1));
    for (int i = 0; i < rank; i++)
        if (sw_dim(x, i) == 0) return SW_NONE;
    switch (below(m, 5)) {
    case 0: return sw_reduce_max(x, axes, below(m, 2));
    case 1: return sw_sum(tame(x), axes, below(m, 2));
    case 2: return sw_sub(x, sw_mean(x, axes, true));
    case 3: return sw_softmax(x, (int)below(m, rank));
    default: return sw_mean(sw_square(x), axes, below(m, 2));
    }
}

static sw_t big(maker *m)
{
    const sw_t x = pick(m);
    const int rank = sw_rank(x);
    int64_t square[2], filter[4], vector[1];
    sw_init init = {SW_INIT_UNIFORM, -0.5, 0.5, 0};
    char name[24];
    snprintf(name, sizeof name, "w%d", m->n);
    if (rank < 2 || sw_elements(x) == 0) return SW_NONE;
    square[0] = 1 + below(m, 4);
    square[1] = sw_dim(x, -1);
    vector[0] = square[0];
    switch (below(m, 6)) {
    case 0: {
        const sw_t w = sw_param(m->g, name, 2, square, init);
        snprintf(name, sizeof name, "b%d", m->n);
        return sw_linear_op(tame(x), w, below(m, 2) ? sw_param(m->g, name, 1, vector, init) : SW_NONE);
    }
    case 1: {
        const sw_conv_options o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}, .stride = {1 + below(m, 2), 1}};
        if (rank != 4) return SW_NONE;
        filter[0] = 1 + below(m, 3);
        filter[1] = sw_dim(x, 1);
        filter[2] = filter[3] = 2;
        const sw_t y = sw_conv_op(tame(x), sw_param(m->g, name, 4, filter, init), SW_NONE, &o);
        return below(m, 2) ? sw_relu(y) : y;
    }
    case 2: {
        const sw_pool_options o = {.kernel = {2, 2}, .stride = {1, 2}, .pad_lo = {1, 0}, .count_include_pad = true};
        if (rank != 4 || sw_dim(x, 2) < 2 || sw_dim(x, 3) < 2) return SW_NONE;
        return below(m, 2) ? sw_max_pool_op(x, &o) : sw_avg_pool_op(x, &o);
    }
    case 3: return sw_layer_norm_op(x, SW_NONE, SW_NONE, 1, 1e-2);
    case 4: {
        vector[0] = sw_dim(x, 1);
        const sw_t w = sw_param(m->g, name, 1, vector, init);
        snprintf(name, sizeof name, "b%d", m->n);
        return sw_batch_norm_op(x, w, sw_param(m->g, name, 1, vector, init), 1e-2, NULL, NULL);
    }
    default: return sw_cumsum(tame(x), (int)below(m, rank), below(m, 2));
    }
}

static sw_t indexed(maker *m)
{
    const sw_t x = pick(m);
    const int rank = sw_rank(x);
    int64_t shape[SW_MAX_RANK];
    if (rank == 0 || sw_elements(x) == 0) return SW_NONE;
    const int axis = (int)below(m, rank);
    for (int i = 0; i < rank; i++) shape[i] = i == axis ? 1 + below(m, 4) : sw_dim(x, i);
    sw_t i = sw_iota(m->g, SW_I64, rank, shape, (int)below(m, rank));
    i = sw_mod(sw_mul_scalar(i, 3), sw_full(m->g, SW_I64, rank, shape, (double)sw_dim(x, axis)));
    if (below(m, 3) == 0) {
        for (int k = 0; k < rank; k++) shape[k] = sw_dim(x, k);
        return sw_mul(x, sw_rand(m->g, SW_NONE, (uint32_t)m->n, rank, shape));
    }
    return sw_gather(x, i, axis);
}

static void add_value(maker *m)
{
    sw_t (*const kinds[])(maker *) = {unary, unary, binary, binary, binary, movement, movement, reduction, big,
                                      indexed};
    const sw_t t = kinds[below(m, SW_COUNT(kinds))](m);
    if (sw_valid(t) && sw_rank(t) <= 6 && sw_elements(t) <= 5000 && m->n < MAX_VALUES) m->v[m->n++] = t;
}

/* Variables that are updated from themselves, from each other and from what was computed. */
static void add_assigns(maker *m)
{
    const int64_t shape[2] = {3, 4};
    const sw_init init = {SW_INIT_UNIFORM, -1, 1, 0};
    sw_t s[3];
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        s[i] = sw_variable(m->g, name, SW_VAR_STATE, SW_F32, 2, shape, init);
    }
    const sw_t x = sw_mean(sw_reshape(pick(m), 1, (const int64_t[]){-1}), SW_ALL_AXES, false);
    sw_assign(s[0], below(m, 2) ? sw_add(sw_mul_scalar(s[0], 0.9), x) : s[1]);
    if (below(m, 2)) sw_assign(s[1], below(m, 2) ? sw_mul(s[0], s[2]) : s[0]);
    const sw_t turned = sw_transpose(sw_reshape(s[1], 2, (const int64_t[]){4, 3}), 0, 1);
    if (below(m, 2)) sw_assign(s[2], sw_sub(s[2], below(m, 2) ? s[0] : turned));
    if (below(m, 2)) sw_output(sw_add(s[0], s[1]), "old state");
}

/* A packed group of parameters with gradients and an update over all of it. */
static void add_training(maker *m)
{
    sw_t p[32], d[32];
    uint32_t group;
    const int n = sw_graph_variables(m->g, SW_VAR_PARAM, p, 32);
    if (n == 0 || n > 32) return;
    const sw_t y = sw_mul_scalar(sw_mean(tame(m->v[m->n - 1]), SW_ALL_AXES, false), 3);
    if (sw_elements(m->v[m->n - 1]) == 0 || sw_grad(y, p, n, d) != SW_OK) return;
    if (sw__var_group(m->g, p, (uint32_t)n, &group) != SW_OK) return;
    const sw_t all = sw__varpack(m->g, group);
    sw_assign(all, sw_sub(all, sw_mul_scalar(sw__pack(m->g, group, d), 0.1)));
    sw_output(y, "loss");
}

static sw_graph *make_graph(uint64_t seed)
{
    maker m = {.n = 0};
    const int64_t sizes[] = {1, 2, 3, 4, 5, 7};
    char name[16];
    sw__rng_init(&m.rng, seed, 7);
    if (sw_graph_new(&m.g) != SW_OK) return NULL;
    for (int i = 0; i < 3; i++) {
        int64_t shape[4];
        const int rank = i == 0 ? 4 : 1 + (int)below(&m, 4);
        for (int x = 0; x < rank; x++) shape[x] = below(&m, 40) ? sizes[below(&m, 6)] : 0;
        snprintf(name, sizeof name, "x%d", i);
        m.v[m.n++] = sw_input(m.g, name, SW_F32, rank, shape);
    }
    const int wanted = 6 + (int)below(&m, 40);
    for (int tries = 0; tries < 200 && m.n < wanted; tries++) add_value(&m);
    if (below(&m, 2)) add_assigns(&m);
    if (below(&m, 2)) add_training(&m);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "y%d", i);
        sw_output(m.v[i ? below(&m, m.n) : m.n - 1], name);
    }
    return m.g;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static bool moody(void *ctx, const sw__op_desc *d, int i)
{
    (void)ctx;
    return (d->in[i].stride[0] + i) % 3 == 0;
}

static bool strict(void *ctx, const sw__op_desc *d, int i)
{
    (void)ctx, (void)d, (void)i;
    return false;
}

typedef struct device { const char *name; bool simplify, no_fuse, images, whole, lazy; int buffers, insts; } device;

static const device devices[] = {
    {"usual", .simplify = true, .images = true, .whole = true},
    {"not simplified", .images = true, .whole = true, .lazy = true},
    {"not fused", .simplify = true, .no_fuse = true, .whole = true},
    {"few buffers", .simplify = true, .images = true, .buffers = 5, .insts = 64},
    {"all lowered", .simplify = true, .lazy = true},
    {"short kernels", .buffers = 8, .insts = 48, .whole = true},
};

static sw__traits traits_of(const device *d)
{
    sw__traits t = {.fuse = true, .views = true, .float_storage = SW_F64, .alignment = 64, .compute_units = 2,
                    .max_buffers = d->buffers, .max_insts = d->insts};
    for (int op = 0; op < SW_OP_COUNT; op++) {
        const uint8_t c = sw__op_table[op].cls;
        t.takes[op] = c == SW_CLASS_ORDER || (op >= SW_OP_SCATTER_ADD && op <= SW_OP_SCATTER_MAX);
    }
    t.takes[SW_OP_DOT] = true;
    const int whole[] = {SW_OP_MATMUL, SW_OP_CONV, SW_OP_CONV_GRAD_X, SW_OP_CONV_GRAD_W, SW_OP_MAX_POOL,
                         SW_OP_MAX_POOL_GRAD, SW_OP_AVG_POOL, SW_OP_AVG_POOL_GRAD, SW_OP_BATCH_NORM};
    for (size_t i = 0; i < SW_COUNT(whole); i++) {
        t.takes[whole[i]] = d->whole;
        t.channels_last[whole[i]] = d->images;
    }
    t.bias_act[SW_OP_MATMUL] = t.bias_act[SW_OP_CONV] = true;
    return t;
}

typedef sw_status (*pass_function)(const sw_graph *, const sw__traits *, sw_graph **);

static sw_status run_pass(sw_graph **g, pass_function pass, const sw__traits *t)
{
    sw_graph *next = NULL;
    const sw_status st = pass(*g, t, &next);
    if (st != SW_OK) return st;
    sw_graph_free(*g);
    *g = next;
    return SW_OK;
}

static sw_status simplify(const sw_graph *g, const sw__traits *t, sw_graph **out)
{
    (void)t;
    return sw__pass_simplify(g, out);
}

static sw_status schedule_for(const sw_graph *g, const device *d, const sw__traits *t, sw_graph **passed,
                              sw__schedule **s)
{
    SW_TRY(d->simplify ? sw__pass_simplify(g, passed) : sw__pass_lower(g, t, passed));
    SW_TRY(run_pass(passed, sw__pass_lower, t));
    if (d->simplify) SW_TRY(run_pass(passed, simplify, t));
    if (d->simplify) SW_TRY(run_pass(passed, sw__pass_epilogue, t));
    SW_TRY(run_pass(passed, sw__pass_layout, t));
    const sw__asks a = {.op_accepts = d->lazy ? moody : strict, .no_fuse = d->no_fuse};
    SW_TRY(sw__schedule_build(*passed, t, &a, s));
    for (uint32_t i = 0; i < (*s)->n_steps; i += 3) SW_TRY(sw__schedule_workspace(*s, i, 100 * (size_t)i + 1, t));
    return sw__plan_memory(*s, t);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

typedef struct oracle {
    sw_device *dev;
    sw_params *params;
    sw_program *program;
    double **output, **before, **after;
} oracle;

static int problems;

static double *filled(int64_t n, uint64_t seed)
{
    sw__rng r;
    double *x = sim_alloc((size_t)n, sizeof *x);
    sw__rng_init(&r, seed, 3);
    for (int64_t i = 0; i < n; i++) x[i] = sw__rng_normal(&r);
    return x;
}

static sw_status oracle_run(oracle *o, const sw_graph *g, uint64_t seed)
{
    SW_TRY(sw_device_open("ref", NULL, &o->dev));
    SW_TRY(sw_params_new(o->dev, g, seed, &o->params));
    o->output = sim_alloc(g->n_outputs, sizeof *o->output);
    o->before = sim_alloc(g->n_vars, sizeof *o->before);
    o->after = sim_alloc(g->n_vars, sizeof *o->after);
    SW_TRY(sw_compile(g, o->dev, &(sw_compile_options){.params = o->params}, &o->program));
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const int64_t n = sw__node_elements(&g->nodes[g->inputs[i].node]);
        double *x = filled(n, seed + i);
        const sw_status st = sw_program_set(o->program, (int)i, SW_F64, x, n);
        free(x);
        SW_TRY(st);
    }
    for (uint32_t i = 0; i < g->n_vars; i++) {
        const int64_t n = sw__dims_product(g->vars[i].dim, g->vars[i].rank);
        o->before[i] = sim_alloc((size_t)n, sizeof(double));
        o->after[i] = sim_alloc((size_t)n, sizeof(double));
        SW_TRY(sw_params_get(o->params, sw_params_find(o->params, g->vars[i].name), SW_F64, o->before[i], n));
    }
    SW_TRY(sw_program_run(o->program));
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const int64_t n = sw__node_elements(&g->nodes[g->outputs[i].node]);
        o->output[i] = sim_alloc((size_t)n, sizeof(double));
        SW_TRY(sw_program_get(o->program, (int)i, SW_F64, o->output[i], n));
    }
    for (uint32_t i = 0; i < g->n_vars; i++)
        SW_TRY(sw_params_get(o->params, sw_params_find(o->params, g->vars[i].name), SW_F64, o->after[i],
                             sw__dims_product(g->vars[i].dim, g->vars[i].rank)));
    return SW_OK;
}

static void oracle_free(oracle *o, const sw_graph *g)
{
    for (uint32_t i = 0; o->output && i < g->n_outputs; i++) free(o->output[i]);
    for (uint32_t i = 0; o->before && i < g->n_vars; i++) free(o->before[i]), free(o->after[i]);
    free(o->output);
    free(o->before);
    free(o->after);
    sw_program_free(o->program);
    sw_params_free(o->params);
    sw_device_close(o->dev);
}

static void compare(uint64_t seed, const char *device_name, const char *what, const double *want,
                    const unsigned char *got, int64_t n)
{
    double scale = 0;
    for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        const double x = sim_get(got, SW_F64, i).value;
        /* constants were folded in f32 */
        if (fabs(x - want[i]) <= 1e-5 * (scale + 1) || (isnan(x) && isnan(want[i]))) continue;
        fprintf(stderr, "  seed %llu, %s: %s[%lld] is %.9g, not %.9g\n", (unsigned long long)seed, device_name, what,
                (long long)i, x, want[i]);
        problems++;
        return;
    }
}

static void check_device(uint64_t seed, const sw_graph *g, const oracle *o, const device *d)
{
    const sw__traits t = traits_of(d);
    sw_graph *passed = NULL;
    sw__schedule *s = NULL;
    sim m;
    uint32_t a, b;
    sw_status st = schedule_for(g, d, &t, &passed, &s);
    if (st != SW_OK) {
        fprintf(stderr, "  seed %llu, %s: %s\n", (unsigned long long)seed, d->name, sw_error());
        problems++;
        sw__schedule_free(s);
        sw_graph_free(passed);
        return;
    }
    if (sw__dump_wanted("fuse") || sw__dump_wanted("schedule")) {
        fprintf(stderr, "---- %s\n", d->name);
        sw__dump_graph("layout", "after", passed);
        sw__dump_schedule(s);
    }
    if (!sw__plan_check(s, &a, &b)) {
        fprintf(stderr, "  seed %llu, %s: storages %u and %u overlap\n", (unsigned long long)seed, d->name, a, b);
        problems++;
    }
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const sw__step *k = &s->steps[i];
        if (k->kind != SW_STEP_KERNEL || k->copy) continue;
        const bool few = !d->buffers || k->n_in + k->n_out <= d->buffers;
        if (few && (!d->insts || k->kernel->n_insts <= d->insts)) continue;
        fprintf(stderr, "  seed %llu, %s: kernel '%s' is too large\n", (unsigned long long)seed, d->name, k->name);
        problems++;
    }
    sim_init(&m, passed, s);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const int64_t n = sw__node_elements(&g->nodes[g->inputs[i].node]);
        double *x = filled(n, seed + i);
        sim_fill(m.input[i], x, n);
        free(x);
    }
    for (uint32_t i = 0; i < g->n_vars; i++)
        sim_fill(m.var[i], o->before[i], sw__dims_product(g->vars[i].dim, g->vars[i].rank));
    st = sim_run(&m);
    if (st != SW_OK) {
        fprintf(stderr, "  seed %llu, %s: %s\n", (unsigned long long)seed, d->name, sw_error());
        problems++;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++)
        compare(seed, d->name, g->outputs[i].name, o->output[i],
                sim_base(&m, s->outputs[i].storage) + s->outputs[i].offset * 8,
                sw__node_elements(&g->nodes[g->outputs[i].node]));
    for (uint32_t i = 0; i < g->n_vars; i++)
        compare(seed, d->name, g->vars[i].name, o->after[i], m.var[i],
                sw__dims_product(g->vars[i].dim, g->vars[i].rank));
    for (uint32_t i = 0; i < g->n_groups; i++) /* gaps stay finite */
        for (int64_t e = 0; e < g->groups[i].elements; e++)
            if (!isfinite(sim_get(m.group[i], SW_F64, e).value)) {
                fprintf(stderr, "  seed %llu, %s: element %lld of group %u is not finite\n", (unsigned long long)seed,
                        d->name, (long long)e, i);
                problems++;
                break;
            }
    sim_free(&m);
    sw__schedule_free(s);
    sw_graph_free(passed);
}

static void check_seed(uint64_t seed)
{
    sw_graph *g = make_graph(seed);
    oracle o = {0};
    assert_non_null(g);
    if (sw_graph_status(g) != SW_OK || oracle_run(&o, g, seed) != SW_OK) {
        fprintf(stderr, "  seed %llu: %s\n", (unsigned long long)seed, sw_error());
        problems++;
    } else {
        for (size_t i = 0; i < SW_COUNT(devices); i++) check_device(seed, g, &o, &devices[i]);
    }
    oracle_free(&o, g);
    sw_graph_free(g);
}

static void test_graphs(void **state)
{
    const char *one = getenv("SWOOP_TEST_SEED");
    (void)state;
    problems = 0;
    if (one) check_seed(strtoull(one, NULL, 10));
    else
        for (uint64_t seed = 1; seed <= GRAPHS && problems < 20; seed++) check_seed(seed);
    if (problems) fail_msg("%d problems, printed above (SWOOP_TEST_SEED=n runs one)", problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
