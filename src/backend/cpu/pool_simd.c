/* pool_simd.c: pooling kernels over f32, see pool.h; compiled once per instruction set. Called by op_pool.c.
 * A window is reduced first over its rows (long runs of memory), then along the row. */
#include "backend/cpu/pool.h"

#include <math.h>

/* ---- over runs of memory --------------------------------------------------------------------------------------------- */

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

/* ---- forward --------------------------------------------------------------------------------------------------------- */

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

static void along_row(const sw__pool *p, const float *line, float *y)
{
    const int64_t c = p->c, s = p->stride[2];
    for (int64_t i = 0; i < p->y[2] * c; i++) y[i] = p->max ? -INFINITY : 0;
    for (int64_t k = 0; k < p->kernel[2]; k++) {
        int64_t lo, hi;
        inside(p, k, &lo, &hi);
        const float *const from = line + (k - p->pad[2]) * c;
        if (lo >= hi) continue;
        if (c == 1) strided_into(p->max, y + lo, from + lo * s, s, hi - lo);
        else if (s == 1) into(p->max, y + lo * c, from + lo * c, (hi - lo) * c);
        else
            for (int64_t w = lo; w < hi; w++) into(p->max, y + w * c, from + w * s * c, c);
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

void SW__SIMD_NAME(sw__pool_row)(const sw__pool *p, const float *x, float *y, int64_t row, float *line)
{
    const int64_t d = row / p->y[1], h = row % p->y[1], width = p->y[2] * p->c;
    along_row(p, rows(p, x, d, h, line), y + row * width);
    if (p->max) return;
    if (!p->include_pad) {
        divide(p, d, h, y + row * width);
        return;
    }
    const float by = (float)(1.0 / sw__pool_divisor(p, (const int64_t[3]){0, 0, 0}));
    for (int64_t i = 0; i < width; i++) y[row * width + i] *= by;
}

/* ---- gradients ------------------------------------------------------------------------------------------------------- */

/* x equal to the maximum, or NaN, takes what is left of the gradient in g; nothing is left for those that follow. */
static void claim(const float *SW_RESTRICT x, const float *SW_RESTRICT y, float *SW_RESTRICT g, float *SW_RESTRICT dx,
                  int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const bool hit = x[i] == y[i] || x[i] != x[i];
        dx[i] += hit ? g[i] : 0;
        g[i] = hit ? 0 : g[i];
    }
}

/* The same where no other window writes this dx. */
static void claim_alone(const float *SW_RESTRICT x, const float *SW_RESTRICT y, float *SW_RESTRICT g,
                        float *SW_RESTRICT dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const bool hit = x[i] == y[i] || x[i] != x[i];
        dx[i] = hit ? g[i] : 0;
        g[i] = hit ? 0 : g[i];
    }
}

static void max_grad_row(const sw__pool *p, const float *x, const float *y, float *dx, float *g, int64_t k)
{
    const int64_t c = p->c, step = p->stride[2] * c;
    int64_t lo, hi;
    inside(p, k, &lo, &hi);
    const int64_t offset = (k - p->pad[2]) * c;
    for (int64_t w = lo; w < hi; w++) {
        const int64_t at = offset + w * step;
        if (p->covers) claim_alone(x + at, y + w * c, g + w * c, dx + at, c);
        else claim(x + at, y + w * c, g + w * c, dx + at, c);
    }
}

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

static void max_grad(const sw__pool *p, const float *x, const float *y, int64_t d, int64_t h, float *dx, float *g)
{
    const int64_t width = p->x[2] * p->c;
    int64_t d0, d1, h0, h1;
    sw__pool_window(p, 0, d, &d0, &d1);
    sw__pool_window(p, 1, h, &h0, &h1);
    for (int64_t i = d0; i < d1; i++)
        for (int64_t j = h0; j < h1; j++) {
            const int64_t at = (d * p->stride[0] - p->pad[0] + i) * p->x[1] + h * p->stride[1] - p->pad[1] + j;
            for (int64_t k = 0; k < p->kernel[2]; k++) {
                if (p->c == 1) max_grad_single(p, x + at * width, y, dx + at * width, g, k);
                else max_grad_row(p, x + at * width, y, dx + at * width, g, k);
            }
        }
}

/* Spreads one row of dy over `line`, as wide as a row of x. */
static void spread(const sw__pool *p, const float *dy, int64_t d, int64_t h, float *line)
{
    const int64_t c = p->c;
    memset(line, 0, (size_t)(p->x[2] * c) * sizeof *line);
    for (int64_t w = 0; w < p->y[2]; w++) {
        const float by = (float)(1.0 / sw__pool_divisor(p, (const int64_t[3]){d, h, w}));
        int64_t k0, k1;
        sw__pool_window(p, 2, w, &k0, &k1);
        for (int64_t k = k0; k < k1; k++) {
            float *const to = line + (w * p->stride[2] - p->pad[2] + k) * c;
            for (int64_t i = 0; i < c; i++) to[i] += dy[w * c + i] * by;
        }
    }
}

static void average_grad(const sw__pool *p, const float *dy, int64_t d, int64_t h, float *dx, float *line)
{
    const int64_t width = p->x[2] * p->c;
    const bool alone = p->disjoint[0] && p->disjoint[1];
    int64_t d0, d1, h0, h1;
    sw__pool_window(p, 0, d, &d0, &d1);
    sw__pool_window(p, 1, h, &h0, &h1);
    spread(p, dy, d, h, line);
    for (int64_t i = d0; i < d1; i++)
        for (int64_t j = h0; j < h1; j++) {
            const int64_t at = (d * p->stride[0] - p->pad[0] + i) * p->x[1] + h * p->stride[1] - p->pad[1] + j;
            if (alone) memcpy(dx + at * width, line, (size_t)width * sizeof *dx);
            else add_into(dx + at * width, line, width);
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
            if (p->max) {
                memcpy(line, dy + at, (size_t)width * sizeof *line);
                max_grad(p, x, y + at, d, h, dx, line);
            } else {
                average_grad(p, dy + at, d, h, dx, line);
            }
        }
}
