/* ptx_parse.c: ptx_load: the module's variables, functions and kernels, their names and labels. Each statement's
 * operands are read here and handed to ptx_decode.c. A function is read anew at each call, in place: nothing is
 * called when it runs. */
#include "ptx_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t ptx_take(size_t *used, size_t size, size_t align)
{
    const size_t at = (*used + align - 1) / align * align;
    *used = at + size;
    return at;
}

static bool same(const ptx_token *a, const ptx_token *b)
{
    return a->n == b->n && memcmp(a->s, b->s, (size_t)a->n) == 0;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

int32_t ptx_register(ptx_reader *r, int bytes)
{
    const size_t size = (size_t)(bytes == 1 ? 1 : bytes == 8 ? 8 : 4) * LANES;
    return (int32_t)ptx_take(&r->k->register_bytes, size, 64);
}

/* %r12 as %r<n>'s twelfth, or a whole name; innermost first. *at: the register. */
ptx_name *ptx_name_find(ptx_reader *r, const ptx_token *t, int32_t *at)
{
    int digits = 0;
    while (digits < t->n && t->s[t->n - 1 - digits] >= '0' && t->s[t->n - 1 - digits] <= '9') digits++;
    const ptx_token family = { .s = t->s, .n = t->n - digits };
    const int number = digits > 0 && digits < 9 ? (int)strtol(t->s + t->n - digits, NULL, 10) : 0;
    for (int i = r->n_names - 1; i >= 0; i--) {
        ptx_name *const v = &r->names[i];
        const bool member = v->count > 0 && digits > 0 && number < v->count && same(&v->name, &family);
        if (!member && (v->count > 0 || !same(&v->name, t))) continue;
        if (v->kind != NAME_REG) return v;
        int32_t *const place = &v->at[member ? number : 0];
        if (*place == PTX_NONE) *place = ptx_register(r, v->bytes);
        *at = *place;
        return v;
    }
    return NULL;
}

ptx_name *ptx_name_add(ptx_reader *r, int kind, ptx_token name)
{
    if (!ptx_grow(r, &r->names, r->n_names, sizeof *r->names)) return NULL;
    ptx_name *const v = &r->names[r->n_names++];
    *v = (ptx_name){ .name = name, .kind = kind };
    return v;
}

void ptx_names_drop(ptx_reader *r, int to)
{
    while (r->n_names > to) free(r->names[--r->n_names].at);
}

static const struct { const char *name; int bytes;
} types[] = { { ".pred", 1 }, { ".b8", 1 },  { ".u8", 1 },  { ".s8", 1 },    { ".b16", 2 },
              { ".u16", 2 },  { ".s16", 2 }, { ".f16", 2 }, { ".bf16", 2 },  { ".b32", 4 },
              { ".u32", 4 },  { ".s32", 4 }, { ".f32", 4 }, { ".f16x2", 4 }, { ".bf16x2", 4 },
              { ".b64", 8 },  { ".u64", 8 }, { ".s64", 8 }, { ".f64", 8 } };

int ptx_read_type(ptx_reader *r, bool *predicate)
{
    const ptx_token t = ptx_next(r);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (ptx_is(&t, types[i].name)) {
            if (predicate) *predicate = i == 0;
            return types[i].bytes;
        }
    ptx_error(r, "no type that is known: '%.*s'", t.n, t.s);
    return 1;
}

/* .reg .b32 %r<9>, x; */
static void read_registers(ptx_reader *r)
{
    bool predicate = false;
    const int type = ptx_read_type(r, &predicate);
    const int bytes = predicate ? 1 : type < 2 ? 2 : type; /* a register of 8 bits is used as one of 16 */
    do {
        ptx_name *const v = ptx_name_add(r, NAME_REG, ptx_word(r, "a register's name"));
        if (!v) return;
        v->bytes = bytes;
        if (ptx_accept(r, "<")) {
            v->count = (int)ptx_number(r, NULL);
            ptx_expect(r, ">");
        }
        const int n = v->count > 0 ? v->count : 1;
        if (n > 1 << 20) ptx_error(r, "%d registers", n);
        v->at = r->failed ? NULL : malloc((size_t)n * sizeof *v->at);
        if (!v->at) {
            ptx_error(r, "out of memory");
            return;
        }
        memset(v->at, 0xFF, (size_t)n * sizeof *v->at);
        r->k->registers += predicate ? 0 : n * (bytes == 8 ? 2 : 1);
    } while (ptx_accept(r, ","));
    ptx_expect(r, ";");
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

/* = { 1, 0f3F800000, … } or = 1 */
static unsigned char *read_initial(ptx_reader *r, size_t size, int bytes)
{
    unsigned char *const values = calloc(size + 8, 1);
    if (!values) {
        ptx_error(r, "out of memory");
        return NULL;
    }
    const bool list = ptx_accept(r, "{");
    for (size_t at = 0; !r->failed && !(list && ptx_is(&r->tokens[r->at], "}")); at += (size_t)bytes) {
        const uint64_t v = ptx_number(r, &(ptx_arg){ 0 });
        if (at + (size_t)bytes > size) ptx_error(r, "more values than the variable holds");
        else memcpy(values + at, &v, (size_t)bytes);
        if (!ptx_accept(r, ",")) break;
    }
    if (list) ptx_expect(r, "}");
    return values;
}

static void place(ptx_reader *r, ptx_name *v, size_t align, const void *initial)
{
    if (v->kind == NAME_DYNAMIC || r->failed) return;
    if (v->space == PTX_GLOBAL) {
        v->address = r->memory->global(r->memory->user, v->size ? v->size : 1, align, initial);
        if (v->address == 0) ptx_error(r, "no memory for a variable of %zu bytes", v->size);
    } else if (v->space == PTX_SHARED && r->k) {
        v->address = PTX_SHARED_AT + ptx_take(&r->k->shared_bytes, v->size, align);
    } else if (r->k) {
        v->address = ptx_take(&r->k->local_bytes, v->size, align);
    }
}

/* after .global, .shared, …: .align 4 .b8 name[12] = {…}; several names share a type */
void ptx_read_variable(ptx_reader *r, int space, bool is_extern)
{
    size_t align = 0, elements = 1;
    while (ptx_accept(r, ".align")) align = (size_t)ptx_number(r, NULL);
    if (ptx_accept(r, ".v2")) elements = 2;
    else if (ptx_accept(r, ".v4")) elements = 4;
    const int bytes = ptx_read_type(r, NULL);
    if (align == 0) align = (size_t)bytes * elements;
    if ((align & (align - 1)) != 0 || align > 4096) ptx_error(r, "alignment %zu", align);
    do {
        ptx_name *const v = ptx_name_add(r, NAME_VARIABLE, ptx_word(r, "a variable's name"));
        if (!v) return;
        v->space = space;
        v->size = (size_t)bytes * elements;
        while (ptx_accept(r, "[")) {
            if (!ptx_is(&r->tokens[r->at], "]")) v->size *= (size_t)ptx_number(r, NULL);
            else v->kind = NAME_DYNAMIC;
            ptx_expect(r, "]");
        }
        if (v->kind == NAME_DYNAMIC && (space != PTX_SHARED || !is_extern)) ptx_error(r, "an array without a size");
        if (v->size > 1u << 30) ptx_error(r, "a variable of %zu bytes", v->size);
        v->bytes = (int)align; /* of module-wide shared variables, which a kernel places when it names them */
        unsigned char *const initial = !r->failed && ptx_accept(r, "=") ? read_initial(r, v->size, bytes) : NULL;
        place(r, v, align, initial);
        free(initial);
    } while (ptx_accept(r, ","));
    ptx_expect(r, ";");
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static void read_address(ptx_reader *r, ptx_arg *a);
static void read_call(ptx_reader *r);

/* a register, variable, label or special register */
static void read_word(ptx_reader *r, ptx_arg *a)
{
    const ptx_token t = ptx_word(r, "an operand");
    int32_t at = 0;
    ptx_name *const v = ptx_name_find(r, &t, &at);
    a->name = t;
    a->kind = ARG_LABEL;
    if (v && v->kind == NAME_REG) {
        a->kind = ARG_REG, a->at = at, a->bytes = v->bytes;
    } else if (v) {
        a->kind = ARG_VARIABLE, a->variable = v;
    } else if (ptx_is(&t, "_")) {
        a->kind = ARG_SINK;
    } else if (ptx_is(&t, "WARP_SZ")) {
        a->kind = ARG_NUMBER, a->bits = WARP;
    } else if (t.s[0] == '%') {
        a->at = ptx_special(r, &t, &a->bytes);
        a->kind = ARG_REG;
    }
}

static void read_vector(ptx_reader *r, ptx_arg *a)
{
    a->kind = ARG_VECTOR;
    do {
        ptx_arg e = { 0 };
        if (ptx_is(&r->tokens[r->at], "-") || r->tokens[r->at].kind == TOKEN_NUMBER) ptx_number(r, &e);
        else read_word(r, &e);
        if (a->n == 8) ptx_error(r, "a vector of more than 8");
        if (e.kind == ARG_SINK) e.at = PTX_NONE, e.bytes = -1;
        if (e.kind != ARG_NUMBER && e.kind != ARG_SINK && e.kind != ARG_REG) ptx_error(r, "a register expected in { }");
        if (r->failed) return;
        a->v_bytes[a->n] = e.bytes;
        a->v_bits[a->n] = e.bits;
        a->v[a->n++] = e.at;
    } while (ptx_accept(r, ","));
    ptx_expect(r, "}");
}

static void read_arg(ptx_reader *r, ptx_arg *a)
{
    *a = (ptx_arg){ 0 };
    const ptx_token *const t = &r->tokens[r->at];
    if (ptx_accept(r, "[")) {
        read_address(r, a);
    } else if (ptx_accept(r, "{")) {
        read_vector(r, a);
    } else if (ptx_accept(r, "!")) {
        read_word(r, a);
        a->negated = true;
    } else if (t->kind == TOKEN_NUMBER || ptx_is(t, "-")) {
        ptx_number(r, a);
    } else {
        read_word(r, a);
    }
    if (a->kind == ARG_VARIABLE && ptx_accept(r, "+")) a->offset = (int64_t)ptx_number(r, NULL);
    if (a->kind != ARG_REG && a->kind != ARG_SINK) return;
    if (ptx_accept(r, "|")) { /* p|q */
        ptx_arg second = { 0 };
        read_word(r, &second);
        a->n = 1;
        a->v[0] = second.kind == ARG_SINK ? PTX_NONE : second.at;
        if (a->kind == ARG_SINK) a->at = PTX_NONE, a->bytes = second.bytes; /* _|q */
    }
}

/* [base], [base+4], [base+-4], [64] */
static void read_address(ptx_reader *r, ptx_arg *a)
{
    if (r->tokens[r->at].kind == TOKEN_NUMBER) ptx_number(r, a);
    else read_word(r, a);
    if (a->kind == ARG_NUMBER) a->offset = (int64_t)a->bits;
    else if (a->kind != ARG_REG && a->kind != ARG_VARIABLE)
        ptx_error(r, "'%.*s' is not declared", a->name.n, a->name.s);
    if (ptx_accept(r, "+") || ptx_is(&r->tokens[r->at], "-")) a->offset = (int64_t)ptx_number(r, NULL);
    a->negated = a->kind == ARG_REG; /* an address in a register */
    a->kind = ARG_ADDRESS;
    ptx_expect(r, "]");
}

static void read_args(ptx_reader *r)
{
    r->n_args = 0;
    while (!r->failed && !ptx_accept(r, ";")) {
        if (r->n_args > 0) ptx_expect(r, ",");
        if (r->n_args == MAX_ARGS) ptx_error(r, "too many operands");
        else read_arg(r, &r->args[r->n_args++]);
    }
}

static void read_instruction(ptx_reader *r)
{
    r->guard = PTX_NONE;
    r->guard_not = false;
    if (ptx_accept(r, "@")) {
        r->guard_not = ptx_accept(r, "!");
        ptx_arg p = { 0 };
        read_word(r, &p);
        if (p.kind != ARG_REG || p.bytes != 1) ptx_error(r, "a predicate expected after @");
        r->guard = p.at;
    }
    r->mnemonic = ptx_word(r, "an instruction");
    if (ptx_is(&r->mnemonic, "call") || ptx_is(&r->mnemonic, "call.uni")) {
        read_call(r);
    } else {
        read_args(r);
        if (!r->failed) ptx_decode(r);
    }
}

void ptx_skip_line(ptx_reader *r)
{
    const int line = r->tokens[r->at - 1].line;
    while (r->tokens[r->at].kind != TOKEN_END && r->tokens[r->at].line == line) r->at++;
}

static void read_directive(ptx_reader *r)
{
    if (ptx_accept(r, ".reg")) read_registers(r);
    else if (ptx_accept(r, ".shared")) ptx_read_variable(r, PTX_SHARED, false);
    else if (ptx_accept(r, ".local") || ptx_accept(r, ".param")) ptx_read_variable(r, PTX_LOCAL, false);
    else if (ptx_accept(r, ".pragma")) ptx_next(r), ptx_expect(r, ";");
    else if (ptx_accept(r, ".loc")) ptx_skip_line(r);
    else ptx_error(r, "unknown directive '%.*s'", r->tokens[r->at].n, r->tokens[r->at].s);
}

/* the label at a function's end; no label can be called so */
static const ptx_token return_name = { .s = "return;", .n = 7 };

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static void add_fixup(ptx_reader *r, ptx_token name, int code, int table)
{
    if (!ptx_grow(r, &r->fixups, r->n_fixups, sizeof *r->fixups)) return;
    r->fixups[r->n_fixups++] = (ptx_fixup){ name, r->scope, code, table };
}

/* name: .branchtargets a, b, c; */
static int read_table(ptx_reader *r)
{
    const int start = r->k->n_tables;
    if (!ptx_grow(r, &r->k->tables, r->k->n_tables, sizeof *r->k->tables)) return start;
    r->k->tables[r->k->n_tables++] = 0;
    do {
        const ptx_token t = ptx_word(r, "a label");
        if (!ptx_grow(r, &r->k->tables, r->k->n_tables, sizeof *r->k->tables)) return start;
        add_fixup(r, t, -1, r->k->n_tables++);
        r->k->tables[start]++;
    } while (ptx_accept(r, ","));
    ptx_expect(r, ";");
    return start;
}

static void read_label(ptx_reader *r)
{
    if (!ptx_grow(r, &r->labels, r->n_labels, sizeof *r->labels)) return;
    ptx_label *const l = &r->labels[r->n_labels++];
    *l = (ptx_label){ .name = ptx_next(r), .scope = r->scope, .pc = r->k->n_code, .table = -1 };
    ptx_expect(r, ":");
    const int number = r->n_labels - 1;
    if (ptx_accept(r, ".branchtargets")) {
        const int table = read_table(r);
        r->labels[number].table = table;
    }
}

static const ptx_label *find_label(const ptx_reader *r, const ptx_fixup *f)
{
    for (int scope = f->scope; scope >= 0; scope = r->scopes[scope])
        for (int i = 0; i < r->n_labels; i++)
            if (r->labels[i].scope == scope && same(&r->labels[i].name, &f->name)) return &r->labels[i];
    return NULL;
}

/* Jumps to their labels, once all are known. */
void ptx_fix_labels(ptx_reader *r)
{
    for (int i = 0; i < r->n_fixups && !r->failed; i++) {
        const ptx_fixup *const f = &r->fixups[i];
        const ptx_label *const l = find_label(r, f);
        ptx_inst *const code = f->code >= 0 ? &r->k->code[f->code] : NULL;
        if (!l || (code && code->exec == ptx_branch_indexed) != (l->table >= 0)) {
            ptx_error(r, "no label '%.*s'", f->name.n, f->name.s);
        } else if (code) {
            code->target = l->table >= 0 ? l->table : l->pc;
        } else {
            r->k->tables[f->table] = l->pc;
        }
    }
}

void ptx_jump(ptx_reader *r, ptx_token name, int code)
{
    add_fixup(r, name, code, -1);
}

void ptx_return(ptx_reader *r, int code)
{
    add_fixup(r, return_name, code, -1);
}

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

static void open_scope(ptx_reader *r)
{
    if (!ptx_grow(r, &r->scopes, r->n_scopes, sizeof *r->scopes)) return;
    r->scopes[r->n_scopes] = r->scope;
    r->scope = r->n_scopes++;
}

static void read_statement(ptx_reader *r)
{
    const ptx_token *const t = &r->tokens[r->at];
    if (ptx_is(t, "{")) {
        ptx_read_body(r);
    } else if (t->kind == TOKEN_WORD && ptx_is(t + 1, ":")) {
        read_label(r);
    } else if (t->kind == TOKEN_WORD && t->s[0] == '.') {
        read_directive(r);
    } else if (!ptx_accept(r, ";")) {
        read_instruction(r);
    }
}

/* { … }, with a scope of its own */
void ptx_read_body(ptx_reader *r)
{
    const int names = r->n_names, scope = r->scope;
    ptx_expect(r, "{");
    open_scope(r);
    while (!r->failed && !ptx_accept(r, "}")) {
        if (r->tokens[r->at].kind == TOKEN_END) ptx_error(r, "the text ends in a body");
        else read_statement(r);
    }
    ptx_names_drop(r, names);
    r->scope = scope;
}

/* ( .param .b64 a, .param .align 8 .b8 b[16] ): variables of the thread; in place of them those of the call */
static void bind(ptx_reader *r, int formal, const ptx_arg *actual, int n)
{
    r->at = formal;
    for (int i = 0; !r->failed && !ptx_accept(r, ")"); i++) {
        if (i > 0) ptx_expect(r, ",");
        ptx_expect(r, ".param");
        while (ptx_accept(r, ".align")) ptx_number(r, NULL);
        ptx_read_type(r, NULL);
        ptx_name *const v = ptx_name_add(r, NAME_VARIABLE, ptx_word(r, "a parameter"));
        for (; ptx_accept(r, "["); ptx_expect(r, "]")) ptx_number(r, NULL);
        if (!v) return;
        if (i >= n) ptx_error(r, "too few arguments in a call");
        else v->space = PTX_LOCAL, v->address = actual[i].offset >= 0 ? (uint64_t)actual[i].offset : 0;
    }
}

static int read_actual(ptx_reader *r, ptx_arg *list)
{
    int n = 0;
    for (; !r->failed && !ptx_accept(r, ")"); n++) {
        if (n > 0) ptx_expect(r, ",");
        ptx_arg a = { 0 };
        read_word(r, &a);
        if (a.kind != ARG_VARIABLE || a.variable->space != PTX_LOCAL)
            ptx_error(r, "a .param variable expected in a call");
        else if (n == MAX_ARGS * 4) ptx_error(r, "too many arguments in a call");
        else list[n].offset = (int64_t)a.variable->address;
        if (r->failed) return 0;
    }
    return n;
}

/* call (result), name, (arguments); the function's body follows in place, its returns jump behind it */
static void read_call(ptx_reader *r)
{
    ptx_arg results[MAX_ARGS * 4], params[MAX_ARGS * 4];
    const int n_results = ptx_accept(r, "(") ? read_actual(r, results) : 0;
    if (n_results > 0) ptx_expect(r, ",");
    const ptx_token name = ptx_word(r, "a function's name");
    const int n_params = ptx_accept(r, ",") && ptx_accept(r, "(") ? read_actual(r, params) : 0;
    ptx_expect(r, ";");
    const ptx_function *f = NULL;
    for (int i = 0; i < r->n_functions && !f; i++)
        if (same(&r->functions[i].name, &name) && r->functions[i].body > 0) f = &r->functions[i];
    if (!f) {
        ptx_error(r, "a call of '%.*s', which has no body here", name.n, name.s);
        return;
    }
    if (r->calls == MAX_FUNCTION_DEPTH) ptx_error(r, "'%.*s' calls itself", name.n, name.s);
    else if (r->guard != PTX_NONE) ptx_error(r, "a call under a predicate");
    if (r->failed) return;
    const int back = r->at, names = r->n_names, scope = r->scope, label = r->return_label;
    open_scope(r);
    if (f->results > 0) bind(r, f->results, results, n_results);
    if (f->params > 0) bind(r, f->params, params, n_params);
    r->return_label = r->scope;
    r->calls++;
    r->at = f->body;
    ptx_read_body(r);
    r->calls--;
    if (!r->failed && ptx_grow(r, &r->labels, r->n_labels, sizeof *r->labels))
        r->labels[r->n_labels++] = (ptx_label){ return_name, r->return_label, r->k->n_code, -1 };
    ptx_names_drop(r, names);
    r->return_label = label;
    r->scope = scope;
    if (!r->failed) r->at = back;
}
