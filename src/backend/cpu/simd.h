/* simd.h: how code that is compiled once per instruction set (*_simd.c, see src/CMakeLists.txt) is named and chosen.
 * In a *_simd.c: SW__SIMD_NAME(sw__f) is sw__f_base, sw__f_avx2 or sw__f_avx512. */
#ifndef SW_BACKEND_CPU_SIMD_H
#define SW_BACKEND_CPU_SIMD_H

#include "kernel/cpuid.h"

#define SW__SIMD_PASTE_(name, level) name##_##level
#define SW__SIMD_PASTE(name, level) SW__SIMD_PASTE_(name, level)
#define SW__SIMD_NAME(name) SW__SIMD_PASTE(name, SW_SIMD)

/* Declares f for all levels: SW__SIMD_DECLARE(void, sw__f, (int x)); SW__SIMD_PICK(level, sw__f) is the right one. */
#if defined(__x86_64__)
#define SW__SIMD_DECLARE(type, name, args)                                                                             \
    type name##_base args;                                                                                             \
    type name##_avx2 args;                                                                                             \
    type name##_avx512 args
#define SW__SIMD_PICK(level, name)                                                                                     \
    ((level) == SW_SIMD_AVX512 ? name##_avx512 : (level) == SW_SIMD_AVX2 ? name##_avx2 : name##_base)
#else
#define SW__SIMD_DECLARE(type, name, args) type name##_base args
#define SW__SIMD_PICK(level, name) ((void)(level), name##_base)
#endif

#endif
