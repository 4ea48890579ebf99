/* ops_window.c: builders of what slides a window and is made of other ops: the transposed convolution, pooling by other
 * means than maximum and average, its positions and the way back. Between swoop/graph.h and the ops of ops_big.c. */
#include "graph/build.h"

/* ---- transposed convolution ---------------------------------------------------------------------------------------
 */

/* One axis: a convolution of that geometry takes `out` elements, `hi` of them padding behind, to what is there now;
 * `extra` zeros follow them. Output padding of a stride or more (a dilated kernel allows it) lies where that
 * convolution would have a further window: it comes out of the padding behind, and out of zeros where there is none. */
typedef struct transposed_axis {
    int64_t out, hi, extra;
} transposed_axis;

static bool transposed_size(sw_t x, sw_t weight, const sw_conv_options *o, int i, transposed_axis *t)
{
    const int64_t n = sw_dim(x, i + 2), k = sw_dim(weight, i + 2), more = o->output_padding[i];
    const int64_t most = SW_MAX(o->stride[i], o->dilation[i]);
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    sw__value_text(x.graph, x.id, a);
    sw__value_text(x.graph, weight.id, b);
    if (n < 1 || k < 1 || o->stride[i] < 1 || o->dilation[i] < 1 || o->pad_lo[i] < 0 || o->pad_hi[i] < 0) {
        sw__op_error(
            x.graph, SW_OP_CONV_GRAD_X, SW_ERR_ARGUMENT,
            "transposed convolution of %s by %s, spatial axis %d: "
            "input, kernel, stride %lld and dilation %lld must be at least 1 and padding %lld, %lld not negative",
            a, b, i, (long long)o->stride[i], (long long)o->dilation[i], (long long)o->pad_lo[i],
            (long long)o->pad_hi[i]);
        return false;
    }
    if (more < 0 || more >= most) {
        sw__op_error(x.graph, SW_OP_CONV_GRAD_X, SW_ERR_ARGUMENT,
                     "transposed convolution of %s, spatial axis %d: output "
                     "padding %lld must be below the stride or the dilation: 0 to %lld",
                     a, i, (long long)more, (long long)most - 1);
        return false;
    }
    int64_t full, reach;
    const bool overflow = __builtin_mul_overflow(n - 1, o->stride[i], &full) ||
                          __builtin_mul_overflow(k - 1, o->dilation[i], &reach) ||
                          __builtin_add_overflow(full, reach, &full) || full > INT64_MAX / 4 ||
                          o->pad_lo[i] > INT64_MAX / 4 || o->pad_hi[i] > INT64_MAX / 4;
    const int64_t size = overflow ? 0 : full + 1 + more - o->pad_lo[i] - o->pad_hi[i];
    if (size < 1) {
        sw__op_error(x.graph, SW_OP_CONV_GRAD_X, SW_ERR_SHAPE,
                     "transposed convolution of %s by %s, spatial axis %d: %s", a, b, i,
                     overflow ? "the result is too large" : "the padding takes all there is: use less of it");
        return false;
    }
    const int64_t taken = more < o->stride[i] ? 0 : SW_MIN(more, o->pad_hi[i]);
    *t = (transposed_axis){ size, o->pad_hi[i] - taken, more < o->stride[i] ? 0 : more - taken };
    t->out -= t->extra;
    return true;
}

static bool transposed_operands(sw_t x, sw_t weight, int64_t groups)
{
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    sw__value_text(x.graph, x.id, a);
    sw__value_text(x.graph, weight.id, b);
    const int rank = sw_rank(x);
    if (rank < 3 || rank > 5 || sw_rank(weight) != rank) {
        sw__op_error(x.graph, SW_OP_CONV_GRAD_X, SW_ERR_SHAPE,
                     "transposed convolution takes x [N, C, spatial…] with 1 to 3 "
                     "spatial axes and a weight [C, O/groups, kernel…] of as many; x is %s, the weight %s",
                     a, b);
        return false;
    }
    if (groups < 1 || sw_dim(x, 1) % groups != 0 || sw_dim(weight, 0) != sw_dim(x, 1)) {
        sw__op_error(x.graph, SW_OP_CONV_GRAD_X, SW_ERR_SHAPE,
                     "transposed convolution of x %s by weight %s: axis 0 of the "
                     "weight must be x's %lld channels, and groups = %lld divide them",
                     a, b, (long long)sw_dim(x, 1), (long long)groups);
        return false;
    }
    return true;
}

/* The axes' numbers with every default filled in. */
static sw_conv_options resolved(const sw_conv_options *given)
{
    sw_conv_options o = { .groups = 1 };
    if (given != NULL) o = *given;
    if (o.groups == 0) o.groups = 1;
    for (int i = 0; i < 3; i++) {
        if (o.stride[i] == 0) o.stride[i] = 1;
        if (o.dilation[i] == 0) o.dilation[i] = 1;
    }
    return o;
}

/* y [N, O, spatial…] plus one value a channel. */
static sw_t plus_bias(sw_t y, sw_t bias)
{
    if (bias.graph == NULL || !sw_valid(y)) return y;
    int64_t shape[SW_MAX_RANK] = { 1, 1, 1, 1, 1 };
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    shape[1] = sw_dim(y, 1);
    if (sw_rank(bias) != 1 || sw_dim(bias, 0) != shape[1])
        return sw__op_error(y.graph, SW_OP_ADD, SW_ERR_SHAPE, "the bias %s must be [%lld]: one for each channel of %s",
                            sw__value_text(y.graph, bias.id, a), (long long)shape[1], sw__value_text(y.graph, y.id, b));
    return sw_add(y, sw_reshape(bias, sw_rank(y), shape));
}

sw_t sw_conv_transpose_op(sw_t x, sw_t weight, sw_t bias, const sw_conv_options *given)
{
    const sw_t xs[3] = { x, weight, bias };
    sw_t invalid;
    if (!sw__operands(SW_OP_CONV_GRAD_X, xs, bias.graph != NULL ? 3 : 2, &invalid)) return invalid;
    const sw_conv_options o = resolved(given);
    if (!transposed_operands(x, weight, o.groups)) return (sw_t){ x.graph, 0 };
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.conv.nd = sw_rank(x) - 2;
    attr.conv.groups = o.groups;
    attr.conv.dim[0] = sw_dim(x, 0);
    attr.conv.dim[1] = sw_dim(weight, 1) * o.groups;
    int64_t none[SW_MAX_RANK] = { 0 }, extra[SW_MAX_RANK] = { 0 };
    for (int i = 0; i < attr.conv.nd; i++) {
        transposed_axis t;
        if (!transposed_size(x, weight, &o, i, &t)) return (sw_t){ x.graph, 0 };
        attr.conv.stride[i] = o.stride[i];
        attr.conv.dilation[i] = o.dilation[i];
        attr.conv.pad_lo[i] = o.pad_lo[i];
        attr.conv.pad_hi[i] = t.hi;
        attr.conv.dim[i + 2] = t.out;
        extra[i + 2] = t.extra;
    }
    const sw_t y = sw__node_add(x.graph, SW_OP_CONV_GRAD_X, xs, 2, &attr, NULL);
    return plus_bias(sw_pad(y, none, extra, NULL, 0.0), bias);
}

/* ---- pooling by other means ---------------------------------------------------------------------------------------
 */

/* From the average: (average of x^p times the window's elements)^(1/p). Where that is 0 the root has no derivative, and
 * PyTorch lets no gradient through. */
sw_t sw_lp_pool_op(sw_t x, double p, const sw_pool_options *o)
{
    sw__attr attr;
    if (!sw__pool_attr(SW_OP_AVG_POOL, x, o, &attr)) return (sw_t){ x.graph, 0 };
    double elements = 1;
    bool padded = false;
    for (int i = 0; i < attr.pool.nd; i++) {
        elements *= (double)attr.pool.kernel[i];
        padded = padded || o->pad_lo[i] != 0 || o->pad_hi[i] != 0;
    }
    if (!(p > 0) || p > 1e6 || padded)
        return sw__op_error(x.graph, SW_OP_AVG_POOL, SW_ERR_ARGUMENT,
                            "lp pooling: the power %g must be above 0 and finite, and "
                            "padding is not for it",
                            p);
    const sw_t powers = p == 2 ? sw_square(x) : sw_pow(x, sw_const(x.graph, sw_type(x), p));
    const sw_t mean = sw_avg_pool_op(powers, o);
    if (!sw_valid(mean)) return mean;
    const sw_t zero = sw_const(x.graph, sw_type(x), 0.0), none = sw_eq(mean, zero);
    const sw_t sum = sw_mul_scalar(sw_where(none, sw_const(x.graph, sw_type(x), 1.0), mean), elements);
    const sw_t root = p == 2 ? sw_sqrt(sum) : sw_pow(sum, sw_const(x.graph, sw_type(x), 1 / p));
    return sw_where(none, zero, root);
}

sw_t sw_max_pool_indices(sw_t x, const sw_pool_options *o)
{
    const sw_t y = sw_max_pool_op(x, o); /* for the checks and the shape; it goes if nobody wants it */
    if (!sw_valid(y)) return y;
    const sw__node n = *sw__node_of(y);
    return sw__max_pool_index(x.graph, &n, x);
}

/* The plane's size along spatial axis i: what was asked for, if the pooling that is undone could have come from it. */
static bool unpooled_size(sw_t x, const sw_pool_options *o, const int64_t *size, int i, int64_t *out)
{
    const int64_t n = sw_dim(x, i + 2), k = o->kernel[i], s = o->stride[i] != 0 ? o->stride[i] : k;
    const int64_t most = INT32_MAX, lo = o->pad_lo[i], hi = o->pad_hi[i];
    char text[SW__TEXT_BYTES];
    sw__value_text(x.graph, x.id, text);
    if (k < 1 || s < 1 || lo < 0 || hi < 0 || n < 1 || k > most || s > most || lo > most || hi > most || n > most) {
        sw__op_error(x.graph, SW_OP_SCATTER_SET, SW_ERR_ARGUMENT,
                     "max_unpool of %s, spatial axis %d: input, kernel %lld and "
                     "stride %lld must be at least 1 and padding not negative",
                     text, i, (long long)k, (long long)s);
        return false;
    }
    const int64_t usual = (n - 1) * s - lo - hi + k;
    *out = size != NULL ? size[i] : usual;
    if (*out >= 1 && *out > usual - s && *out < usual + s) return true;
    sw__op_error(x.graph, SW_OP_SCATTER_SET, SW_ERR_SHAPE,
                 "max_unpool of %s, spatial axis %d: size %lld, but a pooling of kernel "
                 "%lld and stride %lld gives %lld elements for more than %lld and less than %lld",
                 text, i, (long long)*out, (long long)k, (long long)s, (long long)n, (long long)(usual - s),
                 (long long)(usual + s));
    return false;
}

sw_t sw_max_unpool_op(sw_t x, sw_t indices, const sw_pool_options *o, const int64_t *size)
{
    const sw_t xs[2] = { x, indices };
    sw_t invalid;
    if (!sw__operands(SW_OP_SCATTER_SET, xs, 2, &invalid)) return invalid;
    const sw__node from = *sw__node_of(x);
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (o == NULL || from.rank < 3 || from.rank > 5 || !sw__same_shape(&from, sw__node_of(indices)))
        return sw__op_error(x.graph, SW_OP_SCATTER_SET, SW_ERR_SHAPE,
                            "max_unpool takes x [N, C, spatial…] with 1 to 3 spatial "
                            "axes, indices of its shape and the pooling's options; x is %s, the indices %s",
                            sw__value_text(x.graph, x.id, a), sw__value_text(x.graph, indices.id, b));
    int64_t to[SW_MAX_RANK] = { from.dim[0], from.dim[1] };
    for (int i = 0; i < from.rank - 2; i++)
        if (!unpooled_size(x, o, size, i, &to[i + 2])) return (sw_t){ x.graph, 0 };
    const int64_t plane[3] = { from.dim[0], from.dim[1], sw__dims_product(to + 2, from.rank - 2) };
    const int64_t flat[3] = { from.dim[0], from.dim[1], sw__dims_product(from.dim + 2, from.rank - 2) };
    if (plane[2] < 0)
        return sw__op_error(x.graph, SW_OP_SCATTER_SET, SW_ERR_SHAPE, "max_unpool: the result is too large");
    const sw_t zeros = sw_full(x.graph, (sw_dtype)from.dtype, 3, plane, 0.0);
    const sw_t y = sw_scatter_set(zeros, sw_reshape(indices, 3, flat), sw_reshape(x, 3, flat), 2);
    return sw_reshape(y, from.rank, to);
}
