/* test_ptx_faults.c: what the PTX interpreter must find: each fault is planted in a kernel, and the report has to
 * name kernel, line of the PTX, block, thread and address. Next to each stands a kernel that does nearly the same
 * and is right. */
#include "ptx_case.h"

/* uses: fakeptx */

/* kernel_text() puts the body's first line on line 10, or later by the number of parameters. */

static void text_has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

/* The launch ends with a code; what it says. */
#define STOPS(wanted, ...) \
    do { \
        const int got = LAUNCH(__VA_ARGS__); \
        if (got != (wanted) || fault.code != got) fail_msg("%d, not %d: %s", got, wanted, fault.text); \
    } while (0)

/* The launch goes on and reports; what it says first. */
#define REPORTS(...) \
    do { \
        memory.n_reports = 0; \
        if (LAUNCH(__VA_ARGS__) != 0) fail_msg("%s", fault.text); \
        if (memory.n_reports == 0) fail_msg("no report"); \
    } while (0)

static void address_in(const char *text, uint64_t address)
{
    char part[40];
    snprintf(part, sizeof part, "0x%llx", (unsigned long long)address);
    text_has(text, part);
}

/* ---- accesses ---------------------------------------------------------------------------------------------------- */

static void test_bounds(void **state)
{
    (void)state;
    const uint64_t p = give(100 * 4), gone = give(64);
    BODY(1, "add.u64 %rd10, %rd0, %rd20;\nst.global.u32 [%rd10], %r1; ret;");
    RUN("k", 2, 50, p);
    STOPS(700, "k", 2, 51, p);
    text_has(fault.text, "kernel k, PTX line 12, block (1, 0, 0), thread (49, 0, 0): writes 4 bytes of global memory");
    address_in(fault.text, p + 400);
    STOPS(700, "k", 1, 1, p - 4);
    text_has(fault.text, "no memory there");
    release(gone);
    STOPS(700, "k", 1, 1, gone);
    text_has(fault.text, "freed");
    STOPS(700, "k", 1, 1, 0);
    STOPS(700, "k", 1, 1, 5ull << 56);
    BODY(1, "add.u64 %rd10, %rd0, %rd20; ld.u32 %r10, [%rd10+4]; ret;"); /* generic */
    RUN("k", 1, 99, p);
    STOPS(700, "k", 1, 100, p);
    text_has(fault.text, "thread (99, 0, 0): reads 4 bytes of global memory");
    BODY(1, "add.u64 %rd10, %rd0, %rd20; atom.global.add.u32 %r10, [%rd10], 1; ret;");
    STOPS(700, "k", 1, 101, p);
    text_has(fault.text, "updates 4 bytes");
    BODY(1, "add.u64 %rd10, %rd0, %rd20; setp.lt.u32 %p0, %r0, 100; @%p0 ld.global.u32 %r10, [%rd10]; ret;");
    RUN("k", 1, 128, p); /* those beyond the end do not load */
}

/* lanes of one instruction in several allocations */
static void test_two_allocations(void **state)
{
    (void)state;
    const uint64_t a = give(256), b = give(256), out = give(512);
    for (int i = 0; i < 64; i++) ((uint32_t *)host(a))[i] = (uint32_t)i, ((uint32_t *)host(b))[i] = (uint32_t)i + 100;
    BODY(3, "and.b32 %r10, %r0, 1; setp.eq.u32 %p0, %r10, 0; selp.b64 %rd10, %rd0, %rd1, %p0; add.u64 %rd10, %rd10, "
            "%rd20;\n"
            "ld.global.u32 %r11, [%rd10]; add.u64 %rd11, %rd2, %rd20; st.global.u32 [%rd11], %r11; ret;");
    RUN("k", 1, 64, a, b, out);
    for (uint32_t i = 0; i < 64; i++) assert_int_equal(((uint32_t *)host(out))[i], i % 2 ? i + 100 : i);
    release(b);
    STOPS(700, "k", 1, 64, a, b, out);
    text_has(fault.text, "thread (1, 0, 0)");
}

static void test_alignment(void **state)
{
    (void)state;
    const uint64_t p = give(256);
    BODY(1, "mul.wide.u32 %rd10, %r0, 8; add.u64 %rd10, %rd0, %rd10;\nld.global.v2.f32 {%f0, %f1}, [%rd10]; ret;");
    RUN("k", 1, 32, p);
    STOPS(716, "k", 1, 31, p + 4);
    text_has(fault.text, "PTX line 12, block (0, 0, 0), thread (0, 0, 0): reads 8 bytes");
    address_in(fault.text, p + 4);
    text_has(fault.text, "misaligned");
}

static void test_shared_and_local(void **state)
{
    (void)state;
    BODY(1,
         ".shared .b32 s[32];\nmov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r10, %r10, %r11; cvt.u32.u64 %r12, %rd0;"
         "add.u32 %r10, %r10, %r12;\nst.shared.u32 [%r10], %r0; ret;");
    RUN("k", 1, 32, 0);
    STOPS(700, "k", 3, 33, 0);
    text_has(fault.text, "thread (32, 0, 0): writes 4 bytes of shared memory");
    STOPS(700, "k", 1, 32, (uint64_t)-2000 & 0xFFFFFFFC);
    STOPS(716, "k", 1, 32, 2);
    BODY(1,
         ".local .align 4 .b8 depot[8];\nmov.u64 %rd10, depot; add.u64 %rd10, %rd10, %rd0; st.local.u32 [%rd10], %r0;"
         "ld.local.u32 %r1, [%rd10]; ret;");
    RUN("k", 1, 32, 4);
    STOPS(719, "k", 1, 32, 8);
    text_has(fault.text, "local memory at address 0x8: out of bounds, there are 8 bytes");
    use(".version 8.0\n.target sm_75\n.address_size 64\n.extern .shared .align 4 .b8 dyn[];\n.visible .entry k() {\n"
        ".reg .b64 %rd<3>; mov.u64 %rd1, dyn; st.shared.u32 [%rd1+12], 0; ret; }");
    ptx_launch l = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 }, .params = "", .dynamic_shared = 16 };
    assert_int_equal(ptx_run(ptx_find(module, "k"), &l, &mem, &fault), 0);
    l.dynamic_shared = 12;
    assert_int_equal(ptx_run(ptx_find(module, "k"), &l, &mem, &fault), 700);
}

/* whoever owns the memory may say no */
static void test_touch(void **state)
{
    (void)state;
    const uint64_t p = give(256);
    BODY(1, "add.u64 %rd10, %rd0, %rd20; ld.global.u32 %r10, [%rd10]; ret;");
    RUN("k", 1, 64, p);
    assert_true(memory.touched == 1 && memory.touch_bytes == 256);
    snprintf(memory.why, sizeof memory.why, "written by an event that nobody waited for");
    STOPS(700, "k", 1, 64, p);
    text_has(fault.text, "nobody waited for");
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void test_barriers(void **state)
{
    (void)state;
    BODY(0, "setp.lt.u32 %p0, %r0, 64; @%p0 bra A;\nbar.sync 0; bra B;\nA: bar.sync 0;\nB: ret;");
    STOPS(719, "k", 1, 128);
    text_has(fault.text, "threads of a block wait at different barriers");
    text_has(fault.text, "kernel k, PTX line");
    BODY(0, "setp.lt.u32 %p0, %r0, 10; @%p0 bra A;\nbar.sync 0; bra B;\nA: bar.sync 0;\nB: ret;"); /* within a warp */
    STOPS(719, "k", 1, 32);
    BODY(0, "setp.lt.u32 %p0, %r0, 64; @%p0 ret;\nbar.sync 0; ret;"); /* who has left is not waited for */
    RUN("k", 1, 128);
    BODY(0, "setp.lt.u32 %p0, %r0, 64; @%p0 bar.sync 1, 128; ret;");
    STOPS(719, "k", 1, 128);
    text_has(fault.text, "barrier 1 waits for 128 threads and 64 are here");
}

static void test_warps(void **state)
{
    (void)state;
    BODY(0, "setp.lt.u32 %p0, %r0, 16; @%p0 bra A;\nbar.sync 0; bra B;\nA: shfl.sync.idx.b32 %r10, %r0, 0, 31, "
            "0xffffffff; bar.sync 0;\nB: ret;");
    STOPS(719, "k", 1, 32);
    text_has(fault.text, "PTX line 12, block (0, 0, 0), thread (0, 0, 0): waits for other threads of its warp");
    BODY(0, "setp.lt.u32 %p0, %r0, 16; @%p0 bra A;\nadd.u32 %r10, %r0, 1; ret;\n"
            "A: shfl.sync.idx.b32 %r10, %r0, 0, 31, 0xffffffff; ret;"); /* who has left is not waited for */
    RUN("k", 1, 32);
    BODY(0, "setp.ge.u32 %p0, %r0, 16; @%p0 bra A;\nshfl.sync.idx.b32 %r10, %r0, 0, 31, 0xffffffff; ret;\nA: ret;");
    RUN("k", 1, 32);
    BODY(0, "shfl.sync.idx.b32 %r10, %r0, 0, 31, 0xffff; ret;");
    STOPS(719, "k", 1, 32);
    text_has(fault.text, "is not in the mask 0xffff");
    BODY(0, "setp.lt.u32 %p0, %r0, 16; @%p0 shfl.sync.idx.b32 %r10, %r0, 20, 31, 0xffff; ret;");
    REPORTS("k", 1, 32);
    text_has(memory.first, "reads lane 20, which takes no part");
}

static void test_hang_and_trap(void **state)
{
    (void)state;
    max_instructions = 10000;
    BODY(0, "L: add.u32 %r10, %r10, 1; setp.lt.u32 %p0, %r10, 1000; @%p0 bra L; ret;");
    RUN("k", 3, 32);
    BODY(0, "L:\nadd.u32 %r10, %r10, 1; bra L;");
    STOPS(702, "k", 3, 32);
    text_has(fault.text, "it hangs");
    text_has(fault.text, "PTX line 11");
    BODY(0, "setp.eq.u32 %p0, %r1, 70; @%p0 trap; ret;");
    STOPS(719, "k", 3, 32);
    text_has(fault.text, "block (2, 0, 0), thread (6, 0, 0): the kernel trapped");
    STOPS(1, "k", 1, 1025);
    STOPS(1, "k", 0, 1);
}

/* ---- races ------------------------------------------------------------------------------------------------------- */

#define SHARED_RACE(barrier) \
    ".shared .b32 s[64];\nmov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;" \
    "st.shared.u32 [%r12], %r0;\n" barrier \
    "\nxor.b32 %r13, %r11, 4; add.u32 %r13, %r13, %r10; ld.shared.u32 %r14, [%r13];\n" barrier \
    "\nst.shared.u32 [%r12], %r14; ret;"

static void test_shared_races(void **state)
{
    (void)state;
    BODY(0, SHARED_RACE("bar.sync 0;"));
    RUN("k", 2, 64);
    BODY(0, SHARED_RACE("bar.warp.sync 0xffffffff;")); /* neighbours are in one warp */
    RUN("k", 2, 64);
    BODY(0, SHARED_RACE(""));
    REPORTS("k", 2, 64);
    text_has(memory.first, "kernel k, PTX line 13, block (");
    text_has(memory.first, "a race in shared memory at address 0x");
    text_has(memory.first, "reads what was written by thread");
    assert_int_equal(memory.n_reports, 2); /* one of each instruction */
    BODY(0, ".shared .b32 s[4];\nst.shared.u32 [s], 5; st.shared.u32 [s+4], %r0; ret;"); /* the same value is none */
    REPORTS("k", 1, 64);
    assert_int_equal(memory.n_reports, 1);
    text_has(memory.first, "writes what was written by");
    BODY(0, ".shared .b8 s[64];\nmov.u32 %r10, s; add.u32 %r12, %r10, %r0; cvt.u16.u32 %h1, %r0; st.shared.u8 [%r12], "
            "%h1; ret;");
    RUN("k", 1, 64); /* bytes of a word are apart */
    BODY(0, ".shared .b32 s[1];\natom.shared.add.u32 %r10, [s], 1; ret;");
    RUN("k", 1, 64);
    BODY(0, ".shared .b32 s[1];\nsetp.eq.u32 %p0, %r0, 0; ld.shared.u32 %r10, [s]; @%p0 st.shared.u32 [s], %r10; ret;");
    REPORTS("k", 1, 128);
    text_has(memory.first, "writes what was read by several threads");
}

static void test_races_of_blocks(void **state)
{
    (void)state;
    const uint64_t p = give(64 * 4 * 4);
    BODY(1, "add.u64 %rd10, %rd0, %rd20; st.global.u32 [%rd10], %r1; ld.global.u32 %r10, [%rd10]; ret;");
    RUN("k", 4, 64, p);
    BODY(1, "mul.wide.u32 %rd10, %r0, 4; add.u64 %rd10, %rd0, %rd10; st.global.u32 [%rd10], %r1; ret;");
    RUN("k", 1, 64, p);
    REPORTS("k", 4, 64, p);
    text_has(memory.first, "kernel k, PTX line 11, block (");
    text_has(memory.first, "a race between blocks at address 0x7");
    text_has(memory.first, "writes what was written by block number");
    BODY(1, "add.u64 %rd10, %rd0, %rd20; ld.global.u32 %r10, [%rd0];\nst.global.u32 [%rd10], %r10; ret;"); /* word 0 */
    REPORTS("k", 4, 64, p);
    text_has(memory.first, "at address 0x7");
    BODY(1, "mul.wide.u32 %rd10, %r0, 4; add.u64 %rd10, %rd0, %rd10; st.global.u32 [%rd10], %r0; ret;"); /* the same
                                                                                                            value */
    RUN("k", 4, 64, p);
    BODY(1, "red.global.add.u32 [%rd0], 1; ld.volatile.global.u32 %r10, [%rd0]; ret;");
    RUN("k", 4, 64, p);
    BODY(1,
         "cvt.u64.u32 %rd10, %r1; add.u64 %rd10, %rd0, %rd10; st.global.u8 [%rd10], %r1; ret;"); /* bytes of a word */
    RUN("k", 30, 3, p);
}

/* ---- what is not read -------------------------------------------------------------------------------------------- */

static void refuses(const char *text, const char *why)
{
    char error[300];
    ptx_module *const m = ptx_load(text, &mem, error, sizeof error);
    if (m) {
        ptx_unload(m);
        fail_msg("was read: %s", text);
    }
    text_has(error, why);
}

static void test_unknown(void **state)
{
    (void)state;
    static const struct { const char *body, *why; } bad[] = {
        { "\nfrobnicate.u32 %r1, %r2;", "PTX line 11: unknown instruction 'frobnicate.u32'" },
        { "add.u33 %r1, %r2, %r3;", "unknown instruction 'add.u33'" },
        { "add.u32.foo %r1, %r2, %r3;", "unknown instruction" },
        { "ld.global.strange.u32 %r1, [%rd1];", "unknown instruction" },
        { "ld.global.u32.v2 %r1, [%rd1];", "unknown instruction" },
        { "add.u32 %r1, %r2;", "'add.u32' with 2 operands" },
        { "add.u32 %r1, %rd2, %r3;", "does not take the operand '%rd2'" },
        { "add.u32 %rd1, %r2, %r3;", "does not give a '%rd1'" },
        { "add.u32 %r1, %r2, %r99;", "'%r99' is neither declared nor a special register" },
        { "mov.u32 %r1, %nosuch;", "neither declared" },
        { "add.f32 %f1, %f2, 1;", "a number of another type" },
        { "bra NOWHERE;", "no label 'NOWHERE'" },
        { "bra.uni", "" },
        { "ld.global.u32 %h1, [%rd1];", "a register narrower than its value" },
        { "ld.global.v2.u32 %r1, [%rd1];", "with 1 values" },
        { "ld.global.u32 %r1, %rd1;", "wants an address in [ ]" },
        { "ld.shared.u32 %r1, [nobody];", "'nobody' is not declared" },
        { "@%r1 bra L; L:", "a predicate expected after @" },
        { "call.uni printf, ();", "a call of 'printf', which has no body here" },
        { "shfl.down.b32 %r1, %r2, 1, 31;", "unknown instruction" },
        { "atom.global.add.u16 %h1, [%rd1], %h2;", "unknown instruction" },
        { ".section x {}", "unknown directive" },
        { "setp.lt.u32 %r1, %r2, %r3;", "" },
        { "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r1}, {%f1};", "unknown instruction" } };
    for (size_t i = 0; i < COUNT(bad); i++) refuses(kernel_text(0, bad[i].body), bad[i].why);
    refuses("", "no PTX");
    refuses("\x7f" "ELF", "no PTX");
    refuses(".version 8.0\n.target sm_75\n.address_size 32\n", "64 bits");
    refuses(".version 8.0\n.entry k() {\n ret;", "the text ends in a body");
    refuses(".version 8.0\n.func f() { call.uni f; ret; }\n.entry k() { call.uni f; ret; }", "'f' calls itself");
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, clean)
    const struct CMUnitTest tests[] = {
        T(test_bounds),       T(test_two_allocations), T(test_alignment), T(test_shared_and_local),
        T(test_touch),        T(test_barriers),        T(test_warps),     T(test_hang_and_trap),
        T(test_shared_races), T(test_races_of_blocks), T(test_unknown)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
