/* models.c: the networks that have a name, as a table: what comes after the colon, what input they take, who builds them.
 * Over models_*.c, where each reads like its paper's table; reached by sw_model_build("resnet18", …) and the command's --model. */
#include "nn/models.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- by name --------------------------------------------------------------------------------------------------------------- */

static const struct model {
    sw_model_info info;
    int input_rank; /* 4: images; 2: tokens; 0: anything */
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
    {{"resnet50", "inner channels of each stage", "residual network, 3, 4, 6, 3 bottlenecks, results four times as wide "
      "(He et al. 2016)"}, 4, 4, {{64, 128, 256, 512}, 4}, sw__model_resnet50},
    {{"vgg11", "channels of five stages, hidden size", "3x3 convolutions with batch norm, two hidden layers (Simonyan & "
      "Zisserman 2015)"}, 4, 6, {{64, 128, 256, 512, 512, 4096}, 6}, sw__model_vgg11},
    {{"mobilenet_v2", "width in percent", "inverted residuals with depthwise convolutions (Sandler et al. 2018)"}, 4, 1,
     {{100}, 1}, sw__model_mobilenet_v2},
    {{"crnn", "channels of the first convolution, hidden size", "convolutions, then two LSTM layers over the columns: logits at "
      "each (Shi et al. 2015)"}, 4, 2, {{64, 256}, 2}, sw__model_crnn},
    {{"autoencoder", "hidden sizes down to the code", "linear layers with ReLU to a code and back; gives its input again"}, 0,
     SW__MAX_SIZES / 2, {{128, 32}, 2}, sw__model_autoencoder},
    {{"tcn", "channels of each level", "dilated causal convolutions over [N, C, L] (Bai et al. 2018)"}, 0, SW__MAX_SIZES,
     {{25, 25, 25, 25, 25, 25, 25, 25}, 8}, sw__model_tcn},
    {{"unet", "base width, groups of its norms", "U-Net with two stages and group norm: an output for each pixel "
      "(Ronneberger et al. 2015)"}, 4, 2, {{16, 4}, 2}, sw__model_unet},
    {{"lstm", "embedding (of tokens), hidden size", "two LSTM layers: the next token at each step, or a class of a sequence "
      "(Hochreiter & Schmidhuber 1997)"}, 0, 2, {{128, 256}, 2}, sw__model_lstm},
    {{"gru", "embedding (of tokens), hidden size", "the same with GRU layers (Cho et al. 2014)"}, 0, 2, {{128, 256}, 2},
     sw__model_gru},
    {{"gpt", "layers x heads x width, or nano, micro, mini, 124m, 350m, 774m",
      "decoder of tokens [N, T] with tied embeddings (Radford et al. 2019), without biases; outputs: tokens"}, 2, 3,
     {{4, 4, 128}, 3}, sw__model_gpt},
    {{"transformer", "layers x heads x width x number of tokens (256)",
      "encoder (Vaswani et al. 2017), mean over time, linear: for tokens [N, T] or features [N, T, F], or rows"},
     0, 4, {{2, 4, 64, 256}, 4}, sw__model_transformer},
};

/* Sizes that have a name: minGPT's for small ones, GPT-2's parameter counts for its own. */
static const struct { const char *model, *name; sw__sizes sizes; } named_sizes[] = {
    {"gpt", "nano", {{3, 3, 48}, 3}},     {"gpt", "micro", {{4, 4, 128}, 3}},   {"gpt", "mini", {{6, 6, 192}, 3}},
    {"gpt", "124m", {{12, 12, 768}, 3}},  {"gpt", "350m", {{24, 16, 1024}, 3}}, {"gpt", "774m", {{36, 20, 1280}, 3}},
};

/* What models of a kind have in common; NULL ends a list. */
static const sw__build_fn per_pixel[] = {sw__model_unet, NULL}, /* outputs are channels of an image as large as the input */
    read_tokens[] = {sw__model_gpt, sw__model_lstm, sw__model_gru, sw__model_transformer, NULL},
    classify[] = {sw__model_transformer, NULL}, read_sequences[] = {sw__model_crnn, NULL};

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

static bool is_one_of(const char *spec, const sw__build_fn *kind)
{
    const struct model *const m = find_model(spec, strcspn(spec, ":"));
    while (m && *kind && *kind != m->build) kind++;
    return m && *kind;
}

bool sw__model_per_pixel(const char *spec) { return is_one_of(spec, per_pixel); }
bool sw__model_reads_tokens(const char *spec) { return is_one_of(spec, read_tokens); }
bool sw__model_classifies(const char *spec) { return is_one_of(spec, classify); }
bool sw__model_reads_sequences(const char *spec) { return is_one_of(spec, read_sequences); }

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

/* "256,128" or "4x4x128" into s, where the sizes that are not given stay; false if it is anything else. */
static bool parse_sizes(const char *text, sw__sizes *s)
{
    s->n = 0;
    for (;;) {
        char *end = NULL;
        const long long v = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : 0;
        if (v < 1 || v > 1 << 24 || s->n == SW__MAX_SIZES) return false;
        s->at[s->n++] = v;
        if (!*end) return true;
        if (*end != ',' && *end != 'x') return false;
        text = end + 1;
    }
}

static bool read_sizes(const struct model *m, const char *text, sw__sizes *s)
{
    for (size_t i = 0; i < SW_COUNT(named_sizes); i++) {
        if (strcmp(named_sizes[i].model, m->info.name) != 0 || strcmp(named_sizes[i].name, text) != 0) continue;
        *s = named_sizes[i].sizes;
        return true;
    }
    return parse_sizes(text, s) && (m->max_sizes == SW__MAX_SIZES || s->n <= m->max_sizes);
}

int64_t sw__model_vocabulary(const char *spec)
{
    const char *const colon = strchr(spec, ':');
    const struct model *const m = find_model(spec, strcspn(spec, ":"));
    sw__sizes s;
    if (!m || m->build != sw__model_transformer) return 0;
    s = m->defaults;
    if (colon && !read_sizes(m, colon + 1, &s)) return 0;
    return s.at[3];
}

static sw_t bad_sizes(sw_graph *g, const struct model *m, const char *spec)
{
    if (m->max_sizes == 0)
        return sw__graph_error(g, SW_ERR_ARGUMENT, "model '%s': nothing comes after %s, not even a colon", spec,
                               m->info.name);
    if (m->max_sizes == 1)
        return sw__graph_error(g, SW_ERR_ARGUMENT, "model '%s': after the colon comes the %s: one positive number",
                               spec, m->info.arguments);
    if (m->max_sizes < SW__MAX_SIZES)
        return sw__graph_error(g, SW_ERR_ARGUMENT, "model '%s': after the colon come %s: up to %d positive numbers", spec,
                               m->info.arguments, m->max_sizes);
    return sw__graph_error(g, SW_ERR_ARGUMENT, "model '%s': after the colon come 1 to 16 positive numbers, like "
                           "64,128: %s", spec, m->info.arguments);
}

static sw_t bad_input(const struct model *m, sw_t x)
{
    char text[SW__TEXT_BYTES];
    return sw__graph_error(x.graph, SW_ERR_SHAPE, "model '%s' takes %s, but x is %s", m->info.name,
                           m->input_rank == 4 ? "images [N, C, H, W]" : "tokens [N, T] of i64 or i32",
                           sw__value_text(x.graph, x.id, text));
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
    if (colon && !read_sizes(m, colon + 1, &s)) return bad_sizes(x.graph, m, spec);
    const bool tokens = sw_type(x) == SW_I64 || sw_type(x) == SW_I32;
    if (m->input_rank && (sw_rank(x) != m->input_rank || (m->input_rank == 2 && !tokens))) return bad_input(m, x);
    if (outputs < 1)
        return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "model '%s': %lld outputs: 1 or more", spec, (long long)outputs);
    // cppcheck-suppress returnDanglingLifetime ; sw_t is a value: it keeps no pointer to the sizes
    return m->build(x, &s, outputs);
}
