/* graph.h: the graph as the rest of swoop sees it: nodes, attributes, the op table, rewriting.
 * Between the public builders (swoop/graph.h) and the passes: graph -> graph. Below: base. */
#ifndef SW_GRAPH_GRAPH_H
#define SW_GRAPH_GRAPH_H

#include "base/base.h"
#include "swoop/graph.h"

#define SW__ANY 255

typedef enum sw__op {
    SW_OP_NONE = 0,
#define SW_OP(ENUM, name, lo, hi, cls, attr, infer, grad, lower, flags) SW_OP_##ENUM,
#include "graph/op.def"
#undef SW_OP
    SW_OP_COUNT
} sw__op;

typedef enum sw__op_class {
    SW_CLASS_SOURCE, SW_CLASS_UNARY, SW_CLASS_BINARY, SW_CLASS_TERNARY, SW_CLASS_MOVE, SW_CLASS_REDUCE, SW_CLASS_ORDER,
    SW_CLASS_INDEX, SW_CLASS_CONTRACT, SW_CLASS_CONTROL, SW_CLASS_BIG, SW_CLASS_OWN
} sw__op_class;

enum { SW_OPF_PW = 1, SW_OPF_COMM = 2, SW_OPF_VIEW = 4, SW_OPF_PURE = 8 };

typedef enum sw__attr_kind {
    SW_ATTR_NONE, SW_ATTR_CONST, SW_ATTR_LITERAL, SW_ATTR_AXIS, SW_ATTR_RANDOM, SW_ATTR_SLOT, SW_ATTR_TIE, SW_ATTR_PERM,
    SW_ATTR_PAD, SW_ATTR_SLICE, SW_ATTR_AXES, SW_ATTR_ACT, SW_ATTR_CONV, SW_ATTR_POOL, SW_ATTR_NORM,
    SW_ATTR_ATTENTION, SW_ATTR_CUSTOM, SW_ATTR_RECURRENT
} sw__attr_kind;

typedef enum sw__act { SW_ACT_NONE = 0, SW_ACT_RELU } sw__act;

/* Attributes are compared and hashed as bytes: always start from a zeroed union. */
typedef union sw__attr {
    struct { double value; int64_t ivalue; } constant;      /* CONST: value for floats, ivalue for the rest; both set */
    struct { const void *data; size_t bytes; } literal;     /* LITERAL: in the graph's arena */
    struct {
        int axis;                                           /* IOTA, CONCAT, ARG*, SCAN, SORT, GATHER, SOFTMAX, …; CTC_LOSS: blank */
        bool flag;                                          /* SCAN: reverse; SORT, ARGSORT: descending */
        int64_t size;                                       /* EMBEDDING_GRAD: rows; OUTPUT: axis is the index k */
    } axis;
    struct { uint64_t seed; uint32_t stream; } random;      /* seed: folded to 32 bits, the first word of the key */
    struct { uint32_t index; } slot;                        /* INPUT: inputs, VAR: vars, VARPACK and PACK: groups */
    struct { bool second; } tie;                            /* MAX, MIN of equals: second gets all dy (relu) or half */
    struct { uint8_t axes[SW_MAX_RANK]; } perm;
    struct { int64_t lo[SW_MAX_RANK], hi[SW_MAX_RANK], interior[SW_MAX_RANK]; double value; } pad;
    struct { int64_t start[SW_MAX_RANK], stop[SW_MAX_RANK], step[SW_MAX_RANK]; } slice;
    struct { uint32_t axes; } axes;                         /* REDUCE_*: bit set of reduced axes */
    struct { int32_t act; } act;
    struct {                                                /* CONV*, nd = 1..3 spatial axes */
        int32_t nd, act;
        int64_t stride[3], pad_lo[3], pad_hi[3], dilation[3], groups;
        int64_t dim[5];                                     /* GRAD_X: shape of x; GRAD_W: shape of the weight */
    } conv;
    struct {
        int32_t nd; bool include_pad;
        int64_t kernel[3], stride[3], pad_lo[3], pad_hi[3];
        int64_t dim[5];                                     /* AVG_POOL_GRAD: shape of x */
    } pool;
    struct { double eps; int32_t n_axes; } norm;            /* n_axes: LAYER_NORM only */
    struct {
        int32_t reverse, relu;                              /* relu: RNN's activation, else tanh */
        int32_t proj, lengths;                              /* whether there are such operands */
        int64_t hidden, state;                              /* H, and R: H or the projection's size */
    } recurrent;
    struct { double scale; bool causal; } attention;        /* scale: resolved, not 0 for the default */
    struct { const struct sw__custom *op; } custom;         /* CUSTOM*: the registered op, graph/custom.h */
} sw__attr;

typedef struct sw__node {
    uint16_t op;
    uint8_t dtype, rank;
    uint32_t n_in;
    uint32_t *in;            /* ids, all smaller than the node's own: id order is a topological order */
    int64_t dim[SW_MAX_RANK];
    sw__attr attr;
    const char *name;        /* in the arena, or NULL */
    uint8_t order[SW_MAX_RANK]; /* physical order of the axes, slowest first; layout pass; identity otherwise */
} sw__node;

typedef struct sw__input { const char *name; uint32_t node; } sw__input;
typedef struct sw__named_output { const char *name; uint32_t node; } sw__named_output;

/* A variable. `group` >= 0: member of a packed group, its elements start at `place` (a multiple of 16 elements). */
typedef struct sw__var {
    const char *name;
    sw_var_kind kind;
    sw_dtype dtype;
    uint8_t rank;
    int64_t dim[SW_MAX_RANK];
    sw_init init;
    uint32_t node;
    int32_t group;
    int64_t place;
} sw__var;

/* Variables of one dtype laid one after the other so that an optimiser can treat them as one flat tensor: parameters,
 * their gradients and the optimiser's state (decision 001). */
typedef struct sw__group { uint32_t *vars; uint32_t n; sw_dtype dtype; int64_t elements; } sw__group;

struct sw_graph {
    sw__arena arena;
    sw__node *nodes;         /* nodes[0] is the invalid value */
    uint32_t n_nodes;
    size_t cap_nodes;
    sw__input *inputs;
    uint32_t n_inputs;
    size_t cap_inputs;
    sw__var *vars;
    uint32_t n_vars;
    size_t cap_vars;
    sw__names var_names;     /* of vars; as far as somebody asked (sw__var_find) */
    sw__names counted;       /* names that layers counted: how far (nn/layer_name.c) */
    sw__group *groups;
    uint32_t n_groups;
    size_t cap_groups;
    sw__named_output *outputs;
    uint32_t n_outputs;
    size_t cap_outputs;
    uint32_t *assigns;       /* ids of ASSIGN nodes: roots beside the outputs */
    uint32_t n_assigns;
    size_t cap_assigns;
    bool training;
    uint64_t seed;
    sw__text scope;          /* "layer1.0." while building inside that scope */
    size_t *scope_marks;     /* length of `scope` before each push */
    size_t n_scopes, cap_scopes, lost_scopes; /* lost: pushes that failed, to be popped first */
    sw_status status;        /* first error, sticky */
    char message[1024];
};

typedef struct sw__op_info {
    const char *name;
    uint8_t min_in, max_in, cls, attr, flags;
    sw_status (*infer)(const sw_graph *g, sw__node *n); /* inputs and attr set; sets dtype, rank, dim */
    /* Gradients of node `id`'s inputs: dy[k] is the gradient of output k (invalid if none); sets dx[i] for each input i
     * (leave invalid: no gradient). want[i] false: input i needs none. */
    void (*grad)(sw_graph *g, uint32_t id, const sw_t *dy, const bool *want, sw_t *dx);
    /* The op in terms of smaller ops: in[] are the already rewritten inputs; sets out[k] for each output k (out[0] the
     * node itself, at most SW__MAX_OUT). `n` is the node to lower (from another graph or this one). */
    void (*lower)(sw_graph *g, const sw__node *n, const sw_t *in, sw_t *out);
} sw__op_info;
#define SW__MAX_OUT 6

extern const sw__op_info sw__op_table[SW_OP_COUNT];

/* ---- building ------------------------------------------------------------------------------------------------- */

/* The one door through which nodes enter: checks the inputs, infers, appends. Sticky on error. attr NULL: zeros. For
 * *_given ops (sources) dtype, rank and dim come from `shape_of` (a node with those set); NULL otherwise.
 * CAST: dtype from shape_of->dtype; RESHAPE, EXPAND: dims from shape_of. */
sw_t sw__node_add(sw_graph *g, sw__op op, const sw_t *in, uint32_t n_in, const sw__attr *attr,
                  const sw__node *shape_of);
static inline sw__node *sw__node_of(sw_t t) { return &t.graph->nodes[t.id]; }
static inline sw_t sw__value(sw_graph *g, uint32_t id) { return (sw_t){g, id}; }
sw_t sw__graph_error(sw_graph *g, sw_status s, const char *fmt, ...) SW_PRINTF(3, 4); /* records, returns invalid */
int64_t sw__dims_product(const int64_t *dim, int rank);
int64_t sw__node_elements(const sw__node *n);
int sw__node_outputs(const sw__node *n); /* 1, or how many outputs the big op has */
sw_t sw__output_of(sw_t t, int k);       /* output k of a big op with several; k = 0 is t itself */
bool sw__same_shape(const sw__node *a, const sw__node *b);
/* "f32[64,10]" into a caller's buffer; returns the buffer. */
char *sw__shape_text(const sw__node *n, char *buf, size_t size);

/* The variable of that full name: its place in vars. A failed allocation turns the graph bad. */
bool sw__var_find(sw_graph *g, const char *name, uint32_t *var);

/* Lays the variables (all of one dtype, in this order) into a new packed group; each may be in one group only.
 * sw__varpack: the group as one flat tensor; sw__pack: values of the variables' shapes, in the same places. */
sw_status sw__var_group(sw_graph *g, const sw_t *vars, uint32_t n, uint32_t *group);
sw_t sw__varpack(sw_graph *g, uint32_t group);
sw_t sw__pack(sw_graph *g, uint32_t group, const sw_t *values);

/* ---- rewriting (passes): a fresh graph with the same inputs, variables, groups, names, seed ------------------- */

/* Shell of g without nodes; inputs, vars and groups are copied, their nodes to be added by the rewriting. */
sw_status sw__graph_like(const sw_graph *g, sw_graph **out);
/* Copies node id of g into out with inputs mapped through map[] (old id -> new value); keeps name and order. INPUT,
 * VAR, VARPACK, PACK keep their slots; registers assigns. */
sw_t sw__node_copy(sw_graph *out, const sw_graph *g, uint32_t id, const sw_t *map);
/* After all nodes were mapped: re-registers the outputs. */
sw_status sw__graph_finish(sw_graph *out, const sw_graph *g, const sw_t *map);
/* live[id] = reachable from outputs and assigns. Array of n_nodes, caller frees with sw__free. */
sw_status sw__graph_live(const sw_graph *g, bool **live);

#endif
