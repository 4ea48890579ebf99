/* cuda_step.h: what the tests of the CUDA backend share: a small training step, and the double of the GPU (tests/fakecuda),
 * which LD_LIBRARY_PATH puts in front of NVIDIA's libraries. Everything is static: each test program includes it. */
#ifndef SW_TESTS_CUDA_STEP_H
#define SW_TESTS_CUDA_STEP_H

#include "backend/cuda/cu.h"
#include "exec/exec.h"
#include "swoop/swoop.h"

#include <setjmp.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the double (fakecuda/fake.h) ------------------------------------------------------------------------------------ */

static struct {
    void (*fk_fail_set)(const char *spec);
    long (*fk_calls)(const char *function);
    long (*fk_reports)(void);
    long (*fk_live)(const char *kind);
    void (*fk_heal)(void);
} fake;

static SW_UNUSED bool fake_find(void *library, const char *name, void *pointer)
{
    void *const symbol = dlsym(library, name);
    if (symbol != NULL) memcpy(pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

static SW_UNUSED bool fake_open(void)
{
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library != NULL && fake_find(library, "fk_fail_set", &fake.fk_fail_set) &&
           fake_find(library, "fk_calls", &fake.fk_calls) && fake_find(library, "fk_reports", &fake.fk_reports) &&
           fake_find(library, "fk_live", &fake.fk_live) && fake_find(library, "fk_heal", &fake.fk_heal);
}

/* ---- a training step --------------------------------------------------------------------------------------------------- */

static SW_UNUSED void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s: %s", sw_status_name(st), sw_error());
}

enum { STEP_WIDE = 12, STEP_CLASSES = 5, STEP_MOST = 4096 };

/* Two layers, softmax, Adam: matmul, row, column and pointwise kernels; labels that may be out of range. */
static SW_UNUSED sw_status step_graph(int64_t n, sw_graph **out)
{
    const sw_status st = sw_graph_new(out);
    if (st != SW_OK) return st;
    const sw_t x = sw_input(*out, "x", SW_F32, 2, (int64_t[]){ n, STEP_WIDE }), y = sw_input(*out, "y", SW_I64, 1, &n);
    const sw_t hidden = sw_relu(sw_linear(x, 20, .name = "a"));
    const sw_t loss = sw_cross_entropy(sw_linear(hidden, STEP_CLASSES, .name = "b"), y);
    SW_TRY(sw_graph_status(*out));
    SW_TRY(sw_optimizer_apply(&(sw_optimizer){ .kind = SW_ADAM, .lr = 0.01 }, loss, NULL, 0));
    sw_output(loss, "loss");
    return sw_graph_status(*out);
}

static SW_UNUSED sw_program *step_program(sw_device *d, int64_t n, const sw_compile_options *o)
{
    sw_program *p = NULL;
    sw_graph *g = NULL;
    ok(step_graph(n, &g));
    ok(sw_compile(g, d, o, &p));
    sw_graph_free(g);
    return p;
}

static SW_UNUSED sw_status step_inputs(sw_program *p, int64_t n, int64_t last_label)
{
    static double x[STEP_MOST * STEP_WIDE];
    static int64_t y[STEP_MOST];
    const double one = 1, rate = 0.01;
    for (int64_t i = 0; i < n * STEP_WIDE; i++) x[i] = sin((double)i);
    for (int64_t i = 0; i < n; i++) y[i] = i % STEP_CLASSES;
    y[n - 1] = last_label;
    SW_TRY(sw_program_set(p, sw_program_input(p, "x"), SW_F64, x, n * STEP_WIDE));
    SW_TRY(sw_program_set(p, sw_program_input(p, "y"), SW_I64, y, n));
    SW_TRY(sw_program_set(p, sw_program_input(p, SW_INPUT_LR), SW_F64, &rate, 1));
    SW_TRY(sw_program_set(p, sw_program_input(p, SW_INPUT_BIAS1), SW_F64, &one, 1));
    return sw_program_set(p, sw_program_input(p, SW_INPUT_BIAS2), SW_F64, &one, 1);
}

enum { STEP_INPUTS = 5, STEP_TIMES = 5 };

/* Five steps; *loss is the last one's. */
static SW_UNUSED sw_status step_train(sw_program *p, int64_t n, double *loss)
{
    for (int i = 0; i < STEP_TIMES; i++) {
        SW_TRY(step_inputs(p, n, 0));
        SW_TRY(sw_program_run(p));
    }
    return sw_program_get(p, 0, SW_F64, loss, 1);
}

static SW_UNUSED double step_trained(sw_program *p, int64_t n)
{
    double loss = NAN;
    ok(step_train(p, n, &loss));
    return loss;
}

static SW_UNUSED double step_on_cpu(int64_t n)
{
    sw_device *d = NULL;
    ok(sw_device_open("cpu", NULL, &d));
    sw_program *const p = step_program(d, n, NULL);
    const double loss = step_trained(p, n);
    sw_program_free(p);
    sw_device_close(d);
    return loss;
}

static SW_UNUSED sw__cu *step_cu(sw_device *d)
{
    return d->dev;
}

/* ---- a folder for all ---------------------------------------------------------------------------------------------------- */

static char step_folder[256];

static SW_UNUSED void step_path(char *path, size_t size, const char *name)
{
    snprintf(path, size, "%.200s/%s", step_folder, name);
}

static SW_UNUSED void step_cache(const char *name)
{
    char path[300];
    step_path(path, sizeof path, name);
    assert_int_equal(setenv("SWOOP_CACHE_DIR", path, 1), 0);
}

static SW_UNUSED int step_remove(const char *path, const struct stat *s, int flag, struct FTW *at)
{
    (void)s;
    (void)flag;
    (void)at;
    return remove(path);
}

static SW_UNUSED int step_set_up(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(step_folder, sizeof step_folder, "%.200s/swoop-cuda-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(step_folder) == NULL) return -1;
    step_cache("cache");
    return 0;
}

static SW_UNUSED int step_tear_down(void **state)
{
    (void)state;
    return nftw(step_folder, step_remove, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
