/* gemm.c: see gemm.h. Matrix product in plain loops: for f64, and for strides that nothing faster takes.
 * Called by op_matmul.c. */
#include "backend/cpu/gemm.h"

/* Where row `row` (over all batches) of each operand starts. */
typedef struct row_at { int64_t a, b, c; } row_at;

static row_at locate(const sw__gemm *g, int64_t row)
{
    const int64_t m = row % g->m;
    int64_t rest = row / g->m;
    row_at at = {m * g->am, 0, m * g->cm};
    for (int i = g->rank - 1; i >= 0; i--) {
        const int64_t d = rest % g->batch[i];
        rest /= g->batch[i];
        at.a += d * g->as[i];
        at.b += d * g->bs[i];
        at.c += d * g->cs[i];
    }
    return at;
}

static int64_t rows_of(const sw__gemm *g)
{
    int64_t rows = g->m;
    for (int i = 0; i < g->rank; i++) rows *= g->batch[i];
    return rows;
}

#define DEFINE_ROW(T)                                                                                                  \
    static void row_##T(const sw__gemm *g, const T *a, const T *b, const T *bias, T *c)                                \
    {                                                                                                                  \
        for (int64_t n = 0; n < g->n; n++) c[n * g->cn] = bias != NULL ? bias[n * g->bias_stride] : 0;                 \
        if (g->bn == 1 && g->cn == 1) {                                                                                \
            for (int64_t k = 0; k < g->k; k++) {                                                                       \
                const T v = a[k * g->ak];                                                                              \
                const T *const from = b + k * g->bk;                                                                   \
                for (int64_t n = 0; n < g->n; n++) c[n] += v * from[n];                                                \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t n = 0; n < g->n; n++) {                                                                       \
                T sum = c[n * g->cn];                                                                                  \
                for (int64_t k = 0; k < g->k; k++) sum += a[k * g->ak] * b[k * g->bk + n * g->bn];                     \
                c[n * g->cn] = sum;                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
        for (int64_t n = 0; n < g->n && g->relu; n++) c[n * g->cn] = c[n * g->cn] < 0 ? 0 : c[n * g->cn];              \
    }
DEFINE_ROW(float)
DEFINE_ROW(double)

void sw__gemm_loops(const sw__gemm *g, sw_dtype t, const void *a, const void *b, const void *bias, void *c,
                    int threads)
{
    const int64_t rows = rows_of(g);
    const double work = (double)rows * (double)g->n * (double)(g->k + 1);
    const int n_threads = work < 20000.0 ? 1 : threads;
#pragma omp parallel for num_threads(n_threads) schedule(static) if (n_threads > 1)
    for (int64_t r = 0; r < rows; r++) {
        const row_at at = locate(g, r);
        if (t == SW_F64)
            row_double(g, (const double *)a + at.a, (const double *)b + at.b, bias, (double *)c + at.c);
        else row_float(g, (const float *)a + at.a, (const float *)b + at.b, bias, (float *)c + at.c);
    }
}
