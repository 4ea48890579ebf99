/* test_graph.c: building graphs: shape rules and their messages, sticky errors, scopes, broadcasting, printing,
 * groups, rewriting, running out of memory. What ops compute, and their gradients, are for other tests. */
/* link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc */
#include "graph/build.h"
#include "graph/rules.h"

#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>

/* ---- short ways to say things --------------------------------------------------------------------------------- */

static sw_t in_(sw_graph *g, sw_dtype type, int rank, const int64_t *dim)
{
    char name[16];
    snprintf(name, sizeof name, "in%u", g->n_inputs);
    return sw_input(g, name, type, rank, dim);
}

#define DIMS(...) (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]){ __VA_ARGS__ }
#define F(...) in_(g, SW_F32, DIMS(__VA_ARGS__))
#define I(...) in_(g, SW_I64, DIMS(__VA_ARGS__))
#define B(...) in_(g, SW_BOOL, DIMS(__VA_ARGS__))
#define D(...) in_(g, SW_F64, DIMS(__VA_ARGS__))
#define SCALAR(type) in_(g, type, 0, NULL)
#define L(...) ((const int64_t[]){ __VA_ARGS__ })
#define NODE(op, attr, ...)                                                                                            \
    sw__node_add(g, op, (sw_t[]){ __VA_ARGS__ }, (uint32_t)(sizeof((sw_t[]){ __VA_ARGS__ }) / sizeof(sw_t)), attr, NULL)
#define ATTR(...) (&(const sw__attr){ __VA_ARGS__ })

static const sw_init zeros = { .kind = SW_INIT_ZEROS };

static sw_graph *graph(void)
{
    sw_graph *g = NULL;
    assert_int_equal(sw_graph_new(&g), SW_OK);
    return g;
}

static void assert_shape(sw_t t, const char *want)
{
    char text[SW__TEXT_BYTES];
    if (!sw_valid(t)) print_error("wanted %s: %s\n", want, sw_error());
    assert_true(sw_valid(t));
    assert_string_equal(sw__shape_text(sw__node_of(t), text, sizeof text), want);
}

/* ---- shape rules: what must work ------------------------------------------------------------------------------ */

typedef struct good_case { const char *name; sw_t (*build)(sw_graph *); const char *shape; } good_case;
#define GOOD(name, expr, shape)                                                                                        \
    static sw_t good_##name(sw_graph *g)                                                                               \
    {                                                                                                                  \
        return expr;                                                                                                   \
    }
#include "graph_cases.def"
#undef GOOD
#define GOOD(name, expr, shape) { #name, good_##name, shape },
static const good_case good_cases[] = {
#include "graph_cases.def"
};
#undef GOOD

static void test_good_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_COUNT(good_cases); i++) {
        sw_graph *const g = graph();
        assert_shape(good_cases[i].build(g), good_cases[i].shape);
        assert_int_equal(sw_graph_status(g), SW_OK);
        sw_graph_free(g);
    }
}

/* ---- shape rules: what must be refused, and the exact words --------------------------------------------------- */

typedef struct bad_case {
    const char *name;
    sw_t (*build)(sw_graph *);
    sw_status status;
    const char *message;
} bad_case;
#define BAD(name, expr, status, message)                                                                               \
    static sw_t bad_##name(sw_graph *g)                                                                                \
    {                                                                                                                  \
        return expr;                                                                                                   \
    }
#include "graph_cases.def"
#undef BAD
#define BAD(name, expr, status, message) { #name, bad_##name, status, message },
static const bad_case bad_cases[] = {
#include "graph_cases.def"
};
#undef BAD

/* "%12 'in3'" -> "% 'in'": in which order a call's arguments are evaluated, and so the ids, is the compiler's. */
static const char *without_numbers(const char *message, char *buf)
{
    size_t n = 0;
    for (const char *s = message; *s != '\0' && n < 1023; s++) {
        const bool number = *s >= '0' && *s <= '9';
        const bool of_value = n > 0 && (buf[n - 1] == '%' || (n > 2 && memcmp(buf + n - 3, "'in", 3) == 0));
        if (!number || !of_value) buf[n++] = *s;
    }
    buf[n] = '\0';
    return buf;
}

static void test_bad_shapes(void **state)
{
    (void)state;
    size_t wrong = 0;
    for (size_t i = 0; i < SW_COUNT(bad_cases); i++) {
        sw_graph *const g = graph();
        const sw_t t = bad_cases[i].build(g);
        const sw_status st = sw_graph_status(g);
        char message[1024];
        without_numbers(sw_error(), message);
        if (sw_valid(t) || st != bad_cases[i].status || strcmp(message, bad_cases[i].message) != 0) {
            print_error("%s|%d|%s\n", bad_cases[i].name, (int)st, st != SW_OK ? message : "no error");
            wrong++;
        }
        assert_true(t.graph == g || st == SW_OK);
        sw_graph_free(g);
    }
    assert_int_equal(wrong, 0);
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

static void test_errors_are_sticky(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    sw_scope_push(g, "layer%d", 1);
    sw_scope_push(g, "fc%d", 2);
    const sw_t x = sw_input(g, "x", SW_F32, DIMS(2, 3)), w = sw_param(g, "weight", DIMS(4, 5), zeros);
    const sw_t one = sw_const(g, SW_F32, 1);
    const uint32_t nodes = g->n_nodes;
    const sw_t y = sw_relu(sw_add(sw_matmul(x, w), one));
    assert_false(sw_valid(y));
    assert_ptr_equal(y.graph, g);
    const char *const first = "matmul in 'layer1.fc2': inner sizes differ: %1 'x' f32[2,3] x %2 'layer1.fc2.weight' "
                              "f32[4,5] (3 against 4): the last axis of the left side must equal the last but one of "
                              "the right";
    assert_int_equal(sw_graph_status(g), SW_ERR_SHAPE);
    assert_string_equal(sw_error(), first);
    /* Nothing enters any more, and the first message stays. */
    assert_false(sw_valid(sw_neg(x)));
    assert_false(sw_valid(sw_input(g, "y", SW_F32, 0, NULL)));
    assert_false(sw_valid(sw_param(g, "v", 0, NULL, zeros)));
    assert_false(sw_valid(sw_output(x, "out")));
    assert_int_equal(g->n_nodes, nodes);
    sw__fail(SW_ERR_IO, "something else happened since");
    assert_int_equal(sw_graph_status(g), SW_ERR_SHAPE);
    assert_string_equal(sw_error(), first);
    assert_true(sw_valid(x)); /* what was good can still be asked */
    assert_int_equal(sw_dim(x, 1), 3);
    sw_graph_free(g);
}

static void test_label_of_a_shape_rule(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    sw_scope_push(g, "block");
    sw_exp(sw_input(g, "x", SW_I32, DIMS(2)));
    assert_int_equal(sw_graph_status(g), SW_ERR_SHAPE);
    assert_string_equal(sw_error(), "exp %2 in 'block': operand 1, %1 'x' i32[2], must have a floating-point type "
                                    "(sw_cast(x, SW_F32))");
    sw_graph_free(g);
}

static void test_no_value(void **state)
{
    (void)state;
    const sw_t none = SW_NONE;
    assert_false(sw_valid(none));
    assert_int_equal(sw_rank(none), -1);
    assert_int_equal(sw_dim(none, 0), -1);
    assert_int_equal(sw_elements(none), -1);
    assert_int_equal(sw_type(none), SW_DTYPE_COUNT);
    assert_string_equal(sw_name(none), "");
    const sw_t results[] = {
        sw_neg(none), sw_add(none, none), sw_where(none, none, none), sw_cast(none, SW_F32), sw_relu(none),
        sw_abs(none), sw_not(none), sw_sigmoid(none), sw_rsqrt(none), sw_le(none, none), sw_ne(none, none),
        sw_reshape(none, 0, NULL), sw_flatten(none), sw_permute(none, NULL), sw_transpose(none, 0, 1),
        sw_expand(none, 0, NULL), sw_pad(none, NULL, NULL, NULL, 0), sw_slice(none, NULL, NULL, NULL),
        sw_narrow(none, 0, 0, 0), sw_concat(NULL, 0, 0), sw_concat(&none, 1, 0), sw_copy(none),
        sw_sum(none, SW_ALL_AXES, false), sw_mean(none, 1, true), sw_argmax(none, 0, false), sw_sort(none, 0, false),
        sw_gather(none, none, 0), sw_scatter_add(none, none, none, 0), sw_dot(none, none), sw_assign(none, none),
        sw_matmul(none, none), sw_linear_op(none, none, none), sw_conv_op(none, none, none, NULL),
        sw_max_pool_op(none, NULL), sw_batch_norm_op(none, none, none, 0, NULL, NULL),
        sw_layer_norm_op(none, none, none, 1, 0), sw_softmax(none, 0), sw_cross_entropy(none, none),
        sw_mse(none, none), sw_embedding_op(none, none), sw_attention(none, none, none, .causal = true), sw_named(none, "x"), sw_output(none, "x"),
        sw_input(NULL, "x", SW_F32, 0, NULL), sw_const(NULL, SW_F32, 0), sw_literal(NULL, SW_F32, 0, NULL, NULL),
        sw_iota(NULL, SW_I64, 0, NULL, 0), sw_rand(NULL, none, 0, 0, NULL), sw_param(NULL, "x", 0, NULL, zeros),
        sw__varpack(NULL, 0), sw__pack(NULL, 0, NULL), sw_stop_gradient(none), sw_square(none), sw_gelu(none),
        sw_add_scalar(none, 1), sw_mul_scalar(none, 2), sw_silu(none),
    };
    for (size_t i = 0; i < SW_COUNT(results); i++) assert_true(results[i].graph == NULL && results[i].id == 0);
    sw_graph_free(NULL);
    sw_string_free(NULL);
    sw_scope_push(NULL, "x");
    sw_scope_pop(NULL);
    sw_graph_set_seed(NULL, 1);
    sw_graph_set_training(NULL, true);
    assert_false(sw_graph_is_training(NULL));
    assert_int_equal(sw_graph_variables(NULL, SW_VAR_PARAM, NULL, 0), 0);
    assert_int_equal(sw_graph_status(NULL), SW_ERR_ARGUMENT);
    assert_int_equal(sw_graph_new(NULL), SW_ERR_ARGUMENT);
    char *text = NULL;
    assert_int_equal(sw_graph_print(NULL, SW_PRINT_TEXT, &text), SW_ERR_ARGUMENT);
}

/* Outputs of a norm that failed are invalid too. */
static void test_failed_outputs(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    sw_t mean = { g, 77 }, var = { g, 77 };
    assert_false(sw_valid(sw_batch_norm_op(F(2, 3), F(4), F(3), 0, &mean, &var)));
    assert_true(mean.id == 0 && var.id == 0);
    sw_graph_free(g);
}

static void test_two_graphs(void **state)
{
    (void)state;
    sw_graph *const a = graph(), *const b = graph();
    const sw_t x = sw_const(a, SW_F32, 1), y = sw_const(b, SW_F32, 1);
    assert_false(sw_valid(sw_add(x, y)));
    assert_int_equal(sw_graph_status(a), SW_ERR_ARGUMENT);
    assert_string_equal(sw_error(), "add: operand 2 beside %1 f32[] belongs to another graph: values of two graphs do not mix");
    assert_int_equal(sw_graph_status(b), SW_OK);
    assert_false(sw_valid(sw__node_add(b, SW_OP_NEG, &x, 1, NULL, NULL)));
    assert_int_equal(sw_graph_status(b), SW_ERR_ARGUMENT);
    sw_graph_free(a);
    sw_graph_free(b);
}

static void test_names_are_unique(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "input 'x' of f32[2]: %1 'x' f32[2] already has this name: names of inputs are unique",
        ("variable 'l.w' of f32[2]: %2 'l.w' f32[2] already has this name: give the layer another one, or keep the "
         "value and use it twice"),
        "output 'y' for %1 'x' f32[2]: %3 f32[2] already has this name: names of outputs are unique",
        "input: it has no name: give one, it is found by it later",
        "variable: it has no name: give one, it is found by it later",
        "output %3: it has no name: results are read by name",
        "sw_named: the name of %3 is NULL",
    };
    for (size_t i = 0; i < SW_COUNT(messages); i++) {
        sw_graph *const g = graph();
        const sw_t x = sw_input(g, "x", SW_F32, DIMS(2));
        sw_scope_push(g, "l");
        sw_param(g, "w", DIMS(2), zeros);
        const sw_t y = sw_output(sw_neg(x), "y");
        if (i == 0) sw_input(g, "x", SW_F32, DIMS(2));
        if (i == 1) sw_param(g, "w", DIMS(2), zeros);
        if (i == 2) sw_output(x, "y");
        if (i == 3) sw_input(g, NULL, SW_F32, DIMS(2));
        if (i == 4) sw_param(g, "", DIMS(2), zeros);
        if (i == 5) sw_output(y, NULL);
        if (i == 6) sw_named(y, NULL);
        assert_int_equal(sw_graph_status(g), SW_ERR_ARGUMENT);
        assert_string_equal(sw_error(), messages[i]);
        sw_graph_free(g);
    }
}

/* ---- scopes --------------------------------------------------------------------------------------------------- */

static void test_scopes(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    sw_scope_push(g, "layer%d.%d", 1, 0);
    sw_scope_push(g, "%s", "conv1");
    assert_string_equal(sw_name(sw_param(g, "weight", DIMS(2), zeros)), "layer1.0.conv1.weight");
    sw_scope_pop(g);
    sw_scope_push(g, "%s", "");
    assert_string_equal(sw_name(sw_param(g, "bias", DIMS(2), zeros)), "layer1.0.bias");
    sw_scope_pop(g);
    sw_scope_pop(g);
    const sw_t w = sw_param(g, "w", DIMS(2), zeros), x = sw_input(g, "x", SW_F32, DIMS(2));
    assert_string_equal(sw_name(w), "w");
    sw_scope_push(g, "s");
    assert_string_equal(sw_name(sw_input(g, "lr", SW_F32, 0, NULL)), "lr"); /* inputs and outputs are the program's */
    assert_string_equal(sw_name(sw_named(sw_neg(x), "minus")), "s.minus");
    assert_string_equal(sw_name(sw_named(x, "other")), "x"); /* found by their names, so they keep them */
    assert_string_equal(sw_name(sw_named(w, "other")), "w");
    sw_scope_pop(g);
    assert_int_equal(sw_graph_status(g), SW_OK);
    sw_scope_pop(g);
    assert_int_equal(sw_graph_status(g), SW_ERR_ARGUMENT);
    assert_string_equal(sw_error(), "sw_scope_pop without a sw_scope_push: every pop needs its push");
    sw_graph_free(g);
}

static void test_deep_and_long_scopes(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    for (int i = 0; i < 5000; i++) sw_scope_push(g, "block%d", i);
    const sw_t w = sw_param(g, "w", DIMS(2), zeros);
    assert_true(strlen(sw_name(w)) > 40000);
    for (int i = 0; i < 5000; i++) sw_scope_pop(g);
    assert_string_equal(sw_name(sw_param(g, "w", DIMS(2), zeros)), "w");
    for (int i = 0; i < 5000; i++) sw_scope_push(g, "block%d", i);
    sw_neg(in_(g, SW_BOOL, DIMS(1))); /* the message must still fit somewhere */
    assert_int_equal(sw_graph_status(g), SW_ERR_SHAPE);
    sw_scope_push(g, NULL);
    sw_scope_pop(g);
    for (int i = 0; i < 5000; i++) sw_scope_pop(g);
    sw_graph_free(g);
}

/* ---- sources -------------------------------------------------------------------------------------------------- */

static void test_constants(void **state)
{
    (void)state;
    static const struct { sw_dtype type; double in, value; int64_t ivalue; } cases[] = {
        { SW_F32, 0.1, 0.1, 0 },
        { SW_F64, -2.5, -2.5, -2 },
        { SW_I32, 2.9, 2, 2 },
        { SW_I32, 1e10, 2147483647, 2147483647 },
        { SW_U8, 300, 255, 255 },
        { SW_U8, -1, 0, 0 },
        { SW_BOOL, 0.5, 1, 1 },
        { SW_BOOL, 0, 0, 0 },
        { SW_I64, -7, -7, -7 },
        { SW_U32, 4294967295.0, 4294967295.0, 4294967295 },
    };
    sw_graph *const g = graph();
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        const sw_t t = sw_const(g, cases[i].type, cases[i].in);
        assert_int_equal(sw_rank(t), 0);
        assert_true(sw__node_of(t)->attr.constant.value == cases[i].value);
        assert_int_equal(sw__node_of(t)->attr.constant.ivalue, cases[i].ivalue);
    }
    const sw_t full = sw_full(g, SW_F32, DIMS(2, 3), 7);
    assert_int_equal(sw_elements(full), 6);
    const float data[2] = { 1, 2 };
    const sw_t literal = sw_literal(g, SW_F32, DIMS(2), data);
    assert_ptr_not_equal(sw__node_of(literal)->attr.literal.data, data);
    assert_memory_equal(sw__node_of(literal)->attr.literal.data, data, sizeof data);
    sw_graph_set_seed(g, UINT64_C(0x0000000500000003));
    const sw_t bits = sw_random_bits(g, SW_NONE, 9, DIMS(4));
    assert_int_equal(sw__node_of(bits)->attr.random.seed, 6); /* both halves of the seed, in one word */
    assert_int_equal(sw__node_of(bits)->attr.random.stream, 9);
    sw_graph_free(g);
}

static void test_variables(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    const sw_t w = sw_param(g, "w", DIMS(3, 4), (sw_init){ .kind = SW_INIT_NORMAL, .b = 2 });
    const sw_t m = sw_variable(g, "mean", SW_VAR_BUFFER, SW_F64, 0, NULL, zeros);
    const sw_t b = sw_param(g, "b", DIMS(4), zeros);
    sw_t out[2] = { SW_NONE, SW_NONE };
    assert_int_equal(sw_graph_variables(g, SW_VAR_PARAM, NULL, 0), 2);
    assert_int_equal(sw_graph_variables(g, SW_VAR_PARAM, out, 1), 2);
    assert_true(out[0].id == w.id && out[1].id == 0);
    assert_int_equal(sw_graph_variables(g, SW_VAR_PARAM, out, 2), 2);
    assert_true(out[1].id == b.id);
    assert_int_equal(sw_graph_variables(g, SW_VAR_BUFFER, out, 2), 1);
    assert_true(out[0].id == m.id);
    assert_int_equal(sw_graph_variables(g, SW_VAR_STATE, out, 2), 0);
    assert_true(g->vars[0].init.kind == SW_INIT_NORMAL && g->vars[0].init.b == 2.0 && g->vars[0].group == -1);
    assert_int_equal(g->vars[0].dim[1], 4);
    assert_int_equal(sw_type(m), SW_F64);
    assert_true(sw_graph_is_training(g));
    sw_graph_set_training(g, false);
    assert_false(sw_graph_is_training(g));
    sw_graph_free(g);
}

static void test_assign(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "assign %10: %1 'a' f32[3] is already assigned by %9: one assign a variable and run",
        "assign %10: %2 'b' f32[2,2] is already assigned by %9, through its group: one assign a variable and run",
        "assign %10: %4 f32[32] is already assigned by %9: one assign a variable and run",
        "assign %10: %8 f32[32] is already assigned by %9, through its group: one assign a variable and run",
    };
    for (size_t i = 0; i < SW_COUNT(messages); i++) {
        sw_graph *const g = graph();
        const sw_t vars[2] = { sw_param(g, "a", DIMS(3), zeros), sw_param(g, "b", DIMS(2, 2), zeros) };
        const sw_t free_var = sw_param(g, "c", DIMS(3), zeros);
        uint32_t group = 99;
        assert_int_equal(sw__var_group(g, vars, 2, &group), SW_OK);
        const sw_t all = sw__varpack(g, group), value = sw_neg(all);
        const sw_t va = sw_neg(vars[0]), vb = sw_neg(vars[1]);
        const sw_t again = sw__varpack(g, group);
        const sw_t done = i == 0 || i == 3 ? sw_assign(vars[0], va) : sw_assign(all, value);
        assert_true(sw_valid(done));
        assert_int_equal(g->n_assigns, 1);
        assert_int_equal(g->assigns[0], done.id);
        if (i == 0) sw_assign(vars[0], va);
        if (i == 1) sw_assign(vars[1], vb);
        if (i == 2) sw_assign(all, value);
        if (i == 3) sw_assign(again, value);
        assert_int_equal(g->n_assigns, 1);
        assert_int_equal(sw_graph_status(g), SW_ERR_ARGUMENT);
        assert_string_equal(sw_error(), messages[i]);
        assert_true(sw_valid(free_var));
        sw_graph_free(g);
    }
    sw_graph *const g = graph();
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        const sw_t v = sw_param(g, name, DIMS(3), zeros);
        sw_assign(v, sw_neg(v));
    }
    assert_int_equal(g->n_assigns, 100);
    assert_int_equal(sw_graph_status(g), SW_OK);
    sw_graph_free(g);
}

/* ---- groups --------------------------------------------------------------------------------------------------- */

static void test_groups(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    const sw_t a = sw_param(g, "a", DIMS(3, 7), zeros), b = sw_param(g, "b", DIMS(0, 5), zeros);
    const sw_t c = sw_param(g, "c", DIMS(16), zeros), d = sw_param(g, "d", 0, NULL, zeros);
    uint32_t first = 99, second = 99;
    assert_int_equal(sw__var_group(g, (const sw_t[]){ c, a, b }, 3, &first), SW_OK);
    assert_int_equal(sw__var_group(g, &d, 1, &second), SW_OK);
    assert_true(first == 0 && second == 1);
    assert_true(g->vars[2].place == 0 && g->vars[0].place == 16 && g->vars[1].place == 48 && g->vars[3].place == 0);
    assert_true(g->vars[0].group == 0 && g->vars[3].group == 1);
    assert_true(g->groups[0].elements == 48 && g->groups[1].elements == 16 && g->groups[0].n == 3);
    assert_true(g->groups[0].vars[0] == 2 && g->groups[0].vars[1] == 0);
    assert_shape(sw__varpack(g, 0), "f32[48]");
    assert_shape(sw__pack(g, 0, (const sw_t[]){ sw_neg(c), sw_neg(a), b }), "f32[48]");
    sw_graph_free(g);
}

static void test_bad_groups(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "group: it needs at least one variable",
        "group: entry 1 is not a variable of this graph",
        "group: variable 'w' (f32) is already in a group",
        "group: variable 'd' (f64) has another type than the first of the group",
        "varpack: there is no group 1 (the graph has 1)",
        "pack %5: operand 1, %1 'w' f32[2], must have shape [3]: v",
        "pack: there is no group 7 (the graph has 1)",
        "group: variable 'huge' (f32) is already in a group",
    };
    for (size_t i = 0; i < SW_COUNT(messages); i++) {
        sw_graph *const g = graph();
        const sw_t w = sw_param(g, "w", DIMS(2), zeros), v = sw_param(g, "v", DIMS(3), zeros);
        const sw_t d = sw_variable(g, "d", SW_VAR_PARAM, SW_F64, DIMS(3), zeros), no = sw_neg(w);
        uint32_t group = 99;
        assert_int_equal(sw__var_group(g, &v, 1, &group), SW_OK);
        if (i == 0) sw__var_group(g, NULL, 0, &group);
        if (i == 1) sw__var_group(g, (const sw_t[]){ w, no }, 2, &group);
        if (i == 2) sw__var_group(g, (const sw_t[]){ w, w }, 2, &group);
        if (i == 3) sw__var_group(g, (const sw_t[]){ w, d }, 2, &group);
        if (i == 4) sw__varpack(g, 1);
        if (i == 5) sw__pack(g, 0, &w);
        if (i == 6) sw__pack(g, 7, &w);
        if (i == 7) {
            const sw_t huge = sw_param(g, "huge", DIMS(INT64_MAX / 16), zeros);
            sw__var_group(g, (const sw_t[]){ huge, huge }, 2, &group);
        }
        assert_int_not_equal(sw_graph_status(g), SW_OK);
        assert_string_equal(sw_error(), messages[i]);
        assert_true(g->n_groups == 1 && g->vars[0].group == -1 && g->vars[1].place == 0);
        sw_graph_free(g);
    }
}

/* ---- structure ------------------------------------------------------------------------------------------------ */

static void assert_text(const sw_graph *g, const char *want)
{
    char *text = NULL;
    assert_int_equal(sw_graph_print(g, SW_PRINT_TEXT, &text), SW_OK);
    assert_string_equal(text, want);
    sw_string_free(text);
}

static void test_moves_that_change_nothing(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    const sw_t x = F(2, 3);
    const sw_t same[] = {
        sw_reshape(x, DIMS(2, 3)), sw_reshape(x, DIMS(-1, 3)), sw_flatten(x), sw_permute(x, (const int[]){ 0, 1 }),
        sw_transpose(x, 1, -1), sw_expand(x, DIMS(2, 3)), sw_pad(x, L(0, 0), L(0, 0), L(0, 0), 5),
        sw_slice(x, L(0, 0), L(2, 3), NULL), sw_narrow(x, 1, 0, 3), sw_concat(&x, 1, 0), sw_cast(x, SW_F32),
    };
    for (size_t i = 0; i < SW_COUNT(same); i++) assert_int_equal(same[i].id, x.id);
    assert_int_equal(g->n_nodes, 2);
    sw_graph_free(g);
}

static void test_broadcasting(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    const sw_t x = sw_input(g, "x", SW_F32, DIMS(2, 3)), b = sw_input(g, "b", SW_F32, DIMS(3));
    sw_add(x, b);
    sw_mul_scalar(x, 2);
    assert_text(g, "%1 f32[2,3] input() slot=0 'x'\n"
                   "%2 f32[3] input() slot=1 'b'\n"
                   "%3 f32[1,3] reshape(%2)\n"
                   "%4 f32[2,3] expand(%3)\n"
                   "%5 f32[2,3] add(%1, %4)\n"
                   "%6 f32[2,3] const() value=2\n"
                   "%7 f32[2,3] mul(%1, %6)\n");
    sw_graph_free(g);
}

static void test_compositions(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    const sw_t x = sw_input(g, "x", SW_F32, DIMS(2)), y = sw_input(g, "y", SW_F32, DIMS(2));
    sw_relu(x);
    sw_le(x, y);
    sw_gt(x, y);
    sw_ne(x, y);
    sw_mean(x, SW_ALL_AXES, false);
    assert_text(g, "%1 f32[2] input() slot=0 'x'\n"
                   "%2 f32[2] input() slot=1 'y'\n"
                   "%3 f32[2] const() value=0\n"
                   "%4 f32[2] max(%1, %3) tie=second\n"
                   "%5 bool[2] eq(%1, %2)\n"
                   "%6 bool[2] lt(%1, %2)\n"
                   "%7 bool[2] or(%6, %5)\n"
                   "%8 bool[2] lt(%2, %1)\n"
                   "%9 bool[2] eq(%1, %2)\n"
                   "%10 bool[2] const() value=1\n"
                   "%11 bool[2] xor(%9, %10)\n"
                   "%12 f32[1] reduce_sum(%1) axes=0\n"
                   "%13 f32[] reshape(%12)\n"
                   "%14 f32[] const() value=2\n"
                   "%15 f32[] div(%13, %14)\n");
    sw_graph_free(g);
}

static void test_matmul_structure(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    const sw_t x = sw_input(g, "x", SW_F32, DIMS(5, 2, 3)), w = sw_param(g, "w", DIMS(4, 3), zeros);
    sw_linear_op(x, w, sw_param(g, "b", DIMS(4), zeros));
    sw_matmul(x, sw_input(g, "m", SW_F32, DIMS(1, 3, 2)));
    assert_text(g, "%1 f32[5,2,3] input() slot=0 'x'\n"
                   "%2 f32[4,3] var() slot=0 'w'\n"
                   "%3 f32[4] var() slot=1 'b'\n"
                   "%4 f32[10,3] reshape(%1)\n"
                   "%5 f32[3,4] permute(%2) axes=1,0\n"
                   "%6 f32[10,4] matmul(%4, %5, %3)\n"
                   "%7 f32[5,2,4] reshape(%6)\n"
                   "%8 f32[1,3,2] input() slot=1 'm'\n"
                   "%9 f32[5,3,2] expand(%8)\n"
                   "%10 f32[5,2,2] matmul(%1, %9)\n");
    sw_graph_free(g);
}

/* A graph that has every kind of attribute, with names that need care. */
static sw_graph *varied(void)
{
    sw_graph *const g = graph();
    const sw_t x = sw_input(g, "x", SW_F32, DIMS(2, 4, 9, 9)), w = sw_param(g, "w", DIMS(6, 2, 3, 3), zeros);
    sw_graph_set_seed(g, 11);
    sw_t y = sw_named(sw_conv_op(x, w, SW_NONE, &(sw_conv_options){ .stride = { 2, 2 }, .pad_lo = { 1, 1 },
                                                                    .dilation = { 1, 2 }, .groups = 2 }), "conv1");
    y = sw_max_pool_op(sw_relu(y), &(sw_pool_options){ .kernel = { 2, 2 }, .stride = { 1, 1 } });
    y = sw_avg_pool_op(y, &(sw_pool_options){ .kernel = { 2, 2 }, .pad_hi = { 1, 1 }, .count_include_pad = true });
    y = sw_named(sw_flatten(y), "odd \"name\" 'here' \\ \n");
    sw_t mean;
    const sw_t gamma = sw_param(g, "gamma", DIMS(12), zeros), beta = sw_param(g, "beta", DIMS(12), zeros);
    y = sw_batch_norm_op(y, gamma, beta, 1e-5, &mean, NULL);
    y = sw_layer_norm_op(y, SW_NONE, SW_NONE, 1, 1e-6);
    uint32_t group = 0;
    sw__var_group(g, (const sw_t[]){ gamma, beta }, 2, &group);
    const sw_t packed = sw__pack(g, group, (const sw_t[]){ mean, sw_neg(mean) });
    sw_assign(sw__varpack(g, group), packed);
    y = sw_concat((const sw_t[]){ y, sw_rand(g, sw_input(g, "t", SW_I64, 0, NULL), 5, DIMS(2, 24)) }, 2, 1);
    y = sw_pad(sw_transpose(y, 0, 1), L(1, 0), L(0, 2), L(0, 1), -1.5);
    y = sw_slice(y, L(1, 0), L(35, 3), L(3, 1));
    const int32_t index[3] = { 2, 0, 1 };
    const sw_t rows = sw_literal(g, SW_I32, DIMS(3), index);
    y = sw_embedding_op(y, rows);
    y = sw_sum(sw_cumsum(sw_softmax(y, -1), 0, true), SW_AXIS(0) | SW_AXIS(1), true);
    sw_output(y, "loss");
    sw_output(sw_argsort(sw_iota(g, SW_I32, DIMS(3), 0), 0, true), "say \"order\"");
    if (sw_graph_status(g) != SW_OK) print_error("%s\n", sw_error());
    assert_int_equal(sw_graph_status(g), SW_OK);
    return g;
}

static const char varied_text[] =
    "%1 f32[2,4,9,9] input() slot=0 'x'\n"
    "%2 f32[6,2,3,3] var() slot=0 'w'\n"
    "%3 f32[2,6,4,3] conv(%1, %2) stride=2,2 pad_lo=1,1 dilation=1,2 groups=2 'conv1'\n"
    "%4 f32[2,6,4,3] const() value=0\n"
    "%5 f32[2,6,4,3] max(%3, %4) tie=second\n"
    "%6 f32[2,6,3,2] max_pool(%5) kernel=2,2 stride=1,1\n"
    "%7 f32[2,6,2,1] avg_pool(%6) kernel=2,2 stride=2,2 pad_hi=1,1 include_pad\n"
    "%8 f32[2,12] reshape(%7) 'odd \"name\" \\'here\\' \\\\ \\n'\n"
    "%9 f32[12] var() slot=1 'gamma'\n"
    "%10 f32[12] var() slot=2 'beta'\n"
    "%11 f32[2,12] batch_norm(%8, %9, %10) eps=1e-05\n"
    "%12 f32[12] output(%11) k=1\n"
    "%13 f32[2,12] layer_norm(%11) eps=1e-06 n_axes=1\n"
    "%14 f32[12] neg(%12)\n"
    "%15 f32[32] pack(%12, %14) group=0\n"
    "%16 f32[32] varpack() group=0\n"
    "%17 f32[32] assign(%16, %15)\n"
    "%18 i64[] input() slot=1 't'\n"
    "%19 u32[2,24] random(%18) seed=11 stream=5\n"
    "%20 u32[2,24] const() value=8\n"
    "%21 u32[2,24] shr(%19, %20)\n"
    "%22 f32[2,24] cast(%21)\n"
    "%23 f32[2,24] const() value=5.96046448e-08\n"
    "%24 f32[2,24] mul(%22, %23)\n"
    "%25 f32[2,36] concat(%13, %24) axis=1\n"
    "%26 f32[36,2] permute(%25) axes=1,0\n"
    "%27 f32[37,5] pad(%26) lo=1,0 hi=0,2 interior=0,1 value=-1.5\n"
    "%28 f32[12,3] slice(%27) start=1,0 stop=35,3 step=3,1\n"
    "%29 i32[3] literal() bytes=12\n"
    "%30 f32[3,3] embedding(%28, %29)\n"
    "%31 f32[3,3] softmax(%30) axis=1\n"
    "%32 f32[3,3] scan_sum(%31) axis=0 reverse\n"
    "%33 f32[1,1] reduce_sum(%32) axes=0,1\n"
    "%34 i32[3] iota() axis=0\n"
    "%35 i64[3] argsort(%34) axis=0 descending\n"
    "output 'loss' %33\n"
    "output 'say \"order\"' %35\n";

static void test_text(void **state)
{
    (void)state;
    sw_graph *const g = varied();
    assert_text(g, varied_text);
    sw_graph_free(g);
    sw_graph *const empty = graph();
    assert_text(empty, "");
    char *text = NULL;
    assert_int_equal(sw_graph_print(empty, (sw_print_format)9, &text), SW_ERR_ARGUMENT);
    assert_null(text);
    sw_graph_free(empty);
}

static void test_dot(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    const sw_t x = sw_named(sw_softmax(sw_input(g, "x", SW_F32, DIMS(2)), 0), "a \"b\"\\");
    sw_output(sw_add(x, x), "say \"y\"");
    char *text = NULL;
    assert_int_equal(sw_graph_print(g, SW_PRINT_DOT, &text), SW_OK);
    assert_string_equal(text, "digraph swoop {\n"
                              "  node [shape=box, fontname=\"monospace\"];\n"
                              "  n1 [label=\"%1 input 'x'\\nf32[2]\\nslot=0\", style=rounded];\n"
                              "  n2 [label=\"%2 softmax 'a \\\"b\\\"\\\\'\\nf32[2]\\naxis=0\", style=bold];\n"
                              "  n1 -> n2;\n"
                              "  n3 [label=\"%3 add\\nf32[2]\"];\n"
                              "  n2 -> n3 [headlabel=\"0\"];\n"
                              "  n2 -> n3 [headlabel=\"1\"];\n"
                              "  out0 [shape=ellipse, label=\"say \\\"y\\\"\"];\n"
                              "  n3 -> out0;\n"
                              "}\n");
    sw_string_free(text);
    sw_graph_free(g);
}

/* ---- rewriting ------------------------------------------------------------------------------------------------ */

/* Copies the nodes that `live` marks (NULL: all) into a new graph. */
static sw_status copy_graph(const sw_graph *g, const bool *live, sw_graph **out)
{
    sw_t *const map = sw__calloc(g->n_nodes, sizeof *map);
    if (map == NULL) return sw__no_memory(1, "map");
    sw_status st = sw__graph_like(g, out);
    if (st == SW_OK) {
        for (uint32_t id = 1; id < g->n_nodes; id++)
            if (live == NULL || live[id]) map[id] = sw__node_copy(*out, g, id, map);
        st = sw__graph_finish(*out, g, map);
        if (st != SW_OK) {
            sw_graph_free(*out);
            *out = NULL;
        }
    }
    sw__free(map);
    return st;
}

static void test_copy_is_exact(void **state)
{
    (void)state;
    sw_graph *const g = varied();
    g->nodes[3].order[0] = 1;
    g->nodes[3].order[1] = 0;
    sw_graph *copy = NULL;
    assert_int_equal(copy_graph(g, NULL, &copy), SW_OK);
    char *a = NULL, *b = NULL;
    assert_int_equal(sw_graph_print(g, SW_PRINT_TEXT, &a), SW_OK);
    assert_int_equal(sw_graph_print(copy, SW_PRINT_TEXT, &b), SW_OK);
    assert_string_equal(a, b);
    assert_non_null(strstr(a, "order=1,0,2,3"));
    assert_true(copy->n_nodes == g->n_nodes && copy->n_assigns == g->n_assigns && copy->seed == g->seed);
    for (uint32_t id = 1; id < g->n_nodes; id++) {
        if (g->nodes[id].op != SW_OP_LITERAL)
            assert_memory_equal(&g->nodes[id].attr, &copy->nodes[id].attr, sizeof g->nodes[id].attr);
        assert_memory_equal(g->nodes[id].dim, copy->nodes[id].dim, sizeof g->nodes[id].dim);
    }
    for (uint32_t i = 0; i < g->n_vars; i++) {
        assert_string_equal(g->vars[i].name, copy->vars[i].name);
        assert_true(g->vars[i].node == copy->vars[i].node && g->vars[i].place == copy->vars[i].place &&
                    g->vars[i].group == copy->vars[i].group);
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) assert_int_equal(g->inputs[i].node, copy->inputs[i].node);
    sw_graph_free(g); /* the copy stands alone */
    char *c = NULL;
    assert_int_equal(sw_graph_print(copy, SW_PRINT_TEXT, &c), SW_OK);
    assert_string_equal(b, c);
    for (uint32_t id = 1; id < copy->n_nodes; id++)
        if (copy->nodes[id].op == SW_OP_LITERAL)
            assert_memory_equal(copy->nodes[id].attr.literal.data, ((const int32_t[]){ 2, 0, 1 }), 12);
    sw_graph_free(copy);
    sw_string_free(a);
    sw_string_free(b);
    sw_string_free(c);
}

static void test_live(void **state)
{
    (void)state;
    sw_graph *const g = graph();
    const sw_t x = sw_input(g, "x", SW_F32, DIMS(2)), unused = sw_input(g, "unused", SW_F32, DIMS(5));
    const sw_t w = sw_param(g, "w", DIMS(2), zeros), idle = sw_param(g, "idle", DIMS(3), zeros);
    const sw_t dead = sw_neg(sw_exp(x)), kept = sw_exp(x), step = sw_assign(w, sw_neg(w));
    sw_output(kept, "y");
    bool *live = NULL;
    assert_int_equal(sw__graph_live(g, &live), SW_OK);
    assert_true(live[x.id] && live[w.id] && live[kept.id] && live[step.id]);
    assert_false(live[dead.id] || live[unused.id] || live[idle.id] || live[0]);
    sw_graph *out = NULL;
    assert_int_equal(copy_graph(g, live, &out), SW_OK);
    /* Unused inputs and variables still have a node, at the end. */
    assert_text(out, "%1 f32[2] input() slot=0 'x'\n"
                     "%2 f32[2] var() slot=0 'w'\n"
                     "%3 f32[2] exp(%1)\n"
                     "%4 f32[2] neg(%2)\n"
                     "%5 f32[2] assign(%2, %4)\n"
                     "%6 f32[5] input() slot=1 'unused'\n"
                     "%7 f32[3] var() slot=1 'idle'\n"
                     "output 'y' %3\n");
    sw__free(live);
    sw_graph_free(out);
    out = NULL;
    /* An output without counterpart is an error, not a program that silently lacks it. */
    bool *const none = sw__calloc(g->n_nodes, sizeof *none);
    assert_non_null(none);
    assert_int_equal(copy_graph(g, none, &out), SW_ERR_ARGUMENT);
    assert_null(out);
    sw__free(none);
    sw_neg(sw_add(x, unused));
    assert_int_equal(sw__graph_like(g, &out), SW_ERR_SHAPE); /* a graph with an error is not rewritten */
    sw_graph_free(g);
}

/* ---- the op table --------------------------------------------------------------------------------------------- */

static void test_op_table(void **state)
{
    (void)state;
    for (int op = SW_OP_NONE + 1; op < SW_OP_COUNT; op++) {
        const sw__op_info *const info = &sw__op_table[op];
        assert_non_null(info->name);
        assert_non_null(info->infer);
        assert_true(info->min_in <= info->max_in);
        assert_true((info->lower != NULL) == (info->cls == SW_CLASS_BIG));
        assert_true(info->grad != NULL || info->lower != NULL);
        for (int other = op + 1; other < SW_OP_COUNT; other++)
            assert_string_not_equal(info->name, sw__op_table[other].name);
    }
}

/* ---- out of memory -------------------------------------------------------------------------------------------- */

static long allocations_left = -1; /* -1: no limit */

static bool refused(void)
{
    if (allocations_left < 0) return false;
    if (allocations_left == 0) return true;
    allocations_left--;
    return false;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return refused() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    return refused() ? NULL : __real_realloc(p, bytes);
}

/* Builds, copies and prints a graph; the status of the first thing that fails. */
static sw_status small_build(void)
{
    sw_graph *g = NULL, *copy = NULL;
    char *text = NULL, *dot = NULL;
    bool *live = NULL;
    sw_status st;
    SW_TRY_GOTO(sw_graph_new(&g), done);
    sw_scope_push(g, "model%d", 1);
    const sw_t x = sw_input(g, "x", SW_F32, DIMS(4, 3)), w = sw_param(g, "w", DIMS(5, 3), zeros);
    const sw_t b = sw_param(g, "b", DIMS(5), zeros);
    sw_scope_push(g, "more");
    sw_t y = sw_named(sw_linear_op(x, w, b), "linear");
    for (int i = 0; i < 20; i++) y = sw_relu(sw_add(y, b));
    const float data[5] = { 0 };
    const sw_t rows = sw_expand(sw_literal(g, SW_F32, DIMS(5), data), DIMS(4, 5));
    y = sw_concat((const sw_t[]){ y, rows, y, y, y, y, y, y, y }, 9, 0); /* more than a copy keeps on its stack */
    sw_scope_pop(g);
    sw_scope_pop(g);
    uint32_t group = 0;
    SW_TRY_GOTO(sw__var_group(g, (const sw_t[]){ w, b }, 2, &group), done);
    sw_assign(sw__varpack(g, group), sw__pack(g, group, (const sw_t[]){ sw_neg(w), sw_neg(b) }));
    sw_output(sw_sum(y, SW_ALL_AXES, false), "sum");
    SW_TRY_GOTO(sw_graph_status(g), done);
    SW_TRY_GOTO(sw__graph_live(g, &live), done);
    SW_TRY_GOTO(copy_graph(g, live, &copy), done);
    SW_TRY_GOTO(sw_graph_print(copy, SW_PRINT_TEXT, &text), done);
    SW_TRY_GOTO(sw_graph_print(copy, SW_PRINT_DOT, &dot), done);
done:
    sw__free(live);
    sw_string_free(text);
    sw_string_free(dot);
    sw_graph_free(copy);
    sw_graph_free(g);
    return st;
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    assert_int_equal(small_build(), SW_OK);
    sw_status st = SW_ERR_MEMORY;
    long n = 0;
    for (; st != SW_OK && n < 10000; n++) {
        allocations_left = n;
        st = small_build();
        const bool finished = allocations_left > 0;
        allocations_left = -1;
        if (st == SW_OK) break;
        assert_int_equal(st, SW_ERR_MEMORY);
        assert_non_null(strstr(sw_error(), "out of memory"));
        assert_false(finished);
    }
    assert_int_equal(st, SW_OK);
    assert_true(n > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_shapes),
        cmocka_unit_test(test_bad_shapes),
        cmocka_unit_test(test_errors_are_sticky),
        cmocka_unit_test(test_label_of_a_shape_rule),
        cmocka_unit_test(test_no_value),
        cmocka_unit_test(test_failed_outputs),
        cmocka_unit_test(test_two_graphs),
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_deep_and_long_scopes),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_assign),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_bad_groups),
        cmocka_unit_test(test_moves_that_change_nothing),
        cmocka_unit_test(test_broadcasting),
        cmocka_unit_test(test_compositions),
        cmocka_unit_test(test_matmul_structure),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_copy_is_exact),
        cmocka_unit_test(test_live),
        cmocka_unit_test(test_op_table),
        cmocka_unit_test(test_every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
