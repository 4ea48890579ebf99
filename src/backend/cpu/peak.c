/* peak.c: what this CPU can do at most on the device's threads, measured: f32 multiply-adds in registers, and bytes of
 * STREAM's triad over arrays that no cache holds. Asked for by sw_device_measure; what profiles compare kernels with.
 * The best of some short trials, since a machine is shared: 0.1 to 0.3 s in all. */
#include "backend/cpu/peak.h"

#include "backend/cpu/cpu.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRIALS = 8 };
#define TRIAL_SECONDS 0.004 /* longer than starting the threads takes by far, shorter than a time slice */

/* ---- multiply-adds ------------------------------------------------------------------------------------------------- */

/* Operations a second of all threads together, each `rounds` rounds. */
static double fma_rate(const sw__cpu *cpu, int64_t rounds, double *seconds)
{
    double ops = 0;
    const double start = sw__now();
#pragma omp parallel num_threads(cpu->threads) reduction(+ : ops)
    {
        float sink[SW__PEAK_SINK];
        ops += SW__SIMD_PICK(cpu->simd, sw__peak_fma)(rounds, sink);
        *(volatile float *)sink = sink[1];
    }
    *seconds = sw__now() - start;
    return ops / SW_MAX(*seconds, 1e-9);
}

static double fma_peak(const sw__cpu *cpu)
{
    int64_t rounds = 1000;
    double seconds = 0, best = 0;
    while (best = fma_rate(cpu, rounds, &seconds), seconds < TRIAL_SECONDS) rounds *= 2;
    for (int i = 0; i < TRIALS; i++) {
        const double rate = fma_rate(cpu, rounds, &seconds);
        best = SW_MAX(best, rate);
    }
    return best;
}

/* ---- triad --------------------------------------------------------------------------------------------------------- */

/* Bytes of the last cache that this core has, as the kernel tells; sysconf gives that of the whole socket. */
static size_t last_cache(void)
{
    size_t most = 0;
    for (int i = 0; i < 8; i++) {
        char path[80], text[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *const f = fopen(path, "re");
        if (f == NULL) break;
        if (fgets(text, sizeof text, f) != NULL) { /* "32768K" */
            char *unit = text;
            const size_t n = strtoull(text, &unit, 10) << (*unit == 'M' ? 20 : *unit == 'K' ? 10 : 0);
            most = SW_MAX(most, n);
        }
        fclose(f);
    }
    return most;
}

/* Floats in each of the three arrays: each as large as the last cache, so that what comes next was thrown out. */
static int64_t triad_floats(void)
{
    const size_t least = (size_t)16 << 20, most = (size_t)64 << 20;
    const size_t bytes = SW_MIN(SW_MAX(last_cache(), least), most);
    return (int64_t)(bytes / sizeof(float));
}

/* Each thread has its part, always the same one, which it also touches first. */
static double triad_seconds(const sw__cpu *cpu, float *a, int64_t n)
{
    const double start = sw__now();
#pragma omp parallel num_threads(cpu->threads)
    {
        const int64_t threads = omp_get_num_threads(), t = omp_get_thread_num();
        const int64_t from = n * t / threads, to = n * (t + 1) / threads;
        SW__SIMD_PICK(cpu->simd, sw__peak_triad)(a + from, a + n + from, a + 2 * n + from, to - from);
    }
    return sw__now() - start;
}

static sw_status triad_peak(sw__cpu *cpu, sw_device_peak *out)
{
    const int64_t n = triad_floats();
    const size_t bytes = (size_t)(3 * n) * sizeof(float);
    void *buffer = NULL;
    SW_TRY(sw__backend_cpu.alloc(cpu, bytes, &buffer));
    float *const a = sw__backend_cpu.host_pointer(buffer);
#pragma omp parallel num_threads(cpu->threads)
    {
        const int64_t threads = omp_get_num_threads(), t = omp_get_thread_num();
        for (int k = 0; k < 3; k++)
            for (int64_t i = n * t / threads; i < n * (t + 1) / threads; i++) a[k * n + i] = (float)k;
    }
    double best = triad_seconds(cpu, a, n);
    for (int i = 0; i < TRIALS; i++) best = SW_MIN(best, triad_seconds(cpu, a, n));
    sw__backend_cpu.release(cpu, buffer);
    out->bandwidth = (double)bytes / SW_MAX(best, 1e-9);
    snprintf(out->how, sizeof out->how, "f32 multiply-adds (%s), triad of 3 x %lld MiB", sw__simd_name(cpu->simd),
             (long long)(n * (int64_t)sizeof(float) >> 20));
    return SW_OK;
}

sw_status sw__cpu_peak(void *dev, sw_device_peak *out)
{
    sw__cpu *const cpu = dev;
    out->threads = cpu->threads;
    SW_TRY(triad_peak(cpu, out));
    out->flops = fma_peak(cpu);
    return SW_OK;
}
