/* run_options.h: from the keys of a run to what the trainer is told. */
#ifndef SW_TRAIN_RUN_OPTIONS_H
#define SW_TRAIN_RUN_OPTIONS_H

#include "swoop/train.h"

/* The key's value, if it is still auto; fmt prints a double. */
sw_status sw__run_choose(sw_config *c, sw_key k, const char *fmt, double value);
/* The scheme of that name; false: it must be a file. */
bool sw__run_init_scheme(const char *name, sw_init *init);
/* The error that there is neither, with those that there are. */
sw_status sw__run_no_scheme(const char *name);
sw_status sw__run_schedule(const sw_config *c, int64_t epoch_steps, int64_t total, sw_schedule *out);

/* Key shadow, "ref:100" or "100". */
typedef struct sw__run_shadow { int64_t every; const char *device; char text[64]; } sw__run_shadow; /* every 0: none */
sw_status sw__run_shadow_of(const sw_config *c, sw__run_shadow *out);

/* What keys with lists hold: the options of a trainer point here until it is made. */
typedef struct sw__run_lists {
    sw_param_group groups[SW_MAX_PARAM_GROUPS]; /* freeze's, then lr_scale's */
    int n_groups;
    char *freeze, *scales; /* their patterns */
    double *class_weights; /* NULL: none */
    int64_t n_class_weights;
} sw__run_lists;
sw_status sw__run_lists_read(sw__run_lists *l, const sw_config *c);
void sw__run_lists_free(sw__run_lists *l);
/* Each pattern stands for some parameter. */
sw_status sw__run_lists_check(const sw__run_lists *l, const sw_params *p);
/* Key class_weights, by the training data's classes. */
sw_status sw__run_class_weights(sw__run_lists *l, const sw_config *c, const sw_dataset *d);
sw_status sw__run_milestones(const sw_config *c, int64_t epoch_steps, sw_schedule *s);

/* What the configuration says of the trainer, without a schedule; the strings are the configuration's, lists are in l. */
sw_status sw__run_trainer_options(const sw_config *c, const sw_dataset_info *d, const sw__run_lists *l,
                                  sw_trainer_options *out);
/* Every effective key stands in config.yaml: what the optimiser chose, too. */
sw_status sw__run_note_chosen(sw_config *c, const sw_optimizer *o);

sw_status sw__run_memory(const sw_config *c, sw_trainer_options *out); /* memory, grad_accum, on_oom */

#endif
