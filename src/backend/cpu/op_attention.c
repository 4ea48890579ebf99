/* op_attention.c: ATTENTION and ATTENTION_GRAD: plans, and how the work is shared out. f32 by blocks
 * (attention_simd.c), f64 by rows (attention_loops.c). A thread writes nothing that another one writes, so that the
 * number of threads decides nothing.
 *
 * The gradient goes over all blocks of scores once and adds up dq, dk and dv of one group of heads, where there are
 * enough groups for the threads; otherwise twice, for dk and dv by blocks of keys and then for dq by blocks of rows.
 * The sums are in the same order either way. */
#include "backend/cpu/attention.h"
#include "backend/cpu/cpu.h"

#include <stdio.h>

enum { Q, K, V, Y, LSE, DY, MASK, DQ, DK, DV, ROLES };

/* Which tensor of the op has the role: inputs, then outputs; -1: none. */
typedef struct attention {
    sw__attention a;
    int at[ROLES];
    bool grad;
    size_t line;                /* bytes of workspace of a thread */
    size_t copy_at[3];          /* outputs whose last axis has another stride than 1 are made dense, here */
    bool copies[3];
    sw__desc dense[3];
} attention;

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

static void roles(const sw__cpu_plan *p, attention *s)
{
    const bool grad = p->d.op == SW_OP_ATTENTION_GRAD;
    const int n = p->d.n_in, mask = grad ? 6 : 3;
    s->grad = grad;
    const int in_forward[ROLES] = {0, 1, 2, n, n + 1, -1, n > mask ? mask : -1, -1, -1, -1};
    const int in_gradient[ROLES] = {0, 1, 2, 3, 4, 5, n > mask ? mask : -1, n, n + 1, n + 2};
    memcpy(s->at, grad ? in_gradient : in_forward, sizeof s->at);
}

static sw__attention_strides strides(const sw__desc *d)
{
    return (sw__attention_strides){d->stride[0], d->stride[1], d->stride[2]};
}

/* How tensor i is computed with: as it lies, or as the dense copy. */
static const sw__desc *laid(const sw__cpu_plan *p, const attention *s, int i)
{
    const int out = i - p->d.n_in;
    return out >= 0 && s->copies[out] ? &s->dense[out] : &p->desc[i];
}

static void describe(const sw__cpu_plan *p, attention *s)
{
    sw__attention *const a = &s->a;
    const sw__desc *const q = &p->desc[Q], *const k = &p->desc[K], *const v = &p->desc[V];
    *a = (sw__attention){.batch = q->dim[0], .rows = q->dim[1], .heads = q->dim[2], .d = q->dim[3], .keys = k->dim[1],
                         .groups = k->dim[2], .e = v->dim[3], .scale = p->attr.attention.scale,
                         .causal = p->attr.attention.causal, .q = strides(q), .k = strides(k), .v = strides(v)};
    sw__attention_strides *const to[ROLES] = {[Y] = &a->y, [DY] = &a->dy, [DQ] = &a->dq, [DK] = &a->dk, [DV] = &a->dv};
    for (int r = 0; r < ROLES; r++)
        if (to[r] != NULL && s->at[r] >= 0) *to[r] = strides(laid(p, s, s->at[r]));
    const sw__desc *const lse = laid(p, s, s->at[LSE]);
    for (int i = 0; i < 3; i++) a->lse_s[i] = lse->stride[i];
    if (s->at[MASK] < 0) return;
    const sw__desc *const mask = &p->desc[s->at[MASK]];
    a->mask = mask->dtype == SW_BOOL ? 1 : 2;
    for (int i = 0; i < 4; i++) a->mask_s[i] = mask->dim[i] == 1 ? 0 : mask->stride[i];
}

/* Features lie side by side; the mask and the log-sum-exp may have any strides. */
bool sw__cpu_attention_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i)
{
    (void)cpu;
    const bool grad = d->op == SW_OP_ATTENTION_GRAD;
    if (i == (grad ? 6 : 3) || (grad && i == 4)) return true;
    return d->in[i].dim[3] == 1 || d->in[i].stride[3] == 1;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void *workspace(const attention *s, const sw__cpu_plan *p, void *const *ptr)
{
    return (char *)ptr[p->d.n_in + p->d.n_out] + s->line * (size_t)sw__cpu_thread();
}

static sw__attention_data data_of(const attention *s, void *const *at)
{
    void *t[ROLES];
    for (int r = 0; r < ROLES; r++) t[r] = s->at[r] < 0 ? NULL : at[s->at[r]];
    return (sw__attention_data){.q = t[Q], .k = t[K], .v = t[V], .mask = t[MASK], .dy = t[DY], .y = t[Y], .lse = t[LSE],
                                .dq = t[DQ], .dk = t[DK], .dv = t[DV]};
}

static void forward(const sw__cpu_plan *p, const attention *s, const sw__attention_data *t, void *const *ptr, bool f64)
{
    const sw__attention *const a = &s->a;
    const sw__simd level = p->cpu->simd;
    const int64_t each = f64 ? 1 : sw__attention_rows(level), blocks = (a->rows + each - 1) / each;
    const int threads = p->threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int64_t i = 0; i < a->batch * a->heads * blocks; i++) {
        const int64_t b = i / blocks / a->heads, h = i / blocks % a->heads;
        if (f64) sw__attention_row_f64(a, t, b, h, i % blocks, workspace(s, p, ptr));
        else SW__SIMD_PICK(level, sw__attention_forward)(a, t, b, h, i % blocks, workspace(s, p, ptr));
    }
}

/* One group of one batch at a time. */
static void backward_groups(const sw__cpu_plan *p, const attention *s, const sw__attention_data *t, void *const *ptr,
                            bool f64)
{
    const sw__attention *const a = &s->a;
    const int64_t share = a->heads / a->groups;
    const int threads = p->threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int64_t i = 0; i < a->batch * a->groups; i++) {
        const int64_t group = i % a->groups;
        const sw__attention_part part = {.b = i / a->groups, .group = group, .head0 = group * share,
                                         .head1 = (group + 1) * share, .row1 = a->rows, .key1 = a->keys, .dq = true,
                                         .dkv = true};
        if (f64) sw__attention_group_f64(a, t, part.b, group, workspace(s, p, ptr));
        else SW__SIMD_PICK(p->cpu->simd, sw__attention_backward)(a, t, &part, workspace(s, p, ptr));
    }
}

/* dk and dv by blocks of keys. */
static void backward_keys(const sw__cpu_plan *p, const attention *s, const sw__attention_data *t, void *const *ptr)
{
    const sw__attention *const a = &s->a;
    const int64_t blocks = (a->keys + SW__ATTENTION_KEYS - 1) / SW__ATTENTION_KEYS, share = a->heads / a->groups;
    const int threads = p->threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int64_t i = 0; i < a->batch * a->groups * blocks; i++) {
        const int64_t group = i / blocks % a->groups, key0 = i % blocks * SW__ATTENTION_KEYS;
        const sw__attention_part part = {.b = i / blocks / a->groups, .group = group, .head0 = group * share,
                                         .head1 = (group + 1) * share, .row1 = a->rows, .key0 = key0,
                                         .key1 = SW_MIN(key0 + SW__ATTENTION_KEYS, a->keys), .dkv = true};
        SW__SIMD_PICK(p->cpu->simd, sw__attention_backward)(a, t, &part, workspace(s, p, ptr));
    }
}

/* dq by blocks of rows. */
static void backward_rows(const sw__cpu_plan *p, const attention *s, const sw__attention_data *t, void *const *ptr)
{
    const sw__attention *const a = &s->a;
    const int64_t each = sw__attention_rows(p->cpu->simd), blocks = (a->rows + each - 1) / each;
    const int64_t share = a->heads / a->groups;
    const int threads = p->threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int64_t i = 0; i < a->batch * a->heads * blocks; i++) {
        const int64_t h = i / blocks % a->heads, row0 = i % blocks * each;
        const sw__attention_part part = {.b = i / blocks / a->heads, .group = h / share, .head0 = h, .head1 = h + 1,
                                         .row0 = row0, .row1 = SW_MIN(row0 + each, a->rows), .key1 = a->keys,
                                         .dq = true};
        SW__SIMD_PICK(p->cpu->simd, sw__attention_backward)(a, t, &part, workspace(s, p, ptr));
    }
}

/* dk and dv are added to. */
static void clear(const sw__cpu_plan *p, const attention *s, void *const *at)
{
    for (int r = DK; r <= DV; r++) {
        const sw__desc *const d = laid(p, s, s->at[r]);
        const size_t size = sw_dtype_size((sw_dtype)d->dtype);
        const int64_t rows = d->dim[0] * d->dim[1] * d->dim[2];
        for (int64_t i = 0; i < rows; i++) {
            const int64_t h = i % d->dim[2], t = i / d->dim[2] % d->dim[1], b = i / d->dim[2] / d->dim[1];
            const int64_t place = b * d->stride[0] + t * d->stride[1] + h * d->stride[2];
            memset((char *)at[s->at[r]] + (size_t)place * size, 0, (size_t)d->dim[3] * size);
        }
    }
}

static sw_status exec(sw__cpu_plan *p, void *const *ptr)
{
    const attention *const s = p->state;
    const int n = p->d.n_in, all = n + p->d.n_out;
    const bool f64 = p->desc[Q].dtype == SW_F64;
    void *at[10];
    for (int i = 0; i < all; i++)
        at[i] = i >= n && s->copies[i - n] ? (char *)ptr[all] + s->copy_at[i - n] : ptr[i];
    const sw__attention_data t = data_of(s, at);
    if (s->grad) clear(p, s, at);
    if (!s->grad) {
        forward(p, s, &t, ptr, f64);
    } else if (f64 || s->a.batch * s->a.groups >= 2 * (int64_t)p->threads || p->threads == 1) {
        backward_groups(p, s, &t, ptr, f64);
    } else {
        backward_keys(p, s, &t, ptr);
        backward_rows(p, s, &t, ptr);
    }
    for (int i = 0; i < p->d.n_out; i++)
        if (s->copies[i]) sw__cpu_copy(p->cpu, ptr[n + i], &p->desc[n + i], at[n + i], &s->dense[i]);
    return SW_OK;
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

/* As block_of in attention_simd.c cuts it. */
static size_t line_of(const sw__attention *a, sw__simd level, bool grad, bool f64)
{
    const int64_t rows = sw__attention_rows(level), d = (a->d + 15) & ~(int64_t)15, e = (a->e + 15) & ~(int64_t)15;
    const int64_t block = SW__ATTENTION_KEYS * rows;
    if (f64) return sw__cpu_align((size_t)a->keys * sizeof(double) + 1);
    const int64_t floats = rows * (SW_MAX(d, e) + d + 5) + block + (grad ? rows * (d + 2 * e) + block : 0);
    return sw__cpu_align((size_t)floats * sizeof(float));
}

static void plan_copies(sw__cpu_plan *p, attention *s)
{
    for (int i = 0; i < p->d.n_out; i++) {
        const sw__desc *const d = &p->d.out[i];
        s->copies[i] = d->rank == 4 && d->dim[3] > 1 && d->stride[3] != 1;
        if (!s->copies[i]) continue;
        s->dense[i] = sw__cpu_dense((sw_dtype)d->dtype, d->rank, d->dim);
        s->copy_at[i] = p->workspace;
        p->workspace += sw__cpu_align((size_t)sw__desc_elements(d) * sw_dtype_size((sw_dtype)d->dtype));
    }
}

sw_status sw__cpu_attention_plan(sw__cpu_plan *p)
{
    const sw_dtype t = (sw_dtype)p->d.in[Q].dtype;
    attention *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned attention");
    p->state = s;
    if (t != SW_F32 && t != SW_F64)
        return sw__fail(SW_ERR_UNSUPPORTED, "there is no arithmetic in %s; cast to f32", sw_dtype_name(t));
    roles(p, s);
    describe(p, s); /* for the sizes; again when it is known where outputs lie */
    const double scores = (double)s->a.batch * (double)s->a.heads * (double)s->a.rows * (double)s->a.keys;
    p->threads = sw__cpu_threads(p->cpu, scores * (double)(s->a.d + s->a.e));
    s->line = line_of(&s->a, p->cpu->simd, s->grad, t == SW_F64);
    p->workspace = s->line * (size_t)p->threads;
    plan_copies(p, s);
    describe(p, s);
    p->exec = exec;
    if (t == SW_F64) snprintf(p->note, sizeof p->note, "loops:f64");
    else snprintf(p->note, sizeof p->note, "blocks:%s", sw__simd_name(p->cpu->simd));
    return SW_OK;
}
