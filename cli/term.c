/* term.c: what the terminal can do, and text fitted to it: width, colours, wrapping, characters it may not have.
 * Under every command's output. */
#include "cli.h"
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

cli_state cli;

/* A standard stream that the caller closed stays unusable (read-only, so that writing fails): otherwise the next file
 * that is opened gets its number, and what is printed lands in a checkpoint. */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;
    }
}

void cli_start(int argc, char *const *argv)
{
    hold_standard_streams();
    setlocale(LC_CTYPE, ""); /* only characters: numbers are written the same everywhere */
    cli.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        cli.json = cli.json || strcmp(argv[i], "--json") == 0;
        cli.no_color = cli.no_color || strcmp(argv[i], "--no-color") == 0 || strcmp(argv[i], "--no_color") == 0;
    }
    const char *const term = getenv("TERM"), *const no_color = getenv("NO_COLOR");
    const bool dumb = term == NULL || *term == '\0' || strcmp(term, "dumb") == 0;
    const bool color = !dumb && !cli.no_color && (no_color == NULL || *no_color == '\0');
    cli.tty_out = isatty(STDOUT_FILENO) == 1;
    cli.tty_err = isatty(STDERR_FILENO) == 1 && !dumb;
    cli.color_out = color && cli.tty_out;
    cli.color_err = color && cli.tty_err;
}

int cli_columns(void)
{
    struct winsize w;
    static const int streams[] = { STDERR_FILENO, STDOUT_FILENO };
    for (size_t i = 0; i < CLI_COUNT(streams); i++) {
        if (ioctl(streams[i], TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    }
    return 80;
}

const char *cli_paint(FILE *f, cli_color c)
{
    static const char *const codes[] = { "\033[0m", "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[33m" };
    return (f == stdout ? cli.color_out : f == stderr && cli.color_err) ? codes[c] : "";
}

const char *cli_sign(const char *utf8, const char *ascii)
{
    return cli.utf8 ? utf8 : ascii;
}

/* One character of s: its bytes in *n, what to write instead in *out (of *out_n bytes), its columns. */
static int one_character(const char *s, size_t *n, const char **out, size_t *out_n)
{
    static const struct {
        const char *from, *to;
    } ascii[] = {
        { "×", "x" }, { "→", "->" }, { "·", "|" }, { "−", "-" }, { "…", "..." }, { "±", "+-" }, { "–", "-" },
    };
    const unsigned char c = (unsigned char)*s;
    *out = s;
    *n = *out_n = 1;
    if (c < 0x20 || c == 0x7f) *out = "?";
    if (c < 0x80) return 1;
    if (!cli.utf8) {
        for (size_t i = 0; i < CLI_COUNT(ascii); i++) {
            const size_t len = strlen(ascii[i].from);
            if (strncmp(s, ascii[i].from, len) != 0) continue;
            *n = len;
            *out = ascii[i].to;
            *out_n = strlen(*out);
            return (int)*out_n;
        }
        return 1; /* names of files stay as they are */
    }
    wchar_t w;
    mbstate_t state = { 0 };
    const size_t len = mbrtowc(&w, s, strlen(s), &state);
    if (len == 0 || len > 4) {
        *out = "?";
        return 1;
    }
    const int columns = wcwidth(w);
    if (columns < 0) *out = "?";
    *n = len;
    *out_n = columns < 0 ? 1 : len;
    return columns < 0 ? 1 : columns;
}

size_t cli_width(const char *s)
{
    size_t columns = 0, n, out_n;
    const char *out;
    for (; *s != '\0'; s += n) columns += (size_t)one_character(s, &n, &out, &out_n);
    return columns;
}

static void put_part(FILE *f, const char *s, const char *end)
{
    size_t n, out_n;
    const char *out;
    for (; s < end && *s != '\0'; s += n) {
        one_character(s, &n, &out, &out_n);
        fwrite(out, 1, out_n, f);
    }
}

const char *cli_visible(const char *s, char *buffer, size_t size)
{
    static const char control[] = "abtnvfr";
    size_t n = 0;
    bool plain = s[strspn(s, " ")] != '\0';
    for (const unsigned char *p = (const unsigned char *)s; *p != '\0'; p++) plain = plain && *p >= 0x20 && *p != 0x7f;
    if (plain || size < 8) return s;
    buffer[n++] = '"';
    for (const unsigned char *p = (const unsigned char *)s; *p != '\0' && n + 6 < size; p++) {
        if (*p >= 7 && *p <= 13) n += (size_t)snprintf(buffer + n, size - n, "\\%c", control[*p - 7]);
        else if (*p < 0x20 || *p == 0x7f) n += (size_t)snprintf(buffer + n, size - n, "\\x%02x", *p);
        else buffer[n++] = (char)*p;
    }
    buffer[n++] = '"';
    buffer[n] = '\0';
    return buffer;
}

void cli_put(FILE *f, const char *s)
{
    put_part(f, s, s + strlen(s));
}

void cli_pad(FILE *f, const char *s, int columns, bool right)
{
    const int width = (int)cli_width(s);
    if (right && width < columns) fprintf(f, "%*s", columns - width, "");
    if (width <= columns) {
        cli_put(f, s);
    } else { /* cut, with a sign of it */
        const char *const dots = cli_sign("…", "~");
        int used = 0;
        for (size_t n, out_n; used < columns - 1; s += n) {
            const char *out;
            const int c = one_character(s, &n, &out, &out_n);
            if (used + c > columns - 1) break;
            used += c;
            fwrite(out, 1, out_n, f);
        }
        fprintf(f, "%s%*s", dots, columns - 1 - used, "");
    }
    if (!right && width < columns) fprintf(f, "%*s", columns - width, "");
}

void cli_wrap(FILE *f, int column, int indent, int width, const char *s)
{
    bool first = true;
    while (*s != '\0') {
        while (*s == ' ') s++;
        const char *end = s + strcspn(s, " \n");
        if (end[0] == ' ' && end[1] == '%') end += 1 + strcspn(end + 1, " \n"); /* "5 %" stays together */
        char word[256];
        const size_t n = (size_t)(end - s) < sizeof word - 1 ? (size_t)(end - s) : sizeof word - 1;
        memcpy(word, s, n);
        word[n] = '\0';
        const int w = (int)cli_width(word);
        if (!first && column + 1 + w > width) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', f);
            column++;
        }
        put_part(f, s, end);
        column += w;
        first = false;
        s = end;
        if (*s == '\n') {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
            first = true;
            s++;
        }
    }
}
