/* order.c: assigns, and the order of the steps: what depends on what, then greedily whatever frees most memory.
 * Last part of schedule_build; afterwards steps have their final numbers. */
#include "pass/sched.h"


typedef struct link { uint32_t from, to; } link;

typedef struct orderer {
    sw__sched *b;
    uint32_t *writer_start, *writer; /* by value: the steps that write it, parts included */
    link *links;                     /* from before to */
    size_t n_links, cap_links;
    uint32_t *mark, stamp;           /* by step: seen in this search */
    uint32_t *stack;
    uint32_t *head;                  /* by step: 1 + its last link, from which `next` goes on */
    uint32_t *next;
    size_t cap_next;
} orderer;

/* ---- dependences ------------------------------------------------------------------------------------------------- */

static sw_status add_link(orderer *o, uint32_t from, uint32_t to)
{
    if (from == to) return SW_OK;
    SW_TRY(sw__grow(&o->links, &o->cap_links, o->n_links + 1, sizeof *o->links, "dependences"));
    SW_TRY(sw__grow(&o->next, &o->cap_next, o->n_links + 1, sizeof *o->next, "dependences"));
    o->links[o->n_links] = (link){from, to};
    o->next[o->n_links] = o->head[from];
    o->head[from] = (uint32_t)++o->n_links;
    return SW_OK;
}

/* Writers of each value in one array, by counting. */
static sw_status index_writers(orderer *o)
{
    const sw__sched *b = o->b;
    const size_t n = b->n_values;
    o->writer_start = sw__calloc(n + 2, sizeof *o->writer_start);
    o->writer = sw__calloc(b->n_writes + 1, sizeof *o->writer);
    if (!o->writer_start || !o->writer) return sw__no_memory((n + b->n_writes) * sizeof *o->writer, "dependences");
    for (size_t i = 0; i < b->n_writes; i++) o->writer_start[b->writes[i].value + 2]++;
    for (size_t i = 1; i <= n; i++) o->writer_start[i + 1] += o->writer_start[i];
    for (size_t i = 0; i < b->n_writes; i++) o->writer[o->writer_start[b->writes[i].value + 1]++] = b->writes[i].step;
    return SW_OK;
}

static int compare_parts(const void *x, const void *y)
{
    const sw__part *a = x, *c = y;
    if (a->whole != c->whole) return a->whole < c->whole ? -1 : 1;
    return (a->part > c->part) - (a->part < c->part);
}

static size_t first_part(const sw__sched *b, uint32_t whole)
{
    size_t lo = 0, hi = b->n_parts;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (b->parts[mid].whole < whole) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

/* Whoever reads a value waits for its writers and those of its parts. Parts nest as deep as concats do. */
static sw_status link_value(orderer *o, uint32_t value, uint32_t reader)
{
    const sw__sched *b = o->b;
    for (uint32_t i = o->writer_start[value]; i < o->writer_start[value + 1]; i++)
        SW_TRY(add_link(o, o->writer[i], reader));
    for (size_t i = first_part(b, value); i < b->n_parts && b->parts[i].whole == value; i++)
        SW_TRY(link_value(o, b->parts[i].part, reader));
    return SW_OK;
}

/* Whatever writes the value waits for `first`. */
static sw_status link_after(orderer *o, uint32_t value, uint32_t first)
{
    const sw__sched *b = o->b;
    for (uint32_t i = o->writer_start[value]; i < o->writer_start[value + 1]; i++)
        SW_TRY(link_value(o, first, o->writer[i]));
    for (size_t i = first_part(b, value); i < b->n_parts && b->parts[i].whole == value; i++)
        SW_TRY(link_after(o, b->parts[i].part, first));
    return SW_OK;
}

static sw_status link_all(orderer *o)
{
    sw__sched *b = o->b;
    if (b->n_parts) qsort(b->parts, b->n_parts, sizeof *b->parts, compare_parts);
    SW_TRY(index_writers(o));
    for (size_t i = 0; i < b->n_reads; i++) SW_TRY(link_value(o, b->reads[i].value, b->reads[i].step));
    for (size_t i = 0; i < b->n_after; i++) SW_TRY(link_after(o, b->after[i].whole, b->after[i].part));
    return SW_OK;
}

/* Is there a way? Marks all that was met. */
static bool reaches(orderer *o, uint32_t from, uint32_t to)
{
    uint32_t n = 0;
    o->stamp++;
    if (!o->links) return from == to;
    o->stack[n++] = from;
    o->mark[from] = o->stamp;
    while (n) {
        const uint32_t s = o->stack[--n];
        if (s == to) return true;
        for (uint32_t l = o->head[s]; l; l = o->next[l - 1]) {
            const uint32_t t = o->links[l - 1].to;
            if (o->mark[t] == o->stamp) continue;
            o->mark[t] = o->stamp;
            o->stack[n++] = t;
        }
    }
    return false;
}

/* ---- assigns ----------------------------------------------------------------------------------------------------- */

/* The storages are the same memory: one variable, or a variable and the group that it is in. */
static bool overlap(const sw__sched *b, int32_t x, int32_t y)
{
    const sw__storage *s = &b->s->storages[x], *t = &b->s->storages[y];
    if (x == y) return true;
    if (s->kind == SW_STORE_VAR && t->kind == SW_STORE_GROUP) return b->g->vars[s->index].group == (int32_t)t->index;
    if (s->kind == SW_STORE_GROUP && t->kind == SW_STORE_VAR) return b->g->vars[t->index].group == (int32_t)s->index;
    return false;
}

static bool step_uses(const sw__sched *b, uint32_t step, int32_t storage)
{
    const sw__step *s = &b->s->steps[step];
    for (int i = 0; i < s->n_in; i++)
        if (overlap(b, s->refs[i].storage, storage)) return true;
    return false;
}

static const sw__inst *store_to(const sw__step *s, int32_t storage)
{
    for (int32_t j = 0; j < s->kernel->n_insts; j++) {
        const sw__inst *i = &s->kernel->inst[j];
        if (i->kop == SW_K_STORE && s->refs[i->buffer].storage == storage) return i;
    }
    return NULL;
}

bool sw__may_overwrite(const sw__kernel *k, const sw__inst *load, const sw__inst *store)
{
    int last = 0;
    if (load->kop != SW_K_LOAD || load->masked || load->offset != store->offset) return false;
    for (int x = 0; x < k->rank; x++)
        if (load->stride[x] != store->stride[x] && k->extent[x] > 1) return false;
    for (int32_t j = 0; j < k->n_insts; j++)
        if (store->full ? k->inst[j].full : true) last = SW_MAX(last, k->inst[j].phase);
    return store->phase >= last;
}

/* The step computes the new value point by point from the old one, so it may write over it. */
static bool writes_over(const sw__sched *b, uint32_t step, int32_t from, int32_t to)
{
    const sw__step *s = &b->s->steps[step];
    if (s->kind != SW_STEP_KERNEL) return !step_uses(b, step, to);
    const sw__inst *store = store_to(s, from);
    if (!store) return false;
    for (int32_t j = 0; j < s->kernel->n_insts; j++) {
        const sw__inst *i = &s->kernel->inst[j];
        if (i->kop != SW_K_LOAD && i->kop != SW_K_GATHER) continue;
        const int32_t storage = s->refs[i->buffer].storage;
        if (overlap(b, storage, to) && (storage != to || !sw__may_overwrite(s->kernel, i, store))) return false;
    }
    return true;
}

/* The one step that writes the value; UINT32_MAX if there is none or there are several. */
static uint32_t only_writer(const orderer *o, uint32_t value)
{
    const sw__sched *b = o->b;
    const size_t part = first_part(b, value);
    if (part < b->n_parts && b->parts[part].whole == value) return UINT32_MAX;
    if (o->writer_start[value + 1] - o->writer_start[value] != 1) return UINT32_MAX;
    return o->writer[o->writer_start[value]];
}

/* Makes every other reader of the variable come before `step`; false if one of them depends on it. */
static sw_status readers_first(orderer *o, int32_t storage, uint32_t step, bool *possible)
{
    const uint32_t n = o->b->s->n_steps;
    *possible = true;
    (void)reaches(o, step, UINT32_MAX); /* marks all that depend on the step */
    for (uint32_t i = 0; i < n && *possible; i++)
        if (i != step && o->mark[i] == o->stamp && step_uses(o->b, i, storage)) *possible = false;
    for (uint32_t i = 0; i < n && *possible; i++)
        if (i != step && step_uses(o->b, i, storage)) SW_TRY(add_link(o, i, step));
    return SW_OK;
}

static void rename_storage(sw__schedule *s, int32_t from, int32_t to)
{
    for (uint32_t i = 0; i < s->n_steps; i++)
        for (int k = 0; k < s->steps[i].n_in + s->steps[i].n_out; k++)
            if (s->steps[i].refs[k].storage == from) s->steps[i].refs[k].storage = to;
    s->storages[from].bytes = 0;
    s->storages[from].elements = 0;
}

/* The value's storage becomes the variable itself, if all who want the old value can have been before. Otherwise copied
 * is set, and a copy at the end will do it. */
static sw_status assign_in_place(orderer *o, sw__pending *p, bool *done)
{
    sw__sched *b = o->b;
    const uint32_t w = only_writer(o, p->from.value);
    *done = false;
    if (!b->t->fuse || w == UINT32_MAX || !writes_over(b, w, p->from.ref.storage, p->to.ref.storage)) return SW_OK;
    SW_TRY(readers_first(o, p->to.ref.storage, w, done));
    return SW_OK;
}

/* Several variables must not become each other's: only after all are decided are storages renamed. */
static sw_status do_assigns(orderer *o, sw__pending *p, uint32_t n, bool *in_place)
{
    sw__sched *b = o->b;
    for (uint32_t i = 0; i < n; i++) SW_TRY(assign_in_place(o, &p[i], &in_place[i]));
    const uint32_t before = b->s->n_steps;
    for (uint32_t i = 0; i < n; i++) {
        if (in_place[i]) continue;
        const size_t n_reads = b->n_reads;
        p[i].to.value = sw__sched_value(b);
        SW_TRY(sw__sched_copy(b, &p[i].from, &p[i].to, sw__sched_name(b, b->g->nodes[p[i].node].in[0]), UINT32_MAX));
        if (b->n_reads == n_reads) continue; /* nothing in it */
        const uint32_t copy = b->s->n_steps - 1;
        SW_TRY(link_value(o, p[i].from.value, copy));
        for (uint32_t s = 0; s < before; s++)
            if (step_uses(b, s, p[i].to.ref.storage)) SW_TRY(add_link(o, s, copy));
    }
    for (uint32_t i = 0; i < n; i++)
        if (in_place[i]) rename_storage(b->s, p[i].from.ref.storage, p[i].to.ref.storage);
    return SW_OK;
}

/* ---- sorting ----------------------------------------------------------------------------------------------------- */

/* A step that could run, by what it does to the arena: the less the better, then what comes first in the graph. */
typedef struct ready { int64_t growth; uint32_t key, step; } ready;

/* What a step does to the arena changes only when another that has a tensor in common runs, and then it becomes less: so a
 * heap is enough, into which such a step goes once more; the entry that was there is passed over when it comes. */
typedef struct sorter {
    sw__schedule *s;
    const uint32_t *key;
    uint32_t *waits;      /* by step: links not yet satisfied */
    int32_t *users;       /* by storage: uses by steps that have not run … */
    uint64_t *user_sum;   /* … and the sum of those steps' numbers: the one that is left is known by it */
    uint32_t *use_start, *use; /* by storage: the steps that use it, one after the other */
    bool *born, *stays;   /* by storage */
    bool *done;           /* by step */
    int64_t *growth;      /* by step that is ready: as in its newest entry */
    ready *heap;
    size_t n_heap, cap_heap;
    uint32_t *order, n;
} sorter;

static bool before(const ready *a, const ready *b)
{
    if (a->growth != b->growth) return a->growth < b->growth;
    return a->key != b->key ? a->key < b->key : a->step < b->step;
}

static sw_status heap_push(sorter *t, ready r)
{
    SW_TRY(sw__grow(&t->heap, &t->cap_heap, t->n_heap + 1, sizeof *t->heap, "steps that are ready"));
    size_t at = t->n_heap++;
    for (; at > 0 && before(&r, &t->heap[(at - 1) / 2]); at = (at - 1) / 2) t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = r;
    return SW_OK;
}

static ready heap_pop(sorter *t)
{
    const ready first = t->heap[0], last = t->heap[--t->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < t->n_heap; at = child) {
        if (child + 1 < t->n_heap && before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!before(&t->heap[child], &last)) break;
        t->heap[at] = t->heap[child];
    }
    t->heap[at] = last;
    return first;
}

/* Arena bytes that come to life minus those that die if the step runs now; 0 if it shrinks nothing. */
static int64_t growth_of(const sorter *t, const sw__step *s)
{
    int64_t d = 0;
    for (int i = 0; i < s->n_in + s->n_out; i++) {
        const int32_t r = s->refs[i].storage;
        bool first = true;
        int32_t here = 0;
        for (int j = 0; j < s->n_in + s->n_out; j++) {
            if (s->refs[j].storage != r) continue;
            if (j < i) first = false;
            here++;
        }
        if (!first || t->s->storages[r].kind != SW_STORE_ARENA) continue;
        if (!t->born[r]) d += (int64_t)t->s->storages[r].bytes;
        if (!t->stays[r] && t->users[r] == here) d -= (int64_t)t->s->storages[r].bytes;
    }
    return SW_MIN(d, (int64_t)0);
}

static sw_status make_ready(sorter *t, uint32_t step)
{
    t->growth[step] = growth_of(t, &t->s->steps[step]);
    return heap_push(t, (ready){t->growth[step], t->key[step], step});
}

/* Something of the step's storages has changed. */
static sw_status look_again(sorter *t, uint64_t step)
{
    if (step >= t->s->n_steps || t->done[step] || t->waits[step] > 0) return SW_OK;
    const int64_t last = t->growth[step];
    if (growth_of(t, &t->s->steps[step]) == last) return SW_OK;
    return make_ready(t, (uint32_t)step);
}

static sw_status run_step(sorter *t, uint32_t step)
{
    const sw__step *s = &t->s->steps[step];
    const int n = s->n_in + s->n_out;
    t->done[step] = true;
    t->order[t->n++] = step;
    for (int i = 0; i < n; i++) {
        t->users[s->refs[i].storage]--;
        t->user_sum[s->refs[i].storage] -= step;
    }
    for (int i = 0; i < n; i++) {
        const int32_t r = s->refs[i].storage;
        const bool new = !t->born[r];
        t->born[r] = true;
        if (t->s->storages[r].kind != SW_STORE_ARENA || t->users[r] == 0) continue;
        for (uint32_t k = t->use_start[r]; new && k < t->use_start[r + 1]; k++) SW_TRY(look_again(t, t->use[k]));
        SW_TRY(look_again(t, t->user_sum[r] / (uint64_t)t->users[r])); /* the last user; another step, if there are several */
    }
    return SW_OK;
}

/* Counts the uses of each storage, and lists them. */
static void index_uses(sorter *t)
{
    const sw__schedule *s = t->s;
    for (uint32_t i = 0; i < s->n_steps; i++)
        for (int k = 0; k < s->steps[i].n_in + s->steps[i].n_out; k++) {
            const int32_t r = s->steps[i].refs[k].storage;
            t->users[r]++;
            t->user_sum[r] += i;
        }
    uint32_t end = 0;
    for (uint32_t r = 0; r < s->n_storages; r++) t->use_start[r] = end += (uint32_t)t->users[r];
    t->use_start[s->n_storages] = end;
    for (uint32_t i = s->n_steps; i-- > 0;) /* each is counted down from its end to its start */
        for (int k = 0; k < s->steps[i].n_in + s->steps[i].n_out; k++) t->use[--t->use_start[s->steps[i].refs[k].storage]] = i;
}

static sw_status sort_steps(sorter *t, const orderer *o)
{
    const uint32_t n = t->s->n_steps;
    for (size_t i = 0; i < o->n_links; i++) t->waits[o->links[i].to]++;
    index_uses(t);
    for (uint32_t i = 0; i < t->s->n_outputs; i++) t->stays[t->s->outputs[i].storage] = true;
    for (uint32_t i = 0; i < n; i++)
        if (t->waits[i] == 0) SW_TRY(make_ready(t, i));
    while (t->n_heap > 0) {
        const uint32_t step = heap_pop(t).step;
        if (t->done[step]) continue;
        SW_TRY(run_step(t, step));
        for (uint32_t l = o->links ? o->head[step] : 0; l; l = o->next[l - 1])
            if (--t->waits[o->links[l - 1].to] == 0) SW_TRY(make_ready(t, o->links[l - 1].to));
    }
    if (t->n < n) return sw__fail(SW_ERR_UNSUPPORTED, "the schedule has a cycle (%u of %u steps could be ordered)",
                                  (unsigned)t->n, (unsigned)n);
    return SW_OK;
}

static sw_status apply_order(sw__schedule *s, const uint32_t *order)
{
    sw__step *sorted = sw__malloc(((size_t)s->n_steps + 1) * sizeof *sorted);
    if (!sorted) return sw__no_memory(((size_t)s->n_steps + 1) * sizeof *sorted, "steps");
    for (uint32_t i = 0; i < s->n_steps; i++) sorted[i] = s->steps[order[i]];
    if (s->n_steps) memcpy(s->steps, sorted, s->n_steps * sizeof *sorted);
    sw__free(sorted);
    return SW_OK;
}

static size_t count_uses(const sw__schedule *s)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_steps; i++) n += (size_t)(s->steps[i].n_in + s->steps[i].n_out);
    return n;
}

static sw_status sort_all(orderer *o)
{
    sw__schedule *s = o->b->s;
    const size_t n = (size_t)s->n_steps + 1, m = (size_t)s->n_storages + 1, uses = count_uses(s) + 1;
    sorter t = {.s = s, .key = o->b->key};
    const struct { void *at; size_t n, size; } tables[] = {
        {&t.waits, n, sizeof *t.waits}, {&t.order, n, sizeof *t.order}, {&t.done, n, sizeof *t.done},
        {&t.growth, n, sizeof *t.growth}, {&t.users, m, sizeof *t.users}, {&t.user_sum, m, sizeof *t.user_sum},
        {&t.use_start, m, sizeof *t.use_start}, {&t.born, m, sizeof *t.born}, {&t.stays, m, sizeof *t.stays},
        {&t.use, uses, sizeof *t.use}};
    sw_status st = SW_OK;
    for (size_t i = 0; i < SW_COUNT(tables); i++) {
        void *const table = sw__calloc(tables[i].n, tables[i].size);
        memcpy(tables[i].at, &table, sizeof table);
        if (!table) st = sw__no_memory(tables[i].n * tables[i].size, "ordering steps");
    }
    if (st == SW_OK) st = sort_steps(&t, o);
    if (st == SW_OK) st = apply_order(s, t.order);
    for (size_t i = 0; i < SW_COUNT(tables); i++) {
        void *table = NULL;
        memcpy(&table, tables[i].at, sizeof table);
        sw__free(table);
    }
    sw__free(t.heap);
    return st;
}

sw_status sw__sched_order(sw__sched *b, sw__pending *assigns, uint32_t n_assigns)
{
    orderer o = {.b = b};
    const size_t n = (size_t)b->s->n_steps + n_assigns + 1; /* every assign may add a copy */
    bool *in_place = sw__calloc((size_t)n_assigns + 1, sizeof *in_place);
    o.mark = sw__calloc(n, sizeof *o.mark);
    o.stack = sw__calloc(n, sizeof *o.stack);
    o.head = sw__calloc(n, sizeof *o.head);
    sw_status st = SW_OK;
    if (!in_place || !o.mark || !o.stack || !o.head) st = sw__no_memory(n * 12, "ordering steps");
    if (st == SW_OK) st = link_all(&o);
    if (st == SW_OK) st = do_assigns(&o, assigns, n_assigns, in_place);
    if (st == SW_OK) st = sort_all(&o);
    sw__free(in_place);
    sw__free(o.writer_start);
    sw__free(o.writer);
    sw__free(o.links);
    sw__free(o.next);
    sw__free(o.head);
    sw__free(o.mark);
    sw__free(o.stack);
    return st;
}
