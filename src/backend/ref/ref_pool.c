/* ref_pool.c: the reference backend's pooling over 1 to 3 spatial axes, and its gradients.
 * Called by ref.c. One window at a time, always seen as 3-D; missing leading axes have size 1. */
#include "backend/ref/ref.h"

typedef struct pool {
    int64_t planes, x[3], y[3], kernel[3], stride[3], pad[3];
} pool;

static pool pool_of(const sw__attr *attr, const int64_t *x, const int64_t *y)
{
    const int nd = attr->pool.nd;
    pool p = { .planes = x[0] * x[1] };
    for (int i = 0; i < 3; i++) {
        const int s = i - (3 - nd);
        p.x[i] = s < 0 ? 1 : x[2 + s];
        p.y[i] = s < 0 ? 1 : y[2 + s];
        p.kernel[i] = s < 0 ? 1 : attr->pool.kernel[s];
        p.stride[i] = s < 0 ? 1 : attr->pool.stride[s];
        p.pad[i] = s < 0 ? 0 : attr->pool.pad_lo[s];
    }
    return p;
}

static int64_t volume(const int64_t *d)
{
    return d[0] * d[1] * d[2];
}

/* What of output o's window (index in the plane) lies inside the input: lo[i] <= x < hi[i]. Returns the elements. */
static int64_t window(const pool *p, int64_t o, int64_t *lo, int64_t *hi)
{
    const int64_t at[3] = { o / (p->y[1] * p->y[2]), o / p->y[2] % p->y[1], o % p->y[2] };
    int64_t count = 1;
    for (int i = 0; i < 3; i++) {
        const int64_t start = at[i] * p->stride[i] - p->pad[i];
        lo[i] = SW_MAX(start, 0);
        hi[i] = SW_MIN(start + p->kernel[i], p->x[i]);
        count *= SW_MAX(hi[i] - lo[i], 0);
    }
    return count;
}

/* ---- max --------------------------------------------------------------------------------------------------------- */

/* Where the window's maximum is, -1 if the window is all padding: the first of equals; or the first NaN. */
static int64_t max_place(const pool *p, const double *x, int64_t o)
{
    int64_t lo[3], hi[3], best = -1;
    window(p, o, lo, hi);
    for (int64_t i = lo[0]; i < hi[0]; i++)
        for (int64_t j = lo[1]; j < hi[1]; j++)
            for (int64_t k = lo[2]; k < hi[2]; k++) {
                const int64_t at = (i * p->x[1] + j) * p->x[2] + k;
                if (best < 0 || (!isnan(x[best]) && (x[at] > x[best] || isnan(x[at])))) best = at;
            }
    return best;
}

sw_status sw__ref_max_pool(const sw__ref_call *c)
{
    const pool p = pool_of(c->attr, c->d->in[0].dim, c->d->out[0].dim);
    const int64_t xs = volume(p.x), ys = volume(p.y);
    for (int64_t n = 0; n < p.planes; n++) {
        const double *const x = (const double *)c->in[0] + n * xs;
        for (int64_t o = 0; o < ys; o++) {
            const int64_t at = max_place(&p, x, o);
            ((double *)c->out[0])[n * ys + o] = at < 0 ? -INFINITY : x[at];
        }
    }
    return SW_OK;
}

/* x, y, dy -> dx. The place is found anew in x, so y is not looked at. */
sw_status sw__ref_max_pool_grad(const sw__ref_call *c)
{
    const pool p = pool_of(c->attr, c->d->in[0].dim, c->d->in[2].dim);
    const int64_t xs = volume(p.x), ys = volume(p.y);
    double *const all = c->out[0];
    for (int64_t i = 0; i < p.planes * xs; i++) all[i] = 0;
    for (int64_t n = 0; n < p.planes; n++) {
        const double *const x = (const double *)c->in[0] + n * xs, *const dy = (const double *)c->in[2] + n * ys;
        for (int64_t o = 0; o < ys; o++) {
            const int64_t at = max_place(&p, x, o);
            if (at >= 0) all[n * xs + at] += dy[o];
        }
    }
    return SW_OK;
}

/* ---- average ----------------------------------------------------------------------------------------------------- */

/* What the window's sum is divided by. A window with nothing to count has average 0. */
static double divisor(const pool *p, bool include_pad, int64_t count)
{
    return include_pad ? (double)volume(p->kernel) : (double)SW_MAX(count, 1);
}

sw_status sw__ref_avg_pool(const sw__ref_call *c)
{
    const pool p = pool_of(c->attr, c->d->in[0].dim, c->d->out[0].dim);
    const int64_t xs = volume(p.x), ys = volume(p.y);
    for (int64_t n = 0; n < p.planes; n++) {
        const double *const x = (const double *)c->in[0] + n * xs;
        for (int64_t o = 0; o < ys; o++) {
            int64_t lo[3], hi[3];
            const int64_t count = window(&p, o, lo, hi);
            long double sum = 0;
            for (int64_t i = lo[0]; i < hi[0]; i++)
                for (int64_t j = lo[1]; j < hi[1]; j++)
                    for (int64_t k = lo[2]; k < hi[2]; k++) sum += x[(i * p.x[1] + j) * p.x[2] + k];
            ((double *)c->out[0])[n * ys + o] = (double)sum / divisor(&p, c->attr->pool.include_pad, count);
        }
    }
    return SW_OK;
}

/* dy -> dx */
sw_status sw__ref_avg_pool_grad(const sw__ref_call *c)
{
    const pool p = pool_of(c->attr, c->d->out[0].dim, c->d->in[0].dim);
    const int64_t xs = volume(p.x), ys = volume(p.y);
    double *const all = c->out[0];
    for (int64_t i = 0; i < p.planes * xs; i++) all[i] = 0;
    for (int64_t n = 0; n < p.planes; n++) {
        double *const dx = all + n * xs;
        for (int64_t o = 0; o < ys; o++) {
            int64_t lo[3], hi[3];
            const int64_t count = window(&p, o, lo, hi);
            const double share = ((const double *)c->in[0])[n * ys + o] / divisor(&p, c->attr->pool.include_pad, count);
            for (int64_t i = lo[0]; i < hi[0]; i++)
                for (int64_t j = lo[1]; j < hi[1]; j++)
                    for (int64_t k = lo[2]; k < hi[2]; k++) dx[(i * p.x[1] + j) * p.x[2] + k] += share;
        }
    }
    return SW_OK;
}
