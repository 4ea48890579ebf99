/* cl_load.c: the OpenCL ICD loader, opened at run time; and the names of OpenCL's error codes. See cl.h. */
#include "backend/opencl/cl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static sw__cl_api api;
static char failure[400]; /* "" if all went well */

static void find(void *handle, const char *name, void *pointer, size_t size)
{
    if (!sw__symbol(handle, name, pointer, size))
        snprintf(failure, sizeof failure, "the OpenCL library has no %s: OpenCL 1.2 is needed", name);
}

static void load(void)
{
    const char *const wish = getenv("SWOOP_OPENCL_LIBRARY");
    const char *const name = wish != NULL && *wish != '\0' ? wish : "libOpenCL.so.1";
    void *const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL); /* stays open: drivers have threads */
    if (handle == NULL) {
        snprintf(failure, sizeof failure, "OpenCL cannot be opened (%.200s): install an ICD loader (Debian: "
                 "ocl-icd-libopencl1) and the driver of your device", dlerror());
        return;
    }
#define FIND(f) find(handle, #f, &api.f, sizeof api.f);
    SW_CL_FUNCTIONS(FIND)
#undef FIND
}

bool sw__cl_is_there(const sw__cl_api **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *out = &api;
    return *failure == '\0';
}

const char *sw__cl_missing(void)
{
    const sw__cl_api *cl;
    return sw__cl_is_there(&cl) ? NULL : failure;
}

sw_status sw__cl_load(const sw__cl_api **out)
{
    return sw__cl_is_there(out) ? SW_OK : sw__fail(SW_ERR_UNSUPPORTED, "%s", failure);
}

/* ---- error codes ------------------------------------------------------------------------------------------------------- */

#define CODE(c) {c, #c}
static const struct { cl_int code; const char *name; } codes[] = {
    CODE(CL_DEVICE_NOT_FOUND), CODE(CL_DEVICE_NOT_AVAILABLE), CODE(CL_COMPILER_NOT_AVAILABLE),
    CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE), CODE(CL_OUT_OF_RESOURCES), CODE(CL_OUT_OF_HOST_MEMORY),
    CODE(CL_BUILD_PROGRAM_FAILURE), CODE(CL_INVALID_VALUE), CODE(CL_INVALID_PLATFORM), CODE(CL_INVALID_DEVICE),
    CODE(CL_INVALID_CONTEXT), CODE(CL_INVALID_COMMAND_QUEUE), CODE(CL_INVALID_MEM_OBJECT), CODE(CL_INVALID_BINARY),
    CODE(CL_INVALID_BUILD_OPTIONS), CODE(CL_INVALID_PROGRAM), CODE(CL_INVALID_PROGRAM_EXECUTABLE),
    CODE(CL_INVALID_KERNEL_NAME), CODE(CL_INVALID_KERNEL), CODE(CL_INVALID_ARG_INDEX), CODE(CL_INVALID_ARG_VALUE),
    CODE(CL_INVALID_ARG_SIZE), CODE(CL_INVALID_KERNEL_ARGS), CODE(CL_INVALID_WORK_DIMENSION),
    CODE(CL_INVALID_WORK_GROUP_SIZE), CODE(CL_INVALID_WORK_ITEM_SIZE), CODE(CL_INVALID_GLOBAL_OFFSET),
    CODE(CL_INVALID_EVENT_WAIT_LIST), CODE(CL_INVALID_EVENT), CODE(CL_INVALID_OPERATION), CODE(CL_INVALID_BUFFER_SIZE),
    CODE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST), CODE(CL_INVALID_GLOBAL_WORK_SIZE), CODE(CL_INVALID_PROPERTY), {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

const char *sw__cl_code(cl_int code)
{
    for (size_t i = 0; i < SW_COUNT(codes); i++)
        if (codes[i].code == code) return codes[i].name;
    return "unknown code";
}

sw_status sw__cl_fail(cl_int code, const char *call)
{
    const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY ||
                        code == CL_OUT_OF_RESOURCES || code == CL_INVALID_BUFFER_SIZE;
    return sw__fail(memory ? SW_ERR_MEMORY : SW_ERR_DEVICE, "opencl: %s: %s (%d)", call, sw__cl_code(code), (int)code);
}
