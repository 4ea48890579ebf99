/* emit.h: the kernel IR (kir.h) as text in the dialect of target.h. One emitter for OpenCL and CUDA, four skeletons.
 * Between kir.h and backend/gpu/, which builds and launches what is written here. */
#ifndef SW_KERNEL_EMIT_H
#define SW_KERNEL_EMIT_H

#include "kernel/kir.h"
#include "kernel/target.h"

/* One launch. Parameters of its entry, in this order: BUF(b0) … BUF(b{n_buffers-1}), BUF(ws) if workspace > 0,
 * ERRORS if checks. */
typedef struct sw__stage {
    char entry[96];
    uint32_t groups[3], local[3]; /* groups of work-items, and work-items of a group; each >= 1 */
} sw__stage;

typedef struct sw__emitted {
    sw__text text;      /* the stages' functions, without prelude: sw__text_free */
    int n_stages;       /* 0: nothing to do (an empty domain) */
    sw__stage stage[2]; /* run in this order */
    size_t workspace;   /* bytes at bind[n_buffers] */
    bool checks;        /* may report a bad index (GATHER) */
} sw__emitted;

/* Names in the text begin with `entry`, which is unique in its program ("sw_k12").
 * SW_ERR_UNSUPPORTED if the target lacks what the kernel needs (double). Equal kernels give equal texts. */
sw_status sw__emit(const sw__kernel *k, const sw__target *t, const char *entry, sw__emitted *out);

#endif
