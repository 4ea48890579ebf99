/* dnn_load.c: see dnn_load.h. */
#include "backend/cpu/dnn_load.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define LIBRARY "libdnnl.so." TEXT(DNNL_VERSION_MAJOR)

static sw__dnn_library library;
static char failure[512]; /* "" if all went well */

/* POSIX gives functions as void *; C has no conversion to a function pointer, but the bytes are the same. */
static bool find(void *handle, const char *name, void *pointer, size_t size)
{
    void *symbol = dlsym(handle, name);
    if (symbol) memcpy(pointer, &symbol, size);
    return symbol != NULL;
}

static void load(void)
{
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* stays open: its threads and code must not go away */
    if (!handle) {
        snprintf(failure, sizeof failure, "oneDNN cannot be opened (%.300s): install it (Debian: libdnnl%d)", dlerror(),
                 DNNL_VERSION_MAJOR);
        return;
    }
#define FIND(f)                                                                                                        \
    if (!find(handle, #f, &library.f, sizeof library.f))                                                               \
        snprintf(failure, sizeof failure, "%s has no %s: it is not the oneDNN %d that swoop was built for", LIBRARY, #f, \
                 DNNL_VERSION_MAJOR);
    SW_DNN_FUNCTIONS(FIND)
#undef FIND
}

sw_status sw__dnn_load(const sw__dnn_library **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *out = &library;
    return *failure ? sw__fail(SW_ERR_UNSUPPORTED, "%s", failure) : SW_OK;
}
