/* ptx_lanes.h: how operations on all lanes are written: lists of OP(id, signature, names, types, expression), of
 * which DEFINE makes a vectorisable loop and ENTRY a line of the table. Each file that includes this is compiled
 * once for any CPU and once for AVX2 (PTX_ISA). 16-bit values lie in 32 bits, the upper half 0 or ignored. */
#ifndef FAKECUDA_PTX_LANES_H
#define FAKECUDA_PTX_LANES_H

#include "ptx_inner.h"

#include <math.h>
#include <string.h>

#ifndef PTX_ISA
#define PTX_ISA base
#endif
#define PTX_GLUE_(a, b) a##_##b
#define PTX_GLUE(a, b) PTX_GLUE_(a, b)
#define PTX_NAME(name) PTX_GLUE(name, PTX_ISA)

extern const ptx_op PTX_NAME(ptx_integer)[], PTX_NAME(ptx_float)[], PTX_NAME(ptx_compare)[], PTX_NAME(ptx_convert)[],
    PTX_NAME(ptx_half)[];

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef float f32;
typedef double f64;
__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

/* lanes do not see each other, also where d is one of the sources */
#define EACH_LANE _Pragma("omp simd") for (int i = 0; i < LANES; i++)
#define LOOP1(id, D, A, expr) \
    static void id(void *d_, const void *a_, const void *b_, const void *c_) \
    { \
        (void)b_, (void)c_; \
        D *const d = d_; \
        const A *const a = a_; \
        EACH_LANE { const A x = a[i]; d[i] = (D)(expr); } \
    }
#define LOOP2(id, D, A, B, expr) \
    static void id(void *d_, const void *a_, const void *b_, const void *c_) \
    { \
        (void)c_; \
        D *const d = d_; \
        const A *const a = a_; \
        const B *const b = b_; \
        EACH_LANE { const A x = a[i]; const B y = b[i]; d[i] = (D)(expr); } \
    }
#define LOOP3(id, D, A, B, C, expr) \
    static void id(void *d_, const void *a_, const void *b_, const void *c_) \
    { \
        D *const d = d_; \
        const A *const a = a_; \
        const B *const b = b_; \
        const C *const c = c_; \
        EACH_LANE { const A x = a[i]; const B y = b[i]; const C z = c[i]; d[i] = (D)(expr); } \
    }
#define DEFINE1(id, sig, names, ...) LOOP1(id, __VA_ARGS__)
#define DEFINE2(id, sig, names, ...) LOOP2(id, __VA_ARGS__)
#define DEFINE3(id, sig, names, ...) LOOP3(id, __VA_ARGS__)
#define ENTRY(id, sig, names, ...) { names, sig, id },

static inline f32 f32_of(u32 b)
{
    f32 v;
    memcpy(&v, &b, sizeof v);
    return v;
}
static inline u32 bits_of(f32 v)
{
    u32 b;
    memcpy(&b, &v, sizeof b);
    return b;
}
static inline f64 f64_of(u64 b)
{
    f64 v;
    memcpy(&v, &b, sizeof v);
    return v;
}
static inline u64 bits_of64(f64 v)
{
    u64 b;
    memcpy(&b, &v, sizeof b);
    return b;
}

#endif
