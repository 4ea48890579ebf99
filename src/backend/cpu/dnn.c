/* dnn.c: see dnn.h. The only file that includes oneDNN's headers; what differs between 2.x and 3.x stands first. */
#include "backend/cpu/dnn.h"
#include "backend/cpu/dnn_load.h"

#include <pthread.h>
#include <stdio.h>

static const sw__dnn_library *dnn; /* set by sw__dnn_open, which everything else needs first */

/* ---- 2.x and 3.x ------------------------------------------------------------------------------------------------- */

typedef struct conv_shape {
    sw__dnn_direction direction;
    dnnl_dims_t stride, dilate, pad_lo, pad_hi;
    bool narrow;
    dnnl_prop_kind_t forward;
} conv_shape;

#define DIRECT dnnl_convolution_direct

#if DNNL_VERSION_MAJOR >= 3 /* a memory descriptor is a handle, a primitive descriptor is made in one call */
typedef const_dnnl_memory_desc_t md_ref;
typedef struct md { dnnl_memory_desc_t v; } md;

static md_ref ref(const md *m)
{
    return m->v;
}

static dnnl_status_t md_init(md *m, dnnl_data_type_t type, int rank, const dnnl_dims_t dim, const dnnl_dims_t stride)
{
    return stride != NULL ? dnn->dnnl_memory_desc_create_with_strides(&m->v, rank, dim, type, stride)
                          : dnn->dnnl_memory_desc_create_with_tag(&m->v, rank, dim, type, dnnl_format_tag_any);
}

static void md_free(md *m)
{
    if (m->v != NULL) dnn->dnnl_memory_desc_destroy(m->v);
    m->v = NULL;
}

static dnnl_status_t matmul_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dnnl_primitive_attr_t attr, md_ref a,
                               md_ref b, md_ref bias, md_ref c)
{
    return dnn->dnnl_matmul_primitive_desc_create(pd, e, a, b, bias, c, attr);
}

/* skip: so many of the implementations that oneDNN would take first. */
static dnnl_status_t conv_pd_first(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dnnl_primitive_attr_t attr,
                                   const conv_shape *s, dnnl_primitive_desc_t hint, md_ref x, md_ref w, md_ref bias,
                                   md_ref y)
{
    switch (s->direction) {
    case SW_DNN_GRAD_X:
        return dnn->dnnl_convolution_backward_data_primitive_desc_create(pd, e, DIRECT, x, w, y, s->stride,
                                                                    s->dilate, s->pad_lo, s->pad_hi, hint, attr);
    case SW_DNN_GRAD_W:
        return dnn->dnnl_convolution_backward_weights_primitive_desc_create(
            pd, e, DIRECT, x, w, NULL, y, s->stride, s->dilate, s->pad_lo, s->pad_hi, hint, attr);
    case SW_DNN_FORWARD:
    default:
        return dnn->dnnl_convolution_forward_primitive_desc_create(pd, e, s->forward, DIRECT, x,
                                                              w, bias, y, s->stride, s->dilate, s->pad_lo, s->pad_hi,
                                                              attr);
    }
}

static dnnl_status_t conv_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dnnl_primitive_attr_t attr,
                             const conv_shape *s, int skip, dnnl_primitive_desc_t hint, md_ref x, md_ref w, md_ref bias,
                             md_ref y)
{
    dnnl_status_t st = conv_pd_first(pd, e, attr, s, hint, x, w, bias, y);
    if (st != dnnl_success) return st;
    for (; skip > 0 && st == dnnl_success; skip--) st = dnn->dnnl_primitive_desc_next_impl(*pd);
    if (st != dnnl_success) {
        dnn->dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
    return st;
}
#else /* a memory descriptor is a struct, a primitive descriptor is made of an op descriptor */
typedef const dnnl_memory_desc_t *md_ref;
typedef struct md { dnnl_memory_desc_t v; } md;

static md_ref ref(const md *m)
{
    return &m->v;
}

static dnnl_status_t md_init(md *m, dnnl_data_type_t type, int rank, const dnnl_dims_t dim, const dnnl_dims_t stride)
{
    return stride != NULL ? dnn->dnnl_memory_desc_init_by_strides(&m->v, rank, dim, type, stride)
                          : dnn->dnnl_memory_desc_init_by_tag(&m->v, rank, dim, type, dnnl_format_tag_any);
}

static void md_free(md *m)
{
    (void)m;
}

static dnnl_status_t matmul_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dnnl_primitive_attr_t attr, md_ref a,
                               md_ref b, md_ref bias, md_ref c)
{
    dnnl_matmul_desc_t d;
    const dnnl_status_t s = dnn->dnnl_matmul_desc_init(&d, a, b, bias, c);
    return s == dnnl_success ? dnn->dnnl_primitive_desc_create(pd, &d, attr, e, NULL) : s;
}

static dnnl_status_t conv_descriptor_of(dnnl_convolution_desc_t *d, const conv_shape *s, md_ref x, md_ref w,
                                        md_ref bias, md_ref y)
{
    switch (s->direction) {
    case SW_DNN_GRAD_X:
        return dnn->dnnl_dilated_convolution_backward_data_desc_init(d, DIRECT, x, w, y, s->stride,
                                                                s->dilate, s->pad_lo, s->pad_hi);
    case SW_DNN_GRAD_W:
        return dnn->dnnl_dilated_convolution_backward_weights_desc_init(d, DIRECT, x, w, NULL, y, s->stride,
                                                                   s->dilate, s->pad_lo, s->pad_hi);
    case SW_DNN_FORWARD:
    default:
        return dnn->dnnl_dilated_convolution_forward_desc_init(d, s->forward, DIRECT, x, w, bias,
                                                          y, s->stride, s->dilate, s->pad_lo, s->pad_hi);
    }
}

static dnnl_status_t conv_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dnnl_primitive_attr_t attr,
                             const conv_shape *s, int skip, dnnl_primitive_desc_t hint, md_ref x, md_ref w, md_ref bias,
                             md_ref y)
{
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_status_t st = conv_descriptor_of(&d, s, x, w, bias, y);
    if (st == dnnl_success) st = dnn->dnnl_primitive_desc_iterator_create(&it, &d, attr, e, hint);
    for (; skip > 0 && st == dnnl_success; skip--) st = dnn->dnnl_primitive_desc_iterator_next(it);
    if (st == dnnl_success) *pd = dnn->dnnl_primitive_desc_iterator_fetch(it);
    if (it != NULL) dnn->dnnl_primitive_desc_iterator_destroy(it);
    return st == dnnl_success && *pd == NULL ? dnnl_out_of_memory : st;
}
#endif

/* ---- status ------------------------------------------------------------------------------------------------------ */

static sw_status failed(dnnl_status_t s, const char *what)
{
    const sw_status kind = s == dnnl_out_of_memory   ? SW_ERR_MEMORY
                           : s == dnnl_unimplemented ? SW_ERR_UNSUPPORTED
                                                     : SW_ERR_DEVICE;
    return sw__fail(kind, "oneDNN %s: %s", what, dnn->dnnl_status2str(s));
}

#define DNN_TRY(call, what)                                                                                            \
    do {                                                                                                               \
        const dnnl_status_t dnn_try_ = (call);                                                                         \
        if (dnn_try_ != dnnl_success) return failed(dnn_try_, what);                                                   \
    } while (0)

/* ---- engine ------------------------------------------------------------------------------------------------------ */

struct sw__dnn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

static pthread_once_t isa_once = PTHREAD_ONCE_INIT;
static int isa_level;

/* Refused once a primitive was made in this process by somebody else; then oneDNN keeps the level that it has. */
static void limit_isa(void)
{
    dnn->dnnl_set_max_cpu_isa(isa_level == 0 ? dnnl_cpu_isa_sse41 : dnnl_cpu_isa_avx2);
}

sw_status sw__dnn_open(int simd_level, sw__dnn **out)
{
    SW_TRY(sw__dnn_load(&dnn));
    if (simd_level < 2) {
        isa_level = simd_level;
        pthread_once(&isa_once, limit_isa);
    }
    sw__dnn *const d = sw__calloc(1, sizeof *d);
    if (d == NULL) return sw__no_memory(sizeof *d, "the oneDNN engine");
    dnnl_status_t s = dnn->dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (s == dnnl_success) s = dnn->dnnl_stream_create(&d->stream, d->engine, dnnl_stream_in_order);
    if (s != dnnl_success) {
        sw__dnn_close(d);
        return failed(s, "engine");
    }
    *out = d;
    return SW_OK;
}

void sw__dnn_close(sw__dnn *d)
{
    if (d == NULL) return;
    if (d->stream != NULL) dnn->dnnl_stream_destroy(d->stream);
    if (d->engine != NULL) dnn->dnnl_engine_destroy(d->engine);
    sw__free(d);
}

sw_status sw__dnn_version(char *buf, size_t size)
{
    SW_TRY(sw__dnn_load(&dnn));
    const dnnl_version_t *const v = dnn->dnnl_version();
    snprintf(buf, size, "%d.%d.%d", v->major, v->minor, v->patch);
    return SW_OK;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

#define MAX_OPERANDS 4
#define WORKSPACE_ALIGN 64

/* `user` is the tensor as it lies in memory; prim_mem, where it differs, what the primitive reads or writes instead. */
typedef struct operand {
    int arg, slot;
    bool result, packed;              /* packed: the reorder is no part of a run */
    md user;
    dnnl_memory_t user_mem, prim_mem; /* prim_mem NULL: the primitive takes user_mem */
    size_t offset;                    /* of prim_mem in the workspace */
    dnnl_primitive_t reorder;
    dnnl_exec_arg_t reorder_args[3];
    int n_reorder_args;
    size_t packed_bytes;
} operand;

struct sw__dnn_job {
    sw__dnn *dnn;
    dnnl_primitive_t prim;
    dnnl_memory_t scratch; /* shared by primitive and reorders, which run one after the other; NULL: none needed */
    size_t scratch_bytes, scratch_offset, workspace;
    int n, n_args, reorders;
    operand op[MAX_OPERANDS];
    dnnl_exec_arg_t args[MAX_OPERANDS + 1];
    char note[96];
};

static size_t align_up(size_t bytes)
{
    return (bytes + WORKSPACE_ALIGN - 1) & ~(size_t)(WORKSPACE_ALIGN - 1);
}

/* A tensor as oneDNN is to see it: from its strides, or with the format left open. `groups` > 0 splits the first axis
 * of a weight. */
static dnnl_status_t describe(md *m, const sw__desc *d, bool any, int64_t groups)
{
    dnnl_dims_t dim, stride;
    int rank = 0;
    if (groups > 0) {
        dim[0] = groups;
        stride[0] = d->stride[0] * (d->dim[0] / groups);
        dim[1] = d->dim[0] / groups;
        stride[1] = d->stride[0];
        rank = 2;
    }
    for (int i = groups > 0 ? 1 : 0; i < d->rank; i++, rank++) {
        dim[rank] = d->dim[i];
        stride[rank] = d->stride[i];
    }
    return md_init(m, d->dtype == SW_BF16 ? dnnl_bf16 : dnnl_f32, rank, dim, any ? NULL : stride);
}

static dnnl_status_t make_attr(dnnl_primitive_attr_t *attr)
{
    const dnnl_status_t s = dnn->dnnl_primitive_attr_create(attr);
    return s == dnnl_success ? dnn->dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) : s;
}

static size_t scratch_size(dnnl_primitive_desc_t pd)
{
    const md_ref m = dnn->dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return m != NULL ? dnn->dnnl_memory_desc_get_size(m) : 0;
}

/* Makes the handles of one operand and, if the primitive wants another format, the reorder. */
static sw_status bind_operand(sw__dnn_job *j, operand *o, dnnl_primitive_desc_t pd)
{
    dnnl_engine_t engine = j->dnn->engine;
    const md_ref wanted = dnn->dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, o->arg);
    if (wanted == NULL) return failed(dnnl_runtime_error, "query of an operand's format");
    DNN_TRY(dnn->dnnl_memory_create(&o->user_mem, ref(&o->user), engine, DNNL_MEMORY_NONE), "memory handle");
    if (dnn->dnnl_memory_desc_equal(wanted, ref(&o->user))) return SW_OK;

    DNN_TRY(dnn->dnnl_memory_create(&o->prim_mem, wanted, engine, DNNL_MEMORY_NONE), "memory handle");
    const size_t wanted_bytes = dnn->dnnl_memory_desc_get_size(wanted);
    if (o->packed) o->packed_bytes = wanted_bytes;
    o->offset = j->workspace;
    if (!o->packed) j->workspace += align_up(wanted_bytes);

    dnnl_primitive_attr_t attr = NULL; /* packing is no part of a run: it may have a scratchpad of its own */
    dnnl_primitive_desc_t reorder;
    if (!o->packed) DNN_TRY(make_attr(&attr), "attribute");
    const md_ref from = o->result ? wanted : ref(&o->user), to = o->result ? ref(&o->user) : wanted;
    const dnnl_status_t s = dnn->dnnl_reorder_primitive_desc_create(&reorder, from, engine, to, engine, attr);
    if (attr != NULL) dnn->dnnl_primitive_attr_destroy(attr);
    if (s != dnnl_success) return failed(s, "reorder");
    const size_t bytes = o->packed ? 0 : scratch_size(reorder);
    if (bytes > j->scratch_bytes) j->scratch_bytes = bytes;
    const dnnl_status_t made = dnn->dnnl_primitive_create(&o->reorder, reorder);
    dnn->dnnl_primitive_desc_destroy(reorder);
    if (made != dnnl_success) return failed(made, "reorder");
    if (!o->packed) j->reorders++;
    return SW_OK;
}

static sw_status make_scratch(sw__dnn_job *j)
{
    if (j->scratch_bytes == 0) return SW_OK;
    /* bytes as floats: the type does not matter to the primitive, and u8 has no md_init */
    md m;
    memset(&m, 0, sizeof m);
    const dnnl_dims_t dim = {(int64_t)((j->scratch_bytes + 3) / 4)}, stride = {1};
    DNN_TRY(md_init(&m, dnnl_f32, 1, dim, stride), "scratchpad");
    const dnnl_status_t s = dnn->dnnl_memory_create(&j->scratch, ref(&m), j->dnn->engine, DNNL_MEMORY_NONE);
    md_free(&m);
    if (s != dnnl_success) return failed(s, "scratchpad");
    j->scratch_offset = j->workspace;
    j->workspace += align_up(j->scratch_bytes);
    return SW_OK;
}

static void make_args(sw__dnn_job *j)
{
    for (int i = 0; i < j->n; i++) {
        operand *const o = &j->op[i];
        j->args[j->n_args++] = (dnnl_exec_arg_t){o->arg, o->prim_mem != NULL ? o->prim_mem : o->user_mem};
        if (o->reorder == NULL) continue;
        o->reorder_args[0] = (dnnl_exec_arg_t){DNNL_ARG_FROM, o->result ? o->prim_mem : o->user_mem};
        o->reorder_args[1] = (dnnl_exec_arg_t){DNNL_ARG_TO, o->result ? o->user_mem : o->prim_mem};
        o->n_reorder_args = 2;
        if (j->scratch != NULL && !o->packed)
            o->reorder_args[o->n_reorder_args++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, j->scratch};
    }
    if (j->scratch != NULL) j->args[j->n_args++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, j->scratch};
}

/* From a primitive descriptor to a job ready to run; frees the descriptor. */
static sw_status finish(sw__dnn_job *j, dnnl_primitive_desc_t pd)
{
    const char *impl = "?";
    dnn->dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl);
    j->scratch_bytes = scratch_size(pd);
    sw_status st = SW_OK;
    for (int i = 0; i < j->n && st == SW_OK; i++) st = bind_operand(j, &j->op[i], pd);
    if (st == SW_OK) {
        const dnnl_status_t s = dnn->dnnl_primitive_create(&j->prim, pd);
        if (s != dnnl_success) st = failed(s, "primitive");
    }
    snprintf(j->note, sizeof j->note, j->reorders == 1 ? "%s, %d reorder" : "%s, %d reorders", impl, j->reorders);
    dnn->dnnl_primitive_desc_destroy(pd);
    if (st == SW_OK) st = make_scratch(j);
    if (st == SW_OK) make_args(j);
    return st;
}

static sw_status add_operand(sw__dnn_job *j, int arg, const sw__dnn_operand *o, bool result, int64_t groups)
{
    operand *const to = &j->op[j->n];
    to->arg = arg;
    to->slot = o->slot;
    to->result = result;
    to->packed = o->format == SW_DNN_PACKED;
    DNN_TRY(describe(&to->user, &o->desc, false, groups), "memory descriptor");
    j->n++;
    return SW_OK;
}

static sw_status new_job(sw__dnn *d, sw__dnn_job **out)
{
    *out = sw__calloc(1, sizeof **out);
    if (*out == NULL) return sw__no_memory(sizeof **out, "a oneDNN job");
    (*out)->dnn = d;
    return SW_OK;
}

/* What the primitive is offered. */
static dnnl_status_t offer(const sw__dnn_operand *o, int64_t groups, md *m)
{
    const sw__desc *const d = o->format == SW_DNN_GIVEN ? &o->want : &o->desc;
    return describe(m, d, o->format == SW_DNN_ANY || o->format == SW_DNN_PACKED, groups > 1 ? groups : 0);
}

/* ---- matmul ------------------------------------------------------------------------------------------------------ */

static sw_status matmul_operands(sw__dnn_job *j, const sw__dnn_operand *a, const sw__dnn_operand *b,
                                 const sw__dnn_operand *bias, const sw__dnn_operand *c)
{
    SW_TRY(add_operand(j, DNNL_ARG_SRC, a, false, 0));
    SW_TRY(add_operand(j, DNNL_ARG_WEIGHTS, b, false, 0));
    SW_TRY(add_operand(j, DNNL_ARG_DST, c, true, 0));
    if (bias == NULL) return SW_OK;
    sw__dnn_operand row = {.slot = bias->slot};
    row.desc = c->desc;
    for (int i = 0; i < c->desc.rank; i++) {
        row.desc.dim[i] = i == c->desc.rank - 1 ? bias->desc.dim[0] : 1;
        row.desc.stride[i] = bias->desc.dim[0];
    }
    row.desc.stride[c->desc.rank - 1] = 1;
    return add_operand(j, DNNL_ARG_BIAS, &row, false, 0);
}

static sw_status matmul_make(sw__dnn_job *j, const sw__dnn_operand *a, const sw__dnn_operand *b,
                             const sw__dnn_operand *bias, const sw__dnn_operand *c)
{
    SW_TRY(matmul_operands(j, a, b, bias, c));
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    md right;
    memset(&right, 0, sizeof right);
    dnnl_status_t s = offer(b, 0, &right);
    if (s == dnnl_success) s = make_attr(&attr);
    if (s == dnnl_success)
        s = matmul_pd(&pd, j->dnn->engine, attr, ref(&j->op[0].user), ref(&right),
                      bias != NULL ? ref(&j->op[3].user) : NULL, ref(&j->op[2].user));
    md_free(&right);
    if (attr != NULL) dnn->dnnl_primitive_attr_destroy(attr);
    return s == dnnl_success ? finish(j, pd) : failed(s, "matmul");
}

sw_status sw__dnn_matmul(sw__dnn *d, const sw__dnn_operand *a, const sw__dnn_operand *b, const sw__dnn_operand *bias,
                         const sw__dnn_operand *c, sw__dnn_job **out)
{
    sw__dnn_job *j;
    SW_TRY(new_job(d, &j));
    const sw_status st = matmul_make(j, a, b, bias, c);
    if (st == SW_OK) *out = j;
    else sw__dnn_free(j);
    return st;
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

static void shape_of(const sw__attr *a, sw__dnn_direction direction, conv_shape *s)
{
    s->direction = direction;
    for (int i = 0; i < a->conv.nd; i++) {
        s->stride[i] = a->conv.stride[i];
        s->dilate[i] = a->conv.dilation[i] - 1;
        s->pad_lo[i] = a->conv.pad_lo[i];
        s->pad_hi[i] = a->conv.pad_hi[i];
    }
}

static sw_status conv_operands(sw__dnn_job *j, sw__dnn_direction dir, int64_t groups, const sw__dnn_operand *x,
                               const sw__dnn_operand *w, const sw__dnn_operand *bias, const sw__dnn_operand *y)
{
    const bool fwd = dir == SW_DNN_FORWARD, gx = dir == SW_DNN_GRAD_X, gw = dir == SW_DNN_GRAD_W;
    SW_TRY(add_operand(j, gx ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x, gx, 0));
    SW_TRY(add_operand(j, gw ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, w, gw, groups > 1 ? groups : 0));
    SW_TRY(add_operand(j, fwd ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y, fwd, 0));
    return bias != NULL ? add_operand(j, DNNL_ARG_BIAS, bias, false, 0) : SW_OK;
}

static bool named(dnnl_primitive_desc_t pd, const char *start)
{
    const char *impl = "";
    dnn->dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl);
    return strncmp(impl, start, strlen(start)) == 0;
}

static dnnl_status_t conv_descriptor(sw__dnn_job *j, const conv_shape *shape, const md offered[3], bool bias,
                                     dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_engine_t engine = j->dnn->engine;
    const md_ref x = ref(&offered[0]), w = ref(&offered[1]), y = ref(&offered[2]);
    dnnl_status_t s = make_attr(&attr);
    if (s == dnnl_success && shape->direction != SW_DNN_FORWARD) {
        conv_shape forward = *shape;
        forward.direction = SW_DNN_FORWARD;
        s = conv_pd(&hint, engine, attr, &forward, 0, NULL, x, w, NULL, y);
    }
    const md_ref b = bias ? ref(&j->op[3].user) : NULL;
    if (s == dnnl_success) s = conv_pd(pd, engine, attr, shape, 0, hint, x, w, b, y);
    for (int skip = 1; s == dnnl_success && shape->narrow && named(*pd, "brg") && skip < 8; skip++) {
        dnnl_primitive_desc_t other = NULL;
        if (conv_pd(&other, engine, attr, shape, skip, hint, x, w, b, y) != dnnl_success) break;
        dnnl_primitive_desc_t worse = other;
        if (named(other, "jit:")) {
            worse = *pd;
            *pd = other;
        }
        dnn->dnnl_primitive_desc_destroy(worse);
    }
    if (hint != NULL) dnn->dnnl_primitive_desc_destroy(hint);
    if (attr != NULL) dnn->dnnl_primitive_attr_destroy(attr);
    return s;
}

static sw_status conv_make(sw__dnn_job *j, const conv_shape *shape, int64_t groups, const sw__dnn_operand *x,
                           const sw__dnn_operand *w, const sw__dnn_operand *bias, const sw__dnn_operand *y)
{
    SW_TRY(conv_operands(j, shape->direction, groups, x, w, bias, y));
    md offered[3];
    memset(offered, 0, sizeof offered);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = offer(x, 0, &offered[0]);
    if (s == dnnl_success) s = offer(w, groups, &offered[1]);
    if (s == dnnl_success) s = offer(y, 0, &offered[2]);
    if (s == dnnl_success) s = conv_descriptor(j, shape, offered, bias != NULL, &pd);
    for (int i = 0; i < 3; i++) md_free(&offered[i]);
    return s == dnnl_success ? finish(j, pd) : failed(s, "convolution");
}

sw_status sw__dnn_conv(sw__dnn *d, sw__dnn_direction direction, const sw__attr *attr, bool narrow,
                       const sw__dnn_operand *x, const sw__dnn_operand *w, const sw__dnn_operand *bias,
                       const sw__dnn_operand *y, sw__dnn_job **out)
{
    const bool training = direction != SW_DNN_FORWARD || w->format != SW_DNN_PACKED;
    conv_shape shape = {.narrow = narrow, .forward = training ? dnnl_forward_training : dnnl_forward_inference};
    shape_of(attr, direction, &shape);
    sw__dnn_job *j;
    SW_TRY(new_job(d, &j));
    const sw_status st = conv_make(j, &shape, attr->conv.groups, x, w, bias, y);
    if (st == SW_OK) *out = j;
    else sw__dnn_free(j);
    return st;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

size_t sw__dnn_workspace(const sw__dnn_job *j)
{
    return j->workspace;
}

const char *sw__dnn_note(const sw__dnn_job *j)
{
    return j->note;
}

static sw_status set_handles(sw__dnn_job *j, void *const *ptr, char *workspace)
{
    for (int i = 0; i < j->n; i++) {
        operand *const o = &j->op[i];
        if (o->packed && o->prim_mem != NULL) {
            DNN_TRY(dnn->dnnl_memory_set_data_handle(o->prim_mem, ptr[o->slot]), "data handle");
            continue;
        }
        DNN_TRY(dnn->dnnl_memory_set_data_handle(o->user_mem, ptr[o->slot]), "data handle");
        if (o->prim_mem != NULL)
            DNN_TRY(dnn->dnnl_memory_set_data_handle(o->prim_mem, workspace + o->offset), "data handle");
    }
    if (j->scratch != NULL)
        DNN_TRY(dnn->dnnl_memory_set_data_handle(j->scratch, workspace + j->scratch_offset), "data handle");
    return SW_OK;
}

sw_status sw__dnn_run(sw__dnn_job *j, void *const *ptr, void *workspace)
{
    dnnl_stream_t stream = j->dnn->stream;
    SW_TRY(set_handles(j, ptr, workspace));
    for (int i = 0; i < j->n; i++) {
        const operand *const o = &j->op[i];
        if (o->reorder != NULL && !o->result && !o->packed)
            DNN_TRY(dnn->dnnl_primitive_execute(o->reorder, stream, o->n_reorder_args, o->reorder_args), "reorder");
    }
    DNN_TRY(dnn->dnnl_primitive_execute(j->prim, stream, j->n_args, j->args), "execution");
    for (int i = 0; i < j->n; i++) {
        const operand *const o = &j->op[i];
        if (o->reorder != NULL && o->result)
            DNN_TRY(dnn->dnnl_primitive_execute(o->reorder, stream, o->n_reorder_args, o->reorder_args), "reorder");
    }
    DNN_TRY(dnn->dnnl_stream_wait(stream), "stream");
    return SW_OK;
}

static operand *find_packed(const sw__dnn_job *j, int slot)
{
    for (int i = 0; i < j->n; i++)
        if (j->op[i].slot == slot && j->op[i].packed_bytes > 0) return (operand *)&j->op[i];
    return NULL;
}

size_t sw__dnn_packed(const sw__dnn_job *j, int slot)
{
    const operand *const o = find_packed(j, slot);
    return o != NULL ? o->packed_bytes : 0;
}

sw_status sw__dnn_pack(sw__dnn_job *j, int slot, void *from, void *to)
{
    operand *const o = find_packed(j, slot);
    if (o == NULL) return sw__fail(SW_ERR_ARGUMENT, "oneDNN: operand %d is not packed", slot);
    DNN_TRY(dnn->dnnl_memory_set_data_handle(o->user_mem, from), "data handle");
    DNN_TRY(dnn->dnnl_memory_set_data_handle(o->prim_mem, to), "data handle");
    DNN_TRY(dnn->dnnl_primitive_execute(o->reorder, j->dnn->stream, o->n_reorder_args, o->reorder_args), "packing");
    DNN_TRY(dnn->dnnl_stream_wait(j->dnn->stream), "stream");
    return SW_OK;
}

void sw__dnn_free(sw__dnn_job *j)
{
    if (j == NULL) return;
    for (int i = 0; i < MAX_OPERANDS; i++) {
        operand *const o = &j->op[i];
        if (o->user_mem != NULL) dnn->dnnl_memory_destroy(o->user_mem);
        if (o->prim_mem != NULL) dnn->dnnl_memory_destroy(o->prim_mem);
        if (o->reorder != NULL) dnn->dnnl_primitive_destroy(o->reorder);
        md_free(&o->user);
    }
    if (j->scratch != NULL) dnn->dnnl_memory_destroy(j->scratch);
    if (j->prim != NULL) dnn->dnnl_primitive_destroy(j->prim);
    sw__free(j);
}
