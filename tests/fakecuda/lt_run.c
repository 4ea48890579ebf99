/* lt_run.c: the rules and the arithmetic of the fake cuBLASLt: D = act(alpha op(A) op(B) + beta C + bias), columns
 * first. Matrices are read into f32 (f64: double), TF32 and 16-bit types as they are rounded; sums are kept in f32. */
#include "fake_lt.h"

#include <stdlib.h>
#include <time.h>

static const struct {
    uint32_t type;
    fk_type t;
} types[] = {
    { CUDA_R_32F, FK_F32 },
    { CUDA_R_64F, FK_F64 },
    { CUDA_R_16F, FK_F16 },
    { CUDA_R_16BF, FK_BF16 },
};

fk_type fk_lt_type(uint32_t type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) return types[i].t;
    return FK_F32;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static bool known_types(const fk_lt_problem *p)
{
    static const struct {
        uint32_t type;
        int32_t compute, scale;
    } allowed[] = {
        { CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F },  { CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F },
        { CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F },  { CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F },
        { CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F },
    };
    bool good = false;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        good |= allowed[i].type == p->layout[3].type && allowed[i].compute == p->desc.compute &&
                allowed[i].scale == p->desc.scale;
    for (int i = 0; i < 4; i++)
        good &= p->layout[i].type == p->layout[3].type && p->layout[i].order == CUBLASLT_ORDER_COL;
    return good;
}

cublasStatus_t fk_lt_check(const fk_lt_problem *p)
{
    const fk_lt_layout *const l = p->layout, *const d = &l[3];
    const bool ta = p->desc.trans[0] != CUBLAS_OP_N, tb = p->desc.trans[1] != CUBLAS_OP_N;
    const uint64_t m = ta ? l[0].cols : l[0].rows, k = ta ? l[0].rows : l[0].cols;
    const uint64_t kb = tb ? l[1].cols : l[1].rows, n = tb ? l[1].rows : l[1].cols;
    bool good = m == d->rows && n == d->cols && k == kb && l[2].rows == d->rows && l[2].cols == d->cols;
    for (int i = 0; i < 4; i++) good &= l[i].ld >= (int64_t)l[i].rows && l[i].batches == d->batches;
    good &= d->batches == 1 || d->step != 0;
    if (!good) {
        fk.report("cublasLt: matrices that do not fit: A %llu x %llu, B %llu x %llu, D %llu x %llu, leading %lld, "
                  "%lld, %lld, "
                  "batches %d, %d, %d",
                  (unsigned long long)m, (unsigned long long)k, (unsigned long long)kb, (unsigned long long)n,
                  (unsigned long long)d->rows, (unsigned long long)d->cols, (long long)l[0].ld, (long long)l[1].ld,
                  (long long)d->ld, l[0].batches, l[1].batches, d->batches);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const uint32_t e = p->desc.epilogue;
    const bool simple = e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_RELU || e == CUBLASLT_EPILOGUE_BIAS ||
                        e == CUBLASLT_EPILOGUE_RELU_BIAS;
    return known_types(p) && simple && p->desc.bias_type == -1 && p->desc.pointer_mode == 0
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static uint64_t of_batch(const fk_lt_layout *l, uint64_t at, int z, size_t size)
{
    return at + (uint64_t)((int64_t)size * l->step * z);
}

/* op(matrix) into out[row * cols + col] or, by_col, out[col * rows + row]. */
static bool read_matrix(const fk_lt_layout *l, uint64_t at, bool transposed, bool tf32, bool by_col, double *out,
                        const char *who)
{
    const fk_type t = fk_lt_type(l->type);
    const size_t size = fk_size(t);
    const uint64_t rows = transposed ? l->cols : l->rows, cols = transposed ? l->rows : l->cols;
    for (uint64_t j = 0; j < l->cols; j++) {
        const char *const column = fk.map(at + j * (uint64_t)l->ld * size, l->rows * size, false, who);
        if (column == NULL) return false;
        for (uint64_t i = 0; i < l->rows; i++) {
            const double v = fk_load(t, column + i * size);
            const uint64_t r = transposed ? j : i, c = transposed ? i : j;
            out[by_col ? c * rows + r : r * cols + c] = tf32 ? (double)fk_tf32((float)v) : v;
        }
    }
    return true;
}

/* Algorithms add up in orders of their own, at the end of a sum. */
static double total(const float f[8], int algorithm)
{
    if (algorithm == 2) return (double)(((f[0] + f[4]) + (f[1] + f[5])) + ((f[2] + f[6]) + (f[3] + f[7])));
    if (algorithm == 3) return (double)(f[7] + f[6] + f[5] + f[4] + f[3] + f[2] + f[1] + f[0]);
    return (double)((f[0] + f[1]) + (f[2] + f[3]) + ((f[4] + f[5]) + (f[6] + f[7])));
}

static double dot(const double *a, const double *b, uint64_t k, bool wide, int algorithm)
{
    double d[4] = { 0 };
    float f[8] = { 0 };
    uint64_t i = 0;
    if (wide) {
        for (; i + 4 <= k; i += 4)
            for (int e = 0; e < 4; e++) d[e] += a[i + (uint64_t)e] * b[i + (uint64_t)e];
        for (; i < k; i++) d[0] += a[i] * b[i];
        return d[0] + d[1] + (d[2] + d[3]);
    }
    for (; i + 8 <= k; i += 8)
        for (int e = 0; e < 8; e++) f[e] += (float)(a[i + (uint64_t)e] * b[i + (uint64_t)e]);
    for (; i < k; i++) f[0] += (float)(a[i] * b[i]);
    return total(f, algorithm);
}

/* One column of D: C first, since it may be the same memory. */
static bool write_column(const fk_lt_job *job, uint64_t j, int z, const double *sums, const double *bias)
{
    const fk_lt_layout *const c = &job->p.layout[2], *const d = &job->p.layout[3];
    const fk_type t = fk_lt_type(d->type);
    const size_t size = fk_size(t);
    const uint64_t c_at = of_batch(c, job->at[2], z, size) + j * (uint64_t)c->ld * size;
    const uint64_t d_at = of_batch(d, job->at[3], z, size) + j * (uint64_t)d->ld * size;
    const char *const old = job->beta != 0 ? fk.map(c_at, d->rows * size, false, "cublasLtMatmul: C") : NULL;
    char *const out = fk.map(d_at, d->rows * size, true, "cublasLtMatmul: D");
    if (out == NULL || (job->beta != 0 && old == NULL)) return false;
    for (uint64_t i = 0; i < d->rows; i++) {
        double v =
            job->alpha * sums[i] + (old != NULL ? job->beta * fk_load(t, old + i * size) : 0) + (bias ? bias[i] : 0);
        if (job->p.desc.epilogue & CUBLASLT_EPILOGUE_RELU) v = v > 0 ? v : 0; /* as CUDA's fmax: NaN becomes 0 */
        fk_store(t, out + i * size, v);
    }
    return true;
}

static bool one_batch(const fk_lt_job *job, int z, double *a, double *b, double *sums, const double *bias)
{
    const fk_lt_layout *const l = job->p.layout, *const d = &l[3];
    const fk_type t = fk_lt_type(d->type);
    const bool tf32 = job->p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32, ta = job->p.desc.trans[0] != CUBLAS_OP_N;
    const uint64_t k = ta ? l[0].rows : l[0].cols;
    const size_t size = fk_size(t);
    if (!read_matrix(&l[0], of_batch(&l[0], job->at[0], z, size), ta, tf32, false, a, "cublasLtMatmul: A") ||
        !read_matrix(&l[1], of_batch(&l[1], job->at[1], z, size), job->p.desc.trans[1] != CUBLAS_OP_N, tf32, true, b,
                     "cublasLtMatmul: B"))
        return false;
    for (uint64_t j = 0; j < d->cols; j++) {
        for (uint64_t i = 0; i < d->rows; i++)
            sums[i] = dot(a + i * k, b + j * k, k, t == FK_F64, job->algorithm);
        if (!write_column(job, j, z, sums, bias)) return false;
    }
    return true;
}

void fk_lt_run(void *data)
{
    const fk_lt_job *const job = data;
    const fk_lt_layout *const l = job->p.layout, *const d = &l[3];
    const fk_type t = fk_lt_type(d->type);
    double *const a = malloc(l[0].rows * l[0].cols * sizeof *a), *const b = malloc(l[1].rows * l[1].cols * sizeof *b);
    double *const sums = malloc(d->rows * sizeof *sums), *const bias = malloc(d->rows * sizeof *bias);
    const bool biased = (job->p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    if (job->slow) (void)nanosleep(&(struct timespec){ .tv_nsec = 4000000 }, NULL);
    bool good = a != NULL && b != NULL && sums != NULL && bias != NULL;
    if (good && job->workspace_bytes > 0) { /* whoever lies there has lost */
        void *const w = fk.map(job->workspace, job->workspace_bytes, true, "cublasLtMatmul: workspace");
        if (w != NULL) memset(w, 0xFB, job->workspace_bytes);
        good = w != NULL;
    }
    if (good && biased) {
        const char *const from =
            fk.map((uintptr_t)job->p.desc.bias, d->rows * fk_size(t), false, "cublasLtMatmul: bias");
        good = from != NULL;
        for (uint64_t i = 0; good && i < d->rows; i++) bias[i] = fk_load(t, from + i * fk_size(t));
    }
    for (int z = 0; z < d->batches && good; z++) good = one_batch(job, z, a, b, sums, biased ? bias : NULL);
    free(a);
    free(b);
    free(sums);
    free(bias);
}
