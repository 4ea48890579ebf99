/* pool.c: MAX_POOL, AVG_POOL and their gradients: one launch of portable/pool.k, which takes any strides. */
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

static void sizes(sw__ask *a, const sw__gpu_plan *p, const sw__desc *x, const sw__desc *y, int64_t count)
{
    sw__ask_i32(a, 2, (const int64_t[]){count, x->dim[1]});
    sw__ask_i32(a, 3, (const int64_t[]){spatial(x, 0), spatial(x, 1), spatial(x, 2)});
    sw__ask_i32(a, 3, (const int64_t[]){spatial(y, 0), spatial(y, 1), spatial(y, 2)});
    int64_t pad[3];
    for (int i = 0; i < 3; i++) {
        const int at = i - (3 - p->attr.pool.nd);
        pad[i] = at < 0 ? 0 : p->attr.pool.pad_lo[at];
    }
    sw__ask_i32(a, 3, pad);
}

sw_status sw__gpu_pool_plan(sw__gpu_plan *p)
{
    const sw__target *const t = &p->gpu->target;
    size_t r = 0;
    while (roles[r].op != p->d.op) r++;
    const sw__desc *const out = &p->d.out[0];
    const sw__desc *const x = roles[r].grad ? out : &p->desc[roles[r].x];
    const sw__desc *const y = roles[r].grad ? &p->desc[roles[r].dy] : out;
    const int64_t count = out->dim[0] > 0 ? sw__big_elements(out) / out->dim[0] : 0;
    const bool c_fast = out->dim[1] > 1 && out->stride[1] == 1;
    const int items = SW_MIN(SW_MIN(t->serial ? 64 : 256, t->max_group), t->max_local[0]);
    if (count == 0) {
        snprintf(p->note, sizeof p->note, "empty");
        return SW_OK;
    }
    if (out->dtype == SW_F64 && !t->fp64)
        return sw__fail(SW_ERR_UNSUPPORTED, "this device has no arithmetic in f64; cast to f32");
    if (count > INT32_MAX - items) return sw__fail(SW_ERR_UNSUPPORTED, "one image has %lld elements", (long long)count);
    sw__ask a = sw__ask_for(p, "pool");
    sw__ask_type(&a, (sw_dtype)out->dtype);
    sw__ask_macro(&a, "ITEMS", items);
    sw__ask_macro(&a, "MAX", roles[r].max);
    sw__ask_macro(&a, "GRAD", roles[r].grad);
    sw__ask_macro(&a, "C_FAST", c_fast);
    sw__ask_macro(&a, "PAD_COUNTS", p->attr.pool.include_pad);
    window_macros(&a, &p->attr);
    const int8_t buffers[] = {roles[r].x, roles[r].y, roles[r].dy, roles[r].result};
    for (size_t i = 0; i < SW_COUNT(buffers); i++)
        if (buffers[i] >= 0) sw__ask_buffer(&a, buffers[i], 0);
    sizes(&a, p, x, y, count);
    tensor(&a, p, roles[r].x);
    tensor(&a, p, roles[r].y);
    if (roles[r].grad) tensor(&a, p, roles[r].dy);
    tensor(&a, p, roles[r].result);
    snprintf(p->note, sizeof p->note, "%s", c_fast ? "channels last" : "strides");
    return sw__ask_launch(&a, sw__div_up(count, items), out->dim[0], 1, items);
}
