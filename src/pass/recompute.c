/* recompute.c: fewer bytes for more arithmetic: which values die early and are made again when they are wanted (Chen et al.
 * 2016, "Training deep nets with sublinear memory cost"; chosen greedily by bytes over the goal for each operation). After
 * the schedule is built and its steps are planned, before memory.c places what lives: docs/memory.md, decision 080.
 * A step is repeated as it is, the same kernel on the same inputs, so no bit of a result changes. */
#include "pass/recompute.h"

#define ROUNDS 12        /* times that the target is lowered because what was placed has gaps */
#define REFRESH 24       /* choices after which all scores are found anew */
#define NEAR 1.5         /* times the goal: what is farther away is not tried for again */
#define SMALL 2000       /* values that are so many times smaller than the arena are left alone */
#define MOST_CHAIN 512   /* values that one choice may drop */

/* ---- steps that update small variables --------------------------------------------------------------------------- */

#define SMALL_UPDATE 65536 /* bytes that may have to live longer for it */

/* Nothing of what it makes is read in this run, and little of what it reads has to be kept for it. */
static bool may_be_last(const sw__schedule *s, const sw__step *t)
{
    size_t kept = 0;
    bool updates = false;
    for (int k = 0; k < t->n_in + t->n_out; k++) {
        const sw__storage *x = &s->storages[t->refs[k].storage];
        if (k >= t->n_in && x->kind == SW_STORE_ARENA) return false;
        updates |= k >= t->n_in;
        if (x->kind == SW_STORE_ARENA) kept += x->bytes;
    }
    return updates && kept <= SMALL_UPDATE;
}

/* A counter of random numbers that is advanced early would keep what was drawn with it from being drawn again. All who read
 * a variable read its old value, so whoever writes it may always wait. */
static sw_status updates_last(sw__schedule *s)
{
    sw__step *moved = sw__calloc((size_t)s->n_steps + 1, sizeof *moved);
    if (!moved) return sw__no_memory(s->n_steps * sizeof *moved, "ordering steps");
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_steps; i++) s->steps[i].origin = i;
    for (int last = 0; last < 2; last++)
        for (uint32_t i = 0; i < s->n_steps; i++)
            if (may_be_last(s, &s->steps[i]) == (last == 1)) moved[n++] = s->steps[i];
    if (n) memcpy(s->steps, moved, n * sizeof *moved);
    sw__free(moved);
    return SW_OK;
}

/* ---- one choice -------------------------------------------------------------------------------------------------- */

typedef struct choice { int32_t value; uint32_t cut; } choice;

/* A step that reads or writes a value in the sequence that was looked at, and the value's version there. */
typedef struct touch { uint32_t at; int version; } touch;

typedef struct search {
    sw__recompute c;
    choice *choice;   /* in the order in which they were made */
    uint32_t n, cap;
    double *over;     /* by step: sums of the bytes over the target before it */
    uint32_t *start;  /* by storage: where its touches begin in … */
    touch *touch;     /* … who reads or writes it, one after another */
    struct move *moves;
    uint32_t n_moves;
    size_t goal, least; /* least: the smallest arena that was found */
    choice *best;       /* the choices for it */
    uint32_t n_best;
} search;

/* The value dies after that step; false: it does so already, or has died often enough. */
static bool cut_at(search *f, choice d)
{
    sw__cuts *x = &f->c.cuts[d.value];
    uint32_t k = 0;
    while (k < x->n && x->at[k] < d.cut) k++;
    if (x->n == SW__VERSIONS - 1 || (k < x->n && x->at[k] == d.cut)) return false;
    for (uint32_t i = x->n++; i > k; i--) x->at[i] = x->at[i - 1];
    x->at[k] = d.cut;
    return true;
}

static bool drop(search *f, int32_t value, uint32_t cut)
{
    const choice d = {value, cut};
    if (f->n == f->cap || !cut_at(f, d)) return false;
    f->choice[f->n++] = d;
    return true;
}

static void keep(search *f, choice d)
{
    sw__cuts *x = &f->c.cuts[d.value];
    uint32_t k = 0;
    while (k < x->n && x->at[k] != d.cut) k++;
    if (k == x->n) return;
    for (x->n--; k < x->n; k++) x->at[k] = x->at[k + 1];
}

static void undo(search *f, uint32_t until)
{
    while (f->n > until) keep(f, f->choice[--f->n]);
}

static uint32_t made(const sw__recompute *c, const sw__kept *v) { return c->writer[v->first_writer + v->n_writers - 1]; }

/* The stretch between two uses of one version in which it weighs most while too much lives; false: in none. */
static bool longest_gap(const search *f, int32_t value, uint32_t *cut, uint32_t *back)
{
    const uint32_t last = made(&f->c, &f->c.value[value]);
    double most = 0;
    for (uint32_t k = f->start[value]; k + 1 < f->start[value + 1]; k++) {
        const uint32_t from = f->touch[k].at, to = f->touch[k + 1].at;
        if (from < last || to <= from || f->touch[k].version != f->touch[k + 1].version) continue;
        const double over = f->over[to] - f->over[from + 1];
        if (over <= most) continue;
        most = over;
        *cut = from;
        *back = to;
    }
    return most > 0;
}

/* The last step at which the value is read before `back`, if it is not read in `back` or after: it would be kept only for
 * what is repeated then. */
static bool last_before(const search *f, int32_t value, uint32_t back, uint32_t *last)
{
    const uint32_t from = f->start[value], to = f->start[value + 1];
    if (from == to) return false;
    *last = f->touch[to - 1].at;
    return *last < back;
}

/* What the value is made from and would have to be kept for it is dropped with it, and so on. */
static void drop_chain(search *f, uint32_t back)
{
    const sw__recompute *c = &f->c;
    const uint32_t first = f->n - 1;
    for (uint32_t at = first; at < f->n && f->n - first < MOST_CHAIN; at++) {
        const sw__kept *v = &c->value[f->choice[at].value];
        for (uint32_t k = 0; k < v->n_writers; k++) {
            const sw__step *t = &c->s->steps[c->writer[v->first_writer + k]];
            for (int i = 0; i < t->n_in; i++) {
                const int32_t r = t->refs[i].storage;
                uint32_t last;
                if (c->s->storages[r].kind == SW_STORE_ARENA && !c->value[r].fixed && last_before(f, r, back, &last))
                    (void)drop(f, r, last);
            }
        }
    }
}

typedef struct move { int32_t value; bool chain; double score; } move;

static bool make_move(search *f, const move *m)
{
    uint32_t cut = 0, back = 0;
    if (!longest_gap(f, m->value, &cut, &back) || !drop(f, m->value, cut)) return false;
    if (m->chain) drop_chain(f, back);
    return true;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* Who touches what, by counting. */
static void list_touches(search *f, bool count)
{
    const sw__schedule *s = f->c.s;
    for (uint32_t e = 0; e < f->c.n_entries; e++) {
        const sw__step *t = &s->steps[f->c.entry[e].step];
        for (int k = 0; k < t->n_in + t->n_out; k++) {
            const int32_t r = t->refs[k].storage;
            const int version = s->storages[r].kind == SW_STORE_ARENA ? sw__version_at(&f->c.lives[r], e) : -1;
            if (version < 0) continue;
            if (count) f->start[r + 2]++;
            else f->touch[f->start[r + 1]++] = (touch){f->c.entry[e].at, version};
        }
    }
}

/* The present sequence; who touches what in it, and sums over it for longest_gap. */
static void look(search *f)
{
    const uint32_t n = f->c.s->n_storages;
    double sum = 0;
    sw__recompute_try(&f->c);
    for (uint32_t i = 0; i < f->c.s->n_steps; i++) {
        f->over[i] = sum;
        sum += (double)f->c.over[i];
    }
    f->over[f->c.s->n_steps] = sum;
    memset(f->start, 0, ((size_t)n + 3) * sizeof *f->start);
    list_touches(f, true);
    for (uint32_t v = 1; v <= n; v++) f->start[v + 1] += f->start[v];
    list_touches(f, false);
}

/* Bytes over the target (times how long) that the move saves for each operation that it costs; 0: it does not help. What look
 * found stays as it is. */
static void score(search *f, move *m, double excess, double extra)
{
    const uint32_t before = f->n;
    m->score = 0;
    if (!make_move(f, m)) return;
    sw__recompute_try(&f->c);
    const double gain = f->c.possible ? excess - f->c.excess : 0;
    undo(f, before);
    if (gain > 0) m->score = gain / SW_MAX(f->c.extra - extra, 1.0);
}

static move *best_move(search *f)
{
    move *best = NULL;
    for (uint32_t i = 0; i < f->n_moves; i++)
        if (f->moves[i].score > 0 && (!best || f->moves[i].score > best->score)) best = &f->moves[i];
    return best;
}

static move *score_all(search *f, double excess, double extra)
{
    for (uint32_t i = 0; i < f->n_moves; i++) score(f, &f->moves[i], excess, extra);
    return best_move(f);
}

/* Scores mostly shrink as more is dropped: a move whose new score still beats the others' old ones is the best. */
static move *next_move(search *f, bool all, double excess, double extra)
{
    move *m = all ? score_all(f, excess, extra) : best_move(f);
    for (uint32_t tries = 0; m && !all && tries < f->n_moves; tries++) {
        const double old = m->score;
        score(f, m, excess, extra);
        if (m->score >= old || best_move(f) == m) break;
        m = best_move(f);
    }
    return m || all ? m : score_all(f, excess, extra); /* what did not help before may help now */
}

/* Drops values until no entry is over the target; false: it cannot be reached so. */
static bool reach(search *f)
{
    for (int k = 0; f->n < f->cap; k++) {
        look(f);
        if (f->c.excess <= 0) return true;
        move *m = next_move(f, k % REFRESH == 0, f->c.excess, f->c.extra);
        if (!m) return false;
        if (!make_move(f, m)) m->score = 0;
    }
    return false;
}

/* The bytes that the present sequence takes when it is placed. */
static sw_status placed(search *f, const sw__traits *t, size_t *bytes)
{
    sw__arena arena = {0};
    sw__schedule s = {0};
    sw__recompute_try(&f->c);
    sw_status st = sw__recompute_apply(&f->c, &arena, &s);
    if (st == SW_OK) st = sw__plan_memory(&s, t);
    *bytes = s.arena_bytes;
    sw__free(s.steps);
    sw__free(s.storages);
    sw__arena_free(&arena);
    return st;
}

static void remember(search *f, size_t bytes)
{
    if (bytes >= f->least) return;
    f->least = bytes;
    f->n_best = f->n;
    if (f->n) memcpy(f->best, f->choice, f->n * sizeof *f->best);
}

static void recall(search *f)
{
    undo(f, 0);
    for (uint32_t i = 0; i < f->n_best; i++) (void)drop(f, f->best[i].value, f->best[i].cut);
}

/* Lowers the target until what is placed fits, or nothing more helps. */
static sw_status find(search *f, const sw__traits *t, double target)
{
    f->c.target = (int64_t)target;
    for (int round = 0; round < ROUNDS && f->least > f->goal; round++) {
        size_t bytes = 0;
        const bool reached = reach(f);
        SW_TRY(placed(f, t, &bytes));
        remember(f, bytes);
        if (!reached) break;
        f->c.target = (int64_t)((double)f->c.target * SW_MIN(0.995, 0.995 * (double)f->goal / (double)bytes));
    }
    return SW_OK;
}

/* Without products first. A choice that was good early on may be in the way later: then anew, towards less than the goal,
 * so that others come first. */
static sw_status find_all(search *f, const sw__traits *t)
{
    static const double anew[] = {0.9, 0.8, 0.65, 0.45, 0.25};
    SW_TRY(find(f, t, (double)f->goal));
    f->c.allow_dear = true;
    if (f->least > f->goal) SW_TRY(find(f, t, (double)f->goal));
    if ((double)f->least > NEAR * (double)f->goal) return SW_OK;
    for (size_t i = 0; i < SW_COUNT(anew) && f->least > f->goal; i++) {
        undo(f, 0);
        SW_TRY(find(f, t, anew[i] * (double)f->goal));
    }
    return SW_OK;
}

/* What was dropped and is not needed any more is kept after all, the last choices (which were the dearest) first. */
static sw_status prune(search *f, const sw__traits *t)
{
    recall(f);
    f->c.target = (int64_t)f->goal;
    for (uint32_t k = f->n; k-- > 0;) {
        const choice d = f->choice[k];
        size_t bytes = SIZE_MAX;
        keep(f, d);
        sw__recompute_try(&f->c);
        if (f->c.possible && f->c.peak <= f->c.target) SW_TRY(placed(f, t, &bytes));
        if (bytes <= f->goal) f->choice[k] = f->choice[--f->n];
        else (void)cut_at(f, d);
    }
    return SW_OK;
}

/* Two moves for each value that can be made again: alone, and with what it is made from. */
static void list_moves(search *f)
{
    const sw__schedule *s = f->c.s;
    for (uint32_t v = 0; v < s->n_storages; v++) {
        const bool can = s->storages[v].kind == SW_STORE_ARENA && !f->c.value[v].fixed && f->c.value[v].n_uses > 0 &&
                         s->storages[v].bytes >= s->arena_bytes / SMALL;
        for (int chain = 0; chain < 2 && can; chain++) f->moves[f->n_moves++] = (move){(int32_t)v, chain == 1, 0};
    }
}

/* Each step comes once, and again for each version of each value that it makes. */
static size_t most_touches(const sw__schedule *s)
{
    size_t n = 1;
    for (uint32_t i = 0; i < s->n_steps; i++)
        n += (size_t)(s->steps[i].n_in + s->steps[i].n_out) * (size_t)(1 + (SW__VERSIONS - 1) * s->steps[i].n_out);
    return n;
}

static sw_status begin(search *f, sw__schedule *s, size_t goal)
{
    const size_t n = (size_t)s->n_storages + 1;
    f->goal = goal;
    f->least = s->arena_bytes;
    f->moves = sw__calloc(n * 2, sizeof *f->moves);
    f->over = sw__calloc((size_t)s->n_steps + 2, sizeof *f->over);
    f->cap = (uint32_t)n * (SW__VERSIONS - 1);
    f->choice = sw__calloc(f->cap, sizeof *f->choice);
    f->best = sw__calloc(f->cap, sizeof *f->best);
    f->start = sw__calloc(n + 3, sizeof *f->start);
    f->touch = sw__calloc(most_touches(s), sizeof *f->touch);
    if (!f->moves || !f->over || !f->choice || !f->best || !f->start || !f->touch)
        return sw__no_memory(n * sizeof *f->moves * 2, "recomputing");
    SW_TRY(sw__recompute_learn(&f->c, s));
    list_moves(f);
    return SW_OK;
}

static void end(search *f)
{
    sw__recompute_forget(&f->c);
    sw__free(f->moves);
    sw__free(f->over);
    sw__free(f->choice);
    sw__free(f->best);
    sw__free(f->start);
    sw__free(f->touch);
}

/* The best that was found becomes the schedule. */
static sw_status commit(search *f, sw__schedule *s, const sw__traits *t, sw__recomputed *out)
{
    sw__schedule made_again = {0};
    sw__recompute_try(&f->c);
    const sw_status st = sw__recompute_apply(&f->c, &s->arena, &made_again);
    if (st != SW_OK) {
        sw__free(made_again.steps);
        sw__free(made_again.storages);
        return st;
    }
    for (uint32_t e = 0; e < f->c.n_entries; e++) {
        const sw__step *step = &s->steps[f->c.entry[e].step];
        out->steps += f->c.entry[e].again;
        out->flops += f->c.entry[e].again ? step->flops : 0;
        out->bytes += f->c.entry[e].again ? step->bytes : 0;
        out->dear += f->c.entry[e].again && f->c.dear[f->c.entry[e].step];
    }
    double whole = 0;
    for (uint32_t i = 0; i < s->n_steps; i++) whole += f->c.cost[i];
    out->slower = whole > 0 ? f->c.extra / whole : 0;
    const sw__arena arena = s->arena;
    sw__free(s->steps);
    sw__free(s->storages);
    *s = made_again;
    s->arena = arena;
    return sw__plan_memory(s, t);
}

sw_status sw__recompute_until(sw__schedule *s, const sw__traits *t, size_t goal, sw__recomputed *out)
{
    search f = {.least = SIZE_MAX};
    *out = (sw__recomputed){.fits = s->arena_bytes <= goal};
    if (out->fits) return SW_OK;
    SW_TRY(updates_last(s));
    sw_status st = begin(&f, s, goal);
    if (st == SW_OK) st = find_all(&f, t);
    out->fits = f.least <= goal;
    if (st == SW_OK && out->fits) st = prune(&f, t);
    else if (st == SW_OK) recall(&f);
    if (st == SW_OK) st = commit(&f, s, t, out);
    end(&f);
    return st;
}
