/* ops_norm.c: builders of norms that are made of other ops: group, instance, root mean square. Each is x through a mean and
 * a deviation of its own axes, then one weight and bias a channel. Between swoop/graph.h and the ops of ops_big.c. */
#include "graph/build.h"

/* [C] as [1, C, 1, …] of this rank. */
static sw_t to_channels(sw_t v, int rank)
{
    int64_t shape[SW_MAX_RANK];
    for (int i = 0; i < rank; i++) shape[i] = i == 1 ? sw_dim(v, 0) : 1;
    return sw_reshape(v, rank, shape);
}

static bool want_channels(const char *norm, sw_t x, sw_t v)
{
    if (v.graph == NULL || (sw_rank(v) == 1 && sw_dim(v, 0) == sw_dim(x, 1))) return true;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    sw__op_error(x.graph, SW_OP_LAYER_NORM, SW_ERR_SHAPE, "%s of x %s: weight and bias must be [%lld], one value for each "
                 "channel (axis 1), not %s", norm, sw__value_text(x.graph, x.id, a), (long long)sw_dim(x, 1),
                 sw__value_text(x.graph, v.id, b));
    return false;
}

/* Operands of a norm with a weight and a bias that may be left out. */
static bool operands(sw_t x, sw_t weight, sw_t bias, sw_t *invalid)
{
    if (!sw__operands(SW_OP_LAYER_NORM, &x, 1, invalid)) return false;
    if (weight.graph != NULL && !sw__operands(SW_OP_LAYER_NORM, (sw_t[]){ x, weight }, 2, invalid)) return false;
    return bias.graph == NULL || sw__operands(SW_OP_LAYER_NORM, (sw_t[]){ x, bias }, 2, invalid);
}

sw_t sw_group_norm_op(sw_t x, int64_t groups, sw_t weight, sw_t bias, double eps)
{
    sw_t invalid;
    if (!operands(x, weight, bias, &invalid)) return invalid;
    const sw__node from = *sw__node_of(x);
    char text[SW__TEXT_BYTES];
    if (from.rank < 2 || groups < 1 || from.dim[1] % groups != 0)
        return sw__op_error(x.graph, SW_OP_LAYER_NORM, SW_ERR_SHAPE, "group norm takes x [N, C, …] whose channels %lld groups "
                            "divide, not %s", (long long)groups, sw__value_text(x.graph, x.id, text));
    if (!want_channels("group norm", x, weight) || !want_channels("group norm", x, bias)) return (sw_t){ x.graph, 0 };
    const int64_t rest = from.dim[1] / groups * sw__dims_product(from.dim + 2, from.rank - 2);
    const sw_t rows = sw_reshape(x, 3, (int64_t[]){ from.dim[0], groups, rest });
    sw_t y = sw_reshape(sw_layer_norm_op(rows, SW_NONE, SW_NONE, 1, eps), from.rank, from.dim);
    if (weight.graph != NULL) y = sw_mul(y, to_channels(weight, from.rank));
    if (bias.graph != NULL) y = sw_add(y, to_channels(bias, from.rank));
    return y;
}

sw_t sw_instance_norm_op(sw_t x, sw_t weight, sw_t bias, double eps)
{
    sw_t invalid;
    if (!operands(x, weight, bias, &invalid)) return invalid;
    char text[SW__TEXT_BYTES];
    if (sw_rank(x) < 3)
        return sw__op_error(x.graph, SW_OP_LAYER_NORM, SW_ERR_SHAPE, "instance norm takes x [N, C, spatial…], not %s",
                            sw__value_text(x.graph, x.id, text));
    return sw_group_norm_op(x, SW_MAX(sw_dim(x, 1), 1), weight, bias, eps);
}

sw_t sw_rms_norm_op(sw_t x, sw_t weight, int n_axes, double eps)
{
    sw_t invalid;
    if (!operands(x, weight, SW_NONE, &invalid)) return invalid;
    const sw__node from = *sw__node_of(x);
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (n_axes < 1 || n_axes > from.rank)
        return sw__op_error(x.graph, SW_OP_LAYER_NORM, SW_ERR_SHAPE, "rms norm over the last %d axes: %s has %d", n_axes,
                            sw__value_text(x.graph, x.id, a), from.rank);
    const int64_t *const last = from.dim + from.rank - n_axes;
    if (weight.graph != NULL && (sw_rank(weight) != n_axes ||
                                 memcmp(sw__node_of(weight)->dim, last, (size_t)n_axes * sizeof *last) != 0))
        return sw__op_error(x.graph, SW_OP_LAYER_NORM, SW_ERR_SHAPE, "rms norm of x %s over its last %d axes: the weight must "
                            "have their shape, not %s", sw__value_text(x.graph, x.id, a), n_axes,
                            sw__value_text(x.graph, weight.id, b));
    const uint32_t axes = ((1u << n_axes) - 1u) << (from.rank - n_axes);
    sw_t y = sw_mul(x, sw_rsqrt(sw_add_scalar(sw_mean(sw_square(x), axes, true), eps)));
    if (weight.graph != NULL) y = sw_mul(y, weight);
    return y;
}
