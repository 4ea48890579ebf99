/* op_recurrent_units.c: lstm, gru and rnn forward where there are fewer samples than threads, or one: the units of the hidden
 * state are dealt out to threads in place of samples. A thread's part of the weights stays in its own cache from step to
 * step; all wait for each other once a step. Planned by op_recurrent.c. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/gemv.h"
#include "backend/cpu/recurrent.h"

#include <omp.h>
#include <stdio.h>

#define UNITS 64 /* of a gate, in a panel of the packed weights: [gate][panel][k][UNITS]; a thread takes whole panels */

/* A thread's part: units u0 to u0 + n. */
typedef struct part {
    const sw__cpu_plan *p;
    const sw__recurrent_plan *s;
    void *const *ptr;
    int64_t u0, n;
    float *state;                 /* [2, B, H]: before and after a step in turn, of all threads */
    const float *weights;         /* packed */
    float *x, *hh, *h, *saved;    /* its own, dense over its units */
} part;

static int64_t panels_of(const sw__recurrent *r)
{
    return (r->hidden + UNITS - 1) / UNITS;
}

static size_t packed_bytes(const sw__recurrent *r)
{
    return sw__cpu_align((size_t)(r->n_gates * panels_of(r) * UNITS * r->hidden) * sizeof(float));
}

/* Panels `first` to `end` of every gate. */
static void pack_panels(const sw__recurrent_plan *s, const float *weight, float *to, int64_t first, int64_t end)
{
    const sw__recurrent *const r = &s->r;
    const int64_t H = r->hidden, panels = panels_of(r);
    for (int g = 0; g < r->n_gates; g++)
        for (int64_t j = first; j < end; j++)
            SW__SIMD_PICK(s->level, sw__transpose)
            (weight + (g * H + j * UNITS) * H, H, SW_MIN(UNITS, H - j * UNITS), H, to + (g * panels + j) * H * UNITS, UNITS);
}

static size_t packs(const sw__cpu_plan *p, int i)
{
    const sw__recurrent *const r = &((const sw__recurrent_plan *)p->state)->r;
    return i == r->weight ? packed_bytes(r) : 0;
}

static sw_status pack(sw__cpu_plan *p, int i, void *from, void *to)
{
    const sw__recurrent_plan *const s = p->state;
    (void)i;
    pack_panels(s, from, to, 0, panels_of(&s->r));
    return SW_OK;
}

static float *input(const part *q, int i)
{
    return i < 0 ? NULL : q->ptr[i];
}

static float *output(const part *q, int i)
{
    return i < 0 ? NULL : q->ptr[q->p->d.n_in + i];
}

static void copy(float *to, const float *from, int64_t n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
}

/* Of one sample, from its state before to that after. */
static void step(const part *q, int64_t b, int64_t at, const float *before, float *after)
{
    const sw__recurrent *const r = &q->s->r;
    const int64_t H = r->hidden, u0 = q->u0, n = q->n;
    const float *const bias = input(q, r->bias), *const gates = input(q, r->gates) + at * r->rows;
    float *const c = output(q, r->out_c), *const saved = output(q, r->out_saved);
    for (int g = 0; g < r->n_gates; g++) {
        for (int64_t j = 0; j < n; j += UNITS) {
            const sw__gemv v = {.x = before, .w = q->weights + (g * panels_of(r) * UNITS + u0 + j) * H, .y = q->hh + g * n + j,
                                .k = H, .ld = UNITS, .bias = bias != NULL ? bias + g * H + u0 + j : NULL};
            SW__SIMD_PICK(q->s->level, sw__gemv_columns)(&v, 0, SW_MIN(UNITS, n - j));
        }
        copy(q->x + g * n, gates + g * H + u0, n);
    }
    sw__recurrent own = *r;
    own.hidden = own.state = n;
    own.rows = n * r->n_gates;
    copy(q->h, before + u0, n);
    SW__SIMD_PICK(q->s->level, sw__cell_forward)
    (&own, q->x, q->hh, c != NULL ? c + b * H + u0 : NULL, q->h, saved != NULL ? q->saved : NULL);
    copy(after + u0, q->h, n);
    copy(output(q, 0) + at * H + u0, q->h, n);
    for (int k = 0; saved != NULL && k < r->n_saved; k++) copy(saved + (at * r->n_saved + k) * H + u0, q->saved + k * n, n);
}

/* What is there before the first step, and zeros beyond a sample's end. */
static void begin(const part *q, int64_t b)
{
    const sw__recurrent *const r = &q->s->r;
    const int64_t H = r->hidden, u0 = q->u0, steps = sw__cpu_steps(q->p, q->ptr, b);
    copy(q->state + b * H + u0, input(q, r->h0) + b * H + u0, q->n);
    if (r->out_c >= 0) copy(output(q, r->out_c) + b * H + u0, input(q, r->c0) + b * H + u0, q->n);
    for (int64_t at = b * r->steps + steps; at < (b + 1) * r->steps; at++) {
        memset(output(q, 0) + at * H + u0, 0, (size_t)q->n * sizeof(float));
        for (int k = 0; r->out_saved >= 0 && k < r->n_saved; k++)
            memset(output(q, r->out_saved) + (at * r->n_saved + k) * H + u0, 0, (size_t)q->n * sizeof(float));
    }
}

static void all_steps(const part *q)
{
    const sw__recurrent *const r = &q->s->r;
    const int64_t H = r->hidden, half = r->batch * H;
    for (int64_t b = 0; b < r->batch; b++) begin(q, b);
    for (int64_t s = 0; s < r->steps; s++) {
        const float *const before = q->state + (s % 2 == 0 ? 0 : half);
        float *const after = q->state + (s % 2 == 0 ? half : 0);
#pragma omp barrier
        for (int64_t b = 0; b < r->batch; b++) {
            const int64_t steps = sw__cpu_steps(q->p, q->ptr, b), t = r->reverse ? steps - 1 - s : s;
            if (s < steps) step(q, b, b * r->steps + t, before + b * H, after + b * H);
            else copy(after + b * H + q->u0, before + b * H + q->u0, q->n);
        }
    }
    const float *const last = q->state + (r->steps % 2 == 0 ? 0 : half);
    for (int64_t b = 0; b < r->batch && r->out_h >= 0; b++)
        copy(output(q, r->out_h) + b * H + q->u0, last + b * H + q->u0, q->n);
}

static sw_status exec_units(sw__cpu_plan *p, void *const *ptr)
{
    const sw__recurrent_plan *const s = p->state;
    const int64_t H = s->r.hidden, panels = panels_of(&s->r);
    const int threads = (int)s->threads;
    const bool fixed = sw__cpu_fixed(p, s->r.weight);
    float *const weight = ptr[s->r.weight];
    char *const work = ptr[p->d.n_in + p->d.n_out];
    SW_TRY(sw__cpu_check_steps(p, ptr));
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int me = omp_get_thread_num(), all = omp_get_num_threads();
        const int64_t first = panels * me / all, end = panels * (me + 1) / all;
        float *const packed = fixed ? weight : (float *)(void *)(work + s->gates.packed_at);
        part q = {.p = p, .s = s, .ptr = ptr, .state = (float *)(void *)work, .u0 = first * UNITS, .weights = packed};
        q.n = SW_MIN(end * UNITS, H) - q.u0;
        if (!fixed) pack_panels(s, weight, packed, first, end);
        q.x = (float *)(void *)(work + s->room_at + (size_t)me * s->room);
        q.hh = q.x + s->r.rows;
        q.h = q.hh + s->r.rows;
        q.saved = q.h + H;
        all_steps(&q);
    }
    return SW_OK;
}

bool sw__cpu_units_can(const sw__cpu_plan *p)
{
    const sw__recurrent *const r = &((const sw__recurrent_plan *)p->state)->r;
    return p->d.out[0].dtype == SW_F32 && !r->backward && r->proj < 0 && r->steps > 0 && r->hidden > 0 && r->batch > 0 &&
           (r->batch == 1 || r->batch < p->cpu->threads);
}

void sw__cpu_units_plan(sw__cpu_plan *p)
{
    sw__recurrent_plan *const s = p->state;
    const sw__recurrent *const r = &s->r;
    const double step_work = (double)r->batch * (double)r->rows * (double)r->state;
    sw__cpu_plan_threads(p, step_work < 50000 ? 0 : step_work * (double)r->steps); /* else waiting costs more than it saves */
    s->threads = SW_MAX(1, SW_MIN(p->threads, panels_of(r)));
    s->room_at = sw__cpu_align((size_t)(2 * r->batch * r->hidden) * sizeof(float));
    s->room = sw__cpu_align((size_t)(2 * r->rows + (1 + r->n_saved) * r->hidden) * sizeof(float));
    s->gates.packed_at = s->room_at + s->room * (size_t)s->threads;
    p->workspace = s->gates.packed_at + (sw__cpu_fixed(p, r->weight) ? 0 : packed_bytes(r));
    p->exec = exec_units;
    p->packs = packs;
    p->pack = pack;
    snprintf(p->note, sizeof p->note, "units, %lld threads", (long long)s->threads);
}
