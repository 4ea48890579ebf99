/* test_golden_recurrent.c: layers lstm, gru and rnn against PyTorch's (tests/golden/make_recurrent.py): outputs, last
 * states and gradients of input, initial states and all parameters; several layers, both directions, lengths,
 * projection. On ref, on ref with every big op lowered, on the cpu, and on SWOOP_TEST_DEVICE if that is set. What is
 * refused, and how. */
/* double: SWOOP_TEST_DEVICE=cuda:0 */
#include "golden_run.h"

#include "swoop/nn.h"

typedef sw_t layer_fn(sw_t x, sw_recurrent_layer_options o);

typedef struct layer_case {
    const char *name;
    layer_fn *layer;
    sw_recurrent_layer_options o;
    int64_t lengths[4]; /* first -1: none */
    bool device;        /* also on SWOOP_TEST_DEVICE, whose compiler is slow; SWOOP_TEST_ALL=1: all are */
} layer_case;

#define ALL { -1 }
static const layer_case layer_cases[] = {
    { "lstm", sw_lstm_with, { .features = 5 }, ALL, false },
    { "lstm_lengths", sw_lstm_with, { .features = 3 }, { 5, 1, 3, 0 }, false },
    { "lstm_reverse", sw_lstm_with, { .features = 3, .bidirectional = true }, ALL, false },
    { "lstm_both_lengths", sw_lstm_with, { .features = 3, .bidirectional = true }, { 2, 0, 4, 1 }, true },
    { "lstm_proj", sw_lstm_with, { .features = 5, .proj = 2 }, ALL, false },
    { "lstm_proj_both_lengths", sw_lstm_with, { .features = 4, .bidirectional = true, .proj = 3 }, { 1, 4, 2 }, true },
    { "lstm_two", sw_lstm_with, { .features = 4, .layers = 2 }, ALL, false },
    { "lstm_one_step", sw_lstm_with, { .features = 4 }, ALL, false },
    { "lstm_one_sample", sw_lstm_with, { .features = 4 }, ALL, false },
    { "lstm_no_bias", sw_lstm_with, { .features = 4, .no_bias = true }, ALL, false },
    { "gru", sw_gru_with, { .features = 5 }, ALL, false },
    { "gru_lengths", sw_gru_with, { .features = 3 }, { 5, 1, 3, 0 }, false },
    { "gru_two_both_lengths", sw_gru_with, { .features = 3, .layers = 2, .bidirectional = true }, { 1, 4, 3 }, true },
    { "gru_one_step", sw_gru_with, { .features = 3 }, ALL, false },
    { "rnn", sw_rnn_with, { .features = 5 }, ALL, false },
    { "rnn_relu_both", sw_rnn_with, { .features = 4, .bidirectional = true, .relu = true }, ALL, true },
    { "rnn_lengths", sw_rnn_with, { .features = 3 }, { 0, 3, 1, 2 }, true },
};

/* A case as a graph: inputs x0, x1 …, dy, length; parameters after those; outputs y and g0, g1 … */
typedef struct built {
    const layer_case *c;
    sw_graph *g;
    int states, params; /* parameters are x(1 + states) and so on */
} built;

static sw_t input(const built *b, const char *key)
{
    const sw_array *const a = stored(b->c->name, key);
    if (!a) fail_msg("no tensor %s.%s", b->c->name, key);
    return sw_input(b->g, key, SW_F32, a->rank, a->shape);
}

static sw_t flat(sw_t x)
{
    return sw_reshape(x, 1, (int64_t[]){ -1 });
}

static void build(built *b)
{
    const bool lstm = b->c->layer == sw_lstm_with;
    sw_recurrent_layer_options o = b->c->o;
    sw_t wrt[32], grad[32], h_n, c_n = SW_NONE;
    int n = 0;
    OK(sw_graph_new(&b->g));
    b->states = lstm ? 2 : 1;
    wrt[n++] = input(b, "x0");
    wrt[n++] = o.h0 = input(b, "x1");
    if (lstm) wrt[n++] = o.c0 = input(b, "x2");
    if (b->c->lengths[0] >= 0) o.lengths = sw_input(b->g, "length", SW_I64, 1, (int64_t[]){ sw_dim(wrt[0], 0) });
    o.name = "m";
    o.h_n = &h_n;
    if (lstm) o.c_n = &c_n;
    const sw_t y = b->c->layer(wrt[0], o);
    OK(sw_graph_status(b->g));
    b->params = sw_graph_variables(b->g, SW_VAR_PARAM, wrt + n, 32 - n);
    const sw_t all[3] = { flat(y), flat(h_n), lstm ? flat(c_n) : SW_NONE };
    const sw_t result = sw_output(sw_concat(all, 1 + b->states, 0), "y");
    n += b->params;
    OK(sw_grad_from(result, input(b, "dy"), wrt, n, grad));
    for (int i = 0; i < n; i++) {
        char key[24];
        snprintf(key, sizeof key, "g%d", i);
        sw_output(grad[i], key);
    }
    OK(sw_graph_status(b->g));
}

static void set_values(const built *b, sw_program *p, sw_params *params)
{
    char key[24];
    for (int i = 0; i <= b->states; i++) {
        snprintf(key, sizeof key, "x%d", i);
        const sw_array *const a = stored(b->c->name, key);
        const int slot = sw_program_input(p, key);
        if (slot >= 0) OK(sw_program_set(p, slot, SW_F64, a->data, sw_array_count(a)));
    }
    const sw_array *const dy = stored(b->c->name, "dy");
    OK(sw_program_set(p, sw_program_input(p, "dy"), SW_F64, dy->data, sw_array_count(dy)));
    const int lengths = sw_program_input(p, "length");
    if (lengths >= 0) OK(sw_program_set(p, lengths, SW_I64, b->c->lengths, stored(b->c->name, "x0")->shape[0]));
    for (int i = 0; i < b->params; i++) { /* in PyTorch's order of declaration */
        snprintf(key, sizeof key, "x%d", 1 + b->states + i);
        const sw_array *const a = stored(b->c->name, key);
        OK(sw_params_set(params, i, SW_F64, a->data, sw_array_count(a)));
    }
}

static void replay(const layer_case *c, const char *id, bool lowered, double tolerance)
{
    built b = { .c = c };
    sw_device *device;
    sw_params *params;
    sw_program *p;
    sw_graph *low = NULL;
    sw__traits primitives = { .views = false };
    for (int op = 0; op < SW_OP_COUNT; op++) primitives.takes[op] = sw__op_table[op].lower == NULL;
    build(&b);
    if (lowered) OK(sw__pass_lower(b.g, &primitives, &low));
    OK(sw_device_open(id, NULL, &device));
    OK(sw_params_new(device, b.g, 0, &params));
    OK(sw_compile(lowered ? low : b.g, device, &(sw_compile_options){ .params = params }, &p));
    set_values(&b, p, params);
    OK(sw_program_run(p));
    for (uint32_t i = 0; i < b.g->n_outputs; i++) {
        const char *const key = b.g->outputs[i].name;
        const sw_array *const want = stored(c->name, key);
        const int64_t n = sw_array_count(want);
        double *const have = test_malloc((size_t)n * sizeof *have + 1);
        OK(sw_program_get(p, sw_program_output(p, key), SW_F64, have, n));
        const double off = difference(have, want->data, n);
        if (off > tolerance)
            fail_msg("%s.%s on %s: off by %g of the largest, allowed %g", c->name, key, id, off, tolerance);
        test_free(have);
    }
    sw_program_free(p);
    sw_params_free(params);
    sw_device_close(device);
    sw_graph_free(low);
    sw_graph_free(b.g);
}

static void replay_all(const char *id, bool lowered, double tolerance)
{
    for (size_t i = 0; i < SW_COUNT(layer_cases); i++) replay(&layer_cases[i], id, lowered, tolerance);
}

static void layers_on_ref(void **state)
{
    (void)state;
    replay_all("ref", false, 1e-13);
}

static void layers_lowered(void **state)
{
    (void)state;
    replay_all("ref", true, 1e-13);
}

static void layers_on_cpu(void **state)
{
    (void)state;
    replay_all("cpu", false, 1e-5);
}

static void layers_on_device(void **state)
{
    (void)state;
    const char *const id = getenv("SWOOP_TEST_DEVICE");
    for (size_t i = 0; id && i < SW_COUNT(layer_cases); i++)
        if (layer_cases[i].device || getenv("SWOOP_TEST_ALL")) replay(&layer_cases[i], id, false, 2e-5);
}

/* ---- names, and what is refused ---------------------------------------------------------------------------------- */

static void names_are_pytorchs(void **state)
{
    (void)state;
    static const char *const names[] = {
        "rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0", "rnn.weight_hr_l0",
        "rnn.weight_ih_l0_reverse", "rnn.weight_hh_l0_reverse", "rnn.bias_ih_l0_reverse", "rnn.bias_hh_l0_reverse",
        "rnn.weight_hr_l0_reverse",
    };
    sw_graph *g;
    sw_t v[16];
    OK(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 3, (int64_t[]){ 2, 3, 4 });
    const sw_t y = sw_lstm(x, 5, .proj = 2, .bidirectional = true, .name = "rnn");
    assert_int_equal(sw_dim(y, 2), 4);
    assert_int_equal(sw_graph_variables(g, SW_VAR_PARAM, v, 16), SW_COUNT(names));
    for (size_t i = 0; i < SW_COUNT(names); i++) assert_string_equal(sw_name(v[i]), names[i]);
    sw_graph_free(g);
}

static sw_t in_(sw_graph *g, const char *name, sw_dtype type, int rank, const int64_t *dim)
{
    return sw_input(g, name, type, rank, dim);
}
#define X(...) in_(g, "x", SW_F32, sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), (int64_t[]){ __VA_ARGS__ })
#define Y(TYPE, ...) in_(g, "y", TYPE, sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), (int64_t[]){ __VA_ARGS__ })

/* Messages name the layer, what was given and what would fit. */
static void what_is_refused(void **state)
{
    (void)state;
#define REFUSED(EXPRESSION, STATUS, MESSAGE)                                                                           \
    do {                                                                                                               \
        sw_graph *g;                                                                                                   \
        OK(sw_graph_new(&g));                                                                                          \
        assert_false(sw_valid(EXPRESSION));                                                                            \
        assert_int_equal(sw_graph_status(g), STATUS);                                                                  \
        assert_string_equal(sw_error(), MESSAGE);                                                                      \
        sw_graph_free(g);                                                                                              \
    } while (0)
    REFUSED(sw_lstm(X(2, 3), 5, .name = "enc"), SW_ERR_SHAPE,
            "lstm 'enc': x is f32[2,3]: it takes [batch, time, features] of a floating-point type");
    REFUSED(
        sw_gru(X(2, 3, 4), 0), SW_ERR_ARGUMENT,
        "gru '': 0 features, 0 layers, dropout 0: at least 1 feature, 0 (which is 1) to 64 layers, dropout in [0, 1)");
    REFUSED(sw_gru(X(2, 3, 4), 5, .proj = 2), SW_ERR_ARGUMENT, "gru '': proj, c0 and c_n are for lstm");
    REFUSED(sw_lstm(X(2, 3, 4), 5, .relu = true), SW_ERR_ARGUMENT, "lstm '': relu is for rnn");
    REFUSED(sw_lstm(X(2, 3, 4), 5, .proj = 5), SW_ERR_ARGUMENT,
            "lstm '': a projection to 5 of 5 features: it must be smaller (0: none)");
    REFUSED(sw_lstm(X(2, 3, 4), 5, .bidirectional = true, .h0 = Y(SW_F32, 1, 2, 5)), SW_ERR_SHAPE,
            "lstm '': h0 is f32[1,2,5]: for this input, 1 layer and two directions it must be f32[2,2,5]");
    REFUSED(sw_rnn(X(2, 3, 4), 5, .lengths = Y(SW_I64, 3)), SW_ERR_SHAPE,
            "rnn '': lengths is i64[3]: for this input, 1 layer and one direction it must be i64[2]");
    REFUSED(sw_model_build("lstm:8", X(2, 3), 4), SW_ERR_SHAPE,
            "model 'lstm' takes tokens [batch, time] of an integer type, or features [batch, time, features], not "
            "f32[2,3]");
#undef REFUSED
}

/* A length that a sample cannot have stops the run. */
static void bad_lengths_stop_the_run(void **state)
{
    (void)state;
    const char *const wish = getenv("SWOOP_TEST_DEVICE"), *ids[] = { "ref", "cpu", wish };
    for (int i = 0; i < (wish ? 3 : 2); i++) {
        sw_graph *g;
        sw_device *d;
        sw_program *p;
        OK(sw_graph_new(&g));
        OK(sw_device_open(ids[i], NULL, &d));
        sw_output(sw_named(sw_gru(X(2, 3, 4), 5, .lengths = Y(SW_I64, 2)), "here"), "out");
        OK(sw_compile(g, d, NULL, &p));
        OK(sw_program_set(p, sw_program_input(p, "y"), SW_I64, (int64_t[]){ 3, 4 }, 2));
        sw_status st = sw_program_run(p);
        double out[30];
        if (st == SW_OK) st = sw_program_get(p, 0, SW_F64, out, 30);
        assert_int_equal(st, SW_ERR_DATA);
        if (!strstr(sw_error(), "4")) fail_msg("%s: %s", ids[i], sw_error());
        sw_program_free(p);
        sw_device_close(d);
        sw_graph_free(g);
    }
}

/* The models' shapes: the next token of each step, classes of a sequence. */
static void models_have_their_shapes(void **state)
{
    (void)state;
    sw_graph *g;
    OK(sw_graph_new(&g));
    const sw_t tokens = sw_model_build("gru:3,5", Y(SW_I64, 2, 7), 11);
    assert_int_equal(sw_rank(tokens), 3);
    assert_int_equal(sw_dim(tokens, 1), 7);
    assert_int_equal(sw_dim(tokens, 2), 11);
    sw_graph_free(g);
    OK(sw_graph_new(&g));
    const sw_t classes = sw_model_build("lstm:5", X(2, 7, 3), 11);
    assert_int_equal(sw_rank(classes), 2);
    assert_int_equal(sw_dim(classes, 1), 11);
    sw_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_on_ref),      cmocka_unit_test(layers_lowered),  cmocka_unit_test(layers_on_cpu),
        cmocka_unit_test(layers_on_device),   cmocka_unit_test(names_are_pytorchs),
        cmocka_unit_test(what_is_refused),    cmocka_unit_test(bad_lengths_stop_the_run),
        cmocka_unit_test(models_have_their_shapes),
    };
    golden_path = SWOOP_TEST_DATA "/data/ops_recurrent.safetensors";
    return cmocka_run_group_tests(tests, open_file, close_file);
}
