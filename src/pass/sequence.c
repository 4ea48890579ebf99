/* sequence.c: the order of steps when some values are dropped and made again, how many bytes live in it, and the schedule
 * that it stands for. Under recompute.c, which decides what to drop. */
#include "pass/recompute.h"

/* ---- what can be repeated ---------------------------------------------------------------------------------------- */

static bool in_arena(const sw__schedule *s, int32_t storage) { return s->storages[storage].kind == SW_STORE_ARENA; }

/* A step that only computes: the same inputs give the same bits again. One that reads what it writes would find its own
 * result, one that writes a variable would do so twice. */
static bool is_repeatable(const sw__schedule *s, const sw__step *t)
{
    for (int k = t->n_in; k < t->n_in + t->n_out; k++) {
        if (!in_arena(s, t->refs[k].storage)) return false;
        for (int i = 0; i < t->n_in; i++)
            if (t->refs[i].storage == t->refs[k].storage) return false;
    }
    if (t->kind == SW_STEP_OP) return (sw__op_table[t->op].flags & SW_OPF_PURE) != 0;
    for (int32_t j = 0; j < t->kernel->n_insts; j++) {
        const sw__inst *i = &t->kernel->inst[j];
        if ((i->kop == SW_K_LOAD || i->kop == SW_K_GATHER) && i->buffer >= t->n_in) return false;
    }
    return true;
}

/* Products and convolutions; and whatever else computes much for each byte. */
static bool is_dear(const sw__step *t)
{
    if (t->kind != SW_STEP_OP) return false;
    const uint8_t cls = sw__op_table[t->op].cls;
    const bool product = cls == SW_CLASS_CONTRACT || t->op == SW_OP_MATMUL || t->op == SW_OP_CONV;
    return product || cls == SW_CLASS_OWN || t->op == SW_OP_CONV_GRAD_X || t->op == SW_OP_CONV_GRAD_W ||
           t->flops > 16 * t->bytes;
}

/* Variables and the groups that they are packed in are the same memory; the schedule does not say which are whose, so a
 * group that is written stands for all variables. */
static uint32_t first_overwrite(const sw__schedule *s, const sw__step *t)
{
    uint32_t first = s->n_steps;
    for (int k = 0; k < t->n_in; k++) {
        const sw__storage *in = &s->storages[t->refs[k].storage];
        if (in->kind != SW_STORE_VAR && in->kind != SW_STORE_GROUP) continue;
        for (uint32_t i = 0; i < first; i++) {
            const sw__step *w = &s->steps[i];
            for (int j = w->n_in; j < w->n_in + w->n_out && i < first; j++) {
                const sw__storage *out = &s->storages[w->refs[j].storage];
                const bool variable = out->kind == SW_STORE_VAR || out->kind == SW_STORE_GROUP;
                if (variable && (out == in || out->kind != in->kind)) first = i;
            }
        }
    }
    return first;
}

/* An estimate of a step's time, in operations: a machine does about ten of them in the time in which it moves a byte, and a
 * launch costs as much as some microseconds. */
static double step_cost(const sw__step *s) { return s->flops + 10 * s->bytes + 2e5; }

static sw_status learn_heirs(sw__recompute *c, uint32_t i)
{
    const sw__step *t = &c->s->steps[i];
    c->heir_start[i] = (uint32_t)c->n_heirs;
    for (int o = t->n_in; t->kind == SW_STEP_KERNEL && o < t->n_in + t->n_out; o++)
        for (int k = 0; k < t->n_in; k++) {
            const int32_t in = t->refs[k].storage, out = t->refs[o].storage;
            if (!in_arena(c->s, in) || !in_arena(c->s, out) || !sw__may_take_over(c->s, t, in, out)) continue;
            SW_TRY(sw__grow(&c->heir, &c->cap_heirs, c->n_heirs + 1, sizeof *c->heir, "recomputing"));
            c->heir[c->n_heirs++] = (sw__heir){in, out};
        }
    c->heir_start[i + 1] = (uint32_t)c->n_heirs;
    return SW_OK;
}

static sw_status learn_steps(sw__recompute *c)
{
    for (uint32_t i = 0; i < c->s->n_steps; i++) {
        const sw__step *t = &c->s->steps[i];
        c->repeatable[i] = is_repeatable(c->s, t);
        c->dear[i] = is_dear(t);
        c->limit[i] = first_overwrite(c->s, t);
        c->cost[i] = step_cost(t);
        SW_TRY(learn_heirs(c, i));
    }
    return SW_OK;
}

/* ---- who makes what, who reads it -------------------------------------------------------------------------------- */

/* Told of every step that makes or reads a value, once for each. */
typedef void (*seen)(sw__recompute *c, uint32_t step, int32_t value, bool writes);

static void each_touch(sw__recompute *c, seen tell)
{
    for (uint32_t i = 0; i < c->s->n_steps; i++) {
        const sw__step *t = &c->s->steps[i];
        for (int k = 0; k < t->n_in + t->n_out; k++) {
            const int32_t r = t->refs[k].storage;
            const bool writes = k >= t->n_in;
            bool before = !in_arena(c->s, r);
            for (int j = writes ? t->n_in : 0; j < k && !before; j++) before = t->refs[j].storage == r;
            if (!before) tell(c, i, r, writes);
        }
    }
}

static void count(sw__recompute *c, uint32_t step, int32_t value, bool writes)
{
    sw__kept *v = &c->value[value];
    (void)step;
    if (writes) v->n_writers++;
    else v->n_uses++;
}

static void list(sw__recompute *c, uint32_t step, int32_t value, bool writes)
{
    sw__kept *v = &c->value[value];
    if (!writes) return;
    c->writer[v->first_writer + v->n_writers++] = step;
    v->fixed |= !c->repeatable[step];
}

static sw_status learn_values(sw__recompute *c)
{
    uint32_t writers = 0;
    each_touch(c, count);
    for (uint32_t v = 0; v < c->s->n_storages; v++) {
        c->value[v].first_writer = writers;
        writers += c->value[v].n_writers;
        c->value[v].n_writers = 0;
    }
    c->writer = sw__calloc((size_t)writers + 1, sizeof *c->writer);
    c->cap_entries = c->s->n_steps + (SW__VERSIONS - 1) * writers;
    c->entry = sw__calloc((size_t)c->cap_entries + 1, sizeof *c->entry);
    c->live = sw__calloc((size_t)c->cap_entries + 2, sizeof *c->live);
    if (!c->writer || !c->entry || !c->live)
        return sw__no_memory((size_t)c->cap_entries * sizeof *c->entry, "recomputing");
    each_touch(c, list);
    for (uint32_t v = 0; v < c->s->n_storages; v++) c->value[v].fixed |= c->value[v].n_writers == 0;
    for (uint32_t i = 0; i < c->s->n_outputs; i++) c->value[c->s->outputs[i].storage].fixed = true;
    return SW_OK;
}

sw_status sw__recompute_learn(sw__recompute *c, sw__schedule *s)
{
    const size_t n = (size_t)s->n_steps + 1, m = (size_t)s->n_storages + 1;
    *c = (sw__recompute){.s = s};
    c->repeatable = sw__calloc(n, sizeof *c->repeatable);
    c->dear = sw__calloc(n, sizeof *c->dear);
    c->limit = sw__calloc(n, sizeof *c->limit);
    c->cost = sw__calloc(n, sizeof *c->cost);
    c->heir_start = sw__calloc(n, sizeof *c->heir_start);
    c->over = sw__calloc(n, sizeof *c->over);
    c->value = sw__calloc(m, sizeof *c->value);
    c->cuts = sw__calloc(m, sizeof *c->cuts);
    c->version = sw__calloc(m, sizeof *c->version);
    c->lives = sw__calloc(m, sizeof *c->lives);
    if (!c->repeatable || !c->dear || !c->limit || !c->cost || !c->heir_start || !c->over || !c->value || !c->cuts ||
        !c->version || !c->lives)
        return sw__no_memory(n * 40 + m * 40, "recomputing");
    SW_TRY(learn_steps(c));
    return learn_values(c);
}

void sw__recompute_forget(sw__recompute *c)
{
    sw__free(c->repeatable);
    sw__free(c->dear);
    sw__free(c->limit);
    sw__free(c->cost);
    sw__free(c->heir_start);
    sw__free(c->heir);
    sw__free(c->over);
    sw__free(c->value);
    sw__free(c->cuts);
    sw__free(c->version);
    sw__free(c->lives);
    sw__free(c->writer);
    sw__free(c->entry);
    sw__free(c->live);
}

/* ---- the sequence ------------------------------------------------------------------------------------------------ */

static void lives_at(sw__lives *l, int version, int32_t at)
{
    if (l->first[version] < 0) l->first[version] = at;
    l->last[version] = at;
}

int sw__version_at(const sw__lives *l, uint32_t entry)
{
    const int32_t e = (int32_t)entry;
    for (int k = 0; k < SW__VERSIONS; k++)
        if (l->first[k] >= 0 && l->first[k] <= e && e <= l->last[k]) return k;
    return -1;
}

/* The version that is to be read at step `at`. */
static uint8_t wanted_version(const sw__recompute *c, int32_t value, uint32_t at)
{
    const sw__cuts *x = &c->cuts[value];
    uint8_t k = 0;
    while (k < x->n && x->at[k] < at) k++;
    return k;
}

/* The step comes next; repeated for `wanted`, or (wanted < 0) as the schedule has it. What a repeated step makes besides is
 * kept if that was dropped, too. Else it is written over its equal, if that lives, or beside. */
static void emit(sw__recompute *c, uint32_t step, uint32_t at, int32_t wanted)
{
    const sw__step *t = &c->s->steps[step];
    const int32_t e = (int32_t)c->n_entries;
    if (c->n_entries == c->cap_entries) {
        c->possible = false;
        return;
    }
    c->entry[c->n_entries++] = (sw__entry){step, at, wanted >= 0};
    for (int k = 0; k < t->n_in; k++) {
        const int32_t r = t->refs[k].storage;
        if (in_arena(c->s, r)) lives_at(&c->lives[r], c->version[r], e);
    }
    for (int k = t->n_in; k < t->n_in + t->n_out; k++) {
        const int32_t r = t->refs[k].storage;
        if (!in_arena(c->s, r)) continue;
        const uint8_t version = wanted >= 0 ? wanted_version(c, r, at) : 0;
        const bool gone = c->value[r].n_writers == 1 && c->version[r] < version;
        if (wanted >= 0 && r != wanted && !gone) continue;
        lives_at(&c->lives[r], version, e);
        if (r != wanted) c->version[r] = version;
    }
    if (wanted >= 0) c->extra += c->cost[step];
}

/* Sees to it that the value is there before step `at`: one that was dropped is made again, from what has to be made
 * again for that. */
static void demand(sw__recompute *c, int32_t value, uint32_t at)
{
    const sw__kept *v = &c->value[value];
    const uint8_t version = wanted_version(c, value, at);
    if (c->version[value] >= version) return;
    for (uint32_t k = 0; k < v->n_writers && c->possible; k++) {
        const uint32_t w = c->writer[v->first_writer + k];
        const sw__step *t = &c->s->steps[w];
        if (c->limit[w] < at || (c->dear[w] && !c->allow_dear)) c->possible = false;
        for (int i = 0; i < t->n_in && c->possible; i++)
            if (in_arena(c->s, t->refs[i].storage)) demand(c, t->refs[i].storage, at);
        if (c->possible) emit(c, w, at, value);
    }
    c->version[value] = version;
}

static void measure(sw__recompute *c);

void sw__recompute_try(sw__recompute *c)
{
    const uint32_t n = c->s->n_storages;
    memset(c->version, 0, n * sizeof *c->version);
    memset(c->lives, 0xFF, n * sizeof *c->lives);
    c->n_entries = 0;
    c->extra = 0;
    c->possible = true;
    for (uint32_t i = 0; i < c->s->n_steps && c->possible; i++) {
        const sw__step *t = &c->s->steps[i];
        for (int k = 0; k < t->n_in; k++)
            if (in_arena(c->s, t->refs[k].storage)) demand(c, t->refs[k].storage, i);
        emit(c, i, i, -1);
    }
    if (c->possible) measure(c);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int64_t bytes_of(const sw__recompute *c, int32_t storage) { return (int64_t)c->s->storages[storage].bytes; }

static bool begins_or_ends(const sw__lives *l, uint32_t e, bool begins)
{
    const int k = sw__version_at(l, e);
    return k >= 0 && (begins ? l->first[k] : l->last[k]) == (int32_t)e;
}

/* What the entry needs for itself: its workspace, results that nobody wants; less what is taken over in place. */
static int64_t own_bytes(const sw__recompute *c, uint32_t e)
{
    const sw__entry *y = &c->entry[e];
    const sw__step *t = &c->s->steps[y->step];
    int64_t own = t->workspace >= 0 ? bytes_of(c, t->workspace) : 0;
    int32_t taken[8];
    int n = 0;
    for (int k = t->n_in; y->again && k < t->n_in + t->n_out; k++)
        if (sw__version_at(&c->lives[t->refs[k].storage], e) < 0) own += bytes_of(c, t->refs[k].storage);
    for (uint32_t h = c->heir_start[y->step]; h < c->heir_start[y->step + 1]; h++) {
        const sw__heir *x = &c->heir[h];
        bool free = n + 2 <= 8 && begins_or_ends(&c->lives[x->in], e, false) && begins_or_ends(&c->lives[x->out], e, true);
        for (int i = 0; i < n && free; i++) free = taken[i] != x->in && taken[i] != x->out;
        if (!free) continue;
        taken[n++] = x->in;
        taken[n++] = x->out;
        own -= bytes_of(c, x->in);
    }
    return own;
}

/* Bytes alive in each entry, from where values come to life and die. */
static void add_lives(sw__recompute *c)
{
    for (uint32_t i = 0; i < c->s->n_outputs; i++) {
        sw__lives *l = &c->lives[c->s->outputs[i].storage];
        if (l->first[0] >= 0) l->last[0] = (int32_t)c->n_entries;
    }
    for (uint32_t v = 0; v < c->s->n_storages; v++)
        for (int k = 0; k < SW__VERSIONS; k++) {
            if (c->lives[v].first[k] < 0) continue;
            c->live[c->lives[v].first[k]] += bytes_of(c, (int32_t)v);
            c->live[c->lives[v].last[k] + 1] -= bytes_of(c, (int32_t)v);
        }
}

static void measure(sw__recompute *c)
{
    int64_t now = 0;
    memset(c->live, 0, ((size_t)c->n_entries + 2) * sizeof *c->live);
    memset(c->over, 0, ((size_t)c->s->n_steps + 1) * sizeof *c->over);
    add_lives(c);
    c->excess = 0;
    c->peak = 0;
    for (uint32_t e = 0; e < c->n_entries; e++) {
        now += c->live[e];
        c->live[e] = now + own_bytes(c, e);
        c->peak = SW_MAX(c->peak, c->live[e]);
        const int64_t over = c->live[e] - c->target;
        if (over <= 0) continue;
        c->excess += (double)over;
        c->over[c->entry[e].at] = SW_MAX(c->over[c->entry[e].at], over);
    }
}

/* ---- the schedule ------------------------------------------------------------------------------------------------ */

typedef struct applying {
    const sw__recompute *c;
    sw__arena *arena;
    sw__schedule *out;
    int32_t (*place)[SW__VERSIONS]; /* by storage: where each version is, or -1 */
} applying;

static sw_status copy_storage(sw__schedule *s, int32_t of, int32_t *out)
{
    SW_TRY(sw__grow(&s->storages, &s->cap_storages, s->n_storages + 1u, sizeof *s->storages, "storages"));
    s->storages[s->n_storages] = s->storages[of];
    *out = (int32_t)s->n_storages++;
    return SW_OK;
}

/* Where the value is in this entry: a version that lives, or beside for what nobody wants. */
static sw_status place_of(applying *a, uint32_t e, int32_t *r)
{
    if (!in_arena(a->c->s, *r)) return SW_OK;
    const int k = sw__version_at(&a->c->lives[*r], e);
    if (k < 0) return copy_storage(a->out, *r, r);
    int32_t *const place = &a->place[*r][k];
    if (k == 0) *place = *r;
    if (*place < 0) SW_TRY(copy_storage(a->out, *r, place));
    *r = *place;
    return SW_OK;
}

static sw_status apply_entry(applying *a, uint32_t e)
{
    const sw__entry *y = &a->c->entry[e];
    sw__step *t = &a->out->steps[e];
    *t = a->c->s->steps[y->step];
    const size_t n = (size_t)t->n_in + (size_t)t->n_out;
    sw__ref *refs = sw__arena_alloc(a->arena, (n + 1) * sizeof *refs);
    if (!refs) return sw__no_memory((n + 1) * sizeof *refs, "a step");
    if (n) memcpy(refs, t->refs, n * sizeof *refs);
    t->refs = refs;
    t->again = y->again;
    for (size_t k = 0; k < n; k++) SW_TRY(place_of(a, e, &refs[k].storage));
    return y->again && t->workspace >= 0 ? copy_storage(a->out, t->workspace, &t->workspace) : SW_OK;
}

sw_status sw__recompute_apply(const sw__recompute *c, sw__arena *arena, sw__schedule *out)
{
    const size_t n = (size_t)c->s->n_storages + 1;
    applying a = {.c = c, .arena = arena, .out = out};
    *out = *c->s;
    out->steps = sw__calloc((size_t)c->n_entries + 1, sizeof *out->steps);
    out->storages = sw__calloc(n, sizeof *out->storages);
    a.place = sw__malloc(n * sizeof *a.place);
    sw_status st = SW_OK;
    if (!out->steps || !out->storages || !a.place) st = sw__no_memory(n * sizeof *out->storages, "recomputing");
    if (st == SW_OK) {
        out->n_steps = c->n_entries;
        out->cap_steps = (size_t)c->n_entries + 1;
        out->cap_storages = n;
        memcpy(out->storages, c->s->storages, c->s->n_storages * sizeof *out->storages);
        memset(a.place, 0xFF, n * sizeof *a.place);
    }
    for (uint32_t e = 0; e < c->n_entries && st == SW_OK; e++) st = apply_entry(&a, e);
    sw__free(a.place);
    return st;
}
