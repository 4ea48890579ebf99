/* test_grad.c: the shape of gradient graphs: what sw_grad appends, what it leaves out, and what it refuses.
 * Values: test_golden_ops.c (against PyTorch) and test_ops.c (finite differences). */
/* link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc */
#include "graph/graph.h"

#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

/* ---- allocations that fail in turn -------------------------------------------------------------------------------- */

static long left = -1; /* allocations until one fails; negative: none fails */

static bool fails(void)
{
    return left >= 0 && left-- == 0;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

/* ---- a graph to take gradients in --------------------------------------------------------------------------------- */

static sw_graph *g;

static int setup(void **state)
{
    (void)state;
    return sw_graph_new(&g) == SW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    sw_graph_free(g);
    g = NULL;
    return 0;
}

static sw_t param(const char *name, int rank, const int64_t *shape)
{
    return sw_param(g, name, rank, shape, (sw_init){ .kind = SW_INIT_ZEROS });
}

static sw_t vector(const char *name, int64_t n)
{
    return param(name, 1, &n);
}

static sw_t total(sw_t x)
{
    return sw_sum(x, SW_ALL_AXES, false);
}

static int count(sw__op op, uint32_t from)
{
    int n = 0;
    for (uint32_t i = from; i < g->n_nodes; i++) n += g->nodes[i].op == op;
    return n;
}

/* Is x a constant with this value, in the shape of `like`? */
static bool is_constant(sw_t x, double value, sw_t like)
{
    const sw__node *n = sw__node_of(x);
    return n->op == SW_OP_CONST && n->attr.constant.value == value && sw__same_shape(n, sw__node_of(like));
}

static const sw__node *input_node(sw_t x, int i)
{
    const sw__node *n = sw__node_of(x);
    return &g->nodes[n->in[i]];
}

/* ---- economy ------------------------------------------------------------------------------------------------------- */

static void test_no_multiplication_by_one(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5), w = vector("w", 5);
    const sw_t wrt[2] = { x, w };
    sw_t d[2];
    assert_int_equal(sw_grad(total(sw_mul(x, w)), wrt, 2, d), SW_OK);
    assert_int_equal(d[0].id, w.id);
    assert_int_equal(d[1].id, x.id);
}

static void test_relu_looks_at_its_result(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5), y = sw_relu(x);
    sw_t d;
    assert_int_equal(sw_grad(total(sw_square(y)), &x, 1, &d), SW_OK);
    assert_int_equal(sw__node_of(d)->op, SW_OP_WHERE);
    const sw__node *mask = input_node(d, 0);
    assert_int_equal(mask->op, SW_OP_LT);
    assert_int_equal(mask->in[1], y.id);
}

static void test_results_are_used(void **state)
{
    (void)state;
    static sw_t (*const fn[])(sw_t) = { sw_exp, sw_tanh, sw_sqrt };
    const sw_t x = vector("x", 5);
    for (size_t i = 0; i < SW_COUNT(fn); i++) {
        const sw_t y = fn[i](x), loss = total(y);
        const uint32_t from = g->n_nodes;
        sw_t d;
        assert_int_equal(sw_grad(loss, &x, 1, &d), SW_OK);
        for (uint32_t n = from; n < g->n_nodes; n++) {
            for (uint32_t k = 0; k < g->nodes[n].n_in; k++) assert_int_not_equal(g->nodes[n].in[k], x.id);
        }
    }
}

static void test_unwanted_gradients_are_not_made(void **state)
{
    (void)state;
    const int64_t image[4] = { 2, 3, 6, 6 }, kernel[4] = { 4, 3, 3, 3 };
    const sw_t x = sw_input(g, "x", SW_F32, 4, image), w = param("w", 4, kernel), b = vector("b", 4);
    const sw_t wrt[2] = { w, b };
    sw_t d[2];
    assert_int_equal(sw_grad(total(sw_square(sw_conv_op(x, w, b, NULL))), wrt, 2, d), SW_OK);
    assert_int_equal(count(SW_OP_CONV_GRAD_W, 1), 1);
    assert_int_equal(count(SW_OP_CONV_GRAD_X, 1), 0);
    assert_int_equal(sw__node_of(d[0])->op, SW_OP_CONV_GRAD_W);
}

static void test_linear_weight_gradient_lies_as_the_weight(void **state)
{
    (void)state;
    const int64_t rows[2] = { 8, 5 }, weight[2] = { 4, 5 };
    const sw_t x = param("x", 2, rows), w = param("w", 2, weight), b = vector("b", 4);
    const sw_t wrt[3] = { x, w, b };
    sw_t d[3];
    assert_int_equal(sw_grad(total(sw_square(sw_linear_op(x, w, b))), wrt, 3, d), SW_OK);
    assert_int_equal(sw__node_of(d[0])->op, SW_OP_MATMUL);
    assert_int_equal(sw__node_of(d[0])->in[1], w.id);
    assert_int_equal(sw__node_of(d[1])->op, SW_OP_MATMUL);
}

static void test_batch_norm_takes_the_big_gradient_if_it_can(void **state)
{
    (void)state;
    const int64_t image[4] = { 2, 3, 4, 4 };
    const sw_t x = param("x", 4, image), w = vector("w", 3), b = vector("b", 3);
    sw_t mean, var, d;
    const sw_t y = sw_batch_norm_op(x, w, b, 1e-5, &mean, &var);
    sw_assign(sw_variable(g, "running", SW_VAR_BUFFER, SW_F32, 1, (int64_t[]){ 3 }, (sw_init){ .kind = SW_INIT_ZEROS }),
              mean); /* a use of the statistics without a gradient */
    assert_int_equal(sw_grad(total(sw_square(y)), &x, 1, &d), SW_OK);
    assert_int_equal(sw__node_of(d)->op, SW_OP_BATCH_NORM_GRAD);
    const uint32_t from = g->n_nodes;
    assert_int_equal(sw_grad(sw_add(total(sw_square(y)), total(var)), &x, 1, &d), SW_OK);
    assert_int_equal(count(SW_OP_BATCH_NORM_GRAD, from), 0);
}

static void test_gradients_have_names(void **state)
{
    (void)state;
    const int64_t image[4] = { 2, 3, 6, 6 }, kernel[4] = { 4, 3, 3, 3 };
    const sw_t x = sw_input(g, "x", SW_F32, 4, image), w = param("w", 4, kernel);
    const sw_t y = sw_named(sw_conv_op(x, w, SW_NONE, NULL), "conv1");
    sw_t d;
    assert_int_equal(sw_grad(total(sw_square(y)), &w, 1, &d), SW_OK);
    assert_string_equal(sw_name(d), "conv1.grad");
}

/* ---- what flows and what does not ------------------------------------------------------------------------------------ */

static void test_nothing_arrives_gives_zeros(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5), other = vector("other", 3);
    const sw_t unit = sw_full(g, SW_F32, 1, (int64_t[]){ 5 }, 1.0);
    const sw_t paths[] = {
        sw_stop_gradient(x),
        sw_floor(x),
        sw_where(sw_lt(x, unit), unit, unit),
        sw_cast(sw_cast(x, SW_I32), SW_F32),
        sw_cast(sw_argmax(x, 0, true), SW_F32),
    };
    for (size_t i = 0; i < SW_COUNT(paths); i++) {
        const sw_t wrt[2] = { x, other };
        sw_t d[2];
        assert_int_equal(sw_grad(total(paths[i]), wrt, 2, d), SW_OK);
        assert_true(is_constant(d[0], 0.0, x));
        assert_true(is_constant(d[1], 0.0, other));
    }
}

static void test_values_on_the_way(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5), h = sw_exp(x), loss = total(sw_mul(h, h)), later = sw_exp(h);
    const sw_t wrt[5] = { x, h, loss, x, later };
    sw_t d[5];
    assert_int_equal(sw_grad(loss, wrt, 5, d), SW_OK);
    assert_true(is_constant(d[2], 1.0, loss));
    assert_int_equal(d[3].id, d[0].id); /* asked for twice */
    assert_true(is_constant(d[4], 0.0, later)); /* recorded after the loss */
    assert_int_equal(sw__node_of(d[0])->op, SW_OP_MUL);
    assert_int_equal(sw__node_of(d[0])->in[0], d[1].id);
}

static void test_outputs_of_one_op_collect_apart(void **state)
{
    (void)state;
    const int64_t rows[2] = { 4, 6 };
    const sw_t x = param("x", 2, rows);
    sw_t d[2];
    const sw_t y = sw_layer_norm_op(x, SW_NONE, SW_NONE, 1, 1e-5), mean = sw__output_of(y, 1);
    const sw_t wrt[2] = { mean, x };
    assert_int_equal(sw_grad(total(sw_square(mean)), wrt, 2, d), SW_OK);
    assert_true(sw__same_shape(sw__node_of(d[0]), sw__node_of(mean)));
    assert_true(sw__same_shape(sw__node_of(d[1]), sw__node_of(x)));
    assert_int_equal(count(SW_OP_LAYER_NORM_GRAD, 1), 0); /* the mean is differentiated, through the lowered op */
}

static void test_gradient_of_gradient(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5);
    sw_t d, dd;
    assert_int_equal(sw_grad(total(sw_square(x)), &x, 1, &d), SW_OK);
    assert_int_equal(sw_grad(total(sw_square(d)), &x, 1, &dd), SW_OK);
    assert_true(sw__same_shape(sw__node_of(dd), sw__node_of(x)));
}

/* ---- refusals -------------------------------------------------------------------------------------------------------- */

static void refused(sw_status st, sw_status want, const char *part)
{
    assert_int_equal(st, want);
    if (!strstr(sw_error(), part)) fail_msg("'%s' does not say '%s'", sw_error(), part);
}

static void test_loss_of_many_numbers(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5);
    sw_t d = { NULL, 77 };
    refused(sw_grad(sw_exp(x), &x, 1, &d), SW_ERR_SHAPE, "f32[5]");
    assert_int_equal(d.id, 77); /* untouched */
    assert_int_equal(sw_graph_status(g), SW_ERR_SHAPE);
}

static void test_integer_loss(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5);
    sw_t d;
    refused(sw_grad(sw_argmax(x, 0, false), &x, 1, &d), SW_ERR_SHAPE, "floating-point");
}

static void test_integer_wrt(void **state)
{
    (void)state;
    const int64_t n = 5;
    const sw_t x = vector("x", 5), i = sw_input(g, "labels", SW_I64, 1, &n);
    const sw_t wrt[2] = { x, i };
    sw_t d[2];
    refused(sw_grad(total(x), wrt, 2, d), SW_ERR_SHAPE, "'labels'");
}

static void test_bad_arguments(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5), loss = total(x);
    sw_t d;
    refused(sw_grad(SW_NONE, &x, 1, &d), SW_ERR_ARGUMENT, "graph");
    refused(sw_grad(loss, &x, -1, &d), SW_ERR_ARGUMENT, "-1");
    refused(sw_grad(loss, NULL, 1, &d), SW_ERR_ARGUMENT, "wrt");
    refused(sw_grad(loss, &x, 1, NULL), SW_ERR_ARGUMENT, "out");
    refused(sw_grad_from(x, SW_NONE, &x, 1, &d), SW_ERR_ARGUMENT, "seed");
    sw_graph *other;
    assert_int_equal(sw_graph_new(&other), SW_OK);
    const sw_t foreign = sw_const(other, SW_F32, 1.0);
    refused(sw_grad(loss, &foreign, 1, &d), SW_ERR_ARGUMENT, "wrt[0]");
    sw_graph_free(other);
    assert_int_equal(sw_grad(loss, NULL, 0, NULL), SW_OK);
    assert_int_equal(sw_graph_status(g), SW_OK);
}

static void test_seed_of_another_shape(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5);
    sw_t d;
    refused(sw_grad_from(sw_exp(x), sw_const(g, SW_F32, 1.0), &x, 1, &d), SW_ERR_SHAPE, "f32[5]");
}

static void test_error_of_the_build_comes_back(void **state)
{
    (void)state;
    const sw_t x = vector("x", 5), bad = sw_add(x, vector("y", 4));
    sw_t d;
    refused(sw_grad(total(bad), &x, 1, &d), SW_ERR_SHAPE, "add");
}

/* ---- out of memory ----------------------------------------------------------------------------------------------------- */

/* A network's loss and its second derivative; the first error, if any. */
static sw_status network(void)
{
    const int64_t image[4] = { 2, 3, 7, 6 }, kernel[4] = { 4, 3, 3, 3 }, weight[2] = { 5, 36 }, labels[1] = { 2 };
    static const sw_pool_options max = { .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad_lo = { 1, 1 }, .pad_hi = { 1, 1 } };
    static const sw_pool_options avg = { .kernel = { 2, 2 }, .stride = { 1, 1 }, .pad_lo = { 1, 1 }, .pad_hi = { 1, 1 } };
    const sw_t x = sw_input(g, "x", SW_F32, 4, image), t = sw_input(g, "t", SW_I64, 1, labels);
    const sw_t w = param("w", 4, kernel), scale = vector("scale", 4), shift = vector("shift", 4);
    sw_t h = sw_relu(sw_batch_norm_op(sw_conv_op(x, w, SW_NONE, NULL), scale, shift, 1e-5, NULL, NULL));
    h = sw_flatten(sw_max_pool_op(sw_avg_pool_op(h, &avg), &max));
    const sw_t loss = sw_cross_entropy(sw_linear_op(h, param("fc", 2, weight), SW_NONE), t);
    const sw_t wrt[3] = { w, scale, shift };
    sw_t d[3], dd[3];
    SW_TRY(sw_grad(loss, wrt, 3, d));
    return sw_grad(sw_add(total(sw_square(d[0])), sw_prod(d[1], SW_ALL_AXES, false)), wrt, 3, dd);
}

static void test_every_allocation_fails_in_turn(void **state)
{
    (void)state;
    sw_status st = SW_ERR_MEMORY;
    for (long n = 0; st != SW_OK; n++) {
        sw_graph_free(g);
        g = NULL;
        left = n;
        st = sw_graph_new(&g);
        if (st == SW_OK) st = network();
        left = -1;
        if (st != SW_OK) assert_int_equal(st, SW_ERR_MEMORY);
        assert_true(n < 100000);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_no_multiplication_by_one),
        TEST(test_relu_looks_at_its_result),
        TEST(test_results_are_used),
        TEST(test_unwanted_gradients_are_not_made),
        TEST(test_linear_weight_gradient_lies_as_the_weight),
        TEST(test_batch_norm_takes_the_big_gradient_if_it_can),
        TEST(test_gradients_have_names),
        TEST(test_nothing_arrives_gives_zeros),
        TEST(test_values_on_the_way),
        TEST(test_outputs_of_one_op_collect_apart),
        TEST(test_gradient_of_gradient),
        TEST(test_loss_of_many_numbers),
        TEST(test_integer_loss),
        TEST(test_integer_wrt),
        TEST(test_bad_arguments),
        TEST(test_seed_of_another_shape),
        TEST(test_error_of_the_build_comes_back),
        TEST(test_every_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
