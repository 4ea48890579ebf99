/* lower_recurrent.c: lstm, gru, rnn and their gradients in terms of primitives, unrolled over time: some thirty nodes a
 * step. As lower.c: the oracle of tests, and what second derivatives go through; every device takes the ops whole. */
#include "graph/grad.h"
#include "graph/recurrent.h"

/* A sequence of so many steps is still unrolled, but the log says what that costs. */
#define LONG_SEQUENCE 512

/* Everything that a step needs, and the steps' results until they are put together. */
typedef struct unroll {
    sw_graph *g;
    sw__recurrent r;
    const sw_t *in;
    sw_t weight_t;       /* forward: W_hh^T */
    sw_t h, c;           /* forward: the state; backward: what arrives at it */
    sw_t *parts[3];      /* for each result with a time axis: its steps, [B, 1, …] */
} unroll;

static sw_t rows_of(sw_t x, int64_t n) /* as a matrix of n columns */
{
    return sw_reshape(x, 2, (int64_t[]){ sw_elements(x) / n, n });
}

/* Step t of [B, T, N] as [B, N]. */
static sw_t at_step(sw_t x, int64_t t)
{
    return rows_of(sw_narrow(x, 1, t, 1), sw_dim(x, 2));
}

/* Block k of width n of a matrix's columns. */
static sw_t block(sw_t x, int k, int64_t n)
{
    return sw_narrow(x, 1, k * n, n);
}

static sw_t tied(const sw_t *xs, int n)
{
    return sw_concat(xs, n, 1);
}

/* [B, 1] of bool: does the sample have a step t; or is t its last one? Only with lengths. */
static sw_t has_step(const unroll *u, int64_t t)
{
    const sw_t len = sw_reshape(u->in[u->r.lengths], 2, (int64_t[]){ u->r.batch, 1 });
    return sw_lt(sw_const(u->g, sw_type(len), (double)t), len);
}

static sw_t ends_at(const unroll *u, int64_t t)
{
    const sw_t len = sw_reshape(u->in[u->r.lengths], 2, (int64_t[]){ u->r.batch, 1 });
    return sw_eq(sw_const(u->g, sw_type(len), (double)t + 1), len);
}

static sw_t zero(sw_t like)
{
    return sw__scalar_like(like, 0.0);
}

/* The value of a step that the sample has; where it has none, `other`. */
static sw_t if_there(const unroll *u, int64_t t, sw_t x, sw_t other)
{
    return u->r.lengths < 0 ? x : sw_where(has_step(u, t), x, other);
}

static void put(const unroll *u, int which, int64_t t, sw_t x)
{
    const sw_t kept = if_there(u, t, x, zero(x));
    u->parts[which][t] = sw_reshape(kept, 3, (int64_t[]){ u->r.batch, 1, sw_dim(kept, 1) });
}

static bool start(unroll *u, sw_graph *g, const sw__node *n, const sw_t *in)
{
    memset(u, 0, sizeof *u);
    u->g = g;
    u->r = sw__recurrent_of(n->op, &n->attr, n->dim);
    u->in = in;
    if (u->r.steps > LONG_SEQUENCE)
        sw__log(SW_LOG_WARN, "%s: %lld steps are unrolled into a graph of some %lld nodes", sw__op_table[n->op].name,
                (long long)u->r.steps, 30 * (long long)u->r.steps);
    for (int i = 0; i < 3; i++) {
        u->parts[i] = sw__arena_alloc(&g->arena, ((size_t)u->r.steps + 1) * sizeof *u->parts[i]);
        if (u->parts[i] == NULL) {
            sw__graph_error(g, SW_ERR_MEMORY, "out of memory: %lld steps", (long long)u->r.steps);
            return false;
        }
    }
    return true;
}

/* The steps of a result put together; with none, a tensor without elements. */
static sw_t whole(const unroll *u, int which, int64_t width, sw_dtype type)
{
    const int64_t dim[3] = { u->r.batch, u->r.steps, width };
    if (u->r.steps == 0 || width == 0) return sw_full(u->g, type, 3, dim, 0.0);
    return sw_concat(u->parts[which], (int)u->r.steps, 1);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static sw_t activation(const unroll *u, sw_t x)
{
    return u->r.relu ? sw_relu(x) : sw_tanh(x);
}

/* a: the input's part of the gates, b: the state's. Each gives the new h, and c and what is saved where there is. */
static sw_t lstm_step(const unroll *u, sw_t a, sw_t b, sw_t *c, sw_t *saved)
{
    const int64_t H = u->r.hidden;
    const sw_t z = sw_add(a, b);
    const sw_t i = sw_sigmoid(block(z, 0, H)), f = sw_sigmoid(block(z, 1, H)), g = sw_tanh(block(z, 2, H));
    const sw_t o = sw_sigmoid(block(z, 3, H));
    *c = sw_add(sw_mul(f, u->c), sw_mul(i, g));
    *saved = tied((sw_t[]){ i, f, g, o, *c }, 5);
    const sw_t h = sw_mul(o, sw_tanh(*c));
    return u->r.proj < 0 ? h : sw_dot(h, sw_transpose(u->in[u->r.proj], 0, 1));
}

static sw_t gru_step(const unroll *u, sw_t a, sw_t b, sw_t *saved)
{
    const int64_t H = u->r.hidden;
    const sw_t r = sw_sigmoid(sw_add(block(a, 0, H), block(b, 0, H)));
    const sw_t z = sw_sigmoid(sw_add(block(a, 1, H), block(b, 1, H))), hn = block(b, 2, H);
    const sw_t n = sw_tanh(sw_add(block(a, 2, H), sw_mul(r, hn)));
    *saved = tied((sw_t[]){ r, z, n, hn }, 4);
    return sw_add(sw_mul(sw_add_scalar(sw_neg(z), 1.0), n), sw_mul(z, u->h));
}

static void forward_step(unroll *u, int64_t t)
{
    const sw__recurrent *const r = &u->r;
    const sw_t a = at_step(u->in[r->gates], t), b = sw_add(sw_dot(u->h, u->weight_t), u->in[r->bias]);
    sw_t h, c = SW_NONE, saved = SW_NONE;
    if (r->cell == SW_CELL_LSTM) h = lstm_step(u, a, b, &c, &saved);
    else if (r->cell == SW_CELL_GRU) h = gru_step(u, a, b, &saved);
    else h = activation(u, sw_add(a, b));
    put(u, 0, t, h);
    if (r->n_saved > 0) put(u, 1, t, saved);
    u->h = if_there(u, t, h, u->h);
    if (r->cell == SW_CELL_LSTM) u->c = if_there(u, t, c, u->c);
}

void sw__lower_recurrent(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    unroll u;
    const sw__node node = *n; /* the array moves */
    if (!start(&u, g, &node, in)) return;
    u.weight_t = sw_transpose(in[u.r.weight], 0, 1);
    u.h = in[u.r.h0];
    if (u.r.c0 >= 0) u.c = in[u.r.c0];
    for (int64_t s = 0; s < u.r.steps && g->status == SW_OK; s++) forward_step(&u, sw__recurrent_step(&u.r, s));
    if (g->status != SW_OK) return;
    out[0] = whole(&u, 0, u.r.state, (sw_dtype)node.dtype);
    out[u.r.out_h] = u.h;
    if (u.r.out_c >= 0) out[u.r.out_c] = u.c;
    if (u.r.out_saved >= 0) out[u.r.out_saved] = whole(&u, 1, u.r.n_saved * u.r.hidden, (sw_dtype)node.dtype);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* What the state was before step t: column block k of `from`'s step before, or the initial one. */
static sw_t before(const unroll *u, int64_t t, sw_t from, int k, sw_t initial)
{
    const int64_t last = u->r.reverse ? t + 1 : t - 1, n = sw_dim(initial, 1);
    if (last < 0 || last >= u->r.steps) return initial;
    const sw_t x = block(at_step(from, last), k, n);
    if (u->r.lengths < 0 || !u->r.reverse) return x;
    return sw_where(ends_at(u, t), initial, x);
}

/* 1 - x^2 and x (1 - x): derivatives of tanh and sigmoid by their results. */
static sw_t tanh_slope(sw_t y)
{
    return sw_add_scalar(sw_neg(sw_square(y)), 1.0);
}

static sw_t sigmoid_slope(sw_t y)
{
    return sw_mul(y, sw_add_scalar(sw_neg(y), 1.0));
}

/* dh: what arrives at the step's h. Sets u->h and u->c to what arrives at the states before; dgates is the result. */
static sw_t lstm_back(unroll *u, int64_t t, sw_t dh, sw_t *dc_before)
{
    const sw__recurrent *const r = &u->r;
    const int64_t H = r->hidden;
    const sw_t s = at_step(u->in[r->saved], t);
    const sw_t i = block(s, 0, H), f = block(s, 1, H), g = block(s, 2, H), o = block(s, 3, H);
    const sw_t tc = sw_tanh(block(s, 4, H)), c_before = before(u, t, u->in[r->saved], 4, u->in[r->c0]);
    if (r->proj >= 0) dh = sw_dot(dh, u->in[r->proj]);
    const sw_t dc = sw_add(u->c, sw_mul(dh, sw_mul(o, tanh_slope(tc))));
    *dc_before = sw_mul(dc, f);
    return tied((sw_t[]){ sw_mul(sw_mul(dc, g), sigmoid_slope(i)), sw_mul(sw_mul(dc, c_before), sigmoid_slope(f)),
                          sw_mul(sw_mul(dc, i), tanh_slope(g)), sw_mul(sw_mul(dh, tc), sigmoid_slope(o)) }, 4);
}

static sw_t gru_back(unroll *u, int64_t t, sw_t dh, sw_t *dstate, sw_t *direct)
{
    const sw__recurrent *const p = &u->r;
    const int64_t H = p->hidden;
    const sw_t s = at_step(u->in[p->saved], t), h_before = before(u, t, u->in[p->y], 0, u->in[p->h0]);
    const sw_t r = block(s, 0, H), z = block(s, 1, H), n = block(s, 2, H), hn = block(s, 3, H);
    const sw_t dn = sw_mul(sw_mul(dh, sw_add_scalar(sw_neg(z), 1.0)), tanh_slope(n));
    const sw_t dr = sw_mul(sw_mul(dn, hn), sigmoid_slope(r));
    const sw_t dz = sw_mul(sw_mul(dh, sw_sub(h_before, n)), sigmoid_slope(z));
    *direct = sw_mul(dh, z);
    *dstate = tied((sw_t[]){ dr, dz, sw_mul(dn, r) }, 3);
    return tied((sw_t[]){ dr, dz, dn }, 3);
}

static sw_t rnn_back(const unroll *u, int64_t t, sw_t dh)
{
    const sw_t y = at_step(u->in[u->r.y], t);
    return u->r.relu ? sw__keep_if(sw_lt(zero(y), y), dh) : sw_mul(dh, tanh_slope(y));
}

static void backward_step(unroll *u, int64_t t)
{
    const sw__recurrent *const r = &u->r;
    const sw_t dh = sw_add(u->h, at_step(u->in[r->dy], t));
    sw_t dgates, dstate, direct = SW_NONE, dc = SW_NONE;
    if (r->cell == SW_CELL_GRU) {
        dgates = gru_back(u, t, dh, &dstate, &direct);
    } else {
        dgates = dstate = r->cell == SW_CELL_LSTM ? lstm_back(u, t, dh, &dc) : rnn_back(u, t, dh);
    }
    put(u, 0, t, dgates);
    if (r->cell == SW_CELL_GRU) put(u, 1, t, dstate);
    else if (r->proj >= 0) put(u, 1, t, dh);
    sw_t dh_before = sw_dot(dstate, u->in[r->weight]);
    if (r->cell == SW_CELL_GRU) dh_before = sw_add(dh_before, direct);
    u->h = if_there(u, t, dh_before, u->h);
    if (r->cell == SW_CELL_LSTM) u->c = if_there(u, t, dc, u->c);
}

void sw__lower_recurrent_grad(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out)
{
    unroll u;
    const sw__node node = *n;
    if (!start(&u, g, &node, in)) return;
    const sw__recurrent *const r = &u.r;
    u.h = in[r->dh];
    if (r->dc >= 0) u.c = in[r->dc];
    for (int64_t s = r->steps; s-- > 0 && g->status == SW_OK;) backward_step(&u, sw__recurrent_step(r, s));
    if (g->status != SW_OK) return;
    const sw_dtype type = (sw_dtype)node.dtype;
    out[0] = whole(&u, 0, r->rows, type);
    out[r->out_dh0] = u.h;
    if (r->out_dc0 >= 0) out[r->out_dc0] = u.c;
    if (r->out_dproj >= 0) out[r->out_dproj] = whole(&u, 1, r->proj >= 0 ? r->state : 0, type);
    if (r->out_dstate >= 0) out[r->out_dstate] = whole(&u, 1, r->rows, type);
}
