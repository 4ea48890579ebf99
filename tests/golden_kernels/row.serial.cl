SIZED_KERNEL(sw_k, 1, 1, 1)(BUF(b0), BUF(b1), BUF(b2))
{
    const GLOBAL float *p0 = AT(float, b0);
    GLOBAL float *p1 = AT(float, b1);
    GLOBAL float *p2 = AT(float, b2);
    const u32 row = (u32)GROUP(0);
    const i32 d0 = (i32)row;
    float a1 = BITS_F32(0xFF800000);
    {
        float t1[32];
        for (i32 l = 0; l < 32; l++) t1[l] = BITS_F32(0xFF800000);
        i32 at = 0;
        for (; at + 32 <= 1000; at += 32) {
            INDEPENDENT
            for (i32 l = 0; l < 32; l++) {
                const i32 d1 = at + l;
                const float v0 = p0[1000 * d0 + d1];
                t1[l] = sw_max_f32(v0, t1[l]);
            }
        }
        const i32 l = 0;
        for (i32 d1 = at; d1 < 1000; d1++) {
            const float v0 = p0[1000 * d0 + d1];
            t1[l] = sw_max_f32(v0, t1[l]);
        }
        for (i32 l = 0; l < 16; l++)
            t1[l] = sw_max_f32(t1[l + 16], t1[l]);
        for (i32 l = 0; l < 8; l++)
            t1[l] = sw_max_f32(t1[l + 8], t1[l]);
        for (i32 l = 0; l < 4; l++)
            t1[l] = sw_max_f32(t1[l + 4], t1[l]);
        for (i32 l = 0; l < 2; l++)
            t1[l] = sw_max_f32(t1[l + 2], t1[l]);
        for (i32 l = 0; l < 1; l++)
            t1[l] = sw_max_f32(t1[l + 1], t1[l]);
        a1 = sw_max_f32(t1[0], a1);
    }
    const float v1 = a1;
    float a4 = 0.0f;
    {
        float t4[32];
        for (i32 l = 0; l < 32; l++) t4[l] = 0.0f;
        i32 at = 0;
        for (; at + 32 <= 1000; at += 32) {
            INDEPENDENT
            for (i32 l = 0; l < 32; l++) {
                const i32 d1 = at + l;
                const float v0 = p0[1000 * d0 + d1];
                const float v2 = v0 - v1;
                const float v3 = sw_exp(v2);
                t4[l] = t4[l] + v3;
            }
        }
        const i32 l = 0;
        for (i32 d1 = at; d1 < 1000; d1++) {
            const float v0 = p0[1000 * d0 + d1];
            const float v2 = v0 - v1;
            const float v3 = sw_exp(v2);
            t4[l] = t4[l] + v3;
        }
        for (i32 l = 0; l < 16; l++)
            t4[l] = t4[l] + t4[l + 16];
        for (i32 l = 0; l < 8; l++)
            t4[l] = t4[l] + t4[l + 8];
        for (i32 l = 0; l < 4; l++)
            t4[l] = t4[l] + t4[l + 4];
        for (i32 l = 0; l < 2; l++)
            t4[l] = t4[l] + t4[l + 2];
        for (i32 l = 0; l < 1; l++)
            t4[l] = t4[l] + t4[l + 1];
        a4 = a4 + t4[0];
    }
    const float v4 = a4;
    const float v7 = sw_log(v4);
    {
        INDEPENDENT
        for (i32 d1 = 0; d1 < 1000; d1++) {
            const float v0 = p0[1000 * d0 + d1];
            const float v2 = v0 - v1;
            const float v3 = sw_exp(v2);
            const float v5 = v3 / v4;
            p1[1000 * d0 + d1] = v5;
        }
    }
    p2[d0] = v7;
}

/* sw_k: 512 groups of 1 x 1 */
