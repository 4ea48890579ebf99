/* tile_values.c: how often each value of a kernel has to be computed and in which block of code, and which ops are
 * combined into one instruction. Second step of compiling a tile program (tile_build.h). */
#include "kernel/tile_build.h"

sw_status sw__builder_memory(sw__builder *b, const char *what)
{
    if (b->st == SW_OK) b->st = sw__no_memory(0, what);
    return b->st;
}

sw_status sw__refuse(sw__builder *b, int32_t v, const char *what)
{
    if (b->st == SW_OK)
        b->st = sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s', instruction %%%d: %s", b->k->name, (int)v, what);
    return b->st;
}

/* How many operands an instruction has. */
static int operands(const sw__inst *i, int32_t arg[3])
{
    arg[0] = i->a;
    arg[1] = i->b;
    arg[2] = i->c;
    switch (i->kop) {
    case SW_K_LOAD: case SW_K_CONST: case SW_K_INDEX: return 0;
    case SW_K_GATHER: case SW_K_STORE: case SW_K_REDUCE: return 1;
    case SW_K_RANDOM: return i->b < 0 ? 1 : 2;
    default: return sw__op_table[i->op].min_in;
    }
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

static uint32_t own_mask(const sw__kernel *k, const sw__inst *i)
{
    uint32_t mask = 0;
    if (!sw__has_strides(i)) return 0;
    for (int x = 0; x < k->rank; x++) {
        if (k->extent[x] == 1) continue;
        const bool cut = i->kop != SW_K_STORE && i->kop != SW_K_INDEX && i->masked &&
                         (i->lo[x] > 0 || i->hi[x] < k->extent[x]);
        if (i->stride[x] != 0 || cut) mask |= 1u << x;
    }
    return mask;
}

/* hoist: values that are the same for every row are computed once. */
static sw__class class_of(const sw__tile_program *p, const sw__kvalue *v, bool hoist)
{
    const bool rows = (v->mask & sw__axes_bits(p->group1, p->group2)) != 0;
    const bool cols = (v->mask & sw__axes_bits(p->group2, p->rank)) != 0;
    if (p->mode == SW__MODE_COLS) {
        if (v->summed) return SW__SUMMED;
        if (v->mask == 0) return SW__UNI;
        return !rows ? SW__COLS : cols ? SW__TILED : SW__ROWS;
    }
    if (v->summed) return cols ? SW__TILED : SW__ROWS;
    if (v->mask == 0) return SW__UNI;
    if (!cols) return SW__ROWS;
    return rows || !hoist ? SW__TILED : SW__COLS;
}

static void set_masks(sw__builder *b)
{
    const sw__kernel *const k = b->k;
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        sw__kvalue *const v = &b->value[j];
        int32_t arg[3];
        const int n = operands(i, arg);
        v->mask = own_mask(k, i);
        for (int m = 0; m < n; m++) {
            const sw__kvalue *const o = &b->value[arg[m]];
            v->mask |= o->mask;
            v->summed |= o->summed;
            v->phase = SW_MAX(v->phase, (uint8_t)(o->phase + (k->inst[arg[m]].kop == SW_K_REDUCE ? 1 : 0)));
        }
        if (i->kop == SW_K_REDUCE) {
            v->mask &= ~k->reduced;
            v->summed = true;
        }
        b->n_stores += i->kop == SW_K_STORE;
    }
}

static void set_classes(sw__builder *b)
{
    sw__tile_program *const p = b->p;
    const sw__kernel *const k = b->k;
    const bool whole = p->tile_cols == p->cols;
    const bool pieces_may = p->mode == SW__MODE_POINT && !whole && !p->window && p->rows >= 4;
    const bool hoist = p->rows > 1 && (pieces_may || (whole && p->mode != SW__MODE_COLS));
    bool worth = false;
    for (int32_t j = 0; j < k->n_insts; j++) {
        sw__kvalue *const v = &b->value[j];
        v->cls = (uint8_t)class_of(p, v, hoist);
        worth |= v->cls == SW__COLS && k->inst[j].kop != SW_K_LOAD;
    }
    if (!pieces_may) return;
    p->piece_major = worth;
    if (worth) return;
    for (int32_t j = 0; j < k->n_insts; j++) b->value[j].cls = (uint8_t)class_of(p, &b->value[j], false);
}

/* ---- which block computes what ----------------------------------------------------------------------------------- */

bool sw__rows_apart(const sw__tile_program *p) /* values of the row have blocks of their own */
{
    return p->mode != SW__MODE_COLS && p->tile_cols < p->cols && !p->window;
}

static bool phases_apart(const sw__tile_program *p) /* a phase has its own walk over the row */
{
    return p->mode == SW__MODE_LONG || p->mode == SW__MODE_SPLIT;
}

/* The block that computes value v for code in block `user`. */
int sw__home(const sw__builder *b, int32_t v, int user)
{
    const sw__kvalue *const x = &b->value[v];
    if (x->cls == SW__UNI) return SW__BLK_ONCE;
    if (user == SW__BLK_POST || x->cls == SW__SUMMED) return SW__BLK_POST;
    if (x->cls == SW__COLS) return SW__BLK_COLS;
    if (x->cls == SW__ROWS && sw__rows_apart(b->p)) return sw__row_block(x->phase);
    return user >= SW__BLK_PHASE ? user : sw__tile_block(0);
}

int sw__block_of_phase(const sw__builder *b, int phase)
{
    return sw__tile_block(phases_apart(b->p) ? phase : 0);
}

static void mark(sw__builder *b, int32_t v, int user)
{
    const sw__inst *const i = &b->k->inst[v];
    int32_t arg[3];
    const int n = operands(i, arg);
    int block = sw__home(b, v, user);
    if (i->kop == SW_K_REDUCE) block = sw__block_of_phase(b, b->value[v].phase);
    if (b->need[block][v]) return;
    b->need[block][v] = true;
    for (int m = 0; m < n; m++) {
        mark(b, arg[m], block);
    }
}

static int store_block(sw__builder *b, int32_t j)
{
    const sw__kernel *const k = b->k;
    const sw__kvalue *const v = &b->value[j];
    const uint32_t strides = own_mask(k, &k->inst[j]);
    uint32_t all = 0;
    bool empty = false; /* then nothing is stored, and strides say nothing */
    for (int x = 0; x < k->rank; x++) {
        all |= k->extent[x] != 1 ? 1u << x : 0;
        empty |= k->extent[x] == 0;
    }
    const bool full = k->reduced == 0 || (v->mask & k->reduced & all);
    const uint32_t wanted = full ? all : all & ~k->reduced;
    if (strides != wanted && !empty) sw__refuse(b, j,
                                                "a store must reach each point of the domain (of the kept axes) once");
    if (v->cls == SW__UNI) return SW__BLK_ONCE;
    if (b->p->mode == SW__MODE_COLS) return full ? sw__tile_block(0) : SW__BLK_POST;
    if (full) return sw__block_of_phase(b, b->p->last_full);
    return sw__rows_apart(b->p) ? sw__row_block(v->phase) : sw__tile_block(0);
}

static void mark_all(sw__builder *b)
{
    for (int32_t j = 0; j < b->k->n_insts; j++) {
        if (b->k->inst[j].kop != SW_K_STORE) continue;
        const int block = store_block(b, j);
        b->need[block][j] = true;
        mark(b, b->k->inst[j].a, block);
    }
}

static bool needed(const sw__builder *b, int32_t v)
{
    for (int block = 0; block < SW__BLK_MAX; block++) {
        if (b->need[block][v]) return true;
    }
    return false;
}

/* ---- combinations ------------------------------------------------------------------------------------------------ */

static bool calc_f32(const sw__builder *b, int32_t v, int op)
{
    const sw__inst *const i = &b->k->inst[v];
    return i->kop == SW_K_CALC && i->op == op && b->k->inst[i->a].dtype == SW_F32;
}

/* v can be computed inside its user: nobody else wants it. */
static bool absorbable(const sw__builder *b, int32_t v, int32_t user, int op)
{
    const sw__kvalue *const x = &b->value[v], *const u = &b->value[user];
    return calc_f32(b, v, op) && x->uses == 1 && x->pattern == SW__PLAIN && x->phase == u->phase &&
           (x->cls == u->cls || b->k->inst[user].kop == SW_K_REDUCE) && (x->cls == SW__TILED || x->cls == SW__COLS);
}

bool sw__is_scalar(const sw__builder *b, int32_t v)
{
    return b->value[v].cls == SW__UNI || (b->value[v].cls == SW__ROWS && b->p->tile_rows == 1);
}

static bool scales(const sw__builder *b, int32_t v) /* a MUL with one scalar operand */
{
    return sw__is_scalar(b, b->k->inst[v].a) != sw__is_scalar(b, b->k->inst[v].b);
}

/* The operand of a scaling MUL that is no scalar. */
int32_t sw__scaled(const sw__builder *b, int32_t mul)
{
    const sw__inst *const i = &b->k->inst[mul];
    return sw__is_scalar(b, i->a) ? i->b : i->a;
}

static bool scaled_square(const sw__builder *b, int32_t mul)
{
    const int32_t v = sw__scaled(b, mul);
    return calc_f32(b, v, SW_OP_MUL) && b->k->inst[v].a == b->k->inst[v].b && absorbable(b, v, mul, SW_OP_MUL);
}

static void absorb(sw__builder *b, int32_t v) { b->value[v].pattern = SW__ABSORBED; }

static void combine_axpby(sw__builder *b, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    sw__kvalue *const x = &b->value[v];
    x->pattern = SW__AXPBY;
    x->which = scaled_square(b, i->a) ? 1 : scaled_square(b, i->b) ? 2 : 0;
    if (x->which) absorb(b, sw__scaled(b, x->which == 1 ? i->a : i->b));
    absorb(b, i->a);
    absorb(b, i->b);
}

static void combine_fma(sw__builder *b, int32_t v, int which)
{
    const sw__inst *const i = &b->k->inst[v];
    const int32_t mul = which == 0 ? i->a : i->b, other = which == 0 ? i->b : i->a;
    sw__kvalue *const x = &b->value[v];
    x->pattern = SW__FMA;
    x->which = (uint8_t)which;
    if (i->op == SW_OP_ADD && sw__is_scalar(b, other) && scales(b, mul) && absorbable(b, sw__scaled(b, mul), mul,
                                                                                      SW_OP_SQRT)) {
        x->pattern = SW__SQRT_FMA;
        absorb(b, sw__scaled(b, mul));
    }
    absorb(b, mul);
}

static bool scaled_quotient(const sw__builder *b, int32_t v, int32_t user)
{
    if (!absorbable(b, v, user, SW_OP_DIV)) return false;
    const sw__inst *const i = &b->k->inst[v];
    return !sw__is_scalar(b, i->b) && absorbable(b, i->a, v, SW_OP_MUL) && scales(b, i->a);
}

bool sw__stored(const sw__builder *b, int32_t v)
{
    for (int32_t j = v + 1; j < b->k->n_insts; j++) {
        if (b->k->inst[j].kop == SW_K_STORE && b->k->inst[j].a == v) return true;
    }
    return false;
}

/* A moment of Adam: wanted by the step and by a store, which comes at the end. */
static bool is_moment(const sw__builder *b, int32_t v, int32_t user, bool squares)
{
    const sw__kvalue *const x = &b->value[v], *const u = &b->value[user];
    return x->pattern == SW__AXPBY && (x->which != 0) == squares && x->uses == 2 && sw__stored(b, v) &&
        x->cls == SW__TILED &&
           u->cls == SW__TILED && x->phase == u->phase;
}

int32_t sw__sqrt_operand(const sw__builder *b, int32_t v) /* of a SQRT_FMA */
{
    const sw__inst *const i = &b->k->inst[v];
    return b->k->inst[sw__scaled(b, b->value[v].which == 0 ? i->a : i->b)].a;
}

/* SUB_DIV of a mean and a SQRT_FMA of a mean of squares of the same value: Adam's step. */
static void combine_adam(sw__builder *b, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v], *const div = &b->k->inst[i->b];
    const int32_t m = sw__scaled(b, div->a), den = div->b;
    if (!is_moment(b, m, v, false) || b->value[den].pattern != SW__SQRT_FMA || b->value[den].uses != 1) return;
    const int32_t w = sw__sqrt_operand(b, den);
    if (!is_moment(b, w, v, true)) return;
    const sw__inst *const mean = &b->k->inst[m], *const squares = &b->k->inst[w];
    const int32_t g = b->k->inst[sw__scaled(b, b->value[w].which == 1 ? squares->a : squares->b)].a;
    if (sw__scaled(b, mean->a) != g && sw__scaled(b, mean->b) != g) return;
    b->value[v].pattern = SW__ADAM;
    b->value[m].pattern = b->value[w].pattern = SW__BESIDE;
    absorb(b, den);
}

static void combine_add(sw__builder *b, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    const bool first = absorbable(b, i->a, v, SW_OP_MUL), second = absorbable(b, i->b, v, SW_OP_MUL);
    if (i->op == SW_OP_ADD && first && second && i->a != i->b && scales(b, i->a) && scales(b, i->b)) {
        combine_axpby(b, v);
    } else if (first || second) {
        combine_fma(b, v, first ? 0 : 1);
    } else if (i->op == SW_OP_SUB && scaled_quotient(b, i->b, v)) {
        b->value[v].pattern = SW__SUB_DIV;
        absorb(b, b->k->inst[i->b].a);
        absorb(b, i->b);
        combine_adam(b, v);
    }
}

static void combine(sw__builder *b)
{
    const sw__kernel *const k = b->k;
    for (int32_t j = 0; j < k->n_insts; j++) {
        int32_t arg[3];
        if (!needed(b, j)) continue;
        for (int m = operands(&k->inst[j], arg) - 1; m >= 0; m--) b->value[arg[m]].uses++;
    }
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        sw__kvalue *const x = &b->value[j];
        if (!needed(b, j)) continue;
        const bool tiled = x->cls == SW__TILED || x->cls == SW__COLS;
        if (tiled && (calc_f32(b, j, SW_OP_ADD) || calc_f32(b, j, SW_OP_SUB))) {
            combine_add(b, j);
        } else if (tiled && i->kop == SW_K_CALC && i->op == SW_OP_WHERE && i->dtype == SW_F32 &&
                   absorbable(b, i->a, j, SW_OP_LT)) {
            x->pattern = SW__WHERE_LT;
            b->value[i->a].pattern = SW__ABSORBED;
        } else if (i->kop == SW_K_REDUCE && i->op == SW_OP_REDUCE_SUM && absorbable(b, i->a, j, SW_OP_MUL) &&
                   b->value[i->a].cls == SW__TILED) {
            x->pattern = SW__DOT;
            b->value[i->a].pattern = SW__ABSORBED;
        }
    }
}

sw_status sw__tile_values(sw__builder *b)
{
    set_masks(b);
    set_classes(b);
    mark_all(b);
    combine(b);
    return b->st;
}
