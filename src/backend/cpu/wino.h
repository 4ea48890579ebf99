/* wino.h: 3x3 convolutions with stride 1 in Winograd's form F(4x4, 3x3): a quarter of the multiplications.
 * Between op_conv.c and wino.c (blocking), wino_simd.c (transforms); the products are gemm_simd.c's tiles.
 *
 * Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015. A tile of 6x6 pixels of an image, 4 apart,
 * becomes 36 numbers (its values at 6x6 points as a polynomial), and so does a 3x3 kernel; at each point a convolution
 * is a product of matrices [tiles, channels in] [channels in, channels out], and 36 results become 4x4 pixels. Backward
 * is the same with the transforms transposed. The points 0, +-5/8, +-3/2, infinity lose about one bit beside plain sums
 * (docs/decisions/120-winograd.md); 0, +-1, +-2, infinity of the paper lose three. */
#ifndef SW_BACKEND_CPU_WINO_H
#define SW_BACKEND_CPU_WINO_H

#include "backend/cpu/conv.h"
#include "backend/cpu/simd.h"

#define SW_WINO_OUT 4 /* pixels of a result's tile, each way */
#define SW_WINO_IN 6  /* and of its source's */
#define SW_WINO_POINTS 36

/* Images channels last. FORWARD and GRAD_X: `from` [n, from_h, from_w, k] -> `to` [n, to_h, to_w, m].
 * GRAD_W: `from` is x, of k channels, `to` is dy, of m. Weights O, C, 3, 3, dense. */
typedef struct sw__wino {
    sw__dnn_direction direction;
    sw__simd level;
    int threads;
    bool relu;
    bool half; /* all tensors are bf16; what is computed in between is f32 all the same */
    int64_t n, k, m, from_h, from_w, to_h, to_w, pad_h, pad_w;
    /* what sw__wino_plan makes of that */
    int64_t rows, cols, tiles; /* tiles of an image, and of all */
    int64_t block;             /* tiles that are transformed at a time */
    int64_t width, panels;     /* channels out that a product works on at a time, and how often */
    bool by_tiles;             /* threads share the tiles and not the channels out */
    bool once;                 /* GRAD_W: all tiles in one block */
    int64_t ld_v, ld_m;        /* row strides of what is made of `from` and `to` */
    size_t weights, bias_at, private_at, private_size; /* floats; private: of each thread */
    size_t bytes;                                      /* of the workspace */
} sw__wino;

/* Whether c is such a convolution, and large enough to gain. Layouts are the caller's business. */
bool sw__wino_can(const sw__conv *c);
void sw__wino_plan(sw__wino *w, const sw__conv *c, bool half, sw__simd level, int threads);
/* x, weights, y as in sw__conv; bias NULL: none. */
void sw__wino_run(const sw__wino *w, void *x, void *weights, const void *bias, void *y, float *workspace);

/* ---- transforms (wino_simd.c), of vectors of channels ------------------------------------------------------------ */

/* A tile of an image: its first pixel may lie outside, where images are 0. Strides in elements. */
typedef struct sw__wino_tile {
    void *image; /* at its pixel 0, 0 */
    bool half;   /* bf16, not f32 */
    int64_t h, w, row, pixel;
    int64_t y, x;
} sw__wino_tile;

/* 6x6 pixels to 36 points, 4x4 pixels to 36 points (GRAD_W's dy), 36 points to 4x4 pixels; `count` channels from that
 * which image points to. A point's numbers lie `step` after those of the one before. */
SW__SIMD_DECLARE(void, sw__wino_source, (const sw__wino_tile *t, int64_t count, float *to, int64_t step));
SW__SIMD_DECLARE(void, sw__wino_spread, (const sw__wino_tile *t, int64_t count, float *to, int64_t step));
SW__SIMD_DECLARE(void, sw__wino_result,
                 (const sw__wino_tile *t, int64_t count, const float *from, int64_t step, const float *bias,
                  bool relu));
/* `count` times nine vectors to 36 points, each in rows of `ld`; flip: turned by 180 degrees. And the transposed. */
SW__SIMD_DECLARE(void, sw__wino_weights,
                 (const float *from, int64_t count, bool flip, float *to, int64_t step, int64_t ld));
SW__SIMD_DECLARE(void, sw__wino_weight_grads,
                 (const float *from, int64_t step, int64_t ld, int64_t count, float *to, int64_t ld_to));
/* Between bf16 and f32, n numbers: a multiple of 16, as all counts of channels here. */
SW__SIMD_DECLARE(void, sw__wino_widen, (const uint16_t *from, int64_t n, float *to));
SW__SIMD_DECLARE(void, sw__wino_narrow, (const float *from, int64_t n, uint16_t *to));

#endif
