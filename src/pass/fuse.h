/* fuse.h: the groups that fuse.c makes and emit.c turns into kernels.
 * A unit is what becomes one or more steps: a group of fused nodes, a whole op, a concat, a spread. */
#ifndef SW_PASS_FUSE_H
#define SW_PASS_FUSE_H

#include "pass/sched.h"

#define SW__UNIT_LOADS 40

typedef struct sw__unit {
    bool is_group, followed;      /* followed: some unit comes after it */
    uint32_t node;                /* the op; of a group, its first member */
    /* groups: the domain (dims without the ones of the first member, or of what it reduces) */
    int32_t rank;
    int64_t dim[SW_MAX_RANK];
    uint8_t order[SW_MAX_RANK];   /* physical order of the domain's axes, slowest first */
    uint32_t reduced;
    int64_t points;
    uint32_t *member;             /* ascending ids */
    uint32_t n;
    size_t cap;
    uint32_t load[SW__UNIT_LOADS]; /* large values read from outside */
    uint32_t n_load, n_store, cost;
    uint64_t *before;             /* bit set of the units that must come first */
} sw__unit;

typedef struct sw__fuse {
    sw__unit *unit;
    uint32_t n;
    size_t cap;
    uint32_t words;               /* of each bit set */
    uint64_t *bits;               /* room for the sets */
    uint32_t max_units;
    /* by node */
    bool *must;                   /* has to lie in memory, whoever computes it */
    uint32_t *unit_of;            /* + 1; 0: none */
    int16_t (*axis)[SW_MAX_RANK]; /* members: the domain's axis behind each axis (of a reduction: its input's), or -1 */
    uint8_t *phase;
    uint8_t *cost;                /* inline: operations in its tree */
    uint8_t *n_leaf;              /* inline: values that it reads from memory */
    uint32_t *leaf;               /* inline: the one large value that it reads, or 0 */
    int64_t *reach;               /* elements of the largest view over it */
    uint32_t *reader;             /* a unit (+ 1) that reads it, the latest */
    uint32_t *memo_head;          /* emit.c */
} sw__fuse;

bool sw__is_reduce(const sw__node *n);
bool sw__may_phase(const sw__unit *u);
uint32_t sw__op_weight(uint32_t op); /* of one element, in additions */

#endif
