/* embedding.c: plans EMBEDDING_GRAD: the indices are sorted (sort.c), then each row that occurs adds up its gradients
 * in the order of the index; the work grows with rows and with indices, not with their product. Called by gpu_op.c. */
#include "backend/gpu/ops/columns.h"

#include <stdio.h>

static sw_status add_clear(sw__gpu_plan *p)
{
    const sw__desc *const dw = &p->d.out[0];
    const int64_t n = sw__gpu_count(dw, -1);
    sw__gpu_macros m = { .n = 0 };
    sw__gpu_place place;
    sw__gpu_place_of(dw, -1, "c", "", &place);
    sw__gpu_put_values(&m, (sw_dtype)dw->dtype);
    sw__gpu_put_text(&m, "DW_AT", place.text);
    sw__gpu_put_text(&m, "INDEX", sw__gpu_counter(n));
    sw__gpu_put(&m, "COUNT", n);
    sw__gpu_put(&m, "PHASE", 0);
    const int lanes = sw__gpu_lanes(p->gpu, 128);
    const uint32_t groups = sw__gpu_grid(&m, (n + lanes - 1) / lanes, lanes);
    const sw__gpu_arg args[] = { SW_GPU_BIND(2) };
    return sw__gpu_step(p, "embedding", &m, groups, lanes, 1, args, 1);
}

static sw_status add_rows(sw__gpu_plan *p, const sw__gpu_sorted *s, int64_t n)
{
    const sw__desc *const dy = &p->d.in[1], *const dw = &p->d.out[0];
    const int64_t width = dw->dim[1];
    /* on a CPU a work-item walks many columns of a row, so that the search for the row's run counts for little */
    const int64_t each = p->gpu->target.serial ? 256 : 1, parts = (width + each - 1) / each;
    sw__gpu_macros m = { .n = 0 };
    sw__gpu_place from, to;
    sw__gpu_place_of(dy, dy->rank - 1, "e", "j", &from);
    sw__gpu_place_of(dw, 1, "r", "j", &to);
    sw__gpu_put_values(&m, (sw_dtype)dw->dtype);
    sw__gpu_put_text(&m, "DY_AT", from.text);
    sw__gpu_put_text(&m, "DW_AT", to.text);
    sw__gpu_put_text(&m, "INDEX", sw__gpu_counter(n * parts * each));
    sw__gpu_put_text(&m, "SORTED_KEY", s->key_type);
    sw__gpu_put_text(&m, "SORTED_ID", s->id_type);
    sw__gpu_put(&m, "COUNT", n);
    sw__gpu_put(&m, "ROWS", dw->dim[0]);
    sw__gpu_put(&m, "WIDTH", width);
    sw__gpu_put(&m, "EACH", each);
    sw__gpu_put(&m, "PARTS", parts);
    sw__gpu_put(&m, "PHASE", 1);
    const int lanes = sw__gpu_lanes(p->gpu, p->gpu->target.serial ? 16 : 128);
    const uint32_t groups = sw__gpu_grid(&m, (n * parts + lanes - 1) / lanes, lanes);
    const sw__gpu_arg args[] = { SW_GPU_WORK(p, s->keys), SW_GPU_WORK(p, s->ids), SW_GPU_BIND(1), SW_GPU_BIND(2) };
    return sw__gpu_step(p, "embedding", &m, groups, lanes, 1, args, 4);
}

sw_status sw__gpu_embedding_grad_plan(sw__gpu_plan *p)
{
    const sw__desc *const dw = &p->d.out[0];
    const int64_t n = sw__gpu_count(&p->d.in[0], -1);
    sw__gpu_sorted sorted;
    SW_TRY(sw__gpu_can_add(p, (sw_dtype)dw->dtype));
    if (sw__gpu_count(dw, -1) > 0) SW_TRY(add_clear(p));
    if (n > 0) { /* also without columns to add up: indices are checked */
        SW_TRY(sw__gpu_sort_indices(p, 0, -1, dw->dim[0], &sorted));
        if (dw->dim[1] > 0) SW_TRY(add_rows(p, &sorted, n));
    }
    snprintf(p->note, sizeof p->note, "sorted:%s", sw_dtype_name((sw_dtype)dw->dtype));
    return SW_OK;
}
