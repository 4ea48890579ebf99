/* cu_library.c: which op goes to which of NVIDIA's libraries (ALL_REDUCE to NCCL, for which there is no other). Each is opened when the first op for it is planned; where
 * it is missing or refuses, the op runs on our kernels (backend/gpu/ops). Between gpu_op.c and lt_matmul.c, dnn_conv.c.
 */
#include "backend/cuda/cu.h"
#include "backend/cuda/dnn.h"
#include "backend/cuda/lt.h"

enum { LT, DNN, COMM, N_LIBRARIES };

typedef struct libraries {
    sw__lt lt;
    sw__cudnn dnn;
    struct {
        bool tried;
        sw_status st;
        char why[600];
    } state[N_LIBRARIES];
} libraries;

static sw_status open_lt(sw__cu *c, libraries *l)
{
    return sw__lt_open(c, &l->lt);
}
static void close_lt(libraries *l)
{
    sw__lt_close(&l->lt);
}
static sw_status plan_lt(sw__cu *c, libraries *l, sw__gpu_plan *p)
{
    return sw__lt_plan(c, &l->lt, p);
}
static sw_status open_dnn(sw__cu *c, libraries *l)
{
    return sw__cudnn_open(c, &l->dnn);
}
static void close_dnn(libraries *l)
{
    sw__cudnn_close(&l->dnn);
}
static sw_status plan_dnn(sw__cu *c, libraries *l, sw__gpu_plan *p)
{
    return sw__cudnn_plan_op(c, &l->dnn, p);
}

/* Its library is open, or there would be no such op to plan. */
static sw_status open_comm(sw__cu *c, libraries *l)
{
    (void)l;
    return c->nccl.comm != NULL ? SW_OK : sw__fail(SW_ERR_DEVICE, "the device is one of no group");
}
static void close_comm(libraries *l)
{
    (void)l; /* the device's end closes it */
}
static sw_status plan_comm(sw__cu *c, libraries *l, sw__gpu_plan *p)
{
    (void)l;
    return sw__nccl_plan(c, p);
}

static const struct {
    const char *what; /* runs slower without it */
    sw_status (*open)(sw__cu *, libraries *);
    void (*close)(libraries *); /* also after open failed */
    sw_status (*plan)(sw__cu *, libraries *, sw__gpu_plan *);
} table[N_LIBRARIES] = {
    [LT] = { "products of matrices", open_lt, close_lt, plan_lt },
    [DNN] = { "convolutions", open_dnn, close_dnn, plan_dnn },
    [COMM] = { "sums over devices", open_comm, close_comm, plan_comm },
};

static const uint8_t library_of[SW_OP_COUNT] = {
    /* 1 + number, 0: none */
    [SW_OP_MATMUL] = 1 + LT,       [SW_OP_DOT] = 1 + LT,          [SW_OP_CONV] = 1 + DNN,
    [SW_OP_CONV_GRAD_X] = 1 + DNN, [SW_OP_CONV_GRAD_W] = 1 + DNN, [SW_OP_ALL_REDUCE] = 1 + COMM,
};

bool sw__cu_library_has(uint16_t op)
{
    return library_of[op] != 0;
}

/* Told once for each device: that it works without, only slower. */
static sw_status open_once(sw__cu *c, libraries *l, int which)
{
    if (!l->state[which].tried) {
        const sw_status st = table[which].open(c, l);
        const char *const why = sw_error();
        if (st != SW_OK) table[which].close(l);
        if (st != SW_OK && st != SW_ERR_UNSUPPORTED) return st; /* out of memory: the next try may do better */
        l->state[which].st = st;
        l->state[which].tried = true;
        if (st == SW_OK) return SW_OK;
        memcpy(l->state[which].why, why, SW_MIN(strlen(why), sizeof l->state[which].why - 1));
        sw__log(SW_LOG_WARN, "cuda: %s run on swoop's own kernels, which are slower: %s", table[which].what, why);
        return st;
    }
    if (l->state[which].st == SW_OK) return SW_OK;
    return sw__fail(l->state[which].st, "%s", l->state[which].why);
}

/* The library of an op, open. */
static sw_status library_for(sw__cu *c, uint16_t op, int *which, libraries **out)
{
    *which = (int)library_of[op] - 1;
    if (*which < 0) return sw__fail(SW_ERR_UNSUPPORTED, "no library of NVIDIA's has it");
    if (c->library == NULL) {
        c->library = sw__calloc(1, sizeof(libraries));
        if (c->library == NULL) return sw__no_memory(sizeof(libraries), "NVIDIA's libraries");
    }
    *out = c->library;
    return open_once(c, *out, *which);
}

sw_status sw__cu_library(void *dev, sw__gpu_plan *p)
{
    int which = 0;
    libraries *l = NULL;
    SW_TRY(library_for(dev, p->d.op, &which, &l));
    return table[which].plan(dev, l, p);
}

/* cuBLASLt only: cuDNN's engine is the first that is exact and repeatable, and nobody chooses. */
bool sw__cu_library_label(void *dev, const sw__op_desc *d, char *out, size_t size)
{
    int which = 0;
    libraries *l = NULL;
    if (library_of[d->op] != 1 + LT || library_for(dev, d->op, &which, &l) != SW_OK) return false;
    sw__lt_label(dev, &l->lt, d, out, size);
    return true;
}

void sw__cu_library_close(sw__cu *c)
{
    libraries *const l = c->library;
    if (l == NULL) return;
    for (int i = 0; i < N_LIBRARIES; i++) table[i].close(l);
    sw__free(l);
    c->library = NULL;
}
