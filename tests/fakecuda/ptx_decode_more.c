/* ptx_decode_more.c: the statements that are not lane by lane: loads, stores and atomics, jumps, barriers, exchanges
 * within a warp. Tables say which parts of their names choose what; a part that is in no table is an error. */
#include "ptx_inner.h"

#include <stdio.h>
#include <string.h>

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool unknown(ptx_reader *r)
{
    ptx_error(r, "unknown instruction '%.*s'", r->mnemonic.n, r->mnemonic.s);
    return true;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static const struct { const char *name; unsigned char bytes, is_signed; } types[] = {
    { "b8", 1, 0 }, { "u8", 1, 0 }, { "s8", 1, 1 }, { "b16", 2, 0 }, { "u16", 2, 0 }, { "s16", 2, 1 }, { "f16", 2, 0 },
    { "bf16", 2, 0 }, { "b32", 4, 0 }, { "u32", 4, 0 }, { "s32", 4, 1 }, { "f32", 4, 0 }, { "f16x2", 4, 0 },
    { "bf16x2", 4, 0 }, { "b64", 8, 0 }, { "u64", 8, 0 }, { "s64", 8, 1 }, { "f64", 8, 0 } };
static const struct { const char *name; unsigned char space; } spaces[] = {
    { "global", PTX_GLOBAL }, { "const", PTX_GLOBAL }, { "shared", PTX_SHARED }, { "shared::cta", PTX_SHARED },
    { "local", PTX_LOCAL }, { "param", PTX_PARAM }, { "param::entry", PTX_PARAM }, { "param::func", PTX_PARAM } };
/* which cache, which scope, which order: all accesses are in order here */
enum { ORDERED = 6 };
static const char *const hints[] = { "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio",  "weak",
                                     "sys",      "gpu",     "cluster", "cta",     "ca",      "cg",    "cs",
                                     "lu",       "cv",      "wb",      "wt",      "nc",      "noftz", "unified" };

static bool hint(const char *part)
{
    for (size_t k = 0; k < sizeof hints / sizeof *hints; k++)
        if (is(part, hints[k])) return true;
    return strncmp(part, "L1::", 4) == 0 || strncmp(part, "L2::", 4) == 0;
}

/* Reads .space, .v4, .type and hints off the name into the instruction; other: what is none of these (an atomic's
 * operation). */
static bool read_name(const ptx_parts *p, ptx_inst *i, const char **other, const char **type)
{
    i->space = PTX_GENERIC, i->n = 1;
    *other = NULL, *type = NULL;
    for (int k = 1; k < p->n; k++) {
        const char *const part = p->text[k];
        bool known = hint(part);
        for (int h = 0; h < ORDERED; h++) i->flags |= is(part, hints[h]); /* no race, whatever it meets */
        for (size_t t = 0; t < sizeof spaces / sizeof *spaces; t++)
            if (is(part, spaces[t].name)) i->space = spaces[t].space, known = true;
        for (size_t t = 0; t < sizeof types / sizeof *types && k == p->n - 1; t++)
            if (is(part, types[t].name)) {
                i->bytes = types[t].bytes, i->is_signed = types[t].is_signed, known = true;
                *type = part;
            }
        if (is(part, "v2") || is(part, "v4") || is(part, "v8")) i->n = (unsigned char)(part[1] - '0'), known = true;
        if (!known && *other) return false;
        if (!known) *other = part;
    }
    return *type != NULL && i->bytes * i->n <= 32;
}

static void read_address(ptx_reader *r, ptx_inst *i, const ptx_arg *a)
{
    if (a->kind != ARG_ADDRESS) {
        ptx_error(r, "'%.*s' wants an address in [ ]", r->mnemonic.n, r->mnemonic.s);
    } else if (a->negated) { /* a register */
        if (a->bytes != 4 && a->bytes != 8) ptx_error(r, "an address in a register of %d bytes", a->bytes);
        i->a = a->at, i->wide = a->bytes == 8, i->offset = a->offset;
    } else {
        const ptx_name *const v = a->variable;
        if (i->space == PTX_PARAM && v && v->space == PTX_LOCAL) i->space = PTX_LOCAL;
        if (i->space == PTX_GENERIC && v && v->space == PTX_LOCAL)
            ptx_error(r, "a local variable by a generic address");
        if (v && i->space != PTX_GENERIC && i->space != v->space)
            ptx_error(r, "'%.*s' is elsewhere", a->name.n, a->name.s);
        i->a = v ? ptx_address_of(r, v, 0, 8) : ptx_constant(r, 0, 8);
        i->wide = true, i->offset = a->offset;
        i->mode = i->space == PTX_PARAM;
    }
}

static void note(ptx_reader *r, ptx_inst *i)
{
    i->number = r->k->n_memory++;
    int *const granule = i->space == PTX_SHARED ? &r->k->granule_shared : &r->k->granule_global;
    const bool seen = i->space <= PTX_SHARED || i->space == PTX_GENERIC;
    if (seen && i->bytes < *granule) *granule = i->bytes;
    if (i->space == PTX_GENERIC && i->bytes < r->k->granule_shared) r->k->granule_shared = i->bytes;
}

/* The registers of a load or the values of a store: v[k]. bytes[k]: of each register. */
static void read_values(ptx_reader *r, ptx_inst *i, const ptx_arg *a, int *bytes)
{
    const int n = a->kind == ARG_VECTOR ? a->n : 1;
    if (n != i->n) ptx_error(r, "'%.*s' with %d values", r->mnemonic.n, r->mnemonic.s, n);
    for (int k = 0; k < n && !r->failed; k++) {
        const bool one = a->kind != ARG_VECTOR, reg = a->kind == ARG_REG && !a->negated && a->n == 0;
        bytes[k] = one ? (reg ? a->bytes : a->kind == ARG_SINK ? -1 : 0) : a->v_bytes[k];
        i->v[k] = one ? a->at : a->v[k];
        if (one && bytes[k] == 0) i->v[k] = ptx_source(r, a, i->bytes == 8 ? 'd' : i->bytes == 4 ? 'w' : 'h');
        else if (bytes[k] == 0) i->v[k] = ptx_constant(r, a->v_bits[k], i->bytes == 8 ? 8 : 4);
        else if (bytes[k] > 0 && (bytes[k] < i->bytes || bytes[k] == 1))
            ptx_error(r, "a register narrower than its value");
        else if (bytes[k] == -1) i->v[k] = PTX_NONE;
    }
}

static bool decode_load(ptx_reader *r, const ptx_parts *p)
{
    const char *other, *type;
    int bytes[8] = { 0 };
    ptx_inst i = { 0 };
    if (!read_name(p, &i, &other, &type) || other || !ptx_want(r, 2, 3)) return unknown(r);
    read_values(r, &i, &r->args[0], bytes);
    read_address(r, &i, &r->args[1]);
    if (r->n_args == 3) return unknown(r); /* a cache policy */
    for (int k = 0; k < i.n; k++)
        if (bytes[k] == 8 && i.bytes < 8) i.v[k] = ptx_scratch(r, k % 4, 8);
    if (i.n > 4 && bytes[4] == 8 && i.bytes < 8) return unknown(r);
    note(r, &i);
    ptx_inst *const out = ptx_emit(r);
    i.guard = out->guard, i.guard_not = out->guard_not, i.line = out->line, i.sig = "", i.exec = ptx_load_inst;
    *out = i;
    const ptx_arg *const d = &r->args[0];
    for (int k = 0; k < i.n; k++)
        if (bytes[k] == 8 && i.bytes < 8)
            ptx_emit_op(r, i.is_signed ? "cvt.s64.s32" : "cvt.u64.u32", d->kind == ARG_VECTOR ? d->v[k] : d->at, i.v[k],
                        0, 0);
    return true;
}

static bool decode_store(ptx_reader *r, const ptx_parts *p)
{
    const char *other, *type;
    int bytes[8] = { 0 };
    ptx_inst i = { 0 };
    if (!read_name(p, &i, &other, &type) || other || !ptx_want(r, 2, 2)) return unknown(r);
    read_address(r, &i, &r->args[0]);
    read_values(r, &i, &r->args[1], bytes);
    for (int k = 0; k < i.n && !r->failed; k++) {
        if (i.v[k] == PTX_NONE) ptx_error(r, "a store of '_'");
        if (bytes[k] != 8 || i.bytes == 8) continue;
        const int32_t t = ptx_scratch(r, k % 4, 8);
        ptx_emit_op(r, "$low.w", t, i.v[k], 0, 0);
        i.v[k] = t;
    }
    if (i.space == PTX_PARAM) ptx_error(r, "a store into the kernel's parameters");
    note(r, &i);
    ptx_inst *const out = ptx_emit(r);
    i.guard = out->guard, i.guard_not = out->guard_not, i.line = out->line, i.sig = "", i.exec = ptx_store_inst;
    *out = i;
    return true;
}

static bool decode_atomic(ptx_reader *r, const ptx_parts *p)
{
    const bool red = is(p->text[0], "red");
    const char *other, *type;
    ptx_inst i = { 0 };
    if (!read_name(p, &i, &other, &type) || !other || i.n != 1) return unknown(r);
    const bool cas = is(other, "cas");
    if (!ptx_want(r, (red ? 2 : 3) + cas, (red ? 2 : 3) + cas)) return true;
    i.atomic = ptx_atomic_find(other, type);
    if (!i.atomic || (red && (cas || is(other, "exch")))) return unknown(r);
    const char width = i.bytes == 8 ? 'd' : i.bytes == 4 ? 'w' : 'h';
    const ptx_arg *const a = &r->args[red ? 0 : 1];
    i.d = red || r->args[0].kind == ARG_SINK ? PTX_NONE : ptx_target(r, &r->args[0], width);
    read_address(r, &i, a);
    const bool single = is(type, "f32"), twice = is(type, "f64");
    i.b = ptx_source(r, a + 1, single ? 'f' : twice ? 'F' : width);
    i.c = cas ? ptx_source(r, a + 2, width) : 0;
    if (i.space == PTX_LOCAL || i.space == PTX_PARAM) return unknown(r);
    note(r, &i);
    ptx_inst *const out = ptx_emit(r);
    i.guard = out->guard, i.guard_not = out->guard_not, i.line = out->line, i.sig = "", i.exec = ptx_atomic_inst;
    *out = i;
    return true;
}

bool ptx_decode_memory(ptx_reader *r, const ptx_parts *p)
{
    static const struct { const char *name; bool (*decode)(ptx_reader *r, const ptx_parts *p); } forms[] = {
        { "ld", decode_load }, { "ldu", decode_load }, { "st", decode_store }, { "atom", decode_atomic },
        { "red", decode_atomic } };
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++)
        if (is(p->text[0], forms[k].name)) return forms[k].decode(r, p);
    return false;
}

/* ---- control ----------------------------------------------------------------------------------------------------- */

static ptx_inst *emit(ptx_reader *r, ptx_exec *exec)
{
    ptx_inst *const i = ptx_emit(r);
    i->exec = exec;
    return i;
}

static void decode_branch(ptx_reader *r, const ptx_parts *p)
{
    const bool indexed = is(p->text[0], "brx");
    if (indexed ? p->n < 2 || !is(p->text[1], "idx") : p->n > 2 || (p->n == 2 && !is(p->text[1], "uni"))) unknown(r);
    if (!ptx_want(r, indexed ? 2 : 1, indexed ? 2 : 1)) return;
    const ptx_arg *const to = &r->args[r->n_args - 1];
    const int32_t index = indexed ? ptx_source(r, &r->args[0], 'w') : 0;
    if (to->kind != ARG_LABEL) ptx_error(r, "a label expected");
    emit(r, indexed ? ptx_branch_indexed : ptx_branch)->a = index;
    if (!r->failed) ptx_jump(r, to->name, r->k->n_code - 1);
}

static void decode_return(ptx_reader *r, const ptx_parts *p)
{
    if (p->n > 2 || (p->n == 2 && !is(p->text[1], "uni"))) unknown(r);
    if (!ptx_want(r, 0, 0)) return;
    const bool inner = r->calls > 0 && is(p->text[0], "ret");
    emit(r, inner ? ptx_branch : ptx_exit);
    if (inner && !r->failed) ptx_return(r, r->k->n_code - 1);
}

enum { SYNC, ARRIVE, REDUCE };
/* bar{.cta}.sync a{, n}; bar.arrive a, n; bar.red.popc.u32 d, a{, n}, {!}p; barrier… alike; bar.warp.sync mask */
static void decode_barrier(ptx_reader *r, const ptx_parts *p)
{
    int k = 1 + (p->n > 1 && is(p->text[1], "cta"));
    const char *const what = k < p->n ? p->text[k] : "";
    if (is(what, "warp")) {
        if (k + 2 != p->n || !is(p->text[k + 1], "sync") || !ptx_want(r, 1, 1)) {
            unknown(r);
            return;
        }
        const int32_t members = ptx_source(r, &r->args[0], 'w');
        emit(r, ptx_warp_sync)->b = members;
        return;
    }
    const int form = is(what, "sync") ? SYNC : is(what, "arrive") ? ARRIVE : is(what, "red") ? REDUCE : -1;
    int mode = 0;
    for (k++; k < p->n; k++) {
        if (is(p->text[k], "aligned") || is(p->text[k], "pred") || is(p->text[k], "u32")) continue;
        mode = is(p->text[k], "popc") ? 1 : is(p->text[k], "and") ? 2 : is(p->text[k], "or") ? 3 : -1;
        if (mode < 0) break;
    }
    if (form < 0 || mode < 0 || (form == REDUCE) != (mode > 0)) {
        unknown(r);
        return;
    }
    const int first = form == REDUCE, last = r->n_args - (form == REDUCE); /* of a{, n} */
    if (!ptx_want(r, first + 1 + first + (form == ARRIVE), first + 2 + first)) return;
    ptx_arg p_in = r->args[r->n_args - 1];
    ptx_inst i = { .exec = ptx_barrier, .mode = (unsigned char)mode, .n = form == ARRIVE, .d = PTX_NONE, .sig = "" };
    i.a = ptx_source(r, &r->args[first], 'w');
    i.b = last - first == 2 ? ptx_source(r, &r->args[first + 1], 'w') : PTX_NONE;
    if (form == REDUCE) {
        i.is_signed = p_in.negated, p_in.negated = false;
        i.c = ptx_source(r, &p_in, 'p');
        i.d = ptx_target(r, &r->args[0], mode == 1 ? 'w' : 'p');
    }
    ptx_inst *const out = ptx_emit(r);
    i.guard = out->guard, i.guard_not = out->guard_not, i.line = out->line;
    *out = i;
}

static void decode_nothing(ptx_reader *r, const ptx_parts *p)
{
    (void)p;
    emit(r, ptx_nothing);
}

static void decode_trap(ptx_reader *r, const ptx_parts *p)
{
    (void)p;
    emit(r, ptx_trap);
}

/* shfl.sync.down.b32 d|p, a, b, c, members */
static void decode_shuffle(ptx_reader *r, const ptx_parts *p)
{
    static const char *const modes[] = { "up", "down", "bfly", "idx" };
    int mode = -1;
    for (int k = 0; k < 4 && p->n == 4; k++)
        if (is(p->text[2], modes[k])) mode = k;
    if (mode < 0 || !is(p->text[1], "sync") || !ptx_want(r, 5, 5)) {
        unknown(r);
        return;
    }
    ptx_arg d = r->args[0];
    const int32_t p_out = d.n > 0 ? d.v[0] : PTX_NONE;
    d.n = 0;
    int32_t s[4], to = ptx_target(r, &d, 'w');
    for (int k = 0; k < 4; k++) s[k] = ptx_source(r, &r->args[k + 1], 'w');
    ptx_inst *const i = emit(r, ptx_shuffle);
    i->mode = (unsigned char)mode;
    i->d = to, i->a = s[0], i->c = s[1], i->v[0] = s[2], i->b = s[3], i->v[1] = p_out;
}

/* vote.sync.any.pred p, {!}a, members; vote.sync.ballot.b32 d, {!}a, members */
static void decode_vote(ptx_reader *r, const ptx_parts *p)
{
    static const char *const modes[] = { "all", "any", "uni", "ballot" };
    int mode = -1;
    for (int k = 0; k < 4 && p->n == 4; k++)
        if (is(p->text[2], modes[k])) mode = k;
    if (mode < 0 || !is(p->text[1], "sync") || !ptx_want(r, 3, 3)) {
        unknown(r);
        return;
    }
    ptx_arg in = r->args[1];
    in.negated = false;
    const int32_t a = ptx_source(r, &in, 'p'), members = ptx_source(r, &r->args[2], 'w');
    const int32_t to = ptx_target(r, &r->args[0], mode == 3 ? 'w' : 'p');
    ptx_inst *const i = emit(r, ptx_vote);
    i->mode = (unsigned char)mode, i->is_signed = r->args[1].negated;
    i->d = to, i->a = a, i->b = members;
}

/* match.any.sync.b32 d, a, members; match.all.sync.b64 d|p, a, members */
static void decode_match(ptx_reader *r, const ptx_parts *p)
{
    const bool all = p->n == 4 && is(p->text[1], "all"), wide = p->n == 4 && is(p->text[3], "b64");
    if (p->n != 4 || (!all && !is(p->text[1], "any")) || !ptx_want(r, 3, 3)) {
        unknown(r);
        return;
    }
    ptx_arg d = r->args[0];
    const int32_t p_out = d.n > 0 ? d.v[0] : PTX_NONE;
    d.n = 0;
    const int32_t to = ptx_target(r, &d, 'w'), a = ptx_source(r, &r->args[1], wide ? 'd' : 'w');
    const int32_t members = ptx_source(r, &r->args[2], 'w');
    ptx_inst *const i = emit(r, ptx_match);
    i->mode = all, i->wide = wide, i->d = to, i->a = a, i->b = members, i->v[1] = p_out;
}

/* redux.sync.add.s32 d, a, members */
static void decode_reduce(ptx_reader *r, const ptx_parts *p)
{
    if (p->n != 4 || !is(p->text[1], "sync") || !ptx_want(r, 3, 3)) {
        unknown(r);
        return;
    }
    const int32_t to = ptx_target(r, &r->args[0], 'w'), a = ptx_source(r, &r->args[1], 'w');
    const int32_t members = ptx_source(r, &r->args[2], 'w');
    ptx_inst *const i = emit(r, ptx_reduce);
    i->d = to, i->a = a, i->b = members;
    i->atomic = ptx_atomic_find(p->text[2], p->text[3]);
    if (!i->atomic || strchr(p->text[3], 'f')) unknown(r);
}

static void decode_active(ptx_reader *r, const ptx_parts *p)
{
    (void)p;
    if (!ptx_want(r, 1, 1)) return;
    const int32_t to = ptx_target(r, &r->args[0], 'w');
    emit(r, ptx_active)->d = to;
}

bool ptx_decode_control(ptx_reader *r, const ptx_parts *p)
{
    static const struct { const char *name; void (*decode)(ptx_reader *r, const ptx_parts *p);
    } forms[] = { { "bra", decode_branch },       { "brx", decode_branch },       { "ret", decode_return },
                  { "exit", decode_return },      { "bar", decode_barrier },      { "barrier", decode_barrier },
                  { "membar", decode_nothing },   { "fence", decode_nothing },    { "nanosleep", decode_nothing },
                  { "prefetch", decode_nothing }, { "trap", decode_trap },        { "brkpt", decode_trap },
                  { "shfl", decode_shuffle },     { "vote", decode_vote },        { "match", decode_match },
                  { "redux", decode_reduce },     { "activemask", decode_active } };
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++)
        if (is(p->text[0], forms[k].name)) {
            forms[k].decode(r, p);
            return true;
        }
    return false;
}
