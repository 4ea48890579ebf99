/* config.c: values of a run's keys: parsing, bounds, precedence, flags.
 * In io, above the table (config_keys.c); config_yaml.c reads and prints files. */
#include "io/config.h"
#include "io/json.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* ---- values from text -------------------------------------------------------------------------------------------- */

static bool parse_bool(const char *text, bool *out)
{
    static const char *const words[] = { "false", "true", "no", "yes", "off", "on" };
    for (size_t i = 0; i < SW_COUNT(words); i++) {
        if (strcasecmp(text, words[i]) != 0) continue;
        *out = i % 2 == 1;
        return true;
    }
    return false;
}

static bool parse_int(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    if (isspace((unsigned char)text[0])) return false;
    const long long v = strtoll(text, &end, 10);
    *out = v;
    return end != text && *end == '\0' && errno == 0;
}

/* A finite decimal number, read the same in every locale; *rest is what follows it. */
static bool parse_number(const char *text, double *out, const char **rest)
{
    if (strchr("+-.0123456789", text[0]) == NULL || text[0] == '\0') return false; /* no spaces, inf, nan */
    const size_t n = strspn(text, "+-.0123456789eE");
    const locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) return false;
    char *end;
    *out = strtod_l(text, &end, c);
    freelocale(c);
    *rest = end;
    return end != text && (size_t)(end - text) == n && isfinite(*out); /* n: no hexadecimal */
}

/* "a|b|c" holds the word. */
static bool listed(const char *choices, const char *word)
{
    const size_t n = strlen(word);
    while (choices != NULL) {
        const char *const bar = strchr(choices, '|');
        const size_t len = bar != NULL ? (size_t)(bar - choices) : strlen(choices);
        if (len == n && memcmp(choices, word, n) == 0) return true;
        choices = bar != NULL ? bar + 1 : NULL;
    }
    return false;
}

static sw_status check_bounds(sw_key k, double x)
{
    const sw__key_row *const row = &sw__keys[k];
    const double least = row->info.least, most = row->info.most;
    const bool low = row->least_open ? x <= least : x < least, high = row->most_open ? x >= most : x > most;
    if (!low && !high) return SW_OK;
    const int digits = row->info.type == SW_KEY_INT ? 17 : 6; /* whole numbers are said in full */
    return sw__fail(SW_ERR_FORMAT, "%s is %.*g, and must be %s %.*g", row->info.name, digits, x,
                    low              ? (row->least_open ? "above" : "at least")
                    : row->most_open ? "below"
                                     : "at most",
                    digits, low ? least : most);
}

static const char *expected(sw_key k)
{
    static const char *const names[] = {
        [SW_KEY_BOOL] = "true or false", [SW_KEY_INT] = "a whole number",
        [SW_KEY_NUMBER] = "a number",    [SW_KEY_PAIR] = "two numbers, such as 0.9,0.999",
        [SW_KEY_CHOICE] = "one of",      [SW_KEY_STRING] = "a text"
    };
    return names[sw__keys[k].info.type];
}

static sw_status wrong_type(sw_key k, const char *text)
{
    const sw__key_row *const row = &sw__keys[k];
    if (listed(row->later, text)) {
        return sw__fail(SW_ERR_FORMAT, "%s: '%s' is not in this version; it takes %s%s%s", row->info.name, text,
                        expected(k), row->info.choices != NULL ? " " : "",
                        row->info.choices != NULL ? row->info.choices : "");
    }
    if (row->info.type == SW_KEY_CHOICE) {
        return sw__fail(SW_ERR_FORMAT, "%s is '%.100s', and must be one of %s", row->info.name, text,
                        row->info.choices);
    }
    return sw__fail(SW_ERR_FORMAT, "%s is '%.100s', and must be %s%s", row->info.name, text, expected(k),
                    row->info.may_be_auto ? " or auto" : "");
}

sw_status sw__config_parse_value(sw_key k, const char *text, sw__config_value *v)
{
    const sw_key_info *const info = &sw__keys[k].info;
    const char *rest = "";
    v->is_auto = info->may_be_auto && strcmp(text, "auto") == 0;
    if (v->is_auto) return SW_OK;
    switch (info->type) {
    case SW_KEY_BOOL:
        if (!parse_bool(text, &v->v.b)) return wrong_type(k, text);
        return SW_OK;
    case SW_KEY_INT:
        if (!parse_int(text, &v->v.i)) return wrong_type(k, text);
        return check_bounds(k, (double)v->v.i);
    case SW_KEY_NUMBER:
        if (!parse_number(text, &v->v.x[0], &rest) || *rest != '\0') return wrong_type(k, text);
        return check_bounds(k, v->v.x[0]);
    case SW_KEY_PAIR:
        if (!parse_number(text, &v->v.x[0], &rest) || *rest != ',') return wrong_type(k, text);
        rest += 1 + strspn(rest + 1, " ");
        if (!parse_number(rest, &v->v.x[1], &rest) || *rest != '\0') return wrong_type(k, text);
        SW_TRY(check_bounds(k, v->v.x[0]));
        return check_bounds(k, v->v.x[1]);
    case SW_KEY_CHOICE:
        return listed(info->choices, text) ? SW_OK : wrong_type(k, text);
    case SW_KEY_STRING:
        break;
    }
    const size_t n = strlen(text);
    if (sw__utf8_check(text, n) != n) return sw__fail(SW_ERR_FORMAT, "%s is not UTF-8", info->name);
    return SW_OK;
}

sw_status sw__config_store(sw_config *c, sw_key k, const char *text, sw_origin origin, size_t line)
{
    sw__config_value v = { .origin = origin, .line = line };
    SW_TRY(sw__config_parse_value(k, text, &v));
    if (origin < c->values[k].origin) return SW_OK; /* checked all the same */
    v.text = sw__strdup(text);
    if (v.text == NULL) return sw__no_memory(strlen(text), sw__keys[k].info.name);
    sw__free(c->values[k].text);
    c->values[k] = v;
    return SW_OK;
}

/* ---- the handle -------------------------------------------------------------------------------------------------- */

sw_status sw_config_new(sw_config **out)
{
    if (out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_config_new: out is NULL");
    sw_config *const c = sw__calloc(1, sizeof *c);
    if (c == NULL) return sw__no_memory(sizeof *c, "the configuration");
    for (int k = 0; k < SW_KEY_COUNT; k++) {
        const sw_status st = sw__config_store(c, (sw_key)k, sw__keys[k].info.fallback, SW_FROM_DEFAULT, 0);
        if (st == SW_OK) continue;
        sw_config_free(c);
        return st;
    }
    *out = c;
    return SW_OK;
}

void sw_config_free(sw_config *c)
{
    if (c == NULL) return;
    for (int k = 0; k < SW_KEY_COUNT; k++) sw__free(c->values[k].text);
    sw__text_free(&c->printed);
    sw__free(c);
}

sw_status sw_config_choose(sw_config *c, sw_key k, const char *value)
{
    if (c == NULL || value == NULL || (unsigned)k >= SW_KEY_COUNT)
        return sw__fail(SW_ERR_ARGUMENT, "sw_config_choose: configuration or value is NULL, or there is no such key");
    sw__config_value *const old = &c->values[k];
    if (old->origin != SW_FROM_DEFAULT && !old->is_auto && !old->chosen) {
        return sw__fail(SW_ERR_ARGUMENT, "%s was given as '%s', and is not changed to '%s'", sw__keys[k].info.name,
                        old->text, value);
    }
    SW_TRY(sw__config_store(c, k, value, old->origin, old->line));
    c->values[k].chosen = true;
    return SW_OK;
}

static bool known(const sw_config *c, sw_key k)
{
    return c != NULL && (unsigned)k < SW_KEY_COUNT;
}

sw_origin sw_config_origin(const sw_config *c, sw_key k)
{
    return known(c, k) ? c->values[k].origin : SW_FROM_DEFAULT;
}

bool sw_config_is_auto(const sw_config *c, sw_key k)
{
    return known(c, k) && c->values[k].is_auto;
}

static bool holds(const sw_config *c, sw_key k, sw_key_type type)
{
    return known(c, k) && sw__keys[k].info.type == type && !c->values[k].is_auto;
}

bool sw_config_bool(const sw_config *c, sw_key k)
{
    return holds(c, k, SW_KEY_BOOL) && c->values[k].v.b;
}

int64_t sw_config_int(const sw_config *c, sw_key k)
{
    return holds(c, k, SW_KEY_INT) ? c->values[k].v.i : 0;
}

double sw_config_number(const sw_config *c, sw_key k)
{
    return holds(c, k, SW_KEY_NUMBER) ? c->values[k].v.x[0] : 0;
}

double sw_config_pair(const sw_config *c, sw_key k, int i)
{
    return holds(c, k, SW_KEY_PAIR) && (i == 0 || i == 1) ? c->values[k].v.x[i] : 0;
}

const char *sw_config_text(const sw_config *c, sw_key k)
{
    return known(c, k) ? c->values[k].text : "";
}

/* ---- flags ------------------------------------------------------------------------------------------------------- */

sw_status sw__config_unknown(const char *name, const char *const *extra)
{
    if (sw__config_key_is_later(name)) return sw__fail(SW_ERR_FORMAT, "'%s' is not in this version", name);
    const char *candidates[SW_KEY_COUNT + 64];
    size_t n = 0;
    for (; n < SW_KEY_COUNT; n++) candidates[n] = sw__keys[n].info.name;
    for (; extra != NULL && *extra != NULL && n < SW_COUNT(candidates); extra++) candidates[n++] = *extra;
    char plain[64]; /* with _ as the candidates have it: a dash is no misspelling */
    snprintf(plain, sizeof plain, "%s", name);
    for (char *p = plain; *p != '\0'; p++) *p = *p == '-' ? '_' : *p;
    const char *const near = sw__nearest(plain, candidates, n);
    return near != NULL ? sw__fail(SW_ERR_FORMAT, "unknown key '%.100s'; did you mean '%s'?", name, near)
                        : sw__fail(SW_ERR_FORMAT, "unknown key '%.100s'", name);
}

/* In front of a parse error: where it was. */
static sw_status at_flag(sw_status st, const char *flag)
{
    if (st == SW_ERR_FORMAT) return sw__prefix(SW_ERR_ARGUMENT, "%s", flag);
    return st;
}

sw_status sw_config_set(sw_config *c, const char *name, const char *value)
{
    if (c == NULL || name == NULL || value == NULL)
        return sw__fail(SW_ERR_ARGUMENT, "sw_config_set: configuration, name or value is NULL");
    sw_key k;
    const sw_status st =
        sw_config_find(name, &k) ? sw__config_store(c, k, value, SW_FROM_ARGUMENT, 0) : sw__config_unknown(name, NULL);
    return at_flag(st, name);
}

/* The value of a flag without `=`: the next argument, or what the flag means alone. */
static sw_status separate_value(sw_key k, const char *flag, int argc, char *const *argv, int *i, const char **value)
{
    const sw__key_row *const row = &sw__keys[k];
    const char *const next = *i + 1 < argc ? argv[*i + 1] : NULL;
    bool unused;
    const bool usable = next != NULL && strncmp(next, "--", 2) != 0 &&
                        (row->info.type != SW_KEY_BOOL || parse_bool(next, &unused)) &&
                        (row->alone == NULL || next[0] != '-');
    if (!usable && row->alone == NULL) {
        return sw__fail(SW_ERR_ARGUMENT, "%s needs a value: %s%s%s", flag, expected(k),
                        row->info.choices != NULL ? " " : "", row->info.choices != NULL ? row->info.choices : "");
    }
    *value = usable ? next : row->alone;
    *i += usable ? 2 : 1;
    return SW_OK;
}

/* --no-preflight: false for a key of truth values, unless there is a key of that name (no_tune). */
static bool negated(const char *name, sw_key *k)
{
    sw_key own;
    const bool no = strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0;
    return no && !sw_config_find(name, &own) && sw_config_find(name + 3, k) && sw__keys[*k].info.type == SW_KEY_BOOL;
}

sw_status sw_config_argument(sw_config *c, int argc, char *const *argv, int *i, const char *const *extra, bool *taken)
{
    const char *const argument = argv[*i];
    *taken = false;
    if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0') return SW_OK;
    const char *const equals = strchr(argument, '=');
    char *const name =
        sw__strndup(argument + 2, equals != NULL ? (size_t)(equals - argument - 2) : strlen(argument + 2));
    if (name == NULL) return sw__no_memory(strlen(argument), "an argument");
    sw_key k;
    const char *value = equals != NULL ? equals + 1 : NULL;
    sw_status st = SW_OK;
    int next = *i;
    if (equals == NULL && negated(name, &k)) {
        st = at_flag(sw__config_store(c, k, "false", SW_FROM_ARGUMENT, 0), argument);
        next++;
    } else if (!sw_config_find(name, &k)) {
        st = at_flag(sw__config_unknown(name, extra), argument);
    } else {
        if (equals != NULL)
            next++;
        else
            st = separate_value(k, argument, argc, argv, &next, &value);
        if (st == SW_OK) st = at_flag(sw__config_store(c, k, value, SW_FROM_ARGUMENT, 0), argument);
    }
    sw__free(name);
    if (st != SW_OK) return st;
    *i = next;
    *taken = true;
    return SW_OK;
}
