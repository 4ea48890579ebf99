/* matmul.c: MATMUL and DOT: [B…, M, K] x [B…, K, N] -> [B…, M, N], optional bias and relu, on a GPU or a CPU through
 * OpenCL. The op becomes an sw__product: batch axes merged, or folded into M where all share one right side; then
 * tile.c or rows.c makes launches of it. Any strides. */
#include "backend/gpu/ops/big.h"

#include <stdio.h>

sw__product sw__product_of(const sw__gpu_plan *p)
{
    const sw__op_desc *const d = &p->d;
    sw__product g = {.type = (sw_dtype)d->out[0].dtype, .a = 0, .b = 1, .c = d->n_in, .bias = -1,
                     .matrices = sw__matrices_of(d)};
    if (d->n_in > 2) {
        g.bias = 2;
        g.bias_s = d->in[2].dim[0] > 1 ? d->in[2].stride[0] : 1;
    }
    g.relu = d->op == SW_OP_MATMUL && d->attr->act.act == SW_ACT_RELU;
    return g;
}

/* The kernels walk two batch axes; those before are fixed one after another. */
static sw_status plan_all(sw__gpu_plan *p, const sw__product *given)
{
    const int outer = SW_MAX(given->rank - 2, 0);
    const int64_t size = (int64_t)sw_dtype_size(given->type), times = sw__dims_product(given->batch, outer);
    for (int64_t i = 0; i < times; i++) {
        sw__product g = *given;
        int64_t rest = i;
        for (int l = outer - 1; l >= 0; rest /= given->batch[l--]) {
            const int64_t at = rest % given->batch[l] * size;
            g.a_at += at * given->as[l];
            g.b_at += at * given->bs[l];
            g.c_at += at * given->cs[l];
        }
        g.rank -= outer;
        for (int l = 0; l < g.rank; l++) {
            g.batch[l] = given->batch[l + outer];
            g.as[l] = given->as[l + outer];
            g.bs[l] = given->bs[l + outer];
            g.cs[l] = given->cs[l + outer];
        }
        SW_TRY(p->gpu->target.serial ? sw__rows_product(p, &g) : sw__tile_product(p, &g));
    }
    return SW_OK;
}

int sw__gpu_matmul_variants(const sw__gpu *g, const sw__op_desc *d)
{
    (void)d;
    return g->target.serial ? sw__rows_variants() : sw__tile_variants();
}

sw_status sw__gpu_matmul_plan(sw__gpu_plan *p)
{
    const sw__product g = sw__product_of(p);
    if (sw__desc_elements(&p->d.out[0]) == 0) {
        snprintf(p->note, sizeof p->note, "empty");
        return SW_OK;
    }
    if (g.type == SW_F64 && !p->gpu->target.fp64)
        return sw__fail(SW_ERR_UNSUPPORTED, "this device has no arithmetic in f64; cast to f32");
    return plan_all(p, &g);
}

/* Of a product that a library's call before has computed; at most one batch axis. */
sw_status sw__product_finish(sw__gpu_plan *p, const sw__product *g)
{
    const sw__target *const t = &p->gpu->target;
    if (g->bias < 0 && !g->relu) return SW_OK;
    const int items = t->serial ? 1 : SW_MIN(SW_MIN(256, t->max_group), t->max_local[0]);
    const int64_t chunk = t->serial ? 4096 : 1, z = g->rank > 0 ? g->batch[0] : 1, total = z * g->m * g->n;
    sw__ask a = sw__ask_for(p, "bias_act");
    sw__ask_type(&a, g->type);
    sw__ask_macro(&a, "ITEMS", items);
    sw__ask_macro(&a, "CHUNK", chunk);
    sw__ask_macro(&a, "BIAS", g->bias >= 0);
    sw__ask_macro(&a, "RELU", g->relu);
    sw__ask_buffer(&a, g->c, g->c_at);
    sw__ask_buffer(&a, g->bias >= 0 ? g->bias : g->c, 0);
    sw__ask_i64(&a, 4, (const int64_t[]){g->bias_s, g->m, g->n, total});
    sw__ask_i64(&a, 3, (const int64_t[]){g->cm, g->cn, g->rank > 0 ? g->cs[0] : 0});
    return sw__ask_launch(&a, sw__div_up(total, items * chunk), 1, 1, items);
}
