/* ops_window.c: builders of what slides a window and is made of other ops: the transposed convolution, pooling by other
 * means than maximum and average, its positions and the way back. Between swoop/graph.h and the ops of ops_big.c. */
#include "graph/build.h"

/* ---- transposed convolution --------------------------------------------------------------------------------------- */

/* One axis: a convolution of that geometry takes `out` elements, `hi` of them padding behind, to what is there now; `extra`
 * zeros follow them. Output padding of a stride or more (a dilated kernel allows it) lies where that convolution would
 * have a further window: it comes out of the padding behind, and out of zeros where there is none. */
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
        sw__op_error(x.graph, SW_OP_CONV_GRAD_X, SW_ERR_ARGUMENT, "transposed convolution of %s by %s, spatial axis %d: "
                     "input, kernel, stride %lld and dilation %lld must be at least 1 and padding %lld, %lld not negative",
                     a, b, i, (long long)o->stride[i], (long long)o->dilation[i], (long long)o->pad_lo[i],
                     (long long)o->pad_hi[i]);
        return false;
    }
    if (more < 0 || more >= most) {
        sw__op_error(x.graph, SW_OP_CONV_GRAD_X, SW_ERR_ARGUMENT, "transposed convolution of %s, spatial axis %d: output "
                     "padding %lld must be below the stride or the dilation: 0 to %lld", a, i, (long long)more,
                     (long long)most - 1);
        return false;
    }
    int64_t full, reach;
    const bool overflow = __builtin_mul_overflow(n - 1, o->stride[i], &full) ||
                          __builtin_mul_overflow(k - 1, o->dilation[i], &reach) ||
                          __builtin_add_overflow(full, reach, &full) || full > INT64_MAX / 4 ||
                          o->pad_lo[i] > INT64_MAX / 4 || o->pad_hi[i] > INT64_MAX / 4;
    const int64_t size = overflow ? 0 : full + 1 + more - o->pad_lo[i] - o->pad_hi[i];
    if (size < 1) {
        sw__op_error(x.graph, SW_OP_CONV_GRAD_X, SW_ERR_SHAPE, "transposed convolution of %s by %s, spatial axis %d: %s",
                     a, b, i, overflow ? "the result is too large" : "the padding takes all there is: use less of it");
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
        sw__op_error(x.graph, SW_OP_CONV_GRAD_X, SW_ERR_SHAPE, "transposed convolution takes x [N, C, spatial…] with 1 to 3 "
                     "spatial axes and a weight [C, O/groups, kernel…] of as many; x is %s, the weight %s", a, b);
        return false;
    }
    if (groups < 1 || sw_dim(x, 1) % groups != 0 || sw_dim(weight, 0) != sw_dim(x, 1)) {
        sw__op_error(x.graph, SW_OP_CONV_GRAD_X, SW_ERR_SHAPE, "transposed convolution of x %s by weight %s: axis 0 of the "
                     "weight must be x's %lld channels, and groups = %lld divide them", a, b, (long long)sw_dim(x, 1),
                     (long long)groups);
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
