/* fake_nccl.h: what the files of the fake NCCL share: groups of ranks, their communicators, and the sum that each is
 * at. nccl.c has joining and leaving, nccl_sum.c the sums. */
#ifndef FAKECUDA_FAKE_NCCL_H
#define FAKECUDA_FAKE_NCCL_H

#include <nccl.h>

#include "link.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>

enum { FK_RANKS = 16 };

typedef struct fk_comm fk_comm;
typedef struct fk_group {
    struct fk_group *next;
    ncclUniqueId id;
    int ranks;
    fk_comm *member[FK_RANKS];
    bool broken; /* what is under way ends without a result */
    char why[200];
} fk_group;

struct fk_comm {
    fk_comm *next;
    fk_group *group;
    int rank;
    const void *context;
    double since, waits; /* when it came; when it began to wait in the sum, or 0 */
    ncclResult_t async;
    bool closing, gone, aborted;
    long queued, done;  /* sums put into streams, not by captures; sums that ran */
    long tickets, turn; /* order of those, in which they run whatever streams they are in */
    /* the sum that it is at: number `done` */
    bool posted;
    size_t n;
    ncclDataType_t type;
    ncclRedOp_t op;
    void *values; /* its part, in host memory until everybody has added it */
};

extern pthread_mutex_t fk_nccl_lock; /* taken within fake libcuda's, never the other way round */
double fk_nccl_now(void);
double fk_nccl_timeout(void);
fk_comm *fk_nccl_comm(ncclComm_t handle, const char *call);
/* Reports, once; all ranks are told the status. */
void fk_nccl_break(fk_group *g, ncclResult_t why, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
