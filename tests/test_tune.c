/* test_tune.c: variants of products and convolutions: each gives the right numbers; a trial finds the one that is made to be
 * fast (tests/fakecl), keeps it for other processes, never runs where it must not; a table in its place; CLBlast (a fake of
 * it) where it is faster, and our kernels where it fails. On opencl:0; skipped, and said so, where there is none. */
/* timeout: 900 */
/* needs: OPENCL */
#include "backend/gpu/tune.h"
#include "backend/opencl/cl.h"
#include "exec/exec.h"
#include "fakecl/fakecl.h"
#include "kernel/cache.h"
#include "swoop/swoop.h"

#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <ftw.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { M = 256, N = 64, K = 64 }; /* just large enough for a trial */

static char folder[256], self[512];
static fakecl *fake;

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s: %s", sw_status_name(st), sw_error());
}

static void path_in(char *path, size_t size, const char *name)
{
    snprintf(path, size, "%.200s/%s", folder, name);
}

static void use_cache(const char *name)
{
    char path[300];
    path_in(path, sizeof path, name);
    assert_int_equal(setenv("SWOOP_CACHE_DIR", path, 1), 0);
}

static sw_device *open_device(const sw_device_options *o)
{
    sw_device *d = NULL;
    const sw_status st = sw_device_open("opencl:0", o, &d);
    if (st == SW_OK) return d;
    if (sw__cl_devices(NULL) > 0) fail_msg("opencl:0: %s", sw_error());
    print_message("skipped: %s\n", sw_error());
    skip();
    return NULL;
}

static sw__gpu *gpu_of(const sw_device *d)
{
    return &((sw__cl *)d->dev)->gpu;
}

/* ---- a program of one product -------------------------------------------------------------------------------------------- */

static sw_program *product_on(sw_device *d, int64_t m, bool turned, bool bias)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    ok(sw_graph_new(&g));
    const int64_t bs[2] = {turned ? N : K, turned ? K : N};
    const sw_t a = sw_input(g, "a", SW_F32, 2, (int64_t[]){m, K}), b = sw_input(g, "b", SW_F32, 2, bs);
    sw_t c = sw_matmul(a, turned ? sw_transpose(b, 0, 1) : b);
    if (bias) c = sw_relu(sw_add(c, sw_input(g, "bias", SW_F32, 1, (int64_t[]){N})));
    sw_output(c, "c");
    ok(sw_compile(g, d, NULL, &p));
    sw_graph_free(g);
    return p;
}

static const char *note_of(const sw_program *p)
{
    for (uint32_t i = 0; i < p->n_launches; i++)
        if (p->launches[i].is_op) return p->device->backend->op_note(p->launches[i].built);
    fail_msg("there is no op");
    return "";
}

static float number(int64_t i, int64_t j)
{
    return (float)((i * 31 + j * 17) % 23) * 0.125f - 1.3f;
}

static void check_product(sw_program *p, int64_t m, bool turned, bool bias)
{
    static float a[2 * M * K], b[K * N], c[2 * M * N], add[N];
    for (int64_t i = 0; i < m * K; i++) a[i] = number(i / K, i % K);
    for (int64_t i = 0; i < K * N; i++) b[i] = turned ? number(i % K, i / K) : number(i / N, i % N);
    for (int64_t j = 0; j < N; j++) add[j] = (float)j * 0.5f - 20;
    ok(sw_program_set(p, sw_program_input(p, "a"), SW_F32, a, m * K));
    ok(sw_program_set(p, sw_program_input(p, "b"), SW_F32, b, K * N));
    if (bias) ok(sw_program_set(p, sw_program_input(p, "bias"), SW_F32, add, N));
    ok(sw_program_run(p));
    ok(sw_program_get(p, 0, SW_F32, c, m * N));
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = bias ? add[j] : 0;
            for (int64_t k = 0; k < K; k++) sum += (double)number(i, k) * number(k, j);
            if (bias && sum < 0) sum = 0;
            if (fabs(sum - (double)c[i * N + j]) > 1e-3) fail_msg("[%d][%d] is %g, not %g", (int)i, (int)j, (double)c[i * N + j], sum);
        }
}

/* Compiles and checks; what it was done by, and how many ops were measured for it. */
static int tuned_product(const sw_device_options *o, char *note, size_t size)
{
    static const sw_device_options patient = {.tune_seconds = 300}; /* compilers may be slow */
    if (o == NULL) o = &patient;
    sw_device *const d = open_device(o);
    sw_program *const p = product_on(d, M, false, false);
    const int n = gpu_of(d)->tuning->measured;
    snprintf(note, size, "%s", note_of(p));
    check_product(p, M, false, false);
    sw_program_free(p);
    sw_device_close(d);
    return n;
}

/* ---- trials -------------------------------------------------------------------------------------------------------------- */

static FILE *begin_process(int fast_items)
{
    char command[700];
    snprintf(command, sizeof command, "FAKECL_FAST_ITEMS=%d '%s' another process", fast_items, self);
    FILE *const f = popen(command, "r"); // NOLINT(cert-env33-c): this very program
    assert_non_null(f);
    return f;
}

/* How many ops it measured, and what it used. */
static int end_process(FILE *f, char *note, size_t size)
{
    char line[200] = "", *rest;
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(pclose(f), 0);
    line[strcspn(line, "\n")] = '\0';
    const long n = strtol(line, &rest, 10);
    snprintf(note, size, "%s", rest + (*rest == ' '));
    return (int)n;
}

static void test_fastest_is_kept(void **state)
{
    (void)state;
    char note[128], again[128];
    static const struct { size_t items; const char *note; } planted[] = {{16, " 16x16x16 of 16"}, {64, " 32x32x16 of 64"}};
    for (size_t i = 0; i < SW_COUNT(planted); i++) {
        use_cache(planted[i].note + 1);
        fake->fast_items = planted[i].items;
        assert_int_equal(tuned_product(NULL, note, sizeof note), 1);
        if (strstr(note, planted[i].note) == NULL) fail_msg("chosen is '%s', not '%s'", note, planted[i].note);
        fake->fast_items = 1000; /* now none is: it must not matter */
        assert_int_equal(tuned_product(NULL, again, sizeof again), 0);
        assert_string_equal(note, again);
    }
    FILE *const f = begin_process(1000);
    assert_int_equal(end_process(f, again, sizeof again), 0);
    assert_string_equal(note, again);
}

/* Two that measure at the same time, and find different ones: the first one's word holds for both. */
static void test_two_at_once(void **state)
{
    (void)state;
    char a[128], b[128];
    if (sw__cl_devices(NULL) == 0) skip();
    use_cache("two");
    FILE *const first = begin_process(16), *const second = begin_process(64);
    (void)end_process(first, a, sizeof a);
    (void)end_process(second, b, sizeof b);
    assert_string_equal(a, b);
}

static int another_process(void)
{
    char note[128];
    const int n = tuned_product(NULL, note, sizeof note);
    printf("%d %s\n", n, note);
    return 0;
}

static void test_noise_changes_nothing(void **state)
{
    (void)state;
    char rules[128], note[128];
    use_cache("noise");
    assert_int_equal(tuned_product(&(sw_device_options){.no_tune = true}, rules, sizeof rules), 0);
    fake->fast_items = 1000;
    assert_int_equal(tuned_product(NULL, note, sizeof note), 1);
    assert_string_equal(note, rules);
    fake->fast_items = 16; /* what was measured once is not measured again */
    assert_int_equal(tuned_product(NULL, note, sizeof note), 0);
    assert_string_equal(note, rules);
}

/* The tuning file among the cached programs; false: there is none. */
static bool tuning_file(const char *cache, char *path, size_t size)
{
    char dir[300], text[4096];
    bool found = false;
    path_in(dir, sizeof dir, cache);
    DIR *const d = opendir(dir);
    for (const struct dirent *e; d != NULL && !found && (e = readdir(d)) != NULL;) {
        snprintf(path, size, "%.290s/%.200s", dir, e->d_name);
        FILE *const f = strstr(e->d_name, ".swk") != NULL ? fopen(path, "rb") : NULL;
        const size_t n = f != NULL ? fread(text, 1, sizeof text, f) : 0;
        found = n > 0 && memmem(text, n, "product f32 256x64x64", 21) != NULL;
        if (f != NULL) (void)fclose(f);
    }
    if (d != NULL) closedir(d);
    return found;
}

static void test_damaged_file(void **state)
{
    (void)state;
    char note[128], again[128], path[600];
    use_cache("damaged");
    fake->fast_items = 64;
    assert_int_equal(tuned_product(NULL, note, sizeof note), 1);
    assert_true(tuning_file("damaged", path, sizeof path));
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -9, SEEK_END), 0);
    assert_int_equal(fputc('!', f), '!');
    assert_int_equal(fclose(f), 0);
    assert_int_equal(tuned_product(NULL, again, sizeof again), 1);
    assert_string_equal(note, again);
    assert_int_equal(tuned_product(NULL, again, sizeof again), 0);
    /* whole, but with lines that mean nothing: they are left out */
    char label[384], key[420];
    sw_device *const d = open_device(NULL);
    sw__gpu_device_label(gpu_of(d), label, sizeof label);
    sw_device_close(d);
    snprintf(key, sizeof key, "swoop tuning %d|%s", SW__GPU_VARIANTS, label);
    static const char nonsense[] = "x 1 2 3 product f32 256x64x64 knn\n1\n-3 1 1 1 product f32 256x64x64 knn\n9999 1 1 1 a\n\n3 1 1";
    ok(sw__kcache_put(key, strlen(key), nonsense, sizeof nonsense - 1, NULL));
    assert_int_equal(tuned_product(NULL, again, sizeof again), 1);
    assert_string_equal(note, again);
}

static void test_never(void **state)
{
    (void)state;
    char note[128], path[600], kernels[300];
    use_cache("never");
    path_in(kernels, sizeof kernels, "kernels");
    fake->fast_items = 16;
    assert_int_equal(tuned_product(&(sw_device_options){.no_tune = true}, note, sizeof note), 0);
    assert_int_equal(setenv("SWOOP_NO_TUNE", "1", 1), 0);
    assert_int_equal(tuned_product(NULL, note, sizeof note), 0);
    assert_int_equal(unsetenv("SWOOP_NO_TUNE"), 0);
    assert_int_equal(tuned_product(&(sw_device_options){.write_kernels = kernels}, note, sizeof note), 0);
    assert_int_equal(tuned_product(&(sw_device_options){.kernels = kernels}, note, sizeof note), 0);
    assert_false(tuning_file("never", path, sizeof path));
    /* while something is trained: a program ran more than once */
    sw_device *const d = open_device(NULL);
    sw_program *const small = product_on(d, 8, false, false);
    for (int i = 0; i < 2; i++) check_product(small, 8, false, false);
    sw_program *const large = product_on(d, M, false, false);
    assert_int_equal(gpu_of(d)->tuning->measured, 0);
    sw_program_free(small);
    sw_program_free(large);
    sw_device_close(d);
    assert_int_equal(tuned_product(NULL, note, sizeof note), 0); /* what it was planned with first is kept */
    assert_int_equal(tuned_product(&(sw_device_options){.tune_all = true}, note, sizeof note), 1);
    assert_non_null(strstr(note, "16x16x16 of 16"));
}

/* An upload that fails while a program is compiled is told, by a trial or by whoever reads: not lost on the way. */
static void test_earlier_failure(void **state)
{
    (void)state;
    static const float zero[64];
    float read[64];
    sw_graph *g = NULL;
    sw_program *p = NULL;
    sw_buffer *b = NULL;
    for (int never = 0; never < 2; never++) {
        use_cache(never ? "earlier, never" : "earlier");
        sw_device *const d = open_device(&(sw_device_options){.tune_seconds = 300, .no_tune = never});
        ok(sw_graph_new(&g));
        const sw_t a = sw_input(g, "a", SW_F32, 2, (int64_t[]){M, K}), w = sw_input(g, "b", SW_F32, 2, (int64_t[]){K, N});
        sw_output(sw_matmul(a, w), "c");
        ok(sw_buffer_new(d, sizeof zero, &b));
        ok(sw_buffer_write(b, 0, zero, sizeof zero));
        snprintf(fake->fail_name, sizeof fake->fail_name, "clWaitForEvents");
        fake->fail_at = 1;
        fake->fail_code = -14;
        sw_status st = sw_compile(g, d, &(sw_compile_options){.build_later = true}, &p);
        if (st == SW_OK) st = sw_buffer_read(b, 0, read, sizeof read);
        assert_int_equal(st, SW_ERR_DEVICE);
        assert_non_null(strstr(sw_error(), "clWaitForEvents"));
        fake->fail_at = 0;
        fake->fail_name[0] = '\0';
        sw_program_free(p);
        p = NULL;
        sw_buffer_free(b);
        sw_graph_free(g);
        sw_device_close(d);
    }
}

static void write_table(const char *pattern)
{
    char path[300];
    path_in(path, sizeof path, "table.txt");
    FILE *const f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "# a remark\nversion %d\n[%s]\n4 2.0 1.0 0.0 product f32 %dx%dx%d knn\nnonsense\n", SW__GPU_VARIANTS, pattern, M,
            N, K);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(setenv("SWOOP_TUNING_TABLE", path, 1), 0);
}

static void test_table(void **state)
{
    (void)state;
    char note[128], rules[128];
    use_cache("table");
    fake->fast_items = 0;
    assert_int_equal(tuned_product(&(sw_device_options){.no_tune = true}, rules, sizeof rules), 0);
    write_table("opencl gpu *");
    assert_int_equal(tuned_product(&(sw_device_options){.no_tune = true}, note, sizeof note), 0);
    assert_non_null(strstr(note, "16x16x16 of 16")); /* variant 4 */
    assert_int_equal(tuned_product(NULL, note, sizeof note), 0);
    assert_non_null(strstr(note, "16x16x16 of 16"));
    write_table("opencl cpu *"); /* not this device's */
    assert_int_equal(tuned_product(&(sw_device_options){.no_tune = true}, note, sizeof note), 0);
    assert_string_equal(note, rules);
    fake->fast_items = 64; /* what was measured here goes before a table */
    write_table("*");
    assert_int_equal(tuned_product(&(sw_device_options){.tune_all = true}, note, sizeof note), 1);
    assert_int_equal(tuned_product(NULL, note, sizeof note), 0);
    assert_non_null(strstr(note, "32x32x16 of 64"));
    assert_int_equal(unsetenv("SWOOP_TUNING_TABLE"), 0);
}

/* The label as the table has it is the device's own, whatever stands in its name; and numbers are read and written the
 * same way where the point is a comma. */
static void test_table_of_this_device(void **state)
{
    (void)state;
    char note[128], again[128], path[300], command[700];
    sw_tune_result r;
    use_cache("brackets");
    fake->fast_items = 16;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%.200s/de_DE.UTF-8' >/dev/null 2>&1", folder);
    const bool german = system(command) >= 0 && setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;
    if (!german) print_message("no locale with a decimal comma: only points are tested\n");
    assert_int_equal(tuned_product(NULL, note, sizeof note), 1);
    assert_non_null(strstr(note, " 16x16x16 of 16"));
    sw_device *d = open_device(&(sw_device_options){.tune_all = true});
    sw_program_free(product_on(d, M, false, false));
    ok(sw_device_tuned(d, &r));
    setlocale(LC_NUMERIC, "C");
    sw_device_close(d);
    path_in(path, sizeof path, "own.txt");
    FILE *const f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(r.table, f) >= 0);
    assert_int_equal(fclose(f), 0);
    sw_tune_result_free(&r);
    fake->fast_items = 1000;
    assert_int_equal(tuned_product(NULL, again, sizeof again), 0); /* the file of the other locale */
    assert_string_equal(note, again);
    use_cache("brackets, another machine");
    assert_int_equal(setenv("SWOOP_TUNING_TABLE", path, 1), 0);
    assert_int_equal(tuned_product(&(sw_device_options){.no_tune = true}, again, sizeof again), 0);
    assert_string_equal(note, again);
    assert_int_equal(unsetenv("SWOOP_TUNING_TABLE"), 0);
    fake->fast_items = 0;
}

/* Several programs on a device: each op once, also where the second program has it too. */
static void test_all_of_two_programs(void **state)
{
    (void)state;
    sw_tune_result r;
    use_cache("all");
    fake->fast_items = 16;
    sw_device *const d = open_device(&(sw_device_options){.tune_all = true});
    for (int i = 0; i < 3; i++) sw_program_free(product_on(d, i == 1 ? 2 * M : M, false, false));
    assert_int_equal(gpu_of(d)->tuning->measured, 2);
    ok(sw_device_tuned(d, &r));
    assert_int_equal(r.n, 2);
    sw_tune_result_free(&r);
    sw_device_close(d);
}

/* ---- the library --------------------------------------------------------------------------------------------------------- */

static void check_library(bool turned, bool bias, const char *want, bool faster)
{
    sw_tune_result r;
    sw_device *d = open_device(&(sw_device_options){.tune_all = true});
    sw_program *p = product_on(d, M, turned, bias);
    check_product(p, M, turned, bias);
    ok(sw_device_tuned(d, &r));
    assert_int_equal(r.n, 1);
    if (strncmp(r.ops[0].chosen, want, strlen(want)) != 0) fail_msg("chosen is '%s', not '%s'", r.ops[0].chosen, want);
    assert_true(r.ops[0].faster == faster);
    assert_non_null(strstr(r.table, "product f32 256x64x64"));
    sw_tune_result_free(&r);
    sw_program_free(p);
    sw_device_close(d);
    d = open_device(NULL); /* as a later process */
    p = product_on(d, M, turned, bias);
    assert_int_equal(gpu_of(d)->tuning->measured, 0);
    assert_int_equal(strncmp(note_of(p), want, strlen(want)), 0);
    check_product(p, M, turned, bias);
    sw_program_free(p);
    sw_device_close(d);
}

static void test_library(void **state)
{
    (void)state;
    char note[128];
    use_cache("library");
    fake->fast_items = 1000;
    fake->launch_us = 30000; /* so that the fake, which computes on the host, is faster */
    check_library(false, false, "CLBlast", true);
    check_library(true, false, "CLBlast", true);
    fake->launch_us = 0;
    /* kept, but not to be had any more: wrong or failing in a later process */
    static const char *const faults[] = {"fail", "wrong"};
    for (size_t i = 0; i < SW_COUNT(faults); i++) {
        assert_int_equal(setenv("FAKECLBLAST", faults[i], 1), 0);
        sw_device *const d = open_device(NULL);
        sw_program *const p = product_on(d, M, false, false);
        assert_int_equal(strncmp(note_of(p), "gemm ", 5), 0);
        assert_int_equal(gpu_of(d)->refused, 1);
        check_product(p, M, false, false);
        sw_program_free(p);
        sw_device_close(d);
    }
    assert_int_equal(unsetenv("FAKECLBLAST"), 0);
    assert_int_equal(tuned_product(&(sw_device_options){.no_tune = true}, note, sizeof note), 0);
    assert_int_equal(strncmp(note, "CLBlast", 7), 0); /* --no-tune forbids measuring, not what is known */
    use_cache("library-slower");
    fake->fast_items = 64; /* no launch takes longer: ours is faster than the host */
    check_library(false, false, "gemm 32x32x16 of 64", true);
}

/* ---- every variant, on the real device ------------------------------------------------------------------------------------ */

typedef struct tensor { sw__desc desc; size_t bytes; } tensor;

static tensor dense(int rank, const int64_t *dim, bool last)
{
    tensor t = {.desc = {.dtype = SW_F32, .rank = (uint8_t)rank}, .bytes = sizeof(float)};
    for (int k = rank - 1, i; k >= 0; k--) {
        i = !last ? k : k == 0 ? 0 : k == rank - 1 ? 1 : k + 1;
        t.desc.dim[i] = dim[i];
        t.desc.stride[i] = (int64_t)(t.bytes / sizeof(float));
        t.bytes *= (size_t)dim[i];
    }
    return t;
}

static float *values(const tensor *t, int seed)
{
    float *const x = malloc(t->bytes);
    assert_non_null(x);
    for (size_t i = 0; i < t->bytes / sizeof *x; i++) x[i] = (float)((i * 37 + (size_t)seed * 11) % 29) * 0.07f - 1;
    return x;
}

/* Result of an op on a backend: variant < 0: op_plan's own. */
static void compute(const sw_device *d, const sw__op_desc *op, const tensor *t, int variant, float *out)
{
    const sw__backend *const b = d->backend;
    sw__bind bind[5] = {{0}};
    void *plan = NULL;
    size_t workspace = 0;
    const int n = op->n_in + 1;
    if (variant >= 0) {
        sw__gpu_plan *p = NULL;
        ok(sw__gpu_op_plan_as(gpu_of(d), op, variant, &p));
        plan = p;
        workspace = p->workspace;
        ok(b->build(d->dev));
    } else {
        ok(b->op_plan(d->dev, op, &plan, &workspace));
        if (b->build != NULL) ok(b->build(d->dev));
    }
    for (int i = 0; i < n; i++) {
        ok(b->alloc(d->dev, t[i].bytes, &bind[i].buffer));
        float *const x = values(&t[i], i);
        ok(b->upload(d->dev, bind[i].buffer, 0, x, t[i].bytes));
        free(x);
    }
    if (workspace > 0) ok(b->alloc(d->dev, workspace, &bind[n].buffer));
    ok(b->op_exec(d->dev, plan, bind));
    ok(b->sync(d->dev));
    ok(b->download(d->dev, bind[op->n_in].buffer, 0, out, t[op->n_in].bytes));
    for (int i = 0; i <= n; i++)
        if (bind[i].buffer != NULL) b->release(d->dev, bind[i].buffer);
    b->op_free(d->dev, plan);
}

static void check_variants(const sw_device *d, const sw_device *cpu, sw__op_desc op, const tensor *t)
{
    const size_t n = t[op.n_in].bytes / sizeof(float);
    float *const want = malloc(n * sizeof *want), *const have = malloc(n * sizeof *have);
    sw__desc descs[4];
    assert_true(want != NULL && have != NULL);
    for (int i = 0; i <= op.n_in; i++) descs[i] = t[i].desc;
    op.in = descs;
    op.out = &descs[op.n_in];
    op.n_out = 1;
    compute(cpu, &op, t, -1, want);
    const int library = sw__gpu_ops[op.op].variants(gpu_of(d), &op); /* of products; no call may be missing */
    for (int v = 0; v < library + (op.op == SW_OP_MATMUL); v++) {
        const uint64_t refused = gpu_of(d)->refused;
        compute(d, &op, t, v < library ? v : SW__GPU_LIBRARY, have);
        assert_true(gpu_of(d)->refused == refused);
        for (size_t i = 0; i < n; i++)
            if (fabsf(have[i] - want[i]) > 1e-3f * (1 + fabsf(want[i])))
                fail_msg("%s, variant %d: [%d] is %g, not %g", sw__op_table[op.op].name, v, (int)i, (double)have[i],
                         (double)want[i]);
    }
    free(want);
    free(have);
}

static void check_all_variants(const char *serial)
{
    sw_device *cpu = NULL;
    assert_int_equal(setenv("SWOOP_OPENCL_SERIAL", serial, 1), 0);
    sw_device *const d = open_device(&(sw_device_options){.no_tune = true});
    ok(sw_device_open("cpu", NULL, &cpu));
    sw__attr a;
    memset(&a, 0, sizeof a);
    const tensor x = dense(2, (int64_t[]){37, 300}, false), w = dense(2, (int64_t[]){300, 45}, false),
                 y = dense(2, (int64_t[]){37, 45}, false), bias = dense(1, (int64_t[]){45}, false);
    check_variants(d, cpu, (sw__op_desc){.op = SW_OP_MATMUL, .attr = &a, .name = "m", .n_in = 3}, (tensor[]){x, w, bias, y});
    a.act.act = SW_ACT_RELU;
    tensor turned = dense(2, (int64_t[]){300, 45}, false), column = dense(2, (int64_t[]){37, 45}, false);
    turned.desc.stride[0] = 1;
    turned.desc.stride[1] = 300;
    column.desc.stride[0] = 1;
    column.desc.stride[1] = 37;
    check_variants(d, cpu, (sw__op_desc){.op = SW_OP_MATMUL, .attr = &a, .name = "m", .n_in = 3},
                   (tensor[]){x, turned, bias, column});
    const tensor xs = dense(3, (int64_t[]){4, 37, 30}, false), ws = dense(3, (int64_t[]){4, 30, 45}, false),
                 ys = dense(3, (int64_t[]){4, 37, 45}, false);
    check_variants(d, cpu, (sw__op_desc){.op = SW_OP_MATMUL, .attr = &a, .name = "m", .n_in = 3},
                   (tensor[]){xs, ws, bias, ys});
    memset(&a, 0, sizeof a);
    a.conv.nd = 2;
    a.conv.groups = 1;
    for (int i = 0; i < 2; i++) a.conv.stride[i] = a.conv.dilation[i] = a.conv.pad_lo[i] = a.conv.pad_hi[i] = 1;
    const tensor image = dense(4, (int64_t[]){3, 5, 11, 9}, true), kernel = dense(4, (int64_t[]){20, 5, 3, 3}, false),
                 result = dense(4, (int64_t[]){3, 20, 11, 9}, true);
    memcpy(a.conv.dim, (int64_t[]){3, 5, 11, 9, 0}, sizeof a.conv.dim);
    check_variants(d, cpu, (sw__op_desc){.op = SW_OP_CONV, .attr = &a, .name = "y", .n_in = 2}, (tensor[]){image, kernel, result});
    check_variants(d, cpu, (sw__op_desc){.op = SW_OP_CONV_GRAD_X, .attr = &a, .name = "dx", .n_in = 2},
                   (tensor[]){result, kernel, image});
    memcpy(a.conv.dim, (int64_t[]){20, 5, 3, 3, 0}, sizeof a.conv.dim);
    check_variants(d, cpu, (sw__op_desc){.op = SW_OP_CONV_GRAD_W, .attr = &a, .name = "dw", .n_in = 2},
                   (tensor[]){image, result, kernel});
    sw_device_close(cpu);
    sw_device_close(d);
    assert_int_equal(setenv("SWOOP_OPENCL_SERIAL", "0", 1), 0);
}

static void test_every_variant_gpu(void **state)
{
    (void)state;
    use_cache("variants");
    check_all_variants("0");
}

static void test_every_variant_cpu(void **state)
{
    (void)state;
    use_cache("variants");
    check_all_variants("1");
}

/* ---- around ---------------------------------------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *s, int flag, struct FTW *ftw)
{
    (void)s, (void)flag, (void)ftw;
    return remove(path);
}

static int load_fake(void **state)
{
    (void)state;
    void *const library = dlopen(SWOOP_FAKECL, RTLD_NOW | RTLD_LOCAL);
    void *const symbol = library != NULL ? dlsym(library, "fakecl_control") : NULL;
    fakecl_control_function control;
    if (symbol == NULL) return -1;
    memcpy(&control, &symbol, sizeof control);
    fake = control();
    return 0;
}

static int set_up(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/swoop-test-tune-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    return load_fake(state);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv)
{
    (void)argv;
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    unsetenv("SWOOP_NO_TUNE");
    if (dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL) != NULL) setenv("SWOOP_OPENCL_LIBRARY", SWOOP_FAKECL, 1);
    setenv("SWOOP_CLBLAST_LIBRARY", SWOOP_FAKECLBLAST, 1);
    setenv("SWOOP_OPENCL_SERIAL", "0", 1); /* a GPU's kernels, whose groups are of different sizes */
    setenv("FAKECL_NAME_END", " [0x46a6] *\\", 1); /* as drivers name devices: no pattern of theirs */
    if (argc > 1) return another_process();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fastest_is_kept),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_noise_changes_nothing),
        cmocka_unit_test(test_damaged_file),
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_earlier_failure),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_table_of_this_device),
        cmocka_unit_test(test_all_of_two_programs),
        cmocka_unit_test(test_library),
        cmocka_unit_test(test_every_variant_gpu),
        cmocka_unit_test(test_every_variant_cpu),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
