/* dnn_load.h: oneDNN, opened at run time: dnn.c calls its functions through the table that dnn_load.c fills.
 * Why not linked: Debian 12's libdnnl pulls in the OpenCL loader, and a program that only looks at its devices or its
 * data needs neither. Stands between dnn.c and the library. */
#ifndef SW_BACKEND_CPU_DNN_LOAD_H
#define SW_BACKEND_CPU_DNN_LOAD_H

#include "base/base.h"
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#if DNNL_VERSION_MAJOR >= 3
#define SW_DNN_OF_VERSION(X)                                                                                           \
    X(dnnl_convolution_backward_data_primitive_desc_create)                                                            \
    X(dnnl_convolution_backward_weights_primitive_desc_create)                                                         \
    X(dnnl_convolution_forward_primitive_desc_create)                                                                  \
    X(dnnl_matmul_primitive_desc_create)                                                                               \
    X(dnnl_memory_desc_create_with_strides)                                                                            \
    X(dnnl_memory_desc_create_with_tag)                                                                                \
    X(dnnl_memory_desc_destroy)                                                                                        \
    X(dnnl_primitive_desc_next_impl)
#else
#define SW_DNN_OF_VERSION(X)                                                                                           \
    X(dnnl_dilated_convolution_backward_data_desc_init)                                                                \
    X(dnnl_dilated_convolution_backward_weights_desc_init)                                                             \
    X(dnnl_dilated_convolution_forward_desc_init)                                                                      \
    X(dnnl_matmul_desc_init)                                                                                           \
    X(dnnl_memory_desc_init_by_strides)                                                                                \
    X(dnnl_memory_desc_init_by_tag)                                                                                    \
    X(dnnl_primitive_desc_create)                                                                                      \
    X(dnnl_primitive_desc_iterator_create)                                                                             \
    X(dnnl_primitive_desc_iterator_destroy)                                                                            \
    X(dnnl_primitive_desc_iterator_fetch)                                                                              \
    X(dnnl_primitive_desc_iterator_next)
#endif

/* Every function that dnn.c calls; a name that is missing in the library is an error at loading. */
#define SW_DNN_FUNCTIONS(X)                                                                                            \
    SW_DNN_OF_VERSION(X)                                                                                               \
    X(dnnl_engine_create)                                                                                              \
    X(dnnl_engine_destroy)                                                                                             \
    X(dnnl_memory_create)                                                                                              \
    X(dnnl_memory_desc_equal)                                                                                          \
    X(dnnl_memory_desc_get_size)                                                                                       \
    X(dnnl_memory_destroy)                                                                                             \
    X(dnnl_memory_set_data_handle)                                                                                     \
    X(dnnl_primitive_attr_create)                                                                                      \
    X(dnnl_primitive_attr_destroy)                                                                                     \
    X(dnnl_primitive_attr_set_scratchpad_mode)                                                                         \
    X(dnnl_primitive_create)                                                                                           \
    X(dnnl_primitive_desc_destroy)                                                                                     \
    X(dnnl_primitive_desc_query)                                                                                       \
    X(dnnl_primitive_desc_query_md)                                                                                    \
    X(dnnl_primitive_destroy)                                                                                          \
    X(dnnl_primitive_execute)                                                                                          \
    X(dnnl_reorder_primitive_desc_create)                                                                              \
    X(dnnl_set_max_cpu_isa)                                                                                            \
    X(dnnl_status2str)                                                                                                 \
    X(dnnl_stream_create)                                                                                              \
    X(dnnl_stream_destroy)                                                                                             \
    X(dnnl_stream_wait)                                                                                                \
    X(dnnl_version)

typedef struct sw__dnn_library {
#define SW_DNN_POINTER(f) __typeof__(&f) f;
    SW_DNN_FUNCTIONS(SW_DNN_POINTER)
#undef SW_DNN_POINTER
} sw__dnn_library;

/* Opens the library of the version that swoop was built for, once. SW_ERR_UNSUPPORTED says which package is missing. */
sw_status sw__dnn_load(const sw__dnn_library **out);

#endif
