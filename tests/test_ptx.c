/* test_ptx.c: the PTX interpreter of the CUDA test double (fakecuda/ptx.h) on PTX written by hand: values against
 * plain C, threads that go different ways, exchanges, and every check by a planted fault. test_ptx_nvrtc.c runs what
 * NVRTC makes. */
#include "ptx_case.h"

#include <math.h>

/* uses: fakeptx */

/* ---- the plain way ----------------------------------------------------------------------------------------------- */

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

/* ---- ways -------------------------------------------------------------------------------------------------------- */

/* lanes leave a loop at different times and meet again; an early exit; an indexed jump */
static void test_divergence(void **state)
{
    (void)state;
    const uint64_t out = give(256 * 4);
    BODY(1,
         "add.u64 %rd10, %rd0, %rd20; mov.u32 %r10, 0; mov.u32 %r11, 0; and.b32 %r12, %r0, 31;\n"
         "LOOP: setp.ge.u32 %p0, %r10, %r12; @%p0 bra OUT;\n"
         "and.b32 %r13, %r10, 1; setp.eq.u32 %p1, %r13, 0; @%p1 bra EVEN;\n"
         "add.u32 %r11, %r11, 100; bra NEXT;\n"
         "EVEN: add.u32 %r11, %r11, 1;\n"
         "NEXT: add.u32 %r10, %r10, 1; bra.uni LOOP;\n"
         "OUT: st.global.u32 [%rd10], %r11; setp.lt.u32 %p2, %r0, 50; @%p2 ret;\n"
         "rem.u32 %r14, %r0, 3;\nTABLE: .branchtargets X, Y, Z;\nbrx.idx %r14, TABLE;\n"
         "X: add.u32 %r11, %r11, 1000; bra END;\nY: add.u32 %r11, %r11, 2000; bra END;\nZ: add.u32 %r11, %r11, 3000;\n"
         "END: st.global.u32 [%rd10], %r11; ret;");
    RUN("k", 2, 128, out);
    const uint32_t *const have = host(out);
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t n = i % 32, t = i % 128;
        assert_int_equal(have[i], (n + 1) / 2 + n / 2 * 100 + (t < 50 ? 0 : (t % 3 + 1) * 1000));
    }
}

/* turns a block around through shared memory, static and dynamic; three dimensions; a block that fills no warp */
static void test_shared(void **state)
{
    (void)state;
    const uint64_t out = give(90 * 4);
    use(".version 8.0\n.target sm_75\n.address_size 64\n.extern .shared .align 16 .b8 dyn[];\n.shared .align 4 .b8 "
        "all[400];\n"
        ".visible .entry k(.param .u64 p) .maxntid 90 {\n.reg .b32 %r<20>; .reg .b64 %rd<9>;\n"
        ".shared .align 4 .b8 own[4];\n"
        "ld.param.u64 %rd0, [p]; cvta.to.global.u64 %rd0, %rd0;\n"
        "mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y;\n"
        "mad.lo.u32 %r5, %r2, %r4, %r1; mad.lo.u32 %r5, %r5, %r3, %r0;\n"
        "mov.u32 %r6, all; shl.b32 %r7, %r5, 2; add.u32 %r8, %r6, %r7; st.shared.u32 [%r8], %r5;\n"
        "mov.u64 %rd1, dyn; cvt.u64.u32 %rd2, %r7; add.u64 %rd3, %rd1, %rd2; st.shared.u32 [%rd3+4], %r5;\n"
        "st.shared.u32 [own], 7;\n"
        "bar.sync 0;\n"
        "sub.u32 %r9, 89, %r5; shl.b32 %r9, %r9, 2; add.u32 %r10, %r6, %r9; ld.shared.u32 %r11, [%r10];\n"
        "cvt.u64.u32 %rd4, %r9; add.u64 %rd5, %rd1, %rd4; ld.shared.u32 %r12, [%rd5+4]; ld.shared.u32 %r14, [own];\n"
        "mad.lo.u32 %r13, %r11, 100, %r12; mad.lo.u32 %r13, %r14, 1000000, %r13; add.u64 %rd6, %rd0, %rd2;"
        "st.global.u32 [%rd6], %r13; ret; }");
    const ptx_kernel *const k = ptx_find(module, "k");
    const ptx_launch l = {
        .grid = { 1, 1, 1 }, .block = { 5, 6, 3 }, .dynamic_shared = 91 * 4, .params = &out, .check_races = true
    };
    const ptx_info info = ptx_kernel_info(k);
    assert_true(info.max_threads == 90 && info.shared_bytes == 416 && info.n_params == 1 && info.registers >= 20 + 18);
    if (ptx_run(k, &l, &mem, &fault)) fail_msg("%s", fault.text);
    if (memory.n_reports) fail_msg("%s", memory.first);
    for (uint32_t i = 0; i < 90; i++) assert_int_equal(((uint32_t *)host(out))[i], (89 - i) * 101 + 7000000);
}

/* half of the block by a barrier of its own, then all count and agree */
static void test_barriers(void **state)
{
    (void)state;
    const uint64_t out = give(128 * 4);
    BODY(1, ".shared .b32 s[128];\nadd.u64 %rd10, %rd0, %rd20; mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r12, "
            "%r10, %r11;\n"
            "setp.ge.u32 %p0, %r0, 64; st.shared.u32 [%r12], %r0; @%p0 bra REST;\n"
            "bar.sync 1, 64; xor.b32 %r13, %r11, 252; add.u32 %r13, %r13, %r10; ld.shared.u32 %r14, [%r13]; bra JOIN;\n"
            "REST: mov.u32 %r14, 0;\n"
            "JOIN: setp.lt.u32 %p1, %r0, 10; bar.red.popc.u32 %r15, 0, %p1; bar.red.or.pred %p2, 0, %p1;"
            "barrier.cta.red.and.aligned.pred %p3, 0, !%p1;\n"
            "mad.lo.u32 %r14, %r15, 1000, %r14; @%p2 add.u32 %r14, %r14, 100000; @%p3 add.u32 %r14, %r14, 200000;"
            "st.global.u32 [%rd10], %r14; ret;");
    for (seed = 1; seed < 5; seed++) RUN("k", 1, 128, out);
    for (uint32_t i = 0; i < 128; i++) assert_int_equal(((uint32_t *)host(out))[i], (i < 64 ? 63 - i : 0) + 110000);
}

/* ---- within a warp ----------------------------------------------------------------------------------------------- */

static void test_shuffles(void **state)
{
    (void)state;
    static const char *const modes[] = { "up", "down", "bfly", "idx" };
    static const struct {
        uint32_t b, c;
    } by[] = { { 1, 0 }, { 1, 31 }, { 3, 31 }, { 16, 31 }, { 2, 0x181F }, { 5, 0x1800 } };
    const uint64_t out = give(64 * 8);
    for (int mode = 0; mode < 4; mode++)
        for (size_t k = 0; k < COUNT(by); k++) {
            char body[400];
            snprintf(body, sizeof body,
                     "add.u64 %%rd10, %%rd0, %%rd21; add.u32 %%r10, %%r0, 1000; shfl.sync.%s.b32 %%r11|%%p0, %%r10, %u,"
                     "%u, 0xffffffff; selp.u32 %%r12, 1, 0, %%p0; st.global.v2.u32 [%%rd10], {%%r11, %%r12}; ret;",
                     modes[mode], by[k].b, by[k].c);
            BODY(1, body);
            RUN("k", 1, 64, out);
            for (int i = 0; i < 64; i++) { /* by the manual */
                const int lane = i % 32, clamp = by[k].c & 31, segment = by[k].c >> 8 & 31, b = (int)by[k].b;
                const int most = (lane & segment) | (clamp & ~segment);
                int j = mode == 0   ? lane - b
                        : mode == 1 ? lane + b
                        : mode == 2 ? lane ^ b
                                    : (lane & segment) | (b & ~segment);
                const bool in = mode == 0 ? j >= most : j <= most;
                if (!in) j = lane;
                const uint32_t *const have = host(out + 8 * (uint64_t)i);
                if (have[0] != (uint32_t)(1000 + i / 32 * 32 + j) || have[1] != in)
                    fail_msg("shfl %s %u %x lane %d", modes[mode], by[k].b, by[k].c, i);
            }
        }
}

/* threads that come to an exchange by different ways wait for each other */
static void test_votes(void **state)
{
    (void)state;
    const uint64_t out = give(64 * 32);
    BODY(
        1,
        "mul.wide.u32 %rd10, %r0, 32; add.u64 %rd10, %rd0, %rd10; setp.lt.u32 %p0, %r0, 40; setp.lt.u32 %p1, %r0, 64;\n"
        "and.b32 %r20, %r0, 1; setp.eq.u32 %p2, %r20, 0; mov.u32 %r21, 7; @%p2 bra SAME; add.u32 %r21, %r21, "
        "2;\nSAME:\n"
        "vote.sync.ballot.b32 %r10, %p0, 0xffffffff; vote.sync.all.pred %p3, %p1, 0xffffffff;"
        "vote.sync.any.pred %p4, %p0, 0xffffffff; vote.sync.uni.pred %p5, %p0, 0xffffffff; vote.sync.ballot.b32 %r17, "
        "!%p0, -1;\n"
        "match.any.sync.b32 %r11, %r21, 0xffffffff; match.all.sync.b32 %r12|%p6, %r21, 0xffffffff; activemask.b32 "
        "%r13;\n"
        "redux.sync.add.s32 %r14, %r0, 0xffffffff; redux.sync.max.u32 %r15, %r0, 0xffffffff;\n"
        "mov.u32 %r18, 0; @%p3 add.u32 %r18, %r18, 1; @%p4 add.u32 %r18, %r18, 2; @%p5 add.u32 %r18, %r18, 4;\n"
        "@%p6 add.u32 %r18, %r18, 8; mov.u32 %r19, %laneid; add.u32 %r12, %r12, %r19;\n"
        "@!%p2 bra ODD; vote.sync.ballot.b32 %r16, %p2, 0x55555555; bra END; ODD: activemask.b32 %r16;\n"
        "END: bar.warp.sync 0xffffffff; st.global.v4.u32 [%rd10], {%r10, %r11, %r12, %r13};"
        "st.global.v4.u32 [%rd10+16], {%r14, %r15, %r16, %r18}; ret;");
    RUN("k", 1, 64, out);
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t *const h = host(out + 32 * i), warp = i / 32;
        const uint32_t want[] = {
            warp ? 0xFF : UINT32_MAX, i % 2 ? 0xAAAAAAAA : 0x55555555, i % 32,      UINT32_MAX, warp ? 496 + 1024 : 496,
            warp ? 63 : 31,           i % 2 ? 0xAAAAAAAA : 0x55555555, warp ? 3 : 7
        };
        for (int k = 0; k < 8; k++)
            if (h[k] != want[k]) fail_msg("thread %u, value %d: %x, not %x", i, k, h[k], want[k]);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void test_atomics(void **state)
{
    (void)state;
    enum { SUM, MIN, MAX, AND, OR, INC, FLOAT, LOCK, LONG, EXCH, HALVES, N };
    uint32_t start[2 * N] = { 0 };
    start[MIN] = UINT32_MAX, start[AND] = UINT32_MAX;
    const uint64_t p = give_copy(start, sizeof start);
    BODY(1,
         "atom.global.add.u32 %r10, [%rd0], 1; red.global.min.u32 [%rd0+4], %r1; red.global.max.s32 [%rd0+8], %r1;"
         "red.global.and.b32 [%rd0+12], %r1; red.global.or.b32 [%rd0+16], %r1; atom.global.inc.u32 %r11, [%rd0+20], 99;"
         "red.global.add.f32 [%rd0+24], 0f3F800000; red.relaxed.gpu.global.add.u64 [%rd0+32], %rd20;"
         "atom.exch.b32 _, [%rd0+36], 5; red.global.add.noftz.f16x2 [%rd0+40], 0x40003C00;\n"
         "RETRY: ld.volatile.global.u32 %r12, [%rd0+28]; add.u32 %r13, %r12, 3;"
         "atom.global.cas.b32 %r14, [%rd0+28], %r12, %r13; setp.ne.u32 %p0, %r14, %r12; @%p0 bra RETRY; ret;");
    RUN("k", 10, 100, p);
    const uint32_t *const h = host(p);
    assert_true(h[SUM] == 1000 && h[MIN] == 0 && h[MAX] == 999 && h[AND] == 0 && h[OR] == 1023 && h[INC] == 0);
    float f;
    memcpy(&f, &h[FLOAT], 4);
    assert_true(f == 1000 && h[LOCK] == 3000);
    assert_int_equal(h[LONG], 4 * 999 * 500);
    assert_int_equal(h[LONG + 1], 5);
    assert_int_equal(h[10], 0x67D063D0); /* 2000 and 1000 as f16 */
}

/* arrays of a thread, variables of the module, a function, vectors, generic addresses of all kinds */
static void test_spaces(void **state)
{
    (void)state;
    const uint64_t out = give(64 * 16);
    use(".version 8.0\n.target sm_75\n.address_size 64\n.const .align 4 .u32 table[4] = {10, 20, 30, 40};\n.global "
        ".align 8 .b8 count[8];\n"
        ".func (.param .b64 r) twice(.param .b64 a, .param .align 4 .b8 b[8]);\n"
        ".visible .entry k(.param .u64 p, .param .align 4 .b8 q[8]) {\n.reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 "
        "%rd<30>;\n"
        ".local .align 8 .b8 depot[16]; .shared .b32 s[64];\n"
        "ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 16; add.u64 %rd1, %rd0, %rd1;\n"
        "mov.u64 %rd2, depot; cvta.local.u64 %rd3, %rd2; st.u32 [%rd3], %r0; st.local.u32 [%rd2+4], 5; ld.u32 %r1, "
        "[%rd3+4];"
        "ld.local.u32 %r2, [%rd2]; add.u32 %r1, %r1, %r2;\n" /* thread + 5 */
        "and.b32 %r3, %r0, 3; mul.wide.u32 %rd4, %r3, 4; mov.u64 %rd5, table; add.u64 %rd5, %rd5, %rd4; ld.const.u32 "
        "%r4, [%rd5];\n"
        "red.global.add.u32 [count+4], 1;\n"
        "mov.u32 %r5, s; shl.b32 %r6, %r0, 2; add.u32 %r5, %r5, %r6; cvt.u64.u32 %rd6, %r5; cvta.shared.u64 %rd7, %rd6;"
        "st.u32 [%rd7], %r4; isspacep.shared %p0, %rd7; isspacep.global %p1, %rd1; isspacep.local %p2, %rd7;\n"
        "setp.eq.u32 %p3, %r3, 0; selp.b64 %rd8, %rd3, %rd7, %p3; ld.u32 %r7, [%rd8];\n" /* thread's own or shared */
        "{ .param .b64 x; st.param.b64 [x+0], %rd4; .param .align 4 .b8 y[8]; st.param.b32 [y], %r0; st.param.v2.b32 "
        "[y], {%r0, %r4};\n"
        ".param .b64 z; call.uni (z), twice, (x, y); ld.param.b64 %rd9, [z+0]; }\n"
        "ld.param.u32 %r8, [q+4]; cvt.u32.u64 %r9, %rd9; add.u32 %r8, %r8, %r9;\n"
        "mov.u32 %r10, 0; @%p0 add.u32 %r10, %r10, 1; @%p1 add.u32 %r10, %r10, 2; @%p2 add.u32 %r10, %r10, 4;\n"
        "st.global.v4.u32 [%rd1], {%r1, %r7, %r8, %r10}; ret; }\n"
        ".func (.param .b64 r) twice(.param .b64 a, .param .align 4 .b8 b[8]) {\n.reg .pred %p<3>; .reg .b64 %rd<9>; "
        ".reg .b32 %r<9>;\n"
        "ld.param.b64 %rd1, [a]; ld.param.b32 %r2, [b+4]; cvt.u64.u32 %rd2, %r2; mul.lo.u64 %rd3, %rd1, 2; "
        "st.param.b64 [r], %rd3;"
        "setp.lt.u64 %p1, %rd1, 8; @%p1 ret; add.u64 %rd3, %rd3, %rd2; st.param.b64 [r], %rd3; ret; }\n");
    struct { uint64_t p; uint32_t q[2]; } params = { out, { 1, 1000 } };
    const ptx_launch l = { .grid = { 1, 1, 1 }, .block = { 64, 1, 1 }, .params = &params, .check_races = true };
    if (ptx_run(ptx_find(module, "k"), &l, &mem, &fault)) fail_msg("%s", fault.text);
    if (memory.n_reports) fail_msg("%s", memory.first);
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t *const h = host(out + 16 * i), k = i % 4, t = (k + 1) * 10;
        const uint32_t want[] = { i + 5, k == 0 ? i : t, 1000 + 8 * k + (k < 2 ? 0 : t), 3 };
        for (int j = 0; j < 4; j++)
            if (h[j] != want[j]) fail_msg("thread %u, value %d: %u, not %u", i, j, h[j], want[j]);
    }
    assert_int_equal(((uint32_t *)memory.all[2].host)[1], 64); /* out, table, count */
}

/* narrow and vector accesses, signs, registers wider than what is loaded */
static void test_widths(void **state)
{
    (void)state;
    const int8_t in[16] = { -1, -2, 3, 4, -5, 6, 7, -8, 9, 10, -11, 12, 13, -14, 15, 16 };
    const uint64_t a = give_copy(in, sizeof in), b = give(64);
    BODY(
        2,
        "setp.ne.u32 %p0, %r0, 0; @%p0 ret;\n"
        "ld.global.s8 %r10, [%rd0]; st.global.u32 [%rd1], %r10; ld.global.u8 %h1, [%rd0+1]; st.global.u16 [%rd1+4], "
        "%h1;\n"
        "ld.global.s16 %rd10, [%rd0+4]; st.global.u64 [%rd1+8], %rd10; ld.global.v4.s8 {%r11, %r12, %r13, %r14}, "
        "[%rd0+4];\n"
        "add.u32 %r11, %r11, %r12; add.u32 %r13, %r13, %r14; add.u32 %r11, %r11, %r13; st.global.u32 [%rd1+16], %r11;\n"
        "ld.global.v2.b64 {%rd11, %rd12}, [%rd0]; st.global.v2.b64 [%rd1+32], {%rd12, %rd11}; st.global.u8 [%rd1+20], "
        "%rd11; ret;");
    RUN("k", 1, 32, a, b);
    const unsigned char *const h = host(b);
    assert_int_equal(*(const int32_t *)(const void *)h, -1);
    assert_int_equal(*(const uint16_t *)(const void *)(h + 4), 254);
    assert_int_equal(*(const int64_t *)(const void *)(h + 8), 6 * 256 + 251);
    assert_int_equal(*(const int32_t *)(const void *)(h + 16), -5 + 6 + 7 - 8);
    assert_int_equal(h[20], 255);
    assert_memory_equal(h + 32, in + 8, 8);
    assert_memory_equal(h + 40, in, 8);
}

/* the order of blocks and of threads' groups is the seed's */
static void test_order(void **state)
{
    (void)state;
    enum { N = 12 };
    uint32_t seen[3][4 * N];
    const uint32_t zero = 0;
    for (seed = 1; seed < 4; seed++) {
        const uint64_t counter = give_copy(&zero, 4), out = give(sizeof seen[0]);
        BODY(2, "and.b32 %r10, %r0, 63; setp.ne.u32 %p0, %r10, 0; @%p0 ret; atom.global.add.u32 %r11, [%rd0], 1;"
                "shr.u32 %r12, %r1, 6; mul.wide.u32 %rd10, %r11, 4; add.u64 %rd10, %rd1, %rd10; st.global.u32 [%rd10], "
                "%r12; ret;");
        RUN("k", N, 256, counter, out);
        memcpy(seen[seed - 1], host(out), sizeof seen[0]);
        uint64_t all = 0;
        for (int i = 0; i < 4 * N; i++) all |= 1ull << seen[seed - 1][i];
        assert_true(all == (1ull << 4 * N) - 1);
    }
    assert_memory_not_equal(seen[0], seen[1], sizeof seen[0]);
    assert_memory_not_equal(seen[1], seen[2], sizeof seen[0]);
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, clean)
    const struct CMUnitTest tests[] = {
        T(test_elementwise), T(test_divergence), T(test_shared),  T(test_barriers), T(test_shuffles), T(test_votes),
        T(test_atomics),     T(test_spaces),     T(test_widths), T(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
