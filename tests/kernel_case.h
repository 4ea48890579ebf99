/* kernel_case.h: kernels of the IR made by hand or at random, their data, and an oracle that evaluates them point by
 * point in double. For the tests of what runs kernels: test_tile.c, test_emit.c. */
#ifndef KERNEL_CASE_H
#define KERNEL_CASE_H

#include "base/base.h"
#include "kernel/kir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- building kernels -------------------------------------------------------------------------------------------- */

enum { MAX_INSTS = 96 };

typedef struct maker {
    sw__kernel k;
    sw__inst inst[MAX_INSTS];
    int64_t elements[SW_K_MAX_BUFFERS]; /* of each buffer */
    void *data[SW_K_MAX_BUFFERS];
    int alias[SW_K_MAX_BUFFERS];        /* buffer whose memory it shares; -1 */
} maker;

static void begin(maker *m, int rank, const int64_t *extent, uint32_t reduced)
{
    memset(m, 0, sizeof *m);
    m->k.rank = rank;
    m->k.reduced = reduced;
    m->k.inst = m->inst;
    for (int x = 0; x < rank; x++) m->k.extent[x] = extent[x];
    for (int b = 0; b < SW_K_MAX_BUFFERS; b++) m->alias[b] = -1;
    strcpy(m->k.name, "test");
}

static void finish(maker *m)
{
    for (int b = 0; b < m->k.n_buffers; b++) {
        if (m->alias[b] < 0) free(m->data[b]);
    }
}

static int add(maker *m, sw__inst i)
{
    assert_true(m->k.n_insts < MAX_INSTS);
    m->inst[m->k.n_insts] = i;
    return m->k.n_insts++;
}

static int buffer(maker *m, sw_dtype t, int64_t elements)
{
    const int b = m->k.n_buffers++;
    assert_true(b < SW_K_MAX_BUFFERS);
    m->k.buffer[b].dtype = (uint8_t)t;
    m->elements[b] = elements;
    m->data[b] = calloc((size_t)elements + 1, sw_dtype_size(t));
    return b; // NOLINT(clang-analyzer-unix.Malloc): the maker has it
}

static sw_dtype wide(sw_dtype t) { return t == SW_F16 || t == SW_BF16 ? SW_F32 : t; }

static sw__inst access_inst(maker *m, sw__kop kop, int b, int64_t offset, const int64_t *stride)
{
    sw__inst i = { .kop = (uint8_t)kop, .a = -1, .b = -1, .c = -1, .buffer = b, .offset = offset };
    i.dtype = (uint8_t)wide((sw_dtype)m->k.buffer[b].dtype);
    for (int x = 0; x < m->k.rank; x++) {
        i.stride[x] = stride[x];
        i.hi[x] = m->k.extent[x];
    }
    return i;
}

/* Strides of a dense tensor over the axes whose bit is set in `axes`; 0 on the others. */
static int64_t dense(const maker *m, uint32_t axes, int64_t *stride)
{
    int64_t n = 1;
    for (int x = m->k.rank - 1; x >= 0; x--) {
        stride[x] = axes >> x & 1u ? n : 0;
        if (axes >> x & 1u) n *= m->k.extent[x];
    }
    return n;
}

static int load_dense(maker *m, sw_dtype t, uint32_t axes)
{
    int64_t stride[SW_MAX_RANK];
    const int64_t n = dense(m, axes, stride);
    return add(m, access_inst(m, SW_K_LOAD, buffer(m, t, n), 0, stride));
}

static int store_dense(maker *m, sw_dtype t, uint32_t axes, int value)
{
    int64_t stride[SW_MAX_RANK];
    const int64_t n = dense(m, axes, stride);
    sw__inst i = access_inst(m, SW_K_STORE, buffer(m, t, n), 0, stride);
    i.a = value;
    return add(m, i);
}

static int calc(maker *m, sw__op op, sw_dtype t, int a, int b, int c)
{
    return add(m, (sw__inst){ .kop = SW_K_CALC, .op = (uint16_t)op, .dtype = (uint8_t)t, .a = a, .b = b, .c = c });
}

/* An f32 rounded to f16 or bf16. */
static int narrow(maker *m, sw_dtype to, int a)
{
    return add(m, (sw__inst){ .kop = SW_K_CALC, .op = SW_OP_CAST, .dtype = SW_F32, .narrow = (uint8_t)to, .a = a, .b = -1,
                              .c = -1 });
}

static int reduce(maker *m, sw__op op, int a)
{
    return add(m, (sw__inst){ .kop = SW_K_REDUCE, .op = (uint16_t)op, .dtype = m->inst[a].dtype, .a = a, .b = -1,
                              .c = -1 });
}

static int constant(maker *m, sw_dtype t, double value)
{
    return add(m, (sw__inst){ .kop = SW_K_CONST, .dtype = (uint8_t)t, .value = value, .ivalue = (int64_t)value, .a = -1,
                              .b = -1, .c = -1 });
}

#define ALL 0xffu

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

typedef union number { double f; int64_t i; } number;

static bool is_float(unsigned t) { return sw__dtype_is_float((sw_dtype)t); }

/* A value as it is after being kept in type t. */
static number keep(number x, unsigned t)
{
    switch (t) {
    case SW_F32: x.f = (double)(float)x.f; break;
    case SW_I32: x.i = (int32_t)x.i; break;
    case SW_U8: x.i = (uint8_t)x.i; break;
    case SW_U32: x.i = (uint32_t)x.i; break;
    default: break;
    }
    return x;
}

static number read_number(const void *data, unsigned t, int64_t at)
{
    number x = { .i = 0 };
    const char *const p = (const char *)data + at * (int64_t)sw_dtype_size((sw_dtype)t);
    if (is_float(t)) sw__convert(&x.f, SW_F64, p, (sw_dtype)t, 1);
    else sw__convert(&x.i, SW_I64, p, (sw_dtype)t, 1);
    return x;
}

static void write_number(void *data, unsigned t, int64_t at, number x)
{
    char *const p = (char *)data + at * (int64_t)sw_dtype_size((sw_dtype)t);
    if (is_float(t)) sw__convert(p, (sw_dtype)t, &x.f, SW_F64, 1);
    else sw__convert(p, (sw_dtype)t, &x.i, SW_I64, 1);
}

static int64_t to_int(double x, unsigned t)
{
    static const double lo[SW_DTYPE_COUNT] = { [SW_I32] = -0x1p31, [SW_I64] = -0x1p63 };
    static const double hi[SW_DTYPE_COUNT] = { [SW_I32] = 0x1p31, [SW_I64] = 0x1p63, [SW_U8] = 256, [SW_U32] = 0x1p32 };
    static const int64_t top[SW_DTYPE_COUNT] = { [SW_I32] = INT32_MAX, [SW_I64] = INT64_MAX, [SW_U8] = 255,
                                                 [SW_U32] = UINT32_MAX };
    if (t == SW_BOOL) return x != 0;
    if (isnan(x)) return 0;
    return x <= lo[t] ? (int64_t)lo[t] : x >= hi[t] ? top[t] : (int64_t)x;
}

static double float_op(int op, double a, double b)
{
    const double r = op == SW_OP_MOD ? fmod(a, b) : 0;
    switch (op) {
    case SW_OP_NEG: return -a;
    case SW_OP_EXP: return exp(a);
    case SW_OP_LOG: return log(a);
    case SW_OP_SQRT: return sqrt(a);
    case SW_OP_SIN: return sin(a);
    case SW_OP_COS: return cos(a);
    case SW_OP_ATAN: return atan(a);
    case SW_OP_TANH: return tanh(a);
    case SW_OP_ERF: return erf(a);
    case SW_OP_FLOOR: return floor(a);
    case SW_OP_ADD: return a + b;
    case SW_OP_SUB: return a - b;
    case SW_OP_MUL: return a * b;
    case SW_OP_DIV: return a / b;
    case SW_OP_MOD: return r == 0 ? copysign(0, b) : (r < 0) != (b < 0) ? r + b : r;
    case SW_OP_POW: return pow(a, b);
    case SW_OP_MAX: return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case SW_OP_MIN: return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    default: fail_msg("op %d", op); return 0;
    }
}

static int64_t int_op(int op, int64_t a, int64_t b, unsigned t)
{
    const int64_t bits = 8 * (int64_t)sw_dtype_size((sw_dtype)t);
    switch (op) {
    case SW_OP_NEG: return (int64_t)(0 - (uint64_t)a);
    case SW_OP_ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case SW_OP_SUB: return (int64_t)((uint64_t)a - (uint64_t)b);
    case SW_OP_MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
    case SW_OP_DIV: return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    case SW_OP_MOD: return b == 0 || b == -1 ? 0 : a % b != 0 && (a % b < 0) != (b < 0) ? a % b + b : a % b;
    case SW_OP_MAX: return a > b ? a : b;
    case SW_OP_MIN: return a < b ? a : b;
    case SW_OP_AND: return a & b;
    case SW_OP_OR: return a | b;
    case SW_OP_XOR: return a ^ b;
    case SW_OP_SHL: return b < 0 || b >= bits ? 0 : (int64_t)((uint64_t)a << b);
    case SW_OP_SHR: return b < 0 || b >= bits ? (a < 0 ? -1 : 0) : a >> b;
    default: fail_msg("op %d", op); return 0;
    }
}

static number calc_number(const maker *m, const sw__inst *i, number a, number b, number c)
{
    const unsigned from = m->inst[i->a].dtype;
    number y = { .i = 0 };
    if (i->narrow) {
        uint16_t bits;
        sw__convert(&bits, (sw_dtype)i->narrow, &a.f, SW_F64, 1);
        sw__convert(&y.f, SW_F64, &bits, (sw_dtype)i->narrow, 1);
        return y;
    }
    if (i->op == SW_OP_WHERE) return a.i ? b : c;
    if (i->op == SW_OP_LT) y.i = is_float(from) ? a.f < b.f : a.i < b.i;
    else if (i->op == SW_OP_EQ) y.i = is_float(from) ? a.f == b.f : a.i == b.i;
    else if (i->op != SW_OP_CAST && is_float(from)) y.f = float_op(i->op, a.f, b.f);
    else if (i->op != SW_OP_CAST) y.i = int_op(i->op, a.i, b.i, from);
    else if (is_float(i->dtype)) y.f = is_float(from) ? a.f : (double)a.i;
    else y.i = is_float(from) ? to_int(a.f, i->dtype) : i->dtype == SW_BOOL ? a.i != 0 : a.i;
    return keep(y, i->dtype);
}

typedef struct oracle {
    int64_t points;
    number *value[MAX_INSTS];
    void *out[SW_K_MAX_BUFFERS]; /* expected contents of written buffers */
    int64_t bad;                 /* indices out of range */
    bool empty;                  /* a reduced axis has no points: seen as one point that is not counted */
    double scale;                /* greatest finite magnitude of all values */
} oracle;

static int64_t affine(const maker *m, const sw__inst *i, const int64_t *d)
{
    int64_t at = i->offset;
    for (int x = 0; x < m->k.rank; x++) at += i->stride[x] * d[x];
    return at;
}

static bool masked_out(const maker *m, const sw__inst *i, const int64_t *d)
{
    bool out = false;
    for (int x = 0; i->masked && x < m->k.rank; x++) out |= d[x] < i->lo[x] || d[x] >= i->hi[x];
    return out;
}

static number fill_of(const sw__inst *i)
{
    number y;
    if (is_float(i->dtype)) y.f = i->value;
    else y.i = (int64_t)i->value;
    return y;
}

static number random_number(const sw__inst *i, int64_t e, int64_t count)
{
    const uint64_t block = (uint64_t)e / 4;
    const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)count,
                                  (uint32_t)((uint64_t)count >> 32) };
    const uint32_t key[2] = { (uint32_t)i->ivalue, i->stream };
    uint32_t words[4];
    sw__philox(counter, key, words);
    return (number){ .i = words[(uint64_t)e % 4] };
}

static number point_value(const maker *m, oracle *o, int j, int64_t p, const int64_t *d)
{
    const sw__inst *const i = &m->inst[j];
    const number none = { .i = 0 };
    const number a = i->a >= 0 ? o->value[i->a][p] : none, b = i->b >= 0 ? o->value[i->b][p] : none;
    const number c = i->c >= 0 ? o->value[i->c][p] : none;
    number y = none;
    switch (i->kop) {
    case SW_K_LOAD:
        if (o->empty && affine(m, i, d) >= m->elements[i->buffer]) return none;
        return masked_out(m, i, d) ? fill_of(i) : read_number(m->data[i->buffer], m->k.buffer[i->buffer].dtype,
                                                              affine(m, i, d));
    case SW_K_GATHER:
        if (masked_out(m, i, d)) return fill_of(i);
        if (a.i < 0 || a.i >= i->extent_x) {
            o->bad++;
            return none;
        }
        return read_number(m->data[i->buffer], m->k.buffer[i->buffer].dtype, affine(m, i, d) + i->stride_x * a.i);
    case SW_K_CONST:
        if (is_float(i->dtype)) y.f = i->value;
        else y.i = i->ivalue;
        return keep(y, i->dtype);
    case SW_K_INDEX:
        if (is_float(i->dtype)) y.f = (double)affine(m, i, d);
        else y.i = affine(m, i, d);
        return keep(y, i->dtype);
    case SW_K_RANDOM: return random_number(i, a.i, i->b >= 0 ? b.i : 0);
    case SW_K_CALC: return calc_number(m, i, a, b, c);
    case SW_K_STORE:
        if (is_float(m->k.buffer[i->buffer].dtype) && !is_float(m->inst[i->a].dtype)) y.f = (double)a.i;
        else y = a;
        write_number(o->out[i->buffer], m->k.buffer[i->buffer].dtype, affine(m, i, d), y);
        return y;
    default: return none;
    }
}

static int64_t points_along(const maker *m, const oracle *o, int x)
{
    return o->empty && (m->k.reduced >> x & 1u) ? 1 : m->k.extent[x];
}

static void coordinates(const maker *m, const oracle *o, int64_t p, int64_t *d)
{
    for (int x = m->k.rank - 1; x >= 0; x--) {
        d[x] = p % points_along(m, o, x);
        p /= points_along(m, o, x);
    }
}

/* All points of a reduction: accumulates at the first point of each row, then copies to the others. */
static void reduce_value(const maker *m, oracle *o, int j)
{
    const sw__inst *const i = &m->inst[j];
    const bool f = is_float(i->dtype);
    static const int64_t low[SW_DTYPE_COUNT] = { [SW_I32] = INT32_MIN, [SW_I64] = INT64_MIN };
    static const int64_t high[SW_DTYPE_COUNT] = { [SW_I32] = INT32_MAX, [SW_I64] = INT64_MAX, [SW_U8] = 255,
                                                  [SW_U32] = UINT32_MAX };
    number start = { .i = 0 };
    switch (i->op) {
    case SW_OP_REDUCE_PROD: if (f) start.f = 1; else start.i = 1; break;
    case SW_OP_REDUCE_MAX: if (f) start.f = -INFINITY; else start.i = low[i->dtype]; break;
    case SW_OP_REDUCE_MIN: if (f) start.f = INFINITY; else start.i = high[i->dtype]; break;
    default: break;
    }
    static const int pair[] = { SW_OP_ADD, SW_OP_MAX, SW_OP_MIN, SW_OP_MUL };
    const int op = pair[i->op - SW_OP_REDUCE_SUM];
    int64_t *const first = malloc(sizeof *first * (size_t)(o->points + 1));
    for (int64_t p = 0; p < o->points; p++) {
        int64_t d[SW_MAX_RANK], q = 0;
        coordinates(m, o, p, d);
        for (int x = 0; x < m->k.rank; x++) q = q * points_along(m, o, x) + (m->k.reduced >> x & 1u ? 0 : d[x]);
        first[p] = q;
        o->value[j][p] = start;
    }
    for (int64_t p = 0; p < o->points && !o->empty; p++) {
        number *const y = &o->value[j][first[p]];
        const number x = o->value[i->a][p];
        if (f) y->f = float_op(op, y->f, x.f);
        else y->i = int_op(op, y->i, x.i, i->dtype);
    }
    for (int64_t p = 0; p < o->points; p++) {
        if (first[p] == p) o->value[j][p] = keep(o->value[j][p], i->dtype);
        o->value[j][p] = o->value[j][first[p]];
    }
    free(first);
}

static void evaluate(const maker *m, oracle *o)
{
    memset(o, 0, sizeof *o);
    o->points = 1;
    for (int x = 0; x < m->k.rank; x++) o->empty |= (m->k.reduced >> x & 1u) && m->k.extent[x] == 0;
    for (int x = 0; x < m->k.rank; x++) o->points *= points_along(m, o, x);
    for (int b = 0; b < m->k.n_buffers; b++) {
        const size_t bytes = (size_t)(m->elements[b] + 1) * sw_dtype_size((sw_dtype)m->k.buffer[b].dtype);
        o->out[b] = malloc(bytes);
        memcpy(o->out[b], m->data[b], bytes);
    }
    for (int j = 0; j < m->k.n_insts; j++) {
        o->value[j] = calloc((size_t)o->points + 1, sizeof(number));
        if (m->inst[j].kop == SW_K_REDUCE) {
            reduce_value(m, o, j);
            continue;
        }
        for (int64_t p = 0; p < o->points; p++) {
            int64_t d[SW_MAX_RANK];
            coordinates(m, o, p, d);
            o->value[j][p] = point_value(m, o, j, p, d);
        }
    }
    for (int j = 0; j < m->k.n_insts; j++) {
        for (int64_t p = 0; is_float(m->inst[j].dtype) && p < o->points; p++) {
            if (isfinite(o->value[j][p].f)) o->scale = fmax(o->scale, fabs(o->value[j][p].f));
        }
    }
}

static void oracle_free(const maker *m, oracle *o)
{
    for (int j = 0; j < m->k.n_insts; j++) free(o->value[j]);
    for (int b = 0; b < m->k.n_buffers; b++) free(o->out[b]);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* tolerance: relative to the value; and, if cancellation is to be allowed for, to `scale` (0: not). */
static bool close_enough(number got, number want, unsigned t, double tolerance, double scale)
{
    if (!is_float(t)) return got.i == want.i;
    if (isnan(want.f)) return isnan(got.f);
    if (got.f == want.f) return true;
    const double ulp = t == SW_F16 ? 0x1p-10 : t == SW_BF16 ? 0x1p-7 : tolerance;
    return fabs(got.f - want.f) <= ulp * fabs(want.f) + tolerance * scale + (tolerance > 1e-9 ? 1e-44 : 0);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static sw__rng rng;

static int64_t pick(int64_t lo, int64_t hi) { return lo + (int64_t)sw__rng_below(&rng, (uint64_t)(hi - lo + 1)); }
static bool chance(int percent) { return pick(1, 100) <= percent; }

/* Multiples of 1/8 in [-4, 4]: exact in every float type; integers in -20..20 (0..40 if unsigned). */
static void fill_buffer(maker *m, int b)
{
    const unsigned t = m->k.buffer[b].dtype;
    for (int64_t e = 0; e < m->elements[b]; e++) {
        number x;
        if (is_float(t)) x.f = (double)pick(-32, 32) / 8;
        else if (t == SW_BOOL) x.i = pick(0, 1);
        else x.i = t == SW_U8 || t == SW_U32 ? pick(0, 40) : pick(-20, 20);
        write_number(m->data[b], t, e, x);
    }
}

static void fill_all(maker *m)
{
    for (int b = 0; b < m->k.n_buffers; b++) fill_buffer(m, b);
}

#endif
