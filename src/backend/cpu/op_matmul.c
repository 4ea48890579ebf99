/* op_matmul.c: MATMUL and DOT: [B…, M, K] x [B…, K, N] -> [B…, M, N], optional bias and relu.
 * Planned once: batch axes are merged, or folded into M where all share one right side; then own loops for a
 * single row (gemv.h), oneDNN, or the own product where it was measured to be faster (docs/decisions/020-cpu-backend.md), or
 * plain loops for f64 and odd strides. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/gemv.h"

#include <stdio.h>

typedef struct matmul {
    sw__gemm g;
    sw__dnn_job *job;  /* NULL: own loops */
} matmul;

/* ---- what is to be computed -------------------------------------------------------------------------------------- */

/* A vector with gaps is not taken: oneDNN 3.7 computes with its neighbours. */
static bool plain(int64_t rows, int64_t cols, int64_t rs, int64_t cs)
{
    if (rows <= 1 || cols <= 1) return (cols <= 1 || cs == 1) && (rows <= 1 || rs == 1);
    return (cs == 1 && rs >= cols) || (rs == 1 && cs >= rows);
}

bool sw__cpu_matmul_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i)
{
    (void)cpu;
    const sw__desc *const t = &d->in[i];
    if (i == 2) return t->dim[0] <= 1 || t->stride[0] == 1;
    const int row = t->rank - 2, col = t->rank - 1;
    return sw__cpu_nested(t) && plain(t->dim[row], t->dim[col], t->stride[row], t->stride[col]);
}

static void describe(const sw__op_desc *d, sw__gemm *g)
{
    g->matrices = sw__matrices_of(d);
    g->bias = d->n_in > 2;
    g->bias_stride = g->bias && d->in[2].dim[0] > 1 ? d->in[2].stride[0] : 1;
    g->relu = d->op == SW_OP_MATMUL && d->attr->act.act == SW_ACT_RELU;
}

/* ---- oneDNN ------------------------------------------------------------------------------------------------------ */

static sw__dnn_operand operand(const sw__gemm *g, uint8_t type, int slot, const int64_t *batch_stride, int64_t rows, int64_t cols,
                               int64_t rs, int64_t cs)
{
    sw__dnn_operand o = {.slot = slot};
    o.desc.dtype = type;
    o.desc.rank = (uint8_t)(g->rank + 2);
    for (int i = 0; i < g->rank; i++) {
        const bool broadcast = batch_stride[i] == 0;
        o.desc.dim[i] = broadcast ? 1 : g->batch[i];
        o.desc.stride[i] = broadcast ? rows * cols : batch_stride[i];
    }
    o.desc.dim[g->rank] = rows;
    o.desc.dim[g->rank + 1] = cols;
    o.desc.stride[g->rank] = rs;
    o.desc.stride[g->rank + 1] = cs;
    return o;
}

static bool dnn_can(const sw__gemm *g)
{
    for (int i = 0; i < g->rank; i++)
        if (g->as[i] == 0 && g->bs[i] == 0) return false;
    return g->cn == 1 && g->cm >= g->n && plain(g->m, g->k, g->am, g->ak) && plain(g->k, g->n, g->bk, g->bn) &&
           (!g->bias || g->bias_stride == 1 || g->n == 1);
}

/* The right side is one matrix that all rows share. */
static bool whole(const sw__gemm *g)
{
    for (int i = 0; i < g->rank; i++)
        if (g->batch[i] != 1) return false;
    return true;
}

static size_t packs(const sw__cpu_plan *p, int input)
{
    const matmul *const s = p->state;
    return s->job != NULL ? sw__dnn_packed(s->job, input) : 0;
}

static sw_status pack(sw__cpu_plan *p, int input, void *from, void *to)
{
    return sw__dnn_pack(((matmul *)p->state)->job, input, from, to);
}

static sw_status plan_dnn(sw__cpu_plan *p, matmul *s)
{
    const sw__gemm *const g = &s->g;
    const sw__dnn_operand a = operand(g, p->d.out[0].dtype, 0, g->as, g->m, g->k, g->am, g->ak);
    sw__dnn_operand b = operand(g, p->d.out[0].dtype, 1, g->bs, g->k, g->n, g->bk, g->bn);
    const sw__dnn_operand c = operand(g, p->d.out[0].dtype, p->d.n_in, g->cs, g->m, g->n, g->cm, g->cn);
    if (sw__cpu_fixed(p, 1) && whole(g)) b.format = SW_DNN_PACKED;
    sw__dnn_operand bias = {.slot = 2};
    if (g->bias) bias.desc = p->d.in[2];
    SW_TRY(sw__dnn_matmul(p->cpu->dnn, &a, &b, g->bias ? &bias : NULL, &c, &s->job));
    p->workspace = sw__dnn_workspace(s->job);
    snprintf(p->note, sizeof p->note, "%s", sw__dnn_note(s->job));
    return SW_OK;
}

static sw_status exec_dnn(sw__cpu_plan *p, void *const *ptr)
{
    matmul *const s = p->state;
    SW_TRY(sw__dnn_run(s->job, ptr, ptr[p->d.n_in + 1]));
    if (s->g.relu && p->d.out[0].dtype == SW_BF16) sw__cpu_relu_bf16(ptr[p->d.n_in], &p->d.out[0], p->cpu->threads);
    else if (s->g.relu) sw__cpu_relu(p->cpu->simd, ptr[p->d.n_in], &p->d.out[0], p->cpu->threads);
    return SW_OK;
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

static sw_status exec_nothing(sw__cpu_plan *p, void *const *ptr)
{
    (void)p;
    (void)ptr;
    return SW_OK;
}

static sw_status exec_own(sw__cpu_plan *p, void *const *ptr)
{
    const matmul *const s = p->state;
    const int n = p->d.n_in;
    sw__gemm_own(&s->g, p->cpu->simd, p->threads, ptr[0], ptr[1], n > 2 ? ptr[2] : NULL, ptr[n],
                 ptr[n + 1]);
    return SW_OK;
}

/* One row, and a matrix of which rows or columns lie side by side. */
static bool one_row(const sw__gemm *g)
{
    const bool rows = g->bk == 1 && g->bn >= g->k, columns = g->bn == 1 && g->bk >= g->n;
    return g->m == 1 && whole(g) && (g->ak == 1 || g->k == 1) && (g->cn == 1 || g->n == 1) && (rows || columns) &&
           (!g->bias || g->bias_stride == 1 || g->n == 1);
}

static sw_status exec_row(sw__cpu_plan *p, void *const *ptr)
{
    const sw__gemm *const g = &((const matmul *)p->state)->g;
    const int n_in = p->d.n_in, threads = p->threads;
    const bool rows = g->bk == 1 && g->bn >= g->k;
    const sw__gemv v = {.x = ptr[0], .w = ptr[1], .bias = n_in > 2 ? ptr[2] : NULL, .y = ptr[n_in], .k = g->k,
                        .ld = rows ? g->bn : g->bk, .relu = g->relu};
    const int64_t parts = (g->n + 63) / 64;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        const int64_t n0 = parts * t / threads * 64, n1 = SW_MIN(parts * (t + 1) / threads * 64, g->n);
        if (rows) SW__SIMD_PICK(p->cpu->simd, sw__gemv_rows)(&v, n0, n1);
        else SW__SIMD_PICK(p->cpu->simd, sw__gemv_columns)(&v, n0, n1);
    }
    return SW_OK;
}

static sw_status exec_loops(sw__cpu_plan *p, void *const *ptr)
{
    const matmul *const s = p->state;
    const int n = p->d.n_in;
    sw__gemm_loops(&s->g, (sw_dtype)p->d.out[0].dtype, ptr[0], ptr[1], n > 2 ? ptr[2] : NULL, ptr[n], p->cpu->threads);
    return SW_OK;
}

static void drop(void *state)
{
    sw__dnn_free(((matmul *)state)->job);
    sw__free(state);
}

/* Multiplications; of few rows what counts is reading the matrix, an element in the time of six of them. */
static double work_of(const sw__gemm *g)
{
    const double m = (double)g->m, n = (double)g->n, k = (double)g->k;
    double work = SW_MAX(m * n * k, 6 * n * k);
    for (int i = 0; i < g->rank; i++) work *= (double)g->batch[i];
    return work;
}

/* oneDNN's AVX-512 product reads a wide right side where it lies, row by row, each row in other pages: half the speed
 * of a packed one, save where its rows are a power of two apart, which it packs. */
static bool own_wins(const sw__cpu *cpu, const sw__gemm *g)
{
    return cpu->simd == SW_SIMD_AVX512 && g->bn == 1 && g->n >= 2560 && (g->bk & (g->bk - 1)) != 0 && g->m >= 64 &&
           g->k >= 64 && sw__gemm_own_can(g);
}

sw_status sw__cpu_matmul_plan(sw__cpu_plan *p)
{
    const sw_dtype t = (sw_dtype)p->d.out[0].dtype;
    matmul *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned matmul");
    p->state = s;
    p->drop = drop;
    p->packs = packs;
    p->pack = pack;
    describe(&p->d, &s->g);
    if (sw__desc_elements(&p->d.out[0]) == 0) {
        p->exec = exec_nothing;
        snprintf(p->note, sizeof p->note, "empty");
        return SW_OK;
    }
    if (t == SW_BF16 && p->cpu->simd == SW_SIMD_AVX512 && s->g.k > 0 && dnn_can(&s->g) &&
        (!s->g.relu || sw__cpu_packed(&p->d.out[0]))) {
        sw__cpu_plan_threads(p, work_of(&s->g));
        p->exec = exec_dnn;
        return plan_dnn(p, s);
    }
    if (t != SW_F32 && t != SW_F64)
        return sw__fail(SW_ERR_UNSUPPORTED, "there is no arithmetic in %s; cast to f32", sw_dtype_name(t));
    sw__cpu_plan_threads(p, work_of(&s->g));
    if (t == SW_F32 && one_row(&s->g)) {
        p->exec = exec_row;
        snprintf(p->note, sizeof p->note, "row:%s", sw__simd_name(p->cpu->simd));
        return SW_OK;
    }
    if (t == SW_F32 && s->g.k > 0 && dnn_can(&s->g) && !own_wins(p->cpu, &s->g)) {
        p->exec = exec_dnn;
        const sw_status st = plan_dnn(p, s);
        if (st != SW_ERR_UNSUPPORTED) return st;
    }
    p->workspace = 0;
    if (t == SW_F32 && sw__gemm_own_can(&s->g)) {
        p->exec = exec_own;
        p->workspace = sw__gemm_own_workspace(&s->g, p->cpu->simd, p->threads);
        snprintf(p->note, sizeof p->note, "own:%s", sw__simd_name(p->cpu->simd));
        return SW_OK;
    }
    p->exec = exec_loops;
    snprintf(p->note, sizeof p->note, "loops:%s", sw_dtype_name(t));
    return SW_OK;
}
