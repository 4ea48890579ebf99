/* ptx_warp.c: barriers of a block and exchanges within a warp. A barrier opens when all groups wait or have left;
 * all threads must then wait at the same one. An exchange waits until the threads that it names are here. */
#include "ptx_inner.h"

#include <string.h>

/* ---- barriers ---------------------------------------------------------------------------------------------------- */

static int count(ptx_mask m)
{
    return __builtin_popcountll(m);
}

int ptx_barrier(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    const int first = ptx_first(lanes);
    const uint32_t id = ((const uint32_t *)ptx_at(g, i->a))[first];
    const uint32_t n = i->b == PTX_NONE ? 0 : ((const uint32_t *)ptx_at(g, i->b))[first];
    if (id >= BARRIERS) return ptx_fail(g, i, first, 719, "barrier %u: there are %d", id, BARRIERS);
    if (i->n) {
        g->run->arrived[id] += (uint32_t)count(lanes);
        return 0;
    }
    g->barred[g->n_barred++] = (ptx_barred){ lanes, g->pc, i, id, n };
    g->lanes &= ~lanes;
    return 0;
}

/* How many threads wait at barrier id. *at: one of those; *other: one that waits elsewhere at it. */
static uint32_t waiting(ptx_run_state *run, uint32_t id, const ptx_barred **at, ptx_group **group,
                        const ptx_barred **other)
{
    uint32_t n = run->arrived[id];
    *at = *other = NULL;
    for (int k = 0; k < run->n_groups; k++)
        for (int j = 0; j < run->groups[k].n_barred; j++) {
            const ptx_barred *const b = &run->groups[k].barred[j];
            if (b->id != id) continue;
            n += (uint32_t)count(b->lanes);
            if (!*at) *at = b, *group = &run->groups[k];
            else if (b->pc != (*at)->pc) *other = b;
        }
    return n;
}

/* bar.red: the count, the conjunction or the disjunction of all that wait */
static void reduce(ptx_run_state *run, uint32_t id)
{
    uint32_t yes = 0, all = 0, value[LANES];
    uint8_t truth[LANES];
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < run->n_groups; k++)
            for (int j = 0; j < run->groups[k].n_barred; j++) {
                ptx_group *const g = &run->groups[k];
                const ptx_barred *const b = &g->barred[j];
                const ptx_inst *const i = b->inst;
                if (b->id != id || i->d == PTX_NONE) continue;
                const ptx_mask p = run->isa->bits(ptx_at(g, i->c));
                if (pass == 0)
                    yes += (uint32_t)count((i->is_signed ? ~p : p) & b->lanes), all += (uint32_t)count(b->lanes);
                for (int lane = 0; lane < LANES; lane++)
                    value[lane] = yes, truth[lane] = i->mode == 2 ? yes == all : yes > 0;
                if (pass == 1 && i->mode == 1) ptx_write(g, i->d, value, 4, b->lanes);
                else if (pass == 1) ptx_write(g, i->d, truth, 1, b->lanes);
            }
}

static void open(ptx_run_state *run, uint32_t id)
{
    reduce(run, id);
    run->epoch++;
    run->arrived[id] = 0;
    for (int k = 0; k < run->n_groups; k++) {
        ptx_group *const g = &run->groups[k];
        int kept = 0;
        for (int j = 0; j < g->n_barred; j++) {
            if (g->barred[j].id == id) ptx_wait(g, g->barred[j].pc, g->barred[j].lanes, false);
            else g->barred[kept++] = g->barred[j];
        }
        g->n_barred = kept;
        memset(g->warp_time, 0, sizeof g->warp_time);
    }
}

/* All groups wait or have left. *any: threads go on. */
int ptx_barriers_open(ptx_run_state *run, bool *any)
{
    const ptx_barred *at = NULL, *other = NULL, *stuck = NULL;
    ptx_group *group = NULL, *stuck_group = NULL;
    uint32_t alive = 0, n_stuck = 0;
    for (int k = 0; k < run->n_groups; k++) alive += (uint32_t)count(run->groups[k].alive);
    *any = false;
    for (uint32_t id = 0; id < BARRIERS; id++) {
        const uint32_t n = waiting(run, id, &at, &group, &other);
        if (!at) continue;
        if (other && at->count == 0)
            return ptx_fail(group, at->inst, ptx_first(at->lanes), 719,
                            "threads of a block wait at different barriers, others at PTX line %d", other->inst->line);
        if (n == (at->count ? at->count : alive)) {
            open(run, id);
            *any = true;
        } else {
            stuck = at, stuck_group = group, n_stuck = n;
        }
    }
    if (*any || !stuck) return 0;
    return ptx_fail(
        stuck_group, stuck->inst, ptx_first(stuck->lanes), 719,
        "barrier %u waits for %u threads and %u are here; the others wait at different barriers or have left",
        stuck->id, stuck->count ? stuck->count : alive, n_stuck);
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

/* The lanes that are here with those that came before them; false: they wait for more (or *status: none can come). */
static bool together(ptx_group *g, const ptx_inst *i, ptx_mask *lanes, int *status)
{
    const int pc = g->pc - 1;
    const uint32_t *const members = ptx_at(g, i->b);
    ptx_mask here = *lanes;
    *status = 0;
    for (int k = 0; k < g->n_paths; k++)
        if (g->paths[k].parked && g->paths[k].pc == pc) {
            here |= g->paths[k].lanes;
            g->paths[k] = g->paths[--g->n_paths];
            k--;
        }
    ptx_mask wanted = 0;
    for (ptx_mask m = here; m; m &= m - 1) {
        const int lane = ptx_first(m), warp = lane / WARP;
        const ptx_mask of = (ptx_mask)members[lane] << warp * WARP;
        if (!(of >> lane & 1))
            *status = ptx_fail(g, i, lane, 719, "is not in the mask 0x%x of the threads that take part", members[lane]);
        wanted |= of;
    }
    if (*status) return false;
    g->lanes &= ~here;
    if (wanted & g->alive & ~here) { /* those that have left do not count */
        ptx_wait(g, pc, here, true);
        return false;
    }
    g->lanes |= here;
    *lanes = here;
    return true;
}
#define TOGETHER(g, i, lanes) \
    { \
        int status; \
        if (!together(g, i, &(lanes), &status)) return status; \
    }

/* Where a lane looks, and whether that lies within its segment (PTX, shfl.sync). */
static int source_lane(int mode, int lane, uint32_t b, uint32_t c, bool *inside)
{
    const int by = (int)(b & 31), clamp = (int)(c & 31), segment = (int)(c >> 8 & 31);
    const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    const int j = mode == 0 ? lane - by : mode == 1 ? lane + by : mode == 2 ? lane ^ by : least | (by & ~segment);
    *inside = mode == 0 ? j >= most : j <= most;
    return *inside ? j : lane;
}

int ptx_shuffle(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    TOGETHER(g, i, lanes)
    const uint32_t *const a = ptx_at(g, i->a), *const b = ptx_at(g, i->c), *const c = ptx_at(g, i->v[0]);
    uint32_t d[LANES] = { 0 };
    uint8_t p[LANES] = { 0 };
    for (ptx_mask m = lanes; m; m &= m - 1) {
        const int lane = ptx_first(m), first = lane / WARP * WARP;
        bool inside;
        const int from = first + source_lane(i->mode, lane % WARP, b[lane], c[lane], &inside);
        p[lane] = inside;
        d[lane] = from >= first && lanes >> from & 1 ? a[from] : UINT32_MAX;
        if (from < first || !(lanes >> from & 1))
            ptx_fail(g, i, lane, 0, "reads lane %d, which takes no part", from - first);
    }
    ptx_write(g, i->d, d, 4, lanes);
    if (i->v[1] != PTX_NONE) ptx_write(g, i->v[1], p, 1, lanes);
    return 0;
}

/* a warp's lanes among the group's */
static ptx_mask of_warp(ptx_mask lanes, int lane)
{
    return lanes & (ptx_mask)UINT32_MAX << lane / WARP * WARP;
}

int ptx_vote(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    TOGETHER(g, i, lanes)
    const ptx_mask p = g->run->isa->bits(ptx_at(g, i->a)), yes = i->is_signed ? ~p : p;
    uint32_t ballot[LANES] = { 0 };
    uint8_t d[LANES] = { 0 };
    for (ptx_mask m = lanes; m; m &= m - 1) {
        const int lane = ptx_first(m);
        const ptx_mask all = of_warp(lanes, lane), those = all & yes;
        ballot[lane] = (uint32_t)(those >> lane / WARP * WARP);
        d[lane] = i->mode == 0 ? those == all : i->mode == 1 ? those != 0 : those == all || those == 0;
    }
    if (i->mode == 3) ptx_write(g, i->d, ballot, 4, lanes);
    else ptx_write(g, i->d, d, 1, lanes);
    return 0;
}

int ptx_match(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    TOGETHER(g, i, lanes)
    const uint32_t *const narrow = ptx_at(g, i->a);
    const uint64_t *const wide = ptx_at(g, i->a);
    uint32_t d[LANES] = { 0 };
    uint8_t p[LANES] = { 0 };
    for (ptx_mask m = lanes; m; m &= m - 1) {
        const int lane = ptx_first(m);
        const ptx_mask all = of_warp(lanes, lane);
        ptx_mask equal = 0;
        for (ptx_mask n = all; n; n &= n - 1) {
            const int other = ptx_first(n);
            if (i->wide ? wide[other] == wide[lane] : narrow[other] == narrow[lane]) equal |= 1ull << other;
        }
        p[lane] = equal == all;
        d[lane] = i->mode && equal != all ? 0 : (uint32_t)(equal >> lane / WARP * WARP);
    }
    ptx_write(g, i->d, d, 4, lanes);
    if (i->v[1] != PTX_NONE) ptx_write(g, i->v[1], p, 1, lanes);
    return 0;
}

int ptx_reduce(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    TOGETHER(g, i, lanes)
    const uint32_t *const a = ptx_at(g, i->a);
    uint32_t d[LANES] = { 0 };
    for (int warp = 0; warp < LANES / WARP; warp++) {
        const ptx_mask all = of_warp(lanes, warp * WARP);
        uint64_t sum = all ? a[ptx_first(all)] : 0;
        for (ptx_mask m = all & (all - 1); m; m &= m - 1) sum = i->atomic(sum, a[ptx_first(m)], 0);
        for (int k = 0; k < WARP; k++) d[warp * WARP + k] = (uint32_t)sum;
    }
    ptx_write(g, i->d, d, 4, lanes);
    return 0;
}

int ptx_active(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    uint32_t d[LANES];
    for (int k = 0; k < LANES; k++) d[k] = (uint32_t)(lanes >> k / WARP * WARP);
    ptx_write(g, i->d, d, 4, lanes);
    return 0;
}

int ptx_warp_sync(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    TOGETHER(g, i, lanes)
    for (int warp = 0; warp < LANES / WARP; warp++)
        if (of_warp(lanes, warp * WARP)) g->warp_time[warp]++;
    return 0;
}
