/* desc.h: what backends ask of a tensor's descriptor (kernel/traits.h), and a matrix product as its descriptors say it.
 * Above kernel/, below the backends. */
#ifndef SW_BACKEND_DESC_H
#define SW_BACKEND_DESC_H

#include "kernel/traits.h"

int64_t sw__desc_elements(const sw__desc *d);
/* Without gaps, the last axis fastest; axes of size 1 do not count. */
bool sw__desc_row_major(const sw__desc *d);

/* c[z][m][n] = sum over k of a[z][m][k] b[z][k][n] for each point z of the batch axes. Strides in elements. */
#define SW_MATRICES_FIELDS                                                                                             \
    int rank; /* batch axes */                                                                                         \
    int64_t batch[SW_MAX_RANK], as[SW_MAX_RANK], bs[SW_MAX_RANK], cs[SW_MAX_RANK];                                     \
    int64_t m, n, k, am, ak, bk, bn, cm, cn;
typedef struct sw__matrices { SW_MATRICES_FIELDS } sw__matrices;
/* For a struct that has the fields as its own, and as `x.matrices` for the functions below. */
#define SW_MATRICES_MEMBER                                                                                             \
    union {                                                                                                            \
        struct { SW_MATRICES_FIELDS };                                                                                 \
        sw__matrices matrices;                                                                                         \
    }

/* Of a MATMUL or DOT: batch axes merged where all three walk them as one, and the last one folded into m where b stays the
 * same along it; strides of axes of size 1 are such that the matrix looks dense. */
sw__matrices sw__matrices_of(const sw__op_desc *d);
/* c^T = b^T a^T */
sw__matrices sw__matrices_transposed(const sw__matrices *g);

#endif
