/* models_sequence.c: networks for sequences: the gpt, a transformer encoder. Each reads like its paper's table;
 * models.c has the table of names. */
#include "nn/models.h"
#include "nn/layers.h"
#include <math.h>
#include <stdio.h>

/* ---- gpt: Radford et al. 2019 (GPT-2) without biases in linear layers, exact GELU -------------------------------- */

static sw_t weights(sw_t x, const char *name, int64_t features, double deviation)
{
    const sw_init init = {.kind = SW_INIT_NORMAL, .a = 0, .b = deviation};
    return sw_linear(x, features, .no_bias = true, .weight_init = init, .name = name);
}

/* layers x heads x width, in words if that is not what came. */
static bool three_sizes(sw_t x, const char *model, const sw__sizes *s)
{
    if (s->n >= 3 && s->at[2] % s->at[1] == 0) return true;
    char given[64] = "";
    for (int i = 0; i < s->n && i < 3; i++)
        snprintf(given + strlen(given), sizeof given - strlen(given), "%s%lld", i ? "x" : "", (long long)s->at[i]);
    sw__graph_error(x.graph, SW_ERR_ARGUMENT, "model '%s:%s': after the colon come layers x heads x width, "
                    "like 4x4x128: the heads must divide the width", model, given);
    return false;
}

/* What is added to the stream starts smaller the more layers add to it: `added`. */
static sw_t gpt_block(sw_t x, int64_t heads, double added)
{
    const int64_t width = sw_dim(x, 2);
    sw_t h = weights(sw_layer_norm(x, .name = "ln_1"), "attn.c_attn", 3 * width, 0.02);
    x = sw_add(x, weights(sw__attend_packed(h, heads, true, SW_NONE), "attn.c_proj", width, added));
    h = sw_gelu(weights(sw_layer_norm(x, .name = "ln_2"), "mlp.c_fc", 4 * width, 0.02));
    return sw_add(x, weights(h, "mlp.c_proj", width, added));
}

/* x [B, T] tokens -> logits [B, T, outputs]; the context is T. The logits' matrix is the token embedding's. */
sw_t sw__model_gpt(sw_t x, const sw__sizes *s, int64_t outputs)
{
    if (!three_sizes(x, "gpt", s)) return SW_NONE;
    sw_graph *const g = x.graph;
    const int64_t layers = s->at[0], heads = s->at[1], width = s->at[2];
    const sw_init normal = {.kind = SW_INIT_NORMAL, .a = 0, .b = 0.02};
    const sw_t wte = sw_param(g, "wte.weight", 2, (int64_t[]){outputs, width}, normal);
    sw_t h = sw_position_embedding(sw_named(sw_embedding_op(wte, x), "wte"), .weight_init = normal, .name = "wpe");
    for (int64_t i = 0; i < layers && sw_valid(h); i++) {
        sw_scope_push(g, "h.%d", (int)i);
        h = gpt_block(h, heads, 0.02 / sqrt(2 * (double)layers));
        sw_scope_pop(g);
    }
    return sw_named(sw_linear_op(sw_layer_norm(h, .name = "ln_f"), wte, SW_NONE), "logits");
}

/* ---- transformer: the encoder of Vaswani et al. 2017, norms after the sums, as a classifier ---------------------- */

sw_t sw__model_rows(sw_t x)
{
    if (!sw_valid(x) || sw_rank(x) != 4 || sw_dim(x, 1) != 1) return x;
    return sw_reshape(x, 3, (int64_t[]){sw_dim(x, 0), sw_dim(x, 2), sw_dim(x, 3)});
}

/* Tokens [B, T] are embedded (the fourth size is their number, 256: bytes), features [B, T, F] go through a linear
 * layer. */
static sw_t embed(sw_t x, int64_t width, int64_t vocabulary)
{
    if (sw_rank(x) == 2) return sw_embedding(x, width, vocabulary, .name = "embedding");
    return sw_linear(x, width, .name = "embedding");
}

sw_t sw__model_transformer(sw_t x, const sw__sizes *s, int64_t outputs)
{
    if (!three_sizes(x, "transformer", s)) return SW_NONE;
    const int64_t layers = s->at[0], heads = s->at[1], width = s->at[2];
    x = sw__model_rows(x);
    if (sw_valid(x) && (sw_rank(x) < 2 || sw_rank(x) > 3)) {
        char text[SW__TEXT_BYTES];
        return sw__graph_error(x.graph, SW_ERR_SHAPE,
                               "model 'transformer' takes tokens [N, T] or features [N, T, F], but x is %s",
                               sw__value_text(x.graph, x.id, text));
    }
    sw_t h = sw_sinusoidal_positions(embed(x, width, s->at[3]), 0);
    for (int64_t i = 0; i < layers && sw_valid(h); i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d", (int)i);
        h = sw_encoder_layer(h, heads, .name = name);
    }
    return sw_linear(sw_mean(h, SW_AXIS(1), false), outputs, .name = "fc");
}
