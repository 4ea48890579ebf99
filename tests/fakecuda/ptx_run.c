/* ptx_run.c: ptx_run: blocks in an order of the seed's, within a block groups of LANES threads. Lanes of a group
 * that went different ways run by the lowest program counter, which brings them together again; a group runs until
 * all of it waits at barriers or has left. */
#include "ptx_inner.h"

#include <fenv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t ptx_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15ull; /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

int ptx_fail(ptx_group *g, const ptx_inst *i, int lane, int code, const char *fmt, ...)
{
    ptx_run_state *const run = g->run;
    bool *const reported = &run->reported[i - run->k->code];
    if (code == 0 && *reported) return 0;
    if (code == 0) *reported = true;
    ptx_fault here = { 0 }, *const f = code == 0 ? &here : run->fault;
    const uint32_t *const block = run->l->block, t = (uint32_t)ptx_thread(g, lane);
    const int n = snprintf(f->text, sizeof f->text,
                           "kernel %.200s, PTX line %d, block (%u, %u, %u), thread (%u, %u, %u): ", run->k->name,
                           i->line, run->block[0], run->block[1], run->block[2], t % block[0], t / block[0] % block[1],
                           t / block[0] / block[1]);
    va_list args;
    va_start(args, fmt);
    if (n > 0 && (size_t)n < sizeof f->text) vsnprintf(f->text + n, sizeof f->text - (size_t)n, fmt, args);
    va_end(args);
    f->code = code;
    if (code == 0 && run->memory->report) run->memory->report(run->memory->user, f);
    return code;
}

/* ---- one instruction, lane by lane ------------------------------------------------------------------------------- */

const uint32_t *ptx_spread(ptx_group *g, ptx_mask lanes)
{
    if (g->spread_of != lanes) g->run->isa->spread(g->spread, lanes);
    g->spread_of = lanes;
    return g->spread;
}

void ptx_write(ptx_group *g, int32_t d, const void *s, int bytes, ptx_mask lanes)
{
    if (lanes == g->alive) memcpy(ptx_at(g, d), s, (size_t)bytes * LANES);
    else g->run->isa->blend(ptx_at(g, d), s, ptx_spread(g, lanes), bytes);
}

static void flush(void *values, char type)
{
    uint32_t *const narrow = values;
    uint64_t *const wide = values;
    for (int i = 0; type == 'f' && i < LANES; i++)
        if ((narrow[i] & 0x7F800000u) == 0) narrow[i] &= 0x80000000u;
    for (int i = 0; type == 'F' && i < LANES; i++)
        if ((wide[i] & 0x7FF0000000000000ull) == 0) wide[i] &= 1ull << 63;
}

static void saturate(void *values, char type) /* NaN becomes 0 */
{
    float *const narrow = values;
    double *const wide = values;
    for (int i = 0; type == 'f' && i < LANES; i++) narrow[i] = narrow[i] > 0 ? narrow[i] < 1 ? narrow[i] : 1 : 0;
    for (int i = 0; type == 'F' && i < LANES; i++) wide[i] = wide[i] > 0 ? wide[i] < 1 ? wide[i] : 1 : 0;
}

static void rectify(void *values, char type)
{
    float *const narrow = values;
    for (int i = 0; type == 'f' && i < LANES; i++) narrow[i] = narrow[i] < 0 ? 0 : narrow[i];
}

static void rounded(const ptx_inst *i, void *d, void *const *s)
{
    static const int modes[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD };
    if (i->round) fesetround(modes[i->round]);
    i->fn(d, s[0], s[1], s[2]);
    if (i->round) fesetround(FE_TONEAREST);
}

/* With what the name adds to the operation, and for some of the lanes only. */
static void run_some(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    _Alignas(64) uint64_t d[LANES], copies[3][LANES];
    void *s[3] = { ptx_at(g, i->a), ptx_at(g, i->b), ptx_at(g, i->c) };
    for (int k = 0; k < 3 && i->sig[k] && (i->flags & (PTX_FTZ | PTX_RELU)); k++) {
        const char type = i->sig[k + 1];
        if (type != 'f' && type != 'F') continue;
        memcpy(copies[k], s[k], type == 'f' ? 4 * LANES : 8 * LANES);
        if (i->flags & PTX_FTZ) flush(copies[k], type);
        if (i->flags & PTX_RELU) rectify(copies[k], type);
        s[k] = copies[k];
    }
    rounded(i, d, s);
    const char type = i->sig[0];
    if (i->flags & PTX_FTZ) flush(d, type);
    if (i->flags & PTX_SAT) saturate(d, type);
    ptx_write(g, i->d, d, type == 'p' ? 1 : type == 'd' || type == 'F' ? 8 : 4, lanes);
}

/* ---- ways -------------------------------------------------------------------------------------------------------- */

static void set_limit(ptx_group *g)
{
    g->limit = INT32_MAX;
    for (int k = 0; k < g->n_paths; k++)
        if (!g->paths[k].parked && g->paths[k].pc < g->limit) g->limit = g->paths[k].pc;
}

void ptx_wait(ptx_group *g, int pc, ptx_mask lanes, bool parked)
{
    int k = 0;
    while (k < g->n_paths && (g->paths[k].pc != pc || g->paths[k].parked != parked)) k++;
    if (k == g->n_paths) g->paths[g->n_paths++] = (ptx_path){ pc, 0, parked };
    g->paths[k].lanes |= lanes;
    if (!parked && pc < g->limit) g->limit = pc;
}

/* The lowest of those that can go on becomes the current one. */
static bool choose(ptx_group *g)
{
    int best = -1;
    for (int k = 0; k < g->n_paths; k++)
        if (!g->paths[k].parked && (best < 0 || g->paths[k].pc < g->paths[best].pc)) best = k;
    if (best < 0) return false;
    g->pc = g->paths[best].pc, g->lanes = g->paths[best].lanes;
    g->paths[best] = g->paths[--g->n_paths];
    set_limit(g);
    return true;
}

int ptx_branch(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    if (lanes == g->lanes) {
        g->pc = i->target;
    } else {
        g->lanes &= ~lanes;
        ptx_wait(g, i->target, lanes, false);
    }
    return 0;
}

int ptx_branch_indexed(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    const int *const table = &g->run->k->tables[i->target];
    const uint32_t *const index = ptx_at(g, i->a);
    g->lanes &= ~lanes;
    for (; lanes; lanes &= lanes - 1) {
        const int lane = ptx_first(lanes);
        if (index[lane] >= (uint32_t)table[0])
            return ptx_fail(g, i, lane, 719, "brx.idx %u of %d targets", index[lane], table[0]);
        ptx_wait(g, table[1 + index[lane]], 1ull << lane, false);
    }
    return 0;
}

int ptx_exit(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    (void)i;
    g->alive &= ~lanes;
    g->lanes &= ~lanes;
    return 0;
}

int ptx_nothing(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    (void)g, (void)i, (void)lanes;
    return 0;
}

int ptx_trap(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    return ptx_fail(g, i, ptx_first(lanes), 719, "the kernel trapped");
}

int ptx_clock(ptx_group *g, const ptx_inst *i, ptx_mask lanes)
{
    uint64_t wide[LANES];
    uint32_t narrow[LANES];
    for (int k = 0; k < LANES; k++) wide[k] = g->run->executed, narrow[k] = (uint32_t)g->run->executed;
    ptx_write(g, i->d, i->wide ? (void *)wide : (void *)narrow, i->wide ? 8 : 4, lanes);
    return 0;
}

static int run_path(ptx_group *g)
{
    ptx_run_state *const run = g->run;
    const ptx_inst *const code = run->k->code;
    while (g->lanes && g->pc < g->limit) {
        const ptx_inst *const i = &code[g->pc++];
        ptx_mask lanes = g->lanes;
        if (++run->executed > run->most)
            return ptx_fail(g, i, ptx_first(lanes), 702, "a block took more than %llu instructions: it hangs",
                            (unsigned long long)run->most);
        if (i->guard != PTX_NONE) {
            const ptx_mask yes = run->isa->bits(ptx_at(g, i->guard));
            lanes &= i->guard_not ? ~yes : yes;
            if (!lanes) continue;
        }
        if (i->fn) {
            if (lanes == g->alive && !i->flags && !i->round)
                i->fn(ptx_at(g, i->d), ptx_at(g, i->a), ptx_at(g, i->b), ptx_at(g, i->c));
            else run_some(g, i, lanes);
        } else {
            const int status = i->exec(g, i, lanes);
            if (status) return status;
        }
    }
    if (g->lanes) ptx_wait(g, g->pc, g->lanes, false);
    return 0;
}

static int run_group(ptx_group *g)
{
    for (ptx_mask tried = 0;; tried = g->alive) {
        while (choose(g)) {
            const int status = run_path(g);
            if (status) return status;
        }
        if (g->n_paths == 0) return 0;
        if (tried == g->alive) break;
        for (int k = 0; k < g->n_paths; k++) g->paths[k].parked = false; /* some that they waited for may have left */
        set_limit(g);
    }
    const ptx_path *const p = &g->paths[0];
    return ptx_fail(g, &g->run->k->code[p->pc], ptx_first(p->lanes), 719,
                    "waits for other threads of its warp, which do not come here");
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void begin_block(ptx_run_state *run, uint64_t number, bool first)
{
    const uint32_t *const grid = run->l->grid;
    run->block_number = number;
    run->block[0] = (uint32_t)(number % grid[0]);
    run->block[1] = (uint32_t)(number / grid[0] % grid[1]);
    run->block[2] = (uint32_t)(number / grid[0] / grid[1]);
    run->executed = 0;
    run->epoch++;
    memset(run->arrived, 0, sizeof run->arrived);
    memset(run->shared, 0xFF, run->shared_bytes);
    memset(run->local, 0xFF, run->k->local_bytes * (size_t)run->n_groups * LANES);
    for (int k = 0; k < run->n_groups; k++) {
        ptx_group *const g = &run->groups[k];
        const int n = run->n_threads - k * LANES;
        g->alive = n >= LANES ? ~(ptx_mask)0 : ((ptx_mask)1 << n) - 1;
        g->n_paths = g->n_barred = 0;
        g->limit = INT32_MAX;
        memset(g->warp_time, 0, sizeof g->warp_time);
        ptx_wait(g, 0, g->alive, false);
        ptx_specials_set(g, first);
    }
}

static int run_block(ptx_run_state *run)
{
    for (bool any = true; any;) {
        const int start = (int)(ptx_random(&run->random) % (uint64_t)run->n_groups);
        const bool back = ptx_random(&run->random) & 1;
        for (int k = 0; k < run->n_groups; k++) {
            const int at = (start + (back ? run->n_groups - k : k)) % run->n_groups;
            const int status = run_group(&run->groups[at]);
            if (status) return status;
        }
        const int status = ptx_barriers_open(run, &any);
        if (status) return status;
    }
    return 0;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t r = a % b;
        a = b, b = r;
    }
    return a;
}

static int run_blocks(ptx_run_state *run)
{
    const uint64_t n = run->n_blocks, start = ptx_random(&run->random) % n;
    uint64_t step = 1 + ptx_random(&run->random) % n;
    while (gcd(step, n) != 1) step++;
    uint64_t number = start;
    for (uint64_t k = 0; k < n; k++, number = (number + step) % n) {
        begin_block(run, number, k == 0);
        const int status = run_block(run);
        if (status) return status;
    }
    return 0;
}

static void *space(size_t bytes)
{
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

static bool open_run(ptx_run_state *run)
{
    const ptx_kernel *const k = run->k;
    const size_t n = (size_t)run->n_groups;
    run->groups = calloc(n, sizeof *run->groups);
    run->registers = space(n * k->register_bytes);
    run->shared = space(run->shared_bytes);
    run->local = space(n * LANES * k->local_bytes);
    run->ranges = calloc((size_t)k->n_memory + 1, sizeof *run->ranges);
    run->reported = calloc((size_t)k->n_code, sizeof *run->reported);
    if (!run->groups || !run->registers || !run->shared || !run->local || !run->ranges || !run->reported) return false;
    for (int i = 0; i < run->n_groups; i++) {
        ptx_group *const g = &run->groups[i];
        g->run = run, g->number = i;
        g->base[0] = run->registers + (size_t)i * k->register_bytes, g->base[1] = k->constants;
    }
    memset(run->registers, 0, n * k->register_bytes); /* predicates are 0 or 1 */
    return ptx_race_begin(run);
}

static void close_run(ptx_run_state *run)
{
    ptx_race_end(run);
    free(run->groups);
    free(run->registers);
    free(run->shared);
    free(run->local);
    free(run->ranges);
    free(run->reported);
}

int ptx_run(const ptx_kernel *k, const ptx_launch *l, const ptx_memory *memory, ptx_fault *fault)
{
    const uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    const uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    *fault = (ptx_fault){ 0 };
    if (threads == 0 || blocks == 0 || threads > (uint64_t)k->max_threads ||
        (k->required_size && threads != (uint64_t)k->max_threads)) {
        fault->code = 1;
        snprintf(fault->text, sizeof fault->text, "kernel %.200s: %llu blocks of %llu threads, made for %s %d", k->name,
                 (unsigned long long)blocks, (unsigned long long)threads, k->required_size ? "just" : "at most",
                 k->max_threads);
        return fault->code;
    }
    ptx_run_state run = { .k = k, .l = l, .memory = memory, .isa = k->module->isa, .fault = fault,
                          .n_threads = (int)threads, .n_groups = (int)((threads + LANES - 1) / LANES),
                          .shared_bytes = k->shared_bytes + l->dynamic_shared, .n_blocks = blocks, .random = l->seed,
                          .most = l->max_instructions ? l->max_instructions : UINT64_MAX };
    if (open_run(&run)) {
        run_blocks(&run);
    } else {
        fault->code = 2;
        snprintf(fault->text, sizeof fault->text, "kernel %.200s: out of memory", k->name);
    }
    close_run(&run);
    return fault->code;
}
