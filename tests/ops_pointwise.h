/* ops_pointwise.h: cases of the sources and the pointwise ops. A table for test_ops.c.
 * Bounds are relative, of f32 on the cpu against double: 2e-6 is 17 units in the last place. */
#ifndef SW_TESTS_OPS_POINTWISE_H
#define SW_TESTS_OPS_POINTWISE_H

#include "ops_case.h"

static sw_t build_literal(sw_graph *g, const sw_t *in, const ops_case *c)
{
    (void)c;
    static const float values[6] = { 1.5f, -2, 0, 3e-20f, 4e20f, -0.0f };
    return sw_mul(in[0], sw_literal(g, SW_F32, 2, (int64_t[]){ 2, 3 }, values));
}

static sw_t build_variable(sw_graph *g, const sw_t *in, const ops_case *c)
{
    (void)c;
    const sw_init half = { .kind = SW_INIT_CONSTANT, .a = 0.5 }, normal = { .kind = SW_INIT_NORMAL, .b = 1 };
    const sw_t a = sw_param(g, "half", 2, (int64_t[]){ 2, 3 }, half);
    const sw_t b = sw_param(g, "normal", 2, (int64_t[]){ 2, 3 }, normal);
    return sw_add(sw_mul(in[0], a), b);
}

/* A group of three variables as one flat tensor: [3], [2, 2], [20] at places 0, 16 and 32. */
static uint32_t three_variables(sw_graph *g)
{
    const sw_init normal = { .kind = SW_INIT_NORMAL, .b = 1 };
    const sw_t v[3] = { sw_param(g, "a", 1, (int64_t[]){ 3 }, normal), sw_param(g, "b", 2, (int64_t[]){ 2, 2 }, normal),
                        sw_param(g, "c", 1, (int64_t[]){ 20 }, normal) };
    uint32_t group = 0;
    return sw__var_group(g, v, 3, &group) == SW_OK ? group : UINT32_MAX;
}

static sw_t build_varpack(sw_graph *g, const sw_t *in, const ops_case *c)
{
    (void)c;
    return sw_mul(sw__varpack(g, three_variables(g)), in[0]);
}

static sw_t build_pack(sw_graph *g, const sw_t *in, const ops_case *c)
{
    (void)c;
    return sw__pack(g, three_variables(g), in);
}

/* The updated variable is not to be seen by what else the run reads. */
static sw_t build_assign(sw_graph *g, const sw_t *in, const ops_case *c)
{
    (void)c;
    const sw_init normal = { .kind = SW_INIT_NORMAL, .b = 1 };
    const sw_t v = sw_param(g, "v", 2, (int64_t[]){ 3, 4 }, normal);
    sw_assign(v, sw_add(v, in[0]));
    return sw_mul(v, in[0]);
}

static sw_t build_input(sw_graph *g, const sw_t *in, const ops_case *c)
{
    (void)g;
    (void)c;
    return in[0];
}

static sw_t build_outputs(sw_graph *g, const sw_t *in, const ops_case *c)
{
    (void)g;
    (void)c;
    sw_t mean, var;
    const sw_t y = sw_batch_norm_op(in[0], in[1], in[2], 1e-5, &mean, &var);
    return sw_add(y, sw_reshape(sw_add(mean, var), 4, (int64_t[]){ 1, 4, 1, 1 }));
}

#define UNARY(OP, FILL) { SW_OP_##OP, "", .in = { F32(FILL, 3, 5) }, .flags = ELEMENTWISE | ALL_SHAPES }
#define UNARY_EDGES(OP) { SW_OP_##OP, "special values", .in = { FIXED(SPECIAL_ROWS, 32, 32) }, .flags = ELEMENTWISE }
#define BINARY(OP, A, B) { SW_OP_##OP, "", .in = { F32(A, 3, 5), F32(B, 3, 5) }, .flags = ELEMENTWISE | ALL_SHAPES }
#define PAIRS(OP, TYPE)                                                                                                \
    { SW_OP_##OP, "all pairs of special values, " #TYPE,                                                               \
      .in = { EXACT(SW_##TYPE, SPECIAL_ROWS, 32, 32), EXACT(SW_##TYPE, SPECIAL_COLS, 32, 32) },                        \
      .flags = ELEMENTWISE | NO_DIFFERENCES }
#define INTEGERS(OP) PAIRS(OP, I32), PAIRS(OP, I64), PAIRS(OP, U8), PAIRS(OP, U32)
#define CASTS(FROM, TO)                                                                                                \
    { SW_OP_CAST, #FROM " to " #TO, .in = { OF(SW_##FROM, SPECIAL_COLS, 32, 32) }, .like = { .dtype = SW_##TO },       \
      .flags = ELEMENTWISE | NO_DIFFERENCES }
#define CASTS_TO_ALL(FROM)                                                                                             \
    CASTS(FROM, F32), CASTS(FROM, F64), CASTS(FROM, F16), CASTS(FROM, BF16), CASTS(FROM, I32), CASTS(FROM, I64),       \
    CASTS(FROM, U8), CASTS(FROM, BOOL), CASTS(FROM, U32)

/* clang-format off */
static const ops_case pointwise_cases[] = {
    /* sources */
    { SW_OP_CONST, "f32", .in = { { 0 } }, .attr.constant = { 0.1, 0 },
      .like = { .dtype = SW_F32, .rank = 2, .dim = { 3, 4 } } },
    { SW_OP_CONST, "f64", .in = { { 0 } }, .attr.constant = { 1e300, 0 },
      .like = { .dtype = SW_F64, .rank = 1, .dim = { 5 } } },
    { SW_OP_CONST, "i64", .in = { { 0 } }, .attr.constant = { 9007199254740993.0, 9007199254740993 },
      .like = { .dtype = SW_I64 } },
    { SW_OP_CONST, "bool", .in = { { 0 } }, .attr.constant = { 1, 1 },
      .like = { .dtype = SW_BOOL, .rank = 1, .dim = { 7 } } },
    { SW_OP_CONST, "no elements", .in = { { 0 } }, .attr.constant = { 1, 1 },
      .like = { .dtype = SW_F32, .rank = 2, .dim = { 0, 3 } } },
    { SW_OP_LITERAL, "", .in = { F32(NORMAL, 2, 3) }, .build = build_literal },
    { SW_OP_IOTA, "axis 1, f32", .in = { { 0 } }, .attr.axis = { .axis = 1 },
      .like = { .dtype = SW_F32, .rank = 3, .dim = { 3, 5, 2 } } },
    { SW_OP_IOTA, "axis 0, i64", .in = { { 0 } }, .attr.axis = { .axis = 0 },
      .like = { .dtype = SW_I64, .rank = 2, .dim = { 300, 3 } } },
    { SW_OP_IOTA, "u8 wraps", .in = { { 0 } }, .attr.axis = { .axis = 0 },
      .like = { .dtype = SW_U8, .rank = 1, .dim = { 700 } } },
    { SW_OP_RANDOM, "no counter", .in = { { 0 } }, .attr.random = { 42, 7 },
      .like = { .dtype = SW_U32, .rank = 2, .dim = { 5, 7 } } },
    { SW_OP_RANDOM, "counter", .in = { SCALAR(SW_I64, ANY_INT) }, .attr.random = { 0xFFFFFFFFu, 3 },
      .like = { .dtype = SW_U32, .rank = 1, .dim = { 1031 } } },
    { SW_OP_RANDOM, "seed of 64 bits", .in = { SCALAR(SW_I64, SMALL_INT) }, .attr.random = { 0x123456789ABCDEFu, 3 },
      .like = { .dtype = SW_U32, .rank = 1, .dim = { 9 } } },
    { SW_OP_INPUT, "", .in = { F32(NORMAL, 3, 4) }, .build = build_input },
    { SW_OP_INPUT, "no elements", .in = { F32(NORMAL, 3, 0, 4) }, .build = build_input },
    { SW_OP_VAR, "", .in = { F32(NORMAL, 2, 3) }, .build = build_variable },
    { SW_OP_VARPACK, "", .in = { F32(NORMAL, 64) }, .build = build_varpack },
    { SW_OP_PACK, "", .in = { F32(NORMAL, 3), F32(NORMAL, 2, 2), F32(NORMAL, 20) }, .build = build_pack,
      .flags = NO_DIFFERENCES },
    { SW_OP_ASSIGN, "", .in = { F32(NORMAL, 3, 4) }, .build = build_assign, .flags = NO_DIFFERENCES },
    { SW_OP_OUTPUT, "", .in = { F32(NORMAL, 3, 4, 2, 2), F32(NORMAL, 4), F32(NORMAL, 4) }, .build = build_outputs,
      .bound = 1e-5 },

    /* unary */
    UNARY(NEG, NORMAL), UNARY(EXP, NORMAL), UNARY(LOG, POSITIVE), UNARY(SQRT, POSITIVE), UNARY(SIN, NORMAL),
    UNARY(COS, NORMAL), UNARY(ATAN, NORMAL), UNARY(TANH, NORMAL), UNARY(ERF, NORMAL), UNARY(FLOOR, DISTINCT),
    UNARY_EDGES(NEG), UNARY_EDGES(EXP), UNARY_EDGES(LOG), UNARY_EDGES(SQRT), UNARY_EDGES(SIN), UNARY_EDGES(COS),
    UNARY_EDGES(ATAN), UNARY_EDGES(TANH), UNARY_EDGES(ERF), UNARY_EDGES(FLOOR),
    { SW_OP_EXP, "tiny", .in = { F32(TINY_VALUES, 40) }, .flags = ELEMENTWISE },
    { SW_OP_TANH, "tiny", .in = { F32(TINY_VALUES, 40) }, .flags = ELEMENTWISE },
    { SW_OP_ERF, "tiny", .in = { F32(TINY_VALUES, 40) }, .flags = ELEMENTWISE },
    { SW_OP_ATAN, "tiny", .in = { F32(TINY_VALUES, 40) }, .flags = ELEMENTWISE },
    { SW_OP_SIN, "tiny", .in = { F32(TINY_VALUES, 40) }, .flags = ELEMENTWISE },
    { SW_OP_LOG, "huge", .in = { FIXED(HUGE_VALUES, 40) }, .flags = ELEMENTWISE },
    { SW_OP_SQRT, "tiny", .in = { FIXED(TINY_VALUES, 40) }, .flags = ELEMENTWISE },
    { SW_OP_NEG, "i32", .in = { OF(SW_I32, SPECIAL_COLS, 32, 32) } },
    { SW_OP_NEG, "i64", .in = { OF(SW_I64, SPECIAL_COLS, 32, 32) } },
    { SW_OP_NEG, "u8", .in = { OF(SW_U8, SPECIAL_COLS, 32, 32) } },
    { SW_OP_EXP, "f64", .in = { OF(SW_F64, NORMAL, 3, 5) }, .bound = 1e-14, .flags = ELEMENTWISE },
    { SW_OP_TANH, "f64", .in = { OF(SW_F64, NORMAL, 3, 5) }, .bound = 1e-14, .flags = ELEMENTWISE },
    { SW_OP_CAST, "f32 to f64 and its gradient", .in = { F32(NORMAL, 3, 5) }, .like = { .dtype = SW_F64 },
      .flags = ALL_SHAPES },
    CASTS_TO_ALL(F32), CASTS_TO_ALL(I32), CASTS_TO_ALL(I64), CASTS_TO_ALL(U8), CASTS_TO_ALL(BOOL), CASTS_TO_ALL(U32),
    CASTS(F16, F32), CASTS(BF16, F32), CASTS(F16, BF16), CASTS(F64, F32), CASTS(F64, I64), CASTS(F64, F16),

    /* binary */
    BINARY(ADD, NORMAL, NORMAL), BINARY(SUB, NORMAL, NORMAL), BINARY(MUL, NORMAL, NORMAL),
    BINARY(DIV, NORMAL, POSITIVE), BINARY(MOD, DISTINCT, POSITIVE), BINARY(POW, POSITIVE, NORMAL),
    BINARY(MAX, DISTINCT, DISTINCT), BINARY(MIN, DISTINCT, DISTINCT),
    { SW_OP_MAX, "equal: half each", .in = { F32(TIES, 3, 5), F32(TIES, 3, 5) }, .flags = NO_DIFFERENCES },
    { SW_OP_MAX, "equal: the second takes all", .in = { F32(TIES, 3, 5), F32(TIES, 3, 5) }, .attr.tie = { true },
      .flags = NO_DIFFERENCES },
    { SW_OP_MIN, "equal: half each", .in = { F32(TIES, 3, 5), F32(TIES, 3, 5) }, .flags = NO_DIFFERENCES },
    { SW_OP_MIN, "equal: the second takes all", .in = { F32(TIES, 3, 5), F32(TIES, 3, 5) }, .attr.tie = { true },
      .flags = NO_DIFFERENCES },
    { SW_OP_MOD, "negative divisor", .in = { F32(DISTINCT, 40), F32(NEGATIVE, 40) } },
    { SW_OP_DIV, "huge by tiny", .in = { FIXED(HUGE_VALUES, 40), FIXED(TINY_VALUES, 40) }, .flags = ELEMENTWISE },
    { SW_OP_MUL, "huge by huge", .in = { FIXED(HUGE_VALUES, 40), FIXED(HUGE_VALUES, 40) }, .flags = ELEMENTWISE },
    { SW_OP_POW, "f64", .in = { OF(SW_F64, POSITIVE, 3, 5), OF(SW_F64, NORMAL, 3, 5) }, .bound = 1e-13,
      .flags = ELEMENTWISE },
    { SW_OP_ADD, "bf16", .in = { OF(SW_BF16, NORMAL, 3, 5), OF(SW_BF16, NORMAL, 3, 5) }, .bound = 0.0079 },
    { SW_OP_MUL, "f16", .in = { OF(SW_F16, NORMAL, 3, 5), OF(SW_F16, NORMAL, 3, 5) }, .bound = 0.00099 },
    PAIRS(ADD, F32), PAIRS(SUB, F32), PAIRS(MUL, F32), PAIRS(DIV, F32), PAIRS(MOD, F32), PAIRS(POW, F32),
    PAIRS(MAX, F32), PAIRS(MIN, F32), PAIRS(LT, F32), PAIRS(EQ, F32),
    INTEGERS(ADD), INTEGERS(SUB), INTEGERS(MUL), INTEGERS(DIV), INTEGERS(MOD), INTEGERS(MAX), INTEGERS(MIN),
    INTEGERS(LT), INTEGERS(EQ), INTEGERS(AND), INTEGERS(OR), INTEGERS(XOR), INTEGERS(SHL), INTEGERS(SHR),
    PAIRS(AND, BOOL), PAIRS(OR, BOOL), PAIRS(XOR, BOOL), PAIRS(EQ, BOOL), PAIRS(LT, BOOL),
    { SW_OP_LT, "", .in = { F32(TIES, 3, 5), F32(TIES, 3, 5) }, .flags = ALL_SHAPES },
    { SW_OP_EQ, "", .in = { F32(TIES, 3, 5), F32(TIES, 3, 5) }, .flags = ALL_SHAPES },
    { SW_OP_SHL, "u32", .in = { OF(SW_U32, ANY_INT, 50), OF(SW_U32, SMALL_INT, 50) } },
    { SW_OP_SHR, "u32", .in = { OF(SW_U32, ANY_INT, 50), OF(SW_U32, SMALL_INT, 50) } },
    { SW_OP_SHR, "i32", .in = { OF(SW_I32, ANY_INT, 50), OF(SW_I32, SMALL_INT, 50) } },

    /* ternary */
    { SW_OP_WHERE, "", .in = { OF(SW_BOOL, FLAGS, 3, 5), F32(NORMAL, 3, 5), F32(NORMAL, 3, 5) }, .flags = ALL_SHAPES },
    { SW_OP_WHERE, "special values",
      .in = { OF(SW_BOOL, FLAGS, 32, 32), FIXED(SPECIAL_ROWS, 32, 32), FIXED(SPECIAL_COLS, 32, 32) },
      .flags = ELEMENTWISE },
    { SW_OP_WHERE, "i64", .in = { OF(SW_BOOL, FLAGS, 40), OF(SW_I64, ANY_INT, 40), OF(SW_I64, ANY_INT, 40) } },
    { SW_OP_WHERE, "u8", .in = { OF(SW_BOOL, FLAGS, 40), OF(SW_U8, ANY_INT, 40), OF(SW_U8, ANY_INT, 40) } },
    { SW_OP_WHERE, "bool", .in = { OF(SW_BOOL, FLAGS, 40), OF(SW_BOOL, FLAGS, 40), OF(SW_BOOL, FLAGS, 40) } },
};
/* clang-format on */

#endif
