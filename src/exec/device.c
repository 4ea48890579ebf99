/* device.c: finding, opening and describing devices by name.
 * Top of the backends, under compile and everything that runs. */
#include "exec/exec.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static bool is_virtual(const sw__backend *b)
{
    return strcmp(b->name, "ref") == 0 || strcmp(b->name, "null") == 0;
}

/* Properties of device `index` of a backend, with the id filled in: "cpu", or "cuda:1" where there can be several. */
static sw_status describe(const sw__backend *b, int index, sw_device_properties *p)
{
    memset(p, 0, sizeof *p);
    SW_TRY(b->properties(index, p));
    snprintf(p->backend, sizeof p->backend, "%s", b->name);
    if (!p->id[0]) snprintf(p->id, sizeof p->id, "%s", b->name);
    return SW_OK;
}

int sw_device_list(sw_device_properties *out, int max, bool include_virtual)
{
    int n = 0;
    for (const sw__backend *const *b = sw__backends; *b; b++) {
        if (is_virtual(*b) && !include_virtual) continue;
        const int count = (*b)->count();
        for (int i = 0; i < count; i++, n++) {
            if (out == NULL || n >= max) continue;
            if (describe(*b, i, &out[n]) != SW_OK) {
                out[n].usable = false;
                snprintf(out[n].status, sizeof out[n].status, "%.150s", sw_error());
            }
        }
    }
    return n;
}

const char *sw_device_missing(int i, const char **backend)
{
    for (const sw__backend *const *b = sw__backends; *b; b++) {
        const char *const why = (*b)->absent ? (*b)->absent() : NULL;
        if (!why || i-- > 0) continue;
        if (backend) *backend = (*b)->name;
        return why;
    }
    return NULL;
}

/* The best usable device: backends stand in order of preference, devices in the backend's own order. A processor through a
 * GPU's interface is not what anybody wants: of CPUs only the cpu backend's is taken. */
static sw_status find_auto(const sw__backend **backend, int *index)
{
    for (const sw__backend *const *b = sw__backends; *b; b++) {
        const int count = is_virtual(*b) ? 0 : (*b)->count();
        for (int i = 0; i < count; i++) {
            sw_device_properties p;
            if (describe(*b, i, &p) != SW_OK || !p.usable) continue;
            if (strcmp(p.type, "cpu") == 0 && strcmp((*b)->name, "cpu") != 0) continue;
            *backend = *b;
            *index = i;
            return SW_OK;
        }
    }
    return sw__fail(SW_ERR_DEVICE, "no usable device on this machine");
}

static bool contains(const char *text, const char *part)
{
    const size_t n = strlen(part);
    for (; *text; text++)
        if (strncasecmp(text, part, n) == 0) return true;
    return false;
}

/* "cpu" is also "cpu:0", "opencl" is "opencl:0"; "opencl:amd" is the first whose name or vendor has "amd". */
static bool is_meant(const sw__backend *b, int i, const sw_device_properties *p, const char *id)
{
    char with_index[48];
    const size_t n = strlen(b->name);
    snprintf(with_index, sizeof with_index, "%s:%d", b->name, i);
    if (strcmp(id, p->id) == 0 || strcmp(id, with_index) == 0 || (i == 0 && strcmp(id, b->name) == 0)) return true;
    if (strncmp(id, b->name, n) != 0 || id[n] != ':' || !id[n + 1] || isdigit((unsigned char)id[n + 1])) return false;
    return contains(p->name, id + n + 1) || contains(p->vendor, id + n + 1);
}

/* What the backend that an id names says about there being no device at all; or NULL. */
static const char *why_absent(const char *id)
{
    for (const sw__backend *const *b = sw__backends; *b; b++) {
        const size_t n = strlen((*b)->name);
        if (strncmp(id, (*b)->name, n) == 0 && (id[n] == '\0' || id[n] == ':')) return (*b)->absent ? (*b)->absent() : NULL;
    }
    return NULL;
}

/* Only the backend that the id names is asked: another's library may take long to open. */
static sw_status find_named(const char *id, const sw__backend **backend, int *index)
{
    for (const sw__backend *const *b = sw__backends; *b; b++) {
        const size_t n = strlen((*b)->name);
        if (strncmp(id, (*b)->name, n) != 0 || (id[n] && id[n] != ':')) continue;
        const int count = (*b)->count();
        for (int i = 0; i < count; i++) {
            sw_device_properties p;
            if (describe(*b, i, &p) != SW_OK || !is_meant(*b, i, &p, id)) continue;
            *backend = *b;
            *index = i;
            return SW_OK;
        }
    }
    sw__text known = {0};
    for (const sw__backend *const *b = sw__backends; *b; b++) {
        for (int i = 0, count = (*b)->count(); i < count; i++) {
            sw_device_properties p;
            if (describe(*b, i, &p) == SW_OK) sw__text_add(&known, "%s%s", known.len ? ", " : "", p.id);
        }
    }
    const char *const why = why_absent(id);
    const sw_status st = sw__fail(SW_ERR_ARGUMENT, "there is no device '%s': choose from auto, %s%s%s", id,
                                  known.s ? known.s : "(none)", why ? ". " : "", why ? why : "");
    sw__text_free(&known);
    return st;
}

sw_status sw_device_open(const char *id, const sw_device_options *o, sw_device **out)
{
    if (!out) return sw__fail(SW_ERR_ARGUMENT, "sw_device_open: out is NULL");
    static const sw_device_options defaults = {0};
    if (!o) o = &defaults;
    if (!id || strcmp(id, "auto") == 0) {
        id = getenv("SWOOP_DEVICE");
        if (id && (!*id || strcmp(id, "auto") == 0)) id = NULL;
    }
    const sw__backend *backend = NULL;
    int index = 0;
    if (id)
        SW_TRY(find_named(id, &backend, &index));
    else
        SW_TRY(find_auto(&backend, &index));
    sw_device *d = sw__calloc(1, sizeof *d);
    if (!d) return sw__no_memory(sizeof *d, "a device handle");
    d->backend = backend;
    sw_status st = describe(backend, index, &d->info);
    if (st == SW_OK && !d->info.usable) st = sw__fail(SW_ERR_DEVICE, "device %s: %s", d->info.id, d->info.status);
    if (st == SW_OK && o->tf32 && !backend->tf32)
        st = sw__fail(SW_ERR_UNSUPPORTED, "device %s has no TF32, which is NVIDIA's: choose cuda:0, or leave tf32 out "
                      "(precision f32)", d->info.id);
    if (st == SW_OK && (o->tune_all || o->write_kernels) && !backend->tuned)
        st = sw__fail(SW_ERR_UNSUPPORTED, "device %s compiles no kernels: choose a GPU, for instance --device cuda:0",
                      d->info.id);
    if (st == SW_OK) st = backend->open(index, o, &d->dev);
    if (st != SW_OK) {
        sw__free(d);
        return st;
    }
    atomic_init(&d->users, 1);
    d->traits = backend->traits(d->dev);
    d->tf32 = o->tf32;
    *out = d;
    return SW_OK;
}

static void describe_planned(const sw_gpu_model *gpu, sw_device_properties *p)
{
    *p = (sw_device_properties){.memory_total = gpu->memory, .memory_free = gpu->memory, .bandwidth = gpu->bandwidth,
                                .compute_units = gpu->compute_units, .usable = true};
    snprintf(p->id, sizeof p->id, "%.31s", gpu->name);
    snprintf(p->backend, sizeof p->backend, "planned");
    snprintf(p->type, sizeof p->type, "gpu");
    snprintf(p->vendor, sizeof p->vendor, "%s", gpu->vendor);
    snprintf(p->name, sizeof p->name, "%s", gpu->name);
    if (gpu->capability > 0) snprintf(p->compute, sizeof p->compute, "sm_%d, %.1f TFLOP/s", gpu->capability, gpu->flops * 1e-12);
    else snprintf(p->compute, sizeof p->compute, "%.1f TFLOP/s", gpu->flops * 1e-12);
    snprintf(p->driver, sizeof p->driver, "-");
    snprintf(p->status, sizeof p->status, "not in this machine: plans only");
}

sw_status sw_device_open_planned(const sw_gpu_model *gpu, bool libraries, sw_device **out)
{
    if (!gpu || !out || !*gpu->name) return sw__fail(SW_ERR_ARGUMENT, "sw_device_open_planned: gpu or out is NULL, or it has no name");
    sw_device *d = sw__calloc(1, sizeof *d);
    if (!d) return sw__no_memory(sizeof *d, "a device handle");
    d->backend = &sw__backend_planned;
    describe_planned(gpu, &d->info);
    const sw_status st = sw__planned_open(gpu, libraries, &d->dev);
    if (st != SW_OK) {
        sw__free(d);
        return st;
    }
    atomic_init(&d->users, 1);
    d->traits = d->backend->traits(d->dev);
    *out = d;
    return SW_OK;
}

sw_device *sw__device_use(sw_device *d)
{
    atomic_fetch_add(&d->users, 1);
    return d;
}

void sw_device_close(sw_device *d)
{
    if (!d || atomic_fetch_sub(&d->users, 1) > 1) return;
    d->backend->close(d->dev);
    sw__free(d);
}

const sw_device_properties *sw_device_info(const sw_device *d)
{
    return d ? &d->info : NULL;
}

sw_status sw_device_measure(sw_device *d, sw_device_peak *out)
{
    if (!d || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_device_measure: device or out is NULL");
    if (!d->backend->peak)
        return sw__fail(SW_ERR_UNSUPPORTED, "%s: nothing measures what this kind of device can do at most; the cpu's is",
                        d->info.id);
    if (d->peak.flops <= 0) {
        sw_device_peak peak = {0};
        SW_TRY(d->backend->peak(d->dev, &peak));
        d->peak = peak;
    }
    *out = d->peak;
    return SW_OK;
}

sw_status sw_device_tuned(const sw_device *d, sw_tune_result *out)
{
    if (!d || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_device_tuned: device or out is NULL");
    *out = (sw_tune_result){0};
    sw_status st = d->backend->tuned ? d->backend->tuned(d->dev, out) : SW_OK;
    if (st == SW_OK && !out->table) out->table = sw__strdup("");
    if (st == SW_OK && !out->table) st = sw__no_memory(1, "a table");
    if (st != SW_OK) sw_tune_result_free(out);
    return st;
}

void sw_tune_result_free(sw_tune_result *r)
{
    if (!r) return;
    sw__free(r->ops);
    sw__free(r->table);
    *r = (sw_tune_result){0};
}
