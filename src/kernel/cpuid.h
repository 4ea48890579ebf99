/* cpuid.h: which vector code this machine may run. *_simd.c files are compiled once per level (src/CMakeLists.txt).
 * Used by the tile interpreter and by backend/cpu. */
#ifndef SW_KERNEL_CPUID_H
#define SW_KERNEL_CPUID_H

#include "base/base.h"

typedef enum sw__simd { SW_SIMD_BASE, SW_SIMD_AVX2, SW_SIMD_AVX512, SW_SIMD_LEVELS } sw__simd;

/* The best level of this machine, or the lower one that the environment variable SWOOP_SIMD (base, avx2, avx512) asks
 * for. Read at every call, so that tests may change it. */
sw__simd sw__simd_level(void);
/* Whether it is AVX-512 with dot products of bf16. Not where SWOOP_SIMD asks for avx512: that is AVX-512 without. */
bool sw__simd_bf16(void);
const char *sw__simd_name(sw__simd level);

/* Whether this machine multiplies matrices of bf16 in tiles (AMX): several times what its vectors do in f32. */
bool sw__amx_bf16(void);

#endif
