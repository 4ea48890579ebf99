/* options.c: reading a command's arguments, its --help, and errors with their exit codes.
 * Between main.c and the commands. GNU style: --key value, --key=value; - and _ are the same. */
#include "cli.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_NAMES 128 /* options and keys of one command */

/* ---- the options that every command has -------------------------------------------------------------------------- */

static bool wants_help, no_color, more;

static const cli_option common[] = {
    { "json", NULL, "JSON for scripts: one object per line on stdout", CLI_FLAG, &cli.json, 0, 0 },
    { "quiet", NULL, "print errors only (and with --json the result)", CLI_FLAG, &cli.quiet, 0, 0 },
    { "verbose", NULL, "print more", CLI_FLAG, &more, 0, 0 },
    { "no-color", NULL, "no colours (also: NO_COLOR in the environment)", CLI_FLAG, &no_color, 0, 0 },
    { "help", NULL, "this text", CLI_FLAG, &wants_help, 0, 0 },
    { NULL, NULL, NULL, CLI_FLAG, NULL, 0, 0 },
};
static const struct {
    char letter;
    const char *name;
} letters[] = { { 'q', "quiet" }, { 'v', "verbose" }, { 'h', "help" } };

static bool same_name(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (b[i] == '\0' || (a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i])) return false;
    }
    return b[n] == '\0';
}

static const cli_option *find(const cli_arguments *a, const char *name, size_t n)
{
    for (const cli_option *o = a->options; o->name != NULL; o++) {
        if (same_name(name, o->name, n)) return o;
    }
    for (const cli_option *o = common; o->name != NULL; o++) {
        if (same_name(name, o->name, n)) return o;
    }
    return NULL;
}

/* ---- the nearest name -------------------------------------------------------------------------------------------- */

#define MAX_WORD 48

static char plain(char c)
{
    return c == '_' ? '-' : c;
}

/* Edit distance with neighbours swapped counted once (Damerau 1964); both words are at most MAX_WORD long. */
static size_t distance(const char *a, const char *b)
{
    const size_t m = strlen(a), n = strlen(b);
    size_t rows[3][MAX_WORD + 1];
    for (size_t j = 0; j <= n; j++) rows[0][j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t *const row = rows[i % 3], *const above = rows[(i + 2) % 3], *const two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            const char x = plain(a[i - 1]), y = plain(b[j - 1]);
            size_t best = above[j - 1] + (x != y);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && x == plain(b[j - 2]) && plain(a[i - 2]) == y && two_above[j - 2] + 1 < best) {
                best = two_above[j - 2] + 1;
            }
            row[j] = best;
        }
    }
    return rows[m % 3][n];
}

const char *cli_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *near = NULL;
    const size_t len = strlen(word);
    if (len > MAX_WORD) return NULL;
    size_t best = len / 3 > 1 ? len / 3 : 1;
    for (size_t i = 0; i < n; i++) {
        if (strlen(candidates[i]) > MAX_WORD) continue;
        const size_t d = distance(word, candidates[i]);
        if (d > best || (d == best && near != NULL)) continue;
        best = d;
        near = candidates[i];
    }
    return near;
}

/* ---- one option -------------------------------------------------------------------------------------------------- */

static int usage_error(const cli_command *self, const char *message)
{
    return cli_error(CLI_USAGE, "%s\n  swoop %s --help lists the options", message, self->name);
}

static int bad_value(const cli_command *self, const cli_option *o, const char *value)
{
    char message[512];
    if (o->type == CLI_NUMBER) {
        snprintf(message, sizeof message, "--%s is '%.100s', and must be a whole number from %d to %d", o->name, value,
                 o->least, o->most);
    } else {
        snprintf(message, sizeof message, "--%s is '%.100s', and must be one of %s", o->name, value, o->value);
    }
    return usage_error(self, message);
}

static bool is_choice(const char *choices, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = choices; p != NULL; p = strchr(p, '|'), p = p != NULL ? p + 1 : NULL) {
        if (n > 0 && strncmp(p, word, n) == 0 && (p[n] == '|' || p[n] == '\0')) return true;
    }
    return false;
}

/* Stores a value. Gives CLI_GOOD or the code of an error that was printed. */
static int store(const cli_command *self, const cli_option *o, const char *value)
{
    switch (o->type) {
    case CLI_FLAG:
        *(bool *)o->to = true;
        return CLI_GOOD;
    case CLI_NUMBER: {
        char *end;
        errno = 0;
        const long x = strtol(value, &end, 10);
        if (end == value || *end != '\0' || errno != 0 || x < o->least || x > o->most) return bad_value(self, o, value);
        *(int *)o->to = (int)x;
        return CLI_GOOD;
    }
    case CLI_CHOICE:
        if (!is_choice(o->value, value)) return bad_value(self, o, value);
        break;
    case CLI_TEXT:
        break;
    }
    *(const char **)o->to = value;
    return CLI_GOOD;
}

static size_t all_names(const cli_arguments *a, const char **names)
{
    size_t n = 0;
    for (const cli_option *o = a->options; o->name != NULL && n < MAX_NAMES - 1; o++) names[n++] = o->name;
    for (const cli_option *o = common; o->name != NULL && n < MAX_NAMES - 1; o++) names[n++] = o->name;
    names[n] = NULL;
    return n;
}

static int unknown_option(const cli_command *self, const cli_arguments *a, const char *name, size_t n)
{
    const char *names[MAX_NAMES];
    char word[MAX_WORD + 2], message[512];
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    const char *const near = cli_nearest(word, names, all_names(a, names));
    if (near != NULL)
        snprintf(message, sizeof message, "unknown option --%.100s; did you mean --%s?", word, near);
    else
        snprintf(message, sizeof message, "unknown option --%.100s", word);
    return usage_error(self, message);
}

/* A flag that is a key of the configuration, or nothing known at all. */
static int take_key(const cli_command *self, const cli_arguments *a, int argc, char **argv, int *i)
{
    const char *names[MAX_NAMES];
    bool taken = false;
    all_names(a, names);
    const sw_status st = sw_config_argument(a->config, argc, argv, i, names, &taken);
    if (st == SW_ERR_ARGUMENT) return usage_error(self, sw_error());
    if (st != SW_OK) return cli_fail(st, NULL);
    return taken ? CLI_GOOD : unknown_option(self, a, argv[*i] + 2, strlen(argv[*i] + 2));
}

static int take_long(const cli_command *self, const cli_arguments *a, int argc, char **argv, int *i)
{
    const char *const name = argv[*i] + 2, *const equals = strchr(name, '=');
    const size_t n = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const cli_option *const o = find(a, name, n);
    char message[256];
    if (o == NULL && a->config != NULL) return take_key(self, a, argc, argv, i);
    if (o == NULL) return unknown_option(self, a, name, n);
    if (o->type == CLI_FLAG && equals != NULL) {
        snprintf(message, sizeof message, "--%s takes no value", o->name);
        return usage_error(self, message);
    }
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (o->type != CLI_FLAG && equals == NULL) {
        if (*i + 1 >= argc) {
            snprintf(message, sizeof message, "--%s needs a value: %s", o->name, o->value);
            return usage_error(self, message);
        }
        value = argv[++*i];
    }
    ++*i;
    return store(self, o, value);
}

static int take_letters(const cli_command *self, const cli_arguments *a, const char *argument)
{
    char message[64];
    for (const char *p = argument + 1; *p != '\0'; p++) {
        const cli_option *o = NULL;
        for (size_t i = 0; i < CLI_COUNT(letters); i++) {
            if (letters[i].letter == *p) o = find(a, letters[i].name, strlen(letters[i].name));
        }
        if (o == NULL) {
            snprintf(message, sizeof message, "unknown option -%c; there are -q, -v and -h", *p < ' ' ? '?' : *p);
            return usage_error(self, message);
        }
        store(self, o, NULL);
    }
    return CLI_GOOD;
}

bool cli_parse(const cli_command *self, cli_arguments *a, int argc, char **argv, int *code)
{
    bool only_positional = false;
    *code = CLI_GOOD;
    for (int i = 1; i < argc && *code == CLI_GOOD;) {
        const char *const s = argv[i];
        more = false;
        if (only_positional || s[0] != '-' || s[1] == '\0') {
            if (a->n_positional == a->max_positional) {
                char message[256];
                snprintf(message, sizeof message, "one argument too many: '%.100s'; the form is: swoop %s %s", s,
                         self->name, self->usage);
                *code = usage_error(self, message);
            } else {
                a->positional[a->n_positional++] = s;
            }
            i++;
        } else if (strcmp(s, "--") == 0) {
            only_positional = true;
            i++;
        } else if (s[1] == '-') {
            *code = take_long(self, a, argc, argv, &i);
        } else {
            *code = take_letters(self, a, s);
            i++;
        }
        if (more) cli.verbose++;
        if (wants_help && *code == CLI_GOOD) {
            cli_help(self, a, stdout);
            return false;
        }
    }
    return *code == CLI_GOOD;
}

static int load(sw_config *c, const char *positional, const char *option)
{
    const char *const file = option != NULL ? option : positional;
    struct stat s;
    if (file == NULL) return CLI_GOOD;
    if (option != NULL && positional != NULL)
        return cli_error(CLI_USAGE, "two run files: '%s' and --config '%s'; give one", positional, option);
    if (stat(file, &s) == 0 && S_ISDIR(s.st_mode)) {
        return cli_error(CLI_USAGE,
                         "'%s' is a folder and not a run file; with the keys of the run in it: %s/config.yaml; to go on "
                         "with that run: swoop train --resume %s", file, file, file);
    }
    const sw_status st = sw_config_load(c, file);
    return st == SW_OK ? CLI_GOOD : cli_fail(st, NULL);
}

int cli_with_config(const cli_command *self, const cli_option *options, const char *const *config_file, int argc, char **argv,
                    int (*go)(sw_config *c, void *context), void *context)
{
    const char *file = NULL;
    sw_config *c = NULL;
    const sw_status st = sw_config_new(&c);
    if (st != SW_OK) return cli_fail(st, NULL);
    cli_arguments a = { .options = options, .config = c, .positional = &file, .max_positional = 1 };
    int code;
    if (cli_parse(self, &a, argc, argv, &code)) {
        code = load(c, file, config_file != NULL ? *config_file : NULL);
        if (code == CLI_GOOD) code = go(c, context);
    }
    sw_config_free(c);
    return code;
}

/* ---- --help ------------------------------------------------------------------------------------------------------ */

#define HELP_WIDTH 80
#define HELP_COLUMN 27

static void help_line(FILE *f, const char *name, const char *value, const char *help, const char *tail)
{
    char left[160], text[512];
    int n = snprintf(left, sizeof left, "  --%s%s%s", name, value != NULL ? " " : "", value != NULL ? value : "");
    for (int i = 4; i < n && left[i] != ' '; i++) left[i] = left[i] == '_' ? '-' : left[i];
    snprintf(text, sizeof text, "%s%s", help, tail);
    fputs(left, f);
    if (n > HELP_COLUMN - 2) {
        fputc('\n', f);
        n = 0;
    }
    fprintf(f, "%*s", HELP_COLUMN - n, "");
    cli_wrap(f, HELP_COLUMN, HELP_COLUMN, HELP_WIDTH, text);
    fputc('\n', f);
}

static void help_head(FILE *f, const char *title)
{
    fprintf(f, "\n%s%s%s\n", cli_paint(f, CLI_BOLD), title, cli_paint(f, CLI_PLAIN));
}

/* Few choices as a|b|c; many as words that can be wrapped. */
static const char *list_choices(const char *choices, char *out, size_t size)
{
    size_t n = 0;
    for (const char *p = choices; *p != '\0' && n + 3 < size; p++) {
        if (*p == '|' && strlen(choices) > 50) {
            out[n++] = ',';
            out[n++] = ' ';
        } else {
            out[n++] = *p;
        }
    }
    out[n] = '\0';
    return out;
}

static void help_keys(FILE *f)
{
    static const char *const values[] = { [SW_KEY_BOOL] = "BOOL", [SW_KEY_INT] = "N",       [SW_KEY_NUMBER] = "X",
                                          [SW_KEY_PAIR] = "X,Y",  [SW_KEY_CHOICE] = "NAME", [SW_KEY_STRING] = "TEXT" };
    const char *group = "";
    for (int k = 0; k < SW_KEY_COUNT; k++) {
        const sw_key_info *const key = sw_config_about((sw_key)k);
        char title[96], tail[512];
        if (strcmp(group, key->group) != 0) {
            group = key->group;
            snprintf(title, sizeof title, "Keys: %s", group);
            help_head(f, title);
        }
        char choices_text[256];
        const char *const choices = key->type == SW_KEY_CHOICE && strchr(key->choices, '|') != NULL
                                        ? list_choices(key->choices, choices_text, sizeof choices_text) : NULL;
        snprintf(tail, sizeof tail, "%s%s%s%s%s", choices != NULL ? ": " : "", choices != NULL ? choices : "",
                 *key->fallback != '\0' ? " [" : "", key->fallback, *key->fallback != '\0' ? "]" : "");
        help_line(f, key->name, values[key->type], key->help, tail);
    }
}

/* Indented lines; those that begin with # (what the next one does) keep their place. */
static void help_examples(FILE *f, const char *lines)
{
    for (const char *p = lines; *p != '\0';) {
        const size_t n = strcspn(p, "\n");
        fprintf(f, "  %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
}

void cli_help(const cli_command *self, const cli_arguments *a, FILE *f)
{
    fprintf(f, "%sswoop %s%s %s\n\n", cli_paint(f, CLI_BOLD), self->name, cli_paint(f, CLI_PLAIN), self->usage);
    cli_wrap(f, 0, 0, HELP_WIDTH, self->text);
    fputc('\n', f);
    help_head(f, "Examples");
    help_examples(f, self->examples);
    help_head(f, "Options");
    for (const cli_option *o = a->options; o->name != NULL; o++) help_line(f, o->name, o->value, o->help, "");
    for (const cli_option *o = common; o->name != NULL; o++) {
        char name[32];
        snprintf(name, sizeof name, "%s", o->name);
        for (size_t i = 0; i < CLI_COUNT(letters); i++) {
            if (strcmp(letters[i].name, o->name) == 0)
                snprintf(name, sizeof name, "%s, -%c", o->name, letters[i].letter);
        }
        help_line(f, name, NULL, o->help, "");
    }
    if (a->config != NULL) help_keys(f);
    help_head(f, "Exit codes");
    fputs("  0 good   1 data or configuration   2 usage   3 device or memory\n"
          "  4 diverged (NaN)   5 verify: not equal   130 interrupted, checkpoint saved\n",
          f);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static int report(int code, const char *status, const char *message)
{
    fflush(stdout);
    const char *const kind = code == CLI_INTERRUPTED ? "swoop:" : "swoop: error:"; /* to stop is no mistake */
    fprintf(stderr, "%s%s%s ", cli_paint(stderr, CLI_RED), kind, cli_paint(stderr, CLI_PLAIN));
    for (const char *line = message; *line != '\0';) { /* lines are ours, other control characters are not */
        const size_t n = strcspn(line, "\n");
        char part[1200];
        snprintf(part, sizeof part, "%.*s", (int)n, line);
        cli_put(stderr, part);
        fputc('\n', stderr);
        line += n + (line[n] == '\n');
    }
    if (!cli.json) return code;
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, "error", '{');
    cli_json_int(stdout, "code", code);
    cli_json_text(stdout, "status", status);
    cli_json_text(stdout, "message", message);
    cli_json_close(stdout, '}');
    cli_json_close(stdout, '}');
    return code;
}

int cli_error(int code, const char *fmt, ...)
{
    char message[1600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return report(code, code == CLI_USAGE ? "usage" : code == CLI_INTERRUPTED ? "interrupted" : "error", message);
}

/* A device that was asked for by a name that none has. */
static bool no_such_device(const char *id)
{
    sw_device_properties list[32];
    if (id != NULL && strcmp(id, "auto") == 0) id = getenv("SWOOP_DEVICE");
    if (id == NULL || strcmp(id, "auto") == 0) return false;
    const int n = sw_device_list(list, (int)CLI_COUNT(list), true);
    for (int i = 0; i < n && i < (int)CLI_COUNT(list); i++) {
        if (strcmp(list[i].id, id) == 0) return false;
    }
    return true;
}

int cli_code(sw_status st, const char *device)
{
    static const int codes[SW_STATUS_COUNT] = {
        [SW_OK] = CLI_GOOD,           [SW_ERR_ARGUMENT] = CLI_DATA,     [SW_ERR_SHAPE] = CLI_DATA,
        [SW_ERR_MEMORY] = CLI_DEVICE, [SW_ERR_IO] = CLI_DATA,           [SW_ERR_FORMAT] = CLI_DATA,
        [SW_ERR_DATA] = CLI_DATA,     [SW_ERR_UNSUPPORTED] = CLI_DATA,  [SW_ERR_DEVICE] = CLI_DEVICE,
        [SW_ERR_THREAD] = CLI_DEVICE, [SW_ERR_DIVERGED] = CLI_DIVERGED, [SW_ERR_INTERRUPTED] = CLI_INTERRUPTED,
    };
    if (st == SW_ERR_ARGUMENT && no_such_device(device)) return CLI_DEVICE;
    return (unsigned)st < SW_STATUS_COUNT ? codes[st] : CLI_DATA;
}

int cli_fail(sw_status st, const char *device)
{
    const int code = cli_code(st, device);
    return report(code, sw_status_name(st), *sw_error() != '\0' ? sw_error() : sw_status_name(st));
}

int cli_finish(int code)
{
    errno = 0;
    const bool bad = fflush(stdout) != 0 || ferror(stdout);
    if (!bad || code != CLI_GOOD) return code;
    fprintf(stderr, "swoop: error: the output could not be written: %s\n",
            errno != 0 ? strerror(errno) : "write error");
    return CLI_DATA;
}
