"""Attention and what transformers are made of, in float64 (see cases.py): torch's scaled_dot_product_attention, rotary and
sinusoidal positions from their papers, for tests/data/ops_attention.safetensors; nn.MultiheadAttention and
nn.TransformerEncoderLayer for tests/data/layers_attention.safetensors, without second derivatives. Read by
tests/test_golden_attention.c, which has a case of the same name for each."""

import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases import D, case, out, pos, r, save

torch.manual_seed(7)


def qkv(b, h, g, tq, tk, d, e):
    return r(b, h, tq, d), r(b, g, tk, d), r(b, g, tk, e)


def sdpa(q, k, v, **o):
    """The definition's own kernel. A row without any key gives NaN there in some versions: it is 0 with gradient 0."""
    mask = o.get("attn_mask")
    empty = None
    if mask is not None:
        seen = mask if mask.dtype == torch.bool else mask > -math.inf
        empty = ~seen.any(-1, keepdim=True)
        if empty.any():
            fill = torch.ones((), dtype=torch.bool) if mask.dtype == torch.bool else torch.zeros((), dtype=D)
            o["attn_mask"] = torch.where(empty, fill, mask)
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(q, k, v, **o)
    return y if empty is None or not empty.any() else torch.where(empty, torch.zeros((), dtype=D), y)


case("plain", sdpa, *qkv(2, 3, 3, 4, 5, 4, 3))
case("scale", lambda q, k, v: sdpa(q, k, v, scale=0.3), *qkv(1, 2, 2, 3, 4, 4, 4))
case("causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), *qkv(2, 2, 2, 5, 5, 4, 4))
case("causal_long_keys", lambda q, k, v: sdpa(q, k, v, is_causal=True), *qkv(1, 2, 2, 3, 6, 2, 4))
case("causal_long_rows", lambda q, k, v: sdpa(q, k, v, is_causal=True), *qkv(1, 2, 2, 6, 3, 2, 4))
case("grouped", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), *qkv(2, 4, 2, 3, 5, 4, 3))
case("grouped_one_causal", lambda q, k, v: sdpa(q, k, v, enable_gqa=True, is_causal=True), *qkv(1, 3, 1, 4, 4, 4, 4))
case("one_row", sdpa, *qkv(2, 2, 2, 1, 7, 4, 4))
case("large", lambda q, k, v: sdpa(q, k, v, scale=2.0), *qkv(1, 2, 2, 4, 5, 4, 4), second=False)
case("long", lambda q, k, v: sdpa(q, k, v, is_causal=True), *qkv(1, 1, 1, 70, 70, 6, 5), second=False)

bool_mask = (torch.rand(4, 6) < 0.6) | (torch.arange(6) == 1)
case("bool_mask", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), *qkv(2, 2, 2, 4, 6, 4, 3), bool_mask)
key_mask = (torch.rand(2, 1, 1, 6) < 0.6) | (torch.arange(6) == 2)
case("key_mask", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), *qkv(2, 2, 2, 4, 6, 4, 3), key_mask)
nothing = torch.rand(2, 1, 4, 6) < 0.5
nothing[:, :, 2, :] = False
nothing[:, :, 3, 0] = True
case("row_of_nothing", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), *qkv(2, 2, 2, 4, 6, 4, 3), nothing)
case("added_mask", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), *qkv(2, 3, 3, 4, 5, 4, 3), r(1, 3, 4, 5))
case("minus_infinity", lambda q, k, v, m: sdpa(q, k, v, attn_mask=torch.where(m, 0.25, -math.inf).to(D)),
     *qkv(2, 2, 2, 4, 6, 4, 3), nothing)


def rope(offset, base):
    def f(x):
        time, d = x.shape[-2:]
        angle = torch.outer(torch.arange(offset, offset + time, dtype=D), base ** (-torch.arange(0, d, 2, dtype=D) / d))
        a, b = x[..., : d // 2], x[..., d // 2:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)
    return f


def sinusoidal(offset):
    def f(x):
        time, d = x.shape[-2:]
        angle = torch.outer(torch.arange(offset, offset + time, dtype=D), 10000.0 ** (-torch.arange(0, d, 2, dtype=D) / d))
        return x + torch.stack([angle.sin(), angle.cos()], -1).reshape(time, d)
    return f


case("rope", rope(0, 10000.0), r(2, 2, 5, 6))
case("rope_offset", rope(11, 500.0), r(3, 4))
case("sinusoidal", sinusoidal(0), r(2, 5, 6))
case("sinusoidal_offset", sinusoidal(30), r(4, 2))

save("ops_attention")
out.clear()


def mha(heads, **o):
    """x, in_proj_weight, in_proj_bias, out_proj.weight, out_proj.bias, then what else it attends to."""
    def f(x, w, b, ow, ob, *other):
        m = torch.nn.MultiheadAttention(x.shape[2], heads, batch_first=True, dtype=D)
        names = dict(in_proj_weight=w, in_proj_bias=b)
        names["out_proj.weight"], names["out_proj.bias"] = ow, ob
        key = other[0] if len(other) > 0 else x
        value = other[1] if len(other) > 1 else key
        mask = o.get("mask")
        if o.get("causal"):
            mask = torch.ones(x.shape[1], key.shape[1], dtype=torch.bool).triu(1)
        return torch.func.functional_call(m, names, (x, key, value), dict(need_weights=False, attn_mask=mask))[0]
    return f


def mha_weights(d):
    return r(3 * d, d) * 0.5, r(3 * d), r(d, d) * 0.5, r(d)


case("mha", mha(2), r(2, 4, 6), *mha_weights(6), second=False)
case("mha_causal", mha(3, causal=True), r(2, 4, 6), *mha_weights(6), second=False)
case("mha_cross", mha(2), r(2, 3, 4), *mha_weights(4), r(2, 5, 4), second=False)
case("mha_three", mha(2), r(2, 3, 4), *mha_weights(4), r(2, 5, 4), r(2, 5, 4), second=False)


def encoder(norm_first, activation):
    """x, in_proj_weight, in_proj_bias, out_proj.*, linear1.*, linear2.*, norm1.*, norm2.* (weight, bias)."""
    def f(x, *p):
        m = torch.nn.TransformerEncoderLayer(x.shape[2], 2, p[4].shape[0], 0.0, activation, batch_first=True,
                                             norm_first=norm_first, dtype=D)
        names = ["self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight", "self_attn.out_proj.bias",
                 "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias", "norm1.weight", "norm1.bias",
                 "norm2.weight", "norm2.bias"]
        return torch.func.functional_call(m, dict(zip(names, p)), (x,))
    return f


def encoder_weights(d, f):
    w, b, ow, ob = mha_weights(d)
    return w, b, ow, ob, r(f, d), r(f), r(d, f), r(d), pos(d), r(d), pos(d), r(d)


case("encoder", encoder(False, "relu"), r(2, 3, 4), *encoder_weights(4, 5), second=False)
case("encoder_norm_first", encoder(True, "gelu"), r(2, 3, 4), *encoder_weights(4, 5), second=False)


save("layers_attention")
