/* cl_driver.c: memory, programs and launches through OpenCL 1.2: gpu.h's driver. A buffer is a cl_mem, a module a
 * cl_program, a kernel a cl_kernel. One queue, in order (uploads: cl_upload.c). See cl.h. */
#include "backend/opencl/cl.h"

#include <stdio.h>
#include <stdlib.h>

#define CALL(F, ...)                                                                                                   \
    do {                                                                                                               \
        const cl_int code_ = ((sw__cl *)dev)->api->F(__VA_ARGS__);                                                     \
        if (code_ != CL_SUCCESS) return sw__cl_fail(code_, #F);                                                        \
    } while (0)

/* ---- memory ------------------------------------------------------------------------------------------------------------- */

static sw_status cl_fill(void *dev, void *buffer, size_t offset, size_t bytes, uint8_t byte)
{
    if (bytes == 0) return SW_OK;
    /* a pattern of four bytes where it fits: some drivers are slow with one */
    const uint32_t pattern = byte * 0x01010101u;
    const size_t n = offset % 4 == 0 && bytes % 4 == 0 ? 4 : 1;
    CALL(clEnqueueFillBuffer, ((sw__cl *)dev)->queue, buffer, &pattern, n, offset, bytes, 0, NULL, NULL);
    return SW_OK;
}

static void cl_release(void *dev, void *buffer)
{
    if (buffer != NULL) (void)((sw__cl *)dev)->api->clReleaseMemObject(buffer);
}

static sw_status cl_alloc(void *dev, size_t bytes, void **buffer)
{
    sw__cl *const c = dev;
    if (bytes > c->entry->max_alloc)
        return sw__fail(SW_ERR_MEMORY, "opencl: %zu bytes in one piece, but %s gives at most %llu at a time (of %llu in all)",
                        bytes, c->entry->name, (unsigned long long)c->entry->max_alloc,
                        (unsigned long long)c->entry->memory);
    cl_int code = CL_SUCCESS;
    cl_mem m = c->api->clCreateBuffer(c->context, CL_MEM_READ_WRITE, (SW_MAX(bytes, (size_t)1) + 3) & ~(size_t)3, NULL,
                                            &code);
    if (m == NULL) return sw__prefix(sw__cl_fail(code, "clCreateBuffer"), "%zu bytes", bytes);
    /* Many drivers allocate at the first use: that must fail here, not in a step. */
    const sw_status st = cl_fill(dev, m, 0, (SW_MAX(bytes, (size_t)1) + 3) & ~(size_t)3, 0);
    if (st != SW_OK) {
        cl_release(dev, m);
        return sw__prefix(st, "%zu bytes", bytes);
    }
    *buffer = m;
    return SW_OK;
}

static sw_status cl_download(void *dev, const void *buffer, size_t offset, void *dst, size_t bytes)
{
    union { const void *in; void *out; } b = {.in = buffer}; /* reading does not change it, but OpenCL's type says nothing */
    if (bytes == 0) return SW_OK;
    CALL(clEnqueueReadBuffer, ((sw__cl *)dev)->queue, b.out, CL_TRUE, offset, bytes, dst, 0, NULL, NULL);
    return sw__cl_upload_check(dev); /* what came of an upload that failed is no result */
}

static sw_status cl_finish(void *dev)
{
    CALL(clFinish, ((sw__cl *)dev)->queue);
    return sw__cl_upload_check(dev);
}

/* ---- programs ------------------------------------------------------------------------------------------------------------ */

static sw_status build_failed(const sw__cl *c, cl_program program, cl_int code)
{
    size_t n = 0;
    (void)c->api->clGetProgramBuildInfo(program, c->entry->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n);
    char *const log = n > 0 && n < (16u << 20) ? sw__calloc(n + 1, 1) : NULL;
    if (log != NULL) (void)c->api->clGetProgramBuildInfo(program, c->entry->id, CL_PROGRAM_BUILD_LOG, n, log, NULL);
    const sw_status st = sw__fail(SW_ERR_DEVICE, "clBuildProgram: %s (%d): %.800s", sw__cl_code(code), (int)code,
                                  log != NULL ? log : "no log");
    sw__free(log);
    return st;
}

static sw_status build(const sw__cl *c, cl_program program, void **module)
{
    char options[256];
    const char *const more = getenv("SWOOP_OPENCL_OPTIONS"); /* for a driver's trouble: -cl-opt-disable, -g, … */
    snprintf(options, sizeof options, "-cl-std=CL1.2 %.200s", more != NULL ? more : "");
    const cl_int code = c->api->clBuildProgram(program, 1, &c->entry->id, options, NULL, NULL);
    if (code != CL_SUCCESS) {
        const sw_status st = build_failed(c, program, code);
        (void)c->api->clReleaseProgram(program);
        return st;
    }
    *module = program;
    return SW_OK;
}

static sw_status cl_compile(void *dev, const char *text, void **module)
{
    const sw__cl *const c = dev;
    cl_int code = CL_SUCCESS;
    cl_program program = c->api->clCreateProgramWithSource(c->context, 1, &text, NULL, &code);
    if (program == NULL) return sw__cl_fail(code, "clCreateProgramWithSource");
    return build(c, program, module);
}

static sw_status cl_load_binary(void *dev, const void *bytes, size_t n, void **module)
{
    const sw__cl *const c = dev;
    const unsigned char *binary = bytes;
    cl_int code = CL_SUCCESS, state = CL_SUCCESS;
    cl_program program = c->api->clCreateProgramWithBinary(c->context, 1, &c->entry->id, &n, &binary, &state, &code);
    if (program == NULL) return sw__cl_fail(code, "clCreateProgramWithBinary");
    return build(c, program, module);
}

static sw_status cl_binary(void *dev, void *module, void **bytes, size_t *n)
{
    size_t size = 0;
    CALL(clGetProgramInfo, module, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL);
    if (size == 0) return sw__fail(SW_ERR_UNSUPPORTED, "opencl: the driver gives no binary of a program");
    unsigned char *const to = sw__malloc(size);
    if (to == NULL) return sw__no_memory(size, "a program's binary");
    unsigned char *list[1] = {to};
    const cl_int code = ((sw__cl *)dev)->api->clGetProgramInfo(module, CL_PROGRAM_BINARIES, sizeof list, list, NULL);
    if (code != CL_SUCCESS) {
        sw__free(to);
        return sw__cl_fail(code, "clGetProgramInfo");
    }
    *bytes = to;
    *n = size;
    return SW_OK;
}

static void cl_unload(void *dev, void *module)
{
    (void)((sw__cl *)dev)->api->clReleaseProgram(module);
}

static sw_status cl_make_kernel(void *dev, void *module, const char *entry, void **kernel)
{
    cl_int code = CL_SUCCESS;
    cl_kernel k = ((sw__cl *)dev)->api->clCreateKernel(module, entry, &code);
    if (k == NULL) return sw__cl_fail(code, "clCreateKernel");
    *kernel = k;
    return SW_OK;
}

static void cl_kernel_drop(void *dev, void *kernel)
{
    (void)((sw__cl *)dev)->api->clReleaseKernel(kernel);
}

/* ---- launches -------------------------------------------------------------------------------------------------------------- */

/* Waits for a launch and adds the time from its start to its end on the device. */
static sw_status add_time(sw__cl *c, cl_event event)
{
    cl_ulong from = 0, to = 0;
    const char *call = "clWaitForEvents";
    cl_int code = c->api->clWaitForEvents(1, &event);
    if (code == CL_SUCCESS) {
        call = "clGetEventProfilingInfo";
        code = c->api->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof from, &from, NULL);
    }
    if (code == CL_SUCCESS) code = c->api->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL);
    (void)c->api->clReleaseEvent(event);
    if (code != CL_SUCCESS) return sw__cl_fail(code, call);
    *c->seconds += (double)(to - from) * 1e-9;
    return SW_OK;
}

static sw_status cl_launch(void *dev, void *kernel, const uint32_t groups[3], const uint32_t local[3],
                           const sw__gpu_value *args, int n_args)
{
    size_t global[3], size[3];
    for (int i = 0; i < n_args; i++) {
        const sw__gpu_value *const a = &args[i];
        if (a->buffer != NULL) CALL(clSetKernelArg, kernel, (cl_uint)i, sizeof a->buffer, &a->buffer);
        else CALL(clSetKernelArg, kernel, (cl_uint)i, a->size, &a->raw);
    }
    for (int d = 0; d < 3; d++) {
        size[d] = local[d];
        global[d] = (size_t)groups[d] * local[d];
    }
    sw__cl *const c = dev;
    if (c->seconds == NULL) {
        CALL(clEnqueueNDRangeKernel, c->queue, kernel, 3, NULL, global, size, 0, NULL, NULL);
        return SW_OK;
    }
    cl_event event = NULL;
    CALL(clEnqueueNDRangeKernel, c->timed, kernel, 3, NULL, global, size, 0, NULL, &event);
    return add_time(c, event);
}

/* The other queue runs beside the first: nothing may be left in that one. */
sw_status sw__cl_timer(void *dev, double *seconds)
{
    sw__cl *const c = dev;
    cl_int code = CL_SUCCESS;
    c->seconds = NULL;
    if (seconds == NULL) { /* after a failure, what was launched must not meet the next try */
        if (c->timed != NULL) (void)c->api->clFinish(c->timed);
        return SW_OK;
    }
    if (c->timed == NULL)
        c->timed = c->api->clCreateCommandQueue(c->context, c->entry->id, CL_QUEUE_PROFILING_ENABLE, &code);
    if (c->timed == NULL) return sw__cl_fail(code, "clCreateCommandQueue");
    SW_TRY(cl_finish(dev));
    c->seconds = seconds;
    return SW_OK;
}

const sw__gpu_driver sw__cl_driver = {
    .compile = cl_compile,
    .binary = cl_binary,
    .load = cl_load_binary,
    .unload = cl_unload,
    .kernel = cl_make_kernel,
    .kernel_free = cl_kernel_drop,
    .launch = cl_launch,
    .alloc = cl_alloc,
    .release = cl_release,
    .download = cl_download,
    .fill = cl_fill,
    .finish = cl_finish,
    .timer = sw__cl_timer,
    .library = sw__cl_blas_plan,
    .library_name = sw__cl_blas_name,
    .library_start = sw__cl_blas_start,
};
