/* gpu_source.c: a user's kernels by hand (swoop/kernel.h): the text that this device takes, built at once, launched
 * straight into the driver's queue. Beside gpu_op.c; as ops of a graph: ops/custom.c. See gpu.h. */
#include "backend/gpu/gpu.h"
#include "backend/source.h"

#include <stdio.h>

sw_status sw__gpu_want_source(sw__gpu *g, const char *wanted_by, const sw_kernel_source *s, sw__gpu_kernel **out)
{
    const bool cuda = g->target.lang == SW_LANG_CUDA;
    const char *const own = cuda ? s->cuda : s->opencl;
    if (own == NULL && s->portable == NULL)
        return sw__source_missing(g->backend, s, cuda ? "portable or cuda" : "portable or opencl");
    return sw__gpu_want_alone(g, wanted_by, own != NULL ? own : s->portable, s->name, own != NULL, out);
}

sw_status sw__gpu_source_build(sw__gpu *g, const sw_kernel_source *s, void **built)
{
    sw__gpu_kernel *k = NULL;
    char by[96];
    snprintf(by, sizeof by, "sw_kernel_new('%.70s')", s->name);
    SW_TRY(sw__gpu_want_source(g, by, s, &k));
    const sw_status st = sw__gpu_build_alone(g, k);
    if (st != SW_OK) {
        sw__gpu_unwant(g, k);
        return st;
    }
    *built = k;
    return SW_OK;
}

void sw__gpu_source_free(sw__gpu *g, void *built)
{
    sw__gpu_unwant(g, built);
}

static int put_arg(const sw__source_arg *a, sw__gpu_value *v)
{
    switch ((sw_arg_kind)a->kind) {
    case SW_ARG_BUFFER:
        v[0] = (sw__gpu_value){.buffer = a->bind.buffer};
        v[1] = (sw__gpu_value){.size = sizeof(int64_t), .raw.i64 = (int64_t)a->bind.offset};
        return 2;
    case SW_ARG_I32: v[0] = (sw__gpu_value){.size = 4, .raw.i32 = a->i32}; return 1;
    case SW_ARG_I64: v[0] = (sw__gpu_value){.size = 8, .raw.i64 = a->i64}; return 1;
    case SW_ARG_F32: v[0] = (sw__gpu_value){.size = 4, .raw.f32 = a->f32}; return 1;
    }
    return 0;
}

sw_status sw__gpu_source_launch(sw__gpu *g, void *built, const sw__source_launch *l)
{
    const sw__target *const t = &g->target;
    sw__gpu_value v[2 * SW_LAUNCH_MAX_ARGS];
    int n = 0, group = 1;
    for (int d = 0; d < 3; d++) {
        group *= (int)l->local[d];
        if ((int)l->local[d] > t->max_local[d])
            return sw__fail(SW_ERR_ARGUMENT, "%u work-items along axis %d of a group: this device takes at most %d",
                            l->local[d], d, t->max_local[d]);
    }
    if (group > t->max_group)
        return sw__fail(SW_ERR_ARGUMENT, "%d work-items in a group: this device takes at most %d", group, t->max_group);
    for (int i = 0; i < l->n_args; i++) n += put_arg(&l->arg[i], &v[n]);
    return g->driver->launch(g->dev, sw__gpu_kernel_handle(built), l->groups, l->local, v, n);
}
