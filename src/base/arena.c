/* arena.c: many small allocations, zeroed, freed at once.
 * Lowest floor: graphs, kernel IR and configurations live in arenas. */
#include "base/base.h"

#include <stdalign.h>
#include <stdio.h>

enum { ALIGNMENT = 16, FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20 };

struct sw__arena_block {
    struct sw__arena_block *next;
    size_t used, size;
    alignas(ALIGNMENT) unsigned char bytes[];
};

static struct sw__arena_block *add_block(sw__arena *a, size_t least)
{
    /* Blocks double, so that a large graph costs few of them and a small one wastes little. */
    size_t size = a->head == NULL ? FIRST_BLOCK : SW_MIN(a->head->size * 2, (size_t)LARGEST_BLOCK);
    size = SW_MAX(size, least);
    size_t total;
    if (!sw__add_size(size, sizeof(struct sw__arena_block), &total)) return NULL;
    struct sw__arena_block *const block = sw__calloc(1, total);
    if (block == NULL) return NULL;
    block->size = size;
    block->next = a->head;
    a->head = block;
    return block;
}

void *sw__arena_alloc(sw__arena *a, size_t bytes)
{
    size_t rounded;
    if (!sw__add_size(bytes > 0 ? bytes : 1, ALIGNMENT - 1, &rounded)) return NULL;
    rounded &= ~(size_t)(ALIGNMENT - 1);
    struct sw__arena_block *block = a->head;
    if (block == NULL || block->size - block->used < rounded) block = add_block(a, rounded);
    if (block == NULL) return NULL;
    void *const p = block->bytes + block->used;
    block->used += rounded;
    a->used += rounded;
    return p;
}

char *sw__arena_strdup(sw__arena *a, const char *s)
{
    if (s == NULL) return NULL;
    const size_t bytes = strlen(s) + 1;
    char *const copy = sw__arena_alloc(a, bytes);
    if (copy != NULL) memcpy(copy, s, bytes);
    return copy;
}

char *sw__arena_printf(sw__arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    char *const s = n >= 0 ? sw__arena_alloc(a, (size_t)n + 1) : NULL;
    if (s != NULL) vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return s;
}

void sw__arena_free(sw__arena *a)
{
    for (struct sw__arena_block *block = a->head; block != NULL;) {
        struct sw__arena_block *const next = block->next;
        sw__free(block);
        block = next;
    }
    *a = (sw__arena){ 0 };
}
