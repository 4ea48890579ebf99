/* resample.h: the op RESAMPLE: one axis of a tensor, each element of the result a weighted sum of a few elements that
 * were there. Interpolation and adaptive pooling are made of it. Between ops_resample.c, which makes the tables, and
 * the op. */
#ifndef SW_GRAPH_RESAMPLE_H
#define SW_GRAPH_RESAMPLE_H

#include "graph/graph.h"

/* result[i] = sum over k < width of weight[i*width + k] x[index[i*width + k]], i < to, 0 <= index < from; a weight of 0
 * counts nothing, not even if x is NaN there. */
typedef struct sw__taps {
    int64_t from, to, width;
    int32_t *index;
    double *weight;
} sw__taps;

/* Zeroed tables; false and g's error if there is no memory for them, or the sizes are beyond 32 bits. */
bool sw__taps_new(sw_graph *g, int64_t from, int64_t to, int64_t width, sw__taps *out);
void sw__taps_free(sw__taps *t);

/* x, whose axis has t->from elements, resampled along it. */
sw_t sw__resample(sw_t x, int axis, const sw__taps *t);

#endif
