/* swoop/device.h: devices, variables on them, programs compiled for them.
 * Flow: sw_device_open -> (graph) -> sw_params_new -> sw_compile -> sw_program_set / run / get, again and again. */
#ifndef SWOOP_DEVICE_H
#define SWOOP_DEVICE_H

#include "swoop/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices --------------------------------------------------------------------------------------------------------- */

typedef struct sw_device sw_device;

typedef struct sw_device_options {
    int threads; /* cpu: 0 means all cores that this process may use (OMP_NUM_THREADS is respected) */
    const char *kernels;       /* GPUs: a folder to take every program of kernels from; nothing is compiled or cached.
                                * SW_ERR_DATA when it lacks one (docs/kernel-folder.md) */
    const char *write_kernels; /* GPUs: a folder to write every program to, as text and binary, with a manifest */
    bool no_tune;              /* GPUs: never measure which kernels are the fastest (docs/tuning.md); SWOOP_NO_TUNE=1 too */
    double tune_seconds;       /* GPUs: how long that may take, in all; 0: 2 s */
    bool tune_all;             /* GPUs: measure every product and convolution of the programs that are compiled, also those
                                * that are known, and a library's (CLBlast), however long it takes: swoop tune */
    bool tf32;                 /* cuda: products and convolutions of f32 round their inputs to TF32 (10 bits of fraction)
                                * for tensor cores, where a library has an engine for it; sums stay f32. Other devices, and
                                * GPUs before compute capability 8.0, refuse: SW_ERR_UNSUPPORTED */
} sw_device_options;

typedef struct sw_device_properties {
    char id[32];       /* "cpu", "cuda:0": what sw_device_open takes */
    char backend[16];  /* "cpu" */
    char type[16];     /* "cpu", "gpu", "accelerator" */
    char vendor[64];   /* "AMD"; "" if unknown */
    char name[128];    /* "Intel(R) Xeon(R) …" */
    char compute[128]; /* "2 cores, AVX-512, oneDNN 2.6.3" */
    char driver[64];   /* "-" where there is none */
    char status[160];  /* "ok", or why it cannot be used */
    uint64_t memory_total, memory_free; /* bytes */
    int compute_units;
    double bandwidth;          /* of its memory, bytes a second */
    double power, power_limit; /* watts, now and at most */
    int clock;                 /* MHz, now */
    int temperature;           /* degrees Celsius */
    int busy;                  /* percent of the last second; all since `bandwidth`: 0 where nobody tells */
    bool usable;
} sw_device_properties;

/* Fills at most max entries, returns how many there are. Real devices first; ref and null, which exist for checking
 * and planning, only if include_virtual. */
SW_API int sw_device_list(sw_device_properties *out, int max, bool include_virtual);
/* Kinds of devices of which there is none here, i = 0, 1, …: why, and what to install; *backend is "cuda" or "opencl".
 * NULL: there are no more. */
SW_API const char *sw_device_missing(int i, const char **backend);

/* id: "auto" (SWOOP_DEVICE if set, else the first usable GPU or accelerator, CUDA before OpenCL, else the cpu), "cpu", "ref",
 * "null", "cuda:0", "opencl:1", or a backend and a part of the device's name or vendor ("opencl:amd"). An unknown id is SW_ERR_ARGUMENT with the ids that
 * exist; options may be NULL. */
SW_API sw_status sw_device_open(const char *id, const sw_device_options *o, sw_device **out);
/* The handle is not to be used any more. What was made on the device (parameters, programs, trainers, buffers, kernels) goes
 * on working; the device itself is closed when the last of it is freed. */
SW_API void sw_device_close(sw_device *d);
SW_API const sw_device_properties *sw_device_info(const sw_device *d);

/* The most that a device can do, measured by loops made for that: what a kernel's share of is told by profiles. */
typedef struct sw_device_peak {
    double flops;     /* operations a second: f32, a multiply-add is two */
    double bandwidth; /* bytes a second, read and written, of a = b + s c over arrays larger than the caches */
    int threads;
    char how[96];     /* "f32 multiply-adds (avx512), triad of 3 x 32 MiB" */
} sw_device_peak;
/* Measured at the first call (cpu: 0.1 to 0.3 s, on the device's threads; the device must not be at work), remembered
 * afterwards. SW_ERR_UNSUPPORTED: this kind of device has no such loops; SW_ERR_MEMORY: no room for the arrays. */
SW_API sw_status sw_device_measure(sw_device *d, sw_device_peak *out);

/* What a trial found for a product or convolution: between swoop's kernels, and the library's where there are any; on CUDA
 * between cuBLASLt's algorithms for a product. */
typedef struct sw_tuned {
    char op[200];                 /* what, and how large: "product f32 64x512x784 kkn bias relu" */
    char chosen[128];             /* what is used from now on: "gemm 8x32", "CLBlast", "cuBLASLt, algorithm 3" */
    double flops;
    double rule, best, library;   /* seconds by the rules, by our fastest kernels, by the library; 0: not measured */
    bool faster;                  /* chosen is not what the rules say */
} sw_tuned;
typedef struct sw_tune_result {
    sw_tuned *ops;
    int n;
    char *table; /* the same as lines for a tuning table (docs/tuning.md); "" where nothing was measured */
} sw_tune_result;
/* What was measured since the device was opened. sw_tune_result_free. */
SW_API sw_status sw_device_tuned(const sw_device *d, sw_tune_result *out);
SW_API void sw_tune_result_free(sw_tune_result *r);

/* A GPU as a catalogue knows it (tools.h); 0 where a figure is not known. */
typedef struct sw_gpu_model {
    char name[64], vendor[16];
    int capability;          /* of NVIDIA's: compute capability times ten, 90; 0: others, planned for as OpenCL devices */
    uint64_t memory;         /* bytes */
    double bandwidth, flops; /* bytes, and f32 operations, a second */
    int compute_units;       /* 0: estimated */
} sw_gpu_model;
/* Opens a GPU that is not in this machine, for plans: sw_plan_graph and sw_plan_launches say what a program would take
 * there, by the choices that are made on the device itself. What would allocate or run fails with SW_ERR_UNSUPPORTED.
 * libraries: ask the vendor's libraries, those that plan without a GPU and are installed (cuDNN: some 10 ms for each
 * convolution of a new shape); else all is planned on swoop's kernels. */
SW_API sw_status sw_device_open_planned(const sw_gpu_model *gpu, bool libraries, sw_device **out);

/* ---- variables ------------------------------------------------------------------------------------------------------- */

typedef struct sw_params sw_params;

/* Allocates and initialises every variable of the graph (see sw_variable): same seed, same values on every device. The
 * value of a variable depends on seed and name only. */
SW_API sw_status sw_params_new(sw_device *d, const sw_graph *g, uint64_t seed, sw_params **out);
SW_API void sw_params_free(sw_params *p);

typedef struct sw_var_info {
    const char *name;
    sw_var_kind kind;
    sw_dtype dtype;
    int rank;
    int64_t shape[SW_MAX_RANK];
    int64_t elements;
} sw_var_info;
SW_API int sw_params_count(const sw_params *p);
SW_API sw_status sw_params_info(const sw_params *p, int i, sw_var_info *out);
SW_API int sw_params_find(const sw_params *p, const char *name); /* -1 if there is none */
/* Copies row-major elements between host memory of `type` and variable i, converting. n: elements, must be its count. */
SW_API sw_status sw_params_get(sw_params *p, int i, sw_dtype type, void *dst, int64_t n);
SW_API sw_status sw_params_set(sw_params *p, int i, sw_dtype type, const void *src, int64_t n);
SW_API uint64_t sw_params_bytes(const sw_params *p); /* device memory they occupy */

/* ---- programs -------------------------------------------------------------------------------------------------------- */

typedef struct sw_program sw_program;

typedef struct sw_compile_options {
    sw_params *params; /* shared variables; NULL: the program makes its own with seed 0 */
    bool profile;      /* time every step (adds two clock reads each) */
    bool no_simplify;  /* the graph as it was recorded: for tests of the passes */
    bool no_fuse;      /* one kernel per op: for tests of the fuser */
    bool no_keep;      /* a graph that assigns nothing: computes in each run also what depends on variables alone, and packs no
                        * weights: less memory (sw_plan.kept), slower. Without it that is done again when a variable was
                        * written since the last run, by sw_params_set or by a program that assigns */
    bool build_later;  /* kernels are built by sw_program_build or the first run, in one go with those of other programs so
                        * compiled: faster where several are made, but what a compiler refuses is told only then */
    uint64_t memory;   /* > 0: the plan's total must be at most so many bytes. Values are computed again instead of kept until
                        * it is (docs/memory.md): slower, the results are the same bits. SW_ERR_MEMORY if that is not enough */
    sw_program *shares; /* takes the arena of that program as its own, enlarged if need be: the two must never be at work at
                         * the same time, and outputs hold only until the other runs */
} sw_compile_options;

/* Compiles the graph's outputs and assigns for the device. The graph may be freed afterwards. o may be NULL. */
SW_API sw_status sw_compile(const sw_graph *g, sw_device *d, const sw_compile_options *o, sw_program **out);
SW_API void sw_program_free(sw_program *p);
/* After .build_later: builds the kernels of this program and of all others of its device that wait. What a compiler refuses
 * in another program is that one's failure, not this one's. */
SW_API sw_status sw_program_build(sw_program *p);

/* A GPU's first compile of a program can take seconds. on_build is told before a compiler is asked for kernels that no cache
 * has, and again with .done, in the thread that compiles. One for the process; set it before devices are opened. */
typedef struct sw_build_event {
    const char *device;  /* its name */
    int kernels;
    bool done, failed;
    bool kept;           /* done: the cache has them now */
    double seconds;      /* done: that it took */
} sw_build_event;
typedef void (*sw_build_fn)(void *context, const sw_build_event *e);
SW_API void sw_on_build(sw_build_fn on_build, void *context); /* NULL: nobody */

/* A tensor of the arena. */
#define SW_PLAN_TENSORS 8
typedef struct sw_plan_tensor {
    char name[64];      /* the launch that makes it: "layer1.0.conv1" */
    const char *kind;   /* "activation" (gradients of activations are, too), "gradients" (of parameters), "workspace" */
    uint64_t bytes;
} sw_plan_tensor;

/* The launch during which most bytes of the arena are in use: activations + gradients + workspace + unused = arena. */
typedef struct sw_plan_peak {
    int launch;         /* from 0 */
    char name[64];
    uint64_t activations, gradients, workspace;
    uint64_t unused;    /* gaps between tensors */
    sw_plan_tensor largest[SW_PLAN_TENSORS]; /* of those, the largest first */
    int n_largest;
} sw_plan_peak;

/* What is computed again so that the plan fits (sw_compile_options.memory); all 0 where nothing is. */
typedef struct sw_plan_again {
    int launches, products; /* repeated launches; products and convolutions among them */
    double flops, traffic;  /* of the repeated launches, part of the plan's */
    double slower;          /* estimated: a run takes 1 + slower times as long as without */
    uint64_t without;       /* the total without (set always) */
} sw_plan_again;

/* Known before anything is allocated for the run, and exact: the program allocates these bytes and no others. */
typedef struct sw_plan {
    uint64_t params, buffers, state;  /* bytes of variables by kind, as laid out on the device */
    uint64_t kept;                    /* made of variables once and kept: folded and packed weights */
    uint64_t inputs, constants, arena; /* arena: activations, gradients, workspace, outputs placed together */
    uint64_t workspace;               /* the largest workspace of one step, part of the arena */
    uint64_t total;
    double flops, traffic;            /* arithmetic operations and bytes moved, one run */
    int nodes, kernels, ops, copies;  /* nodes after the passes; fused kernels, whole ops, copies among the launches */
    int launches;                     /* with those that are run once */
    int packs;                        /* launches that pack weights, run once */
    int emulated;                     /* ops on f16 or bf16 that run on f32 copies, since the device has none for the type */
    sw_plan_peak peak;
    sw_plan_again again;
} sw_plan;
SW_API const sw_plan *sw_program_plan(const sw_program *p);
/* The same without allocating: compiles up to the memory plan. With o->memory and SW_ERR_MEMORY *out is the smallest plan that
 * was found. */
SW_API sw_status sw_plan_graph(const sw_graph *g, sw_device *d, const sw_compile_options *o, sw_plan *out);

/* What one launch of a plan is. Pointers are valid during the call. */
typedef struct sw_plan_launch {
    const char *kind, *name; /* "kernel", "copy" or the op: "conv"; and which node: "layer1.0.conv1" */
    const char *note;        /* how a whole op is done: "gemm 64x64x16 of 256", a library's engine; "" */
    double flops, traffic;   /* arithmetic operations, bytes moved */
    uint64_t workspace;      /* bytes */
} sw_plan_launch;
typedef void (*sw_plan_launch_fn)(void *context, const sw_plan_launch *l);
/* sw_plan_graph, which also tells of each launch in order; each may be NULL. */
SW_API sw_status sw_plan_launches(const sw_graph *g, sw_device *d, const sw_compile_options *o, sw_plan *out,
                                  sw_plan_launch_fn each, void *context);

/* Index of an input or output by name, -1 if there is none. */
SW_API int sw_program_input(const sw_program *p, const char *name);
SW_API int sw_program_output(const sw_program *p, const char *name);
/* Row-major host data of `type`, converted to the slot's type; n elements, must be the slot's count. The value stays
 * until it is set again. */
SW_API sw_status sw_program_set(sw_program *p, int input, sw_dtype type, const void *src, int64_t n);
SW_API sw_status sw_program_get(sw_program *p, int output, sw_dtype type, void *dst, int64_t n);
SW_API sw_status sw_program_output_info(const sw_program *p, int output, sw_var_info *out);
/* One run: all launches in order, then the assigns are visible. After an error the variables may be half updated.
 * A GPU may still be at work when this returns: sw_program_get, sw_params_get and others that read wait for it, and tell
 * of an index out of range in the data (SW_ERR_DATA). */
SW_API sw_status sw_program_run(sw_program *p);

/* Per launch since the program was compiled with .profile, the slowest first: time, share, calls, GFLOP/s, GB/s and the share of
 * the device's measured peak (sw_device_measure, which this calls; left out where there is none); the total; per input that
 * was set what it took until it was on the device; and the time between launches. Operations and bytes are the plan's: a
 * multiply-add is two, a tensor counts once however often it is read. A table of 100 columns, JSON, or Chrome/Perfetto's JSON
 * of the last runs (ui.perfetto.dev).
 * The string is the caller's: sw_string_free. */
typedef enum sw_profile_format { SW_PROFILE_TABLE = 0, SW_PROFILE_JSON, SW_PROFILE_TRACE } sw_profile_format;
SW_API sw_status sw_program_profile(const sw_program *p, sw_profile_format format, char **out);

/* Runs what `t` needs at once on `d` (NULL: the cpu) and copies the result: for tests, teaching and debugging.
 * Variables have their initial values; a value that depends on an input is an error. */
SW_API sw_status sw_eval(sw_t t, sw_device *d, sw_dtype type, void *dst, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
