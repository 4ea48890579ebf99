/* lower_ctc.c: CTC loss in terms of primitives, unrolled over time, and its derivative by differentiating that.
 * As lower.c. Graves, Fernández, Gomez & Schmidhuber: Connectionist Temporal Classification, ICML 2006, section 4.1. */
#include "graph/grad.h"

#include <math.h>

/* Sizes: N samples, T steps, S labels, L = 2 S + 1 places: a blank before, between and behind the labels. */
typedef struct ctc {
    sw_graph *g;
    sw_dtype type;
    int64_t n, t, c, s, l;
    sw_t log_probs, place, label, skip; /* place: iota [1, L]; label, skip (may a step come from two before?): [N, L] */
} ctc;

static sw_t minus_infinity(const ctc *x)
{
    return sw_const(x->g, x->type, -(double)INFINITY);
}

static sw_t as_column(const ctc *x, sw_t v)
{
    return sw_cast(sw_reshape(v, 2, (int64_t[]){ x->n, 1 }), SW_I64);
}

/* log of e^a + e^b + …; -inf where all are, and no gradient through that. */
static sw_t log_sum(const ctc *x, const sw_t *a, int n, sw_t top)
{
    const sw_t dead = sw_eq(top, minus_infinity(x)), base = sw_where(dead, sw_const(x->g, x->type, 0), top);
    sw_t sum = sw_exp(sw_sub(a[0], base));
    for (int i = 1; i < n; i++) sum = sw_add(sum, sw_exp(sw_sub(a[i], base)));
    if (n == 1) sum = sw_sum(sum, SW_AXIS(1), true); /* of a row */
    const sw_t value = sw_add(sw_log(sw_where(dead, sw_const(x->g, x->type, 1), sum)), base);
    return sw_where(dead, minus_infinity(x), value);
}

/* Columns moved `by` to the right; `fill` comes in from the left. */
static sw_t shifted(const ctc *x, sw_t v, int64_t by, sw_t fill)
{
    const int64_t dim[2] = { x->n, SW_MIN(by, x->l) };
    const sw_t edge = sw_expand(sw_reshape(fill, 2, (int64_t[]){ 1, 1 }), 2, dim);
    return by >= x->l ? edge : sw_concat((sw_t[]){ edge, sw_narrow(v, 1, 0, x->l - by) }, 2, 1);
}

/* Labels with blanks between; what stands beyond a target's end becomes blank and is not looked at. */
static void describe(ctc *x, sw_t targets, sw_t target_lengths, int blank)
{
    const sw_t b = sw_const(x->g, SW_I64, blank);
    const int64_t grid[2] = { x->n, x->s }, pairs[3] = { x->n, x->s, 1 }, one[2] = { x->n, 1 };
    x->place = sw_iota(x->g, SW_I64, 2, (int64_t[]){ 1, x->l }, 1);
    const sw_t last = sw_expand(sw_reshape(b, 2, (int64_t[]){ 1, 1 }), 2, one);
    x->label = last;
    if (x->s > 0) {
        const sw_t inside = sw_lt(sw_iota(x->g, SW_I64, 2, grid, 1), as_column(x, target_lengths));
        const sw_t t = sw_reshape(sw_where(inside, sw_cast(targets, SW_I64), b), 3, pairs);
        const sw_t blanks = sw_expand(sw_reshape(b, 3, (int64_t[]){ 1, 1, 1 }), 3, pairs);
        const sw_t both = sw_reshape(sw_concat((sw_t[]){ blanks, t }, 2, 2), 2, (int64_t[]){ x->n, 2 * x->s });
        x->label = sw_concat((sw_t[]){ both, last }, 2, 1);
    }
    const sw_t differs = sw_ne(x->label, shifted(x, x->label, 2, b));
    x->skip = sw_and(differs, sw_and(sw_ne(x->label, b), sw_ge(x->place, sw_const(x->g, SW_I64, 2))));
}

/* log of the probability of the first t + 1 steps that end at each place. */
static sw_t step(const ctc *x, sw_t alpha, int64_t t)
{
    const sw_t now = sw_reshape(sw_narrow(x->log_probs, 1, t, 1), 2, (int64_t[]){ x->n, x->c });
    const sw_t seen = sw_gather(now, x->label, 1);
    if (t == 0) return sw_where(sw_lt(x->place, sw_const(x->g, SW_I64, 2)), seen, minus_infinity(x));
    const sw_t none = minus_infinity(x);
    const sw_t a[3] = { alpha, shifted(x, alpha, 1, none), sw_where(x->skip, shifted(x, alpha, 2, none), none) };
    const sw_t top = sw_stop_gradient(sw_max(sw_max(a[0], a[1]), a[2]));
    return sw_add(log_sum(x, a, 3, top), seen);
}

static sw_t loss_of(ctc *x, const sw_t *in)
{
    const sw_t none = minus_infinity(x), two = sw_const(x->g, SW_I64, 2), one = sw_const(x->g, SW_I64, 1);
    const int64_t grid[2] = { x->n, x->l };
    const sw_t steps = as_column(x, in[2]), end = sw_mul(as_column(x, in[3]), two); /* of the places */
    const sw_t begin = sw_where(sw_eq(x->place, sw_const(x->g, SW_I64, 0)), sw_const(x->g, x->type, 0), none);
    sw_t last = sw_expand(begin, 2, grid), alpha = last;
    for (int64_t t = 0; t < x->t && x->g->status == SW_OK; t++) {
        alpha = step(x, alpha, t);
        last = sw_where(sw_eq(steps, sw_const(x->g, SW_I64, (double)t + 1)), alpha, last);
    }
    const sw_t ends = sw_or(sw_eq(x->place, end), sw_eq(x->place, sw_sub(end, one)));
    const sw_t kept = sw_where(ends, last, none);
    const sw_t total = log_sum(x, &kept, 1, sw_stop_gradient(sw_reduce_max(kept, SW_AXIS(1), true)));
    return sw_neg(sw_reshape(total, 1, &x->n));
}

void sw__lower_ctc_loss(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    ctc x = { .g = g, .type = (sw_dtype)n->dtype, .n = sw_dim(in[0], 0), .t = sw_dim(in[0], 1), .c = sw_dim(in[0], 2),
              .s = sw_dim(in[1], 1), .l = 2 * sw_dim(in[1], 1) + 1, .log_probs = in[0] };
    const int blank = n->attr.axis.axis;
    const uint32_t first = g->n_nodes;
    describe(&x, in[1], in[3], blank);
    out[0] = loss_of(&x, in);
    if (g->status != SW_OK) return;
    const sw_t seed = sw__const_like(out[0], 1.0);
    out[1] = SW_NONE;
    sw__grad_since(g, first, &out[0], &seed, 1, &in[0], 1, &out[1]);
    if (!sw_valid(out[1])) out[1] = sw__const_like(in[0], 0.0);
}
