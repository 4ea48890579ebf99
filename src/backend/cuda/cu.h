/* cu.h: what the files of the CUDA backend share: the APIs of driver, NVRTC and NVML as they are loaded, the list of
 * devices, the open device. No header of the toolkit is needed to build: the few types, constants and functions that are
 * used stand here under our own names (tests/test_cuda_headers.c compares them with NVIDIA's where those are there).
 *
 * cu_load.c opens the libraries; cu_devices.c lists; cu_driver.c is memory, programs, launches (gpu.h's driver);
 * cu_upload.c sends beside the work; cu_record.c makes a step one call; cu_library.c has the vendor's big ops (cuBLASLt,
 * cuDNN), nccl_comm.c sums over several devices (NCCL); cu.c is the backend's table of functions, and the one place that makes the context current. */
#ifndef SW_BACKEND_CUDA_CU_H
#define SW_BACKEND_CUDA_CU_H

#include "backend/cuda/nccl.h"
#include "backend/gpu/gpu.h"

/* ---- types and constants ------------------------------------------------------------------------------------------- */

typedef unsigned sw__cu_result; /* CUresult, nvrtcResult, nvmlReturn_t: 0 is success */
typedef unsigned sw__cu_choice; /* any enum that is passed */
typedef int sw__cu_device;
typedef unsigned long long sw__cu_address;
typedef struct CUctx_st *sw__cu_context;
typedef struct CUstream_st *sw__cu_stream;
typedef struct CUevent_st *sw__cu_event;
typedef struct CUmod_st *sw__cu_module;
typedef struct CUfunc_st *sw__cu_function;
typedef struct CUgraph_st *sw__cu_graph;
typedef struct CUgraphExec_st *sw__cu_graph_exec;
typedef struct _nvrtcProgram *sw__nvrtc_program; // NOLINT(bugprone-reserved-identifier): NVIDIA's name for it
typedef struct nvmlDevice_st *sw__nvml_device;

enum {
    SW_CU_OK = 0,
    SW_CU_INVALID_VALUE = 1,
    SW_CU_OUT_OF_MEMORY = 2,
    SW_CU_NOT_INITIALIZED = 3,
    SW_CU_DEINITIALIZED = 4,
    SW_CU_STUB_LIBRARY = 34,
    SW_CU_NO_DEVICE = 100,
    SW_CU_INVALID_IMAGE = 200,
    SW_CU_NO_BINARY_FOR_GPU = 209,
    SW_CU_ECC_UNCORRECTABLE = 214,
    SW_CU_NVLINK_UNCORRECTABLE = 220,
    SW_CU_UNSUPPORTED_PTX_VERSION = 222,
    SW_CU_NOT_READY = 600,
    SW_CU_ILLEGAL_ADDRESS = 700,
    SW_CU_LAUNCH_OUT_OF_RESOURCES = 701,
    SW_CU_LAUNCH_TIMEOUT = 702,
    SW_CU_ASSERT = 710,
    SW_CU_HARDWARE_STACK_ERROR = 714,
    SW_CU_LAUNCH_FAILED = 719,
    SW_CU_SYSTEM_DRIVER_MISMATCH = 803,
    SW_CU_COMPAT_NOT_SUPPORTED = 804,
};

enum { /* CUdevice_attribute */
    SW_CU_MAX_THREADS_PER_BLOCK = 1,
    SW_CU_MAX_SHARED_PER_BLOCK = 8,
    SW_CU_CLOCK_RATE = 13, /* kHz */
    SW_CU_MULTIPROCESSORS = 16,
    SW_CU_COMPUTE_MODE = 20,
    SW_CU_MEMORY_CLOCK_RATE = 36, /* kHz */
    SW_CU_MEMORY_BUS_WIDTH = 37,  /* bits */
    SW_CU_CAPABILITY_MAJOR = 75,
    SW_CU_CAPABILITY_MINOR = 76,
};

enum { SW_CU_COMPUTE_PROHIBITED = 2 };
enum { SW_CU_STREAM_NON_BLOCKING = 1 };
enum { SW_CU_EVENT_DEFAULT = 0, SW_CU_EVENT_DISABLE_TIMING = 2 };
enum { SW_CU_CAPTURE_THREAD_LOCAL = 1 };

enum { SW_NVML_TEMPERATURE_GPU = 0, SW_NVML_CLOCK_SM = 1 };
typedef struct sw__nvml_memory { unsigned long long total, free, used; } sw__nvml_memory;
typedef struct sw__nvml_utilization { unsigned gpu, memory; } sw__nvml_utilization; /* percent */

/* ---- functions ----------------------------------------------------------------------------------------------------- */

/* The oldest driver that is taken, as cuDriverGetVersion counts: what compilers of CUDA 12 write needs one of CUDA 12. */
#define SW_CU_DRIVER 12000
#define SW_CU_DRIVER_TEXT "a driver for CUDA 12.0 or later (525.60 and up)"

/* X(name as exported, since which CUDA, parameters). All of them are needed, save those of SW_CU_OPTIONAL, which are NULL
 * where a driver lacks them. */
#define SW_CU_OPTIONAL(X)                                                                                              \
    X(cuFuncGetParamInfo, 12040, (sw__cu_function function, size_t index, size_t *offset, size_t *size))
#define SW_CU_FUNCTIONS(X)                                                                                             \
    X(cuInit, 2000, (unsigned flags))                                                                                  \
    X(cuDriverGetVersion, 2020, (int *version))                                                                        \
    X(cuGetErrorName, 6000, (sw__cu_result code, const char **text))                                                   \
    X(cuGetErrorString, 6000, (sw__cu_result code, const char **text))                                                 \
    X(cuDeviceGetCount, 2000, (int *count))                                                                            \
    X(cuDeviceGet, 2000, (sw__cu_device * device, int index))                                                          \
    X(cuDeviceGetName, 2000, (char *name, int size, sw__cu_device device))                                             \
    X(cuDeviceTotalMem_v2, 3020, (size_t *bytes, sw__cu_device device))                                                \
    X(cuDeviceGetAttribute, 2000, (int *value, sw__cu_choice attribute, sw__cu_device device))                         \
    X(cuDeviceGetPCIBusId, 4010, (char *id, int size, sw__cu_device device))                                           \
    X(cuDevicePrimaryCtxRetain, 7000, (sw__cu_context * context, sw__cu_device device))                                \
    X(cuDevicePrimaryCtxRelease_v2, 11000, (sw__cu_device device))                                                     \
    X(cuCtxSetCurrent, 4000, (sw__cu_context context))                                                                 \
    X(cuMemGetInfo_v2, 3020, (size_t *free, size_t *total))                                                            \
    X(cuMemAlloc_v2, 3020, (sw__cu_address * address, size_t bytes))                                                   \
    X(cuMemFree_v2, 3020, (sw__cu_address address))                                                                    \
    X(cuMemAllocHost_v2, 3020, (void **pointer, size_t bytes))                                                         \
    X(cuMemFreeHost, 2000, (void *pointer))                                                                            \
    X(cuMemcpyHtoDAsync_v2, 3020, (sw__cu_address to, const void *from, size_t bytes, sw__cu_stream stream))           \
    X(cuMemcpyDtoHAsync_v2, 3020, (void *to, sw__cu_address from, size_t bytes, sw__cu_stream stream))                 \
    X(cuMemcpyDtoDAsync_v2, 3020, (sw__cu_address to, sw__cu_address from, size_t bytes, sw__cu_stream stream))        \
    X(cuMemsetD8Async, 3020, (sw__cu_address at, unsigned char byte, size_t count, sw__cu_stream stream))              \
    X(cuMemsetD32Async, 3020, (sw__cu_address at, unsigned word, size_t count, sw__cu_stream stream))                  \
    X(cuStreamCreateWithPriority, 5050, (sw__cu_stream * stream, unsigned flags, int priority))                        \
    X(cuStreamDestroy_v2, 4000, (sw__cu_stream stream))                                                                \
    X(cuStreamSynchronize, 2000, (sw__cu_stream stream))                                                               \
    X(cuStreamQuery, 2000, (sw__cu_stream stream))                                                                     \
    X(cuStreamWaitEvent, 3020, (sw__cu_stream stream, sw__cu_event event, unsigned flags))                             \
    X(cuEventCreate, 2000, (sw__cu_event * event, unsigned flags))                                                     \
    X(cuEventDestroy_v2, 4000, (sw__cu_event event))                                                                   \
    X(cuEventRecord, 2000, (sw__cu_event event, sw__cu_stream stream))                                                 \
    X(cuEventSynchronize, 2000, (sw__cu_event event))                                                                  \
    X(cuEventQuery, 2000, (sw__cu_event event))                                                                        \
    X(cuEventElapsedTime, 2000, (float *milliseconds, sw__cu_event from, sw__cu_event to))                             \
    X(cuModuleLoadData, 2000, (sw__cu_module * module, const void *image))                                             \
    X(cuModuleUnload, 2000, (sw__cu_module module))                                                                    \
    X(cuModuleGetFunction, 2000, (sw__cu_function * function, sw__cu_module module, const char *name))                 \
    X(cuLaunchKernel, 4000,                                                                                            \
      (sw__cu_function function, unsigned groups_x, unsigned groups_y, unsigned groups_z, unsigned local_x,            \
       unsigned local_y, unsigned local_z, unsigned shared_bytes, sw__cu_stream stream, void **parameters,             \
       void **extra))                                                                                                  \
    X(cuStreamBeginCapture_v2, 10010, (sw__cu_stream stream, sw__cu_choice mode))                                      \
    X(cuStreamEndCapture, 10000, (sw__cu_stream stream, sw__cu_graph * graph))                                         \
    X(cuGraphInstantiateWithFlags, 11040, (sw__cu_graph_exec * exec, sw__cu_graph graph, unsigned long long flags))    \
    X(cuGraphUpload, 11010, (sw__cu_graph_exec exec, sw__cu_stream stream))                                            \
    X(cuGraphLaunch, 10000, (sw__cu_graph_exec exec, sw__cu_stream stream))                                            \
    X(cuGraphExecDestroy, 10000, (sw__cu_graph_exec exec))                                                             \
    X(cuGraphDestroy, 10000, (sw__cu_graph graph))

/* The compiler, of CUDA 12 or later. */
#define SW_NVRTC_FUNCTIONS(X)                                                                                          \
    X(nvrtcVersion, 7000, (int *major, int *minor))                                                                    \
    X(nvrtcGetNumSupportedArchs, 11020, (int *count))                                                                  \
    X(nvrtcGetSupportedArchs, 11020, (int *archs))                                                                     \
    X(nvrtcCreateProgram, 7000,                                                                                        \
      (sw__nvrtc_program * program, const char *text, const char *name, int n, const char *const *headers,             \
       const char *const *names))                                                                                      \
    X(nvrtcDestroyProgram, 7000, (sw__nvrtc_program * program))                                                        \
    X(nvrtcCompileProgram, 7000, (sw__nvrtc_program program, int n, const char *const *options))                       \
    X(nvrtcGetProgramLogSize, 7000, (sw__nvrtc_program program, size_t *bytes))                                        \
    X(nvrtcGetProgramLog, 7000, (sw__nvrtc_program program, char *log))                                                \
    X(nvrtcGetCUBINSize, 11010, (sw__nvrtc_program program, size_t *bytes))                                            \
    X(nvrtcGetCUBIN, 11010, (sw__nvrtc_program program, char *image))                                                  \
    X(nvrtcGetPTXSize, 7000, (sw__nvrtc_program program, size_t *bytes))                                               \
    X(nvrtcGetPTX, 7000, (sw__nvrtc_program program, char *text))

/* What NVML tells of a device; each may be missing. */
#define SW_NVML_FUNCTIONS(X)                                                                                           \
    X(nvmlInit_v2, 5000, (void))                                                                                       \
    X(nvmlSystemGetDriverVersion, 5000, (char *text, unsigned size))                                                   \
    X(nvmlDeviceGetHandleByPciBusId_v2, 5000, (const char *id, sw__nvml_device *device))                               \
    X(nvmlDeviceGetMemoryInfo, 5000, (sw__nvml_device device, sw__nvml_memory *memory))                                \
    X(nvmlDeviceGetUtilizationRates, 5000, (sw__nvml_device device, sw__nvml_utilization *rates))                      \
    X(nvmlDeviceGetTemperature, 5000, (sw__nvml_device device, sw__cu_choice sensor, unsigned *celsius))               \
    X(nvmlDeviceGetPowerUsage, 5000, (sw__nvml_device device, unsigned *milliwatts))                                   \
    X(nvmlDeviceGetEnforcedPowerLimit, 5000, (sw__nvml_device device, unsigned *milliwatts))                           \
    X(nvmlDeviceGetClockInfo, 5000, (sw__nvml_device device, sw__cu_choice clock, unsigned *mhz))

#define SW_CU_POINTER(name, since, parameters) sw__cu_result(*name) parameters;
typedef struct sw__cu_api { SW_CU_FUNCTIONS(SW_CU_POINTER) SW_CU_OPTIONAL(SW_CU_POINTER) } sw__cu_api;
typedef struct sw__nvrtc_api { SW_NVRTC_FUNCTIONS(SW_CU_POINTER) } sw__nvrtc_api;
typedef struct sw__nvml_api { SW_NVML_FUNCTIONS(SW_CU_POINTER) } sw__nvml_api;
#undef SW_CU_POINTER

/* ---- libraries (cu_load.c) ----------------------------------------------------------------------------------------- */

/* What one process has of NVIDIA's: looked for once. */
typedef struct sw__cu_libraries {
    sw__cu_api cu;
    sw__nvrtc_api nvrtc;
    sw__nvml_api nvml;         /* functions that are missing are NULL */
    int driver;                /* CUDA version of the driver, 13000 */
    int nvrtc_version;         /* 12080; 0: there is none */
    char include[256];         /* the toolkit's headers beside NVRTC, or "" */
    int archs[64], n_archs;    /* compute capabilities that NVRTC compiles for, times ten, in ascending order */
    char driver_name[32];      /* "580.65.06", or "" without NVML */
    char no_driver[400];       /* why there is no CUDA at all, and what to do; "" if there is */
    char no_nvrtc[400];        /* … nothing to compile with */
} sw__cu_libraries;
/* The driver, NVRTC and NVML. Never NULL: the texts say what is missing. */
const sw__cu_libraries *sw__cu_load(void);

/* A library of NVIDIA's opened by name ("libcublasLt.so.%d") for the CUDA major versions that suit the driver, newest
 * first: where the loader finds it, in CUDA_HOME, CUDA_PATH and the usual places. NULL: none, or SWOOP_WITHOUT names it;
 * *version is which. */
void *sw__cu_open_library(const char *pattern, int newest, int oldest, int *version, char *path, size_t size);

/* cuBLASLt or cuDNN, which need not be there: opened once and never closed, since they have threads and state of the driver.
 * failure: "" as long as all goes well, then what is missing and what to install. */
typedef struct sw__cu_vendor {
    const char *name, *install;   /* "cuDNN", "install cuDNN 9 …" */
    const char *variable;         /* of the environment: a path to another */
    const char *pattern;
    int newest, oldest;           /* of pattern */
    char failure[500];
} sw__cu_vendor;
void *sw__cu_open_vendor(sw__cu_vendor *v); /* NULL: told in failure */
void sw__cu_vendor_symbol(sw__cu_vendor *v, void *handle, const char *name, void *pointer, size_t size);

/* ---- devices (cu_devices.c) ---------------------------------------------------------------------------------------- */

#define SW_CU_MAX_DEVICES 64
typedef struct sw__cu_entry {
    sw__cu_device id;
    int index;
    char name[128], pci[24];
    char unusable[160];        /* "" or why */
    int sm;                    /* compute capability times ten: 90 */
    int arch;                  /* what NVRTC compiles for: sm, or less where it does not know that (then through PTX) */
    int units;                 /* multiprocessors */
    int clock;                 /* MHz */
    int max_group;
    size_t memory, local;
    double bandwidth;          /* bytes a second, 0 if unknown */
} sw__cu_entry;
/* All devices in the driver's order; the list is made once. */
int sw__cu_devices(const sw__cu_entry **list);
void sw__cu_describe(const sw__cu_entry *e, sw_device_properties *p);

/* ---- the open device ----------------------------------------------------------------------------------------------- */

/* Pinned memory for little things, used part after part: see cu_upload.c. */
enum { SW_CU_RING_PARTS = 4 };
typedef struct sw__cu_ring {
    char *host;
    int part;                  /* the one that is being filled, */
    size_t used;               /* so far */
    bool busy[SW_CU_RING_PARTS];
    sw__cu_event left[SW_CU_RING_PARTS]; /* where busy: all that went through the part is done */
} sw__cu_ring;

/* Pinned memory for what is large, and staging memory on the device that it is on the way to. */
enum { SW_CU_SLOTS = 2 };
typedef struct sw__cu_slot {
    void *host;
    sw__cu_address device;     /* 0: there was no room, it is sent straight to where it belongs */
    size_t bytes;
    bool busy;                 /* `sent` tells when the pinned memory may be written again */
    sw__cu_event sent, taken;  /* the pinned memory has been read; the device memory has */
} sw__cu_slot;

struct sw__cu {
    const sw__cu_libraries *lib;
    const sw__cu_api *api;     /* &lib->cu */
    const sw__cu_entry *entry;
    sw__cu_context context;    /* the primary one, retained */
    sw__cu_stream stream;      /* all work */
    sw__cu_stream copy;        /* uploads of size */
    int sm;
    bool tf32;                 /* matrix products and convolutions of f32 may round their inputs to TF32 */
    bool check;                /* SWOOP_CHECK: wait after each launch; nothing is recorded */
    bool lost;                 /* an error after which the driver refuses all calls of this process */
    sw__cu_event timer[2];     /* made when first wanted */
    double *timed;             /* where the time between the two goes */
    sw__cu_ring ring;
    sw__cu_slot slot[SW_CU_SLOTS];
    unsigned turn;
    uint64_t direct;           /* uploads that found no staging memory on the device: for logs and tests */
    uint64_t replays;
    bool was_checked;          /* gpu.checked when recording began */
    uint64_t sums;             /* nccl.launched when it did */
    const char *last;          /* entry of the kernel that was launched last, or what else ran; NULL: nothing yet */
    void *library;             /* cu_library.c's; NULL: not opened */
    sw__nccl nccl;             /* as one of several */
    sw__gpu gpu;
};

extern const sw__gpu_driver sw__cu_driver;

/* A failed call as a status: "cuda: cuMemAlloc: CUDA_ERROR_INVALID_VALUE (1): invalid argument". Of an error that ends
 * the context also which kernel ran last. */
sw_status sw__cu_fail(sw__cu *c, sw__cu_result code, const char *call);
#define SW_CU_TRY(C, F, ...)                                                                                           \
    do {                                                                                                               \
        const sw__cu_result code_ = (C)->api->F(__VA_ARGS__);                                                          \
        if (code_ != SW_CU_OK) return sw__cu_fail((C), code_, #F);                                                     \
    } while (0)

static inline sw__cu_address sw__cu_at(const void *buffer, size_t offset)
{
    return (sw__cu_address)(uintptr_t)buffer + offset;
}

/* As libraries over the CUDA runtime want it. */
static inline void *sw__cu_pointer(const sw__bind *b, size_t offset)
{
    return (void *)(uintptr_t)sw__cu_at(b->buffer, b->offset + offset); // NOLINT(performance-no-int-to-ptr)
}

/* cu_driver.c: waits for the event, or for all work (NULL); as one of several ranks not for ever. */
sw_status sw__cu_wait(sw__cu *c, sw__cu_event event);
void sw__cu_settle(sw__cu *c); /* the same for the stream where a failure is nobody's: the message stays as it was */

/* cu_upload.c: src may be changed as soon as it returns; a transfer that fails later is told by a later call. */
sw_status sw__cu_upload(sw__cu *c, sw__cu_address to, const void *src, size_t bytes);
void sw__cu_upload_end(sw__cu *c);
/* Pinned memory for at most SW_CU_SMALL bytes on their way through the stream of the work, in either direction. What is
 * launched with it comes before the next call. */
#define SW_CU_SMALL ((size_t)64 << 10)
sw_status sw__cu_small(sw__cu *c, size_t bytes, void **host);

/* cu_record.c */
sw_status sw__cu_record_begin(sw__cu *c);
sw_status sw__cu_record_end(sw__cu *c, bool failed, void **recording);
sw_status sw__cu_replay(sw__cu *c, void *recording);
void sw__cu_recording_free(sw__cu *c, void *recording);

/* cu_library.c: plans for cuBLASLt and cuDNN (gpu.h's `library`), opened when first wanted; and their end, while the
 * context lives. */
sw_status sw__cu_library(void *dev, sw__gpu_plan *p);
bool sw__cu_library_has(uint16_t op);
bool sw__cu_library_label(void *dev, const sw__op_desc *d, char *out, size_t size);
void sw__cu_library_close(sw__cu *c);

#endif
