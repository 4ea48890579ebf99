/* layers_recurrent.c: LSTM, GRU and RNN as layers: several, in both directions, with PyTorch's names of parameters. As
 * layers.c; each layer and direction is one op (graph/ops_recurrent.c) behind one product for the input's part. */
#include "nn/layers.h"

#include <math.h>
#include <stdio.h>

typedef enum cell { RNN, GRU, LSTM } cell;

static const struct {
    const char *name;
    int gates;
} cells[] = { [RNN] = { "rnn", 1 }, [GRU] = { "gru", 3 }, [LSTM] = { "lstm", 4 } };

/* A layer as it is built: what its directions have in common. */
typedef struct stack {
    sw_graph *g;
    cell cell;
    const sw_recurrent_layer_options *o;
    sw__layer_name name;
    int64_t batch, hidden, state; /* state: hidden, or the projection's size */
    int layers, directions;
} stack;

static const char *text_of(sw_t x, char *buf, size_t size)
{
    return sw__shape_text(sw__node_of(x), buf, size);
}

static const char *given_name(const sw_recurrent_layer_options *o)
{
    return o->name ? o->name : "";
}

/* ---- what does not fit ------------------------------------------------------------------------------------------- */

static bool numbers_fit(const stack *s, sw_t x)
{
    const sw_recurrent_layer_options *const o = s->o;
    const char *const kind = cells[s->cell].name;
    char text[128];
    if (sw_rank(x) != 3 || !sw__dtype_is_float(sw_type(x))) {
        sw__graph_error(s->g, SW_ERR_SHAPE,
                        "%s '%s': x is %s: it takes [batch, time, features] of a floating-point type", kind,
                        given_name(o), text_of(x, text, sizeof text));
    } else if (o->features < 1 || o->layers < 0 || o->layers > 64 || !(o->dropout >= 0 && o->dropout < 1)) {
        sw__graph_error(s->g, SW_ERR_ARGUMENT,
                        "%s '%s': %lld features, %d layers, dropout %g: at least 1 feature, 0 (which is "
                        "1) to 64 layers, dropout in [0, 1)",
                        kind, given_name(o), (long long)o->features, o->layers, o->dropout);
    } else if (s->cell != LSTM && (o->proj != 0 || o->c0.graph || o->c_n)) {
        sw__graph_error(s->g, SW_ERR_ARGUMENT, "%s '%s': proj, c0 and c_n are for lstm", kind, given_name(o));
    } else if (o->proj < 0 || o->proj >= o->features) {
        sw__graph_error(s->g, SW_ERR_ARGUMENT,
                        "%s '%s': a projection to %lld of %lld features: it must be smaller (0: none)", kind,
                        given_name(o), (long long)o->proj, (long long)o->features);
    } else if (o->relu && s->cell != RNN) {
        sw__graph_error(s->g, SW_ERR_ARGUMENT, "%s '%s': relu is for rnn", kind, given_name(o));
    }
    return s->g->status == SW_OK;
}

static bool shape_fits(const stack *s, const char *what, sw_t v, sw_dtype type, int rank, const int64_t *dim)
{
    if (!v.graph) return true; /* not given */
    if (!sw_valid(v)) return false;
    bool fits = sw_rank(v) == rank && (sw_type(v) == type || (type == SW_I64 && sw_type(v) == SW_I32));
    for (int i = 0; fits && i < rank; i++) fits = sw_dim(v, i) == dim[i];
    if (fits) return true;
    char text[128];
    sw__node want = {.dtype = (uint8_t)type, .rank = (uint8_t)rank};
    char wanted[128];
    memcpy(want.dim, dim, (size_t)rank * sizeof *dim);
    sw__graph_error(s->g, SW_ERR_SHAPE, "%s '%s': %s is %s: for this input, %d layer%s and %s it must be %s",
                    cells[s->cell].name, given_name(s->o), what, text_of(v, text, sizeof text), s->layers,
                    s->layers == 1 ? "" : "s", s->directions == 2 ? "two directions" : "one direction",
                    sw__shape_text(&want, wanted, sizeof wanted));
    return false;
}

static bool states_fit(const stack *s, sw_t x)
{
    const int64_t rows = (int64_t)s->layers * s->directions;
    const int64_t h[3] = {rows, s->batch, s->state}, c[3] = {rows, s->batch, s->hidden};
    return shape_fits(s, "h0", s->o->h0, sw_type(x), 3, h) && shape_fits(s, "c0", s->o->c0, sw_type(x), 3, c) &&
           shape_fits(s, "lengths", s->o->lengths, SW_I64, 1, &s->batch);
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* "weight_ih_l0_reverse" */
static sw_t param(const stack *s, const char *what, int layer, int direction, int rank, const int64_t *shape)
{
    char part[64];
    const double k = 1 / sqrt((double)s->hidden);
    snprintf(part, sizeof part, "%s_l%d%s", what, layer, direction ? "_reverse" : "");
    sw_init init = s->o->weight_init;
    if (init.kind == SW_INIT_ZEROS) init = (sw_init){.kind = SW_INIT_UNIFORM, .a = -k, .b = k};
    return sw__layer_param(s->g, &s->name, part, rank, shape, init);
}

/* Row `index` of initial states [rows, B, N]. */
static sw_t row_of(sw_t states, int index)
{
    if (!sw_valid(states)) return SW_NONE;
    return sw_reshape(sw_narrow(states, 0, index, 1), 2, (int64_t[]){sw_dim(states, 1), sw_dim(states, 2)});
}

/* One layer in one direction; its last states as [1, B, N]. */
static sw_t one_direction(const stack *s, sw_t x, int layer, int direction, sw_t *h_n, sw_t *c_n)
{
    const int64_t rows = cells[s->cell].gates * s->hidden;
    const sw_t w_ih = param(s, "weight_ih", layer, direction, 2, (int64_t[]){rows, sw_dim(x, 2)});
    const sw_t w_hh = param(s, "weight_hh", layer, direction, 2, (int64_t[]){rows, s->state});
    const sw_t b_ih = s->o->no_bias ? SW_NONE : param(s, "bias_ih", layer, direction, 1, &rows);
    const sw_t b_hh = s->o->no_bias ? SW_NONE : param(s, "bias_hh", layer, direction, 1, &rows);
    const int row = layer * s->directions + direction;
    sw_recurrent_options o = {.gates = sw_linear_op(x, w_ih, b_ih), .weight_hh = w_hh, .bias_hh = b_hh,
                              .h0 = row_of(s->o->h0, row), .c0 = row_of(s->o->c0, row), .lengths = s->o->lengths,
                              .reverse = direction == 1};
    if (s->o->proj) o.weight_hr = param(s, "weight_hr", layer, direction, 2, (int64_t[]){s->state, s->hidden});
    sw_t h, c = SW_NONE;
    const sw_t y = s->cell == LSTM  ? sw_lstm_op(&o, &h, &c)
                   : s->cell == GRU ? sw_gru_op(&o, &h)
                                    : sw_rnn_op(&o, s->o->relu, &h);
    *h_n = sw_reshape(h, 3, (int64_t[]){1, s->batch, s->state});
    if (s->cell == LSTM) *c_n = sw_reshape(c, 3, (int64_t[]){1, s->batch, s->hidden});
    return y;
}

/* All layers: each one's output is the next one's input. */
static sw_t build(const stack *s, sw_t x)
{
    enum { MOST = 2 * 64 };
    sw_t h_n[MOST], c_n[MOST], y[2];
    int n = 0;
    for (int layer = 0; layer < s->layers && sw_valid(x); layer++) {
        if (layer > 0 && s->o->dropout > 0) x = sw_dropout(x, s->o->dropout);
        for (int d = 0; d < s->directions; d++, n++) y[d] = one_direction(s, x, layer, d, &h_n[n], &c_n[n]);
        x = s->directions == 2 ? sw_concat(y, 2, 2) : y[0];
    }
    if (!sw_valid(x)) return x;
    if (s->o->h_n) *s->o->h_n = sw_concat(h_n, n, 0);
    if (s->o->c_n) *s->o->c_n = sw_concat(c_n, n, 0);
    return x;
}

static sw_t layer(cell kind, sw_t x, const sw_recurrent_layer_options *o)
{
    if (o->h_n) *o->h_n = (sw_t){x.graph, 0};
    if (o->c_n) *o->c_n = (sw_t){x.graph, 0};
    if (!sw_valid(x)) return SW_NONE;
    stack s = {.g = x.graph, .cell = kind, .o = o, .hidden = o->features, .state = o->proj ? o->proj : o->features,
               .layers = o->layers ? o->layers : 1, .directions = o->bidirectional ? 2 : 1};
    if (!numbers_fit(&s, x)) return SW_NONE;
    s.batch = sw_dim(x, 0);
    if (!states_fit(&s, x)) return SW_NONE;
    s.name = sw__name_layer(s.g, o->name, cells[kind].name, "weight_ih_l0");
    return sw__layer_finish(s.g, build(&s, x), &s.name);
}

sw_t sw_lstm_with(sw_t x, sw_recurrent_layer_options o)
{
    return layer(LSTM, x, &o);
}

sw_t sw_gru_with(sw_t x, sw_recurrent_layer_options o)
{
    return layer(GRU, x, &o);
}

sw_t sw_rnn_with(sw_t x, sw_recurrent_layer_options o)
{
    return layer(RNN, x, &o);
}
