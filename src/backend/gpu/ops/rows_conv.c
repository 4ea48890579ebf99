/* rows_conv.c: convolutions and their gradients on CPUs through OpenCL: the image with its padding and channels last in
 * the workspace where it does not lie like that (portable/conv_pad.k), kernels packed, then gemm_rows.k reads the image
 * through strides: nothing is unfolded. Weight gradients: conv_weight.k. Called by conv.c. */
#include "backend/gpu/ops/rows.h"

#include <stdio.h>

/* ---- the image ------------------------------------------------------------------------------------------------- */

/* What of the image the windows touch, and whether a copy of it is made. */
typedef struct image {
    bool copy;
    int64_t lo[3], size[3];  /* in the image's coordinates, may reach outside */
    int64_t channels, per_image; /* elements of one copied image */
    int64_t at;              /* of the copy in the workspace */
} image;

static image find_image(const sw__window *w, int count)
{
    image m = {.channels = w->c * w->groups};
    int64_t hi[3] = {0, 0, 0};
    bool any = false;
    for (int k = 0; k < count; k++) {
        if (w[k].t[0] * w[k].t[1] * w[k].t[2] == 0) continue;
        for (int i = 0; i < 3; i++) {
            const int64_t reach = (w[k].t[i] - 1) * w[k].dilation[i] + 1;
            const int64_t end = (w[k].q[i] - 1) * w[k].step[i] + w[k].origin[i] + reach;
            m.lo[i] = any ? SW_MIN(m.lo[i], w[k].origin[i]) : w[k].origin[i];
            hi[i] = any ? SW_MAX(hi[i], end) : end;
        }
        any = true;
    }
    if (!any) return m;
    m.copy = !sw__rows_plain(w->type) || (w->xs[1] != 1 && m.channels > 1);
    for (int i = 0; i < 3; i++) {
        m.size[i] = hi[i] - m.lo[i];
        if (m.lo[i] < 0 || hi[i] > w->size[i]) m.copy = true;
    }
    m.per_image = m.size[0] * m.size[1] * m.size[2] * m.channels;
    return m;
}

/* Images [first, first + n) into the workspace. */
static sw_status copy_image(sw__gpu_plan *p, const sw__window *w, const image *m, int64_t first, int64_t n)
{
    sw__ask a = sw__ask_for(p, "conv_pad");
    sw__ask_type(&a, w->type);
    sw__ask_buffer(&a, w->x, w->x_at + first * w->xs[0] * (int64_t)sw_dtype_size(w->type));
    const int64_t lines = n * m->size[0] * m->size[1], one = SW_MAX(m->size[2] * m->channels, 1);
    const int64_t share = lines / (32 * (int64_t)p->gpu->target.units); /* enough groups for all cores */
    const int64_t some = SW_MAX(SW_MIN(2048 / one, share), 1);
    sw__ask_buffer(&a, p->n_bind, m->at);
    sw__ask_i32(&a, 2, (const int64_t[]){lines, some});
    sw__ask_i32(&a, 3, m->size);
    sw__ask_i32(&a, 1, &m->channels);
    sw__ask_i32(&a, 3, m->lo);
    sw__ask_i32(&a, 3, w->size);
    sw__ask_i64(&a, 5, w->xs);
    return sw__ask_launch(&a, sw__div_up(lines, some), 1, 1, 1);
}

/* The window over images [first, first + n) of the image as find_image left it: in the workspace, in ACC; or in place,
 * x_at at the first place that it touches. */
static sw__window over(const sw__window *w, const image *m, int64_t first, int64_t n)
{
    const int64_t size = (int64_t)sw_dtype_size(w->type);
    sw__window v = *w;
    v.n = n;
    v.y_at += first * w->ys[0] * size;
    if (!m->copy) {
        v.x_at += first * w->xs[0] * size;
        for (int i = 0; i < 3; i++) v.x_at += w->origin[i] * w->xs[2 + i] * size;
        return v;
    }
    const int64_t strides[] = {m->per_image, 1, m->size[1] * m->size[2] * m->channels, m->size[2] * m->channels,
                               m->channels};
    memcpy(v.xs, strides, sizeof strides);
    v.xg = w->c;
    v.x_at = m->at;
    for (int i = 0; i < 3; i++) v.x_at += (w->origin[i] - m->lo[i]) * v.xs[2 + i] * sw__acc_bytes(w->type);
    return v;
}

/* Images at a time, so that the copy is not too large. */
static int64_t images_at_once(const image *m, sw_dtype type, int64_t n)
{
    const int64_t each = m->per_image * sw__acc_bytes(type);
    return m->copy ? SW_MIN(SW_MAX(SW__BIG_WORKSPACE / SW_MAX(each, 1), 1), n) : n;
}

/* t2 and channels lie beside each other, as one longer run. */
static bool merges(const sw__window *w)
{
    return w->groups == 1 && w->xs[1] == 1 && (w->t[2] == 1 || w->dilation[2] * w->xs[4] == w->c);
}

/* ---- forward and data gradient --------------------------------------------------------------------------------- */

/* Digits that both sides walk as one become one: then a 1 x 1 kernel is a plain product. */
static void merge_rows(sw__rows *r)
{
    int to = 3;
    for (int i = 2; i >= 0; i--) {
        if (r->q[i] == 1 || (r->as[i] == r->as[to] * r->q[to] && r->cs[i] == r->cs[to] * r->q[to])) {
            r->q[to] *= r->q[i];
            continue;
        }
        if (r->q[to] == 1) to++; /* a digit that says nothing gives its place away */
        to--;
        r->q[to] = r->q[i];
        r->as[to] = r->as[i];
        r->cs[to] = r->cs[i];
    }
    for (int i = 0; i < to; i++) {
        r->q[i] = 1;
        r->as[i] = r->cs[i] = 0;
    }
}

/* Few output channels leave lanes of a vector empty. Then `fold` places side by side become one with as many times the
 * channels: they read (fold - 1) * step more places than one of them, of which each ignores as many. */
static int64_t fold_of(const sw__target *t, const sw__window *w, int count)
{
    const bool dense = w->ys[1] == 1 && w->ys[4] == w->o && w->xs[4] == w->c;
    if (count != 1 || w->n == 0 || !merges(w) || (w->t[2] > 1 && w->dilation[2] != 1) || !dense) return 1;
    int64_t best = 1, best_cost = 0;
    for (int64_t f = 1; f <= 8 && f * w->o <= 32; f++) {
        const sw__lanes l = sw__rows_lanes(t, w->type, f * w->o);
        const int64_t nr = l.w * l.nv, columns = sw__div_up(f * w->o, nr) * nr;
        const int64_t each = columns * (w->t[2] + (f - 1) * w->step[2]) * 840 / f; /* 840: every f divides it */
        if (w->q[2] % f != 0 || (f > 1 && columns > nr) || (best_cost != 0 && each * 10 > best_cost * 9)) continue;
        best = f;
        best_cost = each;
    }
    return best;
}

/* Points of the kernel along the last axis, as many places read them. */
static int64_t reach_of(const sw__window *w, int64_t fold)
{
    return w->t[2] + (fold - 1) * w->step[2];
}

/* Rows lie one behind the other without gaps. */
static bool is_dense(const sw__rows *r)
{
    int64_t each = r->n;
    for (int i = 3; i >= 0; i--) {
        if (r->q[i] != 1 && r->cs[i] != each) return false;
        each *= r->q[i];
    }
    return r->cn == 1 && r->z0 * r->z1 == 1;
}

static sw_status conv_launch(sw__gpu_plan *p, const sw__window *w, bool in_workspace, const sw__lanes *l, int64_t fold,
                             int64_t packed_at)
{
    const int64_t nr = l->w * l->nv, t2 = reach_of(w, fold), depth = w->t[0] * w->t[1] * t2 * w->c;
    const bool merged = merges(w);
    sw__rows r = {.type = w->type, .a = in_workspace ? p->n_bind : w->x, .b = p->n_bind, .c = w->y, .bias = w->bias,
                  .a_acc = in_workspace, .a_at = w->x_at, .b_at = packed_at, .c_at = w->y_at, .bias_s = w->bias_s,
                  .bias_z = w->o * w->bias_s, .bias_n = w->o, .relu = w->relu,
                  .m = w->n * w->q[0] * w->q[1] * w->q[2] / fold, .n = w->o * fold,
                  .panel = nr * depth, .bk = nr, .z0 = 1, .z1 = w->groups, .az = {0, w->xg},
                  .bz = {0, sw__div_up(w->o, nr) * nr * depth}, .cz = {0, w->yg}, .ak = w->xs[1], .cn = w->ys[1],
                  .q = {w->n, w->q[0], w->q[1], w->q[2] / fold}, .cs = {w->ys[0], w->ys[2], w->ys[3], w->ys[4] * fold},
                  .t = {w->t[0], w->t[1], merged ? SW_MIN(w->t[2], 1) : w->t[2]}, .run = merged ? t2 * w->c : w->c};
    r.as[0] = w->xs[0];
    for (int i = 0; i < 3; i++) {
        r.as[1 + i] = w->step[i] * w->xs[2 + i];
        r.ts[i] = w->dilation[i] * w->xs[2 + i];
    }
    r.as[3] *= fold;
    merge_rows(&r);
    r.dense = is_dense(&r);
    return sw__rows_launch(p, &r, l);
}

static sw__panels weights(const sw__window *w)
{
    return (sw__panels){.type = w->type, .from = w->w, .at = w->w_at, .n = w->o, .ns = w->ws[0],
                      .t = {w->t[0], w->t[1], w->t[2]}, .ts = {w->ws[2], w->ws[3], w->ws[4]}, .c = w->c, .cs = w->ws[1],
                      .z0 = 1, .z1 = w->groups, .zs = {0, w->wg}};
}

static int64_t packed_bytes(const sw__window *w, const sw__lanes *l, int64_t fold)
{
    const sw__panels b = weights(w);
    if (fold == 1) return sw__panels_bytes(&b, l);
    return w->t[0] * w->t[1] * reach_of(w, fold) * w->c * l->w * l->nv * sw__acc_bytes(w->type);
}

static sw_status pack_weights(sw__gpu_plan *p, const sw__window *w, const sw__lanes *l, int64_t fold, int64_t to_at)
{
    const sw__panels b = weights(w);
    if (fold == 1) return sw__panels_launch(p, &b, l, to_at);
    sw__ask a = sw__ask_for(p, "conv_fold");
    sw__ask_type(&a, w->type);
    sw__ask_macro(&a, "NR", l->w * l->nv);
    sw__ask_buffer(&a, w->w, w->w_at);
    sw__ask_buffer(&a, p->n_bind, to_at);
    sw__ask_i32(&a, 6, (const int64_t[]){w->o, fold, w->step[2], w->t[1], w->t[2], w->c});
    sw__ask_i64(&a, 5, w->ws);
    return sw__ask_launch(&a, w->t[0] * w->t[1], 1, 1, 1);
}

/* All windows over some images; their packed kernels lie one after another from `packed` on. */
static sw_status some_images(sw__gpu_plan *p, const sw__window *w, int count, const image *m, const sw__lanes *l,
                             int64_t fold, int64_t packed, int64_t first, int64_t n)
{
    if (m->copy) SW_TRY(copy_image(p, w, m, first, n));
    for (int k = 0; k < count; k++) {
        const sw__window v = over(&w[k], m, first, n);
        if (first == 0) SW_TRY(pack_weights(p, &w[k], l, fold, packed));
        SW_TRY(conv_launch(p, &v, m->copy, l, fold, packed));
        packed += packed_bytes(&w[k], l, fold);
    }
    return SW_OK;
}

sw_status sw__rows_conv(sw__gpu_plan *p, const sw__window *w, int count)
{
    const sw__target *const t = &p->gpu->target;
    image m = find_image(w, count);
    const sw__window first = over(w, &m, 0, w->n);
    const int64_t fold = fold_of(t, &first, count);
    const sw__lanes rule = sw__rows_lanes(t, w->type, w->o * fold);
    sw__lanes l = rule;
    sw__rows_vary(p, &l);
    if (fold > 1 && l.w * l.nv < w->o * fold) l.nv = rule.nv; /* places side by side are one panel */
    const int64_t at_once = images_at_once(&m, w->type, w->n);
    int64_t bytes = 0;
    for (int k = 0; k < count; k++) bytes += packed_bytes(&w[k], &l, fold);
    const int64_t packed = sw__big_workspace(p, bytes);
    if (m.copy) m.at = sw__big_workspace(p, at_once * m.per_image * sw__acc_bytes(w->type));
    for (int64_t i = 0; i < w->n; i += at_once)
        SW_TRY(some_images(p, w, count, &m, &l, fold, packed, i, SW_MIN(at_once, w->n - i)));
    snprintf(p->note, sizeof p->note, "rows %dx%d%s%s", l.mr, l.w * l.nv, m.copy ? ", padded copy" : "",
             merges(&first) ? "" : ", channels apart");
    if (fold > 1) snprintf(p->note + strlen(p->note), sizeof p->note - strlen(p->note), ", %d places", (int)fold);
    return SW_OK;
}

/* ---- weight gradient ------------------------------------------------------------------------------------------- */

enum { BLOCK = 512 }; /* places whose offsets a work-item keeps */

typedef struct weight_job {
    int64_t t2, run, pitch, columns; /* columns: of the partial sums, with what fills up the runs */
    int64_t band, block, part, parts;
} weight_job;

static sw__lanes weight_lanes(const sw__gpu_plan *p, const sw__window *w)
{
    sw__lanes l = sw__rows_lanes(&p->gpu->target, w->type, merges(w) ? w->t[2] * w->c : w->c);
    l.mr = SW_MIN(l.mr, 8);
    sw__rows_vary(p, &l);
    return l;
}

static weight_job find_job(const sw__gpu_plan *p, const sw__window *w, const sw__lanes *l)
{
    const bool merged = merges(w);
    const int64_t nr = l->w * l->nv, places = w->n * w->q[0] * w->q[1] * w->q[2], acc = sw__acc_bytes(w->type);
    const int64_t taps = w->t[0] * w->t[1] * w->t[2];
    weight_job j = {.t2 = merged ? 1 : w->t[2], .run = merged ? w->t[2] * w->c : w->c};
    j.pitch = sw__div_up(j.run, nr) * nr;
    j.columns = w->t[0] * w->t[1] * j.t2 * j.pitch;
    j.band = SW_MIN(taps > 1 ? 2 * l->mr : 4 * l->mr, w->o);
    j.block = SW_MIN(SW_MAX(262144 / ((w->c + j.band) * acc), 64), BLOCK);
    const int64_t groups = sw__div_up(w->o, j.band) * w->groups, times = SW_MAX(sw__rows_variant_of(p)->parts, 1);
    const bool small = w->groups * w->o * j.columns * acc <= 65536; /* then more parts, for even shares, cost little */
    const int64_t wanted = (small ? 16 : 4) * times * p->gpu->target.units;
    int64_t parts = SW_MIN(sw__div_up(wanted, groups), SW_MAX(places / 256, 1));
    parts = SW_MAX(SW_MIN(parts, SW__BIG_WORKSPACE / SW_MAX(w->groups * w->o * j.columns * acc, 1)), 1);
    j.part = sw__div_up(places, parts);
    j.parts = sw__div_up(places, j.part);
    return j;
}

static sw_status weight_launch(sw__gpu_plan *p, const sw__window *w, bool in_workspace, const sw__lanes *l,
                               const weight_job *j, int64_t parts, int64_t to_at)
{
    int64_t step[3], tap[3];
    for (int i = 0; i < 3; i++) {
        step[i] = w->step[i] * w->xs[2 + i];
        tap[i] = w->dilation[i] * w->xs[2 + i];
    }
    sw__ask a = sw__ask_for(p, "conv_weight");
    sw__rows_macros(&a, w->type, l);
    sw__ask_macro(&a, "BLOCK", BLOCK);
    sw__ask_buffer(&a, in_workspace ? p->n_bind : w->x, w->x_at);
    sw__ask_buffer(&a, w->y, w->y_at);
    sw__ask_buffer(&a, p->n_bind, to_at);
    sw__ask_i64(&a, 3, (const int64_t[]){w->n * w->q[0] * w->q[1] * w->q[2], j->part, parts});
    sw__ask_i32(&a, 3, (const int64_t[]){j->block, w->o, j->band});
    sw__ask_i32(&a, 3, w->q);
    sw__ask_i64(&a, 1, w->xs);
    sw__ask_i64(&a, 3, step);
    sw__ask_i64(&a, 1, &w->xg);
    sw__ask_i64(&a, 5, w->ys);
    sw__ask_i64(&a, 1, &w->yg);
    sw__ask_i32(&a, 3, (const int64_t[]){w->t[0], w->t[1], j->t2});
    sw__ask_i64(&a, 3, tap);
    sw__ask_i32(&a, 2, (const int64_t[]){j->run, j->pitch});
    return sw__ask_launch(&a, sw__div_up(w->o, j->band), j->parts, w->groups, 1);
}

/* The partial sums into dw. */
static sw_status weight_sum(sw__gpu_plan *p, const sw__window *w, const weight_job *j, int64_t parts, int64_t from)
{
    const sw__sum s = {.type = w->type, .from_at = from, .parts = parts, .z = w->groups, .m = w->o,
                       .n = w->t[0] * w->t[1] * w->t[2] * w->c, .run = j->run, .pitch = j->pitch, .to = w->w,
                       .to_at = w->w_at, .bias = -1, .m_radix = {1, 1, w->o}, .m_stride = {0, 0, 0, w->ws[0]},
                       .n_radix = {w->t[1], w->t[2], w->c}, .n_stride = {w->ws[2], w->ws[3], w->ws[4], w->ws[1]},
                       .z1 = w->groups, .z_stride = {0, w->wg}};
    return sw__big_sum(p, &s);
}

/* ---- weight gradient with vectors along dy --------------------------------------------------------------------- */

typedef struct few { int64_t fold, run, pitch, part, parts, cost; sw__lanes l; } few;

/* Channels last, nothing between places and images. */
static bool is_dense_dy(const sw__window *w)
{
    const int64_t n[] = {w->q[2], w->q[1], w->q[0], w->n}, stride[] = {w->ys[4], w->ys[3], w->ys[2], w->ys[0]};
    int64_t each = w->o;
    for (int i = 0; i < 4; each *= n[i++])
        if (n[i] != 1 && stride[i] != each) return false;
    return w->ys[1] == 1 || w->o == 1;
}

/* As fold_of, with rows of x instead of outputs. cost: vectors multiplied for a place, times 840. */
static few find_few(const sw__target *t, const sw__window *w)
{
    few best = {.fold = 0};
    if (!sw__rows_plain(w->type) || !merges(w) || !is_dense_dy(w) || w->xs[4] != w->c) return best;
    if (w->t[2] > 1 && w->dilation[2] != 1) return best;
    for (int64_t f = 1; f <= 8 && (f == 1 || f * w->o <= 32); f++) {
        few k = {.fold = f, .run = reach_of(w, f) * w->c, .l = sw__rows_lanes(t, w->type, f * w->o)};
        const int most = k.l.mr == 8 ? 10 : k.l.mr;
        const int64_t nr = k.l.w * k.l.nv, blocks = sw__div_up(k.run, most);
        k.l.mr = (int)sw__div_up(k.run, blocks);
        k.pitch = sw__div_up(f * w->o, nr) * nr;
        k.cost = w->t[0] * w->t[1] * (k.pitch / nr) * blocks * SW_MAX(k.l.mr * k.l.nv, 8) * 840 / f;
        if (w->q[2] % f == 0 && (best.fold == 0 || k.cost * 10 < best.cost * 9)) best = k;
    }
    return best;
}

/* The same of conv_weight.k. */
static int64_t weight_cost(const sw__window *w, const sw__lanes *l)
{
    const int64_t run = merges(w) ? w->t[2] * w->c : w->c, t2 = merges(w) ? 1 : w->t[2];
    return w->t[0] * w->t[1] * t2 * sw__div_up(run, l->w * l->nv) * l->nv * sw__div_up(w->o, l->mr) * l->mr * 840;
}

static sw_status few_sum(sw__gpu_plan *p, const sw__window *w, const few *f, int64_t parts, int64_t from)
{
    sw__ask a = sw__ask_for(p, "conv_weight_sum");
    sw__ask_type(&a, w->type);
    sw__ask_macro(&a, "LINE", 64);
    sw__ask_buffer(&a, p->n_bind, from);
    sw__ask_buffer(&a, w->w, w->w_at);
    sw__ask_i32(&a, 4, (const int64_t[]){parts, w->o, f->fold, w->step[2]});
    sw__ask_i32(&a, 3, w->t);
    sw__ask_i32(&a, 3, (const int64_t[]){w->c, f->run, f->pitch});
    sw__ask_i64(&a, 5, w->ws);
    return sw__ask_launch(&a, w->t[0] * w->t[1] * w->t[2], 1, 1, 1);
}

static sw_status few_launch(sw__gpu_plan *p, const sw__window *w, bool in_workspace, const few *f, int64_t to_at)
{
    const int64_t places = w->n * w->q[0] * w->q[1] * w->q[2];
    sw__ask a = sw__ask_for(p, "conv_weight_few");
    sw__rows_macros(&a, w->type, &f->l);
    sw__ask_macro(&a, "BLOCK", BLOCK);
    sw__ask_buffer(&a, in_workspace ? p->n_bind : w->x, w->x_at);
    sw__ask_buffer(&a, w->y, w->y_at);
    sw__ask_buffer(&a, p->n_bind, to_at);
    sw__ask_i64(&a, 3, (const int64_t[]){places / f->fold, f->part, places * w->o});
    sw__ask_i32(&a, 4, (const int64_t[]){w->o * f->fold, w->q[0], w->q[1], w->q[2] / f->fold});
    sw__ask_i64(&a, 4, (const int64_t[]){w->xs[0], w->step[0] * w->xs[2], w->step[1] * w->xs[3],
                                         w->step[2] * w->xs[4] * f->fold});
    sw__ask_i32(&a, 2, w->t);
    sw__ask_i64(&a, 2, (const int64_t[]){w->dilation[0] * w->xs[2], w->dilation[1] * w->xs[3]});
    sw__ask_i32(&a, 2, (const int64_t[]){f->run, f->pitch});
    return sw__ask_launch(&a, f->parts, 1, 1, 1);
}

static sw_status weight_few(sw__gpu_plan *p, const sw__window *w, image *m, few *f)
{
    const int64_t acc = sw__acc_bytes(w->type), at_once = images_at_once(m, w->type, w->n);
    const int64_t times = sw__div_up(w->n, at_once), places = at_once * w->q[0] * w->q[1] * w->q[2] / f->fold;
    f->part = sw__div_up(places, SW_MAX(SW_MIN(16 * (int64_t)p->gpu->target.units, places / 128), 1));
    f->parts = sw__div_up(places, f->part);
    const int64_t one = f->parts * w->t[0] * w->t[1] * f->run * f->pitch * acc;
    if (m->copy) m->at = sw__big_workspace(p, at_once * m->per_image * acc);
    const int64_t from = sw__big_workspace(p, times * one);
    int64_t parts = 0;
    for (int64_t i = 0; i < times; i++) {
        const sw__window v = over(w, m, i * at_once, SW_MIN(at_once, w->n - i * at_once));
        if (m->copy) SW_TRY(copy_image(p, w, m, i * at_once, v.n));
        f->parts = sw__div_up(v.n * w->q[0] * w->q[1] * w->q[2] / f->fold, f->part);
        SW_TRY(few_launch(p, &v, m->copy, f, from + i * one));
        parts += f->parts;
    }
    snprintf(p->note, sizeof p->note, "rows %dx%d along dy, %d places, %lld parts%s", f->l.mr, f->l.w * f->l.nv,
             (int)f->fold, (long long)parts, m->copy ? ", padded copy" : "");
    return few_sum(p, w, f, parts, from);
}

sw_status sw__rows_conv_weight(sw__gpu_plan *p, const sw__window *w)
{
    const int64_t acc = sw__acc_bytes(w->type);
    if (w->n == 0) return sw__tile_conv_weight(p, w);
    image m = find_image(w, 1);
    sw__window v = over(w, &m, 0, w->n);
    sw__lanes l = weight_lanes(p, &v);
    few f = find_few(&p->gpu->target, &v);
    if (f.fold > 0 && f.cost * 10 < weight_cost(&v, &l) * 9) return weight_few(p, w, &m, &f);
    if (!m.copy && (merges(&v) ? v.t[2] * v.c : v.c) % (l.w * l.nv) != 0) { /* the last vector would reach too far */
        m.copy = true;
        v = over(w, &m, 0, w->n);
        l = weight_lanes(p, &v);
    }
    const int64_t at_once = images_at_once(&m, w->type, w->n), times = sw__div_up(w->n, at_once);
    v.n = at_once;
    const weight_job j = find_job(p, &v, &l);
    if (m.copy) m.at = sw__big_workspace(p, (at_once * m.per_image + l.w * l.nv) * acc);
    const int64_t one = j.parts * w->o * j.columns * acc;
    const int64_t from = sw__big_workspace(p, w->groups * times * one);
    int64_t parts = 0;
    for (int64_t i = 0; i < times; i++) {
        v = over(w, &m, i * at_once, SW_MIN(at_once, w->n - i * at_once));
        if (m.copy) SW_TRY(copy_image(p, w, &m, i * at_once, v.n));
        SW_TRY(weight_launch(p, &v, m.copy, &l, &j, times * j.parts, from + i * one));
        parts += j.parts;
    }
    snprintf(p->note, sizeof p->note, "rows %dx%d, %lld parts%s", l.mr, l.w * l.nv, (long long)parts,
             m.copy ? ", padded copy" : "");
    return weight_sum(p, w, &j, parts, from);
}
