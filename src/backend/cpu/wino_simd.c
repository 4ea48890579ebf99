/* wino_simd.c: the transforms of Winograd's convolution, see wino.h; compiled once per instruction set.
 * Called by wino.c. Each works on a vector of channels; a transform in the plane is the same one along both axes. */
#include "backend/cpu/simd_vec.h"
#include "backend/cpu/wino.h"

#define INLINE static inline __attribute__((always_inline))

/* The points 0, +A, -A, +B, -B, infinity, and for each the product of its distances to the other finite ones. */
#define A 0.625f
#define B 1.5f
#define A2 (A * A)
#define B2 (B * B)
#define F0 (A2 * B2)
#define FA (2 * A2 * (A2 - B2))
#define FB (2 * B2 * (B2 - A2))

INLINE vf scaled(float f, vf a)
{
    return v_mul(v_set(f), a);
}

/* f a + b */
INLINE vf fma1(float f, vf a, vf b)
{
    return v_fma(v_set(f), a, b);
}

/* ---- along one axis ---------------------------------------------------------------------------------------------- */

/* Values at the points: +p and -p share their even and odd parts. */
INLINE void source_1(const vf d[6], vf v[6])
{
    const vf ea = fma1(-B2, d[2], d[4]), oa = scaled(A, fma1(-B2, d[1], d[3]));
    const vf eb = fma1(-A2, d[2], d[4]), ob = scaled(B, fma1(-A2, d[1], d[3]));
    v[0] = fma1(F0, d[0], fma1(-(A2 + B2), d[2], d[4]));
    v[1] = v_add(ea, oa);
    v[2] = v_sub(ea, oa);
    v[3] = v_add(eb, ob);
    v[4] = v_sub(eb, ob);
    v[5] = fma1(F0, d[1], fma1(-(A2 + B2), d[3], d[5]));
}

INLINE void result_1(const vf v[6], vf y[4])
{
    const vf sa = v_add(v[1], v[2]), da = v_sub(v[1], v[2]), sb = v_add(v[3], v[4]), db = v_sub(v[3], v[4]);
    y[0] = v_add(v[0], v_add(sa, sb));
    y[1] = fma1(A, da, scaled(B, db));
    y[2] = fma1(A2, sa, scaled(B2, sb));
    y[3] = fma1(A * A2, da, fma1(B * B2, db, v[5]));
}

INLINE void spread_1(const vf y[4], vf v[6])
{
    const vf ea = fma1(A2, y[2], y[0]), oa = fma1(A * A2, y[3], scaled(A, y[1]));
    const vf eb = fma1(B2, y[2], y[0]), ob = fma1(B * B2, y[3], scaled(B, y[1]));
    v[0] = y[0];
    v[1] = v_add(ea, oa);
    v[2] = v_sub(ea, oa);
    v[3] = v_add(eb, ob);
    v[4] = v_sub(eb, ob);
    v[5] = y[3];
}

INLINE void weights_1(const vf g[3], vf v[6])
{
    const vf ea = fma1(A2 / FA, g[2], scaled(1 / FA, g[0])), oa = scaled(A / FA, g[1]);
    const vf eb = fma1(B2 / FB, g[2], scaled(1 / FB, g[0])), ob = scaled(B / FB, g[1]);
    v[0] = scaled(1 / F0, g[0]);
    v[1] = v_add(ea, oa);
    v[2] = v_sub(ea, oa);
    v[3] = v_add(eb, ob);
    v[4] = v_sub(eb, ob);
    v[5] = g[2];
}

INLINE void weight_grads_1(const vf v[6], vf g[3])
{
    const vf sa = v_add(v[1], v[2]), da = v_sub(v[1], v[2]), sb = v_add(v[3], v[4]), db = v_sub(v[3], v[4]);
    g[0] = fma1(1 / F0, v[0], fma1(1 / FA, sa, scaled(1 / FB, sb)));
    g[1] = fma1(A / FA, da, scaled(B / FB, db));
    g[2] = fma1(A2 / FA, sa, fma1(B2 / FB, sb, v[5]));
}

/* ---- in the plane ------------------------------------------------------------------------------------------------ */

/* What of `size` rows (or columns) from `start` on lies in an image of `limit`: [*lo, *hi). */
static void inside(int64_t start, int64_t size, int64_t limit, int *lo, int *hi)
{
    *lo = (int)SW_MAX(0, SW_MIN(size, -start));
    *hi = (int)SW_MAX(0, SW_MIN(size, limit - start));
}

typedef struct bounds {
    int i0, i1, j0, j1;
} bounds;

static bounds bounds_of(const sw__wino_tile *t, int64_t size)
{
    bounds b;
    inside(t->y, size, t->h, &b.i0, &b.i1);
    inside(t->x, size, t->w, &b.j0, &b.j1);
    return b;
}

INLINE vf load(const sw__wino_tile *t, int64_t at, const bool HALF)
{
    return HALF ? v_load_bf16((const uint16_t *)t->image + at) : v_load((const float *)t->image + at);
}

INLINE void store(const sw__wino_tile *t, int64_t at, vf v, const bool HALF)
{
    if (HALF)
        v_store_bf16((uint16_t *)t->image + at, v);
    else
        v_store((float *)t->image + at, v);
}

/* size x size pixels, the first of them `at`, to 36 points. WHOLE: all of them lie in the image. */
INLINE void to_points(const sw__wino_tile *t, int64_t at, const bounds b, const bool WHOLE, const bool HALF,
                      const int size, float *to, int64_t step)
{
    vf half[6][6];
    for (int j = 0; j < size; j++) {
        vf d[6], v[6];
        UNROLL for (int i = 0; i < size; i++) d[i] = WHOLE || (i >= b.i0 && i < b.i1 && j >= b.j0 && j < b.j1)
                                                         ? load(t, at + i * t->row + j * t->pixel, HALF)
                                                         : v_set(0);
        if (size == 6)
            source_1(d, v);
        else
            spread_1(d, v);
        UNROLL for (int i = 0; i < 6; i++) half[i][j] = v[i];
    }
    for (int i = 0; i < 6; i++) {
        vf v[6];
        if (size == 6)
            source_1(half[i], v);
        else
            spread_1(half[i], v);
        UNROLL for (int j = 0; j < 6; j++) v_store(to + (i * 6 + j) * step, v[j]);
    }
}

INLINE void all_to_points(const sw__wino_tile *t, int64_t count, const int size, const bool HALF, float *to,
                          int64_t step)
{
    const bounds b = bounds_of(t, size);
    const int64_t at = t->y * t->row + t->x * t->pixel;
    if (b.i1 - b.i0 == size && b.j1 - b.j0 == size)
        for (int64_t c = 0; c < count; c += VL) to_points(t, at + c, b, true, HALF, size, to + c, step);
    else
        for (int64_t c = 0; c < count; c += VL) to_points(t, at + c, b, false, HALF, size, to + c, step);
}

void SW__SIMD_NAME(sw__wino_source)(const sw__wino_tile *t, int64_t count, float *to, int64_t step)
{
    if (t->half)
        all_to_points(t, count, SW_WINO_IN, true, to, step);
    else
        all_to_points(t, count, SW_WINO_IN, false, to, step);
}

void SW__SIMD_NAME(sw__wino_spread)(const sw__wino_tile *t, int64_t count, float *to, int64_t step)
{
    if (t->half)
        all_to_points(t, count, SW_WINO_OUT, true, to, step);
    else
        all_to_points(t, count, SW_WINO_OUT, false, to, step);
}

INLINE void from_points(const sw__wino_tile *t, int64_t at, const bounds b, const float *from, int64_t step, vf bias,
                        bool relu, const bool HALF)
{
    vf half[4][6];
    for (int j = 0; j < 6; j++) {
        vf v[6], y[4];
        UNROLL for (int i = 0; i < 6; i++) v[i] = v_load(from + (i * 6 + j) * step);
        result_1(v, y);
        UNROLL for (int i = 0; i < 4; i++) half[i][j] = y[i];
    }
    for (int i = 0; i < b.i1; i++) {
        vf y[4];
        result_1(half[i], y);
        UNROLL for (int j = 0; j < 4; j++)
        {
            if (j >= b.j1) break;
            const vf sum = v_add(y[j], bias);
            store(t, at + i * t->row + j * t->pixel, relu ? v_relu(sum) : sum, HALF);
        }
    }
}

/* Results never start outside of an image, but may end there. */
void SW__SIMD_NAME(sw__wino_result)(const sw__wino_tile *t, int64_t count, const float *from, int64_t step,
                                    const float *bias, bool relu)
{
    const bounds b = bounds_of(t, SW_WINO_OUT);
    const int64_t at = t->y * t->row + t->x * t->pixel;
    for (int64_t c = 0; c < count; c += VL) {
        const vf plus = bias != NULL ? v_load(bias + c) : v_set(0);
        if (t->half)
            from_points(t, at + c, b, from + c, step, plus, relu, true);
        else
            from_points(t, at + c, b, from + c, step, plus, relu, false);
    }
}

void SW__SIMD_NAME(sw__wino_weights)(const float *from, int64_t count, bool flip, float *to, int64_t step, int64_t ld)
{
    for (int64_t k = 0; k < count; k++) {
        vf half[6][3];
        for (int j = 0; j < 3; j++) {
            vf g[3], v[6];
            UNROLL for (int i = 0; i < 3; i++) g[i] = v_load(from + (flip ? 8 - (i * 3 + j) : i * 3 + j) * VL);
            weights_1(g, v);
            UNROLL for (int i = 0; i < 6; i++) half[i][j] = v[i];
        }
        for (int i = 0; i < 6; i++) {
            vf v[6];
            weights_1(half[i], v);
            UNROLL for (int j = 0; j < 6; j++) v_store(to + (i * 6 + j) * step, v[j]);
        }
        from += 9 * VL;
        to += ld;
    }
}

void SW__SIMD_NAME(sw__wino_weight_grads)(const float *from, int64_t step, int64_t ld, int64_t count, float *to,
                                          int64_t ld_to)
{
    for (int64_t k = 0; k < count; k++) {
        vf half[3][6];
        for (int j = 0; j < 6; j++) {
            vf v[6], g[3];
            UNROLL for (int i = 0; i < 6; i++) v[i] = v_load(from + (i * 6 + j) * step);
            weight_grads_1(v, g);
            UNROLL for (int i = 0; i < 3; i++) half[i][j] = g[i];
        }
        for (int i = 0; i < 3; i++) {
            vf g[3];
            weight_grads_1(half[i], g);
            UNROLL for (int j = 0; j < 3; j++) v_store(to + (i * 3 + j) * ld_to, g[j]);
        }
        from += ld;
        to += 9 * ld_to;
    }
}

void SW__SIMD_NAME(sw__wino_widen)(const uint16_t *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += VL) v_store(to + i, v_load_bf16(from + i));
}

void SW__SIMD_NAME(sw__wino_narrow)(const float *from, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i += VL) v_store_bf16(to + i, v_load(from + i));
}
