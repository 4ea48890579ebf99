/* build.h: what builders, gradient rules and lowerings share: checking operands, broadcasting, constants of x's type.
 * Between the public builders (ops_*.c) and sw__node_add. */
#ifndef SW_GRAPH_BUILD_H
#define SW_GRAPH_BUILD_H

#include "graph/graph.h"

#define SW__TEXT_BYTES 192 /* room for one value or shape in a message */

/* Records "conv in 'layer1': …" as the graph's error (the scope is left out if there is none). Returns invalid. */
sw_t sw__op_error(sw_graph *g, sw__op op, sw_status s, const char *fmt, ...) SW_PRINTF(4, 5);
/* True if all n operands are values of one graph; otherwise the error is recorded where there is a graph to record it
 * in and *invalid is what the builder returns. */
bool sw__operands(sw__op op, const sw_t *xs, uint32_t n, sw_t *invalid);
/* "%3 'fc1.weight' f32[512,10]": a value in a message. buf has SW__TEXT_BYTES; returns it. */
char *sw__value_text(const sw_graph *g, uint32_t id, char *buf);
/* "[3,4]"; an unusable rank or dim is shown as it is. */
char *sw__dims_text(int rank, const int64_t *dim, char *buf, size_t size);
/* "reduce_sum in 'layer1'" or, with an id, "reduce_sum %12 in 'layer1'". */
char *sw__op_label(const sw_graph *g, sw__op op, uint32_t id, char *buf, size_t size);

/* Nodes with one operand and no, or one, attribute. */
sw_t sw__unary(sw__op op, sw_t x);
sw_t sw__with_attr(sw__op op, sw_t x, const sw__attr *attr);
/* Broadcasts both sides (NumPy's rules), then adds the node. */
sw_t sw__binary(sw__op op, sw_t a, sw_t b);
/* Expands all of xs to their common shape, in place; false and *invalid if they have none. */
bool sw__broadcast(sw__op op, sw_t *xs, uint32_t n, sw_t *invalid);
/* x with leading axes and size-1 axes repeated up to this shape, which must be a legal target. A constant becomes a
 * constant of that shape: cheaper to recognise, and nothing to repeat. */
sw_t sw__expand_to(sw_t x, int rank, const int64_t *dim);
/* [C] against [N, C, …] of this rank: size 1 on all other axes. */
sw_t sw__per_channel(sw_t v, int rank);
/* A pooling's attribute for x, defaults filled in and ceil_mode turned into padding; false and the error recorded. */
bool sw__pool_attr(sw__op op, sw_t x, const sw_pool_options *o, sw__attr *attr);
/* For MAX_POOL `n` of x: where in the channel's plane the maximum is that the pooling's gradient goes to, i64. */
sw_t sw__max_pool_index(sw_graph *g, const sw__node *n, sw_t x);
/* c everywhere, with x's type and shape. */
sw_t sw__const_like(sw_t x, double c);
/* Axis counted from the end if negative; -1 (and the error recorded) if there is none such. */
int sw__axis_of(sw__op op, sw_t x, int axis);

#endif
