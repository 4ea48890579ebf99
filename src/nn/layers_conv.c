/* layers_conv.c: convolution and transposed convolution as layers, over 1 to 3 spatial axes: one function for all of them.
 * As layers.c; the arithmetic is sw_conv_op and sw_conv_transpose_op. */
#include "nn/layers.h"

/* What differs between the layers. */
typedef struct conv_kind {
    const char *layer, *shape;
    int nd;
    bool transposed;
} conv_kind;

/* The axis's own number, or the one for all, or what nothing means. */
static int64_t choose(int64_t own, int64_t all, int64_t otherwise)
{
    return own ? own : all ? all : otherwise;
}

/* Everything that must hold before the layer can say how large its parameters are. */
static bool check(const conv_kind *kind, sw_t x, const sw_conv_layer_options *o, int64_t groups)
{
    char text[SW__TEXT_BYTES];
    const char *const name = o->name ? o->name : "";
    if (sw_rank(x) != kind->nd + 2) {
        sw__graph_error(x.graph, SW_ERR_SHAPE, "%s '%s': x is %s, but it takes %s", kind->layer, name,
                        sw__value_text(x.graph, x.id, text), kind->shape);
        return false;
    }
    bool kernel = true;
    for (int i = 0; i < kind->nd; i++) kernel = kernel && choose(o->kernels[i], o->kernel, 0) > 0;
    if (o->channels < 1 || !kernel) {
        sw__graph_error(x.graph, SW_ERR_ARGUMENT, "%s '%s' of %s: %lld channels, kernel %lld: both must be given, as in "
                        "sw_%s(x, 32, .kernel = 3)", kind->layer, name, sw__value_text(x.graph, x.id, text),
                        (long long)o->channels, (long long)o->kernel, kind->layer);
        return false;
    }
    const int64_t c = sw_dim(x, 1);
    if (groups < 1 || c < 1 || c % groups || o->channels % groups) {
        sw__graph_error(x.graph, SW_ERR_ARGUMENT, "%s '%s': %lld groups must divide the %lld channels of x %s and the %lld "
                        "of the result", kind->layer, name, (long long)groups, (long long)c, sw__value_text(x.graph, x.id, text),
                        (long long)o->channels);
        return false;
    }
    return true;
}

static sw_t layer(const conv_kind *kind, sw_t x, const sw_conv_layer_options *o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *const g = x.graph;
    const int64_t groups = sw__or_one(o->groups);
    if (!check(kind, x, o, groups)) return SW_NONE;
    const int64_t c = sw_dim(x, 1);
    sw_conv_options conv = {.groups = groups};
    int64_t weight[5] = {kind->transposed ? c : o->channels, (kind->transposed ? o->channels : c) / groups};
    int64_t fan_in = weight[1];
    for (int i = 0; i < kind->nd; i++) {
        weight[i + 2] = choose(o->kernels[i], o->kernel, 1);
        /* a weight too large to count is refused when it is declared */
        fan_in = weight[i + 2] > INT64_MAX / fan_in ? INT64_MAX : fan_in * weight[i + 2];
        conv.stride[i] = choose(o->strides[i], o->stride, 1);
        conv.dilation[i] = choose(o->dilations[i], o->dilation, 1);
        conv.pad_lo[i] = conv.pad_hi[i] = choose(o->pads[i], o->pad, 0);
        conv.output_padding[i] = choose(o->output_paddings[i], o->output_padding, 0);
    }
    const sw__layer_name name = sw__name_layer(g, o->name, kind->transposed ? "conv_transpose" : "conv", "weight");
    const sw_t w = sw__layer_param(g, &name, "weight", kind->nd + 2, weight, sw__fan_in_init(o->weight_init, fan_in));
    const sw_init bias = sw__fan_in_init(o->bias_init, fan_in);
    const sw_t b = o->no_bias ? SW_NONE : sw__layer_param(g, &name, "bias", 1, &o->channels, bias);
    const sw_t y = kind->transposed ? sw_conv_transpose_op(x, w, b, &conv) : sw_conv_op(x, w, b, &conv);
    return sw__layer_finish(g, y, &name);
}

sw_t sw_conv1d_with(sw_t x, sw_conv_layer_options o)
{
    static const conv_kind kind = {"conv1d", "[N, C, L]", 1, false};
    return layer(&kind, x, &o);
}

sw_t sw_conv2d_with(sw_t x, sw_conv2d_options o)
{
    static const conv_kind kind = {"conv2d", "[N, C, H, W]", 2, false};
    const sw_conv_layer_options all = {
        .channels = o.channels, .name = o.name, .kernel = o.kernel, .kernels = {o.kernel_h, o.kernel_w}, .stride = o.stride,
        .pad = o.pad, .dilation = o.dilation, .groups = o.groups, .no_bias = o.no_bias, .weight_init = o.weight_init,
        .bias_init = o.bias_init};
    return layer(&kind, x, &all);
}

sw_t sw_conv3d_with(sw_t x, sw_conv_layer_options o)
{
    static const conv_kind kind = {"conv3d", "[N, C, D, H, W]", 3, false};
    return layer(&kind, x, &o);
}

sw_t sw_conv_transpose1d_with(sw_t x, sw_conv_layer_options o)
{
    static const conv_kind kind = {"conv_transpose1d", "[N, C, L]", 1, true};
    return layer(&kind, x, &o);
}

sw_t sw_conv_transpose2d_with(sw_t x, sw_conv_layer_options o)
{
    static const conv_kind kind = {"conv_transpose2d", "[N, C, H, W]", 2, true};
    return layer(&kind, x, &o);
}

sw_t sw_conv_transpose3d_with(sw_t x, sw_conv_layer_options o)
{
    static const conv_kind kind = {"conv_transpose3d", "[N, C, D, H, W]", 3, true};
    return layer(&kind, x, &o);
}
