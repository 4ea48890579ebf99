/* test_ptx_no_memory.c: the PTX interpreter where the host's memory ends: each allocation in turn fails, when a
 * module is read and when a kernel runs; it says so, loses nothing, and the next try works. */
#include "ptx_case.h"

/* uses: fakeptx */
/* link: -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static int left = -1; /* until one fails; -1: none does */

static bool fails(void)
{
    return left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

static const char text[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n.global .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n"
    ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r<3>; ld.param.u32 %r1, [a]; add.u32 %r2, %r1, 1; "
    "st.param.b32 [r], %r2; }\n"
    ".visible .entry k(.param .u64 p) {\n.reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %rd<9>; .shared .b32 s[64];\n"
    "ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r5, %r4, 64, %r0; mul.wide.u32 "
    "%rd1, %r5, 4;\n"
    "add.u64 %rd0, %rd0, %rd1; mov.u32 %r6, s; mad.lo.u32 %r6, %r0, 4, %r6; st.shared.u32 [%r6], %r0; bar.sync 0;\n"
    "{ .param .b32 x; st.param.b32 [x], %r0; .param .b32 y; call.uni (y), f, (x); ld.param.b32 %r1, [y]; }\n"
    "rem.u32 %r2, %r0, 2; T: .branchtargets A, B; brx.idx %r2, T; A: add.u32 %r1, %r1, 100; B: st.global.u32 [%rd0], "
    "%r1; ret; }\n";

static uint64_t somewhere(void *user, size_t bytes, size_t align, const void *initial)
{
    (void)user, (void)bytes, (void)align, (void)initial;
    return 4096;
}

static void test_load(void **state)
{
    (void)state;
    const ptx_memory memory_of_none = { .global = somewhere };
    char error[200];
    ptx_module *m = NULL;
    int n = 0;
    for (; !m && n < 1000; n++) {
        left = n;
        m = ptx_load(text, &memory_of_none, error, sizeof error);
        left = -1;
        if (!m && !strstr(error, "out of memory")) fail_msg("%s", error);
    }
    ptx_unload(m);
    assert_true(m && n > 15);
}

static void test_run(void **state)
{
    (void)state;
    use(text);
    const uint64_t out = give(64 * 64 * 4);
    int n = 0, code = 2;
    for (; code == 2 && n < 1000; n++) {
        left = n;
        code = LAUNCH("k", 64, 64, out);
        left = -1;
        if (code != 0 && (code != 2 || !strstr(fault.text, "out of memory"))) fail_msg("%d: %s", code, fault.text);
    }
    assert_true(code == 0 && n > 8 && memory.n_reports == 0);
    for (uint32_t i = 0; i < 64 * 64; i++) assert_int_equal(((uint32_t *)host(out))[i], i % 64 + 1 + (i % 2 ? 0 : 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_load, clean),
                                        cmocka_unit_test_teardown(test_run, clean) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
