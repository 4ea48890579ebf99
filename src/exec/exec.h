/* exec.h: the structures behind the handles of swoop/device.h: device, variables, program.
 * Shared by the files of exec/; train/ uses the public functions. */
#ifndef SW_EXEC_EXEC_H
#define SW_EXEC_EXEC_H

#include "backend/backend.h"
#include "pass/pass.h"
#include "swoop/device.h"
#include <stdatomic.h>

struct sw_device {
    atomic_int users;  /* the handle, and everything that was made on it and lives */
    const sw__backend *backend;
    void *dev;
    const sw__traits *traits;
    sw_device_properties info;
    bool tf32;         /* products and convolutions round their inputs to TF32 */
    bool full;         /* the last program that was compiled found no room */
    sw_device_peak peak; /* once measured: flops > 0 */
    bool looping;    /* a program ran more than once: from now on nothing is measured when others are compiled */
};

/* Whoever keeps a device counts as a user of it, and gives it back by sw_device_close. */
sw_device *sw__device_use(sw_device *d);

#define SW__VAR_KINDS 3

/* Where a variable lives: buffer of its kind, byte offset. */
typedef struct sw__var_slot {
    sw_var_info info;  /* name and shape; the name is owned by the store's arena */
    sw_dtype stored;   /* type on the device */
    size_t offset;
} sw__var_slot;

struct sw_params {
    sw_device *device;
    sw__arena arena;
    sw__var_slot *slots;
    sw__names names;             /* of slots */
    uint32_t n;
    size_t bytes[SW__VAR_KINDS];
    void *buffer[SW__VAR_KINDS];
    uint64_t writes;   /* grows with every write to a variable, from 1: what was made of variables may be out of date */
};

/* Names, offsets and bytes of a graph's variables on a device with such traits; allocates no device memory. */
sw_status sw__params_layout(const sw_graph *g, const sw__traits *t, sw_params *p);
void sw__params_layout_free(sw_params *p);
/* Finds the graph's variable in the store and checks that it is the same one. */
sw_status sw__params_match(const sw_params *p, const sw__var *v, uint32_t *slot);
/* The values of those variables that both have, by name; they may be on different devices. */
sw_status sw__params_copy(sw_params *from, sw_params *to);
/* Byte offset of a packed group, if the store lays its variables as the group says. */
sw_status sw__params_group(const sw_params *p, const sw_graph *g, uint32_t group, sw__bind *out);
/* share.c: the program's arena, large enough; an arena of its own, or that of `with`. */
sw_status sw__arena_open(sw_program *p, const sw_program *with);
void sw__arena_close(sw_program *p);
sw_status sw__arena_rebind(sw_program *p); /* before a run */
/* budget.c: what the launches are in all: counts, arithmetic, traffic. */
void sw__plan_count(sw_program *p, const sw__schedule *s);
/* Where the plan is fullest, and what takes the room there. */
sw_status sw__plan_peak(const sw__schedule *s, sw_plan *plan);
/* Recomputes until the plan's total is at most `budget` (0: no limit); launches and plan follow. SW_ERR_MEMORY if that cannot
 * be: the plan is then the smallest that was found. After the plan was filled. */
sw_status sw__plan_within(sw_program *p, sw__schedule *s, const sw__traits *t, uint64_t budget);
sw_dtype sw__stored_type(const sw__traits *t, sw_dtype declared);

/* Converts while copying between host memory and a device buffer. staging: scratch for backends without host pointers,
 * at least n elements of the stored type. */
sw_status sw__write_elements(sw_device *d, void *buffer, size_t offset, sw_dtype stored, const void *src, sw_dtype type,
                             size_t n, void *staging);
/* The same into an input's slot, which may be on its way while earlier runs are at work. */
sw_status sw__write_input(sw_device *d, const sw__bind *slot, sw_dtype stored, const void *src, sw_dtype type, size_t n,
                          void *staging);
sw_status sw__read_elements(sw_device *d, const void *buffer, size_t offset, sw_dtype stored, void *dst, sw_dtype type,
                            size_t n, void *staging);

/* An input slot or an output of a program. */
typedef struct sw__io_slot {
    sw_var_info info; /* declared type */
    sw_dtype stored;
    sw__bind bind;
    int64_t sets;     /* profile: how often an input was set, and seconds for that, the transfer included */
    double seconds, least;
} sw__io_slot;

/* One launch: what the backend made of a step, bound to memory. */
typedef struct sw__launch {
    void *built;       /* kernel or op plan */
    sw__bind *bind;
    uint32_t n_bind;
    const char *name;
    const char *kind;  /* "kernel", "copy", or the op's name */
    bool is_op;
    bool shared;       /* what was built belongs to another launch */
    int packs;         /* > 0: packs input packs - 1 of the op instead of running it */
    double flops, bytes;
    double seconds, least; /* profile: sum and minimum over the runs */
} sw__launch;

#define SW__TRACE_RUNS 20
#define SW__RUNS_AHEAD 32 /* runs that may be in the device's queue, unless results are read */

/* With SWOOP_POISON=1: a piece of the arena that nobody may read after this launch. The double of a GPU takes the fill with
 * 0xFF for its death (FAKECUDA_POISON). */
typedef struct sw__dead { uint32_t launch; size_t offset, bytes; } sw__dead;

/* An arena that programs share (sw_compile_options.shares). It grows with the greatest; who was bound to another buffer
 * is bound anew before it runs. */
typedef struct sw__shared {
    int users;
    void *buffer;
    size_t bytes;
    uint64_t times; /* that it was allocated */
} sw__shared;

struct sw_program {
    sw_device *device;
    sw__shared *shared;          /* whose buffer is arena_buffer, as of … */
    uint64_t bound_at;           /* … its times */
    sw_params *params;
    bool owns_params, profile;
    bool ready;                  /* its kernels are built */
    sw__arena arena;             /* names, binds */
    sw__launch *launches;
    uint32_t n_launches;
    uint32_t n_once;             /* the first launches, which depend on variables alone: run when those were written … */
    uint64_t once_at;            /* … since params->writes was this; 0: not yet */
    bool assigns;                /* runs write variables */
    void *inputs_buffer, *consts_buffer, *kept_buffer, *arena_buffer;
    sw__dead *dead;              /* by launch; NULL: not asked for */
    uint32_t n_dead;
    sw__io_slot *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    void *staging;
    size_t staging_bytes;
    sw_plan plan;
    int64_t runs;
    double run_seconds;          /* profile: of all runs, launching and waiting included */
    bool not_recorded;           /* nothing could be recorded: runs are launched kernel by kernel */
    void *recording;             /* all launches as one, from the second run on, where the backend can */
    double *set_trace;           /* profile: start and duration of the last SW__TRACE_RUNS sets of each input */
    double *trace;               /* profile: start and duration of each launch of the last SW__TRACE_RUNS runs */
};

#endif
