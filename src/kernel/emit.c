/* emit.c: the entrance of the emitter: what a kernel needs of the target, which index type does, which skeleton; and
 * functions, levels and phases for all of them. Called by backend/gpu; the parts are in emit_int.h. */
#include "kernel/emit_int.h"

#include <inttypes.h>

/* ---- small sums -------------------------------------------------------------------------------------------------- */

int sw__emit_power(int64_t n)
{
    int p = 1;
    while (p < 1 << 20 && (int64_t)p * 2 <= n) p *= 2;
    return p;
}

int64_t sw__emit_over(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

int64_t sw__emit_divisor(int64_t n, int64_t low, int64_t high)
{
    int64_t best = 0;
    for (int64_t d = SW_MIN(high, n); d >= low; d--) {
        if (n % d != 0) continue;
        if (d % 16 == 0) return d;
        if (best == 0) best = d;
    }
    return best;
}

/* ---- levels and phases ------------------------------------------------------------------------------------------- */

/* Marks operands of what is marked; those for which `stop` says so are marked and not looked into. */
static void mark_operands(const sw__emitter *e, bool *mark, bool (*stop)(const sw__inst *, int), int phase)
{
    for (int32_t j = e->k->n_insts - 1; j >= 0; j--) {
        const sw__inst *const i = &e->k->inst[j];
        const int32_t arg[3] = { i->a, i->b, i->c };
        if (!mark[j] || stop(i, phase)) continue;
        const int n = i->kop == SW_K_CALC ? sw__op_table[i->op].min_in : i->kop == SW_K_RANDOM ? 2
                      : i->kop == SW_K_STORE || i->kop == SW_K_GATHER || i->kop == SW_K_REDUCE ? 1 : 0;
        for (int m = 0; m < SW_MIN(n, 3); m++)
            if (arg[m] >= 0) mark[arg[m]] = true;
    }
}

static bool stop_never(const sw__inst *i, int phase)
{
    (void)i;
    return phase < 0;
}

static bool stop_reduce(const sw__inst *i, int phase)
{
    return i->kop == SW_K_REDUCE && phase == 0;
}

/* Only the reductions that are made in this phase are looked into. */
static bool stop_row(const sw__inst *i, int phase)
{
    return !i->full && (i->kop != SW_K_REDUCE || i->phase != phase);
}

static bool stop_later(const sw__inst *i, int phase)
{
    return i->phase != phase;
}

static void find_need(sw__emitter *e, bool full, bool rows)
{
    memset(e->need, 0, sizeof e->need);
    for (int32_t j = 0; j < e->k->n_insts; j++) {
        const sw__inst *const i = &e->k->inst[j];
        if (i->kop == SW_K_STORE) e->need[j] = i->full ? full : rows;
        if (i->kop == SW_K_REDUCE) e->need[j] = full;
    }
    mark_operands(e, e->need, full ? stop_never : stop_reduce, 0);
}

/* with_rows: phase 0 only, so that all comes from memory. */
static void find_now(sw__emitter *e, int phase, bool with_rows)
{
    memset(e->now, 0, sizeof e->now);
    for (int32_t j = 0; j < e->k->n_insts; j++) {
        const sw__inst *const i = &e->k->inst[j];
        e->now[j] = i->phase == phase && (i->kop == SW_K_REDUCE || (i->kop == SW_K_STORE && i->full));
    }
    mark_operands(e, e->now, with_rows ? stop_later : stop_row, phase);
}

static bool is_value(const sw__inst *i)
{
    return i->kop != SW_K_STORE && i->kop != SW_K_REDUCE;
}

void sw__emit_rows_of(sw__emitter *e, int phase)
{
    for (int32_t j = 0; j < e->k->n_insts; j++) {
        const sw__inst *const i = &e->k->inst[j];
        if (e->need[j] && !i->full && i->phase == phase && is_value(i)) sw__emit_value(e, j);
    }
}

void sw__emit_row_stores(sw__emitter *e)
{
    for (int32_t j = 0; j < e->k->n_insts; j++)
        if (e->k->inst[j].kop == SW_K_STORE && !e->k->inst[j].full) sw__emit_store(e, j);
}

bool sw__emit_walks(const sw__emitter *e, int phase, bool *reduces)
{
    bool walks = *reduces = false;
    for (int32_t j = 0; j < e->k->n_insts; j++) {
        const sw__inst *const i = &e->k->inst[j];
        if (i->phase != phase) continue;
        *reduces |= i->kop == SW_K_REDUCE;
        walks |= i->kop == SW_K_REDUCE || (i->kop == SW_K_STORE && i->full);
    }
    return walks;
}

void sw__emit_point(sw__emitter *e, int phase, bool with_rows)
{
    find_now(e, phase, with_rows);
    for (int32_t j = 0; j < e->k->n_insts; j++) {
        const sw__inst *const i = &e->k->inst[j];
        if (e->now[j] && is_value(i) && (i->full || (with_rows && i->phase == 0))) sw__emit_value(e, j);
    }
}

void sw__emit_point_stores(sw__emitter *e, int phase)
{
    for (int32_t j = 0; j < e->k->n_insts; j++) {
        const sw__inst *const i = &e->k->inst[j];
        if (i->kop == SW_K_STORE && i->full && i->phase == phase) sw__emit_store(e, j);
    }
}

bool sw__emit_gathers(const sw__emitter *e, int phase)
{
    for (int32_t j = 0; j < e->k->n_insts; j++)
        if (e->k->inst[j].kop == SW_K_GATHER && e->k->inst[j].full && e->k->inst[j].phase <= phase) return true;
    return false;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static void emit_head(sw__emitter *e, const sw__stage *s, bool workspace)
{
    sw__text *const out = &e->out->text;
    sw__text_add(out, "%sSIZED_KERNEL(%s, %" PRIu32 ", %" PRIu32 ", 1)(", out->len ? "\n" : "", s->entry, s->local[0],
                 s->local[1]);
    const char *sep = "";
    for (int b = 0; b < e->k->n_buffers; b++, sep = ", ") sw__text_add(out, "%sBUF(b%d)", sep, b);
    if (workspace) sw__text_add(out, "%sBUF(ws)", sep);
    if (workspace) sep = ", ";
    if (e->out->checks) sw__text_add(out, "%sERRORS", sep);
    sw__text_add(out, ")\n{\n");
}

static void emit_pointers(sw__emitter *e)
{
    for (int b = 0; b < e->k->n_buffers; b++) {
        bool used = false;
        for (int32_t j = 0; j < e->k->n_insts; j++) {
            const sw__inst *const i = &e->k->inst[j];
            const bool memory = i->kop == SW_K_LOAD || i->kop == SW_K_GATHER || i->kop == SW_K_STORE;
            used |= e->need[j] && memory && i->buffer == b;
        }
        const sw__kbuffer *const f = &e->k->buffer[b];
        const char *const type = sw__emit_type(f->dtype);
        if (used) sw__emit_line(e, "%sGLOBAL %s *p%d = AT(%s, b%d);", f->written ? "" : "const ", type, b, type, b);
    }
}

void sw__emit_begin(sw__emitter *e, const char *suffix, bool full, bool rows, uint64_t groups, uint32_t local_x,
                    uint32_t local_y)
{
    sw__stage *const s = &e->out->stage[e->out->n_stages++];
    const sw__label name = sw__emit_label("%s%s", e->entry, suffix);
    memset(s, 0, sizeof *s);
    memcpy(s->entry, name.s, sizeof name.s);
    s->groups[0] = groups > INT32_MAX ? UINT32_MAX : (uint32_t)groups; /* emit_kernel refuses it */
    s->groups[1] = s->groups[2] = s->local[2] = 1;
    s->local[0] = local_x;
    s->local[1] = local_y;
    find_need(e, full, rows);
    emit_head(e, s, e->parts > 1);
    e->depth = 1;
    emit_pointers(e);
    if (e->parts > 1) sw__emit_partials(e);
}

void sw__emit_end(sw__emitter *e)
{
    e->depth = 0;
    sw__text_add(&e->out->text, "}\n");
}

/* ---- the kernel as a whole --------------------------------------------------------------------------------------- */

static sw_status check_target(const sw__kernel *k, const sw__target *t)
{
    bool wide = false;
    for (int b = 0; b < k->n_buffers; b++) wide |= k->buffer[b].dtype == SW_F64;
    for (int32_t j = 0; j < k->n_insts; j++) wide |= k->inst[j].dtype == SW_F64 && k->inst[j].kop != SW_K_STORE;
    if (!wide || t->fp64) return SW_OK;
    return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s' calculates in f64, which the device has not", k->name);
}

static uint64_t magnitude(int64_t x)
{
    return x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
}

/* Adds a * b, and stays at the top once it gets there. */
static void add_reach(uint64_t *reach, int64_t a, int64_t b)
{
    const uint64_t x = magnitude(a), y = magnitude(b), top = UINT64_MAX / 4;
    if (y != 0 && x > top / y) *reach = top;
    else *reach = SW_MIN(*reach + x * y, top);
}

/* The farthest number that index arithmetic can come by. */
static uint64_t find_reach(const sw__kernel *k)
{
    uint64_t reach = 1, points = 0;
    int64_t all = 1;
    for (int x = 0; x < k->rank; x++) {
        const int64_t n = SW_MAX(k->extent[x], 1);
        all = all > INT64_MAX / 4 / n ? INT64_MAX / 4 : all * n;
    }
    points = (uint64_t)all;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        if (i->kop != SW_K_LOAD && i->kop != SW_K_GATHER && i->kop != SW_K_STORE && i->kop != SW_K_INDEX) continue;
        uint64_t r = magnitude(i->offset);
        for (int x = 0; x < k->rank; x++) add_reach(&r, i->stride[x], SW_MAX(k->extent[x], 1) - 1);
        if (i->kop == SW_K_GATHER) add_reach(&r, i->stride_x, i->extent_x);
        reach = SW_MAX(reach, r);
    }
    return SW_MAX(reach, points);
}

static uint32_t find_used(const sw__kernel *k)
{
    uint32_t used = 0;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        if (i->kop == SW_K_GATHER) return UINT32_MAX; /* a message may name the place */
        if (i->kop != SW_K_LOAD && i->kop != SW_K_STORE && i->kop != SW_K_INDEX) continue;
        for (int x = 0; x < k->rank; x++) {
            const bool cut = i->kop == SW_K_LOAD && i->masked && (i->lo[x] > 0 || i->hi[x] < k->extent[x]);
            if (i->stride[x] != 0 || cut) used |= 1u << x;
        }
    }
    return used;
}

static void set_up(sw__emitter *e, const sw__kernel *k, const sw__target *t, const char *entry, sw__emitted *out)
{
    *e = (sw__emitter){ .k = k, .t = t, .entry = entry, .out = out, .parts = 1 };
    const bool wide = find_reach(k) >= (uint64_t)1 << 30; /* a loop's step may go past the end */
    e->ix = wide ? "i64" : "i32";
    e->ux = wide ? "u64" : "u32";
    e->u = wide ? "" : "u";
    e->kept.points = e->reduced.points = 1;
    for (int x = 0; x < k->rank; x++) {
        sw__axes *const a = k->reduced >> x & 1u ? &e->reduced : &e->kept;
        a->axis[a->n++] = x;
        a->points *= k->extent[x];
    }
    e->used = find_used(k);
    for (int32_t j = 0; j < k->n_insts; j++) out->checks |= k->inst[j].kop == SW_K_GATHER;
}

static sw_status emit_kernel(const sw__kernel *k, const sw__target *t, const char *entry, sw__emitted *out)
{
    static sw_status (*const skeleton[])(sw__emitter *) = {
        [SW_SKEL_POINTWISE] = sw__emit_pointwise, [SW_SKEL_ROW] = sw__emit_rows, [SW_SKEL_COLUMN] = sw__emit_columns,
        [SW_SKEL_FULL] = sw__emit_rows, /* of one row */
    };
    sw__emitter *const e = sw__malloc(sizeof *e);
    if (!e) return sw__no_memory(sizeof *e, "writing a kernel");
    set_up(e, k, t, entry, out);
    sw_status st = SW_OK;
    if (e->kept.points > 0) st = skeleton[k->skeleton](e);
    for (int s = 0; s < out->n_stages && st == SW_OK; s++)
        if (out->stage[s].groups[0] == 0 || out->stage[s].groups[0] > INT32_MAX)
            st = sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s' is too large for one launch", k->name);
    if (st == SW_OK && out->text.failed) st = sw__no_memory(out->text.capacity, "the text of a kernel");
    sw__free(e);
    return st;
}

sw_status sw__emit(const sw__kernel *k, const sw__target *t, const char *entry, sw__emitted *out)
{
    sw__kernel *copy = NULL;
    memset(out, 0, sizeof *out);
    if (strlen(entry) > 48) return sw__fail(SW_ERR_ARGUMENT, "the name '%s' is too long for a kernel", entry);
    SW_TRY(sw__kernel_clone(k, &copy));
    sw__kernel_collapse(copy);
    sw_status st = sw__kernel_analyse(copy);
    if (st == SW_OK) st = check_target(copy, t);
    if (st == SW_OK) st = emit_kernel(copy, t, entry, out);
    if (st != SW_OK) sw__text_free(&out->text);
    sw__kernel_free(copy);
    return st;
}
