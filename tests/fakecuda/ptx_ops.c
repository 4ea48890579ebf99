/* ptx_ops.c: what ptx_run.c and ptx_memory.c do on all lanes of a group: masks, blends, looks at addresses, copies;
 * and the tables of operations of its neighbours, together a ptx_isa. Compiled once for any CPU and once for AVX2. */
#include "ptx_lanes.h"

static void addresses(uint64_t *at, const void *operand, bool wide, uint64_t offset)
{
    const uint64_t *const from = operand;
    const uint32_t *const narrow = operand;
    if (wide) EACH_LANE at[i] = from[i] + offset;
    else EACH_LANE at[i] = (uint32_t)(narrow[i] + (uint32_t)offset);
}

/* Mostly they lie in a row or are one: only others are looked at twice. */
static void scan(ptx_scan *s, const uint64_t *at, size_t bytes)
{
    const uint64_t first = at[0], step = bytes;
    uint64_t uneven = 0, other = 0, low = first, high = first, bits = first;
#pragma omp simd reduction(| : uneven, other)
    for (int i = 0; i < LANES - 1; i++) {
        uneven |= at[i + 1] - at[i] - step;
        other |= at[i + 1] ^ at[i];
    }
    if (uneven == 0) {
        high = first + (LANES - 1) * step;
    } else if (other != 0) {
#pragma omp simd reduction(min : low) reduction(max : high) reduction(| : bits)
        for (int i = 0; i < LANES; i++) {
            low = at[i] < low ? at[i] : low;
            high = at[i] > high ? at[i] : high;
            bits |= at[i];
        }
    }
    *s = (ptx_scan){ low, high, bits, other == 0, uneven == 0 ? step : 0 };
}

static void blend(void *d, const void *s, const uint32_t *mask, int bytes)
{
    if (bytes == 4) {
        uint32_t *const to = d;
        const uint32_t *const from = s;
        EACH_LANE to[i] = (from[i] & mask[i]) | (to[i] & ~mask[i]);
    } else if (bytes == 8) {
        uint64_t *const to = d;
        const uint64_t *const from = s;
        EACH_LANE
        {
            const uint64_t m = (uint64_t)(int64_t)(int32_t)mask[i];
            to[i] = (from[i] & m) | (to[i] & ~m);
        }
    } else {
        uint8_t *const to = d;
        const uint8_t *const from = s;
        EACH_LANE to[i] = (uint8_t)((from[i] & (uint8_t)mask[i]) | (to[i] & (uint8_t)~mask[i]));
    }
}

static void spread(uint32_t *to, ptx_mask mask)
{
    const uint32_t half[2] = { (uint32_t)mask, (uint32_t)(mask >> 32) };
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 32; i++) to[k * 32 + i] = 0u - (half[k] >> i & 1);
}

/* a bit of each byte's 0 or 1: the product moves byte k's bit to bit 56 + k */
static ptx_mask bits(const void *predicate)
{
    ptx_mask m = 0;
    for (int k = 0; k < LANES / 8; k++) {
        uint64_t eight;
        memcpy(&eight, (const char *)predicate + 8 * k, 8);
        m |= (eight * 0x0102040810204080ull >> 56) << 8 * k;
    }
    return m;
}

#define GATHER(T, D) \
    { \
        D *const to = d; \
        for (int i = 0; i < LANES; i++) { \
            T v; \
            memcpy(&v, host + (at[i] - origin), sizeof v); \
            to[i] = (D)v; \
        } \
    }
static void gather(void *d, const unsigned char *host, uint64_t origin, const uint64_t *at, int bytes, bool is_signed)
{
    if (bytes == 4) GATHER(uint32_t, uint32_t)
    else if (bytes == 8) GATHER(uint64_t, uint64_t)
    else if (bytes == 2 && is_signed) GATHER(int16_t, uint32_t)
    else if (bytes == 2) GATHER(uint16_t, uint32_t)
    else if (is_signed) GATHER(int8_t, uint32_t)
    else GATHER(uint8_t, uint32_t)
}

#define ROW(T) \
    { \
        uint32_t *const to = d; \
        for (int i = 0; i < LANES; i++) { \
            T v; \
            memcpy(&v, from + (size_t)i * sizeof v, sizeof v); \
            to[i] = (uint32_t)v; \
        } \
    }
static void row(void *d, const unsigned char *from, int bytes, bool is_signed)
{
    if (bytes == 4) ROW(uint32_t)
    else if (bytes == 8) memcpy(d, from, sizeof(uint64_t[LANES]));
    else if (bytes == 2 && is_signed) ROW(int16_t)
    else if (bytes == 2) ROW(uint16_t)
    else if (is_signed) ROW(int8_t)
    else ROW(uint8_t)
}

#define SCATTER(T, S) \
    for (ptx_mask m = mask; m; m &= m - 1) { \
        const int i = __builtin_ctzll(m); \
        const T v = (T)((const S *)s)[i]; \
        memcpy(host + (at[i] - origin), &v, sizeof v); \
    }
static void scatter(unsigned char *host, uint64_t origin, const uint64_t *at, const void *s, int bytes, ptx_mask mask)
{
    if (bytes == 4) SCATTER(uint32_t, uint32_t)
    else if (bytes == 8) SCATTER(uint64_t, uint64_t)
    else if (bytes == 2) SCATTER(uint16_t, uint32_t)
    else SCATTER(uint8_t, uint32_t)
}

static void row_out(unsigned char *to, const void *s, int bytes)
{
    const uint32_t *const from = s;
    if (bytes == 4) memcpy(to, s, sizeof(uint32_t[LANES]));
    else if (bytes == 8) memcpy(to, s, sizeof(uint64_t[LANES]));
    else if (bytes == 2)
        for (int i = 0; i < LANES; i++) {
            const uint16_t v = (uint16_t)from[i];
            memcpy(to + 2 * i, &v, 2);
        }
    else
        for (int i = 0; i < LANES; i++) to[i] = (unsigned char)from[i];
}

const ptx_isa PTX_NAME(ptx_isa) = { .tables = { PTX_NAME(ptx_integer), PTX_NAME(ptx_float), PTX_NAME(ptx_compare),
                                                PTX_NAME(ptx_convert), PTX_NAME(ptx_half), NULL },
                                    .addresses = addresses,
                                    .scan = scan,
                                    .blend = blend,
                                    .spread = spread,
                                    .bits = bits,
                                    .gather = gather,
                                    .row = row,
                                    .scatter = scatter,
                                    .row_out = row_out };
