/* op_order.c: ARGMAX, ARGMIN, SCAN_SUM, SORT, ARGSORT along one axis, any type, any strides; threads over columns.
 * Values are compared through keys (columns.h), so that one merge sort serves all types. */
#include "backend/cpu/columns.h"

#include <math.h>
#include <stdio.h>

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static uint64_t key_of_double(double v)
{
    uint64_t bits;
    if (isnan(v)) return UINT64_MAX;
    v += 0.0; /* -0 -> 0 */
    memcpy(&bits, &v, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static uint64_t key_of_int(int64_t v)
{
    return (uint64_t)v ^ UINT64_C(1) << 63;
}

uint64_t sw__cpu_order_key(sw_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case SW_F32: return key_of_double((double)((const float *)p)[i]);
    case SW_F64: return key_of_double(((const double *)p)[i]);
    case SW_F16: return key_of_double((double)sw__f16_to_f32(((const uint16_t *)p)[i]));
    case SW_BF16: return key_of_double((double)sw__bf16_to_f32(((const uint16_t *)p)[i]));
    case SW_I32: return key_of_int(((const int32_t *)p)[i]);
    case SW_I64: return key_of_int(((const int64_t *)p)[i]);
    case SW_U32: return ((const uint32_t *)p)[i];
    default: return ((const uint8_t *)p)[i]; /* u8, bool */
    }
}

/* ---- argmax, argmin ---------------------------------------------------------------------------------------------- */

typedef struct order {
    sw__columns c;        /* in, out */
    int64_t length, xs, ys; /* along the axis */
    bool flag;            /* ARGMAX; SCAN: reverse; SORT: descending */
    size_t room;          /* SORT: workspace of one thread */
} order;

static order *new_order(sw__cpu_plan *p)
{
    order *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    const int axis = p->attr.axis.axis;
    const sw__desc *const both[2] = {&p->d.in[0], &p->d.out[0]};
    s->c = sw__columns_of(both, 2, axis);
    s->length = both[0]->dim[axis];
    s->xs = both[0]->stride[axis];
    s->ys = both[1]->stride[axis];
    s->flag = p->attr.axis.flag;
    p->state = s;
    snprintf(p->note, sizeof p->note, "loops:%s", sw_dtype_name((sw_dtype)both[0]->dtype));
    return s;
}

static sw_status exec_argreduce(sw__cpu_plan *p, void *const *ptr)
{
    const order *const s = p->state;
    const sw_dtype t = (sw_dtype)p->d.in[0].dtype;
    const int threads = sw__cpu_threads(p->cpu, (double)s->c.count * (double)s->length * 4.0);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < s->c.count; i++) {
        int64_t at[4], best = 0;
        sw__columns_at(&s->c, i, at);
        uint64_t top = sw__cpu_order_key(t, ptr[0], at[0]);
        for (int64_t k = 1; k < s->length; k++) {
            const uint64_t key = sw__cpu_order_key(t, ptr[0], at[0] + k * s->xs);
            if (s->flag ? key <= top : key >= top) continue;
            top = key;
            best = k;
        }
        ((int64_t *)ptr[1])[at[1]] = best;
    }
    return SW_OK;
}

sw_status sw__cpu_argreduce_plan(sw__cpu_plan *p)
{
    order *const s = new_order(p);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned op");
    s->flag = p->d.op == SW_OP_ARGMAX;
    p->exec = exec_argreduce;
    return SW_OK;
}

/* ---- running sum ------------------------------------------------------------------------------------------------- */

/* Floating-point sums run in double (halves and f32), so a long column of f32 stays exact to its own rounding. */
#define SCAN(T, SUM, READ, WRITE)                                                                                      \
    do {                                                                                                               \
        const T *const x = (const T *)from + at[0];                                                                    \
        T *const y = (T *)to + at[1];                                                                                  \
        SUM sum = 0;                                                                                                   \
        for (int64_t e = 0; e < s->length; e++) {                                                                      \
            const int64_t k = s->flag ? s->length - 1 - e : e;                                                         \
            sum += READ(x[k * s->xs]);                                                                                 \
            y[k * s->ys] = WRITE(sum);                                                                                 \
        }                                                                                                              \
    } while (0)
#define TO_F16(v) sw__f32_to_f16((float)(v))
#define TO_BF16(v) sw__f32_to_bf16((float)(v))

static void scan_column(const order *s, sw_dtype t, const void *from, void *to, const int64_t at[4])
{
    switch (t) {
    case SW_F32: SCAN(float, double, , (float)); break;
    case SW_F64: SCAN(double, double, , ); break;
    case SW_F16: SCAN(uint16_t, double, (double)sw__f16_to_f32, TO_F16); break;
    case SW_BF16: SCAN(uint16_t, double, (double)sw__bf16_to_f32, TO_BF16); break;
    case SW_I32:
    case SW_U32: SCAN(uint32_t, uint32_t, , ); break;
    case SW_I64: SCAN(uint64_t, uint64_t, , ); break;
    default: SCAN(uint8_t, unsigned, , (uint8_t)); break;
    }
}

static sw_status exec_scan(sw__cpu_plan *p, void *const *ptr)
{
    const order *const s = p->state;
    const int threads = sw__cpu_threads(p->cpu, (double)s->c.count * (double)s->length * 4.0);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < s->c.count; i++) {
        int64_t at[4];
        sw__columns_at(&s->c, i, at);
        scan_column(s, (sw_dtype)p->d.in[0].dtype, ptr[0], ptr[1], at);
    }
    return SW_OK;
}

sw_status sw__cpu_scan_plan(sw__cpu_plan *p)
{
    if (new_order(p) == NULL) return sw__no_memory(sizeof(order), "a planned op");
    p->exec = exec_scan;
    return SW_OK;
}

/* ---- sort -------------------------------------------------------------------------------------------------------- */

typedef struct item { uint64_t key; int64_t index; } item;

#define RUN 16 /* sorted by insertion before merging */

static void sort_run(item *v, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const item x = v[i];
        int64_t k = i;
        for (; k > 0 && v[k - 1].key > x.key; k--) v[k] = v[k - 1];
        v[k] = x;
    }
}

/* Stable: of equal keys the left one goes first. */
static void merge(const item *a, int64_t na, const item *b, int64_t nb, item *to)
{
    while (na > 0 && nb > 0) {
        if (b->key < a->key) {
            *to++ = *b++;
            nb--;
        } else {
            *to++ = *a++;
            na--;
        }
    }
    memcpy(to, a, (size_t)na * sizeof *a);
    memcpy(to + na, b, (size_t)nb * sizeof *b);
}

/* Bottom-up; returns which of the two arrays holds the result. */
static const item *merge_sort(item *v, item *spare, int64_t n)
{
    for (int64_t i = 0; i < n; i += RUN) sort_run(v + i, SW_MIN(RUN, n - i));
    for (int64_t width = RUN; width < n; width *= 2) {
        for (int64_t i = 0; i < n; i += 2 * width) {
            const int64_t left = SW_MIN(width, n - i);
            merge(v + i, left, v + i + left, SW_MIN(width, n - i - left), spare + i);
        }
        item *const t = v;
        v = spare;
        spare = t;
    }
    return v;
}

static void store(sw__cpu_plan *p, const order *s, void *const *ptr, const int64_t at[4], const item *sorted)
{
    const size_t size = sw_dtype_size((sw_dtype)p->d.in[0].dtype);
    for (int64_t k = 0; k < s->length; k++) {
        if (p->d.op == SW_OP_ARGSORT) ((int64_t *)ptr[1])[at[1] + k * s->ys] = sorted[k].index;
        else
            memcpy((char *)ptr[1] + (size_t)(at[1] + k * s->ys) * size,
                   (const char *)ptr[0] + (size_t)(at[0] + sorted[k].index * s->xs) * size, size);
    }
}

static sw_status exec_sort(sw__cpu_plan *p, void *const *ptr)
{
    const order *const s = p->state;
    const sw_dtype t = (sw_dtype)p->d.in[0].dtype;
    const int threads = sw__cpu_threads(p->cpu, (double)s->c.count * (double)s->length * 40.0);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        item *const items = (item *)(void *)((char *)ptr[2] + s->room * (size_t)sw__cpu_thread());
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->c.count; i++) {
            int64_t at[4];
            sw__columns_at(&s->c, i, at);
            for (int64_t k = 0; k < s->length; k++) {
                const uint64_t key = sw__cpu_order_key(t, ptr[0], at[0] + k * s->xs);
                items[k] = (item){s->flag ? ~key : key, k};
            }
            store(p, s, ptr, at, merge_sort(items, items + s->length, s->length));
        }
    }
    return SW_OK;
}

sw_status sw__cpu_sort_plan(sw__cpu_plan *p)
{
    order *const s = new_order(p);
    if (s == NULL) return sw__no_memory(sizeof(order), "a planned op");
    s->room = sw__cpu_align(2 * (size_t)s->length * sizeof(item));
    p->workspace = s->room * (size_t)p->cpu->threads;
    p->exec = exec_sort;
    return SW_OK;
}
