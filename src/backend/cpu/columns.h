/* columns.h: a tensor seen as columns along one axis, any strides; and values as numbers that order as the values do.
 * Used by op_order.c and op_index.c. */
#ifndef SW_BACKEND_CPU_COLUMNS_H
#define SW_BACKEND_CPU_COLUMNS_H

#include "backend/cpu/cpu.h"

/* The axes beside `axis` of tensors that agree on them, and how each of up to four tensors walks them. */
typedef struct sw__columns {
    int rank, tensors;
    int64_t dim[SW_MAX_RANK], stride[4][SW_MAX_RANK];
    int64_t count;       /* columns */
} sw__columns;

static inline sw__columns sw__columns_of(const sw__desc *const *d, int tensors, int axis)
{
    sw__columns c = {.tensors = tensors, .count = 1};
    for (int i = 0; i < d[0]->rank; i++) {
        if (i == axis || d[0]->dim[i] == 1) continue;
        c.dim[c.rank] = d[0]->dim[i];
        c.count *= d[0]->dim[i];
        for (int t = 0; t < tensors; t++) c.stride[t][c.rank] = d[t]->stride[i];
        c.rank++;
    }
    return c;
}

/* Where column i starts in each tensor, in elements. */
static inline void sw__columns_at(const sw__columns *c, int64_t i, int64_t at[4])
{
    at[0] = at[1] = at[2] = at[3] = 0;
    for (int k = c->rank - 1; k >= 0; k--) {
        const int64_t d = i % c->dim[k];
        i /= c->dim[k];
        for (int t = 0; t < c->tensors; t++) at[t] += d * c->stride[t][k];
    }
}

/* A number that orders as the value does: -0 equals 0, NaN is greater than all else. i: element. */
uint64_t sw__cpu_order_key(sw_dtype t, const void *p, int64_t i);

#endif
