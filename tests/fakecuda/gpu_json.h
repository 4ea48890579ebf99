/* gpu_json.h: a GPU of gpus.c as cuDNN wants it described: the JSON of a DEVICEPROP descriptor, as version 9.19 writes
 * and reads it. Used by the fake cuDNN and by the tests that plan without a GPU. */
#ifndef FAKECUDA_GPU_JSON_H
#define FAKECUDA_GPU_JSON_H

#include "gpus.h"

#include <stdio.h>

static inline void fk_gpu_json(const fk_gpu *g, char *text, size_t size)
{
    snprintf(text, size,
             "{\"deviceName\":\"%s\",\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"isTccDriver\":0,"
             "\"supportCoopLaunch\":1,\"l2CacheSize\":%d,\"maxBlockSize\":[1024,1024,64],"
             "\"maxGridSize\":[2147483647,65535,65535],\"maxCtasPerSM\":%d,\"maxRegistersPerSM\":65536,"
             "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,\"maxSharedMemoryPerSM\":%d,"
             "\"reservedSharedMemoryPerBlock\":%d,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,"
             "\"memClockRateKHz\":%d,\"smClockRateKHz\":%d,\"multiProcessorCount\":%d,\"pciDeviceId\":0,"
             "\"regsPerBlock\":65536,\"totalGlobalMem\":%llu,\"warpSize\":32}",
             g->name, g->sm * 10, g->l2_kib * 1024, g->blocks, g->shared_optin_kib * 1024, g->shared_kib * 1024,
             g->sm == 75 ? 0 : 1024, g->threads, g->memory_khz, g->clock_khz, g->units,
             (unsigned long long)g->memory_mib << 20);
}

#endif
