/* test_null.c: the checks of device null, one fault after the other, and that ref refuses what it cannot do.
 * Programs on null are compiled and run for every op by test_ops.c. */
#include "backend/null/null.h"

#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

extern const sw__backend sw__backend_null, sw__backend_ref;

static const sw__backend *const null = &sw__backend_null;
static void *dev;
static uint64_t faults_before;

static int open_null(void **state)
{
    (void)state;
    setenv("SWOOP_LOG", "error", 1);
    faults_before = sw__null_faults();
    return null->open(0, NULL, &dev) != SW_OK;
}

static int close_null(void **state)
{
    (void)state;
    null->close(dev);
    return 0;
}

static uint64_t faults(void)
{
    return sw__null_faults() - faults_before;
}

static void test_memory(void **state)
{
    (void)state;
    void *buffer = NULL;
    char host[16] = "left from before";
    assert_int_equal(null->alloc(dev, 16, &buffer), SW_OK);
    assert_int_equal(null->upload(dev, buffer, 0, host, 16), SW_OK);
    assert_int_equal(null->fill(dev, buffer, 8, 8, 1), SW_OK);
    assert_int_equal(null->download(dev, buffer, 4, host, 12), SW_OK);
    assert_int_equal(host[0], 0);
    assert_int_equal(host[11], 0);
    assert_int_equal(host[12], 'f');
    assert_int_equal(null->sync(dev), SW_OK);
    assert_null(null->host_pointer);
    assert_int_equal(faults(), 0);

    assert_int_equal(null->upload(dev, buffer, 1, host, 16), SW_ERR_DEVICE);
    assert_int_equal(null->download(dev, buffer, 17, host, 0), SW_ERR_DEVICE);
    assert_int_equal(null->fill(dev, buffer, SIZE_MAX, 2, 0), SW_ERR_DEVICE);
    assert_int_equal(null->upload(dev, buffer, 0, NULL, 1), SW_ERR_DEVICE);
    assert_int_equal(null->upload(dev, host, 0, host, 1), SW_ERR_DEVICE);
    assert_int_equal(faults(), 5);
    null->release(dev, buffer);
    assert_int_equal(faults(), 5);
    assert_int_equal(null->fill(dev, buffer, 0, 1, 0), SW_ERR_DEVICE);
    assert_non_null(strstr(sw_error(), "after it was released"));
    null->release(dev, buffer);
    assert_int_equal(faults(), 7);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    void *a = NULL, *b = NULL;
    sw_device_properties p = { .usable = false };
    assert_int_equal(null->properties(0, &p), SW_OK);
    assert_int_equal(null->alloc(dev, p.memory_total, &a), SW_OK); /* no memory of the host's is behind it */
    assert_int_equal(null->alloc(dev, 1, &b), SW_ERR_MEMORY);
    null->release(dev, a);
    assert_int_equal(null->alloc(dev, 1, &b), SW_OK);
    null->release(dev, b);
    assert_int_equal(faults(), 0);
}

static void test_leak(void **state)
{
    (void)state;
    void *other = NULL, *buffer = NULL;
    assert_int_equal(null->open(0, NULL, &other), SW_OK);
    assert_int_equal(null->alloc(other, 64, &buffer), SW_OK);
    null->close(other);
    assert_int_equal(faults(), 1);
}

/* y[i] = x[2 i + 1] over 8 elements */
static void test_kernel(void **state)
{
    (void)state;
    sw__inst insts[2] = {
        { .kop = SW_K_LOAD, .dtype = SW_F32, .a = -1, .b = -1, .c = -1, .buffer = 0, .offset = 1, .stride = { 2 } },
        { .kop = SW_K_STORE, .dtype = SW_F32, .a = 0, .b = -1, .c = -1, .buffer = 1, .stride = { 1 } },
    };
    const sw__kernel k = { .rank = 1, .extent = { 8 }, .n_buffers = 2, .n_insts = 2, .inst = insts, .name = "odd",
                           .buffer = { { SW_F32, 0, 1 }, { SW_F32, 1, 0 } } };
    void *x = NULL, *y = NULL, *built = NULL;
    size_t workspace = 99;
    assert_int_equal(null->alloc(dev, 64, &x), SW_OK);
    assert_int_equal(null->alloc(dev, 36, &y), SW_OK);
    assert_int_equal(null->kernel_build(dev, &k, &built, &workspace), SW_OK);
    assert_int_equal(workspace, 0);
    const sw__bind fits[3] = { { x, 0 }, { y, 4 }, { NULL, 0 } }, late[3] = { { x, 0 }, { y, 8 }, { NULL, 0 } };
    const sw__bind swapped[3] = { { y, 0 }, { x, 0 }, { NULL, 0 } };
    assert_int_equal(null->kernel_launch(dev, built, fits), SW_OK);
    assert_int_equal(faults(), 0);
    assert_int_equal(null->kernel_launch(dev, built, late), SW_ERR_DEVICE);
    assert_non_null(strstr(sw_error(), "'odd', tensor 1"));
    assert_int_equal(null->kernel_launch(dev, built, swapped), SW_ERR_DEVICE);
    assert_int_equal(null->op_exec(dev, built, fits), SW_ERR_DEVICE); /* a kernel is no planned op */
    null->kernel_free(dev, built);
    assert_int_equal(null->kernel_launch(dev, built, fits), SW_ERR_DEVICE);
    null->release(dev, x);
    null->release(dev, y);
}

static sw__desc matrix(int64_t rows, int64_t columns)
{
    return (sw__desc){ .dtype = SW_F32, .rank = 2, .dim = { rows, columns }, .stride = { columns, 1 } };
}

static void test_op(void **state)
{
    (void)state;
    const sw__desc in[2] = { matrix(2, 3), matrix(3, 4) }, out = matrix(2, 4);
    sw__op_desc d = { .op = SW_OP_DOT, .name = "here", .n_in = 2, .n_out = 1, .in = in, .out = &out };
    void *buffer = NULL, *plan = NULL;
    size_t workspace = 0;
    assert_int_equal(null->alloc(dev, 512, &buffer), SW_OK);
    assert_int_equal(null->op_plan(dev, &d, &plan, &workspace), SW_OK);
    assert_true(workspace > 0);
    const sw__bind fits[4] = { { buffer, 0 }, { buffer, 24 }, { buffer, 72 }, { buffer, 256 } };
    const sw__bind no_workspace[4] = { { buffer, 0 }, { buffer, 24 }, { buffer, 72 }, { NULL, 0 } };
    assert_int_equal(null->op_exec(dev, plan, fits), SW_OK);
    assert_int_equal(faults(), 0);
    assert_int_equal(null->op_exec(dev, plan, no_workspace), SW_ERR_DEVICE);
    null->op_free(dev, plan);
    null->release(dev, buffer);
    d.op = SW_OP_ADD;
    assert_int_equal(null->op_plan(dev, &d, &plan, &workspace), SW_ERR_UNSUPPORTED);
}

static void test_ref_refuses(void **state)
{
    (void)state;
    const sw__desc in[2] = { matrix(2, 3), matrix(3, 4) };
    sw__desc out = matrix(2, 4);
    void *ref = NULL, *plan = NULL;
    size_t workspace = 0;
    sw__op_desc d = { .op = SW_OP_INPUT, .n_in = 2, .n_out = 1, .in = in, .out = &out };
    assert_int_equal(sw__backend_ref.open(0, NULL, &ref), SW_OK);
    assert_int_equal(sw__backend_ref.op_plan(ref, &d, &plan, &workspace), SW_ERR_UNSUPPORTED);
    d.op = SW_OP_DOT;
    out.stride[0] = 5;
    assert_int_equal(sw__backend_ref.op_plan(ref, &d, &plan, &workspace), SW_ERR_UNSUPPORTED);
    assert_non_null(strstr(sw_error(), "not dense"));
    d.n_in = 99;
    assert_int_equal(sw__backend_ref.op_plan(ref, &d, &plan, &workspace), SW_ERR_ARGUMENT);
    sw__backend_ref.close(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_memory, open_null, close_null),
        cmocka_unit_test_setup_teardown(test_out_of_memory, open_null, close_null),
        cmocka_unit_test_setup_teardown(test_leak, open_null, close_null),
        cmocka_unit_test_setup_teardown(test_kernel, open_null, close_null),
        cmocka_unit_test_setup_teardown(test_op, open_null, close_null),
        cmocka_unit_test(test_ref_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
