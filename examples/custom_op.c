/* custom_op.c: an own kernel as an op of a network: written for GPUs and the cpu, with its gradient, checked against
 * differences, then trained. Usage: custom_op [DEVICE [EPOCHS]]: the digits with "squash" as activation. */
/* check: auto 8 */
/* valgrind: cpu 1 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <swoop/swoop.h>

/* y = x / (1 + |x|), which is like tanh without an exponential. Its derivative is 1 / (1 + |x|)^2: forward saves
 * s = 1 / (1 + |x|), so that backward need not divide again. Parameters of the texts and arguments of the functions are
 * the same: inputs, outputs, what is saved, and for backward the gradients of outputs and inputs; n last. */
static const char squash_text[] =
    "KERNEL(squash)(BUF(x), BUF(y), BUF(s), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i >= n) return;\n"
    "    const float v = AT(float, x)[i];\n"
    "    const float inverse = 1.0f / (1.0f + (v < 0.0f ? -v : v));\n"
    "    AT(float, s)[i] = inverse;\n"
    "    AT(float, y)[i] = v * inverse;\n"
    "}\n";
static const char squash_grad_text[] =
    "KERNEL(squash_grad)(BUF(x), BUF(y), BUF(s), BUF(dy), BUF(dx), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i >= n) return;\n"
    "    const float inverse = AT(float, s)[i];\n"
    "    AT(float, dx)[i] = AT(float, dy)[i] * inverse * inverse;\n"
    "}\n";

static void squash(const sw_host_call *c)
{
    const float *const x = c->arg[0].data;
    float *const y = c->arg[1].data, *const s = c->arg[2].data;
    for (int64_t i = c->begin; i < c->end; i++) {
        s[i] = 1.0f / (1.0f + fabsf(x[i]));
        y[i] = x[i] * s[i];
    }
}

static void squash_grad(const sw_host_call *c)
{
    const float *const s = c->arg[2].data, *const dy = c->arg[3].data;
    float *const dx = c->arg[4].data;
    for (int64_t i = c->begin; i < c->end; i++) dx[i] = dy[i] * s[i] * s[i];
}

static sw_op_id squash_op;

static sw_status register_squash(void)
{
    const sw_op_def def = {
        .name = "squash", .n_in = 1, .n_out = 1, .n_saved = 1, .shape = sw_same_shape,
        .forward = { .portable = squash_text, .host = squash },
        .backward = { .portable = squash_grad_text, .host = squash_grad }
    };
    return sw_op_register(&def, &squash_op);
}

/* x: [N, 1, 8, 8] -> logits [N, 10]. The op is a builder like any other. */
static sw_t network(sw_t x)
{
    sw_t h = sw_linear(sw_flatten(x), 64, .name = "fc1");
    h = sw_op_apply(squash_op, &h, 1);
    h = sw_linear(h, 32, .name = "fc2");
    h = sw_op_apply(squash_op, &h, 1);
    return sw_linear(h, 10, .name = "fc3");
}

static sw_status train(sw_device *device, int64_t epochs, sw_fit_result *result)
{
    sw_dataset *train = NULL, *test = NULL;
    sw_trainer *trainer = NULL;
    const sw_trainer_options options = {
        .model = network, .loss = sw_cross_entropy, .optimizer = sw_adamw(.lr = 5e-3), .batch = 64
    };
    sw_status st = sw_dataset_open("digits", &(sw_dataset_options){ .split = "train" }, &train);
    if (st == SW_OK) st = sw_dataset_open("digits", &(sw_dataset_options){ .split = "test" }, &test);
    if (st == SW_OK) st = sw_trainer_new(device, &options, &trainer);
    if (st == SW_OK) {
        const sw_fit_options fit = { .epochs = epochs, .valid = test };
        st = sw_trainer_fit(trainer, train, &fit, result);
    }
    sw_trainer_free(trainer);
    sw_dataset_close(test);
    sw_dataset_close(train);
    return st;
}

int main(int argc, char **argv)
{
    const char *const id = argc > 1 ? argv[1] : "auto";
    const int64_t epochs = argc > 2 ? strtoll(argv[2], NULL, 10) : 20;
    sw_device *device = NULL;
    sw_fit_result result = { .epochs = 0 };

    sw_status st = register_squash();
    if (st == SW_OK) st = sw_device_open(id, NULL, &device);
    if (st == SW_OK) st = sw_op_check(squash_op, device, NULL); /* is backward forward's gradient on this device? */
    if (st == SW_OK) printf("the gradient of squash is right on %s\n", sw_device_info(device)->id);
    if (st == SW_OK) st = train(device, epochs, &result);
    if (st == SW_OK)
        printf("digits: accuracy %.4f after %lld epochs, %.1f s\n", result.valid.accuracy, (long long)epochs,
               result.seconds);
    else
        fprintf(stderr, "custom_op: %s\n", sw_error());
    sw_device_close(device);
    return st == SW_OK ? 0 : 1;
}
