/* wino.c: Winograd's convolution by blocks that fit the caches, see wino.h. Called by op_conv.c.
 *
 * Forward and data gradient: V [36][tiles][k] of a block of tiles, U [36][k][m] of the weights, M = V U at each point.
 *   by tiles:    U is made once; each thread takes blocks of tiles through all three stages. Where U is small.
 *   by channels: V of a block of many tiles is made together; each thread takes panels of channels out, makes U for
 *                them a chunk of channels in at a time, and it is used while it is in the cache. Where U is large.
 * Weight gradient: V and E [36][tiles][m] of a block of tiles together, then U = V^T E by blocks [k][m]: of all tiles
 * at once if they are few, else summed up over the blocks of tiles.
 * Every sum has its order from the shapes alone, so results do not depend on the number of threads. */
#include "backend/cpu/wino.h"
#include "backend/cpu/gemm.h"

#define LINE 16                 /* floats in a cache line */
#define CHUNK 128               /* channels in whose weights are transformed at a time */
#define CHUNK_GRAD 64           /* and whose gradients are */
#define BLOCK_BYTES (640 << 10) /* by tiles: of V and M together, for a thread's cache */
#define SHARED_BYTES (6 << 20)  /* of V (weight gradient: and E), for the cache of all */
#define WEIGHT_BYTES (3 << 20)  /* U that all threads may read again for each block of tiles */

static int64_t round_up(int64_t v, int64_t to)
{
    return (v + to - 1) / to * to;
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

bool sw__wino_can(const sw__conv *c)
{
    if (c->x[0] != 1 || c->w[0] != 1 || c->w[1] != 3 || c->w[2] != 3 || c->groups != 1) return false;
    for (int i = 1; i < 3; i++)
        if (c->stride[i] != 1 || c->dilation[i] != 1 || c->pad[i] > 2) return false;
    if (c->c % 16 != 0 || c->o % 16 != 0) return false;
    const int64_t *const to = c->direction == SW_DNN_GRAD_X ? c->x : c->y;
    const int64_t tiles = round_up(to[1], 4) / 4 * (round_up(to[2], 4) / 4);
    /* of the multiplications of plain sums at least twice as many as here, and each weight transformed used often */
    return 9 * to[1] * to[2] >= 2 * SW_WINO_POINTS * tiles && tiles * c->n >= 24;
}

static void describe(sw__wino *w, const sw__conv *c)
{
    const bool gx = c->direction == SW_DNN_GRAD_X;
    const int64_t *const from = gx ? c->y : c->x, *const to = gx ? c->x : c->y;
    *w = (sw__wino){ .direction = c->direction,
                     .relu = c->relu,
                     .n = c->n,
                     .k = gx ? c->o : c->c,
                     .m = gx ? c->c : c->o,
                     .from_h = from[1],
                     .from_w = from[2],
                     .to_h = to[1],
                     .to_w = to[2],
                     .pad_h = gx ? 2 - c->pad[1] : c->pad[1],
                     .pad_w = gx ? 2 - c->pad[2] : c->pad[2] };
    w->rows = (w->to_h + SW_WINO_OUT - 1) / SW_WINO_OUT;
    w->cols = (w->to_w + SW_WINO_OUT - 1) / SW_WINO_OUT;
    w->tiles = w->n * w->rows * w->cols;
}

/* Tiles a block, all blocks of about one size, so that `bytes_each` of them come to no more than `bytes`. */
static int64_t block_of(const sw__wino *w, size_t bytes, size_t bytes_each, int64_t step)
{
    const int64_t most = SW_MAX(step, (int64_t)(bytes / bytes_each) / step * step);
    const int64_t blocks = (w->tiles + most - 1) / most;
    return SW_MIN(w->tiles, round_up((w->tiles + blocks - 1) / blocks, step));
}

static int64_t chunk_of(const sw__wino *w)
{
    return SW_MIN(w->k, w->direction == SW_DNN_GRAD_W ? CHUNK_GRAD : CHUNK);
}

/* From one point's matrix to the next. An odd number of cache lines: all points of a tile are written in turn, and at
 * steps of 4 KB they would share a handful of lines of the cache. */
static int64_t step_of(int64_t rows, int64_t ld)
{
    return ((rows * ld + LINE - 1) / LINE | 1) * LINE;
}

static size_t floats(int64_t rows, int64_t ld)
{
    return (size_t)step_of(rows, ld) * SW_WINO_POINTS;
}

/* Room for a vector of channels out of a chunk of weights: as transforms take them, and in bf16 also as f32. */
static size_t packed_floats(const sw__wino *w)
{
    const int64_t vectors = w->direction == SW_DNN_GRAD_W ? 2 : 1;
    return (size_t)(9 * chunk_of(w) * sw__tile_shape_of(w->level).vl * vectors) * (w->half ? 2 : 1);
}

static void plan_images(sw__wino *w, int step)
{
    const size_t each = (size_t)(w->k + w->m) * SW_WINO_POINTS * sizeof(float);
    w->by_tiles = floats(w->k, w->m) * sizeof(float) <= WEIGHT_BYTES || w->panels < w->threads;
    const int64_t chunk = chunk_of(w);
    const size_t packed = packed_floats(w);
    if (w->by_tiles) {
        w->block = block_of(w, BLOCK_BYTES, each, step);
        w->weights = floats(w->k, w->width) * (size_t)w->panels;
        w->private_at = w->weights;
        w->private_size = SW_MAX(packed, floats(w->block, w->ld_v) + floats(w->block, w->ld_m));
    } else {
        w->block = block_of(w, SHARED_BYTES, (size_t)w->k * SW_WINO_POINTS * sizeof(float), step);
        w->weights = floats(w->block, w->ld_v); /* V lies first */
        w->private_at = w->weights;
        w->private_size = floats(chunk, w->width) + floats(w->block, w->width) + packed;
    }
}

static void plan_weights(sw__wino *w)
{
    const size_t each = (size_t)(w->k + w->m) * SW_WINO_POINTS * sizeof(float),
                 all = floats(w->k, w->m) * sizeof(float);
    const int64_t chunk = chunk_of(w), chunks = (w->k + chunk - 1) / chunk;
    w->once = each * (size_t)w->tiles <= all;
    w->block = w->once ? w->tiles : block_of(w, SHARED_BYTES / 2, each, 8);
    w->private_at = floats(w->block, w->ld_v) + floats(w->block, w->ld_m);
    w->weights = w->once ? 0 : floats(chunk, w->width) * (size_t)(chunks * w->panels);
    w->private_at += w->weights;
    w->private_size = packed_floats(w) + (w->once ? floats(chunk, w->width) : 0);
}

void sw__wino_plan(sw__wino *w, const sw__conv *c, bool half, sw__simd level, int threads)
{
    describe(w, c);
    w->half = half;
    w->level = level;
    w->threads = threads;
    const sw__tile_shape shape = sw__tile_shape_of(level);
    w->width = 2 * shape.vl;
    w->panels = (w->m + w->width - 1) / w->width;
    w->ld_v = w->k + LINE; /* rows a power of two apart would share few lines of the cache */
    w->ld_m = w->m + LINE;
    if (w->direction == SW_DNN_GRAD_W)
        plan_weights(w);
    else
        plan_images(w, shape.wide_rows);
    w->private_size = (size_t)round_up((int64_t)w->private_size, LINE);
    w->bias_at = w->private_at;
    if (half && c->bias) w->private_at += (size_t)round_up(w->m, LINE);
    w->bytes = (w->private_at + w->private_size * (size_t)threads) * sizeof(float);
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

typedef struct run {
    const sw__wino *w;
    char *from, *to, *weights;
    const float *bias;
    float *shared, *own; /* own: this thread's */
} run;

static int64_t element_size(const sw__wino *w)
{
    return w->half ? 2 : 4;
}

static sw__wino_tile tile_of(const run *r, int64_t tile, bool from)
{
    const sw__wino *const w = r->w;
    const int64_t in_image = tile % (w->rows * w->cols), image = tile / (w->rows * w->cols);
    const int64_t y = in_image / w->cols * SW_WINO_OUT, x = in_image % w->cols * SW_WINO_OUT;
    if (from)
        return (sw__wino_tile){ .image = r->from + image * w->from_h * w->from_w * w->k * element_size(w),
                                .half = w->half,
                                .h = w->from_h,
                                .w = w->from_w,
                                .row = w->from_w * w->k,
                                .pixel = w->k,
                                .y = y - w->pad_h,
                                .x = x - w->pad_w };
    return (sw__wino_tile){ .image = r->to + image * w->to_h * w->to_w * w->m * element_size(w),
                            .half = w->half,
                            .h = w->to_h,
                            .w = w->to_w,
                            .row = w->to_w * w->m,
                            .pixel = w->m,
                            .y = y,
                            .x = x };
}

static void make_v(const run *r, int64_t tile, float *v)
{
    const sw__wino_tile t = tile_of(r, tile, true);
    SW__SIMD_PICK(r->w->level, sw__wino_source)(&t, r->w->k, v, step_of(r->w->block, r->w->ld_v));
}

static void make_e(const run *r, int64_t tile, float *e)
{
    const sw__wino_tile t = tile_of(r, tile, false);
    SW__SIMD_PICK(r->w->level, sw__wino_spread)(&t, r->w->m, e, step_of(r->w->block, r->w->ld_m));
}

/* Channels [m0, m0 + count) of a tile's results; at each point they lie `step` apart. */
static void make_result(const run *r, int64_t tile, int64_t m0, int64_t count, const float *from, int64_t step)
{
    sw__wino_tile t = tile_of(r, tile, false);
    t.image = (char *)t.image + m0 * element_size(r->w);
    SW__SIMD_PICK(r->w->level, sw__wino_result)
    (&t, count, from, step, r->bias != NULL ? r->bias + m0 : NULL, r->w->relu);
}

static int64_t panel_columns(const sw__wino *w, int64_t panel)
{
    return SW_MIN(w->width, w->m - panel * w->width);
}

/* `rows` of n weights, `ld` apart, from element `at` on: to [n][rows]. wide: room for f32 copies of bf16. */
static void pack_weights(const run *r, int64_t at, int64_t ld, int rows, int64_t n, float *to, float *wide)
{
    const sw__wino *const w = r->w;
    const float *from = (const float *)(const void *)r->weights + at;
    if (w->half) {
        const bool together = ld == n; /* then one by one they may end amid a vector, and the last one amid nothing */
        const int64_t pieces = together ? 1 : rows, size = together ? rows * n : n;
        for (int64_t i = 0; i < pieces; i++) SW__SIMD_PICK(w->level, sw__wino_widen)
        ((const uint16_t *)(const void *)r->weights + at + i * ld, size, wide + i * n);
        from = wide;
        ld = n;
    }
    SW__SIMD_PICK(w->level, sw__transpose)(from, ld, rows, n, to, rows);
}

/* U of a panel's channels out and `count` channels in from k0 on, to [point][channel in][width]; packed: room. */
static void make_u(const run *r, int64_t panel, int64_t k0, int64_t count, float *u, int64_t step, float *packed)
{
    const sw__wino *const w = r->w;
    const int vl = sw__tile_shape_of(w->level).vl;
    const bool flip = w->direction == SW_DNN_GRAD_X;
    float *const wide = packed + 9 * chunk_of(w) * vl;
    for (int64_t v = 0; v < panel_columns(w, panel); v += vl) {
        const int64_t m = panel * w->width + v;
        for (int64_t k = 0; k < count && flip; k++)
            pack_weights(r, ((k0 + k) * w->m + m) * 9, 9, vl, 9, packed + k * 9 * vl, wide);
        if (!flip) pack_weights(r, (m * w->k + k0) * 9, 9 * w->k, vl, 9 * count, packed, wide);
        SW__SIMD_PICK(w->level, sw__wino_weights)(packed, count, flip, u + v, step, w->width);
    }
}

/* c [rows, cols] (+)= a b, cols at most two vectors, by tiles of about as many rows each. */
static void product(const sw__wino *w, int64_t rows, int64_t cols, int64_t k, sw__tile t)
{
    const int64_t most = sw__tile_shape_of(w->level).wide_rows, parts = (rows + most - 1) / most;
    t.runs = 1;
    t.run = k;
    t.cols = (int)cols;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t at = rows * i / parts;
        sw__tile part = t;
        part.rows = (int)(rows * (i + 1) / parts - at);
        part.a += at * t.ra;
        part.c += at * t.rc;
        SW__SIMD_PICK(w->level, sw__tile_run)(&part);
    }
}

/* ---- forward and data gradient, by tiles ------------------------------------------------------------------------- */

static void tiles_weights(const run *r, int64_t task)
{
    const sw__wino *const w = r->w;
    const int64_t chunk = chunk_of(w), chunks = (w->k + chunk - 1) / chunk;
    const int64_t panel = task / chunks, k0 = task % chunks * chunk;
    float *const u = r->shared + panel * SW_WINO_POINTS * step_of(w->k, w->width) + k0 * w->width;
    make_u(r, panel, k0, SW_MIN(chunk, w->k - k0), u, step_of(w->k, w->width), r->own);
}

static void tiles_block(const run *r, int64_t first)
{
    const sw__wino *const w = r->w;
    const int64_t count = SW_MIN(w->block, w->tiles - first), step_u = step_of(w->k, w->width);
    const int64_t step_v = step_of(w->block, w->ld_v), step_m = step_of(w->block, w->ld_m);
    float *const v = r->own, *const m = v + floats(w->block, w->ld_v);
    for (int64_t t = 0; t < count; t++) make_v(r, first + t, v + t * w->ld_v);
    for (int64_t p = 0; p < SW_WINO_POINTS; p++)
        for (int64_t panel = 0; panel < w->panels; panel++)
            product(w, count, panel_columns(w, panel), w->k,
                    (sw__tile){ .a = v + p * step_v,
                                .ra = w->ld_v,
                                .ka = 1,
                                .b = r->shared + (panel * SW_WINO_POINTS + p) * step_u,
                                .kb = w->width,
                                .c = m + p * step_m + panel * w->width,
                                .rc = w->ld_m });
    for (int64_t t = 0; t < count; t++) make_result(r, first + t, 0, w->m, m + t * w->ld_m, step_m);
}

static void run_by_tiles(const run *r)
{
    const sw__wino *const w = r->w;
    const int64_t chunk = chunk_of(w), tasks = w->panels * ((w->k + chunk - 1) / chunk);
    const int64_t blocks = (w->tiles + w->block - 1) / w->block;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < tasks; i++) tiles_weights(r, i);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks; i++) tiles_block(r, i * w->block);
}

/* ---- forward and data gradient, by channels ---------------------------------------------------------------------- */

static void channels_panel(const run *r, int64_t first, int64_t count, int64_t panel)
{
    const sw__wino *const w = r->w;
    const int64_t chunk = chunk_of(w), step_v = step_of(w->block, w->ld_v);
    const int64_t step_u = step_of(chunk, w->width), step_m = step_of(w->block, w->width);
    float *const u = r->own, *const m = u + floats(chunk, w->width), *const packed = m + floats(w->block, w->width);
    for (int64_t k0 = 0; k0 < w->k; k0 += chunk) {
        const int64_t ks = SW_MIN(chunk, w->k - k0);
        make_u(r, panel, k0, ks, u, step_u, packed);
        for (int64_t p = 0; p < SW_WINO_POINTS; p++)
            product(w, count, panel_columns(w, panel), ks,
                    (sw__tile){ .a = r->shared + p * step_v + k0,
                                .ra = w->ld_v,
                                .ka = 1,
                                .b = u + p * step_u,
                                .kb = w->width,
                                .c = m + p * step_m,
                                .rc = w->width,
                                .add = k0 > 0 });
    }
    for (int64_t t = 0; t < count; t++)
        make_result(r, first + t, panel * w->width, panel_columns(w, panel), m + t * w->width, step_m);
}

static void run_by_channels(const run *r)
{
    const sw__wino *const w = r->w;
    for (int64_t first = 0; first < w->tiles; first += w->block) {
        const int64_t count = SW_MIN(w->block, w->tiles - first);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < count; t++) make_v(r, first + t, r->shared + t * w->ld_v);
#pragma omp for schedule(static)
        for (int64_t p = 0; p < w->panels; p++) channels_panel(r, first, count, p);
    }
}

/* ---- weight gradient --------------------------------------------------------------------------------------------- */

/* Points [p0, p1) of the gradient of a chunk of channels in and a panel of channels out, [point][chunk][width]. */
static void weights_products(const run *r, int64_t block, int64_t p0, int64_t p1, int64_t count, bool add, float *u)
{
    const sw__wino *const w = r->w;
    const int64_t chunk = chunk_of(w), k0 = block / w->panels * chunk, panel = block % w->panels;
    const int64_t step_v = step_of(w->block, w->ld_v), step_e = step_of(w->block, w->ld_m),
                  step_u = step_of(chunk, w->width);
    const float *const v = r->shared + k0, *const e = r->shared + floats(w->block, w->ld_v) + panel * w->width;
    for (int64_t p = p0; p < p1; p++)
        product(w, SW_MIN(chunk, w->k - k0), panel_columns(w, panel), count,
                (sw__tile){ .a = v + p * step_v,
                            .ra = 1,
                            .ka = w->ld_v,
                            .b = e + p * step_e,
                            .kb = w->ld_m,
                            .c = u + p * step_u,
                            .rc = w->width,
                            .add = add });
}

/* From points to the model's weights; packed: room. */
static void weights_finish(const run *r, int64_t block, const float *u, float *packed)
{
    const sw__wino *const w = r->w;
    const int64_t chunk = chunk_of(w), k0 = block / w->panels * chunk, panel = block % w->panels;
    const int64_t count = SW_MIN(chunk, w->k - k0), cols = panel_columns(w, panel);
    for (int64_t v = 0; v < cols; v += sw__tile_shape_of(w->level).vl) SW__SIMD_PICK(w->level, sw__wino_weight_grads)
    (u + v, step_of(chunk, w->width), w->width, count, packed + v, w->width);
    const int64_t at = (panel * w->width * w->k + k0) * 9, n = 9 * count;
    float *const to = (float *)(void *)r->weights + at, *const wide = packed + 9 * chunk * w->width;
    SW__SIMD_PICK(w->level, sw__transpose)(packed, w->width, n, cols, w->half ? wide : to, w->half ? n : 9 * w->k);
    for (int64_t i = 0; i < cols && w->half; i++)
        SW__SIMD_PICK(w->level, sw__wino_narrow)(wide + i * n, n, (uint16_t *)(void *)r->weights + at + i * 9 * w->k);
}

static void run_weights(const run *r)
{
    const sw__wino *const w = r->w;
    const int64_t chunk = chunk_of(w), blocks = (w->k + chunk - 1) / chunk * w->panels;
    const int64_t size = (int64_t)floats(chunk, w->width);
    float *const v = r->shared, *const e = v + floats(w->block, w->ld_v), *const sums = e + floats(w->block, w->ld_m);
    float *const room = r->own, *const packed = w->once ? room + size : room;
    for (int64_t first = 0; first < w->tiles; first += w->block) {
        const int64_t count = SW_MIN(w->block, w->tiles - first);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < 2 * count; t++) {
            if (t < count)
                make_v(r, first + t, v + t * w->ld_v);
            else
                make_e(r, first + t - count, e + (t - count) * w->ld_m);
        }
        if (w->once) break;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < blocks * SW_WINO_POINTS; i++)
            weights_products(r, i % blocks, i / blocks, i / blocks + 1, count, first > 0, sums + i % blocks * size);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks; i++) {
        if (w->once) weights_products(r, i, 0, SW_WINO_POINTS, w->tiles, false, room);
        weights_finish(r, i, w->once ? room : sums + i * size, packed);
    }
}

void sw__wino_run(const sw__wino *w, void *x, void *weights, const void *bias, void *y, float *workspace)
{
    const bool gx = w->direction == SW_DNN_GRAD_X;
    if (w->half && bias != NULL) {
        SW__SIMD_PICK(w->level, sw__wino_widen)(bias, w->m, workspace + w->bias_at);
        bias = workspace + w->bias_at;
    }
#pragma omp parallel num_threads(w->threads) if (w->threads > 1)
    {
        const run r = { .w = w,
                        .from = gx ? y : x,
                        .to = gx ? x : y,
                        .weights = weights,
                        .bias = bias,
                        .shared = workspace,
                        .own = workspace + w->private_at + w->private_size * (size_t)sw__cpu_thread() };
        if (w->direction == SW_DNN_GRAD_W)
            run_weights(&r);
        else if (w->by_tiles)
            run_by_tiles(&r);
        else
            run_by_channels(&r);
    }
}
