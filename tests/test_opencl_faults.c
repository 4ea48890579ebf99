/* test_opencl_faults.c: training steps on an OpenCL device (tests/fakecl) whose calls fail in turn, that is lost in the
 * middle, that has little memory or odd limits. Each failure is a status with a message that names the call, nothing is
 * left behind, and the next try in the same process succeeds. Skipped without OpenCL. */
/* timeout: 900 */
#include "fakecl/faults.h"

/* ---- every call fails in turn ------------------------------------------------------------------------------------ */

/* These may fail without harm: what is kept in the cache is a convenience, and whoever releases cannot do more, nor whoever
 * waits before that. */
static bool harmless(const char *name)
{
    return strncmp(name, "clRelease", 9) == 0 || strcmp(name, "clGetProgramInfo") == 0 ||
           strcmp(name, "clEnqueueUnmapMemObject") == 0 || strcmp(name, "clCreateProgramWithBinary") == 0 ||
           strcmp(name, "clGetProgramBuildInfo") == 0 || strcmp(name, "clFinish") == 0;
}

static void fail_one(const char *name, long at, int code, bool warm)
{
    float loss[2];
    char what[128];
    heal();
    if (!warm) setenv("SWOOP_CACHE_MB", "0", 1); /* programs are compiled from source */
    snprintf(fake->fail_name, sizeof fake->fail_name, "%s", name);
    fake->fail_at = at;
    fake->fail_code = code;
    const sw_status st = scenario("opencl:0", 16, loss);
    if (getenv("SWOOP_TEST_SHOW") != NULL) print_message("%s %ld: %d %s\n", name, at, st, message);
    snprintf(what, sizeof what, "%s, call %ld, code %d%s", name, at, code, warm ? ", from the cache" : "");
    unsetenv("SWOOP_CACHE_MB");
    const bool built_again = warm && strcmp(name, "clBuildProgram") == 0; /* from source */
    const bool staged = strcmp(name, "clCreateBuffer") == 0 || strcmp(name, "clEnqueueFillBuffer") == 0;
    const bool not_beside = getenv("SWOOP_OPENCL_COPY_QUEUE") != NULL && staged; /* as if there were one queue */
    if (st == SW_OK && !harmless(name) && !built_again && !not_beside) fail_msg("%s: no error", what);
    if (st != SW_OK && strstr(message, name) == NULL) fail_msg("%s: it is not named: %s", what, message);
    if (st != SW_OK && st != SW_ERR_MEMORY && st != SW_ERR_DEVICE) fail_msg("%s: status %d: %s", what, st, message);
    expect_recovery(what);
}

static void fail_each(bool warm)
{
    float loss[2];
    struct { const char *name; long calls; } seen[FAKECL_NAMES];
    heal();
    if (scenario("opencl:0", 16, loss) != SW_OK) fail_msg("%s", message); /* devices are listed once */
    heal();
    if (!warm) setenv("SWOOP_CACHE_MB", "0", 1);
    if (scenario("opencl:0", 16, loss) != SW_OK) fail_msg("%s", message);
    unsetenv("SWOOP_CACHE_MB");
    for (int i = 0; i < FAKECL_NAMES; i++) {
        seen[i].name = fake->name[i].name;
        seen[i].calls = fake->name[i].calls;
    }
    int tries = 0;
    for (int i = 0; i < FAKECL_NAMES && seen[i].name != NULL; i++) {
        const long n = seen[i].calls, at[] = { 1, 2, 3, n / 2, n };
        const bool timed = strstr(seen[i].name, "Event") != NULL || strstr(seen[i].name, "Queue") != NULL;
        const bool builds = strstr(seen[i].name, "Program") != NULL || strcmp(seen[i].name, "clCreateKernel") == 0;
        if ((!warm && !builds) || (profiled && !timed)) continue; /* the same as in the first round */
        long last = 0;
        for (size_t k = 0; k < sizeof at / sizeof at[0]; k++) {
            if (at[k] <= last || at[k] > n) continue;
            last = at[k];
            fail_one(seen[i].name, last, k % 2 ? -6 : -5, warm); /* CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES */
            tries++;
        }
    }
    print_message("%d failures%s\n", tries, warm ? ", programs from the cache" : "");
    assert_true(tries >= 5);
}

static void test_each_call_fails(void **state)
{
    (void)state;
    if (fake == NULL) skip();
    fail_each(true);
}

static void test_each_call_fails_when_profiled(void **state)
{
    (void)state;
    if (fake == NULL) skip();
    profiled = true;
    fail_each(true);
    profiled = false;
}

static void test_each_call_fails_without_cache(void **state)
{
    (void)state;
    if (fake == NULL) skip();
    fail_each(false);
}

/* From some call on every one fails, as when a cable is pulled. */
static void test_lost_device(void **state)
{
    (void)state;
    static const int codes[] = { -2, -5, -36 }; /* not available, out of resources, invalid command queue */
    float loss[2];
    char what[64];
    if (fake == NULL) skip();
    heal();
    if (scenario("opencl:0", 16, loss) != SW_OK) fail_msg("%s", message);
    const long calls = fake->calls;
    for (int part = 0; part < 12; part++) {
        heal();
        fake->lose_code = codes[part % 3];
        fake->lose_at = 1 + calls * part / 12;
        const sw_status st = scenario("opencl:0", 16, loss);
        snprintf(what, sizeof what, "lost at call %ld of %ld", fake->lose_at, calls);
        if (st == SW_OK && part < 10) fail_msg("%s: no error", what); /* the last calls release */
        if (st != SW_OK && strstr(message, "cl") == NULL) fail_msg("%s: %s", what, message);
        expect_recovery(what);
    }
}

static void test_little_memory(void **state)
{
    (void)state;
    float loss[2];
    if (fake == NULL) {
        skip();
        return;
    }
    for (int kind = 0; kind < 2; kind++) {
        size_t *const limit = kind == 0 ? &fake->memory : &fake->max_alloc;
        heal();
        *limit = 64 << 10;
        assert_int_equal(scenario("opencl:0", MOST, loss), SW_ERR_MEMORY);
        if (strstr(message, "clCreateBuffer") == NULL) fail_msg("%s", message);
        *limit = 64 << 10; /* a failure heals */
        if (scenario("opencl:0", 16, loss) != SW_OK) fail_msg("a small batch does not fit either: %s", message);
        expect_recovery("little memory");
    }
}

/* What can go wrong with the second queue, in turn. */
static void test_each_call_fails_beside(void **state)
{
    (void)state;
    if (fake == NULL) skip();
    setenv("SWOOP_OPENCL_COPY_QUEUE", "1", 1);
    fail_each(true);
    unsetenv("SWOOP_OPENCL_COPY_QUEUE");
}

/* Ops of all kinds of kernels: matrix products, reductions, sorting, running sums, indices, halves, images and gradients. */
enum { ROWS = 5, COLUMNS = 700, OPS = 13, ALL = ROWS * COLUMNS };

/* A convolution of x as images, pooled; and the gradients of both. */
static sw_status make_images(sw_graph *g, sw_t x)
{
    const int64_t images[] = { ROWS, 7, 10, 10 }, weights[] = { 4, 7, 3, 3 };
    const sw_init init = { .kind = SW_INIT_UNIFORM, .a = -0.2, .b = 0.2 };
    const sw_t in = sw_param(g, "in", 4, images, init), w = sw_param(g, "w", 4, weights, init);
    const sw_t image = sw_add(sw_reshape(x, 4, images), in);
    const sw_conv_options conv = { .pad_lo = { 1, 1 }, .pad_hi = { 1, 1 } };
    const sw_pool_options pool = { .kernel = { 2, 2 } };
    const sw_t y = sw_max_pool_op(sw_relu(sw_conv_op(image, w, SW_NONE, &conv)), &pool), of[2] = { in, w };
    sw_t gradient[2];
    sw_output(y, "pooled");
    const sw_status st = sw_grad(sw_sum(sw_mul(y, y), SW_ALL_AXES, false), of, 2, gradient);
    if (st != SW_OK) return st;
    sw_output(gradient[0], "d in");
    sw_output(gradient[1], "d w");
    return SW_OK;
}

static sw_status make_ops(sw_graph *g)
{
    const int64_t shape[] = { ROWS, COLUMNS };
    const sw_t x = sw_input(g, "x", SW_F32, 2, shape), i = sw_input(g, "i", SW_I64, 2, shape);
    const sw_t y[] = { sw_sort(x, 1, true), sw_cumsum(x, 1, true), sw_argsort(x, 1, false), sw_argmax(x, 1, true),
                          sw_scatter_add(x, i, x, 1), sw_softmax(x, 1), sw_matmul(x, sw_transpose(x, 0, 1)),
                          sw_sum(x, 1u, true), sw_cast(sw_cast(x, SW_F16), SW_F32), sw_cast(sw_cast(x, SW_BF16), SW_F32) };
    for (int k = 0; k < OPS - 3; k++) {
        const char name[] = { 'y', (char)('0' + k), '\0' };
        sw_output(y[k], name);
    }
    const sw_status st = make_images(g, x);
    return st != SW_OK ? st : sw_graph_status(g);
}

static sw_status run_ops(sw_program *p, float (*out)[ALL], int64_t *count)
{
    static float data[ALL];
    static int64_t index[ALL];
    for (int e = 0; e < ALL; e++) {
        data[e] = (float)(e * 37 % 101) * 0.0625f - 3;
        index[e] = e * 31 % 50;
    }
    sw_status st = sw_program_set(p, sw_program_input(p, "x"), SW_F32, data, ALL);
    if (st == SW_OK) st = sw_program_set(p, sw_program_input(p, "i"), SW_I64, index, ALL);
    if (st == SW_OK) st = sw_program_run(p);
    for (int k = 0; k < OPS && st == SW_OK; k++) {
        sw_var_info info;
        st = sw_program_output_info(p, k, &info);
        if (st == SW_OK) st = sw_program_get(p, k, SW_F32, out[k], info.elements);
        count[k] = info.elements;
    }
    return st;
}

static sw_status many_ops(const char *id, float (*out)[ALL], int64_t *count)
{
    sw_graph *g = NULL;
    sw_device *d = NULL;
    sw_program *p = NULL;
    sw_status st = sw_graph_new(&g);
    if (st == SW_OK) st = make_ops(g);
    if (st == SW_OK) st = sw_device_open(id, NULL, &d);
    if (st == SW_OK) st = sw_compile(g, d, NULL, &p);
    if (st == SW_OK) st = run_ops(p, out, count);
    if (st != SW_OK) fprintf(stderr, "%s: %s\n", id, sw_error());
    sw_program_free(p);
    sw_device_close(d);
    sw_graph_free(g);
    return st;
}

static int compare_ops(void)
{
    static float have[OPS][ALL], want[OPS][ALL];
    int64_t count[OPS];
    if (many_ops("cpu", want, count) != SW_OK || many_ops("opencl:0", have, count) != SW_OK) return 1;
    for (int k = 0; k < OPS; k++)
        for (int64_t e = 0; e < count[k]; e++)
            if (fabsf(have[k][e] - want[k][e]) > 1e-4f * (1 + fabsf(want[k][e]))) {
                fprintf(stderr, "output %d, element %d is %g, not %g\n", k, (int)e, (double)have[k][e],
                        (double)want[k][e]);
                return 1;
            }
    return live() == 0 && fake->faults == 0 ? 0 : 4;
}

static void test_odd_limits(void **state)
{
    (void)state;
    if (getenv("SWOOP_OPENCL_LIBRARY") == NULL) skip();
    static const char *const limits[] = {
        "FAKECL_MAX_GROUP=64 FAKECL_NO_FP64=1 FAKECL_LOCAL=32768 FAKECL_UNITS=1 FAKECL_PLAIN=1 SWOOP_OPENCL_SERIAL=0",
        "FAKECL_MAX_GROUP=64 FAKECL_NO_FP64=1 FAKECL_LOCAL=32768 FAKECL_UNITS=1 SWOOP_OPENCL_SERIAL=1",
        "FAKECL_MAX_GROUP=16 FAKECL_LOCAL=4096 FAKECL_UNITS=64 FAKECL_GPU=1",
        "FAKECL_MAX_GROUP=1 FAKECL_LOCAL=1024 FAKECL_UNITS=3 FAKECL_GPU=1",
        "FAKECL_MAX_GROUP=1024 FAKECL_UNITS=108 FAKECL_GPU=1",
    };
    const char *every = getenv("SWOOP_FAULTS_STEP"); /* behind an interpreter and a sanitizer each takes minutes */
    const size_t step = every != NULL ? (size_t)atoi(every) : 1;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i += step > 0 ? step : 1) in_child(limits[i], compare_ops);
}

/* While devices are listed, any answer or none: a message or a working device. */
static int open_any(void)
{
    float loss[2];
    const sw_status st = scenario("opencl:0", 4, loss);
    if (st != SW_OK && message[0] == '\0') return 1;
    return live() == 0 && fake->faults == 0 ? 0 : 4;
}

static void test_listing_fails(void **state)
{
    (void)state;
    if (getenv("SWOOP_OPENCL_LIBRARY") == NULL) skip();
    static const char *const names[] = { "clGetPlatformIDs:1:-1001", "clGetPlatformIDs:1:-6", "clGetPlatformInfo:1:-6",
                                         "clGetDeviceIDs:1:-1", "clGetDeviceIDs:1:-6" };
    char text[64];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(text, sizeof text, "FAKECL_FAIL=%s", names[i]);
        in_child(text, open_any);
    }
    for (int call = 1; call <= 20; call++) {
        snprintf(text, sizeof text, "FAKECL_FAIL=clGetDeviceInfo:%d:-5", call);
        in_child(text, open_any);
    }
    in_child("FAKECL_LOSE=1:-2", open_any);
    in_child("FAKECL_LOSE=10:-5", open_any);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_limits),
        cmocka_unit_test(test_listing_fails),
        cmocka_unit_test_setup(test_each_call_fails, load_fake),
        cmocka_unit_test_setup(test_each_call_fails_when_profiled, load_fake),
        cmocka_unit_test_setup(test_each_call_fails_without_cache, load_fake),
        cmocka_unit_test_setup(test_each_call_fails_beside, load_fake),
        cmocka_unit_test_setup(test_lost_device, load_fake),
        cmocka_unit_test_setup(test_little_memory, load_fake),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
