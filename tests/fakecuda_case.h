/* fakecuda_case.h: what the tests of the double of a GPU share: its libraries as they are loaded in a child process,
 * one for each planted fault, whose exit code and report are checked; small kernels in PTX; and shorter calls. */
#ifndef SWOOP_TESTS_FAKECUDA_CASE_H
#define SWOOP_TESTS_FAKECUDA_CASE_H

#include "fakecuda/fake.h"

#include <cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SW_FAKE_CUDA(X)                                                                                                \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName)            \
    X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDeviceGetUuid) X(cuDeviceGetPCIBusId) X(cuDevicePrimaryCtxRetain)  \
    X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxSynchronize) X(cuMemGetInfo)             \
    X(cuMemAlloc) X(cuMemFree) X(cuMemAllocHost) X(cuMemFreeHost) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)            \
    X(cuMemcpyDtoDAsync) X(cuMemsetD8Async) X(cuMemsetD32Async) X(cuStreamCreateWithPriority) X(cuStreamDestroy)       \
    X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamQuery) X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord)   \
    X(cuEventSynchronize) X(cuEventQuery) X(cuEventElapsedTime) X(cuModuleLoadData) X(cuModuleLoadDataEx)              \
    X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetAttribute) X(cuFuncSetAttribute)                               \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuLaunchKernel) X(cuStreamBeginCapture) X(cuStreamEndCapture)     \
    X(cuStreamIsCapturing) X(cuGraphInstantiate) X(cuGraphUpload) X(cuGraphLaunch) X(cuGraphExecDestroy)               \
    X(cuGraphDestroy) X(cuGraphExecUpdate) X(cuGraphGetNodes) X(cuDeviceCanAccessPeer) X(cuCtxEnablePeerAccess)        \
    X(cuMemcpyPeerAsync) X(cuLibraryLoadData) X(cuLibraryGetKernel) X(cuLibraryUnload)                                 \
    X(fk_map) X(fk_poison) X(fk_poison_async) X(fk_work) X(fk_work_when) X(fk_report) X(fk_reports) X(fk_fail)         \
    X(fk_fail_set) X(fk_calls) X(fk_made) X(fk_gone) X(fk_live) X(fk_sm) X(fk_random) X(fk_seed)

static struct {
#define SW_FAKE_POINTER(f) __typeof__(&f) f;
    SW_FAKE_CUDA(SW_FAKE_POINTER)
} cu; /* in a child */

static CUcontext context;
static CUstream stream[3];
static CUevent event[3];
static CUmodule module;

/* ---- a child ----------------------------------------------------------------------------------------------------- */

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (condition) break;                                                                                          \
        fprintf(stderr, "not so, line %d: %s\n", __LINE__, #condition);                                                \
        _exit(3);                                                                                                      \
    } while (0)
#define OK(call) CHECK((call) == CUDA_SUCCESS)

static inline void find_fake(void *library, const char *name, void *pointer)
{
    void *const symbol = dlsym(library, name);
    if (symbol == NULL) fprintf(stderr, "no %s\n", name);
    if (symbol == NULL) _exit(4);
    memcpy(pointer, &symbol, sizeof symbol);
}

static inline void *open_fake(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", SWOOP_FAKECUDA, name);
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    if (library == NULL) _exit(4);
    return library;
}

static inline void load_fake(void)
{
    void *const library = open_fake("libcuda.so.1");
#define SW_FAKE_NAME(f) #f
#define SW_FAKE_FIND(f) find_fake(library, SW_FAKE_NAME(f), &cu.f);
    SW_FAKE_CUDA(SW_FAKE_FIND)
}

typedef struct child_result { int code, signal; char text[16384]; } child_result;

/* Runs a scenario in a process of its own: settings "FAKECUDA_MEM=1M FAKECUDA_SM=75", reports end it with 97. */
static inline child_result run_child(const char *settings, void (*scenario)(void))
{
    child_result r = { 0 };
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        char copy[512], *rest = copy;
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler is the parent's */
        setenv("FAKECUDA_STRICT", "1", 1);
        snprintf(copy, sizeof copy, "%s", settings);
        for (char *s; (s = strsep(&rest, " ")) != NULL;)
            if (strchr(s, '=') != NULL) putenv(strdup(s));
        load_fake();
        scenario();
        exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    char beyond[4096];
    for (ssize_t got; (got = n + 1 < sizeof r.text ? read(ends[0], r.text + n, sizeof r.text - 1 - n)
                                                   : read(ends[0], beyond, sizeof beyond)) > 0;)
        if (n + 1 < sizeof r.text) n += (size_t)got;
    close(ends[0]);
    waitpid(pid, &status, 0);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return r;
}

/* The scenario ends well, and nothing is reported. */
static inline void expect_clean(const char *settings, void (*scenario)(void))
{
    const child_result r = run_child(settings, scenario);
    if (r.code != 0 || strstr(r.text, "fakecuda:") != NULL)
        fail_msg("exit code %d, signal %d: %.2000s", r.code, r.signal, r.text);
}

/* The scenario runs to its end, and the fault is reported in these words. */
static inline void expect_report(const char *settings, void (*scenario)(void), const char *words)
{
    const child_result r = run_child(settings, scenario);
    if (r.code != 97 || strstr(r.text, words) == NULL)
        fail_msg("exit code %d, signal %d, wanted 97 and '%s': %.2000s", r.code, r.signal, words, r.text);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

#define SW_PTX_HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"
/* i of this thread in %r4, its bytes in %rd4; done where i >= n, which is the last parameter. */
#define SW_PTX_INDEX(n)                                                                                                \
    "ld.param.u32 %r0, [" n "];\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"               \
    "mad.lo.s32 %r4, %r1, %r2, %r3;\nsetp.ge.s32 %p0, %r4, %r0;\n@%p0 bra $DONE;\nmul.wide.s32 %rd4, %r4, 4;\n"
#define SW_PTX_REGISTERS ".reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<16>;\n.reg .f32 %f<8>;\n"

/* p[i] += 1 */
static const char ptx_all[] = SW_PTX_HEAD
    ".visible .entry add_one(\n.param .u64 add_one_0,\n.param .u32 add_one_1\n)\n{\n" SW_PTX_REGISTERS SW_PTX_INDEX(
        "add_one_1") "ld.param.u64 %rd0, [add_one_0];\ncvta.to.global.u64 %rd1, %rd0;\nadd.s64 %rd2, %rd1, %rd4;\n"
                     "ld.global.f32 %f0, [%rd2];\nadd.f32 %f1, %f0, 0f3F800000;\nst.global.f32 [%rd2], "
                     "%f1;\n$DONE:\nret;\n}\n"
                     /* to[i] = 2 from[i]; at most 128 threads */
                     ".visible .entry twice(\n.param .u64 twice_0,\n.param .u64 twice_1,\n.param .u32 "
                     "twice_2\n)\n.maxntid 128, 1, 1\n{\n" SW_PTX_REGISTERS SW_PTX_INDEX(
                         "twice_2") "ld.param.u64 %rd0, [twice_0];\ncvta.to.global.u64 %rd1, %rd0;\nadd.s64 %rd2, "
                                    "%rd1, %rd4;\n"
                                    "ld.param.u64 %rd5, [twice_1];\ncvta.to.global.u64 %rd6, %rd5;\nadd.s64 %rd7, "
                                    "%rd6, %rd4;\n"
                                    "ld.global.f32 %f0, [%rd7];\nadd.f32 %f1, %f0, %f0;\nst.global.f32 [%rd2], "
                                    "%f1;\n$DONE:\nret;\n}\n"
                                    /* every thread reads what its neighbour wrote into shared memory, without a barrier
                                     */
                                    ".visible .entry race_block(\n.param .u64 race_block_0\n)\n{\n" SW_PTX_REGISTERS
                                    ".shared .align 4 .b8 words[1024];\n"
                                    "mov.u32 %r0, %tid.x;\nshl.b32 %r1, %r0, 2;\nmov.u32 %r2, words;\nadd.s32 %r3, "
                                    "%r2, %r1;\nst.shared.u32 [%r3], %r0;\n"
                                    "xor.b32 %r4, %r1, 128;\nadd.s32 %r5, %r2, %r4;\nld.shared.u32 %r6, [%r5];\n"
                                    "ld.param.u64 %rd0, [race_block_0];\ncvta.to.global.u64 %rd1, %rd0;\nmul.wide.u32 "
                                    "%rd2, %r0, 4;\n"
                                    "add.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r6;\nret;\n}\n"
                                    /* every block writes the first word */
                                    ".visible .entry race_grid(\n.param .u64 race_grid_0\n)\n{\n" SW_PTX_REGISTERS
                                    "mov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %tid.x;\nsetp.ne.s32 %p0, %r1, 0;\n@%p0 bra "
                                    "$DONE;\n"
                                    "ld.param.u64 %rd0, [race_grid_0];\ncvta.to.global.u64 %rd1, %rd0;\nst.global.u32 "
                                    "[%rd1], %r0;\n$DONE:\nret;\n}\n"
                                    /* half of the threads wait at another barrier */
                                    ".visible .entry barriers(\n.param .u64 barriers_0\n)\n{\n" SW_PTX_REGISTERS
                                    "mov.u32 %r0, %tid.x;\nsetp.lt.u32 %p0, %r0, 64;\n@%p0 bra $LOW;\nbar.sync 0;\nbra "
                                    "$DONE;\n$LOW:\nbar.sync 0;\n"
                                    "$DONE:\nret;\n}\n"
                                    /* never ends */
                                    ".visible .entry hang(\n.param .u64 hang_0\n)\n{\n" SW_PTX_REGISTERS
                                    "$LOOP:\nadd.s32 %r0, %r0, 1;\nbra $LOOP;\nret;\n}\n";

/* ---- shorter calls ----------------------------------------------------------------------------------------------- */

enum { N = 300, BYTES = N * 4 };

/* A context, three streams that wait for nobody, three events, the kernels. */
static inline void set_up_fake(void)
{
    CUdevice device;
    OK(cu.cuInit(0));
    OK(cu.cuDeviceGet(&device, 0));
    OK(cu.cuDevicePrimaryCtxRetain(&context, device));
    OK(cu.cuCtxSetCurrent(context));
    for (int i = 0; i < 3; i++) OK(cu.cuStreamCreateWithPriority(&stream[i], CU_STREAM_NON_BLOCKING, 0));
    for (int i = 0; i < 3; i++) OK(cu.cuEventCreate(&event[i], CU_EVENT_DISABLE_TIMING));
    OK(cu.cuModuleLoadData(&module, ptx_all));
}

static inline void tear_down_fake(void)
{
    OK(cu.cuModuleUnload(module));
    for (int i = 0; i < 3; i++) OK(cu.cuEventDestroy(event[i]));
    for (int i = 0; i < 3; i++) OK(cu.cuStreamDestroy(stream[i]));
    OK(cu.cuDevicePrimaryCtxRelease(0));
}

static inline CUdeviceptr memory(size_t bytes)
{
    CUdeviceptr p = 0;
    OK(cu.cuMemAlloc(&p, bytes));
    return p;
}

static inline float *pinned(size_t bytes)
{
    void *p = NULL;
    OK(cu.cuMemAllocHost(&p, bytes));
    return p;
}

static inline CUfunction kernel(const char *name)
{
    CUfunction f = NULL;
    OK(cu.cuModuleGetFunction(&f, module, name));
    return f;
}

static inline CUresult launch(const char *name, int blocks, int threads, CUstream s, void **args)
{
    return cu.cuLaunchKernel(kernel(name), (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1, 0, s, args, NULL);
}

static inline CUresult add_one(CUdeviceptr p, int n, CUstream s)
{
    return launch("add_one", (n + 127) / 128, 128, s, (void *[]){ &p, &n });
}

static inline CUresult twice(CUdeviceptr to, CUdeviceptr from, int n, CUstream s)
{
    return launch("twice", (n + 127) / 128, 128, s, (void *[]){ &to, &from, &n });
}

static inline CUdeviceptr zeros(CUstream s)
{
    const CUdeviceptr p = memory(BYTES);
    OK(cu.cuMemsetD32Async(p, 0, N, s));
    return p;
}

#endif
