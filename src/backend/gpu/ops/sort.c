/* sort.c: plans SORT and ARGSORT, and the sorting of indices for scatter.c and embedding.c: portable/sort.k. On a CPU
 * a work-item sorts a column; on a GPU groups sort blocks in local memory, which are merged pass by pass.
 * Called by gpu_op.c. */
#include "backend/gpu/ops/columns.h"

#include <stdio.h>

enum { TO_PAIRS, TO_VALUES, TO_NUMBERS };
enum { SERIAL, BLOCKS, MERGE };
enum { MOST_LANES = 256, EACH = 4, RUN = 16 }; /* RUN as in sort.k */

typedef struct sort {
    sw__gpu_macros m; /* what all phases have in common */
    sw__gpu_place x, y;
    int bind_x, bind_y, to;
    int64_t count, length;
    size_t key_size, id_size;
    const char *key, *id;
    bool checks;
    size_t keys[2], ids[2]; /* in the workspace */
} sort;

static void put_common(sort *s)
{
    s->id_size = s->length < INT32_MAX ? 4 : 8;
    s->id = s->id_size == 4 ? "u32" : "u64";
    sw__gpu_put_text(&s->m, "X_AT", s->x.text);
    sw__gpu_put_text(&s->m, "Y_AT", s->y.text);
    sw__gpu_put_text(&s->m, "INDEX", sw__gpu_counter(s->count * s->length));
    sw__gpu_put_text(&s->m, "ID", s->id);
    sw__gpu_put(&s->m, "COUNT", s->count);
    sw__gpu_put(&s->m, "LENGTH", s->length);
}

static sw_status add(sw__gpu_plan *p, const sort *s, sw__gpu_macros *m, int phase, uint32_t groups, int size_x,
                     int size_y, int from, int64_t width)
{
    sw__gpu_put(m, "PHASE", phase);
    const sw__gpu_arg last = phase == MERGE ? (sw__gpu_arg)SW_GPU_INT(width) : (sw__gpu_arg){ .kind = SW_GPU_ERRORS };
    const sw__gpu_arg args[] = { SW_GPU_BIND(s->bind_x), SW_GPU_BIND(s->bind_y),
                                 SW_GPU_WORK(p, s->keys[from]), SW_GPU_WORK(p, s->ids[from]),
                                 SW_GPU_WORK(p, s->keys[1 - from]), SW_GPU_WORK(p, s->ids[1 - from]), last };
    return sw__gpu_step(p, "sort", m, groups, size_x, size_y, args, phase == MERGE || s->checks ? 7 : 6);
}

static void reserve(sw__gpu_plan *p, sort *s, int64_t columns)
{
    for (int i = 0; i < 2; i++) {
        s->keys[i] = sw__gpu_reserve(p, columns * s->length, s->key_size);
        s->ids[i] = sw__gpu_reserve(p, columns * s->length, s->id_size);
    }
}

/* Returns which of the two arrays holds the pairs. */
static sw_status sort_serially(sw__gpu_plan *p, sort *s, int *out)
{
    sw__gpu_macros m = s->m;
    const int64_t items = SW_MIN(s->count, 4 * (int64_t)p->gpu->target.units);
    reserve(p, s, s->to == TO_PAIRS ? s->count : items);
    sw__gpu_put(&m, "TO", s->to);
    const uint32_t groups = sw__gpu_grid(&m, items, 1);
    *out = 0;
    for (int64_t width = RUN; width < s->length; width *= 2) *out = 1 - *out;
    return add(p, s, &m, SERIAL, groups, 1, 1, 0, 0);
}

typedef struct shape { int lanes, rows; int64_t block; } shape; /* of a group that sorts blocks */

/* False: not even two elements of local memory. */
static bool shape_of(const sw__gpu *g, const sort *s, shape *out)
{
    const int64_t length = sw__gpu_up(SW_MIN(s->length, 1 << 20));
    const size_t pair = 2 * (s->key_size + 2);
    out->lanes = sw__gpu_lanes(g, SW_MIN(length, MOST_LANES));
    out->block = SW_MIN(length, (int64_t)out->lanes * EACH);
    while (out->block > 1 && (size_t)out->block * pair > g->target.local_bytes * 3 / 4) out->block /= 2;
    out->rows = 1;
    const int most = SW_MIN(g->target.max_group, 64) / out->lanes;
    while (2 * out->rows <= most && 2 * out->rows <= g->target.max_local[1] && out->rows < s->count &&
           (size_t)(2 * out->rows * out->block) * pair <= g->target.local_bytes / 2) out->rows *= 2;
    return (size_t)out->block * pair <= g->target.local_bytes;
}

static sw_status sort_blocks(sw__gpu_plan *p, sort *s, const shape *h, bool final)
{
    sw__gpu_macros m = s->m;
    const int64_t blocks = (s->length + h->block - 1) / h->block, units = s->count * blocks;
    const uint32_t groups = sw__gpu_grid(&m, (units + h->rows - 1) / h->rows, h->lanes);
    sw__gpu_put(&m, "TO", final ? s->to : TO_PAIRS);
    sw__gpu_put(&m, "SIZE_Y", h->rows);
    sw__gpu_put(&m, "BLOCK", h->block);
    sw__gpu_put(&m, "BLOCKS", blocks);
    return add(p, s, &m, BLOCKS, groups, h->lanes, h->rows, 0, 0);
}

static sw_status sort_in_groups(sw__gpu_plan *p, sort *s, const shape *h, int *out)
{
    const bool single = s->length <= h->block;
    if (!single || s->to == TO_PAIRS) reserve(p, s, s->count);
    SW_TRY(sort_blocks(p, s, h, single));
    *out = 0;
    for (int64_t width = h->block; width < s->length; width *= 2) {
        sw__gpu_macros m = s->m;
        const int lanes = sw__gpu_lanes(p->gpu, 128);
        const uint32_t groups = sw__gpu_grid(&m, (s->count * s->length + lanes - 1) / lanes, lanes);
        sw__gpu_put(&m, "TO", 2 * width >= s->length ? s->to : TO_PAIRS);
        SW_TRY(add(p, s, &m, MERGE, groups, lanes, 1, *out, width));
        *out = 1 - *out;
    }
    return SW_OK;
}

static sw_status sort_any(sw__gpu_plan *p, sort *s, int *out)
{
    shape h;
    if (p->gpu->target.serial || !shape_of(p->gpu, s, &h)) {
        snprintf(p->note, sizeof p->note, "merge sort, item per column:%s", s->key);
        return sort_serially(p, s, out);
    }
    snprintf(p->note, sizeof p->note, "blocks of %lld, merged:%s", (long long)h.block, s->key);
    return sort_in_groups(p, s, &h, out);
}

sw_status sw__gpu_sort_plan(sw__gpu_plan *p)
{
    const sw__desc *const x = &p->d.in[0], *const y = &p->d.out[0];
    const sw_dtype t = (sw_dtype)x->dtype;
    const int axis = p->attr.axis.axis;
    sort s = { .bind_x = 0, .bind_y = 1, .to = p->d.op == SW_OP_ARGSORT ? TO_NUMBERS : TO_VALUES,
               .count = sw__gpu_count(x, axis), .length = x->dim[axis], .key_size = sw__gpu_key_size(t) };
    s.key = sw_dtype_name(t);
    snprintf(p->note, sizeof p->note, "nothing:%s", s.key);
    if (s.count * s.length == 0) return SW_OK;
    sw__gpu_place_of(x, axis, "c", "k", &s.x);
    sw__gpu_place_of(y, axis, "c", "k", &s.y);
    sw__gpu_put_keys(&s.m, t);
    sw__gpu_put(&s.m, "DESCENDING", p->attr.axis.flag);
    put_common(&s);
    int where;
    return sort_any(p, &s, &where);
}

sw_status sw__gpu_sort_indices(sw__gpu_plan *p, int bind, int axis, int64_t extent, sw__gpu_sorted *out)
{
    const sw__desc *const x = &p->d.in[bind];
    const bool wide = extent >= UINT32_MAX;
    sort s = { .bind_x = bind, .bind_y = bind, .to = TO_PAIRS, .checks = true,
               .count = axis < 0 ? 1 : sw__gpu_count(x, axis), .length = axis < 0 ? sw__gpu_count(x, -1) : x->dim[axis],
               .key_size = wide ? 8 : 4, .key = wide ? "u64" : "u32" };
    int64_t inner = 1;
    for (int i = axis + 1; axis >= 0 && i < x->rank; i++) inner *= x->dim[i];
    sw__gpu_place_of(x, axis, axis < 0 ? "k" : "c", "k", &s.x);
    snprintf(s.y.text, sizeof s.y.text, "0");
    sw__gpu_put_text(&s.m, "BITS", x->dtype == SW_I32 ? "i32" : "i64");
    sw__gpu_put_text(&s.m, "KEY", s.key);
    sw__gpu_put(&s.m, "KIND", SW__GPU_INDICES);
    sw__gpu_put(&s.m, "DESCENDING", 0);
    sw__gpu_put(&s.m, "EXTENT", extent);
    sw__gpu_put(&s.m, "INNER", inner);
    put_common(&s);
    int where;
    SW_TRY(sort_any(p, &s, &where));
    *out = (sw__gpu_sorted){ .keys = s.keys[where], .ids = s.ids[where], .key_type = s.key, .id_type = s.id };
    return SW_OK;
}
