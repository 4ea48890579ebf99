#!/usr/bin/env python3
"""One training step in PyTorch, timed: the anchor that swoop is measured against.

    python torch_step.py --model resnet18 --threads 2 --channels-last
    python torch_step.py --model gpt --compile --dtype bf16
    python torch_step.py --model unet --infer --batch 1 --compile --output out.f32
    python torch_step.py --model unet --infer --batch 1 --save-init init.safetensors --save-onnx unet.onnx

Prints one JSON line on stdout. A step is: zero_grad, forward, loss, backward, [clip,] optimiser step and reading the
loss, on one fixed synthetic batch that is already on the device; with --infer it is the network's output and nothing
else. The networks are defined layer by layer in docs/benchmarks.md.
The golden runs in tests/golden are small variants of the classes below.

With --serve the process stays: one JSON line after the first steps, then one more after as many timed steps for each
line on stdin, so that code generation is paid once for many turns.

first_step_s counts from the start of the process (so it includes the interpreter, `import torch` and, with --compile,
code generation) to the end of the first step. peak_rss_mib is VmHWM at the end.
"""
import argparse
import json
import math
import statistics
import sys
import time

from process import peak_rss_mib, seconds_since_process_start


_t0 = time.perf_counter()
import torch
import torch.nn as nn
import torch.nn.functional as F
IMPORT_S = time.perf_counter() - _t0


# ---------------------------------------------------------------- models


class MLP(nn.Module):
    """784 -> hidden... -> 10, ReLU between."""

    def __init__(self, hidden=(512, 512)):
        super().__init__()
        sizes = [784, *hidden, 10]
        self.depth = len(sizes) - 1
        for i in range(self.depth):
            setattr(self, f"fc{i + 1}", nn.Linear(sizes[i], sizes[i + 1]))

    def forward(self, x):
        for i in range(1, self.depth):
            x = F.relu(getattr(self, f"fc{i}")(x))
        return getattr(self, f"fc{self.depth}")(x)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """CIFAR ResNet: 3x3 stem, no max pooling. Stage i+1 is `layer{i+1}`; every stage but the first halves the image."""

    def __init__(self, widths=(64, 128, 256, 512), blocks=(2, 2, 2, 2)):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.stages, cin = len(widths), widths[0]
        for i, (cout, n) in enumerate(zip(widths, blocks)):
            stage = []
            for j in range(n):
                stage.append(BasicBlock(cin, cout, 2 if i > 0 and j == 0 else 1))
                cin = cout
            setattr(self, f"layer{i + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(cin, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


class GPTBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(d)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(d, 3 * d, bias=False), "c_proj": nn.Linear(d, d, bias=False)})
        self.ln_2 = nn.LayerNorm(d)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(d, 4 * d, bias=False), "c_proj": nn.Linear(4 * d, d, bias=False)})

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.attn["c_attn"](self.ln_1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class GPT(nn.Module):
    """nanoGPT, character level: pre-LayerNorm, exact GELU, no biases in Linear, logits through the token embedding."""

    def __init__(self, layers=4, heads=4, d=128, context=128, vocab=65):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.wpe = nn.Embedding(context, d)
        self.h = nn.ModuleList(GPTBlock(d, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(d)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 0.02)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe.weight[: idx.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class LSTM(nn.Module):
    def __init__(self, vocab=65, emb=128, hidden=256, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.rnn = nn.LSTM(emb, hidden, layers, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, idx):
        return self.out(self.rnn(self.emb(idx))[0])


class DoubleConv(nn.Sequential):
    """(conv 3x3 without bias, GroupNorm, ReLU) twice: 0 conv, 1 norm, 3 conv, 4 norm."""

    def __init__(self, cin, cout, groups):
        super().__init__(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.GroupNorm(groups, cout), nn.ReLU(),
                         nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.GroupNorm(groups, cout), nn.ReLU())


class UNet(nn.Module):
    """Three resolutions, max pooling down, 2x2 transposed convolution up, skip connections in front on concat."""

    def __init__(self, base=16, groups=4):
        super().__init__()
        self.enc1 = DoubleConv(1, base, groups)
        self.enc2 = DoubleConv(base, 2 * base, groups)
        self.mid = DoubleConv(2 * base, 4 * base, groups)
        self.up2 = nn.ConvTranspose2d(4 * base, 2 * base, 2, 2)
        self.dec2 = DoubleConv(4 * base, 2 * base, groups)
        self.up1 = nn.ConvTranspose2d(2 * base, base, 2, 2)
        self.dec1 = DoubleConv(2 * base, base, groups)
        self.head = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        y = self.up2(self.mid(F.max_pool2d(e2, 2)))
        y = self.up1(self.dec2(torch.cat([e2, y], 1)))
        return self.head(self.dec1(torch.cat([e1, y], 1)))


# ---------------------------------------------------------------- losses, optimisers, data


def cross_entropy(logits, y):
    """Mean over all rows; (batch, time, classes) is flattened to rows."""
    return F.cross_entropy(logits.flatten(0, -2), y.flatten())


def matrices_decay(model, decay):
    """AdamW groups as in nanoGPT: weight decay on parameters of two or more dimensions, none on the rest."""
    ps = list(model.parameters())
    return [{"params": [p for p in ps if p.dim() >= 2], "weight_decay": decay},
            {"params": [p for p in ps if p.dim() < 2], "weight_decay": 0.0}]


def images(b, *shape):
    return torch.randn(b, *shape), torch.randint(10, (b,))


def tokens(b, t):
    s = torch.randint(65, (b, t + 1))
    return s[:, :-1].clone(), s[:, 1:].clone()


def masks(b):
    return torch.randn(b, 1, 64, 64), (torch.rand(b, 1, 64, 64) < 0.3).float()


# name: (model, batch, data, loss, optimiser)
MODELS = {
    "mlp": (MLP, 64, lambda b: images(b, 784), cross_entropy,
            lambda m, **k: torch.optim.SGD(m.parameters(), 0.01, momentum=0.9, **k)),
    "lenet": (LeNet, 64, lambda b: images(b, 1, 28, 28), cross_entropy,
              lambda m, **k: torch.optim.Adam(m.parameters(), 1e-3, **k)),
    "resnet18": (ResNet, 32, lambda b: images(b, 3, 32, 32), cross_entropy,
                 lambda m, **k: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, weight_decay=5e-4, **k)),
    "gpt": (GPT, 16, lambda b: tokens(b, 128), cross_entropy,
            lambda m, **k: torch.optim.AdamW(matrices_decay(m, 0.1), 1e-3, betas=(0.9, 0.99), **k)),
    "lstm": (LSTM, 32, lambda b: tokens(b, 64), cross_entropy,
             lambda m, **k: torch.optim.Adam(m.parameters(), 2e-3, **k)),
    "unet": (UNet, 8, masks, F.binary_cross_entropy_with_logits,
             lambda m, **k: torch.optim.Adam(m.parameters(), 1e-3, **k)),
}


# ---------------------------------------------------------------- timing


def parse_args(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=MODELS, required=True)
    p.add_argument("--batch", type=int, help="default: the model's own, see models.md")
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32", help="bf16 is autocast with f32 master weights")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--compile", action="store_true", help="torch.compile of forward and loss (and so of backward)")
    p.add_argument("--opt", choices=["default", "foreach", "fused"], default="default", help="optimiser implementation")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--steps", type=int, default=30, help="timed steps")
    p.add_argument("--warmup", type=int, default=10, help="steps before the timed ones, at least 5")
    p.add_argument("--infer", action="store_true", help="the network's output only: eval mode, inference mode")
    p.add_argument("--serve", action="store_true", help="stay, and time --steps for every line on stdin")
    p.add_argument("--device", default="cpu")
    p.add_argument("--save-init", metavar="FILE", help="write initial state, x and y as safetensors, for another program to start from")
    p.add_argument("--save-onnx", metavar="FILE", help="with --infer: write the network in ONNX for ONNX Runtime, and end")
    p.add_argument("--output", metavar="FILE", help="with --infer: write what comes out, as raw f32")
    args = p.parse_args(argv)
    args.batch = args.batch or MODELS[args.model][1]
    args.warmup = max(args.warmup, 5)
    return args


def unsettle(model):
    """Running statistics and affine factors as after some training: those of a new network change nothing, and hide faults."""
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.normal_(m.bias, 0, 0.1)


def inference_step(args, model, x, autocast):
    """A function that runs the network once and returns what comes out."""
    def forward():
        with autocast:
            return model(x)

    return torch.inference_mode()(torch.compile(forward) if args.compile else forward)


def training_step(args, model, x, y, loss_fn, make_optimiser, autocast):
    """A function that runs one step and returns its loss."""
    def forward_loss():
        with autocast:
            return loss_fn(model(x), y)

    if args.compile:
        forward_loss = torch.compile(forward_loss)
    optimiser = make_optimiser(model, **({} if args.opt == "default" else {args.opt: True}))

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = forward_loss()
        loss.backward()
        optimiser.step()
        return loss

    return step


def prepare(args):
    """Builds model, data and optimiser; returns the model and a function that runs one step."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    build, _, make_data, loss_fn, make_optimiser = MODELS[args.model]
    model = build()
    x, y = make_data(args.batch)
    if args.infer:
        unsettle(model)
    if args.save_init:
        from safetensors.torch import save_file
        save_file({**{f"init.{k}": v for k, v in model.state_dict().items()}, "x": x, "y": y}, args.save_init)
    model.train(not args.infer)
    if args.save_onnx:
        torch.onnx.export(model, (x,), args.save_onnx, input_names=["x"], output_names=["y"], dynamo=True,
                          external_data=False, verbose=False)
        sys.exit(0)

    model, x, y = model.to(args.device), x.to(args.device), y.to(args.device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
        if x.dim() == 4:
            x = x.to(memory_format=torch.channels_last)
    autocast = torch.autocast(torch.device(args.device).type, torch.bfloat16, enabled=args.dtype == "bf16")
    if args.infer:
        return model, inference_step(args, model, x, autocast)
    return model, training_step(args, model, x, y, loss_fn, make_optimiser, autocast)


def time_steps(step, count, sync):
    """Milliseconds of each of `count` steps, and what the last one returned."""
    times = []
    for _ in range(count):
        sync()
        t = time.perf_counter()
        result = step()
        if result.dim() == 0:
            result.item()
        sync()
        times.append((time.perf_counter() - t) * 1e3)
    return times, result


def report(args, model, first_step_s, times, result):
    times.sort()
    about = {
        "model": args.model, "batch": args.batch, "dtype": args.dtype, "threads": args.threads, "device": args.device,
        "infer": args.infer, "channels_last": args.channels_last, "compile": args.compile, "opt": args.opt,
        "torch": torch.__version__, "steps": args.steps,
        "median_ms": round(statistics.median(times), 4), "min_ms": round(times[0], 4),
        "p90_ms": round(times[math.ceil(0.9 * len(times)) - 1], 4),
        "first_step_s": round(first_step_s, 2), "import_s": round(IMPORT_S, 2), "peak_rss_mib": round(peak_rss_mib(), 1),
        "params": sum(p.numel() for p in model.parameters()), "loss": round(result.float().mean().item(), 6),
    }
    if args.device.startswith("cuda"):
        about["gpu"] = torch.cuda.get_device_name(args.device)
        about["gpu_peak_mib"] = round(torch.cuda.max_memory_allocated(args.device) / 2**20, 1)
    print(json.dumps(about), flush=True)


def main():
    args = parse_args()
    model, step = prepare(args)
    sync = torch.cuda.synchronize if args.device.startswith("cuda") else lambda: None
    step()
    sync()
    first_step_s = seconds_since_process_start()
    time_steps(step, args.warmup - 1, sync)
    times, result = time_steps(step, args.steps, sync)
    if args.output:
        result.float().cpu().contiguous().numpy().tofile(args.output)
    report(args, model, first_step_s, times, result)
    for _ in sys.stdin if args.serve else ():
        time_steps(step, 3, sync)
        report(args, model, first_step_s, *time_steps(step, args.steps, sync))


if __name__ == "__main__":
    main()
