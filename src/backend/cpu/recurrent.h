/* recurrent.h: one step of one sample of lstm, gru and rnn on the cpu, forward and backward: what recurrent_rows.h
 * defines for float (recurrent_simd.c, once per instruction set) and double (op_recurrent_f64.c). Called by
 * recurrent_run.h. */
#ifndef SW_BACKEND_CPU_RECURRENT_H
#define SW_BACKEND_CPU_RECURRENT_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/simd.h"
#include "graph/recurrent.h"

/* x and hh: the input's and the state's part of the gates. h: the new state (gru: in place of the old one); c, saved:
 * of those cells that have them. */
#define SW__CELL_FORWARD(REAL)                                                                                         \
    (const sw__recurrent *r, const REAL *x, const REAL *hh, REAL *c, REAL *h, REAL *saved)
/* before: the cell (lstm) or state (gru) before the step. dh: what arrives at h; left is what goes to the state before
 * it beside what goes through the gates. dx, ds: gradients of x and hh. */
#define SW__CELL_BACKWARD(REAL)                                                                                        \
    (const sw__recurrent *r, const REAL *saved, const REAL *y, const REAL *before, REAL *dh, REAL *dc, REAL *dx,       \
     REAL *ds)

SW__SIMD_DECLARE(void, sw__cell_forward, SW__CELL_FORWARD(float));
SW__SIMD_DECLARE(void, sw__cell_backward, SW__CELL_BACKWARD(float));

/* A matrix [k, n] that rows are multiplied by at every step; element (k, n) at w[k wk + n wn]. */
typedef struct sw__step_matrix {
    int in;            /* which operand; -1: there is none */
    int64_t k, n, wk, wn;
    size_t packed_at;  /* f32, bf16: in the workspace, in the order in which tiles read */
} sw__step_matrix;

/* What is planned. Samples are dealt out to threads, each of which walks all steps of its own by itself. */
typedef struct sw__recurrent_plan {
    sw__recurrent r;
    sw__step_matrix gates, proj; /* of the state (backward: of the gates' gradient), and of what is projected */
    int64_t threads, pitch;      /* pitch: from one row of the gates to the next in a thread's room */
    int64_t row;                 /* bf16: the longest row of a tensor, in floats of that room */
    size_t room_at, room;        /* a thread's, in the workspace */
    sw__simd level;
} sw__recurrent_plan;

/* op_recurrent_units.c: for few samples; the plan's state is there, with r and level */
bool sw__cpu_units_can(const sw__cpu_plan *p);
void sw__cpu_units_plan(sw__cpu_plan *p);
sw_status sw__cpu_recurrent_f64(sw__cpu_plan *p, void *const *ptr);
/* op_recurrent_bf16.c, which only machines with AVX512_BF16 have: bytes of a packed matrix, floats of room beside the
 * shared ones, exec */
size_t sw__cpu_recurrent_bf16_packed(const sw__step_matrix *m);
int64_t sw__cpu_recurrent_bf16_room(const sw__recurrent_plan *s, int64_t samples);
sw_status sw__cpu_recurrent_bf16(sw__cpu_plan *p, void *const *ptr);
/* Weights are packed by all threads together, `gates` and `proj` panels of them, then each walks its part of the samples. */
sw_status sw__cpu_recurrent_packed(sw__cpu_plan *p, void *const *ptr, int64_t gates, int64_t proj,
                                   void (*pack)(const sw__cpu_plan *p, void *const *ptr, const sw__step_matrix *m, int64_t j),
                                   void (*walk)(const sw__cpu_plan *p, void *const *ptr, int64_t part));
/* lengths[b]: T without lengths */
int64_t sw__cpu_steps(const sw__cpu_plan *p, void *const *ptr, int64_t b);
sw_status sw__cpu_check_steps(const sw__cpu_plan *p, void *const *ptr); /* all lengths, before a run */

#endif
