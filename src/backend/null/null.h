/* null.h: what tests may ask of the null device beyond the backend's interface.
 * Beside null.c, which is one of the backends under exec/. */
#ifndef SW_BACKEND_NULL_NULL_H
#define SW_BACKEND_NULL_NULL_H

#include "backend/backend.h"

/* Since the process started: wrong handles, uses after release, double releases, accesses outside a buffer, and
 * buffers, kernels and plans that were still there when their device was closed. 0 is the only right answer. */
uint64_t sw__null_faults(void);

#endif
