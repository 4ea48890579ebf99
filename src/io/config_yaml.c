/* config_yaml.c: run files: a flat YAML map read event by event, with line numbers; and printed, as YAML and as JSON.
 * In io, on libyaml; values and precedence are config.c's. */
#include "io/config.h"
#include "io/json.h"
#include "io/stream.h"
#include "swoop/io.h"
#include <inttypes.h>
#ifdef SWOOP_HAVE_YAML
#include <yaml.h>
#endif

enum { FILE_MOST = 1024 * 1024, DEPTH_MOST = 64 }; /* a run file has a few hundred bytes */

#ifdef SWOOP_HAVE_YAML
typedef struct reader {
    sw_config *config;
    const char *name;
    yaml_parser_t parser;
    yaml_event_t event;
    bool holds_event;
    size_t seen[SW_KEY_COUNT]; /* line of each key in this file, 0: not yet */
} reader;

static size_t line_of(const reader *r)
{
    return r->event.start_mark.line + 1;
}

static sw_status at_line(const reader *r, size_t line, sw_status st)
{
    return st == SW_ERR_FORMAT ? sw__prefix(st, "%s:%zu", r->name, line) : st;
}

/* Goes on to the next event. */
static sw_status next(reader *r)
{
    if (r->holds_event) yaml_event_delete(&r->event);
    r->holds_event = yaml_parser_parse(&r->parser, &r->event) != 0;
    if (r->holds_event) return SW_OK;
    if (r->parser.error == YAML_MEMORY_ERROR) return sw__no_memory(0, r->name);
    const size_t line = r->parser.error == YAML_READER_ERROR ? 0 : r->parser.problem_mark.line + 1;
    const char *const problem = r->parser.problem != NULL ? r->parser.problem : "not YAML";
    if (line > 0) return sw__fail(SW_ERR_FORMAT, "%s:%zu: %s", r->name, line, problem);
    return sw__fail(SW_ERR_FORMAT, "%s: byte %zu: %s", r->name, r->parser.problem_offset, problem);
}

static const char *scalar(const reader *r)
{
    return (const char *)r->event.data.scalar.value;
}

/* libyaml keeps NUL characters ("\0" in quotes); as a C string such a value would be another one. */
static sw_status check_scalar(const reader *r, const char *what)
{
    if (r->event.type == YAML_ALIAS_EVENT) {
        return at_line(r, line_of(r), sw__fail(SW_ERR_FORMAT, "aliases (*name) are not read here"));
    }
    if (r->event.type != YAML_SCALAR_EVENT) {
        return at_line(r, line_of(r), sw__fail(SW_ERR_FORMAT, "%s should be a single word or number", what));
    }
    if (strlen(scalar(r)) == r->event.data.scalar.length) return SW_OK;
    return at_line(r, line_of(r), sw__fail(SW_ERR_FORMAT, "%s has a NUL character in it", what));
}

/* The items of a list, joined with commas: betas: [0.9, 0.999]. */
static sw_status read_list(reader *r, sw_key k, sw__text *value)
{
    const char *const name = sw__keys[k].info.name;
    const size_t line = line_of(r);
    for (size_t n = 0;; n++) {
        SW_TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) break;
        SW_TRY(check_scalar(r, name));
        sw__text_add(value, "%s%s", n > 0 ? "," : "", scalar(r));
    }
    sw__text_add(value, "%s", "");
    if (sw__keys[k].info.type == SW_KEY_PAIR) return SW_OK;
    return at_line(r, line, sw__fail(SW_ERR_FORMAT, "%s takes one value, not a list", name));
}

static bool is_null(const yaml_event_t *e)
{
    static const char *const words[] = { "", "~", "null", "Null", "NULL" };
    if (e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    for (size_t i = 0; i < SW_COUNT(words); i++) {
        if (strcmp((const char *)e->data.scalar.value, words[i]) == 0) return true;
    }
    return false;
}

/* The value of key k: the present event is its first. */
static sw_status read_value(reader *r, sw_key k)
{
    const char *const name = sw__keys[k].info.name;
    const size_t line = line_of(r);
    sw__text value = { 0 };
    sw_status st = SW_OK;
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        return at_line(r, line,
                       sw__fail(SW_ERR_FORMAT, "%s takes one value; nested maps are not in this version", name));
    } else if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        st = read_list(r, k, &value);
    } else {
        SW_TRY(check_scalar(r, name));
        if (is_null(&r->event)) {
            return at_line(r, line,
                           sw__fail(SW_ERR_FORMAT, "%s has no value; leave the key out for its default (%s)", name,
                                    sw__keys[k].info.fallback));
        }
        sw__text_add(&value, "%s", scalar(r));
    }
    if (st == SW_OK && value.failed) st = sw__no_memory(value.len, r->name);
    if (st == SW_OK) st = at_line(r, line, sw__config_store(r->config, k, value.s, SW_FROM_FILE, line));
    sw__text_free(&value);
    return st;
}

/* ---- layers: a list of lists and maps, kept as JSON --------------------------------------------------------------- */

/* Is a plain scalar a number as JSON has them? */
static bool is_json_number(const char *s)
{
    const char *p = s + (*s == '-');
    const size_t whole = strspn(p, "0123456789");
    if (whole == 0 || (whole > 1 && *p == '0')) return false;
    p += whole;
    if (*p == '.') {
        const size_t part = strspn(p + 1, "0123456789");
        if (part == 0) return false;
        p += 1 + part;
    }
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '+' || p[1] == '-');
        const size_t power = strspn(p, "0123456789");
        if (power == 0) return false;
        p += power;
    }
    return *p == '\0';
}

static void add_scalar(const reader *r, sw__text *t)
{
    const char *const s = scalar(r);
    const bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && is_null(&r->event)) sw__text_add(t, "null");
    else if (plain && (strcmp(s, "true") == 0 || strcmp(s, "false") == 0 || is_json_number(s))) sw__text_add(t, "%s", s);
    else sw__json_string(t, s);
}

/* The value whose first event is the present one, to its last. */
static sw_status add_json(reader *r, sw__text *t, int depth) // NOLINT(misc-no-recursion)
{
    const bool map = r->event.type == YAML_MAPPING_START_EVENT;
    if (!map && r->event.type != YAML_SEQUENCE_START_EVENT) {
        SW_TRY(check_scalar(r, "an option"));
        add_scalar(r, t);
        return SW_OK;
    }
    if (depth > DEPTH_MOST) return at_line(r, line_of(r), sw__fail(SW_ERR_FORMAT, "layers are nested more than %d deep", DEPTH_MOST));
    const yaml_event_type_t end = map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    sw__text_add(t, map ? "{" : "[");
    for (size_t n = 0;; n++) {
        SW_TRY(next(r));
        if (r->event.type == end) break;
        if (n > 0) sw__text_add(t, ", ");
        if (map) {
            SW_TRY(check_scalar(r, "the name of an option"));
            sw__json_string(t, scalar(r));
            sw__text_add(t, ": ");
            SW_TRY(next(r));
        }
        SW_TRY(add_json(r, t, depth + 1));
    }
    sw__text_add(t, map ? "}" : "]");
    return SW_OK;
}

/* `layers:` is a way to write the key model. */
static sw_status read_layers(reader *r)
{
    const size_t line = line_of(r);
    if (r->seen[SW_KEY_MODEL] != 0)
        return at_line(r, line, sw__fail(SW_ERR_FORMAT, "layers is a model of its own, and model or layers stands in line %zu",
                                         r->seen[SW_KEY_MODEL]));
    r->seen[SW_KEY_MODEL] = line;
    SW_TRY(next(r));
    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return at_line(r, line, sw__fail(SW_ERR_FORMAT, "layers takes a list: `- linear: 10`, a line for each layer"));
    sw__text value = { 0 };
    sw__text_add(&value, "%s", SW_LAYERS_PREFIX);
    sw_status st = add_json(r, &value, 0);
    if (st == SW_OK && value.failed) st = sw__no_memory(value.len, r->name);
    if (st == SW_OK) st = at_line(r, line, sw__config_store(r->config, SW_KEY_MODEL, value.s, SW_FROM_FILE, line));
    sw__text_free(&value);
    return st;
}

static sw_status read_key(reader *r)
{
    SW_TRY(check_scalar(r, "a key"));
    const size_t line = line_of(r);
    sw_key k;
    if (strcmp(scalar(r), "layers") == 0) return read_layers(r);
    if (!sw_config_find(scalar(r), &k)) return at_line(r, line, sw__config_unknown(scalar(r), NULL));
    if (r->seen[k] != 0) {
        return at_line(r, line,
                       sw__fail(SW_ERR_FORMAT, "%s is given a second time; the first is in line %zu",
                                sw__keys[k].info.name, r->seen[k]));
    }
    r->seen[k] = line;
    SW_TRY(next(r));
    return read_value(r, k);
}

static sw_status read_stream(reader *r)
{
    SW_TRY(next(r)); /* stream start */
    SW_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return SW_OK; /* empty, or comments only */
    SW_TRY(next(r));
    if (r->event.type == YAML_SCALAR_EVENT && is_null(&r->event)) return next(r); /* "---" and nothing */
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        return at_line(r, line_of(r), sw__fail(SW_ERR_FORMAT, "a run file is a map of keys, such as `epochs: 5`"));
    }
    for (;;) {
        SW_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) break;
        SW_TRY(read_key(r));
    }
    SW_TRY(next(r)); /* document end */
    SW_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return SW_OK;
    return at_line(r, line_of(r), sw__fail(SW_ERR_FORMAT, "a second document begins here; a run file is one"));
}

sw_status sw_config_parse(sw_config *c, const char *name, const void *yaml, size_t n)
{
    if (c == NULL || name == NULL || (yaml == NULL && n > 0))
        return sw__fail(SW_ERR_ARGUMENT, "sw_config_parse: configuration, name or text is NULL");
    reader r = { .config = c, .name = name };
    if (!yaml_parser_initialize(&r.parser)) return sw__no_memory(sizeof r.parser, name);
    yaml_parser_set_input_string(&r.parser, yaml, n);
    const sw_status st = read_stream(&r);
    if (r.holds_event) yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return st;
}
#else
sw_status sw_config_parse(sw_config *c, const char *name, const void *yaml, size_t n)
{
    (void)c;
    (void)yaml;
    (void)n;
    return sw__fail(SW_ERR_UNSUPPORTED, "%s: run files need libyaml, and swoop was built without it; flags work", name);
}
#endif

sw_status sw_config_load(sw_config *c, const char *path)
{
    if (c == NULL || path == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_config_load: configuration or path is NULL");
    char *text;
    size_t n;
    SW_TRY(sw__file_read(path, FILE_MOST, &text, &n));
    const sw_status st = sw_config_parse(c, path, text, n);
    sw__free(text);
    return st;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* A text that is safe without quotes, for us and for any other YAML reader: it begins like a name or a path, goes on
 * with harmless characters, and is no word that YAML takes for something else. */
static bool is_plain(const char *s)
{
    static const char *const words[] = { "true", "false", "yes", "no", "on", "off", "null", "y", "n" };
    if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/", s[0]) == NULL || s[0] == '\0') return false;
    if (s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-")] != '\0') return false;
    for (size_t i = 0; i < SW_COUNT(words); i++) {
        if (strcasecmp(s, words[i]) == 0) return false;
    }
    return true;
}

static sw_status printed(sw_config *c, const char **out)
{
    if (c->printed.failed) return sw__no_memory(c->printed.len, "printing the configuration");
    *out = c->printed.s;
    return SW_OK;
}

sw_status sw_config_yaml(sw_config *c, const char **out)
{
    if (c == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_config_yaml: configuration or out is NULL");
    sw__text *const t = &c->printed;
    sw__text_free(t);
    for (int k = 0; k < SW_KEY_COUNT; k++) {
        const sw_key_info *const info = &sw__keys[k].info;
        const char *const text = c->values[k].text;
        if (sw__keys[k].how) continue;
        const char *const layers = k == SW_KEY_MODEL ? sw_model_layers_of(text) : NULL;
        if (layers != NULL) {
            sw__text_add(t, "layers: %s\n", layers); /* JSON is YAML */
            continue;
        }
        sw__text_add(t, "%s: ", info->name);
        if (info->type == SW_KEY_PAIR && !c->values[k].is_auto) {
            const char *const comma = strchr(text, ',');
            const int first = comma != NULL ? (int)(comma - text) : 0;
            sw__text_add(t, "[%.*s, %s]", first, text, text + first + 1 + strspn(text + first + 1, " "));
        } else if (info->type != SW_KEY_STRING || is_plain(text)) {
            sw__text_add(t, "%s", text);
        } else {
            sw__json_string(t, text); /* JSON's quoted strings are YAML's */
        }
        sw__text_add(t, "\n");
    }
    return printed(c, out);
}

static void add_json_value(sw__text *t, sw_key k, const sw__config_value *v)
{
    const sw_key_type type = v->is_auto ? SW_KEY_STRING : sw__keys[k].info.type;
    switch (type) {
    case SW_KEY_BOOL:
        sw__text_add(t, "%s", v->v.b ? "true" : "false");
        break;
    case SW_KEY_INT:
        sw__text_add(t, "%" PRId64, v->v.i);
        break;
    case SW_KEY_NUMBER:
        sw__json_number(t, v->v.x[0]);
        break;
    case SW_KEY_PAIR:
        sw__text_add(t, "[");
        sw__json_number(t, v->v.x[0]);
        sw__text_add(t, ",");
        sw__json_number(t, v->v.x[1]);
        sw__text_add(t, "]");
        break;
    case SW_KEY_CHOICE:
    case SW_KEY_STRING:
        sw__json_string(t, v->text);
        break;
    }
}

sw_status sw_config_json(sw_config *c, const char **out)
{
    if (c == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_config_json: configuration or out is NULL");
    sw__text *const t = &c->printed;
    sw__text_free(t);
    for (int k = 0; k < SW_KEY_COUNT; k++) {
        sw__text_add(t, "%s\"%s\":", k > 0 ? "," : "{", sw__keys[k].info.name);
        add_json_value(t, (sw_key)k, &c->values[k]);
    }
    sw__text_add(t, "}");
    return printed(c, out);
}
