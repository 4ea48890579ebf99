/* test_fakecuda_graph.c: the double of a GPU, continued: graphs that streams capture, what breaks a capture, several
 * GPUs, NVML, the attributes of each GPU, and CUDA C through the fake NVRTC (left out where there is no toolkit). */
/* needs: FAKECUDA */
#include "fakecuda_case.h"

#include <nvrtc.h>

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static CUdeviceptr a, b, c;
static float *up, *down;

static void set_up_graph(void)
{
    set_up_fake();
    a = memory(BYTES);
    b = memory(BYTES);
    c = memory(BYTES);
    up = pinned(BYTES);
    down = pinned(BYTES);
}

static void tear_down_graph(void)
{
    OK(cu.cuMemFree(a));
    OK(cu.cuMemFree(b));
    OK(cu.cuMemFree(c));
    OK(cu.cuMemFreeHost(up));
    OK(cu.cuMemFreeHost(down));
    tear_down_fake();
}

/* a = up; fork: b = 2a | c = 2a, c + 1; join: a = 2b; down = c. wait: the join is there. */
static void record(bool wait)
{
    OK(cu.cuMemcpyHtoDAsync(a, up, BYTES, stream[0]));
    OK(cu.cuEventRecord(event[0], stream[0]));
    OK(cu.cuStreamWaitEvent(stream[1], event[0], 0));
    OK(twice(c, a, N, stream[1]));
    OK(add_one(c, N, stream[1]));
    OK(cu.cuEventRecord(event[1], stream[1]));
    OK(twice(b, a, N, stream[0]));
    if (wait) OK(cu.cuStreamWaitEvent(stream[0], event[1], 0));
    OK(twice(a, b, N, stream[0]));
    if (!wait) OK(cu.cuStreamWaitEvent(stream[0], event[1], 0));
    OK(cu.cuMemcpyDtoHAsync(down, c, BYTES, stream[0]));
}

static CUgraphExec capture(bool wait)
{
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes;
    CUstreamCaptureStatus status;
    OK(cu.cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    record(wait);
    OK(cu.cuStreamIsCapturing(stream[1], &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cu.cuStreamEndCapture(stream[0], &graph));
    OK(cu.cuStreamIsCapturing(stream[1], &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cu.cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 6);
    OK(cu.cuGraphInstantiate(&exec, graph, 0));
    OK(cu.cuGraphDestroy(graph));
    return exec;
}

static void check_result(float x)
{
    for (int i = 0; i < N; i++) CHECK(down[i] == 2 * x + 1);
}

static void graphs(void)
{
    set_up_graph();
    CUgraphExec exec = capture(true);
    OK(cu.cuGraphUpload(exec, stream[2]));
    OK(cu.cuStreamSynchronize(stream[2]));
    for (int k = 0; k < 100; k++) {
        cu.fk_seed((uint64_t)k);
        for (int i = 0; i < N; i++) up[i] = (float)k;
        OK(cu.cuGraphLaunch(exec, stream[2]));
        if (k % 2 == 1) OK(cu.cuGraphLaunch(exec, stream[0])); /* an exec never overlaps itself */
        OK(add_one(a, N, stream[k % 2 == 1 ? 0 : 2]));
        OK(cu.cuCtxSynchronize());
        check_result((float)k);
    }
    OK(cu.cuGraphExecDestroy(exec));
    tear_down_graph();
}

static void graph_without_join(void)
{
    set_up_graph();
    CUgraphExec exec = capture(false); /* a is written while the other side may read it */
    OK(cu.cuGraphLaunch(exec, stream[0]));
    OK(cu.cuStreamSynchronize(stream[0]));
}

static void work_after_graph(void)
{
    set_up_graph();
    CUgraphExec exec = capture(true);
    OK(cu.cuGraphLaunch(exec, stream[0]));
    OK(add_one(c, N, stream[1]));
    OK(cu.cuCtxSynchronize());
}

static void graph_of_freed_memory(void)
{
    set_up_graph();
    CUgraphExec exec = capture(true);
    OK(cu.cuMemFree(b));
    OK(cu.cuGraphLaunch(exec, stream[0]));
    CHECK(cu.cuStreamSynchronize(stream[0]) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* The early reader of a graph's result sees no result of the launch before. */
static void source_changed_under_graph(void)
{
    set_up_graph();
    CUgraphExec exec = capture(true);
    memset(up, 0, BYTES);
    OK(cu.cuGraphLaunch(exec, stream[0]));
    CHECK(down[0] != down[0]);
    up[0] = 1;
    OK(cu.cuStreamSynchronize(stream[0]));
}

static CUgraph capture_one(CUdeviceptr p, bool two)
{
    CUgraph graph;
    OK(cu.cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(add_one(p, N, stream[0]));
    if (two) OK(add_one(p, N, stream[0]));
    OK(cu.cuStreamEndCapture(stream[0], &graph));
    return graph;
}

static void update(void)
{
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    set_up_graph();
    CUgraph first = capture_one(a, false), second = capture_one(b, false), other = capture_one(b, true);
    OK(cu.cuMemsetD32Async(a, 0, N, stream[0]));
    OK(cu.cuMemsetD32Async(b, 0, N, stream[0]));
    OK(cu.cuGraphInstantiate(&exec, first, 0));
    OK(cu.cuGraphLaunch(exec, stream[0]));
    OK(cu.cuGraphExecUpdate(exec, second, &info));
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cu.cuGraphLaunch(exec, stream[0]));
    OK(cu.cuGraphLaunch(exec, stream[0]));
    CHECK(cu.cuGraphExecUpdate(exec, other, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cu.cuMemcpyDtoHAsync(up, a, BYTES, stream[0]));
    OK(cu.cuMemcpyDtoHAsync(down, b, BYTES, stream[0]));
    OK(cu.cuStreamSynchronize(stream[0]));
    CHECK(up[N - 1] == 1 && down[N - 1] == 2);
    OK(cu.cuGraphExecDestroy(exec));
    OK(cu.cuGraphDestroy(first));
    OK(cu.cuGraphDestroy(second));
    OK(cu.cuGraphDestroy(other));
    tear_down_graph();
}

static void test_graphs(void **state)
{
    (void)state;
    expect_clean("", graphs);
    expect_clean("FAKECUDA_OPERATIONS=50", graphs);
    expect_clean("", update);
    expect_report("", graph_without_join, "a wait is missing");
    expect_report("", work_after_graph, "a wait is missing");
    expect_report("", graph_of_freed_memory, "which was freed");
    expect_report("", source_changed_under_graph, "the host changed");
}

/* ---- what breaks a capture --------------------------------------------------------------------------------------- */

static CUresult call_synchronize(void) { return cu.cuStreamSynchronize(stream[0]); }
static CUresult call_context_synchronize(void) { return cu.cuCtxSynchronize(); }
static CUresult call_query(void) { return cu.cuStreamQuery(stream[0]); }
static CUresult call_alloc(void)
{
    CUdeviceptr p;
    return cu.cuMemAlloc(&p, 4);
}
static CUresult call_load(void)
{
    CUmodule m;
    return cu.cuModuleLoadData(&m, ptx_all);
}
static CUresult call_pageable_up(void)
{
    const float x = 0;
    return cu.cuMemcpyHtoDAsync(a, &x, 4, stream[0]);
}
static CUresult call_pageable_down(void)
{
    float x;
    return cu.cuMemcpyDtoHAsync(&x, a, 4, stream[0]);
}
static CUresult call_old_event(void) { return cu.cuStreamWaitEvent(stream[0], event[2], 0); }
static CUresult call_captured_event(void)
{
    OK(cu.cuEventRecord(event[0], stream[0]));
    cu.cuEventSynchronize(event[0]);
    return cu.cuEventSynchronize(event[0]);
}
static CUresult call_end_elsewhere(void)
{
    CUgraph graph;
    OK(cu.cuEventRecord(event[0], stream[0]));
    OK(cu.cuStreamWaitEvent(stream[1], event[0], 0));
    return cu.cuStreamEndCapture(stream[1], &graph);
}

static const struct { CUresult (*call)(void); CUresult code; bool breaks; } rules[] = {
    { call_synchronize, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
    { call_context_synchronize, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
    { call_query, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
    { call_alloc, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
    { call_load, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
    { call_pageable_up, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
    { call_pageable_down, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
    { call_old_event, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, true },
    { call_captured_event, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true },
    { call_end_elsewhere, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, false },
};
static size_t rule;

static void break_rule(void)
{
    CUgraph graph = NULL;
    set_up_graph();
    OK(cu.cuEventRecord(event[2], stream[2]));
    OK(cu.cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cu.cuMemsetD8Async(a, 0, BYTES, stream[0]));
    CHECK(rules[rule].call() == rules[rule].code);
    const CUresult code = cu.cuStreamEndCapture(stream[0], &graph);
    CHECK(code == (rules[rule].breaks ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS));
    CHECK((graph == NULL) == rules[rule].breaks);
    OK(cu.cuMemsetD8Async(a, 0, BYTES, stream[0])); /* the stream is an ordinary one again */
    OK(cu.cuStreamSynchronize(stream[0]));
}

static void unjoined(void)
{
    CUgraph graph;
    set_up_graph();
    OK(cu.cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu.cuEventRecord(event[0], stream[0]));
    OK(cu.cuStreamWaitEvent(stream[1], event[0], 0));
    OK(cu.cuMemsetD8Async(a, 0, BYTES, stream[1]));
    CHECK(cu.cuStreamEndCapture(stream[0], &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

static void implicit(void)
{
    CUstream blocking;
    set_up_graph();
    OK(cu.cuStreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, 0));
    CHECK(cu.cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cu.cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cu.cuMemsetD8Async(a, 0, 4, NULL) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

static void merge(void)
{
    set_up_graph();
    OK(cu.cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu.cuStreamBeginCapture(stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu.cuEventRecord(event[0], stream[0]));
    CHECK(cu.cuStreamWaitEvent(stream[1], event[0], 0) == CUDA_ERROR_STREAM_CAPTURE_MERGE);
}

static void *end_it(void *data)
{
    CUgraph graph;
    (void)data;
    OK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuStreamEndCapture(stream[0], &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CHECK(cu.cuMemAlloc(&a, 4) == CUDA_SUCCESS); /* thread-local: this one is not forbidden to */
    return NULL;
}

static void other_thread(void)
{
    pthread_t t;
    set_up_graph();
    OK(cu.cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(pthread_create(&t, NULL, end_it, NULL) == 0);
    pthread_join(t, NULL);
}

static void test_capture_rules(void **state)
{
    (void)state;
    for (rule = 0; rule < sizeof rules / sizeof *rules; rule++)
        expect_report("", break_rule, "fakecuda: cu");
    expect_report("", unjoined, "comes before nothing that the captured stream waits for");
    expect_report("", implicit, "the legacy stream waits for a stream that is capturing");
    expect_report("", merge, "two captures would become one");
    expect_report("", other_thread, "the capture began in another thread");
}

/* ---- GPUs -------------------------------------------------------------------------------------------------------- */

static int attribute(CUdevice_attribute what, CUdevice device)
{
    int value = -1;
    OK(cu.cuDeviceGetAttribute(&value, what, device));
    return value;
}

static void many_kinds(void)
{
    static const struct { int sm, units, shared_kib;
    } wanted[] = {
        { 75, 40, 64 },   { 80, 108, 163 },  { 86, 82, 99 },   { 89, 128, 99 },
        { 90, 132, 227 }, { 100, 148, 227 }, { 120, 170, 99 },
    };
    int n;
    OK(cu.cuInit(0));
    OK(cu.cuDeviceGetCount(&n));
    CHECK(n == 7);
    for (int i = 0; i < n; i++) {
        char name[64];
        OK(cu.cuDeviceGetName(name, sizeof name, i));
        CHECK(strncmp(name, i == 0 ? "Tesla" : "NVIDIA", 5) == 0);
        CHECK(10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, i) +
              attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, i) == wanted[i].sm);
        CHECK(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, i) == wanted[i].units);
        CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, i) == wanted[i].shared_kib << 10);
    }
}

static void two_gpus(bool enable)
{
    CUcontext second;
    CUstream s;
    int can = 0;
    set_up_fake();
    const CUdeviceptr here = zeros(stream[0]);
    OK(cu.cuDevicePrimaryCtxRetain(&second, 1));
    OK(cu.cuDeviceCanAccessPeer(&can, 1, 0));
    CHECK(can == 1);
    OK(cu.cuCtxSetCurrent(second));
    OK(cu.cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
    OK(cu.cuModuleLoadData(&module, ptx_all));
    const CUdeviceptr there = memory(BYTES);
    OK(cu.cuEventRecord(event[0], stream[0]) == CUDA_ERROR_INVALID_HANDLE ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    OK(cu.cuCtxSetCurrent(context));
    OK(cu.cuEventRecord(event[0], stream[0]));
    OK(cu.cuCtxSetCurrent(second));
    OK(cu.cuStreamWaitEvent(s, event[0], 0));
    OK(cu.cuMemcpyPeerAsync(there, second, here, context, BYTES, s));
    if (enable) OK(cu.cuCtxEnablePeerAccess(context, 0));
    OK(add_one(here, N, s));
    CHECK(cu.cuStreamSynchronize(s) == (enable ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS));
    CHECK(cu.fk_reports() == (enable ? 1 : 2)); /* one: the event of the other GPU's stream */
}

static void with_peer(void) { two_gpus(true); }
static void without_peer(void) { two_gpus(false); }

static void peer_order(void)
{
    CUcontext second;
    CUstream s;
    set_up_fake();
    const CUdeviceptr here = zeros(stream[0]);
    OK(cu.cuDevicePrimaryCtxRetain(&second, 1));
    OK(cu.cuCtxSetCurrent(second));
    OK(cu.cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
    OK(cu.cuMemcpyPeerAsync(memory(BYTES), second, here, context, BYTES, s)); /* does not wait for the zeros */
    OK(cu.cuCtxSynchronize());
    OK(cu.cuCtxSetCurrent(context));
    OK(cu.cuCtxSynchronize());
}

static void test_gpus(void **state)
{
    (void)state;
    expect_clean("FAKECUDA_DEVICES=7 FAKECUDA_SM=75,80,86,89,90,100,120", many_kinds);
    expect_report("FAKECUDA_DEVICES=2", with_peer, "the current context to device 1");
    expect_report("FAKECUDA_DEVICES=2", without_peer, "add_one");
    expect_report("FAKECUDA_DEVICES=2", peer_order, "a wait is missing");
}

/* ---- NVML -------------------------------------------------------------------------------------------------------- */

static void nvml(void)
{
    int (*init)(void), (*by_bus)(const char *, void **), (*name)(void *, char *, unsigned),
        (*uuid)(void *, char *, unsigned);
    int (*power)(void *, unsigned *), (*memory_info)(void *, unsigned long long *), (*count)(unsigned *);
    void *const library = open_fake("libnvidia-ml.so.1"), *device;
    char bus[16], text[96], same[96];
    unsigned n, milliwatts;
    unsigned long long bytes[3];
    CUuuid id;
    find_fake(library, "nvmlInit_v2", &init);
    find_fake(library, "nvmlDeviceGetHandleByPciBusId_v2", &by_bus);
    find_fake(library, "nvmlDeviceGetName", &name);
    find_fake(library, "nvmlDeviceGetUUID", &uuid);
    find_fake(library, "nvmlDeviceGetPowerUsage", &power);
    find_fake(library, "nvmlDeviceGetMemoryInfo", &memory_info);
    find_fake(library, "nvmlDeviceGetCount_v2", &count);
    CHECK(count(&n) == 1); /* not initialised */
    CHECK(init() == 0 && count(&n) == 0 && n == 2);
    set_up_fake();
    OK(cu.cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    CHECK(by_bus(bus, &device) == 0 && name(device, text, sizeof text) == 0);
    CHECK(strcmp(text, "Tesla T4") == 0); /* the second of the machine is CUDA's first */
    OK(cu.cuDeviceGetName(same, sizeof same, 0));
    CHECK(strcmp(text, same) == 0);
    OK(cu.cuDeviceGetUuid(&id, 0));
    snprintf(same, sizeof same, "GPU-%02x%02x", (unsigned)(unsigned char)id.bytes[0],
             (unsigned)(unsigned char)id.bytes[1]);
    CHECK(uuid(device, text, sizeof text) == 0 && strncmp(text, same, 8) == 0 && strlen(text) == 40);
    CHECK(power(device, &milliwatts) == 0 && milliwatts == 21000);
    const CUdeviceptr p = memory(1 << 20);
    CHECK(memory_info(device, bytes) == 0 && bytes[2] == 1 << 20 && bytes[1] == bytes[0] - bytes[2]);
    OK(cu.cuMemFree(p));
    tear_down_fake();
}

static void test_nvml(void **state)
{
    (void)state;
    expect_clean("FAKECUDA_DEVICES=2 FAKECUDA_SM=90,75 CUDA_VISIBLE_DEVICES=1", nvml);
}

/* ---- CUDA C ------------------------------------------------------------------------------------------------------ */

#define SW_FAKE_NVRTC(X)                                                                                               \
    X(nvrtcVersion) X(nvrtcCreateProgram) X(nvrtcCompileProgram) X(nvrtcDestroyProgram) X(nvrtcGetCUBINSize)           \
    X(nvrtcGetCUBIN) X(nvrtcGetNumSupportedArchs)
static struct { SW_FAKE_NVRTC(SW_FAKE_POINTER) } rt;

static bool load_nvrtc(void)
{
    int major, minor;
    void *const library = open_fake("libnvrtc.so.13");
#define SW_FAKE_FIND_RT(f) find_fake(library, SW_FAKE_NAME(f), &rt.f);
    SW_FAKE_NVRTC(SW_FAKE_FIND_RT)
    return rt.nvrtcVersion(&major, &minor) == NVRTC_SUCCESS;
}

static void can_compile(void)
{
    if (!load_nvrtc()) _exit(77);
}

static CUmodule compile(const char *text, const char *arch)
{
    nvrtcProgram program;
    size_t n = 0;
    CUmodule m = NULL;
    CHECK(rt.nvrtcCreateProgram(&program, text, "test.cu", 0, NULL, NULL) == NVRTC_SUCCESS);
    CHECK(rt.nvrtcCompileProgram(program, 1, &arch) == NVRTC_SUCCESS);
    CHECK(rt.nvrtcGetCUBINSize(program, &n) == NVRTC_SUCCESS && n > 8);
    char *const image = malloc(n);
    CHECK(image != NULL && rt.nvrtcGetCUBIN(program, image) == NVRTC_SUCCESS && memcmp(image, "FKCUBIN", 8) == 0);
    CHECK(rt.nvrtcDestroyProgram(&program) == NVRTC_SUCCESS);
    OK(cu.cuModuleLoadData(&m, image));
    free(image);
    return m;
}

static const char cuda_c[] =
    "extern \"C\" __global__ void rows(float *to, const float *from, int n) {\n"
    "  extern __shared__ float part[];\n"
    "  float s = 0;\n"
    "  for (int i = threadIdx.x; i < n; i += blockDim.x) s += from[blockIdx.x * n + i];\n"
    "  part[threadIdx.x] = s;\n"
    "  for (int k = blockDim.x / 2; k > 0; k /= 2) {\n"
    "    BARRIER\n"
    "    if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];\n"
    "  }\n"
    "  if (threadIdx.x == 0) to[blockIdx.x] = part[0];\n"
    "}\n";

static void sum_rows(const char *barrier)
{
    char text[2048];
    CUdeviceptr to, from;
    float host[4 * 100], sums[4];
    int n = 100, registers, stack;
    can_compile();
    set_up_fake();
    OK(cu.cuModuleUnload(module));
    snprintf(text, sizeof text, "#define BARRIER %s\n%s", barrier, cuda_c);
    module = compile(text, "--gpu-architecture=sm_80");
    for (int i = 0; i < 400; i++) host[i] = i < 100 ? 1 : i < 200 ? 2 : i < 300 ? 3 : 4;
    from = memory(sizeof host);
    to = memory(sizeof sums);
    OK(cu.cuMemcpyHtoDAsync(from, host, sizeof host, stream[0]));
    OK(cu.cuLaunchKernel(kernel("rows"), 4, 1, 1, 64, 1, 1, 256, stream[0], (void *[]){ &to, &from, &n }, NULL));
    OK(cu.cuMemcpyDtoHAsync(sums, to, sizeof sums, stream[0]));
    OK(cu.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel("rows")));
    CHECK(registers >= 8 && registers <= 40); /* ptxas's own figure, out of the CUBIN */
    OK(cu.cuFuncGetAttribute(&stack, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel("rows")));
    CHECK(stack == 0);
    if (strcmp(barrier, "__syncthreads();") == 0)
        for (int i = 0; i < 4; i++) CHECK(sums[i] == 100.0f * (float)(i + 1));
    OK(cu.cuMemFree(from));
    OK(cu.cuMemFree(to));
    tear_down_fake();
}

static void good_rows(void) { sum_rows("__syncthreads();"); }
static void bad_rows(void) { sum_rows(""); }

static void wrong_gpu(void)
{
    nvrtcProgram program;
    const char *const arch = "--gpu-architecture=sm_90";
    char image[1 << 16];
    CUmodule m;
    size_t n;
    can_compile();
    set_up_fake();
    CHECK(rt.nvrtcCreateProgram(&program, "__global__ void f() {}", "f.cu", 0, NULL, NULL) == NVRTC_SUCCESS);
    CHECK(rt.nvrtcCompileProgram(program, 1, &arch) == NVRTC_SUCCESS);
    CHECK(rt.nvrtcGetCUBINSize(program, &n) == NVRTC_SUCCESS && n < sizeof image);
    CHECK(rt.nvrtcGetCUBIN(program, image) == NVRTC_SUCCESS);
    CHECK(rt.nvrtcDestroyProgram(&program) == NVRTC_SUCCESS);
    CHECK(cu.cuModuleLoadData(&m, image) == CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK(cu.cuModuleLoadData(&m, "nothing of the kind") == CUDA_ERROR_INVALID_IMAGE);
    tear_down_fake();
}

static void test_cuda_c(void **state)
{
    (void)state;
    if (run_child("", can_compile).code == 77) {
        fprintf(stderr, "skipped: there is no NVRTC\n");
        skip();
    }
    expect_clean("FAKECUDA_SM=80", good_rows);
    expect_clean("FAKECUDA_SM=86", good_rows);
    expect_report("FAKECUDA_SM=80", bad_rows, "rows");
    expect_clean("FAKECUDA_SM=86", wrong_gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs), cmocka_unit_test(test_capture_rules), cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_nvml),   cmocka_unit_test(test_cuda_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
