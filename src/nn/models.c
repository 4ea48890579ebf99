/* models.c: the networks that have a name, as a table: what comes after the colon, what input they take, who builds them.
 * Over models_*.c, where each reads like its paper's table; reached by sw_model_build("resnet18", …) and the command's --model. */
#include "nn/models.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- by name --------------------------------------------------------------------------------------------------------------- */

static const struct model {
    sw_model_info info;
    int input_rank; /* 4: images; 0: anything */
    int max_sizes;
    sw__sizes defaults;
    sw__build_fn build;
} models[] = {
    {{"mlp", "hidden sizes", "linear layers with ReLU between; any input is flattened"}, 0, SW__MAX_SIZES,
     {{512, 512}, 2}, sw__model_mlp},
    {{"lenet", "", "LeNet-5 (LeCun et al. 1998) with ReLU, for images of 28x28"}, 4, 0, {{0}, 0}, sw__model_lenet},
    {{"cnn", "channels of each stage", "3x3 convolution, batch norm, ReLU, max pool per stage; one hidden layer"}, 4,
     SW__MAX_SIZES, {{32, 64}, 2}, sw__model_cnn},
    {{"resnet8", "channels of each stage", "residual network, one block a stage (He et al. 2016)"}, 4, SW__MAX_SIZES,
     {{16, 32, 64}, 3}, sw__model_resnet8},
    {{"resnet18", "channels of each stage", "residual network, two blocks a stage (He et al. 2016)"}, 4, SW__MAX_SIZES,
     {{64, 128, 256, 512}, 4}, sw__model_resnet18},
    {{"resnet34", "channels of each stage", "residual network, 3, 4, 6, 3 blocks (He et al. 2016)"}, 4, 4,
     {{64, 128, 256, 512}, 4}, sw__model_resnet34},
    {{"resnet50", "inner channels of each stage", "residual network, 3, 4, 6, 3 bottlenecks, results four times as wide (He et al. 2016)"},
     4, 4, {{64, 128, 256, 512}, 4}, sw__model_resnet50},
    {{"vgg11", "channels of five stages, hidden size", "3x3 convolutions with batch norm, two hidden layers (Simonyan & Zisserman 2015)"},
     4, 6, {{64, 128, 256, 512, 512, 4096}, 6}, sw__model_vgg11},
    {{"mobilenet_v2", "width in percent", "inverted residuals with depthwise convolutions (Sandler et al. 2018)"}, 4, 1,
     {{100}, 1}, sw__model_mobilenet_v2},
    {{"autoencoder", "hidden sizes down to the code", "linear layers with ReLU to a code and back; gives its input again"}, 0,
     SW__MAX_SIZES / 2, {{128, 32}, 2}, sw__model_autoencoder},
    {{"tcn", "channels of each level", "dilated causal convolutions over [N, C, L] (Bai et al. 2018)"}, 0, SW__MAX_SIZES,
     {{25, 25, 25, 25, 25, 25, 25, 25}, 8}, sw__model_tcn},
    {{"unet", "base width, groups of its norms", "U-Net with two stages and group norm: an output for each pixel "
      "(Ronneberger et al. 2015)"}, 4, 2, {{16, 4}, 2}, sw__model_unet},
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
    char word[64], all[512] = "";
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
static bool parse_sizes(const char *text, sw__sizes *s)
{
    s->n = 0;
    for (;;) {
        char *end = NULL;
        const long long v = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : 0;
        if (v < 1 || v > 1 << 24 || s->n == SW__MAX_SIZES) return false;
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
    sw__sizes s = m->defaults;
    if (colon && m->max_sizes == 0)
        return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "model '%s': after the colon come no arguments for this model", spec);
    if (colon && (!parse_sizes(colon + 1, &s) || s.n > m->max_sizes))
        return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "model '%s': after the colon come 1 to %d positive numbers, like %s (%s)",
                               spec, m->max_sizes, m->max_sizes > 1 ? "64,128" : "64", m->info.arguments);
    char text[SW__TEXT_BYTES];
    if (m->input_rank && sw_rank(x) != m->input_rank)
        return sw__graph_error(x.graph, SW_ERR_SHAPE, "model '%s' takes images [N, C, H, W], but x is %s", m->info.name,
                               sw__value_text(x.graph, x.id, text));
    if (outputs < 1)
        return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "model '%s': %lld outputs: 1 or more", spec, (long long)outputs);
    // cppcheck-suppress returnDanglingLifetime ; sw_t is a value: it keeps no pointer to the sizes
    return m->build(x, &s, outputs);
}
