/* test_culib_run.c: products of matrices and convolutions through the doubles of cuBLASLt and cuDNN (tests/fakecuda),
 * op by op, against loops in double: types, transposes, gaps, batches, epilogues, odd sizes and places; what a library
 * refuses or where it is missing, our kernels compute. Every report of the double is a failure. */
/* needs: FAKECUDA */
/* timeout: 600 */
#include "cuda_op.h"

#include <sys/wait.h>

/* Each so-manieth case: tests/gpu/run -q. */
static size_t few(void)
{
    return getenv("SWOOP_TEST_FEW") != NULL ? 7 : 1;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Axes [batch 0, batch 1, rows, columns]; a step of 0 is one matrix for all. */
typedef struct product_case {
    const char *name;
    sw_dtype type;
    int64_t b0, b1, m, n, k;
    bool a_turned, b_turned, c_turned, a_shared, b_shared, bias, relu, swap;
    int gap;   /* elements between rows */
    int place; /* elements before the matrices: with 1 they are not aligned */
    bool own;  /* expected of our kernels */
} product_case;

static const product_case products[] = {
    { .name = "plain", .type = SW_F32, .m = 16, .n = 24, .k = 32 },
    { .name = "odd", .type = SW_F32, .m = 13, .n = 7, .k = 29 },
    { .name = "a turned", .type = SW_F32, .m = 13, .n = 17, .k = 5, .a_turned = true },
    { .name = "b turned", .type = SW_F32, .m = 13, .n = 17, .k = 5, .b_turned = true },
    { .name = "both turned", .type = SW_F32, .m = 6, .n = 17, .k = 15, .a_turned = true, .b_turned = true },
    { .name = "result turned", .type = SW_F32, .m = 6, .n = 17, .k = 15, .c_turned = true },
    { .name = "result turned, bias",
      .type = SW_F32,
      .m = 6,
      .n = 17,
      .k = 15,
      .c_turned = true,
      .bias = true,
      .own = true },
    { .name = "bias", .type = SW_F32, .m = 9, .n = 20, .k = 33, .bias = true },
    { .name = "relu", .type = SW_F32, .m = 9, .n = 20, .k = 33, .relu = true },
    { .name = "bias and relu", .type = SW_F32, .m = 9, .n = 20, .k = 33, .bias = true, .relu = true },
    { .name = "one row", .type = SW_F32, .m = 1, .n = 20, .k = 33, .bias = true },
    { .name = "one column", .type = SW_F32, .m = 20, .n = 1, .k = 33 },
    { .name = "one term", .type = SW_F32, .m = 20, .n = 12, .k = 1, .b_turned = true },
    { .name = "gaps", .type = SW_F32, .m = 8, .n = 12, .k = 10, .gap = 3, .bias = true },
    { .name = "gaps, turned", .type = SW_F32, .m = 8, .n = 12, .k = 10, .gap = 3, .a_turned = true, .b_turned = true },
    { .name = "not aligned", .type = SW_F32, .m = 8, .n = 12, .k = 10, .place = 1, .bias = true },
    { .name = "batch", .type = SW_F32, .b1 = 5, .m = 8, .n = 12, .k = 10, .a_turned = true },
    { .name = "batch, one b", .type = SW_F32, .b1 = 5, .m = 8, .n = 12, .k = 10, .b_shared = true, .gap = 1 },
    { .name = "batch, one a", .type = SW_F32, .b1 = 5, .m = 8, .n = 12, .k = 10, .a_shared = true },
    { .name = "two batch axes", .type = SW_F32, .b0 = 3, .b1 = 5, .m = 8, .n = 12, .k = 10 },
    { .name = "heads", .type = SW_F32, .b0 = 3, .b1 = 4, .m = 8, .n = 12, .k = 16, .swap = true, .b_turned = true },
    { .name = "f64", .type = SW_F64, .m = 13, .n = 7, .k = 29, .b_turned = true },
    { .name = "f16", .type = SW_F16, .m = 16, .n = 24, .k = 64, .bias = true, .relu = true },
    { .name = "f16, odd", .type = SW_F16, .m = 13, .n = 7, .k = 29, .a_turned = true },
    { .name = "f16, not aligned", .type = SW_F16, .m = 8, .n = 8, .k = 8, .place = 1 },
    { .name = "bf16", .type = SW_BF16, .m = 16, .n = 24, .k = 64, .b_turned = true, .bias = true },
    { .name = "bf16, batch", .type = SW_BF16, .b1 = 3, .m = 8, .n = 24, .k = 16 },
};

/* [b0, b1, rows, cols] as it lies in memory. */
static tensor matrix(const product_case *c, int64_t rows, int64_t cols, bool turned, bool shared)
{
    tensor t = {
        .type = c->type, .rank = 4, .place = c->place, .dim = { SW_MAX(c->b0, 1), SW_MAX(c->b1, 1), rows, cols }
    };
    const int64_t line = (turned ? rows : cols) + c->gap, lines = turned ? cols : rows;
    t.stride[2] = turned ? 1 : line;
    t.stride[3] = turned ? line : 1;
    t.stride[1] = shared ? 0 : line * lines;
    t.stride[0] = shared ? 0 : t.stride[1] * t.dim[1];
    if (c->swap) { /* as heads lie in a row of all of them: batch, row, head, column */
        t.stride[2] = t.dim[1] * line;
        t.stride[1] = line;
        t.stride[0] = t.stride[2] * rows;
        if (turned) {
            t.stride[2] = t.dim[1] * line;
            t.stride[3] = 1;
        }
    }
    return t;
}

static double product_at(const product_case *c, const tensor *t, const int64_t *at)
{
    double sum = 0;
    int64_t a[4] = { at[0], at[1], at[2], 0 }, b[4] = { at[0], at[1], 0, at[3] };
    for (int64_t k = 0; k < c->k; k++) {
        a[3] = b[2] = k;
        sum += value_at(&t[0], a) * value_at(&t[1], b);
    }
    if (c->bias) sum += value_at(&t[2], &at[3]);
    return c->relu && sum < 0 ? 0 : sum;
}

static void one_product(bench *x, const product_case *c)
{
    tensor t[4] = { matrix(c, c->m, c->k, c->a_turned, c->a_shared), matrix(c, c->k, c->n, c->b_turned, c->b_shared) };
    int n = 2;
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.act.act = c->relu ? SW_ACT_RELU : SW_ACT_NONE;
    if (c->bias) t[n++] = (tensor){ .type = c->type, .rank = 1, .place = c->place, .dim = { c->n }, .stride = { 1 } };
    t[n] = matrix(c, c->m, c->n, c->c_turned, false);
    for (int i = 0; i < n; i++) fill(&t[i], (uint64_t)i + 1);
    op_run r = {
        .op = c->bias || c->relu ? SW_OP_MATMUL : SW_OP_DOT, .attr = &attr, .name = c->name, .n_in = n, .t = t
    };
    if (run_op(x, &r)) {
        int64_t at[4] = { 0 };
        const bool by_library = strstr(r.note, "cuBLASLt") != NULL;
        if (x->any) fprintf(stderr, "%s by %s\n", c->name, r.note);
        if (!x->any && by_library == (c->own || x->no_library)) problem(x, "%s: planned as '%s'", c->name, r.note);
        for (int64_t i = 0; i < points(&t[n]); i++) {
            place_of(&t[n], i, at);
            expect_near(x, &r, &t[n], at, product_at(c, t, at), c->k, x->tf32 && c->type == SW_F32);
        }
    }
    for (int i = 0; i <= n; i++) tensor_free(&t[i]);
}

static void all_products(bench *x)
{
    for (size_t i = 0; i < SW_COUNT(products); i += few()) one_product(x, &products[i]);
}

static void test_products(void **state)
{
    (void)state;
    bench x = bench_open(false);
    all_products(&x);
    assert_int_equal(bench_close(&x), 0);
}

static void test_products_tf32(void **state)
{
    (void)state;
    bench x = bench_open(true);
    all_products(&x);
    assert_true(x.largest > 1e-5); /* it did round */
    assert_int_equal(bench_close(&x), 0);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

typedef struct conv_case {
    const char *name;
    sw_dtype type;
    int nd;
    int64_t n, c, k, groups, size, kernel, stride, pad_lo, pad_hi, dilation;
    bool channels_first, bias, relu;
    int place;
} conv_case;

static const conv_case convs[] = {
    { "plain", SW_F32, 2, 2, 8, 12, 1, 9, 3, 1, 1, 1, 1, false, false, false, 0 },
    { "one channel", SW_F32, 2, 2, 1, 6, 1, 12, 5, 1, 2, 2, 1, false, true, false, 0 },
    { "bias and relu", SW_F32, 2, 2, 8, 12, 1, 9, 3, 2, 1, 1, 1, false, true, true, 0 },
    { "relu", SW_F32, 2, 2, 8, 12, 1, 9, 3, 1, 1, 1, 1, false, false, true, 0 },
    { "channels first", SW_F32, 2, 2, 5, 7, 1, 9, 3, 1, 1, 1, 1, true, true, false, 0 },
    { "groups", SW_F32, 2, 2, 8, 12, 4, 9, 3, 1, 1, 1, 1, false, false, false, 0 },
    { "depthwise", SW_F32, 2, 2, 8, 8, 8, 9, 3, 1, 1, 1, 1, false, false, false, 0 },
    { "dilated", SW_F32, 2, 1, 4, 4, 1, 11, 3, 1, 2, 2, 2, false, false, false, 0 },
    { "one axis", SW_F32, 1, 2, 4, 6, 1, 17, 5, 2, 2, 2, 1, true, true, false, 0 },
    { "three axes", SW_F32, 3, 1, 4, 6, 1, 6, 3, 1, 1, 1, 1, true, false, false, 0 },
    { "not aligned", SW_F32, 2, 2, 4, 4, 1, 6, 3, 1, 1, 1, 1, false, false, false, 1 },
    { "more padding behind", SW_F32, 2, 1, 4, 4, 1, 8, 3, 2, 0, 1, 1, false, false, false, 0 },
    { "f64", SW_F64, 2, 1, 4, 4, 1, 7, 3, 1, 1, 1, 1, false, false, false, 0 },
    { "f16", SW_F16, 2, 2, 8, 16, 1, 9, 3, 1, 1, 1, 1, false, true, true, 0 },
    { "bf16", SW_BF16, 2, 2, 16, 8, 1, 9, 3, 2, 1, 1, 1, false, true, false, 0 },
};

static int64_t out_size(const conv_case *c)
{
    return (c->size + c->pad_lo + c->pad_hi - c->dilation * (c->kernel - 1) - 1) / c->stride + 1;
}

static tensor image(const conv_case *c, int64_t n, int64_t channels, int64_t size, bool first)
{
    tensor t = { .type = c->type, .rank = c->nd + 2, .place = c->place, .dim = { n, channels } };
    int64_t step = first ? 1 : channels;
    for (int i = 2; i < t.rank; i++) t.dim[i] = size;
    for (int i = t.rank - 1; i >= 2; i--, step *= size) t.stride[i] = step;
    t.stride[1] = first ? step : 1;
    t.stride[0] = first ? step * channels : step;
    return t;
}

/* The sum of one element of the result, whichever of x, w, y that is: over all that meet it. */
typedef struct meeting {
    const conv_case *c;
    const tensor *x, *w, *y;
    sw__op op;
} meeting;

static double conv_at(const meeting *m, const int64_t *at)
{
    const conv_case *const c = m->c;
    const int64_t cg = c->c / c->groups, kg = c->k / c->groups, q = out_size(c);
    int64_t x[5], w[5], y[5];
    int64_t kernels = 1, places = 1;
    double sum = 0;
    for (int i = 0; i < c->nd; i++) {
        kernels *= c->kernel;
        places *= q;
    }
    const int64_t *const want = at;
    for (int64_t n = 0; n < c->n; n++) {
        if (m->op != SW_OP_CONV_GRAD_W && n != want[0]) continue;
        for (int64_t k = 0; k < c->k; k++) {
            if ((m->op == SW_OP_CONV && k != want[1]) || (m->op == SW_OP_CONV_GRAD_W && k != want[0])) continue;
            for (int64_t i = 0; i < cg; i++) {
                const int64_t channel = k / kg * cg + i;
                if ((m->op == SW_OP_CONV_GRAD_X && channel != want[1]) || (m->op == SW_OP_CONV_GRAD_W && i != want[1]))
                    continue;
                for (int64_t pt = 0; pt < kernels * places; pt++) {
                    int64_t t = pt / places, p = pt % places;
                    bool good = true;
                    x[0] = y[0] = n;
                    x[1] = channel;
                    w[0] = y[1] = k;
                    w[1] = i;
                    for (int a = c->nd + 1; a >= 2; a--, t /= c->kernel, p /= q) {
                        w[a] = t % c->kernel;
                        y[a] = p % q;
                        x[a] = y[a] * c->stride + w[a] * c->dilation - c->pad_lo;
                        good = good && x[a] >= 0 && x[a] < c->size;
                        const int64_t own = m->op == SW_OP_CONV ? y[a] : m->op == SW_OP_CONV_GRAD_X ? x[a] : w[a];
                        good = good && own == want[a];
                    }
                    if (!good) continue;
                    if (m->op == SW_OP_CONV) sum += value_at(m->x, x) * value_at(m->w, w);
                    if (m->op == SW_OP_CONV_GRAD_X) sum += value_at(m->y, y) * value_at(m->w, w);
                    if (m->op == SW_OP_CONV_GRAD_W) sum += value_at(m->x, x) * value_at(m->y, y);
                }
            }
        }
    }
    return sum;
}

static sw__attr conv_attr(const conv_case *c, sw__op op, const tensor *result)
{
    sw__attr a;
    memset(&a, 0, sizeof a);
    a.conv.nd = c->nd;
    a.conv.groups = c->groups;
    a.conv.act = op == SW_OP_CONV && c->relu ? SW_ACT_RELU : SW_ACT_NONE;
    for (int i = 0; i < c->nd; i++) {
        a.conv.stride[i] = c->stride;
        a.conv.dilation[i] = c->dilation;
        a.conv.pad_lo[i] = c->pad_lo;
        a.conv.pad_hi[i] = c->pad_hi;
    }
    for (int i = 0; i < result->rank; i++) a.conv.dim[i] = result->dim[i];
    return a;
}

static void one_conv(bench *x, const conv_case *c, sw__op op)
{
    const tensor px = image(c, c->n, c->c, c->size, c->channels_first),
                 pw = image(c, c->k, c->c / c->groups, c->kernel, true);
    const tensor py = image(c, c->n, c->k, out_size(c), c->channels_first);
    const bool forward = op == SW_OP_CONV, biased = forward && c->bias;
    tensor t[4] = { forward || op == SW_OP_CONV_GRAD_W ? px : py, op == SW_OP_CONV_GRAD_W ? py : pw };
    int n = 2;
    char name[64];
    if (biased) t[n++] = (tensor){ .type = c->type, .rank = 1, .dim = { c->k }, .stride = { 1 } };
    t[n] = forward ? py : op == SW_OP_CONV_GRAD_X ? px : pw;
    for (int i = 0; i < n; i++) fill(&t[i], (uint64_t)i + 5);
    const sw__attr attr = conv_attr(c, op, &t[n]);
    snprintf(name, sizeof name, "%s, %s", c->name, sw__op_table[op].name);
    op_run r = { .op = op, .attr = &attr, .name = name, .n_in = n, .t = t };
    const meeting m = { .c = c, .op = op, .x = &t[0], .w = &t[1], .y = op == SW_OP_CONV_GRAD_X ? &t[0] : &t[1] };
    if (run_op(x, &r)) {
        if (x->any) fprintf(stderr, "%s by %s\n", name, r.note);
        if (!x->any && (strstr(r.note, "cuDNN") != NULL) == x->no_library)
            problem(x, "%s: planned as '%s'", name, r.note);
        for (int64_t i = 0; i < points(&t[n]); i++) {
            int64_t at[5] = { 0 };
            place_of(&t[n], i, at);
            double want = conv_at(&m, at) + (biased ? value_at(&t[2], &at[1]) : 0);
            if (attr.conv.act == SW_ACT_RELU && want < 0) want = 0;
            const int64_t terms = op == SW_OP_CONV_GRAD_W ? c->n * points(&py) / py.dim[0] / py.dim[1] : c->c * 27;
            expect_near(x, &r, &t[n], at, want, terms, strstr(r.note, "tf32") != NULL);
        }
    }
    for (int i = 0; i <= n; i++) tensor_free(&t[i]);
}

static void all_convs(bench *x)
{
    for (size_t i = 0; i < SW_COUNT(convs); i += few()) {
        one_conv(x, &convs[i], SW_OP_CONV);
        one_conv(x, &convs[i], SW_OP_CONV_GRAD_X);
        one_conv(x, &convs[i], SW_OP_CONV_GRAD_W);
    }
}

static void test_convolutions(void **state)
{
    (void)state;
    bench x = bench_open(false);
    if (!x.has_cudnn) skip();
    all_convs(&x);
    assert_int_equal(bench_close(&x), 0);
}

static void test_convolutions_tf32(void **state)
{
    (void)state;
    bench x = bench_open(true);
    if (!x.has_cudnn) skip();
    all_convs(&x);
    assert_true(x.largest > 1e-5);
    assert_int_equal(bench_close(&x), 0);
}

/* ---- whole programs ---------------------------------------------------------------------------------------------- */

enum { ROWS = 6, WIDE = 17, OUTS = 8 };

/* Operands that begin one element behind a boundary, which only the schedule knows. */
static sw_graph *sliced(sw_dtype type)
{
    sw_graph *g = NULL;
    assert_int_equal(sw_graph_new(&g), SW_OK);
    const sw_t x = sw_input(g, "x", type, 2, (int64_t[]){ ROWS, WIDE });
    const sw_t w = sw_input(g, "w", type, 2, (int64_t[]){ WIDE, OUTS });
    sw_output(sw_matmul(sw_narrow(x, 1, 1, WIDE - 1), sw_narrow(w, 0, 1, WIDE - 1)), "y");
    sw_output(sw_relu(sw_matmul(sw_narrow(x, 1, 0, WIDE - 1), sw_narrow(w, 0, 0, WIDE - 1))), "z");
    assert_int_equal(sw_graph_status(g), SW_OK);
    return g;
}

/* Four runs: the first launches, the second records, the others replay. */
static void run_sliced(sw_device *d, sw_dtype type, double result[2][ROWS * OUTS])
{
    double x[ROWS * WIDE], w[WIDE * OUTS];
    sw_graph *const g = sliced(type);
    sw_program *p = NULL;
    if (sw_compile(g, d, NULL, &p) != SW_OK) fail_msg("%s", sw_error());
    for (int run = 0; run < 4; run++) {
        for (int i = 0; i < ROWS * WIDE; i++) x[i] = (double)((i * 7 + run) % 16 - 8) / 8;
        for (int i = 0; i < WIDE * OUTS; i++) w[i] = (double)((i * 5 + run) % 16 - 8) / 8;
        assert_int_equal(sw_program_set(p, sw_program_input(p, "x"), SW_F64, x, ROWS * WIDE), SW_OK);
        assert_int_equal(sw_program_set(p, sw_program_input(p, "w"), SW_F64, w, WIDE * OUTS), SW_OK);
        if (sw_program_run(p) != SW_OK) fail_msg("%s", sw_error());
    }
    for (int i = 0; i < 2; i++)
        if (sw_program_get(p, i, SW_F64, result[i], ROWS * OUTS) != SW_OK) fail_msg("%s", sw_error());
    sw_program_free(p);
    sw_graph_free(g);
}

static void test_slices(void **state)
{
    static const sw_dtype all[] = { SW_F32, SW_F16, SW_BF16, SW_F64 };
    (void)state;
    bench x = bench_open(false);
    sw_device *ref = NULL;
    assert_int_equal(sw_device_open("ref", NULL, &ref), SW_OK);
    for (size_t t = 0; t < SW_COUNT(all); t++) {
        double have[2][ROWS * OUTS], want[2][ROWS * OUTS];
        run_sliced(x.device, all[t], have);
        run_sliced(ref, all[t], want);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < ROWS * OUTS; i++)
                if (fabs(have[k][i] - want[k][i]) > 0.02 * fabs(want[k][i]) + 1e-6)
                    problem(&x, "%s: %d, %d: %g, not %g", sw_dtype_name(all[t]), k, i, have[k][i], want[k][i]);
    }
    assert_int_equal(bench_cu(&x)->gpu.refused, 0);
    sw_device_close(ref);
    assert_int_equal(bench_close(&x), 0);
}

/* ---- libraries that are missing, old, or refuse ------------------------------------------------------------------ */

/* In a process of its own: everything again, and how many ops were not taken. what: "any", or which of p (products) and
 * c (convolutions) are expected of our kernels. */
static int child(const char *what)
{
    bench x = bench_open(false);
    x.any = strcmp(what, "any") == 0;
    x.no_library = strchr(what, 'p') != NULL;
    all_products(&x);
    x.no_library = strchr(what, 'c') != NULL;
    if (x.has_cudnn) all_convs(&x);
    fprintf(stderr, "refused %llu\n", (unsigned long long)bench_cu(&x)->gpu.refused);
    return bench_close(&x) == 0 ? 0 : 1;
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) n++;
    return n;
}

static char said[1 << 18];

/* What this program says on stderr with these variables set. */
static void run_child(const char *variables, const char *what)
{
    char self[512] = "", command[1200];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    snprintf(command, sizeof command, "%s '%s' %s 2>&1", variables, self, what);
    FILE *const f = popen(command, "r");
    assert_non_null(f);
    const size_t n = fread(said, 1, sizeof said - 1, f);
    said[n] = '\0';
    const int status = pclose(f);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("%s: status %d\n%s", variables, status, said);
}

static long refused(void)
{
    const char *const at = strstr(said, "refused ");
    assert_non_null(at);
    return strtol(at + 8, NULL, 10);
}

static void expect_without(const char *variables, const char *what, const char *says)
{
    const bool p = strchr(what, 'p') != NULL, c = strchr(what, 'c') != NULL;
    const int n_products = p ? (int)SW_COUNT(products) : 1; /* one is refused in any case */
    run_child(variables, what);
    if (strstr(said, says) == NULL) fail_msg("%s: no '%s' in\n%s", variables, says, said);
    assert_int_equal(count_of(said, "products of matrices run on swoop's own kernels"), p);
    assert_int_equal(count_of(said, "convolutions run on swoop's own kernels"), c);
    assert_int_equal(refused(), n_products + (c ? 3 * (int)SW_COUNT(convs) : 0));
}

static void test_absent(void **state)
{
    (void)state;
    if (access(SWOOP_FAKECUDA "/libcudnn.so.9", R_OK) != 0) skip();
    expect_without("SWOOP_WITHOUT=cudnn", "c", "install cuDNN 9");
    expect_without("SWOOP_WITHOUT=cublasLt", "p", "install cuBLAS of CUDA 12 or 13");
    expect_without("SWOOP_CUBLASLT_LIBRARY=libnone.so SWOOP_CUDNN_LIBRARY=libnone.so", "pc", "install cuDNN 9");
    expect_without("FAKECUDA_CUBLASLT=110000 FAKECUDA_CUDNN_VERSION=90100", "pc", "cuDNN 9.1.0, but 9.8");
    expect_without("FAKECUDA_FAIL=cublasLtCreate:1:1,cudnnCreate:1:1001", "pc",
                   "cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED (1)");
}

static void test_refused(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 2; seed++) {
        char variables[64];
        snprintf(variables, sizeof variables, "SWOOP_LOG=debug FAKECUDA_REFUSE=%d", seed);
        run_child(variables, "any");
        assert_true(refused() > 2 && refused() < (long)SW_COUNT(products) - 2);
        assert_int_equal(count_of(said, "on our kernels: "), refused());
        assert_true(count_of(said, "CUBLAS_STATUS_NOT_SUPPORTED (15)") >= refused() - 1);
    }
}

/* A GPU for which cuDNN has no engine of a type: our kernels convolve, and the log says so. */
static void test_no_engine(void **state)
{
    (void)state;
    if (access(SWOOP_FAKECUDA "/libcudnn.so.9", R_OK) != 0) skip();
    run_child("SWOOP_LOG=debug FAKECUDA_SM=75", "any");
    assert_int_equal(count_of(said, "cuda: conv 'bf16, conv' on our kernels: "), 1);
    assert_int_equal(count_of(said, "cuda: conv_grad_x 'bf16, conv_grad_x' on our kernels: "), 1);
    assert_int_equal(count_of(said, "cuda: conv_grad_w 'bf16, conv_grad_w' on our kernels: "), 1);
    assert_int_equal(refused(), 1 + 3);
}

/* ---- calls that fail --------------------------------------------------------------------------------------------- */

static void fail_at(const char *function, int n, int code)
{
    void (*set)(const char *) = NULL;
    char spec[128];
    void *const symbol = fake_function("fk_fail_set");
    memcpy(&set, &symbol, sizeof set);
    snprintf(spec, sizeof spec, "%s:%d:%d", function, n, code);
    set(n > 0 ? spec : NULL);
}

static const struct {
    const char *function;
    int code;
    sw_status planned, run;
} failures[] = {
    { "cublasLtMatmul", 13, SW_OK, SW_ERR_DEVICE },
    { "cublasLtMatmulDescCreate", 3, SW_ERR_MEMORY, SW_OK },
    { "cublasLtMatrixLayoutCreate", 3, SW_ERR_MEMORY, SW_OK },
    { "cublasLtMatmulAlgoGetHeuristic", 3, SW_ERR_MEMORY, SW_OK },
    { "cudnnBackendExecute", 5000, SW_OK, SW_ERR_DEVICE },
    { "cudnnBackendCreateDescriptor", 4003, SW_ERR_MEMORY, SW_OK },
    { "cudnnBackendSetAttribute", 4003, SW_ERR_MEMORY, SW_OK },
    { "cudnnBackendFinalize", 4003, SW_ERR_MEMORY, SW_OK },
};

static sw_status plan_and_run(bench *x, bool product, sw_status *run)
{
    const sw__backend *const be = x->device->backend;
    void *const dev = x->device->dev;
    const sw__desc m = { .dtype = SW_F32, .rank = 2, .dim = { 8, 8 }, .stride = { 8, 1 } };
    const sw__desc image_ = { .dtype = SW_F32, .rank = 4, .dim = { 1, 4, 8, 8 }, .stride = { 256, 1, 32, 4 } };
    const sw__desc weight = { .dtype = SW_F32, .rank = 4, .dim = { 4, 4, 3, 3 }, .stride = { 36, 9, 3, 1 } };
    const sw__desc desc[3] = { product ? m : image_, product ? m : weight, product ? m : image_ };
    const conv_case c = { .nd = 2, .groups = 1, .stride = 1, .dilation = 1, .pad_lo = 1, .pad_hi = 1 };
    const tensor none = { 0 };
    const sw__attr conv = conv_attr(&c, SW_OP_CONV, &none);
    sw__attr dot;
    sw__bind bind[4] = { { 0 } };
    void *plan = NULL;
    size_t workspace = 0;
    memset(&dot, 0, sizeof dot);
    const sw__op_desc d = { .op = (uint16_t)(product ? SW_OP_DOT : SW_OP_CONV),
                            .attr = product ? &dot : &conv,
                            .name = "tried",
                            .n_in = 2,
                            .n_out = 1,
                            .in = desc,
                            .out = desc + 2 };
    const sw_status st = be->op_plan(dev, &d, &plan, &workspace);
    *run = SW_OK;
    if (st != SW_OK) return st;
    for (int i = 0; i < 4; i++)
        assert_int_equal(be->alloc(dev, SW_MAX(workspace, (size_t)4096), &bind[i].buffer), SW_OK);
    assert_int_equal(be->build(dev), SW_OK);
    *run = be->op_exec(dev, plan, bind);
    if (*run != SW_OK && strstr(sw_error(), "cublasLt") == NULL && strstr(sw_error(), "cudnnBackend") == NULL)
        problem(x, "what failed is not named: %s", sw_error());
    const sw_status again = be->op_exec(dev, plan, bind);
    if (again != SW_OK) problem(x, "a second try fails: %s", sw_error());
    be->sync(dev);
    for (int i = 0; i < 4; i++) be->release(dev, bind[i].buffer);
    be->op_free(dev, plan);
    return st;
}

/* The library is closed before each try, so that it opens, and finds an engine, anew. */
static void fail_in_turn(bench *x, size_t i)
{
    const bool product = strstr(failures[i].function, "cublas") != NULL;
    for (int n = 1; n <= (failures[i].run != SW_OK ? 1 : 40); n++) {
        sw_status run = SW_OK;
        sw__cu_library_close(bench_cu(x));
        fail_at(failures[i].function, n, failures[i].code);
        const sw_status st = plan_and_run(x, product, &run);
        const bool met = fake_count("fk_calls", failures[i].function) >= n;
        fail_at(failures[i].function, 0, 0);
        if (!met) break;
        if (st != SW_OK && st != failures[i].planned)
            problem(x, "%s, call %d: %s: %s", failures[i].function, n, sw_status_name(st), sw_error());
        if (n > 1) continue;
        if (st != failures[i].planned || run != failures[i].run)
            problem(x, "%s: planned: %s, run: %s", failures[i].function, sw_status_name(st), sw_status_name(run));
    }
}

static void test_failures(void **state)
{
    (void)state;
    bench x = bench_open(false);
    for (size_t i = 0; i < SW_COUNT(failures); i++)
        if (x.has_cudnn || strstr(failures[i].function, "cudnn") == NULL) fail_in_turn(&x, i);
    assert_int_equal(bench_close(&x), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),     cmocka_unit_test(test_products_tf32),
        cmocka_unit_test(test_convolutions), cmocka_unit_test(test_convolutions_tf32),
        cmocka_unit_test(test_slices),       cmocka_unit_test(test_failures),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_absent),       cmocka_unit_test(test_no_engine),
    };
    const struct CMUnitTest on_device[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_products_tf32),
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_convolutions_tf32),
    };
    const char *const device = getenv("SWOOP_TEST_DEVICE"); /* a real GPU: what it computes, not how it fails */
    if (device != NULL && strncmp(device, "cuda", 4) == 0) return cmocka_run_group_tests_name(device, on_device, NULL, NULL);
    under_the_double(argv);
    if (argc == 2) return child(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
