/* room.c: what to say when a step on a batch does not fit into the device's memory: which batch does. It is tried out,
 * as no driver tells what is free for whom; nothing is compiled for that. Called by trainer.c. */
#include "train/trainer.h"

#include <stdio.h>

/* Allocates all that a step on n samples needs, and gives it back. */
static sw_status try_batch(sw_trainer *t, int64_t n, uint64_t *bytes)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    SW_TRY(sw__trainer_graph(t, SW__TRAIN, n, &g));
    const sw_status st = sw_compile(g, t->device, &(sw_compile_options){.params = t->params, .build_later = true}, &p);
    if (st == SW_OK) *bytes = sw_program_plan(p)->total;
    sw_program_free(p);
    sw_graph_free(g);
    return st;
}

sw_status sw__trainer_no_room(sw_trainer *t, int64_t n)
{
    char why[900];
    uint64_t bytes = 0;
    int64_t fits = n / 2;
    snprintf(why, sizeof why, "%s", sw_error());
    while (fits > 0 && try_batch(t, fits, &bytes) != SW_OK) fits /= 2;
    if (fits == 0)
        return sw__fail(SW_ERR_MEMORY, "a step on a batch of %lld: %s; not even one sample fits", (long long)n, why);
    return sw__fail(SW_ERR_MEMORY, "a step on a batch of %lld: %s; a batch of %lld fits (%llu bytes)", (long long)n,
                    why, (long long)fits, (unsigned long long)bytes);
}
