/* ops_case.h: how the tables of op tests (ops_*.h) are written: a case is an op, its operands, its attribute.
 * Included by test_ops.c, which runs every case on every backend. */
#ifndef SW_TESTS_OPS_CASE_H
#define SW_TESTS_OPS_CASE_H

#include "graph/graph.h"
#include "pass/pass.h"
#include "swoop/device.h"

/* What an operand is filled with. Reproducible; floats are rounded to float, so that all devices get the same. */
typedef enum fill {
    NORMAL = 1,   /* mean 0, standard deviation 1 */
    POSITIVE,     /* uniform in [0.5, 2.5) */
    NEGATIVE,     /* -POSITIVE */
    UNIT,         /* uniform in [-0.9, 0.9) */
    DISTINCT,     /* shuffled multiples of 0.1 plus 0.03 for each operand before: no two equal, none near another */
    TIES,         /* multiples of 0.5 in [-1, 1]: many are equal */
    SOME_ZERO,    /* POSITIVE with about a third zeros */
    HUGE_VALUES,  /* around 1e30 */
    TINY_VALUES,  /* around 1e-30 */
    PROBABILITIES, /* rows of the last axis are positive and sum to 1 */
    SPECIAL_ROWS, /* element i is special value i / n, of a square [n, n]: with SPECIAL_COLS all pairs meet */
    SPECIAL_COLS, /* element i is special value i % n: zeros, infinities, NaN, the ends of the type's range */
    FLAGS,        /* 0 or 1 */
    SMALL_INT,    /* integers in [-3, 3], or [0, 6] if unsigned */
    ANY_INT,      /* integers of the whole range of the type */
    INDEX,        /* integers in [0, extent), with repetitions */
    SHUFFLED      /* INDEX without repetition along the case's axis */
} fill;

typedef struct operand {
    fill fill; /* 0: no operand */
    sw_dtype type;
    int rank;
    int64_t dim[SW_MAX_RANK];
    int64_t extent; /* INDEX */
    bool fixed;     /* no gradient is asked for */
} operand;

#define DIMS(...) .rank = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), .dim = { __VA_ARGS__ }
#define F32(FILL, ...) { .fill = FILL, .type = SW_F32, DIMS(__VA_ARGS__) }
#define FIXED(FILL, ...) { .fill = FILL, .type = SW_F32, .fixed = true, DIMS(__VA_ARGS__) }
#define OF(TYPE, FILL, ...) { .fill = FILL, .type = TYPE, DIMS(__VA_ARGS__) }
#define EXACT(TYPE, FILL, ...) { .fill = FILL, .type = TYPE, .fixed = true, DIMS(__VA_ARGS__) }
#define SCALAR(TYPE, FILL) { .fill = FILL, .type = TYPE }
#define INDICES(EXTENT, ...) { .fill = INDEX, .type = SW_I64, .extent = EXTENT, DIMS(__VA_ARGS__) }
#define INDICES32(EXTENT, ...) { .fill = INDEX, .type = SW_I32, .extent = EXTENT, DIMS(__VA_ARGS__) }
#define SHUFFLE(EXTENT, ...) { .fill = SHUFFLED, .type = SW_I64, .extent = EXTENT, DIMS(__VA_ARGS__) }

enum {
    NO_DIFFERENCES = 1, /* the gradient is not that of the function (stop_gradient, rounding) or is taken at a kink */
    ELEMENTWISE = 2,    /* the bound is relative to each element, not to the tensor's largest */
    ALL_SHAPES = 4,     /* run with every shape of a list in place of the operands' (pointwise ops) */
    NO_SECOND = 8,      /* no gradient of the gradient */
    FIRST_OUTPUT = 16   /* the loss depends on output 0 only: norms have a shorter gradient then */
};

#define MAX_OPERANDS 8

typedef struct ops_case ops_case;
struct ops_case {
    sw__op op;        /* the op that the case is about: the graph must contain it */
    const char *name; /* what is special about the case; "" if nothing is */
    operand in[MAX_OPERANDS];
    sw__attr attr;
    sw__node like;    /* dtype, rank, dim where sw__node_add wants them given */
    sw_t (*build)(sw_graph *g, const sw_t *in, const ops_case *c); /* NULL: sw__node_add(op, in, attr, like) */
    double bound;     /* of cpu against ref; 0: 2e-6 */
    unsigned flags;
};

#endif
