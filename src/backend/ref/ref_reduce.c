/* ref_reduce.c: the reference backend's reductions, argument reductions, running sums and sorting.
 * Called by ref.c. Sums accumulate in long double. NaN counts as the greatest value wherever values are ordered. */
#include "backend/ref/ref.h"

/* ---- reduce ------------------------------------------------------------------------------------------------------ */

/* A reduction seen as: for each of the kept multi-indices, walk the reduced ones. */
typedef struct walk {
    int kept_rank, reduced_rank;
    int64_t kept_dim[SW_MAX_RANK], kept_stride[SW_MAX_RANK], reduced_dim[SW_MAX_RANK], reduced_stride[SW_MAX_RANK];
    int64_t kept, reduced; /* products of the dims */
} walk;

static walk walk_of(const sw__desc *x, uint32_t axes)
{
    walk w = { 0 };
    int64_t stride[SW_MAX_RANK] = { 0 }, s = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= x->dim[i];
    }
    for (int i = 0; i < x->rank; i++) {
        const bool reduced = axes >> i & 1u;
        (reduced ? w.reduced_dim : w.kept_dim)[reduced ? w.reduced_rank : w.kept_rank] = x->dim[i];
        (reduced ? w.reduced_stride : w.kept_stride)[reduced ? w.reduced_rank++ : w.kept_rank++] = stride[i];
    }
    w.kept = sw__dims_product(w.kept_dim, w.kept_rank);
    w.reduced = sw__dims_product(w.reduced_dim, w.reduced_rank);
    return w;
}

static int64_t place(const int64_t *index, const int64_t *stride, int rank)
{
    int64_t at = 0;
    for (int i = 0; i < rank; i++) at += index[i] * stride[i];
    return at;
}

static double reduce_row_float(const double *x, const walk *w, int op)
{
    int64_t index[SW_MAX_RANK] = { 0 };
    long double sum = 0;
    double y = op == SW_OP_REDUCE_MAX ? -INFINITY : op == SW_OP_REDUCE_MIN ? INFINITY : 1.0;
    for (int64_t e = 0; e < w->reduced; e++) {
        const double v = x[place(index, w->reduced_stride, w->reduced_rank)];
        if (op == SW_OP_REDUCE_SUM) sum += v;
        else if (op == SW_OP_REDUCE_PROD) y *= v;
        else y = op == SW_OP_REDUCE_MAX ? sw__ref_fmax(y, v) : sw__ref_fmin(y, v);
        sw__ref_step(index, w->reduced_dim, w->reduced_rank);
    }
    return op == SW_OP_REDUCE_SUM ? (double)sum : y;
}

static const struct { int64_t lowest, greatest; } int_range[SW_DTYPE_COUNT] = {
    [SW_I32] = { INT32_MIN, INT32_MAX }, [SW_I64] = { INT64_MIN, INT64_MAX }, [SW_U8] = { 0, UINT8_MAX },
    [SW_BOOL] = { 0, 1 },                [SW_U32] = { 0, UINT32_MAX },
};

static int64_t reduce_row_int(const void *x, int64_t base, const walk *w, int op, sw_dtype t)
{
    int64_t index[SW_MAX_RANK] = { 0 };
    int64_t y = op == SW_OP_REDUCE_MAX   ? int_range[t].lowest
                : op == SW_OP_REDUCE_MIN ? int_range[t].greatest
                                         : op == SW_OP_REDUCE_PROD;
    for (int64_t e = 0; e < w->reduced; e++) {
        const int64_t v = sw__ref_get_int(x, t, base + place(index, w->reduced_stride, w->reduced_rank));
        if (op == SW_OP_REDUCE_SUM) y = (int64_t)((uint64_t)y + (uint64_t)v);
        else if (op == SW_OP_REDUCE_PROD) y = (int64_t)((uint64_t)y * (uint64_t)v);
        else y = op == SW_OP_REDUCE_MAX ? SW_MAX(y, v) : SW_MIN(y, v);
        sw__ref_step(index, w->reduced_dim, w->reduced_rank);
    }
    return y;
}

sw_status sw__ref_reduce(const sw__ref_call *c)
{
    const sw__desc *const x = &c->d->in[0];
    const walk w = walk_of(x, c->attr->axes.axes);
    const double *const xf = c->in[0];
    double *const yf = c->out[0];
    int64_t index[SW_MAX_RANK] = { 0 };
    for (int64_t k = 0; k < w.kept; k++) {
        const int64_t base = place(index, w.kept_stride, w.kept_rank);
        if (sw__ref_is_float(x)) yf[k] = reduce_row_float(xf + base, &w, c->d->op);
        else
            sw__ref_set_int(c->out[0], (sw_dtype)x->dtype, k,
                            reduce_row_int(c->in[0], base, &w, c->d->op, (sw_dtype)x->dtype));
        sw__ref_step(index, w.kept_dim, w.kept_rank);
    }
    return SW_OK;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Values along one axis: element i of a row is at base + i * stride. */
typedef struct row { const void *x; int64_t base, stride; sw_dtype type; } row;

/* Is element i before element j in ascending order? NaN is after every number and equal to NaN. */
static bool less(const row *r, int64_t i, int64_t j)
{
    const int64_t a = r->base + i * r->stride, b = r->base + j * r->stride;
    if (!sw__dtype_is_float(r->type)) return sw__ref_get_int(r->x, r->type, a) < sw__ref_get_int(r->x, r->type, b);
    const double va = ((const double *)r->x)[a], vb = ((const double *)r->x)[b];
    return va < vb || (!isnan(va) && isnan(vb));
}

/* The first of the greatest (argmax) or of the least (argmin). */
sw_status sw__ref_argreduce(const sw__ref_call *c)
{
    const sw__desc *const x = &c->d->in[0];
    const sw__ref_axis s = sw__ref_split(x, c->attr->axis.axis);
    int64_t *const y = c->out[0];
    for (int64_t o = 0; o < s.outer; o++) {
        for (int64_t i = 0; i < s.inner; i++) {
            const row r = { c->in[0], o * s.length * s.inner + i, s.inner, (sw_dtype)x->dtype };
            int64_t best = 0;
            for (int64_t k = 1; k < s.length; k++)
                if (c->d->op == SW_OP_ARGMAX ? less(&r, best, k) : less(&r, k, best)) best = k;
            y[o * s.inner + i] = best;
        }
    }
    return SW_OK;
}

/* Elements up to and including each one; from the end if reverse. */
sw_status sw__ref_scan_sum(const sw__ref_call *c)
{
    const sw__desc *const x = &c->d->in[0];
    const sw__ref_axis s = sw__ref_split(x, c->attr->axis.axis);
    const double *const xf = c->in[0];
    double *const yf = c->out[0];
    for (int64_t row_index = 0; row_index < s.outer * s.inner; row_index++) {
        const int64_t base = row_index / s.inner * s.length * s.inner + row_index % s.inner;
        long double sum = 0;
        uint64_t isum = 0;
        for (int64_t k = 0; k < s.length; k++) {
            const int64_t at = base + (c->attr->axis.flag ? s.length - 1 - k : k) * s.inner;
            if (sw__ref_is_float(x)) {
                sum += xf[at];
                yf[at] = (double)sum;
            } else {
                isum += (uint64_t)sw__ref_get_int(c->in[0], (sw_dtype)x->dtype, at);
                sw__ref_set_int(c->out[0], (sw_dtype)x->dtype, at, (int64_t)isum);
            }
        }
    }
    return SW_OK;
}

/* ---- sort: merge sort of indices, so it is stable ---------------------------------------------------------------- */

size_t sw__ref_sort_workspace(const sw__op_desc *d)
{
    return 2 * sizeof(int64_t) * (size_t)d->in[0].dim[d->attr->axis.axis];
}

/* May `later`, which stands behind in the input, not overtake `earlier`? */
static bool keeps_order(const row *r, int64_t earlier, int64_t later, bool descending)
{
    return descending ? !less(r, earlier, later) : !less(r, later, earlier);
}

static void merge(const row *r, const int64_t *from, int64_t *to, int64_t left, int64_t middle, int64_t right,
                  bool descending)
{
    int64_t a = left, b = middle;
    for (int64_t k = left; k < right; k++) {
        const bool take_a = a < middle && (b >= right || keeps_order(r, from[a], from[b], descending));
        to[k] = take_a ? from[a++] : from[b++];
    }
}

/* The n indices of a row in order; both arrays hold n. Returns the one that the result is in. */
static const int64_t *sort_row(const row *r, int64_t n, bool descending, int64_t *a, int64_t *b)
{
    for (int64_t i = 0; i < n; i++) a[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t left = 0; left < n; left += 2 * width)
            merge(r, a, b, left, SW_MIN(left + width, n), SW_MIN(left + 2 * width, n), descending);
        int64_t *const t = a;
        a = b;
        b = t;
    }
    return a;
}

sw_status sw__ref_sort(const sw__ref_call *c)
{
    const sw__desc *const x = &c->d->in[0];
    const sw__ref_axis s = sw__ref_split(x, c->attr->axis.axis);
    const size_t size = sw__ref_size(x);
    int64_t *const work = c->work;
    for (int64_t row_index = 0; row_index < s.outer * s.inner && s.length > 0; row_index++) {
        const row r = { c->in[0], row_index / s.inner * s.length * s.inner + row_index % s.inner, s.inner,
                        (sw_dtype)x->dtype };
        const int64_t *const order = sort_row(&r, s.length, c->attr->axis.flag, work, work + s.length);
        for (int64_t k = 0; k < s.length; k++) {
            const int64_t to = r.base + k * s.inner, from = r.base + order[k] * s.inner;
            if (c->d->op == SW_OP_ARGSORT) ((int64_t *)c->out[0])[to] = order[k];
            else memcpy((char *)c->out[0] + (size_t)to * size, (const char *)c->in[0] + (size_t)from * size, size);
        }
    }
    return SW_OK;
}
