/* attention.h: attention on the cpu as its loops see it. Between op_attention.c, which plans, and attention_simd.c
 * (f32), attention_loops.c (f64). Layouts as in graph/attention.c: [B, T, H, D]; the last axis has stride 1. */
#ifndef SW_BACKEND_CPU_ATTENTION_H
#define SW_BACKEND_CPU_ATTENTION_H

#include "backend/cpu/simd.h"

/* Strides of batch, time and head, in elements. */
typedef struct sw__attention_strides { int64_t b, t, h; } sw__attention_strides;

typedef struct sw__attention {
    int64_t batch, rows, keys, heads, groups, d, e; /* groups: heads of k and v; e: features of v */
    double scale;
    bool causal;
    int mask;                                      /* 0: none; 1: bool; 2: added */
    int64_t mask_s[4];                             /* of the mask: batch, head, row, key; 0 where it broadcasts */
    sw__attention_strides q, k, v, y, dy, dq, dk, dv;
    int64_t lse_s[3];                              /* batch, head, row */
} sw__attention;

/* Where the tensors are; those of the gradient are NULL in the forward. In the forward y and lse are written. */
typedef struct sw__attention_data {
    const void *q, *k, *v, *mask, *dy;
    void *y, *lse, *dq, *dk, *dv;
} sw__attention_data;

/* ---- f32, by blocks ---------------------------------------------------------------------------------------------- */

enum { SW__ATTENTION_KEYS = 96 }; /* of a block */

/* Rows of a block: whole vectors and, but for AVX-512, whole tiles. */
static inline int64_t sw__attention_rows(sw__simd level)
{
    return level == SW_SIMD_AVX512 ? 64 : 48;
}

/* One block of rows of one head: block = row / sw__attention_rows. */
SW__SIMD_DECLARE(void, sw__attention_forward,
                 (const sw__attention *a, const sw__attention_data *t, int64_t b, int64_t h, int64_t block,
                  void *work));

/* Which of the gradients a call forms. */
typedef struct sw__attention_part {
    int64_t b, group, head0, head1;  /* heads head0 … head1 - 1, all of the group */
    int64_t row0, row1;              /* rows, row0 a multiple of the block's */
    int64_t key0, key1;              /* keys, key0 a multiple of the block's */
    bool dq, dkv;                    /* dkv: dk and dv of these keys are added to; they start as zeros */
} sw__attention_part;
SW__SIMD_DECLARE(void, sw__attention_backward,
                 (const sw__attention *a, const sw__attention_data *t, const sw__attention_part *p, void *work));

/* ---- f64, row by row --------------------------------------------------------------------------------------------- */

/* work: room for `keys` doubles. The gradient: of one group of one batch, everything; dk, dv start as zeros. */
void sw__attention_row_f64(const sw__attention *a, const sw__attention_data *t, int64_t b, int64_t h, int64_t i,
                           double *work);
void sw__attention_group_f64(const sw__attention *a, const sw__attention_data *t, int64_t b, int64_t group,
                             double *work);

#endif
