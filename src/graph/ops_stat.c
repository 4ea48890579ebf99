/* ops_stat.c: builders of statistics as graphs of reductions: norms, logsumexp, variance, cumulative product and
 * maximum. Definitions and gradients are PyTorch's. Between swoop/graph.h and the builders of primitives. */
#include "graph/compose.h"
#include <math.h>

/* ---- over axes --------------------------------------------------------------------------------------------------- */

static sw_t shaped(sw_t kept, sw_t x, uint32_t axes, bool keep)
{
    if (keep || !sw_valid(kept)) return kept;
    int64_t dim[SW_MAX_RANK];
    const int all = sw__dims_of(x, dim);
    int rank = 0;
    for (int i = 0; i < all; i++)
        if ((axes >> i & 1u) == 0) dim[rank++] = dim[i];
    return sw_reshape(kept, rank, dim);
}

/* x^p for x >= 0, with gradient 0 where x is 0. */
static sw_t safe_pow(sw_t x, double p)
{
    const sw_t zero = sw__const_like(x, 0), none = sw_eq(x, zero), one = sw__const_like(x, 1);
    return sw_where(none, zero, sw_pow(sw_where(none, one, x), sw__const_like(x, p)));
}

/* (sum |x|^p)^(1/p); the largest or smallest |x|; how many are not 0 (torch.linalg.vector_norm). */
sw_t sw_norm(sw_t x, double p, uint32_t axes, bool keep)
{
    sw_t invalid;
    if (!sw__compose_operand("norm", x, &invalid)) return invalid;
    if (!sw__compose_axes("norm", x, &axes) || !sw__compose_float("norm", x)) return (sw_t){ x.graph, 0 };
    if (isnan(p)) return sw__compose_error(x.graph, "norm", SW_ERR_ARGUMENT, "p is NaN for %%%u", x.id);
    sw_t y;
    if (isinf(p))
        y = p > 0 ? sw_reduce_max(sw_abs(x), axes, true) : sw_reduce_min(sw_abs(x), axes, true);
    else if (p == 0)
        y = sw_sum(sw_cast(sw_ne(x, sw__const_like(x, 0)), sw_type(x)), axes, true);
    else if (p == 1)
        y = sw_sum(sw_abs(x), axes, true);
    else if (p == 2)
        y = sw__safe_sqrt(sw_sum(sw_square(x), axes, true));
    else if (p > 0)
        y = safe_pow(sw_sum(safe_pow(sw_abs(x), p), axes, true), 1 / p);
    else /* one 0 makes it 0: the plain power has it as 1/infinity */
        y = sw_pow(sw_sum(sw_pow(sw_abs(x), sw__const_like(x, p)), axes, true), sw_const(x.graph, sw_type(x), 1 / p));
    return shaped(y, x, axes, keep);
}

/* m + log sum e^(x - m), m the largest; where that is infinite, nothing is taken off. */
sw_t sw_logsumexp(sw_t x, uint32_t axes, bool keep)
{
    sw_t invalid;
    if (!sw__compose_operand("logsumexp", x, &invalid)) return invalid;
    if (!sw__compose_axes("logsumexp", x, &axes) || !sw__compose_float("logsumexp", x)) return (sw_t){ x.graph, 0 };
    const sw_t largest = sw_reduce_max(sw_stop_gradient(x), axes, true), zero = sw__const_like(largest, 0);
    const sw_t finite = sw_lt(sw_abs(largest), sw__const_like(largest, INFINITY));
    const sw_t m = sw_where(finite, largest, zero);
    /* where all are -inf the sum is 0: its logarithm is -inf, and no gradient flows */
    const sw_t sum = sw_sum(sw_exp(sw_sub(x, m)), axes, true), none = sw_eq(sum, zero);
    const sw_t log_sum = sw_log(sw_where(none, sw__const_like(sum, 1), sum));
    return shaped(sw_where(none, sw__const_like(sum, -INFINITY), sw_add(log_sum, m)), x, axes, keep);
}

static sw_t variance(const char *what, sw_t x, uint32_t axes, double correction, bool keep, bool root)
{
    sw_t invalid;
    if (!sw__compose_operand(what, x, &invalid)) return invalid;
    if (!sw__compose_axes(what, x, &axes) || !sw__compose_float(what, x)) return (sw_t){ x.graph, 0 };
    double n = 1;
    for (int i = 0; i < sw_rank(x); i++)
        if ((axes >> i & 1u) != 0) n *= (double)sw_dim(x, i);
    const sw_t sum = sw_sum(sw_square(sw_sub(x, sw_mean(x, axes, true))), axes, true);
    /* 0/0 where nothing is left */
    const sw_t var = sw_div(sum, sw_const(x.graph, sw_type(x), fmax(n - correction, 0)));
    return shaped(root ? sw__safe_sqrt(var) : var, x, axes, keep);
}

sw_t sw_var(sw_t x, uint32_t axes, double correction, bool keep)
{
    return variance("var", x, axes, correction, keep, false);
}

sw_t sw_std(sw_t x, uint32_t axes, double correction, bool keep)
{
    return variance("std", x, axes, correction, keep, true);
}

/* ---- along an axis ----------------------------------------------------------------------------------------------- */

/* x moved by d to greater places along axis 1 of 3, `value` where nothing came from. */
static sw_t shifted(sw_t x, int64_t d, double value)
{
    const int64_t lo[3] = { 0, d, 0 }, none[3] = { 0, 0, 0 };
    return sw_pad(sw_narrow(x, 1, 0, sw_dim(x, 1) - d), lo, none, NULL, value);
}

/* In log2 n rounds each element takes what is 1, 2, 4 … before it (Hillis & Steele 1986): no division, so gradients are
 * exact where elements are 0. */
sw_t sw_cumprod(sw_t x, int axis)
{
    sw_t invalid;
    if (!sw__compose_operand("cumprod", x, &invalid)) return invalid;
    const int at = sw__compose_axis("cumprod", x, axis);
    if (at < 0) return (sw_t){ x.graph, 0 };
    const int64_t n = sw_dim(x, at);
    sw_t y = sw__around_axis(x, at);
    for (int64_t d = 1; d < n && sw_valid(y); d *= 2) y = sw_mul(y, shifted(y, d, 1));
    return sw__from_axis(y, x, at, n);
}

/* The greatest so far, the last among equals, NaN above all; where it is is found first, then the value is taken there,
 * so that the gradient goes to that place alone. */
static void cumulative(const char *what, sw_t x, int axis, bool least, sw_t *values, sw_t *indices)
{
    sw_t invalid;
    if (values != NULL) *values = (sw_t){ x.graph, 0 };
    if (indices != NULL) *indices = (sw_t){ x.graph, 0 };
    if (!sw__compose_operand(what, x, &invalid)) return;
    const int at = sw__compose_axis(what, x, axis);
    if (at < 0 || !sw__compose_float(what, x)) return;
    const int64_t n = sw_dim(x, at);
    sw_t best = sw_stop_gradient(sw__around_axis(least ? sw_neg(x) : x, at));
    int64_t dim[SW_MAX_RANK];
    const int rank = sw__dims_of(best, dim);
    sw_t index = sw_iota(x.graph, SW_I64, rank, dim, 1);
    for (int64_t d = 1; d < n && sw_valid(best); d *= 2) {
        const sw_t before = shifted(best, d, -INFINITY), place = sw_iota(x.graph, SW_I64, rank, dim, 1);
        const sw_t there = sw_ge(place, sw_const(x.graph, SW_I64, (double)d)), nan = sw_ne(best, best);
        const sw_t take = sw_and(there, sw_and(sw_not(nan), sw_or(sw_gt(before, best), sw_ne(before, before))));
        index = sw_where(take, shifted(index, d, 0), index);
        best = sw_where(take, before, best);
    }
    index = sw__from_axis(index, x, at, n);
    if (values != NULL) *values = sw_gather(x, index, at);
    if (indices != NULL) *indices = index;
}

void sw_cummax(sw_t x, int axis, sw_t *values, sw_t *indices)
{
    cumulative("cummax", x, axis, false, values, indices);
}

void sw_cummin(sw_t x, int axis, sw_t *values, sw_t *indices)
{
    cumulative("cummin", x, axis, true, values, indices);
}
