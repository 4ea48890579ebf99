/* tile_calc_simd.c: the pointwise ops of the tile interpreter, one loop per op and type. Compiled once per instruction
 * set; tile_compile.c puts them into bytecode through the table at the end. */
#include "kernel/tile_half_simd.h"
#include "kernel/tile_math_simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define DST(T) T *const d = t->slot[i->d]
#define SRC(T, x) const T *const x = t->slot[i->x]

/* x: the operand. */
#define UNARY(name, T, R, expr)                                                                                        \
    static void name(const sw__tinst *i, sw__tctx *t, size_t n)                                                        \
    {                                                                                                                  \
        DST(R);                                                                                                        \
        SRC(T, a);                                                                                                     \
        SIMD_LOOP for (size_t k = 0; k < n; k++) {                                                                     \
            const T x = a[k];                                                                                          \
            d[k] = (R)(expr);                                                                                          \
        }                                                                                                              \
    }
/* The same one by one: for functions of the C library. */
#define UNARY_CALL(name, T, expr)                                                                                      \
    static void name(const sw__tinst *i, sw__tctx *t, size_t n)                                                        \
    {                                                                                                                  \
        DST(T);                                                                                                        \
        SRC(T, a);                                                                                                     \
        for (size_t k = 0; k < n; k++) {                                                                               \
            const T x = a[k];                                                                                          \
            d[k] = (T)(expr);                                                                                          \
        }                                                                                                              \
    }
/* x, y: the operands; ax, ay: 1 for a vector, 0 for a scalar. */
#define BINARY_(name, T, R, expr, ax, ay)                                                                              \
    static void name(const sw__tinst *i, sw__tctx *t, size_t n)                                                        \
    {                                                                                                                  \
        DST(R);                                                                                                        \
        SRC(T, a);                                                                                                     \
        SRC(T, b);                                                                                                     \
        SIMD_LOOP for (size_t k = 0; k < n; k++) {                                                                     \
            const T x = a[k], y = b[k];                                                                                \
            d[k] = (R)(expr);                                                                                          \
        }                                                                                                              \
    }
#define BINARY(name, T, R, expr) BINARY_(name##_vv, T, R, expr, k, k)
#define BINARY_SCALAR(name, T, R, expr)                                                                                \
    static void name##_vs(const sw__tinst *i, sw__tctx *t, size_t n)                                                   \
    {                                                                                                                  \
        DST(R);                                                                                                        \
        SRC(T, a);                                                                                                     \
        const T y = *(const T *)t->slot[i->b];                                                                         \
        SIMD_LOOP for (size_t k = 0; k < n; k++) {                                                                     \
            const T x = a[k];                                                                                          \
            d[k] = (R)(expr);                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_sv(const sw__tinst *i, sw__tctx *t, size_t n)                                                   \
    {                                                                                                                  \
        DST(R);                                                                                                        \
        SRC(T, b);                                                                                                     \
        const T x = *(const T *)t->slot[i->a];                                                                         \
        SIMD_LOOP for (size_t k = 0; k < n; k++) {                                                                     \
            const T y = b[k];                                                                                          \
            d[k] = (R)(expr);                                                                                          \
        }                                                                                                              \
    }
#define BINARY_CALL(name, T, expr)                                                                                     \
    static void name##_vv(const sw__tinst *i, sw__tctx *t, size_t n)                                                   \
    {                                                                                                                  \
        DST(T);                                                                                                        \
        SRC(T, a);                                                                                                     \
        SRC(T, b);                                                                                                     \
        for (size_t k = 0; k < n; k++) {                                                                               \
            const T x = a[k], y = b[k];                                                                                \
            d[k] = (T)(expr);                                                                                          \
        }                                                                                                              \
    }

/* ---- floats ------------------------------------------------------------------------------------------------------ */

/* NaN on either side gives NaN. */
#define MAX_EXPR(x, y) ((x) > (y) || (x) != (x) ? (x) : (y))
#define MIN_EXPR(x, y) ((x) < (y) || (x) != (x) ? (x) : (y))

#define FLOATS(T, EACH)                                                                                                \
    EACH(add_##T, T, T, x + y)                                                                                         \
    EACH(sub_##T, T, T, x - y)                                                                                         \
    EACH(mul_##T, T, T, x * y)                                                                                         \
    EACH(div_##T, T, T, x / y)                                                                                         \
    EACH(max_##T, T, T, MAX_EXPR(x, y))                                                                                \
    EACH(min_##T, T, T, MIN_EXPR(x, y))                                                                                \
    EACH(lt_##T, T, u8, x < y)                                                                                         \
    EACH(eq_##T, T, u8, x == y)
FLOATS(f32, BINARY)
FLOATS(f32, BINARY_SCALAR)
FLOATS(f64, BINARY)
BINARY(pow_f32, f32, f32, pow_f32(x, y))
BINARY_CALL(pow_f64, f64, pow(x, y))
BINARY_CALL(mod_f32, f32, mod_f32(x, y))
BINARY_CALL(mod_f64, f64, mod_f64(x, y))

UNARY(neg_f32, f32, f32, -x)
UNARY(exp_f32_v, f32, f32, exp_f32(x))
UNARY(log_f32_v, f32, f32, log_f32(x))
UNARY(sqrt_f32, f32, f32, sqrtf(x))
UNARY(atan_f32_v, f32, f32, atan_f32(x))
UNARY(tanh_f32_v, f32, f32, tanh_f32(x))
UNARY(erf_f32_v, f32, f32, erf_f32(x))
UNARY(floor_f32, f32, f32, floorf(x))
UNARY(neg_f64, f64, f64, -x)
UNARY(sqrt_f64, f64, f64, sqrt(x))
UNARY(floor_f64, f64, f64, floor(x))
UNARY_CALL(exp_f64, f64, exp(x))
UNARY_CALL(log_f64, f64, log(x))
UNARY_CALL(sin_f64, f64, sin(x))
UNARY_CALL(cos_f64, f64, cos(x))
UNARY_CALL(atan_f64, f64, atan(x))
UNARY_CALL(tanh_f64, f64, tanh(x))
UNARY_CALL(erf_f64, f64, erf(x))

/* Arguments too large for the fast reduction are rare: then the whole tile goes through the C library. */
#define SINE(name, quadrant, fn)                                                                                       \
    static void name(const sw__tinst *i, sw__tctx *t, size_t n)                                                        \
    {                                                                                                                  \
        DST(f32);                                                                                                      \
        SRC(f32, a);                                                                                                   \
        int large = 0;                                                                                                 \
        _Pragma("omp simd reduction(|:large)") for (size_t k = 0; k < n; k++)                                          \
            large |= !(fabsf(a[k]) <= SIN_LIMIT);                                                                      \
        if (large) {                                                                                                   \
            for (size_t k = 0; k < n; k++) d[k] = fn(a[k]);                                                            \
        } else {                                                                                                       \
            SIMD_LOOP for (size_t k = 0; k < n; k++) d[k] = sin_f32(a[k], quadrant);                                   \
        }                                                                                                              \
    }
SINE(sin_f32_v, 0, sinf)
SINE(cos_f32_v, 1, cosf)

/* ---- integers: arithmetic wraps, division by zero gives 0, a shift by the width or more moves every bit out ------ */

/* U: the unsigned type in which T wraps (at least 32 bits wide, so that nothing is promoted to int). */
#define INTS(T, U)                                                                                                     \
    BINARY(add_##T, T, T, (U)x + (U)y)                                                                                 \
    BINARY(sub_##T, T, T, (U)x - (U)y)                                                                                 \
    BINARY(mul_##T, T, T, (U)x *(U)y)                                                                                  \
    BINARY(max_##T, T, T, x > y ? x : y)                                                                               \
    BINARY(min_##T, T, T, x < y ? x : y)                                                                               \
    BINARY(lt_##T, T, u8, x < y)                                                                                       \
    BINARY(eq_##T, T, u8, x == y)                                                                                      \
    BINARY(and_##T, T, T, x & y)                                                                                       \
    BINARY(or_##T, T, T, x | y)                                                                                        \
    BINARY(xor_##T, T, T, x ^ y)                                                                                       \
    BINARY(shl_##T, T, T, (U)y < 8 * sizeof(T) ? (U)x << ((U)y & (8 * sizeof(T) - 1)) : (U)0)                          \
    UNARY(neg_##T, T, T, (U)0 - (U)x)
INTS(i32, u32)
INTS(i64, u64)
INTS(u8, u32)
INTS(u32, u32)
#define SIGNED(T, U)                                                                                                   \
    BINARY(shr_##T, T, T, x >> ((U)y < 8 * sizeof(T) ? (U)y : (U)(8 * sizeof(T) - 1)))                                 \
    static inline T quotient_##T(T x, T y)                                                                             \
    {                                                                                                                  \
        if (y == 0) return 0;                                                                                          \
        return y == -1 ? (T)((U)0 - (U)x) : (T)(x / y); /* the lowest number by -1 wraps */                            \
    }                                                                                                                  \
    static inline T modulo_##T(T x, T y)                                                                               \
    {                                                                                                                  \
        if (y == 0 || y == -1) return 0;                                                                               \
        const T r = (T)(x % y);                                                                                        \
        return (T)(r != 0 && (r < 0) != (y < 0) ? r + y : r);                                                          \
    }                                                                                                                  \
    BINARY_CALL(div_##T, T, quotient_##T(x, y))                                                                        \
    BINARY_CALL(mod_##T, T, modulo_##T(x, y))
#define UNSIGNED(T)                                                                                                    \
    BINARY(shr_##T, T, T, y < 8 * sizeof(T) ? (u32)x >> (y & (8 * sizeof(T) - 1)) : (u32)0)                            \
    BINARY_CALL(div_##T, T, y == 0 ? 0 : x / y)                                                                        \
    BINARY_CALL(mod_##T, T, y == 0 ? 0 : x % y)
SIGNED(i32, u32)
SIGNED(i64, u64)
UNSIGNED(u8)
UNSIGNED(u32)

/* ---- where ------------------------------------------------------------------------------------------------------- */

#define WHERE(T)                                                                                                       \
    static void where_##T(const sw__tinst *i, sw__tctx *t, size_t n)                                                   \
    {                                                                                                                  \
        DST(T);                                                                                                        \
        SRC(u8, a);                                                                                                    \
        SRC(T, b);                                                                                                     \
        SRC(T, c);                                                                                                     \
        SIMD_LOOP for (size_t k = 0; k < n; k++) {                                                                     \
            const T yes = b[k], no = c[k];                                                                             \
            d[k] = a[k] != 0 ? yes : no;                                                                               \
        }                                                                                                              \
    }
WHERE(u8)
WHERE(u32)
WHERE(u64)

/* ---- casts ------------------------------------------------------------------------------------------------------- */

/* Truncation with saturation, NaN to 0. `top`: the greatest value of type F that T holds; MAX: T's own greatest. */
#define SATURATE(F, T, lowest, top, MAX)                                                                               \
    static inline T F##_to_##T(F x)                                                                                    \
    {                                                                                                                  \
        F y = x > (lowest) ? x : (lowest);                                                                             \
        y = y < (top) ? y : (top);                                                                                     \
        T r = (T)y;                                                                                                    \
        r = x > (top) ? (MAX) : r;                                                                                     \
        return x == x ? r : 0;                                                                                         \
    }                                                                                                                  \
    UNARY(cast_##T##_##F, F, T, F##_to_##T(x))
SATURATE(f32, i32, -0x1p31f, 0x1.fffffep30f, INT32_MAX)
SATURATE(f32, i64, -0x1p63f, 0x1.fffffep62f, INT64_MAX)
SATURATE(f32, u8, 0.0f, 255.0f, UINT8_MAX)
SATURATE(f32, u32, 0.0f, 0x1.fffffep31f, UINT32_MAX)
SATURATE(f64, i32, -0x1p31, 0x1.fffffffcp30, INT32_MAX)
SATURATE(f64, i64, -0x1p63, 0x1.fffffffffffffp62, INT64_MAX)
SATURATE(f64, u8, 0.0, 255.0, UINT8_MAX)
SATURATE(f64, u32, 0.0, 0x1.fffffffep31, UINT32_MAX)

#define CASTS_FROM(T)                                                                                                  \
    UNARY(cast_f32_##T, T, f32, x)                                                                                     \
    UNARY(cast_f64_##T, T, f64, x)                                                                                     \
    UNARY(cast_bool_##T, T, u8, x != 0)
#define CASTS_INT(T)                                                                                                   \
    CASTS_FROM(T)                                                                                                      \
    UNARY(cast_i32_##T, T, i32, x)                                                                                     \
    UNARY(cast_i64_##T, T, i64, x)                                                                                     \
    UNARY(cast_u8_##T, T, u8, x)                                                                                       \
    UNARY(cast_u32_##T, T, u32, x)
CASTS_FROM(f32)
CASTS_FROM(f64)
CASTS_INT(i32)
CASTS_INT(i64)
CASTS_INT(u8)
CASTS_INT(u32)

/* An f32 stays one, with what 16 bits hold of it. */
UNARY(narrow_f16, f32, f32, from_f16(to_f16(x)))
UNARY(narrow_bf16, f32, f32, from_bf16(to_bf16(x)))

/* ---- combinations ------------------------------------------------------------------------------------------------ */

/* Bb, Cc: k for a vector, 0 for a scalar */
#define FUSED(name, Bb, Cc, expr)                                                                                      \
    static void name(const sw__tinst *i, sw__tctx *t, size_t n)                                                        \
    {                                                                                                                  \
        DST(f32);                                                                                                      \
        SRC(f32, a);                                                                                                   \
        SRC(f32, b);                                                                                                   \
        SRC(f32, c);                                                                                                   \
        const f32 b0 = b[0], c0 = c[0];                                                                                \
        SIMD_LOOP for (size_t k = 0; k < n; k++) {                                                                     \
            const f32 x = a[k], y = Bb, z = Cc;                                                                        \
            (void)b0;                                                                                                  \
            (void)c0;                                                                                                  \
            d[k] = expr;                                                                                               \
        }                                                                                                              \
    }
#define FUSED3(name, expr)                                                                                             \
    FUSED(name##_vvv, b[k], c[k], expr) FUSED(name##_vsv, b0, c[k], expr) FUSED(name##_vss, b0, c0, expr)
FUSED3(fma, x *y + z)
FUSED3(fms, x *y - z)
FUSED3(fnma, z - x * y)

/* Pairs and chains that optimisers are made of; b is a scalar. */
#define CHAIN(name, expr)                                                                                              \
    static void name(const sw__tinst *i, sw__tctx *t, size_t n)                                                        \
    {                                                                                                                  \
        DST(f32);                                                                                                      \
        SRC(f32, a);                                                                                                   \
        SRC(f32, c);                                                                                                   \
        SRC(f32, e);                                                                                                   \
        const f32 b = *(const f32 *)t->slot[i->b];                                                                     \
        expr                                                                                                           \
    }
CHAIN(axpby, const f32 s = e[0]; SIMD_LOOP for (size_t k = 0; k < n; k++) d[k] = a[k] * b + c[k] * s;)
CHAIN(axpby2, const f32 s = e[0]; SIMD_LOOP for (size_t k = 0; k < n; k++) d[k] = a[k] * b + c[k] * c[k] * s;)
CHAIN(sqrt_fma, const f32 s = c[0]; (void)e; SIMD_LOOP for (size_t k = 0; k < n; k++) d[k] = sqrtf(a[k]) * b + s;)
CHAIN(sub_div, SIMD_LOOP for (size_t k = 0; k < n; k++) d[k] = c[k] - a[k] * b / e[k];)

/* The step of Adam, whose ops one after the other would wait for memory and for the divider in turns. */
static void adam(const sw__tinst *i, sw__tctx *t, size_t n)
{
    DST(f32);
    SRC(f32, a);
    SRC(f32, b);
    SRC(f32, c);
    SRC(f32, e);
    f32 *const m = t->slot[i->more[SW__ADAM_M]], *const v = t->slot[i->more[SW__ADAM_V]], s[SW__ADAM_SLOTS];
    for (int k = SW__ADAM_OUT; k < SW__ADAM_SLOTS; k++) s[k] = *(const f32 *)t->slot[i->more[k]];
    const f32 keep_m = s[SW__ADAM_KEEP_M], new_m = s[SW__ADAM_NEW_M], keep_v = s[SW__ADAM_KEEP_V];
    const f32 new_v = s[SW__ADAM_NEW_V], rate = s[SW__ADAM_RATE], spread = s[SW__ADAM_SPREAD], eps = s[SW__ADAM_EPS];
    SIMD_LOOP for (size_t k = 0; k < n; k++) {
        const f32 g = a[k], p = e[k], m1 = b[k] * keep_m + g * new_m, v1 = c[k] * keep_v + g * g * new_v;
        m[k] = m1;
        v[k] = v1;
        d[k] = p - m1 * rate / (sqrtf(v1) * spread + eps);
    }
}

#define WHERE_LT(name, Aa, Bb)                                                                                         \
    static void name(const sw__tinst *i, sw__tctx *t, size_t n)                                                        \
    {                                                                                                                  \
        DST(f32);                                                                                                      \
        SRC(f32, a);                                                                                                   \
        SRC(f32, b);                                                                                                   \
        SRC(f32, c);                                                                                                   \
        SRC(f32, e);                                                                                                   \
        const f32 a0 = a[0], b0 = b[0];                                                                                \
        SIMD_LOOP for (size_t k = 0; k < n; k++) {                                                                     \
            const f32 yes = c[k], no = e[k];                                                                           \
            (void)a0;                                                                                                  \
            (void)b0;                                                                                                  \
            d[k] = Aa < Bb ? yes : no;                                                                                 \
        }                                                                                                              \
    }
WHERE_LT(where_lt_vv, a[k], b[k])
WHERE_LT(where_lt_vs, a[k], b0)
WHERE_LT(where_lt_sv, a0, b[k])

/* ---- random ------------------------------------------------------------------------------------------------------ */

/* BLOCKS neighbouring blocks of Philox 4x32-10 (base/philox.c) side by side, one in each 64-bit lane. Only the low
 * half of
 * a lane counts: the multiplication ignores the rest. Intrinsics, as compilers do not find this instruction. */
#if defined(__AVX512F__)
enum { BLOCKS = 8 };
typedef __m512i lanes;
#define MULTIPLY(x, y) _mm512_mul_epu32(x, y)
#define HIGH_HALF(x) _mm512_srli_epi64(x, 32)
#define XOR(x, y) _mm512_xor_si512(x, y)
#define SPREAD_LANES(x) _mm512_set1_epi64((long long)(x))
#define PAIR(low, high) _mm512_or_si512(_mm512_and_si512(low, SPREAD_LANES(0xFFFFFFFFu)), _mm512_slli_epi64(high, 32))
static inline void store_blocks(u32 *d, lanes first, lanes second)
{
    const lanes low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(d, _mm512_permutex2var_epi64(first, low, second));
    _mm512_storeu_si512(d + 16, _mm512_permutex2var_epi64(first, high, second));
}
#elif defined(__AVX2__)
enum { BLOCKS = 4 };
typedef __m256i lanes;
#define MULTIPLY(x, y) _mm256_mul_epu32(x, y)
#define HIGH_HALF(x) _mm256_srli_epi64(x, 32)
#define XOR(x, y) _mm256_xor_si256(x, y)
#define SPREAD_LANES(x) _mm256_set1_epi64x((long long)(x))
#define PAIR(low, high) _mm256_or_si256(_mm256_and_si256(low, SPREAD_LANES(0xFFFFFFFFu)), _mm256_slli_epi64(high, 32))
static inline void store_blocks(u32 *d, lanes first, lanes second)
{
    const lanes even = _mm256_unpacklo_epi64(first, second), odd = _mm256_unpackhi_epi64(first, second);
    _mm256_storeu_si256((lanes *)(void *)d, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((lanes *)(void *)(d + 8), _mm256_permute2x128_si256(even, odd, 0x31));
}
#elif defined(__SSE2__)
enum { BLOCKS = 2 };
typedef __m128i lanes;
#define MULTIPLY(x, y) _mm_mul_epu32(x, y)
#define HIGH_HALF(x) _mm_srli_epi64(x, 32)
#define XOR(x, y) _mm_xor_si128(x, y)
#define SPREAD_LANES(x) _mm_set1_epi64x((long long)(x))
#define PAIR(low, high) _mm_or_si128(_mm_and_si128(low, SPREAD_LANES(0xFFFFFFFFu)), _mm_slli_epi64(high, 32))
static inline void store_blocks(u32 *d, lanes first, lanes second)
{
    _mm_storeu_si128((lanes *)(void *)d, _mm_unpacklo_epi64(first, second));
    _mm_storeu_si128((lanes *)(void *)(d + 4), _mm_unpackhi_epi64(first, second));
}
#else
enum { BLOCKS = 1 };
#endif
/* Chains side by side, as each is a sequence of slow multiplications. */
enum { SIDE = BLOCKS > 1 ? 4 : 1, RUN = 4 * BLOCKS * SIDE };

#if defined(__SSE2__)
static void philox_run(u32 *d, u64 block, u64 count, const u32 *key)
{
    lanes c0[SIDE], c1[SIDE], c2[SIDE], c3[SIDE];
    u32 key0 = key[0], key1 = key[1];
    for (u64 s = 0; s < SIDE; s++) {
        u64 low[BLOCKS], high[BLOCKS];
        for (u64 j = 0; j < BLOCKS; j++) {
            low[j] = block + s * BLOCKS + j;
            high[j] = low[j] >> 32;
        }
        memcpy(&c0[s], low, sizeof low);
        memcpy(&c1[s], high, sizeof high);
        c2[s] = SPREAD_LANES(count & 0xFFFFFFFFu);
        c3[s] = SPREAD_LANES(count >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int s = 0; s < SIDE; s++) {
            const lanes p0 = MULTIPLY(c0[s], SPREAD_LANES(0xD2511F53u)), p1 = MULTIPLY(c2[s],
                                                                                       SPREAD_LANES(0xCD9E8D57u));
            c0[s] = XOR(XOR(HIGH_HALF(p1), c1[s]), SPREAD_LANES(key0));
            c2[s] = XOR(XOR(HIGH_HALF(p0), c3[s]), SPREAD_LANES(key1));
            c1[s] = p1;
            c3[s] = p0;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (int s = 0; s < SIDE; s++) /* words 0 and 1, words 2 and 3 of each block */
        store_blocks(d + 4 * BLOCKS * s, PAIR(c0[s], c1[s]), PAIR(c2[s], c3[s]));
}
#else
static void philox_run(u32 *d, u64 block, u64 count, const u32 *key)
{
    const u32 counter[4] = { (u32)block, (u32)(block >> 32), (u32)count, (u32)(count >> 32) };
    sw__philox(counter, key, d);
}
#endif

static bool consecutive(const i64 *a)
{
    i64 off = a[0] & 3;
    _Pragma("omp simd reduction(|:off)") for (i64 k = 0; k < RUN; k++) off |= a[k] - k - a[0];
    return off == 0;
}

/* Elements mostly come in runs. */
static void random_bits(const sw__tinst *i, sw__tctx *t, size_t n)
{
    DST(u32);
    SRC(i64, a);
    const u64 count = (u64) * (const i64 *)t->slot[i->b];
    const u32 *const key = i->access->key;
    for (size_t k = 0; k < n;) {
        if (n - k >= RUN && consecutive(a + k)) {
            philox_run(d + k, (u64)a[k] / 4, count, key);
            k += RUN;
            continue;
        }
        const u64 element = (u64)a[k], block = element / 4;
        const u32 counter[4] = { (u32)block, (u32)(block >> 32), (u32)count, (u32)(count >> 32) };
        u32 words[4];
        sw__philox(counter, key, words);
        do d[k] = words[(u64)a[k] % 4];
        while (++k < n && (u64)a[k] / 4 == block && (u64)a[k] % 4 != 0);
    }
}

/* ---- table ------------------------------------------------------------------------------------------------------- */

#define V1(f) { f }
#define VV(f) { f##_vv }
#define V3(f) { f##_vv, f##_vs, f##_sv }
#define NUMBERS(op) { [SW_F32] = V3(op##_f32), [SW_F64] = VV(op##_f64), [SW_I32] = VV(op##_i32), \
                      [SW_I64] = VV(op##_i64), [SW_U8] = VV(op##_u8), [SW_BOOL] = VV(op##_u8), [SW_U32] = VV(op##_u32) }
#define WHOLE(op) { [SW_I32] = VV(op##_i32), [SW_I64] = VV(op##_i64), [SW_U8] = VV(op##_u8), [SW_BOOL] = VV(op##_u8), \
                    [SW_U32] = VV(op##_u32) }
#define REAL(f, g) { [SW_F32] = V1(f), [SW_F64] = V1(g) }
#define CAST_ROW(T) { [SW_F32] = cast_##T##_f32, [SW_F64] = cast_##T##_f64, [SW_I32] = cast_##T##_i32, \
                      [SW_I64] = cast_##T##_i64, [SW_U8] = cast_##T##_u8, [SW_BOOL] = cast_##T##_u8, \
                      [SW_U32] = cast_##T##_u32 }

extern const sw__tile_table SIMD_NAME(sw__tile_table);
const sw__tile_table SIMD_NAME(sw__tile_table) = {
    .calc = {
        [SW_OP_NEG] = { [SW_F32] = V1(neg_f32), [SW_F64] = V1(neg_f64), [SW_I32] = V1(neg_i32), [SW_I64] = V1(neg_i64),
                        [SW_U8] = V1(neg_u8), [SW_U32] = V1(neg_u32) },
        [SW_OP_EXP] = REAL(exp_f32_v, exp_f64),
        [SW_OP_LOG] = REAL(log_f32_v, log_f64),
        [SW_OP_SQRT] = REAL(sqrt_f32, sqrt_f64),
        [SW_OP_SIN] = REAL(sin_f32_v, sin_f64),
        [SW_OP_COS] = REAL(cos_f32_v, cos_f64),
        [SW_OP_ATAN] = REAL(atan_f32_v, atan_f64),
        [SW_OP_TANH] = REAL(tanh_f32_v, tanh_f64),
        [SW_OP_ERF] = REAL(erf_f32_v, erf_f64),
        [SW_OP_FLOOR] = REAL(floor_f32, floor_f64),
        [SW_OP_ADD] = NUMBERS(add),
        [SW_OP_SUB] = NUMBERS(sub),
        [SW_OP_MUL] = NUMBERS(mul),
        [SW_OP_DIV] = { [SW_F32] = V3(div_f32), [SW_F64] = VV(div_f64), [SW_I32] = VV(div_i32), [SW_I64] = VV(div_i64),
                        [SW_U8] = VV(div_u8), [SW_U32] = VV(div_u32) },
        [SW_OP_MOD] = { [SW_F32] = VV(mod_f32), [SW_F64] = VV(mod_f64), [SW_I32] = VV(mod_i32), [SW_I64] = VV(mod_i64),
                        [SW_U8] = VV(mod_u8), [SW_U32] = VV(mod_u32) },
        [SW_OP_POW] = { [SW_F32] = VV(pow_f32), [SW_F64] = VV(pow_f64) },
        [SW_OP_MAX] = NUMBERS(max),
        [SW_OP_MIN] = NUMBERS(min),
        [SW_OP_LT] = NUMBERS(lt),
        [SW_OP_EQ] = NUMBERS(eq),
        [SW_OP_AND] = WHOLE(and),
        [SW_OP_OR] = WHOLE(or),
        [SW_OP_XOR] = WHOLE(xor),
        [SW_OP_SHL] = WHOLE(shl),
        [SW_OP_SHR] = WHOLE(shr),
        [SW_OP_WHERE] = { [SW_F32] = V1(where_u32), [SW_F64] = V1(where_u64), [SW_I32] = V1(where_u32),
                          [SW_I64] = V1(where_u64), [SW_U8] = V1(where_u8), [SW_BOOL] = V1(where_u8),
                          [SW_U32] = V1(where_u32) },
    },
    .cast = { [SW_F32] = CAST_ROW(f32), [SW_F64] = CAST_ROW(f64), [SW_I32] = CAST_ROW(i32), [SW_I64] = CAST_ROW(i64),
              [SW_U8] = CAST_ROW(u8), [SW_BOOL] = CAST_ROW(bool), [SW_U32] = CAST_ROW(u32) },
    .narrow = { [SW_F16] = narrow_f16, [SW_BF16] = narrow_bf16 },
    .fma = { { fma_vvv, fma_vsv, fma_vss }, { fms_vvv, fms_vsv, fms_vss }, { fnma_vvv, fnma_vsv, fnma_vss } },
    .axpby = axpby, .axpby2 = axpby2, .sqrt_fma = sqrt_fma, .sub_div = sub_div, .adam = adam,
    .where_lt = { where_lt_vv, where_lt_vs, where_lt_sv },
    .random = random_bits,
};
