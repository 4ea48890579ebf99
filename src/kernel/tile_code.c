/* tile_code.c: writes the bytecode of a tile program: finds how often each value has to be computed, combines common
 * pairs of ops, and emits the instructions of every block. Second step of compiling (tile_build.h). */
#include "kernel/tile_build.h"

static sw_status fail_memory(sw__builder *b, const char *what)
{
    if (b->st == SW_OK) b->st = sw__no_memory(0, what);
    return b->st;
}

static sw_status refuse(sw__builder *b, int32_t v, const char *what)
{
    if (b->st == SW_OK)
        b->st = sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s', instruction %%%d: %s", b->k->name, (int)v, what);
    return b->st;
}

static bool has_strides(const sw__inst *i)
{
    return i->kop == SW_K_LOAD || i->kop == SW_K_GATHER || i->kop == SW_K_STORE || i->kop == SW_K_INDEX;
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

/* ---- classes --------------------------------------------------------------------------------------------------------------- */

static uint32_t own_mask(const sw__kernel *k, const sw__inst *i)
{
    uint32_t mask = 0;
    if (!has_strides(i)) return 0;
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

/* ---- which block computes what ----------------------------------------------------------------------------------------------- */

static bool rows_apart(const sw__tile_program *p) /* values of the row have blocks of their own */
{
    return p->mode != SW__MODE_COLS && p->tile_cols < p->cols && !p->window;
}

static bool phases_apart(const sw__tile_program *p) /* a phase has its own walk over the row */
{
    return p->mode == SW__MODE_LONG || p->mode == SW__MODE_SPLIT;
}

/* The block that computes value v for code in block `user`. */
static int home(const sw__builder *b, int32_t v, int user)
{
    const sw__kvalue *const x = &b->value[v];
    if (x->cls == SW__UNI) return SW__BLK_ONCE;
    if (user == SW__BLK_POST || x->cls == SW__SUMMED) return SW__BLK_POST;
    if (x->cls == SW__COLS) return SW__BLK_COLS;
    if (x->cls == SW__ROWS && rows_apart(b->p)) return sw__row_block(x->phase);
    return user >= SW__BLK_PHASE ? user : sw__tile_block(0);
}

static int block_of_phase(const sw__builder *b, int phase)
{
    return sw__tile_block(phases_apart(b->p) ? phase : 0);
}

static void mark(sw__builder *b, int32_t v, int user)
{
    const sw__inst *const i = &b->k->inst[v];
    int32_t arg[3];
    const int n = operands(i, arg);
    int block = home(b, v, user);
    if (i->kop == SW_K_REDUCE) block = block_of_phase(b, b->value[v].phase);
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
    if (strides != wanted && !empty) refuse(b, j, "a store must reach each point of the domain (of the kept axes) once");
    if (v->cls == SW__UNI) return SW__BLK_ONCE;
    if (b->p->mode == SW__MODE_COLS) return full ? sw__tile_block(0) : SW__BLK_POST;
    if (full) return block_of_phase(b, b->p->last_full);
    return rows_apart(b->p) ? sw__row_block(v->phase) : sw__tile_block(0);
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

/* ---- combinations -------------------------------------------------------------------------------------------------------------- */

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

static bool is_scalar(const sw__builder *b, int32_t v)
{
    return b->value[v].cls == SW__UNI || (b->value[v].cls == SW__ROWS && b->p->tile_rows == 1);
}

static bool scales(const sw__builder *b, int32_t v) /* a MUL with one scalar operand */
{
    return is_scalar(b, b->k->inst[v].a) != is_scalar(b, b->k->inst[v].b);
}

/* The operand of a scaling MUL that is no scalar. */
static int32_t scaled(const sw__builder *b, int32_t mul)
{
    const sw__inst *const i = &b->k->inst[mul];
    return is_scalar(b, i->a) ? i->b : i->a;
}

static bool scaled_square(const sw__builder *b, int32_t mul)
{
    const int32_t v = scaled(b, mul);
    return calc_f32(b, v, SW_OP_MUL) && b->k->inst[v].a == b->k->inst[v].b && absorbable(b, v, mul, SW_OP_MUL);
}

static void absorb(sw__builder *b, int32_t v) { b->value[v].pattern = SW__ABSORBED; }

static void combine_axpby(sw__builder *b, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    sw__kvalue *const x = &b->value[v];
    x->pattern = SW__AXPBY;
    x->which = scaled_square(b, i->a) ? 1 : scaled_square(b, i->b) ? 2 : 0;
    if (x->which) absorb(b, scaled(b, x->which == 1 ? i->a : i->b));
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
    if (i->op == SW_OP_ADD && is_scalar(b, other) && scales(b, mul) && absorbable(b, scaled(b, mul), mul, SW_OP_SQRT)) {
        x->pattern = SW__SQRT_FMA;
        absorb(b, scaled(b, mul));
    }
    absorb(b, mul);
}

static bool scaled_quotient(const sw__builder *b, int32_t v, int32_t user)
{
    if (!absorbable(b, v, user, SW_OP_DIV)) return false;
    const sw__inst *const i = &b->k->inst[v];
    return !is_scalar(b, i->b) && absorbable(b, i->a, v, SW_OP_MUL) && scales(b, i->a);
}

static bool stored(const sw__builder *b, int32_t v)
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
    return x->pattern == SW__AXPBY && (x->which != 0) == squares && x->uses == 2 && stored(b, v) && x->cls == SW__TILED &&
           u->cls == SW__TILED && x->phase == u->phase;
}

static int32_t sqrt_operand(const sw__builder *b, int32_t v) /* of a SQRT_FMA */
{
    const sw__inst *const i = &b->k->inst[v];
    return b->k->inst[scaled(b, b->value[v].which == 0 ? i->a : i->b)].a;
}

/* SUB_DIV of a mean and a SQRT_FMA of a mean of squares of the same value: Adam's step. */
static void combine_adam(sw__builder *b, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v], *const div = &b->k->inst[i->b];
    const int32_t m = scaled(b, div->a), den = div->b;
    if (!is_moment(b, m, v, false) || b->value[den].pattern != SW__SQRT_FMA || b->value[den].uses != 1) return;
    const int32_t w = sqrt_operand(b, den);
    if (!is_moment(b, w, v, true)) return;
    const sw__inst *const mean = &b->k->inst[m], *const squares = &b->k->inst[w];
    const int32_t g = b->k->inst[scaled(b, b->value[w].which == 1 ? squares->a : squares->b)].a;
    if (scaled(b, mean->a) != g && scaled(b, mean->b) != g) return;
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

/* ---- slots and instructions ------------------------------------------------------------------------------------------------------- */

static uint16_t new_slot(sw__builder *b, int area, size_t size, int len)
{
    sw__tile_program *const p = b->p;
    if (p->n_slots >= UINT16_MAX) {
        refuse(b, 0, "too many values for the tile interpreter");
        return 0;
    }
    if (sw__grow(&p->slot, &p->cap_slots, p->n_slots + 1, sizeof *p->slot, "a tile program") != SW_OK) {
        b->st = SW_ERR_MEMORY;
        return 0;
    }
    p->slot[p->n_slots] = (sw__slot){ .area = (uint8_t)area, .size = (uint8_t)size, .len = (uint8_t)len };
    return (uint16_t)p->n_slots++;
}

static void emit(sw__builder *b, int block, sw__tinst i)
{
    sw__block *const code = &b->p->block[block];
    if (b->st != SW_OK) return;
    if (!i.fn) {
        b->st = sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s': the tile interpreter has no %s for this type", b->k->name, i.name);
        return;
    }
    if (sw__grow(&code->inst, &code->capacity, code->n + 1, sizeof *code->inst, "a tile program") != SW_OK) {
        b->st = SW_ERR_MEMORY;
        return;
    }
    code->inst[code->n++] = i;
}

static bool in_row_block(int block) { return block >= SW__BLK_PHASE && (block - SW__BLK_PHASE) % 2 == 0; }

/* How long a value of class cls is in a block. */
static int length_in(int block, int cls)
{
    if (block == SW__BLK_ONCE || cls == SW__UNI) return SW__LEN_ONE;
    if (block == SW__BLK_POST) return SW__LEN_COLS;
    if (in_row_block(block) || cls == SW__ROWS) return SW__LEN_ROWS;
    return SW__LEN_TILE;
}

static int area_of(int block)
{
    if (block == SW__BLK_ONCE) return SW__AREA_ONCE;
    return in_row_block(block) ? SW__AREA_ROW : SW__AREA_THREAD;
}

static size_t value_size(const sw__builder *b, int32_t v) { return sw_dtype_size((sw_dtype)b->k->inst[v].dtype); }

static uint16_t constant_slot(sw__builder *b, const void *bytes, size_t size)
{
    sw__tile_program *const p = b->p;
    if (sw__grow(&p->constants, &p->cap_constants, p->constants_bytes + 8, 1, "a tile program") != SW_OK) {
        b->st = SW_ERR_MEMORY;
        return 0;
    }
    const uint16_t s = new_slot(b, SW__AREA_CONST, size, SW__LEN_ONE);
    if (b->st != SW_OK) return 0;
    p->slot[s].offset = p->constants_bytes;
    memset(p->constants + p->constants_bytes, 0, 8);
    memcpy(p->constants + p->constants_bytes, bytes, size);
    p->constants_bytes += 8;
    return s;
}

/* The bits of a constant in type t. */
static uint64_t constant_bits(const sw__inst *i, sw_dtype t)
{
    uint64_t bits = 0;
    if (sw__dtype_is_float(t)) sw__convert(&bits, t, &i->value, SW_F64, 1);
    else if (i->kop == SW_K_CONST) sw__convert(&bits, t, &i->ivalue, SW_I64, 1);
    else sw__convert(&bits, t, &i->value, SW_F64, 1); /* what a masked load has outside */
    return bits;
}

/* ---- operands ------------------------------------------------------------------------------------------------------------------------ */

static uint16_t emit_value(sw__builder *b, int block, int32_t v);

static uint16_t natural(sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    if (i->kop == SW_K_REDUCE && b->p->mode == SW__MODE_COLS) return b->natural[SW__BLK_POST][v];
    const int h = i->kop == SW_K_REDUCE ? block_of_phase(b, b->value[v].phase) : home(b, v, block);
    return b->natural[h][v] ? b->natural[h][v] : emit_value(b, h, v);
}

/* The operand as a vector of `len`, or (scalar != NULL) as it is if that is a scalar; then *scalar is set. */
static uint16_t operand(sw__builder *b, int block, int32_t v, int len, bool *scalar)
{
    const sw__tile_program *const p = b->p;
    const uint16_t s = natural(b, block, v);
    if (scalar) *scalar = false;
    if (b->st != SW_OK) return 0;
    const int have = p->slot[s].len;
    if (have == len || (have == SW__LEN_ONE && len == SW__LEN_ROWS && p->tile_rows == 1)) return s;
    const bool single = have == SW__LEN_ONE || p->tile_rows == 1;
    if (single && scalar) {
        *scalar = true;
        return s;
    }
    /* One number for all rows is spread once a thread; anything else where it is used. */
    const int at = have == SW__LEN_ONE && p->slot[s].area != SW__AREA_ROW && block != SW__BLK_POST ? SW__BLK_COLS : block;
    if (b->spread[at][v]) return b->spread[at][v];
    const size_t size = p->slot[s].size;
    const int to = block == SW__BLK_POST ? SW__LEN_COLS : SW__LEN_TILE;
    const uint16_t d = new_slot(b, SW__AREA_THREAD, size, to);
    const sw__tfn *const fn = single ? b->table.move->splat : b->table.move->expand;
    emit(b, at, (sw__tinst){ .fn = fn[size], .d = d, .a = s, .len = (uint8_t)to, .name = single ? "splat" : "expand" });
    b->spread[at][v] = d;
    return d;
}

/* ---- accesses -------------------------------------------------------------------------------------------------------------------------- */

static sw_dtype register_type(sw_dtype memory) { return memory == SW_F16 || memory == SW_BF16 ? SW_F32 : memory; }

static sw__access *new_access(sw__builder *b, const sw__inst *i, int block, int cls)
{
    sw__tile_program *const p = b->p;
    sw__access *const a = sw__arena_alloc(&p->arena, sizeof *a);
    if (!a) {
        fail_memory(b, "a tile program");
        return NULL;
    }
    memcpy(a->stride, i->stride, sizeof a->stride);
    memcpy(a->lo, i->lo, sizeof a->lo);
    memcpy(a->hi, i->hi, sizeof a->hi);
    a->offset = i->offset;
    a->buffer = i->buffer;
    if (i->kop == SW_K_LOAD || i->kop == SW_K_GATHER) a->masked = i->masked;
    const int len = length_in(block, cls);
    a->first = len == SW__LEN_COLS ? p->group2 : p->group1;
    a->end = len == SW__LEN_ROWS ? p->group2 : p->rank;
    if (len == SW__LEN_ONE) a->end = a->first;
    return a;
}

static void memory_side(const sw__builder *b, sw__access *a, bool store)
{
    const sw_dtype t = (sw_dtype)b->k->buffer[a->buffer].dtype;
    a->size = (uint32_t)sw_dtype_size(t);
    a->reg_size = (uint32_t)sw_dtype_size(register_type(t));
    a->move = store ? b->table.move->store[t] : b->table.move->load[t];
    a->gather = b->table.move->gather[t];
    a->fill = b->table.move->fill[a->reg_size];
}

/* A tile of the access is one run of memory. */
static bool contiguous(const sw__builder *b, const sw__inst *i, int block)
{
    const sw__tile_program *const p = b->p;
    const bool one_row = block == SW__BLK_POST || p->tile_rows == 1;
    int64_t stride = 1;
    if (p->window) return false;
    for (int x = p->rank - 1; x >= (one_row ? p->group2 : p->group1); x--) {
        if (p->extent[x] != 1 && i->stride[x] != stride) return false;
        stride *= p->extent[x];
    }
    return true;
}

/* A load that is used where it lies in memory. */
static bool in_place(const sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    const int len = length_in(block, b->value[v].cls);
    if (i->kop != SW_K_LOAD || i->masked || i->dtype != b->k->buffer[i->buffer].dtype) return false;
    if (len != SW__LEN_TILE && len != SW__LEN_COLS) return false;
    return contiguous(b, i, block);
}

/* The value is stored as it is, and another store could overwrite it: copy it first. */
static bool copied_through(const sw__builder *b, int32_t v)
{
    return b->n_stores > 1 && stored(b, v);
}

/* ---- values ------------------------------------------------------------------------------------------------------------------------------ */

static uint16_t value_slot(sw__builder *b, int block, int32_t v)
{
    if (b->natural[block][v]) return b->natural[block][v]; /* a direct store has made it */
    const uint16_t s = new_slot(b, area_of(block), value_size(b, v), length_in(block, b->value[v].cls));
    b->natural[block][v] = s;
    return s;
}

static void emit_cast(sw__builder *b, int block, uint16_t d, sw_dtype to, uint16_t a, sw_dtype from, int len)
{
    emit(b, block, (sw__tinst){ .fn = b->table.calc->cast[to][from], .d = d, .a = a, .len = (uint8_t)len, .name = "cast" });
}

static void emit_load(sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    const int cls = b->value[v].cls, len = length_in(block, cls);
    sw__access *const a = new_access(b, i, block, cls);
    if (!a) return;
    memory_side(b, a, false);
    const sw_dtype type = (sw_dtype)i->dtype, memory = register_type((sw_dtype)b->k->buffer[i->buffer].dtype);
    a->value = constant_bits(i, memory);
    if (!b->natural[block][v] && in_place(b, block, v) && !copied_through(b, v)) {
        const uint16_t s = value_slot(b, block, v);
        if (b->st != SW_OK) return;
        b->p->slot[s].area = SW__AREA_NONE;
        emit(b, block, (sw__tinst){ .fn = sw__tile_bind, .d = s, .access = a, .len = (uint8_t)len, .name = "bind" });
        return;
    }
    const uint16_t s = type == memory ? value_slot(b, block, v) : new_slot(b, area_of(block), sw_dtype_size(memory), len);
    emit(b, block, (sw__tinst){ .fn = sw__tile_load, .d = s, .access = a, .len = (uint8_t)len, .name = "load" });
    if (type != memory) emit_cast(b, block, value_slot(b, block, v), type, s, memory, len);
}

static void emit_index(sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    sw__access *const a = new_access(b, i, block, b->value[v].cls);
    if (!a) return;
    a->reg_size = (uint32_t)value_size(b, v);
    a->iota = b->table.move->iota[i->dtype];
    emit(b, block, (sw__tinst){ .fn = sw__tile_load, .d = value_slot(b, block, v), .access = a,
                                .len = (uint8_t)length_in(block, b->value[v].cls), .name = "index" });
}

/* An operand that must be i64 (an index), as a vector of `len` (or as it is). */
static uint16_t index_operand(sw__builder *b, int block, int32_t v, int len)
{
    const sw_dtype type = (sw_dtype)b->k->inst[v].dtype;
    if (type == SW_I64) return operand(b, block, v, len, NULL);
    if (b->index64[block][v]) return b->index64[block][v];
    const uint16_t s = operand(b, block, v, len, NULL);
    if (b->st != SW_OK) return 0;
    const uint16_t d = new_slot(b, area_of(block), 8, len);
    emit_cast(b, block, d, SW_I64, s, type, len);
    b->index64[block][v] = d;
    return d;
}

static void emit_gather(sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    const int cls = b->value[v].cls, len = length_in(block, cls);
    sw__access *const a = new_access(b, i, block, cls);
    if (!a) return;
    memory_side(b, a, false);
    const sw_dtype type = (sw_dtype)i->dtype, memory = register_type((sw_dtype)b->k->buffer[i->buffer].dtype);
    a->value = constant_bits(i, memory);
    a->stride_x = i->stride_x;
    a->extent_x = i->extent_x;
    a->rowwise = len == SW__LEN_TILE && block != SW__BLK_COLS && b->value[i->a].cls == SW__ROWS;
    b->p->gathers = true;
    const int index_len = a->rowwise ? SW__LEN_ROWS : len;
    const int index_block = a->rowwise ? home(b, i->a, block) : block;
    const uint16_t x = index_operand(b, index_block, i->a, index_len);
    const uint16_t s = type == memory ? value_slot(b, block, v) : new_slot(b, area_of(block), sw_dtype_size(memory), len);
    emit(b, block, (sw__tinst){ .fn = sw__tile_gather, .d = s, .a = x, .access = a, .len = (uint8_t)len, .name = "gather" });
    if (type != memory) emit_cast(b, block, value_slot(b, block, v), type, s, memory, len);
}

static void emit_random(sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    const int len = length_in(block, b->value[v].cls);
    const int64_t zero = 0;
    if (b->k->inst[i->a].dtype != SW_I64 || i->dtype != SW_U32 ||
        (i->b >= 0 && (b->k->inst[i->b].dtype != SW_I64 || b->value[i->b].cls != SW__UNI))) {
        refuse(b, v, "random takes an i64 element and one i64 counter for all, and gives u32");
        return;
    }
    sw__access *const a = sw__arena_alloc(&b->p->arena, sizeof *a);
    if (!a) {
        fail_memory(b, "a tile program");
        return;
    }
    a->key[0] = (uint32_t)i->ivalue;
    a->key[1] = i->stream;
    const uint16_t element = operand(b, block, i->a, len, NULL);
    const uint16_t count = i->b >= 0 ? natural(b, block, i->b) : constant_slot(b, &zero, sizeof zero);
    emit(b, block, (sw__tinst){ .fn = b->table.calc->random, .d = value_slot(b, block, v), .a = element, .b = count,
                                .access = a, .len = (uint8_t)len, .name = "random" });
}

/* ---- calculations ------------------------------------------------------------------------------------------------------------------------ */

/* Puts the operands of a MUL with the scalar one, if any, second. */
static void mul_operands(sw__builder *b, int block, int32_t mul, int len, uint16_t *x, uint16_t *y, bool *scalar)
{
    const sw__inst *const i = &b->k->inst[mul];
    const bool swap = is_scalar(b, i->a) && !is_scalar(b, i->b);
    *x = operand(b, block, swap ? i->b : i->a, len, NULL);
    *y = operand(b, block, swap ? i->a : i->b, len, scalar);
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
    const uint16_t z = operand(b, block, other, len, y_scalar ? &z_scalar : NULL);
    const int variant = !y_scalar ? 0 : z_scalar ? 2 : 1;
    static const char *const names[3] = { "fma", "fms", "fnma" };
    emit(b, block, (sw__tinst){ .fn = b->table.calc->fma[form][variant], .d = value_slot(b, block, v), .a = x, .b = y,
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
        const int32_t square = scaled(b, second);
        t.c = operand(b, block, b->k->inst[square].a, len, NULL);
        t.e = operand(b, block, square == mul->a ? mul->b : mul->a, len, &scalar);
        t.fn = b->table.calc->axpby2;
        t.name = "axpby2";
    }
    t.d = value_slot(b, block, v);
    emit(b, block, t);
}

static void emit_sqrt_fma(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v];
    const int32_t mul = b->value[v].which == 0 ? i->a : i->b, other = b->value[v].which == 0 ? i->b : i->a;
    const int32_t root = scaled(b, mul);
    bool scalar;
    sw__tinst t = { .fn = b->table.calc->sqrt_fma, .len = (uint8_t)len, .name = "sqrt_fma" };
    t.a = operand(b, block, b->k->inst[root].a, len, NULL);
    t.b = operand(b, block, root == b->k->inst[mul].a ? b->k->inst[mul].b : b->k->inst[mul].a, len, &scalar);
    t.c = operand(b, block, other, len, &scalar);
    t.d = value_slot(b, block, v);
    emit(b, block, t);
}

static void emit_sub_div(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v], *const div = &b->k->inst[i->b];
    bool scalar;
    sw__tinst t = { .fn = b->table.calc->sub_div, .len = (uint8_t)len, .name = "sub_div" };
    mul_operands(b, block, div->a, len, &t.a, &t.b, &scalar);
    t.c = operand(b, block, i->a, len, NULL);
    t.e = operand(b, block, div->b, len, NULL);
    t.d = value_slot(b, block, v);
    emit(b, block, t);
}

/* The scalar operand of a scaling MUL. */
static uint16_t scale_of(sw__builder *b, int block, int32_t mul, int len)
{
    const sw__inst *const i = &b->k->inst[mul];
    bool scalar;
    return operand(b, block, is_scalar(b, i->a) ? i->a : i->b, len, &scalar);
}

static void emit_adam(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const k = b->k->inst, *const i = &k[v], *const div = &k[i->b], *const den = &k[div->b];
    const int32_t m = scaled(b, div->a), w = sqrt_operand(b, div->b);
    const bool square_first = b->value[w].which == 1, root_first = b->value[div->b].which == 0;
    const int32_t new_v = square_first ? k[w].a : k[w].b, keep_v = square_first ? k[w].b : k[w].a;
    const int32_t g = k[scaled(b, new_v)].a;
    const bool g_second = scaled(b, k[m].b) == g;
    const int32_t new_m = g_second ? k[m].b : k[m].a, keep_m = g_second ? k[m].a : k[m].b;
    uint16_t *const more = sw__arena_alloc(&b->p->arena, SW__ADAM_SLOTS * sizeof *more);
    bool scalar;
    if (!more) {
        fail_memory(b, "a tile program");
        return;
    }
    sw__tinst t = { .fn = b->table.calc->adam, .len = (uint8_t)len, .name = "adam", .more = more, .n_more = SW__ADAM_SLOTS,
                    .n_out = SW__ADAM_OUT };
    t.a = operand(b, block, g, len, NULL);
    t.b = operand(b, block, scaled(b, keep_m), len, NULL);
    t.c = operand(b, block, scaled(b, keep_v), len, NULL);
    t.e = operand(b, block, i->a, len, NULL);
    more[SW__ADAM_KEEP_M] = scale_of(b, block, keep_m, len);
    more[SW__ADAM_NEW_M] = scale_of(b, block, new_m, len);
    more[SW__ADAM_KEEP_V] = scale_of(b, block, keep_v, len);
    more[SW__ADAM_NEW_V] = scale_of(b, block, new_v, len);
    more[SW__ADAM_RATE] = scale_of(b, block, div->a, len);
    more[SW__ADAM_SPREAD] = scale_of(b, block, root_first ? den->a : den->b, len);
    more[SW__ADAM_EPS] = operand(b, block, root_first ? den->b : den->a, len, &scalar);
    more[SW__ADAM_M] = value_slot(b, block, m);
    more[SW__ADAM_V] = value_slot(b, block, w);
    t.d = value_slot(b, block, v);
    emit(b, block, t);
}

static void emit_where_lt(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v], *const lt = &b->k->inst[i->a];
    bool x_scalar, y_scalar = false;
    sw__tinst t = { .len = (uint8_t)len, .name = "where_lt" };
    t.a = operand(b, block, lt->a, len, &x_scalar);
    t.b = operand(b, block, lt->b, len, x_scalar ? NULL : &y_scalar);
    t.c = operand(b, block, i->b, len, NULL);
    t.e = operand(b, block, i->c, len, NULL);
    t.fn = b->table.calc->where_lt[x_scalar ? SW__SV : y_scalar ? SW__VS : SW__VV];
    t.d = value_slot(b, block, v);
    emit(b, block, t);
}

static void emit_plain(sw__builder *b, int block, int32_t v, int len)
{
    const sw__inst *const i = &b->k->inst[v];
    const sw__tile_table *const table = b->table.calc;
    sw__tinst t = { .len = (uint8_t)len, .name = sw__op_table[i->op].name };
    if (i->op == SW_OP_CAST) {
        t.a = operand(b, block, i->a, len, NULL);
        t.fn = table->cast[i->dtype][b->k->inst[i->a].dtype];
    } else if (i->op == SW_OP_WHERE) {
        t.a = operand(b, block, i->a, len, NULL);
        t.b = operand(b, block, i->b, len, NULL);
        t.c = operand(b, block, i->c, len, NULL);
        t.fn = table->calc[i->op][i->dtype][SW__VV];
    } else if (sw__op_table[i->op].min_in == 1) {
        t.a = operand(b, block, i->a, len, NULL);
        t.fn = table->calc[i->op][b->k->inst[i->a].dtype][SW__VV];
    } else {
        const sw__tfn *const fn = table->calc[i->op][b->k->inst[i->a].dtype];
        bool x_scalar = false, y_scalar = false;
        t.a = operand(b, block, i->a, len, fn[SW__SV] ? &x_scalar : NULL);
        t.b = operand(b, block, i->b, len, fn[SW__VS] && !x_scalar ? &y_scalar : NULL);
        t.fn = fn[x_scalar ? SW__SV : y_scalar ? SW__VS : SW__VV];
    }
    t.d = value_slot(b, block, v);
    emit(b, block, t);
}

static void emit_calc(sw__builder *b, int block, int32_t v)
{
    const int len = length_in(block, b->value[v].cls);
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

/* ---- reductions ------------------------------------------------------------------------------------------------------------------------------ */

static uint16_t reduction_slot(sw__builder *b, int32_t v)
{
    const size_t size = value_size(b, v);
    switch (b->p->mode) {
    case SW__MODE_COLS: return new_slot(b, SW__AREA_THREAD, size, SW__LEN_COLS);
    case SW__MODE_ROWS: return new_slot(b, SW__AREA_THREAD, size, SW__LEN_ROWS);
    default: return new_slot(b, SW__AREA_ROW, size, SW__LEN_ROWS);
    }
}

static void emit_reduce(sw__builder *b, int block, int32_t v)
{
    sw__tile_program *const p = b->p;
    const sw__inst *const i = &b->k->inst[v];
    const sw__reduce_table *const table = b->table.reduce;
    const int op = i->op - SW_OP_REDUCE_SUM;
    if (p->n_reductions >= UINT8_MAX) {
        refuse(b, v, "too many reductions for the tile interpreter");
        return;
    }
    if (sw__grow(&p->reduction, &p->cap_reductions, p->n_reductions + 1, sizeof *p->reduction, "a tile program") != SW_OK) {
        b->st = SW_ERR_MEMORY;
        return;
    }
    const uint16_t s = reduction_slot(b, v);
    b->natural[p->mode == SW__MODE_COLS ? SW__BLK_POST : block][v] = s;
    p->reduction[p->n_reductions] = (sw__reduction){ .op = (uint16_t)op, .dtype = i->dtype, .d = s,
                                                     .phase = b->value[v].phase };
    sw__tinst t = { .d = s, .len = SW__LEN_TILE, .index = (uint8_t)p->n_reductions++, .name = sw__op_table[i->op].name };
    const bool dot = b->value[v].pattern == SW__DOT;
    const sw__inst *const mul = &b->k->inst[i->a];
    t.a = operand(b, block, dot ? mul->a : i->a, SW__LEN_TILE, NULL);
    if (dot) t.b = operand(b, block, mul->b, SW__LEN_TILE, NULL);
    if (dot) t.name = "dot";
    if (p->mode == SW__MODE_ROWS) t.fn = dot ? table->dot_rows : table->rows[op][i->dtype];
    else if (p->mode != SW__MODE_COLS) t.fn = dot ? table->dot_total : table->total[op][i->dtype];
    else if (i->op == SW_OP_REDUCE_SUM && i->dtype == SW_F32) t.fn = dot ? table->dot_cols : table->fast_cols_sum;
    else t.fn = table->cols[op][i->dtype];
    if (p->mode != SW__MODE_ROWS) t.d = 0;
    emit(b, block, t);
}

/* ---- stores ------------------------------------------------------------------------------------------------------------------------------------ */

static bool same_type(const sw__builder *b, const sw__inst *store)
{
    return b->k->inst[store->a].dtype == b->k->buffer[store->buffer].dtype;
}

/* The value can be computed right into the memory where it is stored. */
static bool direct(const sw__builder *b, int block, int32_t j)
{
    const sw__inst *const i = &b->k->inst[j];
    const int32_t v = i->a;
    return b->value[v].cls == SW__TILED && b->value[j].cls == SW__TILED && home(b, v, block) == block &&
           b->k->inst[v].kop != SW_K_REDUCE && !b->natural[block][v] && same_type(b, i) && contiguous(b, i, block) &&
           !in_place(b, block, v);
}

static void prepare_direct(sw__builder *b, int block, int32_t j)
{
    const sw__inst *const i = &b->k->inst[j];
    if (!direct(b, block, j)) return;
    sw__access *const a = new_access(b, i, block, SW__TILED);
    if (!a) return;
    memory_side(b, a, true);
    const uint16_t s = value_slot(b, block, i->a);
    if (b->st != SW_OK) return;
    emit(b, block, (sw__tinst){ .fn = sw__tile_bind_store, .d = s, .access = a, .len = SW__LEN_TILE, .name = "bind_store" });
}

static const sw__access *direct_access(const sw__builder *b, int block, uint16_t slot, int32_t buffer)
{
    const sw__block *const code = &b->p->block[block];
    for (size_t j = 0; j < code->n; j++) {
        const sw__tinst *const i = &code->inst[j];
        if (i->fn == sw__tile_bind_store && i->d == slot && i->access->buffer == buffer) return i->access;
    }
    return NULL;
}

static void emit_store(sw__builder *b, int block, int32_t j)
{
    const sw__inst *const i = &b->k->inst[j];
    const int len = length_in(block, block == SW__BLK_ONCE ? SW__UNI : b->value[j].cls == SW__COLS ? SW__TILED : b->value[j].cls);
    uint16_t s = operand(b, block, i->a, len, NULL);
    const sw_dtype memory = (sw_dtype)b->k->buffer[i->buffer].dtype, type = (sw_dtype)b->k->inst[i->a].dtype;
    if (b->st != SW_OK) return;
    const sw__access *const done = direct_access(b, block, s, i->buffer);
    if (done) {
        emit(b, block, (sw__tinst){ .fn = sw__tile_store_direct, .a = s, .access = done, .len = (uint8_t)len, .name = "stored" });
        return;
    }
    if (type != register_type(memory)) {
        const uint16_t d = new_slot(b, area_of(block), sw_dtype_size(register_type(memory)), len);
        emit_cast(b, block, d, register_type(memory), s, type, len);
        s = d;
    }
    sw__access *const a = new_access(b, i, block, b->value[j].cls);
    if (!a) return;
    memory_side(b, a, true);
    emit(b, block, (sw__tinst){ .fn = sw__tile_store, .a = s, .access = a, .len = (uint8_t)len, .name = "store" });
}

/* ---- blocks ---------------------------------------------------------------------------------------------------------------------------------------- */

static uint16_t emit_value(sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    switch (i->kop) {
    case SW_K_LOAD: emit_load(b, block, v); break;
    case SW_K_INDEX: emit_index(b, block, v); break;
    case SW_K_GATHER: emit_gather(b, block, v); break;
    case SW_K_RANDOM: emit_random(b, block, v); break;
    case SW_K_REDUCE: emit_reduce(b, block, v); break;
    case SW_K_CONST: {
        const uint64_t bits = constant_bits(i, (sw_dtype)i->dtype);
        b->natural[block][v] = constant_slot(b, &bits, value_size(b, v));
        break;
    }
    default: emit_calc(b, block, v); break;
    }
    return b->natural[block][v];
}

static void emit_block(sw__builder *b, int block)
{
    const int32_t n = b->k->n_insts;
    const bool tiles = block >= SW__BLK_PHASE && !in_row_block(block);
    for (int32_t j = 0; j < n && tiles; j++) {
        if (b->need[block][j] && b->k->inst[j].kop == SW_K_STORE) prepare_direct(b, block, j);
    }
    for (int32_t j = 0; j < n && b->st == SW_OK; j++) {
        if (b->need[block][j] && b->k->inst[j].kop != SW_K_STORE && b->value[j].pattern != SW__ABSORBED &&
            b->value[j].pattern != SW__BESIDE)
            emit_value(b, block, j);
    }
    for (int32_t j = 0; j < n && b->st == SW_OK; j++) {
        if (b->need[block][j] && b->k->inst[j].kop == SW_K_STORE) emit_store(b, block, j);
    }
}

sw_status sw__tile_code(sw__builder *b)
{
    new_slot(b, SW__AREA_NONE, 0, SW__LEN_ONE); /* slot 0: no slot */
    set_masks(b);
    set_classes(b);
    mark_all(b);
    combine(b);
    emit_block(b, SW__BLK_ONCE);
    emit_block(b, SW__BLK_COLS);
    for (int block = SW__BLK_PHASE; block < SW__BLK_MAX && b->st == SW_OK; block++) emit_block(b, block);
    if (b->st == SW_OK) emit_block(b, SW__BLK_POST);
    return b->st;
}
