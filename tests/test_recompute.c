/* test_recompute.c: programs that have to fit into fewer bytes: the same bits as without, in losses, weights, statistics
 * and counters; never more bytes than allowed; cheap steps repeated before products; and what the plan tells of its peak.
 * Every run poisons memory that nobody may read any more (SWOOP_POISON). With SWOOP_TEST_ALL=1 also networks of real size. */
#include "base/base.h"
#include "backend/null/null.h"
#include "exec/exec.h"
#include "pass/sched.h"
#include "swoop/swoop.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static void must(sw_status st)
{
    if (st != SW_OK) fail_msg("%s", sw_error());
}

/* ---- networks ---------------------------------------------------------------------------------------------------- */

/* Pre-norm blocks as of a transformer, with dropout; rows instead of heads, so that the test needs no attention op. */
static sw_t block(sw_t x, int64_t width)
{
    sw_t h = sw_layer_norm(x, .name = NULL);
    const sw_t q = sw_linear(h, width), k = sw_linear(h, width), v = sw_linear(h, width);
    const sw_t score = sw_softmax(sw_mul_scalar(sw_matmul(q, sw_transpose(k, -1, -2)), 0.25), 2);
    x = sw_add(x, sw_dropout(sw_linear(sw_matmul(sw_dropout(score, 0.1), v), width), 0.1));
    h = sw_linear(sw_gelu(sw_linear(sw_layer_norm(x, .name = NULL), 4 * width)), width);
    return sw_add(x, sw_dropout(h, 0.1));
}

static sw_t stack(sw_t x, int blocks)
{
    const int64_t width = sw_dim(x, 2);
    for (int i = 0; i < blocks; i++) x = block(x, width);
    return sw_linear(sw_mean(sw_layer_norm(x, .name = NULL), SW_AXIS(1), false), 10);
}

typedef struct net {
    const char *model; /* NULL: a stack of blocks */
    int blocks, rank;
    int64_t shape[4];  /* the batch first */
    double share;      /* of the arena that is allowed */
    bool tokens;       /* numbers below 50 in, a class for each position out */
    bool free;         /* gradients are not clipped: no update waits for all of them */
    bool total;        /* the share is of all bytes, variables with them */
} net;

#define TOKENS 50

static sw_graph *training_graph(const net *n)
{
    sw_graph *g = NULL;
    must(sw_graph_new(&g));
    sw_graph_set_seed(g, 11);
    const sw_t x = sw_input(g, "x", n->tokens ? SW_I64 : SW_F32, n->rank, n->shape);
    const sw_t y = sw_input(g, "y", SW_I64, n->tokens ? n->rank : 1, n->shape);
    const sw_t out = n->model ? sw_model_build(n->model, x, n->tokens ? TOKENS : 10) : stack(x, n->blocks);
    const sw_t loss = sw_output(sw_cross_entropy(out, y), "loss");
    const double clip = n->free ? 0 : 1;
    must(sw_optimizer_apply(&(sw_optimizer){.kind = SW_ADAMW, .lr = 1e-2, .clip_norm = clip}, loss, NULL, 0));
    return g;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

#define STEPS 3

static void set_scalar(sw_program *p, const char *name, double value)
{
    const int i = sw_program_input(p, name);
    if (i >= 0) must(sw_program_set(p, i, SW_F64, &value, 1));
}

static void set_batch(sw_program *p, const net *n, int step)
{
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) count *= n->shape[i];
    float *const x = malloc((size_t)count * sizeof *x);
    int64_t *const y = malloc((size_t)count * sizeof *y);
    assert_true(x && y);
    sw__rng r;
    sw__rng_init(&r, 5, (uint64_t)step);
    const int64_t labels = n->tokens ? count : n->shape[0];
    for (int64_t i = 0; i < count; i++) x[i] = n->tokens ? (float)sw__rng_below(&r, TOKENS) : (float)sw__rng_normal(&r);
    for (int64_t i = 0; i < labels; i++) y[i] = (int64_t)sw__rng_below(&r, 10);
    must(sw_program_set(p, sw_program_input(p, "x"), SW_F32, x, count));
    must(sw_program_set(p, sw_program_input(p, "y"), SW_I64, y, labels));
    free(x);
    free(y);
}

/* What a device has given away, counted where it is asked for: every allocation that lives, and the most at a time. */
static struct {
    sw__backend table;
    const sw__backend *own;
    struct { void *at; size_t bytes; } live[32];
    size_t now, most;
} count;

static sw_status counted_alloc(void *dev, size_t bytes, void **out)
{
    size_t k = 0;
    const sw_status st = count.own->alloc(dev, bytes, out);
    if (st != SW_OK) return st;
    while (k < SW_COUNT(count.live) && count.live[k].at) k++;
    assert_true(k < SW_COUNT(count.live));
    count.live[k].at = *out;
    count.live[k].bytes = bytes;
    count.now += bytes;
    count.most = SW_MAX(count.most, count.now);
    return SW_OK;
}

static void counted_release(void *dev, void *buffer)
{
    for (size_t k = 0; k < SW_COUNT(count.live); k++)
        if (count.live[k].at == buffer) {
            count.now -= count.live[k].bytes;
            count.live[k].at = NULL;
        }
    count.own->release(dev, buffer);
}

static void count_from_now(sw_device *d)
{
    memset(&count, 0, sizeof count);
    count.own = d->backend;
    count.table = *d->backend;
    count.table.alloc = counted_alloc;
    count.table.release = counted_release;
    d->backend = &count.table;
}

/* All losses and, at the end, every variable, in one array of bits. */
typedef struct trace { float loss[STEPS]; uint8_t *vars; size_t bytes, most; double seconds; } trace;

static void read_vars(sw_params *p, trace *t)
{
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        must(sw_params_info(p, i, &v));
        const size_t bytes = (size_t)v.elements * sw_dtype_size(v.dtype);
        t->vars = realloc(t->vars, t->bytes + bytes + 1);
        assert_non_null(t->vars);
        must(sw_params_get(p, i, v.dtype, t->vars + t->bytes, v.elements));
        t->bytes += bytes;
    }
}

static trace train(sw_device *d, const sw_graph *g, const net *n, uint64_t memory, sw_plan *plan)
{
    trace t = {.seconds = 1e9};
    sw_program *p = NULL;
    sw_params *params = NULL;
    count_from_now(d);
    must(sw_params_new(d, g, 7, &params));
    must(sw_compile(g, d, &(sw_compile_options){.params = params, .memory = memory}, &p));
    *plan = *sw_program_plan(p);
    for (int s = 0; s < STEPS; s++) {
        set_batch(p, n, s);
        set_scalar(p, SW_INPUT_LR, 1e-2);
        set_scalar(p, SW_INPUT_BIAS1, 0.5);
        set_scalar(p, SW_INPUT_BIAS2, 0.5);
        const double start = sw__now();
        must(sw_program_run(p));
        must(sw_program_get(p, sw_program_output(p, "loss"), SW_F32, &t.loss[s], 1));
        t.seconds = SW_MIN(t.seconds, sw__now() - start);
    }
    read_vars(params, &t);
    sw_program_free(p);
    sw_params_free(params);
    assert_int_equal(count.now, 0);
    d->backend = count.own;
    assert_true(count.most <= plan->total && (memory == 0 || count.most <= memory));
    assert_true((double)count.most >= 0.98 * (double)plan->total);
    t.most = count.most;
    return t;
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

static void check_peak(const sw_plan *p)
{
    assert_int_equal(p->peak.activations + p->peak.gradients + p->peak.workspace + p->peak.unused, p->arena);
    assert_true(p->peak.launch >= 0 && p->peak.launch < p->launches);
    assert_true(p->peak.n_largest > 0);
    for (int i = 1; i < p->peak.n_largest; i++) assert_true(p->peak.largest[i].bytes <= p->peak.largest[i - 1].bytes);
}

static int compared;

static void same_bits(const char *device, const net *n, bool report)
{
    sw_device *d = NULL;
    if (sw_device_open(device, NULL, &d) != SW_OK) return; /* not here */
    sw_graph *g = training_graph(n);
    sw_plan without, within;
    must(sw_plan_graph(g, d, NULL, &without));
    assert_int_equal(without.again.launches, 0);
    uint64_t memory = without.total - without.arena + (uint64_t)((double)without.arena * n->share);
    if (n->total) memory = (uint64_t)((double)without.total * n->share);
    if (!report && !n->free) { /* small networks have peaks that nothing helps against */
        assert_int_equal(sw_plan_graph(g, d, &(sw_compile_options){.memory = 1}, &within), SW_ERR_MEMORY);
        memory = SW_MAX(memory, within.total + (within.arena >> 4));
        if (memory >= without.total) {
            sw_graph_free(g);
            sw_device_close(d);
            return;
        }
    }
    compared++;
    trace a = train(d, g, n, 0, &without), b = train(d, g, n, memory, &within);
    assert_true(within.total <= memory);
    assert_true(within.again.launches > 0);
    assert_int_equal(within.launches, without.launches + within.again.launches);
    assert_int_equal(within.again.without, without.total);
    assert_true(within.flops >= without.flops);
    check_peak(&without);
    check_peak(&within);
    assert_memory_equal(a.loss, b.loss, sizeof a.loss);
    assert_int_equal(a.bytes, b.bytes);
    assert_memory_equal(a.vars, b.vars, a.bytes);
    if (report)
        printf("%s %s%s: total %.1f MiB -> %.1f MiB (measured %.1f), arena %.1f MiB -> %.1f MiB, %d of %d launches again "
               "(%d products), flops +%.1f %%, predicted +%.1f %%, measured %.3f s -> %.3f s (%+.1f %%)\n", device,
               n->model ? n->model : "blocks", n->free ? "" : ", clipped", (double)without.total / 1048576,
               (double)within.total / 1048576, (double)b.most / 1048576, (double)without.arena / 1048576,
               (double)within.arena / 1048576, within.again.launches, without.launches, within.again.products,
               100 * within.again.flops / without.flops, 100 * within.again.slower, a.seconds,
               b.seconds, 100 * (b.seconds / a.seconds - 1));
    free(a.vars);
    free(b.vars);
    sw_graph_free(g);
    sw_device_close(d);
}

static const net nets[] = {
    {.model = "resnet8:8,16,32", .rank = 4, .shape = {8, 3, 16, 16}, .share = 0.8},
    {.model = "resnet8:8,8,8,8,8", .rank = 4, .shape = {5, 3, 17, 15}, .share = 0.7},
    {.blocks = 3, .rank = 3, .shape = {3, 7, 16}, .share = 0.7},
    {.blocks = 4, .rank = 3, .shape = {4, 16, 16}, .share = 0.5},
    {.model = "gpt:3x2x16", .rank = 2, .shape = {3, 13}, .share = 0.7, .tokens = true},
};

static void test_same_bits(void **state)
{
    (void)state;
    const char *const devices[] = {"cpu", "ref", "opencl:0"};
    setenv("SWOOP_POISON", "1", 1);
    for (size_t i = 0; i < SW_COUNT(nets); i++)
        for (size_t k = 0; k < SW_COUNT(devices); k++) {
            net n = nets[i];
            if (k == 2 && i > 0 && !getenv("SWOOP_TEST_ALL")) continue; /* its compiler is slow */
            if (k > 0) n.share = SW_MAX(n.share, 0.8); /* other steps, other peaks */
            same_bits(devices[k], &n, false);
        }
    unsetenv("SWOOP_POISON");
    assert_true(compared >= 6); /* cpu and ref are everywhere */
}

/* Half of the arena, and not what a network can just reach. */
static void test_half_small(void **state)
{
    (void)state;
    static const net small[] = {
        {.model = "resnet18:8,8,16,32", .rank = 4, .shape = {16, 3, 24, 24}, .share = 0.5, .free = true},
        {.model = "gpt:4x2x32", .rank = 2, .shape = {8, 64}, .share = 0.5, .free = true, .tokens = true},
    };
    const int before = compared;
    for (size_t i = 0; i < SW_COUNT(small); i++) same_bits("cpu", &small[i], false);
    assert_int_equal(compared, before + 2);
}

/* Half of the arena, or of everything, at sizes at which people train. */
static void test_half(void **state)
{
    (void)state;
    static const net large[] = {
        {.model = "resnet18", .rank = 4, .shape = {32, 3, 32, 32}, .share = 0.5, .free = true},
        {.model = "resnet18", .rank = 4, .shape = {32, 3, 32, 32}, .share = 0.5},
        {.model = "resnet18", .rank = 4, .shape = {64, 3, 32, 32}, .share = 0.5, .free = true},
        {.model = "resnet18", .rank = 4, .shape = {128, 3, 32, 32}, .share = 0.5, .free = true, .total = true},
        {.model = "gpt:micro", .rank = 2, .shape = {16, 128}, .share = 0.5, .tokens = true, .free = true,
         .total = true},
        {.model = "gpt:micro", .rank = 2, .shape = {16, 128}, .share = 0.5, .tokens = true},
        {.blocks = 12, .rank = 3, .shape = {16, 128, 256}, .share = 0.5},
    };
    if (!getenv("SWOOP_TEST_ALL")) skip();
    for (size_t i = 0; i < SW_COUNT(large); i++) {
        same_bits("cpu", &large[i], true);
        same_bits("opencl:0", &large[i], true);
    }
}

/* ---- budgets ----------------------------------------------------------------------------------------------------- */

/* Less and less: within the budget, or the least is told; products are left alone as long as others are enough. */
static void test_budgets(void **state)
{
    (void)state;
    sw_device *d = NULL;
    const net n = {.model = "resnet18:16,32,64,128", .rank = 4, .shape = {32, 3, 32, 32}};
    sw_graph *g = training_graph(&n);
    sw_plan whole, p;
    must(sw_device_open("null", NULL, &d));
    must(sw_plan_graph(g, d, NULL, &whole));
    const uint64_t fixed = whole.total - whole.arena;
    int failed = 0, fitted = 0;
    for (int percent = 95; percent >= 5; percent -= 10) {
        const uint64_t memory = fixed + whole.arena / 100 * (uint64_t)percent;
        const sw_status st = sw_plan_graph(g, d, &(sw_compile_options){.memory = memory}, &p);
        assert_true(st == SW_OK || st == SW_ERR_MEMORY);
        assert_true((st == SW_OK) == (p.total <= memory));
        assert_true(p.total <= whole.total);
        assert_int_equal(p.total - p.arena, fixed);
        if (percent >= 75) assert_int_equal(p.again.products, 0);
        failed += st != SW_OK;
        fitted += st == SW_OK;
        if (st != SW_OK) assert_non_null(strstr(sw_error(), "bytes are allowed"));
        assert_true(percent < 50 || st == SW_OK);
    }
    assert_true(fitted >= 5 && failed >= 1);
    must(sw_plan_graph(g, d, &(sw_compile_options){.memory = whole.total}, &p));
    assert_int_equal(p.again.launches, 0);
    sw_graph_free(g);
    sw_device_close(d);
}

/* Device null checks what every launch touches. */
static void test_null(void **state)
{
    (void)state;
    const uint64_t before = sw__null_faults();
    for (size_t i = 0; i < SW_COUNT(nets); i++) {
        net n = nets[i];
        n.share = 0.8;
        same_bits("null", &n, false);
    }
    assert_int_equal(sw__null_faults(), before);
}

/* ---- parameters in chunks ---------------------------------------------------------------------------------------- */

#define LAYERS 6
#define WIDTH 1024 /* a layer's weight is 4 MiB, so that there are several chunks of 8 */

/* Layers of one width; with what sgd makes of their weights, or else only with the gradients as outputs. */
static sw_graph *layers_graph(bool learn, double clip, sw_t *weights)
{
    sw_graph *g = NULL;
    sw_t grads[LAYERS];
    must(sw_graph_new(&g));
    sw_t x = sw_input(g, "x", SW_F32, 2, (int64_t[]){4, WIDTH});
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        weights[i] = sw_param(g, name, 2, (int64_t[]){WIDTH, WIDTH}, (sw_init){.kind = SW_INIT_NORMAL, .b = 0.03});
        x = sw_tanh(sw_matmul(x, weights[i]));
    }
    const sw_t loss = sw_output(sw_sum(sw_mul(x, x), SW_ALL_AXES, false), "loss");
    const sw_optimizer o = {.kind = SW_SGD, .lr = 0.5, .clip_norm = clip};
    if (learn) must(sw_optimizer_apply(&o, loss, NULL, 0));
    else must(sw_grad(loss, weights, LAYERS, grads));
    for (int i = 0; i < LAYERS && !learn; i++) sw_output(grads[i], sw_name(weights[i]));
    return g;
}

/* Runs a step: out has each weight as it is then; where nothing is learned the gradients, and then the weights. */
static void step_layers(sw_device *d, bool learn, double clip, float **out, sw_plan *plan)
{
    sw_t weights[LAYERS];
    sw_program *p = NULL;
    sw_params *params = NULL;
    sw_graph *const g = layers_graph(learn, clip, weights);
    float x[4 * WIDTH];
    for (int i = 0; i < 4 * WIDTH; i++) x[i] = (float)(i % 29 - 14) / 16;
    must(sw_params_new(d, g, 7, &params));
    must(sw_compile(g, d, &(sw_compile_options){.params = params}, &p));
    *plan = *sw_program_plan(p);
    must(sw_program_set(p, sw_program_input(p, "x"), SW_F32, x, 4 * WIDTH));
    set_scalar(p, SW_INPUT_LR, 0.5);
    must(sw_program_run(p));
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        if (learn) must(sw_params_get(params, sw_params_find(params, name), SW_F32, out[i], WIDTH * WIDTH));
        else must(sw_program_get(p, sw_program_output(p, name), SW_F32, out[i], WIDTH * WIDTH));
    }
    for (int i = 0; i < LAYERS && !learn; i++) must(sw_params_get(params, i, SW_F32, out[LAYERS + i], WIDTH * WIDTH));
    sw_program_free(p);
    sw_params_free(params);
    sw_graph_free(g);
}

/* Each weight is what the definition says, from gradients that were read back; and not all gradients lived at once. */
static void test_chunks(void **state)
{
    (void)state;
    sw_device *d = NULL;
    sw_plan plan, whole;
    float *now[LAYERS], *before[2 * LAYERS];
    must(sw_device_open("cpu", NULL, &d));
    for (int i = 0; i < 2 * LAYERS; i++) assert_non_null(before[i] = malloc(sizeof(float) * WIDTH * WIDTH));
    for (int i = 0; i < LAYERS; i++) assert_non_null(now[i] = malloc(sizeof(float) * WIDTH * WIDTH));
    step_layers(d, false, 0, before, &whole);
    double norm = 0;
    for (int i = 0; i < LAYERS; i++)
        for (int64_t k = 0; k < WIDTH * WIDTH; k++) norm += (double)before[i][k] * before[i][k];
    for (int clipped = 0; clipped < 2; clipped++) {
        const double clip = clipped ? sqrt(norm) / 4 : 0, rate = clipped ? 0.5 / 4 : 0.5;
        double most = 0, moved = 0;
        step_layers(d, true, clip, now, &plan);
        for (int i = 0; i < LAYERS; i++)
            for (int64_t k = 0; k < WIDTH * WIDTH; k++) {
                const double step = rate * before[i][k];
                most = SW_MAX(most, fabs(now[i][k] - (before[LAYERS + i][k] - step)));
                moved = SW_MAX(moved, fabs(step));
            }
        assert_true(moved > 1e-5 && most < 1e-8 + 1e-3 * moved);
        if (!clipped) assert_true(plan.peak.gradients <= (uint64_t)2 * 4 * WIDTH * WIDTH);
        if (!clipped) assert_true(plan.arena <= (uint64_t)3 * 4 * WIDTH * WIDTH);
    }
    for (int i = 0; i < 2 * LAYERS; i++) free(before[i]);
    for (int i = 0; i < LAYERS; i++) free(now[i]);
    sw_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_half_small),
        cmocka_unit_test(test_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
