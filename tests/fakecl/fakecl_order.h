/* fakecl_order.h: which command may run before which, as the waits between queues say: what fakecl.c tells of each call.
 * A command that touches a buffer whose last use nothing orders before it is a race, on any device and however lucky. */
#ifndef FAKECL_ORDER_H
#define FAKECL_ORDER_H

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include "fakecl.h"

typedef struct order_use { cl_mem buffer; int writes; } order_use;
typedef struct order_command {
    cl_command_queue queue;
    cl_bool blocks;
    const void *from;      /* host memory that it reads, or NULL */
    int unmaps;            /* `from` is given back */
    cl_uint n_wait;
    const cl_event *wait;
    const cl_event *event; /* of this command, or NULL */
    cl_kernel kernel;      /* whose arguments it uses, or NULL */
    order_use use[2];      /* buffer NULL: none */
} order_command;

/* All under fakecl.c's lock. */
void order_enqueued(fakecl *f, const order_command *c);
void order_argument(cl_kernel k, cl_uint i, size_t size, const void *value);
void order_flushed(cl_command_queue q);
void order_finished(fakecl *f, cl_command_queue q);
void order_waited(fakecl *f, cl_uint n, const cl_event *events);
void order_forget(const void *object); /* released: another may come to lie at its address */

#endif
