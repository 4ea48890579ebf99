/* backend.h: what a backend is: one table of functions. Between exec/compile.c, which drives it, and a vendor's library.
 * `plan` makes every choice, `exec` never allocates and never chooses. A NULL function means "not supported", and the
 * generic layer above lowers or reports. Types live in descriptors, never in the names of functions.
 * Buffers are opaque to all but the backend; whoever binds says (buffer, byte offset), never a sub-buffer. */
#ifndef SW_BACKEND_BACKEND_H
#define SW_BACKEND_BACKEND_H

#include "graph/graph.h"
#include "kernel/kir.h"
#include "kernel/traits.h"
#include "swoop/device.h"
#include "swoop/kernel.h"

typedef struct sw__bind { void *buffer; size_t offset; } sw__bind; /* bytes */

/* A user's kernel launched by hand: the arguments of sw_launch, buffers resolved; local and groups are at least 1. */
typedef struct sw__source_arg { uint8_t kind; sw__bind bind; int32_t i32; int64_t i64; float f32; } sw__source_arg;
typedef struct sw__source_launch {
    uint32_t groups[3], local[3];
    const sw__source_arg *arg;
    int n_args;
} sw__source_launch;

/* Names a group of devices that sum together: one of them makes it, the host carries it to the others. */
typedef struct sw__comm_id { char bytes[128]; } sw__comm_id;

typedef struct sw__backend {
    const char *name; /* "cpu" */
    bool tf32;        /* open heeds sw_device_options.tf32; others are not asked for it */
    /* device */
    int (*count)(void);
    const char *(*absent)(void); /* why there is no device and what to install, or NULL; the function may be NULL too */
    sw_status (*open)(int index, const sw_device_options *o, void **dev);
    void (*close)(void *dev);
    sw_status (*properties)(int index, sw_device_properties *p); /* without opening */
    const sw__traits *(*traits)(void *dev);
    /* memory: zero-filled, at least 64-byte aligned */
    sw_status (*alloc)(void *dev, size_t bytes, void **buffer);
    void (*release)(void *dev, void *buffer);
    /* queue, in order. upload and download return when the host memory may be touched again; download and sync tell of a
     * bad index in what ran before */
    sw_status (*upload)(void *dev, void *buffer, size_t offset, const void *src, size_t bytes);
    /* the same of a program's input, on its way while what was launched before still runs. NULL: upload */
    sw_status (*upload_input)(void *dev, void *buffer, size_t offset, const void *src, size_t bytes);
    sw_status (*download)(void *dev, const void *buffer, size_t offset, void *dst, size_t bytes);
    sw_status (*fill)(void *dev, void *buffer, size_t offset, size_t bytes, uint8_t byte);
    sw_status (*sync)(void *dev);
    void *(*host_pointer)(void *buffer); /* NULL where the host cannot address device memory */
    /* the most that the device can do, for sw_device_measure; *out is zero. NULL: nobody measures it */
    sw_status (*peak)(void *dev, sw_device_peak *out);
    /* told of all whole ops of a program, and the arithmetic of each, before the first of them is planned: which way to do
     * them may be found out by trial. measure: now is the time for that, no training is under way. NULL: there is one way.
     * tuned: what trials have measured, for sw_device_tuned; the caller frees it also after a failure */
    sw_status (*tune)(void *dev, const sw__op_desc *d, const double *flops, int n, bool measure);
    sw_status (*tuned)(void *dev, sw_tune_result *out);
    /* kernels of the IR. build: *workspace is what a launch needs at bind[n_buffers] */
    sw_status (*kernel_build)(void *dev, const sw__kernel *k, void **built, size_t *workspace);
    void (*kernel_free)(void *dev, void *built);
    sw_status (*kernel_launch)(void *dev, void *built, const sw__bind *bind);
    /* whole ops. accepts: may input i have the strides that d->in[i] says (false: a dense copy is made; its axes in the
     * order that the op likes). exec: bind = inputs, outputs, workspace */
    bool (*op_accepts)(void *dev, const sw__op_desc *d, int i);
    sw_status (*op_plan)(void *dev, const sw__op_desc *d, void **plan, size_t *workspace);
    void (*op_free)(void *dev, void *plan);
    sw_status (*op_exec)(void *dev, void *plan, const sw__bind *bind);
    /* of an input that d->fixed said to stay as it is: the bytes that it takes packed, 0 where it is read as it lies. It is
     * then packed once, from bind[0] to bind[1], and exec finds at its place what was packed. NULL: nothing is packed */
    size_t (*op_packs)(void *plan, int input);
    sw_status (*op_pack)(void *dev, void *plan, int input, const sw__bind *bind);
    /* what a planned op does inside, for profiles: "brgemm:avx512_core, 1 reorder"; never NULL */
    const char *(*op_note)(void *plan);
    /* whether a planned op on f16 or bf16 computes on f32 copies, since the device has none for the type. NULL: none does */
    bool (*op_on_copies)(void *plan);
    /* kernel_launch or op_exec (the device's own clock: *seconds of work, without what launching costs), waiting for it.
     * NULL: whoever measures takes the host's clock */
    sw_status (*run_timed)(void *dev, bool is_op, void *built, const sw__bind *bind, double *seconds);
    /* makes ready to run what kernel_build and op_plan gave since the last time: compilers like many kernels at once.
     * NULL: they are ready at once. Not called for plans that are never run. What a compiler refuses keeps nothing else
     * from being built, and is told by plan_ready, of what kernel_build or op_plan gave */
    sw_status (*build)(void *dev);
    sw_status (*plan_ready)(void *dev, void *built);
    /* replay: what is launched between begin and end is recorded instead of run, and replay runs all of it with one call;
     * buffers must stay where they are. A step is recorded after it ran once, so that all is there which libraries make
     * at the first use. end comes also after a launch that failed: *recording is then NULL. NULL: nothing is recorded;
     * begin may say SW_ERR_UNSUPPORTED: this device does not, now */
    sw_status (*record_begin)(void *dev);
    sw_status (*record_end)(void *dev, bool failed, void **recording);
    sw_status (*replay)(void *dev, void *recording);
    void (*recording_free)(void *dev, void *recording);
    /* collectives: this device as one of `ranks`, each in a process or thread of its own. comm_open waits until all are there.
     * Programs compiled from then on hand over ALL_REDUCE whole: the sum over all ranks, in the queue; every rank runs the
     * same ones in the same order. With one rank nothing is opened, and it is the value itself. A rank that is gone is told
     * by the calls that wait (SW_ERR_DEVICE); the device then has no communicator until the next comm_open. comm_close waits
     * for what was launched (programs that sum are freed before); close does it too. NULL: the device sums with nobody */
    sw_status (*comm_id)(void *dev, sw__comm_id *out);
    sw_status (*comm_open)(void *dev, const sw__comm_id *id, int rank, int ranks);
    void (*comm_close)(void *dev);
    /* a user's kernels by hand (swoop/kernel.h), ready to launch when built. NULL: the backend takes none */
    sw_status (*source_build)(void *dev, const sw_kernel_source *s, void **built);
    void (*source_free)(void *dev, void *built);
    sw_status (*source_launch)(void *dev, void *built, const sw__source_launch *l);
} sw__backend;

/* Tells the user's function of sw_on_build, if there is one. */
void sw__tell_build(const sw_build_event *e);

/* A GPU that is not there (gpu/gpu_planned.c): plans only. dev is for this table's functions. */
extern const sw__backend sw__backend_planned;
sw_status sw__planned_open(const sw_gpu_model *gpu, bool libraries, void **dev);

/* All backends in order of preference; NULL-terminated. */
extern const sw__backend *const sw__backends[];
const sw__backend *sw__backend_find(const char *name);

#endif
