/* matmul.c: MATMUL and DOT: [B…, M, K] x [B…, K, N] -> [B…, M, N], optional bias and relu, on a GPU or a CPU through
 * OpenCL. The op becomes an sw__product: batch axes merged, or folded into M where all share one right side; then
 * tile.c or rows.c makes launches of it. Any strides. */
#include "backend/gpu/ops/big.h"

#include <stdio.h>

/* Strides of axes of size 1 mean nothing: give them the value that makes the matrix look dense. */
static void tidy(int64_t rows, int64_t cols, int64_t *rs, int64_t *cs)
{
    if (rows == 1 && cols == 1) *rs = *cs = 1;
    else if (cols == 1) *cs = *rs == 1 ? rows : 1;
    else if (rows == 1) *rs = *cs == 1 ? cols : 1;
}

/* Appends a batch axis, merged into the one before where all three walk both as one. */
static void add_batch(sw__product *g, int64_t dim, int64_t a, int64_t b, int64_t c)
{
    const int l = g->rank - 1;
    if (dim == 1) return;
    if (l >= 0 && g->as[l] == a * dim && g->bs[l] == b * dim && g->cs[l] == c * dim) {
        g->batch[l] *= dim;
        g->as[l] = a;
        g->bs[l] = b;
        g->cs[l] = c;
        return;
    }
    g->batch[g->rank] = dim;
    g->as[g->rank] = a;
    g->bs[g->rank] = b;
    g->cs[g->rank++] = c;
}

/* The last batch axis becomes part of M where it leaves b alone and continues the rows of a and c. */
static void fold(sw__product *g)
{
    const int l = g->rank - 1;
    if (l < 0 || g->bs[l] != 0) return;
    if (g->m == 1) {
        g->am = g->as[l];
        g->cm = g->cs[l];
    } else if (g->as[l] != g->am * g->m || g->cs[l] != g->cm * g->m) {
        return;
    }
    g->m *= g->batch[l];
    g->rank--;
}

static sw__product describe(const sw__gpu_plan *p)
{
    const sw__op_desc *const d = &p->d;
    const sw__desc *const a = &d->in[0], *const b = &d->in[1], *const c = &d->out[0];
    const int r = c->rank;
    sw__product g = {.type = (sw_dtype)c->dtype, .a = 0, .b = 1, .c = d->n_in, .bias = -1};
    g.m = c->dim[r - 2];
    g.n = c->dim[r - 1];
    g.k = a->dim[r - 1];
    g.am = a->stride[r - 2];
    g.ak = a->stride[r - 1];
    g.bk = b->stride[r - 2];
    g.bn = b->stride[r - 1];
    g.cm = c->stride[r - 2];
    g.cn = c->stride[r - 1];
    for (int i = 0; i < r - 2; i++) add_batch(&g, c->dim[i], a->stride[i], b->stride[i], c->stride[i]);
    fold(&g);
    tidy(g.m, g.k, &g.am, &g.ak);
    tidy(g.k, g.n, &g.bk, &g.bn);
    tidy(g.m, g.n, &g.cm, &g.cn);
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

sw_status sw__gpu_matmul_plan(sw__gpu_plan *p)
{
    const sw__product g = describe(p);
    if (sw__big_elements(&p->d.out[0]) == 0) {
        snprintf(p->note, sizeof p->note, "empty");
        return SW_OK;
    }
    if (g.type == SW_F64 && !p->gpu->target.fp64)
        return sw__fail(SW_ERR_UNSUPPORTED, "this device has no arithmetic in f64; cast to f32");
    return plan_all(p, &g);
}
