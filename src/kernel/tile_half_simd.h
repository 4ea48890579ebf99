/* tile_half_simd.h: 16-bit floats to f32 and back, rounded to nearest even, in integers so that they vectorise everywhere.
 * For the vector files that load, store (tile_move_simd.c) and round (tile_calc_simd.c) them. */
#ifndef SW_KERNEL_TILE_HALF_SIMD_H
#define SW_KERNEL_TILE_HALF_SIMD_H

#include "kernel/tile_simd.h"

static inline f32 from_bf16(uint16_t h)
{
    return bits_f32((u32)h << 16);
}

static inline uint16_t to_bf16(f32 x)
{
    const u32 bits = f32_bits(x), rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16, quiet = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

static inline f32 from_f16(uint16_t h)
{
    const u32 sign = (u32)(h & 0x8000u) << 16, rest = (u32)(h & 0x7FFFu) << 13;
    /* The exponent is off by 112: scaling by 2^112 mends normal and subnormal numbers alike; the top one is special. */
    const u32 scaled = f32_bits(bits_f32(rest) * 0x1p112f), special = rest | 0x7F800000u;
    return bits_f32((rest >= 0x0F800000u ? special : scaled) | sign);
}

static inline uint16_t to_f16(f32 x)
{
    const u32 bits = f32_bits(x), sign = bits >> 16 & 0x8000u, a = bits & 0x7FFFFFFFu;
    const u32 normal = (a + 0xFFFu + (a >> 13 & 1u) - 0x38000000u) >> 13;
    /* Adding 0.5 leaves a number below 2^-14 in units of 2^-24 in the low bits, rounded to nearest even. */
    const u32 small = f32_bits(bits_f32(a) + 0.5f) - 0x3F000000u;
    u32 h = a >= 0x38800000u ? normal : small;
    h = a >= 0x477FF000u ? 0x7C00u : h;
    h = a > 0x7F800000u ? (0x7E00u | (a >> 13 & 0x3FFu)) : h;
    return (uint16_t)(h | sign);
}

#endif
