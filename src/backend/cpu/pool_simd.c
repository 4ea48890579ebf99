/* pool_simd.c: pooling kernels over f32, see pool.h; compiled once per instruction set. Called by op_pool.c.
 * A window is reduced first over its rows (long runs of memory), then along the row. */
#include "backend/cpu/pool.h"
#include "backend/cpu/simd_vec.h"

#include <math.h>

/* ---- over runs of memory ----------------------------------------------------------------------------------------- */

static void max_into(float *SW_RESTRICT m, const float *SW_RESTRICT v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) m[i] = v[i] > m[i] || v[i] != v[i] ? v[i] : m[i]; /* once NaN, m stays NaN */
}

static void add_into(float *SW_RESTRICT s, const float *SW_RESTRICT v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) s[i] += v[i];
}

static void into(bool max, float *SW_RESTRICT to, const float *SW_RESTRICT v, int64_t n)
{
    if (max) max_into(to, v, n);
    else add_into(to, v, n);
}

/* The same with one value each `step` of v. */
static void strided_into(bool max, float *SW_RESTRICT to, const float *SW_RESTRICT v, int64_t step, int64_t n)
{
    if (max)
        for (int64_t i = 0; i < n; i++) to[i] = v[i * step] > to[i] || v[i * step] != v[i * step] ? v[i * step] : to[i];
    else
        for (int64_t i = 0; i < n; i++) to[i] += v[i * step];
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Positions along the row whose window's point k lies inside: *lo <= w < *hi. */
static void inside(const sw__pool *p, int64_t k, int64_t *lo, int64_t *hi)
{
    const int64_t s = p->stride[2], offset = k - p->pad[2];
    *lo = offset >= 0 ? 0 : (-offset + s - 1) / s;
    *hi = p->x[2] - offset <= 0 ? 0 : SW_MIN(p->y[2], (p->x[2] - 1 - offset) / s + 1);
}

/* Reduces the rows of the window into `line`; a single row is used where it lies. */
static const float *rows(const sw__pool *p, const float *x, int64_t d, int64_t h, float *line)
{
    int64_t d0, d1, h0, h1, n = 0;
    const int64_t width = p->x[2] * p->c;
    sw__pool_window(p, 0, d, &d0, &d1);
    sw__pool_window(p, 1, h, &h0, &h1);
    const float *first = NULL;
    for (int64_t i = d0; i < d1; i++)
        for (int64_t j = h0; j < h1; j++, n++) {
            const int64_t at = (d * p->stride[0] - p->pad[0] + i) * p->x[1] + h * p->stride[1] - p->pad[1] + j;
            const float *const from = x + at * width;
            if (n == 0) first = from;
            if (n == 1) memcpy(line, first, (size_t)width * sizeof *line);
            if (n > 0) into(p->max, line, from, width);
        }
    return n > 1 ? line : first;
}

/* One value a place: the row is walked once for each point of the window. */
static void along_single(const sw__pool *p, const float *line, float *y)
{
    for (int64_t w = 0; w < p->y[2]; w++) y[w] = p->max ? -INFINITY : 0;
    for (int64_t k = 0; k < p->kernel[2]; k++) {
        int64_t lo, hi;
        inside(p, k, &lo, &hi);
        if (lo < hi) strided_into(p->max, y + lo, line + k - p->pad[2] + lo * p->stride[2], p->stride[2], hi - lo);
    }
}

/* Several: each place's vectors stay in a register over the window. */
static void along_row(const sw__pool *p, const float *line, float *y)
{
    for (int64_t w = 0; w < p->y[2]; w++) {
        int64_t k0, k1;
        sw__pool_window(p, 2, w, &k0, &k1);
        const float *const first = line + (w * p->stride[2] - p->pad[2] + k0) * p->c;
        for (int64_t i = 0; i < p->c; i += VL) {
            const vmask some = v_first(p->c - i);
            vf v = v_load_some(first + i, some);
            for (int64_t k = 1; k < k1 - k0; k++) {
                const vf next = v_load_some(first + k * p->c + i, some);
                v = p->max ? v_max(v, next) : v_add(v, next);
            }
            v_store_some(y + w * p->c + i, some, v);
        }
    }
}

/* Turns the sums of a row into averages. */
static void divide(const sw__pool *p, int64_t d, int64_t h, float *y)
{
    for (int64_t w = 0; w < p->y[2]; w++) {
        const float by = (float)(1.0 / sw__pool_divisor(p, (const int64_t[3]){d, h, w}));
        for (int64_t i = 0; i < p->c; i++) y[w * p->c + i] *= by;
    }
}

/* No window reaches over an edge: all are divided by the same. */
static bool all_whole(const sw__pool *p)
{
    bool whole = true;
    for (int i = 0; i < 3; i++)
        whole &= p->pad[i] == 0 && (p->y[i] - 1) * p->stride[i] + p->kernel[i] <= p->x[i];
    return whole;
}

void SW__SIMD_NAME(sw__pool_row)(const sw__pool *p, const float *x, float *y, int64_t row, float *line)
{
    const int64_t d = row / p->y[1], h = row % p->y[1], width = p->y[2] * p->c;
    if (p->c == 1) along_single(p, rows(p, x, d, h, line), y + row * width);
    else along_row(p, rows(p, x, d, h, line), y + row * width);
    if (p->max) return;
    if (!p->include_pad && !all_whole(p)) {
        divide(p, d, h, y + row * width);
        return;
    }
    const float by = (float)(1.0 / sw__pool_divisor(p, (const int64_t[3]){0, 0, 0}));
    for (int64_t i = 0; i < width; i++) y[row * width + i] *= by;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* One value a place: a loop over windows. */
static void max_grad_single(const sw__pool *p, const float *x, const float *y, float *dx, float *g, int64_t k)
{
    const int64_t s = p->stride[2], offset = k - p->pad[2];
    int64_t lo, hi;
    inside(p, k, &lo, &hi);
    for (int64_t w = lo; w < hi; w++) {
        const float v = x[offset + w * s];
        const bool hit = v == y[w] || v != v;
        const float old = p->covers ? 0 : dx[offset + w * s];
        dx[offset + w * s] = old + (hit ? g[w] : 0);
        g[w] = hit ? 0 : g[w];
    }
}

/* Rows of x under the window at (d, h): calls that walk them get the row's place. */
typedef struct under { int64_t d0, d1, h0, h1, d, h; } under;

static under rows_under(const sw__pool *p, int64_t d, int64_t h)
{
    under u = {.d = d * p->stride[0] - p->pad[0], .h = h * p->stride[1] - p->pad[1]};
    sw__pool_window(p, 0, d, &u.d0, &u.d1);
    sw__pool_window(p, 1, h, &u.h0, &u.h1);
    return u;
}

/* Of each window the first x equal to the maximum, or NaN, gets dy. */
static void max_grad(const sw__pool *p, const float *x, const float *y, const float *dy, int64_t d, int64_t h,
                     float *dx)
{
    const int64_t c = p->c, width = p->x[2] * c;
    const under u = rows_under(p, d, h);
    for (int64_t w = 0; w < p->y[2]; w++) {
        int64_t k0, k1;
        sw__pool_window(p, 2, w, &k0, &k1);
        const int64_t offset = (w * p->stride[2] - p->pad[2]) * c;
        for (int64_t e = 0; e < c; e += VL) {
            const vmask some = v_first(c - e);
            const vf top = v_load_some(y + w * c + e, some);
            vf left = v_load_some(dy + w * c + e, some);
            for (int64_t i = u.d0; i < u.d1; i++)
                for (int64_t j = u.h0; j < u.h1; j++) {
                    const int64_t at = ((u.d + i) * p->x[1] + u.h + j) * width + offset + e;
                    for (int64_t k = k0; k < k1; k++) {
                        vf v = v_claim(v_load_some(x + at + k * c, some), top, &left);
                        if (!p->covers) v = v_add(v, v_load_some(dx + at + k * c, some));
                        v_store_some(dx + at + k * c, some, v);
                    }
                }
        }
    }
}

/* The same for one value a place; g: a copy of the row of dy. */
static void max_grad_singles(const sw__pool *p, const float *x, const float *y, int64_t d, int64_t h, float *dx,
                             float *g)
{
    const under u = rows_under(p, d, h);
    for (int64_t i = u.d0; i < u.d1; i++)
        for (int64_t j = u.h0; j < u.h1; j++) {
            const int64_t at = ((u.d + i) * p->x[1] + u.h + j) * p->x[2];
            for (int64_t k = 0; k < p->kernel[2]; k++) max_grad_single(p, x + at, y, dx + at, g, k);
        }
}

/* Spreads one row of dy over `line`, as wide as a row of x. */
static void spread(const sw__pool *p, const float *dy, int64_t d, int64_t h, float *line)
{
    const int64_t c = p->c;
    if (!p->covers) memset(line, 0, (size_t)(p->x[2] * c) * sizeof *line);
    for (int64_t w = 0; w < p->y[2]; w++) {
        const vf by = v_set((float)(1.0 / sw__pool_divisor(p, (const int64_t[3]){d, h, w})));
        int64_t k0, k1;
        sw__pool_window(p, 2, w, &k0, &k1);
        float *const to = line + (w * p->stride[2] - p->pad[2]) * c;
        for (int64_t e = 0; e < c; e += VL) {
            const vmask some = v_first(c - e);
            const vf share = v_mul(v_load_some(dy + w * c + e, some), by);
            for (int64_t k = k0; k < k1; k++) {
                float *const at = to + k * c + e;
                v_store_some(at, some, p->covers ? share : v_add(v_load_some(at, some), share));
            }
        }
    }
}

static void average_grad(const sw__pool *p, const float *dy, int64_t d, int64_t h, float *dx, float *line)
{
    const int64_t width = p->x[2] * p->c;
    const bool alone = p->disjoint[0] && p->disjoint[1];
    const under u = rows_under(p, d, h);
    spread(p, dy, d, h, line);
    for (int64_t i = u.d0; i < u.d1; i++)
        for (int64_t j = u.h0; j < u.h1; j++) {
            float *const to = dx + ((u.d + i) * p->x[1] + u.h + j) * width;
            if (alone) memcpy(to, line, (size_t)width * sizeof *dx);
            else add_into(to, line, width);
        }
}

void SW__SIMD_NAME(sw__pool_grad_plane)(const sw__pool *p, const float *x, const float *y, const float *dy, float *dx,
                                        float *line)
{
    const int64_t width = p->y[2] * p->c;
    if (!p->covers) memset(dx, 0, (size_t)(p->x[0] * p->x[1] * p->x[2] * p->c) * sizeof *dx);
    for (int64_t d = 0; d < p->y[0]; d++)
        for (int64_t h = 0; h < p->y[1]; h++) {
            const int64_t at = (d * p->y[1] + h) * width;
            if (!p->max) {
                average_grad(p, dy + at, d, h, dx, line);
            } else if (p->c > 1) {
                max_grad(p, x, y + at, dy + at, d, h, dx);
            } else {
                memcpy(line, dy + at, (size_t)width * sizeof *line);
                max_grad_singles(p, x, y + at, d, h, dx, line);
            }
        }
}
