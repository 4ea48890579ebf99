/* names.c: a table from names to numbers, open addressing over FNV-1a: variables of a graph, of a device's parameters.
 * Lowest floor. Ten thousand layers are no reason for a hundred million comparisons. */
#include "base/base.h"

uint64_t sw__name_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h;
}

/* The slot that has the key, or the free one where it would be; there is always a free one. */
static sw__name *slot_of(const sw__names *t, const char *key)
{
    const uint64_t h = sw__name_hash(key);
    size_t i = (size_t)(h ^ h >> 32) & (t->capacity - 1);
    while (t->slot[i].key != NULL && strcmp(t->slot[i].key, key) != 0) i = (i + 1) & (t->capacity - 1);
    return &t->slot[i];
}

bool sw__names_find(const sw__names *t, const char *key, uint32_t *value)
{
    if (t->n == 0) return false;
    const sw__name *const s = slot_of(t, key);
    if (s->key == NULL) return false;
    *value = s->value;
    return true;
}

static sw_status enlarge(sw__names *t)
{
    sw__names more = { .capacity = t->capacity > 0 ? 2 * t->capacity : 64, .n = t->n };
    more.slot = sw__calloc(more.capacity, sizeof *more.slot);
    if (more.slot == NULL) return sw__no_memory(more.capacity * sizeof *more.slot, "a table of names");
    for (size_t i = 0; i < t->capacity; i++)
        if (t->slot[i].key != NULL) *slot_of(&more, t->slot[i].key) = t->slot[i];
    sw__free(t->slot);
    *t = more;
    return SW_OK;
}

sw_status sw__names_put(sw__names *t, const char *key, uint32_t value)
{
    if (2 * (t->n + 1) > t->capacity) SW_TRY(enlarge(t));
    sw__name *const s = slot_of(t, key);
    if (s->key == NULL) {
        s->key = key;
        t->n++;
    }
    s->value = value;
    return SW_OK;
}

void sw__names_free(sw__names *t)
{
    sw__free(t->slot);
    *t = (sw__names){ 0 };
}
