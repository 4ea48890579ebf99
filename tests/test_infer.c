/* test_infer.c: programs that assign nothing: batch norm folded into weights, weights packed once, all that done again when a
 * variable is written. Against ref in double precision, which folds and packs nothing, at every level of vector code. */
#include "exec/exec.h"
#include "swoop/swoop.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint32_t seed = 1;

static float random_value(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)((double)(seed >> 8) / 8388608.0 - 1.0);
}

/* ---- networks ---------------------------------------------------------------------------------------------------- */

/* Two biases and a factor behind one convolution, a residual, few and many channels, 3x3, 1x1 and stride 2. */
static sw_t residual(sw_t x)
{
    sw_t h = sw_relu(sw_batch_norm(sw_conv2d(x, 8, .kernel = 3, .pad = 1, .name = "conv1"), .name = "bn1"));
    sw_t y = sw_relu(sw_batch_norm(sw_conv2d(h, 16, .kernel = 3, .stride = 2, .pad = 1, .no_bias = true), .name = "bn2"));
    y = sw_batch_norm(sw_conv2d(y, 16, .kernel = 3, .pad = 1, .no_bias = true, .name = "conv3"), .name = "bn3");
    y = sw_add(y, sw_batch_norm(sw_conv2d(h, 16, .kernel = 1, .stride = 2, .name = "down"), .name = "bn4"));
    return sw_linear(sw_mean(sw_relu(y), SW_AXIS(2) | SW_AXIS(3), false), 5, .name = "fc");
}

/* So few pixels that a convolution is a product of columns: with a border, a stride, a dilation, without a bias. */
static sw_t narrow(sw_t x)
{
    sw_t h = sw_relu(sw_conv2d(x, 64, .kernel = 1, .name = "wide"));
    h = sw_relu(sw_batch_norm(sw_conv2d(h, 80, .kernel = 3, .pad = 1, .name = "conv1"), .name = "bn1"));
    h = sw_conv2d(h, 64, .kernel = 3, .pad = 2, .dilation = 2, .no_bias = true, .name = "conv2");
    return sw_conv2d(h, 64, .kernel = 2, .stride = 2, .name = "conv3");
}

static sw_t grouped(sw_t x)
{
    sw_t h = sw_batch_norm(sw_conv2d(x, 12, .kernel = 3, .groups = 2, .no_bias = true, .name = "conv1"), .name = "bn1");
    h = sw_relu(sw_batch_norm(sw_conv2d(h, 12, .kernel = 3, .groups = 12, .name = "conv2"), .name = "bn2"));
    return sw_batch_norm(sw_linear(sw_flatten(h), 7, .name = "fc"), .name = "bn3");
}

static sw_t layers(sw_t x)
{
    sw_t h = sw_relu(sw_linear(x, 130, .name = "fc1"));
    h = sw_relu(sw_batch_norm(sw_linear(h, 65, .no_bias = true, .name = "fc2"), .name = "bn"));
    return sw_linear(h, 3, .name = "fc3");
}

static sw_t one_output(sw_t x) { return sw_linear(x, 1, .name = "fc"); }

static sw_t recurrent(sw_t x) { return sw_model_build("lstm:8,16", x, 5); }

/* Both directions, samples of several lengths, all cells; units that no vector divides. */
static sw_t cells(sw_t x)
{
    int64_t lengths[33];
    const int64_t batch = sw_dim(x, 0);
    for (int64_t b = 0; b < batch; b++) lengths[b] = 4 - b % 5;
    const sw_t steps = sw_literal(x.graph, SW_I64, 1, &batch, lengths);
    sw_t h = sw_gru(x, 40, .bidirectional = true, .lengths = steps, .name = "gru");
    h = sw_lstm(h, 51, .bidirectional = true, .lengths = steps, .name = "lstm");
    return sw_rnn(h, 8, .name = "rnn");
}

static sw_t transformer(sw_t x) { return sw_model_build("gpt:1x2x16", x, 5); }

typedef struct network {
    const char *name;
    sw_t (*build)(sw_t x);
    int rank;
    int64_t shape[3]; /* of a sample */
    bool tokens;
    int main;         /* launches of a run that remain; 0: not asserted */
} network;

static const network networks[] = {
    {"residual", residual, 3, {3, 10, 9}, false, 6}, {"narrow", narrow, 3, {6, 4, 4}, false, 5},
    {"grouped", grouped, 3, {4, 7, 7}, false, 0},    {"layers", layers, 1, {50}, false, 3},
    {"one output", one_output, 1, {33}, false, 1},   {"recurrent", recurrent, 1, {6}, true, 0},
    {"cells", cells, 2, {5, 3}, false, 0},
    {"transformer", transformer, 1, {6}, true, 0},
};

/* ---- running ----------------------------------------------------------------------------------------------------- */

#define BATCHES 3
static const int64_t batches[BATCHES] = {1, 3, 18};

typedef struct run {
    sw_device *device;
    sw_graph *graph;
    sw_program *program;
    float *x;
    int64_t *tokens, n_x, n_y;
} run;

static sw_graph *record(const network *n, int64_t batch)
{
    sw_graph *g = NULL;
    int64_t shape[4] = {batch};
    for (int i = 0; i < n->rank; i++) shape[i + 1] = n->shape[i];
    assert_int_equal(sw_graph_new(&g), SW_OK);
    sw_graph_set_training(g, false);
    const sw_t x = sw_input(g, "x", n->tokens ? SW_I64 : SW_F32, n->rank + 1, shape);
    sw_output(n->build(x), "y");
    assert_int_equal(sw_graph_status(g), SW_OK);
    return g;
}

static run open_run(const network *n, int64_t batch, const char *device, int threads, sw_compile_options o)
{
    run r = {.graph = record(n, batch)};
    assert_int_equal(sw_device_open(device, &(sw_device_options){.threads = threads}, &r.device), SW_OK);
    if (sw_compile(r.graph, r.device, &o, &r.program) != SW_OK) fail_msg("%s: %s", n->name, sw_error());
    r.n_x = batch;
    for (int i = 0; i < n->rank; i++) r.n_x *= n->shape[i];
    sw_var_info y;
    assert_int_equal(sw_program_output_info(r.program, 0, &y), SW_OK);
    r.n_y = y.elements;
    return r;
}

static void close_run(run *r)
{
    sw_program_free(r->program);
    sw_graph_free(r->graph);
    sw_device_close(r->device);
}

static void set_inputs(const network *n, run *const *runs, int n_runs)
{
    float *x = calloc((size_t)runs[0]->n_x, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < runs[0]->n_x; i++) x[i] = n->tokens ? (float)(i * 7 % 5) : random_value();
    for (int k = 0; k < n_runs; k++)
        assert_int_equal(sw_program_set(runs[k]->program, 0, SW_F32, x, runs[k]->n_x), SW_OK);
    free(x);
}

/* One variable anew, the same for all: a variance is positive. */
static void set_variable(run *const *runs, int n_runs, int i)
{
    sw_var_info v;
    assert_int_equal(sw_params_info(runs[0]->program->params, i, &v), SW_OK);
    float *values = calloc((size_t)v.elements + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t k = 0; k < v.elements; k++) values[k] = strstr(v.name, "_var") ? 0.6f + 0.5f * random_value() : 0.5f * random_value();
    for (int k = 0; k < n_runs; k++) {
        const int at = sw_params_find(runs[k]->program->params, v.name);
        assert_int_equal(sw_params_set(runs[k]->program->params, at, SW_F32, values, v.elements), SW_OK);
    }
    free(values);
}

static void set_variables(run *const *runs, int n_runs)
{
    for (int i = 0; i < sw_params_count(runs[0]->program->params); i++) set_variable(runs, n_runs, i);
}

static double *result(run *r)
{
    double *y = calloc((size_t)r->n_y + 1, sizeof *y);
    assert_non_null(y);
    if (sw_program_run(r->program) != SW_OK) fail_msg("%s", sw_error());
    assert_int_equal(sw_program_get(r->program, 0, SW_F64, y, r->n_y), SW_OK);
    return y;
}

/* Within 1e-5 of the largest value. */
static void compare(const char *what, run *r, run *oracle)
{
    double *a = result(r), *b = result(oracle), most = 0, off = 0;
    for (int64_t i = 0; i < r->n_y; i++) {
        most = fmax(most, fabs(b[i]));
        off = fmax(off, fabs(a[i] - b[i]));
    }
    if (!(off <= 1e-5 * most) || !(most > 0)) fail_msg("%s: off by %g of %g", what, off, most);
    free(a);
    free(b);
}

static const char *const levels[] = {"base", "avx2", "avx512"};

static void check_network(const network *n, int64_t batch, int threads)
{
    run ref = open_run(n, batch, "ref", 1, (sw_compile_options){0});
    run kept = open_run(n, batch, "cpu", threads, (sw_compile_options){0});
    run plain = open_run(n, batch, "cpu", threads, (sw_compile_options){.no_keep = true});
    run *const all[] = {&ref, &kept, &plain};
    set_variables(all, 3);
    set_inputs(n, all, 3);
    compare(n->name, &kept, &ref);
    compare(n->name, &plain, &ref);
    set_inputs(n, all, 3);
    compare("other inputs", &kept, &ref);
    for (int i = 0; i < sw_params_count(ref.program->params); i += 3) {
        set_variable(all, 3, i);
        compare("another variable", &kept, &ref);
    }
    assert_int_equal(plain.program->n_once, 0);
    assert_int_equal(sw_program_plan(plain.program)->kept, 0);
    if (n->main && batch == 1) assert_int_equal(kept.program->n_launches - kept.program->n_once, n->main);
    for (int i = 0; i < 3; i++) close_run(all[i]);
}

static void test_networks(void **state)
{
    (void)state;
    for (size_t l = 0; l < SW_COUNT(levels); l++) {
        setenv("SWOOP_SIMD", levels[l], 1);
        for (size_t i = 0; i < SW_COUNT(networks); i++)
            for (int b = 0; b < BATCHES; b++) check_network(&networks[i], batches[b], (b + (int)l) % 2 + 1);
    }
    unsetenv("SWOOP_SIMD");
}

/* ---- when it is done again --------------------------------------------------------------------------------------- */

static double once_seconds(const sw_program *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n_once; i++) sum += p->launches[i].seconds;
    return sum;
}

/* What is run once is run at the first run and after a variable was written, at no other. */
static void test_once(void **state)
{
    (void)state;
    run r = open_run(&networks[0], 2, "cpu", 1, (sw_compile_options){.profile = true});
    run *const all[] = {&r};
    set_variables(all, 1);
    set_inputs(&networks[0], all, 1);
    assert_true(r.program->n_once > 0);
    free(result(&r));
    const double first = once_seconds(r.program);
    assert_true(first > 0);
    free(result(&r));
    set_inputs(&networks[0], all, 1);
    free(result(&r));
    assert_true(once_seconds(r.program) == first); /* the same sum of the same numbers */
    set_variable(all, 1, 0);
    free(result(&r));
    assert_true(once_seconds(r.program) > first);
    close_run(&r);
}

/* Another program that assigns to the same variables, and that takes the arena between two runs. */
static void test_training_beside(void **state)
{
    (void)state;
    const network *const n = &networks[0];
    run ref = open_run(n, 4, "ref", 1, (sw_compile_options){0});
    run cpu = open_run(n, 4, "cpu", 2, (sw_compile_options){0});
    run *const all[] = {&ref, &cpu};
    set_variables(all, 2);
    set_inputs(n, all, 2);
    compare("before", &cpu, &ref);

    sw_graph *g = NULL;
    sw_program *step = NULL;
    assert_int_equal(sw_graph_new(&g), SW_OK);
    const sw_t x = sw_input(g, "x", SW_F32, 4, (int64_t[]){4, 3, 10, 9});
    const sw_t loss = sw_output(sw_mean(sw_square(n->build(x)), SW_ALL_AXES, false), "loss");
    const sw_optimizer sgd = {.kind = SW_SGD, .lr = 0.1};
    assert_int_equal(sw_optimizer_apply(&sgd, loss, NULL, 0), SW_OK);
    const sw_compile_options o = {.params = cpu.program->params, .shares = cpu.program};
    if (sw_compile(g, cpu.device, &o, &step) != SW_OK) fail_msg("%s", sw_error());
    float *data = calloc((size_t)cpu.n_x, sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < cpu.n_x; i++) data[i] = random_value();
    assert_int_equal(sw_program_set(step, sw_program_input(step, "x"), SW_F32, data, cpu.n_x), SW_OK);
    const double lr = 0.1;
    assert_int_equal(sw_program_set(step, sw_program_input(step, SW_INPUT_LR), SW_F64, &lr, 1), SW_OK);
    for (int round = 0; round < 2; round++) {
        if (sw_program_run(step) != SW_OK) fail_msg("%s", sw_error());
        for (int i = 0; i < sw_params_count(ref.program->params); i++) { /* ref gets what was learnt */
            sw_var_info v;
            assert_int_equal(sw_params_info(ref.program->params, i, &v), SW_OK);
            double *values = calloc((size_t)v.elements + 1, sizeof *values);
            assert_non_null(values);
            const int at = sw_params_find(cpu.program->params, v.name);
            assert_int_equal(sw_params_get(cpu.program->params, at, SW_F64, values, v.elements), SW_OK);
            assert_int_equal(sw_params_set(ref.program->params, i, SW_F64, values, v.elements), SW_OK);
            free(values);
        }
        compare("after a step", &cpu, &ref);
        compare("and once more", &cpu, &ref);
    }
    free(data);
    sw_program_free(step);
    sw_graph_free(g);
    for (int i = 0; i < 2; i++) close_run(all[i]);
}

/* ---- memory, NaN ------------------------------------------------------------------------------------------------- */

/* Where there is no room for packed weights, nothing is packed. */
static void test_budget(void **state)
{
    (void)state;
    const network *const n = &networks[1];
    run roomy = open_run(n, 2, "cpu", 1, (sw_compile_options){0});
    const sw_plan *const p = sw_program_plan(roomy.program);
    assert_true(p->kept > 0 && p->packs > 0);
    assert_int_equal(p->total, p->params + p->buffers + p->state + p->inputs + p->constants + p->kept + p->arena);
    run tight = open_run(n, 2, "cpu", 1, (sw_compile_options){.memory = p->total - 64});
    run ref = open_run(n, 2, "ref", 1, (sw_compile_options){0});
    assert_int_equal(sw_program_plan(tight.program)->kept, 0);
    assert_true(sw_program_plan(tight.program)->total < p->total);
    run *const all[] = {&roomy, &tight, &ref};
    set_variables(all, 3);
    set_inputs(n, all, 3);
    compare("tight", &tight, &ref);
    for (int i = 0; i < 3; i++) close_run(all[i]);
}

/* A NaN in a statistic, in a weight, in the data: it shows. */
static void test_nan(void **state)
{
    (void)state;
    const network *const n = &networks[0];
    static const char *const names[] = {"bn1.running_var", "bn2.weight", "conv1.weight"};
    run r = open_run(n, 1, "cpu", 1, (sw_compile_options){0});
    run *const all[] = {&r};
    for (size_t i = 0; i < SW_COUNT(names); i++) {
        set_variables(all, 1);
        set_inputs(n, all, 1);
        double *y = result(&r);
        for (int64_t k = 0; k < r.n_y; k++) assert_true(isfinite(y[k]));
        free(y);
        sw_var_info v;
        float values[512];
        const int at = sw_params_find(r.program->params, names[i]);
        assert_int_equal(sw_params_info(r.program->params, at, &v), SW_OK);
        assert_true(v.elements <= 512);
        assert_int_equal(sw_params_get(r.program->params, at, SW_F32, values, v.elements), SW_OK);
        values[0] = NAN;
        assert_int_equal(sw_params_set(r.program->params, at, SW_F32, values, v.elements), SW_OK);
        y = result(&r);
        for (int64_t k = 0; k < r.n_y; k++) assert_true(isnan(y[k]));
        free(y);
    }
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_networks), cmocka_unit_test(test_once), cmocka_unit_test(test_training_beside),
        cmocka_unit_test(test_budget),   cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
