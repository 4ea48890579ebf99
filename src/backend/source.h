/* source.h: what the backends share about a user's kernels: how an op's kernel is launched, and the arguments of a host
 * function. Between graph/custom.h and the backends. */
#ifndef SW_BACKEND_SOURCE_H
#define SW_BACKEND_SOURCE_H

#include "backend/backend.h"
#include "graph/custom.h"

/* tensors (sizes of SW_OP_MAX_IN and SW_OP_MAX_OUT), numbers, n */
#define SW__SOURCE_MAX_TENSORS (2 * SW_OP_MAX_IN + 2 * SW_OP_MAX_OUT)
#define SW__SOURCE_MAX_ARGS (SW__SOURCE_MAX_TENSORS + SW_OP_MAX_NUMBERS + 1)

/* The grid of a CUSTOM or CUSTOM_GRAD op on these tensors, as the user's rule says. */
sw_status sw__source_grid(const sw__op_desc *d, sw_op_grid *out);
/* Arguments of the op's host function, ptr: inputs, outputs. Returns how many. */
int sw__source_op_args(const sw__op_desc *d, const sw_op_grid *grid, void *const *ptr, sw_host_arg *arg);
/* Arguments of a launch by hand. address: where a bound buffer is on the host. */
void sw__source_launch_args(const sw__source_launch *l, void *(*address)(const sw__bind *), sw_host_arg *arg);
/* All work-items of a launch; it was checked that they can be counted. */
int64_t sw__source_items(const sw__source_launch *l);
/* SW_ERR_UNSUPPORTED: the device runs none of the kinds of source that this kernel has; fields: what to fill. */
sw_status sw__source_missing(const char *device, const sw_kernel_source *s, const char *fields);

#endif
