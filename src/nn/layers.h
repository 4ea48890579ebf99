/* layers.h: what the files with layers share: names of variables, PyTorch's default initial values. Under layers*.c. */
#ifndef SW_NN_LAYERS_H
#define SW_NN_LAYERS_H

#include "graph/build.h"
#include "swoop/nn.h"

#define SW__LAYER_NAME 256

/* "NAME.part" for a named layer; an unnamed one is counted: "linear1.weight" is the first variable of that form that the
 * graph does not have yet. */
typedef struct sw__layer_name { char base[SW__LAYER_NAME]; } sw__layer_name;

/* part: the variable by which to see whether a counted name is in use. */
sw__layer_name sw__name_layer(sw_graph *g, const char *given, const char *kind, const char *part);
sw_t sw__layer_variable(sw_graph *g, const sw__layer_name *n, const char *part, sw_var_kind kind, sw_dtype type, int rank,
                        const int64_t *shape, sw_init init);
sw_t sw__layer_param(sw_graph *g, const sw__layer_name *n, const char *part, int rank, const int64_t *shape, sw_init init); /* f32 */
/* PyTorch's default for linear and convolution, also for their biases (whose fan_in is the weight's), unless one is given. */
sw_init sw__fan_in_init(sw_init given, int64_t fan_in);
/* Names the layer's result; an error that its ops have just met (x was valid) is told with the layer's name in front. */
sw_t sw__layer_finish(sw_graph *g, sw_t y, const sw__layer_name *n);

/* layers_attention.c: q, k, v [B, T, H D] -> [B, T, H D]; packed: the three behind each other along the last axis. */
sw_t sw__attend(sw_t q, sw_t k, sw_t v, int64_t heads, bool causal, sw_t mask);
sw_t sw__attend_packed(sw_t qkv, int64_t heads, bool causal, sw_t mask);

static inline int64_t sw__or_one(int64_t n)
{
    return n ? n : 1;
}

#endif
