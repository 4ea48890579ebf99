/* ops_arrange.c: builders that arrange data, as graphs of the movement primitives: stack, split, tile, roll, flip,
 * padding by mirrors, triangles. Definitions are PyTorch's. Between swoop/graph.h and the builders of primitives. */
#include "graph/compose.h"

/* ---- joining and cutting ----------------------------------------------------------------------------------------- */

sw_t sw_stack(const sw_t *xs, int n, int axis)
{
    enum { SOME = 64 };
    sw_t few[SOME], invalid;
    if (xs == NULL || n < 1) return SW_NONE; /* no graph to record it in: the next builder does */
    if (!sw__compose_operands("stack", xs, (uint32_t)n, &invalid)) return invalid;
    int64_t dim[SW_MAX_RANK + 1], other[SW_MAX_RANK];
    const int rank = sw__dims_of(xs[0], dim), at = axis < 0 ? axis + rank + 1 : axis;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (at < 0 || at > rank || rank == SW_MAX_RANK)
        return sw__compose_error(xs[0].graph, "stack", SW_ERR_SHAPE,
                                 "%s cannot get a new axis at %d: it must be %d to %d, "
                                 "and a tensor has at most %d axes", sw__value_text(xs[0].graph, xs[0].id, a), axis,
                                 -rank - 1, rank, SW_MAX_RANK);
    for (int i = 1; i < n; i++)
        if (sw__dims_of(xs[i], other) != rank || memcmp(dim, other, (size_t)rank * sizeof *dim) != 0)
            return sw__compose_error(xs[0].graph, "stack", SW_ERR_SHAPE, "%s and %s must have one shape",
                                     sw__value_text(xs[0].graph, xs[0].id, a),
                                     sw__value_text(xs[0].graph, xs[i].id, b));
    for (int i = rank; i > at; i--) dim[i] = dim[i - 1];
    dim[at] = 1;
    sw_t *const with_axis = n <= SOME ? few : sw__malloc((size_t)n * sizeof *with_axis);
    if (with_axis == NULL) return sw__graph_error(xs[0].graph, SW_ERR_MEMORY, "stack: out of memory");
    for (int i = 0; i < n; i++) with_axis[i] = sw_reshape(xs[i], rank + 1, dim);
    const sw_t y = sw_concat(with_axis, n, at);
    if (with_axis != few) sw__free(with_axis);
    return y;
}

bool sw_split(sw_t x, const int64_t *sizes, int n, int axis, sw_t *out)
{
    sw_t invalid;
    for (int i = 0; out != NULL && i < n; i++) out[i] = (sw_t){ x.graph, 0 };
    if (!sw__compose_operand("split", x, &invalid)) return false;
    if (sizes == NULL || out == NULL || n < 1) {
        sw__compose_error(x.graph, "split", SW_ERR_ARGUMENT, "sizes and out must be given, for 1 part or more, not %d",
                          n);
        return false;
    }
    const int at = sw__compose_axis("split", x, axis);
    if (at < 0) return false;
    int64_t sum = 0;
    bool fits = true;
    for (int i = 0; i < n; i++) fits = fits && sizes[i] >= 0 && !__builtin_add_overflow(sum, sizes[i], &sum);
    if (!fits || sum != sw_dim(x, at)) {
        char text[SW__TEXT_BYTES];
        sw__compose_error(x.graph, "split", SW_ERR_SHAPE,
                          "the %d sizes add up to %lld, axis %d of %s has %lld: they must be equal", n, (long long)sum, at,
                          sw__value_text(x.graph, x.id, text), (long long)sw_dim(x, at));
        return false;
    }
    int64_t start = 0;
    for (int i = 0; i < n; start += sizes[i++]) out[i] = sw_narrow(x, at, start, sizes[i]);
    return x.graph->status == SW_OK;
}

int sw_chunk(sw_t x, int n, int axis, sw_t *out)
{
    sw_t invalid;
    if (!sw__compose_operand("chunk", x, &invalid)) return 0;
    if (n < 1 || out == NULL) {
        sw__compose_error(x.graph, "chunk", SW_ERR_ARGUMENT, "%d parts of %%%u: 1 or more, and a place for them", n,
                          x.id);
        return 0;
    }
    const int at = sw__compose_axis("chunk", x, axis);
    if (at < 0) return 0;
    const int64_t size = sw_dim(x, at), each = SW_MAX((size + n - 1) / n, 1);
    int made = 0;
    for (int64_t start = 0; made < n && (start < size || made == 0); start += each)
        out[made++] = sw_narrow(x, at, start, SW_MIN(each, size - start));
    return x.graph->status == SW_OK ? made : 0;
}

/* ---- repeating --------------------------------------------------------------------------------------------------- */

/* Each element (whole = false), or the whole axis, n times along the axis. */
static sw_t repeat_axis(sw_t x, int axis, int64_t n, bool whole)
{
    if (n == 1 || !sw_valid(x)) return x;
    int64_t dim[SW_MAX_RANK];
    const int rank = sw__dims_of(x, dim);
    const int64_t outer = sw__dims_product(dim, axis), inner = sw__dims_product(dim + axis + 1, rank - axis - 1);
    const int64_t before = whole ? outer : outer * dim[axis], after = whole ? dim[axis] * inner : inner;
    const int64_t one[3] = { before, 1, after }, many[3] = { before, n, after };
    if (__builtin_mul_overflow(dim[axis], n, &dim[axis])) dim[axis] = INT64_MAX; /* refused by expand before */
    return sw_reshape(sw_expand(sw_reshape(x, 3, one), 3, many), rank, dim);
}

sw_t sw_tile(sw_t x, int n, const int64_t *repeats)
{
    sw_t invalid;
    if (!sw__compose_operand("tile", x, &invalid)) return invalid;
    int64_t dim[SW_MAX_RANK], full[SW_MAX_RANK];
    const int rank = sw__dims_of(x, dim);
    char text[SW__TEXT_BYTES];
    if (n < rank || n > SW_MAX_RANK || (n > 0 && repeats == NULL))
        return sw__compose_error(x.graph, "tile", SW_ERR_SHAPE,
                                 "%d repeats for %s: one for each axis, or more (new axes come "
                                 "in front), at most %d", n, sw__value_text(x.graph, x.id, text), SW_MAX_RANK);
    for (int i = 0; i < n; i++) {
        full[i] = i < n - rank ? 1 : dim[i - (n - rank)];
        if (repeats[i] < 0)
            return sw__compose_error(x.graph, "tile", SW_ERR_SHAPE, "%s: repeat %d is %lld: 0 or more",
                                     sw__value_text(x.graph, x.id, text), i, (long long)repeats[i]);
    }
    x = sw_reshape(x, n, full);
    for (int i = 0; i < n; i++) x = repeat_axis(x, i, repeats[i], true);
    return x;
}

sw_t sw_repeat_interleave(sw_t x, int64_t n, int axis)
{
    sw_t invalid;
    if (!sw__compose_operand("repeat_interleave", x, &invalid)) return invalid;
    const int at = sw__compose_axis("repeat_interleave", x, axis);
    if (at < 0) return (sw_t){ x.graph, 0 };
    char text[SW__TEXT_BYTES];
    if (n < 0)
        return sw__compose_error(x.graph, "repeat_interleave", SW_ERR_SHAPE, "%s: %lld times: 0 or more",
                                 sw__value_text(x.graph, x.id, text), (long long)n);
    return repeat_axis(x, at, n, false);
}

/* ---- turning ----------------------------------------------------------------------------------------------------- */

sw_t sw_roll(sw_t x, int64_t shift, int axis)
{
    sw_t invalid;
    if (!sw__compose_operand("roll", x, &invalid)) return invalid;
    const int at = sw__compose_axis("roll", x, axis);
    if (at < 0) return (sw_t){ x.graph, 0 };
    const int64_t n = sw_dim(x, at), by = n > 0 ? (shift % n + n) % n : 0;
    if (by == 0) return x;
    const sw_t parts[2] = { sw_narrow(x, at, n - by, by), sw_narrow(x, at, 0, n - by) };
    return sw_concat(parts, 2, at);
}

static sw_t flip_axis(sw_t x, int axis)
{
    const int64_t n = sw_valid(x) ? sw_dim(x, axis) : 0;
    if (n < 2) return x;
    const sw_t last = sw_const(x.graph, SW_I64, (double)(n - 1));
    return sw_index_select(x, sw_sub(last, sw_iota(x.graph, SW_I64, 1, &n, 0)), axis);
}

sw_t sw_flip(sw_t x, uint32_t axes)
{
    sw_t invalid;
    if (!sw__compose_operand("flip", x, &invalid)) return invalid;
    if (!sw__compose_axes("flip", x, &axes)) return (sw_t){ x.graph, 0 };
    const int rank = sw_rank(x);
    for (int i = 0; i < rank; i++)
        if ((axes >> i & 1u) != 0) x = flip_axis(x, i);
    return x;
}

/* ---- padding with what is there ---------------------------------------------------------------------------------- */

static sw_t repeat_edge(sw_t x, int axis, int64_t at, int64_t n)
{
    int64_t dim[SW_MAX_RANK];
    const sw_t edge = sw_narrow(x, axis, at, 1);
    const int rank = sw__dims_of(edge, dim);
    dim[axis] = n;
    return sw_expand(edge, rank, dim);
}

static sw_t pad_axis(sw_t x, int axis, int64_t lo, int64_t hi, sw_pad_mode mode)
{
    const int64_t n = sw_valid(x) ? sw_dim(x, axis) : 0;
    sw_t part[3];
    int parts = 0;
    if (!sw_valid(x) || (lo == 0 && hi == 0)) return x;
    if (lo > 0)
        part[parts++] = mode == SW_PAD_REFLECT     ? flip_axis(sw_narrow(x, axis, 1, lo), axis)
                        : mode == SW_PAD_REPLICATE ? repeat_edge(x, axis, 0, lo)
                                                   : sw_narrow(x, axis, n - lo, lo);
    part[parts++] = x;
    if (hi > 0)
        part[parts++] = mode == SW_PAD_REFLECT     ? flip_axis(sw_narrow(x, axis, n - 1 - hi, hi), axis)
                        : mode == SW_PAD_REPLICATE ? repeat_edge(x, axis, n - 1, hi)
                                                   : sw_narrow(x, axis, 0, hi);
    return sw_concat(part, parts, axis);
}

sw_t sw_pad_with(sw_t x, const int64_t *lo, const int64_t *hi, sw_pad_mode mode)
{
    static const char *const rule[] = {
        [SW_PAD_REFLECT] = "reflect needs less than the axis' size, whose edge is not repeated",
        [SW_PAD_REPLICATE] = "replicate needs an edge to repeat",
        [SW_PAD_CIRCULAR] = "circular takes at most the axis' size"};
    sw_t invalid;
    if (!sw__compose_operand("pad", x, &invalid)) return invalid;
    const int rank = sw_rank(x);
    if ((unsigned)mode >= SW_COUNT(rule) || (rank > 0 && (lo == NULL || hi == NULL)))
        return sw__compose_error(x.graph, "pad", SW_ERR_ARGUMENT,
                                 "mode %d of %%%u: there are reflect, replicate, circular, "
                                 "and lo and hi have one entry an axis", (int)mode, x.id);
    for (int i = 0; i < rank; i++) {
        const int64_t n = sw_dim(x, i), most = SW_MAX(lo[i], hi[i]), least = SW_MIN(lo[i], hi[i]);
        const bool fits = mode == SW_PAD_REFLECT     ? most < SW_MAX(n, 1)
                          : mode == SW_PAD_REPLICATE ? most == 0 || n > 0
                                                     : most <= n;
        if (least >= 0 && fits) continue;
        char text[SW__TEXT_BYTES];
        return sw__compose_error(x.graph, "pad", SW_ERR_SHAPE, "axis %d of %s by lo %lld, hi %lld: %s", i,
                                 sw__value_text(x.graph, x.id, text), (long long)lo[i], (long long)hi[i],
                                 least < 0 ? "none may be negative (cut with sw_slice)" : rule[mode]);
    }
    for (int i = 0; i < rank; i++) x = pad_axis(x, i, lo[i], hi[i], mode);
    return x;
}

/* ---- triangles --------------------------------------------------------------------------------------------------- */

/* 0 where the column minus the row is above (lower) or below the diagonal. */
static sw_t triangle(const char *what, sw_t x, int64_t diagonal, bool lower)
{
    sw_t invalid;
    if (!sw__compose_operand(what, x, &invalid)) return invalid;
    const int rank = sw_rank(x);
    if (rank < 2) {
        char text[SW__TEXT_BYTES];
        return sw__compose_error(x.graph, what, SW_ERR_SHAPE, "%s is no matrix [.., M, N]",
                                 sw__value_text(x.graph, x.id, text));
    }
    const int64_t shape[2] = { sw_dim(x, -2), sw_dim(x, -1) };
    const int64_t k = SW_MAX(SW_MIN(diagonal, shape[1]), -shape[0]); /* beyond them it is all or nothing */
    const sw_t row = sw_iota(x.graph, SW_I64, 2, shape, 0), column = sw_iota(x.graph, SW_I64, 2, shape, 1);
    const sw_t edge = sw_add(row, sw_const(x.graph, SW_I64, (double)k));
    const sw_t keep = lower ? sw_le(column, edge) : sw_ge(column, edge);
    return sw_where(keep, x, sw_const(x.graph, sw_type(x), 0));
}

sw_t sw_tril(sw_t x, int64_t diagonal)
{
    return triangle("tril", x, diagonal, true);
}

sw_t sw_triu(sw_t x, int64_t diagonal)
{
    return triangle("triu", x, diagonal, false);
}
