/* cu_object.c: the handles that the fake libcuda gave out, so that a bad one is told apart from one that is gone; other
 * libraries' objects (fk_made); and the list of what nobody released. See cu.h. */
#include "cu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fk_kind_name[FK_KINDS] = {
    "context", "stream", "event", "module", "function", "graph", "graph exec"
};

enum { BUCKETS = 4096 };
static fk_object *buckets[BUCKETS], *objects;
static uint64_t made[FK_KINDS];

/* Objects of other libraries. */
typedef struct other { struct other *next; const void *object; char kind[40]; int device; bool told; } other;
static other *others;

static size_t bucket_of(const void *p)
{
    return (size_t)(((uintptr_t)p * 0x9e3779b97f4a7c15u) >> 52) % BUCKETS;
}

void *fk_new(fk_kind kind, size_t bytes, int device)
{
    fk_object *const o = calloc(1, bytes);
    if (o == NULL) return NULL;
    const size_t b = bucket_of(o);
    *o = (fk_object){ .next = objects, .bucket = buckets[b], .kind = kind, .live = true, .device = device,
                      .number = ++made[kind] };
    objects = buckets[b] = o;
    return o;
}

void fk_end(void *object)
{
    fk_object *const o = object;
    o->live = false;
}

fk_object *fk_objects(void)
{
    return objects;
}

void *fk_object_of(const fk_guard *g, const void *handle, fk_kind kind, CUresult *code)
{
    fk_object *o = buckets[bucket_of(handle)];
    while (o != NULL && o != handle) o = o->bucket;
    *code = CUDA_ERROR_INVALID_HANDLE;
    if (o == NULL) {
        fk_misuse(g, *code, "%p is no %s", handle, fk_kind_name[kind]);
        return NULL;
    }
    if (o->kind != kind) {
        fk_misuse(g, *code, "a %s is given where a %s is wanted", fk_kind_name[o->kind], fk_kind_name[kind]);
        return NULL;
    }
    if (!o->live) {
        fk_misuse(g, *code, "%s %llu was destroyed", fk_kind_name[kind], (unsigned long long)o->number);
        return NULL;
    }
    *code = CUDA_SUCCESS;
    return o;
}

/* ---- objects of other libraries ---------------------------------------------------------------------------------- */

FK_EXPORT void fk_made(const char *kind, const void *object)
{
    fk_lock();
    other *const o = calloc(1, sizeof *o);
    if (o == NULL) fk_report("no memory to note a %s", kind);
    else {
        *o = (other){ .next = others, .object = object, .device = fk_current != NULL ? fk_current->o.device : -1 };
        snprintf(o->kind, sizeof o->kind, "%s", kind);
        others = o;
    }
    fk_unlock();
}

FK_EXPORT bool fk_gone(const char *kind, const void *object)
{
    bool found = false;
    fk_lock();
    for (other **p = &others; *p != NULL && !found; p = &(*p)->next) {
        other *const o = *p;
        if (o->object != object || strcmp(o->kind, kind) != 0) continue;
        found = true;
        *p = o->next;
        free(o);
        break;
    }
    if (!found) fk_report("%p is no %s, or was destroyed", object, kind);
    fk_unlock();
    return found;
}

/* ---- what lives -------------------------------------------------------------------------------------------------- */

static bool is_counted(const fk_object *o)
{
    const fk_stream *const s = (const fk_stream *)(const void *)o;
    return o->live && o->kind != FK_FUNCTION && (o->kind != FK_STREAM || !s->hidden);
}

typedef struct tally { const char *kind; int device; long n; bool tell; } tally;

static void tally_memory(fk_alloc *a, void *data)
{
    tally *const t = data;
    const char *const kind = a->pinned ? "pinned" : "allocation";
    if (a->of_module || (t->device >= 0 && a->device != t->device)) return;
    if (t->kind != NULL && strcmp(t->kind, kind) != 0) return;
    t->n++;
    if (t->tell)
        fk_report("leak: %s %llu of %zu bytes at 0x%llx", a->pinned ? "pinned memory" : kind,
                  (unsigned long long)a->number, a->bytes, (unsigned long long)a->lo);
}

static long tally_all(tally *t)
{
    for (const fk_object *o = objects; o != NULL; o = o->next) {
        if (!is_counted(o) || (t->device >= 0 && (o->device != t->device || o->kind == FK_CTX))) continue;
        if (t->kind != NULL && strcmp(t->kind, fk_kind_name[o->kind]) != 0) continue;
        t->n++;
        if (t->tell) fk_report("leak: %s %llu", fk_kind_name[o->kind], (unsigned long long)o->number);
    }
    for (other *o = others; o != NULL; o = o->next) {
        if ((t->device >= 0 && o->device != t->device) || (t->tell && o->told)) continue;
        if (t->kind != NULL && strcmp(t->kind, o->kind) != 0) continue;
        t->n++;
        o->told |= t->tell; /* its context may end before the process does */
        if (t->tell) fk_report("leak: %s %p", o->kind, o->object);
    }
    fk_memory_each(tally_memory, t);
    return t->n;
}

FK_EXPORT long fk_live(const char *kind)
{
    tally t = { .kind = kind, .device = -1 };
    fk_lock();
    const long n = tally_all(&t);
    fk_unlock();
    return n;
}

long fk_leaks(int device)
{
    tally t = { .device = device, .tell = true };
    return tally_all(&t);
}
