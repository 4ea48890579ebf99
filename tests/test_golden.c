/* test_golden.c: twenty training steps of each network of golden_nets.h against PyTorch's float64 runs, on ref, on cpu and on opencl, or on
 * SWOOP_TEST_DEVICE alone.
 * Whole chain: model, gradient, passes, kernels, optimiser. Bounds: ref 1e-9 relative on losses; cpu 1e-4 on losses and
 * on first gradients (of each tensor's norm), final values within 1e-4 of each tensor's largest value; a GPU the same, and two runs give the same bits. */
/* timeout: 300 */
/* double: SWOOP_TEST_DEVICE=cuda:0 */
#include "golden_nets.h"
#include "graph/graph.h"
#include "swoop/swoop.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#define STEPS 20

typedef struct golden_case {
    const golden_net *net;
    const char *device;
    double loss_bound, grad_bound, final_bound;
    double first_bound;  /* of the first loss */
    double *losses;      /* where they are wanted */
} golden_case;

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s: %s", sw_status_name(st), sw_error());
}

static const sw_array *tensor(const sw_safetensors *f, const char *prefix, const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const sw_safetensors_info *i = sw_safetensors_find(f, full);
    if (!i) fail_msg("no tensor %s", full);
    return &i->array;
}

/* The training graph, or (grads) one that outputs the gradient of every parameter under its name. */
static sw_graph *build(const golden_case *c, const sw_safetensors *f, bool grads)
{
    sw_graph *g = NULL;
    ok(sw_graph_new(&g));
    const sw_array *x = tensor(f, "", "x"), *y = tensor(f, "", "y");
    const sw_t in = sw_input(g, "x", x->dtype, x->rank - 1, x->shape + 1);
    const sw_t answer = sw_input(g, "y", y->dtype, y->rank - 1, y->shape + 1);
    const sw_t loss = sw_output(c->net->loss(sw_model_build(c->net->model, in, c->net->outputs), answer), "loss");
    ok(sw_graph_status(g));
    if (!grads) {
        ok(sw_optimizer_apply(&c->net->optimizer, loss, NULL, 0));
        return g;
    }
    sw_t params[128], grad[128];
    const int n = sw_graph_variables(g, SW_VAR_PARAM, params, 128);
    ok(sw_grad(loss, params, n, grad));
    g->n_assigns = 0; /* the running statistics must not move twice */
    for (int i = 0; i < n; i++) sw_output(grad[i], sw_name(params[i]));
    ok(sw_graph_status(g));
    return g;
}

static void load_init(sw_params *p, const sw_safetensors *f)
{
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        ok(sw_params_info(p, i, &v));
        if (v.kind == SW_VAR_STATE) continue;
        const sw_array *a = tensor(f, "init.", v.name);
        ok(sw_params_set(p, i, a->dtype, a->data, v.elements));
    }
}

static void set_batch(sw_program *p, const sw_safetensors *f, int step)
{
    const sw_array *x = tensor(f, "", "x"), *y = tensor(f, "", "y");
    const int64_t nx = sw_array_count(x) / STEPS, ny = sw_array_count(y) / STEPS;
    const size_t bx = (size_t)nx * sw_dtype_size(x->dtype), by = (size_t)ny * sw_dtype_size(y->dtype);
    ok(sw_program_set(p, sw_program_input(p, "x"), x->dtype, (const char *)x->data + (size_t)step * bx, nx));
    ok(sw_program_set(p, sw_program_input(p, "y"), y->dtype, (const char *)y->data + (size_t)step * by, ny));
}

static void set_scalar(sw_program *p, const char *name, double v)
{
    const int i = sw_program_input(p, name);
    if (i >= 0) ok(sw_program_set(p, i, SW_F64, &v, 1));
}

/* Largest |a - b| relative to the norm of b. */
static double distance_of_norm(const double *a, const float *b, int64_t n)
{
    double norm = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        norm += (double)b[i] * (double)b[i];
        most = fmax(most, fabs(a[i] - (double)b[i]));
    }
    return most / fmax(sqrt(norm), 1e-30);
}

static double distance_of_largest(const double *a, const float *b, int64_t n)
{
    double largest = 1e-30, most = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        most = fmax(most, fabs(a[i] - (double)b[i]));
    }
    return most / largest;
}

static void check_gradients(const golden_case *c, sw_device *d, sw_params *params, const sw_safetensors *f)
{
    sw_graph *g = build(c, f, true);
    sw_program *p = NULL;
    ok(sw_compile(g, d, &(sw_compile_options){.params = params}, &p));
    sw_graph_free(g);
    set_batch(p, f, 0);
    ok(sw_program_run(p));
    double worst = 0;
    for (int i = 0;; i++) {
        sw_var_info v;
        if (sw_program_output_info(p, i, &v) != SW_OK) break;
        if (strcmp(v.name, "loss") == 0) continue;
        double *grad = malloc((size_t)v.elements * sizeof *grad);
        ok(sw_program_get(p, i, SW_F64, grad, v.elements));
        const double e = distance_of_norm(grad, tensor(f, "grad0.", v.name)->data, v.elements);
        if (e > c->grad_bound) fail_msg("%s on %s: gradient of %s is %g off", c->net->file, c->device, v.name, e);
        worst = fmax(worst, e);
        free(grad);
    }
    print_message("%s on %s: first gradients within %.2g\n", c->net->file, c->device, worst);
    sw_program_free(p);
}

static void check_final(const golden_case *c, sw_params *params, const sw_safetensors *f)
{
    double worst = 0;
    for (int i = 0; i < sw_params_count(params); i++) {
        sw_var_info v;
        ok(sw_params_info(params, i, &v));
        if (v.kind == SW_VAR_STATE) continue;
        const sw_array *want = tensor(f, "final.", v.name);
        double *have = malloc((size_t)v.elements * sizeof *have);
        ok(sw_params_get(params, i, SW_F64, have, v.elements));
        if (v.dtype == SW_I64) {
            assert_int_equal(have[0], *(const int64_t *)want->data);
        } else {
            const double e = distance_of_largest(have, want->data, v.elements);
            if (e > c->final_bound) fail_msg("%s on %s: final %s is %g off", c->net->file, c->device, v.name, e);
            worst = fmax(worst, e);
        }
        free(have);
    }
    print_message("%s on %s: final values within %.2g of each tensor's largest\n", c->net->file, c->device, worst);
}

static void replay(const golden_case *c)
{
    char path[512];
    snprintf(path, sizeof path, "%s/golden/%s.safetensors", SWOOP_TEST_DATA, c->net->file);
    sw_safetensors *f = NULL;
    sw_device *d = NULL;
    sw_params *params = NULL;
    sw_program *p = NULL;
    ok(sw_safetensors_open(path, &f));
    ok(sw_device_open(c->device, NULL, &d));
    sw_graph *g = build(c, f, false);
    ok(sw_params_new(d, g, 0, &params));
    ok(sw_compile(g, d, &(sw_compile_options){.params = params}, &p));
    sw_graph_free(g);
    load_init(params, f);
    check_gradients(c, d, params, f);
    const double *want = tensor(f, "", "loss64")->data, *rates = tensor(f, "", "lr")->data;
    double worst = 0;
    for (int s = 0; s < STEPS; s++) {
        double lr, bias1, bias2, loss;
        sw_optimizer_scalars(&c->net->optimizer, s, rates[s], &lr, &bias1, &bias2);
        set_batch(p, f, s);
        set_scalar(p, SW_INPUT_LR, lr);
        set_scalar(p, SW_INPUT_BIAS1, bias1);
        set_scalar(p, SW_INPUT_BIAS2, bias2);
        ok(sw_program_run(p));
        ok(sw_program_get(p, sw_program_output(p, "loss"), SW_F64, &loss, 1));
        const double e = fabs(loss - want[s]) / fabs(want[s]);
        if (c->losses) c->losses[s] = loss;
        if (!(e <= (s == 0 ? c->first_bound : c->loss_bound)))
            fail_msg("%s on %s: step %d: loss %.12g, not %.12g (%g)", c->net->file, c->device, s, loss, want[s], e);
        worst = fmax(worst, e);
    }
    print_message("%s on %s: losses within %.2g\n", c->net->file, c->device, worst);
    check_final(c, params, f);
    sw_program_free(p);
    sw_params_free(params);
    sw_device_close(d);
    sw_safetensors_close(f);
}

#define REF 1e-9, 1e-6, 1e-6, 1e-9, NULL /* gradients and final values are stored in f32 */
#define CPU 1e-4, 1e-4, 1e-4, 1e-4, NULL
#define GPU 1e-3, 1e-4, 1e-4, 1e-5, NULL

static void test_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_NETS; i++) replay(&(golden_case){&golden_nets[i], "ref", REF});
}

static void test_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_NETS; i++) replay(&(golden_case){&golden_nets[i], "cpu", CPU});
}

/* On the device that is named, or the first of OpenCL, where there is one; and again, with inputs on the way beside what
 * runs: the same bits. */
static void test_gpu(void **state)
{
    (void)state;
    const char *const wish = getenv("SWOOP_TEST_DEVICE"), *const id = wish ? wish : "opencl:0";
    sw_device *d = NULL;
    if (sw_device_open(id, NULL, &d) != SW_OK) {
        if (wish) fail_msg("%s", sw_error());
        print_message("skipped: %s\n", sw_error());
        skip();
    }
    sw_device_close(d);
    double first[STEPS], again[STEPS];
    const size_t n = getenv("SWOOP_TEST_FEW") ? 1 : GOLDEN_NETS; /* tests/gpu/run -q */
    for (size_t i = 0; i < n; i++) {
        golden_case c = {&golden_nets[i], id, GPU};
        c.losses = first;
        replay(&c);
        c.losses = again;
        setenv("SWOOP_OPENCL_COPY_QUEUE", "1", 1);
        replay(&c);
        unsetenv("SWOOP_OPENCL_COPY_QUEUE");
        assert_memory_equal(first, again, sizeof first);
    }
}

/* The same through the command: a run file, the log's losses, the weights that it saves. */
static void replay_by_command(const char *name)
{
    char folder[] = "/tmp/swoop-golden-XXXXXX", command[1200], path[512], line[512];
    if (!mkdtemp(folder)) fail_msg("no temporary folder");
    snprintf(command, sizeof command, "cd '%s/golden' && '%s' train %s.yaml --device cpu --project '%s' -q", SWOOP_TEST_DATA,
             SWOOP_COMMAND, name, folder);
    assert_int_equal(system(command), 0);
    sw_safetensors *f = NULL, *last = NULL;
    snprintf(path, sizeof path, "%s/golden/%s.safetensors", SWOOP_TEST_DATA, name);
    ok(sw_safetensors_open(path, &f));
    const double *want = tensor(f, "", "loss64")->data;
    snprintf(path, sizeof path, "%s/train/log.txt", folder);
    FILE *log = fopen(path, "r");
    assert_non_null(log);
    int steps = 0;
    while (fgets(line, sizeof line, log)) {
        const char *const at = strstr(line, " step ");
        if (!at) continue;
        char *end;
        const long step = strtol(at + strlen(" step "), &end, 10);
        if (strncmp(end, " loss ", strlen(" loss ")) != 0) continue;
        const double loss = strtod(end + strlen(" loss "), NULL);
        assert_int_equal(step, ++steps);
        if (!(fabs(loss - want[step - 1]) <= 1e-4 * fabs(want[step - 1])))
            fail_msg("%s: step %ld: loss %.9g, not %.9g", name, step, loss, want[step - 1]);
    }
    fclose(log);
    assert_int_equal(steps, STEPS);
    snprintf(path, sizeof path, "%s/train/last.safetensors", folder);
    ok(sw_safetensors_open(path, &last));
    for (size_t i = 0; i < sw_safetensors_count(last); i++) {
        const sw_safetensors_info *a = sw_safetensors_at(last, i);
        const sw_array *b = tensor(f, "final.", a->name);
        const int64_t n = sw_array_count(b);
        if (b->dtype != SW_F32) continue;
        double *have = malloc((size_t)n * sizeof *have);
        for (int64_t k = 0; k < n; k++) have[k] = (double)((const float *)a->array.data)[k];
        if (!(distance_of_largest(have, b->data, n) <= 1e-4)) fail_msg("%s: final %s is off", name, a->name);
        free(have);
    }
    sw_safetensors_close(last);
    sw_safetensors_close(f);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void test_command(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_NETS; i++)
        if (golden_nets[i].command) replay_by_command(golden_nets[i].file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_cpu), cmocka_unit_test(test_gpu),
                                       cmocka_unit_test(test_command)};
    const struct CMUnitTest gpu[] = {cmocka_unit_test(test_gpu)};
    if (getenv("SWOOP_TEST_DEVICE")) return cmocka_run_group_tests(gpu, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
