/* test_fakecuda.c: the double of a GPU finds what it is there to find: each check of tests/fakecuda has a program with
 * the fault planted, run in a process of its own, whose report and exit code are looked at; and a program without fault
 * gives the same bits in whatever order its streams run. Here: streams and order. Memory, kernels and calls:
 * test_fakecuda_calls.c; graphs: test_fakecuda_graph.c; several GPUs, NVML and NVRTC: test_fakecuda_machine.c. */
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

/* Two threads, each with a stream of its own. */
static void *one_of_two(void *data)
{
    CUstream s = stream[*(int *)data];
    OK(cu.cuCtxSetCurrent(context));
    for (int k = 0; k < 50; k++) {
        const CUdeviceptr p = zeros(s);
        float *const host = pinned(BYTES);
        for (int i = 0; i < k; i++) OK(add_one(p, N, s));
        OK(cu.cuMemcpyDtoHAsync(host, p, BYTES, s));
        OK(cu.cuStreamSynchronize(s));
        CHECK(host[N - 1] == (float)k);
        OK(cu.cuMemFreeHost(host));
        OK(cu.cuMemFree(p));
    }
    return NULL;
}

static void two_threads(void)
{
    int which[2] = { 0, 1 };
    pthread_t t[2];
    set_up_fake();
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&t[i], NULL, one_of_two, &which[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    tear_down_fake();
}

static void test_threads(void **state)
{
    (void)state;
    expect_clean("", two_threads);
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

/* Two streams write the same word: which of them is last depends on the seed. */
static void orders(void)
{
    int last[3] = { 0 };
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]);
    int *const host = (int *)(void *)pinned(BYTES);
    OK(cu.cuCtxSynchronize());
    for (uint64_t seed = 1; seed <= 40; seed++) {
        cu.fk_seed(seed);
        OK(cu.cuMemsetD32Async(a, 1, 1, stream[0]));
        OK(cu.cuMemsetD32Async(a, 2, 1, stream[1]));
        OK(cu.cuCtxSynchronize());
        OK(cu.cuMemcpyDtoHAsync(host, a, 4, stream[0]));
        OK(cu.cuStreamSynchronize(stream[0]));
        CHECK(*host == 1 || *host == 2);
        last[*host]++;
    }
    CHECK(last[1] >= 5 && last[2] >= 5);
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

/* … and with one: down, up again, and down into it once more while the copy up has not run. */
static void staging_in_order(void)
{
    set_up_fake();
    const CUdeviceptr a = zeros(stream[0]), b = memory(BYTES);
    float *const host = pinned(BYTES), result[N];
    OK(cu.cuMemcpyDtoHAsync(host, a, BYTES, stream[0]));
    OK(cu.cuMemcpyHtoDAsync(b, host, BYTES, stream[0]));
    OK(add_one(a, N, stream[0]));
    OK(cu.cuMemcpyDtoHAsync(host, a, BYTES, stream[0]));
    OK(cu.cuMemcpyDtoHAsync(result, b, BYTES, stream[0]));
    CHECK(result[0] == 0 && result[N - 1] == 0 && host[0] == 1 && host[N - 1] == 1);
    OK(cu.cuMemcpyHtoDAsync(b, host, BYTES, stream[0])); /* what the host sees now is what goes up */
    OK(cu.cuMemcpyDtoHAsync(host, a, BYTES, stream[0]));
    OK(cu.cuMemcpyDtoHAsync(result, b, BYTES, stream[0]));
    CHECK(result[0] == 1 && result[N - 1] == 1);
    OK(cu.cuMemFree(a));
    OK(cu.cuMemFree(b));
    OK(cu.cuMemFreeHost(host));
    tear_down_fake();
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
    expect_report("", orders, "a wait is missing");
    expect_clean("", neighbours);
    expect_clean("", staging_in_order);
    expect_report("", freed_early, "is freed though the host has not waited for cuMemsetD32Async");
    expect_report("", source_changed, "the host changed the 1200 bytes");
    expect_report("", destination_changed, "the host wrote into the 1200 bytes");
    expect_report("", staging_reused, "a wait is missing");
    expect_clean("", early_read);
    expect_clean("", work_of_others);
    expect_report("", unordered_map, "library: A (stream");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_legacy_and_queries),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
