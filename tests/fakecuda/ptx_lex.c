/* ptx_lex.c: the text of a PTX module as tokens with their lines. First step of ptx_load; ptx_parse.c reads on. */
#include "ptx_inner.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ptx_error(ptx_reader *r, const char *fmt, ...)
{
    if (r->failed) return;
    r->failed = true;
    const int line = r->n_tokens > 0 ? r->tokens[r->at > 0 ? r->at - 1 : 0].line : 0;
    va_list args;
    va_start(args, fmt);
    const int n = snprintf(r->error, r->error_size, "PTX line %d: ", line);
    if (n > 0 && (size_t)n < r->error_size) vsnprintf(r->error + n, r->error_size - (size_t)n, fmt, args);
    va_end(args);
}

bool ptx_grow(ptx_reader *r, void *p, int n, size_t size)
{
    void **const array = p;
    if (n > 0 && (n < 16 || (n & (n - 1)) != 0)) return true;
    void *const more = realloc(*array, size * (n < 16 ? 16 : (size_t)n * 2));
    if (more) *array = more;
    else ptx_error(r, "out of memory");
    return more != NULL;
}

static bool in_word(const char *s)
{
    return isalnum((unsigned char)*s) || *s == '_' || *s == '$' || *s == '%' || *s == '.';
}

static const char *blank_end(const char *s, int *line)
{
    for (;;) {
        const char *end = s;
        if (isspace((unsigned char)*s)) end = s + 1;
        else if (s[0] == '/' && s[1] == '/') end = s + strcspn(s, "\n");
        else if (s[0] == '/' && s[1] == '*') end = strstr(s, "*/") ? strstr(s, "*/") + 2 : s + strlen(s);
        if (end == s) return s;
        for (; s < end; s++) *line += *s == '\n';
    }
}

static const char *token_end(const char *s, int *kind)
{
    const char *e = s + 1;
    if (isdigit((unsigned char)*s)) {
        *kind = TOKEN_NUMBER;
        while (isalnum((unsigned char)*e) || *e == '.' || ((*e == '-' || *e == '+') && e[-1] == 'e' && s[1] != 'x'))
            e++;
    } else if (*s == '"') {
        *kind = TOKEN_STRING;
        e += strcspn(e, "\"\n");
        e += *e == '"';
    } else if (in_word(s)) {
        *kind = TOKEN_WORD;
        if (*s == '.') { /* .reg.b32 are two */
            while (in_word(e) && *e != '.') e++;
            return e;
        }
        for (; in_word(e) || (e[0] == ':' && e[1] == ':'); e++) e += *e == ':';
    } else {
        *kind = TOKEN_MARK;
    }
    return e;
}

bool ptx_lex(ptx_reader *r, const char *text)
{
    int line = 1;
    for (const char *s = blank_end(text, &line);; s = blank_end(s, &line)) {
        if (!ptx_grow(r, &r->tokens, r->n_tokens, sizeof *r->tokens)) return false;
        ptx_token *const t = &r->tokens[r->n_tokens++];
        *t = (ptx_token){ .s = s, .line = line, .kind = TOKEN_END };
        if (*s == '\0') return true;
        s = token_end(s, &t->kind);
        t->n = (int)(s - t->s);
    }
}

bool ptx_is(const ptx_token *t, const char *s)
{
    return strlen(s) == (size_t)t->n && memcmp(t->s, s, (size_t)t->n) == 0;
}

ptx_token ptx_next(ptx_reader *r)
{
    if (r->failed) return r->tokens[r->n_tokens - 1];
    const ptx_token t = r->tokens[r->at];
    if (t.kind != TOKEN_END) r->at++;
    return t;
}

bool ptx_accept(ptx_reader *r, const char *s)
{
    if (r->failed || !ptx_is(&r->tokens[r->at], s)) return false;
    r->at++;
    return true;
}

void ptx_expect(ptx_reader *r, const char *s)
{
    const ptx_token t = ptx_next(r);
    if (!ptx_is(&t, s)) ptx_error(r, "'%s' expected, not '%.*s'", s, t.n, t.s);
}

ptx_token ptx_word(ptx_reader *r, const char *what)
{
    const ptx_token t = ptx_next(r);
    if (t.kind != TOKEN_WORD) ptx_error(r, "%s expected, not '%.*s'", what, t.n, t.s);
    return t;
}

static uint64_t hex(const char *s, int n)
{
    char text[17] = "";
    memcpy(text, s, (size_t)(n < 16 ? n : 16));
    return strtoull(text, NULL, 16);
}

/* A number with its sign, as bits of an integer; a says what kind it is (NULL: only an integer will do). */
uint64_t ptx_number(ptx_reader *r, ptx_arg *a)
{
    ptx_arg none = { 0 };
    ptx_arg *const out = a ? a : &none;
    const bool minus = ptx_accept(r, "-");
    const ptx_token t = ptx_next(r);
    const char kind = t.n > 1 && t.s[0] == '0' ? (char)tolower((unsigned char)t.s[1]) : ' ';
    out->kind = ARG_NUMBER;
    if (t.kind != TOKEN_NUMBER) {
        ptx_error(r, "a number expected, not '%.*s'", t.n, t.s);
    } else if ((kind == 'f' && t.n == 10) || (kind == 'd' && t.n == 18)) {
        out->digits = kind == 'f' ? 8 : 16;
        out->bits = hex(t.s + 2, out->digits);
        if (minus) out->bits ^= 1ull << (out->digits * 4 - 1);
    } else if (kind != 'x' && memchr(t.s, '.', (size_t)t.n)) {
        const double v = minus ? -strtod(t.s, NULL) : strtod(t.s, NULL);
        memcpy(&out->bits, &v, sizeof v);
        out->real = true;
    } else {
        out->bits = kind == 'b' ? strtoull(t.s + 2, NULL, 2) : strtoull(t.s, NULL, 0);
        if (minus) out->bits = 0 - out->bits;
    }
    if (!a && (out->real || out->digits)) ptx_error(r, "an integer expected, not '%.*s'", t.n, t.s);
    return out->bits;
}
