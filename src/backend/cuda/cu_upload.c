/* cu_upload.c: uploads that nobody waits for. The bytes are copied into pinned memory, and the caller goes on.
 * Little (labels, the learning rate) is sent from there in the stream of the work. What is large is sent by the copy
 * stream, while the step before still runs, to staging memory on the device; the work's stream waits for that and copies
 * it to its place, which thus may be a fixed input slot that the step before still reads. Two pieces take turns, so
 * that one travels while the next is filled. Called by cu.c. */
#include "backend/cuda/cu.h"

#define PART ((size_t)256 << 10) /* of the ring */
#define LARGE ((size_t)32 << 20) /* what is larger goes in pieces */

#define CALL(F, ...) SW_CU_TRY(c, F, __VA_ARGS__)

static sw_status make_event(sw__cu *c, sw__cu_event *event)
{
    if (*event == NULL) CALL(cuEventCreate, event, SW_CU_EVENT_DISABLE_TIMING);
    return SW_OK;
}

static sw_status make_pinned(sw__cu *c, void **host, size_t bytes)
{
    const sw__cu_result code = c->api->cuMemAllocHost_v2(host, bytes);
    if (code == SW_CU_OK) return SW_OK;
    *host = NULL;
    return sw__prefix(sw__cu_fail(c, code, "cuMemAllocHost"), "%zu bytes of pinned memory", bytes);
}

/* ---- little: a ring of pinned memory, whose parts are waited for when their turn comes again ---------------------- */

static sw_status leave_part(sw__cu *c, sw__cu_ring *r)
{
    SW_TRY(make_event(c, &r->left[r->part]));
    CALL(cuEventRecord, r->left[r->part], c->stream);
    r->busy[r->part] = true;
    r->part = (r->part + 1) % SW_CU_RING_PARTS;
    r->used = 0;
    return SW_OK;
}

sw_status sw__cu_small(sw__cu *c, size_t bytes, void **host)
{
    sw__cu_ring *const r = &c->ring;
    const size_t room = (bytes + 63) & ~(size_t)63;
    if (r->host == NULL) {
        void *memory = NULL;
        SW_TRY(make_pinned(c, &memory, PART * SW_CU_RING_PARTS));
        r->host = memory;
    }
    if (r->used + room > PART) SW_TRY(leave_part(c, r));
    if (r->busy[r->part]) SW_TRY(sw__cu_wait(c, r->left[r->part]));
    r->busy[r->part] = false;
    *host = r->host + (size_t)r->part * PART + r->used;
    r->used += room;
    return SW_OK;
}

static sw_status send_small(sw__cu *c, sw__cu_address to, const void *src, size_t bytes)
{
    void *host = NULL;
    SW_TRY(sw__cu_small(c, bytes, &host));
    memcpy(host, src, bytes); // NOLINT(clang-analyzer-core.NonNullParamChecker): made, or an error above
    CALL(cuMemcpyHtoDAsync_v2, to, host, bytes, c->stream);
    return SW_OK;
}

/* ---- much: two slots take turns ----------------------------------------------------------------------------------- */

/* Until what was sent from it last has been read. */
static sw_status wait_for(sw__cu *c, sw__cu_slot *s)
{
    if (s->busy) SW_TRY(sw__cu_wait(c, s->sent));
    s->busy = false;
    return SW_OK;
}

/* Frees the memory, not the events. Its transfers are over, or nothing works any more. */
static void drop_memory(const sw__cu *c, sw__cu_slot *s)
{
    if (s->host != NULL) (void)c->api->cuMemFreeHost(s->host);
    if (s->device != 0) (void)c->api->cuMemFree_v2(s->device);
    s->host = NULL;
    s->device = 0;
    s->bytes = 0;
}

/* Pinned memory and, where the device has room, staging memory of the same size. */
static sw_status make_large(sw__cu *c, sw__cu_slot *s, size_t bytes)
{
    size_t room = SW_CU_SMALL;
    while (room < bytes) room *= 2;
    if (s->taken != NULL) SW_TRY(sw__cu_wait(c, NULL)); /* its memory may still be read */
    drop_memory(c, s);
    SW_TRY(make_event(c, &s->sent));
    SW_TRY(make_event(c, &s->taken));
    SW_TRY(make_pinned(c, &s->host, room));
    s->bytes = room;
    const sw__cu_result code = c->api->cuMemAlloc_v2(&s->device, room);
    if (code == SW_CU_OK) return SW_OK;
    s->device = 0;
    if (code != SW_CU_OUT_OF_MEMORY) return sw__cu_fail(c, code, "cuMemAlloc");
    sw__log(SW_LOG_WARN, "cuda: no room for %zu KiB of staging memory: inputs travel between steps, not during them",
            room >> 10);
    return SW_OK;
}

/* Straight to its place, after the work that was launched before. */
static sw_status send_direct(sw__cu *c, sw__cu_slot *s, sw__cu_address to, size_t bytes)
{
    c->direct++;
    CALL(cuMemcpyHtoDAsync_v2, to, s->host, bytes, c->stream);
    CALL(cuEventRecord, s->sent, c->stream);
    return SW_OK;
}

static sw_status send_beside(sw__cu *c, sw__cu_slot *s, sw__cu_address to, size_t bytes)
{
    CALL(cuStreamWaitEvent, c->copy, s->taken, 0); /* one that was never recorded holds nobody up */
    CALL(cuMemcpyHtoDAsync_v2, s->device, s->host, bytes, c->copy);
    CALL(cuEventRecord, s->sent, c->copy);
    CALL(cuStreamWaitEvent, c->stream, s->sent, 0);
    CALL(cuMemcpyDtoDAsync_v2, to, s->device, bytes, c->stream);
    CALL(cuEventRecord, s->taken, c->stream);
    return SW_OK;
}

/* After a failure in the middle nobody knows which event stands for what: all is waited for, the work first, as the copies
 * wait for it; its ranks may be lost. */
static sw_status send_large(sw__cu *c, sw__cu_address to, const void *src, size_t bytes)
{
    sw__cu_slot *const s = &c->slot[c->turn++ % SW_CU_SLOTS];
    SW_TRY(wait_for(c, s));
    if (s->bytes < bytes) SW_TRY(make_large(c, s, bytes));
    memcpy(s->host, src, bytes);
    const sw_status st = s->device != 0 ? send_beside(c, s, to, bytes) : send_direct(c, s, to, bytes);
    s->busy = st == SW_OK;
    if (s->busy) return SW_OK;
    sw__cu_settle(c);
    (void)c->api->cuStreamSynchronize(c->copy);
    return st;
}

sw_status sw__cu_upload(sw__cu *c, sw__cu_address to, const void *src, size_t bytes)
{
    if (bytes == 0) return SW_OK;
    if (bytes <= SW_CU_SMALL) return send_small(c, to, src, bytes);
    for (size_t at = 0; at < bytes; at += LARGE)
        SW_TRY(send_large(c, to + at, (const char *)src + at, SW_MIN(bytes - at, LARGE)));
    return SW_OK;
}

/* Both streams are idle. */
void sw__cu_upload_end(sw__cu *c)
{
    if (c->ring.host != NULL) (void)c->api->cuMemFreeHost(c->ring.host);
    for (int i = 0; i < SW_CU_RING_PARTS; i++)
        if (c->ring.left[i] != NULL) (void)c->api->cuEventDestroy_v2(c->ring.left[i]);
    c->ring = (sw__cu_ring){0};
    for (int i = 0; i < SW_CU_SLOTS; i++) {
        sw__cu_slot *const s = &c->slot[i];
        drop_memory(c, s);
        if (s->sent != NULL) (void)c->api->cuEventDestroy_v2(s->sent);
        if (s->taken != NULL) (void)c->api->cuEventDestroy_v2(s->taken);
        *s = (sw__cu_slot){0};
    }
}
