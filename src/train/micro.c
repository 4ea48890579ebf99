/* micro.c: a step on a batch in several parts: each micro-batch adds its gradients to state on the device, then one update
 * learns from all of them. The loss is the mean over the whole batch, as without; batch norm sees micro-batches.
 * Called by trainer.c when it records, sends, launches and reads; train/memory.c decides how many parts: docs/memory.md. */
#include "nn/optim.h"
#include "train/trainer.h"
#include <math.h>

#define INPUT_SCALE "micro_scale" /* a micro-batch's share of the batch */
#define INPUT_FIRST "micro_first" /* 1: what was accumulated is of the step before */
#define SUM_LOSS "batch.loss." SW__ACCUMULATED
#define SUM_CORRECT "batch.correct." SW__ACCUMULATED

bool sw__micro_is_state(const char *name)
{
    const char *const dot = strrchr(name, '.');
    return dot && strcmp(dot + 1, SW__ACCUMULATED) == 0;
}

/* ---- recording ------------------------------------------------------------------------------------------------- */

static sw_t scalar_state(sw_graph *g, const char *name)
{
    return sw_variable(g, name, SW_VAR_STATE, SW_F32, 0, NULL, (sw_init){0});
}

static void add_up(sw_t sum, sw_t value, const sw__accumulate *a)
{
    sw_assign(sum, sw_add(sw_where(a->keep, sum, sw_const(sum.graph, SW_F32, 0)), value));
}

sw_status sw__micro_record(const sw_trainer *t, sw_graph *g, sw__mode mode, sw_t loss, sw_t correct)
{
    const sw_t first = sw_input(g, INPUT_FIRST, SW_F32, 0, NULL);
    const sw__accumulate a = {.part = mode == SW__BOTH ? SW__PART_BOTH : SW__PART_ACCUMULATE,
                              .scale = sw_input(g, INPUT_SCALE, SW_F32, 0, NULL),
                              .keep = sw_eq(first, sw_const(g, SW_F32, 0))};
    add_up(scalar_state(g, SUM_LOSS), sw_mul(sw_cast(loss, SW_F32), a.scale), &a);
    if (sw_valid(correct)) add_up(scalar_state(g, SUM_CORRECT), sw_cast(correct, SW_F32), &a);
    SW_TRY(sw_graph_status(g));
    SW_TRY(sw__trainer_learn(t, loss, &a));
    return mode == SW__BOTH ? sw__average_record(t, g, loss) : SW_OK;
}

sw_status sw__micro_update(const sw_trainer *t, sw_graph *g)
{
    const sw_t loss = scalar_state(g, SUM_LOSS);
    sw_output(sw_mul_scalar(loss, 1), "loss");
    if (t->target == SW_TARGET_CLASS) sw_output(sw_mul_scalar(scalar_state(g, SUM_CORRECT), 1), "correct");
    SW_TRY(sw_graph_status(g));
    SW_TRY(sw__trainer_learn(t, loss, &(sw__accumulate){.part = SW__PART_UPDATE}));
    return sw__average_record(t, g, loss);
}

/* ---- a step ---------------------------------------------------------------------------------------------------- */

static sw_status set(sw_program *p, const char *input, double value)
{
    return sw_program_set(p, sw_program_input(p, input), SW_F64, &value, 1);
}

/* The samples from `from` on, m of the n that were sent. */
static sw_status add_gradients(sw_trainer *t, int64_t from, int64_t m, int64_t n)
{
    sw__batch_program *p = NULL;
    const size_t x = (size_t)sw__dims_product(t->x_shape, t->x_rank) * sw_dtype_size(t->x_dtype);
    const size_t y = (size_t)sw__dims_product(t->y_shape, t->y_rank) * sw_dtype_size(t->y_dtype);
    SW_TRY(sw__trainer_program(t, SW__ACCUM, m, &p));
    const char *const first_x = t->micro.x, *const first_y = t->micro.y;
    SW_TRY(sw__trainer_set_batch(p, t, first_x + (size_t)from * x, first_y + (size_t)from * y));
    SW_TRY(set(p->program, INPUT_SCALE, (double)m / (double)n));
    SW_TRY(set(p->program, INPUT_FIRST, from == 0));
    return sw_program_run(p->program);
}

void sw__micro_send(sw_trainer *t, const void *x, const void *y)
{
    t->micro.x = x;
    t->micro.y = y;
}

sw_status sw__micro_launch(sw_trainer *t, int64_t n)
{
    sw__batch_program *p = NULL;
    for (int64_t from = 0; from < n; from += t->micro.n)
        SW_TRY(add_gradients(t, from, SW_MIN(t->micro.n, n - from), n));
    SW_TRY(sw__trainer_program(t, SW__UPDATE, 1, &p));
    SW_TRY(sw__trainer_set_scalars(t, p));
    return sw_program_run(p->program);
}

/* The sizes that batches of n samples come to. */
static sw_status programs_of(sw_trainer *t, int64_t n)
{
    sw__batch_program *p = NULL;
    SW_TRY(sw__trainer_program(t, SW__ACCUM, SW_MIN(t->micro.n, n), &p));
    return n > t->micro.n && n % t->micro.n ? sw__trainer_program(t, SW__ACCUM, n % t->micro.n, &p) : SW_OK;
}

sw_status sw__micro_programs(sw_trainer *t, int64_t whole, int64_t rest)
{
    sw__batch_program *p = NULL;
    SW_TRY(programs_of(t, whole));
    if (rest > 0) SW_TRY(programs_of(t, rest));
    return sw__trainer_program(t, SW__UPDATE, 1, &p);
}
