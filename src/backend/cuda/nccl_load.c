/* nccl_load.c: NCCL, opened when devices are listed or a communicator is wanted. See nccl.h. */
#include "backend/cuda/nccl.h"
#include "backend/cuda/cu.h"

#include <pthread.h>
#include <stdio.h>

static sw__nccl_api api;
static int version;
static sw__cu_vendor library = {
    .name = "NCCL",
    .install = "install NCCL 2.14 or a later 2 for your CUDA version (package libnccl2)",
    .variable = "SWOOP_NCCL_LIBRARY",
    .pattern = "libnccl.so.%d",
    .newest = 2,
    .oldest = 2,
};

static void load(void)
{
    void *const handle = sw__cu_open_vendor(&library);
    if (handle == NULL) return;
#define FIND(result, f, args) sw__cu_vendor_symbol(&library, handle, #f, &api.f, sizeof api.f);
    SW_NCCL_FUNCTIONS(FIND)
#undef FIND
    /* the version says more than the name of a function that came later */
    if (api.ncclGetVersion == NULL || api.ncclGetVersion(&version) != 0) version = 0;
    if (version > 0 && version < SW_NCCL_OLDEST)
        snprintf(library.failure, sizeof library.failure, "NCCL %d.%d.%d is too old: %s", version / 10000,
                 version / 100 % 100, version % 100, library.install);
}

sw_status sw__nccl_load(const sw__nccl_api **out, int *found)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (out != NULL) *out = &api;
    if (found != NULL) *found = version;
    return *library.failure == '\0' ? SW_OK : sw__fail(SW_ERR_UNSUPPORTED, "%s", library.failure);
}
