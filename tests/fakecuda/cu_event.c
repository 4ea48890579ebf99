/* cu_event.c: events: a copy of a stream's clock, and the time at which the stream got there. See cu.h. */
#include "cu.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* What is queued to note the time; the event may be recorded anew before it runs. */
typedef struct record { fk_event *event; uint64_t recorded; } record;

static CUresult record_run(const fk_op *op, void *data)
{
    const record *const r = data;
    struct timespec now;
    (void)op;
    if (r->event->recorded != r->recorded) return CUDA_SUCCESS;
    clock_gettime(CLOCK_MONOTONIC, &now);
    r->event->time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    return CUDA_SUCCESS;
}

static fk_event *event_of(const fk_guard *g, CUevent handle, CUresult *code)
{
    fk_event *const e = fk_object_of(g, handle, FK_EVENT, code);
    if (e == NULL || e->capture == NULL) return e;
    *code = fk_capture_break(g, e->capture, CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture");
    return NULL;
}

FK_EXPORT CUresult CUDAAPI cuEventCreate(CUevent *out, unsigned int flags)
{
    FK_ENTER(FK_CONTEXT);
    if (out == NULL || flags > 7 || flags == CU_EVENT_INTERPROCESS)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
    fk_event *const e = fk_new(FK_EVENT, sizeof *e, fk_current->o.device);
    if (e == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    e->flags = flags;
    e->time = NAN;
    *out = (CUevent)(void *)e;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuEventDestroy(CUevent handle)
{
    FK_ENTER(FK_CONTEXT | FK_RELEASE);
    CUresult code;
    fk_event *const e = fk_object_of(&guard, handle, FK_EVENT, &code);
    if (e == NULL) return code;
    fk_links_free(&e->before);
    fk_end(e);
    return fk_result(&guard, CUDA_SUCCESS);
}

FK_EXPORT CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    fk_event *const e = fk_object_of(&guard, handle, FK_EVENT, &code);
    fk_stream *const s = e != NULL ? fk_stream_of(&guard, stream, &code) : NULL;
    if (s == NULL) return code;
    if (s->o.device != e->o.device)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_HANDLE, "the event belongs to device %d, the stream to device %d",
                         e->o.device, s->o.device);
    e->before.n = 0;
    e->capture = s->capture;
    e->recorded++;
    e->time = NAN;
    if (s->capture != NULL)
        return fk_links_join(&e->before, &s->before) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    record *const r = malloc(sizeof *r);
    if (r != NULL) *r = (record){ e, e->recorded };
    code = fk_submit(&guard, s, fk_task_new("cuEventRecord", record_run, free, r));
    if (code == CUDA_SUCCESS) e->clock = s->clock;
    return code;
}

FK_EXPORT CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned int flags)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    fk_event *const e = fk_object_of(&guard, handle, FK_EVENT, &code);
    fk_stream *const s = e != NULL ? fk_stream_of(&guard, stream, &code) : NULL;
    if (s == NULL) return code;
    if (flags != 0) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "flags must be 0");
    if (s->capture != NULL || (e->capture != NULL && e->capture->capturing)) return fk_capture_wait(&guard, s, e);
    if (e->capture != NULL)
        return fk_misuse(&guard, CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture, now ended");
    fk_join(&s->clock, &e->clock); /* a wait for an event that was never recorded is none */
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    CUresult code;
    const fk_event *const e = event_of(&guard, handle, &code);
    if (e == NULL) return code;
    fk_wait(&e->clock);
    return fk_sticky;
}

FK_EXPORT CUresult CUDAAPI cuEventQuery(CUevent handle)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    CUresult code;
    const fk_event *const e = event_of(&guard, handle, &code);
    if (e == NULL) return code;
    if (!fk_before(&e->clock, &fk_done)) fk_step();
    if (fk_sticky != CUDA_SUCCESS) return fk_sticky;
    if (!fk_before(&e->clock, &fk_done)) return CUDA_ERROR_NOT_READY;
    fk_join(&fk_host, &e->clock);
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    const fk_event *const a = event_of(&guard, start, &code);
    const fk_event *const b = a != NULL ? event_of(&guard, end, &code) : NULL;
    if (b == NULL) return code;
    if (ms == NULL || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_HANDLE, "an event was made without timing");
    if (a->recorded == 0 || b->recorded == 0)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_HANDLE, "an event was never recorded");
    if (isnan(a->time) || isnan(b->time)) return CUDA_ERROR_NOT_READY;
    *ms = (float)(1e3 * (b->time - a->time));
    return CUDA_SUCCESS;
}

#undef cuEventElapsedTime /* before CUDA 13 it had no _v2 */
FK_EXPORT CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end);
FK_EXPORT CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(ms, start, end);
}
