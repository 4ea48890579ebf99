/* attention.c: plans ATTENTION and ATTENTION_GRAD: one launch of portable/attention.k forward; two backward, dq with
 * the sums of dy y by row first, then dk and dv. Nothing of the size of the scores is kept. Called by gpu_op.c. */
#include "backend/gpu/ops/big.h"

#include <stdio.h>

/* Of a GPU's 255 registers, many of which are for what is on its way: those for rows and sums together, for sums. */
enum { ROWS_AT_ONCE = 4, MOST_ALL = 80, MOST_SUMS = 128 };

typedef struct attention {
    int64_t batch, rows, keys, heads, groups, d, e;
    int mask; /* which buffer, -1: none */
    int width, items;
    int64_t inner_at; /* in the workspace */
} attention;

static attention describe(const sw__gpu_plan *p)
{
    const sw__target *const t = &p->gpu->target;
    const sw__desc *const q = &p->desc[0], *const k = &p->desc[1], *const v = &p->desc[2];
    const int mask = p->d.op == SW_OP_ATTENTION_GRAD ? 6 : 3;
    attention a = {.batch = q->dim[0], .rows = q->dim[1], .heads = q->dim[2], .d = q->dim[3], .keys = k->dim[1],
                   .groups = k->dim[2], .e = v->dim[3], .mask = p->d.n_in > mask ? mask : -1, .width = 1};
    const int floats = t->width >= 16 ? 16 : t->width >= 8 ? 8 : 4;
    if (t->serial) a.width = q->dtype == SW_F64 ? floats / 2 : floats;
    a.items = t->serial ? 1 : SW_MIN(SW_MIN(64, t->max_group), t->max_local[0]);
    return a;
}

/* The stride of features; of batch, time and head. */
static void features(sw__ask *a, const char *name, const sw__desc *d)
{
    sw__ask_macro(a, name, d->dim[3] > 1 ? d->stride[3] : 1);
}

static void tensor(sw__ask *a, const sw__desc *d)
{
    sw__ask_i64(a, 3, d->stride);
}

static void lse_strides(sw__ask *a, const sw__desc *d)
{
    sw__ask_i64(a, 3, (const int64_t[]){d->stride[0], d->stride[2], d->stride[1]});
}

static void mask_arguments(sw__ask *a, const sw__gpu_plan *p, int mask)
{
    if (mask < 0) return;
    const sw__desc *const m = &p->desc[mask];
    int64_t s[4];
    for (int i = 0; i < 4; i++) s[i] = m->dim[i] == 1 ? 0 : m->stride[i];
    sw__ask_buffer(a, mask, 0);
    sw__ask_i64(a, 4, s);
}

/* Loops over features that are unrolled keep their arrays in registers; others keep them in a work-item's own memory,
 * one access for J products. Sums, which are written too, have the first claim. By what ptxas spills (test_nvrtc). */
static void where_arrays_are(sw__ask *a, const sw__gpu_plan *p, const attention *s, int part)
{
    const int64_t words = p->desc[0].dtype == SW_F64 ? 3 : 1; /* two, and what is on its way takes more too */
    const int64_t sums = words * (part == 0 ? s->e : part == 1 ? s->d + s->e : s->d);
    const int64_t rows = words * (part == 0 ? s->d : s->d + s->e);
    const bool gpu = !p->gpu->target.serial;
    sw__ask_text(a, "EACH", !gpu ? "" : sums + rows <= MOST_ALL ? "UNROLL" : "UNROLL_4");
    sw__ask_text(a, "EACH_SUM", !gpu ? "" : sums <= MOST_SUMS ? "UNROLL" : "UNROLL_4");
    sw__ask_macro(a, "J", gpu && (part == 1 || sums > MOST_SUMS / 2) ? ROWS_AT_ONCE / 2 : ROWS_AT_ONCE);
}

static sw__ask ask(sw__gpu_plan *p, const attention *s, int part)
{
    const sw_dtype t = (sw_dtype)p->desc[0].dtype;
    sw__ask a = sw__ask_for(p, "attention");
    sw__ask_type(&a, t);
    sw__ask_text(&a, "EXP", t == SW_F64 ? "F64(exp)" : "sw_exp");
    sw__ask_text(&a, "LOG", t == SW_F64 ? "F64(log)" : "sw_log");
    where_arrays_are(&a, p, s, part);
    if (t == SW_F64) sw__ask_macro(&a, "DOUBLE", 1);
    sw__ask_macro(&a, "W", s->width);
    sw__ask_macro(&a, "ITEMS", s->items);
    sw__ask_macro(&a, "D", s->d);
    sw__ask_macro(&a, "E", s->e);
    sw__ask_macro(&a, "MASK", s->mask < 0 ? 0 : p->desc[s->mask].dtype == SW_BOOL ? 1 : 2);
    sw__ask_macro(&a, "CAUSAL", p->attr.attention.causal);
    sw__ask_macro(&a, "PART", part);
    features(&a, "QS", &p->desc[0]);
    features(&a, "KS", &p->desc[1]);
    features(&a, "VS", &p->desc[2]);
    for (int i = 0; i < 3; i++) sw__ask_buffer(&a, i, 0);
    mask_arguments(&a, p, s->mask);
    return a;
}

static sw_status launch(sw__ask *a, const sw__gpu_plan *p, const attention *s, int64_t lanes, int64_t units)
{
    const int64_t sizes[4] = {s->rows, s->keys, s->heads, s->heads / s->groups};
    const double scale = p->attr.attention.scale;
    const float narrow = (float)scale;
    uint32_t bits32;
    int64_t bits = 0;
    memcpy(&bits32, &narrow, sizeof bits32);
    if (p->desc[0].dtype == SW_F64) memcpy(&bits, &scale, sizeof bits);
    else bits = bits32;
    for (int i = 0; i < 3; i++) tensor(a, &p->desc[i]);
    sw__ask_i32(a, 4, sizes);
    sw__ask_i64(a, 1, &bits);
    return sw__ask_launch(a, sw__div_up(lanes, (int64_t)s->items * s->width) * units * s->batch, 1, 1, s->items);
}

static sw_status forward(sw__gpu_plan *p, const attention *s)
{
    sw__ask a = ask(p, s, 0);
    const int y = p->d.n_in, lse = y + 1;
    features(&a, "RS", &p->desc[y]);
    sw__ask_buffer(&a, lse, 0);
    lse_strides(&a, &p->desc[lse]);
    sw__ask_buffer(&a, y, 0);
    tensor(&a, &p->desc[y]);
    return launch(&a, p, s, s->rows, s->heads);
}

/* dy, the sums by row; part 2: y; the log-sum-exp. */
static sw__ask ask_backward(sw__gpu_plan *p, const attention *s, int part)
{
    sw__ask a = ask(p, s, part);
    features(&a, "GS", &p->desc[5]);
    sw__ask_buffer(&a, 5, 0);
    sw__ask_buffer(&a, p->n_bind, s->inner_at);
    tensor(&a, &p->desc[5]);
    if (part == 2) {
        features(&a, "YS", &p->desc[3]);
        sw__ask_buffer(&a, 3, 0);
        tensor(&a, &p->desc[3]);
    }
    sw__ask_buffer(&a, 4, 0);
    lse_strides(&a, &p->desc[4]);
    return a;
}

static sw_status backward(sw__gpu_plan *p, attention *s)
{
    const int dq = p->d.n_in;
    s->inner_at = sw__big_workspace(p, s->batch * s->heads * s->rows * sw__acc_bytes((sw_dtype)p->desc[0].dtype));
    sw__ask rows = ask_backward(p, s, 2);
    features(&rows, "RS", &p->desc[dq]);
    sw__ask_buffer(&rows, dq, 0);
    tensor(&rows, &p->desc[dq]);
    SW_TRY(launch(&rows, p, s, s->rows, s->heads));
    sw__ask keys = ask_backward(p, s, 1);
    features(&keys, "RS", &p->desc[dq + 1]);
    features(&keys, "SS", &p->desc[dq + 2]);
    for (int i = 1; i <= 2; i++) {
        sw__ask_buffer(&keys, dq + i, 0);
        tensor(&keys, &p->desc[dq + i]);
    }
    return launch(&keys, p, s, s->keys, s->groups);
}

sw_status sw__gpu_attention_plan(sw__gpu_plan *p)
{
    attention s = describe(p);
    if (p->desc[0].dtype == SW_F64 && !p->gpu->target.fp64)
        return sw__fail(SW_ERR_UNSUPPORTED, "this device has no arithmetic in f64; cast to f32");
    if (s.rows > INT32_MAX / 2 || s.keys > INT32_MAX / 2 || s.d > INT32_MAX / 2 || s.e > INT32_MAX / 2)
        return sw__fail(SW_ERR_UNSUPPORTED, "%lld rows, %lld keys: too many", (long long)s.rows, (long long)s.keys);
    snprintf(p->note, sizeof p->note, "%d rows an item", s.width);
    if (s.heads == 0 || s.batch == 0) return SW_OK; /* all results are empty */
    return p->d.op == SW_OP_ATTENTION_GRAD ? backward(p, &s) : forward(p, &s);
}
