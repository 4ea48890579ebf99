SIZED_KERNEL(sw_k, 64, 4, 1)(BUF(b0), BUF(b1), BUF(b2))
{
    const GLOBAL u16 *p0 = AT(u16, b0);
    const GLOBAL float *p1 = AT(float, b1);
    GLOBAL u16 *p2 = AT(u16, b2);
    const u32 group = (u32)GROUP(0);
    const u32 y = group * 4u + (u32)LANE(1);
    const u32 x = (u32)LANE(0);
    const i32 d1 = (i32)(y % 30u);
    const i32 d0 = (i32)(y / 30u);
    const i32 d2 = (i32)x;
    const float v0 = (d1 >= 1 && d1 < 29) ? LOAD_F16(p0, 1792 * d0 + 64 * d1 + d2 - 64) : 0.0f;
    const float v1 = p1[d2];
    const float v2 = F32(tanh)(v0);
    const float v3 = v2 + v1;
    const float v5 = sw_max_f32(v3, (-0.100000001f));
    STORE_BF16(p2, 1920 * d0 + 64 * d1 + d2, v5);
}

/* sw_k: 45 groups of 64 x 4 */
