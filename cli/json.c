/* json.c: writing JSON to a stream as it comes, without a tree in memory.
 * For every command's --json: one object per line. */
#include "cli.h"
#include <math.h>
#include <stdlib.h>

/* Commas: whether something stands before, at each depth. One stream is written at a time. */
#define DEPTH 8
static int depth;
static bool filled[DEPTH + 1];

static void put_string(FILE *f, const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    fputc('"', f);
    while (*p != '\0') {
        if (*p == '"' || *p == '\\') {
            fprintf(f, "\\%c", *p++);
        } else if (*p == '\n') {
            fputs("\\n", f);
            p++;
        } else if (*p < 0x20 || *p == 0x7f) {
            fprintf(f, "\\u%04x", *p++);
        } else if (*p < 0x80) {
            fputc(*p++, f);
        } else { /* a well-formed sequence is copied, anything else replaced byte by byte */
            static const struct {
                unsigned char mask, lead, low, high;
                int more;
            } kinds[] = {
                { 0xe0, 0xc0, 0x80, 0xbf, 1 },
                { 0xf0, 0xe0, 0x80, 0xbf, 2 },
                { 0xf8, 0xf0, 0x80, 0xbf, 3 },
            };
            int more = 0;
            for (size_t i = 0; i < CLI_COUNT(kinds); i++) {
                if ((*p & kinds[i].mask) == kinds[i].lead) more = kinds[i].more;
            }
            bool good = more > 0 && *p != 0xc0 && *p != 0xc1 && *p <= 0xf4;
            for (int i = 1; good && i <= more; i++) good = (p[i] & 0xc0) == 0x80;
            if (good && more == 2) good = !(p[0] == 0xe0 && p[1] < 0xa0) && !(p[0] == 0xed && p[1] > 0x9f);
            if (good && more == 3) good = !(p[0] == 0xf0 && p[1] < 0x90) && !(p[0] == 0xf4 && p[1] > 0x8f);
            if (good) {
                fwrite(p, 1, (size_t)more + 1, f);
                p += more + 1;
            } else {
                fputs("\\ufffd", f);
                p++;
            }
        }
    }
    fputc('"', f);
}

static void put_key(FILE *f, const char *key)
{
    if (filled[depth]) fputs(", ", f);
    filled[depth] = depth > 0;
    if (key == NULL) return;
    put_string(f, key);
    fputs(": ", f);
}

void cli_json_open(FILE *f, const char *key, char bracket)
{
    put_key(f, key);
    fputc(bracket, f);
    if (depth < DEPTH) depth++;
    filled[depth] = false;
}

void cli_json_close(FILE *f, char bracket)
{
    fputc(bracket, f);
    if (depth > 0) depth--;
    if (depth > 0) return;
    fputc('\n', f);
    fflush(f); /* whoever reads the lines wants them as they come */
}

void cli_json_text(FILE *f, const char *key, const char *s)
{
    put_key(f, key);
    if (s == NULL)
        fputs("null", f);
    else
        put_string(f, s);
}

void cli_json_number(FILE *f, const char *key, double x)
{
    put_key(f, key);
    if (!isfinite(x)) {
        fputs("null", f);
        return;
    }
    char b[40];
    for (int digits = 6; digits <= 17; digits++) { /* the fewest that read back to the same */
        snprintf(b, sizeof b, "%.*g", digits, x);
        if (digits == 17 || !(strtod(b, NULL) < x || strtod(b, NULL) > x)) break;
    }
    fputs(b, f);
}

void cli_json_single(FILE *f, const char *key, float x)
{
    put_key(f, key);
    if (isfinite(x))
        fprintf(f, "%.9g", (double)x);
    else
        fputs("null", f);
}

void cli_json_int(FILE *f, const char *key, int64_t x)
{
    put_key(f, key);
    fprintf(f, "%lld", (long long)x);
}

void cli_json_bool(FILE *f, const char *key, bool x)
{
    put_key(f, key);
    fputs(x ? "true" : "false", f);
}

void cli_json_note(const char *label, const char *text)
{
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, "note", '{');
    cli_json_text(stdout, "label", label);
    cli_json_text(stdout, "text", text);
    cli_json_close(stdout, '}');
    cli_json_close(stdout, '}');
}
