/* cpu_desc.c: helpers over tensor descriptors: layouts, comparing, strided copies.
 * Below the CPU backend's ops. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"

#include <omp.h>

SW__SIMD_DECLARE(void, sw__relu_run, (float *y, int64_t n));

int sw__cpu_thread(void)
{
    return omp_get_thread_num();
}

sw__desc sw__cpu_dense(sw_dtype t, int rank, const int64_t *dim)
{
    sw__desc d = {.dtype = (uint8_t)t, .rank = (uint8_t)rank};
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        d.dim[i] = dim[i];
        d.stride[i] = stride;
        stride *= dim[i];
    }
    return d;
}

sw__desc sw__cpu_channels_last(sw_dtype t, int rank, const int64_t *dim)
{
    sw__desc d = sw__cpu_dense(t, rank, dim);
    int64_t stride = dim[1];
    d.stride[1] = 1;
    for (int i = rank - 1; i >= 2; i--) {
        d.stride[i] = stride;
        stride *= dim[i];
    }
    d.stride[0] = stride;
    return d;
}

bool sw__cpu_dense_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i)
{
    (void)cpu;
    return sw__desc_row_major(&d->in[i]);
}

bool sw__cpu_same_strides(const sw__desc *a, const sw__desc *b)
{
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] > 1 && a->stride[i] != b->stride[i]) return false;
    return true;
}

bool sw__cpu_overlaps(const sw__desc *d)
{
    for (int i = 0; i < d->rank; i++)
        if (d->dim[i] > 1 && d->stride[i] == 0) return true;
    return false;
}

bool sw__cpu_nested(const sw__desc *d)
{
    for (int i = 0; i < d->rank; i++) {
        for (int j = 0; j < d->rank; j++) {
            if (d->dim[i] <= 1 || d->dim[j] <= 1 || d->stride[i] == 0 || d->stride[j] <= d->stride[i]) continue;
            if (d->stride[j] < d->stride[i] * d->dim[i]) return false;
        }
    }
    return true;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

typedef struct walk {
    int rank;
    int64_t dim[SW_MAX_RANK], to[SW_MAX_RANK], from[SW_MAX_RANK]; /* strides in elements */
} walk;

/* Axes by falling stride of the target, those that both sides walk as one merged; at least one axis. */
static walk walk_of(const sw__desc *to, const sw__desc *from)
{
    int order[SW_MAX_RANK], n = 0;
    for (int i = 0; i < to->rank; i++) {
        if (to->dim[i] == 1) continue;
        int at = n++;
        for (; at > 0 && to->stride[order[at - 1]] < to->stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    walk w = {.rank = 0};
    for (int k = 0; k < n; k++) {
        const int i = order[k], last = w.rank - 1;
        if (last >= 0 && w.to[last] == to->stride[i] * to->dim[i] && w.from[last] == from->stride[i] * to->dim[i]) {
            w.dim[last] *= to->dim[i];
            w.to[last] = to->stride[i];
            w.from[last] = from->stride[i];
            continue;
        }
        w.dim[w.rank] = to->dim[i];
        w.to[w.rank] = to->stride[i];
        w.from[w.rank++] = from->stride[i];
    }
    if (w.rank == 0) {
        w.rank = 1;
        w.dim[0] = w.to[0] = w.from[0] = 1;
    }
    return w;
}

#define COPY_RUN(T)                                                                                                    \
    do {                                                                                                               \
        T *t = (T *)to;                                                                                                \
        const T *f = (const T *)from;                                                                                  \
        for (int64_t i = 0; i < n; i++) t[i * ts] = f[i * fs];                                                         \
    } while (0)

static void copy_run(void *to, int64_t ts, const void *from, int64_t fs, int64_t n, size_t size)
{
    if (ts == 1 && fs == 1) memcpy(to, from, (size_t)n * size);
    else if (size == 4) COPY_RUN(uint32_t);
    else if (size == 8) COPY_RUN(uint64_t);
    else if (size == 2) COPY_RUN(uint16_t);
    else COPY_RUN(uint8_t);
}

/* Takes axis i out of a walk. */
static void without(walk *w, int i)
{
    for (w->rank--; i < w->rank; i++) {
        w->dim[i] = w->dim[i + 1];
        w->to[i] = w->to[i + 1];
        w->from[i] = w->from[i + 1];
    }
}

/* Place number r of a walk in both tensors. */
static void place_of(const walk *w, int64_t r, int64_t *to, int64_t *from)
{
    *to = *from = 0;
    for (int i = w->rank - 1; i >= 0; i--) {
        const int64_t at = r % w->dim[i];
        r /= w->dim[i];
        *to += at * w->to[i];
        *from += at * w->from[i];
    }
}

static int64_t count_of(const walk *w)
{
    int64_t n = 1;
    for (int i = 0; i < w->rank; i++) n *= w->dim[i];
    return n;
}

/* Four-byte elements where one axis is contiguous in the target and another one in the source: small matrices to be
 * transposed. The long axis is cut so that there is work for all threads. */
static void copy_transposed(sw__simd level, float *to, const float *from, walk w, int across, int threads)
{
    const int last = w.rank - 1; /* contiguous in the target; `across` is in the source */
    const int64_t cols = w.dim[across], ld_to = w.to[across], rows = w.dim[last], ld_from = w.from[last], cut = 256;
    without(&w, last);
    without(&w, across);
    const int64_t outer = count_of(&w), cuts = (rows + cut - 1) / cut;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t r = 0; r < outer * cuts; r++) {
        int64_t t, f;
        place_of(&w, r / cuts, &t, &f);
        const int64_t first = r % cuts * cut;
        SW__SIMD_PICK(level, sw__transpose)(from + f + first * ld_from, ld_from, SW_MIN(cut, rows - first), cols,
                                            to + t + first, ld_to);
    }
}

void sw__cpu_copy(const sw__cpu *cpu, void *to, const sw__desc *to_desc, const void *from, const sw__desc *from_desc)
{
    const int64_t n = sw__desc_elements(to_desc);
    if (n == 0) return;
    walk w = walk_of(to_desc, from_desc);
    const size_t size = sw_dtype_size((sw_dtype)to_desc->dtype);
    const int inner = w.rank - 1, threads = n < 32768 ? 1 : cpu->threads;
    const int64_t run = w.dim[inner], ts = w.to[inner], fs = w.from[inner];
    if (size == 4 && ts == 1 && fs != 1)
        for (int i = 0; i < inner; i++) {
            if (w.from[i] != 1) continue;
            copy_transposed(cpu->simd, to, from, w, i, threads);
            return;
        }
    without(&w, inner);
    const int64_t rows = count_of(&w);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t r = 0; r < rows; r++) {
        int64_t t, f;
        place_of(&w, r, &t, &f);
        copy_run((char *)to + t * (int64_t)size, ts, (const char *)from + f * (int64_t)size, fs, run, size);
    }
}

/* ---- relu -------------------------------------------------------------------------------------------------------- */

/* One dense run or, for strided tensors, runs along the axis of the smallest stride. */
void sw__cpu_relu(sw__simd level, float *y, const sw__desc *d, int threads)
{
    if (sw__desc_elements(d) == 0) return;
    const walk w = walk_of(d, d);
    const int inner = w.rank - 1;
    const int64_t length = w.dim[inner], step = w.to[inner], chunk = SW_MIN(length, 16384);
    int64_t rows = 1;
    for (int i = 0; i < inner; i++) rows *= w.dim[i];
    const int64_t chunks = (length + chunk - 1) / chunk;
    const int n_threads = rows * length < 65536 ? 1 : threads;
#pragma omp parallel for num_threads(n_threads) schedule(static) if (n_threads > 1)
    for (int64_t r = 0; r < rows * chunks; r++) {
        int64_t rest = r / chunks, at = r % chunks * chunk * step;
        for (int i = inner - 1; i >= 0; i--) {
            at += rest % w.dim[i] * w.to[i];
            rest /= w.dim[i];
        }
        const int64_t n = SW_MIN(chunk, length - r % chunks * chunk);
        if (step == 1) SW__SIMD_PICK(level, sw__relu_run)(y + at, n);
        else
            for (int64_t i = 0; i < n; i++) y[at + i * step] = y[at + i * step] < 0 ? 0 : y[at + i * step];
    }
}

/* In the bits: what has the sign and is no NaN becomes 0. */
void sw__cpu_relu_bf16(uint16_t *y, const sw__desc *d, int threads)
{
    const int64_t n = sw__desc_elements(d);
#pragma omp parallel for simd num_threads(threads) schedule(static) if (n > 20000)
    for (int64_t i = 0; i < n; i++) y[i] = y[i] >= 0x8000u && y[i] <= 0xFF80u ? 0 : y[i];
}
