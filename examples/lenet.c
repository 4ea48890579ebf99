/* lenet.c: a network as a C function, trained on images: device, data, trainer, fit, model file.
 * Usage: lenet [DATA [EPOCHS [FOLDER]]], by default: lenet digits 10. Try: lenet fashion-mnist 5 runs/lenet */
/* check: digits 3 runs/lenet */
/* valgrind: digits 1 */
#include <stdio.h>
#include <stdlib.h>
#include <swoop/swoop.h>

/* LeCun et al. 1998, with ReLU. x: [N, 1, H, W]; gives logits [N, 10]. The same function serves training, where
 * sw_trainer_fit adds loss, gradients and updates to the graph, and evaluation. */
static sw_t lenet(sw_t x)
{
    const int64_t pad = sw_dim(x, 2) < 16 ? 2 : 0; /* the 8×8 digits would shrink to nothing without a border */
    sw_t h = sw_avg_pool2d(sw_relu(sw_conv2d(x, 6, .kernel = 5, .pad = 2, .name = "conv1")), .kernel = 2);
    h = sw_avg_pool2d(sw_relu(sw_conv2d(h, 16, .kernel = 5, .pad = pad, .name = "conv2")), .kernel = 2);
    h = sw_relu(sw_linear(sw_flatten(h), 120, .name = "fc1"));
    h = sw_relu(sw_linear(h, 84, .name = "fc2"));
    return sw_linear(h, 10, .name = "fc3");
}

static sw_status on_event(void *context, const sw_event *e)
{
    (void)context;
    if (e->kind == SW_EVENT_EPOCH) {
        printf("epoch %d/%d  loss %.4f  acc %.4f  test_loss %.4f  test_acc %.4f%s\n", (int)e->epoch, (int)e->epochs,
               e->loss, e->accuracy, e->valid.loss, e->valid.accuracy, e->best ? " *" : "");
    }
    return SW_OK; /* anything else ends the fit */
}

/* Both splits, normalised by the training data's mean and standard deviation. */
static sw_status open_data(const char *name, sw_dataset **train, sw_dataset **test)
{
    sw_normalization n = { 0, NULL, NULL };
    sw_status st = sw_dataset_open(name, &(sw_dataset_options){ .split = "train" }, train);
    if (st == SW_OK) st = sw_dataset_open(name, &(sw_dataset_options){ .split = "test" }, test);
    if (st == SW_OK) st = sw_dataset_measure(*train, &n);
    if (st == SW_OK) st = sw_dataset_normalize(*train, &n);
    if (st == SW_OK) st = sw_dataset_normalize(*test, &n);
    sw_normalization_free(&n);
    return st;
}

int main(int argc, char **argv)
{
    const char *const data = argc > 1 ? argv[1] : "digits", *const folder = argc > 3 ? argv[3] : NULL;
    const int64_t epochs = argc > 2 ? strtol(argv[2], NULL, 10) : 10;
    sw_device *device = NULL;
    sw_dataset *train = NULL, *test = NULL;
    sw_trainer *trainer = NULL;
    sw_fit_result result = { .epochs = 0 };

    const sw_trainer_options options = {
        .model = lenet, .loss = sw_cross_entropy, .optimizer = sw_adamw(.lr = 2e-3), .batch = 64
    };
    sw_status st = sw_device_open("auto", NULL, &device); /* or "cpu", as `swoop devices` lists them */
    if (st == SW_OK) st = open_data(data, &train, &test);
    if (st == SW_OK) st = sw_trainer_new(device, &options, &trainer);
    if (st == SW_OK) {
        const sw_fit_options fit = { .epochs = epochs, .valid = test, .checkpoint = folder, .event = on_event };
        st = sw_trainer_fit(trainer, train, &fit, &result);
    }
    if (st == SW_OK) {
        printf("%s on %s: accuracy %.4f after %.1f s\n", data, sw_device_info(device)->id, result.valid.accuracy,
               result.seconds);
        if (folder != NULL) printf("the model: %s/best.safetensors\n", folder);
    } else {
        fprintf(stderr, "lenet: %s\n", sw_error());
    }
    sw_trainer_free(trainer);
    sw_dataset_close(test);
    sw_dataset_close(train);
    sw_device_close(device);
    return st == SW_OK ? 0 : 1;
}
