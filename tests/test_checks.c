/* test_checks.c: what is found before the first step (sw_trainer_preflight), and the first wrong op of a step that is computed
 * beside another device. Nets with one fault each, by hand; a reference whose results are changed on the way. */
/* link: -Wl,--wrap=sw__ref_matmul,--wrap=sw__ref_custom,--wrap=sw__ref_batch_norm,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free */
#include "backend/ref/ref.h"
#include "no_memory.h"
#include "stripes.h"
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

#define N 48
#define CLASSES 3
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const sw_status ok_ = (call);                                                                                  \
        if (ok_ != SW_OK) fail_msg("%s: %s: %s", #call, sw_status_name(ok_), sw_error());                              \
    } while (0)

/* ---- a reference that can be wrong ------------------------------------------------------------------------------- */

static int wrong_op = -1; /* whose element `wrong_at` is off by `wrong_by` of itself */
static int64_t wrong_at;
static double wrong_by;

sw_status __real_sw__ref_matmul(const sw__ref_call *c);
sw_status __real_sw__ref_custom(const sw__ref_call *c);
sw_status __real_sw__ref_batch_norm(const sw__ref_call *c);
sw_status __wrap_sw__ref_matmul(const sw__ref_call *c);
sw_status __wrap_sw__ref_custom(const sw__ref_call *c);
sw_status __wrap_sw__ref_batch_norm(const sw__ref_call *c);

static sw_status spoil(const sw__ref_call *c, sw_status st)
{
    if ((int)c->d->op == wrong_op) ((double *)c->out[0])[wrong_at] *= 1 + wrong_by;
    return st;
}

sw_status __wrap_sw__ref_matmul(const sw__ref_call *c)
{
    return spoil(c, __real_sw__ref_matmul(c));
}

sw_status __wrap_sw__ref_custom(const sw__ref_call *c)
{
    return spoil(c, __real_sw__ref_custom(c));
}

sw_status __wrap_sw__ref_batch_norm(const sw__ref_call *c)
{
    return spoil(c, __real_sw__ref_batch_norm(c));
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static float x[N][1][6][6];
static int64_t y[N];

/* Stripes whose place is the class; sorted: class by class. */
static sw_dataset *stripes(bool sorted)
{
    return make_stripes(x, y, N, CLASSES, sorted, 1);
}

/* ---- nets, each with its fault ----------------------------------------------------------------------------------- */

static sw_op_id wobble_op, one_way_op;

static void wobble(const sw_host_call *c)
{
    const float *const a = c->arg[0].data;
    float *const b = c->arg[1].data;
    for (int64_t i = c->begin; i < c->end; i++) b[i] = a[i] * 1.5f + 0.25f;
}

static void wobble_grad(const sw_host_call *c)
{
    const float *const dy = c->arg[2].data;
    float *const dx = c->arg[3].data;
    for (int64_t i = c->begin; i < c->end; i++) dx[i] = dy[i] * 1.5f;
}

static sw_t wide(sw_t in)
{
    sw_t h = sw_relu(sw_batch_norm(sw_conv2d(in, 4, .kernel = 3, .pad = 1, .name = "conv"), .name = "bn"));
    h = sw_flatten(sw_max_pool2d(h, .kernel = 2));
    h = sw_dropout(sw_relu(sw_linear(h, 16, .name = "fc1")), 0.25);
    return sw_linear(sw_tanh(h), CLASSES, .name = "fc2");
}

static sw_t plain(sw_t in)
{
    return sw_linear(sw_relu(sw_linear(sw_flatten(in), 8, .name = "fc1")), CLASSES, .name = "fc2");
}

static sw_t own(sw_t in)
{
    sw_t h = sw_linear(sw_flatten(in), 8, .name = "fc1");
    h = sw_op_apply(wobble_op, &h, 1);
    return sw_linear(sw_relu(h), CLASSES, .name = "fc2");
}

static sw_t one_way(sw_t in)
{
    sw_t h = sw_linear(sw_flatten(in), 8, .name = "fc1");
    h = sw_op_apply(one_way_op, &h, 1);
    return sw_linear(h, CLASSES, .name = "fc2");
}

static sw_t cut(sw_t in)
{
    const sw_t h = sw_named(sw_floor(sw_linear(sw_flatten(in), 8, .name = "fc1")), "steps");
    return sw_linear(h, CLASSES, .name = "fc2");
}

static sw_t loose(sw_t in)
{
    sw_param(in.graph, "forgotten", 1, (int64_t[]){4}, (sw_init){0});
    return plain(in);
}

static sw_t dead(sw_t in)
{
    const sw_t h = sw_linear(sw_flatten(in), 8, .name = "fc1", .bias_init = {.kind = SW_INIT_CONSTANT, .a = -100});
    return sw_linear(sw_relu(h), CLASSES, .name = "fc2");
}

static sw_t faint(sw_t in)
{
    return sw_mul_scalar(plain(in), 1e-12);
}

static sw_t loud(sw_t in)
{
    return sw_mul_scalar(plain(in), 1e9);
}

static sw_t broken(sw_t in)
{
    return sw_add(plain(in), sw_log(sw_neg(sw_mean(sw_flatten(in), SW_AXIS(1), true))));
}

/* Own ops have only a host function here. */
static bool on_gpu(void)
{
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    return wish && strchr(wish, ':');
}

/* ---- preflight --------------------------------------------------------------------------------------------------- */

typedef struct found {
    int n[3];
    char text[8000];
} found;

static void collect(void *context, const sw_finding *f)
{
    found *const all = context;
    const size_t n = strlen(all->text);
    all->n[f->level]++;
    snprintf(all->text + n, sizeof all->text - n, "%s: %s\n", f->check, f->message);
}

static sw_status look(const sw_trainer_options *o, const sw_dataset *d, bool keep_order, found *all)
{
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    sw_device *device = NULL;
    sw_trainer *t = NULL;
    *all = (found){.n = {0}};
    OK(sw_device_open(wish ? wish : "cpu", NULL, &device));
    OK(sw_trainer_new(device, o, &t));
    const sw_status st = sw_trainer_preflight(t, d, keep_order, collect, all);
    sw_trainer_free(t);
    sw_device_close(device);
    return st;
}

static const sw_param_group frozen[] = {{"fc1.*", .frozen = true}};

static void test_findings(void **state)
{
    (void)state;
    static const struct {
        sw_model_fn model;
        const char *part[2]; /* of the findings; NULL: there is none */
        sw_status status;
    } cases[] = {
        {wide, {NULL, NULL}, SW_OK},
        {plain, {NULL, NULL}, SW_OK},
        {own, {NULL, NULL}, SW_OK},
        {cut, {"gradient: parameter fc1.weight has no gradient: floor 'steps' (%", "parameter fc1.bias"}, SW_OK},
        {loose, {"parameter forgotten has no gradient: the loss does not depend on it", NULL}, SW_OK},
        {dead, {"relu: a relu after 'fc1' (%", "the first gradient of fc1.weight is 0 in every element"}, SW_OK},
        {faint, {"the first gradient of fc1.weight vanishes", "fc2.weight vanishes"}, SW_OK},
        {loud, {"the first gradient of fc1.weight explodes", "fc2.weight explodes"}, SW_OK},
        {broken, {"loss: the loss of the first batch is ", "log"}, SW_ERR_DIVERGED},
    };
    sw_dataset *const d = stripes(false);
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        found all;
        const sw_trainer_options o = {.model = cases[i].model, .batch = 16};
        if (on_gpu() && cases[i].model == own) continue;
        const sw_status st = look(&o, d, false, &all);
        if (st != cases[i].status) fail_msg("case %d: %s: %s", (int)i, sw_status_name(st), sw_error());
        if (!cases[i].part[0] && *all.text) fail_msg("case %d: %s", (int)i, all.text);
        for (int k = 0; k < 2 && cases[i].part[k]; k++)
            if (!strstr(all.text, cases[i].part[k])) fail_msg("case %d: no '%s' in: %s", (int)i, cases[i].part[k], all.text);
        if (st != SW_OK && !strstr(all.text, sw_error())) fail_msg("%s is not in %s", sw_error(), all.text);
    }
    sw_dataset_close(d);
}

static void test_frozen_and_sorted(void **state)
{
    (void)state;
    found all;
    sw_dataset *const d = stripes(true);
    sw_trainer_options o = {.model = plain, .batch = 16, .optimizer = {.groups = frozen, .n_groups = 1}};
    OK(look(&o, d, false, &all));
    assert_true(all.n[SW_FINDING_NOTE] == 1 && all.n[SW_FINDING_WARNING] == 0);
    assert_non_null(strstr(all.text, "frozen: 2 of 4 parameters (296 of 323 values) are frozen: fc1.weight, fc1.bias"));
    o.freeze_epochs = 3;
    OK(look(&o, d, true, &all));
    assert_non_null(strstr(all.text, "are frozen for the first epochs"));
    assert_non_null(strstr(all.text, "all 16 labels of the first batch are class 0"));
    static const sw_param_group slow[] = {{"fc1.*", .frozen = true}, {"fc2.*", .lr_scale = 0.5}}; /* which is not frozen */
    o.optimizer = (sw_optimizer){.groups = slow, .n_groups = 2};
    OK(look(&o, d, false, &all));
    assert_non_null(strstr(all.text, "frozen: 2 of 4 parameters (296 of 323 values) are frozen for the first epochs: "));
    o.freeze_epochs = 0;
    OK(look(&o, d, false, &all));
    assert_non_null(strstr(all.text, "frozen: 2 of 4 parameters (296 of 323 values) are frozen: "));
    sw_dataset_close(d);
}

/* ---- data of a callback, which nobody looked through before ------------------------------------------------------ */

static int fault;

static sw_status sample(void *context, int64_t index, void *to, void *target)
{
    float *const v = to;
    (void)context;
    for (int i = 0; i < 5; i++) v[i] = fault == 1 ? 0.5f : (float)((index * 7 + i * 3) % 11);
    if (fault == 2 && index == 3) v[4] = NAN;
    *(float *)target = fault == 3 ? INFINITY : fault == 4 ? 2.0f : (float)index;
    return SW_OK;
}

static void test_batch(void **state)
{
    (void)state;
    static const struct { int fault; sw_status status; const char *part; } cases[] = {
        {0, SW_OK, NULL},
        {1, SW_OK, "inputs: all the first batch's inputs are 0.5"},
        {2, SW_ERR_DATA, "inputs: the first batch's inputs are not finite: nan at element 4 of sample 3"},
        {3, SW_ERR_DATA, "labels: the first batch's target values are not finite: inf"},
        {4, SW_OK, "labels: all the first batch's target values are 2"},
    };
    const sw_dataset_callback c = {.name = "made up", .count = 20, .x_rank = 1, .x_shape = {5}, .target = SW_TARGET_VALUE,
                                   .get = sample};
    sw_dataset *d = NULL;
    OK(sw_dataset_from_callback(&c, &d));
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        found all;
        const sw_trainer_options o = {.model_name = "mlp:4", .batch = 20};
        fault = cases[i].fault;
        const sw_status st = look(&o, d, false, &all);
        if (st != cases[i].status) fail_msg("fault %d: %s: %s", fault, sw_status_name(st), all.text);
        if (cases[i].part && !strstr(all.text, cases[i].part)) fail_msg("fault %d: %s", fault, all.text);
        if (!cases[i].part && *all.text) fail_msg("fault %d: %s", fault, all.text);
    }
    fault = 0;
    sw_dataset_close(d);
}

static void test_class_without_samples(void **state)
{
    (void)state;
    found all;
    sw_dataset *const d = stripes(false);
    sw_dataset *part = NULL;
    const int64_t some[] = {0, 2, 3, 5, 6, 8}; /* no class 1 */
    OK(sw_dataset_subset(d, some, 6, &part));
    OK(look(&(sw_trainer_options){.model = plain, .batch = 4}, part, false, &all));
    assert_non_null(strstr(all.text, "1 of 3 classes have no training sample, class 1 the first"));
    sw_dataset_close(part);
    sw_dataset_close(d);
}

/* An op without backward stops before there is a first batch. */
static void test_no_backward(void **state)
{
    (void)state;
    found all;
    sw_dataset *const d = stripes(false);
    assert_int_equal(look(&(sw_trainer_options){.model = one_way, .batch = 4}, d, false, &all), SW_ERR_UNSUPPORTED);
    assert_non_null(strstr(sw_error(), "op 'checks_one_way' (%"));
    assert_non_null(strstr(sw_error(), "has no gradient"));
    sw_dataset_close(d);
}

/* The training after it is the training without it, to the bit: dropout, running statistics and all. */
static void test_changes_nothing(void **state)
{
    (void)state;
    sw_device *device = NULL;
    sw_trainer *t[2] = {NULL};
    sw_dataset *const d = stripes(false);
    OK(sw_device_open("cpu", &(sw_device_options){.threads = 1}, &device));
    for (int i = 0; i < 2; i++) {
        OK(sw_trainer_new(device, &(sw_trainer_options){.model = wide, .batch = 20, .seed = 3}, &t[i]));
        if (i == 1) OK(sw_trainer_preflight(t[i], d, false, NULL, NULL));
        OK(sw_trainer_fit(t[i], d, &(sw_fit_options){.epochs = 2}, NULL));
    }
    sw_params *const p = sw_trainer_params(t[0]), *const q = sw_trainer_params(t[1]);
    for (int i = 0; i < sw_params_count(p); i++) {
        static float a[4096], b[4096];
        sw_var_info v;
        OK(sw_params_info(p, i, &v));
        assert_true(v.elements <= 4096);
        OK(sw_params_get(p, i, SW_F32, a, v.elements));
        OK(sw_params_get(q, i, SW_F32, b, v.elements));
        if (memcmp(a, b, (size_t)v.elements * sizeof a[0]) != 0) fail_msg("%s differs", v.name);
    }
    sw_trainer_free(t[0]);
    sw_trainer_free(t[1]);
    sw_dataset_close(d);
    sw_device_close(device);
}

/* ---- shadow ------------------------------------------------------------------------------------------------------ */

static sw_status fit_beside(sw_model_fn model, const char *beside, sw_fit_result *r)
{
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    sw_device *device = NULL;
    sw_trainer *t = NULL;
    sw_dataset *const d = stripes(false);
    OK(sw_device_open(wish ? wish : "cpu", NULL, &device));
    const sw_trainer_options o = {.model = model, .batch = 20, .seed = 3, .ema = 0.9,
                                  .optimizer = {.kind = SW_ADAMW, .lr = 0.01, .clip_norm = 1, .decay_matrices = true}};
    OK(sw_trainer_new(device, &o, &t));
    const sw_status st =
        sw_trainer_fit(t, d, &(sw_fit_options){.steps = 4, .shadow_every = 2, .shadow = beside}, r);
    sw_trainer_free(t);
    sw_device_close(device);
    sw_dataset_close(d);
    return st;
}

static void test_shadow_agrees(void **state)
{
    (void)state;
    static const sw_model_fn models[] = {wide, plain, own};
    sw_fit_result r;
    for (size_t i = 0; i < SW_COUNT(models); i++) {
        if (on_gpu() && models[i] == own) continue;
        OK(fit_beside(models[i], NULL, &r));
        assert_int_equal(r.shadowed, 2);
    }
    OK(fit_beside(wide, "cpu", &r));
    assert_int_equal(fit_beside(plain, "nowhere", &r), SW_ERR_ARGUMENT);
}

/* The first wrong op is named, by what it gives from its own inputs: what follows from it is not. */
static void test_shadow_differs(void **state)
{
    (void)state;
    static const struct { sw_model_fn model; int op; int64_t at; double by; const char *part; } cases[] = {
        {plain, SW_OP_MATMUL, 5, 1e-3, "shadow of step 2: op matmul 'fc1' (%"},
        {wide, SW_OP_MATMUL, 17, -1e-2, "op matmul 'fc1' (%"},
        {own, SW_OP_CUSTOM, 3, 1e-2, "op custom 'checks_wobble' (%"},
        {own, SW_OP_CUSTOM_GRAD, 11, 0.5, "op custom_grad "},
        {wide, SW_OP_BATCH_NORM, 2, 0.1, "op batch_norm 'bn' (%"},
    };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        char element[32];
        sw_fit_result r;
        if (on_gpu() && cases[i].model == own) continue;
        wrong_op = cases[i].op;
        wrong_at = cases[i].at;
        wrong_by = cases[i].by;
        const sw_status st = fit_beside(cases[i].model, NULL, &r);
        wrong_op = -1;
        snprintf(element, sizeof element, ": element %d is ", (int)cases[i].at);
        if (st != SW_ERR_DEVICE || !strstr(sw_error(), cases[i].part) || !strstr(sw_error(), element) ||
            !strstr(sw_error(), " on ref from the same inputs; they may differ by "))
            fail_msg("case %d: %s: %s", (int)i, sw_status_name(st), sw_error());
        assert_int_equal(r.steps, 1); /* the step that would be wrong is not taken */
    }
}

/* ---- without memory --------------------------------------------------------------------------------------------------- */

static sw_status look_once(sw_trainer *t, const sw_dataset *d)
{
    return sw_trainer_preflight(t, d, true, NULL, NULL);
}

static sw_status step_beside(sw_trainer *t, const sw_dataset *d)
{
    return sw_trainer_fit(t, d, &(sw_fit_options){.steps = 1, .shadow_every = 1, .valid = d}, NULL);
}

static sw_status two_epochs(sw_trainer *t, const sw_dataset *d)
{
    return sw_trainer_fit(t, d, &(sw_fit_options){.epochs = 2, .valid = d}, NULL);
}

/* The allocation that fails, with all after it, is another each time: an error (or what can be done without), and nothing is
 * lost. */
static void run_out(sw_device *device, const sw_dataset *d, const sw_trainer_options *o,
                    sw_status (*work)(sw_trainer *t, const sw_dataset *d), long stride)
{
    bool enough = false;
    for (long n = 0; !enough; n += 1 + n / stride) {
        sw_trainer *t = NULL;
        const long before = live;
        OK(sw_trainer_new(device, o, &t));
        OK(sw_trainer_prepare(t, d));
        allocations_left = n;
        const sw_status st = work(t, d);
        enough = allocations_left > 0;
        allocations_left = -1;
        sw_trainer_free(t);
        if (enough ? st != SW_OK : st != SW_OK && st != SW_ERR_MEMORY) fail_msg("after %ld allocations: %s: %s", n, sw_status_name(st), sw_error());
        if (live != before) fail_msg("after %ld allocations: %ld are left", n, live - before);
        assert_true(n < 1000000);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    static const sw_param_group late[] = {{"fc1.*", .frozen = true}};
    sw_device *device = NULL;
    sw_dataset *const d = stripes(false);
    OK(sw_device_open("ref", NULL, &device));
    run_out(device, d, &(sw_trainer_options){.model = plain, .batch = 24}, look_once, 300);
    run_out(device, d, &(sw_trainer_options){.model = plain, .batch = 24, .ema = 0.9}, step_beside, 100);
    const sw_trainer_options o = {.model = plain, .batch = 24, .swa_start = 1, .freeze_epochs = 1,
                                  .optimizer = {.groups = late, .n_groups = 1}};
    run_out(device, d, &o, two_epochs, 300);
    sw_dataset_close(d);
    sw_device_close(device);
}

static int register_ops(void **state)
{
    (void)state;
    const sw_op_def whole = {.name = "checks_wobble", .n_in = 1, .n_out = 1, .shape = sw_same_shape,
                             .forward = {.host = wobble}, .backward = {.host = wobble_grad}};
    const sw_op_def half = {.name = "checks_one_way", .n_in = 1, .n_out = 1, .shape = sw_same_shape,
                            .forward = {.host = wobble}};
    setenv("SWOOP_LOG", "error", 1);
    return sw_op_register(&whole, &wobble_op) == SW_OK && sw_op_register(&half, &one_way_op) == SW_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_findings),      cmocka_unit_test(test_frozen_and_sorted), cmocka_unit_test(test_batch),
        cmocka_unit_test(test_class_without_samples), cmocka_unit_test(test_no_backward),
        cmocka_unit_test(test_changes_nothing), cmocka_unit_test(test_shadow_agrees), cmocka_unit_test(test_shadow_differs),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("checks", tests, register_ops, NULL);
}
