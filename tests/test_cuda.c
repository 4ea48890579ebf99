/* test_cuda.c: what is special about the CUDA backend, on the double of the GPU: devices, the cache of binaries, folders of
 * kernels, recorded steps, uploads beside the work, what users do wrong, memory, times. Every report of the double is a
 * failure. test_cuda_faults.c is about what fails; the ops are those of test_gpu_ops.c. */
#include "cuda_step.h"

#include <pthread.h>
#include <sys/stat.h>

/* timeout: 300 */
/* needs: FAKECUDA */

static sw_device *open_device(const sw_device_options *o)
{
    sw_device *d = NULL;
    ok(sw_device_open("cuda:0", o, &d));
    return d;
}

/* Nothing is left, and the double saw no fault. */
static void expect_clean(void)
{
    assert_int_equal(fake.fk_live(NULL), 0);
    assert_int_equal(fake.fk_reports(), 0);
}

/* ---- devices ----------------------------------------------------------------------------------------------------------- */

static void test_devices(void **state)
{
    (void)state;
    sw_device_properties list[8];
    const int n = sw_device_list(list, 8, false);
    assert_true(n >= 2);
    const sw_device_properties *const p = &list[0];
    assert_string_equal(p->id, "cuda:0");
    assert_string_equal(p->backend, "cuda");
    assert_string_equal(p->vendor, "NVIDIA");
    assert_string_equal(p->type, "gpu");
    assert_string_equal(p->status, "ok");
    assert_non_null(strstr(p->compute, "sm_90"));
    assert_non_null(strstr(p->compute, "132 SMs"));
    assert_non_null(strstr(p->driver, "CUDA "));
    assert_non_null(strstr(p->driver, "NVRTC "));
    assert_true(p->usable && p->compute_units == 132 && p->memory_total > (70ull << 30));
    assert_true(p->memory_free <= p->memory_total && p->bandwidth > 1e12);
    expect_clean();
}

static void test_names(void **state)
{
    (void)state;
    static const char *const ids[] = { "cuda", "cuda:0", "cuda:nvidia", "cuda:h100", "auto", NULL };
    for (size_t i = 0; i < SW_COUNT(ids); i++) {
        sw_device *d = NULL;
        ok(sw_device_open(ids[i], NULL, &d));
        assert_string_equal(sw_device_info(d)->id, "cuda:0");
        sw_device_close(d);
    }
    sw_device *d = NULL;
    assert_int_equal(sw_device_open("cuda:9", NULL, &d), SW_ERR_ARGUMENT);
    assert_non_null(strstr(sw_error(), "cuda:0"));
    assert_int_equal(sw_device_open("cuda:radeon", NULL, &d), SW_ERR_ARGUMENT);
    expect_clean();
}

/* ---- programs ------------------------------------------------------------------------------------------------------------ */

static void test_cache(void **state)
{
    (void)state;
    step_cache("test-cache");
    double loss[3];
    for (int i = 0; i < 3; i++) { /* compiled, loaded, compiled again after damage */
        sw_device *const d = open_device(NULL);
        sw_program *const p = step_program(d, 8, NULL);
        loss[i] = step_trained(p, 8);
        assert_int_equal(step_cu(d)->gpu.compiled, i == 1 ? 0 : 1);
        assert_int_equal(step_cu(d)->gpu.cached, i == 1 ? 1 : 0);
        sw_program_free(p);
        sw_device_close(d);
        char command[400];
        snprintf(command, sizeof command, "for f in '%s/test-cache'/*; do printf x | dd of=\"$f\" bs=1 seek=5000 conv=notrunc "
                 "2>/dev/null; done", step_folder);
        if (i == 1) assert_int_equal(system(command), 0);
    }
    assert_true(loss[0] == loss[1] && loss[1] == loss[2]);
    assert_true(fabs(loss[0] - step_on_cpu(8)) < 1e-5);
    step_cache("cache");
    expect_clean();
}

/* What is compiled with other options is another program, however late in them the difference is. */
static void test_options(void **state)
{
    (void)state;
    char options[120];
    step_cache("options");
    for (int i = 0; i < 3; i++) {
        snprintf(options, sizeof options, "-DNOTHING_AT_ALL_THAT_ANYBODY_LOOKS_AT_BUT_IS_LONG_ENOUGH_FOR_THIS=%d", i / 2);
        assert_int_equal(setenv("SWOOP_CUDA_OPTIONS", options, 1), 0);
        sw_device *const d = open_device(NULL);
        sw_program *const p = step_program(d, 8, NULL);
        assert_int_equal(step_cu(d)->gpu.compiled, i == 1 ? 0 : 1);
        sw_program_free(p);
        sw_device_close(d);
    }
    assert_int_equal(unsetenv("SWOOP_CUDA_OPTIONS"), 0);
    step_cache("cache");
    expect_clean();
}

static void test_folder(void **state)
{
    (void)state;
    char path[300], name[340], command[1300];
    struct stat s;
    step_path(path, sizeof path, "kernels");
    sw_device *d = open_device(&(sw_device_options){ .write_kernels = path });
    sw_program *p = step_program(d, 8, NULL);
    const double loss = step_trained(p, 8);
    sw_program_free(p);
    sw_device_close(d);
    snprintf(command, sizeof command, "ls '%s'/*.cu '%s'/*.bin > '%s/list' && test $(wc -l < '%s/list') -ge 2", path, path,
             path, path);
    assert_int_equal(system(command), 0);
    snprintf(name, sizeof name, "%s/manifest.json", path);
    assert_int_equal(stat(name, &s), 0);

    d = open_device(&(sw_device_options){ .kernels = path });
    p = step_program(d, 8, NULL);
    assert_true(step_trained(p, 8) == loss);
    assert_int_equal(step_cu(d)->gpu.compiled + step_cu(d)->gpu.cached, 0);
    sw_program_free(p);
    sw_device_close(d);
    expect_clean();
}

static void test_does_not_compile(void **state)
{
    (void)state;
    static const sw_kernel_source bad = { .name = "wrong", .cuda = "extern \"C\" __global__ void wrong(float *x)\n"
                                                                    "{\n    x[0] = nothing;\n}\n" };
    sw_kernel *k = NULL;
    sw_device *const d = open_device(NULL);
    assert_int_equal(sw_kernel_new(d, &bad, &k), SW_ERR_DEVICE);
    assert_non_null(strstr(sw_error(), "nothing"));
    assert_non_null(strstr(sw_error(), ">   3 |     x[0] = nothing;"));
    sw_device_close(d);
    expect_clean();
}

/* ---- recorded steps ---------------------------------------------------------------------------------------------------------- */

/* From the third step on: one launch of a graph, a copy for each input, and nobody waits. */
static void test_replay(void **state)
{
    (void)state;
    sw_device *const d = open_device(NULL);
    sw_program *const p = step_program(d, 8, NULL);
    for (int i = 0; i < 2; i++) {
        ok(step_inputs(p, 8, 0));
        ok(sw_program_run(p));
    }
    assert_int_equal(step_cu(d)->replays, 1);
    fake.fk_fail_set(NULL);
    ok(step_inputs(p, 8, 0));
    ok(sw_program_run(p));
    static const struct { const char *name; long calls; } want[] = {
        { "cuGraphLaunch", 1 }, { "cuLaunchKernel", 0 }, { "cuMemcpyHtoDAsync", STEP_INPUTS }, { "cuMemcpyDtoDAsync", 0 },
        { "cuEventRecord", 0 }, { "cuStreamSynchronize", 0 }, { "cuEventSynchronize", 0 }, { "cuMemAlloc", 0 },
        { "cuMemAllocHost", 0 }, { "cuGraphInstantiateWithFlags", 0 }, { "cuStreamBeginCapture", 0 },
    };
    for (size_t i = 0; i < SW_COUNT(want); i++)
        if (fake.fk_calls(want[i].name) != want[i].calls)
            fail_msg("%s is called %ld times a step, not %ld", want[i].name, fake.fk_calls(want[i].name), want[i].calls);
    print_message("%ld calls of the driver for a recorded step with %d inputs\n", fake.fk_calls(NULL), STEP_INPUTS);
    sw_program_free(p);
    sw_device_close(d);
    expect_clean();
}

/* Recorded or not, the bits are the same. */
static void test_replay_is_the_same(void **state)
{
    (void)state;
    double loss[2];
    for (int check = 0; check < 2; check++) {
        if (check) setenv("SWOOP_CHECK", "1", 1);
        sw_device *const d = open_device(NULL);
        sw_program *const p = step_program(d, 8, NULL);
        loss[check] = step_trained(p, 8);
        assert_int_equal(step_cu(d)->replays, check ? 0 : STEP_TIMES - 1);
        sw_program_free(p);
        sw_device_close(d);
        unsetenv("SWOOP_CHECK");
    }
    assert_true(loss[0] == loss[1]);
    expect_clean();
}

/* A bad label is told of in a step that is launched and in one that is replayed; then it is forgotten. */
static void test_bad_label(void **state)
{
    (void)state;
    sw_device *const d = open_device(NULL);
    sw_program *const p = step_program(d, 8, NULL);
    for (int i = 0; i < 6; i++) {
        double loss = 0;
        ok(step_inputs(p, 8, i % 2 ? 4 : 5));
        sw_status st = sw_program_run(p);
        if (st == SW_OK) st = sw_program_get(p, 0, SW_F64, &loss, 1);
        assert_int_equal(st, i % 2 ? SW_OK : SW_ERR_DATA);
        if (i % 2 == 0) assert_non_null(strstr(sw_error(), "is 5, outside 0 to 4"));
    }
    assert_true(step_cu(d)->replays >= 4);
    sw_program_free(p);
    sw_device_close(d);
    expect_clean();
}

/* ---- uploads -------------------------------------------------------------------------------------------------------------------- */

enum { BIG = 9 << 20 }; /* elements: more than one piece */

static sw_program *sum_program(sw_device *d, int64_t n)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    ok(sw_graph_new(&g));
    sw_output(sw_sum(sw_input(g, "x", SW_F32, 1, &n), SW_ALL_AXES, false), "sum");
    ok(sw_compile(g, d, NULL, &p));
    sw_graph_free(g);
    return p;
}

/* Inputs one right after another, while the run before still reads the one before. */
static void feed(sw_device *d, int n, int runs)
{
    double sum = 0;
    sw_program *const p = sum_program(d, n);
    float *const x = malloc(sizeof *x * (size_t)n);
    assert_non_null(x);
    for (int i = 0; i < runs; i++) {
        for (int k = 0; k < n; k++) x[k] = (float)((k + i) % 3);
        ok(sw_program_set(p, 0, SW_F32, x, n));
        for (int k = 0; k < n; k++) x[k] = NAN; /* the caller's again */
        ok(sw_program_run(p));
    }
    ok(sw_program_get(p, 0, SW_F64, &sum, 1));
    assert_true(fabs(sum - n) <= 3);
    free(x);
    sw_program_free(p);
}

static void test_large_inputs(void **state)
{
    (void)state;
    sw_device *const d = open_device(NULL);
    fake.fk_fail_set(NULL);
    feed(d, 200000, 6);
    assert_int_equal(step_cu(d)->direct, 0);
    assert_true(fake.fk_calls("cuMemcpyDtoDAsync") >= 6);
    sw_device_close(d);
    expect_clean();
}

/* Pinned memory for little ones is gone through more than once. */
static void test_small_inputs(void **state)
{
    (void)state;
    sw_device *const d = open_device(NULL);
    fake.fk_fail_set(NULL);
    feed(d, 15000, 60);
    assert_true(fake.fk_calls("cuEventSynchronize") > 0);
    sw_device_close(d);
    expect_clean();
}

/* Two pieces of staging memory take turns for what is larger than both, there and back. */
static void test_pieces(void **state)
{
    (void)state;
    sw_device *const d = open_device(NULL);
    sw_buffer *b = NULL;
    int32_t *const x = malloc(sizeof *x * BIG);
    assert_non_null(x);
    for (int32_t i = 0; i < BIG; i++) x[i] = i * 7;
    ok(sw_buffer_new(d, sizeof *x * BIG, &b));
    ok(sw_buffer_write(b, 0, x, sizeof *x * BIG));
    memset(x, 0, sizeof *x * BIG);
    ok(sw_buffer_read(b, 0, x, sizeof *x * BIG));
    for (int32_t i = 0; i < BIG; i++)
        if (x[i] != i * 7) fail_msg("element %d is %d", i, x[i]);
    free(x);
    sw_buffer_free(b);
    sw_device_close(d);
    expect_clean();
}

/* ---- memory, times, threads -------------------------------------------------------------------------------------------------------- */

static void test_too_large(void **state)
{
    (void)state;
    sw_device *const d = open_device(NULL);
    sw_program *const small = step_program(d, 8, NULL);
    sw_program *p = NULL;
    sw_graph *g = NULL;
    const int64_t n = (int64_t)1 << 38;
    ok(sw_graph_new(&g));
    sw_output(sw_neg(sw_input(g, "x", SW_U8, 1, &n)), "y");
    assert_int_equal(sw_compile(g, d, NULL, &p), SW_ERR_MEMORY);
    assert_non_null(strstr(sw_error(), "MiB more are needed"));
    assert_non_null(strstr(sw_error(), "MiB are free"));
    sw_graph_free(g);
    assert_true(fabs(step_trained(small, 8) - step_on_cpu(8)) < 1e-5); /* the context lives on */
    sw_program_free(small);
    sw_device_close(d);
    expect_clean();
}

static void test_profile(void **state)
{
    (void)state;
    sw_device *const d = open_device(NULL);
    sw_program *const p = step_program(d, 8, &(sw_compile_options){ .profile = true });
    char *table = NULL;
    (void)step_trained(p, 8);
    assert_int_equal(step_cu(d)->replays, 0);
    ok(sw_program_profile(p, SW_PROFILE_TABLE, &table));
    assert_non_null(strstr(table, "matmul"));
    sw_string_free(table);
    double seconds = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) seconds += p->launches[i].seconds;
    assert_true(seconds > 0);
    sw_program_free(p);
    sw_device_close(d);
    expect_clean();
}

typedef struct elsewhere { sw_device *device; double loss; } elsewhere;

static void *train_elsewhere(void *data)
{
    elsewhere *const e = data;
    sw_program *const p = step_program(e->device, 8, NULL);
    e->loss = step_trained(p, 8);
    sw_program_free(p);
    return NULL;
}

/* A device that one thread opened works in another, one at a time. */
static void test_threads(void **state)
{
    (void)state;
    elsewhere e = { .device = open_device(NULL) };
    pthread_t thread;
    sw_program *const p = step_program(e.device, 8, NULL);
    assert_int_equal(pthread_create(&thread, NULL, train_elsewhere, &e), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(step_trained(p, 8) == e.loss);
    sw_program_free(p);
    sw_device_close(e.device);
    expect_clean();
}

/* ---- the command --------------------------------------------------------------------------------------------------------------- */

/* Losses of a run's first steps, from its log. */
static int read_losses(const char *name, double *loss, int most)
{
    char path[340], line[512];
    int n = 0;
    snprintf(path, sizeof path, "%.200s/%s/log.txt", step_folder, name);
    FILE *const f = fopen(path, "re");
    if (f == NULL) fail_msg("no %s", path);
    while (f != NULL && n < most && fgets(line, sizeof line, f) != NULL) {
        const char *const at = strstr(line, " step "), *const is = at != NULL ? strstr(at, " loss ") : NULL;
        if (is != NULL) loss[n++] = strtod(is + strlen(" loss "), NULL);
    }
    if (f != NULL) fclose(f);
    return n;
}

static void by_command(const char *device)
{
    char command[1200];
    snprintf(command, sizeof command, "'%.400s' train --model cnn:4 --data digits --epochs 1 --log-every 1 --device %s --project "
             "'%.200s' --name %.3s -q", SWOOP_COMMAND, device, step_folder, device);
    if (system(command) != 0) fail_msg("%s", command);
}

/* The same first losses as the cpu; kernels written to a folder. */
static void test_command(void **state)
{
    (void)state;
    double want[10] = { 0 }, have[10] = { 0 };
    char command[1200];
    by_command("cpu");
    by_command("cuda:0");
    assert_int_equal(read_losses("cpu", want, 10), 10);
    assert_int_equal(read_losses("cud", have, 10), 10);
    for (int i = 0; i < 10; i++)
        if (!(fabs(have[i] - want[i]) <= 1e-4)) fail_msg("step %d: loss %g, not %g", i + 1, have[i], want[i]);
    snprintf(command, sizeof command, "'%.400s' kernels --model cnn:4 --data digits --device cuda:0 --out '%.200s/out' -q && "
             "test -s '%.200s/out/manifest.json'", SWOOP_COMMAND, step_folder, step_folder);
    assert_int_equal(system(command), 0);
}

static int set_up(void **state)
{
    return fake_open() ? step_set_up(state) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices),          cmocka_unit_test(test_names),
        cmocka_unit_test(test_cache),            cmocka_unit_test(test_options),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_does_not_compile), cmocka_unit_test(test_replay),
        cmocka_unit_test(test_replay_is_the_same), cmocka_unit_test(test_bad_label),
        cmocka_unit_test(test_large_inputs),     cmocka_unit_test(test_small_inputs),
        cmocka_unit_test(test_pieces),           cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_profile),          cmocka_unit_test(test_threads),
        cmocka_unit_test(test_command),
    };
    return cmocka_run_group_tests(tests, set_up, step_tear_down);
}
