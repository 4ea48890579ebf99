/* test_optim.c: every optimiser's update over ten steps and every schedule against PyTorch's numbers in double precision
 * (tests/golden/make_optim.py), on ref and on the cpu; parameter groups and clipping; what is refused. */
#include "base/base.h"
#include "swoop/swoop.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define STEPS 10
static sw_safetensors *file;
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const sw_status ok_ = (call);                                                                                  \
        if (ok_ != SW_OK) fail_msg("%s: %s: %s", #call, sw_status_name(ok_), sw_error());                              \
    } while (0)

static const double *stored(const char *name, const char *key, int64_t *n)
{
    char full[96];
    sw_array a;
    snprintf(full, sizeof full, *key ? "%s.%s" : "%s%s", name, key);
    OK(sw_safetensors_array(file, full, &a));
    assert_int_equal(a.dtype, SW_F64);
    *n = sw_array_count(&a);
    return a.data;
}

/* ---- updates ------------------------------------------------------------------------------------------------------------- */

static const struct { const char *name; sw_optimizer o; } cases[] = {
    {"sgd", {.kind = SW_SGD, .lr = 0.05}},
    {"sgd momentum dampening decay", {.kind = SW_SGD, .lr = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1}},
    {"sgd nesterov", {.kind = SW_SGD, .lr = 0.05, .momentum = 0.8, .nesterov = true}},
    {"adam", {.kind = SW_ADAM, .lr = 0.01}},
    {"adam decay amsgrad", {.kind = SW_ADAM, .lr = 0.01, .betas = {0.8, 0.6}, .weight_decay = 0.1, .amsgrad = true}},
    {"adamw", {.kind = SW_ADAMW, .lr = 0.01, .weight_decay = 0.1}},
    {"nadam", {.kind = SW_NADAM, .lr = 0.02}},
    {"nadam decay", {.kind = SW_NADAM, .lr = 0.02, .betas = {0.8, 0.9}, .weight_decay = 0.1, .momentum_decay = 0.01}},
    {"radam", {.kind = SW_RADAM, .lr = 0.01}},
    {"radam decay", {.kind = SW_RADAM, .lr = 0.01, .betas = {0.9, 0.9}, .weight_decay = 0.1}},
    {"rmsprop", {.kind = SW_RMSPROP}},
    {"rmsprop centered momentum", {.kind = SW_RMSPROP, .alpha = 0.9, .momentum = 0.5, .centered = true, .weight_decay = 0.1}},
    {"adagrad", {.kind = SW_ADAGRAD, .lr = 0.05}},
    {"adagrad decay", {.kind = SW_ADAGRAD, .lr = 0.05, .lr_decay = 0.1, .weight_decay = 0.1}},
    {"adadelta", {.kind = SW_ADADELTA}},
    {"adadelta decay", {.kind = SW_ADADELTA, .lr = 0.5, .alpha = 0.8, .weight_decay = 0.1}},
    {"adamax", {.kind = SW_ADAMAX, .lr = 0.02}},
    {"adamax decay", {.kind = SW_ADAMAX, .lr = 0.02, .betas = {0.8, 0.9}, .weight_decay = 0.1}},
    {"lion", {.kind = SW_LION, .lr = 0.01}},
    {"lion decay", {.kind = SW_LION, .lr = 0.01, .betas = {0.8, 0.9}, .weight_decay = 0.1}},
    {"lamb", {.kind = SW_LAMB, .lr = 0.01}},
    {"lamb decay", {.kind = SW_LAMB, .lr = 0.01, .weight_decay = 0.1}},
    {"clip value", {.kind = SW_SGD, .lr = 0.05, .clip_value = 0.5}},
};

/* sum(c p): the gradient of p is c. */
typedef struct training {
    sw_device *device;
    sw_params *params;
    sw_program *program;
} training;

static void start(training *t, const char *device, const sw_optimizer *o)
{
    static const int64_t w[] = {5, 3}, b[] = {7};
    sw_graph *g = NULL;
    OK(sw_graph_new(&g));
    const sw_t cw = sw_input(g, "w", SW_F32, 2, w), cb = sw_input(g, "b", SW_F32, 1, b);
    const sw_t pw = sw_param(g, "w", 2, w, (sw_init){0}), pb = sw_param(g, "b", 1, b, (sw_init){0});
    const sw_t loss = sw_add(sw_sum(sw_mul(cw, pw), SW_ALL_AXES, false), sw_sum(sw_mul(cb, pb), SW_ALL_AXES, false));
    sw_output(loss, "loss");
    OK(sw_optimizer_apply(o, loss, NULL, 0));
    OK(sw_device_open(device, NULL, &t->device));
    OK(sw_params_new(t->device, g, 0, &t->params));
    OK(sw_compile(g, t->device, &(sw_compile_options){.params = t->params}, &t->program));
    sw_graph_free(g);
    for (int i = 0; i < 2; i++) {
        int64_t n = 0;
        const double *const p = stored("p", i ? "b" : "w", &n);
        OK(sw_params_set(t->params, sw_params_find(t->params, i ? "b" : "w"), SW_F64, p, n));
    }
}

static void set(const training *t, const char *name, const double *value, int64_t n)
{
    const int input = sw_program_input(t->program, name);
    if (input >= 0) OK(sw_program_set(t->program, input, SW_F64, value, n));
}

static void step(const training *t, const sw_optimizer *o, int64_t s)
{
    double lr, bias1, bias2;
    int64_t n = 0;
    sw_optimizer_scalars(o, s, sw_optimizer_resolved(o).lr, &lr, &bias1, &bias2);
    set(t, SW_INPUT_LR, &lr, 1);
    set(t, SW_INPUT_BIAS1, &bias1, 1);
    set(t, SW_INPUT_BIAS2, &bias2, 1);
    const double *const w = stored("c", "w", &n), *const b = stored("c", "b", &n);
    set(t, "w", w + s * 15, 15);
    set(t, "b", b + s * 7, 7);
    OK(sw_program_run(t->program));
}

static void finish(training *t)
{
    sw_program_free(t->program);
    sw_params_free(t->params);
    sw_device_close(t->device);
}

/* The largest difference to what is stored of parameter `key`, in units of 1 (parameters are of that size). */
static double difference(const training *t, const char *name, const char *key)
{
    double have[15], worst = 0;
    int64_t n = 0;
    const double *const want = stored(name, key, &n);
    OK(sw_params_get(t->params, sw_params_find(t->params, key), SW_F64, have, n));
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(have[i])) return INFINITY;
        worst = fmax(worst, fabs(have[i] - want[i]));
    }
    return worst;
}

static void run_cases(const char *device, double tolerance)
{
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        training t = {0};
        start(&t, device, &cases[i].o);
        for (int s = 0; s < STEPS; s++) step(&t, &cases[i].o, s);
        for (int k = 0; k < 2; k++) {
            const double off = difference(&t, cases[i].name, k ? "b" : "w");
            /* PyTorch keeps NAdam's product of mu in f32 */
            const double bound = cases[i].o.kind == SW_NADAM ? fmax(tolerance, 1e-8) : tolerance;
            if (!(off <= bound)) fail_msg("%s on %s: %s is off by %g", cases[i].name, device, k ? "b" : "w", off);
        }
        finish(&t);
    }
}

static void test_ref(void **state)
{
    (void)state;
    run_cases("ref", 1e-12);
}

static void test_cpu(void **state)
{
    (void)state;
    run_cases("cpu", 3e-6);
}

/* ---- groups -------------------------------------------------------------------------------------------------------------- */

/* b apart from w: not decayed, at half the rate, or frozen. Adam's cases say where each must end. */
static void test_groups(void **state)
{
    (void)state;
    const sw_param_group no_decay = {"b*", .weight_decay = SW_ZERO}, frozen = {"w", .frozen = true}, half = {"*", .lr_scale = 0.5};
    sw_optimizer o = {.kind = SW_ADAMW, .lr = 0.01, .weight_decay = 0.1, .groups = &no_decay, .n_groups = 1};
    training t = {0};
    start(&t, "ref", &o);
    for (int s = 0; s < STEPS; s++) step(&t, &o, s);
    assert_true(difference(&t, "adamw", "w") < 1e-12);
    assert_true(difference(&t, "adam", "b") < 1e-12); /* adamw without decay */
    finish(&t);
    o.groups = &frozen;
    start(&t, "ref", &o);
    for (int s = 0; s < STEPS; s++) step(&t, &o, s);
    assert_true(difference(&t, "p", "w") == 0);
    assert_true(difference(&t, "adamw", "b") < 1e-12);
    finish(&t);
    o = (sw_optimizer){.kind = SW_SGD, .lr = 0.1, .groups = &half, .n_groups = 1};
    start(&t, "ref", &o);
    for (int s = 0; s < STEPS; s++) step(&t, &o, s);
    assert_true(difference(&t, "sgd", "w") < 1e-12 && difference(&t, "sgd", "b") < 1e-12);
    finish(&t);
}

static sw_status refused(const sw_optimizer *o)
{
    sw_graph *g = NULL;
    OK(sw_graph_new(&g));
    const sw_t p = sw_param(g, "w", 1, (int64_t[]){3}, (sw_init){0});
    const sw_status st = sw_optimizer_apply(o, sw_sum(p, SW_ALL_AXES, false), NULL, 0);
    sw_graph_free(g);
    return st;
}

static void test_refused(void **state)
{
    (void)state;
    const sw_param_group nothing = {.pattern = NULL}, all = {"*", .frozen = true};
    assert_int_equal(refused(&(sw_optimizer){.kind = SW_OPTIMIZER_COUNT}), SW_ERR_ARGUMENT);
    assert_int_equal(refused(&(sw_optimizer){.kind = SW_ADAM, .nesterov = true}), SW_ERR_ARGUMENT);
    assert_int_equal(refused(&(sw_optimizer){.kind = SW_SGD, .n_groups = 1}), SW_ERR_ARGUMENT);
    assert_int_equal(refused(&(sw_optimizer){.kind = SW_SGD, .groups = &nothing, .n_groups = 1}), SW_ERR_ARGUMENT);
    assert_int_equal(refused(&(sw_optimizer){.kind = SW_SGD, .groups = &all, .n_groups = 1}), SW_ERR_ARGUMENT);
    assert_non_null(strstr(sw_error(), "nothing to learn"));
    assert_null(sw_optimizer_name(SW_OPTIMIZER_COUNT));
    assert_string_equal(sw_optimizer_name(SW_NADAM), "nadam");
}

/* ---- schedules ----------------------------------------------------------------------------------------------------------- */

static void test_schedules(void **state)
{
    (void)state;
    static const struct { const char *name; sw_schedule s; } schedules[] = {
        {"multistep", {SW_SCHEDULE_MULTISTEP, .gamma = 0.3, .milestones = {5, 20, 30}, .n_milestones = 3}},
        {"exponential", {SW_SCHEDULE_EXPONENTIAL, .gamma = 0.97}},
        {"polynomial", {SW_SCHEDULE_POLYNOMIAL, .total = 40, .power = 2}},
        {"restarts", {SW_SCHEDULE_RESTARTS, .step_size = 8, .growth = 2, .min_lr = 0.01}},
        {"restarts even", {SW_SCHEDULE_RESTARTS, .step_size = 7}},
        {"onecycle", {SW_SCHEDULE_ONECYCLE, .total = 40, .warmup = 5}}, /* which it does not heed */
        {"cosine", {SW_SCHEDULE_COSINE, .total = 40, .min_lr = 0.01}},
    };
    for (size_t i = 0; i < SW_COUNT(schedules); i++) {
        char name[64];
        int64_t n = 0;
        snprintf(name, sizeof name, "schedule.%s", schedules[i].name);
        const double *const want = stored(name, "", &n);
        for (int64_t s = 0; s < n; s++) {
            const double have = sw_schedule_lr(&schedules[i].s, 0.2, s);
            if (!(fabs(have - want[s]) < 1e-12)) fail_msg("%s: step %d: %.15g, not %.15g", name, (int)s, have, want[s]);
        }
    }
    const sw_schedule warm = {SW_SCHEDULE_EXPONENTIAL, .gamma = 0.5, .step_size = 10, .warmup = 4};
    assert_true(fabs(sw_schedule_lr(&warm, 1, 0) - 0.25) < 1e-12);
    assert_true(fabs(sw_schedule_lr(&warm, 1, 4) - 1) < 1e-12);
    assert_true(fabs(sw_schedule_lr(&warm, 1, 14) - 0.5) < 1e-12);
    assert_null(sw_schedule_name((sw_schedule_kind)99));
    assert_string_equal(sw_schedule_name(SW_SCHEDULE_ONECYCLE), "onecycle");
}

static int open_file(void **state)
{
    (void)state;
    return sw_safetensors_open(SWOOP_TEST_DATA "/data/optim.safetensors", &file) == SW_OK ? 0 : -1;
}

static int close_file(void **state)
{
    (void)state;
    sw_safetensors_close(file);
    return 0;
}

/* A zero that is meant is still one after the options went through the command, the trainer, the graph. */
static void test_resolved(void **state)
{
    (void)state;
    for (int k = 0; k < SW_OPTIMIZER_COUNT; k++) {
        const sw_optimizer given = {.kind = (sw_optimizer_kind)k, .weight_decay = SW_ZERO, .betas = {SW_ZERO, 0.5}};
        const sw_optimizer once = sw_optimizer_resolved(&given), twice = sw_optimizer_resolved(&once);
        assert_true(once.weight_decay == 0 && twice.weight_decay == 0);
        assert_true(once.betas[0] == 0 && twice.betas[0] == 0 && twice.betas[1] == 0.5);
        assert_true(once.lr > 0 && twice.lr == once.lr && twice.eps == once.eps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_resolved),
        cmocka_unit_test(test_schedules),
    };
    return cmocka_run_group_tests_name("optim", tests, open_file, close_file);
}
