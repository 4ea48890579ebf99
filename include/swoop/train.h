/* swoop/train.h: training and evaluating a model on a data set: trainer, checkpoints, model files, and whole runs.
 * On top of device.h, nn.h, data.h, io.h, config.h. The command `swoop` calls sw_run_* and prints what they report. */
#ifndef SWOOP_TRAIN_H
#define SWOOP_TRAIN_H

#include "swoop/config.h"
#include "swoop/data.h"
#include "swoop/device.h"
#include "swoop/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- trainer ----------------------------------------------------------------------------------------------------- */

typedef struct sw_trainer sw_trainer;

/* How a model computes: docs/precision.md. Weights, optimiser and files are f32 in each of them. */
typedef enum sw_precision {
    SW_PRECISION_F32 = 0,
    SW_PRECISION_TF32, /* f32; the device must have been opened with sw_device_options.tf32 */
    SW_PRECISION_BF16, /* mixed: products and what follows them in bf16 */
    SW_PRECISION_F16,  /* the same in f16, with dynamic loss scaling */
    SW_PRECISION_COUNT
} sw_precision;
SW_API const char *sw_precision_name(sw_precision p); /* "f32", "tf32", "bf16", "f16"; NULL for no precision */
SW_API bool sw_precision_find(const char *name, sw_precision *out);
/* What the plan of a step says of a mixed precision: what is emulated, and what that costs. Without a mixed one: "". */
SW_API void sw_precision_note(sw_precision p, const sw_plan *plan, const sw_device_properties *d, char *buf, size_t size);

typedef struct sw_trainer_options {
    sw_model_fn model;      /* a function of yours, or … */
    const char *model_name; /* … the name of one of swoop's: "lenet", "mlp:256,128" */
    sw_loss_fn loss;        /* NULL: cross-entropy for classes, mean squared error for values, CTC for sequences */
    double label_smoothing; /* classes, cross-entropy: in training (Szegedy et al. 2016); evaluation is without */
    sw_optimizer optimizer; /* sw_adamw(.lr = 1e-3) … */
    sw_schedule schedule;   /* total 0: the steps of the fit */
    int64_t batch;          /* 0: 64 */
    int64_t outputs;        /* for model_name: 0: the data set's classes, or the size of its values */
    sw_init init;           /* kind 0: each layer's own; else for all parameters of two or more dimensions */
    sw_precision precision;
    bool stochastic_rounding; /* bf16, f16: the half copies of weights are rounded up or down by chance (docs/precision.md) */
    uint64_t seed;          /* initial weights, shuffling, dropout */
    /* Device memory: docs/memory.md. */
    uint64_t memory;        /* > 0: a step, and what is evaluated between steps, take at most so many bytes of the device: values
                             * are computed again instead of kept, then batches are cut into micro-batches. SW_ERR_MEMORY where
                             * that is not enough */
    int64_t grad_accum;     /* > 1: each batch in at least so many micro-batches, then one update. The loss must be a mean over
                             * samples; batch norm and class weights see micro-batches */
    bool shrink;            /* when the device is out of memory: plan the step anew with less, and go on; else stop */
    bool profile;           /* time every launch of the training step: sw_trainer_profile */
    double ema;             /* > 0: an exponential average of the weights with this decay, updated after every step
                               (torch.optim.swa_utils; the first is the weights); see below. 0.999 */
    int64_t swa_start;      /* > 0: the equal average of the weights at the ends of this epoch (from 1) and all later ones
                               of a fit (SWA, Izmailov et al. 2018); see below */
    double swa_lr;          /* > 0: the learning rate from swa_start on; 0: the schedule's */
    int64_t freeze_epochs;  /* > 0: the optimizer's frozen groups are learnt from the epoch after so many on: each optimiser's
                               step count begins then for them (fit; by hand: sw_trainer_thaw) */
    const double *class_weights; /* classes, cross-entropy: of each class in the training loss, which is divided by their sum
                               over the batch (as torch's); evaluation is without. NULL: 1 */
    int64_t n_class_weights;
} sw_trainer_options;
/* With ema or swa_start evaluating, predicting and saving a model use the averaged weights once there are some, training
 * goes on with its own. Running statistics of batch norm are averaged with them (torch's AveragedModel with use_buffers), not
 * estimated anew. */

/* Copies the options, groups and class weights too; needs no data yet: programs are compiled when the first batch's shape
 * is known, one for each batch size that occurs, all on the same variables. */
SW_API sw_status sw_trainer_new(sw_device *d, const sw_trainer_options *o, sw_trainer **out);
SW_API void sw_trainer_free(sw_trainer *t);

/* Compiles for the data set's shapes now (fit and evaluate do it by themselves), so that parameters exist. A GPU's kernels
 * are built when they are first needed: by fit before the first step, for all that it will run. */
SW_API sw_status sw_trainer_prepare(sw_trainer *t, const sw_dataset *d);
SW_API sw_params *sw_trainer_params(sw_trainer *t);     /* NULL before prepare */
SW_API const sw_plan *sw_trainer_plan(sw_trainer *t);   /* of the training program; NULL before prepare */
/* How a step is done, after prepare. */
typedef struct sw_trainer_memory_info {
    uint64_t memory;     /* bytes allowed; 0: no limit */
    int64_t micro_batch; /* samples of a micro-batch, or of the batch */
    int64_t parts;       /* micro-batches of a whole batch; 1: none */
    int shrunk;          /* times that the step was planned anew for want of memory */
    sw_plan plan;        /* as sw_trainer_plan; .again says what is recomputed */
} sw_trainer_memory_info;
SW_API sw_status sw_trainer_memory(const sw_trainer *t, sw_trainer_memory_info *out);
SW_API int64_t sw_trainer_steps_done(const sw_trainer *t);
/* Table, JSON or trace of the training program (options.profile); sw_string_free. */
SW_API sw_status sw_trainer_profile(sw_trainer *t, sw_profile_format format, char **out);

/* One training step on n samples as they come from a data set (sw_batch.x and .y); *loss may be NULL. The learning rate
 * is the schedule's at the present step. In f16 a step whose gradients overflow changes nothing but the loss scale and is not
 * counted by sw_trainer_steps_done: the next one is the same step again. */
SW_API sw_status sw_trainer_step(sw_trainer *t, const void *x, const void *y, int64_t n, double *loss);

/* Frozen groups are learnt from now on (freeze_epochs > 0); fit does it by itself. Once: later calls do nothing. */
SW_API sw_status sw_trainer_thaw(sw_trainer *t);

typedef struct sw_metrics {
    double loss;     /* mean over samples */
    double accuracy; /* classes: share of samples whose highest output is the label; sequences: share that is read without
                        an error (sw_ctc_greedy); else NaN */
    int64_t n;
    double label_errors; /* sequences: insertions, deletions and replacements for each label of the answers; else NaN */
} sw_metrics;

/* In evaluation mode (running statistics, no dropout), in batches of at most 256 or the training batch if larger.
 * confusion: NULL, or classes*classes counters [true][predicted] that are added to. */
SW_API sw_status sw_trainer_evaluate(sw_trainer *t, const sw_dataset *d, sw_metrics *out, int64_t *confusion);
/* Model outputs [n, outputs…] of the samples indices[0..n) (NULL: the first n) in f32. */
SW_API sw_status sw_trainer_predict(sw_trainer *t, const sw_dataset *d, const int64_t *indices, int64_t n, float *out);
SW_API int64_t sw_trainer_output_size(sw_trainer *t); /* outputs a sample; 0 before prepare */

/* Asks a running fit to finish its step, save and return SW_ERR_INTERRUPTED. May be called from a signal handler. */
SW_API void sw_trainer_stop(sw_trainer *t);

/* ---- before the first step --------------------------------------------------------------------------------------- */

typedef enum sw_finding_level { SW_FINDING_NOTE, SW_FINDING_WARNING, SW_FINDING_ERROR } sw_finding_level;
typedef struct sw_finding {
    sw_finding_level level;
    const char *check;   /* "inputs", "labels", "gradient", "relu", "frozen", "loss", "memory" */
    const char *message; /* valid during the call */
} sw_finding;
typedef void (*sw_finding_fn)(void *context, const sw_finding *f);
/* Looks for what would waste a training, with one forward and backward pass on the first batch (at most 64 of its samples):
 * inputs and answers that are not finite or all alike, labels out of range, classes without samples, parameters that no
 * gradient reaches, frozen ones, dead relus, first gradients that vanish or explode. docs/checks.md has the list and the
 * limits. Changes nothing: the training after it has the same bits. Each finding is told to `each` (may be NULL); the first
 * error is the status: SW_ERR_DATA, SW_ERR_ARGUMENT, SW_ERR_DIVERGED (the first loss is not finite). keep_order: as for fit. */
SW_API sw_status sw_trainer_preflight(sw_trainer *t, const sw_dataset *train, bool keep_order, sw_finding_fn each,
                                      void *context);

/* ---- fit --------------------------------------------------------------------------------------------------------- */

typedef enum sw_event_kind {
    SW_EVENT_STEP,       /* after each step */
    SW_EVENT_EPOCH,      /* after each epoch and its validation */
    SW_EVENT_CHECKPOINT, /* a checkpoint was written */
    SW_EVENT_NOT_FINITE, /* a step was skipped because its loss is NaN or infinite; message says which tensor */
    SW_EVENT_OVERFLOW,   /* f16: a step was skipped because its gradients are not finite, and the loss scale halved; no
                            failure. message says the scale and which tensor */
    SW_EVENT_STOPPED     /* early stop: message says why */
} sw_event_kind;

typedef struct sw_event {
    sw_event_kind kind;
    int64_t epoch, epochs;           /* from 1; epochs 0 if steps or time decide */
    int64_t step, steps;             /* in all, from 1; total known in advance, or 0 */
    int64_t epoch_step, epoch_steps; /* within the epoch, from 1 */
    double loss;                     /* STEP: of this step; EPOCH: mean over the epoch's samples */
    double accuracy;                 /* training, over the epoch so far, as the steps went; NaN if not classes */
    bool has_valid;
    sw_metrics valid;                /* EPOCH */
    bool best;                       /* EPOCH: the monitored figure improved */
    double lr;
    double seconds;                  /* since fit began, earlier parts of a resumed run included */
    double epoch_seconds;            /* of this epoch's steps (EPOCH: validation not included) */
    double samples_per_second;       /* over the epoch so far */
    double input_wait;               /* share of the time spent waiting for data, 0 … 1 */
    double eta;                      /* seconds left, NaN if unknown */
    const char *message;
} sw_event;
/* Returning anything but SW_OK ends the fit with that status (after saving). */
typedef sw_status (*sw_event_fn)(void *context, const sw_event *e);

typedef struct sw_fit_options {
    int64_t epochs;          /* 0 with no steps and no time: 1 */
    int64_t steps;           /* > 0: at most so many steps in all */
    double time;             /* > 0: at most so many hours */
    const sw_dataset *valid; /* evaluated after every val_every-th epoch; NULL: none */
    int64_t val_every;       /* 0: 1 */
    const char *monitor;     /* "val_loss" (NULL), "val_acc", "loss", "acc"; without valid, val_* fall back to the
                                training figure of the same name, said in the log */
    int64_t patience;        /* > 0: stop after so many validations without gain */
    const char *checkpoint;  /* folder, made if missing: best.safetensors, last.safetensors, checkpoint/; NULL: none */
    const char *resume;      /* folder of such a fit to go on with (may be the same); NULL: start anew */
    int64_t save_every;      /* checkpoint every so many steps besides each epoch's end; 0: epochs only */
    bool keep_order;         /* do not shuffle */
    bool drop_last;
    int workers;             /* loader threads */
    bool continue_on_nan;    /* skip the step and go on; else stop with SW_ERR_DIVERGED, naming step and tensor */
    sw_event_fn event;
    void *context;
    const sw_text_pair *metadata; /* added to every model file that is written */
    size_t n_metadata;
    int64_t shadow_every;    /* > 0: every so many steps, the step is first computed op by op on the training's device and
                                each op again, from the same inputs, on another: an op out of its bound ends the fit with
                                SW_ERR_DEVICE and is named with both values. docs/checks.md */
    const char *shadow;      /* that other device; NULL: "ref" */
} sw_fit_options;

typedef struct sw_fit_result {
    int64_t epochs, steps;          /* in all, earlier parts of a resumed run included */
    int64_t samples;                /* seen by this call */
    double seconds, loss, accuracy; /* training: the last epoch's */
    sw_metrics valid;               /* the last; n = 0 without */
    int64_t best_epoch;             /* 0: none */
    double best;                    /* the monitored figure then */
    int64_t skipped;                /* steps skipped: for NaN, and overflows */
    int64_t overflows;              /* f16: those skipped because gradients times loss_scale were not finite */
    double loss_scale;              /* f16: of the last step; else 0 */
    int shrunk;                     /* times that the step was planned anew for want of memory */
    bool early;                     /* stopped by patience */
    int64_t shadowed;               /* steps of this call that were computed twice, with the same results */
} sw_fit_result;

/* Trains. result may be NULL. Saving happens at each epoch's end, every save_every steps and before any return that
 * leaves good state, also SW_ERR_INTERRUPTED. Same seed, device, thread count and data: the same bits; a resumed fit
 * ends with the bits of the uninterrupted one. */
SW_API sw_status sw_trainer_fit(sw_trainer *t, const sw_dataset *train, const sw_fit_options *o, sw_fit_result *result);

/* ---- model files ------------------------------------------------------------------------------------------------- */

/* A safetensors file with all parameters and buffers under their names, and the metadata given plus "swoop.model" if the
 * model has a name. Written atomically. */
SW_API sw_status sw_trainer_save(sw_trainer *t, const char *path, const sw_text_pair *metadata, size_t n);
/* Loads variables by name from a safetensors file; prefix: NULL, or what comes before the names there ("init."). Every
 * parameter and buffer must be there with its shape; what is missing or does not fit is named. Tensors that the model
 * has none for are an error too, unless they are optimiser state or a prefix is given. */
SW_API sw_status sw_trainer_load(sw_trainer *t, const char *path, const char *prefix);

/* ---- runs: a configuration, a run folder ------------------------------------------------------------------------- */

/* What was decided before the first step, for printing: one line each, NULL-terminated pairs of label and text. */
typedef struct sw_run_callbacks {
    void (*note)(void *context, const char *label, const char *text); /* "data", "model", "train", "device", "run" … */
    sw_event_fn event;
    void *context;
    volatile const int *stop; /* becomes non-zero to stop as by sw_trainer_stop; may be NULL */
} sw_run_callbacks;

typedef struct sw_run_result {
    sw_fit_result fit;
    bool has_test;
    sw_metrics test;
    char folder[1024]; /* "runs/train-2"; "" with dry_run */
} sw_run_result;

/* swoop train: opens data, model and device as the configuration says, checks everything, makes the run folder
 * (config.yaml, machine.json, plan.json, log.txt, results.csv, best/last.safetensors, checkpoint/, trace.json with
 * profile), trains. The configuration's `auto` values are replaced by what was chosen. */
SW_API sw_status sw_run_train(sw_config *c, const sw_run_callbacks *cb, sw_run_result *out);

/* swoop verify: replays steps of a run and compares the hashes of its variables with those that the run recorded
 * (hashes.csv). The run's data and its config.yaml have to be as they were. Writes nothing. */
typedef struct sw_verify_options {
    int64_t steps;      /* so many steps; 0: up to the last that was recorded */
    bool from_start;    /* from the initial weights; else from the checkpoint before the last */
    const char *device; /* NULL: the run's */
    int threads;        /* 0: the run's */
} sw_verify_options;
typedef struct sw_verify_result {
    bool equal;
    int64_t from, to;   /* steps after which the replay began and ended */
    int64_t compared;   /* recorded steps among them */
    int tensors;        /* compared at each: parameters, buffers and, as one, the optimiser's state */
    int64_t same_to;    /* the last recorded step that was equal; 0: none */
    int64_t step;       /* not equal: the first recorded step that differs … */
    char tensor[256];   /* … the first tensor there, and … */
    int differing;      /* … how many differ */
    bool elsewhere;     /* device, driver, threads or version are not what they were: notes say so */
} sw_verify_result;
/* cb may be NULL. SW_OK also when not equal. */
SW_API sw_status sw_run_verify(const char *folder, const sw_verify_options *o, const sw_run_callbacks *cb,
                               sw_verify_result *out);

/* swoop kernels: compiles every program that this run would use on its GPU (training and evaluation, whole batches and
 * last ones) and writes their kernels to a folder, as text and binary, with a manifest: docs/kernel-folder.md. Trains
 * nothing. The key `kernels` makes a run take them from there. cb may be NULL. */
SW_API sw_status sw_run_kernels(sw_config *c, const char *folder, const sw_run_callbacks *cb);

/* swoop tune RUN: measures the products and convolutions of every program that this run would use on its GPU, without a
 * limit of time and beside a library where there is one (CLBlast), and keeps what is found for later runs: docs/tuning.md.
 * Trains nothing. cb may be NULL; sw_tune_result_free. */
SW_API sw_status sw_run_tune(sw_config *c, const sw_run_callbacks *cb, sw_tune_result *out);

/* swoop plan: what one training step of this configuration would take on a device, in bytes and operations, before
 * anything is allocated there or trained. */
typedef struct sw_plan_request {
    const char *device;          /* as for sw_device_open; or … */
    const sw_gpu_model *gpu;     /* … not NULL: a GPU that is not there, as for sw_device_open_planned */
    bool own_kernels;            /* gpu: plan without the vendor's libraries, which takes a fraction of the time */
    int rank;                    /* > 0: samples of this shape, and num_classes classes; 0: the configuration's data */
    int64_t shape[SW_MAX_RANK];
    bool tokens;                 /* with rank: the samples are tokens (of num_classes kinds), not numbers; to models that read
                                  * tokens (gpt, lstm, gru, transformer) those of rank 1 are without saying */
    sw_plan_launch_fn launch;    /* NULL, or told of each launch of the step */
    void *context;
} sw_plan_request;
typedef struct sw_device_plan {
    sw_device_properties device;
    sw_plan plan;                /* of a step on `batch` samples */
    int64_t batch, count;        /* count: samples of the data; 0 with a shape */
    int64_t micro_batch;         /* samples that are done at once: fewer than batch with memory or grad_accum */
    int64_t parameters;
    int64_t sample_rank, sample_shape[SW_MAX_RANK], classes;
    bool tokens;                 /* that is what a sample holds */
    bool fits;                   /* plan.total is at most device.memory_free */
    int64_t largest_batch;       /* that fits; at most 2^20 and, where count is known, count. 0: none does. With memory: that
                                  * fits into it at once, recomputed if need be; in micro-batches there is no largest. With
                                  * grad_accum: in so many micro-batches */
} sw_device_plan;
SW_API sw_status sw_run_plan(sw_config *c, const sw_plan_request *q, sw_device_plan *out);

typedef struct sw_eval_result {
    sw_metrics metrics;
    int64_t classes;
    int64_t *confusion;  /* [classes][classes], true by predicted; NULL for values. sw_eval_result_free */
    char **class_names;  /* entries may be NULL */
    char model[256], file[1024];
    char data[256], split[8]; /* what it was evaluated on */
} sw_eval_result;
/* path: a run folder (its best.safetensors) or a model file. data, split: what to evaluate on (NULL: the run's own data,
 * "test" or else "val" split). device: NULL: auto. */
SW_API sw_status sw_run_eval(const char *path, const char *data, const char *split, const char *device, int threads,
                             sw_eval_result *out);
SW_API void sw_eval_result_free(sw_eval_result *r);

/* One for each sample of `data` (as for sw_dataset_open; labels are not needed), or for each place of its mask: called in
 * order. */
typedef struct sw_prediction {
    int64_t index;
    int64_t n;            /* outputs; where each position of a sequence has a class: those of the last position */
    const float *outputs; /* classes: probabilities; else values */
    int64_t label;        /* classes: the likeliest; else -1 */
    const char *class_name; /* NULL where there is none */
    const char *const *class_names; /* [n], entries may be NULL; or NULL. Valid during the call */
    int64_t position, positions; /* images with a class for each place: which of how many, row by row; else 0 of 1 */
    int rank;             /* … of the mask; 0: one answer a sample */
    const int64_t *shape; /* … its height and width */
    const int64_t *labels; /* sequences: what is read, n_labels of them; outputs are then the probabilities [steps, classes] */
    int64_t n_labels;
} sw_prediction;
typedef sw_status (*sw_prediction_fn)(void *context, const sw_prediction *p);
SW_API sw_status sw_run_predict(const char *path, const char *data, const char *split, const char *device, int threads,
                                sw_prediction_fn each, void *context);

/* swoop predict RUN --prompt: a model that was trained to say what comes next (gpt, lstm, gru on text) goes on from a prompt.
 * Same file, device, thread count, prompt and seed: the same tokens. */
typedef struct sw_generate_options {
    const char *prompt;  /* UTF-8 of characters that the model knows; bytes, for one of bytes; for one of other tokens their
                            numbers, with spaces between. As much of its end as the model was trained on (sequence) counts */
    int64_t length;      /* tokens to add */
    double temperature;  /* logits are divided by it before one is drawn by their softmax; 0: always the likeliest */
    int64_t top;         /* > 0: of the likeliest so many only */
    uint64_t seed;
    const char *device;  /* NULL: auto */
    int threads;         /* 0: one for each core */
} sw_generate_options;
typedef struct sw_token {
    int64_t token;
    const char *text;    /* a whole UTF-8 character; of a model of bytes one byte; else the number. n bytes and a 0 */
    size_t n;
    bool number;
} sw_token;
/* Called as each token is there; anything but SW_OK ends it with that status. */
typedef sw_status (*sw_token_fn)(void *context, const sw_token *t);
SW_API sw_status sw_run_generate(const char *path, const sw_generate_options *o, sw_token_fn each, void *context);

#ifdef __cplusplus
}
#endif
#endif
