/* conv.c: CONV (x, w, bias -> y, relu), CONV_GRAD_X (dy, w -> dx), CONV_GRAD_W (x, dy -> dw) on a GPU or a CPU
 * through OpenCL. The op becomes one sw__window, the data gradient with strides several; then tile.c or rows.c makes
 * launches of it. Any strides of tensors; best are images stored channels last. */
#include "backend/gpu/ops/big.h"

#include <stdio.h>

/* ---- description ----------------------------------------------------------------------------------------------- */

static void strides_of(const sw__desc *d, int64_t *to)
{
    const int missing = 5 - d->rank;
    to[0] = d->stride[0];
    to[1] = d->stride[1];
    for (int i = 0; i < 3; i++) to[2 + i] = i < missing ? 0 : d->stride[2 + i - missing];
}

static int64_t spatial(const sw__desc *d, int i)
{
    const int at = i - (5 - d->rank);
    return at < 0 ? 1 : d->dim[2 + at];
}

/* Numbers of x, w and y among the plan's buffers, for each op. */
static const struct { uint16_t op; int8_t x, w, y; } roles[] = {
    {SW_OP_CONV, 0, 1, -1}, /* -1: the output */
    {SW_OP_CONV_GRAD_X, -1, 1, 0},
    {SW_OP_CONV_GRAD_W, 0, -1, 1},
};

/* The convolution as it is in the forward direction, whichever of x, w, y is the result. */
static sw__window describe(const sw__gpu_plan *p)
{
    sw__window v = {.type = (sw_dtype)p->d.out[0].dtype, .bias = -1};
    for (size_t i = 0; i < SW_COUNT(roles); i++) {
        if (roles[i].op != p->d.op) continue;
        v.x = roles[i].x < 0 ? p->d.n_in : roles[i].x;
        v.w = roles[i].w < 0 ? p->d.n_in : roles[i].w;
        v.y = roles[i].y < 0 ? p->d.n_in : roles[i].y;
    }
    const sw__desc *const x = &p->desc[v.x], *const w = &p->desc[v.w], *const y = &p->desc[v.y];
    const sw__attr *const a = &p->attr;
    v.n = x->dim[0];
    v.groups = a->conv.groups;
    v.c = w->dim[1];
    v.o = w->dim[0] / v.groups;
    for (int i = 0; i < 3; i++) {
        const int at = i - (3 - a->conv.nd);
        v.size[i] = spatial(x, i);
        v.t[i] = spatial(w, i);
        v.q[i] = spatial(y, i);
        v.step[i] = at < 0 ? 1 : a->conv.stride[at];
        v.dilation[i] = at < 0 ? 1 : a->conv.dilation[at];
        v.origin[i] = at < 0 ? 0 : -a->conv.pad_lo[at];
    }
    strides_of(x, v.xs);
    strides_of(w, v.ws);
    strides_of(y, v.ys);
    v.xg = v.c * v.xs[1];
    v.wg = v.o * v.ws[0];
    v.yg = v.o * v.ys[1];
    if (p->d.op == SW_OP_CONV && p->d.n_in > 2) {
        v.bias = 2;
        v.bias_s = p->d.in[2].dim[0] > 1 ? p->d.in[2].stride[0] : 1;
    }
    v.relu = p->d.op == SW_OP_CONV && a->conv.act == SW_ACT_RELU;
    return v;
}

/* ---- data gradient --------------------------------------------------------------------------------------------- */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* One axis of the places i = q * stride + r of dx as a convolution of dy: dy[j] reaches i through the kernel's point
 * k if j * stride + k * dilation - pad = i. Those k are an arithmetic progression; going down in k is going up in j. */
static void phase_axis(const sw__window *f, int i, int64_t r, sw__window *b)
{
    const int64_t s = f->step[i], d = f->dilation[i], pad = -f->origin[i], g = gcd(s, d), stride = s / g;
    const int64_t size = (int64_t)sw_dtype_size(f->type);
    int64_t k = 0;
    while (k < stride && (r + pad - k * d) % s != 0) k++;
    const bool any = k < stride && k < f->t[i];
    b->t[i] = any ? (f->t[i] - 1 - k) / stride + 1 : 0;
    const int64_t last = any ? k + (b->t[i] - 1) * stride : 0;
    b->q[i] = sw__div_up(f->size[i] - r, s);
    b->size[i] = f->q[i];
    b->step[i] = 1;
    b->dilation[i] = d / g;
    b->origin[i] = any ? (r + pad - last * d) / s : 0;
    b->w_at += last * f->ws[2 + i] * size;
    b->ws[2 + i] = -stride * f->ws[2 + i];
    b->y_at += r * f->xs[2 + i] * size;
    b->ys[2 + i] = s * f->xs[2 + i];
}

/* The part of dx at places r modulo the stride. */
static sw__window phase(const sw__window *f, const int64_t *r)
{
    sw__window b = *f;
    b.x = f->y;
    b.y = f->x;
    b.c = f->o;
    b.o = f->c;
    b.xs[0] = f->ys[0];
    b.xs[1] = f->ys[1];
    b.ys[0] = f->xs[0];
    b.ys[1] = f->xs[1];
    b.ws[0] = f->ws[1];
    b.ws[1] = f->ws[0];
    b.xg = f->yg;
    b.yg = f->xg;
    for (int i = 0; i < 3; i++) b.xs[2 + i] = f->ys[2 + i];
    for (int i = 0; i < 3; i++) phase_axis(f, i, r[i], &b);
    return b;
}

/* Parts of one result, all over the same image. */
static sw_status plan_windows(sw__gpu_plan *p, const sw__window *w, int count)
{
    if (p->gpu->target.serial) return sw__rows_conv(p, w, count);
    for (int i = 0; i < count; i++) SW_TRY(sw__tile_conv(p, &w[i]));
    return SW_OK;
}

static sw_status plan_grad_x(sw__gpu_plan *p, const sw__window *f)
{
    int64_t r[3], n = 0, phases = 1;
    for (int i = 0; i < 3; i++) phases *= SW_MIN(f->step[i], f->size[i]);
    sw__window *const parts = phases < 1 << 20 ? sw__malloc((size_t)phases * sizeof *parts) : NULL;
    if (parts == NULL) return sw__no_memory((size_t)phases * sizeof *parts, "the parts of a convolution's gradient");
    for (r[0] = 0; r[0] < SW_MIN(f->step[0], f->size[0]); r[0]++)
        for (r[1] = 0; r[1] < SW_MIN(f->step[1], f->size[1]); r[1]++)
            for (r[2] = 0; r[2] < SW_MIN(f->step[2], f->size[2]); r[2]++) parts[n++] = phase(f, r);
    const sw_status st = plan_windows(p, parts, (int)phases);
    sw__free(parts);
    return st;
}

int sw__gpu_conv_variants(const sw__gpu *g, const sw__op_desc *d)
{
    (void)d;
    return g->target.serial ? sw__rows_variants() : sw__tile_variants();
}

sw_status sw__gpu_conv_plan(sw__gpu_plan *p)
{
    const sw__window w = describe(p);
    if (sw__desc_elements(&p->d.out[0]) == 0) {
        snprintf(p->note, sizeof p->note, "empty");
        return SW_OK;
    }
    if (w.type == SW_F64 && !p->gpu->target.fp64)
        return sw__fail(SW_ERR_UNSUPPORTED, "this device has no arithmetic in f64; cast to f32");
    if (p->d.op == SW_OP_CONV) return plan_windows(p, &w, 1);
    if (p->d.op == SW_OP_CONV_GRAD_X) return plan_grad_x(p, &w);
    return p->gpu->target.serial ? sw__rows_conv_weight(p, &w) : sw__tile_conv_weight(p, &w);
}
