/* kernel.c: checks a kernel of the IR and derives what follows from it (levels, phases, skeleton, hash); collapses
 * axes. Between pass/fuse, which makes kernels, and whoever runs or prints them. Grammar and examples:
 * docs/kernel-ir.md. */
#include "kernel/kir.h"
#include <xxhash.h>

static bool has_access(const sw__inst *i)
{
    return i->kop == SW_K_LOAD || i->kop == SW_K_GATHER || i->kop == SW_K_STORE || i->kop == SW_K_INDEX;
}

static bool has_buffer(const sw__inst *i)
{
    return i->kop == SW_K_LOAD || i->kop == SW_K_GATHER || i->kop == SW_K_STORE;
}

static bool has_mask(const sw__inst *i) { return (i->kop == SW_K_LOAD || i->kop == SW_K_GATHER) && i->masked; }

/* ---- checking ---------------------------------------------------------------------------------------------------- */

static sw_status broken(const sw__kernel *k, int32_t i, const char *what)
{
    return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s', instruction %%%d: %s", k->name, (int)i, what);
}

/* How many operands an instruction has; -1 if its op cannot stand in a kernel. */
static int operand_count(const sw__inst *i)
{
    switch (i->kop) {
    case SW_K_LOAD: case SW_K_CONST: case SW_K_INDEX: return 0;
    case SW_K_GATHER: case SW_K_STORE: return 1;
    case SW_K_RANDOM: return i->b < 0 ? 1 : 2;
    case SW_K_CALC:
        if (i->op >= SW_OP_COUNT || !(sw__op_table[i->op].flags & SW_OPF_PW)) return -1;
        return sw__op_table[i->op].min_in;
    case SW_K_REDUCE: return i->op >= SW_OP_REDUCE_SUM && i->op <= SW_OP_REDUCE_PROD ? 1 : -1;
    default: return -1;
    }
}

static sw_status check_inst(const sw__kernel *k, int32_t at)
{
    const sw__inst *i = &k->inst[at];
    const int32_t arg[3] = {i->a, i->b, i->c};
    const int n = operand_count(i);
    if (n < 0) return broken(k, at, "the op cannot stand in a kernel");
    for (int j = 0; j < 3 && j < n; j++) {
        if (arg[j] < 0 || arg[j] >= at) return broken(k, at, "an operand does not come before its use");
        if (k->inst[arg[j]].kop == SW_K_STORE) return broken(k, at, "an operand is a store");
    }
    if (has_buffer(i) && (i->buffer < 0 || i->buffer >= k->n_buffers)) return broken(k, at, "no such buffer");
    if (i->dtype == SW_F16 || i->dtype == SW_BF16 || i->dtype >= SW_DTYPE_COUNT)
        return broken(k, at, "values inside a kernel are never f16 or bf16");
    if (i->kop == SW_K_CALC && i->narrow && (i->op != SW_OP_CAST || i->dtype != SW_F32 || k->inst[i->a].dtype != SW_F32))
        return broken(k, at, "only a cast of f32 to f32 rounds to 16 bits");
    return SW_OK;
}

/* The instruction takes another value, or goes to another place, along a reduced axis by itself. */
static bool walks_reduced(const sw__kernel *k, const sw__inst *i)
{
    if (!has_access(i)) return false;
    for (int x = 0; x < k->rank; x++) {
        if (!(k->reduced >> x & 1u)) continue;
        if (i->stride[x] != 0) return true;
        if (has_mask(i) && (i->lo[x] > 0 || i->hi[x] < k->extent[x])) return true;
    }
    return false;
}

static void set_levels(sw__kernel *k)
{
    for (int32_t j = 0; j < k->n_insts; j++) k->inst[j].full = k->inst[j].phase = 0;
    /* What a reduction takes is evaluated at every point, even if it is the same along the row. */
    for (int32_t j = 0; j < k->n_insts; j++)
        if (k->inst[j].kop == SW_K_REDUCE) k->inst[k->inst[j].a].full = 1;
    for (int32_t j = 0; j < k->n_insts; j++) {
        sw__inst *i = &k->inst[j];
        const int32_t arg[3] = {i->a, i->b, i->c};
        const int n = operand_count(i);
        if (walks_reduced(k, i)) i->full = 1;
        for (int m = 0; m < 3 && m < n; m++) {
            const sw__inst *o = &k->inst[arg[m]];
            const uint8_t after = (uint8_t)(o->phase + (o->kop == SW_K_REDUCE ? 1 : 0));
            if (o->full && i->kop != SW_K_REDUCE) i->full = 1;
            if (after > i->phase) i->phase = after;
        }
    }
}

/* Every point has a place of its own in memory, or two would write to one place. */
static sw_status check_store(const sw__kernel *k, int32_t at)
{
    const sw__inst *i = &k->inst[at];
    for (int x = 0; x < k->rank; x++)
        if (k->extent[x] > 1 && i->stride[x] == 0 && (i->full || !(k->reduced >> x & 1u)))
            return broken(k, at, "a store that stays in one place along an axis");
    return SW_OK;
}

static sw_status set_skeleton(sw__kernel *k)
{
    bool reduces = false;
    int full_phase = 0;
    k->phases = 1;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *i = &k->inst[j];
        if (i->kop == SW_K_REDUCE) {
            reduces = true;
            if (i->full) return broken(k, j, "a reduction of a reduction over the same axes needs a copy in between");
        }
        if (i->full && i->phase > full_phase) full_phase = i->phase;
        if (i->phase + 1 > k->phases) k->phases = (uint8_t)(i->phase + 1);
    }
    const uint32_t all = (1u << k->rank) - 1, kept = all & ~k->reduced;
    k->skeleton = SW_SKEL_POINTWISE;
    if (!reduces) return SW_OK;
    if (!k->reduced) return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s' has a reduction but no reduced axis", k->name);
    if (kept >> (k->rank - 1) & 1u) k->skeleton = SW_SKEL_COLUMN;
    else if (kept == 0 && full_phase == 0) k->skeleton = SW_SKEL_FULL;
    else if ((kept & (kept + 1)) == 0) k->skeleton = SW_SKEL_ROW;
    else return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s': reduced axes are neither last nor before the last", k->name);
    if (k->skeleton == SW_SKEL_COLUMN && full_phase > 0)
        return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s': a column reduction goes over its columns once", k->name);
    return SW_OK;
}

/* ---- hash and equality ------------------------------------------------------------------------------------------- */

/* The fields that have a meaning for this instruction, all others zero, so that bytes can be compared. */
static void canonical(const sw__kernel *k, const sw__inst *i, sw__inst *o)
{
    const int n = operand_count(i);
    memset(o, 0, sizeof *o);
    o->kop = i->kop;
    o->dtype = i->dtype;
    o->a = n > 0 ? i->a : -1;
    o->b = n > 1 ? i->b : -1;
    o->c = n > 2 ? i->c : -1;
    if (i->kop == SW_K_CALC || i->kop == SW_K_REDUCE) o->op = i->op;
    if (i->kop == SW_K_CALC) o->narrow = i->narrow;
    if (has_buffer(i)) o->buffer = i->buffer;
    if (has_access(i)) {
        o->offset = i->offset;
        memcpy(o->stride, i->stride, sizeof i->stride[0] * (size_t)k->rank);
    }
    if (has_mask(i)) {
        o->masked = 1;
        o->value = i->value;
        memcpy(o->lo, i->lo, sizeof i->lo[0] * (size_t)k->rank);
        memcpy(o->hi, i->hi, sizeof i->hi[0] * (size_t)k->rank);
    }
    if (i->kop == SW_K_GATHER) {
        o->stride_x = i->stride_x;
        o->extent_x = i->extent_x;
    }
    if (i->kop == SW_K_CONST && sw__dtype_is_float((sw_dtype)i->dtype)) o->value = i->value;
    else if (i->kop == SW_K_CONST || i->kop == SW_K_RANDOM) o->ivalue = i->ivalue;
    if (i->kop == SW_K_RANDOM) o->stream = i->stream;
}

/* Canonical instructions have zeros wherever nothing was set, padding included. */
static bool same_bytes(const void *a, const void *b, size_t n) { return memcmp(a, b, n) == 0; }

static void set_hash(sw__kernel *k)
{
    int64_t head[3 + SW_MAX_RANK] = {k->rank, (int64_t)k->reduced, k->n_buffers};
    for (int x = 0; x < k->rank; x++) head[3 + x] = k->extent[x];
    uint64_t h = XXH64(head, sizeof head, 0);
    h = XXH64(k->buffer, sizeof k->buffer[0] * (size_t)k->n_buffers, h);
    for (int32_t j = 0; j < k->n_insts; j++) {
        sw__inst c;
        canonical(k, &k->inst[j], &c);
        h = XXH64(&c, sizeof c, h);
    }
    k->hash = h;
}

bool sw__kernel_equal(const sw__kernel *a, const sw__kernel *b)
{
    if (a->rank != b->rank || a->reduced != b->reduced || a->n_buffers != b->n_buffers || a->n_insts != b->n_insts)
        return false;
    if (memcmp(a->extent, b->extent, sizeof a->extent[0] * (size_t)a->rank) != 0) return false;
    if (memcmp(a->buffer, b->buffer, sizeof a->buffer[0] * (size_t)a->n_buffers) != 0) return false;
    for (int32_t j = 0; j < a->n_insts; j++) {
        sw__inst x, y;
        canonical(a, &a->inst[j], &x);
        canonical(b, &b->inst[j], &y);
        if (!same_bytes(&x, &y, sizeof x)) return false;
    }
    return true;
}

sw_status sw__kernel_analyse(sw__kernel *k)
{
    if (k->rank < 1 || k->rank > SW_MAX_RANK)
        return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s' has %d axes, not 1 to %d", k->name, (int)k->rank, SW_MAX_RANK);
    if (k->n_buffers < 0 || k->n_buffers > SW_K_MAX_BUFFERS || k->n_insts > SW_K_MAX_INSTS)
        return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s' has %d buffers and %d instructions (limits: %d and %d)",
                        k->name, (int)k->n_buffers, (int)k->n_insts, SW_K_MAX_BUFFERS, SW_K_MAX_INSTS);
    if (k->reduced >> k->rank) return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s' reduces an axis it has not", k->name);
    bool reduces = false;
    for (int b = 0; b < k->n_buffers; b++) k->buffer[b].read = k->buffer[b].written = 0;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *i = &k->inst[j];
        SW_TRY(check_inst(k, j));
        reduces |= i->kop == SW_K_REDUCE;
        if (i->kop == SW_K_STORE) k->buffer[i->buffer].written = 1;
        else if (has_buffer(i)) k->buffer[i->buffer].read = 1;
    }
    if (!reduces) k->reduced = 0;
    set_levels(k);
    for (int32_t j = 0; j < k->n_insts; j++)
        if (k->inst[j].kop == SW_K_STORE) SW_TRY(check_store(k, j));
    SW_TRY(set_skeleton(k));
    set_hash(k);
    return SW_OK;
}

/* ---- collapsing -------------------------------------------------------------------------------------------------- */

static void remove_axis(sw__kernel *k, int x)
{
    const uint32_t low = (1u << x) - 1;
    k->reduced = (k->reduced & low) | ((k->reduced >> 1) & ~low);
    const size_t tail = (size_t)(k->rank - 1 - x);
    memmove(&k->extent[x], &k->extent[x + 1], tail * sizeof k->extent[0]);
    k->rank--;
    k->extent[k->rank] = 0;
    for (int32_t j = 0; j < k->n_insts; j++) {
        sw__inst *i = &k->inst[j];
        memmove(&i->stride[x], &i->stride[x + 1], tail * sizeof i->stride[0]);
        memmove(&i->lo[x], &i->lo[x + 1], tail * sizeof i->lo[0]);
        memmove(&i->hi[x], &i->hi[x + 1], tail * sizeof i->hi[0]);
        i->stride[k->rank] = i->lo[k->rank] = i->hi[k->rank] = 0;
    }
}

/* An axis of size 1 may go unless a mask shuts its only point out, or a reduction would be left without an axis. */
static bool droppable(const sw__kernel *k, int x)
{
    if (k->extent[x] != 1 || k->rank == 1 || k->reduced == 1u << x) return false;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *i = &k->inst[j];
        if (has_mask(i) && (i->lo[x] > 0 || i->hi[x] < 1)) return false;
    }
    return true;
}

static bool trivial(const sw__kernel *k, const sw__inst *i, int x) { return i->lo[x] <= 0 && i->hi[x] >= k->extent[x]; }

/* Axes x and x + 1 are walked as one by every access; a mask may cut whole runs of x + 1 only. */
static bool mergeable(const sw__kernel *k, int x)
{
    if ((k->reduced >> x & 1u) != (k->reduced >> (x + 1) & 1u)) return false;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *i = &k->inst[j];
        if (!has_access(i)) continue;
        if (i->stride[x] != i->stride[x + 1] * k->extent[x + 1]) return false;
        if (has_mask(i) && !trivial(k, i, x + 1)) return false;
    }
    return true;
}

static void merge(sw__kernel *k, int x)
{
    const int64_t n = k->extent[x + 1];
    for (int32_t j = 0; j < k->n_insts; j++) {
        sw__inst *i = &k->inst[j];
        i->stride[x] = i->stride[x + 1];
        i->lo[x] *= n;
        i->hi[x] *= n;
    }
    k->extent[x] *= n;
    k->extent[x + 1] = 1;
    remove_axis(k, x + 1);
}

void sw__kernel_collapse(sw__kernel *k)
{
    if (k->rank < 1 || k->rank > SW_MAX_RANK) return; /* analyse will say so */
    for (int x = k->rank - 1; x >= 0; x--)
        if (droppable(k, x)) remove_axis(k, x);
    for (int x = k->rank - 2; x >= 0; x--)
        if (mergeable(k, x)) merge(k, x);
}

/* ---- copies, cost ------------------------------------------------------------------------------------------------ */

sw_status sw__kernel_clone(const sw__kernel *k, sw__kernel **out)
{
    sw__kernel *c = sw__malloc(sizeof *c);
    const size_t bytes = (size_t)k->n_insts * sizeof *c->inst;
    if (!c) return sw__no_memory(sizeof *c, "a kernel");
    *c = *k;
    c->inst = sw__malloc(bytes);
    if (!c->inst) {
        sw__free(c);
        return sw__no_memory(bytes, "a kernel's instructions");
    }
    if (bytes) memcpy(c->inst, k->inst, bytes);
    *out = c;
    return SW_OK;
}

void sw__kernel_free(sw__kernel *k)
{
    if (!k) return;
    sw__free(k->inst);
    sw__free(k);
}

/* How many different elements an access touches; a repeated one comes from a cache. */
static double touched(const sw__kernel *k, const sw__inst *i)
{
    double n = 1;
    for (int x = 0; x < k->rank; x++) {
        const bool used = i->stride[x] != 0 || (i->kop == SW_K_GATHER && !(k->reduced >> x & 1u && !i->full));
        if (!used) continue;
        int64_t width = k->extent[x];
        if (has_mask(i)) width = SW_MIN(i->hi[x], width) - SW_MAX(i->lo[x], 0);
        n *= (double)SW_MAX(width, 0);
    }
    return n;
}

/* An earlier instruction loads just the same: the fuser shares values, yet a mask or a gather may differ. */
static bool loaded_before(const sw__kernel *k, int32_t at)
{
    sw__inst x, y;
    canonical(k, &k->inst[at], &x);
    for (int32_t j = 0; j < at; j++) {
        if (k->inst[j].kop != k->inst[at].kop || k->inst[j].buffer != k->inst[at].buffer) continue;
        canonical(k, &k->inst[j], &y);
        if (same_bytes(&x, &y, sizeof x)) return true;
    }
    return false;
}

void sw__kernel_cost(const sw__kernel *k, double *bytes, double *flops)
{
    double points = 1, rows = 1;
    *bytes = *flops = 0;
    for (int x = 0; x < k->rank; x++) {
        points *= (double)k->extent[x];
        if (!(k->reduced >> x & 1u)) rows *= (double)k->extent[x];
    }
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *i = &k->inst[j];
        if (i->kop == SW_K_CALC && i->op != SW_OP_CAST) *flops += i->full ? points : rows;
        else if (i->kop == SW_K_REDUCE) *flops += points;
        else if (has_buffer(i) && (i->kop == SW_K_STORE || !loaded_before(k, j)))
            *bytes += touched(k, i) * (double)sw_dtype_size((sw_dtype)k->buffer[i->buffer].dtype);
    }
}
