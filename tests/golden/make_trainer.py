#!/usr/bin/env python3
"""Writes tests/data/trainer.safetensors: averages of weights, freezing, rates on a plateau and class weights, by PyTorch in
double precision. PyTorch is needed only to write them again.

    python tests/golden/make_trainer.py

A net with batch norm, fc1 - bn - relu - fc2, is trained by Adam on 24 samples in batches of 8 in their order, for 4 epochs:
plainly, with an exponential average (AveragedModel with use_buffers), an equal one of epochs 2, 3 and 4, with fc1 and bn
frozen for two epochs, and with weights of classes. Read by tests/test_average.c.
"""
import copy
import pathlib

import torch
from safetensors.torch import save_file
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

OUT = pathlib.Path(__file__).resolve().parent.parent / "data"
N, D, H, C, BATCH, EPOCHS = 24, 5, 6, 3, 8, 4
torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.bn, self.fc2 = torch.nn.Linear(D, H, bias=False), torch.nn.BatchNorm1d(H), torch.nn.Linear(H, C)

    def forward(self, x):
        return self.fc2(torch.relu(self.bn(self.fc1(x))))


start = Net()
for p in start.parameters():
    p.data = p.data.float().double()
x = torch.randn(N, D).float().double()
y = torch.randint(0, C, (N,))
out = {"x": x.float(), "y": y}


def put(prefix, model):
    for name, v in model.state_dict().items():
        out[f"{prefix}.{name}"] = v.detach().clone()


def train(prefix, average=None, from_epoch=1, each_step=False, frozen_epochs=0, weight=None):
    net = copy.deepcopy(start)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    averaged = average(net) if average else None
    loss = torch.nn.CrossEntropyLoss(weight=weight)
    for epoch in range(1, EPOCHS + 1):
        for name, p in net.named_parameters():
            p.requires_grad = epoch > frozen_epochs or name.startswith("fc2")
        for i in range(0, N, BATCH):
            optimizer.zero_grad()
            loss(net(x[i : i + BATCH]), y[i : i + BATCH]).backward()
            optimizer.step()
            if averaged and each_step:
                averaged.update_parameters(net)
        if averaged and not each_step and epoch >= from_epoch:
            averaged.update_parameters(net)
    put(prefix, net)
    if averaged:
        averaged.eval()
        put(f"{prefix}.averaged", averaged.module)
        out[f"{prefix}.averaged.loss"] = torch.nn.CrossEntropyLoss()(averaged.module(x), y).detach()


put("init", start)
train("plain")
train("ema", lambda net: AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True), each_step=True)
train("swa", lambda net: AveragedModel(net, use_buffers=True), from_epoch=2)
train("frozen", frozen_epochs=2)
train("weighted", weight=torch.tensor([0.5, 2.0, 1.25]))

figures = torch.tensor([1.0, 0.9, 0.95, 0.92, 0.91, 0.899995, 0.5, 0.5, 0.6, 0.7, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4,
                        float("nan"), 0.3, 0.31, 0.32, 0.33, 0.34, 0.35, 0.36, 0.37, 0.38, 0.39, 0.40])
out["plateau.figures"] = figures
PLATEAUS = {
    "plain": dict(factor=0.5, patience=1),
    "max": dict(mode="max", factor=0.3, patience=2, threshold=0.0),
    "cooldown": dict(factor=0.5, patience=0, cooldown=3, min_lr=0.02, threshold=0.1),
    "patient": dict(patience=10),
}
for name, options in PLATEAUS.items():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    schedule = ReduceLROnPlateau(optimizer, **options)
    rates = []
    for f in figures.tolist():
        schedule.step(f)
        rates.append(optimizer.param_groups[0]["lr"])
    out[f"plateau.{name}"] = torch.tensor(rates)

save_file({n: t.contiguous() for n, t in out.items()}, OUT / "trainer.safetensors", metadata={"torch": torch.__version__})
