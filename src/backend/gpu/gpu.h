/* gpu.h: what the OpenCL and CUDA backends share: how kernels are asked for, built together, cached and launched, and
 * how whole ops are planned as lists of launches. A backend provides a driver (below); everything above it is here.
 *
 *   exec/compile.c ── kernel_build ──→ gpu_kernel.c ── sw__emit ──┐
 *                  └─ op_plan ───────→ gpu_op.c → ops/…  ────────┴→ sw__gpu_want …  (texts are collected)
 *                  └─ build ─────────→ gpu_build.c: one program of all that was asked for, from the cache or compiled
 *                  └─ launch, exec → gpu_launch.c: a plan's launches, arguments resolved, into the driver's queue */
#ifndef SW_BACKEND_GPU_GPU_H
#define SW_BACKEND_GPU_GPU_H

#include "backend/backend.h"
#include "kernel/emit.h"
#include "kernel/target.h"

/* ---- the driver: what a vendor's API is reduced to ----------------------------------------------------------------- */

/* A resolved argument: bytes as the kernel's parameter wants them; buffer: a device buffer handle of the driver. */
typedef struct sw__gpu_value {
    void *buffer;    /* not NULL: pass the buffer's pointer */
    uint32_t size;   /* otherwise: bytes of `raw`, 4 or 8 */
    union { int32_t i32; int64_t i64; float f32; } raw;
} sw__gpu_value;

typedef struct sw__gpu_plan sw__gpu_plan;
typedef struct sw__gpu_driver {
    /* Compiles a whole program (prelude included). On failure the compiler's log is the error message. */
    sw_status (*compile)(void *dev, const char *text, void **module);
    /* The module's binary (sw__free), and a module from one. SW_ERR_UNSUPPORTED: the driver has none. */
    sw_status (*binary)(void *dev, void *module, void **bytes, size_t *n);
    sw_status (*load)(void *dev, const void *bytes, size_t n, void **module);
    void (*unload)(void *dev, void *module);
    sw_status (*kernel)(void *dev, void *module, const char *entry, void **kernel);
    void (*kernel_free)(void *dev, void *kernel);
    sw_status (*launch)(void *dev, void *kernel, const uint32_t groups[3], const uint32_t local[3],
                        const sw__gpu_value *args, int n_args);
    /* memory as in backend.h */
    sw_status (*alloc)(void *dev, size_t bytes, void **buffer);
    void (*release)(void *dev, void *buffer);
    sw_status (*download)(void *dev, const void *buffer, size_t offset, void *dst, size_t bytes);
    sw_status (*fill)(void *dev, void *buffer, size_t offset, size_t bytes, uint8_t byte);
    sw_status (*finish)(void *dev); /* waits for all that was launched */
    /* Plans an op by a vendor's library: adds its calls (sw__gpu_add_call), sets workspace and note. Where it fails with
     * SW_ERR_UNSUPPORTED, which takes back nothing, the op is planned on our kernels. NULL: there is no library. */
    sw_status (*library)(void *dev, sw__gpu_plan *p);
    bool (*library_has)(uint16_t op); /* whether it is worth asking; NULL: always */
    /* A library that is asked only for ops for which it was found faster (tune.h): what it is called, NULL where it is not
     * installed; and what its first call for this op costs a process, once. NULL: the library is asked for every op. */
    const char *(*library_name)(void *dev);
    sw_status (*library_start)(void *dev, const sw__op_desc *d, double *seconds);
    /* A library that is asked for every op and has several algorithms for this one, of which a trial may choose
     * (sw__gpu_plan.ways): writes name, version and whatever else their order depends on; false: there is none. NULL: none
     * for any op. */
    bool (*library_label)(void *dev, const sw__op_desc *d, char *out, size_t size);
    /* For trials: from here on work adds its time on the device to *seconds; NULL: no more, and all of it is done. NULL:
     * whoever measures takes the host's clock. */
    sw_status (*timer)(void *dev, double *seconds);
} sw__gpu_driver;

/* ---- device -------------------------------------------------------------------------------------------------------- */

typedef struct sw__gpu_kernel sw__gpu_kernel;
typedef struct sw__gpu {
    const sw__gpu_driver *driver;
    void *dev;                 /* the driver's */
    const char *backend;       /* "opencl", for messages */
    const char *name;          /* the device's, for messages too */
    char key[256];             /* device and driver version: what a binary depends on */
    sw__target target;
    sw__traits traits;
    sw__gpu_kernel *kernels;   /* all that live; gpu_build.c */
    sw__gpu_plan *plans;       /* all that live; gpu_launch.c */
    uint32_t n_numbers;        /* REPORT numbers given out */
    void *errors;              /* device buffer of SW_GPU_ERROR_WORDS i64 */
    bool checked;              /* something that may report ran since the last look */
    char *read_from, *write_to; /* folders of kernels, or NULL; gpu_folder.c */
    uint64_t compiled, cached; /* programs compiled, and loaded from the cache: for logs and tests */
    uint64_t refused;          /* ops that the vendor's library did not take */
    struct sw__gpu_tuning *tuning; /* which variants of its ops are the fastest; tune.h. NULL: a device for plans */
} sw__gpu;

/* target, key, driver, dev, backend, name are filled in by the caller. */
sw_status sw__gpu_init(sw__gpu *g, const sw_device_options *o);
void sw__gpu_close(sw__gpu *g);
/* The key with the user's options of the compiler in it: what they make is not what the compiler makes without them. */
void sw__gpu_key_options(sw__gpu *g, const char *options);
void sw__gpu_set_traits(sw__gpu *g); /* done by init; by itself for a device that is only planned for */

/* ---- kernels ------------------------------------------------------------------------------------------------------- */

/* Asks for the entry point of a text; wanted_by is for messages ("matmul 'fc1'"). A text that was asked for before is
 * the same kernel. It can be launched after the next sw__gpu_build. Given back by sw__gpu_unwant. */
sw_status sw__gpu_want(sw__gpu *g, const char *wanted_by, const char *text, const char *entry, sw__gpu_kernel **out);
void sw__gpu_unwant(sw__gpu *g, sw__gpu_kernel *k);
/* The same for a text that is compiled in a program of its own, since nobody knows what it defines; plain: it is no text
 * of the dialect, so the prelude does not come before it. */
sw_status sw__gpu_want_alone(sw__gpu *g, const char *wanted_by, const char *text, const char *entry, bool plain,
                             sw__gpu_kernel **out);
sw_status sw__gpu_build_alone(sw__gpu *g, sw__gpu_kernel *k); /* only this one */
/* Compiles all that was asked for and is not there, in one program. A kernel that the compiler refuses keeps no other from
 * being built: this is then SW_OK, and sw__gpu_kernel_ready tells of it. */
sw_status sw__gpu_build(sw__gpu *g);
sw_status sw__gpu_kernel_ready(const sw__gpu_kernel *k);
void *sw__gpu_kernel_handle(const sw__gpu_kernel *k); /* the driver's; NULL before it is built */
const char *sw__gpu_kernel_entry(const sw__gpu_kernel *k);
uint64_t sw__gpu_kernel_program(const sw__gpu_kernel *k); /* hash of the text of its program; 0 before it is built */

void sw__gpu_index(const sw__gpu *g, sw__text *out);      /* all built kernels as lines of kernels.txt */

/* Into the folder write_to: a program; then index and manifest of all that lives. From the folder read_from: which program
 * holds a kernel, and that program. */
sw_status sw__gpu_folder_write(sw__gpu *g, uint64_t program, const char *text, void *module);
sw_status sw__gpu_folder_describe(sw__gpu *g);
sw_status sw__gpu_folder_find(sw__gpu *g, const char *entry, uint64_t text, uint64_t *program);
sw_status sw__gpu_folder_load(sw__gpu *g, uint64_t program, void **module);

/* An instance of portable/FILE.k: the file with NAME and the given macros defined, e.g. {"TILE_M", 8}; text macros have
 * `text`. The file's entry point is KERNEL(NAME), its functions FN(name); NAME comes from file and macros, so equal
 * instances are one kernel. alone: in a program of its own. */
typedef struct sw__gpu_macro { const char *name; int64_t value; const char *text; } sw__gpu_macro;
sw_status sw__gpu_want_portable(sw__gpu *g, const char *wanted_by, const char *file, const sw__gpu_macro *macros, int n,
                                bool alone, sw__gpu_kernel **out);

/* ---- launches ------------------------------------------------------------------------------------------------------ */

typedef enum sw__gpu_arg_kind {
    SW_GPU_BUFFER, /* bind[i] of the plan (inputs, outputs, workspace): BUF(…), two parameters; `at` more bytes */
    SW_GPU_I32, SW_GPU_I64, /* a number */
    SW_GPU_ERRORS  /* ERRORS, two parameters: the kernel may REPORT */
} sw__gpu_arg_kind;
typedef struct sw__gpu_arg { uint8_t kind; int32_t bind; size_t at; int64_t i; } sw__gpu_arg;

/* A call of a vendor's library in place of a kernel (CLBlast, cuBLASLt, cuDNN). exec puts work into the driver's queue:
 * it neither allocates nor chooses nor waits; bind as the plan's: inputs, outputs, workspace. */
typedef struct sw__gpu_call {
    sw_status (*exec)(void *dev, void *data, const sw__bind *bind);
    void (*free)(void *dev, void *data);
    void *data;
} sw__gpu_call;

#define SW_GPU_MAX_ARGS 40
typedef struct sw__gpu_launch {
    sw__gpu_call call;     /* where exec is set; the rest is then unused */
    sw__gpu_kernel *kernel;
    uint32_t groups[3], local[3];
    int n_args;
    sw__gpu_arg *arg;
} sw__gpu_launch;

#define SW__GPU_MAX_REFS 24 /* a user's op has that many, see swoop/kernel.h */
/* What kernel_build and op_plan make: launches in order. */
struct sw__gpu_plan {
    sw__gpu *gpu;
    sw__gpu_plan *next;              /* of the device's list */
    sw__op_desc d;                   /* of an op; points into this struct */
    sw__desc desc[SW__GPU_MAX_REFS]; /* in, then out */
    sw__attr attr;
    char *name;
    int n_bind;                      /* without workspace: bind[n_bind] is the workspace */
    int n_launches, cap_launches;
    sw__gpu_launch *launch;
    size_t workspace;
    int number;                      /* what its kernels REPORT as; set by sw__gpu_plan_new */
    int variant;                     /* which way to do the op, see tune.h; 0: as the rules in ops/ say */
    int ways;                        /* of a library's plan: algorithms that it offers; 0: nobody may choose */
    char note[112];
};

/* Adds a launch of a kernel that was asked for: the plan owns the kernel from here on, also if this fails. Then its
 * arguments, in the order of the entry's parameters. */
sw_status sw__gpu_add(sw__gpu_plan *p, sw__gpu_kernel *k, uint32_t groups_x, uint32_t groups_y, uint32_t groups_z,
                      uint32_t local_x, uint32_t local_y, uint32_t local_z, const sw__gpu_arg *args, int n_args);
/* Adds a library's call: the plan owns its data from here on, also if this fails. */
sw_status sw__gpu_add_call(sw__gpu_plan *p, sw__gpu_call call);
#define SW_GPU_BIND(I) { .kind = SW_GPU_BUFFER, .bind = (I) }
#define SW_GPU_INT(V) { .kind = SW_GPU_I64, .i = (V) }

/* The first bad index of a run, as REPORT leaves it in `errors`. */
enum { SW_GPU_ERROR_SET, SW_GPU_ERROR_NUMBER, SW_GPU_ERROR_VALUE, SW_GPU_ERROR_EXTENT, SW_GPU_ERROR_AT,
       SW_GPU_ERROR_WORDS };

/* ---- backend.h's functions, for any driver -------------------------------------------------------------------------- */

sw_status sw__gpu_kernel_build(sw__gpu *g, const sw__kernel *k, void **built, size_t *workspace);
bool sw__gpu_op_accepts(sw__gpu *g, const sw__op_desc *d, int i);
sw_status sw__gpu_op_plan(sw__gpu *g, const sw__op_desc *d, void **plan, size_t *workspace);
sw_status sw__gpu_plan_new(sw__gpu *g, const char *name, sw__gpu_plan **out);
void sw__gpu_plan_free(sw__gpu_plan *p);
sw_status sw__gpu_plan_ready(const sw__gpu_plan *p); /* SW_OK, or why one of its kernels cannot be launched */
sw_status sw__gpu_plan_run(sw__gpu_plan *p, const sw__bind *bind);
/* Waits, and tells of a bad index: SW_ERR_DATA. */
sw_status sw__gpu_sync(sw__gpu *g);

/* A user's kernels (swoop/kernel.h): the text for this device, and launches by hand; gpu_source.c */
sw_status sw__gpu_want_source(sw__gpu *g, const char *wanted_by, const sw_kernel_source *s, sw__gpu_kernel **out);
sw_status sw__gpu_source_build(sw__gpu *g, const sw_kernel_source *s, void **built);
void sw__gpu_source_free(sw__gpu *g, void *built);
sw_status sw__gpu_source_launch(sw__gpu *g, void *built, const sw__source_launch *l);

/* A vendor's library that plans for GPUs that are not there (gpu_planned.c). NULL ends the list; registry.c. */
typedef struct sw__planned_library {
    const char *name;
    bool (*takes)(const sw_gpu_model *m);
    sw_status (*open)(const sw_gpu_model *m, void **library); /* SW_ERR_UNSUPPORTED: says what is missing */
    sw_status (*plan)(void *library, sw__gpu_plan *p);        /* as sw__gpu_driver.library */
    void (*close)(void *library);
} sw__planned_library;
extern const sw__planned_library *const sw__planned_libraries[];

/* ---- ops taken whole (ops/) ----------------------------------------------------------------------------------------- */

/* plan: adds launches, sets workspace and note. accepts: NULL: any strides. Dtypes: every one that infer lets through.
 * variants: how many ways there are on this device to do the op, plan's `variant` says which; NULL: one. */
typedef struct sw__gpu_op {
    bool (*accepts)(const sw__gpu *g, const sw__op_desc *d, int i);
    sw_status (*plan)(sw__gpu_plan *p);
    int (*variants)(const sw__gpu *g, const sw__op_desc *d);
} sw__gpu_op;
extern const sw__gpu_op sw__gpu_ops[SW_OP_COUNT]; /* gpu_op.c */

int sw__gpu_matmul_variants(const sw__gpu *g, const sw__op_desc *d);
int sw__gpu_conv_variants(const sw__gpu *g, const sw__op_desc *d);
sw_status sw__gpu_matmul_plan(sw__gpu_plan *p);
sw_status sw__gpu_conv_plan(sw__gpu_plan *p);
sw_status sw__gpu_pool_plan(sw__gpu_plan *p);
sw_status sw__gpu_argreduce_plan(sw__gpu_plan *p);
sw_status sw__gpu_scan_plan(sw__gpu_plan *p);
sw_status sw__gpu_sort_plan(sw__gpu_plan *p);
sw_status sw__gpu_scatter_plan(sw__gpu_plan *p);
sw_status sw__gpu_embedding_grad_plan(sw__gpu_plan *p);
sw_status sw__gpu_recurrent_plan(sw__gpu_plan *p);
sw_status sw__gpu_ctc_plan(sw__gpu_plan *p);
sw_status sw__gpu_attention_plan(sw__gpu_plan *p);
sw_status sw__gpu_custom_plan(sw__gpu_plan *p);

#endif
