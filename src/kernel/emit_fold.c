/* emit_fold.c: the accumulators of reductions: one a work-item, trees over a group's local memory, partial results in
 * the workspace. Part of the emitter (emit_int.h). The order of a sum follows from the text alone. */
#include "kernel/emit_int.h"

#include <math.h>

enum { PARTIAL_BYTES = 8 }; /* of every partial result, so that all are aligned */

static unsigned kind_of(const sw__inst *i)
{
    return (unsigned)(i->op - SW_OP_REDUCE_SUM);
}

/* Only f32 has no type of more digits that every device can use. */
bool sw__emit_compensated(const sw__emitter *e, int32_t at)
{
    const sw__inst *const i = &e->k->inst[at];
    return e->compensate && i->op == SW_OP_REDUCE_SUM && i->dtype == SW_F32;
}

sw__label sw__emit_identity(const sw__inst *i)
{
    static const int64_t lowest[SW_DTYPE_COUNT] = { [SW_I32] = INT32_MIN, [SW_I64] = INT64_MIN };
    static const int64_t greatest[SW_DTYPE_COUNT] = { [SW_I32] = INT32_MAX, [SW_I64] = INT64_MAX, [SW_U8] = UINT8_MAX,
                                                      [SW_BOOL] = 1, [SW_U32] = UINT32_MAX };
    static const double real[] = { 0, -(double)INFINITY, (double)INFINITY, 1 };
    const unsigned kind = kind_of(i);
    const int64_t whole[] = { 0, lowest[i->dtype], greatest[i->dtype], 1 };
    return sw__emit_literal(i->dtype, real[kind], whole[kind]);
}

void sw__emit_fold(sw__emitter *e, int32_t at, const char *target, const char *value)
{
    static const char *const real[] = { "$a + $b", "sw_max_$t($b, $a)", "sw_min_$t($b, $a)", "$a * $b" };
    static const char *const whole[] = { "sw_add_$t($a, $b)", "sw_max_$t($b, $a)", "sw_min_$t($b, $a)",
                                         "sw_mul_$t($a, $b)" };
    static const char *const truth[] = { "$a | $b", "$a | $b", "$a & $b", "$a & $b" }; /* not 0 is 1, however many */
    const sw__inst *const i = &e->k->inst[at];
    const char *const *const forms = i->dtype == SW_BOOL ? truth
                                     : sw__dtype_is_float((sw_dtype)i->dtype) ? real : whole;
    sw__text_add(&e->out->text, "%*s%s = ", 4 * e->depth, "", target);
    sw__emit_form(e, forms[kind_of(i)], (const char *const[3]){ target, value, "" }, i->dtype);
    sw__text_add(&e->out->text, ";\n");
}

/* ---- one work-item ----------------------------------------------------------------------------------------------- */

void sw__emit_accumulators(sw__emitter *e, int phase)
{
    SW_EACH_REDUCTION(e, j, phase) {
        const sw__inst *const i = &e->k->inst[j];
        sw__emit_line(e, "%s a%d = %s;", sw__emit_type(i->dtype), (int)j, sw__emit_identity(i).s);
        if (sw__emit_compensated(e, j)) sw__emit_line(e, "float e%d = 0.0f;", (int)j);
    }
}

void sw__emit_accumulate(sw__emitter *e, int32_t at, const char *value)
{
    if (sw__emit_compensated(e, at)) sw__emit_line(e, "TWO_SUM(a%d, e%d, %s);", (int)at, (int)at, value);
    else sw__emit_fold(e, at, sw__emit_label("a%d", (int)at).s, value);
}

void sw__emit_folds(sw__emitter *e, int phase)
{
    SW_EACH_REDUCTION(e, j, phase) sw__emit_accumulate(e, j, sw__emit_operand(e, e->k->inst[j].a).s);
}

sw__label sw__emit_total(const sw__emitter *e, int32_t at)
{
    if (sw__emit_compensated(e, at)) return sw__emit_label("sw_total(a%d, e%d)", (int)at, (int)at);
    return sw__emit_label("a%d", (int)at);
}

void sw__emit_totals(sw__emitter *e, int phase)
{
    SW_EACH_REDUCTION(e, j, phase)
        sw__emit_line(e, "const %s v%d = %s;", sw__emit_type(e->k->inst[j].dtype), (int)j, sw__emit_total(e, j).s);
}

/* ---- a group ----------------------------------------------------------------------------------------------------- */

int sw__emit_local_bytes(const sw__emitter *e)
{
    int bytes = 0;
    for (int32_t j = 0; j < e->k->n_insts; j++)
        if (e->k->inst[j].kop == SW_K_REDUCE) bytes += (int)sw_dtype_size((sw_dtype)e->k->inst[j].dtype);
    return bytes;
}

void sw__emit_local(sw__emitter *e, int phase, int lanes)
{
    SW_EACH_REDUCTION(e, j, phase)
        sw__emit_line(e, "LOCAL_ARRAY(%s, s%d, %d);", sw__emit_type(e->k->inst[j].dtype), (int)j, lanes);
}

void sw__emit_tree(sw__emitter *e, int phase, int dim, int deep, int wide)
{
    SW_EACH_REDUCTION(e, j, phase) sw__emit_line(e, "s%d[lane] = %s;", (int)j, sw__emit_total(e, j).s);
    sw__emit_line(e, "BARRIER();");
    if (deep == 1) return;
    sw__emit_open(e, "for (i32 step = %d; step > 0; step >>= 1)", deep / 2);
    sw__emit_open(e, "if (LANE(%d) < step)", dim);
    const sw__label other = wide == 1 ? sw__emit_label("step") : sw__emit_label("step * %d", wide);
    SW_EACH_REDUCTION(e, j, phase)
        sw__emit_fold(e, j, sw__emit_label("s%d[lane]", (int)j).s, sw__emit_label("s%d[lane + %s]", (int)j, other.s).s);
    sw__emit_close(e);
    sw__emit_line(e, "BARRIER();");
    sw__emit_close(e);
}

/* ---- partial results --------------------------------------------------------------------------------------------- */

/* Of every reduction, parts * kept points, one reduction after the other. */
void sw__emit_partials(sw__emitter *e)
{
    int64_t n = 0;
    SW_EACH_REDUCTION(e, j, 0) {
        const char *const type = sw__emit_type(e->k->inst[j].dtype);
        sw__emit_line(e, "GLOBAL %s *w%d = AT(%s, ws) + %lld;", type, (int)j, type,
                      (long long)(n * PARTIAL_BYTES * e->parts * e->kept.points
                                  / (int64_t)sw_dtype_size((sw_dtype)e->k->inst[j].dtype)));
        n++;
    }
}

size_t sw__emit_workspace(const sw__emitter *e)
{
    size_t n = 0;
    SW_EACH_REDUCTION(e, j, 0) n++;
    return e->parts > 1 ? n * PARTIAL_BYTES * (size_t)(e->parts * e->kept.points) : 0;
}
