"""Writes tests/data/ops.safetensors: small cases of ops (see cases.py). Read by tests/test_golden_ops.c.
Run: python3 tests/golden/make_ops.py (needs torch and safetensors)."""

import torch
import torch.nn.functional as F

from cases import D, case, idx, pos, r, save, t

torch.manual_seed(20240229)

# convolution
case("conv1d", lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), r(2, 3, 9), r(4, 3, 3), r(4))
case("conv2d", F.conv2d, r(2, 3, 6, 5), r(4, 3, 3, 2), r(4))
case("conv2d_asym", lambda x, w: F.conv2d(F.pad(x, (0, 1, 1, 2)), w, stride=(2, 1), dilation=(1, 2)),
     r(2, 2, 6, 7), r(3, 2, 3, 3))
case("conv2d_groups", lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=2), r(2, 4, 5, 5), r(6, 2, 3, 3), r(6))
case("conv2d_depthwise", lambda x, w: F.conv2d(x, w, padding=1, stride=2, groups=4), r(2, 4, 6, 6), r(4, 1, 3, 3))
case("conv2d_1x1_s2", lambda x, w: F.conv2d(x, w, stride=2), r(2, 3, 5, 6), r(4, 3, 1, 1))
case("conv3d", lambda x, w, b: F.conv3d(x, w, b, stride=(1, 2, 1), padding=(1, 0, 1)), r(1, 2, 3, 5, 4),
     r(3, 2, 2, 3, 2), r(3))

# pooling
case("max_pool_2", lambda x: F.max_pool2d(x, 2), r(2, 3, 6, 5))
case("max_pool_3s2p1", lambda x: F.max_pool2d(x, 3, 2, 1), r(2, 2, 7, 6))
case("max_pool_ties", lambda x: F.max_pool2d(x, 3, 1, 1), torch.randint(-2, 2, (2, 2, 6, 6)).to(D))
case("max_pool_1d", lambda x: F.max_pool1d(x, 3, 2), r(2, 3, 8))
case("max_pool_3d", lambda x: F.max_pool3d(x, 2, 1), r(1, 2, 3, 4, 3))
case("max_pool_inf", lambda x: F.max_pool2d(x, 2, 1, 1), torch.full((1, 1, 2, 2), -torch.inf, dtype=D), second=False)
case("avg_pool_2", lambda x: F.avg_pool2d(x, 2), r(2, 3, 6, 5))
case("avg_pool_3s2p1", lambda x: F.avg_pool2d(x, 3, 2, 1), r(2, 2, 7, 6))
case("avg_pool_exclude", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), r(2, 2, 7, 6))
case("avg_pool_3d", lambda x: F.avg_pool3d(x, (1, 2, 3), (1, 1, 2)), r(1, 2, 3, 4, 5))


# norms
def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True, eps=1e-5)


def batch_norm_stats(x, w, b):  # the statistics take part
    axes = [0, 2, 3]
    mean, var = x.mean(axes), x.var(axes, unbiased=False)
    return batch_norm(x, w, b) + (mean * var)[None, :, None, None]


case("batch_norm", batch_norm, r(3, 2, 4, 3) * 2 + 5, r(2), r(2))
case("batch_norm_rows", batch_norm, r(5, 3), r(3), r(3))
case("batch_norm_stats", batch_norm_stats, r(3, 2, 2, 3), r(2), r(2))
case("layer_norm", lambda x, w, b: F.layer_norm(x, [5], w, b, 1e-5), r(3, 4, 5) + 3, r(5), r(5))
case("layer_norm_2", lambda x, w, b: F.layer_norm(x, [4, 5], w, b, 1e-3), r(3, 4, 5), r(4, 5), r(4, 5))
case("layer_norm_plain", lambda x: F.layer_norm(x, [5], None, None, 1e-5), r(6, 5))

# softmax and losses
case("softmax", lambda x: F.softmax(x, -1), r(4, 7) * 3)
case("softmax_axis1", lambda x: F.softmax(x, 1), r(2, 3, 4))
case("log_softmax", lambda x: F.log_softmax(x, -1), r(4, 7) * 3)
case("cross_entropy", F.cross_entropy, r(6, 5), idx([0, 4, 2, 2, 1, 3]))
case("cross_entropy_far", F.cross_entropy, t([800.0, -800.0, 3.0], [1.0, 2.0, 1000.0]), idx([1, 2]))
case("cross_entropy_probs", lambda x, p: -(p * F.log_softmax(x, -1)).sum(-1).mean(), r(4, 5), pos(4, 5))
case("cross_entropy_rows", lambda x, y: F.cross_entropy(x.movedim(-1, 1), y, reduction="none"), r(2, 3, 4),
     idx([[0, 1, 2], [3, 3, 0]]))
case("mse", F.mse_loss, r(3, 4), r(3, 4))

# embedding, index
case("embedding", lambda w, i: F.embedding(i, w), r(6, 3), idx([[1, 5, 1], [0, 1, 2]]))
i = idx([[0, 2, 0], [1, 2, 1], [2, 0, 1], [0, 0, 2]])
case("gather", lambda x, i: torch.gather(x, 1, i), r(4, 3), i)
case("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), r(4, 3), i, r(4, 3))
case("scatter_set", lambda x, i, s: x.scatter(1, i, s), r(3, 5), idx([[0, 2], [1, 4], [2, 3]]), r(3, 2))
case("scatter_max", lambda x, i, s: x.scatter_reduce(1, i, s, "amax", include_self=True), r(4, 3), i, r(4, 3),
     second=False)
case("scatter_max_ties", lambda x, i, s: x.scatter_reduce(1, i, s, "amax", include_self=True),
     t([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]), idx([[0, 0, 1], [2, 2, 2]]), t([1.0, 0.0, 5.0], [4.0, 4.0, 1.0]),
     second=False)

# pointwise
case("pow_square", lambda x: x ** 2, t(-2.0, -0.5, 0.0, 0.5, 3.0))
case("pow_cube", lambda x: x ** 3, t(-2.0, -0.5, 0.0, 0.5, 3.0))
case("pow_half", lambda x: x ** 0.5, pos(5))
case("pow_zero", lambda x: x ** 0, t(-2.0, 0.0, 3.0))
case("pow", lambda x, y: x ** y, pos(4, 3), r(4, 3))
case("pow_zero_base", lambda x, y: x ** y, t(0.0, 0.0, 0.0, 2.0), t(0.0, 1.0, 2.0, 0.0), second=False)
case("pow_exponent", lambda y: 2.5 ** y, r(5))
case("max_ties", torch.maximum, t(1.0, 2.0, 3.0, 4.0), t(2.0, 2.0, 3.0, 0.0))
case("min_ties", torch.minimum, t(1.0, 2.0, 3.0, 4.0), t(2.0, 2.0, 3.0, 0.0))
case("relu", F.relu, t(-1.0, -0.0, 0.0, 1e-30, 2.0))
case("abs", lambda x: x.abs(), t(-1.0, 0.5, 2.0))
case("mod", torch.remainder, t(5.5, -5.5, 5.5, -5.5, 1.0), t(2.0, 2.0, -2.0, -2.0, 0.1))
case("div", lambda a, b: a / b, r(3, 4), pos(4))
case("atan", torch.atan, r(6))
case("erf", torch.erf, r(6))
case("gelu", F.gelu, r(6) * 2)
case("silu", F.silu, r(6) * 2)
case("sigmoid", torch.sigmoid, t(-800.0, -2.0, 0.0, 3.0, 800.0))
case("tanh", torch.tanh, r(6))
case("sqrt_log", lambda x: torch.log(x) * torch.sqrt(x), pos(6))
case("sin_cos", lambda x: torch.sin(x) * torch.cos(2 * x), r(6))
case("where", lambda a, b: torch.where(a < b, a * b, a), r(3, 4), r(4))

# reduce and order
case("amax_ties", lambda x: torch.amax(x, 1), t([1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, 5.0]), second=False)
case("amin", lambda x: torch.amin(x, (0, 2)), r(2, 3, 4), second=False)
case("prod_axis", lambda x: torch.prod(x, 1), r(2, 5, 3))
case("prod_zeros", lambda x: torch.prod(x, 1), t([1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]))
case("prod_two_axes", lambda x: torch.prod(torch.prod(x, 2), 0), r(3, 2, 4))
case("mean", lambda x: x.mean((0, 2)), r(2, 3, 4))
case("cumsum", lambda x: torch.cumsum(x, 1), r(2, 5))
case("cumsum_reverse", lambda x: torch.flip(torch.cumsum(torch.flip(x, [0]), 0), [0]), r(4, 2))
case("sort", lambda x: torch.sort(x, dim=1, stable=True)[0], r(3, 6))
case("sort_descending", lambda x: torch.sort(x, dim=0, descending=True, stable=True)[0],
     torch.randint(0, 3, (6, 2)).to(D))

# contractions
case("linear", F.linear, r(2, 3, 5), r(4, 5), r(4))
case("linear_relu", lambda x, w, b: F.relu(F.linear(x, w, b)), r(3, 5), r(4, 5), r(4))
case("matmul", torch.matmul, r(3, 4), r(4, 2))
case("matmul_batch", torch.matmul, r(2, 1, 3, 4), r(5, 4, 2))
case("matmul_vector", torch.matmul, r(4), r(3, 4, 2))
case("dot", torch.matmul, r(2, 3, 4), r(2, 4, 5))

# movement
case("slice_step", lambda x: x[1:6:2, 0:5:3], r(7, 5))
case("pad_interior", lambda x: F.pad(torch.stack([x, torch.full_like(x, 2.0)], 1).flatten(0, 1)[:-1],
                                     (1, 0), value=2.0), r(3, 2))
case("concat", lambda a, b: torch.cat([a, b, a], 1), r(2, 3), r(2, 1))
case("permute_expand", lambda x: (x.permute(2, 0, 1)[:, :, None] * x.new_ones(1, 1, 3, 1)), r(2, 3, 4))

# activations, at their kinks and far out too
wide = t(-90.0, -30.0, -6.5, -3.0, -1.5, -0.25, -1e-5, 1e-5, 0.25, 1.5, 2.9, 3.5, 6.5, 30.0)
case("relu6", F.relu6, wide)
case("leaky_relu", lambda x: F.leaky_relu(x, 0.2), wide)
case("elu", lambda x: F.elu(x, 1.5), wide)
case("selu", F.selu, wide)
case("celu", lambda x: F.celu(x, 0.5), wide)
case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), wide)
case("softplus", lambda x: F.softplus(x, threshold=1000.0), wide)
case("log_sigmoid", F.logsigmoid, wide)
case("mish", F.mish, wide)
case("softsign", F.softsign, wide)
# PyTorch's own two have 1/6 in single precision
inside = lambda x: (x > -3) & (x < 3)
case("hard_sigmoid", lambda x: torch.where(inside(x), x / 6 + 0.5, (x > 0).to(D)), wide)
case("hard_swish", lambda x: torch.where(inside(x), x * (x + 3) / 6, torch.where(x > 0, x, 0 * x)), wide)
case("hard_tanh", lambda x: F.hardtanh(x, -2.0, 1.0), wide)
case("glu", lambda x: F.glu(x, 1), r(2, 6, 3))
case("reglu", lambda x: x.chunk(2, -1)[0] * F.relu(x.chunk(2, -1)[1]), r(3, 8))
case("geglu", lambda x: x.chunk(2, -1)[0] * F.gelu(x.chunk(2, -1)[1]), r(3, 8))
case("swiglu", lambda x: x.chunk(2, -1)[0] * F.silu(x.chunk(2, -1)[1]), r(3, 8))
case("prelu", F.prelu, r(2, 3, 4, 2), r(3))
case("prelu_one", F.prelu, r(4, 5), r(1))

# losses
signs = t(1.0, -1.0, 1.0, -1.0)
case("l1_loss", F.l1_loss, r(3, 4), r(3, 4))
case("l1_loss_none", lambda a, b: F.l1_loss(a, b, reduction="none"), r(3, 4), r(3, 4))
case("mse_loss_sum", lambda a, b: F.mse_loss(a, b, reduction="sum"), r(3, 4), r(3, 4))
case("huber_loss", lambda a, b: F.huber_loss(a, b, delta=0.8), r(5, 4), r(5, 4))
case("smooth_l1_loss", lambda a, b: F.smooth_l1_loss(a, b, beta=0.6), r(5, 4), r(5, 4))
case("gaussian_nll_loss", lambda m, y, v: F.gaussian_nll_loss(m, y, v), r(4, 3), r(4, 3), pos(4, 3))
case("gaussian_nll_full", lambda m, y, v: F.gaussian_nll_loss(m, y, v, full=True, reduction="sum"), r(4, 3), r(4, 3), pos(4, 3))
case("poisson_nll_loss", lambda x, y: F.poisson_nll_loss(x, y), r(4, 3), pos(4, 3))
case("bce_with_logits_loss", F.binary_cross_entropy_with_logits, r(4, 3) * 20, torch.rand(4, 3).to(D))


def bce_pos_weight(x, y, w):  # PyTorch's own has no gradient with respect to the weight: written out, and compared
    own = -(w * y * F.logsigmoid(x) + (1 - y) * F.logsigmoid(-x)).mean()
    assert torch.allclose(own, F.binary_cross_entropy_with_logits(x, y, pos_weight=w.detach()), rtol=1e-12)
    return own


case("bce_pos_weight", bce_pos_weight, r(4, 3), torch.rand(4, 3).to(D), pos(3))


def focal(x, y, alpha=0.25, gamma=2.0):  # as torchvision.ops.sigmoid_focal_loss writes it
    p = torch.sigmoid(x)
    p_t = p * y + (1 - p) * (1 - y)
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none") * (1 - p_t) ** gamma
    return ((alpha * y + (1 - alpha) * (1 - y)) * loss).mean()


def dice(x, y):
    p, y = torch.sigmoid(x).flatten(1), y.flatten(1)
    return (1 - (2 * (p * y).sum(1) + 1) / (p.sum(1) + y.sum(1) + 1)).mean()


case("focal_loss", focal, r(4, 3), torch.randint(0, 2, (4, 3)).to(D))
case("dice_loss", dice, r(2, 1, 4, 3), torch.randint(0, 2, (2, 1, 4, 3)).to(D))
case("hinge_loss", lambda x, y: torch.clamp(1 - x * y, min=0).mean(), r(4), signs)
case("kl_div_loss", lambda x, y: F.kl_div(x, y, reduction="mean"), r(3, 4), pos(3, 4))
labels = idx([0, 4, 2, 2, 1, 3])


def ce(x, y, w, ignore=-100, smooth=0.0, reduction="mean"):  # the same: no gradient with respect to the weight
    log_p, there = F.log_softmax(x, -1), (y != ignore).to(D)
    index = torch.where(y == ignore, 0, y)
    rows = -(1 - smooth) * w[index] * log_p.gather(-1, index[..., None])[..., 0] * there
    rows = rows - smooth / x.shape[-1] * (log_p * w).sum(-1) * there
    own = rows.sum() / (w[index] * there).sum() if reduction == "mean" else rows
    theirs = F.cross_entropy(x.movedim(-1, 1), y, w.detach(), ignore_index=ignore, label_smoothing=smooth, reduction=reduction)
    assert torch.allclose(own, theirs, rtol=1e-12)
    return own


case("ce_smoothing", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), r(6, 5), labels)
case("ce_weight", ce, r(6, 5), labels, pos(5))
case("ce_ignore", lambda x, y: F.cross_entropy(x, y, ignore_index=2), r(6, 5), labels)
case("ce_all", lambda x, y, w: ce(x, y, w, 2, 0.2), r(6, 5), labels, pos(5))
case("ce_all_rows", lambda x, y, w: ce(x, y, w, 1, 0.2, "none"), r(2, 3, 4), idx([[0, 1, 2], [3, 3, 0]]), pos(4))
case("cosine_similarity", lambda a, b: F.cosine_similarity(a, b, -1), r(4, 5), r(4, 5))


def cosine_embedding(a, b):  # PyTorch's own adds 1e-12 to the squared norms
    c = F.cosine_similarity(a, b, -1)
    own = torch.where(signs > 0, 1 - c, F.relu(c + 0.9)).mean()
    assert torch.allclose(own, F.cosine_embedding_loss(a, b, signs, margin=-0.9), rtol=1e-11)
    return own


case("cosine_embedding_loss", cosine_embedding, r(4, 5), r(4, 5))
case("triplet_loss", lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=1.5), r(4, 5), r(4, 5), r(4, 5))
case("contrastive_loss", lambda a, b: torch.where(signs > 0, F.pairwise_distance(a, b) ** 2,
                                                   F.relu(4 - F.pairwise_distance(a, b)) ** 2).mean(), r(4, 5), r(4, 5))

save("ops")
