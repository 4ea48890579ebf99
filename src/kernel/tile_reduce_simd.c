/* tile_reduce_simd.c: sums, greatest and least values and products of tiles: per row, of one long row, per column.
 * Compiled once per instruction set; called through bytecode and by tile_run.c.
 *
 * Everything that outlives a tile is kept wide, in f64 or i64 (sw__wide): the error of an f32 sum does not grow with
 * the
 * number of tiles, and partial results can be combined in any fixed order. */
#include "kernel/tile_simd.h"

enum { SUM, MAX, MIN, PROD };

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* op(x, y) for floats in T (NaN wins), and for integers that wrap. */
#define OP_FLOAT_SUM(x, y) ((x) + (y))
#define OP_FLOAT_PROD(x, y) ((x) * (y))
#define OP_FLOAT_MAX(x, y) ((x) > (y) || (x) != (x) ? (x) : (y))
#define OP_FLOAT_MIN(x, y) ((x) < (y) || (x) != (x) ? (x) : (y))
#define OP_INT_SUM(x, y) ((i64)((u64)(x) + (u64)(y)))
#define OP_INT_PROD(x, y) ((i64)((u64)(x) * (u64)(y)))
#define OP_INT_MAX(x, y) ((x) > (y) ? (x) : (y))
#define OP_INT_MIN(x, y) ((x) < (y) ? (x) : (y))

/* op(kind, suffix, type, wide type, member of sw__wide, identity) for every operation and type */
#define EACH_TYPE(EACH)                                                                                                \
    EACH(FLOAT, SUM, sum, f32, f64, f, 0)                                                                              \
    EACH(FLOAT, MAX, max, f32, f64, f, -(f64)__builtin_inf())                                                          \
    EACH(FLOAT, MIN, min, f32, f64, f, (f64)__builtin_inf())                                                           \
    EACH(FLOAT, PROD, prod, f32, f64, f, 1)                                                                            \
    EACH(FLOAT, SUM, sum, f64, f64, f, 0)                                                                              \
    EACH(FLOAT, MAX, max, f64, f64, f, -(f64)__builtin_inf())                                                          \
    EACH(FLOAT, MIN, min, f64, f64, f, (f64)__builtin_inf())                                                           \
    EACH(FLOAT, PROD, prod, f64, f64, f, 1)                                                                            \
    EACH_INT(EACH, i32, INT32_MIN, INT32_MAX)                                                                          \
    EACH_INT(EACH, i64, INT64_MIN, INT64_MAX)                                                                          \
    EACH_INT(EACH, u8, 0, UINT8_MAX)                                                                                   \
    EACH_INT(EACH, u32, 0, UINT32_MAX)
#define EACH_INT(EACH, T, lowest, greatest)                                                                            \
    EACH(INT, SUM, sum, T, i64, i, 0)                                                                                  \
    EACH(INT, MAX, max, T, i64, i, lowest)                                                                             \
    EACH(INT, MIN, min, T, i64, i, greatest)                                                                           \
    EACH(INT, PROD, prod, T, i64, i, 1)

/* ---- a row ------------------------------------------------------------------------------------------------------- */

/* fold_sum_f32(x, n): the wide result of n values. The loop as it stands; f32 has better ones below. */
#define FOLD(KIND, OP, op, T, W, m, identity)                                                                          \
    static W plain_##op##_##T(const T *x, size_t n)                                                                    \
    {                                                                                                                  \
        W y = (W)(identity);                                                                                           \
        for (size_t k = 0; k < n; k++) y = OP_##KIND##_##OP((W)x[k], y);                                               \
        return y;                                                                                                      \
    }
EACH_TYPE(FOLD)

/* A machine vector: compilers make poor code of longer ones. */
#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { STEP = 4 * LANES };
typedef f32 vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef i32 veci __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define AT(p) (*(const vec *)(p))
#define CHOOSE(mask, x, y) ((vec)(((veci)(x) & (mask)) | ((veci)(y) & ~(mask))))
#define VEC_SUM(x, y) ((x) + (y))
#define VEC_MAX(x, y) CHOOSE(((x) > (y)) | ((x) != (x)), x, y)
#define VEC_MIN(x, y) CHOOSE(((x) < (y)) | ((x) != (x)), x, y)

/* Four vectors, then the lanes in f64. */
#define FOLD_F32(OP, op, start)                                                                                        \
    static f64 fast_##op##_f32(const f32 *x, size_t n)                                                                 \
    {                                                                                                                  \
        if (n < LANES) return plain_##op##_f32(x, n);                                                                  \
        vec a0 = (vec){ 0 } + (start), a1 = a0, a2 = a0, a3 = a0;                                                      \
        size_t k = 0;                                                                                                  \
        for (; k + STEP <= n; k += STEP) {                                                                             \
            const vec x0 = AT(x + k), x1 = AT(x + k + LANES);                                                          \
            const vec x2 = AT(x + k + 2 * LANES), x3 = AT(x + k + 3 * LANES);                                          \
            a0 = VEC_##OP(x0, a0);                                                                                     \
            a1 = VEC_##OP(x1, a1);                                                                                     \
            a2 = VEC_##OP(x2, a2);                                                                                     \
            a3 = VEC_##OP(x3, a3);                                                                                     \
        }                                                                                                              \
        for (; k + LANES <= n; k += LANES) {                                                                           \
            const vec x0 = AT(x + k);                                                                                  \
            a0 = VEC_##OP(x0, a0);                                                                                     \
        }                                                                                                              \
        a0 = VEC_##OP(a1, a0);                                                                                         \
        a2 = VEC_##OP(a3, a2);                                                                                         \
        a0 = VEC_##OP(a2, a0);                                                                                         \
        f64 y = plain_##op##_f32(x + k, n - k);                                                                        \
        f32 lane[LANES];                                                                                               \
        __builtin_memcpy(lane, &a0, sizeof lane);                                                                      \
        for (int l = 0; l < LANES; l++) y = OP_FLOAT_##OP((f64)lane[l], y);                                            \
        return y;                                                                                                      \
    }
FOLD_F32(SUM, sum, 0.0f)
FOLD_F32(MAX, max, -__builtin_inff())
FOLD_F32(MIN, min, __builtin_inff())

static f64 dot_f32(const f32 *x, const f32 *y, size_t n)
{
    vec a0 = { 0 }, a1 = a0, a2 = a0, a3 = a0;
    size_t k = 0;
    for (; k + STEP <= n; k += STEP) {
        a0 += AT(x + k) * AT(y + k);
        a1 += AT(x + k + LANES) * AT(y + k + LANES);
        a2 += AT(x + k + 2 * LANES) * AT(y + k + 2 * LANES);
        a3 += AT(x + k + 3 * LANES) * AT(y + k + 3 * LANES);
    }
    for (; k + LANES <= n; k += LANES) a0 += AT(x + k) * AT(y + k);
    a0 = (a0 + a1) + (a2 + a3);
    f64 s = 0;
    for (; k < n; k++) s += (f64)(x[k] * y[k]);
    f32 lane[LANES];
    __builtin_memcpy(lane, &a0, sizeof lane);
    for (int l = 0; l < LANES; l++) s += (f64)lane[l];
    return s;
}

/* The way to fold each: fast for sum, max and min of f32. */
#define fold_sum_f32 fast_sum_f32
#define fold_max_f32 fast_max_f32
#define fold_min_f32 fast_min_f32
#define fold_prod_f32 plain_prod_f32
#define fold_sum_f64 plain_sum_f64
#define fold_max_f64 plain_max_f64
#define fold_min_f64 plain_min_f64
#define fold_prod_f64 plain_prod_f64
#define fold_sum_i32 plain_sum_i32
#define fold_max_i32 plain_max_i32
#define fold_min_i32 plain_min_i32
#define fold_prod_i32 plain_prod_i32
#define fold_sum_i64 plain_sum_i64
#define fold_max_i64 plain_max_i64
#define fold_min_i64 plain_min_i64
#define fold_prod_i64 plain_prod_i64
#define fold_sum_u8 plain_sum_u8
#define fold_max_u8 plain_max_u8
#define fold_min_u8 plain_min_u8
#define fold_prod_u8 plain_prod_u8
#define fold_sum_u32 plain_sum_u32
#define fold_max_u32 plain_max_u32
#define fold_min_u32 plain_min_u32
#define fold_prod_u32 plain_prod_u32

#define ROWS_AND_TOTAL(KIND, OP, op, T, W, m, identity)                                                                \
    static void rows_##op##_##T(const sw__tinst *i, sw__tctx *t, size_t n)                                             \
    {                                                                                                                  \
        T *const d = t->slot[i->d];                                                                                    \
        const T *a = t->slot[i->a];                                                                                    \
        const size_t cols = (size_t)t->cols;                                                                           \
        (void)n;                                                                                                       \
        for (int64_t r = 0; r < t->rows; r++, a += cols) d[r] = (T)fold_##op##_##T(a, cols);                           \
    }                                                                                                                  \
    static void total_##op##_##T(const sw__tinst *i, sw__tctx *t, size_t n)                                            \
    {                                                                                                                  \
        const W y = fold_##op##_##T(t->slot[i->a], n), x = t->acc[i->index].m;                                         \
        t->acc[i->index].m = OP_##KIND##_##OP(x, y);                                                                   \
    }
EACH_TYPE(ROWS_AND_TOTAL)

static void dot_rows(const sw__tinst *i, sw__tctx *t, size_t n)
{
    f32 *const d = t->slot[i->d];
    const f32 *a = t->slot[i->a], *b = t->slot[i->b];
    const size_t cols = (size_t)t->cols;
    (void)n;
    for (int64_t r = 0; r < t->rows; r++, a += cols, b += cols) d[r] = (f32)dot_f32(a, b, cols);
}

static void dot_total(const sw__tinst *i, sw__tctx *t, size_t n)
{
    t->acc[i->index].f += dot_f32(t->slot[i->a], t->slot[i->b], n);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static void *accumulator(const sw__tinst *i, const sw__tctx *t)
{
    return t->thread_area + t->p->reduction[i->index].narrow_at;
}

#define COLS(KIND, OP, op, T, W, m, identity)                                                                          \
    static void cols_##op##_##T(const sw__tinst *i, sw__tctx *t, size_t n)                                             \
    {                                                                                                                  \
        T *const d = accumulator(i, t);                                                                                \
        const T *a = t->slot[i->a];                                                                                    \
        const size_t width = (size_t)t->p->width;                                                                      \
        while (n > 0) {                                                                                                \
            const size_t part = n < width ? n : width;                                                                 \
            SIMD_LOOP for (size_t k = 0; k < part; k++) {                                                              \
                const T x = a[k], y = d[k];                                                                            \
                d[k] = (T)OP_##KIND##_##OP(x, y);                                                                      \
            }                                                                                                          \
            a += part;                                                                                                 \
            n -= part;                                                                                                 \
        }                                                                                                              \
    }
EACH_TYPE(COLS)

/* Sums of f32 in registers, four vectors of columns at a time. NEXT: what is added to the vector at offset o. */
#define COLS_FAST(name, NEXT, NEXT1)                                                                                   \
    static void name(const sw__tinst *i, sw__tctx *t, size_t n)                                                        \
    {                                                                                                                  \
        f32 *const d = accumulator(i, t);                                                                              \
        const f32 *const a = t->slot[i->a], *const b = t->slot[i->b];                                                  \
        const size_t width = SW_MIN((size_t)t->p->width, n), rows = width ? n / width : 0, rest = n - rows * width;    \
        size_t k = 0;                                                                                                  \
        (void)b;                                                                                                       \
        for (; k + STEP <= width; k += STEP) {                                                                         \
            vec s0 = AT(d + k), s1 = AT(d + k + LANES);                                                                \
            vec s2 = AT(d + k + 2 * LANES), s3 = AT(d + k + 3 * LANES);                                                \
            for (size_t r = 0, o = k; r < rows; r++, o += width) {                                                     \
                s0 += NEXT(o);                                                                                         \
                s1 += NEXT(o + LANES);                                                                                 \
                s2 += NEXT(o + 2 * LANES);                                                                             \
                s3 += NEXT(o + 3 * LANES);                                                                             \
            }                                                                                                          \
            *(vec *)(d + k) = s0;                                                                                      \
            *(vec *)(d + k + LANES) = s1;                                                                              \
            *(vec *)(d + k + 2 * LANES) = s2;                                                                          \
            *(vec *)(d + k + 3 * LANES) = s3;                                                                          \
        }                                                                                                              \
        for (; k + LANES <= width; k += LANES) {                                                                       \
            vec s0 = AT(d + k);                                                                                        \
            for (size_t r = 0, o = k; r < rows; r++, o += width) s0 += NEXT(o);                                        \
            *(vec *)(d + k) = s0;                                                                                      \
        }                                                                                                              \
        for (; k < width; k++) {                                                                                       \
            f32 s = d[k];                                                                                              \
            for (size_t r = 0, o = k; r < rows; r++, o += width) s += NEXT1(o);                                        \
            d[k] = s;                                                                                                  \
        }                                                                                                              \
        for (k = 0; k < rest; k++) d[k] += NEXT1(rows * width + k);                                                    \
    }
#define NEXT_SUM(o) AT(a + (o))
#define NEXT1_SUM(o) a[o]
#define NEXT_DOT(o) AT(a + (o)) * AT(b + (o))
#define NEXT1_DOT(o) a[o] * b[o]
COLS_FAST(fast_cols_sum, NEXT_SUM, NEXT1_SUM)
COLS_FAST(fast_cols_dot, NEXT_DOT, NEXT1_DOT)

/* ---- wide values ------------------------------------------------------------------------------------------------- */

#define WIDE(KIND, OP, op, T, W, m, identity)                                                                          \
    static void flush_##op##_##T(sw__wide *acc, void *narrow, size_t n, size_t groups)                                 \
    {                                                                                                                  \
        T *x = narrow;                                                                                                 \
        for (size_t g = 0; g < groups; g++, x += n) {                                                                  \
            for (size_t k = 0; k < n; k++) {                                                                           \
                const W v = (W)x[k], y = acc[k].m;                                                                     \
                acc[k].m = OP_##KIND##_##OP(v, y);                                                                     \
                x[k] = (T)(identity);                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void merge_##op##_##T(sw__wide *acc, const sw__wide *more, size_t n)                                        \
    {                                                                                                                  \
        for (size_t k = 0; k < n; k++) {                                                                               \
            const W v = more[k].m, y = acc[k].m;                                                                       \
            acc[k].m = OP_##KIND##_##OP(v, y);                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    static void identity_##op##_##T(sw__wide *acc, size_t n)                                                           \
    {                                                                                                                  \
        for (size_t k = 0; k < n; k++) acc[k].m = (W)(identity);                                                       \
    }                                                                                                                  \
    static void start_##op##_##T(void *narrow, size_t n)                                                               \
    {                                                                                                                  \
        T *const x = narrow;                                                                                           \
        for (size_t k = 0; k < n; k++) x[k] = (T)(identity);                                                           \
    }
EACH_TYPE(WIDE)

#define NARROW(name, T, expr)                                                                                          \
    static void narrow_##name(void *dst, const sw__wide *acc, size_t n)                                                \
    {                                                                                                                  \
        T *const d = dst;                                                                                              \
        for (size_t k = 0; k < n; k++) d[k] = (T)(expr);                                                               \
    }
NARROW(f32, f32, acc[k].f)
NARROW(f64, f64, acc[k].f)
NARROW(i32, i32, acc[k].i)
NARROW(i64, i64, acc[k].i)
NARROW(u8, u8, acc[k].i)
NARROW(bool, u8, acc[k].i != 0)
NARROW(u32, u32, acc[k].i)

#define TYPES(fn, op)                                                                                                  \
    { [SW_F32] = fn##_##op##_f32, [SW_F64] = fn##_##op##_f64, [SW_I32] = fn##_##op##_i32,                              \
      [SW_I64] = fn##_##op##_i64, [SW_U8] = fn##_##op##_u8, [SW_BOOL] = fn##_##op##_u8, [SW_U32] = fn##_##op##_u32 }
#define OPS(fn) { [SUM] = TYPES(fn, sum), [MAX] = TYPES(fn, max), [MIN] = TYPES(fn, min), [PROD] = TYPES(fn, prod) }

extern const sw__reduce_table SIMD_NAME(sw__reduce_table);
const sw__reduce_table SIMD_NAME(sw__reduce_table) = {
    .rows = OPS(rows), .total = OPS(total), .cols = OPS(cols),
    .fast_cols_sum = fast_cols_sum, .dot_rows = dot_rows, .dot_total = dot_total, .dot_cols = fast_cols_dot,
    .flush = OPS(flush), .merge = OPS(merge), .identity = OPS(identity), .identity_narrow = OPS(start),
    .narrow = { [SW_F32] = narrow_f32, [SW_F64] = narrow_f64, [SW_I32] = narrow_i32, [SW_I64] = narrow_i64,
                [SW_U8] = narrow_u8, [SW_BOOL] = narrow_bool, [SW_U32] = narrow_u32 },
};
