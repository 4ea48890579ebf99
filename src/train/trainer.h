/* trainer.h: what the files of train/ share: the trainer, its programs, where a fit stands.
 * trainer.c builds and steps, average.c keeps averages of weights, fit.c loops, checkpoint.c saves, diagnose.c looks for the first NaN, run.c drives all. */
#ifndef SW_TRAIN_TRAINER_H
#define SW_TRAIN_TRAINER_H

#include "base/base.h"
#include "swoop/train.h"
#include <signal.h>

typedef enum sw__mode {
    SW__TRAIN,   /* loss, gradients, updates */
    SW__EVAL,    /* outputs, loss, correct */
    SW__PREDICT, /* outputs only: no labels */
    SW__DIAGNOSE, /* forward as in training, nothing is updated */
    SW__ACCUM,   /* loss and gradients of a micro-batch, added to state */
    SW__UPDATE,  /* the update from that state, and the batch's loss; samples of none */
    SW__BOTH     /* never compiled: the variables of these two */
} sw__mode;

/* A program for one mode and batch size, with the places of what it takes and gives (-1: none). */
typedef struct sw__batch_program {
    sw__mode mode;
    int64_t n;
    sw_program *program;
    int x, y, lr[2], bias1[2], bias2[2]; /* [1]: of groups that are late */
    int loss, correct, output;
    int scale, finite; /* of dynamic loss scaling */
    int64_t x_elements, y_elements;
    bool averaged; /* reads the averaged weights */
    bool frozen;   /* a step of before the thaw */
} sw__batch_program;

#define SW__MAX_PROGRAMS 16

struct sw_trainer {
    sw_device *device;
    sw_trainer_options o;
    char *model_name; /* own copy, or NULL */
    char *patterns;   /* of the optimiser's groups, one after the other */
    sw_param_group groups[SW_MAX_PARAM_GROUPS];
    double *class_weights;
    /* shapes, known after prepare */
    bool prepared;
    sw_dtype x_dtype, y_dtype;
    int x_rank, y_rank;
    int64_t x_shape[SW_MAX_RANK], y_shape[SW_MAX_RANK];
    sw_target known_target; /* … of answers, where a model file says it and the data has none; AUTO: classes */
    int known_rank;         /* -1: not known */
    int64_t known_shape[SW_MAX_RANK];
    sw_target target;
    int64_t classes;      /* of the data; 0: values */
    int64_t longest;      /* sequences: the steps that the longest answer needs */
    int64_t positions;    /* that have a class of their own, in a sample: tokens of a sequence; else 1 */
    int64_t outputs;      /* asked of a named model */
    int64_t output_size;  /* elements that the model gives for a sample */
    int64_t output_classes; /* … on the last axis, for a place of it */
    sw_params *params;
    sw__batch_program programs[SW__MAX_PROGRAMS];
    int n_programs;
    /* where training stands */
    int64_t step;         /* optimiser steps done */
    int64_t schedule_from; /* the schedule counts from this step (a resumed run may lay it anew) */
    double schedule_lr;
    int64_t averaged;     /* how often the average of the weights was updated; 0: there is none yet */
    sw_program *average;  /* adds the present weights to an equal average; NULL: not made yet */
    bool swa_now;         /* swa_start has come */
    bool from_previous;   /* resume from the checkpoint before the last */
    int64_t thawed_at;    /* step at which late groups began to be learnt; -1: not yet */
    /* how a step is done: memory.c, micro.c */
    struct { int64_t n; const void *x, *y; } micro; /* samples of a micro-batch, 0: whole batches; what was sent last */
    int64_t batch_of_plan; /* samples of a whole batch of this data; 0: not known yet */
    int shrunk;            /* times that the step was planned anew for want of memory */
    double scale;         /* loss scaling: what the last step used; 0: there is none */
    bool overflow;        /* the last step's gradients were not finite though its loss was: it was skipped */
    volatile sig_atomic_t stop;
};

/* Where a fit stands beside the variables: all that a checkpoint has to hold. */
typedef struct sw__fit_state {
    int64_t epoch;            /* from 0 */
    sw_loader_position at;
    double loss_sum;          /* over the epoch so far */
    int64_t correct, samples; /* the same */
    double seconds, epoch_seconds;
    double best;
    int64_t best_epoch, since_best;
    int64_t skipped;          /* steps; overflows: those of them for gradients beyond f16 */
    int64_t overflows;
    sw_plateau plateau;
    int64_t batch;            /* that `at` counts in */
    int64_t seed;
    bool shuffle, drop_last;
} sw__fit_state;

/* Steps of so many epochs; what would be more than doubles count exactly ("until I stop it") is cut to that. */
static inline int64_t sw__steps_of(int64_t epochs, int64_t epoch_steps)
{
    const int64_t most = (int64_t)1 << 53;
    return epoch_steps > 0 && epochs > most / epoch_steps ? most : epochs * epoch_steps;
}

/* ---- trainer.c ---- */
/* mode: what the first program is for. Variables made for evaluation have no optimiser state: sw_compile refuses to train
 * from them later. */
sw_status sw__trainer_prepare(sw_trainer *t, const sw_dataset *d, sw__mode mode);
void sw__trainer_shapes(sw_trainer *t, const sw_dataset_info *d); /* as prepare does first: enough for a graph */
sw_status sw__trainer_program(sw_trainer *t, sw__mode mode, int64_t n, sw__batch_program **out);
/* Builds the model's graph for n samples; outputs "loss", "correct", "output" as the mode has them. */
sw_status sw__trainer_graph(sw_trainer *t, sw__mode mode, int64_t n, sw_graph **out);
/* The programs for `count` samples in batches: whole ones, and the last if it is smaller and not dropped. Their kernels
 * are built by trainer_build, all in one go, or by the first run. */
sw_status sw__trainer_programs(sw_trainer *t, sw__mode mode, int64_t count, int64_t batch, bool drop_last);
sw_status sw__trainer_build(sw_trainer *t);
sw_status sw__trainer_set_batch(sw__batch_program *p, const sw_trainer *t, const void *x, const void *y);
/* Finds the places of inputs and outputs of p->program, which is for p->n samples. */
void sw__trainer_places(const sw_trainer *t, sw__batch_program *p);
/* Sets what the host computes for the present step: rates, bias corrections, the weight of an average. */
sw_status sw__trainer_set_scalars(sw_trainer *t, sw__batch_program *p);
int64_t sw__eval_batch(const sw_trainer *t, int64_t count); /* samples of a batch when `count` are evaluated */
double sw__trainer_lr(const sw_trainer *t, int64_t step);
/* A step in three: a batch is sent, the step on the last n that were sent is launched, and its counts are read: *correct
 * is 0 where there are no classes; the loss is not judged, but with loss scaling t->overflow is set. The next batch may be sent before the counts are read. */
sw_status sw__trainer_send(sw_trainer *t, const void *x, const void *y, int64_t n);
sw_status sw__trainer_launch(sw_trainer *t, int64_t n);
sw_status sw__trainer_read(sw_trainer *t, int64_t n, double *loss, double *correct);

struct sw__accumulate;
sw_status sw__trainer_learn(const sw_trainer *t, sw_t loss, const struct sw__accumulate *a); /* records the optimiser */
/* The graph that declares all variables of a step, those that are frozen for now included. */
sw_status sw__trainer_variables_graph(sw_trainer *t, sw__mode mode, int64_t n, sw_graph **out);

/* ---- micro.c ---- */
sw_status sw__micro_record(const sw_trainer *t, sw_graph *g, sw__mode mode, sw_t loss, sw_t correct);
sw_status sw__micro_update(const sw_trainer *t, sw_graph *g);
void sw__micro_send(sw_trainer *t, const void *x, const void *y); /* x and y must last until launch returns */
sw_status sw__micro_launch(sw_trainer *t, int64_t n);
sw_status sw__micro_programs(sw_trainer *t, int64_t whole, int64_t rest); /* for batches of these sizes */
bool sw__micro_is_state(const char *name); /* what lives within a step: no part of a checkpoint */

/* ---- memory.c ---- */
uint64_t sw__memory_for(const sw_trainer *t, const sw_graph *g); /* sw_compile_options.memory for one of the programs */
/* Sets micro.n for batches of n samples on that device. */
sw_status sw__memory_decide(sw_trainer *t, sw_device *d, int64_t n);
/* The same; and the plan of the program that takes most, launch by launch. On SW_ERR_MEMORY the message says all. */
sw_status sw__memory_plan(sw_trainer *t, sw_device *d, int64_t n, sw_plan_launch_fn each, void *context, sw_plan *out);
/* The same without cutting a batch more often than grad_accum asks. */
sw_status sw__memory_plan_whole(sw_trainer *t, sw_device *d, int64_t n, sw_plan *out);
/* After SW_ERR_MEMORY: frees all programs, plans with less and compiles the step, if the options say so; else the same
 * error. */
sw_status sw__memory_shrink(sw_trainer *t);

/* ---- average.c ---- */
/* After the optimiser was recorded: the averages as state of the training graph and, if exponential, their update. */
sw_status sw__average_record(const sw_trainer *t, sw_graph *g, sw_t loss);
/* Makes a graph that evaluates read the averages, if there are some. */
sw_status sw__average_read(const sw_trainer *t, sw_graph *g);
int sw__average_of(const sw_params *p, const char *name); /* the place of a variable's average; -1: it has none */
sw_status sw__average_prepare(sw_trainer *t); /* compiles what an equal average takes, if there is to be one */
sw_status sw__average_add(sw_trainer *t); /* the present weights to the equal average */
sw_status sw__average_weight(const sw_trainer *t, sw_program *p); /* sets what the next exponential update takes */

/* ---- room.c ---- */
/* After a training program for n samples found no room on the device: the same error, with the batch that would fit. */
sw_status sw__trainer_no_room(sw_trainer *t, int64_t n);

/* ---- sequences.c ---- */
typedef struct sw__sequences { int64_t right, errors, labels; } sw__sequences; /* samples without an error; labels */
/* Adds n samples: outputs [n, steps, classes] against answers [n, S]. */
sw_status sw__sequences_score(const sw_trainer *t, const float *outputs, const int64_t *y, int64_t n, sw__sequences *sum);

/* ---- fit.c ---- */
/* The figure that decides which epoch is the best: a known one, and one that this data has. After prepare. */
sw_status sw__fit_check_monitor(const sw_trainer *t, const char *monitor);

/* ---- checkpoint.c ---- */
sw_status sw__checkpoint_write(sw_trainer *t, const char *folder, const sw__fit_state *s);
sw_status sw__checkpoint_read(sw_trainer *t, const char *folder, sw__fit_state *s);
sw_status sw__make_folder(const char *path); /* and its parents; fine if it is there */

/* ---- shadow.c ---- */
/* Computes the present step op by op on the trainer's device and on another; the variables stay as they are. message: the
 * first op that is out of its bound, or "". *loss: the step's, unfused. */
sw_status sw__shadow(sw_trainer *t, sw_device *beside, const void *x, const void *y, int64_t n, double *loss, char *message,
                     size_t size);

/* ---- diagnose.c ---- */
/* Runs the step's graph again on the present (not updated) variables, node by node, and says in `message` which value
 * was the first that is not finite: of the forward pass, or, with a scale, of the gradients of loss times scale. */
sw_status sw__diagnose(sw_trainer *t, const void *x, const void *y, int64_t n, double scale, char *message, size_t size);

#endif
