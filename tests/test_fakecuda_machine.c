/* test_fakecuda_machine.c: the double of a GPU, continued: the attributes of each GPU, several of them, NVML, and CUDA C
 * through the fake NVRTC (left out, and said so, where there is no toolkit to pass on to). See test_fakecuda.c. */
/* needs: FAKECUDA */
#include "fakecuda_case.h"

#include <nvrtc.h>

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

static CUresult load_for(const char *arch)
{
    nvrtcProgram program;
    static char image[1 << 16];
    CUmodule m;
    size_t n;
    CHECK(rt.nvrtcCreateProgram(&program, "__global__ void f() {}", "f.cu", 0, NULL, NULL) == NVRTC_SUCCESS);
    CHECK(rt.nvrtcCompileProgram(program, 1, &arch) == NVRTC_SUCCESS);
    CHECK(rt.nvrtcGetCUBINSize(program, &n) == NVRTC_SUCCESS && n < sizeof image);
    CHECK(rt.nvrtcGetCUBIN(program, image) == NVRTC_SUCCESS);
    CHECK(rt.nvrtcDestroyProgram(&program) == NVRTC_SUCCESS);
    const CUresult code = cu.cuModuleLoadData(&m, image);
    if (code == CUDA_SUCCESS) OK(cu.cuModuleUnload(m));
    return code;
}

/* A CUBIN runs on the later GPUs of its own generation. */
static void wrong_gpu(void)
{
    CUmodule m;
    can_compile();
    set_up_fake();
    CHECK(load_for("--gpu-architecture=sm_90") == CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK(load_for("--gpu-architecture=sm_75") == CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK(load_for("--gpu-architecture=sm_89") == CUDA_ERROR_NO_BINARY_FOR_GPU);
    OK(load_for("--gpu-architecture=sm_80"));
    OK(load_for("--gpu-architecture=sm_86"));
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
        cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_nvml),
        cmocka_unit_test(test_cuda_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
