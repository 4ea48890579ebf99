/* dropout.c: dropout of elements, of whole channels, and the one that keeps mean and variance. Random numbers come from
 * the counter-based generator: a stream number of its own for each, and a counter that each training run advances.
 * Beside layers.c. */
#include "nn/layers.h"
#include <math.h>

/* True with probability 1 - p, of this shape; a new one in each run. */
static sw_t keep_mask(sw_graph *g, double p, int rank, const int64_t *shape)
{
    const sw__layer_name name = sw__name_layer(g, NULL, "dropout", "counter");
    const sw_t counter = sw__layer_variable(g, &name, "counter", SW_VAR_STATE, SW_I64, 0, NULL, (sw_init){0});
    sw_assign(counter, sw_add(counter, sw_const(g, SW_I64, 1)));
    return sw_ge(sw_rand(g, counter, g->n_vars, rank, shape), sw_const(g, SW_F32, p));
}

/* Is there anything to drop? An impossible probability is an error. */
static bool drops(const char *what, sw_t x, double p, sw_t *y)
{
    *y = x;
    if (!sw_valid(x)) return false;
    if (p >= 0 && p < 1) return p > 0 && sw_graph_is_training(x.graph);
    char text[SW__TEXT_BYTES];
    *y = sw__graph_error(x.graph, SW_ERR_ARGUMENT, "%s of %s: probability %g is not in [0, 1)", what,
                         sw__value_text(x.graph, x.id, text), p);
    return false;
}

static void shape_of(sw_t x, int64_t shape[SW_MAX_RANK])
{
    for (int i = 0; i < SW_MAX_RANK; i++) shape[i] = i < sw_rank(x) ? sw_dim(x, i) : 1;
}

sw_t sw_dropout(sw_t x, double p)
{
    sw_t y;
    int64_t shape[SW_MAX_RANK];
    if (!drops("dropout", x, p, &y)) return y;
    shape_of(x, shape);
    const sw_t keep = keep_mask(x.graph, p, sw_rank(x), shape);
    return sw_where(keep, sw_mul_scalar(x, 1 / (1 - p)), sw_const(x.graph, sw_type(x), 0));
}

sw_t sw_dropout_channels(sw_t x, double p)
{
    sw_t y;
    int64_t shape[SW_MAX_RANK];
    char text[SW__TEXT_BYTES];
    if (sw_valid(x) && sw_rank(x) < 2)
        return sw__graph_error(x.graph, SW_ERR_SHAPE, "dropout_channels of %s: needs [N, C, …]",
                               sw__value_text(x.graph, x.id, text));
    if (!drops("dropout_channels", x, p, &y)) return y;
    shape_of(x, shape);
    for (int i = 2; i < SW_MAX_RANK; i++) shape[i] = 1;
    const sw_t keep = keep_mask(x.graph, p, sw_rank(x), shape);
    return sw_where(keep, sw_mul_scalar(x, 1 / (1 - p)), sw_const(x.graph, sw_type(x), 0));
}

/* What is dropped becomes -s, the value that selu goes to; then a x + b, so that mean 0 and variance 1 stay. */
sw_t sw_alpha_dropout(sw_t x, double p)
{
    const double s = 1.7580993408473766, a = 1 / sqrt((1 - p) * (1 + p * s * s)), b = a * p * s;
    sw_t y;
    int64_t shape[SW_MAX_RANK];
    if (!drops("alpha_dropout", x, p, &y)) return y;
    shape_of(x, shape);
    const sw_t keep = keep_mask(x.graph, p, sw_rank(x), shape);
    return sw_where(keep, sw_add_scalar(sw_mul_scalar(x, a), b), sw_const(x.graph, sw_type(x), b - a * s));
}
