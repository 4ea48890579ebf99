/* tile_int.h: the inside of the tile interpreter: bytecode, the state of a running thread, the tables of vector code.
 * Shared by tile_compile*.c (writes bytecode), tile_run.c (walks tiles), tile_move.c (loads, stores) and *_simd.c.
 *
 * The axes of a kernel are put in three groups, each in the order of memory:
 *   group 0  kept axes before the reduced ones, in column kernels: fixed while a tile is walked
 *   group 1  "rows" of a tile: kept axes (pointwise: all but the last; row: the kept ones) or, in column kernels, the
 *            reduced ones
 *   group 2  "columns" of a tile: the last axis (pointwise), the reduced axes (row), the last kept axes (column)
 * A tile is `rows` x `cols` points of groups 1 x 2: whole rows, or a piece of one row. Either way a contiguous range of
 * the flattened groups, and a register of the interpreter holds it as a dense vector. (Where memory has to be
 * transposed it is a window: pieces of several rows.)
 *
 * A value is UNIform (one number), of ROWs (one a row), of COLs (the same for every row: computed once, replicated)
 * or TILED (one a point); it is computed in the block of code of its class, as rarely as its class allows. */
#ifndef SW_KERNEL_TILE_INT_H
#define SW_KERNEL_TILE_INT_H

#include "kernel/cpuid.h"
#include "kernel/kir.h"
#include "kernel/tile.h"

typedef struct sw__tinst sw__tinst;
typedef struct sw__tctx sw__tctx;
typedef void (*sw__tfn)(const sw__tinst *i, sw__tctx *t, size_t n);

/* How many elements an instruction works on. */
enum { SW__LEN_ONE, SW__LEN_ROWS, SW__LEN_TILE, SW__LEN_COLS, SW__LENS };
/* Blocks of code. */
enum {
    SW__BLK_ONCE,  /* uniform values: once a launch */
    SW__BLK_COLS,  /* values of columns, splats: once a thread (and piece of columns, and point of group 0) */
    SW__BLK_POST,  /* column kernels: from the sums on */
    SW__BLK_PHASE, /* + 2 * phase: values of the row that need no more; + 1: the tiles */
    SW__BLK_MAX = SW__BLK_PHASE + 2 * 8
};
/* Where a slot's memory is. */
enum {
    SW__AREA_NONE,   /* bound to a buffer by a BIND instruction */
    SW__AREA_CONST,  /* the program's constants */
    SW__AREA_ONCE,   /* shared by all threads */
    SW__AREA_ROW,    /* the row's values: of a thread, or (split rows) shared by all threads */
    SW__AREA_THREAD, /* tile registers of a thread */
    SW__AREAS
};

/* An access to memory with the axes in the program's order. */
typedef void (*sw__move_fn)(void *dst, const void *src, size_t rows, size_t cols, int64_t row_stride,
                            int64_t col_stride);
typedef void (*sw__fill_fn)(void *dst, const void *value, size_t n);
typedef void (*sw__iota_fn)(void *dst, int64_t first, size_t rows, size_t cols, int64_t row_stride, int64_t col_stride);
typedef void (*sw__gather_fn)(void *dst, const void *src, const int64_t *index, size_t n, int64_t stride,
                              int64_t stride_x);
typedef struct sw__access {
    int32_t buffer, masked;
    uint32_t size;         /* bytes of an element in memory */
    uint32_t reg_size;     /* bytes of an element in a register */
    int32_t first, end;    /* axes that are walked: [first, end) */
    int64_t offset, stride[SW_MAX_RANK], lo[SW_MAX_RANK], hi[SW_MAX_RANK];
    int64_t stride_x, extent_x;
    sw__move_fn move;      /* load or store of a block */
    sw__iota_fn iota;      /* INDEX instead */
    sw__gather_fn gather;
    sw__fill_fn fill;      /* outside the mask */
    uint64_t value;        /* what to fill with: the bits in the register's type */
    uint32_t conflicts;    /* direct store: buffers that are read after the value is written */
    uint32_t key[2];       /* RANDOM */
    bool rowwise;          /* GATHER: one index a row */
} sw__access;

struct sw__tinst {
    sw__tfn fn;
    uint16_t d, a, b, c, e; /* slots; unused ones are 0 */
    uint8_t len;
    uint8_t index;          /* reduction number */
    uint8_t n_more, n_out;
    const uint16_t *more;   /* further slots: n_out results, then operands up to n_more */
    const sw__access *access;
    const char *name;       /* for printing */
};

typedef union sw__wide { double f; int64_t i; } sw__wide;

typedef struct sw__slot {
    uint8_t area, size, len;
    size_t offset;
} sw__slot;

typedef struct sw__block { sw__tinst *inst; size_t n, capacity; } sw__block;

/* A reduction: its result goes to slot `d`. */
typedef struct sw__reduction {
    uint16_t op, dtype;
    uint16_t d;
    uint8_t phase;
    size_t narrow_at; /* column: where its accumulators are, in a thread's area */
    size_t wide_at;   /* column: in a partial result */
} sw__reduction;

/* Slots of an ADAM instruction: m, v results; a gradient, b m before, c v before, e parameter; the rest scalars. */
enum {
    SW__ADAM_M, SW__ADAM_V, SW__ADAM_OUT,
    SW__ADAM_KEEP_M = SW__ADAM_OUT, SW__ADAM_NEW_M, SW__ADAM_KEEP_V, SW__ADAM_NEW_V,
    SW__ADAM_RATE, SW__ADAM_SPREAD, SW__ADAM_EPS,
    SW__ADAM_SLOTS
};

/* Vector code of one level. NULL where there is none. */
enum { SW__VV, SW__VS, SW__SV, SW__VARIANTS };
typedef struct sw__tile_table {
    sw__tfn calc[SW_OP_COUNT][SW_DTYPE_COUNT][SW__VARIANTS]; /* by type of the first operand (WHERE: of the second) */
    sw__tfn cast[SW_DTYPE_COUNT][SW_DTYPE_COUNT];            /* [to][from] */
    sw__tfn narrow[SW_DTYPE_COUNT];                          /* an f32 rounded to f16, bf16 */
    /* combinations, f32: d = a*b + c, a*b - c, c - a*b; b and c vectors, b scalar, both scalars */
    sw__tfn fma[3][3];
    sw__tfn axpby, axpby2;                                   /* a*b + c*e, a*b + c*c*e; b and e scalars */
    sw__tfn sqrt_fma;                                        /* sqrt(a)*b + c, b and c scalars */
    sw__tfn sub_div;                                         /* c - a*b / e, b scalar */
    sw__tfn adam;                                            /* axpby, axpby2, sqrt_fma and sub_div in one loop */
    sw__tfn where_lt[SW__VARIANTS];                          /* a < b ? c : e */
    sw__tfn random;
} sw__tile_table;

typedef struct sw__move_table {
    sw__move_fn load[SW_DTYPE_COUNT], store[SW_DTYPE_COUNT]; /* by type in memory */
    sw__gather_fn gather[SW_DTYPE_COUNT];
    sw__iota_fn iota[SW_DTYPE_COUNT];
    sw__fill_fn fill[9];                                     /* by size: 1, 4, 8 */
    sw__tfn expand[9];                                       /* by size: one value a row to the tile */
    sw__tfn splat[9];                                        /* by size: one value to the tile */
} sw__move_table;

typedef struct sw__reduce_table {
    sw__tfn rows[4][SW_DTYPE_COUNT];       /* SUM, MAX, MIN, PROD: one value a row */
    sw__tfn total[4][SW_DTYPE_COUNT];      /* into the thread's wide accumulator of one row */
    sw__tfn cols[4][SW_DTYPE_COUNT];       /* into the thread's accumulators, one for each of `width` columns */
    sw__tfn fast_cols_sum;                 /* SUM of f32 */
    sw__tfn dot_rows, dot_total, dot_cols; /* f32 sums of a*b */
    /* acc (n wide values) op= `groups` x n narrow ones, which become the identity */
    void (*flush[4][SW_DTYPE_COUNT])(sw__wide *acc, void *narrow, size_t n, size_t groups);
    void (*merge[4][SW_DTYPE_COUNT])(sw__wide *acc, const sw__wide *more, size_t n);
    void (*identity[4][SW_DTYPE_COUNT])(sw__wide *acc, size_t n);
    void (*identity_narrow[4][SW_DTYPE_COUNT])(void *acc, size_t n);
    void (*narrow[SW_DTYPE_COUNT])(void *d, const sw__wide *acc, size_t n);
} sw__reduce_table;

typedef struct sw__simd_tables {
    const sw__tile_table *calc;
    const sw__move_table *move;
    const sw__reduce_table *reduce;
} sw__simd_tables;
sw__simd_tables sw__tile_tables(sw__simd level);

typedef enum sw__tile_mode {
    SW__MODE_POINT, /* tiles in any order */
    SW__MODE_ROWS,  /* whole rows in a tile: all phases at once */
    SW__MODE_LONG,  /* rows of several tiles, one thread a row */
    SW__MODE_SPLIT, /* few and very long rows, each cut into parts */
    SW__MODE_COLS   /* column kernels */
} sw__tile_mode;

struct sw__tile_program {
    char name[64];
    sw__tile_mode mode;
    sw__simd simd;
    const sw__reduce_table *reduce;
    int threads;                        /* used by a run */
    int rank, group1, group2;           /* first axis of groups 1 and 2 */
    int64_t extent[SW_MAX_RANK];
    int64_t points0, rows, cols;        /* products of the extents of the groups */
    int64_t tile_rows, tile_cols;       /* tile_cols < cols: rows in pieces */
    int64_t pieces;                     /* of a row */
    int64_t parts, part_rows, part_cols; /* COLS: rows of a part; SPLIT: columns of a part */
    bool window;                        /* POINT: a tile is a piece of several rows */
    bool piece_major;                   /* POINT: all rows of a piece of columns, then the next piece */
    int64_t width;                      /* COLS: columns of an accumulator: rows side by side if cols is small */
    int phases, last_full;              /* last phase with tiles */
    sw__kernel *kernel;                 /* private copy, axes in program order */
    sw__block block[SW__BLK_MAX];
    sw__slot *slot;
    size_t n_slots, cap_slots;
    sw__reduction *reduction;
    size_t n_reductions, cap_reductions;
    unsigned char *constants;
    size_t constants_bytes, cap_constants;
    sw__arena arena;                    /* accesses */
    size_t area_bytes[SW__AREAS];
    size_t slots_bytes, acc_bytes, thread_bytes, partial_bytes, workspace_bytes;
    int64_t span_lo[SW_K_MAX_BUFFERS], span_hi[SW_K_MAX_BUFFERS]; /* bytes touched of a buffer, from its address */
    bool gathers;
    /* A kernel whose wheres hang on one number in memory is two programs, and this one only chooses. */
    sw__tile_program *choice[2];        /* [condition]; NULL: none */
    int32_t choice_buffer;
    int64_t choice_offset;
};

/* A thread at work. */
struct sw__tctx {
    const sw__tile_program *p;
    void *const *buffers;
    size_t len[SW__LENS];
    int64_t me;                    /* number of the thread */
    int64_t rows, cols;            /* of this tile */
    int64_t row, col;              /* its first */
    int64_t coord[SW_MAX_RANK];    /* of its first point */
    sw__wide *acc;                 /* LONG, SPLIT: one a reduction */
    unsigned char *thread_area;
    int64_t bad_value, bad_extent, bad_at; /* first index out of range; bad_at: -1 none */
    uint32_t denied;               /* buffers that may not be stored to directly, for lack of a safe order */
    void **slot;
};

/* ---- tile_move.c ------------------------------------------------------------------------------------------------- */
void sw__tile_load(const sw__tinst *i, sw__tctx *t, size_t n);
void sw__tile_gather(const sw__tinst *i, sw__tctx *t, size_t n);
void sw__tile_store(const sw__tinst *i, sw__tctx *t, size_t n);
void sw__tile_bind(const sw__tinst *i, sw__tctx *t, size_t n);         /* slot d = address of a load */
void sw__tile_bind_store(const sw__tinst *i, sw__tctx *t, size_t n);   /* slot d = address of a store, or scratch */
void sw__tile_store_direct(const sw__tinst *i, sw__tctx *t, size_t n); /* the rest of a direct store */

#endif
