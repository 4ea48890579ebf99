/* test_compositions.c: what PyTorch's numbers cannot say of ops made of others: dropout's rates, that channels drop as
 * a whole, indices and integers, indices outside, the order of contraction that einsum takes, and the memory of frames.
 * */
#include "graph/graph.h"
#include "io_test.h"
#include "swoop/swoop.h"
#include <math.h>

static const char *device_id(void)
{
    const char *const id = getenv("SWOOP_TEST_DEVICE");
    return id ? id : "cpu";
}

static void eval(sw_t t, sw_dtype type, void *out, int64_t n)
{
    sw_device *d;
    OK(sw_device_open(device_id(), NULL, &d));
    OK(sw_eval(t, d, type, out, n));
    sw_device_close(d);
}

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

enum { CHANNELS = 4000, SPACE = 6 };

static void run_dropout(sw_t (*drop)(sw_t, double), double p, bool training, float *y)
{
    sw_graph *g;
    const int64_t shape[4] = { 4, CHANNELS / 4, 2, SPACE / 2 };
    OK(sw_graph_new(&g));
    sw_graph_set_training(g, training);
    eval(drop(sw_full(g, SW_F32, 4, shape, 2.0), p), SW_F32, y, CHANNELS * SPACE);
    sw_graph_free(g);
}

static void test_channels(void **state)
{
    (void)state;
    static float y[CHANNELS * SPACE], again[CHANNELS * SPACE];
    run_dropout(sw_dropout_channels, 0.25, true, y);
    int dropped = 0;
    for (int c = 0; c < CHANNELS; c++) {
        for (int i = 1; i < SPACE; i++) assert_true(y[c * SPACE + i] == y[c * SPACE]);
        dropped += y[c * SPACE] == 0;
        assert_true(y[c * SPACE] == 0 || fabs((double)y[c * SPACE] - 2 / 0.75) < 1e-6);
    }
    assert_true(abs(dropped - CHANNELS / 4) < 5 * 28); /* 27.4: the binomial's deviation */
    run_dropout(sw_dropout_channels, 0.25, true, again);
    assert_memory_equal(y, again, sizeof y);
    run_dropout(sw_dropout_channels, 0.25, false, y);
    for (int i = 0; i < CHANNELS * SPACE; i++) assert_true(y[i] == 2.0f);
}

/* Of values with mean 0 and variance 1 mean and variance stay; here of +1 and -1, which are as many. */
static sw_t alternating(sw_t x, double p)
{
    const int64_t shape[4] = { 4, CHANNELS / 4, 2, SPACE / 2 };
    const sw_t i = sw_iota(x.graph, SW_F32, 4, shape, 1), odd = sw_mod(i, sw_const(x.graph, SW_F32, 2));
    return sw_alpha_dropout(sw_add_scalar(sw_mul_scalar(odd, 2), -1), p);
}

static void test_alpha(void **state)
{
    (void)state;
    static float y[CHANNELS * SPACE];
    const int n = CHANNELS * SPACE;
    run_dropout(alternating, 0.3, true, y);
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)y[i];
        squares += (double)y[i] * (double)y[i];
    }
    assert_true(fabs(sum / n) < 5 / sqrt((double)n));
    assert_true(fabs(squares / n - 1) < 10 / sqrt((double)n));
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

static void test_integers(void **state)
{
    (void)state;
    sw_graph *g;
    int64_t out[12];
    OK(sw_graph_new(&g));
    const int64_t two[1] = { 2 }, six[2] = { 2, 3 }, index[2] = { 2, 5 }, values[6] = { 4, -7, 4, 9, 9, -1 };
    const sw_t i = sw_literal(g, SW_I64, 1, two, index), x = sw_literal(g, SW_I64, 2, six, values);
    eval(sw_one_hot(i, 3, SW_I64), SW_I64, out, 6); /* 5 is no class: zeros */
    const int64_t hot[6] = { 0, 0, 1, 0, 0, 0 };
    assert_memory_equal(out, hot, sizeof hot);
    sw_t largest, where;
    sw_topk(x, 2, 1, true, &largest, &where);
    eval(where, SW_I64, out, 4); /* among equals the first */
    const int64_t top[4] = { 0, 2, 0, 1 };
    assert_memory_equal(out, top, sizeof top);
    eval(largest, SW_I64, out, 4);
    const int64_t most[4] = { 4, 4, 9, 9 };
    assert_memory_equal(out, most, sizeof most);
    eval(sw_einsum("ij,ij->i", (sw_t[]){ x, x }, 2), SW_I64, out, 2);
    assert_int_equal(out[0], 16 + 49 + 16);
    assert_int_equal(out[1], 81 + 81 + 1);
    eval(sw_flip(sw_roll(x, 1, 0), SW_AXIS(1)), SW_I64, out, 6);
    const int64_t turned[6] = { -1, 9, 9, 4, -7, 4 };
    assert_memory_equal(out, turned, sizeof turned);
    const sw_dtype types[] = { SW_BOOL, SW_U8, SW_I32, SW_F16, SW_BF16, SW_F64 }; /* rows of any type are copied */
    for (size_t k = 0; k < SW_COUNT(types); k++) {
        if (k == 5 && strncmp(device_id(), "opencl", 6) == 0) break;
        const sw_t bits = sw_cast(sw_gt(x, sw_const(g, SW_I64, 0)), types[k]); /* 1 0 1, 1 1 0 */
        eval(sw_cast(sw_flip(bits, SW_ALL_AXES), SW_I64), SW_I64, out, 6);
        const int64_t flipped[6] = { 0, 1, 1, 1, 0, 1 };
        assert_memory_equal(out, flipped, sizeof flipped);
    }
    sw_t part[4];
    assert_int_equal(sw_chunk(x, 4, 1, part), 3); /* fewer than were asked for */
    assert_int_equal(sw_chunk(x, 2, 1, part), 2);
    assert_int_equal(sw_dim(part[0], 1), 2);
    assert_int_equal(sw_dim(part[1], 1), 1);
    OK(sw_graph_status(g));
    sw_graph_free(g);
}

/* An index outside in one axis of several is not taken for a place that exists. */
static void test_outside(void **state)
{
    (void)state;
    sw_device *d;
    OK(sw_device_open(device_id(), NULL, &d));
    const int64_t shape[2] = { 3, 4 }, one[2] = { 1, 2 }, k[1] = { 2 }, pair[2] = { 0, 5 }, list[2] = { 1, 4 };
    float out[8];
    for (int i = 0; i < 2; i++) {
        sw_graph *g;
        OK(sw_graph_new(&g));
        const sw_t x = sw_full(g, SW_F32, 2, shape, 1);
        const sw_t y = i == 0 ? sw_gather_nd(x, sw_literal(g, SW_I64, 2, one, pair))
                              : sw_index_select(x, sw_literal(g, SW_I64, 1, k, list), 1);
        FAILS(SW_ERR_DATA, sw_eval(y, d, SW_F32, out, sw_elements(y)), "index");
        sw_graph_free(g);
    }
    sw_device_close(d);
}

/* ---- how much work ----------------------------------------------------------------------------------------------- */

static sw_plan plan_of(sw_t y)
{
    sw_device *d;
    sw_plan plan;
    sw_output(y, "y");
    OK(sw_device_open("cpu", NULL, &d));
    OK(sw_plan_graph(y.graph, d, NULL, &plan));
    sw_device_close(d);
    return plan;
}

/* (1 x 200)(200 x 200)(200 x 200)(200 x 1): from an end it is 40,000 multiplications a step, from the middle 8 million.
 * */
static void test_order(void **state)
{
    (void)state;
    sw_graph *g;
    OK(sw_graph_new(&g));
    const int64_t row[2] = { 1, 200 }, square[2] = { 200, 200 }, column[2] = { 200, 1 };
    const sw_t xs[4] = { sw_input(g, "a", SW_F32, 2, row), sw_input(g, "b", SW_F32, 2, square),
                         sw_input(g, "c", SW_F32, 2, square), sw_input(g, "d", SW_F32, 2, column) };
    const sw_plan plan = plan_of(sw_einsum("ij,jk,kl,lm->im", xs, 4));
    assert_true(plan.flops < 1e6);
    sw_graph_free(g);
}

/* Any text is an equation or an error that says so; none is read past its end. */
static void test_equations(void **state)
{
    (void)state;
    static const char letters[] = "iijjk.,->  Az2";
    static const int64_t shape[4] = { 3, 3, 1, 3 };
    uint64_t random = 1;
    int good = 0;
    for (int n = 0; n < 5000; n++) {
        sw_graph *g;
        char text[16];
        size_t length = 0;
        for (; length < sizeof text - 1; length++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const size_t pick = (size_t)(random >> 33) % (sizeof letters + 1);
            if (pick >= sizeof letters - 1) break;
            text[length] = letters[pick];
            if (text[length] == '.' && length + 3 < sizeof text) { /* three of them as a rule */
                text[++length] = '.';
                text[++length] = '.';
            }
        }
        char *const equation = (char *)exact_copy((uint8_t *)text, length + 1);
        equation[length] = 0;
        OK(sw_graph_new(&g));
        const sw_t xs[2] = { sw_input(g, "x", SW_F32, (int)(random >> 40) % 5, shape),
                             sw_input(g, "y", SW_F32, (int)(random >> 44) % 3, shape) };
        const sw_t y = sw_einsum(equation, xs, 1 + (int)(random >> 50) % 2);
        good += sw_valid(y);
        if (!sw_valid(y) && (sw_graph_status(g) == SW_OK || !strstr(sw_error(), "einsum")))
            fail_msg("'%s': %s", equation, sw_error());
        sw_graph_free(g);
        free(equation);
    }
    assert_true(good > 20);
}

/* A minute of sound: frames and their gradient take a few times what the frames are, and nothing has their size times
 * the window's. */
static void test_memory(void **state)
{
    (void)state;
    sw_graph *g;
    sw_t dx;
    OK(sw_graph_new(&g));
    const int64_t shape[2] = { 1, 960000 };
    const sw_t x = sw_input(g, "x", SW_F32, 2, shape);
    const sw_t y = sw_log_mel(x, (sw_stft_options){ .n_fft = 400, .hop = 160 },
                              (sw_mel_options){ .sample_rate = 16000, .n_mels = 80, .scale = SW_MEL_SLANEY,
                                                .area_norm = true });
    assert_int_equal(sw_dim(y, 1), 80);
    assert_int_equal(sw_dim(y, 2), 6001);
    OK(sw_grad(sw_mean(y, SW_ALL_AXES, false), &x, 1, &dx));
    const sw_plan plan = plan_of(dx);
    const double frames = 6001.0 * 400 * 4;
    print_message("log-mel of a minute with its gradient: %.1f MB, frames are %.1f MB\n", (double)plan.total / 1e6,
                  frames / 1e6);
    assert_true((double)plan.total < 6 * frames);
    sw_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels), cmocka_unit_test(test_alpha), cmocka_unit_test(test_integers),
        cmocka_unit_test(test_outside),  cmocka_unit_test(test_order), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_equations),
    };
    return cmocka_run_group_tests_name("compositions", tests, NULL, NULL);
}
