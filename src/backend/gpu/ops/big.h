/* big.h: what the plans of products, convolutions and pooling share. Between gpu.h and ops/{matmul,conv,pool}.c, which
 * describe an op, and ops/{tile,rows,…}.c, which turn such a description into launches of portable kernels.
 * Strides count elements. */
#ifndef SW_BACKEND_GPU_OPS_BIG_H
#define SW_BACKEND_GPU_OPS_BIG_H

#include "backend/desc.h"
#include "backend/gpu/gpu.h"

/* ---- asking for a kernel and launching it ---------------------------------------------------------------------- */

typedef struct sw__ask {
    sw__gpu_plan *p;
    const char *file;
    sw__gpu_macro macro[40];
    int n_macros;
    sw__gpu_arg arg[SW_GPU_MAX_ARGS];
    int n_args;
} sw__ask;

sw__ask sw__ask_for(sw__gpu_plan *p, const char *file);
void sw__ask_macro(sw__ask *a, const char *name, int64_t value);
void sw__ask_text(sw__ask *a, const char *name, const char *text);
/* T, LOAD, STORE, ACC of a storage type */
void sw__ask_type(sw__ask *a, sw_dtype t);
/* TA, LOAD_A of an operand of that type, or (acc) of a copy of it as accumulators are kept */
void sw__ask_left(sw__ask *a, sw_dtype t, bool acc);
void sw__ask_buffer(sw__ask *a, int bind, int64_t at_bytes);
void sw__ask_i32(sw__ask *a, int n, const int64_t *values);
void sw__ask_i64(sw__ask *a, int n, const int64_t *values);
void sw__ask_errors(sw__ask *a); /* ERRORS, after all others */
sw_status sw__ask_launch(sw__ask *a, int64_t groups_x, int64_t groups_y, int64_t groups_z, int items);

/* Bytes of an accumulator: sums of f16 and bf16 are kept in f32. */
static inline int64_t sw__acc_bytes(sw_dtype t) { return t == SW_F64 ? 8 : 4; }

/* A piece of the workspace of this plan: its byte offset. Pieces of one plan lie beside each other. */
int64_t sw__big_workspace(sw__gpu_plan *p, int64_t bytes);
static inline int64_t sw__div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* A workspace is not to be larger than this, where that can be helped. */
#define SW__BIG_WORKSPACE ((int64_t)64 << 20)

/* ---- products of matrices -------------------------------------------------------------------------------------- */

/* c[z][m][n] = act(sum over k of a[z][m][k] b[z][k][n] + bias[n]); operands by number among the plan's buffers, and
 * where they begin in bytes. */
typedef struct sw__product {
    sw_dtype type;
    int a, b, c, bias;         /* bias -1: none */
    int64_t a_at, b_at, c_at;
    int64_t bias_at, bias_s;   /* bytes; stride of bias */
    bool bias_rows;            /* bias goes with m instead; rows.c only */
    bool relu;
    SW_MATRICES_MEMBER;        /* at most two batch axes for the functions below */
} sw__product;

/* How many variants tile.c and rows.c have of any product or convolution; some may come to the same. */
int sw__tile_variants(void);
int sw__rows_variants(void);

/* The product of a MATMUL or DOT, batch axes as in sw__matrices; and bias and relu in place, behind a library's call. */
sw__product sw__product_of(const sw__gpu_plan *p);
sw_status sw__product_finish(sw__gpu_plan *p, const sw__product *g);

sw_status sw__tile_product(sw__gpu_plan *p, const sw__product *g);
sw_status sw__rows_product(sw__gpu_plan *p, const sw__product *g);

/* ---- convolutions ---------------------------------------------------------------------------------------------- */

/* A sliding window with everything spelled out, three spatial axes (missing ones come first and have size 1):
 *   y[n, g, o, q] = act(sum over t, c of x[n, g, c, q * step + t * dilation + origin] w[g, o, c, t] + bias[g, o])
 * Forward: as it is. Data gradient: x is dy and y a part of dx, one of the places modulo the stride: see conv.c.
 * Weight gradient: sums over n and q instead. x lies `size` large; outside it counts as 0. */
typedef struct sw__window {
    sw_dtype type;
    int x, w, y, bias;                     /* among the plan's buffers; bias -1: none */
    int64_t x_at, w_at, y_at;              /* bytes */
    int64_t n, groups, c, o;               /* channels of one group */
    int64_t q[3], t[3], size[3];
    int64_t step[3], dilation[3], origin[3];
    int64_t xs[5], ws[5], ys[5];           /* n, channel, spatial; w: o, c, t */
    int64_t xg, wg, yg;                    /* from one group to the next */
    int64_t bias_s;
    bool relu;
} sw__window;

sw_status sw__tile_conv(sw__gpu_plan *p, const sw__window *w);
sw_status sw__tile_conv_weight(sw__gpu_plan *p, const sw__window *w);
/* Windows over one image, whose results are different parts of one tensor. */
sw_status sw__rows_conv(sw__gpu_plan *p, const sw__window *w, int count);
sw_status sw__rows_conv_weight(sw__gpu_plan *p, const sw__window *w);

/* Partial sums at from_at in the workspace, [z][part][m][n], into a result whose row and column are split into digits:
 * the radices of the last three, and strides. */
typedef struct sw__sum {
    sw_dtype type;
    int64_t from_at, parts, z, m, n, run, pitch; /* n falls into runs which are `pitch` apart; 0: n is dense */
    int to, bias;
    int64_t to_at, bias_s, bias_z;
    bool relu;
    int64_t m_radix[3], m_stride[4], n_radix[3], n_stride[4], z1, z_stride[2];
} sw__sum;
sw_status sw__big_sum(sw__gpu_plan *p, const sw__sum *s);

/* Buffer `bind`, a tensor as d says, becomes its relu, in place; a NaN stays one. */
sw_status sw__big_relu(sw__gpu_plan *p, int bind, const sw__desc *d);

#endif
