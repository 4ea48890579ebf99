/* nccl.h: NCCL as swoop uses it, for sums over several GPUs: its own declarations, so that nothing of NVIDIA's is
 * needed to build (tests hold them against the real header). nccl_load.c opens the library, nccl_comm.c has the
 * communicator of a device and the op ALL_REDUCE over it. */
#ifndef SW_BACKEND_CUDA_NCCL_H
#define SW_BACKEND_CUDA_NCCL_H

#include "backend/gpu/gpu.h"

#define SW_NCCL_CONSTANTS(X)                                                                                           \
    X(ncclSuccess, 0)                                                                                                  \
    X(ncclInvalidUsage, 5)                                                                                             \
    X(ncclRemoteError, 6)                                                                                              \
    X(ncclInProgress, 7)                                                                                               \
    X(ncclUint8, 1)                                                                                                    \
    X(ncclInt32, 2)                                                                                                    \
    X(ncclUint32, 3)                                                                                                   \
    X(ncclInt64, 4)                                                                                                    \
    X(ncclFloat16, 6)                                                                                                  \
    X(ncclFloat32, 7)                                                                                                  \
    X(ncclFloat64, 8)                                                                                                  \
    X(ncclBfloat16, 9)                                                                                                 \
    X(ncclSum, 0)

enum {
#define SW_NCCL_NUMBER(name, value) SW_##name = value,
    SW_NCCL_CONSTANTS(SW_NCCL_NUMBER)
#undef SW_NCCL_NUMBER
};

typedef struct sw__nccl_id {
    char internal[128];
} sw__nccl_id;

/* The configuration of NCCL 2.14, which later versions take for the beginning of theirs: `size` says how much there is.
 */
#define SW_NCCL_MAGIC 0xcafebeefu
enum { SW_NCCL_OLDEST = 21400 };
typedef struct sw__nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} sw__nccl_config;

/* Every function that is called; statuses and enums are ints, a communicator and a stream are pointers. */
#define SW_NCCL_FUNCTIONS(X)                                                                                           \
    X(int, ncclGetVersion, (int *version))                                                                             \
    X(const char *, ncclGetErrorString, (int status))                                                                  \
    X(const char *, ncclGetLastError, (void *comm))                                                                    \
    X(int, ncclGetUniqueId, (sw__nccl_id * id))                                                                        \
    X(int, ncclCommInitRankConfig, (void **comm, int ranks, sw__nccl_id id, int rank, sw__nccl_config *config))        \
    X(int, ncclCommFinalize, (void *comm))                                                                             \
    X(int, ncclCommDestroy, (void *comm))                                                                              \
    X(int, ncclCommAbort, (void *comm))                                                                                \
    X(int, ncclCommGetAsyncError, (void *comm, int *status))                                                           \
    X(int, ncclAllReduce, (const void *from, void *to, size_t n, int type, int op, void *comm, void *stream))

typedef struct sw__nccl_api {
#define SW_NCCL_POINTER(result, f, args) result(*f) args;
    SW_NCCL_FUNCTIONS(SW_NCCL_POINTER)
#undef SW_NCCL_POINTER
} sw__nccl_api;

/* Opens the library once (SWOOP_NCCL_LIBRARY, else libnccl.so.2: 2 ms). SW_ERR_UNSUPPORTED says what to install.
 * version: 22809 is 2.28.9; may be NULL, as api may. */
sw_status sw__nccl_load(const sw__nccl_api **api, int *version);

/* A device's part in a group of them. */
typedef struct sw__nccl {
    const sw__nccl_api *api;
    void *comm; /* NULL: there is none, or it was given up */
    int rank, ranks;
    double patience;   /* seconds that others are waited for */
    uint64_t launched; /* sums so far, recorded ones included */
} sw__nccl;
typedef struct sw__cu sw__cu;
sw_status sw__nccl_id_new(sw__comm_id *out);
sw_status sw__nccl_open(sw__cu *c, const sw__comm_id *id, int rank, int ranks);
void sw__nccl_close(sw__cu *c);
sw_status sw__nccl_plan(sw__cu *c, sw__gpu_plan *p); /* ALL_REDUCE */
/* While the device is waited for, since `start`: what went wrong with the other ranks. */
sw_status sw__nccl_check(sw__cu *c, double start);

#endif
