/* cuda_op.h: runs single ops of the CUDA backend on the double of a GPU: tensors with any strides and places, the op
 * planned and run, the result compared. Included by tests of what is planned op by op; everything is static. */
#ifndef SW_TESTS_CUDA_OP_H
#define SW_TESTS_CUDA_OP_H

#include "backend/backend.h"
#include "backend/cuda/cu.h"
#include "exec/exec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the double -------------------------------------------------------------------------------------------------- */

/* The loader reads LD_LIBRARY_PATH when a process starts: this one starts again with the fakes in front. */
static SW_UNUSED void under_the_double(char **argv)
{
    const char *const path = getenv("LD_LIBRARY_PATH");
    if (path != NULL && strncmp(path, SWOOP_FAKECUDA, strlen(SWOOP_FAKECUDA)) == 0) return;
    char all[2000];
    snprintf(all, sizeof all, "%s%s%s", SWOOP_FAKECUDA, path != NULL ? ":" : "", path != NULL ? path : "");
    setenv("LD_LIBRARY_PATH", all, 1);
    execv("/proc/self/exe", argv);
    fprintf(stderr, "cannot start again under the double\n");
    exit(1);
}

static SW_UNUSED void *fake_function(const char *name)
{
    void *const l = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return l != NULL ? dlsym(l, name) : NULL;
}

static SW_UNUSED long fake_count(const char *function, const char *argument)
{
    long (*f)(const char *) = NULL;
    void *const symbol = fake_function(function);
    memcpy(&f, &symbol, sizeof f);
    return f != NULL ? f(argument) : -1;
}

/* ---- a device and what went wrong on it -------------------------------------------------------------------------- */

typedef struct bench {
    sw_device *device;
    bool tf32, has_cudnn;
    bool no_library, any; /* what is expected of plans: our kernels; either */
    int problems;
    double largest; /* relative difference seen */
} bench;

static SW_UNUSED void problem(bench *x, const char *fmt, ...) SW_PRINTF(2, 3);
static SW_UNUSED void problem(bench *x, const char *fmt, ...)
{
    va_list ap;
    if (x->problems++ > 20) return;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n");
}

static SW_UNUSED bench bench_open(bool tf32)
{
    const char *const real = getenv("SWOOP_TEST_DEVICE"); /* there a library may refuse what the double takes */
    const char *const id = real != NULL && *real != '\0' ? real : "cuda:0";
    bench x = { .tf32 = tf32, .any = id == real };
    if (sw_device_open(id, &(sw_device_options){ .tf32 = tf32 }, &x.device) != SW_OK) fail_msg("%s", sw_error());
    x.has_cudnn = id == real || access(SWOOP_FAKECUDA "/libcudnn.so.9", R_OK) == 0;
    return x;
}

static SW_UNUSED sw__cu *bench_cu(const bench *x)
{
    return x->device->dev;
}

/* Problems, those that the double reports included: reports, and what is left over. */
static SW_UNUSED int bench_close(bench *x)
{
    sw_device_close(x->device);
    const long live = fake_count("fk_live", NULL), reports = fake_count("fk_reports", NULL);
    if (live > 0) problem(x, "%ld objects are left", live);
    if (reports > 0) problem(x, "%ld reports of the double", reports);
    return x->problems;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Values in double, as rounded to the type, in the order of the axes; stride: elements, where they lie in memory. */
typedef struct tensor {
    sw_dtype type;
    int rank, place; /* elements before the first */
    int64_t dim[SW_MAX_RANK], stride[SW_MAX_RANK];
    double *value;
} tensor;

static SW_UNUSED int64_t points(const tensor *t)
{
    return sw__dims_product(t->dim, t->rank);
}

static SW_UNUSED void place_of(const tensor *t, int64_t i, int64_t *at)
{
    for (int a = t->rank - 1; a >= 0; i /= t->dim[a--]) at[a] = i % t->dim[a];
}

static SW_UNUSED int64_t offset_of(const tensor *t, const int64_t *at)
{
    int64_t o = t->place;
    for (int a = 0; a < t->rank; a++) o += at[a] * t->stride[a];
    return o;
}

/* Elements of the memory that holds it, and a few more. */
static SW_UNUSED int64_t span_of(const tensor *t)
{
    int64_t n = t->place + 1 + 5;
    for (int a = 0; a < t->rank; a++) n += (t->dim[a] - 1) * t->stride[a];
    return n;
}

static SW_UNUSED double value_at(const tensor *t, const int64_t *at)
{
    int64_t i = 0;
    for (int a = 0; a < t->rank; a++) i = i * t->dim[a] + at[a];
    return t->value[i];
}

static SW_UNUSED double rounded(sw_dtype type, double v)
{
    double back;
    char raw[8];
    sw__convert(raw, type, &v, SW_F64, 1);
    sw__convert(&back, SW_F64, raw, type, 1);
    return back;
}

/* Uniform in [-1, 1). An axis that is walked in steps of 0 has the same values all along. */
static SW_UNUSED void fill(tensor *t, uint64_t seed)
{
    const int64_t n = points(t);
    int64_t at[SW_MAX_RANK];
    sw__rng rng;
    sw__rng_init(&rng, seed, 1);
    t->value = malloc((size_t)n * sizeof *t->value);
    assert_non_null(t->value);
    for (int64_t i = 0; i < n; i++) t->value[i] = rounded(t->type, sw__rng_uniform(&rng) * 2 - 1);
    for (int64_t i = 0; i < n; i++) {
        place_of(t, i, at);
        for (int a = 0; a < t->rank; a++)
            if (t->stride[a] == 0) at[a] = 0;
        t->value[i] = value_at(t, at);
    }
}

static SW_UNUSED void tensor_free(tensor *t)
{
    free(t->value);
    t->value = NULL;
}

static SW_UNUSED sw__desc desc_of(const tensor *t)
{
    const size_t at = ((size_t)t->place * sw_dtype_size(t->type)) | 16;
    sw__desc d = { .dtype = (uint8_t)t->type, .rank = (uint8_t)t->rank, .align = (uint16_t)(at & (~at + 1)) };
    memcpy(d.dim, t->dim, sizeof d.dim);
    memcpy(d.stride, t->stride, sizeof d.stride);
    return d;
}

/* ---- an op ------------------------------------------------------------------------------------------------------- */

typedef struct op_run {
    sw__op op;
    const sw__attr *attr;
    const char *name;
    int n_in;
    tensor *t; /* inputs, then the result, whose values are filled in */
    char note[128];
} op_run;

enum { MOST_TENSORS = 4 };

static void *memory_for(bench *x, const tensor *t, bool with_values)
{
    const sw__backend *const be = x->device->backend;
    const size_t size = sw_dtype_size(t->type), bytes = (size_t)span_of(t) * size;
    char *const host = malloc(bytes);
    void *buffer = NULL;
    int64_t at[SW_MAX_RANK];
    assert_non_null(host);
    memset(host, 0xFF, bytes); /* NaN: whoever reads a gap will show it */
    for (int64_t i = 0; with_values && i < points(t); i++) {
        place_of(t, i, at);
        sw__convert(host + (size_t)offset_of(t, at) * size, t->type, &t->value[i], SW_F64, 1);
    }
    if (be->alloc(x->device->dev, bytes, &buffer) != SW_OK ||
        be->upload(x->device->dev, buffer, 0, host, bytes) != SW_OK)
        fail_msg("%s", sw_error());
    free(host);
    return buffer;
}

/* The result's values; what lies between them must be as it was. */
static void take_result(bench *x, const op_run *r, tensor *t, const void *buffer)
{
    const size_t size = sw_dtype_size(t->type), bytes = (size_t)span_of(t) * size;
    char *const host = malloc(bytes);
    int64_t at[SW_MAX_RANK];
    t->value = malloc((size_t)points(t) * sizeof *t->value);
    assert_non_null(host);
    assert_non_null(t->value);
    if (x->device->backend->download(x->device->dev, buffer, 0, host, bytes) != SW_OK) {
        problem(x, "%s: %s", r->name, sw_error());
        memset(host, 0, bytes);
    }
    for (int64_t i = 0; i < points(t); i++) {
        place_of(t, i, at);
        char *const p = host + (size_t)offset_of(t, at) * size;
        sw__convert(&t->value[i], SW_F64, p, t->type, 1);
        memset(p, 0xFF, size);
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)host[i] == 0xFF) continue;
        problem(x, "%s: byte %zu beside the result was written", r->name, i);
        break;
    }
    free(host);
}

/* Twice with two sets of buffers: a plan is not bound to the first. */
static bool exec_twice(bench *x, op_run *r, void *plan, size_t workspace)
{
    const sw__backend *const be = x->device->backend;
    void *const dev = x->device->dev;
    tensor *const out = &r->t[r->n_in];
    bool good = true;
    for (int turn = 0; turn < 2 && good; turn++) {
        sw__bind bind[MOST_TENSORS + 2] = { { 0 } };
        for (int i = 0; i <= r->n_in; i++) {
            bind[i].buffer = memory_for(x, &r->t[i], i < r->n_in);
            bind[i].offset = (size_t)r->t[i].place * sw_dtype_size(r->t[i].type);
        }
        if (workspace > 0 && be->alloc(dev, workspace, &bind[r->n_in + 1].buffer) != SW_OK) fail_msg("%s", sw_error());
        good = be->op_exec(dev, plan, bind) == SW_OK && be->sync(dev) == SW_OK;
        if (!good) problem(x, "%s: %s", r->name, sw_error());
        tensor_free(out);
        if (good) take_result(x, r, out, bind[r->n_in].buffer);
        for (int i = 0; i <= r->n_in + 1; i++)
            if (bind[i].buffer != NULL) be->release(dev, bind[i].buffer);
    }
    return good;
}

/* Plans, builds, runs; false, and a problem, where that fails. */
static SW_UNUSED bool run_op(bench *x, op_run *r)
{
    const sw__backend *const be = x->device->backend;
    void *const dev = x->device->dev;
    sw__desc desc[MOST_TENSORS];
    void *plan = NULL;
    size_t workspace = 0;
    for (int i = 0; i <= r->n_in; i++) desc[i] = desc_of(&r->t[i]);
    const sw__op_desc d = { .op = (uint16_t)r->op,
                            .attr = r->attr,
                            .name = r->name,
                            .n_in = r->n_in,
                            .n_out = 1,
                            .in = desc,
                            .out = desc + r->n_in };
    if (be->op_plan(dev, &d, &plan, &workspace) != SW_OK) {
        problem(x, "%s: %s", r->name, sw_error());
        return false;
    }
    snprintf(r->note, sizeof r->note, "%s", be->op_note(plan));
    bool good = be->build(dev) == SW_OK;
    if (!good) problem(x, "%s: %s", r->name, sw_error());
    good = good && exec_twice(x, r, plan, workspace);
    be->op_free(dev, plan);
    return good;
}

/* terms: how many were summed up. rough: products were rounded to TF32. */
static SW_UNUSED void expect_near(bench *x, const op_run *r, const tensor *t, const int64_t *at, double want,
                                  int64_t terms, bool rough)
{
    static const double unit[SW_DTYPE_COUNT] = {
        [SW_F32] = 6e-8, [SW_F64] = 1.2e-16, [SW_F16] = 5e-4, [SW_BF16] = 4e-3
    };
    const double have = value_at(t, at), size = sqrt((double)terms) * 0.6 + fabs(want);
    const double sums = t->type == SW_F64 ? 2e-16 : 1.2e-7, products_ = rough ? 5e-4 : 0;
    const double bound = unit[t->type] * fabs(want) * 1.01 + (sums * sqrt((double)terms) + products_) * size * 2;
    if (fabs(have - want) / size > x->largest) x->largest = fabs(have - want) / size;
    if (fabs(have - want) <= bound) return;
    problem(x, "%s: at %lld, %lld, %lld, %lld: %.9g, not %.9g (%s)", r->name, (long long)at[0],
            (long long)(t->rank > 1 ? at[1] : 0), (long long)(t->rank > 2 ? at[2] : 0),
            (long long)(t->rank > 3 ? at[3] : 0), have, want, r->note);
}

#endif
