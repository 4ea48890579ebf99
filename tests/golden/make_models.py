"""Writes tests/data/models.safetensors: outputs, losses and gradients of the networks that have names, from their papers and
torchvision's names and shapes, in double precision. Parameters and images are not stored: both sides make them from their
names (fill below, and in tests/test_models.c, which reads this). Of each parameter's gradient three numbers are stored: its
sum, the sum of its magnitudes, and its sum with weights. Run: python3 tests/golden/make_models.py (needs torch, safetensors)."""

import numpy as np
import torch
import torch.nn.functional as F

from cases import D, out, save

M = 0xFFFFFFFF


def noise(key, n):
    """n numbers in [-1/2, 1/2), multiples of 2^-16."""
    h = (np.arange(n, dtype=np.uint64) * 2654435761 + key * 40503) & M
    h ^= h >> np.uint64(15)
    h = (h * 0x85EBCA6B) & M
    h ^= h >> np.uint64(13)
    return (h & np.uint64(0xFFFF)).astype(np.float64) / 65536 - 0.5


def key_of(name):
    return sum(name.encode()) % 9973


def fill(name, shape):
    u = noise(key_of(name), int(np.prod(shape)))
    if len(shape) > 1:
        u = u * np.sqrt(24.0 / np.prod(shape[1:]))  # He's variance
    elif name.endswith(("weight", "running_var")):
        u = 1 + u / 2
    else:
        u = u / 5
    if name.endswith("weight_g"):
        u = 1 + np.abs(u)
    return torch.from_numpy(u.astype(np.float32)).to(D).reshape(shape)


class Net:
    """Parameters by name, made when they are first asked for."""

    def __init__(self, training):
        self.training, self.p = training, {}

    def par(self, name, *shape):
        if name not in self.p:
            self.p[name] = fill(name, shape).requires_grad_(True)
        return self.p[name]

    def conv(self, x, n, o, k=3, stride=1, groups=1, bias=False):
        w = self.par(n + ".weight", o, x.shape[1] // groups, k, k)
        return F.conv2d(x, w, self.par(n + ".bias", o) if bias else None, stride, k // 2, 1, groups)

    def bn(self, x, n):
        c = x.shape[1]
        mean, var = fill(n + ".running_mean", (c,)), fill(n + ".running_var", (c,))
        return F.batch_norm(x, mean, var, self.par(n + ".weight", c), self.par(n + ".bias", c), self.training, 0.1, 1e-5)

    def linear(self, x, n, o):
        return F.linear(x, self.par(n + ".weight", o, x.shape[1]), self.par(n + ".bias", o))


def resnet(net, x, widths, blocks, bottleneck, outputs, large):
    x = F.relu(net.bn(net.conv(x, "conv1", widths[0], 7 if large else 3, 2 if large else 1), "bn1"))
    if large:
        x = F.max_pool2d(x, 3, 2, 1)
    for stage, (w, n) in enumerate(zip(widths, blocks)):
        for j in range(n):
            at, s = f"layer{stage + 1}.{j}.", 2 if stage and j == 0 else 1
            if bottleneck:
                y = F.relu(net.bn(net.conv(x, at + "conv1", w, 1), at + "bn1"))
                y = F.relu(net.bn(net.conv(y, at + "conv2", w, 3, s), at + "bn2"))
                y = net.bn(net.conv(y, at + "conv3", 4 * w, 1), at + "bn3")
            else:
                y = F.relu(net.bn(net.conv(x, at + "conv1", w, 3, s), at + "bn1"))
                y = net.bn(net.conv(y, at + "conv2", w), at + "bn2")
            if s != 1 or x.shape[1] != y.shape[1]:
                x = net.bn(net.conv(x, at + "downsample.0", y.shape[1], 1, s), at + "downsample.1")
            x = F.relu(x + y)
    return net.linear(x.mean((2, 3)), "fc", outputs)


def vgg11(net, x, widths, hidden, outputs, large):
    at = 0
    for w, n in zip(widths, (1, 1, 2, 2, 2)):
        for _ in range(n):
            x = F.relu(net.bn(net.conv(x, f"features.{at}", w, bias=True), f"features.{at + 1}"))
            at += 3
        x = F.max_pool2d(x, 2)
        at += 1
    x = F.adaptive_avg_pool2d(x, 7 if large else 1).flatten(1)
    x = F.relu(net.linear(x, "classifier.0", hidden))
    x = F.relu(net.linear(x, "classifier.3", hidden))
    return net.linear(x, "classifier.6", outputs)


def mobilenet_v2(net, x, width, outputs, large):
    def divisible(v):
        n = max(8, int(v + 4) // 8 * 8)
        return n + 8 if n < 0.9 * v else n

    def conv_bn_relu6(x, name, o, k, s=1, groups=1):
        return F.relu6(net.bn(net.conv(x, name + ".0", o, k, s, groups), name + ".1"))

    x = conv_bn_relu6(x, "features.0", divisible(32 * width), 3, 2 if large else 1)
    at = 1
    for t, c, n, s in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
        for j in range(n):
            stride = s if j == 0 and (large or c != 24) else 1
            o, names, y = divisible(c * width), iter(range(9)), x
            if t != 1:
                y = conv_bn_relu6(y, f"features.{at}.conv.{next(names)}", x.shape[1] * t, 1)
            y = conv_bn_relu6(y, f"features.{at}.conv.{next(names)}", y.shape[1], 3, stride, y.shape[1])
            y = net.conv(y, f"features.{at}.conv.{next(names)}", o, 1)
            y = net.bn(y, f"features.{at}.conv.{next(names)}")
            x = x + y if stride == 1 and x.shape == y.shape else y
            at += 1
    x = conv_bn_relu6(x, f"features.{at}", divisible(1280 * max(1, width)), 1)
    return net.linear(x.mean((2, 3)), "classifier.1", outputs)


def autoencoder(net, x, sizes):
    size = x.flatten(1).shape[1]
    h = x.flatten(1)
    for i, n in enumerate(sizes):
        h = net.linear(h, f"encoder.{i}", n)
        h = h if i + 1 == len(sizes) else F.relu(h)
    up = [*reversed(sizes[:-1]), size]
    for i, n in enumerate(up):
        h = net.linear(h, f"decoder.{i}", n)
        h = h if i + 1 == len(up) else F.relu(h)
    return h


def tcn(net, x, channels, outputs, k=7):
    def conv(x, name, o, d):
        v, g = net.par(name + ".weight_v", o, x.shape[1], k), net.par(name + ".weight_g", o, 1, 1)
        w = torch._weight_norm(v, g, 0)
        return F.conv1d(F.pad(x, ((k - 1) * d, 0)), w, net.par(name + ".bias", o), dilation=d)

    x = x.reshape(x.shape[0], x.shape[1], -1)
    for i, c in enumerate(channels):
        at = f"tcn.network.{i}."
        y = F.relu(conv(F.relu(conv(x, at + "conv1", c, 2**i)), at + "conv2", c, 2**i))
        if x.shape[1] != c:
            x = F.conv1d(x, net.par(at + "downsample.weight", c, x.shape[1], 1), net.par(at + "downsample.bias", c))
        x = F.relu(x + y)
    return net.linear(x[:, :, -1], "linear", outputs)


def crnn(net, x, c, hidden, outputs):
    for i, times in enumerate((1, 2, 4, 4, 8, 8, 8)):
        n, o, k = f"cnn.conv{i}", times * c, 2 if i == 6 else 3
        x = F.conv2d(x, net.par(n + ".weight", o, x.shape[1], k, k), net.par(n + ".bias", o), padding=0 if i == 6 else 1)
        x = F.relu(net.bn(x, f"cnn.batchnorm{i}") if i in (2, 4, 6) else x)
        if i < 2:
            x = F.max_pool2d(x, 2)
        if i in (3, 5):
            x = F.max_pool2d(x, (2, 2), (2, 1), (0, 1))
    x = x.squeeze(2).transpose(1, 2)
    for i, o in enumerate((hidden, outputs)):
        lstm = torch.nn.LSTM(x.shape[2], hidden, bidirectional=True, batch_first=True, dtype=D)
        p = {k: net.par(f"rnn.{i}.rnn.{k}", *v.shape) for k, v in lstm.named_parameters()}
        x = torch.func.functional_call(lstm, p, (x,))[0]
        x = F.linear(x, net.par(f"rnn.{i}.embedding.weight", o, 2 * hidden), net.par(f"rnn.{i}.embedding.bias", o))
    return x.reshape(-1, outputs)


def model(name, fn, shape, training, classes=5):
    """classes 0: the loss is the squared error against the input."""
    net = Net(training)
    x = torch.from_numpy(4 * noise(key_of(name), int(np.prod(shape)))).reshape(shape)
    y = fn(net, x)
    label = torch.arange(y.shape[0]) % classes if classes else None
    loss = F.cross_entropy(y, label) if classes else F.mse_loss(y, x.flatten(1))
    g = torch.autograd.grad(loss, list(net.p.values()))
    out[name + ".y"], out[name + ".loss"] = y.detach().clone(), loss.detach().clone()
    for key, v in zip(net.p, g):
        w = torch.from_numpy(noise(key_of(key) + 1, v.numel()))
        v = v.flatten()
        out[f"{name}.g.{key}"] = torch.stack([v.sum(), v.abs().sum(), (v * w).sum()])


if __name__ == "__main__":
    deep = (3, 4, 6, 3)
    model("resnet18_64", lambda n, x: resnet(n, x, (4, 6), (2, 2), False, 5, True), (3, 1, 64, 65), True)
    model("resnet34", lambda n, x: resnet(n, x, (4, 6, 8, 10), deep, False, 5, False), (3, 3, 16, 15), True)
    model("resnet50", lambda n, x: resnet(n, x, (8, 8, 12, 16), deep, True, 5, False), (6, 3, 24, 25), True)
    model("resnet50_64", lambda n, x: resnet(n, x, (2, 3, 4, 5), deep, True, 5, True), (2, 3, 64, 64), False)
    model("vgg11", lambda n, x: vgg11(n, x, (4, 5, 6, 7, 8), 12, 5, False), (2, 3, 32, 35), False)
    model("vgg11_64", lambda n, x: vgg11(n, x, (4, 4, 5, 5, 6), 12, 5, True), (2, 3, 96, 64), False)
    model("mobilenet_v2", lambda n, x: mobilenet_v2(n, x, 0.25, 5, False), (2, 3, 16, 17), False)
    model("mobilenet_v2_64", lambda n, x: mobilenet_v2(n, x, 0.35, 5, True), (1, 1, 65, 64), False)
    model("autoencoder", lambda n, x: autoencoder(n, x, (7, 3)), (4, 1, 3, 5), True, 0)
    model("tcn", lambda n, x: tcn(n, x, (4, 4, 5), 5), (3, 2, 19), False)
    model("crnn", lambda n, x: crnn(n, x, 3, 4, 5), (2, 1, 33, 18), True)
    save("models")
