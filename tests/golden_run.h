/* golden_run.h: ops, their gradients and second derivatives against PyTorch's numbers (tests/golden/cases.py): on ref with
 * whole ops, on ref with every big op lowered, on the cpu, and on SWOOP_TEST_DEVICE if that is set.
 * A test has a table of golden_case, made with GOLDEN_FUNCTION and GOLDEN_ENTRY, and ends in
 *     GOLDEN_MAIN("ops", golden_cases)          for tests/data/ops.safetensors */
#ifndef GOLDEN_RUN_H
#define GOLDEN_RUN_H

#include "pass/pass.h"
#include "swoop/device.h"
#include "swoop/io.h"

#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define GOLDEN_MAX_IN 13

typedef struct golden_case {
    const char *name;
    int n_in;
    sw_t (*build)(const sw_t *x);
} golden_case;

#define GOLDEN_FUNCTION(name, n, ...)                                                                                  \
    static sw_t golden_##name(const sw_t *x)                                                                           \
    {                                                                                                                  \
        return __VA_ARGS__;                                                                                            \
    }
#define GOLDEN_ENTRY(name, n, ...) { #name, n, golden_##name },

static const golden_case *golden_table;
static size_t golden_n;
static const char *golden_path;
#define MAX_FEEDS (2 * GOLDEN_MAX_IN + 1)

static sw_safetensors *golden_file;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const sw_status ok_ = (call);                                                                                  \
        if (ok_ != SW_OK) fail_msg("%s: %s: %s", #call, sw_status_name(ok_), sw_error());                              \
    } while (0)

static const sw_array *stored(const char *name, const char *key)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, key);
    const sw_safetensors_info *info = sw_safetensors_find(golden_file, full);
    return info ? &info->array : NULL;
}

/* A case as a graph, and which stored tensor feeds which of its inputs. */
typedef struct recorded {
    const golden_case *c;
    sw_graph *graph;
    sw_dtype type; /* of floating-point values */
    const sw_array *feed[MAX_FEEDS];
    char feed_name[MAX_FEEDS][8];
    int n_feeds;
} recorded;

static sw_t feed(recorded *r, const char *prefix, int i)
{
    char *name = r->feed_name[r->n_feeds];
    snprintf(name, sizeof r->feed_name[0], i < 0 ? "%s" : "%s%d", prefix, i);
    const sw_array *a = stored(r->c->name, name);
    if (!a) fail_msg("no tensor %s.%s", r->c->name, name);
    r->feed[r->n_feeds++] = a;
    return sw_input(r->graph, name, a->dtype == SW_F64 ? r->type : a->dtype, a->rank, a->shape);
}

static void output(sw_t value, const char *prefix, int i)
{
    char name[8];
    snprintf(name, sizeof name, i < 0 ? "%s" : "%s%d", prefix, i);
    sw_output(value, name);
}

/* y, g = d<y, dy>/dx and, where they are stored, h = d<g, v>/d(x, dy). */
static void record(recorded *r)
{
    sw_t x[GOLDEN_MAX_IN], wrt[GOLDEN_MAX_IN + 1], g[GOLDEN_MAX_IN], h[GOLDEN_MAX_IN + 1];
    int at[GOLDEN_MAX_IN], n = 0;
    OK(sw_graph_new(&r->graph));
    for (int i = 0; i < r->c->n_in; i++) {
        x[i] = feed(r, "x", i);
        if (r->feed[i]->dtype != SW_F64) continue;
        at[n] = i;
        wrt[n++] = x[i];
    }
    const sw_t y = sw_output(r->c->build(x), "y"), dy = feed(r, "dy", -1);
    OK(sw_grad_from(y, dy, wrt, n, g));
    for (int i = 0; i < n; i++) output(g[i], "g", at[i]);
    if (!stored(r->c->name, "hdy")) return;
    sw_t s = sw_const(r->graph, r->type, 0.0);
    for (int i = 0; i < n; i++) s = sw_add(s, sw_sum(sw_mul(g[i], feed(r, "v", at[i])), SW_ALL_AXES, false));
    wrt[n] = dy;
    OK(sw_grad(s, wrt, n + 1, h));
    for (int i = 0; i < n; i++) output(h[i], "h", at[i]);
    output(h[n], "hdy", -1);
    OK(sw_graph_status(r->graph));
}

/* Largest difference over the largest magnitude; equal infinities and NaN agree. */
static double difference(const double *have, const double *want, int64_t n)
{
    double most = 1e-3, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(want[i])) most = fmax(most, fabs(want[i]));
        if (have[i] == want[i] || (isnan(have[i]) && isnan(want[i]))) continue;
        const double d = fabs(have[i] - want[i]);
        worst = d >= 0 ? fmax(worst, d) : INFINITY;
    }
    return worst / most;
}

static void check(const recorded *r, const sw_graph *graph, sw_device *device, const char *how, double tolerance)
{
    sw_program *p;
    OK(sw_compile(graph, device, NULL, &p));
    for (int i = 0; i < r->n_feeds; i++) {
        const int slot = sw_program_input(p, r->feed_name[i]);
        if (slot < 0) continue; /* a feed that no output needs may be gone */
        OK(sw_program_set(p, slot, r->feed[i]->dtype, r->feed[i]->data, sw_array_count(r->feed[i])));
    }
    OK(sw_program_run(p));
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const char *key = graph->outputs[i].name;
        const sw_array *want = stored(r->c->name, key);
        assert_non_null(want);
        const int64_t n = sw_array_count(want);
        double *have = test_malloc((size_t)n * sizeof *have + 1);
        OK(sw_program_get(p, sw_program_output(p, key), SW_F64, have, n));
        const double off = difference(have, want->data, n);
        if (off > tolerance) fail_msg("%s.%s, %s: off by %g of the largest, allowed %g", r->c->name, key, how, off, tolerance);
        test_free(have);
    }
    sw_program_free(p);
}

static void run_all(const char *id, sw_dtype type, bool lowered, double tolerance)
{
    sw_device *device;
    OK(sw_device_open(id, NULL, &device));
    sw__traits primitives = { .views = false };
    for (int op = 0; op < SW_OP_COUNT; op++) primitives.takes[op] = sw__op_table[op].lower == NULL;
    const size_t each = getenv("SWOOP_TEST_FEW") ? 25 : 1; /* tests/gpu/run -q */
    for (size_t i = 0; i < golden_n; i += each) {
        recorded r = { .c = &golden_table[i], .type = type };
        record(&r);
        sw_graph *low = NULL;
        if (lowered) OK(sw__pass_lower(r.graph, &primitives, &low));
        check(&r, lowered ? low : r.graph, device, lowered ? "lowered" : id, tolerance);
        sw_graph_free(low);
        sw_graph_free(r.graph);
    }
    sw_device_close(device);
}

static void test_ref(void **state)
{
    (void)state;
    run_all("ref", SW_F64, false, 1e-13);
}

static void test_ref_lowered(void **state)
{
    (void)state;
    run_all("ref", SW_F64, true, 1e-13);
}

static void test_cpu(void **state)
{
    (void)state;
    run_all("cpu", SW_F32, false, 1e-5);
}

/* Every stored case is one that is run. */
static void test_complete(void **state)
{
    (void)state;
    size_t results = 0;
    for (size_t i = 0; i < sw_safetensors_count(golden_file); i++) {
        const char *name = sw_safetensors_at(golden_file, i)->name, *dot = strrchr(name, '.');
        results += dot && strcmp(dot, ".y") == 0;
    }
    assert_int_equal(results, golden_n);
}

static int open_file(void **state)
{
    (void)state;
    return sw_safetensors_open(golden_path, &golden_file) == SW_OK ? 0 : -1;
}

static int close_file(void **state)
{
    (void)state;
    sw_safetensors_close(golden_file);
    return 0;
}

static void test_device(void **state)
{
    const char *const id = getenv("SWOOP_TEST_DEVICE");
    (void)state;
    if (id) run_all(id, SW_F32, false, 2e-5);
}

SW_UNUSED static int golden_main(const char *path, const golden_case *table, size_t n)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_ref),
        cmocka_unit_test(test_ref_lowered),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_device),
    };
    golden_path = path;
    golden_table = table;
    golden_n = n;
    return cmocka_run_group_tests(tests, open_file, close_file);
}

#define GOLDEN_MAIN(name, table)                                                                                       \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        return golden_main(SWOOP_TEST_DATA "/data/" name ".safetensors", table, SW_COUNT(table));                      \
    }

#endif
