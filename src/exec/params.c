/* params.c: the variables of a model on a device: layout, initial values, reading and writing by name.
 * Made from a graph; shared by all programs that train or evaluate the same model. */
#include "exec/exec.h"
#include <math.h>

sw_dtype sw__stored_type(const sw__traits *t, sw_dtype declared)
{
    return sw__dtype_is_float(declared) && t->float_storage == SW_F64 ? SW_F64 : declared;
}

/* ---- host <-> device with conversion ------------------------------------------------------------------------------- */

typedef sw_status (*upload_function)(void *dev, void *buffer, size_t offset, const void *src, size_t bytes);

static sw_status write_by(upload_function upload, sw_device *d, void *buffer, size_t offset, sw_dtype stored,
                          const void *src, sw_dtype type, size_t n, void *staging)
{
    const size_t bytes = n * sw_dtype_size(stored);
    if (n == 0) return SW_OK;
    if (type == stored) return upload(d->dev, buffer, offset, src, bytes);
    char *host = d->backend->host_pointer ? d->backend->host_pointer(buffer) : NULL;
    if (host) {
        sw__convert(host + offset, stored, src, type, n);
        return SW_OK;
    }
    sw__convert(staging, stored, src, type, n);
    return upload(d->dev, buffer, offset, staging, bytes);
}

sw_status sw__write_elements(sw_device *d, void *buffer, size_t offset, sw_dtype stored, const void *src, sw_dtype type,
                             size_t n, void *staging)
{
    return write_by(d->backend->upload, d, buffer, offset, stored, src, type, n, staging);
}

sw_status sw__write_input(sw_device *d, const sw__bind *slot, sw_dtype stored, const void *src, sw_dtype type, size_t n,
                          void *staging)
{
    const upload_function upload = d->backend->upload_input ? d->backend->upload_input : d->backend->upload;
    return write_by(upload, d, slot->buffer, slot->offset, stored, src, type, n, staging);
}

sw_status sw__read_elements(sw_device *d, const void *buffer, size_t offset, sw_dtype stored, void *dst, sw_dtype type,
                            size_t n, void *staging)
{
    if (n == 0) return SW_OK;
    if (type == stored) return d->backend->download(d->dev, buffer, offset, dst, n * sw_dtype_size(stored));
    const char *host = d->backend->host_pointer ? d->backend->host_pointer((void *)(uintptr_t)buffer) : NULL;
    if (host) {
        SW_TRY(d->backend->sync(d->dev));
        sw__convert(dst, type, host + offset, stored, n);
        return SW_OK;
    }
    SW_TRY(d->backend->download(d->dev, buffer, offset, staging, n * sw_dtype_size(stored)));
    sw__convert(dst, type, staging, stored, n);
    return SW_OK;
}

/* ---- layout ---------------------------------------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static sw_status slot_of(const sw_graph *g, const sw__traits *t, uint32_t i, sw_params *p)
{
    const sw__var *v = &g->vars[i];
    sw__var_slot *s = &p->slots[i];
    s->info.name = sw__arena_strdup(&p->arena, v->name);
    if (!s->info.name) return sw__no_memory(strlen(v->name) + 1, "a variable's name");
    s->info.kind = v->kind;
    s->info.dtype = v->dtype;
    s->info.rank = v->rank;
    memcpy(s->info.shape, v->dim, sizeof v->dim);
    s->info.elements = sw__dims_product(v->dim, v->rank);
    s->stored = sw__stored_type(t, v->dtype);
    return sw__names_put(&p->names, s->info.name, i);
}

/* Packed groups first, each at an aligned offset of its kind's buffer; then the variables that are in no group. */
sw_status sw__params_layout(const sw_graph *g, const sw__traits *t, sw_params *p)
{
    const size_t align = SW_MAX(t->alignment, (size_t)64);
    p->n = g->n_vars;
    p->slots = sw__calloc(SW_MAX(g->n_vars, 1u), sizeof *p->slots);
    if (!p->slots) return sw__no_memory(g->n_vars * sizeof *p->slots, "the table of variables");
    for (uint32_t i = 0; i < g->n_vars; i++) SW_TRY(slot_of(g, t, i, p));
    for (uint32_t k = 0; k < g->n_groups; k++) {
        const sw__group *group = &g->groups[k];
        if (group->n == 0) continue;
        const sw_var_kind kind = g->vars[group->vars[0]].kind;
        const size_t size = sw_dtype_size(sw__stored_type(t, group->dtype));
        for (uint32_t j = 0; j < group->n; j++) {
            if (g->vars[group->vars[j]].kind != kind)
                return sw__fail(SW_ERR_ARGUMENT, "variable '%s': a packed group has variables of one kind only",
                                g->vars[group->vars[j]].name);
            p->slots[group->vars[j]].offset = p->bytes[kind] + (size_t)g->vars[group->vars[j]].place * size;
        }
        p->bytes[kind] += round_up((size_t)group->elements * size, align);
    }
    for (uint32_t i = 0; i < g->n_vars; i++) {
        sw__var_slot *s = &p->slots[i];
        if (g->vars[i].group >= 0) continue;
        s->offset = p->bytes[s->info.kind];
        size_t bytes = 0;
        if (!sw__mul_size((size_t)s->info.elements, sw_dtype_size(s->stored), &bytes))
            return sw__no_memory(SIZE_MAX, s->info.name);
        p->bytes[s->info.kind] += round_up(bytes, align);
    }
    return SW_OK;
}

void sw__params_layout_free(sw_params *p)
{
    sw__free(p->slots);
    sw__names_free(&p->names);
    sw__arena_free(&p->arena);
}

/* ---- initial values ---------------------------------------------------------------------------------------------------- */

static void fans(const sw__var *v, double *fan_in, double *fan_out)
{
    double field = 1;
    for (int i = 2; i < v->rank; i++) field *= (double)v->dim[i];
    *fan_in = v->rank >= 2 ? (double)v->dim[1] * field : v->rank == 1 ? (double)v->dim[0] : 1;
    *fan_out = v->rank >= 2 ? (double)v->dim[0] * field : *fan_in;
    if (v->init.fan > 0) *fan_in = (double)v->init.fan;
}

/* Turns the kind into uniform [a, b) or normal(a, b); true if uniform. */
static bool init_range(const sw__var *v, double *a, double *b)
{
    double in, out;
    fans(v, &in, &out);
    in = SW_MAX(in, 1.0);
    out = SW_MAX(out, 1.0);
    double bound = 0, sd = 0;
    switch (v->init.kind) {
    case SW_INIT_FAN_IN_UNIFORM: bound = 1 / sqrt(in); break;
    case SW_INIT_XAVIER_UNIFORM: bound = sqrt(6 / (in + out)); break;
    case SW_INIT_HE_UNIFORM: bound = sqrt(6 / in); break;
    case SW_INIT_XAVIER_NORMAL: sd = sqrt(2 / (in + out)); break;
    case SW_INIT_HE_NORMAL: sd = sqrt(2 / in); break;
    case SW_INIT_UNIFORM: *a = v->init.a; *b = v->init.b; return true;
    case SW_INIT_NORMAL: *a = v->init.a; *b = v->init.b; return false;
    case SW_INIT_ZEROS:
    case SW_INIT_CONSTANT: break;
    }
    *a = sd > 0 ? 0 : -bound;
    *b = sd > 0 ? sd : bound;
    return !(sd > 0);
}

/* Where a variable's values come from. The stream of random numbers depends on its name, not on its place. */
typedef struct source {
    const sw__var *v;
    bool drawn, uniform;
    double a, b;
    sw__rng rng; /* before the first draw */
} source;

static source source_of(const sw__var *v, uint64_t seed)
{
    source s = {.v = v, .drawn = v->init.kind != SW_INIT_ZEROS && v->init.kind != SW_INIT_CONSTANT};
    s.a = v->init.kind == SW_INIT_CONSTANT ? v->init.a : 0;
    if (!s.drawn) return s;
    s.uniform = init_range(v, &s.a, &s.b);
    sw__rng_init(&s.rng, seed, sw__name_hash(v->name));
    return s;
}

/* Fills in n values from the i-th on; drawn ones are rounded to float so that every device starts alike. */
static void fill_values(const source *s, size_t i, double *out, size_t n)
{
    if (!s->drawn) {
        for (size_t k = 0; k < n; k++) out[k] = s->a;
        return;
    }
    (s->uniform ? sw__rng_uniforms : sw__rng_normals)(&s->rng, i, out, n);
    for (size_t k = 0; k < n; k++) out[k] = (float)(s->a + (s->uniform ? s->b - s->a : s->b) * out[k]);
}

#define PIECE 2048 /* values that are drawn before they are converted: they stay in the cache */

/* Straight into memory that the host can address, by the threads of a device that computes on it. */
static void fill_in_place(const sw_params *p, const sw__var_slot *s, const source *from, char *to)
{
    const int64_t n = s->info.elements, pieces = (n + PIECE - 1) / PIECE;
#pragma omp parallel for num_threads(SW_MAX(p->device->traits->compute_units, 1)) schedule(static) if (pieces > 8)
    for (int64_t k = 0; k < pieces; k++) {
        double values[PIECE];
        const size_t count = (size_t)SW_MIN((int64_t)PIECE, n - k * PIECE);
        fill_values(from, (size_t)(k * PIECE), values, count);
        sw__convert(to + (size_t)(k * PIECE) * sw_dtype_size(s->stored), s->stored, values, SW_F64, count);
    }
}

static sw_status fill_over_there(sw_params *p, const sw__var_slot *s, const source *from)
{
    const size_t n = (size_t)s->info.elements, bytes = SW_MAX(n, (size_t)1) * (sizeof(double) + sw_dtype_size(s->stored));
    double *const values = sw__malloc(bytes); /* what follows n of them: staging */
    if (!values) return sw__no_memory(bytes, "initial values");
    fill_values(from, 0, values, n);
    const sw_status st = sw__write_elements(p->device, p->buffer[s->info.kind], s->offset, s->stored, values, SW_F64, n,
                                            values + n);
    sw__free(values);
    return st;
}

static sw_status initialise(sw_params *p, const sw_graph *g, uint64_t seed)
{
    const sw__backend *const b = p->device->backend;
    for (uint32_t i = 0; i < p->n; i++) {
        const sw__var_slot *const s = &p->slots[i];
        const source from = source_of(&g->vars[i], seed);
        if (s->info.elements == 0) continue;
        if (!from.drawn && from.a == 0) continue; /* buffers come zeroed; their pages stay untouched until used */
        char *const host = b->host_pointer ? b->host_pointer(p->buffer[s->info.kind]) : NULL;
        if (host)
            fill_in_place(p, s, &from, host + s->offset);
        else
            SW_TRY(fill_over_there(p, s, &from));
    }
    return SW_OK;
}

sw_status sw_params_new(sw_device *d, const sw_graph *g, uint64_t seed, sw_params **out)
{
    if (!d || !g || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_params_new: device, graph or out is NULL");
    SW_TRY(sw_graph_status(g));
    sw_params *p = sw__calloc(1, sizeof *p);
    if (!p) return sw__no_memory(sizeof *p, "a set of variables");
    p->device = sw__device_use(d);
    p->writes = 1;
    sw_status st = sw__params_layout(g, d->traits, p);
    for (int k = 0; k < SW__VAR_KINDS && st == SW_OK; k++)
        if (p->bytes[k]) st = d->backend->alloc(d->dev, p->bytes[k], &p->buffer[k]);
    if (st == SW_OK) st = initialise(p, g, seed);
    if (st != SW_OK) {
        sw_params_free(p);
        return st;
    }
    *out = p;
    return SW_OK;
}

void sw_params_free(sw_params *p)
{
    if (!p) return;
    for (int k = 0; k < SW__VAR_KINDS; k++)
        if (p->buffer[k]) p->device->backend->release(p->device->dev, p->buffer[k]);
    sw__params_layout_free(p);
    sw_device_close(p->device);
    sw__free(p);
}

/* ---- by name and number ------------------------------------------------------------------------------------------------ */

int sw_params_count(const sw_params *p)
{
    return p ? (int)p->n : 0;
}

sw_status sw_params_info(const sw_params *p, int i, sw_var_info *out)
{
    if (!p || i < 0 || (uint32_t)i >= p->n || !out)
        return sw__fail(SW_ERR_ARGUMENT, "sw_params_info: there is no variable %d (of %d)", i, sw_params_count(p));
    *out = p->slots[i].info;
    return SW_OK;
}

int sw_params_find(const sw_params *p, const char *name)
{
    uint32_t i = 0;
    return p && name && sw__names_find(&p->names, name, &i) ? (int)i : -1;
}

static sw_status check_access(const sw_params *p, int i, const void *data, int64_t n, sw_dtype type, const char *what)
{
    if (!p || i < 0 || (uint32_t)i >= p->n)
        return sw__fail(SW_ERR_ARGUMENT, "%s: there is no variable %d (of %d; -1 is what sw_params_find gives for a name "
                        "that there is not)", what, i, sw_params_count(p));
    if (sw_dtype_size(type) == 0) return sw__fail(SW_ERR_ARGUMENT, "%s: %d is no data type", what, (int)type);
    const sw_var_info *v = &p->slots[i].info;
    if (n != v->elements)
        return sw__fail(SW_ERR_SHAPE, "%s: variable '%s' has %lld elements, not %lld", what, v->name,
                        (long long)v->elements, (long long)n);
    if (!data && n > 0) return sw__fail(SW_ERR_ARGUMENT, "%s: variable '%s': the data is NULL", what, v->name);
    return SW_OK;
}

/* Scratch where type and stored type differ and the device's memory is out of the host's reach. */
static sw_status staging_for(const sw_params *p, const sw__var_slot *s, sw_dtype type, void **staging)
{
    *staging = NULL;
    const sw__backend *b = p->device->backend;
    if (type == s->stored || (b->host_pointer && b->host_pointer(p->buffer[s->info.kind]))) return SW_OK;
    const size_t bytes = (size_t)s->info.elements * sw_dtype_size(s->stored);
    *staging = sw__malloc(bytes);
    return *staging ? SW_OK : sw__no_memory(bytes, "converting a variable");
}

sw_status sw_params_get(sw_params *p, int i, sw_dtype type, void *dst, int64_t n)
{
    SW_TRY(check_access(p, i, dst, n, type, "sw_params_get"));
    const sw__var_slot *s = &p->slots[i];
    void *staging = NULL;
    SW_TRY(staging_for(p, s, type, &staging));
    const sw_status st = sw__read_elements(p->device, p->buffer[s->info.kind], s->offset, s->stored, dst, type, (size_t)n,
                                           staging);
    sw__free(staging);
    return st;
}

sw_status sw_params_set(sw_params *p, int i, sw_dtype type, const void *src, int64_t n)
{
    SW_TRY(check_access(p, i, src, n, type, "sw_params_set"));
    const sw__var_slot *s = &p->slots[i];
    void *staging = NULL;
    SW_TRY(staging_for(p, s, type, &staging));
    p->writes++;
    const sw_status st = sw__write_elements(p->device, p->buffer[s->info.kind], s->offset, s->stored, src, type,
                                            (size_t)n, staging);
    sw__free(staging);
    return st;
}

static sw_status copy_variable(sw_params *from, int i, sw_params *to, int at)
{
    const sw_var_info *const v = &to->slots[at].info;
    const size_t bytes = (size_t)v->elements * sw_dtype_size(v->dtype);
    void *const values = sw__malloc(SW_MAX(bytes, (size_t)1));
    if (!values) return sw__no_memory(bytes, "a variable's copy");
    sw_status st = sw_params_get(from, i, v->dtype, values, v->elements);
    if (st == SW_OK) st = sw_params_set(to, at, v->dtype, values, v->elements);
    sw__free(values);
    return st;
}

sw_status sw__params_copy(sw_params *from, sw_params *to)
{
    for (int at = 0; at < sw_params_count(to); at++) {
        const int i = sw_params_find(from, to->slots[at].info.name);
        if (i >= 0) SW_TRY(copy_variable(from, i, to, at));
    }
    return SW_OK;
}

uint64_t sw_params_bytes(const sw_params *p)
{
    uint64_t sum = 0;
    for (int k = 0; p && k < SW__VAR_KINDS; k++) sum += p->bytes[k];
    return sum;
}

/* ---- for programs -------------------------------------------------------------------------------------------------------- */

sw_status sw__params_match(const sw_params *p, const sw__var *v, uint32_t *slot)
{
    const int i = sw_params_find(p, v->name);
    if (i < 0)
        return sw__fail(SW_ERR_ARGUMENT, "variable '%s' is not among the given parameters: make them (sw_params_new) from "
                        "the graph that declares every variable, the training graph", v->name);
    const sw_var_info *have = &p->slots[i].info;
    bool same = have->dtype == v->dtype && have->rank == v->rank && have->kind == v->kind;
    for (int k = 0; same && k < v->rank; k++) same = have->shape[k] == v->dim[k];
    if (!same) {
        char want[128], got[128];
        sw__node a = {.dtype = (uint8_t)v->dtype, .rank = v->rank}, b = {.dtype = (uint8_t)have->dtype,
                                                                           .rank = (uint8_t)have->rank};
        memcpy(a.dim, v->dim, sizeof a.dim);
        memcpy(b.dim, have->shape, sizeof b.dim);
        return sw__fail(SW_ERR_SHAPE, "variable '%s' is %s in this graph but %s in the given parameters", v->name,
                        sw__shape_text(&a, want, sizeof want), sw__shape_text(&b, got, sizeof got));
    }
    *slot = (uint32_t)i;
    return SW_OK;
}

sw_status sw__params_group(const sw_params *p, const sw_graph *g, uint32_t group, sw__bind *out)
{
    const sw__group *k = &g->groups[group];
    for (uint32_t j = 0; j < k->n; j++) {
        const sw__var *v = &g->vars[k->vars[j]];
        uint32_t slot = 0;
        SW_TRY(sw__params_match(p, v, &slot));
        const sw__var_slot *s = &p->slots[slot];
        const size_t place = (size_t)v->place * sw_dtype_size(s->stored);
        if (j == 0) *out = (sw__bind){p->buffer[s->info.kind], s->offset - place};
        if (s->offset != out->offset + place || p->buffer[s->info.kind] != out->buffer)
            return sw__fail(SW_ERR_ARGUMENT, "variable '%s' is not laid out as this graph's optimiser needs it: make the "
                            "parameters (sw_params_new) from the graph with the optimiser", v->name);
    }
    return SW_OK;
}
