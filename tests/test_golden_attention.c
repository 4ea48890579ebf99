/* test_golden_attention.c: attention, rotary and sinusoidal positions against PyTorch's numbers with their derivatives
 * (golden_run.h); multi-head attention and the encoder's block, whose weights are variables, with gradients of all of
 * them (tests/golden/make_attention.py); and that memory grows with the length of a sequence, not with its square. */
#include "golden_run.h"
#include "swoop/nn.h"
#include "swoop/tools.h"

#include <sys/resource.h>
#include <time.h>

/* double: SWOOP_TEST_DEVICE=cuda:0 */

static sw_t minus_infinity(const sw_t *x)
{
    sw_graph *const g = x[0].graph;
    const sw_dtype t = sw_type(x[0]);
    const sw_t mask = sw_where(x[3], sw_const(g, t, 0.25), sw_const(g, t, -(double)INFINITY));
    return sw_attention(x[0], x[1], x[2], .mask = mask);
}

/* clang-format off */
#define CASES(CASE)                                                                                                    \
    CASE(plain, 3, sw_attention(x[0], x[1], x[2], .causal = false))                                                    \
    CASE(scale, 3, sw_attention(x[0], x[1], x[2], .scale = 0.3))                                                       \
    CASE(causal, 3, sw_attention(x[0], x[1], x[2], .causal = true))                                                    \
    CASE(causal_long_keys, 3, sw_attention(x[0], x[1], x[2], .causal = true))                                          \
    CASE(causal_long_rows, 3, sw_attention(x[0], x[1], x[2], .causal = true))                                          \
    CASE(grouped, 3, sw_attention(x[0], x[1], x[2], .mask = SW_NONE))                                                  \
    CASE(grouped_one_causal, 3, sw_attention(x[0], x[1], x[2], .causal = true))                                        \
    CASE(one_row, 3, sw_attention(x[0], x[1], x[2], .causal = false))                                                  \
    CASE(large, 3, sw_attention(x[0], x[1], x[2], .scale = 2))                                                         \
    CASE(long, 3, sw_attention(x[0], x[1], x[2], .causal = true))                                                      \
    CASE(bool_mask, 4, sw_attention(x[0], x[1], x[2], .mask = x[3]))                                                   \
    CASE(key_mask, 4, sw_attention(x[0], x[1], x[2], .mask = x[3]))                                                    \
    CASE(row_of_nothing, 4, sw_attention(x[0], x[1], x[2], .mask = x[3]))                                              \
    CASE(added_mask, 4, sw_attention(x[0], x[1], x[2], .mask = x[3]))                                                  \
    CASE(minus_infinity, 4, minus_infinity(x))                                                                         \
    CASE(rope, 1, sw_rope(x[0], .offset = 0))                                                                          \
    CASE(rope_offset, 1, sw_rope(x[0], .offset = 11, .base = 500))                                                     \
    CASE(sinusoidal, 1, sw_sinusoidal_positions(x[0], 0))                                                              \
    CASE(sinusoidal_offset, 1, sw_sinusoidal_positions(x[0], 30))
/* clang-format on */
CASES(GOLDEN_FUNCTION)
static const golden_case cases[] = { CASES(GOLDEN_ENTRY) };

/* ---- layers ------------------------------------------------------------------------------------------------------ */

static const char *const mha_names[] = { "attn.in_proj_weight", "attn.in_proj_bias", "attn.out_proj.weight",
                                         "attn.out_proj.bias" };
static const char *const encoder_names[] = {
    "l.self_attn.in_proj_weight", "l.self_attn.in_proj_bias", "l.self_attn.out_proj.weight",
    "l.self_attn.out_proj.bias",
    "l.linear1.weight", "l.linear1.bias", "l.linear2.weight", "l.linear2.bias", "l.norm1.weight", "l.norm1.bias",
    "l.norm2.weight", "l.norm2.bias",
};

static sw_t mha(const sw_t *x)
{
    return sw_multihead_attention(x[0], 2, .name = "attn");
}

static sw_t mha_causal(const sw_t *x)
{
    return sw_multihead_attention(x[0], 3, .name = "attn", .causal = true);
}

static sw_t mha_cross(const sw_t *x)
{
    return sw_multihead_attention(x[0], 2, .name = "attn", .key = x[1]);
}

static sw_t mha_three(const sw_t *x)
{
    return sw_multihead_attention(x[0], 2, .name = "attn", .key = x[1], .value = x[2]);
}

static sw_t encoder(const sw_t *x)
{
    return sw_encoder_layer(x[0], 2, .feedforward = 5, .name = "l");
}

static sw_t encoder_norm_first(const sw_t *x)
{
    return sw_encoder_layer(x[0], 2, .feedforward = 5, .norm_first = true, .gelu = true, .name = "l");
}

/* In the file: x0, the weights by these names, then what else is attended to. */
typedef struct layer_case {
    const char *name;
    sw_t (*build)(const sw_t *x);
    const char *const *names;
    int n_names, others;
} layer_case;

static const layer_case layers[] = {
    { "mha", mha, mha_names, 4, 0 },
    { "mha_causal", mha_causal, mha_names, 4, 0 },
    { "mha_cross", mha_cross, mha_names, 4, 1 },
    { "mha_three", mha_three, mha_names, 4, 2 },
    { "encoder", encoder, encoder_names, 12, 0 },
    { "encoder_norm_first", encoder_norm_first, encoder_names, 12, 0 },
};

static const sw_array *of(const layer_case *c, const char *key, int i)
{
    char name[16];
    snprintf(name, sizeof name, i < 0 ? "%s" : "%s%d", key, i);
    const sw_array *const a = stored(c->name, name);
    if (!a) fail_msg("no tensor %s.%s", c->name, name);
    return a;
}

/* The variable of this name, of the shape that the file has. */
static sw_t variable(const sw_t *all, int n, const char *name, const sw_array *want)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(sw_name(all[i]), name) != 0) continue;
        assert_int_equal(sw_rank(all[i]), want->rank);
        for (int k = 0; k < want->rank; k++) assert_int_equal(sw_dim(all[i], k), want->shape[k]);
        return all[i];
    }
    fail_msg("no variable %s", name);
    return SW_NONE;
}

/* y, and g0, g1 … in the order of the file. */
static sw_graph *layer_graph(const layer_case *c)
{
    sw_graph *g = NULL;
    sw_t x[3], all[16], wrt[16], grad[16];
    OK(sw_graph_new(&g));
    for (int i = 0; i <= c->others; i++) {
        const sw_array *const a = of(c, "x", i == 0 ? 0 : c->n_names + i);
        char name[16];
        snprintf(name, sizeof name, "x%d", i == 0 ? 0 : c->n_names + i);
        x[i] = sw_input(g, name, SW_F32, a->rank, a->shape);
    }
    const sw_t y = sw_output(c->build(x), "y"), dy = sw_input(g, "dy", SW_F32, sw_rank(y), of(c, "dy", -1)->shape);
    const int n = sw_graph_variables(g, SW_VAR_PARAM, all, 16);
    assert_int_equal(n, c->n_names);
    int count = 0;
    wrt[count++] = x[0];
    for (int i = 0; i < n; i++) wrt[count++] = variable(all, n, c->names[i], of(c, "x", i + 1));
    for (int i = 1; i <= c->others; i++) wrt[count++] = x[i];
    OK(sw_grad_from(y, dy, wrt, count, grad));
    for (int i = 0; i < count; i++) output(grad[i], "g", i);
    OK(sw_graph_status(g));
    return g;
}

static void check_layer(const layer_case *c, sw_device *d, double bound)
{
    sw_graph *const g = layer_graph(c);
    sw_params *params = NULL;
    sw_program *p = NULL;
    OK(sw_params_new(d, g, 0, &params));
    OK(sw_compile(g, d, &(sw_compile_options){ .params = params }, &p));
    for (int i = 0; i < c->n_names; i++) {
        const sw_array *const a = of(c, "x", i + 1);
        OK(sw_params_set(params, sw_params_find(params, c->names[i]), a->dtype, a->data, sw_array_count(a)));
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const sw_array *const a = of(c, g->inputs[i].name, -1);
        OK(sw_program_set(p, sw_program_input(p, g->inputs[i].name), a->dtype, a->data, sw_array_count(a)));
    }
    OK(sw_program_run(p));
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const char *const key = g->outputs[i].name;
        const sw_array *const want = of(c, key, -1);
        const int64_t n = sw_array_count(want);
        double *const have = test_malloc((size_t)n * sizeof *have);
        OK(sw_program_get(p, sw_program_output(p, key), SW_F64, have, n));
        const double off = difference(have, want->data, n);
        if (!(off <= bound)) fail_msg("%s.%s is off by %g of the largest, allowed %g", c->name, key, off, bound);
        test_free(have);
    }
    sw_program_free(p);
    sw_params_free(params);
    sw_graph_free(g);
}

static void check_layers(const char *id, double bound)
{
    sw_device *d = NULL;
    OK(sw_device_open(id, NULL, &d));
    for (size_t i = 0; i < SW_COUNT(layers); i++) check_layer(&layers[i], d, bound);
    sw_device_close(d);
}

static void test_layers(void **state)
{
    (void)state;
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    check_layers("ref", 1e-7); /* weights are kept in f32 outside of ref's arithmetic */
    check_layers("cpu", 1e-5);
    if (wish) check_layers(wish, 2e-5);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static sw_t heads_do_not_divide(sw_t x) { return sw_multihead_attention(x, 4, .name = "a"); }
static sw_t odd_rope(sw_t x) { return sw_rope(sw_narrow(x, 2, 0, 3), .offset = 0); }
static sw_t odd_sinusoidal(sw_t x) { return sw_sinusoidal_positions(sw_narrow(x, 2, 0, 5), 0); }
static sw_t short_context(sw_t x) { return sw_position_embedding(x, .context = 2, .name = "p"); }
static sw_t wrong_key(sw_t x) { return sw_multihead_attention(x, 2, .name = "a", .key = sw_narrow(x, 2, 0, 4)); }
static sw_t wrong_mask(sw_t x) { return sw_multihead_attention(x, 2, .name = "a", .mask = sw_narrow(x, 2, 0, 2)); }
static sw_t gpt_of_floats(sw_t x) { return sw_model_build("gpt", sw_mean(x, SW_AXIS(2), false), 65); }
static sw_t gpt_of_two(sw_t x) { return sw_model_build("gpt:2x2", sw_cast(sw_mean(x, SW_AXIS(2), false), SW_I64), 65); }
static sw_t tokens_of(sw_t x) { return sw_cast(sw_mean(x, SW_AXIS(2), false), SW_I64); }
static sw_t gpt_of_heads(sw_t x) { return sw_model_build("gpt:2x3x32", tokens_of(x), 65); }
static sw_t transformer_of_heads(sw_t x) { return sw_model_build("transformer:2x3x64", x, 5); }

static void test_messages(void **state)
{
    (void)state;
    static const struct { sw_t (*build)(sw_t x); const char *message; } all[] = {
        { heads_do_not_divide, "multihead_attention 'a': 4 heads on an input of rank 3 with 6 features: needs [N, T, "
                               "features], "
                               "and heads that divide the features" },
        { odd_rope, "rope: needs [.., T, D] with an even D, got rank 3 with D = 3" },
        { odd_sinusoidal, "sinusoidal_positions: needs [.., T, D] with an even D, got rank 3 with D = 5" },
        { short_context, "position_embedding 'p': needs [.., T, D] with T at most the context, got rank 3, T = 4, "
                         "context 2" },
        { wrong_key, "multihead_attention 'a': key and value must be [N, T, 6], as many features as x" },
        { wrong_mask, "must have 4 axes that broadcast to the scores [2,2,4,4]" },
        { gpt_of_floats, "model 'gpt' takes tokens [N, T] of i64 or i32, but x is " },
        { gpt_of_two, "model 'gpt:2x2': after the colon come layers x heads x width" },
        { gpt_of_heads, "model 'gpt:2x3x32': after the colon come layers x heads x width, like 4x4x128: "
                        "the heads must divide" },
        { transformer_of_heads, "model 'transformer:2x3x64': after the colon come layers x heads x width" },
    };
    for (size_t i = 0; i < SW_COUNT(all); i++) {
        sw_graph *g = NULL;
        OK(sw_graph_new(&g));
        assert_false(sw_valid(all[i].build(sw_input(g, "x", SW_F32, 3, (int64_t[]){ 2, 4, 6 }))));
        assert_int_not_equal(sw_graph_status(g), SW_OK); /* sets the message */
        if (!strstr(sw_error(), all[i].message)) fail_msg("%s, not %s", sw_error(), all[i].message);
        sw_graph_free(g);
    }
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static int64_t parameters(const char *spec, sw_dtype type, int rank, const int64_t *shape, int64_t outputs)
{
    sw_graph *g = NULL;
    sw_t all[512];
    int64_t sum = 0;
    OK(sw_graph_new(&g));
    sw_model_build(spec, sw_input(g, "x", type, rank, shape), outputs);
    OK(sw_graph_status(g));
    const int n = sw_graph_variables(g, SW_VAR_PARAM, all, 512);
    for (int i = 0; i < n; i++) sum += sw_elements(all[i]);
    sw_graph_free(g);
    return sum;
}

/* Published sizes. GPT-2's 124,439,808 have biases in 12 layers of 3 + 1 + 4 + 1 widths, which this one has not. */
static void test_models(void **state)
{
    (void)state;
    const int64_t tokens[2] = { 2, 128 }, context[2] = { 1, 1024 }, features[3] = { 2, 7, 5 };
    assert_int_equal(parameters("gpt", SW_I64, 2, tokens, 65), 813440);
    assert_int_equal(parameters("gpt:4,4,128", SW_I64, 2, tokens, 65), 813440);
    assert_int_equal(parameters("gpt:micro", SW_I32, 2, tokens, 65), 813440);
    assert_int_equal(parameters("gpt:124m", SW_I64, 2, context, 50257), 124439808 - 12 * 9 * 768);
    /* embedding; two layers of 4 d d + 4 d, 8 d d + 5 d, 4 d; classes */
    assert_int_equal(parameters("transformer", SW_I64, 2, tokens, 5), 256 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 65 * 5);
    assert_int_equal(parameters("transformer:1x2x8x11", SW_I64, 2, tokens, 5), 11 * 8 + 12 * 64 + 13 * 8 + 9 * 5);
    assert_int_equal(parameters("transformer:1x2x8", SW_F32, 3, features, 5), 6 * 8 + 12 * 64 + 13 * 8 + 9 * 5);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Heads of 64, forward and backward, and a step along the gradient. */
static sw_graph *long_sequence(int64_t time, int64_t heads)
{
    const int64_t shape[4] = { 1, time, heads, 64 };
    sw_graph *g = NULL;
    sw_t x[3], grad[3];
    OK(sw_graph_new(&g));
    for (int i = 0; i < 3; i++) {
        const char name[2] = { "qkv"[i], '\0' };
        x[i] = sw_param(g, name, 4, shape, (sw_init){ .kind = SW_INIT_NORMAL, .b = 1 });
    }
    const int swap[4] = { 0, 2, 1, 3 };
    const sw_t y = sw_attention(sw_permute(x[0], swap), sw_permute(x[1], swap), sw_permute(x[2], swap), .causal = true);
    const sw_t loss = sw_output(sw_sum(sw_square(y), SW_ALL_AXES, false), "loss");
    OK(sw_grad(loss, x, 3, grad));
    for (int i = 0; i < 3; i++) sw_assign(x[i], sw_sub(x[i], sw_mul_scalar(grad[i], 0.01)));
    OK(sw_graph_status(g));
    return g;
}

/* Bytes of a step's program: parameters and all between. */
static uint64_t planned(sw_device *d, int64_t time)
{
    sw_graph *const g = long_sequence(time, 8);
    sw_plan plan;
    OK(sw_plan_graph(g, d, NULL, &plan));
    const uint64_t bytes = plan.total;
    sw_graph_free(g);
    return bytes;
}

static void check_memory(const char *id)
{
    sw_device *d = NULL;
    if (sw_device_open(id, NULL, &d) != SW_OK) {
        print_message("%s: %s\n", id, sw_error());
        return;
    }
    const uint64_t half = planned(d, 4096), all = planned(d, 8192);
    print_message("%s: 8 heads of 64, forward and backward: %.1f MB of 4096, %.1f MB of 8192\n", id, (double)half / 1e6,
                  (double)all / 1e6);
    assert_true(all < 400000000u); /* one matrix of scores alone: 2147 MB */
    assert_true((double)all < 2.05 * (double)half);
    if (getenv("SWOOP_TEST_ALL")) {
        sw_graph *const g = long_sequence(8192, 8);
        sw_params *params = NULL;
        sw_program *p = NULL;
        double loss[2];
        struct timespec from, to;
        OK(sw_params_new(d, g, 0, &params));
        OK(sw_compile(g, d, &(sw_compile_options){ .params = params }, &p));
        for (int i = 0; i < 2; i++) {
            clock_gettime(CLOCK_MONOTONIC, &from);
            OK(sw_program_run(p));
            OK(sw_program_get(p, sw_program_output(p, "loss"), SW_F64, &loss[i], 1));
            clock_gettime(CLOCK_MONOTONIC, &to);
        }
        struct rusage r;
        getrusage(RUSAGE_SELF, &r);
        print_message("%s: a step takes %.2f s; loss %.6g, then %.6g; peak of the process %.0f MB\n", id,
                      (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec), loss[0], loss[1],
                      (double)r.ru_maxrss / 1024);
        assert_true(loss[1] < loss[0]);
        sw_program_free(p);
        sw_params_free(params);
        sw_graph_free(g);
    }
    sw_device_close(d);
}

static void test_memory(void **state)
{
    (void)state;
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    if (wish) {
        check_memory(wish);
        return;
    }
    check_memory("cpu");
    check_memory("opencl:0");
}

enum { STEPS_OF_TIME = 203 };

/* q, k and v after a step. */
static void step_on(int threads, float *out)
{
    const int64_t n = STEPS_OF_TIME * 64;
    sw_graph *const g = long_sequence(STEPS_OF_TIME, 1);
    sw_device *d = NULL;
    sw_params *params = NULL;
    sw_program *p = NULL;
    OK(sw_device_open("cpu", &(sw_device_options){ .threads = threads }, &d));
    OK(sw_params_new(d, g, 0, &params));
    OK(sw_compile(g, d, &(sw_compile_options){ .params = params }, &p));
    OK(sw_program_run(p));
    for (int i = 0; i < 3; i++) {
        const char name[2] = { "qkv"[i], '\0' };
        OK(sw_params_get(params, sw_params_find(params, name), SW_F32, out + i * n, n));
    }
    sw_program_free(p);
    sw_params_free(params);
    sw_device_close(d);
    sw_graph_free(g);
}

/* One thread walks over the blocks of scores once, several twice: the same bits. */
static void test_threads(void **state)
{
    (void)state;
    static float one[3 * STEPS_OF_TIME * 64], more[3 * STEPS_OF_TIME * 64];
    step_on(1, one);
    step_on(2, more);
    assert_memory_equal(one, more, sizeof one);
    step_on(3, more);
    assert_memory_equal(one, more, sizeof one);
}

int main(void)
{
    const struct CMUnitTest more[] = { cmocka_unit_test(test_layers) };
    const struct CMUnitTest rest[] = { cmocka_unit_test(test_messages), cmocka_unit_test(test_models),
                                       cmocka_unit_test(test_memory), cmocka_unit_test(test_threads) };
    const int failed = golden_main(SWOOP_TEST_DATA "/data/ops_attention.safetensors", cases, SW_COUNT(cases));
    golden_path = SWOOP_TEST_DATA "/data/layers_attention.safetensors";
    return failed + cmocka_run_group_tests(more, open_file, close_file) + cmocka_run_group_tests(rest, NULL, NULL);
}
