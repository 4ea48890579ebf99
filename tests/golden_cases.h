/* golden_cases.h: the cases of tests/data/ops.safetensors, each as swoop builds it from its inputs x[0], x[1], …
 * The other side is tests/golden/make_ops.py, which has a case of the same name in PyTorch. */
#ifndef GOLDEN_CASES_H
#define GOLDEN_CASES_H

#include "golden_run.h"
#include "swoop/nn.h"

static const sw_conv_options conv1d_o = { .stride = { 2 }, .pad_lo = { 1 }, .pad_hi = { 1 } };
static const sw_conv_options asym_o = { .stride = { 2, 1 }, .pad_lo = { 1, 0 }, .pad_hi = { 2, 1 }, .dilation = { 1, 2 } };
static const sw_conv_options groups_o = { .pad_lo = { 1, 1 }, .pad_hi = { 1, 1 }, .groups = 2 };
static const sw_conv_options depthwise_o = { .stride = { 2, 2 }, .pad_lo = { 1, 1 }, .pad_hi = { 1, 1 }, .groups = 4 };
static const sw_conv_options stride2_o = { .stride = { 2, 2 } };
static const sw_conv_options conv3d_o = { .stride = { 1, 2, 1 }, .pad_lo = { 1, 0, 1 }, .pad_hi = { 1, 0, 1 } };

static const sw_pool_options pool_2 = { .kernel = { 2, 2 } };
static const sw_pool_options pool_3s2p1 = { .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad_lo = { 1, 1 }, .pad_hi = { 1, 1 },
                                            .count_include_pad = true };
static const sw_pool_options pool_exclude = { .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad_lo = { 1, 1 },
                                              .pad_hi = { 1, 1 } };
static const sw_pool_options pool_3s1p1 = { .kernel = { 3, 3 }, .stride = { 1, 1 }, .pad_lo = { 1, 1 }, .pad_hi = { 1, 1 } };
static const sw_pool_options pool_2s1p1 = { .kernel = { 2, 2 }, .stride = { 1, 1 }, .pad_lo = { 1, 1 }, .pad_hi = { 1, 1 } };
static const sw_pool_options pool_1d = { .kernel = { 3 }, .stride = { 2 } };
static const sw_pool_options pool_3d = { .kernel = { 2, 2, 2 }, .stride = { 1, 1, 1 } };
static const sw_pool_options avg_3d = { .kernel = { 1, 2, 3 }, .stride = { 1, 1, 2 } };

static sw_t batch_norm(const sw_t *x)
{
    return sw_batch_norm_op(x[0], x[1], x[2], 1e-5, NULL, NULL);
}

static sw_t batch_norm_stats(const sw_t *x) /* a gradient goes into the statistics too */
{
    sw_t mean, var;
    const sw_t y = sw_batch_norm_op(x[0], x[1], x[2], 1e-5, &mean, &var);
    const int64_t shape[4] = { 1, 2, 1, 1 };
    return sw_add(y, sw_reshape(sw_mul(mean, var), 4, shape));
}

static sw_t slice_step(const sw_t *x)
{
    const int64_t start[2] = { 1, 0 }, stop[2] = { 6, 5 }, step[2] = { 2, 3 };
    return sw_slice(x[0], start, stop, step);
}

static sw_t pad_interior(const sw_t *x)
{
    const int64_t lo[2] = { 0, 1 }, hi[2] = { 0, 0 }, interior[2] = { 1, 0 };
    return sw_pad(x[0], lo, hi, interior, 2.0);
}

static sw_t concat(const sw_t *x)
{
    const sw_t parts[3] = { x[0], x[1], x[0] };
    return sw_concat(parts, 3, 1);
}

static sw_t permute_expand(const sw_t *x)
{
    const int axes[3] = { 2, 0, 1 };
    const int64_t with_one[4] = { 4, 2, 1, 3 }, shape[4] = { 4, 2, 3, 3 };
    return sw_expand(sw_reshape(sw_permute(x[0], axes), 4, with_one), 4, shape);
}

static sw_t signs(const sw_t *x) /* +1, -1, +1, -1 */
{
    const int64_t four = 4;
    const sw_t i = sw_iota(x[0].graph, sw_type(x[0]), 1, &four, 0);
    return sw_add_scalar(sw_mul_scalar(sw_mod(i, sw_const(x[0].graph, sw_type(x[0]), 2)), -2), 1);
}

/* CASE(name, inputs, result) */
/* clang-format off */
#define GOLDEN_CASES(CASE)                                                                                             \
    CASE(conv1d, 3, sw_conv_op(x[0], x[1], x[2], &conv1d_o))                                                           \
    CASE(conv2d, 3, sw_conv_op(x[0], x[1], x[2], NULL))                                                                \
    CASE(conv2d_asym, 2, sw_conv_op(x[0], x[1], SW_NONE, &asym_o))                                                     \
    CASE(conv2d_groups, 3, sw_conv_op(x[0], x[1], x[2], &groups_o))                                                    \
    CASE(conv2d_depthwise, 2, sw_conv_op(x[0], x[1], SW_NONE, &depthwise_o))                                           \
    CASE(conv2d_1x1_s2, 2, sw_conv_op(x[0], x[1], SW_NONE, &stride2_o))                                                \
    CASE(conv3d, 3, sw_conv_op(x[0], x[1], x[2], &conv3d_o))                                                           \
    CASE(max_pool_2, 1, sw_max_pool_op(x[0], &pool_2))                                                                 \
    CASE(max_pool_3s2p1, 1, sw_max_pool_op(x[0], &pool_3s2p1))                                                         \
    CASE(max_pool_ties, 1, sw_max_pool_op(x[0], &pool_3s1p1))                                                          \
    CASE(max_pool_1d, 1, sw_max_pool_op(x[0], &pool_1d))                                                               \
    CASE(max_pool_3d, 1, sw_max_pool_op(x[0], &pool_3d))                                                               \
    CASE(max_pool_inf, 1, sw_max_pool_op(x[0], &pool_2s1p1))                                                           \
    CASE(avg_pool_2, 1, sw_avg_pool_op(x[0], &pool_2))                                                                 \
    CASE(avg_pool_3s2p1, 1, sw_avg_pool_op(x[0], &pool_3s2p1))                                                         \
    CASE(avg_pool_exclude, 1, sw_avg_pool_op(x[0], &pool_exclude))                                                     \
    CASE(avg_pool_3d, 1, sw_avg_pool_op(x[0], &avg_3d))                                                                \
    CASE(batch_norm, 3, batch_norm(x))                                                                                 \
    CASE(batch_norm_rows, 3, batch_norm(x))                                                                            \
    CASE(batch_norm_stats, 3, batch_norm_stats(x))                                                                     \
    CASE(layer_norm, 3, sw_layer_norm_op(x[0], x[1], x[2], 1, 1e-5))                                                   \
    CASE(layer_norm_2, 3, sw_layer_norm_op(x[0], x[1], x[2], 2, 1e-3))                                                 \
    CASE(layer_norm_plain, 1, sw_layer_norm_op(x[0], SW_NONE, SW_NONE, 1, 1e-5))                                       \
    CASE(softmax, 1, sw_softmax(x[0], -1))                                                                             \
    CASE(softmax_axis1, 1, sw_softmax(x[0], 1))                                                                        \
    CASE(log_softmax, 1, sw_log_softmax(x[0], -1))                                                                     \
    CASE(cross_entropy, 2, sw_cross_entropy(x[0], x[1]))                                                               \
    CASE(cross_entropy_far, 2, sw_cross_entropy(x[0], x[1]))                                                           \
    CASE(cross_entropy_probs, 2, sw_cross_entropy(x[0], x[1]))                                                         \
    CASE(cross_entropy_rows, 2, sw_cross_entropy_rows(x[0], x[1]))                                                     \
    CASE(mse, 2, sw_mse(x[0], x[1]))                                                                                   \
    CASE(embedding, 2, sw_embedding_op(x[0], x[1]))                                                                    \
    CASE(gather, 2, sw_gather(x[0], x[1], 1))                                                                          \
    CASE(scatter_add, 3, sw_scatter_add(x[0], x[1], x[2], 1))                                                          \
    CASE(scatter_set, 3, sw_scatter_set(x[0], x[1], x[2], 1))                                                          \
    CASE(scatter_max, 3, sw_scatter_max(x[0], x[1], x[2], 1))                                                          \
    CASE(scatter_max_ties, 3, sw_scatter_max(x[0], x[1], x[2], 1))                                                     \
    CASE(pow_square, 1, sw_pow(x[0], sw_const(x[0].graph, sw_type(x[0]), 2.0)))                                        \
    CASE(pow_cube, 1, sw_pow(x[0], sw_const(x[0].graph, sw_type(x[0]), 3.0)))                                          \
    CASE(pow_half, 1, sw_pow(x[0], sw_const(x[0].graph, sw_type(x[0]), 0.5)))                                          \
    CASE(pow_zero, 1, sw_pow(x[0], sw_const(x[0].graph, sw_type(x[0]), 0.0)))                                          \
    CASE(pow, 2, sw_pow(x[0], x[1]))                                                                                   \
    CASE(pow_zero_base, 2, sw_pow(x[0], x[1]))                                                                         \
    CASE(pow_exponent, 1, sw_pow(sw_const(x[0].graph, sw_type(x[0]), 2.5), x[0]))                                      \
    CASE(max_ties, 2, sw_max(x[0], x[1]))                                                                              \
    CASE(min_ties, 2, sw_min(x[0], x[1]))                                                                              \
    CASE(relu, 1, sw_relu(x[0]))                                                                                       \
    CASE(abs, 1, sw_abs(x[0]))                                                                                         \
    CASE(mod, 2, sw_mod(x[0], x[1]))                                                                                   \
    CASE(div, 2, sw_div(x[0], x[1]))                                                                                   \
    CASE(atan, 1, sw_atan(x[0]))                                                                                       \
    CASE(erf, 1, sw_erf(x[0]))                                                                                         \
    CASE(gelu, 1, sw_gelu(x[0]))                                                                                       \
    CASE(silu, 1, sw_silu(x[0]))                                                                                       \
    CASE(sigmoid, 1, sw_sigmoid(x[0]))                                                                                 \
    CASE(tanh, 1, sw_tanh(x[0]))                                                                                       \
    CASE(sqrt_log, 1, sw_mul(sw_log(x[0]), sw_sqrt(x[0])))                                                             \
    CASE(sin_cos, 1, sw_mul(sw_sin(x[0]), sw_cos(sw_mul_scalar(x[0], 2.0))))                                           \
    CASE(where, 2, sw_where(sw_lt(x[0], x[1]), sw_mul(x[0], x[1]), x[0]))                                              \
    CASE(amax_ties, 1, sw_reduce_max(x[0], SW_AXIS(1), false))                                                         \
    CASE(amin, 1, sw_reduce_min(x[0], SW_AXIS(0) | SW_AXIS(2), false))                                                 \
    CASE(prod_axis, 1, sw_prod(x[0], SW_AXIS(1), false))                                                               \
    CASE(prod_zeros, 1, sw_prod(x[0], SW_AXIS(1), false))                                                              \
    CASE(prod_two_axes, 1, sw_prod(x[0], SW_AXIS(0) | SW_AXIS(2), false))                                              \
    CASE(mean, 1, sw_mean(x[0], SW_AXIS(0) | SW_AXIS(2), false))                                                       \
    CASE(cumsum, 1, sw_cumsum(x[0], 1, false))                                                                         \
    CASE(cumsum_reverse, 1, sw_cumsum(x[0], 0, true))                                                                  \
    CASE(sort, 1, sw_sort(x[0], 1, false))                                                                             \
    CASE(sort_descending, 1, sw_sort(x[0], 0, true))                                                                   \
    CASE(linear, 3, sw_linear_op(x[0], x[1], x[2]))                                                                    \
    CASE(linear_relu, 3, sw_relu(sw_linear_op(x[0], x[1], x[2])))                                                      \
    CASE(matmul, 2, sw_matmul(x[0], x[1]))                                                                             \
    CASE(matmul_batch, 2, sw_matmul(x[0], x[1]))                                                                       \
    CASE(matmul_vector, 2, sw_matmul(x[0], x[1]))                                                                      \
    CASE(dot, 2, sw_dot(x[0], x[1]))                                                                                   \
    CASE(slice_step, 1, slice_step(x))                                                                                 \
    CASE(pad_interior, 1, pad_interior(x))                                                                             \
    CASE(concat, 2, concat(x))                                                                                         \
    CASE(permute_expand, 1, permute_expand(x))                                                                         \
    CASE(relu6, 1, sw_relu6(x[0]))                                                                                     \
    CASE(leaky_relu, 1, sw_leaky_relu(x[0], 0.2))                                                                      \
    CASE(elu, 1, sw_elu(x[0], 1.5))                                                                                    \
    CASE(selu, 1, sw_selu(x[0]))                                                                                       \
    CASE(celu, 1, sw_celu(x[0], 0.5))                                                                                  \
    CASE(gelu_tanh, 1, sw_gelu_tanh(x[0]))                                                                             \
    CASE(softplus, 1, sw_softplus(x[0]))                                                                               \
    CASE(log_sigmoid, 1, sw_log_sigmoid(x[0]))                                                                         \
    CASE(mish, 1, sw_mish(x[0]))                                                                                       \
    CASE(softsign, 1, sw_softsign(x[0]))                                                                               \
    CASE(hard_sigmoid, 1, sw_hard_sigmoid(x[0]))                                                                       \
    CASE(hard_swish, 1, sw_hard_swish(x[0]))                                                                           \
    CASE(hard_tanh, 1, sw_hard_tanh(x[0], -2, 1))                                                                      \
    CASE(glu, 1, sw_glu(x[0], 1, SW_GLU))                                                                              \
    CASE(reglu, 1, sw_glu(x[0], -1, SW_REGLU))                                                                         \
    CASE(geglu, 1, sw_glu(x[0], -1, SW_GEGLU))                                                                         \
    CASE(swiglu, 1, sw_glu(x[0], -1, SW_SWIGLU))                                                                       \
    CASE(prelu, 2, sw_prelu_op(x[0], x[1]))                                                                            \
    CASE(prelu_one, 2, sw_prelu_op(x[0], x[1]))                                                                        \
    CASE(l1_loss, 2, sw_l1_loss(x[0], x[1], SW_REDUCE_MEAN))                                                           \
    CASE(l1_loss_none, 2, sw_l1_loss(x[0], x[1], SW_REDUCE_NONE))                                                      \
    CASE(mse_loss_sum, 2, sw_mse_loss(x[0], x[1], SW_REDUCE_SUM))                                                      \
    CASE(huber_loss, 2, sw_huber_loss(x[0], x[1], 0.8, SW_REDUCE_MEAN))                                                \
    CASE(smooth_l1_loss, 2, sw_smooth_l1_loss(x[0], x[1], 0.6, SW_REDUCE_MEAN))                                        \
    CASE(gaussian_nll_loss, 3, sw_gaussian_nll_loss(x[0], x[1], x[2], false, SW_REDUCE_MEAN))                          \
    CASE(gaussian_nll_full, 3, sw_gaussian_nll_loss(x[0], x[1], x[2], true, SW_REDUCE_SUM))                            \
    CASE(poisson_nll_loss, 2, sw_poisson_nll_loss(x[0], x[1], SW_REDUCE_MEAN))                                         \
    CASE(bce_with_logits_loss, 2, sw_bce_with_logits_loss(x[0], x[1], SW_NONE, SW_REDUCE_MEAN))                        \
    CASE(bce_pos_weight, 3, sw_bce_with_logits_loss(x[0], x[1], x[2], SW_REDUCE_MEAN))                                 \
    CASE(focal_loss, 2, sw_focal_loss(x[0], x[1], 0.25, 2, SW_REDUCE_MEAN))                                            \
    CASE(dice_loss, 2, sw_dice_loss(x[0], x[1], SW_REDUCE_MEAN))                                                       \
    CASE(hinge_loss, 2, sw_hinge_loss(x[0], x[1], SW_REDUCE_MEAN))                                                     \
    CASE(kl_div_loss, 2, sw_kl_div_loss(x[0], x[1], SW_REDUCE_MEAN))                                                   \
    CASE(ce_smoothing, 2, sw_cross_entropy_loss(x[0], x[1], .label_smoothing = 0.1))                                   \
    CASE(ce_weight, 3, sw_cross_entropy_loss(x[0], x[1], .weight = x[2]))                                              \
    CASE(ce_ignore, 2, sw_cross_entropy_loss(x[0], x[1], .ignore = true, .ignore_index = 2))                           \
    CASE(ce_all, 3, sw_cross_entropy_loss(x[0], x[1], .weight = x[2],                                                  \
         .ignore = true, .ignore_index = 2, .label_smoothing = 0.2))                                                   \
    CASE(ce_all_rows, 3, sw_cross_entropy_loss(x[0], x[1], .weight = x[2],                                             \
         .ignore = true, .ignore_index = 1, .label_smoothing = 0.2, .reduction = SW_REDUCE_NONE))                      \
    CASE(cosine_similarity, 2, sw_cosine_similarity(x[0], x[1]))                                                       \
    CASE(cosine_embedding_loss, 2, sw_cosine_embedding_loss(x[0], x[1], signs(x), -0.9, SW_REDUCE_MEAN))               \
    CASE(triplet_loss, 3, sw_triplet_loss(x[0], x[1], x[2], 1.5, SW_REDUCE_MEAN))                                      \
    CASE(contrastive_loss, 2, sw_contrastive_loss(x[0], x[1], signs(x), 4, SW_REDUCE_MEAN))
/* clang-format on */

GOLDEN_CASES(GOLDEN_FUNCTION)
static const golden_case golden_cases[] = { GOLDEN_CASES(GOLDEN_ENTRY) };

#endif
