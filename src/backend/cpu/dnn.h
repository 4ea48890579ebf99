/* dnn.h: matrix product and convolution by oneDNN, one internal API over its two: 2.6/2.7 (op descriptors) and 3.x
 * (primitive_desc_create). Between cpu/op_*.c and the library.
 *
 * A job is one primitive with everything chosen and made: handles, argument array, and for each operand that the
 * primitive wants in another format than it has in memory, a reorder through the workspace. Running a job sets data
 * handles and executes; it allocates nothing. A job is run by one thread at a time. */
#ifndef SW_BACKEND_CPU_DNN_H
#define SW_BACKEND_CPU_DNN_H

#include "kernel/traits.h"

typedef struct sw__dnn sw__dnn;         /* an engine and a stream */
typedef struct sw__dnn_job sw__dnn_job;

/* simd_level: 0, 1 (AVX2), 2 (AVX-512): oneDNN is held to it if it has not run yet in this process. */
sw_status sw__dnn_open(int simd_level, sw__dnn **out);
void sw__dnn_close(sw__dnn *d);
sw_status sw__dnn_version(char *buf, size_t size); /* "2.6.3", of the library that is running */

/* An operand of f32 or bf16 (all of a job are of one type): as it lies in memory (desc), which of the pointers given to sw__dnn_run is its (slot), and how the
 * primitive takes it: as it lies, in the strides of `want`, or in whatever format it likes best. Where that differs
 * from desc, each run pays for a reorder. */
typedef enum sw__dnn_format {
    SW_DNN_AS_IT_LIES,
    SW_DNN_GIVEN,
    SW_DNN_ANY,
    SW_DNN_PACKED /* ANY, but runs are given it in that format already, by sw__dnn_pack: an input only */
} sw__dnn_format;
typedef struct sw__dnn_operand {
    sw__desc desc, want;
    int slot;
    sw__dnn_format format;
} sw__dnn_operand;

/* c = a b + bias. All of one rank >= 2; batch axes of a or b may be 1 (broadcast). bias: rank 1 of N, NULL if none.
 * SW_ERR_UNSUPPORTED if oneDNN has no implementation for these strides. */
sw_status sw__dnn_matmul(sw__dnn *d, const sw__dnn_operand *a, const sw__dnn_operand *b, const sw__dnn_operand *bias,
                         const sw__dnn_operand *c, sw__dnn_job **out);

typedef enum sw__dnn_direction { SW_DNN_FORWARD, SW_DNN_GRAD_X, SW_DNN_GRAD_W } sw__dnn_direction;

/* x [N, C, …], w [O, C/groups, …], bias [O] or NULL (FORWARD only), y [N, O, …]; for gradients the same tensors are the
 * gradients where they are results. attr: strides, pads, dilation, groups. narrow: pass over implementations called
 * "brg…" if there is one called "jit:…"; they are slow on images few pixels wide. */
sw_status sw__dnn_conv(sw__dnn *d, sw__dnn_direction direction, const sw__attr *attr, bool narrow,
                       const sw__dnn_operand *x, const sw__dnn_operand *w, const sw__dnn_operand *bias,
                       const sw__dnn_operand *y, sw__dnn_job **out);

size_t sw__dnn_workspace(const sw__dnn_job *j); /* bytes, 64-byte aligned */
/* ptr[slot] of each operand. Threads: those of omp_get_max_threads(), the same as when the job was made. */
sw_status sw__dnn_run(sw__dnn_job *j, void *const *ptr, void *workspace);
/* Of a PACKED operand: its bytes in the primitive's format, 0 if that is how it lies; and from the one to the other. */
size_t sw__dnn_packed(const sw__dnn_job *j, int slot);
sw_status sw__dnn_pack(sw__dnn_job *j, int slot, void *from, void *to);
const char *sw__dnn_note(const sw__dnn_job *j); /* "brgemm:avx512_core, 1 reorder" */
void sw__dnn_free(sw__dnn_job *j);

#endif
