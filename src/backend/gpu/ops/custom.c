/* custom.c: a user's op (CUSTOM, CUSTOM_GRAD) as one launch of the text that was registered for this kind of device.
 * One of the ops of gpu_op.c; kernels by hand are in gpu_source.c. */
#include "backend/gpu/gpu.h"
#include "backend/desc.h"
#include "backend/source.h"

#include <stdio.h>

#define USUAL_GROUP 256

/* Groups of the wished size, or of swoop's. */
static sw_status split(const sw__gpu_plan *p, uint32_t wish, int64_t items, uint32_t *groups, uint32_t *local)
{
    const sw__target *const t = &p->gpu->target;
    const int most = SW_MIN(t->max_group, t->max_local[0]);
    if (wish > (uint32_t)most)
        return sw__fail(SW_ERR_UNSUPPORTED, "groups of %u work-items: this device takes at most %d", wish, most);
    *local = wish > 0 ? wish : (uint32_t)SW_MIN(most, USUAL_GROUP);
    *groups = sw_groups(items, *local);
    if (*groups == 0)
        return sw__fail(SW_ERR_UNSUPPORTED, "%lld work-items are too many for one launch", (long long)items);
    return SW_OK;
}

sw_status sw__gpu_custom_plan(sw__gpu_plan *p)
{
    const sw__custom *const c = p->attr.custom.op;
    const sw__custom_kernel *const own = sw__custom_kernel_of(c, p->d.op);
    sw_op_grid grid;
    uint32_t groups = 0, local = 0;
    sw__gpu_arg args[SW__SOURCE_MAX_ARGS];
    int n = 0;
    for (int i = 0; i < p->n_bind; i++)
        if (!sw__desc_row_major(&p->desc[i])) return sw__fail(SW_ERR_UNSUPPORTED, "tensor %d is not dense and row-major", i + 1);
    SW_TRY(sw__source_grid(&p->d, &grid));
    if (grid.items == 0) return SW_OK;
    SW_TRY(split(p, own->local, grid.items, &groups, &local));
    for (int i = 0; i < p->n_bind; i++) args[n++] = (sw__gpu_arg)SW_GPU_BIND(i);
    for (int i = 0; i < grid.n_numbers; i++) args[n++] = (sw__gpu_arg)SW_GPU_INT(grid.number[i]);
    args[n++] = (sw__gpu_arg)SW_GPU_INT(grid.items);
    char by[96];
    snprintf(by, sizeof by, "op '%.70s'", c->name);
    sw__gpu_kernel *k = NULL;
    SW_TRY(sw__gpu_want_source(p->gpu, by, &own->source, &k));
    SW_TRY(sw__gpu_add(p, k, groups, 1, 1, local, 1, 1, args, n));
    snprintf(p->note, sizeof p->note, "own:%.60s, %u groups of %u", own->source.name, groups, local);
    return SW_OK;
}
