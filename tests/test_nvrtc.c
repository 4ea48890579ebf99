/* test_nvrtc.c: every kernel that the GPU backends write, in the CUDA dialect, through NVRTC: the texts of all op cases of
 * test_ops.c compile for an old GPU and, with SWOOP_TEST_ALL=1, for two newer ones, and the PTX interpreter (fakecuda/ptx.h)
 * knows every instruction. No GPU is needed; skipped, and said so, where there is no NVRTC. */
#include "ops_run.h"

#include "ops_big.h"
#include "ops_move.h"
#include "ops_pointwise.h"

#include "backend/gpu/gpu.h"
#include "exec/exec.h"

#include <setjmp.h>
#include <cmocka.h>

#include "nvrtc_case.h"
#include "ptx.h"

/* timeout: 600 */
/* uses: fakeptx */
/* needs: GPU */

/* ---- what is made of each text ------------------------------------------------------------------------------------------ */

static int n_compiled;

/* Memory of a module's variables, which nobody looks at. */
static uint64_t variable(void *user, size_t bytes, size_t align, const void *initial)
{
    (void)user, (void)bytes, (void)align, (void)initial;
    return 4096;
}

/* Compiles for an architecture, and reads the PTX: an instruction that the double of a GPU does not know is an error. */
static sw_status compile_for(const char *text, const char *arch)
{
    static char log[4000];
    const ptx_memory memory = { .global = variable };
    char *const ptx = nvrtc_ptx(text, arch, log, sizeof log);
    if (!ptx) return sw__fail(SW_ERR_DEVICE, "%s: %.900s", arch, log);
    ptx_module *const m = ptx_load(ptx, &memory, log, sizeof log);
    free(ptx);
    ptx_unload(m);
    return m ? SW_OK : sw__fail(SW_ERR_DEVICE, "%s: %.900s", arch, log);
}

/* ---- a driver that compiles and does nothing else ------------------------------------------------------------------------ */

static sw_status nv_compile(void *dev, const char *text, void **module)
{
    (void)dev;
    static int any;
    SW_TRY(compile_for(text, "compute_75"));
    if (getenv("SWOOP_TEST_ALL")) {
        SW_TRY(compile_for(text, "compute_90"));
        SW_TRY(compile_for(text, "compute_120"));
    }
    n_compiled++;
    *module = &any;
    return SW_OK;
}

// NOLINTNEXTLINE(readability-non-const-parameter): the driver's type
static sw_status nv_binary(void *dev, void *module, void **bytes, size_t *n)
{
    (void)dev;
    (void)module;
    (void)bytes;
    (void)n;
    return sw__fail(SW_ERR_UNSUPPORTED, "no binary");
}

static sw_status nv_load(void *dev, const void *bytes, size_t n, void **module)
{
    (void)bytes;
    (void)n;
    (void)module;
    (void)dev;
    return sw__fail(SW_ERR_UNSUPPORTED, "no binary");
}

static void nv_drop(void *dev, void *thing)
{
    (void)dev;
    (void)thing;
}

static sw_status nv_kernel(void *dev, void *module, const char *entry, void **kernel)
{
    (void)dev;
    (void)entry;
    *kernel = module;
    return SW_OK;
}

static sw_status nv_alloc(void *dev, size_t bytes, void **buffer)
{
    (void)dev;
    *buffer = sw__calloc(SW_MAX(bytes, (size_t)1), 1);
    return *buffer ? SW_OK : sw__no_memory(bytes, "a buffer");
}

static void nv_release(void *dev, void *buffer)
{
    (void)dev;
    sw__free(buffer);
}

static const sw__gpu_driver driver = { .compile = nv_compile, .binary = nv_binary, .load = nv_load, .unload = nv_drop,
                                       .kernel = nv_kernel, .kernel_free = nv_drop, .alloc = nv_alloc,
                                       .release = nv_release };

/* ---- the device that sw_compile sees --------------------------------------------------------------------------------------- */

static sw_status upload(void *dev, void *buffer, size_t offset, const void *src, size_t bytes)
{
    (void)dev;
    if (bytes > 0) memcpy((char *)buffer + offset, src, bytes);
    return SW_OK;
}

static sw_status kernel_build(void *dev, const sw__kernel *k, void **built, size_t *workspace)
{
    return sw__gpu_kernel_build(dev, k, built, workspace);
}

static sw_status op_plan(void *dev, const sw__op_desc *d, void **plan, size_t *workspace)
{
    return sw__gpu_op_plan(dev, d, plan, workspace);
}

static bool op_accepts(void *dev, const sw__op_desc *d, int i)
{
    return sw__gpu_op_accepts(dev, d, i);
}

static void plan_free(void *dev, void *plan)
{
    (void)dev;
    sw__gpu_plan_free(plan);
}

static sw_status build(void *dev)
{
    SW_TRY(sw__gpu_build(dev));
    for (const sw__gpu_plan *p = ((sw__gpu *)dev)->plans; p != NULL; p = p->next) SW_TRY(sw__gpu_plan_ready(p));
    return SW_OK;
}

static const sw__backend backend = { .name = "nvrtc", .alloc = nv_alloc, .release = nv_release, .upload = upload,
                                     .kernel_build = kernel_build, .kernel_free = plan_free, .op_accepts = op_accepts,
                                     .op_plan = op_plan, .op_free = plan_free, .build = build };

static sw__gpu gpu;
static sw_device device;
static bool available;

/* ---- the cases -------------------------------------------------------------------------------------------------------------- */

enum { BATCH = 300 };
static sw_program *programs[BATCH];
static int n_programs;

static void build_all(void)
{
    if (build(&gpu) != SW_OK) {
        fprintf(stderr, "  %s\n", sw_error());
        problems++;
    }
    for (int i = 0; i < n_programs; i++) sw_program_free(programs[i]);
    n_programs = 0;
}

static void collect(trial *t)
{
    static const sw_compile_options later = { .build_later = true };
    sw_graph *g = NULL;
    sw_program *p = NULL;
    const bool first = t->route == PLAIN && t->order == 1;
    if (!first || make_graph(t, false, &g) != SW_OK) {
        if (first) problem(t, "%s", sw_error());
    } else if (sw_compile(g, &device, &later, &p) != SW_OK) {
        problem(t, "%s", sw_error());
    } else {
        programs[n_programs++] = p;
    }
    sw_graph_free(g);
    trial_free(t);
    if (n_programs == BATCH) build_all();
}

static void compile_cases(const ops_case *cases, size_t n)
{
    if (!available) skip();
    problems = 0;
    for (size_t k = 0; k < n; k++) each_trial(&cases[k], collect);
    build_all();
    if (problems > 0) fail_msg("%d problems, printed above", problems);
}

static void test_pointwise(void **state)
{
    (void)state;
    compile_cases(pointwise_cases, SW_COUNT(pointwise_cases));
}

static void test_move_reduce_index(void **state)
{
    (void)state;
    compile_cases(move_cases, SW_COUNT(move_cases));
}

static void test_big(void **state)
{
    (void)state;
    compile_cases(big_cases, SW_COUNT(big_cases));
    assert_true(n_compiled > 0);
}

static int set_up(void **state)
{
    (void)state;
    available = nvrtc_load();
    if (!available) {
        fprintf(stderr, "skipped: there is no NVRTC\n");
        return 0;
    }
    setenv("SWOOP_CACHE_MB", "0", 1);
    gpu = (sw__gpu){ .driver = &driver, .dev = &gpu, .backend = "nvrtc",
                     .target = { .lang = SW_LANG_CUDA, .fp64 = true, .max_group = 1024, .max_local = { 1024, 1024, 64 },
                                 .local_bytes = 48 << 10, .units = 40, .width = 32 } };
    device = (sw_device){ .backend = &backend, .dev = &gpu, .traits = &gpu.traits };
    snprintf(device.info.id, sizeof device.info.id, "nvrtc");
    return sw__gpu_init(&gpu, NULL) == SW_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    if (available) sw__gpu_close(&gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_move_reduce_index),
        cmocka_unit_test(test_big),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
