/* lt.h: cuBLASLt as swoop uses it, for products of matrices: its own declarations, so that nothing of NVIDIA's is
 * needed to build (tests hold them against the real headers). lt_load.c opens the library, lt_matmul.c plans and runs.
 */
#ifndef SW_BACKEND_CUDA_LT_H
#define SW_BACKEND_CUDA_LT_H

#include "backend/gpu/gpu.h"

#define SW_LT_CONSTANTS(X)                                                                                             \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                                                   \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15)                                                                                 \
    X(CUBLAS_OP_N, 0)                                                                                                  \
    X(CUBLAS_OP_T, 1)                                                                                                  \
    X(CUBLAS_COMPUTE_32F, 68)                                                                                          \
    X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                                                                \
    X(CUBLAS_COMPUTE_64F, 70)                                                                                          \
    X(CUDA_R_32F, 0)                                                                                                   \
    X(CUDA_R_64F, 1)                                                                                                   \
    X(CUDA_R_16F, 2)                                                                                                   \
    X(CUDA_R_16BF, 14)                                                                                                 \
    X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                                                           \
    X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)                                                                  \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                                                  \
    X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                                                  \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                                                \
    X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                                            \
    X(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                                                    \
    X(CUBLASLT_EPILOGUE_BIAS, 4)                                                                                       \
    X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                                                                       \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                                     \
    X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                                                   \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                                                   \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                                                   \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                                                   \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

enum {
#define SW_LT_NUMBER(name, value) SW_##name = value,
    SW_LT_CONSTANTS(SW_LT_NUMBER)
#undef SW_LT_NUMBER
};

typedef struct sw__lt_algo {
    uint64_t data[8];
} sw__lt_algo;
typedef struct sw__lt_found {
    sw__lt_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} sw__lt_found;

/* Every function that is called; statuses and enums are ints, handles and descriptors pointers. */
#define SW_LT_FUNCTIONS(X)                                                                                             \
    X(size_t, cublasLtGetVersion, (void))                                                                              \
    X(const char *, cublasLtGetStatusString, (int status))                                                             \
    X(int, cublasLtCreate, (void **handle))                                                                            \
    X(int, cublasLtDestroy, (void *handle))                                                                            \
    X(int, cublasLtMatmulDescCreate, (void **desc, int compute, int scale))                                            \
    X(int, cublasLtMatmulDescDestroy, (void *desc))                                                                    \
    X(int, cublasLtMatmulDescSetAttribute, (void *desc, int name, const void *value, size_t size))                     \
    X(int, cublasLtMatrixLayoutCreate, (void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld))            \
    X(int, cublasLtMatrixLayoutDestroy, (void *layout))                                                                \
    X(int, cublasLtMatrixLayoutSetAttribute, (void *layout, int name, const void *value, size_t size))                 \
    X(int, cublasLtMatmulPreferenceCreate, (void **preference))                                                        \
    X(int, cublasLtMatmulPreferenceDestroy, (void *preference))                                                        \
    X(int, cublasLtMatmulPreferenceSetAttribute, (void *preference, int name, const void *value, size_t size))         \
    X(int, cublasLtMatmulAlgoGetHeuristic,                                                                             \
      (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int room, sw__lt_found *found,  \
       int *n))                                                                                                        \
    X(int, cublasLtMatmul,                                                                                             \
      (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,      \
       const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const sw__lt_algo *algo,              \
       void *workspace, size_t bytes, void *stream))

typedef struct sw__lt_api {
#define SW_LT_POINTER(result, f, args) result(*f) args;
    SW_LT_FUNCTIONS(SW_LT_POINTER)
#undef SW_LT_POINTER
} sw__lt_api;

/* Opens the library once: SWOOP_CUBLASLT_LIBRARY, else libcublasLt.so.13 or .12 (0.7 s where it is not in memory yet).
 * SW_ERR_UNSUPPORTED says what to install. */
sw_status sw__lt_load(const sw__lt_api **out);

/* A device's handle. */
typedef struct sw__lt {
    const sw__lt_api *api;
    void *handle;
} sw__lt;
typedef struct sw__cu sw__cu;
sw_status sw__lt_open(sw__cu *c, sw__lt *lt);
void sw__lt_close(sw__lt *lt);
sw_status sw__lt_plan(sw__cu *c, sw__lt *lt, sw__gpu_plan *p); /* MATMUL, DOT */
/* gpu.h's library_label */
void sw__lt_label(const sw__cu *c, const sw__lt *lt, const sw__op_desc *d, char *out, size_t size);

#endif
