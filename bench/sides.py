"""The processes that bench/run compares: swoop's step, PyTorch's variants, ONNX Runtime. Imported by bench/run.

swoop is a new process for each turn; the others stay (--serve), so that what they generate is paid for once, and are
asked for one turn after the other. Each of them prints one JSON object a turn.
"""
import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LAST, FUSED, COMPILE = ["--channels-last"], ["--opt", "fused"], ["--compile"]
TRAINING = {"eager": [], "channels-last": LAST, "fused optimiser": FUSED, "compile": COMPILE,
            "compile, channels-last": COMPILE + LAST, "compile, fused optimiser": COMPILE + FUSED,
            "compile, channels-last, fused": COMPILE + LAST + FUSED}
INFERENCE = {"eager": [], "channels-last": LAST, "compile": COMPILE, "compile, channels-last": COMPILE + LAST}
IMAGES = ("lenet", "resnet18", "unet")
AVX2 = {"SWOOP_SIMD": "avx2", "DNNL_MAX_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def say(text):
    print(text, file=sys.stderr, flush=True)


def variants(model, infer):
    """PyTorch's, by name: those that can make a difference to this network."""
    known = INFERENCE if infer else TRAINING
    return {name: flags for name, flags in known.items() if model in IMAGES or "--channels-last" not in flags}


def environment(args, threads, ours):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), POCL_MAX_PTHREAD_COUNT=str(threads))
    env.setdefault("TORCHINDUCTOR_CACHE_DIR", str(args.build / "inductor"))
    env.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its workers would stay beside what is timed
    if ours:  # as the command sets them
        env = {"GOMP_SPINCOUNT": "1000", "POCL_AFFINITY": "1"} | env
    return env | (AVX2 if args.isa == "avx2" else {})


def failed(command, text):
    sys.exit(f"{' '.join(map(str, command))}\n{text}")


def call(command, env):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env)
    if done.returncode != 0:
        failed(command, done.stderr)
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines else {}


class Server:
    """A process with --serve; turn() gives one JSON object, the first of which it prints by itself."""

    def __init__(self, command, env, log):
        self.command, self.log = [*map(str, command), "--serve"], open(log, "w+")
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=env)
        self.first = True

    def turn(self):
        if not self.first:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        self.first = False
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        self.log.seek(0)
        failed(self.command, self.log.read())

    def close(self):
        self.process.terminate()
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


@contextlib.contextmanager
def quiet(command):
    """While the block runs, so does `command sh -c …`, which may keep others from the machine; it goes when the block ends."""
    if not command:
        yield
        return
    holder = subprocess.Popen(shlex.split(command) + ["sh", "-c", "echo; read line"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    holder.stdout.readline()
    try:
        yield
        if holder.poll() is not None:
            say(f"bench/run: '{command}' ended before the turn did: others may have been at work")
    finally:
        with contextlib.suppress(BrokenPipeError):
            holder.communicate("\n")


def build_step(build):
    """Compiles bench/step.c against the library in the build folder."""
    out = build / "bench-step"
    libs = subprocess.run(["pkg-config", "--libs", "jansson", "zlib", "libxxhash", "libcyaml", "yaml-0.1"],
                          capture_output=True, text=True).stdout.split()
    subprocess.run(["cc", "-O2", "-std=gnu11", f"-I{HERE.parent}/include", str(HERE / "step.c"), "-o", str(out),
                    f"-L{build}", f"-L{build}/src", "-lswoop", f"-Wl,-rpath,{build}:{build}/src"] + libs, check=True)
    return out
