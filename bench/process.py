"""Age and memory of this process, from /proc. For torch_step.py and ort_step.py, which time themselves."""
import os
import time


def seconds_since_process_start():
    """Age of this process, from /proc (10 ms resolution)."""
    with open("/proc/self/stat") as f:
        started = int(f.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def peak_rss_mib():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM"))
