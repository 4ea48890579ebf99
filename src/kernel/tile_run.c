/* tile_run.c: runs tile programs: walks the tiles, splits the walk over threads, combines partial results in fixed
 * order. Called by backend/cpu at every step; allocates nothing. */
#include "kernel/tile_build.h"

#include <omp.h>

/* Tiles whose sums stay narrow before they are added to wide ones. */
enum { FLUSH_TILES = 64 };

typedef struct launch {
    const sw__tile_program *p;
    void *const *buffers;
    unsigned char *once, *threads, *rows, *partial;
    uint32_t denied;
    int64_t bad_value, bad_extent, bad_at;
} launch;

/* One of the `count` threads that the system has given, which may be fewer than asked for. */
typedef struct worker { int64_t me, count; } worker;
typedef void (*part_fn)(launch *l, worker w, int phase);
typedef struct range { int64_t first, end; } range;

static range share(worker w, int64_t n)
{
    return (range){ n * w.me / w.count, n * (w.me + 1) / w.count };
}

static void parallel(launch *l, part_fn fn, int phase)
{
    if (l->p->threads == 1) {
        fn(l, (worker){ 0, 1 }, phase);
        return;
    }
#pragma omp parallel num_threads(l->p->threads)
    fn(l, (worker){ omp_get_thread_num(), omp_get_num_threads() }, phase);
}

/* ---- a thread ---------------------------------------------------------------------------------------------------- */

static void thread_start(const launch *l, sw__tctx *t, int64_t me)
{
    const sw__tile_program *const p = l->p;
    unsigned char *at = l->threads + (size_t)me * p->thread_bytes;
    *t = (sw__tctx){ .p = p, .buffers = l->buffers, .bad_at = -1, .denied = l->denied, .me = me };
    t->slot = (void **)(void *)at;
    at += p->slots_bytes;
    t->acc = (sw__wide *)(void *)at;
    at += p->acc_bytes;
    unsigned char *const area[SW__AREAS] = { [SW__AREA_NONE] = NULL, [SW__AREA_CONST] = p->constants,
                                             [SW__AREA_ONCE] = l->once, [SW__AREA_ROW] = at,
                                             [SW__AREA_THREAD] = at + p->area_bytes[SW__AREA_ROW] };
    t->thread_area = area[SW__AREA_THREAD];
    for (size_t j = 0; j < p->n_slots; j++) {
        unsigned char *const base = area[p->slot[j].area];
        t->slot[j] = base ? base + p->slot[j].offset : NULL;
    }
    t->len[SW__LEN_ONE] = 1;
}

/* Keeps the first index out of range of all threads. */
static void thread_end(launch *l, const sw__tctx *t)
{
    if (t->bad_at < 0) return;
#pragma omp critical(sw_tile_bad)
    if (l->bad_at < 0 || t->bad_at < l->bad_at) {
        l->bad_at = t->bad_at;
        l->bad_value = t->bad_value;
        l->bad_extent = t->bad_extent;
    }
}

static void set_size(sw__tctx *t, int64_t rows, int64_t cols)
{
    t->rows = rows;
    t->cols = cols;
    t->len[SW__LEN_ROWS] = (size_t)rows;
    t->len[SW__LEN_TILE] = (size_t)(rows * cols);
    t->len[SW__LEN_COLS] = (size_t)cols;
}

static void seek(sw__tctx *t, int first, int end, int64_t index)
{
    const int64_t *const extent = t->p->extent;
    for (int x = end - 1; x > first; x--) {
        const int64_t rest = extent[x] > 0 ? index / extent[x] : 0; /* a reduction over nothing */
        t->coord[x] = index - rest * extent[x];
        index = rest;
    }
    if (end > first) t->coord[first] = index;
}

static void seek_row(sw__tctx *t, int64_t row)
{
    t->row = row;
    seek(t, t->p->group1, t->p->group2, row);
}

static void seek_col(sw__tctx *t, int64_t col)
{
    t->col = col;
    seek(t, t->p->group2, t->p->rank, col);
}

static inline void execute(sw__tctx *t, int block)
{
    const sw__block *const b = &t->p->block[block];
    for (const sw__tinst *i = b->inst, *const end = i + b->n; i < end; i++) i->fn(i, t, t->len[i->len]);
}

/* What all rows share. */
static void execute_columns(sw__tctx *t, int64_t col, int64_t cols)
{
    if (t->p->block[SW__BLK_COLS].n == 0) return;
    set_size(t, t->p->tile_rows, cols);
    seek_row(t, 0);
    seek_col(t, col);
    execute(t, SW__BLK_COLS);
}

/* ---- pointwise, and rows that fit a tile ------------------------------------------------------------------------- */

static void run_tiles_part(launch *l, worker w, int phase)
{
    const sw__tile_program *const p = l->p;
    sw__tctx t;
    (void)phase;
    thread_start(l, &t, w.me);
    const int64_t down = (p->rows + p->tile_rows - 1) / p->tile_rows;
    const range r = share(w, down * p->pieces);
    int64_t last_row = -1, last_piece = -1;
    if (!p->piece_major) execute_columns(&t, 0, p->tile_cols);
    for (int64_t tile = r.first; tile < r.end; tile++) {
        const int64_t piece = p->piece_major ? tile / down : tile % p->pieces;
        const int64_t row_tile = p->piece_major ? tile % down : tile / p->pieces;
        const int64_t row = row_tile * p->tile_rows, col = piece * p->tile_cols;
        const int64_t cols = SW_MIN(p->tile_cols, p->cols - col);
        if (p->piece_major && piece != last_piece) execute_columns(&t, col, cols);
        set_size(&t, SW_MIN(p->tile_rows, p->rows - row), cols);
        seek_row(&t, row);
        if (row != last_row || piece != last_piece) {
            seek_col(&t, 0);
            if (row != last_row || p->piece_major) execute(&t, sw__row_block(0));
        }
        seek_col(&t, col);
        execute(&t, sw__tile_block(0));
        last_row = row;
        last_piece = piece;
    }
    thread_end(l, &t);
}

static void run_tiles(launch *l)
{
    parallel(l, run_tiles_part, 0);
}

/* ---- long rows --------------------------------------------------------------------------------------------------- */

static void reductions_begin(sw__tctx *t, int phase)
{
    const sw__tile_program *const p = t->p;
    for (size_t r = 0; r < p->n_reductions; r++) {
        const sw__reduction *const x = &p->reduction[r];
        if (x->phase == phase) p->reduce->identity[x->op][x->dtype](&t->acc[r], 1);
    }
}

static void reductions_end(sw__tctx *t, int phase, const sw__wide *acc)
{
    const sw__tile_program *const p = t->p;
    for (size_t r = 0; r < p->n_reductions; r++) {
        const sw__reduction *const x = &p->reduction[r];
        if (x->phase == phase) p->reduce->narrow[x->dtype](t->slot[x->d], &acc[r], 1);
    }
}

static void row_block(sw__tctx *t, int phase)
{
    set_size(t, 1, t->p->tile_cols);
    seek_col(t, 0);
    execute(t, sw__row_block(phase));
}

static void row_tiles(sw__tctx *t, int phase, int64_t first, int64_t end)
{
    for (int64_t col = first; col < end; col += t->p->tile_cols) {
        set_size(t, 1, SW_MIN(t->p->tile_cols, end - col));
        seek_col(t, col);
        execute(t, sw__tile_block(phase));
    }
}

static void run_long_part(launch *l, worker w, int phase0)
{
    const sw__tile_program *const p = l->p;
    sw__tctx t;
    (void)phase0;
    thread_start(l, &t, w.me);
    execute_columns(&t, 0, p->tile_cols);
    const range r = share(w, p->rows);
    for (int64_t row = r.first; row < r.end; row++) {
        seek_row(&t, row);
        for (int phase = 0; phase < p->phases; phase++) {
            row_block(&t, phase);
            if (phase > p->last_full) continue;
            reductions_begin(&t, phase);
            row_tiles(&t, phase, 0, p->cols);
            reductions_end(&t, phase, t.acc);
        }
    }
    thread_end(l, &t);
}

static void run_long(launch *l)
{
    parallel(l, run_long_part, 0);
}

/* ---- few and very long rows: in parts ---------------------------------------------------------------------------- */

/* The row's own values are where all threads see them. */
static void share_row(const launch *l, sw__tctx *t, int64_t row)
{
    const sw__tile_program *const p = l->p;
    unsigned char *const area = l->rows + (size_t)row * p->area_bytes[SW__AREA_ROW];
    for (size_t j = 0; j < p->n_slots; j++) {
        if (p->slot[j].area == SW__AREA_ROW) t->slot[j] = area + p->slot[j].offset;
    }
    seek_row(t, row);
}

static sw__wide *partial_of(const launch *l, int64_t row, int64_t part)
{
    return (sw__wide *)(void *)l->partial + (size_t)(row * l->p->parts + part) * l->p->n_reductions;
}

static void run_split_part(launch *l, worker w, int phase)
{
    const sw__tile_program *const p = l->p;
    sw__tctx t;
    thread_start(l, &t, w.me);
    execute_columns(&t, 0, p->tile_cols);
    const range r = share(w, p->rows * p->parts);
    for (int64_t task = r.first; task < r.end; task++) {
        const int64_t row = task / p->parts, part = task % p->parts, first = part * p->part_cols;
        share_row(l, &t, row);
        t.acc = partial_of(l, row, part);
        reductions_begin(&t, phase);
        row_tiles(&t, phase, first, SW_MIN(first + p->part_cols, p->cols));
    }
    thread_end(l, &t);
}

static void merge_parts(const launch *l, sw__tctx *t, int64_t row, int phase)
{
    const sw__tile_program *const p = l->p;
    sw__wide *const acc = partial_of(l, row, 0);
    for (int64_t part = 1; part < p->parts; part++) {
        const sw__wide *const more = partial_of(l, row, part);
        for (size_t r = 0; r < p->n_reductions; r++) {
            const sw__reduction *const x = &p->reduction[r];
            if (x->phase == phase) p->reduce->merge[x->op][x->dtype](&acc[r], &more[r], 1);
        }
    }
    reductions_end(t, phase, acc);
}

static void run_split(launch *l)
{
    const sw__tile_program *const p = l->p;
    for (int phase = 0; phase < p->phases; phase++) {
        sw__tctx t;
        thread_start(l, &t, 0);
        for (int64_t row = 0; row < p->rows; row++) {
            share_row(l, &t, row);
            row_block(&t, phase);
        }
        thread_end(l, &t);
        if (phase > p->last_full) continue;
        parallel(l, run_split_part, phase);
        thread_start(l, &t, 0);
        for (int64_t row = 0; row < p->rows; row++) {
            share_row(l, &t, row);
            merge_parts(l, &t, row, phase);
        }
    }
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* Sums of reduction r for the columns from `col` on, of one part. */
static sw__wide *column_partial(const launch *l, const sw__tctx *t, int64_t point, int64_t part, size_t r, int64_t col)
{
    const sw__tile_program *const p = l->p;
    sw__wide *const base = (sw__wide *)(void *)l->partial;
    if (p->parts == 1) return base + ((size_t)t->me * p->n_reductions + r) * (size_t)p->tile_cols;
    return base + (((size_t)(point * p->parts + part)) * p->n_reductions + r) * (size_t)p->cols + (size_t)col;
}

static void column_post(const launch *l, sw__tctx *t, int64_t point, int64_t col, int64_t cols)
{
    const sw__tile_program *const p = l->p;
    set_size(t, 1, cols);
    seek(t, 0, p->group1, point);
    seek_row(t, 0);
    seek_col(t, col);
    for (size_t r = 0; r < p->n_reductions; r++) {
        const sw__reduction *const x = &p->reduction[r];
        p->reduce->narrow[x->dtype](t->slot[x->d], column_partial(l, t, point, 0, r, col), (size_t)cols);
    }
    execute(t, SW__BLK_POST);
}

static void column_flush(const launch *l, sw__tctx *t, int64_t point, int64_t part, int64_t col, int64_t cols)
{
    const sw__tile_program *const p = l->p;
    const size_t groups = p->pieces == 1 && cols > 0 ? (size_t)(p->width / cols) : 1;
    for (size_t r = 0; r < p->n_reductions; r++) {
        const sw__reduction *const x = &p->reduction[r];
        p->reduce->flush[x->op][x->dtype](column_partial(l, t, point, part, r, col), t->thread_area + x->narrow_at,
                                          (size_t)cols, groups);
    }
}

static void column_task(const launch *l, sw__tctx *t, int64_t point, int64_t piece, int64_t part)
{
    const sw__tile_program *const p = l->p;
    const int64_t col = piece * p->tile_cols, cols = SW_MIN(p->tile_cols, p->cols - col);
    const int64_t first = part * p->part_rows, end = SW_MIN(first + p->part_rows, p->rows);
    int tiles = 0;
    seek(t, 0, p->group1, point);
    execute_columns(t, col, cols);
    for (size_t r = 0; r < p->n_reductions; r++) {
        const sw__reduction *const x = &p->reduction[r];
        p->reduce->identity_narrow[x->op][x->dtype](t->thread_area + x->narrow_at, (size_t)p->width);
        p->reduce->identity[x->op][x->dtype](column_partial(l, t, point, part, r, col), (size_t)cols);
    }
    seek_col(t, col);
    for (int64_t row = first; row < end; row += p->tile_rows) {
        set_size(t, SW_MIN(p->tile_rows, end - row), cols);
        seek_row(t, row);
        execute(t, sw__tile_block(0));
        if (++tiles % FLUSH_TILES == 0) column_flush(l, t, point, part, col, cols);
    }
    column_flush(l, t, point, part, col, cols);
    if (p->parts == 1) column_post(l, t, point, col, cols);
}

static void run_cols_part(launch *l, worker w, int phase)
{
    const sw__tile_program *const p = l->p;
    sw__tctx t;
    (void)phase;
    thread_start(l, &t, w.me);
    const range r = share(w, p->points0 * p->pieces * p->parts);
    for (int64_t task = r.first; task < r.end; task++) {
        const int64_t rest = task / p->parts;
        column_task(l, &t, rest / p->pieces, rest % p->pieces, task % p->parts);
    }
    thread_end(l, &t);
}

/* Parts were made: adds them up in order and goes on from the sums. */
static void combine_cols(launch *l)
{
    const sw__tile_program *const p = l->p;
    sw__tctx t;
    thread_start(l, &t, 0);
    for (int64_t point = 0; point < p->points0; point++) {
        for (size_t r = 0; r < p->n_reductions; r++) {
            const sw__reduction *const x = &p->reduction[r];
            for (int64_t part = 1; part < p->parts; part++)
                p->reduce->merge[x->op][x->dtype](column_partial(l, &t, point, 0, r, 0),
                                                  column_partial(l, &t, point, part, r, 0), (size_t)p->cols);
        }
        for (int64_t col = 0; col < p->cols; col += p->tile_cols)
            column_post(l, &t, point, col, SW_MIN(p->tile_cols, p->cols - col));
    }
    thread_end(l, &t);
}

static void run_cols(launch *l)
{
    parallel(l, run_cols_part, 0);
    if (l->p->parts > 1) combine_cols(l);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static bool overlap(const sw__tile_program *p, void *const *buffers, int32_t a, int32_t b)
{
    const uintptr_t at_a = (uintptr_t)buffers[a], at_b = (uintptr_t)buffers[b];
    const uintptr_t lo_a = at_a + (uintptr_t)p->span_lo[a], hi_a = at_a + (uintptr_t)p->span_hi[a];
    const uintptr_t lo_b = at_b + (uintptr_t)p->span_lo[b], hi_b = at_b + (uintptr_t)p->span_hi[b];
    return lo_a < hi_b && lo_b < hi_a;
}

/* Buffers that share memory with something that is read after the direct store: they go through a register. */
static uint32_t find_denied(const sw__tile_program *p, void *const *buffers)
{
    uint32_t denied = 0;
    for (int block = SW__BLK_PHASE; block < SW__BLK_MAX; block++) {
        for (size_t j = 0; j < p->block[block].n; j++) {
            const sw__tinst *const i = &p->block[block].inst[j];
            if (i->fn != sw__tile_bind_store) break; /* they come first */
            for (int32_t b = 0; b < p->kernel->n_buffers; b++) {
                if ((i->access->conflicts >> b & 1u) && overlap(p, buffers, i->access->buffer, b))
                    denied |= 1u << i->access->buffer;
            }
        }
    }
    return denied;
}

static void run_once(launch *l)
{
    sw__tctx t;
    if (l->p->block[SW__BLK_ONCE].n == 0) return;
    thread_start(l, &t, 0);
    set_size(&t, 1, 1);
    execute(&t, SW__BLK_ONCE);
    thread_end(l, &t);
}

sw_status sw__tile_run(const sw__tile_program *p, void *const *buffers, void *workspace)
{
    static void (*const run[])(launch *) = {
        [SW__MODE_POINT] = run_tiles, [SW__MODE_ROWS] = run_tiles, [SW__MODE_LONG] = run_long,
        [SW__MODE_SPLIT] = run_split, [SW__MODE_COLS] = run_cols,
    };
    if (p->choice[0]) {
        /* An empty domain binds no memory to look at. */
        const uint8_t *const at = buffers[p->choice_buffer];
        return sw__tile_run(p->choice[at && at[p->choice_offset]], buffers, workspace);
    }
    const bool nothing = p->mode == SW__MODE_POINT ? p->rows * p->cols == 0
                       : p->mode == SW__MODE_COLS  ? p->points0 * p->cols == 0 : p->rows == 0;
    if (nothing) return SW_OK;
    unsigned char *const base = (unsigned char *)workspace + (64 - (uintptr_t)workspace % 64) % 64;
    launch l = { .p = p, .buffers = buffers, .once = base, .bad_at = -1 };
    l.threads = base + p->area_bytes[SW__AREA_ONCE];
    l.rows = l.threads + (size_t)p->threads * p->thread_bytes;
    const size_t rows = p->mode == SW__MODE_SPLIT ? (size_t)p->rows * p->area_bytes[SW__AREA_ROW] : 0;
    l.partial = l.rows + rows;
    l.denied = find_denied(p, buffers);
    run_once(&l);
    run[p->mode](&l);
    if (l.bad_at < 0) return SW_OK;
    return sw__fail(SW_ERR_DATA, "index %lld at position %lld is outside 0 to %lld",
                    (long long)l.bad_value, (long long)l.bad_at, (long long)l.bad_extent - 1);
}
