/* ptx_half.h: f16 and bf16 from and to wider floats, exact or rounded once, in plain C for any CPU. */
#ifndef FAKECUDA_PTX_HALF_H
#define FAKECUDA_PTX_HALF_H

#include "ptx_lanes.h"

static inline f32 f16_value(u32 h)
{
    const u32 sign = (h & 0x8000u) << 16, size = h & 0x7FFFu;
    const f32 small = (f32)size * 0x1p-24f; /* subnormal: a multiple of 2^-24 */
    const u32 wide = size >= 0x7C00u ? (size << 13) + 0x70000000u : (size << 13) + 0x38000000u;
    return f32_of(sign | (size < 0x400u ? bits_of(small) : wide));
}
static inline f32 bf16_value(u32 h) { return f32_of(h << 16); }

/* v's fraction cut to `keep` bits above a least exponent, toward zero or to the nearest even; v finite, not negative */
static inline f64 cut(f64 v, int keep, int least, bool to_zero)
{
    const int e = (int)(bits_of64(v) >> 52 & 0x7FF) - 1023;
    const int last = (e < least ? least : e) - keep;
    const f64 unit = f64_of((u64)(last + 1023) << 52), scaled = v / unit; /* exact: a power of two */
    const f64 whole = to_zero ? trunc(scaled) : rint(scaled);
    return whole * unit;
}
static inline u32 to_f16(f64 v, bool to_zero)
{
    const u32 sign = (u32)(bits_of64(v) >> 48) & 0x8000u;
    if (v != v) return 0x7FFFu;
    const f64 size = fabs(v);
    if (size > 65504 && (to_zero ? size <= 1.7976931348623157e308 : size < 65520)) return sign | 0x7BFFu;
    if (size >= 65520) return sign | 0x7C00u;
    const u64 b = bits_of64(cut(size, 10, -14, to_zero));
    const int e = (int)(b >> 52) - 1023;
    if (e < -14) return sign | (u32)(f64_of(b) * 0x1p24);
    return sign | (u32)(((u32)(e + 15) << 10) | (b >> 42 & 0x3FFu));
}
static inline u32 to_bf16(f64 v, bool to_zero)
{
    const u32 sign = (u32)(bits_of64(v) >> 48) & 0x8000u;
    if (v != v) return 0x7FFFu;
    const f64 size = fabs(v), top = 0x1.FEp127, over = 0x1.FFp127;
    if (size > top && (to_zero ? size <= 1.7976931348623157e308 : size < over)) return sign | 0x7F7Fu;
    if (size >= over) return sign | 0x7F80u;
    return sign | bits_of((f32)cut(size, 7, -126, to_zero)) >> 16;
}

/* The sum rounded to odd: rounding it again to fewer bits is right. */
static inline f64 sum_odd(f64 a, f64 b)
{
    const f64 s = a + b, t = s - a, e = (a - (s - t)) + (b - t);
    const u64 bits = bits_of64(s);
    if (e == 0 || e != e || (bits & 1)) return s;
    return f64_of((e > 0) == (s > 0) ? bits + 1 : bits - 1);
}

#endif
