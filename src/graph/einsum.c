/* einsum.c: sums of products by index letters, lowered to permutations, matrix products and sums. An operand is a term:
 * a value and one label for each of its axes. Diagonals are taken first, then the cheapest pair of terms is contracted
 * until one is left. Between swoop/graph.h and the builders of primitives. */
#include "graph/compose.h"
#include <ctype.h>
#include <stdio.h>

enum { MAX_TERMS = 4, LABELS = 128 };

/* A label is its letter, or for an axis that '…' stands for 1 + its place from the end. */
typedef struct term {
    sw_t x;
    int n;
    unsigned char label[SW_MAX_RANK];
} term;

typedef struct einsum {
    sw_graph *g;
    const char *equation;
    term at[MAX_TERMS], out;
    int n;
    int64_t size[LABELS]; /* of each label */
    int count[LABELS];    /* axes that have it */
} einsum;

static bool fail(const einsum *e, const char *fmt, ...) SW_PRINTF(2, 3);
static bool fail(const einsum *e, const char *fmt, ...)
{
    char text[3 * SW__TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sw__compose_error(e->g, "einsum", SW_ERR_SHAPE, "'%.200s': %s", e->equation, text);
    return false;
}

/* ---- the equation ------------------------------------------------------------------------------------------------ */

/* Reads the letters of one term up to ',', '-' or the end. dots: how many axes '…' stands for, -1: it may not occur. */
static bool read_term(const einsum *e, const char **p, int dots, term *t)
{
    bool seen = false;
    for (; **p != '\0' && **p != ',' && **p != '-'; (*p)++) {
        if (**p == ' ') continue;
        const bool ellipsis = strncmp(*p, "...", 3) == 0 && !seen;
        if (!ellipsis && !isalpha((unsigned char)**p))
            return fail(e, "'%c' is no index: letters, one '...' in a term, ',' and '->' are", **p);
        const int more = ellipsis ? SW_MAX(dots, 0) : 1;
        if (t->n + more > SW_MAX_RANK) return fail(e, "a term has more than %d axes", SW_MAX_RANK);
        for (int i = more; i > 0; i--) t->label[t->n++] = ellipsis ? (unsigned char)i : (unsigned char)**p;
        seen = seen || ellipsis;
        if (ellipsis) *p += 2;
    }
    return true;
}

/* The letters of a term that stand for themselves. */
static int letters(const char *p, bool *dots)
{
    int n = 0;
    for (*dots = false; *p != '\0' && *p != ',' && *p != '-'; p++) {
        n += isalpha((unsigned char)*p) ? 1 : 0;
        *dots = *dots || *p == '.';
    }
    return n;
}

static bool read_operand(einsum *e, const char **p, int i)
{
    term *const t = &e->at[i];
    const int rank = sw_rank(t->x);
    bool dots;
    const int named = letters(*p, &dots);
    char text[SW__TEXT_BYTES];
    sw__value_text(e->g, t->x.id, text);
    if (!read_term(e, p, dots ? rank - named : -1, t)) return false;
    if (dots ? named > rank : named != rank)
        return fail(e, "term %d names %d axes%s, operand %s has %d", i + 1, named, dots ? " beside '...'" : "", text,
                    rank);
    for (int k = 0; k < t->n; k++) {
        const unsigned char l = t->label[k];
        const int64_t d = sw_dim(t->x, k);
        if (e->count[l]++ == 0 || e->size[l] == 1) e->size[l] = d;
        if (e->size[l] == d || d == 1) continue;
        return fail(e, "index '%.*s' is %lld in a term before, and %lld in operand %s: sizes must be equal or 1",
                    isalpha(l) ? 1 : 3,
                    isalpha(l) ? (const char[]){ (char)l, 0 } : "...", (long long)e->size[l], (long long)d, text);
    }
    return true;
}

/* Without '->': what '…' stands for, then the letters that occur once, in alphabetical order. */
static void implicit_output(einsum *e)
{
    for (int l = SW_MAX_RANK; l > 0; l--)
        if (e->count[l] > 0) e->out.label[e->out.n++] = (unsigned char)l;
    for (int l = 'A'; l <= 'z' && e->out.n < SW_MAX_RANK; l++)
        if (e->count[l] == 1) e->out.label[e->out.n++] = (unsigned char)l;
}

static bool read_output(einsum *e, const char *p)
{
    int dots = 0;
    for (int l = 1; l <= SW_MAX_RANK; l++)
        if (e->count[l] > 0) dots = l;
    if (!read_term(e, &p, dots, &e->out)) return false;
    if (*p != '\0') return fail(e, "'%c' after the output", *p);
    for (int i = 0; i < e->out.n; i++) {
        const unsigned char l = e->out.label[i];
        if (e->count[l] == 0) return fail(e, "the output names '%c', which no operand has", l);
        if (memchr(e->out.label, l, (size_t)i) != NULL) return fail(e, "the output names '%c' twice", l);
    }
    return true;
}

static bool read_equation(einsum *e)
{
    const char *p = e->equation;
    for (int i = 0; i < e->n; i++) {
        if (!read_operand(e, &p, i)) return false;
        const bool last = i + 1 == e->n;
        if (!last && *p != ',') return fail(e, "it has %d terms for %d operands", i + 1, e->n);
        if (last && *p == ',') return fail(e, "it has more terms than the %d operands", e->n);
        p += !last;
    }
    if (*p == '\0') {
        implicit_output(e);
        return true;
    }
    if (strncmp(p, "->", 2) != 0) return fail(e, "'-' without '>'");
    return read_output(e, p + 2);
}

/* ---- one term ---------------------------------------------------------------------------------------------------- */

static bool has(const term *t, unsigned char label)
{
    return memchr(t->label, label, (size_t)t->n) != NULL;
}

/* Axes i < k with one label become one: moved to the end, flattened, every (n+1)-th element taken. */
static void take_diagonal(term *t, int i, int k)
{
    int64_t dim[SW_MAX_RANK];
    int axes[SW_MAX_RANK], n = 0;
    for (int a = 0; a < t->n; a++)
        if (a != i && a != k) axes[n++] = a;
    const unsigned char label = t->label[i];
    for (int a = 0; a < n; a++) t->label[a] = t->label[axes[a]];
    t->label[n] = label;
    axes[n] = i;
    axes[n + 1] = k;
    t->n = n + 1;
    t->x = sw_permute(t->x, axes);
    sw__dims_of(t->x, dim);
    const int64_t size = sw_valid(t->x) ? dim[n] : 0, outer = sw__dims_product(dim, n);
    const int64_t start[2] = { 0, 0 }, stop[2] = { outer, size * size }, step[2] = { 1, size + 1 };
    t->x = sw_slice(sw_reshape(t->x, 2, (int64_t[]){ outer, size * size }), start, stop, step);
    t->x = sw_reshape(t->x, n + 1, dim);
}

/* Axes of size 1 whose label is larger elsewhere go: the term is the same all along. Twice the same label: the
 * diagonal. */
static void tidy(const einsum *e, term *t)
{
    int64_t dim[SW_MAX_RANK];
    sw__dims_of(t->x, dim);
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        if (dim[i] == 1 && e->size[t->label[i]] != 1) continue;
        dim[n] = dim[i];
        t->label[n++] = t->label[i];
    }
    t->n = n;
    t->x = sw_reshape(t->x, n, dim);
    for (int i = 0; i < t->n; i++)
        for (int k = i + 1; k < t->n; k++)
            if (t->label[i] == t->label[k]) {
                take_diagonal(t, i, k);
                i = -1; /* from the beginning: the axes have moved */
                break;
            }
}

/* Sums over the labels that nobody else has. keep: which stay. */
static void sum_out(term *t, const bool *keep)
{
    uint32_t axes = 0;
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        if (keep[t->label[i]])
            t->label[n++] = t->label[i];
        else
            axes |= SW_AXIS(i);
    }
    t->n = n;
    if (axes != 0) t->x = sw_sum(t->x, axes, false);
}

/* The term with its axes in this order; labels that it has not get size 1. */
static sw_t arranged(const term *t, const unsigned char *order, int n)
{
    int axes[SW_MAX_RANK] = { 0 }, k = 0;
    int64_t dim[SW_MAX_RANK];
    for (int i = 0; i < n; i++) {
        const unsigned char *const at = memchr(t->label, order[i], (size_t)t->n);
        if (at != NULL) axes[k++] = (int)(at - t->label);
    }
    const sw_t x = sw_permute(t->x, axes);
    for (int i = 0, j = 0; i < n; i++) dim[i] = has(t, order[i]) ? sw_dim(x, j++) : 1;
    return sw_reshape(x, n, dim);
}

/* ---- two terms --------------------------------------------------------------------------------------------------- */

/* The labels that a pair has: batch (both, kept), sum (both, not kept), left, right; each with its product of sizes. */
typedef struct parts {
    unsigned char batch[SW_MAX_RANK], sum[SW_MAX_RANK], left[SW_MAX_RANK], right[SW_MAX_RANK];
    int n_batch, n_sum, n_left, n_right;
    int64_t batches, sums, lefts, rights;
} parts;

static parts sort_labels(const einsum *e, const term *a, const term *b, const bool *keep)
{
    parts p = { .batches = 1, .sums = 1, .lefts = 1, .rights = 1 };
    for (int i = 0; i < a->n; i++) {
        const unsigned char l = a->label[i];
        if (!has(b, l)) {
            p.left[p.n_left++] = l;
            p.lefts *= e->size[l];
        } else if (keep[l]) {
            p.batch[p.n_batch++] = l;
            p.batches *= e->size[l];
        } else {
            p.sum[p.n_sum++] = l;
            p.sums *= e->size[l];
        }
    }
    for (int i = 0; i < b->n; i++)
        if (!has(a, b->label[i])) {
            p.right[p.n_right++] = b->label[i];
            p.rights *= e->size[b->label[i]];
        }
    return p;
}

/* Which labels are wanted when terms i and k are contracted: the output's and the other terms'. */
static void wanted(const einsum *e, int i, int k, bool *keep)
{
    memset(keep, 0, LABELS * sizeof *keep);
    for (int a = 0; a < e->out.n; a++) keep[e->out.label[a]] = true;
    for (int t = 0; t < e->n; t++)
        for (int a = 0; t != i && t != k && a < e->at[t].n; a++) keep[e->at[t].label[a]] = true;
}

static int put(unsigned char *to, int n, const unsigned char *from, int more)
{
    for (int i = 0; i < more && n < SW_MAX_RANK; i++) to[n++] = from[i];
    return n;
}

/* a as [batch, left, sum] times b as [batch, sum, right]. */
static sw_t matrix_product(const term *a, const term *b, const parts *p)
{
    unsigned char order[SW_MAX_RANK];
    int n = put(order, put(order, put(order, 0, p->batch, p->n_batch), p->left, p->n_left), p->sum, p->n_sum);
    const sw_t x = sw_reshape(arranged(a, order, n), 3, (int64_t[]){ p->batches, p->lefts, p->sums });
    n = put(order, put(order, put(order, 0, p->batch, p->n_batch), p->sum, p->n_sum), p->right, p->n_right);
    const sw_t y = sw_reshape(arranged(b, order, n), 3, (int64_t[]){ p->batches, p->sums, p->rights });
    if (p->batches != 1) return sw_matmul(x, y);
    return sw_matmul(sw_reshape(x, 2, (int64_t[]){ p->lefts, p->sums }),
                     sw_reshape(y, 2, (int64_t[]){ p->sums, p->rights }));
}

/* Without a common sum, or of integers: elements multiplied, then summed. */
static sw_t plain_product(const term *a, const term *b, const unsigned char *order, int n, const parts *p)
{
    unsigned char all[SW_MAX_RANK];
    const int rank = put(all, put(all, 0, order, n), p->sum, p->n_sum);
    const sw_t y = sw_mul(arranged(a, all, rank), arranged(b, all, rank));
    uint32_t axes = 0;
    for (int i = n; i < rank; i++) axes |= SW_AXIS(i);
    return axes != 0 ? sw_sum(y, axes, false) : y;
}

static bool contract(einsum *e, int i, int k)
{
    bool keep[LABELS];
    term *const a = &e->at[i], *const b = &e->at[k];
    wanted(e, i, k, keep);
    bool in_a[LABELS], in_b[LABELS];
    for (int l = 0; l < LABELS; l++) {
        in_a[l] = keep[l] || has(b, (unsigned char)l);
        in_b[l] = keep[l] || has(a, (unsigned char)l);
    }
    sum_out(a, in_a);
    sum_out(b, in_b);
    const parts p = sort_labels(e, a, b, keep);
    term y = { .n = p.n_batch + p.n_left + p.n_right };
    if (y.n + p.n_sum > SW_MAX_RANK) return fail(e, "a step needs more than %d axes", SW_MAX_RANK);
    put(y.label, put(y.label, put(y.label, 0, p.batch, p.n_batch), p.left, p.n_left), p.right, p.n_right);
    int64_t dim[SW_MAX_RANK];
    for (int l = 0; l < y.n; l++) dim[l] = e->size[y.label[l]];
    if (p.n_sum == 0 || !sw__dtype_is_float(sw_type(a->x)))
        y.x = plain_product(a, b, y.label, y.n, &p);
    else
        y.x = sw_reshape(matrix_product(a, b, &p), y.n, dim);
    e->at[i] = y;
    e->at[k] = e->at[--e->n];
    return sw_valid(y.x);
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

/* Multiplications of contracting i and k, and the labels of the result, for the search. */
static double pair_cost(const einsum *e, int i, int k, term *y)
{
    bool keep[LABELS];
    double cost = 1;
    wanted(e, i, k, keep);
    y->n = 0;
    for (int l = 1; l < LABELS; l++) {
        const unsigned char label = (unsigned char)l;
        if (!has(&e->at[i], label) && !has(&e->at[k], label)) continue;
        cost *= (double)SW_MAX(e->size[l], 1);
        if (keep[l] && y->n < SW_MAX_RANK) y->label[y->n++] = label;
    }
    return cost;
}

/* The cheapest way to contract all terms: all orders are tried, of four operands there are 18. */
static double best_pair(const einsum *e, int *first, int *second)
{
    double best = -1;
    for (int i = 0; i < e->n; i++)
        for (int k = i + 1; k < e->n; k++) {
            einsum rest = *e;
            term y = { .n = 0 };
            int a, b;
            double cost = pair_cost(e, i, k, &y);
            rest.at[i] = y;
            rest.at[k] = rest.at[--rest.n];
            if (rest.n > 1) cost += best_pair(&rest, &a, &b);
            if (best >= 0 && cost >= best) continue;
            best = cost;
            *first = i;
            *second = k;
        }
    return best;
}

sw_t sw_einsum(const char *equation, const sw_t *xs, int n)
{
    sw_t invalid;
    if (xs == NULL || n < 1) return SW_NONE; /* no graph to record it in: the next builder does */
    if (!sw__compose_operands("einsum", xs, (uint32_t)SW_MIN(n, MAX_TERMS), &invalid)) return invalid;
    einsum e = { .g = xs[0].graph, .equation = equation != NULL ? equation : "", .n = n };
    invalid = (sw_t){ e.g, 0 };
    if (n > MAX_TERMS || equation == NULL)
        return sw__compose_error(e.g, "einsum", SW_ERR_ARGUMENT, "an equation and 1 to %d operands, not %d", MAX_TERMS,
                                 n);
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    for (int i = 0; i < n; i++) {
        e.at[i].x = xs[i];
        if (sw_type(xs[i]) == sw_type(xs[0])) continue;
        return sw__compose_error(e.g, "einsum", SW_ERR_SHAPE, "types differ: %s and %s: sw_cast one of them",
                                 sw__value_text(e.g, xs[0].id, a), sw__value_text(e.g, xs[i].id, b));
    }
    if (!read_equation(&e)) return invalid;
    for (int i = 0; i < n; i++) tidy(&e, &e.at[i]);
    while (e.n > 1) {
        int i = 0, k = 1;
        best_pair(&e, &i, &k);
        if (!contract(&e, i, k)) return invalid;
    }
    bool keep[LABELS];
    wanted(&e, 0, 0, keep);
    sum_out(&e.at[0], keep);
    return arranged(&e.at[0], e.out.label, e.out.n);
}
