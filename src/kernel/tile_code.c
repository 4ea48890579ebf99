/* tile_code.c: writes the bytecode of a tile program: slots and operands, accesses, reductions, stores, block by block.
 * Third step of compiling (tile_build.h). */
#include "kernel/tile_build.h"

/* ---- slots and instructions -------------------------------------------------------------------------------------- */

static uint16_t new_slot(sw__builder *b, int area, size_t size, int len)
{
    sw__tile_program *const p = b->p;
    if (p->n_slots >= UINT16_MAX) {
        sw__refuse(b, 0, "too many values for the tile interpreter");
        return 0;
    }
    if (sw__grow(&p->slot, &p->cap_slots, p->n_slots + 1, sizeof *p->slot, "a tile program") != SW_OK) {
        b->st = SW_ERR_MEMORY;
        return 0;
    }
    p->slot[p->n_slots] = (sw__slot){ .area = (uint8_t)area, .size = (uint8_t)size, .len = (uint8_t)len };
    return (uint16_t)p->n_slots++;
}

void sw__tile_emit(sw__builder *b, int block, sw__tinst i)
{
    sw__block *const code = &b->p->block[block];
    if (b->st != SW_OK) return;
    if (!i.fn) {
        b->st = sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s': the tile interpreter has no %s for this type", b->k->name,
                         i.name);
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
    /* What a masked load has outside is a double for every type. */
    if (i->kop == SW_K_CONST && !sw__dtype_is_float(t)) sw__convert(&bits, t, &i->ivalue, SW_I64, 1);
    else sw__convert(&bits, t, &i->value, SW_F64, 1);
    return bits;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static uint16_t emit_value(sw__builder *b, int block, int32_t v);

static uint16_t natural(sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    if (i->kop == SW_K_REDUCE && b->p->mode == SW__MODE_COLS) return b->natural[SW__BLK_POST][v];
    const int h = i->kop == SW_K_REDUCE ? sw__block_of_phase(b, b->value[v].phase) : sw__home(b, v, block);
    return b->natural[h][v] ? b->natural[h][v] : emit_value(b, h, v);
}

/* The operand as a vector of `len`, or (scalar != NULL) as it is if that is a scalar; then *scalar is set. */
uint16_t sw__operand(sw__builder *b, int block, int32_t v, int len, bool *scalar)
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
    const int at = have == SW__LEN_ONE && p->slot[s].area != SW__AREA_ROW && block != SW__BLK_POST ?
        SW__BLK_COLS : block;
    if (b->spread[at][v]) return b->spread[at][v];
    const size_t size = p->slot[s].size;
    /* A tile has at least as many elements as rows, unless it reduces over nothing: then only rows are left to read it. */
    const int of_tile = p->cols > 0 ? SW__LEN_TILE : SW__LEN_ROWS, to = block == SW__BLK_POST ? SW__LEN_COLS : of_tile;
    const uint16_t d = new_slot(b, SW__AREA_THREAD, size, to);
    const sw__tfn *const fn = single ? b->table.move->splat : b->table.move->expand;
    sw__tile_emit(b, at, (sw__tinst){ .fn = fn[size], .d = d, .a = s, .len = (uint8_t)to, .name = single ?
                                 "splat" : "expand" });
    b->spread[at][v] = d;
    return d;
}

/* ---- accesses ---------------------------------------------------------------------------------------------------- */

static sw_dtype register_type(sw_dtype memory) { return memory == SW_F16 || memory == SW_BF16 ? SW_F32 : memory; }

static sw__access *new_access(sw__builder *b, const sw__inst *i, int block, int cls)
{
    sw__tile_program *const p = b->p;
    sw__access *const a = sw__arena_alloc(&p->arena, sizeof *a);
    if (!a) {
        sw__builder_memory(b, "a tile program");
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
    return b->n_stores > 1 && sw__stored(b, v);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

uint16_t sw__value_slot(sw__builder *b, int block, int32_t v)
{
    if (b->natural[block][v]) return b->natural[block][v]; /* a direct store has made it */
    const uint16_t s = new_slot(b, area_of(block), value_size(b, v), length_in(block, b->value[v].cls));
    b->natural[block][v] = s;
    return s;
}

static void emit_cast(sw__builder *b, int block, uint16_t d, sw_dtype to, uint16_t a, sw_dtype from, int len)
{
    sw__tile_emit(b, block, (sw__tinst){ .fn = b->table.calc->cast[to][from], .d = d, .a = a, .len = (uint8_t)len,
                                    .name = "cast" });
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
        const uint16_t s = sw__value_slot(b, block, v);
        if (b->st != SW_OK) return;
        b->p->slot[s].area = SW__AREA_NONE;
        sw__tile_emit(b, block, (sw__tinst){ .fn = sw__tile_bind, .d = s, .access = a, .len = (uint8_t)len,
                                        .name = "bind" });
        return;
    }
    const uint16_t s = type == memory ? sw__value_slot(b, block, v) : new_slot(b, area_of(block),
                                                                               sw_dtype_size(memory), len);
    sw__tile_emit(b, block, (sw__tinst){ .fn = sw__tile_load, .d = s, .access = a, .len = (uint8_t)len, .name = "load" });
    if (type != memory) emit_cast(b, block, sw__value_slot(b, block, v), type, s, memory, len);
}

static void emit_index(sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    sw__access *const a = new_access(b, i, block, b->value[v].cls);
    if (!a) return;
    a->reg_size = (uint32_t)value_size(b, v);
    a->iota = b->table.move->iota[i->dtype];
    sw__tile_emit(b, block, (sw__tinst){ .fn = sw__tile_load, .d = sw__value_slot(b, block, v), .access = a,
                                .len = (uint8_t)length_in(block, b->value[v].cls), .name = "index" });
}

/* An operand that must be i64 (an index), as a vector of `len` (or as it is). */
static uint16_t index_operand(sw__builder *b, int block, int32_t v, int len)
{
    const sw_dtype type = (sw_dtype)b->k->inst[v].dtype;
    if (type == SW_I64) return sw__operand(b, block, v, len, NULL);
    if (b->index64[block][v]) return b->index64[block][v];
    const uint16_t s = sw__operand(b, block, v, len, NULL);
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
    const int index_block = a->rowwise ? sw__home(b, i->a, block) : block;
    const uint16_t x = index_operand(b, index_block, i->a, index_len);
    const uint16_t s = type == memory ? sw__value_slot(b, block, v) : new_slot(b, area_of(block),
                                                                               sw_dtype_size(memory), len);
    sw__tile_emit(b, block, (sw__tinst){ .fn = sw__tile_gather, .d = s, .a = x, .access = a, .len = (uint8_t)len,
                                    .name = "gather" });
    if (type != memory) emit_cast(b, block, sw__value_slot(b, block, v), type, s, memory, len);
}

static void emit_random(sw__builder *b, int block, int32_t v)
{
    const sw__inst *const i = &b->k->inst[v];
    const int len = length_in(block, b->value[v].cls);
    const int64_t zero = 0;
    if (b->k->inst[i->a].dtype != SW_I64 || i->dtype != SW_U32 ||
        (i->b >= 0 && (b->k->inst[i->b].dtype != SW_I64 || b->value[i->b].cls != SW__UNI))) {
        sw__refuse(b, v, "random takes an i64 element and one i64 counter for all, and gives u32");
        return;
    }
    sw__access *const a = sw__arena_alloc(&b->p->arena, sizeof *a);
    if (!a) {
        sw__builder_memory(b, "a tile program");
        return;
    }
    a->key[0] = (uint32_t)i->ivalue;
    a->key[1] = i->stream;
    const uint16_t element = sw__operand(b, block, i->a, len, NULL);
    const uint16_t count = i->b >= 0 ? natural(b, block, i->b) : constant_slot(b, &zero, sizeof zero);
    sw__tile_emit(b, block, (sw__tinst){ .fn = b->table.calc->random, .d = sw__value_slot(b, block, v), .a = element,
                                    .b = count,
                                .access = a, .len = (uint8_t)len, .name = "random" });
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

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
        sw__refuse(b, v, "too many reductions for the tile interpreter");
        return;
    }
    if (sw__grow(&p->reduction, &p->cap_reductions, p->n_reductions + 1, sizeof *p->reduction,
                 "a tile program") != SW_OK) {
        b->st = SW_ERR_MEMORY;
        return;
    }
    const uint16_t s = reduction_slot(b, v);
    b->natural[p->mode == SW__MODE_COLS ? SW__BLK_POST : block][v] = s;
    p->reduction[p->n_reductions] = (sw__reduction){ .op = (uint16_t)op, .dtype = i->dtype, .d = s,
                                                     .phase = b->value[v].phase };
    sw__tinst t = { .d = s, .len = SW__LEN_TILE, .index = (uint8_t)p->n_reductions++,
                    .name = sw__op_table[i->op].name };
    const bool dot = b->value[v].pattern == SW__DOT;
    const sw__inst *const mul = &b->k->inst[i->a];
    t.a = sw__operand(b, block, dot ? mul->a : i->a, SW__LEN_TILE, NULL);
    if (dot) {
        t.b = sw__operand(b, block, mul->b, SW__LEN_TILE, NULL);
        t.name = "dot";
    }
    if (p->mode == SW__MODE_ROWS) t.fn = dot ? table->dot_rows : table->rows[op][i->dtype];
    else if (p->mode != SW__MODE_COLS) t.fn = dot ? table->dot_total : table->total[op][i->dtype];
    else if (i->op == SW_OP_REDUCE_SUM && i->dtype == SW_F32) t.fn = dot ? table->dot_cols : table->fast_cols_sum;
    else t.fn = table->cols[op][i->dtype];
    if (p->mode != SW__MODE_ROWS) t.d = 0;
    sw__tile_emit(b, block, t);
}

/* ---- stores ------------------------------------------------------------------------------------------------------ */

static bool same_type(const sw__builder *b, const sw__inst *store)
{
    return b->k->inst[store->a].dtype == b->k->buffer[store->buffer].dtype;
}

/* The value can be computed right into the memory where it is stored. */
static bool direct(const sw__builder *b, int block, int32_t j)
{
    const sw__inst *const i = &b->k->inst[j];
    const int32_t v = i->a;
    return b->value[v].cls == SW__TILED && b->value[j].cls == SW__TILED && sw__home(b, v, block) == block &&
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
    const uint16_t s = sw__value_slot(b, block, i->a);
    if (b->st != SW_OK) return;
    sw__tile_emit(b, block, (sw__tinst){ .fn = sw__tile_bind_store, .d = s, .access = a, .len = SW__LEN_TILE,
                                    .name = "bind_store" });
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
    const int len = length_in(block, block == SW__BLK_ONCE ? SW__UNI : b->value[j].cls == SW__COLS ?
                              SW__TILED : b->value[j].cls);
    uint16_t s = sw__operand(b, block, i->a, len, NULL);
    const sw_dtype memory = (sw_dtype)b->k->buffer[i->buffer].dtype, type = (sw_dtype)b->k->inst[i->a].dtype;
    if (b->st != SW_OK) return;
    const sw__access *const done = direct_access(b, block, s, i->buffer);
    if (done) {
        sw__tile_emit(b, block, (sw__tinst){ .fn = sw__tile_store_direct, .a = s, .access = done, .len = (uint8_t)len,
                                        .name = "stored" });
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
    sw__tile_emit(b, block, (sw__tinst){ .fn = sw__tile_store, .a = s, .access = a, .len = (uint8_t)len, .name = "store" });
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

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
    default: sw__emit_calc(b, block, v, length_in(block, b->value[v].cls)); break;
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
    emit_block(b, SW__BLK_ONCE);
    emit_block(b, SW__BLK_COLS);
    for (int block = SW__BLK_PHASE; block < SW__BLK_MAX && b->st == SW_OK; block++) emit_block(b, block);
    if (b->st == SW_OK) emit_block(b, SW__BLK_POST);
    return b->st;
}
