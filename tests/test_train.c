/* test_train.c: the trainer from C: learning, determinism, resuming to the bit, NaN, early stop, what it refuses.
 * Small in-memory data; PyTorch's trajectories are test_golden.c's. */
#include "stripes.h"
#include "swoop/swoop.h"
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define N 96
#define CLASSES 3

static char folder[256];
static float pixels[N][1][6][6];
static int64_t labels[N];

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s: %s", sw_status_name(st), sw_error());
}

static void refuses(sw_status have, sw_status want, const char *part)
{
    if (have != want || !strstr(sw_error(), part))
        fail_msg("status %s with \"%s\", wanted %s with \"%s\"", sw_status_name(have), sw_error(), sw_status_name(want), part);
}

/* Bright stripes whose place is the class. */
static sw_dataset *stripes(void)
{
    return make_stripes(pixels, labels, N, CLASSES, false, 0.5f);
}

static sw_t dropout_net(sw_t x)
{
    sw_t h = sw_max_pool2d(sw_relu(sw_batch_norm(sw_conv2d(x, 4, .kernel = 3, .pad = 1, .name = "conv"), .name = "bn")), .kernel = 2);
    h = sw_dropout(sw_relu(sw_linear(sw_flatten(h), 16, .name = "fc1")), 0.25);
    return sw_linear(h, CLASSES, .name = "fc2");
}

static sw_trainer *trainer(sw_device *d, double lr)
{
    sw_trainer *t = NULL;
    ok(sw_trainer_new(d, &(sw_trainer_options){.model = dropout_net, .optimizer = sw_adamw(.lr = lr), .batch = 20, .seed = 7,
                                               .schedule = {.kind = SW_SCHEDULE_COSINE, .warmup = 3}}, &t));
    return t;
}

static sw_device *open_cpu(void)
{
    sw_device *d = NULL;
    ok(sw_device_open("cpu", NULL, &d));
    return d;
}

/* All variables, one after the other. */
static double *snapshot(sw_trainer *t, size_t *n)
{
    sw_params *p = sw_trainer_params(t);
    double *all = NULL;
    *n = 0;
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        ok(sw_params_info(p, i, &v));
        all = realloc(all, (*n + (size_t)v.elements) * sizeof *all);
        ok(sw_params_get(p, i, SW_F64, all + *n, v.elements));
        *n += (size_t)v.elements;
    }
    return all;
}

static void assert_same_bits(sw_trainer *a, sw_trainer *b)
{
    size_t n, m;
    double *x = snapshot(a, &n), *y = snapshot(b, &m);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        uint64_t a_bits, b_bits;
        memcpy(&a_bits, &x[i], sizeof a_bits);
        memcpy(&b_bits, &y[i], sizeof b_bits);
        if (a_bits != b_bits) fail_msg("value %zu: %.17g and %.17g", i, x[i], y[i]);
    }
    free(x);
    free(y);
}

/* With .profile, what it takes to have the inputs on the device stands beside the launches, in each format. */
static void test_profile(void **state)
{
    (void)state;
    static const char *const parts[][3] = {{"  upload         x\n", "  upload         y\n", "implementation"},
                                           {"\"uploads\": [", "{\"name\": \"x\", \"times\": 5,", "\"launches\": ["},
                                           {"\"cat\": \"upload\", \"name\": \"x\"", "\"name\": \"uploads\"", "\"GFLOP/s\""}};
    sw_device *device = open_cpu();
    sw_dataset *data = stripes();
    sw_trainer *t = NULL;
    ok(sw_trainer_new(device, &(sw_trainer_options){.model_name = "mlp:8", .batch = 16, .profile = true}, &t));
    ok(sw_trainer_fit(t, data, &(sw_fit_options){.steps = 5}, NULL));
    for (int format = 0; format < 3; format++) {
        char *text = NULL;
        ok(sw_trainer_profile(t, (sw_profile_format)format, &text));
        for (int i = 0; i < 3; i++)
            if (!strstr(text, parts[format][i])) fail_msg("%s is not in %s", parts[format][i], text);
        sw_string_free(text);
    }
    sw_trainer_free(t);
    sw_dataset_close(data);
    sw_device_close(device);
}

static void test_learns(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes(), *train = NULL, *val = NULL;
    ok(sw_dataset_split(data, 0.25, 1, &train, &val));
    sw_trainer *t = trainer(d, 1e-2);
    sw_fit_result r;
    ok(sw_trainer_fit(t, train, &(sw_fit_options){.epochs = 12, .valid = val}, &r));
    assert_int_equal(r.epochs, 12);
    assert_int_equal(r.steps, 12 * 4); /* 72 samples in batches of 20: the last has 12 */
    assert_true(r.valid.accuracy > 0.95);
    assert_true(r.best_epoch > 0 && r.best <= r.valid.loss + 1e-12);
    int64_t confusion[CLASSES * CLASSES] = {0};
    sw_metrics m;
    ok(sw_trainer_evaluate(t, val, &m, confusion));
    int64_t right = 0, all = 0;
    for (int i = 0; i < CLASSES * CLASSES; i++) all += confusion[i];
    for (int i = 0; i < CLASSES; i++) right += confusion[i * (CLASSES + 1)];
    assert_int_equal(all, m.n);
    assert_true(fabs((double)right / (double)all - m.accuracy) < 1e-12);
    float out[5 * CLASSES];
    ok(sw_trainer_predict(t, val, NULL, 5, out));
    sw_trainer_free(t);
    sw_dataset_close(train);
    sw_dataset_close(val);
    sw_dataset_close(data);
    sw_device_close(d);
}

static void test_same_seed_same_bits(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    sw_trainer *a = trainer(d, 1e-2), *b = trainer(d, 1e-2);
    ok(sw_trainer_fit(a, data, &(sw_fit_options){.epochs = 3}, NULL));
    ok(sw_trainer_fit(b, data, &(sw_fit_options){.epochs = 3, .workers = 2}, NULL));
    assert_same_bits(a, b);
    sw_trainer_free(a);
    sw_trainer_free(b);
    sw_dataset_close(data);
    sw_device_close(d);
}

typedef struct stop_at {
    int64_t step;
} stop_at;

static sw_status stopper(void *context, const sw_event *e)
{
    const stop_at *s = context;
    if (e->kind == SW_EVENT_STEP && e->step == s->step) return sw_dataset_error(SW_ERR_INTERRUPTED, "that will do");
    return SW_OK;
}

/* Stopped anywhere and resumed in a new trainer: the same bits as in one go. */
static void test_resume_to_the_bit(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    sw_trainer *whole = trainer(d, 1e-2);
    sw_fit_result r;
    ok(sw_trainer_fit(whole, data, &(sw_fit_options){.epochs = 3}, &r));
    for (int64_t at = 1; at <= r.steps; at += 3) {
        char path[300];
        snprintf(path, sizeof path, "%s/resume-%d", folder, (int)at);
        sw_trainer *first = trainer(d, 1e-2), *second = trainer(d, 1e-2);
        stop_at stop = {at};
        sw_fit_options o = {.epochs = 3, .checkpoint = path, .event = stopper, .context = &stop};
        assert_int_equal(sw_trainer_fit(first, data, &o, NULL), SW_ERR_INTERRUPTED);
        sw_trainer_free(first);
        o.event = NULL;
        o.resume = path;
        ok(sw_trainer_fit(second, data, &o, NULL));
        assert_int_equal(sw_trainer_steps_done(second), r.steps);
        assert_same_bits(whole, second);
        sw_trainer_free(second);
    }
    sw_trainer_free(whole);
    sw_dataset_close(data);
    sw_device_close(d);
}

/* The same for every optimiser and schedule: what they keep and what they depend on is in the checkpoint. */
static void test_resume_each_rule(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    for (int k = 0; k < SW_OPTIMIZER_COUNT; k++) {
        char path[300];
        snprintf(path, sizeof path, "%s/rule-%d", folder, k);
        sw_trainer *t[3];
        const sw_trainer_options o = {
            .model = dropout_net, .batch = 20, .seed = 7,
            .optimizer = {.kind = (sw_optimizer_kind)k, .momentum = k == SW_SGD ? 0.9 : 0},
            .schedule = {.kind = (sw_schedule_kind)(k % (SW_SCHEDULE_ONECYCLE + 1)), .warmup = 2, .step_size = 3,
                         .power = 3, .growth = 2, .min_lr = 1e-6, .gamma = 0.7, .milestones = {4, 9}, .n_milestones = 2}};
        for (int i = 0; i < 3; i++) ok(sw_trainer_new(d, &o, &t[i]));
        stop_at stop = {7};
        sw_fit_options f = {.epochs = 3};
        ok(sw_trainer_fit(t[0], data, &f, NULL));
        f = (sw_fit_options){.epochs = 3, .checkpoint = path, .event = stopper, .context = &stop};
        assert_int_equal(sw_trainer_fit(t[1], data, &f, NULL), SW_ERR_INTERRUPTED);
        f = (sw_fit_options){.epochs = 3, .checkpoint = path, .resume = path};
        ok(sw_trainer_fit(t[2], data, &f, NULL));
        assert_same_bits(t[0], t[2]);
        for (int i = 0; i < 3; i++) sw_trainer_free(t[i]);
    }
    sw_dataset_close(data);
    sw_device_close(d);
}

/* More epochs on resume: the rate goes on from where it was, towards the new end. */
static void test_resume_longer(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    char path[300];
    snprintf(path, sizeof path, "%s/longer", folder);
    sw_trainer *a = trainer(d, 1e-2), *b = trainer(d, 1e-2);
    sw_fit_result r;
    ok(sw_trainer_fit(a, data, &(sw_fit_options){.epochs = 2, .checkpoint = path}, &r));
    ok(sw_trainer_fit(b, data, &(sw_fit_options){.epochs = 4, .checkpoint = path, .resume = path}, &r));
    assert_int_equal(r.epochs, 4);
    assert_int_equal(r.steps, 20);
    sw_trainer_free(a);
    sw_trainer_free(b);
    sw_dataset_close(data);
    sw_device_close(d);
}

static sw_status note_rates(void *context, const sw_event *e)
{
    double *const rates = context;
    if (e->kind == SW_EVENT_STEP && e->step < 32) rates[e->step] = e->lr;
    return SW_OK;
}

/* Two epochs and then four: schedules that know no end go on as if it had been four; a cycle that was over begins at its
 * highest rate and ends where cycles end. */
static void test_longer_schedules(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    for (int k = 0; k <= SW_SCHEDULE_ONECYCLE; k++) {
        char path[300];
        snprintf(path, sizeof path, "%s/longer-%d", folder, k);
        double rates[2][32];
        sw_trainer *t[3];
        const sw_trainer_options o = {.model = dropout_net, .batch = 20, .seed = 7, .optimizer = sw_sgd(.lr = 0.1),
                                      .schedule = {.kind = (sw_schedule_kind)k, .warmup = 2, .step_size = 4, .growth = 2,
                                                   .gamma = 0.7, .milestones = {4, 13}, .n_milestones = 2}};
        for (int i = 0; i < 3; i++) ok(sw_trainer_new(d, &o, &t[i]));
        sw_fit_options f = {.epochs = 4, .event = note_rates, .context = rates[0]};
        ok(sw_trainer_fit(t[0], data, &f, NULL));
        ok(sw_trainer_fit(t[1], data, &(sw_fit_options){.epochs = 2, .checkpoint = path}, NULL));
        f = (sw_fit_options){.epochs = 4, .checkpoint = path, .resume = path, .event = note_rates, .context = rates[1]};
        ok(sw_trainer_fit(t[2], data, &f, NULL));
        const bool ends = k == SW_SCHEDULE_COSINE || k == SW_SCHEDULE_LINEAR || k == SW_SCHEDULE_POLYNOMIAL ||
                          k == SW_SCHEDULE_ONECYCLE;
        for (int i = 11; i <= 20 && !ends; i++) assert_true(rates[0][i] == rates[1][i]);
        if (ends) assert_true(rates[1][11] > 0.09 && rates[1][20] < 0.02);
        for (int i = 12; i <= 20 && ends; i++) assert_true(rates[1][i] < rates[1][i - 1]);
        for (int i = 0; i < 3; i++) sw_trainer_free(t[i]);
    }
    sw_dataset_close(data);
    sw_device_close(d);
}

/* A damaged checkpoint: its predecessor is used; with both damaged the error names the file. */
static void test_damaged_checkpoint(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    char path[300], file[400];
    snprintf(path, sizeof path, "%s/damaged", folder);
    sw_trainer *a = trainer(d, 1e-2), *b = trainer(d, 1e-2), *c = trainer(d, 1e-2);
    ok(sw_trainer_fit(a, data, &(sw_fit_options){.epochs = 2, .checkpoint = path}, NULL));
    static const char *const names[] = {"state", "previous"};
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/checkpoint/%s.safetensors", path, names[i]);
        FILE *f = fopen(file, "r+");
        assert_non_null(f);
        fseek(f, -5, SEEK_END);
        fputc(0x5a, f); /* one byte of the tensors */
        fputc(0xa5, f);
        fclose(f);
        sw_trainer *t = i == 0 ? b : c;
        const sw_status st = sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 2, .checkpoint = path, .resume = path}, NULL);
        if (i == 0) {
            ok(st);
            assert_same_bits(a, b);
            snprintf(file, sizeof file, "%s/checkpoint/state.safetensors", path);
            f = fopen(file, "r+"); /* it was written anew: damage it again */
            fseek(f, -5, SEEK_END);
            fputc(0x5a, f);
            fputc(0xa5, f);
            fclose(f);
        } else {
            refuses(st, SW_ERR_FORMAT, "state.safetensors");
        }
    }
    sw_trainer_free(a);
    sw_trainer_free(b);
    sw_trainer_free(c);
    sw_dataset_close(data);
    sw_device_close(d);
}

/* Fine in training, but what it evaluates to is not a number. */
static sw_t sick_net(sw_t x)
{
    const sw_t y = sw_linear(sw_flatten(x), CLASSES, .name = "fc");
    return sw_valid(y) && !sw_graph_is_training(y.graph) ? sw_mul_scalar(y, (double)NAN) : y;
}

static void test_no_best(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    sw_trainer *t = NULL;
    sw_fit_result r;
    ok(sw_trainer_new(d, &(sw_trainer_options){.model = sick_net, .optimizer = sw_adamw(), .batch = 32}, &t));
    ok(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 2, .valid = data}, &r));
    assert_true(isnan(r.valid.loss));
    assert_int_equal(r.best_epoch, 0);
    sw_trainer_free(t);
    sw_dataset_close(data);
    sw_device_close(d);
}

static void test_nan(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    pixels[50][0][2][3] = NAN;
    sw_dataset *bad = NULL; /* opened before the NaN came: readers refuse it otherwise */
    int64_t order[N];
    for (int i = 0; i < N; i++) order[i] = i;
    ok(sw_dataset_subset(data, order, N, &bad));
    sw_trainer *t = trainer(d, 1e-2);
    const sw_status st = sw_trainer_fit(t, bad, &(sw_fit_options){.epochs = 1, .keep_order = true}, NULL);
    refuses(st, SW_ERR_DIVERGED, "step 3");
    if (!strstr(sw_error(), "input 'x'")) fail_msg("%s", sw_error());
    size_t n;
    double *values = snapshot(t, &n);
    sw_var_info v;
    for (int i = 0, at = 0; i < sw_params_count(sw_trainer_params(t)); i++) {
        ok(sw_params_info(sw_trainer_params(t), i, &v));
        for (int64_t k = 0; k < v.elements; k++, at++)
            if (v.kind != SW_VAR_BUFFER) assert_true(isfinite(values[at]));
    }
    free(values);
    sw_trainer_free(t);
    t = trainer(d, 1e-2);
    sw_fit_result r;
    ok(sw_trainer_fit(t, bad, &(sw_fit_options){.epochs = 1, .keep_order = true, .continue_on_nan = true}, &r));
    assert_int_equal(r.skipped, 1);
    assert_int_equal(r.steps, 4);
    sw_trainer_free(t);
    /* a rate that blows the weights up names a value of the network */
    sw_dataset_close(bad);
    sw_dataset_close(data);
    data = stripes();
    sw_trainer_new(d, &(sw_trainer_options){.model_name = "mlp:8", .optimizer = sw_sgd(.lr = 1e30), .batch = 32}, &t);
    refuses(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 20}, NULL), SW_ERR_DIVERGED, "at step ");
    sw_trainer_free(t);
    sw_dataset_close(data);
    sw_device_close(d);
}

static void test_early_stop(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    sw_trainer *t = NULL;
    /* a rate of zero never improves */
    ok(sw_trainer_new(d, &(sw_trainer_options){.model_name = "mlp:8", .optimizer = sw_sgd(.lr = SW_ZERO), .batch = 96}, &t));
    sw_fit_result r;
    ok(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 50, .valid = data, .patience = 3}, &r));
    assert_true(r.early);
    assert_int_equal(r.best_epoch, 1);
    assert_int_equal(r.epochs, 4);
    sw_trainer_free(t);
    sw_dataset_close(data);
    sw_device_close(d);
}

static sw_status note_steps(void *context, const sw_event *e)
{
    if (e->kind != SW_EVENT_STEP) return SW_OK;
    *(int64_t *)context = e->steps;
    return sw_dataset_error(SW_ERR_INTERRUPTED, "enough");
}

/* "Until I stop it" in epochs: their steps are more than an integer holds. */
static void test_endless(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    sw_trainer *t = trainer(d, 1e-2);
    int64_t steps = 0;
    const sw_fit_options o = {.epochs = INT64_MAX - 1, .event = note_steps, .context = &steps};
    refuses(sw_trainer_fit(t, data, &o, NULL), SW_ERR_INTERRUPTED, "enough");
    assert_true(steps == (int64_t)1 << 53);
    sw_trainer_free(t);
    sw_dataset_close(data);
    sw_device_close(d);
}

static void test_refuses(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    sw_trainer *t = NULL;
    refuses(sw_trainer_new(d, &(sw_trainer_options){0}, &t), SW_ERR_ARGUMENT, "model");
    ok(sw_trainer_new(d, &(sw_trainer_options){.model_name = "lenett"}, &t));
    refuses(sw_trainer_prepare(t, data), SW_ERR_ARGUMENT, "lenet");
    sw_trainer_free(t);
    ok(sw_trainer_new(d, &(sw_trainer_options){.model_name = "lenet"}, &t)); /* 6x6 images are too small for it */
    refuses(sw_trainer_prepare(t, data), SW_ERR_SHAPE, "conv2");
    sw_trainer_free(t);
    ok(sw_trainer_new(d, &(sw_trainer_options){.model_name = "mlp:8", .outputs = 2}, &t));
    refuses(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 1}, NULL), SW_ERR_DATA, "classes");
    sw_trainer_free(t);
    ok(sw_trainer_new(d, &(sw_trainer_options){.model_name = "mlp:8"}, &t));
    refuses(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 1, .monitor = "val_f1"}, NULL), SW_ERR_ARGUMENT, "val_f1");
    sw_trainer_free(t);
    /* weights of another network */
    char path[300];
    snprintf(path, sizeof path, "%s/other.safetensors", folder);
    ok(sw_trainer_new(d, &(sw_trainer_options){.model_name = "mlp:8"}, &t));
    ok(sw_trainer_prepare(t, data));
    ok(sw_trainer_save(t, path, NULL, 0));
    sw_trainer_free(t);
    ok(sw_trainer_new(d, &(sw_trainer_options){.model_name = "mlp:9"}, &t));
    ok(sw_trainer_prepare(t, data));
    refuses(sw_trainer_load(t, path, NULL), SW_ERR_DATA, "fc1.weight");
    sw_trainer_free(t);
    sw_dataset_close(data);
    sw_device_close(d);
}

/* A full disk ends the fit with a message, and what was saved before is still whole. */
static void test_disk_full(void **state)
{
    (void)state;
    sw_device *d = open_cpu();
    sw_dataset *data = stripes();
    char path[300];
    snprintf(path, sizeof path, "%s/full", folder);
    sw_trainer *t = trainer(d, 1e-2), *again = trainer(d, 1e-2);
    ok(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 1, .checkpoint = path}, NULL));
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 2000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const sw_status st = sw_trainer_fit(again, data, &(sw_fit_options){.epochs = 2, .checkpoint = path, .resume = path}, NULL);
    setrlimit(RLIMIT_FSIZE, &old);
    refuses(st, SW_ERR_IO, "safetensors");
    sw_trainer_free(again);
    again = trainer(d, 1e-2);
    ok(sw_trainer_fit(again, data, &(sw_fit_options){.epochs = 2, .checkpoint = path, .resume = path}, NULL));
    sw_trainer_free(again);
    sw_trainer_free(t);
    sw_dataset_close(data);
    sw_device_close(d);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/swoop-train-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_learns),          cmocka_unit_test(test_same_seed_same_bits),
        cmocka_unit_test(test_resume_to_the_bit), cmocka_unit_test(test_resume_longer),
        cmocka_unit_test(test_resume_each_rule), cmocka_unit_test(test_longer_schedules),
        cmocka_unit_test(test_damaged_checkpoint), cmocka_unit_test(test_nan), cmocka_unit_test(test_no_best),
        cmocka_unit_test(test_early_stop),      cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_disk_full),       cmocka_unit_test(test_endless),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
