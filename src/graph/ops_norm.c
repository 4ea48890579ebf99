/* ops_norm.c: builders of norms that are made of other ops: group, instance, root mean square. Each is x through a mean
 * and a deviation of its own axes, then one weight and bias a channel. Between swoop/graph.h and the ops of ops_big.c.
 */
#include "graph/build.h"

static bool want_channels(const char *norm, sw_t x, sw_t v)
{
    if (v.graph == NULL || (sw_rank(v) == 1 && sw_dim(v, 0) == sw_dim(x, 1))) return true;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    sw__op_error(x.graph, SW_OP_LAYER_NORM, SW_ERR_SHAPE,
                 "%s of x %s: weight and bias must be [%lld], one value for each "
                 "channel (axis 1), not %s",
                 norm, sw__value_text(x.graph, x.id, a), (long long)sw_dim(x, 1), sw__value_text(x.graph, v.id, b));
    return false;
}

/* Operands of a norm with a weight and a bias that may be left out. */
static bool operands(sw_t x, sw_t weight, sw_t bias, sw_t *invalid)
{
    if (!sw__operands(SW_OP_LAYER_NORM, &x, 1, invalid)) return false;
    if (weight.graph != NULL && !sw__operands(SW_OP_LAYER_NORM, (sw_t[]){ x, weight }, 2, invalid)) return false;
    return bias.graph == NULL || sw__operands(SW_OP_LAYER_NORM, (sw_t[]){ x, bias }, 2, invalid);
}

/* [N, C, 1, …] as [N, G, C/G], and back with every group's value at each of its channels. */
static sw_t to_groups(sw_t v, int64_t groups)
{
    return sw_reshape(v, 3, (int64_t[]){ sw_dim(v, 0), groups, sw_dim(v, 1) / groups });
}

static sw_t from_groups(sw_t v, const sw__node *x, int64_t groups)
{
    int64_t shape[SW_MAX_RANK];
    for (int i = 0; i < x->rank; i++) shape[i] = i < 2 ? x->dim[i] : 1;
    return sw_reshape(sw_expand(v, 3, (int64_t[]){ x->dim[0], groups, x->dim[1] / groups }), x->rank, shape);
}

/* x as an operand that mixed precision leaves in full: a cast to the type that it has (pass/precision.def has no line for
 * casts), which is nothing once graphs are simplified. Squares and differences of halves would be rounded before they are
 * summed up. */
static sw_t in_full(sw_t x)
{
    const sw__node same = { .dtype = (uint8_t)sw_type(x) };
    return sw__node_add(x.graph, SW_OP_CAST, &x, 1, NULL, &same);
}

/* Mean and 1/deviation of each group at each of its channels, [N, C, 1, …]. One pass over x: sums over the spatial axes
 * of d = x - K and of d^2, K each channel's first element (any K gives the same variance, one near the mean keeps the
 * subtraction from cancelling); from channels to groups only small tensors are touched. So x can stay in whatever order
 * of axes the convolutions beside it like, and so can its gradient. */
static void group_statistics(sw_t x, int64_t groups, double eps, sw_t *mean, sw_t *rstd)
{
    const sw__node from = *sw__node_of(x);
    int64_t start[SW_MAX_RANK] = { 0 }, stop[SW_MAX_RANK];
    for (int i = 0; i < from.rank; i++) stop[i] = i < 2 ? from.dim[i] : 1;
    const uint32_t spatial = ((1u << from.rank) - 1u) & ~3u;
    const double share = 1.0 / (double)sw__dims_product(from.dim + 2, from.rank - 2);
    const double channel = (double)groups / (double)from.dim[1];
    x = in_full(x);
    const sw_t k = sw_stop_gradient(sw_slice(x, start, stop, NULL));
    const sw_t d = sw_sub(x, k);
    const sw_t d_mean = sw_mul_scalar(sw_sum(d, spatial, true), share);
    const sw_t square_mean = sw_mul_scalar(sw_sum(sw_square(d), spatial, true), share);
    const sw_t var_in = to_groups(sw_relu(sw_sub(square_mean, sw_square(d_mean))), groups);
    const sw_t mean_in = to_groups(sw_add(k, d_mean), groups);
    const sw_t middle = sw_mul_scalar(sw_sum(mean_in, SW_AXIS(2), true), channel);
    const sw_t spread = sw_add(var_in, sw_square(sw_sub(mean_in, middle)));
    const sw_t var = sw_mul_scalar(sw_sum(spread, SW_AXIS(2), true), channel);
    *mean = from_groups(middle, &from, groups);
    *rstd = from_groups(sw_rsqrt(sw_add_scalar(var, eps)), &from, groups);
}

/* One multiplication and one addition an element. */
static sw_t normalised(sw_t x, int64_t groups, sw_t weight, sw_t bias, double eps)
{
    const int rank = sw_rank(x);
    sw_t mean, scale;
    group_statistics(x, groups, eps, &mean, &scale);
    if (weight.graph != NULL) scale = sw_mul(scale, sw__per_channel(weight, rank));
    const sw_t y = sw_mul(sw_sub(x, mean), scale);
    return bias.graph != NULL ? sw_add(y, sw__per_channel(bias, rank)) : y;
}

sw_t sw_group_norm_op(sw_t x, int64_t groups, sw_t weight, sw_t bias, double eps)
{
    sw_t invalid;
    if (!operands(x, weight, bias, &invalid)) return invalid;
    const sw__node from = *sw__node_of(x);
    char text[SW__TEXT_BYTES];
    if (from.rank < 2 || groups < 1 || from.dim[1] % groups != 0)
        return sw__op_error(x.graph, SW_OP_LAYER_NORM, SW_ERR_SHAPE,
                            "group norm takes x [N, C, …] whose channels %lld groups "
                            "divide, not %s",
                            (long long)groups, sw__value_text(x.graph, x.id, text));
    if (!want_channels("group norm", x, weight) || !want_channels("group norm", x, bias)) return (sw_t){ x.graph, 0 };
    if (from.rank > 2 && sw__node_elements(&from) > 0) return normalised(x, groups, weight, bias, eps);
    const int64_t rest = from.dim[1] / groups * sw__dims_product(from.dim + 2, from.rank - 2);
    const sw_t rows = sw_reshape(x, 3, (int64_t[]){ from.dim[0], groups, rest });
    sw_t y = sw_reshape(sw_layer_norm_op(rows, SW_NONE, SW_NONE, 1, eps), from.rank, from.dim);
    if (weight.graph != NULL) y = sw_mul(y, sw__per_channel(weight, from.rank));
    if (bias.graph != NULL) y = sw_add(y, sw__per_channel(bias, from.rank));
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
        return sw__op_error(x.graph, SW_OP_LAYER_NORM, SW_ERR_SHAPE, "rms norm over the last %d axes: %s has %d",
                            n_axes, sw__value_text(x.graph, x.id, a), from.rank);
    const int64_t *const last = from.dim + from.rank - n_axes;
    if (weight.graph != NULL &&
        (sw_rank(weight) != n_axes || memcmp(sw__node_of(weight)->dim, last, (size_t)n_axes * sizeof *last) != 0))
        return sw__op_error(x.graph, SW_OP_LAYER_NORM, SW_ERR_SHAPE,
                            "rms norm of x %s over its last %d axes: the weight must "
                            "have their shape, not %s",
                            sw__value_text(x.graph, x.id, a), n_axes, sw__value_text(x.graph, weight.id, b));
    const uint32_t axes = ((1u << n_axes) - 1u) << (from.rank - n_axes);
    sw_t y = sw_mul(x, sw_rsqrt(sw_add_scalar(sw_mean(sw_square(x), axes, true), eps)));
    if (weight.graph != NULL) y = sw_mul(y, weight);
    return y;
}
