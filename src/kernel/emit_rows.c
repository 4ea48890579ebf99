/* emit_rows.c: kernels whose reduced axes are the last ones (row), or all (full, a single row), as text. A CPU and
 * short rows: one work-item a row, which walks it in blocks. A GPU: a group a row. Rows that are walked only once, and
 * are too few for the device, are cut into parts, whose results a second stage combines. Part of the emitter. */
#include "kernel/emit_int.h"

#include <inttypes.h>

enum { BLOCK = 4096, LANES = 32, SHORT_ROW = 32, MANY_BLOCKS = 16, MAX_PARTS = 2048, SERIAL_PART = 32768, ITEMS = 64 };

/* A row is `outer` runs of `inner` elements along its last axis, a run `per_run` blocks. */
typedef struct plan {
    int64_t rows, cols, outer, inner, per_run, blocks;
    bool item;          /* one work-item a (row, part) */
    int lanes;          /* work-items of a group */
    int64_t chunk;      /* of a part: blocks, or elements of a group's row */
} plan;

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* Parts are for kernels that go over the domain once. */
static bool walks_once(const sw__emitter *e)
{
    bool reduces;
    for (int phase = 1; phase < e->k->phases; phase++)
        if (sw__emit_walks(e, phase, &reduces)) return false;
    return true;
}

static int group_lanes(const sw__emitter *e, int64_t cols)
{
    int lanes = SW_MIN(SW_MIN(e->t->max_group, e->t->max_local[0]), SW__EMIT_GROUP);
    lanes = SW_MIN(lanes, sw__emit_power(SW_MAX(cols / 2, 32)));
    while (lanes > 1 && (size_t)lanes * (size_t)sw__emit_local_bytes(e) > e->t->local_bytes) lanes /= 2;
    return sw__emit_power(SW_MAX(lanes, 1));
}

/* Parts of a row of `n` pieces, if `wish` in all are enough for the device and `least` pieces are worth one. */
static void choose_parts(sw__emitter *e, plan *p, int64_t n, int64_t wish, int64_t least)
{
    int64_t parts = SW_MIN(SW_MIN(sw__emit_over(wish, p->rows), n / least), MAX_PARTS);
    if (parts < 2 || !walks_once(e)) parts = 1;
    p->chunk = SW_MAX(sw__emit_over(n, parts), 1);
    e->parts = SW_MAX(sw__emit_over(n, p->chunk), 1);
}

static void choose(sw__emitter *e, plan *p)
{
    memset(p, 0, sizeof *p);
    p->rows = e->kept.points;
    p->cols = e->reduced.points;
    p->inner = e->k->extent[e->k->rank - 1];
    p->outer = p->inner ? p->cols / p->inner : 0;
    p->item = e->t->serial || p->cols <= SHORT_ROW;
    const int units = SW_MAX(e->t->units, 1);
    if (p->item) {
        p->per_run = sw__emit_over(p->inner, BLOCK);
        p->blocks = p->outer * p->per_run;
        const int64_t block = SW_MAX(SW_MIN(p->inner, BLOCK), 1);
        choose_parts(e, p, p->blocks, 2 * units, sw__emit_over(SERIAL_PART, block));
        e->compensate = p->chunk > MANY_BLOCKS || (p->inner < LANES && p->chunk * p->inner > SW__EMIT_CHAIN);
        const int64_t items = p->rows * e->parts;
        const int64_t most = SW_MIN(SW_MIN(e->t->max_group, e->t->max_local[0]), e->t->serial ? ITEMS : 2 * ITEMS);
        p->lanes = 1;
        if (!e->t->serial) p->lanes = (int)SW_MIN(most, sw__emit_power(2 * items - 1));
        else if (p->cols <= BLOCK / ITEMS) p->lanes = (int)SW_MAX(sw__emit_divisor(items, 1, most), 1);
    } else {
        p->lanes = group_lanes(e, p->cols);
        choose_parts(e, p, p->cols, 8 * units, 8 * p->lanes);
        e->compensate = p->chunk / p->lanes > SW__EMIT_CHAIN;
    }
}

/* ---- one work-item a row ----------------------------------------------------------------------------------------- */

static void emit_point(sw__emitter *e, int phase, int64_t lanes)
{
    sw__emit_point(e, phase, false);
    if (lanes == 0) {
        sw__emit_folds(e, phase);
    } else {
        SW_EACH_REDUCTION(e, j, phase)
            sw__emit_fold(e, j, sw__emit_label("t%d[l]", (int)j).s, sw__emit_operand(e, e->k->inst[j].a).s);
    }
    sw__emit_point_stores(e, phase);
}

/* Lanes side by side, which a CPU's compiler keeps in vectors; what is left over goes to lane 0. */
static void emit_lanes(sw__emitter *e, int phase, const char *from, const char *to, bool rest)
{
    const int axis = e->k->rank - 1;
    SW_EACH_REDUCTION(e, j, phase) {
        const sw__inst *const i = &e->k->inst[j];
        sw__emit_line(e, "%s t%d[%d];", sw__emit_type(i->dtype), (int)j, LANES);
        sw__emit_line(e, "for (i32 l = 0; l < %d; l++) t%d[l] = %s;", LANES, (int)j, sw__emit_identity(i).s);
    }
    sw__emit_line(e, "%s at = %s;", e->ix, from);
    sw__emit_open(e, "for (; at + %d <= %s; at += %d)", LANES, to, LANES);
    if (!sw__emit_gathers(e, phase)) sw__emit_line(e, "INDEPENDENT");
    sw__emit_open(e, "for (i32 l = 0; l < %d; l++)", LANES);
    sw__emit_line(e, "const %s d%d = at + l;", e->ix, axis);
    emit_point(e, phase, LANES);
    sw__emit_close(e);
    sw__emit_close(e);
    if (rest) {
        sw__emit_line(e, "const i32 l = 0;");
        sw__emit_open(e, "for (%s d%d = at; d%d < %s; d%d++)", e->ix, axis, axis, to, axis);
        emit_point(e, phase, LANES);
        sw__emit_close(e);
    }
    SW_EACH_REDUCTION(e, j, phase) {
        const sw__label one = sw__emit_label("t%d[l]", (int)j);
        for (int half = LANES / 2; half > 0; half /= 2) {
            sw__emit_line(e, "for (i32 l = 0; l < %d; l++)", half);
            e->depth++;
            sw__emit_fold(e, j, one.s, sw__emit_label("t%d[l + %d]", (int)j, half).s);
            e->depth--;
        }
        sw__emit_accumulate(e, j, sw__emit_label("t%d[0]", (int)j).s);
    }
}

/* A run along the last axis, from..to. */
static void emit_run(sw__emitter *e, const plan *p, int phase, bool reduces, const char *from, const char *to)
{
    const int axis = e->k->rank - 1;
    if (reduces && e->t->serial && p->inner >= LANES) {
        emit_lanes(e, phase, from, to, p->inner % LANES != 0);
        return;
    }
    if (e->t->serial && !reduces && !sw__emit_gathers(e, phase)) sw__emit_line(e, "INDEPENDENT");
    sw__emit_open(e, "for (%s d%d = %s; d%d < %s; d%d++)", e->ix, axis, from, axis, to, axis);
    emit_point(e, phase, 0);
    sw__emit_close(e);
}

/* The blocks of the row, or of the part. */
static void emit_blocks(sw__emitter *e, const plan *p, int phase, bool reduces)
{
    sw__axes outer = e->reduced;
    outer.n--;
    outer.points = p->outer;
    const sw__label all = sw__emit_label("%" PRId64, p->inner);
    if (p->blocks <= 1) {
        if (p->blocks == 1 && outer.n > 0) sw__emit_axes(e, &outer, sw__emit_label("0%s", e->u).s);
        if (p->blocks == 1) emit_run(e, p, phase, reduces, "0", all.s);
        return;
    }
    if (e->parts > 1) sw__emit_open(e, "for (%s block = first; block < last; block++)", e->ux);
    else sw__emit_open(e, "for (%s block = 0; block < %" PRId64 "%s; block++)", e->ux, p->blocks, e->u);
    if (p->per_run == 1) {
        sw__emit_axes(e, &outer, "block");
        emit_run(e, p, phase, reduces, "0", all.s);
    } else {
        sw__emit_axes(e, &outer, sw__emit_label("(block / %" PRId64 "%s)", p->per_run, e->u).s);
        if (p->outer > 1) sw__emit_line(e, "const %s from = (%s)(block %% %" PRId64 "%s) * %d;", e->ix, e->ix,
                                        p->per_run, e->u, BLOCK);
        else sw__emit_line(e, "const %s from = (%s)block * %d;", e->ix, e->ix, BLOCK);
        if (p->inner % BLOCK == 0) sw__emit_line(e, "const %s to = from + %d;", e->ix, BLOCK);
        else sw__emit_line(e, "const %s to = from + %d < %s ? from + %d : %s;", e->ix, BLOCK, all.s, BLOCK, all.s);
        emit_run(e, p, phase, reduces, "from", "to");
    }
    sw__emit_close(e);
}

/* The number of the work-item (or of the group) among `n`. */
static void emit_number(sw__emitter *e, const char *name, int lanes, int64_t n)
{
    if (lanes == 1) sw__emit_line(e, "const %s %s = (%s)GROUP(0);", e->ux, name, e->ux);
    else sw__emit_line(e, "const %s %s = (%s)GROUP(0) * %d%s + (%s)LANE(0);", e->ux, name, e->ux, lanes, e->u, e->ux);
    if (n % lanes != 0) sw__emit_line(e, "if (%s >= %" PRId64 "%s) return;", name, n, e->u);
}

/* From a number of a part to its row and its share of n pieces. */
static void emit_part(sw__emitter *e, const plan *p, int64_t n)
{
    if (p->rows > 1) sw__emit_line(e, "const %s row = work / %" PRId64 "%s;", e->ux, e->parts, e->u);
    if (p->rows > 1) sw__emit_line(e, "const %s first = work %% %" PRId64 "%s * %" PRId64 "%s;", e->ux, e->parts, e->u,
                                   p->chunk, e->u);
    else sw__emit_line(e, "const %s row = 0, first = work * %" PRId64 "%s;", e->ux, p->chunk, e->u);
    sw__emit_line(e, "const %s last = first + %" PRId64 "%s < %" PRId64 "%s ? first + %" PRId64 "%s : %" PRId64 "%s;",
                  e->ux, p->chunk, e->u, n, e->u, p->chunk, e->u, n, e->u);
}

static void emit_item_phases(sw__emitter *e, const plan *p)
{
    for (int phase = 0; phase < e->k->phases; phase++) {
        bool reduces;
        const bool walks = sw__emit_walks(e, phase, &reduces);
        if (e->parts > 1 && phase > 0) break;
        sw__emit_rows_of(e, phase);
        if (!walks) continue;
        sw__emit_accumulators(e, phase);
        sw__emit_line(e, "{");
        e->depth++;
        emit_blocks(e, p, phase, reduces);
        sw__emit_close(e);
        if (e->parts == 1) sw__emit_totals(e, phase);
    }
}

static void emit_items(sw__emitter *e, const plan *p)
{
    const int64_t items = p->rows * e->parts;
    const bool whole = e->parts == 1;
    sw__emit_begin(e, whole ? "" : "_parts", true, whole, (uint64_t)sw__emit_over(items, p->lanes), (uint32_t)p->lanes,
                   1);
    emit_number(e, whole ? "row" : "work", p->lanes, items);
    if (!whole) emit_part(e, p, p->blocks);
    sw__emit_axes(e, &e->kept, "row");
    emit_item_phases(e, p);
    if (whole) sw__emit_row_stores(e);
    else SW_EACH_REDUCTION(e, j, 0) sw__emit_line(e, "w%d[work] = %s;", (int)j, sw__emit_total(e, j).s);
    sw__emit_end(e);
}

/* ---- a group a row ----------------------------------------------------------------------------------------------- */

static void emit_group_walk(sw__emitter *e, const plan *p, int phase)
{
    const sw__label end = e->parts > 1 ? sw__emit_label("last") : sw__emit_label("%" PRId64 "%s", p->cols, e->u);
    sw__emit_open(e, "for (%s at = %s(%s)lane; at < %s; at += %d%s)", e->ux, e->parts > 1 ? "first + " : "", e->ux,
                  end.s, p->lanes, e->u);
    sw__emit_axes(e, &e->reduced, "at");
    emit_point(e, phase, 0);
    sw__emit_close(e);
}

static void emit_group_phases(sw__emitter *e, const plan *p)
{
    for (int phase = 0; phase < (e->parts > 1 ? 1 : e->k->phases); phase++) {
        bool reduces;
        const bool walks = sw__emit_walks(e, phase, &reduces);
        sw__emit_rows_of(e, phase);
        if (!walks) continue;
        sw__emit_accumulators(e, phase);
        if (p->cols > 0) emit_group_walk(e, p, phase);
        if (!reduces) continue;
        sw__emit_tree(e, phase, 0, p->lanes, 1);
        if (e->parts > 1) break;
        SW_EACH_REDUCTION(e, j, phase)
            sw__emit_line(e, "const %s v%d = s%d[0];", sw__emit_type(e->k->inst[j].dtype), (int)j, (int)j);
    }
}

static void emit_groups(sw__emitter *e, const plan *p)
{
    const bool whole = e->parts == 1;
    sw__emit_begin(e, whole ? "" : "_parts", true, whole, (uint64_t)(p->rows * e->parts), (uint32_t)p->lanes, 1);
    for (int phase = 0; phase < e->k->phases; phase++) sw__emit_local(e, phase, p->lanes);
    sw__emit_line(e, "const i32 lane = LANE(0);");
    emit_number(e, whole ? "row" : "work", 1, p->rows * e->parts);
    if (!whole) emit_part(e, p, p->cols);
    sw__emit_axes(e, &e->kept, "row");
    emit_group_phases(e, p);
    sw__emit_open(e, "if (lane == 0)");
    if (whole) sw__emit_row_stores(e);
    else SW_EACH_REDUCTION(e, j, 0) sw__emit_line(e, "w%d[work] = s%d[0];", (int)j, (int)j);
    sw__emit_close(e);
    sw__emit_end(e);
}

/* ---- the second stage -------------------------------------------------------------------------------------------- */

static void emit_partial_folds(sw__emitter *e)
{
    SW_EACH_REDUCTION(e, j, 0)
        if (e->need[j]) sw__emit_accumulate(e, j, sw__emit_label("w%d[row * %" PRId64 "%s + part]", (int)j, e->parts,
                                                                 e->u).s);
}

static void emit_finish_item(sw__emitter *e)
{
    e->compensate = e->parts > MANY_BLOCKS;
    sw__emit_begin(e, "", false, true, (uint64_t)e->kept.points, 1, 1);
    emit_number(e, "row", 1, e->kept.points);
    sw__emit_accumulators(e, 0);
    sw__emit_open(e, "for (%s part = 0; part < %" PRId64 "%s; part++)", e->ux, e->parts, e->u);
    emit_partial_folds(e);
    sw__emit_close(e);
    sw__emit_totals(e, 0);
    sw__emit_axes(e, &e->kept, "row");
    for (int phase = 0; phase < e->k->phases; phase++) sw__emit_rows_of(e, phase);
    sw__emit_row_stores(e);
    sw__emit_end(e);
}

static void emit_finish_group(sw__emitter *e)
{
    const int lanes = group_lanes(e, e->parts);
    e->compensate = false;
    sw__emit_begin(e, "", false, true, (uint64_t)e->kept.points, (uint32_t)lanes, 1);
    sw__emit_local(e, 0, lanes);
    sw__emit_line(e, "const i32 lane = LANE(0);");
    emit_number(e, "row", 1, e->kept.points);
    sw__emit_accumulators(e, 0);
    sw__emit_open(e, "for (%s part = (%s)lane; part < %" PRId64 "%s; part += %d%s)", e->ux, e->ux, e->parts, e->u,
                  lanes, e->u);
    emit_partial_folds(e);
    sw__emit_close(e);
    sw__emit_tree(e, 0, 0, lanes, 1);
    sw__emit_line(e, "if (lane != 0) return;");
    SW_EACH_REDUCTION(e, j, 0)
        sw__emit_line(e, "const %s v%d = s%d[0];", sw__emit_type(e->k->inst[j].dtype), (int)j, (int)j);
    sw__emit_axes(e, &e->kept, "row");
    for (int phase = 0; phase < e->k->phases; phase++) sw__emit_rows_of(e, phase);
    sw__emit_row_stores(e);
    sw__emit_end(e);
}

sw_status sw__emit_rows(sw__emitter *e)
{
    plan p;
    choose(e, &p);
    if (p.item) emit_items(e, &p);
    else emit_groups(e, &p);
    if (e->parts > 1) {
        if (e->t->serial) emit_finish_item(e);
        else emit_finish_group(e);
    }
    e->out->workspace = sw__emit_workspace(e);
    return SW_OK;
}
