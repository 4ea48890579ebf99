"""Cases of ops for tests/data/*.safetensors, computed by PyTorch in double precision: what the make_*.py of this folder share.

For each case: inputs x0, x1, …; the result y; the gradient dy that is sent back and what arrives at each input of
floating point, g0, g1, …; then directions v0, v1, … and the gradients h0, h1, … and hdy (with respect to dy) of
sum_i <g_i, v_i>: the second derivatives. All inputs are numbers of single precision. Read by tests/golden_run.h.
Needs torch and safetensors."""

import os

import torch
from safetensors.torch import save_file

D = torch.float64
out = {}


def r(*shape):
    return torch.randn(shape).to(D)


def pos(*shape):
    return (torch.rand(shape) + 0.5).to(D)


def t(*values):
    return torch.tensor(values).to(D)


def idx(values):
    return torch.tensor(values, dtype=torch.int64)


def case(name, fn, *xs, second=True):
    xs = [x.clone().requires_grad_(x.is_floating_point()) for x in xs]
    floats = [i for i, x in enumerate(xs) if x.requires_grad]
    y = fn(*xs)
    dy = r(*y.shape).requires_grad_(True)
    g = torch.autograd.grad(y, [xs[i] for i in floats], dy, create_graph=second, allow_unused=True)
    g = [torch.zeros_like(xs[i]) if v is None else v for i, v in zip(floats, g)]
    put = lambda key, v: out.__setitem__(f"{name}.{key}", v.detach().contiguous().clone())
    for i, x in enumerate(xs):
        put(f"x{i}", x)
    put("y", y)
    put("dy", dy)
    for i, v in zip(floats, g):
        put(f"g{i}", v)
    if not second:
        return
    vs = [r(*v.shape) for v in g]
    s = sum((a * b).sum() for a, b in zip(g, vs))
    wrt = [xs[i] for i in floats] + [dy]
    h = torch.autograd.grad(s, wrt, allow_unused=True) if s.requires_grad else [None] * len(wrt)
    h = [torch.zeros_like(w) if v is None else v for w, v in zip(wrt, h)]
    for i, v in zip(floats, vs):
        put(f"v{i}", v)
    for i, v in zip(floats, h):
        put(f"h{i}", v)
    put("hdy", h[-1])


def save(name):
    """Writes all cases so far to tests/data/NAME.safetensors."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", name + ".safetensors")
    save_file(out, path)
    os.chmod(path, 0o644)
    print(f"{len(out)} tensors, {os.path.getsize(path)} bytes")
