/* numbers.h: elements of f32, f64, f16, bf16 in memory as doubles and back, as the fake cuBLASLt and cuDNN read and
 * write them, and what tensor cores make of an f32. */
#ifndef FAKECUDA_NUMBERS_H
#define FAKECUDA_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef enum fk_type { FK_F32, FK_F64, FK_F16, FK_BF16 } fk_type;

static inline size_t fk_size(fk_type t)
{
    return t == FK_F64 ? 8 : t == FK_F32 ? 4 : 2;
}

static inline float fk_bits_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t fk_f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Keeps the upper bits of the fraction, to nearest even; NaN stays NaN. */
static inline uint32_t fk_round_bits(uint32_t bits, int drop)
{
    if ((bits & 0x7F800000u) == 0x7F800000u) return bits;
    const uint32_t half = (1u << (drop - 1)) - 1 + (bits >> drop & 1u);
    return (bits + half) >> drop << drop;
}

static inline float fk_tf32(float f)
{
    return fk_bits_f32(fk_round_bits(fk_f32_bits(f), 13));
}

static inline float fk_from_f16(uint16_t h)
{
    const int e = h >> 10 & 31;
    const float f = (float)(h & 1023);
    const float v = e == 31  ? (f != 0 ? (float)NAN : (float)INFINITY)
                    : e == 0 ? ldexpf(f, -24)
                             : ldexpf(f + 1024, e - 25);
    return h & 0x8000 ? -v : v;
}

static inline uint16_t fk_to_f16(float v)
{
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    const float a = fabsf(v);
    int e;
    if (isnan(v)) return sign | 0x7E00;
    if (a >= 65520.0f) return sign | 0x7C00;
    frexpf(a, &e);
    if (e < -13 || a == 0)
        return sign | (uint16_t)nearbyintf(ldexpf(a, 24)); /* one too many makes the next exponent: as it should */
    const long m = (long)nearbyintf(ldexpf(a, 11 - e));    /* 1024 to 2048 */
    return (uint16_t)(sign | (uint16_t)(((e + 14) << 10) + (m - 1024)));
}

static inline double fk_load(fk_type t, const void *p)
{
    float f;
    double d;
    uint16_t h;
    if (t == FK_F64) return memcpy(&d, p, sizeof d), d;
    if (t == FK_F32) return memcpy(&f, p, sizeof f), (double)f;
    memcpy(&h, p, sizeof h);
    return (double)(t == FK_F16 ? fk_from_f16(h) : fk_bits_f32((uint32_t)h << 16));
}

static inline void fk_store(fk_type t, void *p, double v)
{
    const float f = (float)v;
    uint16_t h;
    if (t == FK_F64) {
        memcpy(p, &v, sizeof v);
        return;
    }
    if (t == FK_F32) {
        memcpy(p, &f, sizeof f);
        return;
    }
    h = t == FK_F16 ? fk_to_f16(f) : isnan(f) ? 0x7FC0 : (uint16_t)(fk_round_bits(fk_f32_bits(f), 16) >> 16);
    memcpy(p, &h, sizeof h);
}

#endif
