/* ptx_case.h: memory and launches for tests of the PTX interpreter (fakecuda/ptx.h): allocations at made-up
 * addresses, reports kept for the test to look at, kernels from PTX written by hand or by NVRTC where there is one. */
#ifndef SWOOP_TESTS_PTX_CASE_H
#define SWOOP_TESTS_PTX_CASE_H

#include "ptx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- memory ------------------------------------------------------------------------------------------------------ */

typedef struct allocation { uint64_t lo, hi; unsigned char *host; } allocation;
static struct {
    allocation all[200];
    int n, n_reports;
    uint64_t next;
    char first[480], why[100]; /* the first report; why: touch() refuses */
    uint64_t touched, touch_bytes;
} memory;

static uint64_t give(size_t bytes)
{
    if (memory.next == 0) memory.next = 0x700000000000ull;
    assert_true(memory.n < (int)COUNT(memory.all));
    unsigned char *const host = malloc(bytes + 8);
    assert_non_null(host);
    memset(host, 0xFF, bytes);
    memory.all[memory.n++] = (allocation){ memory.next, memory.next + bytes, host };
    memory.next += (bytes + 511) / 256 * 256;
    return memory.all[memory.n - 1].lo;
}

static allocation *of(uint64_t address)
{
    for (int i = 0; i < memory.n; i++)
        if (address >= memory.all[i].lo && address < memory.all[i].hi && memory.all[i].host) return &memory.all[i];
    return NULL;
}

static void *host(uint64_t address)
{
    const allocation *const a = of(address);
    assert_non_null(a);
    return a->host + (address - a->lo);
}

static inline uint64_t give_copy(const void *from, size_t bytes)
{
    const uint64_t at = give(bytes);
    memcpy(host(at), from, bytes);
    return at;
}

static inline void release(uint64_t address)
{
    allocation *const a = of(address);
    assert_non_null(a);
    free(a->host);
    a->host = NULL;
}

static void release_all(void)
{
    for (int i = 0; i < memory.n; i++) free(memory.all[i].host);
    memset(&memory, 0, sizeof memory);
}

static bool find_range(void *user, uint64_t address, uint64_t *lo, uint64_t *hi, unsigned char **bytes)
{
    (void)user;
    const allocation *const a = of(address);
    if (!a) return false;
    *lo = a->lo, *hi = a->hi, *bytes = a->host;
    return true;
}

static bool touch(void *user, uint64_t address, size_t bytes, int access, uint64_t block, char *why, size_t n)
{
    (void)user, (void)access, (void)block, (void)address;
    memory.touched++;
    memory.touch_bytes += bytes;
    if (memory.why[0]) snprintf(why, n, "%s", memory.why);
    return memory.why[0] == '\0';
}

static uint64_t variable(void *user, size_t bytes, size_t align, const void *initial)
{
    (void)user, (void)align;
    const uint64_t at = give(bytes);
    if (initial) memcpy(host(at), initial, bytes);
    else memset(host(at), 0, bytes);
    return at;
}

static void report(void *user, const ptx_fault *f)
{
    (void)user;
    assert_int_equal(f->code, 0);
    if (memory.n_reports++ == 0) snprintf(memory.first, sizeof memory.first, "%s", f->text);
}

static const ptx_memory mem = { .range = find_range, .touch = touch, .global = variable, .report = report };

/* ---- modules and launches ---------------------------------------------------------------------------------------- */

static ptx_module *module;
static ptx_fault fault;
static uint64_t max_instructions = 100000000;
static uint64_t seed = 1;

static inline void use(const char *ptx)
{
    char error[600];
    ptx_unload(module);
    module = ptx_load(ptx, &mem, error, sizeof error);
    if (!module) fail_msg("%s", error);
}

/* values: threads of a block, then parameters. Its code. */
static int launch(const char *kernel, unsigned grid, int n_values, const uint64_t *values)
{
    const uint64_t *const params = values + 1;
    const int n = n_values - 1;
    const ptx_kernel *const k = ptx_find(module, kernel);
    assert_non_null(k);
    unsigned char bytes[512] = { 0 };
    assert_int_equal(ptx_kernel_info(k).n_params, n);
    for (int i = 0; i < n; i++) {
        size_t at, size;
        ptx_param(k, i, &at, &size);
        memcpy(bytes + at, &params[i], size);
    }
    const ptx_launch l = { .grid = { grid, 1, 1 },
                           .block = { (unsigned)values[0], 1, 1 },
                           .params = bytes,
                           .seed = seed,
                           .check_races = true,
                           .max_instructions = max_instructions };
    return ptx_run(k, &l, &mem, &fault);
}
/* LAUNCH(kernel, blocks, threads, parameters …) */
#define LAUNCH(kernel, grid, ...) \
    launch(kernel, grid, (int)(sizeof((uint64_t[]){ __VA_ARGS__ }) / 8), (const uint64_t[]){ __VA_ARGS__ })
#define RUN(...) \
    do { \
        memory.n_reports = 0; \
        if (LAUNCH(__VA_ARGS__) != 0) fail_msg("%s", fault.text); \
        if (memory.n_reports > 0) fail_msg("%s", memory.first); \
    } while (0)

static int clean(void **state)
{
    (void)state;
    ptx_unload(module);
    module = NULL;
    release_all();
    max_instructions = 100000000, seed = 1;
    return 0;
}

/* A module of one kernel: n parameters p0, p1, … of 64 bits in %rd0, …; %r0: the thread's number in its block, %r1: in
 * the launch; %rd20: its byte offset for 4-byte items, %rd21: for 8-byte items. */
static inline const char *kernel_text(int n, const char *body)
{
    static char text[40000];
    int at = snprintf(text, sizeof text, ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(");
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s.param .u64 p%d", i ? ", " : "", i);
    at += snprintf(text + at, sizeof text - (size_t)at,
                   ")\n{\n.reg .pred %%p<40>; .reg .b16 %%h<40>; .reg .b32 %%r<40>;"
                   ".reg .b64 %%rd<40>; .reg .f32 %%f<40>; .reg .f64 %%d<40>;\n");
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "ld.param.u64 %%rd%d, [p%d];\n", i, i);
    snprintf(text + at, sizeof text - (size_t)at,
             "mov.u32 %%r0, %%tid.x; mov.u32 %%r2, %%ctaid.x; mov.u32 %%r3, %%ntid.x;\n"
             "mad.lo.u32 %%r1, %%r2, %%r3, %%r0;\nmul.wide.u32 %%rd20, %%r1, 4; mul.wide.u32 %%rd21, %%r1, 8;\n%s\n}\n",
             body);
    return text;
}
#define BODY(n, ...) use(kernel_text(n, __VA_ARGS__))

#endif
