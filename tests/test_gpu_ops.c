/* test_gpu_ops.c: the cases of test_ops.c on the GPU backends that the machine has: every op, forward and gradient, within
 * its bound of ref in double. Programs are compiled in batches, so that a device's compiler is called a few dozen times.
 * A device's compiler is slow: taken are the first case of each op, every sixth of the rest as it is written, every
 * 25th of the other ways to run them; SWOOP_TEST_ALL=1 takes all (`make check-kernels`). SWOOP_TEST_DEVICE names
 * another device than opencl:0; without one the test is skipped, and says so. */
#include "ops_device.h"

/* timeout: 1200 */
/* double: SWOOP_TEST_DEVICE=cuda:0 */

static int open_devices(void **state)
{
    (void)state;
    const char *const wish = getenv("SWOOP_TEST_DEVICE"), *const id = wish ? wish : "opencl:0";
    if (sw_device_open("ref", NULL, &ref) != SW_OK) return -1;
    if (sw_device_open(id, NULL, &device) != SW_OK) fprintf(stderr, "skipped: %s\n", sw_error());
    if (wish && !device) return -1;
    batch = calloc(BATCH, sizeof *batch);
    return batch ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    free(batch);
    if (device) write_verdicts(&seen, sw_device_info(device)->backend);
    sw_device_close(device);
    sw_device_close(ref);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_move_reduce_index),
        cmocka_unit_test(test_big),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
