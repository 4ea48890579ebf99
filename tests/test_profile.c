/* test_profile.c: the profile of a program: operations and bytes of known shapes against figures worked out by hand, the
 * device's measured peaks, the table's form, and that the JSON says the same. */
#include "exec/exec.h"
#include "swoop/swoop.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s", sw_error());
}

/* A program of one thread that is profiled; two runs. */
static sw_program *profiled(sw_device *d, sw_graph *g)
{
    sw_program *p = NULL;
    ok(sw_compile(g, d, &(sw_compile_options){.profile = true}, &p));
    for (int i = 0; i < 2; i++) ok(sw_program_run(p));
    return p;
}

static sw_t input(sw_graph *g, const char *name, int rank, const int64_t *shape)
{
    return sw_input(g, name, SW_F32, rank, shape);
}

/* ---- operations and bytes ---------------------------------------------------------------------------------------- */

static const int64_t d3x4[] = {3, 4}, d4x5[] = {4, 5}, image[] = {2, 3, 6, 6}, filter[] = {4, 3, 3, 3}, many[] = {1000},
                     rows[] = {8, 32};

static sw_t product(sw_graph *g)
{
    return sw_matmul(input(g, "a", 2, d3x4), input(g, "b", 2, d4x5));
}

static sw_t convolution(sw_graph *g)
{
    return sw_conv_op(input(g, "x", 4, image), input(g, "w", 4, filter), SW_NONE, NULL);
}

static sw_t sum(sw_graph *g)
{
    return sw_add(input(g, "a", 1, many), input(g, "b", 1, many));
}

static sw_t row_sums(sw_graph *g)
{
    return sw_sum(input(g, "a", 2, rows), SW_AXIS(1), false);
}

/* By hand; a multiply-add is two operations, f32 has four bytes.
 * product: 3 5 sums of 4 multiply-adds; 12 + 20 in, 15 out.
 * convolution: 2 4 4 4 outputs (6 - 3 + 1 = 4) of 3 3 3 multiply-adds; 216 + 108 in, 128 out.
 * sum: an addition for each of 1000; 2000 in, 1000 out. row sums: 8 of 32; 256 in, 8 out. */
static const struct {
    const char *kind;
    sw_t (*make)(sw_graph *g);
    double flops, bytes;
} cases[] = {
    {"matmul", product, 2 * 15 * 4, 4 * (12 + 20 + 15)},
    {"conv", convolution, 2 * 128 * 27, 4 * (216 + 108 + 128)},
    {"kernel", sum, 1000, 4 * 3000},
    {"kernel", row_sums, 256, 4 * (256 + 8)},
};

static json_t *profile_json(sw_program *p)
{
    char *text = NULL;
    json_error_t e;
    ok(sw_program_profile(p, SW_PROFILE_JSON, &text));
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (!j) fail_msg("line %d, column %d: %s\n%s", e.line, e.column, e.text, text);
    sw_string_free(text);
    return j;
}

static double number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_number(v)) fail_msg("%s is no number", key);
    return json_number_value(v);
}

/* The launch of that kind; copies and the like may stand beside it. */
static const json_t *launch_of(const json_t *profile, const char *kind)
{
    size_t i;
    const json_t *l;
    json_array_foreach(json_object_get(profile, "launches"), i, l)
        if (strcmp(json_string_value(json_object_get(l, "kind")), kind) == 0) return l;
    fail_msg("there is no %s", kind);
    return NULL;
}

static void test_costs(void **state)
{
    (void)state;
    sw_device *d = NULL;
    ok(sw_device_open("cpu", &(sw_device_options){.threads = 1}, &d));
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        sw_graph *g = NULL;
        ok(sw_graph_new(&g));
        sw_output(cases[i].make(g), "out");
        sw_program *p = profiled(d, g);
        json_t *j = profile_json(p);
        const json_t *l = launch_of(j, cases[i].kind);
        if (number(l, "flops") != cases[i].flops || number(l, "bytes") != cases[i].bytes)
            fail_msg("case %zu: %g operations, %g bytes", i, number(l, "flops"), number(l, "bytes"));
        assert_int_equal(number(l, "calls"), 2);
        /* rates and share follow from the figures beside them (which are rounded to a nanosecond) */
        const double mean = number(l, "seconds") / 2;
        const json_t *peak = json_object_get(j, "peak");
        const double least = fmax(cases[i].flops / number(peak, "flops"), cases[i].bytes / number(peak, "bandwidth"));
        assert_true(fabs(number(l, "gflops") * 1e9 * mean / cases[i].flops - 1) < 0.05);
        assert_true(fabs(number(l, "gbs") * 1e9 * mean / cases[i].bytes - 1) < 0.05);
        assert_true(fabs(number(l, "of_peak") - least / mean) < 1e-5 + 0.05 * least / mean);
        json_decref(j);
        sw_program_free(p);
        sw_graph_free(g);
    }
    sw_device_close(d);
}

/* ---- the peaks --------------------------------------------------------------------------------------------------- */

static void test_peak(void **state)
{
    (void)state;
    static const char *const levels[] = {"base", "avx2", "avx512"};
    for (size_t i = 0; i < SW_COUNT(levels); i++)
        for (int threads = 1; threads <= 2; threads++) {
            sw_device *d = NULL;
            sw_device_peak a, b;
            setenv("SWOOP_SIMD", levels[i], 1);
            ok(sw_device_open("cpu", &(sw_device_options){.threads = threads}, &d));
            ok(sw_device_measure(d, &a));
            assert_true(a.flops > 1e6 && isfinite(a.flops) && a.bandwidth > 1e6 && isfinite(a.bandwidth));
            assert_int_equal(a.threads, threads);
            assert_non_null(strstr(a.how, "triad"));
            ok(sw_device_measure(d, &b)); /* remembered */
            assert_memory_equal(&a, &b, sizeof a);
            sw_device_close(d);
        }
    unsetenv("SWOOP_SIMD");
}

/* Who has no loops says so, and the profile leaves the share out. */
static void test_no_peak(void **state)
{
    (void)state;
    sw_device *d = NULL;
    sw_device_peak peak;
    sw_graph *g = NULL;
    char *text = NULL;
    ok(sw_device_open("ref", NULL, &d));
    assert_int_equal(sw_device_measure(d, &peak), SW_ERR_UNSUPPORTED);
    ok(sw_graph_new(&g));
    sw_output(product(g), "out");
    sw_program *p = profiled(d, g);
    json_t *j = profile_json(p);
    assert_true(json_is_null(json_object_get(j, "peak")));
    assert_non_null(strstr(json_string_value(json_object_get(j, "why_no_peak")), "ref"));
    assert_null(json_object_get(json_array_get(json_object_get(j, "launches"), 0), "of_peak"));
    json_decref(j);
    ok(sw_program_profile(p, SW_PROFILE_TABLE, &text));
    assert_non_null(strstr(text, "peak: none to compare with"));
    sw_string_free(text);
    sw_program_free(p);
    sw_graph_free(g);
    assert_int_equal(sw_device_measure(NULL, &peak), SW_ERR_ARGUMENT);
    assert_int_equal(sw_device_measure(d, NULL), SW_ERR_ARGUMENT);
    sw_device_close(d);
}

/* ---- the table ---------------------------------------------------------------------------------------------------- */

/* A training step with many kinds of launches and long names. */
static sw_program *trained(sw_device *d, sw_graph **g)
{
    const int64_t shape[] = {4, 1, 28, 28}, labels[] = {4};
    ok(sw_graph_new(g));
    const sw_t x = sw_input(*g, "x", SW_F32, 4, shape), y = sw_input(*g, "y", SW_I64, 1, labels);
    sw_scope_push(*g, "a_scope_with_a_long_name");
    const sw_t loss = sw_cross_entropy(sw_model_build("lenet", x, 10), y);
    sw_scope_pop(*g);
    sw_output(loss, "loss");
    const sw_optimizer adam = {.kind = SW_ADAM, .lr = 1e-3};
    ok(sw_optimizer_apply(&adam, loss, NULL, 0));
    return profiled(d, *g);
}

/* No line is wider than 100 columns; kernels come slowest first; the figures' columns stand one under the other. */
static void test_table(void **state)
{
    (void)state;
    sw_device *d = NULL;
    sw_graph *g = NULL;
    char *text = NULL, *rest = NULL;
    ok(sw_device_open("cpu", &(sw_device_options){.threads = 1}, &d));
    sw_program *p = trained(d, &g);
    ok(sw_program_profile(p, SW_PROFILE_TABLE, &text));
    assert_non_null(strstr(text, "% of the time not in kernels"));
    assert_non_null(strstr(text, "peak, measured:"));
    int line = 0;
    double before = INFINITY;
    for (char *s = strtok_r(text, "\n", &rest); s; s = strtok_r(NULL, "\n", &rest), line++) {
        if (strlen(s) > 100) fail_msg("%zu columns: %s", strlen(s), s);
        if (line < 4) continue; /* heading; then the total, which is the most */
        assert_true(s[15] == '%' && s[16] == ' ');
        const double ms = strtod(s, NULL);
        if (line < 5 + (int)p->n_launches && ms > before) fail_msg("not in order: %s", s);
        before = ms;
    }
    assert_true(line > (int)p->n_launches + 5);
    sw_string_free(text);
    sw_program_free(p);
    sw_graph_free(g);
    sw_device_close(d);
}

/* The sums of the JSON are those of its parts, and what is not in kernels is no less than nothing. */
static void test_sums(void **state)
{
    (void)state;
    sw_device *d = NULL;
    sw_graph *g = NULL;
    ok(sw_device_open("cpu", &(sw_device_options){.threads = 1}, &d));
    sw_program *p = trained(d, &g);
    json_t *j = profile_json(p);
    double flops = 0, seconds = 0, before = INFINITY;
    size_t i;
    const json_t *l;
    json_array_foreach(json_object_get(j, "launches"), i, l)
    {
        flops += number(l, "flops");
        seconds += number(l, "seconds");
        assert_true(number(l, "seconds") <= before);
        before = number(l, "seconds");
    }
    assert_int_equal(i, p->n_launches);
    assert_true(number(j, "flops") == flops && flops == sw_program_plan(p)->flops);
    assert_true(fabs(number(j, "kernel_seconds") - seconds) < 1e-6);
    assert_true(number(j, "seconds") >= number(j, "kernel_seconds"));
    assert_true(number(j, "not_in_kernels") >= 0 && number(j, "not_in_kernels") < 1);
    json_decref(j);
    sw_program_free(p);
    sw_graph_free(g);
    sw_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs), cmocka_unit_test(test_peak), cmocka_unit_test(test_no_peak),
        cmocka_unit_test(test_table), cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
