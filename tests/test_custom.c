/* test_custom.c: a user's own kernels (swoop/kernel.h) on every device that is there: by hand, and as ops with
 * gradients beside the same thing in primitives; the check by differences; errors; allocations that fail. */
/* link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free */
/* double: SWOOP_TEST_DEVICE=cuda:0 */
#include "backend/null/null.h"
#include "custom_ops.h"
#include "no_memory.h"

#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#define GOOD(call) do { if ((call) != SW_OK) fail_msg("%s: %s", #call, sw_error()); } while (0)
#define says(text) do { if (!strstr(sw_error(), text)) fail_msg("\"%s\" is not in: %s", text, sw_error()); } while (0)
#define BAD(call, status, text) do { assert_int_equal(call, status); says(text); } while (0)

/* ---- devices ----------------------------------------------------------------------------------------------------- */

#define MAX_DEVICES 4
static sw_device *devices[MAX_DEVICES], *null_device;
static int n_devices;
static sw_op_id add_relu_op, squash_op, pair_op, rows_op, triple_op;

static int open_all(void **state)
{
    (void)state;
    static const char *const ids[] = {"ref", "cpu"};
    setenv("SWOOP_LOG", "error", 1);
    for (size_t i = 0; i < 2; i++)
        if (sw_device_open(ids[i], NULL, &devices[n_devices++]) != SW_OK) return 1;
    if (sw_device_open("null", NULL, &null_device) != SW_OK) return 1;
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    if (sw_device_open(wish ? wish : "opencl:0", NULL, &devices[n_devices]) == SW_OK) n_devices++;
    if (n_devices < 3) printf("no GPU: %s\n", sw_error());
    if (wish && n_devices < 3) return 1;
    return sw_op_register(&add_relu_def, &add_relu_op) != SW_OK || sw_op_register(&squash_def, &squash_op) != SW_OK ||
           sw_op_register(&pair_def, &pair_op) != SW_OK || sw_op_register(&rows_def, &rows_op) != SW_OK ||
           sw_op_register(&triple_def, &triple_op) != SW_OK;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < n_devices; i++) sw_device_close(devices[i]);
    sw_device_close(null_device);
    return 0;
}

static const char *id_of(const sw_device *d)
{
    return sw_device_info(d)->id;
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

static const char sum_text[] =
    "KERNEL(sum)(BUF(a), BUF(b), BUF(c), i64 n, i32 twice, float scale)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i < n) AT(float, c)[i] = scale * (AT(float, a)[i] + (twice ? 2.0f : 1.0f) * AT(float, b)[i]);\n"
    "}\n";

static void sum_host(const sw_host_call *c)
{
    const float *const a = c->arg[0].data, *const b = c->arg[1].data;
    float *const to = c->arg[2].data;
    assert_int_equal(c->n_args, 6);
    for (int64_t i = c->begin; i < c->end && i < c->arg[3].i64; i++)
        to[i] = c->arg[5].f32 * (a[i] + (c->arg[4].i32 ? 2.0f : 1.0f) * b[i]);
}

static const sw_kernel_source sum_source = {.name = "sum", .portable = sum_text, .host = sum_host};

static void by_hand(sw_device *d, int64_t n, size_t shift)
{
    sw_buffer *a = NULL, *b = NULL, *c = NULL;
    sw_kernel *k = NULL;
    const size_t bytes = (size_t)n * sizeof(float);
    float *const host = malloc(3 * bytes + shift);
    for (int64_t i = 0; i < 2 * n; i++) host[i] = (float)(i % 1000) * 0.25f;
    GOOD(sw_buffer_new(d, bytes, &a));
    GOOD(sw_buffer_new(d, bytes + shift, &b));
    GOOD(sw_buffer_new(d, bytes + shift, &c));
    assert_int_equal(sw_buffer_bytes(c), bytes + shift);
    GOOD(sw_buffer_write(a, 0, host, bytes));
    GOOD(sw_buffer_write(b, shift, host + n, bytes));
    GOOD(sw_kernel_new(d, &sum_source, &k));
    const sw_arg args[] = {sw_arg_buffer(a), sw_arg_buffer_at(b, shift), sw_arg_buffer_at(c, shift),
                           sw_arg_i64(n),    sw_arg_i32(1),              sw_arg_f32(0.5f)};
    GOOD(sw_kernel_launch(k, &(sw_launch){.groups = {sw_groups(n, 64)}, .local = {64}, .args = args, .n_args = 6}));
    float *const got = host + 2 * n;
    GOOD(sw_buffer_read(c, 0, got, bytes + shift));
    for (size_t i = 0; i < shift / sizeof(float); i++) assert_true(got[i] == 0.0f); /* zero-filled, and left alone */
    for (int64_t i = 0; i < n; i++)
        if (got[i + (int64_t)(shift / sizeof(float))] != 0.5f * (host[i] + 2.0f * host[n + i]))
            fail_msg("%s: element %lld of %lld", id_of(d), (long long)i, (long long)n);
    sw_kernel_free(k);
    sw_buffer_free(a);
    sw_buffer_free(b);
    sw_buffer_free(c);
    free(host);
}

static void test_by_hand(void **state)
{
    (void)state;
    for (int i = 0; i < n_devices; i++) {
        by_hand(devices[i], 1, 0);
        by_hand(devices[i], 1000, 128);
        by_hand(devices[i], 300001, 0); /* several threads */
    }
    assert_int_equal(sw_groups(0, 64), 0);
    assert_int_equal(sw_groups(65, 64), 2);
    assert_int_equal(sw_groups(INT64_MAX, 1), 0);
    sw_buffer_free(NULL);
    sw_kernel_free(NULL);
}

static void test_by_hand_on_null(void **state)
{
    (void)state;
    sw_buffer *b = NULL;
    sw_kernel *k = NULL;
    const uint64_t before = sw__null_faults();
    GOOD(sw_buffer_new(null_device, 64, &b));
    GOOD(sw_kernel_new(null_device, &sum_source, &k));
    const sw_arg args[] = {sw_arg_buffer_at(b, 64)};
    GOOD(sw_kernel_launch(k, &(sw_launch){.groups = {1}, .local = {1}, .args = args, .n_args = 1}));
    sw_kernel_free(k);
    sw_buffer_free(b);
    assert_int_equal(sw__null_faults(), before);
}

static void test_launches_refused(void **state)
{
    (void)state;
    sw_buffer *b = NULL, *other = NULL;
    sw_kernel *k = NULL;
    sw_arg args[SW_LAUNCH_MAX_ARGS + 1];
    GOOD(sw_buffer_new(devices[1], 16, &b));
    GOOD(sw_buffer_new(devices[0], 16, &other));
    GOOD(sw_kernel_new(devices[1], &sum_source, &k));
    for (int i = 0; i <= SW_LAUNCH_MAX_ARGS; i++) args[i] = sw_arg_buffer(b);
#define LAUNCH(N, ...) sw_kernel_launch(k, &(sw_launch){.args = args, .n_args = (N), __VA_ARGS__})
    BAD(LAUNCH(1, .local = {64}), SW_ERR_ARGUMENT, "0 groups of 64");
    BAD(LAUNCH(1, .groups = {1}), SW_ERR_ARGUMENT, "1 groups of 0");
    BAD(LAUNCH(1, .groups = {1}, .local = {1025}), SW_ERR_ARGUMENT, "of 1025 work-items");
    BAD(LAUNCH(1, .groups = {1}, .local = {64, 64}), SW_ERR_ARGUMENT, "64 x 64 x 1");
    BAD(LAUNCH(1, .groups = {1, 0x80000000u}, .local = {1}), SW_ERR_ARGUMENT, "along axis 1");
    BAD(LAUNCH(1, .groups = {0x7fffffff, 0x7fffffff, 0x7fffffff}, .local = {1}), SW_ERR_ARGUMENT, "64 bits");
    BAD(LAUNCH(SW_LAUNCH_MAX_ARGS + 1, .groups = {1}, .local = {1}), SW_ERR_ARGUMENT, "21 arguments");
    BAD(LAUNCH(-1, .groups = {1}, .local = {1}), SW_ERR_ARGUMENT, "-1 arguments");
    args[0] = sw_arg_buffer(other);
    BAD(LAUNCH(1, .groups = {1}, .local = {1}), SW_ERR_ARGUMENT, "another device");
    args[0] = sw_arg_buffer(NULL);
    BAD(LAUNCH(1, .groups = {1}, .local = {1}), SW_ERR_ARGUMENT, "argument 0 is no buffer");
    args[0] = (sw_arg){.i32 = 1};
    BAD(LAUNCH(1, .groups = {1}, .local = {1}), SW_ERR_ARGUMENT, "of no kind");
    args[0] = sw_arg_buffer_at(b, 17);
    BAD(LAUNCH(1, .groups = {1}, .local = {1}), SW_ERR_ARGUMENT, "byte 17 of a buffer of 16");
    BAD(sw_kernel_launch(NULL, &(sw_launch){.groups = {1}}), SW_ERR_ARGUMENT, "NULL");
    BAD(sw_buffer_write(b, 8, args, 9), SW_ERR_ARGUMENT, "has 16");
    BAD(sw_buffer_read(b, 17, args, 0), SW_ERR_ARGUMENT, "has 16");
    BAD(sw_buffer_read(b, 0, NULL, 1), SW_ERR_ARGUMENT, "host memory is NULL");
    BAD(sw_buffer_new(NULL, 1, &b), SW_ERR_ARGUMENT, "NULL");
    sw_kernel_free(k);
    k = NULL;
    BAD(sw_kernel_new(devices[1], &(sw_kernel_source){.name = "sum", .portable = sum_text}, &k), SW_ERR_UNSUPPORTED,
        "fill host");
    BAD(sw_kernel_new(devices[0], &(sw_kernel_source){.name = "sum", .portable = sum_text}, &k), SW_ERR_UNSUPPORTED,
        "fill host");
    BAD(sw_kernel_new(devices[1], &(sw_kernel_source){.host = sum_host}, &k), SW_ERR_ARGUMENT, "no name");
    assert_null(k);
    sw_buffer_free(b);
    sw_buffer_free(other);
}

static void test_texts_refused(void **state)
{
    (void)state;
    if (n_devices < 3) skip();
    sw_device *const d = devices[2];
    sw_kernel *k = NULL;
    BAD(sw_kernel_new(d, &(sw_kernel_source){.name = "sum", .host = sum_host}, &k), SW_ERR_UNSUPPORTED,
        strncmp(sw_device_info(d)->id, "cuda", 4) == 0 ? "fill portable or cuda" : "fill portable or opencl");
    const sw_kernel_source wrong = {.name = "sum", .portable = "KERNEL(sum)(BUF(a))\n{\n    nonsense;\n}\n"};
    BAD(sw_kernel_new(d, &wrong, &k), SW_ERR_DEVICE, ">   3 |     nonsense;");
    BAD(sw_kernel_new(d, &(sw_kernel_source){.name = "total", .portable = sum_text}, &k), SW_ERR_DEVICE, "total");
    GOOD(sw_kernel_new(d, &sum_source, &k)); /* what was refused before does not stand in the way */
    BAD(sw_kernel_launch(k, &(sw_launch){.groups = {1}, .local = {64}}), SW_ERR_DEVICE, "sum"); /* no arguments */
    sw_kernel_free(k);
}

/* Two axes: the host numbers work-items with axis 0 fastest, as groups and lanes give them. */
static const char plane_text[] =
    "KERNEL(plane)(BUF(a), i64 width)\n"
    "{\n"
    "    const i64 x = ITEM, y = GROUP(1) * LANES(1) + LANE(1);\n"
    "    AT(i32, a)[y * width + x] = (i32)(100 * y + x);\n"
    "}\n";

static void plane_host(const sw_host_call *c)
{
    const int64_t width = c->arg[1].i64;
    int32_t *const a = c->arg[0].data;
    for (int64_t i = c->begin; i < c->end; i++) a[i] = (int32_t)(100 * (i / width) + i % width);
}

static void test_two_axes(void **state)
{
    (void)state;
    static const sw_kernel_source source = {.name = "plane", .portable = plane_text, .host = plane_host};
    for (int i = 0; i < n_devices; i++) {
        sw_buffer *a = NULL;
        sw_kernel *k = NULL;
        int32_t got[12 * 6];
        GOOD(sw_buffer_new(devices[i], sizeof got, &a));
        GOOD(sw_kernel_new(devices[i], &source, &k));
        const sw_arg args[] = {sw_arg_buffer(a), sw_arg_i64(12)};
        GOOD(sw_kernel_launch(k, &(sw_launch){.groups = {3, 2}, .local = {4, 3}, .args = args, .n_args = 2}));
        GOOD(sw_buffer_read(a, 0, got, sizeof got));
        for (int e = 0; e < 12 * 6; e++) assert_int_equal(got[e], 100 * (e / 12) + e % 12);
        sw_kernel_free(k);
        sw_buffer_free(a);
    }
}

/* ---- as ops ------------------------------------------------------------------------------------------------------ */

/* What the ops are in primitives. */
static void plain_add_relu(const sw_t *x, sw_t *y) { y[0] = sw_relu(sw_add(x[0], x[1])); }
static void plain_squash(const sw_t *x, sw_t *y) { y[0] = sw_div(x[0], sw_add_scalar(sw_abs(x[0]), 1.0)); }
static void plain_pair(const sw_t *x, sw_t *y)
{
    y[0] = sw_mul(x[0], x[1]);
    y[1] = sw_add(x[0], sw_mul_scalar(x[1], 2.0));
}
static void plain_rows(const sw_t *x, sw_t *y)
{
    const int64_t n = sw_dim(x[0], 0), column[] = {n, 1}, flat[] = {n};
    const sw_t own = sw_reshape(sw_gather(x[0], sw_reshape(x[2], 2, column), 1), 1, flat);
    y[0] = sw_add(sw_sum(sw_mul(x[0], x[1]), SW_AXIS(1), false), sw_mul(sw_stop_gradient(x[3]), own));
}

typedef struct op_case {
    const sw_op_def *def;
    void (*plain)(const sw_t *x, sw_t *y);
    sw_shape in[4];
} op_case;

static const op_case cases[] = {
    {&add_relu_def, plain_add_relu, {{SW_F32, 2, {5, 7}}, {SW_F32, 2, {5, 7}}}},
    {&add_relu_def, plain_add_relu, {{SW_F32, 3, {40, 30, 50}}, {SW_F32, 3, {40, 30, 50}}}},
    {&squash_def, plain_squash, {{SW_F32, 1, {257}}}},
    {&squash_def, plain_squash, {{SW_F32, 0, {0}}}},
    {&squash_def, plain_squash, {{SW_F32, 2, {0, 3}}}},
    {&pair_def, plain_pair, {{SW_F32, 2, {6, 9}}, {SW_F32, 2, {6, 9}}}},
    {&rows_def, plain_rows, {{SW_F32, 2, {9, 50}}, {SW_F32, 1, {50}}, {SW_I32, 1, {9}}, {SW_F32, 1, {9}}}},
};

#define MAX_VALUES 70000
static float values[2][6][MAX_VALUES]; /* by side: own op, primitives; outputs, then gradients */

/* y's are outputs 0, 1; gradients of sum (k + 2) sin(y_k) with respect to the f32 inputs come after them. */
static int record(sw_graph *g, const op_case *c, bool own)
{
    sw_t x[4], y[2] = {SW_NONE, SW_NONE}, wrt[4], dx[4], loss = SW_NONE;
    char name[16];
    int n_wrt = 0;
    for (int i = 0; i < c->def->n_in; i++) {
        snprintf(name, sizeof name, "x%d", i);
        x[i] = sw_input(g, name, c->in[i].type, c->in[i].rank, c->in[i].dim);
        if (c->in[i].type == SW_F32) wrt[n_wrt++] = x[i];
    }
    if (own) {
        y[0] = sw_op_apply(sw_op_find(c->def->name), x, c->def->n_in);
        if (c->def->n_out > 1) y[1] = sw_op_output(y[0], 1);
    } else {
        c->plain(x, y);
    }
    for (int k = 0; k < c->def->n_out; k++) {
        const sw_t part = sw_sum(sw_mul_scalar(sw_sin(y[k]), k + 2.0), SW_ALL_AXES, false);
        loss = k ? sw_add(loss, part) : part;
        snprintf(name, sizeof name, "v%d", k);
        sw_output(y[k], name);
    }
    GOOD(sw_grad(loss, wrt, n_wrt, dx));
    for (int i = 0; i < n_wrt; i++) {
        snprintf(name, sizeof name, "v%d", c->def->n_out + i);
        sw_output(dx[i], name);
    }
    GOOD(sw_graph_status(g));
    return c->def->n_out + n_wrt;
}

static void set_inputs(sw_program *p, const op_case *c)
{
    for (int i = 0; i < c->def->n_in; i++) {
        static float v[MAX_VALUES];
        char name[16];
        int64_t n = 1;
        for (int k = 0; k < c->in[i].rank; k++) n *= c->in[i].dim[k];
        for (int64_t e = 0; e < n; e++)
            v[e] = c->in[i].type == SW_F32 ? (float)((e * 37 + i * 11) % 101) * 0.04f - 2.0f : (float)(e % 5);
        snprintf(name, sizeof name, "x%d", i);
        GOOD(sw_program_set(p, sw_program_input(p, name), SW_F32, v, n));
    }
}

static int run_case(sw_device *d, const op_case *c, bool own, const sw_compile_options *o)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    GOOD(sw_graph_new(&g));
    const int n = record(g, c, own);
    GOOD(sw_compile(g, d, o, &p));
    set_inputs(p, c);
    GOOD(sw_program_run(p));
    for (int k = 0; k < n; k++) {
        char name[16];
        sw_var_info info;
        snprintf(name, sizeof name, "v%d", k);
        const int at = sw_program_output(p, name);
        GOOD(sw_program_output_info(p, at, &info));
        memset(values[own][k], 0, sizeof values[own][k]);
        GOOD(sw_program_get(p, at, SW_F32, values[own][k], info.elements));
    }
    sw_program_free(p);
    sw_graph_free(g);
    return n;
}

static void compare(const sw_device *d, const op_case *c, int n)
{
    for (int k = 0; k < n; k++)
        for (int e = 0; e < MAX_VALUES; e++) {
            const double have = (double)values[1][k][e], want = (double)values[0][k][e];
            if (!(fabs(have - want) <= 3e-6 * (1 + fabs(want)) * (c->def == &rows_def ? 10 : 1)))
                fail_msg("%s on %s: value %d[%d] is %.8g, by primitives %.8g", c->def->name, id_of(d), k, e, have,
                         want);
        }
}

static void test_ops(void **state)
{
    (void)state;
    static const sw_compile_options plain = {0}, raw = {.no_simplify = true, .no_fuse = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_case(devices[0], &cases[i], false, &plain);
        for (int d = 0; d < n_devices; d++) {
            compare(devices[d], &cases[i], run_case(devices[d], &cases[i], true, &plain));
            compare(devices[d], &cases[i], run_case(devices[d], &cases[i], true, &raw));
        }
        const uint64_t before = sw__null_faults();
        run_case(null_device, &cases[i], true, &plain);
        assert_int_equal(sw__null_faults(), before);
    }
}

/* A view is made dense for an own op; its results may be parts of a concat. */
static void test_views(void **state)
{
    (void)state;
    for (int d = 0; d < n_devices; d++) {
        sw_graph *g = NULL;
        float got[2 * 12];
        const int64_t shape[] = {3, 4};
        GOOD(sw_graph_new(&g));
        const sw_t x = sw_transpose(sw_iota(g, SW_F32, 2, shape, 1), 0, 1), in[] = {x, x};
        const sw_t y = sw_op_apply(pair_op, in, 2), both[] = {y, sw_op_output(y, 1)};
        GOOD(sw_eval(sw_concat(both, 2, 0), devices[d], SW_F32, got, 24));
        for (int e = 0; e < 12; e++) {
            const int row = e / 3;
            const float v = (float)row;
            assert_true(got[e] == v * v && got[12 + e] == 3.0f * v);
        }
        sw_graph_free(g);
    }
}

/* Printing names the op; equal applications are one node; the profile says which function runs. */
static void test_in_a_graph(void **state)
{
    (void)state;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    char *text = NULL;
    const int64_t shape[] = {8};
    GOOD(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 1, shape);
    sw_scope_push(g, "layer");
    const sw_t a = sw_op_apply(squash_op, &x, 1), b = sw_op_apply(squash_op, &x, 1);
    sw_scope_pop(g);
    sw_output(sw_mul(a, b), "y");
    GOOD(sw_graph_print(g, SW_PRINT_TEXT, &text));
    if (!strstr(text, "f32[8] custom(%1) op=squash 'layer.squash'")) fail_msg("%s", text);
    sw_string_free(text);
    GOOD(sw_compile(g, devices[1], &(sw_compile_options){.profile = true}, &p));
    assert_int_equal(sw_program_plan(p)->ops, 1);
    GOOD(sw_program_run(p));
    GOOD(sw_program_profile(p, SW_PROFILE_TABLE, &text));
    if (!strstr(text, "layer.squash") || !strstr(text, "host:squash")) fail_msg("%s", text);
    sw_string_free(text);
    sw_program_free(p);
    sw_graph_free(g);
}

/* ---- the check --------------------------------------------------------------------------------------------------- */

static void test_check(void **state)
{
    (void)state;
    static const sw_shape large[6] = {{SW_F32, 2, {100, 30}}, {SW_F32, 2, {100, 30}}};
    for (int d = 0; d < n_devices; d++) {
        GOOD(sw_op_check(add_relu_op, devices[d], NULL));
        GOOD(sw_op_check(add_relu_op, devices[d], large));
        GOOD(sw_op_check(squash_op, devices[d], NULL));
        GOOD(sw_op_check(pair_op, devices[d], NULL));
        GOOD(sw_op_check(rows_op, devices[d], NULL));
        BAD(sw_op_check(triple_op, devices[d], NULL), SW_ERR_DATA, "op 'triple'");
        says(id_of(devices[d]));
        says("gradient of input 0 is wrong at element 7");
    }
    BAD(sw_op_check(squash_op, null_device, NULL), SW_ERR_UNSUPPORTED, "computes nothing");
    BAD(sw_op_check(99, devices[1], NULL), SW_ERR_ARGUMENT, "no op with id 99");
    BAD(sw_op_check(squash_op, NULL, NULL), SW_ERR_ARGUMENT, "NULL");
    BAD(sw_op_check(rows_op, devices[1], large), SW_ERR_SHAPE, "x is [R, C] and w [C]");
    BAD(sw_op_check(squash_op, devices[1], &(sw_shape){SW_F32, 1, {0}}), SW_ERR_DATA, "no elements");
}

/* Smooth nowhere: there is nothing to compare with. */
static void step(const sw_host_call *c)
{
    for (int64_t i = c->begin; i < c->end; i++)
        ((float *)c->arg[1].data)[i] = sinf(1e6f * ((const float *)c->arg[0].data)[i]);
}

static void test_check_at_once(void **state)
{
    (void)state;
    sw_op_def def = triple_def;
    sw_op_id id = 0;
    setenv("SWOOP_CHECK", "1", 1);
    def.name = "triple_checked";
    BAD(sw_op_register(&def, &id), SW_ERR_DATA, "'triple_checked' on cpu: the gradient of input 0 is wrong at");
    assert_int_equal(id, 0);
    assert_int_equal(sw_op_find("triple_checked"), 0);
    def.backward.host = NULL; /* cannot be checked: is taken, with a warning in the log */
    GOOD(sw_op_register(&def, &id));
    def = squash_def;
    def.name = "squash_checked";
    GOOD(sw_op_register(&def, &id));
    def.name = "rough";
    def.n_saved = 0;
    def.forward.host = step;
    def.backward.host = triple_grad;
    BAD(sw_op_register(&def, &id), SW_ERR_DATA, "smooth at none");
    unsetenv("SWOOP_CHECK");
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static const char *no_shape(const sw_shape *in, int n_in, sw_shape *out, int n_out)
{
    (void)in, (void)n_in, (void)n_out;
    out[0].rank = 9;
    return NULL;
}

static void test_definitions_refused(void **state)
{
    (void)state;
    sw_op_id id = 0;
    sw_op_def def;
#define DEF(STATUS, TEXT, ...)                                                                                         \
    do {                                                                                                               \
        def = squash_def;                                                                                              \
        def.name = "refused";                                                                                          \
        __VA_ARGS__;                                                                                                   \
        BAD(sw_op_register(&def, &id), STATUS, TEXT);                                                                  \
    } while (0)
    DEF(SW_ERR_ARGUMENT, "registered already", def.name = "squash");
    DEF(SW_ERR_ARGUMENT, "name is letters", def.name = NULL);
    DEF(SW_ERR_ARGUMENT, "not 'a-b'", def.name = "a-b");
    DEF(SW_ERR_ARGUMENT, "not '2a'", def.name = "2a");
    DEF(SW_ERR_ARGUMENT, "not ''", def.name = "");
    DEF(SW_ERR_ARGUMENT, "n_in is 0", def.n_in = 0);
    DEF(SW_ERR_ARGUMENT, "n_in is 7: there can be 1 to 6", def.n_in = 7);
    DEF(SW_ERR_ARGUMENT, "n_out is 0", def.n_out = 0);
    DEF(SW_ERR_ARGUMENT, "n_saved 6", def.n_saved = 6);
    DEF(SW_ERR_ARGUMENT, "n_saved -1", def.n_saved = -1);
    DEF(SW_ERR_ARGUMENT, "shape is NULL", def.shape = NULL);
    DEF(SW_ERR_ARGUMENT, "forward is empty", memset(&def.forward, 0, sizeof def.forward));
    DEF(SW_ERR_ARGUMENT, "saves 1 tensors", memset(&def.backward, 0, sizeof def.backward));
    DEF(SW_ERR_UNSUPPORTED, "in_type[0] is f64", def.in_type[0] = SW_F64);
    DEF(SW_ERR_UNSUPPORTED, "out_type[1] is bf16", def.out_type[1] = SW_BF16);
    DEF(SW_ERR_ARGUMENT, "output 0 is i32", def.out_type[0] = SW_I32);
    DEF(SW_ERR_ARGUMENT, "no f32 input that is not fixed", def.fixed = 1);
    DEF(SW_ERR_ARGUMENT, "1,024", def.forward_local = 2000);
    BAD(sw_op_register(NULL, &id), SW_ERR_ARGUMENT, "NULL");
    BAD(sw_op_register(&squash_def, NULL), SW_ERR_ARGUMENT, "NULL");
    assert_int_equal(id, 0);
    assert_int_equal(sw_op_find("refused"), 0);
    assert_int_equal(sw_op_find(NULL), 0);
    assert_int_equal(sw_op_find("pair"), pair_op);
}

/* One op applied in a graph of its own; the graph's status and message are what is looked at. */
static sw_status apply(sw_op_id op, const sw_shape *in, int n, int output)
{
    sw_graph *g = NULL;
    sw_t x[8];
    GOOD(sw_graph_new(&g));
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        x[i] = sw_input(g, name, in[i].type, in[i].rank, in[i].dim);
    }
    sw_op_output(sw_op_apply(op, x, n), output);
    const sw_status st = sw_graph_status(g);
    sw_graph_free(g);
    return st;
}

static void test_applications_refused(void **state)
{
    (void)state;
    static const sw_shape f[8] = {{SW_F32, 1, {4}}, {SW_F32, 1, {4}}, {SW_F32, 1, {5}}, {SW_I32, 1, {4}}};
    sw_op_def def = squash_def;
    sw_op_id id = 0;
    BAD(apply(77, f, 1, 0), SW_ERR_ARGUMENT, "no op with id 77");
    BAD(apply(0, f, 1, 0), SW_ERR_ARGUMENT, "no op with id 0");
    BAD(apply(pair_op, f, 1, 0), SW_ERR_ARGUMENT, "'pair' takes 2 inputs, not 1");
    BAD(apply(pair_op, f, 8, 0), SW_ERR_ARGUMENT, "'pair' takes 2 inputs, not 8");
    BAD(apply(pair_op, f + 1, 2, 0), SW_ERR_SHAPE, "'pair': all inputs must have one shape");
    says("(the inputs are f32[4], f32[5])");
    BAD(apply(squash_op, f + 3, 1, 0), SW_ERR_SHAPE, "must be f32");
    BAD(apply(pair_op, f, 2, 2), SW_ERR_ARGUMENT, "no output 2");
    BAD(apply(squash_op, f, 1, 1), SW_ERR_ARGUMENT, "no output 1"); /* what is saved is backward's */
    BAD(apply(pair_op, f, 2, -1), SW_ERR_ARGUMENT, "no output -1");
    def.name = "shapeless";
    def.shape = no_shape;
    GOOD(sw_op_register(&def, &id));
    BAD(apply(id, f, 1, 0), SW_ERR_SHAPE, "rank outside 0 to 8");
    assert_false(sw_valid(sw_op_apply(squash_op, NULL, 0)));
    says("no input is a value");
}

static void many_items(const sw_shape *in, const sw_shape *out, sw_op_grid *g)
{
    (void)in, (void)out;
    g->items = -5;
}

/* Forward only: sw_grad refuses; and what a device misses is told when compiling. */
static void test_gradients_refused(void **state)
{
    (void)state;
    sw_op_def def = {.name = "forward_only", .n_in = 1, .n_out = 1, .shape = sw_same_shape};
    sw_op_id id = 0;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    sw_t d, dd;
    const int64_t shape[] = {4};
    def.forward.host = triple;
    GOOD(sw_op_register(&def, &id));
    GOOD(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 1, shape);
    BAD(sw_grad(sw_sum(sw_op_apply(id, &x, 1), 1, false), &x, 1, &d), SW_ERR_UNSUPPORTED,
        "op 'forward_only' (%2) has no gradient");
    sw_graph_free(g);
    BAD(sw_op_check(id, devices[1], NULL), SW_ERR_ARGUMENT, "no backward");

    GOOD(sw_graph_new(&g));
    const sw_t y = sw_input(g, "y", SW_F32, 1, shape);
    GOOD(sw_grad(sw_sum(sw_op_apply(squash_op, &y, 1), 1, false), &y, 1, &d));
    BAD(sw_grad(sw_sum(d, 1, false), &y, 1, &dd), SW_ERR_UNSUPPORTED, "differentiated once");
    sw_graph_free(g);

    def = squash_def;
    def.name = "no_host";
    def.forward.host = NULL;
    def.forward_grid = many_items;
    GOOD(sw_op_register(&def, &id));
    GOOD(sw_graph_new(&g));
    const sw_t z = sw_input(g, "z", SW_F32, 1, shape);
    sw_output(sw_op_apply(id, &z, 1), "out");
    for (int i = 0; i < 2; i++) BAD(sw_compile(g, devices[i], NULL, &p), SW_ERR_UNSUPPORTED, "fill forward.host");
    if (n_devices > 2) BAD(sw_compile(g, devices[2], NULL, &p), SW_ERR_ARGUMENT, "-5 work-items");
    sw_graph_free(g);
}

/* ---- out of memory ----------------------------------------------------------------------------------------------- */

static sw_status whole_life(const sw_op_def *def, sw_op_id *id)
{
    sw_buffer *b = NULL;
    sw_kernel *k = NULL;
    sw_status st = *id ? SW_OK : sw_op_register(def, id);
    if (st == SW_OK) st = sw_op_check(*id, devices[1], NULL);
    if (st == SW_OK) st = sw_op_check(*id, devices[0], NULL);
    if (st == SW_OK) st = sw_buffer_new(devices[1], 64, &b);
    if (st == SW_OK) st = sw_kernel_new(devices[1], &sum_source, &k);
    sw_kernel_free(k);
    sw_buffer_free(b);
    return st;
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    sw_op_def def = pair_def;
    sw_op_id id = 0, warm = 0;
    def.name = "pair_warm";
    GOOD(whole_life(&def, &warm)); /* what libraries keep for themselves is allocated now */
    def.name = "pair_again";
    sw_status st = SW_ERR_MEMORY;
    long n = 0;
    for (; st != SW_OK && n < 5000; n++) {
        const sw_op_id before_id = id;
        const long before = live;
        allocations_left = n;
        st = whole_life(&def, &id);
        allocations_left = -1;
        if (st != SW_OK) {
            assert_int_equal(st, SW_ERR_MEMORY);
            says("out of memory");
        }
        if (id == before_id) assert_int_equal(live, before); /* else the op is what stays */
    }
    assert_int_equal(st, SW_OK);
    printf("%ld allocations failed in turn\n", n - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_by_hand_on_null), cmocka_unit_test(test_launches_refused),
        cmocka_unit_test(test_texts_refused), cmocka_unit_test(test_two_axes), cmocka_unit_test(test_ops),
        cmocka_unit_test(test_views), cmocka_unit_test(test_in_a_graph), cmocka_unit_test(test_check),
        cmocka_unit_test(test_check_at_once), cmocka_unit_test(test_definitions_refused),
        cmocka_unit_test(test_applications_refused), cmocka_unit_test(test_gradients_refused),
        cmocka_unit_test(test_every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
