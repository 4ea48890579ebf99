/* fold.c: a pointwise op on constants, calculated in the op's own type as a device would.
 * Used by simplify.c only. */
#include "pass/fold.h"
#include <math.h>

/* ---- floats ------------------------------------------------------------------------------------------------------ */

/* Rounds to the type, so that the constant is a value of it. */
static double round_to(sw_dtype t, double x)
{
    switch (t) {
    case SW_F32: return (double)(float)x;
    case SW_F16: return (double)sw__f16_to_f32(sw__f32_to_f16((float)x));
    case SW_BF16: return (double)sw__bf16_to_f32(sw__f32_to_bf16((float)x));
    default: return x;
    }
}

static double mod_float(double a, double b)
{
    const double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r == 0 ? copysign(0.0, b) : r;
}

/* NaN if either side is. */
static double extreme(double a, double b, bool max)
{
    if (isnan(a) || isnan(b)) return NAN;
    return max ? (a > b ? a : b) : (a < b ? a : b);
}

/* In double and rounded once: for +, -, *, / and sqrt of f32 that is exact, since a double has more than twice the
 * bits. */
static bool fold_float(uint32_t op, double a, double b, double *y)
{
    switch (op) {
    case SW_OP_NEG: *y = -a; return true;
    case SW_OP_EXP: *y = exp(a); return true;
    case SW_OP_LOG: *y = log(a); return true;
    case SW_OP_SQRT: *y = sqrt(a); return true;
    case SW_OP_SIN: *y = sin(a); return true;
    case SW_OP_COS: *y = cos(a); return true;
    case SW_OP_ATAN: *y = atan(a); return true;
    case SW_OP_TANH: *y = tanh(a); return true;
    case SW_OP_ERF: *y = erf(a); return true;
    case SW_OP_FLOOR: *y = floor(a); return true;
    case SW_OP_ADD: *y = a + b; return true;
    case SW_OP_SUB: *y = a - b; return true;
    case SW_OP_MUL: *y = a * b; return true;
    case SW_OP_DIV: *y = a / b; return true;
    case SW_OP_MOD: *y = mod_float(a, b); return true;
    case SW_OP_POW: *y = pow(a, b); return true;
    case SW_OP_MAX: *y = extreme(a, b, true); return true;
    case SW_OP_MIN: *y = extreme(a, b, false); return true;
    default: return false;
    }
}

/* ---- integers: they wrap ----------------------------------------------------------------------------------------- */

static int64_t wrap(sw_dtype t, int64_t x)
{
    const uint64_t u = (uint64_t)x;
    switch (t) {
    case SW_BOOL: return x != 0;
    case SW_U8: return (int64_t)(u & 0xFFu);
    case SW_U32: return (int64_t)(u & 0xFFFFFFFFu);
    case SW_I32: return (int64_t)(int32_t)(uint32_t)(u & 0xFFFFFFFFu);
    default: return x;
    }
}

static int bits_of(sw_dtype t) { return (int)sw_dtype_size(t) * 8; }

static bool fold_int(uint32_t op, sw_dtype t, int64_t a, int64_t b, int64_t *y)
{
    const uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch (op) {
    case SW_OP_NEG: *y = (int64_t)(0 - ua); return true;
    case SW_OP_ADD: *y = (int64_t)(ua + ub); return true;
    case SW_OP_SUB: *y = (int64_t)(ua - ub); return true;
    case SW_OP_MUL: *y = (int64_t)(ua * ub); return true;
    case SW_OP_DIV: *y = b == 0 ? 0 : b == -1 ? (int64_t)(0 - ua) : a / b; return true;
    case SW_OP_MOD:
        *y = b == 0 || b == -1 ? 0 : a % b;
        if (*y != 0 && (*y < 0) != (b < 0)) *y += b;
        return true;
    case SW_OP_MAX: *y = a > b ? a : b; return true;
    case SW_OP_MIN: *y = a < b ? a : b; return true;
    case SW_OP_AND: *y = a & b; return true;
    case SW_OP_OR: *y = a | b; return true;
    case SW_OP_XOR: *y = a ^ b; return true;
    case SW_OP_SHL:
        if (b < 0 || b >= bits_of(t)) return false;
        *y = (int64_t)(ua << ub);
        return true;
    case SW_OP_SHR:
        if (b < 0 || b >= bits_of(t)) return false;
        *y = a >> b;
        return true;
    default: return false; /* pow and the rest: left to the device */
    }
}

/* ---- one op ------------------------------------------------------------------------------------------------------ */

static sw__number from_float(sw_dtype t, double x)
{
    sw__number y = {.value = round_to(t, x)};
    y.ivalue = isnan(x) ? 0 : x >= 9.2e18 ? INT64_MAX : x <= -9.2e18 ? INT64_MIN : (int64_t)x;
    return y;
}

static sw__number from_int(sw_dtype t, int64_t x)
{
    const int64_t w = wrap(t, x);
    return (sw__number){.value = (double)w, .ivalue = w};
}

/* Integers of f32's accuracy come through a double; large i64 would not, and are left alone by the caller. */
static bool fold_cast(sw_dtype to, sw_dtype from, sw__number a, sw__number *y)
{
    if (sw__dtype_is_float(to)) {
        *y = from_float(to, sw__dtype_is_float(from) ? a.value : (double)a.ivalue);
        return sw__dtype_is_float(from) || (a.ivalue > -(1LL << 53) && a.ivalue < (1LL << 53));
    }
    if (!sw__dtype_is_float(from)) {
        *y = from_int(to, a.ivalue);
        return true;
    }
    int64_t out = 0;
    sw__convert(&out, to, &a.value, SW_F64, 1); /* little-endian or not: read back through the same function */
    int64_t wide = 0;
    sw__convert(&wide, SW_I64, &out, to, 1);
    *y = from_int(to, wide);
    return true;
}

bool sw__fold(uint32_t op, sw_dtype type, sw_dtype in_type, const sw__number *in, sw__number *y)
{
    double f = 0;
    int64_t i = 0;
    const bool is_float = sw__dtype_is_float(in_type);
    if (op == SW_OP_CAST) return fold_cast(type, in_type, in[0], y);
    if (op == SW_OP_LT || op == SW_OP_EQ) {
        if (is_float) i = op == SW_OP_LT ? in[0].value < in[1].value : in[0].value == in[1].value;
        else i = op == SW_OP_LT ? in[0].ivalue < in[1].ivalue : in[0].ivalue == in[1].ivalue;
        *y = from_int(SW_BOOL, i);
        return true;
    }
    if (is_float) {
        if (!fold_float(op, in[0].value, in[1].value, &f)) return false;
        *y = from_float(type, f);
        return true;
    }
    if (!fold_int(op, type, in[0].ivalue, in[1].ivalue, &i)) return false;
    *y = from_int(type, i);
    return true;
}
