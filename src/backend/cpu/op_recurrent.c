/* op_recurrent.c: plans lstm, gru, rnn and their gradients and runs them in f32: samples are dealt out to threads; each
 * walks all steps by itself, a product of its rows' states with the weights (packed once, all threads together) and the
 * gates a step, without waiting for another. Called by cpu.c; f64: op_recurrent_f64.c. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/recurrent.h"

#include <omp.h>
#include <stdio.h>

#define BLOCK_K 256 /* of a packed panel at a time, so that it stays in the first cache while rows pass */

static int width_of(sw__simd level)
{
    return 2 * sw__tile_shape_of(level).vl;
}

static int64_t panels_of(const sw__step_matrix *m, sw__simd level)
{
    return (m->n + width_of(level) - 1) / width_of(level);
}

static float *packed_of(const sw__cpu_plan *p, void *const *ptr, const sw__step_matrix *m)
{
    return (float *)(void *)((char *)ptr[p->d.n_in + p->d.n_out] + m->packed_at);
}

/* Panel j of the matrix as tiles read it: [k][width], zeros behind the last column. */
static void pack_panel(const sw__cpu_plan *p, void *const *ptr, const sw__step_matrix *m, int64_t j)
{
    const sw__recurrent_plan *const s = p->state;
    const int width = width_of(s->level);
    const int64_t n0 = j * width;
    const int cols = (int)SW_MIN(width, m->n - n0);
    const float *const from = (const float *)ptr[m->in] + n0 * m->wn;
    float *const to = packed_of(p, ptr, m) + j * width * m->k;
    if (m->wn == 1) {
        SW__SIMD_PICK(s->level, sw__copy_rows)(from, m->wk, m->k, cols, to, width);
        return;
    }
    if (cols < width) memset(to, 0, (size_t)(width * m->k) * sizeof *to);
    SW__SIMD_PICK(s->level, sw__transpose)(from, m->wn, cols, m->k, to, width);
}

struct run;
static void product(const struct run *x, const sw__step_matrix *m, const float *a, int64_t a_pitch, const float *bias,
                    bool add, float *c, int64_t c_pitch);

#define REAL float
#define FORWARD(...) SW__SIMD_PICK(x->s->level, sw__cell_forward)(__VA_ARGS__)
#define BACKWARD(...) SW__SIMD_PICK(x->s->level, sw__cell_backward)(__VA_ARGS__)
#include "backend/cpu/recurrent_run.h"

/* Rows are cut into tiles of nearly equal height. */
static void product(const run *x, const sw__step_matrix *m, const float *a, int64_t a_pitch, const float *bias,
                    bool add, float *c, /* NOLINT(readability-non-const-parameter): tiles write through it */
                    int64_t c_pitch)
{
    const sw__simd level = x->s->level;
    const int width = width_of(level), most = sw__tile_shape_of(level).wide_rows;
    const int64_t tiles = (x->n + most - 1) / most, panels = panels_of(m, level);
    const float *const packed = packed_of(x->p, x->ptr, m);
    for (int64_t k0 = 0; k0 < m->k; k0 += BLOCK_K) {
        const int64_t count = SW_MIN(BLOCK_K, m->k - k0);
        for (int64_t j = 0; j < panels; j++) {
            for (int64_t i = 0; i < tiles; i++) {
                const int64_t r0 = x->n * i / tiles, r1 = x->n * (i + 1) / tiles, n0 = j * width;
                const sw__tile t = {.a = a + r0 * a_pitch + k0, .b = packed + (j * m->k + k0) * width,
                                    .c = c + r0 * c_pitch + n0, .bias = bias != NULL ? bias + n0 : NULL,
                                    .ra = a_pitch, .ka = 1, .kb = width, .rc = c_pitch, .runs = 1, .run = count,
                                    .rows = (int)(r1 - r0), .cols = (int)SW_MIN(width, m->n - n0),
                                    .add = add || k0 > 0};
                SW__SIMD_PICK(level, sw__tile_run)(&t);
            }
        }
    }
}

sw_status sw__cpu_recurrent_packed(sw__cpu_plan *p, void *const *ptr, int64_t gates, int64_t proj,
                                   void (*pack)(const sw__cpu_plan *, void *const *, const sw__step_matrix *, int64_t),
                                   void (*walk)(const sw__cpu_plan *, void *const *, int64_t))
{
    const sw__recurrent_plan *const s = p->state;
    const int threads = (int)s->threads;
    SW_TRY(sw__cpu_check_steps(p, ptr));
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (int64_t j = 0; j < gates + proj; j++) pack(p, ptr, j < gates ? &s->gates : &s->proj, j < gates ? j : j - gates);
#pragma omp for schedule(static, 1)
        for (int64_t i = 0; i < s->threads; i++) walk(p, ptr, i);
    }
    return SW_OK;
}

static sw_status exec_f32(sw__cpu_plan *p, void *const *ptr)
{
    const sw__recurrent_plan *const s = p->state;
    return sw__cpu_recurrent_packed(p, ptr, panels_of(&s->gates, s->level),
                                    s->proj.in >= 0 ? panels_of(&s->proj, s->level) : 0, pack_panel, run_part);
}

int64_t sw__cpu_steps(const sw__cpu_plan *p, void *const *ptr, int64_t b)
{
    const sw__recurrent *const r = &((const sw__recurrent_plan *)p->state)->r;
    return r->lengths < 0 ? r->steps : sw__cpu_index((sw_dtype)p->d.in[r->lengths].dtype, ptr[r->lengths], b);
}

sw_status sw__cpu_check_steps(const sw__cpu_plan *p, void *const *ptr)
{
    const sw__recurrent *const r = &((const sw__recurrent_plan *)p->state)->r;
    for (int64_t b = 0; b < r->batch; b++) {
        const int64_t steps = sw__cpu_steps(p, ptr, b);
        if (steps < 0 || steps > r->steps)
            return sw__fail(SW_ERR_DATA, "lengths[%lld] is %lld, outside 0 to %lld", (long long)b, (long long)steps,
                            (long long)r->steps);
    }
    return SW_OK;
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

/* Weights [rows, state] and [state, hidden], as rows are multiplied by them. */
static void matrices(sw__recurrent_plan *s)
{
    const sw__recurrent *const r = &s->r;
    if (r->backward) {
        s->gates = (sw__step_matrix){.in = r->weight, .k = r->rows, .n = r->state, .wk = r->state, .wn = 1};
        s->proj = (sw__step_matrix){.in = r->proj, .k = r->state, .n = r->hidden, .wk = r->hidden, .wn = 1};
    } else {
        s->gates = (sw__step_matrix){.in = r->weight, .k = r->state, .n = r->rows, .wk = 1, .wn = r->state};
        s->proj = (sw__step_matrix){.in = r->proj, .k = r->hidden, .n = r->state, .wk = 1, .wn = r->hidden};
    }
}

/* In which type an op is computed. */
typedef enum arithmetic { IN_F32, IN_F64, IN_BF16 } arithmetic;

static void reserve_packed(sw__cpu_plan *p, sw__step_matrix *m, arithmetic in)
{
    const sw__simd level = p->cpu->simd;
    if (m->in < 0 || in == IN_F64) return;
    size_t bytes = (size_t)(panels_of(m, level) * width_of(level) * m->k) * sizeof(float);
#if defined(__x86_64__)
    if (in == IN_BF16) bytes = sw__cpu_recurrent_bf16_packed(m);
#endif
    m->packed_at = p->workspace;
    p->workspace += sw__cpu_align(bytes);
}

/* Of each thread; cut by run_part (recurrent_run.h). */
static void reserve_room(sw__cpu_plan *p, sw__recurrent_plan *s, arithmetic in)
{
    const sw__recurrent *const r = &s->r;
    const int64_t most = (r->batch + s->threads - 1) / s->threads;
    int64_t elements = most * (s->pitch + (r->proj >= 0 ? r->hidden + r->state : 0));
#if defined(__x86_64__)
    if (in == IN_BF16) elements += sw__cpu_recurrent_bf16_room(s, most);
#endif
    s->room_at = p->workspace;
    s->room = sw__cpu_align((size_t)elements * (in == IN_F64 ? sizeof(double) : sizeof(float)));
    p->workspace += s->room * (size_t)s->threads;
}

static sw_status exec_of(arithmetic in, sw__cpu_plan *p)
{
    p->exec = in == IN_F64 ? sw__cpu_recurrent_f64 : exec_f32;
    if (in != IN_BF16) return SW_OK;
#if defined(__x86_64__)
    p->exec = sw__cpu_recurrent_bf16;
    if (p->cpu->bf16) return SW_OK;
#endif
    return sw__fail(SW_ERR_UNSUPPORTED, "there are no dot products in bf16");
}

sw_status sw__cpu_recurrent_plan(sw__cpu_plan *p)
{
    static const char *const how[] = {[IN_F32] = "tiles", [IN_F64] = "loops", [IN_BF16] = "bf16 tiles"};
    const sw_dtype t = (sw_dtype)p->d.out[0].dtype;
    const arithmetic in = t == SW_F64 ? IN_F64 : t == SW_BF16 ? IN_BF16 : IN_F32;
    SW_TRY(exec_of(in, p));
    sw__recurrent_plan *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned op");
    p->state = s;
    s->r = sw__recurrent_of(p->d.op, &p->attr, p->d.out[0].dim);
    s->level = p->cpu->simd;
    if (sw__cpu_units_can(p)) {
        sw__cpu_units_plan(p);
        return SW_OK;
    }
    const sw__recurrent *const r = &s->r;
    const double work = (double)r->batch * (double)r->steps * (double)r->rows * (double)(r->state + 16);
    sw__cpu_plan_threads(p, work);
    s->threads = SW_MAX(1, SW_MIN(p->threads, r->batch));
    matrices(s);
    reserve_packed(p, &s->gates, in);
    reserve_packed(p, &s->proj, in);
    /* a multiple of the first cache's size would put all rows into the same few lines of it */
    s->pitch = (r->rows + 15) / 16 * 16 + 16;
    s->row = (SW_MAX(SW_MAX(r->rows, r->n_saved * r->hidden), r->state) + 15) / 16 * 16;
    reserve_room(p, s, in);
    snprintf(p->note, sizeof p->note, "%s, %lld threads", how[in], (long long)s->threads);
    return SW_OK;
}
