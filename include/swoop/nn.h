/* swoop/nn.h: layers with parameters, optimisers and schedules as values, and the models that have names.
 * On top of graph.h: every function here records nodes and nothing else. Parameter names are PyTorch's state_dict names. */
#ifndef SWOOP_NN_H
#define SWOOP_NN_H

#include "swoop/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- layers: sw_conv2d(x, 32, .kernel = 3, .pad = 1, .name = "conv1") --------------------------------------------------
 * The first argument after x is the number of output channels or features; the rest are designated initialisers.
 * .name gives "NAME.weight" and "NAME.bias" (inside the present scope); without one, "linear1", "conv2" … are counted. */

typedef struct sw_linear_options {
    int64_t features;
    const char *name;
    bool no_bias;
    sw_init weight_init, bias_init; /* kind 0: uniform in +-1/sqrt(fan_in), PyTorch's default */
    int sw_end;                     /* leave alone: lets the macro end with an initialiser */
} sw_linear_options;
/* x [.., K] -> [.., features]; weight [features, K], bias [features]. */
SW_API sw_t sw_linear_with(sw_t x, sw_linear_options o);
#define sw_linear(x, ...) sw_linear_with((x), (sw_linear_options){__VA_ARGS__, .sw_end = 0})

typedef struct sw_conv2d_options {
    int64_t channels;
    const char *name;
    int64_t kernel, kernel_h, kernel_w; /* kernel: square; or the two */
    int64_t stride, pad, dilation;      /* 0: 1, 0, 1 */
    int64_t groups;                     /* 0: 1 */
    bool no_bias;
    sw_init weight_init, bias_init;
    int sw_end;
} sw_conv2d_options;
/* x [N, C, H, W] -> [N, channels, H', W'], H' = (H + 2 pad - dilation (kernel - 1) - 1) / stride + 1. */
SW_API sw_t sw_conv2d_with(sw_t x, sw_conv2d_options o);
#define sw_conv2d(x, ...) sw_conv2d_with((x), (sw_conv2d_options){__VA_ARGS__, .sw_end = 0})

/* For each of the first three: the one for all spatial axes, or (where not 0) one an axis in the array. */
typedef struct sw_pool_layer_options {
    int64_t kernel, stride, pad; /* stride 0: kernel; kernel 0: 2 */
    int64_t kernels[3], strides[3], pads[3];
    bool exclude_pad;            /* average: divide by the elements that are there (PyTorch: count_include_pad=False) */
    bool ceil_mode;              /* a last window that is only partly there counts, too */
    double power;                /* lp_pool */
    int sw_end;
} sw_pool_layer_options;
typedef sw_pool_layer_options sw_pool2d_options;
SW_API sw_t sw_max_pool2d_with(sw_t x, sw_pool2d_options o);
SW_API sw_t sw_avg_pool2d_with(sw_t x, sw_pool2d_options o);
#define sw_max_pool2d(x, ...) sw_max_pool2d_with((x), (sw_pool2d_options){__VA_ARGS__, .sw_end = 0})
#define sw_avg_pool2d(x, ...) sw_avg_pool2d_with((x), (sw_pool2d_options){__VA_ARGS__, .sw_end = 0})
/* Mean over H and W: [N, C, H, W] -> [N, C]. */
SW_API sw_t sw_global_avg_pool2d(sw_t x);
/* The same over one and three axes, [N, C, L] and [N, C, D, H, W]; and (sum x^power)^(1/power) over 1 to 3 axes. Adaptive and global
 * pooling, indices and unpooling, interpolation and pixel shuffling have no options of a layer: see graph.h. */
SW_API sw_t sw_max_pool1d_with(sw_t x, sw_pool_layer_options o);
SW_API sw_t sw_max_pool3d_with(sw_t x, sw_pool_layer_options o);
SW_API sw_t sw_avg_pool1d_with(sw_t x, sw_pool_layer_options o);
SW_API sw_t sw_avg_pool3d_with(sw_t x, sw_pool_layer_options o);
SW_API sw_t sw_lp_pool_with(sw_t x, sw_pool_layer_options o);
#define sw_max_pool1d(x, ...) sw_max_pool1d_with((x), (sw_pool_layer_options){__VA_ARGS__, .sw_end = 0})
#define sw_max_pool3d(x, ...) sw_max_pool3d_with((x), (sw_pool_layer_options){__VA_ARGS__, .sw_end = 0})
#define sw_avg_pool1d(x, ...) sw_avg_pool1d_with((x), (sw_pool_layer_options){__VA_ARGS__, .sw_end = 0})
#define sw_avg_pool3d(x, ...) sw_avg_pool3d_with((x), (sw_pool_layer_options){__VA_ARGS__, .sw_end = 0})
#define sw_lp_pool(x, ...) sw_lp_pool_with((x), (sw_pool_layer_options){__VA_ARGS__, .sw_end = 0})

typedef struct sw_norm_options {
    const char *name;
    double eps;      /* 0: 1e-5 */
    double momentum; /* batch norm, weight of the new value: 0: 0.1 */
    int sw_end;
} sw_norm_options;
/* x [N, C, …]. Training: batch statistics (biased variance), running_mean and running_var (unbiased) and
 * num_batches_tracked are updated; otherwise the running ones are used. Parameters weight, bias [C]. */
SW_API sw_t sw_batch_norm_with(sw_t x, sw_norm_options o);
#define sw_batch_norm(x, ...) sw_batch_norm_with((x), (sw_norm_options){__VA_ARGS__, .sw_end = 0})
/* Over the last axis; weight, bias [D]. */
SW_API sw_t sw_layer_norm_with(sw_t x, sw_norm_options o);
#define sw_layer_norm(x, ...) sw_layer_norm_with((x), (sw_norm_options){__VA_ARGS__, .sw_end = 0})

typedef struct sw_embedding_options {
    int64_t features;
    int64_t vocabulary;
    const char *name;
    sw_init weight_init; /* kind 0: normal(0, 1) */
    int sw_end;
} sw_embedding_options;
/* index […] (i64) -> […, features]; weight [vocabulary, features]: sw_embedding(x, 128, 65, .name = "wte"). */
SW_API sw_t sw_embedding_with(sw_t index, sw_embedding_options o);
#define sw_embedding(x, ...) sw_embedding_with((x), (sw_embedding_options){__VA_ARGS__, .sw_end = 0})

/* ---- layers: attention. All take and give [N, T, features] ------------------------------------------------------ */

typedef struct sw_multihead_attention_options {
    int64_t heads;     /* divides the features */
    const char *name;
    bool causal;
    sw_t mask;         /* as sw_attention's (true: may attend; PyTorch's layer has it the other way round) or SW_NONE */
    sw_t key, value;   /* [N, T', features] to attend to; SW_NONE: x; one of the two alone is both */
    bool no_bias;
    int sw_end;
} sw_multihead_attention_options;
/* torch.nn.MultiheadAttention(batch_first=True): in_proj_weight [3 D, D], in_proj_bias, out_proj.weight [D, D],
 * out_proj.bias. There is no dropout of attention weights: sw_dropout the result. */
SW_API sw_t sw_multihead_attention_with(sw_t x, sw_multihead_attention_options o);
#define sw_multihead_attention(x, ...) \
    sw_multihead_attention_with((x), (sw_multihead_attention_options){__VA_ARGS__, .sw_end = 0})

typedef struct sw_rope_options {
    int64_t offset; /* the first row's position */
    double base;    /* 0: 10000 */
    int sw_end;
} sw_rope_options;
/* Rotary positions (Su et al. 2021) for x [.., T, D], D even, such as q and k [B, H, T, D]. Feature i pairs with i + D/2
 * (as in GPT-NeoX and Llama, not neighbours): (a, b) -> (a cos t - b sin t, b cos t + a sin t), t = position base^(-2i/D).
 * sw_rope(x, .offset = 0) */
SW_API sw_t sw_rope_with(sw_t x, sw_rope_options o);
#define sw_rope(x, ...) sw_rope_with((x), (sw_rope_options){__VA_ARGS__, .sw_end = 0})

/* x [.., T, D] plus sin(p 10000^(-2i/D)) in feature 2i and cos of it in 2i + 1, p = offset, offset + 1, …; D even
 * (Vaswani et al. 2017). */
SW_API sw_t sw_sinusoidal_positions(sw_t x, int64_t offset);

typedef struct sw_position_embedding_options {
    const char *name;
    int64_t context;     /* rows of the table; 0: T */
    sw_init weight_init; /* kind 0: normal(0, 1) */
    int sw_end;
} sw_position_embedding_options;
/* x [.., T, D] plus the first T rows of a learnt weight [context, D]. */
SW_API sw_t sw_position_embedding_with(sw_t x, sw_position_embedding_options o);
#define sw_position_embedding(x, ...) \
    sw_position_embedding_with((x), (sw_position_embedding_options){__VA_ARGS__, .sw_end = 0})

typedef struct sw_encoder_layer_options {
    int64_t heads;
    const char *name;
    int64_t feedforward; /* width inside; 0: four times the features */
    double dropout;      /* of what is added to the stream and inside the feed-forward; attention weights: none */
    bool norm_first;     /* norms before attention and feed-forward; otherwise behind the sums (Vaswani et al. 2017) */
    bool gelu;           /* otherwise relu */
    bool causal;
    sw_t mask;           /* as sw_attention's, or SW_NONE */
    int sw_end;
} sw_encoder_layer_options;
/* torch.nn.TransformerEncoderLayer: self_attn.*, linear1.*, linear2.*, norm1.*, norm2.* */
SW_API sw_t sw_encoder_layer_with(sw_t x, sw_encoder_layer_options o);
#define sw_encoder_layer(x, ...) sw_encoder_layer_with((x), (sw_encoder_layer_options){__VA_ARGS__, .sw_end = 0})

/* Zeroes with probability p and scales by 1/(1-p) in training (Srivastava et al. 2014); elsewhere x itself. */
SW_API sw_t sw_dropout(sw_t x, double p);
/* The same of whole channels of x [N, C, …]: torch's dropout1d, dropout2d and dropout3d (Tompson et al. 2015). */
SW_API sw_t sw_dropout_channels(sw_t x, double p);
/* For selu: dropped values become -1.7581, and a scale and a shift keep mean 0 and variance 1 (Klambauer et al. 2017). */
SW_API sw_t sw_alpha_dropout(sw_t x, double p);

/* ---- layers that slide a window over 1 to 3 axes ------------------------------------------------------------------------- */

/* For each of these numbers: the one for all spatial axes, or (where not 0) one an axis in the array. Depthwise: groups as
 * many as x has channels. */
typedef struct sw_conv_layer_options {
    int64_t channels;
    const char *name;
    int64_t kernel, stride, pad, dilation, output_padding; /* 0: must be given, 1, 0, 1, 0 */
    int64_t kernels[3], strides[3], pads[3], dilations[3], output_paddings[3];
    int64_t groups; /* 0: 1 */
    bool no_bias;
    sw_init weight_init, bias_init; /* kind 0: uniform in +-1/sqrt(fan_in), PyTorch's default */
    int sw_end;
} sw_conv_layer_options;
/* x [N, C, L] or [N, C, D, H, W] as sw_conv2d; weight [channels, C/groups, kernel…], bias [channels]. */
SW_API sw_t sw_conv1d_with(sw_t x, sw_conv_layer_options o);
SW_API sw_t sw_conv3d_with(sw_t x, sw_conv_layer_options o);
#define sw_conv1d(x, ...) sw_conv1d_with((x), (sw_conv_layer_options){__VA_ARGS__, .sw_end = 0})
#define sw_conv3d(x, ...) sw_conv3d_with((x), (sw_conv_layer_options){__VA_ARGS__, .sw_end = 0})
/* Transposed convolution (sw_conv_transpose_op): weight [C, channels/groups, kernel…], whose fan_in PyTorch takes to be
 * channels/groups times the kernel. */
SW_API sw_t sw_conv_transpose1d_with(sw_t x, sw_conv_layer_options o);
SW_API sw_t sw_conv_transpose2d_with(sw_t x, sw_conv_layer_options o);
SW_API sw_t sw_conv_transpose3d_with(sw_t x, sw_conv_layer_options o);
#define sw_conv_transpose1d(x, ...) sw_conv_transpose1d_with((x), (sw_conv_layer_options){__VA_ARGS__, .sw_end = 0})
#define sw_conv_transpose2d(x, ...) sw_conv_transpose2d_with((x), (sw_conv_layer_options){__VA_ARGS__, .sw_end = 0})
#define sw_conv_transpose3d(x, ...) sw_conv_transpose3d_with((x), (sw_conv_layer_options){__VA_ARGS__, .sw_end = 0})

/* ---- norms beside batch_norm and layer_norm ------------------------------------------------------------------------------- */

typedef struct sw_group_norm_options {
    int64_t groups; /* they must divide x's channels */
    const char *name;
    double eps;     /* 0: 1e-5 */
    bool no_affine; /* no parameters */
    int sw_end;
} sw_group_norm_options;
/* x [N, C, …]; weight, bias [C]: sw_group_norm(x, 4, .name = "norm1"). */
SW_API sw_t sw_group_norm_with(sw_t x, sw_group_norm_options o);
#define sw_group_norm(x, ...) sw_group_norm_with((x), (sw_group_norm_options){__VA_ARGS__, .sw_end = 0})

typedef struct sw_instance_norm_options {
    const char *name;
    double eps;      /* 0: 1e-5 */
    double momentum; /* of the running statistics: 0: 0.1 */
    bool affine;     /* parameters weight, bias [C]; PyTorch's default: none */
    bool track_running_stats; /* running_mean, running_var (and num_batches_tracked, never counted), used outside
                                 training as batch norm's */
    int sw_end;
} sw_instance_norm_options;
/* x [N, C, spatial…] with more than one spatial element in training. */
SW_API sw_t sw_instance_norm_with(sw_t x, sw_instance_norm_options o);
#define sw_instance_norm(x, ...) sw_instance_norm_with((x), (sw_instance_norm_options){__VA_ARGS__, .sw_end = 0})

/* Over the last axis; weight [D]. eps 0: 2^-23, what PyTorch's None is for single precision. */
SW_API sw_t sw_rms_norm_with(sw_t x, sw_norm_options o);
#define sw_rms_norm(x, ...) sw_rms_norm_with((x), (sw_norm_options){__VA_ARGS__, .sw_end = 0})

/* ---- recurrent layers: sw_lstm(x, 256, .layers = 2, .bidirectional = true) ------------------------------------------------ */

/* x [batch, time, features] -> [batch, time, D hidden]: D is 2 with both directions, whose outputs stand side by side. The
 * formulas and what lengths do: sw_recurrent_options in graph.h. Parameters as in PyTorch: "NAME.weight_ih_l0" [G hidden,
 * features], "weight_hh_l0" [G hidden, hidden], "bias_ih_l0", "bias_hh_l0" [G hidden], with "_reverse" behind those of the
 * other direction, "_l1" … for further layers; with a projection "weight_hr_l0" [proj, hidden]. */
typedef struct sw_recurrent_layer_options {
    int64_t features;       /* hidden size */
    const char *name;
    int layers;             /* 0: 1 */
    bool bidirectional;
    bool no_bias;
    bool relu;              /* rnn: in place of tanh */
    int64_t proj;           /* lstm: outputs of this size, smaller than the hidden one; 0: none */
    double dropout;         /* between layers, in training */
    sw_t h0, c0;            /* [layers D, batch, hidden] (h0 with a projection: proj); SW_NONE: zeros; c0: lstm */
    sw_t lengths;           /* [batch] of i64 or i32: steps of each sample; SW_NONE: all */
    sw_t *h_n, *c_n;        /* NULL, or where the last states go, of the shape of h0 and c0 */
    sw_init weight_init;    /* kind 0: uniform in +-1/sqrt(hidden), biases too */
    int sw_end;
} sw_recurrent_layer_options;
SW_API sw_t sw_lstm_with(sw_t x, sw_recurrent_layer_options o);
SW_API sw_t sw_gru_with(sw_t x, sw_recurrent_layer_options o);
SW_API sw_t sw_rnn_with(sw_t x, sw_recurrent_layer_options o);
#define sw_lstm(x, ...) sw_lstm_with((x), (sw_recurrent_layer_options){__VA_ARGS__, .sw_end = 0})
#define sw_gru(x, ...) sw_gru_with((x), (sw_recurrent_layer_options){__VA_ARGS__, .sw_end = 0})
#define sw_rnn(x, ...) sw_rnn_with((x), (sw_recurrent_layer_options){__VA_ARGS__, .sw_end = 0})

/* ---- activations: beside relu, sigmoid, tanh, gelu and silu of graph.h. Definitions are torch.nn.functional's. ---------- */

SW_API sw_t sw_clamp(sw_t x, double low, double high);     /* min(max(x, low), high); gradient 0 at and beyond the bounds */
SW_API sw_t sw_relu6(sw_t x);                              /* min(max(x, 0), 6) */
SW_API sw_t sw_leaky_relu(sw_t x, double slope);           /* x > 0 ? x : slope x (Maas et al. 2013) */
SW_API sw_t sw_elu(sw_t x, double alpha);                  /* x > 0 ? x : alpha (e^x - 1) (Clevert et al. 2016) */
SW_API sw_t sw_selu(sw_t x);                               /* 1.0507 elu(x, 1.67326) (Klambauer et al. 2017) */
SW_API sw_t sw_celu(sw_t x, double alpha);                 /* x > 0 ? x : alpha (e^(x/alpha) - 1) (Barron 2017) */
SW_API sw_t sw_gelu_tanh(sw_t x);                          /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
SW_API sw_t sw_softplus(sw_t x);                           /* log(1 + e^x) */
SW_API sw_t sw_log_sigmoid(sw_t x);                        /* -softplus(-x) */
SW_API sw_t sw_mish(sw_t x);                               /* x tanh(softplus(x)) (Misra 2019) */
SW_API sw_t sw_softsign(sw_t x);                           /* x / (1 + |x|) */
SW_API sw_t sw_hard_sigmoid(sw_t x);                       /* min(max(x/6 + 1/2, 0), 1) */
SW_API sw_t sw_hard_swish(sw_t x);                         /* x hard_sigmoid(x) (Howard et al. 2019) */
SW_API sw_t sw_hard_tanh(sw_t x, double low, double high); /* clamp */
/* x halved along an axis of even size (negative: from the end): first half times gate(second half). */
typedef enum sw_glu_kind { SW_GLU = 0, SW_REGLU, SW_GEGLU, SW_SWIGLU } sw_glu_kind; /* sigmoid, relu, gelu, silu */
SW_API sw_t sw_glu(sw_t x, int axis, sw_glu_kind kind);
/* x > 0 ? x : slope x (He et al. 2015); slope [1] or [C] for x [N, C, …]. */
SW_API sw_t sw_prelu_op(sw_t x, sw_t slope);

/* ---- losses: beside sw_cross_entropy and sw_mse of graph.h. Prediction and target have one shape. -------------------------- */

typedef enum sw_reduction { SW_REDUCE_MEAN = 0, SW_REDUCE_SUM, SW_REDUCE_NONE } sw_reduction;
SW_API sw_t sw_l1_loss(sw_t prediction, sw_t target, sw_reduction r);
SW_API sw_t sw_mse_loss(sw_t prediction, sw_t target, sw_reduction r);
SW_API sw_t sw_huber_loss(sw_t prediction, sw_t target, double delta, sw_reduction r); /* |d| < delta: d²/2, else delta (|d| - delta/2) */
SW_API sw_t sw_smooth_l1_loss(sw_t prediction, sw_t target, double beta, sw_reduction r); /* huber / beta */
/* (log v + (mean - target)²/v)/2, v at least 1e-6; full: with log(2 pi)/2 (Nix & Weigend 1994). */
SW_API sw_t sw_gaussian_nll_loss(sw_t mean, sw_t target, sw_t variance, bool full, sw_reduction r);
SW_API sw_t sw_poisson_nll_loss(sw_t log_rate, sw_t target, sw_reduction r); /* e^x - target x */
/* -w t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)); pos_weight w broadcasts over x, or SW_NONE. */
SW_API sw_t sw_bce_with_logits_loss(sw_t logits, sw_t target, sw_t pos_weight, sw_reduction r);
SW_API sw_t sw_focal_loss(sw_t logits, sw_t target, double alpha, double gamma, sw_reduction r); /* alpha < 0: none */
SW_API sw_t sw_dice_loss(sw_t logits, sw_t target, sw_reduction r); /* one a sample (axis 0) */
SW_API sw_t sw_hinge_loss(sw_t prediction, sw_t target, sw_reduction r); /* max(0, 1 - target x), target +1 or -1 */
SW_API sw_t sw_kl_div_loss(sw_t log_p, sw_t target, sw_reduction r); /* mean: over elements, as PyTorch's "mean" */
typedef struct sw_cross_entropy_options {
    sw_t weight;            /* [C], or SW_NONE */
    bool ignore;            /* rows whose target is ignore_index count nothing, also not in the mean */
    int64_t ignore_index;
    double label_smoothing; /* 0 … 1 (Szegedy et al. 2016) */
    sw_reduction reduction;
    int sw_end;
} sw_cross_entropy_options;
/* logits [N, C] or [N, T, C], target: class indices (with none of the options also probabilities). */
SW_API sw_t sw_cross_entropy_with(sw_t logits, sw_t target, sw_cross_entropy_options o);
#define sw_cross_entropy_loss(logits, target, ...) \
    sw_cross_entropy_with((logits), (target), (sw_cross_entropy_options){__VA_ARGS__, .sw_end = 0})
typedef struct sw_ctc_loss_options {
    int blank;              /* which class is the blank */
    bool zero_infinity;     /* an impossible alignment counts 0 instead of infinity, and has no gradient */
    sw_reduction reduction; /* mean: each loss over its target's length (at least 1), then over samples, as PyTorch */
    int sw_end;
} sw_ctc_loss_options;
/* log_probs [N, T, C], batch first (log_softmax over the classes), targets [N, S], of which target_lengths [N] count;
 * input_lengths [N] (Graves et al. 2006). The gradient is that of log_probs as they are: a gradient of logits, through
 * log_softmax, is PyTorch's. */
SW_API sw_t sw_ctc_loss_with(sw_t log_probs, sw_t targets, sw_t input_lengths, sw_t target_lengths, sw_ctc_loss_options o);
#define sw_ctc_loss(log_probs, targets, input_lengths, target_lengths, ...)                  \
    sw_ctc_loss_with((log_probs), (targets), (input_lengths), (target_lengths),              \
                     (sw_ctc_loss_options){__VA_ARGS__, .sw_end = 0})
/* The loss of models that read sequences (crnn): logits [N, T, C], target [N, S] of integers: classes from 1 on, then -1s to
 * fill up; 0 is the blank. The mean as sw_ctc_loss has it; an answer that T steps cannot hold makes it infinite. */
SW_API sw_t sw_ctc(sw_t logits, sw_t target);
/* What logits [T, C] of one sample say: the likeliest class of each step, repeated ones once, without the blank 0. Writes
 * at most T labels and gives their number. */
SW_API int64_t sw_ctc_greedy(const float *logits, int64_t steps, int64_t classes, int64_t *labels);
/* Of rows, the last axis: [.., D] -> [..] */
SW_API sw_t sw_cosine_similarity(sw_t a, sw_t b);
SW_API sw_t sw_cosine_embedding_loss(sw_t a, sw_t b, sw_t target, double margin, sw_reduction r); /* target +1 or -1 */
SW_API sw_t sw_triplet_loss(sw_t anchor, sw_t positive, sw_t negative, double margin, sw_reduction r);
SW_API sw_t sw_contrastive_loss(sw_t a, sw_t b, sw_t target, double margin, sw_reduction r); /* target 1 or 0 */

/* ---- models ------------------------------------------------------------------------------------------------------------ */

/* A network as a C function: from the input to the outputs. */
typedef sw_t (*sw_model_fn)(sw_t x);
typedef sw_t (*sw_loss_fn)(sw_t output, sw_t target);

/* "mlp", "mlp:256,128", "lenet", "cnn:32,64", "resnet18", "gpt:4x4x128", "gpt:124m" …: builds the named model on x. outputs: number
 * of classes (or regression targets; gpt: of tokens). An unknown name or bad arguments are a sticky error with the names that exist.
 * resnet18, 34, 50, vgg11 and mobilenet_v2 are torchvision's (vgg11: its vgg11_bn) on images of 64 pixels or more each way;
 * on smaller ones they begin without strides: docs/decisions/091. */
SW_API sw_t sw_model_build(const char *spec, sw_t x, int64_t outputs);
/* Names, arguments and one line about each model; entry NULL ends the list. */
typedef struct sw_model_info { const char *name, *arguments, *about; } sw_model_info;
SW_API const sw_model_info *sw_model_list(void);

/* ---- optimisers --------------------------------------------------------------------------------------------------------- */

typedef enum sw_optimizer_kind {
    SW_SGD = 0, SW_ADAM, SW_ADAMW, SW_NADAM, SW_RADAM, SW_RMSPROP, SW_ADAGRAD, SW_ADADELTA, SW_ADAMAX, SW_LION, SW_LAMB,
    SW_OPTIMIZER_COUNT
} sw_optimizer_kind;
SW_API const char *sw_optimizer_name(sw_optimizer_kind kind); /* "adamw"; NULL if there is no such kind */

/* Parameters that are treated otherwise: those whose names have the pattern (fnmatch: "*.bias", "layer1.*"). */
typedef struct sw_param_group {
    const char *pattern;
    double lr_scale;     /* 0: 1; SW_ZERO: 0 */
    double weight_decay; /* 0: the optimiser's; SW_ZERO: none */
    bool frozen;         /* not learnt: no gradient, no state */
    bool late;           /* learnt from some step on, which is the first for these: they read scalars of their own, see
                            SW_INPUT_LATE. With .frozen for the steps before, the variables lie in the same places */
} sw_param_group;
#define SW_MAX_PARAM_GROUPS 15

/* Definitions are torch.optim's (lion: Chen et al. 2023, lamb: You et al. 2020); the formulas stand in
 * src/nn/optim_rules.c. */
typedef struct sw_optimizer {
    sw_optimizer_kind kind;
    double lr;             /* 0: sgd 0.05, nadam and adamax 2e-3, rmsprop and adagrad 1e-2, adadelta 1, lion 1e-4, others 1e-3 */
    double momentum;       /* sgd, rmsprop; 0: none */
    bool nesterov;         /* sgd */
    double dampening;      /* sgd */
    double betas[2];       /* the adams, lion, lamb; 0: 0.9, 0.999 (lion 0.99) */
    double eps;            /* 0: 1e-8; adagrad 1e-10, adadelta and lamb 1e-6 */
    double weight_decay;   /* 0: adamw 0.01, others none; SW_ZERO: none. adamw, lion and lamb take it out of the gradient */
    bool decay_matrices;   /* weight decay only on parameters of two or more dimensions (not on biases and norms) */
    double clip_norm;      /* > 0: gradients are scaled to at most this L2 norm over all of them */
    bool skip_nonfinite;   /* a step whose loss is NaN or infinite leaves parameters and moments as they were */
    double alpha;          /* rmsprop 0.99, adadelta (there called rho) 0.9: share of the old mean square */
    bool centered;         /* rmsprop: by the variance */
    bool amsgrad;          /* adam, adamw */
    double lr_decay;       /* adagrad */
    double momentum_decay; /* nadam; 0: 4e-3 */
    double clip_value;     /* > 0: each element of the gradients between -clip_value and it; before clip_norm */
    const sw_param_group *groups; /* the first whose pattern fits counts; must live while graphs are made */
    int n_groups;
    double loss_scale;        /* > 0: dynamic loss scaling that starts here (f16: 65536): the gradient is that of loss times
                                 scale, and scaled back in f32; where it is not finite, the step leaves parameters and
                                 moments as they were and halves the scale */
    int64_t growth_interval;  /* finite steps in a row after which the scale doubles; 0: 2000 */
} sw_optimizer;
#define sw_sgd(...) ((sw_optimizer){.kind = SW_SGD, __VA_ARGS__})
#define sw_adam(...) ((sw_optimizer){.kind = SW_ADAM, __VA_ARGS__})
#define sw_adamw(...) ((sw_optimizer){.kind = SW_ADAMW, __VA_ARGS__})

/* Inputs that the host sets before each run of a program with an optimiser (scalars of f32, by these names); the last two
 * exist only where the optimiser needs them. */
#define SW_INPUT_LR "lr"
#define SW_INPUT_BIAS1 "bias_correction1" /* adam: 1 - beta1^t; sgd with dampening: the gradient's weight */
#define SW_INPUT_BIAS2 "bias_correction2" /* adam: 1 - beta2^t; others: see sw_optimizer_scalars */
#define SW_INPUT_LATE ".late" /* behind each of the three names: the same for groups that are late, t from their first step */

/* Outputs with loss_scale, f32 scalars: the scale that the step used; 1, or 0 if the gradients were not finite. */
#define SW_OUTPUT_SCALE "loss_scale"
#define SW_OUTPUT_FINITE "gradients_finite"

/* Appends gradients of `loss` for all SW_VAR_PARAM variables but the frozen ones, clipping and the update as assigns.
 * One flat update for each group of parameters (decayed or not). frozen: may be NULL. Outputs added: "grad_norm" if
 * clip_norm > 0. */
SW_API sw_status sw_optimizer_apply(const sw_optimizer *o, sw_t loss, const sw_t *frozen, int n_frozen);
/* Sets what the host has to set for step t = 0, 1, … with this learning rate: fills values for the three inputs above. */
SW_API void sw_optimizer_scalars(const sw_optimizer *o, int64_t t, double lr, double *lr_out, double *bias1, double *bias2);
/* The options with every default filled in: what is printed and saved. A SW_ZERO stays one, for whom the
 * options are given to next. */
SW_API sw_optimizer sw_optimizer_resolved(const sw_optimizer *o);

typedef enum sw_schedule_kind {
    SW_SCHEDULE_CONSTANT = 0, SW_SCHEDULE_STEP, SW_SCHEDULE_COSINE, SW_SCHEDULE_LINEAR, SW_SCHEDULE_MULTISTEP,
    SW_SCHEDULE_EXPONENTIAL, SW_SCHEDULE_POLYNOMIAL, SW_SCHEDULE_RESTARTS, SW_SCHEDULE_ONECYCLE, SW_SCHEDULE_PLATEAU
} sw_schedule_kind;
SW_API const char *sw_schedule_name(sw_schedule_kind kind); /* "cosine"; NULL if there is no such kind */
#define SW_MAX_MILESTONES 16
typedef struct sw_schedule {
    sw_schedule_kind kind;
    int64_t warmup;     /* steps: lr (s + 1) / warmup while s < warmup; not with onecycle */
    int64_t total;      /* steps in all: cosine, linear, polynomial and onecycle end here */
    double min_lr;
    int64_t step_size;  /* step: multiplied by gamma every so many steps; exponential: gamma is for so many (0: 1);
                           restarts: length of the first period */
    double gamma;       /* step, multistep, plateau; 0: 0.1; exponential; 0: 0.95 */
    double power;       /* polynomial; 0: 1 */
    double growth;      /* restarts: each period is so many times as long as the one before; 0: 1 */
    int64_t milestones[SW_MAX_MILESTONES]; /* multistep: multiplied by gamma at each */
    int n_milestones;
    int64_t patience;   /* plateau: so many figures in a row may bring no gain; one more cuts the rate */
    double threshold;   /* plateau: a gain is more than this part of the best; 0: 1e-4; SW_ZERO: any */
    int64_t cooldown;   /* plateau: after a cut, so many figures do not count */
} sw_schedule;
/* Learning rate of step s. cosine: min + (lr - min)/2 (1 + cos(pi (s - warmup)/(total - warmup))); the others stand in
 * src/nn/schedule.c. */
SW_API double sw_schedule_lr(const sw_schedule *schedule, double lr, int64_t s);

/* Reduce on plateau (torch's ReduceLROnPlateau, relative threshold, eps 1e-8): its memory, zero at first. After each
 * validation: the rate from now on, lr or max(gamma lr, min_lr). less: smaller figures are better. sw_schedule_lr takes the
 * present rate and only sees to the warm-up; sw_trainer_fit does all this with the figure it monitors. */
typedef struct sw_plateau {
    bool begun;
    double best;
    int64_t bad, cooldown; /* figures without gain in a row; figures left that do not count */
} sw_plateau;
SW_API double sw_plateau_step(const sw_schedule *schedule, sw_plateau *p, double figure, bool less, double lr);

#ifdef __cplusplus
}
#endif
#endif
