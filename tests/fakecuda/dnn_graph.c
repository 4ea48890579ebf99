/* dnn_graph.c: what the descriptors of a graph say, in plain structs that outlive them: tensors, then convolutions and
 * pointwise ops, then the graph as a list of steps. Called by dnn.c when a descriptor is finished. */
#include "fake_dnn.h"

#include <stdlib.h>

static int64_t number(const fk_record *r, int name, int64_t otherwise)
{
    int64_t n = 0, v = otherwise;
    const void *const value = fk_value_of(r, name, &n);
    if (value != NULL && n == 1) memcpy(&v, value, sizeof v);
    return v;
}

static int choice(const fk_record *r, int name, int otherwise)
{
    int64_t n = 0;
    int v = otherwise;
    const void *const value = fk_value_of(r, name, &n);
    if (value != NULL && n == 1) memcpy(&v, value, sizeof v);
    return v;
}

static int numbers(const fk_record *r, int name, int64_t *to, int most)
{
    int64_t n = 0;
    const void *const value = fk_value_of(r, name, &n);
    if (value == NULL || n > most) return 0;
    memcpy(to, value, (size_t)n * sizeof *to);
    return (int)n;
}

static double real_number(const fk_record *r, int name, bool wide, double otherwise)
{
    int64_t n = 0;
    const void *const value = fk_value_of(r, name, &n);
    return value != NULL && n == 1 ? fk_load(wide ? FK_F64 : FK_F32, value) : otherwise;
}

static const fk_record *part(const fk_record *r, int name)
{
    int64_t n = 0;
    void *d = NULL;
    const void *const value = fk_value_of(r, name, &n);
    if (value != NULL && n == 1) memcpy(&d, value, sizeof d);
    return d != NULL ? fk_record_of(d) : NULL;
}

static fk_tensor tensor(const fk_record *r, int name)
{
    const fk_record *const t = part(r, name);
    return t != NULL ? t->tensor : (fk_tensor){ .id = -1 };
}

static void note_tensor(fk_record *r)
{
    fk_tensor *const t = &r->tensor;
    int64_t n = 0;
    const int type = choice(r, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
    const bool *const is_virtual = fk_value_of(r, CUDNN_ATTR_TENSOR_IS_VIRTUAL, &n);
    t->type = type == CUDNN_DATA_DOUBLE     ? FK_F64
              : type == CUDNN_DATA_HALF     ? FK_F16
              : type == CUDNN_DATA_BFLOAT16 ? FK_BF16
                                            : FK_F32;
    t->is_virtual = is_virtual != NULL && *is_virtual;
    t->id = number(r, CUDNN_ATTR_TENSOR_UNIQUE_ID, -1);
    t->align = number(r, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
    t->rank = numbers(r, CUDNN_ATTR_TENSOR_DIMENSIONS, t->dim, FK_DNN_AXES);
    numbers(r, CUDNN_ATTR_TENSOR_STRIDES, t->stride, FK_DNN_AXES);
}

static void note_convolution(fk_record *r)
{
    fk_step *const s = &r->part;
    s->nd = (int)number(r, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
    numbers(r, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, s->pre, 3);
    numbers(r, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, s->post, 3);
    numbers(r, CUDNN_ATTR_CONVOLUTION_DILATIONS, s->dilation, 3);
    numbers(r, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, s->stride, 3);
    const bool cross = choice(r, CUDNN_ATTR_CONVOLUTION_CONV_MODE, -1) == CUDNN_CROSS_CORRELATION;
    if (!cross) fk.report("cudnn: a convolution that turns its kernel round");
}

static const struct {
    int type;
    fk_what what;
    int conv, alpha, beta, x, w, y;
} operations[] = {
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, FK_FORWARD,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, FK_DATA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, FK_FILTER,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY },
};

static void note_operation(fk_record *r, size_t i)
{
    const fk_record *const conv = part(r, operations[i].conv);
    if (conv != NULL) r->part = conv->part;
    r->part.what = operations[i].what;
    r->part.x = tensor(r, operations[i].x);
    r->part.w = tensor(r, operations[i].w);
    r->part.y = tensor(r, operations[i].y);
    const bool wide = r->part.x.type == FK_F64;
    r->part.alpha = real_number(r, operations[i].alpha, wide, 1);
    r->part.beta = real_number(r, operations[i].beta, wide, 0);
}

static void note_pointwise(fk_record *r)
{
    const fk_record *const how = part(r, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = how != NULL ? choice(how, CUDNN_ATTR_POINTWISE_MODE, -1) : -1;
    r->part.what = mode == CUDNN_POINTWISE_ADD ? FK_ADD : mode == CUDNN_POINTWISE_RELU_FWD ? FK_RELU : FK_UNKNOWN;
    r->part.x = tensor(r, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    r->part.w = tensor(r, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    r->part.y = tensor(r, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
}

static bool same_tensor(const fk_tensor *a, const fk_tensor *b)
{
    return a->type == b->type && a->rank == b->rank && a->align == b->align && a->is_virtual == b->is_virtual &&
           memcmp(a->dim, b->dim, sizeof a->dim) == 0 && memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

/* A chain: a convolution, then pointwise ops each on what the one before gave. Two tensors of one id: the library does
 * not notice. */
static void check_graph(fk_graph *g)
{
    const fk_tensor *seen[2 * FK_DNN_OPS + 1];
    int n = 0;
    g->known = g->n > 0 && g->step[0].what <= FK_FILTER;
    for (int i = 0; i < g->n; i++) {
        const fk_step *const s = &g->step[i];
        const fk_tensor *const own[] = { &s->x, &s->w, &s->y };
        if (i > 0)
            g->known = g->known && s->what != FK_UNKNOWN && s->what > FK_FILTER && s->x.id == g->step[i - 1].y.id;
        for (int k = 0; k < 3; k++) {
            if (own[k]->id < 0) continue;
            for (int j = 0; j < n; j++)
                if (seen[j]->id == own[k]->id && !same_tensor(seen[j], own[k]))
                    fk.report("cudnn: two tensors of a graph have the id %lld", (long long)own[k]->id);
            if (n < 2 * FK_DNN_OPS + 1) seen[n++] = own[k];
        }
    }
}

static fk_graph *graphs;

static void note_graph(fk_record *r)
{
    int64_t n = 0;
    void *const *const ops = fk_value_of(r, CUDNN_ATTR_OPERATIONGRAPH_OPS, &n);
    r->graph = calloc(1, sizeof *r->graph);
    if (r->graph == NULL) abort();
    r->graph->next = graphs;
    graphs = r->graph;
    for (int64_t i = 0; i < n && i < FK_DNN_OPS; i++) {
        const fk_record *const op = fk_record_of(ops[i]);
        if (op != NULL) r->graph->step[r->graph->n++] = op->part;
    }
    check_graph(r->graph);
}

void fk_graph_note(fk_record *r)
{
    if (r->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) note_tensor(r);
    if (r->type == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) note_convolution(r);
    if (r->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) note_pointwise(r);
    if (r->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) note_graph(r);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (operations[i].type == r->type) note_operation(r, i);
}
