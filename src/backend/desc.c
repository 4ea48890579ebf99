/* desc.c: see desc.h. */
#include "backend/desc.h"

int64_t sw__desc_elements(const sw__desc *d)
{
    return sw__dims_product(d->dim, d->rank);
}

bool sw__desc_row_major(const sw__desc *d)
{
    int64_t stride = 1;
    if (sw__desc_elements(d) == 0) return true;
    for (int i = d->rank - 1; i >= 0; i--) {
        if (d->dim[i] > 1 && d->stride[i] != stride) return false;
        stride *= d->dim[i];
    }
    return true;
}

/* ---- products of matrices ------------------------------------------------------------------------------------------- */

/* Strides of axes of size 1 mean nothing: give them the value that makes the matrix look dense. */
static void tidy(int64_t rows, int64_t cols, int64_t *rs, int64_t *cs)
{
    if (rows == 1 && cols == 1) *rs = *cs = 1;
    else if (cols == 1) *cs = *rs == 1 ? rows : 1;
    else if (rows == 1) *rs = *cs == 1 ? cols : 1;
}

/* Appends a batch axis, merged into the one before where all three walk both as one. */
static void add_batch(sw__matrices *g, int64_t dim, int64_t a, int64_t b, int64_t c)
{
    const int l = g->rank - 1;
    if (dim == 1) return;
    if (l >= 0 && g->as[l] == a * dim && g->bs[l] == b * dim && g->cs[l] == c * dim) {
        g->batch[l] *= dim;
        g->as[l] = a;
        g->bs[l] = b;
        g->cs[l] = c;
        return;
    }
    g->batch[g->rank] = dim;
    g->as[g->rank] = a;
    g->bs[g->rank] = b;
    g->cs[g->rank++] = c;
}

/* The last batch axis becomes part of M where it leaves b alone and continues the rows of a and c. */
static void fold(sw__matrices *g)
{
    const int l = g->rank - 1;
    if (l < 0 || g->bs[l] != 0) return;
    if (g->m == 1) {
        g->am = g->as[l];
        g->cm = g->cs[l];
    } else if (g->as[l] != g->am * g->m || g->cs[l] != g->cm * g->m) {
        return;
    }
    g->m *= g->batch[l];
    g->rank--;
}

sw__matrices sw__matrices_of(const sw__op_desc *d)
{
    const sw__desc *const a = &d->in[0], *const b = &d->in[1], *const c = &d->out[0];
    const int r = c->rank;
    sw__matrices g = {.m = c->dim[r - 2], .n = c->dim[r - 1], .k = a->dim[r - 1],
                      .am = a->stride[r - 2], .ak = a->stride[r - 1], .bk = b->stride[r - 2], .bn = b->stride[r - 1],
                      .cm = c->stride[r - 2], .cn = c->stride[r - 1]};
    for (int i = 0; i < r - 2; i++) add_batch(&g, c->dim[i], a->stride[i], b->stride[i], c->stride[i]);
    fold(&g);
    tidy(g.m, g.k, &g.am, &g.ak);
    tidy(g.k, g.n, &g.bk, &g.bn);
    tidy(g.m, g.n, &g.cm, &g.cn);
    return g;
}

sw__matrices sw__matrices_transposed(const sw__matrices *g)
{
    sw__matrices t = *g;
    for (int i = 0; i < g->rank; i++) {
        t.as[i] = g->bs[i];
        t.bs[i] = g->as[i];
    }
    t.m = g->n;
    t.n = g->m;
    t.am = g->bn;
    t.ak = g->bk;
    t.bk = g->ak;
    t.bn = g->am;
    t.cm = g->cn;
    t.cn = g->cm;
    return t;
}
