/* lt_matmul.c: MATMUL and DOT through cuBLASLt. The plan has descriptors, algorithm and workspace; exec hands over
 * pointers. The library counts columns first: a row-major c = a b is its c' = b' a'. What it cannot take is
 * SW_ERR_UNSUPPORTED with the reason, and our kernels do it. Between cu_library.c and the library. */
#include "backend/cuda/cu.h"
#include "backend/cuda/lt.h"
#include "backend/gpu/ops/big.h"
#include "backend/gpu/tune.h"

#include <stdio.h>

/* Enough for what the library splits; more would only make the arena larger. */
#define WORKSPACE ((uint64_t)32 << 20)
enum { MOST_CALLS = 256, MOST_FOUND = 8 };

static const struct {
    sw_dtype type;
    int storage, scale, compute, tf32;
} types[] = {
    { SW_F32, SW_CUDA_R_32F, SW_CUDA_R_32F, SW_CUBLAS_COMPUTE_32F, SW_CUBLAS_COMPUTE_32F_FAST_TF32 },
    { SW_F64, SW_CUDA_R_64F, SW_CUDA_R_64F, SW_CUBLAS_COMPUTE_64F, SW_CUBLAS_COMPUTE_64F },
    { SW_F16, SW_CUDA_R_16F, SW_CUDA_R_32F, SW_CUBLAS_COMPUTE_32F, SW_CUBLAS_COMPUTE_32F },
    { SW_BF16, SW_CUDA_R_16BF, SW_CUDA_R_32F, SW_CUBLAS_COMPUTE_32F, SW_CUBLAS_COMPUTE_32F },
};

/* A matrix as the library sees it: columns `ld` apart. */
typedef struct operand {
    int bind;
    bool transposed;
    uint64_t rows, cols;
    int64_t ld;
    uint32_t align;
} operand;

/* A product that the library runs in `calls` calls: one batch axis is its own, the others are walked here. */
typedef struct product {
    const sw__lt *lt;
    void *desc, *layout[3]; /* of the library's A, B, D */
    operand part[3];
    int bias; /* number among the plan's buffers, or -1 */
    int workspace_bind;
    int type;        /* into types[] */
    int rank, calls; /* axes that are walked */
    int64_t batch[SW_MAX_RANK];
    size_t step[SW_MAX_RANK][3]; /* bytes */
    sw__lt_algo algo;
    size_t workspace;
    float waves;
    int way, ways; /* which of the library's algorithms, of how many */
} product;

static sw_status failed(const sw__lt_api *api, int status, const char *call)
{
    const char *const name = api->cublasLtGetStatusString(status);
    return sw__fail(status == SW_CUBLAS_STATUS_ALLOC_FAILED ? SW_ERR_MEMORY : SW_ERR_UNSUPPORTED, "%s: %s (%d)", call,
                    name != NULL ? name : "?", status);
}

#define LT_TRY(api, f, ...)                                                                                            \
    do {                                                                                                               \
        const int status_ = (api)->f(__VA_ARGS__);                                                                     \
        if (status_ != 0) return failed((api), status_, #f);                                                           \
    } while (0)

/* ---- the op as the library's matrices ---------------------------------------------------------------------------- */

static uint32_t low_bit(size_t bytes, uint32_t most)
{
    const size_t both = bytes | most;
    return (uint32_t)(both & (~both + 1));
}

/* A matrix of rows x cols elements whose neighbours are `down` and `right` apart. */
static sw_status operand_of(const char *what, int64_t rows, int64_t cols, int64_t down, int64_t right, operand *o)
{
    o->transposed = down != 1;
    o->rows = (uint64_t)(o->transposed ? cols : rows);
    o->cols = (uint64_t)(o->transposed ? rows : cols);
    o->ld = o->transposed ? down : right;
    if ((down != 1 && right != 1) || o->ld < (int64_t)o->rows)
        return sw__fail(SW_ERR_UNSUPPORTED, "strides %lld and %lld of %s are none that cuBLASLt takes", (long long)down,
                        (long long)right, what);
    return SW_OK;
}

/* g: rows of c lie in memory as they are counted. */
static sw_status set_operands(const sw__gpu_plan *p, const sw__matrices *g, bool swapped, product *t)
{
    const int a = swapped ? 1 : 0;
    const sw__desc *const desc = p->desc;
    SW_TRY(operand_of("the right side", g->n, g->k, g->bn, g->bk, &t->part[0]));
    SW_TRY(operand_of("the left side", g->k, g->m, g->ak, g->am, &t->part[1]));
    SW_TRY(operand_of("the result", g->n, g->m, g->cn, g->cm, &t->part[2]));
    if (t->part[2].transposed) return sw__fail(SW_ERR_UNSUPPORTED, "cuBLASLt writes no transposed result");
    t->part[0].bind = 1 - a;
    t->part[1].bind = a;
    t->part[2].bind = p->d.n_in;
    for (int i = 0; i < 3; i++) {
        const uint16_t align = desc[t->part[i].bind].align;
        t->part[i].align = align != 0 ? SW_MIN(align, (uint16_t)16) : 16;
    }
    return SW_OK;
}

/* The axis with the most points goes to the library, the others are walked. */
static sw_status set_batches(const sw__matrices *g, size_t size, product *t, int *own)
{
    *own = -1;
    t->calls = 1;
    for (int i = 0; i < g->rank; i++)
        if (g->batch[i] > 1 && (*own < 0 || g->batch[i] > g->batch[*own])) *own = i;
    for (int i = 0; i < g->rank; i++) {
        const int64_t steps[3] = { g->bs[i], g->as[i], g->cs[i] };
        for (int k = 0; k < 3; k++)
            if (steps[k] < 0 || (k == 2 && steps[k] == 0))
                return sw__fail(SW_ERR_UNSUPPORTED, "batches %lld elements apart", (long long)steps[k]);
        for (int k = 0; k < 3; k++)
            if (steps[k] > 0) t->part[k].align = low_bit((size_t)steps[k] * size, t->part[k].align);
        if (i == *own) continue;
        t->batch[t->rank] = g->batch[i];
        for (int k = 0; k < 3; k++) t->step[t->rank][k] = (size_t)steps[k] * size;
        t->rank++;
        if (g->batch[i] > MOST_CALLS / t->calls)
            return sw__fail(SW_ERR_UNSUPPORTED, "more than %d products of batches that do not follow each other",
                            MOST_CALLS);
        t->calls *= (int)g->batch[i];
    }
    return SW_OK;
}

/* ---- the library's descriptors ----------------------------------------------------------------------------------- */

static sw_status make_layout(const sw__lt_api *api, const product *t, int k, int64_t count, int64_t step, void **out)
{
    const operand *const o = &t->part[k];
    const int32_t batches = (int32_t)count;
    LT_TRY(api, cublasLtMatrixLayoutCreate, out, types[t->type].storage, o->rows, o->cols, o->ld);
    if (count == 1) return SW_OK;
    LT_TRY(api, cublasLtMatrixLayoutSetAttribute, *out, SW_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
           sizeof batches);
    LT_TRY(api, cublasLtMatrixLayoutSetAttribute, *out, SW_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
           sizeof step);
    return SW_OK;
}

static sw_status set_bias(const sw__lt_api *api, const product *t, const void *pointer)
{
    LT_TRY(api, cublasLtMatmulDescSetAttribute, t->desc, SW_CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointer,
           sizeof pointer);
    return SW_OK;
}

static sw_status make_desc(const sw__lt_api *api, product *t, bool tf32, uint32_t bias_align)
{
    const int32_t ops[2] = { t->part[0].transposed ? SW_CUBLAS_OP_T : SW_CUBLAS_OP_N,
                             t->part[1].transposed ? SW_CUBLAS_OP_T : SW_CUBLAS_OP_N };
    const uint32_t epilogue = t->bias >= 0 ? SW_CUBLASLT_EPILOGUE_BIAS : SW_CUBLASLT_EPILOGUE_DEFAULT;
    LT_TRY(api, cublasLtMatmulDescCreate, &t->desc, tf32 ? types[t->type].tf32 : types[t->type].compute,
           types[t->type].scale);
    LT_TRY(api, cublasLtMatmulDescSetAttribute, t->desc, SW_CUBLASLT_MATMUL_DESC_TRANSA, &ops[0], sizeof ops[0]);
    LT_TRY(api, cublasLtMatmulDescSetAttribute, t->desc, SW_CUBLASLT_MATMUL_DESC_TRANSB, &ops[1], sizeof ops[1]);
    LT_TRY(api, cublasLtMatmulDescSetAttribute, t->desc, SW_CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    /* the choice of an algorithm looks at how the pointer is aligned, not at what is there */
    return t->bias >= 0 ? set_bias(api, t, (const void *)(uintptr_t)bias_align)
                        : SW_OK; // NOLINT(performance-no-int-to-ptr)
}

/* Sums that are split are added up in f32 (of f64: in f64), in a fixed order: no results of 16 bits in between. */
static sw_status set_preference(const sw__lt_api *api, const product *t, void *preference)
{
    static const int aligns[] = { SW_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                  SW_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                  SW_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                  SW_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
    const uint64_t most = WORKSPACE;
    const uint32_t schemes = SW_CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    LT_TRY(api, cublasLtMatmulPreferenceSetAttribute, preference, SW_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
           sizeof most);
    LT_TRY(api, cublasLtMatmulPreferenceSetAttribute, preference, SW_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           &schemes, sizeof schemes);
    for (int i = 0; i < 4; i++)
        LT_TRY(api, cublasLtMatmulPreferenceSetAttribute, preference, aligns[i], &t->part[SW_MIN(i, 2)].align,
               sizeof(uint32_t));
    return SW_OK;
}

/* The algorithm that a trial found (backend/gpu/tune.h), otherwise the library's first. */
static sw_status choose_with(const sw__lt *lt, product *t, void *preference)
{
    sw__lt_found found[MOST_FOUND];
    int n = 0;
    memset(found, 0, sizeof found);
    SW_TRY(set_preference(lt->api, t, preference));
    LT_TRY(lt->api, cublasLtMatmulAlgoGetHeuristic, lt->handle, t->desc, t->layout[0], t->layout[1], t->layout[2],
           t->layout[2], preference, MOST_FOUND, found, &n);
    const int wish = t->way;
    t->way = 0;
    for (int i = 0; i < n; i++) {
        if (found[i].state != 0 || found[i].workspace > WORKSPACE) continue;
        const int way = t->ways++;
        if (way != 0 && way != wish) continue;
        t->way = way;
        t->algo = found[i].algo;
        t->workspace = found[i].workspace;
        t->waves = found[i].waves;
    }
    return t->ways > 0 ? SW_OK : sw__fail(SW_ERR_UNSUPPORTED, "cuBLASLt proposes no algorithm");
}

static sw_status choose(const sw__lt *lt, product *t)
{
    void *preference = NULL;
    LT_TRY(lt->api, cublasLtMatmulPreferenceCreate, &preference);
    const sw_status st = choose_with(lt, t, preference);
    lt->api->cublasLtMatmulPreferenceDestroy(preference);
    return st;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static sw_status run(void *dev, void *data, const sw__bind *bind)
{
    static const float one = 1, zero = 0;
    static const double one_wide = 1, zero_wide = 0;
    sw__cu *const c = dev;
    const product *const t = data;
    const sw__lt_api *const api = t->lt->api;
    const bool wide = types[t->type].scale == SW_CUDA_R_64F;
    void *const workspace = t->workspace > 0 ? sw__cu_pointer(&bind[t->workspace_bind], 0) : NULL;
    c->last = "cublasLtMatmul";
    if (t->bias >= 0) SW_TRY(set_bias(api, t, sw__cu_pointer(&bind[t->bias], 0)));
    for (int i = 0; i < t->calls; i++) {
        size_t at[3] = { 0 };
        int64_t rest = i;
        for (int l = t->rank - 1; l >= 0; rest /= t->batch[l--])
            for (int k = 0; k < 3; k++) at[k] += (size_t)(rest % t->batch[l]) * t->step[l][k];
        void *const to = sw__cu_pointer(&bind[t->part[2].bind], at[2]);
        const int status = api->cublasLtMatmul(t->lt->handle, t->desc, wide ? (const void *)&one_wide : &one,
                                               sw__cu_pointer(&bind[t->part[0].bind], at[0]), t->layout[0],
                                               sw__cu_pointer(&bind[t->part[1].bind], at[1]), t->layout[1],
                                               wide ? (const void *)&zero_wide : &zero, to, t->layout[2], to,
                                               t->layout[2], &t->algo, workspace, t->workspace, c->stream);
        if (status != 0) {
            const char *const name = api->cublasLtGetStatusString(status);
            return sw__fail(SW_ERR_DEVICE, "cuda: cublasLtMatmul: %s (%d)", name != NULL ? name : "?", status);
        }
    }
    return SW_OK;
}

static void end(void *dev, void *data)
{
    product *const t = data;
    (void)dev;
    for (int i = 0; i < 3; i++)
        if (t->layout[i] != NULL) t->lt->api->cublasLtMatrixLayoutDestroy(t->layout[i]);
    if (t->desc != NULL) t->lt->api->cublasLtMatmulDescDestroy(t->desc);
    sw__free(t);
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static sw_status fill(const sw__cu *c, const sw__gpu_plan *p, product *t)
{
    const sw_dtype type = (sw_dtype)p->d.out[0].dtype;
    sw__matrices g = sw__matrices_of(&p->d);
    int own = -1;
    t->bias = p->d.n_in > 2 ? 2 : -1;
    t->type = -1;
    for (size_t i = 0; i < SW_COUNT(types); i++)
        if (types[i].type == type) t->type = (int)i;
    if (t->type < 0) return sw__fail(SW_ERR_UNSUPPORTED, "cuBLASLt has no products of %s", sw_dtype_name(type));
    if (sw__desc_elements(&p->d.out[0]) == 0 || g.k == 0) return sw__fail(SW_ERR_UNSUPPORTED, "nothing to multiply");
    const bool swapped = g.cn != 1 && g.cm == 1;
    if (swapped && t->bias >= 0) return sw__fail(SW_ERR_UNSUPPORTED, "a bias along the rows of a transposed result");
    if (swapped) g = sw__matrices_transposed(&g);
    SW_TRY(set_operands(p, &g, swapped, t));
    SW_TRY(set_batches(&g, sw_dtype_size(type), t, &own));
    uint32_t bias_align = 16;
    if (t->bias >= 0) {
        const sw__desc *const b = &p->desc[2];
        if (b->dim[0] > 1 && b->stride[0] != 1) return sw__fail(SW_ERR_UNSUPPORTED, "a bias with gaps");
        if (b->align != 0) bias_align = SW_MIN(b->align, (uint16_t)16);
    }
    SW_TRY(make_desc(t->lt->api, t, c->tf32, bias_align));
    const int64_t count = own >= 0 ? g.batch[own] : 1;
    const int64_t steps[3] = { own >= 0 ? g.bs[own] : 0, own >= 0 ? g.as[own] : 0, own >= 0 ? g.cs[own] : 0 };
    if (count > INT32_MAX) return sw__fail(SW_ERR_UNSUPPORTED, "%lld batches", (long long)count);
    for (int k = 0; k < 3; k++) SW_TRY(make_layout(t->lt->api, t, k, count, steps[k], &t->layout[k]));
    return choose(t->lt, t);
}

sw_status sw__lt_plan(sw__cu *c, sw__lt *lt, sw__gpu_plan *p)
{
    product *const t = sw__calloc(1, sizeof *t);
    if (t == NULL) return sw__no_memory(sizeof *t, "a product's plan");
    t->lt = lt;
    t->workspace_bind = p->n_bind;
    t->way = p->variant / SW__GPU_WAY;
    const sw_status st = fill(c, p, t);
    if (st != SW_OK) {
        end(c, t);
        return st;
    }
    p->workspace = t->workspace;
    p->ways = t->ways;
    char other[24] = "";
    if (t->way > 0) snprintf(other, sizeof other, ", algorithm %d", t->way + 1);
    snprintf(p->note, sizeof p->note, "cuBLASLt%s%s, %.1f waves%s",
             c->tf32 && types[t->type].type == SW_F32 ? " tf32" : "", other, (double)t->waves,
             t->calls > 1 ? ", call by call" : "");
    SW_TRY(sw__gpu_add_call(p, (sw__gpu_call){ .exec = run, .free = end, .data = t }));
    const bool relu = p->d.op == SW_OP_MATMUL && p->d.attr->act.act == SW_ACT_RELU;
    return relu ? sw__big_relu(p, p->d.n_in, &p->d.out[0]) : SW_OK;
}

/* ---- the device's handle ----------------------------------------------------------------------------------------- */

sw_status sw__lt_open(sw__cu *c, sw__lt *lt)
{
    (void)c; /* its context is current: that is what the handle belongs to */
    SW_TRY(sw__lt_load(&lt->api));
    LT_TRY(lt->api, cublasLtCreate, &lt->handle);
    return SW_OK;
}

void sw__lt_close(sw__lt *lt)
{
    if (lt->handle != NULL) lt->api->cublasLtDestroy(lt->handle);
    lt->handle = NULL;
}

/* What the order of its proposals depends on beside the problem. */
void sw__lt_label(const sw__cu *c, const sw__lt *lt, const sw__op_desc *d, char *out, size_t size)
{
    int align = 16;
    for (int i = 0; i < d->n_in + d->n_out; i++) {
        const sw__desc *const t = i < d->n_in ? &d->in[i] : &d->out[i - d->n_in];
        if (t->align != 0) align = SW_MIN(align, (int)t->align);
    }
    snprintf(out, size, "cublasLt %zu%s a%d", lt->api->cublasLtGetVersion(), c->tf32 ? " tf32" : "", align);
}
