/* ptx_load.c: the module as a whole: its directives, variables, functions and kernels, and what the loader asks
 * about them. ptx_parse.c reads the bodies. */
#include "ptx_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* .param .u64 .ptr .global .align 1 name, or .param .align 8 .b8 name[24] */
static void read_param(ptx_reader *r)
{
    size_t align = 0;
    ptx_kernel *const k = r->k;
    ptx_expect(r, ".param");
    while (ptx_accept(r, ".align")) align = (size_t)ptx_number(r, NULL);
    size_t size = (size_t)ptx_read_type(r, NULL);
    if (align == 0) align = size;
    if (ptx_accept(r, ".ptr")) {
        for (;; ptx_next(r)) {
            if (ptx_accept(r, ".align")) ptx_number(r, NULL);
            if (r->failed || r->tokens[r->at].s[0] != '.') break;
        }
    }
    ptx_name *const v = ptx_name_add(r, NAME_VARIABLE, ptx_word(r, "a parameter"));
    if (v && ptx_accept(r, "[")) {
        size *= (size_t)ptx_number(r, NULL);
        ptx_expect(r, "]");
    }
    if (!v || r->failed || !ptx_grow(r, &k->param_at, k->n_params, sizeof *k->param_at) ||
        !ptx_grow(r, &k->param_size, k->n_params, sizeof *k->param_size))
        return;
    v->space = PTX_PARAM, v->size = size;
    v->address = ptx_take(&k->param_bytes, size, align);
    k->param_at[k->n_params] = (size_t)v->address;
    k->param_size[k->n_params++] = size;
}

static int product(ptx_reader *r)
{
    uint64_t n = ptx_number(r, NULL);
    while (ptx_accept(r, ",")) n *= ptx_number(r, NULL);
    return n > 1024 ? 1024 : (int)n;
}

/* between the parameters and the body */
static void read_tuning(ptx_reader *r)
{
    while (!r->failed && r->tokens[r->at].s[0] == '.') {
        if (ptx_accept(r, ".maxntid") || ptx_accept(r, ".reqntid")) {
            r->k->required_size = r->tokens[r->at - 1].s[1] == 'r';
            r->k->max_threads = product(r);
        } else if (ptx_accept(r, ".minnctapersm") || ptx_accept(r, ".maxnctapersm") || ptx_accept(r, ".maxnreg")) {
            ptx_number(r, NULL);
        } else if (ptx_accept(r, ".pragma")) {
            ptx_next(r), ptx_expect(r, ";");
        } else {
            ptx_error(r, "unknown directive '%.*s'", r->tokens[r->at].n, r->tokens[r->at].s);
        }
    }
}

static void fill(void *to, uint64_t bits, int bytes)
{
    for (int i = 0; i < LANES; i++) memcpy((char *)to + (size_t)i * (size_t)bytes, &bits, (size_t)bytes);
}

/* What is known once the body is read. */
static void finish(ptx_reader *r)
{
    ptx_kernel *const k = r->k;
    ptx_emit(r)->exec = ptx_exit;
    ptx_fix_labels(r);
    k->shared_bytes = (k->shared_bytes + 15) / 16 * 16;
    k->constants = r->failed ? NULL : aligned_alloc(64, (k->constant_bytes + 64) / 64 * 64);
    if (!k->constants) {
        ptx_error(r, "out of memory");
        return;
    }
    if (r->dynamic >= 0) r->constants[r->dynamic].bits = PTX_SHARED_AT + k->shared_bytes;
    for (int i = 0; i < r->n_constants; i++)
        fill(k->constants + r->constants[i].at, r->constants[i].bits, r->constants[i].bytes);
    k->register_bytes += 8 * LANES; /* at least something, and an operand that is absent reads it */
}

static ptx_kernel *new_kernel(ptx_reader *r, ptx_token name)
{
    ptx_module *const m = r->module;
    ptx_kernel *const k = ptx_grow(r, &m->kernels, m->n_kernels, sizeof *m->kernels) ? calloc(1, sizeof *k) : NULL;
    if (!k) {
        ptx_error(r, "out of memory");
        return NULL;
    }
    m->kernels[m->n_kernels++] = k;
    k->module = m, k->max_threads = 1024, k->granule_shared = k->granule_global = 8;
    k->register_bytes = 8 * LANES;
    memset(k->special, 0xFF, sizeof k->special);
    k->name = strndup(name.s, (size_t)name.n);
    if (!k->name) ptx_error(r, "out of memory");
    return k;
}

static void read_entry(ptx_reader *r)
{
    const int names = r->n_names;
    r->k = new_kernel(r, ptx_word(r, "a kernel's name"));
    if (r->failed) return;
    r->n_labels = r->n_fixups = r->n_constants = 0;
    r->dynamic = -1, r->carry = PTX_NONE, r->scope = -1, r->n_scopes = 0;
    memset(r->scratch, 0xFF, sizeof r->scratch);
    for (int i = 0; i < names; i++)
        if (r->names[i].space == PTX_SHARED) r->names[i].address = 0;
    if (ptx_accept(r, "("))
        for (bool more = !ptx_accept(r, ")"); more && !r->failed;) {
            read_param(r);
            more = ptx_accept(r, ",");
            if (!more) ptx_expect(r, ")");
        }
    read_tuning(r);
    if (!ptx_accept(r, ";")) ptx_read_body(r);
    if (!r->failed) finish(r);
    ptx_names_drop(r, names);
    r->k = NULL;
}

/* ---- functions: where their parts begin -------------------------------------------------------------------------- */

/* over ( … ) or { … } */
static void skip_nested(ptx_reader *r, const char *open, const char *close)
{
    ptx_expect(r, open);
    for (int depth = 1; depth > 0 && !r->failed;) {
        const ptx_token t = ptx_next(r);
        depth += ptx_is(&t, open) - ptx_is(&t, close);
        if (t.kind == TOKEN_END) ptx_error(r, "'%s' without '%s'", open, close);
    }
}

static void read_function(ptx_reader *r)
{
    ptx_function f = { 0 };
    if (ptx_is(&r->tokens[r->at], "(")) {
        f.results = r->at + 1;
        skip_nested(r, "(", ")");
    }
    f.name = ptx_word(r, "a function's name");
    if (ptx_is(&r->tokens[r->at], "(")) {
        f.params = r->at + 1;
        skip_nested(r, "(", ")");
    }
    while (ptx_accept(r, ".noreturn") || ptx_accept(r, ".unique")) {}
    if (!ptx_accept(r, ";")) {
        f.body = r->at;
        skip_nested(r, "{", "}");
    }
    if (!r->failed && ptx_grow(r, &r->functions, r->n_functions, sizeof *r->functions))
        r->functions[r->n_functions++] = f;
}

/* A kernel may call what comes later. */
static void find_functions(ptx_reader *r)
{
    while (!r->failed && r->tokens[r->at].kind != TOKEN_END)
        if (ptx_accept(r, ".func")) read_function(r);
        else r->at++;
    r->at = 0;
}

/* ---- the module -------------------------------------------------------------------------------------------------- */

static void read_top(ptx_reader *r)
{
    bool is_extern = false;
    const int functions = r->n_functions;
    for (;;) {
        if (ptx_accept(r, ".extern")) is_extern = true;
        else if (!ptx_accept(r, ".visible") && !ptx_accept(r, ".weak") && !ptx_accept(r, ".common")) break;
    }
    if (ptx_accept(r, ".entry")) read_entry(r);
    else if (ptx_accept(r, ".func")) read_function(r), r->n_functions = functions; /* found before */
    else if (ptx_accept(r, ".global") || ptx_accept(r, ".const")) ptx_read_variable(r, PTX_GLOBAL, is_extern);
    else if (ptx_accept(r, ".shared")) ptx_read_variable(r, PTX_SHARED, is_extern);
    else if (ptx_accept(r, ".version") || ptx_accept(r, ".target") || ptx_accept(r, ".file")) ptx_skip_line(r);
    else if (ptx_accept(r, ".pragma")) ptx_next(r), ptx_expect(r, ";");
    else if (ptx_accept(r, ".section")) ptx_next(r), skip_nested(r, "{", "}");
    else if (!ptx_accept(r, ".address_size"))
        ptx_error(r, "unknown directive '%.*s'", r->tokens[r->at].n, r->tokens[r->at].s);
    else if (ptx_number(r, NULL) != 64) ptx_error(r, "addresses of another size than 64 bits");
}

static void close_reader(ptx_reader *r)
{
    ptx_names_drop(r, 0);
    free(r->names);
    free(r->tokens);
    free(r->functions);
    free(r->labels);
    free(r->fixups);
    free(r->scopes);
    free(r->constants);
    free(r->ops);
}

ptx_module *ptx_load(const char *text, const ptx_memory *memory, char *error, size_t n)
{
    ptx_reader r = { .memory = memory, .error = error, .error_size = n, .dynamic = -1 };
    if (n > 0) *error = '\0';
    r.module = calloc(1, sizeof *r.module);
    if (!r.module) {
        snprintf(error, n, "out of memory");
        return NULL;
    }
    r.module->isa = &ptx_isa_base;
#ifdef PTX_WITH_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && !getenv("FAKECUDA_NO_AVX2"))
        r.module->isa = &ptx_isa_avx2;
#endif
    if (ptx_ops_index(&r) && ptx_lex(&r, text)) {
        const ptx_token *const first = &r.tokens[0];
        if (!ptx_is(first, ".version")) ptx_error(&r, "no PTX: it does not begin with .version");
        find_functions(&r);
        while (!r.failed && r.tokens[r.at].kind != TOKEN_END) read_top(&r);
    }
    close_reader(&r);
    if (!r.failed) return r.module;
    ptx_unload(r.module);
    return NULL;
}

void ptx_unload(ptx_module *m)
{
    for (int i = 0; m && i < m->n_kernels; i++) {
        ptx_kernel *const k = m->kernels[i];
        free(k->name);
        free(k->code);
        free(k->tables);
        free(k->constants);
        free(k->param_at);
        free(k->param_size);
        free(k);
    }
    if (m) free(m->kernels);
    free(m);
}

const ptx_kernel *ptx_find(const ptx_module *m, const char *entry)
{
    for (int i = 0; i < m->n_kernels; i++)
        if (strcmp(m->kernels[i]->name, entry) == 0) return m->kernels[i];
    return NULL;
}

ptx_info ptx_kernel_info(const ptx_kernel *k)
{
    return (ptx_info){ .n_params = k->n_params, .param_bytes = k->param_bytes, .shared_bytes = k->shared_bytes,
                       .local_bytes = k->local_bytes, .max_threads = k->max_threads, .registers = k->registers };
}

void ptx_param(const ptx_kernel *k, int i, size_t *offset, size_t *size)
{
    *offset = k->param_at[i];
    *size = k->param_size[i];
}
