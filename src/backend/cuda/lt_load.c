/* lt_load.c: cuBLASLt, opened when the first product of matrices is planned. See lt.h. */
#include "backend/cuda/lt.h"
#include "backend/cuda/cu.h"

#include <pthread.h>
#include <stdio.h>

static sw__lt_api api;
static sw__cu_vendor library = {
    .name = "cuBLASLt", .install = "install cuBLAS of CUDA 12 or 13 (package libcublas-13-0 or libcublas-12-8)",
    .variable = "SWOOP_CUBLASLT_LIBRARY", .pattern = "libcublasLt.so.%d", .newest = 13, .oldest = 12,
};

enum { OLDEST = 120000 };

static void load(void)
{
    /* what is of a newer CUDA than the driver does not start, but would hide an older one beside it that does */
    if (sw__cu_load()->driver / 1000 == 12) library.newest = 12;
    void *const handle = sw__cu_open_vendor(&library);
    if (handle == NULL) return;
#define FIND(result, f, args) sw__cu_vendor_symbol(&library, handle, #f, &api.f, sizeof api.f);
    SW_LT_FUNCTIONS(FIND)
#undef FIND
    if (*library.failure != '\0') return;
    const size_t version = api.cublasLtGetVersion();
    if (version < OLDEST)
        snprintf(library.failure, sizeof library.failure, "cuBLASLt %zu.%zu is too old: %s", version / 10000,
                 version / 100 % 100, library.install);
}

sw_status sw__lt_load(const sw__lt_api **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *out = &api;
    return *library.failure == '\0' ? SW_OK : sw__fail(SW_ERR_UNSUPPORTED, "%s", library.failure);
}
