/* gemv_simd.c: see gemv.h. Compiled once per instruction set. Called by op_matmul.c. */
#include "backend/cpu/gemv.h"
#include "backend/cpu/simd_vec.h"

#define INLINE static inline __attribute__((always_inline))
#define ROWS 4    /* at a time: each load of x serves so many */
#define VECTORS 4 /* of columns at a time: so many sums hide each other's latency */

static inline float finish(const sw__gemv *g, int64_t n, float sum)
{
    const float y = g->bias != NULL ? sum + g->bias[n] : sum;
    return g->relu && y < 0 ? 0 : y;
}

/* Two sums a row: the same additions in the same order for one row as for ROWS. */
INLINE void rows(const sw__gemv *g, int64_t n, const int R)
{
    vf sum[ROWS][2];
    UNROLL for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = v_set(0);
    const float *w[ROWS];
    UNROLL for (int r = 0; r < R; r++) w[r] = g->w + (n + r) * g->ld;
    int64_t k = 0;
    for (; k + 2 * VL <= g->k; k += 2 * VL) {
        const vf x0 = v_load(g->x + k), x1 = v_load(g->x + k + VL);
        UNROLL for (int r = 0; r < R; r++)
        {
            sum[r][0] = v_fma(v_load(w[r] + k), x0, sum[r][0]);
            sum[r][1] = v_fma(v_load(w[r] + k + VL), x1, sum[r][1]);
        }
    }
    for (; k < g->k; k += VL) {
        const vmask m = v_first(g->k - k);
        const vf x = v_load_some(g->x + k, m);
        UNROLL for (int r = 0; r < R; r++) sum[r][0] = v_fma(v_load_some(w[r] + k, m), x, sum[r][0]);
    }
    UNROLL for (int r = 0; r < R; r++) g->y[n + r] = finish(g, n + r, v_total(v_add(sum[r][0], sum[r][1])));
}

void SW__SIMD_NAME(sw__gemv_rows)(const sw__gemv *g, int64_t n0, int64_t n1)
{
    int64_t n = n0;
    for (; n + ROWS <= n1; n += ROWS) rows(g, n, ROWS);
    for (; n < n1; n++) rows(g, n, 1);
}

INLINE void columns(const sw__gemv *g, int64_t n, int64_t count, const int V)
{
    const vmask last = v_first(count - (V - 1) * VL);
    vf sum[VECTORS];
    UNROLL for (int v = 0; v < V; v++) sum[v] = v_set(0);
    const float *w = g->w + n;
    for (int64_t k = 0; k < g->k; k++, w += g->ld) {
        const vf x = v_set(g->x[k]);
        UNROLL for (int v = 0; v < V; v++)
            sum[v] = v_fma(x, v < V - 1 ? v_load(w + v * VL) : v_load_some(w + v * VL, last), sum[v]);
    }
    UNROLL for (int v = 0; v < V; v++)
    {
        const vmask m = v < V - 1 ? v_first(VL) : last;
        if (g->bias != NULL) sum[v] = v_add(sum[v], v_load_some(g->bias + n + v * VL, m));
        v_store_some(g->y + n + v * VL, m, g->relu ? v_relu(sum[v]) : sum[v]);
    }
}

void SW__SIMD_NAME(sw__gemv_columns)(const sw__gemv *g, int64_t n0, int64_t n1)
{
    int64_t n = n0;
    for (; n + (VECTORS - 1) * VL < n1; n += VECTORS * VL) columns(g, n, n1 - n < VECTORS * VL ? n1 - n : VECTORS * VL, VECTORS);
    for (; n < n1; n += VL) columns(g, n, n1 - n < VL ? n1 - n : VL, 1);
}
