/* ptx_race.c: which thread wrote and read each piece of shared memory since the last barrier, and which block each
 * piece of global memory since the launch began. Two that do so with nothing between are a fault that a GPU does not
 * tell. Two writes of the same value are none; atomics and volatile accesses are not looked at. */
#include "ptx_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- within a block ---------------------------------------------------------------------------------------------- */

/* A shadow word: the epoch (barriers so far), the warp's own time since, and the thread. */
enum { TIME = 12, WHO = (1 << TIME) - 1, MANY_OF_WARP = 1024, MANY = WHO };

static uint64_t stamp(const ptx_group *g, int lane)
{
    const uint64_t time = g->warp_time[lane / WARP] & 0xFFFFF;
    return (uint64_t)g->run->epoch << 32 | time << TIME | (uint64_t)ptx_thread(g, lane);
}

/* Whether the access behind `then` is not ordered before the one of `now`. */
static bool unordered(uint64_t then, uint64_t now)
{
    const int who = (int)(then & WHO), thread = (int)(now & WHO);
    if (then >> 32 != now >> 32 || who == thread) return false;
    const int warp = who < MANY_OF_WARP ? who / WARP : who - MANY_OF_WARP;
    return who == MANY || warp != thread / WARP || then >> TIME == now >> TIME; /* bar.warp.sync orders a warp */
}

static uint64_t readers(uint64_t then, uint64_t now)
{
    if (!unordered(then, now)) return now;
    const int who = (int)(then & WHO), thread = (int)(now & WHO);
    const int warp = who < MANY_OF_WARP ? who / WARP : who - MANY_OF_WARP;
    const bool one_warp = who != MANY && warp == thread / WARP;
    return (now & ~(uint64_t)WHO) | (uint64_t)(one_warp ? MANY_OF_WARP + warp : MANY);
}

/* Whether a store changes what lies there, or what another lane stores in the same instruction. */
static bool changes(const ptx_group *g, const ptx_inst *i, const uint64_t *at, ptx_mask lanes, int lane,
                    const unsigned char *host, uint64_t origin)
{
    for (int e = 0; e < i->n; e++) {
        const char *const values = ptx_at(g, i->v[e]);
        const size_t step = i->bytes == 8 ? 8 : 4;
        const char *const mine = values + (size_t)lane * step;
        bool by_lane = false;
        for (ptx_mask m = lanes & (((ptx_mask)1 << lane) - 1); m; m &= m - 1)
            if (at[ptx_first(m)] == at[lane]) {
                by_lane = true;
                if (memcmp(values + (size_t)ptx_first(m) * step, mine, i->bytes) != 0) return true;
            }
        if (!by_lane && memcmp(host + (at[lane] - origin) + (size_t)e * i->bytes, mine, i->bytes) != 0) return true;
    }
    return false;
}

static int report_shared(ptx_group *g, const ptx_inst *i, int lane, uint64_t address, uint64_t then, const char *what)
{
    const int who = (int)(then & WHO);
    char other[40] = "several threads";
    if (who < MANY_OF_WARP) snprintf(other, sizeof other, "thread %d", who);
    return ptx_fail(g, i, lane, 0, "a race in shared memory at address 0x%llx: %s %s with no barrier between",
                    (unsigned long long)address, what, other);
}

static void read_granule(ptx_group *g, const ptx_inst *i, int lane, uint64_t address, uint64_t *writer, uint64_t now)
{
    uint64_t *const reader = writer + 1;
    if (unordered(*writer, now)) report_shared(g, i, lane, address, *writer, "reads what was written by");
    *reader = readers(*reader, now);
}

static void write_granule(ptx_group *g, const ptx_inst *i, const uint64_t *at, ptx_mask lanes, int lane,
                          uint64_t *writer, uint64_t now)
{
    if (unordered(*writer, now) && changes(g, i, at, lanes, lane, g->run->shared, PTX_SHARED_AT))
        report_shared(g, i, lane, at[lane], *writer, "writes what was written by");
    if (unordered(writer[1], now)) report_shared(g, i, lane, at[lane], writer[1], "writes what was read by");
    *writer = now;
}

int ptx_race_shared(ptx_group *g, const ptx_inst *i, const uint64_t *at, ptx_mask lanes, size_t size, bool write)
{
    const int shift = __builtin_ctz((unsigned)g->run->k->granule_shared);
    const uint64_t n = size >> shift, epoch = g->run->epoch;
    uint64_t before = UINT64_MAX, before_that = UINT64_MAX;
    for (ptx_mask m = lanes; m; m &= m - 1) {
        const int lane = ptx_first(m);
        const uint64_t now = stamp(g, lane);
        if (!write && at[lane] == before && before == before_that && lane % WARP > 1)
            continue; /* two readers tell all */
        before_that = before, before = at[lane];
        uint64_t *writer = &g->run->shared_shadow[(at[lane] - PTX_SHARED_AT) >> shift << 1];
        for (uint64_t k = 0; k < n; k++, writer += 2) {
            const bool written = writer[0] >> 32 == epoch, read = writer[1] >> 32 == epoch;
            if (write) {
                if (written || read) write_granule(g, i, at, lanes, lane, writer, now);
                else writer[0] = now;
            } else if (written || (read && (writer[1] & WHO) != MANY)) {
                read_granule(g, i, lane, at[lane], writer, now);
            } else if (!read) {
                writer[1] = now;
            }
        }
    }
    return 0;
}

/* ---- between blocks ---------------------------------------------------------------------------------------------- */

/* Pages of global memory that were accessed, found by hash; of each granule the last writer's and reader's block
 * plus 1. */
enum { PAGE = 4096, ALL = -1 };
typedef struct page { uint64_t number; uint32_t *who; } page;
struct ptx_shadow {
    page *pages;
    size_t slots, used;
    page *last;
};

static page *find(ptx_shadow *s, uint64_t number)
{
    size_t at = (size_t)(number * 0x9E3779B97F4A7C15ull >> 20) & (s->slots - 1);
    while (s->pages[at].who && s->pages[at].number != number) at = (at + 1) & (s->slots - 1);
    return &s->pages[at];
}

static bool more(ptx_shadow *s)
{
    const page *const old = s->pages;
    const size_t n = s->slots;
    page *const pages = calloc(n * 2, sizeof *pages);
    if (!pages) return false;
    s->pages = pages, s->slots = n * 2;
    for (size_t i = 0; i < n; i++)
        if (old[i].who) *find(s, old[i].number) = old[i];
    free((void *)(uintptr_t)old);
    return true;
}

static uint32_t *shadow_of(ptx_run_state *run, uint64_t number)
{
    ptx_shadow *const s = run->global_shadow;
    const size_t granule = (size_t)run->k->granule_global;
    if (!s->last || s->last->number != number) {
        s->last = NULL;
        if (s->used * 2 >= s->slots && !more(s)) return NULL;
        page *const p = find(s, number);
        if (!p->who) {
            p->who = calloc(PAGE / granule, 2 * sizeof *p->who);
            if (!p->who) return NULL;
            p->number = number;
            s->used++;
        }
        s->last = p;
    }
    return s->last->who;
}

static int report_global(ptx_group *g, const ptx_inst *i, int lane, uint64_t address, uint32_t who, const char *what)
{
    char other[40] = "several blocks";
    if (who != (uint32_t)ALL) snprintf(other, sizeof other, "block number %u", who - 1);
    return ptx_fail(g, i, lane, 0, "a race between blocks at address 0x%llx: %s %s", (unsigned long long)address, what,
                    other);
}

static void global_granule(ptx_group *g, const ptx_inst *i, const uint64_t *at, ptx_mask lanes, int lane, uint32_t *who,
                           bool write, const unsigned char *host, uint64_t origin)
{
    const uint32_t me = (uint32_t)g->run->block_number + 1;
    const bool written = who[0] && who[0] != me, read = who[1] && who[1] != me;
    if (!write) {
        if (written) report_global(g, i, lane, at[lane], who[0], "reads what was written by");
        who[1] = read ? (uint32_t)ALL : me;
        return;
    }
    if (written && changes(g, i, at, lanes, lane, host, origin))
        report_global(g, i, lane, at[lane], who[0], "writes what was written by");
    if (read) report_global(g, i, lane, at[lane], who[1], "writes what was read by");
    who[0] = me;
}

/* Granules in a row that nobody else has used are this block's now; false: look at each. */
static bool claim(uint32_t *who, size_t n, uint32_t me, bool write)
{
    uint32_t others = 0;
    for (size_t k = 0; k < 2 * n; k++) others |= who[k] && who[k] != me;
    if (others) return false;
    for (size_t k = 0; k < n; k++) who[2 * k + !write] = me;
    return true;
}

int ptx_race_global(ptx_group *g, const ptx_inst *i, const uint64_t *at, ptx_mask lanes, size_t size, bool write,
                    const unsigned char *host, uint64_t origin, bool row)
{
    ptx_run_state *const run = g->run;
    const int shift = __builtin_ctz((unsigned)run->k->granule_global);
    const size_t n = size >> shift;
    const uint32_t me = (uint32_t)run->block_number + 1;
    uint64_t current = UINT64_MAX;
    uint32_t *base = NULL;
    if (run->n_blocks == 1) return 0;
    if (row && at[0] / PAGE == at[LANES - 1] / PAGE) {
        base = shadow_of(run, at[0] / PAGE);
        if (base && claim(base + (at[0] % PAGE >> shift << 1), n * LANES, me, write)) return 0;
    }
    for (ptx_mask m = lanes; m; m &= m - 1) {
        const int lane = ptx_first(m);
        if (!base || at[lane] / PAGE != current) { /* an aligned access lies in one page */
            current = at[lane] / PAGE;
            base = shadow_of(run, current);
            if (!base) return ptx_fail(g, i, lane, 2, "out of memory for the check of races");
        }
        uint32_t *who = base + (at[lane] % PAGE >> shift << 1);
        for (size_t k = 0; k < n; k++, who += 2) {
            if ((!who[0] || who[0] == me) && (!who[1] || who[1] == me)) who[!write] = me; /* nobody else so far */
            else global_granule(g, i, at, lanes, lane, who, write, host, origin);
        }
    }
    return 0;
}

bool ptx_race_begin(ptx_run_state *run)
{
    if (!run->l->check_races) return true;
    run->shared_shadow = calloc(run->shared_bytes / (size_t)run->k->granule_shared * 2 + 2, sizeof *run->shared_shadow);
    run->global_shadow = calloc(1, sizeof *run->global_shadow);
    if (!run->shared_shadow || !run->global_shadow) return false;
    run->global_shadow->slots = 64;
    run->global_shadow->pages = calloc(64, sizeof *run->global_shadow->pages);
    return run->global_shadow->pages != NULL;
}

void ptx_race_end(ptx_run_state *run)
{
    ptx_shadow *const s = run->global_shadow;
    for (size_t i = 0; s && s->pages && i < s->slots; i++) free(s->pages[i].who);
    if (s) free(s->pages);
    free(s);
    free(run->shared_shadow);
}
