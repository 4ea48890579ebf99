/* dnn_run.c: computes a graph of the fake cuDNN: a convolution or one of its gradients, then bias and relu. Tensors are
 * copied into dense arrays, channels last (f32; double for f64), where one loop does all three directions; sums are
 * f32. */
#include "fake_dnn.h"

#include <stdlib.h>

/* ---- checks when it is called ------------------------------------------------------------------------------------ */

static const uint64_t *pointer_of(const fk_dnn_job *job, int64_t id)
{
    for (int i = 0; i < job->n; i++)
        if (job->id[i] == id) return &job->at[i];
    return NULL;
}

static bool check_tensor(const fk_dnn_job *job, const fk_tensor *t)
{
    if (t->id < 0 || t->is_virtual) return true;
    const uint64_t *const at = pointer_of(job, t->id);
    if (at == NULL || *at == 0) {
        fk.report("cudnnBackendExecute: tensor %lld has no pointer", (long long)t->id);
        return false;
    }
    if (t->align > 0 && *at % (uint64_t)t->align != 0) {
        fk.report("cudnnBackendExecute: tensor %lld lies at 0x%llx, which is no multiple of its %lld bytes",
                  (long long)t->id, (unsigned long long)*at, (long long)t->align);
        return false;
    }
    return true;
}

bool fk_dnn_check(const fk_dnn_job *job)
{
    bool good = job->graph->known;
    if (!good) fk.report("cudnnBackendExecute: the fake cannot compute this graph");
    for (int i = 0; i < job->graph->n && good; i++) {
        const fk_step *const s = &job->graph->step[i];
        good = check_tensor(job, &s->x) && check_tensor(job, &s->w) && check_tensor(job, &s->y);
    }
    if (good && job->workspace_bytes > 0 && (job->workspace == 0 || job->workspace % 16 != 0)) {
        fk.report("cudnnBackendExecute: a workspace of %lld bytes at 0x%llx", (long long)job->workspace_bytes,
                  (unsigned long long)job->workspace);
        good = false;
    }
    return good;
}

/* ---- tensors as dense arrays ------------------------------------------------------------------------------------- */

/* [n, s0, s1, s2, c]: always three spatial axes, missing ones first with size 1. Of a weight: [k, t0, t1, t2, c]. */
typedef struct dense {
    int64_t n, c, s[3];
    double *v;
} dense;

static dense dense_of(const fk_tensor *t)
{
    dense d = { .n = t->dim[0], .c = t->dim[1], .s = { 1, 1, 1 } };
    for (int i = 2; i < t->rank; i++) d.s[i - t->rank + 3] = t->dim[i];
    return d;
}

static int64_t count(const dense *d)
{
    return d->n * d->c * d->s[0] * d->s[1] * d->s[2];
}

/* Runs along the axis that lies densest are asked for at once; a whole dense tensor as one. */
typedef struct walk {
    const fk_tensor *t;
    uint64_t at;
    bool write;
    char *base;
} walk;

static bool is_packed(const fk_tensor *t)
{
    int64_t need = 1, last = 0;
    for (int i = 0; i < t->rank; i++) {
        need *= t->dim[i];
        last += (t->dim[i] - 1) * t->stride[i];
    }
    return last + 1 == need;
}

static char *element(const walk *w, int64_t offset, const char *who)
{
    const size_t size = fk_size(w->t->type);
    if (w->base != NULL) return w->base + (size_t)offset * size;
    return fk.map(w->at + (uint64_t)offset * size, size, w->write, who);
}

/* From memory into d, or (write) from d into memory. */
static bool copy(const fk_tensor *t, uint64_t at, bool write, dense *d, const char *who)
{
    walk w = { t, at, write, NULL };
    const int sp = t->rank - 2;
    int64_t st[3] = { 0 };
    for (int i = 0; i < sp; i++) st[i + 3 - sp] = t->stride[2 + i];
    if (is_packed(t)) {
        w.base = fk.map(at, (size_t)count(d) * fk_size(t->type), write, who);
        if (w.base == NULL) return false;
    }
    double *v = d->v;
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t a = 0; a < d->s[0]; a++)
            for (int64_t b = 0; b < d->s[1]; b++)
                for (int64_t e = 0; e < d->s[2]; e++)
                    for (int64_t c = 0; c < d->c; c++, v++) {
                        const int64_t offset = n * t->stride[0] + c * t->stride[1] + a * st[0] + b * st[1] + e * st[2];
                        char *const p = element(&w, offset, who);
                        if (p == NULL) return false;
                        if (write)
                            fk_store(t->type, p, *v);
                        else
                            *v = fk_load(t->type, p);
                    }
    return true;
}

static bool fetch(const fk_dnn_job *job, const fk_tensor *t, dense *d, const char *who)
{
    *d = dense_of(t);
    d->v = calloc((size_t)count(d), sizeof *d->v);
    if (d->v == NULL || !copy(t, *pointer_of(job, t->id), false, d, who)) return false;
    for (int64_t i = 0; job->tf32 && t->type == FK_F32 && i < count(d); i++) d->v[i] = (double)fk_tf32((float)d->v[i]);
    return true;
}

/* ---- the convolution --------------------------------------------------------------------------------------------- */

typedef struct conv {
    const fk_step *s;
    dense x, w, y;
    bool wide;
    int64_t stride[3], dilation[3], pre[3];
} conv;

/* Sums of a channel's products, then rounded to what sums are kept in. */
static double sum_of(const double *a, const double *b, int64_t n)
{
    double d[4] = { 0 };
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int e = 0; e < 4; e++) d[e] += a[i + e] * b[i + e];
    for (; i < n; i++) d[0] += a[i] * b[i];
    return d[0] + d[1] + (d[2] + d[3]);
}

static void add_scaled(double *to, const double *from, double by, int64_t n, bool wide)
{
    if (wide)
        for (int64_t i = 0; i < n; i++) to[i] += by * from[i];
    else
        for (int64_t i = 0; i < n; i++) to[i] = (double)(float)(to[i] + by * from[i]);
}

/* All that one place of y and one point of the kernel have to do with each other, in one group of channels. */
static void touch(const conv *c, double *x, double *w, double *y, int64_t group, fk_what what)
{
    const int64_t n = c->w.c, outs = c->y.c / (c->x.c / n), points = c->w.s[0] * c->w.s[1] * c->w.s[2] * n;
    x += group * n;
    for (int64_t k = group * outs; k < (group + 1) * outs; k++) {
        if (what == FK_FORWARD) {
            const double v = y[k] + sum_of(x, w + k * points, n);
            y[k] = c->wide ? v : (double)(float)v;
        }
        if (what == FK_DATA) add_scaled(x, w + k * points, y[k], n, c->wide);
        if (what == FK_FILTER) add_scaled(w + k * points, x, y[k], n, c->wide);
    }
}

static void at_place(const conv *c, int64_t n, const int64_t q[3], fk_what what)
{
    double *const y = c->y.v + (((n * c->y.s[0] + q[0]) * c->y.s[1] + q[1]) * c->y.s[2] + q[2]) * c->y.c;
    int64_t t[3], p[3];
    for (t[0] = 0; t[0] < c->w.s[0]; t[0]++)
        for (t[1] = 0; t[1] < c->w.s[1]; t[1]++)
            for (t[2] = 0; t[2] < c->w.s[2]; t[2]++) {
                bool inside = true;
                for (int i = 0; i < 3; i++) {
                    p[i] = q[i] * c->stride[i] + t[i] * c->dilation[i] - c->pre[i];
                    inside = inside && p[i] >= 0 && p[i] < c->x.s[i];
                }
                if (!inside) continue;
                double *const x = c->x.v + (((n * c->x.s[0] + p[0]) * c->x.s[1] + p[1]) * c->x.s[2] + p[2]) * c->x.c;
                double *const w = c->w.v + ((t[0] * c->w.s[1] + t[1]) * c->w.s[2] + t[2]) * c->w.c;
                for (int64_t g = 0; g < c->x.c / c->w.c; g++) touch(c, x, w, y, g, what);
            }
}

static void convolve(const conv *c, fk_what what)
{
    int64_t q[3];
    for (int64_t n = 0; n < c->y.n; n++)
        for (q[0] = 0; q[0] < c->y.s[0]; q[0]++)
            for (q[1] = 0; q[1] < c->y.s[1]; q[1]++)
                for (q[2] = 0; q[2] < c->y.s[2]; q[2]++) at_place(c, n, q, what);
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static bool run_pointwise(const fk_dnn_job *job, const fk_step *s, dense *y)
{
    dense bias = { 0 };
    bool good = true;
    if (s->what == FK_ADD) {
        fk_dnn_job exact = *job;
        exact.tf32 = false;
        good = fetch(&exact, &s->w, &bias, "cudnn: bias");
        for (int64_t i = 0; good && i < count(y); i++) y->v[i] += bias.v[i % y->c];
    }
    for (int64_t i = 0; s->what == FK_RELU && i < count(y); i++) y->v[i] = y->v[i] > 0 ? y->v[i] : 0;
    free(bias.v);
    return good;
}

static bool run_convolution(const fk_dnn_job *job, const fk_step *s, conv *c)
{
    static const char *const names[] = { "cudnn: x", "cudnn: w", "cudnn: y" };
    const fk_tensor *const tensors[] = { &s->x, &s->w, &s->y };
    dense *const parts[] = { &c->x, &c->w, &c->y };
    const int result = s->what == FK_FORWARD ? 2 : s->what == FK_DATA ? 0 : 1;
    c->s = s;
    c->wide = s->x.type == FK_F64;
    for (int i = 0; i < 3; i++) {
        const int at = i - (3 - s->nd);
        c->stride[i] = at < 0 ? 1 : s->stride[at];
        c->dilation[i] = at < 0 ? 1 : s->dilation[at];
        c->pre[i] = at < 0 ? 0 : s->pre[at];
        if (i != result) {
            if (!fetch(job, tensors[i], parts[i], names[i])) return false;
            continue;
        }
        *parts[i] = dense_of(tensors[i]);
        parts[i]->v = calloc((size_t)count(parts[i]), sizeof(double));
        if (parts[i]->v == NULL) return false;
    }
    if (job->workspace_bytes > 0) { /* whoever lies there has lost */
        void *const w = fk.map(job->workspace, (size_t)job->workspace_bytes, true, "cudnn: workspace");
        if (w == NULL) return false;
        memset(w, 0xFB, (size_t)job->workspace_bytes);
    }
    convolve(c, s->what);
    return true;
}

void fk_dnn_run(void *data)
{
    const fk_dnn_job *const job = data;
    const fk_graph *const g = job->graph;
    const fk_step *const first = &g->step[0], *const last = &g->step[g->n - 1];
    conv c = { 0 };
    bool good = run_convolution(job, first, &c);
    dense *const out = first->what == FK_FORWARD ? &c.y : first->what == FK_DATA ? &c.x : &c.w;
    for (int i = 1; i < g->n && good; i++) good = run_pointwise(job, &g->step[i], out);
    const fk_tensor *const to = g->n > 1                    ? &last->y
                                : first->what == FK_FORWARD ? &first->y
                                : first->what == FK_DATA    ? &first->x
                                                            : &first->w;
    if (good) copy(to, *pointer_of(job, to->id), true, out, "cudnn: result");
    free(c.x.v);
    free(c.w.v);
    free(c.y.v);
}
