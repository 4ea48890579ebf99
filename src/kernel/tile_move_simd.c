/* tile_move_simd.c: blocks between memory and the registers of the tile interpreter: strided loads and stores with the
 * conversion of 16-bit floats, fills, counting, gathers. Compiled once per instruction set; called by tile_move.c. */
#include "kernel/tile_half_simd.h"

/* ---- transposition ----------------------------------------------------------------------------------------------- */

/* 8 x 8 values of 4 bytes: d[r][c] = s[c][r]; ds, ss: elements from row to row of each. */
typedef u32 row8 __attribute__((vector_size(32), aligned(4), may_alias));
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW2(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH2(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW4(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH4(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
static inline void transpose8(u32 *d, int64_t ds, const u32 *s, int64_t ss)
{
    row8 x[8], y[8];
    for (int k = 0; k < 8; k++) x[k] = *(const row8 *)(s + k * ss);
    for (int k = 0; k < 8; k += 2) {
        y[k] = LOW(x[k], x[k + 1]);
        y[k + 1] = HIGH(x[k], x[k + 1]);
    }
    for (int k = 0; k < 8; k += 4) {
        x[k] = LOW2(y[k], y[k + 2]);
        x[k + 1] = HIGH2(y[k], y[k + 2]);
        x[k + 2] = LOW2(y[k + 1], y[k + 3]);
        x[k + 3] = HIGH2(y[k + 1], y[k + 3]);
    }
    for (int k = 0; k < 4; k++) {
        *(row8 *)(d + k * ds) = LOW4(x[k], x[k + 4]);
        *(row8 *)(d + (k + 4) * ds) = HIGH4(x[k], x[k + 4]);
    }
}

/* d[r][c] = s[c][r] for any size; what is over goes one by one. */
static void transpose_32(u32 *d, int64_t ds, const u32 *s, int64_t ss, size_t rows, size_t cols)
{
    const size_t rows8 = rows & ~(size_t)7, cols8 = cols & ~(size_t)7;
    for (size_t c = 0; c < cols8; c += 8) {
        for (size_t r = 0; r < rows8; r += 8) transpose8(d + (int64_t)r * ds + (int64_t)c, ds,
                                                         s + (int64_t)c * ss + (int64_t)r, ss);
    }
    for (size_t c = 0; c < cols; c++) {
        const u32 *const row = s + (int64_t)c * ss;
        for (size_t r = c < cols8 ? rows8 : 0; r < rows; r++) d[(int64_t)r * ds + (int64_t)c] = row[r];
    }
}

static inline u8 same8(u8 x) { return x; }
static inline u32 same32(u32 x) { return x; }
static inline u64 same64(u64 x) { return x; }

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Dense registers on one side, strides on the other. Contiguous, repeated and strided runs have loops of their own. */
/* Strides along rows only: a transposition. */
#define CROSS_LOAD(R, conv)                                                                                            \
    for (size_t k = 0; k < cols; k++, s += cs) {                                                                       \
        for (size_t r = 0; r < rows; r++) d[r * cols + k] = conv(s[r]);                                                \
    }
#define CROSS_STORE(R, conv)                                                                                           \
    for (size_t k = 0; k < cols; k++, d += cs) {                                                                       \
        for (size_t r = 0; r < rows; r++) d[r] = conv(s[r * cols + k]);                                                \
    }
#define CROSS_LOAD_32(R, conv) transpose_32(d, (int64_t)cols, s, cs, rows, cols);
#define CROSS_STORE_32(R, conv) transpose_32(d, cs, s, (int64_t)cols, cols, rows);
#define LOAD(name, R, M, conv, CROSS)                                                                                  \
    static void name(void *dst, const void *src, size_t rows, size_t cols, int64_t rs, int64_t cs)                     \
    {                                                                                                                  \
        R *d = dst;                                                                                                    \
        const M *s = src;                                                                                              \
        if (rs == cs * (int64_t)cols) {                                                                                \
            cols *= rows;                                                                                              \
            rows = 1;                                                                                                  \
        }                                                                                                              \
        if (cs == 1) {                                                                                                 \
            for (size_t r = 0; r < rows; r++, d += cols, s += rs) {                                                    \
                SIMD_LOOP for (size_t k = 0; k < cols; k++) d[k] = conv(s[k]);                                         \
            }                                                                                                          \
        } else if (cs == 0) {                                                                                          \
            for (size_t r = 0; r < rows; r++, d += cols, s += rs) {                                                    \
                const R x = conv(*s);                                                                                  \
                SIMD_LOOP for (size_t k = 0; k < cols; k++) d[k] = x;                                                  \
            }                                                                                                          \
        } else if (rs == 1) {                                                                                          \
            CROSS(R, conv)                                                                                             \
        } else {                                                                                                       \
            for (size_t r = 0; r < rows; r++, d += cols, s += rs) {                                                    \
                for (size_t k = 0; k < cols; k++) d[k] = conv(s[(int64_t)k * cs]);                                     \
            }                                                                                                          \
        }                                                                                                              \
    }
#define STORE(name, R, M, conv, CROSS)                                                                                 \
    static void name(void *dst, const void *src, size_t rows, size_t cols, int64_t rs, int64_t cs)                     \
    {                                                                                                                  \
        M *d = dst;                                                                                                    \
        const R *s = src;                                                                                              \
        if (rs == cs * (int64_t)cols) {                                                                                \
            cols *= rows;                                                                                              \
            rows = 1;                                                                                                  \
        }                                                                                                              \
        if (cs == 1) {                                                                                                 \
            for (size_t r = 0; r < rows; r++, s += cols, d += rs) {                                                    \
                SIMD_LOOP for (size_t k = 0; k < cols; k++) d[k] = conv(s[k]);                                         \
            }                                                                                                          \
        } else if (rs == 1) {                                                                                          \
            CROSS(R, conv)                                                                                             \
        } else {                                                                                                       \
            for (size_t r = 0; r < rows; r++, s += cols, d += rs) {                                                    \
                for (size_t k = 0; k < cols; k++) d[(int64_t)k * cs] = conv(s[k]);                                     \
            }                                                                                                          \
        }                                                                                                              \
    }
#define GATHER(name, R, M, conv)                                                                                       \
    static void name(void *dst, const void *src, const int64_t *index, size_t n, int64_t stride, int64_t stride_x)     \
    {                                                                                                                  \
        R *const d = dst;                                                                                              \
        const M *const s = src;                                                                                        \
        for (size_t k = 0; k < n; k++) d[k] = conv(s[(int64_t)k * stride + index[k] * stride_x]);                      \
    }
#define MOVES(suffix, R, M, from, to, CROSSL, CROSSS)                                                                  \
    LOAD(load_##suffix, R, M, from, CROSSL)                                                                            \
    STORE(store_##suffix, R, M, to, CROSSS)                                                                            \
    GATHER(gather_##suffix, R, M, from)
MOVES(8, u8, u8, same8, same8, CROSS_LOAD, CROSS_STORE)
MOVES(32, u32, u32, same32, same32, CROSS_LOAD_32, CROSS_STORE_32)
MOVES(64, u64, u64, same64, same64, CROSS_LOAD, CROSS_STORE)
MOVES(f16, f32, uint16_t, from_f16, to_f16, CROSS_LOAD, CROSS_STORE)
MOVES(bf16, f32, uint16_t, from_bf16, to_bf16, CROSS_LOAD, CROSS_STORE)

#define IOTA(T)                                                                                                        \
    static void iota_##T(void *dst, int64_t first, size_t rows, size_t cols, int64_t rs, int64_t cs)                   \
    {                                                                                                                  \
        T *d = dst;                                                                                                    \
        for (size_t r = 0; r < rows; r++, d += cols, first += rs) {                                                    \
            SIMD_LOOP for (size_t k = 0; k < cols; k++) d[k] = (T)(first + (int64_t)k * cs);                           \
        }                                                                                                              \
    }
IOTA(f32)
IOTA(f64)
IOTA(i32)
IOTA(i64)
IOTA(u8)
IOTA(u32)

/* ---- one value to many ------------------------------------------------------------------------------------------- */

#define SPREAD(T)                                                                                                      \
    static void fill_##T(void *dst, const void *value, size_t n)                                                       \
    {                                                                                                                  \
        T *const d = dst;                                                                                              \
        const T x = *(const T *)value;                                                                                 \
        SIMD_LOOP for (size_t k = 0; k < n; k++) d[k] = x;                                                             \
    }                                                                                                                  \
    static void splat_##T(const sw__tinst *i, sw__tctx *t, size_t n)                                                   \
    {                                                                                                                  \
        fill_##T(t->slot[i->d], t->slot[i->a], n);                                                                     \
    }                                                                                                                  \
    static void expand_##T(const sw__tinst *i, sw__tctx *t, size_t n)                                                  \
    {                                                                                                                  \
        (void)n;                                                                                                       \
        T *d = t->slot[i->d];                                                                                          \
        const T *const a = t->slot[i->a];                                                                              \
        const size_t cols = (size_t)t->cols;                                                                           \
        for (int64_t r = 0; r < t->rows; r++, d += cols) {                                                             \
            const T x = a[r];                                                                                          \
            SIMD_LOOP for (size_t k = 0; k < cols; k++) d[k] = x;                                                      \
        }                                                                                                              \
    }
SPREAD(u8)
SPREAD(u32)
SPREAD(u64)

extern const sw__move_table SIMD_NAME(sw__move_table);
const sw__move_table SIMD_NAME(sw__move_table) = {
    .load = { [SW_F32] = load_32, [SW_F64] = load_64, [SW_F16] = load_f16, [SW_BF16] = load_bf16, [SW_I32] = load_32,
              [SW_I64] = load_64, [SW_U8] = load_8, [SW_BOOL] = load_8, [SW_U32] = load_32 },
    .store = { [SW_F32] = store_32, [SW_F64] = store_64, [SW_F16] = store_f16, [SW_BF16] = store_bf16,
               [SW_I32] = store_32, [SW_I64] = store_64, [SW_U8] = store_8, [SW_BOOL] = store_8, [SW_U32] = store_32 },
    .gather = { [SW_F32] = gather_32, [SW_F64] = gather_64, [SW_F16] = gather_f16, [SW_BF16] = gather_bf16,
                [SW_I32] = gather_32, [SW_I64] = gather_64, [SW_U8] = gather_8, [SW_BOOL] = gather_8,
                [SW_U32] = gather_32 },
    .iota = { [SW_F32] = iota_f32, [SW_F64] = iota_f64, [SW_I32] = iota_i32, [SW_I64] = iota_i64, [SW_U8] = iota_u8,
              [SW_BOOL] = iota_u8, [SW_U32] = iota_u32 },
    .fill = { [1] = fill_u8, [4] = fill_u32, [8] = fill_u64 },
    .splat = { [1] = splat_u8, [4] = splat_u32, [8] = splat_u64 },
    .expand = { [1] = expand_u8, [4] = expand_u32, [8] = expand_u64 },
};
