/* test_cpu.c: the CPU backend's whole ops through op_plan and op_exec, against loops in double written out here: many
 * shapes, strides and layouts, one and two threads, every level of vector code. */
#include "backend/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

extern const sw__backend sw__backend_cpu;
static const sw__backend *const be = &sw__backend_cpu;

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* v: values, row-major; desc: how they lie in `data`. */
typedef struct tensor {
    sw__desc desc;
    int64_t n;
    double *v;
    size_t bytes;
    char *data;
} tensor;

enum { ROWS, LAST, GAPS, REVERSED, LAYOUTS, STEPS };

static uint32_t seed = 1;

static double random_value(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / 8388608.0 - 1.0;
}

/* Strides for a layout: row-major, channels last, row-major with gaps, all axes reversed; every other row of an odd
 * number. */
static void lay(sw__desc *d, int layout)
{
    int order[SW_MAX_RANK];
    const int r = d->rank;
    for (int i = 0; i < r; i++)
        order[i] = layout == LAST && r > 2 ? (i == 0 ? 0 : i == r - 1 ? 1 : i + 1) : layout == REVERSED ? r - 1 - i : i;
    int64_t stride = 1;
    for (int i = r - 1; i >= 0; i--) {
        d->stride[order[i]] = stride;
        if (layout == STEPS && i == r - 2) {
            d->stride[order[i]] = 2 * stride;
            stride *= SW_MAX(2 * d->dim[order[i]] - 1, 1);
            continue;
        }
        stride *= d->dim[order[i]] + (layout == GAPS && i > 0 ? 3 : 0);
    }
}

static int64_t place(const sw__desc *d, int64_t e)
{
    int64_t at = 0;
    for (int i = d->rank - 1; i >= 0; i--) {
        at += e % d->dim[i] * d->stride[i];
        e /= d->dim[i];
    }
    return at;
}

static void put(tensor *t)
{
    const size_t size = sw_dtype_size((sw_dtype)t->desc.dtype);
    for (int64_t e = 0; e < t->n; e++)
        sw__convert(t->data + (size_t)place(&t->desc, e) * size, (sw_dtype)t->desc.dtype, &t->v[e], SW_F64, 1);
}

static double get(const tensor *t, int64_t e)
{
    double v;
    const size_t size = sw_dtype_size((sw_dtype)t->desc.dtype);
    sw__convert(&v, SW_F64, t->data + (size_t)place(&t->desc, e) * size, (sw_dtype)t->desc.dtype, 1);
    return v;
}

static tensor shaped(sw_dtype type, int rank, const int64_t *dim, int layout)
{
    tensor t = {.desc = {.dtype = (uint8_t)type, .rank = (uint8_t)rank}, .n = 1};
    for (int i = 0; i < rank; i++) {
        t.desc.dim[i] = dim[i];
        t.n *= dim[i];
    }
    lay(&t.desc, layout);
    size_t span = 1;
    for (int i = 0; i < rank; i++) span += (size_t)(SW_MAX(dim[i] - 1, 0) * t.desc.stride[i]);
    t.bytes = span * sw_dtype_size(type);
    t.data = calloc(1, t.bytes);
    t.v = calloc((size_t)t.n + 1, sizeof *t.v);
    assert_non_null(t.data);
    assert_non_null(t.v);
    return t;
}

static tensor filled(sw_dtype type, int rank, const int64_t *dim, int layout)
{
    tensor t = shaped(type, rank, dim, layout);
    for (int64_t e = 0; e < t.n; e++) {
        t.v[e] = sw__dtype_is_float(type) ? random_value() : floor(random_value() * 10 + (type == SW_U8 ? 10 : 0));
        if (type == SW_F32) t.v[e] = (double)(float)t.v[e];
    }
    put(&t);
    for (int64_t e = 0; e < t.n; e++) t.v[e] = get(&t, e); /* as rounded */
    return t;
}

static void drop(tensor *t)
{
    free(t->data);
    free(t->v);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void *dev;
static int dev_threads;

static sw_status try_run(sw__op op, const sw__attr *attr, tensor *const *in, int n_in, tensor *out, char *note)
{
    sw__desc ins[4];
    for (int i = 0; i < n_in; i++) ins[i] = in[i]->desc;
    const sw__op_desc d = {(uint16_t)op, attr, "tested", n_in, 1, ins, &out->desc, 0};
    void *plan = NULL;
    size_t workspace = 0;
    SW_TRY(be->op_plan(dev, &d, &plan, &workspace));
    if (note != NULL) snprintf(note, 128, "%s", be->op_note(plan));
    sw__bind bind[6] = {{0}};
    for (int i = 0; i < n_in; i++) {
        assert_int_equal(be->alloc(dev, in[i]->bytes + 64, &bind[i].buffer), SW_OK);
        bind[i].offset = 64;
        assert_int_equal(be->upload(dev, bind[i].buffer, 64, in[i]->data, in[i]->bytes), SW_OK);
    }
    assert_int_equal(be->alloc(dev, out->bytes, &bind[n_in].buffer), SW_OK);
    assert_int_equal(be->fill(dev, bind[n_in].buffer, 0, out->bytes, 0x7f), SW_OK);
    if (workspace > 0) {
        assert_int_equal(be->alloc(dev, workspace, &bind[n_in + 1].buffer), SW_OK);
        assert_int_equal(be->fill(dev, bind[n_in + 1].buffer, 0, workspace, 0xff), SW_OK); /* NaN */
    }
    sw_status st = be->op_exec(dev, plan, bind);
    if (st == SW_OK) st = be->op_exec(dev, plan, bind); /* a second run gives the same */
    if (st == SW_OK) st = be->download(dev, bind[n_in].buffer, 0, out->data, out->bytes);
    for (int i = 0; i < n_in + 2; i++) be->release(dev, bind[i].buffer);
    be->op_free(dev, plan);
    return st;
}

static void describe(const char *what, tensor *const *in, int n_in, const tensor *out)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%s, %d threads:", what, dev_threads);
    for (int i = 0; i <= n_in; i++) {
        const sw__desc *const d = i < n_in ? &in[i]->desc : &out->desc;
        n += snprintf(line + n, sizeof line - (size_t)n, " (");
        for (int k = 0; k < d->rank; k++)
            n += snprintf(line + n, sizeof line - (size_t)n, "%lld*%lld ", (long long)d->dim[k],
                          (long long)d->stride[k]);
        n += snprintf(line + n, sizeof line - (size_t)n, ")");
    }
    print_error("%s\n", line);
}

/* Runs and compares with out->v to `tolerance` relative to the larger of 1 and the value. */
static void check(const char *what, sw__op op, const sw__attr *attr, tensor *const *in, int n_in, tensor *out,
                  double tolerance)
{
    char note[128] = "";
    if (try_run(op, attr, in, n_in, out, note) != SW_OK) {
        describe(what, in, n_in, out);
        fail_msg("%s: %s", what, sw_error());
    }
    for (int64_t e = 0; e < out->n; e++) {
        const double got = get(out, e), want = out->v[e];
        const bool same = (isnan(got) && isnan(want)) || got == want ||
                          fabs(got - want) <= tolerance * fmax(1.0, fabs(want));
        if (same) continue;
        describe(what, in, n_in, out);
        fail_msg("%s (%s): element %lld is %.9g, not %.9g", what, note, (long long)e, got, want);
    }
}

static const char *const levels[] = {"base", "avx2", "avx512"};

/* Two, or the one that OMP_NUM_THREADS allows (the leak checker cannot bear oneDNN with more). */
static int most_threads(void)
{
    const char *const wish = getenv("OMP_NUM_THREADS");
    return wish != NULL && strtol(wish, NULL, 10) == 1 ? 1 : 2;
}

/* f for each level of vector code, and with two threads at the best one. */
static void everywhere(void (*f)(void))
{
    for (size_t l = 0; l < SW_COUNT(levels); l++)
        for (int threads = 1; threads <= (l == SW_COUNT(levels) - 1 ? most_threads() : 1); threads++) {
            setenv("SWOOP_SIMD", levels[l], 1);
            dev_threads = threads;
            const sw_device_options o = {.threads = threads};
            assert_int_equal(be->open(0, &o, &dev), SW_OK);
            f();
            be->close(dev);
        }
    unsetenv("SWOOP_SIMD");
}

static double tolerance_of(sw_dtype t)
{
    return t == SW_F64 ? 1e-13 : t == SW_F32 ? 3e-5 : t == SW_F16 ? 2e-3 : 1.6e-2;
}

/* ---- matmul ------------------------------------------------------------------------------------------------------ */

static void matmul_values(const tensor *a, const tensor *b, const tensor *bias, bool relu, tensor *c)
{
    const int r = c->desc.rank;
    const int64_t m = c->desc.dim[r - 2], n = c->desc.dim[r - 1], k = a->desc.dim[r - 1];
    for (int64_t e = 0; e < c->n; e++) {
        const int64_t j = e % n, i = e / n % m, batch = e / (n * m);
        double s = bias != NULL ? bias->v[j] : 0;
        for (int64_t q = 0; q < k; q++) s += a->v[(batch * m + i) * k + q] * b->v[(batch * k + q) * n + j];
        c->v[e] = relu && s < 0 ? 0 : s;
    }
}

static void one_matmul(sw_dtype t, int64_t batch, int64_t m, int64_t n, int64_t k, int la, int lb, int lc, bool bias,
                       bool relu)
{
    const int r = batch > 0 ? 3 : 2;
    const int64_t ad[3] = {batch, m, k}, bd[3] = {batch, k, n}, cd[3] = {batch, m, n};
    tensor a = filled(t, r, ad + 3 - r, la), b = filled(t, r, bd + 3 - r, lb), v = filled(t, 1, &n, ROWS);
    tensor c = shaped(t, r, cd + 3 - r, lc);
    matmul_values(&a, &b, bias ? &v : NULL, relu, &c);
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.act.act = relu ? SW_ACT_RELU : SW_ACT_NONE;
    tensor *const in[3] = {&a, &b, &v};
    check("matmul", bias || relu ? SW_OP_MATMUL : SW_OP_DOT, &attr, in, bias ? 3 : 2, &c,
          tolerance_of(t) * (1 + sqrt((double)k)));
    drop(&a);
    drop(&b);
    drop(&v);
    drop(&c);
}

static void matmuls(void)
{
    static const int64_t shapes[][4] = {
        {0, 1, 1, 1},  {0, 4, 5, 6},   {0, 64, 10, 84}, {0, 120, 400, 64}, {0, 1, 33, 17}, {0, 33, 1, 17},
        {0, 17, 9, 1}, {0, 1, 70, 130}, {0, 1, 261, 67}, {0, 1, 300, 9}, {1, 1, 128, 64},
        {0, 64, 84, 120}, {0, 7, 100, 300}, {0, 0, 3, 2}, {0, 3, 0, 2},    {0, 3, 4, 0},   {3, 5, 6, 7},   {2, 1, 8, 4},
        {1, 9, 3, 5},  {4, 16, 16, 16}, {0, 10, 129, 65}, {0, 200, 70, 50}};
    for (size_t i = 0; i < SW_COUNT(shapes); i++)
        for (int l = 0; l < 6; l++) {
            const int la = l == 1 || l == 3 ? REVERSED : l == 4 ? GAPS : ROWS, lb = l == 2 || l == 3 ? REVERSED : ROWS;
            const int lc = l == 4 ? GAPS : l == 5 ? REVERSED : ROWS;
            const int64_t *const s = shapes[i];
            one_matmul(SW_F32, s[0], s[1], s[2], s[3], la, lb, lc, l % 2 == 0, l % 3 == 0);
            one_matmul(SW_F64, s[0], s[1], s[2], s[3], la, lb, lc, l % 2 == 1, false);
            if (l < 2) one_matmul(SW_BF16, s[0], s[1], s[2], s[3], la, lb, lc, false, false);
            if (l < 2) one_matmul(SW_F16, s[0], s[1], s[2], s[3], la, lb, lc, true, true);
        }
}

/* One right side for all of a batch, as a linear layer over [B, T, C] has it; and right sides in turn for one left. */
static void broadcast_matmuls(void)
{
    const int64_t ad[3] = {3, 4, 5}, bd[3] = {3, 5, 6}, cd[3] = {3, 4, 6};
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    for (int side = 0; side < 3; side++) {
        tensor a = filled(SW_F32, 3, ad, ROWS), b = filled(SW_F32, 3, bd, ROWS), c = shaped(SW_F32, 3, cd, ROWS);
        if (side != 1) {
            b.desc.stride[0] = 0;
            for (int64_t e = 0; e < b.n; e++) b.v[e] = b.v[e % 30];
        }
        if (side != 0) {
            a.desc.stride[0] = 0;
            for (int64_t e = 0; e < a.n; e++) a.v[e] = a.v[e % 20];
        }
        matmul_values(&a, &b, NULL, false, &c);
        tensor *const in[2] = {&a, &b};
        check("broadcast dot", SW_OP_DOT, &attr, in, 2, &c, 1e-5);
        drop(&a);
        drop(&b);
        drop(&c);
    }
}

/* relu of NaN is NaN, of infinities what IEEE says; also where oneDNN computes the product. */
static void relu_of_nan(void)
{
    const int64_t md[2] = {40, 50}, bd[1] = {50};
    tensor a = filled(SW_F32, 2, md, ROWS), b, c = shaped(SW_F32, 2, (const int64_t[2]){40, 50}, ROWS);
    b = filled(SW_F32, 2, (const int64_t[2]){50, 50}, ROWS);
    tensor v = filled(SW_F32, 1, bd, ROWS);
    for (int64_t j = 0; j < 50; j++) a.v[j] = j == 7 ? (double)NAN : a.v[j];
    a.v[60] = INFINITY;
    a.v[110] = -INFINITY;
    put(&a);
    matmul_values(&a, &b, &v, true, &c);
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.act.act = SW_ACT_RELU;
    tensor *const in[3] = {&a, &b, &v};
    check("relu of NaN", SW_OP_MATMUL, &attr, in, 3, &c, 1e-4);
    drop(&a);
    drop(&b);
    drop(&v);
    drop(&c);
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

typedef struct conv_case {
    int nd;
    int64_t n, c, o, groups, x[3], k[3], stride[3], lo[3], hi[3], dilation[3];
} conv_case;

/* The three tensors by the definition; `to` says which one is computed from the other two: 0 y, 1 x, 2 w. */
static void conv_values(const conv_case *q, tensor *x, tensor *w, const tensor *bias, bool relu, tensor *y, int to)
{
    int64_t xd[3] = {1, 1, 1}, kd[3] = {1, 1, 1}, yd[3] = {1, 1, 1};
    int64_t s[3] = {1, 1, 1}, p[3] = {0, 0, 0}, dl[3] = {1, 1, 1};
    for (int i = 0; i < q->nd; i++) {
        xd[i] = q->x[i];
        kd[i] = q->k[i];
        yd[i] = y->desc.dim[2 + i];
        s[i] = q->stride[i];
        p[i] = q->lo[i];
        dl[i] = q->dilation[i];
    }
    tensor *const result = to == 0 ? y : to == 1 ? x : w;
    for (int64_t e = 0; e < result->n; e++) result->v[e] = 0;
    const int64_t cg = q->c / q->groups, og = q->o / q->groups, ks = kd[0] * kd[1] * kd[2], ys = yd[0] * yd[1] * yd[2];
    for (int64_t e = 0; e < y->n; e++) {
        const int64_t o = e / ys % q->o, n = e / (ys * q->o);
        const int64_t at[3] = {e % ys / (yd[1] * yd[2]), e / yd[2] % yd[1], e % yd[2]};
        for (int64_t f = 0; f < cg * ks; f++) {
            const int64_t c = f / ks, k[3] = {f % ks / (kd[1] * kd[2]), f / kd[2] % kd[1], f % kd[2]};
            int64_t i[3];
            bool in = true;
            for (int a = 0; a < 3; a++) {
                i[a] = at[a] * s[a] - p[a] + k[a] * dl[a];
                in = in && i[a] >= 0 && i[a] < xd[a];
            }
            if (!in) continue;
            const int64_t xi = (((n * q->c + o / og * cg + c) * xd[0] + i[0]) * xd[1] + i[1]) * xd[2] + i[2];
            const int64_t wi = (o * cg + c) * ks + f % ks;
            if (to == 0) y->v[e] += x->v[xi] * w->v[wi];
            else if (to == 1) x->v[xi] += y->v[e] * w->v[wi];
            else w->v[wi] += y->v[e] * x->v[xi];
        }
        if (to != 0) continue;
        if (bias != NULL) y->v[e] += bias->v[o];
        if (relu && y->v[e] < 0) y->v[e] = 0;
    }
}

static void one_conv(const conv_case *q, sw_dtype t, int lx, int lw, int ly, bool bias, bool relu)
{
    const int r = q->nd + 2;
    int64_t xd[5] = {q->n, q->c}, wd[5] = {q->o, q->c / q->groups}, yd[5] = {q->n, q->o};
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.conv.nd = q->nd;
    attr.conv.groups = q->groups;
    for (int i = 0; i < q->nd; i++) {
        xd[2 + i] = q->x[i];
        wd[2 + i] = q->k[i];
        yd[2 + i] = (q->x[i] + q->lo[i] + q->hi[i] - (q->k[i] - 1) * q->dilation[i] - 1) / q->stride[i] + 1;
        attr.conv.stride[i] = q->stride[i];
        attr.conv.pad_lo[i] = q->lo[i];
        attr.conv.pad_hi[i] = q->hi[i];
        attr.conv.dilation[i] = q->dilation[i];
    }
    tensor x = filled(t, r, xd, lx), w = filled(t, r, wd, lw), y = filled(t, r, yd, ly);
    tensor b = filled(t, 1, &q->o, ROWS), out;
    const double taps = (double)w.n / (double)SW_MAX(q->o, 1), tol = tolerance_of(t);

    out = shaped(t, r, yd, ly);
    conv_values(q, &x, &w, bias ? &b : NULL, relu, &out, 0);
    attr.conv.act = relu ? SW_ACT_RELU : SW_ACT_NONE;
    check("conv", SW_OP_CONV, &attr, (tensor *const[]){&x, &w, &b}, bias ? 3 : 2, &out, tol * (1 + sqrt(taps)));
    drop(&out);
    attr.conv.act = SW_ACT_NONE;

    out = shaped(t, r, xd, lx);
    memcpy(attr.conv.dim, xd, sizeof xd);
    conv_values(q, &out, &w, NULL, false, &y, 1);
    check("conv_grad_x", SW_OP_CONV_GRAD_X, &attr, (tensor *const[]){&y, &w}, 2, &out,
          tol * (1 + sqrt(taps * (double)q->o)));
    drop(&out);

    out = shaped(t, r, wd, lw);
    memcpy(attr.conv.dim, wd, sizeof wd);
    conv_values(q, &x, &out, NULL, false, &y, 2);
    check("conv_grad_w", SW_OP_CONV_GRAD_W, &attr, (tensor *const[]){&x, &y}, 2, &out,
          tol * (1 + sqrt((double)y.n / (double)SW_MAX(q->o, 1))));
    drop(&out);
    drop(&x);
    drop(&w);
    drop(&y);
    drop(&b);
}

#define ONES {1, 1, 1}
static const conv_case conv_cases[] = {
    {2, 3, 1, 6, 1, {12, 13}, {5, 5}, ONES, {2, 2}, {2, 2}, ONES},
    {2, 2, 6, 16, 1, {9, 8}, {5, 5}, ONES, {0}, {0}, ONES},
    {2, 2, 3, 20, 1, {8, 8}, {3, 3}, ONES, {1, 1}, {1, 1}, ONES},
    {2, 2, 16, 32, 1, {7, 7}, {3, 3}, {2, 2, 1}, {1, 1}, {1, 1}, ONES},
    {2, 2, 32, 16, 1, {6, 6}, {1, 1}, {2, 2, 1}, {0}, {0}, ONES},
    {2, 1, 4, 5, 1, {9, 10}, {3, 2}, {2, 3, 1}, {1, 0}, {0, 2}, {2, 1, 1}},
    {2, 2, 8, 8, 2, {6, 7}, {3, 3}, ONES, {1, 1}, {1, 1}, ONES},
    {2, 2, 6, 6, 6, {6, 7}, {3, 3}, ONES, {1, 1}, {1, 1}, ONES},
    {2, 2, 2, 3, 1, {5, 5}, {3, 3}, {3, 3, 1}, {2, 2}, {2, 2}, ONES},
    {2, 1, 7, 1, 1, {4, 4}, {4, 4}, ONES, {0}, {0}, ONES},
    {2, 1, 2, 40, 1, {6, 5}, {3, 3}, {2, 1, 1}, {1, 1}, {1, 1}, {1, 2, 1}},
    {1, 2, 3, 8, 1, {20}, {5}, {2, 1, 1}, {1}, {3}, {2, 1, 1}},
    {1, 2, 4, 4, 2, {9}, {3}, ONES, {1}, {1}, ONES},
    {3, 1, 2, 4, 1, {5, 6, 4}, {2, 3, 2}, {1, 2, 1}, {0, 1, 1}, {1, 1, 0}, ONES},
    {3, 2, 8, 16, 1, {4, 4, 4}, {3, 3, 3}, ONES, {1, 1, 1}, {1, 1, 1}, ONES},
    {2, 0, 2, 3, 1, {5, 5}, {3, 3}, ONES, {1, 1}, {1, 1}, ONES},
    {2, 2, 0, 3, 1, {5, 5}, {3, 3}, ONES, {1, 1}, {1, 1}, ONES},
    {2, 2, 3, 0, 1, {5, 5}, {3, 3}, ONES, {1, 1}, {1, 1}, ONES},
    {2, 2, 3, 4, 1, {0, 5}, {3, 3}, ONES, {2, 1}, {1, 1}, ONES},
    {2, 4, 1, 1, 1, {1, 1}, {1, 1}, ONES, {0}, {0}, ONES},
};

static void convolutions(void)
{
    for (size_t i = 0; i < SW_COUNT(conv_cases); i++) {
        const conv_case *const q = &conv_cases[i];
        one_conv(q, SW_F32, LAST, ROWS, LAST, true, true);
        one_conv(q, SW_F32, ROWS, ROWS, ROWS, false, false);
        one_conv(q, SW_F32, ROWS, LAST, LAST, true, false);
        one_conv(q, SW_F32, LAST, ROWS, ROWS, false, true);
        one_conv(q, SW_F32, GAPS, REVERSED, GAPS, true, true);
        one_conv(q, SW_F32, LAST, STEPS, LAST, true, true);
        one_conv(q, SW_F64, LAST, ROWS, ROWS, true, true);
        if (i % 4 == 0) one_conv(q, SW_BF16, LAST, ROWS, LAST, false, false);
    }
}

/* ---- pooling ----------------------------------------------------------------------------------------------------- */

typedef struct pool_case {
    int nd;
    int64_t n, c, x[3], k[3], stride[3], lo[3], hi[3];
} pool_case;

/* y from x (dx NULL), or dx from x and dy. */
static void pool_values(const pool_case *q, bool max, bool include_pad, const tensor *x, tensor *y, const tensor *dy,
                        tensor *dx)
{
    int64_t xd[3] = {1, 1, 1}, kd[3] = {1, 1, 1}, yd[3] = {1, 1, 1}, s[3] = {1, 1, 1}, p[3] = {0, 0, 0};
    for (int i = 0; i < q->nd; i++) {
        xd[i] = q->x[i];
        kd[i] = q->k[i];
        yd[i] = y->desc.dim[2 + i];
        s[i] = q->stride[i];
        p[i] = q->lo[i];
    }
    const int64_t ys = yd[0] * yd[1] * yd[2], xs = xd[0] * xd[1] * xd[2];
    for (int64_t e = 0; dx != NULL && e < dx->n; e++) dx->v[e] = 0;
    for (int64_t e = 0; e < y->n; e++) {
        const int64_t plane = e / ys, at[3] = {e % ys / (yd[1] * yd[2]), e / yd[2] % yd[1], e % yd[2]};
        int64_t count = 0, best = -1, inside[1000];
        double sum = 0;
        for (int64_t f = 0; f < kd[0] * kd[1] * kd[2]; f++) {
            const int64_t k[3] = {f / (kd[1] * kd[2]), f / kd[2] % kd[1], f % kd[2]};
            int64_t i[3];
            bool in = true;
            for (int a = 0; a < 3; a++) {
                i[a] = at[a] * s[a] - p[a] + k[a];
                in = in && i[a] >= 0 && i[a] < xd[a];
            }
            if (!in) continue;
            const int64_t xi = plane * xs + (i[0] * xd[1] + i[1]) * xd[2] + i[2];
            inside[count++] = xi;
            if (x == NULL) continue;
            sum += x->v[xi];
            if (best < 0 || (!isnan(x->v[best]) && (x->v[xi] > x->v[best] || isnan(x->v[xi])))) best = xi;
        }
        const double by = include_pad ? (double)(kd[0] * kd[1] * kd[2]) : (double)count;
        if (dx == NULL) y->v[e] = max ? x->v[best] : sum / by;
        else if (max) dx->v[best] += dy->v[e];
        else
            for (int64_t k = 0; k < count; k++) dx->v[inside[k]] += dy->v[e] / by;
    }
}

static void one_pool(const pool_case *q, bool max, bool include_pad, sw_dtype t, int layout)
{
    const int r = q->nd + 2;
    int64_t xd[5] = {q->n, q->c}, yd[5] = {q->n, q->c};
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.pool.nd = q->nd;
    attr.pool.include_pad = include_pad;
    for (int i = 0; i < q->nd; i++) {
        xd[2 + i] = q->x[i];
        yd[2 + i] = (q->x[i] + q->lo[i] + q->hi[i] - q->k[i]) / q->stride[i] + 1;
        attr.pool.kernel[i] = q->k[i];
        attr.pool.stride[i] = q->stride[i];
        attr.pool.pad_lo[i] = q->lo[i];
        attr.pool.pad_hi[i] = q->hi[i];
    }
    tensor x = filled(t, r, xd, layout), y = shaped(t, r, yd, layout), dy = filled(t, r, yd, layout);
    if (max && x.n > 20) { /* equal values, NaN, infinities */
        for (int64_t e = 0; e < x.n; e++) x.v[e] = floor(x.v[e] * 3);
        x.v[3] = NAN;
        x.v[x.n - 4] = NAN;
        x.v[9] = INFINITY;
        x.v[x.n / 2] = -INFINITY;
        put(&x);
    }
    pool_values(q, max, include_pad, &x, &y, NULL, NULL);
    check("pool", max ? SW_OP_MAX_POOL : SW_OP_AVG_POOL, &attr, (tensor *const[]){&x}, 1, &y, tolerance_of(t));
    put(&y);
    tensor dx = shaped(t, r, xd, layout);
    memcpy(attr.pool.dim, xd, sizeof xd);
    pool_values(q, max, include_pad, &x, &y, &dy, &dx);
    if (max)
        check("max_pool_grad", SW_OP_MAX_POOL_GRAD, &attr, (tensor *const[]){&x, &y, &dy}, 3, &dx, tolerance_of(t));
    else check("avg_pool_grad", SW_OP_AVG_POOL_GRAD, &attr, (tensor *const[]){&dy}, 1, &dx, tolerance_of(t));
    drop(&x);
    drop(&y);
    drop(&dy);
    drop(&dx);
}

static void pools(void)
{
    static const pool_case cases[] = {
        {2, 2, 6, {8, 8}, {2, 2}, {2, 2}, {0}, {0}},     {2, 3, 20, {7, 9}, {2, 2}, {2, 2}, {0}, {0}},
        {2, 2, 5, {9, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}, {2, 1, 17, {6, 7}, {3, 2}, {1, 1}, {1, 0}, {1, 1}},
        {2, 1, 1, {10, 11}, {2, 3}, {3, 3}, {0, 1}, {1, 1}}, {1, 2, 3, {15}, {4}, {2}, {2}, {1}},
        {3, 1, 4, {5, 4, 6}, {2, 2, 2}, {2, 1, 2}, {0, 1, 0}, {1, 0, 0}}, {2, 0, 3, {4, 4}, {2, 2}, {2, 2}, {0}, {0}},
        {2, 2, 33, {4, 4}, {4, 4}, {4, 4}, {0}, {0}},    {2, 2, 64, {28, 28}, {2, 2}, {2, 2}, {0}, {0}},
        {3, 2, 2, {4, 4, 4}, {2, 2, 2}, {2, 2, 2}, {0}, {0}}};
    for (size_t i = 0; i < SW_COUNT(cases); i++)
        for (int mode = 0; mode < 3; mode++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                one_pool(&cases[i], mode == 0, mode == 1, SW_F32, layout);
                if (layout < 2) one_pool(&cases[i], mode == 0, mode == 1, SW_F64, layout);
                if (layout == LAST && i < 3) one_pool(&cases[i], mode == 0, mode == 1, SW_F16, layout);
            }
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static const sw_dtype types[] = {SW_F32, SW_F64, SW_F16, SW_BF16, SW_I32, SW_I64, SW_U8, SW_BOOL, SW_U32};

/* a before b in ascending order: NaN last. */
static bool before(double a, double b)
{
    return a < b || (isnan(b) && !isnan(a));
}

static void one_order(sw_dtype t, const int64_t dim[3], int axis, int layout, bool flag)
{
    tensor x = filled(t, 3, dim, layout), y = shaped(t, 3, dim, (layout + 1) % LAYOUTS);
    tensor order = shaped(SW_I64, 3, dim, ROWS);
    int64_t arg[3] = {dim[0], dim[1], dim[2]};
    arg[axis] = 1;
    tensor most = shaped(SW_I64, 3, arg, ROWS), least = shaped(SW_I64, 3, arg, ROWS), sum = shaped(t, 3, dim, layout);
    for (int64_t e = 0; e < x.n; e++) x.v[e] = floor(x.v[e] * 4);
    if (sw__dtype_is_float(t) && x.n > 12) {
        x.v[5] = NAN;
        x.v[11] = NAN;
        x.v[2] = -0.0;
        x.v[7] = -INFINITY;
    }
    put(&x);
    for (int64_t e = 0; e < x.n; e++) x.v[e] = get(&x, e);
    int64_t inner = 1;
    for (int i = axis + 1; i < 3; i++) inner *= dim[i];
    const int64_t n = dim[axis];
    for (int64_t col = 0; n > 0 && col < x.n / n; col++) {
        const int64_t at = col / inner * inner * n + col % inner;
        int64_t top = 0, low = 0;
        double run = 0;
        for (int64_t k = 0; k < n; k++) {
            if (before(x.v[at + top * inner], x.v[at + k * inner])) top = k;
            if (before(x.v[at + k * inner], x.v[at + low * inner])) low = k;
            const int64_t s = flag ? n - 1 - k : k;
            run += x.v[at + s * inner];
            sum.v[at + s * inner] = run;
            int64_t rank = 0; /* of element k: those before it */
            for (int64_t j = 0; j < n; j++) {
                const double a = x.v[at + j * inner], b = x.v[at + k * inner];
                const bool first = flag ? before(b, a) : before(a, b), last = flag ? before(a, b) : before(b, a);
                if (first || (!last && j < k)) rank++;
            }
            order.v[at + rank * inner] = (double)k;
            y.v[at + rank * inner] = x.v[at + k * inner];
        }
        most.v[col] = (double)top;
        least.v[col] = (double)low;
    }
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis.axis = axis;
    attr.axis.flag = flag;
    tensor *const in[1] = {&x};
    check("sort", SW_OP_SORT, &attr, in, 1, &y, 0);
    check("argsort", SW_OP_ARGSORT, &attr, in, 1, &order, 0);
    if (n > 0) check("argmax", SW_OP_ARGMAX, &attr, in, 1, &most, 0);
    if (n > 0) check("argmin", SW_OP_ARGMIN, &attr, in, 1, &least, 0);
    if (t == SW_U32)
        for (int64_t e = 0; e < sum.n; e++) sum.v[e] = fmod(sum.v[e], 4294967296.0);
    if (t == SW_U8)
        for (int64_t e = 0; e < sum.n; e++) sum.v[e] = fmod(sum.v[e], 256.0);
    if (t != SW_BOOL) check("scan_sum", SW_OP_SCAN_SUM, &attr, in, 1, &sum, tolerance_of(t));
    drop(&x);
    drop(&y);
    drop(&order);
    drop(&most);
    drop(&least);
    drop(&sum);
}

static void orders(void)
{
    static const int64_t dims[][3] = {{3, 40, 5}, {2, 3, 100}, {70, 1, 2}, {1, 0, 3}, {0, 4, 2}, {2, 300, 1}};
    for (size_t t = 0; t < SW_COUNT(types); t++)
        for (size_t i = 0; i < SW_COUNT(dims); i++)
            for (int axis = 0; axis < 3; axis++)
                one_order(types[t], dims[i], axis, (int)(t + i) % LAYOUTS, (t + (size_t)axis) % 2 == 1);
}

/* ---- index ------------------------------------------------------------------------------------------------------- */

static void one_scatter(sw__op op, sw_dtype t, sw_dtype index_type, const int64_t dim[3], int axis, int64_t n,
                        int layout)
{
    int64_t sd[3] = {dim[0], dim[1], dim[2]};
    sd[axis] = n;
    tensor base = filled(t, 3, dim, layout), src = filled(t, 3, sd, (layout + 1) % LAYOUTS);
    tensor index = shaped(index_type, 3, sd, (layout + 2) % LAYOUTS), out = shaped(t, 3, dim, layout);
    for (int64_t e = 0; e < index.n; e++) index.v[e] = floor((random_value() + 1) / 2 * (double)dim[axis]);
    if (sw__dtype_is_float(t) && src.n > 3) src.v[3] = NAN;
    put(&src);
    put(&index);
    int64_t inner = 1;
    for (int i = axis + 1; i < 3; i++) inner *= dim[i];
    memcpy(out.v, base.v, (size_t)base.n * sizeof *out.v);
    for (int64_t e = 0; e < src.n; e++) {
        const int64_t at = e / (n * inner) * inner * dim[axis] + (int64_t)index.v[e] * inner + e % inner;
        double *const to = &out.v[at];
        if (op == SW_OP_SCATTER_ADD) *to += src.v[e];
        else if (op == SW_OP_SCATTER_SET) *to = src.v[e];
        else *to = before(*to, src.v[e]) ? src.v[e] : *to;
        if (t == SW_F16 || t == SW_BF16) { /* each step is rounded */
            uint16_t h;
            sw__convert(&h, t, to, SW_F64, 1);
            sw__convert(to, SW_F64, &h, t, 1);
        }
        if (t == SW_U8) *to = fmod(*to + 256, 256);
        if (t == SW_U32) *to = fmod(*to + 4294967296.0, 4294967296.0);
    }
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis.axis = axis;
    check("scatter", op, &attr, (tensor *const[]){&base, &index, &src}, 3, &out, tolerance_of(t));
    drop(&base);
    drop(&src);
    drop(&index);
    drop(&out);
}

static void scatters(void)
{
    static const sw__op ops[] = {SW_OP_SCATTER_ADD, SW_OP_SCATTER_SET, SW_OP_SCATTER_MAX};
    static const int64_t dims[][3] = {{4, 5, 6}, {9000, 1, 1}, {1, 300, 7}};
    for (size_t t = 0; t < SW_COUNT(types); t++)
        for (size_t o = 0; o < SW_COUNT(ops); o++)
            for (size_t i = 0; i < SW_COUNT(dims); i++)
                for (int axis = 0; axis < 3; axis++) {
                    if (types[t] == SW_BOOL && ops[o] == SW_OP_SCATTER_ADD) continue;
                    const int64_t n = axis == 2 ? 0 : axis == 1 ? 3 : 11 + (int64_t)(i * 200);
                    one_scatter(ops[o], types[t], (t + i) % 2 == 0 ? SW_I64 : SW_I32, dims[i], axis, n,
                                (int)(t + o + i) % LAYOUTS);
                }
}

static void embedding_grads(void)
{
    static const int64_t shapes[][4] = {{3, 7, 10, 5}, {2, 50, 65, 128}, {1, 600, 9, 40}, {4, 0, 3, 8}, {2, 3, 4, 0}};
    for (size_t i = 0; i < SW_COUNT(shapes); i++)
        for (size_t t = 0; t < 6; t++) {
            const int64_t *const s = shapes[i], dd[3] = {s[0], s[1], s[3]}, wd[2] = {s[2], s[3]};
            if (types[t] == SW_F16 || types[t] == SW_BF16) continue; /* rounded at each step */
            tensor index = shaped(t % 2 ? SW_I32 : SW_I64, 2, dd, t % 2 ? REVERSED : ROWS);
            tensor dy = filled(types[t], 3, dd, (int)t % LAYOUTS), dw = shaped(types[t], 2, wd, t % 3 ? ROWS : GAPS);
            for (int64_t e = 0; e < index.n; e++) {
                index.v[e] = floor((random_value() + 1) / 2 * (double)s[2]);
                for (int64_t c = 0; c < s[3]; c++) dw.v[(int64_t)index.v[e] * s[3] + c] += dy.v[e * s[3] + c];
            }
            put(&index);
            sw__attr attr;
            memset(&attr, 0, sizeof attr);
            attr.axis.size = s[2];
            check("embedding_grad", SW_OP_EMBEDDING_GRAD, &attr, (tensor *const[]){&index, &dy}, 2, &dw,
                  tolerance_of(types[t]) * 10);
            drop(&index);
            drop(&dy);
            drop(&dw);
        }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void index_out_of_range(void)
{
    const int64_t dim[2] = {5, 3}, sd[2] = {4, 3};
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    for (int bad = -1; bad <= 5; bad += 6) {
        tensor base = filled(SW_F32, 2, dim, ROWS), src = filled(SW_F32, 2, sd, ROWS);
        tensor index = shaped(SW_I64, 2, sd, ROWS), out = shaped(SW_F32, 2, dim, ROWS);
        index.v[7] = bad;
        put(&index);
        tensor *const in[3] = {&base, &index, &src};
        assert_int_equal(try_run(SW_OP_SCATTER_ADD, &attr, in, 3, &out, NULL), SW_ERR_DATA);
        assert_non_null(strstr(sw_error(), "scatter_add 'tested'"));
        assert_non_null(strstr(sw_error(), "index[7]"));
        assert_non_null(strstr(sw_error(), bad < 0 ? "-1" : "is 5"));
        drop(&base);
        drop(&src);
        drop(&index);
        drop(&out);
    }
}

static void test_matmul(void **state)
{
    (void)state;
    everywhere(matmuls);
    everywhere(broadcast_matmuls);
    everywhere(relu_of_nan);
}

static void test_conv(void **state)
{
    (void)state;
    everywhere(convolutions);
}

static void test_pool(void **state)
{
    (void)state;
    everywhere(pools);
}

static void test_order(void **state)
{
    (void)state;
    everywhere(orders);
}

static void test_index(void **state)
{
    (void)state;
    everywhere(scatters);
    everywhere(embedding_grads);
    everywhere(index_out_of_range);
}

static void test_device(void **state)
{
    (void)state;
    sw_device_properties p;
    assert_int_equal(be->count(), 1);
    assert_int_equal(be->properties(0, &p), SW_OK);
    assert_string_equal(p.id, "cpu");
    assert_true(p.usable && p.compute_units >= 1 && p.memory_total >= p.memory_free && p.memory_free > 0);
    assert_non_null(strstr(p.compute, "oneDNN"));
    void *d = NULL;
    assert_int_equal(be->open(0, &(sw_device_options){.threads = -1}, &d), SW_ERR_ARGUMENT);
    assert_int_equal(be->open(0, &(sw_device_options){.threads = 100000}, &d), SW_ERR_ARGUMENT);
    assert_int_equal(be->open(0, NULL, &d), SW_OK);
    assert_int_equal(be->traits(d)->compute_units, p.compute_units);
    static const size_t sizes[] = {0, 1, 100, 5 << 20};
    for (size_t i = 0; i < SW_COUNT(sizes); i++) {
        void *b;
        assert_int_equal(be->alloc(d, sizes[i], &b), SW_OK);
        const unsigned char *const at = be->host_pointer(b);
        assert_int_equal((uintptr_t)at % 64, 0);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(at[k], 0);
        be->release(d, b);
    }
    void *b = NULL;
    assert_int_equal(be->alloc(d, SIZE_MAX - 100, &b), SW_ERR_MEMORY);
    be->close(d);
}

/* The same bits for any number of threads where the op promises it, and from run to run. */
static void test_same_bits(void **state)
{
    (void)state;
    const int64_t dd[2] = {500, 96}, wd[2] = {7, 96}, id[1] = {500};
    tensor index = shaped(SW_I64, 1, id, ROWS), dy = filled(SW_F32, 2, dd, ROWS), dw = shaped(SW_F32, 2, wd, ROWS);
    for (int64_t e = 0; e < index.n; e++) index.v[e] = (double)(e * 5 % 7);
    put(&index);
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis.size = 7;
    char *first = NULL;
    for (int threads = 1; threads <= 2 * most_threads() - 1; threads++) {
        assert_int_equal(be->open(0, &(sw_device_options){.threads = threads}, &dev), SW_OK);
        assert_int_equal(try_run(SW_OP_EMBEDDING_GRAD, &attr, (tensor *const[]){&index, &dy}, 2, &dw, NULL), SW_OK);
        if (first == NULL) {
            first = malloc(dw.bytes);
            assert_non_null(first);
            memcpy(first, dw.data, dw.bytes);
        }
        assert_memory_equal(first, dw.data, dw.bytes);
        be->close(dev);
    }
    free(first);
    drop(&index);
    drop(&dy);
    drop(&dw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device), cmocka_unit_test(test_matmul),   cmocka_unit_test(test_conv),
        cmocka_unit_test(test_pool),   cmocka_unit_test(test_order),    cmocka_unit_test(test_index),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
