/* layers.c: layers with parameters, made of variables and ops; convolutions are in layers_conv.c, pooling in
 * layers_pool.c, further norms in layers_norm.c. Names are PyTorch's state_dict names.
 * On graph/; used by models_*.c and by users' own networks. */
#include "nn/layers.h"

sw_t sw_linear_with(sw_t x, sw_linear_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *g = x.graph;
    const int64_t k = sw_dim(x, -1), n = o.features;
    char text[SW__TEXT_BYTES];
    if (sw_rank(x) < 1 || n < 1)
        return sw__graph_error(g, SW_ERR_ARGUMENT, "linear '%s' of %s: %lld features: 1 or more, and an input [.., K]",
                               o.name ? o.name : "", sw__value_text(g, x.id, text), (long long)n);
    const sw__layer_name name = sw__name_layer(g, o.name, "linear", "weight");
    const sw_t w = sw__layer_param(g, &name, "weight", 2, (int64_t[]){n, k}, sw__fan_in_init(o.weight_init, k));
    const sw_t b = o.no_bias ? SW_NONE : sw__layer_param(g, &name, "bias", 1, &n, sw__fan_in_init(o.bias_init, k));
    return sw__layer_finish(g, sw_linear_op(x, w, b), &name);
}

/* new = (1 - momentum) old + momentum batch; the running variance is unbiased: n/(n - 1) times the batch's. */
static void update_running(sw_t running, sw_t batch, double momentum, double scale)
{
    sw_assign(running, sw_add(sw_mul_scalar(running, 1 - momentum), sw_mul_scalar(batch, momentum * scale)));
}

sw_t sw_batch_norm_with(sw_t x, sw_norm_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *g = x.graph;
    char text[SW__TEXT_BYTES];
    if (sw_rank(x) < 2)
        return sw__graph_error(g, SW_ERR_SHAPE, "batch_norm '%s' of %s: needs [N, C, …]", o.name ? o.name : "",
                               sw__value_text(g, x.id, text));
    const int64_t c = sw_dim(x, 1), n = c ? sw_elements(x) / c : 0;
    const double eps = o.eps > 0 ? o.eps : 1e-5, momentum = o.momentum > 0 ? o.momentum : 0.1;
    const sw_init one = {.kind = SW_INIT_CONSTANT, .a = 1}, zero = {0};
    const sw__layer_name name = sw__name_layer(g, o.name, "bn", "weight");
    const sw_t w = sw__layer_param(g, &name, "weight", 1, &c, one), b = sw__layer_param(g, &name, "bias", 1, &c, zero);
    const sw_t run_mean = sw__layer_variable(g, &name, "running_mean", SW_VAR_BUFFER, SW_F32, 1, &c, zero);
    const sw_t run_var = sw__layer_variable(g, &name, "running_var", SW_VAR_BUFFER, SW_F32, 1, &c, one);
    const sw_t count = sw__layer_variable(g, &name, "num_batches_tracked", SW_VAR_BUFFER, SW_I64, 0, NULL, zero);
    if (sw_graph_is_training(g)) {
        sw_t mean, var;
        const sw_t y = sw_batch_norm_op(x, w, b, eps, &mean, &var);
        update_running(run_mean, mean, momentum, 1);
        update_running(run_var, var, momentum, n > 1 ? (double)n / (double)(n - 1) : 1);
        sw_assign(count, sw_add(count, sw_const(g, SW_I64, 1)));
        return sw__layer_finish(g, y, &name);
    }
    const int rank = sw_rank(x);
    const sw_t scale = sw_mul(w, sw_rsqrt(sw_add_scalar(run_var, eps)));
    const sw_t shift = sw_sub(b, sw_mul(run_mean, scale));
    return sw__layer_finish(g, sw_add(sw_mul(x, sw__per_channel(scale, rank)), sw__per_channel(shift, rank)), &name);
}

sw_t sw_layer_norm_with(sw_t x, sw_norm_options o)
{
    if (!sw_valid(x)) return SW_NONE;
    sw_graph *g = x.graph;
    if (sw_rank(x) < 1) return sw__graph_error(g, SW_ERR_SHAPE, "layer_norm '%s': needs an axis", o.name ? o.name : "");
    const int64_t d = sw_dim(x, -1);
    const sw__layer_name name = sw__name_layer(g, o.name, "ln", "weight");
    const sw_t w = sw__layer_param(g, &name, "weight", 1, &d, (sw_init){.kind = SW_INIT_CONSTANT, .a = 1});
    const sw_t b = sw__layer_param(g, &name, "bias", 1, &d, (sw_init){0});
    return sw__layer_finish(g, sw_layer_norm_op(x, w, b, 1, o.eps > 0 ? o.eps : 1e-5), &name);
}

sw_t sw_embedding_with(sw_t index, sw_embedding_options o)
{
    if (!sw_valid(index)) return SW_NONE;
    sw_graph *g = index.graph;
    char text[SW__TEXT_BYTES];
    if (o.features < 1 || o.vocabulary < 1)
        return sw__graph_error(g, SW_ERR_ARGUMENT, "embedding '%s' of %s: %lld features, vocabulary of %lld: both 1 or more",
                               o.name ? o.name : "", sw__value_text(g, index.id, text), (long long)o.features,
                               (long long)o.vocabulary);
    const sw__layer_name name = sw__name_layer(g, o.name, "embedding", "weight");
    sw_init init = o.weight_init;
    if (init.kind == SW_INIT_ZEROS) init = (sw_init){.kind = SW_INIT_NORMAL, .a = 0, .b = 1};
    const sw_t w = sw__layer_param(g, &name, "weight", 2, (int64_t[]){o.vocabulary, o.features}, init);
    return sw__layer_finish(g, sw_embedding_op(w, index), &name);
}
