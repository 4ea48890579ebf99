/* test_precision.c: mixed precision: which ops the pass casts and how, golden runs in bf16 and f16 beside PyTorch's f64, the
 * bytes that a plan saves, products in bf16 beside exact ones, loss scaling from overflow to resume. On the cpu and on
 * opencl:0, or on SWOOP_TEST_DEVICE alone. */
/* timeout: 120 */
/* double: SWOOP_TEST_DEVICE=cuda:0 */
#include "golden_replay.h"
#include "graph/graph.h"
#include "pass/pass.h"
#include "stripes.h"
#include <unistd.h>

/* ---- the table ------------------------------------------------------------------------------------------------------- */

typedef struct cast_case {
    const char *name;
    sw_t (*build)(sw_t half, sw_t full, sw_t param); /* [4, 4] each: a product, an input, a parameter */
    sw_dtype computes, gives;                        /* what the op reads and what its value is used as */
} cast_case;

static sw_t of_exp(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_exp(h); }
static sw_t of_log(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_log(h); }
static sw_t of_pow(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_pow(h, sw_const(h.graph, SW_F32, 3)); }
static sw_t of_sum(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_sum(h, SW_AXIS(1), false); }
static sw_t of_dot(sw_t h, sw_t f, sw_t p) { (void)h, (void)p; return sw_dot(f, f); }
static sw_t of_softmax(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_softmax(h, -1); }
static sw_t of_softmax_f32(sw_t h, sw_t f, sw_t p) { (void)h, (void)p; return sw_softmax(f, -1); }
static sw_t of_log_softmax(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_log_softmax(h, -1); }
static sw_t of_tanh(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_tanh(h); }
static sw_t of_relu(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_relu(h); }
static sw_t of_scaled(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_mul_scalar(h, 0.5); }
static sw_t of_two(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_add(h, h); }
static sw_t of_wider(sw_t h, sw_t f, sw_t p) { (void)p; return sw_add(h, f); }
static sw_t of_f32(sw_t h, sw_t f, sw_t p) { (void)h, (void)p; return sw_add(f, f); }
static sw_t of_param(sw_t h, sw_t f, sw_t p) { (void)f; return sw_mul(h, p); }
static sw_t of_statistic(sw_t h, sw_t f, sw_t p)
{
    (void)p;
    return sw_sub(h, sw_sum(f, SW_AXIS(1), true)); /* one number a row beside a whole activation */
}
static sw_t of_sort(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_sort(h, 1, false); } /* an op without a line */
static sw_t of_permute(sw_t h, sw_t f, sw_t p) { (void)f, (void)p; return sw_transpose(h, 0, 1); }

static const cast_case casts[] = {
    {"exp", of_exp, SW_F32, SW_F32},           {"log", of_log, SW_F32, SW_F32},
    {"pow", of_pow, SW_F32, SW_F32},           {"reduce_sum", of_sum, SW_F32, SW_F32},
    {"dot", of_dot, SW_BF16, SW_BF16},         {"softmax", of_softmax, SW_F32, SW_BF16},
    {"softmax", of_softmax_f32, SW_F32, SW_F32}, {"log_softmax", of_log_softmax, SW_F32, SW_F32},
    {"tanh", of_tanh, SW_BF16, SW_BF16},       {"max", of_relu, SW_BF16, SW_BF16},
    {"mul", of_scaled, SW_BF16, SW_BF16},      {"add", of_two, SW_BF16, SW_BF16},
    {"add", of_wider, SW_F32, SW_F32},         {"add", of_f32, SW_F32, SW_F32},
    {"mul", of_param, SW_BF16, SW_BF16},       {"sub", of_statistic, SW_F32, SW_BF16},
    {"sort", of_sort, SW_F32, SW_F32},         {"permute", of_permute, SW_BF16, SW_BF16},
};

/* The last node of this op: the one that the case has added. */
static const sw__node *last_of(const sw_graph *g, const char *op)
{
    for (uint32_t i = g->n_nodes; i-- > 1;)
        if (strcmp(sw__op_table[g->nodes[i].op].name, op) == 0) return &g->nodes[i];
    return NULL;
}

/* The value goes through a product's other side, so that what follows sees the type that it is used as. */
static void test_table(void **state)
{
    (void)state;
    const int64_t shape[2] = {4, 4};
    for (size_t i = 0; i < SW_COUNT(casts); i++) {
        sw_graph *g = NULL, *mixed = NULL;
        ok(sw_graph_new(&g));
        const sw_t x = sw_input(g, "x", SW_F32, 2, shape), p = sw_param(g, "p", 2, shape, (sw_init){0});
        const sw_t y = casts[i].build(sw_dot(x, x), x, p);
        sw_output(sw_copy(y), "y");
        ok(sw_graph_status(g));
        ok(sw_graph_autocast(g, SW_BF16, &mixed));
        const sw__node *const n = last_of(mixed, casts[i].name), *const used = last_of(mixed, "copy");
        assert_non_null(n);
        if (mixed->nodes[n->in[0]].dtype != casts[i].computes)
            fail_msg("case %zu, %s reads %s", i, casts[i].name, sw_dtype_name((sw_dtype)mixed->nodes[n->in[0]].dtype));
        if (used->dtype != casts[i].gives)
            fail_msg("case %zu, %s gives %s", i, casts[i].name, sw_dtype_name((sw_dtype)used->dtype));
        assert_int_equal(sw_type(sw_graph_output(mixed, "y")), SW_F32);
        sw_graph_free(mixed);
        sw_graph_free(g);
    }
    assert_string_equal(sw__precision_rule(SW_OP_CONV), "half");
    assert_string_equal(sw__precision_rule(SW_OP_BATCH_NORM), "norm");
    assert_string_equal(sw__precision_rule(SW_OP_CROSS_ENTROPY), "f32");
    assert_string_equal(sw__precision_rule(SW_OP_ASSIGN), "f32");
    assert_string_equal(sw__precision_rule(SW_OP_CUSTOM), "f32");
}

/* Weights stay f32 and so do their gradients; what the pass cannot do is refused. */
static void test_gradient_types(void **state)
{
    (void)state;
    sw_graph *g = NULL, *mixed = NULL;
    ok(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 2, (int64_t[]){2, 8});
    sw_output(sw_mean(sw_square(sw_model_build("mlp:4", x, 3)), SW_ALL_AXES, false), "loss");
    assert_int_equal(sw_graph_autocast(g, SW_F64, &mixed), SW_ERR_ARGUMENT);
    assert_int_equal(sw_graph_autocast(NULL, SW_F16, &mixed), SW_ERR_ARGUMENT);
    ok(sw_graph_autocast(g, SW_F16, &mixed));
    sw_graph_free(g);
    sw_t params[8], grad[8];
    const int n = sw_graph_variables(mixed, SW_VAR_PARAM, params, 8);
    ok(sw_grad(sw_graph_output(mixed, "loss"), params, n, grad));
    for (int i = 0; i < n; i++) {
        assert_int_equal(sw_type(params[i]), SW_F32);
        assert_int_equal(sw_type(grad[i]), SW_F32);
    }
    assert_false(sw_valid(sw_graph_output(mixed, "nothing")));
    const sw_optimizer sgd = sw_sgd(.lr = 0.1);
    ok(sw_optimizer_apply(&sgd, sw_graph_output(mixed, "loss"), NULL, 0));
    assert_int_equal(sw_graph_autocast(mixed, SW_F16, &g), SW_ERR_ARGUMENT);
    sw_graph_free(mixed);
}

/* ---- golden runs ------------------------------------------------------------------------------------------------------ */

/* Half of a unit in the last place is 2^-9 in bf16, 2^-12 in f16: losses follow within 16 of them on the first step, and
 * trajectories part slowly. Gradients of the first step: relative to each tensor's norm; a relu that flips counts whole. */
static const struct { sw_dtype type; double first, rest, grad; } halves[] = {
    {SW_BF16, 0.02, 0.06, 0.25},
    {SW_F16, 0.004, 0.04, 0.1},
};

/* Networks whose gradients are further off, and by how much. */
static const struct { const char *file; double grad; } further[] = {
    {"unet", 0.3}, /* group norm is made of ops that round between kernels */
};

static double gradient_bound(const golden_net *net, int h)
{
    for (size_t i = 0; i < SW_COUNT(further); i++)
        if (strcmp(further[i].file, net->file) == 0) return further[i].grad;
    return halves[h].grad;
}

static sw_graph *build(const golden_net *net, const sw_safetensors *f, sw_dtype half, bool grads)
{
    sw_graph *const g = build_loss(net, f), *mixed = NULL;
    ok(sw_graph_autocast(g, half, &mixed));
    sw_graph_free(g);
    const sw_t loss = sw_graph_output(mixed, "loss");
    if (!grads) {
        sw_optimizer o = net->optimizer;
        o.skip_nonfinite = true;
        if (half == SW_F16) o.loss_scale = 65536;
        ok(sw_optimizer_apply(&o, loss, NULL, 0));
        return mixed;
    }
    sw_t params[128], grad[128];
    const int n = sw_graph_variables(mixed, SW_VAR_PARAM, params, 128);
    const double scale = half == SW_F16 ? 65536 : 1;
    ok(sw_grad(sw_mul_scalar(loss, scale), params, n, grad));
    mixed->n_assigns = 0;
    for (int i = 0; i < n; i++) sw_output(sw_mul_scalar(grad[i], 1 / scale), sw_name(params[i]));
    ok(sw_graph_status(mixed));
    return mixed;
}

/* Twenty steps; one that overflows f16 is done again with the smaller scale, as nothing else has changed. */
static void replay(const golden_net *net, int h, const char *device)
{
    char what[80];
    snprintf(what, sizeof what, "%s in %s on %s", net->file, sw_dtype_name(halves[h].type), device);
    golden_run r = {.f = open_golden(net->file)};
    ok(sw_device_open(device, NULL, &r.d));
    start_run(&r, build(net, r.f, halves[h].type, false));
    if (strcmp(device, "cpu") == 0)
        check_gradients_of(&r, build(net, r.f, halves[h].type, true), 1e-3, gradient_bound(net, h), what);
    const double *want = tensor(r.f, "", "loss64")->data;
    double worst = 0;
    int again = 0;
    for (int s = 0; s < STEPS; s++) {
        const double loss = run_step(&r, net, s), e = fabs(loss - want[s]) / fabs(want[s]);
        if (halves[h].type == SW_F16 && get_scalar(r.p, SW_OUTPUT_FINITE) == 0) {
            assert_true(++again < 12);
            s--;
            continue;
        }
        if (!(e <= (s == 0 ? halves[h].first : halves[h].rest)))
            fail_msg("%s: step %d: loss %.9g, not %.9g (%g)", what, s, loss, want[s], e);
        worst = fmax(worst, e);
    }
    print_message("%s: losses within %.2g, %d overflows\n", what, worst, again);
    end_run(&r);
}

static const char *const *devices(void)
{
    static const char *list[3];
    sw_device *d = NULL;
    list[0] = getenv("SWOOP_TEST_DEVICE");
    if (list[0]) return list;
    list[0] = "cpu";
    if (sw_device_open("opencl:0", NULL, &d) == SW_OK) list[1] = "opencl:0";
    sw_device_close(d);
    return list;
}

static void test_runs(void **state)
{
    (void)state;
    const bool every = getenv("SWOOP_TEST_ALL") != NULL; /* a GPU compiles for a long time: two networks, one of them in both */
    for (const char *const *d = devices(); *d; d++)
        for (size_t i = 0; i < GOLDEN_NETS; i++)
            for (int h = 0; h < (int)SW_COUNT(halves); h++)
                if (every || strcmp(*d, "cpu") == 0 || i == 0 || (i == 1 && h == 0)) replay(&golden_nets[i], h, *d);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------------ */

static void plan_of(const char *model, sw_dtype half, int64_t n, sw_plan *out)
{
    sw_graph *g = NULL, *mixed = NULL;
    sw_device *d = NULL;
    ok(sw_device_open("null", NULL, &d));
    ok(sw_graph_new(&g));
    sw_graph_set_training(g, true);
    const sw_t x = sw_input(g, "x", SW_F32, 4, (int64_t[]){n, 3, 32, 32}), y = sw_input(g, "y", SW_I64, 1, &n);
    sw_output(sw_cross_entropy(sw_model_build(model, x, 10), y), "loss");
    ok(sw_graph_status(g));
    if (half != SW_F32) {
        ok(sw_graph_autocast(g, half, &mixed));
        sw_graph_free(g);
        g = mixed;
    }
    const sw_optimizer sgd = sw_sgd(.lr = 0.1);
    ok(sw_optimizer_apply(&sgd, sw_graph_output(g, "loss"), NULL, 0));
    ok(sw_plan_graph(g, d, NULL, out));
    sw_graph_free(g);
    sw_device_close(d);
}

/* What a sample adds to a step is half as much: activations. Weights and their moments stay what they are. */
static void test_bytes(void **state)
{
    (void)state;
    double sample[2];
    sw_plan few[2], many[2];
    for (int h = 0; h < 2; h++) {
        plan_of("resnet18", h ? SW_BF16 : SW_F32, 64, &few[h]);
        plan_of("resnet18", h ? SW_BF16 : SW_F32, 128, &many[h]);
        sample[h] = (double)(many[h].arena - few[h].arena) / 64 / 1048576;
    }
    print_message("resnet18, 32 x 32: a sample takes %.2f MiB in f32, %.2f in bf16\n", sample[0], sample[1]);
    assert_int_equal(few[0].params, few[1].params);
    assert_int_equal(few[0].state, few[1].state);
    assert_true(sample[1] < 0.55 * sample[0]);
}

/* ---- stochastic rounding ----------------------------------------------------------------------------------------------- */

/* Of many copies of a number each is one of its two neighbours, their mean is the number, and numbers that 16 bits hold stay. */
static void test_by_chance(void **state)
{
    (void)state;
    static const struct { sw_dtype type; float x, low, high; } cases[] = {
        {SW_BF16, 1.0009765625f, 1.0f, 1.0078125f},      {SW_BF16, -1.0048828125f, -1.0078125f, -1.0f},
        {SW_BF16, 0.998046875f, 0.99609375f, 1.0f},      {SW_F16, 1.000244140625f, 1.0f, 1.0009765625f},
        {SW_F16, 0.99993896484375f, 0.99951171875f, 1.0f}, {SW_BF16, 3.0f, 3.0f, 3.0f}, {SW_F16, 0.0f, 0.0f, 0.0f},
    };
    enum { COPIES = 20000 };
    static float values[2][COPIES];
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        for (int run = 0; run < 2; run++) {
            sw_graph *g = NULL;
            sw_device *d = NULL;
            sw_program *p = NULL;
            const int64_t n = COPIES;
            ok(sw_graph_new(&g));
            ok(sw_device_open("cpu", NULL, &d));
            sw_graph_set_seed(g, 5);
            const sw_t x = sw_expand(sw_input(g, "x", SW_F32, 1, (int64_t[]){1}), 1, &n);
            const sw_t y = sw__round_by_chance(x, cases[i].type, sw_const(g, SW_I64, 3), 7);
            sw_output(sw_cast(y, SW_F32), "y");
            ok(sw_graph_status(g));
            ok(sw_compile(g, d, NULL, &p));
            ok(sw_program_set(p, sw_program_input(p, "x"), SW_F32, &cases[i].x, 1));
            ok(sw_program_run(p));
            ok(sw_program_get(p, sw_program_output(p, "y"), SW_F32, values[run], n));
            sw_program_free(p);
            sw_device_close(d);
            sw_graph_free(g);
        }
        assert_memory_equal(values[0], values[1], sizeof values[0]);
        double sum = 0;
        for (int k = 0; k < COPIES; k++) {
            assert_true(values[0][k] == cases[i].low || values[0][k] == cases[i].high);
            sum += (double)values[0][k];
        }
        const double gap = (double)cases[i].high - (double)cases[i].low;
        assert_true(fabs(sum / COPIES - (double)cases[i].x) <= 0.015 * gap); /* four standard deviations */
    }
}

/* ---- loss scaling ------------------------------------------------------------------------------------------------------ */

enum { SAMPLES = 60, CLASSES = 3, BATCH = 20 };
static float pixels[SAMPLES][1][6][6];
static int64_t labels[SAMPLES];

static sw_dataset *stripes(void)
{
    return make_stripes(pixels, labels, SAMPLES, CLASSES, false, 0.5f);
}

static sw_t net(sw_t x)
{
    const sw_t h = sw_relu(sw_batch_norm(sw_conv2d(x, 4, .kernel = 3, .pad = 1, .name = "conv"), .name = "bn"));
    return sw_linear(sw_flatten(sw_max_pool2d(h, .kernel = 2)), CLASSES, .name = "fc");
}

static sw_trainer *f16_trainer(sw_device *d, double scale, int64_t interval)
{
    sw_trainer *t = NULL;
    ok(sw_trainer_new(d, &(sw_trainer_options){.model = net, .precision = SW_PRECISION_F16, .batch = BATCH, .seed = 7,
                                               .optimizer = sw_adamw(.lr = 1e-2, .clip_norm = 1, .loss_scale = scale,
                                                                     .growth_interval = interval)}, &t));
    return t;
}

typedef struct seen { int64_t overflows, steps, stop; char first[800]; } seen;

static sw_status watch(void *context, const sw_event *e)
{
    seen *const s = context;
    if (e->kind == SW_EVENT_OVERFLOW && s->overflows++ == 0) snprintf(s->first, sizeof s->first, "%s", e->message);
    if (e->kind == SW_EVENT_STEP) {
        s->steps++;
        assert_true(isfinite(e->loss));
        if (s->stop && e->step == s->stop) return sw_dataset_error(SW_ERR_INTERRUPTED, "enough");
    }
    return SW_OK;
}

static double variable(sw_trainer *t, const char *name)
{
    double v[16];
    sw_var_info info;
    sw_params *const p = sw_trainer_params(t);
    ok(sw_params_info(p, sw_params_find(p, name), &info));
    assert_true(info.elements <= 16);
    ok(sw_params_get(p, sw_params_find(p, name), SW_F64, v, info.elements));
    return v[0];
}

/* From 2^30 every gradient overflows; the scale halves until none does, and the steps in between change nothing. Then it
 * doubles after each four steps, and falls back when that was too much. */
static void test_overflow(void **state)
{
    (void)state;
    sw_device *d = NULL;
    ok(sw_device_open(devices()[0], NULL, &d));
    sw_dataset *data = stripes();
    sw_trainer *t = f16_trainer(d, 0x1p30, 4);
    seen s = {0};
    sw_fit_result r;
    ok(sw_trainer_fit(t, data, &(sw_fit_options){.epochs = 20, .event = watch, .context = &s}, &r));
    print_message("%s\n%d overflows, %d steps, loss %g, scale %g\n", s.first, (int)r.overflows, (int)r.steps, r.loss,
                  r.loss_scale);
    for (int i = 0; i < 5; i++) {
        static const char *const parts[] = {"overflow at step 1 with loss scale 1.07374e+09", "becomes 5.36871e+08", "infinite",
                                            "f16[", "at 'fc."};
        if (!strstr(s.first, parts[i])) fail_msg("no \"%s\" in \"%s\"", parts[i], s.first);
    }
    assert_true(r.overflows >= 8 && r.overflows == s.overflows && r.skipped == r.overflows);
    assert_int_equal(r.steps + r.overflows, 20 * SAMPLES / BATCH);
    assert_int_equal(r.steps, s.steps);
    assert_true(r.loss < 0.5 && r.loss_scale < 0x1p28);
    const double scale = variable(t, "loss_scale");
    assert_true(frexp(scale, &(int){0}) == 0.5); /* still a power of two */
    sw_trainer_free(t);
    /* the first step that counts is the first step: Adam's bias corrections did not move on */
    t = f16_trainer(d, 0x1p30, 2000);
    sw_trainer *u = f16_trainer(d, 64, 2000);
    ok(sw_trainer_prepare(t, data));
    ok(sw_trainer_prepare(u, data));
    double loss = 0, same = 0;
    while (sw_trainer_steps_done(t) == 0) ok(sw_trainer_step(t, pixels, labels, BATCH, &loss));
    ok(sw_trainer_step(u, pixels, labels, BATCH, &same));
    assert_true(fabs(loss - same) < 1e-6); /* before the update; the statistics of the norm do not enter it */
    assert_true(fabs(variable(t, "conv.bias.exp_avg") - variable(u, "conv.bias.exp_avg")) < 1e-3);
    sw_trainer_free(t);
    sw_trainer_free(u);
    sw_dataset_close(data);
    sw_device_close(d);
}

/* Stopped while the scale is on its way, and resumed in a new trainer: the same bits, scale and count among them. */
static void test_resume(void **state)
{
    (void)state;
    sw_device *d = NULL;
    ok(sw_device_open(devices()[0], NULL, &d));
    sw_dataset *data = stripes();
    char folder[] = "/tmp/swoop-precision-XXXXXX", command[256];
    if (!mkdtemp(folder)) fail_msg("no temporary folder");
    sw_trainer *whole = f16_trainer(d, 0x1p30, 4), *first = f16_trainer(d, 0x1p30, 4), *second = f16_trainer(d, 0x1p30, 4);
    seen all = {0}, part = {.stop = 23}, rest = {0};
    sw_fit_result a, b;
    ok(sw_trainer_fit(whole, data, &(sw_fit_options){.epochs = 12, .event = watch, .context = &all}, &a));
    sw_fit_options o = {.epochs = 12, .event = watch, .context = &part, .checkpoint = folder};
    assert_int_equal(sw_trainer_fit(first, data, &o, NULL), SW_ERR_INTERRUPTED);
    o.context = &rest;
    o.resume = folder;
    ok(sw_trainer_fit(second, data, &o, &b));
    assert_int_equal(a.overflows, b.overflows);
    assert_int_equal(a.steps, b.steps);
    sw_params *const x = sw_trainer_params(whole), *const y = sw_trainer_params(second);
    assert_int_equal(sw_params_count(x), sw_params_count(y));
    for (int i = 0; i < sw_params_count(x); i++) {
        sw_var_info v;
        ok(sw_params_info(x, i, &v));
        double *p = malloc((size_t)v.elements * sizeof *p), *q = malloc((size_t)v.elements * sizeof *q);
        ok(sw_params_get(x, i, SW_F64, p, v.elements));
        ok(sw_params_get(y, sw_params_find(y, v.name), SW_F64, q, v.elements));
        if (memcmp(p, q, (size_t)v.elements * sizeof *p) != 0) fail_msg("%s differs", v.name);
        free(p);
        free(q);
    }
    sw_trainer_free(whole);
    sw_trainer_free(first);
    sw_trainer_free(second);
    sw_dataset_close(data);
    sw_device_close(d);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_gradient_types),
                                     cmocka_unit_test(test_runs), cmocka_unit_test(test_bytes),
                                     cmocka_unit_test(test_by_chance), cmocka_unit_test(test_overflow),
                                     cmocka_unit_test(test_resume)};
    const struct CMUnitTest device[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_overflow)};
    if (getenv("SWOOP_TEST_DEVICE")) return cmocka_run_group_tests(device, NULL, NULL);
    return cmocka_run_group_tests(all, NULL, NULL);
}
