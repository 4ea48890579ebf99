/* hashes.h: hashes.csv of a run folder: what the variables were after some of the steps. Written by run.c as a run goes, read
 * by run_verify.c, which does the same steps again. */
#ifndef SW_TRAIN_HASHES_H
#define SW_TRAIN_HASHES_H

#include "base/base.h"
#include "swoop/train.h"
#include "train/run.h"

typedef struct sw__hashes {
    char path[SW__PATH + 16];
    int64_t every; /* besides the first ten steps and each epoch's last */
    void *file;    /* FILE, open to append; NULL: nothing is written yet */
} sw__hashes;

/* After a step: a row, if it is one of those. The first row of a resumed run takes the place of all from its step on. */
sw_status sw__hashes_event(sw__hashes *h, sw_params *p, const sw_event *e);
void sw__hashes_close(sw__hashes *h);

/* "step,fc1.weight,…,(optimizer)": every parameter and buffer, then all state together. */
sw_status sw__hashes_header(const sw_params *p, sw__text *out);
/* The present row without its step: "1f03…,…". XXH3, 64 bits, of each one's bytes. */
sw_status sw__hashes_row(sw_params *p, sw__text *out);

#endif
