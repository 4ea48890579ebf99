/* dot_bf16.h: products of bf16 summed up in f32, and rows of bf16 made f32 and back, for machines with AVX512_BF16.
 * Between op_recurrent_bf16.c and dot_bf16.c; only where sw__cpu.bf16. */
#ifndef SW_BACKEND_CPU_DOT_BF16_H
#define SW_BACKEND_CPU_DOT_BF16_H

#include <stdbool.h>
#include <stdint.h>

enum { SW__DOT_ROWS = 14, SW__DOT_WIDTH = 32 }; /* of the largest tile */

/* `rows` x `cols` of c (+)= sum over k of a[r * ra + k] * b's (k, j), `pairs` pairs of k: b lies as [pairs][width][2].
 */
typedef struct sw__dot_tile {
    const uint16_t *a, *b;
    float *c;
    const float *bias; /* cols of them; NULL: 0 */
    int64_t ra, rc, pairs;
    int rows, cols;
    bool add; /* to what is in c already, instead of bias */
} sw__dot_tile;

void sw__dot_tile_run(const sw__dot_tile *t);
/* to[j][2] = from[j], next[j]: two neighbouring k for n columns; next NULL: zeros. */
void sw__dot_interleave(const uint16_t *from, const uint16_t *next, int64_t n, uint16_t *to);
/* Rounds to nearest even; numbers below 2^-126 become 0. */
void sw__dot_narrow(uint16_t *to, const float *from, int64_t n);
void sw__dot_widen(float *to, const uint16_t *from, int64_t n);

#endif
