/* cpuid.c: asks the processor once per call which vector code may run; SWOOP_SIMD can lower the answer.
 * Beside the code that is compiled once per level (*_simd.c). */
#include "kernel/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdlib.h>

static const char *const names[SW_SIMD_LEVELS] = { "base", "avx2", "avx512" };

const char *sw__simd_name(sw__simd level)
{
    return (unsigned)level < SW_SIMD_LEVELS ? names[level] : "?";
}

static sw__simd machine_level(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return SW_SIMD_BASE;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return wide ? SW_SIMD_AVX512 : SW_SIMD_AVX2;
#else
    return SW_SIMD_BASE;
#endif
}

sw__simd sw__simd_level(void)
{
    const sw__simd machine = machine_level();
    const char *const asked = getenv("SWOOP_SIMD");
    if (asked == NULL || asked[0] == '\0') return machine;
    for (int level = 0; level < SW_SIMD_LEVELS; level++) {
        if (strcmp(asked, names[level]) == 0) return SW_MIN((sw__simd)level, machine);
    }
    sw__log(SW_LOG_WARN, "SWOOP_SIMD=%s is none of base, avx2, avx512: ignored", asked);
    return machine;
}

bool sw__amx_bf16(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return sw__simd_level() == SW_SIMD_AVX512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0;
#else
    return false;
#endif
}

bool sw__simd_bf16(void)
{
#if defined(__x86_64__)
    const char *const asked = getenv("SWOOP_SIMD");
    if (asked != NULL && asked[0] != '\0') return false;
    return sw__simd_level() == SW_SIMD_AVX512 && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}
