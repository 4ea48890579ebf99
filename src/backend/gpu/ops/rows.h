/* rows.h: what products and convolutions on CPUs share. Between rows.c and rows_conv.c. */
#ifndef SW_BACKEND_GPU_OPS_ROWS_H
#define SW_BACKEND_GPU_OPS_ROWS_H

#include "backend/gpu/ops/big.h"

/* What a work-item keeps in registers: mr rows of nv vectors of w numbers. */
typedef struct sw__lanes { int w, nv, mr; } sw__lanes;
sw__lanes sw__rows_lanes(const sw__target *t, sw_dtype type, int64_t n);

/* What a trial may find better than the rules: see rows.c. 0: as they say. */
typedef struct sw__rows_variant { bool turn, direct, vectors; int8_t mr; int16_t rows; int8_t parts; } sw__rows_variant;
const sw__rows_variant *sw__rows_variant_of(const sw__gpu_plan *p);
void sw__rows_vary(const sw__gpu_plan *p, sw__lanes *l);
void sw__rows_macros(sw__ask *a, sw_dtype type, const sw__lanes *l);
bool sw__rows_plain(sw_dtype type); /* kept in memory as it is computed with */

/* A right side to be packed: columns n; inner index (t0, t1, t2, c); batch of z0 * z1. Strides in elements. */
typedef struct sw__panels {
    sw_dtype type;
    int from;
    int64_t at, n, ns, t[3], ts[3], c, cs, z0, z1, zs[2];
} sw__panels;
int64_t sw__panels_bytes(const sw__panels *k, const sw__lanes *l);
sw_status sw__panels_launch(sw__gpu_plan *p, const sw__panels *k, const sw__lanes *l, int64_t to_at);

/* A launch of gemm_rows.k. Rows and inner index in digits, the last fastest; their strides. */
typedef struct sw__rows {
    sw_dtype type;
    int a, b, c, bias;              /* buffers; bias -1: none */
    bool a_acc;                     /* the left side is kept as accumulators are */
    int64_t a_at, b_at, c_at, bias_at, bias_s, bias_z;
    int64_t bias_n;                 /* after so many columns the bias begins anew; 0: never */
    bool dense;                     /* rows of the result without gaps, one behind the other */
    bool bias_rows, relu, direct;
    int64_t m, n, panel, bk;        /* panel: from one panel of the right side to the next, elements */
    int64_t z0, z1, az[2], bz[2], cz[2];
    int64_t ak, cn, q[4], as[4], cs[4], t[3], ts[3], run;
} sw__rows;
sw_status sw__rows_launch(sw__gpu_plan *p, const sw__rows *r, const sw__lanes *l);

#endif
