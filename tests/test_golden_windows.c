/* test_golden_windows.c: transposed convolution, pooling, norms and interpolation against PyTorch's numbers
 * (tests/golden/make_windows.py); see golden_run.h. */
#include "golden_run.h"
#include "swoop/nn.h"

static const sw_conv_options ct1d_o = {.stride = {3}, .pad_lo = {1}, .pad_hi = {1}, .output_padding = {2}};
static const sw_conv_options stride2_o = {.stride = {2, 2}};
static const sw_conv_options ct_groups_o = {.stride = {2, 1}, .pad_lo = {1, 2}, .pad_hi = {1, 2}, .output_padding = {1, 0},
                                            .dilation = {1, 2}, .groups = 2};
static const sw_conv_options ct_depthwise_o = {.stride = {2, 2}, .pad_lo = {1, 1}, .pad_hi = {1, 1}, .groups = 3};
static const sw_conv_options ct_dilated_o = {.pad_lo = {2, 0}, .pad_hi = {2, 0}, .output_padding = {1, 2}, .dilation = {3, 3}};
static const sw_conv_options ct3d_o = {.stride = {1, 2, 2}, .pad_lo = {0, 1, 1}, .pad_hi = {0, 1, 1}, .output_padding = {0, 1, 0}};

#define POOL(name, ...) static const sw_pool_options name = {__VA_ARGS__};
#define SIZE(...) ((int64_t[]){__VA_ARGS__})
POOL(p3s2p1_ceil, .kernel = {3, 3}, .stride = {2, 2}, .pad_lo = {1, 1}, .pad_hi = {1, 1}, .ceil_mode = true)
POOL(p3s2p1_ceil_all, .kernel = {3, 3}, .stride = {2, 2}, .pad_lo = {1, 1}, .pad_hi = {1, 1}, .ceil_mode = true, .count_include_pad = true)
POOL(p3s2p1, .kernel = {3, 3}, .stride = {2, 2}, .pad_lo = {1, 1}, .pad_hi = {1, 1})
POOL(p3s2_ceil, .kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true)
POOL(p2_ceil, .kernel = {2, 2}, .ceil_mode = true, .count_include_pad = true)
POOL(p3d_ceil, .kernel = {2, 3, 2}, .stride = {2, 2, 3}, .pad_lo = {0, 1, 1}, .pad_hi = {0, 1, 1}, .ceil_mode = true,
     .count_include_pad = true)
POOL(p2, .kernel = {2, 2, 2}, .count_include_pad = true)
POOL(p3, .kernel = {3})
POOL(p3s2, .kernel = {3}, .stride = {2}, .count_include_pad = true)
POOL(p23s2_ceil, .kernel = {2, 3}, .stride = {2, 2}, .ceil_mode = true, .count_include_pad = true)
POOL(p32_ceil, .kernel = {3, 2}, .stride = {2, 3}, .pad_lo = {1, 1}, .pad_hi = {1, 1}, .ceil_mode = true)
POOL(p2s1p1, .kernel = {2, 2}, .stride = {1, 1}, .pad_lo = {1, 1}, .pad_hi = {1, 1})

static sw_t indices(const sw_t *x, const sw_pool_options *o)
{
    return sw_cast(sw_max_pool_indices(x[0], o), sw_type(x[0]));
}

#define MODE(M) .mode = SW_INTERPOLATE_##M

/* CASE(name, inputs, result) */
/* clang-format off */
#define CASES(CASE)                                                                                                    \
    CASE(ct1d, 3, sw_conv_transpose_op(x[0], x[1], x[2], &ct1d_o))                                                     \
    CASE(ct1d_one, 2, sw_conv_transpose_op(x[0], x[1], SW_NONE, NULL))                                                 \
    CASE(ct2d, 3, sw_conv_transpose_op(x[0], x[1], x[2], NULL))                                                        \
    CASE(ct2d_unet, 3, sw_conv_transpose_op(x[0], x[1], x[2], &stride2_o))                                             \
    CASE(ct2d_groups, 3, sw_conv_transpose_op(x[0], x[1], x[2], &ct_groups_o))                                         \
    CASE(ct2d_depthwise, 2, sw_conv_transpose_op(x[0], x[1], SW_NONE, &ct_depthwise_o))                                \
    CASE(ct2d_dilated, 2, sw_conv_transpose_op(x[0], x[1], SW_NONE, &ct_dilated_o))                                    \
    CASE(ct3d, 3, sw_conv_transpose_op(x[0], x[1], x[2], &ct3d_o))                                                     \
    CASE(ct2d_none, 3, sw_conv_transpose_op(x[0], x[1], x[2], &stride2_o))                                             \
    CASE(group_norm, 3, sw_group_norm_op(x[0], 2, x[1], x[2], 1e-5))                                                   \
    CASE(group_norm_1d, 3, sw_group_norm_op(x[0], 4, x[1], x[2], 1e-3))                                                \
    CASE(group_norm_rows, 1, sw_group_norm_op(x[0], 2, SW_NONE, SW_NONE, 1e-5))                                        \
    CASE(group_norm_3d, 2, sw_group_norm_op(x[0], 1, x[1], SW_NONE, 1e-5))                                             \
    CASE(instance_norm, 1, sw_instance_norm_op(x[0], SW_NONE, SW_NONE, 1e-5))                                          \
    CASE(instance_norm_affine, 3, sw_instance_norm_op(x[0], x[1], x[2], 1e-2))                                         \
    CASE(rms_norm, 2, sw_rms_norm_op(x[0], x[1], 1, 1e-5))                                                             \
    CASE(rms_norm_two, 1, sw_rms_norm_op(x[0], SW_NONE, 2, 1e-3))                                                      \
    CASE(max1d_ceil, 1, sw_max_pool_op(x[0], &p3s2p1_ceil))                                                            \
    CASE(max2d_ceil, 1, sw_max_pool_op(x[0], &p2_ceil))                                                                \
    CASE(max2d_ceil_small, 1, sw_max_pool_op(x[0], &p3s2_ceil))                                                        \
    CASE(avg1d_ceil, 1, sw_avg_pool_op(x[0], &p3s2p1_ceil_all))                                                        \
    CASE(avg2d_ceil, 1, sw_avg_pool_op(x[0], &p3s2p1_ceil_all))                                                        \
    CASE(avg2d_ceil_plain, 1, sw_avg_pool_op(x[0], &p2_ceil))                                                          \
    CASE(avg2d_ceil_exclude, 1, sw_avg_pool_op(x[0], &p3s2p1_ceil))                                                    \
    CASE(avg3d_ceil, 1, sw_avg_pool_op(x[0], &p3d_ceil))                                                               \
    CASE(lp2d, 1, sw_lp_pool_op(x[0], 2, &p2))                                                                         \
    CASE(lp1d_cubes, 1, sw_lp_pool_op(x[0], 3, &p3s2))                                                                 \
    CASE(lp2d_ceil, 1, sw_lp_pool_op(x[0], 1.5, &p23s2_ceil))                                                          \
    CASE(lp_zeros, 1, sw_lp_pool_op(x[0], 2, &p2))                                                                     \
    CASE(indices, 1, indices(x, &p2))                                                                                  \
    CASE(indices_ties, 1, indices(x, &p3s2p1))                                                                         \
    CASE(indices_ceil, 1, indices(x, &p32_ceil))                                                                       \
    CASE(indices_inf, 1, indices(x, &p2s1p1))                                                                          \
    CASE(indices_1d, 1, indices(x, &p3))                                                                               \
    CASE(indices_3d, 1, indices(x, &p2))                                                                               \
    CASE(unpool, 2, sw_max_unpool_op(x[0], x[1], &p2, NULL))                                                           \
    CASE(unpool_size, 2, sw_max_unpool_op(x[0], x[1], &p2, SIZE(5, 7)))                                                \
    CASE(unpool_1d, 2, sw_max_unpool_op(x[0], x[1], &p3, NULL))                                                        \
    CASE(unpool_3d, 2, sw_max_unpool_op(x[0], x[1], &p2, NULL))                                                        \
    CASE(aavg_1d, 1, sw_adaptive_avg_pool(x[0], SIZE(3)))                                                              \
    CASE(aavg_2d, 1, sw_adaptive_avg_pool(x[0], SIZE(3, 2)))                                                           \
    CASE(aavg_even, 1, sw_adaptive_avg_pool(x[0], SIZE(3, 2)))                                                         \
    CASE(aavg_up, 1, sw_adaptive_avg_pool(x[0], SIZE(5, 3)))                                                           \
    CASE(aavg_mixed, 1, sw_adaptive_avg_pool(x[0], SIZE(3, 4)))                                                        \
    CASE(aavg_one, 1, sw_adaptive_avg_pool(x[0], SIZE(1, 1)))                                                          \
    CASE(aavg_same, 1, sw_adaptive_avg_pool(x[0], SIZE(-1, 2)))                                                        \
    CASE(aavg_3d, 1, sw_adaptive_avg_pool(x[0], SIZE(2, 4, 3)))                                                        \
    CASE(aavg_none, 1, sw_adaptive_avg_pool(x[0], SIZE(3, 3)))                                                         \
    CASE(amax_1d, 1, sw_adaptive_max_pool(x[0], SIZE(3)))                                                              \
    CASE(amax_2d, 1, sw_adaptive_max_pool(x[0], SIZE(3, 2)))                                                           \
    CASE(amax_even, 1, sw_adaptive_max_pool(x[0], SIZE(3, 2)))                                                         \
    CASE(amax_up, 1, sw_adaptive_max_pool(x[0], SIZE(5, 3)))                                                           \
    CASE(amax_mixed, 1, sw_adaptive_max_pool(x[0], SIZE(3, 4)))                                                        \
    CASE(amax_one, 1, sw_adaptive_max_pool(x[0], SIZE(1, 1)))                                                          \
    CASE(amax_same, 1, sw_adaptive_max_pool(x[0], SIZE(-1, 2)))                                                        \
    CASE(amax_3d, 1, sw_adaptive_max_pool(x[0], SIZE(2, 4, 3)))                                                        \
    CASE(amax_none, 1, sw_adaptive_max_pool(x[0], SIZE(3, 3)))                                                         \
    CASE(amax_ties, 1, sw_adaptive_max_pool(x[0], SIZE(3, 4)))                                                         \
    CASE(aavg_wide, 1, sw_adaptive_avg_pool(x[0], SIZE(3)))                                                            \
    CASE(gavg_3d, 1, sw_global_avg_pool(x[0]))                                                                         \
    CASE(gmax_2d, 1, sw_global_max_pool(x[0]))                                                                         \
    CASE(near_up2, 1, sw_interpolate(x[0], MODE(NEAREST), .scale = 2))                                                 \
    CASE(near_down, 1, sw_interpolate(x[0], MODE(NEAREST), .sizes = {2, 3}))                                           \
    CASE(near_odd, 1, sw_interpolate(x[0], MODE(NEAREST), .sizes = {7, 2}))                                            \
    CASE(near_scale, 1, sw_interpolate(x[0], MODE(NEAREST), .scale = 1.7))                                             \
    CASE(near_3d, 1, sw_interpolate(x[0], MODE(NEAREST), .sizes = {3, 2, 5}))                                          \
    CASE(exact_odd, 1, sw_interpolate(x[0], MODE(NEAREST_EXACT), .sizes = {7, 2}))                                     \
    CASE(exact_scale, 1, sw_interpolate(x[0], MODE(NEAREST_EXACT), .scales = {0.6, 2.3}))                              \
    CASE(lin1d, 1, sw_interpolate(x[0], MODE(LINEAR), .size = 7))                                                      \
    CASE(lin1d_scale, 1, sw_interpolate(x[0], MODE(LINEAR), .scale = 2.3))                                             \
    CASE(lin1d_scale_same, 1, sw_interpolate(x[0], MODE(LINEAR), .scale = 1.1))                                        \
    CASE(lin1d_corners, 1, sw_interpolate(x[0], MODE(LINEAR), .size = 7, .align_corners = true))                       \
    CASE(lin1d_one, 1, sw_interpolate(x[0], MODE(LINEAR), .size = 1, .align_corners = true))                           \
    CASE(lin1d_from_one, 1, sw_interpolate(x[0], MODE(LINEAR), .size = 4))                                             \
    CASE(bilin_up2, 1, sw_interpolate(x[0], MODE(LINEAR), .scale = 2))                                                 \
    CASE(bilin_down, 1, sw_interpolate(x[0], MODE(LINEAR), .sizes = {2, 3}))                                           \
    CASE(bilin_mixed, 1, sw_interpolate(x[0], MODE(LINEAR), .scales = {1.5, 0.4}))                                     \
    CASE(bilin_corners, 1, sw_interpolate(x[0], MODE(LINEAR), .sizes = {5, 2}, .align_corners = true))                 \
    CASE(bilin_corners_scale, 1, sw_interpolate(x[0], MODE(LINEAR), .scale = 2.5, .align_corners = true))              \
    CASE(trilin, 1, sw_interpolate(x[0], MODE(LINEAR), .sizes = {3, 5, 2}))                                            \
    CASE(trilin_corners, 1, sw_interpolate(x[0], MODE(LINEAR), .scales = {2, 1, 0.5}, .align_corners = true))          \
    CASE(bicub_up2, 1, sw_interpolate(x[0], MODE(CUBIC), .scale = 2))                                                  \
    CASE(bicub_down, 1, sw_interpolate(x[0], MODE(CUBIC), .sizes = {3, 2}))                                            \
    CASE(bicub_corners, 1, sw_interpolate(x[0], MODE(CUBIC), .sizes = {5, 6}, .align_corners = true))                  \
    CASE(bicub_scale, 1, sw_interpolate(x[0], MODE(CUBIC), .scales = {1.6, 0.7}))                                      \
    CASE(bicub_one, 1, sw_interpolate(x[0], MODE(CUBIC), .sizes = {3, 3}))                                             \
    CASE(area, 1, sw_interpolate(x[0], MODE(AREA), .sizes = {3, 4}))                                                   \
    CASE(lin_many, 1, sw_interpolate(x[0], MODE(LINEAR), .size = 90))                                                  \
    CASE(shuffle, 1, sw_pixel_shuffle(x[0], 2))                                                                        \
    CASE(shuffle_3, 1, sw_pixel_shuffle(x[0], 3))                                                                      \
    CASE(unshuffle, 1, sw_pixel_unshuffle(x[0], 2))
/* clang-format on */

CASES(GOLDEN_FUNCTION)
static const golden_case windows[] = { CASES(GOLDEN_ENTRY) };

GOLDEN_MAIN("ops_windows", windows)
