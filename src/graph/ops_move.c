/* ops_move.c: public builders of ops that move data and compute nothing. One that would change nothing gives x itself.
 * Between swoop/graph.h and sw__node_add. */
#include "graph/build.h"

static bool usable(sw_t x)
{
    return sw_valid(x) && x.graph->status == SW_OK;
}

/* What a builder returns when its operand is not usable; records an error if nothing was wrong before. */
static sw_t refuse(sw__op op, sw_t x)
{
    sw_t invalid;
    sw__operands(op, &x, 1, &invalid);
    return invalid;
}

/* A target shape of rank and dims, without negative entries. */
static bool target(sw__op op, sw_t x, int rank, const int64_t *shape, sw__node *to)
{
    if (rank < 0 || rank > SW_MAX_RANK || (rank > 0 && shape == NULL)) {
        sw__op_error(x.graph, op, SW_ERR_ARGUMENT, "rank %d: it must be 0 to %d, and above 0 needs a shape", rank,
                     SW_MAX_RANK);
        return false;
    }
    *to = (sw__node){ .dtype = sw__node_of(x)->dtype, .rank = (uint8_t)rank };
    for (int i = 0; i < rank; i++) to->dim[i] = shape[i];
    return true;
}

/* Replaces one -1 in the shape by what is left over. */
static bool fill_in(sw_t x, sw__node *to)
{
    int hole = -1;
    int64_t known = 1;
    char from[SW__TEXT_BYTES], want[SW__TEXT_BYTES];
    sw__value_text(x.graph, x.id, from);
    sw__dims_text(to->rank, to->dim, want, sizeof want);
    for (int i = 0; i < to->rank; i++) {
        const bool overflow = to->dim[i] > 0 && known > INT64_MAX / to->dim[i];
        if (to->dim[i] < -1 || overflow || (to->dim[i] == -1 && hole >= 0)) {
            sw__op_error(x.graph, SW_OP_RESHAPE, SW_ERR_SHAPE, "%s to %s: sizes must not be negative, but for one -1 "
                         "that is worked out, nor overflow", from, want);
            return false;
        }
        if (to->dim[i] == -1)
            hole = i;
        else
            known *= to->dim[i];
    }
    if (hole < 0) return true;
    const int64_t elements = sw_elements(x);
    if (known == 0 || elements % known != 0) {
        sw__op_error(x.graph, SW_OP_RESHAPE, SW_ERR_SHAPE, "%s to %s: %lld elements cannot be shared out so that the "
                     "-1 has one whole value: give it", from, want, (long long)elements);
        return false;
    }
    to->dim[hole] = elements / known;
    return true;
}

sw_t sw_reshape(sw_t x, int rank, const int64_t *shape)
{
    sw__node to;
    if (!usable(x)) return refuse(SW_OP_RESHAPE, x);
    if (!target(SW_OP_RESHAPE, x, rank, shape, &to) || !fill_in(x, &to)) return (sw_t){ x.graph, 0 };
    if (sw__same_shape(sw__node_of(x), &to)) return x;
    return sw__node_add(x.graph, SW_OP_RESHAPE, &x, 1, NULL, &to);
}

sw_t sw_flatten(sw_t x)
{
    if (!usable(x)) return refuse(SW_OP_RESHAPE, x);
    char text[SW__TEXT_BYTES];
    if (sw_rank(x) == 0)
        return sw__op_error(x.graph, SW_OP_RESHAPE, SW_ERR_SHAPE, "sw_flatten needs an axis to keep, %s is a scalar",
                            sw__value_text(x.graph, x.id, text));
    const sw__node *const n = sw__node_of(x);
    return sw_reshape(x, 2, (int64_t[]){ n->dim[0], sw__dims_product(n->dim + 1, n->rank - 1) });
}

sw_t sw_permute(sw_t x, const int *axes)
{
    if (!usable(x)) return refuse(SW_OP_PERMUTE, x);
    const int rank = sw_rank(x);
    if (rank > 0 && axes == NULL) return sw__op_error(x.graph, SW_OP_PERMUTE, SW_ERR_ARGUMENT, "the axes are NULL");
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    bool same = true;
    for (int i = 0; i < rank; i++) {
        const int axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 0 || axis >= rank) {
            char text[SW__TEXT_BYTES];
            return sw__op_error(x.graph, SW_OP_PERMUTE, SW_ERR_SHAPE, "%s has no axis %d: it must be %d to %d",
                                sw__value_text(x.graph, x.id, text), axes[i], -rank, rank - 1);
        }
        attr.perm.axes[i] = (uint8_t)axis;
        same = same && axis == i;
    }
    return same ? x : sw__with_attr(SW_OP_PERMUTE, x, &attr);
}

sw_t sw_transpose(sw_t x, int axis_a, int axis_b)
{
    if (!usable(x)) return refuse(SW_OP_PERMUTE, x);
    const int a = sw__axis_of(SW_OP_PERMUTE, x, axis_a), b = sw__axis_of(SW_OP_PERMUTE, x, axis_b);
    if (a < 0 || b < 0) return (sw_t){ x.graph, 0 };
    int axes[SW_MAX_RANK];
    for (int i = 0; i < SW_MAX_RANK; i++) axes[i] = i == a ? b : i == b ? a : i;
    return sw_permute(x, axes);
}

sw_t sw_expand(sw_t x, int rank, const int64_t *shape)
{
    sw__node to;
    if (!usable(x)) return refuse(SW_OP_EXPAND, x);
    if (!target(SW_OP_EXPAND, x, rank, shape, &to)) return (sw_t){ x.graph, 0 };
    const sw__node *const from = sw__node_of(x);
    bool fits = rank >= from->rank;
    for (int i = 1; fits && i <= from->rank; i++) {
        const int64_t have = from->dim[from->rank - i], want = to.dim[rank - i];
        fits = have == want || have == 1;
    }
    if (fits) return sw__expand_to(x, rank, to.dim);
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    return sw__op_error(x.graph, SW_OP_EXPAND, SW_ERR_SHAPE, "%s cannot be expanded to %s: only axes of size 1 can "
                        "grow, and new axes come in front", sw__value_text(x.graph, x.id, a),
                        sw__dims_text(rank, to.dim, b, sizeof b));
}

sw_t sw_pad(sw_t x, const int64_t *lo, const int64_t *hi, const int64_t *interior, double value)
{
    if (!usable(x)) return refuse(SW_OP_PAD, x);
    const int rank = sw_rank(x);
    if (rank > 0 && (lo == NULL || hi == NULL))
        return sw__op_error(x.graph, SW_OP_PAD, SW_ERR_ARGUMENT, "lo or hi is NULL: one entry an axis wanted");
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.pad.value = value;
    bool same = true;
    for (int i = 0; i < rank; i++) {
        attr.pad.lo[i] = lo[i];
        attr.pad.hi[i] = hi[i];
        attr.pad.interior[i] = interior != NULL ? interior[i] : 0;
        same = same && lo[i] == 0 && hi[i] == 0 && attr.pad.interior[i] == 0;
    }
    return same ? x : sw__with_attr(SW_OP_PAD, x, &attr);
}

sw_t sw_slice(sw_t x, const int64_t *start, const int64_t *stop, const int64_t *step)
{
    if (!usable(x)) return refuse(SW_OP_SLICE, x);
    const int rank = sw_rank(x);
    if (rank > 0 && (start == NULL || stop == NULL))
        return sw__op_error(x.graph, SW_OP_SLICE, SW_ERR_ARGUMENT, "start or stop is NULL: one entry an axis wanted");
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    bool same = true;
    for (int i = 0; i < rank; i++) {
        attr.slice.start[i] = start[i];
        attr.slice.stop[i] = stop[i];
        attr.slice.step[i] = step != NULL ? step[i] : 1;
        same = same && start[i] == 0 && stop[i] == sw_dim(x, i) && attr.slice.step[i] == 1;
    }
    return same ? x : sw__with_attr(SW_OP_SLICE, x, &attr);
}

sw_t sw_narrow(sw_t x, int axis, int64_t start, int64_t length)
{
    if (!usable(x)) return refuse(SW_OP_SLICE, x);
    const int at = sw__axis_of(SW_OP_SLICE, x, axis);
    if (at < 0) return (sw_t){ x.graph, 0 };
    int64_t from[SW_MAX_RANK] = { 0 }, to[SW_MAX_RANK];
    for (int i = 0; i < SW_MAX_RANK; i++) to[i] = i < sw_rank(x) ? sw_dim(x, i) : 0;
    from[at] = start;
    if (__builtin_add_overflow(start, length, &to[at])) to[at] = INT64_MAX; /* refused by the shape rule */
    return sw_slice(x, from, to, NULL);
}

sw_t sw_concat(const sw_t *xs, int n, int axis)
{
    if (xs == NULL || n < 1) return SW_NONE; /* no graph to record it in: the next builder does */
    sw_t invalid;
    if (!sw__operands(SW_OP_CONCAT, xs, (uint32_t)n, &invalid)) return invalid;
    const int at = sw__axis_of(SW_OP_CONCAT, xs[0], axis);
    if (at < 0) return (sw_t){ xs[0].graph, 0 };
    if (n == 1) return xs[0];
    const sw__attr attr = { .axis = { at, false, 0 } };
    return sw__node_add(xs[0].graph, SW_OP_CONCAT, xs, (uint32_t)n, &attr, NULL);
}

sw_t sw_copy(sw_t x)
{
    return sw__unary(SW_OP_COPY, x);
}
