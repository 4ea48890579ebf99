/* nvml.c: libnvidia-ml.so.1 of the double: what the driver's tool tells of the GPUs that are played, by the same table
 * as the fake libcuda. NVML has no header in the toolkit: its types stand here as its ABI has them. NVML does not know
 * CUDA_VISIBLE_DEVICES: it always counts all. FAKECUDA_TEMPERATURE, _POWER (milliwatts), _REASONS (bits) change the
 * answers. */
#include "gpus.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

typedef enum nvmlReturn_t {
    NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4, NVML_ERROR_NOT_FOUND = 6, NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9, NVML_ERROR_GPU_IS_LOST = 15, NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlMemory_t { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct nvmlUtilization_t { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct nvmlPciInfo_t {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

enum { MOST = 16 };
struct nvmlDevice_st { int index; const fk_gpu *gpu; };
static struct nvmlDevice_st devices[MOST];
static int n_devices, inits;

/* ---- entering ---------------------------------------------------------------------------------------------------- */

/* FAKECUDA_FAIL counts these calls with the driver's, if that is there. */
static nvmlReturn_t told(const char *name)
{
    int (*fail)(const char *) = NULL;
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *const symbol = driver != NULL ? dlsym(driver, "fk_fail") : NULL;
    if (symbol == NULL) return NVML_SUCCESS;
    memcpy(&fail, &symbol, sizeof fail);
    return (nvmlReturn_t)fail(name);
}

#define ENTER(checks)                                                                                                  \
    do {                                                                                                               \
        const nvmlReturn_t told_ = told(__func__);                                                                     \
        if (told_ != NVML_SUCCESS) return told_;                                                                       \
        if (inits <= 0) return NVML_ERROR_UNINITIALIZED;                                                               \
        if (!(checks)) return NVML_ERROR_INVALID_ARGUMENT;                                                             \
    } while (0)

static bool is_device(nvmlDevice_t d)
{
    for (int i = 0; i < n_devices; i++)
        if (d == &devices[i]) return true;
    return false;
}

static unsigned setting(const char *name, unsigned other)
{
    const char *const text = getenv(name);
    return text != NULL && *text != '\0' ? (unsigned)strtoul(text, NULL, 0) : other;
}

EXPORT nvmlReturn_t nvmlInit_v2(void);
EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    int sm[MOST];
    const nvmlReturn_t code = told(__func__);
    if (code != NVML_SUCCESS) return code;
    n_devices = fk_gpu_list(sm, MOST);
    if (n_devices < 0) n_devices = 0;
    for (int i = 0; i < n_devices; i++) devices[i] = (struct nvmlDevice_st){ i, fk_gpu_of(sm[i]) };
    inits++;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlShutdown(void);
EXPORT nvmlReturn_t nvmlShutdown(void)
{
    ENTER(true);
    inits--;
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code);
EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    static const struct { nvmlReturn_t code; const char *text; } texts[] = {
        { NVML_SUCCESS, "Success" }, { NVML_ERROR_UNINITIALIZED, "Uninitialized" },
        { NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument" }, { NVML_ERROR_NOT_SUPPORTED, "Not Supported" },
        { NVML_ERROR_NO_PERMISSION, "Insufficient Permissions" }, { NVML_ERROR_NOT_FOUND, "Not Found" },
        { NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size" }, { NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded" },
        { NVML_ERROR_GPU_IS_LOST, "GPU is lost" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code) return texts[i].text;
    return "Unknown Error";
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static nvmlReturn_t put_text(char *to, unsigned size, const char *text)
{
    if (strlen(text) >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(to, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size);
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    static const struct { unsigned cuda; const char *driver; } drivers[] = {
        { 13000, "580.65.06" }, { 12080, "570.86.10" }, { 12040, "550.54.14" }, { 0, "525.60.13" },
    };
    ENTER(version != NULL);
    int i = 0;
    while (drivers[i].cuda > setting("FAKECUDA_DRIVER", 13000)) i++;
    return put_text(version, size, drivers[i].driver);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n);
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n)
{
    ENTER(n != NULL);
    *n = (unsigned)n_devices;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *out);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *out)
{
    ENTER(out != NULL && i < (unsigned)n_devices);
    *out = &devices[i];
    return NVML_SUCCESS;
}

static void bus_id(int i, char text[32])
{
    snprintf(text, 32, "00000000:%02X:00.0", (unsigned)fk_gpu_bus(i) & 0xff);
}

/* The domain may have four digits or eight. */
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *out);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *out)
{
    char *end = NULL;
    ENTER(id != NULL && out != NULL);
    const unsigned long domain = strtoul(id, &end, 16), bus = *end == ':' ? strtoul(end + 1, &end, 16) : 0;
    if (*end != ':') return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned long device = strtoul(end + 1, NULL, 16);
    for (int i = 0; i < n_devices; i++) {
        if (domain != 0 || device != 0 || bus != ((unsigned long)fk_gpu_bus(i) & 0xff)) continue;
        *out = &devices[i];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

static void uuid_text(int i, char text[48])
{
    unsigned char u[16];
    fk_gpu_uuid(i, u);
    snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    char text[48];
    ENTER(uuid != NULL && out != NULL);
    for (int i = 0; i < n_devices; i++) {
        uuid_text(i, text);
        if (strcmp(text, uuid) != 0) continue;
        *out = &devices[i];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned size);
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned size)
{
    char text[48];
    ENTER(is_device(d) && uuid != NULL);
    uuid_text(d->index, text);
    return put_text(uuid, size, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci);
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci)
{
    ENTER(is_device(d) && pci != NULL);
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)fk_gpu_bus(d->index) & 0xff;
    bus_id(d->index, pci->busId);
    memcpy(pci->busIdLegacy, pci->busId + 4, 13); /* four digits of domain */
    return NVML_SUCCESS;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned size);
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned size)
{
    ENTER(is_device(d) && name != NULL);
    return put_text(name, size, d->gpu->name);
}

/* What this process holds through the fake libcuda, and some that the driver keeps. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *memory);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *memory)
{
    ENTER(is_device(d) && memory != NULL);
    const char *const text = getenv("FAKECUDA_MEM");
    uint64_t (*used)(int) = NULL;
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *const symbol = driver != NULL ? dlsym(driver, "fk_memory_used") : NULL;
    if (symbol != NULL) memcpy(&used, &symbol, sizeof used);
    memory->total = text != NULL && *text != '\0' ? fk_gpu_bytes(text) : (unsigned long long)d->gpu->memory_mib << 20;
    memory->used = used != NULL ? used(d->index) : 0;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *rates);
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *rates)
{
    ENTER(is_device(d) && rates != NULL);
    *rates = (nvmlUtilization_t){ setting("FAKECUDA_UTILIZATION", 37), 12 };
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, unsigned sensor, unsigned *celsius);
EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, unsigned sensor, unsigned *celsius)
{
    ENTER(is_device(d) && celsius != NULL && sensor == 0);
    *celsius = setting("FAKECUDA_TEMPERATURE", 41);
    return NVML_SUCCESS;
}

static unsigned milliwatts(const struct nvmlDevice_st *d)
{
    return setting("FAKECUDA_POWER", (unsigned)d->gpu->watts * 300);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw);
EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw)
{
    ENTER(is_device(d) && mw != NULL);
    *mw = milliwatts(d);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *mw);
EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *mw)
{
    ENTER(is_device(d) && mw != NULL);
    *mw = (unsigned)d->gpu->watts * 1000;
    return NVML_SUCCESS;
}

/* Millijoules since the driver was loaded: the power, for as long as the machine runs. */
EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *mj);
EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *mj)
{
    struct timespec now;
    ENTER(is_device(d) && mj != NULL);
    if (d->gpu->sm < 70) return NVML_ERROR_NOT_SUPPORTED;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *mj = (unsigned long long)(((double)now.tv_sec + 1e-9 * (double)now.tv_nsec) * milliwatts(d));
    return NVML_SUCCESS;
}

/* 0 graphics, 1 SM, 2 memory, 3 video. */
EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz);
EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz)
{
    ENTER(is_device(d) && mhz != NULL && type <= 3);
    *mhz = (unsigned)(type == 2 ? d->gpu->memory_khz : d->gpu->clock_khz) / 1000;
    return NVML_SUCCESS;
}

static nvmlReturn_t reasons(unsigned long long *bits)
{
    *bits = setting("FAKECUDA_REASONS", 0);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *bits);
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *bits)
{
    ENTER(is_device(d) && bits != NULL);
    return reasons(bits);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *bits);
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *bits)
{
    ENTER(is_device(d) && bits != NULL);
    return reasons(bits);
}
