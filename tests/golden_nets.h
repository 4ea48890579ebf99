/* golden_nets.h: the networks of tests/golden/NAME.safetensors: twenty steps of PyTorch's each (golden/README.md). A new one is
 * a row here; test_golden.c replays all of them on every device. */
#ifndef GOLDEN_NETS_H
#define GOLDEN_NETS_H

#include "swoop/nn.h"

static inline sw_t golden_bce(sw_t output, sw_t target)
{
    return sw_bce_with_logits_loss(output, target, SW_NONE, SW_REDUCE_MEAN);
}

typedef struct golden_net {
    const char *file, *model;
    int64_t outputs;        /* asked of the model */
    sw_loss_fn loss;
    sw_optimizer optimizer;
    bool command;           /* there is a run file NAME.yaml, too */
} golden_net;

static const golden_net golden_nets[] = {
    {"mlp", "mlp:64", 10, sw_cross_entropy, {.kind = SW_SGD, .lr = 0.05}, true},
    {"lenet", "lenet", 10, sw_cross_entropy, {.kind = SW_ADAM, .lr = 1e-3}, true},
    {"resnet8", "resnet8:8,16,32", 10, sw_cross_entropy,
     {.kind = SW_SGD, .lr = 0.02, .momentum = 0.9, .nesterov = true, .weight_decay = 5e-4}, true},
    {"lstm", "lstm:16,32", 65, sw_cross_entropy, {.kind = SW_RMSPROP, .lr = 2e-3, .alpha = 0.9, .eps = 1e-6, .momentum = 0.5},
     false},
    {"unet", "unet:4,2", 1, golden_bce,
     {.kind = SW_ADAM, .lr = 5e-3, .betas = {0.8, 0.99}, .eps = 1e-6, .weight_decay = 1e-3}, true},
    {"gpt", "gpt:2x2x32", 65, sw_cross_entropy,
     {.kind = SW_ADAMW, .lr = 3e-3, .betas = {0.9, 0.95}, .weight_decay = 0.1, .decay_matrices = true, .clip_norm = 0.5}, false},
};
#define GOLDEN_NETS (sizeof golden_nets / sizeof *golden_nets)

#endif
