SIZED_KERNEL(sw_k_parts, 32, 8, 1)(BUF(b0), BUF(b1), BUF(b2), BUF(b3), BUF(ws))
{
    const GLOBAL float *p0 = AT(float, b0);
    const GLOBAL float *p1 = AT(float, b1);
    GLOBAL float *w4 = AT(float, ws) + 0;
    GLOBAL float *w5 = AT(float, ws) + 24000;
    LOCAL_ARRAY(float, s4, 256);
    LOCAL_ARRAY(float, s5, 256);
    const u32 work = (u32)GROUP(0);
    const u32 tile = work % 4u, part = work / 4u;
    const u32 first = part * 837u;
    const u32 last = first + 837u < 100352u ? first + 837u : 100352u;
    const i32 lane = LANE(1) * 32 + LANE(0);
    const u32 place = tile * 32u + (u32)LANE(0);
    const u8 there = place < 100u;
    const u32 column = there ? place : 99u;
    const i32 d1 = (i32)column;
    const float v1 = p1[d1];
    float a4 = 0.0f;
    float a5 = BITS_F32(0xFF800000);
    const u32 end = there ? last : 0;
    for (u32 row = first + (u32)LANE(1); row < end; row += 8u) {
        const i32 d0 = (i32)row;
        const float v0 = p0[100 * d0 + d1];
        const float v2 = v0 - v1;
        const float v3 = v2 * v2;
        a4 = a4 + v3;
        a5 = sw_max_f32(v0, a5);
    }
    s4[lane] = a4;
    s5[lane] = a5;
    BARRIER();
    for (i32 step = 4; step > 0; step >>= 1) {
        if (LANE(1) < step) {
            s4[lane] = s4[lane] + s4[lane + step * 32];
            s5[lane] = sw_max_f32(s5[lane + step * 32], s5[lane]);
        }
        BARRIER();
    }
    if (LANE(1) == 0 && there) {
        w4[part * 100u + column] = s4[lane];
        w5[part * 100u + column] = s5[lane];
    }
}

SIZED_KERNEL(sw_k, 32, 8, 1)(BUF(b0), BUF(b1), BUF(b2), BUF(b3), BUF(ws))
{
    GLOBAL float *p2 = AT(float, b2);
    GLOBAL float *p3 = AT(float, b3);
    GLOBAL float *w4 = AT(float, ws) + 0;
    GLOBAL float *w5 = AT(float, ws) + 24000;
    LOCAL_ARRAY(float, s4, 256);
    LOCAL_ARRAY(float, s5, 256);
    const u32 tile = (u32)GROUP(0);
    const i32 lane = LANE(1) * 32 + LANE(0);
    const u32 place = tile * 32u + (u32)LANE(0);
    const u8 there = place < 100u;
    const u32 column = there ? place : 99u;
    float a4 = 0.0f;
    float a5 = BITS_F32(0xFF800000);
    for (u32 part = (u32)LANE(1); part < 120u; part += 8u) {
        a4 = a4 + w4[part * 100u + column];
        a5 = sw_max_f32(w5[part * 100u + column], a5);
    }
    s4[lane] = a4;
    s5[lane] = a5;
    BARRIER();
    for (i32 step = 4; step > 0; step >>= 1) {
        if (LANE(1) < step) {
            s4[lane] = s4[lane] + s4[lane + step * 32];
            s5[lane] = sw_max_f32(s5[lane + step * 32], s5[lane]);
        }
        BARRIER();
    }
    if (LANE(1) == 0 && there) {
        const float v4 = s4[lane];
        const float v5 = s5[lane];
        const i32 d1 = (i32)column;
        const float v7 = v4 * 9.96492327e-06f;
        p2[d1] = v7;
        p3[d1] = v5;
    }
}

/* sw_k_parts: 480 groups of 32 x 8 */

/* sw_k: 4 groups of 32 x 8 */
