/* conv.h: a convolution with everything spelled out, and the CPU backend's own ways to compute it.
 * Between op_conv.c and conv_loops.c, wino.c. */
#ifndef SW_BACKEND_CPU_CONV_H
#define SW_BACKEND_CPU_CONV_H

#include "backend/cpu/cpu.h"

/* Always with three spatial axes; missing ones come first and have size 1. Strides in elements. For gradients x, w, y
 * name the gradients where they are results. */
typedef struct sw__conv {
    sw__dnn_direction direction;
    int64_t n, groups, c, o;           /* images; groups; channels in and out of one group */
    int64_t x[3], w[3], y[3];          /* spatial sizes of image, kernel and result */
    int64_t stride[3], pad[3], dilation[3];
    int64_t xs[5], ws[5], ys[5];       /* strides: of [n, channel, spatial…]; weight: of [o, c, spatial…] */
    int64_t bias_stride;
    bool bias, relu;
} sw__conv;

/* Plain loops, any strides, f32 and f64. bias may be NULL. */
void sw__conv_loops(const sw__conv *c, sw_dtype t, void *x, void *w, const void *bias, void *y, int threads);

/* conv_columns.c: one row a pixel of all its window's elements (spatial, then channels), as a matrix of `rows` times `width`
 * floats. The image lies channels last; one group. */
int64_t sw__conv_columns_rows(const sw__conv *c);
int64_t sw__conv_columns_width(const sw__conv *c);
void sw__conv_columns(const sw__conv *c, const float *x, float *to);

#endif
