/* test_ops.c: every op of op.def, forward and gradient: ref's gradients against finite differences in double, each big
 * op against its own lowering, cpu in f32 against ref, null's checks, and that no op of the table goes without a case.
 * The cases are in ops_pointwise.h, ops_move.h and ops_big.h; how one is run is in ops_run.h. */
#include "ops_run.h"

#include "backend/null/null.h"

#include "ops_big.h"
#include "ops_move.h"
#include "ops_pointwise.h"

#include <setjmp.h>
#include <cmocka.h>

static const struct { const ops_case *cases; size_t n; } tables[] = {
    { pointwise_cases, SW_COUNT(pointwise_cases) },
    { move_cases, SW_COUNT(move_cases) },
    { big_cases, SW_COUNT(big_cases) },
};

static sw_device *ref, *cpu, *null;
static bool covered[SW_OP_COUNT];
static verdicts seen; /* of the cpu */

/* ---- against finite differences ---------------------------------------------------------------------------------- */

static sw_status loss_at(sw_program *p, const slot *s, double *out)
{
    SW_TRY(set_slot(p, s));
    SW_TRY(sw_program_run(p));
    return sw_program_get(p, sw_program_output(p, "loss0"), SW_F64, out, 1);
}

/* (loss(x + h) - loss(x - h)) / 2h for element e, improved by the same with 2h: the error is of order h^4. */
static sw_status difference(sw_program *p, const slot *s, int64_t e, double *out)
{
    const double x = s->f[e], h = 1e-4 * SW_MIN(SW_MAX(1.0, fabs(x)), 10.0), steps[4] = { h, -h, 2 * h, -2 * h };
    double loss[4];
    for (int k = 0; k < 4; k++) {
        s->f[e] = x + steps[k];
        const sw_status st = loss_at(p, s, &loss[k]);
        s->f[e] = x;
        SW_TRY(st);
    }
    SW_TRY(set_slot(p, s));
    *out = (8 * (loss[0] - loss[1]) - (loss[2] - loss[3])) / (12 * h);
    return SW_OK;
}

enum { ELEMENTS_TRIED = 10 };

/* gradient: of the loss with respect to slot s, as the graph gives it. */
static void check_gradient(const trial *t, sw_program *p, const slot *s, const result *gradient)
{
    const double scale = SW_MAX(largest_finite(gradient), 1e-3);
    sw__rng rng;
    sw__rng_init(&rng, 5, (uint64_t)s->n);
    for (int64_t k = 0; k < SW_MIN(s->n, ELEMENTS_TRIED); k++) {
        const int64_t e = s->n <= ELEMENTS_TRIED ? k : (int64_t)sw__rng_below(&rng, (uint64_t)s->n);
        double want = 0;
        if (difference(p, s, e, &want) != SW_OK) {
            problem(t, "differences: %s", sw_error());
            return;
        }
        if (fabs(gradient->f[e] - want) <= 1e-6 * scale) continue;
        problem(t, "gradient of %s[%lld] is %.12g, by differences %.12g (scale %g)", s->name, (long long)e,
                gradient->f[e], want, scale);
        return;
    }
}

static void check_differences(trial *t, const results *oracle)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    const bool any = t->n_wrt > 0 && oracle->n > t->n_wrt && oracle->r[oracle->n - 1].name[0] == 'g';
    if (!any || (t->c->flags & NO_DIFFERENCES)) return;
    sw_status st = make_graph(t, true, &g);
    if (st == SW_OK) st = sw_compile(g, ref, &(sw_compile_options){ .no_simplify = true }, &p);
    if (st == SW_OK) st = set_slots(p, t);
    if (st != SW_OK) problem(t, "graph for differences: %s", sw_error());
    for (int k = 0; k < t->n_wrt && st == SW_OK; k++)
        check_gradient(t, p, &t->slots[t->wrt[k]], &oracle->r[oracle->n - t->n_wrt + k]);
    sw_program_free(p);
    sw_graph_free(g);
}

/* ---- against other ways to compute the same ---------------------------------------------------------------------- */

static void check_on(const trial *t, const sw_graph *g, sw_device *d, const char *who, const sw_compile_options *o,
                     const results *oracle, double bound)
{
    results have;
    if (run_graph(t, g, d, o, &have) != SW_OK) problem(t, "%s: %s", who, sw_error());
    else if (d != null) compare(t, who, &have, oracle, bound);
    results_free(&have);
}

/* The graph with every big op replaced by what its lower function makes of it. */
static void check_lowering(const trial *t, const sw_graph *g, const results *oracle)
{
    sw__traits primitives = { .float_storage = SW_F64, .alignment = 64, .compute_units = 1 };
    sw_graph *lowered = NULL;
    bool any = false;
    for (int op = 0; op < SW_OP_COUNT; op++) primitives.takes[op] = !sw__op_table[op].lower;
    for (uint32_t id = 1; id < g->n_nodes; id++) any = any || sw__op_table[g->nodes[id].op].lower;
    if (!any) return;
    if (sw__pass_lower(g, &primitives, &lowered) != SW_OK) {
        problem(t, "lowering: %s", sw_error());
        return;
    }
    for (uint32_t id = 1; id < lowered->n_nodes; id++)
        if (sw__op_table[lowered->nodes[id].op].lower)
            problem(t, "lowering left a %s", sw__op_table[lowered->nodes[id].op].name);
    check_on(t, lowered, ref, "lowered", &(sw_compile_options){ .no_simplify = true }, oracle, 1e-11);
    sw_graph_free(lowered);
}

/* ---- a case ------------------------------------------------------------------------------------------------------ */

static void mark_covered(const trial *t, const sw_graph *g)
{
    bool there = false;
    for (uint32_t id = 1; id < g->n_nodes; id++) there = there || g->nodes[id].op == t->c->op;
    if (there) covered[t->c->op] = true;
    else problem(t, "the case's graph does not have the op");
}

static void run_trial(trial *t)
{
    static const sw_compile_options plain = { 0 }, raw = { .no_simplify = true, .no_fuse = true };
    const double bound = t->c->bound > 0 ? t->c->bound : 2e-6;
    sw_graph *g = NULL;
    results oracle = { .n = 0 };
    if (make_graph(t, false, &g) != SW_OK || run_graph(t, g, ref, &raw, &oracle) != SW_OK) {
        problem(t, "ref: %s", sw_error());
    } else {
        mark_covered(t, g);
        check_differences(t, &oracle);
        check_simplified(t, g, ref, &oracle, 1e-11);
        if (t->order == 1) {
            const int before = problems;
            check_on(t, g, cpu, "cpu", &plain, &oracle, bound);
            judge(&seen, t, before);
            check_on(t, g, cpu, "cpu, neither simplified nor fused", &raw, &oracle, bound);
        }
        if (t->order == 1 && t->route == PLAIN) {
            check_lowering(t, g, &oracle);
            check_on(t, g, null, "null", &plain, &oracle, bound);
        }
    }
    results_free(&oracle);
    sw_graph_free(g);
    trial_free(t);
}

static void run_case(const ops_case *c)
{
    each_trial(c, run_trial);
}

static void run_table(size_t i)
{
    problems = 0;
    for (size_t k = 0; k < tables[i].n; k++) run_case(&tables[i].cases[k]);
    if (problems > 0) fail_msg("%d problems, printed above", problems);
}

static void test_pointwise(void **state)
{
    (void)state;
    run_table(0);
}

static void test_move_reduce_index(void **state)
{
    (void)state;
    run_table(1);
}

static void test_big(void **state)
{
    (void)state;
    run_table(2);
}

static void test_every_op_has_a_case(void **state)
{
    (void)state;
    int missing = 0;
    for (int op = 1; op < SW_OP_COUNT; op++) {
        if (covered[op] || sw__op_table[op].cls == SW_CLASS_OWN) continue; /* a user's: test_custom.c */
        fprintf(stderr, "  no case of tests/ops_*.h has op %s\n", sw__op_table[op].name);
        missing++;
    }
    assert_int_equal(missing, 0);
}

/* ---- indices out of range ---------------------------------------------------------------------------------------- */

static void test_bad_indices(void **state)
{
    (void)state;
    static const ops_case cases[] = {
        { SW_OP_GATHER, "bad", .in = { F32(NORMAL, 5, 3), INDICES(5, 4, 3) } },
        { SW_OP_SCATTER_ADD, "bad", .in = { F32(NORMAL, 5, 3), INDICES(5, 4, 3), F32(NORMAL, 4, 3) } },
        { SW_OP_EMBEDDING, "bad", .in = { F32(NORMAL, 5, 3), INDICES(5, 12) } },
        { SW_OP_EMBEDDING_GRAD, "bad", .in = { FIXED(NORMAL, 12, 3), INDICES(5, 12) } },
        { SW_OP_CROSS_ENTROPY, "bad", .in = { F32(NORMAL, 12, 5), INDICES(5, 12) } },
    };
    sw_device *const devices[] = { ref, cpu };
    for (size_t k = 0; k < SW_COUNT(cases); k++) {
        for (size_t d = 0; d < SW_COUNT(devices); d++) {
            trial t = trial_of(&cases[k], PLAIN, 1);
            sw_graph *g = NULL;
            results r;
            assert_int_equal(sw_graph_new(&g), SW_OK);
            sw_t in[3], source;
            for (int i = 0; i < t.n_in; i++) in[i] = operand_of(&t, g, i, &source);
            if (t.slots[1].i) t.slots[1].i[7] = d == 0 ? 5 : -1;
            const sw_t swapped[2] = { in[1], in[0] };
            const sw__attr rows = { .axis = { .size = 5 } };
            const bool grad = cases[k].op == SW_OP_EMBEDDING_GRAD;
            const sw_t y = sw__node_add(g, cases[k].op, grad ? swapped : in, (uint32_t)t.n_in, &rows, NULL);
            sw_output(sw_named(y, "here"), "y");
            const sw_status st = run_graph(&t, g, devices[d], NULL, &r);
            results_free(&r);
            if (st != SW_ERR_DATA) fail_msg("%s: status %d, %s", sw__op_table[cases[k].op].name, (int)st, sw_error());
            /* a kernel counts positions in its own domain */
            const char *const value = d == 0 ? "5" : "-1", *const position = d == 0 ? "7" : "";
            if (!strstr(sw_error(), "here") || !strstr(sw_error(), value) || !strstr(sw_error(), position))
                fail_msg("%s: the message does not say what was wrong: %s", sw__op_table[cases[k].op].name, sw_error());
            sw_graph_free(g);
            trial_free(&t);
        }
    }
}

/* ---- assigns ----------------------------------------------------------------------------------------------------- */

/* Within a run everything reads the old value; the next run reads the new one. */
static void test_assign(void **state)
{
    (void)state;
    sw_device *const devices[] = { ref, cpu };
    for (size_t d = 0; d < SW_COUNT(devices); d++) {
        sw_graph *g = NULL;
        sw_program *p = NULL;
        assert_int_equal(sw_graph_new(&g), SW_OK);
        const sw_t a = sw_param(g, "a", 1, (int64_t[]){ 3 }, (sw_init){ .kind = SW_INIT_CONSTANT, .a = 1 });
        const sw_t b = sw_param(g, "b", 1, (int64_t[]){ 3 }, (sw_init){ .kind = SW_INIT_CONSTANT, .a = 2 });
        sw_assign(a, b); /* Fibonacci: a, b = b, a + b */
        sw_assign(b, sw_add(a, b));
        sw_output(sw_mul(a, b), "product");
        assert_int_equal(sw_compile(g, devices[d], NULL, &p), SW_OK);
        double fa = 1, fb = 2;
        for (int i = 0; i < 10; i++) {
            double y[3];
            assert_int_equal(sw_program_run(p), SW_OK);
            assert_int_equal(sw_program_get(p, 0, SW_F64, y, 3), SW_OK);
            for (int k = 0; k < 3; k++) assert_true(y[k] == fa * fb);
            const double sum = fa + fb;
            fa = fb;
            fb = sum;
        }
        sw_program_free(p);
        sw_graph_free(g);
    }
}

static int open_devices(void **state)
{
    (void)state;
    if (sw_device_open("ref", NULL, &ref) != SW_OK || sw_device_open("cpu", NULL, &cpu) != SW_OK ||
        sw_device_open("null", NULL, &null) != SW_OK) {
        fprintf(stderr, "%s\n", sw_error());
        return 1;
    }
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    write_verdicts(&seen, "cpu");
    sw_device_close(ref);
    sw_device_close(cpu);
    sw_device_close(null);
    const unsigned long long faults = sw__null_faults();
    if (faults > 0) fprintf(stderr, "device null found %llu faults\n", faults);
    return faults > 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise),           cmocka_unit_test(test_move_reduce_index),
        cmocka_unit_test(test_big),                 cmocka_unit_test(test_every_op_has_a_case),
        cmocka_unit_test(test_bad_indices),         cmocka_unit_test(test_assign),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
