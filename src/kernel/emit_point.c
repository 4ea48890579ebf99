/* emit_point.c: pointwise kernels as text: one work-item a point, neighbours along the last axis, or along all axes as
 * one. Straight-line code, so that a CPU's compiler makes vectors of neighbouring work-items. Part of the emitter. */
#include "kernel/emit_int.h"

#include <inttypes.h>

enum { SHORT_AXIS = 16, SERIAL_GROUP = 1024 };

/* x counts points along a run, y the runs. */
typedef struct plan {
    sw__axes run, rest;
    int64_t local_x, local_y, groups_x, groups_y;
} plan;

static void split(const sw__emitter *e, int n_run, plan *p)
{
    memset(p, 0, sizeof *p);
    p->run.points = p->rest.points = 1;
    for (int m = 0; m < e->kept.n; m++) {
        sw__axes *const a = m < e->kept.n - n_run ? &p->rest : &p->run;
        a->axis[a->n++] = e->kept.axis[m];
        a->points *= e->k->extent[e->kept.axis[m]];
    }
}

static int64_t limit(const sw__emitter *e, int dim, int64_t wish)
{
    return SW_MAX(SW_MIN(wish, SW_MIN(e->t->max_group, e->t->max_local[dim])), 1);
}

/* A CPU: a group as wide as a divisor of the run, so that no work-item has to be kept out. */
static void plan_serial(const sw__emitter *e, plan *p)
{
    const int64_t last = e->k->extent[e->k->rank - 1], most = limit(e, 0, SERIAL_GROUP);
    split(e, last >= SHORT_AXIS ? 1 : e->kept.n, p);
    const int64_t n = p->run.points;
    p->local_x = n <= most ? n : sw__emit_divisor(n, SW_MIN(64, most), most);
    if (p->local_x == 0) p->local_x = SW_MIN(SW__EMIT_GROUP, most);
    p->local_y = sw__emit_divisor(p->rest.points, 1, SW_MAX(SW_MIN(most / p->local_x, e->t->max_local[1]), 1));
}

/* A GPU: runs where rows of work-items fit them well, otherwise all points in one. */
static void plan_wide(const sw__emitter *e, plan *p)
{
    const int64_t last = e->k->extent[e->k->rank - 1], most = limit(e, 0, SW__EMIT_GROUP);
    const int64_t x = SW_MIN(sw__emit_power(2 * last - 1), most);
    const bool fits = last >= SHORT_AXIS && sw__emit_over(last, x) * x * 7 <= last * 8;
    split(e, fits ? 1 : e->kept.n, p);
    p->local_x = p->rest.n ? x : SW_MIN(sw__emit_power(2 * p->run.points - 1), most);
    p->local_y = SW_MAX(SW_MIN(SW_MIN(most / p->local_x, e->t->max_local[1]), sw__emit_power(p->rest.points)), 1);
}

/* const u32 y = group * local + lane, and a way out for those past the end */
static void emit_flat(sw__emitter *e, const char *name, const char *group, int64_t local, int dim, int64_t n)
{
    if (local == 1) sw__emit_line(e, "const %s %s = %s;", e->ux, name, group);
    else sw__emit_line(e, "const %s %s = %s * %" PRId64 "%s + (%s)LANE(%d);", e->ux, name, group, local, e->u, e->ux,
                       dim);
    if (n % local != 0) sw__emit_line(e, "if (%s >= %" PRId64 "%s) return;", name, n, e->u);
}

static void emit_coordinates(sw__emitter *e, const plan *p)
{
    sw__emit_line(e, "const %s group = (%s)GROUP(0);", e->ux, e->ux);
    if (p->rest.n == 0) {
        emit_flat(e, "x", "group", p->local_x, 0, p->run.points);
    } else if (p->groups_x == 1) {
        emit_flat(e, "y", "group", p->local_y, 1, p->rest.points);
        sw__emit_line(e, "const %s x = (%s)LANE(0);", e->ux, e->ux);
        if (p->run.points != p->local_x) sw__emit_line(e, "if (x >= %" PRId64 "%s) return;", p->run.points, e->u);
    } else {
        emit_flat(e, "y", sw__emit_label("(group / %" PRId64 "%s)", p->groups_x, e->u).s, p->local_y, 1,
                  p->rest.points);
        emit_flat(e, "x", sw__emit_label("(group %% %" PRId64 "%s)", p->groups_x, e->u).s, p->local_x, 0,
                  p->run.points);
    }
    sw__emit_axes(e, &p->rest, "y");
    sw__emit_axes(e, &p->run, "x");
}

sw_status sw__emit_pointwise(sw__emitter *e)
{
    plan p;
    if (e->t->serial) plan_serial(e, &p);
    else plan_wide(e, &p);
    p.groups_x = sw__emit_over(p.run.points, p.local_x);
    p.groups_y = sw__emit_over(p.rest.points, p.local_y);
    sw__emit_begin(e, "", true, true, (uint64_t)(p.groups_x * p.groups_y), (uint32_t)p.local_x, (uint32_t)p.local_y);
    emit_coordinates(e, &p);
    for (int phase = 0; phase < e->k->phases; phase++) sw__emit_rows_of(e, phase);
    sw__emit_row_stores(e);
    sw__emit_end(e);
    return SW_OK;
}
