/* test_opencl.c: what is special about the OpenCL backend: programs built together, the cache on disk, folders of kernels,
 * both kinds of kernels, bad indices, memory that is not there. On opencl:0; skipped, and said so, where there is none. */
#include "backend/opencl/cl.h"
#include "exec/exec.h"
#include "swoop/swoop.h"

#include <setjmp.h>
#include <cmocka.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* timeout: 600 */
/* needs: OPENCL */

static char folder[256];

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s: %s", sw_status_name(st), sw_error());
}

static sw_device *open_device(const sw_device_options *o)
{
    sw_device *d = NULL;
    const sw_status st = sw_device_open("opencl:0", o, &d);
    if (st == SW_OK) return d;
    if (sw__cl_devices(NULL) > 0) fail_msg("opencl:0: %s", sw_error());
    print_message("skipped: %s\n", sw_error());
    skip();
    return NULL;
}

static sw__gpu *gpu_of(sw_device *d)
{
    return &((sw__cl *)d->dev)->gpu;
}

/* A layer with softmax and its gradient: matmul, row, column and pointwise kernels. */
static sw_graph *small_graph(int64_t n)
{
    sw_graph *g = NULL;
    ok(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 2, (int64_t[]){ n, 12 }), y = sw_input(g, "y", SW_I64, 1, &n);
    const sw_t loss = sw_cross_entropy(sw_linear(sw_relu(sw_linear(x, 20, .name = "a")), 5, .name = "b"), y);
    ok(sw_optimizer_apply(&(sw_optimizer){ .kind = SW_ADAM, .lr = 0.01 }, loss, NULL, 0));
    sw_output(loss, "loss");
    ok(sw_graph_status(g));
    return g;
}

static sw_program *program_on(sw_device *d, int64_t n, bool later)
{
    sw_program *p = NULL;
    sw_graph *const g = small_graph(n);
    ok(sw_compile(g, d, &(sw_compile_options){ .build_later = later }, &p));
    sw_graph_free(g);
    return p;
}

static void set_inputs(sw_program *p, int64_t n, int64_t label)
{
    double x[40 * 12], one = 1, rate = 0.01;
    int64_t y[40];
    for (int64_t i = 0; i < n * 12; i++) x[i] = sin((double)i);
    for (int64_t i = 0; i < n; i++) y[i] = i % 5;
    y[n - 1] = label;
    ok(sw_program_set(p, sw_program_input(p, "x"), SW_F64, x, n * 12));
    ok(sw_program_set(p, sw_program_input(p, "y"), SW_I64, y, n));
    ok(sw_program_set(p, sw_program_input(p, SW_INPUT_LR), SW_F64, &rate, 1));
    ok(sw_program_set(p, sw_program_input(p, SW_INPUT_BIAS1), SW_F64, &one, 1));
    ok(sw_program_set(p, sw_program_input(p, SW_INPUT_BIAS2), SW_F64, &one, 1));
}

/* The loss after five steps. */
static double trained(sw_program *p, int64_t n)
{
    double loss = NAN;
    set_inputs(p, n, 0);
    for (int i = 0; i < 5; i++) ok(sw_program_run(p));
    ok(sw_program_get(p, 0, SW_F64, &loss, 1));
    return loss;
}

static double trained_on_cpu(int64_t n)
{
    sw_device *d = NULL;
    ok(sw_device_open("cpu", NULL, &d));
    sw_program *const p = program_on(d, n, false);
    const double loss = trained(p, n);
    sw_program_free(p);
    sw_device_close(d);
    return loss;
}

static void path_in(char *path, size_t size, const char *name)
{
    snprintf(path, size, "%.200s/%s", folder, name);
}

static void use_cache(const char *name)
{
    char path[300];
    path_in(path, sizeof path, name);
    assert_int_equal(setenv("SWOOP_CACHE_DIR", path, 1), 0);
}

/* ---- building ---------------------------------------------------------------------------------------------------------- */

static void test_built_together(void **state)
{
    (void)state;
    use_cache("together");
    sw_device *const d = open_device(NULL);
    sw_program *const a = program_on(d, 8, true), *const b = program_on(d, 6, true);
    assert_int_equal(gpu_of(d)->compiled, 0);
    const double loss = trained(a, 8);
    assert_int_equal(gpu_of(d)->compiled, 1);
    assert_true(fabs(loss - trained_on_cpu(8)) < 1e-5);
    assert_true(fabs(trained(b, 6) - trained_on_cpu(6)) < 1e-5);
    assert_int_equal(gpu_of(d)->compiled, 1);
    sw_program *const again = program_on(d, 8, false); /* all its kernels are there */
    assert_int_equal(gpu_of(d)->compiled, 1);
    assert_true(trained(again, 8) == loss);
    sw_program_free(a);
    sw_program_free(b);
    sw_program_free(again);
    assert_null(gpu_of(d)->kernels);
    sw_device_close(d);
}

static void test_cache(void **state)
{
    (void)state;
    use_cache("cache");
    double loss[3];
    for (int i = 0; i < 3; i++) { /* compiled, loaded, compiled again after damage */
        sw_device *const d = open_device(NULL);
        sw_program *const p = program_on(d, 8, false);
        loss[i] = trained(p, 8);
        assert_int_equal(gpu_of(d)->compiled, i == 1 ? 0 : 1);
        assert_int_equal(gpu_of(d)->cached, i == 1 ? 1 : 0);
        sw_program_free(p);
        sw_device_close(d);
        char command[400];
        snprintf(command, sizeof command, "for f in '%s/cache'/*; do printf x | dd of=\"$f\" bs=1 seek=5000 conv=notrunc 2>/dev/null; "
                 "done", folder);
        if (i == 1) assert_int_equal(system(command), 0);
    }
    assert_true(loss[0] == loss[1] && loss[1] == loss[2]);
}

/* A driver's optimiser that is turned off because it errs must not go on living in the cache. */
static void test_options(void **state)
{
    (void)state;
    sw_device_close(open_device(NULL)); /* or skips */
    use_cache("options");
    const char *const before = getenv("SWOOP_OPENCL_OPTIONS");
    char *const kept = before != NULL ? strdup(before) : NULL;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(setenv("SWOOP_OPENCL_OPTIONS", i == 0 ? "-DONE" : "-DONE -cl-opt-disable", 1), 0);
        sw_device *const d = open_device(NULL);
        sw_program *const p = program_on(d, 8, false);
        assert_int_equal(gpu_of(d)->compiled, i == 2 ? 0 : 1);
        sw_program_free(p);
        sw_device_close(d);
    }
    assert_int_equal(kept != NULL ? setenv("SWOOP_OPENCL_OPTIONS", kept, 1) : unsetenv("SWOOP_OPENCL_OPTIONS"), 0);
    free(kept);
}

/* Texts that no compiler takes: whoever wanted one is told so, and everybody else's kernels are built. */
static void test_refused(void **state)
{
    (void)state;
    use_cache("refused");
    sw_device *const d = open_device(NULL);
    sw__gpu *const g = gpu_of(d);
    sw__gpu_kernel *bad[2];
    sw__gpu_plan *plan[2];
    sw_program *const a = program_on(d, 8, true);
    for (int i = 0; i < 2; i++) {
        char text[80];
        snprintf(text, sizeof text, "KERNEL(bad%d)(BUF(float, x)) { nobody_knows_this%d(x); }\n", i, i);
        ok(sw__gpu_want(g, i ? "the second" : "the first", text, i ? "bad1" : "bad0", &bad[i]));
        ok(sw__gpu_plan_new(g, "bad", &plan[i]));
        ok(sw__gpu_add(plan[i], bad[i], 1, 1, 1, 1, 1, 1, NULL, 0));
    }
    sw_program *const b = program_on(d, 6, false);
    for (int round = 0; round < 2; round++) {
        assert_true(fabs(trained(round ? b : a, round ? 6 : 8) - trained_on_cpu(round ? 6 : 8)) < 1e-5);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sw__gpu_plan_ready(plan[i]), SW_ERR_DEVICE);
            if (strstr(sw_error(), i ? "nobody_knows_this1" : "nobody_knows_this0") == NULL ||
                strstr(sw_error(), i ? "bad1 of the second does not compile" : "bad0 of the first does not compile") == NULL)
                fail_msg("%s", sw_error());
            assert_int_equal(sw__gpu_plan_run(plan[i], NULL), SW_ERR_DEVICE);
        }
        ok(sw__gpu_build(g)); /* tried again, and told again */
    }
    assert_int_equal(g->compiled, 1);
    for (int i = 0; i < 2; i++) sw__gpu_plan_free(plan[i]);
    sw_program_free(a);
    sw_program_free(b);
    assert_null(g->kernels);
    sw_device_close(d);
}

/* ---- a whole fit --------------------------------------------------------------------------------------------------------- */

enum { SAMPLES = 50, WIDTH = 12 };

static sw_dataset *samples(int64_t n)
{
    static float x[SAMPLES][WIDTH];
    static int64_t y[SAMPLES];
    for (int64_t i = 0; i < n; i++) {
        y[i] = i % 5;
        for (int64_t k = 0; k < WIDTH; k++) x[i][k] = (float)sin((double)(i * WIDTH + k)) + (k == y[i] ? 1.0f : 0.0f);
    }
    const sw_array xs = { .dtype = SW_F32, .rank = 2, .shape = { n, WIDTH }, .data = x, .bytes = sizeof *x * (size_t)n };
    const sw_array ys = { .dtype = SW_I64, .rank = 1, .shape = { n }, .data = y, .bytes = sizeof *y * (size_t)n };
    sw_dataset *d = NULL;
    ok(sw_dataset_from_memory(&xs, &ys, NULL, &d));
    return d;
}

/* What was told of compiling, and how much was built when the first step was over. */
typedef struct told {
    sw__gpu *gpu;
    int begun, done, kernels;
    bool kept;
    double seconds;
    uint64_t built_at_first, steps;
} told;

static void on_build(void *context, const sw_build_event *e)
{
    told *const t = context;
    assert_true(e->device != NULL && *e->device != '\0' && e->kernels > 0 && !e->failed);
    *(e->done ? &t->done : &t->begun) += 1;
    t->kernels += e->done ? e->kernels : 0;
    t->kept = e->kept;
    t->seconds = e->seconds;
}

static sw_status on_event(void *context, const sw_event *e)
{
    told *const t = context;
    if (e->kind == SW_EVENT_STEP && t->steps++ == 0) t->built_at_first = t->gpu->compiled + t->gpu->cached;
    return SW_OK;
}

/* An epoch whose last batch is smaller, and evaluation in two sizes: nothing is compiled after the first step, and all of
 * it together; who asked is told. From the cache nobody is told anything. */
static void test_fit_builds_once(void **state)
{
    (void)state;
    use_cache("fit");
    sw_device_close(open_device(NULL)); /* or skips */
    sw_dataset *const train = samples(SAMPLES), *const valid = samples(SAMPLES - 3);
    for (int round = 0; round < 2; round++) {
        sw_device *const d = open_device(NULL);
        told t = { .gpu = gpu_of(d) };
        sw_trainer *trainer = NULL;
        ok(sw_trainer_new(d, &(sw_trainer_options){ .model_name = "mlp:9", .batch = 16 }, &trainer));
        sw_on_build(on_build, &t);
        ok(sw_trainer_prepare(trainer, train));
        assert_int_equal(t.gpu->compiled + t.gpu->cached, 0);
        ok(sw_trainer_fit(trainer, train, &(sw_fit_options){ .epochs = 2, .valid = valid, .event = on_event, .context = &t },
                          NULL));
        sw_on_build(NULL, NULL);
        assert_int_equal(t.steps, 8);
        assert_int_equal(t.built_at_first, 1);
        assert_int_equal(t.gpu->compiled + t.gpu->cached, 1);
        assert_int_equal(t.gpu->compiled, round == 0 ? 1 : 0);
        assert_true(t.begun == t.done && t.done == (int)t.gpu->compiled);
        if (round == 0) assert_true(t.kept && t.kernels > 10 && t.seconds > 0);
        sw_trainer_free(trainer);
        sw_device_close(d);
    }
    sw_dataset_close(train);
    sw_dataset_close(valid);
}

/* ---- folders of kernels ------------------------------------------------------------------------------------------------- */

static void test_folder(void **state)
{
    (void)state;
    char path[300], name[340];
    struct stat s;
    use_cache("folder-cache");
    path_in(path, sizeof path, "kernels");
    sw_device *d = open_device(&(sw_device_options){ .write_kernels = path });
    sw_program *p = program_on(d, 8, false);
    const double loss = trained(p, 8);
    sw_program_free(p);
    sw_device_close(d);
    snprintf(name, sizeof name, "%s/manifest.json", path);
    assert_int_equal(stat(name, &s), 0);

    d = open_device(&(sw_device_options){ .kernels = path });
    p = program_on(d, 8, false);
    assert_true(trained(p, 8) == loss);
    assert_int_equal(gpu_of(d)->compiled + gpu_of(d)->cached, 0);
    sw_graph *const g = small_graph(7); /* another batch size has other kernels */
    sw_program *other = NULL;
    assert_int_equal(sw_compile(g, d, NULL, &other), SW_ERR_DATA);
    assert_non_null(strstr(sw_error(), "has no kernel"));
    assert_non_null(strstr(sw_error(), path));
    assert_true(trained(p, 8) < loss); /* the device lives on */
    sw_graph_free(g);
    sw_program_free(p);
    sw_device_close(d);
}

/* ---- kinds of kernels ---------------------------------------------------------------------------------------------------- */

/* A GPU's kernels on whatever device this is, and a CPU's. */
static void test_both_kinds(void **state)
{
    (void)state;
    use_cache("kinds");
    const double want = trained_on_cpu(32);
    for (int serial = 0; serial < 2; serial++) {
        assert_int_equal(setenv("SWOOP_OPENCL_SERIAL", serial ? "1" : "0", 1), 0);
        sw_device *const d = open_device(NULL);
        sw_program *const p = program_on(d, 32, false);
        const double have = trained(p, 32);
        if (!(fabs(have - want) <= 1e-5 * want)) fail_msg("serial %d: %.9g, not %.9g", serial, have, want);
        sw_program_free(p);
        sw_device_close(d);
    }
    unsetenv("SWOOP_OPENCL_SERIAL");
}

/* ---- what users do wrong -------------------------------------------------------------------------------------------------- */

static void test_bad_label(void **state)
{
    (void)state;
    use_cache("kinds");
    sw_device *const d = open_device(NULL);
    sw_program *const p = program_on(d, 8, false);
    double loss = 0;
    set_inputs(p, 8, 5);
    sw_status st = sw_program_run(p);
    if (st == SW_OK) st = sw_program_get(p, 0, SW_F64, &loss, 1);
    assert_int_equal(st, SW_ERR_DATA);
    assert_non_null(strstr(sw_error(), "is 5, outside 0 to 4"));
    set_inputs(p, 8, 4);
    ok(sw_program_run(p));
    ok(sw_program_get(p, 0, SW_F64, &loss, 1)); /* said once, then forgotten */
    sw_program_free(p);
    sw_device_close(d);
}

static void test_too_large(void **state)
{
    (void)state;
    sw_device *const d = open_device(NULL);
    const uint64_t most = ((sw__cl *)d->dev)->entry->max_alloc;
    sw_graph *g = NULL;
    ok(sw_graph_new(&g));
    const int64_t n = (int64_t)(most / 4 + 1024);
    const sw_t x = sw_input(g, "x", SW_F32, 1, &n);
    sw_output(sw_neg(x), "y");
    sw_program *p = NULL;
    assert_int_equal(sw_compile(g, d, NULL, &p), SW_ERR_MEMORY);
    assert_non_null(strstr(sw_error(), "in one piece"));
    sw_graph_free(g);
    p = program_on(d, 8, false);
    assert_true(trained(p, 8) > 0);
    sw_program_free(p);
    sw_device_close(d);
}

static void test_names(void **state)
{
    (void)state;
    sw_device *const d = open_device(NULL), *e = NULL;
    char id[200];
    ok(sw_device_open("opencl", NULL, &e));
    assert_string_equal(sw_device_info(e)->id, "opencl:0");
    sw_device_close(e);
    snprintf(id, sizeof id, "opencl:%.60s", sw_device_info(d)->name);
    ok(sw_device_open(id, NULL, &e));
    sw_device_close(e);
    assert_int_equal(sw_device_open("opencl:no such name", NULL, &e), SW_ERR_ARGUMENT);
    assert_non_null(strstr(sw_error(), "opencl:0"));
    assert_int_equal(sw_device_open("opencl:99", NULL, &e), SW_ERR_ARGUMENT);
    sw_device_close(d);
}

/* ---- a folder for all ------------------------------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *s, int flag, struct FTW *at)
{
    (void)s;
    (void)flag;
    (void)at;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.200s/swoop-opencl-XXXXXX", tmp ? tmp : "/tmp");
    setenv("SWOOP_NO_TUNE", "1", 1); /* programs are counted here; trials have theirs */
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_together), cmocka_unit_test(test_cache),     cmocka_unit_test(test_folder),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_fit_builds_once),
        cmocka_unit_test(test_both_kinds),     cmocka_unit_test(test_bad_label), cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
