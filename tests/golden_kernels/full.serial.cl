SIZED_KERNEL(sw_k_parts, 1, 1, 1)(BUF(b0), BUF(b1), BUF(b2), BUF(ws), ERRORS)
{
    const GLOBAL i64 *p0 = AT(i64, b0);
    const GLOBAL float *p1 = AT(float, b1);
    GLOBAL float *w2 = AT(float, ws) + 0;
    const u32 work = (u32)GROUP(0);
    const u32 row = 0, first = work * 62u;
    const u32 last = first + 62u < 977u ? first + 62u : 977u;
    float a2 = 0.0f;
    float e2 = 0.0f;
    {
        for (u32 block = first; block < last; block++) {
            const i32 from = (i32)block * 4096;
            const i32 to = from + 4096 < 4000000 ? from + 4096 : 4000000;
            float t2[32];
            for (i32 l = 0; l < 32; l++) t2[l] = 0.0f;
            i32 at = from;
            for (; at + 32 <= to; at += 32) {
                for (i32 l = 0; l < 32; l++) {
                    const i32 d0 = at + l;
                    const i64 v0 = p0[d0];
                    const u8 ok1 = v0 >= 0 && v0 < 10;
                    if (!ok1) REPORT(v0, 10, d0);
                    const float v1 = ok1 ? p1[0 + 1 * (i32)v0] : 0.0f;
                    t2[l] = t2[l] + v1;
                }
            }
            for (i32 l = 0; l < 16; l++)
                t2[l] = t2[l] + t2[l + 16];
            for (i32 l = 0; l < 8; l++)
                t2[l] = t2[l] + t2[l + 8];
            for (i32 l = 0; l < 4; l++)
                t2[l] = t2[l] + t2[l + 4];
            for (i32 l = 0; l < 2; l++)
                t2[l] = t2[l] + t2[l + 2];
            for (i32 l = 0; l < 1; l++)
                t2[l] = t2[l] + t2[l + 1];
            TWO_SUM(a2, e2, t2[0]);
        }
    }
    w2[work] = sw_total(a2, e2);
}

SIZED_KERNEL(sw_k, 1, 1, 1)(BUF(b0), BUF(b1), BUF(b2), BUF(ws), ERRORS)
{
    GLOBAL float *p2 = AT(float, b2);
    GLOBAL float *w2 = AT(float, ws) + 0;
    const u32 row = (u32)GROUP(0);
    float a2 = 0.0f;
    for (u32 part = 0; part < 16u; part++) {
        a2 = a2 + w2[row * 16u + part];
    }
    const float v2 = a2;
    const float v3 = F32(sqrt)(v2);
    p2[0] = v3;
}

/* sw_k_parts: 16 groups of 1 x 1 */

/* sw_k: 1 groups of 1 x 1 */
