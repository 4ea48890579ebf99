/* schedule.c: graph -> schedule: where every value lies and the list of steps. Drives fuse.c (or plain.c) and order.c.
 * Last of the passes; exec/compile.c plans the steps, then memory.c places what lies in the arena. */
#include "pass/sched.h"

/* ---- storages and tensors ---------------------------------------------------------------------------------------- */

sw_dtype sw__sched_stored(const sw__sched *b, sw_dtype t)
{
    return b->t->float_storage == SW_F64 && sw__dtype_is_float(t) ? SW_F64 : t;
}

sw_status sw__sched_storage(sw__sched *b, sw__storage_kind kind, uint32_t index, sw_dtype dtype, int64_t elements,
                            int32_t *out)
{
    sw__schedule *s = b->s;
    size_t bytes = 0;
    const size_t align = SW_MAX(b->t->alignment, (size_t)1);
    const sw_dtype stored = sw__sched_stored(b, dtype);
    SW_TRY(sw__grow(&s->storages, &s->cap_storages, s->n_storages + 1u, sizeof *s->storages, "storages"));
    if (!sw__mul_size((size_t)SW_MAX(elements, 1), sw_dtype_size(stored), &bytes) || bytes > SIZE_MAX / 2 - align)
        return sw__fail(SW_ERR_MEMORY, "a tensor of %lld elements does not fit into memory", (long long)elements);
    s->storages[s->n_storages] = (sw__storage){
        .kind = (uint8_t)kind, .index = index, .dtype = (uint8_t)dtype, .stored = (uint8_t)stored, .elements = elements,
        .bytes = (bytes + align - 1) / align * align, .first = -1, .last = -1, .reuse = -1};
    if (kind == SW_STORE_ARENA) s->storages[s->n_storages].dtype = (uint8_t)stored;
    *out = (int32_t)s->n_storages++;
    return SW_OK;
}

uint32_t sw__sched_value(sw__sched *b) { return b->n_values++; }

void sw__dense_ref(sw__ref *r, int32_t storage, int64_t offset, sw_dtype dtype, int rank, const int64_t *dim,
                   const uint8_t *order)
{
    memset(r, 0, sizeof *r);
    r->storage = storage;
    r->offset = offset;
    r->desc.dtype = (uint8_t)dtype;
    r->desc.rank = (uint8_t)rank;
    int64_t s = 1;
    for (int i = rank - 1; i >= 0; i--) {
        const int x = order ? order[i] : i;
        r->desc.dim[x] = dim[x];
        r->desc.stride[x] = s;
        s *= SW_MAX(dim[x], (int64_t)1); /* also of an empty tensor the strides say that no two places are one */
    }
}

bool sw__ref_is_dense(const sw__ref *r, const uint8_t *order)
{
    int64_t s = 1;
    if (sw__dims_product(r->desc.dim, r->desc.rank) == 0) return true;
    for (int i = r->desc.rank - 1; i >= 0; i--) {
        const int x = order ? order[i] : i;
        if (r->desc.dim[x] == 1) continue;
        if (r->desc.stride[x] != s) return false;
        s *= r->desc.dim[x];
    }
    return true;
}

sw_status sw__sched_new_tensor(sw__sched *b, const sw__node *n, const uint8_t *order, sw__tensor *out)
{
    int32_t storage;
    const sw_dtype stored = sw__sched_stored(b, (sw_dtype)n->dtype);
    SW_TRY(sw__sched_storage(b, SW_STORE_ARENA, 0, stored, sw__dims_product(n->dim, n->rank), &storage));
    sw__dense_ref(&out->ref, storage, 0, stored, n->rank, n->dim, order);
    out->value = sw__sched_value(b);
    return SW_OK;
}

static const sw__storage_kind source_kind[SW_OP_COUNT] = {
    [SW_OP_INPUT] = SW_STORE_INPUT, [SW_OP_VAR] = SW_STORE_VAR, [SW_OP_VARPACK] = SW_STORE_GROUP,
    [SW_OP_LITERAL] = SW_STORE_CONST,
};

/* Sources lie dense and row-major in storages of their own. One storage for each slot, even if several nodes name
 * it. */
static sw_status source_tensor(sw__sched *b, uint32_t node)
{
    const sw__node *n = &b->g->nodes[node];
    int32_t storage = -1, *shared = NULL;
    if (n->op == SW_OP_VAR) shared = &b->var_storage[n->attr.slot.index];
    if (n->op == SW_OP_VARPACK) shared = &b->group_storage[n->attr.slot.index];
    if (shared && *shared) {
        storage = *shared - 1;
    } else {
        const uint32_t index = n->op == SW_OP_LITERAL ? 0 : n->attr.slot.index;
        SW_TRY(sw__sched_storage(b, source_kind[n->op], index, (sw_dtype)n->dtype, sw__node_elements(n), &storage));
        if (n->op == SW_OP_LITERAL) b->s->storages[storage].data = n->attr.literal.data;
        if (n->op == SW_OP_VAR) b->s->storages[storage].group = (uint32_t)(b->g->vars[index].group + 1);
        if (n->op == SW_OP_VARPACK) b->s->storages[storage].group = index + 1;
        if (shared) *shared = storage + 1;
    }
    sw__dense_ref(&b->tensor[node].ref, storage, 0, sw__sched_stored(b, (sw_dtype)n->dtype), n->rank, n->dim, NULL);
    b->tensor[node].value = node;
    return SW_OK;
}

/* A dense row-major copy of a node's value, made once. */
static sw_status dense_tensor(sw__sched *b, uint32_t node, sw__tensor *out)
{
    sw__tensor *d = &b->dense[node], from;
    if (d->value == 0) {
        SW_TRY(sw__sched_tensor(b, node, &from));
        if (sw__ref_is_dense(&from.ref, NULL)) {
            *d = from;
        } else {
            SW_TRY(sw__sched_new_tensor(b, &b->g->nodes[node], NULL, d));
            SW_TRY(sw__sched_copy(b, &from, d, sw__sched_name(b, node), node));
        }
    }
    *out = *d;
    return SW_OK;
}

static sw_status view_tensor(sw__sched *b, uint32_t node)
{
    const sw__node *n = &b->g->nodes[node], *x = &b->g->nodes[n->in[0]];
    sw__tensor from;
    SW_TRY(sw__sched_tensor(b, n->in[0], &from));
    if (!sw__view_ref(n, x, &from.ref, &b->tensor[node].ref)) {
        SW_TRY(dense_tensor(b, n->in[0], &from));
        if (!sw__view_ref(n, x, &from.ref, &b->tensor[node].ref))
            return sw__fail(SW_ERR_UNSUPPORTED, "%s '%s' cannot view a dense tensor", sw__op_table[n->op].name,
                            sw__sched_name(b, node));
    }
    b->tensor[node].value = from.value;
    return SW_OK;
}

sw_status sw__sched_tensor(sw__sched *b, uint32_t node, sw__tensor *out)
{
    const sw__node *n = &b->g->nodes[node];
    sw__tensor *t = &b->tensor[node];
    if (t->value == 0) {
        switch ((sw__role)b->role[node]) {
        case SW_ROLE_SOURCE: SW_TRY(source_tensor(b, node)); break;
        case SW_ROLE_VIEW: SW_TRY(view_tensor(b, node)); break;
        case SW_ROLE_FUSED: case SW_ROLE_OP: case SW_ROLE_OUTPUT: case SW_ROLE_JOIN: case SW_ROLE_SPREAD:
            SW_TRY(sw__sched_new_tensor(b, n, n->order, t));
            t->value = node;
            break;
        default:
            return sw__fail(SW_ERR_UNSUPPORTED, "%s '%s' has no place in memory", sw__op_table[n->op].name,
                            sw__sched_name(b, node));
        }
    }
    *out = *t;
    return SW_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

const char *sw__sched_name(sw__sched *b, uint32_t node)
{
    const sw__node *n = &b->g->nodes[node];
    return n->name && n->name[0] ? n->name : sw__op_table[n->op].name;
}

sw_status sw__sched_step(sw__sched *b, sw__step_kind kind, const char *name, int n_in, int n_out, uint32_t key,
                         uint32_t *out)
{
    sw__schedule *s = b->s;
    SW_TRY(sw__grow(&s->steps, &s->cap_steps, s->n_steps + 1u, sizeof *s->steps, "steps"));
    SW_TRY(sw__grow(&b->key, &b->cap_key, s->n_steps + 1u, sizeof *b->key, "steps"));
    sw__step *step = &s->steps[s->n_steps];
    memset(step, 0, sizeof *step);
    step->kind = (uint8_t)kind;
    step->n_in = n_in;
    step->n_out = n_out;
    step->workspace = -1;
    step->name = sw__arena_strdup(&s->arena, name);
    step->refs = sw__arena_alloc(&s->arena, (size_t)(n_in + n_out + 1) * sizeof *step->refs);
    if (!step->name || !step->refs) return sw__no_memory((size_t)(n_in + n_out + 1) * sizeof *step->refs, "a step");
    b->key[s->n_steps] = key;
    *out = s->n_steps++;
    return SW_OK;
}

static sw_status touch(sw__touch **list, size_t *n, size_t *cap, uint32_t step, uint32_t value)
{
    SW_TRY(sw__grow(list, cap, *n + 1, sizeof **list, "dependences"));
    (*list)[(*n)++] = (sw__touch){step, value};
    return SW_OK;
}

sw_status sw__sched_reads(sw__sched *b, uint32_t step, uint32_t value)
{
    return touch(&b->reads, &b->n_reads, &b->cap_reads, step, value);
}

sw_status sw__sched_writes(sw__sched *b, uint32_t step, uint32_t value)
{
    return touch(&b->writes, &b->n_writes, &b->cap_writes, step, value);
}

sw_status sw__sched_part(sw__sched *b, uint32_t whole, uint32_t part)
{
    SW_TRY(sw__grow(&b->parts, &b->cap_parts, b->n_parts + 1, sizeof *b->parts, "dependences"));
    b->parts[b->n_parts++] = (sw__part){whole, part};
    return SW_OK;
}

/* Domain axes in the physical order of the tensor that is written, slowest first. */
static void order_by_stride(const sw__desc *d, uint8_t order[SW_MAX_RANK])
{
    for (int i = 0; i < d->rank; i++) {
        int j = i;
        for (; j > 0 && d->stride[order[j - 1]] < d->stride[i]; j--) order[j] = order[j - 1];
        order[j] = (uint8_t)i;
    }
}

static uint8_t in_kernel(sw_dtype t) { return (uint8_t)(t == SW_F16 || t == SW_BF16 ? SW_F32 : t); }

static void set_access(sw__inst *i, const sw__ref *r, const uint8_t *order)
{
    i->offset = r->offset;
    for (int x = 0; x < r->desc.rank; x++)
        i->stride[x] = r->desc.dim[order[x]] == 1 ? 0 : r->desc.stride[order[x]];
}

static sw_status new_kernel(int n_insts, const char *what, uint32_t key, sw__kernel **out)
{
    sw__kernel *k = sw__calloc(1, sizeof *k);
    sw__inst *inst = sw__calloc((size_t)n_insts, sizeof *inst);
    if (!k || !inst) {
        sw__free(k);
        sw__free(inst);
        return sw__no_memory((size_t)n_insts * sizeof *inst, "a kernel");
    }
    k->inst = inst;
    k->n_insts = n_insts;
    for (int i = 0; i < n_insts; i++) inst[i].a = inst[i].b = inst[i].c = -1;
    sw__text name = {0};
    sw__text_add(&name, "%s_%u", what, (unsigned)key);
    if (name.s) memcpy(k->name, name.s, SW_MIN(name.len + 1, sizeof k->name - 1));
    sw__text_free(&name);
    *out = k;
    return SW_OK;
}

static sw_status finish_kernel(sw__sched *b, uint32_t step, sw__kernel *k)
{
    sw__kernel_collapse(k);
    const sw_status st = sw__kernel_analyse(k);
    if (st != SW_OK) {
        sw__kernel_free(k);
        return st;
    }
    b->s->steps[step].kernel = k;
    sw__kernel_cost(k, &b->s->steps[step].bytes, &b->s->steps[step].flops);
    return SW_OK;
}

static void set_domain(sw__kernel *k, const sw__desc *d, uint8_t order[SW_MAX_RANK])
{
    order_by_stride(d, order);
    k->rank = SW_MAX((int)d->rank, 1);
    k->extent[0] = 1;
    for (int i = 0; i < d->rank; i++) k->extent[i] = d->dim[order[i]];
}

static sw_status copy_kernel(sw__sched *b, uint32_t step, const sw__ref *from, const sw__ref *to, uint32_t key)
{
    uint8_t order[SW_MAX_RANK] = {0};
    sw__kernel *k;
    SW_TRY(new_kernel(2, "copy", key, &k));
    set_domain(k, &to->desc, order);
    k->n_buffers = 2;
    k->buffer[0].dtype = from->desc.dtype;
    k->buffer[1].dtype = to->desc.dtype;
    k->inst[0].kop = SW_K_LOAD;
    k->inst[0].dtype = k->inst[1].dtype = in_kernel((sw_dtype)from->desc.dtype);
    set_access(&k->inst[0], from, order);
    k->inst[1].kop = SW_K_STORE;
    k->inst[1].a = 0;
    k->inst[1].buffer = 1;
    set_access(&k->inst[1], to, order);
    return finish_kernel(b, step, k);
}

sw_status sw__sched_copy(sw__sched *b, const sw__tensor *from, const sw__tensor *to, const char *name, uint32_t key)
{
    uint32_t id;
    if (sw__dims_product(to->ref.desc.dim, to->ref.desc.rank) == 0) return SW_OK;
    SW_TRY(sw__sched_step(b, b->t->fuse ? SW_STEP_KERNEL : SW_STEP_OP, name, 1, 1, key, &id));
    sw__step *step = &b->s->steps[id];
    step->copy = true;
    step->refs[0] = from->ref;
    step->refs[1] = to->ref;
    step->op = SW_OP_COPY;
    if (b->t->fuse) SW_TRY(copy_kernel(b, id, &from->ref, &to->ref, key));
    else sw__op_cost(step, &step->flops, &step->bytes);
    SW_TRY(sw__sched_reads(b, id, from->value));
    return sw__sched_writes(b, id, to->value);
}

static sw_status fill_kernel(sw__sched *b, uint32_t step, const sw__tensor *to, int n, double value, uint32_t key)
{
    uint8_t order[SW_MAX_RANK] = {0};
    sw__kernel *k;
    SW_TRY(new_kernel(1 + n, "fill", key, &k));
    set_domain(k, &to->ref.desc, order);
    k->n_buffers = n;
    k->inst[0].kop = SW_K_CONST;
    k->inst[0].dtype = in_kernel((sw_dtype)to->ref.desc.dtype);
    k->inst[0].value = value;
    k->inst[0].ivalue = (int64_t)value;
    for (int i = 0; i < n; i++) {
        k->buffer[i].dtype = to[i].ref.desc.dtype;
        k->inst[1 + i].kop = SW_K_STORE;
        k->inst[1 + i].dtype = k->inst[0].dtype;
        k->inst[1 + i].a = 0;
        k->inst[1 + i].buffer = i;
        set_access(&k->inst[1 + i], &to[i].ref, order);
    }
    return finish_kernel(b, step, k);
}

/* Sets n tensors of one shape to a value. */
sw_status sw__sched_fill(sw__sched *b, const sw__tensor *to, int n, double value, const char *name, uint32_t key)
{
    uint32_t id;
    const int at_once = b->t->fuse ? SW_K_MAX_BUFFERS : 1;
    if (sw__dims_product(to->ref.desc.dim, to->ref.desc.rank) == 0) return SW_OK;
    for (int i = 0; i < n; i += at_once) {
        const int m = SW_MIN(at_once, n - i);
        SW_TRY(sw__sched_step(b, b->t->fuse ? SW_STEP_KERNEL : SW_STEP_OP, name, 0, m, key, &id));
        sw__step *step = &b->s->steps[id];
        step->copy = true;
        for (int j = 0; j < m; j++) step->refs[j] = to[i + j].ref;
        step->op = SW_OP_CONST;
        step->attr.constant.value = value;
        step->attr.constant.ivalue = (int64_t)value;
        if (b->t->fuse) SW_TRY(fill_kernel(b, id, &to[i], m, value, key));
        else sw__op_cost(step, &step->flops, &step->bytes);
        for (int j = 0; j < m; j++) SW_TRY(sw__sched_writes(b, id, to[i + j].value));
    }
    return SW_OK;
}

/* Output k of an op that has several may be used by nobody; it still needs a place. */
static sw_status op_output(sw__sched *b, uint32_t node, int k, sw__tensor *out)
{
    if (k == 0) return sw__sched_tensor(b, node, out);
    for (uint32_t i = node + 1; i < b->g->n_nodes; i++) {
        const sw__node *o = &b->g->nodes[i];
        if (o->op == SW_OP_OUTPUT && o->in[0] == node && o->attr.axis.axis == k && b->role[i])
            return sw__sched_tensor(b, i, out);
    }
    sw__node unused = {.op = SW_OP_OUTPUT, .n_in = 1, .in = &node};
    unused.attr.axis.axis = k;
    SW_TRY(sw__op_table[SW_OP_OUTPUT].infer(b->g, &unused));
    for (int i = 0; i < SW_MAX_RANK; i++) unused.order[i] = (uint8_t)i;
    return sw__sched_new_tensor(b, &unused, NULL, out);
}

sw_status sw__sched_op(sw__sched *b, uint32_t node, const sw__tensor *in)
{
    const sw__node *n = &b->g->nodes[node];
    const int n_out = sw__node_outputs(n);
    uint32_t id;
    sw__tensor t;
    bool empty = true;
    SW_TRY(sw__sched_step(b, SW_STEP_OP, sw__sched_name(b, node), (int)n->n_in, n_out, node, &id));
    b->s->steps[id].op = n->op;
    b->s->steps[id].attr = n->attr;
    for (uint32_t i = 0; i < n->n_in; i++) {
        b->s->steps[id].refs[i] = in[i].ref;
        SW_TRY(sw__sched_reads(b, id, in[i].value));
    }
    for (int k = 0; k < n_out; k++) {
        SW_TRY(op_output(b, node, k, &t));
        b->s->steps[id].refs[(int)n->n_in + k] = t.ref;
        SW_TRY(sw__sched_writes(b, id, t.value));
        empty &= sw__dims_product(t.ref.desc.dim, t.ref.desc.rank) == 0;
    }
    if (empty) { /* nothing would be computed: the step goes again, and with it what it touched */
        b->s->n_steps--;
        while (b->n_reads && b->reads[b->n_reads - 1].step == id) b->n_reads--;
        while (b->n_writes && b->writes[b->n_writes - 1].step == id) b->n_writes--;
        return SW_OK;
    }
    sw__op_cost(&b->s->steps[id], &b->s->steps[id].flops, &b->s->steps[id].bytes);
    return SW_OK;
}

/* ---- concat and pack --------------------------------------------------------------------------------------------- */

/* The node whose own memory a part would be, seen through views that change no order of elements; 0 if there is
 * none. */
static uint32_t part_producer(const sw__sched *b, uint32_t node, bool through_reshape)
{
    while (b->role[node] == SW_ROLE_VIEW) {
        const sw__node *n = &b->g->nodes[node];
        const bool same = n->op == SW_OP_STOP_GRADIENT || (n->op >= SW_OP_REDUCE_SUM && n->op <= SW_OP_REDUCE_PROD);
        if (!same && !(through_reshape && n->op == SW_OP_RESHAPE)) return 0;
        node = n->in[0];
    }
    switch (b->role[node]) {
    case SW_ROLE_FUSED: case SW_ROLE_OP: case SW_ROLE_OUTPUT: case SW_ROLE_JOIN:
        return b->tensor[node].value ? 0 : node;
    default: return 0;
    }
}

/* Gives part `part` its region; *value is what is written there. */
static sw_status join_part(sw__sched *b, uint32_t node, uint32_t part, const sw__ref *region, bool in_place,
                           uint32_t *value)
{
    const bool pack = b->g->nodes[node].op == SW_OP_PACK;
    const uint32_t p = in_place ? part_producer(b, part, pack) : 0;
    sw__tensor from, to = {.ref = *region};
    const sw_dtype dtype = (sw_dtype)region->desc.dtype;
    if (p) {
        const sw__node *n = &b->g->nodes[p];
        if (pack) sw__dense_ref(&to.ref, region->storage, region->offset, dtype, n->rank, n->dim, NULL);
        const bool whole_op = b->role[p] == SW_ROLE_OP || b->role[p] == SW_ROLE_OUTPUT;
        if (!whole_op || sw__ref_is_dense(&to.ref, n->order)) {
            b->tensor[p].ref = to.ref;
            b->tensor[p].value = *value = p;
            return sw__sched_part(b, b->tensor[node].value, p);
        }
        to.ref = *region;
    }
    SW_TRY(sw__sched_tensor(b, part, &from));
    if (pack) { /* the region takes the part's shape */
        const sw__desc *d = &from.ref.desc;
        sw__dense_ref(&to.ref, region->storage, region->offset, dtype, d->rank, d->dim, NULL);
    }
    to.value = *value = sw__sched_value(b);
    SW_TRY(sw__sched_copy(b, &from, &to, sw__sched_name(b, node), node));
    return sw__sched_part(b, b->tensor[node].value, to.value);
}

static sw_status join_concat(sw__sched *b, uint32_t node, bool in_place)
{
    const sw__node *n = &b->g->nodes[node];
    const int axis = n->attr.axis.axis;
    sw__ref region = b->tensor[node].ref;
    uint32_t value;
    for (uint32_t i = 0; i < n->n_in; i++) {
        region.desc.dim[axis] = b->g->nodes[n->in[i]].dim[axis];
        SW_TRY(join_part(b, node, n->in[i], &region, in_place, &value));
        region.offset += region.desc.dim[axis] * region.desc.stride[axis];
    }
    return SW_OK;
}

#define PACK_STEP 16 /* places in a pack are multiples of this many elements */

/* What lies between the parts of a pack is set to 0 in every run, since the arena may have been used for something
 * else: whoever runs over the whole pack must not meet a NaN there. The last elements up to the next place are cleared
 * before the part is written over them, so that all gaps have one length and share launches. */
typedef struct gaps { sw__tensor *at; int n; uint32_t key; } gaps; /* key: the first part that waits for it */

static sw_status note_gap(sw__sched *b, const sw__tensor *whole, int64_t end, int64_t next, uint32_t part, gaps *g)
{
    const int64_t start = end / PACK_STEP * PACK_STEP, width = next - start;
    sw__tensor *t = &g->at[g->n++];
    const sw_dtype dtype = (sw_dtype)whole->ref.desc.dtype;
    sw__dense_ref(&t->ref, whole->ref.storage, whole->ref.offset + start, dtype, 1, &width, NULL);
    t->value = sw__sched_value(b);
    SW_TRY(sw__sched_part(b, whole->value, t->value));
    SW_TRY(sw__grow(&b->after, &b->cap_after, b->n_after + 1, sizeof *b->after, "dependences"));
    b->after[b->n_after++] = (sw__part){part, t->value};
    return SW_OK;
}

static int compare_gaps(const void *x, const void *y)
{
    const sw__tensor *a = x, *b = y;
    if (a->ref.desc.dim[0] != b->ref.desc.dim[0]) return a->ref.desc.dim[0] < b->ref.desc.dim[0] ? -1 : 1;
    return (a->ref.offset > b->ref.offset) - (a->ref.offset < b->ref.offset);
}

static sw_status fill_gaps(sw__sched *b, uint32_t node, gaps *g)
{
    qsort(g->at, (size_t)g->n, sizeof *g->at, compare_gaps);
    for (int i = 0, j = 0; i < g->n; i = j) {
        while (j < g->n && g->at[j].ref.desc.dim[0] == g->at[i].ref.desc.dim[0]) j++;
        SW_TRY(sw__sched_fill(b, &g->at[i], j - i, 0, sw__sched_name(b, node), g->key));
    }
    return SW_OK;
}

static sw_status join_pack(sw__sched *b, uint32_t node, bool in_place)
{
    const sw__node *n = &b->g->nodes[node];
    const sw__group *group = &b->g->groups[n->attr.slot.index];
    const sw__tensor whole = b->tensor[node];
    gaps g = {.at = sw__calloc((size_t)group->n + 1, sizeof *g.at), .key = node};
    sw_status st = g.at ? SW_OK : sw__no_memory(((size_t)group->n + 1) * sizeof *g.at, "gaps of a pack");
    for (uint32_t i = 0; i < n->n_in && st == SW_OK; i++) {
        const sw__var *v = &b->g->vars[group->vars[i]];
        const int64_t end = v->place + sw__dims_product(v->dim, v->rank);
        const int64_t next = i + 1 < group->n ? b->g->vars[group->vars[i + 1]].place : group->elements;
        sw__ref region = whole.ref;
        uint32_t value = 0;
        region.offset = whole.ref.offset + v->place;
        st = join_part(b, node, n->in[i], &region, in_place, &value);
        if (st != SW_OK || next == end) continue;
        g.key = SW_MIN(g.key, n->in[i]);
        st = note_gap(b, &whole, end, next, value, &g);
    }
    if (st == SW_OK) st = fill_gaps(b, node, &g);
    sw__free(g.at);
    return st;
}

/* From the last to the first, so that a concat that is part of another finds its place before it gives places. */
static sw_status place_joins(sw__sched *b)
{
    const bool in_place = b->t->fuse && b->t->views;
    sw__tensor t;
    for (uint32_t i = b->g->n_nodes; i-- > 1;) {
        if (b->role[i] != SW_ROLE_JOIN) continue;
        SW_TRY(sw__sched_tensor(b, i, &t));
        b->s->storages[t.ref.storage].gradient |= b->g->nodes[i].op == SW_OP_PACK;
        SW_TRY(b->g->nodes[i].op == SW_OP_PACK ? join_pack(b, i, in_place) : join_concat(b, i, in_place));
    }
    return SW_OK;
}

/* ---- outputs and assigns ----------------------------------------------------------------------------------------- */

/* The tensor has a storage of the arena to itself, dense and row-major. */
static bool stands_alone(const sw__sched *b, const sw__tensor *t)
{
    const sw__storage *s = &b->s->storages[t->ref.storage];
    return s->kind == SW_STORE_ARENA && t->ref.offset == 0 && sw__ref_is_dense(&t->ref, NULL) &&
           s->elements == sw__dims_product(t->ref.desc.dim, t->ref.desc.rank);
}

/* Outputs may be parts of larger storages, but are dense and in the arena. */
static sw_status place_outputs(sw__sched *b)
{
    const sw_graph *g = b->g;
    b->s->outputs = sw__arena_alloc(&b->s->arena, ((size_t)g->n_outputs + 1) * sizeof *b->s->outputs);
    if (!b->s->outputs) return sw__no_memory(((size_t)g->n_outputs + 1) * sizeof *b->s->outputs, "outputs");
    b->s->n_outputs = g->n_outputs;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const uint32_t node = g->outputs[i].node;
        sw__tensor t, own;
        SW_TRY(sw__sched_tensor(b, node, &t));
        if (b->s->storages[t.ref.storage].kind != SW_STORE_ARENA || !sw__ref_is_dense(&t.ref, NULL)) {
            SW_TRY(sw__sched_new_tensor(b, &g->nodes[node], NULL, &own));
            SW_TRY(sw__sched_copy(b, &t, &own, g->outputs[i].name, node));
            t = own;
        }
        b->s->outputs[i] = t.ref;
        b->s->storages[t.ref.storage].last = INT32_MAX; /* so that no assign takes it; order.c sets it right */
    }
    return SW_OK;
}

/* What is to be assigned lies alone in a storage, so that order.c may turn that storage into the variable itself. */
static sw_status place_assigns(sw__sched *b, sw__pending *p)
{
    const sw_graph *g = b->g;
    for (uint32_t i = 0; i < g->n_assigns; i++) {
        const sw__node *n = &g->nodes[g->assigns[i]];
        sw__tensor own;
        p[i].node = g->assigns[i];
        SW_TRY(sw__sched_tensor(b, n->in[0], &p[i].to));
        SW_TRY(sw__sched_tensor(b, n->in[1], &p[i].from));
        bool taken = !stands_alone(b, &p[i].from) || b->s->storages[p[i].from.ref.storage].last == INT32_MAX;
        for (uint32_t j = 0; j < i; j++) taken |= p[j].from.ref.storage == p[i].from.ref.storage;
        if (!taken) continue;
        SW_TRY(sw__sched_new_tensor(b, &g->nodes[n->in[0]], NULL, &own));
        SW_TRY(sw__sched_copy(b, &p[i].from, &own, sw__sched_name(b, n->in[0]), g->assigns[i]));
        p[i].from = own;
    }
    return SW_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static bool is_identity_reduce(const sw_graph *g, const sw__node *n)
{
    return n->op >= SW_OP_REDUCE_SUM && n->op <= SW_OP_REDUCE_PROD && sw__same_shape(n, &g->nodes[n->in[0]]);
}

static bool has_interior(const sw__node *n)
{
    for (int i = 0; i < n->rank; i++)
        if (n->attr.pad.interior[i] > 0) return true;
    return false;
}

static sw__role role_of(const sw__sched *b, const sw__node *n)
{
    const sw__op_info *o = &sw__op_table[n->op];
    switch (n->op) {
    case SW_OP_INPUT: case SW_OP_VAR: case SW_OP_VARPACK: case SW_OP_LITERAL: return SW_ROLE_SOURCE;
    case SW_OP_OUTPUT: return SW_ROLE_OUTPUT;
    case SW_OP_ASSIGN: return SW_ROLE_ASSIGN;
    case SW_OP_CONCAT: case SW_OP_PACK: return SW_ROLE_JOIN;
    default: break;
    }
    if (!b->t->fuse || !b->t->views) return b->t->takes[n->op] ? SW_ROLE_OP : SW_ROLE_NONE;
    if ((o->flags & SW_OPF_VIEW) || is_identity_reduce(b->g, n)) return SW_ROLE_VIEW;
    if (b->t->takes[n->op]) return SW_ROLE_OP;
    if (n->op == SW_OP_ALL_REDUCE) return SW_ROLE_VIEW; /* a device alone: the sum over all is the value itself */
    if (n->op == SW_OP_PAD) return has_interior(n) ? SW_ROLE_SPREAD : SW_ROLE_FUSED;
    if (o->flags & SW_OPF_PW) return SW_ROLE_FUSED;
    switch (n->op) {
    case SW_OP_CONST: case SW_OP_IOTA: case SW_OP_RANDOM: case SW_OP_GATHER: case SW_OP_COPY:
    case SW_OP_REDUCE_SUM: case SW_OP_REDUCE_MAX: case SW_OP_REDUCE_MIN: case SW_OP_REDUCE_PROD: return SW_ROLE_FUSED;
    default: return SW_ROLE_NONE;
    }
}

static sw_status set_roles(sw__sched *b)
{
    bool *live = NULL;
    SW_TRY(sw__graph_live(b->g, &live));
    for (uint32_t i = 1; i < b->g->n_nodes; i++) {
        const sw__node *n = &b->g->nodes[i];
        if (!live[i]) continue;
        b->role[i] = (uint8_t)role_of(b, n);
        if (b->role[i] != SW_ROLE_NONE) continue;
        sw__free(live);
        return sw__fail(SW_ERR_UNSUPPORTED, "%s '%s' (%%%u): the device does not take this op and it has no lowering",
                        sw__op_table[n->op].name, sw__sched_name(b, i), (unsigned)i);
    }
    sw__free(live);
    return SW_OK;
}

static void sched_free(sw__sched *b)
{
    sw__free(b->role);
    sw__free(b->tensor);
    sw__free(b->dense);
    sw__free(b->liked);
    sw__free(b->reads);
    sw__free(b->writes);
    sw__free(b->parts);
    sw__free(b->after);
    sw__free(b->key);
    sw__free(b->var_storage);
    sw__free(b->group_storage);
}

static sw_status sched_alloc(sw__sched *b)
{
    const size_t n = b->g->n_nodes;
    b->role = sw__calloc(n + 1, sizeof *b->role);
    b->tensor = sw__calloc(n + 1, sizeof *b->tensor);
    b->dense = sw__calloc(n + 1, sizeof *b->dense);
    b->liked = sw__calloc(n + 1, sizeof *b->liked);
    b->var_storage = sw__calloc((size_t)b->g->n_vars + 1, sizeof *b->var_storage);
    b->group_storage = sw__calloc((size_t)b->g->n_groups + 1, sizeof *b->group_storage);
    if (!b->role || !b->tensor || !b->dense || !b->liked || !b->var_storage || !b->group_storage)
        return sw__no_memory((n + 1) * sizeof *b->tensor * 3, "the scheduler");
    b->n_values = b->g->n_nodes;
    return SW_OK;
}

static sw_status build(sw__sched *b, sw__pending *assigns)
{
    SW_TRY(set_roles(b));
    if (b->t->fuse && b->t->views) SW_TRY(sw__sched_fuse(b));
    SW_TRY(place_joins(b));
    SW_TRY(place_outputs(b));
    SW_TRY(place_assigns(b, assigns));
    SW_TRY(b->t->fuse && b->t->views ? sw__sched_emit(b) : sw__sched_plain(b));
    return sw__sched_order(b, assigns, b->g->n_assigns);
}

sw_status sw__schedule_build(const sw_graph *g, const sw__traits *t, const sw__asks *a, sw__schedule **out)
{
    sw__sched b = {.g = g, .t = t, .a = a};
    sw__pending *assigns = sw__calloc((size_t)g->n_assigns + 1, sizeof *assigns);
    b.s = sw__calloc(1, sizeof *b.s);
    sw_status st = assigns && b.s ? sched_alloc(&b) : sw__no_memory(sizeof *b.s, "a schedule");
    if (st == SW_OK) st = build(&b, assigns);
    if (st == SW_OK) {
        for (uint32_t i = 1; i < g->n_nodes; i++) b.s->n_nodes += b.role[i] != SW_ROLE_NONE;
        *out = b.s;
    } else {
        sw__schedule_free(b.s);
    }
    sw__sched_fuse_free(&b);
    sched_free(&b);
    sw__free(assigns);
    return st;
}

void sw__schedule_free(sw__schedule *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (!s->steps[i].again) sw__kernel_free(s->steps[i].kernel);
    sw__free(s->steps);
    sw__free(s->storages);
    sw__arena_free(&s->arena);
    sw__free(s);
}

sw_status sw__schedule_workspace(sw__schedule *s, uint32_t step, size_t bytes, const sw__traits *t)
{
    const size_t align = SW_MAX(t->alignment, (size_t)1);
    if (bytes > SIZE_MAX / 2 - align) return sw__fail(SW_ERR_MEMORY, "step '%s' needs a workspace of %zu bytes",
                                                      s->steps[step].name, bytes);
    SW_TRY(sw__grow(&s->storages, &s->cap_storages, s->n_storages + 1u, sizeof *s->storages, "storages"));
    s->storages[s->n_storages] = (sw__storage){
        .kind = SW_STORE_ARENA, .dtype = SW_U8, .stored = SW_U8, .elements = (int64_t)bytes,
        .bytes = (bytes + align - 1) / align * align, .first = (int32_t)step, .last = (int32_t)step, .reuse = -1};
    s->steps[step].workspace = (int32_t)s->n_storages++;
    return SW_OK;
}
