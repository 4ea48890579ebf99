/* cu_planned.c: cuDNN asked for a GPU that is not there: it plans from a description in JSON, and names engine and
 * workspace as it would on the GPU. For gpu/gpu_planned.c, through the list in registry.c. */
#include "backend/cuda/cu.h"
#include "backend/cuda/dnn.h"

#include <stdio.h>

typedef struct planned {
    sw__cu cu; /* what planning looks at: the precision */
    sw__cudnn dnn;
} planned;

/* What differs between generations, from the CUDA programming guide's table of compute capabilities. */
static const struct { int sm, threads, blocks, shared, shared_block; } generations[] = {
    {75, 1024, 16, 64, 64},   {80, 2048, 32, 164, 163}, {86, 1536, 16, 100, 99},   {87, 1536, 16, 164, 163},
    {89, 1536, 24, 100, 99},  {90, 2048, 32, 228, 227}, {100, 2048, 32, 228, 227}, {120, 1536, 24, 100, 99},
};

/* The newest generation that is not newer than the GPU; -1: older than all that cuDNN 9 knows. */
static int generation_of(int sm)
{
    int at = -1;
    for (size_t i = 0; i < SW_COUNT(generations); i++)
        if (generations[i].sm <= sm) at = (int)i;
    return at;
}

static sw_status describe(const sw_gpu_model *m, char *text, size_t size)
{
    const int at = generation_of(m->capability);
    if (at < 0) return sw__fail(SW_ERR_UNSUPPORTED, "cuDNN 9 does not know GPUs of compute capability %.1f", m->capability / 10.0);
    const int n = snprintf(text, size,
        "{\"deviceName\":\"%s\",\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"isTccDriver\":0,"
        "\"supportCoopLaunch\":1,\"l2CacheSize\":%d,\"maxBlockSize\":[1024,1024,64],"
        "\"maxGridSize\":[2147483647,65535,65535],\"maxCtasPerSM\":%d,\"maxRegistersPerSM\":65536,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,\"maxSharedMemoryPerSM\":%d,"
        "\"reservedSharedMemoryPerBlock\":%d,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"memClockRateKHz\":%d,"
        "\"smClockRateKHz\":%d,\"multiProcessorCount\":%d,\"pciDeviceId\":0,\"regsPerBlock\":65536,"
        "\"totalGlobalMem\":%llu,\"warpSize\":32}",
        m->name, m->capability * 10, 4 << 20, generations[at].blocks, generations[at].shared_block << 10,
        generations[at].shared << 10, m->capability == 75 ? 0 : 1024, generations[at].threads, 8000000, 1800000,
        m->compute_units, (unsigned long long)m->memory);
    return n > 0 && (size_t)n < size ? SW_OK : sw__fail(SW_ERR_ARGUMENT, "the GPU's name is too long");
}

static bool takes(const sw_gpu_model *m)
{
    return m->capability > 0;
}

static void close_planned(void *library)
{
    planned *const p = library;
    if (p->dnn.api != NULL) sw__cudnn_close(&p->dnn);
    sw__free(p);
}

static sw_status open_planned(const sw_gpu_model *m, void **library)
{
    char json[1200];
    planned *const p = sw__calloc(1, sizeof *p);
    if (p == NULL) return sw__no_memory(sizeof *p, "a planned GPU's libraries");
    sw_status st = describe(m, json, sizeof json);
    if (st == SW_OK) st = sw__cudnn_load(&p->dnn.api);
    if (st == SW_OK) st = sw__cudnn_device_json(p->dnn.api, json, &p->dnn.device);
    if (st != SW_OK) {
        close_planned(p);
        return st;
    }
    *library = p;
    return SW_OK;
}

static sw_status plan(void *library, sw__gpu_plan *plan)
{
    planned *const p = library;
    switch (plan->d.op) {
    case SW_OP_CONV:
    case SW_OP_CONV_GRAD_X:
    case SW_OP_CONV_GRAD_W: return sw__cudnn_plan_op(&p->cu, &p->dnn, plan);
    default: return sw__fail(SW_ERR_UNSUPPORTED, "cuBLASLt chooses on the GPU only");
    }
}

extern const sw__planned_library sw__cu_planned_library;
const sw__planned_library sw__cu_planned_library = {"cuDNN", takes, open_planned, plan, close_planned};
