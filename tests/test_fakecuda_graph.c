/* test_fakecuda_graph.c: the double of a GPU, continued: graphs that streams capture, their launches in any legal order,
 * and what breaks a capture. See test_fakecuda.c. */
/* needs: FAKECUDA */
#include "fakecuda_case.h"

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

/* The join is the last that is captured: what follows the launch comes after the other side too. */
static void join_at_the_end(void)
{
    CUgraph graph;
    CUgraphExec exec;
    set_up_graph();
    OK(cu.cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cu.cuEventRecord(event[0], stream[0]));
    OK(cu.cuStreamWaitEvent(stream[1], event[0], 0));
    OK(cu.cuMemsetD8Async(a, 0, BYTES, stream[1]));
    OK(cu.cuEventRecord(event[1], stream[1]));
    OK(cu.cuStreamWaitEvent(stream[0], event[1], 0));
    OK(cu.cuStreamEndCapture(stream[0], &graph));
    OK(cu.cuGraphInstantiate(&exec, graph, 0));
    for (int k = 0; k < 3; k++) {
        OK(cu.cuGraphLaunch(exec, stream[0]));
        OK(add_one(a, N, stream[0]));
    }
    OK(cu.cuMemcpyDtoHAsync(down, a, BYTES, stream[0]));
    OK(cu.cuStreamSynchronize(stream[0]));
    CHECK(down[0] == 1 && down[N - 1] == 1);
    OK(cu.cuGraphExecDestroy(exec));
    OK(cu.cuGraphDestroy(graph));
    tear_down_graph();
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
    expect_clean("", join_at_the_end);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_capture_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
