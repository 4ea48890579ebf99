/* cl.c: the OpenCL backend's table of functions: devices, and gpu.h's shared layer over cl_driver.c.
 * Called by exec/ through backend.h. */
#include "backend/opencl/cl.h"

#include "backend/gpu/tune.h"

#include <stdio.h>
#include <stdlib.h>

static int cl_count(void)
{
    return sw__cl_devices(NULL);
}

static const char *cl_absent(void)
{
    const char *const missing = sw__cl_missing();
    if (missing != NULL || sw__cl_devices(NULL) > 0) return missing;
    return "OpenCL is there, but no driver: install that of your device (Debian: mesa-opencl-icd for AMD, intel-opencl-icd, "
           "nvidia-opencl-icd; pocl-opencl-icd computes on the processor)";
}

static const char *type_name(cl_device_type t)
{
    return t & CL_DEVICE_TYPE_GPU ? "gpu" : t & CL_DEVICE_TYPE_CPU ? "cpu" : "accelerator";
}

static sw_status cl_describe(int index, sw_device_properties *p)
{
    const sw__cl_entry *list;
    if (index < 0 || index >= sw__cl_devices(&list)) return sw__fail(SW_ERR_ARGUMENT, "there is no opencl:%d", index);
    const sw__cl_entry *const e = &list[index];
    memset(p, 0, sizeof *p);
    snprintf(p->id, sizeof p->id, "opencl:%d", index);
    snprintf(p->name, sizeof p->name, "%s", e->name);
    snprintf(p->vendor, sizeof p->vendor, "%s", e->vendor);
    snprintf(p->type, sizeof p->type, "%s", type_name(e->type));
    snprintf(p->compute, sizeof p->compute, "%s, %u units, %u MHz, local %llu KiB, largest %llu MiB%s%s%s",
             type_name(e->type), e->units, e->clock, (unsigned long long)e->local >> 10,
             (unsigned long long)e->max_alloc >> 20, e->fp64 ? ", f64" : "", e->fp16 ? ", f16" : "",
             e->subgroups ? ", subgroups" : "");
    snprintf(p->driver, sizeof p->driver, "%.30s, %.31s", e->platform_name, e->driver);
    snprintf(p->status, sizeof p->status, "%s", *e->unusable != '\0' ? e->unusable : "ok");
    p->usable = *e->unusable == '\0';
    p->memory_total = p->memory_free = e->memory; /* OpenCL does not tell what is free */
    p->compute_units = (int)e->units;
    return SW_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------------------ */

static void set_target(sw__cl *c)
{
    const sw__cl_entry *const e = c->entry;
    sw__target *const t = &c->gpu.target;
    const char *const wish = getenv("SWOOP_OPENCL_SERIAL"); /* the other kind of kernels, for tests */
    t->lang = SW_LANG_OPENCL;
    t->serial = wish != NULL && *wish != '\0' ? *wish == '1' : (e->type & CL_DEVICE_TYPE_CPU) != 0;
    t->fp64 = e->fp64;
    t->max_group = (int)SW_MIN(e->max_group, (size_t)1024);
    for (int d = 0; d < 3; d++) t->max_local[d] = (int)SW_MIN(e->max_local[d], (size_t)1024);
    t->local_bytes = (size_t)e->local;
    t->units = (int)SW_MIN(e->units, 1u << 16);
    t->width = t->serial ? (int)SW_MAX(4u, SW_MIN(e->vector, 16u)) : 32;
    snprintf(c->gpu.key, sizeof c->gpu.key, "%.60s|%.90s|%.80s", e->platform_name, e->name, e->driver);
    sw__gpu_key_options(&c->gpu, getenv("SWOOP_OPENCL_OPTIONS"));
}

static void cl_close(void *dev)
{
    sw__cl *const c = dev;
    if (c == NULL) return;
    sw__gpu_close(&c->gpu);
    if (c->timed != NULL) (void)c->api->clReleaseCommandQueue(c->timed);
    sw__cl_upload_end(c);
    if (c->context != NULL) (void)c->api->clReleaseContext(c->context);
    sw__free(c);
}

static sw_status start(sw__cl *c, const sw_device_options *o)
{
    cl_int code = CL_SUCCESS;
    const cl_context_properties wanted[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)c->entry->platform, 0};
    c->context = c->api->clCreateContext(wanted, 1, &c->entry->id, NULL, NULL, &code);
    if (c->context == NULL) return sw__cl_fail(code, "clCreateContext");
    c->queue = c->api->clCreateCommandQueue(c->context, c->entry->id, 0, &code);
    if (c->queue == NULL) return sw__cl_fail(code, "clCreateCommandQueue");
    if (sw__cl_wants_copy_queue(c->entry, &c->always_beside)) {
        c->copies = c->api->clCreateCommandQueue(c->context, c->entry->id, 0, &code);
        if (c->copies == NULL) return sw__prefix(sw__cl_fail(code, "clCreateCommandQueue"), "uploads");
    }
    set_target(c);
    c->gpu.driver = &sw__cl_driver;
    c->gpu.dev = c;
    c->gpu.backend = "opencl";
    c->gpu.name = c->entry->name;
    SW_TRY(sw__gpu_init(&c->gpu, o));
    /* two parameters a buffer, and room for a workspace and the errors */
    c->gpu.traits.max_buffers = (int)SW_MIN(c->entry->max_parameter / 16, (size_t)SW_K_MAX_BUFFERS + 3) - 3;
    return SW_OK;
}

static sw_status cl_open(int index, const sw_device_options *o, void **dev)
{
    const sw__cl_entry *list;
    if (index < 0 || index >= sw__cl_devices(&list)) return sw__fail(SW_ERR_ARGUMENT, "there is no opencl:%d", index);
    sw__cl *const c = sw__calloc(1, sizeof *c);
    if (c == NULL) return sw__no_memory(sizeof *c, "an OpenCL device");
    c->entry = &list[index];
    sw_status st = sw__cl_load(&c->api);
    if (st == SW_OK) st = start(c, o);
    if (st != SW_OK) {
        cl_close(c);
        return st;
    }
    *dev = c;
    return SW_OK;
}

/* ---- through the shared layer --------------------------------------------------------------------------------------------- */

static sw__gpu *gpu(void *dev)
{
    return &((sw__cl *)dev)->gpu;
}

static const sw__traits *cl_traits(void *dev)
{
    return &gpu(dev)->traits;
}

static sw_status cl_alloc(void *dev, size_t bytes, void **buffer)
{
    return sw__cl_driver.alloc(dev, bytes, buffer);
}

static void cl_release(void *dev, void *buffer)
{
    sw__cl_driver.release(dev, buffer);
}

static sw_status cl_upload(void *dev, void *buffer, size_t offset, const void *src, size_t bytes)
{
    return sw__cl_upload(dev, buffer, offset, src, bytes, false);
}

static sw_status cl_upload_input(void *dev, void *buffer, size_t offset, const void *src, size_t bytes)
{
    return sw__cl_upload(dev, buffer, offset, src, bytes, true);
}

static sw_status cl_download(void *dev, const void *buffer, size_t offset, void *dst, size_t bytes)
{
    if (gpu(dev)->checked) SW_TRY(sw__gpu_sync(gpu(dev)));
    return sw__cl_driver.download(dev, buffer, offset, dst, bytes);
}

static sw_status cl_fill(void *dev, void *buffer, size_t offset, size_t bytes, uint8_t byte)
{
    return sw__cl_driver.fill(dev, buffer, offset, bytes, byte);
}

static sw_status cl_sync(void *dev)
{
    return sw__gpu_sync(gpu(dev));
}

static sw_status cl_kernel_build(void *dev, const sw__kernel *k, void **built, size_t *workspace)
{
    return sw__gpu_kernel_build(gpu(dev), k, built, workspace);
}

static void cl_plan_free(void *dev, void *plan)
{
    (void)dev;
    sw__gpu_plan_free(plan);
}

static sw_status cl_build(void *dev)
{
    return sw__gpu_build(gpu(dev));
}

static sw_status cl_plan_ready(void *dev, void *plan)
{
    (void)dev;
    return sw__gpu_plan_ready(plan);
}

static sw_status cl_run(void *dev, void *plan, const sw__bind *bind)
{
    (void)dev;
    return sw__gpu_plan_run(plan, bind);
}

static sw_status cl_run_timed(void *dev, bool is_op, void *plan, const sw__bind *bind, double *seconds)
{
    (void)dev;
    (void)is_op;
    return sw__gpu_run_timed(plan, bind, seconds);
}

static sw_status cl_tune(void *dev, const sw__op_desc *d, const double *flops, int n, bool measure)
{
    return sw__gpu_tune(gpu(dev), d, flops, n, measure);
}

static sw_status cl_tuned(void *dev, sw_tune_result *out)
{
    return sw__gpu_tuned(gpu(dev), out);
}

static bool cl_op_accepts(void *dev, const sw__op_desc *d, int i)
{
    return sw__gpu_op_accepts(gpu(dev), d, i);
}

static sw_status cl_op_plan(void *dev, const sw__op_desc *d, void **plan, size_t *workspace)
{
    return sw__gpu_op_plan(gpu(dev), d, plan, workspace);
}

static const char *cl_op_note(void *plan)
{
    return ((sw__gpu_plan *)plan)->note;
}

static sw_status cl_source_build(void *dev, const sw_kernel_source *s, void **built)
{
    return sw__gpu_source_build(gpu(dev), s, built);
}

static void cl_source_free(void *dev, void *built)
{
    sw__gpu_source_free(gpu(dev), built);
}

static sw_status cl_source_launch(void *dev, void *built, const sw__source_launch *l)
{
    return sw__gpu_source_launch(gpu(dev), built, l);
}

extern const sw__backend sw__backend_opencl;
const sw__backend sw__backend_opencl = {
    .name = "opencl",
    .count = cl_count,
    .absent = cl_absent,
    .open = cl_open,
    .close = cl_close,
    .properties = cl_describe,
    .traits = cl_traits,
    .alloc = cl_alloc,
    .release = cl_release,
    .upload = cl_upload,
    .upload_input = cl_upload_input,
    .download = cl_download,
    .fill = cl_fill,
    .sync = cl_sync,
    .kernel_build = cl_kernel_build,
    .kernel_free = cl_plan_free,
    .kernel_launch = cl_run,
    .tune = cl_tune,
    .tuned = cl_tuned,
    .op_accepts = cl_op_accepts,
    .op_plan = cl_op_plan,
    .op_free = cl_plan_free,
    .op_exec = cl_run,
    .op_note = cl_op_note,
    .build = cl_build,
    .plan_ready = cl_plan_ready,
    .run_timed = cl_run_timed,
    .source_build = cl_source_build,
    .source_free = cl_source_free,
    .source_launch = cl_source_launch,
};
