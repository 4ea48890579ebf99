/* relu_simd.c: max(y, 0) over neighbouring values, NaN kept; once per instruction set. Called by cpu_desc.c. */
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

SW__SIMD_DECLARE(void, sw__relu_run, (float *y, int64_t n));

void SW__SIMD_NAME(sw__relu_run)(float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store(y + i, v_relu(v_load(y + i)));
    const vmask rest = v_first(n - i);
    v_store_some(y + i, rest, v_relu(v_load_some(y + i, rest)));
}
