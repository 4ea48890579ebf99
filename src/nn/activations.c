/* activations.c: activation functions as graphs of primitives; definitions and names are torch.nn.functional's. The fuser
 * makes each one kernel with what stands around it. Beside layers.c; relu, sigmoid, gelu, silu, tanh are graph.h's own. */
#include "graph/build.h"
#include "swoop/nn.h"

static sw_t like(sw_t x, double c)
{
    return sw_const(x.graph, sw_type(x), c);
}

static sw_t above(sw_t x, double c)
{
    return sw_gt(x, like(x, c));
}

/* A value given to full precision, with the gradient of a second expression for the same thing. */
static sw_t with_gradient_of(sw_t value, sw_t smooth)
{
    const sw_t lost = sw_sub(value, smooth); /* inf - inf is NaN: there both are the same */
    return sw_where(sw_eq(value, smooth), smooth, sw_add(smooth, sw_stop_gradient(lost)));
}

sw_t sw_clamp(sw_t x, double low, double high)
{
    const sw_t inside = sw_and(above(x, low), sw_lt(x, like(x, high)));
    const sw_t edge = sw_max(sw_min(sw_stop_gradient(x), like(x, high)), like(x, low)); /* NaN stays NaN */
    return sw_where(inside, x, edge);
}

sw_t sw_relu6(sw_t x)
{
    return sw_clamp(x, 0, 6);
}

sw_t sw_leaky_relu(sw_t x, double slope)
{
    return sw_where(above(x, 0), x, sw_mul_scalar(x, slope));
}

/* e^x - 1 without the loss of digits near 0: tanh(x/2) (e^x + 1) is the same. */
static sw_t expm1_of(sw_t x)
{
    return sw_mul(sw_tanh(sw_mul_scalar(x, 0.5)), sw_add_scalar(sw_exp(x), 1));
}

sw_t sw_elu(sw_t x, double alpha)
{
    const sw_t below = sw_min(x, like(x, 0)); /* so that what is not taken is no infinity */
    return sw_where(above(x, 0), x, sw_mul_scalar(expm1_of(below), alpha));
}

sw_t sw_selu(sw_t x)
{
    const double alpha = 1.6732632423543772848170429916717, scale = 1.0507009873554804934193349852946;
    return sw_mul_scalar(sw_elu(x, alpha), scale);
}

sw_t sw_celu(sw_t x, double alpha)
{
    const sw_t below = sw_min(x, like(x, 0));
    return sw_where(above(x, 0), x, sw_mul_scalar(expm1_of(sw_mul_scalar(below, 1 / alpha)), alpha));
}

sw_t sw_gelu_tanh(sw_t x)
{
    const double c = 0.79788456080286535587989211986876; /* sqrt(2/pi) */
    const sw_t cube = sw_mul(sw_mul(x, x), x), inner = sw_mul_scalar(sw_add(x, sw_mul_scalar(cube, 0.044715)), c);
    return sw_mul(sw_mul_scalar(x, 0.5), sw_add_scalar(sw_tanh(inner), 1));
}

/* max(x, 0) + log(1 + e), e = exp(-|x|) <= 1. Where e is small, log(1 + e) is e log(1 + e) / ((1 + e) - 1) to full
 * precision (Kahan). Its gradient, sigmoid(x), is that of the plain form. */
sw_t sw_softplus(sw_t x)
{
    const sw_t size = sw_where(above(x, 0), sw_neg(x), x), e = sw_exp(size), u = sw_add_scalar(e, 1);
    const sw_t zero = like(x, 0); /* NaN is neither above nor below */
    const sw_t positive = sw_where(above(x, 0), x, sw_where(sw_lt(x, zero), zero, sw_stop_gradient(x)));
    const sw_t plain = sw_add(positive, sw_log(u)), rest = sw_add_scalar(u, -1), lost = sw_eq(rest, like(x, 0));
    const sw_t exact = sw_where(lost, e, sw_div(sw_mul(sw_log(u), e), sw_where(lost, like(x, 1), rest)));
    return with_gradient_of(sw_add(positive, exact), plain);
}

sw_t sw_log_sigmoid(sw_t x)
{
    return sw_neg(sw_softplus(sw_neg(x)));
}

sw_t sw_mish(sw_t x)
{
    return sw_mul(x, sw_tanh(sw_softplus(x)));
}

sw_t sw_softsign(sw_t x)
{
    return sw_div(x, sw_add_scalar(sw_abs(x), 1));
}

sw_t sw_hard_sigmoid(sw_t x)
{
    return sw_clamp(sw_add_scalar(sw_mul_scalar(x, 1.0 / 6), 0.5), 0, 1);
}

sw_t sw_hard_swish(sw_t x)
{
    const sw_t middle = sw_mul_scalar(sw_mul(x, sw_add_scalar(x, 3)), 1.0 / 6);
    return sw_where(above(x, 3), x, sw_where(above(x, -3), middle, sw_mul_scalar(x, 0)));
}

sw_t sw_hard_tanh(sw_t x, double low, double high)
{
    return sw_clamp(x, low, high);
}

/* ---- gated linear units (Dauphin et al. 2017, Shazeer 2020) ----------------------------------------------------------------- */

static sw_t gate_sigmoid(sw_t x) { return sw_sigmoid(x); }
static sw_t gate_relu(sw_t x) { return sw_relu(x); }
static sw_t gate_gelu(sw_t x) { return sw_gelu(x); }
static sw_t gate_silu(sw_t x) { return sw_silu(x); }

sw_t sw_glu(sw_t x, int axis, sw_glu_kind kind)
{
    static sw_t (*const gates[])(sw_t) = {
        [SW_GLU] = gate_sigmoid, [SW_REGLU] = gate_relu, [SW_GEGLU] = gate_gelu, [SW_SWIGLU] = gate_silu};
    if (!sw_valid(x)) return SW_NONE;
    const int rank = sw_rank(x), at = axis < 0 ? axis + rank : axis;
    char text[SW__TEXT_BYTES];
    if ((unsigned)kind >= SW_COUNT(gates)) return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "glu: there is no kind %d", (int)kind);
    if (at < 0 || at >= rank || sw_dim(x, at) % 2 != 0)
        return sw__graph_error(x.graph, SW_ERR_SHAPE, "glu: %s cannot be halved along axis %d%s",
                               sw__value_text(x.graph, x.id, text), axis,
                               at >= 0 && at < rank ? ": its size is odd" : "");
    const int64_t half = sw_dim(x, at) / 2;
    const sw_t first = sw_narrow(x, at, 0, half), second = sw_narrow(x, at, half, half);
    return sw_mul(first, gates[kind](second));
}

/* ---- with a parameter ------------------------------------------------------------------------------------------------------- */

sw_t sw_prelu_op(sw_t x, sw_t slope)
{
    if (!sw_valid(x) || !sw_valid(slope)) return SW_NONE;
    sw_t s = slope;
    if (sw_rank(slope) == 1 && sw_rank(x) > 2) { /* one for each channel, which is axis 1 */
        int64_t shape[SW_MAX_RANK];
        for (int i = 0; i < sw_rank(x) - 1; i++) shape[i] = 1;
        shape[0] = sw_dim(slope, 0);
        s = sw_reshape(slope, sw_rank(x) - 1, shape);
    }
    return sw_where(above(x, 0), x, sw_mul(x, s));
}
