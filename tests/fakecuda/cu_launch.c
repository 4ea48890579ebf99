/* cu_launch.c: launches of kernels: the checks that the driver makes, more that it leaves out, and the run in the PTX
 * interpreter with every access looked at. See cu.h. */
#include "cu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct launch {
    fk_function *f;
    uint32_t grid[3], block[3];
    size_t dynamic;
    unsigned char params[];
} launch;

/* ---- the interpreter's view of memory ---------------------------------------------------------------------------- */

typedef struct view {
    const fk_op *op;
    const char *name;
    fk_alloc *last;       /* allocation that was touched last */
    uint64_t missed;      /* address that no allocation holds */
} view;

static bool range(void *user, uint64_t address, uint64_t *lo, uint64_t *hi, unsigned char **host)
{
    view *const v = user;
    fk_alloc *const a = fk_find_live(address, 1);
    if (a == NULL || (!a->pinned && !fk_device_sees(v->op->device, a->device))) {
        v->missed = address;
        return false;
    }
    *lo = a->lo;
    *hi = a->lo + a->bytes;
    *host = a->host;
    return true;
}

// NOLINTNEXTLINE(readability-non-const-parameter): the interpreter's type
static bool touch(void *user, uint64_t address, size_t bytes, int access, uint64_t block, char *why, size_t n)
{
    view *const v = user;
    (void)block, (void)why, (void)n;
    if (v->last == NULL || address < v->last->lo || address + bytes > v->last->lo + v->last->bytes)
        v->last = fk_find_live(address, bytes);
    if (v->last == NULL) return true; /* range tells */
    fk_touch(v->last, address, bytes, access, v->op, v->name);
    if (v->last->pinned && access != PTX_READ) v->last->version++;
    return true;
}

static void report(void *user, const ptx_fault *f)
{
    (void)user;
    fk_report("%s", f->text);
}

static CUresult launch_run(const fk_op *op, void *data)
{
    const launch *const l = data;
    view v = { .op = op, .name = op->task->name };
    char why[200] = "";
    if (!l->f->o.live) {
        fk_report("%s (stream %d): its module was unloaded before it ran", op->task->name, op->id);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    const ptx_memory memory = { .user = &v, .range = range, .touch = touch, .report = report };
    ptx_launch p = { .dynamic_shared = l->dynamic, .params = l->params, .seed = fk_random(),
                     .check_races = fk_set.races, .max_instructions = fk_set.instructions };
    memcpy(p.grid, l->grid, sizeof p.grid);
    memcpy(p.block, l->block, sizeof p.block);
    ptx_fault fault = { 0 };
    const int code = ptx_run(l->f->kernel, &p, &memory, &fault);
    if (code == 0) return CUDA_SUCCESS;
    if (v.missed != 0) fk_explain(v.missed, 1, why, sizeof why);
    fk_report("%s (stream %d, operation %u): %s%s%s", op->task->name, op->id, op->clock.seq[op->id], fault.text,
              *why != '\0' ? "; " : "", why);
    return (CUresult)code;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static CUresult check_size(const fk_guard *g, const fk_function *f, const uint32_t grid[3], const uint32_t block[3])
{
    static const uint32_t most_grid[3] = { 2147483647, 65535, 65535 }, most_block[3] = { 1024, 1024, 64 };
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        threads *= block[i];
        if (grid[i] == 0 || grid[i] > most_grid[i])
            return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s: the grid has %u blocks in %c, 1 to %u are possible",
                             f->name, grid[i], "xyz"[i], most_grid[i]);
        if (block[i] == 0 || block[i] > most_block[i])
            return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s: the block has %u threads in %c, 1 to %u are possible",
                             f->name, block[i], "xyz"[i], most_block[i]);
    }
    if (threads > 1024) return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s: %llu threads in a block, 1024 are possible",
                                         f->name, (unsigned long long)threads);
    if (threads > (uint64_t)f->info.max_threads)
        return fk_misuse(g, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "%s: %llu threads in a block, it was compiled for %d",
                         f->name, (unsigned long long)threads, f->info.max_threads);
    if ((threads + 31) / 32 * 32 * (uint64_t)f->registers > 65536)
        return fk_misuse(g, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "%s: %llu threads of %d registers are too many",
                         f->name, (unsigned long long)threads, f->registers);
    return CUDA_SUCCESS;
}

static CUresult check_shared(const fk_guard *g, const fk_function *f, size_t dynamic)
{
    const size_t most = fk_function_dynamic_limit(f);
    if (dynamic <= most) return CUDA_SUCCESS;
    return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s: %zu bytes of dynamic shared memory, %zu are allowed "
                     "(cuFuncSetAttribute raises it)", f->name, dynamic, most);
}

/* The parameters as the kernel lays them out; to has param_bytes. */
static CUresult gather(const fk_guard *g, const fk_function *f, void **params, unsigned char *to)
{
    if (f->info.n_params > 0 && params == NULL)
        return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s: no arguments, it has %d parameters", f->name,
                         f->info.n_params);
    for (int i = 0; i < f->info.n_params; i++) {
        size_t offset, size;
        if (params[i] == NULL)
            return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s: argument %d of %d is NULL", f->name, i,
                             f->info.n_params);
        ptx_param(f->kernel, i, &offset, &size);
        memcpy(to + offset, params[i], size);
    }
    return CUDA_SUCCESS;
}

/* The parameters in one buffer: extra is a list of keys and values. */
static CUresult gather_extra(const fk_guard *g, const fk_function *f, void **extra, unsigned char *to)
{
    const void *from = NULL;
    size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) from = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) memcpy(&bytes, extra[1], sizeof bytes);
        else return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s: an unknown key in extra", f->name);
    }
    if (from == NULL || bytes != f->info.param_bytes)
        return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%s: %zu bytes of arguments, it takes %zu", f->name, bytes,
                         f->info.param_bytes);
    memcpy(to, from, bytes);
    return CUDA_SUCCESS;
}

/* ---- CUDA's functions -------------------------------------------------------------------------------------------- */

static CUresult check_function(const fk_guard *g, const fk_function *f)
{
    if (f->kernel == NULL)
        return fk_misuse(g, CUDA_ERROR_NOT_SUPPORTED, "%s: the double does not run the kernels of libraries", f->name);
    if (f->o.device != fk_current->o.device)
        return fk_misuse(g, CUDA_ERROR_INVALID_HANDLE, "%s: the module belongs to device %d, the current context to "
                         "device %d", f->name, f->o.device, fk_current->o.device);
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuLaunchKernel(CUfunction handle, unsigned int gx, unsigned int gy, unsigned int gz,
                                          unsigned int bx, unsigned int by, unsigned int bz, unsigned int dynamic,
                                          CUstream stream, void **params, void **extra)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    fk_function *const f = fk_object_of(&guard, handle, FK_FUNCTION, &code);
    fk_stream *const s = f != NULL ? fk_stream_of(&guard, stream, &code) : NULL;
    if (s == NULL) return code;
    const uint32_t grid[3] = { gx, gy, gz }, block[3] = { bx, by, bz };
    code = check_function(&guard, f);
    if (code == CUDA_SUCCESS) code = check_size(&guard, f, grid, block);
    if (code == CUDA_SUCCESS) code = check_shared(&guard, f, dynamic);
    if (code == CUDA_SUCCESS && params != NULL && extra != NULL)
        code = fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "%s: both params and extra", f->name);
    if (code != CUDA_SUCCESS) return code;
    launch *const l = calloc(1, sizeof *l + f->info.param_bytes);
    if (l == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    l->f = f;
    l->dynamic = dynamic;
    memcpy(l->grid, grid, sizeof grid);
    memcpy(l->block, block, sizeof block);
    code = extra != NULL ? gather_extra(&guard, f, extra, l->params) : gather(&guard, f, params, l->params);
    if (code != CUDA_SUCCESS) {
        free(l);
        return code;
    }
    char name[80];
    snprintf(name, sizeof name, "kernel '%.60s'", f->name);
    return fk_submit(&guard, s, fk_task_new(name, launch_run, free, l));
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

FK_EXPORT CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction handle, int block_size,
                                                                       size_t dynamic)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    const fk_function *const f = fk_object_of(&guard, handle, FK_FUNCTION, &code);
    if (f == NULL) return code;
    if (n == NULL || block_size <= 0) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "%d threads", block_size);
    const fk_gpu *const gpu = fk_device_gpu(f->o.device);
    const int warps = (block_size + 31) / 32, reserved = gpu->sm >= 80 ? 1024 : 0;
    const int warp_registers = (f->registers * 32 + 255) / 256 * 256;
    const size_t shared = (f->info.shared_bytes + dynamic + 127) / 128 * 128 + (size_t)reserved;
    *n = at_most(gpu->blocks, gpu->threads / 32 / warps);
    *n = at_most(*n, 65536 / warp_registers / 4 * 4 / warps); /* four partitions share the registers */
    if (shared > 0) *n = at_most(*n, (int)(((size_t)gpu->shared_kib << 10) / shared));
    if (block_size > f->info.max_threads || dynamic > fk_function_dynamic_limit(f)) *n = 0;
    return CUDA_SUCCESS;
}
