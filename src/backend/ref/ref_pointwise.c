/* ref_pointwise.c: the reference backend's pointwise ops: floats in double through libm, integers with wrap-around.
 * Called by ref.c, one op at a time; all tensors of a call have one shape. */
#include "backend/ref/ref.h"

/* ---- unary ------------------------------------------------------------------------------------------------------- */

static double negate(double x)
{
    return -x;
}

static double (*const unary_fn[SW_OP_COUNT])(double) = {
    [SW_OP_NEG] = negate, [SW_OP_EXP] = exp, [SW_OP_LOG] = log,   [SW_OP_SQRT] = sqrt, [SW_OP_SIN] = sin,
    [SW_OP_COS] = cos,    [SW_OP_ATAN] = atan, [SW_OP_TANH] = tanh, [SW_OP_ERF] = erf,   [SW_OP_FLOOR] = floor,
};

sw_status sw__ref_unary(const sw__ref_call *c)
{
    const int64_t n = sw__ref_count(&c->d->out[0]);
    const sw_dtype t = (sw_dtype)c->d->in[0].dtype;
    if (sw__ref_is_float(&c->d->in[0])) {
        double (*const fn)(double) = unary_fn[c->d->op];
        const double *const x = c->in[0];
        double *const y = c->out[0];
        for (int64_t i = 0; i < n; i++) y[i] = fn(x[i]);
        return SW_OK;
    }
    if (c->d->op != SW_OP_NEG)
        return sw__fail(SW_ERR_UNSUPPORTED, "device ref: %s of %s", sw__op_table[c->d->op].name, sw_dtype_name(t));
    for (int64_t i = 0; i < n; i++)
        sw__ref_set_int(c->out[0], t, i, (int64_t)(0 - (uint64_t)sw__ref_get_int(c->in[0], t, i)));
    return SW_OK;
}

/* ---- cast -------------------------------------------------------------------------------------------------------- */

static const struct { double lowest, greatest; } int_range[SW_DTYPE_COUNT] = {
    [SW_I32] = { -2147483648.0, 2147483647.0 },
    [SW_U32] = { 0.0, 4294967295.0 },
    [SW_U8] = { 0.0, 255.0 },
};

/* Truncates and saturates; NaN gives 0. */
static int64_t to_int(double x, sw_dtype t)
{
    if (t == SW_BOOL) return x != 0; /* also of NaN */
    if (isnan(x)) return 0;
    if (t == SW_I64) return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
    return (int64_t)fmin(fmax(trunc(x), int_range[t].lowest), int_range[t].greatest);
}

/* Between floating-point types nothing changes: all of them are kept in double. */
sw_status sw__ref_cast(const sw__ref_call *c)
{
    const int64_t n = sw__ref_count(&c->d->out[0]);
    const sw_dtype from = (sw_dtype)c->d->in[0].dtype, to = (sw_dtype)c->d->out[0].dtype;
    const double *const xf = c->in[0];
    double *const yf = c->out[0];
    const bool float_in = sw__dtype_is_float(from), float_out = sw__dtype_is_float(to);
    for (int64_t i = 0; i < n; i++) {
        if (float_out) yf[i] = float_in ? xf[i] : (double)sw__ref_get_int(c->in[0], from, i);
        else sw__ref_set_int(c->out[0], to, i, float_in ? to_int(xf[i], to) : sw__ref_get_int(c->in[0], from, i));
    }
    return SW_OK;
}

/* ---- binary on floats -------------------------------------------------------------------------------------------- */

static double add(double a, double b)
{
    return a + b;
}

static double sub(double a, double b)
{
    return a - b;
}

static double mul(double a, double b)
{
    return a * b;
}

static double divide(double a, double b)
{
    return a / b;
}

/* Python's %: the sign of the divisor, also on a zero. */
static double modulo(double a, double b)
{
    const double r = fmod(a, b);
    if (r == 0) return copysign(0.0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

static double (*const float_fn[SW_OP_COUNT])(double, double) = {
    [SW_OP_ADD] = add,    [SW_OP_SUB] = sub, [SW_OP_MUL] = mul,            [SW_OP_DIV] = divide,
    [SW_OP_MOD] = modulo, [SW_OP_POW] = pow, [SW_OP_MAX] = sw__ref_fmax, [SW_OP_MIN] = sw__ref_fmin,
};

/* ---- binary on integers: arithmetic is done on 64 bits and cut to the type on storing ---------------------------- */

static int64_t iadd(int64_t a, int64_t b, sw_dtype t)
{
    (void)t;
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t isub(int64_t a, int64_t b, sw_dtype t)
{
    (void)t;
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static int64_t imul(int64_t a, int64_t b, sw_dtype t)
{
    (void)t;
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

static int64_t idiv(int64_t a, int64_t b, sw_dtype t)
{
    if (b == 0) return 0;
    return b == -1 ? isub(0, a, t) : a / b; /* the lowest integer by -1 wraps to itself */
}

static int64_t imod(int64_t a, int64_t b, sw_dtype t)
{
    (void)t;
    if (b == 0 || b == -1) return 0;
    const int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t imax(int64_t a, int64_t b, sw_dtype t)
{
    (void)t;
    return a > b ? a : b;
}

static int64_t imin(int64_t a, int64_t b, sw_dtype t)
{
    (void)t;
    return a < b ? a : b;
}

static int64_t iand(int64_t a, int64_t b, sw_dtype t)
{
    (void)t;
    return a & b;
}

static int64_t ior(int64_t a, int64_t b, sw_dtype t)
{
    (void)t;
    return a | b;
}

static int64_t ixor(int64_t a, int64_t b, sw_dtype t)
{
    (void)t;
    return a ^ b;
}

/* A shift by the width or more, or by a negative number, moves every bit out. */
static bool shifts_all_out(int64_t by, sw_dtype t)
{
    return by < 0 || by >= (int64_t)(8 * sw_dtype_size(t));
}

static int64_t ishl(int64_t a, int64_t b, sw_dtype t)
{
    return shifts_all_out(b, t) ? 0 : (int64_t)((uint64_t)a << b);
}

static int64_t ishr(int64_t a, int64_t b, sw_dtype t)
{
    if (shifts_all_out(b, t)) return a < 0 ? -1 : 0;
    return a < 0 ? ~(~a >> b) : a >> b; /* arithmetic, whatever the compiler makes of >> on negative numbers */
}

static int64_t (*const int_fn[SW_OP_COUNT])(int64_t, int64_t, sw_dtype) = {
    [SW_OP_ADD] = iadd, [SW_OP_SUB] = isub, [SW_OP_MUL] = imul, [SW_OP_DIV] = idiv, [SW_OP_MOD] = imod,
    [SW_OP_MAX] = imax, [SW_OP_MIN] = imin, [SW_OP_AND] = iand, [SW_OP_OR] = ior,   [SW_OP_XOR] = ixor,
    [SW_OP_SHL] = ishl, [SW_OP_SHR] = ishr,
};

sw_status sw__ref_arithmetic(const sw__ref_call *c)
{
    const int64_t n = sw__ref_count(&c->d->out[0]);
    const sw_dtype t = (sw_dtype)c->d->in[0].dtype;
    if (sw__ref_is_float(&c->d->in[0]) && float_fn[c->d->op]) {
        double (*const fn)(double, double) = float_fn[c->d->op];
        const double *const a = c->in[0], *const b = c->in[1];
        double *const y = c->out[0];
        for (int64_t i = 0; i < n; i++) y[i] = fn(a[i], b[i]);
        return SW_OK;
    }
    int64_t (*const fn)(int64_t, int64_t, sw_dtype) = int_fn[c->d->op];
    if (sw__ref_is_float(&c->d->in[0]) || !fn)
        return sw__fail(SW_ERR_UNSUPPORTED, "device ref: %s of %s", sw__op_table[c->d->op].name, sw_dtype_name(t));
    for (int64_t i = 0; i < n; i++)
        sw__ref_set_int(c->out[0], t, i, fn(sw__ref_get_int(c->in[0], t, i), sw__ref_get_int(c->in[1], t, i), t));
    return SW_OK;
}

/* ---- comparison and choice --------------------------------------------------------------------------------------- */

sw_status sw__ref_compare(const sw__ref_call *c)
{
    const int64_t n = sw__ref_count(&c->d->out[0]);
    const sw_dtype t = (sw_dtype)c->d->in[0].dtype;
    const bool less = c->d->op == SW_OP_LT;
    uint8_t *const y = c->out[0];
    if (sw__ref_is_float(&c->d->in[0])) {
        const double *const a = c->in[0], *const b = c->in[1];
        for (int64_t i = 0; i < n; i++) y[i] = less ? a[i] < b[i] : a[i] == b[i];
        return SW_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t a = sw__ref_get_int(c->in[0], t, i), b = sw__ref_get_int(c->in[1], t, i);
        y[i] = less ? a < b : a == b;
    }
    return SW_OK;
}

sw_status sw__ref_where(const sw__ref_call *c)
{
    const int64_t n = sw__ref_count(&c->d->out[0]);
    const size_t size = sw__ref_size(&c->d->out[0]);
    const uint8_t *const condition = c->in[0];
    const char *const yes = c->in[1], *const no = c->in[2];
    char *const y = c->out[0];
    for (int64_t i = 0; i < n; i++) {
        const size_t at = (size_t)i * size;
        memmove(y + at, (condition[i] ? yes : no) + at, size); /* may be in place */
    }
    return SW_OK;
}
