/* emit_code.c: instructions of the kernel IR as lines of text: literals, addresses, masks, loads, calculations, stores.
 * Part of the emitter (emit_int.h); the functions that the text calls are in portable/common.k. */
#include "kernel/emit_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void indent(sw__emitter *e)
{
    sw__text_add(&e->out->text, "%*s", 4 * e->depth, "");
}

static void add_v(sw__emitter *e, const char *fmt, va_list ap)
{
    char line[512];
    vsnprintf(line, sizeof line, fmt, ap);
    sw__text_add(&e->out->text, "%s", line);
}

void sw__emit_line(sw__emitter *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    indent(e);
    add_v(e, fmt, ap);
    va_end(ap);
    sw__text_add(&e->out->text, "\n");
}

void sw__emit_open(sw__emitter *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    indent(e);
    add_v(e, fmt, ap);
    va_end(ap);
    sw__text_add(&e->out->text, " {\n");
    e->depth++;
}

void sw__emit_close(sw__emitter *e)
{
    e->depth--;
    sw__emit_line(e, "}");
}

sw__label sw__emit_label(const char *fmt, ...)
{
    sw__label l;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(l.s, sizeof l.s, fmt, ap);
    va_end(ap);
    return l;
}

/* ---- types and literals ------------------------------------------------------------------------------------------ */

/* In memory and in values; in names of functions. */
static const struct { const char *type, *tag; } types[SW_DTYPE_COUNT] = {
    [SW_F32] = { "float", "f32" }, [SW_F64] = { "double", "f64" }, [SW_F16] = { "u16", "f16" },
    [SW_BF16] = { "u16", "bf16" }, [SW_I32] = { "i32", "i32" },    [SW_I64] = { "i64", "i64" },
    [SW_U8] = { "u8", "u8" },      [SW_BOOL] = { "u8", "u8" },     [SW_U32] = { "u32", "u32" },
};

const char *sw__emit_type(unsigned dtype)
{
    return types[dtype].type;
}

/* Exact, and with a point whatever the locale says. */
static sw__label real_literal(unsigned dtype, double value)
{
    const bool wide = dtype == SW_F64;
    if (!wide) value = (double)(float)value;
    if (isnan(value) || isinf(value)) {
        const char *const bits = isnan(value) ? (wide ? "7FF8000000000000" : "7FC00000")
                                 : value > 0 ? (wide ? "7FF0000000000000" : "7F800000")
                                             : (wide ? "FFF0000000000000" : "FF800000");
        return sw__emit_label("BITS_F%d(0x%s)", wide ? 64 : 32, bits);
    }
    char digits[32];
    snprintf(digits, sizeof digits, "%.*g", wide ? 17 : 9, value);
    bool whole = true;
    for (char *c = digits; *c; c++) {
        if ((*c < '0' || *c > '9') && *c != '-' && *c != '+' && *c != 'e') *c = '.';
        if (*c == '.' || *c == 'e') whole = false;
    }
    return sw__emit_label(signbit(value) ? "(%s%s%s)" : "%s%s%s", digits, whole ? ".0" : "", wide ? "" : "f");
}

sw__label sw__emit_literal(unsigned dtype, double value, int64_t ivalue)
{
    if (sw__dtype_is_float((sw_dtype)dtype)) return real_literal(dtype, value);
    switch (dtype) {
    case SW_U8: return sw__emit_label("(u8)%u", (unsigned)(uint8_t)ivalue);
    case SW_BOOL: return sw__emit_label("(u8)%u", ivalue != 0 ? 1u : 0u);
    case SW_U32: return sw__emit_label("%" PRIu32 "u", (uint32_t)ivalue);
    case SW_I32: ivalue = (int32_t)ivalue; break;
    default: break;
    }
    const char *const type = types[dtype].type;
    if (dtype == SW_I32 && ivalue >= 0) return sw__emit_label("%" PRId64, ivalue);
    if (ivalue == INT64_MIN) return sw__emit_label("((%s)%" PRId64 " - 1)", type, ivalue + 1);
    return sw__emit_label("((%s)%" PRId64 ")", type, ivalue);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static void add_term(sw__emitter *e, bool *first, int64_t by, int axis)
{
    sw__text *const out = &e->out->text;
    if (!*first) sw__text_add(out, by < 0 ? " - " : " + ");
    else if (by < 0) sw__text_add(out, "-");
    const uint64_t size = by < 0 ? 0 - (uint64_t)by : (uint64_t)by;
    if (axis < 0) sw__text_add(out, "%" PRIu64, size);
    else if (size == 1) sw__text_add(out, "d%d", axis);
    else sw__text_add(out, "%" PRIu64 " * d%d", size, axis);
    *first = false;
}

static void add_affine(sw__emitter *e, const sw__inst *i)
{
    bool first = true;
    for (int x = 0; x < e->k->rank; x++)
        if (i->stride[x] != 0) add_term(e, &first, i->stride[x], x);
    if (i->offset != 0 || first) add_term(e, &first, i->offset, -1);
}

typedef enum mask_kind { MASK_NONE, MASK_CUTS, MASK_NEVER } mask_kind;

static mask_kind mask_of(const sw__kernel *k, const sw__inst *i)
{
    mask_kind kind = MASK_NONE;
    for (int x = 0; i->masked && x < k->rank; x++) {
        if (i->lo[x] >= i->hi[x]) return MASK_NEVER;
        if (i->lo[x] > 0 || i->hi[x] < k->extent[x]) kind = MASK_CUTS;
    }
    return kind;
}

static void add_mask(sw__emitter *e, const sw__inst *i)
{
    const char *sep = "";
    for (int x = 0; x < e->k->rank; x++) {
        if (i->lo[x] > 0) {
            sw__text_add(&e->out->text, "%sd%d >= %" PRId64, sep, x, i->lo[x]);
            sep = " && ";
        }
        if (i->hi[x] < e->k->extent[x]) {
            sw__text_add(&e->out->text, "%sd%d < %" PRId64, sep, x, i->hi[x]);
            sep = " && ";
        }
    }
}

void sw__emit_axes(sw__emitter *e, const sw__axes *a, const char *flat)
{
    int64_t step = 1;
    for (int m = a->n - 1; m >= 0; m--) {
        const int x = a->axis[m];
        const int64_t extent = e->k->extent[x];
        sw__label q = sw__emit_label("%s", flat);
        if (step > 1) q = sw__emit_label("%s / %" PRId64 "%s", flat, step, e->u);
        if (e->used >> x & 1u) {
            if (m > 0) sw__emit_line(e, "const %s d%d = (%s)(%s %% %" PRId64 "%s);", e->ix, x, e->ix, q.s, extent,
                                     e->u);
            else if (step > 1) sw__emit_line(e, "const %s d%d = (%s)(%s);", e->ix, x, e->ix, q.s);
            else sw__emit_line(e, "const %s d%d = (%s)%s;", e->ix, x, e->ix, q.s);
        }
        step *= extent;
    }
}

/* ---- calculations ------------------------------------------------------------------------------------------------ */

/* On a device that runs work-items in vectors, functions without branches (common.k) become vector code; elsewhere the
 * language's own are better. */
typedef struct form { const char *f32_serial, *f32, *f64, *whole; } form;
#define REAL(text) text, text, text
#define CALL(name) "sw_" name "($a)", "F32(" name ")($a)", "F64(" name ")($a)", NULL
#define BUILTIN(name) "F32(" name ")($a)", "F32(" name ")($a)", "F64(" name ")($a)", NULL
#define WHOLE(name) NULL, NULL, NULL, "sw_" name "_$t($a, $b)"
#define EVERY(text) text, text, text, text
static const form forms[SW_OP_COUNT] = {
    [SW_OP_NEG] = { REAL("-$a"), "sw_neg_$t($a)" },
    [SW_OP_EXP] = { CALL("exp") },
    [SW_OP_LOG] = { CALL("log") },
    [SW_OP_SQRT] = { BUILTIN("sqrt") },
    [SW_OP_SIN] = { BUILTIN("sin") },
    [SW_OP_COS] = { BUILTIN("cos") },
    [SW_OP_ATAN] = { CALL("atan") },
    [SW_OP_TANH] = { CALL("tanh") },
    [SW_OP_ERF] = { CALL("erf") },
    [SW_OP_FLOOR] = { BUILTIN("floor") },
    [SW_OP_ADD] = { REAL("$a + $b"), "sw_add_$t($a, $b)" },
    [SW_OP_SUB] = { REAL("$a - $b"), "sw_sub_$t($a, $b)" },
    [SW_OP_MUL] = { REAL("$a * $b"), "sw_mul_$t($a, $b)" },
    [SW_OP_DIV] = { REAL("$a / $b"), "sw_div_$t($a, $b)" },
    [SW_OP_MOD] = { EVERY("sw_mod_$t($a, $b)") },
    [SW_OP_POW] = { "F32(pow)($a, $b)", "F32(pow)($a, $b)", "F64(pow)($a, $b)", NULL },
    [SW_OP_MAX] = { EVERY("sw_max_$t($a, $b)") },
    [SW_OP_MIN] = { EVERY("sw_min_$t($a, $b)") },
    [SW_OP_LT] = { EVERY("(u8)($a < $b)") },
    [SW_OP_EQ] = { EVERY("(u8)($a == $b)") },
    [SW_OP_AND] = { NULL, NULL, NULL, "$a & $b" },
    [SW_OP_OR] = { NULL, NULL, NULL, "$a | $b" },
    [SW_OP_XOR] = { NULL, NULL, NULL, "$a ^ $b" },
    [SW_OP_SHL] = { WHOLE("shl") },
    [SW_OP_SHR] = { WHOLE("shr") },
    [SW_OP_WHERE] = { EVERY("$a != 0 ? $b : $c") },
};

void sw__emit_form(sw__emitter *e, const char *text, const char *const arg[3], unsigned dtype)
{
    sw__text *const out = &e->out->text;
    for (const char *c = text; *c; c++) {
        if (*c != '$') sw__text_put(out, c, 1);
        else if (*++c == 't') sw__text_add(out, "%s", types[dtype].tag);
        else sw__text_add(out, "%s", arg[*c - 'a']);
    }
}

sw__label sw__emit_operand(const sw__emitter *e, int32_t at)
{
    if (at < 0) return sw__emit_label("0");
    const sw__inst *const i = &e->k->inst[at];
    if (i->kop == SW_K_CONST) return sw__emit_literal(i->dtype, i->value, i->ivalue);
    return sw__emit_label("v%d", (int)at);
}

static const char *cast_form(unsigned from, unsigned to)
{
    if (from == to) return "$a";
    if (to == SW_BOOL) return "(u8)($a != 0)";
    if (sw__dtype_is_float((sw_dtype)from) && !sw__dtype_is_float((sw_dtype)to)) return "sw_$t_from_$b($a)";
    return "($c)$a";
}

static void add_cast(sw__emitter *e, const char *value, unsigned from, unsigned to)
{
    sw__emit_form(e, cast_form(from, to), (const char *const[3]){ value, types[from].tag, types[to].type }, to);
}

static void add_calc(sw__emitter *e, const sw__inst *i)
{
    const sw__label a = sw__emit_operand(e, i->a), b = sw__emit_operand(e, i->b), c = sw__emit_operand(e, i->c);
    const unsigned from = e->k->inst[i->a].dtype;
    const form *const f = &forms[i->op];
    static const char *const narrow[SW_DTYPE_COUNT] = { [SW_F16] = "ROUND_F16($a)", [SW_BF16] = "ROUND_BF16($a)" };
    if (i->narrow) sw__emit_form(e, narrow[i->narrow], (const char *const[3]){ a.s, b.s, c.s }, from);
    else if (i->op == SW_OP_CAST) add_cast(e, a.s, from, i->dtype);
    else sw__emit_form(e, from == SW_F64 ? f->f64 : from != SW_F32 ? f->whole : e->t->serial ? f->f32_serial : f->f32,
                       (const char *const[3]){ a.s, b.s, c.s }, from);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The element at the address; `more` is added to it. */
static void add_element(sw__emitter *e, const sw__inst *i, const char *more)
{
    static const char *const load[SW_DTYPE_COUNT] = { [SW_F16] = "LOAD_F16", [SW_BF16] = "LOAD_BF16" };
    const unsigned t = e->k->buffer[i->buffer].dtype;
    sw__text *const out = &e->out->text;
    if (load[t]) sw__text_add(out, "%s(p%d, ", load[t], (int)i->buffer);
    else sw__text_add(out, "p%d[", (int)i->buffer);
    add_affine(e, i);
    sw__text_add(out, "%s%s", more, load[t] ? ")" : "]");
}

static void add_load(sw__emitter *e, const sw__inst *i, const char *condition, const char *more)
{
    int64_t whole;
    sw__convert(&whole, SW_I64, &i->value, SW_F64, 1);
    const sw__label fill = sw__emit_literal(i->dtype, i->value, whole);
    const mask_kind mask = mask_of(e->k, i);
    sw__text *const out = &e->out->text;
    if (mask == MASK_NEVER) {
        sw__text_add(out, "%s", fill.s);
        return;
    }
    if (mask == MASK_CUTS) {
        sw__text_add(out, "(");
        add_mask(e, i);
        sw__text_add(out, ") ? ");
    }
    if (condition) sw__text_add(out, mask == MASK_CUTS ? "(%s ? " : "%s ? ", condition);
    add_element(e, i, more);
    if (condition)
        sw__text_add(out, " : %s%s", sw__emit_literal(i->dtype, 0, 0).s, mask == MASK_CUTS ? ")" : "");
    if (mask == MASK_CUTS) sw__text_add(out, " : %s", fill.s);
}

/* The number of the point in the domain, as a message names it. */
static void add_position(sw__emitter *e, const sw__inst *i)
{
    sw__inst all = { .offset = 0 };
    int64_t step = 1;
    for (int x = e->k->rank - 1; x >= 0; x--) {
        if (i->full || !(e->k->reduced >> x & 1u)) all.stride[x] = step;
        step *= e->k->extent[x];
    }
    add_affine(e, &all);
}

/* The index is looked at first, in two lines of its own. */
static void emit_gather(sw__emitter *e, int32_t at)
{
    const sw__inst *const i = &e->k->inst[at];
    const sw__label a = sw__emit_operand(e, i->a), ok = sw__emit_label("ok%d", (int)at);
    sw__text *const out = &e->out->text;
    if (mask_of(e->k, i) != MASK_NEVER) {
        sw__emit_line(e, "const u8 %s = %s >= 0 && %s < %" PRId64 ";", ok.s, a.s, a.s, i->extent_x);
        indent(e);
        sw__text_add(out, "if (!%s", ok.s);
        if (mask_of(e->k, i) == MASK_CUTS) {
            sw__text_add(out, " && ");
            add_mask(e, i);
        }
        sw__text_add(out, ") REPORT(%s, %" PRId64 ", ", a.s, i->extent_x);
        add_position(e, i);
        sw__text_add(out, ");\n");
    }
    indent(e);
    sw__text_add(out, "const %s v%d = ", types[i->dtype].type, (int)at);
    add_load(e, i, ok.s, sw__emit_label(" + %" PRId64 " * (%s)%s", i->stride_x, e->ix, a.s).s);
    sw__text_add(out, ";\n");
}

void sw__emit_store(sw__emitter *e, int32_t at)
{
    static const char *const store[SW_DTYPE_COUNT] = { [SW_F16] = "STORE_F16", [SW_BF16] = "STORE_BF16" };
    const sw__inst *const i = &e->k->inst[at];
    const unsigned t = e->k->buffer[i->buffer].dtype, from = e->k->inst[i->a].dtype;
    const sw__label a = sw__emit_operand(e, i->a);
    sw__text *const out = &e->out->text;
    indent(e);
    if (store[t]) sw__text_add(out, "%s(p%d, ", store[t], (int)i->buffer);
    else sw__text_add(out, "p%d[", (int)i->buffer);
    add_affine(e, i);
    sw__text_add(out, store[t] ? ", " : "] = ");
    add_cast(e, a.s, from, store[t] ? SW_F32 : t);
    sw__text_add(out, store[t] ? ");\n" : ";\n");
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void add_index(sw__emitter *e, const sw__inst *i)
{
    sw__text_add(&e->out->text, "(%s)(", types[i->dtype].type);
    if (i->dtype == SW_BOOL) sw__text_add(&e->out->text, "(");
    add_affine(e, i);
    sw__text_add(&e->out->text, i->dtype == SW_BOOL ? ") != 0)" : ")");
}

static void add_random(sw__emitter *e, const sw__inst *i)
{
    const sw__label a = sw__emit_operand(e, i->a), b = sw__emit_operand(e, i->b);
    sw__text_add(&e->out->text, "sw_random(%s, %s, %" PRIu32 "u, %" PRIu32 "u)", a.s, b.s, (uint32_t)i->ivalue,
                 i->stream);
}

void sw__emit_value(sw__emitter *e, int32_t at)
{
    const sw__inst *const i = &e->k->inst[at];
    if (i->kop == SW_K_CONST) return; /* stands where it is used */
    if (i->kop == SW_K_GATHER) {
        emit_gather(e, at);
        return;
    }
    indent(e);
    sw__text_add(&e->out->text, "const %s v%d = ", types[i->dtype].type, (int)at);
    if (i->kop == SW_K_LOAD) add_load(e, i, NULL, "");
    else if (i->kop == SW_K_INDEX) add_index(e, i);
    else if (i->kop == SW_K_RANDOM) add_random(e, i);
    else add_calc(e, i);
    sw__text_add(&e->out->text, ";\n");
}
