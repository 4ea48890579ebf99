/* golden_fill.h: numbers that tests and tests/golden/make_models.py, make_tasks.py make alike from names, so that parameters and
 * inputs need not be stored. */
#ifndef GOLDEN_FILL_H
#define GOLDEN_FILL_H

#include "io_test.h"
#include "swoop/swoop.h"

static inline double noise(uint64_t key, int64_t i)
{
    uint64_t h = ((uint64_t)i * 2654435761u + key * 40503u) & 0xffffffffu;
    h ^= h >> 15;
    h = h * 0x85ebca6bu & 0xffffffffu;
    h ^= h >> 13;
    return (double)(h & 0xffff) / 65536 - 0.5;
}

static inline uint64_t key_of(const char *name)
{
    uint64_t sum = 0;
    for (; *name; name++) sum += (unsigned char)*name;
    return sum % 9973;
}

static inline bool ends(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

static inline void fill(sw_params *params, int index)
{
    sw_var_info v;
    OK(sw_params_info(params, index, &v));
    if (v.dtype != SW_F32) return; /* counters */
    double fan = 1;
    for (int i = 1; i < v.rank; i++) fan *= (double)v.shape[i];
    float *const to = test_malloc((size_t)v.elements * sizeof *to);
    for (int64_t i = 0; i < v.elements; i++) {
        double u = noise(key_of(v.name), i);
        if (v.rank > 1)
            u = u * sqrt(24 / fan);
        else
            u = ends(v.name, "weight") || ends(v.name, "running_var") ? 1 + u / 2 : u / 5;
        to[i] = (float)(ends(v.name, "weight_g") ? 1 + fabs(u) : u);
    }
    OK(sw_params_set(params, index, SW_F32, to, v.elements));
    test_free(to);
}

#endif
