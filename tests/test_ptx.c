/* test_ptx.c: the PTX interpreter of the CUDA test double (fakecuda/ptx.h) on PTX written by hand: values against plain C,
 * threads that go different ways, exchanges, and every check by a planted fault. test_ptx_nvrtc.c runs what NVRTC makes. */
#include "ptx_case.h"

#include <math.h>

/* uses: fakeptx */

/* ---- the plain way ------------------------------------------------------------------------------------------------------------ */

static void test_elementwise(void **state)
{
    (void)state;
    enum { N = 1000 };
    float a[N], b[N];
    for (int i = 0; i < N; i++) a[i] = (float)i * 0.25f - 100, b[i] = (float)(i % 17);
    const uint64_t pa = give_copy(a, sizeof a), pb = give_copy(b, sizeof b), pc = give(sizeof a);
    BODY(4, "add.u64 %rd10, %rd0, %rd20; add.u64 %rd11, %rd1, %rd20; add.u64 %rd12, %rd2, %rd20;"
            "cvt.u32.u64 %r4, %rd3; setp.ge.u32 %p0, %r1, %r4; @%p0 bra DONE;"
            "ld.global.f32 %f0, [%rd10]; ld.global.nc.f32 %f1, [%rd11]; fma.rn.f32 %f2, %f0, %f1, 0f3F000000;"
            "st.global.f32 [%rd12], %f2;\nDONE: ret;");
    for (seed = 1; seed < 4; seed++) {
        memset(host(pc), 0xFF, sizeof a);
        RUN("k", 8, 128, pa, pb, pc, N);
        const float *const c = host(pc);
        for (int i = 0; i < N; i++) assert_true(c[i] == fmaf(a[i], b[i], 0.5f));
    }
    assert_true(memory.touched > 0 && memory.touch_bytes == 3ull * 3 * sizeof a);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, clean)
    const struct CMUnitTest tests[] = {
        T(test_elementwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
