/* cu_driver.c: memory, programs and launches through the CUDA driver: what gpu.h asks of a driver. Whoever calls has made
 * the context current (cu.c). Failed calls become statuses here. See cu.h. */
#include "backend/cuda/cu.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- failures ------------------------------------------------------------------------------------------------------ */

/* Errors after which the driver answers every call of the process with the same error. */
static bool ends_context(sw__cu_result code)
{
    return code == SW_CU_ECC_UNCORRECTABLE || code == SW_CU_NVLINK_UNCORRECTABLE || code == SW_CU_ILLEGAL_ADDRESS ||
           code == SW_CU_LAUNCH_TIMEOUT || code == SW_CU_ASSERT ||
           (code >= SW_CU_HARDWARE_STACK_ERROR && code <= SW_CU_LAUNCH_FAILED);
}

static sw_status fail_for_good(sw__cu *c, const char *call, const char *name, sw__cu_result code, const char *text)
{
    c->lost = true;
    if (c->last == NULL)
        return sw__fail(SW_ERR_DEVICE, "cuda: %s: %s (%u): %s; no call of this process gets through to the GPU any more", call,
                        name, code, text);
    if (c->check)
        return sw__fail(SW_ERR_DEVICE, "cuda: %s: %s (%u): %s, in %s; no call of this process gets through to the GPU any more",
                        call, name, code, text, c->last);
    return sw__fail(SW_ERR_DEVICE, "cuda: %s: %s (%u): %s; the last to be launched was %s, and SWOOP_CHECK=1 finds the one that "
                    "fails; no call of this process gets through to the GPU any more", call, name, code, text, c->last);
}

sw_status sw__cu_fail(sw__cu *c, sw__cu_result code, const char *call)
{
    const char *name = NULL, *text = NULL;
    if (c->api->cuGetErrorName(code, &name) != SW_CU_OK || name == NULL) name = "unknown error";
    if (c->api->cuGetErrorString(code, &text) != SW_CU_OK || text == NULL) text = "no explanation";
    if (ends_context(code)) return fail_for_good(c, call, name, code, text);
    return sw__fail(code == SW_CU_OUT_OF_MEMORY ? SW_ERR_MEMORY : SW_ERR_DEVICE, "cuda: %s: %s (%u): %s", call, name, code,
                    text);
}

#define CALL(F, ...) SW_CU_TRY((sw__cu *)dev, F, __VA_ARGS__)

/* ---- memory -------------------------------------------------------------------------------------------------------- */

static sw_status cu_fill(void *dev, void *buffer, size_t offset, size_t bytes, uint8_t byte)
{
    const sw__cu_address at = sw__cu_at(buffer, offset);
    if (bytes == 0) return SW_OK;
    if (at % 4 == 0 && bytes % 4 == 0)
        CALL(cuMemsetD32Async, at, byte * 0x01010101u, bytes / 4, ((sw__cu *)dev)->stream);
    else
        CALL(cuMemsetD8Async, at, byte, bytes, ((sw__cu *)dev)->stream);
    return SW_OK;
}

/* Waits: what was launched before may still use it. */
static void cu_release(void *dev, void *buffer)
{
    sw__cu *const c = dev;
    if (buffer == NULL) return;
    sw__cu_settle(c);
    (void)c->api->cuMemFree_v2(sw__cu_at(buffer, 0));
}

static sw_status out_of_memory(sw__cu *c, size_t bytes)
{
    size_t available = 0, total = 0;
    if (c->api->cuMemGetInfo_v2(&available, &total) != SW_CU_OK) return sw__cu_fail(c, SW_CU_OUT_OF_MEMORY, "cuMemAlloc");
    return sw__fail(SW_ERR_MEMORY, "cuda: out of memory on cuda:%d (%.60s): %zu MiB more are needed, %zu of %zu MiB are free; a "
                    "smaller batch needs less", c->entry->index, c->entry->name, (bytes >> 20) + 1, available >> 20, total >> 20);
}

static sw_status cu_alloc(void *dev, size_t bytes, void **buffer)
{
    sw__cu *const c = dev;
    const size_t room = (SW_MAX(bytes, (size_t)1) + 3) & ~(size_t)3;
    sw__cu_address at = 0;
    if (room < bytes) return out_of_memory(c, bytes);
    const sw__cu_result code = c->api->cuMemAlloc_v2(&at, room);
    if (code == SW_CU_OUT_OF_MEMORY) return out_of_memory(c, bytes);
    if (code != SW_CU_OK) return sw__prefix(sw__cu_fail(c, code, "cuMemAlloc"), "%zu bytes", bytes);
    void *const p = (void *)(uintptr_t)at; // NOLINT(performance-no-int-to-ptr): a handle to all but this backend
    const sw_status st = cu_fill(dev, p, 0, room, 0);
    if (st != SW_OK) {
        cu_release(dev, p);
        return sw__prefix(st, "%zu bytes", bytes);
    }
    *buffer = p;
    return SW_OK;
}

/* A rank whose work waits for others asks now and then whether they are still there. */
sw_status sw__cu_wait(sw__cu *c, sw__cu_event event)
{
    const double start = sw__now();
    const char *const call = event != NULL ? "cuEventSynchronize" : "cuStreamSynchronize";
    sw__cu_result code = SW_CU_NOT_READY;
    while (c->nccl.comm != NULL && code == SW_CU_NOT_READY) {
        code = event != NULL ? c->api->cuEventQuery(event) : c->api->cuStreamQuery(c->stream);
        if (code == SW_CU_NOT_READY) SW_TRY(sw__nccl_check(c, start));
    }
    if (code == SW_CU_NOT_READY) code = event != NULL ? c->api->cuEventSynchronize(event) : c->api->cuStreamSynchronize(c->stream);
    return code == SW_CU_OK ? SW_OK : sw__cu_fail(c, code, call);
}

void sw__cu_settle(sw__cu *c)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", sw_error());
    if (sw__cu_wait(c, NULL) != SW_OK) (void)sw__fail(SW_ERR_DEVICE, "%s", why);
}

static sw_status cu_finish(void *dev)
{
    return sw__cu_wait(dev, NULL);
}

/* Little goes through pinned memory, which the driver need not lock first. */
static sw_status cu_download(void *dev, const void *buffer, size_t offset, void *dst, size_t bytes)
{
    sw__cu *const c = dev;
    void *to = dst;
    if (bytes == 0) return SW_OK;
    if (bytes <= SW_CU_SMALL) SW_TRY(sw__cu_small(c, bytes, &to));
    CALL(cuMemcpyDtoHAsync_v2, to, sw__cu_at(buffer, offset), bytes, c->stream);
    SW_TRY(cu_finish(dev));
    if (to != dst) memcpy(dst, to, bytes);
    return SW_OK;
}

/* ---- programs ------------------------------------------------------------------------------------------------------ */

/* A loaded module and what it was loaded from, which the cache on disk wants. */
typedef struct module { sw__cu_module handle; void *image; size_t bytes; } module;

static sw_status nvrtc_fail(sw__cu_result code, const char *call)
{
    return sw__fail(code == 1 ? SW_ERR_MEMORY : SW_ERR_DEVICE, "cuda: %s: NVRTC error %u", call, code);
}

/* NVRTC's log, of which the beginning says most. */
static sw_status compile_failed(const sw__nvrtc_api *nvrtc, sw__nvrtc_program program, sw__cu_result code)
{
    size_t n = 0;
    if (nvrtc->nvrtcGetProgramLogSize(program, &n) != 0) n = 0;
    char *const log = n > 0 && n < (16u << 20) ? sw__calloc(n + 1, 1) : NULL;
    if (log != NULL && nvrtc->nvrtcGetProgramLog(program, log) != 0) log[0] = '\0';
    const sw_status st = sw__fail(SW_ERR_DEVICE, "nvrtcCompileProgram: error %u: %.800s", code, log != NULL ? log : "no log");
    sw__free(log);
    return st;
}

/* SWOOP_CUDA_OPTIONS has more of them, for a profiler's or a debugger's sake: "-lineinfo". */
static int put_options(const sw__cu *c, char text[512], const char *list[16])
{
    char *rest = NULL;
    const char *const more = getenv("SWOOP_CUDA_OPTIONS");
    const bool exact = c->entry->arch == c->sm;
    int n = 0, at = snprintf(text, 512, "--gpu-architecture=%s_%d", exact ? "sm" : "compute", c->entry->arch) + 1;
    list[n++] = text;
    if (*c->lib->include != '\0') {
        list[n++] = text + at;
        at += snprintf(text + at, 512 - (size_t)at, "--include-path=%.250s", c->lib->include) + 1;
    }
    snprintf(text + at, 512 - (size_t)at, "%.180s", more != NULL ? more : "");
    for (char *word = strtok_r(text + at, " ", &rest); word != NULL && n < 16; word = strtok_r(NULL, " ", &rest))
        list[n++] = word;
    return n;
}

static sw_status take_image(const sw__cu *c, sw__nvrtc_program program, char **image, size_t *bytes)
{
    const sw__nvrtc_api *const nvrtc = &c->lib->nvrtc;
    const bool exact = c->entry->arch == c->sm;
    const char *const call = exact ? "nvrtcGetCUBIN" : "nvrtcGetPTX";
    sw__cu_result code = exact ? nvrtc->nvrtcGetCUBINSize(program, bytes) : nvrtc->nvrtcGetPTXSize(program, bytes);
    if (code != 0 || *bytes == 0) return nvrtc_fail(code, call);
    char *const to = sw__calloc(*bytes + 1, 1); /* PTX ends with a zero */
    if (to == NULL) return sw__no_memory(*bytes, "a program's binary");
    code = exact ? nvrtc->nvrtcGetCUBIN(program, to) : nvrtc->nvrtcGetPTX(program, to);
    if (code != 0) {
        sw__free(to);
        return nvrtc_fail(code, call);
    }
    *image = to;
    return SW_OK;
}

/* Takes the image, also where it fails. */
static sw_status load_image(sw__cu *c, void *image, size_t bytes, void **out)
{
    module *const m = sw__calloc(1, sizeof *m);
    sw_status st = m != NULL ? SW_OK : sw__no_memory(sizeof *m, "a program");
    if (st == SW_OK) {
        const sw__cu_result code = c->api->cuModuleLoadData(&m->handle, image);
        if (code != SW_CU_OK) st = sw__cu_fail(c, code, "cuModuleLoadData");
    }
    if (st != SW_OK) {
        sw__free(m);
        sw__free(image);
        return st;
    }
    m->image = image;
    m->bytes = bytes;
    *out = m;
    return SW_OK;
}

static sw_status cu_compile(void *dev, const char *text, void **out)
{
    sw__cu *const c = dev;
    const sw__nvrtc_api *const nvrtc = &c->lib->nvrtc;
    sw__nvrtc_program program = NULL;
    char words[512], *image = NULL;
    const char *options[16];
    size_t bytes = 0;
    const int n = put_options(c, words, options);
    sw__cu_result code = nvrtc->nvrtcCreateProgram(&program, text, "kernels.cu", 0, NULL, NULL);
    if (code != 0) return nvrtc_fail(code, "nvrtcCreateProgram");
    code = nvrtc->nvrtcCompileProgram(program, n, options);
    sw_status st = code == 0 ? SW_OK : compile_failed(nvrtc, program, code);
    if (st == SW_OK) st = take_image(c, program, &image, &bytes);
    (void)nvrtc->nvrtcDestroyProgram(&program);
    return st == SW_OK ? load_image(c, image, bytes, out) : st;
}

static sw_status cu_load_binary(void *dev, const void *bytes, size_t n, void **out)
{
    char *const image = sw__calloc(n + 1, 1);
    if (image == NULL) return sw__no_memory(n, "a program's binary");
    memcpy(image, bytes, n);
    return load_image(dev, image, n, out);
}

static sw_status cu_binary(void *dev, void *of, void **bytes, size_t *n)
{
    (void)dev;
    const module *const m = of;
    *bytes = sw__malloc(SW_MAX(m->bytes, (size_t)1));
    if (*bytes == NULL) return sw__no_memory(m->bytes, "a program's binary");
    memcpy(*bytes, m->image, m->bytes);
    *n = m->bytes;
    return SW_OK;
}

/* A kernel that runs must not lose its code. */
static void cu_unload(void *dev, void *of)
{
    sw__cu *const c = dev;
    module *const m = of;
    sw__cu_settle(c);
    (void)c->api->cuModuleUnload(m->handle);
    sw__free(m->image);
    sw__free(m);
}

enum { MOST = 2 * SW_GPU_MAX_ARGS };
typedef struct kernel {
    sw__cu_function function;
    int n_parameters;      /* -1: the driver is too old to tell */
    uint8_t bytes[MOST];   /* of each */
    char entry[];
} kernel;

static void find_parameters(const sw__cu *c, kernel *k)
{
    size_t at = 0, bytes = 0;
    k->n_parameters = -1;
    if (c->api->cuFuncGetParamInfo == NULL) return;
    int n = 0;
    sw__cu_result code = SW_CU_OK;
    while (n < MOST && (code = c->api->cuFuncGetParamInfo(k->function, (size_t)n, &at, &bytes)) == SW_CU_OK)
        k->bytes[n++] = (uint8_t)SW_MIN(bytes, (size_t)255);
    if (code == SW_CU_INVALID_VALUE) k->n_parameters = n; /* there are no more */
}

static sw_status cu_make_kernel(void *dev, void *of, const char *entry, void **out)
{
    const size_t n = strlen(entry) + 1;
    kernel *const k = sw__calloc(1, sizeof *k + n);
    if (k == NULL) return sw__no_memory(sizeof *k + n, "a kernel");
    memcpy(k->entry, entry, n);
    sw__cu *const c = dev;
    const sw__cu_result code = c->api->cuModuleGetFunction(&k->function, ((module *)of)->handle, entry);
    if (code != SW_CU_OK) {
        sw__free(k);
        return sw__cu_fail(c, code, "cuModuleGetFunction");
    }
    find_parameters(c, k);
    *out = k;
    return SW_OK;
}

static void cu_kernel_drop(void *dev, void *of)
{
    sw__cu *const c = dev;
    kernel *const k = of;
    if (c->last == k->entry) c->last = "a kernel that is freed by now";
    sw__free(k);
}

/* ---- launches ------------------------------------------------------------------------------------------------------ */

static size_t size_of(const sw__gpu_value *v)
{
    return v->buffer != NULL ? sizeof v->buffer : v->size;
}

/* CUDA itself would read arguments that are not there. */
static sw_status check_arguments(const kernel *k, const sw__gpu_value *args, int n_args)
{
    if (k->n_parameters < 0) return SW_OK;
    if (n_args != k->n_parameters)
        return sw__fail(SW_ERR_DEVICE, "cuda: kernel %s has %d parameters (a buffer is two), not %d", k->entry,
                        k->n_parameters, n_args);
    for (int i = 0; i < n_args; i++)
        if (size_of(&args[i]) != k->bytes[i])
            return sw__fail(SW_ERR_DEVICE, "cuda: parameter %d of kernel %s is of %d bytes, not %zu", i, k->entry,
                            k->bytes[i], size_of(&args[i]));
    return SW_OK;
}

static sw_status launch_failed(sw__cu *c, const kernel *k, sw__cu_result code, const uint32_t groups[3],
                               const uint32_t local[3])
{
    return sw__prefix(sw__cu_fail(c, code, "cuLaunchKernel"), "kernel %s of %u x %u x %u groups of %u x %u x %u", k->entry,
                      groups[0], groups[1], groups[2], local[0], local[1], local[2]);
}

static sw_status cu_launch(void *dev, void *of, const uint32_t groups[3], const uint32_t local[3],
                           const sw__gpu_value *args, int n_args)
{
    sw__cu *const c = dev;
    const kernel *const k = of;
    sw__gpu_value value[MOST];
    void *parameter[MOST] = {NULL};
    SW_TRY(check_arguments(k, args, n_args));
    if (groups[1] > 65535 || groups[2] > 65535)
        return sw__fail(SW_ERR_ARGUMENT, "kernel %s: %u x %u x %u groups: CUDA takes at most 65535 along the second and the "
                        "third axis", k->entry, groups[0], groups[1], groups[2]);
    for (int i = 0; i < n_args; i++) {
        value[i] = args[i];
        parameter[i] = value[i].buffer != NULL ? (void *)&value[i].buffer : (void *)&value[i].raw;
    }
    c->last = k->entry;
    const sw__cu_result code = c->api->cuLaunchKernel(k->function, groups[0], groups[1], groups[2], local[0], local[1],
                                                      local[2], 0, c->stream, parameter, NULL);
    if (code != SW_CU_OK) return launch_failed(c, k, code, groups, local);
    return c->check ? cu_finish(dev) : SW_OK;
}

/* By the device's clock: events before and behind. */
static sw_status cu_timer(void *dev, double *seconds)
{
    sw__cu *const c = dev;
    float milliseconds = 0;
    for (size_t i = 0; i < SW_COUNT(c->timer); i++)
        if (c->timer[i] == NULL) CALL(cuEventCreate, &c->timer[i], SW_CU_EVENT_DEFAULT);
    if (seconds != NULL) {
        c->timed = seconds;
        CALL(cuEventRecord, c->timer[0], c->stream);
        return SW_OK;
    }
    CALL(cuEventRecord, c->timer[1], c->stream);
    SW_TRY(sw__cu_wait(c, c->timer[1]));
    CALL(cuEventElapsedTime, &milliseconds, c->timer[0], c->timer[1]);
    *c->timed += (double)milliseconds * 1e-3;
    return SW_OK;
}

const sw__gpu_driver sw__cu_driver = {
    .compile = cu_compile,
    .binary = cu_binary,
    .load = cu_load_binary,
    .unload = cu_unload,
    .kernel = cu_make_kernel,
    .kernel_free = cu_kernel_drop,
    .launch = cu_launch,
    .alloc = cu_alloc,
    .release = cu_release,
    .download = cu_download,
    .fill = cu_fill,
    .finish = cu_finish,
    .library = sw__cu_library,
    .library_has = sw__cu_library_has,
    .library_label = sw__cu_library_label,
    .timer = cu_timer,
};
