/* program.c: what a compiled program can do: take inputs, run, give outputs. Allocates nothing.
 * Made by compile.c; timed by profile.c. */
#include "exec/exec.h"

void sw_program_free(sw_program *p)
{
    if (!p) return;
    const sw__backend *b = p->device->backend;
    if (p->recording) b->recording_free(p->device->dev, p->recording);
    for (uint32_t i = 0; i < p->n_launches; i++) {
        sw__launch *l = &p->launches[i];
        if (!l->built || l->shared) continue;
        if (l->is_op)
            b->op_free(p->device->dev, l->built);
        else
            b->kernel_free(p->device->dev, l->built);
    }
    if (p->inputs_buffer) b->release(p->device->dev, p->inputs_buffer);
    if (p->consts_buffer) b->release(p->device->dev, p->consts_buffer);
    if (p->kept_buffer) b->release(p->device->dev, p->kept_buffer);
    sw__arena_close(p);
    if (p->owns_params) sw_params_free(p->params);
    sw__free(p->launches);
    sw__free(p->inputs);
    sw__free(p->outputs);
    sw__free(p->staging);
    sw__free(p->trace);
    sw__free(p->dead);
    sw__free(p->set_trace);
    sw__arena_free(&p->arena);
    sw_device_close(p->device);
    sw__free(p);
}

const sw_plan *sw_program_plan(const sw_program *p)
{
    return p ? &p->plan : NULL;
}

static int find_slot(const sw__io_slot *slots, uint32_t n, const char *name)
{
    for (uint32_t i = 0; name && i < n; i++)
        if (strcmp(slots[i].info.name, name) == 0) return (int)i;
    return -1;
}

int sw_program_input(const sw_program *p, const char *name)
{
    return p ? find_slot(p->inputs, p->n_inputs, name) : -1;
}

int sw_program_output(const sw_program *p, const char *name)
{
    return p ? find_slot(p->outputs, p->n_outputs, name) : -1;
}

static sw_status check_slot(const sw__io_slot *slots, uint32_t count, int i, const void *data, int64_t n, sw_dtype type,
                            const char *what)
{
    if (i < 0 || (uint32_t)i >= count)
        return sw__fail(SW_ERR_ARGUMENT, "there is no %s %d (the program has %u%s%s%s)", what, i, count,
                        count > 0 ? ", the first is '" : "", count > 0 ? slots[0].info.name : "", count > 0 ? "'" : "");
    if (sw_dtype_size(type) == 0) return sw__fail(SW_ERR_ARGUMENT, "%d is no data type", (int)type);
    if (n != slots[i].info.elements)
        return sw__fail(SW_ERR_SHAPE, "%s '%s' has %lld elements, not %lld", what, slots[i].info.name,
                        (long long)slots[i].info.elements, (long long)n);
    if (!data && n > 0) return sw__fail(SW_ERR_ARGUMENT, "%s '%s': the data is NULL", what, slots[i].info.name);
    return SW_OK;
}

/* The transfer is waited for, as launches are that are timed. */
static sw_status set_timed(sw_program *p, int input, sw_dtype type, const void *src, int64_t n)
{
    sw__io_slot *s = &p->inputs[input];
    const double start = sw__now();
    SW_TRY(sw__write_input(p->device, &s->bind, s->stored, src, type, (size_t)n, p->staging));
    SW_TRY(p->device->backend->sync(p->device->dev));
    const double seconds = sw__now() - start;
    double *event = &p->set_trace[2 * ((size_t)input * SW__TRACE_RUNS + (size_t)(s->sets % SW__TRACE_RUNS))];
    event[0] = start;
    event[1] = seconds;
    s->seconds += seconds;
    if (s->sets++ == 0 || seconds < s->least) s->least = seconds;
    return SW_OK;
}

sw_status sw_program_set(sw_program *p, int input, sw_dtype type, const void *src, int64_t n)
{
    if (!p) return sw__fail(SW_ERR_ARGUMENT, "sw_program_set: the program is NULL");
    SW_TRY(check_slot(p->inputs, p->n_inputs, input, src, n, type, "input"));
    const sw__io_slot *s = &p->inputs[input];
    if (p->profile) return set_timed(p, input, type, src, n);
    return sw__write_input(p->device, &s->bind, s->stored, src, type, (size_t)n, p->staging);
}

sw_status sw_program_get(sw_program *p, int output, sw_dtype type, void *dst, int64_t n)
{
    if (!p) return sw__fail(SW_ERR_ARGUMENT, "sw_program_get: the program is NULL");
    SW_TRY(check_slot(p->outputs, p->n_outputs, output, dst, n, type, "output"));
    const sw__io_slot *s = &p->outputs[output];
    return sw__read_elements(p->device, s->bind.buffer, s->bind.offset, s->stored, dst, type, (size_t)n, p->staging);
}

sw_status sw_program_output_info(const sw_program *p, int output, sw_var_info *out)
{
    if (!p || !out || output < 0 || (uint32_t)output >= p->n_outputs)
        return sw__fail(SW_ERR_ARGUMENT, "there is no output %d (the program has %u)", output, p ? p->n_outputs : 0);
    *out = p->outputs[output].info;
    return SW_OK;
}

sw_status sw_program_build(sw_program *p)
{
    if (!p) return sw__fail(SW_ERR_ARGUMENT, "sw_program_build: the program is NULL");
    if (p->ready) return SW_OK;
    const sw__backend *b = p->device->backend;
    if (b->build) SW_TRY(b->build(p->device->dev));
    for (uint32_t i = 0; b->plan_ready && i < p->n_launches; i++) {
        const sw__launch *l = &p->launches[i];
        const sw_status st = b->plan_ready(p->device->dev, l->built);
        if (st != SW_OK) return sw__prefix(st, "%s '%s'", l->kind, l->name);
    }
    p->ready = true;
    return SW_OK;
}

static sw_status launch(sw_program *p, const sw__launch *l)
{
    const sw__backend *b = p->device->backend;
    const sw_status st = l->packs   ? b->op_pack(p->device->dev, l->built, l->packs - 1, l->bind)
                         : l->is_op ? b->op_exec(p->device->dev, l->built, l->bind)
                                    : b->kernel_launch(p->device->dev, l->built, l->bind);
    return st == SW_OK ? st : sw__prefix(st, "%s '%s'", l->kind, l->name);
}

static sw_status launch_timed(sw_program *p, uint32_t i)
{
    sw__launch *l = &p->launches[i];
    const sw__backend *b = p->device->backend;
    const double start = sw__now();
    double seconds = 0;
    if (b->run_timed && !l->packs) {
        const sw_status st = b->run_timed(p->device->dev, l->is_op, l->built, l->bind, &seconds);
        if (st != SW_OK) return sw__prefix(st, "%s '%s'", l->kind, l->name);
    } else {
        SW_TRY(launch(p, l));
        SW_TRY(b->sync(p->device->dev));
        seconds = sw__now() - start;
    }
    l->seconds += seconds;
    if (p->runs == 0 || seconds < l->least) l->least = seconds;
    double *event = &p->trace[2 * ((size_t)(p->runs % SW__TRACE_RUNS) * p->n_launches + i)];
    event[0] = start;
    event[1] = seconds;
    return SW_OK;
}

static sw_status launch_range(sw_program *p, uint32_t first, uint32_t end)
{
    const sw__backend *b = p->device->backend;
    const sw__dead *dead = p->dead;
    while (dead && dead < p->dead + p->n_dead && dead->launch < first) dead++;
    for (uint32_t i = first; i < end; i++) {
        SW_TRY(p->profile ? launch_timed(p, i) : launch(p, &p->launches[i]));
        for (; dead && dead < p->dead + p->n_dead && dead->launch == i; dead++)
            SW_TRY(b->fill(p->device->dev, p->arena_buffer, dead->offset, dead->bytes, 0xFF));
    }
    return SW_OK;
}

static sw_status launch_all(sw_program *p)
{
    return launch_range(p, p->n_once, p->n_launches);
}

/* What depends on variables alone, if one was written since. */
static sw_status launch_once(sw_program *p)
{
    const uint64_t writes = p->params->writes;
    if (p->n_once == 0 || p->once_at == writes) return SW_OK;
    p->once_at = 0;
    SW_TRY(launch_range(p, 0, p->n_once));
    p->once_at = writes;
    return SW_OK;
}

static sw_status record(sw_program *p)
{
    const sw__backend *b = p->device->backend;
    SW_TRY(b->record_begin(p->device->dev));
    const sw_status st = launch_all(p);
    const sw_status ended = b->record_end(p->device->dev, st != SW_OK, &p->recording);
    return st != SW_OK ? st : ended;
}

/* One run is launched kernel by kernel; from the second on the backend replays a recording, if it makes one. Where none can
 * be made (a library whose calls cannot be recorded, no memory for it) runs go on as the first did: slower, and told. */
static sw_status run_once(sw_program *p)
{
    const sw__backend *b = p->device->backend;
    if (p->profile || p->runs == 0 || !b->record_begin || p->not_recorded) return launch_all(p);
    if (!p->recording) {
        const sw_status st = record(p); /* runs nothing */
        if (st != SW_OK) {
            p->not_recorded = true;
            sw__log(st == SW_ERR_UNSUPPORTED ? SW_LOG_INFO : SW_LOG_WARN, "steps are launched kernel by kernel: %s", sw_error());
            return launch_all(p);
        }
    }
    return b->replay(p->device->dev, p->recording);
}

sw_status sw_program_run(sw_program *p)
{
    if (!p) return sw__fail(SW_ERR_ARGUMENT, "sw_program_run: the program is NULL");
    SW_TRY(sw_program_build(p));
    SW_TRY(sw__arena_rebind(p));
    if (p->assigns) p->params->writes++;
    const double start = p->profile ? sw__now() : 0;
    SW_TRY(launch_once(p));
    SW_TRY(run_once(p));
    if (p->profile) p->run_seconds += sw__now() - start;
    if (p->runs++ > 0) p->device->looping = true;
    if (p->runs % SW__RUNS_AHEAD != 0) return SW_OK; /* whoever reads a result waits for it */
    return p->device->backend->sync(p->device->dev);
}

/* ---- evaluating at once --------------------------------------------------------------------------------------------------- */

/* A graph of its own with everything that t needs and t as the only output. */
static sw_status extract(sw_t t, sw_graph **out)
{
    const sw_graph *g = t.graph;
    sw_graph *e = NULL;
    SW_TRY(sw__graph_like(g, &e));
    e->n_inputs = 0; /* t needs none of them, as is checked below */
    sw_t *map = sw__calloc(g->n_nodes, sizeof *map);
    bool *need = sw__calloc(g->n_nodes, sizeof *need);
    sw_status st = map && need ? SW_OK : sw__no_memory(g->n_nodes * sizeof *map, "evaluating");
    if (st == SW_OK) {
        need[t.id] = true;
        for (uint32_t i = t.id; i > 0; i--)
            for (uint32_t k = 0; need[i] && k < g->nodes[i].n_in; k++) need[g->nodes[i].in[k]] = true;
        for (uint32_t i = 1; i <= t.id; i++) {
            if (!need[i]) continue;
            if (g->nodes[i].op == SW_OP_INPUT)
                st = sw__fail(SW_ERR_ARGUMENT, "sw_eval: the value depends on input '%s', which has none here",
                              g->inputs[g->nodes[i].attr.slot.index].name);
            map[i] = sw__node_copy(e, g, i, map);
        }
        if (st == SW_OK) {
            sw_output(map[t.id], "value");
            st = sw_graph_status(e);
        }
    }
    sw__free(map);
    sw__free(need);
    if (st != SW_OK) {
        sw_graph_free(e);
        return st;
    }
    *out = e;
    return SW_OK;
}

sw_status sw_eval(sw_t t, sw_device *d, sw_dtype type, void *dst, int64_t n)
{
    if (t.graph) SW_TRY(sw_graph_status(t.graph));
    if (!sw_valid(t)) return sw__fail(SW_ERR_ARGUMENT, "sw_eval: the value is invalid");
    sw_device *own = NULL;
    sw_graph *e = NULL;
    sw_program *p = NULL;
    sw_status st = SW_OK;
    if (!d) SW_TRY_GOTO(sw_device_open("cpu", NULL, &own), done);
    SW_TRY_GOTO(extract(t, &e), done);
    SW_TRY_GOTO(sw_compile(e, d ? d : own, &(sw_compile_options){.no_keep = true}, &p), done);
    SW_TRY_GOTO(sw_program_run(p), done);
    st = sw_program_get(p, 0, type, dst, n);
done:
    sw_program_free(p);
    sw_graph_free(e);
    sw_device_close(own);
    return st;
}
