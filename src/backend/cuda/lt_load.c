/* lt_load.c: cuBLASLt, opened when the first product of matrices is planned. See lt.h. */
#include "backend/cuda/lt.h"
#include "backend/cuda/cu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static sw__lt_api api;
static char failure[500]; /* "" if all went well */

#define INSTALL "install cuBLAS of CUDA 12 or 13 (package libcublas-13-0 or libcublas-12-8)"

enum { OLDEST = 120000 };

static void find(void *handle, const char *name, void *pointer, size_t size)
{
    if (!sw__symbol(handle, name, pointer, size)) snprintf(failure, sizeof failure, "cuBLASLt has no %s: " INSTALL, name);
}

/* What is of a newer CUDA than the driver does not start, but would hide an older one beside it that does. */
static void *open_library(void)
{
    const char *const wish = getenv("SWOOP_CUBLASLT_LIBRARY");
    const int driver = sw__cu_load()->driver / 1000;
    char path[512];
    int version = 0;
    if (wish != NULL && *wish != '\0') return dlopen(wish, RTLD_NOW | RTLD_LOCAL);
    return sw__cu_open_library("libcublasLt.so.%d", driver == 12 ? 12 : 13, 12, &version, path, sizeof path);
}

static void load(void)
{
    void *const handle = open_library(); /* stays open: it has registered itself with the driver */
    if (handle == NULL) {
        const char *const why = dlerror();
        snprintf(failure, sizeof failure, "cuBLASLt cannot be opened (%.200s): " INSTALL, why != NULL ? why : "SWOOP_WITHOUT leaves it out");
        return;
    }
#define FIND(result, f, args) find(handle, #f, &api.f, sizeof api.f);
    SW_LT_FUNCTIONS(FIND)
#undef FIND
    if (*failure != '\0') return;
    const size_t version = api.cublasLtGetVersion();
    if (version < OLDEST)
        snprintf(failure, sizeof failure, "cuBLASLt %zu.%zu is too old: " INSTALL, version / 10000,
                 version / 100 % 100);
}

sw_status sw__lt_load(const sw__lt_api **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *out = &api;
    return *failure == '\0' ? SW_OK : sw__fail(SW_ERR_UNSUPPORTED, "%s", failure);
}
