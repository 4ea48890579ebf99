/* models_vision.c: networks for images, and the mlp. Each reads like its paper's table; models.c has the table of names. */
#include "nn/models.h"
#include <stdio.h>

/* ---- mlp ----------------------------------------------------------------------------------------------------------------- */

/* Linear and ReLU for each hidden size, then linear: fc1, fc2 … */
sw_t sw__model_mlp(sw_t x, const sw__sizes *s, int64_t outputs)
{
    char name[32];
    sw_t h = sw_rank(x) > 2 ? sw_flatten(x) : x;
    for (int i = 0; i < s->n; i++) {
        snprintf(name, sizeof name, "fc%d", i + 1);
        h = sw_relu(sw_linear(h, s->at[i], .name = name));
    }
    snprintf(name, sizeof name, "fc%d", s->n + 1);
    return sw_linear(h, outputs, .name = name);
}

/* ---- lenet: LeCun et al. 1998, LeNet-5 with ReLU ------------------------------------------------------------------------ */

sw_t sw__model_lenet(sw_t x, const sw__sizes *s, int64_t outputs)
{
    (void)s;
    sw_t h = sw_avg_pool2d(sw_relu(sw_conv2d(x, 6, .kernel = 5, .pad = 2, .name = "conv1")), .kernel = 2);
    h = sw_avg_pool2d(sw_relu(sw_conv2d(h, 16, .kernel = 5, .name = "conv2")), .kernel = 2);
    h = sw_relu(sw_linear(sw_flatten(h), 120, .name = "fc1"));
    h = sw_relu(sw_linear(h, 84, .name = "fc2"));
    return sw_linear(h, outputs, .name = "fc3");
}

/* ---- cnn: convolution, batch norm, ReLU, max pool for each width; then one hidden layer --------------------------------- */

sw_t sw__model_cnn(sw_t x, const sw__sizes *s, int64_t outputs)
{
    char name[32];
    for (int i = 0; i < s->n; i++) {
        snprintf(name, sizeof name, "conv%d", i + 1);
        x = sw_conv2d(x, s->at[i], .kernel = 3, .pad = 1, .no_bias = true, .name = name);
        snprintf(name, sizeof name, "bn%d", i + 1);
        x = sw_max_pool2d(sw_relu(sw_batch_norm(x, .name = name)), .kernel = 2);
    }
    x = sw_relu(sw_linear(sw_flatten(x), 128, .name = "fc1"));
    return sw_linear(x, outputs, .name = "fc2");
}

/* ---- resnet: He et al. 2016, basic blocks, the CIFAR stem (3x3, no max pool) --------------------------------------------- */

static sw_t conv_bn(sw_t x, int64_t channels, int64_t kernel, int64_t stride, const char *conv, const char *bn)
{
    x = sw_conv2d(x, channels, .kernel = kernel, .stride = stride, .pad = kernel / 2, .no_bias = true, .name = conv);
    return sw_batch_norm(x, .name = bn);
}

static sw_t basic_block(sw_t x, int64_t channels, int64_t stride)
{
    sw_t y = sw_relu(conv_bn(x, channels, 3, stride, "conv1", "bn1"));
    y = conv_bn(y, channels, 3, 1, "conv2", "bn2");
    if (stride != 1 || sw_dim(x, 1) != channels) x = conv_bn(x, channels, 1, stride, "downsample.0", "downsample.1");
    return sw_relu(sw_add(y, x));
}

static sw_t resnet(sw_t x, const sw__sizes *widths, int blocks, int64_t outputs)
{
    if (!sw_valid(x)) return x;
    x = sw_relu(conv_bn(x, widths->at[0], 3, 1, "conv1", "bn1"));
    for (int stage = 0; stage < widths->n; stage++)
        for (int j = 0; j < blocks && sw_valid(x); j++) {
            sw_graph *g = x.graph;
            sw_scope_push(g, "layer%d.%d", stage + 1, j);
            x = basic_block(x, widths->at[stage], stage > 0 && j == 0 ? 2 : 1);
            sw_scope_pop(g);
        }
    return sw_linear(sw_global_avg_pool2d(x), outputs, .name = "fc");
}

sw_t sw__model_resnet8(sw_t x, const sw__sizes *s, int64_t outputs)
{
    return resnet(x, s, 1, outputs);
}

sw_t sw__model_resnet18(sw_t x, const sw__sizes *s, int64_t outputs)
{
    return resnet(x, s, 2, outputs);
}

/* ---- unet: Ronneberger et al. 2015 with two stages, padded convolutions and group norm ----------------------------------- */

/* 3x3 convolution, group norm, ReLU, twice: N.0, N.1, N.3, N.4, as in a torch.nn.Sequential. */
static sw_t unet_double(sw_t x, int64_t channels, int64_t groups, const char *name)
{
    if (!sw_valid(x)) return x;
    sw_graph *const g = x.graph;
    sw_scope_push(g, "%s", name);
    x = sw_conv2d(x, channels, .kernel = 3, .pad = 1, .no_bias = true, .name = "0");
    x = sw_relu(sw_group_norm(x, groups, .name = "1"));
    x = sw_conv2d(x, channels, .kernel = 3, .pad = 1, .no_bias = true, .name = "3");
    x = sw_relu(sw_group_norm(x, groups, .name = "4"));
    sw_scope_pop(g);
    return x;
}

/* From below, upsampled, beside what the way down had at this size. */
static sw_t unet_up(sw_t below, sw_t beside, int64_t channels, int64_t groups, const char *up, const char *dec)
{
    const sw_t parts[2] = {beside, sw_conv_transpose2d(below, channels, .kernel = 2, .stride = 2, .name = up)};
    return unet_double(sw_concat(parts, 2, 1), channels, groups, dec);
}

sw_t sw__model_unet(sw_t x, const sw__sizes *s, int64_t outputs)
{
    const int64_t base = s->at[0], groups = s->n > 1 ? s->at[1] : 4, h = sw_dim(x, 2), w = sw_dim(x, 3);
    if (base % groups != 0)
        return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "model 'unet': after the colon come the base width and the groups of "
                               "its norms, which divide it, like unet:16,4");
    if (h < 4 || w < 4 || h % 4 != 0 || w % 4 != 0)
        return sw__graph_error(x.graph, SW_ERR_SHAPE, "model 'unet' halves images twice: height and width must be multiples "
                               "of 4, not %lld x %lld", (long long)h, (long long)w);
    const sw_t e1 = unet_double(x, base, groups, "enc1");
    const sw_t e2 = unet_double(sw_max_pool2d(e1, .kernel = 2), 2 * base, groups, "enc2");
    const sw_t mid = unet_double(sw_max_pool2d(e2, .kernel = 2), 4 * base, groups, "mid");
    const sw_t d2 = unet_up(mid, e2, 2 * base, groups, "up2", "dec2");
    const sw_t d1 = unet_up(d2, e1, base, groups, "up1", "dec1");
    return sw_conv2d(d1, outputs, .kernel = 1, .name = "head");
}
