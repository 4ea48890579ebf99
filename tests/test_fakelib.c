/* test_fakelib.c: the doubles of cuBLASLt and cuDNN find what they are there to find: each check has a program with the
 * fault planted, run in a process of its own, whose report is looked at; the same program without fault is clean. */
/* needs: FAKECUDA */
#include "fakecuda_case.h"

#include "backend/cuda/dnn.h"
#include "backend/cuda/lt.h"

/* ---- a product --------------------------------------------------------------------------------------------------- */

enum { SIDE = 16, MATRIX = SIDE * SIDE * 4 };

static const sw__lt_api *lt;
static struct product {
    void *handle, *desc, *layout, *preference;
    sw__lt_found found;
    CUdeviceptr a, b, c, bias, workspace;
    CUstream s;
} x;

static void prefer(int name, const void *value, size_t size)
{
    CHECK(lt->cublasLtMatmulPreferenceSetAttribute(x.preference, name, value, size) == 0);
}

/* Square matrices, a bias; the layout has gaps until the algorithm wants a workspace. */
static void set_up_product(void)
{
    static const uint64_t most = 1 << 20;
    static const uint32_t align = 16, epilogue = SW_CUBLASLT_EPILOGUE_BIAS;
    int n = 0;
    set_up_fake();
    setenv("SWOOP_CUBLASLT_LIBRARY", SWOOP_FAKECUDA "/libcublasLt.so.13", 1);
    CHECK(sw__lt_load(&lt) == SW_OK);
    CHECK(lt->cublasLtCreate(&x.handle) == 0);
    CHECK(lt->cublasLtMatmulDescCreate(&x.desc, SW_CUBLAS_COMPUTE_32F, SW_CUDA_R_32F) == 0);
    CHECK(lt->cublasLtMatmulDescSetAttribute(x.desc, SW_CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) ==
          0);
    CHECK(lt->cublasLtMatmulPreferenceCreate(&x.preference) == 0);
    prefer(SW_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    for (int i = SW_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; i <= SW_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        prefer(i, &align, sizeof align);
    x.s = stream[0];
    x.bias = memory(SIDE * 4);
    OK(cu.cuMemsetD32Async(x.bias, 0, SIDE, x.s));
    CHECK(lt->cublasLtMatmulDescSetAttribute(x.desc, SW_CUBLASLT_MATMUL_DESC_BIAS_POINTER, &x.bias, sizeof x.bias) ==
          0);
    for (int64_t ld = SIDE; x.found.workspace == 0; ld += 4) {
        if (x.layout != NULL) CHECK(lt->cublasLtMatrixLayoutDestroy(x.layout) == 0);
        CHECK(ld < 20 * SIDE && lt->cublasLtMatrixLayoutCreate(&x.layout, SW_CUDA_R_32F, SIDE, SIDE, ld) == 0);
        CHECK(lt->cublasLtMatmulAlgoGetHeuristic(x.handle, x.desc, x.layout, x.layout, x.layout, x.layout, x.preference,
                                                 1, &x.found, &n) == 0 &&
              n == 1);
    }
    CUdeviceptr *const all[] = { &x.a, &x.b, &x.c };
    for (int i = 0; i < 3; i++) {
        *all[i] = memory(20 * MATRIX);
        OK(cu.cuMemsetD32Async(*all[i], 0, 20 * MATRIX / 4, x.s));
    }
    x.workspace = memory(x.found.workspace);
}

static int begin_product(void)
{
    static const float one = 1, zero = 0;
    return lt->cublasLtMatmul(x.handle, x.desc, &one, (void *)x.a, x.layout, (void *)x.b, x.layout, &zero, (void *)x.c,
                              x.layout, (void *)x.c, x.layout, &x.found.algo, (void *)x.workspace, x.found.workspace,
                              x.s);
}

static int multiply(void)
{
    const int status = begin_product();
    cu.cuCtxSynchronize();
    return status;
}

static void tear_down_product(void)
{
    CHECK(lt->cublasLtMatrixLayoutDestroy(x.layout) == 0);
    CHECK(lt->cublasLtMatmulPreferenceDestroy(x.preference) == 0);
    CHECK(lt->cublasLtMatmulDescDestroy(x.desc) == 0);
    CHECK(lt->cublasLtDestroy(x.handle) == 0);
    const CUdeviceptr all[] = { x.a, x.b, x.c, x.bias, x.workspace };
    for (size_t i = 0; i < SW_COUNT(all); i++)
        if (all[i] != 0) OK(cu.cuMemFree(all[i]));
    tear_down_fake();
}

static void good_product(void)
{
    set_up_product();
    CHECK(multiply() == 0);
    tear_down_product();
}

static void unaligned(void)
{
    set_up_product();
    x.b += 4;
    multiply();
}

static void small_workspace(void)
{
    set_up_product();
    x.found.workspace -= 1;
    multiply();
}

static void workspace_too_short(void)
{
    set_up_product();
    OK(cu.cuMemFree(x.workspace));
    x.workspace = memory(x.found.workspace / 2);
    multiply();
}

static void other_problem(void)
{
    const uint32_t plain = SW_CUBLASLT_EPILOGUE_DEFAULT;
    set_up_product();
    CHECK(lt->cublasLtMatmulDescSetAttribute(x.desc, SW_CUBLASLT_MATMUL_DESC_EPILOGUE, &plain, sizeof plain) == 0);
    multiply();
}

static void short_bias(void)
{
    set_up_product();
    const CUdeviceptr bias = memory(SIDE * 2);
    OK(cu.cuMemsetD32Async(bias, 0, SIDE / 2, x.s));
    CHECK(lt->cublasLtMatmulDescSetAttribute(x.desc, SW_CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias) == 0);
    multiply();
}

static void misfit(void)
{
    void *other = NULL;
    int n = 0;
    set_up_product();
    CHECK(lt->cublasLtMatrixLayoutCreate(&other, SW_CUDA_R_32F, SIDE, SIDE + 1, SIDE) == 0);
    CHECK(lt->cublasLtMatmulAlgoGetHeuristic(x.handle, x.desc, other, x.layout, x.layout, x.layout, x.preference, 1,
                                             &x.found, &n) != 0);
}

static void attribute_size(void)
{
    const uint64_t wide = SW_CUBLASLT_EPILOGUE_DEFAULT;
    set_up_product();
    CHECK(lt->cublasLtMatmulDescSetAttribute(x.desc, SW_CUBLASLT_MATMUL_DESC_EPILOGUE, &wide, sizeof wide) == 7);
}

static void product_without_wait(void)
{
    set_up_product();
    x.s = stream[1];
    multiply();
}

static void product_after_free(void)
{
    set_up_product();
    OK(cu.cuCtxSynchronize());
    OK(cu.cuMemFree(x.a));
    multiply();
}

static void handle_left(void)
{
    set_up_product();
    x.handle = NULL;
    CHECK(lt->cublasLtCreate(&x.handle) == 0);
    tear_down_product();
}

static void handle_twice(void)
{
    set_up_product();
    CHECK(lt->cublasLtDestroy(x.handle) == 0);
    CHECK(lt->cublasLtDestroy(x.handle) != 0);
}

static void no_context(void)
{
    set_up_product();
    OK(cu.cuCtxSynchronize());
    OK(cu.cuCtxSetCurrent(NULL));
    CHECK(begin_product() == 1); /* told, as by the library */
    OK(cu.cuCtxSetCurrent(context));
    tear_down_product();
}

/* A driver for CUDA 12 does not serve the library of CUDA 13 that is there: one of 12, or none. */
static void older_driver(void)
{
    const bool found = sw__lt_load(&lt) == SW_OK;
    CHECK(!found || lt->cublasLtGetVersion() < 130000);
    CHECK(found || strstr(sw_error(), "libcublasLt.so.12") != NULL);
}

static void test_products(void **state)
{
    (void)state;
    expect_clean("FAKECUDA_DRIVER=12080", older_driver);
    expect_clean("", good_product);
    expect_clean("", no_context);
    expect_report("", unaligned, "cublasLtMatmul: alignment of B: 4, 16 is needed");
    expect_report("", small_workspace, "cublasLtMatmul: bytes of workspace");
    expect_report("", workspace_too_short, "cublasLtMatmul: workspace");
    expect_report("", other_problem, "the algorithm is another problem's");
    expect_report("", short_bias, "cublasLtMatmul: bias");
    expect_report("", misfit, "matrices that do not fit: A 16 x 17");
    expect_report("", attribute_size, "attribute 7 of 8 bytes");
    expect_report("", product_without_wait, "a wait is missing");
    expect_report("", product_after_free, "cublasLtMatmul: A");
    expect_report("", handle_left, "leak: cublasLt handle");
    expect_report("", handle_twice, "is no cublasLt handle");
}

/* ---- a convolution ----------------------------------------------------------------------------------------------- */

static const sw__cudnn_api *dnn;
static struct convolution {
    void *handle, *device, *pack;
    sw__cudnn_problem problem;
    sw__cudnn_plan plan;
    CUdeviceptr at[4]; /* x, w, y, workspace */
    int64_t id[3];
    int n;
} v;

static sw__cudnn_tensor image(int64_t n, int64_t c, int64_t size)
{
    return (
        sw__cudnn_tensor){ .align = 16, .dim = { n, c, size, size }, .stride = { c * size * size, 1, size * c, c } };
}

static void set_up_convolution(void)
{
    set_up_fake();
    setenv("SWOOP_CUDNN_LIBRARY", SWOOP_FAKECUDA "/libcudnn.so.9", 1);
    CHECK(sw__cudnn_load(&dnn) == SW_OK);
    CHECK(dnn->cudnnCreate(&v.handle) == 0 && dnn->cudnnSetStream(v.handle, stream[0]) == 0);
    CHECK(sw__cudnn_device_of(dnn, v.handle, &v.device) == SW_OK);
    v.problem = (sw__cudnn_problem){ .kind = SW_CUDNN_FORWARD,
                                     .nd = 2,
                                     .type = SW_F32,
                                     .x = image(2, 8, 6),
                                     .w = image(8, 8, 3),
                                     .y = image(2, 8, 6),
                                     .pre = { 1, 1 },
                                     .post = { 1, 1 },
                                     .stride = { 1, 1 },
                                     .dilation = { 1, 1 },
                                     .most = 1 << 26 };
    CHECK(sw__cudnn_choose(dnn, v.device, &v.problem, &v.plan) == SW_OK);
    for (int i = 0; i < 4; i++) {
        const size_t bytes = i < 3 ? 2 * 8 * 6 * 6 * 4 : SW_MAX(v.plan.workspace, (size_t)256);
        v.at[i] = memory(bytes);
        OK(cu.cuMemsetD32Async(v.at[i], 0, bytes / 4, stream[0]));
    }
    for (int i = 0; i < 3; i++) v.id[i] = SW_CUDNN_X + i;
    v.n = 3;
}

static int convolve(void)
{
    sw__cudnn_make m = { .api = dnn, .st = SW_OK };
    v.pack = sw__cudnn_new(&m, SW_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    sw__cudnn_set(&m, v.pack, SW_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, SW_CUDNN_TYPE_INT64, v.n, v.id);
    sw__cudnn_set(&m, v.pack, SW_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, SW_CUDNN_TYPE_VOID_PTR, v.n, v.at);
    sw__cudnn_set(&m, v.pack, SW_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, SW_CUDNN_TYPE_VOID_PTR, 1, &v.at[3]);
    sw__cudnn_finish(&m, v.pack);
    CHECK(m.st == SW_OK);
    const int status = dnn->cudnnBackendExecute(v.handle, v.plan.plan, v.pack);
    sw__cudnn_done(&m);
    cu.cuCtxSynchronize();
    return status;
}

static void tear_down_convolution(void)
{
    CHECK(dnn->cudnnBackendDestroyDescriptor(v.plan.plan) == 0);
    CHECK(dnn->cudnnBackendDestroyDescriptor(v.device) == 0);
    CHECK(dnn->cudnnDestroy(v.handle) == 0);
    for (int i = 0; i < 4; i++) OK(cu.cuMemFree(v.at[i]));
    tear_down_fake();
}

static void good_convolution(void)
{
    set_up_convolution();
    CHECK(convolve() == 0);
    tear_down_convolution();
}

static void unaligned_tensor(void)
{
    set_up_convolution();
    v.at[0] += 4;
    CHECK(convolve() != 0);
}

static void unbound_tensor(void)
{
    set_up_convolution();
    v.n = 2;
    CHECK(convolve() != 0);
}

static void no_workspace(void)
{
    set_up_convolution();
    CHECK(v.plan.workspace > 0);
    v.at[3] = 0;
    CHECK(convolve() != 0);
}

static void tensor_too_short(void)
{
    set_up_convolution();
    v.at[2] = memory(2 * 8 * 6 * 6 * 4 - 4);
    OK(cu.cuMemsetD32Async(v.at[2], 0, 2 * 8 * 6 * 6 - 1, stream[0]));
    convolve();
}

static void convolution_without_wait(void)
{
    set_up_convolution();
    CHECK(dnn->cudnnSetStream(v.handle, stream[1]) == 0);
    convolve();
}

static void plan_left(void)
{
    set_up_convolution();
    sw__cudnn_plan other;
    CHECK(sw__cudnn_choose(dnn, v.device, &v.problem, &other) == SW_OK);
    tear_down_convolution();
}

static void other_context(void)
{
    set_up_convolution();
    OK(cu.cuCtxSynchronize());
    OK(cu.cuCtxSetCurrent(NULL));
    CHECK(dnn->cudnnBackendExecute(v.handle, v.plan.plan, v.plan.plan) != 0);
}

/* Two tensors of one id: the library takes it for one tensor. */
static void same_id(void)
{
    const int64_t dims[4] = { 1, 8, 1, 1 }, strides[4] = { 8, 1, 1, 1 }, id = 7, align = 4;
    const int32_t type = SW_CUDNN_DATA_FLOAT, mode = SW_CUDNN_POINTWISE_ADD;
    set_up_convolution();
    sw__cudnn_make m = { .api = dnn, .st = SW_OK };
    void *t[3], *op, *graph, *what = sw__cudnn_new(&m, SW_CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    sw__cudnn_set(&m, what, SW_CUDNN_ATTR_POINTWISE_MODE, SW_CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    sw__cudnn_set(&m, what, SW_CUDNN_ATTR_POINTWISE_MATH_PREC, SW_CUDNN_TYPE_DATA_TYPE, 1, &type);
    sw__cudnn_finish(&m, what);
    for (int i = 0; i < 3; i++) {
        const int64_t own = i == 2 ? 9 : id, wide[4] = { i == 1 ? 1 : 4, 8, 1, 1 };
        t[i] = sw__cudnn_new(&m, SW_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        sw__cudnn_set(&m, t[i], SW_CUDNN_ATTR_TENSOR_DATA_TYPE, SW_CUDNN_TYPE_DATA_TYPE, 1, &type);
        sw__cudnn_set(&m, t[i], SW_CUDNN_ATTR_TENSOR_DIMENSIONS, SW_CUDNN_TYPE_INT64, 4, i == 1 ? dims : wide);
        sw__cudnn_set(&m, t[i], SW_CUDNN_ATTR_TENSOR_STRIDES, SW_CUDNN_TYPE_INT64, 4, strides);
        sw__cudnn_set(&m, t[i], SW_CUDNN_ATTR_TENSOR_UNIQUE_ID, SW_CUDNN_TYPE_INT64, 1, &own);
        sw__cudnn_set(&m, t[i], SW_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, SW_CUDNN_TYPE_INT64, 1, &align);
        sw__cudnn_finish(&m, t[i]);
    }
    op = sw__cudnn_new(&m, SW_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    sw__cudnn_set(&m, op, SW_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, SW_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &what);
    sw__cudnn_set(&m, op, SW_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, SW_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t[0]);
    sw__cudnn_set(&m, op, SW_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, SW_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t[1]);
    sw__cudnn_set(&m, op, SW_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, SW_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t[2]);
    sw__cudnn_finish(&m, op);
    graph = sw__cudnn_new(&m, SW_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    sw__cudnn_set(&m, graph, SW_CUDNN_ATTR_OPERATIONGRAPH_OPS, SW_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op);
    sw__cudnn_finish(&m, graph);
    if (m.st != SW_OK) fprintf(stderr, "%s\n", sw_error());
}

static void test_convolutions(void **state)
{
    (void)state;
    if (access(SWOOP_FAKECUDA "/libcudnn.so.9", R_OK) != 0) skip();
    expect_clean("", good_convolution);
    expect_clean("FAKECUDA_SM=80", good_convolution);
    expect_report("", unaligned_tensor, "tensor 1 lies at");
    expect_report("", unbound_tensor, "tensor 3 has no pointer");
    expect_report("", no_workspace, "a workspace of");
    expect_report("", tensor_too_short, "cudnn: result writes: 2304 bytes");
    expect_report("", convolution_without_wait, "a wait is missing");
    expect_report("", plan_left, "leak: cudnn descriptor");
    expect_report("", other_context, "the handle's context is not current");
    expect_report("", same_id, "two tensors of a graph have the id 7");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_products), cmocka_unit_test(test_convolutions) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
