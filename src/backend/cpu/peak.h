/* peak.h: the loops of peak_simd.c, which peak.c times. */
#ifndef SW_BACKEND_CPU_PEAK_H
#define SW_BACKEND_CPU_PEAK_H

#include "backend/cpu/simd.h"

/* So many rounds of multiply-adds in registers; sink: one vector that keeps them from being left out, at least
 * SW__PEAK_SINK floats. Returns the operations that were done. */
#define SW__PEAK_SINK 16
SW__SIMD_DECLARE(double, sw__peak_fma, (int64_t rounds, float *sink));
/* a = b + 3 c */
SW__SIMD_DECLARE(void, sw__peak_triad, (float *a, const float *b, const float *c, int64_t n));

#endif
