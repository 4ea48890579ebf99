/* test_cuda_headers.c: our declarations of CUDA's driver and NVRTC (backend/cuda/cu.h) against NVIDIA's own headers: types,
 * constants, and every function by name and parameters. What differs does not compile. Left out where there is no toolkit. */
/* needs: CUDA_HEADERS */
#include <cuda.h>
#include <nvrtc.h>

#include "backend/cuda/cu.h"

#include <setjmp.h>
#include <cmocka.h>

/* A macro of cuda.h turns a name without version into the one exported now: of the same parameters. */
#define DECLARED(api, name) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), __typeof__(((api *)0)->name)), #name " is declared otherwise");
#define DRIVER(name, since, parameters) DECLARED(sw__cu_api, name)
#define NVRTC(name, since, parameters) DECLARED(sw__nvrtc_api, name)
SW_CU_FUNCTIONS(DRIVER)
SW_CU_OPTIONAL(DRIVER)
SW_NVRTC_FUNCTIONS(NVRTC)

#define SAME_TYPE(a, b) _Static_assert(__builtin_types_compatible_p(a, b), #a " is not " #b)
SAME_TYPE(sw__cu_device, CUdevice);
SAME_TYPE(sw__cu_address, CUdeviceptr);
SAME_TYPE(sw__cu_context, CUcontext);
SAME_TYPE(sw__cu_stream, CUstream);
SAME_TYPE(sw__cu_event, CUevent);
SAME_TYPE(sw__cu_module, CUmodule);
SAME_TYPE(sw__cu_function, CUfunction);
SAME_TYPE(sw__cu_graph, CUgraph);
SAME_TYPE(sw__cu_graph_exec, CUgraphExec);
SAME_TYPE(sw__nvrtc_program, nvrtcProgram);
_Static_assert(sizeof(sw__cu_result) == sizeof(CUresult) && sizeof(sw__cu_choice) == sizeof(CUdevice_attribute), "enums");

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)
SAME(SW_CU_OK, CUDA_SUCCESS);
SAME(SW_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(SW_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(SW_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(SW_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(SW_CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(SW_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(SW_CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(SW_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(SW_CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(SW_CU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME(SW_CU_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(SW_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(SW_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(SW_CU_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(SW_CU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(SW_CU_ASSERT, CUDA_ERROR_ASSERT);
SAME(SW_CU_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(SW_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(SW_CU_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(SW_CU_COMPAT_NOT_SUPPORTED, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME(SW_CU_MAX_THREADS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(SW_CU_MAX_SHARED_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
SAME(SW_CU_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME(SW_CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(SW_CU_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
SAME(SW_CU_MEMORY_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME(SW_CU_MEMORY_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME(SW_CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(SW_CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(SW_CU_COMPUTE_PROHIBITED, CU_COMPUTEMODE_PROHIBITED);
SAME(SW_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(SW_CU_EVENT_DEFAULT, CU_EVENT_DEFAULT);
SAME(SW_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(SW_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

#define NAME(name, since, parameters) { #name, since },
static const struct { const char *name; int since; } names[] = { SW_CU_FUNCTIONS(NAME) SW_NVRTC_FUNCTIONS(NAME) };

/* None needs a newer CUDA than the oldest driver that is taken; each stands once. */
static void test_lists(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_COUNT(names); i++) {
        if (names[i].since > SW_CU_DRIVER) fail_msg("%s came with CUDA %d", names[i].name, names[i].since);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(names[i].name, names[k].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lists) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
