/* fakecl.h: how a test steers libfakecl.so, an OpenCL library that passes every call on to the real one and fails, lies
 * or loses the device when told to. The test opens it (dlopen) and asks for fakecl_control. */
#ifndef FAKECL_H
#define FAKECL_H

#include <stddef.h>

enum { FAKECL_CONTEXT, FAKECL_QUEUE, FAKECL_PROGRAM, FAKECL_KERNEL, FAKECL_BUFFER, FAKECL_EVENT, FAKECL_KINDS };
enum { FAKECL_NAMES = 64 };

typedef struct fakecl {
    /* to be set. From the environment at first: FAKECL_FAIL=clCreateBuffer:3:-4, FAKECL_LOSE=100:-2, FAKECL_UNITS,
     * FAKECL_MAX_GROUP, FAKECL_LOCAL, FAKECL_MEMORY, FAKECL_MAX_ALLOC, FAKECL_NO_FP64, FAKECL_GPU, FAKECL_PLAIN,
     * FAKECL_FAST_ITEMS, FAKECL_NAME_END. FAKECL_LIBRARY is the library that calls are passed on to, instead of libOpenCL.so.1 */
    char fail_name[48];     /* the call that fails; "" none */
    long fail_at;           /* its n-th call from now, the first is 1 */
    int fail_code;
    long lose_at;           /* from this call on, counted over all calls from now, every one fails; 0 never */
    int lose_code;
    size_t units, max_group, local, memory, max_alloc; /* what the device says instead; 0: the truth */
    int plain;              /* neither halves nor images */
    int no_fp64, gpu;       /* gpu: it says that it is one, with memory of its own */
    const char *name_end;   /* stands behind the device's name */
    size_t fast_items;      /* profiled launches took a millisecond, those of groups of so many work-items 1 us; 0: the truth */
    long launch_us;         /* what enqueuing a kernel takes the host longer */
    /* to be read */
    long calls;             /* since the last reset */
    struct { const char *name; long calls; } name[FAKECL_NAMES];
    int failed;             /* calls that were made to fail */
    long live[FAKECL_KINDS];
    long faults;            /* objects released that are not there */
    size_t bytes;           /* of live buffers: above `memory`, creating one fails */
    /* of the order of commands (fakecl_order.h) */
    long races;             /* uses of memory that nothing orders after the last one */
    long unflushed;         /* waits for another queue's command that was never flushed */
    long across;            /* waits of a queue for another one's commands */
    long waits;             /* of the host, for what it did not know to be over; blocking reads and writes not counted */
} fakecl;

typedef fakecl *(*fakecl_control_function)(void);

#endif
