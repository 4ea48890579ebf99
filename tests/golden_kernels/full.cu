SIZED_KERNEL(sw_k_parts, 256, 1, 1)(BUF(b0), BUF(b1), BUF(b2), BUF(ws), ERRORS)
{
    const GLOBAL i64 *p0 = AT(i64, b0);
    const GLOBAL float *p1 = AT(float, b1);
    GLOBAL float *w2 = AT(float, ws) + 0;
    LOCAL_ARRAY(float, s2, 256);
    const i32 lane = LANE(0);
    const u32 work = (u32)GROUP(0);
    const u32 row = 0, first = work * 8334u;
    const u32 last = first + 8334u < 4000000u ? first + 8334u : 4000000u;
    float a2 = 0.0f;
    for (u32 at = first + (u32)lane; at < last; at += 256u) {
        const i32 d0 = (i32)at;
        const i64 v0 = p0[d0];
        const u8 ok1 = v0 >= 0 && v0 < 10;
        if (!ok1) REPORT(v0, 10, d0);
        const float v1 = ok1 ? p1[0 + 1 * (i32)v0] : 0.0f;
        a2 = a2 + v1;
    }
    s2[lane] = a2;
    BARRIER();
    for (i32 step = 128; step > 0; step >>= 1) {
        if (LANE(0) < step) {
            s2[lane] = s2[lane] + s2[lane + step];
        }
        BARRIER();
    }
    if (lane == 0) {
        w2[work] = s2[0];
    }
}

SIZED_KERNEL(sw_k, 128, 1, 1)(BUF(b0), BUF(b1), BUF(b2), BUF(ws), ERRORS)
{
    GLOBAL float *p2 = AT(float, b2);
    GLOBAL float *w2 = AT(float, ws) + 0;
    LOCAL_ARRAY(float, s2, 128);
    const i32 lane = LANE(0);
    const u32 row = (u32)GROUP(0);
    float a2 = 0.0f;
    for (u32 part = (u32)lane; part < 480u; part += 128u) {
        a2 = a2 + w2[row * 480u + part];
    }
    s2[lane] = a2;
    BARRIER();
    for (i32 step = 64; step > 0; step >>= 1) {
        if (LANE(0) < step) {
            s2[lane] = s2[lane] + s2[lane + step];
        }
        BARRIER();
    }
    if (lane != 0) return;
    const float v2 = s2[0];
    const float v3 = F32(sqrt)(v2);
    p2[0] = v3;
}

/* sw_k_parts: 480 groups of 256 x 1 */

/* sw_k: 1 groups of 128 x 1 */
