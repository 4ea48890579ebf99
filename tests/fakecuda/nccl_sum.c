/* nccl_sum.c: sums of the fake NCCL. In its stream a sum first leaves a copy of its part, then waits until all ranks
 * have, then each adds up all parts in the order of the ranks. What they ask for must be the same everywhere. */
#include "fake_nccl.h"
#include "numbers.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct sum {
    fk_comm *c;
    uint64_t from, to;
    size_t n;
    ncclDataType_t type;
    ncclRedOp_t op;
    long ticket; /* 0: in a graph */
    char who[64];
} sum;

static const struct {
    ncclDataType_t type;
    int size;
    const char *name;
} types[] = {
    { ncclUint8, 1, "u8" },    { ncclInt32, 4, "i32" },   { ncclUint32, 4, "u32" },  { ncclInt64, 8, "i64" },
    { ncclFloat16, 2, "f16" }, { ncclFloat32, 4, "f32" }, { ncclFloat64, 8, "f64" }, { ncclBfloat16, 2, "bf16" },
};

static int find_type(ncclDataType_t type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) return (int)i;
    return -1;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static fk_type float_type(ncclDataType_t t)
{
    return t == ncclFloat64 ? FK_F64 : t == ncclFloat32 ? FK_F32 : t == ncclFloat16 ? FK_F16 : FK_BF16;
}

static void add_one(ncclDataType_t type, const fk_group *g, size_t i, void *to)
{
    double d = 0;
    uint64_t whole = 0;
    const size_t size = (size_t)types[find_type(type)].size;
    const bool is_float = type == ncclFloat64 || type == ncclFloat32 || type == ncclFloat16 || type == ncclBfloat16;
    for (int r = 0; r < g->ranks; r++) {
        const char *const at = (const char *)g->member[r]->values + i * size;
        uint64_t v = 0; /* two's complement: the low bytes of a sum need no others */
        memcpy(&v, at, size);
        whole += v;
        if (is_float)
            d = type == ncclFloat64 ? d + fk_load(FK_F64, at)
                                    : (double)((float)d + (float)fk_load(float_type(type), at));
    }
    if (is_float)
        fk_store(float_type(type), to, d);
    else
        memcpy(to, &whole, size);
}

/* ---- in the stream ----------------------------------------------------------------------------------------------- */

static bool has_come(const fk_comm *other, long round)
{
    return (other->done == round && other->posted) || other->done == round + 1;
}

/* Nobody who still adds the part before may miss it. */
static bool may_post(const fk_comm *c)
{
    for (int r = 0; r < c->group->ranks; r++)
        if (c->group->member[r]->done < c->done) return false;
    return true;
}

static void post(sum *s)
{
    fk_comm *const c = s->c;
    const size_t bytes = s->n * (size_t)types[find_type(s->type)].size;
    const void *const from = fk.map(s->from, bytes, false, s->who);
    free(c->values);
    c->values = malloc(bytes);
    if (c->values != NULL && from != NULL) memcpy(c->values, from, bytes);
    if (c->values == NULL || from == NULL)
        fk_nccl_break(c->group, ncclUnhandledCudaError, "%s: no memory to read", s->who);
    c->n = s->n;
    c->type = s->type;
    c->op = s->op;
    c->posted = true;
}

static void compare(fk_comm *c)
{
    for (int r = 0; r < c->group->ranks; r++) {
        const fk_comm *const o = c->group->member[r];
        if (o->n == c->n && o->type == c->type && o->op == c->op) continue;
        fk_nccl_break(c->group, ncclInvalidUsage, "sum %ld: rank %d has %zu %s by op %d, rank %d %zu %s by op %d",
                      c->done, c->rank, c->n, types[find_type(c->type)].name, (int)c->op, r, o->n,
                      types[find_type(o->type)].name, (int)o->op);
    }
}

/* Everybody is there; or it is of no use to wait. */
static bool is_complete(sum *s)
{
    fk_comm *const c = s->c;
    int absent = -1;
    if (c->gone || c->group->broken) return true;
    if (s->ticket > c->turn + 1) return false;
    if (c->waits <= 0) c->waits = fk_nccl_now();
    if (!c->posted && may_post(c)) post(s);
    for (int r = 0; r < c->group->ranks && absent < 0; r++)
        if (!c->posted || !has_come(c->group->member[r], c->done)) absent = r;
    if (absent >= 0 && fk_nccl_now() - c->waits >= fk_nccl_timeout())
        fk_nccl_break(c->group, ncclRemoteError, "rank %d does not come to sum %ld (%zu %s), for which rank %d waits",
                      absent, c->done, s->n, types[find_type(s->type)].name, c->rank);
    if (absent >= 0) return c->group->broken;
    compare(c);
    return true;
}

static bool ready(void *data)
{
    pthread_mutex_lock(&fk_nccl_lock);
    const bool yes = is_complete(data);
    pthread_mutex_unlock(&fk_nccl_lock);
    return yes;
}

static void add_up(const sum *s)
{
    const fk_comm *const c = s->c;
    const size_t size = (size_t)types[find_type(s->type)].size;
    char *const to = fk.map(s->to, s->n * size, true, s->who);
    if (to == NULL) return;
    if (c->gone || c->group->broken)
        memset(to, 0xFF, s->n * size);
    else
        for (size_t i = 0; i < s->n; i++) add_one(s->type, c->group, i, to + i * size);
}

static void run(void *data)
{
    const sum *const s = data;
    fk_comm *const c = s->c;
    pthread_mutex_lock(&fk_nccl_lock);
    if (c->gone && !c->aborted) fk.report("%s: the communicator was destroyed meanwhile", s->who);
    add_up(s);
    c->posted = false;
    c->waits = 0;
    c->done++;
    if (s->ticket > 0) c->turn = s->ticket;
    pthread_mutex_unlock(&fk_nccl_lock);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static ncclResult_t check(const fk_comm *c, size_t n, ncclDataType_t type, ncclRedOp_t op)
{
    void *context = NULL;
    const char *why = NULL;
    if (fk.current(&context) != 0 || context != c->context)
        why = "the communicator is another device's";
    else if (find_type(type) < 0)
        why = "the fake has no such type";
    else if (op != ncclSum)
        why = "the fake has sums only";
    else if (n == 0)
        why = "nothing to sum";
    else if (c->closing)
        why = "the communicator is finalized";
    if (why != NULL) fk.report("ncclAllReduce: %s", why);
    return why != NULL ? ncclInvalidArgument : c->async;
}

FK_EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                                     ncclComm_t handle, cudaStream_t stream)
{
    int capturing = 0;
    const int code = fk_link() ? fk.fail("ncclAllReduce") : ncclUnhandledCudaError;
    if (code != 0) return (ncclResult_t)code;
    (void)fk.capturing(stream, &capturing);
    pthread_mutex_lock(&fk_nccl_lock);
    fk_comm *const c = fk_nccl_comm(handle, "ncclAllReduce");
    ncclResult_t r = c != NULL ? check(c, n, type, op) : ncclInvalidArgument;
    sum *const s = r == ncclSuccess ? calloc(1, sizeof *s) : NULL;
    if (r == ncclSuccess && s == NULL) r = ncclSystemError;
    if (s != NULL) {
        *s = (sum){ .c = c, .from = (uintptr_t)from, .to = (uintptr_t)to, .n = n, .type = type, .op = op };
        if (capturing == 0) s->ticket = ++c->tickets;
        if (capturing == 0) c->queued++;
        snprintf(s->who, sizeof s->who, "ncclAllReduce: rank %d", c->rank);
    }
    pthread_mutex_unlock(&fk_nccl_lock);
    if (s == NULL) return r;
    return fk.work_when(stream, "ncclAllReduce", ready, run, free, s) == 0 ? ncclSuccess : ncclUnhandledCudaError;
}
