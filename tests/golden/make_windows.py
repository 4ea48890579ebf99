"""Writes tests/data/ops_windows.safetensors: transposed convolution, pooling, norms, interpolation (see cases.py). Read by
tests/test_golden_windows.c. Run: python3 tests/golden/make_windows.py (needs torch and safetensors)."""

import torch
import torch.nn.functional as F

from cases import D, case, pos, r, save

torch.manual_seed(20240301)

# transposed convolution
case("ct1d", lambda x, w, b: F.conv_transpose1d(x, w, b, stride=3, padding=1, output_padding=2), r(2, 3, 4), r(3, 2, 4), r(2))
case("ct1d_one", lambda x, w: F.conv_transpose1d(x, w), r(1, 1, 1), r(1, 1, 1))
case("ct2d", F.conv_transpose2d, r(2, 3, 4, 3), r(3, 2, 3, 2), r(2))
case("ct2d_unet", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), r(2, 4, 3, 5), r(4, 2, 2, 2), r(2))
case("ct2d_groups", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=(2, 1), padding=(1, 2), output_padding=(1, 0),
                                                       dilation=(1, 2), groups=2), r(2, 4, 4, 3), r(4, 3, 3, 3), r(6))
case("ct2d_depthwise", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, groups=3), r(1, 3, 4, 4), r(3, 1, 4, 4))
# output padding beyond the stride, with and without padding to take it from
case("ct2d_dilated", lambda x, w: F.conv_transpose2d(x, w, stride=1, padding=(2, 0), output_padding=(1, 2), dilation=3),
     r(1, 2, 3, 3), r(2, 2, 2, 2))
case("ct3d", lambda x, w, b: F.conv_transpose3d(x, w, b, stride=(1, 2, 2), padding=(0, 1, 1), output_padding=(0, 1, 0)),
     r(1, 2, 2, 3, 2), r(2, 3, 2, 3, 2), r(3))
case("ct2d_none", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), r(0, 2, 3, 3), r(2, 2, 2, 2), r(2))

# norms
case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), r(3, 6, 3, 5) * 2 + 3, r(6), r(6))
case("group_norm_1d", lambda x, w, b: F.group_norm(x, 4, w, b, 1e-3), r(2, 4, 7), r(4), r(4))
case("group_norm_rows", lambda x: F.group_norm(x, 2), r(4, 6))
case("group_norm_3d", lambda x, w: F.group_norm(x, 1, w), r(2, 3, 2, 1, 3), r(3))
case("instance_norm", lambda x: F.instance_norm(x), r(2, 3, 4, 3) + 2)
case("instance_norm_affine", lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=1e-2), r(2, 3, 5), r(3), r(3))
case("rms_norm", lambda x, w: F.rms_norm(x, [7], w, 1e-5), r(3, 4, 7) + 1, r(7))
case("rms_norm_two", lambda x: F.rms_norm(x, [4, 5], None, 1e-3), r(3, 4, 5))

# pooling
case("max1d_ceil", lambda x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True), r(2, 2, 8))
case("max2d_ceil", lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), r(1, 2, 5, 7))
case("max2d_ceil_small", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), r(1, 2, 2, 6))
case("avg1d_ceil", lambda x: F.avg_pool1d(x, 3, 2, 1, ceil_mode=True), r(2, 2, 8))
case("avg2d_ceil", lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), r(1, 2, 6, 5))
case("avg2d_ceil_plain", lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True), r(1, 2, 5, 7))
case("avg2d_ceil_exclude", lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), r(1, 2, 6, 5))
case("avg3d_ceil", lambda x: F.avg_pool3d(x, (2, 3, 2), (2, 2, 3), (0, 1, 1), ceil_mode=True), r(1, 2, 3, 6, 5))
case("lp2d", lambda x: F.lp_pool2d(x, 2, 2), r(2, 2, 4, 6))
case("lp1d_cubes", lambda x: F.lp_pool1d(x, 3, 3, 2), pos(2, 2, 7))
case("lp2d_ceil", lambda x: F.lp_pool2d(x, 1.5, (2, 3), 2, ceil_mode=True), pos(1, 2, 5, 6))
case("lp_zeros", lambda x: F.lp_pool1d(x, 2, 2), torch.tensor([[[0.0, 0.0, 3.0, 4.0]]]).to(D), second=False)
ties = torch.randint(-2, 2, (2, 2, 5, 7)).to(D)
indices = lambda *a, **k: (lambda x: F.max_pool2d(x, *a, return_indices=True, **k)[1].to(D) + (0 * x).nan_to_num().sum())
case("indices", indices(2), r(2, 2, 4, 6), second=False)
case("indices_ties", indices(3, 2, 1), ties, second=False)
case("indices_ceil", indices((3, 2), (2, 3), (1, 1), ceil_mode=True), ties, second=False)
case("indices_inf", indices(2, 1, 1), torch.full((1, 1, 3, 2), -torch.inf, dtype=D).requires_grad_(False), second=False)
case("indices_1d", lambda x: F.max_pool1d(x, 3, return_indices=True)[1].to(D) + (0 * x).nan_to_num().sum(), r(1, 2, 7), second=False)
case("indices_3d", lambda x: F.max_pool3d(x, 2, return_indices=True)[1].to(D) + (0 * x).nan_to_num().sum(), r(1, 2, 4, 2, 5), second=False)
i = F.max_pool2d(r(2, 2, 4, 6), 2, return_indices=True)[1]
case("unpool", lambda x, i: F.max_unpool2d(x, i, 2), r(2, 2, 2, 3), i)
i = F.max_pool2d(r(1, 2, 5, 7), 2, return_indices=True)[1]
case("unpool_size", lambda x, i: F.max_unpool2d(x, i, 2, output_size=(5, 7)), r(1, 2, 2, 3), i)
i = F.max_pool1d(r(2, 1, 9), 3, return_indices=True)[1]
case("unpool_1d", lambda x, i: F.max_unpool1d(x, i, 3), r(2, 1, 3), i)
i = F.max_pool3d(r(1, 2, 4, 2, 4), 2, return_indices=True)[1]
case("unpool_3d", lambda x, i: F.max_unpool3d(x, i, 2), r(1, 2, 2, 1, 2), i)
for name, shape, size in [("1d", (2, 2, 7), 3), ("2d", (1, 2, 5, 7), (3, 2)), ("even", (1, 2, 6, 8), (3, 2)),
                          ("up", (1, 2, 3, 2), (5, 3)), ("mixed", (1, 2, 6, 7), (3, 4)), ("one", (2, 2, 3, 5), (1, 1)),
                          ("same", (1, 1, 3, 2), (3, 2)), ("3d", (1, 1, 3, 4, 5), (2, 4, 3)), ("none", (0, 2, 5, 4), (3, 3))]:
    n = len(shape) - 2
    ave = [F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d][n - 1]
    most = [F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d][n - 1]
    case("aavg_" + name, lambda x: ave(x, size), r(*shape))
    case("amax_" + name, lambda x: most(x, size), r(*shape))
case("amax_ties", lambda x: F.adaptive_max_pool2d(x, (3, 4)), ties)
case("aavg_wide", lambda x: F.adaptive_avg_pool1d(x, 3), r(1, 2, 100))  # more than 32 taps
case("gavg_3d", lambda x: x.mean((2, 3, 4)), r(2, 3, 2, 3, 2))
case("gmax_2d", lambda x: x.amax((2, 3)), r(2, 3, 4, 3))

# interpolation
near = lambda mode, **k: (lambda x: F.interpolate(x, mode=mode, **k))
inter = lambda mode, **k: (lambda x: F.interpolate(x, mode=mode, align_corners=False, **k))
corners = lambda mode, **k: (lambda x: F.interpolate(x, mode=mode, align_corners=True, **k))
case("near_up2", near("nearest", scale_factor=2), r(1, 2, 3, 4))
case("near_down", near("nearest", size=(2, 3)), r(1, 2, 4, 9))
case("near_odd", near("nearest", size=(7, 2)), r(1, 2, 3, 5))
case("near_scale", near("nearest", scale_factor=1.7), r(2, 2, 7))
case("near_3d", near("nearest", size=(3, 2, 5)), r(1, 1, 2, 3, 4))
case("exact_odd", near("nearest-exact", size=(7, 2)), r(1, 2, 3, 5))
case("exact_scale", near("nearest-exact", scale_factor=(0.6, 2.3)), r(1, 2, 7, 3))
case("lin1d", inter("linear", size=7), r(2, 2, 3))
case("lin1d_scale", inter("linear", scale_factor=2.3), r(2, 2, 4))
case("lin1d_scale_same", inter("linear", scale_factor=1.1), r(1, 2, 4))
case("lin1d_corners", corners("linear", size=7), r(2, 2, 3))
case("lin1d_one", corners("linear", size=1), r(2, 2, 3))
case("lin1d_from_one", inter("linear", size=4), r(2, 2, 1))
case("bilin_up2", inter("bilinear", scale_factor=2), r(1, 2, 3, 4))
case("bilin_down", inter("bilinear", size=(2, 3)), r(1, 2, 5, 7))
case("bilin_mixed", inter("bilinear", scale_factor=(1.5, 0.4)), r(1, 2, 5, 7))
case("bilin_corners", corners("bilinear", size=(5, 2)), r(1, 2, 3, 4))
case("bilin_corners_scale", corners("bilinear", scale_factor=2.5), r(1, 1, 3, 2))
case("trilin", inter("trilinear", size=(3, 5, 2)), r(1, 1, 2, 3, 3))
case("trilin_corners", corners("trilinear", scale_factor=(2, 1, 0.5)), r(1, 1, 2, 3, 4))
case("bicub_up2", inter("bicubic", scale_factor=2), r(1, 2, 3, 4))
case("bicub_down", inter("bicubic", size=(3, 2)), r(1, 1, 7, 5))
case("bicub_corners", corners("bicubic", size=(5, 6)), r(1, 2, 3, 4))
case("bicub_scale", inter("bicubic", scale_factor=(1.6, 0.7)), r(1, 1, 5, 6))
case("bicub_one", inter("bicubic", size=(3, 3)), r(1, 1, 1, 2))
case("area", near("area", size=(3, 4)), r(1, 2, 5, 6))
case("lin_many", inter("linear", size=90), r(1, 1, 2))  # more than 32 taps on the way back
case("shuffle", lambda x: F.pixel_shuffle(x, 2), r(1, 8, 2, 3))
case("shuffle_3", lambda x: F.pixel_shuffle(x, 3), r(9, 1, 2))
case("unshuffle", lambda x: F.pixel_unshuffle(x, 2), r(2, 1, 2, 4, 6))

save("ops_windows")
