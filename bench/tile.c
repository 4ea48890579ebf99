/* tile.c: the tile interpreter beside loops written by hand for the same work, best of several runs each.
 * Build: cc -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math -D_GNU_SOURCE -Iinclude -Isrc bench/tile.c
 *        build/release/src/libswoop.a -ldnnl -lxxhash -lm (and what the build found); run: ./tile [threads [case
 * [runs]]]. */
#include "base/base.h"
#include "kernel/tile.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_INSTS = 64 };
typedef struct maker {
    sw__kernel k;
    sw__inst inst[MAX_INSTS];
    int64_t elements[SW_K_MAX_BUFFERS];
    float *data[SW_K_MAX_BUFFERS];
    double bytes; /* moved by one run */
} maker;

static int threads = 2, runs = 30;

static void begin(maker *m, const char *name, int rank, const int64_t *extent, uint32_t reduced)
{
    memset(m, 0, sizeof *m);
    m->k.rank = rank;
    m->k.reduced = reduced;
    m->k.inst = m->inst;
    memcpy(m->k.extent, extent, (size_t)rank * sizeof *extent);
    snprintf(m->k.name, sizeof m->k.name, "%s", name);
}

static int add(maker *m, sw__inst i)
{
    m->inst[m->k.n_insts] = i;
    return m->k.n_insts++;
}

static int new_buffer(maker *m, int64_t n)
{
    const int b = m->k.n_buffers++;
    m->elements[b] = n;
    m->data[b] = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    for (int64_t e = 0; e < n; e++) m->data[b][e] = (float)(e % 1000) / 1000.0f + 0.001f;
    return b;
}

static sw__inst access_of(maker *m, sw__kop kop, int b, uint32_t axes, const int *order)
{
    sw__inst i = { .kop = (uint8_t)kop, .a = -1, .b = -1, .c = -1 };
    int64_t n = 1;
    for (int k = m->k.rank - 1; k >= 0; k--) {
        const int x = order ? order[k] : k;
        i.hi[x] = m->k.extent[x];
        i.stride[x] = axes >> x & 1u ? n : 0;
        if (axes >> x & 1u) n *= m->k.extent[x];
    }
    i.buffer = b >= 0 ? b : new_buffer(m, n);
    m->bytes += 4 * (double)n;
    return i;
}

static int load(maker *m, uint32_t axes) { return add(m, access_of(m, SW_K_LOAD, -1, axes, NULL)); }
static void store(maker *m, int b, uint32_t axes, int value)
{
    sw__inst i = access_of(m, SW_K_STORE, b, axes, NULL);
    i.a = value;
    add(m, i);
}
static int op(maker *m, sw__op o, int a, int b)
{
    return add(m, (sw__inst){ .kop = SW_K_CALC, .op = (uint16_t)o, .a = a, .b = b, .c = -1 });
}
static int sum(maker *m, sw__op o, int a)
{
    return add(m, (sw__inst){ .kop = SW_K_REDUCE, .op = (uint16_t)o, .a = a, .b = -1, .c = -1 });
}
static int num(maker *m, double v) { return add(m, (sw__inst){ .kop = SW_K_CONST, .value = v, .a = -1, .b = -1,
                                                               .c = -1 }); }
#define ALL 0xffu

/* Processor time for one thread, so that neighbours on the machine count less; seconds of the clock for several. */
static double now(void)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- timing ------------------------------------------------------------------------------------------------------ */

typedef void (*hand_fn)(maker *m);

static const char *only;

static void report(maker *m, hand_fn hand)
{
    if (only && !strstr(m->k.name, only)) return;
    sw__tile_program *p;
    size_t bytes;
    if (sw__tile_compile(&m->k, threads, &p, &bytes) != SW_OK) {
        printf("%s: %s\n", m->k.name, sw_error());
        return;
    }
    void *const workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (getenv("TILE_PRINT")) {
        sw__text t = { 0 };
        sw__tile_print(p, &t);
        printf("%s", t.s);
        sw__text_free(&t);
    }
    double best[2] = { 1e9, 1e9 };
    for (int run = 0; run < runs; run++) {
        for (int which = 0; which < 2; which++) {
            const double t0 = now();
            double t = 0;
            int n = 0;
            for (; t < 0.005; n++) {
                if (which == 0) sw__tile_run(p, (void *const *)m->data, workspace);
                else hand(m);
                t = now() - t0;
            }
            best[which] = SW_MIN(best[which], t / n);
            if (!hand) break;
        }
    }
    printf("%-28s %9.1f us %6.2f GB/s", m->k.name, best[0] * 1e6, m->bytes / best[0] * 1e-9);
    if (hand) printf("   hand %9.1f us   ratio %.2f", best[1] * 1e6, best[0] / best[1]);
    printf("\n");
    free(workspace);
    sw__tile_free(p);
    for (int b = 0; b < m->k.n_buffers; b++) free(m->data[b]);
}

#define PARALLEL _Pragma("omp parallel for num_threads(threads) schedule(static)")
#define PARALLEL_SIMD _Pragma("omp parallel for simd num_threads(threads) schedule(static)")

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static void hand_relu(maker *m)
{
    const float *a = m->data[0], *b = m->data[1];
    float *d = m->data[2];
    PARALLEL_SIMD for (int64_t e = 0; e < m->elements[0]; e++)
    {
        const float x = a[e] + b[e];
        d[e] = x > 0 ? x : 0;
    }
}

static void add_relu(int64_t n, const char *name)
{
    maker m;
    begin(&m, name, 1, &n, 0);
    const int a = load(&m, ALL), b = load(&m, ALL), x = op(&m, SW_OP_ADD, a, b);
    store(&m, -1, ALL, op(&m, SW_OP_MAX, x, num(&m, 0)));
    report(&m, hand_relu);
}

static void hand_adamw(maker *m)
{
    float *p = m->data[0], *g = m->data[1], *mo = m->data[2], *v = m->data[3];
    const float lr = m->data[4][0], rate = lr * m->data[5][0], c2 = m->data[6][0], decay = lr * 0.01f;
    PARALLEL_SIMD for (int64_t e = 0; e < m->elements[0]; e++)
    {
        const float mm = 0.9f * mo[e] + 0.1f * g[e], vv = 0.999f * v[e] + 0.001f * (g[e] * g[e]);
        mo[e] = mm;
        v[e] = vv;
        p[e] = (p[e] - p[e] * decay) - mm * rate / (sqrtf(vv) * c2 + 1e-8f);
    }
}

static void adamw(int64_t n, const char *name)
{
    maker m;
    begin(&m, name, 1, &n, 0);
    const int p = load(&m, ALL), g = load(&m, ALL), mo = load(&m, ALL), v = load(&m, ALL);
    const int lr = load(&m, 0), c1 = load(&m, 0), c2 = load(&m, 0);
    const int mm = op(&m, SW_OP_ADD, op(&m, SW_OP_MUL, mo, num(&m, 0.9)), op(&m, SW_OP_MUL, g, num(&m, 0.1)));
    const int gg = op(&m, SW_OP_MUL, g, g);
    const int vv = op(&m, SW_OP_ADD, op(&m, SW_OP_MUL, v, num(&m, 0.999)), op(&m, SW_OP_MUL, gg, num(&m, 0.001)));
    const int den = op(&m, SW_OP_ADD, op(&m, SW_OP_MUL, op(&m, SW_OP_SQRT, vv, -1), c2), num(&m, 1e-8));
    const int step = op(&m, SW_OP_DIV, op(&m, SW_OP_MUL, mm, op(&m, SW_OP_MUL, lr, c1)), den);
    const int decayed = op(&m, SW_OP_SUB, p, op(&m, SW_OP_MUL, p, op(&m, SW_OP_MUL, lr, num(&m, 0.01))));
    const int pp = op(&m, SW_OP_SUB, decayed, step);
    store(&m, 2, ALL, mm);
    store(&m, 3, ALL, vv);
    store(&m, 0, ALL, pp);
    report(&m, hand_adamw);
}

static void hand_norm_apply(maker *m)
{
    const int64_t rows = m->k.extent[0], cols = m->k.extent[1];
    PARALLEL for (int64_t r = 0; r < rows; r++)
    {
        const float *x = m->data[0] + r * cols;
        float *d = m->data[3] + r * cols;
        for (int64_t c = 0; c < cols; c++) {
            const float y = x[c] * m->data[1][c] + m->data[2][c];
            d[c] = y > 0 ? y : 0;
        }
    }
}

static void norm_apply(int64_t rows, int64_t cols, const char *name)
{
    maker m;
    const int64_t extent[2] = { rows, cols };
    begin(&m, name, 2, extent, 0);
    const int x = load(&m, ALL), scale = load(&m, 2), shift = load(&m, 2);
    const int y = op(&m, SW_OP_ADD, op(&m, SW_OP_MUL, x, scale), shift);
    store(&m, -1, ALL, op(&m, SW_OP_MAX, y, num(&m, 0)));
    report(&m, hand_norm_apply);
}

static void hand_column_sums(maker *m)
{
    const int64_t rows = m->k.extent[0], cols = m->k.extent[1];
    static float part[8][3][4096];
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
        float *a = part[me][0], *b = part[me][1];
        memset(part[me], 0, sizeof part[me]);
        for (int64_t r = rows * me / all; r < rows * (me + 1) / all; r++) {
            const float *x = m->data[0] + r * cols, *y = m->data[1] + r * cols, *mean = m->data[2];
            for (int64_t c = 0; c < cols; c++) {
                a[c] += y[c];
                b[c] += y[c] * (x[c] - mean[c]);
            }
        }
    }
    for (int64_t c = 0; c < cols; c++) {
        m->data[3][c] = m->data[4][c] = 0;
        for (int t = 0; t < threads; t++) {
            m->data[3][c] += part[t][0][c];
            m->data[4][c] += part[t][1][c];
        }
    }
}

static void column_sums(int64_t rows, int64_t cols, const char *name)
{
    maker m;
    const int64_t extent[2] = { rows, cols };
    begin(&m, name, 2, extent, 1);
    const int x = load(&m, ALL), dy = load(&m, ALL), mean = load(&m, 2);
    const int a = sum(&m, SW_OP_REDUCE_SUM, dy);
    const int b = sum(&m, SW_OP_REDUCE_SUM, op(&m, SW_OP_MUL, dy, op(&m, SW_OP_SUB, x, mean)));
    store(&m, -1, 2, a);
    store(&m, -1, 2, b);
    report(&m, hand_column_sums);
}

static void mean_var(int64_t rows, int64_t cols, const char *name)
{
    maker m;
    const int64_t extent[2] = { rows, cols };
    begin(&m, name, 2, extent, 1);
    const int x = load(&m, ALL);
    const int a = sum(&m, SW_OP_REDUCE_SUM, x), b = sum(&m, SW_OP_REDUCE_SUM, op(&m, SW_OP_MUL, x, x));
    store(&m, -1, 2, a);
    store(&m, -1, 2, b);
    report(&m, NULL);
}

static void softmax(int64_t rows, int64_t cols, const char *name)
{
    maker m;
    const int64_t extent[2] = { rows, cols };
    begin(&m, name, 2, extent, 2);
    const int x = load(&m, ALL);
    const int e = op(&m, SW_OP_EXP, op(&m, SW_OP_SUB, x, sum(&m, SW_OP_REDUCE_MAX, x)), -1);
    store(&m, -1, ALL, op(&m, SW_OP_DIV, e, sum(&m, SW_OP_REDUCE_SUM, e)));
    report(&m, NULL);
}

static void layer_norm(int64_t rows, int64_t cols, const char *name)
{
    maker m;
    const int64_t extent[2] = { rows, cols };
    begin(&m, name, 2, extent, 2);
    const int x = load(&m, ALL), w = load(&m, 2), b = load(&m, 2), n = num(&m, 1.0 / (double)cols);
    const int d = op(&m, SW_OP_SUB, x, op(&m, SW_OP_MUL, sum(&m, SW_OP_REDUCE_SUM, x), n));
    const int var = op(&m, SW_OP_MUL, sum(&m, SW_OP_REDUCE_SUM, op(&m, SW_OP_MUL, d, d)), n);
    const int rstd = op(&m, SW_OP_DIV, num(&m, 1), op(&m, SW_OP_SQRT, op(&m, SW_OP_ADD, var, num(&m, 1e-5)), -1));
    store(&m, -1, ALL, op(&m, SW_OP_ADD, op(&m, SW_OP_MUL, op(&m, SW_OP_MUL, d, rstd), w), b));
    report(&m, NULL);
}

static void total(int64_t n, const char *name)
{
    maker m;
    begin(&m, name, 1, &n, 1);
    const int x = load(&m, ALL);
    store(&m, -1, 0, sum(&m, SW_OP_REDUCE_SUM, op(&m, SW_OP_MUL, x, x)));
    report(&m, NULL);
}

static void unary(int64_t n, sw__op o, const char *name)
{
    maker m;
    begin(&m, name, 1, &n, 0);
    store(&m, -1, ALL, op(&m, o, load(&m, ALL), -1));
    report(&m, NULL);
}

static void transpose(int64_t n, int64_t c, int64_t hw, const char *name, bool to_last)
{
    maker m;
    const int64_t extent[3] = { n, to_last ? hw : c, to_last ? c : hw };
    static const int order[3] = { 0, 2, 1 };
    begin(&m, name, 3, extent, 0);
    const int x = add(&m, access_of(&m, SW_K_LOAD, -1, ALL, order));
    store(&m, -1, ALL, x);
    report(&m, NULL);
}

static void pad(int64_t n, int64_t c, int64_t h, int64_t w, const char *name)
{
    maker m;
    const int64_t extent[4] = { n, c, h + 4, w + 4 };
    begin(&m, name, 4, extent, 0);
    sw__inst i = { .kop = SW_K_LOAD, .a = -1, .b = -1, .c = -1, .masked = 1, .offset = -2 * w - 2 };
    const int64_t stride[4] = { c * h * w, h * w, w, 1 }, lo[4] = { 0, 0, 2, 2 }, hi[4] = { n, c, h + 2, w + 2 };
    memcpy(i.stride, stride, sizeof stride);
    memcpy(i.lo, lo, sizeof lo);
    memcpy(i.hi, hi, sizeof hi);
    i.buffer = new_buffer(&m, n * c * h * w);
    m.bytes += 4.0 * (double)(n * c * h * w);
    store(&m, -1, ALL, add(&m, i));
    report(&m, NULL);
}

static void bias_channels(int64_t n, int64_t c, int64_t hw, const char *name)
{
    maker m;
    const int64_t extent[3] = { n, c, hw };
    begin(&m, name, 3, extent, 0);
    const int x = load(&m, ALL), bias = load(&m, 2);
    store(&m, -1, ALL, op(&m, SW_OP_MAX, op(&m, SW_OP_ADD, x, bias), num(&m, 0)));
    report(&m, NULL);
}

static void dropout(int64_t n, const char *name)
{
    maker m;
    begin(&m, name, 1, &n, 0);
    const int x = load(&m, ALL);
    const int e = add(&m, (sw__inst){ .kop = SW_K_INDEX, .dtype = SW_I64, .a = -1, .b = -1, .c = -1, .stride = { 1 } });
    const int r = add(&m, (sw__inst){ .kop = SW_K_RANDOM, .dtype = SW_U32, .a = e, .b = -1, .c = -1, .ivalue = 1,
                                      .stream = 2 });
    const int u = add(&m, (sw__inst){ .kop = SW_K_CALC, .op = SW_OP_CAST, .dtype = SW_F32, .a = r, .b = -1, .c = -1 });
    const int lt = add(&m, (sw__inst){ .kop = SW_K_CALC, .op = SW_OP_LT, .dtype = SW_BOOL, .a = u, .b = num(&m, 2e9),
                                       .c = -1 });
    store(&m, -1, ALL, add(&m, (sw__inst){ .kop = SW_K_CALC, .op = SW_OP_WHERE, .a = lt, .b = op(&m, SW_OP_MUL, x,
                                                                                                 num(&m, 2)),
                                                                                                     .c = num(&m,
                                                                                                              0) }));
    report(&m, NULL);
}

int main(int argc, char **argv)
{
    if (argc > 1) threads = atoi(argv[1]);
    if (argc > 2) only = argv[2];
    if (argc > 3) runs = atoi(argv[3]);
    add_relu(1000, "add relu 1k");
    add_relu(10000, "add relu 10k");
    add_relu(100000, "add relu 100k");
    add_relu(1000000, "add relu 1M");
    add_relu(16000000, "add relu 16M");
    adamw(4000, "adamw 4k");
    adamw(40000, "adamw 40k");
    adamw(1000000, "adamw 1M");
    norm_apply(32768, 64, "scale shift relu 32k x 64");
    norm_apply(2048, 512, "scale shift relu 2k x 512");
    bias_channels(64, 6, 784, "bias relu 64,6,28x28");
    bias_channels(64, 512, 49, "bias relu 64,512,7x7");
    column_sums(32768, 64, "column sums 32k x 64");
    column_sums(2048, 512, "column sums 2k x 512");
    column_sums(64, 10, "column sums 64 x 10");
    column_sums(64, 1024, "column sums 64 x 1024");
    mean_var(32768, 64, "sum, sum of squares 32k x 64");
    softmax(64, 10, "softmax 64 x 10");
    softmax(512, 1000, "softmax 512 x 1000");
    softmax(4096, 256, "softmax 4k x 256");
    softmax(64, 50000, "softmax 64 x 50k");
    layer_norm(4096, 768, "layer norm 4k x 768");
    total(1000000, "sum of squares 1M");
    total(16000000, "sum of squares 16M");
    unary(1000000, SW_OP_EXP, "exp 1M");
    unary(1000000, SW_OP_LOG, "log 1M");
    unary(1000000, SW_OP_TANH, "tanh 1M");
    unary(1000000, SW_OP_ERF, "erf 1M");
    unary(1000000, SW_OP_SIN, "sin 1M");
    unary(1000000, SW_OP_ATAN, "atan 1M");
    dropout(1000000, "dropout 1M");
    transpose(64, 64, 784, "NCHW to NHWC 64,64,784", true);
    transpose(64, 64, 784, "NHWC to NCHW 64,64,784", false);
    transpose(1, 1024, 1024, "transpose 1024 x 1024", true);
    pad(64, 6, 28, 28, "pad 64,6,28,28 by 2");
    return 0;
}
