/* dnn_load.c: cuDNN, opened when the first convolution is planned. See dnn.h. */
#include "backend/cuda/cu.h"
#include "backend/cuda/dnn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static sw__cudnn_api api;
static char failure[500]; /* "" if all went well */

#define INSTALL "install cuDNN 9 for your CUDA version (package cudnn9-cuda-13 or cudnn9-cuda-12)"

enum { OLDEST = 90800 }; /* the first that plans for a described device */

static void find(void *handle, const char *name, void *pointer, size_t size)
{
    if (!sw__symbol(handle, name, pointer, size)) snprintf(failure, sizeof failure, "cuDNN has no %s: " INSTALL, name);
}

static void *open_library(void)
{
    const char *const wish = getenv("SWOOP_CUDNN_LIBRARY");
    char path[512];
    int version = 0;
    if (wish != NULL && *wish != '\0') return dlopen(wish, RTLD_NOW | RTLD_LOCAL);
    return sw__cu_open_library("libcudnn.so.%d", 9, 9, &version, path, sizeof path);
}

static void load(void)
{
    void *const handle = open_library(); /* stays open: it has threads and state of the driver */
    if (handle == NULL) {
        const char *const why = dlerror();
        snprintf(failure, sizeof failure, "cuDNN cannot be opened (%.200s): " INSTALL, why != NULL ? why : "SWOOP_WITHOUT leaves it out");
        return;
    }
#define FIND(result, f, args) find(handle, #f, &api.f, sizeof api.f);
    SW_CUDNN_FUNCTIONS(FIND)
#undef FIND
    if (*failure != '\0') return;
    const size_t version = api.cudnnGetVersion();
    if (version < OLDEST || version >= 100000)
        snprintf(failure, sizeof failure, "cuDNN %zu.%zu.%zu, but 9.8 or a later 9 is needed: " INSTALL,
                 version / 10000, version / 100 % 100, version % 100);
}

sw_status sw__cudnn_load(const sw__cudnn_api **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *out = &api;
    return *failure == '\0' ? SW_OK : sw__fail(SW_ERR_UNSUPPORTED, "%s", failure);
}
