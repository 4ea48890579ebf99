/* catalogue.c: GPUs that exist, from gpus.def: listed and found by name. Below the command; planning with them is
 * exec's (sw_device_open_planned). */
#include "base/base.h"
#include "swoop/tools.h"

#include <strings.h>

#define GPU(NAME, VENDOR, CAPABILITY, GB, GB_S, TFLOPS, MATRIX_TFLOPS, WATTS, PRICE, YEAR)                                       \
    { .model = { .name = NAME, .vendor = VENDOR, .capability = CAPABILITY, .memory = (uint64_t)((GB) * 1073741824.0),           \
                 .bandwidth = (GB_S) * 1e9, .flops = (TFLOPS) * 1e12 },                                                        \
      .matrix_flops = (MATRIX_TFLOPS) * 1e12, .watts = WATTS, .price = PRICE, .year = YEAR },
static const sw_gpu_entry gpus[] = {
#include "advise/gpus.def"
};

int sw_gpu_list(sw_gpu_entry *out, int max)
{
    for (int i = 0; out && i < max && i < (int)SW_COUNT(gpus); i++) out[i] = gpus[i];
    return (int)SW_COUNT(gpus);
}

static bool holds(const char *text, const char *word, size_t n)
{
    for (; *text; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
}

/* How many words of `name` the GPU's name and vendor lack. */
static int lacking(const sw_gpu_entry *g, const char *name)
{
    static const char between[] = " -_";
    int n = 0;
    for (name += strspn(name, between); *name; name += strspn(name, between)) {
        const size_t length = strcspn(name, between);
        n += !holds(g->model.name, name, length) && !holds(g->model.vendor, name, length);
        name += length;
    }
    return n;
}

static sw_status unknown(const char *name)
{
    sw__text near = {0};
    const size_t n = strspn(name, " -_");
    for (size_t i = 0, found = 0; i < SW_COUNT(gpus) && found < 5; i++) {
        /* a part of the first word is enough to be near: "rtx4090" and "RTX 4090" */
        if (!holds(gpus[i].model.name, name + n, SW_MIN(strlen(name + n), (size_t)3))) continue;
        sw__text_add(&near, "%s%s", found++ ? ", " : "", gpus[i].model.name);
    }
    const sw_status st = sw__fail(SW_ERR_ARGUMENT, "there is no GPU '%s' in the catalogue%s%s; swoop plan --gpus all takes "
                                  "every one", name, near.len ? "; near: " : "", near.len ? near.s : "");
    sw__text_free(&near);
    return st;
}

sw_status sw_gpu_find(const char *name, sw_gpu_entry *out)
{
    if (!name || !*name || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_gpu_find: name or out is NULL or empty");
    const sw_gpu_entry *best = NULL;
    for (size_t i = 0; i < SW_COUNT(gpus); i++)
        if (lacking(&gpus[i], name) == 0 && (!best || strlen(gpus[i].model.name) < strlen(best->model.name))) best = &gpus[i];
    if (!best) return unknown(name);
    *out = *best;
    return SW_OK;
}
