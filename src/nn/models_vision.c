/* models_vision.c: networks for images, and the mlp. Each reads like its paper's table; models.c has the table of
 * names. */
#include "nn/models.h"
#include <stdio.h>

/* ---- mlp --------------------------------------------------------------------------------------------------------- */

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

/* ---- lenet: LeCun et al. 1998, LeNet-5 with ReLU ----------------------------------------------------------------- */

sw_t sw__model_lenet(sw_t x, const sw__sizes *s, int64_t outputs)
{
    (void)s;
    sw_t h = sw_avg_pool2d(sw_relu(sw_conv2d(x, 6, .kernel = 5, .pad = 2, .name = "conv1")), .kernel = 2);
    h = sw_avg_pool2d(sw_relu(sw_conv2d(h, 16, .kernel = 5, .name = "conv2")), .kernel = 2);
    h = sw_relu(sw_linear(sw_flatten(h), 120, .name = "fc1"));
    h = sw_relu(sw_linear(h, 84, .name = "fc2"));
    return sw_linear(h, outputs, .name = "fc3");
}

/* ---- cnn: convolution, batch norm, ReLU, max pool for each width; then one hidden layer -------------------------- */

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

/* ---- which stem: networks of ImageNet on small images ------------------------------------------------------------ */

/* Images of 64 pixels or more each way get the stem of the paper; on smaller ones its strides would leave nothing to
 * look at, and the stem is the one that is common for CIFAR: stride 1, no max pool. */
static bool large_images(sw_t x)
{
    return sw_dim(x, 2) >= 64 && sw_dim(x, 3) >= 64;
}

static sw_t conv_bn(sw_t x, int64_t channels, int64_t kernel, int64_t stride, const char *conv, const char *bn)
{
    x = sw_conv2d(x, channels, .kernel = kernel, .stride = stride, .pad = kernel / 2, .no_bias = true, .name = conv);
    return sw_batch_norm(x, .name = bn);
}

/* ---- resnet: He et al. 2016; names and shapes are torchvision's -------------------------------------------------- */

/* Two 3x3 convolutions. */
static sw_t basic_block(sw_t x, int64_t channels, int64_t stride)
{
    sw_t y = sw_relu(conv_bn(x, channels, 3, stride, "conv1", "bn1"));
    y = conv_bn(y, channels, 3, 1, "conv2", "bn2");
    if (stride != 1 || sw_dim(x, 1) != channels) x = conv_bn(x, channels, 1, stride, "downsample.0", "downsample.1");
    return sw_relu(sw_add(y, x));
}

/* 1x1 to fewer channels, 3x3 with the stride, 1x1 to four times as many. */
static sw_t bottleneck(sw_t x, int64_t channels, int64_t stride)
{
    sw_t y = sw_relu(conv_bn(x, channels, 1, 1, "conv1", "bn1"));
    y = sw_relu(conv_bn(y, channels, 3, stride, "conv2", "bn2"));
    y = conv_bn(y, 4 * channels, 1, 1, "conv3", "bn3");
    if (stride != 1 || sw_dim(x, 1) != 4 * channels)
        x = conv_bn(x, 4 * channels, 1, stride, "downsample.0", "downsample.1");
    return sw_relu(sw_add(y, x));
}

typedef sw_t (*block_fn)(sw_t x, int64_t channels, int64_t stride);

/* blocks: of each stage. */
static sw_t resnet(sw_t x, const sw__sizes *widths, const int *blocks, block_fn block, bool large, int64_t outputs)
{
    if (!sw_valid(x)) return x;
    x = sw_relu(conv_bn(x, widths->at[0], large ? 7 : 3, large ? 2 : 1, "conv1", "bn1"));
    if (large) x = sw_max_pool2d(x, .kernel = 3, .stride = 2, .pad = 1);
    for (int stage = 0; stage < widths->n; stage++)
        for (int j = 0; j < blocks[stage] && sw_valid(x); j++) {
            sw_graph *g = x.graph;
            sw_scope_push(g, "layer%d.%d", stage + 1, j);
            x = block(x, widths->at[stage], stage > 0 && j == 0 ? 2 : 1);
            sw_scope_pop(g);
        }
    return sw_linear(sw_global_avg_pool2d(x), outputs, .name = "fc");
}

static const int two_each[SW__MAX_SIZES] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
static const int one_each[SW__MAX_SIZES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static const int deep[4] = {3, 4, 6, 3}; /* resnet34, resnet50 */

sw_t sw__model_resnet8(sw_t x, const sw__sizes *s, int64_t outputs)
{
    return resnet(x, s, one_each, basic_block, false, outputs);
}

sw_t sw__model_resnet18(sw_t x, const sw__sizes *s, int64_t outputs)
{
    return resnet(x, s, two_each, basic_block, large_images(x), outputs);
}

sw_t sw__model_resnet34(sw_t x, const sw__sizes *s, int64_t outputs)
{
    return resnet(x, s, deep, basic_block, large_images(x), outputs);
}

sw_t sw__model_resnet50(sw_t x, const sw__sizes *s, int64_t outputs)
{
    return resnet(x, s, deep, bottleneck, large_images(x), outputs);
}

/* ---- vgg11 with batch norm: Simonyan & Zisserman 2015, configuration A; torchvision's vgg11_bn ------------------- */

/* s: channels of the five stages, then the classifier's hidden size. A pool that would leave nothing is left out. */
sw_t sw__model_vgg11(sw_t x, const sw__sizes *s, int64_t outputs)
{
    static const int convs[5] = {1, 1, 2, 2, 2};
    const bool large = large_images(x);
    const int64_t hidden = s->at[5];
    char conv[32], bn[32];
    int at = 0;
    for (int stage = 0; stage < SW_MIN(s->n, 5); stage++) {
        for (int j = 0; j < convs[stage]; j++, at += 3) { /* convolution, batch norm, ReLU */
            snprintf(conv, sizeof conv, "features.%d", at);
            snprintf(bn, sizeof bn, "features.%d", at + 1);
            x = sw_conv2d(x, s->at[stage], .kernel = 3, .pad = 1, .name = conv);
            x = sw_relu(sw_batch_norm(x, .name = bn));
        }
        if (sw_dim(x, 2) > 1 && sw_dim(x, 3) > 1) x = sw_max_pool2d(x, .kernel = 2);
        at++;
    }
    if (!sw_valid(x)) return x;
    const int64_t seven[2] = {7, 7};
    x = large ? sw_flatten(sw_adaptive_avg_pool(x, seven)) : sw_global_avg_pool2d(x);
    x = sw_dropout(sw_relu(sw_linear(x, hidden, .name = "classifier.0")), 0.5);
    x = sw_dropout(sw_relu(sw_linear(x, hidden, .name = "classifier.3")), 0.5);
    return sw_linear(x, outputs, .name = "classifier.6");
}

/* ---- mobilenet_v2: Sandler et al. 2018; torchvision's ------------------------------------------------------------ */

static const struct inverted_stage { int expand, channels, blocks, stride; } inverted_stages[] = {
    {1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

/* Channels at a width in percent: a multiple of 8, not less than 9/10 of what was asked for. */
static int64_t scaled(int64_t channels, int64_t percent)
{
    const int64_t wanted = channels * percent;
    const int64_t n = SW_MAX(8, (wanted + 400) / 800 * 8);
    return n * 1000 < wanted * 9 ? n + 8 : n;
}

static sw_t conv_bn_relu6(sw_t x, int64_t channels, int64_t kernel, int64_t stride, int64_t groups, const char *name)
{
    char conv[32], bn[32];
    snprintf(conv, sizeof conv, "%s.0", name);
    snprintf(bn, sizeof bn, "%s.1", name);
    x = sw_conv2d(x, channels, .kernel = kernel, .stride = stride, .pad = kernel / 2, .groups = groups, .no_bias = true,
                  .name = conv);
    return sw_relu6(sw_batch_norm(x, .name = bn));
}

/* 1x1 to more channels (unless expand is 1), 3x3 each channel by itself, 1x1 to few without an activation. */
static sw_t inverted_residual(sw_t x, int64_t channels, int64_t stride, int expand)
{
    char conv[32], bn[32];
    int at = 0;
    sw_t y = x;
    if (expand != 1) {
        y = conv_bn_relu6(y, sw_dim(x, 1) * expand, 1, 1, 1, "conv.0");
        at = 1;
    }
    snprintf(conv, sizeof conv, "conv.%d", at);
    y = conv_bn_relu6(y, sw_dim(y, 1), 3, stride, sw_dim(y, 1), conv);
    snprintf(conv, sizeof conv, "conv.%d", at + 1);
    snprintf(bn, sizeof bn, "conv.%d", at + 2);
    y = conv_bn(y, channels, 1, 1, conv, bn);
    return stride == 1 && sw_dim(x, 1) == channels ? sw_add(x, y) : y;
}

/* s: the width in percent. Small images: stride 1 in the stem and in the first stage that has 2. */
sw_t sw__model_mobilenet_v2(sw_t x, const sw__sizes *s, int64_t outputs)
{
    const int64_t percent = s->at[0], last = percent > 100 ? scaled(1280, percent) : 1280;
    const bool large = large_images(x);
    char name[32];
    int at = 1;
    x = conv_bn_relu6(x, scaled(32, percent), 3, large ? 2 : 1, 1, "features.0");
    for (size_t i = 0; i < SW_COUNT(inverted_stages); i++) {
        const struct inverted_stage *const t = &inverted_stages[i];
        for (int j = 0; j < t->blocks && sw_valid(x); j++) {
            sw_graph *g = x.graph;
            sw_scope_push(g, "features.%d", at++);
            x = inverted_residual(x, scaled(t->channels, percent), j > 0 || (i == 1 && !large) ? 1 : t->stride,
                                  t->expand);
            sw_scope_pop(g);
        }
    }
    snprintf(name, sizeof name, "features.%d", at);
    x = sw_dropout(sw_global_avg_pool2d(conv_bn_relu6(x, last, 1, 1, 1, name)), 0.2);
    return sw_linear(x, outputs, .name = "classifier.1");
}

/* ---- unet: Ronneberger et al. 2015 with two stages, padded convolutions and group norm --------------------------- */

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
    const int64_t base = s->at[0], groups = s->at[1], h = sw_dim(x, 2), w = sw_dim(x, 3);
    if (base % groups != 0)
        return sw__graph_error(x.graph, SW_ERR_ARGUMENT,
                               "model 'unet': after the colon come the base width and the groups of "
                               "its norms, which divide it, like unet:16,4");
    if (h < 4 || w < 4 || h % 4 != 0 || w % 4 != 0)
        return sw__graph_error(x.graph, SW_ERR_SHAPE,
                               "model 'unet' halves images twice: height and width must be multiples "
                               "of 4, not %lld x %lld", (long long)h, (long long)w);
    const sw_t e1 = unet_double(x, base, groups, "enc1");
    const sw_t e2 = unet_double(sw_max_pool2d(e1, .kernel = 2), 2 * base, groups, "enc2");
    const sw_t mid = unet_double(sw_max_pool2d(e2, .kernel = 2), 4 * base, groups, "mid");
    const sw_t d2 = unet_up(mid, e2, 2 * base, groups, "up2", "dec2");
    const sw_t d1 = unet_up(d2, e1, base, groups, "up1", "dec1");
    return sw_conv2d(d1, outputs, .kernel = 1, .name = "head");
}

/* ---- crnn: Shi et al. 2015 --------------------------------------------------------------------------------------- */

/* Convolution i of seven with ReLU; 2, 4 and 6 have batch norm. */
static sw_t crnn_conv(sw_t x, int i, int64_t channels)
{
    char conv[32], bn[32];
    snprintf(conv, sizeof conv, "cnn.conv%d", i);
    snprintf(bn, sizeof bn, "cnn.batchnorm%d", i);
    x = sw_conv2d(x, channels, .kernel = i == 6 ? 2 : 3, .pad = i == 6 ? 0 : 1, .name = conv);
    return sw_relu(i == 2 || i == 4 || i == 6 ? sw_batch_norm(x, .name = bn) : x);
}

/* Both directions side by side, brought to so many features. */
static sw_t crnn_recurrent(sw_t x, int i, int64_t hidden, int64_t features)
{
    if (!sw_valid(x)) return x;
    sw_graph *const g = x.graph;
    sw_scope_push(g, "rnn.%d", i);
    x = sw_linear(sw_lstm(x, hidden, .bidirectional = true, .name = "rnn"), features, .name = "embedding");
    sw_scope_pop(g);
    return x;
}

/* s: channels of the first convolution, hidden size. Images of 32 to 47 rows; one step for about each four columns:
 * logits [N, T, outputs], of which one class is the blank for sw_ctc_loss. */
sw_t sw__model_crnn(sw_t x, const sw__sizes *s, int64_t outputs)
{
    static const int times[7] = {1, 2, 4, 4, 8, 8, 8};
    const sw_pool_options rows = {.kernel = {2, 2}, .stride = {2, 1}, .pad_lo = {0, 1}, .pad_hi = {0, 1}};
    const int64_t hidden = s->at[1];
    char text[SW__TEXT_BYTES];
    if (sw_dim(x, 2) / 16 != 2 || sw_dim(x, 3) < 4)
        return sw__graph_error(x.graph, SW_ERR_SHAPE,
                               "model 'crnn' takes images [N, C, H, W] of 32 to 47 rows and 4 columns or "
                               "more, but x is %s", sw__value_text(x.graph, x.id, text));
    for (int i = 0; i < 7; i++) {
        x = crnn_conv(x, i, times[i] * s->at[0]);
        if (i < 2) x = sw_max_pool2d(x, .kernel = 2);
        if (i == 3 || i == 5) x = sw_max_pool_op(x, &rows);
    }
    if (!sw_valid(x)) return x;
    x = sw_transpose(sw_reshape(x, 3, (int64_t[]){sw_dim(x, 0), sw_dim(x, 1), -1}), 1, 2); /* [N, T, C] */
    return crnn_recurrent(crnn_recurrent(x, 0, hidden, hidden), 1, hidden, outputs);
}
