/* gpu_op.c: ops taken whole: the table of them, and their plans. Between backend.h and ops/. */
#include "backend/desc.h"
#include "backend/gpu/tune.h"

/* Whoever takes it has a library for it; we have no kernels that reach other devices. */
static sw_status all_reduce_plan(sw__gpu_plan *p)
{
    return sw__fail(SW_ERR_UNSUPPORTED, "%s cannot sum %s over devices", p->gpu->backend,
                    sw_dtype_name((sw_dtype)p->d.out[0].dtype));
}

/* Whoever takes row-major tensors only. */
static bool dense_accepts(const sw__gpu *g, const sw__op_desc *d, int i)
{
    (void)g;
    return sw__desc_row_major(&d->in[i]);
}

const sw__gpu_op sw__gpu_ops[SW_OP_COUNT] = {
    [SW_OP_MATMUL] = {NULL, sw__gpu_matmul_plan, sw__gpu_matmul_variants},
    [SW_OP_DOT] = {NULL, sw__gpu_matmul_plan, sw__gpu_matmul_variants},
    [SW_OP_CONV] = {NULL, sw__gpu_conv_plan, sw__gpu_conv_variants},
    [SW_OP_CONV_GRAD_X] = {NULL, sw__gpu_conv_plan, sw__gpu_conv_variants},
    [SW_OP_CONV_GRAD_W] = {NULL, sw__gpu_conv_plan, sw__gpu_conv_variants},
    [SW_OP_MAX_POOL] = {NULL, sw__gpu_pool_plan, NULL},
    [SW_OP_MAX_POOL_GRAD] = {NULL, sw__gpu_pool_plan, NULL},
    [SW_OP_AVG_POOL] = {NULL, sw__gpu_pool_plan, NULL},
    [SW_OP_AVG_POOL_GRAD] = {NULL, sw__gpu_pool_plan, NULL},
    [SW_OP_ARGMAX] = {NULL, sw__gpu_argreduce_plan, NULL},
    [SW_OP_ARGMIN] = {NULL, sw__gpu_argreduce_plan, NULL},
    [SW_OP_SCAN_SUM] = {NULL, sw__gpu_scan_plan, NULL},
    [SW_OP_SORT] = {NULL, sw__gpu_sort_plan, NULL},
    [SW_OP_ARGSORT] = {NULL, sw__gpu_sort_plan, NULL},
    [SW_OP_SCATTER_ADD] = {NULL, sw__gpu_scatter_plan, NULL},
    [SW_OP_SCATTER_SET] = {NULL, sw__gpu_scatter_plan, NULL},
    [SW_OP_SCATTER_MAX] = {NULL, sw__gpu_scatter_plan, NULL},
    [SW_OP_LSTM] = {dense_accepts, sw__gpu_recurrent_plan, NULL},
    [SW_OP_GRU] = {dense_accepts, sw__gpu_recurrent_plan, NULL},
    [SW_OP_RNN] = {dense_accepts, sw__gpu_recurrent_plan, NULL},
    [SW_OP_LSTM_GRAD] = {dense_accepts, sw__gpu_recurrent_plan, NULL},
    [SW_OP_GRU_GRAD] = {dense_accepts, sw__gpu_recurrent_plan, NULL},
    [SW_OP_RNN_GRAD] = {dense_accepts, sw__gpu_recurrent_plan, NULL},
    [SW_OP_CTC_LOSS] = {dense_accepts, sw__gpu_ctc_plan, NULL},
    [SW_OP_EMBEDDING_GRAD] = {NULL, sw__gpu_embedding_grad_plan, NULL},
    [SW_OP_ATTENTION] = {NULL, sw__gpu_attention_plan, NULL},
    [SW_OP_ATTENTION_GRAD] = {NULL, sw__gpu_attention_plan, NULL},
    [SW_OP_ALL_REDUCE] = {dense_accepts, all_reduce_plan, NULL},
    [SW_OP_CUSTOM] = {dense_accepts, sw__gpu_custom_plan, NULL},
    [SW_OP_CUSTOM_GRAD] = {dense_accepts, sw__gpu_custom_plan, NULL},
};

bool sw__gpu_op_accepts(sw__gpu *g, const sw__op_desc *d, int i)
{
    const sw__gpu_op *const op = &sw__gpu_ops[d->op];
    return op->accepts == NULL || op->accepts(g, d, i);
}

/* A vendor's library where it takes the op, our kernels otherwise: which is no failure, but is counted, and told in the
 * log. A folder of kernels holds all of a program: none is left to a library. */
static sw_status plan_op(sw__gpu_plan *p)
{
    const sw__gpu_driver *const driver = p->gpu->driver;
    const bool chosen = driver->library_name == NULL || (p->variant & SW__GPU_LIBRARY) != 0;
    const bool asked = driver->library != NULL && chosen && (driver->library_has == NULL || driver->library_has(p->d.op));
    const bool to_folder = p->gpu->read_from != NULL || p->gpu->write_to != NULL;
    if (asked && (!to_folder || p->d.op == SW_OP_ALL_REDUCE)) {
        const sw_status st = driver->library(p->gpu->dev, p);
        if (st != SW_ERR_UNSUPPORTED) return st;
        p->gpu->refused++;
        sw__log(SW_LOG_DEBUG, "%s: %s '%s' on our kernels: %s", p->gpu->backend, sw__op_table[p->d.op].name, p->name,
                sw_error());
    }
    p->variant &= SW__GPU_LIBRARY - 1;
    return sw__gpu_ops[p->d.op].plan(p);
}

sw_status sw__gpu_op_plan(sw__gpu *g, const sw__op_desc *d, void **plan, size_t *workspace)
{
    sw__gpu_plan *p = NULL;
    SW_TRY(sw__gpu_op_plan_as(g, d, sw__gpu_variant_of(g, d), &p));
    *workspace = p->workspace;
    *plan = p;
    return SW_OK;
}

sw_status sw__gpu_op_plan_as(sw__gpu *g, const sw__op_desc *d, int variant, sw__gpu_plan **plan)
{
    const char *const op = sw__op_table[d->op].name;
    if (sw__gpu_ops[d->op].plan == NULL || d->n_in + d->n_out > SW__GPU_MAX_REFS)
        return sw__fail(SW_ERR_UNSUPPORTED, "%s: %s is not taken whole", g->backend, op);
    sw__gpu_plan *p = NULL;
    SW_TRY(sw__gpu_plan_new(g, d->name, &p));
    p->d = *d;
    if (d->attr != NULL) p->attr = *d->attr;
    for (int i = 0; i < d->n_in; i++) p->desc[i] = d->in[i];
    for (int i = 0; i < d->n_out; i++) p->desc[d->n_in + i] = d->out[i];
    p->d.attr = &p->attr;
    p->d.in = p->desc;
    p->d.out = p->desc + d->n_in;
    p->d.name = p->name;
    p->n_bind = d->n_in + d->n_out;
    p->variant = variant;
    const sw_status st = plan_op(p);
    if (st != SW_OK) {
        sw__prefix(st, "%s: %s '%s'", g->backend, op, p->name);
        sw__gpu_plan_free(p);
        return st;
    }
    *plan = p;
    return SW_OK;
}
