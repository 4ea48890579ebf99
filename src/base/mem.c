/* mem.c: the only place where swoop calls the C allocator; sizes are checked for overflow here.
 * Lowest floor. Tests wrap malloc, calloc, realloc and aligned_alloc at link time to make the n-th call fail. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

bool sw__mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool sw__add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

void *sw__malloc(size_t bytes)
{
    return malloc(bytes > 0 ? bytes : 1);
}

void *sw__calloc(size_t n, size_t size)
{
    size_t bytes;
    if (!sw__mul_size(n, size, &bytes)) return NULL;
    return calloc(1, bytes > 0 ? bytes : 1);
}

void *sw__realloc(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (!sw__mul_size(n, size, &bytes)) return NULL;
    return realloc(p, bytes > 0 ? bytes : 1);
}

void sw__free(void *p)
{
    free(p);
}

void *sw__malloc_aligned(size_t align, size_t bytes)
{
    align = SW_MAX(align, sizeof(void *));
    size_t rounded;
    if (!sw__add_size(bytes > 0 ? bytes : 1, align - 1, &rounded)) return NULL;
    return aligned_alloc(align, rounded & ~(align - 1));
}

char *sw__strndup(const char *s, size_t n)
{
    if (s == NULL) return NULL;
    const char *const end = memchr(s, '\0', n);
    const size_t len = end != NULL ? (size_t)(end - s) : n;
    size_t bytes;
    char *const copy = sw__add_size(len, 1, &bytes) ? sw__malloc(bytes) : NULL;
    if (copy == NULL) return NULL;
    memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *sw__strdup(const char *s)
{
    return s == NULL ? NULL : sw__strndup(s, strlen(s));
}

char *sw__asprintf(const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    char *const s = n >= 0 ? sw__malloc((size_t)n + 1) : NULL;
    if (s != NULL) vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return s;
}

sw_status sw__grow(void *items, size_t *capacity, size_t need, size_t size, const char *what)
{
    if (need <= *capacity) return SW_OK;
    /* Half as much again keeps appending linear; the first allocation is not worth less than 8 elements. */
    size_t wanted = *capacity > SIZE_MAX / 2 ? need : *capacity + *capacity / 2;
    wanted = SW_MAX(SW_MAX(wanted, need), (size_t)8);
    size_t bytes;
    if (!sw__mul_size(wanted, size, &bytes)) bytes = SIZE_MAX;

    void *old; /* `items` is the address of a pointer of a type that is not known here */
    memcpy(&old, items, sizeof old);
    void *const grown = sw__realloc(old, wanted, size);
    if (grown == NULL) return sw__no_memory(bytes, what);
    memcpy(items, &grown, sizeof grown);
    *capacity = wanted;
    return SW_OK;
}
