/* fold.h: arithmetic on constants, for simplify.c. */
#ifndef SW_PASS_FOLD_H
#define SW_PASS_FOLD_H

#include "graph/graph.h"

typedef struct sw__number { double value; int64_t ivalue; } sw__number;

/* Unary and binary pointwise ops (in[1] is looked at by the latter only); false if it is left to the device. */
bool sw__fold(uint32_t op, sw_dtype type, sw_dtype in_type, const sw__number *in, sw__number *y);

#endif
