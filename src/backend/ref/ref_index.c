/* ref_index.c: the reference backend's indexed ops: gather, scatter, embedding and its gradient.
 * Called by ref.c. Indices are checked here, at each use: they come from the user's data. */
#include "backend/ref/ref.h"

/* Index e of a tensor of i32 or i64, which must be in [0, extent). */
static sw_status index_at(const sw__ref_call *c, int input, int64_t e, int64_t extent, int64_t *out)
{
    *out = sw__ref_get_int(c->in[input], (sw_dtype)c->d->in[input].dtype, e);
    if (*out >= 0 && *out < extent) return SW_OK;
    return sw__ref_bad_index(c, "index", e, *out, extent);
}

/* out[o][k][i] = x[o][index[o][k][i]][i] */
sw_status sw__ref_gather(const sw__ref_call *c)
{
    const sw__ref_axis sx = sw__ref_split(&c->d->in[0], c->attr->axis.axis);
    const sw__ref_axis sy = sw__ref_split(&c->d->out[0], c->attr->axis.axis);
    const size_t size = sw__ref_size(&c->d->out[0]);
    const int64_t n = sw__ref_count(&c->d->out[0]);
    for (int64_t e = 0; e < n; e++) {
        const int64_t o = e / (sy.length * sy.inner), i = e % sy.inner;
        int64_t k = 0;
        SW_TRY(index_at(c, 1, e, sx.length, &k));
        const int64_t from = (o * sx.length + k) * sx.inner + i;
        memcpy((char *)c->out[0] + (size_t)e * size, (const char *)c->in[0] + (size_t)from * size, size);
    }
    return SW_OK;
}

/* out[to] (+=, =, max=) src[from] */
static void combine(const sw__ref_call *c, sw__op op, int64_t to, const void *src, int64_t from)
{
    const sw_dtype t = (sw_dtype)c->d->out[0].dtype;
    if (sw__ref_is_float(&c->d->out[0])) {
        double *const y = &((double *)c->out[0])[to];
        const double v = ((const double *)src)[from];
        *y = op == SW_OP_SCATTER_ADD ? *y + v : op == SW_OP_SCATTER_MAX ? sw__ref_fmax(*y, v) : v;
        return;
    }
    const int64_t old = sw__ref_get_int(c->out[0], t, to), v = sw__ref_get_int(src, t, from);
    const int64_t sum = (int64_t)((uint64_t)old + (uint64_t)v);
    sw__ref_set_int(c->out[0], t, to, op == SW_OP_SCATTER_ADD ? sum : op == SW_OP_SCATTER_MAX ? SW_MAX(old, v) : v);
}

/* base with out[o][index[o][k][i]][i] (+=, =, max=) src[o][k][i], in row-major order of the index */
sw_status sw__ref_scatter(const sw__ref_call *c)
{
    const sw__ref_axis sy = sw__ref_split(&c->d->out[0], c->attr->axis.axis);
    const sw__ref_axis si = sw__ref_split(&c->d->in[1], c->attr->axis.axis);
    const int64_t n = sw__ref_count(&c->d->in[1]);
    SW_TRY(sw__ref_flat_copy(c));
    for (int64_t e = 0; e < n; e++) {
        const int64_t o = e / (si.length * si.inner), i = e % si.inner;
        int64_t k = 0;
        SW_TRY(index_at(c, 1, e, sy.length, &k));
        combine(c, (sw__op)c->d->op, (o * sy.length + k) * sy.inner + i, c->in[2], e);
    }
    return SW_OK;
}

/* out[o][m][i] = sum over k of weight[m][k] x[o][index[m][k]][i], without those whose weight is 0 */
sw_status sw__ref_resample(const sw__ref_call *c)
{
    const sw__ref_axis sx = sw__ref_split(&c->d->in[0], c->attr->axis.axis);
    const sw__ref_axis sy = sw__ref_split(&c->d->out[0], c->attr->axis.axis);
    const int64_t taps = c->d->in[1].dim[1], n = sw__ref_count(&c->d->out[0]);
    const double *const x = c->in[0], *const weight = c->in[2];
    for (int64_t e = 0; e < n; e++) {
        const int64_t o = e / (sy.length * sy.inner), m = e / sy.inner % sy.length, i = e % sy.inner;
        double sum = 0;
        for (int64_t k = 0; k < taps; k++) {
            int64_t at = 0;
            if (weight[m * taps + k] == 0) continue;
            SW_TRY(index_at(c, 1, m * taps + k, sx.length, &at));
            sum += weight[m * taps + k] * x[(o * sx.length + at) * sx.inner + i];
        }
        ((double *)c->out[0])[e] = sum;
    }
    return SW_OK;
}

/* weight [V, D], index […] -> […, D] */
sw_status sw__ref_embedding(const sw__ref_call *c)
{
    const int64_t rows = c->d->in[0].dim[0], width = c->d->in[0].dim[1], n = sw__ref_count(&c->d->in[1]);
    const size_t bytes = (size_t)width * sw__ref_size(&c->d->in[0]);
    for (int64_t e = 0; e < n; e++) {
        int64_t k = 0;
        SW_TRY(index_at(c, 1, e, rows, &k));
        if (bytes > 0) memcpy((char *)c->out[0] + (size_t)e * bytes, (const char *)c->in[0] + (size_t)k * bytes, bytes);
    }
    return SW_OK;
}

/* index […], dy […, D] -> dweight [rows, D]: the rows of dy added up by index */
sw_status sw__ref_embedding_grad(const sw__ref_call *c)
{
    const int64_t rows = c->d->out[0].dim[0], width = c->d->out[0].dim[1], n = sw__ref_count(&c->d->in[0]);
    const size_t bytes = (size_t)(rows * width) * sw__ref_size(&c->d->out[0]);
    if (bytes > 0) memset(c->out[0], 0, bytes);
    for (int64_t e = 0; e < n; e++) {
        int64_t k = 0;
        SW_TRY(index_at(c, 0, e, rows, &k));
        for (int64_t j = 0; j < width; j++) combine(c, SW_OP_SCATTER_ADD, k * width + j, c->in[1], e * width + j);
    }
    return SW_OK;
}
