/* emit.c: units -> steps: a group of fused nodes becomes a kernel (kir.h), an op a step with its inputs in a layout it
 * takes. From the last unit to the first, so that each knows which of its values somebody reads from memory. */
#include "pass/fuse.h"

/* ---- a kernel in the making -------------------------------------------------------------------------------------- */

/* Where in the domain a node is computed: its coordinates, and the part of the domain for which anybody asks. */
typedef struct place {
    sw__row row[SW_MAX_RANK];
    int64_t lo[SW_MAX_RANK], hi[SW_MAX_RANK]; /* by axis of the unit's domain */
} place;

typedef struct memo { uint32_t node, next; int32_t inst; place at; } memo;

typedef struct emitter {
    sw__sched *b;
    const sw__unit *u;
    uint32_t from, to;             /* members of the unit that this kernel computes */
    int rank, pos[SW_MAX_RANK];    /* place of a domain axis among the kernel's */
    sw__inst *inst;
    bool *full;                    /* by instruction: FULL level by its own nature */
    size_t cap_inst, cap_full;
    int32_t n_inst;
    sw__ref in[SW_K_MAX_BUFFERS];  /* buffers to be read */
    int n_in, max_buffers, max_insts;
    bool overflow;                 /* too large for one kernel */
    bool load_all;                 /* nothing that another kernel computes is computed again */
    uint32_t *read;                /* values */
    size_t n_read, cap_read;
    memo *memo;
    size_t n_memo, cap_memo;
    sw_status st;
} emitter;

static int32_t compute(emitter *e, uint32_t node, const place *at);

static int32_t stop(emitter *e, sw_status st)
{
    if (e->st == SW_OK) e->st = st;
    return -1;
}

static bool walks_reduced(const emitter *e, const sw__inst *i)
{
    for (int x = 0; x < e->u->rank; x++) {
        if (!(e->u->reduced >> x & 1u) || e->u->dim[x] == 1) continue;
        if (i->stride[e->pos[x]] != 0) return true;
        if (i->masked && (i->lo[e->pos[x]] > 0 || i->hi[e->pos[x]] < e->u->dim[x])) return true;
    }
    return false;
}

/* Instructions are made by blank(), which clears them, padding included. */
static bool same_bytes(const void *a, const void *b, size_t n) { return memcmp(a, b, n) == 0; }

/* Adds an instruction, or finds the one that does the same. */
static int32_t add(emitter *e, const sw__inst *i)
{
    for (int32_t j = 0; j < e->n_inst; j++)
        if (e->inst[j].kop == i->kop && e->inst[j].a == i->a && same_bytes(&e->inst[j], i, sizeof *i)) return j;
    if (e->n_inst >= SW_K_MAX_INSTS) {
        e->overflow = true;
        return -1;
    }
    const size_t need = (size_t)e->n_inst + 1;
    sw_status st = sw__grow(&e->inst, &e->cap_inst, need, sizeof *e->inst, "a kernel");
    if (st == SW_OK) st = sw__grow(&e->full, &e->cap_full, need, sizeof *e->full, "a kernel");
    if (st != SW_OK) return stop(e, st);
    const int32_t arg[3] = {i->a, i->b, i->c};
    bool full = walks_reduced(e, i);
    for (int k = 0; k < 3; k++)
        if (arg[k] >= 0 && i->kop != SW_K_REDUCE && e->full[arg[k]]) full = true;
    e->inst[e->n_inst] = *i;
    e->full[e->n_inst] = full;
    return e->n_inst++;
}

static sw__inst blank(sw__kop kop, sw_dtype dtype)
{
    sw__inst i;
    memset(&i, 0, sizeof i);
    i.kop = (uint8_t)kop;
    i.dtype = (uint8_t)(dtype == SW_F16 || dtype == SW_BF16 ? SW_F32 : dtype);
    i.a = i.b = i.c = -1;
    return i;
}

static int32_t add_const(emitter *e, sw_dtype dtype, double value, int64_t ivalue)
{
    sw__inst i = blank(SW_K_CONST, dtype);
    if (sw__dtype_is_float(dtype)) i.value = value;
    else i.ivalue = ivalue;
    return add(e, &i);
}

static int32_t add_calc(emitter *e, sw__op op, sw_dtype dtype, int32_t a, int32_t b, int32_t c)
{
    sw__inst i = blank(SW_K_CALC, dtype);
    i.op = (uint16_t)op;
    i.a = a;
    i.b = b;
    i.c = c;
    return add(e, &i);
}

/* offset + sum stride of a tensor's axis times the node's coordinate, as strides of the kernel's axes. */
static void set_access(const emitter *e, sw__inst *i, int64_t offset, const sw__desc *d, const sw__row *row)
{
    i->offset = offset;
    for (int k = 0; k < d->rank; k++) {
        i->offset += d->stride[k] * row[k].off;
        if (row[k].axis >= 0) i->stride[e->pos[row[k].axis]] += d->stride[k] * row[k].coef;
    }
}

static bool cuts(const emitter *e, const place *at)
{
    for (int x = 0; x < e->u->rank; x++)
        if (at->lo[x] > 0 || at->hi[x] < e->u->dim[x]) return true;
    return false;
}

static void set_mask(const emitter *e, sw__inst *i, const place *at)
{
    if (!cuts(e, at)) return;
    i->masked = 1;
    for (int x = 0; x < e->u->rank; x++) {
        i->lo[e->pos[x]] = at->lo[x];
        i->hi[e->pos[x]] = at->hi[x];
    }
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

static int32_t buffer_for(emitter *e, const sw__tensor *t)
{
    bool known = false;
    for (size_t i = 0; i < e->n_read && !known; i++) known = e->read[i] == t->value;
    if (!known) {
        const sw_status st = sw__grow(&e->read, &e->cap_read, e->n_read + 1, sizeof *e->read, "a kernel's inputs");
        if (st != SW_OK) return stop(e, st);
        e->read[e->n_read++] = t->value;
    }
    for (int i = 0; i < e->n_in; i++)
        if (e->in[i].storage == t->ref.storage && e->in[i].desc.dtype == t->ref.desc.dtype) return i;
    if (e->n_in >= e->max_buffers) {
        e->overflow = true;
        return -1;
    }
    e->in[e->n_in] = t->ref;
    return e->n_in++;
}

static int32_t load(emitter *e, uint32_t node, const place *at)
{
    sw__tensor t;
    const sw_status st = sw__sched_tensor(e->b, node, &t);
    if (st != SW_OK) return stop(e, st);
    sw__inst i = blank(SW_K_LOAD, (sw_dtype)t.ref.desc.dtype);
    i.buffer = buffer_for(e, &t);
    if (i.buffer < 0) return -1;
    set_access(e, &i, t.ref.offset, &t.ref.desc, at->row);
    set_mask(e, &i, at);
    return add(e, &i);
}

/* out[.., d, ..] = x[.., index[.., d, ..], ..]: the index takes the place of one coordinate. */
static int32_t gather(emitter *e, const sw__node *n, const place *at)
{
    const int32_t index = compute(e, n->in[1], at);
    sw__tensor t;
    if (index < 0) return -1;
    const sw_status st = sw__sched_tensor(e->b, n->in[0], &t);
    if (st != SW_OK) return stop(e, st);
    const int axis = n->attr.axis.axis;
    sw__row row[SW_MAX_RANK];
    memcpy(row, at->row, sizeof row);
    row[axis] = (sw__row){.axis = -1};
    sw__inst i = blank(SW_K_GATHER, (sw_dtype)t.ref.desc.dtype);
    i.a = index;
    i.buffer = buffer_for(e, &t);
    if (i.buffer < 0) return -1;
    i.stride_x = t.ref.desc.stride[axis];
    i.extent_x = t.ref.desc.dim[axis];
    set_access(e, &i, t.ref.offset, &t.ref.desc, row);
    set_mask(e, &i, at);
    return add(e, &i);
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

/* offset + sum stride * coordinate, as a number. */
static int32_t add_index(emitter *e, sw_dtype dtype, const sw__node *n, const int64_t *stride, const place *at)
{
    sw__desc d = {.rank = n->rank};
    memcpy(d.stride, stride, sizeof d.stride);
    sw__inst i = blank(SW_K_INDEX, dtype);
    set_access(e, &i, 0, &d, at->row);
    return add(e, &i);
}

static int32_t iota(emitter *e, const sw__node *n, const place *at)
{
    int64_t stride[SW_MAX_RANK] = {0};
    stride[n->attr.axis.axis] = 1;
    return add_index(e, (sw_dtype)n->dtype, n, stride, at);
}

static int32_t random_bits(emitter *e, const sw__node *n, const place *at)
{
    int64_t stride[SW_MAX_RANK] = {0}, s = 1;
    for (int k = n->rank - 1; k >= 0; k--) {
        stride[k] = s;
        s *= n->dim[k];
    }
    sw__inst i = blank(SW_K_RANDOM, SW_U32);
    i.a = add_index(e, SW_I64, n, stride, at);
    if (i.a < 0) return -1;
    if (n->n_in) {
        place scalar = *at;
        for (int k = 0; k < SW_MAX_RANK; k++) scalar.row[k] = (sw__row){.axis = -1};
        i.b = compute(e, n->in[0], &scalar);
        if (i.b < 0) return -1;
    }
    i.ivalue = (int64_t)n->attr.random.seed;
    i.stream = n->attr.random.stream;
    return add(e, &i);
}

/* ---- pad --------------------------------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

/* The place of pad's input; false if no point of it is inside. */
static bool inside(const emitter *e, const sw__node *n, const sw__node *x, const place *at, place *in)
{
    *in = *at;
    for (int k = 0; k < n->rank; k++) {
        sw__row *r = &in->row[k];
        r->off -= n->attr.pad.lo[k];
        if (r->axis < 0) {
            if (r->off < 0 || r->off >= x->dim[k]) return false;
            continue;
        }
        in->lo[r->axis] = SW_MAX(in->lo[r->axis], ceil_div(-r->off, r->coef));
        in->hi[r->axis] = SW_MIN(in->hi[r->axis], ceil_div(x->dim[k] - r->off, r->coef));
    }
    for (int a = 0; a < e->u->rank; a++)
        if (in->lo[a] >= in->hi[a] && e->u->dim[a] > 0) return false;
    return true;
}

static int32_t both(emitter *e, int32_t a, int32_t b)
{
    return a < 0 ? b : b < 0 ? -1 : add_calc(e, SW_OP_AND, SW_BOOL, a, b, -1);
}

/* The condition under which a point is inside `in`, given that it is inside `at`. */
static int32_t condition(emitter *e, const place *at, const place *in)
{
    int32_t all = -1;
    for (int x = 0; x < e->u->rank; x++) {
        if (in->lo[x] <= at->lo[x] && in->hi[x] >= at->hi[x]) continue;
        sw__inst i = blank(SW_K_INDEX, SW_I64);
        i.stride[e->pos[x]] = 1;
        const int32_t d = add(e, &i);
        if (in->lo[x] > at->lo[x])
            all = both(e, all, add_calc(e, SW_OP_LT, SW_BOOL, add_const(e, SW_I64, 0, in->lo[x] - 1), d, -1));
        if (in->hi[x] < at->hi[x])
            all = both(e, all, add_calc(e, SW_OP_LT, SW_BOOL, d, add_const(e, SW_I64, 0, in->hi[x]), -1));
    }
    return all;
}

static int32_t pad(emitter *e, const sw__node *n, const place *at)
{
    const sw__node *x = &e->b->g->nodes[n->in[0]];
    place in;
    const int32_t outside = inside(e, n, x, at, &in) ? -1 : add_const(e, (sw_dtype)n->dtype, n->attr.pad.value,
                                                                      (int64_t)n->attr.pad.value);
    if (outside >= 0 || e->st != SW_OK || e->overflow) return outside;
    const int32_t v = compute(e, n->in[0], &in);
    if (v < 0) return -1;
    if (memcmp(in.lo, at->lo, sizeof in.lo) == 0 && memcmp(in.hi, at->hi, sizeof in.hi) == 0) return v;
    sw__inst i = e->inst[v];
    if ((i.kop == SW_K_LOAD || i.kop == SW_K_GATHER) && i.masked) { /* a load can give the constant by itself */
        bool same = true;
        for (int a = 0; a < e->u->rank; a++) same &= i.lo[e->pos[a]] == in.lo[a] && i.hi[e->pos[a]] == in.hi[a];
        i.value = n->attr.pad.value;
        if (same) return add(e, &i);
    }
    const int32_t yes = condition(e, at, &in);
    const int32_t no = add_const(e, (sw_dtype)n->dtype, n->attr.pad.value, (int64_t)n->attr.pad.value);
    return yes < 0 || no < 0 ? -1 : add_calc(e, SW_OP_WHERE, (sw_dtype)n->dtype, yes, v, no);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* The place at which a member of the unit is computed (of a reduction: its input). */
static void own_place(const emitter *e, uint32_t node, place *at)
{
    memset(at, 0, sizeof *at);
    for (int k = 0; k < SW_MAX_RANK; k++) {
        const int a = e->b->fuse->axis[node][k];
        at->row[k] = (sw__row){.axis = a, .coef = a >= 0};
    }
    for (int x = 0; x < e->u->rank; x++) at->hi[x] = e->u->dim[x];
}

static bool is_member(const emitter *e, uint32_t node)
{
    if (e->b->role[node] != SW_ROLE_FUSED || e->b->fuse->unit_of[node] == 0) return false;
    if (&e->b->fuse->unit[e->b->fuse->unit_of[node] - 1] != e->u) return false;
    return node >= e->u->member[e->from] && node <= e->u->member[e->to - 1];
}

/* Asked for at the point at which it is computed anyway. */
static bool at_own_place(const emitter *e, uint32_t node, const place *at)
{
    const sw__node *n = &e->b->g->nodes[node];
    for (int k = 0; k < n->rank; k++) {
        if (n->dim[k] == 1) continue;
        const sw__row *r = &at->row[k];
        if (r->axis != e->b->fuse->axis[node][k] || r->coef != 1 || r->off != 0) return false;
    }
    return true;
}

static int32_t reduce(emitter *e, const sw__node *n, const place *at)
{
    int32_t v = compute(e, n->in[0], at);
    if (v < 0) return -1;
    if (!e->full[v]) { /* the same along the row: a value of its own at every point */
        v = add_calc(e, SW_OP_CAST, (sw_dtype)e->inst[v].dtype, v, -1, -1);
        if (v < 0) return -1;
        e->full[v] = true;
    }
    sw__inst i = blank(SW_K_REDUCE, (sw_dtype)n->dtype);
    i.op = n->op;
    i.a = v;
    return add(e, &i);
}

/* A cast to 16 bits inside a kernel: the value stays an f32, but is rounded as if it had been stored. */
static int32_t narrow(emitter *e, sw_dtype to, int32_t a)
{
    if (e->inst[a].dtype != SW_F32) a = add_calc(e, SW_OP_CAST, SW_F32, a, -1, -1);
    if (a < 0 || e->inst[a].narrow == to) return a;
    sw__inst i = blank(SW_K_CALC, SW_F32);
    i.op = SW_OP_CAST;
    i.a = a;
    i.narrow = (uint8_t)to;
    return add(e, &i);
}

static int32_t pointwise(emitter *e, const sw__node *n, const place *at)
{
    int32_t arg[3] = {-1, -1, -1};
    for (uint32_t k = 0; k < n->n_in; k++) {
        arg[k] = compute(e, n->in[k], at);
        if (arg[k] < 0) return -1;
    }
    const sw_dtype dtype = (sw_dtype)blank(SW_K_CALC, (sw_dtype)n->dtype).dtype;
    if (n->op == SW_OP_CAST && dtype != n->dtype && e->b->t->float_storage != SW_F64)
        return narrow(e, (sw_dtype)n->dtype, arg[0]);
    if (n->op == SW_OP_COPY || (n->op == SW_OP_CAST && e->inst[arg[0]].dtype == dtype)) return arg[0];
    return add_calc(e, (sw__op)n->op, dtype, arg[0], arg[1], arg[2]);
}

static int32_t calculate(emitter *e, const sw__node *n, const place *at)
{
    switch (n->op) {
    case SW_OP_CONST: return add_const(e, (sw_dtype)n->dtype, n->attr.constant.value, n->attr.constant.ivalue);
    case SW_OP_IOTA: return iota(e, n, at);
    case SW_OP_RANDOM: return random_bits(e, n, at);
    case SW_OP_GATHER: return gather(e, n, at);
    case SW_OP_PAD: return pad(e, n, at);
    default: return sw__is_reduce(n) ? reduce(e, n, at) : pointwise(e, n, at);
    }
}

#define AGAIN_COST 8

/* Adds what it takes to compute a value here though another kernel computes it too: operations, and the large values in
 * memory that it is made of. False if it is made of something that would have to be stored for the purpose. */
static bool worth_again(const sw__sched *b, uint32_t node, uint32_t *cost, uint32_t *leaf, int64_t elements)
{
    const sw__node *n = &b->g->nodes[node];
    if (!(sw__op_table[n->op].flags & SW_OPF_PW)) return false;
    *cost += sw__op_weight(n->op);
    for (uint32_t k = 0; k < n->n_in && *cost <= AGAIN_COST; k++) {
        uint32_t x = n->in[k];
        while (b->role[x] == SW_ROLE_VIEW) x = b->g->nodes[x].in[0];
        const uint32_t op = b->g->nodes[x].op;
        if (op == SW_OP_CONST || op == SW_OP_IOTA) continue;
        const int64_t size = SW_MIN(sw__node_elements(&b->g->nodes[x]), sw__node_elements(&b->g->nodes[n->in[k]]));
        const bool lies = b->role[x] != SW_ROLE_INLINE && (b->role[x] != SW_ROLE_FUSED || b->tensor[x].value);
        if (!lies && size > elements / 8) {
            if (!worth_again(b, x, cost, leaf, elements)) return false;
            continue;
        }
        if (size <= elements / 8) continue;
        if (*leaf && *leaf != x) return false;
        *leaf = x;
    }
    return *cost <= AGAIN_COST;
}

/* Nobody has asked for the value in memory so far, and it is cheap over one that lies there anyway. */
static bool cheap_again(const sw__sched *b, uint32_t node)
{
    uint32_t cost = 0, leaf = 0;
    const int64_t elements = sw__node_elements(&b->g->nodes[node]);
    if (b->role[node] != SW_ROLE_FUSED || b->tensor[node].value || b->fuse->must[node] || b->a->no_fuse) return false;
    if (b->fuse->reach[node] >= 8 * elements) return false; /* once for a few, not again for each of many */
    return worth_again(b, node, &cost, &leaf, elements);
}

/* The node's value at a place: what was calculated before, a calculation, or a load. */
static int32_t compute(emitter *e, uint32_t node, const place *where)
{
    const sw__sched *b = e->b;
    const sw__node *n = &b->g->nodes[node];
    place at = *where;
    if (e->st != SW_OK || e->overflow) return -1;
    if (b->role[node] == SW_ROLE_VIEW && !(n->op == SW_OP_RESHAPE && !sw__view_is_plain(n, &b->g->nodes[n->in[0]]))) {
        sw__view_push(n, &b->g->nodes[n->in[0]], at.row);
        return compute(e, n->in[0], &at);
    }
    for (int k = n->rank; k < SW_MAX_RANK; k++) at.row[k] = (sw__row){.axis = -1};
    const bool here = is_member(e, node) && at_own_place(e, node, where);
    if (here) own_place(e, node, &at);
    for (uint32_t m = b->fuse->memo_head[node]; m; m = e->memo[m - 1].next)
        if (memcmp(&e->memo[m - 1].at, &at, sizeof at) == 0) return e->memo[m - 1].inst;
    const bool again = b->role[node] == SW_ROLE_INLINE || n->op == SW_OP_CONST || n->op == SW_OP_IOTA;
    const bool calculated = here || again || (!e->load_all && cheap_again(b, node));
    const int32_t inst = calculated ? calculate(e, n, &at) : load(e, node, &at);
    if (inst < 0) return -1;
    const sw_status st = sw__grow(&e->memo, &e->cap_memo, e->n_memo + 1, sizeof *e->memo, "a kernel");
    if (st != SW_OK) return stop(e, st);
    memo *m = &e->memo[e->n_memo++];
    memset(m, 0, sizeof *m);
    m->node = node;
    m->next = b->fuse->memo_head[node];
    m->inst = inst;
    m->at = at;
    b->fuse->memo_head[node] = (uint32_t)e->n_memo;
    return inst;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Kernel axes in physical order; where the last of them is reduced, all reduced ones go to the end: rows. */
static void order_axes(emitter *e, sw__kernel *k)
{
    const sw__unit *u = e->u;
    const bool rows = u->reduced >> u->order[u->rank - 1] & 1u;
    int n = 0;
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < u->rank; i++) {
            const int x = u->order[i];
            const bool last = rows && (u->reduced >> x & 1u);
            if (last != (part == 1)) continue;
            k->extent[n] = u->dim[x];
            if (u->reduced >> x & 1u) k->reduced |= 1u << n;
            e->pos[x] = n++;
        }
    k->rank = n;
}

/* Drops what no store needs and renumbers. */
static void compact(emitter *e, sw__kernel *k, bool *needed, int32_t *to)
{
    int32_t n = 0;
    for (int32_t j = e->n_inst; j-- > 0;) {
        const sw__inst *i = &e->inst[j];
        if (i->kop == SW_K_STORE) needed[j] = true;
        const int32_t arg[3] = {i->a, i->b, i->c};
        for (int m = 0; m < 3; m++)
            if (needed[j] && arg[m] >= 0) needed[arg[m]] = true;
    }
    for (int32_t j = 0; j < e->n_inst; j++) {
        if (!needed[j]) continue;
        sw__inst *i = &k->inst[n];
        *i = e->inst[j];
        if (i->a >= 0) i->a = to[i->a];
        if (i->b >= 0) i->b = to[i->b];
        if (i->c >= 0) i->c = to[i->c];
        to[j] = n++;
    }
    k->n_insts = n;
}

/* A part of a group may have lost its reductions to another part. What remains of the rows is then a domain of its own;
 * rows and whole points do not go together without a reduction between them. */
static bool settle_levels(emitter *e, sw__kernel *k)
{
    bool rows = false, points = false, reduces = false;
    for (int32_t j = 0; j < k->n_insts; j++) {
        if (k->inst[j].kop == SW_K_REDUCE) reduces = true;
        if (k->inst[j].kop != SW_K_STORE) continue;
        if (walks_reduced(e, &k->inst[j])) points = true;
        else rows = true;
    }
    if (reduces || !k->reduced) return true;
    if (rows && points) e->overflow = true;
    for (int x = 0; x < k->rank && !points; x++)
        if (k->reduced >> x & 1u) k->extent[x] = 1;
    k->reduced = 0;
    return !e->overflow;
}

static sw_status name_kernel(const emitter *e, sw__kernel *k, const char **step_name)
{
    sw__text t = {0};
    uint32_t last = 0, first = e->to;
    int n = 0;
    for (uint32_t i = e->from; i < e->to; i++)
        if (e->b->tensor[e->u->member[i]].value) last = e->u->member[i];
    while (first > e->from && e->u->member[first - 1] > last) first--;
    for (uint32_t i = first, shown = SW_OP_NONE; i-- > e->from && n < 3;) {
        const uint32_t op = e->b->g->nodes[e->u->member[i]].op;
        if (op == shown) continue;
        shown = op;
        sw__text_add(&t, "%s_", sw__op_table[op].name);
        n++;
    }
    sw__text_add(&t, "%u", (unsigned)last);
    if (t.s) memcpy(k->name, t.s, SW_MIN(t.len, sizeof k->name - 1));
    sw__text_free(&t);
    const char *own = e->b->g->nodes[last].name;
    *step_name = own && own[0] ? own : k->name;
    return SW_OK;
}

/* Stores behind everything, each with a buffer of its own, and the finished kernel as a step. */
static sw_status finish(emitter *e, sw__kernel *k, const uint32_t *stored, const int32_t *value, int n)
{
    sw__sched *b = e->b;
    const char *name = "";
    uint32_t id;
    for (int i = 0; i < n; i++) {
        const sw__ref *r = &b->tensor[stored[i]].ref;
        const sw__node *node = &b->g->nodes[stored[i]];
        place at;
        own_place(e, stored[i], &at);
        for (int x = 0; x < node->rank; x++)
            if (node->dim[x] == 1) at.row[x] = (sw__row){.axis = -1};
        sw__inst s = blank(SW_K_STORE, (sw_dtype)e->inst[value[i]].dtype);
        s.a = value[i];
        if (e->inst[s.a].narrow && e->inst[s.a].narrow == r->desc.dtype) s.a = e->inst[s.a].a; /* the store rounds */
        s.buffer = e->n_in + i;
        set_access(e, &s, r->offset, &r->desc, at.row);
        if (add(e, &s) < 0) return e->st;
        k->buffer[s.buffer].dtype = r->desc.dtype;
    }
    bool *needed = sw__calloc((size_t)e->n_inst + 1, sizeof *needed);
    int32_t *to = sw__calloc((size_t)e->n_inst + 1, sizeof *to);
    k->inst = sw__malloc(((size_t)e->n_inst + 1) * sizeof *k->inst);
    if (needed && to && k->inst) compact(e, k, needed, to);
    sw__free(needed);
    sw__free(to);
    if (!needed || !to || !k->inst) return sw__no_memory(((size_t)e->n_inst + 1) * sizeof *k->inst, "a kernel");
    if (k->n_insts > e->max_insts) {
        e->overflow = true;
        return SW_OK;
    }
    if (!settle_levels(e, k)) return SW_OK;
    k->n_buffers = e->n_in + n;
    for (int i = 0; i < e->n_in; i++) k->buffer[i].dtype = e->in[i].desc.dtype;
    SW_TRY(name_kernel(e, k, &name));
    sw__kernel_collapse(k);
    SW_TRY(sw__kernel_analyse(k));
    SW_TRY(sw__sched_step(b, SW_STEP_KERNEL, name, e->n_in, n, stored[0], &id));
    sw__step *s = &b->s->steps[id];
    for (int i = 0; i < e->n_in; i++) s->refs[i] = e->in[i];
    for (int i = 0; i < n; i++) s->refs[e->n_in + i] = b->tensor[stored[i]].ref;
    for (size_t i = 0; i < e->n_read; i++) SW_TRY(sw__sched_reads(b, id, e->read[i]));
    for (int i = 0; i < n; i++) SW_TRY(sw__sched_writes(b, id, b->tensor[stored[i]].value));
    sw__kernel_cost(k, &s->bytes, &s->flops);
    SW_TRY(sw__kernel_clone(k, &b->s->steps[id].kernel));
    return SW_OK;
}

static sw_status emit_members(emitter *e, sw__kernel *k)
{
    const sw__sched *b = e->b;
    uint32_t stored[SW_K_MAX_BUFFERS];
    int32_t value[SW_K_MAX_BUFFERS];
    int n = 0;
    order_axes(e, k);
    e->rank = k->rank;
    for (uint32_t i = e->from; i < e->to; i++) {
        const uint32_t node = e->u->member[i];
        if (b->tensor[node].value == 0) continue;
        if (n >= e->max_buffers) {
            e->overflow = true;
            return SW_OK;
        }
        place at;
        own_place(e, node, &at);
        value[n] = compute(e, node, &at);
        if (e->st != SW_OK || e->overflow) return e->st;
        stored[n++] = node;
    }
    if (n + e->n_in > e->max_buffers) e->overflow = true;
    if (n == 0 || e->overflow) return SW_OK;
    return finish(e, k, stored, value, n);
}

static void emitter_free(emitter *e)
{
    for (size_t i = 0; i < e->n_memo; i++) e->b->fuse->memo_head[e->memo[i].node] = 0;
    sw__free(e->inst);
    sw__free(e->full);
    sw__free(e->read);
    sw__free(e->memo);
}

static sw_status emit_once(sw__sched *b, const sw__unit *u, uint32_t from, uint32_t to, bool load_all, bool *overflow)
{
    const int max_buffers = b->t->max_buffers, max_insts = b->t->max_insts;
    emitter e = {.b = b, .u = u, .from = from, .to = to, .load_all = load_all, .st = SW_OK};
    sw__kernel *k = sw__calloc(1, sizeof *k);
    if (!k) return sw__no_memory(sizeof *k, "a kernel");
    e.max_buffers = max_buffers ? SW_MIN(max_buffers, SW_K_MAX_BUFFERS) : SW_K_MAX_BUFFERS;
    e.max_insts = max_insts ? SW_MIN(max_insts, SW_K_MAX_INSTS) : SW_K_MAX_INSTS;
    const sw_status st = emit_members(&e, k);
    emitter_free(&e);
    sw__kernel_free(k);
    *overflow = e.overflow;
    return st;
}

/* Members [from, to) of a group as one kernel, or, if that is too large, as two, the later half first. */
static sw_status emit_range(sw__sched *b, const sw__unit *u, uint32_t from, uint32_t to)
{
    bool overflow;
    SW_TRY(emit_once(b, u, from, to, false, &overflow));
    if (!overflow) return SW_OK;
    if (to - from > 1) {
        const uint32_t half = from + (to - from) / 2;
        SW_TRY(emit_range(b, u, half, to));
        return emit_range(b, u, from, half);
    }
    SW_TRY(emit_once(b, u, from, to, true, &overflow));
    if (!overflow) return SW_OK;
    return sw__fail(SW_ERR_UNSUPPORTED, "%s '%s' needs more buffers or instructions than the device's kernels may have",
                    sw__op_table[b->g->nodes[u->member[from]].op].name, sw__sched_name(b, u->member[from]));
}

/* ---- whole ops --------------------------------------------------------------------------------------------------- */

static const uint8_t image_order[SW_MAX_RANK] = {0, 2, 3, 1, 4, 5, 6, 7};

static bool is_weight(const sw__node *n, uint32_t k)
{
    return (n->op == SW_OP_CONV || n->op == SW_OP_CONV_GRAD_X) && k == 1;
}

/* The order in which the op would like input k. */
static const uint8_t *liked_order(const sw__sched *b, const sw__node *n, uint32_t k)
{
    if (!b->t->channels_last[n->op] || b->g->nodes[n->in[k]].rank != 4 || is_weight(n, k)) return NULL;
    return image_order;
}

static sw_status copy_for(sw__sched *b, uint32_t node, const uint8_t *order, const sw__tensor *from, sw__tensor *out)
{
    sw__tensor *made = order ? &b->liked[node] : &b->dense[node];
    if (made->value == 0 || !sw__ref_is_dense(&made->ref, order)) {
        SW_TRY(sw__sched_new_tensor(b, &b->g->nodes[node], order, made));
        SW_TRY(sw__sched_copy(b, from, made, sw__sched_name(b, node), node));
    }
    *out = *made;
    return SW_OK;
}

static sw_status op_input(sw__sched *b, uint32_t node, uint32_t k, sw__tensor *in, sw__op_desc *d, sw__desc *descs)
{
    const sw__node *n = &b->g->nodes[node];
    const uint8_t *order = liked_order(b, n, k);
    sw__tensor *t = &in[k];
    if (!sw__ref_is_dense(&t->ref, order)) {
        if (b->a->op_accepts && b->a->op_accepts(b->a->ctx, d, (int)k)) return SW_OK;
        SW_TRY(copy_for(b, n->in[k], order, t, t));
    }
    /* axes of size 1 get the strides of a dense tensor, so that the layout can be told from them */
    const sw__ref r = t->ref;
    sw__dense_ref(&t->ref, r.storage, r.offset, (sw_dtype)r.desc.dtype, r.desc.rank, r.desc.dim, order);
    descs[k] = t->ref.desc;
    return SW_OK;
}

static sw_status op_inputs(sw__sched *b, uint32_t node, sw__tensor *in, sw__desc *descs)
{
    const sw__node *n = &b->g->nodes[node];
    sw__desc *outs = descs + n->n_in;
    const int n_out = sw__node_outputs(n);
    for (uint32_t k = 0; k < n->n_in; k++) {
        SW_TRY(sw__sched_tensor(b, n->in[k], &in[k]));
        descs[k] = in[k].ref.desc;
    }
    for (int k = 0; k < n_out; k++) {
        sw__ref r;
        sw__dense_ref(&r, 0, 0, (sw_dtype)n->dtype, n->rank, n->dim, n->order);
        outs[k] = r.desc;
    }
    sw__op_desc d = {.op = n->op, .attr = &n->attr, .name = sw__sched_name(b, node), .n_in = (int)n->n_in,
                     .n_out = n_out, .in = descs, .out = outs};
    for (uint32_t k = 0; k < n->n_in; k++) SW_TRY(op_input(b, node, k, in, &d, descs));
    return SW_OK;
}

static bool op_wanted(const sw__sched *b, uint32_t node)
{
    if (b->tensor[node].value) return true;
    for (uint32_t i = node + 1; i < b->g->n_nodes; i++)
        if (b->g->nodes[i].op == SW_OP_OUTPUT && b->g->nodes[i].in[0] == node && b->tensor[i].value) return true;
    return false;
}

static sw_status emit_op(sw__sched *b, uint32_t node)
{
    const sw__node *n = &b->g->nodes[node];
    if (!op_wanted(b, node)) return SW_OK;
    sw__tensor *in = sw__calloc((size_t)n->n_in + 1, sizeof *in);
    sw__desc *descs = sw__calloc((size_t)n->n_in + SW__MAX_OUT, sizeof *descs);
    sw_status st = in && descs ? op_inputs(b, node, in, descs) : sw__no_memory(sizeof *in * (n->n_in + 1), "an op");
    if (st == SW_OK) st = sw__sched_op(b, node, in);
    sw__free(in);
    sw__free(descs);
    return st;
}

/* ---- pad with interior: a fill, then every so many elements the input's ------------------------------------------ */

static sw_status emit_spread(sw__sched *b, uint32_t node)
{
    const sw__node *n = &b->g->nodes[node], *x = &b->g->nodes[n->in[0]];
    sw__tensor whole = b->tensor[node], from, fill, to;
    uint32_t id;
    if (whole.value == 0) return SW_OK;
    SW_TRY(sw__sched_tensor(b, n->in[0], &from));
    fill = to = whole;
    fill.value = sw__sched_value(b);
    to.value = sw__sched_value(b);
    SW_TRY(sw__sched_fill(b, &fill, 1, n->attr.pad.value, sw__sched_name(b, node), node));
    for (int i = 0; i < n->rank; i++) {
        to.ref.offset += n->attr.pad.lo[i] * whole.ref.desc.stride[i];
        to.ref.desc.stride[i] *= n->attr.pad.interior[i] + 1;
        to.ref.desc.dim[i] = x->dim[i];
    }
    SW_TRY(sw__sched_part(b, whole.value, fill.value));
    SW_TRY(sw__sched_part(b, whole.value, to.value));
    id = b->s->n_steps;
    SW_TRY(sw__sched_copy(b, &from, &to, sw__sched_name(b, node), node));
    return b->s->n_steps > id ? sw__sched_reads(b, id, fill.value) : SW_OK; /* after the fill */
}

/* ---- all units --------------------------------------------------------------------------------------------------- */

typedef struct rank { uint32_t unit, before; } rank;

static int compare_ranks(const void *x, const void *y)
{
    const rank *a = x, *b = y;
    if (a->before != b->before) return a->before > b->before ? -1 : 1;
    return (a->unit < b->unit) - (a->unit > b->unit);
}

static sw_status emit_unit(sw__sched *b, uint32_t unit)
{
    const sw__unit *u = &b->fuse->unit[unit];
    if (u->is_group) return u->points == 0 && !u->reduced ? SW_OK : emit_range(b, u, 0, u->n);
    switch ((sw__role)b->role[u->node]) {
    case SW_ROLE_OP: return emit_op(b, u->node);
    case SW_ROLE_SPREAD: return emit_spread(b, u->node);
    default: return SW_OK; /* concat and pack have had their places given and copies made */
    }
}

sw_status sw__sched_emit(sw__sched *b)
{
    const sw__fuse *f = b->fuse;
    rank *r = sw__calloc((size_t)f->n + 1, sizeof *r);
    if (!r) return sw__no_memory(((size_t)f->n + 1) * sizeof *r, "units");
    for (uint32_t i = 0; i < f->n; i++) { /* more come before whatever comes later */
        r[i].unit = i;
        for (uint32_t w = 0; w < f->words; w++) r[i].before += (uint32_t)__builtin_popcountll(f->unit[i].before[w]);
    }
    qsort(r, f->n, sizeof *r, compare_ranks);
    sw_status st = SW_OK;
    for (uint32_t i = 0; i < f->n && st == SW_OK; i++) st = emit_unit(b, r[i].unit);
    sw__free(r);
    return st;
}
