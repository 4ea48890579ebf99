/* cu_capture.c: streams that record a graph instead of queueing work: what joins a capture, what breaks it. See
 * cu.h. */
#include "cu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static fk_graph *capturing[FK_IDS]; /* captures under way */
static int n_capturing;

/* ---- nodes that come before -------------------------------------------------------------------------------------- */

bool fk_links_add(fk_links *l, int node)
{
    for (int i = 0; i < l->n; i++)
        if (l->node[i] == node) return true;
    if (l->n == l->cap) {
        const int cap = 2 * l->cap + 2;
        int *const more = realloc(l->node, (size_t)cap * sizeof *more);
        if (more == NULL) return false;
        l->node = more;
        l->cap = cap;
    }
    l->node[l->n++] = node;
    return true;
}

bool fk_links_join(fk_links *to, const fk_links *from)
{
    for (int i = 0; i < from->n; i++)
        if (!fk_links_add(to, from->node[i])) return false;
    return true;
}

void fk_links_free(fk_links *l)
{
    free(l->node);
    *l = (fk_links){ 0 };
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

fk_graph *fk_capture_forbids(bool legacy)
{
    for (int i = 0; i < n_capturing; i++) {
        fk_graph *const g = capturing[i];
        const bool mine = g->thread == (unsigned long)pthread_self();
        if (legacy && g->has_blocking && g->o.device == fk_current->o.device) return g;
        if (legacy || g->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (mine || g->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) return g;
    }
    return NULL;
}

CUresult fk_capture_break(const fk_guard *g, fk_graph *capture, CUresult code, const char *why)
{
    capture->broken = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return fk_misuse(g, code, "%s", why);
}

CUresult fk_capture_add(fk_stream *s, fk_task *t)
{
    fk_graph *const g = s->capture;
    fk_links before = { 0 };
    if (g->broken != CUDA_SUCCESS) {
        fk_task_release(t);
        return g->broken;
    }
    if (g->n_nodes == g->cap_nodes) {
        const int cap = 2 * g->cap_nodes + 16;
        fk_node *const more = realloc(g->node, (size_t)cap * sizeof *more);
        if (more != NULL) {
            g->node = more;
            g->cap_nodes = cap;
        }
    }
    if (g->n_nodes == g->cap_nodes || !fk_links_join(&before, &s->before) || !fk_links_add(&s->before, g->n_nodes)) {
        fk_links_free(&before);
        fk_task_release(t);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    s->before.node[0] = g->n_nodes;
    s->before.n = 1;
    g->node[g->n_nodes++] = (fk_node){ .task = t, .lane = s->lane, .before = before };
    return CUDA_SUCCESS;
}

static void join_capture(fk_stream *s, fk_graph *g, int lane)
{
    s->capture = g;
    s->lane = lane;
    s->before.n = 0;
    g->has_blocking |= (s->flags & CU_STREAM_NON_BLOCKING) == 0;
}

/* A stream that waits for an event of a capture joins it; all other mixtures are forbidden. */
CUresult fk_capture_wait(const fk_guard *g, fk_stream *s, fk_event *e)
{
    fk_graph *const of_event = e->capture != NULL && e->capture->capturing ? e->capture : NULL;
    if (of_event == NULL && s->capture == NULL) return CUDA_SUCCESS; /* neither: no capture's business */
    if (of_event == NULL)
        return fk_capture_break(g, s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                                "the stream is capturing, the event was not recorded in the capture");
    if (s->capture != NULL && s->capture != of_event) {
        of_event->broken = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        return fk_capture_break(g, s->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures would become one");
    }
    if (s->capture == NULL && s->hidden)
        return fk_capture_break(g, of_event, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                                "the legacy stream cannot join a capture");
    if (s->capture == NULL) join_capture(s, of_event, of_event->n_lanes++);
    if (of_event->broken != CUDA_SUCCESS) return of_event->broken;
    return fk_links_join(&s->before, &e->before) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

FK_EXPORT CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    fk_stream *const s = fk_stream_of(&guard, handle, &code);
    if (s == NULL) return code;
    if (s->hidden)
        return fk_misuse(&guard, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy stream cannot be captured");
    if (s->capture != NULL || n_capturing == FK_IDS)
        return fk_misuse(&guard, CUDA_ERROR_ILLEGAL_STATE, "the stream is capturing already");
    fk_graph *const g = fk_new(FK_GRAPH, sizeof *g, s->o.device);
    if (g == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    g->capturing = true;
    g->origin = s;
    g->mode = mode;
    g->n_lanes = 1;
    g->thread = (unsigned long)pthread_self();
    capturing[n_capturing++] = g;
    join_capture(s, g, 0);
    return CUDA_SUCCESS;
}

/* Does all that was captured come before the end of the origin? */
static CUresult check_joined(const fk_guard *guard, const fk_graph *g)
{
    bool *const before = calloc((size_t)g->n_nodes + 1, sizeof *before);
    CUresult code = before != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; before != NULL && i < g->origin->before.n; i++) before[g->origin->before.node[i]] = true;
    for (int n = g->n_nodes - 1; before != NULL && n >= 0; n--) {
        if (!before[n])
            code = fk_misuse(guard, CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                             "%s, on another stream, comes before nothing that the captured stream waits for",
                             g->node[n].task->name);
        if (!before[n]) break;
        for (int i = 0; i < g->node[n].before.n; i++) before[g->node[n].before.node[i]] = true;
    }
    free(before);
    return code;
}

static void leave_capture(fk_graph *g)
{
    int at = 0;
    g->capturing = false;
    for (fk_object *o = fk_objects(); o != NULL; o = o->next) {
        fk_stream *const s = (fk_stream *)(void *)o;
        if (o->kind == FK_STREAM && s->capture == g) s->capture = NULL;
    }
    while (capturing[at] != g) at++;
    capturing[at] = capturing[--n_capturing];
}

FK_EXPORT CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    FK_ENTER(FK_CONTEXT | FK_RELEASE);
    CUresult code;
    fk_stream *const s = fk_object_of(&guard, handle, FK_STREAM, &code);
    if (s == NULL) return code;
    if (out == NULL || s->capture == NULL)
        return fk_misuse(&guard, CUDA_ERROR_ILLEGAL_STATE, "the stream is not capturing");
    fk_graph *const g = s->capture;
    *out = NULL;
    if (g->origin != s)
        return fk_misuse(&guard, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began on another stream");
    if (g->mode != CU_STREAM_CAPTURE_MODE_RELAXED && g->thread != (unsigned long)pthread_self())
        return fk_misuse(&guard, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture began in another thread");
    code = g->broken != CUDA_SUCCESS ? g->broken : check_joined(&guard, g);
    leave_capture(g);
    code = fk_result(&guard, code);
    if (code != CUDA_SUCCESS) fk_graph_end(g);
    else *out = (CUgraph)(void *)g;
    return code;
}

FK_EXPORT CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    const fk_stream *const s = fk_stream_of(&guard, handle, &code);
    if (s == NULL) return code;
    if (status == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no place for the answer");
    *status = s->capture == NULL                    ? CU_STREAM_CAPTURE_STATUS_NONE
              : s->capture->broken != CUDA_SUCCESS ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}
