/* ref.c: the reference backend: runs the graph op by op in double precision on one thread. The oracle of all others.
 * One of the backends under exec/; the ops themselves are in ref_*.c. */
#include "backend/ref/ref.h"

#include <stdio.h>
#include <unistd.h>

#define REF_ALIGNMENT 64

/* ---- ops --------------------------------------------------------------------------------------------------------- */

/* clang-format off */
const sw__ref_op sw__ref_ops[SW_OP_COUNT] = {
    [SW_OP_CONST] = { sw__ref_const, NULL },
    [SW_OP_IOTA] = { sw__ref_iota, NULL },
    [SW_OP_RANDOM] = { sw__ref_random, NULL },
    [SW_OP_NEG] = { sw__ref_unary, NULL },      [SW_OP_EXP] = { sw__ref_unary, NULL },
    [SW_OP_LOG] = { sw__ref_unary, NULL },      [SW_OP_SQRT] = { sw__ref_unary, NULL },
    [SW_OP_SIN] = { sw__ref_unary, NULL },      [SW_OP_COS] = { sw__ref_unary, NULL },
    [SW_OP_ATAN] = { sw__ref_unary, NULL },     [SW_OP_TANH] = { sw__ref_unary, NULL },
    [SW_OP_ERF] = { sw__ref_unary, NULL },      [SW_OP_FLOOR] = { sw__ref_unary, NULL },
    [SW_OP_CAST] = { sw__ref_cast, NULL },
    [SW_OP_ADD] = { sw__ref_arithmetic, NULL }, [SW_OP_SUB] = { sw__ref_arithmetic, NULL },
    [SW_OP_MUL] = { sw__ref_arithmetic, NULL }, [SW_OP_DIV] = { sw__ref_arithmetic, NULL },
    [SW_OP_MOD] = { sw__ref_arithmetic, NULL }, [SW_OP_POW] = { sw__ref_arithmetic, NULL },
    [SW_OP_MAX] = { sw__ref_arithmetic, NULL }, [SW_OP_MIN] = { sw__ref_arithmetic, NULL },
    [SW_OP_LT] = { sw__ref_compare, NULL },     [SW_OP_EQ] = { sw__ref_compare, NULL },
    [SW_OP_AND] = { sw__ref_arithmetic, NULL }, [SW_OP_OR] = { sw__ref_arithmetic, NULL },
    [SW_OP_XOR] = { sw__ref_arithmetic, NULL }, [SW_OP_SHL] = { sw__ref_arithmetic, NULL },
    [SW_OP_SHR] = { sw__ref_arithmetic, NULL },
    [SW_OP_WHERE] = { sw__ref_where, NULL },
    [SW_OP_RESHAPE] = { sw__ref_flat_copy, NULL },
    [SW_OP_PERMUTE] = { sw__ref_permute, NULL },
    [SW_OP_EXPAND] = { sw__ref_expand, NULL },
    [SW_OP_PAD] = { sw__ref_pad, NULL },
    [SW_OP_SLICE] = { sw__ref_slice, NULL },
    [SW_OP_COPY] = { sw__ref_strided_copy, NULL },
    [SW_OP_REDUCE_SUM] = { sw__ref_reduce, NULL }, [SW_OP_REDUCE_MAX] = { sw__ref_reduce, NULL },
    [SW_OP_REDUCE_MIN] = { sw__ref_reduce, NULL }, [SW_OP_REDUCE_PROD] = { sw__ref_reduce, NULL },
    [SW_OP_ARGMAX] = { sw__ref_argreduce, NULL },  [SW_OP_ARGMIN] = { sw__ref_argreduce, NULL },
    [SW_OP_SCAN_SUM] = { sw__ref_scan_sum, NULL },
    [SW_OP_SORT] = { sw__ref_sort, sw__ref_sort_workspace },
    [SW_OP_ARGSORT] = { sw__ref_sort, sw__ref_sort_workspace },
    [SW_OP_GATHER] = { sw__ref_gather, NULL },
    [SW_OP_SCATTER_ADD] = { sw__ref_scatter, NULL }, [SW_OP_SCATTER_SET] = { sw__ref_scatter, NULL },
    [SW_OP_SCATTER_MAX] = { sw__ref_scatter, NULL },
    [SW_OP_DOT] = { sw__ref_matmul, NULL },
    [SW_OP_STOP_GRADIENT] = { sw__ref_flat_copy, NULL },
    [SW_OP_ALL_REDUCE] = { sw__ref_flat_copy, NULL }, /* one process: the sum over all of them is the value itself */
    [SW_OP_MATMUL] = { sw__ref_matmul, NULL },
    [SW_OP_CONV] = { sw__ref_conv, NULL },
    [SW_OP_CONV_GRAD_X] = { sw__ref_conv_grad_x, NULL },
    [SW_OP_CONV_GRAD_W] = { sw__ref_conv_grad_w, NULL },
    [SW_OP_MAX_POOL] = { sw__ref_max_pool, NULL },
    [SW_OP_MAX_POOL_GRAD] = { sw__ref_max_pool_grad, NULL },
    [SW_OP_AVG_POOL] = { sw__ref_avg_pool, NULL },
    [SW_OP_AVG_POOL_GRAD] = { sw__ref_avg_pool_grad, NULL },
    [SW_OP_BATCH_NORM] = { sw__ref_batch_norm, NULL },
    [SW_OP_BATCH_NORM_GRAD] = { sw__ref_batch_norm_grad, NULL },
    [SW_OP_LAYER_NORM] = { sw__ref_layer_norm, NULL },
    [SW_OP_LAYER_NORM_GRAD] = { sw__ref_layer_norm_grad, NULL },
    [SW_OP_SOFTMAX] = { sw__ref_softmax, NULL },
    [SW_OP_LOG_SOFTMAX] = { sw__ref_softmax, NULL },
    [SW_OP_CROSS_ENTROPY] = { sw__ref_cross_entropy, NULL },
    [SW_OP_ATTENTION] = { sw__ref_attention, NULL },
    [SW_OP_ATTENTION_GRAD] = { sw__ref_attention_grad, NULL },
    [SW_OP_CUSTOM] = { sw__ref_custom, sw__ref_custom_workspace },
    [SW_OP_CUSTOM_GRAD] = { sw__ref_custom, sw__ref_custom_workspace },
    [SW_OP_LSTM] = { sw__ref_recurrent, sw__ref_recurrent_workspace },
    [SW_OP_GRU] = { sw__ref_recurrent, sw__ref_recurrent_workspace },
    [SW_OP_RNN] = { sw__ref_recurrent, sw__ref_recurrent_workspace },
    [SW_OP_LSTM_GRAD] = { sw__ref_recurrent_grad, sw__ref_recurrent_workspace },
    [SW_OP_GRU_GRAD] = { sw__ref_recurrent_grad, sw__ref_recurrent_workspace },
    [SW_OP_RNN_GRAD] = { sw__ref_recurrent_grad, sw__ref_recurrent_workspace },
    [SW_OP_CTC_LOSS] = { sw__ref_ctc_loss, sw__ref_ctc_workspace },
    [SW_OP_RESAMPLE] = { sw__ref_resample, NULL },
    [SW_OP_EMBEDDING] = { sw__ref_embedding, NULL },
    [SW_OP_EMBEDDING_GRAD] = { sw__ref_embedding_grad, NULL },
};
/* clang-format on */

sw_status sw__ref_bad_index(const sw__ref_call *c, const char *what, int64_t position, int64_t value, int64_t extent)
{
    const char *const op = sw__op_table[c->d->op].name;
    const char *const name = c->d->name ? c->d->name : "";
    if (extent <= 0)
        return sw__fail(SW_ERR_DATA, "%s '%s': %s[%lld] is %lld, but there is nothing to choose from (extent 0)", op,
                        name, what, (long long)position, (long long)value);
    return sw__fail(SW_ERR_DATA, "%s '%s': %s[%lld] is %lld, outside 0 to %lld", op, name, what, (long long)position,
                    (long long)value, (long long)(extent - 1));
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

int64_t sw__ref_get_int(const void *p, sw_dtype t, int64_t i)
{
    switch (t) {
    case SW_I64: return ((const int64_t *)p)[i];
    case SW_I32: return ((const int32_t *)p)[i];
    case SW_U32: return ((const uint32_t *)p)[i];
    default: return ((const uint8_t *)p)[i]; /* u8, bool */
    }
}

void sw__ref_set_int(void *p, sw_dtype t, int64_t i, int64_t v)
{
    switch (t) {
    case SW_I64: ((int64_t *)p)[i] = v; break;
    case SW_I32: ((int32_t *)p)[i] = (int32_t)(uint32_t)((uint64_t)v & 0xFFFFFFFFu); break;
    case SW_U32: ((uint32_t *)p)[i] = (uint32_t)((uint64_t)v & 0xFFFFFFFFu); break;
    case SW_BOOL: ((uint8_t *)p)[i] = v != 0; break;
    default: ((uint8_t *)p)[i] = (uint8_t)((uint64_t)v & 0xFFu); break;
    }
}

sw__ref_axis sw__ref_split(const sw__desc *d, int axis)
{
    return (sw__ref_axis){ sw__dims_product(d->dim, axis), d->dim[axis],
                           sw__dims_product(d->dim + axis + 1, d->rank - axis - 1) };
}

/* ---- device and memory: the host's ------------------------------------------------------------------------------- */

static int ref_count(void)
{
    return 1;
}

static sw_status ref_open(int index, const sw_device_options *o, void **dev)
{
    (void)index;
    (void)o;
    sw__traits *const t = sw__calloc(1, sizeof *t); /* the traits are all that this device is */
    if (!t) return sw__no_memory(sizeof *t, "device ref");
    t->float_storage = SW_F64;
    t->alignment = REF_ALIGNMENT;
    t->compute_units = 1;
    for (int op = 0; op < SW_OP_COUNT; op++) t->takes[op] = sw__ref_ops[op].run != NULL;
    t->bias_act[SW_OP_MATMUL] = t->bias_act[SW_OP_CONV] = true;
    *dev = t;
    return SW_OK;
}

static void ref_close(void *dev)
{
    sw__free(dev);
}

static sw_status ref_properties(int index, sw_device_properties *p)
{
    (void)index;
    const long pages = sysconf(_SC_PHYS_PAGES), free_pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    snprintf(p->name, sizeof p->name, "reference, op by op");
    snprintf(p->compute, sizeof p->compute, "1 thread, double precision");
    snprintf(p->driver, sizeof p->driver, "-");
    snprintf(p->status, sizeof p->status, "ok");
    if (pages > 0 && page > 0) p->memory_total = (uint64_t)pages * (uint64_t)page;
    if (free_pages > 0 && page > 0) p->memory_free = (uint64_t)free_pages * (uint64_t)page;
    p->compute_units = 1;
    p->usable = true;
    return SW_OK;
}

static const sw__traits *ref_get_traits(void *dev)
{
    return dev;
}

static sw_status ref_alloc(void *dev, size_t bytes, void **buffer)
{
    (void)dev;
    void *const p = sw__malloc_aligned(REF_ALIGNMENT, bytes);
    if (!p) return sw__no_memory(bytes, "tensors on device ref");
    memset(p, 0, bytes);
    *buffer = p;
    return SW_OK;
}

static void ref_release(void *dev, void *buffer)
{
    (void)dev;
    sw__free(buffer);
}

static sw_status ref_upload(void *dev, void *buffer, size_t offset, const void *src, size_t bytes)
{
    (void)dev;
    if (bytes > 0) memcpy((char *)buffer + offset, src, bytes);
    return SW_OK;
}

static sw_status ref_download(void *dev, const void *buffer, size_t offset, void *dst, size_t bytes)
{
    (void)dev;
    if (bytes > 0) memcpy(dst, (const char *)buffer + offset, bytes);
    return SW_OK;
}

static sw_status ref_fill(void *dev, void *buffer, size_t offset, size_t bytes, uint8_t byte)
{
    (void)dev;
    if (bytes > 0) memset((char *)buffer + offset, byte, bytes);
    return SW_OK;
}

static sw_status ref_sync(void *dev)
{
    (void)dev;
    return SW_OK;
}

static void *ref_host_pointer(void *buffer)
{
    return buffer;
}

/* ---- planned ops ------------------------------------------------------------------------------------------------- */

/* The plan owns a copy of the description: the schedule may be gone when it runs. */
typedef struct ref_plan {
    const sw__ref_op *op;
    sw__op_desc d;
    sw__attr attr;
    sw__desc descs[SW__REF_MAX_IN + SW__MAX_OUT];
    char name[64];
} ref_plan;

static bool is_dense(const sw__desc *d)
{
    int64_t stride = 1;
    if (sw__ref_count(d) == 0) return true;
    for (int i = d->rank - 1; i >= 0; i--) {
        if (d->dim[i] > 1 && d->stride[i] != stride) return false;
        stride *= d->dim[i];
    }
    return true;
}

static bool ref_op_accepts(void *dev, const sw__op_desc *d, int i)
{
    (void)dev;
    return d->op == SW_OP_COPY || is_dense(&d->in[i]);
}

static sw_status check_strides(const sw__op_desc *d)
{
    if (d->op == SW_OP_COPY) return SW_OK;
    bool dense = true;
    for (int i = 0; i < d->n_in; i++) dense = dense && is_dense(&d->in[i]);
    for (int i = 0; i < d->n_out; i++) dense = dense && is_dense(&d->out[i]);
    if (dense) return SW_OK;
    return sw__fail(SW_ERR_UNSUPPORTED, "device ref: %s '%s' was given a tensor that is not dense and row-major",
                    sw__op_table[d->op].name, d->name ? d->name : "");
}

static sw_status ref_op_plan(void *dev, const sw__op_desc *d, void **plan, size_t *workspace)
{
    (void)dev;
    const sw__ref_op *const op = d->op < SW_OP_COUNT ? &sw__ref_ops[d->op] : NULL;
    if (!op || !op->run)
        return sw__fail(SW_ERR_UNSUPPORTED, "device ref has no op '%s'", op ? sw__op_table[d->op].name : "?");
    if (d->n_in > SW__REF_MAX_IN || d->n_out < 1 || d->n_out > SW__MAX_OUT)
        return sw__fail(SW_ERR_ARGUMENT, "device ref: %s was given %d inputs and %d outputs", sw__op_table[d->op].name,
                        d->n_in, d->n_out);
    SW_TRY(check_strides(d));
    if (sw__op_table[d->op].cls == SW_CLASS_OWN) SW_TRY(sw__ref_custom_check(d));
    ref_plan *const p = sw__calloc(1, sizeof *p);
    if (!p) return sw__no_memory(sizeof *p, "a planned op");
    p->op = op;
    p->d = *d;
    if (d->attr) p->attr = *d->attr;
    for (int i = 0; i < d->n_in; i++) p->descs[i] = d->in[i];
    for (int i = 0; i < d->n_out; i++) p->descs[d->n_in + i] = d->out[i];
    snprintf(p->name, sizeof p->name, "%s", d->name ? d->name : "");
    p->d.attr = &p->attr;
    p->d.in = p->descs;
    p->d.out = p->descs + d->n_in;
    p->d.name = p->name;
    *workspace = op->workspace ? op->workspace(&p->d) : 0;
    *plan = p;
    return SW_OK;
}

static void ref_op_free(void *dev, void *plan)
{
    (void)dev;
    sw__free(plan);
}

static char *address(const sw__bind *b)
{
    return b->buffer ? (char *)b->buffer + b->offset : NULL;
}

static sw_status ref_op_exec(void *dev, void *plan, const sw__bind *bind)
{
    (void)dev;
    const ref_plan *const p = plan;
    sw__ref_call c = { .d = &p->d, .attr = &p->attr };
    for (int i = 0; i < p->d.n_in; i++) c.in[i] = address(&bind[i]);
    for (int i = 0; i < p->d.n_out; i++) c.out[i] = address(&bind[p->d.n_in + i]);
    if (p->op->workspace) c.work = address(&bind[p->d.n_in + p->d.n_out]);
    return p->op->run(&c);
}

static const char *ref_op_note(void *plan)
{
    (void)plan;
    return "double precision";
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* clang-format off */
const sw__backend sw__backend_ref = {
    .name = "ref",
    .count = ref_count, .open = ref_open, .close = ref_close, .properties = ref_properties, .traits = ref_get_traits,
    .alloc = ref_alloc, .release = ref_release, .upload = ref_upload, .download = ref_download, .fill = ref_fill,
    .sync = ref_sync, .host_pointer = ref_host_pointer,
    .op_accepts = ref_op_accepts, .op_plan = ref_op_plan, .op_free = ref_op_free, .op_exec = ref_op_exec,
    .op_note = ref_op_note,
    .source_build = sw__ref_source_build, .source_free = sw__ref_source_free, .source_launch = sw__ref_source_launch,
};
/* clang-format on */
