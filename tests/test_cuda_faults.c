/* test_cuda_faults.c: training on the double of a GPU whose calls fail in turn, that has little memory or is lost in the
 * middle, whose streams run in other orders, and with libraries that are missing, old or lack a function. Each failure is
 * a status that names the call or what to install, nothing is left, and the next try succeeds. */
#include "cuda_step.h"

#include <sys/wait.h>

/* timeout: 600 */
/* needs: FAKECUDA */

enum { BATCH = 8, WIDE = 40000 };

static char message[1024]; /* of the first failure of a scenario */
static bool profiled;      /* launches are timed by events */
static bool second;        /* on the second device */

static sw_status keep(sw_status st)
{
    if (st != SW_OK && *message == '\0') snprintf(message, sizeof message, "%s", sw_error());
    return st;
}

/* ---- a scenario: all that a training run does ------------------------------------------------------------------------- */

/* An input that goes through the copy stream. */
static sw_status wide_graph(sw_graph **out)
{
    const int64_t n = WIDE;
    SW_TRY(sw_graph_new(out));
    sw_output(sw_sum(sw_square(sw_input(*out, "x", SW_F32, 1, &n)), SW_ALL_AXES, false), "sum");
    return sw_graph_status(*out);
}

static sw_status run_wide(sw_program *p, double *sum)
{
    static float x[WIDE];
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < WIDE; i++) x[i] = (float)((i + run) % 2);
        SW_TRY(sw_program_set(p, 0, SW_F32, x, WIDE));
        SW_TRY(sw_program_run(p));
    }
    return sw_program_get(p, 0, SW_F64, sum, 1);
}

static double wanted;
static bool unrecorded; /* of the last run: a recording failed, and steps were launched kernel by kernel */

static sw_status both(sw_device *d, sw_program *step, sw_program *wide, double result[2])
{
    (void)d;
    sw_status st = keep(step_train(step, BATCH, &result[0]));
    if (st == SW_OK) st = keep(run_wide(wide, &result[1]));
    unrecorded = step->not_recorded || wide->not_recorded;
    return st;
}

/* If a run fails, the same programs are tried again when nothing fails any more. */
static sw_status run_and_again(sw_device *d, sw_program *step, sw_program *wide, double result[2])
{
    double again[2];
    const sw_status st = both(d, step, wide, result);
    if (st == SW_OK || step_cu(d)->lost || fake.fk_fail_set == NULL) return st;
    fake.fk_fail_set(NULL);
    if (both(d, step, wide, again) != SW_OK) fail_msg("not to be run again after '%s': %s", message, sw_error());
    return st;
}

static sw_status scenario(double result[2])
{
    sw_device *d = NULL;
    sw_graph *g = NULL, *h = NULL;
    const char *const id = second ? "cuda:1" : "cuda:0";
    sw_program *step = NULL, *wide = NULL;
    const sw_compile_options o = { .profile = profiled };
    message[0] = '\0';
    ok(step_graph(BATCH, &g));
    ok(wide_graph(&h));
    sw_status st = keep(sw_device_open(id, NULL, &d));
    if (st == SW_OK) st = keep(sw_compile(g, d, &o, &step));
    if (st == SW_OK) st = keep(sw_compile(h, d, &o, &wide));
    if (st == SW_OK) st = run_and_again(d, step, wide, result);
    sw_program_free(step);
    sw_program_free(wide);
    sw_device_close(d);
    sw_graph_free(g);
    sw_graph_free(h);
    return st;
}

static void expect_recovery(const char *after)
{
    double result[2] = { 0 };
    if (fake.fk_live(NULL) != 0) fail_msg("%s ('%s'): %ld objects are left", after, message, fake.fk_live(NULL));
    if (fake.fk_reports() != 0) fail_msg("%s ('%s'): the double reports a fault", after, message);
    fake.fk_fail_set(NULL);
    if (scenario(result) != SW_OK) fail_msg("after %s: %s", after, message);
    assert_true(fabs(result[0] - wanted) < 1e-5 && fabs(result[1] - WIDE * 0.5) < 1);
    assert_int_equal(fake.fk_live(NULL), 0);
}

/* ---- every call fails in turn ------------------------------------------------------------------------------------------- */

/* Whoever gives back cannot do more than that; some others are called there too, or have another way. */
static bool may_go_unseen(const char *name)
{
    static const char *const names[] = { "cuMemFree", "cuMemFreeHost", "cuStreamDestroy", "cuEventDestroy", "cuModuleUnload",
                                         "cuGraphExecDestroy", "cuGraphDestroy", "cuDevicePrimaryCtxRelease",
                                         "cuCtxSetCurrent", "cuStreamSynchronize", "cuModuleLoadData", "cuMemAlloc" };
    for (size_t i = 0; i < SW_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static const char *plain_name(const char *exported)
{
    static char name[64];
    snprintf(name, sizeof name, "%s", exported);
    char *const version = strstr(name, "_v");
    if (version != NULL) *version = '\0';
    return name;
}

static void fail_one(const char *name, long at, int code)
{
    double result[2];
    char what[128];
    snprintf(what, sizeof what, "%s:%ld:%d", name, at, code);
    fake.fk_fail_set(what);
    const sw_status st = scenario(result);
    if (getenv("SWOOP_TEST_SHOW") != NULL) print_message("%s: %d %s\n", what, st, message);
    if (st == SW_OK && !may_go_unseen(name) && !unrecorded) fail_msg("%s: no error", what);
    if (st == SW_OK && (fabs(result[0] - wanted) > 1e-5 || fabs(result[1] - WIDE * 0.5) > 1))
        fail_msg("%s: no error, and wrong results: %g, %g", what, result[0], result[1]);
    if (st != SW_OK && strstr(message, name) == NULL && strstr(message, "out of memory") == NULL)
        fail_msg("%s: it is not named: %s", what, message);
    if (st != SW_OK && st != (code == SW_CU_OUT_OF_MEMORY ? SW_ERR_MEMORY : SW_ERR_DEVICE))
        fail_msg("%s: status %d: %s", what, st, message);
    expect_recovery(what);
}

#define NAME(name, since, parameters) #name,
static const char *const functions[] = { SW_CU_FUNCTIONS(NAME) };

static int fail_each(void)
{
    double result[2];
    long calls[SW_COUNT(functions)];
    int tries = 0;
    if (scenario(result) != SW_OK) fail_msg("%s", message); /* devices are listed once, programs are cached */
    fake.fk_fail_set(NULL);
    if (scenario(result) != SW_OK) fail_msg("%s", message);
    for (size_t i = 0; i < SW_COUNT(functions); i++) calls[i] = fake.fk_calls(plain_name(functions[i]));
    for (size_t i = 0; i < SW_COUNT(functions); i++) {
        const char *const name = plain_name(functions[i]);
        const long n = calls[i], at[] = { 1, 2, 3, n / 2, n - 1, n };
        if (profiled && strncmp(name, "cuEvent", 7) != 0) continue; /* the same as without */
        long last = 0;
        for (size_t k = 0; k < SW_COUNT(at); k++) {
            if (at[k] <= last || at[k] > n) continue;
            last = at[k];
            fail_one(name, last, k % 2 ? 999 : SW_CU_OUT_OF_MEMORY);
            tries++;
        }
    }
    return tries;
}

static void test_each_call_fails(void **state)
{
    (void)state;
    wanted = step_on_cpu(BATCH);
    int tries = fail_each();
    profiled = true;
    tries += fail_each();
    profiled = false;
    print_message("%d failures\n", tries);
    assert_true(tries >= 60);
}

/* ---- a device that is lost ------------------------------------------------------------------------------------------------ */

static const sw_kernel_source stray = { .name = "stray", .cuda = "extern \"C\" __global__ void stray(char *p, long long at, long "
                                        "long by)\n{\n    ((float *)(p + at + by))[threadIdx.x] = 1;\n}\n" };

/* A kernel writes far beyond its buffer: told by whoever waits next, with the kernel that ran last, or with SWOOP_CHECK
 * by the launch itself. Everything can be given back. */
static void lose(bool check)
{
    sw_device *d = NULL;
    sw_buffer *b = NULL;
    sw_kernel *k = NULL;
    float x = 0;
    if (check) setenv("SWOOP_CHECK", "1", 1);
    ok(sw_device_open("cuda:0", NULL, &d));
    sw_program *const p = step_program(d, BATCH, NULL);
    (void)step_trained(p, BATCH);
    ok(sw_buffer_new(d, 64, &b));
    ok(sw_kernel_new(d, &stray, &k));
    const sw_arg args[] = { sw_arg_buffer(b), sw_arg_i64((int64_t)1 << 30) };
    sw_status st = sw_kernel_launch(k, &(sw_launch){ .groups = { 1 }, .local = { 4 }, .args = args, .n_args = 2 });
    assert_int_equal(st, check ? SW_ERR_DEVICE : SW_OK);
    if (st == SW_OK) st = sw_buffer_read(b, 0, &x, 4);
    assert_int_equal(st, SW_ERR_DEVICE);
    assert_non_null(strstr(sw_error(), "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    assert_non_null(strstr(sw_error(), "stray"));
    assert_true(check || strstr(sw_error(), "SWOOP_CHECK=1") != NULL);
    assert_int_equal(sw_program_run(p), SW_ERR_DEVICE);
    sw_kernel_free(k);
    sw_buffer_free(b);
    sw_program_free(p);
    sw_device_close(d);
    if (check) unsetenv("SWOOP_CHECK");
}

/* Modes of this program, in processes of their own. */
static int lose_here(void)
{
    lose(false);
    return 0;
}

static int lose_checked(void)
{
    lose(true);
    return 0;
}

/* In a program: with SWOOP_CHECK the message names the op too. */
static void astray_host(const sw_host_call *c)
{
    for (int64_t i = c->begin; i < c->end; i++) ((float *)c->arg[1].data)[i] = ((const float *)c->arg[0].data)[i];
}

static int lose_op(void)
{
    static const sw_op_def def = {
        .name = "astray", .n_in = 1, .n_out = 1, .shape = sw_same_shape,
        .forward = { .host = astray_host, .cuda = "extern \"C\" __global__ void astray(char *x, long long x_at, char *y, long long "
                                                  "y_at, long long n)\n{\n    ((float *)y)[1 << 28] = ((float *)x)[0];\n}\n" },
    };
    sw_op_id id = 0;
    sw_graph *g = NULL;
    sw_device *d = NULL;
    sw_program *p = NULL;
    const int64_t n = 8;
    ok(sw_op_register(&def, &id));
    setenv("SWOOP_CHECK", "1", 1);
    ok(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 1, &n);
    sw_output(sw_op_apply(id, &x, 1), "y");
    ok(sw_device_open("cuda:0", NULL, &d));
    ok(sw_compile(g, d, NULL, &p));
    assert_int_equal(sw_program_run(p), SW_ERR_DEVICE);
    if (strstr(sw_error(), "custom '") == NULL || strstr(sw_error(), "in astray") == NULL) fail_msg("%s", sw_error());
    sw_program_free(p);
    sw_device_close(d);
    sw_graph_free(g);
    return 0;
}

static int train_here(void)
{
    double result[2] = { 0 };
    const sw_status st = scenario(result);
    printf("%a %a %s\n", result[0], result[1], st == SW_OK ? "good" : message);
    return st == SW_OK ? 0 : 1;
}

/* A step, a convolution, and a name for a group of devices: whatever library is not needed is passed over. */
static int use_everything(void)
{
    sw_device *d = NULL;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    sw__comm_id id;
    const int status = train_here();
    ok(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 4, (int64_t[]){ 1, 4, 6, 6 });
    sw_output(sw_sum(sw_conv2d(x, 4, .kernel = 3), SW_ALL_AXES, false), "sum");
    ok(sw_device_open("cuda:0", NULL, &d));
    ok(sw_compile(g, d, NULL, &p));
    ok(sw_program_run(p));
    printf("nccl: %s\n", d->backend->comm_id(d->dev, &id) == SW_OK ? "there" : sw_error());
    sw_program_free(p);
    sw_device_close(d);
    sw_graph_free(g);
    return status;
}

static int train_second(void)
{
    second = true;
    return train_here();
}

/* Staging memory does not fit: inputs are sent all the same. */
static int tight_here(void)
{
    double sum = 0;
    sw_device *d = NULL;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    void *fill[64];
    int n = 0;
    ok(wide_graph(&g));
    ok(sw_device_open("cuda:0", NULL, &d));
    ok(sw_compile(g, d, NULL, &p));
    for (size_t bytes = (size_t)64 << 20; bytes >= 1024 && n < 64;) { /* all that is left */
        if (d->backend->alloc(d->dev, bytes, &fill[n]) == SW_OK) n++;
        else bytes /= 2;
    }
    ok(run_wide(p, &sum));
    assert_true(step_cu(d)->direct == 3 && fabs(sum - WIDE * 0.5) < 1);
    while (n > 0) d->backend->release(d->dev, fill[--n]);
    sw_program_free(p);
    sw_device_close(d);
    sw_graph_free(g);
    return 0;
}

/* A planner's fault: a piece of the arena is given up one launch before its last. Where it is a workspace nobody reads it
 * then; where it is a tensor the double tells. */
static int dead_early(void)
{
    sw_device *d = NULL;
    bool more = true;
    if (!fake_open()) return 2;
    ok(sw_device_open("cuda:0", NULL, &d));
    for (uint32_t k = 1; more && fake.fk_reports() == 0; k++) {
        sw_program *const p = step_program(d, BATCH, NULL);
        more = k < p->n_dead;
        if (more && p->dead[k - 1].launch < p->dead[k].launch) {
            p->dead[k].launch--;
            (void)step_trained(p, BATCH);
        }
        sw_program_free(p);
    }
    sw_device_close(d);
    return fake.fk_reports() > 0 ? 0 : 1;
}

static const struct { const char *name; int (*run)(void); } modes[] = {
    { "train", train_here }, { "train-second", train_second }, { "lose", lose_here }, { "lose-checked", lose_checked },
    { "lose-op", lose_op },  { "tight", tight_here },  { "dead-early", dead_early },
    { "everything", use_everything },
};

/* ---- in processes of their own ---------------------------------------------------------------------------------------------- */

static const char *program; /* this one */

/* Runs a mode with more environment ("A=1 B=2"); its output is in `text`. Returns its exit status. */
static int in_process(const char *environment, const char *mode, char *text, size_t size)
{
    char command[1400];
    snprintf(command, sizeof command, "env %.900s '%.300s' %.40s 2>&1", environment, program, mode);
    FILE *const f = popen(command, "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, size - 1, f);
    text[n] = '\0';
    while (fgetc(f) != EOF) continue; /* who writes on must not be cut short */
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect(const char *environment, const char *mode, int status, const char *words)
{
    char text[4000];
    const int have = in_process(environment, mode, text, sizeof text);
    if (have != status || strstr(text, words) == NULL)
        fail_msg("%s %s: exit status %d, not %d, or no '%s':\n%s", environment, mode, have, status, words, text);
}

static void test_lost_device(void **state)
{
    (void)state;
    expect("FAKECUDA_STRICT=0", "lose", 0, ""); /* the double reports the stray write, too */
    expect("FAKECUDA_STRICT=0", "lose-checked", 0, "");
    expect("FAKECUDA_STRICT=0", "lose-op", 0, "");
}

/* 16 GiB has the smallest that is played; here it is 100 MiB. */
static void test_little_memory(void **state)
{
    (void)state;
    expect("FAKECUDA_MEM=100M", "tight", 0, "");
    expect("FAKECUDA_MEM=4K", "train", 1, "out of memory on cuda:0");
}

/* Streams run in other orders, blocks and warps too: the same bits, and no report. */
static void test_orders(void **state)
{
    (void)state;
    char first[4000], text[4000], environment[80];
    const int seeds = getenv("SWOOP_TEST_ALL") != NULL ? 200 : 12;
    for (int seed = 1; seed <= seeds; seed++) {
        snprintf(environment, sizeof environment, "FAKECUDA_STRICT=1 FAKECUDA_SEED=%d", seed);
        const int status = in_process(environment, "train", seed == 1 ? first : text, sizeof text);
        if (status != 0) fail_msg("seed %d: exit status %d: %s", seed, status, seed == 1 ? first : text);
        if (seed > 1) assert_string_equal(text, first);
    }
    print_message("%d orders, the same bits: %s", seeds, first);
}

/* Tensors that have had their day are dead to the double: nobody reads one, launched or replayed, and the bits are the same. */
static void test_dead_tensors(void **state)
{
    (void)state;
    char want[4000], have[4000];
    assert_int_equal(in_process("FAKECUDA_STRICT=1", "train", want, sizeof want), 0);
    const int status = in_process("FAKECUDA_STRICT=1 FAKECUDA_POISON=1 SWOOP_POISON=1", "train", have, sizeof have);
    if (status != 0) fail_msg("exit status %d: %s", status, have);
    assert_string_equal(have, want);
    expect("FAKECUDA_STRICT=0 FAKECUDA_POISON=1 SWOOP_POISON=1", "dead-early", 0, "which is dead (");
}

/* ---- libraries ---------------------------------------------------------------------------------------------------------------- */

/* The libraries of a variant of tests/oldcuda come before the double's. */
static void expect_with(const char *variant, const char *more, int status, const char *words)
{
    char environment[900];
    snprintf(environment, sizeof environment, "LD_LIBRARY_PATH=%.300s/%s:%.300s %.200s", SWOOP_OLDCUDA, variant,
             getenv("LD_LIBRARY_PATH"), more);
    expect(environment, "train", status, words);
}

static void test_libraries(void **state)
{
    (void)state;
    expect("LD_LIBRARY_PATH=/nowhere", "train", 1, "the CUDA driver cannot be opened");
    expect("LD_LIBRARY_PATH=/nowhere", "train", 1, "install NVIDIA's");
    expect("SWOOP_WITHOUT=libcuda", "train", 1, "SWOOP_WITHOUT leaves out");
    expect_with("driver", "OLDCUDA_VERSION=11080", 1, "the NVIDIA driver is for CUDA 11.8: install a driver for CUDA 12.0");
    expect_with("driver", "OLDCUDA_VERSION=12080", 1, "cuInit:");
    expect_with("driver-lacking", "OLDCUDA_VERSION=12080", 1, "has no cuGraphInstantiateWithFlags, which came with CUDA 11.4");
    expect_with("nvrtc", "OLDCUDA_VERSION=11080", 1, "is of CUDA 11.8: install NVRTC of CUDA 12");
    expect_with("nvrtc", "OLDCUDA_VERSION=13000", 1, "does not tell which GPUs it compiles for");
    expect_with("nvrtc-lacking", "OLDCUDA_VERSION=13000", 1, "has no nvrtcGetCUBIN");
    expect("SWOOP_WITHOUT=nvrtc", "train", 1, "SWOOP_WITHOUT leaves out libnvrtc");
    expect("CUDA_VISIBLE_DEVICES=", "train", 1, "there is no device 'cuda:0'");
    expect("FAKECUDA_DRIVER=11080", "train", 1, "install a driver for CUDA 12.0 or later");
}

/* What is above the driver and NVRTC: each may be there, missing, too old or without a function. */
static const struct { const char *without, *old, *lacking, *words[3]; } optional[] = {
    { "cublasLt", "FAKECUDA_CUBLASLT=110000", "SWOOP_CUBLASLT_LIBRARY=libm.so.6",
      { "cuBLASLt cannot be opened (SWOOP_WITHOUT leaves it out): install", "cuBLASLt 11.0 is too old: install",
        "cuBLASLt has no cublasLt" } },
    { "cudnn", "FAKECUDA_CUDNN_VERSION=90100", "SWOOP_CUDNN_LIBRARY=libm.so.6",
      { "cuDNN cannot be opened (SWOOP_WITHOUT leaves it out): install", "cuDNN 9.1.0, but 9.8", "cuDNN has no cudnn" } },
    { "nccl", "FAKECUDA_NCCL=21304", "SWOOP_NCCL_LIBRARY=libm.so.6",
      { "NCCL cannot be opened (SWOOP_WITHOUT leaves it out): install", "NCCL 2.13.4 is too old: install", "NCCL has no nccl" } },
    { "nvidia-ml", "", "", { "", "", "" } },
};

/* state[i]: 0 there, 1 missing, 2 too old, 3 lacking a function. It trains and convolves all the same, and says what is amiss. */
static void expect_states(const int state[4])
{
    char environment[700] = "", without[100] = "", text[8000];
    for (int i = 0; i < 4; i++) {
        const size_t n = strlen(environment), w = strlen(without);
        if (state[i] == 1) snprintf(without + w, sizeof without - w, "%s,", optional[i].without);
        if (state[i] > 1)
            snprintf(environment + n, sizeof environment - n, "%s ", state[i] == 2 ? optional[i].old : optional[i].lacking);
    }
    snprintf(environment + strlen(environment), sizeof environment - strlen(environment), "SWOOP_WITHOUT=%s", without);
    const int status = in_process(environment, "everything", text, sizeof text);
    if (status != 0 || strstr(text, "good") == NULL) fail_msg("%s: exit status %d: %s", environment, status, text);
    for (int i = 0; i < 3; i++) {
        const char *words = state[i] > 0 ? optional[i].words[state[i] - 1] : "";
        if (i == 2 && state[i] == 0 && access(SWOOP_FAKECUDA "/libnccl.so.2", R_OK) == 0) words = "nccl: there";
        if (i == 1 && state[i] == 2 && access(SWOOP_FAKECUDA "/libcudnn.so.9", R_OK) != 0) words = "";
        if (strstr(text, words) == NULL) fail_msg("%s: no '%s': %s", environment, words, text);
    }
}

/* Every combination with SWOOP_TEST_ALL=1; otherwise those of which some are missing, and each fault by itself and by all. */
static void test_combinations(void **state)
{
    (void)state;
    const bool all = getenv("SWOOP_TEST_ALL") != NULL;
    int n = 0;
    for (int code = 0; code < 128; code++) {
        const int s[4] = { code % 4, code / 4 % 4, code / 16 % 4, code / 64 };
        const bool one = (s[0] != 0) + (s[1] != 0) + (s[2] != 0) + (s[3] != 0) <= 1;
        const bool missing = s[0] < 2 && s[1] < 2 && s[2] < 2, same = s[0] == s[1] && s[1] == s[2];
        if (!all && !one && !missing && !same) continue;
        expect_states(s);
        n++;
    }
    print_message("%d combinations\n", n);
}

/* Every generation of GPUs; one that is newer than NVRTC, through PTX; one that is older. */
static void test_generations(void **state)
{
    (void)state;
    static const int all[] = { 75, 80, 86, 89, 90, 100, 120 };
    char environment[80];
    for (size_t i = 0; i < SW_COUNT(all); i++) {
        snprintf(environment, sizeof environment, "FAKECUDA_SM=%d", all[i]);
        expect(environment, "train", 0, "good");
    }
    expect("FAKECUDA_SM=90 FAKECUDA_NVRTC_ARCHS=75,80", "train", 0, "kernels go through PTX of compute capability 8.0");
    expect("FAKECUDA_SM=90 FAKECUDA_NVRTC_ARCHS=75,80", "train", 0, "good");
    expect("FAKECUDA_SM=80 FAKECUDA_NVRTC_ARCHS=90,120", "train", 1,
           "NVRTC 13.0 compiles for compute capability 9.0 and up, this has 8.0");
}

/* Devices are numbered as CUDA_VISIBLE_DEVICES says, and NVML is asked about the right one: by its PCI address. */
static void test_many_devices(void **state)
{
    (void)state;
    char command[900];
    snprintf(command, sizeof command, "env FAKECUDA_DEVICES=3 FAKECUDA_SM=90,80,75 CUDA_VISIBLE_DEVICES=2,0 '%.600s' devices "
             "> '%.200s/devices'", SWOOP_COMMAND, step_folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "cd '%.200s' && grep -q '^cuda:0 *Tesla T4 .* of 70 W' devices && grep -q '^cuda:1 *NVIDIA "
             "H100 .* of 700 W' devices && ! grep -q '^cuda:2' devices", step_folder);
    assert_int_equal(system(command), 0);
    expect("FAKECUDA_DEVICES=2 FAKECUDA_SM=90,75", "train-second", 0, "good");
}

/* Whatever is missing, the rest of the machine works: auto takes another device. */
static void test_auto_without(void **state)
{
    (void)state;
    static const char *const environment[] = { "SWOOP_WITHOUT=libcuda", "SWOOP_WITHOUT=nvrtc", "CUDA_VISIBLE_DEVICES=",
                                               "LD_LIBRARY_PATH=/nowhere" };
    char command[900];
    for (size_t i = 0; i < SW_COUNT(environment); i++) {
        snprintf(command, sizeof command, "env SWOOP_OPENCL_LIBRARY=none %s '%.600s' devices | grep -q 'default: cpu '",
                 environment[i], SWOOP_COMMAND);
        if (system(command) != 0) fail_msg("%s", command);
    }
}

static int set_up(void **state)
{
    return fake_open() ? step_set_up(state) : -1;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < SW_COUNT(modes) && argc > 1; i++)
        if (strcmp(argv[1], modes[i].name) == 0) return modes[i].run();
    program = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libraries),     cmocka_unit_test(test_combinations), cmocka_unit_test(test_auto_without), cmocka_unit_test(test_orders),
        cmocka_unit_test(test_generations),   cmocka_unit_test(test_many_devices),
        cmocka_unit_test(test_dead_tensors),  cmocka_unit_test(test_little_memory), cmocka_unit_test(test_lost_device),  cmocka_unit_test(test_each_call_fails),
    };
    return cmocka_run_group_tests(tests, set_up, step_tear_down);
}
