/* test_winograd.c: the CPU backend's 3x3 convolutions in Winograd's form (backend/cpu/wino.h), all three directions,
 * against sums in double at random places: each way to cut the work into blocks, ragged sizes, every level of vector
 * code, and the same bits from one thread and from several. That they are taken at all is asserted by the plan's note.
 */
#include "backend/backend.h"
#include "kernel/cpuid.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

extern const sw__backend sw__backend_cpu;
static const sw__backend *const be = &sw__backend_cpu;

typedef struct shape {
    int64_t n, h, w, c, o, lo[2], hi[2];
} shape;

/* What they are for is said in wino.c's terms. */
static const shape shapes[] = {
    { 3, 64, 64, 16, 16, { 1, 1 }, { 1, 1 } },   /* several blocks of tiles; weight gradients summed over blocks */
    { 2, 13, 15, 48, 80, { 1, 1 }, { 1, 1 } },   /* tiles that end outside; half a panel */
    { 5, 10, 11, 80, 32, { 0, 2 }, { 2, 1 } },   /* pads that differ */
    { 25, 4, 4, 64, 64, { 1, 1 }, { 1, 1 } },    /* one tile an image; weight gradients in one go */
    { 8, 24, 24, 160, 144, { 1, 1 }, { 1, 1 } }, /* by channels, several blocks of tiles, two chunks of channels in */
};

typedef struct problem {
    shape s;
    bool half; /* bf16: the numbers below are such already */
    int64_t oh, ow;
    float *x, *w, *bias, *y;
    int64_t nx, nw, ny;
} problem;

static uint32_t seed = 1;

static float random_value(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 8388608.0f - 1.0f;
}

static int64_t random_below(int64_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)(seed >> 4) % n;
}

static float *numbers(int64_t n, bool half)
{
    float *const p = malloc((size_t)n * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        p[i] = random_value();
        uint16_t h;
        if (!half) continue;
        sw__convert(&h, SW_BF16, &p[i], SW_F32, 1);
        sw__convert(&p[i], SW_F32, &h, SW_BF16, 1);
    }
    return p;
}

static problem problem_of(const shape *s, bool half)
{
    problem q = { .s = *s, .half = half, .oh = s->h + s->lo[0] + s->hi[0] - 2, .ow = s->w + s->lo[1] + s->hi[1] - 2 };
    q.nx = s->n * s->h * s->w * s->c;
    q.nw = s->c * s->o * 9;
    q.ny = s->n * q.oh * q.ow * s->o;
    q.x = numbers(q.nx, half);
    q.w = numbers(q.nw, half);
    q.y = numbers(q.ny, half);
    q.bias = numbers(s->o, half);
    return q;
}

static void drop(problem *q)
{
    free(q->x);
    free(q->w);
    free(q->y);
    free(q->bias);
}

/* ---- by the definition; x and y channels last, w O, C, 3, 3 -------------------------------------------------------
 */

static double x_at(const problem *q, int64_t n, int64_t h, int64_t w, int64_t c)
{
    if (h < 0 || w < 0 || h >= q->s.h || w >= q->s.w) return 0;
    return (double)q->x[((n * q->s.h + h) * q->s.w + w) * q->s.c + c];
}

static double y_at(const problem *q, int64_t n, int64_t h, int64_t w, int64_t o)
{
    if (h < 0 || w < 0 || h >= q->oh || w >= q->ow) return 0;
    return (double)q->y[((n * q->oh + h) * q->ow + w) * q->s.o + o];
}

static double w_at(const problem *q, int64_t o, int64_t c, int64_t k)
{
    return (double)q->w[(o * q->s.c + c) * 9 + k];
}

static double forward(const problem *q, int64_t i)
{
    const int64_t o = i % q->s.o, w = i / q->s.o % q->ow, h = i / q->s.o / q->ow % q->oh,
                  n = i / q->s.o / q->ow / q->oh;
    double sum = (double)q->bias[o];
    for (int64_t k = 0; k < 9; k++)
        for (int64_t c = 0; c < q->s.c; c++)
            sum += x_at(q, n, h - q->s.lo[0] + k / 3, w - q->s.lo[1] + k % 3, c) * w_at(q, o, c, k);
    return sum < 0 ? 0 : sum;
}

static double grad_x(const problem *q, int64_t i)
{
    const int64_t c = i % q->s.c, w = i / q->s.c % q->s.w, h = i / q->s.c / q->s.w % q->s.h,
                  n = i / q->s.c / q->s.w / q->s.h;
    double sum = 0;
    for (int64_t k = 0; k < 9; k++)
        for (int64_t o = 0; o < q->s.o; o++)
            sum += y_at(q, n, h + q->s.lo[0] - k / 3, w + q->s.lo[1] - k % 3, o) * w_at(q, o, c, k);
    return sum;
}

static double grad_w(const problem *q, int64_t i)
{
    const int64_t k = i % 9, c = i / 9 % q->s.c, o = i / 9 / q->s.c;
    double sum = 0;
    for (int64_t n = 0; n < q->s.n; n++)
        for (int64_t h = 0; h < q->oh; h++)
            for (int64_t w = 0; w < q->ow; w++)
                sum += x_at(q, n, h - q->s.lo[0] + k / 3, w - q->s.lo[1] + k % 3, c) * y_at(q, n, h, w, o);
    return sum;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static sw__desc image(sw_dtype t, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (sw__desc){ .dtype = (uint8_t)t, .rank = 4, .dim = { n, c, h, w }, .stride = { c * h * w, 1, w * c, c } };
}

static void *dev;

/* Numbers between f32 here and t in a buffer. */
static void upload(sw__bind *b, sw_dtype t, const float *from, int64_t n)
{
    const size_t bytes = (size_t)n * sw_dtype_size(t);
    void *const as = malloc(bytes);
    assert_non_null(as);
    sw__convert(as, t, from, SW_F32, (size_t)n);
    assert_int_equal(be->alloc(dev, bytes, &b->buffer), SW_OK);
    assert_int_equal(be->upload(dev, b->buffer, 0, as, bytes), SW_OK);
    free(as);
}

static float *download(const sw__bind *b, sw_dtype t, int64_t n)
{
    void *const as = malloc((size_t)n * sw_dtype_size(t));
    float *const to = malloc((size_t)n * sizeof *to);
    assert_non_null(as);
    assert_non_null(to);
    assert_int_equal(be->download(dev, b->buffer, 0, as, (size_t)n * sw_dtype_size(t)), SW_OK);
    sw__convert(to, SW_F32, as, t, (size_t)n);
    free(as);
    return to;
}

/* The result of one of the three ops, to be freed. */
static float *run(const problem *q, sw__op op)
{
    const shape *const s = &q->s;
    const sw_dtype type = q->half ? SW_BF16 : SW_F32;
    const sw__desc x = image(type, s->n, s->c, s->h, s->w), y = image(type, s->n, s->o, q->oh, q->ow);
    const sw__desc w = {
        .dtype = (uint8_t)type, .rank = 4, .dim = { s->o, s->c, 3, 3 }, .stride = { s->c * 9, 9, 3, 1 }
    };
    const sw__desc b = { .dtype = (uint8_t)type, .rank = 1, .dim = { s->o }, .stride = { 1 } };
    const bool fwd = op == SW_OP_CONV, gx = op == SW_OP_CONV_GRAD_X;
    const sw__desc in[3] = { gx ? y : x, fwd || gx ? w : y, b }, out = fwd ? y : gx ? x : w;
    float *const from[3] = { gx ? q->y : q->x, fwd || gx ? q->w : q->y, q->bias };
    const int64_t count[3] = { gx ? q->ny : q->nx, fwd || gx ? q->nw : q->ny, s->o };
    const int64_t n_out = fwd ? q->ny : gx ? q->nx : q->nw;
    const size_t bytes = (size_t)n_out * sw_dtype_size(type);
    const int n_in = fwd ? 3 : 2;
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.conv.nd = 2;
    attr.conv.groups = 1;
    attr.conv.act = fwd ? SW_ACT_RELU : SW_ACT_NONE;
    for (int i = 0; i < 2; i++) {
        attr.conv.stride[i] = attr.conv.dilation[i] = 1;
        attr.conv.pad_lo[i] = s->lo[i];
        attr.conv.pad_hi[i] = s->hi[i];
    }
    memcpy(attr.conv.dim, out.dim, sizeof attr.conv.dim);
    const sw__op_desc d = { (uint16_t)op, &attr, "tested", n_in, 1, in, &out, 0 };
    void *plan = NULL;
    size_t workspace = 0;
    assert_int_equal(be->op_plan(dev, &d, &plan, &workspace), SW_OK);
    assert_memory_equal(be->op_note(plan), "winograd", 8);
    sw__bind bind[5] = { { 0 } };
    for (int i = 0; i < n_in; i++) upload(&bind[i], type, from[i], count[i]);
    assert_int_equal(be->alloc(dev, bytes, &bind[n_in].buffer), SW_OK);
    assert_int_equal(be->fill(dev, bind[n_in].buffer, 0, bytes, 0xff), SW_OK); /* NaN */
    assert_int_equal(be->alloc(dev, workspace, &bind[n_in + 1].buffer), SW_OK);
    assert_int_equal(be->fill(dev, bind[n_in + 1].buffer, 0, workspace, 0xff), SW_OK);
    assert_int_equal(be->op_exec(dev, plan, bind), SW_OK);
    float *const result = download(&bind[n_in], type, n_out);
    for (int i = 0; i < n_in + 2; i++) be->release(dev, bind[i].buffer);
    be->op_free(dev, plan);
    return result;
}

static void open_at(const char *level, int threads)
{
    setenv("SWOOP_SIMD", level, 1);
    assert_int_equal(be->open(0, &(sw_device_options){ .threads = threads }, &dev), SW_OK);
}

static void close_it(void)
{
    be->close(dev);
    unsetenv("SWOOP_SIMD");
}

static const struct way {
    sw__op op;
    double (*value)(const problem *q, int64_t i);
} ways[] = { { SW_OP_CONV, forward }, { SW_OP_CONV_GRAD_X, grad_x }, { SW_OP_CONV_GRAD_W, grad_w } };

static int64_t results(const problem *q, sw__op op)
{
    return op == SW_OP_CONV ? q->ny : op == SW_OP_CONV_GRAD_X ? q->nx : q->nw;
}

/* Values of about 1 in sums of `terms`: a bound of some 60 roundings of their spread; in bf16 one of the result. */
static void compare(const problem *q, const struct way *way, const float *got, const char *level)
{
    const shape *const s = &q->s;
    const double terms = (double)(way->op == SW_OP_CONV          ? 9 * s->c
                                  : way->op == SW_OP_CONV_GRAD_X ? 9 * s->o
                                                                 : s->n * q->oh * q->ow);
    for (int i = 0; i < 60; i++) {
        const int64_t at = random_below(results(q, way->op));
        const double want = way->value(q, at), off = fabs((double)got[at] - want);
        if (!(off <= 60 * 6e-8 * sqrt(terms) + (q->half ? fabs(want) / 256 : 0)))
            fail_msg("%s, %s%s, %lld -> %lld channels: element %lld is %.9g, not %.9g", sw__op_table[way->op].name,
                     level, q->half ? ", bf16" : "", (long long)s->c, (long long)s->o, (long long)at, (double)got[at],
                     want);
    }
}

static void test_values(void **state)
{
    (void)state;
    static const char *const levels[] = { "base", "avx2", "avx512" };
    for (size_t i = 0; i < 2 * SW_COUNT(shapes); i++) {
        const bool half = i >= SW_COUNT(shapes);
        if (half && sw__amx_bf16()) break; /* oneDNN's then */
        problem q = problem_of(&shapes[i % SW_COUNT(shapes)], half);
        for (size_t l = 0; l < SW_COUNT(levels); l++) {
            open_at(levels[l], 1);
            for (size_t k = 0; k < SW_COUNT(ways); k++) {
                float *const got = run(&q, ways[k].op);
                compare(&q, &ways[k], got, levels[l]);
                free(got);
            }
            close_it();
        }
        drop(&q);
    }
}

/* Also with more threads than there are panels of channels. */
static void test_threads(void **state)
{
    (void)state;
    if (getenv("OMP_NUM_THREADS") != NULL) skip();
    for (size_t i = 0; i < SW_COUNT(shapes); i++) {
        problem q = problem_of(&shapes[i], false);
        for (size_t k = 0; k < SW_COUNT(ways); k++) {
            float *got[3];
            static const int threads[] = { 1, 2, 7 };
            for (int t = 0; t < 3; t++) {
                open_at("avx512", threads[t]);
                got[t] = run(&q, ways[k].op);
                close_it();
            }
            const size_t bytes = (size_t)results(&q, ways[k].op) * sizeof(float);
            compare(&q, &ways[k], got[2], "seven threads");
            assert_memory_equal(got[0], got[1], bytes);
            for (int t = 0; t < 3; t++) free(got[t]);
        }
        drop(&q);
    }
}

/* A network that goes wrong must show it: what a NaN takes part in is NaN, through relu too, and what lies further than
 * a tile from it is not touched. */
static void nan_comes_through(bool half)
{
    problem q = problem_of(&(shape){ 2, 32, 32, 32, 32, { 1, 1 }, { 1, 1 } }, half);
    q.x[(10 * 32 + 11) * 32 + 5] = NAN; /* first image, pixel 10, 11 */
    open_at("avx512", 1);
    float *const got = run(&q, SW_OP_CONV);
    close_it();
    for (int64_t h = 0; h < 32; h++)
        for (int64_t w = 0; w < 32; w++) {
            const float v = got[(h * 32 + w) * 32 + 7], other = got[((32 + h) * 32 + w) * 32 + 7];
            if (h >= 9 && h <= 11 && w >= 10 && w <= 12) assert_true(isnan(v));
            if (h < 4 || h >= 16 || w < 4 || w >= 20) assert_true(!isnan(v));
            assert_true(!isnan(other));
        }
    free(got);
    drop(&q);
}

static void test_nan(void **state)
{
    (void)state;
    nan_comes_through(false);
    if (!sw__amx_bf16()) nan_comes_through(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
