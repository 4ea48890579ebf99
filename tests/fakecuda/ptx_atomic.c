/* ptx_atomic.c: what atom, red and redux do to a value, by operation and type. Values come as the low bits of 64. */
#include "ptx_half.h"

typedef uint64_t atomic(uint64_t old, uint64_t b, uint64_t c);

static inline u64 bits_f32(f32 v) { return bits_of(v); }
static inline u32 f16_sum(u32 x, u32 y) { return to_f16(sum_odd(f16_value((u16)x), f16_value((u16)y)), false); }
static inline u32 bf16_sum(u32 x, u32 y) { return to_bf16(sum_odd(bf16_value((u16)x), bf16_value((u16)y)), false); }

#define INTEGER(OP, T) \
    OP(add_##T, "add", #T, (T)((T)a + (T)b)) \
    OP(min_##T, "min", #T, (T)((T)a < (T)b ? (T)a : (T)b)) \
    OP(max_##T, "max", #T, (T)((T)a > (T)b ? (T)a : (T)b))
#define BITS(OP, T, n) \
    OP(and_##n, "and", #n, a & b) \
    OP(or_##n, "or", #n, a | b) \
    OP(xor_##n, "xor", #n, a ^ b) \
    OP(exch_##n, "exch", #n, b) \
    OP(cas_##n, "cas", #n, (T)a == (T)b ? c : a)
#define LIST(OP) \
    INTEGER(OP, u32) INTEGER(OP, u64) INTEGER(OP, s64) \
    OP(add_s32, "add", "s32", (u32)a + (u32)b) \
    OP(min_s32, "min", "s32", (u32)((s32)a < (s32)b ? a : b)) \
    OP(max_s32, "max", "s32", (u32)((s32)a > (s32)b ? a : b)) \
    BITS(OP, u16, b16) BITS(OP, u32, b32) BITS(OP, u64, b64) \
    OP(inc_u32, "inc", "u32", (u32)a >= (u32)b ? 0 : (u32)a + 1) \
    OP(dec_u32, "dec", "u32", (u32)a == 0 || (u32)a > (u32)b ? (u32)b : (u32)a - 1) \
    OP(add_f32, "add", "f32", bits_f32(f32_of((u32)a) + f32_of((u32)b))) \
    OP(add_f64, "add", "f64", bits_of64(f64_of(a) + f64_of(b))) \
    OP(add_f16, "add", "f16", f16_sum((u32)a, (u32)b)) \
    OP(add_bf16, "add", "bf16", bf16_sum((u32)a, (u32)b)) \
    OP(add_f16x2, "add", "f16x2", f16_sum((u32)a, (u32)b) | f16_sum((u32)a >> 16, (u32)b >> 16) << 16) \
    OP(add_bf16x2, "add", "bf16x2", bf16_sum((u32)a, (u32)b) | bf16_sum((u32)a >> 16, (u32)b >> 16) << 16)

#define MAKE(id, operation, type, expr) \
    static uint64_t id(uint64_t a, uint64_t b, uint64_t c) \
    { \
        (void)a, (void)b, (void)c; \
        return (uint64_t)(expr); \
    }
LIST(MAKE)

atomic *ptx_atomic_find(const char *operation, const char *type)
{
#define LINE(id, operation, type, expr) { operation, type, id },
    static const struct { const char *operation, *type; atomic *run; } all[] = { LIST(LINE) };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].operation, operation) == 0 && strcmp(all[i].type, type) == 0) return all[i].run;
    return NULL;
}
