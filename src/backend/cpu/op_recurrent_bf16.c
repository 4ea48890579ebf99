/* op_recurrent_bf16.c: lstm, gru, rnn and their gradients on bf16 tensors for machines with AVX512_BF16: op_recurrent.c
 * with products of bf16 that are summed up in f32. Gates, states and cells are f32 while a sample is walked; states are
 * rounded where they are multiplied or stored. Called by op_recurrent.c's plan. */
#include "backend/cpu/dot_bf16.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/recurrent.h"

#define REAL float
#define STORED uint16_t
#define WIDEN sw__dot_widen
#define NARROW sw__dot_narrow
#define FORWARD(...) SW__SIMD_PICK(x->s->level, sw__cell_forward)(__VA_ARGS__)
#define BACKWARD(...) SW__SIMD_PICK(x->s->level, sw__cell_backward)(__VA_ARGS__)

struct run;
static void product(const struct run *x, const sw__step_matrix *m, const float *a, int64_t a_pitch, const float *bias,
                    bool add, float *c, int64_t c_pitch);
#include "backend/cpu/recurrent_run.h"

#define BLOCK_PAIRS 256 /* of a packed panel at a time, so that it stays in the first cache while rows pass */

static int64_t pairs_of(const sw__step_matrix *m)
{
    return (m->k + 1) / 2;
}

static int64_t panels_of(const sw__step_matrix *m)
{
    return (m->n + SW__DOT_WIDTH - 1) / SW__DOT_WIDTH;
}

/* From one row of what is multiplied to the next; not a multiple of the first cache's size. */
static int64_t rounded_pitch(const sw__step_matrix *m)
{
    return (m->k + 31) / 32 * 32 + 32;
}

/* ---- packed weights: [panel][pair of k][column][2], zeros behind the last k and column --------------------------- */

size_t sw__cpu_recurrent_bf16_packed(const sw__step_matrix *m)
{
    return (size_t)(panels_of(m) * pairs_of(m) * SW__DOT_WIDTH * 2) * sizeof(uint16_t);
}

int64_t sw__cpu_recurrent_bf16_room(const sw__recurrent_plan *s, int64_t samples)
{
    int64_t rounded = samples * rounded_pitch(&s->gates);
    if (s->proj.in >= 0) rounded = SW_MAX(rounded, samples * rounded_pitch(&s->proj));
    return samples * (s->r.state + s->r.hidden) + 4 * s->row + (rounded + 1) / 2;
}

static uint16_t *packed_of(const sw__cpu_plan *p, void *const *ptr, const sw__step_matrix *m)
{
    return (uint16_t *)(void *)((char *)ptr[p->d.n_in + p->d.n_out] + m->packed_at);
}

static void pack_panel(const sw__cpu_plan *p, void *const *ptr, const sw__step_matrix *m, int64_t j)
{
    const int64_t pairs = pairs_of(m), n0 = j * SW__DOT_WIDTH, cols = SW_MIN(SW__DOT_WIDTH, m->n - n0);
    const uint16_t *const from = (const uint16_t *)ptr[m->in] + n0 * m->wn;
    uint16_t *const to = packed_of(p, ptr, m) + j * pairs * 2 * SW__DOT_WIDTH;
    if (cols < SW__DOT_WIDTH) memset(to, 0, (size_t)(pairs * 2 * SW__DOT_WIDTH) * sizeof *to);
    if (m->wn == 1) {
        for (int64_t k = 0; k < pairs; k++)
            sw__dot_interleave(from + 2 * k * m->wk, 2 * k + 1 < m->k ? from + (2 * k + 1) * m->wk : NULL, cols,
                               to + k * 2 * SW__DOT_WIDTH);
        return;
    }
    if (m->k % 2 == 0 && (uintptr_t)from % sizeof(float) == 0) { /* pairs lie side by side: they move as one */
        SW__SIMD_PICK(((const sw__recurrent_plan *)p->state)->level, sw__transpose)
        ((const float *)(const void *)from, m->wn / 2, cols, pairs, (float *)(void *)to, SW__DOT_WIDTH);
        return;
    }
    for (int64_t c = 0; c < cols; c++)
        for (int64_t k = 0; k < 2 * pairs; k++)
            to[(k / 2 * SW__DOT_WIDTH + c) * 2 + k % 2] = k < m->k ? from[c * m->wn + k] : 0;
}

/* ---- a step's products ------------------------------------------------------------------------------------------- */

/* Rows are rounded, then cut into tiles of nearly equal height. */
static void product(const run *x, const sw__step_matrix *m, const float *a, int64_t a_pitch, const float *bias,
                    bool add, float *c, /* NOLINT(readability-non-const-parameter): tiles write through it */
                    int64_t c_pitch)
{
    const int64_t tiles = (x->n + SW__DOT_ROWS - 1) / SW__DOT_ROWS, pairs = pairs_of(m), pitch = rounded_pitch(m);
    const uint16_t *const packed = packed_of(x->p, x->ptr, m);
    uint16_t *const rounded = (uint16_t *)(void *)x->row[4];
    for (int64_t i = 0; i < x->n; i++) {
        sw__dot_narrow(rounded + i * pitch, a + i * a_pitch, m->k);
        rounded[i * pitch + m->k] = 0; /* where k is odd */
    }
    for (int64_t k0 = 0; k0 < pairs; k0 += BLOCK_PAIRS) {
        for (int64_t j = 0; j < panels_of(m); j++) {
            for (int64_t i = 0; i < tiles; i++) {
                const int64_t r0 = x->n * i / tiles, r1 = x->n * (i + 1) / tiles, n0 = j * SW__DOT_WIDTH;
                const sw__dot_tile t = { .a = rounded + r0 * pitch + 2 * k0,
                                         .b = packed + (j * pairs + k0) * 2 * SW__DOT_WIDTH,
                                         .c = c + r0 * c_pitch + n0,
                                         .bias = bias != NULL ? bias + n0 : NULL,
                                         .ra = pitch,
                                         .rc = c_pitch,
                                         .pairs = SW_MIN(BLOCK_PAIRS, pairs - k0),
                                         .rows = (int)(r1 - r0),
                                         .cols = (int)SW_MIN(SW__DOT_WIDTH, m->n - n0),
                                         .add = add || k0 > 0 };
                sw__dot_tile_run(&t);
            }
        }
    }
}

sw_status sw__cpu_recurrent_bf16(sw__cpu_plan *p, void *const *ptr)
{
    const sw__recurrent_plan *const s = p->state;
    return sw__cpu_recurrent_packed(p, ptr, panels_of(&s->gates), s->proj.in >= 0 ? panels_of(&s->proj) : 0, pack_panel, run_part);
}
