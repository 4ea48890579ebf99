/* test_pass_schedule.c: from graph to steps: what shares a kernel, what is written in place, where copies are needed,
 * how much memory the plan takes, how long it takes to make. Numbers are test_pass_random.c's business. */
#include "graph/build.h"
#include "pass/sched.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define DIMS(...) (const int64_t[]){__VA_ARGS__}
#define SHAPE(...) (int)(sizeof(DIMS(__VA_ARGS__)) / sizeof(int64_t)), DIMS(__VA_ARGS__)

typedef struct made {
    sw_graph *g;
    sw__schedule *s;
    int kernels, copies, ops;
} made;

static bool accepts(void *ctx, const sw__op_desc *d, int i)
{
    (void)ctx;
    const int64_t *s = &d->in[i].stride[d->in[i].rank - 2];
    return d->op == SW_OP_MATMUL && (s[0] == 1 || s[1] == 1); /* plain or transposed matrices */
}

static sw__traits traits(void)
{
    sw__traits t = {.fuse = true, .views = true, .alignment = 64, .compute_units = 2};
    const int whole[] = {SW_OP_MATMUL, SW_OP_CONV, SW_OP_CONV_GRAD_X, SW_OP_CONV_GRAD_W, SW_OP_MAX_POOL,
                         SW_OP_MAX_POOL_GRAD};
    for (size_t i = 0; i < SW_COUNT(whole); i++) t.takes[whole[i]] = t.channels_last[whole[i]] = true;
    t.bias_act[SW_OP_MATMUL] = t.bias_act[SW_OP_CONV] = true;
    return t;
}

static void must(sw_status st)
{
    if (st != SW_OK) fail_msg("%s", sw_error());
}

static void then(sw_graph **g, sw_graph *next)
{
    sw_graph_free(*g);
    *g = next;
}

/* All passes; g is freed. */
static made make(sw_graph *g, bool no_fuse)
{
    const sw__traits t = traits();
    const sw__asks a = {.op_accepts = accepts, .no_fuse = no_fuse};
    made m = {.g = NULL};
    sw_graph *next = NULL;
    must(sw_graph_status(g));
    must(sw__pass_simplify(g, &m.g));
    must(sw__pass_lower(m.g, &t, &next));
    then(&m.g, next);
    must(sw__pass_simplify(m.g, &next));
    then(&m.g, next);
    must(sw__pass_epilogue(m.g, &t, &next));
    then(&m.g, next);
    must(sw__pass_layout(m.g, &t, &next));
    then(&m.g, next);
    must(sw__schedule_build(m.g, &t, &a, &m.s));
    must(sw__plan_memory(m.s, &t));
    for (uint32_t i = 0; i < m.s->n_steps; i++) {
        const sw__step *s = &m.s->steps[i];
        *(s->kind == SW_STEP_OP ? &m.ops : s->copy ? &m.copies : &m.kernels) += 1;
    }
    uint32_t x, y;
    assert_true(sw__plan_check(m.s, &x, &y));
    sw_graph_free(g);
    return m;
}

static void done(made m)
{
    sw__schedule_free(m.s);
    sw_graph_free(m.g);
}

static void counts(made m, int kernels, int copies, int ops)
{
    if (m.kernels != kernels || m.copies != copies || m.ops != ops) {
        sw__text t = {0};
        sw__schedule_print(m.s, &t);
        fprintf(stderr, "%s", t.s);
        sw__text_free(&t);
        fail_msg("%d kernels, %d copies, %d ops, not %d, %d, %d", m.kernels, m.copies, m.ops, kernels, copies, ops);
    }
}

static sw_graph *new_graph(void)
{
    sw_graph *g = NULL;
    must(sw_graph_new(&g));
    return g;
}

static sw_t input(sw_graph *g, const char *name, int rank, const int64_t *dim)
{
    return sw_input(g, name, SW_F32, rank, dim);
}

static const sw__kernel *kernel_of(made m, int n)
{
    for (uint32_t i = 0; i < m.s->n_steps; i++)
        if (m.s->steps[i].kind == SW_STEP_KERNEL && !m.s->steps[i].copy && n-- == 0) return m.s->steps[i].kernel;
    fail_msg("there is no such kernel");
    return NULL;
}

/* ---- fusion ------------------------------------------------------------------------------------------------------ */

static void test_rows(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    sw_output(sw_softmax(sw_mul_scalar(input(g, "x", SHAPE(64, 100)), 2), 1), "y");
    made m = make(g, false);
    counts(m, 1, 0, 0);
    assert_int_equal(kernel_of(m, 0)->skeleton, SW_SKEL_ROW);
    assert_int_equal(kernel_of(m, 0)->phases, 3);
    done(m);
    /* loss and its gradient: one kernel over rows, then the mean */
    g = new_graph();
    const sw_t x = input(g, "x", SHAPE(64, 100)), t = sw_input(g, "t", SW_I64, SHAPE(64));
    const sw_t loss = sw_cross_entropy(x, t);
    sw_t dx;
    must(sw_grad(loss, &x, 1, &dx));
    sw_output(loss, "loss");
    sw_output(dx, "dx");
    m = make(g, false);
    counts(m, 2, 0, 0);
    assert_int_equal(kernel_of(m, 0)->skeleton, SW_SKEL_ROW);
    assert_int_equal(kernel_of(m, 1)->skeleton, SW_SKEL_FULL);
    done(m);
    g = new_graph();
    sw_output(sw_layer_norm_op(input(g, "x", SHAPE(64, 4, 25)), SW_NONE, SW_NONE, 2, 1e-5), "y");
    m = make(g, false);
    counts(m, 1, 0, 0);
    assert_int_equal(kernel_of(m, 0)->rank, 2);
    done(m);
}

/* Statistics, their running means, scale and shift in one kernel over columns; then one that normalises. */
static void test_batch_norm(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    const sw_init ones = {SW_INIT_CONSTANT, 1, 0, 0};
    const sw_t x = input(g, "x", SHAPE(8, 16, 9, 9)), w = sw_param(g, "w", SHAPE(16, 16, 3, 3), ones);
    const sw_conv_options o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
    const sw_t weight = sw_param(g, "weight", SHAPE(16), ones), bias = sw_param(g, "bias", SHAPE(16), ones);
    const sw_t running = sw_variable(g, "running", SW_VAR_BUFFER, SW_F32, SHAPE(16), ones);
    sw_t mean;
    const sw_t y = sw_batch_norm_op(sw_conv_op(x, w, SW_NONE, &o), weight, bias, 1e-5, &mean, NULL);
    sw_assign(running, sw_add(sw_mul_scalar(running, 0.9), sw_mul_scalar(mean, 0.1)));
    sw_output(sw_conv_op(sw_relu(y), w, SW_NONE, &o), "y");
    made m = make(g, false);
    counts(m, 2, 2, 2); /* copies: x to channels last; y back */
    assert_int_equal(kernel_of(m, 0)->skeleton, SW_SKEL_COLUMN);
    assert_int_equal(kernel_of(m, 1)->skeleton, SW_SKEL_POINTWISE);
    done(m);
}

static void test_shared_loads(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    const sw_t x = input(g, "x", SHAPE(100, 32)), y = input(g, "y", SHAPE(100, 32));
    sw_output(sw_sum(x, SW_AXIS(0), false), "a");
    sw_output(sw_sum(sw_mul(x, y), SW_AXIS(0), false), "b");
    made m = make(g, false);
    counts(m, 1, 0, 0);
    assert_int_equal(kernel_of(m, 0)->skeleton, SW_SKEL_COLUMN);
    done(m);
}

/* A cheap value with many users is computed by each; a dear one is stored. */
static void test_again_or_stored(void **state)
{
    (void)state;
    for (int dear = 0; dear < 2; dear++) {
        sw_graph *g = new_graph();
        const sw_t x = input(g, "x", SHAPE(64, 64)), w = input(g, "w", SHAPE(64, 64));
        const sw_t c = dear ? sw_exp(sw_sin(sw_tanh(sw_exp(x)))) : sw_relu(x);
        sw_output(sw_sum(c, SW_AXIS(0), false), "a");
        sw_output(sw_mul(sw_sum(c, SW_AXIS(1), true), sw_matmul(w, w)), "b");
        const made m = make(g, false);
        int readers = 0;
        for (uint32_t i = 0; i < m.s->n_steps; i++)
            for (int k = 0; k < m.s->steps[i].n_in; k++) {
                const sw__storage *s = &m.s->storages[m.s->steps[i].refs[k].storage];
                readers += s->kind == SW_STORE_INPUT && s->index == 0;
            }
        assert_int_equal(readers, dear ? 1 : 2);
        done(m);
    }
}

static void test_no_fuse(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    sw_output(sw_exp(sw_tanh(sw_sin(sw_mul_scalar(input(g, "x", SHAPE(1000)), 3)))), "y");
    const made m = make(g, true);
    counts(m, 4, 0, 0);
    assert_int_equal(m.s->arena_bytes, 4032); /* each takes over the memory of the one before */
    done(m);
}

/* ---- memory that is written in place ----------------------------------------------------------------------------- */

static sw_t adam(sw_graph *g, uint32_t group, uint32_t mg, uint32_t vg, sw_t grad)
{
    const sw_t p = sw__varpack(g, group), m = sw__varpack(g, mg), v = sw__varpack(g, vg);
    const sw_t m2 = sw_add(sw_mul_scalar(m, 0.9), sw_mul_scalar(grad, 0.1));
    const sw_t v2 = sw_add(sw_mul_scalar(v, 0.999), sw_mul_scalar(sw_square(grad), 0.001));
    sw_assign(m, m2);
    sw_assign(v, v2);
    return sw_assign(p, sw_sub(p, sw_mul_scalar(sw_div(m2, sw_add_scalar(sw_sqrt(v2), 1e-8)), 1e-3)));
}

static void test_training_step(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    const sw_init init = {SW_INIT_FAN_IN_UNIFORM, 0, 0, 0};
    sw_t p[4], m[4], v[4], d[4];
    uint32_t group[3];
    const char *names[] = {"w1", "b1", "w2", "b2"};
    const int64_t dims[4][2] = {{33, 20}, {33, 0}, {10, 33}, {10, 0}};
    for (int i = 0; i < 4; i++) {
        char name[16];
        const int rank = i % 2 ? 1 : 2;
        p[i] = sw_param(g, names[i], rank, dims[i], init);
        snprintf(name, sizeof name, "m.%s", names[i]);
        m[i] = sw_variable(g, name, SW_VAR_STATE, SW_F32, rank, dims[i], (sw_init){0});
        snprintf(name, sizeof name, "v.%s", names[i]);
        v[i] = sw_variable(g, name, SW_VAR_STATE, SW_F32, rank, dims[i], (sw_init){0});
    }
    const sw_t h = sw_relu(sw_linear_op(input(g, "x", SHAPE(64, 20)), p[0], p[1]));
    const sw_t loss = sw_cross_entropy(sw_linear_op(h, p[2], p[3]), sw_input(g, "t", SW_I64, SHAPE(64)));
    must(sw_grad(loss, p, 4, d));
    must(sw__var_group(g, p, 4, &group[0]));
    must(sw__var_group(g, m, 4, &group[1]));
    must(sw__var_group(g, v, 4, &group[2]));
    adam(g, group[0], group[1], group[2], sw__pack(g, group[0], d));
    sw_output(loss, "loss");
    const made s = make(g, false);
    /* ops: forward 2, gradients of weights 2, of h 1. kernels: loss with gradient, its mean, both bias gradients (one
     * with relu's), update. One launch clears the gaps of the packed gradients. */
    counts(s, 5, 1, 5);
    int groups_written = 0;
    for (uint32_t i = 0; i < s.s->n_steps; i++)
        for (int k = s.s->steps[i].n_in; k < s.s->steps[i].n_in + s.s->steps[i].n_out; k++)
            groups_written += s.s->storages[s.s->steps[i].refs[k].storage].kind == SW_STORE_GROUP;
    assert_int_equal(groups_written, 3);
    assert_int_equal(s.s->steps[s.s->n_steps - 1].n_out, 3); /* the update: after everybody who reads parameters */
    done(s);
}

static void test_swapped_variables(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    const sw_t a = sw_variable(g, "a", SW_VAR_STATE, SW_F32, SHAPE(8), (sw_init){0});
    const sw_t b = sw_variable(g, "b", SW_VAR_STATE, SW_F32, SHAPE(8), (sw_init){0});
    sw_assign(a, sw_mul_scalar(b, 2));
    sw_assign(b, sw_mul_scalar(a, 3));
    made m = make(g, false);
    counts(m, 2, 1, 0); /* one in place, the other through a temporary */
    done(m);
    g = new_graph();
    const sw_t c = sw_variable(g, "c", SW_VAR_STATE, SW_F32, SHAPE(4, 4), (sw_init){0});
    sw_assign(c, sw_add_scalar(sw_transpose(c, 0, 1), 1)); /* reads other elements than it writes */
    sw_output(sw_exp(c), "old");
    m = make(g, false);
    assert_int_equal(m.copies, 1);
    assert_int_equal(m.s->storages[m.s->steps[m.s->n_steps - 1].refs[1].storage].kind, SW_STORE_VAR);
    done(m);
    g = new_graph();
    const sw_t e = sw_variable(g, "e", SW_VAR_STATE, SW_F32, SHAPE(4), (sw_init){0});
    sw_assign(e, sw_add_scalar(e, 1));
    sw_output(e, "old"); /* a copy, made before the new value is written */
    m = make(g, false);
    counts(m, 1, 1, 0);
    assert_true(m.s->steps[0].copy);
    done(m);
}

static void test_concat(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    sw_t parts[3] = {input(g, "x", SHAPE(4, 5)), SW_NONE, SW_NONE};
    parts[1] = sw_exp(parts[0]);
    parts[2] = sw_matmul(parts[0], input(g, "w", SHAPE(5, 5)));
    sw_output(sw_concat(parts, 3, 0), "rows"); /* the op and the kernel write their rows; x is copied */
    made m = make(g, false);
    counts(m, 1, 1, 1);
    done(m);
    g = new_graph();
    parts[0] = input(g, "x", SHAPE(4, 5));
    parts[1] = sw_exp(parts[0]);
    parts[2] = sw_matmul(parts[0], input(g, "w", SHAPE(5, 5)));
    sw_output(sw_concat(parts, 3, 1), "columns"); /* the op's output would not be dense */
    m = make(g, false);
    counts(m, 1, 2, 1);
    done(m);
}

static void test_outputs(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    const sw_t x = input(g, "x", SHAPE(4, 6)), y = sw_exp(x);
    sw_output(x, "an input");
    sw_output(sw_reshape(y, SHAPE(24)), "a reshape");
    sw_output(sw_transpose(y, 0, 1), "a transpose");
    sw_output(sw_const(g, SW_F32, 3), "a constant");
    const made m = make(g, false);
    counts(m, 2, 2, 0);
    for (uint32_t i = 0; i < m.s->n_outputs; i++) {
        assert_true(sw__ref_is_dense(&m.s->outputs[i], NULL));
        assert_int_equal(m.s->storages[m.s->outputs[i].storage].kind, SW_STORE_ARENA);
    }
    done(m);
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

static void test_images(void **state)
{
    (void)state;
    for (int64_t channels = 1; channels <= 3; channels += 2) {
        sw_graph *g = new_graph();
        const sw_init init = {SW_INIT_UNIFORM, -1, 1, 0};
        const sw_conv_options o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
        const sw_pool_options pool = {.kernel = {2, 2}};
        const sw_t x = input(g, "x", SHAPE(2, channels, 8, 8));
        const sw_t h = sw_conv_op(x, sw_param(g, "w1", SHAPE(4, channels, 3, 3), init), SW_NONE, &o);
        const sw_t p = sw_max_pool_op(sw_relu(h), &pool);
        const sw_t w = sw_param(g, "w2", SHAPE(4, 4, 3, 3), init);
        sw_output(sw_sum(sw_conv_op(p, w, SW_NONE, &o), SW_ALL_AXES, false), "y");
        const made m = make(g, false);
        counts(m, 1, channels == 1 ? 0 : 1, 3); /* only x is copied, unless it has one channel */
        done(m);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void test_chain(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    sw_t x = input(g, "x", SHAPE(64, 64));
    const sw_t w = input(g, "w", SHAPE(64, 64));
    for (int i = 0; i < 20; i++) x = sw_matmul(x, w);
    sw_output(x, "y");
    const made m = make(g, false);
    counts(m, 0, 0, 20);
    assert_int_equal(m.s->arena_bytes, 2 * 64 * 64 * 4);
    done(m);
}

/* ---- golden ------------------------------------------------------------------------------------------------------ */

static void test_print(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    const sw_t x = input(g, "x", SHAPE(8, 4)), w = input(g, "w", SHAPE(3, 4)), b = input(g, "b", SHAPE(3));
    sw_output(sw_softmax(sw_named(sw_linear_op(x, w, b), "fc"), 1), "y");
    const made m = make(g, false);
    sw__text t = {0};
    sw__schedule_print(m.s, &t);
    assert_string_equal(t.s,
        "0 matmul 'fc': s2:f32[8,4] s3:f32[4,3]{1,4} s4:f32[3] -> s1:f32[8,3] (216 flop, 284 B)\n"
        "1 kernel 'div_reduce_sum_exp_12': s1:f32[8,3] -> s0:f32[8,3] (120 flop, 192 B)\n"
        "s0 arena 128 bytes at 0, steps 1 to 2, takes over s1\n"
        "s1 arena 128 bytes at 0, steps 0 to 1\n"
        "s2 input 0 128 bytes\n"
        "s3 input 1 64 bytes\n"
        "s4 input 2 64 bytes\n"
        "arena 128 bytes\n");
    sw__text_free(&t);
    done(m);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* A deep network with batch norm, its gradients and an optimiser step: thousands of nodes. */
static void test_time(void **state)
{
    (void)state;
    sw_graph *g = new_graph();
    const sw_init init = {SW_INIT_UNIFORM, -1, 1, 0};
    const sw_conv_options o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
    sw_t p[512], d[512], x = input(g, "x", SHAPE(4, 8, 8, 8));
    uint32_t group;
    int n = 0;
    for (int i = 0; i < 54; i++) {
        char name[16];
        const int64_t w[4] = {8, 8, 3, 3}, c[1] = {8};
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "p%d", n);
            p[n++] = sw_param(g, name, k ? 1 : 4, k ? c : w, init);
        }
        snprintf(name, sizeof name, "r%d", i);
        const sw_t running = sw_variable(g, name, SW_VAR_BUFFER, SW_F32, 1, c, init);
        sw_t mean;
        const sw_t y = sw_batch_norm_op(sw_conv_op(x, p[n - 3], SW_NONE, &o), p[n - 2], p[n - 1], 1e-5, &mean, NULL);
        sw_assign(running, sw_add(sw_mul_scalar(running, 0.9), sw_mul_scalar(mean, 0.1)));
        x = i % 3 ? sw_relu(sw_add(y, x)) : sw_relu(y);
    }
    const sw_t loss = sw_mean(sw_square(x), SW_ALL_AXES, false);
    must(sw_grad(loss, p, n, d));
    must(sw__var_group(g, p, (uint32_t)n, &group));
    const sw_t all = sw__varpack(g, group);
    sw_assign(all, sw_sub(all, sw_mul_scalar(sw__pack(g, group, d), 0.1)));
    const uint32_t nodes = g->n_nodes;
    const double start = sw__now();
    const made m = make(g, false);
    const double took = sw__now() - start;
    printf("%u nodes recorded, %d after the passes, %u steps (%d kernels, %d copies, %d ops): %.1f ms\n", nodes,
           m.s->n_nodes, m.s->n_steps, m.kernels, m.copies, m.ops, took * 1e3);
    assert_true(took < 2); /* measured: 0.05 s; sanitizers and busy machines are slower */
    done(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),           cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_shared_loads),   cmocka_unit_test(test_again_or_stored),
        cmocka_unit_test(test_no_fuse),        cmocka_unit_test(test_training_step),
        cmocka_unit_test(test_swapped_variables), cmocka_unit_test(test_concat),
        cmocka_unit_test(test_outputs),        cmocka_unit_test(test_images),
        cmocka_unit_test(test_chain),          cmocka_unit_test(test_print),
        cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
