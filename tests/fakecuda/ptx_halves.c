/* ptx_halves.c: arithmetic on f16 and bf16, alone and in pairs, rounded once, lane by lane. */
#include "ptx_half.h"

static inline f64 less(f64 x, f64 y) { return x != x ? y : y != y ? x : x < y || (x == y && signbit(x)) ? x : y; }
static inline f64 more(f64 x, f64 y) { return x != x ? y : y != y ? x : x < y || (x == y && signbit(x)) ? y : x; }
static inline f64 less_nan(f64 x, f64 y) { return x != x || y != y ? NAN : less(x, y); }
static inline f64 more_nan(f64 x, f64 y) { return x != x || y != y ? NAN : more(x, y); }

static inline f64 fused(f64 p, f64 q, f64 r) { return sum_odd(p * q, r); }

/* a function per operation and type, of one value; pairs call it twice */
#define MAKE1(T, id, expr) \
    static inline u32 T##_##id(u32 x) \
    { \
        const f64 p = T##_value((u16)x); \
        return to_##T(expr, false); \
    }
#define MAKE2(T, id, expr) \
    static inline u32 T##_##id(u32 x, u32 y) \
    { \
        const f64 p = T##_value((u16)x), q = T##_value((u16)y); \
        return to_##T(expr, false); \
    }
#define MAKE3(T, id, expr) \
    static inline u32 T##_##id(u32 x, u32 y, u32 z) \
    { \
        const f64 p = T##_value((u16)x), q = T##_value((u16)y), r = T##_value((u16)z); \
        return to_##T(expr, false); \
    }
#define MAKE(T) \
    MAKE1(T, ex2, exp2(p)) MAKE1(T, tanh, tanh(p)) \
    MAKE2(T, add, sum_odd(p, q)) MAKE2(T, sub, sum_odd(p, -q)) MAKE2(T, mul, p * q) \
    MAKE2(T, min, less(p, q)) MAKE2(T, max, more(p, q)) MAKE2(T, minn, less_nan(p, q)) MAKE2(T, maxn, more_nan(p, q)) \
    MAKE3(T, fma, fused(p, q, r)) MAKE3(T, fmar, more(fused(p, q, r), 0))
MAKE(f16)
MAKE(bf16)

#define ONE(OP, T, id, name) \
    OP(s_##T##_##id, "hh", name "." #T, u32, u32, T##_##id(x)) \
    OP(v_##T##_##id, "ww", name "." #T "x2", u32, u32, T##_##id(x) | T##_##id(x >> 16) << 16)
#define TWO(OP, T, id, name) \
    OP(s_##T##_##id, "hhh", name "." #T, u32, u32, u32, T##_##id(x, y)) \
    OP(v_##T##_##id, "www", name "." #T "x2", u32, u32, u32, T##_##id(x, y) | T##_##id(x >> 16, y >> 16) << 16)
#define THREE(OP, T, id, name) \
    OP(s_##T##_##id, "hhhh", name "." #T, u32, u32, u32, u32, T##_##id(x, y, z)) \
    OP(v_##T##_##id, "wwww", name "." #T "x2", u32, u32, u32, u32, \
      T##_##id(x, y, z) | T##_##id(x >> 16, y >> 16, z >> 16) << 16)
#define ONES(OP, T) \
    ONE(OP, T, ex2, "ex2.approx") ONE(OP, T, tanh, "tanh.approx") \
    OP(neg_##T, "hh", "neg." #T, u32, u32, (u16)(x ^ 0x8000u)) \
    OP(neg_v_##T, "ww", "neg." #T "x2", u32, u32, x ^ 0x80008000u) \
    OP(abs_##T, "hh", "abs." #T, u32, u32, x & 0x7FFFu) \
    OP(abs_v_##T, "ww", "abs." #T "x2", u32, u32, x & 0x7FFF7FFFu)
#define TWOS(OP, T) \
    TWO(OP, T, add, "add") TWO(OP, T, sub, "sub") TWO(OP, T, mul, "mul") TWO(OP, T, min, "min") TWO(OP, T, max, "max") \
    TWO(OP, T, minn, "min.NaN") TWO(OP, T, maxn, "max.NaN") \
    COMPARE(OP, T, eq) COMPARE(OP, T, ne) COMPARE(OP, T, lt) COMPARE(OP, T, le) \
    COMPARE(OP, T, gt) COMPARE(OP, T, ge) COMPARE(OP, T, equ) COMPARE(OP, T, neu) \
    COMPARE(OP, T, ltu) COMPARE(OP, T, leu) COMPARE(OP, T, gtu) COMPARE(OP, T, geu) \
    COMPARE(OP, T, num) COMPARE(OP, T, nan)
#define BOTH(T, id, yes) ((T##_##id(x, y) ? yes : 0) | (T##_##id(x >> 16, y >> 16) ? yes << 16 : 0))
#define ONE_f16 0x3C00u
#define ONE_bf16 0x3F80u
#define COMPARE(OP, T, id) \
    OP(T##_is_##id, "phh", "setp." #id "." #T, u8, u32, u32, T##_##id(x, y)) \
    OP(T##_set_##id, "hhh", "set." #id "." #T "." #T, u32, u32, u32, T##_##id(x, y) ? ONE_##T : 0) \
    OP(T##_both_##id, "www", "set." #id "." #T "x2." #T "x2", u32, u32, u32, BOTH(T, id, ONE_##T)) \
    OP(T##_mask_##id, "www", "set." #id ".u32." #T "x2", u32, u32, u32, BOTH(T, id, 0xFFFFu))
#define TEST(T, id, expr) \
    static inline bool T##_##id(u32 x, u32 y) { const f32 p = T##_value((u16)x), q = T##_value((u16)y); return expr; }
#define TESTS(T) \
    TEST(T, eq, p == q) TEST(T, ne, p < q || p > q) TEST(T, lt, p < q) TEST(T, le, p <= q) TEST(T, gt, p > q) \
    TEST(T, ge, p >= q) TEST(T, equ, !(p < q || p > q)) TEST(T, neu, p != q) TEST(T, ltu, !(p >= q)) \
    TEST(T, leu, !(p > q)) TEST(T, gtu, !(p <= q)) TEST(T, geu, !(p < q)) TEST(T, num, p == p && q == q) \
    TEST(T, nan, p != p || q != q)
TESTS(f16)
TESTS(bf16)
#define THREES(OP, T) THREE(OP, T, fma, "fma") THREE(OP, T, fmar, "fma.relu")

#define LIST1(OP) ONES(OP, f16) ONES(OP, bf16)
#define LIST2(OP) TWOS(OP, f16) TWOS(OP, bf16)
#define LIST3(OP) THREES(OP, f16) THREES(OP, bf16)
LIST1(DEFINE1)
LIST2(DEFINE2)
LIST3(DEFINE3)
const ptx_op PTX_NAME(ptx_half)[] = { LIST1(ENTRY) LIST2(ENTRY) LIST3(ENTRY) { 0 } };
