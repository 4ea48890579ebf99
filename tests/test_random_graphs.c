/* test_random_graphs.c: graphs of random ops on random shapes, with gradients and assigns: ref, cpu (fused and not) and
 * null must agree. What no test of a single op sees: fusing across views, memory taken over, order, joins in place. */
#include "ops_run.h"

#include "backend/null/null.h"

#include <setjmp.h>
#include <cmocka.h>

#define GRAPHS 300
#define MAX_NODES 48

typedef struct builder {
    sw__rng rng;
    trial *t;
    sw_graph *g;
    sw_t node[MAX_NODES];
    int n;
    bool smooth; /* gradients will be taken: nothing with a kink */
} builder;

static int64_t below(builder *b, int64_t n)
{
    return (int64_t)sw__rng_below(&b->rng, (uint64_t)n);
}

static sw_t pick(builder *b)
{
    return b->node[below(b, b->n)];
}

/* Values are kept near 1, so that errors stay comparable through many ops. */
static sw_t tame(sw_t x)
{
    return sw_tanh(sw_mul_scalar(x, 0.7));
}

static int random_axis(builder *b, sw_t x)
{
    return (int)below(b, sw_rank(x));
}

/* ---- kinds of nodes; each returns an invalid value without error if it does not apply ---------------------------- */

static sw_t new_input(builder *b)
{
    static const int64_t sizes[] = { 1, 2, 3, 4, 5, 8, 17 };
    int64_t dim[4];
    const int rank = 1 + (int)below(b, 4);
    for (int i = 0; i < rank; i++) dim[i] = sizes[below(b, rank > 2 ? 5 : 7)];
    const operand o = { .fill = NORMAL, .type = SW_F32 };
    char name[16];
    snprintf(name, sizeof name, "x%d", b->t->n_slots);
    slot_for(b->t, name, SW_F32, rank, dim, &o, 0);
    return sw_input(b->g, name, SW_F32, rank, dim);
}

static sw_t unary(builder *b)
{
    const sw_t x = pick(b);
    switch (below(b, b->smooth ? 7 : 9)) {
    case 0: return sw_neg(x);
    case 1: return sw_exp(tame(x));
    case 2: return sw_tanh(x);
    case 3: return sw_erf(x);
    case 4: return sw_sin(x);
    case 5: return sw_sqrt(sw_add_scalar(sw_square(x), 0.5));
    case 6: return sw_sigmoid(x);
    case 7: return sw_relu(x);
    default: return sw_abs(x);
    }
}

/* A value that broadcasts with x: one there is, x's own mean, or a constant. */
static sw_t partner(builder *b, sw_t x)
{
    for (int tries = 0; tries < 6; tries++) {
        const sw_t y = pick(b);
        bool fits = true;
        for (int i = 1; i <= sw_rank(x) && i <= sw_rank(y); i++)
            fits = fits && (sw_dim(x, -i) == sw_dim(y, -i) || sw_dim(x, -i) == 1 || sw_dim(y, -i) == 1);
        if (fits && sw_elements(x) * sw_elements(y) < 100000) return y;
    }
    return below(b, 2) ? sw_mean(x, SW_AXIS(random_axis(b, x)), true) : sw_const(b->g, SW_F32, 0.75);
}

static sw_t binary(builder *b)
{
    const sw_t x = pick(b), y = partner(b, x);
    switch (below(b, b->smooth ? 5 : 8)) {
    case 0: return sw_add(x, y);
    case 1: return sw_sub(y, x);
    case 2: return tame(sw_mul(x, y));
    case 3: return sw_div(x, sw_add_scalar(sw_square(y), 1));
    case 4: return sw_add(sw_mul_scalar(x, 0.3), sw_square(tame(y)));
    case 5: return sw_max(x, y);
    case 6: return sw_min(y, x);
    default: {
        const sw_t sum = sw_add(x, y); /* one shape for all three */
        return sw_where(sw_lt(sum, sw_mul_scalar(sum, 0)), sum, sw_add(sw_mul_scalar(sum, 0), x));
    }
    }
}

static sw_t permute(builder *b)
{
    const sw_t x = pick(b);
    if (sw_rank(x) < 2) return SW_NONE;
    return sw_transpose(x, random_axis(b, x), random_axis(b, x));
}

static sw_t reshape(builder *b)
{
    const sw_t x = pick(b);
    const int64_t n = sw_elements(x), first = below(b, 2) ? sw_dim(x, 0) : SW_MAX(sw_dim(x, -1), 1);
    if (below(b, 3) == 0) return sw_reshape(x, 3, (int64_t[]){ first, 1, n / first });
    return sw_reshape(x, 2, (int64_t[]){ first, n / first });
}

static sw_t slice(builder *b)
{
    const sw_t x = pick(b);
    int64_t start[SW_MAX_RANK], stop[SW_MAX_RANK], step[SW_MAX_RANK];
    for (int i = 0; i < sw_rank(x); i++) {
        start[i] = below(b, SW_MIN(sw_dim(x, i), 2));
        stop[i] = sw_dim(x, i);
        step[i] = 1 + below(b, 2);
    }
    return sw_slice(x, start, stop, step);
}

static sw_t pad(builder *b)
{
    const sw_t x = pick(b);
    int64_t lo[SW_MAX_RANK], hi[SW_MAX_RANK], interior[SW_MAX_RANK];
    for (int i = 0; i < sw_rank(x); i++) {
        lo[i] = below(b, 2);
        hi[i] = below(b, 3);
        interior[i] = below(b, 6) == 0;
    }
    return sw_elements(x) > 2000 ? SW_NONE : sw_pad(x, lo, hi, interior, 0.25);
}

static sw_t concat(builder *b)
{
    const sw_t x = pick(b), parts[3] = { x, tame(x), pick(b) };
    const int axis = random_axis(b, x);
    bool third = sw_rank(parts[2]) == sw_rank(x);
    for (int i = 0; third && i < sw_rank(x); i++) third = i == axis || sw_dim(parts[2], i) == sw_dim(x, i);
    return sw_elements(x) > 4000 ? SW_NONE : sw_concat(parts, third ? 3 : 2, axis);
}

static sw_t expand(builder *b)
{
    const sw_t x = pick(b);
    if (sw_rank(x) > 3 || sw_elements(x) > 1000) return SW_NONE;
    int64_t dim[SW_MAX_RANK] = { 2 + below(b, 3) };
    for (int i = 0; i < sw_rank(x); i++) dim[i + 1] = sw_dim(x, i) == 1 ? 1 + below(b, 4) : sw_dim(x, i);
    return sw_expand(x, sw_rank(x) + 1, dim);
}

static sw_t reduce(builder *b)
{
    const sw_t x = pick(b);
    const uint32_t axes = (uint32_t)below(b, (int64_t)1 << sw_rank(x));
    const bool keep = below(b, 2) || axes == (1u << sw_rank(x)) - 1;
    if (b->smooth || below(b, 2)) return sw_mean(x, axes, keep);
    return below(b, 2) ? sw_reduce_max(x, axes, keep) : sw_reduce_min(x, axes, keep);
}

static sw_t row_op(builder *b)
{
    const sw_t x = pick(b);
    const int axis = random_axis(b, x);
    switch (below(b, b->smooth ? 4 : 5)) {
    case 0: return sw_softmax(x, axis);
    case 1: return sw_log_softmax(x, axis);
    case 2: return sw_mul_scalar(sw_cumsum(x, axis, below(b, 2) == 0), 1.0 / (double)sw_dim(x, axis));
    case 3: return tame(sw_layer_norm_op(sw_add(x, sw_iota(b->g, SW_F32, 1, (int64_t[]){ sw_dim(x, -1) }, 0)), SW_NONE,
                                         SW_NONE, 1, 0.1));
    default: return sw_sort(x, axis, below(b, 2) == 0);
    }
}

static sw_t contract(builder *b)
{
    const sw_t x = pick(b);
    if (sw_rank(x) < 2) return SW_NONE;
    const sw_t y = below(b, 2) ? sw_transpose(x, sw_rank(x) - 2, sw_rank(x) - 1)
                               : sw_copy(sw_transpose(tame(x), sw_rank(x) - 2, sw_rank(x) - 1));
    const sw_t product = sw_matmul(x, y);
    return below(b, 2) && !b->smooth ? sw_relu(tame(product)) : tame(product);
}

static sw_t indexed(builder *b)
{
    const sw_t x = pick(b);
    const int rank = sw_rank(x), axis = random_axis(b, x);
    int64_t dim[SW_MAX_RANK];
    for (int i = 0; i < rank; i++) dim[i] = sw_dim(x, i);
    const sw_t k = sw_iota(b->g, SW_I64, rank, dim, axis), size = sw_const(b->g, SW_I64, (double)dim[axis]);
    const sw_t index = sw_mod(sw_add(sw_mul(k, sw_const(b->g, SW_I64, 3)), sw_const(b->g, SW_I64, 1)), size);
    if (below(b, 2)) return sw_gather(x, index, axis);
    return tame(sw_scatter_add(tame(x), index, x, axis));
}

static sw_t (*const kinds[])(builder *) = {
    unary, unary, unary, binary, binary, binary, binary, permute, reshape, slice,
    pad, concat, expand, reduce, reduce, row_op, contract, indexed, new_input,
};

/* ---- a graph ----------------------------------------------------------------------------------------------------- */

static void update_variable(builder *b)
{
    const sw_t x = pick(b);
    int64_t dim[SW_MAX_RANK];
    for (int i = 0; i < sw_rank(x); i++) dim[i] = sw_dim(x, i);
    const sw_init normal = { .kind = SW_INIT_NORMAL, .b = 1 };
    const sw_t v = sw_variable(b->g, "v", SW_VAR_STATE, SW_F32, sw_rank(x), dim, normal);
    sw_assign(v, sw_add(sw_mul_scalar(v, 0.9), x));
    b->node[b->n++] = sw_add(v, sw_mul_scalar(x, 0.5));
}

static void outputs_and_gradients(builder *b)
{
    sw_t wrt[4], gradient[4], loss = SW_NONE;
    int n_wrt = 0;
    for (int k = 0; k < 4; k++) {
        const sw_t y = k == 0 ? b->node[b->n - 1] : pick(b);
        const sw_t part = sw_mean(sw_square(y), SW_ALL_AXES, false);
        give(y, "y", k);
        loss = k == 0 ? part : sw_add(loss, part);
    }
    give(loss, "loss", 0);
    for (uint32_t i = 0; i < b->g->n_inputs && n_wrt < 4; i++) wrt[n_wrt++] = sw__value(b->g, b->g->inputs[i].node);
    if (!b->smooth || sw_grad(loss, wrt, n_wrt, gradient) != SW_OK) return;
    for (int k = 0; k < n_wrt; k++) give(gradient[k], "g", k);
}

static sw_graph *random_graph(trial *t, uint64_t seed)
{
    builder b = { .t = t, .smooth = seed % 2 == 0 };
    sw__rng_init(&b.rng, seed, 11);
    assert_int_equal(sw_graph_new(&b.g), SW_OK);
    b.node[b.n++] = new_input(&b);
    b.node[b.n++] = new_input(&b);
    const int wanted = 6 + (int)below(&b, MAX_NODES - 10);
    while (b.n < wanted && t->n_slots < MAX_SLOTS - 1) {
        const sw_t x = kinds[below(&b, SW_COUNT(kinds))](&b);
        if (!sw_valid(x) && sw_graph_status(b.g) != SW_OK) break;
        if (sw_valid(x) && sw_rank(x) > 0 && sw_rank(x) < 5 && sw_elements(x) > 0 && sw_elements(x) < 20000)
            b.node[b.n++] = x;
    }
    if (sw_graph_status(b.g) == SW_OK && below(&b, 3) == 0) update_variable(&b);
    if (sw_graph_status(b.g) == SW_OK) outputs_and_gradients(&b);
    return b.g;
}

static sw_device *ref, *cpu, *null;

/* How far each output moves, in double, when every input is off by the last bit of a float: some graphs amplify it. */
static void measure_noise(trial *t, const sw_graph *g, const results *want, double *noise)
{
    results moved = { .n = 0 };
    for (int i = 0; i < t->n_slots; i++) {
        for (int64_t e = 0; t->slots[i].f && e < t->slots[i].n; e++)
            t->slots[i].f[e] *= 1 + (e % 2 == 0 ? 0x1p-23 : -0x1p-23);
    }
    if (run_graph(t, g, ref, NULL, &moved) != SW_OK) problem(t, "ref: %s", sw_error());
    for (int k = 0; k < moved.n; k++) {
        const double *const a = moved.r[k].f, *const b = want->r[k].f;
        noise[k] = 0;
        for (int64_t e = 0; a && b && e < want->r[k].n; e++) noise[k] = SW_MAX(noise[k], fabs(a[e] - b[e]));
    }
    for (int i = 0; i < t->n_slots; i++)
        for (int64_t e = 0; t->slots[i].f && e < t->slots[i].n; e++)
            t->slots[i].f[e] = (double)(float)(t->slots[i].f[e] / (1 + (e % 2 == 0 ? 0x1p-23 : -0x1p-23)));
    results_free(&moved);
}

/* Every output within 1e-4 of its largest element (or of 0.1), and 200 times the noise. */
static void compare_noisy(const trial *t, const char *who, const results *have, const results *want,
                          const double *noise)
{
    for (int k = 0; k < want->n; k++) {
        const double bound = 1e-4 * SW_MAX(largest_finite(&want->r[k]), 0.1) + 200 * noise[k];
        for (int64_t e = 0; e < want->r[k].n; e++) {
            const double a = have->r[k].f[e], b = want->r[k].f[e];
            if (fabs(a - b) <= bound || (isnan(a) && isnan(b))) continue;
            problem(t, "%s: %s[%lld] is %.9g, not %.9g (bound %g)", who, want->r[k].name, (long long)e, a, b, bound);
            break;
        }
    }
}

static void run_seed(uint64_t seed)
{
    static const sw_compile_options plain = { 0 }, raw = { .no_simplify = true, .no_fuse = true },
                                    unfused = { .no_fuse = true }, unsimplified = { .no_simplify = true };
    static const struct { const sw_compile_options *o; const char *who; } ways[] = {
        { &plain, "cpu" }, { &raw, "cpu, raw" }, { &unfused, "cpu, not fused" },
        { &unsimplified, "cpu, not simplified" },
    };
    char name[32];
    snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
    const ops_case c = { SW_OP_INPUT, name, .flags = 0 };
    trial t = { .c = &c, .order = 1 };
    results want, have;
    double noise[MAX_RESULTS] = { 0 };
    sw_graph *const g = random_graph(&t, seed);
    if (run_graph(&t, g, ref, &raw, &want) != SW_OK) problem(&t, "ref: %s", sw_error());
    if (want.n > 0) measure_noise(&t, g, &want, noise);
    for (size_t i = 0; i < SW_COUNT(ways) && want.n > 0; i++) {
        if (run_graph(&t, g, cpu, ways[i].o, &have) != SW_OK) problem(&t, "%s: %s", ways[i].who, sw_error());
        else compare_noisy(&t, ways[i].who, &have, &want, noise);
        results_free(&have);
    }
    setenv("SWOOP_POISON", "1", 1); /* what is read after its end, or beside, is NaN */
    if (want.n > 0 && run_graph(&t, g, cpu, &plain, &have) != SW_OK) problem(&t, "cpu, poisoned: %s", sw_error());
    else if (want.n > 0) compare_noisy(&t, "cpu, poisoned", &have, &want, noise);
    if (want.n > 0) results_free(&have);
    unsetenv("SWOOP_POISON");
    if (want.n > 0) check_simplified(&t, g, ref, &want, 1e-5);
    if (run_graph(&t, g, null, &plain, &have) != SW_OK) problem(&t, "null: %s", sw_error());
    results_free(&have);
    results_free(&want);
    sw_graph_free(g);
    trial_free(&t);
}

static void test_graphs(void **state)
{
    (void)state;
    const char *const one = getenv("SWOOP_TEST_SEED");
    problems = 0;
    if (one) run_seed(strtoull(one, NULL, 10));
    for (uint64_t seed = 1; seed <= GRAPHS && !one; seed++) run_seed(seed);
    if (problems > 0) fail_msg("%d problems, printed above (SWOOP_TEST_SEED=n runs one)", problems);
}

static int open_devices(void **state)
{
    (void)state;
    return sw_device_open("ref", NULL, &ref) != SW_OK || sw_device_open("cpu", NULL, &cpu) != SW_OK ||
           sw_device_open("null", NULL, &null) != SW_OK;
}

static int close_devices(void **state)
{
    (void)state;
    sw_device_close(ref);
    sw_device_close(cpu);
    sw_device_close(null);
    return sw__null_faults() > 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_graphs) };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
