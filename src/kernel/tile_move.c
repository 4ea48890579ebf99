/* tile_move.c: loads, gathers and stores of the tile interpreter: cuts the range of a tile into blocks that memory
 * holds at constant strides, looks at masks, leaves the blocks to vector code. Called through bytecode (tile_int.h). */
#include "kernel/tile_int.h"

/* A walk over a dense range of the flattened axes [first, end), block by block: part of a run of the last axis, or
 * several whole runs. In a window, a tile of pieces of several rows, a run is a piece. */
typedef struct cursor {
    const sw__access *a;
    int64_t extent[SW_MAX_RANK];
    int64_t coord[SW_MAX_RANK];
    int64_t run_first, run_end; /* coordinates of a whole run on the last axis */
    int64_t at;         /* element offset of the block */
    size_t left;        /* points from here to the end */
    size_t rows, cols;  /* of the block; 0 before the first */
    int last, mid;      /* axes along a row and down the rows; -1: none */
} cursor;

static cursor cursor_new(const sw__access *a, const sw__tctx *t, size_t n)
{
    cursor c; /* set field by field: clearing it first would cost more than all the rest */
    c.a = a;
    c.at = a->offset;
    c.left = n;
    c.rows = c.cols = 0;
    c.last = a->end > a->first ? a->end - 1 : -1;
    c.mid = a->end - 1 > a->first ? a->end - 2 : -1;
    for (int x = 0; x < t->p->rank; x++) {
        c.extent[x] = t->p->extent[x];
        c.coord[x] = t->coord[x];
        c.at += t->coord[x] * a->stride[x];
    }
    const bool window = t->p->window && a->end == t->p->rank;
    c.run_first = window ? t->col : 0;
    c.run_end = window ? t->col + t->cols : c.last >= 0 ? c.extent[c.last] : 0;
    return c;
}

static void cursor_step(cursor *c, int axis, int64_t by)
{
    c->coord[axis] += by;
    c->at += by * c->a->stride[axis];
    while (c->coord[axis] == (axis == c->last ? c->run_end : c->extent[axis]) && axis > c->a->first) {
        const int64_t back = axis == c->last ? c->run_first : 0;
        c->at -= (c->coord[axis] - back) * c->a->stride[axis];
        c->coord[axis--] = back;
        c->coord[axis]++;
        c->at += c->a->stride[axis];
    }
}

/* The next block; false at the end. */
static bool cursor_next(cursor *c)
{
    if (c->rows > 0) {
        c->left -= c->rows * c->cols;
        if (c->left == 0) return false;
        if (c->rows > 1) cursor_step(c, c->mid, (int64_t)c->rows);
        else cursor_step(c, c->last, (int64_t)c->cols);
    } else if (c->left == 0) {
        return false;
    }
    c->rows = c->cols = 1;
    if (c->last < 0) return true;
    const size_t run = (size_t)(c->run_end - c->coord[c->last]);
    c->cols = SW_MIN(c->left, run);
    if (c->mid >= 0 && c->coord[c->last] == c->run_first && c->left > run)
        c->rows = SW_MIN(c->left / run, (size_t)(c->extent[c->mid] - c->coord[c->mid]));
    return true;
}

static int64_t row_stride(const cursor *c) { return c->mid >= 0 ? c->a->stride[c->mid] : 0; }
static int64_t col_stride(const cursor *c) { return c->last >= 0 ? c->a->stride[c->last] : 0; }

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* The part [lo, hi) of `n` points from coordinate `from` on that the mask lets through along an axis. */
static void visible(const sw__access *a, int axis, int64_t from, size_t n, size_t *lo, size_t *hi)
{
    const int64_t count = (int64_t)n;
    const int64_t first = SW_MIN(SW_MAX(a->lo[axis] - from, 0), count), end = SW_MIN(a->hi[axis] - from, count);
    *lo = (size_t)first;
    *hi = (size_t)SW_MAX(end, first);
}

/* The rectangle of the block that the mask lets through; empty: rows r0 == r1. */
static void rectangle(const cursor *c, int rank, size_t *r0, size_t *r1, size_t *c0, size_t *c1)
{
    const sw__access *const a = c->a;
    *r0 = *c0 = 0;
    *r1 = c->rows;
    *c1 = c->cols;
    if (!a->masked) return;
    for (int x = 0; x < rank; x++) {
        if (x == c->last || x == c->mid) continue;
        if (c->coord[x] < a->lo[x] || c->coord[x] >= a->hi[x]) *r1 = 0;
    }
    if (*r1 == 0) return;
    if (c->mid >= 0) visible(a, c->mid, c->coord[c->mid], c->rows, r0, r1);
    if (c->last >= 0) visible(a, c->last, c->coord[c->last], c->cols, c0, c1);
    if (*c0 == *c1) *r1 = *r0;
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

static unsigned char *load_block(const cursor *c, const sw__tctx *t, unsigned char *d)
{
    const sw__access *const a = c->a;
    const size_t line = c->cols * a->reg_size;
    if (a->iota) {
        a->iota(d, c->at, c->rows, c->cols, row_stride(c), col_stride(c));
        return d + c->rows * line;
    }
    size_t r0, r1, c0, c1;
    rectangle(c, t->p->rank, &r0, &r1, &c0, &c1);
    if (r0 > 0) a->fill(d, &a->value, r0 * c->cols);
    if (r1 > r0) {
        const unsigned char *s = (const unsigned char *)t->buffers[a->buffer] +
            (c->at + (int64_t)r0 * row_stride(c) + (int64_t)c0 * col_stride(c)) * (int64_t)a->size;
        if (c1 - c0 == c->cols) {
            a->move(d + r0 * line, s, r1 - r0, c->cols, row_stride(c), col_stride(c));
        } else {
            for (size_t r = r0; r < r1; r++, s += row_stride(c) * (int64_t)a->size) {
                unsigned char *const row = d + r * line;
                if (c0 > 0) a->fill(row, &a->value, c0);
                a->move(row + c0 * a->reg_size, s, 1, c1 - c0, 0, col_stride(c));
                if (c1 < c->cols) a->fill(row + c1 * a->reg_size, &a->value, c->cols - c1);
            }
        }
    }
    if (r1 < c->rows) a->fill(d + r1 * line, &a->value, (c->rows - r1) * c->cols);
    return d + c->rows * line;
}

void sw__tile_load(const sw__tinst *i, sw__tctx *t, size_t n)
{
    unsigned char *d = t->slot[i->d];
    for (cursor c = cursor_new(i->access, t, n); cursor_next(&c);) d = load_block(&c, t, d);
}

static unsigned char *address(const sw__access *a, const sw__tctx *t)
{
    int64_t at = a->offset;
    for (int x = 0; x < t->p->rank; x++) at += t->coord[x] * a->stride[x];
    return (unsigned char *)t->buffers[a->buffer] + at * (int64_t)a->size;
}

void sw__tile_bind(const sw__tinst *i, sw__tctx *t, size_t n)
{
    (void)n;
    t->slot[i->d] = address(i->access, t);
}

/* ---- gathers ----------------------------------------------------------------------------------------------------- */

/* True if every index is inside. Otherwise remembers the first that is not, of all that this thread has met. */
static bool inside(sw__tctx *t, const sw__access *a, const int64_t *index, size_t n, size_t place)
{
    int bad = 0;
    for (size_t k = 0; k < n; k++) bad |= (uint64_t)index[k] >= (uint64_t)a->extent_x;
    if (!bad) return true;
    size_t k = 0;
    while ((uint64_t)index[k] < (uint64_t)a->extent_x) k++;
    const int64_t at = t->row * t->p->cols + t->col + (int64_t)(place + k);
    if (t->bad_at < 0 || at < t->bad_at) {
        t->bad_at = at;
        t->bad_value = index[k];
        t->bad_extent = a->extent_x;
    }
    return false;
}

/* A run of n points whose first is at element `at`; index: one each, or one for all. */
static void gather_run(sw__tctx *t, const sw__access *a, int64_t at, unsigned char *d, const int64_t *index, size_t n,
                       int64_t stride, size_t place)
{
    if (!inside(t, a, index, a->rowwise ? 1 : n, place)) {
        memset(d, 0, n * a->reg_size); /* the run ends with an error; until then nothing undefined */
        return;
    }
    if (a->rowwise) at += index[0] * a->stride_x;
    const unsigned char *const s = (const unsigned char *)t->buffers[a->buffer] + at * (int64_t)a->size;
    if (a->rowwise) a->move(d, s, 1, n, 0, stride);
    else a->gather(d, s, index, n, stride, a->stride_x);
}

static void gather_block(const cursor *c, sw__tctx *t, unsigned char *d, const int64_t *index, size_t place)
{
    const sw__access *const a = c->a;
    size_t r0, r1, c0, c1;
    rectangle(c, t->p->rank, &r0, &r1, &c0, &c1);
    if (a->masked) a->fill(d, &a->value, c->rows * c->cols);
    for (size_t r = r0; r < r1; r++) {
        const size_t k = r * c->cols + c0;
        const int64_t at = c->at + (int64_t)r * row_stride(c) + (int64_t)c0 * col_stride(c);
        gather_run(t, a, at, d + k * a->reg_size, a->rowwise ? index : index + k, c1 - c0, col_stride(c), place + k);
    }
}

void sw__tile_gather(const sw__tinst *i, sw__tctx *t, size_t n)
{
    const sw__access *const a = i->access;
    unsigned char *const d = t->slot[i->d];
    const int64_t *const index = t->slot[i->a];
    if (!a->rowwise) {
        size_t done = 0;
        for (cursor c = cursor_new(a, t, n); cursor_next(&c); done += c.rows * c.cols)
            gather_block(&c, t, d + done * a->reg_size, index + done, done);
        return;
    }
    const size_t cols = (size_t)t->cols;
    cursor row = cursor_new(a, t, n);
    for (int64_t r = 0; r < t->rows; r++) {
        size_t done = (size_t)r * cols;
        cursor c = row;
        for (c.left = cols; cursor_next(&c); done += c.rows * c.cols)
            gather_block(&c, t, d + done * a->reg_size, index + r, done);
        if (r + 1 < t->rows) cursor_step(&row, t->p->group2 - 1, 1);
    }
}

/* ---- stores ------------------------------------------------------------------------------------------------------ */

void sw__tile_store(const sw__tinst *i, sw__tctx *t, size_t n)
{
    const sw__access *const a = i->access;
    const unsigned char *s = t->slot[i->a];
    for (cursor c = cursor_new(a, t, n); cursor_next(&c); s += c.rows * c.cols * a->reg_size) {
        unsigned char *const d = (unsigned char *)t->buffers[a->buffer] + c.at * (int64_t)a->size;
        a->move(d, s, c.rows, c.cols, row_stride(&c), col_stride(&c));
    }
}

void sw__tile_bind_store(const sw__tinst *i, sw__tctx *t, size_t n)
{
    (void)n;
    if (!(t->denied >> i->access->buffer & 1u)) t->slot[i->d] = address(i->access, t);
}

void sw__tile_store_direct(const sw__tinst *i, sw__tctx *t, size_t n)
{
    if (t->denied >> i->access->buffer & 1u) sw__tile_store(i, t, n);
}
