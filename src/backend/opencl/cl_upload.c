/* cl_upload.c: uploads that nobody waits for: the bytes are copied into pinned memory, the transfer from there goes into
 * the queue, and the caller goes on. A few pieces of pinned memory take turns; one is waited for only when its turn comes
 * again. Called by cl.c. */
#include "backend/opencl/cl.h"

/* Beyond this a piece of its own is not worth its memory: the transfer is waited for. */
#define LARGEST ((size_t)64 << 20)

static sw_status wait_for(const sw__cl *c, sw__cl_pinned *p)
{
    if (p->sent == NULL) return SW_OK;
    const cl_int code = c->api->clWaitForEvents(1, &p->sent);
    (void)c->api->clReleaseEvent(p->sent);
    p->sent = NULL;
    return code == CL_SUCCESS ? SW_OK : sw__cl_fail(code, "clWaitForEvents");
}

/* A transfer that is still under way comes before the unmapping in the queue. */
static void unmap(const sw__cl *c, sw__cl_pinned *p)
{
    if (p->sent != NULL) (void)c->api->clReleaseEvent(p->sent);
    if (p->at != NULL) (void)c->api->clEnqueueUnmapMemObject(c->queue, p->memory, p->at, 0, NULL, NULL);
    p->sent = NULL;
    p->at = NULL;
    p->bytes = 0;
}

static void drop(const sw__cl *c, sw__cl_pinned *p)
{
    unmap(c, p);
    if (p->memory != NULL) (void)c->api->clReleaseMemObject(p->memory);
    p->memory = NULL;
}

static sw_status make(const sw__cl *c, sw__cl_pinned *p, size_t bytes)
{
    const size_t room = (bytes + 4095) & ~(size_t)4095;
    cl_int code = CL_SUCCESS;
    drop(c, p);
    p->memory = c->api->clCreateBuffer(c->context, CL_MEM_READ_ONLY | CL_MEM_ALLOC_HOST_PTR, room, NULL, &code);
    if (p->memory == NULL) return sw__prefix(sw__cl_fail(code, "clCreateBuffer"), "%zu bytes of pinned memory", room);
    p->at = c->api->clEnqueueMapBuffer(c->queue, p->memory, CL_TRUE, CL_MAP_WRITE, 0, room, 0, NULL, NULL, &code);
    if (p->at == NULL) {
        const sw_status st = sw__cl_fail(code, "clEnqueueMapBuffer");
        drop(c, p);
        return sw__prefix(st, "%zu bytes of pinned memory", room);
    }
    p->bytes = room;
    return SW_OK;
}

sw_status sw__cl_upload(sw__cl *c, cl_mem buffer, size_t offset, const void *src, size_t bytes)
{
    if (bytes == 0) return SW_OK;
    if (bytes > LARGEST) {
        const cl_int code = c->api->clEnqueueWriteBuffer(c->queue, buffer, CL_TRUE, offset, bytes, src, 0, NULL, NULL);
        return code == CL_SUCCESS ? SW_OK : sw__cl_fail(code, "clEnqueueWriteBuffer");
    }
    sw__cl_pinned *const p = &c->pinned[c->turn++ % SW_COUNT(c->pinned)];
    SW_TRY(wait_for(c, p));
    if (p->at == NULL || p->bytes < bytes) SW_TRY(make(c, p, bytes));
    memcpy(p->at, src, bytes); // NOLINT(clang-analyzer-core.NonNullParamChecker): made, or an error above
    const cl_int code = c->api->clEnqueueWriteBuffer(c->queue, buffer, CL_FALSE, offset, bytes, p->at, 0, NULL, &p->sent);
    return code == CL_SUCCESS ? SW_OK : sw__cl_fail(code, "clEnqueueWriteBuffer");
}

/* A queue that is released does first what is in it, transfers from this memory too, also when unmapping has failed. */
void sw__cl_upload_end(sw__cl *c)
{
    for (size_t i = 0; i < SW_COUNT(c->pinned); i++) unmap(c, &c->pinned[i]);
    if (c->queue != NULL) (void)c->api->clReleaseCommandQueue(c->queue);
    c->queue = NULL;
    for (size_t i = 0; i < SW_COUNT(c->pinned); i++) drop(c, &c->pinned[i]);
}
