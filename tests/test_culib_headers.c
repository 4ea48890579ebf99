/* test_culib_headers.c: our declarations of cuBLASLt (backend/cuda/lt.h) and cuDNN (dnn.h) against NVIDIA's own
 * headers: every number, and every function's parameters by kind and size. What differs does not compile. */
/* needs: CUDNN_HEADERS */
#include <cublasLt.h>
#include <cudnn.h>

#include "backend/cuda/dnn.h"
#include "backend/cuda/lt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define NUMBER(name, value) _Static_assert((int)(name) == (value), #name " is another number");
SW_LT_CONSTANTS(NUMBER)
SW_CUDNN_CONSTANTS(NUMBER)
#undef NUMBER

_Static_assert(sizeof(sw__lt_algo) == sizeof(cublasLtMatmulAlgo_t), "an algorithm");
_Static_assert(sizeof(sw__lt_found) == sizeof(cublasLtMatmulHeuristicResult_t), "a result of the heuristic");
#define PLACE(ours, theirs)                                                                                            \
    _Static_assert(offsetof(sw__lt_found, ours) == offsetof(cublasLtMatmulHeuristicResult_t, theirs), #theirs);
PLACE(algo, algo)
PLACE(workspace, workspaceSize)
PLACE(state, state)
PLACE(waves, wavesCount)
_Static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cudnnStatus_t) == sizeof(int), "statuses");
_Static_assert(sizeof(cudnnBackendAttributeName_t) == sizeof(int) && sizeof(cudnnDataType_t) == sizeof(int), "enums");

/* Handles and descriptors are pointers there and void pointers here, enums are ints here: a call with arguments of our
 * types must be one of theirs, as far as the compiler can tell numbers from pointers. */
static SW_UNUSED int calls(void *p, const void *c, void **out, size_t size, int n, int64_t wide,
                           const sw__lt_algo *algo)
{
    size_t version = cublasLtGetVersion() + cudnnGetVersion();
    const char *text = cublasLtGetStatusString((cublasStatus_t)n);
    text = text != NULL ? text : cudnnGetErrorString((cudnnStatus_t)n);
    cudnnGetLastErrorString(p, size);
    int s = (int)cublasLtCreate((cublasLtHandle_t *)(void *)out) + (int)cublasLtDestroy(p);
    s += (int)cublasLtMatmulDescCreate((cublasLtMatmulDesc_t *)(void *)out, (cublasComputeType_t)n, (cudaDataType_t)n);
    s += (int)cublasLtMatmulDescDestroy(p) + (int)cublasLtMatrixLayoutDestroy(p) +
         (int)cublasLtMatmulPreferenceDestroy(p);
    s += (int)cublasLtMatmulDescSetAttribute(p, (cublasLtMatmulDescAttributes_t)n, c, size);
    s += (int)cublasLtMatrixLayoutCreate((cublasLtMatrixLayout_t *)(void *)out, (cudaDataType_t)n, (uint64_t)wide,
                                         (uint64_t)wide, wide);
    s += (int)cublasLtMatrixLayoutSetAttribute(p, (cublasLtMatrixLayoutAttribute_t)n, c, size);
    s += (int)cublasLtMatmulPreferenceCreate((cublasLtMatmulPreference_t *)(void *)out);
    s += (int)cublasLtMatmulPreferenceSetAttribute(p, (cublasLtMatmulPreferenceAttributes_t)n, c, size);
    s += (int)cublasLtMatmulAlgoGetHeuristic(p, p, p, p, p, p, p, n, p, &s);
    s += (int)cublasLtMatmul(p, p, c, c, p, c, p, c, c, p, p, p, (const cublasLtMatmulAlgo_t *)(const void *)algo, p,
                             size, p);
    s += (int)cudnnCreate((cudnnHandle_t *)(void *)out) + (int)cudnnDestroy(p) + (int)cudnnSetStream(p, p);
    s +=
        (int)cudnnBackendCreateDescriptor((cudnnBackendDescriptorType_t)n, out) + (int)cudnnBackendDestroyDescriptor(p);
    s += (int)cudnnBackendFinalize(p) + (int)cudnnBackendExecute(p, p, p);
    s += (int)cudnnBackendSetAttribute(p, (cudnnBackendAttributeName_t)n, (cudnnBackendAttributeType_t)n, wide, c);
    s += (int)cudnnBackendGetAttribute(p, (cudnnBackendAttributeName_t)n, (cudnnBackendAttributeType_t)n, wide, &wide,
                                       p);
    return s + (int)version + (text != NULL);
}

/* How many parameters, and of which kind, our declarations have: the same calls through the tables. */
static SW_UNUSED int own_calls(const sw__lt_api *lt, const sw__cudnn_api *dnn, void *p, const void *c, void **out,
                               size_t size, int n, int64_t wide, const sw__lt_algo *algo)
{
    size_t version = lt->cublasLtGetVersion() + dnn->cudnnGetVersion();
    const char *text = lt->cublasLtGetStatusString(n);
    text = text != NULL ? text : dnn->cudnnGetErrorString(n);
    dnn->cudnnGetLastErrorString(p, size);
    int s = lt->cublasLtCreate(out) + lt->cublasLtDestroy(p) + lt->cublasLtMatmulDescCreate(out, n, n);
    s += lt->cublasLtMatmulDescDestroy(p) + lt->cublasLtMatrixLayoutDestroy(p) + lt->cublasLtMatmulPreferenceDestroy(p);
    s += lt->cublasLtMatmulDescSetAttribute(p, n, c, size);
    s += lt->cublasLtMatrixLayoutCreate(out, n, (uint64_t)wide, (uint64_t)wide, wide);
    s += lt->cublasLtMatrixLayoutSetAttribute(p, n, c, size) + lt->cublasLtMatmulPreferenceCreate(out);
    s += lt->cublasLtMatmulPreferenceSetAttribute(p, n, c, size);
    s += lt->cublasLtMatmulAlgoGetHeuristic(p, p, p, p, p, p, p, n, p, &s);
    s += lt->cublasLtMatmul(p, p, c, c, p, c, p, c, c, p, p, p, algo, p, size, p);
    s += dnn->cudnnCreate(out) + dnn->cudnnDestroy(p) + dnn->cudnnSetStream(p, p);
    s += dnn->cudnnBackendCreateDescriptor(n, out) + dnn->cudnnBackendDestroyDescriptor(p);
    s += dnn->cudnnBackendFinalize(p) + dnn->cudnnBackendExecute(p, p, p);
    s += dnn->cudnnBackendSetAttribute(p, n, n, wide, c) + dnn->cudnnBackendGetAttribute(p, n, n, wide, &wide, p);
    return s + (int)version + (text != NULL);
}

/* Each function stands once in its list. */
static void test_lists(void **state)
{
#define NAME(result, f, args) #f,
    static const char *const names[] = { SW_LT_FUNCTIONS(NAME) SW_CUDNN_FUNCTIONS(NAME) };
    (void)state;
    for (size_t i = 0; i < SW_COUNT(names); i++)
        for (size_t k = 0; k < i; k++) assert_string_not_equal(names[i], names[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lists) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
