/* test_nvrtc.c: every kernel that the GPU backends write, in the CUDA dialect, through NVRTC: the texts of all op cases of
 * test_ops.c compile for an old GPU, those of the reference networks for a newer one as well (SWOOP_TEST_ALL=1: all for
 * seven); none needs more registers than there are: no spills; and the PTX interpreter (fakecuda/ptx.h) knows every
 * instruction; every portable kernel is among them. SWOOP_NVRTC_TABLE names a file for registers and occupancy of the
 * networks' kernels and of all portable ones, as in docs/benchmarks.md, SWOOP_NVRTC_ARCHS for how many GPUs. No GPU is
 * needed; skipped, and said so, where there is no NVRTC. */
#include "ops_run.h"

#include "ops_big.h"
#include "ops_move.h"
#include "ops_pointwise.h"

#include "backend/gpu/gpu.h"
#include "backend/gpu/ops/big.h"
#include "exec/exec.h"
#include "swoop/nn.h"

#include <setjmp.h>
#include <cmocka.h>
#include <glob.h>

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

/* ---- what ptxas says of each kernel -------------------------------------------------------------------------------------- */

/* Limits of a multiprocessor, from the table of compute capabilities in the CUDA programming guide. */
static const struct { int sm, threads, blocks, shared; } archs[] = {
    { 75, 1024, 16, 64 << 10 },   { 90, 2048, 32, 228 << 10 },  { 80, 2048, 32, 164 << 10 }, { 86, 1536, 16, 100 << 10 },
    { 89, 1536, 24, 100 << 10 },  { 100, 2048, 32, 228 << 10 }, { 120, 1536, 24, 100 << 10 },
};
enum { REGISTERS = 65536, MAX_USES = 1 << 14 };

/* The table's columns: all, or the first SWOOP_NVRTC_ARCHS, since ptxas takes its time. */
static int table_archs(void)
{
    const char *const wish = getenv("SWOOP_NVRTC_ARCHS");
    const long n = wish != NULL ? strtol(wish, NULL, 10) : 0;
    return n > 0 && n < (long)SW_COUNT(archs) ? (int)n : (int)SW_COUNT(archs);
}

typedef struct usage { char entry[128]; int arch, registers, shared, spilled, threads; } usage;
static usage uses[MAX_USES];
static int n_uses;
static bool in_networks; /* only then are fused kernels kept for the table */
static bool in_pointwise; /* none of its kernels is in the table */

static int number_before(const char *line, const char *words)
{
    const char *at = strstr(line, words);
    if (at == NULL) return 0;
    while (at > line && at[-1] == ' ') at--;
    while (at > line && at[-1] >= '0' && at[-1] <= '9') at--;
    return (int)strtol(at, NULL, 10);
}

static void keep(const usage *u)
{
    if (*u->entry == '\0') return;
    if (u->spilled > 0) {
        fprintf(stderr, "  sm_%d: %s: %d registers, spills %d bytes\n", archs[u->arch].sm, u->entry, u->registers, u->spilled);
        problems++;
    }
    const bool fused = strncmp(u->entry, "sw_k", 4) == 0;
    if ((in_networks || !fused) && n_uses < MAX_USES) uses[n_uses++] = *u;
}

/* "Compiling entry function 'NAME' for …", then its spills, registers and shared memory. */
static void read_log(const char *log, int arch)
{
    usage u = { .arch = arch };
    for (const char *line = log; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        char text[400];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
        if (strstr(text, "Compiling entry function '") != NULL) {
            keep(&u);
            u = (usage){ .arch = arch };
            sscanf(strstr(text, "function '") + 10, "%127[^']", u.entry);
        }
        u.spilled += number_before(text, "bytes spill stores") + number_before(text, "bytes spill loads");
        u.registers += number_before(text, "registers");
        u.shared += number_before(text, "bytes smem");
    }
    keep(&u);
}

/* Compiles for an architecture, and reads the PTX: an instruction that the double of a GPU does not know is an error. */
static sw_status compile_for(const char *text, int arch)
{
    static char log[4 << 20];
    char name[16];
    snprintf(name, sizeof name, "sm_%d", archs[arch].sm);
    const ptx_memory memory = { .global = variable };
    char *const ptx = nvrtc_ptx(text, name, log, sizeof log);
    if (!ptx) return sw__fail(SW_ERR_DEVICE, "%s: %.900s", name, log);
    read_log(log, arch);
    ptx_module *const m = ptx_load(ptx, &memory, log, sizeof log);
    free(ptx);
    ptx_unload(m);
    return m ? SW_OK : sw__fail(SW_ERR_DEVICE, "%s: %.900s", name, log);
}

/* ---- a driver that compiles and does nothing else ------------------------------------------------------------------------ */

static sw_status nv_compile(void *dev, const char *text, void **module)
{
    (void)dev;
    static int any;
    const bool wide = getenv("SWOOP_NVRTC_TABLE") != NULL && !in_pointwise;
    const int n = getenv("SWOOP_TEST_ALL") ? (int)SW_COUNT(archs) : wide ? table_archs() : in_networks ? 2 : 1;
    for (int i = 0; i < n; i++) SW_TRY(compile_for(text, i));
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

/* Work-items of a group, as the kernel is launched. */
static int threads_of(const char *entry)
{
    for (const sw__gpu_plan *p = gpu.plans; p != NULL; p = p->next) {
        for (int i = 0; i < p->n_launches; i++) {
            const sw__gpu_launch *const l = &p->launch[i];
            if (l->kernel != NULL && strcmp(sw__gpu_kernel_entry(l->kernel), entry) == 0)
                return (int)(l->local[0] * l->local[1] * l->local[2]);
        }
    }
    return 0;
}

/* Only as long as there is a plan with it. */
static void find_threads(void)
{
    static int known;
    for (; known < n_uses; known++) uses[known].threads = threads_of(uses[known].entry);
}

static void build_all(void)
{
    if (build(&gpu) != SW_OK) {
        fprintf(stderr, "  %s\n", sw_error());
        problems++;
    }
    find_threads();
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
    in_pointwise = true;
    compile_cases(pointwise_cases, SW_COUNT(pointwise_cases));
    in_pointwise = false;
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

/* ---- the networks, and the table of their kernels ------------------------------------------------------------------------- */

/* tokens: how many there are, of which x and y are made; 0: x is an image or features, y one of ten classes. */
static void record_network(const char *model, int64_t tokens, int rank, const int64_t *shape)
{
    static const sw_compile_options later = { .build_later = true };
    const sw_optimizer adam = { .kind = SW_ADAM, .lr = 1e-3 };
    sw_graph *g = NULL;
    assert_int_equal(sw_graph_new(&g), SW_OK);
    const sw_t x = sw_input(g, "x", tokens > 0 ? SW_I64 : SW_F32, rank, shape);
    const sw_t y = sw_input(g, "y", SW_I64, tokens > 0 ? rank : 1, shape);
    const sw_t loss = sw_output(sw_cross_entropy(sw_model_build(model, x, tokens > 0 ? tokens : 10), y), "loss");
    assert_int_equal(sw_optimizer_apply(&adam, loss, NULL, 0), SW_OK);
    if (sw_compile(g, &device, &later, &programs[n_programs]) == SW_OK) n_programs++;
    else fail_msg("%s: %s", model, sw_error());
    sw_graph_free(g);
}

/* Share of the multiprocessor's threads that can be resident: registers go to warps in pieces of 256. */
static int occupancy(const usage *u, int threads)
{
    const int warps = (threads + 31) / 32, piece = (u->registers * 32 + 255) / 256 * 256;
    int blocks = archs[u->arch].threads / (warps * 32);
    blocks = SW_MIN(blocks, archs[u->arch].blocks);
    if (piece > 0) blocks = SW_MIN(blocks, REGISTERS / piece / warps);
    if (u->shared > 0) blocks = SW_MIN(blocks, archs[u->arch].shared / (u->shared + 1024));
    return 100 * blocks * warps * 32 / archs[u->arch].threads;
}

/* Kernels of one kind differ by a hash in the name: one line for the kind, its worst figures. */
static size_t kind_length(const char *entry)
{
    for (size_t n = 0; entry[n] != '\0'; n++)
        if (strspn(entry + n, "0123456789abcdef") >= 16) return n;
    return strlen(entry);
}

static void put_line(FILE *f, int first)
{
    const size_t length = kind_length(uses[first].entry);
    int n = 0, threads = 0;
    fprintf(f, "| %.*s |", (int)length, uses[first].entry);
    for (int arch = 0; arch < table_archs(); arch++) {
        int registers = 0, worst = 100;
        n = 0;
        for (int i = first; i < n_uses; i++) {
            if (uses[i].arch != arch || kind_length(uses[i].entry) != length ||
                strncmp(uses[i].entry, uses[first].entry, length) != 0)
                continue;
            n++;
            threads = SW_MAX(threads, uses[i].threads);
            registers = SW_MAX(registers, uses[i].registers);
            worst = SW_MIN(worst, uses[i].threads > 0 ? occupancy(&uses[i], uses[i].threads) : 100);
        }
        fprintf(f, " %d, %d %% |", registers, worst);
    }
    fprintf(f, " %d | %d |\n", n, threads);
}

static void write_table(const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "| kernel |");
    for (int i = 0; i < table_archs(); i++) fprintf(f, " sm_%d |", archs[i].sm);
    fprintf(f, " kernels | work-items |\n|---|");
    for (int i = 0; i < table_archs(); i++) fprintf(f, "---|");
    fprintf(f, "--:|--:|\n");
    for (int i = 0; i < n_uses; i++) {
        bool new = true;
        for (int k = 0; k < i && new; k++)
            new = kind_length(uses[k].entry) != kind_length(uses[i].entry) ||
                  strncmp(uses[k].entry, uses[i].entry, kind_length(uses[i].entry)) != 0;
        if (new) put_line(f, i);
    }
    assert_int_equal(fclose(f), 0);
}

static void test_networks(void **state)
{
    (void)state;
    if (!available) skip();
    problems = 0;
    in_networks = true;
    record_network("mlp:512,512", 0, 2, (int64_t[]){ 64, 784 });
    record_network("lenet", 0, 4, (int64_t[]){ 64, 1, 28, 28 });
    record_network("resnet18", 0, 4, (int64_t[]){ 32, 3, 32, 32 });
    record_network("gpt:4x4x128", 65, 2, (int64_t[]){ 16, 128 });
    record_network("lstm:128,256", 65, 2, (int64_t[]){ 32, 64 });
    if (build(&gpu) != SW_OK) fail_msg("%s", sw_error());
    assert_true(n_uses > 50);
    build_all();
    in_networks = false;
    if (problems > 0) fail_msg("%d problems, printed above", problems);
}

/* The relu behind a library's call, of dense memory and of such with gaps. */
static void compile_relu(sw_dtype type, int64_t line)
{
    const sw__desc d = { .dtype = (uint8_t)type, .rank = 2, .dim = { 9, 7 }, .stride = { line, 1 } };
    sw__gpu_plan *p = NULL;
    assert_int_equal(sw__gpu_plan_new(&gpu, "relu", &p), SW_OK);
    p->n_bind = 1;
    const bool good = sw__big_relu(p, 0, &d) == SW_OK && sw__gpu_build(&gpu) == SW_OK && sw__gpu_plan_ready(p) == SW_OK;
    if (!good) fail_msg("%s", sw_error());
    find_threads();
    sw__gpu_plan_free(p);
}

/* For CPUs through OpenCL, and what follows CLBlast. */
static bool is_no_gpus(const char *file)
{
    static const char *const names[] = { "gemm_rows.k", "gemm_pack.k", "conv_fold.k", "conv_pad.k", "conv_weight.k",
                                         "conv_weight_few.k", "conv_weight_sum.k", "pool_lines.k", "bias_act.k" };
    for (size_t i = 0; i < SW_COUNT(names); i++)
        if (strcmp(file, names[i]) == 0) return true;
    return false;
}

/* A kernel that no case asks for would be compiled for nobody: each file of kernel/portable has been here. */
static void test_every_file(void **state)
{
    (void)state;
    if (!available) skip();
    static const sw_dtype types[] = { SW_F32, SW_F64, SW_F16, SW_BF16 };
    glob_t files;
    int missing = 0;
    problems = 0;
    for (size_t i = 0; i < SW_COUNT(types); i++) {
        compile_relu(types[i], 7);
        compile_relu(types[i], 8);
    }
    if (glob(SWOOP_TEST_DATA "/../src/kernel/portable/*.k", 0, NULL, &files) != 0) fail_msg("no portable kernels");
    for (size_t i = 0; i < files.gl_pathc; i++) {
        static char text[1 << 16];
        char prefix[96];
        FILE *const f = fopen(files.gl_pathv[i], "re");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        const char *const name = strrchr(files.gl_pathv[i], '/') + 1;
        const int n = snprintf(prefix, sizeof prefix, "sw_%.*s_", (int)strcspn(name, "."), name);
        bool seen = strstr(text, "KERNEL(NAME") == NULL || is_no_gpus(name); /* a dialect, functions */
        for (int k = 0; k < n_uses && !seen; k++)
            seen = strncmp(uses[k].entry, prefix, (size_t)n) == 0 && kind_length(uses[k].entry) == (size_t)n;
        if (!seen) fprintf(stderr, "  no case of ops_*.h and no network has a kernel of %s\n", name);
        missing += !seen;
    }
    globfree(&files);
    if (getenv("SWOOP_NVRTC_TABLE") != NULL) write_table(getenv("SWOOP_NVRTC_TABLE"));
    if (missing + problems > 0) fail_msg("%d problems, printed above", missing + problems);
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
    atomic_init(&device.users, 1);
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
        cmocka_unit_test(test_networks),
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_move_reduce_index),
        cmocka_unit_test(test_big),
        cmocka_unit_test(test_every_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
