/* tune.h: which variant of a product or convolution is the fastest on a device, or which algorithm of the library that
 * does it: known from an earlier trial (a file in
 * the kernel cache, one per device and driver), from the table that ships (tuned.txt), or found by a short trial when a
 * program is compiled for the first time. Beside gpu_op.c, which plans an op the way that is said here.
 *
 *   exec/compile.c ── tune ──→ gpu_tune.c: which ops of the program nobody knows; the trial of those that matter
 *                              → gpu_choice.c: what is known: looked up, kept, written
 *                  └─ op_plan → gpu_op.c: sw__gpu_variant_of
 *
 * An op keeps on a device what it was first planned with, so that two runs give the same bits; only `swoop tune` measures
 * anew. The manual is docs/tuning.md. */
#ifndef SW_BACKEND_GPU_TUNE_H
#define SW_BACKEND_GPU_TUNE_H

#include "backend/gpu/gpu.h"

enum {
    SW__GPU_LIBRARY = 0x100,   /* added to a variant: the driver's library, and our variant where it refuses */
    SW__GPU_WAY = 0x200,       /* times this is added: the library's algorithm, in its own order; 0: its first */
    SW__GPU_MOST_WAYS = 16,
    SW__GPU_MOST_VARIANTS = 32
};

/* Version of the variants in ops/: to be counted up when their numbers mean something else. What was kept is then void. */
#define SW__GPU_VARIANTS 1

typedef struct sw__gpu_choice {
    char *key;                       /* sw__gpu_op_key */
    uint64_t hash;                   /* of key */
    int variant;
    double rule, best, library;      /* seconds: of variant 0, of our fastest, of the library; 0: not measured */
    double flops;
    bool kept, table;                /* is in the file; comes from the table */
    char note[112];                  /* what the fastest does; only of those measured in this process */
} sw__gpu_choice;

typedef struct sw__gpu_tuning {
    bool never, all;                 /* sw_device_options.no_tune, .tune_all */
    double budget;                   /* .tune_seconds */
    bool loaded, hinted;
    bool library_tried;              /* a trial with the library was made on this device some time */
    sw__gpu_choice *list;
    size_t n, capacity;
    int measured;                    /* ops measured in this process, for tests and the log */
    double seconds;                  /* that trials took */
} sw__gpu_tuning;

/* ---- gpu_choice.c ---------------------------------------------------------------------------------------------------- */

/* An op as trials know it: what, types, sizes, which axis of each tensor is contiguous. False: no memory. Empty: an op
 * without variants. Of one that goes to a library with several algorithms also that library and its version, whose numbers
 * they are. */
bool sw__gpu_op_key(const sw__gpu *g, const sw__op_desc *d, sw__text *out);
/* The device as the table's patterns see it: "opencl cpu w16 u2 Portable Computing Language|…". */
void sw__gpu_device_label(const sw__gpu *g, char *out, size_t size);

/* From the file or the table; NULL: nobody knows. The pointer holds until the next sw__gpu_choose. */
sw__gpu_choice *sw__gpu_find_choice(sw__gpu *g, const char *key);
sw_status sw__gpu_choose(sw__gpu *g, const char *key, const sw__gpu_choice *c);
/* Joins what is new to the file. over: replaces what is there; otherwise the file's word holds, here too. */
void sw__gpu_keep_choices(sw__gpu *g, bool over);
/* One as a line, as in the file and in tuned.txt. */
void sw__gpu_write_choice(const sw__gpu_choice *c, sw__text *out);
/* The variant that an op is planned with. */
int sw__gpu_variant_of(sw__gpu *g, const sw__op_desc *d);
/* Whether the plan's kernels are programs of their own: those that trials choose from are, since they know no shapes: what
 * a trial has compiled is used by the program that follows, and by others. */
bool sw__gpu_kernels_alone(const sw__gpu_plan *p);
void sw__gpu_tuning_free(sw__gpu *g);

/* ---- gpu_tune.c ------------------------------------------------------------------------------------------------------ */

/* backend.h's tune. Fails for want of memory only. */
sw_status sw__gpu_tune(sw__gpu *g, const sw__op_desc *d, const double *flops, int n, bool measure);
/* backend.h's tuned. */
sw_status sw__gpu_tuned(const sw__gpu *g, sw_tune_result *out);
/* Runs a built plan once and waits. */
sw_status sw__gpu_run_timed(sw__gpu_plan *p, const sw__bind *bind, double *seconds);

/* gpu_op.c: the plan of an op done this way; the kernels are asked for, not built. */
sw_status sw__gpu_op_plan_as(sw__gpu *g, const sw__op_desc *d, int variant, sw__gpu_plan **plan);

#endif
