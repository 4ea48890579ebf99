/* layers.c: a network written down as a list of layers, in a run file's `layers:` or as JSON. On nn: every line of the list is
 * one call of swoop/nn.h; a new layer is a row of the table here. */
#include "io/layers.h"
#include "graph/graph.h"
#include "swoop/io.h"
#include "swoop/nn.h"
#include <stdio.h>

const char *sw_model_layers_of(const char *model)
{
    const size_t n = strlen(SW_LAYERS_PREFIX);
    return model && strncmp(model, SW_LAYERS_PREFIX, n) == 0 ? model + n : NULL;
}

#ifdef SWOOP_HAVE_JSON
#include <jansson.h>

#define MOST_DEPTH 32

/* One layer as it is written: its options, and where it stands, for messages ("layer 3 (conv2d)"). */
typedef struct line {
    sw_graph *g;
    const json_t *options; /* an object, or NULL: none */
    const json_t *main;    /* the value right after the name, or NULL */
    const char *name, *first;
    char place[96];
    int64_t outputs;
    int depth;
} line;

typedef sw_t (*build_fn)(line *l, sw_t x);
typedef struct layer {
    const char *name;
    const char *first;   /* the option that a value right after the name stands for; "": takes none */
    const char *options; /* all others, with spaces between */
    build_fn build;
    sw_t (*plain)(sw_t x); /* instead of build: a function of x alone */
} layer;

static sw_t build_list(const json_t *list, sw_t x, line *outer, const char *place);

static sw_t wrong(const line *l, const char *fmt, ...) SW_PRINTF(2, 3);
static sw_t wrong(const line *l, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return sw__graph_error(l->g, SW_ERR_ARGUMENT, "%s%s%s", l->place, *l->place ? ": " : "", text);
}

/* ---- options ------------------------------------------------------------------------------------------------------- */

static const json_t *option(const line *l, const char *name)
{
    if (l->main && strcmp(name, l->first) == 0) return l->main;
    return json_object_get(l->options, name);
}

/* A whole number; "outputs" stands for what the data asks for. */
static int64_t whole(const line *l, const char *name, int64_t otherwise)
{
    const json_t *const v = option(l, name);
    if (!v) return otherwise;
    if (json_is_integer(v)) return json_integer_value(v);
    if (json_is_string(v) && strcmp(json_string_value(v), "outputs") == 0) return l->outputs;
    wrong(l, "%s must be a whole number%s", name, strcmp(name, l->first) == 0 ? ", or outputs for as many as the data has classes" : "");
    return otherwise;
}

/* The same where 0 makes no sense; in C it stands for the default. */
static int64_t counted(const line *l, const char *name, int64_t otherwise)
{
    const int64_t n = whole(l, name, otherwise);
    if (option(l, name) && n < 1) wrong(l, "%s is %lld, and must be at least 1", name, (long long)n);
    return n;
}

static double number(const line *l, const char *name, double otherwise)
{
    const json_t *const v = option(l, name);
    if (!v) return otherwise;
    if (json_is_number(v)) return json_number_value(v);
    wrong(l, "%s must be a number", name);
    return otherwise;
}

/* A norm's; 0: its own default. */
static double epsilon(const line *l)
{
    const double eps = number(l, "eps", 0);
    if (option(l, "eps") && !(eps > 0)) wrong(l, "eps is %g, and must be above 0", eps);
    return eps;
}

static bool flag(const line *l, const char *name, bool otherwise)
{
    const json_t *const v = option(l, name);
    if (!v) return otherwise;
    if (json_is_boolean(v)) return json_is_true(v);
    wrong(l, "%s must be true or false", name);
    return otherwise;
}

static const char *text(const line *l, const char *name)
{
    const json_t *const v = option(l, name);
    if (!v) return NULL;
    if (json_is_string(v)) return json_string_value(v);
    wrong(l, "%s must be a word", name);
    return NULL;
}

/* ---- layers -------------------------------------------------------------------------------------------------------- */

static sw_t build_linear(line *l, sw_t x)
{
    return sw_linear(x, whole(l, "features", 0), .no_bias = !flag(l, "bias", true), .name = text(l, "name"));
}

static sw_t build_embedding(line *l, sw_t x)
{
    return sw_embedding(x, whole(l, "features", 0), whole(l, "vocabulary", l->outputs), .name = text(l, "name"));
}

static sw_t build_conv2d(line *l, sw_t x)
{
    return sw_conv2d(x, whole(l, "channels", 0), .kernel = counted(l, "kernel", 3), .stride = counted(l, "stride", 1),
                     .pad = whole(l, "pad", 0), .dilation = counted(l, "dilation", 1),
                     .groups = counted(l, "groups", 1), .no_bias = !flag(l, "bias", true), .name = text(l, "name"));
}

static sw_t build_conv(line *l, sw_t x)
{
    static const struct { const char *name; sw_t (*build)(sw_t, sw_conv_layer_options); } kinds[] = {
        {"conv1d", sw_conv1d_with}, {"conv3d", sw_conv3d_with}, {"conv_transpose1d", sw_conv_transpose1d_with},
        {"conv_transpose2d", sw_conv_transpose2d_with}, {"conv_transpose3d", sw_conv_transpose3d_with},
    };
    const sw_conv_layer_options o = {
        .channels = whole(l, "channels", 0), .kernel = counted(l, "kernel", 3), .stride = counted(l, "stride", 1),
        .pad = whole(l, "pad", 0), .dilation = counted(l, "dilation", 1), .groups = counted(l, "groups", 1),
        .output_padding = whole(l, "output_padding", 0), .no_bias = !flag(l, "bias", true), .name = text(l, "name"),
    };
    for (size_t i = 0; i < SW_COUNT(kinds); i++)
        if (strcmp(l->name, kinds[i].name) == 0) return kinds[i].build(x, o);
    return SW_NONE;
}

static sw_t build_pool(line *l, sw_t x)
{
    const sw_pool2d_options o = {.kernel = counted(l, "kernel", 2), .stride = counted(l, "stride", 0),
                                 .pad = whole(l, "pad", 0)};
    return strcmp(l->name, "max_pool2d") == 0 ? sw_max_pool2d_with(x, o) : sw_avg_pool2d_with(x, o);
}

static sw_t build_norm(line *l, sw_t x)
{
    const double momentum = number(l, "momentum", 0);
    if (option(l, "momentum") && !(momentum > 0 && momentum <= 1))
        return wrong(l, "momentum is %g, and must be above 0, at most 1", momentum);
    const sw_norm_options o = {.name = text(l, "name"), .eps = epsilon(l), .momentum = momentum};
    if (strcmp(l->name, "batch_norm") == 0) return sw_batch_norm_with(x, o);
    return strcmp(l->name, "layer_norm") == 0 ? sw_layer_norm_with(x, o) : sw_rms_norm_with(x, o);
}

static sw_t build_group_norm(line *l, sw_t x)
{
    return sw_group_norm(x, counted(l, "groups", 0), .name = text(l, "name"), .eps = epsilon(l));
}

static sw_t build_instance_norm(line *l, sw_t x)
{
    return sw_instance_norm(x, .name = text(l, "name"), .eps = epsilon(l), .affine = flag(l, "affine", false));
}

static sw_t build_dropout(line *l, sw_t x)
{
    return sw_dropout(x, number(l, "p", 0.5));
}

static sw_t build_leaky_relu(line *l, sw_t x)
{
    return sw_leaky_relu(x, number(l, "slope", 0.01));
}

static sw_t build_elu(line *l, sw_t x)
{
    return sw_elu(x, number(l, "alpha", 1));
}

static sw_t build_softmax(line *l, sw_t x)
{
    return sw_softmax(x, (int)SW_MAX(INT32_MIN, SW_MIN(INT32_MAX, whole(l, "axis", -1))));
}

static sw_t build_mean(line *l, sw_t x)
{
    const int64_t axis = whole(l, "axis", 1), rank = sw_rank(x);
    if (axis < -rank || axis >= rank) return wrong(l, "there is no axis %lld of %lld", (long long)axis, (long long)rank);
    return sw_mean(x, SW_AXIS(axis < 0 ? axis + rank : axis), false);
}

/* shape without the batch; one entry may be -1 */
static sw_t build_reshape(line *l, sw_t x)
{
    const json_t *const v = option(l, "shape");
    const size_t n = json_array_size(v);
    int64_t shape[SW_MAX_RANK] = {sw_dim(x, 0)};
    if (n < 1 || n >= SW_MAX_RANK) return wrong(l, "shape must be a list of 1 to %d sizes, without the batch's", SW_MAX_RANK - 1);
    for (size_t i = 0; i < n; i++) {
        if (!json_is_integer(json_array_get(v, i))) return wrong(l, "shape must be a list of whole numbers");
        shape[i + 1] = json_integer_value(json_array_get(v, i));
    }
    return sw_reshape(x, (int)n + 1, shape);
}

static sw_t build_transpose(line *l, sw_t x)
{
    const json_t *const v = option(l, "axes");
    if (json_array_size(v) != 2 || !json_is_integer(json_array_get(v, 0)) || !json_is_integer(json_array_get(v, 1)))
        return wrong(l, "axes must be the two to be swapped, such as [1, 2]");
    return sw_transpose(x, (int)json_integer_value(json_array_get(v, 0)), (int)json_integer_value(json_array_get(v, 1)));
}

/* x plus what the layers inside make of it; shortcut: what x goes through first */
static sw_t build_residual(line *l, sw_t x)
{
    const json_t *const inner = option(l, "layers"), *const shortcut = option(l, "shortcut");
    const sw_t y = build_list(inner, x, l, "layers");
    const sw_t from = shortcut ? build_list(shortcut, x, l, "shortcut") : x;
    return sw_add(y, from);
}

/* what several lists make of the same x, side by side along an axis */
static sw_t build_concat(line *l, sw_t x)
{
    const json_t *const branches = option(l, "branches");
    sw_t parts[16];
    const size_t n = json_array_size(branches);
    if (n < 1 || n > SW_COUNT(parts)) return wrong(l, "branches must be a list of 1 to %d lists of layers", (int)SW_COUNT(parts));
    for (size_t i = 0; i < n; i++) {
        char place[32];
        snprintf(place, sizeof place, "branch %d", (int)i + 1);
        parts[i] = build_list(json_array_get(branches, i), x, l, place);
    }
    return sw_concat(parts, (int)n, (int)SW_MAX(INT32_MIN, SW_MIN(INT32_MAX, whole(l, "axis", 1))));
}

/* layers whose parameters get "NAME." in front */
static sw_t build_scope(line *l, sw_t x)
{
    const char *const name = text(l, "name");
    if (!name || !*name) return wrong(l, "name is missing");
    sw_scope_push(l->g, "%s", name);
    const sw_t y = build_list(option(l, "layers"), x, l, "layers");
    sw_scope_pop(l->g);
    return y;
}

#define CONV "kernel stride pad dilation groups bias name"

static const layer layers[] = {
    {"linear", "features", "bias name", build_linear, NULL},
    {"embedding", "features", "vocabulary name", build_embedding, NULL},
    {"conv1d", "channels", CONV, build_conv, NULL},
    {"conv2d", "channels", CONV, build_conv2d, NULL},
    {"conv3d", "channels", CONV, build_conv, NULL},
    {"conv_transpose1d", "channels", CONV " output_padding", build_conv, NULL},
    {"conv_transpose2d", "channels", CONV " output_padding", build_conv, NULL},
    {"conv_transpose3d", "channels", CONV " output_padding", build_conv, NULL},
    {"max_pool2d", "kernel", "stride pad", build_pool, NULL},
    {"avg_pool2d", "kernel", "stride pad", build_pool, NULL},
    {"global_avg_pool2d", "", "", NULL, sw_global_avg_pool2d},
    {"batch_norm", "", "name eps momentum", build_norm, NULL},
    {"layer_norm", "", "name eps", build_norm, NULL},
    {"rms_norm", "", "name eps", build_norm, NULL},
    {"group_norm", "groups", "name eps", build_group_norm, NULL},
    {"instance_norm", "", "name eps affine", build_instance_norm, NULL},
    {"dropout", "p", "", build_dropout, NULL},
    {"flatten", "", "", NULL, sw_flatten},
    {"reshape", "shape", "", build_reshape, NULL},
    {"transpose", "axes", "", build_transpose, NULL},
    {"mean", "axis", "", build_mean, NULL},
    {"relu", "", "", NULL, sw_relu},
    {"relu6", "", "", NULL, sw_relu6},
    {"leaky_relu", "slope", "", build_leaky_relu, NULL},
    {"elu", "alpha", "", build_elu, NULL},
    {"selu", "", "", NULL, sw_selu},
    {"gelu", "", "", NULL, sw_gelu},
    {"gelu_tanh", "", "", NULL, sw_gelu_tanh},
    {"silu", "", "", NULL, sw_silu},
    {"mish", "", "", NULL, sw_mish},
    {"softplus", "", "", NULL, sw_softplus},
    {"softsign", "", "", NULL, sw_softsign},
    {"sigmoid", "", "", NULL, sw_sigmoid},
    {"tanh", "", "", NULL, sw_tanh},
    {"hard_sigmoid", "", "", NULL, sw_hard_sigmoid},
    {"hard_swish", "", "", NULL, sw_hard_swish},
    {"softmax", "axis", "", build_softmax, NULL},
    {"residual", "layers", "shortcut", build_residual, NULL},
    {"concat", "branches", "axis", build_concat, NULL},
    {"scope", "name", "layers", build_scope, NULL},
};

/* ---- the list ------------------------------------------------------------------------------------------------------ */

static const layer *find_layer(const line *l)
{
    const char *names[SW_COUNT(layers)];
    for (size_t i = 0; i < SW_COUNT(layers); i++) {
        if (strcmp(layers[i].name, l->name) == 0) return &layers[i];
        names[i] = layers[i].name;
    }
    const char *const near = sw__nearest(l->name, names, SW_COUNT(names));
    wrong(l, "there is no such layer%s%s%s", near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return NULL;
}

/* Is `name` the first option or one of the words in row->options? */
static bool has_option(const layer *row, const char *name)
{
    const size_t n = strlen(name);
    if (*row->first && strcmp(row->first, name) == 0) return true;
    for (const char *p = row->options; *p;) {
        const size_t len = strcspn(p, " ");
        if (len == n && strncmp(p, name, n) == 0) return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

static bool check_options(const line *l, const layer *row)
{
    const char *key;
    json_t *value;
    if (l->main && !*row->first) {
        wrong(l, "it takes no value%s%s", *row->options ? ", but options: " : "", row->options);
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)l->options, key, value) {
        if (has_option(row, key)) continue;
        wrong(l, "it has no option '%.60s'; it takes %s%s%s", key, *row->first ? row->first : "", *row->first && *row->options ? " " : "",
              *row->first || *row->options ? row->options : "none");
        return false;
    }
    return true;
}

/* "relu", {"linear": 10} or {"conv2d": {"channels": 8, "kernel": 3}} */
static bool read_line(const json_t *v, size_t i, const line *outer, const char *where, line *l)
{
    *l = (line){.g = outer->g, .outputs = outer->outputs, .depth = outer->depth + 1};
    const json_t *value = NULL;
    if (json_is_string(v)) {
        l->name = json_string_value(v);
    } else if (json_object_size(v) == 1) {
        void *const it = json_object_iter((json_t *)(uintptr_t)v);
        l->name = json_object_iter_key(it);
        value = json_object_iter_value(it);
    }
    char inside[48] = "";
    if (*outer->place) snprintf(inside, sizeof inside, "%.30s, %.12s: ", outer->place, where);
    snprintf(l->place, sizeof l->place, "%slayer %d (%.24s)", inside, (int)i + 1, l->name ? l->name : "?");
    if (!l->name) {
        wrong(l, "a layer is a name, or a name with its options: \"relu\", {\"linear\": 10}");
        return false;
    }
    if (json_is_object(value))
        l->options = value;
    else if (value && !json_is_null(value))
        l->main = value;
    return true;
}

/* In front of what an op has complained of: which line of the list asked for it. The innermost has said it already. */
static void say_where(const line *l)
{
    char message[sizeof l->g->message];
    const bool said = strncmp(l->g->message, "layer ", 6) == 0 && l->g->message[6] >= '0' && l->g->message[6] <= '9';
    if (l->g->status == SW_OK || said) return;
    snprintf(message, sizeof message, "%s: %.900s", l->place, l->g->message);
    memcpy(l->g->message, message, sizeof message);
}

static sw_t build_list(const json_t *list, sw_t x, line *outer, const char *place)
{
    if (!sw_valid(x)) return SW_NONE;
    if (!json_is_array(list) || json_array_size(list) == 0) return wrong(outer, "%s must be a list of layers", place);
    if (outer->depth > MOST_DEPTH) return wrong(outer, "lists of layers are nested more than %d deep", MOST_DEPTH);
    for (size_t i = 0; i < json_array_size(list) && sw_valid(x); i++) {
        line l;
        if (!read_line(json_array_get(list, i), i, outer, place, &l)) return SW_NONE;
        const layer *const row = find_layer(&l);
        if (!row) return SW_NONE;
        l.first = row->first;
        if (!check_options(&l, row)) return SW_NONE;
        x = row->build ? row->build(&l, x) : row->plain(x);
        if (!sw_valid(x)) say_where(&l);
    }
    return outer->g->status == SW_OK ? x : SW_NONE;
}

sw_t sw_model_layers(const char *json, sw_t x, int64_t outputs)
{
    if (!sw_valid(x)) return SW_NONE;
    json_error_t error;
    json_t *const list = json ? json_loads(json, JSON_REJECT_DUPLICATES, &error) : NULL;
    line top = {.g = x.graph, .outputs = outputs, .first = ""};
    if (!list)
        return sw__graph_error(x.graph, SW_ERR_ARGUMENT, "layers: %s", json ? error.text : "there is no text");
    const sw_t y = build_list(list, x, &top, "layers");
    json_decref(list);
    return y;
}

bool sw__layers_read_tokens(const char *model)
{
    const char *const text = sw_model_layers_of(model);
    json_t *const list = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const json_t *const first = json_array_get(list, 0);
    const char *const name = json_is_string(first) ? json_string_value(first) : NULL;
    const bool reads = (name && strcmp(name, "embedding") == 0) || json_object_get(first, "embedding") != NULL;
    json_decref(list);
    return reads;
}
#else
bool sw__layers_read_tokens(const char *model)
{
    (void)model;
    return false;
}

sw_t sw_model_layers(const char *json, sw_t x, int64_t outputs)
{
    (void)json;
    (void)outputs;
    if (!sw_valid(x)) return SW_NONE;
    return sw__graph_error(x.graph, SW_ERR_UNSUPPORTED, "layers: swoop was built without JSON (jansson)");
}
#endif
