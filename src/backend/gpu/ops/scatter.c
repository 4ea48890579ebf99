/* scatter.c: plans SCATTER_ADD, _SET and _MAX: portable/scatter.k. Each element of the result takes its contributions
 * in the order of the index, so that results do not depend on timing: a work-item walks a column; or, where a GPU has
 * too few columns, the indices are sorted first and a work-item takes one element's contributions.
 * Called by gpu_op.c. */
#include "backend/gpu/ops/columns.h"

#include <stdio.h>

enum { COPY, WALK, TAKE, FINISH };
enum { BASE, INDEX, SRC, OUT };

typedef struct scatter {
    sw__gpu_macros m;
    sw__gpu_place base, index, src, total, flat_total, y;
    int64_t count, length, extent, elements, ranges;
    bool sorted, wide; /* wide: f16 and bf16 are added up in f32, in the workspace */
    size_t work;
} scatter;

static int64_t inner_of(const sw__desc *d, int axis)
{
    int64_t n = 1;
    for (int i = axis + 1; i < d->rank; i++) n *= d->dim[i];
    return n;
}

static sw__desc dense_of(const sw__desc *d)
{
    sw__desc out = *d;
    int64_t stride = 1;
    for (int i = d->rank - 1; i >= 0; i--) {
        out.stride[i] = stride;
        stride *= SW_MAX(d->dim[i], 1);
    }
    return out;
}

/* Bits are enough to set and to compare; only adding needs numbers. */
static void put_types(sw__gpu_macros *m, sw_dtype t, int op)
{
    if (op == SW_OP_SCATTER_ADD) {
        sw__gpu_put_values(m, t);
    } else {
        sw__gpu_put_keys(m, t);
        sw__gpu_put_text(m, "ELEMENT", sw__gpu_bits(t));
        sw__gpu_put_text(m, "VALUE", sw__gpu_bits(t));
        sw__gpu_put_text(m, "GET", "p[i]");
        sw__gpu_put_text(m, "PUT", "p[i] = v");
    }
    sw__gpu_put(m, "MODE", op == SW_OP_SCATTER_ADD ? 0 : op == SW_OP_SCATTER_SET ? 1 : 2);
}

static void describe(sw__gpu_plan *p, scatter *s)
{
    const sw__desc *const d = p->desc;
    const int axis = p->attr.axis.axis;
    const sw__desc total = s->wide ? dense_of(&d[OUT]) : d[OUT];
    sw__gpu_place_of(&d[BASE], -1, "c", "", &s->base);
    sw__gpu_place_of(&total, -1, "c", "", &s->flat_total);
    sw__gpu_place_of(&d[OUT], -1, "c", "", &s->y);
    sw__gpu_place_of(&d[INDEX], axis, "c", "k", &s->index);
    sw__gpu_place_of(&d[SRC], axis, "c", "k", &s->src);
    sw__gpu_place_of(&total, axis, "c", "r", &s->total);
    put_types(&s->m, (sw_dtype)d[OUT].dtype, p->d.op);
    sw__gpu_put(&s->m, "WIDE", s->wide);
}

static sw_status add(sw__gpu_plan *p, const scatter *s, int phase, int64_t units, const sw__gpu_macros *more,
                     const sw__gpu_arg *args, int n_args)
{
    sw__gpu_macros m = s->m;
    for (int i = 0; i < more->n; i++) m.m[m.n++] = more->m[i];
    const bool heavy = p->gpu->target.serial && phase == WALK;
    const int lanes = sw__gpu_lanes(p->gpu, heavy ? 1 : 64);
    const uint32_t groups = sw__gpu_grid(&m, (units + lanes - 1) / lanes, lanes);
    sw__gpu_put(&m, "PHASE", phase);
    return sw__gpu_step(p, "scatter", &m, groups, lanes, 1, args, n_args);
}

/* Element by element: base to the total, or the total to the result. */
static sw_status add_copy(sw__gpu_plan *p, const scatter *s, int phase)
{
    sw__gpu_macros m = { .n = 0 };
    sw__gpu_put_text(&m, "INDEX", sw__gpu_counter(s->elements));
    sw__gpu_put(&m, "COUNT", s->elements);
    sw__gpu_put_text(&m, "BASE_AT", s->base.text);
    sw__gpu_put_text(&m, "TOTAL_AT", s->flat_total.text);
    sw__gpu_put_text(&m, "Y_AT", s->y.text);
    const sw__gpu_arg total = s->wide ? (sw__gpu_arg)SW_GPU_WORK(p, s->work) : (sw__gpu_arg)SW_GPU_BIND(OUT);
    const sw__gpu_arg copy[] = { SW_GPU_BIND(BASE), total }, finish[] = { total, SW_GPU_BIND(OUT) };
    return add(p, s, phase, s->elements, &m, phase == COPY ? copy : finish, 2);
}

static sw_status add_walk(sw__gpu_plan *p, const scatter *s)
{
    const sw__desc *const index = &p->desc[INDEX];
    const int64_t units = s->ranges > 1 ? s->ranges : s->count;
    sw__gpu_macros m = { .n = 0 };
    sw__gpu_put_text(&m, "INDEX", sw__gpu_counter(s->count * s->length + s->ranges));
    sw__gpu_put(&m, "UNITS", units);
    sw__gpu_put(&m, "RANGES", s->ranges);
    sw__gpu_put(&m, "COUNT", s->count);
    sw__gpu_put(&m, "LENGTH", s->length);
    sw__gpu_put(&m, "EXTENT", s->extent);
    sw__gpu_put(&m, "INNER", inner_of(index, p->attr.axis.axis));
    sw__gpu_put_text(&m, "INDEX_ELEMENT", index->dtype == SW_I32 ? "i32" : "i64");
    sw__gpu_put_text(&m, "INDEX_AT", s->index.text);
    sw__gpu_put_text(&m, "SRC_AT", s->src.text);
    sw__gpu_put_text(&m, "TOTAL_AT", s->total.text);
    const sw__gpu_arg total = s->wide ? (sw__gpu_arg)SW_GPU_WORK(p, s->work) : (sw__gpu_arg)SW_GPU_BIND(OUT);
    const sw__gpu_arg args[] = { SW_GPU_BIND(INDEX), SW_GPU_BIND(SRC), total, { .kind = SW_GPU_ERRORS } };
    return add(p, s, WALK, units, &m, args, 4);
}

static sw_status add_sorted(sw__gpu_plan *p, const scatter *s)
{
    sw__gpu_sorted sorted;
    SW_TRY(sw__gpu_sort_indices(p, INDEX, p->attr.axis.axis, s->extent, &sorted));
    sw__gpu_macros m = { .n = 0 };
    sw__gpu_put_text(&m, "INDEX", sw__gpu_counter(s->count * s->length));
    sw__gpu_put(&m, "COUNT", s->count);
    sw__gpu_put(&m, "LENGTH", s->length);
    sw__gpu_put(&m, "EXTENT", s->extent);
    sw__gpu_put_text(&m, "SORTED_KEY", sorted.key_type);
    sw__gpu_put_text(&m, "SORTED_ID", sorted.id_type);
    sw__gpu_put_text(&m, "SRC_AT", s->src.text);
    sw__gpu_put_text(&m, "TOTAL_AT", s->total.text);
    const sw__gpu_arg args[] = { SW_GPU_WORK(p, sorted.keys), SW_GPU_WORK(p, sorted.ids), SW_GPU_BIND(SRC),
                                 SW_GPU_BIND(OUT) };
    return add(p, s, TAKE, s->count * s->length, &m, args, 4);
}

/* How the device is kept busy: columns side by side, ranges of few long columns (a CPU), or sorted indices (a GPU). */
static void choose(const sw__gpu *g, scatter *s)
{
    const int64_t units = g->target.units;
    s->ranges = 1;
    if (g->target.serial) {
        if (s->count < 2 * units && s->length >= 1024) s->ranges = SW_MAX(SW_MIN(units, s->extent), 1);
    } else {
        s->sorted = s->length > 128 && s->count < 64 * units;
    }
}

sw_status sw__gpu_scatter_plan(sw__gpu_plan *p)
{
    const sw__desc *const index = &p->desc[INDEX], *const out = &p->desc[OUT];
    const int axis = p->attr.axis.axis;
    const sw_dtype t = (sw_dtype)out->dtype;
    const bool adds = p->d.op == SW_OP_SCATTER_ADD;
    scatter s = { .count = sw__gpu_count(index, axis), .length = index->dim[axis], .extent = out->dim[axis],
                  .elements = sw__gpu_count(out, -1) };
    if (adds) SW_TRY(sw__gpu_can_add(p, t));
    choose(p->gpu, &s);
    const bool indexed = s.count * s.length > 0;
    s.wide = adds && (t == SW_F16 || t == SW_BF16) && !s.sorted && indexed && s.elements > 0;
    describe(p, &s);
    if (s.wide) s.work = sw__gpu_reserve(p, s.elements, sizeof(float));
    if (s.elements > 0) SW_TRY(add_copy(p, &s, COPY));
    if (indexed) SW_TRY(s.sorted ? add_sorted(p, &s) : add_walk(p, &s));
    if (s.wide) SW_TRY(add_copy(p, &s, FINISH));
    snprintf(p->note, sizeof p->note, "%s:%s", s.sorted ? "sorted" : s.ranges > 1 ? "ranges" : "item per column",
             sw_dtype_name(t));
    return SW_OK;
}
