/* ref_move.c: the reference backend's sources (const, iota, random) and movement ops.
 * Called by ref.c. A movement op is one loop over the output that works out where each element comes from. */
#include "backend/ref/ref.h"

/* ---- sources ----------------------------------------------------------------------------------------------------- */

sw_status sw__ref_const(const sw__ref_call *c)
{
    const sw__desc *const d = &c->d->out[0];
    const int64_t n = sw__ref_count(d);
    double *const y = c->out[0];
    for (int64_t i = 0; i < n; i++) {
        if (sw__ref_is_float(d)) y[i] = c->attr->constant.value;
        else sw__ref_set_int(c->out[0], (sw_dtype)d->dtype, i, c->attr->constant.ivalue);
    }
    return SW_OK;
}

sw_status sw__ref_iota(const sw__ref_call *c)
{
    const sw__desc *const d = &c->d->out[0];
    const sw__ref_axis s = sw__ref_split(d, c->attr->axis.axis);
    const int64_t n = sw__ref_count(d);
    double *const y = c->out[0];
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i / s.inner % s.length;
        if (sw__ref_is_float(d)) y[i] = (double)k;
        else sw__ref_set_int(c->out[0], (sw_dtype)d->dtype, i, k);
    }
    return SW_OK;
}

/* Element e is word e % 4 of Philox with counter {e / 4, count} (64 bits each) and key {seed, stream}. */
sw_status sw__ref_random(const sw__ref_call *c)
{
    const int64_t n = sw__ref_count(&c->d->out[0]);
    const uint64_t count = c->d->n_in > 0 ? (uint64_t)sw__ref_get_int(c->in[0], (sw_dtype)c->d->in[0].dtype, 0) : 0;
    const uint32_t key[2] = { (uint32_t)c->attr->random.seed, c->attr->random.stream };
    uint32_t *const y = c->out[0], words[4] = { 0 };
    for (int64_t i = 0; i < n; i++) {
        const uint64_t block = (uint64_t)i / 4;
        const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)count,
                                      (uint32_t)(count >> 32) };
        if (i % 4 == 0) sw__philox(counter, key, words);
        y[i] = words[i % 4];
    }
    return SW_OK;
}

/* ---- movement ---------------------------------------------------------------------------------------------------- */

/* Same elements in the same order: reshape, stop_gradient. */
sw_status sw__ref_flat_copy(const sw__ref_call *c)
{
    const size_t bytes = (size_t)sw__ref_count(&c->d->out[0]) * sw__ref_size(&c->d->out[0]);
    if (bytes > 0) memmove(c->out[0], c->in[0], bytes);
    return SW_OK;
}

/* Row-major strides of a dense tensor. */
static void dense_strides(const sw__desc *d, int64_t *stride)
{
    int64_t s = 1;
    for (int i = d->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= d->dim[i];
    }
}

/* Copies dim[] elements from strides `from` to strides `to`, both counted in elements of `size` bytes. */
static void copy_strided(char *dst, const int64_t *to, const char *src, const int64_t *from, const int64_t *dim,
                         int rank, size_t size)
{
    const int64_t n = sw__dims_product(dim, rank);
    int64_t index[SW_MAX_RANK] = { 0 };
    for (int64_t e = 0; e < n; e++) {
        int64_t in = 0, out = 0;
        for (int i = 0; i < rank; i++) {
            in += index[i] * from[i];
            out += index[i] * to[i];
        }
        memmove(dst + out * (int64_t)size, src + in * (int64_t)size, size);
        sw__ref_step(index, dim, rank);
    }
}

sw_status sw__ref_strided_copy(const sw__ref_call *c)
{
    const sw__desc *const x = &c->d->in[0], *const y = &c->d->out[0];
    copy_strided(c->out[0], y->stride, c->in[0], x->stride, y->dim, y->rank, sw__ref_size(y));
    return SW_OK;
}

sw_status sw__ref_permute(const sw__ref_call *c)
{
    const sw__desc *const x = &c->d->in[0], *const y = &c->d->out[0];
    int64_t from[SW_MAX_RANK] = { 0 }, moved[SW_MAX_RANK] = { 0 }, to[SW_MAX_RANK] = { 0 };
    dense_strides(x, from);
    dense_strides(y, to);
    for (int i = 0; i < y->rank; i++) moved[i] = from[c->attr->perm.axes[i]];
    copy_strided(c->out[0], to, c->in[0], moved, y->dim, y->rank, sw__ref_size(y));
    return SW_OK;
}

/* NumPy's broadcast_to: axes are aligned at the end; where the input has size 1 its one element is repeated. */
sw_status sw__ref_expand(const sw__ref_call *c)
{
    const sw__desc *const x = &c->d->in[0], *const y = &c->d->out[0];
    int64_t from[SW_MAX_RANK] = { 0 }, repeated[SW_MAX_RANK] = { 0 }, to[SW_MAX_RANK] = { 0 };
    dense_strides(x, from);
    dense_strides(y, to);
    const int lead = y->rank - x->rank;
    for (int i = 0; i < x->rank; i++) repeated[lead + i] = x->dim[i] == 1 ? 0 : from[i];
    copy_strided(c->out[0], to, c->in[0], repeated, y->dim, y->rank, sw__ref_size(y));
    return SW_OK;
}

sw_status sw__ref_slice(const sw__ref_call *c)
{
    const sw__desc *const x = &c->d->in[0], *const y = &c->d->out[0];
    int64_t from[SW_MAX_RANK] = { 0 }, step[SW_MAX_RANK] = { 0 }, to[SW_MAX_RANK] = { 0 }, start = 0;
    if (sw__ref_count(y) == 0) return SW_OK;
    dense_strides(x, from);
    dense_strides(y, to);
    for (int i = 0; i < y->rank; i++) {
        start += c->attr->slice.start[i] * from[i];
        step[i] = from[i] * c->attr->slice.step[i];
    }
    const size_t size = sw__ref_size(y);
    copy_strided(c->out[0], to, (const char *)c->in[0] + start * (int64_t)size, step, y->dim, y->rank, size);
    return SW_OK;
}

/* Fills, then writes the input's elements `interior + 1` apart from `lo` on. */
sw_status sw__ref_pad(const sw__ref_call *c)
{
    const sw__desc *const x = &c->d->in[0], *const y = &c->d->out[0];
    const int64_t n = sw__ref_count(y);
    double *const yf = c->out[0];
    for (int64_t i = 0; i < n; i++) {
        if (sw__ref_is_float(y)) yf[i] = c->attr->pad.value;
        else sw__ref_set_int(c->out[0], (sw_dtype)y->dtype, i, (int64_t)c->attr->pad.value);
    }
    int64_t from[SW_MAX_RANK] = { 0 }, to[SW_MAX_RANK] = { 0 }, apart[SW_MAX_RANK] = { 0 }, start = 0;
    dense_strides(x, from);
    dense_strides(y, to);
    for (int i = 0; i < x->rank; i++) {
        start += c->attr->pad.lo[i] * to[i];
        apart[i] = to[i] * (c->attr->pad.interior[i] + 1);
    }
    if (sw__ref_count(x) == 0) return SW_OK;
    const size_t size = sw__ref_size(y);
    copy_strided((char *)c->out[0] + start * (int64_t)size, apart, c->in[0], from, x->dim, x->rank, size);
    return SW_OK;
}
