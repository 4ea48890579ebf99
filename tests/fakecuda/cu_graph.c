/* cu_graph.c: graphs that were captured, and their launches: the nodes go into the stream of the launch and into
 * streams of the graph's own, one for each stream that was captured, with clocks that follow the graph's edges; so
 * what a graph leaves unordered runs in any order, and is reported. See cu.h. */
#include "cu.h"

#include <stdlib.h>
#include <string.h>

static void free_nodes(fk_node *node, int n)
{
    for (int i = 0; i < n; i++) {
        fk_task_release(node[i].task);
        fk_links_free(&node[i].before);
    }
    free(node);
}

void fk_graph_end(fk_graph *g)
{
    free_nodes(g->node, g->n_nodes);
    g->node = NULL;
    g->n_nodes = 0;
    fk_end(g);
}

FK_EXPORT CUresult CUDAAPI cuGraphDestroy(CUgraph handle)
{
    FK_ENTER(FK_RELEASE);
    CUresult code;
    fk_graph *const g = fk_object_of(&guard, handle, FK_GRAPH, &code);
    if (g == NULL) return code;
    fk_graph_end(g);
    return fk_result(&guard, CUDA_SUCCESS);
}

FK_EXPORT CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *n)
{
    FK_ENTER(0);
    CUresult code;
    const fk_graph *const g = fk_object_of(&guard, handle, FK_GRAPH, &code);
    if (g == NULL) return code;
    if (nodes != NULL || n == NULL) return fk_misuse(&guard, CUDA_ERROR_NOT_SUPPORTED, "the double only counts nodes");
    *n = (size_t)g->n_nodes;
    return CUDA_SUCCESS;
}

/* ---- executable graphs ------------------------------------------------------------------------------------------- */

static fk_node *copy_nodes(const fk_graph *g)
{
    fk_node *const copy = calloc((size_t)g->n_nodes + 1, sizeof *copy);
    for (int i = 0; copy != NULL && i < g->n_nodes; i++) {
        copy[i].task = g->node[i].task;
        copy[i].task->refs++;
        copy[i].lane = g->node[i].lane;
        if (fk_links_join(&copy[i].before, &g->node[i].before)) continue;
        free_nodes(copy, i + 1);
        return NULL;
    }
    return copy;
}

void fk_exec_end(fk_exec *e)
{
    free_nodes(e->node, e->n_nodes);
    for (int i = 1; e->lane != NULL && i < e->n_lanes; i++)
        if (e->lane[i] != NULL) fk_stream_close(e->lane[i]);
    free(e->lane);
    e->node = NULL;
    e->lane = NULL;
    e->n_nodes = 0;
    fk_end(e);
}

FK_EXPORT CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    CUresult code;
    const fk_graph *const g = fk_object_of(&guard, handle, FK_GRAPH, &code);
    if (g == NULL) return code;
    if (out == NULL || g->capturing || (flags & ~1ull) != 0)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "flags 0x%llx, or a graph that is being captured", flags);
    fk_exec *const e = fk_new(FK_EXEC, sizeof *e, g->o.device);
    if (e == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    e->node = copy_nodes(g);
    e->lane = calloc((size_t)g->n_lanes + 1, sizeof(fk_stream *));
    e->n_lanes = g->n_lanes;
    bool made = e->node != NULL && e->lane != NULL;
    if (e->node != NULL) e->n_nodes = g->n_nodes;
    for (int i = 1; made && i < g->n_lanes; i++) {
        e->lane[i] = fk_stream_make(g->o.device, CU_STREAM_NON_BLOCKING, 0, true);
        made = e->lane[i] != NULL;
    }
    if (made) *out = (CUgraphExec)(void *)e;
    else fk_exec_end(e);
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FK_EXPORT CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle)
{
    FK_ENTER(FK_RELEASE);
    CUresult code;
    fk_exec *const e = fk_object_of(&guard, handle, FK_EXEC, &code);
    if (e == NULL) return code;
    fk_exec_end(e);
    return fk_result(&guard, CUDA_SUCCESS);
}

/* The exec and the stream of a launch or an upload. */
static fk_exec *exec_of(const fk_guard *g, CUgraphExec handle, CUstream stream, fk_stream **s, CUresult *code)
{
    fk_exec *const e = fk_object_of(g, handle, FK_EXEC, code);
    *s = e != NULL ? fk_stream_of(g, stream, code) : NULL;
    if (*s == NULL) return NULL;
    if (e->o.device != (*s)->o.device) {
        *code = fk_misuse(g, CUDA_ERROR_INVALID_HANDLE, "the graph belongs to device %d, the stream to device %d",
                          e->o.device, (*s)->o.device);
        return NULL;
    }
    if ((*s)->capture == NULL) return e;
    *code = fk_capture_break(g, (*s)->capture, CUDA_ERROR_NOT_SUPPORTED, "the double has no graphs within graphs");
    return NULL;
}

FK_EXPORT CUresult CUDAAPI cuGraphUpload(CUgraphExec handle, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    fk_stream *s;
    (void)exec_of(&guard, handle, stream, &s, &code);
    return code;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static CUresult nothing_run(const fk_op *op, void *data)
{
    (void)op, (void)data;
    return CUDA_SUCCESS;
}

/* The beginning or the end of a launch, in its stream. */
static CUresult queue_edge(fk_stream *s, const fk_clock *after)
{
    static int any;
    fk_task *const t = fk_task_new("cuGraphLaunch", nothing_run, NULL, &any);
    return t != NULL ? fk_queue(s, t, after) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult queue_nodes(const fk_exec *e, fk_stream *s, fk_clock *clock, fk_clock *all)
{
    const fk_clock start = s->clock;
    *all = start;
    for (int i = 0; i < e->n_nodes; i++) {
        const fk_node *const n = &e->node[i];
        fk_stream *const to = n->lane == 0 ? s : e->lane[n->lane];
        clock[i] = start;
        for (int k = 0; k < n->before.n; k++) fk_join(&clock[i], &clock[n->before.node[k]]);
        n->task->refs++;
        const CUresult code = fk_queue(to, n->task, &clock[i]);
        if (code != CUDA_SUCCESS) return code;
        clock[i] = to->clock;
        fk_join(all, &to->clock);
    }
    return CUDA_SUCCESS;
}

/* Numbers must not begin anew in the middle of a launch. */
static void make_room(const fk_exec *e, const fk_stream *s)
{
    const uint32_t nodes = (uint32_t)e->n_nodes + 2, most = fk_set.operations > nodes ? fk_set.operations - nodes : 0;
    bool full = s->clock.seq[s->id] >= most;
    for (int i = 1; i < e->n_lanes; i++) full |= e->lane[i]->clock.seq[e->lane[i]->id] >= most;
    if (!full) return;
    fk_wait_device(-1);
    fk_order_rebase();
}

FK_EXPORT CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    fk_stream *s;
    fk_exec *const e = exec_of(&guard, handle, stream, &s, &code);
    if (e == NULL) return code;
    fk_clock *const clock = malloc(((size_t)e->n_nodes + 1) * sizeof *clock), all;
    if (clock == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    make_room(e, s);
    code = queue_edge(s, &e->last);
    if (code == CUDA_SUCCESS) code = queue_nodes(e, s, clock, &all);
    if (code == CUDA_SUCCESS) code = queue_edge(s, &all);
    if (code == CUDA_SUCCESS) e->last = s->clock;
    free(clock);
    return code;
}

/* ---- update ------------------------------------------------------------------------------------------------------ */

static CUgraphExecUpdateResult compare(const fk_exec *e, const fk_graph *g)
{
    if (e->n_nodes != g->n_nodes || e->n_lanes != g->n_lanes) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (int i = 0; i < g->n_nodes; i++) {
        const fk_node *const a = &e->node[i], *const b = &g->node[i];
        if (a->lane != b->lane || a->before.n != b->before.n) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (int k = 0; k < a->before.n; k++)
            if (a->before.node[k] != b->before.node[k]) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (a->task->run != b->task->run) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    CUresult code;
    fk_exec *const e = fk_object_of(&guard, exec, FK_EXEC, &code);
    const fk_graph *const g = e != NULL ? fk_object_of(&guard, graph, FK_GRAPH, &code) : NULL;
    if (g == NULL) return code;
    if (info == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no place for the result");
    memset(info, 0, sizeof *info);
    info->result = compare(e, g);
    if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    for (int i = 0; i < g->n_nodes; i++) { /* launches under way keep the old ones */
        fk_task_release(e->node[i].task);
        e->node[i].task = g->node[i].task;
        e->node[i].task->refs++;
    }
    return CUDA_SUCCESS;
}
