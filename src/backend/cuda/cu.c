/* cu.c: the CUDA backend's table of functions: devices, and gpu.h's shared layer over cu_driver.c. Each function makes the
 * device's context current in the thread that calls. Called by exec/ through backend.h. */
#include "backend/cuda/cu.h"
#include "backend/gpu/tune.h"

#include <stdio.h>
#include <stdlib.h>

#define CALL(F, ...) SW_CU_TRY((sw__cu *)dev, F, __VA_ARGS__)
#define ENTER() CALL(cuCtxSetCurrent, ((sw__cu *)dev)->context)

/* Where nothing is returned: what then fails is told by the call that comes next. */
static void enter(void *dev)
{
    const sw__cu *const c = dev;
    (void)c->api->cuCtxSetCurrent(c->context);
}

static sw__gpu *gpu(void *dev)
{
    return &((sw__cu *)dev)->gpu;
}

/* ---- devices ------------------------------------------------------------------------------------------------------- */

static int cu_count(void)
{
    return sw__cu_devices(NULL);
}

static const char *cu_absent(void)
{
    const char *const why = sw__cu_load()->no_driver;
    return *why != '\0' ? why : NULL;
}

static sw_status find_entry(int index, const sw__cu_entry **out)
{
    const sw__cu_entry *list;
    if (index < 0 || index >= sw__cu_devices(&list)) return sw__fail(SW_ERR_ARGUMENT, "there is no cuda:%d", index);
    *out = &list[index];
    return SW_OK;
}

static sw_status cu_describe(int index, sw_device_properties *p)
{
    const sw__cu_entry *e = NULL;
    SW_TRY(find_entry(index, &e));
    sw__cu_describe(e, p);
    return SW_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

static void set_target(sw__cu *c)
{
    const sw__cu_entry *const e = c->entry;
    sw__target *const t = &c->gpu.target;
    t->lang = SW_LANG_CUDA;
    t->fp64 = true;
    t->max_group = SW_MIN(e->max_group, 1024);
    t->max_local[0] = t->max_local[1] = t->max_group;
    t->max_local[2] = SW_MIN(t->max_group, 64);
    t->local_bytes = e->local;
    t->units = e->units;
    t->width = 32;
    snprintf(c->gpu.key, sizeof c->gpu.key, "cuda|%.60s|sm_%d|driver %d %.30s|nvrtc %d for %d", e->name, e->sm,
             c->lib->driver, c->lib->driver_name, c->lib->nvrtc_version, e->arch);
    sw__gpu_key_options(&c->gpu, getenv("SWOOP_CUDA_OPTIONS"));
}

static void close_streams(sw__cu *c)
{
    if (c->stream != NULL) (void)c->api->cuStreamSynchronize(c->stream);
    if (c->copy != NULL) (void)c->api->cuStreamSynchronize(c->copy);
    sw__cu_upload_end(c);
    for (size_t i = 0; i < SW_COUNT(c->timer); i++)
        if (c->timer[i] != NULL) (void)c->api->cuEventDestroy_v2(c->timer[i]);
    if (c->copy != NULL) (void)c->api->cuStreamDestroy_v2(c->copy);
    if (c->stream != NULL) (void)c->api->cuStreamDestroy_v2(c->stream);
}

/* Also of a device that is lost: all calls then fail, which nobody needs to know. */
static void cu_close(void *dev)
{
    sw__cu *const c = dev;
    if (c == NULL) return;
    if (c->context != NULL) {
        enter(c);
        sw__nccl_close(c);
        if (c->stream != NULL) (void)c->api->cuStreamSynchronize(c->stream);
        sw__cu_library_close(c);
        sw__gpu_close(&c->gpu);
        close_streams(c);
        (void)c->api->cuCtxSetCurrent(NULL);
        (void)c->api->cuDevicePrimaryCtxRelease_v2(c->entry->id);
    }
    sw__free(c);
}

static sw_status start(sw__cu *c, const sw_device_options *o)
{
    void *const dev = c;
    const char *const check = getenv("SWOOP_CHECK");
    c->check = check != NULL && strcmp(check, "1") == 0;
    c->tf32 = o != NULL && o->tf32;
    if (c->tf32 && c->sm < 80)
        return sw__fail(SW_ERR_UNSUPPORTED, "cuda: %s has compute capability %d.%d and no TF32, which came with 8.0: leave "
                        "tf32 out (precision f32)", c->entry->name, c->sm / 10, c->sm % 10);
    set_target(c);
    c->gpu.driver = &sw__cu_driver;
    c->gpu.dev = c;
    c->gpu.backend = "cuda";
    c->gpu.name = c->entry->name;
    const sw__cu_result code = c->api->cuDevicePrimaryCtxRetain(&c->context, c->entry->id);
    if (code != SW_CU_OK) {
        c->context = NULL;
        return sw__cu_fail(c, code, "cuDevicePrimaryCtxRetain");
    }
    ENTER();
    CALL(cuStreamCreateWithPriority, &c->stream, SW_CU_STREAM_NON_BLOCKING, 0);
    CALL(cuStreamCreateWithPriority, &c->copy, SW_CU_STREAM_NON_BLOCKING, 0);
    SW_TRY(sw__gpu_init(&c->gpu, o));
    c->gpu.traits.max_buffers = SW_K_MAX_BUFFERS;
    if (c->entry->arch != c->sm)
        sw__log(SW_LOG_WARN, "cuda: NVRTC %d.%d is older than this GPU: kernels go through PTX of compute capability %d.%d; "
                "a newer toolkit makes better ones", c->lib->nvrtc_version / 1000, c->lib->nvrtc_version % 1000 / 10,
                c->entry->arch / 10, c->entry->arch % 10);
    return SW_OK;
}

static sw_status cu_open(int index, const sw_device_options *o, void **dev)
{
    const sw__cu_entry *e = NULL;
    SW_TRY(find_entry(index, &e));
    sw__cu *const c = sw__calloc(1, sizeof *c);
    if (c == NULL) return sw__no_memory(sizeof *c, "a CUDA device");
    c->lib = sw__cu_load();
    c->api = &c->lib->cu;
    c->entry = e;
    c->sm = e->sm;
    const sw_status st = start(c, o);
    if (st != SW_OK) {
        cu_close(c);
        return st;
    }
    *dev = c;
    return SW_OK;
}

static const sw__traits *cu_traits(void *dev)
{
    return &gpu(dev)->traits;
}

/* ---- memory and queue ---------------------------------------------------------------------------------------------- */

static sw_status cu_alloc(void *dev, size_t bytes, void **buffer)
{
    ENTER();
    return sw__cu_driver.alloc(dev, bytes, buffer);
}

static void cu_release(void *dev, void *buffer)
{
    enter(dev);
    sw__cu_driver.release(dev, buffer);
}

static sw_status cu_upload(void *dev, void *buffer, size_t offset, const void *src, size_t bytes)
{
    ENTER();
    return sw__cu_upload(dev, sw__cu_at(buffer, offset), src, bytes);
}

static sw_status cu_download(void *dev, const void *buffer, size_t offset, void *dst, size_t bytes)
{
    ENTER();
    if (gpu(dev)->checked) SW_TRY(sw__gpu_sync(gpu(dev)));
    return sw__cu_driver.download(dev, buffer, offset, dst, bytes);
}

static sw_status cu_fill(void *dev, void *buffer, size_t offset, size_t bytes, uint8_t byte)
{
    ENTER();
    return sw__cu_driver.fill(dev, buffer, offset, bytes, byte);
}

static sw_status cu_sync(void *dev)
{
    ENTER();
    return sw__gpu_sync(gpu(dev));
}

/* ---- kernels and ops ----------------------------------------------------------------------------------------------- */

static sw_status cu_kernel_build(void *dev, const sw__kernel *k, void **built, size_t *workspace)
{
    ENTER();
    return sw__gpu_kernel_build(gpu(dev), k, built, workspace);
}

static sw_status cu_tune(void *dev, const sw__op_desc *d, const double *flops, int n, bool measure)
{
    ENTER();
    return sw__gpu_tune(gpu(dev), d, flops, n, measure);
}

static sw_status cu_tuned(void *dev, sw_tune_result *out)
{
    return sw__gpu_tuned(gpu(dev), out);
}

static bool cu_op_accepts(void *dev, const sw__op_desc *d, int i)
{
    return sw__gpu_op_accepts(gpu(dev), d, i);
}

static sw_status cu_op_plan(void *dev, const sw__op_desc *d, void **plan, size_t *workspace)
{
    ENTER();
    return sw__gpu_op_plan(gpu(dev), d, plan, workspace);
}

static void cu_plan_free(void *dev, void *plan)
{
    enter(dev);
    sw__gpu_plan_free(plan);
}

static const char *cu_op_note(void *plan)
{
    return ((sw__gpu_plan *)plan)->note;
}

static sw_status cu_build(void *dev)
{
    ENTER();
    return sw__gpu_build(gpu(dev));
}

static sw_status cu_plan_ready(void *dev, void *plan)
{
    (void)dev;
    return sw__gpu_plan_ready(plan);
}

/* With SWOOP_CHECK a library's call is waited for too: whoever calls names the op. */
static sw_status cu_run(void *dev, void *plan, const sw__bind *bind)
{
    ENTER();
    SW_TRY(sw__gpu_plan_run(plan, bind));
    return ((sw__cu *)dev)->check ? sw__cu_driver.finish(dev) : SW_OK;
}

static sw_status cu_run_timed(void *dev, bool is_op, void *plan, const sw__bind *bind, double *seconds)
{
    (void)is_op;
    ENTER();
    return sw__gpu_run_timed(plan, bind, seconds);
}

/* ---- replay -------------------------------------------------------------------------------------------------------- */

static sw_status cu_record_begin(void *dev)
{
    ENTER();
    return sw__cu_record_begin(dev);
}

static sw_status cu_record_end(void *dev, bool failed, void **recording)
{
    enter(dev);
    return sw__cu_record_end(dev, failed, recording);
}

static sw_status cu_replay(void *dev, void *recording)
{
    ENTER();
    return sw__cu_replay(dev, recording);
}

static void cu_recording_free(void *dev, void *recording)
{
    enter(dev);
    sw__cu_recording_free(dev, recording);
}

/* ---- several devices ------------------------------------------------------------------------------------------------- */

static sw_status cu_comm_id(void *dev, sw__comm_id *out)
{
    ENTER();
    return sw__nccl_id_new(out);
}

static sw_status cu_comm_open(void *dev, const sw__comm_id *id, int rank, int ranks)
{
    ENTER();
    return sw__nccl_open(dev, id, rank, ranks);
}

static void cu_comm_close(void *dev)
{
    enter(dev);
    sw__nccl_close(dev);
}

/* ---- a user's kernels ---------------------------------------------------------------------------------------------- */

static sw_status cu_source_build(void *dev, const sw_kernel_source *s, void **built)
{
    ENTER();
    return sw__gpu_source_build(gpu(dev), s, built);
}

static void cu_source_free(void *dev, void *built)
{
    enter(dev);
    sw__gpu_source_free(gpu(dev), built);
}

static sw_status cu_source_launch(void *dev, void *built, const sw__source_launch *l)
{
    ENTER();
    return sw__gpu_source_launch(gpu(dev), built, l);
}

extern const sw__backend sw__backend_cuda;
const sw__backend sw__backend_cuda = {
    .name = "cuda",
    .count = cu_count,
    .absent = cu_absent,
    .open = cu_open,
    .tf32 = true,
    .close = cu_close,
    .properties = cu_describe,
    .traits = cu_traits,
    .alloc = cu_alloc,
    .release = cu_release,
    .upload = cu_upload,
    .download = cu_download,
    .fill = cu_fill,
    .sync = cu_sync,
    .kernel_build = cu_kernel_build,
    .kernel_free = cu_plan_free,
    .kernel_launch = cu_run,
    .tune = cu_tune,
    .tuned = cu_tuned,
    .op_accepts = cu_op_accepts,
    .op_plan = cu_op_plan,
    .op_free = cu_plan_free,
    .op_exec = cu_run,
    .op_note = cu_op_note,
    .build = cu_build,
    .plan_ready = cu_plan_ready,
    .run_timed = cu_run_timed,
    .record_begin = cu_record_begin,
    .record_end = cu_record_end,
    .replay = cu_replay,
    .recording_free = cu_recording_free,
    .comm_id = cu_comm_id,
    .comm_open = cu_comm_open,
    .comm_close = cu_comm_close,
    .source_build = cu_source_build,
    .source_free = cu_source_free,
    .source_launch = cu_source_launch,
};
