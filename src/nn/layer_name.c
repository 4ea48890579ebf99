/* layer_name.c: how a layer names its variables and itself, and PyTorch's default initial values. Declared in layers.h. */
#include "nn/layers.h"
#include <stdio.h>

/* Does a variable "scope.base.part" exist? */
static bool taken(const sw_graph *g, const char *base, const char *part)
{
    char full[3 * SW__LAYER_NAME];
    snprintf(full, sizeof full, "%s%s.%s", g->scope.len ? g->scope.s : "", base, part);
    for (uint32_t i = 0; i < g->n_vars; i++)
        if (strcmp(g->vars[i].name, full) == 0) return true;
    return false;
}

/* part: the variable by which to see whether a counted name is in use. */
sw__layer_name sw__name_layer(const sw_graph *g, const char *given, const char *kind, const char *part)
{
    sw__layer_name n;
    if (given) {
        snprintf(n.base, sizeof n.base, "%s", given);
        return n;
    }
    int i = 1;
    do snprintf(n.base, sizeof n.base, "%s%d", kind, i++);
    while (taken(g, n.base, part));
    return n;
}

/* Names the layer's result; an error that its ops have just met (x was valid) is told with the layer's name in front. */
sw_t sw__layer_finish(sw_graph *g, sw_t y, const sw__layer_name *n)
{
    char quoted[SW__LAYER_NAME + 1]; /* a message that names one of its variables names the layer */
    snprintf(quoted, sizeof quoted, "'%s", n->base);
    if (!sw_valid(y) && g->status != SW_OK && !strstr(g->message, quoted)) {
        char message[sizeof g->message];
        snprintf(message, sizeof message, "%.900s", g->message);
        snprintf(g->message, sizeof g->message, "layer '%.100s': %.900s", n->base, message);
    }
    return sw_named(y, n->base);
}

sw_t sw__layer_variable(sw_graph *g, const sw__layer_name *n, const char *part, sw_var_kind kind, sw_dtype type, int rank,
                        const int64_t *shape, sw_init init)
{
    char full[2 * SW__LAYER_NAME];
    snprintf(full, sizeof full, "%s.%s", n->base, part);
    return sw_variable(g, full, kind, type, rank, shape, init);
}

sw_t sw__layer_param(sw_graph *g, const sw__layer_name *n, const char *part, int rank, const int64_t *shape, sw_init init)
{
    return sw__layer_variable(g, n, part, SW_VAR_PARAM, SW_F32, rank, shape, init);
}

/* PyTorch's default for linear and convolution, also for their biases (whose fan_in is the weight's). */
sw_init sw__fan_in_init(sw_init given, int64_t fan_in)
{
    if (given.kind == SW_INIT_ZEROS) given = (sw_init){.kind = SW_INIT_FAN_IN_UNIFORM, .fan = fan_in};
    return given;
}
