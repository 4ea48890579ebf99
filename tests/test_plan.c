/* test_plan.c: sw_run_plan and `swoop plan`: bytes and parameters against what a trainer allocates and against counts by
 * hand, the largest batch against plans beside it, each launch told once, and what is said of bad requests. */
#include "base/base.h"
#include "swoop/swoop.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

static sw_config *config(const char *model, const char *batch)
{
    sw_config *c = NULL;
    assert_int_equal(sw_config_new(&c), SW_OK);
    assert_int_equal(sw_config_set(c, "model", model), SW_OK);
    assert_int_equal(sw_config_set(c, "batch_size", batch), SW_OK);
    assert_int_equal(sw_config_set(c, "num_classes", "10"), SW_OK);
    return c;
}

typedef struct seen {
    int n, convolutions;
    double flops;
    uint64_t workspace; /* the largest */
} seen;

static void see(void *context, const sw_plan_launch *l)
{
    seen *s = context;
    s->n++;
    s->convolutions += strcmp(l->kind, "conv") == 0;
    s->flops += l->flops;
    if (l->workspace > s->workspace) s->workspace = l->workspace;
    assert_non_null(l->name);
    assert_non_null(l->note);
}

/* LeNet has 61,706 parameters: 156 + 2,416 + 48,120 + 10,164 + 850. Adam keeps two numbers for each. */
static void test_lenet(void **state)
{
    (void)state;
    sw_config *c = config("lenet", "64");
    seen s = {0};
    const sw_plan_request q = {.device = "null", .rank = 3, .shape = {1, 28, 28}, .launch = see, .context = &s};
    sw_device_plan p;
    assert_int_equal(sw_run_plan(c, &q, &p), SW_OK);
    assert_int_equal(p.parameters, 61706);
    assert_int_equal(p.batch, 64);
    assert_in_range(p.plan.params, 61706 * 4, 61706 * 4 + 10 * 256);
    assert_in_range(p.plan.state, 2 * 61706 * 4, 2 * 61706 * 4 + 20 * 256);
    assert_true(p.plan.inputs >= 64 * (784 * 4 + 8));
    assert_int_equal(p.plan.total, p.plan.params + p.plan.buffers + p.plan.state + p.plan.inputs + p.plan.constants +
                                       p.plan.arena);
    assert_true(p.fits);
    assert_int_equal(s.n, p.plan.launches);
    assert_int_equal(s.convolutions, 2); /* the gradients are ops of their own */
    assert_true(s.flops > 0.999 * p.plan.flops && s.flops < 1.001 * p.plan.flops);
    assert_int_equal(s.workspace, p.plan.workspace);
    sw_config_free(c);
}

/* The same bytes as a trainer's that is made for it. */
static void test_as_trained(void **state)
{
    (void)state;
    sw_config *c = config("cnn:8,16", "32");
    const sw_plan_request q = {.device = "cpu", .rank = 3, .shape = {1, 8, 8}};
    sw_device_plan p;
    assert_int_equal(sw_run_plan(c, &q, &p), SW_OK);
    float *x = calloc(64 * 64, sizeof *x);
    int64_t *y = calloc(64, sizeof *y);
    for (int i = 0; i < 64; i++) y[i] = i % 10;
    sw_dataset *d = NULL;
    assert_int_equal(sw_dataset_from_memory(&(sw_array){.dtype = SW_F32, .rank = 4, .shape = {64, 1, 8, 8}, .data = x, .bytes = 64 * 64 * 4},
                                            &(sw_array){.dtype = SW_I64, .rank = 1, .shape = {64}, .data = y, .bytes = 64 * 8}, NULL, &d),
                     SW_OK);
    sw_device *dev = NULL;
    sw_trainer *t = NULL;
    assert_int_equal(sw_device_open("cpu", NULL, &dev), SW_OK);
    assert_int_equal(sw_trainer_new(dev, &(sw_trainer_options){.model_name = "cnn:8,16", .batch = 32,
                                                               .optimizer = sw_adamw(.lr = 1e-3, .weight_decay = 0.01, .decay_matrices = true)},
                                    &t), SW_OK);
    assert_int_equal(sw_trainer_prepare(t, d), SW_OK);
    const sw_plan *trained = sw_trainer_plan(t);
    assert_int_equal(p.plan.params, trained->params);
    assert_int_equal(p.plan.state, trained->state);
    assert_int_equal(p.plan.arena, trained->arena);
    assert_int_equal(p.plan.launches, trained->launches);
    sw_trainer_free(t);
    sw_device_close(dev);
    sw_dataset_close(d);
    free(x);
    free(y);
    sw_config_free(c);
}

/* null has 64 GiB: the batch that is found fits, one that is a sixteenth larger does not. */
static void test_largest(void **state)
{
    (void)state;
    sw_config *c = config("resnet18", "32");
    sw_plan_request q = {.device = "null", .rank = 3, .shape = {3, 64, 64}};
    sw_device_plan p, beside;
    assert_int_equal(sw_run_plan(c, &q, &p), SW_OK);
    assert_true(p.largest_batch > 100 && p.largest_batch < 100000);
    char text[32];
    for (int larger = 0; larger < 2; larger++) {
        snprintf(text, sizeof text, "%lld", (long long)(larger ? p.largest_batch + p.largest_batch / 16 : p.largest_batch));
        sw_config_free(c);
        c = config("resnet18", text);
        assert_int_equal(sw_run_plan(c, &q, &beside), SW_OK);
        assert_int_equal(beside.fits, !larger);
    }
    assert_true(beside.largest_batch >= p.largest_batch - p.largest_batch / 30 &&
                beside.largest_batch <= p.largest_batch + p.largest_batch / 30);
    sw_config_free(c);
    c = config("mlp:200000,200000", "1");
    assert_int_equal(sw_run_plan(c, &(sw_plan_request){.device = "null", .rank = 1, .shape = {10}}, &p), SW_OK);
    assert_false(p.fits);
    assert_int_equal(p.largest_batch, 0);
    sw_config_free(c);
}

/* Within a budget: the largest batch that is trained at once, recomputed if need be; one sample more is cut in micro-batches. */
static void test_largest_within(void **state)
{
    (void)state;
    static const char *const asked[] = {"4", "200"}; /* it does not depend on the batch that is asked for */
    sw_plan_request q = {.device = "null", .rank = 3, .shape = {3, 16, 16}};
    sw_device_plan p;
    int64_t largest[2];
    for (int i = 0; i < 2; i++) {
        sw_config *const c = config("resnet8:8,8,8", asked[i]);
        assert_int_equal(sw_config_set(c, "memory", "3M"), SW_OK);
        assert_int_equal(sw_run_plan(c, &q, &p), SW_OK);
        assert_true(p.fits && p.plan.total <= 3 << 20);
        largest[i] = p.largest_batch;
        sw_config_free(c);
    }
    assert_true(largest[0] > 8 && largest[0] < 200);
    assert_int_equal(largest[0], largest[1]);
    for (int more = 0; more < 2; more++) {
        char text[32];
        snprintf(text, sizeof text, "%d", (int)largest[0] + more);
        sw_config *const c = config("resnet8:8,8,8", text);
        assert_int_equal(sw_config_set(c, "memory", "3M"), SW_OK);
        assert_int_equal(sw_run_plan(c, &q, &p), SW_OK);
        assert_int_equal(p.micro_batch < p.batch, more);
        assert_int_equal(sw_config_set(c, "memory", ""), SW_OK);
        assert_int_equal(sw_run_plan(c, &q, &p), SW_OK);
        assert_true(p.plan.total > 3 << 20); /* it would not have fitted without recomputing */
        sw_config_free(c);
    }
}

/* RTX 4090: 24 GiB and 82.58 TFLOP/s as NVIDIA states them. */
static void test_catalogue(void **state)
{
    (void)state;
    sw_gpu_entry e;
    assert_int_equal(sw_gpu_find("rtx 4090", &e), SW_OK);
    assert_string_equal(e.model.name, "GeForce RTX 4090");
    assert_int_equal(e.model.capability, 89);
    assert_int_equal(e.model.memory, (uint64_t)24 << 30);
    assert_true(e.model.flops > 82e12 && e.model.flops < 83e12);
    assert_int_equal(sw_gpu_find("H100 pcie", &e), SW_OK);
    assert_string_equal(e.model.name, "H100 PCIe 80GB");
    assert_int_equal(sw_gpu_find("amd 7900 xtx", &e), SW_OK);
    assert_int_equal(e.model.capability, 0);
    assert_int_equal(sw_gpu_find("RTX 9999", &e), SW_ERR_ARGUMENT);
    assert_non_null(strstr(sw_error(), "TITAN RTX"));
    assert_int_equal(sw_gpu_find("", &e), SW_ERR_ARGUMENT);
    assert_true(sw_gpu_list(NULL, 0) > 60);
}

/* A device that is planned for plans as the real one would, and says what it is when more is wanted. */
static void test_planned(void **state)
{
    (void)state;
    sw_gpu_entry e;
    sw_device *d = NULL;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    sw_params *params = NULL;
    sw_plan plan;
    const char *const names[] = {"h100 pcie", "mi300x"};
    for (size_t i = 0; i < SW_COUNT(names); i++) {
        assert_int_equal(sw_gpu_find(names[i], &e), SW_OK);
        assert_int_equal(sw_device_open_planned(&e.model, false, &d), SW_OK);
        assert_string_equal(sw_device_info(d)->name, e.model.name);
        assert_int_equal(sw_device_info(d)->memory_total, e.model.memory);
        assert_int_equal(sw_graph_new(&g), SW_OK);
        const sw_t x = sw_input(g, "x", SW_F32, 2, (int64_t[]){32, 784});
        sw_output(sw_relu(sw_linear(x, 512, .name = "fc1")), "y");
        assert_int_equal(sw_plan_graph(g, d, NULL, &plan), SW_OK);
        assert_in_range(plan.params, (784 * 512 + 512) * 4, (784 * 512 + 512) * 4 + 512);
        assert_true(plan.flops >= 2.0 * 32 * 784 * 512);
        assert_int_equal(sw_params_new(d, g, 0, &params), SW_ERR_UNSUPPORTED);
        assert_non_null(strstr(sw_error(), e.model.name));
        assert_int_equal(sw_compile(g, d, NULL, &p), SW_ERR_UNSUPPORTED);
        sw_graph_free(g);
        sw_device_close(d);
    }
    assert_int_equal(sw_device_open_planned(NULL, true, &d), SW_ERR_ARGUMENT);
}

typedef struct engines { int convolutions, by_cudnn; } engines;

static void see_engine(void *context, const sw_plan_launch *l)
{
    engines *e = context;
    if (strncmp(l->kind, "conv", 4) != 0) return;
    e->convolutions++;
    e->by_cudnn += strstr(l->note, "cuDNN engine") != NULL;
}

/* The real cuDNN plans without a GPU: it has an engine for every convolution of ResNet-18 on a GPU that is not there. */
static void test_cudnn_plans(void **state)
{
    (void)state;
    sw_gpu_entry e;
    sw_config *c = config("resnet18", "32");
    engines by = {0};
    sw_plan_request q = {.rank = 3, .shape = {3, 32, 32}, .launch = see_engine, .context = &by, .gpu = &e.model};
    sw_device_plan with, own;
    assert_int_equal(sw_gpu_find("h100 pcie", &e), SW_OK);
    assert_int_equal(sw_run_plan(c, &q, &with), SW_OK);
    if (by.by_cudnn == 0) {
        fprintf(stderr, "skipped: there is no cuDNN\n");
        sw_config_free(c);
        skip();
    }
    assert_int_equal(by.convolutions, 3 * 20 - 1); /* the first needs no gradient of its input */
    assert_int_equal(by.by_cudnn, by.convolutions);
    by = (engines){0};
    q.own_kernels = true;
    assert_int_equal(sw_run_plan(c, &q, &own), SW_OK);
    assert_int_equal(by.by_cudnn, 0);
    assert_int_equal(own.plan.params, with.plan.params);
    sw_config_free(c);
}

static int shell(const char *arguments, char *text, size_t size)
{
    char line[600];
    snprintf(line, sizeof line, "'%s' plan %s 2>&1", SWOOP_COMMAND, arguments);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    text[fread(text, 1, size - 1, f)] = '\0';
    const int status = pclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_command(void **state)
{
    (void)state;
    static const struct { const char *arguments; int code; const char *says; } cases[] = {
        {"--model lenet --shape 1x28x28 --num-classes 10 --devices null,cpu", 0, "61 706 parameters"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --devices null --ops", 0, "conv2"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --devices null --json", 0, "\"params\": 24"},
        {"--model mlp:200000,200000 --shape 10 --num-classes 10 --devices null", 3, "fits on none"},
        {"--model lenet --shape 1x28x --num-classes 10", 2, "no shape"},
        {"--model lenet --shape 1x28x28 --devices null", 1, "num_classes"},
        {"--model lenet --shape 1x8x8 --num-classes 10 --devices null", 1, "conv2"},
        {"--shape 1x8x8 --num-classes 10 --devices null", 1, "no model"},
        {"--model resnet18 --shape 3x32x32 --num-classes 10 --batch-size 512 --gpus 4060,mi300x", 0, "MI300X"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --gpu h100 --ops", 0, "conv2"},
        {"--model mlp:100000,100000 --shape 10 --num-classes 10 --gpu 4090", 3, "fits on none"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --gpus 4090,abacus", 2, "abacus"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --gpu h100 --devices cpu", 2, "give one"},
        {"--model foo --shape 1x28x28 --num-classes 10 --gpu h100", 1, "no model 'foo'"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --gpus ''", 2, "a name is empty"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --gpus h100,,4090", 2, "a name is empty"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --devices ''", 2, "a name is empty"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --devices null,", 2, "a name is empty"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --devices $(seq -s, 17)", 2, "at most 16"},
        {"--model lenet --shape 99999999999999999999 --num-classes 10 --devices null", 2, "no shape"},
        {"--model mlp:1 --shape 1 --num-classes 1 --devices cpu --batch-size 1 --ops", 0, " FLOP "},
        {"--model lenet --shape 1x28x28 --num-classes 10 --devices null .", 2, "is a folder"},
        {"a.yaml --config b.yaml", 2, "two run files"},
        {"--model lenet", 2, "--data"},
        {"--model lenet --shape 1x28x28 --num-classes 10 --devices abacus", 3, "abacus"},
    };
    char text[8192];
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        const int code = shell(cases[i].arguments, text, sizeof text);
        if (code != cases[i].code || !strstr(text, cases[i].says))
            fail_msg("swoop plan %s: exit %d\n%s", cases[i].arguments, code, text);
    }
}

int main(void)
{
#ifdef __SANITIZE_ADDRESS__ /* cuDNN leaks, and leaves before it is asked who it is */
    setenv("SWOOP_WITHOUT", "cudnn", 1);
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lenet),
        cmocka_unit_test(test_as_trained),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_largest_within),
        cmocka_unit_test(test_catalogue),
        cmocka_unit_test(test_planned),
        cmocka_unit_test(test_cudnn_plans),
        cmocka_unit_test(test_command),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
