/* dtype.c: names, sizes and conversions of the data types; half precision and bfloat16 in plain integer arithmetic.
 * Lowest floor. Conversions go through a wide type, double or int64_t, which holds every source value exactly. */
#include "base/base.h"

#include <math.h>

static const struct {
    const char *name;
    unsigned char size;
    bool is_float;
} dtypes[SW_DTYPE_COUNT] = {
    [SW_F32] = { "f32", 4, true },   [SW_F64] = { "f64", 8, true },   [SW_F16] = { "f16", 2, true },
    [SW_BF16] = { "bf16", 2, true }, [SW_I32] = { "i32", 4, false },  [SW_I64] = { "i64", 8, false },
    [SW_U8] = { "u8", 1, false },    [SW_BOOL] = { "bool", 1, false }, [SW_U32] = { "u32", 4, false },
};

size_t sw_dtype_size(sw_dtype t)
{
    return (unsigned)t < SW_DTYPE_COUNT ? dtypes[t].size : 0;
}

const char *sw_dtype_name(sw_dtype t)
{
    return (unsigned)t < SW_DTYPE_COUNT ? dtypes[t].name : "?";
}

bool sw__dtype_is_float(sw_dtype t)
{
    return (unsigned)t < SW_DTYPE_COUNT && dtypes[t].is_float;
}

bool sw__dtype_parse(const char *name, sw_dtype *out)
{
    for (int t = 0; t < SW_DTYPE_COUNT; t++) {
        if (strcmp(name, dtypes[t].name) == 0) {
            *out = (sw_dtype)t;
            return true;
        }
    }
    return false;
}

static uint32_t f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

uint16_t sw__f32_to_f16(float x)
{
    const uint32_t bits = f32_bits(x), sign = bits >> 16 & 0x8000u;
    uint32_t a = bits & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (a >> 13 & 0x3FFu)); /* NaN, made quiet */
    if (a >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u);                     /* from 65520 up: infinity */
    if (a >= 0x38800000u) {                                                      /* from 2^-14 up: normal */
        a += 0xFFFu + (a >> 13 & 1u);
        return (uint16_t)(sign | (a - 0x38000000u) >> 13);
    }
    if (a <= 0x33000000u) return (uint16_t)sign; /* up to 2^-25, where the tie goes to the even zero */
    const uint32_t mantissa = (a & 0x7FFFFFu) | 0x800000u, shift = 126 - (a >> 23); /* in units of 2^-24 */
    const uint32_t rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    uint32_t h = mantissa >> shift;
    if (rest > half || (rest == half && (h & 1u) != 0)) h++;
    return (uint16_t)(sign | h);
}

float sw__f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3FFu;
    if (exponent == 31) return f32_from_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent > 0) return f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    const float magnitude = (float)mantissa * 0x1p-24f; /* exact */
    return sign != 0 ? -magnitude : magnitude;
}

uint16_t sw__f32_to_bf16(float x)
{
    const uint32_t bits = f32_bits(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float sw__bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

/* Rounds to float such that a second rounding, to 16 bits, gives what one rounding would: towards zero, and the last
 * bit set if anything was cut off ("round to odd"). */
static float f64_to_f32_odd(double d)
{
    const float nearest = (float)d;
    if (isnan(d) || (double)nearest == d) return nearest;
    uint32_t bits = f32_bits(nearest);
    if (fabs((double)nearest) > fabs(d)) bits--;
    return f32_from_bits(bits | 1u);
}

/* The same for integers beyond 2^53: the ten lowest bits are folded into one. */
static double i64_to_f64_odd(int64_t v)
{
    const int64_t exact = INT64_C(1) << 53;
    if (v >= -exact && v <= exact) return (double)v;
    const int64_t low = v & 1023;
    return (double)((v - low) / 1024 | (low != 0)) * 1024.0;
}

/* Truncates with saturation; NaN gives 0. `above` is the first double beyond the greatest value. */
static int64_t f64_to_int(double d, double above, int64_t lowest, int64_t greatest)
{
    if (isnan(d)) return 0;
    if (d <= (double)lowest) return lowest; /* lowest is 0 or a power of two: exact */
    return d >= above ? greatest : (int64_t)d;
}

/* ---- wide values ------------------------------------------------------------------------------------------------- */

enum { CHUNK = 256 };

#define LOAD(name, type, wide, expr)                                                                                   \
    static void name(const void *src, wide *out, size_t n)                                                             \
    {                                                                                                                  \
        const type *const from = src;                                                                                  \
        for (size_t i = 0; i < n; i++) {                                                                               \
            const type v = from[i];                                                                                    \
            out[i] = expr;                                                                                             \
        }                                                                                                              \
    }
LOAD(load_f32, float, double, (double)v)
LOAD(load_f64, double, double, v)
LOAD(load_f16, uint16_t, double, (double)sw__f16_to_f32(v))
LOAD(load_bf16, uint16_t, double, (double)sw__bf16_to_f32(v))
LOAD(load_i32, int32_t, int64_t, v)
LOAD(load_i64, int64_t, int64_t, v)
LOAD(load_u8, uint8_t, int64_t, v)
LOAD(load_bool, uint8_t, int64_t, v != 0)
LOAD(load_u32, uint32_t, int64_t, v)

#define STORE(name, type, wide, expr)                                                                                  \
    static void name(void *dst, const wide *in, size_t n)                                                              \
    {                                                                                                                  \
        type *const to = dst;                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                                               \
            const wide v = in[i];                                                                                      \
            to[i] = expr;                                                                                              \
        }                                                                                                              \
    }
STORE(store_f32_f, float, double, (float)v)
STORE(store_f64_f, double, double, v)
STORE(store_f16_f, uint16_t, double, sw__f32_to_f16(f64_to_f32_odd(v)))
STORE(store_bf16_f, uint16_t, double, sw__f32_to_bf16(f64_to_f32_odd(v)))
STORE(store_i32_f, int32_t, double, (int32_t)f64_to_int(v, 0x1p31, INT32_MIN, INT32_MAX))
STORE(store_i64_f, int64_t, double, f64_to_int(v, 0x1p63, INT64_MIN, INT64_MAX))
STORE(store_u8_f, uint8_t, double, (uint8_t)f64_to_int(v, 0x1p8, 0, UINT8_MAX))
STORE(store_bool_f, uint8_t, double, v != 0.0)
STORE(store_u32_f, uint32_t, double, (uint32_t)f64_to_int(v, 0x1p32, 0, UINT32_MAX))
STORE(store_f32_i, float, int64_t, (float)v)
STORE(store_f64_i, double, int64_t, (double)v)
STORE(store_f16_i, uint16_t, int64_t, sw__f32_to_f16(f64_to_f32_odd(i64_to_f64_odd(v))))
STORE(store_bf16_i, uint16_t, int64_t, sw__f32_to_bf16(f64_to_f32_odd(i64_to_f64_odd(v))))
STORE(store_i32_i, int32_t, int64_t, (int32_t)v)
STORE(store_i64_i, int64_t, int64_t, v)
STORE(store_u8_i, uint8_t, int64_t, (uint8_t)v)
STORE(store_bool_i, uint8_t, int64_t, v != 0)
STORE(store_u32_i, uint32_t, int64_t, (uint32_t)v)

static const struct {
    void (*load_float)(const void *, double *, size_t); /* one of the two loads */
    void (*load_int)(const void *, int64_t *, size_t);
    void (*store_float)(void *, const double *, size_t);
    void (*store_int)(void *, const int64_t *, size_t);
} conversions[SW_DTYPE_COUNT] = {
    [SW_F32] = { load_f32, NULL, store_f32_f, store_f32_i },
    [SW_F64] = { load_f64, NULL, store_f64_f, store_f64_i },
    [SW_F16] = { load_f16, NULL, store_f16_f, store_f16_i },
    [SW_BF16] = { load_bf16, NULL, store_bf16_f, store_bf16_i },
    [SW_I32] = { NULL, load_i32, store_i32_f, store_i32_i },
    [SW_I64] = { NULL, load_i64, store_i64_f, store_i64_i },
    [SW_U8] = { NULL, load_u8, store_u8_f, store_u8_i },
    [SW_BOOL] = { NULL, load_bool, store_bool_f, store_bool_i },
    [SW_U32] = { NULL, load_u32, store_u32_f, store_u32_i },
};

void sw__convert(void *dst, sw_dtype to, const void *src, sw_dtype from, size_t n)
{
    if (n == 0) return;
    const size_t to_size = sw_dtype_size(to), from_size = sw_dtype_size(from);
    if (to == from) {
        memcpy(dst, src, n * to_size);
        return;
    }
    union {
        double f[CHUNK];
        int64_t i[CHUNK];
    } wide;
    const unsigned char *in = src;
    unsigned char *out = dst;
    for (size_t done = 0; done < n; done += CHUNK) {
        const size_t count = SW_MIN(n - done, (size_t)CHUNK);
        if (conversions[from].load_float != NULL) {
            conversions[from].load_float(in, wide.f, count);
            conversions[to].store_float(out, wide.f, count);
        } else {
            conversions[from].load_int(in, wide.i, count);
            conversions[to].store_int(out, wide.i, count);
        }
        in += count * from_size;
        out += count * to_size;
    }
}
