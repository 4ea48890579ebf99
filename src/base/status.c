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

sw_status (sw__failv)(sw_status s, const char *fmt, va_list ap)
{
    char text[MESSAGE_BYTES];
    const size_t len = format(text, sizeof text, fmt, ap);
    memcpy(message, text, len + 1);
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
    memcpy(message, text, strlen(text) + 1);
    return s;
}

sw_status (sw__no_memory)(size_t bytes, const char *what)
{
    return sw__fail(SW_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}
