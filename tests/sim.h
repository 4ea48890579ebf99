/* sim.h: runs a schedule in plain memory: kernels point by point in double precision straight from kir.h's rules, whole
 * ops by ref's functions on dense copies. Slow and simple; arena memory starts as NaN bytes and is placed as planned,
 * so that reading what was never written, or what was overwritten too early, shows. Included by test_pass_random.c. */
#ifndef SW_TESTS_SIM_H
#define SW_TESTS_SIM_H

#include "backend/backend.h"
#include "backend/ref/ref.h"
#include "pass/fold.h"
#include "pass/sched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct sim {
    const sw_graph *g;
    const sw__schedule *s;
    unsigned char *arena, **input, **var, **group, **constant;
} sim;

/* Zeroed memory, or the end of the test. */
static void *sim_alloc(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p) abort();
    return p;
}

static size_t sim_stored_size(sw_dtype t) { return sw__dtype_is_float(t) ? sizeof(double) : sw_dtype_size(t); }

static unsigned char *sim_base(const sim *m, int32_t storage)
{
    const sw__storage *s = &m->s->storages[storage];
    switch (s->kind) {
    case SW_STORE_ARENA: return m->arena + s->offset;
    case SW_STORE_INPUT: return m->input[s->index];
    case SW_STORE_VAR: return m->var[s->index];
    case SW_STORE_GROUP: return m->group[s->index];
    default: return m->constant[storage];
    }
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static sw__number sim_get(const unsigned char *p, sw_dtype t, int64_t at)
{
    sw__number x = {0, 0};
    if (!p) abort();
    if (sw__dtype_is_float(t)) {
        memcpy(&x.value, p + at * 8, 8);
        return x;
    }
    sw__convert(&x.ivalue, SW_I64, p + at * (int64_t)sw_dtype_size(t), t, 1);
    x.value = (double)x.ivalue;
    return x;
}

static void sim_put(unsigned char *p, sw_dtype t, int64_t at, sw__number x)
{
    if (sw__dtype_is_float(t)) memcpy(p + at * 8, &x.value, 8);
    else sw__convert(p + at * (int64_t)sw_dtype_size(t), t, &x.ivalue, SW_I64, 1);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

typedef struct sim_kernel {
    const sw__kernel *k;
    unsigned char *base[SW_K_MAX_BUFFERS];
    int64_t d[SW_MAX_RANK];
    sw__number *sum;  /* by instruction: reductions of this row */
    sw__number *value;
    bool *known;
} sim_kernel;

static int64_t sim_address(const sim_kernel *r, const sw__inst *i)
{
    int64_t at = i->offset;
    for (int x = 0; x < r->k->rank; x++) at += i->stride[x] * r->d[x];
    return at;
}

static bool sim_inside(const sim_kernel *r, const sw__inst *i)
{
    for (int x = 0; x < r->k->rank; x++)
        if (i->masked && (r->d[x] < i->lo[x] || r->d[x] >= i->hi[x])) return false;
    return true;
}

static sw__number sim_number(sw_dtype t, double value, int64_t ivalue)
{
    return sw__dtype_is_float(t) ? (sw__number){value, 0} : (sw__number){(double)ivalue, ivalue};
}

static sw_dtype sim_wide(sw_dtype t) { return sw__dtype_is_float(t) ? SW_F64 : t; }

static sw__number sim_value(sim_kernel *r, int32_t at);

static sw__number sim_calc(sim_kernel *r, const sw__inst *i)
{
    const sw__number a = sim_value(r, i->a);
    sw__number in[2] = {a, {0, 0}}, y = {0, 0};
    if (i->op == SW_OP_WHERE) return a.ivalue ? sim_value(r, i->b) : sim_value(r, i->c);
    if (i->b >= 0) in[1] = sim_value(r, i->b);
    const sw_dtype from = (sw_dtype)r->k->inst[i->a].dtype;
    if (!sw__fold(i->op, sim_wide((sw_dtype)i->dtype), sim_wide(from), in, &y)) {
        if (i->op == SW_OP_CAST) y = sim_number((sw_dtype)i->dtype, (double)a.ivalue, a.ivalue);
        else y = (sw__number){0, 0}; /* shifts by too much */
    }
    return y;
}

static sw__number sim_fresh(sim_kernel *r, const sw__inst *i)
{
    uint32_t words[4];
    int64_t e, c;
    switch (i->kop) {
    case SW_K_LOAD:
        if (!sim_inside(r, i)) return sim_number((sw_dtype)i->dtype, i->value, (int64_t)i->value);
        return sim_get(r->base[i->buffer], (sw_dtype)r->k->buffer[i->buffer].dtype, sim_address(r, i));
    case SW_K_GATHER:
        if (!sim_inside(r, i)) return sim_number((sw_dtype)i->dtype, i->value, (int64_t)i->value);
        e = sim_value(r, i->a).ivalue;
        if (e < 0 || e >= i->extent_x) abort();
        return sim_get(r->base[i->buffer], (sw_dtype)r->k->buffer[i->buffer].dtype,
                       sim_address(r, i) + e * i->stride_x);
    case SW_K_CONST: return sim_number((sw_dtype)i->dtype, i->value, i->ivalue);
    case SW_K_INDEX: return sim_number((sw_dtype)i->dtype, (double)sim_address(r, i), sim_address(r, i));
    case SW_K_RANDOM:
        e = sim_value(r, i->a).ivalue;
        c = i->b >= 0 ? sim_value(r, i->b).ivalue : 0;
        sw__philox((uint32_t[4]){(uint32_t)(e / 4), (uint32_t)((uint64_t)(e / 4) >> 32), (uint32_t)c,
                                 (uint32_t)((uint64_t)c >> 32)},
                   (uint32_t[2]){(uint32_t)i->ivalue, i->stream}, words);
        return sim_number(SW_U32, 0, words[e % 4]);
    case SW_K_REDUCE: abort(); /* looked up, never computed here */
    default: return sim_calc(r, i);
    }
}

static sw__number sim_value(sim_kernel *r, int32_t at)
{
    const sw__inst *i = &r->k->inst[at];
    if (i->kop == SW_K_REDUCE) return r->sum[at];
    if (!r->known[at]) {
        r->value[at] = sim_fresh(r, i);
        r->known[at] = true;
    }
    return r->value[at];
}

static sw__number sim_start(const sw__inst *i)
{
    const bool f = sw__dtype_is_float((sw_dtype)i->dtype);
    switch (i->op) {
    case SW_OP_REDUCE_SUM: return (sw__number){0, 0};
    case SW_OP_REDUCE_PROD: return (sw__number){1, 1};
    default: break;
    }
    if (f) return (sw__number){i->op == SW_OP_REDUCE_MAX ? -(double)INFINITY : (double)INFINITY, 0};
    const int64_t high = i->dtype == SW_I32 ? INT32_MAX : i->dtype == SW_I64 ? INT64_MAX : i->dtype == SW_U8 ? 255
                         : i->dtype == SW_BOOL ? 1 : (int64_t)UINT32_MAX;
    const int64_t low = i->dtype == SW_I32 ? INT32_MIN : i->dtype == SW_I64 ? INT64_MIN : 0;
    const int64_t v = i->op == SW_OP_REDUCE_MAX ? low : high;
    return (sw__number){(double)v, v};
}

static sw__number sim_step(const sw__inst *i, sw__number sum, sw__number x)
{
    static const uint32_t op[4] = {SW_OP_ADD, SW_OP_MAX, SW_OP_MIN, SW_OP_MUL};
    const sw__number in[2] = {sum, x};
    const sw_dtype t = sim_wide((sw_dtype)i->dtype);
    sw__number y = {0, 0};
    sw__fold(op[i->op - SW_OP_REDUCE_SUM], t, t, in, &y);
    return y;
}

/* Calls of `point` for every combination of the axes whose bits are set; the others keep their place. */
static void sim_points(sim_kernel *r, uint32_t axes, void (*point)(sim_kernel *, int), int phase)
{
    for (int x = 0; x < r->k->rank; x++) {
        if (!(axes >> x & 1u)) continue;
        if (r->k->extent[x] == 0) return;
        r->d[x] = 0;
    }
    for (;;) {
        point(r, phase);
        int x = r->k->rank - 1;
        for (; x >= 0; x--) {
            if (!(axes >> x & 1u)) continue;
            if (++r->d[x] < r->k->extent[x]) break;
            r->d[x] = 0;
        }
        if (x < 0) return;
    }
}

static void sim_store(sim_kernel *r, const sw__inst *i)
{
    sim_put(r->base[i->buffer], (sw_dtype)r->k->buffer[i->buffer].dtype, sim_address(r, i), sim_value(r, i->a));
}

/* The stores of a phase: all values first, since what is stored may lie over what is loaded. */
static void sim_stores(sim_kernel *r, bool full, int phase)
{
    for (int pass = 0; pass < 2; pass++)
        for (int32_t j = 0; j < r->k->n_insts; j++) {
            const sw__inst *i = &r->k->inst[j];
            if (i->kop != SW_K_STORE || i->full != full || i->phase != phase) continue;
            if (pass == 0) sim_value(r, i->a);
            else sim_store(r, i);
        }
}

static void sim_full_point(sim_kernel *r, int phase)
{
    memset(r->known, 0, (size_t)r->k->n_insts);
    for (int32_t j = 0; j < r->k->n_insts; j++) {
        const sw__inst *i = &r->k->inst[j];
        if (i->kop == SW_K_REDUCE && i->phase == phase) r->sum[j] = sim_step(i, r->sum[j], sim_value(r, i->a));
    }
    sim_stores(r, true, phase);
}

static void sim_row(sim_kernel *r, int phase)
{
    (void)phase;
    for (int32_t j = 0; j < r->k->n_insts; j++)
        if (r->k->inst[j].kop == SW_K_REDUCE) r->sum[j] = sim_start(&r->k->inst[j]);
    for (int p = 0; p < r->k->phases; p++) {
        if (r->k->reduced) sim_points(r, r->k->reduced, sim_full_point, p);
        for (int x = 0; x < r->k->rank; x++)
            if (r->k->reduced >> x & 1u) r->d[x] = 0;
        memset(r->known, 0, (size_t)r->k->n_insts);
        sim_stores(r, false, p);
    }
}

static void sim_run_kernel(const sim *m, const sw__step *s)
{
    const sw__kernel *k = s->kernel;
    const size_t n = (size_t)k->n_insts + 1;
    sim_kernel r = {.k = k, .sum = sim_alloc(n, sizeof *r.sum), .value = sim_alloc(n, sizeof *r.value)};
    r.known = sim_alloc(n, 1);
    for (int i = 0; i < s->n_in + s->n_out; i++) r.base[i] = sim_base(m, s->refs[i].storage);
    const uint32_t kept = ((1u << k->rank) - 1) & ~k->reduced;
    sim_points(&r, kept, sim_row, 0);
    free(r.sum);
    free(r.value);
    free(r.known);
}

/* ---- whole ops --------------------------------------------------------------------------------------------------- */

static void sim_move(unsigned char *strided, unsigned char *dense, const sw__desc *d, bool to_dense)
{
    const int64_t n = sw__dims_product(d->dim, d->rank);
    const size_t size = sim_stored_size((sw_dtype)d->dtype);
    for (int64_t e = 0; e < n; e++) {
        int64_t at = 0, rest = e;
        for (int x = d->rank - 1; x >= 0; x--) {
            at += rest % d->dim[x] * d->stride[x];
            rest /= d->dim[x];
        }
        if (to_dense) memcpy(dense + e * (int64_t)size, strided + at * (int64_t)size, size);
        else memcpy(strided + at * (int64_t)size, dense + e * (int64_t)size, size);
    }
}

static sw_status sim_run_op(const sim *m, const sw__step *s)
{
    const int n = s->n_in + s->n_out;
    sw__desc d[SW__REF_MAX_IN + SW__MAX_OUT];
    unsigned char *dense[SW__REF_MAX_IN + SW__MAX_OUT];
    sw__bind bind[SW__REF_MAX_IN + SW__MAX_OUT + 1];
    for (int i = 0; i < n; i++) {
        const sw__ref *r = &s->refs[i];
        sw__ref plain;
        unsigned char *at = sim_base(m, r->storage) + r->offset * (int64_t)sim_stored_size((sw_dtype)r->desc.dtype);
        sw__dense_ref(&plain, 0, 0, (sw_dtype)r->desc.dtype, r->desc.rank, r->desc.dim, NULL);
        d[i] = plain.desc;
        dense[i] = sim_alloc((size_t)sw__dims_product(d[i].dim, d[i].rank), 8);
        if (i < s->n_in) sim_move(at, dense[i], &r->desc, true);
        bind[i] = (sw__bind){dense[i], 0};
    }
    const sw__op_desc desc = {.op = s->op, .attr = &s->attr, .name = s->name, .n_in = s->n_in, .n_out = s->n_out,
                              .in = d, .out = d + s->n_in};
    const sw__backend *ref = sw__backend_find("ref");
    void *plan = NULL;
    size_t work = 0;
    sw_status st = ref->op_plan(NULL, &desc, &plan, &work);
    void *scratch = sim_alloc(work, 1);
    bind[n] = (sw__bind){scratch, 0};
    if (st == SW_OK) st = ref->op_exec(NULL, plan, bind);
    if (plan) ref->op_free(NULL, plan);
    free(scratch);
    for (int i = 0; i < n; i++) {
        const sw__ref *r = &s->refs[i];
        unsigned char *at = sim_base(m, r->storage) + r->offset * (int64_t)sim_stored_size((sw_dtype)r->desc.dtype);
        if (i >= s->n_in && st == SW_OK) sim_move(at, dense[i], &r->desc, false);
        free(dense[i]);
    }
    return st;
}

static sw_status sim_run(const sim *m)
{
    memset(m->arena, 0xff, m->s->arena_bytes);
    for (uint32_t i = 0; i < m->s->n_steps; i++) {
        const sw__step *s = &m->s->steps[i];
        if (s->kind == SW_STEP_KERNEL) sim_run_kernel(m, s);
        else SW_TRY(sim_run_op(m, s));
    }
    return SW_OK;
}

/* ---- memory of a graph ------------------------------------------------------------------------------------------- */

static void sim_init(sim *m, const sw_graph *g, const sw__schedule *s)
{
    *m = (sim){.g = g, .s = s};
    m->arena = sim_alloc(s->arena_bytes, 1);
    m->input = sim_alloc(g->n_inputs, sizeof *m->input);
    m->var = sim_alloc(g->n_vars, sizeof *m->var);
    m->group = sim_alloc(g->n_groups, sizeof *m->group);
    m->constant = sim_alloc(s->n_storages, sizeof *m->constant);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        m->input[i] = sim_alloc((size_t)sw__node_elements(&g->nodes[g->inputs[i].node]), 8);
    for (uint32_t i = 0; i < g->n_groups; i++) m->group[i] = sim_alloc((size_t)g->groups[i].elements, 8);
    for (uint32_t i = 0; i < g->n_vars; i++) {
        const sw__var *v = &g->vars[i];
        const size_t size = sim_stored_size(v->dtype);
        m->var[i] = v->group >= 0 ? m->group[v->group] + (size_t)v->place * size
                                  : sim_alloc((size_t)sw__dims_product(v->dim, v->rank), 8);
    }
    for (uint32_t i = 0; i < s->n_storages; i++) {
        const sw__storage *t = &s->storages[i];
        if (t->kind != SW_STORE_CONST) continue;
        m->constant[i] = sim_alloc((size_t)t->elements, 8);
        sw__convert(m->constant[i], (sw_dtype)t->stored, t->data, (sw_dtype)t->dtype, (size_t)t->elements);
    }
}

static void sim_fill(unsigned char *to, const double *from, int64_t n)
{
    if (!to) abort();
    memcpy(to, from, (size_t)n * sizeof *from);
}

static void sim_free(sim *m)
{
    for (uint32_t i = 0; i < m->g->n_inputs; i++) free(m->input[i]);
    for (uint32_t i = 0; i < m->g->n_groups; i++) free(m->group[i]);
    for (uint32_t i = 0; i < m->g->n_vars; i++)
        if (m->g->vars[i].group < 0) free(m->var[i]);
    for (uint32_t i = 0; i < m->s->n_storages; i++) free(m->constant[i]);
    free(m->arena);
    free(m->input);
    free(m->var);
    free(m->group);
    free(m->constant);
}

#endif
