/* attention_loops.c: attention in f64, one row of scores at a time. Called by op_attention.c; f32: attention_simd.c. */
#include "backend/cpu/attention.h"

#include <math.h>

static const double *at_of(const void *p, const sw__attention_strides *s, int64_t b, int64_t t, int64_t h)
{
    return (const double *)p + b * s->b + t * s->t + h * s->h;
}

static double *place_of(void *p, const sw__attention_strides *s, int64_t b, int64_t t, int64_t h)
{
    return (double *)p + b * s->b + t * s->t + h * s->h;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void add(double *to, double by, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += by * from[i];
}

static int64_t keys_of(const sw__attention *a, int64_t i)
{
    return a->causal ? SW_MIN(a->keys, i + 1) : a->keys;
}

/* Scores of row i and the keys that it may see; gives the greatest. */
static double scores(const sw__attention *a, const sw__attention_data *t, int64_t b, int64_t h, int64_t i, double *s)
{
    const double *const q = at_of(t->q, &a->q, b, i, h);
    const int64_t group = h / (a->heads / a->groups), n = keys_of(a, i);
    double top = -(double)INFINITY;
    for (int64_t j = 0; j < n; j++) {
        s[j] = dot(q, at_of(t->k, &a->k, b, j, group), a->d) * a->scale;
        const int64_t m = b * a->mask_s[0] + h * a->mask_s[1] + i * a->mask_s[2] + j * a->mask_s[3];
        if (a->mask == 1 && !((const uint8_t *)t->mask)[m]) s[j] = -(double)INFINITY;
        if (a->mask == 2) s[j] += ((const double *)t->mask)[m];
        if (s[j] > top) top = s[j];
    }
    return top;
}

void sw__attention_row_f64(const sw__attention *a, const sw__attention_data *t, int64_t b, int64_t h, int64_t i,
                           double *work)
{
    const int64_t group = h / (a->heads / a->groups), n = keys_of(a, i);
    double *const y = place_of(t->y, &a->y, b, i, h), sum = 0;
    const double top = scores(a, t, b, h, i, work), offset = top == -(double)INFINITY ? 0 : top;
    for (int64_t e = 0; e < a->e; e++) y[e] = 0;
    for (int64_t j = 0; j < n; j++) {
        const double share = exp(work[j] - offset);
        sum += share;
        add(y, share, at_of(t->v, &a->v, b, j, group), a->e);
    }
    for (int64_t e = 0; e < a->e; e++) y[e] = sum == 0 ? 0 : y[e] / sum;
    ((double *)t->lse)[b * a->lse_s[0] + h * a->lse_s[1] + i * a->lse_s[2]] = offset + log(sum);
}

static void row_gradient(const sw__attention *a, const sw__attention_data *t, int64_t b, int64_t h, int64_t i,
                         double *work)
{
    const int64_t group = h / (a->heads / a->groups), n = keys_of(a, i);
    const double *const q = at_of(t->q, &a->q, b, i, h), *const dy = at_of(t->dy, &a->dy, b, i, h);
    const double inner = dot(dy, at_of(t->y, &a->y, b, i, h), a->e);
    const double lse = ((const double *)t->lse)[b * a->lse_s[0] + h * a->lse_s[1] + i * a->lse_s[2]];
    const double offset = lse == -(double)INFINITY ? 0 : lse;
    double *const dq = place_of(t->dq, &a->dq, b, i, h);
    for (int64_t d = 0; d < a->d; d++) dq[d] = 0;
    (void)scores(a, t, b, h, i, work);
    for (int64_t j = 0; j < n; j++) {
        const double share = exp(work[j] - offset), *const k = at_of(t->k, &a->k, b, j, group);
        const double ds = share * (dot(dy, at_of(t->v, &a->v, b, j, group), a->e) - inner) * a->scale;
        add(place_of(t->dv, &a->dv, b, j, group), share, dy, a->e);
        add(place_of(t->dk, &a->dk, b, j, group), ds, q, a->d);
        add(dq, ds, k, a->d);
    }
}

void sw__attention_group_f64(const sw__attention *a, const sw__attention_data *t, int64_t b, int64_t group,
                             double *work)
{
    const int64_t share = a->heads / a->groups;
    for (int64_t h = group * share; h < (group + 1) * share; h++)
        for (int64_t i = 0; i < a->rows; i++) row_gradient(a, t, b, h, i, work);
}
