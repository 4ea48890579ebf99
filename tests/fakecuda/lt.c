/* lt.c: a fake libcublasLt.so.13: the functions that swoop calls, with the library's rules about descriptors,
 * alignment, workspace and epilogues; products run as work in the fake libcuda's streams (lt_run.c).
 * FAKECUDA_REFUSE=seed: about a third of all problems are refused with NOT_SUPPORTED, always the same ones.
 * FAKECUDA_LT_FAST=n: of the algorithms of a problem (there are three, with sums in different orders) all but the n-th
 * take some milliseconds more.
 * FAKECUDA_CUBLASLT: another version. */
#include "fake_lt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char kind_handle[] = "cublasLt handle", kind_desc[] = "cublasLt desc", kind_layout[] = "cublasLt layout",
                  kind_preference[] = "cublasLt preference";

typedef struct preference {
    uint64_t workspace;
    uint32_t schemes, align[4];
} preference;

/* ---- library ----------------------------------------------------------------------------------------------------- */

FK_EXPORT size_t cublasLtGetVersion(void)
{
    const char *const version = getenv("FAKECUDA_CUBLASLT");
    return version != NULL ? strtoul(version, NULL, 10) : 130000;
}

FK_EXPORT const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
        return "unknown";
    }
}

static void *make(const char *kind, size_t size)
{
    void *const p = calloc(1, size);
    if (p != NULL) fk.made(kind, p);
    return p;
}

static cublasStatus_t drop(const char *kind, void *p)
{
    if (!fk.gone(kind, p)) return CUBLAS_STATUS_INVALID_VALUE;
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

/* The real cuDNN behind the fake one finds this library too, for engines of its own: it is told what the real cuBLASLt
 * says where there is no GPU, and plans as it does then. */
static bool from_cudnn(const void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) != 0 && info.dli_fname != NULL && strstr(info.dli_fname, "libcudnn") != NULL;
}

FK_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    void *context = NULL;
    if (from_cudnn(__builtin_return_address(0))) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!fk_link() || fk.current(&context) != 0 || context == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
    const int code = fk.fail("cublasLtCreate");
    if (code != 0) return (cublasStatus_t)code;
    *handle = make(kind_handle, 16);
    return *handle != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

FK_EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return drop(kind_handle, handle);
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

/* Where an attribute is in a struct, and how large. */
typedef struct place {
    int name;
    size_t at, size;
} place;
#define PLACE(name, type, field)                                                                                       \
    {                                                                                                                  \
        name, offsetof(type, field), sizeof(((type *)0)->field)                                                        \
    }

static const place desc_places[] = {
    PLACE(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, fk_lt_desc, compute),
    PLACE(CUBLASLT_MATMUL_DESC_SCALE_TYPE, fk_lt_desc, scale),
    PLACE(CUBLASLT_MATMUL_DESC_POINTER_MODE, fk_lt_desc, pointer_mode),
    PLACE(CUBLASLT_MATMUL_DESC_TRANSA, fk_lt_desc, trans[0]),
    PLACE(CUBLASLT_MATMUL_DESC_TRANSB, fk_lt_desc, trans[1]),
    PLACE(CUBLASLT_MATMUL_DESC_EPILOGUE, fk_lt_desc, epilogue),
    PLACE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, fk_lt_desc, bias),
    PLACE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, fk_lt_desc, bias_type),
};
static const place layout_places[] = {
    PLACE(CUBLASLT_MATRIX_LAYOUT_TYPE, fk_lt_layout, type),
    PLACE(CUBLASLT_MATRIX_LAYOUT_ORDER, fk_lt_layout, order),
    PLACE(CUBLASLT_MATRIX_LAYOUT_ROWS, fk_lt_layout, rows),
    PLACE(CUBLASLT_MATRIX_LAYOUT_COLS, fk_lt_layout, cols),
    PLACE(CUBLASLT_MATRIX_LAYOUT_LD, fk_lt_layout, ld),
    PLACE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, fk_lt_layout, batches),
    PLACE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, fk_lt_layout, step),
};
static const place preference_places[] = {
    PLACE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, preference, workspace),
    PLACE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, preference, schemes),
    PLACE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, preference, align[0]),
    PLACE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, preference, align[1]),
    PLACE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, preference, align[2]),
    PLACE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, preference, align[3]),
};

static void *find(const place *places, size_t n, void *object, int name, size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (places[i].name == name && places[i].size == size && object != NULL) return (char *)object + places[i].at;
    if (fk_link())
        fk.report("cublasLt: attribute %d of %zu bytes: not known to the fake, or of another size", name, size);
    return NULL;
}

static cublasStatus_t set(const place *places, size_t n, void *object, int name, const void *value, size_t size)
{
    void *const to = find(places, n, object, name, size);
    if (to == NULL || value == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(const place *places, size_t n, void *object, int name, void *value, size_t size,
                          size_t *written)
{
    const void *const from = find(places, n, object, name, size);
    if (from == NULL || value == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, from, size);
    if (written != NULL) *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

FK_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                                  cudaDataType_t scale)
{
    if (!fk_link()) return CUBLAS_STATUS_NOT_INITIALIZED;
    const int code = fk.fail("cublasLtMatmulDescCreate");
    if (code != 0) return (cublasStatus_t)code;
    fk_lt_desc *const d = make(kind_desc, sizeof *d);
    if (d == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
    d->compute = (int32_t)compute;
    d->scale = (int32_t)scale;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    d->bias_type = -1;
    *out = (cublasLtMatmulDesc_t)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}

FK_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return drop(kind_desc, d);
}

FK_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                                        const void *value, size_t size)
{
    return set(desc_places, COUNT(desc_places), d, (int)name, value, size);
}

FK_EXPORT cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                                        void *value, size_t size, size_t *written)
{
    return get(desc_places, COUNT(desc_places), d, (int)name, value, size, written);
}

FK_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                                    uint64_t cols, int64_t ld)
{
    if (!fk_link()) return CUBLAS_STATUS_NOT_INITIALIZED;
    const int code = fk.fail("cublasLtMatrixLayoutCreate");
    if (code != 0) return (cublasStatus_t)code;
    if (rows == 0 || cols == 0) {
        fk.report("cublasLtMatrixLayoutCreate: %llu x %llu", (unsigned long long)rows, (unsigned long long)cols);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    fk_lt_layout *const l = make(kind_layout, sizeof *l);
    if (l == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
    l->type = (uint32_t)type;
    l->rows = rows;
    l->cols = cols;
    l->ld = ld;
    l->batches = 1;
    *out = (cublasLtMatrixLayout_t)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

FK_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return drop(kind_layout, l);
}

FK_EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                          cublasLtMatrixLayoutAttribute_t name, const void *value,
                                                          size_t size)
{
    return set(layout_places, COUNT(layout_places), l, (int)name, value, size);
}

FK_EXPORT cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l,
                                                          cublasLtMatrixLayoutAttribute_t name, void *value,
                                                          size_t size, size_t *written)
{
    return get(layout_places, COUNT(layout_places), l, (int)name, value, size, written);
}

FK_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    if (!fk_link()) return CUBLAS_STATUS_NOT_INITIALIZED;
    preference *const p = make(kind_preference, sizeof *p);
    if (p == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
    p->schemes = 7;
    for (int i = 0; i < 4; i++) p->align[i] = 256;
    *out = (cublasLtMatmulPreference_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

FK_EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return drop(kind_preference, p);
}

FK_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                              cublasLtMatmulPreferenceAttributes_t name,
                                                              const void *value, size_t size)
{
    return set(preference_places, COUNT(preference_places), p, (int)name, value, size);
}

/* ---- algorithms -------------------------------------------------------------------------------------------------- */

/* What an algorithm of the fake's holds, in the eight words that callers copy. */
typedef struct algo {
    uint64_t magic, problem, workspace;
    uint32_t align[4], bias_align, number, unused[4]; /* number: 1, 2, … */
} algo;
_Static_assert(sizeof(algo) == sizeof(cublasLtMatmulAlgo_t), "an algorithm is eight words");
enum { MAGIC = 0x4C7A160, ALGORITHMS = 3 };

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static uint64_t hash_of(const fk_lt_problem *p)
{
    uint64_t h = mix(1, (uint64_t)p->desc.compute);
    h = mix(mix(mix(h, (uint64_t)p->desc.trans[0]), (uint64_t)p->desc.trans[1]), p->desc.epilogue);
    for (int i = 0; i < 4; i++) {
        const fk_lt_layout *const l = &p->layout[i];
        h = mix(mix(mix(mix(h, l->type), l->rows), l->cols), (uint64_t)l->ld);
        h = mix(mix(h, (uint64_t)l->batches), (uint64_t)l->step);
    }
    return h;
}

static fk_lt_problem problem_of(void *desc, void *a, void *b, void *c, void *d)
{
    fk_lt_problem p;
    memset(&p, 0, sizeof p);
    memcpy(&p.desc, desc, sizeof p.desc);
    const void *const from[4] = { a, b, c, d };
    for (int i = 0; i < 4; i++) memcpy(&p.layout[i], from[i], sizeof p.layout[i]);
    return p;
}

static bool refused(uint64_t hash)
{
    const char *const seed = getenv("FAKECUDA_REFUSE");
    return seed != NULL && *seed != '\0' && mix(hash, strtoull(seed, NULL, 10)) % 3 == 0;
}

static uint32_t low_bit(uint64_t v)
{
    return (uint32_t)((v | 256) & (~(v | 256) + 1));
}

/* Tensor cores of 16-bit types want 16 bytes; below that there are slower algorithms, which want an element. */
static void describe_algo(const fk_lt_problem *p, const preference *pref, uint64_t hash, uint32_t number,
                          cublasLtMatmulHeuristicResult_t *r)
{
    algo a = { .magic = MAGIC, .problem = hash, .number = number, .workspace = (hash + number) % 4 * 8192 };
    if (a.workspace > pref->workspace) a.workspace = 0;
    for (int i = 0; i < 4; i++) a.align[i] = pref->align[i] < 16 ? pref->align[i] : 16;
    a.bias_align = low_bit((uint64_t)(uintptr_t)p->desc.bias);
    memset(r, 0, sizeof *r);
    memcpy(&r->algo, &a, sizeof a);
    r->workspaceSize = a.workspace;
    r->state = CUBLAS_STATUS_SUCCESS;
    r->wavesCount = 1.0f;
}

FK_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                        cublasLtMatmulPreference_t pref, int room,
                                                        cublasLtMatmulHeuristicResult_t found[], int *n)
{
    preference wish;
    *n = 0;
    if (!fk_link() || handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
    const int code = fk.fail("cublasLtMatmulAlgoGetHeuristic");
    if (code != 0) return (cublasStatus_t)code;
    if (room < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const fk_lt_problem p = problem_of(desc, a, b, c, d);
    memcpy(&wish, (void *)pref, sizeof wish);
    const cublasStatus_t st = fk_lt_check(&p);
    if (st != CUBLAS_STATUS_SUCCESS) return st;
    const uint64_t hash = hash_of(&p);
    if (refused(hash)) return CUBLAS_STATUS_NOT_SUPPORTED;
    const size_t size = fk_size(fk_lt_type(p.layout[0].type));
    for (int i = 0; i < 4; i++)
        if (wish.align[i] < size) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (; *n < room && *n < ALGORITHMS; ++*n) describe_algo(&p, &wish, hash, (uint32_t)*n + 1, &found[*n]);
    return CUBLAS_STATUS_SUCCESS;
}

FK_EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                 const cublasLtMatmulAlgo_t *given,
                                                 cublasLtMatmulHeuristicResult_t *result)
{
    algo held;
    (void)handle;
    memcpy(&held, given, sizeof held);
    const fk_lt_problem p = problem_of(desc, a, b, c, d);
    if (held.magic != MAGIC || held.problem != hash_of(&p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(result, 0, sizeof *result);
    memcpy(&result->algo, given, sizeof *given);
    result->workspaceSize = held.workspace;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

static cublasStatus_t misuse(const char *what, uint64_t have, uint64_t need)
{
    fk.report("cublasLtMatmul: %s: %llu, %llu is needed", what, (unsigned long long)have, (unsigned long long)need);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* What the library would answer with INVALID_VALUE, or, worse, compute wrongly. */
static cublasStatus_t check_call(const fk_lt_problem *p, const algo *a, const uint64_t at[4], const void *workspace,
                                 size_t bytes)
{
    static const char *const names[] = { "alignment of A", "alignment of B", "alignment of C", "alignment of D" };
    if (a->magic != MAGIC) return misuse("this is no algorithm of the heuristic's", 0, 1);
    if (a->problem != hash_of(p)) return misuse("the algorithm is another problem's", a->problem, hash_of(p));
    if (bytes < a->workspace) return misuse("bytes of workspace", bytes, a->workspace);
    if (a->workspace > 0 && low_bit((uint64_t)(uintptr_t)workspace) < 16)
        return misuse("alignment of the workspace", 1, 16);
    for (int i = 0; i < 4; i++)
        if (low_bit(at[i]) < a->align[i]) return misuse(names[i], low_bit(at[i]), a->align[i]);
    if (p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS && low_bit((uint64_t)(uintptr_t)p->desc.bias) < a->bias_align)
        return misuse("alignment of the bias", low_bit((uint64_t)(uintptr_t)p->desc.bias), a->bias_align);
    return CUBLAS_STATUS_SUCCESS;
}

FK_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                                        const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                                        cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                                        cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                                        const cublasLtMatmulAlgo_t *given, void *workspace, size_t bytes,
                                        cudaStream_t stream)
{
    const char *const fast = getenv("FAKECUDA_LT_FAST");
    void *context = NULL;
    algo held = { 0 };
    if (!fk_link() || handle == NULL || fk.current(&context) != 0 || context == NULL)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    const int code = fk.fail("cublasLtMatmul");
    if (code != 0) return (cublasStatus_t)code;
    if (given == NULL) return misuse("no algorithm", 0, 1);
    memcpy(&held, given, sizeof held);
    fk_lt_job *const job = calloc(1, sizeof *job);
    if (job == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
    job->p = problem_of(desc, a_layout, b_layout, c_layout, d_layout);
    const uint64_t at[4] = { (uintptr_t)a, (uintptr_t)b, (uintptr_t)c, (uintptr_t)d };
    memcpy(job->at, at, sizeof at);
    job->workspace = (uintptr_t)workspace;
    job->workspace_bytes = held.workspace;
    job->algorithm = (int)held.number;
    job->slow = fast != NULL && *fast != '\0' && strtol(fast, NULL, 10) != (long)held.number;
    const bool wide = job->p.desc.scale == CUDA_R_64F;
    job->alpha = fk_load(wide ? FK_F64 : FK_F32, alpha);
    job->beta = fk_load(wide ? FK_F64 : FK_F32, beta);
    const cublasStatus_t st = check_call(&job->p, &held, at, workspace, bytes);
    if (st != CUBLAS_STATUS_SUCCESS) {
        free(job);
        return st;
    }
    return fk.work(stream, "cublasLtMatmul", fk_lt_run, free, job) == 0 ? CUBLAS_STATUS_SUCCESS
                                                                        : CUBLAS_STATUS_EXECUTION_FAILED;
}
