/* layers_norm.c: group, instance and root mean square norm as layers. As layers.c, which has batch and layer norm; the
 * arithmetic is in graph/ops_norm.c. */
#include "nn/layers.h"
#include <float.h>

static const sw_init one = {.kind = SW_INIT_CONSTANT, .a = 1};

static const char *shape_of(sw_t x, char *buf, size_t size)
{
    return sw__shape_text(sw__node_of(x), buf, size);
}

sw_t sw_group_norm_with(sw_t x, sw_group_norm_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *const g = x.graph;
    char text[128];
    if (sw_rank(x) < 2 || o.groups < 1 || sw_dim(x, 1) % o.groups != 0)
        return sw__graph_error(g, SW_ERR_SHAPE, "group_norm '%s': %lld groups of x %s: it takes [N, C, …] with channels that "
                               "the groups divide", o.name ? o.name : "", (long long)o.groups, shape_of(x, text, sizeof text));
    const int64_t c = sw_dim(x, 1);
    const sw__layer_name name = sw__name_layer(g, o.name, "gn", "weight");
    const sw_t w = o.no_affine ? SW_NONE : sw__layer_param(g, &name, "weight", 1, &c, one);
    const sw_t b = o.no_affine ? SW_NONE : sw__layer_param(g, &name, "bias", 1, &c, (sw_init){0});
    return sw__layer_finish(g, sw_group_norm_op(x, o.groups, w, b, o.eps > 0 ? o.eps : 1e-5), &name);
}

/* ---- instance norm ---------------------------------------------------------------------------------------------------------- */

/* The statistics that stand in for a sample's own outside training. */
typedef struct running {
    sw_t mean, var;
} running;

static running running_of(sw_graph *g, const sw__layer_name *name, int64_t c)
{
    /* PyTorch declares it, too, and leaves it 0 */
    sw__layer_variable(g, name, "num_batches_tracked", SW_VAR_BUFFER, SW_I64, 0, NULL, (sw_init){0});
    return (running){
        .mean = sw__layer_variable(g, name, "running_mean", SW_VAR_BUFFER, SW_F32, 1, &c, (sw_init){0}),
        .var = sw__layer_variable(g, name, "running_var", SW_VAR_BUFFER, SW_F32, 1, &c, one),
    };
}

/* new = (1 - momentum) old + momentum times the mean over the samples of their means and unbiased variances (PyTorch's
 * instance_norm). */
static void track(const running *r, sw_t x, double momentum)
{
    const int rank = sw_rank(x);
    const uint32_t spatial = ((1u << rank) - 1u) & ~(SW_AXIS(0) | SW_AXIS(1));
    const int64_t samples = sw_dim(x, 0), c = sw_dim(x, 1), n = samples * c > 0 ? sw_elements(x) / (samples * c) : 0;
    const sw_t mean = sw_mean(x, spatial, true);
    const sw_t squares = sw_sum(sw_square(sw_sub(x, mean)), spatial, false);
    const sw_t var = sw_mean(sw_mul_scalar(squares, 1 / (double)(n - 1)), SW_AXIS(0), false);
    const sw_t now = sw_reshape(sw_mean(mean, SW_AXIS(0), false), 1, &c);
    sw_assign(r->mean, sw_add(sw_mul_scalar(r->mean, 1 - momentum), sw_mul_scalar(now, momentum)));
    sw_assign(r->var, sw_add(sw_mul_scalar(r->var, 1 - momentum), sw_mul_scalar(var, momentum)));
}

sw_t sw_instance_norm_with(sw_t x, sw_instance_norm_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *const g = x.graph;
    const int rank = sw_rank(x);
    const bool training = sw_graph_is_training(g), own = training || !o.track_running_stats;
    const double eps = o.eps > 0 ? o.eps : 1e-5;
    int64_t spatial = 1;
    for (int i = 2; i < rank; i++) spatial *= sw_dim(x, i);
    char text[128];
    if (rank < 3 || (training && spatial < 2))
        return sw__graph_error(g, SW_ERR_SHAPE, "instance_norm '%s': x is %s: it takes [N, C, spatial…], in training with more "
                               "than one spatial element", o.name ? o.name : "", shape_of(x, text, sizeof text));
    const int64_t c = sw_dim(x, 1);
    const sw__layer_name name = sw__name_layer(g, o.name, "instance_norm", o.affine ? "weight" : "running_mean");
    const sw_t w = o.affine ? sw__layer_param(g, &name, "weight", 1, &c, one) : SW_NONE;
    const sw_t b = o.affine ? sw__layer_param(g, &name, "bias", 1, &c, (sw_init){0}) : SW_NONE;
    const running r = o.track_running_stats ? running_of(g, &name, c) : (running){0};
    if (own) {
        if (o.track_running_stats) track(&r, x, o.momentum > 0 ? o.momentum : 0.1);
        return sw__layer_finish(g, sw_instance_norm_op(x, w, b, eps), &name);
    }
    sw_t scale = sw_rsqrt(sw_add_scalar(r.var, eps));
    if (o.affine) scale = sw_mul(w, scale);
    sw_t shift = sw_neg(sw_mul(r.mean, scale));
    if (o.affine) shift = sw_add(b, shift);
    return sw__layer_finish(g, sw_add(sw_mul(x, sw__per_channel(scale, rank)), sw__per_channel(shift, rank)), &name);
}

/* ---- root mean square ------------------------------------------------------------------------------------------------------- */

sw_t sw_rms_norm_with(sw_t x, sw_norm_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *const g = x.graph;
    if (sw_rank(x) < 1) return sw__graph_error(g, SW_ERR_SHAPE, "rms_norm '%s': needs an axis", o.name ? o.name : "");
    const int64_t d = sw_dim(x, -1);
    const sw__layer_name name = sw__name_layer(g, o.name, "rms_norm", "weight");
    const sw_t w = sw__layer_param(g, &name, "weight", 1, &d, one);
    return sw__layer_finish(g, sw_rms_norm_op(x, w, 1, o.eps > 0 ? o.eps : (double)FLT_EPSILON), &name);
}
