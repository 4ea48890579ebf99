/* swoop/graph.h: a computation is a graph, recorded once. This header has values, primitives, big ops, gradients, printing.
 * Flow: record (here) -> sw_grad (here) -> sw_compile (device.h) -> sw_program_run. Layers with parameters: nn.h.
 *
 * A value `sw_t` is a small struct passed by copy; its graph owns everything and sw_graph_free releases it at once.
 * Errors are sticky: a builder that fails records the first error in the graph and returns an invalid value, every
 * builder that is given an invalid value returns an invalid one, and a single check of sw_graph_status (or of what
 * sw_grad or sw_compile return) ends the build. Messages name the op, the node and the shapes.
 * Shapes are NCHW at the surface, as in ONNX and PyTorch; physical layouts are the compiler's business.
 * Binary ops broadcast like NumPy (the builder inserts reshape and expand; inside the graph nothing is implicit).
 * Floating-point semantics are IEEE 754: NaN and infinities propagate; max and min give NaN if either side is NaN. */
#ifndef SWOOP_GRAPH_H
#define SWOOP_GRAPH_H

#include "swoop/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_graph sw_graph;

typedef struct sw_t {
    sw_graph *graph;
    uint32_t id; /* 0: invalid, the graph has an error */
} sw_t;

/* ---- graph --------------------------------------------------------------------------------------------------------- */

SW_API sw_status sw_graph_new(sw_graph **out);
SW_API void sw_graph_free(sw_graph *g);
SW_API sw_status sw_graph_status(const sw_graph *g);  /* first error of the build, SW_OK if none; message in sw_error() */
SW_API void sw_graph_set_training(sw_graph *g, bool training); /* batch_norm, dropout (default true) */
SW_API bool sw_graph_is_training(const sw_graph *g);

/* Names given to nodes and parameters between push and pop get the prefix "scope." in front ("layer1.0.conv1.weight"). */
SW_API void sw_scope_push(sw_graph *g, const char *fmt, ...);
SW_API void sw_scope_pop(sw_graph *g);

/* Text, one line a node: "%12 f32[64,6,28,28] conv(%3, %4, %5) stride=1,1 … 'conv1'"; or Graphviz's dot language.
 * The string is the caller's: sw_string_free. */
typedef enum sw_print_format { SW_PRINT_TEXT = 0, SW_PRINT_DOT } sw_print_format;
SW_API sw_status sw_graph_print(const sw_graph *g, sw_print_format format, char **out);
SW_API void sw_string_free(char *s);

/* ---- about a value -------------------------------------------------------------------------------------------------- */

SW_API bool sw_valid(sw_t t);
SW_API int sw_rank(sw_t t);                    /* -1 if invalid */
SW_API int64_t sw_dim(sw_t t, int axis);       /* axis < 0 counts from the end; -1 if there is no such axis */
SW_API int64_t sw_elements(sw_t t);            /* product of the dims (1 for a scalar), -1 if invalid */
SW_API sw_dtype sw_type(sw_t t);
/* Names the node for messages, printing and profiles; inputs and variables keep their own name. Returns t. */
SW_API sw_t sw_named(sw_t t, const char *name);

/* ---- sources -------------------------------------------------------------------------------------------------------- */

/* A slot filled from outside before each run. Names are unique in a graph. */
SW_API sw_t sw_input(sw_graph *g, const char *name, sw_dtype type, int rank, const int64_t *shape);
/* The same value everywhere: sw_const(g, SW_F32, 0.5) is a scalar that broadcasts. */
SW_API sw_t sw_const(sw_graph *g, sw_dtype type, double value);
SW_API sw_t sw_full(sw_graph *g, sw_dtype type, int rank, const int64_t *shape, double value);
/* Literal data, copied: row-major, shape's product of elements of `type`. */
SW_API sw_t sw_literal(sw_graph *g, sw_dtype type, int rank, const int64_t *shape, const void *data);
/* 0, 1, 2 … along one axis. */
SW_API sw_t sw_iota(sw_graph *g, sw_dtype type, int rank, const int64_t *shape, int axis);
/* Uniform 32-bit integers (SW_U32): element e of stream `stream` at count `counter` (scalar i64 value, or an invalid
 * sw_t for 0) is word e%4 of Philox4x32-10(counter = {e/4, counter}, key = {graph seed, stream}), the seed's two halves
 * xored into one word. sw_rand: f32 in [0, 1). */
SW_API sw_t sw_random_bits(sw_graph *g, sw_t counter, uint32_t stream, int rank, const int64_t *shape);
SW_API sw_t sw_rand(sw_graph *g, sw_t counter, uint32_t stream, int rank, const int64_t *shape);
SW_API void sw_graph_set_seed(sw_graph *g, uint64_t seed); /* of random values built from now on; default 0 */

/* Initial values of a variable. fan_in and fan_out are taken from the shape as PyTorch does (dim 1, dim 0, times the
 * receptive field), unless fan is given. */
typedef enum sw_init_kind {
    SW_INIT_ZEROS = 0,
    SW_INIT_CONSTANT,       /* a */
    SW_INIT_UNIFORM,        /* in [a, b) */
    SW_INIT_NORMAL,         /* mean a, standard deviation b */
    SW_INIT_FAN_IN_UNIFORM, /* in +-1/sqrt(fan_in): PyTorch's default for linear and convolution */
    SW_INIT_XAVIER_UNIFORM, /* Glorot & Bengio 2010 */
    SW_INIT_XAVIER_NORMAL,
    SW_INIT_HE_UNIFORM,     /* He et al. 2015, fan_in, gain sqrt(2) */
    SW_INIT_HE_NORMAL
} sw_init_kind;
typedef struct sw_init {
    sw_init_kind kind;
    double a, b;
    int64_t fan; /* 0: from the shape */
} sw_init;

/* A variable keeps its value between runs; programs of the same sw_params share variables by name. */
typedef enum sw_var_kind {
    SW_VAR_PARAM = 0, /* learnt: sw_grad, optimisers */
    SW_VAR_BUFFER,    /* part of the model, not learnt: running statistics */
    SW_VAR_STATE      /* the optimiser's: moments, counters; not part of a model file */
} sw_var_kind;
SW_API sw_t sw_variable(sw_graph *g, const char *name, sw_var_kind kind, sw_dtype type, int rank, const int64_t *shape,
                        sw_init init);
SW_API sw_t sw_param(sw_graph *g, const char *name, int rank, const int64_t *shape, sw_init init); /* f32 SW_VAR_PARAM */
/* All variables of one kind, in order of declaration. Returns the count; fills at most `max` entries. */
SW_API int sw_graph_variables(const sw_graph *g, sw_var_kind kind, sw_t *out, int max);
SW_API const char *sw_name(sw_t t); /* variable's, input's or node's name; "" if it has none */

/* ---- primitives: pointwise ------------------------------------------------------------------------------------------ */

SW_API sw_t sw_neg(sw_t x);
SW_API sw_t sw_exp(sw_t x);
SW_API sw_t sw_log(sw_t x);
SW_API sw_t sw_sqrt(sw_t x);
SW_API sw_t sw_sin(sw_t x);
SW_API sw_t sw_cos(sw_t x);
SW_API sw_t sw_atan(sw_t x);
SW_API sw_t sw_tanh(sw_t x);
SW_API sw_t sw_erf(sw_t x);
SW_API sw_t sw_floor(sw_t x);
SW_API sw_t sw_cast(sw_t x, sw_dtype type); /* C conversion; float to integer truncates and saturates, NaN gives 0 */

/* Both sides have one type and broadcast. Comparisons give bool; and/or/xor take bool or integers; shifts integers.
 * mod has the sign of the divisor (Python's %); integer division truncates, and by zero gives 0. */
SW_API sw_t sw_add(sw_t a, sw_t b);
SW_API sw_t sw_sub(sw_t a, sw_t b);
SW_API sw_t sw_mul(sw_t a, sw_t b);
SW_API sw_t sw_div(sw_t a, sw_t b);
SW_API sw_t sw_mod(sw_t a, sw_t b);
SW_API sw_t sw_pow(sw_t a, sw_t b);
SW_API sw_t sw_max(sw_t a, sw_t b); /* where both are equal, each side gets half the gradient */
SW_API sw_t sw_min(sw_t a, sw_t b);
SW_API sw_t sw_lt(sw_t a, sw_t b);
SW_API sw_t sw_eq(sw_t a, sw_t b);
SW_API sw_t sw_and(sw_t a, sw_t b);
SW_API sw_t sw_or(sw_t a, sw_t b);
SW_API sw_t sw_xor(sw_t a, sw_t b);
SW_API sw_t sw_shl(sw_t a, sw_t b);
SW_API sw_t sw_shr(sw_t a, sw_t b); /* arithmetic for signed types, logical for u8 and u32 */
SW_API sw_t sw_where(sw_t condition, sw_t yes, sw_t no); /* condition: bool */

/* Compositions of the above. Scalars: the constant takes x's type. */
SW_API sw_t sw_add_scalar(sw_t x, double c);
SW_API sw_t sw_mul_scalar(sw_t x, double c);
SW_API sw_t sw_le(sw_t a, sw_t b); /* IEEE: false with NaN */
SW_API sw_t sw_gt(sw_t a, sw_t b);
SW_API sw_t sw_ge(sw_t a, sw_t b);
SW_API sw_t sw_ne(sw_t a, sw_t b);
SW_API sw_t sw_not(sw_t x); /* bool */
SW_API sw_t sw_abs(sw_t x);
SW_API sw_t sw_square(sw_t x);
SW_API sw_t sw_rsqrt(sw_t x);
SW_API sw_t sw_sigmoid(sw_t x);
SW_API sw_t sw_relu(sw_t x); /* max(x, 0), gradient 0 at 0 */
SW_API sw_t sw_gelu(sw_t x); /* exact: x/2 (1 + erf(x/sqrt 2)), Hendrycks & Gimpel 2016 */
SW_API sw_t sw_silu(sw_t x);

/* ---- primitives: movement ------------------------------------------------------------------------------------------- */

SW_API sw_t sw_reshape(sw_t x, int rank, const int64_t *shape); /* one entry may be -1 */
SW_API sw_t sw_flatten(sw_t x);                                 /* [N, …] -> [N, product of the rest] */
SW_API sw_t sw_permute(sw_t x, const int *axes);                /* result axis i is x's axis axes[i] */
SW_API sw_t sw_transpose(sw_t x, int axis_a, int axis_b);
SW_API sw_t sw_expand(sw_t x, int rank, const int64_t *shape);  /* NumPy's broadcast_to */
/* lo, hi, interior >= 0, one per axis (interior: so many between neighbours; NULL: none). */
SW_API sw_t sw_pad(sw_t x, const int64_t *lo, const int64_t *hi, const int64_t *interior, double value);
SW_API sw_t sw_slice(sw_t x, const int64_t *start, const int64_t *stop, const int64_t *step); /* step >= 1; NULL: 1 */
SW_API sw_t sw_narrow(sw_t x, int axis, int64_t start, int64_t length);
SW_API sw_t sw_concat(const sw_t *xs, int n, int axis);
SW_API sw_t sw_copy(sw_t x); /* the same value in a row-major buffer of its own */

/* ---- primitives: reduce and order ----------------------------------------------------------------------------------- */

/* Over the axes whose bits are set (bit i: axis i; SW_ALL_AXES), kept as size 1 if keep. Empty sum 0, product 1,
 * max -inf (lowest integer), min +inf. Ties of max and min share the gradient equally. */
#define SW_ALL_AXES 0xffffffffu
#define SW_AXIS(i) (1u << (i))
SW_API sw_t sw_sum(sw_t x, uint32_t axes, bool keep);
SW_API sw_t sw_mean(sw_t x, uint32_t axes, bool keep);
SW_API sw_t sw_reduce_max(sw_t x, uint32_t axes, bool keep);
SW_API sw_t sw_reduce_min(sw_t x, uint32_t axes, bool keep);
SW_API sw_t sw_prod(sw_t x, uint32_t axes, bool keep);
SW_API sw_t sw_argmax(sw_t x, int axis, bool keep); /* i64, the first among equals; NaN counts as the greatest */
SW_API sw_t sw_argmin(sw_t x, int axis, bool keep);
SW_API sw_t sw_cumsum(sw_t x, int axis, bool reverse);
SW_API sw_t sw_sort(sw_t x, int axis, bool descending);    /* stable; NaN last ascending, first descending */
SW_API sw_t sw_argsort(sw_t x, int axis, bool descending); /* i64 */

/* ---- primitives: index and contract --------------------------------------------------------------------------------- */

/* out[i][j][k] = x[index[i][j][k]][j][k] for axis 0 and rank 3 (ONNX GatherElements, torch.gather). index: i64 or i32,
 * x's shape but for `axis`. An index outside stops the run with an error that names the node. */
SW_API sw_t sw_gather(sw_t x, sw_t index, int axis);
/* base with out[index[i][j][k]][j][k] (+=, =, max=) src[i][j][k]; in order of i, so the result is reproducible. Gradients:
 * of entries set at one place the last takes all; base and entries that equal the maximum share it equally. */
SW_API sw_t sw_scatter_add(sw_t base, sw_t index, sw_t src, int axis);
SW_API sw_t sw_scatter_set(sw_t base, sw_t index, sw_t src, int axis);
SW_API sw_t sw_scatter_max(sw_t base, sw_t index, sw_t src, int axis);
/* [B…, M, K] x [B…, K, N] -> [B…, M, N], batch axes equal. */
SW_API sw_t sw_dot(sw_t a, sw_t b);

/* ---- primitives: control -------------------------------------------------------------------------------------------- */

SW_API sw_t sw_stop_gradient(sw_t x);
/* At the end of a run `variable` takes the value; everything else in the run reads the old one. */
SW_API sw_t sw_assign(sw_t variable, sw_t value);
/* Makes a value an output of every program compiled from this graph. Names are unique. */
SW_API sw_t sw_output(sw_t x, const char *name);
SW_API sw_t sw_graph_output(sw_graph *g, const char *name); /* the value of this name; invalid, and no error, if none */

/* A new graph, the same as g but in mixed precision: products compute in `half` (SW_F16 or SW_BF16) and sum up in f32,
 * what follows them is kept in `half`; statistics, losses and all that has no rule compute in f32, variables and outputs
 * stay as they are: docs/precision.md. For the forward pass and its loss, before sw_grad; *out is freed by the caller and
 * does not need g. Values of other types than f32 are not touched. SW_ERR_ARGUMENT after sw_optimizer_apply. */
SW_API sw_status sw_graph_autocast(const sw_graph *g, sw_dtype half, sw_graph **out);

/* ---- big ops: each with infer, grad, and lower into the primitives above --------------------------------------------- */

/* a [.., M, K] x b [.., K, N]; leading axes broadcast like NumPy; rank-1 operands as in ONNX MatMul. */
SW_API sw_t sw_matmul(sw_t a, sw_t b);
/* x [.., K], weight [N, K], bias [N] or invalid (SW_NONE) -> [.., N]: x weight^T + bias. */
SW_API sw_t sw_linear_op(sw_t x, sw_t weight, sw_t bias);
#define SW_NONE ((sw_t){0})

/* Spatial options for 1 to 3 spatial axes; a 0 field means 1 (stride, dilation, groups) or 0 (pads). */
typedef struct sw_conv_options {
    int64_t stride[3], pad_lo[3], pad_hi[3], dilation[3];
    int64_t groups;
    int64_t output_padding[3]; /* transposed convolution only: so many more elements behind; below stride or dilation */
} sw_conv_options;
/* x [N, C, spatial…], weight [O, C/groups, kernel…], bias [O] or SW_NONE -> [N, O, spatial'…] (ONNX Conv). */
SW_API sw_t sw_conv_op(sw_t x, sw_t weight, sw_t bias, const sw_conv_options *o);
/* x [N, C, spatial…], weight [C, O/groups, kernel…], bias [O] or SW_NONE -> [N, O, spatial'…]: the gradient of a convolution of
 * that geometry with respect to its input (torch.nn.ConvTranspose2d, ONNX ConvTranspose; Dumoulin & Visin 2016).
 * spatial' = (spatial - 1) stride - pad_lo - pad_hi + dilation (kernel - 1) + output_padding + 1. */
SW_API sw_t sw_conv_transpose_op(sw_t x, sw_t weight, sw_t bias, const sw_conv_options *o);

typedef struct sw_pool_options {
    int64_t kernel[3], stride[3], pad_lo[3], pad_hi[3]; /* stride 0: the kernel's size */
    bool count_include_pad;                             /* average: pads count in the divisor (PyTorch's default: true) */
    bool ceil_mode; /* a last window that is only partly there counts, too; an average divides by what is there of it */
} sw_pool_options;
/* x [N, C, spatial…]. Max: padding is -inf, the first of equal values gets the gradient, NaN wins. */
SW_API sw_t sw_max_pool_op(sw_t x, const sw_pool_options *o);
SW_API sw_t sw_avg_pool_op(sw_t x, const sw_pool_options *o);
/* (sum over the window of x^p)^(1/p), 0 < p; no padding; gradient 0 where that is 0 (torch.nn.functional.lp_pool2d). */
SW_API sw_t sw_lp_pool_op(sw_t x, double p, const sw_pool_options *o);
/* Where the maximum of each window is: its place in the channel's plane, row-major, i64, of the pooling's shape. */
SW_API sw_t sw_max_pool_indices(sw_t x, const sw_pool_options *o);
/* x and indices [N, C, spatial…] -> zeros but for x at those places of planes of `size` (torch.nn.MaxUnpool2d). size: one
 * number a spatial axis, nearer than a stride to (spatial - 1) stride - pads + kernel, which NULL means. Where two windows
 * have the same place, the last one stays and alone gets the gradient. */
SW_API sw_t sw_max_unpool_op(sw_t x, sw_t indices, const sw_pool_options *o, const int64_t *size);
/* x [N, C, spatial…] to size[i] elements a spatial axis (-1: as it is): window i of m over n elements is
 * [floor(i n/m), ceil((i + 1) n/m)) (torch.nn.AdaptiveAvgPool2d, AdaptiveMaxPool2d). */
SW_API sw_t sw_adaptive_avg_pool(sw_t x, const int64_t *size);
SW_API sw_t sw_adaptive_max_pool(sw_t x, const int64_t *size);
/* x [N, C, spatial…] -> [N, C]. Equal maxima share the gradient. */
SW_API sw_t sw_global_avg_pool(sw_t x);
SW_API sw_t sw_global_max_pool(sw_t x);

/* x [N, C, spatial…] to another number of elements along each spatial axis (torch.nn.functional.interpolate). */
typedef enum sw_interpolation {
    SW_INTERPOLATE_NEAREST = 0,   /* element floor(i scale), as PyTorch's "nearest" */
    SW_INTERPOLATE_NEAREST_EXACT, /* element floor((i + 1/2) scale) */
    SW_INTERPOLATE_LINEAR,        /* linear, bilinear, trilinear */
    SW_INTERPOLATE_CUBIC,         /* two axes; Keys 1981 with a = -3/4 */
    SW_INTERPOLATE_AREA           /* adaptive average pooling */
} sw_interpolation;
typedef struct sw_interpolate_options {
    sw_interpolation mode;
    int64_t size, sizes[3]; /* of all spatial axes, or of each; or, where these are 0: */
    double scale, scales[3]; /* results have floor(n scale) elements */
    bool align_corners;      /* linear, cubic: the first and last elements fall on each other */
    int sw_end;
} sw_interpolate_options;
/* sw_interpolate(x, .mode = SW_INTERPOLATE_LINEAR, .scale = 2) */
SW_API sw_t sw_interpolate_with(sw_t x, sw_interpolate_options o);
#define sw_interpolate(x, ...) sw_interpolate_with((x), (sw_interpolate_options){__VA_ARGS__, .sw_end = 0})
/* [.., C r^2, H, W] -> [.., C, H r, W r] (Shi et al. 2016), and back. */
SW_API sw_t sw_pixel_shuffle(sw_t x, int64_t r);
SW_API sw_t sw_pixel_unshuffle(sw_t x, int64_t r);

/* Training-mode batch norm over all axes but 1 (Ioffe & Szegedy 2015). weight, bias [C]. *mean, *var (biased) are [C];
 * either may be NULL. */
SW_API sw_t sw_batch_norm_op(sw_t x, sw_t weight, sw_t bias, double eps, sw_t *mean, sw_t *var);
/* Over the last n axes (Ba et al. 2016); weight and bias have the shape of those axes or are SW_NONE. */
SW_API sw_t sw_layer_norm_op(sw_t x, sw_t weight, sw_t bias, int n_axes, double eps);
/* Over each group of C/groups channels and all spatial axes of a sample (Wu & He 2018); x [N, C, …]; weight and bias [C] or
 * SW_NONE. Instance norm (Ulyanov et al. 2016): as many groups as channels. */
SW_API sw_t sw_group_norm_op(sw_t x, int64_t groups, sw_t weight, sw_t bias, double eps);
SW_API sw_t sw_instance_norm_op(sw_t x, sw_t weight, sw_t bias, double eps);
/* x / sqrt(mean(x^2) + eps) over the last n axes, times weight (their shape, or SW_NONE) (Zhang & Sennrich 2019). */
SW_API sw_t sw_rms_norm_op(sw_t x, sw_t weight, int n_axes, double eps);
SW_API sw_t sw_softmax(sw_t x, int axis);
SW_API sw_t sw_log_softmax(sw_t x, int axis);
/* logits [N, C] or [N, T, C] (classes last); target: class indices (i64, i32; logits' shape without C) or probabilities
 * (logits' shape). Mean over all rows: scalar. sw_cross_entropy_rows: one loss a row. */
SW_API sw_t sw_cross_entropy(sw_t logits, sw_t target);
SW_API sw_t sw_cross_entropy_rows(sw_t logits, sw_t target);
SW_API sw_t sw_mse(sw_t prediction, sw_t target); /* mean squared error: scalar */
/* weight [V, D], index […] of i64 or i32 -> […, D]. */
SW_API sw_t sw_embedding_op(sw_t weight, sw_t index);

/* One recurrent layer in one direction over all steps; layers with parameters are in nn.h. gates [B, T, G H] is the
 * input's part, x weight_ih^T + bias_ih; G is 4 for lstm (i f g o), 3 for gru (r z n), 1 for rnn, rows of the weights in
 * that order (PyTorch's). Results: y [B, T, H], *h_n [B, H] the last state, *c_n [B, H] the last cell (each may be NULL).
 *   lstm: c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c) (Hochreiter & Schmidhuber 1997, Gers et al. 2000)
 *   gru:  n = tanh(gates_n + sigmoid(r) (W_hn h + b_hn)), h = (1 - sigmoid(z)) n + sigmoid(z) h (Cho et al. 2014)
 *   rnn:  h = tanh or relu of gates + W_hh h + b_hh (Elman 1990)
 * reverse: from the last step to the first. lengths: sample b has lengths[b] steps (0 to T, else the run stops with an
 * error): beyond them y is 0 and the state stays, and `reverse` begins at the sample's own last step. */
typedef struct sw_recurrent_options {
    sw_t gates, weight_hh;  /* [B, T, G H], [G H, H] */
    sw_t bias_hh;           /* [G H] or SW_NONE */
    sw_t h0, c0;            /* [B, H] or SW_NONE: zeros; c0: lstm only */
    sw_t weight_hr;         /* lstm: [P, H] or SW_NONE; projects each h: y, h_n and h0 have P for H (Sak et al. 2014) */
    sw_t lengths;           /* [B] of i64 or i32, or SW_NONE */
    bool reverse;
} sw_recurrent_options;
SW_API sw_t sw_lstm_op(const sw_recurrent_options *o, sw_t *h_n, sw_t *c_n);
SW_API sw_t sw_gru_op(const sw_recurrent_options *o, sw_t *h_n);
SW_API sw_t sw_rnn_op(const sw_recurrent_options *o, bool relu, sw_t *h_n);
/* -log of the probability that the classes of log_probs [N, T, C], blanks and repetitions taken out, are a sample's labels
 * (Graves et al. 2006): [N], +inf where that cannot be. targets [N, S], of which target_lengths [N] count; input_lengths
 * [N]. With reductions and options: sw_ctc_loss of nn.h. */
SW_API sw_t sw_ctc_loss_op(sw_t log_probs, sw_t targets, sw_t input_lengths, sw_t target_lengths, int blank);

/* Scaled dot-product attention, softmax(scale q k^T + mask) v (Vaswani et al. 2017), without the matrix of scores in
 * memory: sw_attention(q, k, v, .causal = true). q [B, H, Tq, D], k [B, G, Tk, D], v [B, G, Tk, E] -> [B, H, Tq, E]; H a
 * multiple of G: head h reads keys and values of h / (H/G) (grouped queries, Ainslie et al. 2023). mask broadcasts to
 * [B, H, Tq, Tk]: bool, true where a row may attend to a key, or of q's type, added to the scores. causal: row i sees
 * keys 0 … i (as PyTorch's is_causal). A row that may attend to nothing gives 0, and no gradient. A mask that needs a
 * gradient costs the matrix. */
typedef struct sw_attention_options {
    sw_t v;
    bool causal;
    sw_t mask;    /* or SW_NONE */
    double scale; /* 0: 1/sqrt(D) */
    int sw_end;   /* leave alone: lets the macro end with an initialiser */
} sw_attention_options;
SW_API sw_t sw_attention_with(sw_t q, sw_t k, sw_attention_options o);
#define sw_attention(q, k, ...) sw_attention_with((q), (k), (sw_attention_options){__VA_ARGS__, .sw_end = 0})

/* ---- compositions: made of the ops above; definitions are PyTorch's (torch.NAME) unless said otherwise ----------------- */

/* Sums of products by index letters, 1 to 4 operands: sw_einsum("bij,bjk->bik", (sw_t[]){ a, b }, 2). '...' stands for any
 * axes, broadcast; without "->" the result has those, then the letters that occur once, in alphabetical order. A letter
 * twice in one term takes the diagonal; axes of size 1 broadcast. The cheapest order of contraction is taken, as matrix
 * products. Integers too. */
SW_API sw_t sw_einsum(const char *equation, const sw_t *xs, int n);
/* The k largest (smallest) along an axis, sorted; among equals the first, NaN counts as the greatest. indices: i64. Either
 * result may be NULL. The gradient goes to the places that were chosen. */
SW_API void sw_topk(sw_t x, int64_t k, int axis, bool largest, sw_t *values, sw_t *indices);
SW_API sw_t sw_one_hot(sw_t index, int64_t classes, sw_dtype type); /* […] -> […, classes]; an index outside: zeros */
SW_API sw_t sw_masked_fill(sw_t x, sw_t mask, double value);        /* value where the mask (bool, broadcasts) holds */
/* x with axis `axis` replaced by its entries index[0], index[1] …; index [K] of i64 or i32. One outside stops the run. */
SW_API sw_t sw_index_select(sw_t x, sw_t index, int axis);
/* index [.., D], D <= rank of x: out[i] = x[index[i][0], …, index[i][D-1]] -> [.., x's other axes] (ONNX GatherND). */
SW_API sw_t sw_gather_nd(sw_t x, sw_t index);
/* base with src[i] added at base[index[i]]; src [.., base's other axes]. What comes twice adds up, in order of i. */
SW_API sw_t sw_scatter_nd_add(sw_t base, sw_t index, sw_t src);

SW_API sw_t sw_stack(const sw_t *xs, int n, int axis); /* a new axis at `axis` */
/* Parts of these sizes, which add up to the axis; false if there is an error. */
SW_API bool sw_split(sw_t x, const int64_t *sizes, int n, int axis, sw_t *out);
/* At most n parts of equal size, the last one smaller if need be. Returns how many there are; out has room for n. */
SW_API int sw_chunk(sw_t x, int n, int axis, sw_t *out);
SW_API sw_t sw_tile(sw_t x, int n, const int64_t *repeats); /* the whole, so many times along each axis (Tensor.repeat) */
SW_API sw_t sw_repeat_interleave(sw_t x, int64_t n, int axis); /* each entry n times */
SW_API sw_t sw_roll(sw_t x, int64_t shift, int axis);       /* what falls out at one end comes in at the other */
SW_API sw_t sw_flip(sw_t x, uint32_t axes);
SW_API sw_t sw_tril(sw_t x, int64_t diagonal); /* [.., M, N]: 0 above the diagonal; diagonal > 0: one further right */
SW_API sw_t sw_triu(sw_t x, int64_t diagonal); /* 0 below it */
typedef enum sw_pad_mode { SW_PAD_REFLECT = 0, SW_PAD_REPLICATE, SW_PAD_CIRCULAR } sw_pad_mode;
/* lo, hi >= 0, one per axis. reflect: less than the axis' size; circular: at most; replicate: any. */
SW_API sw_t sw_pad_with(sw_t x, const int64_t *lo, const int64_t *hi, sw_pad_mode mode);

/* Over the axes whose bits are set, as sw_sum. */
/* (sum |x|^p)^(1/p); p = INFINITY: the largest |x|, -INFINITY: the smallest, 0: how many are not 0. Gradient 0 where x is 0
 * (torch.linalg.vector_norm). */
SW_API sw_t sw_norm(sw_t x, double p, uint32_t axes, bool keep);
SW_API sw_t sw_logsumexp(sw_t x, uint32_t axes, bool keep); /* log sum e^x; all -inf: -inf, with gradient 0 */
SW_API sw_t sw_var(sw_t x, uint32_t axes, double correction, bool keep); /* sum (x - mean)² / (n - correction) */
SW_API sw_t sw_std(sw_t x, uint32_t axes, double correction, bool keep); /* its root; gradient 0 where it is 0 */
SW_API sw_t sw_cumprod(sw_t x, int axis);
/* The greatest (smallest) so far and where it is, i64: the last among equals, NaN from the first one on. */
SW_API void sw_cummax(sw_t x, int axis, sw_t *values, sw_t *indices);
SW_API void sw_cummin(sw_t x, int axis, sw_t *values, sw_t *indices);

/* ---- signals ----------------------------------------------------------------------------------------------------------- */

/* [.., L] -> [.., T, size], T = (L - size) / hop + 1: overlapping pieces (Tensor.unfold of the last axis). */
SW_API sw_t sw_frame(sw_t x, int64_t size, int64_t hop);
typedef enum sw_window_kind {
    SW_WINDOW_HANN = 0, SW_WINDOW_HAMMING, SW_WINDOW_BLACKMAN, SW_WINDOW_RECTANGULAR /* periodic ones */
} sw_window_kind;
typedef struct sw_stft_options {
    int64_t n_fft, hop, win_length; /* samples; hop 0: n_fft/4; win_length 0: n_fft; a shorter window stands in the middle */
    sw_window_kind window_kind;
    sw_t window;    /* [win_length] instead of a kind, or SW_NONE; gets a gradient */
    bool no_center; /* frame t begins at t hop; otherwise it is centred there, the ends are reflected by n_fft/2 */
    bool normalized; /* times 1/sqrt(n_fft) */
} sw_stft_options;
/* torch.stft, one-sided: x [.., L] -> *re and *im [.., n_fft/2 + 1, T]; either may be NULL. A matrix product with the
 * transform's matrix, n_fft x (n_fft + 2) numbers that the program keeps. */
SW_API void sw_stft(sw_t x, sw_stft_options o, sw_t *re, sw_t *im);
typedef enum sw_mel_scale { SW_MEL_HTK = 0, SW_MEL_SLANEY } sw_mel_scale; /* 2595 log10(1 + f/700); linear to 1 kHz, then log */
typedef struct sw_mel_options {
    double sample_rate, f_min, f_max; /* Hz; f_max 0: half the rate */
    int64_t n_mels;
    sw_mel_scale scale;
    bool area_norm; /* each filter divided by half its width in Hz (Slaney's) */
    bool magnitude; /* of |X| instead of |X|² */
    double floor;   /* smallest value whose logarithm is taken; 0: 1e-10 */
} sw_mel_options;
/* Triangular filters [bins, n_mels], torchaudio.functional.melscale_fbanks. */
SW_API sw_t sw_mel_filters(sw_graph *g, sw_dtype type, int64_t bins, sw_mel_options o);
/* log(max(filters |stft|², floor)), the natural logarithm: x [.., L] -> [.., n_mels, T]. */
SW_API sw_t sw_log_mel(sw_t x, sw_stft_options stft, sw_mel_options o);

/* ---- gradients -------------------------------------------------------------------------------------------------------- */

/* Appends to the graph the gradient of the scalar `loss` with respect to each of wrt[0..n). out[i] has wrt[i]'s shape; a
 * value that loss does not depend on gets zeros. Gradients of gradients work. A sw_const has none and is refused. */
SW_API sw_status sw_grad(sw_t loss, const sw_t *wrt, int n, sw_t *out);
/* The same with the gradient of `loss` (any shape) given. */
SW_API sw_status sw_grad_from(sw_t loss, sw_t seed, const sw_t *wrt, int n, sw_t *out);

#ifdef __cplusplus
}
#endif
#endif
