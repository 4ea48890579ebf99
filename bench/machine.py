"""What this machine's processor is called and can do. For bench/run and bench/ops."""
import platform


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def cpu_flags():
    return next((l.split() for l in open("/proc/cpuinfo") if l.startswith("flags")), [])


def cpu_level():
    flags = cpu_flags()
    return "AMX" if "amx_tile" in flags else "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "baseline"
