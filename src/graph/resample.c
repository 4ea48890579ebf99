/* resample.c: the op RESAMPLE: its tables, shape rule, gradient and lowering. Inputs: x, index [to, width], weight (the
 * same, of x's type), and the same two tables the other way round, [from, width']: what each element of x contributes
 * to. So the gradient is the op itself with the tables swapped, and no device has to scatter. See resample.h. */
#include "graph/resample.h"
#include "graph/grad.h"
#include "graph/infer.h"

/* ---- tables -------------------------------------------------------------------------------------------------------
 */

bool sw__taps_new(sw_graph *g, int64_t from, int64_t to, int64_t width, sw__taps *out)
{
    int64_t n;
    *out = (sw__taps){ from, to, width, NULL, NULL };
    if (from > INT32_MAX || to > INT32_MAX || __builtin_mul_overflow(to, width, &n) || n > INT32_MAX) {
        sw__graph_error(g, SW_ERR_SHAPE, "resampling %lld elements to %lld: an axis can have 2^31 at most",
                        (long long)from, (long long)to);
        return false;
    }
    out->index = sw__calloc((size_t)n + 1, sizeof *out->index);
    out->weight = sw__calloc((size_t)n + 1, sizeof *out->weight);
    if (out->index != NULL && out->weight != NULL) return true;
    sw__taps_free(out);
    sw__graph_error(g, SW_ERR_MEMORY, "out of memory: tables to resample %lld elements to %lld", (long long)from,
                    (long long)to);
    return false;
}

void sw__taps_free(sw__taps *t)
{
    sw__free(t->index);
    sw__free(t->weight);
    *t = (sw__taps){ 0 };
}

/* The tables the other way round, entries in order of the result. */
static bool turned(sw_graph *g, const sw__taps *t, sw__taps *out)
{
    int64_t *count = sw__calloc((size_t)t->from + 1, sizeof *count), width = 1;
    if (count == NULL) {
        sw__graph_error(g, SW_ERR_MEMORY, "out of memory: %lld counts of a resampling", (long long)t->from);
        return false;
    }
    for (int64_t e = 0; e < t->to * t->width; e++) {
        if (t->weight[e] == 0.0) continue;
        const int64_t so_far = ++count[t->index[e]];
        width = SW_MAX(width, so_far);
    }
    memset(count, 0, (size_t)t->from * sizeof *count);
    const bool good = sw__taps_new(g, t->to, t->from, width, out);
    for (int64_t e = 0; good && e < t->to * t->width; e++) {
        if (t->weight[e] == 0.0) continue;
        const int64_t at = t->index[e] * width + count[t->index[e]]++;
        out->index[at] = (int32_t)(e / t->width);
        out->weight[at] = t->weight[e];
    }
    sw__free(count);
    return good;
}

/* The two tables as literals, the weights of x's type. */
static bool literals(sw_graph *g, sw_dtype type, const sw__taps *t, sw_t *index, sw_t *weight)
{
    const int64_t shape[2] = { t->to, t->width };
    const size_t n = (size_t)(t->to * t->width);
    void *const data = sw__calloc(n + 1, sw_dtype_size(type));
    if (data == NULL) {
        sw__graph_error(g, SW_ERR_MEMORY, "out of memory: %zu weights of a resampling", n);
        return false;
    }
    sw__convert(data, type, t->weight, SW_F64, n);
    *index = sw_literal(g, SW_I32, 2, shape, t->index);
    *weight = sw_literal(g, type, 2, shape, data);
    sw__free(data);
    return true;
}

/* Each element repeated `factor` times: an axis of its own that is expanded, and nothing to look up. */
static sw_t repeated(sw_t x, int axis, int64_t factor)
{
    int64_t split[SW_MAX_RANK + 1], merged[SW_MAX_RANK];
    const int rank = sw_rank(x);
    for (int i = 0; i < rank; i++) {
        split[i <= axis ? i : i + 1] = merged[i] = sw_dim(x, i);
    }
    split[axis + 1] = 1;
    merged[axis] *= factor;
    const sw_t one = sw_reshape(x, rank + 1, split);
    split[axis + 1] = factor;
    return sw_reshape(sw_expand(one, rank + 1, split), rank, merged);
}

/* Each element of the result is one of x, element i/up or i*down. */
static bool is_copy(const sw__taps *t, int64_t up, int64_t down)
{
    for (int64_t i = 0; i < t->to; i++)
        if (t->weight[i] != 1.0 || t->index[i] != i / up * down) return false;
    return true;
}

sw_t sw__resample(sw_t x, int axis, const sw__taps *t)
{
    if (!sw_valid(x)) return x;
    sw_graph *const g = x.graph;
    const bool single = t->width == 1;
    if (single && t->to == t->from && is_copy(t, 1, 1)) return x;
    if (single && t->to % t->from == 0 && sw_rank(x) < SW_MAX_RANK && is_copy(t, t->to / t->from, 1))
        return repeated(x, axis, t->to / t->from);
    if (single && t->from % t->to == 0 && is_copy(t, 1, t->from / t->to)) {
        int64_t start[SW_MAX_RANK] = { 0 }, stop[SW_MAX_RANK], step[SW_MAX_RANK];
        for (int i = 0; i < sw_rank(x); i++) {
            stop[i] = sw_dim(x, i);
            step[i] = i == axis ? t->from / t->to : 1;
        }
        return sw_slice(x, start, stop, step);
    }
    sw__taps back;
    if (!turned(g, t, &back)) return (sw_t){ g, 0 };
    sw_t in[5] = { x };
    const sw_dtype type = sw_type(x);
    const bool good = literals(g, type, t, &in[1], &in[2]) && literals(g, type, &back, &in[3], &in[4]);
    sw__taps_free(&back);
    const sw__attr attr = { .axis = { axis, false, 0 } };
    return good ? sw__node_add(g, SW_OP_RESAMPLE, in, 5, &attr, NULL) : (sw_t){ g, 0 };
}

/* ---- the op -------------------------------------------------------------------------------------------------------
 */

/* Inputs i and i + 1: a table of indices and one of weights, of so many rows (any number if negative). */
static sw_status want_tables(const sw_graph *g, const sw__node *n, uint32_t i, int64_t rows)
{
    SW_TRY(sw__want_type(g, n, i, SW_WANT_INDEX));
    SW_TRY(sw__want_rank(g, n, i, 2, 2));
    SW_TRY(sw__want_same_shape(g, n, i, i + 1));
    const int64_t shape[2] = { rows < 0 ? sw__in(g, n, i)->dim[0] : rows, SW_MAX(sw__in(g, n, i)->dim[1], 1) };
    SW_TRY(sw__want_dims(g, n, i, 2, shape, "a row for each element of x's axis, of one entry or more"));
    if (sw__in(g, n, i + 1)->dtype == sw__in(g, n, 0)->dtype) return SW_OK;
    return sw__fail(SW_ERR_SHAPE, "the weights are %s, not x's %s", sw_dtype_name((sw_dtype)sw__in(g, n, i + 1)->dtype),
                    sw_dtype_name((sw_dtype)sw__in(g, n, 0)->dtype));
}

sw_status sw__infer_resample(const sw_graph *g, sw__node *n)
{
    const int axis = n->attr.axis.axis;
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    SW_TRY(sw__want_axis(g, n, 0));
    SW_TRY(want_tables(g, n, 1, -1));
    SW_TRY(want_tables(g, n, 3, sw__in(g, n, 0)->dim[axis]));
    sw__take(n, sw__in(g, n, 0));
    n->dim[axis] = sw__in(g, n, 1)->dim[0];
    return SW_OK;
}

/* What came from an element goes back to it. */
RULE(sw__grad_resample)
{
    if (!want[0]) return;
    const sw__attr attr = g->nodes[id].attr;
    const sw_t in[5] = { dy[0], sw__arg(g, id, 3), sw__arg(g, id, 4), sw__arg(g, id, 1), sw__arg(g, id, 2) };
    dx[0] = sw__node_add(g, SW_OP_RESAMPLE, in, 5, &attr, NULL);
}

/* Column k of a table, along the axis of a tensor of n's shape. */
static sw_t column(const sw__node *n, sw_t table, int64_t k)
{
    int64_t shape[SW_MAX_RANK];
    for (int i = 0; i < n->rank; i++) shape[i] = i == n->attr.axis.axis ? n->dim[i] : 1;
    return sw_expand(sw_reshape(sw_narrow(table, 1, k, 1), n->rank, shape), n->rank, n->dim);
}

/* Many taps: a product with the matrix [to, from] that they are. */
static sw_t by_matrix(sw_graph *g, const sw__node *n, const sw_t *in)
{
    const int axis = n->attr.axis.axis, last = n->rank - 1;
    const int64_t shape[2] = { n->dim[axis], sw_dim(in[0], axis) };
    const sw_t none = sw_full(g, (sw_dtype)n->dtype, 2, shape, 0.0);
    const sw_t matrix = sw_scatter_add(none, in[1], in[2], 1);
    return sw_transpose(sw_matmul(sw_transpose(in[0], axis, last), sw_transpose(matrix, 0, 1)), axis, last);
}

/* One look-up for each tap, all in the kernel that reads the result. */
void sw__lower_resample(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    enum { MOST_TAPS = 32 };
    if (!sw_valid(in[0]) || !sw_valid(in[1])) return;
    const int64_t taps = sw_dim(in[1], 1);
    if (taps > MOST_TAPS) {
        out[0] = by_matrix(g, n, in);
        return;
    }
    sw_t sum = SW_NONE;
    for (int64_t k = 0; k < taps; k++) {
        const sw_t weight = column(n, in[2], k);
        const sw_t seen = sw_mul(weight, sw_gather(in[0], column(n, in[1], k), n->attr.axis.axis));
        const sw_t term = sw__drop_if(sw_eq(weight, sw__scalar_like(weight, 0.0)), seen);
        sum = sum.graph ? sw_add(sum, term) : term;
    }
    out[0] = sum;
}
