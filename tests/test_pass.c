/* test_pass.c: the passes from graph to graph, by what they print: simplify, lower, epilogue, layout. */
#include "pass/fold.h"
#include "pass/pass.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define DIMS(...) (const int64_t[]){__VA_ARGS__}
#define SHAPE(...) (int)(sizeof(DIMS(__VA_ARGS__)) / sizeof(int64_t)), DIMS(__VA_ARGS__)

static sw_graph *new_graph(void)
{
    sw_graph *g = NULL;
    assert_int_equal(sw_graph_new(&g), SW_OK);
    return g;
}

static char *printed(sw_graph *g)
{
    char *text = NULL;
    if (sw_graph_print(g, SW_PRINT_TEXT, &text) != SW_OK) fail_msg("%s", sw_error());
    sw_graph_free(g);
    return text;
}

static void same_text(char *got, const char *want)
{
    if (getenv("SWOOP_TEST_PRINT")) printf("%s\n", got);
    else assert_string_equal(got, want);
    sw_string_free(got);
}

/* ---- simplify ---------------------------------------------------------------------------------------------------- */

static sw_t in(sw_graph *g, const char *name) { return sw_input(g, name, SW_F32, SHAPE(3, 4)); }

/* What is left of an expression of x (f32[3,4]) and i (i64[4]), beside the inputs. */
static void simplifies(sw_graph *g, sw_t y, const char *want)
{
    sw_graph *out = NULL;
    sw_output(y, "y");
    if (sw_graph_status(g) != SW_OK || sw__pass_simplify(g, &out) != SW_OK) fail_msg("%s", sw_error());
    same_text(printed(out), want);
    sw_graph_free(g);
}

#define SIMPLIFIES(expression, want)                                                                                   \
    do {                                                                                                               \
        sw_graph *const g = new_graph();                                                                               \
        const sw_t x = in(g, "x");                                                                                     \
        (void)x;                                                                                                       \
        simplifies(g, expression, want);                                                                               \
    } while (0)

#define X "%1 f32[3,4] input() slot=0 'x'\n"
#define ONLY_X X "output 'y' %1\n"

static void test_identities(void **state)
{
    (void)state;
    SIMPLIFIES(sw_mul_scalar(x, 1), ONLY_X);
    SIMPLIFIES(sw_sub(x, sw_const(g, SW_F32, 0)), ONLY_X);
    SIMPLIFIES(sw_add(x, sw_const(g, SW_F32, -0.0)), ONLY_X);
    SIMPLIFIES(sw_div(x, sw_const(g, SW_F32, 1)), ONLY_X);
    SIMPLIFIES(sw_neg(sw_neg(x)), ONLY_X);
    SIMPLIFIES(sw_pow(x, sw_const(g, SW_F32, 1)), ONLY_X);
    SIMPLIFIES(sw_where(sw_lt(sw_const(g, SW_F32, 1), sw_const(g, SW_F32, 2)), x, sw_exp(x)), ONLY_X);
    SIMPLIFIES(sw_where(sw_lt(x, sw_exp(x)), x, x), ONLY_X);
    SIMPLIFIES(sw_cast(sw_cast(x, SW_F64), SW_F32), ONLY_X);
    SIMPLIFIES(sw_stop_gradient(x), ONLY_X);
    SIMPLIFIES(sw_reshape(sw_reshape(x, SHAPE(12)), SHAPE(3, 4)), ONLY_X);
    SIMPLIFIES(sw_transpose(sw_transpose(x, 0, 1), 0, 1), ONLY_X);
    SIMPLIFIES(sw_expand(x, SHAPE(3, 4)), ONLY_X);
    SIMPLIFIES(sw_slice(x, DIMS(0, 0), DIMS(3, 4), NULL), ONLY_X);
    SIMPLIFIES(sw_pad(x, DIMS(0, 0), DIMS(0, 0), NULL, 1), ONLY_X);
    SIMPLIFIES(sw_concat(&x, 1, 0), ONLY_X);
    SIMPLIFIES(sw_sum(sw_reshape(x, SHAPE(3, 1, 4)), SW_AXIS(1), false), ONLY_X);
    SIMPLIFIES(sw_not(sw_not(sw_lt(x, sw_exp(x)))), X "%2 f32[3,4] exp(%1)\n%3 bool[3,4] lt(%1, %2)\noutput 'y' %3\n");
}

/* What would change a bit stays. */
static void test_not_exact(void **state)
{
    (void)state;
    SIMPLIFIES(sw_add(x, sw_const(g, SW_F32, 0)),
               X "%2 f32[3,4] const() value=0\n%3 f32[3,4] add(%1, %2)\noutput 'y' %3\n"); /* -0 + 0 = 0 */
    SIMPLIFIES(sw_mul_scalar(x, 0), /* NaN */
               X "%2 f32[3,4] const() value=0\n%3 f32[3,4] mul(%1, %2)\noutput 'y' %3\n");
    SIMPLIFIES(sw_sub(x, x), X "%2 f32[3,4] sub(%1, %1)\noutput 'y' %2\n");
    SIMPLIFIES(sw_div(x, sw_const(g, SW_F32, 3)),
               X "%2 f32[3,4] const() value=3\n%3 f32[3,4] div(%1, %2)\noutput 'y' %3\n");
    SIMPLIFIES(sw_cast(sw_cast(x, SW_F16), SW_F32), X "%2 f16[3,4] cast(%1)\n%3 f32[3,4] cast(%2)\noutput 'y' %3\n");
}

static void test_rewrites(void **state)
{
    (void)state;
    SIMPLIFIES(sw_pow(x, sw_const(g, SW_F32, 2)), X "%2 f32[3,4] mul(%1, %1)\noutput 'y' %2\n");
    SIMPLIFIES(sw_div(x, sw_const(g, SW_F32, 8)),
               X "%2 f32[3,4] const() value=0.125\n%3 f32[3,4] mul(%1, %2)\noutput 'y' %3\n");
    SIMPLIFIES(sw_add(x, sw_neg(sw_exp(x))), X "%2 f32[3,4] exp(%1)\n%3 f32[3,4] sub(%1, %2)\noutput 'y' %3\n");
    SIMPLIFIES(sw_mul_scalar(x, -1), X "%2 f32[3,4] neg(%1)\noutput 'y' %2\n");
    SIMPLIFIES(sw_sum(sw_expand(sw_sum(x, SW_AXIS(0), true), SHAPE(5, 4)), SW_AXIS(0), true),
               X "%2 f32[1,4] reduce_sum(%1) axes=0\n%3 f32[1,4] const() value=5\n%4 f32[1,4] mul(%2, %3)\n"
                 "output 'y' %4\n");
    SIMPLIFIES(sw_sum(sw_sum(x, SW_AXIS(0), true), SW_AXIS(1), true),
               X "%2 f32[1,1] reduce_sum(%1) axes=0,1\noutput 'y' %2\n");
    SIMPLIFIES(sw_exp(sw_expand(sw_reshape(sw_sum(x, SW_AXIS(1), true), SHAPE(3, 1)), SHAPE(3, 7))),
               X "%2 f32[3,1] reduce_sum(%1) axes=1\n%3 f32[3,1] exp(%2)\n%4 f32[3,7] expand(%3)\noutput 'y' %4\n");
    SIMPLIFIES(sw_slice(sw_slice(x, DIMS(0, 1), DIMS(3, 4), DIMS(2, 1)), DIMS(1, 0), DIMS(2, 3), DIMS(1, 2)),
               X "%2 f32[1,2] slice(%1) start=2,1 stop=3,4 step=2,2\noutput 'y' %2\n");
    SIMPLIFIES(sw_permute(sw_reshape(x, SHAPE(3, 1, 4)), (const int[]){1, 0, 2}),
               X "%2 f32[1,3,4] reshape(%1)\noutput 'y' %2\n");
}

static void test_folding(void **state)
{
    (void)state;
    SIMPLIFIES(sw_add(x, sw_mul(sw_const(g, SW_F32, 0.1), sw_const(g, SW_F32, 3))), /* rounded to f32 each time */
               X "%2 f32[3,4] const() value=0.300000012\n%3 f32[3,4] add(%1, %2)\noutput 'y' %3\n");
    SIMPLIFIES(sw_cast(sw_add(sw_cast(sw_const(g, SW_F32, 300.7), SW_U8), sw_const(g, SW_U8, 3)), SW_I32),
               "%1 i32[] const() value=2\n%2 f32[3,4] input() slot=0 'x'\noutput 'y' %1\n"); /* saturates, then wraps */
    SIMPLIFIES(sw_max(sw_const(g, SW_F32, 1), sw_const(g, SW_F32, NAN)),
               "%1 f32[] const() value=nan\n%2 f32[3,4] input() slot=0 'x'\noutput 'y' %1\n");
    SIMPLIFIES(sw_mod(sw_const(g, SW_I32, -7), sw_const(g, SW_I32, 3)),
               "%1 i32[] const() value=2\n%2 f32[3,4] input() slot=0 'x'\noutput 'y' %1\n");
}

static void test_shared(void **state)
{
    (void)state;
    SIMPLIFIES(sw_mul(sw_exp(sw_add_scalar(x, 1)), sw_exp(sw_add(sw_const(g, SW_F32, 1), x))), /* a+b = b+a */
               X "%2 f32[3,4] const() value=1\n%3 f32[3,4] add(%1, %2)\n%4 f32[3,4] exp(%3)\n%5 f32[3,4] mul(%4, %4)\n"
                 "output 'y' %5\n");
    SIMPLIFIES((sw_exp(sw_sin(x)), sw_log(x)), X "%2 f32[3,4] log(%1)\noutput 'y' %2\n"); /* dead code */
}

static void test_numbers(void **state)
{
    const sw__number big[2] = {{0, INT64_MIN}, {0, -1}}, zero[2] = {{0, 5}, {0, 0}}, half[2] = {{-5.5, 0}, {2, 0}};
    sw__number y;
    (void)state;
    assert_true(sw__fold(SW_OP_DIV, SW_I64, SW_I64, big, &y) && y.ivalue == INT64_MIN);
    assert_true(sw__fold(SW_OP_MOD, SW_I64, SW_I64, big, &y) && y.ivalue == 0);
    assert_true(sw__fold(SW_OP_DIV, SW_I32, SW_I32, zero, &y) && y.ivalue == 0);
    assert_true(sw__fold(SW_OP_MOD, SW_I32, SW_I32, zero, &y) && y.ivalue == 0);
    assert_true(sw__fold(SW_OP_MOD, SW_F32, SW_F32, half, &y) && y.value == 0.5);
    assert_false(sw__fold(SW_OP_SHL, SW_I32, SW_I32, (sw__number[]){{0, 1}, {0, 40}}, &y));
}

/* ---- lower ------------------------------------------------------------------------------------------------------- */

static void test_lower(void **state)
{
    sw_graph *g = new_graph(), *out = NULL;
    sw__traits t = {.fuse = true, .views = true};
    (void)state;
    const sw_t a = in(g, "a");
    sw_output(sw_matmul(a, sw_input(g, "b", SW_F32, SHAPE(4, 2))), "dot");
    sw_output(sw_named(sw_softmax(in(g, "x"), 1), "soft"), "softmax");
    t.takes[SW_OP_DOT] = true;
    assert_int_equal(sw__pass_lower(g, &t, &out), SW_OK);
    same_text(printed(out), "%1 f32[3,4] input() slot=0 'a'\n%2 f32[4,2] input() slot=1 'b'\n%3 f32[3,2] dot(%1, %2)\n"
                            "%4 f32[3,4] input() slot=2 'x'\n%5 f32[3,1] reduce_max(%4) axes=1 'soft'\n"
                            "%6 f32[3,1] stop_gradient(%5) 'soft'\n%7 f32[3,4] expand(%6) 'soft'\n"
                            "%8 f32[3,4] sub(%4, %7) 'soft'\n%9 f32[3,4] exp(%8) 'soft'\n"
                            "%10 f32[3,1] reduce_sum(%9) axes=1 'soft'\n%11 f32[3,4] expand(%10) 'soft'\n"
                            "%12 f32[3,4] div(%9, %11) 'soft'\noutput 'dot' %3\noutput 'softmax' %12\n");
    /* a device without dot but with matmul gets matmul; one that takes softmax keeps it */
    t.takes[SW_OP_DOT] = false;
    t.takes[SW_OP_MATMUL] = t.takes[SW_OP_SOFTMAX] = true;
    out = NULL;
    const sw_t c = in(g, "c");
    sw_output(sw_dot(c, sw_input(g, "d", SW_F32, SHAPE(4, 5))), "dot2");
    assert_int_equal(sw__pass_lower(g, &t, &out), SW_OK);
    char *text = printed(out);
    assert_null(strstr(text, " dot("));
    assert_non_null(strstr(text, "matmul(%6, %7)"));
    assert_non_null(strstr(text, "softmax(%4)"));
    sw_string_free(text);
    sw_graph_free(g);
}

/* ---- epilogue ---------------------------------------------------------------------------------------------------- */

static void test_epilogue(void **state)
{
    sw__traits t = {.fuse = true, .views = true};
    (void)state;
    t.takes[SW_OP_MATMUL] = t.bias_act[SW_OP_MATMUL] = t.takes[SW_OP_CONV] = t.bias_act[SW_OP_CONV] = true;
    for (int shared = 0; shared < 2; shared++) {
        sw_graph *g = new_graph(), *out = NULL;
        const sw_t x = in(g, "x"), y = sw_matmul(x, sw_input(g, "w", SW_F32, SHAPE(4, 5)));
        const sw_t z = sw_add(y, sw_input(g, "b", SW_F32, SHAPE(5)));
        sw_output(sw_relu(z), "y");
        if (shared) sw_output(z, "z");
        assert_int_equal(sw__pass_epilogue(g, &t, &out), SW_OK);
        char *text = printed(out);
        assert_non_null(strstr(text, shared ? "matmul(%1, %2, %4)\n" : "matmul(%1, %2, %4) act=relu\n"));
        assert_int_equal(strstr(text, "output 'y'") != NULL, 1);
        sw_string_free(text);
        sw_graph_free(g);
    }
    sw_graph *g = new_graph(), *out = NULL;
    const sw_conv_options o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
    const sw_t x = sw_input(g, "x", SW_F32, SHAPE(2, 3, 8, 8)), w = sw_input(g, "w", SW_F32, SHAPE(4, 3, 3, 3));
    const sw_t vector = sw_input(g, "b", SW_F32, SHAPE(4)), b = sw_reshape(vector, SHAPE(1, 4, 1, 1));
    sw_output(sw_relu(sw_add(sw_conv_op(x, w, SW_NONE, &o), b)), "y");
    assert_int_equal(sw__pass_epilogue(g, &t, &out), SW_OK);
    char *text = printed(out);
    assert_non_null(strstr(text, "conv(%1, %2, %3)"));
    assert_non_null(strstr(text, "act=relu"));
    sw_string_free(text);
    sw_graph_free(g);
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

static const char *order_of(const sw_graph *g, uint32_t op, int skip)
{
    static char text[SW_MAX_RANK + 1];
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const sw__node *n = &g->nodes[i];
        if (n->op != op || skip-- > 0) continue;
        for (int x = 0; x < n->rank; x++) text[x] = (char)('0' + n->order[x]);
        text[n->rank] = 0;
        return text;
    }
    return "none";
}

static void test_layout(void **state)
{
    sw_graph *g = new_graph(), *out = NULL;
    sw__traits t = {.fuse = true, .views = true};
    (void)state;
    t.takes[SW_OP_CONV] = t.channels_last[SW_OP_CONV] = true;
    const sw_conv_options o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
    const sw_t x = sw_input(g, "x", SW_F32, SHAPE(2, 3, 8, 8)), w = sw_input(g, "w", SW_F32, SHAPE(4, 3, 3, 3));
    const sw_t y = sw_conv_op(sw_exp(x), w, SW_NONE, &o);
    const sw_t mean = sw_mean(y, SW_AXIS(0) | SW_AXIS(2) | SW_AXIS(3), true);
    const sw_t z = sw_mul(sw_sub(y, mean), sw_input(g, "s", SW_F32, SHAPE(1, 4, 1, 1)));
    sw_output(sw_tanh(z), "out"); /* row-major for the reader */
    sw_output(sw_sum(sw_permute(sw_sin(z), (const int[]){0, 2, 3, 1}), SW_AXIS(3), false), "sum");
    assert_int_equal(sw__pass_layout(g, &t, &out), SW_OK);
    assert_string_equal(order_of(out, SW_OP_INPUT, 0), "0123");
    assert_string_equal(order_of(out, SW_OP_EXP, 0), "0231"); /* what a convolution reads is made channels last */
    assert_string_equal(order_of(out, SW_OP_CONV, 0), "0231");
    assert_string_equal(order_of(out, SW_OP_SUB, 0), "0231"); /* what follows follows */
    assert_string_equal(order_of(out, SW_OP_SIN, 0), "0231");
    assert_string_equal(order_of(out, SW_OP_PERMUTE, 0), "0123"); /* N, H, W, C by now */
    assert_string_equal(order_of(out, SW_OP_TANH, 0), "0123");
    sw_graph_free(out);
    sw_graph_free(g);
}

/* ---- SWOOP_DUMP -------------------------------------------------------------------------------------------------- */

static void test_dump_wanted(void **state)
{
    (void)state;
    setenv("SWOOP_DUMP", "fuse,plan", 1);
    assert_true(sw__dump_wanted("fuse"));
    assert_true(sw__dump_wanted("plan"));
    assert_false(sw__dump_wanted("pla"));
    assert_false(sw__dump_wanted("simplify"));
    setenv("SWOOP_DUMP", "all", 1);
    assert_true(sw__dump_wanted("simplify"));
    unsetenv("SWOOP_DUMP");
    assert_false(sw__dump_wanted("fuse"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identities), cmocka_unit_test(test_not_exact), cmocka_unit_test(test_rewrites),
        cmocka_unit_test(test_folding),    cmocka_unit_test(test_shared),    cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_lower),      cmocka_unit_test(test_epilogue),  cmocka_unit_test(test_layout),
        cmocka_unit_test(test_dump_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
