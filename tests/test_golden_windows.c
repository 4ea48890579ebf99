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
    CASE(rms_norm_two, 1, sw_rms_norm_op(x[0], SW_NONE, 2, 1e-3))
/* clang-format on */

CASES(GOLDEN_FUNCTION)
static const golden_case windows[] = { CASES(GOLDEN_ENTRY) };

GOLDEN_MAIN("ops_windows", windows)
