/* op_index.c: SCATTER_ADD, _SET, _MAX (base, index, src -> out) and EMBEDDING_GRAD (index, dy -> dw), any type.
 * Indices are the user's data: all are checked before anything is written. Every element of the result takes its
 * contributions in order of the index, whatever the number of threads. */
#include "backend/cpu/columns.h"

#include "backend/cpu/simd.h"

#include <stdio.h>

SW__SIMD_DECLARE(void, sw__add_row, (float *to, const float *from, int64_t n)); /* index_simd.c */

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* Element e (row-major) of a tensor: its place in memory. */
static int64_t place(const sw__desc *d, int64_t e)
{
    int64_t at = 0;
    for (int i = d->rank - 1; i >= 0; i--) {
        at += e % d->dim[i] * d->stride[i];
        e /= d->dim[i];
    }
    return at;
}

static sw_status check_indices(const sw__desc *d, const void *index, int64_t extent, int threads)
{
    const int64_t n = sw__desc_elements(d);
    int64_t bad = n;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(min : bad) if (threads > 1)
    for (int64_t e = 0; e < n; e++) {
        const int64_t v = sw__cpu_index((sw_dtype)d->dtype, index, place(d, e));
        if ((v < 0 || v >= extent) && e < bad) bad = e;
    }
    if (bad == n) return SW_OK;
    if (extent == 0) return sw__fail(SW_ERR_DATA, "there is nothing to index: the axis is empty");
    return sw__fail(SW_ERR_DATA, "index[%lld] is %lld, outside 0 to %lld", (long long)bad,
                    (long long)sw__cpu_index((sw_dtype)d->dtype, index, place(d, bad)), (long long)(extent - 1));
}

/* ---- combining --------------------------------------------------------------------------------------------------- */

#define FLOAT_MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a)) /* NaN wins */
#define COMBINE(T, SUM, GREATER)                                                                                       \
    do {                                                                                                               \
        T *const to = (T *)out + o;                                                                                    \
        const T v = ((const T *)src)[s];                                                                               \
        *to = op == SW_OP_SCATTER_ADD ? (T)(SUM) : op == SW_OP_SCATTER_MAX ? (T)(GREATER) : v;                         \
    } while (0)
#define COMBINE_HALF(READ, WRITE)                                                                                      \
    do {                                                                                                               \
        uint16_t *const to = (uint16_t *)out + o;                                                                      \
        const uint16_t v = ((const uint16_t *)src)[s];                                                                 \
        const float a = READ(*to), b = READ(v);                                                                        \
        *to = op == SW_OP_SCATTER_SET ? v : WRITE(op == SW_OP_SCATTER_ADD ? a + b : FLOAT_MAX(a, b));                  \
    } while (0)

/* out[o] op= src[s] */
static inline void combine(int op, sw_dtype t, void *out, int64_t o, const void *src, int64_t s)
{
    switch (t) {
    case SW_F32: COMBINE(float, *to + v, FLOAT_MAX(*to, v)); break;
    case SW_F64: COMBINE(double, *to + v, FLOAT_MAX(*to, v)); break;
    case SW_F16: COMBINE_HALF(sw__f16_to_f32, sw__f32_to_f16); break;
    case SW_BF16: COMBINE_HALF(sw__bf16_to_f32, sw__f32_to_bf16); break;
    case SW_I32: COMBINE(int32_t, (uint32_t)*to + (uint32_t)v, SW_MAX(*to, v)); break;
    case SW_I64: COMBINE(int64_t, (uint64_t)*to + (uint64_t)v, SW_MAX(*to, v)); break;
    case SW_U32: COMBINE(uint32_t, *to + v, SW_MAX(*to, v)); break;
    default: COMBINE(uint8_t, *to + v, SW_MAX(*to, v)); break;
    }
}

/* ---- scatter ----------------------------------------------------------------------------------------------------- */

enum { OUT, INDEX, SRC };

typedef struct scatter {
    sw__columns c; /* out, index, src */
    int64_t length, extent, along[3];
    bool by_range; /* few columns: each thread owns a range of the result along the axis instead */
} scatter;

static void column(const scatter *s, const sw__cpu_plan *p, void *const *ptr, int64_t i, int64_t lo, int64_t hi)
{
    const sw_dtype it = (sw_dtype)p->d.in[1].dtype, t = (sw_dtype)p->d.out[0].dtype;
    int64_t at[4];
    sw__columns_at(&s->c, i, at);
    for (int64_t k = 0; k < s->length; k++) {
        const int64_t to = sw__cpu_index(it, ptr[1], at[INDEX] + k * s->along[INDEX]);
        if (to < lo || to >= hi) continue;
        combine(p->d.op, t, ptr[3], at[OUT] + to * s->along[OUT], ptr[2], at[SRC] + k * s->along[SRC]);
    }
}

static sw_status exec_scatter(sw__cpu_plan *p, void *const *ptr)
{
    const scatter *const s = p->state;
    const int threads = sw__cpu_threads(p->cpu, (double)s->c.count * (double)s->length * 4.0);
    SW_TRY(check_indices(&p->d.in[1], ptr[1], s->extent, threads));
    if (ptr[0] != ptr[3] || !sw__cpu_same_strides(&p->d.in[0], &p->d.out[0]))
        sw__cpu_copy(p->cpu, ptr[3], &p->d.out[0], ptr[0], &p->d.in[0]);
    const int64_t parts = s->by_range ? threads : s->c.count;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < parts; i++) {
        if (!s->by_range) {
            column(s, p, ptr, i, 0, s->extent);
            continue;
        }
        const int64_t lo = s->extent * i / parts, hi = s->extent * (i + 1) / parts;
        for (int64_t k = 0; k < s->c.count; k++) column(s, p, ptr, k, lo, hi);
    }
    return SW_OK;
}

sw_status sw__cpu_scatter_plan(sw__cpu_plan *p)
{
    scatter *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned op");
    p->state = s;
    const int axis = p->attr.axis.axis;
    const sw__desc *const all[3] = {&p->d.out[0], &p->d.in[1], &p->d.in[2]};
    s->c = sw__columns_of(all, 3, axis);
    s->length = p->d.in[1].dim[axis];
    s->extent = p->d.out[0].dim[axis];
    for (int i = 0; i < 3; i++) s->along[i] = all[i]->stride[axis];
    s->by_range = s->c.count < 4 * (int64_t)p->cpu->threads;
    p->exec = exec_scatter;
    snprintf(p->note, sizeof p->note, "loops:%s", sw_dtype_name((sw_dtype)p->d.out[0].dtype));
    return SW_OK;
}

/* ---- embedding gradient ------------------------------------------------------------------------------------------ */

/* Adds rows of dy, [c0, c1) of each, to those rows of dw that are in [r0, r1). */
static void add_rows(const sw__cpu_plan *p, void *const *ptr, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    const sw__desc *const index = &p->d.in[0], *const dy = &p->d.in[1], *const dw = &p->d.out[0];
    const sw_dtype t = (sw_dtype)dw->dtype;
    const int64_t n = sw__desc_elements(index), ss = dy->stride[dy->rank - 1], os = dw->stride[1];
    sw__desc rows = *dy; /* dy without its last axis */
    rows.rank--;
    for (int64_t e = 0; e < n; e++) {
        const int64_t r = sw__cpu_index((sw_dtype)index->dtype, ptr[0], place(index, e));
        if (r < r0 || r >= r1) continue;
        const int64_t to = r * dw->stride[0], from = place(&rows, e);
        if (t == SW_F32 && ss == 1 && os == 1) {
            SW__SIMD_PICK(p->cpu->simd, sw__add_row)((float *)ptr[2] + to + c0, (const float *)ptr[1] + from + c0, c1 - c0);
            continue;
        }
        for (int64_t c = c0; c < c1; c++) combine(SW_OP_SCATTER_ADD, t, ptr[2], to + c * os, ptr[1], from + c * ss);
    }
}

static void clear(const sw__cpu_plan *p, void *const *ptr, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    const sw__desc *const dw = &p->d.out[0];
    const size_t size = sw_dtype_size((sw_dtype)dw->dtype);
    for (int64_t r = r0; r < r1; r++) {
        char *const row = (char *)ptr[2] + (size_t)(r * dw->stride[0]) * size;
        if (dw->stride[1] == 1) memset(row + (size_t)c0 * size, 0, (size_t)(c1 - c0) * size);
        else
            for (int64_t c = c0; c < c1; c++) memset(row + (size_t)(c * dw->stride[1]) * size, 0, size);
    }
}

static sw_status exec_embedding_grad(sw__cpu_plan *p, void *const *ptr)
{
    const sw__desc *const dw = &p->d.out[0];
    const int64_t rows = dw->dim[0], width = dw->dim[1], n = sw__desc_elements(&p->d.in[0]);
    const int threads = sw__cpu_threads(p->cpu, (double)(n + rows) * (double)(width + 4));
    SW_TRY(check_indices(&p->d.in[0], ptr[0], rows, threads));
    const bool by_columns = width >= 32 * (int64_t)threads; /* else each thread owns a range of rows */
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < threads; i++) {
        const int64_t r0 = by_columns ? 0 : rows * i / threads, r1 = by_columns ? rows : rows * (i + 1) / threads;
        const int64_t c0 = by_columns ? width * i / threads : 0, c1 = by_columns ? width * (i + 1) / threads : width;
        clear(p, ptr, r0, r1, c0, c1);
        add_rows(p, ptr, r0, r1, c0, c1);
    }
    return SW_OK;
}

sw_status sw__cpu_embedding_grad_plan(sw__cpu_plan *p)
{
    p->exec = exec_embedding_grad;
    snprintf(p->note, sizeof p->note, "loops:%s", sw_dtype_name((sw_dtype)p->d.out[0].dtype));
    return SW_OK;
}
