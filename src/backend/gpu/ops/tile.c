/* tile.c: products and convolutions on GPUs, through local memory (portable/gemm_tile.k). Takes every type and all
 * strides, so it is also what a CPU uses where its own kernels (rows.c) do not apply. Called by matmul.c and conv.c. */
#include "backend/gpu/ops/big.h"

#include <stdio.h>

/* ---- which tile ------------------------------------------------------------------------------------------------ */

typedef struct tile { int items, bm, bn, bk, tm, tn; } tile;

/* Larger tiles read less memory, smaller ones give more groups: the first that fits and fills the device. */
static const tile tiles[] = {
    {256, 128, 128, 8, 8, 8}, {256, 64, 64, 16, 4, 4}, {64, 32, 32, 16, 4, 4},
    {16, 16, 16, 16, 4, 4},   {1, 4, 4, 1, 4, 4},
};

static bool fits(const sw__target *t, const tile *k, int64_t acc)
{
    return k->items <= t->max_group && k->items <= t->max_local[0] &&
           (k->bm + k->bn + 8) * k->bk * acc <= (int64_t)t->local_bytes;
}

static int64_t groups_of(const tile *k, int64_t m, int64_t n)
{
    return sw__div_up(m, k->bm) * sw__div_up(n, k->bn);
}

/* What a trial may find better than the rules (backend/gpu/tune.h): variants 1, 2, … are the tiles but the last, with
 * parts as the rules say; then again without parts, and with four times as many. */
enum { TRIED = SW_COUNT(tiles) - 1, PARTS_RULE = 0, PARTS_NONE, PARTS_MORE, PARTS_KINDS };

int sw__tile_variants(void)
{
    return 1 + TRIED * PARTS_KINDS;
}

static tile choose(const sw__gpu_plan *p, sw_dtype type, int64_t m, int64_t n, int64_t z)
{
    const sw__target *const t = &p->gpu->target;
    const tile *const given = p->variant > 0 ? &tiles[(p->variant - 1) % TRIED] : NULL;
    if (given != NULL && fits(t, given, sw__acc_bytes(type)) && (given->tm <= 4 || type != SW_F64)) return *given;
    const tile *last = &tiles[SW_COUNT(tiles) - 1];
    for (const tile *k = tiles; k < last; k++) {
        if (!fits(t, k, sw__acc_bytes(type)) || (k->tm > 4 && type == SW_F64)) continue;
        if (k->items > 64 && (m <= k->bm / 2 || n <= k->bn / 2)) continue; /* most of it would be empty */
        last = k;
        if (groups_of(k, m, n) * z >= 2 * t->units || k->items <= 64) break;
    }
    return *last;
}

/* Parts of the inner axis, where the result alone gives too few groups. */
static int64_t parts_of(const sw__gpu_plan *p, const tile *k, int64_t m, int64_t n, int64_t depth, int64_t z, int64_t acc)
{
    const int kind = p->variant > 0 ? (p->variant - 1) / TRIED : PARTS_RULE;
    if (kind == PARTS_NONE) return 1;
    const int64_t groups = groups_of(k, m, n) * z, wanted = (kind == PARTS_MORE ? 8 : 2) * (int64_t)p->gpu->target.units;
    int64_t parts = SW_MIN(wanted / SW_MAX(groups, 1), depth / 256);
    parts = SW_MIN(parts, SW__BIG_WORKSPACE / SW_MAX(m * n * z * acc, 1));
    return SW_MIN(SW_MAX(parts, 1), 64);
}

typedef struct split { int64_t parts, chunk; } split;

static split split_of(const tile *k, int64_t depth, int64_t parts)
{
    split s = {.chunk = sw__div_up(sw__div_up(depth, parts), k->bk) * k->bk};
    s.chunk = SW_MAX(s.chunk, k->bk);
    s.parts = SW_MAX(sw__div_up(depth, s.chunk), 1);
    return s;
}

static void tile_macros(sw__ask *a, const tile *k, int op, bool a_along_k, bool b_along_k)
{
    sw__ask_macro(a, "OP", op);
    sw__ask_macro(a, "ITEMS", k->items);
    sw__ask_macro(a, "BM", k->bm);
    sw__ask_macro(a, "BN", k->bn);
    sw__ask_macro(a, "BK", k->bk);
    sw__ask_macro(a, "TM", k->tm);
    sw__ask_macro(a, "TN", k->tn);
    sw__ask_macro(a, "A_ALONG_K", a_along_k || k->items < k->bm);
    sw__ask_macro(a, "B_ALONG_K", b_along_k || k->items < k->bn);
}

static void epilogue_macros(sw__ask *a, bool partial, bool bias, bool relu)
{
    sw__ask_macro(a, "SPLIT", partial);
    sw__ask_macro(a, "BIAS", bias && !partial);
    sw__ask_macro(a, "RELU", relu && !partial);
}

static void put_note(sw__gpu_plan *p, const char *what, const tile *k, int64_t parts)
{
    char more[40] = "";
    if (parts > 1) snprintf(more, sizeof more, ", %lld parts", (long long)parts);
    snprintf(p->note, sizeof p->note, "%s %dx%dx%d of %d%s", what, k->bm, k->bn, k->bk, k->items, more);
}

/* ---- product --------------------------------------------------------------------------------------------------- */

static sw_status product_launch(sw__gpu_plan *p, const sw__product *g, const tile *k, split s, int64_t z0, int64_t z1)
{
    const bool partial = s.parts > 1;
    const int l0 = g->rank - 2, l1 = g->rank - 1;
    sw__ask a = sw__ask_for(p, "gemm_tile");
    sw__ask_type(&a, g->type);
    tile_macros(&a, k, 0, g->ak == 1, g->bk == 1 && g->bn != 1);
    epilogue_macros(&a, partial, g->bias >= 0, g->relu);
    const int64_t from = partial ? sw__big_workspace(p, z0 * z1 * s.parts * g->m * g->n * sw__acc_bytes(g->type)) : 0;
    sw__ask_buffer(&a, g->a, g->a_at);
    sw__ask_buffer(&a, g->b, g->b_at);
    sw__ask_buffer(&a, partial ? p->n_bind : g->c, partial ? from : g->c_at);
    if (g->bias >= 0 && !partial) {
        sw__ask_buffer(&a, g->bias, 0);
        sw__ask_i64(&a, 1, &g->bias_s);
    }
    sw__ask_i64(&a, 5, (const int64_t[]){g->m, g->n, g->k, s.parts, s.chunk});
    sw__ask_i64(&a, 6, (const int64_t[]){g->am, g->ak, g->bk, g->bn, g->cm, g->cn});
#define AXIS(S, L) ((L) < 0 ? 0 : g->S[L])
    sw__ask_i64(&a, 7, (const int64_t[]){z1, AXIS(as, l0), AXIS(as, l1), AXIS(bs, l0), AXIS(bs, l1), AXIS(cs, l0),
                                         AXIS(cs, l1)});
    SW_TRY(sw__ask_launch(&a, groups_of(k, g->m, g->n) * z0 * z1 * s.parts, 1, 1, k->items));
    if (!partial) return SW_OK;
    const sw__sum sum = {.type = g->type, .from_at = from, .parts = s.parts, .z = z0 * z1, .m = g->m, .n = g->n,
                         .to = g->c, .to_at = g->c_at, .bias = g->bias, .bias_s = g->bias_s, .relu = g->relu,
                         .m_radix = {1, 1, g->m}, .m_stride = {0, 0, 0, g->cm}, .n_radix = {1, 1, g->n},
                         .n_stride = {0, 0, 0, g->cn}, .z1 = z1, .z_stride = {AXIS(cs, l0), AXIS(cs, l1)}};
    return sw__big_sum(p, &sum);
}

sw_status sw__tile_product(sw__gpu_plan *p, const sw__product *g)
{
    const int64_t z1 = g->rank > 0 ? g->batch[g->rank - 1] : 1, z0 = g->rank > 1 ? g->batch[0] : 1;
    const tile k = choose(p, g->type, g->m, g->n, z0 * z1);
    const split s = split_of(&k, g->k, parts_of(p, &k, g->m, g->n, g->k, z0 * z1, sw__acc_bytes(g->type)));
    put_note(p, "gemm", &k, s.parts);
    return product_launch(p, g, &k, s, z0, z1);
}

/* ---- convolution ----------------------------------------------------------------------------------------------- */

static void window_macros(sw__ask *a, const sw__window *w)
{
    static const char *const step[] = {"S0", "S1", "S2"}, *const dilation[] = {"D0", "D1", "D2"};
    for (int i = 0; i < 3; i++) {
        sw__ask_macro(a, step[i], w->step[i]);
        sw__ask_macro(a, dilation[i], w->dilation[i]);
    }
}

/* SHAPE of gemm_tile.k; b: strides of the operand beside the image, in the order of the digits it is walked by. */
static void window_shape(sw__ask *a, const sw__window *w, const int64_t *b)
{
    const int64_t at_least_1[] = {SW_MAX(w->t[1], 1), SW_MAX(w->t[2], 1), SW_MAX(w->c, 1)}; /* they are divided by */
    sw__ask_i32(a, 3, w->q);
    sw__ask_i32(a, 3, at_least_1);
    sw__ask_i32(a, 3, w->origin);
    sw__ask_i32(a, 3, w->size);
    sw__ask_i64(a, 5, w->xs);
    sw__ask_i64(a, 5, b);
}

sw_status sw__tile_conv(sw__gpu_plan *p, const sw__window *w)
{
    const int64_t m = w->n * w->q[0] * w->q[1] * w->q[2], n = w->o, depth = w->t[0] * w->t[1] * w->t[2] * w->c;
    const int64_t acc = sw__acc_bytes(w->type);
    const tile k = choose(p, w->type, m, n, w->groups);
    const split s = split_of(&k, depth, parts_of(p, &k, m, n, depth, w->groups, acc));
    const bool partial = s.parts > 1;
    const int64_t from = partial ? sw__big_workspace(p, w->groups * s.parts * m * n * acc) : 0;
    sw__ask a = sw__ask_for(p, "gemm_tile");
    sw__ask_type(&a, w->type);
    tile_macros(&a, &k, 1, w->xs[1] == 1 && w->c > 1, w->ws[0] != 1);
    epilogue_macros(&a, partial, w->bias >= 0, w->relu);
    window_macros(&a, w);
    sw__ask_buffer(&a, w->x, w->x_at);
    sw__ask_buffer(&a, w->w, w->w_at);
    sw__ask_buffer(&a, partial ? p->n_bind : w->y, partial ? from : w->y_at);
    if (w->bias >= 0 && !partial) {
        sw__ask_buffer(&a, w->bias, 0);
        sw__ask_i64(&a, 1, &w->bias_s);
    }
    sw__ask_i64(&a, 5, (const int64_t[]){m, n, depth, s.parts, s.chunk});
    window_shape(&a, w, w->ws);
    sw__ask_i64(&a, 5, w->ys);
    sw__ask_i64(&a, 3, (const int64_t[]){w->xg, w->wg, w->yg});
    SW_TRY(sw__ask_launch(&a, groups_of(&k, m, n) * w->groups * s.parts, 1, 1, k.items));
    put_note(p, "implicit gemm", &k, s.parts);
    if (!partial) return SW_OK;
    const sw__sum sum = {.type = w->type, .from_at = from, .parts = s.parts, .z = w->groups, .m = m, .n = n, .to = w->y,
                         .to_at = w->y_at, .bias = w->bias, .bias_s = w->bias_s, .bias_z = w->o * w->bias_s,
                         .relu = w->relu, .m_radix = {w->q[0], w->q[1], w->q[2]},
                         .m_stride = {w->ys[0], w->ys[2], w->ys[3], w->ys[4]}, .n_radix = {1, 1, n},
                         .n_stride = {0, 0, 0, w->ys[1]}, .z1 = w->groups, .z_stride = {0, w->yg}};
    return sw__big_sum(p, &sum);
}

/* x and y (which is dy) are read, w is written. */
sw_status sw__tile_conv_weight(sw__gpu_plan *p, const sw__window *w)
{
    const int64_t m = w->o, n = w->t[0] * w->t[1] * w->t[2] * w->c, depth = w->n * w->q[0] * w->q[1] * w->q[2];
    const int64_t acc = sw__acc_bytes(w->type);
    const tile k = choose(p, w->type, m, n, w->groups);
    const split s = split_of(&k, depth, parts_of(p, &k, m, n, depth, w->groups, acc));
    const int64_t from = sw__big_workspace(p, w->groups * s.parts * m * n * acc);
    sw__ask a = sw__ask_for(p, "gemm_tile");
    sw__ask_type(&a, w->type);
    tile_macros(&a, &k, 2, w->ys[1] != 1, w->xs[1] != 1);
    epilogue_macros(&a, true, false, false);
    window_macros(&a, w);
    sw__ask_buffer(&a, w->y, w->y_at);
    sw__ask_buffer(&a, w->x, w->x_at);
    sw__ask_buffer(&a, p->n_bind, from);
    sw__ask_i64(&a, 5, (const int64_t[]){m, n, depth, s.parts, s.chunk});
    window_shape(&a, w, w->ys);
    sw__ask_i64(&a, 8, (const int64_t[]){0, 0, 0, 0, 0, w->yg, w->xg, 0});
    SW_TRY(sw__ask_launch(&a, groups_of(&k, m, n) * w->groups * s.parts, 1, 1, k.items));
    put_note(p, "implicit gemm", &k, s.parts);
    const sw__sum sum = {.type = w->type, .from_at = from, .parts = s.parts, .z = w->groups, .m = m, .n = n, .to = w->w,
                         .to_at = w->w_at, .bias = -1, .m_radix = {1, 1, m}, .m_stride = {0, 0, 0, w->ws[0]},
                         .n_radix = {w->t[1], w->t[2], w->c}, .n_stride = {w->ws[2], w->ws[3], w->ws[4], w->ws[1]},
                         .z1 = w->groups, .z_stride = {0, w->wg}};
    return sw__big_sum(p, &sum);
}

/* ---- sums of parts --------------------------------------------------------------------------------------------- */

sw_status sw__big_sum(sw__gpu_plan *p, const sw__sum *s)
{
    const sw__target *const t = &p->gpu->target;
    const int items = t->serial ? 1 : SW_MIN(SW_MIN(256, t->max_group), t->max_local[0]);
    sw__ask a = sw__ask_for(p, "gemm_sum");
    sw__ask_type(&a, s->type);
    sw__ask_macro(&a, "ITEMS", items);
    sw__ask_macro(&a, "BIAS", s->bias >= 0);
    sw__ask_macro(&a, "RELU", s->relu);
    sw__ask_buffer(&a, p->n_bind, s->from_at);
    sw__ask_buffer(&a, s->to, s->to_at);
    if (s->bias >= 0) {
        sw__ask_buffer(&a, s->bias, 0);
        sw__ask_i64(&a, 2, (const int64_t[]){s->bias_s, s->bias_z});
    }
    const int64_t run = s->run > 0 ? s->run : s->n;
    sw__ask_i64(&a, 5, (const int64_t[]){s->parts, s->m, s->n, run, s->run > 0 ? s->pitch : run});
    sw__ask_i32(&a, 3, s->m_radix);
    sw__ask_i64(&a, 4, s->m_stride);
    sw__ask_i32(&a, 3, s->n_radix);
    sw__ask_i64(&a, 4, s->n_stride);
    sw__ask_i64(&a, 3, (const int64_t[]){s->z1, s->z_stride[0], s->z_stride[1]});
    /* a run is walked 64 at a time by one work-item, see LINE in the kernel */
    const int64_t groups = items == 1 ? s->m * (s->n / run) * sw__div_up(run, 64) : sw__div_up(s->m * s->n, items);
    return sw__ask_launch(&a, groups * s->z, 1, 1, items);
}
