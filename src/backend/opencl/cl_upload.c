/* cl_upload.c: uploads that nobody waits for: the bytes are copied into pinned memory, the transfer from there goes into
 * a queue, and the caller goes on. A few pieces of pinned memory take turns; one is waited for only when its turn comes
 * again. On devices with memory of their own an input is sent beside what runs: a second queue transfers it from pinned
 * into staging memory of the device, and the first copies it from there to its place, in order. Called by cl.c. */
#include "backend/opencl/cl.h"

#include <stdlib.h>

/* Beyond this a piece of its own is not worth its memory: the transfer is waited for. */
#define LARGEST ((size_t)64 << 20)
/* What goes beside the work goes in parts: staging memory is no part of any plan. */
#define PART ((size_t)32 << 20)
/* Up to this an upload has a piece of the small ones, and is not worth the work of two queues. */
#define SMALL ((size_t)16 << 10)

/* ---- pieces ------------------------------------------------------------------------------------------------------------- */

static sw_status wait_for(const sw__cl *c, sw__cl_piece *p)
{
    if (p->sent == NULL) return SW_OK;
    const cl_int code = c->api->clWaitForEvents(1, &p->sent);
    (void)c->api->clReleaseEvent(p->sent);
    p->sent = NULL;
    return code == CL_SUCCESS ? SW_OK : sw__prefix(sw__cl_fail(code, "clWaitForEvents"), "an upload");
}

/* A transfer that is still under way comes before the unmapping. */
static void unmap(const sw__cl *c, sw__cl_piece *p)
{
    const cl_uint n = p->sent != NULL ? 1 : 0;
    if (p->at != NULL) (void)c->api->clEnqueueUnmapMemObject(c->queue, p->pinned, p->at, n, n ? &p->sent : NULL, NULL);
    if (p->sent != NULL) (void)c->api->clReleaseEvent(p->sent);
    if (p->taken != NULL) (void)c->api->clReleaseEvent(p->taken);
    p->sent = p->taken = NULL;
    p->at = NULL;
    p->bytes = 0;
}

/* What a queue still does with the memory it does: it is gone only afterwards. */
static void drop(const sw__cl *c, sw__cl_piece *p)
{
    unmap(c, p);
    if (p->pinned != NULL) (void)c->api->clReleaseMemObject(p->pinned);
    if (p->staged != NULL) (void)c->api->clReleaseMemObject(p->staged);
    p->pinned = p->staged = NULL;
}

static sw_status make(const sw__cl *c, sw__cl_piece *p, size_t bytes)
{
    const size_t room = (bytes + 4095) & ~(size_t)4095;
    cl_int code = CL_SUCCESS;
    drop(c, p);
    p->pinned = c->api->clCreateBuffer(c->context, CL_MEM_READ_ONLY | CL_MEM_ALLOC_HOST_PTR, room, NULL, &code);
    if (p->pinned == NULL) return sw__prefix(sw__cl_fail(code, "clCreateBuffer"), "%zu bytes of pinned memory", room);
    p->at = c->api->clEnqueueMapBuffer(c->queue, p->pinned, CL_TRUE, CL_MAP_WRITE, 0, room, 0, NULL, NULL, &code);
    if (p->at == NULL) {
        const sw_status st = sw__cl_fail(code, "clEnqueueMapBuffer");
        drop(c, p);
        return sw__prefix(st, "%zu bytes of pinned memory", room);
    }
    p->bytes = room;
    return SW_OK;
}

/* The next piece, with room and without a transfer that still reads it. */
static sw_status take_turn(sw__cl *c, size_t bytes, sw__cl_piece **out)
{
    sw__cl_piece *const p = bytes > SMALL ? &c->large[c->large_turn++ % SW_COUNT(c->large)]
                                          : &c->small[c->small_turn++ % SW_COUNT(c->small)];
    SW_TRY(wait_for(c, p));
    if (p->at == NULL || p->bytes < bytes) SW_TRY(make(c, p, bytes));
    *out = p;
    return SW_OK;
}

/* ---- beside what runs --------------------------------------------------------------------------------------------------- */

bool sw__cl_wants_copy_queue(const sw__cl_entry *e, bool *always)
{
    const char *const wish = getenv("SWOOP_OPENCL_COPY_QUEUE"); /* 0: none; 1: on any device, for inputs of any size */
    *always = wish != NULL && *wish == '1';
    if (wish != NULL && *wish != '\0') return *always;
    return !e->unified && (e->type & CL_DEVICE_TYPE_CPU) == 0;
}

/* Filled, as many drivers allocate at the first use. */
static cl_int make_stage(const sw__cl *c, sw__cl_piece *p)
{
    const cl_uint zero = 0;
    cl_int code = CL_SUCCESS;
    p->staged = c->api->clCreateBuffer(c->context, CL_MEM_READ_WRITE, p->bytes, NULL, &code);
    if (p->staged == NULL) return code;
    code = c->api->clEnqueueFillBuffer(c->copies, p->staged, &zero, sizeof zero, 0, p->bytes, 0, NULL, NULL);
    if (code == CL_SUCCESS) return code;
    (void)c->api->clReleaseMemObject(p->staged);
    p->staged = NULL;
    return code;
}

/* Is there staging memory for a piece, or can it be had? It is no part of a program's plan: without it an upload is only
 * slower, which is said once and counted. */
static bool has_stage(sw__cl *c, sw__cl_piece *p)
{
    if (p->staged != NULL) return true;
    const cl_int code = p->bytes <= c->entry->max_alloc ? make_stage(c, p) : CL_INVALID_BUFFER_SIZE;
    if (code == CL_SUCCESS) return true;
    if (c->not_beside++ == 0)
        sw__log(SW_LOG_WARN, "opencl: no %zu bytes to stage an upload in (%s): inputs wait for what runs", p->bytes,
                sw__cl_code(code));
    return false;
}

/* Staging memory is written again when the first queue has copied out of it, and copied out of when it is written: the
 * queues wait for each other, the host for neither. What one waits for must have been flushed in the other. */
static sw_status send_beside(sw__cl *c, sw__cl_piece *p, cl_mem buffer, size_t offset, size_t bytes)
{
    const cl_uint n = p->taken != NULL ? 1 : 0;
    cl_int code = n > 0 ? c->api->clFlush(c->queue) : CL_SUCCESS;
    if (code != CL_SUCCESS) return sw__cl_fail(code, "clFlush");
    code = c->api->clEnqueueWriteBuffer(c->copies, p->staged, CL_FALSE, 0, bytes, p->at, n, n > 0 ? &p->taken : NULL,
                                        &p->sent);
    if (code != CL_SUCCESS) return sw__cl_fail(code, "clEnqueueWriteBuffer");
    if (n > 0) (void)c->api->clReleaseEvent(p->taken);
    p->taken = NULL;
    code = c->api->clFlush(c->copies);
    if (code != CL_SUCCESS) return sw__cl_fail(code, "clFlush");
    code = c->api->clEnqueueCopyBuffer(c->queue, p->staged, buffer, 0, offset, bytes, 1, &p->sent, &p->taken);
    return code == CL_SUCCESS ? SW_OK : sw__cl_fail(code, "clEnqueueCopyBuffer");
}

/* ---- uploads ------------------------------------------------------------------------------------------------------------ */

static sw_status send_part(sw__cl *c, cl_mem buffer, size_t offset, const void *src, size_t bytes, bool beside)
{
    cl_int code;
    if (bytes > LARGEST) {
        code = c->api->clEnqueueWriteBuffer(c->queue, buffer, CL_TRUE, offset, bytes, src, 0, NULL, NULL);
        return code == CL_SUCCESS ? SW_OK : sw__cl_fail(code, "clEnqueueWriteBuffer");
    }
    sw__cl_piece *p = NULL;
    SW_TRY(take_turn(c, bytes, &p));
    memcpy(p->at, src, bytes);
    if (beside && has_stage(c, p)) return send_beside(c, p, buffer, offset, bytes);
    code = c->api->clEnqueueWriteBuffer(c->queue, buffer, CL_FALSE, offset, bytes, p->at, 0, NULL, &p->sent);
    return code == CL_SUCCESS ? SW_OK : sw__cl_fail(code, "clEnqueueWriteBuffer");
}

sw_status sw__cl_upload(sw__cl *c, cl_mem buffer, size_t offset, const void *src, size_t bytes, bool is_input)
{
    const bool beside = is_input && c->copies != NULL && (bytes > SMALL || c->always_beside);
    const size_t part = beside ? PART : bytes;
    for (size_t at = 0; at < bytes; at += part)
        SW_TRY(send_part(c, buffer, offset + at, (const char *)src + at, SW_MIN(bytes - at, part), beside));
    return SW_OK;
}

static sw_status check(const sw__cl *c, sw__cl_piece *list, size_t n)
{
    sw_status st = SW_OK;
    for (size_t i = 0; i < n; i++) {
        const sw_status mine = wait_for(c, &list[i]);
        if (mine != SW_OK) st = mine;
    }
    return st;
}

sw_status sw__cl_upload_check(sw__cl *c)
{
    const sw_status small = check(c, c->small, SW_COUNT(c->small)), large = check(c, c->large, SW_COUNT(c->large));
    return large != SW_OK ? large : small;
}

/* A queue that is released does first what is in it, transfers from this memory too, also when unmapping has failed. */
void sw__cl_upload_end(sw__cl *c)
{
    for (size_t i = 0; i < SW_COUNT(c->small); i++) unmap(c, &c->small[i]);
    for (size_t i = 0; i < SW_COUNT(c->large); i++) unmap(c, &c->large[i]);
    if (c->queue != NULL) (void)c->api->clReleaseCommandQueue(c->queue);
    if (c->copies != NULL) (void)c->api->clReleaseCommandQueue(c->copies);
    c->queue = c->copies = NULL;
    for (size_t i = 0; i < SW_COUNT(c->small); i++) drop(c, &c->small[i]);
    for (size_t i = 0; i < SW_COUNT(c->large); i++) drop(c, &c->large[i]);
}
