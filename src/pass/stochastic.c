/* stochastic.c: an f32 rounded to 16 bits up or down, by chance, so that the mean is the value: a weight that an update moves
 * by less than half of bf16's last place would else never be seen to move (Gupta et al. 2015). Called by precision.c. */
#include "graph/build.h"
#include "pass/pass.h"

static sw_t nearest(sw_t x, sw_dtype half)
{
    return sw_cast(sw_cast(x, half), SW_F32);
}

/* With x rounded to r, the other neighbour is what r becomes when it is made larger or smaller by a bit more than half of its
 * last place: 1.2 times, so that it is never a tie. It is taken with a chance of |x - r| in their distance. */
sw_t sw__round_by_chance(sw_t x, sw_dtype half, sw_t counter, uint32_t stream)
{
    int64_t shape[SW_MAX_RANK];
    const double little = 1.2 * (half == SW_BF16 ? 0x1p-8 : 0x1p-11);
    for (int i = 0; i < sw_rank(x); i++) shape[i] = sw_dim(x, i);
    const sw_t r = nearest(x, half), off = sw_sub(x, r);
    const sw_t larger = nearest(sw_mul_scalar(r, 1 + little), half), smaller = nearest(sw_mul_scalar(r, 1 - little), half);
    const sw_t inward = sw_lt(sw_mul(off, r), sw__const_like(x, 0));
    const sw_t other = sw_where(inward, smaller, larger);
    const sw_t chance = sw_rand(x.graph, counter, stream, sw_rank(x), shape);
    const sw_t take = sw_lt(sw_mul(chance, sw_abs(sw_sub(other, r))), sw_abs(off));
    return sw_cast(sw_where(take, other, r), half);
}
