/* test_golden.c: twenty training steps of each network of golden_nets.h against PyTorch's float64 runs, on ref, on cpu and on opencl, or on
 * SWOOP_TEST_DEVICE alone.
 * Whole chain: model, gradient, passes, kernels, optimiser. Bounds: ref 1e-9 relative on losses; cpu 1e-4 on losses and
 * on first gradients (of each tensor's norm), final values within 1e-4 of each tensor's largest value; a GPU the same, and two runs give the same bits. */
/* timeout: 300 */
/* double: SWOOP_TEST_DEVICE=cuda:0 */
#include "golden_replay.h"
#include "graph/graph.h"
#include <unistd.h>

typedef struct golden_case {
    const golden_net *net;
    const char *device;
    double loss_bound, grad_bound, final_bound;
    double first_bound;  /* of the first loss */
    double *losses;      /* where they are wanted */
} golden_case;

/* The training graph, or (grads) one that outputs the gradient of every parameter under its name. */
static sw_graph *build(const golden_case *c, const sw_safetensors *f, bool grads)
{
    sw_graph *g = build_loss(c->net, f);
    const sw_t loss = sw_graph_output(g, "loss");
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

static double distance_of_largest(const double *a, const float *b, int64_t n)
{
    double largest = 1e-30, most = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        most = fmax(most, fabs(a[i] - (double)b[i]));
    }
    return most / largest;
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
    char what[80];
    snprintf(what, sizeof what, "%s on %s", c->net->file, c->device);
    golden_run r = {.f = open_golden(c->net->file)};
    ok(sw_device_open(c->device, NULL, &r.d));
    start_run(&r, build(c, r.f, false));
    check_gradients_of(&r, build(c, r.f, true), 1e-30, c->grad_bound, what);
    const double *want = tensor(r.f, "", "loss64")->data;
    double worst = 0;
    for (int s = 0; s < STEPS; s++) {
        const double loss = run_step(&r, c->net, s), e = fabs(loss - want[s]) / fabs(want[s]);
        if (c->losses) c->losses[s] = loss;
        if (!(e <= (s == 0 ? c->first_bound : c->loss_bound)))
            fail_msg("%s: step %d: loss %.12g, not %.12g (%g)", what, s, loss, want[s], e);
        worst = fmax(worst, e);
    }
    print_message("%s: losses within %.2g\n", what, worst);
    check_final(c, r.params, r.f);
    end_run(&r);
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
    sw_safetensors *const f = open_golden(name), *last = NULL;
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
