/* cu_stream.c: streams as queues of operations that nobody runs until somebody waits; then an operation is chosen at
 * random among those whose clock says that all before them are done. See cu.h. */
#include "cu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const fk_op *fk_running;
static fk_stream *streams; /* hidden and closing ones too */

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

fk_task *fk_task_new(const char *name, CUresult (*run)(const fk_op *op, void *data), void (*done)(void *data),
                     void *data)
{
    fk_task *const t = data != NULL ? calloc(1, sizeof *t) : NULL;
    if (t == NULL) {
        if (done != NULL && data != NULL) done(data);
        return NULL;
    }
    *t = (fk_task){ .refs = 1, .run = run, .done = done, .data = data };
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

void fk_task_release(fk_task *t)
{
    if (t == NULL || --t->refs > 0) return;
    if (t->done != NULL) t->done(t->data);
    free(t);
}

/* ---- making and ending ------------------------------------------------------------------------------------------- */

fk_stream *fk_stream_make(int device, unsigned flags, int priority, bool hidden)
{
    const int id = fk_id_new();
    fk_stream *const s = id > 0 ? fk_new(FK_STREAM, sizeof *s, device) : NULL;
    if (s == NULL) {
        if (id > 0) fk_id_free(id);
        return NULL;
    }
    s->id = id;
    s->flags = flags;
    s->priority = priority;
    s->hidden = hidden;
    s->clock.seq[id] = fk_done.seq[id]; /* of who had the id before */
    s->next_stream = streams;
    streams = s;
    return s;
}

static void end_if_empty(fk_stream *s)
{
    if (!s->closing || s->head != NULL) return;
    fk_stream **p = &streams;
    while (*p != s) p = &(*p)->next_stream;
    *p = s->next_stream;
    fk_id_free(s->id);
    fk_links_free(&s->before);
}

void fk_stream_close(fk_stream *s)
{
    if (!s->o.live) return;
    fk_end(s);
    s->closing = true;
    end_if_empty(s);
}

void fk_streams_end(int device)
{
    for (fk_stream *s = streams, *next; s != NULL; s = next) {
        next = s->next_stream;
        if (s->o.device == device && !s->closing) fk_stream_close(s);
    }
}

fk_stream *fk_stream_of(const fk_guard *g, CUstream handle, CUresult *code)
{
    *code = CUDA_SUCCESS;
    if (handle == NULL || handle == CU_STREAM_LEGACY) {
        fk_graph *const capture = fk_capture_forbids(true);
        if (capture == NULL) return fk_current->legacy;
        *code = fk_capture_break(g, capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                                 "the legacy stream waits for a stream that is capturing");
        return NULL;
    }
    fk_stream *const s = fk_object_of(g, handle, FK_STREAM, code);
    if (s == NULL || s->o.device == fk_current->o.device) return s;
    *code =
        fk_misuse(g, CUDA_ERROR_INVALID_HANDLE, "stream %llu belongs to device %d, the current context to device %d",
                  (unsigned long long)s->o.number, s->o.device, fk_current->o.device);
    return NULL;
}

/* ---- queues ------------------------------------------------------------------------------------------------------ */

static bool blocks(const fk_stream *s)
{
    return (s->flags & CU_STREAM_NON_BLOCKING) == 0 && !s->hidden;
}

/* The legacy stream and the blocking ones of a device wait for each other. */
static void join_legacy(fk_stream *s)
{
    for (const fk_stream *o = streams; o != NULL; o = o->next_stream) {
        if (o == s || o->o.device != s->o.device) continue;
        const bool is_legacy = (o->flags & CU_STREAM_NON_BLOCKING) == 0 && o->hidden;
        const bool am_legacy = (s->flags & CU_STREAM_NON_BLOCKING) == 0 && s->hidden;
        if ((am_legacy && blocks(o)) || (is_legacy && blocks(s))) fk_join(&s->clock, &o->clock);
    }
}

CUresult fk_queue(fk_stream *s, fk_task *t, const fk_clock *after)
{
    fk_op *const op = malloc(sizeof *op);
    if (op == NULL) {
        fk_task_release(t);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (s->clock.seq[s->id] >= fk_set.operations) {
        fk_wait_device(-1);
        fk_order_rebase();
        after = NULL; /* it is done */
    }
    fk_join(&s->clock, &fk_host);
    if (after != NULL) fk_join(&s->clock, after);
    join_legacy(s);
    s->clock.seq[s->id]++;
    *op = (fk_op){ .task = t, .clock = s->clock, .id = s->id, .device = s->o.device };
    fk_order_name(op);
    if (t->start != NULL) t->start(t->data);
    if (s->head == NULL) s->head = op;
    else s->tail->next = op;
    s->tail = op;
    return CUDA_SUCCESS;
}

CUresult fk_submit(const fk_guard *g, fk_stream *s, fk_task *t)
{
    (void)g;
    if (t == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    return s->capture != NULL ? fk_capture_add(s, t) : fk_queue(s, t, NULL);
}

static bool is_ready(const fk_op *op)
{
    if (op->task->ready == NULL || fk_sticky != CUDA_SUCCESS) return true;
    fk_running = op;
    const bool yes = op->task->ready(op->task->data);
    fk_running = NULL;
    return yes;
}

static void run_head(fk_stream *s)
{
    fk_op *const op = s->head;
    CUresult code = CUDA_SUCCESS;
    fk_running = op;
    if (fk_sticky == CUDA_SUCCESS) code = op->task->run(op, op->task->data);
    fk_running = NULL;
    if (code != CUDA_SUCCESS) fk_lose((int)code);
    fk_done.seq[op->id] = op->clock.seq[op->id];
    s->head = op->next;
    fk_task_release(op->task);
    free(op);
    end_if_empty(s);
}

/* 1: one ran; 0: all that may are waiting for somebody outside; -1: there is none. */
static int step(void)
{
    fk_stream *heads[FK_IDS];
    int n = 0, found = -1;
    for (fk_stream *s = streams; s != NULL; s = s->next_stream)
        if (s->head != NULL && fk_is_due(s->head)) heads[n++] = s;
    while (n > 0) {
        const int i = (int)fk_random_below((uint64_t)n);
        if (is_ready(heads[i]->head)) {
            run_head(heads[i]);
            return 1;
        }
        found = 0;
        heads[i] = heads[--n];
    }
    return found;
}

bool fk_step(void)
{
    return step() == 1;
}

static void run_until(const fk_clock *until)
{
    const uint64_t epoch = fk_epoch;
    while (!fk_before(until, &fk_done) && epoch == fk_epoch) { /* a new one begins when all is done */
        const int found = step();
        if (found == 0) fk_pause();
        if (found < 0) { /* a fault of the fake: nothing that was queued waits for what was not */
            fk_report("the double itself is stuck: nothing may run, and not all is done");
            fk_lose(CUDA_ERROR_UNKNOWN);
            return;
        }
    }
}

void fk_wait(const fk_clock *until)
{
    const fk_clock wanted = *until;
    const uint64_t epoch = fk_epoch;
    run_until(&wanted);
    if (epoch == fk_epoch) fk_join(&fk_host, &wanted);
}

void fk_stream_clock_device(int device, fk_clock *all)
{
    memset(all, 0, sizeof *all);
    for (const fk_stream *s = streams; s != NULL; s = s->next_stream)
        if (device < 0 || s->o.device == device) fk_join(all, &s->clock);
}

void fk_wait_device(int device)
{
    fk_clock all;
    fk_stream_clock_device(device, &all);
    run_until(&all);
}

/* ---- CUDA's functions -------------------------------------------------------------------------------------------- */

FK_EXPORT CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    FK_ENTER(FK_CONTEXT);
    if (out == NULL || flags > CU_STREAM_NON_BLOCKING)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
    fk_stream *const s = fk_stream_make(fk_current->o.device, flags, priority, false);
    if (s == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUstream)(void *)s;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuStreamCreate(CUstream *out, unsigned int flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}

FK_EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream handle)
{
    FK_ENTER(FK_CONTEXT | FK_RELEASE);
    CUresult code;
    fk_stream *const s = fk_object_of(&guard, handle, FK_STREAM, &code);
    if (s == NULL) return code;
    if (s->capture != NULL)
        fk_capture_break(&guard, s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is capturing");
    s->capture = NULL;
    fk_stream_close(s);
    return fk_result(&guard, CUDA_SUCCESS);
}

/* The stream of a call that waits: not one that captures. */
static CUresult waiting_stream(const fk_guard *g, CUstream handle, fk_stream **out)
{
    CUresult code;
    *out = fk_stream_of(g, handle, &code);
    if (*out == NULL || (*out)->capture == NULL) return code;
    return fk_capture_break(g, (*out)->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                            "forbidden for a stream that is capturing");
}

FK_EXPORT CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    fk_stream *s;
    const CUresult code = waiting_stream(&guard, handle, &s);
    if (code != CUDA_SUCCESS) return code;
    fk_wait(&s->clock);
    return fk_sticky;
}

FK_EXPORT CUresult CUDAAPI cuStreamQuery(CUstream handle)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    fk_stream *s;
    const CUresult code = waiting_stream(&guard, handle, &s);
    if (code != CUDA_SUCCESS) return code;
    if (!fk_before(&s->clock, &fk_done)) fk_step();
    if (fk_sticky != CUDA_SUCCESS) return fk_sticky;
    if (!fk_before(&s->clock, &fk_done)) return CUDA_ERROR_NOT_READY;
    fk_join(&fk_host, &s->clock);
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuCtxSynchronize(void)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    fk_clock all;
    fk_stream_clock_device(fk_current->o.device, &all);
    fk_wait(&all);
    return fk_sticky;
}

/* ---- work of the other fakes ------------------------------------------------------------------------------------- */

typedef struct work { bool (*ready)(void *); void (*run)(void *), (*done)(void *); void *data; } work;

static bool work_ready(void *data)
{
    const work *const w = data;
    return w->ready(w->data);
}

static CUresult work_run(const fk_op *op, void *data)
{
    const work *const w = data;
    (void)op;
    w->run(w->data);
    return fk_sticky;
}

static void work_done(void *data)
{
    work *const w = data;
    if (w->done != NULL) w->done(w->data);
    free(w);
}

static CUresult queue_work(void *stream, const char *name, const work *w)
{
    fk_guard guard __attribute__((cleanup(fk_leave))) = fk_enter(name, FK_CONTEXT);
    CUresult code = guard.code;
    fk_stream *const s = code == CUDA_SUCCESS ? fk_stream_of(&guard, stream, &code) : NULL;
    work *const copy = s != NULL ? malloc(sizeof *copy) : NULL;
    if (copy == NULL) {
        if (w->done != NULL) w->done(w->data);
        return s == NULL ? code : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *copy = *w;
    fk_task *const t = fk_task_new(name, work_run, work_done, copy);
    if (t != NULL && w->ready != NULL) t->ready = work_ready;
    return fk_submit(&guard, s, t);
}

FK_EXPORT int fk_work_when(void *stream, const char *name, bool (*ready)(void *data), void (*run)(void *data),
                           void (*done)(void *data), void *data)
{
    return (int)queue_work(stream, name, &(work){ .ready = ready, .run = run, .done = done, .data = data });
}

FK_EXPORT int fk_work(void *stream, const char *name, void (*run)(void *data), void (*done)(void *data), void *data)
{
    return fk_work_when(stream, name, NULL, run, done, data);
}
