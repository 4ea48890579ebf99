/* util.c: the name that a mistyped word was probably meant to be, a clock, and functions of libraries.
 * Lowest floor. */
#include "base/base.h"

#include <ctype.h>
#include <dlfcn.h>
#include <time.h>

enum { LONGEST_WORD = 63 };

/* '-' and '_' are the same in options, and so are capitals to a reader. */
static int folded(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b; both at most LONGEST_WORD bytes. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t rows[3][LONGEST_WORD + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= nb; j++) last[j] = j;
    memset(before, 0, sizeof rows[0]);
    for (size_t i = 1; i <= na; i++) {
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const int ca = folded(a[i - 1]), cb = folded(b[j - 1]);
            size_t d = last[j - 1] + (ca != cb);
            d = SW_MIN(d, last[j] + 1);
            d = SW_MIN(d, row[j - 1] + 1);
            if (i > 1 && j > 1 && ca == folded(b[j - 2]) && cb == folded(a[i - 2])) d = SW_MIN(d, before[j - 2] + 1);
            row[j] = d;
        }
        size_t *const oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[nb];
}

const char *sw__nearest(const char *word, const char *const *candidates, size_t n)
{
    const size_t len = strlen(word);
    if (len > LONGEST_WORD) return NULL;
    size_t best_distance = SW_MAX(len / 3, (size_t)1) + 1;
    const char *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const size_t candidate_len = candidates[i] == NULL ? LONGEST_WORD + 1 : strlen(candidates[i]);
        if (candidate_len > LONGEST_WORD) continue;
        const size_t distance = edit_distance(word, len, candidates[i], candidate_len);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidates[i];
        }
    }
    return best;
}

double sw__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* POSIX gives functions as void *; C has no conversion to a function pointer, but the bytes are the same. */
bool sw__symbol(void *library, const char *name, void *pointer, size_t size)
{
    void *const symbol = dlsym(library, name);
    if (symbol != NULL) memcpy(pointer, &symbol, size);
    return symbol != NULL;
}
