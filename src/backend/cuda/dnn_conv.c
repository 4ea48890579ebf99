/* dnn_conv.c: CONV, CONV_GRAD_X and CONV_GRAD_W through cuDNN: the op as a problem of two or three spatial axes, its
 * engine from dnn_plan.c, and running it. Strides go to the library as they are: it takes images channels last beside
 * weights in any order, and says what it does not take. Between cu_library.c and dnn_plan.c. */
#include "backend/cuda/cu.h"
#include "backend/cuda/dnn.h"
#include "backend/gpu/ops/big.h"

#include <stdio.h>

/* More than this an engine is not to ask for, where another does with less. */
#define WORKSPACE ((int64_t)256 << 20)

/* What a problem came to: an engine, or why there is none. */
typedef struct sw__cudnn_known {
    struct sw__cudnn_known *next;
    sw__cudnn_problem problem;
    sw__cudnn_plan plan; /* its `plan` NULL: refused */
    char why[300];
} sw__cudnn_known;

typedef struct job {
    sw__cudnn *dnn;
    const sw__cudnn_plan *plan; /* the device's, shared */
    int n, bind[4];             /* the plan's buffers by unique id */
    int64_t id[4];
    int workspace_bind;
    void *pack, *at[5]; /* pointers of the last run, workspace last, and the pack that has them */
} job;

/* ---- the op as a problem ----------------------------------------------------------------------------------------- */

/* Numbers of x, w and y among the plan's buffers; -1: the output. */
static const struct {
    uint16_t op;
    uint8_t kind;
    int8_t x, w, y;
} roles[] = {
    { SW_OP_CONV, SW_CUDNN_FORWARD, 0, 1, -1 },
    { SW_OP_CONV_GRAD_X, SW_CUDNN_DATA, -1, 1, 0 },
    { SW_OP_CONV_GRAD_W, SW_CUDNN_FILTER, 0, -1, 1 },
};

static int role_of(const sw__gpu_plan *p)
{
    for (size_t i = 0; i < SW_COUNT(roles); i++)
        if (roles[i].op == p->d.op) return (int)i;
    return 0;
}

static int buffer_of(const sw__gpu_plan *p, int number)
{
    return number < 0 ? p->d.n_in : number;
}

/* cuDNN has no convolutions over one axis: another of size 1 comes before it. */
static sw_status tensor_of(const char *what, const sw__desc *d, sw__cudnn_tensor *t)
{
    const int more = d->rank == 3;
    t->align = d->align != 0 ? SW_MIN(d->align, 16) : 16;
    for (int i = 0; i < d->rank; i++) {
        const int to = i < 2 ? i : i + more;
        t->dim[to] = d->dim[i];
        t->stride[to] = d->stride[i];
        if (d->stride[i] <= 0 && d->dim[i] > 1)
            return sw__fail(SW_ERR_UNSUPPORTED, "%s has a stride of %lld", what, (long long)d->stride[i]);
        if (t->stride[to] <= 0) t->stride[to] = 1;
        if (d->dim[i] > INT32_MAX) return sw__fail(SW_ERR_UNSUPPORTED, "%s is too large", what);
    }
    if (more) {
        t->dim[2] = 1;
        t->stride[2] = d->dim[2] * t->stride[3];
    }
    return SW_OK;
}

sw_status sw__cudnn_describe(const sw__gpu_plan *p, bool tf32, sw__cudnn_problem *c)
{
    const int role = role_of(p), more = p->attr.conv.nd == 1;
    memset(c, 0, sizeof *c);
    if (sw__desc_elements(&p->d.out[0]) == 0 || sw__desc_elements(&p->d.in[0]) == 0)
        return sw__fail(SW_ERR_UNSUPPORTED, "nothing to convolve");
    c->kind = roles[role].kind;
    c->nd = p->attr.conv.nd + more;
    c->type = p->d.out[0].dtype;
    c->tf32 = tf32 && c->type == SW_F32;
    SW_TRY(tensor_of("x", &p->desc[buffer_of(p, roles[role].x)], &c->x));
    SW_TRY(tensor_of("the weight", &p->desc[buffer_of(p, roles[role].w)], &c->w));
    SW_TRY(tensor_of("y", &p->desc[buffer_of(p, roles[role].y)], &c->y));
    for (int i = 0; i < c->nd; i++) {
        const int at = i - more;
        c->stride[i] = at < 0 ? 1 : p->attr.conv.stride[at];
        c->dilation[i] = at < 0 ? 1 : p->attr.conv.dilation[at];
        c->pre[i] = at < 0 ? 0 : p->attr.conv.pad_lo[at];
        c->post[i] = at < 0 ? 0 : p->attr.conv.pad_hi[at];
    }
    if (p->d.op != SW_OP_CONV) return SW_OK;
    c->bias = p->d.n_in > 2;
    if (c->bias && p->d.in[2].dim[0] > 1 && p->d.in[2].stride[0] != 1)
        return sw__fail(SW_ERR_UNSUPPORTED, "a bias with gaps");
    return SW_OK;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The pointers as the library wants them: made anew only where they are not those of the last run. */
static sw_status pack(job *j, void *const *at)
{
    const sw__cudnn_api *const api = j->dnn->api;
    if (j->pack != NULL && memcmp(at, j->at, sizeof j->at) == 0) return SW_OK;
    if (j->pack != NULL) api->cudnnBackendDestroyDescriptor(j->pack);
    j->pack = NULL;
    sw__cudnn_make m = { .api = api, .st = SW_OK };
    void *const d = sw__cudnn_new(&m, SW_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    sw__cudnn_set(&m, d, SW_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, SW_CUDNN_TYPE_INT64, j->n, j->id);
    sw__cudnn_set(&m, d, SW_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, SW_CUDNN_TYPE_VOID_PTR, j->n, at);
    sw__cudnn_set(&m, d, SW_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, SW_CUDNN_TYPE_VOID_PTR, 1, &at[4]);
    sw__cudnn_finish(&m, d);
    if (m.st == SW_OK) {
        sw__cudnn_keep(&m, d);
        j->pack = d;
        memcpy(j->at, at, sizeof j->at);
    }
    sw__cudnn_done(&m);
    return m.st == SW_ERR_UNSUPPORTED ? SW_ERR_DEVICE : m.st; /* a plan that was made is to run */
}

static sw_status run(void *dev, void *data, const sw__bind *bind)
{
    sw__cu *const c = dev;
    job *const j = data;
    void *at[5] = { NULL };
    c->last = "cudnnBackendExecute";
    for (int i = 0; i < j->n; i++) at[i] = sw__cu_pointer(&bind[j->bind[i]], 0);
    if (j->plan->workspace > 0) at[4] = sw__cu_pointer(&bind[j->workspace_bind], 0);
    SW_TRY(pack(j, at));
    const int status = j->dnn->api->cudnnBackendExecute(j->dnn->handle, j->plan->plan, j->pack);
    if (status == 0) return SW_OK;
    sw__cudnn_fail(j->dnn->api, status, "cuda: cudnnBackendExecute");
    return SW_ERR_DEVICE;
}

static void end(void *dev, void *data)
{
    job *const j = data;
    (void)dev;
    if (j->pack != NULL) j->dnn->api->cudnnBackendDestroyDescriptor(j->pack);
    sw__free(j);
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* Problems start as zeros, padding included. */
static bool same_bytes(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n) == 0;
}

static sw_status engine_for(sw__cudnn *dnn, const sw__cudnn_problem *c, const sw__cudnn_plan **out)
{
    for (sw__cudnn_known *k = dnn->known; k != NULL; k = k->next) {
        if (!same_bytes(&k->problem, c, sizeof *c)) continue;
        *out = &k->plan;
        return k->plan.plan != NULL ? SW_OK : sw__fail(SW_ERR_UNSUPPORTED, "%s", k->why);
    }
    sw__cudnn_known *const k = sw__calloc(1, sizeof *k);
    if (k == NULL) return sw__no_memory(sizeof *k, "a convolution's engine");
    memcpy(&k->problem, c, sizeof *c);
    const sw_status st = sw__cudnn_choose(dnn->api, dnn->device, c, &k->plan);
    if (st != SW_OK && st != SW_ERR_UNSUPPORTED) {
        sw__free(k);
        return st;
    }
    if (st != SW_OK) snprintf(k->why, sizeof k->why, "%.299s", sw_error());
    k->next = dnn->known;
    dnn->known = k;
    *out = &k->plan;
    return st;
}

static void connect(const sw__gpu_plan *p, const sw__cudnn_problem *c, job *j)
{
    const int role = role_of(p);
    const int8_t number[3] = { roles[role].x, roles[role].w, roles[role].y };
    for (int i = 0; i < 3; i++, j->n++) {
        j->id[i] = SW_CUDNN_X + i;
        j->bind[i] = buffer_of(p, number[i]);
    }
    j->workspace_bind = p->n_bind;
    if (!c->bias) return;
    j->bind[j->n] = 2;
    j->id[j->n++] = SW_CUDNN_BIAS;
}

sw_status sw__cudnn_plan_op(sw__cu *c, sw__cudnn *dnn, sw__gpu_plan *p)
{
    sw__cudnn_problem problem;
    const sw__cudnn_plan *engine = NULL;
    SW_TRY(sw__cudnn_describe(p, c->tf32, &problem));
    problem.most = WORKSPACE;
    SW_TRY(engine_for(dnn, &problem, &engine));
    job *const j = sw__calloc(1, sizeof *j);
    if (j == NULL) return sw__no_memory(sizeof *j, "a convolution's plan");
    j->dnn = dnn;
    j->plan = engine;
    connect(p, &problem, j);
    p->workspace = engine->workspace;
    const bool tensor = engine->notes >> SW_CUDNN_NUMERICAL_NOTE_TENSOR_CORE & 1u;
    const bool winograd = engine->notes >> SW_CUDNN_NUMERICAL_NOTE_WINOGRAD & 1u;
    snprintf(p->note, sizeof p->note, "cuDNN engine %lld%s%s", (long long)engine->engine,
             tensor ? (problem.tf32 ? ", tf32 tensor cores" : ", tensor cores") : "", winograd ? ", winograd" : "");
    SW_TRY(sw__gpu_add_call(p, (sw__gpu_call){ .exec = run, .free = end, .data = j }));
    const bool relu = p->d.op == SW_OP_CONV && p->attr.conv.act == SW_ACT_RELU;
    return relu ? sw__big_relu(p, p->d.n_in, &p->d.out[0]) : SW_OK;
}

/* ---- the device's handle ----------------------------------------------------------------------------------------- */

sw_status sw__cudnn_open(sw__cu *c, sw__cudnn *dnn)
{
    SW_TRY(sw__cudnn_load(&dnn->api));
    int status = dnn->api->cudnnCreate(&dnn->handle);
    if (status != 0) return sw__cudnn_fail(dnn->api, status, "cudnnCreate");
    status = dnn->api->cudnnSetStream(dnn->handle, c->stream);
    if (status != 0) return sw__cudnn_fail(dnn->api, status, "cudnnSetStream");
    return sw__cudnn_device_of(dnn->api, dnn->handle, &dnn->device);
}

void sw__cudnn_close(sw__cudnn *dnn)
{
    for (sw__cudnn_known *k = dnn->known, *next; k != NULL; k = next) {
        next = k->next;
        if (k->plan.plan != NULL) dnn->api->cudnnBackendDestroyDescriptor(k->plan.plan);
        sw__free(k);
    }
    if (dnn->device != NULL) dnn->api->cudnnBackendDestroyDescriptor(dnn->device);
    if (dnn->handle != NULL) dnn->api->cudnnDestroy(dnn->handle);
    memset(dnn, 0, sizeof *dnn);
}
