/* ops_index.c: builders that pick and place by index, as graphs of primitives: top-k, one-hot, masked_fill,
 * index_select, gather_nd, scatter_nd. Definitions are PyTorch's and ONNX's. Between swoop/graph.h and the builders of
 * primitives. */
#include "graph/compose.h"

static bool is_index(const char *what, sw_t index)
{
    if (sw_type(index) == SW_I64 || sw_type(index) == SW_I32) return true;
    char text[SW__TEXT_BYTES];
    sw__compose_error(index.graph, what, SW_ERR_SHAPE, "the index, %s, must be i32 or i64 (sw_cast(x, SW_I64))",
                      sw__value_text(index.graph, index.id, text));
    return false;
}

/* The values are gathered by the indices, so their gradient goes to those places alone. */
void sw_topk(sw_t x, int64_t k, int axis, bool largest, sw_t *values, sw_t *indices)
{
    sw_t invalid;
    if (values != NULL) *values = (sw_t){ x.graph, 0 };
    if (indices != NULL) *indices = (sw_t){ x.graph, 0 };
    if (!sw__compose_operand("topk", x, &invalid)) return;
    const int at = sw__compose_axis("topk", x, axis);
    if (at < 0) return;
    if (k < 0 || k > sw_dim(x, at)) {
        char text[SW__TEXT_BYTES];
        sw__compose_error(x.graph, "topk", SW_ERR_SHAPE, "%lld of axis %d of %s: 0 to %lld can be had", (long long)k,
                          at, sw__value_text(x.graph, x.id, text), (long long)sw_dim(x, at));
        return;
    }
    const sw_t index = sw_narrow(sw_argsort(x, at, largest), at, 0, k);
    if (values != NULL) *values = sw_gather(x, index, at);
    if (indices != NULL) *indices = index;
}

sw_t sw_one_hot(sw_t index, int64_t classes, sw_dtype type)
{
    sw_t invalid;
    if (!sw__compose_operand("one_hot", index, &invalid)) return invalid;
    if (!is_index("one_hot", index)) return (sw_t){ index.graph, 0 };
    int64_t dim[SW_MAX_RANK + 1];
    const int rank = sw__dims_of(index, dim);
    char text[SW__TEXT_BYTES];
    if (classes < 1 || rank == SW_MAX_RANK)
        return sw__compose_error(index.graph, "one_hot", SW_ERR_SHAPE,
                                 "%lld classes of %s: 1 or more, and an axis more than "
                                 "the index has", (long long)classes, sw__value_text(index.graph, index.id, text));
    dim[rank] = 1;
    const sw_t class = sw_iota(index.graph, sw_type(index), 1, &classes, 0);
    return sw_cast(sw_eq(sw_reshape(index, rank + 1, dim), class), type);
}

sw_t sw_masked_fill(sw_t x, sw_t mask, double value)
{
    const sw_t xs[2] = { x, mask };
    sw_t invalid;
    if (!sw__compose_operands("masked_fill", xs, 2, &invalid)) return invalid;
    char text[SW__TEXT_BYTES];
    if (sw_type(mask) != SW_BOOL)
        return sw__compose_error(x.graph, "masked_fill", SW_ERR_SHAPE,
                                 "the mask, %s, must be bool (a comparison such as "
                                 "sw_ne(x, 0) gives one)", sw__value_text(x.graph, mask.id, text));
    return sw_where(mask, sw_const(x.graph, sw_type(x), value), x);
}

/* ---- by index ---------------------------------------------------------------------------------------------------- */

/* Rows of x as [outer * size, inner] for each outer place: the index of a row is outer * size + index[k]. One that is
 * outside [0, size) is sent outside the rows, so that the run reports it. */
static sw_t rows_at(sw_t x, sw_t index, int axis)
{
    int64_t dim[SW_MAX_RANK];
    const int rank = sw__dims_of(x, dim);
    const int64_t size = dim[axis], k = sw_elements(index);
    const int64_t outer = sw__dims_product(dim, axis), inner = sw__dims_product(dim + axis + 1, rank - axis - 1);
    sw_t at = sw_cast(sw_reshape(index, 1, &k), SW_I64);
    if (outer != 1) {
        const int64_t column[2] = { outer, 1 };
        const sw_t zero = sw_const(x.graph, SW_I64, 0), n = sw_const(x.graph, SW_I64, (double)size);
        const sw_t outside = sw_or(sw_lt(at, zero), sw_ge(at, n));
        const sw_t first = sw_mul(sw_iota(x.graph, SW_I64, 2, column, 0), n);
        at = sw_where(outside, sw_const(x.graph, SW_I64, -1), sw_add(first, at));
        at = sw_reshape(at, 1, (int64_t[]){ outer * k });
    }
    return sw_embedding_op(sw_reshape(x, 2, (int64_t[]){ outer * size, inner }), at);
}

sw_t sw_index_select(sw_t x, sw_t index, int axis)
{
    const sw_t xs[2] = { x, index };
    sw_t invalid;
    if (!sw__compose_operands("index_select", xs, 2, &invalid)) return invalid;
    const int at = sw__compose_axis("index_select", x, axis);
    if (at < 0 || !is_index("index_select", index)) return (sw_t){ x.graph, 0 };
    char text[SW__TEXT_BYTES];
    if (sw_rank(index) > 1)
        return sw__compose_error(x.graph, "index_select", SW_ERR_SHAPE, "the index, %s, must be a vector [K]",
                                 sw__value_text(x.graph, index.id, text));
    return sw__from_axis(rows_at(x, index, at), x, at, sw_elements(index));
}

/* index [.., D] names places in the first D axes of x: checked, and told as one index into them as one axis. */
static sw_t flat_index(const char *what, sw_t x, sw_t index, int *axes, int64_t *places)
{
    int64_t dim[SW_MAX_RANK], shape[SW_MAX_RANK];
    const int rank = sw__dims_of(x, dim), lead = sw__dims_of(index, shape) - 1;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (!is_index(what, index)) return (sw_t){ x.graph, 0 };
    if (lead < 0 || shape[lead] < 1 || shape[lead] > rank)
        return sw__compose_error(x.graph, what, SW_ERR_SHAPE,
                                 "the last axis of the index, %s, must have the number of axes of "
                                 "%s that it names: 1 to %d", sw__value_text(x.graph, index.id, a),
                                 sw__value_text(x.graph, x.id, b), rank);
    *axes = (int)shape[lead];
    *places = sw__dims_product(dim, *axes);
    const sw_t wide = sw_cast(index, SW_I64), zero = sw_const(x.graph, SW_I64, 0);
    sw_t flat = SW_NONE, outside = SW_NONE;
    for (int i = 0; i < *axes; i++) {
        const sw_t n = sw_const(x.graph, SW_I64, (double)dim[i]);
        const sw_t at = sw_reshape(sw_narrow(wide, lead, i, 1), lead, shape);
        const sw_t out = sw_or(sw_lt(at, zero), sw_ge(at, n));
        flat = i == 0 ? at : sw_add(sw_mul(flat, n), at);
        outside = i == 0 ? out : sw_or(outside, out);
    }
    return sw_where(outside, sw_const(x.graph, SW_I64, -1), flat); /* which the run reports */
}

sw_t sw_gather_nd(sw_t x, sw_t index)
{
    const sw_t xs[2] = { x, index };
    sw_t invalid;
    if (!sw__compose_operands("gather_nd", xs, 2, &invalid)) return invalid;
    int axes = 0;
    int64_t places = 0, dim[SW_MAX_RANK], shape[2 * SW_MAX_RANK];
    const sw_t at = flat_index("gather_nd", x, index, &axes, &places);
    if (!sw_valid(at)) return at;
    const int rank = sw__dims_of(x, dim), lead = sw__dims_of(at, shape);
    for (int i = axes; i < rank; i++) shape[lead + i - axes] = dim[i];
    const sw_t rows = sw_reshape(x, 2, (int64_t[]){ places, sw__dims_product(dim + axes, rank - axes) });
    return sw_reshape(sw_embedding_op(rows, at), lead + rank - axes, shape);
}

sw_t sw_scatter_nd_add(sw_t base, sw_t index, sw_t src)
{
    const sw_t xs[3] = { base, index, src };
    sw_t invalid;
    if (!sw__compose_operands("scatter_nd_add", xs, 3, &invalid)) return invalid;
    int axes = 0;
    int64_t places = 0, dim[SW_MAX_RANK], shape[2 * SW_MAX_RANK], have[SW_MAX_RANK];
    const sw_t at = flat_index("scatter_nd_add", base, index, &axes, &places);
    if (!sw_valid(at)) return at;
    const int rank = sw__dims_of(base, dim), lead = sw__dims_of(at, shape), want = lead + rank - axes;
    for (int i = axes; i < rank; i++) shape[lead + i - axes] = dim[i];
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (sw__dims_of(src, have) != want || memcmp(have, shape, (size_t)want * sizeof *have) != 0 ||
        sw_type(src) != sw_type(base))
        return sw__compose_error(base.graph, "scatter_nd_add", SW_ERR_SHAPE,
                                 "src is %s where %s %s fits the base and the index",
                                 sw__value_text(base.graph, src.id, a), sw_dtype_name(sw_type(base)),
                                 sw__dims_text(want, shape, b, sizeof b));
    shape[lead] = sw__dims_product(dim + axes, rank - axes);
    const sw__attr attr = { .axis = { 0, false, places } };
    const sw_t in[2] = { at, sw_reshape(src, lead + 1, shape) };
    const sw_t sums = sw__node_add(base.graph, SW_OP_EMBEDDING_GRAD, in, 2, &attr, NULL);
    return sw_add(base, sw_reshape(sums, rank, dim));
}
