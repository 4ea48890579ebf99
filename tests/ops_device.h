/* ops_device.h: the cases of the op tables on one device, in batches of programs that are built together, within
 * their bounds of ref in double. Included by the tests of GPU backends, which open `ref` and `device`. */
#ifndef SW_TESTS_OPS_DEVICE_H
#define SW_TESTS_OPS_DEVICE_H

#include "ops_run.h"

#include "ops_big.h"
#include "ops_move.h"
#include "ops_pointwise.h"

#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

enum { BATCH = 150 };

typedef struct item {
    trial t;
    sw_graph *graph;
    sw_program *program;
    results oracle;
} item;

static sw_device *ref, *device;
static item *batch;
static int n_batch, n_trials;
static verdicts seen;

static void drop(item *i)
{
    sw_program_free(i->program);
    sw_graph_free(i->graph);
    results_free(&i->oracle);
    trial_free(&i->t);
}

static void run_item(item *i)
{
    const double bound = SW_MAX(i->t.c->bound, 1e-5);
    const int before = problems;
    results have = { .n = 0 };
    sw_status st = set_slots(i->program, &i->t);
    if (st == SW_OK) st = sw_program_run(i->program);
    if (st == SW_OK) st = get_results(i->program, i->graph, &have);
    if (st != SW_OK) problem(&i->t, "%s", sw_error());
    else compare(&i->t, sw_device_info(device)->id, &have, &i->oracle, bound);
    judge(&seen, &i->t, before);
    results_free(&have);
}

static void run_batch(void)
{
    for (int k = 0; k < n_batch; k++) {
        if (batch[k].program) run_item(&batch[k]);
        drop(&batch[k]);
    }
    n_batch = 0;
}

/* Types that the device lacks are no failure: it says so. */
static bool lacks_type(const item *i)
{
    for (uint32_t id = 1; id < i->graph->n_nodes; id++)
        if (i->graph->nodes[id].dtype == SW_F64 && strstr(sw_error(), "f64")) return true;
    return false;
}

/* The plain way, with the shapes that the case names. */
static bool is_as_written(const trial *t)
{
    bool same = t->route == PLAIN && t->order == 1;
    for (int i = 0; i < t->n_in; i++)
        same = same && t->in[i].rank == t->c->in[i].rank &&
               memcmp(t->in[i].dim, t->c->in[i].dim, sizeof t->in[i].dim) == 0;
    return same;
}

static bool is_taken(const trial *t)
{
    static int written, others;
    static bool tried[SW_OP_COUNT];
    if (getenv("SWOOP_TEST_ALL")) return true;
    if (getenv("SWOOP_TEST_FEW")) return others++ % 150 == 0; /* tests/gpu/run -q */
    if (!is_as_written(t)) return others++ % 25 == 0;
    const bool first = !tried[t->c->op];
    tried[t->c->op] = true;
    return written++ % 6 == 0 || first;
}

static void collect(trial *t)
{
    if (!is_taken(t)) {
        trial_free(t);
        return;
    }
    static const sw_compile_options raw = { .no_simplify = true, .no_fuse = true }, later = { .build_later = true };
    item *const i = &batch[n_batch++];
    *i = (item){ .t = *t };
    n_trials++;
    if (make_graph(&i->t, false, &i->graph) != SW_OK || run_graph(&i->t, i->graph, ref, &raw, &i->oracle) != SW_OK)
        problem(&i->t, "ref: %s", sw_error());
    else if (sw_compile(i->graph, device, &later, &i->program) != SW_OK && !lacks_type(i))
        problem(&i->t, "%s", sw_error());
    if (n_batch == BATCH) run_batch();
}

static void run_cases(const ops_case *cases, size_t n)
{
    if (!device) skip();
    problems = n_trials = 0;
    const char *const only = getenv("SWOOP_TEST_OP"); /* one op, while working on it */
    for (size_t k = 0; k < n; k++)
        if (!only || strcmp(only, sw__op_table[cases[k].op].name) == 0) each_trial(&cases[k], collect);
    run_batch();
    print_message("%d programs on %s\n", n_trials, sw_device_info(device)->id);
    if (problems > 0) fail_msg("%d problems, printed above", problems);
}

static void test_pointwise(void **state)
{
    (void)state;
    run_cases(pointwise_cases, SW_COUNT(pointwise_cases));
}

static void test_move_reduce_index(void **state)
{
    (void)state;
    run_cases(move_cases, SW_COUNT(move_cases));
}

static void test_big(void **state)
{
    (void)state;
    run_cases(big_cases, SW_COUNT(big_cases));
}

#endif
