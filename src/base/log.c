/* log.c: SWOOP_LOG = error | warn | info | debug | trace decides what goes to stderr; warn unless set.
 * Lowest floor. The environment is read once, on the first question. */
#include "base/base.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const level_names[] = { "error", "warn", "info", "debug", "trace" };

enum { LEVEL_UNKNOWN = -1 };
static atomic_int current_level = LEVEL_UNKNOWN;

static void write_line(int level, const char *text)
{
    fprintf(stderr, "swoop: %s: %s\n", level_names[level], text);
}

static int read_level(void)
{
    const char *const wanted = getenv("SWOOP_LOG");
    if (wanted == NULL || wanted[0] == '\0') return SW_LOG_WARN;
    for (int i = 0; i < (int)SW_COUNT(level_names); i++) {
        if (strcmp(wanted, level_names[i]) == 0) return i;
    }
    char text[256];
    snprintf(text, sizeof text, "SWOOP_LOG=%s is none of error, warn, info, debug, trace; warn is used", wanted);
    write_line(SW_LOG_WARN, text);
    return SW_LOG_WARN;
}

static int log_level(void)
{
    int level = atomic_load_explicit(&current_level, memory_order_relaxed);
    if (level == LEVEL_UNKNOWN) {
        level = read_level();
        atomic_store_explicit(&current_level, level, memory_order_relaxed);
    }
    return level;
}

bool sw__log_on(int level)
{
    return level >= SW_LOG_ERROR && level <= SW_LOG_TRACE && level <= log_level();
}

void sw__log(int level, const char *fmt, ...)
{
    if (!sw__log_on(level)) return;
    char text[2048]; /* one write per line: threads do not mix theirs; no allocation: it works when memory is out */
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0) write_line(level, text);
}
