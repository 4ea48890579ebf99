/* layers_attention.c: what transformers are made of: multi-head attention, positions (rotary, learnt, sinusoidal), the
 * encoder's block. Names are PyTorch's state_dict names. Beside layers.c; used by models_sequence.c and users'
 * networks. */
#include "nn/layers.h"
#include <math.h>

/* ---- heads ------------------------------------------------------------------------------------------------------- */

/* x [B, T, H D] as [B, H, T, D], and back. */
static sw_t split_heads(sw_t x, int64_t heads)
{
    if (!sw_valid(x)) return x;
    const int64_t shape[4] = {sw_dim(x, 0), sw_dim(x, 1), heads, sw_dim(x, 2) / heads};
    return sw_permute(sw_reshape(x, 4, shape), (const int[]){0, 2, 1, 3});
}

static sw_t join_heads(sw_t y)
{
    if (!sw_valid(y)) return y;
    y = sw_permute(y, (const int[]){0, 2, 1, 3});
    return sw_valid(y) ? sw_reshape(y, 3, (int64_t[]){sw_dim(y, 0), sw_dim(y, 1), sw_dim(y, 2) * sw_dim(y, 3)}) : y;
}

sw_t sw__attend(sw_t q, sw_t k, sw_t v, int64_t heads, bool causal, sw_t mask)
{
    return join_heads(sw_attention(split_heads(q, heads), split_heads(k, heads), split_heads(v, heads),
                                   .causal = causal, .mask = mask));
}

sw_t sw__attend_packed(sw_t qkv, int64_t heads, bool causal, sw_t mask)
{
    if (!sw_valid(qkv)) return qkv;
    const int64_t width = sw_dim(qkv, 2) / 3;
    return sw__attend(sw_narrow(qkv, 2, 0, width), sw_narrow(qkv, 2, width, width), sw_narrow(qkv, 2, 2 * width, width),
                      heads,
                      causal, mask);
}

/* ---- multi-head attention ---------------------------------------------------------------------------------------- */

/* Rows of in_proj: 0 for the query, 1 the key, 2 the value. */
static sw_t project(sw_t x, sw_t weight, sw_t bias, int64_t part, int64_t width)
{
    const sw_t b = bias.graph ? sw_narrow(bias, 0, part * width, width) : SW_NONE;
    return sw_linear_op(x, sw_narrow(weight, 0, part * width, width), b);
}

static bool same_width(sw_t x, sw_t other)
{
    return !other.graph || (sw_rank(other) == 3 && sw_dim(other, 2) == sw_dim(x, 2));
}

sw_t sw_multihead_attention_with(sw_t x, sw_multihead_attention_options o)
{
    if (!sw_valid(x) || (o.key.graph && !sw_valid(o.key)) || (o.value.graph && !sw_valid(o.value))) return SW_NONE;
    sw_graph *g = x.graph;
    const int64_t width = sw_rank(x) == 3 ? sw_dim(x, 2) : 0;
    if (width < 1 || o.heads < 1 || width % o.heads)
        return sw__graph_error(g, SW_ERR_ARGUMENT,
                               "multihead_attention '%s': %lld heads on an input of rank %d with %lld "
                               "features: needs [N, T, features], and heads that divide the features",
                               o.name ? o.name : "",
                               (long long)o.heads, sw_rank(x), (long long)width);
    if (!same_width(x, o.key) || !same_width(x, o.value))
        return sw__graph_error(g, SW_ERR_SHAPE, "multihead_attention '%s': key and value must be [N, T, %lld], "
                               "as many features as x", o.name ? o.name : "", (long long)width);
    const sw__layer_name name = sw__name_layer(g, o.name, "attn", "in_proj_weight");
    const sw_init xavier = {.kind = SW_INIT_UNIFORM, .a = -sqrt(1.5 / (double)width), .b = sqrt(1.5 / (double)width)};
    const int64_t three = 3 * width, square[2] = {width, width};
    const sw_t w = sw__layer_param(g, &name, "in_proj_weight", 2, (int64_t[]){three, width}, xavier);
    const sw_t b = o.no_bias ? SW_NONE : sw__layer_param(g, &name, "in_proj_bias", 1, &three, (sw_init){0});
    const sw_t out_w = sw__layer_param(g, &name, "out_proj.weight", 2, square, sw__fan_in_init((sw_init){0}, width));
    const sw_t out_b = o.no_bias ? SW_NONE : sw__layer_param(g, &name, "out_proj.bias", 1, &width, (sw_init){0});
    sw_t y;
    if (!o.key.graph && !o.value.graph) {
        y = sw__attend_packed(sw_linear_op(x, w, b), o.heads, o.causal, o.mask);
    } else {
        const sw_t key = o.key.graph ? o.key : o.value, value = o.value.graph ? o.value : o.key;
        y = sw__attend(project(x, w, b, 0, width), project(key, w, b, 1, width), project(value, w, b, 2, width),
                       o.heads, o.causal, o.mask);
    }
    return sw__layer_finish(g, sw_linear_op(y, out_w, out_b), &name);
}

/* ---- positions --------------------------------------------------------------------------------------------------- */

/* Angles position base^(-2i/D) for positions offset … offset + T - 1 and i = 0 … D/2 - 1: [T, D/2]. */
static sw_t angles(sw_graph *g, sw_dtype type, int64_t time, int64_t half, int64_t offset, double base)
{
    const int64_t shape[2] = {time, half};
    const sw_t place = sw_add_scalar(sw_iota(g, type, 2, shape, 0), (double)offset);
    const sw_t rate = sw_exp(sw_mul_scalar(sw_iota(g, type, 2, shape, 1), -log(base) / (double)half));
    return sw_mul(place, rate);
}

/* Positions are not counted in 16-bit floats. */
static sw_dtype angle_type(sw_t x)
{
    return sw_type(x) == SW_F64 ? SW_F64 : SW_F32;
}

sw_t sw_rope_with(sw_t x, sw_rope_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *g = x.graph;
    const int rank = sw_rank(x);
    const int64_t d = rank >= 2 ? sw_dim(x, -1) : 0, half = d / 2;
    const double base = o.base > 0 ? o.base : 10000;
    if (d < 2 || d % 2)
        return sw__graph_error(g, SW_ERR_SHAPE, "rope: needs [.., T, D] with an even D, got rank %d with D = %lld",
                               rank, (long long)d);
    const sw_t angle = angles(g, angle_type(x), sw_dim(x, -2), half, o.offset, base);
    const sw_t c = sw_cast(sw_cos(angle), sw_type(x)), s = sw_cast(sw_sin(angle), sw_type(x));
    const sw_t a = sw_narrow(x, rank - 1, 0, half), b = sw_narrow(x, rank - 1, half, half);
    const sw_t parts[2] = {sw_sub(sw_mul(a, c), sw_mul(b, s)), sw_add(sw_mul(b, c), sw_mul(a, s))};
    return sw_concat(parts, 2, rank - 1);
}

sw_t sw_sinusoidal_positions(sw_t x, int64_t offset)
{
    if (!sw_valid(x)) return SW_NONE;
    const int rank = sw_rank(x);
    const int64_t d = rank >= 2 ? sw_dim(x, -1) : 0;
    if (d < 2 || d % 2)
        return sw__graph_error(x.graph, SW_ERR_SHAPE, "sinusoidal_positions: needs [.., T, D] with an even D, "
                               "got rank %d with D = %lld", rank, (long long)d);
    const int64_t t = sw_dim(x, -2);
    const sw_t angle = sw_reshape(angles(x.graph, angle_type(x), t, d / 2, offset, 10000), 3, (int64_t[]){t, d / 2, 1});
    const sw_t parts[2] = {sw_sin(angle), sw_cos(angle)};
    return sw_add(x, sw_cast(sw_reshape(sw_concat(parts, 2, 2), 2, (int64_t[]){t, d}), sw_type(x)));
}

sw_t sw_position_embedding_with(sw_t x, sw_position_embedding_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *g = x.graph;
    const int64_t t = sw_rank(x) >= 2 ? sw_dim(x, -2) : 0, d = t ? sw_dim(x, -1) : 0;
    const int64_t context = o.context ? o.context : t;
    if (t < 1 || d < 1 || context < t)
        return sw__graph_error(g, SW_ERR_SHAPE, "position_embedding '%s': needs [.., T, D] with T at most the context, "
                               "got rank %d, T = %lld, context %lld", o.name ? o.name : "", sw_rank(x), (long long)t,
                               (long long)context);
    const sw__layer_name name = sw__name_layer(g, o.name, "positions", "weight");
    const sw_init normal = {.kind = SW_INIT_NORMAL, .a = 0, .b = 1};
    const sw_init init = o.weight_init.kind == SW_INIT_ZEROS ? normal : o.weight_init;
    const sw_t w = sw__layer_param(g, &name, "weight", 2, (int64_t[]){context, d}, init);
    return sw__layer_finish(g, sw_add(x, context == t ? w : sw_narrow(w, 0, 0, t)), &name);
}

/* ---- the encoder's block ----------------------------------------------------------------------------------------- */

static sw_t feed_forward(sw_t x, const sw_encoder_layer_options *o, int64_t width)
{
    const sw_t h = sw_linear(x, o->feedforward ? o->feedforward : 4 * width, .name = "linear1");
    return sw_linear(sw_dropout(o->gelu ? sw_gelu(h) : sw_relu(h), o->dropout), width, .name = "linear2");
}

sw_t sw_encoder_layer_with(sw_t x, sw_encoder_layer_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *g = x.graph;
    if (sw_rank(x) != 3)
        return sw__graph_error(g, SW_ERR_SHAPE, "encoder_layer '%s': needs [N, T, features], got rank %d",
                               o.name ? o.name : "", sw_rank(x));
    const int64_t width = sw_dim(x, 2);
    const sw__layer_name name = sw__name_layer(g, o.name, "layer", "norm1.weight");
    sw_scope_push(g, "%s", name.base);
    sw_t h = o.norm_first ? sw_layer_norm(x, .name = "norm1") : x;
    h = sw_multihead_attention(h, o.heads, .causal = o.causal, .mask = o.mask, .name = "self_attn");
    x = sw_add(x, sw_dropout(h, o.dropout));
    if (!o.norm_first) x = sw_layer_norm(x, .name = "norm1");
    h = o.norm_first ? sw_layer_norm(x, .name = "norm2") : x;
    x = sw_add(x, sw_dropout(feed_forward(h, &o, width), o.dropout));
    if (!o.norm_first) x = sw_layer_norm(x, .name = "norm2");
    sw_scope_pop(g);
    return x;
}
