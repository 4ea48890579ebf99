/* registry.c: the list of backends, best first. The one place that names them all.
 * Between exec/device.c and the backends. */
#include "backend/backend.h"

extern const sw__backend sw__backend_cuda, sw__backend_opencl, sw__backend_cpu, sw__backend_ref, sw__backend_null;

const sw__backend *const sw__backends[] = {
#ifdef SWOOP_HAVE_CUDA
    &sw__backend_cuda,
#endif
#ifdef SWOOP_HAVE_OPENCL
    &sw__backend_opencl,
#endif
    &sw__backend_cpu, &sw__backend_ref, &sw__backend_null, NULL,
};

const sw__backend *sw__backend_find(const char *name)
{
    for (const sw__backend *const *b = sw__backends; *b; b++)
        if (strcmp((*b)->name, name) == 0) return *b;
    return NULL;
}
