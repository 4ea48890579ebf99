/* recurrent_run.h: all steps of some samples of lstm, gru or rnn on the cpu, for REAL: included by op_recurrent.c (f32),
 * op_recurrent_f64.c and op_recurrent_bf16.c, which define FORWARD, BACKWARD and product(x, matrix, a, a_pitch, bias,
 * add, c, c_pitch): c = bias or c, plus a times the matrix. Step s of a sample is its step s from where its direction
 * begins, so that all samples begin together and none waits: one that has ended keeps its state.
 *
 * With STORED (and WIDEN, NARROW) tensors are of that type and shorter: a row is made REAL before it is computed with
 * and rounded as it is stored; states stay REAL in the thread's room until the last step. */

#ifdef STORED
#define IS_STORED 1
#else
#define IS_STORED 0
#define STORED REAL
#define WIDEN(to, from, n) ((void)(to), (void)(from), (void)(n))
#define NARROW(to, from, n) ((void)(to), (void)(from), (void)(n))
#endif

typedef struct run {
    const sw__cpu_plan *p;
    const sw__recurrent_plan *s;
    void *const *ptr;
    int64_t b0, n;     /* samples */
    REAL *hh;          /* [n, pitch]: the state's part of the gates, or their gradient */
    REAL *wide, *narrow; /* [n, H], [n, R]: before and behind the projection */
    REAL *h, *c;       /* [n, R], [n, H]: the state and the cell, or what arrives at them */
    REAL *row[5];      /* four rows of what is stored shorter; behind them what `product` makes of its rows */
    const REAL *bias;  /* NULL: none */
} run;

static const STORED *in_(const run *x, int i)
{
    return i < 0 ? NULL : x->ptr[i];
}

static STORED *out_(const run *x, int i)
{
    return i < 0 ? NULL : x->ptr[x->p->d.n_in + i];
}

/* n elements of operand i from `at` on, NULL without it; in row[slot] if they are stored shorter. */
static const REAL *taken(const run *x, int i, int64_t at, int64_t n, int slot)
{
    if (i < 0) return NULL;
    if (!IS_STORED) return (const REAL *)(const void *)(in_(x, i) + at);
    WIDEN(x->row[slot], in_(x, i) + at, n);
    return x->row[slot];
}

/* Where n elements of result i are to be written, NULL without it; give() then. */
static REAL *place(const run *x, int i, int64_t at, int slot)
{
    if (i < 0) return NULL;
    return IS_STORED ? x->row[slot] : (REAL *)(void *)(out_(x, i) + at);
}

static void give(const run *x, int i, int64_t at, int64_t n, int slot)
{
    if (IS_STORED && i >= 0) NARROW(out_(x, i) + at, x->row[slot], n);
}

/* Values that were computed elsewhere, into result i. */
static void store(const run *x, int i, int64_t at, const REAL *from, int64_t n)
{
    if (IS_STORED) NARROW(out_(x, i) + at, from, n);
    else memcpy(out_(x, i) + at, from, (size_t)n * sizeof(REAL));
}

/* `v` moved by n elements, or NULL. */
static REAL *moved(REAL *v, int64_t n)
{
    return v == NULL ? NULL : v + n;
}

static int64_t time_of(const sw__recurrent *r, int64_t steps, int64_t s)
{
    return r->reverse ? steps - 1 - s : s;
}

/* Beyond a sample's end there are zeros. */
static void clear_rest(const run *x, int64_t b, int64_t steps, int out, int64_t width)
{
    const sw__recurrent *const r = &x->s->r;
    if (out < 0 || steps == r->steps) return;
    memset(out_(x, out) + (b * r->steps + steps) * width, 0, (size_t)((r->steps - steps) * width) * sizeof(STORED));
}

static void start_state(const run *x, REAL *state, int from, int64_t width)
{
    const int64_t n = x->n * width;
    if (from < 0) return;
    if (IS_STORED) WIDEN(state, in_(x, from) + x->b0 * width, n);
    else memcpy(state, in_(x, from) + x->b0 * width, (size_t)n * sizeof(REAL));
}

/* Where states live: in the results, unless those are shorter. */
static void finish_state(const run *x, const REAL *state, int to, int64_t width)
{
    if (IS_STORED && to >= 0) NARROW(out_(x, to) + x->b0 * width, state, x->n * width);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void forward_sample(const run *x, int64_t b, int64_t t, bool projects)
{
    const sw__recurrent *const r = &x->s->r;
    const int64_t at = b * r->steps + t, i = b - x->b0, saved = r->n_saved * r->hidden;
    REAL *const h = projects ? x->wide + i * r->hidden : x->h + i * r->state;
    FORWARD(r, taken(x, r->gates, at * r->rows, r->rows, 0), x->hh + i * x->s->pitch, moved(x->c, i * r->hidden), h,
            place(x, r->out_saved, at * saved, 1));
    give(x, r->out_saved, at * saved, saved, 1);
    if (!projects) store(x, 0, at * r->state, h, r->state);
}

static void forward_step(const run *x, int64_t s)
{
    const sw__recurrent *const r = &x->s->r;
    const bool projects = r->proj >= 0;
    product(x, &x->s->gates, x->h, r->state, x->bias, false, x->hh, x->s->pitch);
    for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
        const int64_t steps = sw__cpu_steps(x->p, x->ptr, b);
        if (s < steps) forward_sample(x, b, time_of(r, steps, s), projects);
    }
    if (!projects) return;
    product(x, &x->s->proj, x->wide, r->hidden, NULL, false, x->narrow, r->state);
    for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
        const int64_t steps = sw__cpu_steps(x->p, x->ptr, b), i = b - x->b0;
        if (s >= steps) continue;
        memcpy(x->h + i * r->state, x->narrow + i * r->state, (size_t)r->state * sizeof(REAL));
        store(x, 0, (b * r->steps + time_of(r, steps, s)) * r->state, x->narrow + i * r->state, r->state);
    }
}

static void forward_run(const run *x)
{
    const sw__recurrent *const r = &x->s->r;
    start_state(x, x->h, r->h0, r->state);
    start_state(x, x->c, r->c0, r->hidden);
    for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
        clear_rest(x, b, sw__cpu_steps(x->p, x->ptr, b), 0, r->state);
        clear_rest(x, b, sw__cpu_steps(x->p, x->ptr, b), r->out_saved, r->n_saved * r->hidden);
    }
    for (int64_t s = 0; s < r->steps; s++) forward_step(x, s);
    finish_state(x, x->h, r->out_h, r->state);
    finish_state(x, x->c, r->out_c, r->hidden);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* dy of the step comes to what arrives from the step behind it. */
static void add_dy(const run *x, int64_t b, int64_t at)
{
    const sw__recurrent *const r = &x->s->r;
    REAL *restrict const dh = x->h + (b - x->b0) * r->state;
    const REAL *restrict const dy = taken(x, r->dy, at * r->state, r->state, 0);
    for (int64_t j = 0; j < r->state; j++) dh[j] += dy[j];
    if (r->proj < 0) return;
    store(x, r->out_dproj, at * r->state, dh, r->state);
    memcpy(x->narrow + (b - x->b0) * r->state, dh, (size_t)r->state * sizeof(REAL));
    memset(dh, 0, (size_t)r->state * sizeof(REAL));
}

/* What the cell (lstm) or the state (gru) was before the step. */
static const REAL *before(const run *x, int64_t b, int64_t steps, int64_t s)
{
    const sw__recurrent *const r = &x->s->r;
    const int64_t H = r->hidden, last = b * r->steps + time_of(r, steps, s - 1);
    if (r->cell == SW_CELL_LSTM && s > 0) return taken(x, r->saved, last * 5 * H + 4 * H, H, 2);
    if (r->cell == SW_CELL_LSTM) return taken(x, r->c0, b * H, H, 2);
    if (r->cell == SW_CELL_GRU && s > 0) return taken(x, r->y, last * H, H, 2);
    return r->cell == SW_CELL_GRU ? taken(x, r->h0, b * H, H, 2) : NULL;
}

static void backward_sample(const run *x, int64_t b, int64_t steps, int64_t s)
{
    const sw__recurrent *const r = &x->s->r;
    const int64_t at = b * r->steps + time_of(r, steps, s), i = b - x->b0, saved = r->n_saved * r->hidden;
    REAL *const dh = r->proj >= 0 ? x->wide + i * r->hidden : x->h + i * r->state;
    REAL *const ds = x->hh + i * x->s->pitch;
    BACKWARD(r, taken(x, r->saved, at * saved, saved, 1), taken(x, r->y, at * r->state, r->state, 3),
             before(x, b, steps, s), dh, moved(x->c, i * r->hidden), place(x, 0, at * r->rows, 0), ds);
    give(x, 0, at * r->rows, r->rows, 0);
    if (r->out_dstate >= 0) store(x, r->out_dstate, at * r->rows, ds, r->rows);
}

/* One step back for all samples that have it; for the others the gates' gradient is zero, and changes nothing. */
static void backward_step(const run *x, int64_t s)
{
    const sw__recurrent *const r = &x->s->r;
    for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
        const int64_t steps = sw__cpu_steps(x->p, x->ptr, b);
        if (s < steps) add_dy(x, b, b * r->steps + time_of(r, steps, s));
        else memset(x->hh + (b - x->b0) * x->s->pitch, 0, (size_t)r->rows * sizeof(REAL));
    }
    if (r->proj >= 0) product(x, &x->s->proj, x->narrow, r->state, NULL, false, x->wide, r->hidden);
    for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
        const int64_t steps = sw__cpu_steps(x->p, x->ptr, b);
        if (s < steps) backward_sample(x, b, steps, s);
    }
    product(x, &x->s->gates, x->hh, x->s->pitch, NULL, true, x->h, r->state);
}

static void backward_run(const run *x)
{
    const sw__recurrent *const r = &x->s->r;
    start_state(x, x->h, r->dh, r->state);
    start_state(x, x->c, r->dc, r->hidden);
    for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
        const int64_t steps = sw__cpu_steps(x->p, x->ptr, b);
        clear_rest(x, b, steps, 0, r->rows);
        clear_rest(x, b, steps, r->out_dstate, r->rows);
        if (r->proj >= 0) clear_rest(x, b, steps, r->out_dproj, r->state);
    }
    if (r->proj >= 0) memset(x->narrow, 0, (size_t)(x->n * r->state) * sizeof(REAL)); /* rows of samples not begun */
    for (int64_t s = r->steps; s-- > 0;) backward_step(x, s);
    finish_state(x, x->h, r->out_dh0, r->state);
    finish_state(x, x->c, r->out_dc0, r->hidden);
}

/* ---- by threads -------------------------------------------------------------------------------------------------- */

/* Results that states live in; -1: there is none. */
static REAL *state_in(const run *x, int out, int64_t width)
{
    return out < 0 ? NULL : (REAL *)(void *)(out_(x, out) + x->b0 * width);
}

/* The samples of part `i` of the plan's. The room is cut as sw__recurrent_room counts. */
static void run_part(const sw__cpu_plan *p, void *const *ptr, int64_t i)
{
    const sw__recurrent_plan *const s = p->state;
    const sw__recurrent *const r = &s->r;
    run x = { .p = p, .s = s, .ptr = ptr, .b0 = r->batch * i / s->threads };
    const int64_t most = (r->batch + s->threads - 1) / s->threads;
    x.n = r->batch * (i + 1) / s->threads - x.b0;
    x.hh = (REAL *)(void *)((char *)ptr[p->d.n_in + p->d.n_out] + s->room_at + (size_t)i * s->room);
    x.wide = x.hh + most * s->pitch;
    x.narrow = x.wide + (r->proj >= 0 ? most * r->hidden : 0);
    x.h = state_in(&x, r->backward ? r->out_dh0 : r->out_h, r->state);
    x.c = state_in(&x, r->backward ? r->out_dc0 : r->out_c, r->hidden);
    if (x.n == 0) return;
    if (IS_STORED) {
        x.h = x.narrow + (r->proj >= 0 ? most * r->state : 0);
        x.c = x.h + most * r->state;
        x.row[0] = x.c + most * r->hidden;
        for (int k = 1; k < 5; k++) x.row[k] = x.row[k - 1] + s->row;
    }
    x.bias = taken(&x, r->bias, 0, r->rows, 3);
    if (r->backward) backward_run(&x);
    else forward_run(&x);
}
