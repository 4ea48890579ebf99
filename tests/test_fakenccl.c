/* test_fakenccl.c: the double of NCCL finds what it is there to find: each check has a program with the fault planted,
 * run in a process of its own, whose report is looked at; sums without fault are right, in every type, launched and
 * replayed. Our declarations of NCCL (backend/cuda/nccl.h) are compared with NVIDIA's header: what differs does not
 * compile. */
/* needs: FAKENCCL */
#include <nccl.h>

#include "fakecuda_case.h"

#include "backend/cuda/nccl.h"

#define NUMBER(name, value) _Static_assert((int)(name) == (value), #name " is another number");
SW_NCCL_CONSTANTS(NUMBER)
#undef NUMBER
_Static_assert(sizeof(sw__nccl_id) == sizeof(ncclUniqueId), "an id");
_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int), "enums");
#define PLACE(field)                                                                                                   \
    _Static_assert(offsetof(sw__nccl_config, field) == offsetof(ncclConfig_t, field) &&                                \
                       sizeof(((sw__nccl_config *)0)->field) == sizeof(((ncclConfig_t *)0)->field),                    \
                   #field);
PLACE(size)
PLACE(magic) PLACE(version) PLACE(blocking)
#undef PLACE

    /* A call with arguments of our types must be one of theirs, and one through our table. */
    static SW_UNUSED int calls(const sw__nccl_api *own, void *p, const void *c, void **out, size_t n, int i,
                               sw__nccl_id *id, sw__nccl_config *config)
{
    ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    int s = (int)ncclGetVersion(&i) + (int)ncclGetUniqueId((ncclUniqueId *)(void *)id);
    const char *const text = i ? ncclGetErrorString((ncclResult_t)i) : ncclGetLastError(p);
    s += (int)ncclCommInitRankConfig((ncclComm_t *)(void *)out, i, (ncclUniqueId){ "" }, i, &theirs);
    s += (int)ncclCommFinalize(p) + (int)ncclCommDestroy(p) + (int)ncclCommAbort(p);
    s += (int)ncclCommGetAsyncError(p, (ncclResult_t *)(void *)&i);
    s += (int)ncclAllReduce(c, p, n, (ncclDataType_t)i, (ncclRedOp_t)i, p, p);
    s += own->ncclGetVersion(&i) + own->ncclGetUniqueId(id);
    const char *const same = i ? own->ncclGetErrorString(i) : own->ncclGetLastError(p);
    s += own->ncclCommInitRankConfig(out, i, *id, i, config) + own->ncclCommFinalize(p) + own->ncclCommDestroy(p);
    s += own->ncclCommAbort(p) + own->ncclCommGetAsyncError(p, &i) + own->ncclAllReduce(c, p, n, i, i, p, p);
    return s + (text == same) + (theirs.magic == SW_NCCL_MAGIC);
}

/* ---- two ranks in one thread ------------------------------------------------------------------------------------- */

enum { RANKS = 2, COUNT = 100 };
static const sw__nccl_api *nccl;
static sw__nccl_id id;
static struct rank {
    CUcontext context;
    CUstream s;
    CUdeviceptr from, to;
    void *comm;
} r[RANKS];

static void on(int rank)
{
    OK(cu.cuCtxSetCurrent(r[rank].context));
}

static int join_group(int rank, int ranks)
{
    sw__nccl_config config = { sizeof config, SW_NCCL_MAGIC, SW_NCCL_OLDEST, 0 };
    on(rank);
    return nccl->ncclCommInitRankConfig(&r[rank].comm, ranks, id, rank, &config);
}

static void set_up_devices(void)
{
    OK(cu.cuInit(0));
    setenv("SWOOP_NCCL_LIBRARY", SWOOP_FAKECUDA "/libnccl.so.2", 1);
    CHECK(sw__nccl_load(&nccl, NULL) == SW_OK);
    CHECK(nccl->ncclGetUniqueId(&id) == 0);
    for (int i = 0; i < RANKS; i++) {
        OK(cu.cuDevicePrimaryCtxRetain(&r[i].context, i));
        on(i);
        OK(cu.cuStreamCreateWithPriority(&r[i].s, CU_STREAM_NON_BLOCKING, 0));
        r[i].from = memory(COUNT * 8);
        r[i].to = memory(COUNT * 8);
        OK(cu.cuMemsetD32Async(r[i].from, 0, COUNT * 2, r[i].s));
        OK(cu.cuMemsetD32Async(r[i].to, 0, COUNT * 2, r[i].s));
    }
}

static void set_up_ranks(void)
{
    int state = 0;
    set_up_devices();
    CHECK(join_group(0, RANKS) == SW_ncclInProgress);
    CHECK(nccl->ncclCommGetAsyncError(r[0].comm, &state) == 0 && state == SW_ncclInProgress);
    CHECK(join_group(1, RANKS) == 0);
    CHECK(nccl->ncclCommGetAsyncError(r[0].comm, &state) == 0 && state == 0);
}

static int sum_of(int rank, size_t n, int type)
{
    on(rank);
    return nccl->ncclAllReduce((void *)(uintptr_t)r[rank].from, (void *)(uintptr_t)r[rank].to, n, type, SW_ncclSum,
                               r[rank].comm, r[rank].s);
}

static void wait_all(void)
{
    for (int i = 0; i < RANKS; i++) {
        on(i);
        OK(cu.cuStreamSynchronize(r[i].s));
    }
}

static void tear_down_ranks(void)
{
    wait_all();
    for (int i = 0; i < RANKS; i++) {
        on(i);
        if (r[i].comm != NULL && nccl->ncclCommFinalize(r[i].comm) == 0)
            CHECK(nccl->ncclCommDestroy(r[i].comm) == 0);
        else if (r[i].comm != NULL)
            CHECK(nccl->ncclCommAbort(r[i].comm) == 0); /* after a fault */
        OK(cu.cuMemFree(r[i].from));
        OK(cu.cuMemFree(r[i].to));
        OK(cu.cuStreamDestroy(r[i].s));
        OK(cu.cuCtxSetCurrent(NULL));
        OK(cu.cuDevicePrimaryCtxRelease(i));
    }
}

/* ---- without fault ----------------------------------------------------------------------------------------------- */

/* 3 + 5 of each type, as bits. */
static void every_type(void)
{
    static const struct {
        int type, size;
        uint64_t three, five, eight;
    } types[] = {
        { SW_ncclUint8, 1, 3, 5, 8 },
        { SW_ncclInt32, 4, 3, (uint32_t)-5, (uint32_t)-2 },
        { SW_ncclUint32, 4, 3, 5, 8 },
        { SW_ncclInt64, 8, 3, 5, 8 },
        { SW_ncclFloat16, 2, 0x4200, 0x4500, 0x4800 },
        { SW_ncclBfloat16, 2, 0x4040, 0x40A0, 0x4100 },
        { SW_ncclFloat32, 4, 0x40400000, 0x40A00000, 0x41000000 },
        { SW_ncclFloat64, 8, 0x4008000000000000, 0x4014000000000000, 0x4020000000000000 },
    };
    set_up_ranks();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        unsigned char host[COUNT * 8];
        for (int k = 0; k < RANKS; k++) {
            for (int e = 0; e < COUNT; e++)
                memcpy(host + e * types[i].size, k ? &types[i].five : &types[i].three, (size_t)types[i].size);
            on(k);
            OK(cu.cuMemcpyHtoDAsync(r[k].from, host, (size_t)(COUNT * types[i].size), r[k].s));
            CHECK(sum_of(k, COUNT, types[i].type) == 0);
        }
        wait_all();
        for (int k = 0; k < RANKS; k++) {
            on(k);
            OK(cu.cuMemcpyDtoHAsync(host, r[k].to, (size_t)(COUNT * types[i].size), r[k].s));
            for (int e = 0; e < COUNT; e++)
                CHECK(memcmp(host + e * types[i].size, &types[i].eight, (size_t)types[i].size) == 0);
        }
    }
    tear_down_ranks();
}

/* In place, captured and launched three times on one side, one by one on the other: 1 becomes 2, 4, 8. */
static void replayed(void)
{
    CUgraph graph;
    CUgraphExec exec;
    float host[COUNT];
    set_up_ranks();
    wait_all();
    for (int k = 0; k < RANKS; k++) {
        on(k);
        OK(cu.cuMemFree(r[k].to));
        r[k].to = r[k].from;
        OK(cu.cuMemsetD32Async(r[k].from, 0x3F800000, COUNT, r[k].s));
    }
    on(0);
    OK(cu.cuStreamBeginCapture(r[0].s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(sum_of(0, COUNT, SW_ncclFloat32) == 0);
    OK(cu.cuStreamEndCapture(r[0].s, &graph));
    OK(cu.cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        on(0);
        OK(cu.cuGraphLaunch(exec, r[0].s));
        CHECK(sum_of(1, COUNT, SW_ncclFloat32) == 0);
    }
    wait_all();
    OK(cu.cuMemcpyDtoHAsync(host, r[1].from, sizeof host, r[1].s));
    for (int e = 0; e < COUNT; e++) CHECK(host[e] == 8.0f);
    on(0);
    OK(cu.cuGraphExecDestroy(exec));
    OK(cu.cuGraphDestroy(graph));
    for (int k = 0; k < RANKS; k++) {
        on(k);
        r[k].to = memory(8);
    }
    tear_down_ranks();
}

/* Aborted while it waits: nothing more is waited for. */
static void aborted(void)
{
    set_up_ranks();
    CHECK(sum_of(0, COUNT, SW_ncclFloat32) == 0);
    CHECK(cu.cuStreamQuery(r[0].s) == CUDA_ERROR_NOT_READY);
    CHECK(nccl->ncclCommAbort(r[0].comm) == 0);
    r[0].comm = NULL;
    tear_down_ranks();
}

static void test_sums(void **state)
{
    (void)state;
    expect_clean("FAKECUDA_DEVICES=2", every_type);
    expect_clean("FAKECUDA_DEVICES=2 FAKECUDA_SEED=3", replayed);
    expect_clean("FAKECUDA_DEVICES=2", aborted);
}

/* ---- with fault -------------------------------------------------------------------------------------------------- */

static void two_sums(size_t n0, int type0, size_t n1, int type1)
{
    int state = 0;
    set_up_ranks();
    CHECK(sum_of(0, n0, type0) == 0 && sum_of(1, n1, type1) == 0);
    wait_all();
    CHECK(nccl->ncclCommGetAsyncError(r[0].comm, &state) == 0 && state == SW_ncclInvalidUsage);
    CHECK(sum_of(0, n0, type0) == SW_ncclInvalidUsage); /* and stays so */
    tear_down_ranks();
}

static void other_count(void)
{
    two_sums(COUNT, SW_ncclFloat32, COUNT - 1, SW_ncclFloat32);
}

static void other_type(void)
{
    two_sums(COUNT, SW_ncclFloat32, COUNT, SW_ncclInt32);
}

/* The same sums, but in another order. */
static void other_order(void)
{
    set_up_ranks();
    CHECK(sum_of(0, 10, SW_ncclFloat32) == 0 && sum_of(0, 20, SW_ncclFloat32) == 0);
    CHECK(sum_of(1, 20, SW_ncclFloat32) == 0 && sum_of(1, 10, SW_ncclFloat32) == 0);
    tear_down_ranks();
}

static void missing_rank(void)
{
    int state = 0;
    set_up_ranks();
    CHECK(sum_of(0, COUNT, SW_ncclFloat32) == 0);
    wait_all(); /* and ends */
    CHECK(nccl->ncclCommGetAsyncError(r[0].comm, &state) == 0 && state == SW_ncclRemoteError);
    tear_down_ranks();
}

static void never_joined(void)
{
    int state = SW_ncclInProgress;
    set_up_devices();
    CHECK(join_group(0, RANKS) == SW_ncclInProgress);
    while (state == SW_ncclInProgress) CHECK(nccl->ncclCommGetAsyncError(r[0].comm, &state) == 0);
    CHECK(state == SW_ncclRemoteError && nccl->ncclCommAbort(r[0].comm) == 0);
    r[0].comm = NULL;
    tear_down_ranks();
}

static void after_destroy(void)
{
    set_up_ranks();
    on(0);
    CHECK(nccl->ncclCommDestroy(r[0].comm) == 0);
    CHECK(sum_of(0, COUNT, SW_ncclFloat32) != 0);
    r[0].comm = NULL;
    tear_down_ranks();
}

static void destroyed_at_work(void)
{
    set_up_ranks();
    CHECK(sum_of(0, COUNT, SW_ncclFloat32) == 0 && nccl->ncclCommDestroy(r[0].comm) == 0);
    r[0].comm = NULL;
    tear_down_ranks();
}

static void others_communicator(void)
{
    set_up_ranks();
    on(0);
    CHECK(nccl->ncclAllReduce((void *)(uintptr_t)r[0].from, (void *)(uintptr_t)r[0].to, 1, SW_ncclFloat32, SW_ncclSum,
                              r[1].comm, r[0].s) != 0);
    tear_down_ranks();
}

static void no_communicator(void)
{
    set_up_ranks();
    void *const own = r[0].comm;
    r[0].comm = &id;
    CHECK(sum_of(0, COUNT, SW_ncclFloat32) != 0);
    r[0].comm = own;
    tear_down_ranks();
}

static void left(void)
{
    set_up_ranks();
    r[0].comm = NULL;
    tear_down_ranks();
}

static void source_without_wait(void)
{
    CUstream other;
    set_up_ranks();
    wait_all();
    on(0);
    OK(cu.cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
    OK(cu.cuMemsetD32Async(r[0].from, 7, COUNT, other));
    CHECK(sum_of(0, COUNT, SW_ncclFloat32) == 0 && sum_of(1, COUNT, SW_ncclFloat32) == 0);
    wait_all();
    on(0);
    OK(cu.cuStreamSynchronize(other));
    OK(cu.cuStreamDestroy(other));
    tear_down_ranks();
}

static void after_free(void)
{
    set_up_ranks();
    wait_all();
    on(0);
    OK(cu.cuMemFree(r[0].from));
    CHECK(sum_of(0, COUNT, SW_ncclFloat32) == 0 && sum_of(1, COUNT, SW_ncclFloat32) == 0);
    wait_all();
}

/* As rank `rank` of `ranks`, with rank 0's device for 1 too. */
static void join_badly(int rank, int ranks, bool one_device, bool other_id)
{
    set_up_devices();
    CHECK(join_group(0, RANKS) == SW_ncclInProgress);
    if (one_device) r[1].context = r[0].context;
    if (other_id) id.internal[0] = 'x';
    sw__nccl_config config = { sizeof config, SW_NCCL_MAGIC, SW_NCCL_OLDEST, 0 };
    on(1);
    CHECK(nccl->ncclCommInitRankConfig(&r[1].comm, ranks, id, rank, &config) == 4);
}

static void rank_twice(void)
{
    join_badly(0, RANKS, false, false);
}
static void rank_too_high(void)
{
    join_badly(2, RANKS, false, false);
}
static void other_size(void)
{
    join_badly(1, 3, false, false);
}
static void device_twice(void)
{
    join_badly(1, RANKS, true, false);
}
static void unknown_id(void)
{
    join_badly(1, RANKS, false, true);
}

static void no_config(void)
{
    sw__nccl_config config = { sizeof config, 0, SW_NCCL_OLDEST, 0 };
    set_up_devices();
    on(0);
    CHECK(nccl->ncclCommInitRankConfig(&r[0].comm, 1, id, 0, &config) == 4);
}

static void test_faults(void **state)
{
    (void)state;
    static const struct {
        void (*run)(void);
        const char *settings, *words;
    } faults[] = {
        { other_count, "", "sum 0: rank 0 has 100 f32 by op 0, rank 1 99 f32" },
        { other_type, "", "sum 0: rank 0 has 100 f32 by op 0, rank 1 100 i32" },
        { other_order, "", "sum 0: rank 0 has 10 f32 by op 0, rank 1 20 f32" },
        { missing_rank, "FAKECUDA_NCCL_TIMEOUT=0.2",
          "rank 1 does not come to sum 0 (100 f32), for which rank 0 waits" },
        { never_joined, "FAKECUDA_NCCL_TIMEOUT=0.2", "rank 1 of 2 never joined" },
        { after_destroy, "", "ncclAllReduce: the communicator was destroyed" },
        { destroyed_at_work, "", "ncclCommDestroy: 1 collectives are under way" },
        { others_communicator, "", "the communicator is another device's" },
        { no_communicator, "", "ncclAllReduce: this is no communicator" },
        { left, "", "leak: NCCL communicator" },
        { source_without_wait, "", "a wait is missing" },
        { after_free, "", "ncclAllReduce: rank 0" },
        { rank_twice, "", "two are rank 0" },
        { rank_too_high, "", "rank 2 of 2" },
        { other_size, "", "a group of 2 ranks for one, of 3 for another" },
        { device_twice, "", "ranks 0 and 1 have one device" },
        { unknown_id, "", "this id is none of ncclGetUniqueId's" },
        { no_config, "", "this is no configuration" },
    };
    for (size_t i = 0; i < SW_COUNT(faults); i++) {
        char settings[80], seeded[128];
        snprintf(settings, sizeof settings, "FAKECUDA_DEVICES=2 %s", faults[i].settings);
        for (int seed = 1; seed <= 2; seed++) { /* whoever comes first names the other */
            snprintf(seeded, sizeof seeded, "%s FAKECUDA_SEED=%d", settings, seed);
            const child_result c = run_child(seeded, faults[i].run);
            const bool either =
                faults[i].run == other_count || faults[i].run == other_type || faults[i].run == other_order;
            const char *const words =
                either && strstr(c.text, "rank 1 has") != NULL ? "sum 0: rank 1 has" : faults[i].words;
            if (c.code != 97 || strstr(c.text, words) == NULL)
                fail_msg("'%s': exit code %d, signal %d: %.2000s", words, c.code, c.signal, c.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sums), cmocka_unit_test(test_faults) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
