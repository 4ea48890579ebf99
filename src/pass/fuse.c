/* fuse.c: which nodes are computed again wherever they are used, and which share a kernel. Greedy, in graph order.
 * Called by schedule.c before tensors are placed; emit.c turns the units into steps. See docs/decisions on fusion. */
#include "pass/fuse.h"

#define INLINE_COST 8      /* operations that are cheaper than a store and a load */
#define SMALL 8            /* a value this many times smaller than another costs nothing beside it */
#define ONE_ROW_POINTS 8192 /* the largest domain that a single row may walk in several phases */
#define MAX_LEAVES 96

bool sw__is_reduce(const sw__node *n) { return n->op >= SW_OP_REDUCE_SUM && n->op <= SW_OP_REDUCE_PROD; }

/* ---- what must lie in memory ------------------------------------------------------------------------------------- */

static void must_exist(sw__sched *b, uint32_t node)
{
    while (b->role[node] == SW_ROLE_VIEW) node = b->g->nodes[node].in[0];
    if (b->role[node] == SW_ROLE_FUSED) b->fuse->must[node] = true;
}

static bool cuts_fusion(const sw__sched *b, const sw__node *n)
{
    return n->op == SW_OP_RESHAPE && !sw__view_is_plain(n, &b->g->nodes[n->in[0]]);
}

static void mark_needs(sw__sched *b)
{
    const sw_graph *g = b->g;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const sw__node *n = &g->nodes[i];
        const bool whole = b->role[i] == SW_ROLE_OP || b->role[i] == SW_ROLE_JOIN || b->role[i] == SW_ROLE_SPREAD;
        if (whole)
            for (uint32_t k = 0; k < n->n_in; k++) must_exist(b, n->in[k]);
        if (b->role[i] == SW_ROLE_ASSIGN) must_exist(b, n->in[1]);
        if (b->role[i] == SW_ROLE_VIEW && cuts_fusion(b, n)) must_exist(b, n->in[0]);
        if (b->role[i] != SW_ROLE_FUSED) continue;
        if (n->op == SW_OP_GATHER) must_exist(b, n->in[0]);
        if (n->op == SW_OP_COPY) b->fuse->must[i] = true;
        if (b->a->no_fuse && n->op != SW_OP_CONST && n->op != SW_OP_IOTA) b->fuse->must[i] = true;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) must_exist(b, g->outputs[i].node);
}

/* ---- what is computed again -------------------------------------------------------------------------------------- */

static const uint8_t op_cost[SW_OP_COUNT] = {
    [SW_OP_EXP] = 4, [SW_OP_LOG] = 4, [SW_OP_SIN] = 4, [SW_OP_COS] = 4, [SW_OP_ATAN] = 6, [SW_OP_TANH] = 4,
    [SW_OP_ERF] = 4, [SW_OP_POW] = 6, [SW_OP_MOD] = 4, [SW_OP_DIV] = 2, [SW_OP_SQRT] = 2, [SW_OP_PAD] = 3,
    [SW_OP_RANDOM] = 12, [SW_OP_GATHER] = 4,
};

uint32_t sw__op_weight(uint32_t op) { return op_cost[op] ? op_cost[op] : 1; }

static uint32_t behind_views(const sw__sched *b, uint32_t node)
{
    while (b->role[node] == SW_ROLE_VIEW) node = b->g->nodes[node].in[0];
    return node;
}

static void set_reach(sw__sched *b)
{
    int64_t *reach = b->fuse->reach;
    for (uint32_t i = b->g->n_nodes; i-- > 1;) {
        const sw__node *n = &b->g->nodes[i];
        reach[i] = SW_MAX(reach[i], sw__node_elements(n));
        if (b->role[i] != SW_ROLE_VIEW) continue;
        reach[n->in[0]] = SW_MAX(reach[n->in[0]], reach[i]);
    }
}

typedef struct tree { uint32_t cost, n_leaf, leaf; } tree;

/* Adds one operand's tree to what is known of a node; false if it may not be computed again because of it. */
static bool add_operand(const sw__sched *b, uint32_t node, uint32_t in, tree *t)
{
    const sw__fuse *f = b->fuse;
    const uint32_t base = behind_views(b, in);
    const sw__node *x = &b->g->nodes[base];
    const int64_t elements = SW_MIN(sw__node_elements(x), sw__node_elements(&b->g->nodes[in]));
    uint32_t large = 0;
    if (x->op == SW_OP_CONST || x->op == SW_OP_IOTA) return true;
    t->n_leaf += b->role[base] == SW_ROLE_INLINE ? f->n_leaf[base] : 1;
    if (b->role[base] == SW_ROLE_INLINE) {
        t->cost += f->cost[base];
        large = f->leaf[base];
    } else if (elements > sw__node_elements(&b->g->nodes[node]) / SMALL) {
        if (b->role[base] == SW_ROLE_FUSED && !f->must[base]) return false;
        large = base;
    }
    if (large && t->leaf && t->leaf != large) return false;
    if (large) t->leaf = large;
    return true;
}

/* Cheap, over at most one large value that lies in memory anyway: to store it would save nothing. Small values that are
 * spread over large ones are computed once instead. */
static void decide_inline(sw__sched *b, uint32_t node)
{
    sw__fuse *f = b->fuse;
    const sw__node *n = &b->g->nodes[node];
    const uint32_t max_buffers = (uint32_t)(b->t->max_buffers ? b->t->max_buffers : SW_K_MAX_BUFFERS);
    tree t = {.cost = sw__op_weight(n->op)};
    if (f->must[node]) return;
    if (n->op == SW_OP_CONST || n->op == SW_OP_IOTA) {
        b->role[node] = SW_ROLE_INLINE;
        return;
    }
    if (!(sw__op_table[n->op].flags & SW_OPF_PW) && n->op != SW_OP_PAD) return;
    if (f->reach[node] >= SMALL * sw__node_elements(n)) return;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!add_operand(b, node, n->in[k], &t)) return;
    if (t.cost > INLINE_COST || t.n_leaf > (max_buffers - 2) / 3) return; /* three such operands fit into a kernel */
    b->role[node] = SW_ROLE_INLINE;
    f->cost[node] = (uint8_t)t.cost;
    f->n_leaf[node] = (uint8_t)t.n_leaf;
    f->leaf[node] = t.leaf;
}

/* ---- leaves: what a node reads, and at which point --------------------------------------------------------------- */

typedef struct leaf {
    uint32_t node;
    bool exact;               /* row says at which point; otherwise anywhere */
    sw__row row[SW_MAX_RANK]; /* the leaf's coordinates as functions of the reading node's */
} leaf;

typedef struct leaves { leaf at[MAX_LEAVES]; uint32_t n; bool overflow; } leaves;

static void walk(const sw__sched *b, uint32_t node, const sw__row *row, bool exact, leaves *out)
{
    sw__row r[SW_MAX_RANK];
    memcpy(r, row, sizeof r);
    while (b->role[node] == SW_ROLE_VIEW) {
        const sw__node *n = &b->g->nodes[node];
        if (cuts_fusion(b, n)) exact = false;
        if (exact) sw__view_push(n, &b->g->nodes[n->in[0]], r);
        node = n->in[0];
    }
    const sw__node *n = &b->g->nodes[node];
    const bool constant = n->op == SW_OP_CONST || n->op == SW_OP_IOTA;
    if (constant && (exact || b->role[node] == SW_ROLE_INLINE)) return; /* else it is read from memory, once stored */
    if (b->role[node] == SW_ROLE_INLINE) {
        if (n->op == SW_OP_PAD)
            for (int i = 0; i < n->rank; i++) r[i].off -= n->attr.pad.lo[i];
        for (uint32_t k = 0; k < n->n_in; k++) walk(b, n->in[k], r, exact, out);
        return;
    }
    if (out->n == MAX_LEAVES) {
        out->overflow = true;
        return;
    }
    leaf *l = &out->at[out->n++];
    l->node = node;
    l->exact = exact;
    memcpy(l->row, r, sizeof r);
}

/* Everything that a node with a unit of its own reads. Coordinates are the node's, of a reduction those of its
 * input. */
static void find_leaves(const sw__sched *b, uint32_t node, leaves *out)
{
    const sw__node *n = &b->g->nodes[node];
    const sw__node *shape = sw__is_reduce(n) ? &b->g->nodes[n->in[0]] : n;
    sw__row row[SW_MAX_RANK];
    out->n = 0;
    out->overflow = false;
    for (int i = 0; i < SW_MAX_RANK; i++) {
        const bool moves = i < shape->rank && shape->dim[i] != 1;
        row[i] = (sw__row){.axis = moves ? i : -1, .coef = moves};
        if (n->op == SW_OP_PAD && i < n->rank) row[i].off = -n->attr.pad.lo[i];
    }
    const bool fused = b->role[node] == SW_ROLE_FUSED;
    for (uint32_t k = 0; k < n->n_in; k++) walk(b, n->in[k], row, fused && !(n->op == SW_OP_GATHER && k == 0), out);
}

/* The unit (+ 1) that computes a leaf; 0 for sources. */
static uint32_t unit_of(const sw__sched *b, uint32_t node)
{
    if (b->role[node] == SW_ROLE_OUTPUT) node = b->g->nodes[node].in[0];
    return b->fuse->unit_of[node];
}

/* ---- units and what comes before what ---------------------------------------------------------------------------- */

static bool comes_before(const sw__fuse *f, uint32_t u, uint32_t of)
{
    return f->unit[of].before[u / 64] >> (u % 64) & 1u;
}

static sw_status new_unit(sw__fuse *f, uint32_t node, bool is_group, uint32_t *out)
{
    SW_TRY(sw__grow(&f->unit, &f->cap, f->n + 1u, sizeof *f->unit, "units"));
    sw__unit *u = &f->unit[f->n];
    memset(u, 0, sizeof *u);
    u->node = node;
    u->is_group = is_group;
    u->before = f->bits + (size_t)f->n * f->words;
    *out = f->n++;
    return SW_OK;
}

/* Unit u comes after unit `first`, and so does all that comes after u. */
static void add_before(sw__fuse *f, uint32_t u, uint32_t first)
{
    uint64_t *set = f->unit[u].before;
    if (u == first || comes_before(f, first, u)) return;
    f->unit[first].followed = true;
    for (uint32_t w = 0; w < f->words; w++) set[w] |= f->unit[first].before[w];
    set[first / 64] |= 1ull << (first % 64);
    for (uint32_t v = 0; f->unit[u].followed && v < f->n; v++) {
        if (v == u || !comes_before(f, u, v)) continue;
        for (uint32_t w = 0; w < f->words; w++) f->unit[v].before[w] |= set[w];
    }
}

static void add_leaf(sw__sched *b, uint32_t u, const leaf *l)
{
    sw__fuse *f = b->fuse;
    sw__unit *unit = &f->unit[u];
    const uint32_t from = unit_of(b, l->node);
    if (from) add_before(f, u, from - 1);
    if (!unit->is_group || from == u + 1) return;
    for (uint32_t i = 0; i < unit->n_load; i++)
        if (unit->load[i] == l->node) return;
    if (unit->n_load < SW__UNIT_LOADS) unit->load[unit->n_load++] = l->node;
    f->reader[l->node] = u + 1;
}

/* ---- joining a group --------------------------------------------------------------------------------------------- */

static int next_domain_axis(const sw__unit *u, uint32_t axes, int d)
{
    while (d < u->rank && (!(axes >> d & 1u) || u->dim[d] == 1)) d++; /* only a domain of one point has an axis of 1 */
    return d;
}

/* Axes of dims that are not 1, in order, matched with the domain's axes whose bits are set; false if they differ. */
static bool match(const sw__unit *u, uint32_t axes, const sw__node *shape, int16_t axis[SW_MAX_RANK])
{
    int d = 0;
    memset(axis, -1, SW_MAX_RANK * sizeof *axis);
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] == 1) continue;
        d = next_domain_axis(u, axes, d);
        if (d == u->rank || u->dim[d] != shape->dim[i]) return false;
        axis[i] = (int16_t)d++;
    }
    return next_domain_axis(u, axes, d) == u->rank;
}

static uint32_t all_axes(const sw__unit *u) { return (1u << u->rank) - 1; }

static uint32_t reduced_axes(const sw__node *n, const int16_t axis[SW_MAX_RANK])
{
    uint32_t r = 0;
    for (int i = 0; i < n->rank; i++)
        if ((n->attr.axes.axes >> i & 1u) && axis[i] >= 0) r |= 1u << axis[i];
    return r;
}

/* May values of the whole domain depend on a reduction: are there rows, and enough of them to share out? */
bool sw__may_phase(const sw__unit *u)
{
    int64_t rows = 1;
    for (int i = 0; i < u->rank; i++)
        if (!(u->reduced >> i & 1u)) rows *= u->dim[i];
    if (u->reduced == all_axes(u)) return u->points <= ONE_ROW_POINTS;
    return (u->reduced >> u->order[u->rank - 1] & 1u) && (rows >= 8 || u->points <= ONE_ROW_POINTS * 8);
}

/* The leaf is a member, and the node reads it at the very point at which both are computed. */
static bool same_point(const sw__sched *b, const leaf *l, const int16_t axis[SW_MAX_RANK])
{
    const sw__node *p = &b->g->nodes[l->node];
    if (!l->exact) return false;
    for (int i = 0; i < p->rank; i++) {
        if (p->dim[i] == 1) continue;
        const sw__row *r = &l->row[i];
        if (r->axis < 0 || r->coef != 1 || r->off != 0 || axis[r->axis] != b->fuse->axis[l->node][i]) return false;
    }
    return true;
}

typedef struct fit { int16_t axis[SW_MAX_RANK]; uint32_t reduced; uint8_t phase; } fit;

/* Does the node's domain suit the group: as a reduction, at every point, or one value a row? */
static bool domain_fits(const sw__sched *b, const sw__unit *u, const sw__node *n, fit *out, bool *full)
{
    *full = true;
    out->reduced = u->reduced;
    if (sw__is_reduce(n)) {
        if (!match(u, all_axes(u), &b->g->nodes[n->in[0]], out->axis)) return false;
        out->reduced = reduced_axes(n, out->axis);
        return u->reduced == 0 || u->reduced == out->reduced;
    }
    if (match(u, all_axes(u), n, out->axis)) return true;
    *full = false;
    return u->reduced && match(u, all_axes(u) & ~u->reduced, n, out->axis);
}

static bool fits(const sw__sched *b, uint32_t at, uint32_t node, const leaves *in, fit *out)
{
    const sw__fuse *f = b->fuse;
    const sw__unit *u = &f->unit[at];
    const sw__node *n = &b->g->nodes[node];
    const int max_buffers = b->t->max_buffers ? b->t->max_buffers : SW_K_MAX_BUFFERS;
    uint32_t loads = u->n_load;
    bool full;
    if (b->a->no_fuse || in->overflow || !domain_fits(b, u, n, out, &full)) return false;
    out->phase = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const leaf *l = &in->at[i];
        const uint32_t from = unit_of(b, l->node);
        if (from != at + 1) {
            if (from && comes_before(f, at, from - 1)) return false; /* it would wait for itself */
            bool known = false;
            for (uint32_t k = 0; k < u->n_load && !known; k++) known = u->load[k] == l->node;
            loads += !known;
            continue;
        }
        if (!same_point(b, l, out->axis)) return false;
        const uint8_t after = (uint8_t)(f->phase[l->node] + sw__is_reduce(&b->g->nodes[l->node]));
        out->phase = SW_MAX(out->phase, after);
    }
    if (out->phase > 4) return false;
    if (full && out->phase > 0 && !sw__may_phase(u)) return false;
    if (u->cost + sw__op_weight(n->op) > 160) return false;
    return (int)(loads + u->n_store + f->must[node] + 1) <= max_buffers;
}

static sw_status join(sw__sched *b, uint32_t at, uint32_t node, const leaves *in, const fit *how)
{
    sw__fuse *f = b->fuse;
    sw__unit *u = &f->unit[at];
    SW_TRY(sw__grow(&u->member, &u->cap, u->n + 1u, sizeof *u->member, "a group"));
    u->member[u->n++] = node;
    u->reduced = how->reduced;
    u->n_store += f->must[node];
    u->cost += sw__op_weight(b->g->nodes[node].op);
    memcpy(f->axis[node], how->axis, sizeof how->axis);
    f->phase[node] = how->phase;
    for (uint32_t i = 0; i < in->n; i++) add_leaf(b, at, &in->at[i]);
    f->unit_of[node] = at + 1;
    return SW_OK;
}

/* A new group with the node's domain, its axes in the physical order of what the node makes or reduces. */
static sw_status start_group(sw__sched *b, uint32_t node, const leaves *in)
{
    const sw__node *n = &b->g->nodes[node];
    const sw__node *shape = sw__is_reduce(n) ? &b->g->nodes[n->in[0]] : n;
    fit how = {.reduced = 0};
    uint32_t at;
    int16_t *axis = how.axis;
    SW_TRY(new_unit(b->fuse, node, true, &at));
    sw__unit *u = &b->fuse->unit[at];
    memset(axis, -1, SW_MAX_RANK * sizeof *axis);
    u->points = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] == 1) continue;
        axis[i] = (int16_t)u->rank;
        u->dim[u->rank++] = shape->dim[i];
        u->points *= shape->dim[i];
    }
    int k = 0;
    for (int i = 0; i < shape->rank; i++)
        if (axis[shape->order[i]] >= 0) u->order[k++] = (uint8_t)axis[shape->order[i]];
    if (u->rank == 0) {
        u->dim[0] = 1;
        u->rank = 1;
    }
    if (sw__is_reduce(n)) how.reduced = reduced_axes(n, axis);
    return join(b, at, node, in, &how);
}

/* ---- merging two groups ------------------------------------------------------------------------------------------ */

/* Some unit lies between the two: as one kernel they would have to run both before and after it. */
static bool something_between(const sw__fuse *f, uint32_t x, uint32_t y)
{
    for (uint32_t u = 0; u < f->n; u++) {
        if (u == x || u == y) continue;
        if (comes_before(f, x, u) && comes_before(f, u, y)) return true;
        if (comes_before(f, y, u) && comes_before(f, u, x)) return true;
    }
    return false;
}

static int compare_ids(const void *x, const void *y)
{
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/* Checks the union's members one by one as if they joined the group `all`, and sets their phases. */
static bool union_fits(sw__sched *b, const sw__unit *all, uint32_t x, uint32_t y)
{
    sw__fuse *f = b->fuse;
    for (uint32_t i = 0; i < all->n; i++) {
        const uint32_t node = all->member[i];
        leaves in;
        fit how;
        bool full;
        find_leaves(b, node, &in);
        if (!domain_fits(b, all, &b->g->nodes[node], &how, &full)) return false;
        uint8_t phase = 0;
        for (uint32_t k = 0; k < in.n; k++) {
            const uint32_t source = in.at[k].node, from = unit_of(b, source);
            if (from != x + 1 && from != y + 1) continue;
            if (!same_point(b, &in.at[k], how.axis)) return false;
            phase = SW_MAX(phase, (uint8_t)(f->phase[source] + sw__is_reduce(&b->g->nodes[source])));
        }
        if (phase > 4 || (full && phase > 0 && !sw__may_phase(all))) return false;
        f->phase[node] = phase;
        memcpy(f->axis[node], how.axis, sizeof how.axis);
    }
    return true;
}

/* Unit y's place in the order becomes x's. */
static void merge_order(sw__fuse *f, uint32_t x, uint32_t y)
{
    sw__unit *u = &f->unit[x];
    for (uint32_t w = 0; w < f->words; w++) u->before[w] |= f->unit[y].before[w];
    u->before[x / 64] &= ~(1ull << (x % 64));
    u->before[y / 64] &= ~(1ull << (y % 64));
    u->followed |= f->unit[y].followed;
    for (uint32_t v = 0; v < f->n; v++) {
        if (v == x || v == y || (!comes_before(f, x, v) && !comes_before(f, y, v))) continue;
        for (uint32_t w = 0; w < f->words; w++) f->unit[v].before[w] |= u->before[w];
        f->unit[v].before[x / 64] |= 1ull << (x % 64);
    }
}

static void merge_members(sw__sched *b, uint32_t x, uint32_t y, const sw__unit *all)
{
    sw__fuse *f = b->fuse;
    sw__unit *u = &f->unit[x], *other = &f->unit[y];
    merge_order(f, x, y);
    sw__free(u->member);
    u->member = all->member;
    u->n = all->n;
    u->cap = all->cap;
    u->reduced = all->reduced;
    u->n_store += other->n_store;
    u->cost += other->cost;
    for (uint32_t i = 0; i < u->n; i++) f->unit_of[u->member[i]] = x + 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->n_load; i++)
        if (f->unit_of[u->load[i]] != x + 1) u->load[n++] = u->load[i];
    for (uint32_t i = 0; i < other->n_load && n < SW__UNIT_LOADS; i++) {
        bool known = f->unit_of[other->load[i]] == x + 1;
        for (uint32_t k = 0; k < n; k++) known |= u->load[k] == other->load[i];
        if (!known) u->load[n++] = other->load[i];
    }
    u->n_load = n;
    for (uint32_t i = 1; i < b->g->n_nodes; i++)
        if (f->reader[i] == y + 1) f->reader[i] = x + 1;
    sw__free(other->member);
    other->member = NULL;
    other->n = 0;
    other->is_group = false;
    other->node = 0;
}

/* Makes one kernel of two groups that a node reads both of, if that is legal: an optimiser's moments, say. */
static sw_status try_merge(sw__sched *b, uint32_t x, uint32_t y)
{
    sw__fuse *f = b->fuse;
    const sw__unit *u = &f->unit[x], *v = &f->unit[y];
    const uint32_t max_buffers = (uint32_t)(b->t->max_buffers ? b->t->max_buffers : SW_K_MAX_BUFFERS);
    if (x == y || !u->is_group || !v->is_group || u->rank != v->rank || u->cost + v->cost > 160) return SW_OK;
    if (memcmp(u->dim, v->dim, sizeof u->dim) != 0) return SW_OK;
    if (u->reduced && v->reduced && u->reduced != v->reduced) return SW_OK;
    if (u->n_load + v->n_load + u->n_store + v->n_store > max_buffers || something_between(f, x, y)) return SW_OK;
    sw__unit all = *u;
    all.reduced = u->reduced | v->reduced;
    all.n = u->n + v->n;
    all.cap = all.n;
    all.member = sw__malloc(all.n * sizeof *all.member);
    if (!all.member) return sw__no_memory(all.n * sizeof *all.member, "a group");
    memcpy(all.member, u->member, u->n * sizeof *all.member);
    memcpy(all.member + u->n, v->member, v->n * sizeof *all.member);
    qsort(all.member, all.n, sizeof *all.member, compare_ids);
    if (union_fits(b, &all, x, y)) {
        merge_members(b, x, y, &all);
        return SW_OK;
    }
    sw__free(all.member);
    (void)union_fits(b, u, x, x); /* phases as they were */
    (void)union_fits(b, v, y, y);
    return SW_OK;
}

/* The node, now in group `at`, may have brought it together with others that it reads from. */
static sw_status merge_sources(sw__sched *b, uint32_t at, const leaves *in)
{
    for (uint32_t i = 0; i < in->n; i++) {
        const uint32_t from = unit_of(b, in->at[i].node);
        if (from && from - 1 != at && b->fuse->unit[from - 1].is_group) SW_TRY(try_merge(b, at, from - 1));
    }
    return SW_OK;
}

/* ---- placing a node ---------------------------------------------------------------------------------------------- */

/* Bytes of memory traffic that sharing a kernel with the leaf's group saves. */
static double saving(const sw__sched *b, const leaf *l)
{
    const sw__node *n = &b->g->nodes[l->node];
    const double bytes = (double)sw__node_elements(n) * (double)sw_dtype_size((sw_dtype)n->dtype);
    return bytes * (b->fuse->must[l->node] ? 1 : 2) + 1;
}

/* Groups to try: those that compute what the node reads, best first; then, for reductions, those that read the same. */
static uint32_t candidates(const sw__sched *b, uint32_t node, const leaves *in, uint32_t out[MAX_LEAVES * 2])
{
    const sw__fuse *f = b->fuse;
    double gain[MAX_LEAVES * 2];
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const uint32_t from = unit_of(b, in->at[i].node);
        const uint32_t reader = f->reader[in->at[i].node];
        const bool shares = reader && (sw__is_reduce(&b->g->nodes[node]) || f->unit[reader - 1].reduced);
        const uint32_t both[2] = {from && f->unit[from - 1].is_group ? from : 0, shares ? reader : 0};
        for (int c = 0; c < 2; c++) {
            if (!both[c]) continue;
            const double g = saving(b, &in->at[i]) * (c ? 0.5 : 1);
            uint32_t k = 0;
            while (k < n && out[k] != both[c] - 1) k++;
            if (k == n) {
                out[n] = both[c] - 1;
                gain[n++] = 0;
            }
            gain[k] += g;
        }
    }
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k > 0 && gain[k] > gain[k - 1]; k--) {
            const double g = gain[k];
            const uint32_t u = out[k];
            gain[k] = gain[k - 1], out[k] = out[k - 1];
            gain[k - 1] = g, out[k - 1] = u;
        }
    return n;
}

/* Values of a few elements (learning rates, counters) share kernels even if nothing connects them. */
static uint32_t tiny_group(const sw__sched *b, uint32_t node, const leaves *in, fit *how)
{
    const sw__fuse *f = b->fuse;
    uint32_t tries = 0;
    if (sw__is_reduce(&b->g->nodes[node]) || sw__node_elements(&b->g->nodes[node]) > 1) return UINT32_MAX;
    for (uint32_t u = f->n; u-- > 0 && tries < 8;) {
        if (!f->unit[u].is_group || f->unit[u].points != 1) continue;
        tries++;
        if (fits(b, u, node, in, how)) return u;
    }
    return UINT32_MAX;
}

static sw_status place_node(sw__sched *b, uint32_t node)
{
    leaves in;
    fit how;
    uint32_t try[MAX_LEAVES * 2], at;
    find_leaves(b, node, &in);
    if (b->role[node] != SW_ROLE_FUSED) {
        SW_TRY(new_unit(b->fuse, node, false, &at));
        for (uint32_t i = 0; i < in.n; i++) add_leaf(b, at, &in.at[i]);
        b->fuse->unit_of[node] = at + 1;
        return SW_OK;
    }
    const uint32_t n = candidates(b, node, &in, try);
    for (uint32_t i = 0; i < n; i++) {
        if (!fits(b, try[i], node, &in, &how)) continue;
        SW_TRY(join(b, try[i], node, &in, &how));
        return merge_sources(b, try[i], &in);
    }
    at = tiny_group(b, node, &in, &how);
    if (at != UINT32_MAX) return join(b, at, node, &in, &how);
    return start_group(b, node, &in);
}

/* A concat or pack may have any number of parts: it is linked to them one by one. */
static sw_status place_join(sw__sched *b, uint32_t node)
{
    const sw__node *n = &b->g->nodes[node];
    uint32_t at;
    SW_TRY(new_unit(b->fuse, node, false, &at));
    for (uint32_t k = 0; k < n->n_in; k++) {
        const uint32_t from = unit_of(b, behind_views(b, n->in[k]));
        if (from) add_before(b->fuse, at, from - 1);
    }
    b->fuse->unit_of[node] = at + 1;
    return SW_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static sw_status fuse_alloc(sw__sched *b)
{
    sw__fuse *f = b->fuse = sw__calloc(1, sizeof *f);
    const size_t n = (size_t)b->g->n_nodes + 1;
    if (!f) return sw__no_memory(sizeof *f, "the fuser");
    for (uint32_t i = 1; i < b->g->n_nodes; i++)
        f->max_units += b->role[i] == SW_ROLE_FUSED || b->role[i] == SW_ROLE_OP || b->role[i] == SW_ROLE_JOIN ||
                        b->role[i] == SW_ROLE_SPREAD;
    f->words = f->max_units / 64 + 1;
    f->bits = sw__calloc((size_t)f->max_units + 1, f->words * sizeof *f->bits);
    f->must = sw__calloc(n, sizeof *f->must);
    f->unit_of = sw__calloc(n, sizeof *f->unit_of);
    f->axis = sw__calloc(n, sizeof *f->axis);
    f->phase = sw__calloc(n, sizeof *f->phase);
    f->cost = sw__calloc(n, sizeof *f->cost);
    f->leaf = sw__calloc(n, sizeof *f->leaf);
    f->n_leaf = sw__calloc(n, sizeof *f->n_leaf);
    f->reach = sw__calloc(n, sizeof *f->reach);
    f->reader = sw__calloc(n, sizeof *f->reader);
    f->memo_head = sw__calloc(n, sizeof *f->memo_head);
    if (f->bits && f->must && f->unit_of && f->axis && f->phase && f->cost && f->leaf && f->n_leaf && f->reach &&
        f->reader && f->memo_head)
        return SW_OK;
    return sw__no_memory(n * 40 + (size_t)f->max_units * f->words * 8, "the fuser");
}

sw_status sw__sched_fuse(sw__sched *b)
{
    SW_TRY(fuse_alloc(b));
    mark_needs(b);
    set_reach(b);
    for (uint32_t i = 1; i < b->g->n_nodes; i++)
        if (b->role[i] == SW_ROLE_FUSED) decide_inline(b, i);
    for (uint32_t i = 1; i < b->g->n_nodes; i++) {
        switch ((sw__role)b->role[i]) {
        case SW_ROLE_FUSED: case SW_ROLE_OP: case SW_ROLE_SPREAD: SW_TRY(place_node(b, i)); break;
        case SW_ROLE_JOIN: SW_TRY(place_join(b, i)); break;
        default: break;
        }
    }
    return SW_OK;
}

void sw__sched_fuse_free(sw__sched *b)
{
    sw__fuse *f = b->fuse;
    if (!f) return;
    for (uint32_t i = 0; i < f->n; i++) sw__free(f->unit[i].member);
    sw__free(f->unit);
    sw__free(f->bits);
    sw__free(f->must);
    sw__free(f->unit_of);
    sw__free(f->axis);
    sw__free(f->phase);
    sw__free(f->cost);
    sw__free(f->leaf);
    sw__free(f->n_leaf);
    sw__free(f->reach);
    sw__free(f->reader);
    sw__free(f->memo_head);
    sw__free(f);
    b->fuse = NULL;
}
