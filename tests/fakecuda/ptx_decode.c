/* ptx_decode.c: one statement becomes one or a few instructions. What works lane by lane is looked up in the tables
 * by its name; setp, mov, carries and the like are put together of such operations. All else is ptx_decode_more.c's
 * or unknown. */
#include "ptx_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tables, by name ----------------------------------------------------------------------------------------- */

static unsigned hash(const char *s, size_t n)
{
    unsigned h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h;
}

static struct ptx_op_slot *slot(const ptx_reader *r, const char *name, size_t n)
{
    unsigned at = hash(name, n) % OP_SLOTS;
    while (r->ops[at].op &&
           (strncmp(r->ops[at].name, name, n) != 0 || (r->ops[at].name[n] != ' ' && r->ops[at].name[n])))
        at = (at + 1) % OP_SLOTS;
    return &r->ops[at];
}

bool ptx_ops_index(ptx_reader *r)
{
    r->ops = calloc(OP_SLOTS, sizeof *r->ops);
    if (!r->ops) {
        ptx_error(r, "out of memory");
        return false;
    }
    for (int t = 0; r->module->isa->tables[t]; t++)
        for (const ptx_op *op = r->module->isa->tables[t]; op->names; op++)
            for (const char *name = op->names; *name; name += *name == ' ') {
                const size_t n = strcspn(name, " ");
                *slot(r, name, n) = (struct ptx_op_slot){ op, name };
                name += n;
            }
    return true;
}

/* ---- operands and emission --------------------------------------------------------------------------------------- */

int32_t ptx_constant(ptx_reader *r, uint64_t bits, int bytes)
{
    if (bytes == 4) bits = (uint32_t)bits;
    for (int i = 0; i < r->n_constants; i++)
        if (i != r->dynamic && r->constants[i].bits == bits && r->constants[i].bytes == bytes)
            return r->constants[i].at | PTX_CONST;
    if (!ptx_grow(r, &r->constants, r->n_constants, sizeof *r->constants)) return 0;
    const int32_t at = (int32_t)ptx_take(&r->k->constant_bytes, (size_t)bytes * LANES, 64);
    r->constants[r->n_constants++] = (ptx_const){ bits, bytes, at };
    return at | PTX_CONST;
}

/* Dynamic shared memory begins where the static ends, which is known when the kernel is read. */
int32_t ptx_address_of(ptx_reader *r, const ptx_name *v, int64_t offset, int bytes)
{
    ptx_name *const own = &r->names[v - r->names];
    if (v->kind == NAME_DYNAMIC) {
        if (offset != 0) ptx_error(r, "dynamic shared memory with an offset outside of [ ]");
        if (r->dynamic >= 0) return r->constants[r->dynamic].at | PTX_CONST;
        if (!ptx_grow(r, &r->constants, r->n_constants, sizeof *r->constants)) return 0;
        const int32_t at = (int32_t)ptx_take(&r->k->constant_bytes, 8 * LANES, 64);
        r->dynamic = r->n_constants++;
        r->constants[r->dynamic] = (ptx_const){ 0, 8, at };
        return at | PTX_CONST;
    }
    if (v->space == PTX_SHARED && v->address == 0) /* the module's: each kernel that names it has its own */
        own->address = PTX_SHARED_AT + ptx_take(&r->k->shared_bytes, v->size, (size_t)v->bytes);
    return ptx_constant(r, own->address + (uint64_t)offset, bytes);
}

int32_t ptx_scratch(ptx_reader *r, int number, int bytes)
{
    int32_t *const at = &r->scratch[number * 2 + (bytes == 1)];
    if (*at == PTX_NONE) *at = ptx_register(r, bytes == 1 ? 1 : 8);
    return *at;
}

ptx_inst *ptx_emit(ptx_reader *r)
{
    static ptx_inst nowhere;
    if (r->failed || !ptx_grow(r, &r->k->code, r->k->n_code, sizeof *r->k->code)) return &nowhere;
    ptx_inst *const i = &r->k->code[r->k->n_code++];
    *i = (ptx_inst){ .guard = r->guard, .guard_not = r->guard_not, .line = r->mnemonic.line, .sig = "" };
    return i;
}

void ptx_emit_op(ptx_reader *r, const char *name, int32_t d, int32_t a, int32_t b, int32_t c)
{
    const ptx_op *const op = slot(r, name, strlen(name))->op;
    if (!op) {
        ptx_error(r, "unknown instruction '%.*s'", r->mnemonic.n, r->mnemonic.s);
        return;
    }
    ptx_inst *const i = ptx_emit(r);
    i->fn = op->fn, i->sig = op->sig;
    i->d = d, i->a = a, i->b = b, i->c = c;
}

bool ptx_want(ptx_reader *r, int least, int most)
{
    if (r->n_args < least || r->n_args > most)
        ptx_error(r, "'%.*s' with %d operands", r->mnemonic.n, r->mnemonic.s, r->n_args);
    return !r->failed;
}

static int width(char type)
{
    return type == 'p' ? 1 : type == 'h' ? 2 : type == 'd' || type == 'F' ? 8 : 4;
}

static int32_t number(ptx_reader *r, const ptx_arg *a, char type)
{
    uint64_t bits = a->bits;
    double value = 0;
    memcpy(&value, &bits, sizeof value);
    const float narrow = (float)value;
    const bool wide = a->real || a->digits == 16;
    if (type == 'f' && wide) {
        uint32_t b;
        memcpy(&b, &narrow, sizeof b);
        bits = b;
    } else if (type == 'F' ? !wide && !(bits == 0) : type == 'f' ? a->digits != 8 && bits != 0 : a->real) {
        ptx_error(r, "a number of another type than '%.*s' takes", r->mnemonic.n, r->mnemonic.s);
    }
    if (type == 'h') bits = (uint16_t)bits;
    if (type == 'p') bits = bits != 0;
    return ptx_constant(r, bits, type == 'h' ? 4 : width(type));
}

/* cvt, ld and st take wider registers than their types */
static bool fits(char type, int bytes)
{
    return type == 'x' ? bytes == 2 || bytes == 4 : bytes == width(type);
}

int32_t ptx_source(ptx_reader *r, const ptx_arg *a, char type)
{
    if (a->kind == ARG_NUMBER) return number(r, a, type == 'x' ? 'w' : type);
    if (a->kind == ARG_VARIABLE && a->variable->kind == NAME_DYNAMIC && type == 'w') {
        const int32_t t = ptx_scratch(r, 3, 8);
        ptx_emit_op(r, "$low.w", t, ptx_address_of(r, a->variable, a->offset, 8), 0, 0);
        return t;
    }
    if (a->kind == ARG_VARIABLE && (type == 'w' || type == 'd'))
        return ptx_address_of(r, a->variable, a->offset, width(type));
    if (a->kind != ARG_REG || !fits(type, a->bytes) || a->negated || a->n > 0)
        ptx_error(r, "'%.*s' does not take the operand '%.*s'", r->mnemonic.n, r->mnemonic.s, a->name.n, a->name.s);
    return a->at;
}

int32_t ptx_target(ptx_reader *r, const ptx_arg *a, char type)
{
    if (a->kind == ARG_REG && fits(type, a->bytes) && !a->negated && a->n == 0) return a->at;
    ptx_error(r, "'%.*s' does not give a '%.*s'", r->mnemonic.n, r->mnemonic.s, a->name.n, a->name.s);
    return 0;
}

/* ---- names: which parts choose the operation, which are done around it ------------------------------------------- */

static void split(ptx_reader *r, ptx_parts *p)
{
    const char *s = r->mnemonic.s, *const end = s + r->mnemonic.n;
    for (p->n = 0; s <= end && !r->failed; s++) {
        size_t n = 0;
        while (s + n < end && s[n] != '.') n++;
        if (p->n == MAX_PARTS || n >= PART) ptx_error(r, "unknown instruction '%.*s'", r->mnemonic.n, r->mnemonic.s);
        else snprintf(p->text[p->n++], PART, "%.*s", (int)n, s);
        s += n;
    }
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool real(const char *type)
{
    return is(type, "f32") || is(type, "f64");
}

typedef struct around { unsigned char flags, round; } around;

/* Whether a part is left out of the name; what it means goes to *x. */
static bool aside(const ptx_parts *p, const char *part, around *x)
{
    const bool cvt = is(p->text[0], "cvt");
    const char *const type = p->text[p->n - 1], *const to = cvt ? p->text[p->n - 2] : type;
    if (is(part, "rn") || is(part, "uni")) return true;
    if (is(part, "ftz")) {
        if (is(type, "f64") && !cvt) return false;
        x->flags |= PTX_FTZ;
        return true;
    }
    if (is(part, "sat")) {
        if (real(to)) x->flags |= PTX_SAT;
        return real(to) || (cvt && real(type));
    }
    if (is(part, "relu") && cvt) {
        x->flags |= PTX_RELU;
        return true;
    }
    static const char *const rounding[] = { "rz", "rm", "rp" }; /* as in rounded() of ptx_run.c */
    for (int k = 0; k < 3; k++)
        if (is(part, rounding[k]) && real(to)) {
            x->round = (unsigned char)(k + 1);
            return true;
        }
    return false;
}

static around name_of(ptx_reader *r, const ptx_parts *p, char *name, size_t n)
{
    around x = { 0, 0 };
    size_t used = (size_t)snprintf(name, n, "%s", p->text[0]);
    for (int k = 1; k < p->n; k++)
        if (!aside(p, p->text[k], &x) && used < n) used += (size_t)snprintf(name + used, n - used, ".%s", p->text[k]);
    if (used >= n) ptx_error(r, "unknown instruction '%.*s'", r->mnemonic.n, r->mnemonic.s);
    return x;
}

/* ---- lane by lane ------------------------------------------------------------------------------------------------ */

/* Of cvt: a 64-bit register for a narrower type. */
static int32_t narrow(ptx_reader *r, const ptx_arg *a, char type)
{
    if (a->kind != ARG_REG || a->bytes != 8 || (type != 'x' && type != 'w')) return ptx_source(r, a, type);
    const int32_t t = ptx_scratch(r, 0, 8);
    ptx_emit_op(r, "$low.w", t, a->at, 0, 0);
    return t;
}

static void decode_plain(ptx_reader *r, const ptx_parts *p)
{
    char name[64];
    const around x = name_of(r, p, name, sizeof name);
    const ptx_op *const op = r->failed ? NULL : slot(r, name, strlen(name))->op;
    if (!op) {
        ptx_error(r, "unknown instruction '%.*s'", r->mnemonic.n, r->mnemonic.s);
        return;
    }
    if (!ptx_want(r, (int)strlen(op->sig), (int)strlen(op->sig))) return;
    const bool cvt = is(p->text[0], "cvt");
    int32_t s[3] = { 0, 0, 0 };
    for (int k = 1; op->sig[k]; k++)
        s[k - 1] = cvt ? narrow(r, &r->args[k], op->sig[k]) : ptx_source(r, &r->args[k], op->sig[k]);
    const ptx_arg *const d = &r->args[0];
    const bool widen = cvt && d->kind == ARG_REG && d->bytes == 8 && (op->sig[0] == 'x' || op->sig[0] == 'w');
    const int32_t to = widen ? ptx_scratch(r, 1, 8) : ptx_target(r, d, op->sig[0]);
    ptx_emit_op(r, name, to, s[0], s[1], s[2]);
    if (r->failed) return;
    ptx_inst *const i = &r->k->code[r->k->n_code - 1];
    i->flags = x.flags, i->round = x.round;
    if (widen) ptx_emit_op(r, p->text[p->n - 2][0] == 's' ? "cvt.s64.s32" : "cvt.u64.u32", d->at, to, 0, 0);
}

/* ---- put together of others -------------------------------------------------------------------------------------- */

/* mov.b64 {a, b}, x and mov.b64 x, {a, b}; also of 16 bits, and of four times 16 */
static void decode_pack(ptx_reader *r)
{
    const ptx_arg *const d = &r->args[0], *const s = &r->args[1];
    const ptx_arg *const parts = d->kind == ARG_VECTOR ? d : s, *const whole = d->kind == ARG_VECTOR ? s : d;
    const int bytes = whole->bytes / (parts->n ? parts->n : 1);
    const bool ok = whole->kind == ARG_REG && (parts->n == 2 || (parts->n == 4 && whole->bytes == 8)) && bytes >= 2;
    for (int k = 0; ok && k < parts->n; k++)
        if (parts->v_bytes[k] > 0 && parts->v_bytes[k] != bytes) ptx_error(r, "{ } of another width than the operand");
    if (!ok) ptx_error(r, "mov with { } of this kind");
    if (r->failed) return;
    int32_t v[4] = { 0 }, half[2] = { ptx_scratch(r, 0, 8), ptx_scratch(r, 1, 8) };
    for (int k = 0; k < parts->n; k++)
        v[k] = parts->v_bytes[k] == 0 ? ptx_constant(r, bytes == 2 ? (uint16_t)parts->v_bits[k] : parts->v_bits[k], 4)
                                      : parts->v[k];
    if (parts == s) {
        if (parts->n == 4) {
            for (int k = 0; k < 2; k++) ptx_emit_op(r, "$pack.h", half[k], v[2 * k], v[2 * k + 1], 0);
            ptx_emit_op(r, "$pack.w", whole->at, half[0], half[1], 0);
        } else {
            ptx_emit_op(r, bytes == 2 ? "$pack.h" : "$pack.w", whole->at, v[0], v[1], 0);
        }
        return;
    }
    int32_t from = whole->at;
    for (int k = 0; k < parts->n; k++) {
        if (parts->n == 4 && k % 2 == 0) {
            from = half[0];
            ptx_emit_op(r, k == 0 ? "$low.w" : "$high.w", from, whole->at, 0, 0);
        }
        if (v[k] == PTX_NONE) continue;
        const char *const name = bytes == 2 ? (k % 2 ? "$high.h" : "$low.h") : k % 2 ? "$high.w" : "$low.w";
        ptx_emit_op(r, name, v[k], from, 0, 0);
    }
}

/* setp.lt.and.f32 p|q, a, b, c: p = (a < b) and c, q = not (a < b) and c */
static void decode_setp(ptx_reader *r, const ptx_parts *p, int32_t to, int32_t second, int first_arg)
{
    static const char *const joins[] = { "and", "or", "xor" };
    ptx_parts q = { .n = 0 };
    const char *join = NULL;
    for (int k = 0; k < p->n; k++) {
        for (int j = 0; j < 3 && k > 1; j++)
            if (is(p->text[k], joins[j])) join = joins[j];
        if (!join || !is(p->text[k], join)) memcpy(q.text[q.n++], p->text[k], PART);
    }
    char name[64], joined[16] = "";
    const around x = name_of(r, &q, name, sizeof name);
    const ptx_op *const op = slot(r, name, strlen(name))->op;
    if (!op) {
        ptx_error(r, "unknown instruction '%.*s'", r->mnemonic.n, r->mnemonic.s);
        return;
    }
    if (!ptx_want(r, first_arg + 2 + (join != NULL), first_arg + 2 + (join != NULL))) return;
    const int32_t a = ptx_source(r, &r->args[first_arg], op->sig[1]),
                  b = ptx_source(r, &r->args[first_arg + 1], op->sig[2]);
    const bool simple = !join && second == PTX_NONE && to != PTX_NONE;
    const int32_t t = simple ? to : ptx_scratch(r, 0, 1), not_t = ptx_scratch(r, 1, 1), third = ptx_scratch(r, 2, 1);
    ptx_emit_op(r, name, t, a, b, 0);
    if (!r->failed) r->k->code[r->k->n_code - 1].flags = x.flags;
    if (simple || r->failed) return;
    if (r->guard != PTX_NONE && (r->guard == to || r->guard == second)) ptx_error(r, "setp of its own guard");
    ptx_emit_op(r, "not.pred", not_t, t, 0, 0);
    int32_t c = 0;
    if (join) {
        ptx_arg plain = r->args[first_arg + 2];
        plain.negated = false;
        snprintf(joined, sizeof joined, "%s.pred", join);
        ptx_emit_op(r, r->args[first_arg + 2].negated ? "not.pred" : "mov.pred", third, ptx_source(r, &plain, 'p'), 0,
                    0);
        c = third;
    }
    if (to != PTX_NONE) ptx_emit_op(r, join ? joined : "mov.pred", to, t, c, 0);
    if (second != PTX_NONE) ptx_emit_op(r, join ? joined : "mov.pred", second, not_t, c, 0);
}

/* set.gt.u32.f32: ones, or 1 for .f32 */
static bool decode_set(ptx_reader *r, const ptx_parts *p)
{
    ptx_parts q = *p;
    if (!is(p->text[0], "set") || p->n < 4 || strstr(p->text[p->n - 1], "16x2") || strstr(p->text[p->n - 2], "16"))
        return false;
    const char *const to = p->text[p->n - 2];
    memcpy(q.text[p->n - 2], p->text[p->n - 1], PART);
    snprintf(q.text[0], PART, "setp");
    q.n--;
    const int32_t t = ptx_scratch(r, 3, 1);
    decode_setp(r, &q, t, PTX_NONE, 1);
    if (!is(to, "u32") && !is(to, "s32") && !is(to, "f32")) ptx_error(r, "set that gives '%s'", to);
    if (r->failed) return true;
    const int32_t yes = ptx_constant(r, is(to, "f32") ? 0x3F800000u : UINT32_MAX, 4);
    ptx_emit_op(r, "selp.b32", ptx_target(r, &r->args[0], 'w'), yes, ptx_constant(r, 0, 4), t);
    return true;
}

static bool has(const ptx_parts *p, const char *part)
{
    for (int k = 1; k < p->n; k++)
        if (is(p->text[k], part)) return true;
    return false;
}

/* add.cc, addc, addc.cc, sub.cc, subc, subc.cc, mad.lo.cc, madc.hi, …: the carry is a predicate of ours */
static bool decode_carry(ptx_reader *r, const ptx_parts *p)
{
    static const struct { const char *name; bool minus, product, in; } forms[] = {
        { "add", false, false, false }, { "addc", false, false, true }, { "sub", true, false, false },
        { "subc", true, false, true },  { "mad", false, true, false },  { "madc", false, true, true } };
    const char *const form = p->text[p->n - 1];
    const bool wide = strstr(form, "64") != NULL, out = has(p, "cc"), high = has(p, "hi");
    const char type = wide ? 'd' : 'w';
    size_t k = 0;
    while (k < sizeof forms / sizeof *forms && (!is(p->text[0], forms[k].name) || (!forms[k].in && !out))) k++;
    if (k == sizeof forms / sizeof *forms) return false;
    if (p->n != 2 + out + forms[k].product || (forms[k].product && !high && !has(p, "lo"))) return false;
    if (!ptx_want(r, 3 + forms[k].product, 3 + forms[k].product)) return true;
    if (r->carry == PTX_NONE) r->carry = ptx_register(r, 1);
    int32_t a = ptx_source(r, &r->args[1], type), b = ptx_source(r, &r->args[2], type);
    char name[16];
    if (forms[k].product) {
        const int32_t product = ptx_scratch(r, 1, 8);
        snprintf(name, sizeof name, "mul.%s.%s", high ? "hi" : "lo", form);
        ptx_emit_op(r, name, product, a, b, 0);
        a = product, b = ptx_source(r, &r->args[3], type);
    }
    const int32_t c = forms[k].in ? r->carry : ptx_constant(r, 0, 1), t = ptx_scratch(r, 0, 8),
                  next = ptx_scratch(r, 0, 1);
    snprintf(name, sizeof name, "%s.%c", forms[k].minus ? "$borrow" : "$carryc", type);
    if (out) ptx_emit_op(r, name, next, a, b, c);
    snprintf(name, sizeof name, "%s.%c", forms[k].minus ? "$subc" : "$addc", type);
    ptx_emit_op(r, name, t, a, b, c);
    ptx_emit_op(r, wide ? "mov.b64" : "mov.b32", ptx_target(r, &r->args[0], type), t, 0, 0);
    if (out) ptx_emit_op(r, "mov.pred", r->carry, next, 0, 0);
    return true;
}

static void decode_bfi(ptx_reader *r, const ptx_parts *p)
{
    const bool wide = is(p->text[1], "b64");
    const char type = wide ? 'd' : 'w';
    if (!ptx_want(r, 5, 5)) return;
    const int32_t where = ptx_scratch(r, 0, 8);
    const int32_t a = ptx_source(r, &r->args[1], type), b = ptx_source(r, &r->args[2], type);
    ptx_emit_op(r, "$place", where, ptx_source(r, &r->args[3], 'w'), ptx_source(r, &r->args[4], 'w'), 0);
    ptx_emit_op(r, wide ? "$bfi.b64" : "$bfi.b32", ptx_target(r, &r->args[0], type), a, b, where);
}

static void decode_lop3(ptx_reader *r)
{
    if (!ptx_want(r, 5, 5)) return;
    const int32_t pair = ptx_scratch(r, 0, 8);
    ptx_emit_op(r, "$pack.w", pair, ptx_source(r, &r->args[1], 'w'), ptx_source(r, &r->args[2], 'w'), 0);
    ptx_emit_op(r, "$lop3", ptx_target(r, &r->args[0], 'w'), pair, ptx_source(r, &r->args[3], 'w'),
                ptx_source(r, &r->args[4], 'w'));
}

void ptx_decode(ptx_reader *r)
{
    ptx_parts p;
    split(r, &p);
    const char *const op = p.text[0];
    const bool vector = r->n_args == 2 && (r->args[0].kind == ARG_VECTOR || r->args[1].kind == ARG_VECTOR);
    if (r->failed) return;
    if (is(op, "mov") && vector) decode_pack(r);
    else if (is(op, "setp") && p.n >= 3 && r->n_args > 0 && r->args[0].bytes == 1)
        decode_setp(r, &p, r->args[0].at, r->args[0].n > 0 ? r->args[0].v[0] : PTX_NONE, 1);
    else if (is(op, "bfi") && p.n == 2) decode_bfi(r, &p);
    else if (is(op, "lop3") && p.n == 2) decode_lop3(r);
    else if (!decode_set(r, &p) && !decode_carry(r, &p) && !ptx_decode_memory(r, &p) && !ptx_decode_control(r, &p))
        decode_plain(r, &p);
}
