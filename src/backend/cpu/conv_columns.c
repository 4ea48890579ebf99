/* conv_columns.c: a convolution of few pixels as one matrix product: the windows of all pixels are copied side by side, one row
 * a pixel, and multiplied by the weights, which lie the same way (O, spatial, C) before they are packed. Called by op_conv.c. */
#include "backend/cpu/conv.h"

int64_t sw__conv_columns_rows(const sw__conv *c)
{
    return c->n * c->y[0] * c->y[1] * c->y[2];
}

int64_t sw__conv_columns_width(const sw__conv *c)
{
    return c->w[0] * c->w[1] * c->w[2] * c->c;
}

/* Where a kernel's element falls on the image, -1: on its border of zeros. */
static int64_t place(const sw__conv *c, int axis, int64_t out, int64_t k)
{
    const int64_t at = out * c->stride[axis] - c->pad[axis] + k * c->dilation[axis];
    return at < c->x[axis] ? at : -1;
}

/* Of one pixel. */
static float *window(const sw__conv *c, const float *image, const int64_t out[3], float *to)
{
    const size_t bytes = (size_t)c->c * sizeof(float);
    for (int64_t i = 0; i < c->w[0]; i++) {
        const int64_t z = place(c, 0, out[0], i);
        for (int64_t j = 0; j < c->w[1]; j++) {
            const int64_t y = place(c, 1, out[1], j);
            for (int64_t k = 0; k < c->w[2]; k++, to += c->c) {
                const int64_t x = place(c, 2, out[2], k);
                if (z < 0 || y < 0 || x < 0) memset(to, 0, bytes);
                else memcpy(to, image + z * c->xs[2] + y * c->xs[3] + x * c->xs[4], bytes);
            }
        }
    }
    return to;
}

void sw__conv_columns(const sw__conv *c, const float *x, float *to)
{
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t i = 0; i < c->y[0]; i++)
            for (int64_t j = 0; j < c->y[1]; j++)
                for (int64_t k = 0; k < c->y[2]; k++)
                    to = window(c, x + n * c->xs[0], (const int64_t[3]){i, j, k}, to);
}
