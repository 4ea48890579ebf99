/* rows.c: products on CPUs through OpenCL, where a work-item is a loop in a core's vector unit and local memory is
 * nothing but more memory: portable/gemm_rows.k over a right side packed by gemm_pack.k. Called by matmul.c;
 * rows_conv.c has the convolutions. */
#include "backend/gpu/ops/rows.h"

#include <stdio.h>

/* ---- the kernel's shape ---------------------------------------------------------------------------------------- */

sw__lanes sw__rows_lanes(const sw__target *t, sw_dtype type, int64_t n)
{
    const int width = t->width >= 16 ? 16 : t->width >= 8 ? 8 : 4;
    sw__lanes l = {.w = type == SW_F64 ? width / 2 : width};
    const int64_t last = (n - 1) % (2 * l.w) + 1; /* columns of the last panel, if panels were two vectors wide */
    l.nv = last <= l.w && n <= 3 * l.w ? 1 : 2;
    /* accumulators, a row of the right side and a number of the left one have to fit in the registers: 32 or 16 */
    l.mr = width == 16 ? (8) : 6;
    return l;
}

/* turn: the product's transpose, or not; direct: the right side as it lies, or not; vectors: one of them where the rules say
 * two, two where one; mr, rows: rows of the kernel and of a group; parts: times as many of a weight gradient. Those that need
 * no kernel of their own come first. */
static const sw__rows_variant variants[] = {
    {.rows = 0},
    {.direct = true},
    {.rows = 32},
    {.rows = 512},
    {.parts = 4},
    {.turn = true},
    {.turn = true, .direct = true},
    {.mr = 12},
    {.vectors = true},
    {.mr = 4},
    {.vectors = true, .mr = 12},
};

int sw__rows_variants(void)
{
    return (int)SW_COUNT(variants);
}

const sw__rows_variant *sw__rows_variant_of(const sw__gpu_plan *p)
{
    return &variants[p->variant > 0 && p->variant < (int)SW_COUNT(variants) ? p->variant : 0];
}

void sw__rows_vary(const sw__gpu_plan *p, sw__lanes *l)
{
    const sw__rows_variant *const v = sw__rows_variant_of(p);
    if (v->vectors) l->nv = 3 - l->nv;
    if (v->mr > 0) l->mr = (uint8_t)v->mr;
}

void sw__rows_macros(sw__ask *a, sw_dtype type, const sw__lanes *l)
{
    sw__ask_type(a, type);
    sw__ask_macro(a, "W", l->w);
    sw__ask_macro(a, "NV", l->nv);
    sw__ask_macro(a, "MR", l->mr);
}

/* Rows that a group takes; others: groups beside each other (panels, batch). Many, so that a panel is read often from
 * the cache; but enough groups for all cores. */
static int64_t rows_of_group(const sw__gpu_plan *p, const sw__lanes *l, int64_t m, int64_t others)
{
    const sw__target *const t = &p->gpu->target;
    const int64_t given = sw__rows_variant_of(p)->rows;
    if (given > 0) return sw__div_up(given, l->mr) * l->mr;
    int64_t rows = sw__div_up(128, l->mr) * l->mr;
    while (rows > l->mr && sw__div_up(m, rows) * others < 32 * (int64_t)t->units)
        rows = sw__div_up(rows / 2, l->mr) * l->mr;
    return rows;
}

bool sw__rows_plain(sw_dtype type)
{
    return type == SW_F32 || type == SW_F64;
}

sw_status sw__rows_launch(sw__gpu_plan *p, const sw__rows *r, const sw__lanes *l)
{
    const int64_t panels = sw__div_up(r->n, l->w * l->nv), z = r->z0 * r->z1;
    const int64_t rows = rows_of_group(p, l, r->m, panels * z);
    const int64_t flags = (r->bias < 0 ? 0 : r->bias_rows ? 2 : 1) + (r->relu ? 4 : 0) + (r->direct ? 8 : 0) +
                          (r->dense && panels == 1 ? 16 : 0);
    if (r->q[3] < r->m && r->m > INT32_MAX)
        return sw__fail(SW_ERR_UNSUPPORTED, "the result has %lld places", (long long)r->m);
    sw__ask a = sw__ask_for(p, "gemm_rows");
    sw__rows_macros(&a, r->type, l);
    sw__ask_left(&a, r->type, r->a_acc);
    sw__ask_macro(&a, "A_UNIT", r->ak == 1);
    sw__ask_macro(&a, "PLAIN", sw__rows_plain(r->type));
    sw__ask_buffer(&a, r->a, r->a_at);
    sw__ask_buffer(&a, r->b, r->b_at);
    sw__ask_buffer(&a, r->c, r->c_at);
    sw__ask_buffer(&a, r->bias < 0 ? r->c : r->bias, r->bias_at); /* something, where there is none */
    sw__ask_i64(&a, 2, (const int64_t[]){r->bias_s, r->bias_z});
    sw__ask_i32(&a, 2, (const int64_t[]){SW_MIN(r->bias_n > 0 ? r->bias_n : r->n, INT32_MAX), flags});
    sw__ask_i64(&a, 5, (const int64_t[]){r->m, r->n, rows, r->panel, r->bk});
    sw__ask_i64(&a, 7, (const int64_t[]){r->z1, r->az[0], r->az[1], r->bz[0], r->bz[1], r->cz[0], r->cz[1]});
    sw__ask_i64(&a, 2, (const int64_t[]){r->ak, r->cn});
    sw__ask_i32(&a, 3, (const int64_t[]){r->q[1], r->q[2], SW_MIN(r->q[3], INT32_MAX)});
    sw__ask_i64(&a, 4, r->as);
    sw__ask_i64(&a, 4, r->cs);
    sw__ask_i32(&a, 3, r->t);
    sw__ask_i64(&a, 3, r->ts);
    sw__ask_i64(&a, 1, &r->run);
    return sw__ask_launch(&a, panels, sw__div_up(r->m, rows), z, 1);
}

/* ---- packing --------------------------------------------------------------------------------------------------- */

int64_t sw__panels_bytes(const sw__panels *k, const sw__lanes *l)
{
    const int64_t nr = l->w * l->nv;
    return k->z0 * k->z1 * sw__div_up(k->n, nr) * nr * k->t[0] * k->t[1] * k->t[2] * k->c * sw__acc_bytes(k->type);
}

/* Points of the kernel behind axis i. */
static int64_t dense(const sw__panels *k, int i)
{
    return i == 1 ? k->t[2] : k->t[1] * k->t[2];
}

sw_status sw__panels_launch(sw__gpu_plan *p, const sw__panels *k, const sw__lanes *l, int64_t to_at)
{
    const int64_t nr = l->w * l->nv, taps = k->t[0] * k->t[1] * k->t[2];
    int64_t t[3], ts[3];
    memcpy(t, k->t, sizeof t);
    memcpy(ts, k->ts, sizeof ts);
    for (int i = 1; i >= 0; i--) { /* a kernel that lies densely is one run */
        if (ts[i] != ts[2] * t[2] || t[2] != dense(k, i)) continue;
        t[2] *= t[i];
        t[i] = 1;
    }
    const int64_t chunk = SW_MAX(192 / SW_MAX(taps, 1), 4); /* what a group writes stays in the first cache */
    sw__ask a = sw__ask_for(p, "gemm_pack");
    sw__ask_type(&a, k->type);
    sw__ask_macro(&a, "NR", nr);
    sw__ask_buffer(&a, k->from, k->at);
    sw__ask_buffer(&a, p->n_bind, to_at);
    sw__ask_i64(&a, 1, &k->n);
    sw__ask_i32(&a, 3, t);
    sw__ask_i32(&a, 2, (const int64_t[]){k->c, chunk});
    sw__ask_i64(&a, 1, &k->ns);
    sw__ask_i64(&a, 3, ts);
    sw__ask_i64(&a, 4, (const int64_t[]){k->cs, k->z1, k->zs[0], k->zs[1]});
    return sw__ask_launch(&a, sw__div_up(k->n, nr), taps == 0 ? 0 : sw__div_up(k->c, chunk), k->z0 * k->z1, 1);
}

/* ---- product --------------------------------------------------------------------------------------------------- */

/* (A B)ᵀ = Bᵀ Aᵀ */
static sw__product transposed(const sw__product *g)
{
    sw__product t = *g;
    t.a = g->b;
    t.b = g->a;
    t.a_at = g->b_at;
    t.b_at = g->a_at;
    t.matrices = sw__matrices_transposed(&g->matrices);
    t.bias_rows = !g->bias_rows;
    return t;
}

static bool can_read_directly(const sw__product *g, const sw__lanes *l)
{
    return sw__rows_plain(g->type) && g->bn == 1 && g->n >= l->w * l->nv && g->k > 0;
}

/* The right side is read where it lies: its rows are contiguous, and either there are few rows of the left side to pay
 * for packing, or it is so narrow that it is nearly packed. */
static bool reads_directly(const sw__product *g, const sw__lanes *l)
{
    return can_read_directly(g, l) && (g->m <= 64 || g->bk <= 128);
}

/* Cycles, roughly: to choose between the product and its transpose. */
static double cost(const sw__target *t, const sw__product *g)
{
    const sw__lanes l = sw__rows_lanes(t, g->type, g->n);
    const double rows = (double)(sw__div_up(g->m, l.mr) * l.mr);
    const double columns = (double)(sw__div_up(g->n, l.w * l.nv) * l.w * l.nv);
    double c = rows * columns * (double)g->k / 32 + (double)g->m * (double)g->n * (g->cn == 1 ? 0.2 : 0.7);
    if (!reads_directly(g, &l)) c += columns * (double)g->k * (g->bn == 1 ? 0.4 : 1.2);
    return c;
}

/* Where the copies of the two sides lie in the workspace; -1: a side is read where it is. */
typedef struct copies { int64_t a, b; } copies;

static sw_status launch(sw__gpu_plan *p, const sw__product *g, const sw__lanes *l, copies at)
{
    const bool direct = at.b < 0;
    const int64_t nr = l->w * l->nv, panels = sw__div_up(g->n, nr), one = panels * nr * g->k;
    const int l0 = g->rank - 2, l1 = g->rank - 1;
#define AXIS(S, L) ((L) < 0 ? 0 : g->S[L])
    sw__rows r = {.type = g->type, .a = g->a, .b = direct ? g->b : p->n_bind, .c = g->c, .bias = g->bias,
                  .a_at = g->a_at, .b_at = direct ? g->b_at : at.b, .c_at = g->c_at, .bias_at = g->bias_at,
                  .bias_s = g->bias_s, .bias_rows = g->bias_rows, .relu = g->relu, .direct = direct, .m = g->m, .n = g->n,
                  .panel = direct ? nr : nr * g->k, .bk = direct ? g->bk : nr, .z0 = l0 < 0 ? 1 : g->batch[l0],
                  .z1 = l1 < 0 ? 1 : g->batch[l1], .az = {AXIS(as, l0), AXIS(as, l1)},
                  .bz = {AXIS(bs, l0), AXIS(bs, l1)}, .cz = {AXIS(cs, l0), AXIS(cs, l1)}, .ak = g->ak, .cn = g->cn,
                  .q = {1, 1, 1, g->m}, .as = {0, 0, 0, g->am}, .cs = {0, 0, 0, g->cm}, .t = {1, 1, 1}, .run = g->k};
#undef AXIS
    if (!direct) {
        const int64_t inner = r.bz[1] != 0 ? r.z1 : 1;
        r.bz[1] = r.bz[1] != 0 ? one : 0;
        r.bz[0] = r.bz[0] != 0 ? one * inner : 0;
    }
    if (at.a >= 0) { /* panels of mr rows: a row's digits are panel and place in it */
        r.a = p->n_bind;
        r.a_at = at.a;
        r.a_acc = true;
        r.ak = r.q[3] = l->mr;
        r.q[2] = sw__div_up(g->m, l->mr);
        r.as[2] = l->mr * g->k;
        r.as[3] = 1;
        r.cs[2] = l->mr * g->cm;
    }
    return sw__rows_launch(p, &r, l);
}

/* Packs and multiplies columns [j, j + n) of the whole; all such parts share one piece of the workspace. */
static sw_status columns(sw__gpu_plan *p, const sw__product *g, const sw__lanes *l, int64_t j, int64_t n, copies at)
{
    const int64_t size = (int64_t)sw_dtype_size(g->type);
    sw__product part = *g;
    part.n = n;
    part.b_at += j * g->bn * size;
    part.c_at += j * g->cn * size;
    if (!g->bias_rows) part.bias_at += j * g->bias_s * size;
    const int64_t bs1 = g->rank > 0 ? g->bs[g->rank - 1] : 0, bs0 = g->rank > 1 ? g->bs[0] : 0;
    const sw__panels k = {.type = g->type, .from = g->b, .at = part.b_at, .n = n, .ns = g->bn, .t = {1, 1, 1},
                          .c = g->k, .cs = g->bk, .z0 = bs0 != 0 ? g->batch[0] : 1,
                          .z1 = bs1 != 0 ? g->batch[g->rank - 1] : 1, .zs = {bs0, bs1}};
    SW_TRY(sw__panels_launch(p, &k, l, at.b));
    return launch(p, &part, l, at);
}

/* A left side whose inner index jumps from page to page, or that has to be converted, is packed too if it is used for
 * enough columns. Gives the place of the copy, or -1. */
static sw_status pack_left(sw__gpu_plan *p, const sw__product *g, const sw__lanes *l, int64_t *at)
{
    const sw__panels k = {.type = g->type, .from = g->a, .at = g->a_at, .n = g->m, .ns = g->am, .t = {1, 1, 1},
                          .c = g->k, .cs = g->ak, .z0 = 1, .z1 = 1};
    const sw__lanes rows = {.w = l->mr, .nv = 1};
    const bool far = g->am == 1 && g->ak >= 512 && g->k >= 128;
    *at = -1;
    if (g->rank > 0 || g->k == 0 || g->n < 256 || g->m < 64 || !(far || !sw__rows_plain(g->type))) return SW_OK;
    if (sw__panels_bytes(&k, &rows) > SW__BIG_WORKSPACE) return SW_OK;
    *at = sw__big_workspace(p, sw__panels_bytes(&k, &rows));
    return sw__panels_launch(p, &k, &rows, *at);
}

sw_status sw__rows_product(sw__gpu_plan *p, const sw__product *given)
{
    const sw__target *const t = &p->gpu->target;
    const sw__product turned = transposed(given);
    const sw__rows_variant *const v = sw__rows_variant_of(p);
    const bool turn = (cost(t, &turned) < cost(t, given)) != v->turn;
    const sw__product *const g = turn ? &turned : given;
    sw__lanes l = sw__rows_lanes(t, g->type, g->n);
    sw__rows_vary(p, &l);
    const bool direct = can_read_directly(g, &l) && reads_directly(g, &l) != v->direct;
    const int64_t nr = l.w * l.nv;
    snprintf(p->note, sizeof p->note, "gemm %dx%d%s%s", l.mr, (int)nr, turn ? ", transposed" : "",
             direct ? "" : g->bn == 1 ? ", packed B" : ", packed B by columns");
    copies at;
    SW_TRY(pack_left(p, g, &l, &at.a));
    at.b = -1;
    if (direct) return launch(p, g, &l, at);
    int64_t panel = nr * SW_MAX(g->k, 1) * sw__acc_bytes(g->type); /* bytes, of the whole batch */
    for (int i = 0; i < g->rank; i++) panel *= g->bs[i] != 0 ? g->batch[i] : 1;
    const int64_t step = SW_MAX(SW__BIG_WORKSPACE / panel, 1) * nr;
    at.b = sw__big_workspace(p, sw__div_up(SW_MIN(step, g->n), nr) * panel);
    for (int64_t j = 0; j < g->n; j += step) SW_TRY(columns(p, g, &l, j, SW_MIN(step, g->n - j), at));
    return SW_OK;
}
