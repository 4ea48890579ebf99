/* ptx_float.c: arithmetic and elementary functions of f32 and f64, lane by lane, rounded to nearest or as fesetround
 * says. Fused multiply-add is fused; nothing else is contracted. The approximations of GPUs are not less exact here. */
#include "ptx_lanes.h"

/* PTX's min and max: a NaN loses against a number, -0 is less than +0 */
#define LESS(T, bits) \
    static inline bool less_##T(T x, T y) { return x < y || (x == y && bits(x) > bits(y)); } \
    static inline T min_##T(T x, T y) { return x != x ? y : y != y ? x : less_##T(x, y) ? x : y; } \
    static inline T max_##T(T x, T y) { return x != x ? y : y != y ? x : less_##T(x, y) ? y : x; } \
    static inline T min_nan_##T(T x, T y) { return x != x || y != y ? (T)NAN : min_##T(x, y); } \
    static inline T max_nan_##T(T x, T y) { return x != x || y != y ? (T)NAN : max_##T(x, y); }
LESS(f32, bits_of)
LESS(f64, bits_of64)

/* 2^x by a polynomial of 2^r on [-1/2, 1/2] (Taylor, error below 2^-40) in double: rounds to f32 nearly always right */
static inline f32 exp_2(f32 v)
{
    const f64 x = v < -160 ? -160 : v > 160 ? 160 : v;
    const f64 whole = x + 6755399441055744.0; /* the integer nearest to x, in the low bits */
    const f64 r = (x - (whole - 6755399441055744.0)) * 0.69314718055994530942;
    f64 p = 1.0 / 3628800;
    p = p * r + 1.0 / 362880, p = p * r + 1.0 / 40320, p = p * r + 1.0 / 5040, p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120, p = p * r + 1.0 / 24, p = p * r + 1.0 / 6, p = p * r + 0.5, p = p * r + 1, p = p * r + 1;
    const f32 y = (f32)(p * f64_of((bits_of64(whole) + 1023) << 52));
    return v != v ? v : y;
}

/* the crude reciprocals of f64 give 20 bits of fraction and flush */
static inline f64 crude(f64 v)
{
    const u64 b = bits_of64(v);
    return f64_of((b >> 52 & 0x7FF) == 0 ? b & 1ull << 63 : v != v ? b : b & ~0xFFFFFFFFull);
}
static inline f64 sign_with(f64 size, f64 sign)
{
    return f64_of((bits_of64(size) & ~(1ull << 63)) | (bits_of64(sign) & 1ull << 63));
}
static inline f64 crude_rcp(f64 v)
{
    const f64 x = crude(v);
    return crude(x == 0 ? sign_with(INFINITY, x) : 1 / x);
}
static inline f64 crude_rsqrt(f64 v)
{
    const f64 x = crude(v);
    return crude(x == 0 ? sign_with(INFINITY, x) : 1 / sqrt(x));
}

#define REAL1(OP, T, W, B, n, one) \
    OP(neg_##T, W W, "neg." n, B, B, x ^ (B)1 << (sizeof(B) * 8 - 1)) \
    OP(abs_##T, W W, "abs." n, B, B, x & ~((B)1 << (sizeof(B) * 8 - 1))) \
    OP(rcp_##T, W W, "rcp." n " rcp.approx." n, T, T, one / x) \
    OP(finite_##T, "p" W, "testp.finite." n, u8, T, x - x == 0) \
    OP(infinite_##T, "p" W, "testp.infinite." n, u8, T, x == x && x - x != 0) \
    OP(number_##T, "p" W, "testp.number." n, u8, T, x == x) \
    OP(nan_##T, "p" W, "testp.notanumber." n, u8, T, x != x)
#define LIST1(OP) \
    REAL1(OP, f32, "f", u32, "f32", 1.0f) \
    REAL1(OP, f64, "F", u64, "f64", 1.0) \
    OP(normal, "pf", "testp.normal.f32", u8, u32, (x >> 23 & 0xFF) - 1 < 254) \
    OP(subnormal, "pf", "testp.subnormal.f32", u8, u32, (x >> 23 & 0xFF) == 0 && (x << 1) != 0) \
    OP(normal_d, "pF", "testp.normal.f64", u8, u64, (x >> 52 & 0x7FF) - 1 < 2046) \
    OP(subnormal_d, "pF", "testp.subnormal.f64", u8, u64, (x >> 52 & 0x7FF) == 0 && (x << 1) != 0) \
    OP(sqrt_f, "ff", "sqrt.f32 sqrt.approx.f32", f32, f32, sqrtf(x)) \
    OP(sqrt_F, "FF", "sqrt.f64", f64, f64, sqrt(x)) \
    OP(rsqrt_f, "ff", "rsqrt.approx.f32", f32, f32, 1 / sqrt((f64)x)) \
    OP(rsqrt_F, "FF", "rsqrt.approx.f64", f64, f64, 1 / sqrt(x)) \
    OP(rcp_crude, "FF", "rcp.approx.ftz.f64", f64, f64, crude_rcp(x)) \
    OP(rsqrt_crude, "FF", "rsqrt.approx.ftz.f64", f64, f64, crude_rsqrt(x)) \
    OP(ex2_f, "ff", "ex2.approx.f32", f32, f32, exp_2(x)) \
    OP(lg2_f, "ff", "lg2.approx.f32", f32, f32, log2f(x)) \
    OP(sin_f, "ff", "sin.approx.f32", f32, f32, sinf(x)) \
    OP(cos_f, "ff", "cos.approx.f32", f32, f32, cosf(x)) \
    OP(tanh_f, "ff", "tanh.approx.f32", f32, f32, tanhf(x))

#define REAL2(OP, T, W, B, n) \
    OP(add_##T, W W W, "add." n, T, T, T, x + y) \
    OP(sub_##T, W W W, "sub." n, T, T, T, x - y) \
    OP(mul_##T, W W W, "mul." n, T, T, T, x * y) \
    OP(div_##T, W W W, "div." n " div.approx." n " div.full." n, T, T, T, x / y) \
    OP(mn_##T, W W W, "min." n, T, T, T, min_##T(x, y)) \
    OP(mx_##T, W W W, "max." n, T, T, T, max_##T(x, y)) \
    OP(mnn_##T, W W W, "min.NaN." n, T, T, T, min_nan_##T(x, y)) \
    OP(mxn_##T, W W W, "max.NaN." n, T, T, T, max_nan_##T(x, y)) \
    OP(copysign_##T, W W W, "copysign." n, B, B, B, \
      (x & (B)1 << (sizeof(B) * 8 - 1)) | (y & ~((B)1 << (sizeof(B) * 8 - 1))))
#define LIST2(OP) REAL2(OP, f32, "f", u32, "f32") REAL2(OP, f64, "F", u64, "f64")

#define LIST3(OP) \
    OP(fma_f, "ffff", "fma.f32 mad.f32", f32, f32, f32, f32, __builtin_fmaf(x, y, z)) \
    OP(fma_F, "FFFF", "fma.f64 mad.f64", f64, f64, f64, f64, __builtin_fma(x, y, z)) \
    OP(min3_f, "ffff", "$min3", f32, f32, f32, f32, min_f32(min_f32(x, y), z)) \
    OP(max3_f, "ffff", "$max3", f32, f32, f32, f32, max_f32(max_f32(x, y), z))

LIST1(DEFINE1)
LIST2(DEFINE2)
LIST3(DEFINE3)
const ptx_op PTX_NAME(ptx_float)[] = { LIST1(ENTRY) LIST2(ENTRY) LIST3(ENTRY) { 0 } };
