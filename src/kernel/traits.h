/* traits.h: what passes may know of a device (sw__traits), and how a tensor or a whole op is described to one.
 * Below both pass/ and backend/, so that neither knows the other. */
#ifndef SW_KERNEL_TRAITS_H
#define SW_KERNEL_TRAITS_H

#include "graph/graph.h"

/* A tensor in memory as a backend is told of it. Strides in elements; 0 on expanded axes. */
typedef struct sw__desc {
    uint8_t dtype, rank;
    uint16_t align; /* of an op that is planned: bytes (at most 16) that divide where it begins; 0: as a storage, 16 */
    int64_t dim[SW_MAX_RANK], stride[SW_MAX_RANK];
} sw__desc;

/* An op handed over whole. in[] then out[] in the order of op.def; an absent optional input ends the list. */
typedef struct sw__op_desc {
    uint16_t op;
    const sw__attr *attr;
    const char *name;  /* for messages and profiles */
    int n_in, n_out;
    const sw__desc *in, *out;
    uint32_t fixed;    /* bit i: input i stays the same from run to run (i < 32), so it may be packed once */
} sw__op_desc;

/* What passes may know of a device: they are given this and nothing else. */
typedef struct sw__traits {
    bool fuse;               /* kernels (kir.h) can be built and launched; false: every node is an op handed over whole */
    bool views;              /* movement ops may be strides; false: every op gets and gives dense row-major tensors */
    sw_dtype float_storage;  /* SW_F64: all floating-point tensors are kept in double (ref); SW_F32: as they are */
    bool takes[SW_OP_COUNT]; /* ops handed over whole; others must be fusable, views, or have `lower` */
    bool channels_last[SW_OP_COUNT]; /* for ops on images: 4-D activations are best stored N, H, W, C */
    bool keeps;              /* what depends on variables alone is computed once and kept until one of them is written */
    bool bias_act[SW_OP_COUNT];      /* MATMUL, CONV: takes the bias input and attr.act */
    bool small_tables;       /* sums by index are quick: products of looked-up rows become lookups (pass/lookup.c) */
    int max_buffers, max_insts;      /* per kernel; 0: the IR's own limits */
    size_t alignment;        /* of tensors in an arena, bytes, power of two */
    int compute_units;       /* threads of a CPU, for decisions about splitting */
} sw__traits;

#endif
