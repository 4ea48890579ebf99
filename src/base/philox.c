/* philox.c: Philox 4x32-10, counter-based random numbers, and the host's stream over it.
 * Lowest floor: initial weights, shuffles and the random op all draw from the same function of (counter, key).
 * Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#include "base/base.h"

#include <math.h>

enum { ROUNDS = 10 };

void sw__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* Weyl sequences: the golden ratio and sqrt(3) - 1 */
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void sw__rng_init(sw__rng *r, uint64_t seed, uint64_t stream)
{
    *r = (sw__rng){ .key = { (uint32_t)seed, (uint32_t)(seed >> 32) },
                    .counter = { 0, 0, (uint32_t)stream, (uint32_t)(stream >> 32) } };
}

uint32_t sw__rng_u32(sw__rng *r)
{
    if (r->left == 0) {
        sw__philox(r->counter, r->key, r->out);
        if (++r->counter[0] == 0) r->counter[1]++;
        r->left = 4;
    }
    return r->out[4 - r->left--];
}

static uint64_t rng_u64(sw__rng *r)
{
    const uint64_t low = sw__rng_u32(r);
    return (uint64_t)sw__rng_u32(r) << 32 | low;
}

double sw__rng_uniform(sw__rng *r)
{
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

double sw__rng_normal(sw__rng *r)
{
    const double u = 1.0 - sw__rng_uniform(r); /* (0, 1]: its logarithm is finite */
    const double angle = 6.283185307179586476925 * sw__rng_uniform(r);
    return sqrt(-2.0 * log(u)) * cos(angle);
}

/* A number takes 2 (uniform) or 4 (normal) of a counter's 4 words: part of them may be behind us. */
static sw__rng at_word(const sw__rng *fresh, uint64_t word)
{
    sw__rng r = *fresh;
    const uint64_t block = word / 4;
    r.counter[0] = (uint32_t)block;
    r.counter[1] = (uint32_t)(block >> 32);
    r.left = 0;
    for (uint64_t k = 0; k < word % 4; k++) (void)sw__rng_u32(&r);
    return r;
}

void sw__rng_uniforms(const sw__rng *fresh, uint64_t i, double *out, size_t n)
{
    sw__rng r = at_word(fresh, 2 * i);
    for (size_t k = 0; k < n; k++) out[k] = sw__rng_uniform(&r);
}

void sw__rng_normals(const sw__rng *fresh, uint64_t i, double *out, size_t n)
{
    sw__rng r = at_word(fresh, 4 * i);
    for (size_t k = 0; k < n; k++) out[k] = sw__rng_normal(&r);
}

uint64_t sw__rng_below(sw__rng *r, uint64_t n)
{
    const uint64_t excess = (0 - n) % n; /* 2^64 mod n: that many draws are refused, so that the rest divides evenly */
    uint64_t x;
    do x = rng_u64(r);
    while (x < excess);
    return x % n;
}

void sw__rng_shuffle(sw__rng *r, int64_t *items, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        const size_t j = (size_t)sw__rng_below(r, i);
        const int64_t item = items[i - 1];
        items[i - 1] = items[j];
        items[j] = item;
    }
}
