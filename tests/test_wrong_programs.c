/* test_wrong_programs.c: programs with one mistake each. The message of every one names what refused it (the op, the
 * layer, the call), the value (its name), the shapes or figures that met, and what would fit. What one op refuses is
 * told word for word in graph_cases.def; here are the mistakes that people make. SWOOP_SHOW=1 prints all messages. */
#include "io_test.h"
#include "swoop/swoop.h"
#include <math.h>

/* ---- short names for what programs begin with -------------------------------------------------------------------- */

#define DIMS(...) (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ }
#define L(...) (const int64_t[]){ __VA_ARGS__ }
#define X(...) sw_input(g, "x", SW_F32, DIMS(__VA_ARGS__))
#define Y(...) sw_input(g, "y", SW_F32, DIMS(__VA_ARGS__))
#define W(...) sw_input(g, "w", SW_F32, DIMS(__VA_ARGS__))
#define I(...) sw_input(g, "i", SW_I64, DIMS(__VA_ARGS__))
#define SCALAR(name) sw_input(g, name, SW_F32, 0, NULL)
#define PAIR(a, b) (sw_t[]){ a, b }, 2

typedef struct wrong {
    const char *name;
    sw_status (*run)(sw_graph *g, sw_device *d);
    const char *texts[5]; /* what refused it, the values, what would fit */
} wrong;

/* A wrong value: the graph has the error. */
#define BUILD(name, ...)                                                                                               \
    static sw_status build_##name(sw_graph *g, sw_device *d)                                                           \
    {                                                                                                                  \
        (void)d;                                                                                                       \
        if (sw_valid(__VA_ARGS__)) fail_msg("%s: it was not refused", #name);                                          \
        return sw_graph_status(g);                                                                                     \
    }

/* ---- operands that do not go together ---------------------------------------------------------------------------- */

static const sw_conv_options stride_minus = { .stride = { 1, -2 } }, groups_3 = { .groups = 3 };
static const sw_pool_options pool_none, pool_9 = { .kernel = { 9, 9 } }, pool_pad = { .kernel = { 2, 2 },
                                                                                      .pad_lo = { 2, 0 } };

BUILD(add, sw_add(X(2, 3), Y(4, 3)))
BUILD(add_types, sw_mul(X(2), I(2)))
BUILD(none, sw_sub(X(2), SW_NONE))
BUILD(where, sw_where(X(2), Y(2), W(2)))
BUILD(not_float, sw_not(X(2, 5)))
BUILD(exp_int, sw_exp(I(3)))
BUILD(matmul, sw_matmul(X(2, 3), Y(4, 5)))
BUILD(matmul_batch, sw_matmul(X(2, 3, 4), Y(5, 4, 6)))
BUILD(matmul_scalar, sw_matmul(X(2, 3), SCALAR("s")))
BUILD(linear_op, sw_linear_op(X(8, 16), W(16, 4), SW_NONE))
BUILD(conv_channels, sw_conv_op(X(1, 3, 8, 8), W(4, 2, 3, 3), SW_NONE, NULL))
BUILD(conv_groups, sw_conv_op(X(1, 4, 8, 8), W(6, 1, 3, 3), SW_NONE, &groups_3))
BUILD(conv_kernel, sw_conv_op(X(1, 3, 4, 4), W(4, 3, 5, 5), SW_NONE, NULL))
BUILD(conv_rank, sw_conv_op(X(3, 8), W(4, 3, 3, 3), SW_NONE, NULL))
BUILD(conv_weight_rank, sw_conv_op(X(1, 3, 8, 8), W(4, 3, 3), SW_NONE, NULL))
BUILD(conv_bias, sw_conv_op(X(1, 3, 8, 8), W(4, 3, 3, 3), Y(3), NULL))
BUILD(conv_stride, sw_conv_op(X(1, 3, 8, 8), W(4, 3, 3, 3), SW_NONE, &stride_minus))
BUILD(pool_none, sw_max_pool_op(X(1, 3, 8, 8), &pool_none))
BUILD(pool_large, sw_max_pool_op(X(1, 3, 8, 8), &pool_9))
BUILD(pool_pad, sw_avg_pool_op(X(1, 3, 8, 8), &pool_pad))
BUILD(layer_norm, sw_layer_norm_op(X(4, 10), W(9), Y(9), 1, 1e-5))
BUILD(batch_norm, sw_batch_norm_op(X(4, 10, 2), W(2), Y(2), 1e-5, NULL, NULL))
BUILD(embedding, sw_embedding_op(W(100, 8), X(4)))
BUILD(gather, sw_gather(X(5, 3), I(2, 4), 0))
BUILD(gather_type, sw_gather(X(5, 3), Y(2, 3), 0))
BUILD(scatter, sw_scatter_add(X(5, 3), I(2, 3), Y(3, 3), 0))

static sw_status two_graphs(sw_graph *g, sw_device *d)
{
    sw_graph *other;
    (void)d;
    OK(sw_graph_new(&other));
    sw_add(X(2), sw_const(other, SW_F32, 1));
    sw_graph_free(other);
    return sw_graph_status(g);
}

static const wrong of_operands[] = {
    { "add", build_add, { "add", "'x' f32[2,3]", "'y' f32[4,3]", "equal or 1" } },
    { "add_types", build_add_types, { "mul", "'x' f32[2]", "'i' i64[2]", "sw_cast one" } },
    { "two_graphs", two_graphs, { "add", "operand 2", "'x' f32[2]", "two graphs do not mix" } },
    { "none", build_none, { "sub", "operand 2", "'x' f32[2]", "SW_NONE" } },
    { "where", build_where, { "where", "'x' f32[2]", "bool", "a comparison" } },
    { "not_float", build_not_float, { "sw_not", "'x' f32[2,5]", "takes a bool", "sw_ne" } },
    { "exp_int", build_exp_int, { "exp", "'i' i64[3]", "floating-point", "sw_cast(x, SW_F32)" } },
    { "matmul", build_matmul, { "matmul", "'x' f32[2,3]", "'y' f32[4,5]", "must equal the last but one" } },
    { "matmul_batch", build_matmul_batch, { "matmul", "'x' f32[2,3,4]", "'y' f32[5,4,6]", "equal or 1" } },
    { "matmul_scalar", build_matmul_scalar, { "matmul", "'s' f32[]", "is a scalar", "sw_mul" } },
    { "linear_op", build_linear_op, { "matmul", "'x' f32[8,16]", "'w' f32[16,4]", "a weight [N, K]" } },
    { "conv_channels", build_conv_channels, { "conv", "'x' f32[1,3,8,8]", "'w' f32[4,2,3,3]",
                                              "must have 3 in axis 1" } },
    { "conv_groups", build_conv_groups, { "conv", "'x' f32[1,4,8,8]", "'w' f32[6,1,3,3]",
                                          "must be multiples of groups = 3" } },
    { "conv_kernel", build_conv_kernel, { "conv", "'x' f32[1,3,4,4]", "'w' f32[4,3,5,5]", "padding" } },
    { "conv_rank", build_conv_rank, { "conv", "'x' f32[3,8]", "[N, C, spatial" } },
    { "conv_weight_rank", build_conv_weight_rank, { "conv", "'w' f32[4,3,3]", "rank 3", "4 is wanted" } },
    { "conv_bias", build_conv_bias, { "conv", "'y' f32[3]", "shape [4]", "one bias for each output channel" } },
    { "conv_stride", build_conv_stride, { "conv", "'x' f32[1,3,8,8]", "stride -2", "at least 1" } },
    { "pool_none", build_pool_none, { "max_pool", "'x' f32[1,3,8,8]", "kernel 0", "at least 1" } },
    { "pool_large", build_pool_large, { "max_pool", "'x' f32[1,3,8,8]", "window spans 9", "a smaller one" } },
    { "pool_pad", build_pool_pad, { "avg_pool", "'x' f32[1,3,8,8]", "window of 2", "less than the window" } },
    { "layer_norm", build_layer_norm, { "layer_norm", "'w' f32[9]", "shape [10]", "normalised over" } },
    { "batch_norm", build_batch_norm, { "batch_norm", "'w' f32[2]", "shape [10]", "channel" } },
    { "embedding", build_embedding, { "embedding", "'x' f32[4]", "i32 or i64", "sw_cast" } },
    { "gather", build_gather, { "gather", "'i' i64[2,4]", "'x' f32[5,3]", "only in axis 0" } },
    { "gather_type", build_gather_type, { "gather", "'y' f32[2,3]", "i32 or i64", "sw_cast" } },
    { "scatter", build_scatter, { "scatter_add", "'i' i64[2,3]", "'y' f32[3,3]", "must be equal" } },
};

/* ---- axes and shapes --------------------------------------------------------------------------------------------- */

BUILD(reshape, sw_reshape(X(2, 3), DIMS(4, 2)))
BUILD(reshape_holes, sw_reshape(X(2, 3), DIMS(-1, -1)))
BUILD(flatten, sw_flatten(SCALAR("x")))
BUILD(permute, sw_permute(X(2, 3), (const int[]){ 1, 1 }))
BUILD(transpose, sw_transpose(X(2, 3), 0, 2))
BUILD(expand, sw_expand(X(2, 3), DIMS(2, 4)))
BUILD(pad, sw_pad(X(2), L(-1), L(0), NULL, 0))
BUILD(narrow, sw_narrow(X(5), 0, 3, 3))
BUILD(concat, sw_concat(PAIR(X(2, 3), Y(2, 4)), 0))
BUILD(concat_none, sw_add(sw_concat(NULL, 0, 0), X(2)))
BUILD(sum, sw_sum(X(2, 3), SW_AXIS(2), false))
BUILD(mean, sw_mean(I(2, 4), SW_ALL_AXES, false))
BUILD(argmax, sw_argmax(X(2, 0), 1, false))
BUILD(softmax, sw_softmax(X(2, 3), 2))
BUILD(sort, sw_sort(X(2, 3), -3, false))
BUILD(einsum_size, sw_einsum("ij,jk->ik", PAIR(X(2, 3), Y(4, 5))))
BUILD(einsum_rank, sw_einsum("ijk,k->i", PAIR(X(2, 3), Y(3))))
BUILD(einsum_terms, sw_einsum("ij->i", PAIR(X(2, 3), Y(3))))
BUILD(einsum_output, sw_einsum("ij->ik", (sw_t[]){ X(2, 3) }, 1))
BUILD(einsum_letter, sw_einsum("i2->i", (sw_t[]){ X(2, 3) }, 1))
BUILD(stack, sw_stack(PAIR(X(2, 3), Y(3, 2)), 0))
BUILD(tile, sw_tile(X(2, 3), DIMS(2)))
BUILD(roll, sw_roll(X(2, 3), 1, 5))
BUILD(tril, sw_tril(X(3), 0))
BUILD(reflect, sw_pad_with(X(1, 4), L(0, 4), L(0, 0), SW_PAD_REFLECT))
BUILD(one_hot, sw_one_hot(X(4), 3, SW_F32))
BUILD(masked_fill, sw_masked_fill(X(4), Y(4), 0))
BUILD(index_select, sw_index_select(X(4, 2), I(2, 2), 0))
BUILD(gather_nd, sw_gather_nd(X(4, 2), I(5, 3)))
BUILD(scatter_nd, sw_scatter_nd_add(X(4, 2), I(5, 1), Y(5, 3)))
BUILD(norm, sw_norm(I(3), 2, SW_ALL_AXES, false))
BUILD(frame, sw_frame(X(2, 5), 8, 2))
BUILD(log_mel, sw_log_mel(X(2, 100), (sw_stft_options){ .n_fft = 400 }, (sw_mel_options){ .sample_rate = 16000,
                                                                                          .n_mels = 8 }))
BUILD(mel, sw_log_mel(X(2, 100), (sw_stft_options){ .n_fft = 16 }, (sw_mel_options){ .sample_rate = 16000 }))

static sw_status topk(sw_graph *g, sw_device *d)
{
    sw_t values;
    (void)d;
    sw_topk(X(2, 3), 4, 1, true, &values, NULL);
    return sw_graph_status(g);
}

static sw_status split(sw_graph *g, sw_device *d)
{
    sw_t part[2];
    (void)d;
    assert_false(sw_split(X(2, 7), L(3, 3), 2, 1, part));
    return sw_graph_status(g);
}

static const wrong of_shapes[] = {
    { "reshape", build_reshape, { "reshape", "'x' f32[2,3]", "[4,2] has 8", "must be equal" } },
    { "reshape_holes", build_reshape_holes, { "reshape", "'x' f32[2,3]", "[-1,-1]", "one -1" } },
    { "flatten", build_flatten, { "sw_flatten", "'x' f32[]", "is a scalar", "an axis to keep" } },
    { "permute", build_permute, { "permute", "'x' f32[2,3]", "axis 1 again", "named once" } },
    { "transpose", build_transpose, { "permute", "'x' f32[2,3]", "no axis 2", "-2 to 1" } },
    { "expand", build_expand, { "expand", "'x' f32[2,3]", "[2,4]", "only axes of size 1" } },
    { "pad", build_pad, { "pad", "'x' f32[2]", "lo -1", "sw_slice" } },
    { "narrow", build_narrow, { "slice", "'x' f32[5]", "3:6", "stop <= 5" } },
    { "concat", build_concat, { "concat", "'x' f32[2,3]", "'y' f32[2,4]", "only differ in axis 0" } },
    { "concat_none", build_concat_none, { "add", "operand 1", "'x' f32[2]", "is no value" } },
    { "sum", build_sum, { "reduce_sum", "'x' f32[2,3]", "axes 0x4", "i below 2" } },
    { "mean", build_mean, { "mean", "'i' i64[2,4]", "floating-point", "sw_cast" } },
    { "argmax", build_argmax, { "argmax", "'x' f32[2,0]", "is empty" } },
    { "softmax", build_softmax, { "softmax", "'x' f32[2,3]", "no axis 2", "-2 to 1" } },
    { "sort", build_sort, { "sort", "'x' f32[2,3]", "no axis -3", "-2 to 1" } },
    { "einsum_size", build_einsum_size, { "einsum", "'ij,jk->ik'", "'y' f32[4,5]", "'j' is 3", "equal or 1" } },
    { "einsum_rank", build_einsum_rank, { "einsum", "names 3 axes", "'x' f32[2,3]", "has 2" } },
    { "einsum_terms", build_einsum_terms, { "einsum", "1 terms for 2 operands" } },
    { "einsum_output", build_einsum_output, { "einsum", "output names 'k'", "no operand has" } },
    { "einsum_letter", build_einsum_letter, { "einsum", "'2' is no index", "letters" } },
    { "stack", build_stack, { "stack", "'x' f32[2,3]", "'y' f32[3,2]", "one shape" } },
    { "split", split, { "split", "'x' f32[2,7]", "add up to 6", "must be equal" } },
    { "tile", build_tile, { "tile", "'x' f32[2,3]", "1 repeats", "one for each axis" } },
    { "roll", build_roll, { "roll", "'x' f32[2,3]", "no axis 5", "-2 to 1" } },
    { "tril", build_tril, { "tril", "'x' f32[3]", "[.., M, N]" } },
    { "reflect", build_reflect, { "pad", "'x' f32[1,4]", "lo 4", "less than the axis' size" } },
    { "topk", topk, { "topk", "'x' f32[2,3]", "4 of axis 1", "0 to 3" } },
    { "one_hot", build_one_hot, { "one_hot", "'x' f32[4]", "i32 or i64", "sw_cast" } },
    { "masked_fill", build_masked_fill, { "masked_fill", "'y' f32[4]", "bool", "a comparison" } },
    { "index_select", build_index_select, { "index_select", "'i' i64[2,2]", "a vector [K]" } },
    { "gather_nd", build_gather_nd, { "gather_nd", "'i' i64[5,3]", "'x' f32[4,2]", "1 to 2" } },
    { "scatter_nd", build_scatter_nd, { "scatter_nd_add", "'y' f32[5,3]", "[5,2] fits" } },
    { "norm", build_norm, { "norm", "'i' i64[3]", "floating-point", "sw_cast" } },
    { "frame", build_frame, { "frame", "'x' f32[2,5]", "frames of 8", "or more" } },
    { "log_mel", build_log_mel, { "stft", "'x' f32[2,100]", "n_fft 400", "more than half" } },
    { "mel", build_mel, { "mel_filters", "0 filters", "above 0" } },
};

/* ---- layers, losses, models -------------------------------------------------------------------------------------- */

BUILD(linear, sw_linear(X(4, 8), 0, .name = "fc"))
BUILD(linear_scalar, sw_linear(SCALAR("x"), 3, .name = "fc"))
BUILD(conv_no_kernel, sw_conv2d(X(1, 3, 8, 8), 4, .name = "conv1"))
BUILD(conv_divide, sw_conv2d(X(1, 3, 8, 8), 4, .kernel = 3, .groups = 2, .name = "conv1"))
BUILD(conv_small, sw_conv2d(X(1, 3, 2, 2), 4, .kernel = 5, .name = "conv1"))
BUILD(conv_flat, sw_conv2d(X(16, 784), 4, .kernel = 3, .name = "conv1"))
BUILD(bn_vector, sw_batch_norm(X(8), .name = "bn1"))
BUILD(embedding_none, sw_embedding(I(4), 8, 0, .name = "wte"))
BUILD(embedding_float, sw_embedding(X(4), 8, 10, .name = "wte"))
BUILD(twice, sw_linear(sw_linear(X(4, 8), 3, .name = "fc"), 5, .name = "fc"))
BUILD(dropout, sw_dropout(X(4, 2), 1.5))
BUILD(channel_dropout, sw_dropout_channels(X(4), 0.5))
BUILD(glu, sw_glu(X(4, 7), -1, SW_GLU))
BUILD(cross_entropy, sw_cross_entropy(X(8, 10), I(7)))
BUILD(cross_entropy_float, sw_cross_entropy(X(8, 10), Y(8)))
BUILD(mse, sw_mse(X(8), Y(8, 1)))
BUILD(l1, sw_l1_loss(X(8, 2), Y(8), SW_REDUCE_MEAN))
BUILD(bce_ints, sw_bce_with_logits_loss(X(8), I(8), SW_NONE, SW_REDUCE_MEAN))
BUILD(model_name, sw_model_build("resnet81", X(1, 3, 8, 8), 10))
BUILD(model_sizes, sw_model_build("mlp:64,x", X(4, 8), 10))
BUILD(model_none, sw_model_build("lenet:5", X(1, 1, 28, 28), 10))
BUILD(model_rank, sw_model_build("resnet18", X(4, 784), 10))
BUILD(model_small, sw_model_build("lenet", X(1, 1, 8, 8), 10))
BUILD(model_outputs, sw_model_build("mlp", X(4, 8), 0))
BUILD(model_autoencoder, sw_model_build("autoencoder", X(4, 8), 10))
BUILD(model_tcn, sw_model_build("tcn", X(4), 10))
BUILD(model_too_many, sw_model_build("resnet50:1,2,3,4,5", X(1, 3, 8, 8), 10))

static const wrong of_layers[] = {
    { "linear", build_linear, { "linear 'fc'", "'x' f32[4,8]", "0 features", "1 or more" } },
    { "linear_scalar", build_linear_scalar, { "linear 'fc'", "'x' f32[]", "[.., K]" } },
    { "conv_no_kernel", build_conv_no_kernel, { "conv2d 'conv1'", "'x' f32[1,3,8,8]", "kernel 0", ".kernel = 3" } },
    { "conv_divide", build_conv_divide, { "conv2d 'conv1'", "'x' f32[1,3,8,8]", "2 groups",
                                          "must divide the 3 channels" } },
    { "conv_small", build_conv_small, { "conv", "'conv1.weight'", "'x' f32[1,3,2,2]", "f32[4,3,5,5]",
                                        "more padding" } },
    { "conv_flat", build_conv_flat, { "conv2d 'conv1'", "'x' f32[16,784]", "[N, C, H, W]" } },
    { "bn_vector", build_bn_vector, { "batch_norm 'bn1'", "'x' f32[8]", "[N, C" } },
    { "embedding_none", build_embedding_none, { "embedding 'wte'", "'i' i64[4]", "vocabulary of 0", "1 or more" } },
    { "embedding_float", build_embedding_float, { "embedding", "'wte'", "'x' f32[4]", "i32 or i64" } },
    { "twice", build_twice, { "'fc.weight'", "f32[3,8]", "f32[5,3]", "another one" } },
    { "dropout", build_dropout, { "dropout", "'x' f32[4,2]", "1.5", "[0, 1)" } },
    { "channel_dropout", build_channel_dropout, { "dropout_channels", "'x' f32[4]", "[N, C" } },
    { "glu", build_glu, { "glu", "'x' f32[4,7]", "odd" } },
    { "cross_entropy", build_cross_entropy, { "cross_entropy", "'x' f32[8,10]", "'i' i64[7]",
                                              "logits' shape without" } },
    { "cross_entropy_float", build_cross_entropy_float, { "cross_entropy", "'y' f32[8]", "i32 or i64", "sw_cast" } },
    { "mse", build_mse, { "sub", "'x' f32[8]", "'y' f32[8,1]", "must be equal" } },
    { "l1", build_l1, { "l1_loss", "'x' f32[8,2]", "'y' f32[8]", "must be equal" } },
    { "bce_ints", build_bce_ints, { "bce_with_logits_loss", "'x' f32[8]", "'i' i64[8]", "sw_cast one" } },
    { "model_name", build_model_name, { "'resnet81'", "did you mean 'resnet8'", "choose from" } },
    { "model_sizes", build_model_sizes, { "'mlp:64,x'", "positive numbers", "hidden sizes" } },
    { "model_none", build_model_none, { "'lenet:5'", "nothing comes after lenet" } },
    { "model_rank", build_model_rank, { "'resnet18'", "'x' f32[4,784]", "[N, C, H, W]" } },
    { "model_small", build_model_small, { "conv2", "f32[1,6,4,4]", "padding" } },
    { "model_outputs", build_model_outputs, { "'mlp'", "0 outputs", "1 or more" } },
    { "model_autoencoder", build_model_autoencoder, { "'autoencoder'", "8 values", "not 10",
                                                      "target must be the input" } },
    { "model_tcn", build_model_tcn, { "'tcn'", "'x' f32[4]", "[N, C, L]" } },
    { "model_too_many", build_model_too_many, { "'resnet50:1,2,3,4,5'", "up to 4", "inner channels" } },
};

/* ---- variables, gradients, programs ------------------------------------------------------------------------------ */

static sw_status same_input(sw_graph *g, sw_device *d)
{
    (void)d;
    X(2, 3);
    X(4);
    return sw_graph_status(g);
}

static sw_status same_output(sw_graph *g, sw_device *d)
{
    (void)d;
    sw_output(X(2), "out");
    sw_output(Y(3), "out");
    return sw_graph_status(g);
}

static sw_status same_variable(sw_graph *g, sw_device *d)
{
    (void)d;
    sw_param(g, "fc.weight", DIMS(2, 3), (sw_init){ 0 });
    sw_param(g, "fc.weight", DIMS(3, 3), (sw_init){ 0 });
    return sw_graph_status(g);
}

static sw_status assign_twice(sw_graph *g, sw_device *d)
{
    const sw_t w = sw_param(g, "w", DIMS(2), (sw_init){ 0 });
    (void)d;
    sw_assign(w, sw_add(w, w));
    sw_assign(w, w);
    return sw_graph_status(g);
}

static sw_status assign_shape(sw_graph *g, sw_device *d)
{
    (void)d;
    sw_assign(sw_param(g, "w", DIMS(2), (sw_init){ 0 }), X(3));
    return sw_graph_status(g);
}

static sw_status assign_input(sw_graph *g, sw_device *d)
{
    (void)d;
    sw_assign(X(3), Y(3));
    return sw_graph_status(g);
}

static sw_status grad_vector(sw_graph *g, sw_device *d)
{
    sw_t x = X(8, 10), dx;
    (void)d;
    return sw_grad(x, &x, 1, &dx);
}

static sw_status grad_integer(sw_graph *g, sw_device *d)
{
    sw_t x = I(4), dx;
    (void)d;
    return sw_grad(sw_sum(x, SW_ALL_AXES, false), &x, 1, &dx);
}

static sw_status grad_of_integer(sw_graph *g, sw_device *d)
{
    sw_t x = X(4), i = I(4), di;
    (void)d;
    return sw_grad(sw_sum(sw_mul(x, sw_cast(i, SW_F32)), SW_ALL_AXES, false), &i, 1, &di);
}

static sw_status grad_constant(sw_graph *g, sw_device *d)
{
    sw_t x = X(4), c = sw_const(g, SW_F32, 2), dc;
    (void)d;
    return sw_grad(sw_sum(sw_mul(x, c), SW_ALL_AXES, false), &c, 1, &dc);
}

static sw_status grad_other(sw_graph *g, sw_device *d)
{
    sw_t x = X(4), none = SW_NONE, dx;
    (void)d;
    return sw_grad(sw_sum(x, SW_ALL_AXES, false), &none, 1, &dx);
}

static sw_status grad_seed(sw_graph *g, sw_device *d)
{
    sw_t x = X(4), dx;
    (void)d;
    return sw_grad_from(x, Y(3), &x, 1, &dx);
}

static sw_status no_parameters(sw_graph *g, sw_device *d)
{
    (void)d;
    return sw_optimizer_apply(&sw_adam(.lr = 1e-3), sw_sum(X(4), SW_ALL_AXES, false), NULL, 0);
}

static sw_status vector_loss(sw_graph *g, sw_device *d)
{
    (void)d;
    return sw_optimizer_apply(&sw_sgd(.lr = 0.1), sw_linear(X(4, 8), 3, .name = "fc"), NULL, 0);
}

static sw_status compile_error(sw_graph *g, sw_device *d)
{
    sw_program *p = NULL;
    sw_output(sw_relu(sw_matmul(X(2, 3), Y(4, 5))), "out");
    return sw_compile(g, d, NULL, &p);
}

static sw_status compile_nothing(sw_graph *g, sw_device *d)
{
    sw_program *p = NULL;
    sw_relu(X(2));
    return sw_compile(g, d, NULL, &p);
}

static sw_params *params_of(sw_device *d, int64_t features)
{
    sw_graph *g;
    sw_params *params;
    OK(sw_graph_new(&g));
    sw_output(sw_linear(X(4, 8), features, .name = "fc"), "out");
    OK(sw_params_new(d, g, 1, &params));
    sw_graph_free(g);
    return params;
}

static sw_status with_params(sw_graph *g, sw_device *d, const char *layer)
{
    sw_program *p = NULL;
    sw_params *const params = params_of(d, 3);
    sw_output(sw_linear(X(4, 8), 5, .name = layer), "out");
    const sw_status st = sw_compile(g, d, &(sw_compile_options){ .params = params }, &p);
    sw_params_free(params);
    return st;
}

static sw_status params_shape(sw_graph *g, sw_device *d)
{
    return with_params(g, d, "fc");
}

static sw_status params_other(sw_graph *g, sw_device *d)
{
    return with_params(g, d, "head");
}

static sw_status params_count(sw_graph *g, sw_device *d)
{
    sw_params *const params = params_of(d, 3);
    const float one[3] = { 0 };
    (void)g;
    const sw_status st = sw_params_set(params, sw_params_find(params, "fc.weight"), SW_F32, one, 3);
    sw_params_free(params);
    return st;
}

static sw_status params_unknown(sw_graph *g, sw_device *d)
{
    sw_params *const params = params_of(d, 3);
    const float one[3] = { 0 };
    (void)g;
    const sw_status st = sw_params_set(params, sw_params_find(params, "fc.wieght"), SW_F32, one, 3);
    sw_params_free(params);
    return st;
}

enum { SET_COUNT, SET_UNKNOWN, NOT_SET, GET_COUNT, GET_UNKNOWN, INDEX_OUTSIDE };

static sw_status with_program(sw_graph *g, sw_device *d, int what)
{
    sw_program *p = NULL;
    float v[8] = { 0 };
    const int64_t index[2] = { 1, 7 };
    sw_output(sw_named(sw_embedding_op(X(4, 2), I(2)), "lookup"), "out");
    OK(sw_compile(g, d, NULL, &p));
    if (what != NOT_SET && what != SET_UNKNOWN) OK(sw_program_set(p, sw_program_input(p, "x"), SW_F32, v, 8));
    if (what != NOT_SET) OK(sw_program_set(p, sw_program_input(p, "i"), SW_I64, index, 2));
    sw_status st = SW_OK;
    if (what == SET_COUNT) st = sw_program_set(p, sw_program_input(p, "x"), SW_F32, v, 6);
    if (what == SET_UNKNOWN) st = sw_program_set(p, sw_program_input(p, "z"), SW_F32, v, 8);
    if (what == GET_COUNT || what == GET_UNKNOWN || what == NOT_SET || what == INDEX_OUTSIDE) st = sw_program_run(p);
    if (st == SW_OK) st = sw_program_get(p, sw_program_output(p, what == GET_UNKNOWN ? "z" : "out"), SW_F32, v,
                                         what == GET_COUNT ? 8 : 4);
    sw_program_free(p);
    return st;
}

static sw_status set_count(sw_graph *g, sw_device *d)
{
    return with_program(g, d, SET_COUNT);
}

static sw_status set_unknown(sw_graph *g, sw_device *d)
{
    return with_program(g, d, SET_UNKNOWN);
}

static sw_status index_outside(sw_graph *g, sw_device *d)
{
    return with_program(g, d, INDEX_OUTSIDE);
}

static sw_status no_device(sw_graph *g, sw_device *d)
{
    sw_device *other = NULL;
    (void)g;
    (void)d;
    return sw_device_open("cudda:0", NULL, &other);
}

static const wrong of_programs[] = {
    { "same_input", same_input, { "input 'x'", "f32[4]", "f32[2,3]", "unique" } },
    { "same_output", same_output, { "'out'", "'y' f32[3]", "'x' f32[2]", "unique" } },
    { "same_variable", same_variable, { "'fc.weight'", "f32[2,3]", "f32[3,3]", "another one" } },
    { "assign_twice", assign_twice, { "assign", "'w' f32[2]", "already assigned", "one assign a variable" } },
    { "assign_shape", assign_shape, { "assign", "'w' f32[2]", "'x' f32[3]", "must be equal" } },
    { "assign_input", assign_input, { "assign", "'x' f32[3]", "no variable", "only variables" } },
    { "grad_vector", grad_vector, { "sw_grad", "'x' f32[8,10]", "one number", "sw_mean" } },
    { "grad_integer", grad_integer, { "sw_grad", "i64[]", "floating-point", "sw_cast" } },
    { "grad_of_integer", grad_of_integer, { "sw_grad", "'i' i64[4]", "floating-point" } },
    { "grad_constant", grad_constant, { "sw_grad", "wrt[0]", "f32[]", "a constant", "sw_input" } },
    { "grad_other", grad_other, { "sw_grad", "wrt[0]", "not a value" } },
    { "grad_seed", grad_seed, { "sw_grad_from", "'y' f32[3]", "'x' f32[4]", "must agree" } },
    { "no_parameters", no_parameters, { "sw_optimizer_apply", "nothing to learn", "sw_param" } },
    { "vector_loss", vector_loss, { "sw_grad", "'fc' f32[4,3]", "one number", "sw_mean" } },
    { "compile_error", compile_error, { "matmul", "'x' f32[2,3]", "'y' f32[4,5]", "must equal" } },
    { "compile_nothing", compile_nothing, { "no output", "nothing to compile", "sw_output" } },
    { "params_shape", params_shape, { "'fc.weight'", "f32[5,8]", "f32[3,8]", "given parameters" } },
    { "params_other", params_other, { "'head.weight'", "not among the given parameters", "sw_params_new" } },
    { "params_count", params_count, { "sw_params_set", "'fc.weight'", "24 elements", "not 3" } },
    { "params_unknown", params_unknown, { "sw_params_set", "no variable -1", "sw_params_find" } },
    { "set_count", set_count, { "input 'x'", "8 elements", "not 6" } },
    { "set_unknown", set_unknown, { "no input -1", "program has 2", "the first is '" } },
    { "index_outside", index_outside, { "'lookup'", "7", "0 to 3" } },
    { "no_device", no_device, { "'cudda:0'", "choose from" } },
};

/* ---- trainer ----------------------------------------------------------------------------------------------------- */

enum { N = 12, M = 4 };

static sw_dataset *data_of(bool classes)
{
    static float x[N][M], values[N];
    static int64_t label[N];
    for (int i = 0; i < N; i++) {
        label[i] = i % 3;
        values[i] = (float)i / 7;
        for (int k = 0; k < M; k++) x[i][k] = (float)((i + k) % 5);
    }
    const sw_array ax = { .dtype = SW_F32, .rank = 2, .shape = { N, M }, .data = x, .bytes = sizeof x };
    const sw_array ay = { .dtype = classes ? SW_I64 : SW_F32, .rank = 1, .shape = { N },
                          .data = classes ? (void *)label : (void *)values,
                          .bytes = classes ? sizeof label : sizeof values };
    sw_dataset *data = NULL;
    OK(sw_dataset_from_memory(&ax, &ay, NULL, &data));
    return data;
}

static sw_status with_trainer(sw_device *d, bool classes, sw_trainer_options o)
{
    sw_trainer *t = NULL;
    sw_dataset *const data = data_of(classes);
    o.batch = 4;
    sw_status st = sw_trainer_new(d, &o, &t);
    if (st == SW_OK) st = sw_trainer_prepare(t, data);
    sw_trainer_free(t);
    sw_dataset_close(data);
    return st;
}

static sw_status mse_of_classes(sw_graph *g, sw_device *d)
{
    (void)g;
    return with_trainer(d, true, (sw_trainer_options){ .model_name = "mlp:4", .loss = sw_mse });
}

static sw_status classes_of_values(sw_graph *g, sw_device *d)
{
    (void)g;
    return with_trainer(d, false, (sw_trainer_options){ .model_name = "mlp:4", .loss = sw_cross_entropy });
}

static sw_status too_few_outputs(sw_graph *g, sw_device *d)
{
    (void)g;
    return with_trainer(d, true, (sw_trainer_options){ .model_name = "mlp:4", .outputs = 2 });
}

static sw_status model_for_images(sw_graph *g, sw_device *d)
{
    (void)g;
    return with_trainer(d, true, (sw_trainer_options){ .model_name = "lenet" });
}

static const wrong of_training[] = {
    { "mse_of_classes", mse_of_classes, { "loss mse", "labels are classes", "use cross_entropy" } },
    { "classes_of_values", classes_of_values, { "loss cross_entropy", "needs classes" } },
    { "too_few_outputs", too_few_outputs, { "3 classes", "2 outputs" } },
    { "model_for_images", model_for_images, { "'lenet'", "'x' f32[4,4]", "[N, C, H, W]" } },
};

/* ---- all --------------------------------------------------------------------------------------------------------- */

static sw_device *device;
static size_t programs;

static int check(const wrong *w)
{
    sw_graph *g;
    int missing = 0;
    OK(sw_graph_new(&g));
    const sw_status st = w->run(g, device);
    if (st == SW_OK) {
        print_error("%s: it was not refused\n", w->name);
        missing++;
    } else {
        for (size_t i = 0; i < SW_COUNT(w->texts) && w->texts[i]; i++) {
            if (strstr(sw_error(), w->texts[i])) continue;
            print_error("%s: \"%s\" is not in: %s\n", w->name, w->texts[i], sw_error());
            missing++;
        }
    }
    if (getenv("SWOOP_SHOW")) print_message("%-20s %s\n", w->name, sw_error());
    sw_graph_free(g);
    programs++;
    return missing;
}

static void check_all(const wrong *table, size_t n)
{
    int missing = 0;
    for (size_t i = 0; i < n; i++) missing += check(&table[i]);
    assert_int_equal(missing, 0);
}

static void test_operands(void **state)
{
    (void)state;
    check_all(of_operands, SW_COUNT(of_operands));
}

static void test_shapes(void **state)
{
    (void)state;
    check_all(of_shapes, SW_COUNT(of_shapes));
}

static void test_layers(void **state)
{
    (void)state;
    check_all(of_layers, SW_COUNT(of_layers));
}

static void test_programs(void **state)
{
    (void)state;
    check_all(of_programs, SW_COUNT(of_programs));
}

static void test_training(void **state)
{
    (void)state;
    check_all(of_training, SW_COUNT(of_training));
}

static void test_number(void **state)
{
    (void)state;
    assert_true(programs >= 60);
}

static int open_device(void **state)
{
    (void)state;
    return sw_device_open("cpu", NULL, &device) == SW_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    sw_device_close(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operands), cmocka_unit_test(test_shapes),   cmocka_unit_test(test_layers),
        cmocka_unit_test(test_programs), cmocka_unit_test(test_training), cmocka_unit_test(test_number),
    };
    return cmocka_run_group_tests_name("wrong programs", tests, open_device, close_device);
}
