/* test_tile.c: the tile interpreter against a point-by-point evaluation of the same kernels in double: every op and
 * type, every skeleton, random kernels, at every instruction set of this machine and with one and two threads. */
/* timeout: 600 */
#include "kernel_case.h"

#include "kernel/cpuid.h"
#include "kernel/tile.h"

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static const char *const levels[] = { "base", "avx2", "avx512" };

static void print_program(const maker *m, const char *level, int threads)
{
    sw__text text = { 0 };
    sw__kernel *copy;
    sw__tile_program *p;
    size_t bytes;
    if (sw__kernel_clone(&m->k, &copy) == SW_OK && sw__kernel_analyse(copy) == SW_OK) sw__kernel_print(copy, &text);
    setenv("SWOOP_SIMD", level, 1);
    if (sw__tile_compile(&m->k, threads, &p, &bytes) == SW_OK) {
        sw__tile_print(p, &text);
        sw__tile_free(p);
    }
    sw__kernel_free(copy);
    for (int b = 0; b < m->k.n_buffers; b++) {
        if (m->alias[b] >= 0) fprintf(stderr, "b%d has the memory of b%d\n", b, m->alias[b]);
    }
    fprintf(stderr, "%s, %d threads\n%s\n", level, threads, text.s ? text.s : "");
    sw__text_free(&text);
}

static void compare_outputs(const maker *m, const oracle *o, void *const *got, double tolerance, bool cancels,
                            const char *level,
                            int threads)
{
    for (int b = 0; b < m->k.n_buffers; b++) {
        bool written = false;
        for (int j = 0; j < m->k.n_insts; j++) written |= m->inst[j].kop == SW_K_STORE && m->inst[j].buffer == b;
        const unsigned t = m->k.buffer[b].dtype;
        for (int64_t e = 0; written && e < m->elements[b]; e++) {
            const number x = read_number(got[b], t, e), y = read_number(o->out[b], t, e);
            if (close_enough(x, y, t, tolerance, cancels ? o->scale : 0)) continue;
            print_program(m, level, threads);
            if (is_float(t)) fail_msg("b%d[%lld] is %.9g, not %.9g", b, (long long)e, x.f, y.f);
            else fail_msg("b%d[%lld] is %lld, not %lld", b, (long long)e, (long long)x.i, (long long)y.i);
        }
    }
}

/* Runs a copy of the buffers through the interpreter; outputs in out[]. */
static sw_status run_program(const maker *m, int threads, void **out)
{
    sw__tile_program *p;
    size_t bytes;
    for (int b = 0; b < m->k.n_buffers; b++) {
        const size_t size = (size_t)(m->elements[b] + 1) * sw_dtype_size((sw_dtype)m->k.buffer[b].dtype);
        out[b] = m->alias[b] >= 0 ? out[m->alias[b]] : aligned_alloc(64, (size + 63) / 64 * 64);
        if (m->alias[b] < 0) memcpy(out[b], m->data[b], size);
    }
    sw_status st = sw__tile_compile(&m->k, threads, &p, &bytes);
    if (st != SW_OK) return st;
    void *const workspace = malloc(bytes + 1);
    memset(workspace, 0xff, bytes + 1); /* f32 NaN */
    st = sw__tile_run(p, out, workspace);
    free(workspace);
    sw__tile_free(p);
    return st;
}

static void free_outputs(const maker *m, void **out)
{
    for (int b = 0; b < m->k.n_buffers; b++) {
        if (m->alias[b] < 0) free(out[b]);
    }
}

/* At every level, with 1 and 2 threads: right, and the same bits for both. */
static void check_within(const maker *m, double tolerance, bool cancels)
{
    oracle o;
    evaluate(m, &o);
    for (size_t l = 0; l < SW_COUNT(levels); l++) {
        void *out[2][SW_K_MAX_BUFFERS];
        setenv("SWOOP_SIMD", levels[l], 1);
        if (strcmp(sw__simd_name(sw__simd_level()), levels[l]) != 0) continue;
        for (int threads = 1; threads <= 2; threads++) {
            const sw_status st = run_program(m, threads, out[threads - 1]);
            if (st != (o.bad ? SW_ERR_DATA : SW_OK)) print_program(m, levels[l], threads);
            if (o.bad) assert_int_equal(st, SW_ERR_DATA);
            else if (st != SW_OK) fail_msg("%s", sw_error());
            else compare_outputs(m, &o, out[threads - 1], tolerance, cancels, levels[l], threads);
        }
        for (int b = 0; b < m->k.n_buffers && !o.bad; b++)
            assert_memory_equal(out[0][b], out[1][b],
                                (size_t)m->elements[b] * sw_dtype_size((sw_dtype)m->k.buffer[b].dtype));
        free_outputs(m, out[0]);
        free_outputs(m, out[1]);
    }
    oracle_free(m, &o);
    unsetenv("SWOOP_SIMD");
}

static void check(const maker *m, double tolerance) { check_within(m, tolerance, false); }

static void check_bad_index(void)
{
    assert_string_equal(sw_error(), "index 100 at position 1300 is outside 0 to 99");
}

#include "test_tile_cases.h"

int main(void)
{
    sw__rng_init(&rng, 1, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops), cmocka_unit_test(test_casts), cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_memory_types),
            cmocka_unit_test(test_where),
        cmocka_unit_test(test_combinations), cmocka_unit_test(test_adam), cmocka_unit_test(test_transpose),
            cmocka_unit_test(test_pad), cmocka_unit_test(test_gather),
        cmocka_unit_test(test_gather_elements), cmocka_unit_test(test_index_and_random),
            cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_softmax), cmocka_unit_test(test_layer_norm), cmocka_unit_test(test_column_sums),
        cmocka_unit_test(test_long_sums), cmocka_unit_test(test_random_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
