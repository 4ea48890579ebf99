/* nccl.c: a fake libnccl.so.2: ranks are threads of this process, each with a device of its own. Joining, leaving, and
 * what ranks may do wrong; nccl_sum.c runs the sums as work in the fake libcuda's streams.
 * FAKECUDA_NCCL_TIMEOUT=seconds (10): after which a rank that does not come is reported, and nobody waits for it any
 * more. FAKECUDA_NCCL: another version. */
#include "fake_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

pthread_mutex_t fk_nccl_lock = PTHREAD_MUTEX_INITIALIZER;
static fk_group *groups;
static fk_comm *comms; /* all that there ever were: a handle is known after its end */
static const char kind[] = "NCCL communicator", mark[] = "fakenccl";

double fk_nccl_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double fk_nccl_timeout(void)
{
    const char *const text = getenv("FAKECUDA_NCCL_TIMEOUT");
    return text != NULL && *text != '\0' ? strtod(text, NULL) : 10;
}

static void enter(void)
{
    pthread_mutex_lock(&fk_nccl_lock);
}

static ncclResult_t leave(ncclResult_t r)
{
    pthread_mutex_unlock(&fk_nccl_lock);
    return r;
}

/* ---- library ----------------------------------------------------------------------------------------------------- */

FK_EXPORT ncclResult_t ncclGetVersion(int *version)
{
    const char *const text = getenv("FAKECUDA_NCCL");
    *version = text != NULL && *text != '\0' ? (int)strtol(text, NULL, 10) : 22809;
    return ncclSuccess;
}

FK_EXPORT const char *ncclGetErrorString(ncclResult_t r)
{
    static const char *const names[] = { "no error",
                                         "unhandled cuda error",
                                         "unhandled system error",
                                         "internal error",
                                         "invalid argument",
                                         "invalid usage",
                                         "remote process exited or there was a network error",
                                         "NCCL operation in progress" };
    return (size_t)r < sizeof names / sizeof *names ? names[r] : "unknown result code";
}

FK_EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    const fk_comm *const c = (const fk_comm *)(const void *)comm;
    return c != NULL && c->async != ncclSuccess ? c->group->why : "";
}

FK_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int n;
    if (fk_link()) {
        const int code = fk.fail("ncclGetUniqueId");
        if (code != 0) return (ncclResult_t)code;
    }
    enter();
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%s %d", mark, ++n);
    return leave(ncclSuccess);
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

static fk_group *group_of(const ncclUniqueId *id, int ranks)
{
    for (fk_group *g = groups; g != NULL; g = g->next)
        if (memcmp(&g->id, id, sizeof *id) == 0) return g;
    fk_group *const g = calloc(1, sizeof *g);
    if (g == NULL) return NULL;
    g->id = *id;
    g->ranks = ranks;
    g->next = groups;
    groups = g;
    return g;
}

/* NULL, reported: it may not join. */
static fk_group *joined(const ncclUniqueId *id, int ranks, int rank, const void *context)
{
    if (memcmp(id->internal, mark, sizeof mark - 1) != 0)
        return fk.report("NCCL: this id is none of ncclGetUniqueId's"), NULL;
    if (ranks < 1 || ranks > FK_RANKS || rank < 0 || rank >= ranks)
        return fk.report("NCCL: rank %d of %d", rank, ranks), NULL;
    fk_group *const g = group_of(id, ranks);
    if (g == NULL) return NULL;
    if (g->ranks != ranks)
        return fk.report("NCCL: a group of %d ranks for one, of %d for another", g->ranks, ranks), NULL;
    if (g->member[rank] != NULL) return fk.report("NCCL: two are rank %d", rank), NULL;
    for (int i = 0; i < ranks; i++)
        if (g->member[i] != NULL && g->member[i]->context == context)
            return fk.report("NCCL: ranks %d and %d have one device", i, rank), NULL;
    return g;
}

static int missing(const fk_group *g)
{
    for (int i = 0; i < g->ranks; i++)
        if (g->member[i] == NULL) return i;
    return -1;
}

/* InProgress as long as somebody is missing, and not for too long. */
static ncclResult_t state_of(fk_comm *c)
{
    if (c->async != ncclSuccess) return c->async;
    const int who = missing(c->group);
    if (who < 0) return c->closing && c->done < c->queued ? ncclInProgress : ncclSuccess;
    if (fk_nccl_now() - c->since < fk_nccl_timeout()) return ncclInProgress;
    fk_nccl_break(c->group, ncclRemoteError, "rank %d of %d never joined", who, c->group->ranks);
    return c->async;
}

void fk_nccl_break(fk_group *g, ncclResult_t why, const char *fmt, ...)
{
    va_list ap;
    if (g->broken) return;
    g->broken = true;
    va_start(ap, fmt);
    vsnprintf(g->why, sizeof g->why, fmt, ap);
    va_end(ap);
    fk.report("NCCL: %s", g->why);
    for (int i = 0; i < g->ranks; i++)
        if (g->member[i] != NULL) g->member[i]->async = why;
}

static ncclResult_t join(ncclComm_t *out, int ranks, const ncclUniqueId *id, int rank, bool blocking)
{
    void *context = NULL;
    if (!fk_link() || fk.current(&context) != 0 || context == NULL) return ncclUnhandledCudaError;
    const int code = fk.fail("ncclCommInitRank");
    if (code != 0) return (ncclResult_t)code;
    enter();
    fk_group *const g = joined(id, ranks, rank, context);
    if (g == NULL) return leave(ncclInvalidArgument);
    fk_comm *const c = calloc(1, sizeof *c);
    if (c == NULL) return leave(ncclSystemError);
    *c = (fk_comm){ .group = g, .rank = rank, .context = context, .since = fk_nccl_now(), .next = comms };
    comms = g->member[rank] = c;
    ncclResult_t r = state_of(c);
    leave(r);
    fk.made(kind, c);
    *out = (ncclComm_t)(void *)c;
    while (blocking && r == ncclInProgress) {
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        enter();
        r = leave(state_of(c));
    }
    return r;
}

FK_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank)
{
    return join(out, ranks, &id, rank, true);
}

/* Configurations of older versions are shorter. */
FK_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                              ncclConfig_t *config)
{
    const bool good =
        config == NULL || (config->magic == 0xcafebeef && config->version >= 21400 && config->version < 30000 &&
                           config->size >= offsetof(ncclConfig_t, blocking) + sizeof config->blocking);
    if (!good && fk_link()) fk.report("ncclCommInitRankConfig: this is no configuration");
    if (!good) return ncclInvalidArgument;
    return join(out, ranks, &id, rank, config == NULL || config->blocking != 0);
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */

/* NULL, reported: it is none, or none any more. Locked. */
fk_comm *fk_nccl_comm(ncclComm_t handle, const char *call)
{
    fk_comm *c = comms;
    while (c != NULL && (const void *)c != (const void *)handle) c = c->next;
    if (c != NULL && !c->gone) return c;
    if (fk_link()) fk.report("%s: %s", call, c != NULL ? "the communicator was destroyed" : "this is no communicator");
    return NULL;
}

FK_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *status)
{
    enter();
    fk_comm *const c = fk_nccl_comm(handle, "ncclCommGetAsyncError");
    if (c == NULL) return leave(ncclInvalidArgument);
    *status = state_of(c);
    return leave(ncclSuccess);
}

FK_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t handle)
{
    enter();
    fk_comm *const c = fk_nccl_comm(handle, "ncclCommFinalize");
    if (c == NULL) return leave(ncclInvalidArgument);
    c->closing = true;
    return leave(state_of(c));
}

static ncclResult_t end(ncclComm_t handle, const char *call, bool abort)
{
    enter();
    fk_comm *const c = fk_nccl_comm(handle, call);
    if (c == NULL) return leave(ncclInvalidArgument);
    if (!abort && c->done < c->queued) fk.report("%s: %ld collectives are under way", call, c->queued - c->done);
    c->gone = true;
    c->aborted = abort;
    leave(ncclSuccess);
    (void)fk.gone(kind, c);
    return ncclSuccess;
}

FK_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t handle)
{
    return end(handle, "ncclCommDestroy", false);
}

FK_EXPORT ncclResult_t ncclCommAbort(ncclComm_t handle)
{
    return end(handle, "ncclCommAbort", true);
}

FK_EXPORT ncclResult_t ncclCommCount(const ncclComm_t handle, int *n)
{
    enter();
    const fk_comm *const c = fk_nccl_comm(handle, "ncclCommCount");
    if (c != NULL) *n = c->group->ranks;
    return leave(c != NULL ? ncclSuccess : ncclInvalidArgument);
}

FK_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t handle, int *rank)
{
    enter();
    const fk_comm *const c = fk_nccl_comm(handle, "ncclCommUserRank");
    if (c != NULL) *rank = c->rank;
    return leave(c != NULL ? ncclSuccess : ncclInvalidArgument);
}
