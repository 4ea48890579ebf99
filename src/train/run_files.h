/* run_files.h: the run folder: which one, and the files in it that are not weights.
 * Used by run.c only. */
#ifndef SW_TRAIN_RUN_FILES_H
#define SW_TRAIN_RUN_FILES_H

#include "base/base.h"
#include "swoop/train.h"
#include "train/run.h"

typedef struct sw__run_files {
    char folder[SW__PATH]; /* "" while there is none */
    void *log;             /* FILE of log.txt, or NULL */
    sw__text results;      /* what results.csv holds, one line an epoch after the header */
    int64_t log_every;
    sw__text early;        /* log lines from before the folder was made */
} sw__run_files;

/* Keys project and name: whether a folder can be made of them. */
sw_status sw__run_files_check(const sw_config *c);
/* A new folder PROJECT/NAME (or NAME-2, NAME-3 …), an existing one with exist_ok, or the resumed one; PROJECT/last is
 * linked to it. Opens log.txt, reads results.csv of a resumed run. */
sw_status sw__run_files_open(sw__run_files *f, const sw_config *c, const char *resume);
void sw__run_files_close(sw__run_files *f);
/* config.yaml, machine.json, plan.json. */
sw_status sw__run_files_describe(sw__run_files *f, sw_config *c, const sw_device *d, const sw_plan *plan);
sw_status sw__run_files_write(const sw__run_files *f, const char *name, const char *text);
/* A line for log.txt (kept for later while there is no folder). A log that cannot be written does not stop a run. */
void sw__run_files_log(const sw__run_files *f, const char *fmt, ...) SW_PRINTF(2, 3);
/* results.csv and log lines for an event of fit. */
sw_status sw__run_files_event(sw__run_files *f, const sw_event *e);

#endif
