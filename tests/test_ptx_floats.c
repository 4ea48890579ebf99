/* test_ptx_floats.c: the PTX interpreter's floats, instruction by instruction, against plain C: roundings,
 * comparisons, conversions (all values of f16), pairs of halves, and functions within bounds of libm. Needs no
 * NVRTC. */
#include "ptx_instruction.h"

#include <fenv.h>

/* uses: fakeptx */

/* ---- floats ------------------------------------------------------------------------------------------------------ */

static float f32(u64 b)
{
    const u32 low = (u32)b;
    float v;
    memcpy(&v, &low, 4);
    return v;
}
static double f64(u64 b)
{
    double v;
    memcpy(&v, &b, 8);
    return v;
}
static u64 b32(float v)
{
    u32 b;
    memcpy(&b, &v, 4);
    return b;
}
static u64 b64(double v)
{
    u64 b;
    memcpy(&b, &v, 8);
    return b;
}

/* the host's own arithmetic, rounded another way; volatile keeps it at its place */
static float rounded(int mode, char op, float a, float b, float c)
{
    volatile float x = a, y = b, z = c, r;
    fesetround(mode);
    r = op == '+' ? x + y : op == '*' ? x * y : op == '/' ? x / y : op == 'q' ? sqrtf(x) : fmaf(x, y, z);
    fesetround(FE_TONEAREST);
    return r;
}
static float flushed(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }
static bool below(float a, float b) { return a < b || (a == b && signbit(a) && !signbit(b)); }
static float lesser(float a, float b) { return isnan(a) ? b : isnan(b) ? a : below(b, a) ? b : a; }
static float greater(float a, float b) { return isnan(a) ? b : isnan(b) ? a : below(a, b) ? b : a; }
static float in_unit(float v) { return !(v > 0) ? 0 : v > 1 ? 1 : v; }
static s64 to_int(double v, double low, double high, bool nan_is_0, s64 low_int, s64 high_int)
{
    return isnan(v) ? (nan_is_0 ? 0 : low_int) : v <= low ? low_int : v >= high ? high_int : (s64)v;
}
#define S32(v, z) (u32)to_int(v, -2147483648.0, 2147483647.0, z, INT32_MIN, INT32_MAX)
#define S64(v) (u64)to_int(v, -0x1p63, 0x1p63, false, INT64_MIN, INT64_MAX)

#define A f32(a)
#define B f32(b)
#define C f32(c)
#define FLOAT_CASES(_) \
    _("add.f32 $d, $a, $b;", "fff", b32(A + B)) \
    _("add.rn.f32 $d, $a, $b;", "fff", b32(A + B)) \
    _("add.rz.f32 $d, $a, $b;", "fff", b32(rounded(FE_TOWARDZERO, '+', A, B, 0))) \
    _("add.ftz.f32 $d, $a, $b;", "fff", b32(flushed(flushed(A) + flushed(B)))) \
    _("sub.f32 $d, $a, $b;", "fff", b32(A - B)) \
    _("mul.f32 $d, $a, $b;", "fff", b32(A * B)) \
    _("mul.rm.f32 $d, $a, $b;", "fff", b32(rounded(FE_DOWNWARD, '*', A, B, 0))) \
    _("mul.sat.f32 $d, $a, $b;", "fff", b32(in_unit(A * B))) \
    _("fma.rn.f32 $d, $a, $b, $c;", "ffff", b32(fmaf(A, B, C))) \
    _("fma.rz.f32 $d, $a, $b, $c;", "ffff", b32(rounded(FE_TOWARDZERO, 'f', A, B, C))) \
    _("fma.rm.f32 $d, $a, $b, $c;", "ffff", b32(rounded(FE_DOWNWARD, 'f', A, B, C))) \
    _("fma.rp.f32 $d, $a, $b, $c;", "ffff", b32(rounded(FE_UPWARD, 'f', A, B, C))) \
    _("div.rn.f32 $d, $a, $b;", "fff", b32(A / B)) \
    _("div.rp.f32 $d, $a, $b;", "fff", b32(rounded(FE_UPWARD, '/', A, B, 0))) \
    _("div.approx.f32 $d, $a, $b;", "fff", b32(A / B)) \
    _("rcp.rn.f32 $d, $a;", "ff", b32(1 / A)) \
    _("rcp.approx.ftz.f32 $d, $a;", "ff", b32(flushed(1 / flushed(A)))) \
    _("sqrt.rn.f32 $d, $a;", "ff", b32(sqrtf(A))) \
    _("sqrt.rm.f32 $d, $a;", "ff", b32(rounded(FE_DOWNWARD, 'q', A, 0, 0))) \
    _("min.f32 $d, $a, $b;", "fff", b32(lesser(A, B))) \
    _("max.f32 $d, $a, $b;", "fff", b32(greater(A, B))) \
    _("max.NaN.f32 $d, $a, $b;", "fff", isnan(A) || isnan(B) ? 0x7FFFFFFF : b32(greater(A, B))) \
    _("neg.f32 $d, $a;", "ff", (u32)a ^ 0x80000000u) \
    _("abs.f32 $d, $a;", "ff", (u32)a & 0x7FFFFFFFu) \
    _("copysign.f32 $d, $a, $b;", "fff", ((u32)a & 0x80000000u) | ((u32)b & 0x7FFFFFFFu)) \
    _("setp.lt.f32 $d, $a, $b;", "pff", A < B) \
    _("setp.ne.f32 $d, $a, $b;", "pff", A < B || A > B) \
    _("setp.neu.f32 $d, $a, $b;", "pff", A != B) \
    _("setp.equ.f32 $d, $a, $b;", "pff", !(A < B || A > B)) \
    _("setp.ltu.f32 $d, $a, $b;", "pff", !(A >= B)) \
    _("setp.geu.f32 $d, $a, $b;", "pff", !(A < B)) \
    _("setp.num.f32 $d, $a, $b;", "pff", !isnan(A) && !isnan(B)) \
    _("setp.nan.f32 $d, $a, $b;", "pff", isnan(A) || isnan(B)) \
    _("testp.finite.f32 $d, $a;", "pf", isfinite(A) != 0) \
    _("testp.infinite.f32 $d, $a;", "pf", isinf(A) != 0) \
    _("testp.normal.f32 $d, $a;", "pf", isnormal(A) != 0) \
    _("testp.subnormal.f32 $d, $a;", "pf", fpclassify(A) == FP_SUBNORMAL) \
    _("cvt.rni.f32.f32 $d, $a;", "ff", b32(rintf(A))) \
    _("cvt.rzi.f32.f32 $d, $a;", "ff", b32(truncf(A))) \
    _("cvt.rmi.f32.f32 $d, $a;", "ff", b32(floorf(A))) \
    _("cvt.rpi.f32.f32 $d, $a;", "ff", b32(ceilf(A))) \
    _("cvt.sat.f32.f32 $d, $a;", "ff", b32(in_unit(A))) \
    _("cvt.rni.s32.f32 $d, $a;", "wf", S32(rint((double)A), true)) \
    _("cvt.rzi.s32.f32 $d, $a;", "wf", S32(trunc((double)A), true)) \
    _("cvt.rmi.s32.f32 $d, $a;", "wf", S32(floor((double)A), true)) \
    _("cvt.rpi.s32.f64 $d, $a;", "wF", S32(ceil(f64(a)), false)) \
    _("cvt.rzi.s64.f32 $d, $a;", "df", S64(trunc((double)A))) \
    _("cvt.rni.s64.f64 $d, $a;", "dF", S64(rint(f64(a)))) \
    _("cvt.rzi.u32.f32 $d, $a;", "wf", (u32)to_int(trunc((double)A), 0, 4294967295.0, true, 0, UINT32_MAX)) \
    _("cvt.rzi.u8.f32 $d, $a;", "wf", (u32)to_int(trunc((double)A), 0, 255, true, 0, 255)) \
    _("cvt.rn.f32.s32 $d, $a;", "fw", b32((float)(s32)a)) \
    _("cvt.rn.f32.u64 $d, $a;", "fd", b32((float)a)) \
    _("cvt.rn.f64.s64 $d, $a;", "Fd", b64((double)(s64)a)) \
    _("cvt.rn.f32.u8 $d, $a;", "fw", b32((float)(u8)a)) \
    _("cvt.f64.f32 $d, $a;", "Ff", b64((double)A)) \
    _("cvt.rn.f32.f64 $d, $a;", "fF", b32((float)f64(a))) \
    _("add.f64 $d, $a, $b;", "FFF", b64(f64(a) + f64(b))) \
    _("mul.f64 $d, $a, $b;", "FFF", b64(f64(a) * f64(b))) \
    _("fma.rn.f64 $d, $a, $b, $c;", "FFFF", b64(fma(f64(a), f64(b), f64(c)))) \
    _("div.rn.f64 $d, $a, $b;", "FFF", b64(f64(a) / f64(b))) \
    _("sqrt.rn.f64 $d, $a;", "FF", b64(sqrt(f64(a)))) \
    _("setp.gtu.f64 $d, $a, $b;", "pFF", !(f64(a) <= f64(b)))
static const value_case float_cases[] = { FLOAT_CASES(LINE) };
static u64 float_want(int k, u64 a, u64 b, u64 c)
{
    FLOAT_CASES(WANT)
    return 0;
}

/* As f32 the low halves count, as f64 the whole: each value is of interest as both. */
static void test_floats(void **state)
{
    (void)state;
    static const float some[] = {
        0.0f,          -0.0f,      1,         -1,     0.5f,          -0.5f,         1.5f,           2.5f,
        -2.5f,         3.1415927f, 1e-3f,     -1e10f, 2147483520.0f, 2147483648.0f, -2147483904.0f, 4294967040.0f,
        4294967296.0f, 9.3e18f,    -9.3e18f,  255.5f, 1e-45f,        -1e-40f,       0x1p-126f,      3.4e38f,
        -3.4e38f,      INFINITY,   -INFINITY, NAN,    0x1.000002p0f, 16777217.0f
    };
    n_edges = 0;
    for (size_t i = 0; i < COUNT(some); i++) edges[n_edges++] = (b64(some[i]) & ~0xFFFFFFFFull) | b32(some[i]);
    check_all(float_cases, COUNT(float_cases), float_want);
}

/* ---- halves ------------------------------------------------------------------------------------------------------ */

static double half_value(u32 h) /* by the format's definition */
{
    const int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    const double size = e == 31 ? (m ? (double)NAN : (double)INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -size : size;
}

/* the nearest of all halves, of two the even one */
static u32 nearest_half(double v)
{
    const u32 sign = signbit(v) ? 0x8000u : 0;
    u32 low = 0, high = 0x7C00;
    v = fabs(v);
    if (isnan(v)) return 0x7FFF;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (half_value(middle) <= v) low = middle;
        else high = middle;
    }
    const double a = v - half_value(low), b = (high == 0x7C00 ? 65536.0 : half_value(high)) - v;
    return sign | (v >= 65520 || b < a || (a == b && (high & 1) == 0) ? high : low);
}

static void test_f16(void **state)
{
    (void)state;
    enum { N = 65536 };
    static u64 rows[3 * N], have[N];
    for (u32 h = 0; h < N; h++) rows[3 * h] = h, rows[3 * h + 1] = (h * 40503u + 7) & 0xFFFF;
    instruction("cvt.f32.f16 $d, $a;", "fh", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (isnan(half_value(h)) ? !isnan(f32(have[h])) : have[h] != b32((float)half_value(h))) fail_msg("f16 %x", h);
    for (u32 h = 0; h < N; h++) rows[3 * h] = b32((float)half_value(h));
    instruction("cvt.rn.f16.f32 $d, $a;", "hf", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (have[h] != (isnan(half_value(h)) ? 0x7FFF : h)) fail_msg("f16 %x there and back: %x", h, (u32)have[h]);
    for (u32 h = 0; h < N; h++) rows[3 * h] = h * 65537ull + h % 7; /* floats of all kinds */
    instruction("cvt.rn.f16.f32 $d, $a;", "hf", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (have[h] != nearest_half((double)f32(rows[3 * h])))
            fail_msg("f32 %llx: %x", (unsigned long long)rows[3 * h], (u32)have[h]);
    for (u32 h = 0; h < N; h++) rows[3 * h] = h;
    instruction("add.f16 $d, $a, $b;", "hhh", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (have[h] != nearest_half(half_value(h) + half_value((u32)rows[3 * h + 1])))
            fail_msg("add.f16 %x: %x", h, (u32)have[h]);
    instruction("mul.rn.f16 $d, $a, $b;", "hhh", rows, N, have);
    for (u32 h = 0; h < N; h++)
        if (have[h] != nearest_half(half_value(h) * half_value((u32)rows[3 * h + 1])))
            fail_msg("mul.f16 %x: %x", h, (u32)have[h]);
}

static void test_f16x2_bf16(void **state)
{
    (void)state;
    enum { N = 4096 };
    static u64 rows[3 * N], have[N];
    u64 random = 5;
    for (u32 k = 0; k < 3 * N; k++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        rows[k] = random >> 32;
    }
    instruction("cvt.rn.bf16.f32 $d, $a;", "hf", rows, N, have);
    for (u32 k = 0; k < N; k++) {
        const u32 b = (u32)rows[3 * k], want = isnan(f32(b)) ? 0x7FFF : (b + 0x7FFF + (b >> 16 & 1)) >> 16;
        if (have[k] != want) fail_msg("bf16 of %x: %x", b, (u32)have[k]);
    }
    instruction("cvt.rn.f16x2.f32 $d, $a, $b;", "wff", rows, N, have);
    for (u32 k = 0; k < N; k++)
        assert_int_equal(have[k],
                         nearest_half((double)f32(rows[3 * k])) << 16 | nearest_half((double)f32(rows[3 * k + 1])));
    instruction("fma.rn.f16x2 $d, $a, $b, $c;", "wwww", rows, N, have);
    for (u32 k = 0; k < N; k++)
        for (int part = 0; part < 2; part++) { /* the product is exact, and long double holds most sums */
            const u64 *const r = &rows[3 * k];
            const long double p = (long double)half_value((u32)r[0] >> 16 * part & 0xFFFF) *
                                  (long double)half_value((u32)r[1] >> 16 * part & 0xFFFF);
            const long double exact = p + (long double)half_value((u32)r[2] >> 16 * part & 0xFFFF);
            const u32 h = (u32)have[k] >> 16 * part & 0xFFFF;
            if ((long double)(double)exact == exact && h != nearest_half((double)exact)) fail_msg("fma.f16x2: %x", h);
        }
    instruction("set.lt.f16x2.f16x2 $d, $a, $b;", "www", rows, N, have);
    for (u32 k = 0; k < N; k++)
        for (int part = 0; part < 2; part++) {
            const double x = half_value((u32)rows[3 * k] >> 16 * part & 0xFFFF),
                         y = half_value((u32)rows[3 * k + 1] >> 16 * part & 0xFFFF);
            assert_int_equal(have[k] >> 16 * part & 0xFFFF, x < y ? 0x3C00 : 0);
        }
    instruction("add.rn.bf16x2 $d, $a, $b;", "www", rows, N, have);
    for (u32 k = 0; k < N; k++) {
        const double sum =
            (double)f32((u32)rows[3 * k] & 0xFFFF0000u) + (double)f32((u32)rows[3 * k + 1] & 0xFFFF0000u);
        if ((double)(float)sum != sum) continue; /* then twice rounded is once rounded */
        const u32 b = (u32)b32((float)sum), want = isnan(sum) ? 0x7FFF : (b + 0x7FFF + (b >> 16 & 1)) >> 16;
        assert_int_equal(have[k] >> 16, want);
    }
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static void test_functions(void **state)
{
    (void)state;
    static const struct { const char *text; double (*f)(double); double low, high, relative, absolute;
    } all[] = { { "ex2.approx.f32 $d, $a;", exp2, -160, 140, 1.2e-7, 1e-45 },
                { "lg2.approx.f32 $d, $a;", log2, 1e-30, 1e30, 2e-7, 1e-7 },
                { "sin.approx.f32 $d, $a;", sin, -50, 50, 2e-7, 1e-7 },
                { "cos.approx.f32 $d, $a;", cos, -50, 50, 2e-7, 1e-7 },
                { "tanh.approx.f32 $d, $a;", tanh, -20, 20, 3e-7, 0 },
                { "sqrt.approx.f32 $d, $a;", sqrt, 0, 1e38, 6e-8, 0 } };
    enum { N = 20000 };
    static u64 rows[3 * N], have[N];
    for (size_t k = 0; k < COUNT(all); k++) {
        for (int i = 0; i < N; i++) rows[3 * i] = b32((float)(all[k].low + (all[k].high - all[k].low) * i / (N - 1)));
        instruction(all[k].text, "ff", rows, N, have);
        for (int i = 0; i < N; i++) {
            const double x = (double)f32(rows[3 * i]), want = all[k].f(x), got = (double)f32(have[i]);
            if (fabs(want) < 3e38 && !(fabs(got - want) <= fabs(want) * all[k].relative + all[k].absolute))
                fail_msg("%s of %g: %g, not %g", all[k].text, x, got, want);
        }
    }
    const u64 corner[] = { b32(NAN), 0, 0, b32(INFINITY), 0, 0, b32(-INFINITY), 0, 0, b32(1e30f), 0, 0 };
    instruction("ex2.approx.ftz.f32 $d, $a;", "ff", corner, 4, have);
    assert_true(isnan(f32(have[0])) && have[1] == b32(INFINITY) && have[2] == 0 && have[3] == b32(INFINITY));
    const u64 third[] = { b64(3), 0, 0, 0, 0, 0 };
    instruction("rcp.approx.ftz.f64 $d, $a;", "FF", third, 2, have);
    assert_true(fabs(f64(have[0]) * 3 - 1) < 1e-6 && (have[0] & 0xFFFFFFFF) == 0 && isinf(f64(have[1])));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_floats), cmocka_unit_test(test_f16),
                                        cmocka_unit_test(test_f16x2_bf16), cmocka_unit_test(test_functions) };
    setenv("FAKECUDA_NO_AVX2", "1", 1); /* with the code for any CPU, then with that for this one */
    const int plain = cmocka_run_group_tests_name("any CPU", tests, NULL, NULL);
    unsetenv("FAKECUDA_NO_AVX2");
    return plain + cmocka_run_group_tests_name("this CPU", tests, NULL, NULL);
}
