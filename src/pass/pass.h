/* pass.h: graph -> graph passes, and the last one, graph -> schedule: what to launch, in which order, where in memory.
 * Between graph/ and exec/compile.c. A pass knows no backend: it is given the device's traits (and, for the schedule,
 * three questions that only a backend can answer, as function pointers).
 * SWOOP_DUMP=precision,lookup,simplify,lower,epilogue,layout,fuse,schedule,plan (or all) prints before and after to
 * stderr. */
#ifndef SW_PASS_PASS_H
#define SW_PASS_PASS_H

#include "graph/graph.h"
#include "kernel/kir.h"
#include "kernel/traits.h"

/* Each makes a new graph; the caller frees both. */
sw_status sw__pass_simplify(const sw_graph *g, sw_graph **out); /* folding, CSE, dead code, exact identities */
sw_status sw__pass_lookup(const sw_graph *g, const sw__traits *t, sw_graph **out); /* products of looked-up rows */
/* big ops that the device does not take */
sw_status sw__pass_lower(const sw_graph *g, const sw__traits *t, sw_graph **out);
sw_status sw__pass_epilogue(const sw_graph *g, const sw__traits *t, sw_graph **out); /* bias, relu into matmul, conv */
sw_status sw__pass_layout(const sw_graph *g, const sw__traits *t, sw_graph **out);   /* sets sw__node.order */

/* "half", "norm", "follow" or "f32": what sw_graph_autocast (precision.c) does with this op */
const char *sw__precision_rule(uint32_t op);

/* sw_graph_autocast; by_chance: weights are rounded stochastically, anew in each run */
sw_status sw__graph_autocast(const sw_graph *g, sw_dtype half, bool by_chance, sw_graph **out);
/* stochastic.c: f32 to f16 or bf16; the chances are sw_rand's of this counter and stream. */
sw_t sw__round_by_chance(sw_t x, sw_dtype half, sw_t counter, uint32_t stream);

bool sw__dump_wanted(const char *pass);
void sw__dump_graph(const char *pass, const char *when, const sw_graph *g);

/* ---- schedule ---------------------------------------------------------------------------------------------------- */

typedef enum sw__storage_kind {
    SW_STORE_ARENA,   /* placed by the memory plan */
    SW_STORE_INPUT,   /* index: graph input */
    SW_STORE_VAR,     /* index: variable (also members of a group: the store resolves place) */
    SW_STORE_GROUP,   /* index: packed group */
    SW_STORE_CONST,   /* data, bytes: uploaded once */
    SW_STORE_KEPT     /* written by the first steps and kept from run to run */
} sw__storage_kind;

typedef struct sw__storage {
    uint8_t kind;
    uint32_t index;
    const void *data;          /* CONST: valid while the graph lives; elements of `dtype`, to be stored as `stored` */
    uint8_t dtype, stored;     /* type in the graph, type on the device (traits.float_storage); ARENA: the same */
    int64_t elements;          /* CONST, INPUT: how many */
    size_t bytes;              /* rounded up to the traits' alignment */
    size_t offset;             /* ARENA: set by sw__plan_memory */
    int32_t first, last;       /* ARENA: steps between which it must live (inclusive); last = n_steps for outputs */
    int32_t reuse;             /* ARENA: storage whose memory it takes over in place, or -1 */
    uint32_t group;            /* VAR: 1 + the packed group that it is part of; GROUP: 1 + itself; 0: none */
    bool gradient;             /* ARENA: gradients of parameters, packed for the optimiser */
} sw__storage;

/* A tensor in some storage. */
typedef struct sw__ref {
    int32_t storage;
    int64_t offset; /* elements */
    sw__desc desc;
} sw__ref;

typedef enum sw__step_kind {
    SW_STEP_KERNEL,
    SW_STEP_OP,
    SW_STEP_PACK /* an input of a later op as that one wants it: from, to */
} sw__step_kind;

typedef struct sw__step {
    uint8_t kind;
    bool copy;               /* a kernel that only moves data */
    uint16_t op;             /* OP */
    sw__attr attr;           /* OP */
    const char *name;        /* in the schedule's arena */
    sw__kernel *kernel;      /* KERNEL: buffers 0.. are refs 0.. (ref.offset and strides are already in the accesses,
                                so only ref.storage matters for binding) */
    int32_t n_in, n_out;     /* KERNEL: n_in + n_out = kernel->n_buffers, in order; a buffer that is read and written
                                counts as out */
    sw__ref *refs;           /* in then out */
    int32_t workspace;       /* storage, or -1; set by exec when the backend has planned the step */
    double flops, bytes;
    uint32_t origin;         /* after recompute.c: the step that it was before … */
    bool again;              /* … and whether it is that one repeated; its kernel is then the other's */
} sw__step;

typedef struct sw__schedule {
    sw__arena arena;         /* owns steps' names, refs, arrays of refs */
    sw__step *steps;
    uint32_t n_steps;
    size_t cap_steps;
    sw__storage *storages;
    uint32_t n_storages;
    size_t cap_storages;
    bool keeps;              /* keep.c: the first n_once steps are run once, unless a variable is written */
    uint32_t n_once;
    sw__ref *outputs;        /* one for each graph output, dense row-major */
    uint32_t n_outputs;
    size_t arena_bytes;      /* set by sw__plan_memory */
    int n_nodes;
} sw__schedule;

/* The questions: may input i of this op have these strides? */
typedef struct sw__asks {
    void *ctx;
    bool (*op_accepts)(void *ctx, const sw__op_desc *d, int i);
    bool no_fuse;
} sw__asks;

/* Fuses, orders, names: steps and storages, without offsets. Variables are read before they are overwritten: an assign
 * is a store into the variable by the last step that may do it, or a temporary and a copy at the end. PACK and CONCAT
 * get their parts written in place where possible. The graph must outlive the schedule only for CONST data. */
sw_status sw__schedule_build(const sw_graph *g, const sw__traits *t, const sw__asks *a, sw__schedule **out);
void sw__schedule_free(sw__schedule *s);
/* keep.c, for graphs that assign nothing: what depends on variables and constants alone becomes the first n_once steps. */
sw_status sw__schedule_keep(sw__schedule *s);
/* May this input of an op be packed: is it the same in every run? */
bool sw__schedule_fixed(const sw__schedule *s, uint32_t step, int input);
/* Adds a step that packs it, at *at: what stood there and behind moves up by one. */
sw_status sw__schedule_pack(sw__schedule *s, uint32_t step, int input, size_t bytes, const sw__traits *t, uint32_t *at);
/* Adds a workspace of so many bytes to step i. */
sw_status sw__schedule_workspace(sw__schedule *s, uint32_t step, size_t bytes, const sw__traits *t);
/* Lifetimes, in-place reuse, offsets, arena_bytes. Best-fit over lifetimes, largest first; deterministic. */
sw_status sw__plan_memory(sw__schedule *s, const sw__traits *t);
/* recompute.c: repeats steps until the arena takes at most `goal` bytes; after sw__plan_memory, which is done again. Where
 * that cannot be, the schedule is the smallest that was found. Every step then says in `origin` which one of the old
 * schedule it is. */
typedef struct sw__recomputed {
    bool fits;
    uint32_t steps, dear; /* repeated; products and convolutions among them */
    double flops, bytes;  /* of the repeated steps */
    double slower;        /* their estimated share of the time of a run without */
} sw__recomputed;
sw_status sw__recompute_until(sw__schedule *s, const sw__traits *t, size_t goal, sw__recomputed *out);
void sw__schedule_print(const sw__schedule *s, sw__text *out);
/* To stderr, if SWOOP_DUMP has "schedule" or "plan"; with "fuse" the kernels' code as well. */
void sw__dump_schedule(const sw__schedule *s);

#endif
