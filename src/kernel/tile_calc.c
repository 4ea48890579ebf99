/* tile_calc.c: bytecode of the pointwise ops of a kernel, plain and combined. Part of the third step of compiling a
 * tile
 * program (tile_build.h); called by tile_code.c. */
#include "kernel/tile_build.h"

/* Puts the operands of a MUL with the scalar one, if any, second. */
static void mul_operands(sw__builder *b, int block, int32_t mul, int len, uint16_t *x, uint16_t *y, bool *scalar)
{
    const sw__inst *const i = &b->k->inst[mul];
    const bool swap = sw__is_scalar(b, i->a) && !sw__is_scalar(b, i->b);
    *x = sw__operand(b, block, swap ? i->b : i->a, len, NULL);
    *y = sw__operand(b, block, swap ? i->a : i->b, len, scalar);
}

static void emit_fma(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v];
    const int which = b->value[v].which;
    const int form = i->op == SW_OP_ADD ? 0 : which == 0 ? 1 : 2; /* xy + z, xy - z, z - xy */
    bool y_scalar, z_scalar;
    uint16_t x, y;
    mul_operands(b, block, which == 0 ? i->a : i->b, len, &x, &y, &y_scalar);
    const int32_t other = which == 0 ? i->b : i->a;
    const uint16_t z = sw__operand(b, block, other, len, y_scalar ? &z_scalar : NULL);
    const int variant = !y_scalar ? 0 : z_scalar ? 2 : 1;
    static const char *const names[3] = { "fma", "fms", "fnma" };
    sw__tile_emit(b, block, (sw__tinst){ .fn = b->table.calc->fma[form][variant], .d = sw__value_slot(b, block, v), .a = x,
                                    .b = y,
                                .c = z, .len = (uint8_t)len, .name = names[form] });
}

/* Both operands of the ADD are MULs by scalars; a squared one goes second. */
static void emit_axpby(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v];
    const int which = b->value[v].which;
    const int32_t first = which == 1 ? i->b : i->a, second = which == 1 ? i->a : i->b;
    bool scalar;
    sw__tinst t = { .fn = b->table.calc->axpby, .len = (uint8_t)len, .name = "axpby" };
    mul_operands(b, block, first, len, &t.a, &t.b, &scalar);
    if (which == 0) {
        mul_operands(b, block, second, len, &t.c, &t.e, &scalar);
    } else {
        const sw__inst *const mul = &b->k->inst[second];
        const int32_t square = sw__scaled(b, second);
        t.c = sw__operand(b, block, b->k->inst[square].a, len, NULL);
        t.e = sw__operand(b, block, square == mul->a ? mul->b : mul->a, len, &scalar);
        t.fn = b->table.calc->axpby2;
        t.name = "axpby2";
    }
    t.d = sw__value_slot(b, block, v);
    sw__tile_emit(b, block, t);
}

static void emit_sqrt_fma(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v];
    const int32_t mul = b->value[v].which == 0 ? i->a : i->b, other = b->value[v].which == 0 ? i->b : i->a;
    const int32_t root = sw__scaled(b, mul);
    bool scalar;
    sw__tinst t = { .fn = b->table.calc->sqrt_fma, .len = (uint8_t)len, .name = "sqrt_fma" };
    t.a = sw__operand(b, block, b->k->inst[root].a, len, NULL);
    t.b = sw__operand(b, block, root == b->k->inst[mul].a ? b->k->inst[mul].b : b->k->inst[mul].a, len, &scalar);
    t.c = sw__operand(b, block, other, len, &scalar);
    t.d = sw__value_slot(b, block, v);
    sw__tile_emit(b, block, t);
}

static void emit_sub_div(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v], *const div = &b->k->inst[i->b];
    bool scalar;
    sw__tinst t = { .fn = b->table.calc->sub_div, .len = (uint8_t)len, .name = "sub_div" };
    mul_operands(b, block, div->a, len, &t.a, &t.b, &scalar);
    t.c = sw__operand(b, block, i->a, len, NULL);
    t.e = sw__operand(b, block, div->b, len, NULL);
    t.d = sw__value_slot(b, block, v);
    sw__tile_emit(b, block, t);
}

/* The scalar operand of a scaling MUL. */
static uint16_t scale_of(sw__builder *b, int block, int32_t mul, int len)
{
    const sw__inst *const i = &b->k->inst[mul];
    bool scalar;
    return sw__operand(b, block, sw__is_scalar(b, i->a) ? i->a : i->b, len, &scalar);
}

static void emit_adam(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const k = b->k->inst, *const i = &k[v], *const div = &k[i->b], *const den = &k[div->b];
    const int32_t m = sw__scaled(b, div->a), w = sw__sqrt_operand(b, div->b);
    const bool square_first = b->value[w].which == 1, root_first = b->value[div->b].which == 0;
    const int32_t new_v = square_first ? k[w].a : k[w].b, keep_v = square_first ? k[w].b : k[w].a;
    const int32_t g = k[sw__scaled(b, new_v)].a;
    const bool g_second = sw__scaled(b, k[m].b) == g;
    const int32_t new_m = g_second ? k[m].b : k[m].a, keep_m = g_second ? k[m].a : k[m].b;
    uint16_t *const more = sw__arena_alloc(&b->p->arena, SW__ADAM_SLOTS * sizeof *more);
    bool scalar;
    if (!more) {
        sw__builder_memory(b, "a tile program");
        return;
    }
    sw__tinst t = { .fn = b->table.calc->adam, .len = (uint8_t)len, .name = "adam", .more = more,
                    .n_more = SW__ADAM_SLOTS,
                    .n_out = SW__ADAM_OUT };
    t.a = sw__operand(b, block, g, len, NULL);
    t.b = sw__operand(b, block, sw__scaled(b, keep_m), len, NULL);
    t.c = sw__operand(b, block, sw__scaled(b, keep_v), len, NULL);
    t.e = sw__operand(b, block, i->a, len, NULL);
    more[SW__ADAM_KEEP_M] = scale_of(b, block, keep_m, len);
    more[SW__ADAM_NEW_M] = scale_of(b, block, new_m, len);
    more[SW__ADAM_KEEP_V] = scale_of(b, block, keep_v, len);
    more[SW__ADAM_NEW_V] = scale_of(b, block, new_v, len);
    more[SW__ADAM_RATE] = scale_of(b, block, div->a, len);
    more[SW__ADAM_SPREAD] = scale_of(b, block, root_first ? den->a : den->b, len);
    more[SW__ADAM_EPS] = sw__operand(b, block, root_first ? den->b : den->a, len, &scalar);
    more[SW__ADAM_M] = sw__value_slot(b, block, m);
    more[SW__ADAM_V] = sw__value_slot(b, block, w);
    t.d = sw__value_slot(b, block, v);
    sw__tile_emit(b, block, t);
}

static void emit_where_lt(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v], *const lt = &b->k->inst[i->a];
    bool x_scalar, y_scalar = false;
    sw__tinst t = { .len = (uint8_t)len, .name = "where_lt" };
    t.a = sw__operand(b, block, lt->a, len, &x_scalar);
    t.b = sw__operand(b, block, lt->b, len, x_scalar ? NULL : &y_scalar);
    t.c = sw__operand(b, block, i->b, len, NULL);
    t.e = sw__operand(b, block, i->c, len, NULL);
    t.fn = b->table.calc->where_lt[x_scalar ? SW__SV : y_scalar ? SW__VS : SW__VV];
    t.d = sw__value_slot(b, block, v);
    sw__tile_emit(b, block, t);
}

static void emit_plain(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v];
    const sw__tile_table *const table = b->table.calc;
    sw__tinst t = { .len = (uint8_t)len, .name = sw__op_table[i->op].name };
    if (i->op == SW_OP_CAST) {
        t.a = sw__operand(b, block, i->a, len, NULL);
        t.fn = i->narrow ? table->narrow[i->narrow] : table->cast[i->dtype][b->k->inst[i->a].dtype];
    } else if (i->op == SW_OP_WHERE) {
        t.a = sw__operand(b, block, i->a, len, NULL);
        t.b = sw__operand(b, block, i->b, len, NULL);
        t.c = sw__operand(b, block, i->c, len, NULL);
        t.fn = table->calc[i->op][i->dtype][SW__VV];
    } else if (sw__op_table[i->op].min_in == 1) {
        t.a = sw__operand(b, block, i->a, len, NULL);
        t.fn = table->calc[i->op][b->k->inst[i->a].dtype][SW__VV];
    } else {
        const sw__tfn *const fn = table->calc[i->op][b->k->inst[i->a].dtype];
        bool x_scalar = false, y_scalar = false;
        t.a = sw__operand(b, block, i->a, len, fn[SW__SV] ? &x_scalar : NULL);
        t.b = sw__operand(b, block, i->b, len, fn[SW__VS] && !x_scalar ? &y_scalar : NULL);
        t.fn = fn[x_scalar ? SW__SV : y_scalar ? SW__VS : SW__VV];
    }
    t.d = sw__value_slot(b, block, v);
    sw__tile_emit(b, block, t);
}

void sw__emit_calc(sw__builder *b, int block, int32_t v, int len)
{
    switch (b->value[v].pattern) {
    case SW__FMA: emit_fma(b, block, v, len); break;
    case SW__AXPBY: emit_axpby(b, block, v, len); break;
    case SW__SQRT_FMA: emit_sqrt_fma(b, block, v, len); break;
    case SW__SUB_DIV: emit_sub_div(b, block, v, len); break;
    case SW__ADAM: emit_adam(b, block, v, len); break;
    case SW__WHERE_LT: emit_where_lt(b, block, v, len); break;
    default: emit_plain(b, block, v, len); break;
    }
}
