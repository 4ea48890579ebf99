/* cu_record.c: a step as one call: its launches are captured from the stream into a graph, which is then launched whole.
 * A graph holds addresses: those of the program's arena and variables, which stay where they are as long as it lives.
 * Called by cu.c for exec/program.c. */
#include "backend/cuda/cu.h"

#define CALL(F, ...) SW_CU_TRY(c, F, __VA_ARGS__)

typedef struct recording {
    sw__cu_graph_exec exec;
    bool checked; /* one of its kernels may REPORT */
    void *comm;   /* whose sums are in it, or NULL */
} recording;

sw_status sw__cu_record_begin(sw__cu *c)
{
    if (c->check)
        return sw__fail(SW_ERR_UNSUPPORTED, "cuda: with SWOOP_CHECK steps are launched kernel by kernel, not recorded");
    c->was_checked = c->gpu.checked;
    c->sums = c->nccl.launched;
    c->gpu.checked = false;
    const sw__cu_result code = c->api->cuStreamBeginCapture_v2(c->stream, SW_CU_CAPTURE_THREAD_LOCAL);
    if (code == SW_CU_OK) return SW_OK;
    c->gpu.checked = c->was_checked;
    return sw__cu_fail(c, code, "cuStreamBeginCapture");
}

static sw_status instantiate(sw__cu *c, sw__cu_graph graph, recording *r)
{
    CALL(cuGraphInstantiateWithFlags, &r->exec, graph, 0);
    CALL(cuGraphUpload, r->exec, c->stream);
    return SW_OK;
}

/* The graph's parts are then the executable one's. */
static sw_status make_recording(sw__cu *c, sw__cu_graph graph, bool checked, void **out)
{
    recording *const r = sw__calloc(1, sizeof *r);
    if (r == NULL) return sw__no_memory(sizeof *r, "a recorded step");
    r->checked = checked;
    if (c->nccl.launched != c->sums) r->comm = c->nccl.comm;
    const sw_status st = instantiate(c, graph, r);
    if (st != SW_OK) sw__cu_recording_free(c, r);
    else *out = r;
    return st;
}

sw_status sw__cu_record_end(sw__cu *c, bool failed, void **out)
{
    sw__cu_graph graph = NULL;
    const bool checked = c->gpu.checked;
    c->gpu.checked = c->was_checked; /* nothing has run */
    *out = NULL;
    const sw__cu_result code = c->api->cuStreamEndCapture(c->stream, &graph);
    sw_status st = failed ? SW_ERR_DEVICE : SW_OK; /* whose message stays */
    if (!failed && code != SW_CU_OK) st = sw__cu_fail(c, code, "cuStreamEndCapture");
    else if (!failed && graph == NULL) st = sw__fail(SW_ERR_DEVICE, "cuda: cuStreamEndCapture gave no graph");
    if (st == SW_OK) st = make_recording(c, graph, checked, out);
    if (graph != NULL) (void)c->api->cuGraphDestroy(graph);
    return st;
}

sw_status sw__cu_replay(sw__cu *c, void *of)
{
    const recording *const r = of;
    if (r->comm != NULL && r->comm != c->nccl.comm)
        return sw__fail(SW_ERR_DEVICE, "cuda: the communicator that the recorded step sums over is closed");
    c->last = "a recorded step";
    CALL(cuGraphLaunch, r->exec, c->stream);
    c->replays++;
    if (r->checked) c->gpu.checked = true;
    return SW_OK;
}

/* It may still run. */
void sw__cu_recording_free(sw__cu *c, void *of)
{
    recording *const r = of;
    if (r == NULL) return;
    sw__cu_settle(c);
    if (r->exec != NULL) (void)c->api->cuGraphExecDestroy(r->exec);
    sw__free(r);
}
