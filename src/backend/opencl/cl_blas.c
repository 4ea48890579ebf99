/* cl_blas.c: CLBlast for products of matrices, opened at run time, only for those for which it was found faster on this
 * device (backend/gpu/tune.h). Its first call compiles for seconds: it is made here, when the op is planned, on scratch
 * memory, and a product that comes out wrong or not at all is left to our kernels. See cl.h; gpu.h's `library`. */
#include "backend/opencl/cl.h"

#include "backend/gpu/ops/big.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the library ------------------------------------------------------------------------------------------------------- */

/* clblast_c.h's, in declarations of our own: the codes are those of the C interface of BLAS. */
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
#define MATRIX cl_mem, size_t, size_t           /* buffer, offset and leading dimension in elements */
#define MATRICES cl_mem, size_t, size_t, size_t /* … and stride from one to the next */
#define GEMM(NAME, SCALAR)                                                                                             \
    typedef int (*NAME)(int, int, int, size_t, size_t, size_t, SCALAR, MATRIX, MATRIX, SCALAR, MATRIX,                 \
                        cl_command_queue *, cl_event *);                                                               \
    typedef int (*NAME##_batched)(int, int, int, size_t, size_t, size_t, SCALAR, MATRICES, MATRICES, SCALAR, MATRICES, \
                                  size_t, cl_command_queue *, cl_event *)
GEMM(single, float);
GEMM(twice, double);

static struct {
    bool there;
    single sgemm;
    single_batched sgemm_batched;
    twice dgemm;
    twice_batched dgemm_batched;
} blas;

/* CLBlast is linked to the system's OpenCL loader: handles of another OpenCL library would mean nothing to it. */
static void load(void)
{
    const char *const wish = getenv("SWOOP_CLBLAST_LIBRARY"), *const cl = getenv("SWOOP_OPENCL_LIBRARY");
    const bool given = wish != NULL && *wish != '\0';
    if (!given && cl != NULL && *cl != '\0') return;
    void *const handle = dlopen(given ? wish : "libclblast.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        if (given) sw__log(SW_LOG_WARN, "SWOOP_CLBLAST_LIBRARY=%s cannot be opened", wish);
        return;
    }
    blas.there = sw__symbol(handle, "CLBlastSgemm", &blas.sgemm, sizeof blas.sgemm) &&
                 sw__symbol(handle, "CLBlastSgemmStridedBatched", &blas.sgemm_batched, sizeof blas.sgemm_batched) &&
                 sw__symbol(handle, "CLBlastDgemm", &blas.dgemm, sizeof blas.dgemm) &&
                 sw__symbol(handle, "CLBlastDgemmStridedBatched", &blas.dgemm_batched, sizeof blas.dgemm_batched);
    if (!blas.there) sw__log(SW_LOG_WARN, "the CLBlast that is installed lacks functions: it is not used");
}

const char *sw__cl_blas_name(void *dev)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)dev;
    pthread_once(&once, load);
    return blas.there ? "CLBlast" : NULL;
}

/* ---- a product as a call ----------------------------------------------------------------------------------------------- */

typedef struct side { int bind; size_t at, ld, step; bool transposed; } side; /* at: bytes; ld, step: elements */
typedef struct product {
    sw_dtype type;
    size_t m, n, k, batch;
    side a, b, c;
} product;

/* A matrix of `rows` x `cols` that lies row by row, or column by column, without overlaps. */
static bool find_side(side *s, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride)
{
    s->transposed = col_stride != 1;
    s->ld = (size_t)(s->transposed ? col_stride : row_stride);
    return s->transposed ? row_stride == 1 && col_stride >= rows : row_stride >= cols;
}

/* c that lies column by column is the transposed product. */
static sw_status describe(const sw__product *given, product *out)
{
    sw__product g = *given;
    if (g.cn != 1 && g.cm == 1) {
        g.matrices = sw__matrices_transposed(&given->matrices);
        g.a = given->b;
        g.b = given->a;
    }
    if (g.type != SW_F32 && g.type != SW_F64)
        return sw__fail(SW_ERR_UNSUPPORTED, "CLBlast adds up in the type of the result, which for %s is too coarse",
                        sw_dtype_name(g.type));
    if (g.rank > 1) return sw__fail(SW_ERR_UNSUPPORTED, "CLBlast walks one batch axis, here are %d", g.rank);
    if (g.m < 1 || g.n < 1 || g.k < 1) return sw__fail(SW_ERR_UNSUPPORTED, "CLBlast takes no empty matrices");
    *out = (product){.type = g.type, .m = (size_t)g.m, .n = (size_t)g.n, .k = (size_t)g.k, .batch = 1,
                     .a = {.bind = g.a}, .b = {.bind = g.b}, .c = {.bind = g.c}};
    if (!find_side(&out->a, g.m, g.k, g.am, g.ak) || !find_side(&out->b, g.k, g.n, g.bk, g.bn) ||
        !find_side(&out->c, g.m, g.n, g.cm, g.cn) || out->c.transposed)
        return sw__fail(SW_ERR_UNSUPPORTED, "CLBlast takes matrices that lie row by row or column by column");
    if (g.rank == 0) return SW_OK;
    if (g.as[0] < 0 || g.bs[0] < 0 || g.cs[0] < g.m * g.cm) return sw__fail(SW_ERR_UNSUPPORTED, "the batch's matrices overlap");
    out->batch = (size_t)g.batch[0];
    out->a.step = (size_t)g.as[0];
    out->b.step = (size_t)g.bs[0];
    out->c.step = (size_t)g.cs[0];
    return SW_OK;
}

#define SIDE(S) bind[p->S.bind].buffer, bind[p->S.bind].offset / size, p->S.ld
#define CALL_PLAIN(F) F(ROW_MAJOR, ta, tb, p->m, p->n, p->k, 1, SIDE(a), SIDE(b), 0, SIDE(c), queue, NULL)
#define CALL_BATCHED(F)                                                                                                \
    F(ROW_MAJOR, ta, tb, p->m, p->n, p->k, 1, SIDE(a), p->a.step, SIDE(b), p->b.step, 0, SIDE(c), p->c.step, p->batch, \
      queue, NULL)

static sw_status call(const product *p, cl_command_queue *queue, const sw__bind *bind)
{
    const size_t size = sw_dtype_size(p->type);
    const int ta = p->a.transposed ? TRANSPOSED : PLAIN, tb = p->b.transposed ? TRANSPOSED : PLAIN;
    int code;
    if (p->type == SW_F64) code = p->batch > 1 ? CALL_BATCHED(blas.dgemm_batched) : CALL_PLAIN(blas.dgemm);
    else code = p->batch > 1 ? CALL_BATCHED(blas.sgemm_batched) : CALL_PLAIN(blas.sgemm);
    if (code == 0) return SW_OK;
    return sw__fail(SW_ERR_DEVICE, "CLBlast: %s (%d)", code > -100 ? sw__cl_code(code) : "a code of its own", code);
}

/* As a plan's launch. Timed: between two moments when nothing else is under way. */
static sw_status exec(void *dev, void *data, const sw__bind *bind)
{
    sw__cl *const c = dev;
    if (c->seconds == NULL) return call(data, &c->queue, bind);
    SW_TRY(sw__cl_driver.finish(dev));
    const double start = sw__now();
    SW_TRY(call(data, &c->queue, bind));
    SW_TRY(sw__cl_driver.finish(dev));
    *c->seconds += sw__now() - start;
    return SW_OK;
}

static void free_data(void *dev, void *data)
{
    (void)dev;
    sw__free(data);
}

/* ---- the first call ---------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const product *p, const side *s, size_t rows, size_t cols)
{
    const size_t lines = s->transposed ? cols : rows, length = s->transposed ? rows : cols;
    return ((p->batch - 1) * s->step + (lines - 1) * s->ld + length) * sw_dtype_size(p->type);
}

/* What the library leaves of a product of equal numbers, and what it should be: bytes 0x3c, 0.0115 in f32. */
static sw_status check_first(sw__cl *c, const product *p, const sw__bind *result)
{
    union { uint8_t byte[8]; float f32; double f64; } x, y;
    const size_t size = sw_dtype_size(p->type);
    memset(x.byte, 0x3c, sizeof x.byte);
    SW_TRY(sw__cl_driver.download(c, result->buffer, ((p->m - 1) * p->c.ld + p->n - 1) * size, &y, size));
    const double one = p->type == SW_F64 ? x.f64 : x.f32, got = p->type == SW_F64 ? y.f64 : y.f32;
    const double want = one * one * (double)p->k;
    if (fabs(got - want) <= 1e-3 * want) return SW_OK;
    return sw__fail(SW_ERR_UNSUPPORTED, "CLBlast gives %g where %g is right", got, want);
}

static sw_status run_once(sw__cl *c, const product *p)
{
    const size_t bytes[3] = {bytes_of(p, &p->a, p->m, p->k), bytes_of(p, &p->b, p->k, p->n), bytes_of(p, &p->c, p->m, p->n)};
    product here = *p;
    sw__bind bind[3] = {{0}};
    here.a.bind = 0;
    here.b.bind = 1;
    here.c.bind = 2;
    sw_status st = SW_OK;
    for (int i = 0; i < 3 && st == SW_OK; i++) {
        st = sw__cl_driver.alloc(c, bytes[i], &bind[i].buffer);
        if (st == SW_OK && i < 2) st = sw__cl_driver.fill(c, bind[i].buffer, 0, bytes[i], 0x3c);
    }
    if (st == SW_OK) st = call(&here, &c->queue, bind);
    if (st == SW_OK) st = sw__cl_driver.finish(c);
    if (st == SW_OK) st = check_first(c, &here, &bind[2]);
    for (int i = 0; i < 3; i++) sw__cl_driver.release(c, bind[i].buffer);
    return st;
}

/* Where it fails, whatever the reason, our kernels do it: the caller counts and tells. */
sw_status sw__cl_blas_plan(void *dev, sw__gpu_plan *plan)
{
    sw__cl *const c = dev;
    if (sw__cl_blas_name(dev) == NULL) return sw__fail(SW_ERR_UNSUPPORTED, "CLBlast is not installed any more");
    if (plan->d.op != SW_OP_MATMUL && plan->d.op != SW_OP_DOT)
        return sw__fail(SW_ERR_UNSUPPORTED, "CLBlast has products of matrices only");
    const sw__product g = sw__product_of(plan);
    product p;
    SW_TRY(describe(&g, &p));
    const double start = sw__now();
    if (run_once(c, &p) != SW_OK) return sw__prefix(SW_ERR_UNSUPPORTED, "a first call");
    sw__log(SW_LOG_DEBUG, "opencl: CLBlast's first call for '%s' took %.0f ms", plan->name, (sw__now() - start) * 1e3);
    product *const data = sw__malloc(sizeof *data);
    if (data == NULL) return sw__no_memory(sizeof *data, "a call of CLBlast");
    *data = p;
    SW_TRY(sw__gpu_add_call(plan, (sw__gpu_call){.exec = exec, .free = free_data, .data = data}));
    snprintf(plan->note, sizeof plan->note, "CLBlast%s%s", p.batch > 1 ? ", batched" : "",
             g.bias >= 0 || g.relu ? ", bias and relu apart" : "");
    return sw__product_finish(plan, &g);
}

/* In a context of its own, as in a process that has just begun. */
sw_status sw__cl_blas_start(void *dev, const sw__op_desc *d, double *seconds)
{
    const sw__cl *const c = dev;
    sw__gpu_plan plan = {.d = *d, .attr = *d->attr};
    sw__cl fresh = {.api = c->api, .entry = c->entry};
    product p;
    cl_int code = CL_SUCCESS;
    plan.d.attr = &plan.attr;
    const sw__product g = sw__product_of(&plan);
    SW_TRY(describe(&g, &p));
    const double start = sw__now();
    const cl_context_properties wanted[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)c->entry->platform, 0};
    fresh.context = c->api->clCreateContext(wanted, 1, &c->entry->id, NULL, NULL, &code);
    if (fresh.context != NULL) fresh.queue = c->api->clCreateCommandQueue(fresh.context, c->entry->id, 0, &code);
    const sw_status st = fresh.queue != NULL ? run_once(&fresh, &p) : sw__cl_fail(code, "clCreateCommandQueue");
    if (fresh.queue != NULL) (void)c->api->clReleaseCommandQueue(fresh.queue);
    if (fresh.context != NULL) (void)c->api->clReleaseContext(fresh.context);
    *seconds = sw__now() - start;
    return st;
}
