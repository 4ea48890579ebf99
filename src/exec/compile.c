/* compile.c: a graph becomes a program: the pipeline of docs/tour.md, top to bottom. The one place where passes meet a backend.
 * sw_compile -> passes -> schedule -> backend plans each step -> memory plan -> allocate and bind. */
#include "exec/exec.h"
#include <stdlib.h>

/* What compiling holds until the program is done; freed at the end whatever happens. */
typedef struct compilation {
    sw_device *device;
    const sw_compile_options *options;
    sw_graph *graph;          /* after the passes */
    sw__schedule *schedule;
    sw_program *program;
    sw__bind *storage;        /* where each storage is */
    size_t *input_offset, *const_offset; /* of each graph input; of each storage that is a constant or kept */
    size_t inputs_bytes, consts_bytes, kept_bytes;
    bool keeps;               /* what depends on variables alone is computed once */
    uint32_t *kernels;        /* steps with kernels, by their hash: 1 + step, 0 free; a power of two of them */
    size_t n_kernels;
    bool to_run;              /* sw_compile; a plan alone measures nothing */
} compilation;

/* ---- graph -> graph ------------------------------------------------------------------------------------------------------ */

typedef sw_status (*traited_pass)(const sw_graph *, const sw__traits *, sw_graph **);

static sw_status simplify(const sw_graph *g, const sw__traits *t, sw_graph **out)
{
    (void)t;
    return sw__pass_simplify(g, out);
}

static const struct {
    const char *name;
    traited_pass run;
    bool optional; /* left out with no_simplify, or where the device fuses nothing */
} passes[] = {
    {"lookup", sw__pass_lookup, true},
    {"simplify", simplify, true},
    {"lower", sw__pass_lower, false},
    {"simplify", simplify, true}, /* what lowering left behind */
    {"epilogue", sw__pass_epilogue, true},
    {"layout", sw__pass_layout, true},
};

static sw_status run_passes(compilation *c, const sw_graph *g)
{
    sw__traits traits = *c->device->traits;
    traits.keeps = c->keeps;
    const sw__traits *const t = &traits;
    const bool skip = c->options->no_simplify || !t->fuse;
    for (size_t i = 0; i < SW_COUNT(passes); i++) {
        if (passes[i].optional && skip) continue;
        const sw_graph *from = c->graph ? c->graph : g;
        sw_graph *to = NULL;
        sw__dump_graph(passes[i].name, "before", from);
        const sw_status st = passes[i].run(from, t, &to);
        if (st != SW_OK) return sw__prefix(st, "pass %s", passes[i].name);
        sw__dump_graph(passes[i].name, "after", to);
        sw_graph_free(c->graph);
        c->graph = to;
    }
    return SW_OK;
}

/* ---- schedule, and the backend's plans ------------------------------------------------------------------------------------ */

static bool ask_accepts(void *ctx, const sw__op_desc *d, int i)
{
    const sw_device *device = ctx;
    return !device->backend->op_accepts || device->backend->op_accepts(device->dev, d, i);
}

static sw_status index_kernels(compilation *c)
{
    c->n_kernels = 16;
    while (c->n_kernels < 2 * (size_t)c->schedule->n_steps) c->n_kernels *= 2;
    c->kernels = sw__calloc(c->n_kernels, sizeof *c->kernels);
    return c->kernels ? SW_OK : sw__no_memory(c->n_kernels * sizeof *c->kernels, "the table of kernels");
}

/* The earlier step with an equal kernel, or `step` itself, which is then remembered. */
static uint32_t first_equal(compilation *c, uint32_t step)
{
    const sw__kernel *const k = c->schedule->steps[step].kernel;
    size_t at = (size_t)(k->hash ^ k->hash >> 32) & (c->n_kernels - 1);
    for (; c->kernels[at]; at = (at + 1) & (c->n_kernels - 1)) {
        const uint32_t other = c->kernels[at] - 1;
        const sw__kernel *const o = c->schedule->steps[other].kernel;
        if (o->hash == k->hash && sw__kernel_equal(o, k)) return other;
    }
    c->kernels[at] = step + 1;
    return step;
}

static sw_status plan_kernel(compilation *c, uint32_t i, size_t *workspace)
{
    sw__launch *const l = &c->program->launches[i];
    const sw__schedule *const s = c->schedule;
    const uint32_t first = first_equal(c, i);
    if (first == i) return c->device->backend->kernel_build(c->device->dev, s->steps[i].kernel, &l->built, workspace);
    l->built = c->program->launches[first].built;
    l->shared = true;
    if (s->steps[first].workspace >= 0) /* the same kernel needs the same workspace */
        *workspace = s->storages[s->steps[first].workspace].bytes;
    return SW_OK;
}

/* Bytes that divide where a tensor begins: storages, and variables in a packed group, begin at multiples of 16. */
static uint16_t alignment(const sw__ref *r)
{
    const size_t at = ((size_t)r->offset * sw_dtype_size((sw_dtype)r->desc.dtype)) | 16;
    return (uint16_t)(at & (~at + 1));
}

static sw_status plan_op(compilation *c, uint32_t i, size_t *workspace)
{
    const sw__step *s = &c->schedule->steps[i];
    const size_t n = (size_t)s->n_in + (size_t)s->n_out;
    sw__desc *descs = sw__malloc(SW_MAX(n, (size_t)1) * sizeof *descs);
    if (!descs) return sw__no_memory(n * sizeof *descs, "an op's descriptors");
    for (size_t k = 0; k < n; k++) {
        descs[k] = s->refs[k].desc;
        descs[k].align = alignment(&s->refs[k]);
    }
    sw__op_desc d = {.op = s->op, .attr = &s->attr, .name = s->name, .n_in = s->n_in, .n_out = s->n_out,
                     .in = descs, .out = descs + s->n_in};
    for (int k = 0; k < SW_MIN(s->n_in, 32) && c->device->backend->op_packs; k++)
        if (sw__schedule_fixed(c->schedule, i, k)) d.fixed |= UINT32_C(1) << k;
    const sw_status st = c->device->backend->op_plan(c->device->dev, &d, &c->program->launches[i].built, workspace);
    sw__free(descs);
    return st;
}

/* The ops handed over whole, their descriptors one after another in *descs. */
static int list_ops(const compilation *c, sw__op_desc *ops, double *flops, sw__desc *descs)
{
    int n = 0;
    for (uint32_t i = 0; i < c->schedule->n_steps; i++) {
        const sw__step *s = &c->schedule->steps[i];
        if (s->kind != SW_STEP_OP) continue;
        ops[n] = (sw__op_desc){.op = s->op, .attr = &s->attr, .name = s->name, .n_in = s->n_in, .n_out = s->n_out,
                                .in = descs, .out = descs + s->n_in};
        flops[n++] = s->flops;
        for (int k = 0; k < s->n_in + s->n_out; k++) *descs++ = s->refs[k].desc;
    }
    return n;
}

/* A backend that has several ways to do an op decides now, knowing all of them. */
static sw_status tune(compilation *c)
{
    const sw__backend *b = c->device->backend;
    size_t n_ops = 0, n_descs = 0;
    if (!b->tune || !c->to_run) return SW_OK;
    for (uint32_t i = 0; i < c->schedule->n_steps; i++) {
        const sw__step *s = &c->schedule->steps[i];
        n_ops += s->kind == SW_STEP_OP;
        n_descs += s->kind == SW_STEP_OP ? (size_t)(s->n_in + s->n_out) : 0;
    }
    if (n_ops == 0) return SW_OK;
    sw__op_desc *ops = sw__malloc(n_ops * sizeof *ops);
    double *flops = sw__malloc(n_ops * sizeof *flops);
    sw__desc *descs = sw__malloc(SW_MAX(n_descs, (size_t)1) * sizeof *descs);
    sw_status st = ops && flops && descs ? SW_OK : sw__no_memory(n_descs * sizeof *descs, "the list of ops");
    if (st == SW_OK) st = b->tune(c->device->dev, ops, flops, list_ops(c, ops, flops, descs), !c->device->looping);
    sw__free(ops);
    sw__free(flops);
    sw__free(descs);
    return st;
}

static sw_status plan_steps(compilation *c)
{
    sw__schedule *s = c->schedule;
    sw_program *p = c->program;
    p->launches = sw__calloc(SW_MAX(s->n_steps, 1u), sizeof *p->launches);
    if (!p->launches) return sw__no_memory(s->n_steps * sizeof *p->launches, "the launch list");
    p->n_launches = s->n_steps;
    SW_TRY(index_kernels(c));
    for (uint32_t i = 0; i < s->n_steps; i++) {
        sw__step *step = &s->steps[i];
        sw__launch *l = &p->launches[i];
        l->is_op = step->kind == SW_STEP_OP;
        l->kind = l->is_op ? sw__op_table[step->op].name : step->copy ? "copy" : "kernel";
        l->flops = step->flops;
        l->bytes = step->bytes;
        l->name = sw__arena_strdup(&p->arena, step->name ? step->name : l->kind);
        if (!l->name) return sw__no_memory(64, "a launch's name");
        size_t workspace = 0;
        const sw_status st = l->is_op ? plan_op(c, i, &workspace) : plan_kernel(c, i, &workspace);
        if (st != SW_OK) return sw__prefix(st, "%s '%s'", l->kind, l->name);
        if (workspace) SW_TRY(sw__schedule_workspace(s, i, workspace, c->device->traits));
        p->plan.workspace = SW_MAX(p->plan.workspace, (uint64_t)workspace);
    }
    sw__plan_count(p, s);
    p->plan.nodes = s->n_nodes;
    p->n_once = s->n_once;
    return SW_OK;
}

/* The launch of a new step at `at`, which packs an input of the op that moved to `op`. */
static sw_status insert_pack(sw_program *p, uint32_t at, uint32_t op, int input)
{
    sw__launch *const more = sw__realloc(p->launches, p->n_launches + 1, sizeof *more);
    if (!more) return sw__no_memory((p->n_launches + 1) * sizeof *more, "the launch list");
    p->launches = more;
    memmove(&more[at + 1], &more[at], (p->n_launches - at) * sizeof *more);
    const sw__launch *const l = &more[op];
    more[at] = (sw__launch){.built = l->built, .name = l->name, .kind = "pack", .is_op = true, .shared = true,
                            .packs = input + 1};
    p->n_launches++;
    p->n_once++;
    p->plan.launches++;
    p->plan.packs++;
    return SW_OK;
}

/* Inputs that stay as they are and that an op wants in another form: packed once instead of in each run. */
static sw_status pack_inputs(compilation *c)
{
    const sw__backend *b = c->device->backend;
    sw__schedule *s = c->schedule;
    for (uint32_t i = s->n_once; b->op_packs && s->keeps && i < s->n_steps; i++) {
        if (s->steps[i].kind != SW_STEP_OP) continue;
        for (int k = 0; k < SW_MIN(s->steps[i].n_in, 32); k++) {
            uint32_t at;
            if (!sw__schedule_fixed(s, i, k)) continue;
            const size_t bytes = b->op_packs(c->program->launches[i].built, k);
            if (bytes == 0) continue;
            SW_TRY(sw__schedule_pack(s, i, k, bytes, c->device->traits, &at));
            SW_TRY(insert_pack(c->program, at, ++i, k));
        }
    }
    return SW_OK;
}

/* Where inputs and constants go in their buffers; every byte of the plan is known after this. */
static sw_status lay_out(compilation *c)
{
    const sw__traits *t = c->device->traits;
    const size_t align = SW_MAX(t->alignment, (size_t)64);
    const sw_graph *g = c->graph;
    const sw__schedule *s = c->schedule;
    c->input_offset = sw__calloc(SW_MAX(g->n_inputs, 1u), sizeof(size_t));
    c->const_offset = sw__calloc(SW_MAX(s->n_storages, 1u), sizeof(size_t));
    if (!c->input_offset || !c->const_offset) return sw__no_memory(s->n_storages * sizeof(size_t), "offsets");
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const sw__node *n = &g->nodes[g->inputs[i].node];
        const size_t bytes = (size_t)sw__node_elements(n) * sw_dtype_size(sw__stored_type(t, (sw_dtype)n->dtype));
        c->input_offset[i] = c->inputs_bytes;
        c->inputs_bytes += (bytes + align - 1) / align * align;
    }
    for (uint32_t i = 0; i < s->n_storages; i++) {
        const sw__storage_kind kind = (sw__storage_kind)s->storages[i].kind;
        if (kind != SW_STORE_CONST && kind != SW_STORE_KEPT) continue;
        size_t *const sum = kind == SW_STORE_KEPT ? &c->kept_bytes : &c->consts_bytes;
        c->const_offset[i] = *sum;
        *sum += (s->storages[i].bytes + align - 1) / align * align;
    }
    return SW_OK;
}

static sw_status fill_plan(compilation *c, const sw_graph *g)
{
    sw_plan *plan = &c->program->plan;
    if (c->options->params) {
        plan->params = c->options->params->bytes[SW_VAR_PARAM];
        plan->buffers = c->options->params->bytes[SW_VAR_BUFFER];
        plan->state = c->options->params->bytes[SW_VAR_STATE];
    } else {
        sw_params layout = {0};
        const sw_status st = sw__params_layout(g, c->device->traits, &layout);
        plan->params = layout.bytes[SW_VAR_PARAM];
        plan->buffers = layout.bytes[SW_VAR_BUFFER];
        plan->state = layout.bytes[SW_VAR_STATE];
        sw__params_layout_free(&layout);
        SW_TRY(st);
    }
    plan->inputs = c->inputs_bytes;
    plan->constants = c->consts_bytes;
    plan->kept = c->kept_bytes;
    plan->arena = c->schedule->arena_bytes;
    plan->total = plan->params + plan->buffers + plan->state + plan->inputs + plan->constants + plan->kept + plan->arena;
    return SW_OK;
}

/* Everything up to the memory plan; allocates nothing on the device. */
static sw_status plan_once(compilation *c, const sw_graph *g)
{
    c->program = sw__calloc(1, sizeof *c->program);
    if (!c->program) return sw__no_memory(sizeof *c->program, "a program");
    c->program->device = sw__device_use(c->device);
    c->program->profile = c->options->profile;
    c->program->assigns = g->n_assigns > 0;
    SW_TRY(run_passes(c, g));
    const sw__asks asks = {.ctx = c->device, .op_accepts = ask_accepts, .no_fuse = c->options->no_fuse};
    SW_TRY(sw__schedule_build(c->graph, c->device->traits, &asks, &c->schedule));
    if (c->keeps) SW_TRY(sw__schedule_keep(c->schedule));
    SW_TRY(tune(c));
    SW_TRY(plan_steps(c));
    SW_TRY(pack_inputs(c));
    SW_TRY(sw__plan_memory(c->schedule, c->device->traits));
    SW_TRY(lay_out(c));
    return fill_plan(c, g);
}

static void compilation_free(compilation *c)
{
    sw_graph_free(c->graph);
    sw__schedule_free(c->schedule);
    sw__free(c->storage);
    sw__free(c->kernels);
    sw__free(c->input_offset);
    sw__free(c->const_offset);
}

/* Nothing is kept where there is too little memory for it: it is there to save time. */
static sw_status make_plan(compilation *c, const sw_graph *g)
{
    const sw_compile_options *const o = c->options;
    SW_TRY(sw_graph_status(g));
    if (g->n_outputs == 0 && g->n_assigns == 0)
        return sw__fail(SW_ERR_ARGUMENT, "the graph has no output and no assign, so there is nothing to compile: "
                        "mark a value with sw_output");
    c->keeps = c->device->traits->keeps && g->n_assigns == 0 && !o->no_keep && !o->no_simplify;
    SW_TRY(plan_once(c, g));
    if (c->keeps && o->memory > 0 && c->program->plan.total > o->memory) {
        sw_program_free(c->program);
        compilation_free(c);
        *c = (compilation){.device = c->device, .options = o, .to_run = c->to_run};
        SW_TRY(plan_once(c, g));
    }
    const sw_status st = sw__plan_within(c->program, c->schedule, c->device->traits, o->memory);
    const sw_status peak = sw__plan_peak(c->schedule, &c->program->plan);
    sw__dump_schedule(c->schedule);
    return st == SW_OK ? peak : st;
}

/* ---- memory and binding ---------------------------------------------------------------------------------------------------- */

static sw_status allocate(compilation *c)
{
    sw_program *p = c->program;
    const sw__backend *b = c->device->backend;
    const sw_plan *plan = &p->plan;
    const struct { size_t bytes; void **buffer; } wanted[] = {{c->inputs_bytes, &p->inputs_buffer},
                                                              {c->consts_bytes, &p->consts_buffer},
                                                              {c->kept_bytes, &p->kept_buffer}};
    sw_status st = SW_OK;
    for (size_t i = 0; i < SW_COUNT(wanted) && st == SW_OK; i++)
        if (wanted[i].bytes) st = b->alloc(c->device->dev, wanted[i].bytes, wanted[i].buffer);
    if (st == SW_OK) st = sw__arena_open(p, c->options->shares);
    c->device->full = st == SW_ERR_MEMORY;
    if (st != SW_ERR_MEMORY) return st;
    return sw__prefix(st, "%s: the program needs %llu bytes in all, %llu of them for variables, %llu for inputs and "
                      "constants, %llu for what is made of variables once, %llu for activations and gradients; a smaller "
                      "batch needs less", c->device->info.id,
                      (unsigned long long)plan->total, (unsigned long long)(plan->params + plan->buffers + plan->state),
                      (unsigned long long)(plan->inputs + plan->constants), (unsigned long long)plan->kept,
                      (unsigned long long)plan->arena);
}

static sw_status place_storages(compilation *c)
{
    const sw__schedule *s = c->schedule;
    sw_program *p = c->program;
    c->storage = sw__calloc(SW_MAX(s->n_storages, 1u), sizeof *c->storage);
    if (!c->storage) return sw__no_memory(s->n_storages * sizeof *c->storage, "bindings");
    for (uint32_t i = 0; i < s->n_storages; i++) {
        const sw__storage *st = &s->storages[i];
        sw__bind *b = &c->storage[i];
        uint32_t slot = 0;
        switch ((sw__storage_kind)st->kind) {
        case SW_STORE_ARENA: *b = (sw__bind){p->arena_buffer, st->offset}; break;
        case SW_STORE_INPUT: *b = (sw__bind){p->inputs_buffer, c->input_offset[st->index]}; break;
        case SW_STORE_CONST: *b = (sw__bind){p->consts_buffer, c->const_offset[i]}; break;
        case SW_STORE_KEPT: *b = (sw__bind){p->kept_buffer, c->const_offset[i]}; break;
        case SW_STORE_GROUP: SW_TRY(sw__params_group(p->params, c->graph, st->index, b)); break;
        case SW_STORE_VAR:
            SW_TRY(sw__params_match(p->params, &c->graph->vars[st->index], &slot));
            *b = (sw__bind){p->params->buffer[p->params->slots[slot].info.kind], p->params->slots[slot].offset};
            break;
        }
    }
    return SW_OK;
}

/* Every tensor of the arena is filled with NaN once nobody is to read it any more, so that whoever does is found out by the
 * result: a wrong lifetime, a kernel that reads beside its tensor. Not where another takes the memory over in place. */
static sw_status list_dead(compilation *c)
{
    const sw__schedule *s = c->schedule;
    sw_program *p = c->program;
    const char *const wish = getenv("SWOOP_POISON");
    if (!wish || strcmp(wish, "1") != 0 || !s->n_storages) return SW_OK;
    bool *taken = sw__calloc(s->n_storages, sizeof *taken);
    p->dead = sw__calloc(s->n_storages, sizeof *p->dead);
    for (uint32_t i = 0; taken && i < s->n_storages; i++)
        if (s->storages[i].reuse >= 0) taken[s->storages[i].reuse] = true;
    for (uint32_t step = 0; taken && p->dead && step < s->n_steps; step++) {
        for (uint32_t i = 0; i < s->n_storages; i++) {
            const sw__storage *t = &s->storages[i];
            if (t->kind != SW_STORE_ARENA || t->last != (int32_t)step || taken[i] || t->bytes == 0) continue;
            p->dead[p->n_dead++] = (sw__dead){step, t->offset, t->bytes};
        }
    }
    const bool enough = taken && p->dead;
    sw__free(taken);
    return enough ? SW_OK : sw__no_memory(s->n_storages * sizeof *p->dead, "the list of dead tensors");
}

/* The bytes from a storage's start to a tensor in it. */
static sw__bind bind_ref(const compilation *c, const sw__ref *r)
{
    sw__bind b = c->storage[r->storage];
    b.offset += (size_t)r->offset * sw_dtype_size((sw_dtype)r->desc.dtype);
    return b;
}

static sw_status bind_launches(compilation *c)
{
    const sw__schedule *s = c->schedule;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const sw__step *step = &s->steps[i];
        const int n = step->n_in + step->n_out;
        sw__bind *bind = sw__arena_alloc(&c->program->arena, (size_t)(n + 1) * sizeof *bind);
        if (!bind) return sw__no_memory((size_t)(n + 1) * sizeof *bind, "bindings");
        for (int k = 0; k < n; k++)
            bind[k] = step->kind != SW_STEP_KERNEL ? bind_ref(c, &step->refs[k]) : c->storage[step->refs[k].storage];
        if (step->workspace >= 0) bind[n] = c->storage[step->workspace];
        c->program->launches[i].bind = bind;
        c->program->launches[i].n_bind = (uint32_t)n + 1;
    }
    return SW_OK;
}

static sw_status make_slot(compilation *c, const char *name, const sw__node *n, sw__bind bind, sw_dtype stored,
                           sw__io_slot *slot)
{
    slot->info.name = sw__arena_strdup(&c->program->arena, name);
    if (!slot->info.name) return sw__no_memory(strlen(name) + 1, "a slot's name");
    slot->info.kind = SW_VAR_BUFFER;
    slot->info.dtype = (sw_dtype)n->dtype;
    slot->info.rank = n->rank;
    memcpy(slot->info.shape, n->dim, sizeof n->dim);
    slot->info.elements = sw__node_elements(n);
    slot->stored = stored;
    slot->bind = bind;
    c->program->staging_bytes =
        SW_MAX(c->program->staging_bytes, (size_t)slot->info.elements * sw_dtype_size(stored));
    return SW_OK;
}

static sw_status make_slots(compilation *c)
{
    sw_program *p = c->program;
    const sw_graph *g = c->graph;
    p->inputs = sw__calloc(SW_MAX(g->n_inputs, 1u), sizeof *p->inputs);
    p->outputs = sw__calloc(SW_MAX(g->n_outputs, 1u), sizeof *p->outputs);
    if (!p->inputs || !p->outputs) return sw__no_memory(sizeof *p->inputs, "input and output slots");
    for (uint32_t i = 0; i < g->n_inputs; i++, p->n_inputs++) {
        const sw__node *n = &g->nodes[g->inputs[i].node];
        SW_TRY(make_slot(c, g->inputs[i].name, n, (sw__bind){p->inputs_buffer, c->input_offset[i]},
                         sw__stored_type(c->device->traits, (sw_dtype)n->dtype), &p->inputs[i]));
    }
    for (uint32_t i = 0; i < g->n_outputs; i++, p->n_outputs++) {
        const sw__ref *r = &c->schedule->outputs[i];
        SW_TRY(make_slot(c, g->outputs[i].name, &g->nodes[g->outputs[i].node], bind_ref(c, r), (sw_dtype)r->desc.dtype,
                         &p->outputs[i]));
    }
    const bool host = c->device->backend->host_pointer && p->arena_buffer &&
                      c->device->backend->host_pointer(p->arena_buffer);
    if (!host && p->staging_bytes) {
        p->staging = sw__malloc(p->staging_bytes);
        if (!p->staging) return sw__no_memory(p->staging_bytes, "staging");
    }
    return SW_OK;
}

static sw_status upload_constants(compilation *c)
{
    const sw__schedule *s = c->schedule;
    for (uint32_t i = 0; i < s->n_storages; i++) {
        const sw__storage *st = &s->storages[i];
        if (st->kind != SW_STORE_CONST || !st->data) continue;
        const size_t n = (size_t)st->elements, bytes = n * sw_dtype_size((sw_dtype)st->stored);
        void *staging = st->dtype == st->stored ? NULL : sw__malloc(bytes);
        if (st->dtype != st->stored && !staging) return sw__no_memory(bytes, "a constant");
        const sw_status status = sw__write_elements(c->device, c->storage[i].buffer, c->storage[i].offset,
                                                    (sw_dtype)st->stored, st->data, (sw_dtype)st->dtype, n, staging);
        sw__free(staging);
        SW_TRY(status);
    }
    return SW_OK;
}

static sw_status make_runnable(compilation *c, const sw_graph *g)
{
    sw_program *p = c->program;
    p->params = c->options->params;
    if (p->params && p->params->device != c->device)
        return sw__fail(SW_ERR_ARGUMENT, "the given parameters live on another device than %s", c->device->info.id);
    if (!p->params) {
        SW_TRY(sw_params_new(c->device, g, 0, &p->params));
        p->owns_params = true;
    }
    if (!c->options->build_later) SW_TRY(sw_program_build(p));
    SW_TRY(allocate(c));
    SW_TRY(place_storages(c));
    SW_TRY(list_dead(c));
    SW_TRY(bind_launches(c));
    SW_TRY(make_slots(c));
    SW_TRY(upload_constants(c));
    if (p->profile && p->n_inputs) {
        p->set_trace = sw__calloc((size_t)p->n_inputs * SW__TRACE_RUNS * 2, sizeof *p->set_trace);
        if (!p->set_trace) return sw__no_memory((size_t)p->n_inputs * SW__TRACE_RUNS * 16, "the trace");
    }
    if (p->profile && p->n_launches) {
        p->trace = sw__calloc((size_t)p->n_launches * SW__TRACE_RUNS * 2, sizeof *p->trace);
        if (!p->trace) return sw__no_memory((size_t)p->n_launches * SW__TRACE_RUNS * 16, "the trace");
    }
    return SW_OK;
}

static const sw_compile_options no_options;

sw_status sw_compile(const sw_graph *g, sw_device *d, const sw_compile_options *o, sw_program **out)
{
    if (!g || !d || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_compile: graph, device or out is NULL");
    const double start = sw__now();
    compilation c = {.device = d, .options = o ? o : &no_options, .to_run = true};
    sw_status st = make_plan(&c, g);
    if (st == SW_OK) st = make_runnable(&c, g);
    if (st == SW_OK) {
        const sw_plan *p = &c.program->plan;
        sw__log(SW_LOG_INFO, "compiled for %s in %.1f ms: %d launches (%d kernels, %d ops, %d copies), arena %llu bytes",
                d->info.id, (sw__now() - start) * 1e3, p->launches, p->kernels, p->ops, p->copies,
                (unsigned long long)p->arena);
        *out = c.program;
    } else {
        sw_program_free(c.program);
    }
    compilation_free(&c);
    return st;
}

static void tell(const compilation *c, sw_plan_launch_fn each, void *context)
{
    const sw_program *p = c->program;
    const sw__backend *b = p->device->backend;
    for (uint32_t i = 0; each && i < p->n_launches; i++) {
        const sw__launch *l = &p->launches[i];
        const int32_t workspace = c->schedule->steps[i].workspace;
        each(context, &(sw_plan_launch){.kind = l->kind, .name = l->name, .flops = l->flops, .traffic = l->bytes,
                                        .note = l->is_op && b->op_note ? b->op_note(l->built) : "",
                                        .workspace = workspace >= 0 ? c->schedule->storages[workspace].bytes : 0});
    }
}

sw_status sw_plan_launches(const sw_graph *g, sw_device *d, const sw_compile_options *o, sw_plan *out,
                           sw_plan_launch_fn each, void *context)
{
    if (!g || !d || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_plan_graph: graph, device or out is NULL");
    compilation c = {.device = d, .options = o ? o : &no_options};
    const sw_status st = make_plan(&c, g);
    if (c.program && (st == SW_OK || st == SW_ERR_MEMORY)) *out = c.program->plan; /* too little: what is the least */
    if (st == SW_OK) tell(&c, each, context);
    sw_program_free(c.program);
    compilation_free(&c);
    return st;
}

sw_status sw_plan_graph(const sw_graph *g, sw_device *d, const sw_compile_options *o, sw_plan *out)
{
    return sw_plan_launches(g, d, o, out, NULL, NULL);
}
