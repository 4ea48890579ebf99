/* test_gpu_limits.c: launches of very many groups: CUDA takes at most 65535 of them along the second and third axis of a
 * grid, so GPU kernels have them along the first. Products and pooling of a large batch have the right values, and no
 * launch is out of bounds. On opencl:0 with its GPU kernels, or SWOOP_TEST_DEVICE; skipped, and said so, where there is none. */
#include "backend/gpu/gpu.h"
#include "exec/exec.h"
#include "swoop/swoop.h"

#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* timeout: 300 */
/* double: SWOOP_TEST_DEVICE=cuda:0 */
/* needs: GPU */

enum { MANY = 66000, OUTPUTS = 8 };

static sw_device *gpu, *cpu;

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s: %s", sw_status_name(st), sw_error());
}

/* Batches of small matrices, a bias, many images, and their gradients; groups of a convolution. */
static sw_graph *many_groups(void)
{
    sw_graph *g = NULL;
    ok(sw_graph_new(&g));
    const sw_t a = sw_input(g, "a", SW_F32, 3, (int64_t[]){ MANY, 2, 3 }), b = sw_input(g, "b", SW_F32, 3, (int64_t[]){ MANY, 3, 1 });
    const sw_t x = sw_input(g, "x", SW_F32, 4, (int64_t[]){ MANY, 1, 3, 2 });
    const sw_t most = sw_max_pool2d(x, .kernel = 2, .stride = 1), mean = sw_avg_pool2d(x, .kernel = 2, .stride = 1);
    const sw_t product = sw_matmul(a, b), wrt[] = { a, b, x };
    sw_t grad[3];
    const sw_t total = sw_add(sw_sum(sw_square(product), SW_ALL_AXES, false), sw_add(sw_sum(sw_square(most), SW_ALL_AXES, false), sw_sum(sw_square(mean), SW_ALL_AXES, false)));
    ok(sw_grad(total, wrt, 3, grad));
    sw_output(product, "product");
    sw_output(most, "most");
    sw_output(mean, "mean");
    sw_output(grad[0], "da");
    sw_output(grad[1], "db");
    sw_output(grad[2], "dx");
    ok(sw_graph_status(g));
    return g;
}

static void set_input(sw_program *p, const char *name, int64_t n)
{
    float *const v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)((i * 7919) % 201 - 100) * 0.0625f;
    ok(sw_program_set(p, sw_program_input(p, name), SW_F32, v, n));
    free(v);
}

static sw_program *run_on(sw_device *d)
{
    sw_program *p = NULL;
    sw_graph *const g = many_groups();
    ok(sw_compile(g, d, NULL, &p));
    sw_graph_free(g);
    set_input(p, "a", (int64_t)MANY * 6);
    set_input(p, "b", (int64_t)MANY * 3);
    set_input(p, "x", (int64_t)MANY * 6);
    ok(sw_program_run(p));
    return p;
}

static void compare(sw_program *p, sw_program *q)
{
    for (int i = 0; i < OUTPUTS; i++) {
        sw_var_info v;
        if (sw_program_output_info(p, i, &v) != SW_OK) break;
        static float have[MANY * 6], want[MANY * 6];
        assert_true(v.elements <= MANY * 6);
        ok(sw_program_get(p, i, SW_F32, have, v.elements));
        ok(sw_program_get(q, i, SW_F32, want, v.elements));
        for (int64_t k = 0; k < v.elements; k++)
            if (!(fabsf(have[k] - want[k]) <= 1e-4f * (1 + fabsf(want[k]))))
                fail_msg("%s[%lld] is %g, not %g", v.name, (long long)k, (double)have[k], (double)want[k]);
    }
}

static void test_many_groups(void **state)
{
    (void)state;
    if (gpu == NULL) skip();
    sw_program *const p = run_on(gpu), *const q = run_on(cpu);
    bool many = false;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const sw__gpu_plan *const plan = p->launches[i].built;
        for (int k = 0; k < plan->n_launches; k++) {
            const uint32_t *const groups = plan->launch[k].groups;
            if (plan->launch[k].call.exec != NULL) continue;
            many = many || groups[0] >= MANY;
            if (groups[1] > 65535 || groups[2] > 65535)
                fail_msg("%s '%s': %u x %u x %u groups", p->launches[i].kind, plan->name, groups[0], groups[1], groups[2]);
        }
    }
    assert_true(many);
    compare(p, q);
    sw_program_free(p);
    sw_program_free(q);
}

static int open_devices(void **state)
{
    (void)state;
    const char *const wish = getenv("SWOOP_TEST_DEVICE");
    setenv("SWOOP_OPENCL_SERIAL", "0", 1);
    if (sw_device_open(wish != NULL ? wish : "opencl:0", NULL, &gpu) != SW_OK) fprintf(stderr, "skipped: %s\n", sw_error());
    if (wish != NULL && gpu == NULL) return -1;
    return sw_device_open("cpu", NULL, &cpu) == SW_OK ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    sw_device_close(gpu);
    sw_device_close(cpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_many_groups) };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
