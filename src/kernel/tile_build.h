/* tile_build.h: what the steps of compiling a tile program share.
 *   tile_plan.c     order of the axes, groups, shape of the tile, parts, threads
 *   tile_code.c     classes of values, combinations, bytecode
 *   tile_slots.c    memory of the slots, direct stores, layout of the workspace
 *   tile_compile.c  the steps in order, printing, freeing */
#ifndef SW_KERNEL_TILE_BUILD_H
#define SW_KERNEL_TILE_BUILD_H

#include "kernel/tile_int.h"

/* Elements of a tile, and the longest row that is kept in one tile through all phases. 1 to 2 KB a register are best
 * (docs/decisions/010); recomputing a row's exp costs more than registers of 16 KB do. */
enum { SW__TILE = 512, SW__TILE_ROW = 4096, SW__TILE_PIECE = 1024 };

typedef enum sw__class {
    SW__UNI,   /* one number */
    SW__ROWS,  /* one a row of the tile */
    SW__COLS,  /* the same for all rows: computed once, replicated to the size of the tile */
    SW__TILED, /* one for each point of the tile */
    SW__SUMMED /* column kernels: after the reductions, one a column */
} sw__class;

/* How an instruction is combined with others. */
typedef enum sw__pattern {
    SW__PLAIN,
    SW__ABSORBED,  /* computed inside its only user, in a register */
    SW__BESIDE,    /* computed by its user as a second result */
    SW__FMA,       /* ADD or SUB with operand `which` an absorbed MUL */
    SW__AXPBY,     /* ADD of two absorbed MULs by scalars; which = 1 or 2: that one is of an absorbed square */
    SW__SQRT_FMA,  /* ADD of a scalar and an absorbed MUL of an absorbed SQRT by a scalar */
    SW__SUB_DIV,   /* SUB of an absorbed DIV of an absorbed MUL by a scalar */
    SW__ADAM,      /* SUB_DIV of values that are BESIDE: AXPBYs, one of a square */
    SW__WHERE_LT,  /* WHERE of an absorbed LT */
    SW__DOT        /* REDUCE_SUM of an absorbed MUL */
} sw__pattern;

typedef struct sw__kvalue {
    uint32_t mask;   /* axes of extent > 1 that it depends on */
    bool summed;     /* depends on a reduction */
    uint8_t cls, phase, pattern, which;
    uint16_t uses;
    uint16_t reduction; /* REDUCE: its number */
} sw__kvalue;

typedef struct sw__builder {
    sw__tile_program *p;
    const sw__kernel *k;   /* p->kernel */
    sw__simd_tables table;
    sw_status st;          /* sticky */
    int n_stores;
    sw__kvalue value[SW_K_MAX_INSTS];
    bool need[SW__BLK_MAX][SW_K_MAX_INSTS];
    uint16_t natural[SW__BLK_MAX][SW_K_MAX_INSTS]; /* slot of a value as it is; 0: none yet */
    uint16_t spread[SW__BLK_MAX][SW_K_MAX_INSTS];  /* of a value spread to the length of its users */
    uint16_t index64[SW__BLK_MAX][SW_K_MAX_INSTS]; /* of an i32 index made i64 */
} sw__builder;

sw_status sw__tile_plan(sw__tile_program *p, int threads);
sw_status sw__tile_code(sw__builder *b);
sw_status sw__tile_slots(sw__tile_program *p);

/* Axes [first, end) that a value of this class walks. */
static inline uint32_t sw__axes_bits(int first, int end)
{
    return ((1u << end) - 1) & ~((1u << first) - 1);
}
static inline int sw__tile_block(int phase) { return SW__BLK_PHASE + 2 * phase + 1; }
static inline int sw__row_block(int phase) { return SW__BLK_PHASE + 2 * phase; }

#endif
