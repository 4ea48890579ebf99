/* recurrent_run.h: all steps of some samples of lstm, gru or rnn on the cpu, for REAL: included by op_recurrent.c (f32)
 * and op_recurrent_f64.c, which define FORWARD, BACKWARD and product(x, matrix, a, a_pitch, bias, add, c,
 * c_pitch): c = bias or c, plus a times the matrix. Step s of a sample is its step s from where its direction begins,
 * so that all samples begin together and none waits: one that has ended keeps its state. */

typedef struct run {
    const sw__cpu_plan *p;
    const sw__recurrent_plan *s;
    void *const *ptr;
    int64_t b0, n;     /* samples */
    REAL *hh;          /* [n, pitch]: the state's part of the gates, or their gradient */
    REAL *wide, *narrow; /* [n, H], [n, R]: before and behind the projection */
} run;

static const REAL *in_(const run *x, int i)
{
    return i < 0 ? NULL : x->ptr[i];
}

static REAL *out_(const run *x, int i)
{
    return i < 0 ? NULL : x->ptr[x->p->d.n_in + i];
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
    memset(out_(x, out) + (b * r->steps + steps) * width, 0, (size_t)((r->steps - steps) * width) * sizeof(REAL));
}

static void copy_state(const run *x, int to, int from, int64_t width)
{
    if (to < 0) return;
    memcpy(out_(x, to) + x->b0 * width, in_(x, from) + x->b0 * width, (size_t)(x->n * width) * sizeof(REAL));
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void forward_sample(const run *x, int64_t b, int64_t t, bool projects)
{
    const sw__recurrent *const r = &x->s->r;
    const int64_t at = b * r->steps + t, i = b - x->b0;
    REAL *const h = projects ? x->wide + i * r->hidden : out_(x, r->out_h) + b * r->state;
    FORWARD(r, in_(x, r->gates) + at * r->rows, x->hh + i * x->s->pitch, moved(out_(x, r->out_c), b * r->hidden), h,
            moved(out_(x, r->out_saved), at * r->n_saved * r->hidden));
    if (!projects) memcpy(out_(x, 0) + at * r->state, h, (size_t)r->state * sizeof(REAL));
}

static void forward_run(const run *x)
{
    const sw__recurrent *const r = &x->s->r;
    const bool projects = r->proj >= 0;
    REAL *const h = out_(x, r->out_h) + x->b0 * r->state;
    copy_state(x, r->out_h, r->h0, r->state);
    copy_state(x, r->out_c, r->c0, r->hidden);
    for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
        clear_rest(x, b, sw__cpu_steps(x->p, x->ptr, b), 0, r->state);
        clear_rest(x, b, sw__cpu_steps(x->p, x->ptr, b), r->out_saved, r->n_saved * r->hidden);
    }
    for (int64_t s = 0; s < r->steps; s++) {
        product(x, &x->s->gates, h, r->state, in_(x, r->bias), false, x->hh, x->s->pitch);
        for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
            const int64_t steps = sw__cpu_steps(x->p, x->ptr, b);
            if (s < steps) forward_sample(x, b, time_of(r, steps, s), projects);
        }
        if (!projects) continue;
        product(x, &x->s->proj, x->wide, r->hidden, NULL, false, x->narrow, r->state);
        for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
            const int64_t steps = sw__cpu_steps(x->p, x->ptr, b), i = b - x->b0;
            if (s >= steps) continue;
            const size_t bytes = (size_t)r->state * sizeof(REAL);
            memcpy(h + i * r->state, x->narrow + i * r->state, bytes);
            memcpy(out_(x, 0) + (b * r->steps + time_of(r, steps, s)) * r->state, x->narrow + i * r->state, bytes);
        }
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* dy of the step comes to what arrives from the step behind it. */
static void add_dy(const run *x, int64_t b, int64_t at)
{
    const sw__recurrent *const r = &x->s->r;
    REAL *restrict const dh = out_(x, r->out_dh0) + b * r->state;
    const REAL *restrict const dy = in_(x, r->dy) + at * r->state;
    for (int64_t j = 0; j < r->state; j++) dh[j] += dy[j];
    if (r->proj < 0) return;
    memcpy(out_(x, r->out_dproj) + at * r->state, dh, (size_t)r->state * sizeof(REAL));
    memcpy(x->narrow + (b - x->b0) * r->state, dh, (size_t)r->state * sizeof(REAL));
    memset(dh, 0, (size_t)r->state * sizeof(REAL));
}

static void backward_sample(const run *x, int64_t b, int64_t steps, int64_t s)
{
    const sw__recurrent *const r = &x->s->r;
    const int64_t t = time_of(r, steps, s), at = b * r->steps + t, i = b - x->b0, H = r->hidden;
    const int64_t last = b * r->steps + time_of(r, steps, s - 1);
    const REAL *before = NULL;
    if (r->cell == SW_CELL_LSTM) before = s == 0 ? in_(x, r->c0) + b * H : in_(x, r->saved) + last * 5 * H + 4 * H;
    if (r->cell == SW_CELL_GRU) before = s == 0 ? in_(x, r->h0) + b * H : in_(x, r->y) + last * H;
    REAL *const dh = r->proj >= 0 ? x->wide + i * H : out_(x, r->out_dh0) + b * r->state;
    const REAL *const saved = r->saved >= 0 ? in_(x, r->saved) + at * r->n_saved * H : NULL;
    REAL *const ds = x->hh + i * x->s->pitch;
    BACKWARD(r, saved, r->y >= 0 ? in_(x, r->y) + at * r->state : NULL, before, dh,
             moved(out_(x, r->out_dc0), b * H), out_(x, 0) + at * r->rows, ds);
    if (r->out_dstate >= 0) memcpy(out_(x, r->out_dstate) + at * r->rows, ds, (size_t)r->rows * sizeof(REAL));
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
    product(x, &x->s->gates, x->hh, x->s->pitch, NULL, true, out_(x, r->out_dh0) + x->b0 * r->state, r->state);
}

static void backward_run(const run *x)
{
    const sw__recurrent *const r = &x->s->r;
    copy_state(x, r->out_dh0, r->dh, r->state);
    copy_state(x, r->out_dc0, r->dc, r->hidden);
    for (int64_t b = x->b0; b < x->b0 + x->n; b++) {
        const int64_t steps = sw__cpu_steps(x->p, x->ptr, b);
        clear_rest(x, b, steps, 0, r->rows);
        clear_rest(x, b, steps, r->out_dstate, r->rows);
        if (r->proj >= 0) clear_rest(x, b, steps, r->out_dproj, r->state);
    }
    if (r->proj >= 0) memset(x->narrow, 0, (size_t)(x->n * r->state) * sizeof(REAL)); /* rows of samples not begun */
    for (int64_t s = r->steps; s-- > 0;) backward_step(x, s);
}

/* ---- by threads -------------------------------------------------------------------------------------------------- */

/* The samples of part `i` of the plan's. */
static void run_part(const sw__cpu_plan *p, void *const *ptr, int64_t i)
{
    const sw__recurrent_plan *const s = p->state;
    run x = { .p = p, .s = s, .ptr = ptr, .b0 = s->r.batch * i / s->threads };
    const int64_t most = (s->r.batch + s->threads - 1) / s->threads;
    x.n = s->r.batch * (i + 1) / s->threads - x.b0;
    x.hh = (REAL *)(void *)((char *)ptr[p->d.n_in + p->d.n_out] + s->room_at + (size_t)i * s->room);
    x.wide = x.hh + most * s->pitch;
    x.narrow = x.wide + (s->r.proj >= 0 ? most * s->r.hidden : 0);
    if (x.n == 0) return;
    if (s->r.backward) backward_run(&x);
    else forward_run(&x);
}
