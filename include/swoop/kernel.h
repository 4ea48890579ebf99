/* swoop/kernel.h: your own kernels: by hand on device memory, or as ops of a graph, with a gradient. Above graph.h
 * and device.h. A guide with examples: docs/own-kernels.md; programs: examples/add_kernel.c, custom_op.c.
 *
 * A kernel is one computation written once for each kind of device that is to run it:
 *   portable  text in swoop's dialect, C with a few macros, which OpenCL and CUDA devices compile alike
 *   opencl    text in plain OpenCL C 1.2, taken by OpenCL devices before `portable`
 *   cuda      text in plain CUDA C (what NVRTC takes, no headers), taken by CUDA devices before `portable`
 *   host      a C function, which the devices cpu and ref call
 * A device for which there is none of them refuses the kernel and says which field it misses.
 *
 * The dialect, in short (all of it: src/kernel/target.h):
 *   KERNEL(add)(BUF(a), BUF(b), BUF(sum), i64 n)
 *   {
 *       const i64 i = ITEM;
 *       if (i < n) AT(float, sum)[i] = AT(float, a)[i] + AT(float, b)[i];
 *   }
 * KERNEL(name) opens the entry point; BUF(x) is a buffer parameter and AT(T, x) its address as a pointer to T; ITEM
 * is the number of the work-item along axis 0; i32, i64, u8, float are types.
 *
 * Parameters. Every buffer is two of them, a pointer to bytes and a byte offset to be added to it: BUF(x) in the
 * dialect, `__global char *x, long x_at` in OpenCL C, `char *x, long long x_at` in CUDA C. Numbers are one: i32, i64
 * or f32. */
#ifndef SWOOP_KERNEL_H
#define SWOOP_KERNEL_H

#include "swoop/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the source of a kernel -------------------------------------------------------------------------------------- */

/* What a host function is given: the arguments in the order of the kernel's parameters (a buffer is one argument
 * here: `data` is its address with the offset added), and which work-items it is to do: begin <= i < end, numbered
 * with axis 0 fastest. As on a GPU, the work-items of a launch run at the same time: the cpu calls the function from
 * several threads, each with a range of its own. */
typedef union sw_host_arg {
    void *data;
    int32_t i32;
    int64_t i64;
    float f32;
} sw_host_arg;
typedef struct sw_host_call {
    const sw_host_arg *arg;
    int n_args;
    int64_t begin, end;
} sw_host_call;
typedef void sw_host_function(const sw_host_call *c);

typedef struct sw_kernel_source {
    const char *name; /* of the entry point in the texts; for messages too */
    const char *portable, *opencl, *cuda;
    sw_host_function *host;
} sw_kernel_source;

/* ---- by hand: buffers, launches ---------------------------------------------------------------------------------- */

typedef struct sw_buffer sw_buffer;
typedef struct sw_kernel sw_kernel;

/* Device memory, zero-filled. */
SW_API sw_status sw_buffer_new(sw_device *d, size_t bytes, sw_buffer **out);
SW_API void sw_buffer_free(sw_buffer *b);
SW_API size_t sw_buffer_bytes(const sw_buffer *b);
/* Copy bytes between host memory and the buffer, from `offset` on. They wait for what was launched before, and return
 * when the host memory may be used again. */
SW_API sw_status sw_buffer_write(sw_buffer *b, size_t offset, const void *src, size_t bytes);
SW_API sw_status sw_buffer_read(const sw_buffer *b, size_t offset, void *dst, size_t bytes);

/* Compiles the kernel for the device; a compiler's complaint is the error, with the lines in question. The source is
 * not needed afterwards (host, a function, is). */
SW_API sw_status sw_kernel_new(sw_device *d, const sw_kernel_source *s, sw_kernel **out);
SW_API void sw_kernel_free(sw_kernel *k);

typedef enum sw_arg_kind { SW_ARG_BUFFER = 1, SW_ARG_I32, SW_ARG_I64, SW_ARG_F32 } sw_arg_kind;
typedef struct sw_arg {
    sw_arg_kind kind;
    sw_buffer *buffer;
    size_t offset; /* bytes */
    int32_t i32;
    int64_t i64;
    float f32;
} sw_arg;
SW_API sw_arg sw_arg_buffer(sw_buffer *b);
SW_API sw_arg sw_arg_buffer_at(sw_buffer *b, size_t offset);
SW_API sw_arg sw_arg_i32(int32_t v);
SW_API sw_arg sw_arg_i64(int64_t v);
SW_API sw_arg sw_arg_f32(float v);

#define SW_LAUNCH_MAX_ARGS 20

/* groups: how many groups along axes 0 to 2, local: work-items of a group along them. Axis 0 must be given; 0 on the
 * others means 1. A group has at most 1,024 work-items, on some devices fewer. */
typedef struct sw_launch {
    uint32_t groups[3], local[3];
    const sw_arg *args; /* in the order of the kernel's parameters */
    int n_args;
} sw_launch;
/* The device may still be at work when this returns; launches and copies happen in order. */
SW_API sw_status sw_kernel_launch(sw_kernel *k, const sw_launch *l);
/* Groups of `local` work-items that cover n of them: n / local, rounded up. 0 if it is no number of groups: n < 1,
 * or too many for one axis. */
SW_API uint32_t sw_groups(int64_t n, uint32_t local);

/* ---- as an op of a graph ----------------------------------------------------------------------------------------- */

#define SW_OP_MAX_IN 6  /* inputs */
#define SW_OP_MAX_OUT 6 /* outputs and saved tensors together */
#define SW_OP_MAX_NUMBERS 8

typedef int32_t sw_op_id; /* of a registered op; 0 is none */

typedef struct sw_shape {
    sw_dtype type;
    int rank;
    int64_t dim[SW_MAX_RANK];
} sw_shape;

/* Sets the shape (rank, dim) of each result: outputs first, then saved tensors; the types are set already. Returns
 * NULL, or a sentence that says why the inputs cannot be taken: "the weight must have one value a channel". */
typedef const char *sw_op_shape_rule(const sw_shape *in, int n_in, sw_shape *out, int n_out);
/* All inputs have one shape, and all results have it too. */
SW_API const char *sw_same_shape(const sw_shape *in, int n_in, sw_shape *out, int n_out);

/* How a kernel is launched. `items` arrives as the default: one work-item for each element of the first tensor that
 * the kernel writes. `number`: what the kernel wants to know of the shapes; they are i64 parameters after the
 * tensors. in and out are the tensors that the kernel reads and writes, in the order of its parameters. */
typedef struct sw_op_grid {
    int64_t items;
    int n_numbers;
    int64_t number[SW_OP_MAX_NUMBERS];
} sw_op_grid;
typedef void sw_op_grid_rule(const sw_shape *in, const sw_shape *out, sw_op_grid *grid);

/* An op. Tensors are dense and row-major. Floats are f32 on every device; ref, which computes all else in double,
 * rounds to f32 what it hands to the host function.
 *
 *   forward's parameters:  inputs, outputs, saved tensors, the grid's numbers, i64 n
 *   backward's parameters: inputs, outputs, saved tensors, gradient of each f32 output, then that of each f32 input
 *                          that is not in `fixed` (to be written), the grid's numbers, i64 n
 * n is the number of work-items that have something to do: on a GPU there are a few more, for which ITEM >= n. Every
 * element of what a kernel writes must be written; what lay there before is not zero. The same inputs have to
 * give the same results: of equal ops one is computed, one that reads variables alone only after one was written. */
typedef struct sw_op_def {
    const char *name;                       /* letters, digits and _, no digit first; not registered yet */
    int n_in, n_out;                        /* at least 1 each */
    int n_saved;                            /* further results of forward, which only backward sees */
    sw_dtype in_type[SW_OP_MAX_IN];         /* SW_F32 (0), SW_I32, SW_I64, SW_U8, SW_BOOL or SW_U32 */
    sw_dtype out_type[SW_OP_MAX_OUT];       /* outputs, then saved; output 0 must be f32 if there is a gradient */
    uint32_t fixed;                         /* bit i: no gradient flows to input i, and backward has none to write */
    sw_op_shape_rule *shape;
    sw_kernel_source forward, backward;     /* entry points without a name: NAME and NAME_grad. backward may be left
                                             * out: sw_grad through the op is then an error */
    sw_op_grid_rule *forward_grid, *backward_grid; /* NULL: the default */
    uint32_t forward_local, backward_local; /* work-items of a group; 0: swoop's choice */
    const sw_shape *check;                  /* shapes of the inputs for sw_op_check; NULL: [3, 5] each */
} sw_op_def;

/* Copies all of it (functions by address), for the rest of the process. With SWOOP_CHECK=1 in the environment an op
 * with backward.host is checked at once, on the cpu: a wrong gradient is this call's error. */
SW_API sw_status sw_op_register(const sw_op_def *def, sw_op_id *out);
/* The op by its name; 0 if there is none. */
SW_API sw_op_id sw_op_find(const char *name);

/* Adds the op to the graph of its inputs; the result is output 0. sw_op_output gives the others. Errors are the
 * graph's, as with any builder. */
SW_API sw_t sw_op_apply(sw_op_id op, const sw_t *in, int n);
SW_API sw_t sw_op_output(sw_t applied, int k);

/* Compares backward with differences of forward on the device (the sum of all outputs, each element with a weight of
 * its own, in double). in: shapes of the inputs, NULL: those of the definition. Values: floats are normal numbers,
 * integers 0 and 1 in turn. SW_ERR_DATA says which input's gradient is wrong, where, what it is and what it should
 * be; elements at which forward is not smooth (relu at 0) are passed over, and if there are no others that is
 * SW_ERR_DATA too. */
SW_API sw_status sw_op_check(sw_op_id op, sw_device *d, const sw_shape *in);

#ifdef __cplusplus
}
#endif
#endif
