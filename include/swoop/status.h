/* swoop/status.h: how every call of swoop reports failure, and the conventions that the other headers share.
 * First header of the library: everything else includes it.
 *
 * Errors
 *   A function that can fail returns sw_status; SW_OK is 0. On failure sw_error() gives, per thread, one English
 *   sentence that says what was wrong, where (file and byte, node and shapes, line) and what to do. The library never
 *   exits, aborts or prints to stdout. Output parameters are untouched on failure unless a comment says otherwise.
 * Ownership
 *   X_new / X_open / sw_compile give an object that X_free / X_close releases; both accept NULL.
 * Options
 *   Optional arguments are designated initialisers (sw_conv2d(x, 32, .kernel = 3)). A field left out is 0 and means
 *   "the default" that its comment names. Where the default is not 0 and you want zero, write SW_ZERO.
 * Threads
 *   One object is used by one thread at a time; different objects may be used by different threads. */
#ifndef SWOOP_STATUS_H
#define SWOOP_STATUS_H

#include <stddef.h>
#include <stdint.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SW_API __attribute__((visibility("default")))
#else
#define SW_API
#endif

/* An explicit zero for floating-point options whose default is not zero (it is -0.0: equal to 0, yet told apart). */
#define SW_ZERO (-0.0)

typedef enum sw_status {
    SW_OK = 0,
    SW_ERR_ARGUMENT,    /* a call or an option that makes no sense */
    SW_ERR_SHAPE,       /* shapes or data types that do not fit together */
    SW_ERR_MEMORY,      /* host or device memory ran out */
    SW_ERR_IO,          /* the operating system refused a file operation */
    SW_ERR_FORMAT,      /* a file's content is not what it claims to be */
    SW_ERR_DATA,        /* readable data that cannot be trained on: label out of range, empty set, wrong image size */
    SW_ERR_UNSUPPORTED, /* not offered by this device or this build */
    SW_ERR_DEVICE,      /* the device or its library failed */
    SW_ERR_THREAD,      /* a thread could not be started */
    SW_ERR_DIVERGED,    /* a loss or value is NaN or infinite */
    SW_ERR_INTERRUPTED, /* stopped on request (sw_trainer_stop, Ctrl-C), state saved */
    SW_STATUS_COUNT
} sw_status;

/* "out of memory" for SW_ERR_MEMORY, and so on; never NULL. */
SW_API const char *sw_status_name(sw_status s);

/* The message of this thread's last failed call; "" if none failed yet. Valid until this thread's next failure. */
SW_API const char *sw_error(void);

/* "0.1.0": the version of the library that is running. */
SW_API const char *sw_version(void);

/* Data types of tensors. The order is part of the ABI. bool is one byte, 0 or 1. */
typedef enum sw_dtype {
    SW_F32 = 0,
    SW_F64,
    SW_F16,
    SW_BF16,
    SW_I32,
    SW_I64,
    SW_U8,
    SW_BOOL,
    SW_U32, /* random bits; arithmetic wraps */
    SW_DTYPE_COUNT
} sw_dtype;

SW_API size_t sw_dtype_size(sw_dtype t);      /* bytes per element; 0 if t is no data type */
SW_API const char *sw_dtype_name(sw_dtype t); /* "f32"; "?" if t is no data type */

/* The most axes that a tensor can have. */
#define SW_MAX_RANK 8

#ifdef __cplusplus
}
#endif
#endif
