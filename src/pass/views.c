/* views.c: movement ops as index arithmetic: on coordinates (rows), for fused code, and on strides, for whole ops.
 * Used by the scheduler; knows nothing of steps. */
#include "pass/sched.h"

static int next_axis(const sw__node *n, int from)
{
    while (from < n->rank && n->dim[from] == 1) from++;
    return from;
}

bool sw__view_is_plain(const sw__node *n, const sw__node *x)
{
    int i = next_axis(n, 0), j = next_axis(x, 0);
    while (i < n->rank && j < x->rank) {
        if (n->dim[i] != x->dim[j]) return false;
        i = next_axis(n, i + 1);
        j = next_axis(x, j + 1);
    }
    return i >= n->rank && j >= x->rank;
}

/* Axes of size 1 have one coordinate, 0; the others follow one another. */
static void push_reshape(const sw__node *n, const sw__node *x, sw__row row[SW_MAX_RANK])
{
    sw__row to[SW_MAX_RANK] = {{0}};
    int i = next_axis(n, 0);
    for (int j = 0; j < SW_MAX_RANK; j++) to[j].axis = -1;
    for (int j = next_axis(x, 0); j < x->rank; j = next_axis(x, j + 1)) {
        to[j] = row[i];
        i = next_axis(n, i + 1);
    }
    memcpy(row, to, sizeof to);
}

void sw__view_push(const sw__node *n, const sw__node *x, sw__row row[SW_MAX_RANK])
{
    sw__row from[SW_MAX_RANK];
    memcpy(from, row, sizeof from);
    switch (n->op) {
    case SW_OP_RESHAPE: push_reshape(n, x, row); break;
    case SW_OP_PERMUTE:
        for (int i = 0; i < n->rank; i++) row[n->attr.perm.axes[i]] = from[i];
        break;
    case SW_OP_EXPAND:
        for (int i = 0; i < n->rank; i++)
            if (x->dim[i] != n->dim[i]) row[i] = (sw__row){.axis = -1};
        break;
    case SW_OP_SLICE:
        for (int i = 0; i < n->rank; i++) {
            row[i].off = n->attr.slice.start[i] + n->attr.slice.step[i] * from[i].off;
            row[i].coef = n->attr.slice.step[i] * from[i].coef;
        }
        break;
    default: break; /* the same coordinates */
    }
}

/* Strides for the dims of n over memory that x walks, as NumPy finds them: runs of axes with equal products are
 * matched, and inside a run x must be walked as one axis. */
static bool reshape_strides(const sw__node *n, const sw__desc *x, int64_t *stride)
{
    int64_t dim[SW_MAX_RANK] = {0}, step[SW_MAX_RANK] = {0};
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i] == 1) continue;
        dim[rank] = x->dim[i];
        step[rank++] = x->stride[i];
    }
    for (int i = 0; i < n->rank; i++) stride[i] = 0;
    int i = 0, j = 0;
    while (i < rank) {
        int64_t a = dim[i], b = 1;
        const int to = j;
        while (j < n->rank && n->dim[j] == 1) j++;
        if (j < n->rank) b = n->dim[j];
        while (a != b) {
            if (a < b) {
                if (++i >= rank || step[i - 1] != step[i] * dim[i]) return false;
                a *= dim[i];
            } else {
                if (++j >= n->rank) return false;
                b *= n->dim[j];
            }
        }
        int64_t s = step[i];
        for (int k = j; k >= to; k--) {
            stride[k] = n->dim[k] == 1 ? 0 : s;
            s *= n->dim[k];
        }
        i++;
        j++;
    }
    return true;
}

bool sw__view_ref(const sw__node *n, const sw__node *x, const sw__ref *from, sw__ref *to)
{
    sw__ref r = *from;
    r.desc.rank = n->rank;
    memset(r.desc.dim, 0, sizeof r.desc.dim);
    memset(r.desc.stride, 0, sizeof r.desc.stride);
    memcpy(r.desc.dim, n->dim, (size_t)n->rank * sizeof n->dim[0]);
    if (sw__dims_product(n->dim, n->rank) == 0) {
        sw__dense_ref(to, r.storage, 0, (sw_dtype)r.desc.dtype, n->rank, n->dim, NULL);
        return true;
    }
    if (n->op == SW_OP_RESHAPE) {
        if (!reshape_strides(n, &from->desc, r.desc.stride)) return false;
        *to = r;
        return true;
    }
    sw__row row[SW_MAX_RANK];
    for (int i = 0; i < SW_MAX_RANK; i++) row[i] = (sw__row){.axis = i < n->rank ? i : -1, .coef = i < n->rank};
    sw__view_push(n, x, row);
    for (int i = 0; i < x->rank; i++) {
        r.offset += from->desc.stride[i] * row[i].off;
        if (row[i].axis >= 0) r.desc.stride[row[i].axis] += from->desc.stride[i] * row[i].coef;
    }
    *to = r;
    return true;
}
