/* emit_int.h: what the files of the emitter share. emit.c decides and opens functions, emit_code.c writes instructions,
 * emit_fold.c accumulators, and emit_point.c, emit_rows.c, emit_columns.c have the skeletons.
 *
 * Names in the text: pN buffer N, vN instruction N, dN coordinate along axis N, aN an accumulator and eN what it lost
 * to rounding, tN its lanes, sN its local memory, wN its partial results in the workspace. */
#ifndef SW_KERNEL_EMIT_INT_H
#define SW_KERNEL_EMIT_INT_H

#include "kernel/emit.h"

/* Axes that are walked together by one flat index, slowest first. */
typedef struct sw__axes {
    int n, axis[SW_MAX_RANK];
    int64_t points;
} sw__axes;

typedef struct sw__emitter {
    const sw__kernel *k;
    const sw__target *t;
    const char *entry;
    sw__emitted *out;
    const char *ix, *ux, *u; /* "i32", "u32", "u", or "i64", "u64", "": index types, suffix of an unsigned constant */
    int depth;               /* of indentation */
    sw__axes kept, reduced;
    uint32_t used;           /* axes whose coordinate some instruction asks for */
    int64_t parts;           /* of the reduced domain */
    bool compensate;         /* f32 sums carry what they lose in eN */
    bool need[SW_K_MAX_INSTS]; /* instructions that the present function computes */
    bool now[SW_K_MAX_INSTS];  /* … and those of the present loop */
} sw__emitter;

typedef struct sw__label { char s[64]; } sw__label;

/* Sums in f32 longer than this are compensated, or made block by block. */
enum { SW__EMIT_CHAIN = 512, SW__EMIT_GROUP = 256 };

/* ---- lines (emit_code.c) ---- */

void sw__emit_line(sw__emitter *e, const char *fmt, ...) SW_PRINTF(2, 3);
void sw__emit_open(sw__emitter *e, const char *fmt, ...) SW_PRINTF(2, 3); /* the line, and " {" */
void sw__emit_close(sw__emitter *e);
sw__label sw__emit_label(const char *fmt, ...) SW_PRINTF(1, 2);

/* ---- instructions (emit_code.c) ---- */

const char *sw__emit_type(unsigned dtype); /* "float" */
sw__label sw__emit_literal(unsigned dtype, double value, int64_t ivalue);
/* Writes the expression `form` with $a $b $c replaced by arg and $t by the type's name in functions ("f32"). */
void sw__emit_form(sw__emitter *e, const char *form, const char *const arg[3], unsigned dtype);
/* "v3", or the constant itself */
sw__label sw__emit_operand(const sw__emitter *e, int32_t at);
void sw__emit_value(sw__emitter *e, int32_t at);
void sw__emit_store(sw__emitter *e, int32_t at);
/* Coordinates along the used axes from a flat index of type e->ux. */
void sw__emit_axes(sw__emitter *e, const sw__axes *a, const char *flat);

/* ---- functions and levels (emit.c) ---- */

/* Opens an entry point for the stage. full: it walks the domain; rows: it has the stores at ROW level. Sets need. */
void sw__emit_begin(sw__emitter *e, const char *suffix, bool full, bool rows, uint64_t groups, uint32_t local_x,
                    uint32_t local_y);
void sw__emit_end(sw__emitter *e);
/* Values at ROW level that need the reductions of earlier phases only. */
void sw__emit_rows_of(sw__emitter *e, int phase);
void sw__emit_row_stores(sw__emitter *e);
/* Is there anything to be done at FULL level in this phase? *reduces: a reduction. */
bool sw__emit_walks(const sw__emitter *e, int phase, bool *reduces);
/* FULL values of a phase at one point; with_rows: and the ROW values of phase 0 that they need. Then sw__emit_folds,
 * then the stores. */
void sw__emit_point(sw__emitter *e, int phase, bool with_rows);
void sw__emit_point_stores(sw__emitter *e, int phase);
bool sw__emit_gathers(const sw__emitter *e, int phase);

/* ---- reductions (emit_fold.c) ---- */

#define SW_EACH_REDUCTION(e, j, p)                                                                                     \
    for (int32_t j = 0; j < (e)->k->n_insts; j++)                                                                      \
        if ((e)->k->inst[j].kop == SW_K_REDUCE && (e)->k->inst[j].phase == (p))

bool sw__emit_compensated(const sw__emitter *e, int32_t at);
sw__label sw__emit_identity(const sw__inst *i);
/* "target = value op target;" */
void sw__emit_fold(sw__emitter *e, int32_t at, const char *target, const char *value);
/* aN (and eN) of a phase with their first value; those folded with the value at a point; vN from them. */
void sw__emit_accumulators(sw__emitter *e, int phase);
void sw__emit_folds(sw__emitter *e, int phase);
void sw__emit_accumulate(sw__emitter *e, int32_t at, const char *value);
sw__label sw__emit_total(const sw__emitter *e, int32_t at); /* an expression */
void sw__emit_totals(sw__emitter *e, int phase);
/* Of a group of work-items: local memory for a tree of `lanes` work-items; the tree itself over `deep` lanes that lie
 * `wide` apart, LANE(dim) counting them. Then vN is in sN[first]. */
void sw__emit_local(sw__emitter *e, int phase, int lanes);
void sw__emit_tree(sw__emitter *e, int phase, int dim, int deep, int wide);
int sw__emit_local_bytes(const sw__emitter *e); /* of all reductions, a lane */
/* Partial results: pointers wN, and where the workspace ends. */
void sw__emit_partials(sw__emitter *e);
size_t sw__emit_workspace(const sw__emitter *e);

/* ---- skeletons ---- */

sw_status sw__emit_pointwise(sw__emitter *e);
sw_status sw__emit_rows(sw__emitter *e);
sw_status sw__emit_columns(sw__emitter *e);

/* The greatest power of two that is not above n (n >= 1). */
int sw__emit_power(int64_t n);
int64_t sw__emit_over(int64_t a, int64_t b); /* a / b, rounded up */
/* The greatest divisor of n in [low, high], multiples of 16 first; 0 if there is none. */
int64_t sw__emit_divisor(int64_t n, int64_t low, int64_t high);

#endif
