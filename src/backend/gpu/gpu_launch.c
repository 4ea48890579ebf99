/* gpu_launch.c: plans (lists of launches): made, run, freed; and waiting, which is when a bad index comes to light.
 * See gpu.h. */
#include "backend/gpu/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

/* ---- device ---------------------------------------------------------------------------------------------------------- */

void sw__gpu_set_traits(sw__gpu *g)
{
    sw__traits *const t = &g->traits;
    t->fuse = t->views = true;
    t->float_storage = SW_F32;
    t->alignment = 128;
    t->compute_units = g->target.units;
    for (int op = 0; op < SW_OP_COUNT; op++) t->takes[op] = sw__gpu_ops[op].plan != NULL;
    t->takes[SW_OP_ALL_REDUCE] = false; /* a device alone: the sum is the value itself */
    static const uint16_t images[] = {SW_OP_CONV,          SW_OP_CONV_GRAD_X, SW_OP_CONV_GRAD_W, SW_OP_MAX_POOL,
                                      SW_OP_MAX_POOL_GRAD, SW_OP_AVG_POOL,    SW_OP_AVG_POOL_GRAD};
    for (size_t i = 0; i < SW_COUNT(images); i++) t->channels_last[images[i]] = true;
    t->bias_act[SW_OP_MATMUL] = t->bias_act[SW_OP_CONV] = true;
}

static sw_status make_tuning(sw__gpu *g, const sw_device_options *o)
{
    const char *const never = getenv("SWOOP_NO_TUNE");
    g->tuning = sw__calloc(1, sizeof *g->tuning);
    if (g->tuning == NULL) return sw__no_memory(sizeof *g->tuning, "a device's choices");
    g->tuning->never = (o != NULL && o->no_tune) || (never != NULL && *never != '\0' && strcmp(never, "0") != 0);
    g->tuning->all = o != NULL && o->tune_all && !g->tuning->never;
    g->tuning->budget = o != NULL && o->tune_seconds > 0 ? o->tune_seconds : 2;
    return SW_OK;
}

sw_status sw__gpu_init(sw__gpu *g, const sw_device_options *o)
{
    sw__gpu_set_traits(g);
    const char *const from = o != NULL ? o->kernels : NULL, *const to = o != NULL ? o->write_kernels : NULL;
    g->read_from = sw__strdup(from);
    g->write_to = sw__strdup(to);
    if ((from != NULL && g->read_from == NULL) || (to != NULL && g->write_to == NULL))
        return sw__no_memory(64, "a folder's name");
    SW_TRY(make_tuning(g, o));
    return g->driver->alloc(g->dev, SW_GPU_ERROR_WORDS * sizeof(int64_t), &g->errors);
}

void sw__gpu_key_options(sw__gpu *g, const char *options)
{
    const size_t at = strlen(g->key);
    if (options == NULL || *options == '\0') return;
    snprintf(g->key + at, sizeof g->key - at, "|o%016llx", (unsigned long long)XXH3_64bits(options, strlen(options)));
}

void sw__gpu_close(sw__gpu *g)
{
    if (g->errors != NULL) g->driver->release(g->dev, g->errors);
    g->errors = NULL;
    sw__gpu_tuning_free(g);
    sw__free(g->read_from);
    sw__free(g->write_to);
}

/* ---- plans ----------------------------------------------------------------------------------------------------------- */

sw_status sw__gpu_plan_new(sw__gpu *g, const char *name, sw__gpu_plan **out)
{
    sw__gpu_plan *const p = sw__calloc(1, sizeof *p);
    if (p == NULL) return sw__no_memory(sizeof *p, "a plan");
    p->name = sw__strdup(name != NULL ? name : "");
    if (p->name == NULL) {
        sw__free(p);
        return sw__no_memory(64, "a plan's name");
    }
    p->gpu = g;
    p->number = (int)(++g->n_numbers & 0x7FFFFFFF);
    p->next = g->plans;
    g->plans = p;
    *out = p;
    return SW_OK;
}

void sw__gpu_plan_free(sw__gpu_plan *p)
{
    if (p == NULL) return;
    for (sw__gpu_plan **at = &p->gpu->plans; *at != NULL; at = &(*at)->next) {
        if (*at != p) continue;
        *at = p->next;
        break;
    }
    for (int i = 0; i < p->n_launches; i++) {
        const sw__gpu_launch *const l = &p->launch[i];
        if (l->call.exec != NULL) l->call.free(p->gpu->dev, l->call.data);
        else sw__gpu_unwant(p->gpu, l->kernel);
        sw__free(l->arg);
    }
    sw__free(p->launch);
    sw__free(p->name);
    sw__free(p);
}

static sw_status one_more(sw__gpu_plan *p)
{
    size_t cap = (size_t)p->cap_launches;
    const sw_status st = sw__grow(&p->launch, &cap, (size_t)p->n_launches + 1, sizeof *p->launch, "a plan's launches");
    p->cap_launches = (int)cap;
    return st;
}

sw_status sw__gpu_add_call(sw__gpu_plan *p, sw__gpu_call call)
{
    const sw_status st = one_more(p);
    if (st == SW_OK) p->launch[p->n_launches++] = (sw__gpu_launch){.call = call};
    else call.free(p->gpu->dev, call.data);
    return st;
}

sw_status sw__gpu_add(sw__gpu_plan *p, sw__gpu_kernel *k, uint32_t groups_x, uint32_t groups_y, uint32_t groups_z,
                      uint32_t local_x, uint32_t local_y, uint32_t local_z, const sw__gpu_arg *args, int n_args)
{
    sw_status st = one_more(p);
    if (st == SW_OK && n_args > SW_GPU_MAX_ARGS)
        st = sw__fail(SW_ERR_DEVICE, "a kernel with %d arguments", n_args);
    sw__gpu_arg *copy = NULL;
    if (st == SW_OK) {
        copy = sw__malloc(SW_MAX((size_t)n_args, (size_t)1) * sizeof *copy);
        if (copy == NULL) st = sw__no_memory((size_t)n_args * sizeof *copy, "a launch's arguments");
    }
    if (st != SW_OK) {
        sw__gpu_unwant(p->gpu, k);
        return st;
    }
    if (n_args > 0) memcpy(copy, args, (size_t)n_args * sizeof *copy);
    p->launch[p->n_launches++] = (sw__gpu_launch){.kernel = k, .groups = {groups_x, groups_y, groups_z},
                                                  .local = {local_x, local_y, local_z}, .n_args = n_args, .arg = copy};
    return SW_OK;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static int put_buffer(sw__gpu_value *v, void *buffer, size_t offset)
{
    v[0] = (sw__gpu_value){.buffer = buffer};
    v[1] = (sw__gpu_value){.size = sizeof(int64_t), .raw.i64 = (int64_t)offset};
    return 2;
}

/* An argument as one or two parameters. A tensor without elements has no buffer: any will do. */
static int resolve(sw__gpu_plan *p, const sw__gpu_arg *a, const sw__bind *bind, sw__gpu_value *v)
{
    sw__gpu *const g = p->gpu;
    switch ((sw__gpu_arg_kind)a->kind) {
    case SW_GPU_BUFFER: {
        const sw__bind *const b = &bind[a->bind];
        return put_buffer(v, b->buffer != NULL ? b->buffer : g->errors, b->buffer != NULL ? b->offset + a->at : 0);
    }
    case SW_GPU_I32: v[0] = (sw__gpu_value){.size = 4, .raw.i32 = (int32_t)a->i}; return 1;
    case SW_GPU_I64: v[0] = (sw__gpu_value){.size = 8, .raw.i64 = a->i}; return 1;
    case SW_GPU_ERRORS:
        g->checked = true;
        v[0] = (sw__gpu_value){.buffer = g->errors};
        v[1] = (sw__gpu_value){.size = 4, .raw.i32 = p->number};
        return 2;
    }
    return 0;
}

sw_status sw__gpu_plan_ready(const sw__gpu_plan *p)
{
    for (int i = 0; i < p->n_launches; i++)
        if (p->launch[i].call.exec == NULL) SW_TRY(sw__gpu_kernel_ready(p->launch[i].kernel));
    return SW_OK;
}

sw_status sw__gpu_plan_run(sw__gpu_plan *p, const sw__bind *bind)
{
    sw__gpu *const g = p->gpu;
    for (int i = 0; i < p->n_launches; i++) {
        const sw__gpu_launch *const l = &p->launch[i];
        if (l->call.exec != NULL) {
            SW_TRY(l->call.exec(g->dev, l->call.data, bind));
            continue;
        }
        SW_TRY(sw__gpu_kernel_ready(l->kernel));
        sw__gpu_value v[2 * SW_GPU_MAX_ARGS];
        int n = 0;
        for (int k = 0; k < l->n_args; k++) n += resolve(p, &l->arg[k], bind, &v[n]);
        SW_TRY(g->driver->launch(g->dev, sw__gpu_kernel_handle(l->kernel), l->groups, l->local, v, n));
    }
    return SW_OK;
}

sw_status sw__gpu_sync(sw__gpu *g)
{
    if (!g->checked) return g->driver->finish(g->dev);
    int64_t word[SW_GPU_ERROR_WORDS];
    SW_TRY(g->driver->download(g->dev, g->errors, 0, word, sizeof word)); /* waits for what was launched before */
    g->checked = false;
    if (word[SW_GPU_ERROR_SET] == 0) return SW_OK;
    SW_TRY(g->driver->fill(g->dev, g->errors, 0, sizeof word, 0));
    const char *name = "";
    for (const sw__gpu_plan *p = g->plans; p != NULL; p = p->next)
        if (p->number == word[SW_GPU_ERROR_NUMBER]) name = p->name;
    const long long value = word[SW_GPU_ERROR_VALUE], extent = word[SW_GPU_ERROR_EXTENT];
    if (extent == 0) return sw__fail(SW_ERR_DATA, "%s: '%s': there is nothing to index: the axis is empty", g->backend, name);
    return sw__fail(SW_ERR_DATA, "%s: '%s': index[%lld] is %lld, outside 0 to %lld", g->backend, name,
                    (long long)word[SW_GPU_ERROR_AT], value, extent - 1);
}
