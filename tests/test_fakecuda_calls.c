/* test_fakecuda_calls.c: the double of a GPU, continued: memory that is freed, left, dead or too little; kernels that
 * go wrong; launches, handles and threads that are not as they should be; calls that fail by order. See
 * test_fakecuda.c. */
/* needs: FAKECUDA */
#include "fakecuda_case.h"

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void use_after_free(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    OK(cu.cuStreamSynchronize(stream[0]));
    OK(cu.cuMemFree(a));
    memory(BYTES); /* is not at the same address */
    OK(add_one(a, N, stream[0]));
    CHECK(cu.cuStreamSynchronize(stream[0]) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr b;
    CHECK(cu.cuMemAlloc(&b, 4) == CUDA_ERROR_ILLEGAL_ADDRESS); /* from now on everything fails */
}

static void lost(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]), b = zeros(stream[1]);
    OK(add_one(a, N, stream[0]));
    cu.fk_fail_set("cuStreamSynchronize:1:719");
    CHECK(cu.cuStreamSynchronize(stream[0]) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(cu.cuMemFree(a) == CUDA_ERROR_LAUNCH_FAILED && cu.cuMemFree(b) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(cu.cuModuleUnload(module) == CUDA_ERROR_LAUNCH_FAILED);
    for (int i = 0; i < 3; i++) CHECK(cu.cuEventDestroy(event[i]) == CUDA_ERROR_LAUNCH_FAILED);
    for (int i = 0; i < 3; i++) CHECK(cu.cuStreamDestroy(stream[i]) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(cu.cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(cu.fk_live(NULL) == 0); /* all was given back all the same */
}

static void out_of_bounds(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    OK(add_one(a, N + 1, stream[0]));
    CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void copy_out_of_bounds(void)
{
    set_up_fake();
    const CUdeviceptr a = memory(BYTES);
    const float host[N + 1] = { 0 };
    CHECK(cu.cuMemcpyHtoDAsync(a, host, sizeof host, stream[0]) == CUDA_ERROR_INVALID_VALUE);
}

static void misaligned(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    OK(add_one(a + 2, 4, stream[0]));
    CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_MISALIGNED_ADDRESS);
}

static void host_dereference(void)
{
    set_up_fake();
    const CUdeviceptr a = memory(BYTES);
    *(volatile float *)a = 1; // NOLINT(performance-no-int-to-ptr): the fault
}

static void free_twice(void)
{
    set_up_fake();
    const CUdeviceptr a = memory(BYTES);
    OK(cu.cuMemFree(a));
    CHECK(cu.cuMemFree(a) == CUDA_ERROR_INVALID_VALUE);
}

static void read_dead(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]), b = memory(BYTES);
    OK(cu.cuStreamSynchronize(stream[0]));
    OK((CUresult)cu.fk_poison(a + 400, 80));
    OK(twice(b, a, 100, stream[0])); /* before it */
    OK(cu.cuStreamSynchronize(stream[0]));
    CHECK(cu.fk_reports() == 0);
    OK(cu.cuMemsetD8Async(a + 400, 0, 80, stream[0])); /* alive again */
    OK((CUresult)cu.fk_poison_async(stream[0], a + 440, 4));
    OK(twice(b, a, N, stream[0]));
    OK(cu.cuStreamSynchronize(stream[0]));
}

/* What is filled with 0xFF, as swoop does with tensors that have had their day (SWOOP_POISON). */
static void read_filled(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]), b = memory(BYTES);
    OK(cu.cuMemsetD8Async(a + 400, 0xff, 80, stream[0]));
    OK(cu.cuMemsetD32Async(a + 800, 0xffffffff, 20, stream[0]));
    OK(twice(b, a, 100, stream[0])); /* before it */
    OK(twice(b, a + 480, 80, stream[0]));
    OK(cu.cuStreamSynchronize(stream[0]));
    CHECK(cu.fk_reports() == 0);
    OK(twice(b, a + 400, 1, stream[0]));
    OK(twice(b, a + 876, 1, stream[0]));
    OK(cu.cuStreamSynchronize(stream[0]));
    CHECK(cu.fk_reports() == 2);
}

static void read_filled_freely(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]), b = memory(BYTES);
    OK(cu.cuMemsetD8Async(a + 400, 0xff, 80, stream[0]));
    OK(twice(b, a, N, stream[0]));
    OK(cu.cuStreamSynchronize(stream[0]));
    OK(cu.cuMemFree(a));
    OK(cu.cuMemFree(b));
    tear_down_fake();
}

static void read_unwritten(void)
{
    set_up_fake();
    const CUdeviceptr a = memory(BYTES), b = memory(BYTES);
    OK(twice(b, a, N, stream[0]));
    OK(cu.cuStreamSynchronize(stream[0]));
}

static void too_little_memory(void)
{
    CUdeviceptr a, b;
    size_t free_bytes, total;
    set_up_fake();
    OK(cu.cuMemGetInfo(&free_bytes, &total));
    CHECK(total == 1 << 20 && free_bytes == total);
    OK(cu.cuMemAlloc(&a, 600 << 10));
    CHECK(cu.cuMemAlloc(&b, 600 << 10) == CUDA_ERROR_OUT_OF_MEMORY);
    OK(cu.cuMemGetInfo(&free_bytes, &total));
    CHECK(free_bytes == 424 << 10);
    OK(cu.cuMemFree(a));
    OK(cu.cuMemAlloc(&b, 600 << 10));
    OK(cu.cuMemFree(b));
    tear_down_fake();
}

static void leaks(void)
{
    set_up_fake();
    memory(BYTES);
    pinned(BYTES);
    cu.fk_made("cublasLt handle", &context);
}

static void released_with_leaks(void)
{
    set_up_fake();
    memory(BYTES);
    tear_down_fake();
    CHECK(cu.fk_live(NULL) == 0);
}

static void test_memory(void **state)
{
    (void)state;
    expect_report("", use_after_free, "which was freed");
    expect_report("", out_of_bounds, "add_one");
    expect_report("", copy_out_of_bounds, "leave allocation");
    expect_report("", misaligned, "add_one");
    expect_report("", free_twice, "which was freed");
    expect_report("", read_dead, "which is dead");
    expect_report("FAKECUDA_POISON=1", read_filled, "which is dead");
    expect_clean("", read_filled_freely);
    expect_report("FAKECUDA_UNINIT=1", read_unwritten, "which nothing has written");
    expect_clean("FAKECUDA_MEM=1M", too_little_memory);
    expect_clean("", lost);
    const child_result r = run_child("", host_dereference);
    assert_true(r.signal == SIGSEGV || r.code == 1); /* 1: a sanitizer caught it */
}

static void test_leaks(void **state)
{
    (void)state;
    static const char *const lines[] = { "leak: allocation 1 of 1200 bytes", "leak: pinned memory 2 of 1200 bytes",
                                         "leak: stream 2", "leak: event 1", "leak: module 1", "leak: context 1",
                                         "leak: cublasLt handle" };
    const child_result r = run_child("", leaks);
    assert_int_equal(r.code, 97);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strstr(r.text, lines[i]) == NULL) fail_msg("no '%s': %s", lines[i], r.text);
    expect_report("", released_with_leaks, "leak: allocation 1");
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void race_block(void)
{
    set_up_fake();
    CUdeviceptr p = memory(4096);
    OK(launch("race_block", 1, 128, stream[0], (void *[]){ &p }));
    OK(cu.cuCtxSynchronize()); /* a GPU says nothing */
}

static void race_grid(void)
{
    set_up_fake();
    CUdeviceptr p = memory(4096);
    OK(launch("race_grid", 4, 32, stream[0], (void *[]){ &p }));
    OK(cu.cuCtxSynchronize());
}

static void barriers(void)
{
    set_up_fake();
    CUdeviceptr p = memory(4096);
    OK(launch("barriers", 1, 128, stream[0], (void *[]){ &p }));
    (void)cu.cuCtxSynchronize();
}

static void hang(void)
{
    set_up_fake();
    CUdeviceptr p = memory(4096);
    OK(launch("hang", 1, 32, stream[0], (void *[]){ &p }));
    CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_LAUNCH_TIMEOUT);
}

static void test_kernel_faults(void **state)
{
    (void)state;
    expect_report("", race_block, "race_block");
    expect_report("", race_grid, "race_grid");
    expect_report("", barriers, "barriers");
    expect_report("FAKECUDA_INSTRUCTIONS=100000", hang, "hang");
}

static CUresult launch_size(unsigned gy, unsigned bx, unsigned bz, unsigned shared)
{
    CUdeviceptr p = 0;
    int n = 0;
    return cu.cuLaunchKernel(kernel("add_one"), 1, gy, 1, bx, 1, bz, shared, stream[0], (void *[]){ &p, &n }, NULL);
}

static void bad_launches(void)
{
    CUdeviceptr p = 0;
    int n = 0, value;
    set_up_fake();
    CUfunction f = kernel("add_one");
    CHECK(launch_size(65536, 32, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(launch_size(0, 32, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(launch_size(1, 32, 65, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(launch_size(1, 1024, 2, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(launch_size(1, 32, 1, (48 << 10) + 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(launch("twice", 1, 129, stream[0], (void *[]){ &p, &p, &n }) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    CHECK(launch("add_one", 1, 32, stream[0], (void *[]){ &p, NULL }) == CUDA_ERROR_INVALID_VALUE);
    CHECK(launch("add_one", 1, 32, stream[0], NULL) == CUDA_ERROR_INVALID_VALUE);
    size_t bytes = 16;
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &p, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
    CHECK(cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream[0], NULL, extra) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu.cuLaunchKernel((CUfunction)(void *)module, 1, 1, 1, 32, 1, 1, 0, stream[0], NULL, NULL) ==
          CUDA_ERROR_INVALID_HANDLE);
    CHECK(cu.fk_reports() == 10);
    OK(cu.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 99 << 10));
    OK(launch_size(1, 32, 1, 99 << 10));
    CHECK(cu.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10) != CUDA_SUCCESS);
    OK(cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel("twice")));
    CHECK(value == 128);
    OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, f, 256, 0));
    CHECK(value == 4); /* 56 registers are declared: 1792 a warp */
}

static void unloaded(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    OK(add_one(a, N, stream[0]));
    OK(cu.cuModuleUnload(module));
    CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void test_launches(void **state)
{
    (void)state;
    expect_report("FAKECUDA_SM=86", bad_launches, "it was compiled for 128");
    expect_report("", unloaded, "its module was unloaded before it ran");
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void *without_context(void *data)
{
    CUdeviceptr p;
    (void)data;
    CHECK(cu.cuMemAlloc(&p, 4) == CUDA_ERROR_INVALID_CONTEXT);
    return NULL;
}

static void wrong_thread(void)
{
    pthread_t t;
    set_up_fake();
    CHECK(pthread_create(&t, NULL, without_context, NULL) == 0);
    pthread_join(t, NULL);
}

static void before_init(void)
{
    int n;
    CHECK(cu.cuDeviceGetCount(&n) == CUDA_ERROR_NOT_INITIALIZED);
}

static void dead_handles(void)
{
    set_up_fake();
    OK(cu.cuStreamDestroy(stream[2]));
    CHECK(cu.cuStreamSynchronize(stream[2]) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cu.cuStreamSynchronize((CUstream)(void *)event[0]) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cu.cuEventDestroy((CUevent)(void *)&context) == CUDA_ERROR_INVALID_HANDLE);
}

static void second_fails(void)
{
    CUdeviceptr p;
    set_up_fake();
    memory(4);
    CHECK(cu.cuMemAlloc(&p, 4) == CUDA_ERROR_OUT_OF_MEMORY);
    memory(4);
    CHECK(cu.fk_calls("cuMemAlloc") == 3 && cu.fk_reports() == 0);
    cu.fk_fail_set("cuMemFree:1:999,*:4:700");
    CHECK(cu.cuMemFree(memory(4)) == CUDA_ERROR_UNKNOWN); /* and is freed all the same */
    CHECK(cu.fk_live("allocation") == 2);
    OK(cu.cuCtxSynchronize());
    CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS); /* the device is lost */
    _exit(0);
}

static void forked(void)
{
    int n, status;
    OK(cu.cuInit(0));
    const pid_t pid = fork();
    if (pid == 0) exit(cu.cuDeviceGetCount(&n) == CUDA_ERROR_NOT_INITIALIZED && cu.fk_reports() == 1 ? 0 : 3);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    _exit(0);
}

static void old_driver(void)
{
    int version;
    OK(cu.cuInit(0));
    OK(cu.cuDriverGetVersion(&version));
    OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    OK(cu.cuCtxSetCurrent(context));
    CHECK(version == 12020);
    CHECK(cu.cuModuleLoadData(&module, ".version 8.4\n.target sm_75\n") == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    OK(cu.cuModuleLoadData(&module, ptx_all));
    OK(cu.cuModuleUnload(module));
    OK(cu.cuDevicePrimaryCtxRelease(0));
}

static void no_device(void)
{
    CHECK(cu.cuInit(0) == CUDA_ERROR_NO_DEVICE);
}

static void test_calls(void **state)
{
    (void)state;
    expect_report("", wrong_thread, "no context is current in this thread");
    expect_report("", before_init, "called before cuInit");
    expect_report("", dead_handles, "stream 4 was destroyed");
    expect_report("", dead_handles, "a event is given where a stream is wanted");
    const child_result r = run_child("FAKECUDA_FAIL=cuMemAlloc:2:2", second_fails);
    if (r.code != 0) fail_msg("%s", r.text);
    expect_clean("FAKECUDA_DEVICES=0", no_device);
    expect_clean("FAKECUDA_DRIVER=12020", old_driver);
    const child_result f = run_child("", forked);
    if (f.code != 0 || strstr(f.text, "called in a fork") == NULL) fail_msg("%s", f.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_leaks),
        cmocka_unit_test(test_kernel_faults),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
