/* test_gpu_order.c: ops along an axis and by index on OpenCL against the CPU's: any type, any strides, short and long
 * axes, as bits. Both kinds of kernels are tried, those for CPUs and those for GPUs. Without a device it is skipped;
 * SWOOP_TEST_DEVICE=cuda:0 is another than opencl:0. */
/* timeout: 600 */
/* double: SWOOP_TEST_DEVICE=cuda:0 */
#include "backend/backend.h"
#include "backend/gpu/gpu.h"

#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TENSORS = 4, TRIALS = 25 };

static const sw__backend *cl, *cpu;
static void *cl_dev[2], *cpu_dev; /* [serial] */

typedef struct tensor {
    sw__desc d;
    int64_t room; /* elements of the memory that it lies in */
    void *host;
} tensor;

typedef struct trial {
    uint16_t op;
    sw__attr attr;
    int n_in;
    tensor t[MAX_TENSORS]; /* inputs, output */
    sw__op_desc desc;
    sw__desc list[MAX_TENSORS];
} trial;

static sw__rng rng;

static int64_t below(int64_t n)
{
    return n > 0 ? (int64_t)sw__rng_below(&rng, (uint64_t)n) : 0;
}

/* ---- tensors in memory ------------------------------------------------------------------------------------------- */

/* Axes in any order in memory, with gaps; inputs may repeat along an axis. */
static void lay_out(tensor *t, bool input)
{
    int order[SW_MAX_RANK];
    const int rank = t->d.rank;
    for (int i = 0; i < rank; i++) order[i] = i;
    if (below(2) == 0)
        for (int i = rank - 1; i > 0; i--) {
            const int k = (int)below(i + 1), x = order[i];
            order[i] = order[k];
            order[k] = x;
        }
    int64_t stride = below(3) == 0 ? 2 : 1;
    for (int i = rank - 1; i >= 0; i--) {
        const int axis = order[i];
        const bool repeats = input && below(8) == 0;
        t->d.stride[axis] = repeats ? 0 : stride;
        if (!repeats) stride *= SW_MAX(t->d.dim[axis], 1);
        if (below(6) == 0) stride += 1;
    }
    t->room = 1;
    for (int i = 0; i < rank; i++) t->room += SW_MAX(t->d.dim[i] - 1, 0) * t->d.stride[i];
}

/* Sums of these are exact in every type, in any order; there are equal ones, both zeros, infinities and NaN. */
static double value(bool special)
{
    if (special && below(12) == 0) return below(3) == 0 ? (double)NAN : below(2) ? (double)INFINITY : -(double)INFINITY;
    if (below(8) == 0) return -0.0;
    return (double)(below(17) - 8) * 0.25;
}

static void fill(tensor *t, bool special, int64_t extent)
{
    const sw_dtype type = (sw_dtype)t->d.dtype;
    const size_t size = sw_dtype_size(type);
    t->host = calloc((size_t)t->room, size);
    assert_non_null(t->host);
    for (int64_t e = 0; e < t->room; e++) {
        const double v = value(special);
        const int64_t any = below(4) == 0 ? below(5) - 2 : (int64_t)sw__rng_u32(&rng) - (1LL << 31);
        const int64_t i = extent > 0 ? below(extent) : any;
        const int64_t b = below(2);
        void *const to = (char *)t->host + (size_t)e * size;
        if (sw__dtype_is_float(type)) sw__convert(to, type, &v, SW_F64, 1);
        else sw__convert(to, type, type == SW_BOOL ? &b : &i, SW_I64, 1);
    }
}

static tensor *add(trial *t, sw_dtype type, int rank, const int64_t *dim, bool input)
{
    tensor *const x = &t->t[t->n_in];
    *x = (tensor){ .d = { .dtype = (uint8_t)type, .rank = (uint8_t)rank } };
    if (rank > 0) memcpy(x->d.dim, dim, (size_t)rank * sizeof *dim);
    lay_out(x, input);
    if (input) t->n_in++;
    return x;
}

/* ---- what is tried ----------------------------------------------------------------------------------------------- */

static const sw_dtype types[] = { SW_F32, SW_F64, SW_F16, SW_BF16, SW_I32, SW_I64, SW_U32, SW_U8, SW_BOOL };
static const uint16_t ops[] = { SW_OP_ARGMAX,      SW_OP_ARGMIN,      SW_OP_SCAN_SUM,
                                SW_OP_SORT,        SW_OP_ARGSORT,     SW_OP_SCATTER_ADD,
                                SW_OP_SCATTER_SET, SW_OP_SCATTER_MAX, SW_OP_EMBEDDING_GRAD };

static void make_embedding_grad(trial *t, sw_dtype type, int rank, int64_t *dim)
{
    rank = rank == SW_MAX_RANK ? rank - 1 : rank;
    const int64_t rows = 1 + below(below(2) ? 3000 : 9);
    fill(add(t, below(2) ? SW_I32 : SW_I64, rank, dim, true), false, rows);
    dim[rank] = below(3) == 0 ? below(300) : below(20);
    fill(add(t, type, rank + 1, dim, true), false, 0);
    t->attr.axis.size = rows;
    const int64_t out[2] = { rows, dim[rank] };
    add(t, type, 2, out, false);
}

static void make_scatter(trial *t, sw_dtype type, int rank, int64_t *dim, int axis)
{
    int64_t base[SW_MAX_RANK];
    memcpy(base, dim, sizeof base);
    base[axis] = 1 + below(below(3) == 0 ? 3000 : 12);
    const bool special = t->op != SW_OP_SCATTER_ADD;
    fill(add(t, type, rank, base, true), special, 0);
    fill(add(t, below(2) ? SW_I32 : SW_I64, rank, dim, true), false, base[axis]);
    fill(add(t, type, rank, dim, true), special, 0);
    add(t, type, rank, base, false);
}

static void make(trial *t)
{
    int64_t dim[SW_MAX_RANK] = { 0 };
    memset(t, 0, sizeof *t);
    t->op = ops[below((int64_t)SW_COUNT(ops))];
    const bool sums = t->op == SW_OP_SCAN_SUM || t->op == SW_OP_SCATTER_ADD || t->op == SW_OP_EMBEDDING_GRAD;
    const sw_dtype type = types[below((int64_t)SW_COUNT(types) - (sums ? 1 : 0))];
    const int rank = 1 + (int)below(below(4) == 0 ? 5 : 3), axis = (int)below(rank);
    for (int i = 0; i < rank; i++) dim[i] = below(20) == 0 ? 0 : 1 + below(rank > 3 ? 5 : 9);
    /* a long axis; the sums of halves stay where they are exact */
    if (below(2) == 0) dim[axis] = 1 + below(sums && sw_dtype_size(type) == 2 ? 60 : below(4) == 0 ? 40000 : 3000);
    else if (below(6) == 0) dim[rank - 1 - axis] = 1 + below(3000);
    t->attr.axis.axis = axis;
    t->attr.axis.flag = below(2) == 0 && sw__op_table[t->op].cls == SW_CLASS_ORDER;
    if (t->op == SW_OP_EMBEDDING_GRAD) {
        make_embedding_grad(t, type, rank, dim);
    } else if (sw__op_table[t->op].cls == SW_CLASS_INDEX) {
        make_scatter(t, type, rank, dim, axis);
    } else {
        const bool argreduce = t->op == SW_OP_ARGMAX || t->op == SW_OP_ARGMIN;
        if (argreduce && dim[axis] == 0) dim[axis] = 1;
        fill(add(t, type, rank, dim, true), !sums, 0);
        if (argreduce) dim[axis] = 1;
        add(t, argreduce || t->op == SW_OP_ARGSORT ? SW_I64 : type, rank, dim, false);
    }
    for (int i = 0; i <= t->n_in; i++) t->list[i] = t->t[i].d;
    t->desc = (sw__op_desc){ .op = t->op, .attr = &t->attr, .name = "tried", .n_in = t->n_in, .n_out = 1, .in = t->list,
                             .out = t->list + t->n_in };
}

static void drop(trial *t)
{
    for (int i = 0; i < t->n_in; i++) free(t->t[i].host);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const sw_status ok_ = (call);                                                                                  \
        if (ok_ != SW_OK) fail_msg("%s: %s", #call, sw_error());                                                       \
    } while (0)

/* Plans, runs, and gives the memory of the output, which was all 0xA5 before; and the status of waiting. */
static sw_status run(const sw__backend *b, void *dev, const trial *t, void *result)
{
    sw__bind bind[MAX_TENSORS + 1] = { { NULL, 0 } };
    void *plan = NULL;
    size_t workspace = 0;
    const sw_status planned = b->op_plan(dev, &t->desc, &plan, &workspace);
    if (planned == SW_ERR_UNSUPPORTED && strstr(sw_error(), "f64") != NULL) return planned; /* the device has no double */
    OK(planned);
    if (b->build != NULL) OK(b->build(dev));
    for (int i = 0; i <= t->n_in; i++) {
        const size_t bytes = (size_t)t->t[i].room * sw_dtype_size((sw_dtype)t->t[i].d.dtype), offset = 64 * (size_t)i;
        OK(b->alloc(dev, bytes + offset, &bind[i].buffer));
        bind[i].offset = offset;
        if (i < t->n_in) OK(b->upload(dev, bind[i].buffer, offset, t->t[i].host, bytes));
        else OK(b->fill(dev, bind[i].buffer, offset, bytes, 0xA5));
    }
    if (workspace > 0) OK(b->alloc(dev, workspace, &bind[t->n_in + 1].buffer));
    sw_status st = b->op_exec(dev, plan, bind);
    if (st == SW_OK && b->sync != NULL) st = b->sync(dev);
    const tensor *const out = &t->t[t->n_in];
    if (st == SW_OK)
        OK(b->download(dev, bind[t->n_in].buffer, bind[t->n_in].offset, result,
                       (size_t)out->room * sw_dtype_size((sw_dtype)out->d.dtype)));
    b->op_free(dev, plan);
    for (int i = 0; i <= t->n_in + 1; i++)
        if (bind[i].buffer != NULL) b->release(dev, bind[i].buffer);
    return st;
}

static void describe(const trial *t, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "%s axis %d%s", sw__op_table[t->op].name, t->attr.axis.axis,
                                t->attr.axis.flag ? " flag" : "");
    for (int i = 0; i <= t->n_in && n < size; i++) {
        const sw__desc *const d = &t->t[i].d;
        n += (size_t)snprintf(text + n, size - n, "; %s[", sw_dtype_name((sw_dtype)d->dtype));
        for (int k = 0; k < d->rank && n < size; k++)
            n += (size_t)snprintf(text + n, size - n, " %lld*%lld", (long long)d->dim[k], (long long)d->stride[k]);
        if (n < size) n += (size_t)snprintf(text + n, size - n, " ]");
    }
}

/* Memory between the elements counts too: nobody may write there. */
static void compare(const trial *t, int serial, const void *have, const void *want)
{
    const tensor *const out = &t->t[t->n_in];
    const size_t size = sw_dtype_size((sw_dtype)out->d.dtype);
    if (memcmp(have, want, (size_t)out->room * size) == 0) return;
    int64_t e = 0;
    while (memcmp((const char *)have + (size_t)e * size, (const char *)want + (size_t)e * size, size) == 0) e++;
    double a = 0, b = 0;
    sw__convert(&a, SW_F64, (const char *)have + (size_t)e * size, (sw_dtype)out->d.dtype, 1);
    sw__convert(&b, SW_F64, (const char *)want + (size_t)e * size, (sw_dtype)out->d.dtype, 1);
    char text[700];
    describe(t, text, sizeof text);
    fail_msg("%s kernels, %s: element %lld in memory is %g, not %g", serial ? "serial" : "parallel", text,
             (long long)e, a, b);
}

static void check(const trial *t)
{
    const tensor *const out = &t->t[t->n_in];
    const size_t bytes = (size_t)out->room * sw_dtype_size((sw_dtype)out->d.dtype);
    void *const want = malloc(bytes), *const have = malloc(bytes);
    if (want == NULL || have == NULL) abort();
    OK(run(cpu, cpu_dev, t, want));
    for (int serial = 0; serial < 2; serial++) {
        const sw_status st = run(cl, cl_dev[serial], t, have);
        if (st == SW_ERR_UNSUPPORTED) continue;
        OK(st);
        compare(t, serial, have, want);
    }
    free(want);
    free(have);
}

static void test_random(void **state)
{
    (void)state;
    const char *const wish = getenv("SWOOP_TEST_TRIALS"), *const seed = getenv("SWOOP_TEST_SEED");
    const int trials = wish != NULL ? (int)strtol(wish, NULL, 10) : TRIALS;
    if (cl_dev[0] == NULL) skip();
    sw__rng_init(&rng, seed != NULL ? strtoull(seed, NULL, 10) : 11, 0);
    for (int i = 0; i < trials; i++) {
        trial t;
        make(&t);
        check(&t);
        drop(&t);
    }
}

static trial fixed(uint16_t op, int64_t size)
{
    trial t = { .op = op };
    t.attr.axis.size = size;
    return t;
}

static void finish(trial *t)
{
    for (int i = 0; i <= t->n_in; i++) {
        int64_t stride = 1;
        for (int k = t->t[i].d.rank - 1; k >= 0; k--) {
            t->t[i].d.stride[k] = stride;
            stride *= t->t[i].d.dim[k];
        }
        t->t[i].room = stride;
        t->list[i] = t->t[i].d;
    }
    t->desc = (sw__op_desc){ .op = t->op, .attr = &t->attr, .name = "tried", .n_in = t->n_in, .n_out = 1, .in = t->list,
                             .out = t->list + t->n_in };
}

/* f32 values whose sums depend on the order: each result is the same sum in the same order. */
static void test_order_of_sums(void **state)
{
    (void)state;
    enum { N = 5000, ROWS = 40, WIDTH = 33 };
    if (cl_dev[0] == NULL) skip();
    for (int kind = 0; kind < 2; kind++) {
        trial t = fixed(kind == 0 ? SW_OP_EMBEDDING_GRAD : SW_OP_SCATTER_ADD, ROWS);
        const int64_t n[] = { N, WIDTH }, rows[] = { ROWS, WIDTH };
        if (kind == 1) add(&t, SW_F32, 2, rows, true);
        add(&t, SW_I64, kind == 0 ? 1 : 2, n, true);
        add(&t, SW_F32, 2, n, true);
        add(&t, SW_F32, 2, rows, false);
        finish(&t);
        for (int i = 0; i < t.n_in; i++) fill(&t.t[i], false, ROWS);
        float *const dy = t.t[t.n_in - 1].host;
        for (int64_t e = 0; e < t.t[t.n_in - 1].room; e++) dy[e] = (float)sw__rng_normal(&rng);
        check(&t);
        drop(&t);
    }
}

/* A bad index is told: its value, its place, what was allowed. */
static void test_bad_index(void **state)
{
    (void)state;
    if (cl_dev[0] == NULL) skip();
    static const int64_t bad[] = { -1, 7, INT32_MAX, INT32_MIN, 1LL << 40 };
    for (int kind = 0; kind < 2; kind++)
        for (int serial = 0; serial < 2; serial++)
            for (size_t b = 0; b < SW_COUNT(bad); b++)
                for (int wide = 0; wide < 2; wide++) {
                    if (wide == 0 && bad[b] > INT32_MAX) continue;
                    trial t = fixed(kind == 0 ? SW_OP_EMBEDDING_GRAD : SW_OP_SCATTER_SET, 7);
                    const int64_t n[] = { 200, 1 }, rows[] = { 7, 1 };
                    const sw_dtype type = wide ? SW_I64 : SW_I32;
                    if (kind == 1) add(&t, SW_F32, 2, rows, true);
                    add(&t, type, kind == 0 ? 1 : 2, n, true);
                    add(&t, SW_F32, 2, n, true);
                    add(&t, SW_F32, 2, rows, false);
                    finish(&t);
                    for (int i = 0; i < t.n_in; i++) fill(&t.t[i], false, 7);
                    sw__convert((char *)t.t[t.n_in - 2].host + 123 * sw_dtype_size(type), type, &bad[b], SW_I64, 1);
                    char result[64], text[64];
                    const sw_status st = run(cl, cl_dev[serial], &t, result);
                    drop(&t);
                    assert_int_equal(st, SW_ERR_DATA);
                    snprintf(text, sizeof text, "index[123] is %lld, outside 0 to 6", (long long)bad[b]);
                    if (strstr(sw_error(), text) == NULL) fail_msg("'%s' is not in: %s", text, sw_error());
                }
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static int open_devices(void **state)
{
    (void)state;
    cpu = sw__backend_find("cpu");
    if (cpu == NULL || cpu->open(0, NULL, &cpu_dev) != SW_OK) return -1;
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    cl = sw__backend_find(wish != NULL && strncmp(wish, "cuda", 4) == 0 ? "cuda" : "opencl");
    for (int serial = 0; serial < 2 && cl != NULL && cl->count() > 0; serial++) {
        setenv("SWOOP_OPENCL_SERIAL", serial ? "1" : "0", 1);
        if (cl->open(0, NULL, &cl_dev[serial]) != SW_OK) {
            fprintf(stderr, "%s\n", sw_error());
            return -1;
        }
    }
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    cpu->close(cpu_dev);
    for (int i = 0; i < 2; i++)
        if (cl_dev[i] != NULL) cl->close(cl_dev[i]);
    return 0;
}

int main(void)
{
    setenv("SWOOP_CACHE_MB", "0", 1); /* programs that nobody will want again */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_order_of_sums),
        cmocka_unit_test(test_bad_index),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
