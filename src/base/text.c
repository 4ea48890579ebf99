/* text.c: a text that grows at its end; one check after the last append is enough.
 * Lowest floor: printers, JSON writers and messages longer than a line build on it. */
#include "base/base.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>

static locale_t plain;

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

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
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_plain);
    const locale_t before = uselocale(plain); /* the caller's may have a decimal comma: no JSON, no C */
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
    (void)uselocale(before);
}

void sw__text_free(sw__text *t)
{
    sw__free(t->s);
    *t = (sw__text){ 0 };
}
