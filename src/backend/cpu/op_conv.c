/* op_conv.c: CONV (x, w, bias -> y, relu), CONV_GRAD_X (dy, w -> dx), CONV_GRAD_W (x, dy -> dw): plans.
 * 3x3 with stride 1 in Winograd's form (wino.h). Else oneDNN with images as they lie where it likes that (channels
 * last), or reordered; weights lie as in the model file (O, C, spatial) and are reordered in each run, or packed once
 * where they stay as they are. Loops for the rest. */
#include "backend/cpu/conv.h"
#include "backend/cpu/wino.h"

#include <stdio.h>

typedef struct conv {
    sw__conv c;
    int x, w, bias, y;   /* indices of the tensors among inputs and outputs; bias -1: none */
    sw__dnn_job *job;
    bool columns;        /* job is a matrix product: conv_columns.c */
    sw__wino wino;
} conv;

/* The operands of a product of columns, by slot. */
enum { COLUMNS, WEIGHTS, BIAS, RESULT };

/* ---- what is to be computed -------------------------------------------------------------------------------------- */

static const struct { uint16_t op; int8_t direction, x, w, y; } roles[] = {
    {SW_OP_CONV, SW_DNN_FORWARD, 0, 1, -1}, /* -1: the output */
    {SW_OP_CONV_GRAD_X, SW_DNN_GRAD_X, -1, 1, 0},
    {SW_OP_CONV_GRAD_W, SW_DNN_GRAD_W, 0, -1, 1},
};

static void strides_of(const sw__desc *d, int64_t *to)
{
    const int nd = d->rank - 2;
    to[0] = d->stride[0];
    to[1] = d->stride[1];
    for (int i = 0; i < 3; i++) to[2 + i] = i < 3 - nd ? 0 : d->stride[2 + i - (3 - nd)];
}

static void describe(const sw__cpu_plan *p, conv *s)
{
    const sw__attr *const a = &p->attr;
    sw__conv *const c = &s->c;
    for (size_t i = 0; i < SW_COUNT(roles); i++) {
        if (roles[i].op != p->d.op) continue;
        c->direction = (sw__dnn_direction)roles[i].direction;
        s->x = roles[i].x < 0 ? p->d.n_in : roles[i].x;
        s->w = roles[i].w < 0 ? p->d.n_in : roles[i].w;
        s->y = roles[i].y < 0 ? p->d.n_in : roles[i].y;
    }
    s->bias = c->direction == SW_DNN_FORWARD && p->d.n_in > 2 ? 2 : -1;
    const sw__desc *const x = &p->desc[s->x], *const w = &p->desc[s->w], *const y = &p->desc[s->y];
    c->n = x->dim[0];
    c->groups = a->conv.groups;
    c->c = w->dim[1];
    c->o = w->dim[0] / c->groups;
    for (int i = 0; i < 3; i++) {
        const int at = i - (3 - a->conv.nd);
        c->x[i] = at < 0 ? 1 : x->dim[2 + at];
        c->w[i] = at < 0 ? 1 : w->dim[2 + at];
        c->y[i] = at < 0 ? 1 : y->dim[2 + at];
        c->stride[i] = at < 0 ? 1 : a->conv.stride[at];
        c->dilation[i] = at < 0 ? 1 : a->conv.dilation[at];
        c->pad[i] = at < 0 ? 0 : a->conv.pad_lo[at];
    }
    strides_of(x, c->xs);
    strides_of(w, c->ws);
    strides_of(y, c->ys);
    c->bias = s->bias >= 0;
    c->bias_stride = c->bias && p->d.in[2].dim[0] > 1 ? p->d.in[2].stride[0] : 1;
    c->relu = p->d.op == SW_OP_CONV && a->conv.act == SW_ACT_RELU;
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static bool channels_last(const sw__desc *d)
{
    const sw__desc last = sw__cpu_channels_last((sw_dtype)d->dtype, d->rank, d->dim);
    return sw__cpu_same_strides(d, &last);
}

static bool dense(const sw__desc *d)
{
    const sw__desc row_major = sw__cpu_dense((sw_dtype)d->dtype, d->rank, d->dim);
    return sw__cpu_same_strides(d, &row_major);
}

/* Images channels last or row-major (then oneDNN reorders them); weights in any order, each element once. */
bool sw__cpu_conv_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i)
{
    (void)cpu;
    const sw__desc *const t = &d->in[i];
    if (i == 2) return t->dim[0] <= 1 || t->stride[0] == 1;
    if (i == 1 && d->op != SW_OP_CONV_GRAD_W) return !sw__cpu_overlaps(t) && sw__cpu_nested(t);
    return channels_last(t) || dense(t);
}

/* ---- oneDNN ------------------------------------------------------------------------------------------------------ */

/* The primitive works channels last: fast for all sizes, where plain NCHW and, for few channels, "any" end in slow
 * paths. Strides of axes of size 1 mean nothing, but oneDNN compares them with those of its formats: so an image that
 * is channels last is described by the exact strides. */
static sw__dnn_operand image(const sw__desc *d, int slot)
{
    sw__dnn_operand o = {.desc = *d, .slot = slot, .format = SW_DNN_GIVEN};
    o.want = sw__cpu_channels_last((sw_dtype)d->dtype, d->rank, d->dim);
    if (channels_last(d)) o.desc = o.want;
    return o;
}

static double work_of(const sw__conv *c)
{
    return (double)(c->n * c->groups * c->o * c->c) * (double)(c->y[0] * c->y[1] * c->y[2]) *
           (double)(c->w[0] * c->w[1] * c->w[2]);
}

static sw_status plan_dnn(sw__cpu_plan *p, conv *s)
{
    const sw__conv *const c = &s->c;
    sw__cpu_plan_threads(p, work_of(c));
    const sw__dnn_operand x = image(&p->desc[s->x], s->x), y = image(&p->desc[s->y], s->y);
    const bool packed = c->direction == SW_DNN_FORWARD && sw__cpu_fixed(p, s->w);
    const sw__dnn_operand w = {.desc = p->desc[s->w], .slot = s->w, .format = packed ? SW_DNN_PACKED : SW_DNN_ANY};
    sw__dnn_operand bias = {.slot = 2};
    if (s->bias >= 0) {
        bias.desc = p->desc[s->bias];
        bias.desc.stride[0] = 1;
    }
    const bool narrow = c->y[2] <= 4 && c->c >= 64;
    SW_TRY(sw__dnn_conv(p->cpu->dnn, c->direction, &p->attr, narrow, &x, &w, s->bias >= 0 ? &bias : NULL, &y, &s->job));
    p->workspace = sw__dnn_workspace(s->job);
    snprintf(p->note, sizeof p->note, "%s", sw__dnn_note(s->job));
    return SW_OK;
}

static void relu(const sw__cpu_plan *p, const conv *s, void *const *ptr)
{
    if (s->c.relu && p->desc[s->y].dtype == SW_BF16) sw__cpu_relu_bf16(ptr[s->y], &p->desc[s->y], p->cpu->threads);
    else if (s->c.relu) sw__cpu_relu(p->cpu->simd, ptr[s->y], &p->desc[s->y], p->cpu->threads);
}

static sw_status exec_dnn(sw__cpu_plan *p, void *const *ptr)
{
    const conv *const s = p->state;
    SW_TRY(sw__dnn_run(s->job, ptr, ptr[p->d.n_in + 1]));
    relu(p, s, ptr);
    return SW_OK;
}

/* ---- few pixels -------------------------------------------------------------------------------------------------- */

/* Weights that are packed once, many of them to a pixel: what counts is how fast they are read. */
static bool columns_win(const sw__cpu_plan *p, const conv *s)
{
    const sw__conv *const c = &s->c;
    return c->direction == SW_DNN_FORWARD && p->desc[s->x].dtype == SW_F32 && sw__cpu_fixed(p, s->w) && c->groups == 1 &&
           c->y[2] <= 4 && c->c >= 64 && c->o >= 64 && sw__conv_columns_rows(c) <= 64 && channels_last(&p->desc[s->x]) &&
           channels_last(&p->desc[s->y]);
}

static sw__dnn_operand matrix(int slot, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride)
{
    return (sw__dnn_operand){.slot = slot,
                             .desc = {.dtype = SW_F32, .rank = 2, .dim = {rows, cols}, .stride = {row_stride, col_stride}}};
}

static sw_status exec_columns(sw__cpu_plan *p, void *const *ptr)
{
    const conv *const s = p->state;
    char *const work = ptr[p->d.n_in + 1];
    void *const operands[] = {[COLUMNS] = work + sw__dnn_workspace(s->job), [WEIGHTS] = ptr[s->w],
                              [BIAS] = s->bias >= 0 ? ptr[s->bias] : NULL, [RESULT] = ptr[s->y]};
    sw__conv_columns(&s->c, ptr[s->x], operands[COLUMNS]);
    SW_TRY(sw__dnn_run(s->job, operands, work));
    relu(p, s, ptr);
    return SW_OK;
}

static sw_status plan_columns(sw__cpu_plan *p, conv *s)
{
    const int64_t m = sw__conv_columns_rows(&s->c), k = sw__conv_columns_width(&s->c), n = s->c.o;
    sw__cpu_plan_threads(p, (double)m * (double)k * (double)n);
    const sw__dnn_operand a = matrix(COLUMNS, m, k, k, 1), y = matrix(RESULT, m, n, n, 1);
    sw__dnn_operand w = matrix(WEIGHTS, k, n, 1, k), bias = {.slot = BIAS};
    w.format = SW_DNN_PACKED;
    if (s->bias >= 0) {
        bias.desc = p->desc[s->bias];
        bias.desc.stride[0] = 1;
    }
    SW_TRY(sw__dnn_matmul(p->cpu->dnn, &a, &w, s->bias >= 0 ? &bias : NULL, &y, &s->job));
    if (sw__dnn_packed(s->job, WEIGHTS) == 0) { /* it would read them as they lie, which is not in this order */
        sw__dnn_free(s->job);
        s->job = NULL;
        return SW_ERR_UNSUPPORTED;
    }
    s->columns = true;
    p->exec = exec_columns;
    p->workspace = sw__dnn_workspace(s->job) + sw__cpu_align((size_t)(m * k) * sizeof(float));
    snprintf(p->note, sizeof p->note, "columns, %s", sw__dnn_note(s->job));
    return SW_OK;
}

/* ---- packed weights ---------------------------------------------------------------------------------------------- */

static size_t packs(const sw__cpu_plan *p, int input)
{
    const conv *const s = p->state;
    if (s->job == NULL || input != s->w) return 0;
    return sw__dnn_packed(s->job, s->columns ? WEIGHTS : input);
}

static sw_status pack(sw__cpu_plan *p, int input, void *from, void *to)
{
    const conv *const s = p->state;
    if (!s->columns) return sw__dnn_pack(s->job, input, from, to);
    const size_t bytes = (size_t)(sw__conv_columns_width(&s->c) * s->c.o) * sizeof(float);
    float *const rows = sw__malloc(bytes);
    if (rows == NULL) return sw__no_memory(bytes, "the weights of a convolution in another order");
    const sw__desc *const w = &p->desc[s->w];
    const sw__desc last = sw__cpu_channels_last(SW_F32, w->rank, w->dim);
    sw__cpu_copy(p->cpu, rows, &last, from, w);
    const sw_status st = sw__dnn_pack(s->job, WEIGHTS, rows, to);
    sw__free(rows);
    return st;
}

/* ---- Winograd ---------------------------------------------------------------------------------------------------- */

/* Weights as they lie in the model's file. bf16 too, unless the machine has AMX: it is computed in f32, which with a
 * quarter of the multiplications beats AVX-512's bf16. */
static bool wino_can(const sw__cpu_plan *p, const conv *s)
{
    return p->attr.conv.nd == 2 && channels_last(&p->desc[s->x]) && channels_last(&p->desc[s->y]) &&
           dense(&p->desc[s->w]) && sw__wino_can(&s->c) &&
           (p->desc[s->x].dtype == SW_F32 || (p->desc[s->x].dtype == SW_BF16 && !sw__amx_bf16()));
}

static sw_status exec_wino(sw__cpu_plan *p, void *const *ptr)
{
    const conv *const s = p->state;
    sw__wino_run(&s->wino, ptr[s->x], ptr[s->w], s->bias >= 0 ? ptr[s->bias] : NULL, ptr[s->y], ptr[p->d.n_in + 1]);
    return SW_OK;
}

static void plan_wino(sw__cpu_plan *p, conv *s)
{
    sw__cpu_plan_threads(p, work_of(&s->c));
    sw__wino_plan(&s->wino, &s->c, p->desc[s->x].dtype == SW_BF16, p->cpu->simd, p->threads);
    p->exec = exec_wino;
    p->workspace = s->wino.bytes;
    snprintf(p->note, sizeof p->note, "winograd:%s, 0 reorders", sw__simd_name(p->cpu->simd));
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

static sw_status exec_loops(sw__cpu_plan *p, void *const *ptr)
{
    const conv *const s = p->state;
    sw__conv_loops(&s->c, (sw_dtype)p->d.out[0].dtype, ptr[s->x], ptr[s->w], s->bias >= 0 ? ptr[s->bias] : NULL,
                   ptr[s->y], p->cpu->threads);
    return SW_OK;
}

static void drop(void *state)
{
    sw__dnn_free(((conv *)state)->job);
    sw__free(state);
}

static bool some_empty(const sw__cpu_plan *p)
{
    for (int i = 0; i < p->d.n_in + p->d.n_out; i++)
        if (sw__desc_elements(&p->desc[i]) == 0) return true;
    return false;
}

static bool dnn_can(const sw__cpu_plan *p, const conv *s)
{
    const uint8_t t = p->desc[s->x].dtype;
    if (t == SW_BF16 && s->c.relu && !sw__cpu_packed(&p->desc[s->y])) return false;
    return (t == SW_F32 || t == SW_BF16) && !some_empty(p) && !sw__cpu_overlaps(&p->desc[s->x]) &&
           !sw__cpu_overlaps(&p->desc[s->y]) && !sw__cpu_overlaps(&p->desc[s->w]) && sw__cpu_nested(&p->desc[s->w]) &&
           s->c.bias_stride == 1;
}

sw_status sw__cpu_conv_plan(sw__cpu_plan *p)
{
    const sw_dtype t = (sw_dtype)p->d.out[0].dtype;
    conv *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned convolution");
    p->state = s;
    p->drop = drop;
    p->packs = packs;
    p->pack = pack;
    describe(p, s);
    if (dnn_can(p, s) && wino_can(p, s)) {
        plan_wino(p, s);
        return SW_OK;
    }
    if (t == SW_BF16 && p->cpu->simd == SW_SIMD_AVX512 && dnn_can(p, s)) {
        p->exec = exec_dnn;
        return plan_dnn(p, s);
    }
    if (t != SW_F32 && t != SW_F64)
        return sw__fail(SW_ERR_UNSUPPORTED, "there is no arithmetic in %s; cast to f32", sw_dtype_name(t));
    if (dnn_can(p, s) && columns_win(p, s)) {
        const sw_status st = plan_columns(p, s);
        if (st != SW_ERR_UNSUPPORTED) return st;
    }
    if (dnn_can(p, s)) {
        p->exec = exec_dnn;
        const sw_status st = plan_dnn(p, s);
        if (st != SW_ERR_UNSUPPORTED) return st;
    }
    p->exec = exec_loops;
    snprintf(p->note, sizeof p->note, "loops:%s", sw_dtype_name(t));
    return SW_OK;
}
