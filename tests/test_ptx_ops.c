/* test_ptx_ops.c: the cases of test_ops.c through all of the GPU backends' own code, NVRTC and the PTX interpreter
 * (fakecuda/ptx.h), within their bounds of ref in double: the arithmetic of CUDA kernels without a GPU, every access
 * checked, races looked for. Fewer cases than there are unless SWOOP_TEST_ALL=1, see ops_device.h. Skipped where
 * there is no NVRTC. */
#include "ops_device.h"

#include "backend/gpu/gpu.h"
#include "exec/exec.h"

#include "nvrtc_case.h"
#include "ptx.h"

/* timeout: 1200 */
/* uses: fakeptx */
/* needs: GPU */

/* ---- device memory: each buffer at an address of its own --------------------------------------------------------- */

typedef struct buffer { struct buffer *next; uint64_t address; size_t bytes; unsigned char *host; } buffer;
static buffer *buffers;
static uint64_t next_address = 0x700000000000ull;

static sw_status px_alloc(void *dev, size_t bytes, void **out)
{
    (void)dev;
    buffer *const b = calloc(1, sizeof *b);
    if (!b || !(b->host = calloc(SW_MAX(bytes, (size_t)1), 1))) {
        free(b);
        return sw__no_memory(bytes, "a buffer");
    }
    *b = (buffer){ buffers, next_address, SW_MAX(bytes, (size_t)1), b->host };
    next_address += (bytes + 1023) / 512 * 512;
    buffers = b;
    *out = b;
    return SW_OK;
}

static void px_release(void *dev, void *buf)
{
    (void)dev;
    buffer **at = &buffers;
    while (*at && *at != buf) at = &(*at)->next;
    buffer *const b = *at;
    if (!b) return;
    *at = b->next;
    free(b->host);
    free(b);
}

static sw_status px_upload(void *dev, void *buf, size_t offset, const void *src, size_t bytes)
{
    (void)dev;
    if (bytes > 0) memcpy(((buffer *)buf)->host + offset, src, bytes);
    return SW_OK;
}

static sw_status px_read(void *dev, const void *buf, size_t offset, void *dst, size_t bytes)
{
    (void)dev;
    if (bytes > 0) memcpy(dst, ((const buffer *)buf)->host + offset, bytes);
    return SW_OK;
}

static sw_status px_fill(void *dev, void *buf, size_t offset, size_t bytes, uint8_t byte)
{
    (void)dev;
    memset(((buffer *)buf)->host + offset, byte, bytes);
    return SW_OK;
}

static bool range(void *user, uint64_t address, uint64_t *lo, uint64_t *hi, unsigned char **host)
{
    (void)user;
    for (const buffer *b = buffers; b; b = b->next)
        if (address >= b->address && address < b->address + b->bytes) {
            *lo = b->address, *hi = b->address + b->bytes, *host = b->host;
            return true;
        }
    return false;
}

static uint64_t variable(void *user, size_t bytes, size_t align, const void *initial)
{
    (void)user, (void)align;
    void *b = NULL;
    if (px_alloc(NULL, bytes, &b) != SW_OK) return 0;
    if (initial) memcpy(((buffer *)b)->host, initial, bytes);
    return ((buffer *)b)->address;
}

static char reported[480];
static uint64_t n_threads, n_launches;

static void report(void *user, const ptx_fault *f)
{
    (void)user;
    if (reported[0] == '\0') snprintf(reported, sizeof reported, "%s", f->text);
}

static const ptx_memory mem = { .range = range, .global = variable, .report = report };

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static bool no_barriers;

/* The text without what a block waits by. */
static char *barriers_removed(const char *text)
{
    static const char barrier[] = "#define BARRIER() __syncthreads()";
    char *const copy = strdup(text), *const at = copy ? strstr(copy, barrier) : NULL;
    if (at) memset(at + strlen("#define BARRIER() "), ' ', strlen("__syncthreads()"));
    return copy;
}

static sw_status px_compile(void *dev, const char *text, void **out)
{
    static char log[4000];
    (void)dev;
    const char *const arch = getenv("SWOOP_TEST_ARCH"); /* "compute_75" */
    char *const changed = no_barriers ? barriers_removed(text) : NULL;
    char *const ptx = nvrtc_ptx(changed ? changed : text, arch ? arch : "compute_90", log, sizeof log);
    free(changed);
    *out = ptx ? ptx_load(ptx, &mem, log, sizeof log) : NULL;
    free(ptx);
    return *out ? SW_OK : sw__fail(SW_ERR_DEVICE, "%.900s", log);
}

// NOLINTNEXTLINE(readability-non-const-parameter): the driver's type
static sw_status px_binary(void *dev, void *m, void **bytes, size_t *n)
{
    (void)dev, (void)m, (void)bytes, (void)n;
    return sw__fail(SW_ERR_UNSUPPORTED, "no binary");
}

static sw_status px_load(void *dev, const void *bytes, size_t n, void **m)
{
    (void)dev, (void)bytes, (void)n, (void)m;
    return sw__fail(SW_ERR_UNSUPPORTED, "no binary");
}

static void px_unload(void *dev, void *m)
{
    (void)dev;
    ptx_unload(m);
}

static sw_status px_kernel(void *dev, void *m, const char *entry, void **kernel)
{
    (void)dev;
    const ptx_kernel *const k = ptx_find(m, entry);
    memcpy(kernel, &k, sizeof k);
    return k ? SW_OK : sw__fail(SW_ERR_DEVICE, "no kernel '%s'", entry);
}

static void px_nothing(void *dev, void *kernel)
{
    (void)dev, (void)kernel;
}

static sw_status px_launch(void *dev, void *kernel, const uint32_t groups[3], const uint32_t local[3],
                           const sw__gpu_value *args, int n_args)
{
    static uint64_t seed;
    unsigned char params[1024] = { 0 };
    ptx_fault fault;
    (void)dev;
    if (n_args != ptx_kernel_info(kernel).n_params) return sw__fail(SW_ERR_DEVICE, "%d arguments", n_args);
    for (int i = 0; i < n_args; i++) {
        size_t at, size;
        ptx_param(kernel, i, &at, &size);
        const buffer *const b = args[i].buffer;
        if (size != (b ? sizeof b->address : args[i].size) || at + size > sizeof params)
            return sw__fail(SW_ERR_DEVICE, "argument %d is of another size than the parameter", i);
        memcpy(params + at, b ? (const void *)&b->address : (const void *)&args[i].raw, size);
    }
    const ptx_launch l = { .grid = { groups[0], groups[1], groups[2] }, .block = { local[0], local[1], local[2] },
                           .params = params, .seed = ++seed, .check_races = true, .max_instructions = 100000000 };
    n_launches++;
    n_threads += (uint64_t)groups[0] * groups[1] * groups[2] * local[0] * local[1] * local[2];
    if (ptx_run(kernel, &l, &mem, &fault) != 0) return sw__fail(SW_ERR_DEVICE, "%d: %s", fault.code, fault.text);
    if (reported[0]) {
        const sw_status st = sw__fail(SW_ERR_DEVICE, "%s", reported);
        reported[0] = '\0';
        return st;
    }
    return SW_OK;
}

static sw_status px_finish(void *dev)
{
    (void)dev;
    return SW_OK;
}

static const sw__gpu_driver driver = { .compile = px_compile, .binary = px_binary, .load = px_load, .unload = px_unload,
                                       .kernel = px_kernel, .kernel_free = px_nothing, .launch = px_launch,
                                       .alloc = px_alloc, .release = px_release, .download = px_read, .fill = px_fill,
                                       .finish = px_finish };

/* ---- the device that sw_compile sees ----------------------------------------------------------------------------- */

static sw__gpu gpu;
static sw_device ptx_device;

static sw_status px_download(void *dev, const void *buf, size_t offset, void *dst, size_t bytes)
{
    if (gpu.checked) SW_TRY(sw__gpu_sync(&gpu));
    return px_read(dev, buf, offset, dst, bytes);
}

static sw_status px_sync(void *dev)
{
    return sw__gpu_sync(dev);
}

static sw_status px_kernel_build(void *dev, const sw__kernel *k, void **built, size_t *workspace)
{
    return sw__gpu_kernel_build(dev, k, built, workspace);
}

static sw_status px_plan(void *dev, const sw__op_desc *d, void **plan, size_t *workspace)
{
    return sw__gpu_op_plan(dev, d, plan, workspace);
}

static bool px_accepts(void *dev, const sw__op_desc *d, int i)
{
    return sw__gpu_op_accepts(dev, d, i);
}

static void px_plan_free(void *dev, void *plan)
{
    (void)dev;
    sw__gpu_plan_free(plan);
}

static sw_status px_build(void *dev)
{
    return sw__gpu_build(dev);
}

static sw_status px_ready(void *dev, void *plan)
{
    (void)dev;
    return sw__gpu_plan_ready(plan);
}

static sw_status px_run(void *dev, void *plan, const sw__bind *bind)
{
    (void)dev;
    return sw__gpu_plan_run(plan, bind);
}

static const sw__backend backend = { .name = "ptx", .alloc = px_alloc, .release = px_release, .upload = px_upload,
                                     .download = px_download, .fill = px_fill, .sync = px_sync,
                                     .kernel_build = px_kernel_build, .kernel_free = px_plan_free,
                                     .kernel_launch = px_run, .op_accepts = px_accepts, .op_plan = px_plan,
                                     .op_free = px_plan_free, .op_exec = px_run, .build = px_build,
                                     .plan_ready = px_ready };

static int set_up(void **state)
{
    (void)state;
    if (!nvrtc_load()) {
        fprintf(stderr, "skipped: there is no NVRTC\n");
        return 0;
    }
    setenv("SWOOP_CACHE_MB", "0", 1);
    gpu = (sw__gpu){ .driver = &driver, .dev = &gpu, .backend = "ptx",
                     .target = { .lang = SW_LANG_CUDA, .fp64 = true, .max_group = 1024, .max_local = { 1024, 1024, 64 },
                                 .local_bytes = 48 << 10, .units = 40, .width = 32 } };
    ptx_device = (sw_device){ .backend = &backend, .dev = &gpu, .traits = &gpu.traits };
    atomic_init(&ptx_device.users, 1);
    snprintf(ptx_device.info.id, sizeof ptx_device.info.id, "ptx");
    batch = calloc(BATCH, sizeof *batch);
    if (!batch || sw_device_open("ref", NULL, &ref) != SW_OK || sw__gpu_init(&gpu, NULL) != SW_OK) return -1;
    device = &ptx_device;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (!device) return 0;
    sw__gpu_close(&gpu);
    while (buffers) px_release(NULL, buffers);
    free(batch);
    sw_device_close(ref);
    print_message("%llu launches, %llu threads\n", (unsigned long long)n_launches, (unsigned long long)n_threads);
    return 0;
}

/* ---- what is found when a barrier is forgotten ------------------------------------------------------------------- */

static int n_racy, n_run;

static void look_for_race(trial *t)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    if (is_as_written(t)) {
        sw_status st = make_graph(t, false, &g);
        if (st == SW_OK) st = sw_compile(g, device, NULL, &p);
        if (st == SW_OK) st = set_slots(p, t);
        if (st == SW_OK) st = sw_program_run(p);
        n_run++;
        if (st != SW_OK && strstr(sw_error(), "a race in shared memory")) n_racy++;
        else if (st != SW_OK) problem(t, "%s", sw_error());
        sw_program_free(p);
        sw_graph_free(g);
    }
    trial_free(t);
}

static void test_barriers_matter(void **state)
{
    (void)state;
    if (!device) skip();
    static const struct { const ops_case *cases; size_t n; const char *op; } all[] = {
        { move_cases, SW_COUNT(move_cases), "sort" }, { move_cases, SW_COUNT(move_cases), "scan_sum" },
        { move_cases, SW_COUNT(move_cases), "reduce_sum" }, { big_cases, SW_COUNT(big_cases), "matmul" } };
    problems = 0;
    no_barriers = true;
    for (size_t k = 0; k < SW_COUNT(all); k++) {
        n_racy = n_run = 0;
        for (size_t i = 0; i < all[k].n && n_run < 12; i++)
            if (strcmp(sw__op_table[all[k].cases[i].op].name, all[k].op) == 0)
                each_trial(&all[k].cases[i], look_for_race);
        print_message("%s without barriers: %d of %d programs race\n", all[k].op, n_racy, n_run);
        problems += n_racy == 0;
    }
    no_barriers = false;
    if (problems > 0) fail_msg("%d problems, printed above", problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_move_reduce_index),
        cmocka_unit_test(test_big),
        cmocka_unit_test(test_barriers_matter),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
