/* models_recurrent.c: recurrent networks that have a name: over tokens, the next one's logits at each step; over
 * sequences of features, classes by the last step. Rows of the table in models.c. */
#include "nn/models.h"

enum { LAYERS = 2 };

static sw_t layers_of(sw_t x, int64_t hidden, bool gru)
{
    return gru ? sw_gru(x, hidden, .layers = LAYERS, .name = "rnn")
               : sw_lstm(x, hidden, .layers = LAYERS, .name = "rnn");
}

/* Tokens [B, T]: emb, rnn, out: [B, T, V]; sizes: embedding and hidden, one number for both. Features [B, T, F],
 * an image's rows: rnn, out. */
static sw_t recurrent(sw_t x, const sw__sizes *s, int64_t outputs, bool gru)
{
    const char *const name = gru ? "gru" : "lstm";
    x = sw__model_rows(x);
    if (!sw_valid(x)) return x;
    const bool tokens = sw_rank(x) == 2 && (sw_type(x) == SW_I64 || sw_type(x) == SW_I32);
    char text[128];
    if (!tokens && (sw_rank(x) != 3 || !sw__dtype_is_float(sw_type(x)) || sw_dim(x, 1) < 1))
        return sw__graph_error(x.graph, SW_ERR_SHAPE,
                               "model '%s' takes tokens [batch, time] of an integer type, or features "
                               "[batch, time, features], not %s",
                               name, sw__shape_text(sw__node_of(x), text, sizeof text));
    const int64_t hidden = s->at[s->n - 1], steps = sw_dim(x, 1);
    if (tokens) {
        const sw_t e = sw_embedding(x, s->at[0], outputs, .name = "emb");
        return sw_linear(layers_of(e, hidden, gru), outputs, .name = "out");
    }
    const sw_t last = sw_narrow(layers_of(x, hidden, gru), 1, steps - 1, 1);
    return sw_linear(sw_reshape(last, 2, (int64_t[]){sw_dim(x, 0), hidden}), outputs, .name = "out");
}

sw_t sw__model_lstm(sw_t x, const sw__sizes *s, int64_t outputs)
{
    return recurrent(x, s, outputs, false);
}

sw_t sw__model_gru(sw_t x, const sw__sizes *s, int64_t outputs)
{
    return recurrent(x, s, outputs, true);
}
