/* run_plan.c: what a training step would take on a device: bytes, operations, the largest batch. The library side of
 * `swoop plan`; a graph is recorded as for training (trainer.c) and planned by exec/, on nothing that is allocated. */
#include "io/layers.h"
#include "nn/models.h"
#include "train/run.h"
#include "train/run_options.h"
#include "train/trainer.h"

#define LARGEST ((int64_t)1 << 20)

/* The trainer only records graphs: its own device is never used. */
typedef struct planning {
    const sw_plan_request *q;
    sw_device *device, *none;
    sw_trainer *trainer;
    sw_dataset *train, *val, *test;
    sw_device_plan *out;
} planning;

/* Are samples of one axis sequences of tokens to this model? To those that read tokens they can be nothing else. */
static bool are_tokens(const sw_config *c, const sw_plan_request *q)
{
    const char *const model = sw_config_text(c, SW_KEY_MODEL);
    return q->tokens || (q->rank == 1 && (sw__model_reads_tokens(model) || sw__layers_read_tokens(model)));
}

/* The answers of samples that are imagined: what comes after each token, unless the model is a classifier; what CTC reads, as
 * long as it can be; a class for each place; or one. */
static void imagine_answers(const sw_config *c, sw_dataset_info *d)
{
    const char *const model = sw_config_text(c, SW_KEY_MODEL);
    const bool tokens = d->x_dtype == SW_I64;
    if ((tokens && !sw__model_classifies(model)) || (d->x_rank == 3 && sw__model_per_pixel(model))) {
        const int from = tokens ? 0 : 1;
        d->y_rank = d->x_rank - from;
        memcpy(d->y_shape, d->x_shape + from, (size_t)d->y_rank * sizeof *d->y_shape);
    } else if (sw__model_reads_sequences(model) && d->x_rank == 3) {
        d->target = SW_TARGET_SEQUENCE;
        d->y_rank = 1;
        d->y_shape[0] = SW_MAX(d->x_shape[2] / 4, (int64_t)1);
    }
}

/* What a data set would say of samples that are not there. */
static sw_status imagine(const sw_config *c, const sw_plan_request *q, sw_dataset_info *d)
{
    if (sw_config_is_auto(c, SW_KEY_NUM_CLASSES))
        return sw__fail(SW_ERR_ARGUMENT, "a shape instead of data needs num_classes, too");
    *d = (sw_dataset_info){.name = "samples of the given shape", .x_dtype = are_tokens(c, q) ? SW_I64 : SW_F32,
                           .x_rank = q->rank,
                           .target = SW_TARGET_CLASS, .y_dtype = SW_I64, .count = INT64_MAX,
                           .classes = sw_config_int(c, SW_KEY_NUM_CLASSES)};
    for (int i = 0; i < q->rank; i++) {
        if (q->shape[i] < 1) return sw__fail(SW_ERR_ARGUMENT, "axis %d of the shape is %lld", i, (long long)q->shape[i]);
        d->x_shape[i] = q->shape[i];
    }
    imagine_answers(c, d);
    return SW_OK;
}

static sw_status prepare(planning *p, const sw_config *c)
{
    sw_dataset_info about;
    if (p->q->rank > 0) {
        SW_TRY(imagine(c, p->q, &about));
    } else {
        SW_TRY(sw__run_open_data(c, false, &p->train, &p->val, &p->test));
        about = *sw_dataset_about(p->train);
        p->out->count = about.count;
    }
    sw_trainer_options o;
    sw__run_lists lists;
    SW_TRY(sw__run_lists_read(&lists, c));
    sw_status st = sw__run_trainer_options(c, &about, &lists, &o);
    if (st == SW_OK) st = sw_device_open("null", NULL, &p->none);
    if (st == SW_OK) st = sw_trainer_new(p->none, &o, &p->trainer);
    sw__run_lists_free(&lists); /* the trainer has copies */
    SW_TRY(st);
    sw__trainer_shapes(p->trainer, &about);
    p->out->batch = SW_MIN(o.batch, about.count);
    p->out->classes = about.classes;
    p->out->tokens = about.x_dtype == SW_I64;
    p->out->sample_rank = about.x_rank;
    memcpy(p->out->sample_shape, about.x_shape, sizeof p->out->sample_shape);
    return SW_OK;
}

static sw_status count_parameters(const sw_graph *g, int64_t *out)
{
    const int n = sw_graph_variables(g, SW_VAR_PARAM, NULL, 0);
    sw_t *const list = sw__malloc((size_t)SW_MAX(n, 1) * sizeof *list);
    if (!list) return sw__no_memory((size_t)n * sizeof *list, "the parameters' list");
    sw_graph_variables(g, SW_VAR_PARAM, list, n);
    *out = 0;
    for (int i = 0; i < n; i++) *out += sw_elements(list[i]);
    sw__free(list);
    return SW_OK;
}

static sw_status count_all(const planning *p, int64_t n)
{
    sw_graph *g = NULL;
    SW_TRY(sw__trainer_graph(p->trainer, SW__TRAIN, n, &g));
    const sw_status st = count_parameters(g, &p->out->parameters);
    sw_graph_free(g);
    return st;
}

static sw_status plan_batch(const planning *p, int64_t n, bool tell, sw_plan *out)
{
    if (tell) SW_TRY(count_all(p, n));
    const sw_status st = sw__memory_plan(p->trainer, p->device, n, tell ? p->q->launch : NULL, p->q->context, out);
    if (st == SW_OK && tell) p->out->micro_batch = p->trainer->micro.n > 0 ? SW_MIN(p->trainer->micro.n, n) : n;
    return st;
}

/* With a budget: done at once, however much is recomputed; in micro-batches any batch would fit. */
static sw_status fits(const planning *p, int64_t n, sw_plan *plan, bool *yes)
{
    const sw_status st = sw__memory_plan_whole(p->trainer, p->device, n, plan);
    *yes = st == SW_OK && plan->total <= p->out->device.memory_free;
    return st == SW_ERR_MEMORY ? SW_OK : st;
}

/* Where a straight line through two plans reaches what there is; without a second one some batches more. */
static int64_t guess_largest(const planning *p, uint64_t one, uint64_t many, int64_t n, int64_t most)
{
    const uint64_t memory = p->trainer->o.memory, free = p->out->device.memory_free;
    const uint64_t room = memory > 0 ? SW_MIN(memory, free) : free;
    const double slope = n > 1 ? (double)(many - SW_MIN(one, many)) / (double)(n - 1) : (double)one;
    const double guess = 1 + (double)(room - SW_MIN(one, room)) / SW_MAX(slope, 1);
    return guess < (double)most ? (int64_t)guess : most;
}

/* Bytes grow almost linearly with the batch: a straight line through two plans says where to look, plans decide. */
static sw_status find_largest(const planning *p)
{
    sw_device_plan *const out = p->out;
    const int64_t most = out->count > 0 ? SW_MIN(out->count, LARGEST) : LARGEST;
    const int64_t parts = SW_MAX(p->trainer->o.grad_accum, (int64_t)1);
    sw_plan one, batch;
    bool yes = false;
    SW_TRY(fits(p, 1, &one, &yes));
    if (!yes) return SW_OK;
    SW_TRY(fits(p, out->batch, &batch, &yes));
    int64_t low = yes ? out->batch : 1, high = yes ? most + 1 : out->batch;
    int64_t probe = guess_largest(p, one.total, batch.total, (out->batch + parts - 1) / parts, most / parts) * parts;
    /* To within a sixty-fourth, as layouts make steps in the line; to the sample where a budget was thought out. */
    while (low + 1 < high && (p->trainer->o.memory > 0 || high - low > low / 64)) {
        probe = SW_MIN(SW_MAX(probe, low + 1), high - 1);
        SW_TRY(fits(p, probe, &batch, &yes));
        if (yes) low = probe;
        else high = probe;
        probe = yes && high <= most ? low + SW_MAX((high - low) / 8, 1) : low + (high - low) / 2;
    }
    out->largest_batch = low;
    return SW_OK;
}

static sw_status plan(planning *p, const sw_config *c)
{
    const sw_device_options options = {.tf32 = strcmp(sw_config_text(c, SW_KEY_PRECISION), "tf32") == 0};
    if (p->q->gpu) SW_TRY(sw_device_open_planned(p->q->gpu, !p->q->own_kernels, &p->device));
    else SW_TRY(sw_device_open(p->q->device, &options, &p->device));
    p->out->device = *sw_device_info(p->device);
    SW_TRY(prepare(p, c));
    SW_TRY(plan_batch(p, p->out->batch, true, &p->out->plan));
    p->out->fits = p->out->plan.total <= p->out->device.memory_free;
    return find_largest(p);
}

sw_status sw_run_plan(sw_config *c, const sw_plan_request *q, sw_device_plan *out)
{
    if (!c || !q || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_run_plan: configuration, request or out is NULL");
    *out = (sw_device_plan){0};
    planning p = {.q = q, .out = out};
    const sw_status st = plan(&p, c);
    sw_trainer_free(p.trainer);
    sw_device_close(p.none);
    sw_device_close(p.device);
    sw_dataset_close(p.train);
    sw_dataset_close(p.val);
    sw_dataset_close(p.test);
    return st;
}
