/* ops_pointwise.c: public builders of pointwise ops, and what is composed of them: comparisons, activations.
 * Between swoop/graph.h and sw__node_add. */
#include "graph/build.h"

#define UNARY(name, OP)                                                                                                \
    sw_t name(sw_t x)                                                                                                  \
    {                                                                                                                  \
        return sw__unary(OP, x);                                                                                       \
    }
UNARY(sw_neg, SW_OP_NEG)
UNARY(sw_exp, SW_OP_EXP)
UNARY(sw_log, SW_OP_LOG)
UNARY(sw_sqrt, SW_OP_SQRT)
UNARY(sw_sin, SW_OP_SIN)
UNARY(sw_cos, SW_OP_COS)
UNARY(sw_atan, SW_OP_ATAN)
UNARY(sw_tanh, SW_OP_TANH)
UNARY(sw_erf, SW_OP_ERF)
UNARY(sw_floor, SW_OP_FLOOR)
UNARY(sw_stop_gradient, SW_OP_STOP_GRADIENT)
#undef UNARY

#define BINARY(name, OP)                                                                                               \
    sw_t name(sw_t a, sw_t b)                                                                                          \
    {                                                                                                                  \
        return sw__binary(OP, a, b);                                                                                   \
    }
BINARY(sw_add, SW_OP_ADD)
BINARY(sw_sub, SW_OP_SUB)
BINARY(sw_mul, SW_OP_MUL)
BINARY(sw_div, SW_OP_DIV)
BINARY(sw_mod, SW_OP_MOD)
BINARY(sw_pow, SW_OP_POW)
BINARY(sw_max, SW_OP_MAX)
BINARY(sw_min, SW_OP_MIN)
BINARY(sw_lt, SW_OP_LT)
BINARY(sw_eq, SW_OP_EQ)
BINARY(sw_and, SW_OP_AND)
BINARY(sw_or, SW_OP_OR)
BINARY(sw_xor, SW_OP_XOR)
BINARY(sw_shl, SW_OP_SHL)
BINARY(sw_shr, SW_OP_SHR)
#undef BINARY

sw_t sw_cast(sw_t x, sw_dtype type)
{
    if (sw_valid(x) && sw_type(x) == type) return x;
    if (x.graph != NULL && sw_dtype_size(type) == 0)
        return sw__op_error(x.graph, SW_OP_CAST, SW_ERR_ARGUMENT, "%d is no data type", (int)type);
    const sw__node to = { .dtype = (uint8_t)type };
    return sw__node_add(x.graph, SW_OP_CAST, &x, 1, NULL, &to);
}

sw_t sw_where(sw_t condition, sw_t yes, sw_t no)
{
    sw_t xs[3] = { condition, yes, no }, invalid;
    if (!sw__broadcast(SW_OP_WHERE, xs, 3, &invalid)) return invalid;
    return sw__node_add(xs[0].graph, SW_OP_WHERE, xs, 3, NULL, NULL);
}

/* ---- with a scalar -------------------------------------------------------------------------------------------- */

sw_t sw_add_scalar(sw_t x, double c)
{
    return sw_add(x, sw__const_like(x, c));
}

sw_t sw_mul_scalar(sw_t x, double c)
{
    return sw_mul(x, sw__const_like(x, c));
}

/* ---- comparisons ---------------------------------------------------------------------------------------------- */

sw_t sw_le(sw_t a, sw_t b)
{
    sw_t xs[2] = { a, b }, invalid;
    if (!sw__broadcast(SW_OP_LT, xs, 2, &invalid)) return invalid;
    return sw_or(sw_lt(xs[0], xs[1]), sw_eq(xs[0], xs[1]));
}

sw_t sw_gt(sw_t a, sw_t b)
{
    return sw_lt(b, a);
}

sw_t sw_ge(sw_t a, sw_t b)
{
    return sw_le(b, a);
}

sw_t sw_ne(sw_t a, sw_t b)
{
    return sw_not(sw_eq(a, b));
}

sw_t sw_not(sw_t x)
{
    char text[SW__TEXT_BYTES];
    if (sw_valid(x) && sw_type(x) != SW_BOOL)
        return sw__op_error(x.graph, SW_OP_XOR, SW_ERR_SHAPE, "sw_not takes a bool, as sw_ne(x, 0) gives one, not %s (flip "
                            "bits with sw_xor)", sw__value_text(x.graph, x.id, text));
    return sw_xor(x, sw__const_like(x, 1));
}

/* ---- functions ------------------------------------------------------------------------------------------------ */

/* 0 - min(x, -x): NaN stays NaN, -0 gives +0 (0 - (±0) is +0), and at 0 the two sides' half gradients cancel, so the
 * gradient there is sign(0) = 0. */
sw_t sw_abs(sw_t x)
{
    if (sw_valid(x) && (sw_type(x) == SW_U8 || sw_type(x) == SW_U32)) return x;
    return sw_sub(sw__const_like(x, 0), sw_min(x, sw_neg(x)));
}

sw_t sw_square(sw_t x)
{
    return sw_mul(x, x);
}

sw_t sw_rsqrt(sw_t x)
{
    const sw_t root = sw_sqrt(x);
    return sw_div(sw__const_like(root, 1), root);
}

/* 1/(1 + exp(-x)) through tanh: neither it nor its derivative can overflow. */
sw_t sw_sigmoid(sw_t x)
{
    return sw_add_scalar(sw_mul_scalar(sw_tanh(sw_mul_scalar(x, 0.5)), 0.5), 0.5);
}

sw_t sw_relu(sw_t x)
{
    const sw_t xs[2] = { x, sw__const_like(x, 0) };
    const sw__attr attr = { .tie = { .second = true } }; /* at 0 the constant takes the gradient */
    return sw__node_add(x.graph, SW_OP_MAX, xs, 2, &attr, NULL);
}

sw_t sw_gelu(sw_t x)
{
    const double sqrt_half = 0.70710678118654752440;
    const sw_t cdf = sw_mul_scalar(sw_add_scalar(sw_erf(sw_mul_scalar(x, sqrt_half)), 1.0), 0.5);
    return sw_mul(x, cdf);
}

sw_t sw_silu(sw_t x)
{
    return sw_mul(x, sw_sigmoid(x));
}
