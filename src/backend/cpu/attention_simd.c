/* attention_simd.c: attention in f32 without the matrix of scores (Dao et al. 2022): blocks of rows against blocks of
 * keys, over the tiles of gemm_simd.c. Compiled once per instruction set. Called by op_attention.c.
 *
 * A block of scores is kept by keys, s[key][row], so that maxima and sums over keys are whole vectors of rows. Where
 * causal, what lies above the diagonal is not computed: by whole vectors of rows in the scores, exactly in what is
 * summed up. */
#include "backend/cpu/attention.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/simd_vec.h"
#include "kernel/tile_math_simd.h"

#if SW_SIMD_LEVEL == 2
#define ROWS 64
#else
#define ROWS 48
#endif
#define KEYS SW__ATTENTION_KEYS

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Below the diagonal: of a product with rows r, columns c, sums over k: all; columns from r + diagonal on; sums up to
 * k = r - diagonal; sums from k = r + diagonal on. */
typedef enum region { ALL, COLUMNS_FROM, SUMS_UP_TO, SUMS_FROM } region;

typedef struct product {
    const float *a, *b;
    float *c;
    int64_t ra, ka, kb, rc, rows, cols, run, room; /* room: floats that may be read of a row of b; if fewer, ra is 1 */
    bool add;
    region part;
    int64_t diagonal;
} product;

static int64_t at_least_0(int64_t x)
{
    return x > 0 ? x : 0;
}

/* The tile at row r, column j. */
static void run_tile(const product *p, int64_t r, int rows, int64_t j, int cols)
{
    int64_t first = 0, last = p->run;
    if (p->part == SUMS_UP_TO) last = SW_MIN(p->run, at_least_0(r + rows - p->diagonal));
    if (p->part == SUMS_FROM) first = SW_MIN(p->run, at_least_0(r + p->diagonal));
    const int64_t whole = j + (cols + VL - 1) / VL * VL;
    if (first == last && p->add) return;
    const sw__tile t = {.a = p->a + r * p->ra + first * p->ka, .b = p->b + first * p->kb + j, .c = p->c + r * p->rc + j,
                        .ra = p->ra, .ka = p->ka, .kb = p->kb, .rc = p->rc, .runs = 1, .run = last - first,
                        .rows = rows,
                        .cols = cols, .add = p->add, .narrow = whole > p->room};
    SW__SIMD_NAME(sw__tile_run)(&t);
}

static void multiply(const product *p)
{
    const sw__tile_shape shape = sw__tile_shape_of((sw__simd)SW_SIMD_LEVEL);
    for (int64_t j = 0; j < p->cols; j += 2 * VL) {
        const int cols = (int)SW_MIN(2 * VL, p->cols - j), most = cols > VL ? shape.wide_rows : shape.rows;
        for (int64_t r = 0; r < p->rows; r += most) {
            const int rows = (int)SW_MIN(most, p->rows - r);
            if (p->part == COLUMNS_FROM && j + cols <= r + p->diagonal) break; /* so are the rows below */
            run_tile(p, r, rows, j, cols);
        }
    }
}

/* ---- what a thread works on -------------------------------------------------------------------------------------- */

typedef struct block {
    const sw__attention *a;
    const sw__attention_data *t;
    int64_t b, h, group, row0, rows;      /* of the block of rows */
    float *q_t, *dy_t;                    /* [D][ROWS], scaled; [E][ROWS]; zeros beyond `rows` */
    float *q, *dy;                        /* [ROWS][ld_d], scaled; [ROWS][ld_e]: whole vectors */
    float *s, *ds;                        /* [KEYS][ROWS] */
    float *sum;                           /* [ROWS][ld_e or ld_d] */
    float *top, *total, *factor, *offset, *inner; /* [ROWS] each */
    int64_t ld_d, ld_e;
} block;

static int64_t whole(int64_t n)
{
    return (n + 15) & ~(int64_t)15;
}

static float *piece(float **at, int64_t n)
{
    float *const p = *at;
    *at += n;
    return p;
}

static block block_of(const sw__attention *a, const sw__attention_data *t, bool grad, void *work)
{
    float *at = work;
    block k = {.a = a, .t = t, .ld_d = whole(a->d), .ld_e = whole(a->e)};
    k.q_t = piece(&at, k.ld_d * ROWS);
    k.s = piece(&at, KEYS * ROWS);
    k.sum = piece(&at, ROWS * SW_MAX(k.ld_d, k.ld_e));
    k.top = piece(&at, ROWS);
    k.total = piece(&at, ROWS);
    k.factor = piece(&at, ROWS);
    k.offset = piece(&at, ROWS);
    k.inner = piece(&at, ROWS);
    if (!grad) return k;
    k.q = piece(&at, ROWS * k.ld_d);
    k.dy = piece(&at, ROWS * k.ld_e);
    k.dy_t = piece(&at, k.ld_e * ROWS);
    k.ds = piece(&at, KEYS * ROWS);
    return k;
}

static const float *at_of(const void *p, const sw__attention_strides *s, int64_t b, int64_t t, int64_t h)
{
    return (const float *)p + b * s->b + t * s->t + h * s->h;
}

/* to[d][ROWS] = from[row][d] times scale; zeros beyond the rows. */
static void pack_columns(const float *from, int64_t ld, int64_t rows, int64_t d, float scale, float *to)
{
    SW__SIMD_NAME(sw__transpose)(from, ld, rows, d, to, ROWS);
    for (int64_t k = 0; k < d; k++) {
        for (int64_t r = 0; r < rows; r++) to[k * ROWS + r] *= scale;
        for (int64_t r = rows; r < ROWS; r++) to[k * ROWS + r] = 0;
    }
}

static void pack_rows(const float *from, int64_t ld, int64_t rows, int64_t d, float scale, float *to, int64_t ld_to)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < d; k++) to[r * ld_to + k] = from[r * ld + k] * scale;
        for (int64_t k = d; k < ld_to; k++) to[r * ld_to + k] = 0;
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* s[key][row] of `n` keys from key0 on, for rows from `first` on, plus the mask. */
static void add_mask(const block *k, int64_t key0, int64_t n)
{
    const sw__attention *const a = k->a;
    const int64_t at = k->b * a->mask_s[0] + k->h * a->mask_s[1] + k->row0 * a->mask_s[2] + key0 * a->mask_s[3];
    for (int64_t j = 0; j < n; j++) {
        float *const s = k->s + j * ROWS;
        const int64_t from = at + j * a->mask_s[3], step = a->mask_s[2];
        if (a->mask == 1) {
            const uint8_t *const m = (const uint8_t *)k->t->mask + from;
            for (int64_t r = 0; r < k->rows; r++) s[r] = m[r * step] ? s[r] : -INFINITY;
        } else {
            const float *const m = (const float *)k->t->mask + from;
            for (int64_t r = 0; r < k->rows; r++) s[r] += m[r * step];
        }
    }
}

/* Scores of n keys from key0 on; minus infinity where the mask or the diagonal forbids. */
static void scores(const block *k, int64_t key0, int64_t n)
{
    const sw__attention *const a = k->a;
    const int64_t diagonal = key0 - k->row0;
    const product p = {.a = at_of(k->t->k, &a->k, k->b, key0, k->group), .ra = a->k.t, .ka = 1, .b = k->q_t, .kb = ROWS,
                       .c = k->s, .rc = ROWS, .rows = n, .cols = k->rows, .run = a->d, .room = ROWS,
                       .part = a->causal ? COLUMNS_FROM : ALL, .diagonal = diagonal};
    multiply(&p);
    for (int64_t j = 0; a->causal && j < n; j++)
        for (int64_t r = 0; r < SW_MIN(j + diagonal, k->rows); r++) k->s[j * ROWS + r] = -INFINITY;
    if (a->mask != 0) add_mask(k, key0, n);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* s becomes e^(s - top), top the greatest so far; factor: by how much what was summed before shrinks. */
static void exponentials(const block *k, int64_t n)
{
    for (int r = 0; r < ROWS; r++) k->factor[r] = k->top[r];
    for (int64_t j = 0; j < n; j++)
        for (int r = 0; r < ROWS; r++) k->top[r] = k->s[j * ROWS + r] > k->top[r] ? k->s[j * ROWS + r] : k->top[r];
    for (int r = 0; r < ROWS; r++) { /* rows that may not attend to anything yet: not inf - inf */
        k->offset[r] = k->top[r] == -INFINITY ? 0 : k->top[r];
        k->factor[r] = exp_f32(k->factor[r] - k->offset[r]);
        k->total[r] *= k->factor[r];
    }
    for (int64_t j = 0; j < n; j++) {
        float *const s = k->s + j * ROWS;
        for (int r = 0; r < ROWS; r++) {
            const float e = exp_f32(s[r] - k->offset[r]);
            s[r] = e;
            k->total[r] += e;
        }
    }
}

/* sum = sum times factor, plus e^… times v */
static void add_values(const block *k, int64_t key0, int64_t n)
{
    const sw__attention *const a = k->a;
    for (int64_t r = 0; r < k->rows && key0 > 0; r++) {
        const float f = k->factor[r];
        for (int64_t e = 0; e < k->ld_e; e++) k->sum[r * k->ld_e + e] *= f;
    }
    const product p = {.a = k->s, .ra = 1, .ka = ROWS, .b = at_of(k->t->v, &a->v, k->b, key0, k->group), .kb = a->v.t,
                       .c = k->sum, .rc = k->ld_e, .rows = k->rows, .cols = a->e, .run = n, .room = a->e,
                       .add = key0 > 0,
                       .part = a->causal ? SUMS_UP_TO : ALL, .diagonal = key0 - k->row0};
    multiply(&p);
}

static void store_rows(const block *k)
{
    const sw__attention *const a = k->a;
    float *const lse = (float *)k->t->lse + k->b * a->lse_s[0] + k->h * a->lse_s[1] + k->row0 * a->lse_s[2];
    for (int64_t r = 0; r < k->rows; r++) {
        float *const y = (float *)k->t->y + k->b * a->y.b + (k->row0 + r) * a->y.t + k->h * a->y.h;
        const float by = k->total[r] == 0 ? 0 : 1 / k->total[r];
        for (int64_t e = 0; e < a->e; e++) y[e] = k->sum[r * k->ld_e + e] * by;
        lse[r * a->lse_s[2]] = k->offset[r] + log_f32(k->total[r]);
    }
}

void SW__SIMD_NAME(sw__attention_forward)(const sw__attention *a, const sw__attention_data *t, int64_t b, int64_t h,
                                          int64_t number, void *work)
{
    block k = block_of(a, t, false, work);
    k.b = b;
    k.h = h;
    k.group = h / (a->heads / a->groups);
    k.row0 = number * ROWS;
    k.rows = SW_MIN(ROWS, a->rows - k.row0);
    pack_columns(at_of(t->q, &a->q, b, k.row0, h), a->q.t, k.rows, a->d, (float)a->scale, k.q_t);
    for (int r = 0; r < ROWS; r++) {
        k.top[r] = -INFINITY;
        k.total[r] = k.offset[r] = 0;
    }
    for (int64_t i = 0; i < KEYS * ROWS; i++) k.s[i] = 0; /* rows beyond the last are not computed */
    for (int64_t i = 0; i < k.rows * k.ld_e; i++) k.sum[i] = 0;
    const int64_t keys = a->causal ? SW_MIN(a->keys, k.row0 + k.rows) : a->keys;
    for (int64_t key0 = 0; key0 < keys; key0 += KEYS) {
        const int64_t n = SW_MIN(KEYS, keys - key0);
        scores(&k, key0, n);
        exponentials(&k, n);
        add_values(&k, key0, n);
    }
    store_rows(&k);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* Sums lane by lane, then halves of lanes: one by one they would wait for each other. */
static float inner_product(const float *x, const float *y, int64_t n)
{
    float lane[VL];
    vf sum = v_set(0);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) sum = v_fma(v_load(x + i), v_load(y + i), sum);
    v_store(lane, sum);
    UNROLL for (int width = VL / 2; width > 0; width /= 2)
    {
        UNROLL for (int l = 0; l < width; l++) lane[l] += lane[l + width];
    }
    for (; i < n; i++) lane[0] += x[i] * y[i];
    return lane[0];
}

/* What the block of rows needs of itself: q and dy both ways round, the log-sum-exp, sum(dy y). */
static void load_rows(block *k)
{
    const sw__attention *const a = k->a;
    const float *const q = at_of(k->t->q, &a->q, k->b, k->row0, k->h);
    const float *const dy = at_of(k->t->dy, &a->dy, k->b, k->row0, k->h);
    const float *const y = at_of(k->t->y, &a->y, k->b, k->row0, k->h);
    const float *const lse = (const float *)k->t->lse + k->b * a->lse_s[0] + k->h * a->lse_s[1] + k->row0 * a->lse_s[2];
    pack_columns(q, a->q.t, k->rows, a->d, (float)a->scale, k->q_t);
    pack_columns(dy, a->dy.t, k->rows, a->e, 1, k->dy_t);
    pack_rows(q, a->q.t, k->rows, a->d, (float)a->scale, k->q, k->ld_d);
    pack_rows(dy, a->dy.t, k->rows, a->e, 1, k->dy, k->ld_e);
    for (int64_t r = 0; r < ROWS; r++) k->offset[r] = k->inner[r] = 0;
    for (int64_t r = 0; r < k->rows; r++) {
        k->inner[r] = inner_product(dy + r * a->dy.t, y + r * a->y.t, a->e);
        k->offset[r] = lse[r * a->lse_s[2]] == -INFINITY ? 0 : lse[r * a->lse_s[2]]; /* e^(-inf - 0): no share */
    }
}

/* s: shares e^(score - lse); ds: shares times (dy v^T - sum(dy y)), without the scale. */
static void shares(const block *k, int64_t key0, int64_t n)
{
    const sw__attention *const a = k->a;
    const int64_t diagonal = key0 - k->row0;
    scores(k, key0, n);
    const product p = {.a = at_of(k->t->v, &a->v, k->b, key0, k->group), .ra = a->v.t, .ka = 1, .b = k->dy_t,
                       .kb = ROWS, .c = k->ds, .rc = ROWS, .rows = n, .cols = k->rows, .run = a->e, .room = ROWS,
                       .part = a->causal ? COLUMNS_FROM : ALL, .diagonal = diagonal};
    multiply(&p);
    for (int64_t j = 0; j < n; j++) {
        float *const s = k->s + j * ROWS, *const ds = k->ds + j * ROWS;
        const int64_t first = a->causal ? SW_MIN(at_least_0(j + diagonal), k->rows) : 0;
        for (int64_t r = 0; r < first; r++) s[r] = ds[r] = 0;
        for (int64_t r = first; r < k->rows; r++) {
            const float e = exp_f32(s[r] - k->offset[r]);
            s[r] = e;
            ds[r] = e * (ds[r] - k->inner[r]);
        }
    }
}

static void add_to_keys(const block *k, int64_t key0, int64_t n)
{
    const sw__attention *const a = k->a;
    const region part = a->causal ? SUMS_FROM : ALL;
    const int64_t diagonal = key0 - k->row0;
    float *const dk = (float *)k->t->dk + k->b * a->dk.b + key0 * a->dk.t + k->group * a->dk.h;
    float *const dv = (float *)k->t->dv + k->b * a->dv.b + key0 * a->dv.t + k->group * a->dv.h;
    const product to_v = {.a = k->s, .ra = ROWS, .ka = 1, .b = k->dy, .kb = k->ld_e, .c = dv, .rc = a->dv.t, .rows = n,
                          .cols = a->e, .run = k->rows, .room = k->ld_e, .add = true, .part = part,
                          .diagonal = diagonal};
    const product to_k = {.a = k->ds, .ra = ROWS, .ka = 1, .b = k->q, .kb = k->ld_d, .c = dk, .rc = a->dk.t, .rows = n,
                          .cols = a->d, .run = k->rows, .room = k->ld_d, .add = true, .part = part,
                          .diagonal = diagonal};
    multiply(&to_v);
    multiply(&to_k);
}

static void add_to_rows(const block *k, int64_t key0, int64_t n)
{
    const sw__attention *const a = k->a;
    const product p = {.a = k->ds, .ra = 1, .ka = ROWS, .b = at_of(k->t->k, &a->k, k->b, key0, k->group), .kb = a->k.t,
                       .c = k->sum, .rc = k->ld_d, .rows = k->rows, .cols = a->d, .run = n, .room = a->d, .add = true,
                       .part = a->causal ? SUMS_UP_TO : ALL, .diagonal = key0 - k->row0};
    multiply(&p);
}

static void backward_rows(block *k, const sw__attention_part *p)
{
    const sw__attention *const a = k->a;
    const int64_t last = a->causal ? SW_MIN(p->key1, k->row0 + k->rows) : p->key1;
    if (p->key0 >= last && !p->dq) return;
    load_rows(k);
    for (int64_t i = 0; i < k->rows * k->ld_d && p->dq; i++) k->sum[i] = 0;
    for (int64_t key0 = p->key0; key0 < last; key0 += KEYS) {
        const int64_t n = SW_MIN(KEYS, last - key0);
        shares(k, key0, n);
        if (p->dkv) add_to_keys(k, key0, n);
        if (p->dq) add_to_rows(k, key0, n);
    }
    for (int64_t r = 0; r < k->rows && p->dq; r++) {
        float *const dq = (float *)k->t->dq + k->b * a->dq.b + (k->row0 + r) * a->dq.t + k->h * a->dq.h;
        for (int64_t d = 0; d < a->d; d++) dq[d] = k->sum[r * k->ld_d + d] * (float)a->scale;
    }
}

void SW__SIMD_NAME(sw__attention_backward)(const sw__attention *a, const sw__attention_data *t,
                                           const sw__attention_part *p, void *work)
{
    block k = block_of(a, t, true, work);
    k.b = p->b;
    k.group = p->group;
    for (k.h = p->head0; k.h < p->head1; k.h++)
        for (k.row0 = p->row0; k.row0 < p->row1; k.row0 += ROWS) {
            k.rows = SW_MIN(ROWS, p->row1 - k.row0);
            backward_rows(&k, p);
        }
}
