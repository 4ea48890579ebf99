/* index_simd.c: one row added to another, once per instruction set: what sums by index are made of. Called by
 * op_index.c. */
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

SW__SIMD_DECLARE(void, sw__add_row, (float *to, const float *from, int64_t n));

void SW__SIMD_NAME(sw__add_row)(float *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store(to + i, v_add(v_load(to + i), v_load(from + i)));
    const vmask rest = v_first(n - i);
    v_store_some(to + i, rest, v_add(v_load_some(to + i, rest), v_load_some(from + i, rest)));
}
