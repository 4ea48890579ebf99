/* op_pool.c: MAX_POOL and AVG_POOL and their gradients: plans. f32 goes to the vector kernels (pool_simd.c), which want
 * all tensors channels last or all row-major: what lies otherwise is copied through the workspace. f64: loops over
 * windows (pool_loops.c). */
#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"

#include <stdio.h>

typedef struct pool {
    sw__pool p;
    sw__pool_strides s;
    int64_t images, channels;
    int x, y, dy, dx; /* indices of the tensors among inputs and outputs, -1: none */
    size_t line;      /* bytes of workspace for one thread */
    bool grad, copies[4];
    sw__desc laid[4]; /* how the kernels take the tensors; copies[i]: a copy at copy_at[i] in the workspace */
    size_t copy_at[4];
} pool;

static const struct { uint16_t op; bool max, grad; int x, y, dy, dx; } roles[] = {
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
    strides_of(p, s->x, s->s.x); /* zeros where there is none */
    strides_of(p, s->y, s->s.y);
    strides_of(p, s->dy, s->s.dy);
    strides_of(p, s->dx, s->s.dx);
}

/* Channels last or (last false) row-major. */
static bool laid(const sw__desc *d, bool last)
{
    const sw__desc want = last ? sw__cpu_channels_last((sw_dtype)d->dtype, d->rank, d->dim)
                               : sw__cpu_dense((sw_dtype)d->dtype, d->rank, d->dim);
    return sw__cpu_same_strides(d, &want);
}

/* As the output lies, where that is one of the two layouts of the vector kernels. */
bool sw__cpu_pool_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i)
{
    (void)cpu;
    const bool last = laid(&d->out[0], true), rows = laid(&d->out[0], false);
    return (last && laid(&d->in[i], true)) || (rows && laid(&d->in[i], false));
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Tensor i; where there is none, something that is not looked at. */
static const void *input(void *const *ptr, int i)
{
    return ptr[SW_MAX(i, 0)];
}

static void run_rows(const sw__cpu_plan *p, const pool *s, void *const *ptr)
{
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
}

static void run_grad_planes(const sw__cpu_plan *p, const pool *s, void *const *ptr)
{
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
            SW__SIMD_PICK(p->cpu->simd, sw__pool_grad_plane)(q, q->max ? x + i * xs : x, q->max ? y + i * ys : y,
                                                             dy + i * ys, dx + i * xs, line);
    }
}

static sw_status exec_vector(sw__cpu_plan *p, void *const *ptr)
{
    const pool *const s = p->state;
    const int y = p->d.n_in;
    void *at[5];
    for (int i = 0; i <= y; i++) at[i] = s->copies[i] ? (char *)ptr[y + 1] + s->copy_at[i] : ptr[i];
    at[y + 1] = ptr[y + 1];
    for (int i = 0; i < y; i++)
        if (s->copies[i]) sw__cpu_copy(p->cpu, at[i], &s->laid[i], ptr[i], &p->desc[i]);
    if (s->grad) run_grad_planes(p, s, at);
    else run_rows(p, s, at);
    if (s->copies[y]) sw__cpu_copy(p->cpu, ptr[y], &p->desc[y], at[y], &s->laid[y]);
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

/* ---- plan -------------------------------------------------------------------------------------------------------- */

static void plan_vector(sw__cpu_plan *p, pool *s)
{
    const int y = p->d.n_in;
    const bool last = laid(&p->desc[y], true) || !laid(&p->desc[y], false);
    s->p.planes = last ? s->images : s->images * s->channels;
    s->p.c = last ? s->channels : 1;
    s->line = sw__cpu_align((size_t)(SW_MAX(s->p.x[2], s->p.y[2]) * s->p.c) * sizeof(float));
    p->workspace = s->line * (size_t)p->cpu->threads;
    int copies = 0;
    for (int i = 0; i <= y; i++) {
        const sw__desc *const d = &p->desc[i];
        s->laid[i] = last ? sw__cpu_channels_last(SW_F32, d->rank, d->dim) : sw__cpu_dense(SW_F32, d->rank, d->dim);
        s->copies[i] = !sw__cpu_same_strides(d, &s->laid[i]);
        if (!s->copies[i]) continue;
        copies++;
        s->copy_at[i] = p->workspace;
        p->workspace += sw__cpu_align((size_t)sw__desc_elements(d) * sizeof(float));
    }
    p->exec = exec_vector;
    snprintf(p->note, sizeof p->note, "%s:%s, %d %s", last ? "channels last" : "row-major",
             sw__simd_name(p->cpu->simd), copies, copies == 1 ? "reorder" : "reorders");
}

sw_status sw__cpu_pool_plan(sw__cpu_plan *p)
{
    const sw_dtype t = (sw_dtype)p->d.out[0].dtype;
    pool *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned pooling");
    p->state = s;
    describe(p, s);
    if (t != SW_F32 && t != SW_F64)
        return sw__fail(SW_ERR_UNSUPPORTED, "there is no arithmetic in %s; cast to f32", sw_dtype_name(t));
    if (t == SW_F64 || sw__desc_elements(&p->desc[0]) == 0) {
        p->exec = exec_loops;
        snprintf(p->note, sizeof p->note, "loops:%s", sw_dtype_name(t));
        return SW_OK;
    }
    plan_vector(p, s);
    return SW_OK;
}
