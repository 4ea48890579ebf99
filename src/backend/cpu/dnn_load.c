/* dnn_load.c: see dnn_load.h. */
#include "backend/cpu/dnn_load.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static sw__dnn_library library;
static char failure[512]; /* "" if all went well */

/* Distributions name it by the major version (Debian 12, Ubuntu) or by one with a minor (Debian 13: libdnnl.so.3.6 for
 * 3.7): that of the headers or an earlier one. Last, the name without a version, which development packages have. */
static void *open_library(void)
{
    char name[64];
    snprintf(name, sizeof name, "libdnnl.so.%d", DNNL_VERSION_MAJOR);
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (int minor = DNNL_VERSION_MINOR; !handle && minor >= 0; minor--) {
        snprintf(name, sizeof name, "libdnnl.so.%d.%d", DNNL_VERSION_MAJOR, minor);
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return handle ? handle : dlopen("libdnnl.so", RTLD_NOW | RTLD_LOCAL);
}

static void load(void)
{
    void *handle = open_library(); /* stays open: its threads and code must not go away */
    if (!handle) {
        snprintf(failure, sizeof failure, "oneDNN %d cannot be opened (%.300s): install it (Debian: libdnnl%d)",
                 DNNL_VERSION_MAJOR, dlerror(), DNNL_VERSION_MAJOR);
        return;
    }
#define FIND(f)                                                                                                        \
    if (!sw__symbol(handle, #f, &library.f, sizeof library.f))                                                               \
        snprintf(failure, sizeof failure, "libdnnl has no %s: it is not the oneDNN %d that swoop was built for", #f,   \
                 DNNL_VERSION_MAJOR);
    SW_DNN_FUNCTIONS(FIND)
#undef FIND
    if (!*failure && library.dnnl_version()->major != DNNL_VERSION_MAJOR)
        snprintf(failure, sizeof failure, "libdnnl is oneDNN %d, but swoop was built for %d",
                 library.dnnl_version()->major, DNNL_VERSION_MAJOR);
}

sw_status sw__dnn_load(const sw__dnn_library **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *out = &library;
    return *failure ? sw__fail(SW_ERR_UNSUPPORTED, "%s", failure) : SW_OK;
}
