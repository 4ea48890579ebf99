/* simd_vec.h: a vector of floats at the instruction set that a *_simd.c is compiled for: load, store, broadcast,
 * multiply-add, and the first n of a vector. Included by *_simd.c only. */
#ifndef SW_BACKEND_CPU_SIMD_VEC_H
#define SW_BACKEND_CPU_SIMD_VEC_H

#include <stdint.h>

#if SW_SIMD_LEVEL == 2
#include <immintrin.h>
#define VL 16
typedef __m512 vf;
typedef __mmask16 vmask;
static inline vmask v_first(int64_t n) { return (__mmask16)(n >= 16 ? 0xffffu : n > 0 ? (1u << n) - 1u : 0u); }
static inline vf v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vf v_load_some(const float *p, vmask m) { return _mm512_maskz_loadu_ps(m, p); }
static inline void v_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline void v_store_some(float *p, vmask m, vf v) { _mm512_mask_storeu_ps(p, m, v); }
/* from bf16, and to it, rounded to nearest even; NaN stays NaN */
static inline vf v_load_bf16(const uint16_t *p)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline void v_store_bf16(uint16_t *p, vf v)
{
    const __m512i bits = _mm512_castps_si512(v), high = _mm512_srli_epi32(bits, 16);
    const __m512i half_up = _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half_up), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i half = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(half));
}
static inline vf v_set(float x) { return _mm512_set1_ps(x); }
static inline vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf v_relu(vf a) { return _mm512_max_ps(_mm512_setzero_ps(), a); } /* NaN: the second operand */
static inline float v_total(vf a) { return _mm512_reduce_add_ps(a); }
/* max(a, b); NaN if one of them is */
static inline vf v_max(vf a, vf b)
{
    return _mm512_mask_mov_ps(_mm512_max_ps(b, a), _mm512_cmp_ps_mask(b, b, _CMP_UNORD_Q), b);
}
/* g where x equals y or is NaN, else 0; what was given is taken out of *g */
static inline vf v_claim(vf x, vf y, vf *g)
{
    const __mmask16 hit = _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ) | _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const vf taken = _mm512_maskz_mov_ps(hit, *g);
    *g = _mm512_maskz_mov_ps(_knot_mask16(hit), *g);
    return taken;
}
#elif SW_SIMD_LEVEL == 1
#include <immintrin.h>
#define VL 8
typedef __m256 vf;
typedef __m256i vmask;
static inline vmask v_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n > 8 ? 8 : n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline vf v_load_some(const float *p, vmask m) { return _mm256_maskload_ps(p, m); }
static inline void v_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline void v_store_some(float *p, vmask m, vf v) { _mm256_maskstore_ps(p, m, v); }
static inline vf v_load_bf16(const uint16_t *p)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline void v_store_bf16(uint16_t *p, vf v)
{
    const __m256i bits = _mm256_castps_si256(v), high = _mm256_srli_epi32(bits, 16);
    const __m256i half_up = _mm256_add_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half_up), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i half = _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
    const __m128i low = _mm256_castsi256_si128(half), top = _mm256_extracti128_si256(half, 1);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi32(low, top));
}
static inline vf v_set(float x) { return _mm256_set1_ps(x); }
static inline vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf v_relu(vf a) { return _mm256_max_ps(_mm256_setzero_ps(), a); }
static inline float v_total(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline vf v_max(vf a, vf b)
{
    return _mm256_blendv_ps(_mm256_max_ps(b, a), b, _mm256_cmp_ps(b, b, _CMP_UNORD_Q));
}
static inline vf v_claim(vf x, vf y, vf *g)
{
    const vf hit = _mm256_or_ps(_mm256_cmp_ps(x, y, _CMP_EQ_OQ), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const vf taken = _mm256_and_ps(hit, *g);
    *g = _mm256_andnot_ps(hit, *g);
    return taken;
}
#else
#define VL 4
typedef float vf __attribute__((vector_size(16)));
typedef float vfu __attribute__((vector_size(16), aligned(4), may_alias));
typedef int64_t vmask; /* how many */
static inline vmask v_first(int64_t n) { return n > 4 ? 4 : n; } /* may be negative: none */
static inline vf v_load(const float *p) { return *(const vfu *)p; }
/* Out of line: inlined into a hundred unrolled kernels, their branches take a compiler half a minute. */
static __attribute__((noinline, unused)) vf v_load_some(const float *p, vmask m)
{
    return (vf){m > 0 ? p[0] : 0, m > 1 ? p[1] : 0, m > 2 ? p[2] : 0, m > 3 ? p[3] : 0};
}
static inline void v_store(float *p, vf v) { *(vfu *)p = v; }
static __attribute__((noinline, unused)) void v_store_some(float *p, vmask m, vf v)
{
    for (int64_t i = 0; i < m; i++) p[i] = v[i];
}
typedef uint32_t vbits __attribute__((vector_size(16)));
static inline vf v_load_bf16(const uint16_t *p)
{
    return (vf)((vbits){p[0], p[1], p[2], p[3]} << 16);
}
static inline void v_store_bf16(uint16_t *p, vf v)
{
    const vbits bits = (vbits)v, high = bits >> 16, rounded = (bits + 0x7fff + (high & 1)) >> 16;
    for (int i = 0; i < 4; i++) p[i] = (uint16_t)(v[i] != v[i] ? high[i] | 0x40 : rounded[i]);
}
static inline vf v_set(float x) { return (vf){x, x, x, x}; }
static inline vf v_add(vf a, vf b) { return a + b; }
static inline vf v_sub(vf a, vf b) { return a - b; }
static inline vf v_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf v_mul(vf a, vf b) { return a * b; }
static inline float v_total(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
static inline vf v_max(vf a, vf b)
{
    vf m = a;
    for (int i = 0; i < 4; i++) m[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
    return m;
}
static inline vf v_claim(vf x, vf y, vf *g)
{
    vf taken = {0, 0, 0, 0};
    for (int i = 0; i < 4; i++) {
        const int hit = x[i] == y[i] || x[i] != x[i];
        taken[i] = hit ? (*g)[i] : 0;
        (*g)[i] = hit ? 0 : (*g)[i];
    }
    return taken;
}
static inline vf v_relu(vf a)
{
    return (vf){a[0] < 0 ? 0 : a[0], a[1] < 0 ? 0 : a[1], a[2] < 0 ? 0 : a[2], a[3] < 0 ? 0 : a[3]};
}
#endif

/* Plain: loops stay loops. For the baseline, whose 16 short registers the unrolled kernels do not fit, and for builds
 * with sanitizers or coverage (SW_SIMD_PLAIN), which would take minutes to compile them. The source is the same. */
#if SW_SIMD_LEVEL == 0 && !defined(SW_SIMD_PLAIN)
#define SW_SIMD_PLAIN
#endif
#ifdef SW_SIMD_PLAIN
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
