/* gpu_planned.c: a GPU that is not there, for plans: the shared layer chooses tiles and workspaces as it would on the
 * device, from what a catalogue knows of it; nothing can be compiled, allocated or run. Opened by exec/device.c.
 * For NVIDIA's, the libraries that plan without a GPU are asked as well (library of the driver). */
#include "backend/gpu/gpu.h"

#include <stdio.h>

typedef struct planned {
    sw__gpu gpu;
    sw_gpu_model model;
    const sw__planned_library *of; /* NULL: our kernels only */
    void *library;
} planned;

/* ---- the driver: everything fails, and says why -------------------------------------------------------------------------- */

static sw_status refuse(const void *dev)
{
    return sw__fail(SW_ERR_UNSUPPORTED, "%s is not in this machine: it can be planned for, nothing more",
                    ((const planned *)dev)->model.name);
}

static sw_status no_compile(void *dev, const char *text, void **module)
{
    (void)text, (void)module;
    return refuse(dev);
}

// NOLINTNEXTLINE(readability-non-const-parameter): the driver's type
static sw_status no_binary(void *dev, void *module, void **bytes, size_t *n)
{
    (void)module, (void)bytes, (void)n;
    return refuse(dev);
}

static sw_status no_load(void *dev, const void *bytes, size_t n, void **module)
{
    (void)bytes, (void)n, (void)module;
    return refuse(dev);
}

static void nothing(void *dev, void *what)
{
    (void)dev, (void)what;
}

static sw_status no_kernel(void *dev, void *module, const char *entry, void **kernel)
{
    (void)module, (void)entry, (void)kernel;
    return refuse(dev);
}

static sw_status no_launch(void *dev, void *kernel, const uint32_t groups[3], const uint32_t local[3],
                           const sw__gpu_value *args, int n_args)
{
    (void)kernel, (void)groups, (void)local, (void)args, (void)n_args;
    return refuse(dev);
}

static sw_status no_alloc(void *dev, size_t bytes, void **buffer)
{
    (void)bytes, (void)buffer;
    return refuse(dev);
}

static sw_status no_download(void *dev, const void *buffer, size_t offset, void *dst, size_t bytes)
{
    (void)buffer, (void)offset, (void)dst, (void)bytes;
    return refuse(dev);
}

static sw_status no_fill(void *dev, void *buffer, size_t offset, size_t bytes, uint8_t byte)
{
    (void)buffer, (void)offset, (void)bytes, (void)byte;
    return refuse(dev);
}

static sw_status no_finish(void *dev)
{
    (void)dev;
    return SW_OK;
}

static sw_status ask_library(void *dev, sw__gpu_plan *p)
{
    const planned *const d = dev;
    if (d->of == NULL) return sw__fail(SW_ERR_UNSUPPORTED, "no library plans for this GPU here");
    return d->of->plan(d->library, p);
}

static const sw__gpu_driver driver = {
    .compile = no_compile, .binary = no_binary, .load = no_load, .unload = nothing, .kernel = no_kernel,
    .kernel_free = nothing, .launch = no_launch, .alloc = no_alloc, .release = nothing, .download = no_download,
    .fill = no_fill, .finish = no_finish, .library = ask_library,
};

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

/* From operations a second: two a clock and lane, some 1.8 GHz; NVIDIA's have 128 lanes a multiprocessor, those for
 * data centres up to the A100 and Turing 64, as have the compute units of AMD. Only the choice of tiles looks at it. */
static int estimate_units(const sw_gpu_model *m)
{
    const bool small = m->capability == 0 || m->capability == 60 || (m->capability >= 70 && m->capability <= 80);
    const double units = m->flops / (2 * (small ? 64 : 128) * 1.8e9);
    return units < 8 ? 8 : units > 512 ? 512 : (int)units;
}

/* None is no failure: the plan is then one with our kernels, and the log says so. */
static sw_status find_library(planned *p)
{
    for (const sw__planned_library *const *l = sw__planned_libraries; *l != NULL; l++) {
        if (!(*l)->takes(&p->model)) continue;
        const sw_status st = (*l)->open(&p->model, &p->library);
        if (st != SW_OK && st != SW_ERR_UNSUPPORTED) return st;
        if (st == SW_OK) p->of = *l;
        else sw__log(SW_LOG_INFO, "%s: planned with swoop's own kernels: %s", p->model.name, sw_error());
        break;
    }
    return SW_OK;
}

sw_status sw__planned_open(const sw_gpu_model *m, bool libraries, void **dev)
{
    planned *const p = sw__calloc(1, sizeof *p);
    if (p == NULL) return sw__no_memory(sizeof *p, "a planned device");
    p->model = *m;
    if (m->compute_units == 0) p->model.compute_units = estimate_units(m);
    sw__gpu *const g = &p->gpu;
    sw__target *const t = &g->target;
    const bool nvidia = m->capability > 0;
    t->lang = nvidia ? SW_LANG_CUDA : SW_LANG_OPENCL;
    t->fp64 = true;
    t->max_group = nvidia ? 1024 : 256; /* AMD's OpenCL gives 256 */
    t->max_local[0] = t->max_local[1] = t->max_group;
    t->max_local[2] = SW_MIN(t->max_group, 64);
    t->local_bytes = nvidia ? 48 << 10 : 32 << 10;
    t->units = p->model.compute_units;
    t->width = 32;
    g->driver = &driver;
    g->dev = p;
    g->backend = "planned";
    snprintf(g->key, sizeof g->key, "planned|%.60s", m->name);
    sw__gpu_set_traits(g);
    g->traits.max_buffers = SW_K_MAX_BUFFERS;
    const sw_status st = libraries ? find_library(p) : SW_OK;
    if (st != SW_OK) {
        sw__free(p);
        return st;
    }
    *dev = p;
    return SW_OK;
}

static void close_planned(void *dev)
{
    planned *const p = dev;
    if (p->of != NULL) p->of->close(p->library);
    sw__free(p);
}

/* ---- the table: what planning calls, and refusals ------------------------------------------------------------------------ */

static int count(void)
{
    return 0;
}

static const sw__traits *traits(void *dev)
{
    return &((planned *)dev)->gpu.traits;
}

static sw_status no_upload(void *dev, void *buffer, size_t offset, const void *src, size_t bytes)
{
    (void)buffer, (void)offset, (void)src, (void)bytes;
    return refuse(dev);
}

static sw_status kernel_build(void *dev, const sw__kernel *k, void **built, size_t *workspace)
{
    return sw__gpu_kernel_build(&((planned *)dev)->gpu, k, built, workspace);
}

static void plan_free(void *dev, void *plan)
{
    (void)dev;
    sw__gpu_plan_free(plan);
}

static sw_status no_run(void *dev, void *built, const sw__bind *bind)
{
    (void)built, (void)bind;
    return refuse(dev);
}

static bool op_accepts(void *dev, const sw__op_desc *d, int i)
{
    return sw__gpu_op_accepts(&((planned *)dev)->gpu, d, i);
}

static sw_status op_plan(void *dev, const sw__op_desc *d, void **plan, size_t *workspace)
{
    return sw__gpu_op_plan(&((planned *)dev)->gpu, d, plan, workspace);
}

static const char *op_note(void *plan)
{
    return ((const sw__gpu_plan *)plan)->note;
}

static sw_status no_build(void *dev)
{
    return refuse(dev);
}

const sw__backend sw__backend_planned = {
    .name = "planned", .count = count, .close = close_planned, .traits = traits, .alloc = no_alloc, .release = nothing,
    .upload = no_upload, .download = no_download, .fill = no_fill, .sync = no_finish, .kernel_build = kernel_build,
    .kernel_free = plan_free, .kernel_launch = no_run, .op_accepts = op_accepts, .op_plan = op_plan, .op_free = plan_free,
    .op_exec = no_run, .op_note = op_note, .build = no_build,
};
