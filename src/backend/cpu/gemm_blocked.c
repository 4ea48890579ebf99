/* gemm_blocked.c: matrix products by blocks that fit the caches, over the tiles of gemm_simd.c; see gemm.h.
 * The scheme of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"

#define BLOCK_N 512     /* columns of b copied at a time, shared by all threads */
#define BLOCK_TILES 6   /* tiles of rows of a copied at a time by a thread */
#define BLOCK_K 512

typedef struct sizes {
    int rows, width;          /* of a tile */
    int64_t block_m, block_n; /* multiples of those */
    int64_t parts;            /* a block of b is cut into so many for threads, where m alone gives too few tasks */
    size_t a_bytes, b_bytes;
} sizes;

static sizes sizes_of(const sw__blocked *g, sw__simd level, int threads)
{
    const sw__tile_shape shape = sw__tile_shape_of(level);
    sizes s = {.rows = shape.wide_rows, .width = 2 * shape.vl};
    const int64_t panels = (SW_MIN(g->n, BLOCK_N) + s.width - 1) / s.width;
    s.block_n = panels * s.width;
    const int64_t tiles = (g->m + s.rows - 1) / s.rows;
    s.block_m = SW_MAX(1, SW_MIN(BLOCK_TILES, (tiles + threads - 1) / threads)) * s.rows;
    const int64_t blocks = (g->m + s.block_m - 1) / s.block_m;
    s.parts = SW_MIN(panels, (threads + blocks - 1) / blocks);
    s.a_bytes = sw__cpu_align((size_t)(SW_MIN(s.block_m, g->m) * g->kc) * sizeof(float));
    s.b_bytes = sw__cpu_align((size_t)(s.block_n * g->kc) * sizeof(float));
    return s;
}

size_t sw__blocked_workspace(const sw__blocked *g, sw__simd level, int threads)
{
    const sizes s = sizes_of(g, level, threads);
    return s.b_bytes + s.a_bytes * (size_t)threads;
}

/* One block of c: rows [m0, m1), panels [p0, p1) of the block of b that starts at column n0. */
static void block(const sw__blocked *g, sw__simd level, const sizes *s, int64_t m0, int64_t m1, int64_t n0, int64_t p0,
                  int64_t p1, int64_t k0, int64_t count, const float *bias,
                  float *c, /* NOLINT(readability-non-const-parameter): tiles write through it */
                  float *a, const float *b)
{
    float *to = a;
    for (int64_t m = m0; m < m1; m += s->rows) {
        const int rows = (int)SW_MIN(s->rows, m1 - m);
        g->pack_a(g->ctx, m, rows, k0, count, to);
        to += rows * count;
    }
    const bool last = k0 + count >= g->k;
    for (int64_t p = p0; p < p1; p++) {
        const int64_t n = n0 + p * s->width;
        const float *from = a;
        for (int64_t m = m0; m < m1; m += s->rows) {
            const int rows = (int)SW_MIN(s->rows, m1 - m);
            const sw__tile t = {.a = from, .b = b + p * s->width * count, .c = c + m * g->cm + n, .ra = 1, .ka = rows,
                                .kb = s->width, .rc = g->cm, .runs = 1, .run = count, .rows = rows,
                                .cols = (int)SW_MIN(s->width, g->n - n), .bias = bias != NULL ? bias + n : NULL,
                                .add = k0 > 0, .relu = last && g->relu};
            SW__SIMD_PICK(level, sw__tile_run)(&t);
            from += rows * count;
        }
    }
}

void sw__blocked_run(const sw__blocked *g, sw__simd level, int threads, const float *bias, float *c, void *workspace)
{
    const sizes s = sizes_of(g, level, threads);
    float *const b = workspace;
    const int64_t blocks = (g->m + s.block_m - 1) / s.block_m;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *const a = (float *)(void *)((char *)workspace + s.b_bytes + s.a_bytes * (size_t)sw__cpu_thread());
        for (int64_t n0 = 0; n0 < g->n; n0 += s.block_n)
            for (int64_t k0 = 0; k0 < g->k; k0 += g->kc) {
                const int64_t count = SW_MIN(g->kc, g->k - k0);
                const int64_t panels = (SW_MIN(s.block_n, g->n - n0) + s.width - 1) / s.width;
#pragma omp for schedule(static)
                for (int64_t p = 0; p < panels; p++) {
                    const int64_t n = n0 + p * s.width;
                    g->pack_b(g->ctx, n, (int)SW_MIN(s.width, g->n - n), s.width, k0, count, b + p * s.width * count);
                }
#pragma omp for schedule(static)
                for (int64_t i = 0; i < blocks * s.parts; i++) {
                    const int64_t m0 = i / s.parts * s.block_m, part = i % s.parts;
                    block(g, level, &s, m0, SW_MIN(m0 + s.block_m, g->m), n0, panels * part / s.parts,
                          panels * (part + 1) / s.parts, k0, count, bias, c, a, b);
                }
            }
    }
}

/* ---- products of strided matrices -------------------------------------------------------------------------------- */

typedef struct matrices {
    const float *a, *b;
    int64_t am, ak, bk, bn;
    sw__simd level;
} matrices;

static void pack_a(const void *ctx, int64_t m0, int rows, int64_t k0, int64_t count, float *to)
{
    const matrices *const x = ctx;
    const float *const a = x->a + m0 * x->am + k0 * x->ak;
    if (x->am == 1) SW__SIMD_PICK(x->level, sw__copy_rows)(a, x->ak, count, rows, to, rows);
    else if (x->ak == 1) SW__SIMD_PICK(x->level, sw__transpose)(a, x->am, rows, count, to, rows);
    else
        for (int r = 0; r < rows; r++)
            for (int64_t k = 0; k < count; k++) to[k * rows + r] = a[r * x->am + k * x->ak];
}

static void pack_b(const void *ctx, int64_t n0, int cols, int width, int64_t k0, int64_t count, float *to)
{
    const matrices *const x = ctx;
    const float *const b = x->b + n0 * x->bn + k0 * x->bk;
    if (x->bn == 1) {
        SW__SIMD_PICK(x->level, sw__copy_rows)(b, x->bk, count, cols, to, width);
        return;
    }
    if (cols < width) memset(to, 0, (size_t)(count * width) * sizeof *to);
    if (x->bk == 1) SW__SIMD_PICK(x->level, sw__transpose)(b, x->bn, cols, count, to, width);
    else
        for (int j = 0; j < cols; j++)
            for (int64_t k = 0; k < count; k++) to[k * width + j] = b[j * x->bn + k * x->bk];
}

/* The same product with rows and columns exchanged, for a result whose columns are contiguous. */
static sw__gemm exchanged(const sw__gemm *g)
{
    sw__gemm t = *g;
    t.matrices = sw__matrices_transposed(&g->matrices);
    return t;
}

bool sw__gemm_own_can(const sw__gemm *g)
{
    return g->k > 0 && ((g->cn == 1 && (!g->bias || g->bias_stride == 1)) || (g->cm == 1 && !g->bias));
}

static sw__blocked blocked_of(const sw__gemm *g)
{
    const int64_t blocks = (g->k + BLOCK_K - 1) / BLOCK_K;
    return (sw__blocked){.m = g->m, .n = g->n, .k = g->k, .kc = (g->k + blocks - 1) / blocks, .pack_a = pack_a,
                         .pack_b = pack_b, .cm = g->cm, .relu = g->relu};
}

size_t sw__gemm_own_workspace(const sw__gemm *g, sw__simd level, int threads)
{
    const sw__gemm t = g->cn == 1 ? *g : exchanged(g);
    const sw__blocked b = blocked_of(&t);
    return sw__blocked_workspace(&b, level, threads);
}

void sw__gemm_own(const sw__gemm *g, sw__simd level, int threads, const float *a, const float *b, const float *bias,
                  float *c, void *workspace)
{
    const bool swap = g->cn != 1;
    const sw__gemm t = swap ? exchanged(g) : *g;
    int64_t batches = 1;
    for (int i = 0; i < t.rank; i++) batches *= t.batch[i];
    for (int64_t e = 0; e < batches; e++) {
        int64_t rest = e, ao = 0, bo = 0, co = 0;
        for (int i = t.rank - 1; i >= 0; i--) {
            ao += rest % t.batch[i] * t.as[i];
            bo += rest % t.batch[i] * t.bs[i];
            co += rest % t.batch[i] * t.cs[i];
            rest /= t.batch[i];
        }
        const matrices x = {(swap ? b : a) + ao, (swap ? a : b) + bo, t.am, t.ak, t.bk, t.bn, level};
        sw__blocked g1 = blocked_of(&t);
        g1.ctx = &x;
        sw__blocked_run(&g1, level, threads, bias, c + co, workspace);
    }
}
