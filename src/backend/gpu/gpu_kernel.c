/* gpu_kernel.c: a kernel of the IR as a plan: its text from the emitter, its stages as launches. See gpu.h. */
#include "backend/gpu/gpu.h"

#include <stdio.h>

static sw_status add_stages(sw__gpu_plan *p, const sw__emitted *e)
{
    for (int s = 0; s < e->n_stages; s++) {
        const sw__stage *const stage = &e->stage[s];
        sw__gpu_arg args[SW_K_MAX_BUFFERS + 2];
        int n = 0;
        for (int i = 0; i < p->n_bind; i++) args[n++] = (sw__gpu_arg)SW_GPU_BIND(i);
        if (e->workspace > 0) args[n++] = (sw__gpu_arg)SW_GPU_BIND(p->n_bind);
        if (e->checks) args[n++] = (sw__gpu_arg){.kind = SW_GPU_ERRORS};
        char by[96];
        snprintf(by, sizeof by, "'%.80s'", p->name);
        sw__gpu_kernel *k = NULL;
        SW_TRY(sw__gpu_want(p->gpu, by, e->text.s, stage->entry, &k));
        SW_TRY(sw__gpu_add(p, k, stage->groups[0], stage->groups[1], stage->groups[2], stage->local[0], stage->local[1],
                           stage->local[2], args, n));
    }
    return SW_OK;
}

sw_status sw__gpu_kernel_build(sw__gpu *g, const sw__kernel *k, void **built, size_t *workspace)
{
    sw__gpu_plan *p = NULL;
    sw__emitted e = {0};
    char entry[40];
    snprintf(entry, sizeof entry, "sw_k%016llx", (unsigned long long)k->hash);
    SW_TRY(sw__gpu_plan_new(g, k->name, &p));
    p->n_bind = k->n_buffers;
    sw_status st = sw__emit(k, &g->target, entry, &e);
    if (st == SW_OK) st = add_stages(p, &e);
    p->workspace = e.workspace;
    sw__text_free(&e.text);
    if (st != SW_OK) {
        sw__prefix(st, "%s: kernel '%s'", g->backend, k->name);
        sw__gpu_plan_free(p);
        return st;
    }
    *workspace = p->workspace;
    *built = p;
    return SW_OK;
}
