"""Writes tests/data/ops_windows.safetensors: transposed convolution, pooling, norms, interpolation (see cases.py). Read by
tests/test_golden_windows.c. Run: python3 tests/golden/make_windows.py (needs torch and safetensors)."""

import torch
import torch.nn.functional as F

from cases import D, case, r, save

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

save("ops_windows")
