/* layer_name.c: how a layer names its variables and itself, and PyTorch's default initial values. Declared in layers.h. */
#include "nn/layers.h"
#include <stdio.h>

/* The lowest number that no variable "scope.kindN.part" has. Variables never go, so counting goes on where it ended for this
 * scope, kind and part: told by the name with 0, which is nobody's. */
static int count_layer(sw_graph *g, const char *kind, const char *part)
{
    char full[3 * SW__LAYER_NAME];
    const char *const scope = g->scope.len ? g->scope.s : "";
    snprintf(full, sizeof full, "%s%s0.%s", scope, kind, part);
    uint32_t from = 0, var;
    const bool known = sw__names_find(&g->counted, full, &from);
    char *const key = known ? full : sw__arena_strdup(&g->arena, full);
    uint32_t i = SW_MAX(from, 1u);
    for (;; i++) {
        char name[3 * SW__LAYER_NAME];
        snprintf(name, sizeof name, "%s%s%u.%s", scope, kind, i, part);
        if (!sw__var_find(g, name, &var)) break;
    }
    if (key == NULL || sw__names_put(&g->counted, key, i) != SW_OK)
        sw__graph_error(g, SW_ERR_MEMORY, "out of memory: the name of a layer");
    return (int)i;
}

/* part: the variable by which to see whether a counted name is in use. */
sw__layer_name sw__name_layer(sw_graph *g, const char *given, const char *kind, const char *part)
{
    sw__layer_name n;
    if (given)
        snprintf(n.base, sizeof n.base, "%s", given);
    else
        snprintf(n.base, sizeof n.base, "%s%d", kind, count_layer(g, kind, part));
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
