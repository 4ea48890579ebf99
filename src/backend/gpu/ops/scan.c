/* scan.c: plans SCAN_SUM: portable/scan.k, once, or three times where few long columns are cut into chunks so that all
 * of the device has work. Called by gpu_op.c. */
#include "backend/gpu/ops/columns.h"

#include <stdio.h>

enum { EACH = 8, MOST_CHUNKS = 1024 };

typedef struct scan {
    sw__gpu_macros m; /* what the phases have in common */
    sw__gpu_place x, y;
    int64_t count, length, chunk, chunks;
    bool by_item;
    size_t sum_size;
} scan;

/* How columns are cut: enough units of work for the device, none of them small. */
static void cut(const sw__gpu *g, scan *s)
{
    const bool serial = g->target.serial;
    const int64_t wanted = (int64_t)g->target.units * (serial ? 1 : s->by_item ? 256 : 4);
    const int64_t least = serial ? 16384 : s->by_item ? 256 : 8192;
    int64_t chunks = SW_MIN(SW_MIN(wanted / s->count, s->length / least), MOST_CHUNKS);
    if (chunks < 2) chunks = 1;
    s->chunk = (s->length + chunks - 1) / chunks;
    s->chunks = (s->length + s->chunk - 1) / s->chunk;
}

static void describe(sw__gpu_plan *p, scan *s)
{
    const sw__desc *const x = &p->d.in[0];
    const sw_dtype t = (sw_dtype)x->dtype;
    const int axis = p->attr.axis.axis;
    sw__gpu_place_of(x, axis, "c", "k", &s->x);
    sw__gpu_place_of(&p->d.out[0], axis, "c", "k", &s->y);
    sw__gpu_put_values(&s->m, t);
    /* f32 is added up in double where there is one: a long column stays exact to its own rounding */
    const bool wide = t == SW_F64 || (t == SW_F32 && p->gpu->target.fp64);
    sw__gpu_put_text(&s->m, "SUM", wide ? "double" : t == SW_I64 ? "u64" : sw__dtype_is_float(t) ? "float" : "u32");
    s->sum_size = wide || t == SW_I64 ? 8 : 4;
    if (t == SW_F32) s->m.m[3].text = "p[i] = (float)v";
    sw__gpu_put_text(&s->m, "X_AT", s->x.text);
    sw__gpu_put_text(&s->m, "Y_AT", s->y.text);
    sw__gpu_put_text(&s->m, "INDEX", sw__gpu_counter(s->count * s->length + (1 << 20)));
    sw__gpu_put(&s->m, "COUNT", s->count);
    sw__gpu_put(&s->m, "LENGTH", s->length);
    sw__gpu_put(&s->m, "CHUNK", s->chunk);
    sw__gpu_put(&s->m, "CHUNKS", s->chunks);
    sw__gpu_put(&s->m, "REVERSE", p->attr.axis.flag);
    sw__gpu_put(&s->m, "BY_ITEM", s->by_item);
    sw__gpu_put(&s->m, "EACH", EACH);
}

static sw_status add_phase(sw__gpu_plan *p, const scan *s, int phase, size_t work)
{
    const sw__gpu *const g = p->gpu;
    sw__gpu_macros m = s->m;
    const bool by_item = s->by_item || phase == 2;
    int lanes = sw__gpu_lanes(g, by_item ? (g->target.serial ? 1 : 64) : 256);
    while (!by_item && lanes > 1 && (size_t)lanes * 2 * s->sum_size > g->target.local_bytes) lanes /= 2;
    const int64_t units = phase == 2 ? s->count : s->count * s->chunks;
    const uint32_t groups = sw__gpu_grid(&m, by_item ? (units + lanes - 1) / lanes : units, lanes);
    sw__gpu_put(&m, "PHASE", phase);
    const sw__gpu_arg all[] = { SW_GPU_BIND(0), SW_GPU_BIND(1), SW_GPU_WORK(p, work) };
    return phase == 2 ? sw__gpu_step(p, "scan", &m, groups, lanes, 1, all + 2, 1)
                      : sw__gpu_step(p, "scan", &m, groups, lanes, 1, all, 3);
}

sw_status sw__gpu_scan_plan(sw__gpu_plan *p)
{
    const sw__desc *const x = &p->d.in[0];
    const int axis = p->attr.axis.axis;
    scan s = { .count = sw__gpu_count(x, axis), .length = x->dim[axis] };
    SW_TRY(sw__gpu_can_add(p, (sw_dtype)x->dtype));
    snprintf(p->note, sizeof p->note, "nothing:%s", sw_dtype_name((sw_dtype)x->dtype));
    if (s.count * s.length == 0) return SW_OK;
    s.by_item = sw__gpu_by_item(p->gpu, x, axis);
    cut(p->gpu, &s);
    describe(p, &s);
    size_t work = 0;
    if (s.chunks > 1) {
        work = sw__gpu_reserve(p, s.count * s.chunks, s.sum_size);
        SW_TRY(add_phase(p, &s, 1, work));
        SW_TRY(add_phase(p, &s, 2, work));
    }
    snprintf(p->note, sizeof p->note, "%s, %lld chunks:%s", s.by_item ? "item" : "group", (long long)s.chunks,
             sw_dtype_name((sw_dtype)x->dtype));
    return add_phase(p, &s, 3, work);
}
