/* memory.c: the memory plan: from which step to which each tensor of the arena lives, who takes over whose memory, and
 * at which offset everything lies. After the backend has planned the steps (workspaces); exec allocates arena_bytes,
 * once. */
#include "pass/sched.h"

/* ---- lifetimes --------------------------------------------------------------------------------------------------- */

static void live_at(sw__schedule *s, int32_t storage, int32_t step)
{
    sw__storage *t = &s->storages[storage];
    if (t->first < 0) t->first = step;
    t->last = SW_MAX(t->last, step);
}

static void set_lifetimes(sw__schedule *s)
{
    for (uint32_t i = 0; i < s->n_storages; i++) s->storages[i].first = s->storages[i].last = s->storages[i].reuse = -1;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const sw__step *step = &s->steps[i];
        for (int k = 0; k < step->n_in + step->n_out; k++) live_at(s, step->refs[k].storage, (int32_t)i);
        if (step->workspace >= 0) live_at(s, step->workspace, (int32_t)i);
    }
    for (uint32_t i = 0; i < s->n_outputs; i++) live_at(s, s->outputs[i].storage, (int32_t)s->n_steps);
}

/* ---- taking over in place ---------------------------------------------------------------------------------------- */

/* Every load of `in` by this kernel reads the point that the one store to `out` will write. */
static bool same_points(const sw__step *s, int32_t in, int32_t out)
{
    const sw__kernel *k = s->kernel;
    const sw__inst *store = NULL;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *i = &k->inst[j];
        if (i->kop != SW_K_STORE || s->refs[i->buffer].storage != out) continue;
        if (store) return false;
        store = i;
    }
    if (!store) return false;
    const size_t size = sw_dtype_size((sw_dtype)k->buffer[store->buffer].dtype);
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *i = &k->inst[j];
        if (i->kop != SW_K_LOAD && i->kop != SW_K_GATHER) continue;
        if (s->refs[i->buffer].storage != in) continue;
        if (sw_dtype_size((sw_dtype)k->buffer[i->buffer].dtype) != size) return false;
        if (!sw__may_overwrite(k, i, store)) return false;
    }
    return true;
}

bool sw__may_take_over(const sw__schedule *s, const sw__step *step, int32_t in, int32_t out)
{
    return s->storages[in].bytes == s->storages[out].bytes && same_points(step, in, out);
}

static void take_over(sw__schedule *s, uint32_t at, bool *taken)
{
    const sw__step *step = &s->steps[at];
    for (int o = step->n_in; o < step->n_in + step->n_out; o++) {
        sw__storage *out = &s->storages[step->refs[o].storage];
        if (out->kind != SW_STORE_ARENA || out->first != (int32_t)at || out->reuse >= 0) continue;
        for (int i = 0; i < step->n_in && out->reuse < 0; i++) {
            const int32_t r = step->refs[i].storage;
            const sw__storage *in = &s->storages[r];
            if (in->kind != SW_STORE_ARENA || in->last != (int32_t)at || in->first == (int32_t)at || taken[r]) continue;
            if (!sw__may_take_over(s, step, r, step->refs[o].storage)) continue;
            out->reuse = r;
            taken[r] = true;
        }
    }
}

/* ---- offsets ----------------------------------------------------------------------------------------------------- */

typedef struct block { size_t bytes, offset; int32_t first, last; uint32_t storage; } block;

static int compare_blocks(const void *x, const void *y)
{
    const block *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->storage > b->storage) - (a->storage < b->storage);
}

/* Blocks that have their place, by offset, in pieces that know from when to when theirs live: most are passed over whole. */
#define PIECE_BLOCKS 64
typedef struct piece { block b[PIECE_BLOCKS]; uint32_t n; int32_t first, last; } piece;
typedef struct placed {
    piece *pool;
    uint32_t *order; /* pieces by offset */
    uint32_t n;
} placed;

static size_t most_pieces(size_t blocks)
{
    return 2 * blocks / PIECE_BLOCKS + 2; /* those that were split are half full */
}

/* The smallest hole that fits between those that live at the same time. */
static size_t best_fit(const placed *all, const block *b)
{
    size_t end = 0, best = SIZE_MAX, best_hole = SIZE_MAX;
    for (uint32_t k = 0; k < all->n; k++) {
        const piece *const some = &all->pool[all->order[k]];
        if (some->last < b->first || some->first > b->last) continue;
        for (const block *p = some->b; p < some->b + some->n; p++) {
            if (p->last < b->first || p->first > b->last) continue;
            if (p->offset > end && p->offset - end >= b->bytes && p->offset - end < best_hole) {
                best = end;
                best_hole = p->offset - end;
            }
            end = SW_MAX(end, p->offset + p->bytes);
        }
    }
    return best != SIZE_MAX ? best : end;
}

static void span(piece *p)
{
    p->first = p->b[0].first;
    p->last = p->b[0].last;
    for (uint32_t i = 1; i < p->n; i++) {
        p->first = SW_MIN(p->first, p->b[i].first);
        p->last = SW_MAX(p->last, p->b[i].last);
    }
}

/* The upper half of the k-th piece becomes one of its own, the next. */
static void split(placed *all, uint32_t k)
{
    piece *const full = &all->pool[all->order[k]], *const more = &all->pool[all->n];
    memmove(&all->order[k + 2], &all->order[k + 1], (all->n - k - 1) * sizeof *all->order);
    all->order[k + 1] = all->n++;
    more->n = PIECE_BLOCKS / 2;
    full->n = PIECE_BLOCKS - more->n;
    memcpy(more->b, full->b + full->n, more->n * sizeof *more->b);
    span(full);
    span(more);
}

/* Behind those of the same offset. */
static void insert(placed *all, const block *b)
{
    if (all->n == 0) all->order[all->n++] = 0; /* an empty piece */
    uint32_t k = all->n - 1;
    while (k > 0 && all->pool[all->order[k]].b[0].offset > b->offset) k--;
    if (all->pool[all->order[k]].n == PIECE_BLOCKS) {
        split(all, k);
        if (all->pool[all->order[k + 1]].b[0].offset <= b->offset) k++;
    }
    piece *const p = &all->pool[all->order[k]];
    uint32_t at = p->n;
    while (at > 0 && p->b[at - 1].offset > b->offset) at--;
    memmove(&p->b[at + 1], &p->b[at], (p->n++ - at) * sizeof *p->b);
    p->b[at] = *b;
    p->first = p->n == 1 ? b->first : SW_MIN(p->first, b->first);
    p->last = p->n == 1 ? b->last : SW_MAX(p->last, b->last);
}

static int32_t root_of(const sw__schedule *s, int32_t i)
{
    while (s->storages[i].reuse >= 0) i = s->storages[i].reuse;
    return i;
}

/* A chain of storages that take over from each other is one block that lives as long as all of them. */
static uint32_t collect(const sw__schedule *s, block *blocks, uint32_t *of)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_storages; i++) {
        const sw__storage *t = &s->storages[i];
        if (t->kind != SW_STORE_ARENA || t->first < 0 || t->reuse >= 0) continue;
        of[i] = n;
        blocks[n++] = (block){t->bytes, 0, t->first, t->last, i};
    }
    for (uint32_t i = 0; i < s->n_storages; i++) {
        const sw__storage *t = &s->storages[i];
        if (t->kind != SW_STORE_ARENA || t->reuse < 0) continue;
        block *b = &blocks[of[root_of(s, (int32_t)i)]];
        b->last = SW_MAX(b->last, t->last);
    }
    return n;
}

static void place(sw__schedule *s, block *blocks, placed *all, uint32_t n)
{
    s->arena_bytes = 0;
    qsort(blocks, n, sizeof *blocks, compare_blocks);
    for (uint32_t i = 0; i < n; i++) {
        blocks[i].offset = best_fit(all, &blocks[i]);
        insert(all, &blocks[i]);
        s->storages[blocks[i].storage].offset = blocks[i].offset;
        s->arena_bytes = SW_MAX(s->arena_bytes, blocks[i].offset + blocks[i].bytes);
    }
    for (uint32_t i = 0; i < s->n_storages; i++)
        if (s->storages[i].reuse >= 0) s->storages[i].offset = s->storages[root_of(s, (int32_t)i)].offset;
}

sw_status sw__plan_memory(sw__schedule *s, const sw__traits *t)
{
    const size_t n = (size_t)s->n_storages + 1;
    block *blocks = sw__calloc(n, sizeof *blocks);
    placed all = {.pool = sw__calloc(most_pieces(n), sizeof *all.pool)};
    all.order = sw__calloc(most_pieces(n), sizeof *all.order);
    uint32_t *of = sw__calloc(n, sizeof *of);
    bool *taken = sw__calloc(n, sizeof *taken);
    const bool ok = blocks && of && taken && all.pool && all.order;
    if (ok) {
        set_lifetimes(s);
        for (uint32_t i = 0; i < s->n_steps; i++)
            if (s->steps[i].kind == SW_STEP_KERNEL) take_over(s, i, taken);
        if (n > 1) place(s, blocks, &all, collect(s, blocks, of));
        else s->arena_bytes = 0;
    }
    (void)t;
    sw__free(blocks);
    sw__free(all.pool);
    sw__free(all.order);
    sw__free(of);
    sw__free(taken);
    return ok ? SW_OK : sw__no_memory(n * sizeof *blocks * 2, "the memory plan");
}

/* ---- for tests --------------------------------------------------------------------------------------------------- */

static bool takes_over(const sw__schedule *s, uint32_t later, uint32_t earlier)
{
    for (int32_t i = s->storages[later].reuse; i >= 0; i = s->storages[i].reuse)
        if (i == (int32_t)earlier) return true;
    return false;
}

bool sw__plan_check(const sw__schedule *s, uint32_t *a, uint32_t *b)
{
    for (uint32_t i = 0; i < s->n_storages; i++) {
        const sw__storage *x = &s->storages[i];
        *a = *b = i;
        if (x->kind != SW_STORE_ARENA || x->first < 0) continue;
        if (x->offset + x->bytes > s->arena_bytes) return false;
        for (uint32_t j = i + 1; j < s->n_storages; j++) {
            const sw__storage *y = &s->storages[j];
            if (y->kind != SW_STORE_ARENA || y->first < 0 || x->last < y->first || y->last < x->first) continue;
            if (x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset) continue;
            /* in the step of the handover both live in the same place */
            if (takes_over(s, j, i) && x->last <= y->first) continue;
            if (takes_over(s, i, j) && y->last <= x->first) continue;
            *b = j;
            return false;
        }
    }
    return true;
}
