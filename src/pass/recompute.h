/* recompute.h: what the search (recompute.c) and the sequences it tries (sequence.c) share. Inside pass/.
 * A value here is a storage of the arena; a sequence is the list of steps with some of them repeated. */
#ifndef SW_PASS_RECOMPUTE_H
#define SW_PASS_RECOMPUTE_H

#include "pass/sched.h"

/* What is known of a storage before anything is repeated. */
typedef struct sw__kept {
    uint32_t first_writer, n_writers; /* the steps that make it, in order: a slice of sw__recompute.writer */
    uint32_t n_uses;                  /* steps that read it */
    bool fixed;                       /* must live as the schedule has it: an output, or a writer cannot be repeated */
} sw__kept;

/* One storage that may lie where another did, in one step. */
typedef struct sw__heir { int32_t in, out; } sw__heir;

/* A value may be made again so many times less one; each time it is another version. Versions do not overlap. */
#define SW__VERSIONS 4

/* The entries of a sequence in which each version lives; first -1: never. */
typedef struct sw__lives { int32_t first[SW__VERSIONS], last[SW__VERSIONS]; } sw__lives;

/* After step at[k] version k is gone; who wants the value later makes it again. n 0: the value is kept. */
typedef struct sw__cuts { uint32_t at[SW__VERSIONS - 1], n; } sw__cuts;

typedef struct sw__entry { uint32_t step, at; bool again; } sw__entry; /* at: the step of the schedule that it is for */

typedef struct sw__recompute {
    sw__schedule *s;
    /* by step */
    bool *repeatable, *dear;
    uint32_t *limit;           /* the first step that overwrites a variable which this one reads */
    double *cost;
    uint32_t *heir_start;
    sw__heir *heir;
    size_t n_heirs, cap_heirs;
    /* by storage */
    sw__kept *value;
    uint32_t *writer;
    sw__cuts *cuts;
    /* the sequence that the dropped values make */
    sw__entry *entry;
    uint32_t n_entries, cap_entries;
    sw__lives *lives;          /* by storage */
    uint8_t *version;          /* by storage: the last that was made */
    bool allow_dear, possible;
    int64_t *live;             /* by entry: bytes */
    int64_t *over;             /* by step: the most bytes over the target while it is done */
    int64_t target;
    double excess, extra;      /* bytes over the target, summed over the entries; cost of what is repeated */
    int64_t peak;
} sw__recompute;

/* sequence.c */
sw_status sw__recompute_learn(sw__recompute *c, sw__schedule *s);
void sw__recompute_forget(sw__recompute *c);
/* The sequence for the values that are dropped now, its lives and figures; c->possible is false if there is none. */
void sw__recompute_try(sw__recompute *c);
/* The version that lives in this entry, or -1. */
int sw__version_at(const sw__lives *l, uint32_t entry);
/* The schedule with that sequence: steps and storages of *out are new, their arrays the caller's (sw__free), references
 * are from `arena`. */
sw_status sw__recompute_apply(const sw__recompute *c, sw__arena *arena, sw__schedule *out);

#endif
