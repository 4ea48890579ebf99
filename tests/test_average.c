/* test_average.c: averages of weights, freezing for some epochs, weights of classes and rates on a plateau against PyTorch's
 * numbers (tests/golden/make_trainer.py); that they change nothing else, and go on from a checkpoint to the bit. */
#include "base/base.h"
#include "swoop/swoop.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define GOLDEN SWOOP_TEST_DATA "/data/trainer.safetensors"
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const sw_status ok_ = (call);                                                                                  \
        if (ok_ != SW_OK) fail_msg("%s: %s: %s", #call, sw_status_name(ok_), sw_error());                              \
    } while (0)

static sw_safetensors *file;
static sw_dataset *data;
static char folder[200];

static sw_t net(sw_t x)
{
    const sw_t h = sw_batch_norm(sw_linear(x, 6, .name = "fc1", .no_bias = true), .name = "bn");
    return sw_linear(sw_relu(h), 3, .name = "fc2");
}

static const sw_param_group frozen[] = {{"fc1.*", .frozen = true}, {"bn.*", .frozen = true}};
static const double class_weights[] = {0.5, 2, 1.25};

/* The options of PyTorch's trainings, by their names there. */
static sw_trainer_options options(const char *name)
{
    sw_trainer_options o = {.model = net, .optimizer = {.kind = SW_ADAM, .lr = 0.02}, .batch = 8};
    if (strcmp(name, "ema") == 0) o.ema = 0.9;
    if (strcmp(name, "swa") == 0) o.swa_start = 2;
    if (strcmp(name, "frozen") == 0) {
        o.optimizer.groups = frozen;
        o.optimizer.n_groups = 2;
        o.freeze_epochs = 2;
    }
    if (strcmp(name, "weighted") == 0) {
        o.class_weights = class_weights;
        o.n_class_weights = 3;
    }
    return o;
}

static sw_trainer *trainer(sw_device *d, const sw_trainer_options *o)
{
    sw_trainer *t = NULL;
    OK(sw_trainer_new(d, o, &t));
    OK(sw_trainer_prepare(t, data));
    OK(sw_trainer_load(t, GOLDEN, "init."));
    return t;
}

static const double *stored(const char *prefix, const char *name, int64_t *n)
{
    char full[96];
    sw_array a;
    snprintf(full, sizeof full, *name ? "%s.%s" : "%s%s", prefix, name);
    OK(sw_safetensors_array(file, full, &a));
    assert_int_equal(a.dtype, SW_F64);
    *n = sw_array_count(&a);
    return a.data;
}

/* Each float variable against PyTorch's. */
static void compare(sw_params *p, const char *prefix, double tolerance)
{
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        double have[64];
        int64_t n = 0;
        OK(sw_params_info(p, i, &v));
        if (v.kind == SW_VAR_STATE || v.dtype != SW_F32) continue;
        const double *const want = stored(prefix, v.name, &n);
        assert_true(v.elements == n && n <= 64);
        OK(sw_params_get(p, i, SW_F64, have, n));
        for (int64_t k = 0; k < n; k++)
            if (!(fabs(have[k] - want[k]) <= tolerance))
                fail_msg("%s: %s[%d] is %.12g, not %.12g", prefix, v.name, (int)k, have[k], want[k]);
    }
}

/* Training itself, then the model file and the evaluation, which are of the average where there is one. */
static void run_golden(const char *device, double tolerance)
{
    static const char *const names[] = {"plain", "ema", "swa", "frozen", "weighted"};
    sw_device *d = NULL;
    OK(sw_device_open(device, NULL, &d));
    for (size_t i = 0; i < SW_COUNT(names); i++) {
        char prefix[64], path[300];
        int64_t n;
        const sw_trainer_options o = options(names[i]);
        sw_trainer *const t = trainer(d, &o);
        OK(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 4, .keep_order = true}, NULL));
        compare(sw_trainer_params(t), names[i], tolerance);
        if (o.ema > 0 || o.swa_start > 0) {
            sw_metrics m;
            OK(sw_trainer_evaluate(t, data, &m, NULL));
            snprintf(prefix, sizeof prefix, "%s.averaged", names[i]);
            const double want = *stored(prefix, "loss", &n);
            if (!(fabs(m.loss - want) <= tolerance)) fail_msg("%s: loss %.12g, not %.12g", prefix, m.loss, want);
            snprintf(path, sizeof path, "%s/%s.safetensors", folder, names[i]);
            OK(sw_trainer_save(t, path, NULL, 0));
            const sw_trainer_options plain = options("plain");
            sw_trainer *const other = trainer(d, &plain);
            OK(sw_trainer_load(other, path, NULL));
            compare(sw_trainer_params(other), prefix, fmax(tolerance, 1e-6)); /* the file has f32 */
            sw_trainer_free(other);
        }
        sw_trainer_free(t);
    }
    sw_device_close(d);
}

static void test_ref(void **state)
{
    (void)state;
    run_golden("ref", 1e-8); /* initial weights, rates and bias corrections pass through f32 nowhere */
}

static void test_cpu(void **state)
{
    (void)state;
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    run_golden(wish ? wish : "cpu", 2e-5);
}

/* ---- to the bit -------------------------------------------------------------------------------------------------- */

static void assert_same_bits(sw_trainer *a, sw_trainer *b, bool all)
{
    sw_params *const p = sw_trainer_params(a), *const q = sw_trainer_params(b);
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        unsigned char x[512], y[512];
        OK(sw_params_info(p, i, &v));
        const int k = sw_params_find(q, v.name);
        if (k < 0 && !all) continue;
        assert_true(k >= 0 && (size_t)v.elements * sw_dtype_size(v.dtype) <= sizeof x);
        OK(sw_params_get(p, i, v.dtype, x, v.elements));
        OK(sw_params_get(q, k, v.dtype, y, v.elements));
        if (memcmp(x, y, (size_t)v.elements * sw_dtype_size(v.dtype)) != 0) fail_msg("%s differs", v.name);
    }
}

static sw_status stop_at(void *context, const sw_event *e)
{
    const int64_t *const step = context;
    return e->kind == SW_EVENT_STEP && e->step == *step ? sw_dataset_error(SW_ERR_INTERRUPTED, "enough") : SW_OK;
}

/* Stopped after any step and gone on with in another trainer: the same variables, the same figures. */
static void test_resume(void **state)
{
    (void)state;
    static const char *const names[] = {"ema", "swa", "frozen", "plateau"};
    sw_device *d = NULL;
    OK(sw_device_open("cpu", &(sw_device_options){.threads = 1}, &d));
    for (size_t i = 0; i < SW_COUNT(names); i++) {
        sw_trainer_options o = options(names[i]);
        if (strcmp(names[i], "plateau") == 0) {
            o.optimizer.lr = 0.4; /* too high: epochs without gain */
            o.schedule = (sw_schedule){.kind = SW_SCHEDULE_PLATEAU, .gamma = 0.5};
        }
        sw_trainer *const whole = trainer(d, &o);
        sw_fit_result want, have;
        OK(sw_trainer_fit(whole, data, &(sw_fit_options){.epochs = 4, .valid = data}, &want));
        for (int64_t step = 1; step < 12; step += 2) {
            char path[300];
            snprintf(path, sizeof path, "%s/%s-%d", folder, names[i], (int)step);
            sw_fit_options f = {.epochs = 4, .valid = data, .checkpoint = path, .event = stop_at, .context = &step};
            sw_trainer *const first = trainer(d, &o), *const second = trainer(d, &o);
            assert_int_equal(sw_trainer_fit(first, data, &f, NULL), SW_ERR_INTERRUPTED);
            f.event = NULL;
            f.resume = path;
            OK(sw_trainer_fit(second, data, &f, &have));
            assert_same_bits(whole, second, true);
            assert_true(memcmp(&want.valid, &have.valid, sizeof want.valid) == 0 && want.best == have.best);
            sw_trainer_free(first);
            sw_trainer_free(second);
        }
        sw_trainer_free(whole);
    }
    sw_device_close(d);
}

/* What is averaged is not trained otherwise. */
static void test_beside(void **state)
{
    (void)state;
    sw_device *d = NULL;
    OK(sw_device_open("cpu", NULL, &d));
    const sw_trainer_options p = options("plain"), e = options("ema"), s = options("swa");
    sw_trainer *const plain = trainer(d, &p), *const ema = trainer(d, &e), *const swa = trainer(d, &s);
    const sw_fit_options f = {.epochs = 3, .valid = data};
    OK(sw_trainer_fit(plain, data, &f, NULL));
    OK(sw_trainer_fit(ema, data, &f, NULL));
    OK(sw_trainer_fit(swa, data, &f, NULL));
    assert_same_bits(plain, ema, false);
    assert_same_bits(plain, swa, false);
    sw_trainer_free(plain);
    sw_trainer_free(ema);
    sw_trainer_free(swa);
    sw_device_close(d);
}

/* The rate of the averaged epochs, and a fit that ends before there is an average: then it is the weights. */
static sw_status last_rate(void *context, const sw_event *e)
{
    if (e->kind == SW_EVENT_EPOCH) ((double *)context)[e->epoch - 1] = e->lr;
    return SW_OK;
}

static void test_swa_rate(void **state)
{
    (void)state;
    double rates[3] = {0};
    sw_device *d = NULL;
    sw_metrics a, b;
    OK(sw_device_open("cpu", NULL, &d));
    sw_trainer_options o = options("swa");
    o.swa_lr = 0.005;
    o.swa_start = 3;
    sw_trainer *const t = trainer(d, &o);
    const sw_trainer_options p = options("plain");
    sw_trainer *const plain = trainer(d, &p);
    OK(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 2}, NULL));
    OK(sw_trainer_fit(plain, data, &(sw_fit_options){.epochs = 2}, NULL));
    OK(sw_trainer_evaluate(t, data, &a, NULL));
    OK(sw_trainer_evaluate(plain, data, &b, NULL));
    assert_true(memcmp(&a, &b, sizeof a) == 0);
    sw_trainer_free(t);
    sw_trainer_free(plain);
    sw_trainer *const whole = trainer(d, &o);
    OK(sw_trainer_fit(whole, data, &(sw_fit_options){.epochs = 3, .event = last_rate, .context = rates}, NULL));
    assert_true(rates[0] == 0.02 && rates[1] == 0.02 && rates[2] == 0.005);
    sw_trainer_free(whole);
    sw_device_close(d);
}

/* ---- plateau ----------------------------------------------------------------------------------------------------- */

static void test_plateau(void **state)
{
    (void)state;
    static const struct { const char *name; sw_schedule s; bool more; } cases[] = {
        {"plateau.plain", {SW_SCHEDULE_PLATEAU, .gamma = 0.5, .patience = 1}, false},
        {"plateau.max", {SW_SCHEDULE_PLATEAU, .gamma = 0.3, .patience = 2, .threshold = SW_ZERO}, true},
        {"plateau.cooldown", {SW_SCHEDULE_PLATEAU, .gamma = 0.5, .cooldown = 3, .min_lr = 0.02, .threshold = 0.1}, false},
        {"plateau.patient", {SW_SCHEDULE_PLATEAU, .patience = 10}, false},
    };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        int64_t n = 0;
        const double *const figures = stored("plateau.figures", "", &n), *const want = stored(cases[i].name, "", &n);
        sw_plateau p = {0};
        double lr = 0.2;
        for (int64_t k = 0; k < n; k++) {
            lr = sw_plateau_step(&cases[i].s, &p, figures[k], !cases[i].more, lr);
            if (!(fabs(lr - want[k]) < 1e-15)) fail_msg("%s: %d: %.17g, not %.17g", cases[i].name, (int)k, lr, want[k]);
        }
    }
    const sw_schedule warm = {SW_SCHEDULE_PLATEAU, .warmup = 4, .total = 10};
    assert_true(sw_schedule_lr(&warm, 0.2, 1) == 0.1 && sw_schedule_lr(&warm, 0.2, 9) == 0.2);
    assert_string_equal(sw_schedule_name(SW_SCHEDULE_PLATEAU), "plateau");
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static sw_t rows_loss(sw_t output, sw_t target)
{
    return sw_mean(sw_cross_entropy_rows(output, target), SW_ALL_AXES, false);
}

static void refused(const sw_trainer_options *o, const char *part)
{
    sw_device *d = NULL;
    sw_trainer *t = NULL;
    OK(sw_device_open("cpu", NULL, &d));
    sw_status st = sw_trainer_new(d, o, &t);
    if (st == SW_OK) st = sw_trainer_prepare(t, data);
    if (st != SW_ERR_ARGUMENT || !strstr(sw_error(), part)) fail_msg("%s: \"%s\"", sw_status_name(st), sw_error());
    sw_trainer_free(t);
    sw_device_close(d);
}

static void test_refused(void **state)
{
    (void)state;
    static const double negative[] = {1, -1, 1};
    sw_trainer_options o = options("ema");
    o.ema = 1;
    refused(&o, "below 1");
    o = options("ema");
    o.swa_start = 1;
    refused(&o, "two averages");
    o = options("weighted");
    o.n_class_weights = 2;
    refused(&o, "2 weights, but the model gives 3 classes");
    o.class_weights = negative;
    o.n_class_weights = 3;
    refused(&o, "class 1 is -1");
    o = options("weighted");
    o.loss = rows_loss;
    refused(&o, "class_weights are for classes");
    o = options("frozen");
    o.optimizer.groups = &(sw_param_group){"*", .frozen = true};
    o.optimizer.n_groups = 1;
    refused(&o, "nothing to learn");
}

static int set_up(void **state)
{
    (void)state;
    sw_array x, y;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.150s/swoop-average-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder) || sw_safetensors_open(GOLDEN, &file) != SW_OK) return -1;
    if (sw_safetensors_array(file, "x", &x) != SW_OK || sw_safetensors_array(file, "y", &y) != SW_OK) return -1;
    return sw_dataset_from_memory(&x, &y, NULL, &data) == SW_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char line[260];
    sw_dataset_close(data);
    sw_safetensors_close(file);
    snprintf(line, sizeof line, "rm -r '%s'", folder);
    return system(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref),      cmocka_unit_test(test_cpu),     cmocka_unit_test(test_resume),
        cmocka_unit_test(test_beside),   cmocka_unit_test(test_swa_rate), cmocka_unit_test(test_plateau),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("average", tests, set_up, tear_down);
}
