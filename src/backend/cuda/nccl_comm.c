/* nccl_comm.c: a device as one of several ranks: its communicator, and ALL_REDUCE over it in the stream of the work.
 * Nobody waits for ever: the communicator does not block, and whoever waits asks it now and then. See nccl.h; called by
 * cu.c, cu_driver.c (waiting) and cu_library.c (plans). */
#include "backend/cuda/nccl.h"
#include "backend/cuda/cu.h"
#include "backend/desc.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Seconds; a rank may still be reading its data. As long as PyTorch waits. */
#define PATIENCE 600.0

static const int types[SW_DTYPE_COUNT] = {
    [SW_F32] = 1 + SW_ncclFloat32,   [SW_F64] = 1 + SW_ncclFloat64, [SW_F16] = 1 + SW_ncclFloat16,
    [SW_BF16] = 1 + SW_ncclBfloat16, [SW_I32] = 1 + SW_ncclInt32,   [SW_I64] = 1 + SW_ncclInt64,
    [SW_U32] = 1 + SW_ncclUint32,    [SW_U8] = 1 + SW_ncclUint8, /* 0: NCCL sums none of them */
};

static double patience(void)
{
    const char *const text = getenv("SWOOP_COMM_TIMEOUT");
    const double seconds = text != NULL ? strtod(text, NULL) : 0;
    return seconds > 0 ? seconds : PATIENCE;
}

static sw_status failed(const sw__nccl *n, int status, const char *call)
{
    const char *const name = n->api->ncclGetErrorString(status);
    const char *const more = n->api->ncclGetLastError(n->comm);
    return sw__fail(SW_ERR_DEVICE, "rank %d of %d: %s: %s (%d)%s%s", n->rank, n->ranks, call, name != NULL ? name : "?",
                    status, more != NULL && *more != '\0' ? ": " : "", more != NULL ? more : "");
}

/* Ends what the device still does for it. Programs that sum then say that nobody is there. */
static void give_up(sw__nccl *n)
{
    if (n->comm != NULL) (void)n->api->ncclCommAbort(n->comm);
    n->comm = NULL;
}

static sw_status too_long(const sw__nccl *n, const char *call)
{
    return sw__fail(SW_ERR_DEVICE,
                    "rank %d of %d: %s: another rank did not come for %.0f s: it ended, hangs, or runs other "
                    "steps than this one (SWOOP_COMM_TIMEOUT says how long to wait)",
                    n->rank, n->ranks, call, n->patience);
}

static void pause_for(long nanoseconds)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = nanoseconds }, NULL);
}

/* How the communicator fares: *idle: it has done what it was asked for. */
static sw_status look(const sw__nccl *n, const char *call, bool *idle)
{
    int state = SW_ncclInProgress;
    const int status = n->api->ncclCommGetAsyncError(n->comm, &state);
    if (status != 0) return failed(n, status, "ncclCommGetAsyncError");
    *idle = state == 0;
    return *idle || state == SW_ncclInProgress ? SW_OK : failed(n, state, call);
}

/* Until NCCL has done what it was asked for. */
static sw_status settle(sw__nccl *n, const char *call)
{
    const double start = sw__now();
    for (bool idle = false;;) {
        SW_TRY(look(n, call, &idle));
        if (idle) return SW_OK;
        if (sw__now() - start > n->patience) return too_long(n, call);
        pause_for(200000);
    }
}

sw_status sw__nccl_check(sw__cu *c, double start)
{
    sw__nccl *const n = &c->nccl;
    bool idle = false; /* which says nothing of the sums that are launched */
    if (n->comm == NULL) return SW_OK;
    sw_status st = look(n, "ncclAllReduce", &idle);
    if (st == SW_OK && sw__now() - start > n->patience) st = too_long(n, "ncclAllReduce");
    if (st != SW_OK)
        give_up(n);
    else
        pause_for(20000);
    return st;
}

/* ---- the communicator -------------------------------------------------------------------------------------------- */

sw_status sw__nccl_id_new(sw__comm_id *out)
{
    sw__nccl n = { .ranks = 1 };
    sw__nccl_id id;
    SW_TRY(sw__nccl_load(&n.api, NULL));
    const int status = n.api->ncclGetUniqueId(&id);
    if (status != 0) return failed(&n, status, "ncclGetUniqueId");
    _Static_assert(sizeof id == sizeof *out, "an id");
    memcpy(out->bytes, id.internal, sizeof id.internal);
    return SW_OK;
}

static sw_status join(sw__nccl *n, const sw__comm_id *name)
{
    sw__nccl_config config = {
        .size = sizeof config, .magic = SW_NCCL_MAGIC, .version = SW_NCCL_OLDEST, .blocking = 0
    };
    sw__nccl_id id;
    memcpy(id.internal, name->bytes, sizeof id.internal);
    const int status = n->api->ncclCommInitRankConfig(&n->comm, n->ranks, id, n->rank, &config);
    if (status != 0 && status != SW_ncclInProgress) return failed(n, status, "ncclCommInitRankConfig");
    return settle(n, "ncclCommInitRankConfig");
}

sw_status sw__nccl_open(sw__cu *c, const sw__comm_id *id, int rank, int ranks)
{
    sw__nccl *const n = &c->nccl;
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return sw__fail(SW_ERR_ARGUMENT, "cuda: there is no rank %d of %d", rank, ranks);
    if (n->comm != NULL)
        return sw__fail(SW_ERR_ARGUMENT, "cuda: the device is rank %d of %d already", n->rank, n->ranks);
    if (ranks == 1) return SW_OK;
    *n = (sw__nccl){ .rank = rank, .ranks = ranks, .patience = patience() };
    SW_TRY(sw__nccl_load(&n->api, NULL));
    const sw_status st = join(n, id);
    if (st != SW_OK) {
        give_up(n);
        return st;
    }
    c->gpu.traits.takes[SW_OP_ALL_REDUCE] = true;
    return SW_OK;
}

/* What it still has to do is done first; if that fails there is nobody to tell. */
void sw__nccl_close(sw__cu *c)
{
    sw__nccl *const n = &c->nccl;
    c->gpu.traits.takes[SW_OP_ALL_REDUCE] = false;
    if (n->comm == NULL) return;
    int status = sw__cu_wait(c, NULL) == SW_OK && n->comm != NULL ? n->api->ncclCommFinalize(n->comm) : -1;
    if (status == SW_ncclInProgress && settle(n, "ncclCommFinalize") == SW_OK) status = 0;
    if (status == 0)
        (void)n->api->ncclCommDestroy(n->comm);
    else
        give_up(n);
    n->comm = NULL;
}

/* ---- the op ------------------------------------------------------------------------------------------------------ */

typedef struct reduce {
    size_t n;
    int type;
} reduce;

static sw_status run(void *dev, void *data, const sw__bind *bind)
{
    sw__cu *const c = dev;
    sw__nccl *const n = &c->nccl;
    const reduce *const r = data;
    if (n->comm == NULL) return sw__fail(SW_ERR_DEVICE, "cuda: the device has no communicator any more to sum over");
    c->last = "ncclAllReduce";
    n->launched++;
    const int status = n->api->ncclAllReduce(sw__cu_pointer(&bind[0], 0), sw__cu_pointer(&bind[1], 0), r->n, r->type,
                                             SW_ncclSum, n->comm, c->stream);
    if (status == SW_ncclInProgress) return settle(n, "ncclAllReduce");
    return status == 0 ? SW_OK : failed(n, status, "ncclAllReduce");
}

static void end(void *dev, void *data)
{
    (void)dev;
    sw__free(data);
}

sw_status sw__nccl_plan(sw__cu *c, sw__gpu_plan *p)
{
    const int type = types[p->d.out[0].dtype];
    if (type == 0)
        return sw__fail(SW_ERR_UNSUPPORTED, "NCCL has no sums of %s", sw_dtype_name((sw_dtype)p->d.out[0].dtype));
    if (sw__desc_elements(&p->d.out[0]) == 0) return SW_OK;
    reduce *const r = sw__calloc(1, sizeof *r);
    if (r == NULL) return sw__no_memory(sizeof *r, "an all_reduce's plan");
    *r = (reduce){ .n = (size_t)sw__desc_elements(&p->d.out[0]), .type = type - 1 };
    snprintf(p->note, sizeof p->note, "NCCL, %d ranks", c->nccl.ranks);
    return sw__gpu_add_call(p, (sw__gpu_call){ .exec = run, .free = end, .data = r });
}
