/* tile_math_simd.h: elementary functions in f32, written without branches so that loops over them vectorise at every
 * level. Coefficients are minimax fits (Remez) made for the intervals named below; errors: docs/decisions/010.
 * Included by tile_calc_simd.c and by the cpu's recurrent_simd.c. */
#ifndef SW_KERNEL_TILE_MATH_SIMD_H
#define SW_KERNEL_TILE_MATH_SIMD_H

#include "kernel/tile_simd.h"
#include <math.h>

#define LN2_HI_F 0x1.62ep-1f          /* 12 bits: times an exponent it is exact */
#define LN2_LO_F 0x1.0bfbe8e7bcd5ep-15f /* ln 2 - LN2_HI_F */
#define ROUND_F 0x1.8p23f             /* adding it leaves the nearest integer in the low bits */
#define ROUND_D 0x1.8p52

/* 2^n for -126 <= n <= 127 */
static inline f32 power_of_2(int n)
{
    return bits_f32((u32)(n + 127) << 23);
}

/* e^r - 1 = r + r^2 q(r), |r| <= ln(2)/2 */
static inline f32 exp_rest(f32 r)
{
    f32 q = 0x1.6dbc4cp-10f;
    q = q * r + 0x1.124146p-7f;
    q = q * r + 0x1.555454p-5f;
    q = q * r + 0x1.555486p-3f;
    q = q * r + 0x1p-1f;
    return r + r * r * q;
}

/* e^x = 2^n e^r, |r| <= ln(2)/2. The power is applied in two steps, to reach subnormals. */
static inline f32 exp_f32(f32 x)
{
    f32 y = x > 89.0f ? 89.0f : x; /* comparisons with NaN are false: it stays */
    y = y < -104.0f ? -104.0f : y;
    const f32 shifted = y * 0x1.715476p0f + ROUND_F, whole = shifted - ROUND_F;
    const int n = (int)(f32_bits(shifted) - f32_bits(ROUND_F));
    const f32 r = (y - whole * LN2_HI_F) - whole * LN2_LO_F;
    const f32 e = 1.0f + exp_rest(r);
    const int half = n >> 1;
    return e * power_of_2(half) * power_of_2(n - half);
}

/* The same for -86 <= x <= 88, and NaN: its power is a normal number. */
static inline f32 normal_exp_f32(f32 x)
{
    const f32 shifted = x * 0x1.715476p0f + ROUND_F, whole = shifted - ROUND_F;
    const f32 r = (x - whole * LN2_HI_F) - whole * LN2_LO_F;
    return (1.0f + exp_rest(r)) * power_of_2((int)(f32_bits(shifted) - f32_bits(ROUND_F)));
}

/* log x = n ln 2 + log m, sqrt(1/2) <= m < sqrt(2), f = m - 1; log(1 + f) = f - f^2/2 + f^3 p(f). */
static inline f32 log_f32(f32 x)
{
    const bool tiny = x < 0x1p-126f;
    const u32 bits = f32_bits(tiny ? x * 0x1p23f : x) - 0x3F3504F3u; /* sqrt(1/2) */
    const f32 n = (f32)((i32)bits >> 23) - (tiny ? 23.0f : 0.0f);
    const f32 f = bits_f32((bits & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
    f32 p = 0x1.1b7b96p-4f;
    p = p * f - 0x1.e288fap-4f;
    p = p * f + 0x1.e5fef8p-4f;
    p = p * f - 0x1.fb500ap-4f;
    p = p * f + 0x1.2339e0p-3f;
    p = p * f - 0x1.5562b2p-3f;
    p = p * f + 0x1.99a4dap-3f;
    p = p * f - 0x1.ffffeep-3f;
    p = p * f + 0x1.555546p-2f;
    const f32 f2 = f * f;
    f32 y = n * LN2_HI_F + (f + (n * LN2_LO_F + (f2 * f * p - 0.5f * f2)));
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x < INFINITY ? y : x; /* infinity and NaN stay */
}

/* |x| < 0.625: x + x^3 p(x^2); beyond: 1 - 2 / (e^2|x| + 1) */
static inline f32 tanh_f32(f32 x)
{
    const f32 a = fabsf(x), z = x * x;
    f32 p = 0x1.1982b8p-9f;
    p = p * z - 0x1.0c2378p-7f;
    p = p * z + 0x1.63955ap-6f;
    p = p * z - 0x1.b9ef8ap-5f;
    p = p * z + 0x1.11106cp-3f;
    p = p * z - 0x1.555554p-2f;
    const f32 small = x + x * z * p;
    const f32 big = 1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f);
    return a < 0.625f ? small : copysignf(big, x);
}

/* |x| < 0.95: x + x p(x^2); beyond: 1 - e^q(|x|), q = log erfc on [0.95, 4] */
static inline f32 erf_f32(f32 x)
{
    const f32 a = fabsf(x), z = x * x;
    f32 p = 0x1.589462p-14f;
    p = p * z - 0x1.a8fc66p-11f;
    p = p * z + 0x1.54a490p-8f;
    p = p * z - 0x1.b80b0ep-6f;
    p = p * z + 0x1.ce2de2p-4f;
    p = p * z - 0x1.812742p-2f;
    p = p * z + 0x1.06eba8p-3f;
    const f32 small = x + x * p;
    const f32 b = a > 4.0f ? 4.0f : a;
    f32 q = -0x1.67cc16p-16f;
    q = q * b + 0x1.cbd50ap-12f;
    q = q * b - 0x1.12a6e8p-8f;
    q = q * b + 0x1.9c6a3ap-6f;
    q = q * b - 0x1.bbd954p-4f;
    q = q * b - 0x1.443c48p-1f;
    q = q * b - 0x1.212a52p+0f;
    q = q * b + 0x1.7ea5acp-13f;
    const f32 big = 1.0f - normal_exp_f32(q);
    return a < 0.95f ? small : copysignf(big, x);
}

/* |x| > 1: pi/2 - atan(1/|x|); atan t = t + t^3 p(t^2) on [0, 1] */
static inline f32 atan_f32(f32 x)
{
    const f32 a = fabsf(x);
    const bool inverse = a > 1.0f;
    const f32 t = inverse ? 1.0f / a : a, z = t * t;
    f32 p = 0x1.2a83c8p-10f;
    p = p * z - 0x1.e7bfe4p-8f;
    p = p * z + 0x1.759ddep-6f;
    p = p * z - 0x1.70a26ap-5f;
    p = p * z + 0x1.15084ep-4f;
    p = p * z - 0x1.694b4ap-4f;
    p = p * z + 0x1.c50c74p-4f;
    p = p * z - 0x1.247574p-3f;
    p = p * z + 0x1.999806p-3f;
    p = p * z - 0x1.555552p-2f;
    const f32 y = t + t * z * p;
    return copysignf(inverse ? 0x1.921fb6p0f - (y + 0x1.777a5cp-25f) : y, x); /* pi/2 as a sum of two */
}

/* sin (quadrant 0) and cos (quadrant 1) for |x| <= 2^20, in f64: x = k pi/2 + r, k pi/2 exact but for its last bits. */
static inline f32 sin_f32(f32 x, i64 quadrant)
{
    const f64 d = (f64)x, shifted = d * 0x1.45f306dc9c883p-1 + ROUND_D, whole = shifted - ROUND_D;
    const i64 k = (i64)f64_bits(shifted) + quadrant;
    const f64 r = (d - whole * 0x1.921fb544p0) - whole * 0x1.0b4611a626331p-34, z = r * r;
    f64 s = 0x1.6cc02283d440bp-19;
    s = s * z - 0x1.a00f39965a5cep-13;
    s = s * z + 0x1.1111081d05e0ap-7;
    s = s * z - 0x1.5555554c1a737p-3;
    s = r + r * z * s;
    f64 c = -0x1.23c364cbf7b9fp-22;
    c = c * z + 0x1.a00ea0d89d653p-16;
    c = c * z - 0x1.6c16b32e9b2bfp-10;
    c = c * z + 0x1.55555545c5726p-5;
    c = c * z - 0x1.ffffffffe9e7ap-2;
    c = 1.0 + z * c;
    const f64 y = (k & 1) != 0 ? c : s;
    return (f32)((k & 2) != 0 ? -y : y);
}
#define SIN_LIMIT 0x1p20f

/* log2 of a positive f64 not below 2^-149 */
static inline f64 log2_f64(f64 x)
{
    const u64 sqrt_half = 0x3FE6A09E667F3BCDu, bits = f64_bits(x) - sqrt_half;
    /* The exponent to a number without signed shifts or conversions of 64 bits, which not every level has. */
    const f64 n = bits_f64(((bits + (1023ull << 52)) >> 52) | 0x4330000000000000u) - (0x1p52 + 1023);
    const f64 m = bits_f64((bits & 0xFFFFFFFFFFFFFu) + sqrt_half), s = (m - 1.0) / (m + 1.0), z = s * s;
    f64 p = 0x1.21b85d948269ep-2;
    p = p * z + 0x1.4794d35dd56c5p-2;
    p = p * z + 0x1.a61a31e9c5790p-2;
    p = p * z + 0x1.2776c28f5e9dap-1;
    p = p * z + 0x1.ec709dc53fbd5p-1;
    p = p * z + 0x1.71547652b824fp+1;
    return n + s * p;
}

/* 2^x, -1000 <= x <= 1000 */
static inline f64 exp2_f64(f64 x)
{
    const f64 shifted = x + ROUND_D, f = x - (shifted - ROUND_D);
    f64 p = 0x1.640a16ae5559dp-20;
    p = p * f + 0x1.00dbe05e883b1p-16;
    p = p * f + 0x1.430875061168fp-13;
    p = p * f + 0x1.5d8746749b996p-10;
    p = p * f + 0x1.3b2ab7391566ap-7;
    p = p * f + 0x1.c6b08dd60b633p-5;
    p = p * f + 0x1.ebfbdff80d17ap-3;
    p = p * f + 0x1.62e42fef8572cp-1;
    return (1.0 + f * p) * bits_f64((f64_bits(shifted) + 1023) << 52);
}

static inline f64 whole_f64(f64 x) /* |x| < 2^51 */
{
    return (x + ROUND_D) - ROUND_D;
}

/* x^y = 2^(y log2 |x|) in f64, and C's special cases. */
static inline f32 pow_f32(f32 x, f32 y)
{
    const f64 a = (f64)fabsf(x), b = (f64)y, size = fabs(b);
    f64 l = log2_f64(a > 0.0 && a < (f64)INFINITY ? a : 1.0);
    l = a == 0.0 ? -(f64)INFINITY : l;
    l = a < (f64)INFINITY ? l : a; /* infinity, NaN */
    f64 e = b * l;
    e = e > 200.0 ? 200.0 : e;
    e = e < -200.0 ? -200.0 : e;
    f64 p = exp2_f64(e);
    const bool integer = size >= 0x1p24 || whole_f64(b) == b;
    const bool odd = integer && size < 0x1p24 && whole_f64(0.5 * b) != 0.5 * b;
    p = x < 0.0f && x > -INFINITY && !integer ? (f64)NAN : p;
    p = odd ? copysign(p, (f64)x) : p;
    p = a == 1.0 && !(size < (f64)INFINITY) ? (size > 0.0 || x > 0.0f ? 1.0 : b) : p; /* 1^NaN = (+-1)^inf = 1 */
    return b == 0.0 || x == 1.0f ? 1.0f : (f32)p;
}

/* Python's %: the sign of the divisor, also on a zero. */
#define MOD_FLOAT(T, fmod_fn, copysign_fn)                                                                             \
    static inline T mod_##T(T x, T y)                                                                                  \
    {                                                                                                                  \
        const T r = fmod_fn(x, y);                                                                                     \
        if (r == 0) return copysign_fn(0, y);                                                                          \
        return (r < 0) != (y < 0) ? r + y : r;                                                                         \
    }
MOD_FLOAT(f32, fmodf, copysignf)
MOD_FLOAT(f64, fmod, copysign)

#endif
