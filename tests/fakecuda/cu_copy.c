/* cu_copy.c: copies and fills. The bytes of a copy that runs later must not be touched by the host until then: sources
 * are hashed when the copy is queued and when it runs, destinations are filled with 0xFF in between, so who reads too
 * early sees NaN. Pageable memory is copied at once, or waited for, as CUDA does. See cu.h. */
#include "cu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum copy_kind { UP, DOWN, ACROSS, PEER } copy_kind;
typedef struct copy {
    struct copy *next;
    copy_kind kind;
    const char *name;
    uint64_t to, from;  /* addresses of device or pinned memory */
    void *host;         /* pageable: the destination, or a copy of the source, which is owned */
    fk_alloc *pinned;   /* the host side, where it is pinned */
    size_t bytes;
    int queued;         /* launches of it that have not run */
    bool filled;        /* the destination, when it was queued */
    uint64_t hash, version; /* of the source, when it was queued */
} copy;
static const char *const names[] = { "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",
                                     "cuMemcpyPeerAsync" };
static copy *copies; /* all tasks, to know whom a fill would disturb */

/* ---- what the host must not touch -------------------------------------------------------------------------------- */

static uint64_t hash_of(const unsigned char *at, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ n, word;
    for (; n >= 8; n -= 8, at += 8) {
        memcpy(&word, at, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    for (; n > 0; n--) h = (h ^ *at++) * 0x100000001b3u;
    return h;
}

static bool is_read_by_another(const copy *me)
{
    for (const copy *c = copies; c != NULL; c = c->next)
        if (c != me && c->kind == UP && c->queued > 0 && c->pinned != NULL && c->from < me->to + me->bytes &&
            me->to < c->from + c->bytes)
            return true;
    return false;
}

static unsigned char *pinned_at(const copy *c, uint64_t address)
{
    return c->pinned->host + (address - c->pinned->lo);
}

static void copy_start(void *data)
{
    copy *const c = data;
    c->queued++;
    if (c->pinned == NULL || !c->pinned->live) return;
    if (c->kind == UP) {
        c->hash = hash_of(pinned_at(c, c->from), c->bytes);
        c->version = c->pinned->version;
    } else if (c->kind == DOWN && !is_read_by_another(c)) {
        memset(pinned_at(c, c->to), 0xff, c->bytes);
        c->filled = true;
        c->version = c->pinned->version;
    }
}

static void check_source(const copy *c, const fk_op *op)
{
    if (c->version != c->pinned->version || hash_of(pinned_at(c, c->from), c->bytes) == c->hash) return;
    fk_report(
        "%s (stream %d, operation %u): the host changed the %zu bytes at %p of the source before they were copied",
        c->name, op->id, op->clock.seq[op->id], c->bytes, (void *)pinned_at(c, c->from));
}

static void check_destination(copy *c, const fk_op *op)
{
    const unsigned char *const at = pinned_at(c, c->to);
    const bool same = !c->filled || c->version != c->pinned->version ||
                      (at[0] == 0xff && memcmp(at, at + 1, c->bytes - 1) == 0);
    c->filled = false;
    if (!same)
        fk_report("%s (stream %d, operation %u): the host wrote into the %zu bytes at %p of the destination before the "
                  "copy was done", c->name, op->id, op->clock.seq[op->id], c->bytes, (const void *)at);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static CUresult copy_run(const fk_op *op, void *data)
{
    copy *const c = data;
    c->queued--;
    if (c->pinned != NULL && c->pinned->live && c->kind == UP) check_source(c, op);
    if (c->pinned != NULL && c->pinned->live && c->kind == DOWN) check_destination(c, op);
    const void *const from = c->kind == UP && c->pinned == NULL ? c->host
                                                                : fk_reach(c->from, c->bytes, PTX_READ, op, c->name);
    void *const to = c->kind == DOWN && c->pinned == NULL ? c->host : fk_reach(c->to, c->bytes, PTX_WRITE, op, c->name);
    if (from == NULL || to == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
    memmove(to, from, c->bytes);
    return CUDA_SUCCESS;
}

/* Needs no peer access: without it the bytes go through the host. */
static CUresult peer_run(const fk_op *op, void *data)
{
    copy *const c = data;
    fk_alloc *const from = fk_find_live(c->from, c->bytes), *const to = fk_find_live(c->to, c->bytes);
    c->queued--;
    if (from == NULL || to == NULL) {
        fk_report("%s: source or destination was freed", c->name);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    fk_touch(from, c->from, c->bytes, PTX_READ, op, c->name);
    fk_touch(to, c->to, c->bytes, PTX_WRITE, op, c->name);
    memcpy(to->host + (c->to - to->lo), from->host + (c->from - from->lo), c->bytes);
    return CUDA_SUCCESS;
}

static void copy_done(void *data)
{
    copy *const c = data;
    copy **p = &copies;
    while (*p != c) p = &(*p)->next;
    *p = c->next;
    if (c->kind == UP) free(c->host);
    free(c);
}

static CUresult submit_copy(const fk_guard *g, fk_stream *s, const copy *like)
{
    copy *const c = malloc(sizeof *c);
    if (c == NULL) {
        if (like->kind == UP) free(like->host);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *c = *like;
    c->name = names[c->kind];
    c->next = copies;
    copies = c;
    fk_task *const t = fk_task_new(c->name, c->kind == PEER ? peer_run : copy_run, copy_done, c);
    if (t != NULL) t->start = copy_start;
    return fk_submit(g, s, t);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static CUresult check_range(const fk_guard *g, const char *what, uint64_t address, size_t bytes)
{
    char why[200];
    const fk_alloc *const a = fk_find_live(address, bytes);
    if (a != NULL) return CUDA_SUCCESS;
    fk_explain(address, bytes, why, sizeof why);
    return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s: %s", what, why);
}

/* The pinned allocation of a host range, NULL for pageable memory. */
static CUresult check_host(const fk_guard *g, const void *host, size_t bytes, fk_alloc **pinned)
{
    const uint64_t address = (uint64_t)(uintptr_t)host;
    const fk_alloc *const a = fk_find(address);
    if (host == NULL) return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "host: NULL");
    *pinned = fk_find_live(address, bytes);
    return a != NULL && *pinned == NULL ? check_range(g, "host", address, bytes) : CUDA_SUCCESS;
}

static CUresult no_pageable(const fk_guard *g, const fk_stream *s)
{
    if (s->capture == NULL) return CUDA_SUCCESS;
    return fk_capture_break(g, s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                            "a copy of pageable memory within a capture");
}

/* ---- CUDA's functions -------------------------------------------------------------------------------------------- */

FK_EXPORT CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *host, size_t bytes, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    copy c = { .kind = UP, .to = to, .from = (uint64_t)(uintptr_t)host, .bytes = bytes };
    fk_stream *const s = fk_stream_of(&guard, stream, &code);
    if (s == NULL || bytes == 0) return code;
    code = check_range(&guard, "destination", to, bytes);
    if (code == CUDA_SUCCESS) code = check_host(&guard, host, bytes, &c.pinned);
    if (code == CUDA_SUCCESS && c.pinned == NULL) code = no_pageable(&guard, s);
    if (code != CUDA_SUCCESS) return code;
    if (c.pinned == NULL) {
        c.host = malloc(bytes);
        if (c.host == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(c.host, host, bytes);
    }
    return submit_copy(&guard, s, &c);
}

FK_EXPORT CUresult CUDAAPI cuMemcpyDtoHAsync(void *host, CUdeviceptr from, size_t bytes, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    copy c = { .kind = DOWN, .to = (uint64_t)(uintptr_t)host, .from = from, .host = host, .bytes = bytes };
    fk_stream *const s = fk_stream_of(&guard, stream, &code);
    if (s == NULL || bytes == 0) return code;
    code = check_range(&guard, "source", from, bytes);
    if (code == CUDA_SUCCESS) code = check_host(&guard, host, bytes, &c.pinned);
    if (code == CUDA_SUCCESS && c.pinned == NULL) code = no_pageable(&guard, s);
    if (code == CUDA_SUCCESS) code = submit_copy(&guard, s, &c);
    if (code != CUDA_SUCCESS || c.pinned != NULL) return code;
    fk_wait(&s->clock);
    return fk_sticky;
}

static CUresult across(const fk_guard *g, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUresult code;
    const copy c = { .kind = ACROSS, .to = to, .from = from, .bytes = bytes };
    fk_stream *const s = fk_stream_of(g, stream, &code);
    if (s == NULL || bytes == 0) return code;
    code = check_range(g, "destination", to, bytes);
    if (code == CUDA_SUCCESS) code = check_range(g, "source", from, bytes);
    if (code == CUDA_SUCCESS && to < from + bytes && from < to + bytes)
        code = fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "source and destination overlap");
    return code == CUDA_SUCCESS ? submit_copy(g, s, &c) : code;
}

FK_EXPORT CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    return across(&guard, to, from, bytes, stream);
}

/* ---- fills ------------------------------------------------------------------------------------------------------- */

typedef struct fill { const char *name; uint64_t to; size_t n; int width; uint32_t value; bool poison; } fill;

static CUresult fill_run(const fk_op *op, void *data)
{
    const fill *const f = data;
    const size_t bytes = f->n * (size_t)f->width;
    unsigned char *const at = fk_reach(f->to, bytes, PTX_WRITE, op, f->name);
    if (at == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (size_t i = 0; i < f->n; i++)
        memcpy(at + i * (size_t)f->width, &f->value, (size_t)f->width); /* little-endian */
    if (f->poison) fk_touch_poison(fk_find_live(f->to, bytes), f->to, bytes);
    return CUDA_SUCCESS;
}

static CUresult submit_fill(const fk_guard *g, const fill *like, CUstream stream)
{
    CUresult code;
    fk_stream *const s = fk_stream_of(g, stream, &code);
    if (s == NULL || like->n == 0) return code;
    if (like->to % (uint64_t)like->width != 0)
        return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "0x%llx is not aligned", (unsigned long long)like->to);
    code = check_range(g, "destination", like->to, like->n * (size_t)like->width);
    if (code != CUDA_SUCCESS) return code;
    fill *const f = malloc(sizeof *f);
    if (f != NULL) *f = *like;
    return fk_submit(g, s, fk_task_new(like->name, fill_run, free, f));
}

FK_EXPORT CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    const bool poison = fk_set.poison && value == 0xff;
    return submit_fill(&guard, &(fill){ "cuMemsetD8Async", to, n, 1, value, poison }, stream);
}

FK_EXPORT CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    return submit_fill(&guard, &(fill){ "cuMemsetD16Async", to, n, 2, value, false }, stream);
}

FK_EXPORT CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    const bool poison = fk_set.poison && value == 0xffffffff;
    return submit_fill(&guard, &(fill){ "cuMemsetD32Async", to, n, 4, value, poison }, stream);
}

FK_EXPORT int fk_poison_async(void *stream, uint64_t address, size_t bytes)
{
    fk_guard guard __attribute__((cleanup(fk_leave))) = fk_enter("fk_poison_async", FK_CONTEXT);
    if (guard.code != CUDA_SUCCESS) return (int)guard.code;
    return (int)submit_fill(&guard, &(fill){ "fk_poison_async", address, bytes, 1, 0xff, true }, stream);
}

/* ---- between devices --------------------------------------------------------------------------------------------- */

static CUresult check_owner(const fk_guard *g, const char *what, uint64_t address, CUcontext context)
{
    CUresult code;
    const fk_context *const c = fk_object_of(g, context, FK_CTX, &code);
    const fk_alloc *const a = fk_find(address);
    if (c == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (a == NULL || a->device == c->o.device) return CUDA_SUCCESS;
    return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s is memory of device %d, its context of device %d", what,
                     a->device, c->o.device);
}

FK_EXPORT CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                             CUcontext from_context, size_t bytes, CUstream stream)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code = check_owner(&guard, "the destination", to, to_context);
    if (code == CUDA_SUCCESS) code = check_owner(&guard, "the source", from, from_context);
    fk_stream *const s = code == CUDA_SUCCESS ? fk_stream_of(&guard, stream, &code) : NULL;
    if (s == NULL || bytes == 0) return code;
    code = check_range(&guard, "destination", to, bytes);
    if (code == CUDA_SUCCESS) code = check_range(&guard, "source", from, bytes);
    if (code != CUDA_SUCCESS) return code;
    return submit_copy(&guard, s, &(copy){ .kind = PEER, .to = to, .from = from, .bytes = bytes });
}
