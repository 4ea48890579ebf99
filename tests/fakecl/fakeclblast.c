/* fakeclblast.c: libfakeclblast.so, products of matrices with CLBlast's names (SWOOP_CLBLAST_LIBRARY names it): computed on
 * the host, so that nothing is compiled. FAKECLBLAST=fail: every call fails; wrong: the result is. Calls are counted in
 * fakeclblast_calls. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { TRANSPOSED = 112, FAILED = -2040 };

EXPORT extern long fakeclblast_calls;
long fakeclblast_calls;

static void *find(const char *name)
{
    static void *library;
    if (library == NULL) library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    return library != NULL ? dlsym(library, name) : NULL;
}

#define REAL(name, args)                                                                                               \
    __extension__({                                                                                                    \
        __typeof__(&name) real_;                                                                                       \
        void *const symbol_ = find(#name);                                                                             \
        memcpy(&real_, &symbol_, sizeof real_);                                                                        \
        real_ args;                                                                                                    \
    })

/* All of a buffer, on the host. */
static void *all_of(cl_command_queue q, cl_mem m, size_t *bytes)
{
    if (REAL(clGetMemObjectInfo, (m, CL_MEM_SIZE, sizeof *bytes, bytes, NULL)) != CL_SUCCESS) return NULL;
    void *const p = malloc(*bytes);
    if (p != NULL) (void)REAL(clEnqueueReadBuffer, (q, m, CL_TRUE, 0, *bytes, p, 0, NULL, NULL));
    return p;
}

static int is_told(const char *what)
{
    const char *const told = getenv("FAKECLBLAST");
    return told != NULL && strcmp(told, what) == 0;
}

#define GEMM(NAME, T)                                                                                                   \
    EXPORT int NAME##StridedBatched(int layout, int ta, int tb, size_t m, size_t n, size_t k, T alpha, cl_mem a,        \
                                    size_t a_at, size_t lda, size_t sa, cl_mem b, size_t b_at, size_t ldb, size_t sb,    \
                                    T beta, cl_mem c, size_t c_at, size_t ldc, size_t sc, size_t batch,                  \
                                    cl_command_queue *q, cl_event *event);                                              \
    int NAME##StridedBatched(int layout, int ta, int tb, size_t m, size_t n, size_t k, T alpha, cl_mem a, size_t a_at,   \
                             size_t lda, size_t sa, cl_mem b, size_t b_at, size_t ldb, size_t sb, T beta, cl_mem c,      \
                             size_t c_at, size_t ldc, size_t sc, size_t batch, cl_command_queue *q, cl_event *event)    \
    {                                                                                                                   \
        size_t bytes;                                                                                                   \
        fakeclblast_calls++;                                                                                            \
        if (layout != 101 || event != NULL || is_told("fail")) return FAILED;                                           \
        T *const x = all_of(*q, a, &bytes), *const y = all_of(*q, b, &bytes), *const z = all_of(*q, c, &bytes);         \
        if (x == NULL || y == NULL || z == NULL) return FAILED;                                                         \
        for (size_t e = 0; e < batch * m * n; e++) {                                                                    \
            const size_t s = e / (m * n), i = e / n % m, j = e % n;                                                     \
            T sum = 0, *const to = &z[c_at + s * sc + i * ldc + j];                                                     \
            for (size_t l = 0; l < k; l++)                                                                              \
                sum += x[a_at + s * sa + (ta == TRANSPOSED ? l * lda + i : i * lda + l)] *                              \
                       y[b_at + s * sb + (tb == TRANSPOSED ? j * ldb + l : l * ldb + j)];                               \
            *to = alpha * sum + (beta != 0 ? beta * *to : 0) + (is_told("wrong") ? 1 : 0);                              \
        }                                                                                                               \
        (void)REAL(clEnqueueWriteBuffer, (*q, c, CL_TRUE, 0, bytes, z, 0, NULL, NULL));                                 \
        free(x);                                                                                                        \
        free(y);                                                                                                        \
        free(z);                                                                                                        \
        return 0;                                                                                                       \
    }                                                                                                                   \
    EXPORT int NAME(int layout, int ta, int tb, size_t m, size_t n, size_t k, T alpha, cl_mem a, size_t a_at,           \
                    size_t lda, cl_mem b, size_t b_at, size_t ldb, T beta, cl_mem c, size_t c_at, size_t ldc,           \
                    cl_command_queue *q, cl_event *event);                                                              \
    int NAME(int layout, int ta, int tb, size_t m, size_t n, size_t k, T alpha, cl_mem a, size_t a_at, size_t lda,      \
             cl_mem b, size_t b_at, size_t ldb, T beta, cl_mem c, size_t c_at, size_t ldc, cl_command_queue *q,         \
             cl_event *event)                                                                                           \
    {                                                                                                                   \
        return NAME##StridedBatched(layout, ta, tb, m, n, k, alpha, a, a_at, lda, 0, b, b_at, ldb, 0, beta, c, c_at,    \
                                    ldc, 0, 1, q, event);                                                               \
    }

GEMM(CLBlastSgemm, float)
GEMM(CLBlastDgemm, double)
