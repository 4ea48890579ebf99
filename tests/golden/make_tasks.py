#!/usr/bin/env python3
"""Writes tests/data/tasks.safetensors: losses of five steps of SGD in double precision, by PyTorch, of what is more than one class
a sample: masks of images (a U-Net with group norm), sequences by CTC (a CRNN), texts of bytes (a transformer's encoder). Parameters
and inputs are not stored: both sides make them from their names (make_models.py, tests/test_tasks.c). Of the last state each
parameter's sum and sum of magnitudes are stored. Run: python3 tests/golden/make_tasks.py (needs torch, safetensors)."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from cases import D, out, save
from make_models import Net, crnn, key_of, noise

STEPS, RATE = 5, 0.05


class Tasks(Net):
    def group_norm(self, x, n, groups):
        c = x.shape[1]
        return F.group_norm(x, groups, self.par(n + ".weight", c), self.par(n + ".bias", c), 1e-5)

    def layer_norm(self, x, n):
        c = x.shape[-1]
        return F.layer_norm(x, (c,), self.par(n + ".weight", c), self.par(n + ".bias", c), 1e-5)


def unet(net, x, base, groups, outputs):
    def double(x, c, name):
        x = F.relu(net.group_norm(net.conv(x, name + ".0", c), name + ".1", groups))
        return F.relu(net.group_norm(net.conv(x, name + ".3", c), name + ".4", groups))

    def up(below, beside, c, name, dec):
        w, b = net.par(name + ".weight", below.shape[1], c, 2, 2), net.par(name + ".bias", c)
        return double(torch.cat([beside, F.conv_transpose2d(below, w, b, stride=2)], 1), c, dec)

    e1 = double(x, base, "enc1")
    e2 = double(F.max_pool2d(e1, 2), 2 * base, "enc2")
    mid = double(F.max_pool2d(e2, 2), 4 * base, "mid")
    d2 = up(mid, e2, 2 * base, "up2", "dec2")
    d1 = up(d2, e1, base, "up1", "dec1")
    return net.conv(d1, "head", outputs, k=1, bias=True)


def transformer(net, x, layers, heads, width, vocabulary, outputs):
    h = F.embedding(x, net.par("embedding.weight", vocabulary, width))
    t = torch.arange(x.shape[1], dtype=D)[:, None] * torch.exp(torch.arange(0, width, 2, dtype=D) * (-math.log(10000.0) / width))
    h = h + torch.stack([torch.sin(t), torch.cos(t)], -1).reshape(x.shape[1], width)
    for i in range(layers):
        at = f"layers.{i}."
        layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True, dtype=D)
        p = {k: net.par(at + k, *v.shape) for k, v in layer.named_parameters()}
        layer.train()
        h = torch.func.functional_call(layer, p, (h,))
    return net.linear(h.mean(1), "fc", outputs)


def task(name, fn, x, loss):
    """fn(net, x) -> outputs; the same batch in each step."""
    net = Tasks(True)
    losses = []
    for step in range(STEPS):
        value = loss(fn(net, x))
        losses.append(value.detach())
        g = torch.autograd.grad(value, list(net.p.values()))
        with torch.no_grad():
            for p, d in zip(net.p.values(), g):
                p -= RATE * d
    out[name + ".losses"] = torch.stack(losses)
    for key, v in net.p.items():
        out[f"{name}.final.{key}"] = torch.stack([v.detach().sum(), v.detach().abs().sum()])


def image(name, *shape):
    return torch.from_numpy(4 * noise(key_of(name), int(np.prod(shape)))).reshape(shape)


def whole(name, most, *shape):
    """Numbers from 0 to most - 1."""
    u = noise(key_of(name), int(np.prod(shape))) + 0.5
    return torch.from_numpy(np.floor(u * most).astype(np.int64)).reshape(shape)


if __name__ == "__main__":
    masks = whole("mask labels", 3, 2, 8, 12)
    task("masks", lambda n, x: unet(n, x, 4, 2, 3), image("masks", 2, 2, 8, 12), lambda y: F.cross_entropy(y, masks))
    weights = torch.tensor([0.5, 2.0, 1.25], dtype=D)
    task("weighted", lambda n, x: unet(n, x, 4, 2, 3), image("masks", 2, 2, 8, 12), lambda y: F.cross_entropy(y, masks, weights))

    targets, lengths = torch.tensor([[1, 2, 2, -1], [4, -1, -1, -1], [3, 1, 2, 4]]), torch.tensor([3, 1, 4])

    def ctc(y):
        y = y.reshape(3, -1, 5).transpose(0, 1)
        return F.ctc_loss(y.log_softmax(2), targets.clamp(min=0), torch.full((3,), y.shape[0]), lengths)

    task("ctc", lambda n, x: crnn(n, x, 3, 4, 5), image("ctc", 3, 1, 32, 40), ctc)

    texts, classes = whole("texts", 256, 4, 10), torch.tensor([2, 0, 1, 2])
    task("texts", lambda n, x: transformer(n, x, 2, 2, 8, 256, 3), texts, lambda y: F.cross_entropy(y, classes))
    save("tasks")
