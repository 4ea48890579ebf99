/* kernel.c: device memory and kernels by hand: the lowest level that a user can write for (swoop/kernel.h).
 * Straight onto the backend: no graph, no plan, no pass. */
#include "exec/exec.h"
#include "swoop/kernel.h"

struct sw_buffer {
    sw_device *device;
    void *memory;
    size_t bytes;
};

struct sw_kernel {
    sw_device *device;
    void *built;
    char *name;
};

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

sw_status sw_buffer_new(sw_device *d, size_t bytes, sw_buffer **out)
{
    if (!d || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_buffer_new: device or out is NULL");
    sw_buffer *b = sw__calloc(1, sizeof *b);
    if (!b) return sw__no_memory(sizeof *b, "a buffer");
    b->bytes = bytes;
    const sw_status st = d->backend->alloc(d->dev, bytes, &b->memory);
    if (st != SW_OK) {
        sw__free(b);
        return sw__prefix(st, "sw_buffer_new on %s", d->info.id);
    }
    b->device = sw__device_use(d);
    *out = b;
    return SW_OK;
}

void sw_buffer_free(sw_buffer *b)
{
    if (!b) return;
    b->device->backend->release(b->device->dev, b->memory);
    sw_device_close(b->device);
    sw__free(b);
}

size_t sw_buffer_bytes(const sw_buffer *b)
{
    return b ? b->bytes : 0;
}

static sw_status check_copy(const sw_buffer *b, size_t offset, const void *host, size_t bytes, const char *call)
{
    if (!b) return sw__fail(SW_ERR_ARGUMENT, "%s: the buffer is NULL", call);
    if (offset > b->bytes || bytes > b->bytes - offset)
        return sw__fail(SW_ERR_ARGUMENT, "%s: %zu bytes from byte %zu on, but the buffer has %zu", call, bytes, offset,
                        b->bytes);
    if (!host && bytes > 0) return sw__fail(SW_ERR_ARGUMENT, "%s: the host memory is NULL", call);
    return SW_OK;
}

sw_status sw_buffer_write(sw_buffer *b, size_t offset, const void *src, size_t bytes)
{
    SW_TRY(check_copy(b, offset, src, bytes, "sw_buffer_write"));
    return bytes ? b->device->backend->upload(b->device->dev, b->memory, offset, src, bytes) : SW_OK;
}

sw_status sw_buffer_read(const sw_buffer *b, size_t offset, void *dst, size_t bytes)
{
    SW_TRY(check_copy(b, offset, dst, bytes, "sw_buffer_read"));
    return bytes ? b->device->backend->download(b->device->dev, b->memory, offset, dst, bytes) : SW_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

sw_status sw_kernel_new(sw_device *d, const sw_kernel_source *s, sw_kernel **out)
{
    if (!d || !s || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_kernel_new: device, source or out is NULL");
    if (!s->name || !*s->name)
        return sw__fail(SW_ERR_ARGUMENT, "sw_kernel_new: the source has no name: its entry point's");
    if (!d->backend->source_build)
        return sw__fail(SW_ERR_UNSUPPORTED, "device %s takes no kernels by hand", d->info.id);
    sw_kernel *k = sw__calloc(1, sizeof *k);
    if (!k) return sw__no_memory(sizeof *k, "a kernel");
    k->name = sw__strdup(s->name);
    sw_status st = k->name ? SW_OK : sw__no_memory(strlen(s->name), "a kernel's name");
    if (st == SW_OK) st = d->backend->source_build(d->dev, s, &k->built);
    if (st != SW_OK) {
        sw__free(k->name);
        sw__free(k);
        return st;
    }
    k->device = sw__device_use(d);
    *out = k;
    return SW_OK;
}

void sw_kernel_free(sw_kernel *k)
{
    if (!k) return;
    k->device->backend->source_free(k->device->dev, k->built);
    sw_device_close(k->device);
    sw__free(k->name);
    sw__free(k);
}

/* ---- arguments and launches -------------------------------------------------------------------------------------- */

sw_arg sw_arg_buffer(sw_buffer *b)
{
    return (sw_arg){.kind = SW_ARG_BUFFER, .buffer = b};
}

sw_arg sw_arg_buffer_at(sw_buffer *b, size_t offset)
{
    return (sw_arg){.kind = SW_ARG_BUFFER, .buffer = b, .offset = offset};
}

sw_arg sw_arg_i32(int32_t v)
{
    return (sw_arg){.kind = SW_ARG_I32, .i32 = v};
}

sw_arg sw_arg_i64(int64_t v)
{
    return (sw_arg){.kind = SW_ARG_I64, .i64 = v};
}

sw_arg sw_arg_f32(float v)
{
    return (sw_arg){.kind = SW_ARG_F32, .f32 = v};
}

uint32_t sw_groups(int64_t n, uint32_t local)
{
    if (n < 1 || local < 1) return 0;
    const int64_t groups = n / local + (n % local != 0);
    return groups <= INT32_MAX ? (uint32_t)groups : 0;
}

#define MAX_GROUP 1024

/* The grid with missing axes as 1. Limits of the device itself are the backend's to check. */
static sw_status check_grid(const sw_kernel *k, const sw_launch *l, sw__source_launch *out)
{
    double items = 1;
    uint64_t group = 1;
    for (int d = 0; d < 3; d++) {
        if (d == 0 && (l->groups[d] == 0 || l->local[d] == 0))
            return sw__fail(SW_ERR_ARGUMENT, "kernel '%s': %u groups of %u work-items along axis 0: there must be at "
                            "least 1 of each (sw_groups counts them)", k->name, l->groups[d], l->local[d]);
        out->groups[d] = SW_MAX(l->groups[d], 1u);
        out->local[d] = SW_MAX(l->local[d], 1u);
        if (out->groups[d] > INT32_MAX || out->local[d] > MAX_GROUP)
            return sw__fail(SW_ERR_ARGUMENT, "kernel '%s': %u groups of %u work-items along axis %d: at most "
                            "2147483647 groups of 1024 are possible", k->name, out->groups[d], out->local[d], d);
        group *= out->local[d];
        items *= (double)out->groups[d] * out->local[d];
    }
    if (group > MAX_GROUP)
        return sw__fail(SW_ERR_ARGUMENT, "kernel '%s': a group of %u x %u x %u work-items: at most 1024 are possible",
                        k->name, out->local[0], out->local[1], out->local[2]);
    if (items > 9e18) return sw__fail(SW_ERR_ARGUMENT, "kernel '%s': more work-items than 64 bits can count", k->name);
    return SW_OK;
}

static sw_status check_arg(const sw_kernel *k, int i, const sw_arg *a, sw__source_arg *out)
{
    *out = (sw__source_arg){.kind = (uint8_t)a->kind, .i32 = a->i32, .i64 = a->i64, .f32 = a->f32};
    if (a->kind < SW_ARG_BUFFER || a->kind > SW_ARG_F32)
        return sw__fail(SW_ERR_ARGUMENT, "kernel '%s': argument %d is of no kind: make it with sw_arg_buffer, "
                        "sw_arg_i64 …", k->name, i);
    if (a->kind != SW_ARG_BUFFER) return SW_OK;
    if (!a->buffer) return sw__fail(SW_ERR_ARGUMENT, "kernel '%s': argument %d is no buffer but NULL", k->name, i);
    if (a->buffer->device != k->device)
        return sw__fail(SW_ERR_ARGUMENT, "kernel '%s': argument %d is a buffer of another device than the kernel's, %s",
                        k->name, i, k->device->info.id);
    if (a->offset > a->buffer->bytes)
        return sw__fail(SW_ERR_ARGUMENT, "kernel '%s': argument %d starts at byte %zu of a buffer of %zu", k->name, i,
                        a->offset, a->buffer->bytes);
    out->bind = (sw__bind){a->buffer->memory, a->offset};
    return SW_OK;
}

sw_status sw_kernel_launch(sw_kernel *k, const sw_launch *l)
{
    if (!k || !l) return sw__fail(SW_ERR_ARGUMENT, "sw_kernel_launch: kernel or launch is NULL");
    if (l->n_args < 0 || l->n_args > SW_LAUNCH_MAX_ARGS || (l->n_args > 0 && !l->args))
        return sw__fail(SW_ERR_ARGUMENT, "kernel '%s': %d arguments%s: 0 to %d are possible", k->name, l->n_args,
                        l->args ? "" : " at NULL", SW_LAUNCH_MAX_ARGS);
    sw__source_arg args[SW_LAUNCH_MAX_ARGS];
    sw__source_launch launch = {.arg = args, .n_args = l->n_args};
    SW_TRY(check_grid(k, l, &launch));
    for (int i = 0; i < l->n_args; i++) SW_TRY(check_arg(k, i, &l->args[i], &args[i]));
    const sw_status st = k->device->backend->source_launch(k->device->dev, k->built, &launch);
    return st == SW_OK ? st : sw__prefix(st, "kernel '%s'", k->name);
}
