/* cu_devices.c: which NVIDIA GPUs there are, what they can do, why one cannot be used, and how they fare (NVML, which
 * knows them by PCI address: CUDA_VISIBLE_DEVICES numbers them anew). See cu.h. */
#include "backend/cuda/cu.h"

#include <pthread.h>
#include <stdio.h>

static sw__cu_entry entries[SW_CU_MAX_DEVICES];
static int n_entries;

/* 0 where the driver does not tell. */
static int attribute(const sw__cu_entry *e, sw__cu_choice what)
{
    int value = 0;
    return sw__cu_load()->cu.cuDeviceGetAttribute(&value, what, e->id) == SW_CU_OK && value > 0 ? value : 0;
}

static void find_limits(sw__cu_entry *e)
{
    e->sm = 10 * attribute(e, SW_CU_CAPABILITY_MAJOR) + attribute(e, SW_CU_CAPABILITY_MINOR);
    e->units = attribute(e, SW_CU_MULTIPROCESSORS);
    e->clock = attribute(e, SW_CU_CLOCK_RATE) / 1000;
    e->max_group = attribute(e, SW_CU_MAX_THREADS_PER_BLOCK);
    e->local = (size_t)attribute(e, SW_CU_MAX_SHARED_PER_BLOCK);
    /* two transfers a clock */
    e->bandwidth = 2e3 * attribute(e, SW_CU_MEMORY_CLOCK_RATE) * attribute(e, SW_CU_MEMORY_BUS_WIDTH) / 8;
    if (sw__cu_load()->cu.cuDeviceTotalMem_v2(&e->memory, e->id) != SW_CU_OK) e->memory = 0;
    if (sw__cu_load()->cu.cuDeviceGetPCIBusId(e->pci, sizeof e->pci, e->id) != SW_CU_OK) e->pci[0] = '\0';
}

/* A GPU that is newer than NVRTC takes PTX of the newest that this knows. */
static void find_arch(sw__cu_entry *e)
{
    const sw__cu_libraries *const lib = sw__cu_load();
    for (int i = 0; i < lib->n_archs; i++)
        if (lib->archs[i] <= e->sm) e->arch = lib->archs[i];
}

static void find_faults(sw__cu_entry *e)
{
    const sw__cu_libraries *const lib = sw__cu_load();
    char *const why = e->unusable;
    const size_t size = sizeof e->unusable;
    if (e->sm == 0 || e->units == 0 || e->max_group < 1)
        snprintf(why, size, "its driver does not tell its limits");
    else if (attribute(e, SW_CU_COMPUTE_MODE) == SW_CU_COMPUTE_PROHIBITED)
        snprintf(why, size, "its compute mode is 'prohibited': nvidia-smi -c DEFAULT allows it");
    else if (*lib->no_nvrtc != '\0')
        snprintf(why, size, "%.150s", lib->no_nvrtc);
    else if (e->arch == 0)
        snprintf(why, size, "NVRTC %d.%d compiles for compute capability %d.%d and up, this has %d.%d: install NVRTC of CUDA 12",
                 lib->nvrtc_version / 1000, lib->nvrtc_version % 1000 / 10, lib->archs[0] / 10, lib->archs[0] % 10,
                 e->sm / 10, e->sm % 10);
}

static void make_list(void)
{
    const sw__cu_libraries *const lib = sw__cu_load();
    int count = 0;
    if (*lib->no_driver != '\0' || lib->cu.cuDeviceGetCount(&count) != SW_CU_OK) return;
    for (int i = 0; i < count && n_entries < SW_CU_MAX_DEVICES; i++) {
        sw__cu_entry *const e = &entries[n_entries];
        if (lib->cu.cuDeviceGet(&e->id, i) != SW_CU_OK) continue;
        n_entries++;
        e->index = i;
        if (lib->cu.cuDeviceGetName(e->name, sizeof e->name - 1, e->id) != SW_CU_OK)
            snprintf(e->name, sizeof e->name, "unknown");
        find_limits(e);
        find_arch(e);
        find_faults(e);
    }
}

int sw__cu_devices(const sw__cu_entry **list)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_list);
    if (list != NULL) *list = entries;
    return n_entries;
}

/* ---- how it fares -------------------------------------------------------------------------------------------------- */

static void put_state(const sw__cu_entry *e, sw_device_properties *p)
{
    const sw__nvml_api *const nvml = &sw__cu_load()->nvml;
    sw__nvml_device d = NULL;
    sw__nvml_memory memory = {0};
    sw__nvml_utilization busy = {0};
    unsigned value = 0;
    if (nvml->nvmlDeviceGetHandleByPciBusId_v2 == NULL || nvml->nvmlDeviceGetHandleByPciBusId_v2(e->pci, &d) != 0) return;
#define ASK(f, ...) (nvml->f != NULL && nvml->f(d, __VA_ARGS__) == 0)
    if (ASK(nvmlDeviceGetMemoryInfo, &memory)) p->memory_free = SW_MIN(memory.free, p->memory_total);
    if (ASK(nvmlDeviceGetUtilizationRates, &busy)) p->busy = (int)busy.gpu;
    if (ASK(nvmlDeviceGetTemperature, SW_NVML_TEMPERATURE_GPU, &value)) p->temperature = (int)value;
    if (ASK(nvmlDeviceGetPowerUsage, &value)) p->power = value * 1e-3;
    if (ASK(nvmlDeviceGetEnforcedPowerLimit, &value)) p->power_limit = value * 1e-3;
    if (ASK(nvmlDeviceGetClockInfo, SW_NVML_CLOCK_SM, &value)) p->clock = (int)value;
#undef ASK
}

/* "sm_90, 132 SMs, 1980 MHz, 4.8 TB/s, 120 of 700 W, 41 C" */
static void put_compute(const sw__cu_entry *e, sw_device_properties *p)
{
    char speed[24] = "", clock[48] = "", power[48] = "", heat[24] = "";
    if (e->bandwidth > 0) snprintf(speed, sizeof speed, ", %.2f TB/s", e->bandwidth * 1e-12);
    if (p->clock > 0 && e->clock > 0) snprintf(clock, sizeof clock, ", %d of %d MHz", p->clock, e->clock);
    else if (p->clock > 0 || e->clock > 0) snprintf(clock, sizeof clock, ", %d MHz", SW_MAX(p->clock, e->clock));
    if (p->power > 0 && p->power_limit > 0) snprintf(power, sizeof power, ", %.0f of %.0f W", p->power, p->power_limit);
    else if (p->power > 0) snprintf(power, sizeof power, ", %.0f W", p->power);
    if (p->temperature > 0) snprintf(heat, sizeof heat, ", %d C", p->temperature);
    snprintf(p->compute, sizeof p->compute, "sm_%d, %d SMs%.20s%.24s%.24s%.10s", e->sm, e->units, speed, clock, power, heat);
}

static void put_driver(sw_device_properties *p)
{
    const sw__cu_libraries *const lib = sw__cu_load();
    char name[48] = "", nvrtc[40] = ", no NVRTC", nccl[48] = "";
    int version = 0;
    if (*lib->driver_name != '\0') snprintf(name, sizeof name, ", driver %.31s", lib->driver_name);
    if (lib->nvrtc_version > 0)
        snprintf(nvrtc, sizeof nvrtc, ", NVRTC %d.%d", lib->nvrtc_version / 1000, lib->nvrtc_version % 1000 / 10);
    if (sw__nccl_load(NULL, &version) == SW_OK)
        snprintf(nccl, sizeof nccl, ", NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    snprintf(p->driver, sizeof p->driver, "CUDA %d.%d%.20s%.12s%.14s", lib->driver / 1000, lib->driver % 1000 / 10, name, nvrtc,
             nccl);
}

void sw__cu_describe(const sw__cu_entry *e, sw_device_properties *p)
{
    memset(p, 0, sizeof *p);
    snprintf(p->id, sizeof p->id, "cuda:%d", e->index);
    snprintf(p->name, sizeof p->name, "%s", e->name);
    snprintf(p->vendor, sizeof p->vendor, "NVIDIA");
    snprintf(p->type, sizeof p->type, "gpu");
    snprintf(p->status, sizeof p->status, "%s", *e->unusable != '\0' ? e->unusable : "ok");
    p->usable = *e->unusable == '\0';
    p->memory_total = p->memory_free = e->memory; /* without NVML nobody tells what is free, short of a context */
    p->compute_units = e->units;
    p->bandwidth = e->bandwidth;
    put_state(e, p);
    put_compute(e, p);
    put_driver(p);
}
