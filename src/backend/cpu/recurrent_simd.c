/* recurrent_simd.c: a step of lstm, gru or rnn of one sample in f32, once per instruction set. See recurrent.h. */
#include "backend/cpu/recurrent.h"
#include "kernel/tile_math_simd.h"

/* e^x - 1 = (2^n - 1) + 2^n (e^r - 1), |r| <= ln(2)/2: exact near 0, too. |x| <= 43: beyond, what is
 * made of it here is 0 or 1 to the last digit that counts, and the product of two of them is still a number. */
static inline f32 less_one(f32 x)
{
    f32 y = x > 43.0f ? 43.0f : x; /* comparisons with NaN are false: it stays */
    y = y < -43.0f ? -43.0f : y;
    const f32 shifted = y * 0x1.715476p0f + ROUND_F, whole = shifted - ROUND_F;
    const f32 power = power_of_2((int)(f32_bits(shifted) - f32_bits(ROUND_F)));
    const f32 r = (y - whole * LN2_HI_F) - whole * LN2_LO_F;
    return (power - 1.0f) + power * exp_rest(r);
}

static inline f32 sigmoid_f32(f32 x)
{
    return 1.0f / (2.0f + less_one(-x));
}

static inline f32 tanh_by_one(f32 x)
{
    const f32 e = less_one(2.0f * x);
    return e / (2.0f + e);
}

/* Both with one division, which is what they cost most by. */
static inline void sigmoid_and_tanh(f32 a, f32 b, f32 *s, f32 *t)
{
    const f32 p = 2.0f + less_one(-a), e = less_one(2.0f * b), q = 2.0f + e, by = 1.0f / (p * q);
    *s = q * by;
    *t = e * p * by;
}

#define REAL float
#define SIGMOID sigmoid_f32
#define TANH tanh_by_one
#define BOTH sigmoid_and_tanh
#define FORWARD SW__SIMD_NAME(sw__cell_forward)
#define BACKWARD SW__SIMD_NAME(sw__cell_backward)
#include "backend/cpu/recurrent_rows.h"
