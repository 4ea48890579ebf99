SIZED_KERNEL(sw_k, 256, 1, 1)(BUF(b0), BUF(b1), BUF(b2))
{
    const GLOBAL float *p0 = AT(float, b0);
    GLOBAL float *p1 = AT(float, b1);
    GLOBAL float *p2 = AT(float, b2);
    LOCAL_ARRAY(float, s1, 256);
    LOCAL_ARRAY(float, s4, 256);
    const i32 lane = LANE(0);
    const u32 row = (u32)GROUP(0);
    const i32 d0 = (i32)row;
    float a1 = BITS_F32(0xFF800000);
    for (u32 at = (u32)lane; at < 1000u; at += 256u) {
        const i32 d1 = (i32)at;
        const float v0 = p0[1000 * d0 + d1];
        a1 = sw_max_f32(v0, a1);
    }
    s1[lane] = a1;
    BARRIER();
    for (i32 step = 128; step > 0; step >>= 1) {
        if (LANE(0) < step) {
            s1[lane] = sw_max_f32(s1[lane + step], s1[lane]);
        }
        BARRIER();
    }
    const float v1 = s1[0];
    float a4 = 0.0f;
    for (u32 at = (u32)lane; at < 1000u; at += 256u) {
        const i32 d1 = (i32)at;
        const float v0 = p0[1000 * d0 + d1];
        const float v2 = v0 - v1;
        const float v3 = F32(exp)(v2);
        a4 = a4 + v3;
    }
    s4[lane] = a4;
    BARRIER();
    for (i32 step = 128; step > 0; step >>= 1) {
        if (LANE(0) < step) {
            s4[lane] = s4[lane] + s4[lane + step];
        }
        BARRIER();
    }
    const float v4 = s4[0];
    const float v7 = F32(log)(v4);
    for (u32 at = (u32)lane; at < 1000u; at += 256u) {
        const i32 d1 = (i32)at;
        const float v0 = p0[1000 * d0 + d1];
        const float v2 = v0 - v1;
        const float v3 = F32(exp)(v2);
        const float v5 = v3 / v4;
        p1[1000 * d0 + d1] = v5;
    }
    if (lane == 0) {
        p2[d0] = v7;
    }
}

/* sw_k: 512 groups of 256 x 1 */
