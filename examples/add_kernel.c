/* add_kernel.c: the lowest level: device memory by hand, an own kernel compiled for the device, a launch, the copy
 * back. Usage: add_kernel [DEVICE [N]]: sum = a + b over N elements, by default on the best device, a million of
 * them. */
/* check: auto 1000003 */
/* valgrind: cpu 1003 */
#include <stdio.h>
#include <stdlib.h>
#include <swoop/swoop.h>

/* For GPUs, in swoop's dialect: one work-item adds one element. The last group may be too large for what is left. */
static const char add_text[] =
    "KERNEL(add)(BUF(a), BUF(b), BUF(sum), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i < n) AT(float, sum)[i] = AT(float, a)[i] + AT(float, b)[i];\n"
    "}\n";

/* For the cpu: the same parameters, in the same order. It does work-items begin to end, from several threads at
 * once. */
static void add(const sw_host_call *c)
{
    const float *const a = c->arg[0].data, *const b = c->arg[1].data;
    float *const sum = c->arg[2].data;
    const int64_t n = c->arg[3].i64;
    for (int64_t i = c->begin; i < c->end && i < n; i++) sum[i] = a[i] + b[i];
}

enum { LOCAL = 256 }; /* work-items of a group */

/* x[0] and x[1] go to the device, their sum comes back as x[2]. */
static sw_status add_on(sw_device *device, float *const x[3], int64_t n)
{
    const sw_kernel_source source = { .name = "add", .portable = add_text, .host = add };
    const size_t bytes = (size_t)n * sizeof(float);
    sw_buffer *buffer[3] = { NULL, NULL, NULL };
    sw_kernel *kernel = NULL;

    sw_status st = sw_kernel_new(device, &source, &kernel); /* what the compiler complains of is the error */
    for (int i = 0; i < 3 && st == SW_OK; i++) st = sw_buffer_new(device, bytes, &buffer[i]);
    for (int i = 0; i < 2 && st == SW_OK; i++) st = sw_buffer_write(buffer[i], 0, x[i], bytes);
    if (st == SW_OK) {
        const sw_arg args[] = { sw_arg_buffer(buffer[0]), sw_arg_buffer(buffer[1]), sw_arg_buffer(buffer[2]),
                                sw_arg_i64(n) };
        const sw_launch launch = { .groups = { sw_groups(n, LOCAL) }, .local = { LOCAL }, .args = args, .n_args = 4 };
        st = sw_kernel_launch(kernel, &launch);
    }
    if (st == SW_OK) st = sw_buffer_read(buffer[2], 0, x[2], bytes); /* waits for the launch */
    for (int i = 0; i < 3; i++) sw_buffer_free(buffer[i]);
    sw_kernel_free(kernel);
    return st;
}

static int64_t count_wrong(float *const x[3], int64_t n)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += x[2][i] != x[0][i] + x[1][i];
    return wrong;
}

int main(int argc, char **argv)
{
    const char *const id = argc > 1 ? argv[1] : "auto";
    const int64_t n = argc > 2 ? strtoll(argv[2], NULL, 10) : 1000000;
    if (n < 1) {
        fprintf(stderr, "usage: add_kernel [DEVICE [N]], N at least 1\n");
        return 2;
    }
    float *const x[3] = { calloc((size_t)n, sizeof(float)), calloc((size_t)n, sizeof(float)),
                          calloc((size_t)n, sizeof(float)) };
    sw_device *device = NULL;
    int failed = 1;

    if (x[0] == NULL || x[1] == NULL || x[2] == NULL) {
        fprintf(stderr, "add_kernel: out of memory\n");
    } else {
        for (int64_t i = 0; i < n; i++) {
            x[0][i] = 0.5f * (float)(i % 1000);
            x[1][i] = 1.0f - 0.25f * (float)(i % 77);
        }
        sw_status st = sw_device_open(id, NULL, &device);
        if (st == SW_OK) st = add_on(device, x, n);
        if (st == SW_OK) {
            const int64_t wrong = count_wrong(x, n);
            printf("%lld elements added on %s (%s), %lld of them wrong\n", (long long)n, sw_device_info(device)->id,
                   sw_device_info(device)->name, (long long)wrong);
            failed = wrong > 0;
        } else {
            fprintf(stderr, "add_kernel: %s\n", sw_error());
        }
    }
    sw_device_close(device);
    for (int i = 0; i < 3; i++) free(x[i]);
    return failed;
}
