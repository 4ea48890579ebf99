/* ptx_compare.c: setp: all comparisons of all types, lane by lane, into predicates of 0 and 1. A comparison of
 * floats is false where one is a NaN, the ones that end in u are true there. */
#include "ptx_lanes.h"

#define CAST(T, v) ((T)(v))
#define PAIR(OP, id, sig, n, R, T) \
    OP(eq_##id, "p" sig, "setp.eq." n, u8, R, R, CAST(T, x) == CAST(T, y)) \
    OP(ne_##id, "p" sig, "setp.ne." n, u8, R, R, CAST(T, x) != CAST(T, y))
#define ORDER(OP, id, sig, n, R, T) \
    OP(lt_##id, "p" sig, "setp.lt." n, u8, R, R, CAST(T, x) < CAST(T, y)) \
    OP(le_##id, "p" sig, "setp.le." n, u8, R, R, CAST(T, x) <= CAST(T, y)) \
    OP(gt_##id, "p" sig, "setp.gt." n, u8, R, R, CAST(T, x) > CAST(T, y)) \
    OP(ge_##id, "p" sig, "setp.ge." n, u8, R, R, CAST(T, x) >= CAST(T, y))
#define SAME(OP, id, sig, n, R, T) /* their names for unsigned: lower, lower or same, … */ \
    OP(lo_##id, "p" sig, "setp.lo." n, u8, R, R, CAST(T, x) < CAST(T, y)) \
    OP(ls_##id, "p" sig, "setp.ls." n, u8, R, R, CAST(T, x) <= CAST(T, y)) \
    OP(hi_##id, "p" sig, "setp.hi." n, u8, R, R, CAST(T, x) > CAST(T, y)) \
    OP(hs_##id, "p" sig, "setp.hs." n, u8, R, R, CAST(T, x) >= CAST(T, y))
#define INTEGER(OP, id, sig, n, R, T) PAIR(OP, id, sig, n, R, T) ORDER(OP, id, sig, n, R, T)
#define REAL(OP, id, sig, n, T) \
    OP(eq_##id, "p" sig, "setp.eq." n, u8, T, T, x == y) \
    OP(ne_##id, "p" sig, "setp.ne." n, u8, T, T, x < y || x > y) \
    ORDER(OP, id, sig, n, T, T) \
    OP(equ_##id, "p" sig, "setp.equ." n, u8, T, T, !(x < y || x > y)) \
    OP(neu_##id, "p" sig, "setp.neu." n, u8, T, T, x != y) \
    OP(ltu_##id, "p" sig, "setp.ltu." n, u8, T, T, !(x >= y)) \
    OP(leu_##id, "p" sig, "setp.leu." n, u8, T, T, !(x > y)) \
    OP(gtu_##id, "p" sig, "setp.gtu." n, u8, T, T, !(x <= y)) \
    OP(geu_##id, "p" sig, "setp.geu." n, u8, T, T, !(x < y)) \
    OP(num_##id, "p" sig, "setp.num." n, u8, T, T, x == x && y == y) \
    OP(nan_##id, "p" sig, "setp.nan." n, u8, T, T, x != x || y != y)
#define LIST(OP) \
    PAIR(OP, b16, "hh", "b16", u32, u16) \
    PAIR(OP, b32, "ww", "b32", u32, u32) \
    PAIR(OP, b64, "dd", "b64", u64, u64) \
    INTEGER(OP, u16, "hh", "u16", u32, u16) SAME(OP, u16, "hh", "u16", u32, u16) \
    INTEGER(OP, s16, "hh", "s16", u32, s16) \
    INTEGER(OP, u32, "ww", "u32", u32, u32) SAME(OP, u32, "ww", "u32", u32, u32) \
    INTEGER(OP, s32, "ww", "s32", s32, s32) \
    INTEGER(OP, u64, "dd", "u64", u64, u64) SAME(OP, u64, "dd", "u64", u64, u64) \
    INTEGER(OP, s64, "dd", "s64", s64, s64) \
    REAL(OP, f32, "ff", "f32", f32) \
    REAL(OP, f64, "FF", "f64", f64)

LIST(DEFINE2)
const ptx_op PTX_NAME(ptx_compare)[] = { LIST(ENTRY) { 0 } };
