/* tile_build.h: what the steps of compiling a tile program share.
 *   tile_plan.c     order of the axes, groups, shape of the tile, parts, threads
 *   tile_values.c   classes of values, their blocks, combinations
 *   tile_code.c     bytecode (pointwise ops: tile_calc.c)
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
sw_status sw__tile_values(sw__builder *b);
sw_status sw__tile_code(sw__builder *b);
sw_status sw__tile_slots(sw__tile_program *p);

/* ---- tile_values.c ----------------------------------------------------------------------------------------------- */
sw_status sw__builder_memory(sw__builder *b, const char *what);
sw_status sw__refuse(sw__builder *b, int32_t v, const char *what);
int sw__home(const sw__builder *b, int32_t v, int user);      /* the block that computes v for code in block `user` */
int sw__block_of_phase(const sw__builder *b, int phase);      /* the tile block in which reductions of a phase are */
bool sw__is_scalar(const sw__builder *b, int32_t v);          /* one number for a whole tile */
int32_t sw__scaled(const sw__builder *b, int32_t mul);        /* the operand of a scaling MUL that is no scalar */
int32_t sw__sqrt_operand(const sw__builder *b, int32_t v);    /* of a SQRT_FMA */
bool sw__stored(const sw__builder *b, int32_t v);
/* ---- tile_code.c ------------------------------------------------------------------------------------------------- */
void sw__tile_emit(sw__builder *b, int block, sw__tinst i);
uint16_t sw__value_slot(sw__builder *b, int block, int32_t v); /* where v's result goes */
/* The operand as a vector of `len`, or (scalar != NULL) as it is if that is one number; then *scalar is set. */
uint16_t sw__operand(sw__builder *b, int block, int32_t v, int len, bool *scalar);
/* ---- tile_calc.c ------------------------------------------------------------------------------------------------- */
void sw__emit_calc(sw__builder *b, int block, int32_t v, int len);

static inline bool sw__has_strides(const sw__inst *i)
{
    return i->kop == SW_K_LOAD || i->kop == SW_K_GATHER || i->kop == SW_K_STORE || i->kop == SW_K_INDEX;
}

/* Axes [first, end) as bits. */
static inline uint32_t sw__axes_bits(int first, int end)
{
    return ((1u << end) - 1) & ~((1u << first) - 1);
}
static inline int sw__tile_block(int phase) { return SW__BLK_PHASE + 2 * phase + 1; }
static inline int sw__row_block(int phase) { return SW__BLK_PHASE + 2 * phase; }

#endif
