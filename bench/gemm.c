/* gemm.c: products of matrices in f32 through our OpenCL kernels, through CLBlast on the same device, and through the CPU
 * backend (oneDNN), in turn in one process; JSON on stdout. Built and read by bench/gemm.
 * Sides are transposed at 1024 only. Usage: gemm [DEVICE INDEX [seconds of a measurement [rounds [SIZE …]]]] */
#include "backend/gpu/tune.h"
#include "backend/opencl/cl.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct way {
    const char *name, *backend;
    int variant;               /* of an OpenCL plan */
    void *dev, *plan;
    sw__bind bind[4];
    double times[64];
    char note[112];
} way;

typedef struct shape { const char *name; bool a_turned, b_turned; } shape;
static const shape shapes[] = {{"NN", false, false}, {"NT", false, true}, {"TN", true, false}};

static double seconds = 0.3;
static int rounds = 5;

static void check(sw_status st, const char *what)
{
    if (st == SW_OK) return;
    fprintf(stderr, "gemm: %s: %s\n", what, sw_error());
    exit(1);
}

static const sw__backend *backend_of(const way *w)
{
    return sw__backend_find(w->backend);
}

static sw__desc matrix(int64_t n, bool turned)
{
    return (sw__desc){.dtype = SW_F32, .rank = 2, .dim = {n, n}, .stride = {turned ? 1 : n, turned ? n : 1}};
}

static void fill(const way *w, void *buffer, int64_t n)
{
    float *const x = malloc((size_t)n * sizeof *x);
    sw__rng r;
    if (x == NULL) exit(1);
    sw__rng_init(&r, 1, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(2 * sw__rng_uniform(&r) - 1);
    check(backend_of(w)->upload(w->dev, buffer, 0, x, (size_t)n * sizeof *x), "upload");
    free(x);
}

/* False: CLBlast does not do it. */
static bool plan(way *w, int64_t n, const shape *s)
{
    const sw__backend *const be = backend_of(w);
    const sw__desc in[2] = {matrix(n, s->a_turned), matrix(n, s->b_turned)}, out = matrix(n, false);
    const sw__attr attr = {.act = {.act = SW_ACT_NONE}};
    const sw__op_desc d = {.op = SW_OP_MATMUL, .attr = &attr, .name = "bench", .n_in = 2, .n_out = 1, .in = in, .out = &out};
    size_t workspace = 0;
    sw__gpu_plan *p = NULL;
    if (strcmp(w->backend, "cpu") == 0) {
        check(be->op_plan(w->dev, &d, &w->plan, &workspace), "op_plan");
    } else {
        sw__gpu *const g = &((sw__cl *)w->dev)->gpu;
        const int variant = w->variant != 0 ? w->variant : sw__gpu_variant_of(g, &d);
        check(sw__gpu_op_plan_as(g, &d, variant, &p), "plan");
        w->plan = p;
        workspace = p->workspace;
        check(be->build(w->dev), "build");
        if (w->variant == SW__GPU_LIBRARY && strncmp(p->note, "CLBlast", 7) != 0) return false;
    }
    for (int i = 0; i < 3; i++) check(be->alloc(w->dev, (size_t)(n * n) * sizeof(float), &w->bind[i].buffer), "alloc");
    if (workspace > 0) check(be->alloc(w->dev, workspace, &w->bind[3].buffer), "alloc");
    for (int i = 0; i < 2; i++) fill(w, w->bind[i].buffer, n * n);
    snprintf(w->note, sizeof w->note, "%s", be->op_note(w->plan));
    return true;
}

static void drop(way *w)
{
    const sw__backend *const be = backend_of(w);
    for (int i = 0; i < 4; i++)
        if (w->bind[i].buffer != NULL) be->release(w->dev, w->bind[i].buffer);
    be->op_free(w->dev, w->plan);
    memset(w->bind, 0, sizeof w->bind);
}

static double run(const way *w, int times)
{
    const sw__backend *const be = backend_of(w);
    const double start = sw__now();
    for (int i = 0; i < times; i++) check(be->op_exec(w->dev, w->plan, w->bind), w->name);
    check(be->sync(w->dev), w->name);
    return sw__now() - start;
}

/* Seconds of one among many; slow ones run once a measurement. */
static double measure(const way *w)
{
    const double once = run(w, 1);
    if (once > seconds) return once;
    const int times = (int)(seconds / once) + 1;
    return run(w, times) / times;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The same numbers from all: the largest difference to the first way's, in units of the largest number. */
static double difference(const way *w, const way *first, int64_t n)
{
    const size_t bytes = (size_t)(n * n) * sizeof(float);
    float *const x = malloc(bytes), *const y = malloc(bytes);
    double worst = 0, largest = 0;
    if (x == NULL || y == NULL) exit(1);
    check(backend_of(w)->download(w->dev, w->bind[2].buffer, 0, x, bytes), "download");
    check(backend_of(first)->download(first->dev, first->bind[2].buffer, 0, y, bytes), "download");
    for (int64_t i = 0; i < n * n; i++) {
        const double off = x[i] > y[i] ? (double)x[i] - (double)y[i] : (double)y[i] - (double)x[i];
        worst = SW_MAX(worst, off);
        largest = SW_MAX(largest, y[i] < 0 ? -(double)y[i] : (double)y[i]);
    }
    free(x);
    free(y);
    return worst / largest;
}

static void compare(way *ways, int n_ways, int64_t n, const shape *s, bool *first)
{
    bool there[8];
    for (int i = 0; i < n_ways; i++) there[i] = plan(&ways[i], n, s);
    for (int i = 0; i < n_ways; i++)
        if (there[i]) (void)run(&ways[i], 1); /* the first may cost more */
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < n_ways; i++)
            if (there[i]) ways[i].times[r] = measure(&ways[i]);
    printf("%s\n  {\"n\": %lld, \"shape\": \"%s\"", *first ? "" : ",", (long long)n, s->name);
    for (int i = 0; i < n_ways; i++) {
        way *const w = &ways[i];
        if (there[i]) {
            qsort(w->times, (size_t)rounds, sizeof *w->times, by_value);
            printf(", \"%s\": {\"gflops\": %.1f, \"best\": %.1f, \"difference\": %.1e, \"note\": \"%s\"}", w->name,
                   2e-9 * (double)n * (double)n * (double)n / w->times[rounds / 2],
                   2e-9 * (double)n * (double)n * (double)n / w->times[0], difference(w, &ways[0], n), w->note);
        }
    }
    printf("}");
    fflush(stdout);
    for (int i = 0; i < n_ways; i++) drop(&ways[i]);
    *first = false;
}

int main(int argc, char **argv)
{
    static const int64_t sizes[] = {512, 768, 1024, 1536, 2048};
    way ways[] = {{.name = "cpu", .backend = "cpu"},
                  {.name = "swoop", .backend = "opencl"},
                  {.name = "clblast", .backend = "opencl", .variant = SW__GPU_LIBRARY}};
    const int index = argc > 1 ? atoi(argv[1]) : 0;
    sw_device_properties device, cpu;
    bool first = true;
    if (argc > 2) seconds = atof(argv[2]);
    if (argc > 3) rounds = SW_MIN(SW_MAX(atoi(argv[3]), 1), 64);
    check(backend_of(&ways[1])->properties(index, &device), "device");
    check(backend_of(&ways[0])->properties(0, &cpu), "cpu");
    check(backend_of(&ways[0])->open(0, &(sw_device_options){.threads = 0}, &ways[0].dev), "cpu");
    check(backend_of(&ways[1])->open(index, NULL, &ways[1].dev), "device");
    ways[2].dev = ways[1].dev;
    const int n_ways = sw__cl_blas_name(ways[2].dev) != NULL ? 3 : 2;
    printf("{\"device\": \"%s\", \"driver\": \"%s\", \"cpu\": \"%s\", \"cpu_backend\": \"%s\", \"rows\": [", device.name,
           device.driver, cpu.name, cpu.compute);
    for (size_t k = 0; k < (argc > 4 ? (size_t)(argc - 4) : SW_COUNT(sizes)); k++)
        for (size_t s = 0; s < SW_COUNT(shapes); s++) {
            const int64_t n = argc > 4 ? atoll(argv[4 + k]) : sizes[k];
            if (s == 0 || n == 1024) compare(ways, n_ways, n, &shapes[s], &first);
        }
    printf("]}\n");
    for (int i = 0; i < 2; i++) backend_of(&ways[i])->close(ways[i].dev);
    return 0;
}
