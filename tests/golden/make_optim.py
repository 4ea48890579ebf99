#!/usr/bin/env python3
"""Writes tests/data/optim.safetensors: ten steps of every optimiser by PyTorch in double precision, and learning
rates of its schedules. PyTorch is needed only to write them again.

    python tests/golden/make_optim.py

The loss is sum(c * p) with a new c each step, so that the gradient is c: the update rule is all that is tested. Lion and
LAMB are not in PyTorch: their papers' pseudo code is written out here (Chen et al. 2023, algorithm 2; You et al. 2020,
algorithm 2 with phi(z) = z).
"""
import pathlib

import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "data"
STEPS = 10
torch.manual_seed(7)
P0 = {"w": torch.randn(5, 3, dtype=torch.float64), "b": torch.randn(7, dtype=torch.float64)}
C = {n: torch.randn(STEPS, *p.shape, dtype=torch.float64) for n, p in P0.items()}
C["b"][3] = 0  # a step without gradient


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = torch.sign(b1 * m + (1 - b1) * p.grad)
                p.sub_(group["lr"] * (update + group["weight_decay"] * p))
                m.copy_(b2 * m + (1 - b2) * p.grad)


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                m, v = s.setdefault("m", torch.zeros_like(p)), s.setdefault("v", torch.zeros_like(p))
                m.copy_(b1 * m + (1 - b1) * p.grad)
                v.copy_(b2 * v + (1 - b2) * p.grad ** 2)
                r = m / (1 - b1 ** self.t) / ((v / (1 - b2 ** self.t)).sqrt() + group["eps"]) + group["weight_decay"] * p
                ratio = p.norm() / r.norm() if p.norm() > 0 and r.norm() > 0 else 1.0
                p.sub_(group["lr"] * ratio * r)


O = torch.optim
CASES = {  # name in the test: how PyTorch makes it
    "sgd": lambda p: O.SGD(p, lr=0.05),
    "sgd momentum dampening decay": lambda p: O.SGD(p, lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "sgd nesterov": lambda p: O.SGD(p, lr=0.05, momentum=0.8, nesterov=True),
    "adam": lambda p: O.Adam(p, lr=0.01),
    "adam decay amsgrad": lambda p: O.Adam(p, lr=0.01, betas=(0.8, 0.6), weight_decay=0.1, amsgrad=True),
    "adamw": lambda p: O.AdamW(p, lr=0.01, weight_decay=0.1),
    "nadam": lambda p: O.NAdam(p, lr=0.02),
    "nadam decay": lambda p: O.NAdam(p, lr=0.02, betas=(0.8, 0.9), weight_decay=0.1, momentum_decay=0.01),
    "radam": lambda p: O.RAdam(p, lr=0.01),
    "radam decay": lambda p: O.RAdam(p, lr=0.01, betas=(0.9, 0.9), weight_decay=0.1),
    "rmsprop": lambda p: O.RMSprop(p, lr=0.01),
    "rmsprop centered momentum": lambda p: O.RMSprop(p, lr=0.01, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.1),
    "adagrad": lambda p: O.Adagrad(p, lr=0.05),
    "adagrad decay": lambda p: O.Adagrad(p, lr=0.05, lr_decay=0.1, weight_decay=0.1),
    "adadelta": lambda p: O.Adadelta(p, lr=1.0),
    "adadelta decay": lambda p: O.Adadelta(p, lr=0.5, rho=0.8, weight_decay=0.1),
    "adamax": lambda p: O.Adamax(p, lr=0.02),
    "adamax decay": lambda p: O.Adamax(p, lr=0.02, betas=(0.8, 0.9), weight_decay=0.1),
    "lion": lambda p: Lion(p, lr=0.01),
    "lion decay": lambda p: Lion(p, lr=0.01, betas=(0.8, 0.9), weight_decay=0.1),
    "lamb": lambda p: Lamb(p, lr=0.01),
    "lamb decay": lambda p: Lamb(p, lr=0.01, weight_decay=0.1),
    "clip value": lambda p: O.SGD(p, lr=0.05),
}


def train(make, clip=None):
    params = {n: p.clone().requires_grad_() for n, p in P0.items()}
    optimizer = make(list(params.values()))
    for s in range(STEPS):
        optimizer.zero_grad()
        sum((C[n][s] * p).sum() for n, p in params.items()).backward()
        if clip:
            torch.nn.utils.clip_grad_value_(params.values(), clip)
        optimizer.step()
    return {n: p.detach() for n, p in params.items()}


S = O.lr_scheduler
SCHEDULES = {
    "multistep": lambda o: S.MultiStepLR(o, [5, 20, 30], gamma=0.3),
    "exponential": lambda o: S.ExponentialLR(o, 0.97),
    "polynomial": lambda o: S.PolynomialLR(o, total_iters=40, power=2.0),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, T_0=8, T_mult=2, eta_min=0.01),
    "restarts even": lambda o: S.CosineAnnealingWarmRestarts(o, T_0=7),
    "onecycle": lambda o: S.OneCycleLR(o, max_lr=0.2, total_steps=40, cycle_momentum=False),
    "cosine": lambda o: S.CosineAnnealingLR(o, T_max=40, eta_min=0.01),
}


def rates(make):
    optimizer = O.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    schedule = make(optimizer)
    out = []
    for _ in range(40):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return out


tensors = {"p.w": P0["w"], "p.b": P0["b"], "c.w": C["w"], "c.b": C["b"]}
for name, make in CASES.items():
    for n, p in train(make, 0.5 if name == "clip value" else None).items():
        tensors[f"{name}.{n}"] = p
for name, make in SCHEDULES.items():
    tensors[f"schedule.{name}"] = torch.tensor(rates(make), dtype=torch.float64)
save_file({n: t.contiguous() for n, t in tensors.items()}, OUT / "optim.safetensors",
          metadata={"torch": torch.__version__})
