/* ptx_convert.c: cvt among integers and floats, lane by lane. Floats become integers by the rounding in the name and
 * saturate; what becomes a float is rounded as fesetround says, halves by their own names. 8 and 16 bits are read
 * from wider registers. */
#include "ptx_half.h"

static inline s128 clamp(s128 v, s128 low, s128 high) { return v < low ? low : v > high ? high : v; }

/* An integral v into [low, high]; a NaN is 0 or, where 64 bits have part in it, the top bit */
static inline s64 whole(f64 v, f64 low, f64 high, s64 nan)
{
    return v != v ? nan : (s64)(v < low ? low : v > high ? high : v);
}
static inline s64 whole_s64(f64 v)
{
    return v != v || v < -0x1p63 ? INT64_MIN : v >= 0x1p63 ? INT64_MAX : (s64)v;
}
static inline u64 whole_u64(f64 v)
{
    return v != v ? 1ull << 63 : v < 0 ? 0 : v >= 0x1p64 ? UINT64_MAX : (u64)v;
}
#define NAN_f32 0
#define NAN_f64 1
#define WHOLE_u8(v, nan) whole(v, 0, 255, nan ? 1 << 7 : 0)
#define WHOLE_s8(v, nan) whole(v, -128, 127, nan ? -(1 << 7) : 0)
#define WHOLE_u16(v, nan) whole(v, 0, 65535, nan ? 1 << 15 : 0)
#define WHOLE_s16(v, nan) whole(v, -32768, 32767, nan ? -(1 << 15) : 0)
#define WHOLE_u32(v, nan) whole(v, 0, 4294967295.0, nan ? (s64)1 << 31 : 0)
#define WHOLE_s32(v, nan) whole(v, -2147483648.0, 2147483647.0, nan ? -((s64)1 << 31) : 0)
#define WHOLE_u64(v, nan) whole_u64(v)
#define WHOLE_s64(v, nan) whole_s64(v)

/* all types as targets of one source: type, register it lies in, letter, least, greatest */
#define TARGETS(X, ...) \
    X(u8, u32, "x", 0, 255, __VA_ARGS__) X(s8, u32, "x", -128, 127, __VA_ARGS__) \
    X(u16, u32, "x", 0, 65535, __VA_ARGS__) X(s16, u32, "x", -32768, 32767, __VA_ARGS__) \
    X(u32, u32, "w", 0, UINT32_MAX, __VA_ARGS__) X(s32, u32, "w", INT32_MIN, INT32_MAX, __VA_ARGS__) \
    X(u64, u64, "d", 0, UINT64_MAX, __VA_ARGS__) X(s64, u64, "d", INT64_MIN, INT64_MAX, __VA_ARGS__)

#define INT(D, DR, dsig, low, high, OP, S, SR, ssig) \
    OP(D##_##S, dsig ssig, "cvt." #D "." #S, DR, SR, (D)(S)x) \
    OP(sat_##D##_##S, dsig ssig, "cvt.sat." #D "." #S, DR, SR, (D)clamp((S)x, low, high))
#define ROUND(D, DR, dsig, low, high, OP, S, SR, ssig, value) \
    OP(rni_##D##_##S, dsig ssig, "cvt.rni." #D "." #S, DR, SR, WHOLE_##D(rint(value), NAN_##S)) \
    OP(rzi_##D##_##S, dsig ssig, "cvt.rzi." #D "." #S, DR, SR, WHOLE_##D(trunc(value), NAN_##S)) \
    OP(rmi_##D##_##S, dsig ssig, "cvt.rmi." #D "." #S, DR, SR, WHOLE_##D(floor(value), NAN_##S)) \
    OP(rpi_##D##_##S, dsig ssig, "cvt.rpi." #D "." #S, DR, SR, WHOLE_##D(ceil(value), NAN_##S))
#define NAN_f16 0
#define NAN_bf16 0

/* from one integer type: to all integers and to all floats. A half of 64 bits is rounded twice, which tells only
 * beyond 2^53, where f16 is infinite */
#define FROM(OP, S, SR, ssig) \
    TARGETS(INT, OP, S, SR, ssig) \
    OP(f32_##S, "f" ssig, "cvt.f32." #S, f32, SR, (f32)(S)x) \
    OP(f64_##S, "F" ssig, "cvt.f64." #S, f64, SR, (f64)(S)x) \
    OP(f16_##S, "h" ssig, "cvt.f16." #S, u32, SR, to_f16((f64)(S)x, false)) \
    OP(bf16_##S, "h" ssig, "cvt.bf16." #S, u32, SR, to_bf16((f64)(S)x, false))
#define INTEGERS(OP) \
    FROM(OP, u8, u32, "x") FROM(OP, s8, u32, "x") FROM(OP, u16, u32, "x") FROM(OP, s16, u32, "x") \
    FROM(OP, u32, u32, "w") FROM(OP, s32, u32, "w") FROM(OP, u64, u64, "d") FROM(OP, s64, u64, "d")
#define WHOLES(OP) \
    TARGETS(ROUND, OP, f32, f32, "f", (f64)x) \
    TARGETS(ROUND, OP, f64, f64, "F", x) \
    TARGETS(ROUND, OP, f16, u32, "h", f16_value((u16)x)) \
    TARGETS(ROUND, OP, bf16, u32, "h", bf16_value((u16)x))
#define INTEGRAL(OP, n, T, sig, D, value, back) \
    OP(rni_##T, sig, "cvt.rni." n, D, D, back(rint(value))) \
    OP(rzi_##T, sig, "cvt.rzi." n, D, D, back(trunc(value))) \
    OP(rmi_##T, sig, "cvt.rmi." n, D, D, back(floor(value))) \
    OP(rpi_##T, sig, "cvt.rpi." n, D, D, back(ceil(value)))
#define F32_BACK(v) (f32)(v)
#define F16_BACK(v) to_f16(v, false)
#define FLOATS(OP) \
    OP(f64_f32, "Ff", "cvt.f64.f32", f64, f32, x) \
    OP(f32_f64, "fF", "cvt.f32.f64", f32, f64, x) \
    OP(f32_f32, "ff", "cvt.f32.f32", f32, f32, x) \
    OP(f64_f64, "FF", "cvt.f64.f64", f64, f64, x) \
    OP(f32_f16, "fh", "cvt.f32.f16", f32, u32, f16_value((u16)x)) \
    OP(f64_f16, "Fh", "cvt.f64.f16", f64, u32, f16_value((u16)x)) \
    OP(f32_bf16, "fh", "cvt.f32.bf16", f32, u32, bf16_value((u16)x)) \
    OP(f64_bf16, "Fh", "cvt.f64.bf16", f64, u32, bf16_value((u16)x)) \
    OP(f16_f32, "hf", "cvt.f16.f32", u32, f32, to_f16(x, false)) \
    OP(f16_f64, "hF", "cvt.f16.f64", u32, f64, to_f16(x, false)) \
    OP(f16_f32_z, "hf", "cvt.rz.f16.f32", u32, f32, to_f16(x, true)) \
    OP(f16_f64_z, "hF", "cvt.rz.f16.f64", u32, f64, to_f16(x, true)) \
    OP(bf16_f32, "hf", "cvt.bf16.f32", u32, f32, to_bf16(x, false)) \
    OP(bf16_f64, "hF", "cvt.bf16.f64", u32, f64, to_bf16(x, false)) \
    OP(bf16_f32_z, "hf", "cvt.rz.bf16.f32", u32, f32, to_bf16(x, true)) \
    OP(f16_bf16, "hh", "cvt.f16.bf16", u32, u32, to_f16(bf16_value((u16)x), false)) \
    OP(bf16_f16, "hh", "cvt.bf16.f16", u32, u32, to_bf16(f16_value((u16)x), false)) \
    OP(f16_f16, "hh", "cvt.f16.f16", u32, u32, (u16)x) \
    INTEGRAL(OP, "f32.f32", f32, "ff", f32, x, F32_BACK) \
    INTEGRAL(OP, "f64.f64", f64, "FF", f64, x, (f64)) \
    INTEGRAL(OP, "f16.f16", f16, "hh", u32, f16_value((u16)x), F16_BACK)
#define PAIRS(OP) \
    OP(f16x2_f32, "wff", "cvt.f16x2.f32", u32, f32, f32, to_f16(x, false) << 16 | to_f16(y, false)) \
    OP(f16x2_f32_z, "wff", "cvt.rz.f16x2.f32", u32, f32, f32, to_f16(x, true) << 16 | to_f16(y, true)) \
    OP(bf16x2_f32, "wff", "cvt.bf16x2.f32", u32, f32, f32, to_bf16(x, false) << 16 | to_bf16(y, false)) \
    OP(bf16x2_f32_z, "wff", "cvt.rz.bf16x2.f32", u32, f32, f32, to_bf16(x, true) << 16 | to_bf16(y, true))

INTEGERS(DEFINE1)
WHOLES(DEFINE1)
FLOATS(DEFINE1)
PAIRS(DEFINE2)
const ptx_op PTX_NAME(ptx_convert)[] = { INTEGERS(ENTRY) WHOLES(ENTRY) FLOATS(ENTRY) PAIRS(ENTRY) { 0 } };
