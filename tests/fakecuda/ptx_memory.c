/* ptx_memory.c: loads, stores and atomics of a group's lanes: to which memory, whether it is there and aligned, who
 * wants to know of it, then the values, in a row where the addresses are. */
#include "ptx_inner.h"

#include <stdio.h>
#include <string.h>

static const char *const space_names[] = { "global", "shared", "local", "parameter" };
enum { LOAD, STORE, ATOMIC };
static const char *const verbs[] = { "reads", "writes", "updates" };

/* One access of some lanes, all in one space. */
typedef struct access {
    int what, space;
    ptx_mask lanes;
    size_t size;          /* of a lane's, in a row */
    uint64_t *at;         /* LANES addresses; lanes that take no part repeat one that does. Only local's are changed */
    unsigned char *host;  /* where the address `origin` lies */
    uint64_t origin;
    ptx_scan scan;
} access;

static int fault(ptx_group *g, const ptx_inst *i, const access *a, int lane, int code, const char *why)
{
    return ptx_fail(g, i, lane, code, "%s %zu bytes of %s memory at address 0x%llx: %s", verbs[a->what], a->size,
                    space_names[a->space], (unsigned long long)a->at[lane], why);
}

/* The lane whose address is the lowest or highest, for messages. */
static int lane_of(const access *a, uint64_t address)
{
    for (ptx_mask m = a->lanes; m; m &= m - 1)
        if (a->at[ptx_first(m)] == address) return ptx_first(m);
    return ptx_first(a->lanes);
}

static int misaligned(ptx_group *g, const ptx_inst *i, const access *a)
{
    for (ptx_mask m = a->lanes; m; m &= m - 1)
        if (a->at[ptx_first(m)] % a->size) return fault(g, i, a, ptx_first(m), 716, "misaligned");
    return 0;
}

/* ---- which memory ------------------------------------------------------------------------------------------------ */

static int bounds(ptx_group *g, const ptx_inst *i, const access *a, uint64_t lo, uint64_t hi)
{
    char why[120];
    const bool low = a->scan.low < lo, high = a->scan.high > hi || hi - a->scan.high < a->size;
    if (!low && !high) return 0;
    snprintf(why, sizeof why, "out of bounds, there are %llu bytes", (unsigned long long)(hi - lo));
    return fault(g, i, a, lane_of(a, low ? a->scan.low : a->scan.high), a->space == PTX_LOCAL ? 719 : 700, why);
}

/* *one: it does not lie in one allocation, so lanes must go one by one. */
static int find_global(ptx_group *g, const ptx_inst *i, access *a, bool *one)
{
    ptx_range *const r = &g->run->ranges[i->number];
    const ptx_memory *const memory = g->run->memory;
    const uint64_t low = a->scan.low, high = a->scan.high;
    *one = false;
    if (low < r->lo || high >= r->hi || r->hi - high < a->size) {
        ptx_range found = { 0 };
        const int lane = lane_of(a, low);
        if (!memory->range(memory->user, low, &found.lo, &found.hi, &found.host)) {
            if (a->lanes & (a->lanes - 1)) *one = true;
            return *one ? 0 : fault(g, i, a, lane, 700, "no memory there, or freed");
        }
        *r = found;
        if (high >= r->hi || r->hi - high < a->size) {
            if (a->lanes & (a->lanes - 1)) *one = true;
            return *one ? 0 : bounds(g, i, a, r->lo, r->hi);
        }
    }
    a->host = r->host, a->origin = r->lo;
    return 0;
}

static int touch(ptx_group *g, const ptx_inst *i, const access *a)
{
    static const int kinds[] = { PTX_READ, PTX_WRITE, PTX_ATOMIC };
    const ptx_memory *const memory = g->run->memory;
    char why[200] = "";
    if (!memory->touch) return 0;
    for (ptx_mask m = a->lanes; m;) {
        const int first = ptx_first(m);
        size_t bytes = a->size;
        uint64_t last = a->at[first];
        for (m &= m - 1; m; m &= m - 1) { /* as far as they lie side by side or at one address */
            const uint64_t next = a->at[ptx_first(m)];
            if (next != last && next != a->at[first] + bytes) break;
            if (next != last) bytes += a->size;
            last = next;
        }
        if (!memory->touch(memory->user, a->at[first], bytes, kinds[a->what], g->run->block_number, why, sizeof why))
            return fault(g, i, a, first, 700, why);
    }
    return 0;
}

/* Each thread's own piece of the host's memory. */
static void find_local(ptx_group *g, access *a)
{
    const size_t bytes = g->run->k->local_bytes;
    for (int lane = 0; lane < LANES; lane++) a->at[lane] += (uint64_t)ptx_thread(g, lane) * bytes;
    a->host = g->run->local;
    a->scan.same = false, a->scan.step = 0;
}

static int check_races(ptx_group *g, const ptx_inst *i, access *a)
{
    if (!g->run->l->check_races || a->what == ATOMIC || i->flags) return 0;
    if (a->space == PTX_SHARED) return ptx_race_shared(g, i, a->at, a->lanes, a->size, a->what == STORE);
    return ptx_race_global(g, i, a->at, a->lanes, a->size, a->what == STORE, a->host, a->origin,
                           a->scan.step == a->size && a->lanes == ~(ptx_mask)0);
}

/* Everything but the transfer. *one as above. */
static int prepare(ptx_group *g, const ptx_inst *i, access *a, bool *one)
{
    ptx_run_state *const run = g->run;
    int status = 0;
    *one = false;
    run->isa->scan(&a->scan, a->at, a->size);
    if (a->scan.bits & (a->size - 1)) return misaligned(g, i, a);
    if (a->space == PTX_GLOBAL) {
        status = find_global(g, i, a, one);
        if (status == 0 && !*one) status = touch(g, i, a);
        if (status == 0 && !*one) status = check_races(g, i, a);
    } else if (a->space == PTX_SHARED) {
        status = bounds(g, i, a, PTX_SHARED_AT, PTX_SHARED_AT + run->shared_bytes);
        a->host = run->shared, a->origin = PTX_SHARED_AT;
        if (status == 0) status = check_races(g, i, a);
    } else if (a->space == PTX_LOCAL) {
        status = bounds(g, i, a, 0, run->k->local_bytes);
        if (status == 0) find_local(g, a);
    } else {
        status = bounds(g, i, a, 0, run->k->param_bytes);
        a->host = (unsigned char *)(uintptr_t)run->l->params;
    }
    return status;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static int slot(const ptx_inst *i)
{
    return i->bytes == 8 ? 8 : 4;
}

static void load_element(ptx_group *g, const ptx_inst *i, const access *a, int e)
{
    const ptx_isa *const isa = g->run->isa;
    _Alignas(64) uint64_t values[LANES];
    unsigned char *const host = a->host + (uintptr_t)e * i->bytes;
    void *const to = a->lanes == g->alive ? ptx_at(g, i->v[e]) : (void *)values;
    if (i->v[e] == PTX_NONE) return;
    if (a->scan.step == i->bytes) isa->row(to, host + (a->at[0] - a->origin), i->bytes, i->is_signed);
    else isa->gather(to, host, a->origin, a->at, i->bytes, i->is_signed);
    if (to == values) ptx_write(g, i->v[e], values, slot(i), a->lanes);
}

static void store_element(ptx_group *g, const ptx_inst *i, const access *a, int e)
{
    const ptx_isa *const isa = g->run->isa;
    unsigned char *const host = a->host + (uintptr_t)e * i->bytes;
    if (a->scan.step == i->bytes && a->lanes == ~(ptx_mask)0)
        isa->row_out(host + (a->at[0] - a->origin), ptx_at(g, i->v[e]), i->bytes);
    else isa->scatter(host, a->origin, a->at, ptx_at(g, i->v[e]), i->bytes, a->lanes);
}

static uint64_t value_of(const ptx_group *g, int32_t operand, int bytes, int lane)
{
    return bytes == 8 ? ((const uint64_t *)ptx_at(g, operand))[lane] : ((const uint32_t *)ptx_at(g, operand))[lane];
}

/* One thread after the other, from one that chance chooses. */
static void update(ptx_group *g, const ptx_inst *i, const access *a)
{
    uint64_t wide[LANES] = { 0 };
    uint32_t narrow[LANES] = { 0 };
    const int start = (int)(ptx_random(&g->run->random) % LANES);
    for (int k = 0; k < LANES; k++) {
        const int lane = (start + k) % LANES;
        uint64_t old = 0, new;
        if (!(a->lanes >> lane & 1)) continue;
        unsigned char *const at = a->host + (a->at[lane] - a->origin);
        memcpy(&old, at, i->bytes);
        new = i->atomic(old, value_of(g, i->b, slot(i), lane), value_of(g, i->c, slot(i), lane));
        memcpy(at, &new, i->bytes);
        wide[lane] = old, narrow[lane] = (uint32_t)old;
    }
    if (i->d != PTX_NONE) ptx_write(g, i->d, i->bytes == 8 ? (void *)wide : (void *)narrow, slot(i), a->lanes);
}

static int transfer(ptx_group *g, const ptx_inst *i, access *a)
{
    bool one;
    int status = prepare(g, i, a, &one);
    if (status) return status;
    if (one) { /* in several allocations, or some in none */
        for (ptx_mask m = a->lanes; m && !status; m &= m - 1) {
            uint64_t at[LANES];
            for (int k = 0; k < LANES; k++) at[k] = a->at[ptx_first(m)];
            access single = { .what = a->what, .space = a->space, .lanes = m & (0 - m), .size = a->size, .at = at };
            status = transfer(g, i, &single);
        }
        return status;
    }
    for (int e = 0; e < i->n && a->what == LOAD; e++) load_element(g, i, a, e);
    for (int e = 0; e < i->n && a->what == STORE; e++) store_element(g, i, a, e);
    if (a->what == ATOMIC) update(g, i, a);
    return 0;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* Lanes that take no part go where the first one goes, less `window`. */
static void settle(ptx_group *g, const uint64_t *from, uint64_t *at, ptx_mask lanes, uint64_t window)
{
    const uint64_t first = from[ptx_first(lanes)];
    if (lanes == ~(ptx_mask)0) {
        for (int k = 0; k < LANES; k++) at[k] = from[k] - window;
        return;
    }
    const uint32_t *const mask = ptx_spread(g, lanes);
    for (int k = 0; k < LANES; k++) at[k] = (mask[k] ? from[k] : first) - window;
}

/* Generic addresses by their windows, one space after the other. */
static int by_window(ptx_group *g, const ptx_inst *i, int what, const uint64_t *from, ptx_mask lanes)
{
    while (lanes) {
        const uint64_t window = from[ptx_first(lanes)] >> 56;
        ptx_mask those = 0;
        for (ptx_mask m = lanes; m; m &= m - 1)
            if (from[ptx_first(m)] >> 56 == window) those |= m & (0 - m);
        _Alignas(64) uint64_t at[LANES];
        settle(g, from, at, those, window << 56);
        access a = { .what = what, .space = (int)window, .lanes = those, .size = (size_t)i->bytes * i->n, .at = at };
        if (window > PTX_PARAM || (what != LOAD && window == PTX_PARAM)) {
            settle(g, from, at, those, 0);
            a.space = PTX_GLOBAL;
            return fault(g, i, &a, ptx_first(those), 700, "no memory there");
        }
        const int status = transfer(g, i, &a);
        if (status) return status;
        lanes &= ~those;
    }
    return 0;
}

static int run(ptx_group *g, const ptx_inst *i, int what, ptx_mask lanes)
{
    _Alignas(64) uint64_t own[LANES], *at = own;
    if (i->wide && i->offset == 0 && i->space != PTX_LOCAL) at = ptx_at(g, i->a);
    else g->run->isa->addresses(at, ptx_at(g, i->a), i->wide, (uint64_t)i->offset);
    if (i->space == PTX_GENERIC) return by_window(g, i, what, at, lanes);
    if (lanes != ~(ptx_mask)0) {
        settle(g, at, own, lanes, 0);
        at = own;
    }
    access a = { .what = what, .space = i->space, .lanes = lanes, .size = (size_t)i->bytes * i->n, .at = at };
    return transfer(g, i, &a);
}

int ptx_load_inst(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    return run(g, i, LOAD, lanes);
}

int ptx_store_inst(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    return run(g, i, STORE, lanes);
}

int ptx_atomic_inst(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    return run(g, i, ATOMIC, lanes);
}
