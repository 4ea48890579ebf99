/* ref_recurrent.c: lstm, gru, rnn and their gradients, and CTC loss, from their definitions. Rules: ref.h. */
#include "backend/ref/ref.h"

#include "graph/recurrent.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Steps of sample b: all, or as many as its length says. */
static sw_status steps_of(const sw__ref_call *c, int place, int64_t b, int64_t most, int64_t *steps)
{
    *steps = most;
    if (place < 0) return SW_OK;
    *steps = sw__ref_get_int(c->in[place], (sw_dtype)c->d->in[place].dtype, b);
    if (*steps < 0 || *steps > most) return sw__ref_bad_index(c, "lengths", b, *steps, most + 1);
    return SW_OK;
}

/* sum over k of m[i][k] v[k], m of n columns; and of m[k][i] v[k], m of `rows` rows. */
static double row_times(const double *m, int64_t i, int64_t n, const double *v)
{
    long double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (long double)m[i * n + k] * v[k];
    return (double)sum;
}

static double column_times(const double *m, int64_t i, int64_t n, int64_t rows, const double *v)
{
    long double sum = 0;
    for (int64_t k = 0; k < rows; k++) sum += (long double)m[k * n + i] * v[k];
    return (double)sum;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* One step of one sample: x and hh are the two parts of the gates; h is replaced, c too. */
static void lstm_cell(const sw__recurrent *r, const double *x, const double *hh, double *out, double *c, double *saved)
{
    const int64_t H = r->hidden;
    for (int64_t j = 0; j < H; j++) {
        const double i = sigmoid(x[j] + hh[j]), f = sigmoid(x[H + j] + hh[H + j]);
        const double g = tanh(x[2 * H + j] + hh[2 * H + j]), o = sigmoid(x[3 * H + j] + hh[3 * H + j]);
        c[j] = f * c[j] + i * g;
        out[j] = o * tanh(c[j]);
        saved[j] = i;
        saved[H + j] = f;
        saved[2 * H + j] = g;
        saved[3 * H + j] = o;
        saved[4 * H + j] = c[j];
    }
}

static void gru_cell(const sw__recurrent *r, const double *x, const double *hh, double *h, double *saved)
{
    const int64_t H = r->hidden;
    for (int64_t j = 0; j < H; j++) {
        const double reset = sigmoid(x[j] + hh[j]), z = sigmoid(x[H + j] + hh[H + j]), hn = hh[2 * H + j];
        const double n = tanh(x[2 * H + j] + reset * hn);
        h[j] = (1 - z) * n + z * h[j];
        saved[j] = reset;
        saved[H + j] = z;
        saved[2 * H + j] = n;
        saved[3 * H + j] = hn;
    }
}

static void rnn_cell(const sw__recurrent *r, const double *x, const double *hh, double *h)
{
    for (int64_t j = 0; j < r->hidden; j++)
        h[j] = r->relu ? sw__ref_act(SW_ACT_RELU, x[j] + hh[j]) : tanh(x[j] + hh[j]);
}

/* Step t of sample b; h and c are its state; work: room for the gates and what is projected. */
static void forward_step(const sw__ref_call *c, const sw__recurrent *r, int64_t b, int64_t t, double *h, double *cell,
                         double *work)
{
    const int64_t at = b * r->steps + t;
    const double *const x = (const double *)c->in[r->gates] + at * r->rows, *const bias = c->in[r->bias];
    double *const saved = r->out_saved >= 0 ? (double *)c->out[r->out_saved] + at * r->n_saved * r->hidden : work;
    double *const hh = work, *const wide = work + r->rows;
    for (int64_t i = 0; i < r->rows; i++) hh[i] = row_times(c->in[r->weight], i, r->state, h) + bias[i];
    if (r->cell == SW_CELL_LSTM && r->proj >= 0) {
        lstm_cell(r, x, hh, wide, cell, saved);
        for (int64_t k = 0; k < r->state; k++) h[k] = row_times(c->in[r->proj], k, r->hidden, wide);
    } else if (r->cell == SW_CELL_LSTM) {
        lstm_cell(r, x, hh, h, cell, saved);
    } else if (r->cell == SW_CELL_GRU) {
        gru_cell(r, x, hh, h, saved);
    } else {
        rnn_cell(r, x, hh, h);
    }
    memcpy((double *)c->out[0] + at * r->state, h, (size_t)r->state * sizeof *h);
}

size_t sw__ref_recurrent_workspace(const sw__op_desc *d)
{
    const sw__recurrent r = sw__recurrent_of(d->op, d->attr, d->out[0].dim);
    return (size_t)(2 * r.rows + 2 * r.hidden + 2 * r.state) * sizeof(double);
}

static void clear(const sw__ref_call *c, int out)
{
    if (out >= 0) memset(c->out[out], 0, (size_t)sw__ref_count(&c->d->out[out]) * sizeof(double));
}

sw_status sw__ref_recurrent(const sw__ref_call *c)
{
    const sw__recurrent r = sw__recurrent_of(c->d->op, c->attr, c->d->out[0].dim);
    clear(c, 0);
    clear(c, r.out_saved);
    for (int64_t b = 0; b < r.batch; b++) {
        int64_t steps;
        SW_TRY(steps_of(c, r.lengths, b, r.steps, &steps));
        double *const h = (double *)c->out[r.out_h] + b * r.state;
        double *const cell = r.out_c >= 0 ? (double *)c->out[r.out_c] + b * r.hidden : c->work;
        memcpy(h, (const double *)c->in[r.h0] + b * r.state, (size_t)r.state * sizeof *h);
        if (r.out_c >= 0) memcpy(cell, (const double *)c->in[r.c0] + b * r.hidden, (size_t)r.hidden * sizeof *cell);
        for (int64_t s = 0; s < steps; s++) forward_step(c, &r, b, r.reverse ? steps - 1 - s : s, h, cell, c->work);
    }
    return SW_OK;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

typedef struct back {
    const sw__ref_call *c;
    sw__recurrent r;
    int64_t b, t, before; /* before: the step before this one, -1: none */
    double *dh, *dc;      /* what arrives at the state; replaced by what arrives at the one before */
    double *gates, *state; /* [G H]: gradients of the two parts of the gates */
    double *wide;         /* [H] */
} back;

static const double *initial_or(const back *x, int initial, const void *of, int64_t stride, int64_t column, int64_t n)
{
    if (x->before < 0) return (const double *)x->c->in[initial] + x->b * n;
    return (const double *)of + (x->b * x->r.steps + x->before) * stride + column;
}

static void lstm_back(const back *x)
{
    const sw__recurrent *const r = &x->r;
    const int64_t H = r->hidden, at = x->b * r->steps + x->t;
    const double *const s = (const double *)x->c->in[r->saved] + at * 5 * H;
    const double *const c_before = initial_or(x, r->c0, x->c->in[r->saved], 5 * H, 4 * H, H);
    if (r->proj >= 0) {
        memcpy((double *)x->c->out[r->out_dproj] + at * r->state, x->dh, (size_t)r->state * sizeof *x->dh);
        for (int64_t j = 0; j < H; j++) x->wide[j] = column_times(x->c->in[r->proj], j, H, r->state, x->dh);
    } else {
        memcpy(x->wide, x->dh, (size_t)H * sizeof *x->wide);
    }
    for (int64_t j = 0; j < H; j++) {
        const double i = s[j], f = s[H + j], g = s[2 * H + j], o = s[3 * H + j], tc = tanh(s[4 * H + j]);
        const double dc = x->dc[j] + x->wide[j] * o * (1 - tc * tc);
        x->gates[j] = dc * g * i * (1 - i);
        x->gates[H + j] = dc * c_before[j] * f * (1 - f);
        x->gates[2 * H + j] = dc * i * (1 - g * g);
        x->gates[3 * H + j] = x->wide[j] * tc * o * (1 - o);
        x->dc[j] = dc * f;
    }
    memcpy(x->state, x->gates, (size_t)r->rows * sizeof *x->state);
    for (int64_t j = 0; j < r->state; j++) x->dh[j] = 0;
}

static void gru_back(const back *x)
{
    const sw__recurrent *const r = &x->r;
    const int64_t H = r->hidden;
    const double *const s = (const double *)x->c->in[r->saved] + (x->b * r->steps + x->t) * 4 * H;
    const double *const h_before = initial_or(x, r->h0, x->c->in[r->y], H, 0, H);
    for (int64_t j = 0; j < H; j++) {
        const double reset = s[j], z = s[H + j], n = s[2 * H + j], hn = s[3 * H + j], dh = x->dh[j];
        const double dn = dh * (1 - z) * (1 - n * n);
        x->gates[j] = x->state[j] = dn * hn * reset * (1 - reset);
        x->gates[H + j] = x->state[H + j] = dh * (h_before[j] - n) * z * (1 - z);
        x->gates[2 * H + j] = dn;
        x->state[2 * H + j] = dn * reset;
        x->dh[j] = dh * z;
    }
}

static void rnn_back(const back *x)
{
    const sw__recurrent *const r = &x->r;
    const double *const y = (const double *)x->c->in[r->y] + (x->b * r->steps + x->t) * r->hidden;
    for (int64_t j = 0; j < r->hidden; j++) {
        x->gates[j] = x->state[j] = r->relu ? (y[j] > 0 ? x->dh[j] : 0) : x->dh[j] * (1 - y[j] * y[j]);
        x->dh[j] = 0;
    }
}

static void backward_step(const back *x)
{
    const sw__recurrent *const r = &x->r;
    const int64_t at = x->b * r->steps + x->t;
    const double *const dy = (const double *)x->c->in[r->dy] + at * r->state;
    for (int64_t j = 0; j < r->state; j++) x->dh[j] += dy[j];
    if (r->cell == SW_CELL_LSTM) lstm_back(x);
    else if (r->cell == SW_CELL_GRU) gru_back(x);
    else rnn_back(x);
    for (int64_t j = 0; j < r->state; j++)
        x->dh[j] += column_times(x->c->in[r->weight], j, r->state, r->rows, x->state);
    const size_t bytes = (size_t)r->rows * sizeof(double);
    memcpy((double *)x->c->out[0] + at * r->rows, x->gates, bytes);
    if (r->out_dstate >= 0) memcpy((double *)x->c->out[r->out_dstate] + at * r->rows, x->state, bytes);
}

sw_status sw__ref_recurrent_grad(const sw__ref_call *c)
{
    back x = { .c = c, .r = sw__recurrent_of(c->d->op, c->attr, c->d->out[0].dim) };
    const sw__recurrent *const r = &x.r;
    x.gates = x.dc = c->work; /* dc: not looked at where there is none */
    x.state = x.gates + r->rows;
    x.wide = x.state + r->rows;
    clear(c, 0);
    clear(c, r->out_dproj);
    clear(c, r->out_dstate);
    for (x.b = 0; x.b < r->batch; x.b++) {
        int64_t steps;
        SW_TRY(steps_of(c, r->lengths, x.b, r->steps, &steps));
        x.dh = (double *)c->out[r->out_dh0] + x.b * r->state;
        memcpy(x.dh, (const double *)c->in[r->dh] + x.b * r->state, (size_t)r->state * sizeof *x.dh);
        if (r->dc >= 0) {
            x.dc = (double *)c->out[r->out_dc0] + x.b * r->hidden;
            memcpy(x.dc, (const double *)c->in[r->dc] + x.b * r->hidden, (size_t)r->hidden * sizeof *x.dc);
        }
        for (int64_t s = steps; s-- > 0;) {
            x.t = r->reverse ? steps - 1 - s : s;
            x.before = s == 0 ? -1 : r->reverse ? x.t + 1 : x.t - 1;
            backward_step(&x);
        }
    }
    return SW_OK;
}

/* ---- CTC loss ---------------------------------------------------------------------------------------------------- */

static double log_add(double a, double b)
{
    if (a == -INFINITY) return b;
    if (b == -INFINITY) return a;
    return a > b ? a + log1p(exp(b - a)) : b + log1p(exp(a - b));
}

/* One sample: x [T, C]; label of each of the L places. alpha and beta [T, L]. */
typedef struct ctc {
    const double *x;
    int64_t classes, steps, places;
    const int64_t *label;
    double *alpha, *beta;
} ctc;

static bool may_skip(const ctc *s, int64_t p)
{
    return p % 2 == 1 && p >= 3 && s->label[p] != s->label[p - 2];
}

/* alpha: log probability of all beginnings that end at (t, p); beta: of all continuations behind it. */
static void fill_tables(const ctc *s)
{
    const int64_t L = s->places;
    for (int64_t t = 0; t < s->steps; t++)
        for (int64_t p = 0; p < L; p++) {
            const double *const a = s->alpha + (t - 1) * L;
            double sum = -INFINITY;
            if (t == 0) sum = p < 2 ? 0 : -INFINITY;
            if (t > 0) sum = p > 0 ? log_add(a[p], a[p - 1]) : a[p];
            if (t > 0 && may_skip(s, p)) sum = log_add(sum, a[p - 2]);
            s->alpha[t * L + p] = sum + s->x[t * s->classes + s->label[p]];
        }
    for (int64_t t = s->steps; t-- > 0;)
        for (int64_t p = 0; p < L; p++) {
            double sum = -INFINITY;
            if (t == s->steps - 1) sum = p >= L - 2 ? 0 : -INFINITY;
            for (int64_t q = p; t < s->steps - 1 && q < SW_MIN(p + 3, L); q++)
                if (q < p + 2 || may_skip(s, q))
                    sum = log_add(sum, s->beta[(t + 1) * L + q] + s->x[(t + 1) * s->classes + s->label[q]]);
            s->beta[t * L + p] = sum;
        }
}

static double ctc_sample(const ctc *s, double *slope)
{
    if (s->steps == 0) return s->places == 1 ? 0 : INFINITY;
    fill_tables(s);
    const double *const last = s->alpha + (s->steps - 1) * s->places;
    const double total = s->places > 1 ? log_add(last[s->places - 1], last[s->places - 2]) : last[0];
    if (total == -INFINITY) return INFINITY;
    for (int64_t t = 0; t < s->steps; t++)
        for (int64_t p = 0; p < s->places; p++)
            slope[t * s->classes + s->label[p]] -=
                exp(s->alpha[t * s->places + p] + s->beta[t * s->places + p] - total);
    return -total;
}

size_t sw__ref_ctc_workspace(const sw__op_desc *d)
{
    const size_t places = (size_t)(2 * d->in[1].dim[1] + 1);
    return places * ((size_t)d->in[0].dim[1] * 2 * sizeof(double) + sizeof(int64_t));
}

static int64_t int_at(const sw__ref_call *c, int in, int64_t i)
{
    return sw__ref_get_int(c->in[in], (sw_dtype)c->d->in[in].dtype, i);
}

sw_status sw__ref_ctc_loss(const sw__ref_call *c)
{
    const int64_t *const dim = c->d->in[0].dim, S = c->d->in[1].dim[1];
    int64_t *const label = c->work;
    ctc s = { .classes = dim[2], .label = label, .alpha = (double *)(void *)(label + 2 * S + 1) };
    double *const slope = c->out[1];
    s.beta = s.alpha + dim[1] * (2 * S + 1);
    memset(slope, 0, (size_t)sw__ref_count(&c->d->out[1]) * sizeof *slope);
    for (int64_t b = 0; b < dim[0]; b++) {
        const int64_t n = int_at(c, 3, b);
        s.steps = int_at(c, 2, b);
        if (s.steps < 0 || s.steps > dim[1]) return sw__ref_bad_index(c, "input_lengths", b, s.steps, dim[1] + 1);
        if (n < 0 || n > S) return sw__ref_bad_index(c, "target_lengths", b, n, S + 1);
        s.places = 2 * n + 1;
        for (int64_t p = 0; p < s.places; p++) {
            label[p] = p % 2 == 0 ? c->attr->axis.axis : int_at(c, 1, b * S + p / 2);
            if (label[p] < 0 || label[p] >= dim[2])
                return sw__ref_bad_index(c, "targets", b * S + p / 2, label[p], dim[2]);
        }
        s.x = (const double *)c->in[0] + b * dim[1] * dim[2];
        ((double *)c->out[0])[b] = ctc_sample(&s, slope + b * dim[1] * dim[2]);
    }
    return SW_OK;
}
