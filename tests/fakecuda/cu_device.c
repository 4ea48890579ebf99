/* cu_device.c: the GPUs that are played and their primary contexts, the only ones there are; peer access. See cu.h. */
#include "cu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Thread_local fk_context *fk_current;
static fk_context *contexts[FK_DEVICES]; /* the living one of each device */

const fk_gpu *fk_device_gpu(int device)
{
    return fk_gpu_of(fk_set.sm[device]);
}

uint64_t fk_device_memory(int device)
{
    return fk_set.memory > 0 ? fk_set.memory : (uint64_t)fk_device_gpu(device)->memory_mib << 20;
}

bool fk_device_sees(int device, int owner)
{
    return device == owner || (contexts[device] != NULL && contexts[device]->peer[owner]);
}

FK_EXPORT int fk_sm(void)
{
    return fk_set.sm[fk_current != NULL ? fk_current->o.device : 0];
}

FK_EXPORT uint64_t fk_memory_used(int physical)
{
    for (int i = 0; i < fk_set.n_devices; i++)
        if (fk_set.physical[i] == physical) return fk_device_used(i);
    return 0;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static CUresult check_device(const fk_guard *g, CUdevice device, const void *out)
{
    if (device < 0 || device >= fk_set.n_devices)
        return fk_misuse(g, CUDA_ERROR_INVALID_DEVICE, "there is no device %d of %d", device, fk_set.n_devices);
    return out != NULL ? CUDA_SUCCESS : fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "no place for the answer");
}

FK_EXPORT CUresult CUDAAPI cuDeviceGetCount(int *n)
{
    FK_ENTER(0);
    if (n == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no place for the answer");
    *n = fk_set.n_devices;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    FK_ENTER(0);
    if (device == NULL || ordinal < 0 || ordinal >= fk_set.n_devices) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice device)
{
    FK_ENTER(0);
    const CUresult code = check_device(&guard, device, name);
    if (code == CUDA_SUCCESS && name != NULL && len > 0) snprintf(name, (size_t)len, "%s", fk_device_gpu(device)->name);
    return code;
}

FK_EXPORT CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    FK_ENTER(0);
    const CUresult code = check_device(&guard, device, uuid);
    unsigned char bytes[16];
    if (code != CUDA_SUCCESS || uuid == NULL) return code;
    fk_gpu_uuid(fk_set.physical[device], bytes);
    memcpy(uuid->bytes, bytes, sizeof bytes);
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    FK_ENTER(0);
    const CUresult code = check_device(&guard, device, bytes);
    if (code == CUDA_SUCCESS) *bytes = fk_device_memory(device);
    return code;
}

FK_EXPORT CUresult CUDAAPI cuDeviceGetPCIBusId(char *id, int len, CUdevice device)
{
    FK_ENTER(0);
    const CUresult code = check_device(&guard, device, id);
    if (code != CUDA_SUCCESS) return code;
    if (len < 13) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "%d bytes are too few", len);
    snprintf(id, (size_t)len, "0000:%02X:00.0", (unsigned)fk_gpu_bus(fk_set.physical[device]) & 0xff);
    return CUDA_SUCCESS;
}

/* Attributes that are the same for all, then those of the table of GPUs. */
static const struct { CUdevice_attribute what; int value; } common[] = {
    { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
    { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
    { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
    { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
    { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647 },
    { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
    { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
    { CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10 },
    { CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10 },
    { CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
    { CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647 },
    { CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536 },
    { CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536 },
    { CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512 },
    { CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1 },
    { CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0 },
    { CU_DEVICE_ATTRIBUTE_INTEGRATED, 0 },
    { CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
    { CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT },
    { CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
    { CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0 },
    { CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0 },
    { CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0 },
    { CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3 },
    { CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
    { CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1 },
    { CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, 0 },
    { CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0 },
    { CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1 },
    { CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1 },
    { CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
    { CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0 },
    { CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0 },
};

static bool of_table(CUdevice_attribute what, const fk_gpu *g, int *value)
{
    const bool is_server = g->f64_ratio == 2 || g->sm == 75;
    switch ((int)what) {
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = g->clock_khz; return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = g->units; return true;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = g->memory_khz; return true;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = g->bus_bits; return true;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = g->l2_kib << 10; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = g->threads; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: *value = g->blocks; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = g->shared_kib << 10; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = g->shared_optin_kib << 10; return true;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: *value = g->sm >= 80 ? 1024 : 0; return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = g->sm / 10; return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = g->sm % 10; return true;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: *value = g->f64_ratio; return true;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: *value = is_server; return true;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: *value = g->sm >= 90; return true;
    default: return false;
    }
}

FK_EXPORT CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice device)
{
    FK_ENTER(0);
    const CUresult code = check_device(&guard, device, value);
    if (code != CUDA_SUCCESS) return code;
    if (what == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
        *value = fk_gpu_bus(fk_set.physical[device]);
        return CUDA_SUCCESS;
    }
    if (of_table(what, fk_device_gpu(device), value)) return CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        if (common[i].what != what) continue;
        *value = common[i].value;
        return CUDA_SUCCESS;
    }
    return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "the double does not know attribute %d", (int)what);
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

FK_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    FK_ENTER(0);
    const CUresult code = check_device(&guard, device, out);
    if (code != CUDA_SUCCESS) return code;
    fk_context *c = contexts[device];
    if (c == NULL) {
        c = fk_new(FK_CTX, sizeof *c, device);
        if (c == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
        c->legacy = fk_stream_make(device, CU_STREAM_DEFAULT, 0, true);
        if (c->legacy == NULL) {
            fk_end(c);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        contexts[device] = c;
    }
    c->refs++;
    *out = (CUcontext)(void *)c;
    return CUDA_SUCCESS;
}

static void free_memory(fk_alloc *a, void *data)
{
    const int *const device = data;
    if (a->device == *device) fk_deallocate(a);
}

/* What the program left is told of, and goes with the context. */
static void end_context(fk_context *c)
{
    int device = c->o.device;
    fk_wait_device(device);
    fk_leaks(device);
    for (fk_object *o = fk_objects(); o != NULL; o = o->next) {
        if (!o->live || o->device != device) continue;
        if (o->kind == FK_EXEC) fk_exec_end((fk_exec *)(void *)o);
        if (o->kind == FK_GRAPH) fk_graph_end((fk_graph *)(void *)o);
        if (o->kind == FK_MODULE) fk_module_end((fk_module *)(void *)o);
        if (o->kind == FK_EVENT) fk_end(o);
    }
    fk_streams_end(device);
    fk_memory_each(free_memory, &device);
    fk_end(c);
    contexts[device] = NULL;
}

FK_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    FK_ENTER(FK_RELEASE);
    const CUresult code = check_device(&guard, device, &guard);
    if (code != CUDA_SUCCESS) return code;
    if (contexts[device] == NULL)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_CONTEXT, "device %d has no primary context", device);
    if (--contexts[device]->refs == 0) end_context(contexts[device]);
    return fk_result(&guard, CUDA_SUCCESS);
}

FK_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    FK_ENTER(0);
    const CUresult code = check_device(&guard, device, active);
    if (code != CUDA_SUCCESS) return code;
    if (flags != NULL) *flags = 0;
    *active = contexts[device] != NULL;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    FK_ENTER(FK_RELEASE);
    CUresult code = guard.told; /* then it is left as it is */
    if (code != CUDA_SUCCESS) return code;
    fk_context *const c = context != NULL ? fk_object_of(&guard, context, FK_CTX, &code) : NULL;
    if (code != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
    fk_current = c;
    return fk_result(&guard, CUDA_SUCCESS);
}

FK_EXPORT CUresult CUDAAPI cuCtxGetCurrent(CUcontext *out)
{
    FK_ENTER(0);
    if (out == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no place for the answer");
    *out = (CUcontext)(void *)fk_current;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuCtxGetDevice(CUdevice *out)
{
    FK_ENTER(FK_CONTEXT);
    if (out == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no place for the answer");
    *out = fk_current->o.device;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    FK_ENTER(FK_CONTEXT);
    if (least != NULL) *least = 0;
    if (greatest != NULL) *greatest = -5;
    return CUDA_SUCCESS;
}

/* ---- peers ------------------------------------------------------------------------------------------------------- */

/* Boards of one kind reach each other. */
static bool can_reach(int device, int peer)
{
    return device != peer && fk_set.sm[device] == fk_set.sm[peer];
}

FK_EXPORT CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    FK_ENTER(0);
    CUresult code = check_device(&guard, device, can);
    if (code == CUDA_SUCCESS) code = check_device(&guard, peer, can);
    if (code == CUDA_SUCCESS) *can = can_reach(device, peer);
    return code;
}

FK_EXPORT CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    const fk_context *const p = fk_object_of(&guard, peer, FK_CTX, &code);
    if (p == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "flags must be 0");
    if (!can_reach(fk_current->o.device, p->o.device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (fk_current->peer[p->o.device]) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    fk_current->peer[p->o.device] = true;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
    FK_ENTER(FK_CONTEXT | FK_RELEASE);
    CUresult code;
    const fk_context *const p = fk_object_of(&guard, peer, FK_CTX, &code);
    if (p == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (!fk_current->peer[p->o.device]) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    fk_current->peer[p->o.device] = false;
    return fk_result(&guard, CUDA_SUCCESS);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define CODE(c) { CUDA_ERROR_##c, "CUDA_ERROR_" #c }
static const struct { CUresult code; const char *name; } codes[] = {
    { CUDA_SUCCESS, "CUDA_SUCCESS" }, CODE(INVALID_VALUE), CODE(OUT_OF_MEMORY), CODE(NOT_INITIALIZED),
    CODE(DEINITIALIZED), CODE(STUB_LIBRARY), CODE(NO_DEVICE), CODE(INVALID_DEVICE), CODE(INVALID_IMAGE),
    CODE(INVALID_CONTEXT), CODE(NO_BINARY_FOR_GPU), CODE(ECC_UNCORRECTABLE), CODE(PEER_ACCESS_UNSUPPORTED),
    CODE(INVALID_PTX), CODE(UNSUPPORTED_PTX_VERSION), CODE(INVALID_HANDLE), CODE(NOT_FOUND), CODE(NOT_READY),
    CODE(ILLEGAL_ADDRESS), CODE(LAUNCH_OUT_OF_RESOURCES), CODE(LAUNCH_TIMEOUT), CODE(PEER_ACCESS_ALREADY_ENABLED),
    CODE(PEER_ACCESS_NOT_ENABLED), CODE(CONTEXT_IS_DESTROYED), CODE(ASSERT), CODE(HARDWARE_STACK_ERROR),
    CODE(ILLEGAL_INSTRUCTION), CODE(MISALIGNED_ADDRESS), CODE(INVALID_ADDRESS_SPACE), CODE(INVALID_PC),
    CODE(LAUNCH_FAILED), CODE(NOT_PERMITTED), CODE(NOT_SUPPORTED), CODE(SYSTEM_NOT_READY),
    CODE(SYSTEM_DRIVER_MISMATCH), CODE(STREAM_CAPTURE_UNSUPPORTED), CODE(STREAM_CAPTURE_INVALIDATED),
    CODE(STREAM_CAPTURE_MERGE), CODE(STREAM_CAPTURE_UNMATCHED), CODE(STREAM_CAPTURE_UNJOINED),
    CODE(STREAM_CAPTURE_ISOLATION), CODE(STREAM_CAPTURE_IMPLICIT), CODE(CAPTURED_EVENT),
    CODE(STREAM_CAPTURE_WRONG_THREAD), CODE(TIMEOUT), CODE(GRAPH_EXEC_UPDATE_FAILURE), CODE(UNKNOWN),
};

static CUresult name_of(CUresult code, const char **text)
{
    *text = NULL;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code) *text = codes[i].name;
    return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FK_EXPORT CUresult CUDAAPI cuGetErrorName(CUresult code, const char **text)
{
    FK_ENTER(FK_NO_INIT | FK_ANYWAY);
    return name_of(code, text);
}

/* "CUDA_ERROR_OUT_OF_MEMORY" in words: "out of memory". */
FK_EXPORT CUresult CUDAAPI cuGetErrorString(CUresult code, const char **text)
{
    static char words[sizeof codes / sizeof *codes][48];
    FK_ENTER(FK_NO_INIT | FK_ANYWAY);
    *text = NULL;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].code != code) continue;
        const char *const name = codes[i].name + (code != CUDA_SUCCESS ? strlen("CUDA_ERROR_") : strlen("CUDA_"));
        for (size_t k = 0; name[k] != '\0' && k + 1 < sizeof *words; k++)
            words[i][k] = (char)(name[k] == '_' ? ' ' : name[k] - 'A' + 'a');
        *text = words[i];
    }
    return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
