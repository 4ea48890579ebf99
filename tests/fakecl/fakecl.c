/* fakecl.c: libfakecl.so, which stands between swoop and the real OpenCL library (SWOOP_OPENCL_LIBRARY names it): every
 * function that src/backend/opencl calls is passed on, or fails as fakecl.h says. Objects are counted. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include "fakecl.h"
#include "fakecl_order.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static fakecl state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *real_library;

static size_t number(const char *name)
{
    const char *const text = getenv(name);
    return text != NULL ? (size_t)strtoull(text, NULL, 0) : 0;
}

/* "3:-4" */
static void numbers(const char *text, long *at, int *code)
{
    char *end;
    *at = strtol(text, &end, 10);
    *code = *end == ':' ? (int)strtol(end + 1, NULL, 10) : -5;
}

static void start(void)
{
    const char *const other = getenv("FAKECL_LIBRARY");
    real_library = dlopen(other != NULL ? other : "libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    state.units = number("FAKECL_UNITS");
    state.max_group = number("FAKECL_MAX_GROUP");
    state.local = number("FAKECL_LOCAL");
    state.memory = number("FAKECL_MEMORY");
    state.max_alloc = number("FAKECL_MAX_ALLOC");
    state.no_fp64 = (int)number("FAKECL_NO_FP64");
    state.gpu = (int)number("FAKECL_GPU");
    state.fast_items = number("FAKECL_FAST_ITEMS");
    state.plain = (int)number("FAKECL_PLAIN");
    state.name_end = getenv("FAKECL_NAME_END");
    const char *const fail = getenv("FAKECL_FAIL"), *const lose = getenv("FAKECL_LOSE");
    const char *const colon = fail != NULL ? strchr(fail, ':') : NULL;
    if (colon != NULL && (size_t)(colon - fail) < sizeof state.fail_name) {
        memcpy(state.fail_name, fail, (size_t)(colon - fail));
        numbers(colon + 1, &state.fail_at, &state.fail_code);
    }
    if (lose != NULL) numbers(lose, &state.lose_at, &state.lose_code);
}

EXPORT fakecl *fakecl_control(void);
EXPORT fakecl *fakecl_control(void)
{
    pthread_once(&once, start);
    return &state;
}

static void count(const char *name)
{
    state.calls++;
    for (int i = 0; i < FAKECL_NAMES; i++) {
        if (state.name[i].name == NULL) state.name[i].name = name;
        if (strcmp(state.name[i].name, name) != 0) continue;
        state.name[i].calls++;
        return;
    }
}

/* CL_SUCCESS, or the code that this call is to fail with. */
static cl_int verdict(const char *name)
{
    cl_int code = CL_SUCCESS;
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
    count(name);
    if (strcmp(state.fail_name, name) == 0 && --state.fail_at == 0) code = state.fail_code;
    if (state.lose_at > 0 && state.calls >= state.lose_at) code = state.lose_code;
    state.failed += code != CL_SUCCESS;
    pthread_mutex_unlock(&lock);
    return code;
}

static void *find(const char *name)
{
    void *const f = real_library != NULL ? dlsym(real_library, name) : NULL;
    if (f == NULL) {
        fprintf(stderr, "fakecl: there is no %s to pass on to\n", name);
        abort(); /* a test library's own trouble */
    }
    return f;
}

/* The real function of the same type as the one that is being defined. */
#define REAL(name, args)                                                                                               \
    __extension__({                                                                                                    \
        __typeof__(&name) real_;                                                                                       \
        void *const symbol_ = find(#name);                                                                             \
        memcpy(&real_, &symbol_, sizeof real_);                                                                        \
        real_ args;                                                                                                    \
    })

/* ---- objects ----------------------------------------------------------------------------------------------------- */

enum { SLOTS = 1 << 16 };
static struct { void *object; int kind; size_t bytes; } objects[SLOTS];

static void made(int kind, void *object, size_t bytes)
{
    if (object == NULL) return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLOTS; i++) {
        if (objects[i].object != NULL) continue;
        objects[i].object = object;
        objects[i].kind = kind;
        objects[i].bytes = bytes;
        state.live[kind]++;
        state.bytes += bytes;
        break;
    }
    pthread_mutex_unlock(&lock);
}

static int gone(int kind, const void *object)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLOTS && !found; i++) {
        if (objects[i].object != object || objects[i].kind != kind) continue;
        found = 1;
        order_forget(object);
        objects[i].object = NULL;
        state.live[kind]--;
        state.bytes -= objects[i].bytes;
    }
    state.faults += !found;
    pthread_mutex_unlock(&lock);
    return found;
}

/* A creating function: NULL and a code if it is to fail. */
#define CREATE(kind, type, name, parameters, args, bytes)                                                              \
    EXPORT type CL_API_CALL name parameters                                                                            \
    {                                                                                                                  \
        const cl_int told_ = verdict(#name);                                                                           \
        if (told_ != CL_SUCCESS) {                                                                                     \
            if (code != NULL) *code = told_;                                                                           \
            return NULL;                                                                                               \
        }                                                                                                              \
        type object_ = REAL(name, args);                                                                         \
        made(kind, object_, bytes);                                                                                    \
        return object_;                                                                                                \
    }

/* Releasing what is not there would crash the real library. A release that fails has released all the same. */
#define RELEASE(kind, name, type)                                                                                      \
    EXPORT cl_int CL_API_CALL name(type object)                                                                        \
    {                                                                                                                  \
        const cl_int told_ = verdict(#name);                                                                           \
        const cl_int real_code_ = gone(kind, object) ? REAL(name, (object)) : CL_INVALID_VALUE;                        \
        return told_ != CL_SUCCESS ? told_ : real_code_;                                                               \
    }

#define PASS(name, parameters, args)                                                                                   \
    EXPORT cl_int CL_API_CALL name parameters                                                                          \
    {                                                                                                                  \
        const cl_int told_ = verdict(#name);                                                                           \
        return told_ != CL_SUCCESS ? told_ : REAL(name, args);                                                         \
    }

CREATE(FAKECL_CONTEXT, cl_context, clCreateContext,
       (const cl_context_properties *p, cl_uint n, const cl_device_id *d,
        void (CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user, cl_int *code),
       (p, n, d, notify, user, code), 0)
CREATE(FAKECL_QUEUE, cl_command_queue, clCreateCommandQueue,
       (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *code), (c, d, p, code), 0)
CREATE(FAKECL_PROGRAM, cl_program, clCreateProgramWithSource,
       (cl_context c, cl_uint n, const char **text, const size_t *length, cl_int *code), (c, n, text, length, code), 0)
CREATE(FAKECL_PROGRAM, cl_program, clCreateProgramWithBinary,
       (cl_context c, cl_uint n, const cl_device_id *d, const size_t *length, const unsigned char **bytes,
        cl_int *states, cl_int *code),
       (c, n, d, length, bytes, states, code), 0)
CREATE(FAKECL_KERNEL, cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *code), (p, name, code), 0)

RELEASE(FAKECL_CONTEXT, clReleaseContext, cl_context)
RELEASE(FAKECL_QUEUE, clReleaseCommandQueue, cl_command_queue)
RELEASE(FAKECL_PROGRAM, clReleaseProgram, cl_program)
RELEASE(FAKECL_KERNEL, clReleaseKernel, cl_kernel)
RELEASE(FAKECL_BUFFER, clReleaseMemObject, cl_mem)
RELEASE(FAKECL_EVENT, clReleaseEvent, cl_event)

EXPORT cl_mem CL_API_CALL clCreateBuffer(cl_context c, cl_mem_flags flags, size_t bytes, void *host, cl_int *code)
{
    cl_int told = verdict("clCreateBuffer");
    if (told == CL_SUCCESS && state.max_alloc > 0 && bytes > state.max_alloc) told = CL_INVALID_BUFFER_SIZE;
    const size_t device_bytes = (flags & CL_MEM_ALLOC_HOST_PTR) != 0 ? 0 : bytes; /* pinned memory is the host's */
    if (told == CL_SUCCESS && state.memory > 0 && state.bytes + device_bytes > state.memory)
        told = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (told != CL_SUCCESS) {
        if (code != NULL) *code = told;
        return NULL;
    }
    cl_mem object = REAL(clCreateBuffer, (c, flags, bytes, host, code));
    made(FAKECL_BUFFER, object, device_bytes);
    return object;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

PASS(clBuildProgram,
     (cl_program p, cl_uint n, const cl_device_id *d, const char *options,
      void (CL_CALLBACK *notify)(cl_program, void *), void *user),
     (p, n, d, options, notify, user))

/* A command that the real library took: its event is an object, and its place in the order is kept. */
static cl_int taken(cl_int code, const order_command *c)
{
    if (code != CL_SUCCESS) return code;
    if (c->event != NULL) made(FAKECL_EVENT, *c->event, 0);
    pthread_mutex_lock(&lock);
    order_enqueued(&state, c);
    pthread_mutex_unlock(&lock);
    return code;
}

#define COMMAND(name, parameters, args, ...)                                                                           \
    EXPORT cl_int CL_API_CALL name parameters                                                                          \
    {                                                                                                                  \
        const cl_int told_ = verdict(#name);                                                                           \
        return told_ != CL_SUCCESS ? told_ : taken(REAL(name, args), &(order_command){                                 \
            .queue = q, .n_wait = n, .wait = wait, .event = event, __VA_ARGS__ });                                     \
    }

COMMAND(clEnqueueFillBuffer,
        (cl_command_queue q, cl_mem m, const void *pattern, size_t size, size_t at, size_t bytes, cl_uint n,
         const cl_event *wait, cl_event *event),
        (q, m, pattern, size, at, bytes, n, wait, event), .use = { { m, 1 } })
COMMAND(clEnqueueReadBuffer,
        (cl_command_queue q, cl_mem m, cl_bool block, size_t at, size_t bytes, void *to, cl_uint n,
         const cl_event *wait, cl_event *event),
        (q, m, block, at, bytes, to, n, wait, event), .blocks = block, .use = { { m, 0 } })
COMMAND(clEnqueueWriteBuffer,
        (cl_command_queue q, cl_mem m, cl_bool block, size_t at, size_t bytes, const void *from, cl_uint n,
         const cl_event *wait, cl_event *event),
        (q, m, block, at, bytes, from, n, wait, event), .blocks = block, .from = from, .use = { { m, 1 } })
COMMAND(clEnqueueCopyBuffer,
        (cl_command_queue q, cl_mem m, cl_mem to, size_t at, size_t to_at, size_t bytes, cl_uint n,
         const cl_event *wait, cl_event *event),
        (q, m, to, at, to_at, bytes, n, wait, event), .use = { { m, 0 }, { to, 1 } })
COMMAND(clEnqueueUnmapMemObject,
        (cl_command_queue q, cl_mem m, void *at, cl_uint n, const cl_event *wait, cl_event *event),
        (q, m, at, n, wait, event), .from = at, .unmaps = 1)

EXPORT void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool block, cl_map_flags flags, size_t at,
                                            size_t bytes, cl_uint n, const cl_event *wait, cl_event *event, cl_int *code)
{
    cl_int own = verdict("clEnqueueMapBuffer");
    void *const to = own == CL_SUCCESS ? REAL(clEnqueueMapBuffer, (q, m, block, flags, at, bytes, n, wait, event, &own))
                                       : NULL;
    taken(own, &(order_command){ .queue = q, .blocks = block, .n_wait = n, .wait = wait, .event = event });
    if (code != NULL) *code = own;
    return to;
}

EXPORT cl_int CL_API_CALL clFinish(cl_command_queue q)
{
    const cl_int told = verdict("clFinish"), code = told != CL_SUCCESS ? told : REAL(clFinish, (q));
    pthread_mutex_lock(&lock);
    if (code == CL_SUCCESS) order_finished(&state, q);
    pthread_mutex_unlock(&lock);
    return code;
}

EXPORT cl_int CL_API_CALL clFlush(cl_command_queue q)
{
    const cl_int told = verdict("clFlush"), code = told != CL_SUCCESS ? told : REAL(clFlush, (q));
    pthread_mutex_lock(&lock);
    if (code == CL_SUCCESS) order_flushed(q);
    pthread_mutex_unlock(&lock);
    return code;
}

EXPORT cl_int CL_API_CALL clWaitForEvents(cl_uint n, const cl_event *events)
{
    const cl_int told = verdict("clWaitForEvents");
    const cl_int code = told != CL_SUCCESS ? told : REAL(clWaitForEvents, (n, events));
    pthread_mutex_lock(&lock);
    if (code == CL_SUCCESS) order_waited(&state, n, events);
    pthread_mutex_unlock(&lock);
    return code;
}

EXPORT cl_int CL_API_CALL clSetKernelArg(cl_kernel k, cl_uint i, size_t size, const void *value)
{
    const cl_int told = verdict("clSetKernelArg");
    const cl_int code = told != CL_SUCCESS ? told : REAL(clSetKernelArg, (k, i, size, value));
    pthread_mutex_lock(&lock);
    if (code == CL_SUCCESS) order_argument(k, i, size, value);
    pthread_mutex_unlock(&lock);
    return code;
}

/* Groups that the device as it is told about would not take. */
static int is_too_large(cl_uint dimensions, const size_t *local)
{
    size_t items = 1;
    for (cl_uint i = 0; local != NULL && i < dimensions; i++) items *= local[i];
    return state.max_group > 0 && items > state.max_group;
}

/* The last launch that has an event: whoever times launches waits for each. */
static cl_event timed_event;
static size_t timed_items;

EXPORT cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dimensions,
                                                 const size_t *offset, const size_t *global, const size_t *local,
                                                 cl_uint n, const cl_event *wait, cl_event *event)
{
    const cl_int told = verdict("clEnqueueNDRangeKernel");
    if (told != CL_SUCCESS) return told;
    if (is_too_large(dimensions, local)) return CL_INVALID_WORK_GROUP_SIZE;
    if (state.launch_us > 0) (void)usleep((useconds_t)state.launch_us);
    const cl_int code = taken(REAL(clEnqueueNDRangeKernel, (q, k, dimensions, offset, global, local, n, wait, event)),
                              &(order_command){ .queue = q, .n_wait = n, .wait = wait, .event = event, .kernel = k });
    if (code == CL_SUCCESS && event != NULL) {
        timed_event = *event;
        timed_items = 1;
        for (cl_uint i = 0; local != NULL && i < dimensions; i++) timed_items *= local[i];
    }
    return code;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

PASS(clGetPlatformIDs, (cl_uint n, cl_platform_id *list, cl_uint *found), (n, list, found))
PASS(clGetPlatformInfo, (cl_platform_id p, cl_platform_info what, size_t size, void *to, size_t *used),
     (p, what, size, to, used))
PASS(clGetDeviceIDs, (cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *list, cl_uint *found),
     (p, type, n, list, found))
PASS(clGetProgramInfo, (cl_program p, cl_program_info what, size_t size, void *to, size_t *used),
     (p, what, size, to, used))
PASS(clGetProgramBuildInfo,
     (cl_program p, cl_device_id d, cl_program_build_info what, size_t size, void *to, size_t *used),
     (p, d, what, size, to, used))
EXPORT cl_int CL_API_CALL clGetEventProfilingInfo(cl_event e, cl_profiling_info what, size_t size, void *to, size_t *used)
{
    const cl_int told = verdict("clGetEventProfilingInfo");
    if (told != CL_SUCCESS) return told;
    if (state.fast_items == 0 || e != timed_event || size != sizeof(cl_ulong))
        return REAL(clGetEventProfilingInfo, (e, what, size, to, used));
    const cl_ulong took = what != CL_PROFILING_COMMAND_END ? 0 : timed_items == state.fast_items ? 1000 : 1000000;
    memcpy(to, &took, sizeof took);
    return CL_SUCCESS;
}

static void limit(void *to, size_t size, size_t value)
{
    if (to == NULL || value == 0) return;
    const cl_uint small = (cl_uint)value;
    const cl_ulong large = value;
    if (size == sizeof small) memcpy(to, &small, sizeof small);
    else memcpy(to, &large, sizeof large); /* size_t and cl_ulong are of one size where this runs */
}

static void without(char *list, const char *word)
{
    char *const at = list != NULL ? strstr(list, word) : NULL;
    if (at != NULL) memset(at, ' ', strlen(word));
}

EXPORT cl_int CL_API_CALL clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t size, void *to, size_t *used)
{
    const cl_int told = verdict("clGetDeviceInfo");
    if (told != CL_SUCCESS) return told;
    const cl_int code = REAL(clGetDeviceInfo, (d, what, size, to, used));
    if (code != CL_SUCCESS || to == NULL) return code;
    const size_t length = what == CL_DEVICE_NAME ? strnlen(to, size) : size;
    if (length < size && state.name_end != NULL) snprintf((char *)to + length, size - length, "%s", state.name_end);
    if (what == CL_DEVICE_MAX_COMPUTE_UNITS) limit(to, size, state.units);
    if (what == CL_DEVICE_MAX_WORK_GROUP_SIZE) limit(to, size, state.max_group);
    if (what == CL_DEVICE_LOCAL_MEM_SIZE) limit(to, size, state.local);
    if (what == CL_DEVICE_GLOBAL_MEM_SIZE) limit(to, size, state.memory);
    if (what == CL_DEVICE_MAX_MEM_ALLOC_SIZE) limit(to, size, state.max_alloc);
    if (what == CL_DEVICE_TYPE && state.gpu) limit(to, size, CL_DEVICE_TYPE_GPU);
    if (what == CL_DEVICE_HOST_UNIFIED_MEMORY && state.gpu) memset(to, 0, size);
    if (what == CL_DEVICE_EXTENSIONS && state.no_fp64) without(to, "cl_khr_fp64");
    if (what == CL_DEVICE_EXTENSIONS && state.plain) without(to, "cl_khr_fp16");
    if (what == CL_DEVICE_IMAGE_SUPPORT && state.plain) memset(to, 0, size);
    for (size_t i = 0; what == CL_DEVICE_MAX_WORK_ITEM_SIZES && state.max_group > 0 && i < size / sizeof(size_t); i++)
        if (((size_t *)to)[i] > state.max_group) ((size_t *)to)[i] = state.max_group;
    return code;
}
