/* tile_plan.c: how the tile interpreter walks a kernel: order of the axes, groups, shape of the tile, parts, threads.
 * First step of compiling a tile program (tile_build.h). All choices depend on the kernel alone, but for the number of
 * threads, which changes no result. */
#include "kernel/tile_build.h"

/* Parts of a reduction that are added up separately: enough work each to pay for itself, few enough to combine. */
/* Least length of an axis for a transposition, sides of a window. */
enum { CROSS_ROWS = 4, WINDOW_ROWS = 32, WINDOW = 1024 };
enum { PART_ELEMENTS = 32768, COLUMN_PART_ELEMENTS = 65536, MAX_COLUMN_PARTS = 64, MAX_ROW_PARTS = 512,
       SPLIT_ROWS = 16, SPLIT_COLS = 65536 };
/* Work below which a second thread costs more than it saves. */
static const double thread_ns = 20000;

static bool is_masked(const sw__inst *i)
{
    return (i->kop == SW_K_LOAD || i->kop == SW_K_GATHER) && i->masked;
}

/* ---- order of the axes ------------------------------------------------------------------------------------------- */

/* The access whose memory order the walk follows: pointwise a store, else the load with the most axes. */
static const sw__inst *reference(const sw__kernel *k)
{
    const sw__inst *best = NULL;
    int most = -1;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        if (!sw__has_strides(i) || i->kop == SW_K_INDEX) continue;
        int axes = 0;
        for (int x = 0; x < k->rank; x++) axes += i->stride[x] != 0;
        const int rank = 2 * axes + ((i->kop == SW_K_STORE) == (k->reduced == 0));
        if (rank <= most) continue;
        most = rank;
        best = i;
    }
    return best;
}

/* The axis along which most accesses at FULL level have neighbours in memory; -1: none. */
static int fastest_axis(const sw__kernel *k)
{
    int best = -1, most = 0;
    for (int x = 0; x < k->rank; x++) {
        int count = 0;
        for (int32_t j = 0; j < k->n_insts; j++) {
            const sw__inst *const i = &k->inst[j];
            if (sw__has_strides(i) && i->kop != SW_K_INDEX && i->full && i->stride[x] == 1) count++;
        }
        if (k->extent[x] > 1 && count > most) {
            most = count;
            best = x;
        }
    }
    return best;
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* order[]: the axes by falling stride of the reference (axes that it does not walk first). */
static void by_stride(const sw__kernel *k, const sw__inst *ref, int *order)
{
    for (int x = 0; x < k->rank; x++) order[x] = x;
    if (!ref) return;
    for (int a = 1; a < k->rank; a++) {
        const int x = order[a];
        int b = a;
        for (; b > 0; b--) {
            const int64_t before = magnitude(ref->stride[order[b - 1]]), mine = magnitude(ref->stride[x]);
            if (before == 0 || (mine != 0 && mine <= before)) break;
            order[b] = order[b - 1];
        }
        order[b] = x;
    }
}

static void permute(sw__kernel *k, const int *order)
{
    const sw__kernel old = *k;
    k->reduced = 0;
    for (int x = 0; x < k->rank; x++) {
        k->extent[x] = old.extent[order[x]];
        k->reduced |= (old.reduced >> order[x] & 1u) << x;
    }
    for (int32_t j = 0; j < k->n_insts; j++) {
        sw__inst *const i = &k->inst[j];
        const sw__inst was = *i;
        for (int x = 0; x < k->rank; x++) {
            i->stride[x] = was.stride[order[x]];
            i->lo[x] = was.lo[order[x]];
            i->hi[x] = was.hi[order[x]];
        }
    }
}

/* The axis along which a load has neighbours in memory while it jumps along the last one; -1: no load does. */
static int crossing_axis(const sw__kernel *k)
{
    const int last = k->rank - 1;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        if (i->kop != SW_K_LOAD || magnitude(i->stride[last]) < 2) continue;
        for (int x = 0; x < last; x++) {
            if (i->stride[x] == 1 && k->extent[x] >= CROSS_ROWS) return x;
        }
    }
    return -1;
}

/* Pointwise: an axis that memory crosses comes before the last one, so that a tile has neighbours along both. */
static void order_pointwise(sw__kernel *k, const int *sorted)
{
    permute(k, sorted);
    const int cross = k->rank > 1 ? crossing_axis(k) : -1;
    if (cross < 0) return;
    int order[SW_MAX_RANK], n = 0;
    for (int x = 0; x < k->rank - 1; x++) {
        if (x != cross) order[n++] = x;
    }
    order[n++] = cross;
    order[n] = k->rank - 1;
    permute(k, order);
}

/* Stable: the axes whose bit in `set` equals `value`, after those already placed. */
static int take(const int *from, int n, uint32_t set, bool value, int *to, int placed)
{
    for (int x = 0; x < n; x++) {
        if ((set >> from[x] & 1u) == value) to[placed++] = from[x];
    }
    return placed;
}

/* Kept axes, then reduced ones; or, if memory runs along a kept axis and one pass is enough, the kept axes that follow
 * the last reduced one come last. */
static void order_axes(sw__kernel *k, bool one_pass)
{
    int sorted[SW_MAX_RANK] = { 0 }, order[SW_MAX_RANK] = { 0 };
    const int fast = fastest_axis(k);
    by_stride(k, reference(k), sorted);
    if (k->reduced == 0) {
        order_pointwise(k, sorted);
        return;
    }
    const bool ends_kept = fast >= 0 ? !(k->reduced >> fast & 1u) : k->skeleton == SW_SKEL_COLUMN;
    uint32_t last = 0; /* kept axes that go last */
    if (one_pass && ends_kept) {
        for (int x = k->rank - 1; x >= 0 && !(k->reduced >> sorted[x] & 1u); x--) last |= 1u << sorted[x];
        const int end = fast >= 0 ? fast : k->rank - 1;
        if (last == 0 && end < SW_MAX_RANK) last = 1u << end;
    }
    int n = take(sorted, k->rank, k->reduced | last, false, order, 0);
    n = take(sorted, k->rank, k->reduced, true, order, n);
    take(sorted, k->rank, last, true, order, n);
    permute(k, order);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static int64_t product(const sw__kernel *k, int first, int end)
{
    int64_t n = 1;
    for (int x = first; x < end; x++) n *= k->extent[x];
    return n;
}

/* The first axis from `from` on that is reduced, or is not. */
static int first_axis(const sw__kernel *k, int from, bool reduced)
{
    int x = from;
    while (x < k->rank - 1 && (k->reduced >> x & 1u) != reduced) x++;
    return x;
}

static void set_groups(sw__tile_program *p)
{
    const sw__kernel *const k = p->kernel;
    const int rank = k->rank;
    p->rank = rank;
    memcpy(p->extent, k->extent, sizeof p->extent);
    if (k->reduced == 0) {
        p->mode = SW__MODE_POINT;
        p->group1 = 0;
        p->group2 = rank - 1;
    } else if (k->reduced >> (rank - 1) & 1u) {
        p->mode = SW__MODE_ROWS;
        p->group1 = 0;
        p->group2 = first_axis(k, 0, true);
    } else {
        p->mode = SW__MODE_COLS;
        p->group1 = first_axis(k, 0, true);
        p->group2 = first_axis(k, p->group1, false);
    }
    p->points0 = product(k, 0, p->group1);
    p->rows = product(k, p->group1, p->group2);
    p->cols = product(k, p->group2, rank);
}

/* ---- tile shape -------------------------------------------------------------------------------------------------- */

/* Of nothing (a = 0) there are no parts, whatever their size. */
static int64_t ceil_div(int64_t a, int64_t b) { return a == 0 ? 0 : (a + b - 1) / b; }

static void whole_rows(sw__tile_program *p, int64_t elements)
{
    p->tile_cols = p->cols;
    p->tile_rows = SW_MAX(1, SW_MIN(elements / SW_MAX(p->cols, 1), p->rows));
}

static void pieces_of_rows(sw__tile_program *p, int64_t elements)
{
    p->tile_cols = elements;
    p->tile_rows = 1;
}

static void shape_point(sw__tile_program *p)
{
    const sw__kernel *const k = p->kernel;
    const bool crosses = p->rank > 1 && crossing_axis(k) == p->rank - 2;
    if (crosses) {
        p->tile_rows = SW_MIN(k->extent[p->rank - 2], WINDOW_ROWS);
        p->tile_cols = SW_MIN(p->cols, WINDOW / p->tile_rows);
        p->window = p->tile_cols < p->cols;
        if (!p->window) whole_rows(p, WINDOW);
    } else if (p->cols <= SW__TILE_PIECE) {
        whole_rows(p, SW__TILE);
    } else {
        pieces_of_rows(p, SW__TILE);
    }
}

static void shape_rows(sw__tile_program *p)
{
    if (p->cols <= SW__TILE_ROW) {
        whole_rows(p, SW__TILE);
        return;
    }
    pieces_of_rows(p, SW__TILE_PIECE);
    p->mode = SW__MODE_LONG;
    if (p->rows >= SPLIT_ROWS || p->cols < SPLIT_COLS) return;
    p->mode = SW__MODE_SPLIT;
    const int64_t parts = SW_MIN(ceil_div(p->cols, PART_ELEMENTS), MAX_ROW_PARTS);
    p->part_cols = SW_MAX(ceil_div(ceil_div(p->cols, parts), p->tile_cols), 1) * p->tile_cols;
    p->parts = ceil_div(p->cols, p->part_cols);
}

static void shape_cols(sw__tile_program *p)
{
    if (p->cols <= SW__TILE_PIECE) whole_rows(p, SW__TILE_PIECE);
    else pieces_of_rows(p, SW__TILE);
    p->pieces = ceil_div(p->cols, p->tile_cols);
    /* Accumulators of short rows stand side by side until they fill whole vectors. */
    p->width = p->tile_cols;
    if (p->pieces == 1) {
        int64_t side = 1;
        while (side * 2 <= p->tile_rows && side * p->cols % 64 != 0) side *= 2;
        p->width = side * p->cols;
    }
    const int64_t others = SW_MAX(p->points0 * p->pieces, 1);
    int64_t parts = SW_MIN(p->rows * p->tile_cols / COLUMN_PART_ELEMENTS, MAX_COLUMN_PARTS / others);
    parts = SW_MAX(parts, 1);
    p->part_rows = SW_MAX(ceil_div(ceil_div(p->rows, parts), p->tile_rows) * p->tile_rows, 1);
    p->parts = SW_MAX(ceil_div(p->rows, p->part_rows), 1);
}

static void set_shape(sw__tile_program *p)
{
    p->parts = 1;
    if (p->mode == SW__MODE_POINT) {
        shape_point(p);
    } else if (p->mode == SW__MODE_ROWS) {
        shape_rows(p);
    } else {
        shape_cols(p);
    }
    p->pieces = SW_MAX(ceil_div(p->cols, SW_MAX(p->tile_cols, 1)), 1);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Rough time of an op on one element of f32, ns; what counts is the order of magnitude. */
static double op_ns(const sw__inst *i)
{
    switch (i->kop) {
    case SW_K_GATHER: case SW_K_RANDOM: return 2.0;
    case SW_K_LOAD: case SW_K_STORE: return i->masked ? 0.5 : 0.2;
    default: break;
    }
    switch (i->op) {
    case SW_OP_MOD: return 10.0;
    case SW_OP_EXP: case SW_OP_LOG: case SW_OP_TANH: case SW_OP_ERF: case SW_OP_SIN: case SW_OP_COS: case SW_OP_ATAN:
    case SW_OP_POW: return i->dtype == SW_F32 ? 1.0 : 15.0;
    case SW_OP_DIV: case SW_OP_SQRT: return 0.5;
    default: return 0.1;
    }
}

static void set_threads(sw__tile_program *p, int threads)
{
    const sw__kernel *const k = p->kernel;
    double ns = 0;
    for (int32_t j = 0; j < k->n_insts; j++) {
        if (k->reduced == 0 || k->inst[j].full || k->inst[j].kop == SW_K_STORE) ns += op_ns(&k->inst[j]);
    }
    ns *= (double)p->points0 * (double)p->rows * (double)p->cols;
    int64_t tasks = ceil_div(p->rows, p->tile_rows) * p->pieces;
    if (p->mode == SW__MODE_LONG) tasks = p->rows;
    if (p->mode == SW__MODE_SPLIT) tasks = p->rows * p->parts;
    if (p->mode == SW__MODE_COLS) tasks = p->points0 * p->pieces * p->parts;
    const double useful = SW_MIN(ns / thread_ns, (double)tasks);
    p->threads = SW_MAX(1, (int)SW_MIN((double)threads, useful));
}

static void cut_mask(const sw__kernel *k, sw__inst *i)
{
    bool cuts = false;
    for (int x = 0; x < k->rank; x++) cuts |= i->lo[x] > 0 || i->hi[x] < k->extent[x];
    i->masked = cuts;
}

/* A value of the row stored at every point of it. */
static bool stores_rows_spread(const sw__kernel *k, const sw__inst *i)
{
    bool spread = false;
    for (int x = 0; x < k->rank && i->kop == SW_K_STORE; x++) spread |= (k->reduced >> x & 1u) && i->stride[x] != 0;
    return spread;
}

sw_status sw__tile_plan(sw__tile_program *p, int threads)
{
    sw__kernel *const k = p->kernel;
    SW_TRY(sw__kernel_analyse(k));
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        if (i->full || stores_rows_spread(k, i)) p->last_full = SW_MAX(p->last_full, i->phase);
        if (is_masked(i)) cut_mask(k, &k->inst[j]);
    }
    p->phases = k->phases;
    if (p->phases > (SW__BLK_MAX - SW__BLK_PHASE) / 2)
        return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s' has %d phases, more than %d", k->name, p->phases,
                        (SW__BLK_MAX - SW__BLK_PHASE) / 2);
    order_axes(k, p->last_full == 0);
    sw__kernel_collapse(k);
    set_groups(p);
    set_shape(p);
    set_threads(p, threads);
    return SW_OK;
}
