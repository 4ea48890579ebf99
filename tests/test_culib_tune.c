/* test_culib_tune.c: which of cuBLASLt's algorithms a product runs on, on the doubles of a GPU and of the library,
 * where one is made to be fast (FAKECUDA_LT_FAST): a trial finds it, later processes look it up, another version or
 * precision asks anew, and nothing is measured where that is forbidden. Each try is a process of its own. */
#include "cuda_step.h"

#include "backend/gpu/tune.h"

#include <sys/wait.h>

/* timeout: 300 */
/* needs: FAKECUDA */

enum { M = 128, N = 96, K = 96 }; /* just large enough for a trial */

static const char *program; /* this one */

/* ---- a process: one product
 * -------------------------------------------------------------------------------------------- */

static float number(int64_t i, int64_t j)
{
    return (float)((i * 31 + j * 17) % 23) * 0.137f - 1.3f;
}

static sw_program *product(sw_device *d, bool bias)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    ok(sw_graph_new(&g));
    sw_t c =
        sw_matmul(sw_input(g, "a", SW_F32, 2, (int64_t[]){ M, K }), sw_input(g, "b", SW_F32, 2, (int64_t[]){ K, N }));
    if (bias) c = sw_relu(sw_add(c, sw_input(g, "bias", SW_F32, 1, (int64_t[]){ N })));
    sw_output(c, "c");
    ok(sw_compile(g, d, NULL, &p));
    sw_graph_free(g);
    return p;
}

/* Checked against sums in double; a hash of the bits. */
static uint64_t computed(sw_program *p, bool bias, double bound)
{
    static float a[M * K], b[K * N], c[M * N], add[N];
    uint64_t hash = 1;
    for (int i = 0; i < M * K; i++) a[i] = number(i / K, i % K);
    for (int i = 0; i < K * N; i++) b[i] = number(i / N, i % N);
    for (int i = 0; i < N; i++) add[i] = (float)i * 0.1f - 4;
    ok(sw_program_set(p, sw_program_input(p, "a"), SW_F32, a, M * K));
    ok(sw_program_set(p, sw_program_input(p, "b"), SW_F32, b, K * N));
    if (bias) ok(sw_program_set(p, sw_program_input(p, "bias"), SW_F32, add, N));
    ok(sw_program_run(p));
    ok(sw_program_get(p, 0, SW_F32, c, M * N));
    for (int i = 0; i < M * N; i++) {
        double sum = bias ? (double)add[i % N] : 0;
        for (int k = 0; k < K; k++) sum += (double)a[i / N * K + k] * (double)b[k * N + i % N];
        if (bias && sum < 0) sum = 0;
        if (!(fabs(sum - (double)c[i]) < bound)) fail_msg("element %d is %g, not %g", i, (double)c[i], sum);
        uint32_t bits;
        memcpy(&bits, &c[i], sizeof bits);
        hash = (hash ^ bits) * 0x9E3779B97F4A7C15u;
    }
    return hash;
}

static int one(bool bias, const sw_device_options *o)
{
    sw_device *d = NULL;
    ok(sw_device_open("cuda:0", o, &d));
    sw_program *const p = product(d, bias);
    const uint64_t hash = computed(p, bias, o->tf32 ? 0.1 : 1e-3);
    const char *note = "";
    for (uint32_t i = 0; i < p->n_launches; i++)
        if (p->launches[i].is_op) note = d->backend->op_note(p->launches[i].built);
    printf("%d measured, %016llx, %s\n", step_cu(d)->gpu.tuning->measured, (unsigned long long)hash, note);
    sw_program_free(p);
    sw_device_close(d);
    return 0;
}

/* ---- processes
 * ---------------------------------------------------------------------------------------------------------- */

typedef struct said {
    int measured, algorithm;
    char hash[20], line[300];
} said;

static said try(const char *cache, const char *environment, const char *mode)
{
    char command[1500];
    said s = { .algorithm = 1 };
    snprintf(command, sizeof command, "env SWOOP_CACHE_DIR='%.250s/%s' SWOOP_NO_TUNE=0 %.300s '%.300s' %.20s",
             step_folder, cache, environment, program, mode);
    FILE *const f = popen(command, "r"); // NOLINT(cert-env33-c): this very program
    assert_non_null(f);
    const bool got = fgets(s.line, sizeof s.line, f) != NULL;
    const int status = pclose(f);
    if (!got || status != 0 || sscanf(s.line, "%d measured, %16s", &s.measured, s.hash) != 2)
        fail_msg("%s: %s", command, s.line);
    const char *const at = strstr(s.line, "algorithm ");
    if (at != NULL) s.algorithm = (int)strtol(at + strlen("algorithm "), NULL, 10);
    assert_non_null(strstr(s.line, "cuBLASLt"));
    return s;
}

static void expect(const said *s, int measured, int algorithm)
{
    if (s->measured != measured || s->algorithm != algorithm)
        fail_msg("not %d measured, algorithm %d: %s", measured, algorithm, s->line);
}

/* Found, kept, and used again, whatever would be fast by then; the same bits. */
static void test_fastest_is_kept(void **state)
{
    (void)state;
    for (int fast = 1; fast <= 3; fast++) {
        char cache[20], variable[40];
        snprintf(cache, sizeof cache, "kept-%d", fast);
        snprintf(variable, sizeof variable, "FAKECUDA_LT_FAST=%d", fast);
        const said first = try(cache, variable, "product");
        expect(&first, 1, fast);
        snprintf(variable, sizeof variable, "FAKECUDA_LT_FAST=%d", fast % 3 + 1);
        const said second = try(cache, variable, "product");
        expect(&second, 0, fast);
        assert_string_equal(second.hash, first.hash);
        const said third = try(cache, "SWOOP_NO_TUNE=1", "product"); /* what is known is used all the same */
        expect(&third, 0, fast);
        assert_string_equal(third.hash, first.hash);
    }
}

/* Another op, version of the library, precision or GPU has an order of its own. */
static void test_key(void **state)
{
    (void)state;
    static const struct {
        const char *environment, *mode;
    } others[] = {
        { "FAKECUDA_LT_FAST=3", "bias" },
        { "FAKECUDA_LT_FAST=3 FAKECUDA_CUBLASLT=130100", "product" },
        { "FAKECUDA_LT_FAST=3", "tf32" },
        { "FAKECUDA_LT_FAST=3 FAKECUDA_SM=80", "product" },
        { "FAKECUDA_LT_FAST=3 FAKECUDA_DRIVER=13010", "product" },
    };
    const said first = try("key", "FAKECUDA_LT_FAST=2", "product");
    expect(&first, 1, 2);
    for (size_t i = 0; i < SW_COUNT(others); i++) {
        const said s = try("key", others[i].environment, others[i].mode);
        expect(&s, 1, 3);
    }
    const said again = try("key", "FAKECUDA_LT_FAST=1", "product");
    expect(&again, 0, 2);
}

/* Forbidden, or no time for it: the library's first, always the same bits, and nobody is the wiser later. */
static void test_never(void **state)
{
    (void)state;
    const said first = try("never", "FAKECUDA_LT_FAST=3 SWOOP_NO_TUNE=1", "product");
    expect(&first, 0, 1);
    const said option = try("never", "FAKECUDA_LT_FAST=3", "no-tune");
    expect(&option, 0, 1);
    assert_string_equal(option.hash, first.hash);
    const said hurry = try("never", "FAKECUDA_LT_FAST=3", "hurry");
    expect(&hurry, 0, 1);
    assert_string_equal(hurry.hash, first.hash);
    const said later = try("never", "FAKECUDA_LT_FAST=3", "product"); /* it keeps what it was first planned with */
    expect(&later, 0, 1);
}

/* A table's word holds; a number that the library does not offer is its first. */
static void test_table(void **state)
{
    (void)state;
    for (int number_ = 3; number_ <= 15; number_ += 12) {
        char path[300], variable[400];
        step_path(path, sizeof path, "table");
        FILE *const f = fopen(path, "we");
        assert_non_null(f);
        fprintf(f, "version %d\n[cuda *]\n%d 1.0 0.5 0.0 product f32 %dx%dx%d knn cublasLt 130000 a16\n",
                SW__GPU_VARIANTS, (number_ - 1) * SW__GPU_WAY, M, N, K);
        fclose(f);
        snprintf(variable, sizeof variable, "SWOOP_TUNING_TABLE='%.290s' SWOOP_NO_TUNE=1", path);
        const said s = try("table-cache", variable, "product");
        expect(&s, 0, number_ == 3 ? 3 : 1);
    }
}

/* swoop tune measures all anew, and the command says what it found. */
static void test_command(void **state)
{
    (void)state;
    char command[1400];
    const said first = try("command", "FAKECUDA_LT_FAST=2", "product");
    expect(&first, 1, 2);
    const said all = try("command", "FAKECUDA_LT_FAST=3", "all");
    expect(&all, 1, 3);
    const said later = try("command", "FAKECUDA_LT_FAST=1", "product");
    expect(&later, 0, 3);
    snprintf(command, sizeof command,
             "env SWOOP_NO_TUNE=0 FAKECUDA_LT_FAST=2 SWOOP_CACHE_DIR='%.200s/run' '%.400s' tune --model mlp:128 "
             "--data digits --device cuda:0 > '%.200s/tuned' 2>&1 && grep -q 'algorithm 2' '%.200s/tuned'",
             step_folder, SWOOP_COMMAND, step_folder, step_folder);
    if (system(command) != 0) fail_msg("%s", command);
}

static const struct {
    const char *name;
    bool bias;
    sw_device_options o;
} modes[] = {
    { "product", false, { .tune_seconds = 60 } },
    { "bias", true, { .tune_seconds = 60 } },
    { "tf32", false, { .tune_seconds = 60, .tf32 = true } },
    { "no-tune", false, { .no_tune = true } },
    { "hurry", false, { .tune_seconds = 1e-9 } },
    { "all", false, { .tune_all = true } },
};

static int set_up(void **state)
{
    return fake_open() ? step_set_up(state) : -1;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < SW_COUNT(modes) && argc > 1; i++)
        if (strcmp(argv[1], modes[i].name) == 0) return one(modes[i].bias, &modes[i].o);
    program = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fastest_is_kept), cmocka_unit_test(test_key),     cmocka_unit_test(test_never),
        cmocka_unit_test(test_table),           cmocka_unit_test(test_command),
    };
    return cmocka_run_group_tests(tests, set_up, step_tear_down);
}
