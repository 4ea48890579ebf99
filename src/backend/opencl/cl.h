/* cl.h: what the files of the OpenCL backend share: the API as loaded, the list of devices, the open device.
 * cl_load.c opens the ICD loader; cl_devices.c lists; cl_driver.c is memory, programs, launches (gpu.h's driver);
 * cl_upload.c sends without waiting; cl_blas.c calls CLBlast; cl.c is the backend's table of functions. */
#ifndef SW_BACKEND_OPENCL_CL_H
#define SW_BACKEND_OPENCL_CL_H

#include "backend/gpu/gpu.h"

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

/* Every function that is called, all of OpenCL 1.2: one that is missing makes the library unusable. */
#define SW_CL_FUNCTIONS(X)                                                                                             \
    X(clBuildProgram)                                                                                                  \
    X(clCreateBuffer)                                                                                                  \
    X(clCreateCommandQueue)                                                                                            \
    X(clCreateContext)                                                                                                 \
    X(clCreateKernel)                                                                                                  \
    X(clCreateProgramWithBinary)                                                                                       \
    X(clCreateProgramWithSource)                                                                                       \
    X(clEnqueueCopyBuffer)                                                                                             \
    X(clEnqueueFillBuffer)                                                                                             \
    X(clEnqueueMapBuffer)                                                                                              \
    X(clEnqueueUnmapMemObject)                                                                                         \
    X(clEnqueueNDRangeKernel)                                                                                          \
    X(clEnqueueReadBuffer)                                                                                             \
    X(clEnqueueWriteBuffer)                                                                                            \
    X(clFinish)                                                                                                        \
    X(clFlush)                                                                                                         \
    X(clGetDeviceIDs)                                                                                                  \
    X(clGetDeviceInfo)                                                                                                 \
    X(clGetPlatformIDs)                                                                                                \
    X(clGetPlatformInfo)                                                                                               \
    X(clGetProgramBuildInfo)                                                                                           \
    X(clGetProgramInfo)                                                                                                \
    X(clGetEventProfilingInfo)                                                                                         \
    X(clReleaseEvent)                                                                                                  \
    X(clWaitForEvents)                                                                                                 \
    X(clReleaseCommandQueue)                                                                                           \
    X(clReleaseContext)                                                                                                \
    X(clReleaseKernel)                                                                                                 \
    X(clReleaseMemObject)                                                                                              \
    X(clReleaseProgram)                                                                                                \
    X(clSetKernelArg)

typedef struct sw__cl_api {
#define SW_CL_POINTER(f) __typeof__(&f) f;
    SW_CL_FUNCTIONS(SW_CL_POINTER)
#undef SW_CL_POINTER
} sw__cl_api;

/* Opens the library once: SWOOP_OPENCL_LIBRARY, else libOpenCL.so.1. SW_ERR_UNSUPPORTED says what to install. */
sw_status sw__cl_load(const sw__cl_api **out);
const char *sw__cl_missing(void); /* why it cannot be opened, and what to install; NULL: it can */
bool sw__cl_is_there(const sw__cl_api **out); /* the same without a message: who lists devices is told of no failure */

/* ---- devices (cl_devices.c) ------------------------------------------------------------------------------------------ */

#define SW_CL_MAX_DEVICES 64
typedef struct sw__cl_entry {
    cl_platform_id platform;
    cl_device_id id;
    cl_device_type type;
    char name[128], vendor[64], platform_name[64], device_version[96], driver[96];
    char unusable[160];        /* "" or why */
    cl_uint units, clock;      /* compute units, MHz */
    cl_uint vector;            /* floats of a vector register */
    cl_ulong memory, max_alloc, local;
    size_t max_group, max_local[3], max_parameter;
    bool fp64, fp16, subgroups;
    bool unified;              /* its memory is the host's */
} sw__cl_entry;
/* All devices of all platforms, in the loader's order; the list is made once. 0 without a library. */
int sw__cl_devices(const sw__cl_entry **list);

/* ---- the open device --------------------------------------------------------------------------------------------------- */

/* A piece of pinned host memory with the transfer that last left it; and, once an upload went beside what runs, as much
 * memory of the device with the copy that last left it. */
typedef struct sw__cl_piece {
    cl_mem pinned, staged;
    void *at;                  /* `pinned` as the host sees it */
    size_t bytes;
    cl_event sent, taken;
} sw__cl_piece;

typedef struct sw__cl {
    const sw__cl_api *api;
    const sw__cl_entry *entry;
    cl_context context;
    cl_command_queue queue;
    cl_command_queue copies;   /* uploads beside what runs; NULL where they gain nothing */
    bool always_beside;        /* whatever their size: for tests */
    uint64_t not_beside;       /* uploads that waited in the first queue as there was no memory */
    cl_command_queue timed;    /* with profiling, made when first wanted */
    double *seconds;           /* not NULL: launches go to `timed`, one by one, and add their time */
    sw__cl_piece small[16], large[4];
    unsigned small_turn, large_turn;
    sw__gpu gpu;
} sw__cl;

extern const sw__gpu_driver sw__cl_driver;

/* cl_upload.c: src may be changed as soon as it returns; a transfer that fails later is told by a later call, at the
 * latest by upload_check, which follows whatever waited for the queue. is_input: it may overtake what runs. */
sw_status sw__cl_upload(sw__cl *c, cl_mem buffer, size_t offset, const void *src, size_t bytes, bool is_input);
sw_status sw__cl_upload_check(sw__cl *c);
bool sw__cl_wants_copy_queue(const sw__cl_entry *e, bool *always);
void sw__cl_upload_end(sw__cl *c); /* releases the queues too */

/* cl_driver.c: backs a measurement: launches wait and add their time to *seconds; NULL: no more. */
sw_status sw__cl_timer(void *dev, double *seconds);
/* cl_blas.c: gpu.h's library, by CLBlast. */
const char *sw__cl_blas_name(void *dev);
sw_status sw__cl_blas_plan(void *dev, sw__gpu_plan *plan);
sw_status sw__cl_blas_start(void *dev, const sw__op_desc *d, double *seconds);

/* A failed call as a status: "clCreateBuffer: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)". */
sw_status sw__cl_fail(cl_int code, const char *call);
const char *sw__cl_code(cl_int code);

#endif
