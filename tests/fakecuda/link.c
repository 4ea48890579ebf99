/* link.c: see link.h. */
#include "link.h"

#include <dlfcn.h>
#include <pthread.h>

fk_linked fk;

bool fk_link_one(void *library, const char *name, void *pointer)
{
    void *const symbol = dlsym(library, name);
    if (symbol != NULL) memcpy(pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void find_all(void)
{
    void *const l = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    fk.there = l != NULL && fk_link_one(l, "fk_map", &fk.map) && fk_link_one(l, "fk_work", &fk.work) &&
               fk_link_one(l, "fk_report", &fk.report) && fk_link_one(l, "fk_fail", &fk.fail) &&
               fk_link_one(l, "fk_made", &fk.made) && fk_link_one(l, "fk_gone", &fk.gone) &&
               fk_link_one(l, "fk_sm", &fk.sm) && fk_link_one(l, "cuCtxGetCurrent", &fk.current) &&
               fk_link_one(l, "fk_work_when", &fk.work_when) &&
               fk_link_one(l, "cuStreamIsCapturing", &fk.capturing);
}

bool fk_link(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_all);
    return fk.there;
}
