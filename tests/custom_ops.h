/* custom_ops.h: the ops of test_custom.c as a user would write them, each as text of the dialect and as a C
 * function; and for plain OpenCL C, one more. */
#ifndef SW_TESTS_CUSTOM_OPS_H
#define SW_TESTS_CUSTOM_OPS_H

#include "swoop/swoop.h"

#include <math.h>

/* ---- relu(a + b): two inputs, nothing saved, the gradient from the output ---------------------------------------- */

static const char add_relu_text[] =
    "KERNEL(add_relu)(BUF(a), BUF(b), BUF(y), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i >= n) return;\n"
    "    const float s = AT(float, a)[i] + AT(float, b)[i];\n"
    "    AT(float, y)[i] = s > 0.0f ? s : 0.0f;\n"
    "}\n";
static const char add_relu_grad_text[] =
    "KERNEL(add_relu_grad)(BUF(a), BUF(b), BUF(y), BUF(dy), BUF(da), BUF(db), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i >= n) return;\n"
    "    AT(float, da)[i] = AT(float, db)[i] = AT(float, y)[i] > 0.0f ? AT(float, dy)[i] : 0.0f;\n"
    "}\n";

static void add_relu(const sw_host_call *c)
{
    const float *const a = c->arg[0].data, *const b = c->arg[1].data;
    float *const y = c->arg[2].data;
    for (int64_t i = c->begin; i < c->end; i++) y[i] = fmaxf(a[i] + b[i], 0.0f);
}

static void add_relu_grad(const sw_host_call *c)
{
    const float *const y = c->arg[2].data, *const dy = c->arg[3].data;
    float *const da = c->arg[4].data, *const db = c->arg[5].data;
    for (int64_t i = c->begin; i < c->end; i++) da[i] = db[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}

static const sw_op_def add_relu_def = {
    .name = "add_relu", .n_in = 2, .n_out = 1, .shape = sw_same_shape,
    .forward = {.portable = add_relu_text, .host = add_relu},
    .backward = {.portable = add_relu_grad_text, .host = add_relu_grad},
};

/* ---- x / (1 + |x|): saves 1 / (1 + |x|) -------------------------------------------------------------------------- */

static const char squash_text[] =
    "#define ONE 1.0f\n" /* what a text defines stays its own */
    "FUNCTION float size(float x) { return x < 0.0f ? ONE - x : ONE + x; }\n"
    "KERNEL(squash)(BUF(x), BUF(y), BUF(s), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i >= n) return;\n"
    "    const float inverse = 1.0f / size(AT(float, x)[i]);\n"
    "    AT(float, y)[i] = AT(float, x)[i] * inverse;\n"
    "    AT(float, s)[i] = inverse;\n"
    "}\n";
static const char squash_grad_text[] =
    "#define ONE 2.0f\n"
    "FUNCTION float size(float x) { return x * x; }\n"
    "KERNEL(squash_grad)(BUF(x), BUF(y), BUF(s), BUF(dy), BUF(dx), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i < n) AT(float, dx)[i] = AT(float, dy)[i] * size(AT(float, s)[i]);\n"
    "}\n";

static void squash(const sw_host_call *c)
{
    const float *const x = c->arg[0].data;
    float *const y = c->arg[1].data, *const s = c->arg[2].data;
    for (int64_t i = c->begin; i < c->end; i++) {
        s[i] = 1.0f / (1.0f + fabsf(x[i]));
        y[i] = x[i] * s[i];
    }
}

static void squash_grad(const sw_host_call *c)
{
    const float *const s = c->arg[2].data, *const dy = c->arg[3].data;
    float *const dx = c->arg[4].data;
    for (int64_t i = c->begin; i < c->end; i++) dx[i] = dy[i] * s[i] * s[i];
}

static const sw_op_def squash_def = {
    .name = "squash", .n_in = 1, .n_out = 1, .n_saved = 1, .shape = sw_same_shape,
    .forward = {.portable = squash_text, .host = squash},
    .backward = {.portable = squash_grad_text, .host = squash_grad},
};

/* ---- x w and x + 2 w: two outputs -------------------------------------------------------------------------------- */

static const char pair_text[] =
    "KERNEL(pair)(BUF(x), BUF(w), BUF(p), BUF(q), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i >= n) return;\n"
    "    AT(float, p)[i] = AT(float, x)[i] * AT(float, w)[i];\n"
    "    AT(float, q)[i] = AT(float, x)[i] + 2.0f * AT(float, w)[i];\n"
    "}\n";
static const char pair_grad_text[] =
    "KERNEL(pair_grad)(BUF(x), BUF(w), BUF(p), BUF(q), BUF(dp), BUF(dq), BUF(dx), BUF(dw), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i >= n) return;\n"
    "    AT(float, dx)[i] = AT(float, dp)[i] * AT(float, w)[i] + AT(float, dq)[i];\n"
    "    AT(float, dw)[i] = AT(float, dp)[i] * AT(float, x)[i] + 2.0f * AT(float, dq)[i];\n"
    "}\n";

static void pair(const sw_host_call *c)
{
    const float *const x = c->arg[0].data, *const w = c->arg[1].data;
    float *const p = c->arg[2].data, *const q = c->arg[3].data;
    for (int64_t i = c->begin; i < c->end; i++) {
        p[i] = x[i] * w[i];
        q[i] = x[i] + 2.0f * w[i];
    }
}

static void pair_grad(const sw_host_call *c)
{
    const float *const x = c->arg[0].data, *const w = c->arg[1].data;
    const float *const dp = c->arg[4].data, *const dq = c->arg[5].data;
    float *const dx = c->arg[6].data, *const dw = c->arg[7].data;
    for (int64_t i = c->begin; i < c->end; i++) {
        dx[i] = dp[i] * w[i] + dq[i];
        dw[i] = dp[i] * x[i] + 2.0f * dq[i];
    }
}

static const sw_op_def pair_def = {
    .name = "pair", .n_in = 2, .n_out = 2, .shape = sw_same_shape,
    .forward = {.portable = pair_text, .host = pair},
    .backward = {.portable = pair_grad_text, .host = pair_grad},
};

/* ---- x [R, C] by w [C], and the column k [R] of each row: a rule of shapes, a grid, numbers, integers, a fixed inp */

/* y[r] = sum over c of x[r][c] w[c], + t[r] x[r][k[r]]; t is fixed. */
static const char rows_text[] =
    "KERNEL(rows)(BUF(x), BUF(w), BUF(k), BUF(t), BUF(y), i64 columns, i64 n)\n"
    "{\n"
    "    const i64 r = ITEM;\n"
    "    if (r >= n) return;\n"
    "    const GLOBAL float *const row = AT(float, x) + r * columns;\n"
    "    float sum = AT(float, t)[r] * row[AT(i32, k)[r]];\n"
    "    for (i64 c = 0; c < columns; c++) sum += row[c] * AT(float, w)[c];\n"
    "    AT(float, y)[r] = sum;\n"
    "}\n";
static const char rows_grad_text[] =
    "SIZED_KERNEL(rows_back, 32, 1, 1)(BUF(x), BUF(w), BUF(k), BUF(t), BUF(y), BUF(dy), BUF(dx), BUF(dw), i64 rows,\n"
    "                                 i64 columns, i64 n)\n"
    "{\n"
    "    const i64 c = ITEM;\n"
    "    if (c >= n) return;\n"
    "    float sum = 0.0f;\n"
    "    for (i64 r = 0; r < rows; r++) {\n"
    "        const float dy_r = AT(float, dy)[r];\n"
    "        const float own = AT(i32, k)[r] == c ? AT(float, t)[r] : 0.0f;\n"
    "        AT(float, dx)[r * columns + c] = dy_r * (AT(float, w)[c] + own);\n"
    "        sum += dy_r * AT(float, x)[r * columns + c];\n"
    "    }\n"
    "    AT(float, dw)[c] = sum;\n"
    "}\n";

static void rows(const sw_host_call *c)
{
    const float *const x = c->arg[0].data, *const w = c->arg[1].data, *const t = c->arg[3].data;
    const int32_t *const k = c->arg[2].data;
    const int64_t columns = c->arg[5].i64;
    for (int64_t r = c->begin; r < c->end; r++) {
        float sum = t[r] * x[r * columns + k[r]];
        for (int64_t i = 0; i < columns; i++) sum += x[r * columns + i] * w[i];
        ((float *)c->arg[4].data)[r] = sum;
    }
}

static void rows_grad(const sw_host_call *c)
{
    const float *const x = c->arg[0].data, *const w = c->arg[1].data;
    const float *const t = c->arg[3].data, *const dy = c->arg[5].data;
    const int32_t *const k = c->arg[2].data;
    float *const dx = c->arg[6].data, *const dw = c->arg[7].data;
    const int64_t n_rows = c->arg[8].i64, columns = c->arg[9].i64;
    for (int64_t i = c->begin; i < c->end; i++) {
        dw[i] = 0.0f;
        for (int64_t r = 0; r < n_rows; r++) {
            dx[r * columns + i] = dy[r] * (w[i] + (k[r] == i ? t[r] : 0.0f));
            dw[i] += dy[r] * x[r * columns + i];
        }
    }
}

static const char *rows_shape(const sw_shape *in, int n_in, sw_shape *out, int n_out)
{
    (void)n_in, (void)n_out;
    if (in[0].rank != 2 || in[1].rank != 1 || in[1].dim[0] != in[0].dim[1]) return "x is [R, C] and w [C]";
    if (in[2].rank != 1 || in[2].dim[0] != in[0].dim[0]) return "there must be one index a row";
    out[0].rank = 1;
    out[0].dim[0] = in[0].dim[0];
    return NULL;
}

static void rows_grid(const sw_shape *in, const sw_shape *out, sw_op_grid *g)
{
    (void)out;
    g->n_numbers = 1;
    g->number[0] = in[0].dim[1];
}

static void rows_grad_grid(const sw_shape *in, const sw_shape *out, sw_op_grid *g)
{
    (void)out;
    g->items = in[0].dim[1];
    g->n_numbers = 2;
    g->number[0] = in[0].dim[0];
    g->number[1] = in[0].dim[1];
}

static const sw_shape rows_check[] = {
    {SW_F32, 2, {6, 4}}, {SW_F32, 1, {4}}, {SW_I32, 1, {6}}, {SW_F32, 1, {6}},
};
static const sw_op_def rows_def = {
    .name = "rows", .n_in = 4, .n_out = 1, .in_type = {SW_F32, SW_F32, SW_I32, SW_F32}, .fixed = 1u << 3,
    .shape = rows_shape, .forward = {.portable = rows_text, .host = rows},
    .backward = {.name = "rows_back", .portable = rows_grad_text, .host = rows_grad},
    .forward_grid = rows_grid, .backward_grid = rows_grad_grid, .backward_local = 32, .check = rows_check,
};

/* ---- 3 x in plain OpenCL C and CUDA C, and a gradient that is wrong in its last element --------------------------- */

static const char triple_cl[] =
    "__kernel void triple(__global char *x, long x_at, __global char *y, long y_at, long n)\n"
    "{\n"
    "    const long i = get_global_id(0);\n"
    "    if (i < n) ((__global float *)(y + y_at))[i] = 3.0f * ((__global float *)(x + x_at))[i];\n"
    "}\n";
static const char triple_cu[] =
    "extern \"C\" __global__ void triple(const char *x, long long x_at, char *y, long long y_at, long long n)\n"
    "{\n"
    "    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) ((float *)(y + y_at))[i] = 3.0f * ((const float *)(x + x_at))[i];\n"
    "}\n";
static const char triple_grad_text[] =
    "KERNEL(triple_grad)(BUF(x), BUF(y), BUF(dy), BUF(dx), i64 n)\n"
    "{\n"
    "    const i64 i = ITEM;\n"
    "    if (i < n) AT(float, dx)[i] = (i == 7 ? 3.1f : 3.0f) * AT(float, dy)[i];\n"
    "}\n";

static void triple(const sw_host_call *c)
{
    for (int64_t i = c->begin; i < c->end; i++)
        ((float *)c->arg[1].data)[i] = 3.0f * ((const float *)c->arg[0].data)[i];
}

static void triple_grad(const sw_host_call *c)
{
    const float *const dy = c->arg[2].data;
    for (int64_t i = c->begin; i < c->end; i++) ((float *)c->arg[3].data)[i] = (i == 7 ? 3.1f : 3.0f) * dy[i];
}

static const sw_shape triple_check[] = {{SW_F32, 1, {8}}};
static const sw_op_def triple_def = {
    .name = "triple", .n_in = 1, .n_out = 1, .shape = sw_same_shape, .check = triple_check,
    .forward = {.opencl = triple_cl, .cuda = triple_cu, .portable = "not looked at", .host = triple},
    .backward = {.portable = triple_grad_text, .host = triple_grad},
};

#endif
