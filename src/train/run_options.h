/* run_options.h: from the keys of a run to what the trainer is told. */
#ifndef SW_TRAIN_RUN_OPTIONS_H
#define SW_TRAIN_RUN_OPTIONS_H

#include "swoop/train.h"

/* The key's value, if it is still auto; fmt prints a double. */
sw_status sw__run_choose(sw_config *c, sw_key k, const char *fmt, double value);
/* The scheme of that name; false: it must be a file. */
bool sw__run_init_scheme(const char *name, sw_init *init);
sw_schedule sw__run_schedule(const sw_config *c, int64_t epoch_steps, int64_t total);
/* What the configuration says of the trainer, without a schedule; the strings are the configuration's. */
sw_status sw__run_trainer_options(const sw_config *c, const sw_dataset_info *d, sw_trainer_options *out);
/* Every effective key stands in config.yaml: what the optimiser chose, too. */
sw_status sw__run_note_chosen(sw_config *c, const sw_optimizer *o);

#endif
