/* dnn_load.c: cuDNN, opened when the first convolution is planned. See dnn.h. */
#include "backend/cuda/cu.h"
#include "backend/cuda/dnn.h"

#include <pthread.h>
#include <stdio.h>

static sw__cudnn_api api;
static sw__cu_vendor library = {
    .name = "cuDNN", .install = "install cuDNN 9 for your CUDA version (package cudnn9-cuda-13 or cudnn9-cuda-12)",
    .variable = "SWOOP_CUDNN_LIBRARY", .pattern = "libcudnn.so.%d", .newest = 9, .oldest = 9,
};

enum { OLDEST = 90800 }; /* the first that plans for a described device */

static void load(void)
{
    void *const handle = sw__cu_open_vendor(&library);
    if (handle == NULL) return;
#define FIND(result, f, args) sw__cu_vendor_symbol(&library, handle, #f, &api.f, sizeof api.f);
    SW_CUDNN_FUNCTIONS(FIND)
#undef FIND
    if (*library.failure != '\0') return;
    const size_t version = api.cudnnGetVersion();
    if (version < OLDEST || version >= 100000)
        snprintf(library.failure, sizeof library.failure, "cuDNN %zu.%zu.%zu, but 9.8 or a later 9 is needed: %s",
                 version / 10000, version / 100 % 100, version % 100, library.install);
}

sw_status sw__cudnn_load(const sw__cudnn_api **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *out = &api;
    return *library.failure == '\0' ? SW_OK : sw__fail(SW_ERR_UNSUPPORTED, "%s", library.failure);
}
