/* sched.h: what the files that make a schedule share: the builder, tensors of nodes, steps and what they read and
 * write. Inside pass/: schedule.c drives; plain.c (device without kernels) or fuse.c and emit.c make steps; order.c
 * sorts them. */
#ifndef SW_PASS_SCHED_H
#define SW_PASS_SCHED_H

#include "pass/pass.h"
#include <stdlib.h>

/* Where a node's value is, and which value has to be there before it may be read. Value ids: a node's own id, or, from
 * n_nodes up, copies that no node stands for. */
typedef struct sw__tensor {
    sw__ref ref;
    uint32_t value; /* 0: not placed yet */
} sw__tensor;

typedef struct sw__touch { uint32_t step, value; } sw__touch;   /* a step reads or writes a value */
typedef struct sw__part { uint32_t whole, part; } sw__part;     /* whoever reads the whole waits for the part */
/* An assign to be done: storage `from`, which holds `value` alone, goes to the variable that is storage `to`. */
typedef struct sw__pending { sw__tensor from, to; uint32_t node; } sw__pending;

/* How a node takes part in a schedule. */
typedef enum sw__role {
    SW_ROLE_NONE = 0, /* not reached from an output or assign */
    SW_ROLE_SOURCE,   /* input, variable, group, literal */
    SW_ROLE_VIEW,     /* strides over its input */
    SW_ROLE_INLINE,   /* computed again wherever it is used */
    SW_ROLE_FUSED,    /* member of a kernel */
    SW_ROLE_OP,       /* handed over whole */
    SW_ROLE_OUTPUT,   /* output k of such an op */
    SW_ROLE_JOIN,     /* concat, pack: its parts are written in place */
    SW_ROLE_SPREAD,   /* pad with interior: a fill, then a strided copy */
    SW_ROLE_ASSIGN
} sw__role;

typedef struct sw__sched {
    const sw_graph *g;
    const sw__traits *t;
    const sw__asks *a;
    sw__schedule *s;
    uint8_t *role;            /* by node: sw__role */
    sw__tensor *tensor;       /* by node */
    sw__tensor *dense;        /* by node: its dense row-major copy, made when a reshape or an op needs it */
    sw__tensor *liked;        /* by node: its copy in the physical order that ops on images like */
    uint32_t n_values;
    sw__touch *reads, *writes;
    size_t n_reads, cap_reads, n_writes, cap_writes;
    sw__part *parts;
    size_t n_parts, cap_parts;
    sw__part *after;          /* the whole is written only after the part */
    size_t n_after, cap_after;
    uint32_t *key;            /* by step: place in the graph's order */
    size_t cap_key;
    int32_t *source;          /* by node: storage of a source + 1 */
    int32_t *var_storage, *group_storage; /* + 1, by index */
    struct sw__fuse *fuse;
} sw__sched;

/* schedule.c */
sw_dtype sw__sched_stored(const sw__sched *b, sw_dtype t);
sw_status sw__sched_storage(sw__sched *b, sw__storage_kind kind, uint32_t index, sw_dtype dtype, int64_t elements,
                            int32_t *out);
uint32_t sw__sched_value(sw__sched *b);
/* Dense in `order` (NULL: row-major) from element `offset` of a storage on. */
void sw__dense_ref(sw__ref *r, int32_t storage, int64_t offset, sw_dtype dtype, int rank, const int64_t *dim,
                   const uint8_t *order);
bool sw__ref_is_dense(const sw__ref *r, const uint8_t *order);
/* The tensor of a node, placed now if it was not. */
sw_status sw__sched_tensor(sw__sched *b, uint32_t node, sw__tensor *out);
/* A new tensor of the node's shape, dense in `order`, in a storage of its own. */
sw_status sw__sched_new_tensor(sw__sched *b, const sw__node *n, const uint8_t *order, sw__tensor *out);
sw_status sw__sched_step(sw__sched *b, sw__step_kind kind, const char *name, int n_in, int n_out, uint32_t key,
                         uint32_t *out);
sw_status sw__sched_reads(sw__sched *b, uint32_t step, uint32_t value);
sw_status sw__sched_writes(sw__sched *b, uint32_t step, uint32_t value);
sw_status sw__sched_part(sw__sched *b, uint32_t whole, uint32_t part);
sw_status sw__sched_copy(sw__sched *b, const sw__tensor *from, const sw__tensor *to, const char *name, uint32_t key);
sw_status sw__sched_fill(sw__sched *b, const sw__tensor *to, int n, double value, const char *name, uint32_t key);
sw_status sw__sched_op(sw__sched *b, uint32_t node, const sw__tensor *in);
const char *sw__sched_name(sw__sched *b, uint32_t node);

/* plain.c: a device without kernels: every node an op on dense tensors. */
sw_status sw__sched_plain(sw__sched *b);
/* fuse.c: which nodes are computed again, which share a kernel. emit.c: the steps. */
sw_status sw__sched_fuse(sw__sched *b);
sw_status sw__sched_emit(sw__sched *b);
void sw__sched_fuse_free(sw__sched *b);
/* views.c */

/* One coordinate of a node as a function of a domain's point d: off + coef * d[axis]; axis -1: off alone. */
typedef struct sw__row { int64_t off, coef; int32_t axis, pad; } sw__row;
/* A reshape that only inserts or removes axes of size 1 (and any op that changes no shape). */
bool sw__view_is_plain(const sw__node *n, const sw__node *x);
/* Rows of view n turned into rows of its input x. n must not be a reshape that is not plain. */
void sw__view_push(const sw__node *n, const sw__node *x, sw__row row[SW_MAX_RANK]);
/* The view n of its input's memory; false if a reshape cannot be had by strides. */
bool sw__view_ref(const sw__node *n, const sw__node *x, const sw__ref *from, sw__ref *to);

/* order.c */
sw_status sw__sched_order(sw__sched *b, sw__pending *assigns, uint32_t n_assigns);
/* After the kernel has stored a point, nobody in it loads that point any more: the two may share memory. */
bool sw__may_overwrite(const sw__kernel *k, const sw__inst *load, const sw__inst *store);
/* cost.c */
void sw__op_cost(const sw__step *s, double *flops, double *bytes);

/* memory.c: may the kernel's output lie where its input lies, if nobody reads that any more? */
bool sw__may_take_over(const sw__schedule *s, const sw__step *step, int32_t in, int32_t out);
/* memory.c, for tests: true if no two storages that live at the same time overlap. On false, *a and *b are two that
 * do. */
bool sw__plan_check(const sw__schedule *s, uint32_t *a, uint32_t *b);

#endif
