/* pool.c: MAX_POOL, AVG_POOL and their gradients: one launch of portable/pool.k, which takes any strides, or on CPUs of
 * pool_lines.k, where the channels are adjacent. */
#include "backend/gpu/ops/big.h"

#include <stdio.h>

static const struct { uint16_t op; bool max, grad; int8_t x, y, dy, result; } roles[] = {
    {SW_OP_MAX_POOL, true, false, 0, -1, -1, 1}, /* -1: not looked at */
    {SW_OP_MAX_POOL_GRAD, true, true, 0, 1, 2, 3},
    {SW_OP_AVG_POOL, false, false, 0, -1, -1, 1},
    {SW_OP_AVG_POOL_GRAD, false, true, -1, -1, 0, 1},
};

static int64_t spatial(const sw__desc *d, int i)
{
    const int at = i - (5 - d->rank);
    return at < 0 ? 1 : d->dim[2 + at];
}

/* TENSOR of pool.k: strides of image, channel, and three spatial axes, of which missing ones come first. */
static void tensor(sw__ask *a, const sw__gpu_plan *p, int i)
{
    int64_t s[5] = {0};
    if (i >= 0) {
        const sw__desc *const d = &p->desc[i];
        const int missing = 5 - d->rank;
        s[0] = d->stride[0];
        s[1] = d->stride[1];
        for (int k = missing; k < 3; k++) s[2 + k] = d->stride[2 + k - missing];
    }
    sw__ask_i64(a, 5, s);
}

static void window_macros(sw__ask *a, const sw__attr *attr)
{
    static const char *const kernel[] = {"K0", "K1", "K2"}, *const step[] = {"S0", "S1", "S2"};
    for (int i = 0; i < 3; i++) {
        const int at = i - (3 - attr->pool.nd);
        sw__ask_macro(a, kernel[i], at < 0 ? 1 : attr->pool.kernel[at]);
        sw__ask_macro(a, step[i], at < 0 ? 1 : attr->pool.stride[at]);
    }
}

static void sizes(sw__ask *a, const sw__gpu_plan *p, const sw__desc *x, const sw__desc *y)
{
    sw__ask_i32(a, 1, &x->dim[1]);
    sw__ask_i32(a, 3, (const int64_t[]){spatial(x, 0), spatial(x, 1), spatial(x, 2)});
    sw__ask_i32(a, 3, (const int64_t[]){spatial(y, 0), spatial(y, 1), spatial(y, 2)});
    int64_t pad[3];
    for (int i = 0; i < 3; i++) {
        const int at = i - (3 - p->attr.pool.nd);
        pad[i] = at < 0 ? 0 : p->attr.pool.pad_lo[at];
    }
    sw__ask_i32(a, 3, pad);
}

static int role_of(const sw__gpu_plan *p)
{
    int r = 0;
    while (roles[r].op != p->d.op) r++;
    return r;
}

/* What both kernels are told: macros and buffers. */
static sw__ask ask(sw__gpu_plan *p, int r, const char *file)
{
    sw__ask a = sw__ask_for(p, file);
    sw__ask_type(&a, (sw_dtype)p->d.out[0].dtype);
    sw__ask_macro(&a, "MAX", roles[r].max);
    sw__ask_macro(&a, "GRAD", roles[r].grad);
    sw__ask_macro(&a, "PAD_COUNTS", p->attr.pool.include_pad);
    window_macros(&a, &p->attr);
    const int8_t buffers[] = {roles[r].x, roles[r].y, roles[r].dy, roles[r].result};
    for (size_t i = 0; i < SW_COUNT(buffers); i++)
        if (buffers[i] >= 0) sw__ask_buffer(&a, buffers[i], 0);
    return a;
}

/* ---- lines of channels, on CPUs -------------------------------------------------------------------------------- */

enum { LINE = 64, FEW = 16 };

/* Channels are adjacent in y, dy or the result, whichever are used. */
static bool unit_channels(const sw__gpu_plan *p, int r)
{
    const int used[] = {roles[r].y, roles[r].dy, roles[r].result};
    for (size_t i = 0; i < SW_COUNT(used); i++)
        if (used[i] >= 0 && p->desc[used[i]].stride[1] != 1) return false;
    return true;
}

/* INSIDE: no window reaches over an edge. ALONE: and the windows cover everything, without overlap. */
static void edge_macros(sw__ask *a, const sw__attr *attr, const sw__desc *x, const sw__desc *y)
{
    bool inside = true, alone = true;
    for (int i = 0; i < attr->pool.nd; i++) {
        const int64_t kernel = attr->pool.kernel[i], stride = attr->pool.stride[i];
        const int64_t end = (y->dim[2 + i] - 1) * stride + kernel;
        inside = inside && attr->pool.pad_lo[i] == 0 && end <= x->dim[2 + i];
        alone = alone && kernel == stride && end == x->dim[2 + i];
    }
    sw__ask_macro(a, "INSIDE", inside);
    sw__ask_macro(a, "ALONE", inside && alone);
}

/* Channels adjacent in what the windows walk over. A gradient is added to where it is stored: not in f16. */
static bool takes_lines(const sw__gpu_plan *p, int r)
{
    const int dtype = p->d.out[0].dtype;
    if (!p->gpu->target.serial || (roles[r].grad && dtype != SW_F32 && dtype != SW_F64)) return false;
    const int walked[] = {roles[r].x, roles[r].grad ? roles[r].result : -1};
    for (size_t i = 0; i < SW_COUNT(walked); i++)
        if (walked[i] >= 0 && p->desc[walked[i]].dim[1] > 1 && p->desc[walked[i]].stride[1] != 1) return false;
    return true;
}

static sw_status plan_lines(sw__gpu_plan *p, int r, const sw__desc *x, const sw__desc *y)
{
    sw__ask a = ask(p, r, "pool_lines");
    sw__ask_macro(&a, "LINE", x->dim[1] <= FEW ? FEW : LINE);
    sw__ask_macro(&a, "FEW", x->dim[1] <= FEW ? x->dim[1] : 0);
    edge_macros(&a, &p->attr, x, y);
    sw__ask_macro(&a, "UNIT", unit_channels(p, r));
    sizes(&a, p, x, y);
    const int8_t tensors[] = {roles[r].x, roles[r].y, roles[r].dy, roles[r].result};
    for (size_t i = 0; i < SW_COUNT(tensors); i++)
        if (tensors[i] >= 0) tensor(&a, p, tensors[i]);
    snprintf(p->note, sizeof p->note, "lines of channels");
    if (roles[r].grad) return sw__ask_launch(&a, x->dim[0], sw__div_up(x->dim[1], LINE), 1, 1);
    return sw__ask_launch(&a, y->dim[0] * spatial(y, 0) * spatial(y, 1), 1, 1, 1);
}

/* ---- one element a work-item ----------------------------------------------------------------------------------- */

static sw_status plan_elements(sw__gpu_plan *p, int r, const sw__desc *x, const sw__desc *y)
{
    const sw__target *const t = &p->gpu->target;
    const sw__desc *const out = &p->d.out[0];
    const int64_t count = sw__desc_elements(out) / out->dim[0];
    const bool c_fast = out->dim[1] > 1 && out->stride[1] == 1;
    const int items = SW_MIN(SW_MIN(t->serial ? 64 : 256, t->max_group), t->max_local[0]);
    if (count > INT32_MAX - items) return sw__fail(SW_ERR_UNSUPPORTED, "one image has %lld elements", (long long)count);
    sw__ask a = ask(p, r, "pool");
    sw__ask_macro(&a, "ITEMS", items);
    sw__ask_macro(&a, "C_FAST", c_fast);
    sw__ask_i32(&a, 1, &count);
    sizes(&a, p, x, y);
    tensor(&a, p, roles[r].x);
    tensor(&a, p, roles[r].y);
    if (roles[r].grad) tensor(&a, p, roles[r].dy);
    tensor(&a, p, roles[r].result);
    snprintf(p->note, sizeof p->note, "%s", c_fast ? "channels last" : "strides");
    return sw__ask_launch(&a, sw__div_up(count, items) * out->dim[0], 1, 1, items);
}

sw_status sw__gpu_pool_plan(sw__gpu_plan *p)
{
    const int r = role_of(p);
    const sw__desc *const out = &p->d.out[0];
    const sw__desc *const x = roles[r].grad ? out : &p->desc[roles[r].x];
    const sw__desc *const y = roles[r].grad ? &p->desc[roles[r].dy] : out;
    if (sw__desc_elements(out) == 0) {
        snprintf(p->note, sizeof p->note, "empty");
        return SW_OK;
    }
    if (out->dtype == SW_F64 && !p->gpu->target.fp64)
        return sw__fail(SW_ERR_UNSUPPORTED, "this device has no arithmetic in f64; cast to f32");
    return takes_lines(p, r) ? plan_lines(p, r, x, y) : plan_elements(p, r, x, y);
}
