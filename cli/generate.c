/* generate.c: `swoop predict RUN --prompt TEXT`: a model of text writes on, each character shown as soon as it is there.
 * sw_run_generate hands over one token at a time; what is shown is UTF-8 whatever the tokens are. Called by predict.c. */
#include "cli.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    char *all;                /* --json: all of it, at the end */
    size_t n, capacity;
    unsigned char pending[4]; /* of a character whose last bytes are to come */
    size_t n_pending;
    const char *prompt;
    bool begun, line_ended, no_memory;
    int64_t tokens;
} writer;

static bool collect(writer *w, const char *s, size_t n)
{
    if (w->n + n + 1 > w->capacity) {
        char *const more = realloc(w->all, 2 * (w->n + n + 1));
        if (more == NULL) return false;
        w->all = more;
        w->capacity = 2 * (w->n + n + 1);
    }
    memcpy(w->all + w->n, s, n);
    w->n += n;
    w->all[w->n] = '\0';
    return true;
}

/* One whole character, or several bytes that need no care. A terminal gets no control characters but the ends of lines. */
static void put(writer *w, const char *s, size_t n)
{
    static const char replacement[] = "\xef\xbf\xbd";
    if (n == 0) return;
    if (cli.json) {
        const bool good = n > 1 || *s != '\0'; /* a string of JSON here ends with a 0 */
        w->no_memory |= !collect(w, good ? s : replacement, good ? n : 3);
        return;
    }
    const bool plain = !cli.tty_out || *s == '\n' || *s == '\t';
    if (plain) fwrite(s, 1, n, stdout);
    else cli_put(stdout, n == 1 && *s == '\0' ? "?" : s);
    if (cli.tty_out) fflush(stdout);
    w->line_ended = s[n - 1] == '\n';
}

/* Bytes that the character with this first byte has; 0: none begins so. */
static size_t whole(unsigned char first)
{
    return first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

/* Is b allowed as the next byte of the character? UTF-8 has neither longer forms, surrogates, nor more than U+10FFFF. */
static bool goes_on(const unsigned char *p, size_t n, unsigned char b)
{
    const unsigned char low = n == 1 && p[0] == 0xe0 ? 0xa0 : n == 1 && p[0] == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = n == 1 && p[0] == 0xed ? 0x9f : n == 1 && p[0] == 0xf4 ? 0x8f : 0xbf;
    return b >= low && b <= high;
}

static void drop_pending(writer *w)
{
    if (w->n_pending > 0) put(w, "\xef\xbf\xbd", 3);
    w->n_pending = 0;
}

static void put_byte(writer *w, unsigned char b)
{
    if (w->n_pending > 0 && !goes_on(w->pending, w->n_pending, b)) drop_pending(w);
    if (w->n_pending == 0 && whole(b) == 0) {
        put(w, "\xef\xbf\xbd", 3);
        return;
    }
    w->pending[w->n_pending++] = b;
    if (w->n_pending < whole(w->pending[0])) return;
    char text[5] = { 0 };
    memcpy(text, w->pending, w->n_pending);
    put(w, text, w->n_pending);
    w->n_pending = 0;
}

/* What the text goes on from stands in front of it. */
static void begin(writer *w)
{
    if (w->begun || cli.json) return;
    w->begun = true;
    fputs(cli_paint(stdout, CLI_BOLD), stdout);
    for (const char *s = w->prompt; *s != '\0'; s++) put_byte(w, (unsigned char)*s);
    drop_pending(w);
    fputs(cli_paint(stdout, CLI_PLAIN), stdout);
}

static sw_status each(void *context, const sw_token *t)
{
    writer *const w = context;
    begin(w);
    if (t->number) put(w, " ", 1);
    for (size_t i = 0; i < t->n; i++) put_byte(w, (unsigned char)t->text[i]);
    w->tokens++;
    if (w->no_memory) return SW_ERR_MEMORY;
    return ferror(stdout) ? SW_ERR_IO : SW_OK;
}

static void finish(writer *w, const cli_prompt *p)
{
    begin(w);
    drop_pending(w);
    if (!cli.json) {
        if (!w->line_ended) putchar('\n');
        return;
    }
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, "result", '{');
    cli_json_text(stdout, "prompt", p->prompt);
    cli_json_text(stdout, "text", w->all != NULL ? w->all : "");
    cli_json_int(stdout, "tokens", w->tokens);
    cli_json_int(stdout, "seed", p->seed);
    cli_json_close(stdout, '}');
    cli_json_close(stdout, '}');
}

/* The command never leaves C's locale for numbers. */
static bool read_temperature(const char *s, double *out)
{
    char *end = NULL;
    if ((*s < '0' || *s > '9') && *s != '.') return false;
    *out = strtod(s, &end);
    return end != s && *end == '\0' && *out >= 0 && *out < 1e6;
}

static bool read_top(const char *s, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = 0;
    if (strcmp(s, "all") == 0) return true;
    *out = strtoll(s, &end, 10);
    return end != s && *end == '\0' && errno == 0 && *out >= 1;
}

int cli_generate(const char *path, const cli_prompt *p)
{
    sw_generate_options o = { .prompt = p->prompt, .length = p->length, .temperature = 1, .seed = (uint64_t)p->seed,
                              .device = p->device, .threads = p->threads };
    writer w = { .prompt = p->prompt };
    if (p->temperature != NULL && !read_temperature(p->temperature, &o.temperature))
        return cli_error(CLI_USAGE, "--temperature is '%.60s', and must be a number from 0 (always the likeliest)", p->temperature);
    if (p->top != NULL && !read_top(p->top, &o.top))
        return cli_error(CLI_USAGE, "--top is '%.60s', and must be a whole number from 1, or all", p->top);
    const sw_status st = sw_run_generate(path, &o, each, &w);
    if (st == SW_OK) finish(&w, p);
    else if (w.begun && !w.line_ended) putchar('\n');
    free(w.all);
    if (w.no_memory) return cli_error(CLI_DEVICE, "out of memory: a text of %lld tokens", (long long)w.tokens);
    return st == SW_OK ? CLI_GOOD : cli_fail(st, p->device);
}
