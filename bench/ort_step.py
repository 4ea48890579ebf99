#!/usr/bin/env python3
"""One inference in ONNX Runtime, timed: the counterpart of torch_step.py --infer, same JSON on stdout.

    python torch_step.py --model unet --infer --batch 1 --save-init init.safetensors --save-onnx unet.onnx
    python ort_step.py --onnx unet.onnx --init init.safetensors --threads 2

Input is the x of the safetensors file that torch_step.py wrote. All graph optimisations are on. Knows --serve, too.
"""
import argparse
import json
import math
import statistics
import sys
import time

import onnxruntime
from safetensors.numpy import load_file

from process import peak_rss_mib, seconds_since_process_start


def session_of(args):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(args.onnx, options, providers=["CPUExecutionProvider"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onnx", required=True)
    p.add_argument("--init", required=True)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--output", metavar="FILE", help="write what comes out, as raw f32")
    p.add_argument("--serve", action="store_true", help="stay, and time --steps for every line on stdin")
    args = p.parse_args()
    session = session_of(args)
    x = {"x": load_file(args.init)["x"]}
    session.run(None, x)
    first_step_s = seconds_since_process_start()

    def turn(warmup):
        for _ in range(warmup):
            session.run(None, x)
        times = []
        for _ in range(args.steps):
            t = time.perf_counter()
            session.run(None, x)
            times.append((time.perf_counter() - t) * 1e3)
        times.sort()
        print(json.dumps({"onnxruntime": onnxruntime.__version__, "threads": args.threads, "steps": args.steps,
                          "median_ms": round(statistics.median(times), 4), "min_ms": round(times[0], 4),
                          "p90_ms": round(times[math.ceil(0.9 * len(times)) - 1], 4),
                          "first_step_s": round(first_step_s, 2), "peak_rss_mib": round(peak_rss_mib(), 1)}), flush=True)

    if args.output:
        session.run(None, x)[0].tofile(args.output)
    turn(args.warmup)
    for _ in sys.stdin if args.serve else ():
        turn(3)


if __name__ == "__main__":
    main()
