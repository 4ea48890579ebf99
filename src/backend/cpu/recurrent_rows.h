/* recurrent_rows.h: see recurrent.h: a step of a sample, for REAL with the functions SIGMOID, TANH and BOTH(a, b, s, t):
 * *s = sigmoid(a), *t = tanh(b); defines FORWARD and BACKWARD. Loops without branches, so that they vectorise. Included
 * by recurrent_simd.c and op_recurrent_f64.c. */

static void lstm_forward(int64_t H, const REAL *restrict x, const REAL *restrict hh, REAL *restrict c,
                         REAL *restrict h, REAL *restrict saved)
{
    for (int64_t j = 0; j < H; j++) {
        const REAL f = SIGMOID(x[H + j] + hh[H + j]);
        REAL i, g, o, t;
        BOTH(x[j] + hh[j], x[2 * H + j] + hh[2 * H + j], &i, &g);
        const REAL now = f * c[j] + i * g;
        BOTH(x[3 * H + j] + hh[3 * H + j], now, &o, &t);
        c[j] = now;
        h[j] = o * t;
        saved[j] = i;
        saved[H + j] = f;
        saved[2 * H + j] = g;
        saved[3 * H + j] = o;
        saved[4 * H + j] = now;
    }
}

static void gru_forward(int64_t H, const REAL *restrict x, const REAL *restrict hh, REAL *restrict h,
                        REAL *restrict saved)
{
    for (int64_t j = 0; j < H; j++) {
        const REAL r = SIGMOID(x[j] + hh[j]), z = SIGMOID(x[H + j] + hh[H + j]), hn = hh[2 * H + j];
        const REAL n = TANH(x[2 * H + j] + r * hn);
        h[j] = n + z * (h[j] - n);
        saved[j] = r;
        saved[H + j] = z;
        saved[2 * H + j] = n;
        saved[3 * H + j] = hn;
    }
}

static void rnn_forward(int64_t H, bool relu, const REAL *restrict x, const REAL *restrict hh, REAL *restrict h)
{
    if (relu)
        for (int64_t j = 0; j < H; j++) h[j] = x[j] + hh[j] < 0 ? 0 : x[j] + hh[j]; /* NaN stays */
    else
        for (int64_t j = 0; j < H; j++) h[j] = TANH(x[j] + hh[j]);
}

static void lstm_backward(int64_t H, const REAL *restrict saved, const REAL *restrict before, REAL *restrict dh,
                          REAL *restrict dc, REAL *restrict ds)
{
    for (int64_t j = 0; j < H; j++) {
        const REAL i = saved[j], f = saved[H + j], g = saved[2 * H + j], o = saved[3 * H + j];
        const REAL tc = TANH(saved[4 * H + j]), d = dc[j] + dh[j] * o * (1 - tc * tc);
        const REAL di = d * g * i * (1 - i), df = d * before[j] * f * (1 - f), dg = d * i * (1 - g * g);
        ds[3 * H + j] = dh[j] * tc * o * (1 - o);
        ds[j] = di;
        ds[H + j] = df;
        ds[2 * H + j] = dg;
        dc[j] = d * f;
        dh[j] = 0;
    }
}

static void gru_backward(int64_t H, const REAL *restrict saved, const REAL *restrict before, REAL *restrict dh,
                         REAL *restrict dx, REAL *restrict ds)
{
    for (int64_t j = 0; j < H; j++) {
        const REAL r = saved[j], z = saved[H + j], n = saved[2 * H + j], hn = saved[3 * H + j];
        const REAL dn = dh[j] * (1 - z) * (1 - n * n), dr = dn * hn * r * (1 - r);
        const REAL dz = dh[j] * (before[j] - n) * z * (1 - z);
        dx[j] = ds[j] = dr;
        dx[H + j] = ds[H + j] = dz;
        dx[2 * H + j] = dn;
        ds[2 * H + j] = dn * r;
        dh[j] = dh[j] * z;
    }
}

static void rnn_backward(int64_t H, bool relu, const REAL *restrict y, REAL *restrict dh, REAL *restrict dx,
                         REAL *restrict ds)
{
    for (int64_t j = 0; j < H; j++) {
        const REAL slope = relu ? (y[j] > 0 ? (REAL)1 : (REAL)0) : 1 - y[j] * y[j];
        dx[j] = ds[j] = dh[j] * slope;
        dh[j] = 0;
    }
}

void FORWARD SW__CELL_FORWARD(REAL)
{
    if (r->cell == SW_CELL_LSTM) lstm_forward(r->hidden, x, hh, c, h, saved);
    else if (r->cell == SW_CELL_GRU) gru_forward(r->hidden, x, hh, h, saved);
    else rnn_forward(r->hidden, r->relu, x, hh, h);
}

void BACKWARD SW__CELL_BACKWARD(REAL)
{
    if (r->cell == SW_CELL_LSTM) {
        lstm_backward(r->hidden, saved, before, dh, dc, ds);
        memcpy(dx, ds, (size_t)r->rows * sizeof *dx); /* in the loop it would be too much to become vectors */
    }
    else if (r->cell == SW_CELL_GRU) gru_backward(r->hidden, saved, before, dh, dx, ds);
    else rnn_backward(r->hidden, r->relu, y, dh, dx, ds);
}
