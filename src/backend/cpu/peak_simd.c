/* peak_simd.c: the two loops that measure what this CPU can do at most: multiply-adds in registers, and STREAM's triad.
 * Once per instruction set. Called by peak.c. */
#include "backend/cpu/peak.h"
#include "backend/cpu/simd_vec.h"

/* Enough independent sums that none waits for another (latency times units: 8 to 10), few enough for 16 registers. */
#define CHAINS 12

double SW__SIMD_NAME(sw__peak_fma)(int64_t rounds, float *sink)
{
    const vf a = v_set(0.999F), b = v_set(0.001F); /* sums go to 1: no overflow, no denormals */
    vf x[CHAINS], sum = v_set(0);
    for (int i = 0; i < CHAINS; i++) x[i] = v_set((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++) x[i] = v_fma(x[i], a, b);
    }
    for (int i = 0; i < CHAINS; i++) sum = v_add(sum, x[i]);
    v_store(sink, sum);
    return 2.0 * CHAINS * VL * (double)rounds;
}

void SW__SIMD_NAME(sw__peak_triad)(float *a, const float *b, const float *c, int64_t n)
{
    const vf s = v_set(3);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store(a + i, v_fma(s, v_load(c + i), v_load(b + i)));
    for (; i < n; i++) a[i] = 3 * c[i] + b[i];
}
