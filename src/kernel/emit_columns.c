/* emit_columns.c: kernels that keep their last axis and reduce others, as text. A CPU: a work-item takes a block of
 * neighbouring columns, with vectors of accumulators. A GPU: work-items of a group side by side over columns, and one
 * above the other over what is reduced. Parts and a second stage where there are few columns. Part of the emitter. */
#include "kernel/emit_int.h"

#include <inttypes.h>

enum { WIDE = 64, MIN_ROWS = 64, MAX_PARTS = 1024, LIMIT = SW__EMIT_CHAIN, NARROW = 32 };

typedef struct plan {
    int64_t cols, rows;         /* kept and reduced points */
    int64_t last, width, tiles; /* a CPU: extent of the last axis, columns of a work-item, work-items along the axis */
    int64_t wide, deep;         /* a GPU: columns of a group, work-items one above the other */
    int64_t chunk;              /* reduced points of a part */
    int64_t fold;               /* a CPU: rows that are walked as one; 0: none */
} plan;

static void choose_parts(sw__emitter *e, plan *p, int64_t have, int64_t wish, int64_t least)
{
    int64_t parts = SW_MIN(SW_MIN(sw__emit_over(wish, have), p->rows / least), MAX_PARTS);
    if (parts < 2) parts = 1;
    p->chunk = SW_MAX(sw__emit_over(p->rows, parts), 1);
    e->parts = SW_MAX(sw__emit_over(p->rows, p->chunk), 1);
}

static void emit_part(sw__emitter *e, const plan *p, const char *number, int64_t tiles)
{
    if (e->parts == 1) {
        sw__emit_line(e, "const %s tile = %s;", e->ux, number);
        return;
    }
    if (tiles == 1) sw__emit_line(e, "const %s tile = 0, part = %s;", e->ux, number);
    else sw__emit_line(e, "const %s tile = %s %% %" PRId64 "%s, part = %s / %" PRId64 "%s;", e->ux, number, tiles, e->u,
                       number, tiles, e->u);
    sw__emit_line(e, "const %s first = part * %" PRId64 "%s;", e->ux, p->chunk, e->u);
    sw__emit_line(e, "const %s last = first + %" PRId64 "%s < %" PRId64 "%s ? first + %" PRId64 "%s : %" PRId64 "%s;",
                  e->ux, p->chunk, e->u, p->rows, e->u, p->chunk, e->u, p->rows, e->u);
}

/* ---- a CPU ------------------------------------------------------------------------------------------------------- */

static void choose_serial(sw__emitter *e, plan *p)
{
    const int64_t last = SW_MAX(e->k->extent[e->k->rank - 1], 1);
    p->last = last;
    p->width = last <= 2 * WIDE ? last : sw__emit_divisor(last, WIDE / 2, 2 * WIDE);
    if (p->width == 0) p->width = WIDE;
    p->tiles = sw__emit_over(last, p->width);
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): last is at least 1
    choose_parts(e, p, p->cols / last * p->tiles, 16 * SW_MAX(e->t->units, 1), MIN_ROWS);
}

static bool same_width(const plan *p)
{
    return p->last % p->width == 0;
}

/* for every column of the work-item */
static void open_columns(sw__emitter *e, const plan *p, bool independent)
{
    if (independent) sw__emit_line(e, "INDEPENDENT");
    if (same_width(p)) sw__emit_open(e, "for (i32 l = 0; l < %" PRId64 "; l++)", p->width);
    else sw__emit_open(e, "for (i32 l = 0; l < width; l++)");
}

/* The work-item's columns: base, coordinates of the kept axes but the last, and `column` of the first. */
static void emit_tile(sw__emitter *e, const plan *p)
{
    sw__axes others = e->kept;
    others.n--;
    if (p->tiles == 1) {
        sw__emit_axes(e, &others, "tile");
        sw__emit_line(e, "const %s base = 0;", e->ix);
    } else {
        sw__emit_axes(e, &others, sw__emit_label("(tile / %" PRId64 "%s)", p->tiles, e->u).s);
        sw__emit_line(e, "const %s base = (%s)(tile %% %" PRId64 "%s) * %" PRId64 ";", e->ix, e->ix, p->tiles, e->u,
                      p->width);
    }
    if (!same_width(p)) {
        sw__emit_line(e, "const i32 left = (i32)(%" PRId64 " - base);", p->last);
        sw__emit_line(e, "const i32 width = left < %" PRId64 " ? left : %" PRId64 ";", p->width, p->width);
    }
    if (e->parts > 1 && p->tiles == 1) sw__emit_line(e, "const %s column = tile * %" PRId64 "%s;", e->ux, p->last,
                                                     e->u);
    else if (e->parts > 1) sw__emit_line(e, "const %s column = tile / %" PRId64 "%s * %" PRId64 "%s + (%s)base;", e->ux,
                                         p->tiles, e->u, p->last, e->u, e->ux);
}

/* Accumulators of a block of rows, tN; and with long columns of all blocks, aN and eN. */
static void emit_arrays(sw__emitter *e, const plan *p, const char *name, bool compensation)
{
    SW_EACH_REDUCTION(e, j, 0) {
        if (!e->need[j] || (compensation && !sw__emit_compensated(e, j))) continue;
        const sw__inst *const i = &e->k->inst[j];
        sw__emit_line(e, "%s %s%d[%" PRId64 "];", sw__emit_type(i->dtype), name, (int)j, p->width);
        sw__emit_line(e, "for (i32 l = 0; l < %" PRId64 "; l++) %s%d[l] = %s;", p->width, name, (int)j,
                      compensation ? "0.0f" : sw__emit_identity(i).s);
    }
}

static void emit_serial_rows(sw__emitter *e, const plan *p, const char *from, const char *to)
{
    const int axis = e->k->rank - 1;
    sw__emit_open(e, "for (%s row = %s; row < %s; row++)", e->ux, from, to);
    sw__emit_axes(e, &e->reduced, "row");
    open_columns(e, p, !sw__emit_gathers(e, 0));
    sw__emit_line(e, "const %s d%d = base + l;", e->ix, axis);
    sw__emit_point(e, 0, true);
    SW_EACH_REDUCTION(e, j, 0)
        sw__emit_fold(e, j, sw__emit_label("t%d[l]", (int)j).s, sw__emit_operand(e, e->k->inst[j].a).s);
    sw__emit_point_stores(e, 0);
    sw__emit_close(e);
    sw__emit_close(e);
}

/* Long sums: block by block, the blocks' sums compensated. */
static void emit_serial_walk(sw__emitter *e, const plan *p)
{
    const sw__label from = sw__emit_label(e->parts > 1 ? "first" : "0");
    const sw__label to = e->parts > 1 ? sw__emit_label("last") : sw__emit_label("%" PRId64 "%s", p->rows, e->u);
    if (!e->compensate) {
        emit_arrays(e, p, "t", false);
        emit_serial_rows(e, p, from.s, to.s);
        return;
    }
    emit_arrays(e, p, "a", false);
    emit_arrays(e, p, "e", true);
    sw__emit_open(e, "for (%s block = %s; block < %s; block += %d)", e->ux, from.s, to.s, LIMIT);
    sw__emit_line(e, "const %s end = block + %d < %s ? block + %d : %s;", e->ux, LIMIT, to.s, LIMIT, to.s);
    emit_arrays(e, p, "t", false);
    emit_serial_rows(e, p, "block", "end");
    open_columns(e, p, false);
    SW_EACH_REDUCTION(e, j, 0) {
        const int n = (int)j;
        if (sw__emit_compensated(e, j)) sw__emit_line(e, "TWO_SUM(a%d[l], e%d[l], t%d[l]);", n, n, n);
        else sw__emit_fold(e, j, sw__emit_label("a%d[l]", n).s, sw__emit_label("t%d[l]", n).s);
    }
    sw__emit_close(e);
    sw__emit_close(e);
}

static sw__label serial_total(const sw__emitter *e, int32_t j)
{
    const int n = (int)j;
    if (!e->compensate) return sw__emit_label("t%d[l]", n);
    if (!sw__emit_compensated(e, j)) return sw__emit_label("a%d[l]", n);
    return sw__emit_label("sw_total(a%d[l], e%d[l])", n, n);
}

static void emit_serial_finish(sw__emitter *e, const plan *p)
{
    open_columns(e, p, false);
    sw__emit_line(e, "const %s d%d = base + l;", e->ix, e->k->rank - 1);
    SW_EACH_REDUCTION(e, j, 0)
        if (e->need[j])
            sw__emit_line(e, "const %s v%d = %s;", sw__emit_type(e->k->inst[j].dtype), (int)j, serial_total(e, j).s);
    for (int phase = 0; phase < e->k->phases; phase++) sw__emit_rows_of(e, phase);
    sw__emit_row_stores(e);
    sw__emit_close(e);
}

static void emit_serial_second(sw__emitter *e, plan *p)
{
    e->compensate = false;
    const int64_t tiles = p->cols / p->last * p->tiles;
    sw__emit_begin(e, "", false, true, (uint64_t)tiles, 1, 1);
    sw__emit_line(e, "const %s tile = (%s)GROUP(0);", e->ux, e->ux);
    emit_tile(e, p);
    emit_arrays(e, p, "t", false);
    sw__emit_open(e, "for (%s part = 0; part < %" PRId64 "%s; part++)", e->ux, e->parts, e->u);
    open_columns(e, p, true);
    SW_EACH_REDUCTION(e, j, 0)
        if (e->need[j])
            sw__emit_fold(e, j, sw__emit_label("t%d[l]", (int)j).s,
                          sw__emit_label("w%d[part * %" PRId64 "%s + column + l]", (int)j, p->cols, e->u).s);
    sw__emit_close(e);
    sw__emit_close(e);
    emit_serial_finish(e, p);
    sw__emit_end(e);
}

/* Of rows that were walked as one, the sums are brought together in pairs. */
static void emit_unfold(sw__emitter *e, const plan *p)
{
    SW_EACH_REDUCTION(e, j, 0) sw__emit_line(e, "%s s%d[%" PRId64 "];", sw__emit_type(e->k->inst[j].dtype), (int)j,
                                             p->width);
    open_columns(e, p, false);
    SW_EACH_REDUCTION(e, j, 0) sw__emit_line(e, "s%d[l] = %s;", (int)j, serial_total(e, j).s);
    sw__emit_close(e);
    const int64_t columns = p->cols / p->fold;
    for (int64_t n = p->fold, half = (n + 1) / 2; n > 1; n = half, half = (n + 1) / 2) {
        sw__emit_open(e, "for (i32 l = 0; l < %" PRId64 "; l++)", (n - half) * columns);
        SW_EACH_REDUCTION(e, j, 0) sw__emit_fold(e, j, sw__emit_label("s%d[l]", (int)j).s,
                                                 sw__emit_label("s%d[l + %" PRId64 "]", (int)j, half * columns).s);
        sw__emit_close(e);
    }
    sw__emit_open(e, "for (i32 l = 0; l < %" PRId64 "; l++)", columns);
    SW_EACH_REDUCTION(e, j, 0)
        sw__emit_line(e, "w%d[part * %" PRId64 "%s + l] = s%d[l];", (int)j, columns, e->u, (int)j);
    sw__emit_close(e);
}

static void emit_partials(sw__emitter *e, const plan *p)
{
    if (p->fold > 1) {
        emit_unfold(e, p);
        return;
    }
    open_columns(e, p, true);
    SW_EACH_REDUCTION(e, j, 0)
        sw__emit_line(e, "w%d[part * %" PRId64 "%s + column + l] = %s;", (int)j, p->cols, e->u, serial_total(e, j).s);
    sw__emit_close(e);
}

static void emit_serial_first(sw__emitter *e, plan *p)
{
    const int64_t tiles = p->cols / p->last * p->tiles;
    const bool whole = e->parts == 1;
    e->compensate = p->chunk > LIMIT;
    sw__emit_begin(e, whole ? "" : "_parts", true, whole, (uint64_t)(tiles * e->parts), 1, 1);
    sw__emit_line(e, "const %s work = (%s)GROUP(0);", e->ux, e->ux);
    emit_part(e, p, "work", tiles);
    emit_tile(e, p);
    if (p->rows > 0) emit_serial_walk(e, p);
    else emit_arrays(e, p, "t", false);
    if (whole) {
        emit_serial_finish(e, p);
    } else {
        emit_partials(e, p);
    }
    sw__emit_end(e);
}

/* ---- a CPU, few columns: several rows as one, so that they fill a vector -------------------------------------------- */

/* Every access of the domain walks along rows and columns as along one axis. */
static bool is_dense(const sw__kernel *k)
{
    const int64_t last = k->extent[1];
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        if (i->kop == SW_K_GATHER || i->kop == SW_K_INDEX || i->kop == SW_K_RANDOM || i->masked) return false;
        if (i->kop == SW_K_REDUCE && i->phase != 0) return false;
        const bool memory = i->kop == SW_K_LOAD || i->kop == SW_K_STORE;
        if (memory && i->full && i->stride[0] != last * i->stride[1]) return false;
        if (i->kop == SW_K_LOAD && !i->full && i->stride[1] != 0) return false; /* may be wanted in the walk */
    }
    return true;
}

/* Rows that become one; 1: none do. */
static int64_t find_fold(const sw__emitter *e, const plan *p)
{
    const sw__kernel *const k = e->k;
    if (k->rank != 2 || k->reduced != 1 || p->cols > NARROW || !is_dense(k)) return 1;
    for (int64_t f = 2 * WIDE / SW_MAX(p->cols, 1); f > 1; f--)
        if (f * p->cols % 16 == 0 && p->rows % f == 0 && p->rows / f >= 2 * MIN_ROWS) return f;
    return 1;
}

static void fold_rows(sw__kernel *k, int64_t fold)
{
    for (int32_t j = 0; j < k->n_insts; j++)
        if (k->inst[j].full) k->inst[j].stride[0] *= fold;
    k->extent[0] /= fold;
    k->extent[1] *= fold;
}

static sw_status emit_folded(sw__emitter *e, plan *p, int64_t fold)
{
    const sw__kernel *const plain = e->k;
    sw__kernel *folded = NULL;
    SW_TRY(sw__kernel_clone(plain, &folded));
    fold_rows(folded, fold);
    plan f = {.cols = p->cols * fold, .rows = p->rows / fold, .fold = fold};
    e->k = folded;
    e->reduced.points = f.rows;
    choose_serial(e, &f);
    emit_serial_first(e, &f);
    e->k = plain;
    e->reduced.points = p->rows;
    sw__kernel_free(folded);
    p->last = p->width = p->cols;
    p->tiles = 1;
    emit_serial_second(e, p);
    return SW_OK;
}

static sw_status emit_serial(sw__emitter *e, plan *p)
{
    const int64_t fold = find_fold(e, p);
    if (fold > 1) return emit_folded(e, p, fold);
    choose_serial(e, p);
    emit_serial_first(e, p);
    if (e->parts > 1) emit_serial_second(e, p);
    return SW_OK;
}

/* ---- a GPU ------------------------------------------------------------------------------------------------------- */

static void choose_shape(const sw__emitter *e, plan *p, int64_t rows)
{
    int64_t most = SW_MIN(e->t->max_group, SW__EMIT_GROUP);
    const int bytes = SW_MAX(sw__emit_local_bytes(e), 1);
    while (most > 1 && (size_t)(most * bytes) > e->t->local_bytes) most /= 2;
    p->wide = SW_MIN(p->cols, SW_MIN(p->cols % WIDE == 0 || p->cols <= WIDE ? WIDE : WIDE / 2, e->t->max_local[0]));
    p->wide = SW_MAX(SW_MIN(p->wide, most), 1);
    p->deep = sw__emit_power(SW_MAX(SW_MIN(SW_MIN(most / p->wide, e->t->max_local[1]), rows / 2), 1));
    p->tiles = sw__emit_over(p->cols, p->wide);
}

/* The work-item's column: clamped, so that the values of a column that is not there are harmless. */
static void emit_column(sw__emitter *e, const plan *p)
{
    sw__emit_line(e, "const i32 lane = LANE(1) * %" PRId64 " + LANE(0);", p->wide);
    if (p->cols % p->wide == 0) {
        sw__emit_line(e, "const %s column = tile * %" PRId64 "%s + (%s)LANE(0);", e->ux, p->wide, e->u, e->ux);
    } else {
        sw__emit_line(e, "const %s place = tile * %" PRId64 "%s + (%s)LANE(0);", e->ux, p->wide, e->u, e->ux);
        sw__emit_line(e, "const u8 there = place < %" PRId64 "%s;", p->cols, e->u);
        sw__emit_line(e, "const %s column = there ? place : %" PRId64 "%s;", e->ux, p->cols - 1, e->u);
    }
}

static void open_chosen(sw__emitter *e, const plan *p)
{
    const bool all = p->cols % p->wide == 0;
    sw__emit_open(e, "if (LANE(1) == 0%s)", all ? "" : " && there");
}

static void emit_wide_walk(sw__emitter *e, const plan *p)
{
    const bool all = p->cols % p->wide == 0;
    sw__label end = e->parts > 1 ? sw__emit_label("last") : sw__emit_label("%" PRId64 "%s", p->rows, e->u);
    if (!all) {
        sw__emit_line(e, "const %s end = there ? %s : 0;", e->ux, end.s);
        end = sw__emit_label("end");
    }
    sw__emit_open(e, "for (%s row = %s(%s)LANE(1); row < %s; row += %" PRId64 "%s)", e->ux,
                  e->parts > 1 ? "first + " : "", e->ux, end.s, p->deep, e->u);
    sw__emit_axes(e, &e->reduced, "row");
    sw__emit_point(e, 0, false);
    sw__emit_folds(e, 0);
    sw__emit_point_stores(e, 0);
    sw__emit_close(e);
}

static void emit_wide_values(sw__emitter *e)
{
    SW_EACH_REDUCTION(e, j, 0)
        if (e->need[j])
            sw__emit_line(e, "const %s v%d = s%d[lane];", sw__emit_type(e->k->inst[j].dtype), (int)j, (int)j);
}

static void emit_wide_second(sw__emitter *e, plan *p)
{
    choose_shape(e, p, e->parts);
    e->compensate = e->parts / p->deep > LIMIT;
    sw__emit_begin(e, "", false, true, (uint64_t)p->tiles, (uint32_t)p->wide, (uint32_t)p->deep);
    sw__emit_local(e, 0, (int)(p->wide * p->deep));
    sw__emit_line(e, "const %s tile = (%s)GROUP(0);", e->ux, e->ux);
    emit_column(e, p);
    sw__emit_accumulators(e, 0);
    sw__emit_open(e, "for (%s part = (%s)LANE(1); part < %" PRId64 "%s; part += %" PRId64 "%s)", e->ux, e->ux, e->parts,
                  e->u, p->deep, e->u);
    SW_EACH_REDUCTION(e, j, 0)
        sw__emit_accumulate(e, j, sw__emit_label("w%d[part * %" PRId64 "%s + column]", (int)j, p->cols, e->u).s);
    sw__emit_close(e);
    sw__emit_tree(e, 0, 1, (int)p->deep, (int)p->wide);
    open_chosen(e, p);
    emit_wide_values(e);
    sw__emit_axes(e, &e->kept, "column");
    for (int phase = 0; phase < e->k->phases; phase++) sw__emit_rows_of(e, phase);
    sw__emit_row_stores(e);
    sw__emit_close(e);
    sw__emit_end(e);
}

static void emit_wide(sw__emitter *e, plan *p)
{
    choose_shape(e, p, p->rows);
    choose_parts(e, p, p->tiles, 8 * SW_MAX(e->t->units, 1), 16 * p->deep);
    e->compensate = p->chunk / p->deep > LIMIT;
    const bool whole = e->parts == 1;
    sw__emit_begin(e, whole ? "" : "_parts", true, whole, (uint64_t)(p->tiles * e->parts), (uint32_t)p->wide,
                   (uint32_t)p->deep);
    sw__emit_local(e, 0, (int)(p->wide * p->deep));
    sw__emit_line(e, "const %s work = (%s)GROUP(0);", e->ux, e->ux);
    emit_part(e, p, "work", p->tiles);
    emit_column(e, p);
    sw__emit_axes(e, &e->kept, "column");
    sw__emit_rows_of(e, 0);
    sw__emit_accumulators(e, 0);
    if (p->rows > 0) emit_wide_walk(e, p);
    sw__emit_tree(e, 0, 1, (int)p->deep, (int)p->wide);
    open_chosen(e, p);
    if (whole) {
        emit_wide_values(e);
        for (int phase = 1; phase < e->k->phases; phase++) sw__emit_rows_of(e, phase);
        sw__emit_row_stores(e);
    } else {
        SW_EACH_REDUCTION(e, j, 0)
            sw__emit_line(e, "w%d[part * %" PRId64 "%s + column] = s%d[lane];", (int)j, p->cols, e->u, (int)j);
    }
    sw__emit_close(e);
    sw__emit_end(e);
    if (!whole) emit_wide_second(e, p);
}

sw_status sw__emit_columns(sw__emitter *e)
{
    plan p = { .cols = e->kept.points, .rows = e->reduced.points };
    if (e->t->serial) SW_TRY(emit_serial(e, &p));
    else emit_wide(e, &p);
    e->out->workspace = sw__emit_workspace(e);
    return SW_OK;
}
