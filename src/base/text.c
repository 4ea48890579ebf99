/* text.c: a text that grows at its end; one check after the last append is enough.
 * Lowest floor: printers, JSON writers and messages longer than a line build on it. */
#include "base/base.h"

#include <stdio.h>

/* Makes room for n more bytes and the NUL. */
static bool reserve(sw__text *t, size_t n)
{
    if (t->failed) return false;
    size_t need;
    if (!sw__add_size(t->len, n, &need) || !sw__add_size(need, 1, &need) ||
        sw__grow(&t->s, &t->capacity, need, 1, "text") != SW_OK) {
        t->failed = true;
        return false;
    }
    return true;
}

void sw__text_put(sw__text *t, const void *bytes, size_t n)
{
    if (!reserve(t, n)) return;
    if (n > 0) memcpy(t->s + t->len, bytes, n);
    t->len += n;
    t->s[t->len] = '\0';
}

void sw__text_add(sw__text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0) {
        t->failed = true;
    } else if (reserve(t, (size_t)n)) {
        vsnprintf(t->s + t->len, (size_t)n + 1, fmt, again);
        t->len += (size_t)n;
    }
    va_end(again);
    va_end(ap);
}

void sw__text_free(sw__text *t)
{
    sw__free(t->s);
    *t = (sw__text){ 0 };
}
