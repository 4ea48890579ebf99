/* test_emit.c: the emitter: its texts against golden ones (golden_kernels/, rewritten with SWOOP_GOLDEN_WRITE=1), and
 * on an OpenCL device against the oracle of the tile interpreter: every op and type, every skeleton, random kernels, in
 * the form for CPUs and in that for GPUs. Without a device that part is skipped, and says so.
 * SWOOP_TEST_DEVICE names another device than opencl:0. */
/* timeout: 900 */
/* double: SWOOP_TEST_DEVICE=cuda:0 */
#include "kernel_case.h"

#include "backend/backend.h"
#include "kernel/emit.h"

/* ---- devices ----------------------------------------------------------------------------------------------------- */

enum { BATCH = 120 };

typedef struct waiting {
    maker m;
    oracle o;
    double tolerance;
    bool cancels;
} waiting;

static const sw__backend *cl;
static void *device[2]; /* kernels for GPUs, kernels for CPUs */
static const char *const serial[2] = { "0", "1" };
static waiting *queue[BATCH];
static int n_queue, only = -1;
static unsigned n_checks, one_in = 1;

static void print_kernel(const maker *m, int f)
{
    sw__text text = { 0 };
    sw__kernel *copy;
    sw__emitted e;
    const sw__target t = { .lang = SW_LANG_OPENCL, .serial = f == 1, .fp64 = true, .max_group = 1024,
                           .max_local = { 1024, 1024, 1024 }, .local_bytes = 32768, .units = 2, .width = 16 };
    if (sw__kernel_clone(&m->k, &copy) == SW_OK && sw__kernel_analyse(copy) == SW_OK) sw__kernel_print(copy, &text);
    if (sw__emit(copy, &t, "k", &e) == SW_OK) {
        sw__text_add(&text, "%s", e.text.s ? e.text.s : "");
        sw__text_free(&e.text);
    }
    sw__kernel_free(copy);
    for (int b = 0; b < m->k.n_buffers; b++)
        if (m->alias[b] >= 0) fprintf(stderr, "b%d has the memory of b%d\n", b, m->alias[b]);
    fprintf(stderr, "serial %d\n%s\n", f, text.s ? text.s : "");
    sw__text_free(&text);
}

static void compare_outputs(const waiting *w, void *const *got, int f)
{
    const maker *const m = &w->m;
    for (int b = 0; b < m->k.n_buffers; b++) {
        bool written = false;
        for (int j = 0; j < m->k.n_insts; j++) written |= m->inst[j].kop == SW_K_STORE && m->inst[j].buffer == b;
        const unsigned t = m->k.buffer[b].dtype;
        for (int64_t e = 0; written && e < m->elements[b]; e++) {
            const number x = read_number(got[b], t, e), y = read_number(w->o.out[b], t, e);
            if (close_enough(x, y, t, w->tolerance, w->cancels ? w->o.scale : 0)) continue;
            print_kernel(m, f);
            if (is_float(t)) fail_msg("b%d[%lld] is %.9g, not %.9g", b, (long long)e, x.f, y.f);
            else fail_msg("b%d[%lld] is %lld, not %lld", b, (long long)e, (long long)x.i, (long long)y.i);
        }
    }
}

static size_t bytes_of(const maker *m, int b)
{
    return (size_t)(m->elements[b] + 1) * sw_dtype_size((sw_dtype)m->k.buffer[b].dtype);
}

/* Runs a built kernel on copies of the buffers; what is in them then, in out[]. */
static sw_status launch(const maker *m, int f, void *built, size_t workspace, void **out)
{
    sw__bind bind[SW_K_MAX_BUFFERS + 1] = { { 0 } };
    sw_status st = SW_OK;
    for (int b = 0; b < m->k.n_buffers && st == SW_OK; b++) {
        if (m->alias[b] >= 0) {
            bind[b] = bind[m->alias[b]];
            continue;
        }
        bind[b].offset = 64 * (size_t)(b % 3);
        st = cl->alloc(device[f], bytes_of(m, b) + bind[b].offset, &bind[b].buffer);
        if (st == SW_OK) st = cl->upload(device[f], bind[b].buffer, bind[b].offset, m->data[b], bytes_of(m, b));
    }
    if (st == SW_OK && workspace > 0) st = cl->alloc(device[f], workspace, &bind[m->k.n_buffers].buffer);
    if (st == SW_OK && workspace > 0) st = cl->fill(device[f], bind[m->k.n_buffers].buffer, 0, workspace, 0xff);
    if (st == SW_OK) st = cl->kernel_launch(device[f], built, bind);
    if (st == SW_OK) st = cl->sync(device[f]);
    for (int b = 0; b <= m->k.n_buffers; b++) {
        if (b == m->k.n_buffers || m->alias[b] < 0) {
            if (b < m->k.n_buffers) out[b] = calloc(bytes_of(m, b), 1);
            if (b < m->k.n_buffers && st == SW_OK)
                st = cl->download(device[f], bind[b].buffer, bind[b].offset, out[b], bytes_of(m, b));
            if (bind[b].buffer) cl->release(device[f], bind[b].buffer);
        } else {
            out[b] = out[m->alias[b]];
        }
    }
    return st;
}

static void free_outputs(const maker *m, void **out)
{
    for (int b = 0; b < m->k.n_buffers; b++)
        if (m->alias[b] < 0) free(out[b]);
}

/* Kernels as the fuser hands them over. */
static sw_status build(const maker *m, int f, void **built, size_t *workspace)
{
    sw__kernel *copy;
    SW_TRY(sw__kernel_clone(&m->k, &copy));
    sw_status st = sw__kernel_analyse(copy);
    if (st == SW_OK) st = cl->kernel_build(device[f], copy, built, workspace);
    sw__kernel_free(copy);
    return st;
}

static sw_status run_on(const maker *m, int f, void **out)
{
    void *built = NULL;
    size_t workspace = 0;
    memset(out, 0, sizeof *out * SW_K_MAX_BUFFERS);
    sw_status st = build(m, f, &built, &workspace);
    if (st == SW_OK) st = cl->build(device[f]);
    if (st == SW_OK) st = launch(m, f, built, workspace, out);
    if (built) cl->kernel_free(device[f], built);
    return st;
}

/* In the form that was chosen. */
static sw_status run_program(const maker *m, int threads, void **out)
{
    (void)threads;
    if (only < 0) fail_msg("no form was chosen");
    return run_on(m, only, out);
}

/* ---- kernels in batches ------------------------------------------------------------------------------------------ */

static void drop(waiting *w)
{
    oracle_free(&w->m, &w->o);
    finish(&w->m);
    free(w);
}

static void run_queue(int f)
{
    void *built[BATCH] = { NULL };
    size_t workspace[BATCH] = { 0 };
    for (int k = 0; k < n_queue; k++)
        if (build(&queue[k]->m, f, &built[k], &workspace[k]) != SW_OK) fail_msg("%s", sw_error());
    if (cl->build(device[f]) != SW_OK) fail_msg("%s", sw_error());
    for (int k = 0; k < n_queue; k++) {
        void *out[SW_K_MAX_BUFFERS];
        waiting *const w = queue[k];
        const sw_status st = launch(&w->m, f, built[k], workspace[k], out);
        if (w->o.bad) assert_int_equal(st, SW_ERR_DATA);
        else if (st != SW_OK) fail_msg("%s", sw_error());
        else compare_outputs(w, out, f);
        free_outputs(&w->m, out);
        cl->kernel_free(device[f], built[k]);
    }
}

static void flush_queue(void)
{
    for (int f = 0; f < 2; f++) run_queue(f);
    while (n_queue > 0) drop(queue[--n_queue]);
}

/* Keeps a copy, for the next batch. A device's compiler takes its time: of many alike, one in so many is taken. */
static void check_within(const maker *m, double tolerance, bool cancels)
{
    if (n_checks++ % one_in != 0) return;
    waiting *const w = malloc(sizeof *w);
    w->m = *m;
    w->m.k.inst = w->m.inst;
    w->tolerance = tolerance;
    w->cancels = cancels;
    for (int b = 0; b < m->k.n_buffers; b++) {
        w->m.data[b] = m->alias[b] >= 0 ? w->m.data[m->alias[b]] : malloc(bytes_of(m, b));
        if (m->alias[b] < 0) memcpy(w->m.data[b], m->data[b], bytes_of(m, b));
    }
    evaluate(&w->m, &w->o);
    queue[n_queue++] = w;
    if (n_queue == BATCH) flush_queue();
}

/* OpenCL's own functions are good to some ulps. */
static void check(const maker *m, double tolerance)
{
    check_within(m, tolerance, false);
}

/* Of all that are bad, any may be the first: those of two indices, each of which 65 elements share. */
static void check_bad_index(void)
{
    long at = 0;
    int value = 0;
    const char *const text = strstr(sw_error(), "'test': index[");
    // NOLINTNEXTLINE(cert-err34-c): two numbers that this library printed
    if (!text || sscanf(text, "'test': index[%ld] is %d, outside 0 to 99", &at, &value) != 2) fail_msg("%s", sw_error());
    if (!(value == 100 && at / 65 == 20) && !(value == -1 && at / 65 == 30)) fail_msg("%s", sw_error());
}

#include "test_tile_cases.h"

/* ---- golden texts ------------------------------------------------------------------------------------------------ */

static void golden(const char *name, const maker *m)
{
    static const sw__target target[2] = {
        { .lang = SW_LANG_CUDA, .fp64 = true, .max_group = 1024, .max_local = { 1024, 1024, 64 }, .local_bytes = 49152,
          .units = 60, .width = 32 },
        { .lang = SW_LANG_OPENCL, .serial = true, .fp64 = true, .max_group = 1024, .max_local = { 1024, 1024, 1024 },
          .local_bytes = 65536, .units = 8, .width = 16 },
    };
    for (int f = 0; f < 2; f++) {
        sw__emitted e, again;
        sw__kernel other = m->k;
        other.inst = (sw__inst *)(uintptr_t)m->inst;
        strcpy(other.name, "another");
        assert_int_equal(sw__emit(&m->k, &target[f], "sw_k", &e), SW_OK);
        assert_int_equal(sw__emit(&other, &target[f], "sw_k", &again), SW_OK);
        assert_string_equal(e.text.s, again.text.s);
        for (int s = 0; s < e.n_stages; s++)
            sw__text_add(&e.text, "\n/* %s: %u groups of %u x %u */\n", e.stage[s].entry, e.stage[s].groups[0],
                         e.stage[s].local[0], e.stage[s].local[1]);
        char path[512], have[16384] = "";
        snprintf(path, sizeof path, "%s/golden_kernels/%s.%s", SWOOP_TEST_DATA, name, f ? "serial.cl" : "cu");
        FILE *const file = fopen(path, getenv("SWOOP_GOLDEN_WRITE") ? "w" : "r");
        if (!file) fail_msg("%s cannot be opened", path);
        if (getenv("SWOOP_GOLDEN_WRITE")) fputs(e.text.s, file);
        else {
            have[fread(have, 1, sizeof have - 1, file)] = '\0';
            assert_string_equal(e.text.s, have);
        }
        fclose(file);
        sw__text_free(&e.text);
        sw__text_free(&again.text);
    }
}

static void test_golden_pointwise(void **state)
{
    (void)state;
    maker m;
    const int64_t extent[3] = { 6, 30, 64 };
    begin(&m, 3, extent, 0);
    const int64_t padded[3] = { 28 * 64, 64, 1 };
    sw__inst load = access_inst(&m, SW_K_LOAD, buffer(&m, SW_F16, 6 * 28 * 64), -64, padded);
    load.masked = 1;
    load.lo[1] = 1;
    load.hi[1] = 29;
    const int x = add(&m, load), w = load_dense(&m, SW_F32, 4);
    const int y = calc(&m, SW_OP_ADD, SW_F32, calc(&m, SW_OP_TANH, SW_F32, x, -1, -1), w, -1);
    store_dense(&m, SW_BF16, ALL, calc(&m, SW_OP_MAX, SW_F32, y, constant(&m, SW_F32, -0.1), -1));
    golden("pointwise", &m);
    finish(&m);
}

static void test_golden_row(void **state)
{
    (void)state;
    maker m;
    const int64_t extent[2] = { 512, 1000 };
    begin(&m, 2, extent, 2);
    const int x = load_dense(&m, SW_F32, ALL);
    const int top = reduce(&m, SW_OP_REDUCE_MAX, x);
    const int e = calc(&m, SW_OP_EXP, SW_F32, calc(&m, SW_OP_SUB, SW_F32, x, top, -1), -1, -1);
    const int sum = reduce(&m, SW_OP_REDUCE_SUM, e);
    store_dense(&m, SW_F32, ALL, calc(&m, SW_OP_DIV, SW_F32, e, sum, -1));
    store_dense(&m, SW_F32, 1, calc(&m, SW_OP_LOG, SW_F32, sum, -1, -1));
    golden("row", &m);
    finish(&m);
}

static void test_golden_column(void **state)
{
    (void)state;
    maker m;
    const int64_t extent[2] = { 100352, 100 };
    begin(&m, 2, extent, 1);
    const int x = load_dense(&m, SW_F32, ALL), mean = load_dense(&m, SW_F32, 2);
    const int d = calc(&m, SW_OP_SUB, SW_F32, x, mean, -1);
    const int sum = reduce(&m, SW_OP_REDUCE_SUM, calc(&m, SW_OP_MUL, SW_F32, d, d, -1));
    const int top = reduce(&m, SW_OP_REDUCE_MAX, x);
    store_dense(&m, SW_F32, 2, calc(&m, SW_OP_MUL, SW_F32, sum, constant(&m, SW_F32, 1.0 / 100352), -1));
    store_dense(&m, SW_F32, 2, top);
    golden("column", &m);
    finish(&m);
}

static void test_golden_full(void **state)
{
    (void)state;
    maker m;
    const int64_t n = 4000000;
    begin(&m, 1, &n, 1);
    const int64_t one = 1, none = 0;
    const int index = add(&m, access_inst(&m, SW_K_LOAD, buffer(&m, SW_I64, 1), 0, &one));
    sw__inst gather = access_inst(&m, SW_K_GATHER, buffer(&m, SW_F32, 10), 0, &none);
    gather.a = index;
    gather.stride_x = 1;
    gather.extent_x = 10;
    const int sum = reduce(&m, SW_OP_REDUCE_SUM, add(&m, gather));
    store_dense(&m, SW_F32, 0, calc(&m, SW_OP_SQRT, SW_F32, sum, -1, -1));
    golden("full", &m);
    finish(&m);
}

static void test_unsupported(void **state)
{
    (void)state;
    maker m;
    const int64_t n = 10;
    const sw__target t = { .lang = SW_LANG_OPENCL, .max_group = 256, .max_local = { 256, 256, 64 },
                           .local_bytes = 32768 };
    sw__emitted e;
    begin(&m, 1, &n, 0);
    store_dense(&m, SW_F64, ALL, load_dense(&m, SW_F64, ALL));
    assert_int_equal(sw__emit(&m.k, &t, "sw_k", &e), SW_ERR_UNSUPPORTED);
    finish(&m);
    const int64_t empty = 0;
    begin(&m, 1, &empty, 0);
    store_dense(&m, SW_F32, ALL, load_dense(&m, SW_F32, ALL));
    assert_int_equal(sw__emit(&m.k, &t, "sw_k", &e), SW_OK);
    assert_int_equal(e.n_stages, 0);
    sw__text_free(&e.text);
    finish(&m);
}

/* ---- on a device ------------------------------------------------------------------------------------------------- */

static void run_cases(void (*const *test)(void **), size_t n, unsigned of_many)
{
    if (!device[0]) skip();
    const char *const wish = getenv("SWOOP_EMIT_STRIDE"); /* 1: all */
    one_in = wish ? SW_MAX((unsigned)strtoul(wish, NULL, 10), 1u) : of_many;
    for (size_t k = 0; k < n; k++) test[k](NULL);
    flush_queue();
}

static void test_device_ops(void **state)
{
    (void)state;
    void (*const test[])(void **) = { test_ops, test_casts, test_narrow, test_memory_types, test_where };
    run_cases(test, SW_COUNT(test), 21);
}

static void test_device_points(void **state)
{
    (void)state;
    void (*const test[])(void **) = { test_combinations, test_adam, test_transpose, test_pad, test_gather_elements,
                                      test_index_and_random };
    run_cases(test, SW_COUNT(test), 6);
}

static void test_device_reductions(void **state)
{
    (void)state;
    void (*const test[])(void **) = { test_reductions, test_softmax, test_layer_norm, test_column_sums };
    run_cases(test, SW_COUNT(test), 33);
}

static void test_device_both(void **state)
{
    (void)state;
    void (*const test[])(void **) = { test_gather, test_long_sums };
    for (only = 0; only < 2; only++) run_cases(test, SW_COUNT(test), 1);
    only = -1;
}

static void test_device_random(void **state)
{
    (void)state;
    void (*const test[])(void **) = { test_random_kernels };
    run_cases(test, SW_COUNT(test), 39);
}

static int open_devices(void **state)
{
    (void)state;
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    cl = sw__backend_find(wish && strncmp(wish, "cuda", 4) == 0 ? "cuda" : "opencl");
    const int index = wish ? (int)strtol(wish + strcspn(wish, "0123456789"), NULL, 10) : 0;
    for (int f = 0; f < 2 && cl && cl->count() > index; f++) {
        setenv("SWOOP_OPENCL_SERIAL", serial[f], 1);
        if (cl->open(index, NULL, &device[f]) != SW_OK) return -1;
    }
    if (!device[0])
        fprintf(stderr, "skipped on devices: %s\n", cl ? "there is no such device" : "built without");
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++)
        if (device[f]) cl->close(device[f]);
    return 0;
}

int main(void)
{
    sw__rng_init(&rng, 1, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_pointwise), cmocka_unit_test(test_golden_row),
        cmocka_unit_test(test_golden_column), cmocka_unit_test(test_golden_full), cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_device_ops), cmocka_unit_test(test_device_points),
        cmocka_unit_test(test_device_reductions), cmocka_unit_test(test_device_both),
        cmocka_unit_test(test_device_random),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
