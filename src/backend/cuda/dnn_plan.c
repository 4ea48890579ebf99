/* dnn_plan.c: a convolution as a graph of cuDNN's, and the engine for it: swoop's rules (exact f32 unless TF32 is asked
 * for, the same bits every time) applied to what the library proposes. Between dnn_conv.c and the library; needs
 * no GPU. */
#include "backend/cuda/dnn.h"

#include <stdio.h>

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

sw_status sw__cudnn_fail(const sw__cudnn_api *api, int status, const char *call)
{
    char last[400] = "";
    api->cudnnGetLastErrorString(last, sizeof last);
    last[sizeof last - 1] = '\0';
    for (char *c = last; *c != '\0'; c++)
        if (*c == '\n') *c = ' ';
    const bool memory = status == SW_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                        status == SW_CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    const char *const name = api->cudnnGetErrorString(status);
    return sw__fail(memory ? SW_ERR_MEMORY : SW_ERR_UNSUPPORTED, "%s: %s (%d)%s%s", call, name != NULL ? name : "?",
                    status, last[0] != '\0' ? ": " : "", last);
}

static void check(sw__cudnn_make *m, int status, const char *call)
{
    if (status != 0 && m->st == SW_OK) m->st = sw__cudnn_fail(m->api, status, call);
}

void *sw__cudnn_new(sw__cudnn_make *m, int type)
{
    void *d = NULL;
    if (m->st != SW_OK) return NULL;
    m->st = sw__grow(&m->made, &m->cap, m->n + 1, sizeof *m->made, "cuDNN's descriptors");
    if (m->st != SW_OK) return NULL;
    check(m, m->api->cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
    if (m->st != SW_OK) return NULL;
    m->made[m->n++] = d;
    return d;
}

void sw__cudnn_set(sw__cudnn_make *m, void *d, int name, int type, int64_t n, const void *values)
{
    if (m->st == SW_OK)
        check(m, m->api->cudnnBackendSetAttribute(d, name, type, n, values), "cudnnBackendSetAttribute");
}

void sw__cudnn_finish(sw__cudnn_make *m, void *d)
{
    if (m->st == SW_OK) check(m, m->api->cudnnBackendFinalize(d), "cudnnBackendFinalize");
}

void sw__cudnn_keep(sw__cudnn_make *m, void *d)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->made[i] == d) m->made[i] = NULL;
}

/* The last made first: graphs go before what they are made of. */
void sw__cudnn_done(sw__cudnn_make *m)
{
    while (m->n > 0)
        if (m->made[--m->n] != NULL) m->api->cudnnBackendDestroyDescriptor(m->made[m->n]);
    sw__free(m->made);
    m->made = NULL;
    m->cap = 0;
}

static void set_int(sw__cudnn_make *m, void *d, int name, int64_t value)
{
    sw__cudnn_set(m, d, name, SW_CUDNN_TYPE_INT64, 1, &value);
}

static void set_part(sw__cudnn_make *m, void *d, int name, void *part)
{
    sw__cudnn_set(m, d, name, SW_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

/* ---- the GPU ----------------------------------------------------------------------------------------------------- */

static sw_status device(const sw__cudnn_api *api, int name, int type, int64_t n, const void *values, void **out)
{
    sw__cudnn_make m = { .api = api, .st = SW_OK };
    void *const d = sw__cudnn_new(&m, SW_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    sw__cudnn_set(&m, d, name, type, n, values);
    sw__cudnn_finish(&m, d);
    if (m.st == SW_OK) {
        sw__cudnn_keep(&m, d);
        *out = d;
    }
    sw__cudnn_done(&m);
    return m.st;
}

sw_status sw__cudnn_device_of(const sw__cudnn_api *api, void *handle, void **out)
{
    return device(api, SW_CUDNN_ATTR_DEVICEPROP_HANDLE, SW_CUDNN_TYPE_HANDLE, 1, &handle, out);
}

sw_status sw__cudnn_device_json(const sw__cudnn_api *api, const char *json, void **out)
{
    return device(api, SW_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, SW_CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1,
                  json, out);
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static const struct {
    sw_dtype type;
    int32_t storage, sums;
} types[] = {
    { SW_F32, SW_CUDNN_DATA_FLOAT, SW_CUDNN_DATA_FLOAT },
    { SW_F64, SW_CUDNN_DATA_DOUBLE, SW_CUDNN_DATA_DOUBLE },
    { SW_F16, SW_CUDNN_DATA_HALF, SW_CUDNN_DATA_FLOAT },
    { SW_BF16, SW_CUDNN_DATA_BFLOAT16, SW_CUDNN_DATA_FLOAT },
};

typedef struct graph {
    sw__cudnn_make m;
    const sw__cudnn_problem *c;
    int32_t storage, sums;
    void *ops[2];
    int n_ops;
} graph;

/* is_virtual: a value between two ops of the graph, which has no memory. */
static void *tensor(graph *g, int64_t id, int32_t type, const sw__cudnn_tensor *t, bool is_virtual)
{
    sw__cudnn_make *const m = &g->m;
    void *const d = sw__cudnn_new(m, SW_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_TENSOR_DATA_TYPE, SW_CUDNN_TYPE_DATA_TYPE, 1, &type);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_TENSOR_DIMENSIONS, SW_CUDNN_TYPE_INT64, g->c->nd + 2, t->dim);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_TENSOR_STRIDES, SW_CUDNN_TYPE_INT64, g->c->nd + 2, t->stride);
    set_int(m, d, SW_CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    set_int(m, d, SW_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t->align);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_TENSOR_IS_VIRTUAL, SW_CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    sw__cudnn_finish(m, d);
    return d;
}

static void *convolution(graph *g)
{
    sw__cudnn_make *const m = &g->m;
    const sw__cudnn_problem *const c = g->c;
    void *const d = sw__cudnn_new(m, SW_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const int32_t mode = SW_CUDNN_CROSS_CORRELATION;
    set_int(m, d, SW_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, c->nd);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_CONVOLUTION_COMP_TYPE, SW_CUDNN_TYPE_DATA_TYPE, 1, &g->sums);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_CONVOLUTION_CONV_MODE, SW_CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, SW_CUDNN_TYPE_INT64, c->nd, c->pre);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, SW_CUDNN_TYPE_INT64, c->nd, c->post);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_CONVOLUTION_DILATIONS, SW_CUDNN_TYPE_INT64, c->nd, c->dilation);
    sw__cudnn_set(m, d, SW_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, SW_CUDNN_TYPE_INT64, c->nd, c->stride);
    sw__cudnn_finish(m, d);
    return d;
}

/* The attributes' numbers by kind: that of op, alpha, beta, convolution, x, w, y. */
static const struct {
    int op, alpha, beta, conv, x, w, y;
} names[] = {
    [SW_CUDNN_FORWARD] = { SW_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           SW_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           SW_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                           SW_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           SW_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, SW_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           SW_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y },
    [SW_CUDNN_DATA] = { SW_CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                        SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                        SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                        SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                        SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                        SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY },
    [SW_CUDNN_FILTER] = { SW_CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                          SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                          SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                          SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                          SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                          SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                          SW_CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY },
};

static void scale(graph *g, void *op, int name, double value)
{
    const float f = (float)value;
    const bool wide = g->sums == SW_CUDNN_DATA_DOUBLE;
    sw__cudnn_set(&g->m, op, name, wide ? SW_CUDNN_TYPE_DOUBLE : SW_CUDNN_TYPE_FLOAT, 1,
                  wide ? (const void *)&value : &f);
}

static void add_bias(graph *g, void *x, void *bias, void *y)
{
    sw__cudnn_make *const m = &g->m;
    const int32_t mode = SW_CUDNN_POINTWISE_ADD;
    void *const what = sw__cudnn_new(m, SW_CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    sw__cudnn_set(m, what, SW_CUDNN_ATTR_POINTWISE_MODE, SW_CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    sw__cudnn_set(m, what, SW_CUDNN_ATTR_POINTWISE_MATH_PREC, SW_CUDNN_TYPE_DATA_TYPE, 1, &g->sums);
    sw__cudnn_finish(m, what);
    void *const op = sw__cudnn_new(m, SW_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(m, op, SW_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    set_part(m, op, SW_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_part(m, op, SW_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
    set_part(m, op, SW_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    sw__cudnn_finish(m, op);
    g->ops[g->n_ops++] = op;
}

/* A bias [K] as cuDNN wants to see it: [1, K, 1, …]. */
static sw__cudnn_tensor bias_tensor(const graph *g)
{
    sw__cudnn_tensor t = { .align = (int64_t)sw_dtype_size((sw_dtype)g->c->type) };
    for (int i = 0; i < g->c->nd + 2; i++) {
        t.dim[i] = i == 1 ? g->c->y.dim[1] : 1;
        t.stride[i] = i == 0 ? g->c->y.dim[1] : 1;
    }
    return t;
}

static void *build(graph *g)
{
    sw__cudnn_make *const m = &g->m;
    const sw__cudnn_problem *const c = g->c;
    void *const x = tensor(g, SW_CUDNN_X, g->storage, &c->x, false), *const w = tensor(g, SW_CUDNN_W, g->storage, &c->w,
                                                                                       false);
    void *const y = tensor(g, SW_CUDNN_Y, g->storage, &c->y, false);
    void *const out = c->bias ? tensor(g, SW_CUDNN_CONV_OUT, g->sums, &c->y, true) : y;
    void *const conv = convolution(g), *const op = sw__cudnn_new(m, names[c->kind].op);
    set_part(m, op, names[c->kind].conv, conv);
    set_part(m, op, names[c->kind].x, x);
    set_part(m, op, names[c->kind].w, w);
    set_part(m, op, names[c->kind].y, out);
    scale(g, op, names[c->kind].alpha, 1);
    scale(g, op, names[c->kind].beta, 0);
    sw__cudnn_finish(m, op);
    g->ops[g->n_ops++] = op;
    if (c->bias) {
        const sw__cudnn_tensor t = bias_tensor(g);
        add_bias(g, out, tensor(g, SW_CUDNN_BIAS, g->storage, &t, false), y);
    }
    void *const all = sw__cudnn_new(m, SW_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    sw__cudnn_set(m, all, SW_CUDNN_ATTR_OPERATIONGRAPH_OPS, SW_CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
    sw__cudnn_finish(m, all);
    return all;
}

/* ---- engines ----------------------------------------------------------------------------------------------------- */

enum { MOST_CONFIGS = 64, MOST_NOTES = 16 };

/* Why configurations were passed over, for the message. */
typedef struct search {
    graph *g;
    void *all, *device;
    int inexact, nondeterministic, compiled, refused, large;
    int64_t smallest; /* workspace of those that were too large */
    sw_status st;     /* of asking; the message says why */
} search;

/* A bit set of an engine's notes; false: it does not tell them. */
static bool notes_of(const sw__cudnn_api *api, void *engine, int name, int type, uint32_t *set)
{
    int32_t note[MOST_NOTES] = { 0 };
    int64_t n = 0;
    *set = 0;
    if (api->cudnnBackendGetAttribute(engine, name, type, MOST_NOTES, &n, note) != 0 || n > MOST_NOTES) return false;
    for (int64_t i = 0; i < n; i++)
        if (note[i] >= 0 && note[i] < 32) *set |= 1u << note[i];
    return true;
}

#define BIT(note) (1u << SW_CUDNN_NUMERICAL_NOTE_##note)

/* Numbers that the problem does not allow. Winograd's transforms lose too much in 16 bits. */
static uint32_t too_rough(const sw__cudnn_problem *c)
{
    uint32_t no = BIT(DOWN_CONVERT_INPUTS) | BIT(REDUCED_PRECISION_REDUCTION);
    if (c->type == SW_F32 && !c->tf32) no |= BIT(TENSOR_CORE);
    if (c->type == SW_F32 && c->tf32) no &= ~BIT(DOWN_CONVERT_INPUTS);
    if (c->type == SW_F16 || c->type == SW_BF16) no |= BIT(WINOGRAD) | BIT(FFT);
    return no;
}

/* What it says about itself; where it says nothing, it is not taken. Counts why not. */
static bool is_allowed(search *s, void *engine, uint32_t *notes)
{
    const sw__cudnn_api *const api = s->g->m.api;
    uint32_t ways = 0;
    const bool told =
        notes_of(api, engine, SW_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, SW_CUDNN_TYPE_NUMERICAL_NOTE, notes) &&
        notes_of(api, engine, SW_CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, SW_CUDNN_TYPE_BEHAVIOR_NOTE, &ways);
    int *const why = !told                                                        ? &s->refused
                     : *notes & too_rough(s->g->c)                                ? &s->inexact
                     : *notes & BIT(NONDETERMINISTIC)                             ? &s->nondeterministic
                     : ways & 1u << SW_CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION    ? &s->compiled
                                                                                  : NULL;
    if (why != NULL) ++*why;
    return why == NULL;
}

static bool is_small(search *s, int64_t bytes)
{
    if (bytes <= s->g->c->most) return true;
    if (s->large++ == 0 || bytes < s->smallest) s->smallest = bytes;
    return false;
}

static bool take(search *s, void *config, sw__cudnn_plan *out)
{
    const sw__cudnn_api *const api = s->g->m.api;
    sw__cudnn_make m = { .api = api, .st = SW_OK };
    int64_t n = 0, bytes = 0;
    uint32_t notes = 0;
    void *engine = sw__cudnn_new(&m, SW_CUDNN_BACKEND_ENGINE_DESCRIPTOR), *plan = NULL;
    const bool there = m.st == SW_OK && api->cudnnBackendGetAttribute(config, SW_CUDNN_ATTR_ENGINECFG_ENGINE,
                                                                      SW_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine) == 0;
    bool good = there && is_allowed(s, engine, &notes), made = false;
    if (good) {
        plan = sw__cudnn_new(&m, SW_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set_part(&m, plan, SW_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
        set_part(&m, plan, SW_CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, s->device);
        sw__cudnn_finish(&m, plan);
        made = m.st == SW_OK && api->cudnnBackendGetAttribute(plan, SW_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                              SW_CUDNN_TYPE_INT64, 1, &n, &bytes) == 0;
    }
    if (!there || (good && !made)) s->refused++;
    good = made && is_small(s, bytes);
    if (good) {
        *out = (sw__cudnn_plan){ .plan = plan, .workspace = (size_t)bytes, .notes = notes, .engine = -1 };
        api->cudnnBackendGetAttribute(engine, SW_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, SW_CUDNN_TYPE_INT64, 1, &n,
                                      &out->engine);
        sw__cudnn_keep(&m, plan);
    }
    sw__cudnn_done(&m);
    return good;
}

/* One of the library's lists of proposals, the best first. */
static bool search_mode(search *s, int32_t mode, sw__cudnn_plan *out)
{
    const sw__cudnn_api *const api = s->g->m.api;
    sw__cudnn_make m = { .api = api, .st = SW_OK };
    void *config[MOST_CONFIGS] = { NULL };
    int64_t there = 0, n = 0;
    bool found = false;
    void *const h = sw__cudnn_new(&m, SW_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_part(&m, h, SW_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, s->all);
    sw__cudnn_set(&m, h, SW_CUDNN_ATTR_ENGINEHEUR_MODE, SW_CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_part(&m, h, SW_CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, s->device);
    sw__cudnn_finish(&m, h);
    if (m.st == SW_OK)
        check(&m,
              api->cudnnBackendGetAttribute(h, SW_CUDNN_ATTR_ENGINEHEUR_RESULTS, SW_CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                            &there, NULL),
              "cudnnBackendGetAttribute");
    there = SW_MIN(there, (int64_t)MOST_CONFIGS);
    for (int64_t i = 0; i < there; i++) config[i] = sw__cudnn_new(&m, SW_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (m.st == SW_OK && there > 0)
        check(&m,
              api->cudnnBackendGetAttribute(h, SW_CUDNN_ATTR_ENGINEHEUR_RESULTS, SW_CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                            there, &n, config),
              "cudnnBackendGetAttribute");
    for (int64_t i = 0; m.st == SW_OK && i < SW_MIN(n, there) && !found; i++) found = take(s, config[i], out);
    s->st = m.st;
    sw__cudnn_done(&m);
    return found;
}

static sw_status none(const search *s)
{
    const int all = s->inexact + s->nondeterministic + s->compiled + s->refused + s->large;
    if (all == 0 && s->st != SW_OK) return s->st;
    if (all == 0) return sw__fail(SW_ERR_UNSUPPORTED, "cuDNN proposes no engine");
    return sw__fail(SW_ERR_UNSUPPORTED,
                    "none of cuDNN's %d engines will do: %d round too much, %d not repeatable, %d to be "
                    "compiled, %d refused, %d want too much workspace (%lld bytes at least)",
                    all, s->inexact, s->nondeterministic, s->compiled, s->refused, s->large, (long long)s->smallest);
}

sw_status sw__cudnn_choose(const sw__cudnn_api *api, void *device_, const sw__cudnn_problem *c, sw__cudnn_plan *out)
{
    graph g = { .m = { .api = api, .st = SW_OK }, .c = c, .storage = -1 };
    for (size_t i = 0; i < SW_COUNT(types); i++) {
        if (types[i].type != (sw_dtype)c->type) continue;
        g.storage = types[i].storage;
        g.sums = types[i].sums;
    }
    if (g.storage < 0)
        return sw__fail(SW_ERR_UNSUPPORTED, "cuDNN has no convolutions of %s", sw_dtype_name((sw_dtype)c->type));
    void *const all = build(&g);
    search s = { .g = &g, .all = all, .device = device_, .st = SW_OK };
    sw_status st = g.m.st;
    if (st == SW_OK && !search_mode(&s, SW_CUDNN_HEUR_MODE_A, out) &&
        !search_mode(&s, SW_CUDNN_HEUR_MODE_FALLBACK, out))
        st = none(&s);
    sw__cudnn_done(&g.m);
    return st;
}
