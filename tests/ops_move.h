/* ops_move.h: cases of movement, reduction, ordering, indexing and contraction. A table for test_ops.c. */
#ifndef SW_TESTS_OPS_MOVE_H
#define SW_TESTS_OPS_MOVE_H

#include "ops_case.h"

#define SHAPE(...) .like = { DIMS(__VA_ARGS__) }
#define PERM(...) .attr.perm = { { __VA_ARGS__ } }
#define PADDING(...) .attr.pad = { __VA_ARGS__ }
#define SLICES(...) .attr.slice = { __VA_ARGS__ }
#define AXES(BITS) .attr.axes = { BITS }
#define AXIS(I) .attr.axis = { .axis = I }
#define AXIS_FLAG(I) .attr.axis = { .axis = I, .flag = true }

/* A reduction over each set of axes of a small tensor, and over long ones. */
#define REDUCE(OP, FILL)                                                                                               \
    { SW_OP_##OP, "axis 0", .in = { F32(FILL, 4, 5, 6) }, AXES(1), .bound = 1e-5 },                                    \
    { SW_OP_##OP, "axis 1", .in = { F32(FILL, 4, 5, 6) }, AXES(2), .bound = 1e-5 },                                    \
    { SW_OP_##OP, "axis 2", .in = { F32(FILL, 4, 5, 6) }, AXES(4), .bound = 1e-5 },                                    \
    { SW_OP_##OP, "axes 0 and 2", .in = { F32(FILL, 4, 5, 6) }, AXES(5), .bound = 1e-5 },                              \
    { SW_OP_##OP, "axes 0 and 1", .in = { F32(FILL, 4, 5, 6) }, AXES(3), .bound = 1e-5 },                              \
    { SW_OP_##OP, "axes 1 and 3", .in = { F32(FILL, 2, 3, 2, 3) }, AXES(10), .bound = 1e-5 },                          \
    { SW_OP_##OP, "all axes", .in = { F32(FILL, 4, 5, 6) }, AXES(7), .bound = 1e-5 },                                  \
    { SW_OP_##OP, "no axis", .in = { F32(FILL, 4, 5) }, AXES(0) },                                                     \
    { SW_OP_##OP, "scalar", .in = { SCALAR(SW_F32, FILL) }, AXES(0) },                                                 \
    { SW_OP_##OP, "axes of size 1", .in = { F32(FILL, 1, 3, 1) }, AXES(5), .bound = 1e-5 },                            \
    { SW_OP_##OP, "one element", .in = { F32(FILL, 1, 1) }, AXES(3) },                                                 \
    { SW_OP_##OP, "over an empty axis", .in = { F32(FILL, 3, 0, 2) }, AXES(2), .flags = NO_DIFFERENCES },              \
    { SW_OP_##OP, "empty result", .in = { F32(FILL, 3, 0, 2) }, AXES(1) },                                             \
    { SW_OP_##OP, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32) }, AXES(1) },                                  \
    { SW_OP_##OP, "rows with special values", .in = { FIXED(SPECIAL_ROWS, 32, 32) }, AXES(2), .flags = ELEMENTWISE },  \
    { SW_OP_##OP, "i32", .in = { OF(SW_I32, ANY_INT, 7, 9) }, AXES(1) },                                               \
    { SW_OP_##OP, "i64", .in = { OF(SW_I64, ANY_INT, 7, 9) }, AXES(2) },                                               \
    { SW_OP_##OP, "u8", .in = { OF(SW_U8, ANY_INT, 7, 9) }, AXES(3) },                                                 \
    { SW_OP_##OP, "u32", .in = { OF(SW_U32, ANY_INT, 7, 9) }, AXES(1) },                                               \
    { SW_OP_##OP, "i64, over an empty axis", .in = { OF(SW_I64, ANY_INT, 2, 0) }, AXES(2) }

#define REDUCE_LONG(OP, FILL)                                                                                          \
    { SW_OP_##OP, "long rows", .in = { F32(FILL, 3, 3001) }, AXES(2), .bound = 2e-5, .flags = NO_SECOND },             \
    { SW_OP_##OP, "long columns", .in = { F32(FILL, 3001, 3) }, AXES(1), .bound = 2e-5, .flags = NO_SECOND },          \
    { SW_OP_##OP, "wide columns", .in = { F32(FILL, 5, 1031) }, AXES(1), .bound = 1e-5, .flags = NO_SECOND },          \
    { SW_OP_##OP, "everything of many", .in = { F32(FILL, 70001) }, AXES(1), .bound = 2e-5, .flags = NO_SECOND }

/* clang-format off */
static const ops_case move_cases[] = {
    /* movement */
    { SW_OP_RESHAPE, "", .in = { F32(NORMAL, 3, 4) }, SHAPE(2, 6) },
    { SW_OP_RESHAPE, "to scalar", .in = { F32(NORMAL, 1, 1) }, .like = { .rank = 0 } },
    { SW_OP_RESHAPE, "no elements", .in = { F32(NORMAL, 0, 4) }, SHAPE(3, 0, 2) },
    { SW_OP_RESHAPE, "bool", .in = { OF(SW_BOOL, FLAGS, 3, 4) }, SHAPE(12) },
    { SW_OP_PERMUTE, "transpose", .in = { F32(NORMAL, 3, 5) }, PERM(1, 0) },
    { SW_OP_PERMUTE, "", .in = { F32(NORMAL, 2, 3, 4, 5) }, PERM(2, 0, 3, 1) },
    { SW_OP_PERMUTE, "i64", .in = { OF(SW_I64, ANY_INT, 2, 3, 4) }, PERM(2, 1, 0) },
    { SW_OP_PERMUTE, "no elements", .in = { F32(NORMAL, 2, 0, 4) }, PERM(2, 0, 1) },
    { SW_OP_PERMUTE, "rank 8", .in = { F32(NORMAL, 2, 1, 2, 3, 1, 2, 1, 2) }, PERM(7, 3, 5, 1, 0, 2, 4, 6) },
    { SW_OP_EXPAND, "", .in = { F32(NORMAL, 3, 1, 4) }, SHAPE(3, 5, 4) },
    { SW_OP_EXPAND, "all", .in = { F32(NORMAL, 1, 1) }, SHAPE(3, 5) },
    { SW_OP_EXPAND, "to no elements", .in = { F32(NORMAL, 1, 4) }, SHAPE(0, 4) },
    { SW_OP_EXPAND, "u8", .in = { OF(SW_U8, ANY_INT, 1, 4) }, SHAPE(3, 4) },
    { SW_OP_PAD, "", .in = { F32(NORMAL, 3, 4) }, PADDING({ 1, 0 }, { 2, 3 }, { 0, 0 }, 0.5) },
    { SW_OP_PAD, "interior", .in = { F32(NORMAL, 3, 4) }, PADDING({ 0, 1 }, { 1, 0 }, { 2, 1 }, 0) },
    { SW_OP_PAD, "minus infinity", .in = { F32(NORMAL, 3, 1) }, PADDING({ 1, 1 }, { 1, 1 }, { 0, 0 }, -INFINITY),
      .flags = NO_DIFFERENCES },
    { SW_OP_PAD, "of nothing", .in = { F32(NORMAL, 0, 2) }, PADDING({ 1, 0 }, { 1, 1 }, { 1, 0 }, 7) },
    { SW_OP_PAD, "nothing added", .in = { F32(NORMAL, 3, 2) }, PADDING({ 0, 0 }, { 0, 0 }, { 0, 0 }, 7) },
    { SW_OP_PAD, "i32", .in = { OF(SW_I32, ANY_INT, 3, 2) }, PADDING({ 0, 2 }, { 1, 0 }, { 1, 0 }, -3) },
    { SW_OP_SLICE, "", .in = { F32(NORMAL, 5, 6) }, SLICES({ 1, 0 }, { 4, 6 }, { 1, 1 }) },
    { SW_OP_SLICE, "steps", .in = { F32(NORMAL, 7, 6) }, SLICES({ 1, 0 }, { 7, 5 }, { 2, 3 }) },
    { SW_OP_SLICE, "of nothing", .in = { F32(NORMAL, 5, 6) }, SLICES({ 2, 0 }, { 2, 6 }, { 1, 1 }) },
    { SW_OP_SLICE, "i64", .in = { OF(SW_I64, ANY_INT, 5, 6) }, SLICES({ 0, 1 }, { 5, 6 }, { 2, 2 }) },
    { SW_OP_CONCAT, "axis 0", .in = { F32(NORMAL, 2, 3), F32(NORMAL, 1, 3), F32(NORMAL, 4, 3) }, AXIS(0) },
    { SW_OP_CONCAT, "axis 1", .in = { F32(NORMAL, 2, 3), F32(NORMAL, 2, 1), F32(NORMAL, 2, 5) }, AXIS(1) },
    { SW_OP_CONCAT, "one of them empty", .in = { F32(NORMAL, 2, 3), F32(NORMAL, 2, 0), F32(NORMAL, 2, 2) }, AXIS(1) },
    { SW_OP_CONCAT, "one operand", .in = { F32(NORMAL, 2, 3) }, AXIS(1) },
    { SW_OP_CONCAT, "bool", .in = { OF(SW_BOOL, FLAGS, 4), OF(SW_BOOL, FLAGS, 3) }, AXIS(0) },
    { SW_OP_COPY, "", .in = { F32(NORMAL, 3, 5) }, .flags = ALL_SHAPES },
    { SW_OP_COPY, "u32", .in = { OF(SW_U32, ANY_INT, 3, 5) } },

    /* reduce */
    REDUCE(REDUCE_SUM, NORMAL), REDUCE_LONG(REDUCE_SUM, NORMAL),
    REDUCE(REDUCE_MAX, DISTINCT), REDUCE_LONG(REDUCE_MAX, DISTINCT),
    REDUCE(REDUCE_MIN, DISTINCT), REDUCE_LONG(REDUCE_MIN, DISTINCT),
    REDUCE(REDUCE_PROD, UNIT),
    { SW_OP_REDUCE_PROD, "with zeros", .in = { F32(SOME_ZERO, 5, 7) }, AXES(2), .bound = 1e-5 },
    { SW_OP_REDUCE_PROD, "all axes, with zeros", .in = { F32(SOME_ZERO, 2, 3) }, AXES(3), .bound = 1e-5 },
    { SW_OP_REDUCE_MAX, "equal elements share", .in = { F32(TIES, 5, 7) }, AXES(2), .flags = NO_DIFFERENCES },
    { SW_OP_REDUCE_MIN, "equal elements share", .in = { F32(TIES, 5, 7) }, AXES(1), .flags = NO_DIFFERENCES },
    { SW_OP_REDUCE_MAX, "bool", .in = { OF(SW_BOOL, FLAGS, 5, 7) }, AXES(2) },
    { SW_OP_REDUCE_MIN, "bool", .in = { OF(SW_BOOL, FLAGS, 5, 7) }, AXES(2) },
    { SW_OP_REDUCE_SUM, "few columns", .in = { FIXED(NORMAL, 4096, 6) }, AXES(1), .bound = 1e-5 },
    { SW_OP_REDUCE_MAX, "few columns", .in = { FIXED(NORMAL, 2048, 3) }, AXES(1) },
    { SW_OP_REDUCE_SUM, "huge", .in = { FIXED(HUGE_VALUES, 4, 50) }, AXES(2), .bound = 1e-5 },
    { SW_OP_REDUCE_SUM, "f64", .in = { OF(SW_F64, NORMAL, 4, 50) }, AXES(2), .bound = 1e-14 },

    /* order */
    { SW_OP_ARGMAX, "axis 0", .in = { F32(TIES, 5, 7) }, AXIS(0) },
    { SW_OP_ARGMAX, "axis 1", .in = { F32(TIES, 5, 7, 2) }, AXIS(1) },
    { SW_OP_ARGMAX, "last axis", .in = { F32(NORMAL, 6, 1031) }, AXIS(1), .flags = NO_SECOND },
    { SW_OP_ARGMAX, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32) }, AXIS(1) },
    { SW_OP_ARGMAX, "columns of one value", .in = { FIXED(SPECIAL_COLS, 32, 32) }, AXIS(0) },
    { SW_OP_ARGMAX, "i64", .in = { OF(SW_I64, ANY_INT, 5, 7) }, AXIS(1) },
    { SW_OP_ARGMAX, "size 1", .in = { F32(NORMAL, 5, 1) }, AXIS(1) },
    { SW_OP_ARGMIN, "axis 0", .in = { F32(TIES, 5, 7) }, AXIS(0) },
    { SW_OP_ARGMIN, "axis 1", .in = { F32(TIES, 5, 7, 2) }, AXIS(1) },
    { SW_OP_ARGMIN, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32) }, AXIS(1) },
    { SW_OP_ARGMIN, "u8", .in = { OF(SW_U8, ANY_INT, 5, 7) }, AXIS(0) },
    { SW_OP_SCAN_SUM, "axis 0", .in = { F32(NORMAL, 5, 7) }, AXIS(0), .bound = 1e-5 },
    { SW_OP_SCAN_SUM, "axis 1", .in = { F32(NORMAL, 5, 7, 3) }, AXIS(1), .bound = 1e-5 },
    { SW_OP_SCAN_SUM, "reverse", .in = { F32(NORMAL, 5, 7) }, AXIS_FLAG(1), .bound = 1e-5 },
    { SW_OP_SCAN_SUM, "long", .in = { F32(NORMAL, 2, 2500) }, AXIS(1), .bound = 2e-5, .flags = NO_SECOND },
    { SW_OP_SCAN_SUM, "i32", .in = { OF(SW_I32, ANY_INT, 5, 7) }, AXIS(1) },
    { SW_OP_SCAN_SUM, "empty", .in = { F32(NORMAL, 5, 0) }, AXIS(1) },
    { SW_OP_SCAN_SUM, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32) }, AXIS(1) },
    { SW_OP_SORT, "", .in = { F32(DISTINCT, 5, 7) }, AXIS(1) },
    { SW_OP_SORT, "axis 0, descending", .in = { F32(DISTINCT, 9, 3) }, AXIS_FLAG(0) },
    { SW_OP_SORT, "long", .in = { F32(DISTINCT, 2, 1500) }, AXIS(1), .flags = NO_SECOND },
    { SW_OP_SORT, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32) }, AXIS(1), .flags = ELEMENTWISE },
    { SW_OP_SORT, "special values, descending", .in = { FIXED(SPECIAL_COLS, 32, 32) }, AXIS_FLAG(1),
      .flags = ELEMENTWISE },
    { SW_OP_SORT, "u8", .in = { OF(SW_U8, ANY_INT, 3, 40) }, AXIS(1) },
    { SW_OP_SORT, "empty", .in = { F32(DISTINCT, 3, 0) }, AXIS(1) },
    { SW_OP_SORT, "size 1", .in = { F32(DISTINCT, 3, 1) }, AXIS(1) },
    { SW_OP_ARGSORT, "equal elements keep their order", .in = { F32(TIES, 5, 30) }, AXIS(1) },
    { SW_OP_ARGSORT, "descending", .in = { F32(TIES, 30, 5) }, AXIS_FLAG(0) },
    { SW_OP_ARGSORT, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32) }, AXIS(1) },
    { SW_OP_ARGSORT, "special values, descending", .in = { FIXED(SPECIAL_COLS, 32, 32) }, AXIS_FLAG(1) },
    { SW_OP_ARGSORT, "i64", .in = { OF(SW_I64, ANY_INT, 3, 40) }, AXIS(1) },

    /* index */
    { SW_OP_GATHER, "axis 0", .in = { F32(NORMAL, 5, 3), INDICES(5, 7, 3) }, AXIS(0) },
    { SW_OP_GATHER, "axis 1", .in = { F32(NORMAL, 4, 6, 2), INDICES(6, 4, 3, 2) }, AXIS(1) },
    { SW_OP_GATHER, "i32 indices", .in = { F32(NORMAL, 4, 6), INDICES32(6, 4, 8) }, AXIS(1) },
    { SW_OP_GATHER, "of i64", .in = { OF(SW_I64, ANY_INT, 4, 6), INDICES(6, 4, 8) }, AXIS(1) },
    { SW_OP_GATHER, "no index", .in = { F32(NORMAL, 4, 6), INDICES(6, 4, 0) }, AXIS(1) },
    { SW_OP_GATHER, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32), INDICES(32, 32, 20) }, AXIS(1),
      .flags = ELEMENTWISE },
    { SW_OP_SCATTER_ADD, "repeated", .in = { F32(NORMAL, 5, 3), INDICES(5, 9, 3), F32(NORMAL, 9, 3) }, AXIS(0) },
    { SW_OP_SCATTER_ADD, "axis 1", .in = { F32(NORMAL, 4, 6, 2), INDICES(6, 4, 3, 2), F32(NORMAL, 4, 3, 2) }, AXIS(1) },
    { SW_OP_SCATTER_ADD, "i32 indices", .in = { F32(NORMAL, 6), INDICES32(6, 20), F32(NORMAL, 20) }, AXIS(0) },
    { SW_OP_SCATTER_ADD, "nothing", .in = { F32(NORMAL, 6), INDICES(6, 0), F32(NORMAL, 0) }, AXIS(0) },
    { SW_OP_SCATTER_ADD, "of i64", .in = { OF(SW_I64, ANY_INT, 6), INDICES(6, 9), OF(SW_I64, ANY_INT, 9) }, AXIS(0) },
    { SW_OP_SCATTER_SET, "", .in = { F32(NORMAL, 9, 3), SHUFFLE(9, 5, 3), F32(NORMAL, 5, 3) }, AXIS(0) },
    { SW_OP_SCATTER_SET, "the last one stays", .in = { F32(NORMAL, 4, 5), INDICES(5, 4, 8), F32(NORMAL, 4, 8) },
      AXIS(1) },
    { SW_OP_SCATTER_SET, "of u8", .in = { OF(SW_U8, ANY_INT, 6), INDICES(6, 9), OF(SW_U8, ANY_INT, 9) }, AXIS(0) },
    { SW_OP_SCATTER_MAX, "", .in = { F32(DISTINCT, 5, 3), INDICES(5, 9, 3), F32(DISTINCT, 9, 3) }, AXIS(0) },
    { SW_OP_SCATTER_MAX, "equal elements share", .in = { F32(TIES, 5, 3), INDICES(5, 9, 3), F32(TIES, 9, 3) }, AXIS(0),
      .flags = NO_DIFFERENCES },
    { SW_OP_SCATTER_MAX, "special values",
      .in = { FIXED(SPECIAL_ROWS, 32, 32), INDICES(32, 32, 32), FIXED(SPECIAL_COLS, 32, 32) }, AXIS(1),
      .flags = ELEMENTWISE },
    { SW_OP_SCATTER_MAX, "of i32", .in = { OF(SW_I32, ANY_INT, 6), INDICES(6, 9), OF(SW_I32, ANY_INT, 9) }, AXIS(0) },

    /* contract */
    { SW_OP_DOT, "", .in = { F32(NORMAL, 2, 3), F32(NORMAL, 3, 4) }, .bound = 1e-5 },
    { SW_OP_DOT, "batch", .in = { F32(NORMAL, 2, 3, 4, 5), F32(NORMAL, 2, 3, 5, 6) }, .bound = 1e-5 },
    { SW_OP_DOT, "row by column", .in = { F32(NORMAL, 1, 7), F32(NORMAL, 7, 1) }, .bound = 1e-5 },
    { SW_OP_DOT, "column by row", .in = { F32(NORMAL, 7, 1), F32(NORMAL, 1, 5) }, .bound = 1e-5 },
    { SW_OP_DOT, "odd sizes", .in = { F32(NORMAL, 33, 65), F32(NORMAL, 65, 17) }, .bound = 1e-5, .flags = NO_SECOND },
    { SW_OP_DOT, "nothing to add up", .in = { F32(NORMAL, 3, 0), F32(NORMAL, 0, 4) } },
    { SW_OP_DOT, "no rows", .in = { F32(NORMAL, 0, 3), F32(NORMAL, 3, 4) } },
    { SW_OP_DOT, "no batch", .in = { F32(NORMAL, 0, 2, 3), F32(NORMAL, 0, 3, 4) } },
    { SW_OP_DOT, "special values", .in = { FIXED(SPECIAL_COLS, 32, 32), FIXED(NORMAL, 32, 3) } },
    { SW_OP_DOT, "huge", .in = { FIXED(HUGE_VALUES, 3, 4), FIXED(TINY_VALUES, 4, 3) }, .bound = 1e-5 },

    /* control */
    { SW_OP_STOP_GRADIENT, "", .in = { F32(NORMAL, 3, 4) }, .flags = NO_DIFFERENCES },
    { SW_OP_ALL_REDUCE, "one process", .in = { F32(NORMAL, 3, 4) } },
};
/* clang-format on */

#endif
