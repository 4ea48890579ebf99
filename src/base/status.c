/* status.c: the message of each thread's last failure, and the names of statuses.
 * Lowest floor: every function that can fail ends up here when it does. */
#include "base/base.h"

#include <stdio.h>

#ifndef SWOOP_VERSION
#define SWOOP_VERSION "unversioned build"
#endif

/* The names in parentheses below are functions that base.h covers with macros for the analyzer. */

enum { MESSAGE_BYTES = 1024 };

static _Thread_local char message[MESSAGE_BYTES];

static const char *const status_names[SW_STATUS_COUNT] = {
    [SW_OK] = "ok",
    [SW_ERR_ARGUMENT] = "wrong argument",
    [SW_ERR_SHAPE] = "shapes or data types do not fit",
    [SW_ERR_MEMORY] = "out of memory",
    [SW_ERR_IO] = "file operation failed",
    [SW_ERR_FORMAT] = "malformed file",
    [SW_ERR_DATA] = "unusable data",
    [SW_ERR_UNSUPPORTED] = "not supported",
    [SW_ERR_DEVICE] = "device failed",
    [SW_ERR_THREAD] = "thread could not be started",
    [SW_ERR_DIVERGED] = "training diverged",
    [SW_ERR_INTERRUPTED] = "interrupted",
};

const char *sw_status_name(sw_status s)
{
    return (unsigned)s < SW_STATUS_COUNT ? status_names[s] : "unknown status";
}

const char *sw_error(void)
{
    return message;
}

const char *sw_version(void)
{
    return SWOOP_VERSION;
}

/* A cut must not leave half a UTF-8 character at the end. */
static void trim_partial_utf8(char *s, size_t len)
{
    size_t start = len;
    while (start > 0 && ((unsigned char)s[start - 1] & 0xC0u) == 0x80u) start--;
    if (start == 0) return;
    const unsigned char lead = (unsigned char)s[start - 1];
    const size_t want = lead >= 0xF0u ? 4 : lead >= 0xE0u ? 3 : lead >= 0xC0u ? 2 : 1;
    if (want > 1 && len - (start - 1) < want) s[start - 1] = '\0';
}

/* Formats into buf and returns the length it has there; arguments may point into `message`, so buf is never it. */
static size_t format(char *buf, size_t size, const char *fmt, va_list ap)
{
    const int n = vsnprintf(buf, size, fmt, ap);
    if (n < 0) {
        buf[0] = '\0';
        return 0;
    }
    if ((size_t)n < size) return (size_t)n;
    trim_partial_utf8(buf, size - 1);
    return strlen(buf);
}

/* Bytes of the character at s that may stand in a message as it is; 0: a control character, or none of UTF-8 (RFC 3629). Line
 * ends are ours: compilers' logs have them. */
static size_t fair_character(const unsigned char *s)
{
    if (*s < 0x80) return *s == '\n' || *s == '\t' || (*s >= 0x20 && *s != 0x7f);
    const size_t n = *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : 2;
    if (*s < 0xc2 || *s > 0xf4) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    const bool longer = (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xf0 && s[1] < 0x90); /* than it has to be */
    const bool beyond = (*s == 0xed && s[1] > 0x9f) || (*s == 0xf4 && s[1] > 0x8f) || (*s == 0xc2 && s[1] < 0xa0);
    return longer || beyond ? 0 : n;
}

/* Messages quote what users, files and drivers gave: bytes that are no text become \xNN, so that no terminal and no JSON has to
 * care. */
static void keep_escaped(const char *text)
{
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0';) {
        const size_t fair = fair_character(p), take = fair > 0 ? fair : 4;
        if (n + take >= MESSAGE_BYTES) break;
        if (fair > 0) memcpy(message + n, p, fair);
        else {
            static const char digits[] = "0123456789abcdef";
            memcpy(message + n, (char[]){ '\\', 'x', digits[*p >> 4], digits[*p & 15] }, 4);
        }
        n += take;
        p += fair > 0 ? fair : 1;
    }
    message[n] = '\0';
}

sw_status (sw__failv)(sw_status s, const char *fmt, va_list ap)
{
    char text[MESSAGE_BYTES];
    format(text, sizeof text, fmt, ap);
    keep_escaped(text);
    return s;
}

sw_status (sw__fail)(sw_status s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    sw__failv(s, fmt, ap);
    va_end(ap);
    return s;
}

sw_status (sw__prefix)(sw_status s, const char *fmt, ...)
{
    char text[MESSAGE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    size_t len = format(text, sizeof text, fmt, ap);
    va_end(ap);
    static const char separator[] = ": ";
    for (const char *from = separator; *from != '\0' && len < sizeof text - 1; from++) text[len++] = *from;
    const size_t old = strlen(message), room = sizeof text - 1 - len, take = SW_MIN(old, room);
    memcpy(text + len, message, take);
    text[len + take] = '\0';
    if (take < old) trim_partial_utf8(text, len + take);
    keep_escaped(text);
    return s;
}

sw_status (sw__no_memory)(size_t bytes, const char *what)
{
    return sw__fail(SW_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}
