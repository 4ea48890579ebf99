/* ctc.c: plans CTC_LOSS: one launch of portable/ctc.k, a group a sample. Called by gpu_op.c. */
#include "backend/gpu/ops/big.h"
#include "backend/gpu/ops/columns.h"

#include <stdio.h>

sw_status sw__gpu_ctc_plan(sw__gpu_plan *p)
{
    static const char *const integers[] = {NULL, "LABEL", "INPUT_LENGTH", "TARGET_LENGTH"};
    const sw__target *const g = &p->gpu->target;
    const int64_t *const dim = p->d.in[0].dim, labels = p->d.in[1].dim[1], places = 2 * labels + 1;
    const sw_dtype type = (sw_dtype)p->d.in[0].dtype;
    SW_TRY(sw__gpu_can_add(p, type));
    if (dim[1] > INT32_MAX || dim[2] > INT32_MAX || places > INT32_MAX || dim[0] > INT32_MAX)
        return sw__fail(SW_ERR_UNSUPPORTED, "too large: %lld steps, %lld classes, %lld labels", (long long)dim[1],
                        (long long)dim[2], (long long)labels);
    sw__ask a = sw__ask_for(p, "ctc");
    sw__ask_type(&a, type);
    a.n_macros--; /* ACC: below */
    sw__ask_text(&a, "ACC", g->fp64 ? "double" : "float");
    sw__ask_text(&a, "EXP", g->fp64 ? "exp" : "sw_exp");
    sw__ask_text(&a, "LOG", g->fp64 ? "log" : "sw_log");
    for (int i = 1; i < 4; i++) sw__ask_text(&a, integers[i], p->d.in[i].dtype == SW_I64 ? "i64" : "i32");
    int items = g->serial ? 1 : 32;
    while (!g->serial && items < places && 2 * items <= SW_MIN(256, SW_MIN(g->max_group, g->max_local[0]))) items *= 2;
    sw__ask_macro(&a, "ITEMS", items);
    sw__ask_macro(&a, "BLANK", p->attr.axis.axis);
    for (int i = 0; i < 6; i++) sw__ask_buffer(&a, i, 0);
    sw__ask_buffer(&a, p->n_bind, sw__big_workspace(p, dim[0] * (dim[1] + 2) * places * (g->fp64 ? 8 : 4)));
    sw__ask_i32(&a, 4, (const int64_t[]){dim[1], dim[2], labels, dim[0]});
    sw__ask_errors(&a);
    snprintf(p->note, sizeof p->note, "a group a sample:%s", sw_dtype_name(type));
    return sw__ask_launch(&a, dim[0], 1, 1, items);
}
