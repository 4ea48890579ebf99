/* fake_lt.h: what the files of the fake cuBLASLt share: descriptors as they are kept, and a product on its way into a
 * stream. lt.c has the library's functions, lt_run.c its rules and arithmetic. */
#ifndef FAKECUDA_FAKE_LT_H
#define FAKECUDA_FAKE_LT_H

#include <cublasLt.h>

#include "link.h"
#include "numbers.h"

typedef struct fk_lt_desc {
    int32_t compute, scale, pointer_mode, trans[2];
    uint32_t epilogue;
    const void *bias;
    int32_t bias_type; /* -1: D's */
} fk_lt_desc;

typedef struct fk_lt_layout {
    uint32_t type;
    int32_t order;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batches;
    int64_t step;
} fk_lt_layout;

typedef struct fk_lt_problem {
    fk_lt_desc desc;
    fk_lt_layout layout[4];
} fk_lt_problem; /* A, B, C, D */

typedef struct fk_lt_job {
    fk_lt_problem p;
    uint64_t at[4], workspace;
    size_t workspace_bytes;
    double alpha, beta;
    int algorithm; /* 1, 2, … */
    bool slow;
} fk_lt_job;

/* SUCCESS, or what the library answers; a contradiction is reported too. */
cublasStatus_t fk_lt_check(const fk_lt_problem *p);
fk_type fk_lt_type(uint32_t type);
/* Runs in a stream: data is a job. */
void fk_lt_run(void *data);

#endif
