/* tile_slots.c: gives the slots of a tile program their memory: registers by linear scan within a block, what lives
 * longer for good; finds which direct stores could spoil what is still to be read; lays out the workspace.
 * Last step of compiling (tile_build.h). */
#include "kernel/tile_build.h"

enum { ALIGN = 64 };

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

typedef struct life {
    int block;         /* -1: nowhere yet */
    size_t def, last;  /* positions in the block */
    bool pinned;       /* read in another block, or written by the runner */
    int32_t buffer;    /* bound by a load: its buffer; -1 */
} life;

typedef struct chunk { size_t bytes, offset; } chunk;

typedef struct scan {
    sw__tile_program *p;
    life *life;
    chunk *free;      /* registers that nobody uses */
    size_t n_free, end;
} scan;

typedef struct slots_of { uint16_t read[16], write[4]; int n_read, n_write; } slots_of;

static void add_slot(uint16_t *list, int *n, uint16_t slot)
{
    if (slot == 0) return;
    for (int j = 0; j < *n; j++) {
        if (list[j] == slot) return;
    }
    list[(*n)++] = slot;
}

/* What an instruction reads and writes, each slot once. */
static slots_of slots(const sw__tinst *i)
{
    slots_of s = { .n_read = 0 };
    const uint16_t used[4] = { i->a, i->b, i->c, i->e };
    for (int u = 0; u < 4; u++) add_slot(s.read, &s.n_read, used[u]);
    for (int m = i->n_out; m < i->n_more; m++) add_slot(s.read, &s.n_read, i->more[m]);
    add_slot(s.write, &s.n_write, i->d);
    for (int m = 0; m < i->n_out; m++) add_slot(s.write, &s.n_write, i->more[m]);
    return s;
}

static void touch(life *l, int block, size_t at)
{
    if (l->block < 0) {
        *l = (life){ .block = block, .def = at, .last = at, .buffer = l->buffer, .pinned = l->pinned };
        return;
    }
    if (l->block != block) l->pinned = true;
    else if (at > l->last) l->last = at;
}

static void find_lives(scan *s)
{
    sw__tile_program *const p = s->p;
    for (size_t j = 0; j < p->n_slots; j++) s->life[j] = (life){ .block = -1, .buffer = -1 };
    if (p->mode != SW__MODE_ROWS) {
        for (size_t r = 0; r < p->n_reductions; r++) s->life[p->reduction[r].d].pinned = true;
    }
    for (int block = 0; block < SW__BLK_MAX; block++) {
        for (size_t at = 0; at < p->block[block].n; at++) {
            const sw__tinst *const i = &p->block[block].inst[at];
            const slots_of x = slots(i);
            for (int u = 0; u < x.n_read; u++) touch(&s->life[x.read[u]], block, at);
            for (int u = 0; u < x.n_write; u++) touch(&s->life[x.write[u]], block, at);
            if (i->fn == sw__tile_bind) s->life[i->d].buffer = i->access->buffer;
        }
    }
}

/* ---- direct stores ----------------------------------------------------------------------------------------------- */

/* Buffers that block code reads after position `from`. */
static uint32_t reads_after(const scan *s, const sw__block *code, size_t from)
{
    uint32_t buffers = 0;
    for (size_t at = from + 1; at < code->n; at++) {
        const sw__tinst *const i = &code->inst[at];
        const slots_of x = slots(i);
        for (int u = 0; u < x.n_read; u++) {
            const int32_t buffer = s->life[x.read[u]].buffer;
            if (buffer >= 0) buffers |= 1u << buffer;
        }
        const bool reads = (i->fn == sw__tile_load && !i->access->iota) || i->fn == sw__tile_gather;
        if (reads) buffers |= 1u << i->access->buffer;
    }
    return buffers;
}

static bool writes(const sw__tinst *i, uint16_t slot)
{
    const slots_of x = slots(i);
    for (int u = 0; u < x.n_write; u++) {
        if (x.write[u] == slot) return true;
    }
    return false;
}

static void find_conflicts(scan *s)
{
    for (int block = SW__BLK_PHASE; block < SW__BLK_MAX; block++) {
        const sw__block *const code = &s->p->block[block];
        for (size_t at = 0; at < code->n; at++) {
            const sw__tinst *const i = &code->inst[at];
            if (i->fn != sw__tile_bind_store) continue;
            size_t def = at + 1;
            while (def < code->n && !writes(&code->inst[def], i->d)) def++;
            sw__access *const a = (sw__access *)(uintptr_t)i->access; /* of this program's arena */
            a->conflicts = reads_after(s, code, def);
            if (a->conflicts == 0) s->p->slot[i->d].area = SW__AREA_NONE;
        }
    }
}

/* ---- registers --------------------------------------------------------------------------------------------------- */

static size_t slot_bytes(const sw__tile_program *p, const sw__slot *s)
{
    const int64_t n[SW__LENS] = { [SW__LEN_ONE] = 1, [SW__LEN_ROWS] = p->tile_rows,
                                  [SW__LEN_TILE] = p->tile_rows * p->tile_cols, [SW__LEN_COLS] = p->tile_cols };
    /* A line more than needed: registers a multiple of 4 KB apart would make loads wait for unrelated stores. */
    return aligned((size_t)n[s->len] * s->size) + ALIGN;
}

static void release(scan *s, uint16_t slot)
{
    s->free[s->n_free++] = (chunk){ slot_bytes(s->p, &s->p->slot[slot]), s->p->slot[slot].offset };
}

static void allocate(scan *s, uint16_t slot)
{
    sw__slot *const x = &s->p->slot[slot];
    const size_t bytes = slot_bytes(s->p, x);
    for (size_t f = s->n_free; f-- > 0;) {
        if (s->free[f].bytes != bytes) continue;
        x->offset = s->free[f].offset;
        s->free[f] = s->free[--s->n_free];
        return;
    }
    x->offset = s->end;
    s->end += bytes;
}

static bool is_register(const scan *s, uint16_t slot)
{
    return slot != 0 && s->p->slot[slot].area == SW__AREA_THREAD && !s->life[slot].pinned;
}

static bool is_alike(const scan *s, uint16_t x, const slots_of *i)
{
    const sw__slot *const slot = s->p->slot;
    for (int u = 0; u < i->n_write; u++) {
        if (slot[x].size == slot[i->write[u]].size && slot[x].len == slot[i->write[u]].len) return true;
    }
    return false;
}

/* The register of an operand that dies here may take a result if both are alike; otherwise it is free afterwards. */
static void scan_inst(scan *s, const sw__tinst *i, size_t at)
{
    const slots_of x = slots(i);
    for (int pass = 0; pass < 2; pass++) {
        for (int u = 0; u < x.n_read; u++) {
            const uint16_t slot = x.read[u];
            if (!is_register(s, slot) || s->life[slot].last != at || writes(i, slot)) continue;
            if (is_alike(s, slot, &x) == (pass == 0)) release(s, slot);
        }
        for (int u = 0; u < x.n_write && pass == 0; u++) {
            if (is_register(s, x.write[u]) && s->life[x.write[u]].def == at) allocate(s, x.write[u]);
        }
    }
    for (int u = 0; u < x.n_write; u++) {
        if (is_register(s, x.write[u]) && s->life[x.write[u]].last == at) release(s, x.write[u]);
    }
}

static void assign(scan *s)
{
    sw__tile_program *const p = s->p;
    for (size_t j = 1; j < p->n_slots; j++) {
        sw__slot *const x = &p->slot[j];
        if (x->area == SW__AREA_THREAD && s->life[j].pinned) {
            x->offset = s->end;
            s->end += slot_bytes(p, x);
        } else if (x->area == SW__AREA_ONCE || x->area == SW__AREA_ROW) {
            x->offset = p->area_bytes[x->area];
            p->area_bytes[x->area] += 8;
        }
    }
    const size_t pinned_end = s->end;
    size_t most = s->end;
    for (int block = 0; block < SW__BLK_MAX; block++) {
        s->n_free = 0;
        s->end = pinned_end;
        for (size_t at = 0; at < p->block[block].n; at++) scan_inst(s, &p->block[block].inst[at], at);
        most = SW_MAX(most, s->end);
    }
    p->area_bytes[SW__AREA_THREAD] = most;
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

static void find_spans(sw__tile_program *p)
{
    const sw__kernel *const k = p->kernel;
    bool seen[SW_K_MAX_BUFFERS] = { false };
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        if (i->kop != SW_K_LOAD && i->kop != SW_K_GATHER && i->kop != SW_K_STORE) continue;
        int64_t lo = i->offset, hi = lo;
        for (int x = 0; x < k->rank; x++) {
            const int64_t reach = i->stride[x] * SW_MAX(k->extent[x] - 1, 0);
            *(reach < 0 ? &lo : &hi) += reach;
        }
        if (i->kop == SW_K_GATHER) {
            const int64_t reach = i->stride_x * SW_MAX(i->extent_x - 1, 0);
            *(reach < 0 ? &lo : &hi) += reach;
        }
        const int32_t b = i->buffer;
        const int64_t size = (int64_t)sw_dtype_size((sw_dtype)k->buffer[b].dtype);
        p->span_lo[b] = seen[b] ? SW_MIN(p->span_lo[b], lo * size) : lo * size;
        p->span_hi[b] = seen[b] ? SW_MAX(p->span_hi[b], (hi + 1) * size) : (hi + 1) * size;
        seen[b] = true;
    }
}

static size_t partial_wides(const sw__tile_program *p)
{
    const size_t n = p->n_reductions;
    switch (p->mode) {
    case SW__MODE_SPLIT: return n * (size_t)(p->rows * p->parts);
    case SW__MODE_COLS:
        if (p->parts > 1) return n * (size_t)(p->points0 * p->parts * p->cols);
        return n * (size_t)(p->threads * p->tile_cols);
    default: return 0;
    }
}

static void lay_out(sw__tile_program *p)
{
    if (p->mode == SW__MODE_COLS) {
        for (size_t r = 0; r < p->n_reductions; r++) {
            p->reduction[r].narrow_at = p->area_bytes[SW__AREA_THREAD];
            const size_t size = sw_dtype_size((sw_dtype)p->reduction[r].dtype);
            p->area_bytes[SW__AREA_THREAD] += aligned((size_t)p->width * size);
        }
    }
    for (int a = 0; a < SW__AREAS; a++) p->area_bytes[a] = aligned(p->area_bytes[a]);
    p->slots_bytes = aligned(p->n_slots * sizeof(void *));
    p->acc_bytes = aligned(p->n_reductions * sizeof(sw__wide));
    p->thread_bytes = p->slots_bytes + p->acc_bytes + p->area_bytes[SW__AREA_ROW] + p->area_bytes[SW__AREA_THREAD];
    p->thread_bytes += 2 * ALIGN; /* threads share no line, nor what is fetched with one */
    p->partial_bytes = aligned(partial_wides(p) * sizeof(sw__wide));
    const size_t rows = p->mode == SW__MODE_SPLIT ? (size_t)p->rows * p->area_bytes[SW__AREA_ROW] : 0;
    p->workspace_bytes = ALIGN + p->area_bytes[SW__AREA_ONCE] + (size_t)p->threads * p->thread_bytes;
    p->workspace_bytes += rows + p->partial_bytes;
}

sw_status sw__tile_slots(sw__tile_program *p)
{
    scan s = { .p = p };
    sw_status st = SW_OK;
    s.life = sw__calloc(p->n_slots, sizeof *s.life);
    s.free = sw__calloc(p->n_slots, sizeof *s.free);
    if (!s.life || !s.free) {
        st = sw__no_memory(p->n_slots * sizeof *s.life, "a tile program");
    } else {
        find_lives(&s);
        find_conflicts(&s);
        assign(&s);
        find_spans(p);
        lay_out(p);
    }
    sw__free(s.life);
    sw__free(s.free);
    return st;
}
