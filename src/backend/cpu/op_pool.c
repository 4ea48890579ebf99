/* op_pool.c: MAX_POOL and AVG_POOL and their gradients: plans. Tensors that are all channels last, or all row-major, go to
 * the vector kernels (pool_simd.c); other strides and f64 to loops over windows (pool_loops.c). */
#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"

#include <stdio.h>

typedef struct pool {
    sw__pool p;
    sw__pool_strides s;
    int64_t images, channels;
    int x, y, dy, dx; /* indices of the tensors among inputs and outputs, -1: none */
    size_t line;      /* bytes of workspace for one thread */
    bool grad;
} pool;

static const struct { uint16_t op; bool max, grad; int8_t x, y, dy, dx; } roles[] = {
    {SW_OP_MAX_POOL, true, false, 0, 1, -1, -1},
    {SW_OP_MAX_POOL_GRAD, true, true, 0, 1, 2, 3},
    {SW_OP_AVG_POOL, false, false, 0, 1, -1, -1},
    {SW_OP_AVG_POOL_GRAD, false, true, -1, -1, 0, 1},
};

static void strides_of(const sw__cpu_plan *p, int i, int64_t *to)
{
    if (i < 0) return;
    const sw__desc *const d = &p->desc[i];
    const int missing = 3 - (d->rank - 2);
    to[0] = d->stride[0];
    to[1] = d->stride[1];
    for (int k = missing; k < 3; k++) to[2 + k] = d->stride[2 + k - missing];
}

static void spatial(const sw__desc *x, const sw__desc *y, const sw__attr *a, sw__pool *p)
{
    p->include_pad = a->pool.include_pad;
    p->covers = true;
    for (int i = 0; i < 3; i++) {
        const int at = i - (3 - a->pool.nd);
        p->x[i] = at < 0 ? 1 : x->dim[2 + at];
        p->y[i] = at < 0 ? 1 : y->dim[2 + at];
        p->kernel[i] = at < 0 ? 1 : a->pool.kernel[at];
        p->stride[i] = at < 0 ? 1 : a->pool.stride[at];
        p->pad[i] = at < 0 ? 0 : a->pool.pad_lo[at];
        p->disjoint[i] = p->stride[i] >= p->kernel[i];
        if (p->stride[i] != p->kernel[i] || p->y[i] * p->stride[i] - p->pad[i] < p->x[i]) p->covers = false;
    }
}

static void describe(const sw__cpu_plan *p, pool *s)
{
    for (size_t i = 0; i < SW_COUNT(roles); i++) {
        if (roles[i].op != p->d.op) continue;
        s->p.max = roles[i].max;
        s->grad = roles[i].grad;
        s->x = roles[i].x;
        s->y = roles[i].y;
        s->dy = roles[i].dy;
        s->dx = roles[i].dx;
    }
    const sw__desc *const x = &p->desc[s->grad ? s->dx : s->x], *const y = &p->desc[s->grad ? s->dy : s->y];
    spatial(x, y, &p->attr, &s->p);
    s->images = x->dim[0];
    s->channels = x->dim[1];
    strides_of(p, s->x, s->s.x);
    strides_of(p, s->y, s->s.y);
    strides_of(p, s->dy, s->s.dy);
    strides_of(p, s->dx, s->s.dx);
    if (s->x < 0) memcpy(s->s.x, s->s.dx, sizeof s->s.x); /* average: where the window lies */
}

/* True if all tensors are channels last (or, last false, all row-major). */
static bool all_laid(const sw__cpu_plan *p, bool last)
{
    for (int i = 0; i < p->d.n_in + p->d.n_out; i++) {
        const sw__desc *const d = &p->desc[i];
        const sw__desc want = last ? sw__cpu_channels_last((sw_dtype)d->dtype, d->rank, d->dim)
                                   : sw__cpu_dense((sw_dtype)d->dtype, d->rank, d->dim);
        if (!sw__cpu_same_strides(d, &want)) return false;
    }
    return true;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static const void *input(void *const *ptr, int i)
{
    return i >= 0 ? ptr[i] : NULL;
}

static sw_status exec_rows(sw__cpu_plan *p, void *const *ptr)
{
    const pool *const s = p->state;
    const sw__pool *const q = &s->p;
    const int64_t rows = q->y[0] * q->y[1], xs = q->x[0] * q->x[1] * q->x[2] * q->c;
    const int64_t width = q->y[2] * q->c, ys = rows * width;
    const float *const x = ptr[s->x];
    float *const y = ptr[s->y];
    const int threads = sw__cpu_threads(p->cpu, (double)(q->planes * xs));
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *const line = (float *)(void *)((char *)ptr[p->d.n_in + 1] + s->line * (size_t)sw__cpu_thread());
#pragma omp for schedule(static)
        for (int64_t r = 0; r < q->planes * rows; r++)
            SW__SIMD_PICK(p->cpu->simd, sw__pool_row)(q, x + r / rows * xs, y + r / rows * ys, r % rows, line);
    }
    return SW_OK;
}

static sw_status exec_grad_planes(sw__cpu_plan *p, void *const *ptr)
{
    const pool *const s = p->state;
    const sw__pool *const q = &s->p;
    const int64_t xs = q->x[0] * q->x[1] * q->x[2] * q->c, ys = q->y[0] * q->y[1] * q->y[2] * q->c;
    const float *const x = input(ptr, s->x), *const y = input(ptr, s->y), *const dy = ptr[s->dy];
    float *const dx = ptr[s->dx];
    const int threads = sw__cpu_threads(p->cpu, (double)(q->planes * xs));
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *const line = (float *)(void *)((char *)ptr[p->d.n_in + 1] + s->line * (size_t)sw__cpu_thread());
#pragma omp for schedule(static)
        for (int64_t i = 0; i < q->planes; i++)
            SW__SIMD_PICK(p->cpu->simd, sw__pool_grad_plane)(q, x != NULL ? x + i * xs : NULL,
                                                             y != NULL ? y + i * ys : NULL, dy + i * ys, dx + i * xs,
                                                             line);
    }
    return SW_OK;
}

static sw_status exec_loops(sw__cpu_plan *p, void *const *ptr)
{
    const pool *const s = p->state;
    const int64_t n = s->images * s->channels;
    const int threads = sw__cpu_threads(p->cpu, (double)n * 10.0 * (double)(s->p.x[0] * s->p.x[1] * s->p.x[2]));
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < n; i++)
        sw__pool_loops(&s->p, &s->s, s->grad, (sw_dtype)p->d.out[0].dtype, input(ptr, s->x), input(ptr, s->y),
                       input(ptr, s->dy), ptr[p->d.n_in], i / s->channels, i % s->channels);
    return SW_OK;
}

/* ---- plan ------------------------------------------------------------------------------------------------------------ */

sw_status sw__cpu_pool_plan(sw__cpu_plan *p)
{
    const sw_dtype t = (sw_dtype)p->d.out[0].dtype;
    pool *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned pooling");
    p->state = s;
    describe(p, s);
    if (t != SW_F32 && t != SW_F64)
        return sw__fail(SW_ERR_UNSUPPORTED, "there is no arithmetic in %s; cast to f32", sw_dtype_name(t));
    const bool last = all_laid(p, true), rows = !last && all_laid(p, false);
    if (t == SW_F64 || (!last && !rows) || sw__cpu_elements(&p->desc[0]) == 0) {
        p->exec = exec_loops;
        snprintf(p->note, sizeof p->note, "loops:%s", sw_dtype_name(t));
        return SW_OK;
    }
    s->p.planes = last ? s->images : s->images * s->channels;
    s->p.c = last ? s->channels : 1;
    s->line = sw__cpu_align((size_t)(SW_MAX(s->p.x[2], s->p.y[2]) * s->p.c) * sizeof(float));
    p->workspace = s->line * (size_t)p->cpu->threads;
    p->exec = s->grad ? exec_grad_planes : exec_rows;
    snprintf(p->note, sizeof p->note, "%s:%s", last ? "channels last" : "row-major", sw__simd_name(p->cpu->simd));
    return SW_OK;
}
