/* null.c: a device that is not there: it allocates and checks, and computes nothing. For plans, and for tests of all
 * that stands above a backend. One of the backends under exec/.
 *
 * It behaves as a GPU with memory of its own: no host pointers, kernels fused, layouts chosen, workspaces wanted. What
 * it checks: that every handle is one of its own and alive, that every transfer and every access of a launch lies
 * inside its buffer, that nothing is left when the device is closed. Downloads give zeros. */
#include "backend/null/null.h"
#include "backend/desc.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define NULL_MEMORY ((uint64_t)1 << 36) /* 64 GiB, as a big GPU has; SWOOP_NULL_MEMORY: other bytes, for tests */
#define NULL_ALIGNMENT 256
#define NULL_STAGE_BYTES 4096 /* workspace of a reduction in two stages */

typedef enum object_kind { BUFFER, KERNEL, PLAN } object_kind;

static const char *const kind_name[] = { "buffer", "kernel", "planned op" };

/* What a handle points to. Released objects stay in the list until the device is closed, so that a use after release is
 * found and not merely crashes. */
typedef struct object {
    struct object *next;
    object_kind kind;
    bool alive;
    size_t bytes;       /* BUFFER: size */
    int n_binds;        /* KERNEL, PLAN: what a launch binds, the workspace included */
    size_t *need;       /* KERNEL, PLAN: bytes from the bound offset on that the launch may touch, for each bind */
    char name[64];
} object;

typedef struct device {
    object *objects;
    uint64_t used, memory;
} device;

static _Atomic uint64_t faults;

uint64_t sw__null_faults(void)
{
    return faults;
}

/* Counts, logs and records it as the error. */
static void fault(const char *fmt, ...) SW_PRINTF(1, 2);

static void fault(const char *fmt, ...)
{
    va_list ap;
    faults++;
    va_start(ap, fmt);
    sw__failv(SW_ERR_DEVICE, fmt, ap);
    va_end(ap);
    sw__log(SW_LOG_ERROR, "%s", sw_error());
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

static sw_status object_new(device *dev, object_kind kind, const char *name, object **out)
{
    object *const o = sw__calloc(1, sizeof *o);
    if (!o) return sw__no_memory(sizeof *o, "a handle of device null");
    o->kind = kind;
    o->alive = true;
    snprintf(o->name, sizeof o->name, "%s", name ? name : "");
    o->next = dev->objects;
    dev->objects = o;
    *out = o;
    return SW_OK;
}

/* The handle as an object, once it is known to be one of this device's, alive and of this kind. */
static sw_status object_of(const device *dev, const void *handle, object_kind kind, object **out)
{
    object *o = dev->objects;
    while (o && o != handle) o = o->next;
    if (!o) {
        fault("device null: %p is no %s of this device", handle, kind_name[kind]);
        return SW_ERR_DEVICE;
    }
    if (o->kind != kind) {
        fault("device null: a %s given for a %s", kind_name[o->kind], kind_name[kind]);
        return SW_ERR_DEVICE;
    }
    if (!o->alive) {
        fault("device null: %s '%s' is used after it was released", kind_name[kind], o->name);
        return SW_ERR_DEVICE;
    }
    *out = o;
    return SW_OK;
}

static void object_release(device *dev, void *handle, object_kind kind)
{
    object *o = NULL;
    if (!handle || object_of(dev, handle, kind, &o) != SW_OK) return;
    o->alive = false;
    sw__free(o->need);
    o->need = NULL;
    if (kind == BUFFER) dev->used -= o->bytes;
}

/* ---- device ------------------------------------------------------------------------------------------------------ */

/* clang-format off */
static const sw__traits null_traits = {
    .fuse = true, .views = true, .float_storage = SW_F32, .alignment = NULL_ALIGNMENT, .compute_units = 64,
    .takes = {
        [SW_OP_ARGMAX] = true, [SW_OP_ARGMIN] = true, [SW_OP_SCAN_SUM] = true, [SW_OP_SORT] = true,
        [SW_OP_ARGSORT] = true, [SW_OP_SCATTER_ADD] = true, [SW_OP_SCATTER_SET] = true, [SW_OP_SCATTER_MAX] = true,
        [SW_OP_DOT] = true, [SW_OP_MATMUL] = true, [SW_OP_CONV] = true, [SW_OP_CONV_GRAD_X] = true,
        [SW_OP_CONV_GRAD_W] = true, [SW_OP_MAX_POOL] = true, [SW_OP_MAX_POOL_GRAD] = true, [SW_OP_AVG_POOL] = true,
        [SW_OP_AVG_POOL_GRAD] = true, [SW_OP_EMBEDDING_GRAD] = true, [SW_OP_ALL_REDUCE] = true,
        [SW_OP_ATTENTION] = true, [SW_OP_ATTENTION_GRAD] = true,
        [SW_OP_CUSTOM] = true, [SW_OP_CUSTOM_GRAD] = true,
    },
    .channels_last = {
        [SW_OP_CONV] = true, [SW_OP_CONV_GRAD_X] = true, [SW_OP_CONV_GRAD_W] = true, [SW_OP_MAX_POOL] = true,
        [SW_OP_MAX_POOL_GRAD] = true, [SW_OP_AVG_POOL] = true, [SW_OP_AVG_POOL_GRAD] = true,
    },
    .bias_act = { [SW_OP_MATMUL] = true, [SW_OP_CONV] = true },
};
/* clang-format on */

static uint64_t memory(void)
{
    const char *const wish = getenv("SWOOP_NULL_MEMORY");
    const uint64_t bytes = wish ? strtoull(wish, NULL, 10) : 0;
    return bytes > 0 ? bytes : NULL_MEMORY;
}

static int null_count(void)
{
    return 1;
}

static sw_status null_open(int index, const sw_device_options *o, void **dev)
{
    (void)index;
    (void)o;
    device *const d = sw__calloc(1, sizeof *d);
    if (!d) return sw__no_memory(sizeof *d, "device null");
    d->memory = memory();
    *dev = d;
    return SW_OK;
}

static void null_close(void *dev)
{
    device *const d = dev;
    for (object *o = d->objects, *next; o; o = next) {
        next = o->next;
        if (o->alive) fault("device null was closed while %s '%s' was not released", kind_name[o->kind], o->name);
        sw__free(o->need);
        sw__free(o);
    }
    sw__free(d);
}

static sw_status null_properties(int index, sw_device_properties *p)
{
    (void)index;
    snprintf(p->name, sizeof p->name, "no device: plans and checks only");
    snprintf(p->compute, sizeof p->compute, "computes nothing");
    snprintf(p->driver, sizeof p->driver, "-");
    snprintf(p->status, sizeof p->status, "ok");
    p->memory_total = memory();
    p->memory_free = memory();
    p->compute_units = null_traits.compute_units;
    p->usable = true;
    return SW_OK;
}

static const sw__traits *null_get_traits(void *dev)
{
    (void)dev;
    return &null_traits;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static sw_status null_alloc(void *dev, size_t bytes, void **buffer)
{
    device *const d = dev;
    if (bytes > d->memory - d->used)
        return sw__fail(SW_ERR_MEMORY, "device null is out of memory: %zu bytes wanted, %llu of %llu in use", bytes,
                        (unsigned long long)d->used, (unsigned long long)d->memory);
    object *o = NULL;
    char name[64];
    snprintf(name, sizeof name, "of %zu bytes", bytes);
    SW_TRY(object_new(d, BUFFER, name, &o));
    o->bytes = bytes;
    d->used += bytes;
    *buffer = o;
    return SW_OK;
}

static void null_release(void *dev, void *buffer)
{
    object_release(dev, buffer, BUFFER);
}

static sw_status check_range(const device *dev, const void *buffer, size_t offset, size_t bytes, const char *what)
{
    object *o = NULL;
    if (bytes == 0 && !buffer) return SW_OK; /* an empty tensor needs no memory */
    SW_TRY(object_of(dev, buffer, BUFFER, &o));
    if (offset <= o->bytes && bytes <= o->bytes - offset) return SW_OK;
    fault("device null: %s of %zu bytes at offset %zu leaves its buffer of %zu bytes", what, bytes, offset,
          o->bytes);
    return SW_ERR_DEVICE;
}

static sw_status null_upload(void *dev, void *buffer, size_t offset, const void *src, size_t bytes)
{
    if (!src && bytes > 0) {
        fault("device null: an upload of %zu bytes from NULL", bytes);
        return SW_ERR_DEVICE;
    }
    return check_range(dev, buffer, offset, bytes, "an upload");
}

static sw_status null_download(void *dev, const void *buffer, size_t offset, void *dst, size_t bytes)
{
    if (!dst && bytes > 0) {
        fault("device null: a download of %zu bytes to NULL", bytes);
        return SW_ERR_DEVICE;
    }
    SW_TRY(check_range(dev, buffer, offset, bytes, "a download"));
    if (bytes > 0) memset(dst, 0, bytes);
    return SW_OK;
}

static sw_status null_fill(void *dev, void *buffer, size_t offset, size_t bytes, uint8_t byte)
{
    (void)byte;
    return check_range(dev, buffer, offset, bytes, "a fill");
}

static sw_status null_sync(void *dev)
{
    (void)dev;
    return SW_OK;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static sw_status new_launchable(device *dev, object_kind kind, const char *name, int n_binds, object **out)
{
    size_t *const need = sw__calloc((size_t)n_binds, sizeof *need);
    if (!need) return sw__no_memory((size_t)n_binds * sizeof *need, "a launch of device null");
    const sw_status st = object_new(dev, kind, name, out);
    if (st != SW_OK) {
        sw__free(need);
        return st;
    }
    (*out)->need = need;
    (*out)->n_binds = n_binds;
    return SW_OK;
}

static sw_status check_launch(const device *dev, void *handle, object_kind kind, const sw__bind *bind)
{
    object *o = NULL;
    SW_TRY(object_of(dev, handle, kind, &o));
    for (int i = 0; i < o->n_binds; i++) {
        if (o->need[i] == 0) continue;
        const sw_status st = check_range(dev, bind[i].buffer, bind[i].offset, o->need[i], "an access");
        if (st != SW_OK) return sw__prefix(st, "%s '%s', tensor %d", kind_name[kind], o->name, i);
    }
    return SW_OK;
}

/* Lowest and highest element that an access reaches; false if it reaches none. */
static bool reach(const sw__kernel *k, const sw__inst *in, int64_t *low, int64_t *high)
{
    *low = *high = in->offset;
    for (int i = 0; i < k->rank; i++) {
        const int64_t first = in->masked ? SW_MAX(in->lo[i], 0) : 0;
        const int64_t last = (in->masked ? SW_MIN(in->hi[i], k->extent[i]) : k->extent[i]) - 1;
        if (last < first) return false;
        *low += in->stride[i] * (in->stride[i] < 0 ? last : first);
        *high += in->stride[i] * (in->stride[i] < 0 ? first : last);
    }
    if (in->kop == SW_K_GATHER) {
        if (in->extent_x <= 0) return false;
        *(in->stride_x < 0 ? low : high) += in->stride_x * (in->extent_x - 1);
    }
    return true;
}

static sw_status kernel_extents(const sw__kernel *k, size_t *need)
{
    for (int i = 0; i < k->n_insts; i++) {
        const sw__inst *const in = &k->inst[i];
        int64_t low, high;
        if (in->kop != SW_K_LOAD && in->kop != SW_K_GATHER && in->kop != SW_K_STORE) continue;
        if (in->buffer < 0 || in->buffer >= k->n_buffers) {
            fault("device null: kernel '%s': instruction %d names buffer %d of %d", k->name, i, in->buffer,
                  k->n_buffers);
            return SW_ERR_DEVICE;
        }
        if (!reach(k, in, &low, &high)) continue;
        if (low < 0) {
            fault("device null: kernel '%s': instruction %d reaches element %lld", k->name, i, (long long)low);
            return SW_ERR_DEVICE;
        }
        const size_t size = sw_dtype_size((sw_dtype)k->buffer[in->buffer].dtype);
        need[in->buffer] = SW_MAX(need[in->buffer], ((size_t)high + 1) * size);
    }
    return SW_OK;
}

static sw_status null_kernel_build(void *dev, const sw__kernel *k, void **built, size_t *workspace)
{
    object *o = NULL;
    SW_TRY(new_launchable(dev, KERNEL, k->name, k->n_buffers + 1, &o));
    const sw_status st = kernel_extents(k, o->need);
    if (st != SW_OK) {
        object_release(dev, o, KERNEL);
        return st;
    }
    *workspace = k->skeleton == SW_SKEL_FULL ? NULL_STAGE_BYTES : 0;
    o->need[k->n_buffers] = *workspace;
    *built = o;
    return SW_OK;
}

static void null_kernel_free(void *dev, void *built)
{
    object_release(dev, built, KERNEL);
}

static sw_status null_kernel_launch(void *dev, void *built, const sw__bind *bind)
{
    return check_launch(dev, built, KERNEL, bind);
}

/* ---- whole ops --------------------------------------------------------------------------------------------------- */

/* Dense in some order of the axes: a walk from the smallest stride up meets no gap. */
static bool is_packed(const sw__desc *d)
{
    int64_t expect = 1;
    for (int step = 0; step < d->rank; step++) {
        int next = -1;
        for (int i = 0; i < d->rank && next < 0; i++)
            if (d->dim[i] > 1 && d->stride[i] == expect) next = i;
        if (next < 0) break;
        expect *= d->dim[next];
    }
    const int64_t n = sw__dims_product(d->dim, d->rank);
    return n == 0 || expect == n;
}

/* A library of matrix products takes either of the last two axes as the one that runs along memory. */
static bool null_op_accepts(void *dev, const sw__op_desc *d, int i)
{
    (void)dev;
    const sw__desc *const x = &d->in[i];
    if ((d->op == SW_OP_DOT || d->op == SW_OP_MATMUL) && i < 2)
        return x->stride[x->rank - 1] == 1 || x->stride[x->rank - 2] == 1;
    return null_traits.channels_last[d->op] ? is_packed(x) : sw__desc_row_major(x);
}

static size_t op_need(const sw__desc *d)
{
    int64_t last = 0;
    for (int i = 0; i < d->rank; i++) {
        if (d->dim[i] == 0) return 0;
        last += d->stride[i] * (d->dim[i] - 1);
    }
    return ((size_t)last + 1) * sw_dtype_size((sw_dtype)d->dtype);
}

static sw_status null_op_plan(void *dev, const sw__op_desc *d, void **plan, size_t *workspace)
{
    object *o = NULL;
    if (d->op >= SW_OP_COUNT || !null_traits.takes[d->op])
        return sw__fail(SW_ERR_UNSUPPORTED, "device null takes no op '%s'",
                        d->op < SW_OP_COUNT ? sw__op_table[d->op].name : "?");
    SW_TRY(new_launchable(dev, PLAN, d->name, d->n_in + d->n_out + 1, &o));
    for (int i = 0; i < d->n_in; i++) o->need[i] = op_need(&d->in[i]);
    for (int i = 0; i < d->n_out; i++) o->need[d->n_in + i] = op_need(&d->out[i]);
    *workspace = o->need[0]; /* as a library that makes itself a copy of its first operand */
    o->need[d->n_in + d->n_out] = *workspace;
    *plan = o;
    return SW_OK;
}

static void null_op_free(void *dev, void *plan)
{
    object_release(dev, plan, PLAN);
}

static sw_status null_op_exec(void *dev, void *plan, const sw__bind *bind)
{
    return check_launch(dev, plan, PLAN, bind);
}

static const char *null_op_note(void *plan)
{
    (void)plan;
    return "computes nothing";
}

/* ---- a user's kernels by hand ------------------------------------------------------------------------------------ */

/* Any source will do: it is not run. */
static sw_status null_source_build(void *dev, const sw_kernel_source *s, void **built)
{
    object *o = NULL;
    SW_TRY(new_launchable(dev, KERNEL, s->name, 1, &o));
    *built = o;
    return SW_OK;
}

static sw_status null_source_launch(void *dev, void *built, const sw__source_launch *l)
{
    object *o = NULL;
    SW_TRY(object_of(dev, built, KERNEL, &o));
    for (int i = 0; i < l->n_args; i++)
        if (l->arg[i].kind == SW_ARG_BUFFER)
            SW_TRY(check_range(dev, l->arg[i].bind.buffer, l->arg[i].bind.offset, 0, "a kernel's buffer"));
    return SW_OK;
}

/* clang-format off */
const sw__backend sw__backend_null = {
    .name = "null",
    .count = null_count, .open = null_open, .close = null_close, .properties = null_properties,
    .traits = null_get_traits,
    .alloc = null_alloc, .release = null_release, .upload = null_upload, .download = null_download, .fill = null_fill,
    .sync = null_sync,
    .kernel_build = null_kernel_build, .kernel_free = null_kernel_free, .kernel_launch = null_kernel_launch,
    .op_accepts = null_op_accepts, .op_plan = null_op_plan, .op_free = null_op_free, .op_exec = null_op_exec,
    .op_note = null_op_note,
    .source_build = null_source_build, .source_free = null_kernel_free, .source_launch = null_source_launch,
};
/* clang-format on */
