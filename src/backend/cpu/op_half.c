/* op_half.c: ops on f16 and bf16 tensors as the same op on f32 copies in the workspace, rounded at the end.
 * A plan around a plan. Called by cpu.c for ops of arithmetic; those that only order or move take halves themselves. */
#include "backend/cpu/cpu.h"
#include "kernel/tile.h"

#include <stdio.h>

typedef struct half {
    sw__cpu_plan *inner;
    size_t at[SW__CPU_MAX_REFS];  /* f32 copy in the workspace; SIZE_MAX: no half, used where it lies */
    size_t narrow[SW__CPU_MAX_REFS]; /* of an output: dense half result, before it is spread over the strides it has */
    size_t inner_work;
} half;

static bool is_half(const sw__desc *d)
{
    return d->dtype == SW_F16 || d->dtype == SW_BF16;
}

bool sw__cpu_has_half(const sw__op_desc *d)
{
    for (int i = 0; i < d->n_in; i++)
        if (is_half(&d->in[i])) return true;
    return is_half(&d->out[0]);
}

/* All elements lie side by side, in whatever order of the axes. */
bool sw__cpu_packed(const sw__desc *d)
{
    int64_t next = 1;
    for (int found = 0; found < d->rank; found++) {
        int axis = -1;
        for (int i = 0; i < d->rank && axis < 0; i++)
            if (d->dim[i] > 1 && d->stride[i] == next) axis = i;
        if (axis < 0) break;
        next *= d->dim[axis];
    }
    return next == sw__desc_elements(d) || sw__desc_elements(d) == 0;
}

#define CHUNK 4096

/* `count` neighbouring elements. */
static void convert(void *to, sw_dtype tt, const void *from, sw_dtype ft, int64_t count, const sw__cpu *cpu)
{
    const int64_t chunks = (count + CHUNK - 1) / CHUNK;
    const int threads = sw__cpu_threads(cpu, (double)count);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < chunks; i++) {
        const size_t first = (size_t)i * CHUNK, n = (size_t)SW_MIN(CHUNK, count - i * CHUNK);
        sw__tile_convert(cpu->simd, (char *)to + first * sw_dtype_size(tt), tt, (const char *)from + first * sw_dtype_size(ft),
                         ft, n);
    }
}

/* The f32 result i rounded into its place. */
static void give_back(const sw__cpu_plan *p, const half *s, int i, void *to, const void *from, char *work)
{
    const sw_dtype t = (sw_dtype)p->desc[i].dtype;
    const bool packed = sw__cpu_packed(&p->desc[i]);
    convert(packed ? to : work + s->narrow[i], t, from, SW_F32, sw__desc_elements(&p->desc[i]), p->cpu);
    if (packed) return;
    const sw__desc dense = sw__cpu_dense(t, p->desc[i].rank, p->desc[i].dim);
    sw__cpu_copy(p->cpu, to, &p->desc[i], work + s->narrow[i], &dense);
}

static sw_status exec_half(sw__cpu_plan *p, void *const *ptr)
{
    const half *const s = p->state;
    void *inner[SW__CPU_MAX_REFS + 1] = {NULL};
    const int n = p->d.n_in + p->d.n_out, y = p->d.n_in;
    char *const work = ptr[n];
    for (int i = 0; i < n; i++) inner[i] = s->at[i] == SIZE_MAX ? ptr[i] : work + s->at[i];
    inner[n] = work + s->inner_work;
    for (int i = 0; i < y; i++)
        if (s->at[i] != SIZE_MAX)
            convert(inner[i], SW_F32, ptr[i], (sw_dtype)p->desc[i].dtype, sw__desc_elements(&p->desc[i]), p->cpu);
    SW_TRY(s->inner->exec(s->inner, inner));
    for (int i = y; i < n; i++)
        if (s->at[i] != SIZE_MAX) give_back(p, s, i, ptr[i], inner[i], work);
    return SW_OK;
}

static void drop(void *state)
{
    half *const s = state;
    if (s->inner != NULL) sw__cpu_drop_state(s->inner);
    sw__free(s->inner);
    sw__free(s);
}

/* The inner op: the same with f32 for halves, in the same order of axes. */
static void widen(sw__cpu_plan *p, half *s)
{
    sw__cpu_plan *const q = s->inner;
    *q = *p;
    q->state = NULL;
    q->drop = NULL;
    q->workspace = 0;
    q->d.fixed = 0; /* what is widened in each run is not the same memory */
    q->d.in = q->desc;
    q->d.out = q->desc + q->d.n_in;
    q->d.attr = &q->attr;
    for (int i = 0; i < p->d.n_in + p->d.n_out; i++) {
        s->at[i] = SIZE_MAX;
        if (!is_half(&p->desc[i])) continue;
        if (!sw__cpu_packed(&p->desc[i])) q->desc[i] = sw__cpu_dense(SW_F32, p->desc[i].rank, p->desc[i].dim);
        q->desc[i].dtype = SW_F32;
        s->at[i] = p->workspace;
        p->workspace += sw__cpu_align((size_t)sw__desc_elements(&p->desc[i]) * sizeof(float));
    }
}

sw_status sw__cpu_half_plan(sw__cpu_plan *p)
{
    for (int i = 0; i < p->d.n_in; i++)
        if (is_half(&p->desc[i]) && !sw__cpu_packed(&p->desc[i]))
            return sw__fail(SW_ERR_UNSUPPORTED, "operand %d is no dense tensor", i + 1);
    half *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned op");
    p->state = s;
    p->drop = drop;
    p->exec = exec_half;
    s->inner = sw__calloc(1, sizeof *s->inner);
    if (s->inner == NULL) return sw__no_memory(sizeof *s->inner, "a planned op");
    widen(p, s);
    SW_TRY(sw__cpu_ops[p->d.op].plan(s->inner));
    p->threads = s->inner->threads;
    for (int i = p->d.n_in; i < p->d.n_in + p->d.n_out; i++) {
        const sw__desc *const y = &p->desc[i];
        if (!is_half(y) || sw__cpu_packed(y)) continue;
        s->narrow[i] = p->workspace;
        p->workspace += sw__cpu_align((size_t)sw__desc_elements(y) * sw_dtype_size((sw_dtype)y->dtype));
    }
    s->inner_work = p->workspace;
    p->workspace += s->inner->workspace;
    p->on_copies = true;
    snprintf(p->note, sizeof p->note, "as f32: %.100s", s->inner->note);
    return SW_OK;
}
