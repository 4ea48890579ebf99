/* test_opencl_faults.c: training steps on an OpenCL device (tests/fakecl) whose calls fail in turn, that is lost in the
 * middle, that has little memory or odd limits. Each failure is a status with a message that names the call, nothing is
 * left behind, and the next try in the same process succeeds. Skipped without OpenCL. */
/* timeout: 900 */
#include "fakecl/fakecl.h"
#include "swoop/swoop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SWOOP_FAKECL /* built without OpenCL */
#define SWOOP_FAKECL ""
#endif

enum { WIDTH = 6, HIDDEN = 8, CLASSES = 3, MOST = 4096 };

static fakecl *fake; /* the library's; NULL before it is opened */
static char cache[64];

/* ---- the library ------------------------------------------------------------------------------------------------- */

/* The same copy as the backend opens: the loader knows it by its path. */
static bool open_fake(void)
{
    void *const library = dlopen(getenv("SWOOP_OPENCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    void *const symbol = library != NULL ? dlsym(library, "fakecl_control") : NULL;
    fakecl_control_function control;
    if (symbol == NULL) return false;
    memcpy(&control, &symbol, sizeof control);
    fake = control();
    return true;
}

static void heal(void)
{
    if (fake == NULL) return;
    fake->fail_name[0] = '\0';
    fake->fail_at = fake->lose_at = 0;
    fake->memory = fake->max_alloc = 0;
    fake->races = fake->unflushed = 0;
    fake->failed = 0;
    fake->calls = 0;
    memset(fake->name, 0, sizeof fake->name);
}

static long live(void)
{
    long n = 0;
    for (int k = 0; k < FAKECL_KINDS; k++) n += fake->live[k];
    return n;
}

/* ---- a training step --------------------------------------------------------------------------------------------- */

static sw_status make_graph(int64_t batch, sw_graph **out)
{
    const int64_t xs[] = { batch, WIDTH }, ts[] = { batch }, s1[] = { WIDTH, HIDDEN }, s2[] = { HIDDEN, CLASSES };
    sw_status st = sw_graph_new(out);
    if (st != SW_OK) return st;
    sw_graph *const g = *out;
    const sw_t x = sw_input(g, "x", SW_F32, 2, xs), target = sw_input(g, "target", SW_I64, 1, ts);
    const sw_init init = { .kind = SW_INIT_UNIFORM, .a = -0.5, .b = 0.5 };
    const sw_t w[2] = { sw_param(g, "w1", 2, s1, init), sw_param(g, "w2", 2, s2, init) };
    const sw_t loss = sw_cross_entropy(sw_matmul(sw_relu(sw_matmul(x, w[0])), w[1]), target);
    sw_t dw[2];
    st = sw_grad(loss, w, 2, dw);
    if (st != SW_OK) return st;
    for (int i = 0; i < 2; i++) sw_assign(w[i], sw_sub(w[i], sw_mul_scalar(dw[i], 0.5)));
    sw_output(loss, "loss");
    return sw_graph_status(g);
}

static sw_status set_inputs(sw_program *p, int64_t batch)
{
    static float x[MOST * WIDTH];
    static int64_t target[MOST];
    for (int64_t e = 0; e < batch * WIDTH; e++) x[e] = (float)(e * 7 % 13) * 0.125f - 0.75f;
    for (int64_t e = 0; e < batch; e++) target[e] = e % CLASSES;
    const sw_status st = sw_program_set(p, sw_program_input(p, "x"), SW_F32, x, batch * WIDTH);
    return st != SW_OK ? st : sw_program_set(p, sw_program_input(p, "target"), SW_I64, target, batch);
}

static sw_status run_once(sw_program *p, float *loss)
{
    const sw_status st = sw_program_run(p);
    return st != SW_OK ? st : sw_program_get(p, sw_program_output(p, "loss"), SW_F32, loss, 1);
}

static char message[1024]; /* of the first failure of a scenario */
static bool profiled;      /* launches are timed by events */

static sw_status keep_message(sw_status st)
{
    if (st != SW_OK) snprintf(message, sizeof message, "%s", sw_error());
    return st;
}

/* Two steps. If one fails, the program is tried again once nothing fails any more, unless the device is lost. */
static sw_status run_steps(sw_program *p, int64_t batch, float loss[2])
{
    sw_status st = set_inputs(p, batch);
    for (int i = 0; i < 2 && st == SW_OK; i++) st = run_once(p, &loss[i]);
    if (keep_message(st) == SW_OK || fake->lose_at > 0) return st;
    heal();
    sw_status again = set_inputs(p, batch);
    if (again == SW_OK) again = run_once(p, loss);
    if (again != SW_OK) fail_msg("not to be run again after '%s': %s", message, sw_error());
    return st;
}

/* Opens, compiles, steps, frees all. */
static sw_status scenario(const char *id, int64_t batch, float loss[2])
{
    sw_device *d = NULL;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    message[0] = '\0';
    sw_status st = make_graph(batch, &g);
    if (st == SW_OK) st = sw_device_open(id, NULL, &d);
    if (st == SW_OK) st = sw_compile(g, d, &(sw_compile_options){ .profile = profiled }, &p);
    keep_message(st);
    if (st == SW_OK) st = run_steps(p, batch, loss);
    sw_program_free(p);
    sw_device_close(d);
    sw_graph_free(g);
    return st;
}

/* After whatever happened: nothing is left, and a smaller batch goes. */
static void expect_recovery(const char *after)
{
    float loss[2] = { 0 }, want[2] = { 0 };
    if (fake->races != 0 || fake->unflushed != 0)
        fail_msg("%s ('%s'): %ld uses of memory in no order, %ld waits for what was not flushed", after, message,
                 fake->races, fake->unflushed);
    if (live() != 0 || fake->faults != 0)
        fail_msg("%s ('%s'): %ld objects left (%ld contexts, %ld queues, %ld programs, %ld kernels, %ld buffers, %ld "
                 "events), %ld released twice", after, message, live(), fake->live[0], fake->live[1], fake->live[2],
                 fake->live[3], fake->live[4], fake->live[5], fake->faults);
    heal();
    if (scenario("cpu", 4, want) != SW_OK || scenario("opencl:0", 4, loss) != SW_OK)
        fail_msg("after %s: %s", after, message);
    for (int i = 0; i < 2; i++) assert_true(fabsf(loss[i] - want[i]) < 1e-5f);
    assert_int_equal(live(), 0);
}

/* ---- every call fails in turn ------------------------------------------------------------------------------------ */

/* These may fail without harm: what is kept in the cache is a convenience, and whoever releases cannot do more. */
static bool harmless(const char *name)
{
    return strncmp(name, "clRelease", 9) == 0 || strcmp(name, "clGetProgramInfo") == 0 ||
           strcmp(name, "clEnqueueUnmapMemObject") == 0 || strcmp(name, "clCreateProgramWithBinary") == 0 || strcmp(name, "clGetProgramBuildInfo") == 0;
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

/* ---- closing -------------------------------------------------------------------------------------------------------- */

/* The device is closed first: it lives until the last that was made on it is freed, in any order. */
static void test_closed_first(void **state)
{
    (void)state;
    if (fake == NULL) skip();
    for (int order = 0; order < 3; order++) {
        sw_device *d = NULL;
        sw_graph *g = NULL;
        sw_params *params = NULL;
        sw_program *p = NULL;
        sw_buffer *b = NULL;
        float loss = 0;
        heal();
        assert_int_equal(make_graph(16, &g), SW_OK);
        assert_int_equal(sw_device_open("opencl:0", NULL, &d), SW_OK);
        assert_int_equal(sw_params_new(d, g, 0, &params), SW_OK);
        assert_int_equal(sw_compile(g, d, &(sw_compile_options){ .params = params }, &p), SW_OK);
        assert_int_equal(sw_buffer_new(d, 64, &b), SW_OK);
        sw_device_close(d);
        sw_graph_free(g);
        assert_int_equal(set_inputs(p, 16), SW_OK);
        assert_int_equal(run_once(p, &loss), SW_OK);
        assert_true(loss > 0);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(fake->live[FAKECL_CONTEXT], 1);
            if ((k + order) % 3 == 0) sw_program_free(p);
            if ((k + order) % 3 == 1) sw_params_free(params);
            if ((k + order) % 3 == 2) sw_buffer_free(b);
        }
        assert_int_equal(live(), 0);
        assert_int_equal(fake->faults, 0);
    }
}

/* ---- uploads beside what runs --------------------------------------------------------------------------------------- */

enum { STEPS = 30 };

/* Steps on other data each, so large that they are sent beside what runs; losses are read every few of them. */
static sw_status run_many(sw_program *p, int every, float *loss)
{
    static float x[MOST * WIDTH];
    static int64_t target[MOST];
    sw_status st = SW_OK;
    for (int s = 0; s < STEPS && st == SW_OK; s++) {
        for (int e = 0; e < MOST * WIDTH; e++) x[e] = (float)((e + s) * 7 % 13) * 0.125f - 0.75f;
        for (int e = 0; e < MOST; e++) target[e] = (e + s) % CLASSES;
        st = sw_program_set(p, sw_program_input(p, "x"), SW_F32, x, MOST * WIDTH);
        if (st == SW_OK) st = sw_program_set(p, sw_program_input(p, "target"), SW_I64, target, MOST);
        if (st == SW_OK) st = sw_program_run(p);
        loss[s] = 0;
        if (st == SW_OK && s % every == every - 1) st = sw_program_get(p, 0, SW_F32, &loss[s], 1);
    }
    return st;
}

static sw_status train_many(int every, float *loss)
{
    sw_device *d = NULL;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    fake->waits = fake->across = 0;
    sw_status st = make_graph(MOST, &g);
    if (st == SW_OK) st = sw_device_open("opencl:0", NULL, &d);
    if (st == SW_OK) st = sw_compile(g, d, NULL, &p);
    if (st == SW_OK) st = run_many(p, every, loss);
    keep_message(st);
    sw_program_free(p);
    sw_device_close(d);
    sw_graph_free(g);
    return st;
}

/* The same bits as with one queue; the queues wait for each other as they must, and the host only if it is far ahead. */
static void test_copy_queue(void **state)
{
    (void)state;
    static const int every[] = { 1, 2, 7, STEPS };
    if (fake == NULL) skip();
    for (size_t k = 0; k < sizeof every / sizeof every[0]; k++) {
        float loss[2][STEPS];
        long across = 0, waits = 0;
        for (int beside = 0; beside < 2; beside++) {
            heal();
            setenv("SWOOP_OPENCL_COPY_QUEUE", beside ? "1" : "0", 1);
            if (train_many(every[k], loss[beside]) != SW_OK) fail_msg("%s", message);
            if (!beside) assert_int_equal(fake->across, 0);
        }
        across = fake->across;
        waits = fake->waits;
        unsetenv("SWOOP_OPENCL_COPY_QUEUE");
        assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
        assert_true(across >= 2L * STEPS); /* each copy to a slot waits, and each use of a piece again */
        if (every[k] <= 2 && waits > 0) fail_msg("the host waited %ld times beside reading", waits);
        expect_recovery("uploads beside what runs");
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

/* ---- in processes of their own: the list of devices is made once ------------------------------------------------- */

/* Runs f in a child with these variables set ("A=1 B=2"); its exit status is to be 0. */
static void in_child(const char *environment, int (*f)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char text[300], *rest = text;
        snprintf(text, sizeof text, "%s", environment);
        for (char *pair; (pair = strtok_r(rest, " ", &rest)) != NULL;) {
            char *const equals = strchr(pair, '=');
            *equals = '\0';
            setenv(pair, equals + 1, 1);
        }
        _exit(open_fake() ? f() : 3);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) fail_msg("%s: exit status %d, signal %d", environment, WEXITSTATUS(status), WTERMSIG(status));
}

/* Ops of all kinds of kernels: matrix products, reductions, sorting, running sums, indices. */
enum { ROWS = 5, COLUMNS = 700, OPS = 8, ALL = ROWS * COLUMNS };

static sw_status make_ops(sw_graph *g)
{
    const int64_t shape[] = { ROWS, COLUMNS };
    const sw_t x = sw_input(g, "x", SW_F32, 2, shape), i = sw_input(g, "i", SW_I64, 2, shape);
    const sw_t y[OPS] = { sw_sort(x, 1, true), sw_cumsum(x, 1, true), sw_argsort(x, 1, false), sw_argmax(x, 1, true),
                          sw_scatter_add(x, i, x, 1), sw_softmax(x, 1), sw_matmul(x, sw_transpose(x, 0, 1)),
                          sw_sum(x, 1u, true) };
    for (int k = 0; k < OPS; k++) {
        const char name[] = { 'y', (char)('0' + k), '\0' };
        sw_output(y[k], name);
    }
    return sw_graph_status(g);
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

/* A device with memory of its own has the second queue without being told. */
static int compare_beside(void)
{
    float loss[STEPS];
    if (train_many(1, loss) != SW_OK) return 1;
    if (fake->across < STEPS || fake->waits > 0) return 2;
    return live() == 0 && fake->faults == 0 && fake->races == 0 && fake->unflushed == 0 ? 0 : 4;
}

static void test_memory_of_its_own(void **state)
{
    (void)state;
    if (getenv("SWOOP_OPENCL_LIBRARY") == NULL) skip();
    in_child("FAKECL_GPU=1", compare_beside);
}

static void test_odd_limits(void **state)
{
    (void)state;
    if (getenv("SWOOP_OPENCL_LIBRARY") == NULL) skip();
    static const char *const limits[] = {
        "FAKECL_MAX_GROUP=64 FAKECL_NO_FP64=1 FAKECL_LOCAL=32768 FAKECL_UNITS=1 SWOOP_OPENCL_SERIAL=0",
        "FAKECL_MAX_GROUP=64 FAKECL_NO_FP64=1 FAKECL_LOCAL=32768 FAKECL_UNITS=1 SWOOP_OPENCL_SERIAL=1",
        "FAKECL_MAX_GROUP=16 FAKECL_LOCAL=4096 FAKECL_UNITS=64 FAKECL_GPU=1",
        "FAKECL_MAX_GROUP=1 FAKECL_LOCAL=1024 FAKECL_UNITS=3 FAKECL_GPU=1",
        "FAKECL_MAX_GROUP=1024 FAKECL_UNITS=108 FAKECL_GPU=1",
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) in_child(limits[i], compare_ops);
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

/* ---- the group --------------------------------------------------------------------------------------------------- */

static int opens(void)
{
    sw_device *d = NULL;
    const bool good = sw_device_open("opencl:0", NULL, &d) == SW_OK;
    sw_device_close(d);
    return good ? 0 : 1;
}

/* Whether there is a device at all is found out in a child, too: later ones are to see other limits. */
static bool has_device(void)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(open_fake() ? opens() : 3);
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *f)
{
    (void)s;
    (void)type;
    (void)f;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(cache, sizeof cache, "/tmp/swoop-faults-XXXXXX");
    if (mkdtemp(cache) == NULL) return -1;
    setenv("SWOOP_CACHE_DIR", cache, 1);
    setenv("SWOOP_OPENCL_LIBRARY", SWOOP_FAKECL, 1);
    if (has_device()) return 0;
    fprintf(stderr, "skipped: there is no OpenCL device\n");
    unsetenv("SWOOP_OPENCL_LIBRARY");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(cache, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* From here on the library is in this process. */
static int load_fake(void **state)
{
    (void)state;
    return getenv("SWOOP_OPENCL_LIBRARY") == NULL || fake != NULL || open_fake() ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_limits),
        cmocka_unit_test(test_memory_of_its_own),
        cmocka_unit_test(test_listing_fails),
        cmocka_unit_test_setup(test_each_call_fails, load_fake),
        cmocka_unit_test_setup(test_each_call_fails_when_profiled, load_fake),
        cmocka_unit_test_setup(test_each_call_fails_without_cache, load_fake),
        cmocka_unit_test_setup(test_closed_first, load_fake),
        cmocka_unit_test_setup(test_copy_queue, load_fake),
        cmocka_unit_test_setup(test_each_call_fails_beside, load_fake),
        cmocka_unit_test_setup(test_lost_device, load_fake),
        cmocka_unit_test_setup(test_little_memory, load_fake),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
