/* progress.h: what `swoop train` prints while it trains: notes, one line per epoch, and on a terminal a line redrawn.
 * train.c passes the run's events here. */
#ifndef SWOOP_CLI_PROGRESS_H
#define SWOOP_CLI_PROGRESS_H

#include "cli.h"

typedef struct progress {
    const char *valid;   /* "val", or "test" where that is what is validated on */
    const char *monitor; /* "val_loss" … as the figures go, so with "test" in place of "val" */
    int64_t log_every;
    bool stops_on_nan; /* then the error says it all */
    int64_t skipped, overflows;
    int64_t epoch, epoch_steps; /* of which loss_sum is the sum, */
    double loss_sum;            /* so that the redrawn line shows what the epoch's line will say */
    bool drawn;                 /* there is a redrawn line on the terminal */
    double drawn_at;
    sw_event best; /* the epoch that was the best, so far as this process saw it; epoch 0: none */
    char monitor_text[16];
} progress;

void progress_init(progress *p, const sw_config *c);
void progress_note(void *context, const char *label, const char *text);
sw_status progress_event(void *context, const sw_event *e);
void progress_clear(progress *p);                                           /* takes the redrawn line away */
void progress_line(const progress *p, const char *label, const char *text); /* "label   text", wrapped on a terminal */
/* "val_loss 0.2671, val_acc 0.9012" of the best epoch. */
void progress_best(const progress *p, const sw_fit_result *r, char *out, size_t size);

#endif
