/* tile_simd.h: what the vector files of the tile interpreter share: names with the level's suffix, loops, type names.
 * Included by *_simd.c files only. */
#ifndef SW_KERNEL_TILE_SIMD_H
#define SW_KERNEL_TILE_SIMD_H

#include "kernel/tile_int.h"

#define SW_CAT_(a, b) a##_##b
#define SW_CAT(a, b) SW_CAT_(a, b)
/* name_avx2 */
#define SIMD_NAME(name) SW_CAT(name, SW_SIMD)

/* Iterations do not depend on each other: what is written may be what is read, but only element by element. */
#define SIMD_LOOP _Pragma("omp simd")

typedef float f32;
typedef double f64;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

static inline u32 f32_bits(f32 x)
{
    u32 u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
}

static inline f32 bits_f32(u32 u)
{
    f32 x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}

static inline u64 f64_bits(f64 x)
{
    u64 u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
}

static inline f64 bits_f64(u64 u)
{
    f64 x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}

#endif
