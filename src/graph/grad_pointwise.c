/* grad_pointwise.c: gradient rules of the pointwise primitives.
 * Called by grad.c's walk; each appends pointwise nodes, so that the fuser can join them with their neighbours. */
#include "graph/grad.h"

/* ---- unary: those with a cheap expression in the result use it, so that the operand need not be kept ------------- */

RULE(sw__grad_neg)
{
    if (want[0]) dx[0] = sw_neg(dy[0]);
}

RULE(sw__grad_exp)
{
    if (want[0]) dx[0] = sw__times(dy[0], sw__value(g, id));
}

RULE(sw__grad_log)
{
    if (want[0]) dx[0] = sw_div(dy[0], sw__arg(g, id, 0));
}

RULE(sw__grad_sqrt)
{
    if (want[0]) dx[0] = sw_div(sw_mul_scalar(dy[0], 0.5), sw__value(g, id));
}

RULE(sw__grad_sin)
{
    if (want[0]) dx[0] = sw__times(dy[0], sw_cos(sw__arg(g, id, 0)));
}

RULE(sw__grad_cos)
{
    if (want[0]) dx[0] = sw_neg(sw__times(dy[0], sw_sin(sw__arg(g, id, 0))));
}

RULE(sw__grad_atan)
{
    if (want[0]) dx[0] = sw_div(dy[0], sw_add_scalar(sw_square(sw__arg(g, id, 0)), 1.0));
}

RULE(sw__grad_tanh)
{
    if (!want[0]) return;
    const sw_t y = sw__value(g, id);
    dx[0] = sw__times(dy[0], sw_sub(sw__scalar_like(y, 1.0), sw_square(y)));
}

/* d erf(x) = 2/sqrt(pi) exp(-x^2) */
RULE(sw__grad_erf)
{
    if (!want[0]) return;
    const sw_t bell = sw_exp(sw_neg(sw_square(sw__arg(g, id, 0))));
    dx[0] = sw__times(dy[0], sw_mul_scalar(bell, 1.12837916709551257390));
}

RULE(sw__grad_cast)
{
    if (want[0]) dx[0] = sw_cast(dy[0], sw_type(sw__arg(g, id, 0)));
}

/* ---- binary ------------------------------------------------------------------------------------------------------ */

RULE(sw__grad_add)
{
    if (want[0]) dx[0] = dy[0];
    if (want[1]) dx[1] = dy[0];
}

RULE(sw__grad_sub)
{
    if (want[0]) dx[0] = dy[0];
    if (want[1]) dx[1] = sw_neg(dy[0]);
}

RULE(sw__grad_mul)
{
    if (want[0]) dx[0] = sw__times(dy[0], sw__arg(g, id, 1));
    if (want[1]) dx[1] = sw__times(dy[0], sw__arg(g, id, 0));
}

RULE(sw__grad_div)
{
    const sw_t quotient = sw_div(dy[0], sw__arg(g, id, 1));
    if (want[0]) dx[0] = quotient;
    if (want[1]) dx[1] = sw_neg(sw_mul(quotient, sw__value(g, id)));
}

/* a mod b = a - b floor(a/b). The floor is (a - y)/b up to rounding: taken from there it agrees with y, which
 * floor(a/b) does not where a/b rounds up to a whole number. */
RULE(sw__grad_mod)
{
    if (want[0]) dx[0] = dy[0];
    if (!want[1]) return;
    const sw_t multiple = sw_div(sw_sub(sw__arg(g, id, 0), sw__value(g, id)), sw__arg(g, id, 1));
    dx[1] = sw_neg(sw__times(dy[0], sw_floor(sw_add_scalar(multiple, 0.5))));
}

/* dy b a^(b-1), 0 where b is 0 whatever a (PyTorch). The exponent is replaced there, and not the result, so that no
 * infinity arises that a second derivative would multiply with 0. */
static sw_t pow_base_gradient(sw_t dy, sw_t a, sw_t b)
{
    double c;
    if (sw__constant_of(b, &c)) {
        if (c == 0.0) return SW_NONE;
        if (c == 1.0) return dy;
        if (c == 2.0) return sw__times(dy, sw_mul_scalar(a, 2.0));
        return sw__times(dy, sw_mul_scalar(sw_pow(a, sw__scalar_like(a, c - 1.0)), c));
    }
    const sw_t zero = sw__scalar_like(b, 0.0);
    const sw_t less = sw_where(sw_eq(b, zero), zero, sw_add_scalar(b, -1.0));
    return sw__times(dy, sw_mul(b, sw_pow(a, less)));
}

/* dy y log(a), 0 where a is 0 and b >= 0 (PyTorch): there log is taken of 1. A negative base gives NaN. */
static sw_t pow_exponent_gradient(sw_t dy, sw_t a, sw_t b, sw_t y)
{
    const sw_t zero = sw__scalar_like(a, 0.0);
    double c;
    if (!(sw__constant_of(a, &c) && c != 0.0)) {
        a = sw_where(sw_and(sw_eq(a, zero), sw_ge(b, zero)), sw__scalar_like(a, 1.0), a);
    }
    return sw__times(dy, sw_mul(y, sw_log(a)));
}

RULE(sw__grad_pow)
{
    const sw_t a = sw__arg(g, id, 0), b = sw__arg(g, id, 1);
    if (want[0]) dx[0] = pow_base_gradient(dy[0], a, b);
    if (want[1]) dx[1] = pow_exponent_gradient(dy[0], a, b, sw__value(g, id));
}

/* Gradients of max (of min with `less` turned round). At equality each side gets half, or the second takes all
 * (attr.tie.second: relu; its mask then compares the result, so that the operand need not be kept). With a NaN on
 * either side nobody wins: halves, or the second. */
static void extreme_gradient(sw_graph *g, uint32_t id, sw_t dy, const bool *want, sw_t *dx,
                             sw_t (*less)(sw_t, sw_t))
{
    const sw_t a = sw__arg(g, id, 0), b = sw__arg(g, id, 1);
    if (g->nodes[id].attr.tie.second) {
        const sw_t first_wins = less(b, sw__value(g, id));
        if (want[0]) dx[0] = sw__keep_if(first_wins, dy);
        if (want[1]) dx[1] = sw__drop_if(first_wins, dy);
        return;
    }
    const sw_t first_wins = less(b, a), second_wins = less(a, b), half = sw_mul_scalar(dy, 0.5);
    if (want[0]) dx[0] = sw_where(first_wins, dy, sw__drop_if(second_wins, half));
    if (want[1]) dx[1] = sw_where(second_wins, dy, sw__drop_if(first_wins, half));
}

RULE(sw__grad_max)
{
    extreme_gradient(g, id, dy[0], want, dx, sw_lt);
}

RULE(sw__grad_min)
{
    extreme_gradient(g, id, dy[0], want, dx, sw_gt);
}

RULE(sw__grad_where)
{
    const sw_t condition = sw__arg(g, id, 0);
    if (want[1]) dx[1] = sw__keep_if(condition, dy[0]);
    if (want[2]) dx[2] = sw__drop_if(condition, dy[0]);
}
