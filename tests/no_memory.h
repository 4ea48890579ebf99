/* no_memory.h: memory that runs out after so many allocations, and what is not freed again. For tests whose line `link:` has
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free */
#ifndef NO_MEMORY_H
#define NO_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

static long allocations_left = -1, live; /* -1: no limit; live: not freed yet */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void __real_free(void *p);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void __wrap_free(void *p);

static void *counted(void *p)
{
    __atomic_fetch_add(&live, p != NULL, __ATOMIC_RELAXED);
    return p;
}

static bool refused(void)
{
    if (allocations_left < 0) return false;
    return allocations_left-- == 0 ? (allocations_left = 0, true) : false;
}

void *__wrap_malloc(size_t bytes)
{
    return refused() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return refused() ? NULL : counted(__real_aligned_alloc(align, bytes));
}

void *__wrap_realloc(void *p, size_t bytes)
{
    if (refused()) return NULL;
    void *const q = __real_realloc(p, bytes);
    if (p == NULL) counted(q);
    return q;
}

void __wrap_free(void *p)
{
    __atomic_fetch_sub(&live, p != NULL, __ATOMIC_RELAXED);
    __real_free(p);
}

#endif
