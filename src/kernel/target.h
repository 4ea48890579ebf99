/* target.h: what emitted and portable kernels may know of the device that they are written for, and the words in which
 * both of them are written. Below kernel/emit.h and backend/gpu/, so that the emitter knows no backend.
 *
 * Text for a GPU is in one dialect, C with these macros, which a short prelude defines for OpenCL C (portable/opencl.k)
 * and CUDA C (portable/cuda.k); what both share is in portable/common.k:
 *   KERNEL(name)                     opens an entry point: KERNEL(sw_x)(BUF(a), BUF(b), i64 n) { … }
 *   SIZED_KERNEL(name, x, y, z)      the same for a group of x * y * z work-items, literals: to be preferred
 *   BUF(a), AT(float, a)             a buffer parameter: pointer and byte offset; and its address as GLOBAL float *
 *   GLOBAL, LOCAL_ARRAY(T, a, n), LOCAL   address spaces: a pointer's, an array of a work-group, a pointer to such
 *   GROUP(d), LANE(d), LANES(d)      number of the group, of the work-item in it, of work-items in a group; d = 0 … 2
 *   ITEM                             GROUP(0) * LANES(0) + LANE(0): the work-item's number along axis 0
 *   BARRIER()                        of a group, local and global memory
 *   i32 u32 i64 u64 u8               integer types. float; double only if target.fp64. Values of f16 and bf16 are floats
 *   LOAD_F16(p, i), STORE_F16(p, i, v), LOAD_BF16, STORE_BF16: p is GLOBAL u16 *, i counts elements
 *   ROUND_F16(v), ROUND_BF16(v): the float as 16 bits hold it
 *   ERRORS, REPORT(value, extent, position)  the last two parameters of an entry that checks indices, and how it tells
 *                                    of a bad one (it must not touch memory there): see backend/gpu/gpu.h
 *   FUNCTION                         opens a helper function
 *   F32(exp)(x), F64(exp)(x)         a function of the language, of float and of double
 *   INDEPENDENT                      before a loop whose turns do not touch each other's memory
 * No other builtin that the two languages do not share. No recursion, no function pointers, no float atomics. */
#ifndef SW_KERNEL_TARGET_H
#define SW_KERNEL_TARGET_H

#include "base/base.h"

typedef enum sw__lang { SW_LANG_OPENCL, SW_LANG_CUDA } sw__lang;

typedef struct sw__target {
    uint8_t lang;        /* sw__lang */
    bool serial;         /* a CPU: the work-items of a group run one after another in a core's vector unit. Barriers and
                            local memory cost dear, a loop in one work-item is cheap. false: a GPU */
    bool fp64;           /* double may be used */
    int max_group;       /* work-items of a group, at most (all dimensions together) */
    int max_local[3];    /* … along each dimension */
    size_t local_bytes;  /* local memory of a group */
    int units;           /* compute units: groups that run at the same time are a small multiple of it */
    int width;           /* work-items that run in step (warp, wave), a hint: 32 if unknown; serial: floats of a vector */
} sw__target;

/* The text of portable/NAME.k ("gemm"), as built into the library; NULL if there is none. */
const char *sw__portable(const char *name);

#endif
