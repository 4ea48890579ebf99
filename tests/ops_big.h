/* ops_big.h: cases of the big ops and of their gradients as ops of their own. A table for test_ops.c, which also
 * compares each with its own lowering. */
#ifndef SW_TESTS_OPS_BIG_H
#define SW_TESTS_OPS_BIG_H

#include "graph/resample.h"
#include "ops_case.h"

#define ACT(A) .attr.act = { SW_ACT_##A }
/* spatial axes, act, strides, low pads, high pads, dilations, groups */
#define CONV(ND, A, STRIDE, LO, HI, DILATION, GROUPS)                                                                  \
    .attr.conv = { ND, SW_ACT_##A, STRIDE, LO, HI, DILATION, GROUPS, { 0 } }
#define CONV_TO(ND, STRIDE, LO, HI, DILATION, GROUPS, ...)                                                             \
    .attr.conv = { ND, SW_ACT_NONE, STRIDE, LO, HI, DILATION, GROUPS, { __VA_ARGS__ } }
#define POOL(ND, INCLUDE, KERNEL, STRIDE, LO, HI) .attr.pool = { ND, INCLUDE, KERNEL, STRIDE, LO, HI, { 0 } }
#define POOL_TO(ND, INCLUDE, KERNEL, STRIDE, LO, HI, ...)                                                              \
    .attr.pool = { ND, INCLUDE, KERNEL, STRIDE, LO, HI, { __VA_ARGS__ } }
#define NORM(EPS, N) .attr.norm = { EPS, N }
#define V(...) { __VA_ARGS__ }
#define AXIS(I) .attr.axis = { .axis = I }
#define TAPS(I, N) .attr.axis = { .axis = I, .size = N }
#define ROWS(N) .attr.axis = { .size = N }
#define ATTENTION(SCALE, CAUSAL) .attr.attention = { SCALE, CAUSAL }

/* y must be the pooling of x. */
static sw_t build_max_pool_grad(sw_graph *g, const sw_t *in, const ops_case *c)
{
    const sw_t y = sw__node_add(g, SW_OP_MAX_POOL, in, 1, &c->attr, NULL), operands[3] = { in[0], y, in[1] };
    return sw__node_add(g, SW_OP_MAX_POOL_GRAD, operands, 3, &c->attr, NULL);
}

/* hidden, state (the projection's size where there is one), which options */
enum { REVERSE = 1, RELU_CELL = 2, PROJECT = 4, LENGTHS = 8 };
#define RECURRENT(H, R, WHAT)                                                                                          \
    .attr.recurrent = { ((WHAT) & REVERSE) != 0, ((WHAT) & RELU_CELL) != 0, ((WHAT) & PROJECT) != 0,                   \
                        ((WHAT) & LENGTHS) != 0, H, R }

/* All that a user sees of the op, so that its gradient is that op's own: h_n, c_n and y as one row. */
static sw_t build_recurrent(sw_graph *g, const sw_t *in, const ops_case *c)
{
    uint32_t n = 0;
    while (n < MAX_OPERANDS && c->in[n].fill) n++;
    const sw_t y = sw__node_add(g, c->op, in, n, &c->attr, NULL);
    const int states = c->op == SW_OP_LSTM ? 2 : 1;
    sw_t all[3];
    for (int k = 0; k <= states; k++) all[k] = sw_reshape(sw__output_of(y, k), 1, (int64_t[]){ -1 });
    return sw_concat(all, states + 1, 0);
}

/* The mask without row 1 of every matrix, which may then attend to nothing. */
static sw_t build_row_of_nothing(sw_graph *g, const sw_t *in, const ops_case *c)
{
    const int64_t dim[4] = { 1, 1, sw_dim(in[0], 1), 1 };
    const sw_t rows = sw_ne(sw_iota(g, SW_I32, 4, dim, 2), sw_const(g, SW_I32, 1));
    const sw_t operands[4] = { in[0], in[1], in[2], sw_and(in[3], rows) };
    return sw__node_add(g, SW_OP_ATTENTION, operands, 4, &c->attr, NULL);
}

/* The same as an additive mask of zeros and minus infinities. */
static sw_t build_minus_infinity(sw_graph *g, const sw_t *in, const ops_case *c)
{
    const int64_t dim[4] = { 1, 1, sw_dim(in[0], 1), 1 };
    const sw_t rows = sw_ne(sw_iota(g, SW_I32, 4, dim, 2), sw_const(g, SW_I32, 1));
    const sw_t mask = sw_where(sw_and(in[3], rows), sw_const(g, SW_F32, 0.5), sw_const(g, SW_F32, -(double)INFINITY));
    const sw_t operands[4] = { in[0], in[1], in[2], mask };
    return sw__node_add(g, SW_OP_ATTENTION, operands, 4, &c->attr, NULL);
}

/* attr.axis.size taps an element: element i of the result is made of those around 2i/3 of x; weights are not alike, some are 0,
 * and the last element of x is in none. */
static sw_t build_resample(sw_graph *g, const sw_t *in, const ops_case *c)
{
    const int axis = c->attr.axis.axis;
    const int64_t from = c->in[0].dim[axis], width = c->attr.axis.size, to = SW_MAX(from * 3 / 2, 1);
    sw__taps t;
    if (!sw__taps_new(g, from, to, width, &t)) return SW_NONE;
    for (int64_t e = 0; e < to * width; e++) {
        t.index[e] = (int32_t)((e / width * 2 / 3 + e % width) % SW_MAX(from - 1, 1));
        t.weight[e] = (double)(e * 7 % 5) / 4 - 0.25;
        if (e % 11 == 3) t.weight[e] = 0;
    }
    const sw_t y = sw__resample(in[0], axis, &t);
    sw__taps_free(&t);
    return y;
}

/* clang-format off */
static const ops_case big_cases[] = {
    /* matmul */
    { SW_OP_MATMUL, "", .in = { F32(NORMAL, 4, 5), F32(NORMAL, 5, 6) }, ACT(NONE), .bound = 1e-5 },
    { SW_OP_MATMUL, "bias", .in = { F32(NORMAL, 4, 5), F32(NORMAL, 5, 6), F32(NORMAL, 6) }, ACT(NONE), .bound = 1e-5 },
    { SW_OP_MATMUL, "bias and relu", .in = { F32(NORMAL, 4, 5), F32(NORMAL, 5, 6), F32(NORMAL, 6) }, ACT(RELU),
      .bound = 1e-5 },
    { SW_OP_MATMUL, "relu", .in = { F32(NORMAL, 3, 4, 5), F32(NORMAL, 3, 5, 6) }, ACT(RELU), .bound = 1e-5 },
    { SW_OP_MATMUL, "batch and bias", .in = { F32(NORMAL, 2, 3, 4, 5), F32(NORMAL, 2, 3, 5, 2), F32(NORMAL, 2) },
      ACT(NONE), .bound = 1e-5 },
    { SW_OP_MATMUL, "size 1", .in = { F32(NORMAL, 1, 1), F32(NORMAL, 1, 1), F32(NORMAL, 1) }, ACT(NONE),
      .bound = 1e-5 },
    { SW_OP_MATMUL, "nothing to add up", .in = { F32(NORMAL, 2, 0), F32(NORMAL, 0, 3), F32(NORMAL, 3) }, ACT(NONE) },
    { SW_OP_MATMUL, "no rows", .in = { F32(NORMAL, 0, 4), F32(NORMAL, 4, 3), F32(NORMAL, 3) }, ACT(RELU) },
    { SW_OP_MATMUL, "odd sizes", .in = { F32(NORMAL, 31, 70), F32(NORMAL, 70, 19), F32(NORMAL, 19) }, ACT(NONE),
      .bound = 1e-5, .flags = NO_SECOND },
    { SW_OP_MATMUL, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32), FIXED(NORMAL, 32, 3), FIXED(NORMAL, 3) },
      ACT(RELU) },

    /* convolution */
    { SW_OP_CONV, "2-D", .in = { F32(NORMAL, 2, 3, 6, 7), F32(NORMAL, 4, 3, 3, 2) },
      CONV(2, NONE, V(1, 1), V(0, 0), V(0, 0), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "bias and relu", .in = { F32(NORMAL, 2, 3, 6, 7), F32(NORMAL, 4, 3, 3, 2), F32(NORMAL, 4) },
      CONV(2, RELU, V(1, 1), V(1, 1), V(1, 1), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "bias", .in = { F32(NORMAL, 2, 3, 6, 7), F32(NORMAL, 4, 3, 3, 2), F32(NORMAL, 4) },
      CONV(2, NONE, V(1, 1), V(1, 1), V(1, 1), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "stride, uneven pads", .in = { F32(NORMAL, 2, 2, 7, 8), F32(NORMAL, 3, 2, 3, 3), F32(NORMAL, 3) },
      CONV(2, NONE, V(2, 3), V(1, 0), V(2, 1), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "dilation", .in = { F32(NORMAL, 2, 2, 9, 8), F32(NORMAL, 3, 2, 3, 2) },
      CONV(2, NONE, V(1, 2), V(2, 1), V(1, 2), V(2, 3), 1), .bound = 1e-5 },
    { SW_OP_CONV, "groups", .in = { F32(NORMAL, 2, 6, 5, 5), F32(NORMAL, 4, 3, 3, 3), F32(NORMAL, 4) },
      CONV(2, NONE, V(1, 1), V(1, 1), V(1, 1), V(1, 1), 2), .bound = 1e-5 },
    { SW_OP_CONV, "depthwise", .in = { F32(NORMAL, 2, 4, 5, 5), F32(NORMAL, 8, 1, 3, 3) },
      CONV(2, NONE, V(2, 1), V(1, 1), V(1, 1), V(1, 1), 4), .bound = 1e-5 },
    { SW_OP_CONV, "groups, stride, dilation", .in = { F32(NORMAL, 1, 4, 9, 9), F32(NORMAL, 6, 2, 3, 2) },
      CONV(2, NONE, V(2, 2), V(0, 2), V(3, 0), V(2, 3), 2), .bound = 1e-5 },
    { SW_OP_CONV, "1 by 1", .in = { F32(NORMAL, 2, 3, 4, 4), F32(NORMAL, 5, 3, 1, 1) },
      CONV(2, NONE, V(1, 1), V(0, 0), V(0, 0), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "1 by 1, stride", .in = { F32(NORMAL, 2, 3, 5, 4), F32(NORMAL, 5, 3, 1, 1) },
      CONV(2, NONE, V(2, 2), V(0, 0), V(0, 0), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "stride beyond the kernel", .in = { F32(NORMAL, 1, 2, 8, 8), F32(NORMAL, 3, 2, 2, 2) },
      CONV(2, NONE, V(3, 3), V(0, 0), V(0, 0), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "kernel as large as the image",
      .in = { F32(NORMAL, 2, 2, 3, 4), F32(NORMAL, 3, 2, 3, 4), F32(NORMAL, 3) },
      CONV(2, NONE, V(1, 1), V(0, 0), V(0, 0), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "more padding than image", .in = { F32(NORMAL, 1, 2, 2, 1), F32(NORMAL, 3, 2, 3, 3) },
      CONV(2, NONE, V(1, 1), V(3, 2), V(2, 4), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "first layer of LeNet", .in = { F32(NORMAL, 2, 1, 12, 12), F32(NORMAL, 6, 1, 5, 5), F32(NORMAL, 6) },
      CONV(2, NONE, V(1, 1), V(2, 2), V(2, 2), V(1, 1), 1), .bound = 1e-5 },
    { SW_OP_CONV, "16 channels", .in = { F32(NORMAL, 2, 16, 9, 9), F32(NORMAL, 32, 16, 3, 3), F32(NORMAL, 32) },
      CONV(2, NONE, V(2, 2), V(1, 1), V(1, 1), V(1, 1), 1), .bound = 1e-5, .flags = NO_SECOND },
    { SW_OP_CONV, "few channels, stride", .in = { F32(NORMAL, 2, 3, 6, 12), F32(NORMAL, 5, 3, 3, 3), F32(NORMAL, 5) },
      CONV(2, RELU, V(1, 2), V(1, 1), V(1, 0), V(1, 1), 1), .bound = 1e-5, .flags = NO_SECOND },
    { SW_OP_CONV, "few channels in, many out", .in = { F32(NORMAL, 2, 3, 8, 8), F32(NORMAL, 40, 3, 3, 3) },
      CONV(2, NONE, V(1, 1), V(1, 1), V(1, 1), V(1, 1), 1), .bound = 1e-5, .flags = NO_SECOND },
    { SW_OP_CONV, "1-D", .in = { F32(NORMAL, 2, 3, 11), F32(NORMAL, 4, 3, 4), F32(NORMAL, 4) },
      CONV(1, NONE, V(2), V(1), V(3), V(2), 1), .bound = 1e-5 },
    { SW_OP_CONV, "1-D groups", .in = { F32(NORMAL, 2, 4, 9), F32(NORMAL, 4, 2, 3) },
      CONV(1, RELU, V(1), V(1), V(1), V(1), 2), .bound = 1e-5 },
    { SW_OP_CONV, "3-D", .in = { F32(NORMAL, 2, 2, 4, 5, 4), F32(NORMAL, 3, 2, 2, 3, 2), F32(NORMAL, 3) },
      CONV(3, NONE, V(1, 2, 1), V(1, 0, 1), V(0, 1, 1), V(1, 1, 2), 1), .bound = 1e-5 },
    { SW_OP_CONV, "3-D groups", .in = { F32(NORMAL, 1, 4, 3, 4, 3), F32(NORMAL, 4, 2, 2, 2, 2) },
      CONV(3, NONE, V(1, 1, 1), V(1, 1, 1), V(0, 0, 0), V(1, 1, 1), 2), .bound = 1e-5 },
    { SW_OP_CONV, "no images", .in = { F32(NORMAL, 0, 3, 6, 7), F32(NORMAL, 4, 3, 3, 2), F32(NORMAL, 4) },
      CONV(2, NONE, V(1, 1), V(0, 0), V(0, 0), V(1, 1), 1) },
    { SW_OP_CONV, "special values", .in = { FIXED(SPECIAL_COLS, 1, 1, 32, 32), FIXED(NORMAL, 2, 1, 2, 2) },
      CONV(2, NONE, V(1, 1), V(0, 0), V(0, 0), V(1, 1), 1) },
    { SW_OP_CONV_GRAD_X, "", .in = { F32(NORMAL, 2, 3, 4, 4), F32(NORMAL, 3, 2, 3, 3) },
      CONV_TO(2, V(2, 2), V(1, 1), V(1, 1), V(1, 1), 1, 2, 2, 7, 8), .bound = 1e-5 },
    { SW_OP_CONV_GRAD_X, "groups, dilation", .in = { F32(NORMAL, 2, 4, 4, 4), F32(NORMAL, 4, 3, 3, 2) },
      CONV_TO(2, V(1, 2), V(0, 1), V(1, 2), V(2, 2), 2, 2, 6, 7, 6), .bound = 1e-5 },
    { SW_OP_CONV_GRAD_X, "1-D", .in = { F32(NORMAL, 2, 3, 6), F32(NORMAL, 3, 2, 4) },
      CONV_TO(1, V(2), V(2), V(1), V(1), 1, 2, 2, 12), .bound = 1e-5 },
    { SW_OP_CONV_GRAD_W, "", .in = { F32(NORMAL, 2, 2, 7, 8), F32(NORMAL, 2, 3, 4, 4) },
      CONV_TO(2, V(2, 2), V(1, 1), V(1, 1), V(1, 1), 1, 3, 2, 3, 3), .bound = 1e-5 },
    { SW_OP_CONV_GRAD_W, "groups, dilation", .in = { F32(NORMAL, 2, 6, 7, 6), F32(NORMAL, 2, 4, 4, 4) },
      CONV_TO(2, V(1, 2), V(0, 1), V(1, 2), V(2, 2), 2, 4, 3, 3, 2), .bound = 1e-5 },
    { SW_OP_CONV_GRAD_W, "3-D", .in = { F32(NORMAL, 1, 2, 3, 4, 4), F32(NORMAL, 1, 3, 3, 1, 3) },
      CONV_TO(3, V(1, 2, 1), V(1, 0, 0), V(0, 0, 0), V(1, 1, 1), 1, 3, 2, 2, 3, 2), .bound = 1e-5 },

    /* pooling */
    { SW_OP_MAX_POOL, "2 by 2", .in = { F32(DISTINCT, 2, 3, 6, 8) },
      POOL(2, false, V(2, 2), V(2, 2), V(0, 0), V(0, 0)) },
    { SW_OP_MAX_POOL, "overlapping, padded", .in = { F32(DISTINCT, 2, 3, 7, 6) },
      POOL(2, false, V(3, 3), V(2, 1), V(1, 1), V(1, 0)) },
    { SW_OP_MAX_POOL, "windows apart", .in = { F32(DISTINCT, 1, 2, 8, 8) },
      POOL(2, false, V(2, 1), V(3, 2), V(0, 0), V(0, 0)) },
    { SW_OP_MAX_POOL, "1-D", .in = { F32(DISTINCT, 2, 3, 9) }, POOL(1, false, V(3), V(2), V(1), V(1)) },
    { SW_OP_MAX_POOL, "3-D", .in = { F32(DISTINCT, 1, 2, 4, 5, 4) },
      POOL(3, false, V(2, 3, 2), V(2, 1, 2), V(0, 1, 1), V(0, 1, 1)) },
    { SW_OP_MAX_POOL, "equal elements: the first", .in = { F32(TIES, 2, 3, 6, 8) },
      POOL(2, false, V(3, 3), V(2, 2), V(1, 1), V(1, 1)), .flags = NO_DIFFERENCES },
    { SW_OP_MAX_POOL, "special values", .in = { FIXED(SPECIAL_COLS, 1, 1, 32, 32) },
      POOL(2, false, V(2, 2), V(1, 1), V(0, 0), V(0, 0)), .flags = ELEMENTWISE },
    { SW_OP_MAX_POOL, "many channels", .in = { F32(DISTINCT, 1, 20, 6, 4) },
      POOL(2, false, V(2, 2), V(2, 2), V(0, 0), V(0, 0)), .flags = NO_SECOND },
    { SW_OP_MAX_POOL, "whole image", .in = { F32(DISTINCT, 2, 3, 4, 5) },
      POOL(2, false, V(4, 5), V(4, 5), V(0, 0), V(0, 0)) },
    { SW_OP_MAX_POOL, "no images", .in = { F32(DISTINCT, 0, 3, 4, 4) },
      POOL(2, false, V(2, 2), V(2, 2), V(0, 0), V(0, 0)) },
    { SW_OP_AVG_POOL, "many channels", .in = { F32(NORMAL, 1, 20, 6, 4) },
      POOL(2, false, V(2, 2), V(2, 2), V(0, 0), V(0, 0)), .bound = 1e-6, .flags = NO_SECOND },
    { SW_OP_AVG_POOL, "2 by 2", .in = { F32(NORMAL, 2, 3, 6, 8) }, POOL(2, true, V(2, 2), V(2, 2), V(0, 0), V(0, 0)),
      .bound = 1e-5 },
    { SW_OP_AVG_POOL, "padding counts", .in = { F32(NORMAL, 2, 3, 7, 6) },
      POOL(2, true, V(3, 3), V(2, 1), V(1, 1), V(1, 0)), .bound = 1e-5 },
    { SW_OP_AVG_POOL, "padding does not count", .in = { F32(NORMAL, 2, 3, 7, 6) },
      POOL(2, false, V(3, 3), V(2, 1), V(1, 1), V(1, 0)), .bound = 1e-5 },
    { SW_OP_AVG_POOL, "1-D", .in = { F32(NORMAL, 2, 3, 9) }, POOL(1, false, V(3), V(2), V(1), V(1)), .bound = 1e-5 },
    { SW_OP_AVG_POOL, "3-D", .in = { F32(NORMAL, 1, 2, 4, 5, 4) },
      POOL(3, true, V(2, 3, 2), V(2, 1, 2), V(0, 1, 1), V(0, 1, 1)), .bound = 1e-5 },
    { SW_OP_AVG_POOL, "whole image", .in = { F32(NORMAL, 2, 5, 4, 4) },
      POOL(2, true, V(4, 4), V(4, 4), V(0, 0), V(0, 0)), .bound = 1e-5 },
    { SW_OP_AVG_POOL, "special values", .in = { FIXED(SPECIAL_COLS, 1, 1, 32, 32) },
      POOL(2, true, V(2, 2), V(1, 1), V(0, 0), V(0, 0)) },
    { SW_OP_MAX_POOL_GRAD, "", .in = { F32(DISTINCT, 2, 2, 6, 5), F32(NORMAL, 2, 2, 3, 3) },
      .build = build_max_pool_grad, POOL(2, false, V(2, 3), V(2, 2), V(0, 1), V(0, 1)) },
    { SW_OP_AVG_POOL_GRAD, "", .in = { F32(NORMAL, 2, 2, 3, 3) },
      POOL_TO(2, true, V(2, 3), V(2, 2), V(0, 1), V(0, 1), 2, 2, 6, 5), .bound = 1e-5 },
    { SW_OP_AVG_POOL_GRAD, "padding does not count", .in = { F32(NORMAL, 2, 2, 3, 3) },
      POOL_TO(2, false, V(2, 3), V(2, 2), V(0, 1), V(0, 1), 2, 2, 6, 5), .bound = 1e-5 },

    /* norms */
    { SW_OP_BATCH_NORM, "2-D", .in = { F32(NORMAL, 4, 3, 5, 2), F32(NORMAL, 3), F32(NORMAL, 3) }, NORM(1e-5, 0),
      .bound = 2e-5 },
    { SW_OP_BATCH_NORM, "2-D, y only", .in = { F32(NORMAL, 4, 3, 5, 2), F32(NORMAL, 3), F32(NORMAL, 3) }, NORM(1e-5, 0),
      .bound = 2e-5, .flags = FIRST_OUTPUT },
    { SW_OP_BATCH_NORM, "no spatial axes", .in = { F32(NORMAL, 6, 3), F32(NORMAL, 3), F32(NORMAL, 3) }, NORM(1e-5, 0),
      .bound = 2e-5 },
    { SW_OP_BATCH_NORM, "no spatial axes, y only", .in = { F32(NORMAL, 6, 3), F32(NORMAL, 3), F32(NORMAL, 3) },
      NORM(1e-5, 0), .bound = 2e-5, .flags = FIRST_OUTPUT },
    { SW_OP_BATCH_NORM, "1-D", .in = { F32(POSITIVE, 3, 4, 5), F32(NORMAL, 4), F32(NORMAL, 4) }, NORM(1e-3, 0),
      .bound = 2e-5 },
    { SW_OP_BATCH_NORM, "one element a channel", .in = { F32(NORMAL, 1, 3), F32(NORMAL, 3), F32(NORMAL, 3) },
      NORM(1e-2, 0), .bound = 2e-5 },
    { SW_OP_BATCH_NORM, "wide", .in = { F32(NORMAL, 8, 17, 7, 7), F32(NORMAL, 17), F32(NORMAL, 17) }, NORM(1e-5, 0),
      .bound = 2e-5, .flags = NO_SECOND },
    { SW_OP_BATCH_NORM_GRAD, "",
      .in = { F32(NORMAL, 3, 4, 2, 3), F32(NORMAL, 3, 4, 2, 3), F32(NORMAL, 4), F32(UNIT, 4), F32(POSITIVE, 4) },
      NORM(1e-5, 0), .bound = 2e-5 },
    { SW_OP_LAYER_NORM, "", .in = { F32(NORMAL, 4, 6), F32(NORMAL, 6), F32(NORMAL, 6) }, NORM(1e-5, 1), .bound = 2e-5 },
    { SW_OP_LAYER_NORM, "y only", .in = { F32(NORMAL, 4, 6), F32(NORMAL, 6), F32(NORMAL, 6) }, NORM(1e-5, 1),
      .bound = 2e-5, .flags = FIRST_OUTPUT },
    { SW_OP_LAYER_NORM, "two axes", .in = { F32(NORMAL, 3, 4, 5), F32(NORMAL, 4, 5), F32(NORMAL, 4, 5) }, NORM(1e-5, 2),
      .bound = 2e-5 },
    { SW_OP_LAYER_NORM, "two axes, y only", .in = { F32(NORMAL, 3, 4, 5), F32(NORMAL, 4, 5), F32(NORMAL, 4, 5) },
      NORM(1e-5, 2), .bound = 2e-5, .flags = FIRST_OUTPUT },
    { SW_OP_LAYER_NORM, "no weight", .in = { F32(NORMAL, 3, 2, 7) }, NORM(1e-5, 1), .bound = 2e-5 },
    { SW_OP_LAYER_NORM, "no weight, y only", .in = { F32(NORMAL, 3, 2, 7) }, NORM(1e-5, 1), .bound = 2e-5,
      .flags = FIRST_OUTPUT },
    { SW_OP_LAYER_NORM, "no bias", .in = { F32(NORMAL, 3, 7), F32(NORMAL, 7) }, NORM(1e-3, 1), .bound = 2e-5 },
    { SW_OP_LAYER_NORM, "wide", .in = { F32(NORMAL, 5, 515), F32(NORMAL, 515), F32(NORMAL, 515) }, NORM(1e-5, 1),
      .bound = 2e-5, .flags = NO_SECOND },
    { SW_OP_LAYER_NORM, "no rows", .in = { F32(NORMAL, 0, 6), F32(NORMAL, 6), F32(NORMAL, 6) }, NORM(1e-5, 1) },
    { SW_OP_LAYER_NORM_GRAD, "",
      .in = { F32(NORMAL, 4, 6), F32(NORMAL, 4, 6), F32(UNIT, 4, 1), F32(POSITIVE, 4, 1), F32(NORMAL, 6) },
      NORM(1e-5, 1), .bound = 2e-5 },
    { SW_OP_LAYER_NORM_GRAD, "no weight",
      .in = { F32(NORMAL, 4, 6), F32(NORMAL, 4, 6), F32(UNIT, 4, 1), F32(POSITIVE, 4, 1) }, NORM(1e-5, 1),
      .bound = 2e-5 },
    { SW_OP_SOFTMAX, "last axis", .in = { F32(NORMAL, 4, 7) }, AXIS(1), .bound = 1e-5 },
    { SW_OP_SOFTMAX, "axis 0", .in = { F32(NORMAL, 5, 3) }, AXIS(0), .bound = 1e-5 },
    { SW_OP_SOFTMAX, "middle axis", .in = { F32(NORMAL, 2, 5, 3) }, AXIS(1), .bound = 1e-5 },
    { SW_OP_SOFTMAX, "huge", .in = { FIXED(HUGE_VALUES, 4, 7) }, AXIS(1), .bound = 1e-5 },
    { SW_OP_SOFTMAX, "rows with special values", .in = { FIXED(SPECIAL_ROWS, 32, 32) }, AXIS(1), .bound = 1e-5 },
    { SW_OP_SOFTMAX, "size 1", .in = { F32(NORMAL, 4, 1) }, AXIS(1), .bound = 1e-5 },
    { SW_OP_SOFTMAX, "empty", .in = { F32(NORMAL, 4, 0) }, AXIS(1) },
    { SW_OP_SOFTMAX, "wide", .in = { F32(NORMAL, 3, 1031) }, AXIS(1), .bound = 1e-5, .flags = NO_SECOND },
    { SW_OP_LOG_SOFTMAX, "last axis", .in = { F32(NORMAL, 4, 7) }, AXIS(1), .bound = 1e-5 },
    { SW_OP_LOG_SOFTMAX, "axis 0", .in = { F32(NORMAL, 5, 3) }, AXIS(0), .bound = 1e-5 },
    { SW_OP_LOG_SOFTMAX, "middle axis", .in = { F32(NORMAL, 2, 5, 3) }, AXIS(1), .bound = 1e-5 },
    { SW_OP_LOG_SOFTMAX, "huge", .in = { FIXED(HUGE_VALUES, 4, 7) }, AXIS(1), .bound = 1e-5 },
    { SW_OP_LOG_SOFTMAX, "rows with special values", .in = { FIXED(SPECIAL_ROWS, 32, 32) }, AXIS(1), .bound = 1e-5 },

    /* losses and embedding */
    { SW_OP_CROSS_ENTROPY, "classes", .in = { F32(NORMAL, 6, 5), INDICES(5, 6) }, .bound = 1e-5 },
    { SW_OP_CROSS_ENTROPY, "classes, i32", .in = { F32(NORMAL, 6, 5), INDICES32(5, 6) }, .bound = 1e-5 },
    { SW_OP_CROSS_ENTROPY, "probabilities", .in = { F32(NORMAL, 6, 5), F32(PROBABILITIES, 6, 5) }, .bound = 1e-5 },
    { SW_OP_CROSS_ENTROPY, "one class", .in = { F32(NORMAL, 6, 1), INDICES(1, 6) }, .bound = 1e-5 },
    { SW_OP_CROSS_ENTROPY, "huge", .in = { FIXED(HUGE_VALUES, 6, 5), INDICES(5, 6) }, .bound = 1e-5 },
    { SW_OP_CROSS_ENTROPY, "special values", .in = { FIXED(SPECIAL_ROWS, 32, 32), INDICES(32, 32) }, .bound = 1e-5 },
    { SW_OP_CROSS_ENTROPY, "no rows", .in = { F32(NORMAL, 0, 5), INDICES(5, 0) } },
    { SW_OP_CROSS_ENTROPY, "wide", .in = { F32(NORMAL, 4, 1031), INDICES(1031, 4) }, .bound = 1e-5,
      .flags = NO_SECOND },
    { SW_OP_EMBEDDING, "", .in = { F32(NORMAL, 6, 3), INDICES(6, 4, 2) } },
    { SW_OP_EMBEDDING, "i32, one index", .in = { F32(NORMAL, 6, 3), { .fill = INDEX, .type = SW_I32, .extent = 6 } } },
    { SW_OP_EMBEDDING, "no index", .in = { F32(NORMAL, 6, 3), INDICES(6, 0) } },
    { SW_OP_EMBEDDING, "width 1", .in = { F32(NORMAL, 6, 1), INDICES(6, 10) } },
    { SW_OP_EMBEDDING_GRAD, "", .in = { INDICES(6, 4, 5), F32(NORMAL, 4, 5, 3) }, ROWS(6), .bound = 1e-5 },
    { SW_OP_EMBEDDING_GRAD, "i32, rows without use", .in = { INDICES32(3, 5), F32(NORMAL, 5, 7) }, ROWS(9),
      .bound = 1e-5 },
    { SW_OP_EMBEDDING_GRAD, "many", .in = { INDICES(11, 700), F32(NORMAL, 700, 5) }, ROWS(11), .bound = 1e-5,
      .flags = NO_SECOND },

    /* recurrent: gates, weight, bias, h0, c0, projection, lengths */
#define CELL(G, B, T, H, R) F32(NORMAL, B, T, G * H), F32(UNIT, G * H, R), F32(NORMAL, G * H), F32(NORMAL, B, R)
    { SW_OP_LSTM, "", .in = { CELL(4, 3, 4, 5, 5), F32(NORMAL, 3, 5) }, .build = build_recurrent,
      RECURRENT(5, 5, 0), .bound = 1e-5 },
    { SW_OP_LSTM, "what is saved, too", .in = { CELL(4, 2, 3, 2, 2), F32(NORMAL, 2, 2) }, RECURRENT(2, 2, 0),
      .bound = 1e-5 },
    { SW_OP_LSTM, "reverse", .in = { CELL(4, 2, 3, 2, 2), F32(NORMAL, 2, 2) }, .build = build_recurrent,
      RECURRENT(2, 2, REVERSE), .bound = 1e-5 },
    { SW_OP_LSTM, "lengths", .in = { CELL(4, 6, 3, 2, 2), F32(NORMAL, 6, 2), INDICES(4, 6) }, .build = build_recurrent,
      RECURRENT(2, 2, LENGTHS), .bound = 1e-5 },
    { SW_OP_LSTM, "reverse, lengths, projection",
      .in = { CELL(4, 6, 3, 5, 2), F32(NORMAL, 6, 5), F32(NORMAL, 2, 5), INDICES32(4, 6) }, .build = build_recurrent,
      RECURRENT(5, 2, REVERSE | PROJECT | LENGTHS), .bound = 1e-5 },
    { SW_OP_LSTM, "projection as large as the state", .in = { CELL(4, 1, 2, 3, 3), F32(NORMAL, 1, 3), F32(NORMAL, 3, 3) },
      .build = build_recurrent, RECURRENT(3, 3, PROJECT), .bound = 1e-5 },
    { SW_OP_LSTM, "size 1", .in = { CELL(4, 1, 1, 1, 1), F32(NORMAL, 1, 1) }, .build = build_recurrent,
      RECURRENT(1, 1, 0), .bound = 1e-5 },
    { SW_OP_LSTM, "no steps", .in = { CELL(4, 3, 0, 2, 2), F32(NORMAL, 3, 2) }, .build = build_recurrent,
      RECURRENT(2, 2, 0) },
    { SW_OP_LSTM, "no samples", .in = { CELL(4, 0, 3, 2, 2), F32(NORMAL, 0, 2) }, .build = build_recurrent,
      RECURRENT(2, 2, 0) },
    { SW_OP_LSTM, "wide", .in = { CELL(4, 19, 3, 37, 37), F32(NORMAL, 19, 37) }, .build = build_recurrent,
      RECURRENT(37, 37, 0), .bound = 2e-5, .flags = NO_SECOND },
    { SW_OP_LSTM, "wide, projection, lengths",
      .in = { CELL(4, 17, 4, 33, 18), F32(NORMAL, 17, 33), F32(UNIT, 18, 33), INDICES(5, 17) },
      .build = build_recurrent, RECURRENT(33, 18, PROJECT | LENGTHS), .bound = 3e-5, .flags = NO_SECOND },
    { SW_OP_LSTM, "saturated", .in = { FIXED(HUGE_VALUES, 2, 3, 8), FIXED(UNIT, 8, 2), FIXED(NORMAL, 8),
                                       FIXED(NORMAL, 2, 2), FIXED(NORMAL, 2, 2) }, RECURRENT(2, 2, 0), .bound = 1e-5 },
    { SW_OP_GRU, "", .in = { CELL(3, 3, 4, 5, 5) }, .build = build_recurrent, RECURRENT(5, 5, 0), .bound = 1e-5 },
    { SW_OP_GRU, "what is saved, too", .in = { CELL(3, 2, 3, 2, 2) }, RECURRENT(2, 2, 0), .bound = 1e-5 },
    { SW_OP_GRU, "reverse, lengths", .in = { CELL(3, 6, 3, 2, 2), INDICES(4, 6) }, .build = build_recurrent,
      RECURRENT(2, 2, REVERSE | LENGTHS), .bound = 1e-5 },
    { SW_OP_GRU, "no steps", .in = { CELL(3, 3, 0, 2, 2) }, .build = build_recurrent, RECURRENT(2, 2, 0) },
    { SW_OP_GRU, "wide", .in = { CELL(3, 19, 3, 37, 37), INDICES(4, 19) }, .build = build_recurrent,
      RECURRENT(37, 37, LENGTHS), .bound = 2e-5, .flags = NO_SECOND },
#define CELL_OF(TYPE, G, B, T, H)                                                                                        \
    OF(TYPE, NORMAL, B, T, G * H), OF(TYPE, UNIT, G * H, H), OF(TYPE, NORMAL, G * H), OF(TYPE, NORMAL, B, H)
    { SW_OP_LSTM, "f64", .in = { CELL_OF(SW_F64, 4, 3, 3, 5), OF(SW_F64, NORMAL, 3, 5), INDICES(4, 3) },
      .build = build_recurrent, RECURRENT(5, 5, LENGTHS), .bound = 1e-6, .flags = NO_SECOND },
    { SW_OP_GRU, "f64", .in = { CELL_OF(SW_F64, 3, 3, 3, 5) }, .build = build_recurrent, RECURRENT(5, 5, REVERSE),
      .bound = 1e-6, .flags = NO_SECOND },
    { SW_OP_RNN, "f64", .in = { CELL_OF(SW_F64, 1, 3, 3, 5) }, .build = build_recurrent, RECURRENT(5, 5, 0),
      .bound = 1e-6, .flags = NO_SECOND },
    { SW_OP_LSTM, "bf16", .in = { CELL_OF(SW_BF16, 4, 3, 1, 5), OF(SW_BF16, NORMAL, 3, 5) }, .build = build_recurrent,
      RECURRENT(5, 5, 0), .bound = 0x1p-6, .flags = NO_SECOND },
    { SW_OP_RNN, "", .in = { CELL(1, 3, 4, 5, 5) }, .build = build_recurrent, RECURRENT(5, 5, 0), .bound = 1e-5 },
    { SW_OP_RNN, "relu", .in = { CELL(1, 3, 3, 2, 2) }, .build = build_recurrent, RECURRENT(2, 2, RELU_CELL),
      .bound = 1e-5 },
    { SW_OP_RNN, "reverse, lengths", .in = { CELL(1, 6, 3, 2, 2), INDICES(4, 6) }, .build = build_recurrent,
      RECURRENT(2, 2, REVERSE | LENGTHS), .bound = 1e-5 },
    { SW_OP_RNN, "wide", .in = { CELL(1, 19, 3, 37, 37), INDICES(4, 19) }, .build = build_recurrent,
      RECURRENT(37, 37, LENGTHS), .bound = 2e-5, .flags = NO_SECOND },
    { SW_OP_LSTM_GRAD, "", .in = { F32(NORMAL, 3, 2, 2), F32(NORMAL, 3, 2), F32(NORMAL, 3, 2), F32(UNIT, 3, 2, 10),
      F32(NORMAL, 8, 2), F32(NORMAL, 3, 2) }, RECURRENT(2, 2, 0), .bound = 1e-5 },
    { SW_OP_LSTM_GRAD, "all options", .in = { F32(NORMAL, 4, 3, 2), F32(NORMAL, 4, 2), F32(NORMAL, 4, 3),
      F32(UNIT, 4, 3, 15), F32(NORMAL, 12, 2), F32(NORMAL, 4, 3), F32(NORMAL, 2, 3), INDICES(4, 4) },
      RECURRENT(3, 2, REVERSE | PROJECT | LENGTHS), .bound = 1e-5 },
    { SW_OP_GRU_GRAD, "", .in = { F32(NORMAL, 3, 2, 2), F32(NORMAL, 3, 2), F32(UNIT, 3, 2, 8), F32(UNIT, 3, 2, 2),
      F32(NORMAL, 6, 2), F32(NORMAL, 3, 2) }, RECURRENT(2, 2, 0), .bound = 1e-5 },
    { SW_OP_GRU_GRAD, "all options", .in = { F32(NORMAL, 5, 3, 2), F32(NORMAL, 5, 2), F32(UNIT, 5, 3, 8),
      F32(UNIT, 5, 3, 2), F32(NORMAL, 6, 2), F32(NORMAL, 5, 2), INDICES(4, 5) }, RECURRENT(2, 2, REVERSE | LENGTHS),
      .bound = 1e-5 },
    { SW_OP_RNN_GRAD, "", .in = { F32(NORMAL, 3, 2, 2), F32(NORMAL, 3, 2), F32(UNIT, 3, 2, 2), F32(NORMAL, 2, 2) },
      RECURRENT(2, 2, 0), .bound = 1e-5 },
    { SW_OP_RNN_GRAD, "relu, all options", .in = { F32(NORMAL, 5, 3, 2), F32(NORMAL, 5, 2), F32(UNIT, 5, 3, 2),
      F32(NORMAL, 2, 2), INDICES(4, 5) }, RECURRENT(2, 2, REVERSE | LENGTHS | RELU_CELL), .bound = 1e-5 },

    /* log-probabilities, targets, their lengths; the blank is the last class, which no target has */
    { SW_OP_CTC_LOSS, "", .in = { F32(NORMAL, 3, 5, 4), INDICES(3, 3, 2), INDICES(6, 3), INDICES(3, 3) }, AXIS(3),
      .bound = 1e-5 },
    { SW_OP_CTC_LOSS, "loss only", .in = { F32(NORMAL, 5, 6, 3), INDICES(2, 5, 3), INDICES(7, 5), INDICES(4, 5) },
      AXIS(2), .bound = 1e-5, .flags = FIRST_OUTPUT | NO_DIFFERENCES }, /* some alignments are impossible */
    { SW_OP_CTC_LOSS, "i32, no labels", .in = { F32(NORMAL, 3, 2, 3), INDICES32(2, 3, 0), INDICES32(3, 3),
      INDICES32(1, 3) }, AXIS(2), .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_CTC_LOSS, "no steps", .in = { F32(NORMAL, 3, 0, 3), INDICES(2, 3, 1), INDICES(1, 3), INDICES(2, 3) },
      AXIS(2), .flags = FIRST_OUTPUT | NO_DIFFERENCES },
    { SW_OP_CTC_LOSS, "no samples", .in = { F32(NORMAL, 0, 4, 3), INDICES(2, 0, 1), INDICES(1, 0), INDICES(2, 0) },
      AXIS(2) },
    { SW_OP_CTC_LOSS, "f64", .in = { OF(SW_F64, NORMAL, 3, 5, 4), INDICES(3, 3, 2), INDICES(6, 3), INDICES(3, 3) }, AXIS(3),
      .bound = 1e-6, .flags = FIRST_OUTPUT | NO_SECOND | NO_DIFFERENCES },
    { SW_OP_CTC_LOSS, "long", .in = { F32(NORMAL, 3, 40, 7), INDICES(6, 3, 9), INDICES(41, 3), INDICES(10, 3) },
      AXIS(6), .bound = 1e-5, .flags = NO_SECOND | FIRST_OUTPUT },

    /* attention: [B, T, H, D] */
    { SW_OP_ATTENTION, "", .in = { F32(NORMAL, 2, 5, 3, 4), F32(NORMAL, 2, 7, 3, 4), F32(NORMAL, 2, 7, 3, 6) },
      ATTENTION(0.5, false), .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "and the log-sum-exp",
      .in = { F32(NORMAL, 2, 3, 2, 4), F32(NORMAL, 2, 4, 2, 4), F32(NORMAL, 2, 4, 2, 3) }, ATTENTION(0.5, true),
      .bound = 1e-5 },
    { SW_OP_ATTENTION, "causal", .in = { F32(NORMAL, 2, 6, 2, 8), F32(NORMAL, 2, 6, 2, 8), F32(NORMAL, 2, 6, 2, 8) },
      ATTENTION(0.35, true), .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "causal, fewer keys",
      .in = { F32(NORMAL, 1, 7, 2, 3), F32(NORMAL, 1, 4, 2, 3), F32(NORMAL, 1, 4, 2, 3) }, ATTENTION(0.5, true),
      .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "causal, more keys",
      .in = { F32(NORMAL, 1, 3, 2, 3), F32(NORMAL, 1, 7, 2, 3), F32(NORMAL, 1, 7, 2, 3) }, ATTENTION(0.5, true),
      .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "grouped queries",
      .in = { F32(NORMAL, 2, 4, 6, 4), F32(NORMAL, 2, 5, 2, 4), F32(NORMAL, 2, 5, 2, 4) }, ATTENTION(0.5, false),
      .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "one key head, causal",
      .in = { F32(NORMAL, 2, 5, 3, 4), F32(NORMAL, 2, 5, 1, 4), F32(NORMAL, 2, 5, 1, 2) }, ATTENTION(0.5, true),
      .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "bool mask",
      .in = { F32(NORMAL, 2, 5, 3, 4), F32(NORMAL, 2, 9, 3, 4), F32(NORMAL, 2, 9, 3, 6), OF(SW_BOOL, FLAGS, 1, 1, 5, 9) },
      ATTENTION(0.5, false), .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "bool mask of keys, causal, groups",
      .in = { F32(NORMAL, 2, 9, 4, 4), F32(NORMAL, 2, 9, 2, 4), F32(NORMAL, 2, 9, 2, 6), OF(SW_BOOL, FLAGS, 2, 1, 1, 9) },
      ATTENTION(0.5, true), .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "a row of nothing",
      .in = { F32(NORMAL, 2, 5, 3, 4), F32(NORMAL, 2, 9, 3, 4), F32(NORMAL, 2, 9, 3, 6), OF(SW_BOOL, FLAGS, 2, 3, 5, 9) },
      ATTENTION(0.5, false), .build = build_row_of_nothing, .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "minus infinity",
      .in = { F32(NORMAL, 2, 5, 3, 4), F32(NORMAL, 2, 9, 3, 4), F32(NORMAL, 2, 9, 3, 6), OF(SW_BOOL, FLAGS, 1, 3, 5, 9) },
      ATTENTION(0.5, false), .build = build_minus_infinity, .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "added mask",
      .in = { F32(NORMAL, 2, 5, 3, 4), F32(NORMAL, 2, 7, 3, 4), F32(NORMAL, 2, 7, 3, 6), FIXED(NORMAL, 2, 3, 5, 7) },
      ATTENTION(0.5, false), .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "added mask that is learnt",
      .in = { F32(NORMAL, 2, 4, 3, 4), F32(NORMAL, 2, 5, 3, 4), F32(NORMAL, 2, 5, 3, 2), F32(NORMAL, 1, 3, 4, 5) },
      ATTENTION(0.5, false), .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "one step", .in = { F32(NORMAL, 2, 1, 3, 4), F32(NORMAL, 2, 1, 3, 4), F32(NORMAL, 2, 1, 3, 4) },
      ATTENTION(0.5, true), .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "one feature", .in = { F32(NORMAL, 1, 3, 2, 1), F32(NORMAL, 1, 4, 2, 1), F32(NORMAL, 1, 4, 2, 1) },
      ATTENTION(1, false), .bound = 1e-5, .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "no keys", .in = { F32(NORMAL, 2, 3, 2, 4), F32(NORMAL, 2, 0, 2, 4), F32(NORMAL, 2, 0, 2, 4) },
      ATTENTION(0.5, false), .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "no rows", .in = { F32(NORMAL, 2, 0, 2, 4), F32(NORMAL, 2, 3, 2, 4), F32(NORMAL, 2, 3, 2, 4) },
      ATTENTION(0.5, false), .flags = FIRST_OUTPUT },
    { SW_OP_ATTENTION, "large scores",
      .in = { F32(NORMAL, 2, 5, 2, 4), F32(NORMAL, 2, 7, 2, 4), F32(NORMAL, 2, 7, 2, 4) }, ATTENTION(60, false),
      .bound = 5e-4, .flags = FIRST_OUTPUT | NO_SECOND },
    { SW_OP_ATTENTION, "huge", .in = { FIXED(HUGE_VALUES, 1, 3, 2, 2), FIXED(NORMAL, 1, 5, 2, 2), FIXED(NORMAL, 1, 5, 2, 2) },
      ATTENTION(1, false), .bound = 1e-5 },
    { SW_OP_ATTENTION, "odd sizes, causal",
      .in = { F32(NORMAL, 1, 67, 2, 33), F32(NORMAL, 1, 131, 1, 33), F32(NORMAL, 1, 131, 1, 17) }, ATTENTION(0.2, true),
      .bound = 1e-5, .flags = FIRST_OUTPUT | NO_SECOND },
    { SW_OP_ATTENTION, "long, mask",
      .in = { F32(NORMAL, 1, 131, 1, 20), F32(NORMAL, 1, 300, 1, 20), F32(NORMAL, 1, 300, 1, 5),
              OF(SW_BOOL, FLAGS, 1, 1, 131, 300) },
      ATTENTION(0.2, false), .bound = 1e-5, .flags = FIRST_OUTPUT | NO_SECOND },
    { SW_OP_ATTENTION, "many features",
      .in = { F32(NORMAL, 1, 20, 1, 128), F32(NORMAL, 1, 35, 1, 128), F32(NORMAL, 1, 35, 1, 80) }, ATTENTION(0.09, false),
      .bound = 1e-5, .flags = FIRST_OUTPUT | NO_SECOND },
    { SW_OP_ATTENTION, "f64", .in = { OF(SW_F64, NORMAL, 2, 5, 4, 4), OF(SW_F64, NORMAL, 2, 7, 2, 4),
                                      OF(SW_F64, NORMAL, 2, 7, 2, 6), OF(SW_BOOL, FLAGS, 1, 4, 5, 7) },
      ATTENTION(0.5, true), .bound = 1e-12, .flags = FIRST_OUTPUT | NO_SECOND },
    { SW_OP_ATTENTION, "f16", .in = { OF(SW_F16, NORMAL, 2, 5, 2, 4), OF(SW_F16, NORMAL, 2, 7, 2, 4),
                                      OF(SW_F16, NORMAL, 2, 7, 2, 6) },
      ATTENTION(0.5, true), .bound = 4e-3, .flags = FIRST_OUTPUT | NO_SECOND },
    { SW_OP_ATTENTION, "bf16", .in = { OF(SW_BF16, NORMAL, 2, 5, 2, 4), OF(SW_BF16, NORMAL, 2, 7, 2, 4),
                                       OF(SW_BF16, NORMAL, 2, 7, 2, 6) },
      ATTENTION(0.5, false), .bound = 3e-2, .flags = FIRST_OUTPUT | NO_SECOND },
    { SW_OP_ATTENTION_GRAD, "",
      .in = { F32(NORMAL, 2, 3, 4, 4), F32(NORMAL, 2, 5, 2, 4), F32(NORMAL, 2, 5, 2, 3), F32(NORMAL, 2, 3, 4, 3),
              F32(POSITIVE, 2, 4, 3), F32(NORMAL, 2, 3, 4, 3) },
      ATTENTION(0.5, false), .bound = 1e-5 },
    { SW_OP_ATTENTION_GRAD, "mask, causal",
      .in = { F32(NORMAL, 2, 3, 2, 4), F32(NORMAL, 2, 5, 2, 4), F32(NORMAL, 2, 5, 2, 3), F32(NORMAL, 2, 3, 2, 3),
              F32(POSITIVE, 2, 2, 3), F32(NORMAL, 2, 3, 2, 3), OF(SW_BOOL, FLAGS, 2, 1, 3, 5) },
      ATTENTION(0.5, true), .bound = 1e-5 },

    /* resampling */
    { SW_OP_RESAMPLE, "last axis", .in = { F32(NORMAL, 2, 3, 7) }, .build = build_resample, TAPS(2, 2), .bound = 1e-5 },
    { SW_OP_RESAMPLE, "middle axis, one tap", .in = { F32(NORMAL, 3, 5, 2) }, .build = build_resample, TAPS(1, 1),
      .bound = 1e-5 },
    { SW_OP_RESAMPLE, "four axes", .in = { F32(NORMAL, 2, 3, 4, 5) }, .build = build_resample, TAPS(2, 4), .bound = 1e-5 },
    { SW_OP_RESAMPLE, "one element", .in = { F32(NORMAL, 2, 1) }, .build = build_resample, TAPS(1, 2), .bound = 1e-5 },
    { SW_OP_RESAMPLE, "nothing to resample", .in = { F32(NORMAL, 0, 3, 4) }, .build = build_resample, TAPS(1, 2) },
    { SW_OP_RESAMPLE, "many taps", .in = { F32(NORMAL, 2, 9, 3) }, .build = build_resample, TAPS(1, 35), .bound = 1e-5,
      .flags = NO_SECOND },
    { SW_OP_RESAMPLE, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32) }, .build = build_resample, TAPS(1, 2) },
};
/* clang-format on */

#endif
