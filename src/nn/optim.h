/* optim.h: what optim.c (the graph around an update) and optim_rules.c (the updates) share. Inside nn/. */
#ifndef SW_NN_OPTIM_H
#define SW_NN_OPTIM_H

#include "graph/graph.h"
#include "swoop/nn.h"

/* Parameters that are treated alike as one flat tensor: values, gradients, and what the update needs. */
typedef struct sw__flat {
    sw_graph *g;
    const sw_optimizer *o; /* resolved */
    uint32_t group;        /* the variables' packed group */
    const sw_t *params;    /* the n parameters in it */
    uint32_t n;
    sw_t p, grad;          /* flat */
    sw_t lr, bias1, bias2; /* scalars; invalid where the rule reads none */
    sw_t good;             /* the step counts (bool scalar): skip_nonfinite, loss_scale; else invalid */
    double decay;
} sw__flat;

/* ---- loss_scale.c: state of dynamic loss scaling ---- */
typedef struct sw__loss_scale { sw_t scale, count; } sw__loss_scale;
/* Makes the variables; gives what sw_grad_from starts from. */
sw_t sw__scale_of(sw_t loss, const sw_optimizer *o, sw__loss_scale *s);
/* Takes the scale out of the gradients, and lets it grow or shrink. Gives whether they are finite: a bool scalar. */
sw_t sw__scale_step(sw_graph *g, const sw_optimizer *o, const sw__loss_scale *s, sw__flat *f, int n);

/* The scalars that the host gives before step t = 0, 1, …: in: the schedule's lr; out: what the rule reads. */
typedef struct sw__scalars { double lr, bias1, bias2; } sw__scalars;

#define SW__ACCUMULATED "accumulated" /* "fc1.weight.accumulated" */
/* A step over several micro-batches is in two programs: each micro-batch adds to the gradients, then all learn from them. */
typedef enum sw__part {
    SW__PART_WHOLE,      /* gradients and update, as sw_optimizer_apply */
    SW__PART_ACCUMULATE, /* the gradients, times `scale`, are added to state (or begin it, unless `keep`) */
    SW__PART_UPDATE,     /* the update from that state */
    SW__PART_BOTH        /* both, for the variables that the two have between them */
} sw__part;
typedef struct sw__accumulate { sw__part part; sw_t scale, keep; } sw__accumulate; /* f32 and bool scalars */
sw_status sw__optimizer_part(const sw_optimizer *o, sw_t loss, const sw_t *frozen, int n_frozen, const sw__accumulate *a);

/* The first group whose pattern the parameter's name has, or n_groups: the rest. */
int sw__optimizer_group(const sw_optimizer *o, const char *name);

/* optim_rules.c: one state variable for each parameter ("fc1.weight.exp_avg"), packed like the parameters: the flat tensor. */
sw_t sw__flat_state(const sw__flat *f, const char *what);

typedef struct sw__rule {
    const char *name; /* "adamw", as in run files */
    void (*update)(const sw__flat *f);
    void (*scalars)(const sw_optimizer *o, int64_t t, sw__scalars *s); /* NULL: lr as it is */
    bool bias1, bias2;                                                 /* reads them */
    sw_optimizer defaults; /* where 0 stands for something else */
} sw__rule;
extern const sw__rule sw__rules[SW_OPTIMIZER_COUNT];

#endif
