/* share.c: the arena of a program, which others may share: a training step and an evaluation never run together, and the
 * device then holds only the greater of their arenas. Under compile.c (open) and program.c (rebind before a run). */
#include "exec/exec.h"

/* Whatever lay in it is gone: no value in an arena outlives a run but outputs. */
static sw_status enlarge(sw_program *p)
{
    sw__shared *const s = p->shared;
    const sw__backend *b = p->device->backend;
    if (s->bytes >= p->plan.arena) return SW_OK;
    if (s->buffer) {
        SW_TRY(b->sync(p->device->dev));
        b->release(p->device->dev, s->buffer);
    }
    s->buffer = NULL;
    s->bytes = 0;
    SW_TRY(b->alloc(p->device->dev, p->plan.arena, &s->buffer));
    s->bytes = p->plan.arena;
    s->times++;
    return SW_OK;
}

sw_status sw__arena_open(sw_program *p, const sw_program *with)
{
    if (with && with->device != p->device)
        return sw__fail(SW_ERR_ARGUMENT, "the program to share an arena with is on another device than %s",
                        p->device->info.id);
    p->shared = with ? with->shared : sw__calloc(1, sizeof *p->shared);
    if (!p->shared) return sw__no_memory(sizeof *p->shared, "an arena");
    p->shared->users++;
    SW_TRY(enlarge(p));
    p->arena_buffer = p->shared->buffer;
    p->bound_at = p->shared->times;
    return SW_OK;
}

void sw__arena_close(sw_program *p)
{
    if (!p->shared || --p->shared->users > 0) return;
    if (p->shared->buffer) p->device->backend->release(p->device->dev, p->shared->buffer);
    sw__free(p->shared);
}

sw_status sw__arena_rebind(sw_program *p)
{
    if (p->plan.arena == 0 || (p->bound_at == p->shared->times && p->shared->buffer)) return SW_OK;
    SW_TRY(enlarge(p));
    void *const to = p->shared->buffer;
    for (uint32_t i = 0; i < p->n_launches; i++)
        for (uint32_t k = 0; k < p->launches[i].n_bind; k++)
            if (p->launches[i].bind[k].buffer == p->arena_buffer) p->launches[i].bind[k].buffer = to;
    for (uint32_t i = 0; i < p->n_outputs; i++)
        if (p->outputs[i].bind.buffer == p->arena_buffer) p->outputs[i].bind.buffer = to;
    if (p->recording) p->device->backend->recording_free(p->device->dev, p->recording);
    p->recording = NULL;
    p->arena_buffer = to;
    p->bound_at = p->shared->times;
    return SW_OK;
}
