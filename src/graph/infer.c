/* infer.c: shape rules of the primitives: what type and shape each op gives, and what it refuses.
 * Called by sw__node_add, which puts the op, its id and the scope in front of a message. */
#include "graph/infer.h"

/* ---- checks --------------------------------------------------------------------------------------------------- */

static bool is_int(sw_dtype t)
{
    return t == SW_I32 || t == SW_I64 || t == SW_U8 || t == SW_U32;
}

sw_status sw__want_type(const sw_graph *g, const sw__node *n, uint32_t i, sw__want want)
{
    static const char *const wanted[] = {
        [SW_WANT_FLOAT] = "a floating-point type (sw_cast(x, SW_F32))",
        [SW_WANT_INT] = "an integer type",
        [SW_WANT_INDEX] = "indices of i32 or i64 (sw_cast(x, SW_I64))",
        [SW_WANT_NUMBER] = "a number (sw_cast the bool first)",
        [SW_WANT_BITS] = "bool or an integer type",
        [SW_WANT_BOOL] = "bool (a comparison such as sw_ne(x, 0) gives one)",
    };
    const sw_dtype t = (sw_dtype)sw__in(g, n, i)->dtype;
    const bool fits[] = {
        [SW_WANT_FLOAT] = sw__dtype_is_float(t),
        [SW_WANT_INT] = is_int(t),
        [SW_WANT_INDEX] = t == SW_I32 || t == SW_I64,
        [SW_WANT_NUMBER] = t != SW_BOOL,
        [SW_WANT_BITS] = is_int(t) || t == SW_BOOL,
        [SW_WANT_BOOL] = t == SW_BOOL,
    };
    if (fits[want]) return SW_OK;
    char x[SW__TEXT_BYTES];
    return sw__fail(SW_ERR_SHAPE, "operand %u, %s, must have %s", i + 1, sw__value_text(g, n->in[i], x), wanted[want]);
}

sw_status sw__want_same_type(const sw_graph *g, const sw__node *n)
{
    for (uint32_t i = 1; i < n->n_in; i++) {
        if (sw__in(g, n, i)->dtype == sw__in(g, n, 0)->dtype) continue;
        char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
        return sw__fail(SW_ERR_SHAPE, "types differ: %s and %s: sw_cast one of them", sw__value_text(g, n->in[0], a),
                        sw__value_text(g, n->in[i], b));
    }
    return SW_OK;
}

sw_status sw__want_same_shape(const sw_graph *g, const sw__node *n, uint32_t i, uint32_t j)
{
    if (sw__same_shape(sw__in(g, n, i), sw__in(g, n, j))) return SW_OK;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    return sw__fail(SW_ERR_SHAPE, "shapes differ: %s and %s: they must be equal", sw__value_text(g, n->in[i], a),
                    sw__value_text(g, n->in[j], b));
}

sw_status sw__want_rank(const sw_graph *g, const sw__node *n, uint32_t i, int lo, int hi)
{
    const int rank = sw__in(g, n, i)->rank;
    if (rank >= lo && rank <= hi) return SW_OK;
    char x[SW__TEXT_BYTES];
    if (lo == hi)
        return sw__fail(SW_ERR_SHAPE, "operand %u, %s, has rank %d where %d is wanted", i + 1,
                        sw__value_text(g, n->in[i], x), rank, lo);
    return sw__fail(SW_ERR_SHAPE, "operand %u, %s, has rank %d where %d to %d is wanted", i + 1,
                    sw__value_text(g, n->in[i], x), rank, lo, hi);
}

sw_status sw__want_axis(const sw_graph *g, const sw__node *n, uint32_t i)
{
    const int axis = n->attr.axis.axis;
    if (axis >= 0 && axis < sw__in(g, n, i)->rank) return SW_OK;
    char x[SW__TEXT_BYTES];
    return sw__fail(SW_ERR_SHAPE, "%s has no axis %d: it has %d axes", sw__value_text(g, n->in[i], x), axis,
                    sw__in(g, n, i)->rank);
}

sw_status sw__want_dims(const sw_graph *g, const sw__node *n, uint32_t i, int rank, const int64_t *dim, const char *why)
{
    const sw__node *const x = sw__in(g, n, i);
    bool same = x->rank == rank;
    for (int k = 0; same && k < rank; k++) same = x->dim[k] == dim[k];
    if (same) return SW_OK;
    char text[SW__TEXT_BYTES], want[SW__TEXT_BYTES];
    return sw__fail(SW_ERR_SHAPE, "operand %u, %s, must have shape %s: %s", i + 1, sw__value_text(g, n->in[i], text),
                    sw__dims_text(rank, dim, want, sizeof want), why);
}

/* ---- sources -------------------------------------------------------------------------------------------------- */

/* Type and shape were given; sources still have their own conditions. */
sw_status sw__infer_given(const sw_graph *g, sw__node *n)
{
    const sw_dtype type = (sw_dtype)n->dtype;
    char shape[SW__TEXT_BYTES];
    if (sw_dtype_size(type) == 0) return sw__fail(SW_ERR_ARGUMENT, "%d is no data type", (int)type);
    if (n->rank > SW_MAX_RANK)
        return sw__fail(SW_ERR_SHAPE, "%d axes: a tensor has at most %d", n->rank, SW_MAX_RANK);
    if (n->op == SW_OP_IOTA && (n->attr.axis.axis < 0 || n->attr.axis.axis >= n->rank || type == SW_BOOL))
        return sw__fail(SW_ERR_SHAPE, "cannot count along axis %d of %s", n->attr.axis.axis,
                        sw__shape_text(n, shape, sizeof shape));
    if (n->op == SW_OP_RANDOM && type != SW_U32)
        return sw__fail(SW_ERR_SHAPE, "random bits are u32, not %s", sw_dtype_name(type));
    if (n->op == SW_OP_RANDOM && n->n_in == 1) {
        const sw__node *const counter = sw__in(g, n, 0);
        if (counter->rank != 0 || counter->dtype != SW_I64)
            return sw__fail(SW_ERR_SHAPE, "the counter must be a scalar i64, not %s",
                            sw__value_text(g, n->in[0], shape));
    }
    return SW_OK;
}

/* ---- pointwise ------------------------------------------------------------------------------------------------ */

/* Same type and shape as the input: neg, copy, stop_gradient, all_reduce, and along an axis scan and sort. */
sw_status sw__infer_unary(const sw_graph *g, sw__node *n)
{
    if (n->op == SW_OP_NEG || n->op == SW_OP_SCAN_SUM || n->op == SW_OP_ALL_REDUCE)
        SW_TRY(sw__want_type(g, n, 0, SW_WANT_NUMBER));
    if (sw__op_table[n->op].attr == SW_ATTR_AXIS) SW_TRY(sw__want_axis(g, n, 0));
    sw__take(n, sw__in(g, n, 0));
    return SW_OK;
}

sw_status sw__infer_float(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    return sw__infer_unary(g, n);
}

sw_status sw__infer_cast(const sw_graph *g, sw__node *n)
{
    const uint8_t type = n->dtype;
    if (sw_dtype_size((sw_dtype)type) == 0) return sw__fail(SW_ERR_ARGUMENT, "%d is no data type", (int)type);
    sw__take(n, sw__in(g, n, 0));
    n->dtype = type;
    return SW_OK;
}

static sw_status pair(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_same_type(g, n));
    SW_TRY(sw__want_same_shape(g, n, 0, 1));
    sw__take(n, sw__in(g, n, 0));
    return SW_OK;
}

sw_status sw__infer_binary(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, n->op == SW_OP_POW ? SW_WANT_FLOAT : SW_WANT_NUMBER));
    return pair(g, n);
}

sw_status sw__infer_compare(const sw_graph *g, sw__node *n)
{
    SW_TRY(pair(g, n));
    n->dtype = SW_BOOL;
    return SW_OK;
}

sw_status sw__infer_bitwise(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_BITS));
    return pair(g, n);
}

sw_status sw__infer_shift(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_INT));
    return pair(g, n);
}

sw_status sw__infer_where(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_BOOL));
    if (sw__in(g, n, 1)->dtype != sw__in(g, n, 2)->dtype) {
        char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
        return sw__fail(SW_ERR_SHAPE, "types differ: %s and %s: sw_cast one of them", sw__value_text(g, n->in[1], a),
                        sw__value_text(g, n->in[2], b));
    }
    SW_TRY(sw__want_same_shape(g, n, 0, 1));
    SW_TRY(sw__want_same_shape(g, n, 1, 2));
    sw__take(n, sw__in(g, n, 1));
    return SW_OK;
}

/* ---- movement ------------------------------------------------------------------------------------------------- */

sw_status sw__infer_reshape(const sw_graph *g, sw__node *n)
{
    const sw__node *const x = sw__in(g, n, 0);
    n->dtype = x->dtype;
    if (sw__node_elements(n) == sw__node_elements(x)) return SW_OK;
    char from[SW__TEXT_BYTES], to[SW__TEXT_BYTES];
    return sw__fail(SW_ERR_SHAPE, "%s has %lld elements, %s has %lld: they must be equal",
                    sw__value_text(g, n->in[0], from), (long long)sw__node_elements(x),
                    sw__dims_text(n->rank, n->dim, to, sizeof to),
                    (long long)sw__node_elements(n));
}

sw_status sw__infer_permute(const sw_graph *g, sw__node *n)
{
    const sw__node *const x = sw__in(g, n, 0);
    uint32_t seen = 0;
    n->dtype = x->dtype;
    n->rank = x->rank;
    for (int i = 0; i < x->rank; i++) {
        const int axis = n->attr.perm.axes[i];
        if (axis >= x->rank || (seen >> axis & 1u) != 0) {
            char text[SW__TEXT_BYTES];
            return sw__fail(SW_ERR_SHAPE, "axes of %s: entry %d names axis %d %s: each axis must be named once",
                            sw__value_text(g, n->in[0], text), i, axis,
                            axis >= x->rank ? "that is not there" : "again");
        }
        seen |= 1u << axis;
        n->dim[i] = x->dim[axis];
    }
    return SW_OK;
}

sw_status sw__infer_expand(const sw_graph *g, sw__node *n)
{
    const sw__node *const x = sw__in(g, n, 0);
    n->dtype = x->dtype;
    bool fits = n->rank == x->rank;
    for (int i = 0; fits && i < n->rank; i++) fits = x->dim[i] == n->dim[i] || x->dim[i] == 1;
    if (fits) return SW_OK;
    char from[SW__TEXT_BYTES], to[SW__TEXT_BYTES];
    return sw__fail(SW_ERR_SHAPE, "%s cannot be expanded to %s: only axes of size 1 can grow",
                    sw__value_text(g, n->in[0], from), sw__dims_text(n->rank, n->dim, to, sizeof to));
}

static bool add_to(int64_t *sum, int64_t more)
{
    return !__builtin_add_overflow(*sum, more, sum);
}

sw_status sw__infer_pad(const sw_graph *g, sw__node *n)
{
    const sw__node *const x = sw__in(g, n, 0);
    sw__take(n, x);
    for (int i = 0; i < x->rank; i++) {
        const int64_t lo = n->attr.pad.lo[i], hi = n->attr.pad.hi[i], interior = n->attr.pad.interior[i];
        const bool negative = lo < 0 || hi < 0 || interior < 0;
        int64_t between = 0;
        const bool fits = !negative && !(x->dim[i] > 1 && __builtin_mul_overflow(x->dim[i] - 1, interior, &between)) &&
                          add_to(&n->dim[i], between) && add_to(&n->dim[i], lo) && add_to(&n->dim[i], hi);
        if (fits) continue;
        char text[SW__TEXT_BYTES];
        return sw__fail(SW_ERR_SHAPE, "padding of axis %d of %s by lo %lld, hi %lld, interior %lld: %s", i,
                        sw__value_text(g, n->in[0], text), (long long)lo, (long long)hi, (long long)interior,
                        negative ? "none may be negative (cut with sw_slice)" : "more elements than 64 bits can count");
    }
    return SW_OK;
}

sw_status sw__infer_slice(const sw_graph *g, sw__node *n)
{
    const sw__node *const x = sw__in(g, n, 0);
    sw__take(n, x);
    for (int i = 0; i < x->rank; i++) {
        const int64_t start = n->attr.slice.start[i], stop = n->attr.slice.stop[i], step = n->attr.slice.step[i];
        if (start < 0 || stop < start || stop > x->dim[i] || step < 1) {
            char text[SW__TEXT_BYTES];
            return sw__fail(SW_ERR_SHAPE, "axis %d of %s cannot be cut to %lld:%lld with step %lld: it must be "
                            "0 <= start <= stop <= %lld, step >= 1", i, sw__value_text(g, n->in[0], text),
                            (long long)start, (long long)stop, (long long)step, (long long)x->dim[i]);
        }
        n->dim[i] = stop == start ? 0 : (stop - start - 1) / step + 1;
    }
    return SW_OK;
}

sw_status sw__infer_concat(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_same_type(g, n));
    SW_TRY(sw__want_axis(g, n, 0));
    const int axis = n->attr.axis.axis;
    const sw__node *const first = sw__in(g, n, 0);
    sw__take(n, first);
    for (uint32_t i = 1; i < n->n_in; i++) {
        const sw__node *const x = sw__in(g, n, i);
        bool fits = x->rank == first->rank;
        for (int k = 0; fits && k < x->rank; k++) fits = k == axis || x->dim[k] == first->dim[k];
        char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
        if (!fits)
            return sw__fail(SW_ERR_SHAPE, "%s and %s can only differ in axis %d", sw__value_text(g, n->in[0], a),
                            sw__value_text(g, n->in[i], b), axis);
        if (!add_to(&n->dim[axis], x->dim[axis]))
            return sw__fail(SW_ERR_SHAPE, "axis %d gets more elements than 64 bits can count", axis);
    }
    return SW_OK;
}

sw_status sw__infer_pack(const sw_graph *g, sw__node *n)
{
    if (n->attr.slot.index >= g->n_groups)
        return sw__fail(SW_ERR_ARGUMENT, "there is no group %u", n->attr.slot.index);
    const sw__group *const group = &g->groups[n->attr.slot.index];
    if (n->n_in != group->n)
        return sw__fail(SW_ERR_ARGUMENT, "%u values for the %u variables of the group", n->n_in, group->n);
    SW_TRY(sw__want_same_type(g, n));
    for (uint32_t i = 0; i < n->n_in; i++) {
        const sw__var *const v = &g->vars[group->vars[i]];
        SW_TRY(sw__want_dims(g, n, i, v->rank, v->dim, v->name));
    }
    n->dtype = sw__in(g, n, 0)->dtype; /* may differ from the variables': gradients of another precision */
    n->rank = 1;
    n->dim[0] = group->elements;
    return SW_OK;
}

/* ---- reduce and order ----------------------------------------------------------------------------------------- */

sw_status sw__infer_reduce(const sw_graph *g, sw__node *n)
{
    const sw__node *const x = sw__in(g, n, 0);
    if (n->op == SW_OP_REDUCE_SUM || n->op == SW_OP_REDUCE_PROD) SW_TRY(sw__want_type(g, n, 0, SW_WANT_NUMBER));
    if (n->attr.axes.axes >> x->rank != 0) {
        char text[SW__TEXT_BYTES];
        return sw__fail(SW_ERR_SHAPE, "axes 0x%x name an axis that %s does not have: SW_AXIS(i) is for i below %d",
                        n->attr.axes.axes, sw__value_text(g, n->in[0], text), x->rank);
    }
    sw__take(n, x);
    for (int i = 0; i < x->rank; i++)
        if ((n->attr.axes.axes >> i & 1u) != 0) n->dim[i] = 1;
    return SW_OK;
}

sw_status sw__infer_argreduce(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_axis(g, n, 0));
    const sw__node *const x = sw__in(g, n, 0);
    const int axis = n->attr.axis.axis;
    sw__take(n, x);
    n->dtype = SW_I64;
    n->dim[axis] = 1;
    if (x->dim[axis] > 0 || sw__node_elements(n) == 0) return SW_OK;
    char text[SW__TEXT_BYTES];
    return sw__fail(SW_ERR_SHAPE, "axis %d of %s is empty: there is no index to give", axis,
                    sw__value_text(g, n->in[0], text));
}

sw_status sw__infer_argsort(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__infer_unary(g, n));
    n->dtype = SW_I64;
    return SW_OK;
}

/* ---- index and contract --------------------------------------------------------------------------------------- */

/* The index has the tensor's shape but for the axis. */
static sw_status index_fits(const sw_graph *g, const sw__node *n)
{
    SW_TRY(sw__want_axis(g, n, 0));
    SW_TRY(sw__want_type(g, n, 1, SW_WANT_INDEX));
    const sw__node *const x = sw__in(g, n, 0), *const index = sw__in(g, n, 1);
    bool fits = x->rank == index->rank;
    for (int i = 0; fits && i < x->rank; i++) fits = i == n->attr.axis.axis || x->dim[i] == index->dim[i];
    if (fits) return SW_OK;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    return sw__fail(SW_ERR_SHAPE, "index %s can differ from %s only in axis %d", sw__value_text(g, n->in[1], b),
                    sw__value_text(g, n->in[0], a), n->attr.axis.axis);
}

sw_status sw__infer_gather(const sw_graph *g, sw__node *n)
{
    SW_TRY(index_fits(g, n));
    sw__take(n, sw__in(g, n, 1));
    n->dtype = sw__in(g, n, 0)->dtype;
    return SW_OK;
}

sw_status sw__infer_scatter(const sw_graph *g, sw__node *n)
{
    SW_TRY(index_fits(g, n));
    SW_TRY(sw__want_same_shape(g, n, 1, 2));
    if (n->op == SW_OP_SCATTER_ADD) SW_TRY(sw__want_type(g, n, 0, SW_WANT_NUMBER));
    if (sw__in(g, n, 0)->dtype != sw__in(g, n, 2)->dtype) {
        char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
        return sw__fail(SW_ERR_SHAPE, "types differ: %s and %s: sw_cast one of them", sw__value_text(g, n->in[0], a),
                        sw__value_text(g, n->in[2], b));
    }
    sw__take(n, sw__in(g, n, 0));
    return SW_OK;
}

/* [B…, M, K] x [B…, K, N] -> [B…, M, N] for dot and matmul. */
sw_status sw__infer_dot(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    SW_TRY(sw__want_same_type(g, n));
    SW_TRY(sw__want_rank(g, n, 0, 2, SW_MAX_RANK));
    SW_TRY(sw__want_rank(g, n, 1, 2, SW_MAX_RANK));
    const sw__node *const a = sw__in(g, n, 0), *const b = sw__in(g, n, 1);
    const int rank = a->rank;
    bool batch = rank == b->rank;
    for (int i = 0; batch && i < rank - 2; i++) batch = a->dim[i] == b->dim[i];
    const int64_t k = a->dim[rank - 1], k_b = b->dim[b->rank - 2];
    char left[SW__TEXT_BYTES], right[SW__TEXT_BYTES];
    sw__value_text(g, n->in[0], left);
    sw__value_text(g, n->in[1], right);
    if (k != k_b)
        return sw__fail(SW_ERR_SHAPE, "inner sizes differ: %s x %s (%lld against %lld): the last axis of the left side "
                        "must equal the last but one of the right", left, right, (long long)k, (long long)k_b);
    if (!batch) return sw__fail(SW_ERR_SHAPE, "batch axes differ: %s x %s", left, right);
    sw__take(n, a);
    n->dim[rank - 1] = b->dim[rank - 1];
    return SW_OK;
}

/* ---- control -------------------------------------------------------------------------------------------------- */

/* The group that a VAR or VARPACK node belongs to, -1 if none. */
static int64_t group_of(const sw_graph *g, const sw__node *n)
{
    return n->op == SW_OP_VARPACK ? (int64_t)n->attr.slot.index : g->vars[n->attr.slot.index].group;
}

sw_status sw__infer_assign(const sw_graph *g, sw__node *n)
{
    const sw__node *const to = sw__in(g, n, 0);
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    sw__value_text(g, n->in[0], a);
    if (to->op != SW_OP_VAR && to->op != SW_OP_VARPACK)
        return sw__fail(SW_ERR_ARGUMENT, "%s is no variable: only variables can be assigned to", a);
    if (to->dtype != sw__in(g, n, 1)->dtype || !sw__same_shape(to, sw__in(g, n, 1)))
        return sw__fail(SW_ERR_SHAPE, "%s cannot take %s: type and shape must be equal", a,
                        sw__value_text(g, n->in[1], b));
    for (uint32_t i = 0; i < g->n_assigns; i++) {
        const sw__node *const other = &g->nodes[g->nodes[g->assigns[i]].in[0]];
        const bool same = other->op == to->op && other->attr.slot.index == to->attr.slot.index;
        const bool overlap = other->op != to->op && group_of(g, other) >= 0 && group_of(g, other) == group_of(g, to);
        if (same || overlap)
            return sw__fail(SW_ERR_ARGUMENT, "%s is already assigned by %%%u%s: one assign a variable and run", a,
                            g->assigns[i], overlap ? ", through its group" : "");
    }
    sw__take(n, to);
    return SW_OK;
}
