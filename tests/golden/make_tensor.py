"""Writes tests/data/ops_tensor.safetensors: ops that are made of other ops (see cases.py). Read by tests/test_golden_tensor.c.
Run: python3 tests/golden/make_tensor.py (needs torch and safetensors)."""

import math

import torch
import torch.nn.functional as F

from cases import D, case, idx, pos, r, save, t

torch.manual_seed(20261130)
inf, nan = math.inf, math.nan


# einsum: matrix products, batches, outer products, traces, diagonals, broadcasting, orders of contraction
def einsum(name, equation, *shapes):
    case("einsum_" + name, lambda *xs: torch.einsum(equation, *xs), *[r(*s) for s in shapes])


einsum("matmul", "ij,jk->ik", (3, 4), (4, 5))
einsum("implicit", "kj, ji", (3, 4), (4, 2))
einsum("capitals", "bA,Ac", (3, 4), (4, 2))
einsum("batch", "bij,bkj->bik", (2, 3, 5), (2, 4, 5))
einsum("attention", "bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4))
einsum("outer", "i,j->ji", (3,), (4,))
einsum("inner", "i,i->", (7,), (7,))
einsum("trace", "ii", (5, 5))
einsum("diagonal", "bii->ib", (2, 4, 4))
einsum("diagonal_twice", "ijij->ij", (2, 3, 2, 3))
einsum("diagonal_three", "iii->i", (3, 3, 3))
einsum("transpose", "abc->cab", (2, 3, 4))
einsum("sum", "abc->b", (2, 3, 4))
einsum("scalar", ",ij->ij", (), (2, 3))
einsum("ellipsis", "...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2))
einsum("ellipsis_implicit", "i...j,j...", (3, 2, 4), (4, 2))
einsum("ellipsis_summed", "...i->i", (2, 3, 4))
einsum("size_one", "ij,ij->i", (3, 1), (3, 4))
einsum("hadamard", "ij,ij->ij", (3, 4), (3, 4))
einsum("three", "ij,jk,kl->il", (2, 9), (9, 3), (3, 4))
einsum("bilinear", "bi,oij,bj->bo", (2, 3), (4, 3, 5), (2, 5))
einsum("four", "ai,bi,ci,di->abcd", (2, 3), (3, 3), (2, 3), (1, 3))
einsum("chain_four", "ab,bc,cd,de->ae", (2, 5), (5, 1), (1, 6), (6, 3))
einsum("one", "i,ij->j", (1,), (1, 3))

einsum("empty", "ij,jk->ik", (2, 0), (0, 3))
einsum("no_rows", "bij,bjk->bik", (0, 2, 3), (0, 3, 2))
einsum("ellipsis_one", "...i,...i->...", (2, 1, 3), (1, 4, 3))

# picking
case("topk", lambda x: (lambda v: v.values * (1 + v.indices))(torch.topk(x, 3, 1)), r(2, 5, 3))
case("topk_smallest", lambda x: (lambda v: v.values * (1 + v.indices))(torch.topk(x, 2, -1, largest=False)), r(3, 7))
case("topk_all", lambda x: torch.topk(x, 4, 0).values, r(4, 2))
case("topk_nan", lambda x: torch.topk(x, 2).values, t([1.0, nan, 3.0, inf], [-inf, -2.0, 0.0, -0.5]), second=False)
case("masked_fill", lambda x, m: x.masked_fill(m, -3.0), r(3, 2, 4), torch.tensor([[True, False, False, True]]))
case("index_select", lambda x, i: torch.index_select(x, 1, i), r(2, 5, 3), idx([4, 0, 0, 2]))
case("index_select_0", lambda x, i: torch.index_select(x, 0, i), r(4, 3), idx([3]))
case("index_select_last", lambda x, i: torch.index_select(x, -1, i), r(2, 3, 5), idx([1, 1, 4, 0, 3, 1]))
case("index_select_none", lambda x, i: torch.index_select(x, 1, i), r(2, 5), idx([]))
gi = idx([[0, 2], [1, 0], [0, 2]])
case("gather_nd", lambda x, i: x[i[:, 0], i[:, 1]], r(2, 3, 4), gi)
case("gather_nd_all", lambda x, i: x[i[:, 0], i[:, 1]], r(2, 3), gi)
case("gather_nd_rows", lambda x, i: x[i[..., 0]], r(3, 2), idx([[[2], [0]], [[2], [2]]]))
case("scatter_nd_add", lambda b, i, s: b.index_put((i[:, 0], i[:, 1]), s, accumulate=True), r(2, 3, 4), gi, r(3, 4))

# arranging
case("stack", lambda a, b: torch.stack([a, b, a], -1), r(2, 3), r(2, 3))
case("stack_front", lambda a, b: torch.stack([a, b]), r(3), r(3))
case("split", lambda x: (lambda p: torch.cat([p[2], p[0]], 1))(torch.split(x, [2, 1, 4], 1)), r(2, 7, 2))
case("chunk", lambda x: (lambda p: p[2] * p[0][:, :1])(torch.chunk(x, 3, -1)), r(2, 7))
case("tile", lambda x: x.repeat(2, 1, 3), r(3, 2))
case("tile_none", lambda x: x.repeat(2, 0), r(3, 2))
case("repeat_interleave", lambda x: torch.repeat_interleave(x, 3, 1), r(2, 3, 2))
case("roll", lambda x: torch.roll(x, 2, 1), r(2, 5, 2))
case("roll_back", lambda x: torch.roll(x, -13, 0), r(5, 2))
case("roll_empty", lambda x: torch.roll(x, 2, 0), r(0, 3))
case("flip_one", lambda x: torch.flip(x, [0, 1]), r(1, 1))
case("flip", lambda x: torch.flip(x, [0, 2]), r(2, 3, 4))
case("tril", lambda x: torch.tril(x), r(2, 3, 4))
case("tril_up", lambda x: torch.tril(x, 2), r(4, 5))
case("tril_far", lambda x: torch.tril(x, -9), r(3, 2))
case("triu", lambda x: torch.triu(x, 1), r(4, 4))
case("triu_down", lambda x: torch.triu(x, -1), r(5, 3))
case("triu_nan", lambda x: torch.triu(x), t([1.0, 2.0], [nan, inf]), second=False)
case("pad_reflect", lambda x: F.pad(x, (3, 2, 1, 2), mode="reflect"), r(1, 2, 3, 4))
case("pad_reflect_1d", lambda x: F.pad(x, (0, 4), mode="reflect"), r(2, 1, 5))
case("pad_replicate", lambda x: F.pad(x, (3, 0, 1, 7), mode="replicate"), r(1, 2, 1, 4))
case("pad_circular", lambda x: F.pad(x, (4, 1, 0, 3), mode="circular"), r(1, 2, 3, 4))

# statistics
norm = torch.linalg.vector_norm
some = t([1.0, -2.0, 0.0, 3.0], [0.5, 0.0, -0.25, 4.0], [-1.0, 1.0, 2.0, 0.125])
case("norm_2", lambda x: norm(x, 2, 1), r(3, 5, 2))
case("norm_2_zero", lambda x: norm(x, 2, 1), t([0.0, 0.0], [3.0, -4.0]), second=False)
case("norm_1", lambda x: norm(x, 1, -1, keepdim=True), some)
case("norm_3", lambda x: norm(x, 3, (0, 2)), r(2, 3, 4))
case("norm_1_5", lambda x: norm(x, 1.5, 1), some, second=False)
case("norm_half", lambda x: norm(x, 0.5, 1), pos(3, 4))
case("norm_minus_2", lambda x: norm(x, -2, 1), pos(3, 4))
case("norm_inf", lambda x: norm(x, inf, 1), t([1.0, -3.0, 3.0, 0.0], [2.0, 1.0, -1.0, -2.0], [0.0, 0.0, 0.0, 0.0]), second=False)
case("norm_minus_inf", lambda x: norm(x, -inf, 1), t([1.0, -3.0, 3.0], [-2.0, 5.0, 2.0]), second=False)
case("norm_0", lambda x: norm(x, 0, 1), some)
case("norm_empty", lambda x: norm(x, 2, 1), r(3, 0))
case("logsumexp", lambda x: torch.logsumexp(x, 1), r(3, 5, 2) * 3)
case("logsumexp_axes", lambda x: torch.logsumexp(x, (0, 2), keepdim=True), r(2, 3, 4))
case("logsumexp_empty", lambda x: torch.logsumexp(x, 1), r(2, 0), second=False)
case("logsumexp_far", lambda x: torch.logsumexp(x, 1), t([900.0, 901.0], [-900.0, -950.0], [-inf, 2.0]))
# of a row that is all -inf: -inf, and no gradient (PyTorch's is NaN)
case("logsumexp_all_inf", lambda x: torch.cat([torch.logsumexp(x[:1].detach(), 1), torch.logsumexp(x[1:], 1)]) * 2,
     t([-inf, -inf], [1.0, 2.0]), second=False)
case("logsumexp_inf", lambda x: torch.logsumexp(x.detach(), 1) + 0 * x.nan_to_num(0, 0, 0).sum(1), t([inf, 2.0], [nan, 2.0]), second=False)
case("var", lambda x: torch.var(x, 1), r(3, 5, 2))
case("var_biased", lambda x: torch.var(x, (0, 1), correction=0, keepdim=True), r(3, 4))
case("var_one", lambda x: torch.var(x, 1), r(2, 1), second=False)
case("std", lambda x: torch.std(x, -1), r(3, 5))
case("std_zero", lambda x: torch.std(x, 1), t([2.0, 2.0, 2.0], [1.0, 2.0, 4.0]), second=False)
case("cumprod", lambda x: torch.cumprod(x, 1), r(2, 7, 2))
case("cumprod_zero", lambda x: torch.cumprod(x, 0), t(2.0, 0.0, 3.0, 0.0, -1.5))
case("cumprod_one", lambda x: torch.cumprod(x, 1), r(3, 1))
case("cummax", lambda x: (lambda v: v.values * (1 + v.indices))(torch.cummax(x, 1)), torch.randint(-3, 4, (3, 9, 2)).to(D))
case("cummin", lambda x: (lambda v: v.values * (1 + v.indices))(torch.cummin(x, -1)), torch.randint(-3, 4, (2, 8)).to(D))
case("cummax_nan", lambda x: torch.cummax(x, 0).values, t(1.0, -inf, 2.0, nan, 3.0, inf), second=False)


# signals
def stft(x, n_fft, hop, win=None, window=None, center=True, normalized=False):
    y = torch.stft(x, n_fft, hop, win, window, center, "reflect", normalized, True, return_complex=True)
    return torch.cat([y.real, y.imag], -2)


def hann(n):
    return torch.hann_window(n, dtype=D)


def mel_filters(bins, low, high, n, rate, scale, area):
    if scale == "htk":
        mel, hz = lambda f: 2595 * math.log10(1 + f / 700), lambda m: 700 * (10 ** (m / 2595) - 1)
    else:
        mel = lambda f: f / (200 / 3) if f < 1000 else 15 + math.log(f / 1000) / (math.log(6.4) / 27)
        hz = lambda m: 200 / 3 * m if m < 15 else 1000 * math.exp(math.log(6.4) / 27 * (m - 15))
    edges = torch.tensor([hz(mel(low) + (mel(high) - mel(low)) * i / (n + 1)) for i in range(n + 2)], dtype=D)
    f = torch.linspace(0, rate / 2, bins, dtype=D)[:, None]
    up, down = (f - edges[:-2]) / (edges[1:-1] - edges[:-2]), (edges[2:] - f) / (edges[2:] - edges[1:-1])
    filters = torch.clamp(torch.minimum(up, down), min=0)
    return filters * 2 / (edges[2:] - edges[:-2]) if area else filters


def log_mel(x, n_fft, hop, rate, n, scale, area, magnitude=False, floor=1e-10, low=0.0, high=None):
    y = torch.stft(x, n_fft, hop, n_fft, hann(n_fft), True, "reflect", False, True, return_complex=True)
    power = y.real ** 2 + y.imag ** 2
    if magnitude:
        power = power.sqrt()
    mel = mel_filters(n_fft // 2 + 1, low, high or rate / 2, n, rate, scale, area).T @ power
    return torch.log(torch.clamp(mel, min=floor))


case("frame", lambda x: x.unfold(-1, 5, 2), r(2, 3, 13))
case("frame_gaps", lambda x: x.unfold(-1, 2, 5), r(2, 14))
case("frame_whole", lambda x: x.unfold(-1, 6, 1), r(6))
case("stft", lambda x: stft(x, 8, 3, window=hann(8)), r(2, 21))
case("stft_odd", lambda x: stft(x, 7, 2, 5, torch.hamming_window(5, dtype=D)), r(12))
case("stft_no_center", lambda x: stft(x, 8, 8, 8, torch.blackman_window(8, dtype=D), center=False), r(2, 1, 20).reshape(2, 20))
case("stft_window", lambda x, w: stft(x, 6, 2, 4, w, normalized=True), r(1, 10), pos(4))
case("stft_rectangular", lambda x: stft(x, 4, 1, window=torch.ones(4, dtype=D)), r(9))
case("log_mel_htk", lambda x: log_mel(x, 16, 5, 16000, 5, "htk", False), r(2, 40))
case("log_mel_slaney", lambda x: log_mel(x, 32, 8, 8000, 6, "slaney", True, magnitude=True, low=100.0, high=3500.0), r(64))
case("log_mel_floor", lambda x: log_mel(x, 16, 8, 16000, 4, "htk", False, floor=1e3), r(32) * 8, second=False)

save("ops_tensor")
