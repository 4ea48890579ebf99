/* test_recurrent_bf16.c: lstm, gru and rnn on bf16 tensors on the cpu, forward and gradients, beside ref in double:
 * with the machine's dot products of bf16, where it has them, and without (SWOOP_SIMD), at one thread and at several.
 */
#include "base/base.h"
#include "graph/recurrent.h"
#include "kernel/cpuid.h"
#include "swoop/swoop.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MOST = 1 << 18 };

typedef struct layer {
    const char *name;
    sw__op op;
    int64_t batch, steps, hidden, state; /* state: hidden, or the projection's size */
    bool reverse, relu, lengths;
} layer;

/* Odd sizes, more columns than a panel, more rows than a tile, more pairs than a block. */
static const layer layers[] = {
    { "lstm", SW_OP_LSTM, 3, 4, 8, 8, false, false, false },
    { "lstm of odd sizes", SW_OP_LSTM, 5, 3, 13, 13, true, false, false },
    { "lstm with lengths", SW_OP_LSTM, 17, 5, 20, 20, false, false, true },
    { "lstm with a projection", SW_OP_LSTM, 4, 4, 9, 5, true, false, true },
    { "large lstm", SW_OP_LSTM, 16, 2, 136, 136, false, false, false },
    { "gru", SW_OP_GRU, 5, 4, 18, 18, false, false, true },
    { "gru of odd sizes", SW_OP_GRU, 33, 3, 11, 11, true, false, false },
    { "rnn", SW_OP_RNN, 6, 5, 35, 35, false, false, true },
    { "rnn with relu", SW_OP_RNN, 2, 4, 7, 7, true, true, false },
};

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s", sw_error());
}

static sw_t half_input(sw_graph *g, const char *name, int rank, int64_t a, int64_t b, int64_t c)
{
    return sw_cast(sw_input(g, name, SW_F32, rank, (int64_t[]){ a, b, c }), SW_BF16);
}

/* All results and, behind them, the gradients of a weighted sum of them with respect to every operand. */
static sw_graph *build(const layer *l)
{
    sw_graph *g = NULL;
    ok(sw_graph_new(&g));
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    const bool lstm = l->op == SW_OP_LSTM, projects = l->state != l->hidden;
    const int64_t rows = l->hidden * (lstm ? 4 : l->op == SW_OP_GRU ? 3 : 1);
    attr.recurrent.reverse = l->reverse;
    attr.recurrent.relu = l->relu;
    attr.recurrent.proj = projects;
    attr.recurrent.lengths = l->lengths;
    attr.recurrent.hidden = l->hidden;
    attr.recurrent.state = l->state;
    sw_t in[7];
    uint32_t n = 0;
    in[n++] = half_input(g, "gates", 3, l->batch, l->steps, rows);
    in[n++] = half_input(g, "weight", 2, rows, l->state, 0);
    in[n++] = half_input(g, "bias", 1, rows, 0, 0);
    in[n++] = half_input(g, "h0", 2, l->batch, l->state, 0);
    if (lstm) in[n++] = half_input(g, "c0", 2, l->batch, l->hidden, 0);
    if (projects) in[n++] = half_input(g, "proj", 2, l->state, l->hidden, 0);
    const uint32_t floats = n;
    if (l->lengths) in[n++] = sw_input(g, "lengths", SW_I64, 1, &l->batch);
    const sw_t y = sw__node_add(g, l->op, in, n, &attr, NULL);
    sw_t sum = SW_NONE, d[7];
    for (int k = 0; k <= (lstm ? 2 : 1); k++) {
        static const char *const names[] = { "y", "h_n", "c_n" };
        const sw_t out = sw_reshape(sw_cast(sw__output_of(y, k), SW_F32), 1, (int64_t[]){ -1 });
        const sw_t weights = sw_sin(sw_cast(sw_iota(g, SW_I32, 1, (int64_t[]){ sw_dim(out, 0) }, 0), SW_F32));
        const sw_t share = sw_sum(sw_mul(out, weights), SW_AXIS(0), false);
        sum = sw_valid(sum) ? sw_add(sum, share) : share;
        sw_output(out, names[k]);
    }
    ok(sw_graph_status(g));
    ok(sw_grad(sum, in, (int)floats, d));
    for (uint32_t i = 0; i < floats; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%u", i);
        sw_output(sw_cast(d[i], SW_F32), name);
    }
    ok(sw_graph_status(g));
    return g;
}

/* The outputs one after another, each divided by its largest value in `scale` (or by its own, which goes there). */
static int64_t outputs(const layer *l, const sw_graph *g, sw_device *d, double *out, double *scale, bool own)
{
    sw_program *p = NULL;
    int64_t n = 0;
    ok(sw_compile(g, d, NULL, &p));
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        static double x[MOST];
        int64_t lengths[64], count = 1;
        const sw__node *const node = &g->nodes[g->inputs[i].node];
        sw__rng r;
        for (int k = 0; k < node->rank; k++) count *= node->dim[k];
        for (int64_t k = 0; k < l->batch; k++) lengths[k] = k * 7 % (l->steps + 1);
        sw__rng_init(&r, 3, i);
        /* what bf16 can say, so that ref computes with the same numbers */
        for (int64_t k = 0; k < count; k++)
            x[k] = (double)sw__bf16_to_f32(sw__f32_to_bf16((float)sw__rng_normal(&r) * 0.4f));
        const bool whole = node->dtype == SW_I64;
        ok(sw_program_set(p, (int)i, whole ? SW_I64 : SW_F64, whole ? (void *)lengths : (void *)x, count));
    }
    ok(sw_program_run(p));
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        sw_var_info v;
        ok(sw_program_output_info(p, (int)i, &v));
        ok(sw_program_get(p, (int)i, SW_F64, out + n, v.elements));
        if (own) scale[i] = 1e-3;
        for (int64_t k = 0; own && k < v.elements; k++) scale[i] = fmax(scale[i], fabs(out[n + k]));
        for (int64_t k = 0; k < v.elements; k++) out[n + k] /= scale[i];
        n += v.elements;
    }
    sw_program_free(p);
    return n;
}

static void beside_ref(const char *level)
{
    static double want[MOST], have[MOST], again[MOST];
    double scale[16];
    sw_device *ref = NULL, *cpu[2] = { NULL };
    if (level != NULL) setenv("SWOOP_SIMD", level, 1);
    ok(sw_device_open("ref", NULL, &ref));
    for (int t = 0; t < 2; t++) ok(sw_device_open("cpu", &(sw_device_options){ .threads = t == 0 ? 1 : 3 }, &cpu[t]));
    for (size_t i = 0; i < SW_COUNT(layers); i++) {
        sw_graph *const g = build(&layers[i]);
        const int64_t n = outputs(&layers[i], g, ref, want, scale, true);
        for (int t = 0; t < 2; t++) {
            assert_int_equal(outputs(&layers[i], g, cpu[t], t == 0 ? have : again, scale, false), n);
            for (int64_t k = 0; k < n; k++)
                if (!(fabs((t == 0 ? have : again)[k] - want[k]) <= 0.02))
                    fail_msg("%s, %s: element %d is %g, not %g", layers[i].name, level != NULL ? level : "best", (int)k,
                             have[k], want[k]);
        }
        sw_graph_free(g);
    }
    for (int t = 0; t < 2; t++) sw_device_close(cpu[t]);
    sw_device_close(ref);
    unsetenv("SWOOP_SIMD");
}

static void on_this_machine(void **state)
{
    (void)state;
    beside_ref(NULL);
}

static void on_every_level(void **state)
{
    (void)state;
    const int machine = (int)sw__simd_level();
    for (int level = 0; level <= machine; level++) beside_ref(sw__simd_name((sw__simd)level));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(on_this_machine), cmocka_unit_test(on_every_level) };
    return cmocka_run_group_tests_name("recurrent_bf16", tests, NULL, NULL);
}
