/* dnn.h: cuDNN 9's graph API as swoop uses it, for convolutions only: its own declarations, so that nothing of NVIDIA's
 * is needed to build (tests hold them against the real headers). dnn_load.c opens the library, dnn_plan.c chooses an
 * engine for a problem, which needs no GPU; dnn_conv.c turns an op into a problem and runs it. */
#ifndef SW_BACKEND_CUDA_DNN_H
#define SW_BACKEND_CUDA_DNN_H

#include "backend/gpu/gpu.h"

/* ---- the library's numbers and functions ------------------------------------------------------------------------- */

#define SW_CUDNN_CONSTANTS(X)                                                                                          \
    X(CUDNN_DATA_FLOAT, 0)                                                                                             \
    X(CUDNN_DATA_DOUBLE, 1)                                                                                            \
    X(CUDNN_DATA_HALF, 2)                                                                                              \
    X(CUDNN_DATA_BFLOAT16, 9)                                                                                          \
    X(CUDNN_CROSS_CORRELATION, 1)                                                                                      \
    X(CUDNN_POINTWISE_ADD, 0)                                                                                          \
    X(CUDNN_ATTR_POINTWISE_MODE, 0)                                                                                    \
    X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                                                                               \
    X(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                                                                           \
    X(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                                                                           \
    X(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                                                                           \
    X(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)                                                                      \
    X(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                                                                       \
    X(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                                                                        \
    X(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                                                                        \
    X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                                                                 \
    X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                                                      \
    X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                                                              \
    X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)                                                                           \
    X(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                                                                                \
    X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                                                    \
    X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                                                   \
    X(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                                                                       \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                                                             \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                                                              \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                                                         \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                                                                 \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                                                                 \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                                                                 \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)                                                            \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)                                                             \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708)                                                        \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)                                                                \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)                                                               \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)                                                               \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 712)                                                          \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 713)                                                           \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 714)                                                      \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, 715)                                                             \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, 716)                                                              \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 717)                                                             \
    X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                                               \
    X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                                                                       \
    X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                                                                       \
    X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                                                                       \
    X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                                                              \
    X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                                                           \
    X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                                                                \
    X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                                                               \
    X(CUDNN_ATTR_TENSOR_STRIDES, 903)                                                                                  \
    X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                                                                \
    X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                                                                               \
    X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                                                        \
    X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                                                     \
    X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                                                                         \
    X(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)                                                                            \
    X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                                                                          \
    X(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, 1305)                                                                           \
    X(CUDNN_ATTR_DEVICEPROP_HANDLE, 2701)                                                                              \
    X(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)                                                                 \
    X(CUDNN_TYPE_HANDLE, 0)                                                                                            \
    X(CUDNN_TYPE_DATA_TYPE, 1)                                                                                         \
    X(CUDNN_TYPE_BOOLEAN, 2)                                                                                           \
    X(CUDNN_TYPE_INT64, 3)                                                                                             \
    X(CUDNN_TYPE_FLOAT, 4)                                                                                             \
    X(CUDNN_TYPE_DOUBLE, 5)                                                                                            \
    X(CUDNN_TYPE_VOID_PTR, 6)                                                                                          \
    X(CUDNN_TYPE_CONVOLUTION_MODE, 7)                                                                                  \
    X(CUDNN_TYPE_HEUR_MODE, 8)                                                                                         \
    X(CUDNN_TYPE_NUMERICAL_NOTE, 11)                                                                                   \
    X(CUDNN_TYPE_POINTWISE_MODE, 14)                                                                                   \
    X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                                                               \
    X(CUDNN_TYPE_BEHAVIOR_NOTE, 19)                                                                                    \
    X(CUDNN_TYPE_CHAR, 24)                                                                                             \
    X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                                                                           \
    X(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                                                                         \
    X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                                                                              \
    X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                                           \
    X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                                                          \
    X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                                      \
    X(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                                                      \
    X(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11)                                              \
    X(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)                                                \
    X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                                                \
    X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                                                     \
    X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                                                       \
    X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                                                             \
    X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                                                                         \
    X(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                                                                             \
    X(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                                                                     \
    X(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                                                             \
    X(CUDNN_NUMERICAL_NOTE_FFT, 3)                                                                                     \
    X(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)                                                                        \
    X(CUDNN_NUMERICAL_NOTE_WINOGRAD, 5)                                                                                \
    X(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, 0)                                                                      \
    X(CUDNN_HEUR_MODE_FALLBACK, 2)                                                                                     \
    X(CUDNN_HEUR_MODE_A, 3)                                                                                            \
    X(CUDNN_STATUS_BAD_PARAM, 2000)                                                                                    \
    X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                                                                                \
    X(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003)                                                        \
    X(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004)

enum {
#define SW_CUDNN_NUMBER(name, value) SW_##name = value,
    SW_CUDNN_CONSTANTS(SW_CUDNN_NUMBER)
#undef SW_CUDNN_NUMBER
};

/* Every function that is called; statuses and enums are ints, handles and descriptors pointers. */
#define SW_CUDNN_FUNCTIONS(X)                                                                                          \
    X(size_t, cudnnGetVersion, (void))                                                                                 \
    X(const char *, cudnnGetErrorString, (int status))                                                                 \
    X(void, cudnnGetLastErrorString, (char *message, size_t size))                                                     \
    X(int, cudnnCreate, (void **handle))                                                                               \
    X(int, cudnnDestroy, (void *handle))                                                                               \
    X(int, cudnnSetStream, (void *handle, void *stream))                                                               \
    X(int, cudnnBackendCreateDescriptor, (int type, void **descriptor))                                                \
    X(int, cudnnBackendDestroyDescriptor, (void *descriptor))                                                          \
    X(int, cudnnBackendFinalize, (void *descriptor))                                                                   \
    X(int, cudnnBackendSetAttribute, (void *descriptor, int name, int type, int64_t n, const void *values))            \
    X(int, cudnnBackendGetAttribute, (void *descriptor, int name, int type, int64_t room, int64_t *n, void *values))   \
    X(int, cudnnBackendExecute, (void *handle, void *plan, void *pack))

typedef struct sw__cudnn_api {
#define SW_CUDNN_POINTER(result, f, args) result(*f) args;
    SW_CUDNN_FUNCTIONS(SW_CUDNN_POINTER)
#undef SW_CUDNN_POINTER
} sw__cudnn_api;

/* Opens the library once: SWOOP_CUDNN_LIBRARY, else libcudnn.so.9. SW_ERR_UNSUPPORTED says what to install. */
sw_status sw__cudnn_load(const sw__cudnn_api **out);

/* ---- descriptors in the making ----------------------------------------------------------------------------------- */

/* Descriptors that live until done(). After a failure nothing more is called, and `st` says what it was. */
typedef struct sw__cudnn_make {
    const sw__cudnn_api *api;
    void **made;
    size_t n, cap;
    sw_status st;
} sw__cudnn_make;
void *sw__cudnn_new(sw__cudnn_make *m, int type);
void sw__cudnn_set(sw__cudnn_make *m, void *d, int name, int type, int64_t n, const void *values);
void sw__cudnn_finish(sw__cudnn_make *m, void *d);
void sw__cudnn_keep(sw__cudnn_make *m, void *d); /* not destroyed by done() */
void sw__cudnn_done(sw__cudnn_make *m);
/* A failed call as a status: NOT_SUPPORTED and the like are SW_ERR_UNSUPPORTED. */
sw_status sw__cudnn_fail(const sw__cudnn_api *api, int status, const char *call);

/* ---- a convolution and the engine for it ------------------------------------------------------------------------- */

typedef enum sw__cudnn_kind { SW_CUDNN_FORWARD, SW_CUDNN_DATA, SW_CUDNN_FILTER } sw__cudnn_kind;
typedef struct sw__cudnn_tensor {
    int64_t dim[5], stride[5], align;
} sw__cudnn_tensor; /* align: bytes */

/* Compared as bytes: always start from a zeroed one. Dims: x [N, C, …], w [K, C / groups, …], y [N, K, …]. */
typedef struct sw__cudnn_problem {
    int32_t kind, nd; /* spatial axes: 2 or 3 */
    int32_t type;     /* sw_dtype of the tensors; sums are kept in f32, of f64 in f64 */
    int32_t bias;     /* [K], added to the result */
    int32_t tf32;     /* products of f32 may be rounded to TF32 */
    sw__cudnn_tensor x, w, y;
    int64_t pre[3], post[3], stride[3], dilation[3];
    int64_t most; /* bytes of workspace */
} sw__cudnn_problem;

enum { SW_CUDNN_X = 1, SW_CUDNN_W, SW_CUDNN_Y, SW_CUDNN_BIAS, SW_CUDNN_CONV_OUT }; /* unique ids */

typedef struct sw__cudnn_plan {
    void *plan; /* EXECUTION_PLAN descriptor */
    size_t workspace;
    int64_t engine;
    uint32_t notes; /* bit set of the numerical notes */
} sw__cudnn_plan;

/* The GPU to plan for, as a descriptor: that of a handle, or one described in JSON (a GPU that is not there). */
sw_status sw__cudnn_device_of(const sw__cudnn_api *api, void *handle, void **out);
sw_status sw__cudnn_device_json(const sw__cudnn_api *api, const char *json, void **out);
/* The first engine of the library's order that is exact enough, repeatable, ready without compiling, and within the
 * workspace. SW_ERR_UNSUPPORTED: there is none. */
sw_status sw__cudnn_choose(const sw__cudnn_api *api, void *device, const sw__cudnn_problem *c, sw__cudnn_plan *out);

/* ---- a device's use of it (dnn_conv.c) --------------------------------------------------------------------------- */

typedef struct sw__cu sw__cu;
typedef struct sw__cudnn {
    const sw__cudnn_api *api;
    void *handle, *device;
    struct sw__cudnn_known *known; /* engines chosen so far: equal layers share one */
} sw__cudnn;
sw_status sw__cudnn_open(sw__cu *c, sw__cudnn *dnn);
void sw__cudnn_close(sw__cudnn *dnn);
/* An op as a problem, without its workspace limit; SW_ERR_UNSUPPORTED says what cuDNN cannot express. */
sw_status sw__cudnn_describe(const sw__gpu_plan *p, bool tf32, sw__cudnn_problem *c);
sw_status sw__cudnn_plan_op(sw__cu *c, sw__cudnn *dnn, sw__gpu_plan *p); /* CONV, CONV_GRAD_X, CONV_GRAD_W */

#endif
