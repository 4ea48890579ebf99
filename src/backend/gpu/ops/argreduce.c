/* argreduce.c: plans ARGMAX and ARGMIN: one launch of portable/argreduce.k. Called by gpu_op.c. */
#include "backend/gpu/ops/columns.h"

#include <stdio.h>

sw_status sw__gpu_argreduce_plan(sw__gpu_plan *p)
{
    const sw__gpu *const g = p->gpu;
    const sw__desc *const x = &p->d.in[0], *const y = &p->d.out[0];
    const int axis = p->attr.axis.axis;
    const int64_t count = sw__gpu_count(x, axis), length = x->dim[axis];
    const bool by_item = sw__gpu_by_item(g, x, axis);
    snprintf(p->note, sizeof p->note, "%s per column:%s", by_item ? "item" : "group",
             sw_dtype_name((sw_dtype)x->dtype));
    if (count == 0) return SW_OK;
    sw__gpu_macros m = { .n = 0 };
    sw__gpu_place px, py;
    sw__gpu_place_of(x, axis, "c", "k", &px);
    sw__gpu_place_of(y, axis, "c", "0", &py);
    sw__gpu_put_keys(&m, (sw_dtype)x->dtype);
    sw__gpu_put_text(&m, "X_AT", px.text);
    sw__gpu_put_text(&m, "Y_AT", py.text);
    sw__gpu_put_text(&m, "INDEX", sw__gpu_counter(count * length));
    sw__gpu_put(&m, "COUNT", count);
    sw__gpu_put(&m, "LENGTH", length);
    sw__gpu_put(&m, "MAX_WINS", p->d.op == SW_OP_ARGMAX);
    sw__gpu_put(&m, "BY_ITEM", by_item);
    const int lanes = sw__gpu_lanes(g, by_item ? (g->target.serial ? 16 : 64) : SW_MIN(length, 256));
    const uint32_t groups = sw__gpu_grid(&m, by_item ? (count + lanes - 1) / lanes : count, lanes);
    const sw__gpu_arg args[] = { SW_GPU_BIND(0), SW_GPU_BIND(1) };
    return sw__gpu_step(p, "argreduce", &m, groups, lanes, 1, args, 2);
}
