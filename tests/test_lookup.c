/* test_lookup.c: products of rows that were looked up (pass/lookup.c): results and gradients on the cpu beside ref in
 * double, which looks up row by row; whether the pass did what it is for; and where it must not. */
#include "base/base.h"
#include "kernel/cpuid.h"
#include "pass/pass.h"
#include "swoop/swoop.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { ROWS = 7, COLUMNS = 40, WIDTH = 9, A = 3, B = 20, OUTPUTS = 5 };

typedef struct lookup_case {
    const char *name;
    bool bias, keeps_rows, turned; /* keeps_rows: they are an output too; turned: w^T x^T */
    sw_dtype half;                 /* SW_F32: none */
    int tokens;
    double bound;
    const char *has, *has_not; /* in the graph after the passes */
} lookup_case;

static const lookup_case cases[] = {
    { "plain", false, false, false, SW_F32, A *B, 2e-6, "embedding_grad(%2, %", "f32[60,9] matmul" },
    { "with a bias", true, false, false, SW_F32, A *B, 2e-6, "f32[7,9] matmul", "f32[60,9] matmul" },
    { "whose rows are wanted", true, true, false, SW_F32, A *B, 2e-6, "f32[7,9] matmul", "f32[60,9] matmul" },
    { "turned", false, false, true, SW_F32, A *B, 2e-6, "f32[7,40] matmul", "f32[60,40] matmul" },
    { "in bf16", true, false, false, SW_BF16, A *B, 3e-2, "bf16[7,9] matmul", "bf16[60,9] matmul" },
    { "of too few rows", true, false, false, SW_F32, 12, 2e-6, "f32[12,9] matmul", "f32[7,9] matmul" },
};

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s", sw_error());
}

/* x w^T + bias, its square's sum, and the gradients of table, weight and bias. */
static sw_graph *built(const lookup_case *c)
{
    sw_graph *g = NULL;
    ok(sw_graph_new(&g));
    const sw_t table = sw_input(g, "table", SW_F32, 2, (int64_t[]){ ROWS, COLUMNS });
    const sw_t index =
        sw_input(g, "index", SW_I64, 2, (int64_t[]){ c->tokens == A * B ? A : 1, c->tokens == A * B ? B : c->tokens });
    const sw_t w = sw_input(g, "w", SW_F32, 2, (int64_t[]){ WIDTH, COLUMNS }),
               b = sw_input(g, "b", SW_F32, 1, (int64_t[]){ WIDTH });
    const sw_t x = sw_embedding_op(table, index), rows = sw_reshape(x, 2, (int64_t[]){ c->tokens, COLUMNS });
    const sw_t y =
        c->turned ? sw_matmul(w, sw_permute(rows, (int[]){ 1, 0 })) : sw_linear_op(x, w, c->bias ? b : SW_NONE);
    sw_output(y, "y");
    if (c->keeps_rows) sw_output(x, "x");
    const sw_t loss =
        sw_output(sw_sum(sw_mul(y, sw_tanh(y)), SW_AXIS(0) | SW_AXIS(1) | (c->turned ? 0 : SW_AXIS(2)), false), "loss");
    ok(sw_graph_status(g));
    (void)loss;
    return g;
}

static sw_graph *with_gradients(const lookup_case *c)
{
    sw_graph *g = built(c);
    if (c->half != SW_F32) {
        sw_graph *mixed = NULL;
        ok(sw_graph_autocast(g, c->half, &mixed));
        sw_graph_free(g);
        g = mixed;
    }
    const sw_t of[3] = { sw__value(g, g->inputs[0].node), sw__value(g, g->inputs[2].node),
                         sw__value(g, g->inputs[3].node) };
    sw_t d[3];
    ok(sw_grad(sw_graph_output(g, "loss"), of, c->bias ? 3 : 2, d));
    static const char *const names[3] = { "dtable", "dw", "db" };
    for (int i = 0; i < (c->bias ? 3 : 2); i++) sw_output(d[i], names[i]);
    ok(sw_graph_status(g));
    return g;
}

static void fill(sw_program *p, const char *name, int64_t n)
{
    double x[ROWS * COLUMNS + WIDTH * COLUMNS];
    sw__rng r;
    sw__rng_init(&r, 5, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = sw__rng_normal(&r) * 0.3;
    ok(sw_program_set(p, sw_program_input(p, name), SW_F64, x, n));
}

/* All outputs one after another; how many. */
static int64_t outputs_of(const sw_graph *g, sw_device *d, const lookup_case *c, double *out)
{
    sw_program *p = NULL;
    int64_t index[A * B], n = 0;
    ok(sw_compile(g, d, NULL, &p));
    for (int i = 0; i < c->tokens; i++) index[i] = (i * 5 + i / 4) % (ROWS - 1); /* one row is never looked up */
    fill(p, "table", ROWS * COLUMNS);
    fill(p, "w", WIDTH * COLUMNS);
    if (c->bias) fill(p, "b", WIDTH);
    ok(sw_program_set(p, sw_program_input(p, "index"), SW_I64, index, c->tokens));
    for (int run = 0; run < 2; run++) ok(sw_program_run(p));
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        sw_var_info v;
        ok(sw_program_output_info(p, (int)i, &v));
        ok(sw_program_get(p, (int)i, SW_F64, out + n, v.elements));
        n += v.elements;
    }
    index[3] = ROWS; /* is an error still */
    ok(sw_program_set(p, sw_program_input(p, "index"), SW_I64, index, c->tokens));
    assert_int_equal(sw_program_run(p), SW_ERR_DATA);
    sw_program_free(p);
    return n;
}

static void one_case(const lookup_case *c, sw_device *ref, int threads)
{
    static double want[1 << 14], have[1 << 14];
    sw_device *cpu = NULL;
    sw_graph *const exact =
        with_gradients(&(lookup_case){ c->name, c->bias, c->keeps_rows, c->turned, SW_F32, c->tokens, 0, "", "" });
    sw_graph *const g = with_gradients(c);
    ok(sw_device_open("cpu", &(sw_device_options){ .threads = threads }, &cpu));
    const int64_t n = outputs_of(exact, ref, c, want);
    assert_int_equal(outputs_of(g, cpu, c, have), n);
    double largest = 1;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(have[i] - want[i]) <= c->bound * largest))
            fail_msg("%s, %d threads: element %d of %d is %.9g, not %.9g", c->name, threads, (int)i, (int)n, have[i],
                     want[i]);
    sw_graph_free(exact);
    sw_graph_free(g);
    sw_device_close(cpu);
}

static void same_as_row_by_row(void **state)
{
    sw_device *ref = NULL;
    (void)state;
    ok(sw_device_open("ref", NULL, &ref));
    const sw__simd machine = sw__simd_level();
    for (int level = 0; level <= (int)machine; level++) {
        setenv("SWOOP_SIMD", sw__simd_name((sw__simd)level), 1);
        for (size_t i = 0; i < SW_COUNT(cases); i++)
            for (int threads = 1; threads <= 2; threads++) one_case(&cases[i], ref, threads);
    }
    unsetenv("SWOOP_SIMD");
    sw_device_close(ref);
}

static char *after_pass(const lookup_case *c, bool small_tables)
{
    const sw__traits t = { .fuse = true, .views = true, .small_tables = small_tables };
    sw_graph *g = with_gradients(c), *passed = NULL, *out = NULL;
    char *text = NULL;
    ok(sw__pass_lookup(g, &t, &passed));
    ok(sw__pass_simplify(passed, &out));
    ok(sw_graph_print(out, SW_PRINT_TEXT, &text));
    sw_graph_free(g);
    sw_graph_free(passed);
    sw_graph_free(out);
    return text;
}

static void rows_are_multiplied_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        char *const text = after_pass(&cases[i], true), *const left = after_pass(&cases[i], false);
        if (strstr(text, cases[i].has) == NULL) fail_msg("%s: no '%s' in\n%s", cases[i].name, cases[i].has, text);
        if (strstr(text, cases[i].has_not) != NULL) fail_msg("%s: '%s' in\n%s", cases[i].name, cases[i].has_not, text);
        assert_null(strstr(left, cases[i].tokens == A * B ? "[7,9] matmul" : "nothing"));
        sw_string_free(text);
        sw_string_free(left);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_as_row_by_row),
                                        cmocka_unit_test(rows_are_multiplied_once) };
    return cmocka_run_group_tests_name("lookup", tests, NULL, NULL);
}
