/* models.c: the networks that have a name. Each reads like its paper's table.
 * On layers.c; reached by sw_model_build("resnet18", …) and the command's --model. */
#include "graph/graph.h"
#include "swoop/nn.h"
#include <stdio.h>
#include <stdlib.h>

#define MAX_SIZES 16

/* Numbers after the colon: "mlp:256,128". */
typedef struct sizes {
    int64_t at[MAX_SIZES];
    int n;
} sizes;

typedef sw_t (*build_fn)(sw_t x, const sizes *s, int64_t outputs);

/* ---- mlp ----------------------------------------------------------------------------------------------------------------- */

/* Linear and ReLU for each hidden size, then linear: fc1, fc2 … */
static sw_t mlp(sw_t x, const sizes *s, int64_t outputs)
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

static sw_t lenet(sw_t x, const sizes *s, int64_t outputs)
{
    (void)s;
    sw_t h = sw_avg_pool2d(sw_relu(sw_conv2d(x, 6, .kernel = 5, .pad = 2, .name = "conv1")), .kernel = 2);
    h = sw_avg_pool2d(sw_relu(sw_conv2d(h, 16, .kernel = 5, .name = "conv2")), .kernel = 2);
    h = sw_relu(sw_linear(sw_flatten(h), 120, .name = "fc1"));
    h = sw_relu(sw_linear(h, 84, .name = "fc2"));
    return sw_linear(h, outputs, .name = "fc3");
}

/* ---- cnn: convolution, batch norm, ReLU, max pool for each width; then one hidden layer --------------------------------- */

static sw_t cnn(sw_t x, const sizes *s, int64_t outputs)
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

static sw_t resnet(sw_t x, const sizes *widths, int blocks, int64_t outputs)
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

static sw_t resnet8(sw_t x, const sizes *s, int64_t outputs)
{
    return resnet(x, s, 1, outputs);
}

static sw_t resnet18(sw_t x, const sizes *s, int64_t outputs)
{
    return resnet(x, s, 2, outputs);
}

/* ---- by name --------------------------------------------------------------------------------------------------------------- */

static const struct model {
    sw_model_info info;
    int input_rank; /* 4: images; 0: anything */
    int max_sizes;
    sizes defaults;
    build_fn build;
} models[] = {
    {{"mlp", "hidden sizes", "linear layers with ReLU between; any input is flattened"}, 0, MAX_SIZES,
     {{512, 512}, 2}, mlp},
    {{"lenet", "", "LeNet-5 (LeCun et al. 1998) with ReLU, for images of 28x28"}, 4, 0, {{0}, 0}, lenet},
    {{"cnn", "channels of each stage", "3x3 convolution, batch norm, ReLU, max pool per stage; one hidden layer"}, 4,
     MAX_SIZES, {{32, 64}, 2}, cnn},
    {{"resnet8", "channels of each stage", "residual network, one block a stage (He et al. 2016)"}, 4, MAX_SIZES,
     {{16, 32, 64}, 3}, resnet8},
    {{"resnet18", "channels of each stage", "residual network, two blocks a stage, CIFAR stem (He et al. 2016)"}, 4,
     MAX_SIZES, {{64, 128, 256, 512}, 4}, resnet18},
};

const sw_model_info *sw_model_list(void)
{
    static sw_model_info list[SW_COUNT(models) + 1]; /* the same values whoever writes them first */
    for (size_t i = 0; i < SW_COUNT(models); i++) list[i] = models[i].info;
    return list;
}

static const struct model *find_model(const char *spec, size_t len)
{
    for (size_t i = 0; i < SW_COUNT(models); i++)
        if (strlen(models[i].info.name) == len && strncmp(models[i].info.name, spec, len) == 0) return &models[i];
    return NULL;
}

static sw_t unknown_model(sw_graph *g, const char *spec, size_t len)
{
    const char *names[SW_COUNT(models)];
    char word[64], all[256] = "";
    snprintf(word, sizeof word, "%.*s", (int)SW_MIN(len, sizeof word - 1), spec);
    for (size_t i = 0; i < SW_COUNT(models); i++) {
        names[i] = models[i].info.name;
        const size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = sw__nearest(word, names, SW_COUNT(models));
    return sw__graph_error(g, SW_ERR_ARGUMENT, "there is no model '%s'%s%s%s: choose from %s", word,
                           near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", all);
}

/* "256,128" into s; false if it is anything else. */
static bool parse_sizes(const char *text, sizes *s)
{
    s->n = 0;
    for (;;) {
        char *end = NULL;
        const long long v = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : 0;
        if (v < 1 || v > 1 << 24 || s->n == MAX_SIZES) return false;
        s->at[s->n++] = v;
        if (!*end) return true;
        if (*end != ',') return false;
        text = end + 1;
    }
}

sw_t sw_model_build(const char *spec, sw_t x, int64_t outputs)
{
    if (!sw_valid(x)) return SW_NONE;
    if (!spec || !*spec) return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "the model's name is empty");
    const char *colon = strchr(spec, ':');
    const size_t len = colon ? (size_t)(colon - spec) : strlen(spec);
    const struct model *m = find_model(spec, len);
    if (!m) return unknown_model(x.graph, spec, len);
    sizes s = m->defaults;
    if (colon && (m->max_sizes == 0 || !parse_sizes(colon + 1, &s)))
        return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "model '%s': after the colon come %s", spec,
                               m->max_sizes ? "1 to 16 positive numbers, like 64,128" : "no arguments for this model");
    if (m->input_rank && sw_rank(x) != m->input_rank)
        return sw__graph_error(x.graph, SW_ERR_SHAPE, "model '%s' takes images [N, C, H, W], but the data has %d axes with "
                               "the batch", m->info.name, sw_rank(x));
    if (outputs < 1)
        return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "model '%s': %lld outputs", spec, (long long)outputs);
    // cppcheck-suppress returnDanglingLifetime ; sw_t is a value: it keeps no pointer to the sizes
    return m->build(x, &s, outputs);
}
