/* kir.h: the kernel IR, what the fuser makes of a region of the graph and what the tile interpreter runs and the
 * OpenCL and CUDA emitters print. Grammar and examples: docs/kernel-ir.md. Between pass/fuse and the backends.
 *
 * A kernel is an iteration domain and a list of instructions in SSA form. The domain has up to SW_MAX_RANK axes, slowest
 * first; a subset of the axes is reduced. Every instruction has a level that follows from its operands:
 *   ROW   one value for each point of the kept axes: it depends on no reduced axis
 *   FULL  one value for each point of the whole domain
 * and a phase: 0, or 1 + the phase of a reduction that it depends on (the maximum over operands). A reduction takes FULL
 * to ROW. Values are not kept from one phase to the next at FULL level: whoever runs the kernel recomputes them (loads are
 * cheap, memory is not), so a softmax is: phase 0 max, phase 1 sum of exp, phase 2 store.
 *
 * Skeletons, by which axes are reduced (`reduced` bit set):
 *   POINTWISE  none
 *   ROW        the last axes: each row is one run of memory; several phases allowed
 *   COLUMN     the last axis is kept: accumulators are vectors along it; only phase 0 at FULL level
 *   FULL       all axes: two stages in a fixed order; only phase 0 at FULL level (epilogue at ROW level allowed) */
#ifndef SW_KERNEL_KIR_H
#define SW_KERNEL_KIR_H

#include "graph/graph.h"

typedef enum sw__kop {
    SW_K_LOAD,    /* buffer[offset + sum stride[i] * d[i]]; outside lo/hi of some axis: the constant instead */
    SW_K_GATHER,  /* the same plus stride_x * value(a): a is i32 or i64, checked against 0 <= a < extent_x */
    SW_K_STORE,   /* buffer[offset + sum stride[i] * d[i]] = value(a); converts to the buffer's type */
    SW_K_CONST,   /* the constant */
    SW_K_INDEX,   /* offset + sum stride[i] * d[i] as a number of `dtype` */
    SW_K_RANDOM,  /* u32: Philox word a (i64: element index) at count b (i64, or -1: 0), key in the constant's place */
    SW_K_CALC,    /* graph op `op` (PW class of op.def) on a, b, c */
    SW_K_REDUCE   /* graph op `op` (REDUCE_SUM, _MAX, _MIN, _PROD) of a over the reduced axes */
} sw__kop;

typedef struct sw__inst {
    uint8_t kop;   /* sw__kop */
    uint8_t dtype; /* type of the result: never f16 or bf16 (loads widen to f32, stores narrow) */
    uint16_t op;   /* sw__op for CALC and REDUCE */
    int32_t a, b, c;     /* operands: instruction indices, -1 if none */
    int32_t buffer;      /* LOAD, GATHER, STORE */
    int32_t masked;      /* LOAD, GATHER: lo and hi are to be looked at */
    int64_t offset;      /* elements */
    int64_t stride[SW_MAX_RANK]; /* elements per step of a domain axis */
    int64_t lo[SW_MAX_RANK], hi[SW_MAX_RANK]; /* the load is valid for lo <= d < hi on every axis */
    int64_t stride_x, extent_x;  /* GATHER */
    double value;        /* CONST of float type; fill of a masked load */
    int64_t ivalue;      /* CONST of integer or bool type; RANDOM: seed */
    uint32_t stream;     /* RANDOM */
    uint8_t narrow;      /* CALC of a cast from f32: SW_F16 or SW_BF16, to which the value is rounded; else 0 */
    /* set by sw__kernel_analyse */
    uint8_t full;        /* 1: FULL level */
    uint8_t phase;
} sw__inst;

typedef enum sw__skeleton { SW_SKEL_POINTWISE, SW_SKEL_ROW, SW_SKEL_COLUMN, SW_SKEL_FULL } sw__skeleton;

typedef struct sw__kbuffer {
    uint8_t dtype;   /* type in memory */
    uint8_t written; /* a STORE targets it */
    uint8_t read;
} sw__kbuffer;

#define SW_K_MAX_BUFFERS 24
#define SW_K_MAX_INSTS 512

typedef struct sw__kernel {
    int32_t rank;
    int64_t extent[SW_MAX_RANK];
    uint32_t reduced;              /* bit i: axis i is reduced */
    int32_t n_buffers, n_insts;
    sw__kbuffer buffer[SW_K_MAX_BUFFERS];
    sw__inst *inst;
    /* set by sw__kernel_analyse */
    uint8_t skeleton, phases;
    uint64_t hash;                 /* of the structure: equal kernels (but for names) hash alike */
    char name[64];                 /* from the nodes it was made of: "add_relu_17"; for profiles and messages */
} sw__kernel;

/* Checks the rules above, sets level, phase, skeleton, hash. SW_ERR_UNSUPPORTED with a message if a rule is broken. */
sw_status sw__kernel_analyse(sw__kernel *k);
/* Merges neighbouring axes that every access walks as one, drops axes of size 1. Meaning unchanged. */
void sw__kernel_collapse(sw__kernel *k);
sw_status sw__kernel_clone(const sw__kernel *k, sw__kernel **out);
void sw__kernel_free(sw__kernel *k);
bool sw__kernel_equal(const sw__kernel *a, const sw__kernel *b);
/* The text form of docs/kernel-ir.md. */
void sw__kernel_print(const sw__kernel *k, sw__text *out);
/* Bytes read and written, and arithmetic operations, by one launch: for profiles and rooflines. */
void sw__kernel_cost(const sw__kernel *k, double *bytes, double *flops);

#endif
