/* columns.c: what the planners of ops along an axis share. See columns.h. */
#include "backend/gpu/ops/columns.h"

#include <stdio.h>

/* ---- macros ------------------------------------------------------------------------------------------------------ */

void sw__gpu_put(sw__gpu_macros *m, const char *name, int64_t value)
{
    if (m->n < (int)SW_COUNT(m->m)) m->m[m->n++] = (sw__gpu_macro){ .name = name, .value = value };
}

void sw__gpu_put_text(sw__gpu_macros *m, const char *name, const char *text)
{
    if (m->n < (int)SW_COUNT(m->m)) m->m[m->n++] = (sw__gpu_macro){ .name = name, .text = text };
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

int64_t sw__gpu_count(const sw__desc *d, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < d->rank; i++)
        if (i != axis) n *= d->dim[i];
    return n;
}

const char *sw__gpu_counter(int64_t n)
{
    return n < INT32_MAX ? "u32" : "i64";
}

/* Whether counts and places fit in 32 bits, which GPUs divide far faster. */
static bool is_narrow(const sw__desc *d)
{
    int64_t last = 0;
    for (int i = 0; i < d->rank; i++) {
        if (d->stride[i] < 0) return false;
        last += SW_MAX(d->dim[i] - 1, 0) * d->stride[i];
    }
    return last < INT32_MAX && sw__gpu_count(d, -1) < INT32_MAX;
}

/* The axes beside `axis`, neighbours joined where one stride serves both. Returns how many. */
static int collapse(const sw__desc *d, int axis, int64_t *dim, int64_t *stride)
{
    int n = 0;
    for (int i = 0; i < d->rank; i++) {
        if (i == axis || d->dim[i] == 1) continue;
        if (n > 0 && stride[n - 1] == d->dim[i] * d->stride[i]) {
            dim[n - 1] *= d->dim[i];
            stride[n - 1] = d->stride[i];
            continue;
        }
        dim[n] = d->dim[i];
        stride[n++] = d->stride[i];
    }
    return n;
}

void sw__gpu_place_of(const sw__desc *d, int axis, const char *column, const char *along, sw__gpu_place *out)
{
    int64_t dim[SW_MAX_RANK], stride[SW_MAX_RANK], inner = 1;
    const int n = collapse(d, axis, dim, stride);
    const char *const type = is_narrow(d) ? "u32" : "i64", *plus = "";
    size_t at = 0;
    out->text[0] = '\0';
    for (int i = n - 1; i >= 0 && at < sizeof out->text; i--) {
        char over[32] = "", modulo[32] = "";
        if (inner > 1) snprintf(over, sizeof over, " / %lld", (long long)inner);
        if (i > 0) snprintf(modulo, sizeof modulo, " %% %lld", (long long)dim[i]);
        inner *= dim[i];
        if (inner == 0) break; /* nothing is there: never evaluated, and not to be divided by */
        if (stride[i] == 0) continue;
        at += (size_t)snprintf(out->text + at, sizeof out->text - at, "%s(%s)(%s)%s%s * %lld", plus, type, column, over,
                               modulo, (long long)stride[i]);
        plus = " + ";
    }
    if (axis >= 0 && d->stride[axis] != 0 && at < sizeof out->text) {
        at += (size_t)snprintf(out->text + at, sizeof out->text - at, "%s(%s)(%s) * %lld", plus, type, along,
                               (long long)d->stride[axis]);
    }
    if (at == 0) snprintf(out->text, sizeof out->text, "0");
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static const struct { const char *bits, *key; int kind; const char *sign, *inf; } keys[SW_DTYPE_COUNT] = {
    [SW_F32] = { "u32", "u32", SW__GPU_FLOATING, "0x80000000u", "0x7F800000u" },
    [SW_F64] = { "u64", "u64", SW__GPU_FLOATING, "((u64)1 << 63)", "((u64)0x7FF00000u << 32)" },
    [SW_F16] = { "u16", "u32", SW__GPU_FLOATING, "0x8000u", "0x7C00u" },
    [SW_BF16] = { "u16", "u32", SW__GPU_FLOATING, "0x8000u", "0x7F80u" },
    [SW_I32] = { "u32", "u32", SW__GPU_SIGNED, "0x80000000u", "0" },
    [SW_I64] = { "u64", "u64", SW__GPU_SIGNED, "((u64)1 << 63)", "0" },
    [SW_U32] = { "u32", "u32", SW__GPU_UNSIGNED, "0", "0" },
    [SW_U8] = { "u8", "u32", SW__GPU_UNSIGNED, "0", "0" },
    [SW_BOOL] = { "u8", "u32", SW__GPU_UNSIGNED, "0", "0" },
};

void sw__gpu_put_keys(sw__gpu_macros *m, sw_dtype t)
{
    sw__gpu_put_text(m, "BITS", keys[t].bits);
    sw__gpu_put_text(m, "KEY", keys[t].key);
    sw__gpu_put(m, "KIND", keys[t].kind);
    sw__gpu_put_text(m, "SIGN", keys[t].sign);
    sw__gpu_put_text(m, "INF", keys[t].inf);
}

const char *sw__gpu_bits(sw_dtype t)
{
    return keys[t].bits;
}

size_t sw__gpu_key_size(sw_dtype t)
{
    return sw_dtype_size(t) == 8 ? 8 : 4;
}

/* Integers are added as unsigned ones, which wrap. */
static const struct { const char *element, *value, *get, *put; } values[SW_DTYPE_COUNT] = {
    [SW_F32] = { "float", "float", "p[i]", "p[i] = v" },
    [SW_F64] = { "double", "double", "p[i]", "p[i] = v" },
    [SW_F16] = { "u16", "float", "LOAD_F16(p, i)", "STORE_F16(p, i, v)" },
    [SW_BF16] = { "u16", "float", "LOAD_BF16(p, i)", "STORE_BF16(p, i, v)" },
    [SW_I32] = { "u32", "u32", "p[i]", "p[i] = v" },
    [SW_I64] = { "u64", "u64", "p[i]", "p[i] = v" },
    [SW_U32] = { "u32", "u32", "p[i]", "p[i] = v" },
    [SW_U8] = { "u8", "u32", "p[i]", "p[i] = (u8)v" },
    [SW_BOOL] = { "u8", "u32", "p[i]", "p[i] = (u8)v" },
};

void sw__gpu_put_values(sw__gpu_macros *m, sw_dtype t)
{
    sw__gpu_put_text(m, "ELEMENT", values[t].element);
    sw__gpu_put_text(m, "VALUE", values[t].value);
    sw__gpu_put_text(m, "GET", values[t].get);
    sw__gpu_put_text(m, "PUT", values[t].put);
}

sw_status sw__gpu_can_add(const sw__gpu_plan *p, sw_dtype t)
{
    if (t != SW_F64 || p->gpu->target.fp64) return SW_OK;
    return sw__fail(SW_ERR_UNSUPPORTED, "this device has no f64: cast to f32, or choose another device");
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

int sw__gpu_lanes(const sw__gpu *g, int64_t most)
{
    const int limit = SW_MIN(g->target.max_group, g->target.max_local[0]);
    int n = 1;
    while (2 * n <= limit && 2 * (int64_t)n <= most) n *= 2;
    return n;
}

int64_t sw__gpu_up(int64_t n)
{
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

uint32_t sw__gpu_grid(sw__gpu_macros *m, int64_t units, int size)
{
    const int64_t groups = SW_MIN(units, 65535); /* what every API takes; and a step of all groups fits in 32 bits */
    sw__gpu_put(m, "GROUPS", groups);
    sw__gpu_put(m, "SIZE", size);
    return (uint32_t)groups;
}

size_t sw__gpu_reserve(sw__gpu_plan *p, int64_t n, size_t size)
{
    const size_t at = p->workspace;
    p->workspace += ((size_t)n * size + 127) & ~(size_t)127;
    return at;
}

sw_status sw__gpu_step(sw__gpu_plan *p, const char *file, const sw__gpu_macros *m, uint32_t groups, int size_x,
                       int size_y, const sw__gpu_arg *args, int n_args)
{
    char by[160];
    sw__gpu_kernel *k = NULL;
    snprintf(by, sizeof by, "%s '%.120s'", sw__op_table[p->d.op].name, p->d.name != NULL ? p->d.name : "");
    SW_TRY(sw__gpu_want_portable(p->gpu, by, file, m->m, m->n, false, &k));
    return sw__gpu_add(p, k, groups, 1, 1, (uint32_t)size_x, (uint32_t)size_y, 1, args, n_args);
}

bool sw__gpu_by_item(const sw__gpu *g, const sw__desc *d, int axis)
{
    const int64_t count = sw__gpu_count(d, axis), length = d->dim[axis];
    if (g->target.serial || length <= 32) return true;
    /* many columns side by side: neighbours read neighbouring elements */
    return d->stride[axis] != 1 && count >= (int64_t)g->target.units * 256;
}
