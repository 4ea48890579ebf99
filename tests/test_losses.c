/* test_losses.c: what losses and gates refuse, and label smoothing in a training. Their values and gradients are in
 * test_golden_ops.c, against PyTorch's. */
#include "base/base.h"
#include "swoop/swoop.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void refuses(sw_graph *g, sw_t result, const char *part)
{
    assert_false(sw_valid(result));
    assert_int_not_equal(sw_graph_status(g), SW_OK);
    if (!strstr(sw_error(), part)) fail_msg("no '%s' in: %s", part, sw_error());
    sw_graph_free(g);
}

static sw_t input(sw_graph *g, const char *name, sw_dtype type, int rank, int64_t a, int64_t b)
{
    return sw_input(g, name, type, rank, (int64_t[]){a, b});
}

static void test_refused(void **state)
{
    (void)state;
    sw_graph *g = NULL;
    static sw_t (*const two[])(sw_t, sw_t, sw_reduction) = {sw_l1_loss, sw_mse_loss, sw_poisson_nll_loss, sw_hinge_loss,
                                                            sw_dice_loss, sw_kl_div_loss};
    for (size_t i = 0; i < SW_COUNT(two); i++) { /* [4, 1] against [4]: would be broadcast to [4, 4] */
        assert_int_equal(sw_graph_new(&g), SW_OK);
        const sw_t a = input(g, "a", SW_F32, 2, 4, 1), b = input(g, "b", SW_F32, 1, 4, 0);
        refuses(g, two[i](a, b, SW_REDUCE_MEAN), "f32[4,1]");
    }
    assert_int_equal(sw_graph_new(&g), SW_OK);
    refuses(g, sw_glu(input(g, "a", SW_F32, 2, 4, 3), 1, SW_GLU), "odd");
    assert_int_equal(sw_graph_new(&g), SW_OK);
    refuses(g, sw_glu(input(g, "a", SW_F32, 2, 4, 4), 2, SW_GLU), "axis 2");
    assert_int_equal(sw_graph_new(&g), SW_OK);
    const sw_t logits = input(g, "a", SW_F32, 2, 4, 3), share = input(g, "b", SW_F32, 2, 4, 3);
    refuses(g, sw_cross_entropy_loss(logits, share, .label_smoothing = 0.1), "class indices");
}

/* NaN goes through every activation; infinities give what the limit is. */
static void test_not_finite(void **state)
{
    (void)state;
    static sw_t (*const one[])(sw_t) = {sw_relu6, sw_selu, sw_gelu_tanh, sw_softplus, sw_log_sigmoid, sw_mish, sw_softsign,
                                        sw_hard_sigmoid};
    static const double at_infinity[] = {6, INFINITY, INFINITY, INFINITY, 0, INFINITY, NAN, 1};
    const double x[3] = {NAN, INFINITY, 700};
    for (size_t i = 0; i < SW_COUNT(one); i++) {
        sw_graph *g = NULL;
        sw_device *d = NULL;
        sw_program *p = NULL;
        double y[3];
        assert_int_equal(sw_graph_new(&g), SW_OK);
        sw_output(one[i](input(g, "x", SW_F32, 1, 3, 0)), "y");
        assert_int_equal(sw_device_open("cpu", NULL, &d), SW_OK);
        assert_int_equal(sw_compile(g, d, NULL, &p), SW_OK);
        assert_int_equal(sw_program_set(p, 0, SW_F64, x, 3), SW_OK);
        assert_int_equal(sw_program_run(p), SW_OK);
        assert_int_equal(sw_program_get(p, 0, SW_F64, y, 3), SW_OK);
        if (!isnan(y[0])) fail_msg("activation %d of NaN is %g", (int)i, y[0]);
        if (!isnan(at_infinity[i]) && y[1] != at_infinity[i]) fail_msg("activation %d of infinity is %g", (int)i, y[1]);
        if (!isfinite(y[2])) fail_msg("activation %d of 700 is %g", (int)i, y[2]);
        sw_program_free(p);
        sw_graph_free(g);
        sw_device_close(d);
    }
}

/* Smoothing s of C classes: the first loss of a model that gives zeros is log C with or without it; and it is refused
 * where it means nothing. */
static void test_smoothing(void **state)
{
    (void)state;
    float x[8 * 4] = {0}, values[8] = {0};
    int64_t y[8];
    for (int i = 0; i < 8; i++) y[i] = i % 4;
    sw_dataset *classes = NULL, *numbers = NULL;
    const sw_array ax = {.dtype = SW_F32, .rank = 2, .shape = {8, 4}, .data = x, .bytes = sizeof x};
    const sw_array ay = {.dtype = SW_I64, .rank = 1, .shape = {8}, .data = y, .bytes = sizeof y};
    const sw_array av = {.dtype = SW_F32, .rank = 1, .shape = {8}, .data = values, .bytes = sizeof values};
    assert_int_equal(sw_dataset_from_memory(&ax, &ay, NULL, &classes), SW_OK);
    assert_int_equal(sw_dataset_from_memory(&ax, &av, NULL, &numbers), SW_OK);
    sw_device *d = NULL;
    assert_int_equal(sw_device_open("cpu", NULL, &d), SW_OK);
    static const struct { double smoothing; bool numbers; sw_status st; } cases[] = {
        {0.2, false, SW_OK}, {1.5, false, SW_ERR_ARGUMENT}, {0.2, true, SW_ERR_ARGUMENT}};
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        sw_trainer *t = NULL;
        const sw_trainer_options o = {.model_name = "mlp:8", .batch = 8, .optimizer = sw_sgd(.lr = 0.1), .label_smoothing = cases[i].smoothing};
        assert_int_equal(sw_trainer_new(d, &o, &t), SW_OK);
        assert_int_equal(sw_trainer_prepare(t, cases[i].numbers ? numbers : classes), cases[i].st);
        if (cases[i].st == SW_OK) {
            double loss = 0;
            assert_int_equal(sw_trainer_step(t, x, y, 8, &loss), SW_OK);
            assert_true(loss > 1.2 && loss < 1.7); /* near log 4 */
        }
        sw_trainer_free(t);
    }
    sw_dataset_close(classes);
    sw_dataset_close(numbers);
    sw_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_smoothing),
    };
    return cmocka_run_group_tests_name("losses", tests, NULL, NULL);
}
