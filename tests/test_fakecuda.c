/* test_fakecuda.c: the double of a GPU finds what it is there to find: each check of tests/fakecuda has a program with
 * the fault planted, run in a process of its own, whose report and exit code are looked at; and a program without
 * fault gives the same bits in whatever order its streams run. Graphs: test_fakecuda_graph.c. */
/* needs: FAKECUDA */
#include "fakecuda_case.h"

#include <math.h>

/* ---- programs without fault -------------------------------------------------------------------------------------- */

/* Three streams: up, twice on two sides, together, down. Returns a sum of the bits. */
static uint64_t three_streams(float *host, float *result, CUdeviceptr p[4])
{
    uint64_t sum = 0;
    for (int i = 0; i < N; i++) host[i] = (float)i;
    OK(cu.cuMemcpyHtoDAsync(p[0], host, BYTES, stream[0]));
    OK(cu.cuEventRecord(event[0], stream[0]));
    OK(cu.cuStreamWaitEvent(stream[1], event[0], 0));
    OK(twice(p[1], p[0], N, stream[1]));
    OK(add_one(p[1], N, stream[1]));
    OK(cu.cuEventRecord(event[1], stream[1]));
    OK(twice(p[2], p[0], N, stream[0]));
    OK(cu.cuStreamWaitEvent(stream[2], event[0], 0));
    OK(cu.cuMemcpyDtoDAsync(p[3], p[0], BYTES, stream[2]));
    OK(add_one(p[3], N, stream[2]));
    OK(cu.cuEventRecord(event[2], stream[2]));
    OK(cu.cuStreamWaitEvent(stream[0], event[1], 0));
    OK(cu.cuStreamWaitEvent(stream[0], event[2], 0));
    OK(twice(p[0], p[1], N, stream[0]));
    OK(add_one(p[0], N, stream[0]));
    OK(cu.cuMemcpyDtoHAsync(result, p[0], BYTES, stream[0]));
    OK(cu.cuStreamSynchronize(stream[0]));
    for (int i = 0; i < N; i++) {
        uint32_t bits;
        memcpy(&bits, &result[i], 4);
        sum = sum * 31 + bits;
        CHECK(result[i] == 4.0f * (float)i + 3.0f);
    }
    return sum;
}

static void schedules(void)
{
    uint64_t first = 0;
    CUdeviceptr p[4];
    set_up_fake();
    float *const host = pinned(BYTES), *const result = pinned(BYTES);
    for (int i = 0; i < 4; i++) p[i] = memory(BYTES);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        cu.fk_seed(seed);
        const uint64_t sum = three_streams(host, result, p);
        if (seed == 1) first = sum;
        CHECK(sum == first);
    }
    OK(cu.cuCtxSynchronize());
    for (int i = 0; i < 4; i++) OK(cu.cuMemFree(p[i]));
    OK(cu.cuMemFreeHost(host));
    OK(cu.cuMemFreeHost(result));
    tear_down_fake();
    CHECK(cu.fk_live(NULL) == 0 && cu.fk_reports() == 0);
}

static void test_schedules(void **state)
{
    (void)state;
    expect_clean("", schedules);
    expect_clean("FAKECUDA_SM=75 FAKECUDA_UNINIT=1", schedules);
    expect_clean("FAKECUDA_OPERATIONS=50", schedules); /* clocks begin anew every few rounds */
}

/* Blocking streams and the legacy one wait for each other; an event says how long something took. */
static void legacy(void)
{
    CUstream blocking;
    CUevent from, to;
    float ms = -1, *host;
    set_up_fake();
    OK(cu.cuStreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, 0));
    OK(cu.cuEventCreate(&from, 0));
    OK(cu.cuEventCreate(&to, 0));
    const CUdeviceptr p = zeros(blocking);
    OK(cu.cuEventRecord(from, blocking));
    OK(add_one(p, N, NULL));
    OK(add_one(p, N, blocking));
    OK(cu.cuEventRecord(to, blocking));
    CHECK(cu.cuEventElapsedTime(&ms, from, to) == CUDA_ERROR_NOT_READY);
    host = malloc(BYTES);
    OK(cu.cuMemcpyDtoHAsync(host, p, BYTES, NULL)); /* pageable: waits */
    CHECK(host != NULL && host[N - 1] == 2.0f);
    OK(cu.cuEventSynchronize(to));
    OK(cu.cuEventElapsedTime(&ms, from, to));
    CHECK(ms > 0);
    free(host);
    OK(cu.cuCtxSynchronize());
    OK(cu.cuMemFree(p));
    OK(cu.cuEventDestroy(from));
    OK(cu.cuEventDestroy(to));
    OK(cu.cuStreamDestroy(blocking));
    tear_down_fake();
}

static void query(void)
{
    int not_ready = 0;
    set_up_fake();
    const CUdeviceptr p = zeros(stream[0]);
    for (int i = 0; i < 5; i++) OK(add_one(p, N, stream[0]));
    OK(cu.cuEventRecord(event[0], stream[0]));
    CUresult code;
    while ((code = cu.cuEventQuery(event[0])) == CUDA_ERROR_NOT_READY) not_ready++;
    CHECK(code == CUDA_SUCCESS && not_ready == 6); /* a fill, five kernels; then the record */
    OK(cu.cuStreamQuery(stream[0]));
    OK(cu.cuMemFree(p));
    tear_down_fake();
}

static void test_legacy_and_queries(void **state)
{
    (void)state;
    expect_clean("", legacy);
    expect_clean("", query);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static void missing_wait(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]), b = memory(BYTES);
    OK(twice(b, a, N, stream[1]));
    OK(cu.cuCtxSynchronize());
}

static void missing_wait_after_read(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]), b = memory(BYTES);
    OK(cu.cuStreamSynchronize(stream[0]));
    OK(twice(b, a, N, stream[0]));
    OK(cu.cuMemsetD32Async(a + 40, 7, 4, stream[1])); /* nobody knows whether it was read before */
    OK(cu.cuCtxSynchronize());
}

static void wait_too_early(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    OK(cu.cuEventRecord(event[0], stream[0]));
    OK(add_one(a, N, stream[0])); /* after the record */
    OK(cu.cuStreamWaitEvent(stream[1], event[0], 0));
    OK(add_one(a, N, stream[1]));
    OK(cu.cuCtxSynchronize());
}

static void neighbours(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    OK(cu.cuStreamSynchronize(stream[0]));
    OK(add_one(a, N / 2, stream[0])); /* the two halves: no fault */
    OK(add_one(a + BYTES / 2, N / 2, stream[1]));
    OK(cu.cuCtxSynchronize());
    OK(cu.cuMemFree(a));
    tear_down_fake();
}

static void freed_early(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    OK(cu.cuMemFree(a));
}

static void source_changed(void)
{
    set_up_fake();
    const CUdeviceptr a = memory(BYTES);
    float *const host = pinned(BYTES);
    memset(host, 0, BYTES);
    OK(cu.cuMemcpyHtoDAsync(a, host, BYTES, stream[0]));
    host[N - 1] = 1;
    OK(cu.cuStreamSynchronize(stream[0]));
}

static void destination_changed(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    float *const host = pinned(BYTES);
    OK(cu.cuMemcpyDtoHAsync(host, a, BYTES, stream[0]));
    host[5] = 1;
    OK(cu.cuStreamSynchronize(stream[0]));
}

/* Pinned memory is shared by two copies without an order. */
static void staging_reused(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]), b = memory(BYTES);
    float *const host = pinned(BYTES);
    OK(cu.cuMemcpyDtoHAsync(host, a, BYTES, stream[0]));
    OK(cu.cuMemcpyHtoDAsync(b, host, BYTES, stream[1]));
    OK(cu.cuCtxSynchronize());
}

/* Who reads before waiting sees NaN; pageable memory is copied at once, so it may change. */
static void early_read(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    float *const host = pinned(BYTES), other[4] = { 1, 2, 3, 4 };
    memset(host, 0, BYTES);
    OK(cu.cuMemcpyHtoDAsync(a, other, sizeof other, stream[0]));
    memset(other, 0, sizeof other);
    OK(cu.cuMemcpyDtoHAsync(host, a, BYTES, stream[0]));
    for (int i = 0; i < N; i++) CHECK(isnan(host[i]));
    OK(cu.cuStreamSynchronize(stream[0]));
    CHECK(host[0] == 1 && host[3] == 4 && host[4] == 0);
    OK(cu.cuMemFree(a));
    OK(cu.cuMemFreeHost(host));
    tear_down_fake();
}

static void map_it(void *data)
{
    const CUdeviceptr *const p = data;
    CHECK(cu.fk_map(*p, BYTES, false, "library: A") != NULL);
}

static int calls_to_ready;
static bool third_time(void *data)
{
    (void)data;
    return ++calls_to_ready == 3;
}

static void count_done(void *data)
{
    ++*(int *)data;
}

static void work_of_others(void)
{
    int done = 0;
    static CUdeviceptr wanted;
    set_up_fake();
    wanted = zeros(stream[0]);
    OK((CUresult)cu.fk_work(stream[0], "library: product", map_it, NULL, &wanted));
    OK((CUresult)cu.fk_work_when(stream[0], "library: all", third_time, count_done, count_done, &done));
    OK(cu.cuStreamSynchronize(stream[0]));
    CHECK(done == 2 && calls_to_ready == 3);
    OK(cu.cuMemFree(wanted));
    tear_down_fake();
}

static void unordered_map(void)
{
    static CUdeviceptr wanted;
    set_up_fake();
    wanted = zeros(stream[0]);
    OK((CUresult)cu.fk_work(stream[1], "library: product", map_it, NULL, &wanted));
    OK(cu.cuCtxSynchronize());
}

static void test_order(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 6; seed++) { /* found in whatever order the two ran */
        char text[40];
        snprintf(text, sizeof text, "FAKECUDA_SEED=%d", seed);
        const child_result r = run_child(text, missing_wait);
        assert_int_equal(r.code, 97);
        assert_non_null(strstr(r.text, "a wait is missing"));
    }
    expect_report("", missing_wait_after_read, "a wait is missing");
    expect_report("", wait_too_early, "a wait is missing");
    expect_clean("", neighbours);
    expect_report("", freed_early, "is freed though the host has not waited for cuMemsetD32Async");
    expect_report("", source_changed, "the host changed the 1200 bytes");
    expect_report("", destination_changed, "the host wrote into the 1200 bytes");
    expect_report("", staging_reused, "a wait is missing");
    expect_clean("", early_read);
    expect_clean("", work_of_others);
    expect_report("", unordered_map, "library: A (stream");
}

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
    expect_report("FAKECUDA_UNINIT=1", read_unwritten, "which nothing has written");
    expect_clean("FAKECUDA_MEM=1M", too_little_memory);
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules), cmocka_unit_test(test_legacy_and_queries),
        cmocka_unit_test(test_order),     cmocka_unit_test(test_memory),
        cmocka_unit_test(test_leaks),     cmocka_unit_test(test_kernel_faults),
        cmocka_unit_test(test_launches),  cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
