/* models_plain.c: the autoencoder, and the temporal convolutional network for sequences. models.c has the table of
 * names. */
#include "nn/layers.h"
#include "nn/models.h"
#include <math.h>
#include <stdio.h>

/* ---- autoencoder: Hinton & Salakhutdinov 2006, with ReLU --------------------------------------------------------- */

/* encoder.0, encoder.1 … down to the code (which is linear), decoder.0 … back up to the input's size. Any input is
 * flattened. */
sw_t sw__model_autoencoder(sw_t x, const sw__sizes *s, int64_t outputs)
{
    char name[32];
    sw_t h = sw_rank(x) > 2 ? sw_flatten(x) : x;
    if (!sw_valid(h)) return h;
    const int64_t size = sw_rank(h) == 2 ? sw_dim(h, 1) : 0;
    if (size != outputs)
        return sw__graph_error(x.graph, SW_ERR_SHAPE,
                               "model 'autoencoder' gives its input again: the target must be the input, "
                               "%lld values a sample, not %lld", (long long)size, (long long)outputs);
    for (int i = 0; i < s->n; i++) {
        snprintf(name, sizeof name, "encoder.%d", i);
        h = sw_linear(h, s->at[i], .name = name);
        if (i + 1 < s->n) h = sw_relu(h);
    }
    for (int i = s->n - 1; i >= 0; i--) {
        snprintf(name, sizeof name, "decoder.%d", s->n - 1 - i);
        h = sw_linear(h, i > 0 ? s->at[i - 1] : size, .name = name);
        if (i > 0) h = sw_relu(h);
    }
    return h;
}

/* ---- tcn: Bai et al. 2018 ---------------------------------------------------------------------------------------- */

enum { TCN_KERNEL = 7 };
static const double tcn_dropout = 0.05;

/* Causal convolution over [N, C, L] with weight g v/|v| (Salimans & Kingma 2016): weight_g [O, 1, 1], weight_v [O, C,
 * K]. */
static sw_t causal_conv(sw_t x, int64_t channels, int64_t dilation, const char *name)
{
    if (!sw_valid(x)) return x;
    sw_graph *g = x.graph;
    const int64_t c = sw_dim(x, 1), v_shape[3] = {channels, c, TCN_KERNEL}, g_shape[3] = {channels, 1, 1};
    const double size = 0.01 * sqrt((double)(c * TCN_KERNEL)); /* what |v| is at first, all but exactly */
    const sw__layer_name layer = sw__name_layer(g, name, "conv", "weight_v");
    const sw_t scale = sw__layer_param(g, &layer, "weight_g", 3, g_shape,
                                       (sw_init){.kind = SW_INIT_CONSTANT, .a = size});
    const sw_t v = sw__layer_param(g, &layer, "weight_v", 3, v_shape, (sw_init){.kind = SW_INIT_NORMAL, .b = 0.01});
    const sw_t b = sw__layer_param(g, &layer, "bias", 1, &channels, sw__fan_in_init((sw_init){0}, c * TCN_KERNEL));
    const sw_t w = sw_mul(v, sw_div(scale, sw_norm(v, 2, SW_AXIS(1) | SW_AXIS(2), true)));
    const sw_conv_options o = {.pad_lo = {(TCN_KERNEL - 1) * dilation}, .dilation = {dilation}};
    return sw__layer_finish(g, sw_conv_op(x, w, b, &o), &layer);
}

/* Two causal convolutions; x itself is added, brought to as many channels. */
static sw_t tcn_level(sw_t x, int64_t channels, int64_t dilation)
{
    sw_t y = sw_dropout(sw_relu(causal_conv(x, channels, dilation, "conv1")), tcn_dropout);
    y = sw_dropout(sw_relu(causal_conv(y, channels, dilation, "conv2")), tcn_dropout);
    if (!sw_valid(y)) return y;
    const int64_t c = sw_dim(x, 1), shape[3] = {channels, c, 1};
    if (c != channels) {
        const sw__layer_name layer = sw__name_layer(x.graph, "downsample", "conv", "weight");
        const sw_init init = {.kind = SW_INIT_NORMAL, .b = 0.01};
        const sw_t w = sw__layer_param(x.graph, &layer, "weight", 3, shape, init);
        const sw_t b = sw__layer_param(x.graph, &layer, "bias", 1, &channels, sw__fan_in_init((sw_init){0}, c));
        x = sw__layer_finish(x.graph, sw_conv_op(x, w, b, NULL), &layer);
    }
    return sw_relu(sw_add(y, x));
}

/* Kernel 7, dilation 1, 2, 4 … by level, a linear layer on the last step. Takes [N, C, L]; [N, L] is one channel, an
 * image is read pixel by pixel. */
sw_t sw__model_tcn(sw_t x, const sw__sizes *s, int64_t outputs)
{
    if (sw_rank(x) == 2) x = sw_reshape(x, 3, (int64_t[]){sw_dim(x, 0), 1, sw_dim(x, 1)});
    if (sw_rank(x) > 3) x = sw_reshape(x, 3, (int64_t[]){sw_dim(x, 0), sw_dim(x, 1), -1});
    if (!sw_valid(x)) return x;
    char text[SW__TEXT_BYTES];
    if (sw_rank(x) != 3 || sw_dim(x, 2) < 1)
        return sw__graph_error(x.graph, SW_ERR_SHAPE, "model 'tcn' takes sequences [N, C, L], but x is %s",
                               sw__value_text(x.graph, x.id, text));
    sw_graph *g = x.graph;
    for (int i = 0; i < s->n; i++) {
        sw_scope_push(g, "tcn.network.%d", i);
        x = tcn_level(x, s->at[i], (int64_t)1 << i);
        sw_scope_pop(g);
    }
    if (!sw_valid(x)) return x;
    const sw_t last = sw_narrow(x, 2, sw_dim(x, 2) - 1, 1);
    return sw_linear(sw_flatten(last), outputs, .name = "linear");
}
