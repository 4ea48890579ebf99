/* ptx_integer.c: operations on integers, bits and predicates, lane by lane: tables that ptx_decode.c searches by
 * name. */
#include "ptx_lanes.h"

static inline u32 shl32(u32 x, u32 n) { return n > 31 ? 0 : x << n; }
static inline u64 shl64(u64 x, u32 n) { return n > 63 ? 0 : x << n; }
static inline u32 shr32(u32 x, u32 n) { return n > 31 ? 0 : x >> n; }
static inline u64 shr64(u64 x, u32 n) { return n > 63 ? 0 : x >> n; }
static inline s32 sar32(s32 x, u32 n) { return x >> (n > 31 ? 31 : n); }
static inline s64 sar64(s64 x, u32 n) { return x >> (n > 63 ? 63 : n); }

/* a division by zero gives what GPUs give, all ones; the lowest number by -1 wraps */
static inline u32 div_u(u32 x, u32 y) { return y == 0 ? UINT32_MAX : x / y; }
static inline u32 rem_u(u32 x, u32 y) { return y == 0 ? x : x % y; }
static inline u64 div_u64(u64 x, u64 y) { return y == 0 ? UINT64_MAX : x / y; }
static inline u64 rem_u64(u64 x, u64 y) { return y == 0 ? x : x % y; }
static inline s32 div_s(s32 x, s32 y) { return y == 0 ? -1 : y == -1 ? (s32)(0 - (u32)x) : x / y; }
static inline s32 rem_s(s32 x, s32 y) { return y == 0 ? x : y == -1 ? 0 : x % y; }
static inline s64 div_s64(s64 x, s64 y) { return y == 0 ? -1 : y == -1 ? (s64)(0 - (u64)x) : x / y; }
static inline s64 rem_s64(s64 x, s64 y) { return y == 0 ? x : y == -1 ? 0 : x % y; }

static inline s32 clamp_s32(s64 v) { return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (s32)v; }
static inline u32 magnitude(s32 v) { return v < 0 ? 0 - (u32)v : (u32)v; }
static inline u64 magnitude64(s64 v) { return v < 0 ? 0 - (u64)v : (u64)v; }

static inline u32 reverse(u32 v)
{
    v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
    v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
    v = (v >> 4 & 0x0F0F0F0Fu) | (v & 0x0F0F0F0Fu) << 4;
    return __builtin_bswap32(v);
}

/* bit n downwards, where the sign would end; UINT32_MAX: no such bit */
static inline u32 top_bit(u64 v) { return v ? 63u - (u32)__builtin_clzll(v) : UINT32_MAX; }
static inline u32 top_bit_signed(s64 v) { return top_bit((u64)(v < 0 ? ~v : v)); }

static inline u64 field(u64 x, u32 at, u32 n, u32 width)
{
    at &= 0xFF, n &= 0xFF;
    const u64 v = at >= width ? 0 : x >> at;
    return n >= 64 ? v : v & (((u64)1 << n) - 1);
}
/* the sign is the field's top bit, or the number's where the field reaches past it */
static inline s64 field_signed(u64 x, u32 at, u32 n, u32 width)
{
    at &= 0xFF, n &= 0xFF;
    if (n == 0) return 0;
    const u32 top = at + n - 1 < width - 1 ? at + n - 1 : width - 1;
    const bool minus = (x >> top & 1) != 0;
    const u64 v = at >= width ? 0 : x >> at;
    const u32 kept = at >= width ? 0 : width - at < n ? width - at : n;
    const u64 ones = kept >= 64 ? UINT64_MAX : ((u64)1 << kept) - 1;
    return (s64)((v & ones) | (minus ? ~ones : 0));
}
static inline u64 insert(u64 from, u64 into, u32 place, u32 width)
{
    const u32 at = place & 0xFF, n = place >> 8 & 0xFF;
    if (at >= width) return into;
    const u64 ones = (n >= 64 ? UINT64_MAX : ((u64)1 << n) - 1) << at;
    return (from << at & ones) | (into & ~ones);
}

/* byte i of the 8 bytes of b:a by nibble i of the selector, whose top bit spreads the byte's sign */
static inline u32 permute(u32 a, u32 b, u32 selector)
{
    const u64 all = (u64)b << 32 | a;
    u32 out = 0;
    for (int k = 0; k < 4; k++) {
        const u32 s = selector >> 4 * k;
        u32 byte = (u32)(all >> 8 * (s & 7)) & 0xFF;
        if (s & 8) byte = byte & 0x80 ? 0xFF : 0;
        out |= byte << 8 * k;
    }
    return out;
}
static inline u32 selector_4(u32 mode, u32 n) /* f4e b4e rc8 ecl ecr rc16 as selectors of the general form */
{
    static const u16 selectors[6][4] = { { 0x3210, 0x4321, 0x5432, 0x6543 }, { 0x5670, 0x6701, 0x7012, 0x0123 },
                                         { 0x0000, 0x1111, 0x2222, 0x3333 }, { 0x3210, 0x3211, 0x3222, 0x3333 },
                                         { 0x0000, 0x1110, 0x2210, 0x3210 }, { 0x1010, 0x3232, 0x1010, 0x3232 } };
    return selectors[mode][n & 3];
}
static inline u32 funnel_left(u32 low, u32 high, u32 n)
{
    return n == 0 ? high : n > 31 ? low : high << n | low >> (32 - n);
}
static inline u32 funnel_right(u32 low, u32 high, u32 n)
{
    return n == 0 ? low : n > 31 ? high : low >> n | high << (32 - n);
}

/* any function of three bits, by its truth table */
static inline u32 logic(u32 a, u32 b, u32 c, u32 table)
{
    u32 out = 0;
    for (u32 k = 0; k < 8; k++)
        if (table >> k & 1) out |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return out;
}

/* sums of products of bytes: the sign of each side by its type */
#define BYTE(T, v, k) ((s32)(T)((v) >> 8 * (k)))
#define HALF(T, v, k) ((s32)(T)((v) >> 16 * (k)))
#define DOT4(TA, TB) \
    (z + (u32)(BYTE(TA, x, 0) * BYTE(TB, y, 0)) + (u32)(BYTE(TA, x, 1) * BYTE(TB, y, 1)) + \
     (u32)(BYTE(TA, x, 2) * BYTE(TB, y, 2)) + (u32)(BYTE(TA, x, 3) * BYTE(TB, y, 3)))
#define DOT2(TA, TB, k) (z + (u32)(HALF(TA, x, 0) * BYTE(TB, y, k)) + (u32)(HALF(TA, x, 1) * BYTE(TB, y, k + 1)))

/* the lesser or greater of each half */
#define PAIR(T, op) \
    ((u32)(u16)((T)x op(T) y ? x : y) | (u32)(u16)((T)(x >> 16) op(T)(y >> 16) ? x >> 16 : y >> 16) << 16)

#define LIST1(OP) \
    OP(mov_p, "pp", "mov.pred", u8, u8, x) \
    OP(mov_h, "hh", "mov.b16 mov.u16 mov.s16", u32, u32, (u16)x) \
    OP(mov_w, "ww", "mov.b32 mov.u32 mov.s32", u32, u32, x) \
    OP(mov_f, "ff", "mov.f32", u32, u32, x) \
    OP(mov_d, "dd", "mov.b64 mov.u64 mov.s64", u64, u64, x) \
    OP(mov_F, "FF", "mov.f64", u64, u64, x) \
    OP(cvta_shared, "dd", "cvta.shared.u64", u64, u64, x + PTX_WINDOW_SHARED) \
    OP(cvta_local, "dd", "cvta.local.u64", u64, u64, x + PTX_WINDOW_LOCAL) \
    OP(cvta_param, "dd", "cvta.param.u64", u64, u64, x + PTX_WINDOW_PARAM) \
    OP(to_shared, "dd", "cvta.to.shared.u64", u64, u64, x - PTX_WINDOW_SHARED) \
    OP(to_local, "dd", "cvta.to.local.u64", u64, u64, x - PTX_WINDOW_LOCAL) \
    OP(to_param, "dd", "cvta.to.param.u64", u64, u64, x - PTX_WINDOW_PARAM) \
    OP(same_address, "dd", "cvta.global.u64 cvta.const.u64 cvta.to.global.u64 cvta.to.const.u64", u64, u64, x) \
    OP(is_global, "pd", "isspacep.global", u8, u64, x < PTX_WINDOW_SHARED) \
    OP(is_shared, "pd", "isspacep.shared", u8, u64, x >> 56 == 1) \
    OP(is_local, "pd", "isspacep.local", u8, u64, x >> 56 == 2) \
    OP(is_param, "pd", "isspacep.param", u8, u64, x >> 56 == 3) \
    OP(low_w, "wd", "$low.w", u32, u64, x) \
    OP(high_w, "wd", "$high.w", u32, u64, x >> 32) \
    OP(low_h, "hw", "$low.h", u32, u32, (u16)x) \
    OP(high_h, "hw", "$high.h", u32, u32, x >> 16) \
    OP(neg_h, "hh", "neg.s16", u32, u32, (u16)(0 - x)) \
    OP(neg_w, "ww", "neg.s32", u32, u32, 0 - x) \
    OP(neg_d, "dd", "neg.s64", u64, u64, 0 - x) \
    OP(abs_h, "hh", "abs.s16", u32, u32, (u16)magnitude((s16)x)) \
    OP(abs_w, "ww", "abs.s32", u32, s32, magnitude(x)) \
    OP(abs_d, "dd", "abs.s64", u64, s64, magnitude64(x)) \
    OP(not_p, "pp", "not.pred", u8, u8, x ^ 1) \
    OP(not_h, "hh", "not.b16", u32, u32, (u16)~x) \
    OP(not_w, "ww", "not.b32", u32, u32, ~x) \
    OP(not_d, "dd", "not.b64", u64, u64, ~x) \
    OP(cnot_h, "hh", "cnot.b16", u32, u32, (u16)x == 0) \
    OP(cnot_w, "ww", "cnot.b32", u32, u32, x == 0) \
    OP(cnot_d, "dd", "cnot.b64", u64, u64, x == 0) \
    OP(popc_w, "ww", "popc.b32", u32, u32, __builtin_popcount(x)) \
    OP(popc_d, "wd", "popc.b64", u32, u64, __builtin_popcountll(x)) \
    OP(clz_w, "ww", "clz.b32", u32, u32, x ? __builtin_clz(x) : 32) \
    OP(clz_d, "wd", "clz.b64", u32, u64, x ? __builtin_clzll(x) : 64) \
    OP(brev_w, "ww", "brev.b32", u32, u32, reverse(x)) \
    OP(brev_d, "dd", "brev.b64", u64, u64, (u64)reverse((u32)x) << 32 | reverse((u32)(x >> 32))) \
    OP(bfind_u, "ww", "bfind.u32", u32, u32, top_bit(x)) \
    OP(bfind_s, "ww", "bfind.s32", u32, s32, top_bit_signed(x)) \
    OP(bfind_ud, "wd", "bfind.u64", u32, u64, top_bit(x)) \
    OP(bfind_sd, "wd", "bfind.s64", u32, s64, top_bit_signed(x)) \
    OP(shift_u, "ww", "bfind.shiftamt.u32", u32, u32, x ? 31 - top_bit(x) : UINT32_MAX)

#define LIST2(OP) \
    OP(add_h, "hhh", "add.s16 add.u16", u32, u32, u32, (u16)(x + y)) \
    OP(add_w, "www", "add.s32 add.u32", u32, u32, u32, x + y) \
    OP(add_d, "ddd", "add.s64 add.u64", u64, u64, u64, x + y) \
    OP(add_sat, "www", "add.sat.s32", s32, s32, s32, clamp_s32((s64)x + y)) \
    OP(sub_h, "hhh", "sub.s16 sub.u16", u32, u32, u32, (u16)(x - y)) \
    OP(sub_w, "www", "sub.s32 sub.u32", u32, u32, u32, x - y) \
    OP(sub_d, "ddd", "sub.s64 sub.u64", u64, u64, u64, x - y) \
    OP(sub_sat, "www", "sub.sat.s32", s32, s32, s32, clamp_s32((s64)x - y)) \
    OP(carry_w, "pww", "$carry.w", u8, u32, u32, x < y) /* of a sum x with an addend y */ \
    OP(carry_d, "pdd", "$carry.d", u8, u64, u64, x < y) \
    OP(mul_h, "hhh", "mul.lo.s16 mul.lo.u16", u32, u32, u32, (u16)(x * y)) \
    OP(mul_w, "www", "mul.lo.s32 mul.lo.u32", u32, u32, u32, x * y) \
    OP(mul_d, "ddd", "mul.lo.s64 mul.lo.u64", u64, u64, u64, x * y) \
    OP(high_uh, "hhh", "mul.hi.u16", u32, u32, u32, (u32)(u16)x * (u16)y >> 16) \
    OP(high_sh, "hhh", "mul.hi.s16", u32, u32, u32, (u16)((s16)x * (s16)y >> 16)) \
    OP(high_u, "www", "mul.hi.u32", u32, u32, u32, (u64)x * y >> 32) \
    OP(high_s, "www", "mul.hi.s32", u32, s32, s32, (s64)x * y >> 32) \
    OP(high_ud, "ddd", "mul.hi.u64", u64, u64, u64, (u128)x * y >> 64) \
    OP(high_sd, "ddd", "mul.hi.s64", u64, s64, s64, (s128)x * y >> 64) \
    OP(wide_uh, "whh", "mul.wide.u16", u32, u32, u32, (u32)(u16)x * (u16)y) \
    OP(wide_sh, "whh", "mul.wide.s16", u32, u32, u32, (s16)x * (s16)y) \
    OP(wide_u, "dww", "mul.wide.u32", u64, u32, u32, (u64)x * y) \
    OP(wide_s, "dww", "mul.wide.s32", u64, s32, s32, (s64)x * y) \
    OP(mul24_u, "www", "mul24.lo.u32", u32, u32, u32, (x & 0xFFFFFF) * (y & 0xFFFFFF)) \
    OP(mul24_s, "www", "mul24.lo.s32", u32, u32, u32, (u32)((s32)(x << 8) >> 8) * (u32)((s32)(y << 8) >> 8)) \
    OP(mul24h_u, "www", "mul24.hi.u32", u32, u32, u32, (u64)(x & 0xFFFFFF) * (y & 0xFFFFFF) >> 16) \
    OP(mul24h_s, "www", "mul24.hi.s32", u32, u32, u32, (s64)((s32)(x << 8) >> 8) * ((s32)(y << 8) >> 8) >> 16) \
    OP(div_uh, "hhh", "div.u16", u32, u32, u32, (u16)div_u((u16)x, (u16)y)) \
    OP(div_sh, "hhh", "div.s16", u32, u32, u32, (u16)div_s((s16)x, (s16)y)) \
    OP(div_uw, "www", "div.u32", u32, u32, u32, div_u(x, y)) \
    OP(div_sw, "www", "div.s32", s32, s32, s32, div_s(x, y)) \
    OP(div_ud, "ddd", "div.u64", u64, u64, u64, div_u64(x, y)) \
    OP(div_sd, "ddd", "div.s64", s64, s64, s64, div_s64(x, y)) \
    OP(rem_uh, "hhh", "rem.u16", u32, u32, u32, rem_u((u16)x, (u16)y)) \
    OP(rem_sh, "hhh", "rem.s16", u32, u32, u32, (u16)rem_s((s16)x, (s16)y)) \
    OP(rem_uw, "www", "rem.u32", u32, u32, u32, rem_u(x, y)) \
    OP(rem_sw, "www", "rem.s32", s32, s32, s32, rem_s(x, y)) \
    OP(rem_ud, "ddd", "rem.u64", u64, u64, u64, rem_u64(x, y)) \
    OP(rem_sd, "ddd", "rem.s64", s64, s64, s64, rem_s64(x, y)) \
    OP(min_uh, "hhh", "min.u16", u32, u32, u32, (u16)x < (u16)y ? (u16)x : (u16)y) \
    OP(min_sh, "hhh", "min.s16", u32, u32, u32, (u16)((s16)x < (s16)y ? x : y)) \
    OP(min_uw, "www", "min.u32", u32, u32, u32, x < y ? x : y) \
    OP(min_sw, "www", "min.s32", s32, s32, s32, x < y ? x : y) \
    OP(min_ud, "ddd", "min.u64", u64, u64, u64, x < y ? x : y) \
    OP(min_sd, "ddd", "min.s64", s64, s64, s64, x < y ? x : y) \
    OP(max_uh, "hhh", "max.u16", u32, u32, u32, (u16)x > (u16)y ? (u16)x : (u16)y) \
    OP(max_sh, "hhh", "max.s16", u32, u32, u32, (u16)((s16)x > (s16)y ? x : y)) \
    OP(max_uw, "www", "max.u32", u32, u32, u32, x > y ? x : y) \
    OP(max_sw, "www", "max.s32", s32, s32, s32, x > y ? x : y) \
    OP(max_ud, "ddd", "max.u64", u64, u64, u64, x > y ? x : y) \
    OP(max_sd, "ddd", "max.s64", s64, s64, s64, x > y ? x : y) \
    OP(and_p, "ppp", "and.pred", u8, u8, u8, x & y) \
    OP(and_h, "hhh", "and.b16", u32, u32, u32, (u16)(x & y)) \
    OP(and_w, "www", "and.b32", u32, u32, u32, x & y) \
    OP(and_d, "ddd", "and.b64", u64, u64, u64, x & y) \
    OP(or_p, "ppp", "or.pred", u8, u8, u8, x | y) \
    OP(or_h, "hhh", "or.b16", u32, u32, u32, (u16)(x | y)) \
    OP(or_w, "www", "or.b32", u32, u32, u32, x | y) \
    OP(or_d, "ddd", "or.b64", u64, u64, u64, x | y) \
    OP(xor_p, "ppp", "xor.pred", u8, u8, u8, x ^ y) \
    OP(xor_h, "hhh", "xor.b16", u32, u32, u32, (u16)(x ^ y)) \
    OP(xor_w, "www", "xor.b32", u32, u32, u32, x ^ y) \
    OP(xor_d, "ddd", "xor.b64", u64, u64, u64, x ^ y) \
    OP(shl_h, "hhw", "shl.b16", u32, u32, u32, (u16)shl32(x, y)) \
    OP(shl_w, "www", "shl.b32", u32, u32, u32, shl32(x, y)) \
    OP(shl_d, "ddw", "shl.b64", u64, u64, u32, shl64(x, y)) \
    OP(shr_uh, "hhw", "shr.u16 shr.b16", u32, u32, u32, shr32((u16)x, y)) \
    OP(shr_sh, "hhw", "shr.s16", u32, u32, u32, (u16)sar32((s16)x, y)) \
    OP(shr_uw, "www", "shr.u32 shr.b32", u32, u32, u32, shr32(x, y)) \
    OP(shr_sw, "www", "shr.s32", s32, s32, u32, sar32(x, y)) \
    OP(shr_ud, "ddw", "shr.u64 shr.b64", u64, u64, u32, shr64(x, y)) \
    OP(shr_sd, "ddw", "shr.s64", s64, s64, u32, sar64(x, y)) \
    OP(add_v, "www", "add.u16x2 add.s16x2", u32, u32, u32, (u16)(x + y) | ((x >> 16) + (y >> 16)) << 16) \
    OP(min_uv, "www", "min.u16x2", u32, u32, u32, PAIR(u16, <)) \
    OP(max_uv, "www", "max.u16x2", u32, u32, u32, PAIR(u16, >)) \
    OP(min_sv, "www", "min.s16x2", u32, u32, u32, PAIR(s16, <)) \
    OP(max_sv, "www", "max.s16x2", u32, u32, u32, PAIR(s16, >)) \
    OP(place, "www", "$place", u32, u32, u32, (x & 0xFF) | (y & 0xFF) << 8) \
    OP(pack_h, "whh", "$pack.h", u32, u32, u32, (x & 0xFFFF) | y << 16) \
    OP(pack_w, "dww", "$pack.w", u64, u32, u32, x | (u64)y << 32)

#define LIST3(OP) \
    OP(addc_w, "wwwp", "$addc.w", u32, u32, u32, u8, x + y + z) \
    OP(addc_d, "dddp", "$addc.d", u64, u64, u64, u8, x + y + z) \
    OP(carryc_w, "pwwp", "$carryc.w", u8, u32, u32, u8, ((u64)x + y + z) >> 32) \
    OP(carryc_d, "pddp", "$carryc.d", u8, u64, u64, u8, ((u128)x + y + z) >> 64) \
    OP(subc_w, "wwwp", "$subc.w", u32, u32, u32, u8, x - y - z) \
    OP(subc_d, "dddp", "$subc.d", u64, u64, u64, u8, x - y - z) \
    OP(borrow_w, "pwwp", "$borrow.w", u8, u32, u32, u8, (u64)x < (u64)y + z) \
    OP(borrow_d, "pddp", "$borrow.d", u8, u64, u64, u8, (u128)x < (u128)y + z) \
    OP(mad_h, "hhhh", "mad.lo.s16 mad.lo.u16", u32, u32, u32, u32, (u16)(x * y + z)) \
    OP(mad_w, "wwww", "mad.lo.s32 mad.lo.u32", u32, u32, u32, u32, x * y + z) \
    OP(mad_d, "dddd", "mad.lo.s64 mad.lo.u64", u64, u64, u64, u64, x * y + z) \
    OP(madhi_u, "wwww", "mad.hi.u32", u32, u32, u32, u32, ((u64)x * y >> 32) + z) \
    OP(madhi_s, "wwww", "mad.hi.s32", u32, s32, s32, u32, (u32)((s64)x * y >> 32) + z) \
    OP(madhi_ud, "dddd", "mad.hi.u64", u64, u64, u64, u64, (u64)((u128)x * y >> 64) + z) \
    OP(madhi_sd, "dddd", "mad.hi.s64", u64, s64, s64, u64, (u64)((s128)x * y >> 64) + z) \
    OP(madw_uh, "whhw", "mad.wide.u16", u32, u32, u32, u32, (u32)(u16)x * (u16)y + z) \
    OP(madw_sh, "whhw", "mad.wide.s16", u32, u32, u32, u32, (u32)((s16)x * (s16)y) + z) \
    OP(madw_u, "dwwd", "mad.wide.u32", u64, u32, u32, u64, (u64)x * y + z) \
    OP(madw_s, "dwwd", "mad.wide.s32", u64, s32, s32, u64, (u64)((s64)x * y) + z) \
    OP(mad24_u, "wwww", "mad24.lo.u32", u32, u32, u32, u32, (x & 0xFFFFFF) * (y & 0xFFFFFF) + z) \
    OP(mad24_s, "wwww", "mad24.lo.s32", u32, u32, u32, u32, \
      (u32)((s32)(x << 8) >> 8) * (u32)((s32)(y << 8) >> 8) + z) \
    OP(sad_u, "wwww", "sad.u32", u32, u32, u32, u32, z + (x < y ? y - x : x - y)) \
    OP(sad_s, "wwww", "sad.s32", u32, s32, s32, u32, z + (x < y ? (u32)y - (u32)x : (u32)x - (u32)y)) \
    OP(sad_ud, "dddd", "sad.u64", u64, u64, u64, u64, z + (x < y ? y - x : x - y)) \
    OP(bfe_u, "wwww", "bfe.u32", u32, u32, u32, u32, field(x, y, z, 32)) \
    OP(bfe_s, "wwww", "bfe.s32", u32, u32, u32, u32, field_signed(x, y, z, 32)) \
    OP(bfe_ud, "ddww", "bfe.u64", u64, u64, u32, u32, field(x, y, z, 64)) \
    OP(bfe_sd, "ddww", "bfe.s64", u64, u64, u32, u32, field_signed(x, y, z, 64)) \
    OP(bfi_w, "wwww", "$bfi.b32", u32, u32, u32, u32, insert(x, y, z, 32)) /* z: place | bits << 8 */ \
    OP(bfi_d, "dddw", "$bfi.b64", u64, u64, u64, u32, insert(x, y, z, 64)) \
    OP(prmt_w, "wwww", "prmt.b32", u32, u32, u32, u32, permute(x, y, z)) \
    OP(prmt_f4e, "wwww", "prmt.b32.f4e", u32, u32, u32, u32, permute(x, y, selector_4(0, z))) \
    OP(prmt_b4e, "wwww", "prmt.b32.b4e", u32, u32, u32, u32, permute(x, y, selector_4(1, z))) \
    OP(prmt_rc8, "wwww", "prmt.b32.rc8", u32, u32, u32, u32, permute(x, y, selector_4(2, z))) \
    OP(prmt_ecl, "wwww", "prmt.b32.ecl", u32, u32, u32, u32, permute(x, y, selector_4(3, z))) \
    OP(prmt_ecr, "wwww", "prmt.b32.ecr", u32, u32, u32, u32, permute(x, y, selector_4(4, z))) \
    OP(prmt_rc16, "wwww", "prmt.b32.rc16", u32, u32, u32, u32, permute(x, y, selector_4(5, z))) \
    OP(shf_lw, "wwww", "shf.l.wrap.b32", u32, u32, u32, u32, funnel_left(x, y, z & 31)) \
    OP(shf_lc, "wwww", "shf.l.clamp.b32", u32, u32, u32, u32, funnel_left(x, y, z)) \
    OP(shf_rw, "wwww", "shf.r.wrap.b32", u32, u32, u32, u32, funnel_right(x, y, z & 31)) \
    OP(shf_rc, "wwww", "shf.r.clamp.b32", u32, u32, u32, u32, funnel_right(x, y, z)) \
    OP(lop3, "wdww", "$lop3", u32, u64, u32, u32, logic((u32)x, (u32)(x >> 32), y, z)) \
    OP(dp4a_uu, "wwww", "dp4a.u32.u32", u32, u32, u32, u32, DOT4(u8, u8)) \
    OP(dp4a_ss, "wwww", "dp4a.s32.s32", u32, u32, u32, u32, DOT4(s8, s8)) \
    OP(dp4a_us, "wwww", "dp4a.u32.s32", u32, u32, u32, u32, DOT4(u8, s8)) \
    OP(dp4a_su, "wwww", "dp4a.s32.u32", u32, u32, u32, u32, DOT4(s8, u8)) \
    OP(dp2l_uu, "wwww", "dp2a.lo.u32.u32", u32, u32, u32, u32, DOT2(u16, u8, 0)) \
    OP(dp2l_ss, "wwww", "dp2a.lo.s32.s32", u32, u32, u32, u32, DOT2(s16, s8, 0)) \
    OP(dp2l_us, "wwww", "dp2a.lo.u32.s32", u32, u32, u32, u32, DOT2(u16, s8, 0)) \
    OP(dp2l_su, "wwww", "dp2a.lo.s32.u32", u32, u32, u32, u32, DOT2(s16, u8, 0)) \
    OP(dp2h_uu, "wwww", "dp2a.hi.u32.u32", u32, u32, u32, u32, DOT2(u16, u8, 2)) \
    OP(dp2h_ss, "wwww", "dp2a.hi.s32.s32", u32, u32, u32, u32, DOT2(s16, s8, 2)) \
    OP(dp2h_us, "wwww", "dp2a.hi.u32.s32", u32, u32, u32, u32, DOT2(u16, s8, 2)) \
    OP(dp2h_su, "wwww", "dp2a.hi.s32.u32", u32, u32, u32, u32, DOT2(s16, u8, 2)) \
    OP(selp_h, "hhhp", "selp.b16 selp.u16 selp.s16", u32, u32, u32, u8, z ? x : y) \
    OP(selp_w, "wwwp", "selp.b32 selp.u32 selp.s32", u32, u32, u32, u8, z ? x : y) \
    OP(selp_f, "fffp", "selp.f32", u32, u32, u32, u8, z ? x : y) \
    OP(selp_d, "dddp", "selp.b64 selp.u64 selp.s64", u64, u64, u64, u8, z ? x : y) \
    OP(selp_F, "FFFp", "selp.f64", u64, u64, u64, u8, z ? x : y) \
    OP(slct_w, "wwww", "slct.b32.s32 slct.u32.s32 slct.s32.s32", u32, u32, u32, s32, z >= 0 ? x : y) \
    OP(slct_f, "fffw", "slct.f32.s32", u32, u32, u32, s32, z >= 0 ? x : y) \
    OP(slct_d, "dddw", "slct.b64.s32 slct.u64.s32 slct.s64.s32", u64, u64, u64, s32, z >= 0 ? x : y)

LIST1(DEFINE1)
LIST2(DEFINE2)
LIST3(DEFINE3)

const ptx_op PTX_NAME(ptx_integer)[] = { LIST1(ENTRY) LIST2(ENTRY) LIST3(ENTRY) { 0 } };
