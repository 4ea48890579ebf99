/* layers_pool.c: pooling as layers: options with one number for all axes become those of graph.h. They have no parameters.
 * As layers.c. */
#include "nn/layers.h"

static sw_pool_options options(const sw_pool_layer_options *o)
{
    sw_pool_options p = {.count_include_pad = !o->exclude_pad, .ceil_mode = o->ceil_mode};
    for (int i = 0; i < 3; i++) {
        p.kernel[i] = o->kernels[i] ? o->kernels[i] : o->kernel ? o->kernel : 2;
        p.stride[i] = o->strides[i] ? o->strides[i] : o->stride ? o->stride : p.kernel[i];
        p.pad_lo[i] = p.pad_hi[i] = o->pads[i] ? o->pads[i] : o->pad;
    }
    return p;
}

typedef sw_t (*pool_op)(sw_t x, const sw_pool_options *o);

static sw_t layer(const char *name, const char *shape, int nd, pool_op op, sw_t x, const sw_pool_layer_options *o)
{
    if (!sw_valid(x)) return SW_NONE;
    char text[128];
    if (sw_rank(x) != nd + 2)
        return sw__graph_error(x.graph, SW_ERR_SHAPE, "%s: x is %s, but it takes %s", name,
                               sw__shape_text(sw__node_of(x), text, sizeof text), shape);
    const sw_pool_options p = options(o);
    return op(x, &p); // cppcheck-suppress returnDanglingLifetime ; sw_t is a value: it keeps no pointer to p
}

sw_t sw_max_pool1d_with(sw_t x, sw_pool_layer_options o)
{
    return layer("max_pool1d", "[N, C, L]", 1, sw_max_pool_op, x, &o);
}

sw_t sw_max_pool2d_with(sw_t x, sw_pool2d_options o)
{
    return layer("max_pool2d", "[N, C, H, W]", 2, sw_max_pool_op, x, &o);
}

sw_t sw_max_pool3d_with(sw_t x, sw_pool_layer_options o)
{
    return layer("max_pool3d", "[N, C, D, H, W]", 3, sw_max_pool_op, x, &o);
}

sw_t sw_avg_pool1d_with(sw_t x, sw_pool_layer_options o)
{
    return layer("avg_pool1d", "[N, C, L]", 1, sw_avg_pool_op, x, &o);
}

sw_t sw_avg_pool2d_with(sw_t x, sw_pool2d_options o)
{
    return layer("avg_pool2d", "[N, C, H, W]", 2, sw_avg_pool_op, x, &o);
}

sw_t sw_avg_pool3d_with(sw_t x, sw_pool_layer_options o)
{
    return layer("avg_pool3d", "[N, C, D, H, W]", 3, sw_avg_pool_op, x, &o);
}

sw_t sw_lp_pool_with(sw_t x, sw_pool_layer_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    const sw_pool_options p = options(&o);
    return sw_lp_pool_op(x, o.power, &p);
}

sw_t sw_global_avg_pool2d(sw_t x)
{
    char text[128];
    if (sw_valid(x) && sw_rank(x) != 4)
        return sw__graph_error(x.graph, SW_ERR_SHAPE, "global_avg_pool2d: x is %s, but it takes [N, C, H, W]",
                               sw__shape_text(sw__node_of(x), text, sizeof text));
    return sw_mean(x, SW_AXIS(2) | SW_AXIS(3), false);
}
