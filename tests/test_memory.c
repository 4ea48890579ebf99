/* test_memory.c: training within so many bytes: micro-batches that add up to the whole batch (against ref), the same bits where
 * values are only recomputed, what is said where nothing fits, and devices that run out of memory on the way. */
#include "base/base.h"
#include "backend/null/null.h"
#include "swoop/swoop.h"

#include <setjmp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static void must(sw_status st)
{
    if (st != SW_OK) fail_msg("%s", sw_error());
}

/* ---- data and trainers ----------------------------------------------------------------------------------------- */

#define CLASSES 4

static void *held[64]; /* data sets do not copy */
static int n_held;

static sw_dataset *images(int64_t n, int64_t channels, int64_t side)
{
    const int64_t size = channels * side * side;
    float *const x = malloc((size_t)(n * size) * sizeof *x);
    int64_t *const y = malloc((size_t)n * sizeof *y);
    sw__rng r;
    sw_dataset *d = NULL;
    assert_true(x && y);
    sw__rng_init(&r, 1, 2);
    for (int64_t i = 0; i < n; i++) {
        y[i] = i < CLASSES ? i : (int64_t)sw__rng_below(&r, CLASSES);
        for (int64_t k = 0; k < size; k++) x[i * size + k] = (float)(sw__rng_normal(&r) + (k % CLASSES == y[i]));
    }
    const sw_array ax = {.dtype = SW_F32, .rank = 4, .shape = {n, channels, side, side}, .data = x,
                         .bytes = (size_t)(n * size) * sizeof *x};
    const sw_array ay = {.dtype = SW_I64, .rank = 1, .shape = {n}, .data = y, .bytes = (size_t)n * sizeof *y};
    must(sw_dataset_from_memory(&ax, &ay, NULL, &d));
    held[n_held++] = x;
    held[n_held++] = y;
    return d;
}

/* No batch norm: convolution, ReLU, pooling, a hidden layer. */
static sw_t plain(sw_t x)
{
    sw_t h = sw_max_pool2d(sw_relu(sw_conv2d(x, 6, .kernel = 3, .pad = 1, .name = "conv")), .kernel = 2);
    h = sw_relu(sw_linear(sw_flatten(h), 24, .name = "fc1"));
    return sw_linear(h, CLASSES, .name = "fc2");
}

typedef struct run { double loss[8]; sw_trainer_memory_info memory; float *weights; size_t n; } run;

static void read_weights(sw_trainer *t, run *r)
{
    sw_params *const p = sw_trainer_params(t);
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        must(sw_params_info(p, i, &v));
        if (v.kind == SW_VAR_STATE || v.dtype != SW_F32) continue;
        r->weights = realloc(r->weights, (r->n + (size_t)v.elements + 1) * sizeof *r->weights);
        assert_non_null(r->weights);
        must(sw_params_get(p, i, SW_F32, r->weights + r->n, v.elements));
        r->n += (size_t)v.elements;
    }
}

/* Some steps on the first n samples of the data. */
static run steps(const char *device, const sw_trainer_options *o, const sw_dataset *data, int64_t n, int count)
{
    run r = {.n = 0};
    sw_device *d = NULL;
    sw_trainer *t = NULL;
    sw_loader *l = NULL;
    sw_batch b;
    must(sw_device_open(device, NULL, &d));
    must(sw_trainer_new(d, o, &t));
    must(sw_trainer_prepare(t, data));
    must(sw_loader_open(data, &(sw_loader_options){.batch = n}, &l));
    must(sw_loader_next(l, &b));
    for (int s = 0; s < count; s++) must(sw_trainer_step(t, b.x, b.y, b.n, &r.loss[s]));
    must(sw_trainer_memory(t, &r.memory));
    read_weights(t, &r);
    sw_loader_close(l);
    sw_trainer_free(t);
    sw_device_close(d);
    return r;
}

static double distance(const run *a, const run *b)
{
    double most = 0;
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) most = fmax(most, fabs((double)a->weights[i] - (double)b->weights[i]));
    return most;
}

/* ---- micro-batches ---------------------------------------------------------------------------------------------- */

static void test_parts(void **state)
{
    (void)state;
    sw_dataset *const data = images(10, 3, 8);
    sw_trainer_options o = {.model = plain, .batch = 10, .seed = 3,
                            .optimizer = {.kind = SW_SGD, .lr = 0.05, .momentum = 0.9, .clip_norm = 0.7,
                                          .weight_decay = 1e-3}};
    run whole = steps("ref", &o, data, 10, 6);
    const char *const devices[] = {"ref", "cpu", "opencl:0"};
    const int64_t parts[] = {1, 4, 10}; /* of 10: 3, 3, 3, 1 */
    for (size_t k = 0; k < SW_COUNT(devices); k++)
        for (size_t i = 0; i < SW_COUNT(parts); i++) {
            sw_device *d = NULL;
            if (sw_device_open(devices[k], NULL, &d) != SW_OK) continue;
            sw_device_close(d);
            o.grad_accum = parts[i];
            run cut = steps(devices[k], &o, data, 10, 6);
            assert_int_equal(cut.memory.parts, parts[i]);
            for (int s = 0; s < 6; s++) assert_true(fabs(cut.loss[s] - whole.loss[s]) < 2e-5);
            assert_true(distance(&whole, &cut) < 2e-5);
            free(cut.weights);
        }
    assert_true(whole.loss[5] < whole.loss[0]);
    free(whole.weights);
    sw_dataset_close(data);
}

/* In halves: the gradients of a micro-batch are scaled, and added up in f32, so that the sum is that of the whole batch; one that
 * overflows makes the whole batch a step that is skipped, once, and halves the scale once. */
static void test_parts_in_f16(void **state)
{
    (void)state;
    sw_dataset *const data = images(10, 3, 8);
    sw_trainer_options o = {.model = plain, .batch = 10, .seed = 3, .optimizer = {.kind = SW_SGD, .lr = 0.05, .momentum = 0.9}};
    run exact = steps("ref", &o, data, 10, 6);
    const char *const devices[] = {"cpu", "opencl:0"};
    o.precision = SW_PRECISION_F16;
    for (size_t k = 0; k < SW_COUNT(devices); k++) {
        sw_device *d = NULL;
        if (sw_device_open(devices[k], NULL, &d) != SW_OK) continue;
        sw_device_close(d);
        o.optimizer.loss_scale = 256;
        o.grad_accum = 1;
        run whole = steps(devices[k], &o, data, 10, 6);
        o.grad_accum = 4; /* 3, 3, 3, 1 */
        run cut = steps(devices[k], &o, data, 10, 6);
        assert_int_equal(cut.memory.parts, 4);
        for (int s = 0; s < 6; s++) {
            assert_true(fabs(whole.loss[s] - exact.loss[s]) < 3e-3);
            assert_true(fabs(cut.loss[s] - exact.loss[s]) < 3e-3); /* as near as without */
        }
        assert_true(distance(&whole, &cut) < 2e-3 && distance(&exact, &cut) < 2e-3);
        assert_true(distance(&exact, &cut) > 0);
        free(whole.weights);
        free(cut.weights);
    }
    free(exact.weights);
    sw_dataset_close(data);
}

static double scalar(sw_trainer *t, const char *name)
{
    double v = 0;
    sw_params *const p = sw_trainer_params(t);
    must(sw_params_get(p, sw_params_find(p, name), SW_F64, &v, 1));
    return v;
}

static void test_overflow_in_parts(void **state)
{
    (void)state;
    static float x[10 * 3 * 64];
    static int64_t y[10];
    double loss;
    sw_dataset *const data = images(10, 3, 8);
    const sw_trainer_options o = {.model = plain, .batch = 10, .seed = 3, .precision = SW_PRECISION_F16, .grad_accum = 4,
                                  .optimizer = {.kind = SW_ADAM, .lr = 1e-3, .loss_scale = 1024}};
    sw_device *d = NULL;
    sw_trainer *t = NULL;
    must(sw_device_open("cpu", NULL, &d));
    must(sw_trainer_new(d, &o, &t));
    must(sw_trainer_prepare(t, data));
    for (size_t i = 0; i < SW_COUNT(x); i++) x[i] = (float)(i % 7) - 3;
    for (int i = 0; i < 10; i++) y[i] = i % CLASSES;
    run before = {.n = 0}, after = {.n = 0}, then = {.n = 0};
    read_weights(t, &before);
    for (int i = 0; i < 3 * 64; i++) x[4 * 3 * 64 + i] = 3000; /* sample 4, of the second micro-batch: its gradients times 1024 */
    must(sw_trainer_step(t, x, y, 10, &loss));
    assert_true(isfinite(loss));
    assert_int_equal(sw_trainer_steps_done(t), 0);
    read_weights(t, &after);
    assert_true(distance(&before, &after) == 0);
    assert_true(scalar(t, "loss_scale") == 512);
    for (int i = 0; i < 3 * 64; i++) x[4 * 3 * 64 + i] = 1;
    must(sw_trainer_step(t, x, y, 10, &loss));
    assert_int_equal(sw_trainer_steps_done(t), 1);
    assert_true(scalar(t, "loss_scale") == 512 && scalar(t, "loss_scale.good_steps") == 1);
    read_weights(t, &then);
    assert_true(distance(&before, &then) > 0 && isfinite(distance(&before, &then)));
    free(before.weights);
    free(after.weights);
    free(then.weights);
    sw_trainer_free(t);
    sw_device_close(d);
    sw_dataset_close(data);
}

/* A NaN in the last micro-batch: nothing is learnt from the others either, and the next step is whole again. */
static void test_not_finite(void **state)
{
    (void)state;
    float x[10 * 3 * 64];
    int64_t y[10];
    double loss;
    sw_dataset *const data = images(10, 3, 8);
    const sw_trainer_options o = {.model = plain, .batch = 10, .seed = 3, .optimizer = sw_adamw(.lr = 1e-2),
                                  .grad_accum = 4};
    sw_device *d = NULL;
    sw_trainer *t = NULL;
    must(sw_device_open("cpu", NULL, &d));
    must(sw_trainer_new(d, &o, &t));
    must(sw_trainer_prepare(t, data));
    for (size_t i = 0; i < SW_COUNT(x); i++) x[i] = (float)(i % 7) - 3;
    for (int i = 0; i < 10; i++) y[i] = i % CLASSES;
    run before = {.n = 0}, after = {.n = 0}, then = {.n = 0};
    read_weights(t, &before);
    x[SW_COUNT(x) - 1] = NAN;
    must(sw_trainer_step(t, x, y, 10, &loss));
    assert_true(isnan(loss));
    assert_int_equal(sw_trainer_steps_done(t), 0);
    read_weights(t, &after);
    assert_true(distance(&before, &after) == 0);
    x[SW_COUNT(x) - 1] = 0;
    must(sw_trainer_step(t, x, y, 10, &loss));
    assert_true(isfinite(loss));
    read_weights(t, &then);
    assert_true(distance(&before, &then) > 0 && isfinite(distance(&before, &then)));
    free(before.weights);
    free(after.weights);
    free(then.weights);
    sw_trainer_free(t);
    sw_device_close(d);
    sw_dataset_close(data);
}

/* ---- budgets ----------------------------------------------------------------------------------------------------- */

static void test_budget(void **state)
{
    (void)state;
    sw_dataset *const data = images(32, 3, 16);
    sw_trainer_options o = {.model_name = "resnet8:8,8,8,8", .batch = 32, .seed = 3, .optimizer = sw_adamw(.lr = 1e-2)};
    run free_run = steps("cpu", &o, data, 32, 3);
    const uint64_t total = free_run.memory.plan.total, fixed = total - free_run.memory.plan.arena;
    assert_int_equal(free_run.memory.parts, 1);
    o.memory = fixed + 3 * free_run.memory.plan.inputs + free_run.memory.plan.arena / 10 * 8;
    run within = steps("cpu", &o, data, 32, 3);
    assert_true(within.memory.plan.total <= o.memory);
    assert_true(within.memory.plan.again.launches > 0);
    assert_int_equal(within.memory.parts, 1);
    assert_memory_equal(free_run.loss, within.loss, 3 * sizeof(double));
    assert_true(distance(&free_run, &within) == 0);
    o.memory = fixed + free_run.memory.plan.arena / 4;
    run cut = steps("cpu", &o, data, 32, 3);
    assert_true(cut.memory.plan.total <= o.memory);
    assert_true(cut.memory.parts > 1);
    assert_true(isfinite(cut.loss[2]));
    free(free_run.weights);
    free(within.weights);
    free(cut.weights);
    sw_dataset_close(data);
}

static void test_nothing_fits(void **state)
{
    (void)state;
    sw_dataset *const data = images(8, 3, 16);
    const sw_trainer_options o = {.model = plain, .batch = 8, .optimizer = sw_adamw(.lr = 1e-2), .memory = 50000};
    sw_device *d = NULL;
    sw_trainer *t = NULL;
    must(sw_device_open("cpu", NULL, &d));
    must(sw_trainer_new(d, &o, &t));
    assert_int_equal(sw_trainer_prepare(t, data), SW_ERR_MEMORY);
    assert_non_null(strstr(sw_error(), "memory is 50000 bytes, but"));
    assert_non_null(strstr(sw_error(), "at least, in micro-batches of 1"));
    assert_non_null(strstr(sw_error(), "optimizer state"));
    assert_non_null(strstr(sw_error(), "the largest: "));
    sw_trainer_free(t);
    sw_device_close(d);
    sw_dataset_close(data);
}

/* The least that is told does: a whole fit, with validation and a smaller last batch, on a device that has no more. */
static void test_least_does(void **state)
{
    (void)state;
    sw_dataset *const data = images(21, 3, 16);
    static const struct { const char *name; sw_model_fn model; } models[] = {
        {"mlp:8", NULL}, {NULL, plain}, {"resnet8:4,4,4", NULL}};
    const char *const devices[] = {"cpu", "null"};
    for (size_t i = 0; i < SW_COUNT(models); i++)
        for (size_t k = 0; k < SW_COUNT(devices); k++) {
            sw_device *d = NULL;
            sw_trainer *t = NULL;
            sw_trainer_options o = {.model_name = models[i].name, .model = models[i].model, .batch = 8,
                                    .optimizer = sw_adamw(.lr = 1e-2), .memory = 9000};
            must(sw_device_open(devices[k], NULL, &d));
            must(sw_trainer_new(d, &o, &t));
            assert_int_equal(sw_trainer_prepare(t, data), SW_ERR_MEMORY);
            const char *const told = strstr(sw_error(), "needs ");
            assert_non_null(told);
            o.memory = strtoull(told + strlen("needs "), NULL, 10);
            sw_trainer_free(t);
            sw_device_close(d);
            char text[32];
            sw_fit_result r;
            snprintf(text, sizeof text, "%llu", (unsigned long long)o.memory);
            setenv("SWOOP_NULL_MEMORY", text, 1);
            must(sw_device_open(devices[k], NULL, &d));
            must(sw_trainer_new(d, &o, &t));
            must(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 1, .valid = data}, &r));
            unsetenv("SWOOP_NULL_MEMORY");
            assert_int_equal(r.steps, 3);
            sw_trainer_free(t);
            sw_device_close(d);
        }
    sw_dataset_close(data);
}

/* ---- a device without room ------------------------------------------------------------------------------------------ */

static sw_status fit(const sw_dataset *data, bool shrink, uint64_t memory, uint64_t budget, sw_fit_result *result,
                     int *again)
{
    char text[32];
    sw_device *d = NULL;
    sw_trainer *t = NULL;
    const sw_trainer_options o = {.model_name = "resnet8:8,8,8,8", .batch = 32, .optimizer = sw_adamw(.lr = 1e-3),
                                  .shrink = shrink, .memory = budget};
    snprintf(text, sizeof text, "%llu", (unsigned long long)memory);
    setenv("SWOOP_NULL_MEMORY", text, 1);
    must(sw_device_open("null", NULL, &d));
    must(sw_trainer_new(d, &o, &t));
    const sw_status st = sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 2, .valid = data}, result);
    sw_trainer_memory_info m;
    must(sw_trainer_memory(t, &m));
    *again = m.plan.again.launches + (int)m.parts - 1;
    sw_trainer_free(t);
    sw_device_close(d);
    unsetenv("SWOOP_NULL_MEMORY");
    return st;
}

static uint64_t whole_total(const sw_dataset *data)
{
    sw_device *d = NULL;
    sw_trainer *t = NULL;
    must(sw_device_open("null", NULL, &d));
    must(sw_trainer_new(d, &(sw_trainer_options){.model_name = "resnet8:8,8,8,8", .batch = 32,
                                                 .optimizer = sw_adamw(.lr = 1e-3)}, &t));
    must(sw_trainer_prepare(t, data));
    const uint64_t total = sw_trainer_plan(t)->total;
    sw_trainer_free(t);
    sw_device_close(d);
    return total;
}

/* On a device that has just what is allowed: all programs of a fit together take no more; and with less than the plan says
 * there would be no room. */
static void test_all_programs(void **state)
{
    (void)state;
    setenv("SWOOP_LOG", "error", 1);
    sw_dataset *const data = images(80, 3, 16); /* 32, 32, 16 */
    const uint64_t total = whole_total(data);
    for (uint64_t share = 9; share >= 3; share -= 2) {
        sw_fit_result r;
        int again = 0;
        const uint64_t budget = total / 10 * share;
        must(fit(data, false, budget, budget, &r, &again));
        assert_int_equal(r.steps, 6);
        assert_int_equal(r.shrunk, 0);
        assert_true(again > 0);
    }
    char text[32];
    sw_device *d = NULL;
    sw_trainer *t = NULL;
    snprintf(text, sizeof text, "%llu", (unsigned long long)(total / 100 * 98));
    setenv("SWOOP_NULL_MEMORY", text, 1);
    must(sw_device_open("null", NULL, &d));
    must(sw_trainer_new(d, &(sw_trainer_options){.model_name = "resnet8:8,8,8,8", .batch = 32,
                                                 .optimizer = sw_adamw(.lr = 1e-3)}, &t));
    assert_int_equal(sw_trainer_prepare(t, data), SW_ERR_MEMORY);
    unsetenv("SWOOP_NULL_MEMORY");
    sw_trainer_free(t);
    sw_device_close(d);
    sw_dataset_close(data);
}

static void test_shrink(void **state)
{
    (void)state;
    setenv("SWOOP_LOG", "error", 1);
    const uint64_t faults = sw__null_faults();
    sw_dataset *const data = images(80, 3, 16); /* 32, 32, 16 */
    const uint64_t total = whole_total(data);
    sw_fit_result r;
    int again = 0;
    assert_int_equal(fit(data, false, total / 4 * 3, 0, &r, &again), SW_ERR_MEMORY);
    for (uint64_t share = 3; share >= 1; share--) {
        must(fit(data, true, total / 4 * share, 0, &r, &again));
        assert_int_equal(r.steps, 6); /* none lost, none twice */
        assert_true(r.shrunk > 0);
        assert_true(again > 0);
    }
    must(fit(data, true, total * 4, 0, &r, &again));
    assert_int_equal(r.shrunk, 0);
    assert_int_equal(again, 0);
    assert_int_equal(sw__null_faults(), faults);
    sw_dataset_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts), cmocka_unit_test(test_parts_in_f16), cmocka_unit_test(test_overflow_in_parts),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_budget), cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_least_does), cmocka_unit_test(test_all_programs), cmocka_unit_test(test_shrink),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    while (n_held > 0) free(held[--n_held]);
    return failed;
}
