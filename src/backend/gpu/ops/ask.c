/* ask.c: macros and arguments of a portable kernel, gathered and launched; pieces of workspace. See big.h. */
#include "backend/gpu/ops/big.h"
#include "backend/gpu/tune.h"

#include <stdio.h>

sw__ask sw__ask_for(sw__gpu_plan *p, const char *file)
{
    return (sw__ask){.p = p, .file = file};
}

static void put_macro(sw__ask *a, sw__gpu_macro m)
{
    if (a->n_macros < (int)SW_COUNT(a->macro)) a->macro[a->n_macros] = m;
    a->n_macros++;
}

void sw__ask_macro(sw__ask *a, const char *name, int64_t value)
{
    put_macro(a, (sw__gpu_macro){.name = name, .value = value});
}

void sw__ask_text(sw__ask *a, const char *name, const char *text)
{
    put_macro(a, (sw__gpu_macro){.name = name, .text = text});
}

static const struct { sw_dtype type; const char *t, *load, *store, *acc, *acc_load; } types[] = {
    {SW_F32, "float", "LOAD_F32", "STORE_F32", "float", "LOAD_F32"},
    {SW_F64, "double", "LOAD_F64", "STORE_F64", "double", "LOAD_F64"},
    {SW_F16, "u16", "LOAD_F16", "STORE_F16", "float", "LOAD_F32"},
    {SW_BF16, "u16", "LOAD_BF16", "STORE_BF16", "float", "LOAD_F32"},
};

void sw__ask_type(sw__ask *a, sw_dtype t)
{
    for (size_t i = 0; i < SW_COUNT(types); i++) {
        if (types[i].type != t) continue;
        put_macro(a, (sw__gpu_macro){.name = "T", .text = types[i].t});
        put_macro(a, (sw__gpu_macro){.name = "LOAD", .text = types[i].load});
        put_macro(a, (sw__gpu_macro){.name = "STORE", .text = types[i].store});
        put_macro(a, (sw__gpu_macro){.name = "ACC", .text = types[i].acc});
    }
}

void sw__ask_left(sw__ask *a, sw_dtype t, bool acc)
{
    for (size_t i = 0; i < SW_COUNT(types); i++) {
        if (types[i].type != t) continue;
        put_macro(a, (sw__gpu_macro){.name = "TA", .text = acc ? types[i].acc : types[i].t});
        put_macro(a, (sw__gpu_macro){.name = "LOAD_A", .text = acc ? types[i].acc_load : types[i].load});
    }
}

static void put_arg(sw__ask *a, sw__gpu_arg arg)
{
    if (a->n_args < SW_GPU_MAX_ARGS) a->arg[a->n_args] = arg;
    a->n_args++;
}

void sw__ask_buffer(sw__ask *a, int bind, int64_t at_bytes)
{
    put_arg(a, (sw__gpu_arg){.kind = SW_GPU_BUFFER, .bind = bind, .at = (size_t)at_bytes});
}

void sw__ask_i32(sw__ask *a, int n, const int64_t *values)
{
    for (int i = 0; i < n; i++) put_arg(a, (sw__gpu_arg){.kind = SW_GPU_I32, .i = values[i]});
}

void sw__ask_i64(sw__ask *a, int n, const int64_t *values)
{
    for (int i = 0; i < n; i++) put_arg(a, (sw__gpu_arg){.kind = SW_GPU_I64, .i = values[i]});
}

void sw__ask_errors(sw__ask *a)
{
    put_arg(a, (sw__gpu_arg){.kind = SW_GPU_ERRORS});
}

sw_status sw__ask_launch(sw__ask *a, int64_t groups_x, int64_t groups_y, int64_t groups_z, int items)
{
    sw__gpu_kernel *k = NULL;
    char by[96];
    if (a->n_macros > (int)SW_COUNT(a->macro) || a->n_args > SW_GPU_MAX_ARGS)
        return sw__fail(SW_ERR_DEVICE, "%s: %d macros, %d arguments", a->file, a->n_macros, a->n_args);
    if (groups_x < 1 || groups_y < 1 || groups_z < 1) return SW_OK;
    if (groups_x > INT32_MAX || groups_y > INT32_MAX || groups_z > INT32_MAX)
        return sw__fail(SW_ERR_UNSUPPORTED, "too large: %lld x %lld x %lld groups of work-items", (long long)groups_x,
                        (long long)groups_y, (long long)groups_z);
    snprintf(by, sizeof by, "'%.80s'", a->p->name);
    SW_TRY(sw__gpu_want_portable(a->p->gpu, by, a->file, a->macro, a->n_macros,
                                 sw__gpu_kernels_alone(a->p), &k));
    return sw__gpu_add(a->p, k, (uint32_t)groups_x, (uint32_t)groups_y, (uint32_t)groups_z, (uint32_t)items, 1, 1,
                       a->arg, a->n_args);
}

int64_t sw__big_workspace(sw__gpu_plan *p, int64_t bytes)
{
    const size_t at = p->workspace;
    p->workspace += ((size_t)bytes + 127) & ~(size_t)127;
    return (int64_t)at;
}
