/* registry.c: the list of backends, best first. The one place that names them all. And who is told when one compiles.
 * Between exec/device.c and the backends. */
#include "backend/gpu/gpu.h"

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

static sw_build_fn build_function;
static void *build_context;

void sw_on_build(sw_build_fn on_build, void *context)
{
    build_function = on_build;
    build_context = context;
}

void sw__tell_build(const sw_build_event *e)
{
    if (build_function) build_function(build_context, e);
}

#ifdef SWOOP_HAVE_CUDA
extern const sw__planned_library sw__cu_planned_library;
#endif

const sw__planned_library *const sw__planned_libraries[] = {
#ifdef SWOOP_HAVE_CUDA
    &sw__cu_planned_library,
#endif
    NULL,
};

const sw__backend *sw__backend_find(const char *name)
{
    for (const sw__backend *const *b = sw__backends; *b; b++)
        if (strcmp((*b)->name, name) == 0) return *b;
    return NULL;
}
