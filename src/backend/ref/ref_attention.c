/* ref_attention.c: the reference backend's attention and its gradient, row of scores by row of scores.
 * Called by ref.c. Shapes as in graph/attention.c: [B, T, H, D]; all tensors dense. */
#include "backend/ref/ref.h"

typedef struct shape {
    int64_t batch, rows, keys, heads, groups, d, e;
    double scale;
    bool causal;
    const void *mask;
    const sw__desc *mask_desc;
} shape;

/* mask: which input it is. */
static shape shape_of(const sw__ref_call *c, int mask)
{
    const sw__desc *const q = &c->d->in[0], *const k = &c->d->in[1], *const v = &c->d->in[2];
    shape s = { .batch = q->dim[0], .rows = q->dim[1], .keys = k->dim[1], .heads = q->dim[2], .groups = k->dim[2],
                .d = q->dim[3], .e = v->dim[3], .scale = c->attr->attention.scale,
                .causal = c->attr->attention.causal };
    if (c->d->n_in > mask) {
        s.mask = c->in[mask];
        s.mask_desc = &c->d->in[mask];
    }
    return s;
}

/* One row of scores: of batch b, head h, row i; its keys and values are those of group g. */
typedef struct row { int64_t b, h, i, g; } row;

static int64_t in_q(const shape *s, const row *p) { return ((p->b * s->rows + p->i) * s->heads + p->h) * s->d; }
static int64_t in_y(const shape *s, const row *p) { return ((p->b * s->rows + p->i) * s->heads + p->h) * s->e; }
static int64_t key(const shape *s, const row *p, int64_t j) { return (p->b * s->keys + j) * s->groups + p->g; }
static int64_t in_k(const shape *s, const row *p, int64_t j) { return key(s, p, j) * s->d; }
static int64_t in_v(const shape *s, const row *p, int64_t j) { return key(s, p, j) * s->e; }
static int64_t in_lse(const shape *s, const row *p) { return (p->b * s->heads + p->h) * s->rows + p->i; }

static double score(const shape *s, const row *p, const double *q, const double *k, int64_t j)
{
    if (s->causal && j > p->i) return -(double)INFINITY;
    long double sum = 0;
    for (int64_t d = 0; d < s->d; d++) sum += (long double)q[in_q(s, p) + d] * k[in_k(s, p, j) + d];
    const double x = (double)sum * s->scale;
    if (s->mask == NULL) return x;
    const int64_t *const dim = s->mask_desc->dim, at[4] = { p->b, p->h, p->i, j };
    int64_t at_mask = 0;
    for (int a = 0; a < 4; a++) at_mask = at_mask * dim[a] + (dim[a] == 1 ? 0 : at[a]);
    if (s->mask_desc->dtype != SW_BOOL) return x + ((const double *)s->mask)[at_mask];
    return ((const uint8_t *)s->mask)[at_mask] ? x : -(double)INFINITY;
}

/* Visits every row. */
static void each_row(const shape *s, void (*visit)(const sw__ref_call *c, const shape *s, const row *p),
                     const sw__ref_call *c)
{
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->rows; i++)
                visit(c, s, &(row){ b, h, i, h / (s->heads / s->groups) });
}

static void forward(const sw__ref_call *c, const shape *s, const row *p)
{
    const double *const q = c->in[0], *const k = c->in[1], *const v = c->in[2];
    double *const y = (double *)c->out[0] + in_y(s, p);
    double top = -(double)INFINITY;
    long double sum = 0;
    for (int64_t j = 0; j < s->keys; j++) top = sw__ref_fmax(top, score(s, p, q, k, j));
    for (int64_t e = 0; e < s->e; e++) y[e] = 0;
    const bool any = top != -(double)INFINITY; /* something that may be attended to */
    for (int64_t j = 0; j < s->keys && any; j++) sum += exp(score(s, p, q, k, j) - top);
    for (int64_t j = 0; j < s->keys && any; j++) {
        const double share = (double)((long double)exp(score(s, p, q, k, j) - top) / sum);
        for (int64_t e = 0; e < s->e; e++) y[e] += share * v[in_v(s, p, j) + e];
    }
    ((double *)c->out[1])[in_lse(s, p)] = any ? top + log((double)sum) : top;
}

sw_status sw__ref_attention(const sw__ref_call *c)
{
    const shape s = shape_of(c, 3);
    each_row(&s, forward, c);
    return SW_OK;
}

/* q, k, v, y, log-sum-exp, dy. With p = e^(score - lse): dv_j += p dy, ds = p (dy v_j - dy y), dq += scale ds k_j,
 * dk_j += scale ds q. */
static void backward(const sw__ref_call *c, const shape *s, const row *p)
{
    const double *const q = c->in[0], *const k = c->in[1], *const v = c->in[2];
    const double *const y = (const double *)c->in[3] + in_y(s, p), *const dy = (const double *)c->in[5] + in_y(s, p);
    double *const dq = c->out[0], *const dk = c->out[1], *const dv = c->out[2];
    const double lse = ((const double *)c->in[4])[in_lse(s, p)];
    double inner = 0;
    for (int64_t e = 0; e < s->e; e++) inner += dy[e] * y[e];
    for (int64_t j = 0; j < s->keys; j++) {
        const double x = score(s, p, q, k, j);
        if (x == -(double)INFINITY) continue; /* also where lse is */
        const double share = exp(x - lse);
        double ds = -inner;
        for (int64_t e = 0; e < s->e; e++) ds += dy[e] * v[in_v(s, p, j) + e];
        for (int64_t e = 0; e < s->e; e++) dv[in_v(s, p, j) + e] += share * dy[e];
        ds *= share * s->scale;
        for (int64_t d = 0; d < s->d; d++) dq[in_q(s, p) + d] += ds * k[in_k(s, p, j) + d];
        for (int64_t d = 0; d < s->d; d++) dk[in_k(s, p, j) + d] += ds * q[in_q(s, p) + d];
    }
}

sw_status sw__ref_attention_grad(const sw__ref_call *c)
{
    const shape s = shape_of(c, 6);
    for (int k = 0; k < c->d->n_out; k++)
        memset(c->out[k], 0, (size_t)sw__ref_count(&c->d->out[k]) * sizeof(double));
    each_row(&s, backward, c);
    return SW_OK;
}
