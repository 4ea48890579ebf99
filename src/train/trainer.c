/* trainer.c: from options and a data set's shapes to programs, and one step, evaluation or prediction with them.
 * Under fit.c and run.c; on exec and nn. */
#include "train/trainer.h"
#include "exec/exec.h"
#include "nn/models.h"
#include "nn/optim.h"
#include "pass/pass.h"
#include <math.h>

void sw_trainer_stop(sw_trainer *t)
{
    if (t) t->stop = 1;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------------ */

static sw_t batch_input(sw_graph *g, const char *name, sw_dtype type, int64_t n, int rank, const int64_t *shape)
{
    int64_t full[SW_MAX_RANK + 1] = {n};
    for (int i = 0; i < rank; i++) full[i + 1] = shape[i];
    if (rank + 1 > SW_MAX_RANK)
        return sw__graph_error(g, SW_ERR_SHAPE, "samples of %d axes: with the batch's, more than %d", rank, SW_MAX_RANK);
    return sw_input(g, name, type, rank + 1, full);
}

/* Labels of one number a sample against outputs [n, 1], and the like: the same elements in another shape. */
static sw_t like_output(sw_t y, sw_t out)
{
    if (sw_type(y) != sw_type(out) || sw_elements(y) != sw_elements(out)) return y;
    int64_t shape[SW_MAX_RANK];
    for (int i = 0; i < sw_rank(out); i++) shape[i] = sw_dim(out, i);
    return sw_reshape(y, sw_rank(out), shape);
}

/* Images: logits [N, C, H, W …], as convolutions give them, stand against masks [N, H, W …]. */
static bool channels_are_classes(const sw_trainer *t, sw_t out)
{
    const int axes = t->y_rank < 0 ? sw_rank(out) - 2 : t->y_rank; /* to predict with a file that does not say: as the model */
    if (t->target != SW_TARGET_CLASS || axes < 2 || sw_rank(out) != axes + 2) return false;
    for (int i = 0; i < t->y_rank; i++)
        if (sw_dim(out, i + 2) != t->y_shape[i]) return false;
    return true;
}

/* The classes on the last axis, where losses and counters look for them. */
static sw_t classes_last(const sw_trainer *t, sw_t out)
{
    if (!sw_valid(out) || !channels_are_classes(t, out)) return out;
    int order[SW_MAX_RANK] = {0};
    const int rank = sw_rank(out);
    for (int i = 1; i + 1 < rank; i++) order[i] = i + 1;
    order[rank - 1] = 1;
    return sw_permute(out, order);
}

/* How many of a batch are right: a scalar. */
static sw_t count_correct(sw_t out, sw_t y)
{
    const sw_t right = sw_eq(sw_argmax(out, sw_rank(out) - 1, false), sw_cast(y, SW_I64));
    return sw_sum(sw_cast(right, SW_F32), SW_ALL_AXES, false);
}

/* Batches whose label is a class of `outputs` many; checked here so that the message speaks of data and model. */
static sw_status check_classes(const sw_trainer *t, sw_t out)
{
    if (t->target != SW_TARGET_CLASS || t->o.loss || !sw_valid(out)) return SW_OK;
    const bool unknown = t->y_rank < 0; /* to predict only: as many positions as the model has */
    bool fits = unknown ? sw_rank(out) >= 2 : sw_rank(out) == t->y_rank + 2;
    for (int i = 0; fits && i < t->y_rank; i++) fits = sw_dim(out, i + 1) == t->y_shape[i];
    if (!fits && t->y_rank <= 0)
        return sw__fail(SW_ERR_SHAPE, "the model gives %d axes for a batch; class labels need [batch, classes]", sw_rank(out));
    if (!fits) {
        char text[96];
        return sw__fail(SW_ERR_SHAPE, "the model gives %s for a batch; a class for each of a sample's %lld positions needs [batch, "
                        "%s]%s", sw__shape_text(sw__node_of(out), text, sizeof text), (long long)t->positions,
                        t->y_rank > 1 ? "classes, height, width" : "positions, classes",
                        t->y_rank > 1 ? ": masks are what model unet learns" : "");
    }
    if (sw_dim(out, -1) < t->classes)
        return sw__fail(SW_ERR_DATA, "the data has %lld classes but the model only %lld outputs", (long long)t->classes,
                        (long long)sw_dim(out, -1));
    return SW_OK;
}

/* The same for what CTC reads: a class for each step, and steps enough for the longest answer. */
static sw_status check_sequences(const sw_trainer *t, sw_t out)
{
    char text[96];
    if (t->target != SW_TARGET_SEQUENCE || (t->o.loss && t->o.loss != sw_ctc) || !sw_valid(out)) return SW_OK;
    if (sw_rank(out) != 3)
        return sw__fail(SW_ERR_SHAPE, "the model gives %s for a batch; CTC reads sequences from [batch, steps, classes], as model "
                        "crnn gives", sw__shape_text(sw__node_of(out), text, sizeof text));
    if (sw_dim(out, 2) < t->classes)
        return sw__fail(SW_ERR_DATA, "the data has %lld classes, with the blank, but the model only %lld outputs",
                        (long long)t->classes, (long long)sw_dim(out, 2));
    if (sw_dim(out, 1) < t->longest)
        return sw__fail(SW_ERR_DATA, "the longest answer needs %lld steps (its labels, and a blank between two equal ones), but the "
                        "model gives %lld: give it wider samples, or shorter answers", (long long)t->longest,
                        (long long)sw_dim(out, 1));
    return SW_OK;
}

/* Tokens beyond those that a model has a row for. */
static sw_status check_vocabulary(const sw_trainer *t, const sw_dataset_info *d)
{
    const int64_t own = t->o.model || d->x_dtype != SW_I64 ? 0 : sw__model_vocabulary(t->model_name);
    if (own == 0 || d->vocabulary <= own) return SW_OK;
    return sw__fail(SW_ERR_DATA, "%s: its tokens go up to %lld, but model %s knows %lld: their number is its fourth size, as in "
                    "transformer:2x4x64x%lld", d->name, (long long)d->vocabulary - 1, t->model_name, (long long)own,
                    (long long)d->vocabulary);
}

/* The losses of the library and the answers that they are for; a user's own loss sees to itself. */
static sw_status check_loss(const sw_trainer *t)
{
    const bool classes = t->target == SW_TARGET_CLASS;
    if (t->o.label_smoothing < 0 || t->o.label_smoothing >= 1)
        return sw__fail(SW_ERR_ARGUMENT, "label_smoothing %g is not in 0 … 1", t->o.label_smoothing);
    if (t->o.label_smoothing > 0 && (!classes || (t->o.loss && t->o.loss != sw_cross_entropy)))
        return sw__fail(SW_ERR_ARGUMENT, "label_smoothing is for classes and cross_entropy");
    const bool sequence = t->target == SW_TARGET_SEQUENCE;
    if (sequence != (t->o.loss == sw_ctc) && t->o.loss && (t->o.loss == sw_ctc || t->o.loss == sw_cross_entropy))
        return sw__fail(SW_ERR_ARGUMENT, sequence ? "the answers are sequences, for loss ctc"
                                                  : "loss ctc needs sequences as answers: integers [samples, labels]");
    if (classes && t->o.loss == sw_mse)
        return sw__fail(SW_ERR_ARGUMENT, "loss mse compares values, but the labels are classes: use cross_entropy");
    if (t->class_weights && (!classes || (t->o.loss && t->o.loss != sw_cross_entropy)))
        return sw__fail(SW_ERR_ARGUMENT, "class_weights are for classes and cross_entropy");
    const int64_t n_classes = t->output_size / SW_MAX(t->positions, (int64_t)1);
    if (t->class_weights && t->o.n_class_weights != n_classes)
        return sw__fail(SW_ERR_ARGUMENT, "class_weights has %lld weights, but the model gives %lld classes",
                        (long long)t->o.n_class_weights, (long long)n_classes);
    if (!classes && t->o.loss == sw_cross_entropy && t->output_size < 2)
        return sw__fail(SW_ERR_ARGUMENT, "loss cross_entropy needs classes (whole numbers as labels) or a probability of each "
                        "class, but there is one value a sample: use mse");
    return SW_OK;
}

static void set_init(const sw_trainer *t, sw_graph *g)
{
    if (t->o.init.kind == SW_INIT_ZEROS) return;
    for (uint32_t i = 0; i < g->n_vars; i++)
        if (g->vars[i].kind == SW_VAR_PARAM && g->vars[i].rank >= 2) g->vars[i].init = t->o.init;
}

/* What counts in training only: smoothed labels, weights of classes. */
static sw_t training_loss(const sw_trainer *t, sw_t out, sw_t y, sw_loss_fn loss)
{
    const bool plain = t->o.label_smoothing <= 0 && !t->class_weights;
    if (plain || t->target != SW_TARGET_CLASS || loss != sw_cross_entropy) return loss(out, y);
    sw_t weight = SW_NONE;
    if (t->class_weights) {
        const sw_t all = sw_literal(out.graph, SW_F64, 1, &t->o.n_class_weights, t->class_weights);
        weight = sw_cast(all, SW_F32);
    }
    return sw_cross_entropy_loss(out, y, .weight = weight, .label_smoothing = t->o.label_smoothing);
}

static bool has_late(const sw_trainer *t)
{
    for (int i = 0; i < t->o.optimizer.n_groups; i++)
        if (t->o.optimizer.groups[i].late) return true;
    return false;
}

sw_status sw__trainer_learn(const sw_trainer *t, sw_t loss, const sw__accumulate *a)
{
    sw_optimizer o = t->o.optimizer;
    sw_param_group groups[SW_MAX_PARAM_GROUPS];
    for (int i = 0; t->thawed_at >= 0 && i < o.n_groups && has_late(t); i++) {
        groups[i] = t->o.optimizer.groups[i];
        if (groups[i].late) groups[i].frozen = false;
        o.groups = groups;
    }
    return sw__optimizer_part(&o, loss, NULL, 0, a);
}

static bool learns(sw__mode mode) { return mode == SW__TRAIN || mode == SW__ACCUM || mode == SW__BOTH; }

static sw_t named_model(const sw_trainer *t, sw_t x)
{
    const char *const layers = sw_model_layers_of(t->model_name);
    return layers ? sw_model_layers(layers, x, t->outputs) : sw_model_build(t->model_name, x, t->outputs);
}

/* The forward pass and, but for predictions, the loss. */
static sw_status record(sw_trainer *t, sw_graph *g, sw__mode mode, int64_t n)
{
    sw_graph_set_seed(g, t->o.seed);
    sw_graph_set_training(g, learns(mode) || mode == SW__DIAGNOSE);
    const sw_t x = batch_input(g, "x", t->x_dtype, n, t->x_rank, t->x_shape);
    const sw_t given = t->o.model ? t->o.model(x) : named_model(t, x);
    SW_TRY(sw_graph_status(g));
    if (!sw_valid(given)) return sw__fail(SW_ERR_ARGUMENT, "the model function returned an invalid value");
    const sw_t out = classes_last(t, given);
    SW_TRY(check_classes(t, out));
    SW_TRY(check_sequences(t, out));
    set_init(t, g);
    t->output_size = n ? sw_elements(out) / n : 0;
    t->output_classes = SW_MAX(sw_dim(out, -1), 1);
    if (t->y_rank < 0) t->positions = t->output_size / t->output_classes;
    if (mode == SW__EVAL || mode == SW__PREDICT) SW_TRY(sw__average_read(t, g));
    if (mode == SW__UPDATE) return sw_graph_status(g); /* its variables are what is wanted */
    if (!learns(mode)) sw_output(out, "output");
    if (mode == SW__PREDICT) return sw_graph_status(g);
    sw_t y = batch_input(g, "y", t->y_dtype, n, t->y_rank, t->y_shape);
    const bool classes = t->target == SW_TARGET_CLASS;
    SW_TRY(check_loss(t));
    if (!classes && t->target != SW_TARGET_SEQUENCE) y = like_output(y, out);
    const sw_loss_fn loss_fn = t->o.loss                          ? t->o.loss
                               : t->target == SW_TARGET_SEQUENCE ? sw_ctc
                               : t->y_dtype == SW_I64            ? sw_cross_entropy
                                                                 : sw_mse;
    const bool training = learns(mode) || mode == SW__DIAGNOSE;
    const sw_t compared = loss_fn == sw_cross_entropy ? out : given; /* a user's own loss takes what the user's model gives */
    const sw_t loss = training ? training_loss(t, compared, y, loss_fn) : loss_fn(compared, y);
    sw_output(loss, "loss");
    if (classes) sw_output(count_correct(out, y), "correct");
    return sw_graph_status(g);
}

/* Types that the pass `precision` knows; SW_F32: it is not for this trainer. */
static sw_dtype half_type(const sw_trainer *t)
{
    return t->o.precision == SW_PRECISION_BF16 ? SW_BF16 : t->o.precision == SW_PRECISION_F16 ? SW_F16 : SW_F32;
}

static sw_status mix(const sw_trainer *t, sw__mode mode, sw_graph **g)
{
    sw_graph *mixed = NULL;
    if (half_type(t) == SW_F32 || mode == SW__UPDATE) return SW_OK; /* an update is all f32 */
    SW_TRY(sw__graph_autocast(*g, half_type(t), t->o.stochastic_rounding && learns(mode), &mixed));
    sw_graph_free(*g);
    *g = mixed;
    return SW_OK;
}

static sw_status record_learning(const sw_trainer *t, sw_graph *g, sw__mode mode)
{
    if (mode == SW__UPDATE) return sw__micro_update(t, g);
    if (!learns(mode)) return SW_OK;
    const sw_t loss = sw_graph_output(g, "loss");
    if (mode != SW__TRAIN)
        return sw__micro_record(t, g, mode, loss,
                                t->target == SW_TARGET_CLASS ? sw_graph_output(g, "correct") : SW_NONE);
    SW_TRY(sw__trainer_learn(t, loss, &(sw__accumulate){.part = SW__PART_WHOLE}));
    return sw__average_record(t, g, loss);
}

sw_status sw__trainer_graph(sw_trainer *t, sw__mode mode, int64_t n, sw_graph **out)
{
    sw_graph *g = NULL;
    SW_TRY(sw_graph_new(&g));
    sw_status st = record(t, g, mode, n);
    if (st == SW_OK) st = mix(t, mode, &g);
    if (st == SW_OK) st = record_learning(t, g, mode);
    if (st != SW_OK) {
        sw_graph_free(g);
        return st;
    }
    *out = g;
    return SW_OK;
}

/* ---- programs ------------------------------------------------------------------------------------------------------------ */

static bool reads_average(const sw_trainer *t, sw__mode mode)
{
    return t->averaged > 0 && (mode == SW__EVAL || mode == SW__PREDICT);
}

static bool is_frozen(const sw_trainer *t, sw__mode mode)
{
    return (learns(mode) || mode == SW__UPDATE) && t->thawed_at < 0 && has_late(t);
}

/* The variables are those of a step that learns all, so that the frozen ones have their place and their state. */
sw_status sw__trainer_variables_graph(sw_trainer *t, sw__mode mode, int64_t n, sw_graph **out)
{
    const int64_t thawed_at = t->thawed_at;
    if (is_frozen(t, mode)) t->thawed_at = 0;
    const sw_status st = sw__trainer_graph(t, mode, n, out);
    t->thawed_at = thawed_at;
    return st;
}

/* g is the graph of that mode; others are recorded where it has not all variables of a step. */
static sw_status make_params(sw_trainer *t, sw__mode mode, int64_t n, const sw_graph *g)
{
    sw_graph *all = NULL;
    const bool parts = mode == SW__ACCUM || mode == SW__UPDATE;
    if (!parts && !is_frozen(t, mode)) return sw_params_new(t->device, g, t->o.seed, &t->params);
    SW_TRY(sw__trainer_variables_graph(t, parts ? SW__BOTH : mode, n, &all));
    const sw_status st = sw_params_new(t->device, all, t->o.seed, &t->params);
    sw_graph_free(all);
    return st;
}

/* A program whose arena can be shared, or NULL. */
static sw_program *another(const sw_trainer *t)
{
    for (int i = 0; i < t->n_programs; i++)
        if (t->programs[i].program) return t->programs[i].program;
    return NULL;
}

/* Weights change all the time; folding and packing them for a validation in between is not worth the memory. */
static bool trains(const sw_trainer *t)
{
    for (int i = 0; i < t->n_programs; i++)
        if (learns(t->programs[i].mode)) return true;
    return false;
}

/* Inputs of an optimiser for all groups, and for those that are late. */
static void find_scalars(sw__batch_program *p)
{
    static const char *const lr[] = {SW_INPUT_LR, SW_INPUT_LR SW_INPUT_LATE},
                      *const bias1[] = {SW_INPUT_BIAS1, SW_INPUT_BIAS1 SW_INPUT_LATE},
                      *const bias2[] = {SW_INPUT_BIAS2, SW_INPUT_BIAS2 SW_INPUT_LATE};
    for (int late = 0; late < 2; late++) {
        p->lr[late] = sw_program_input(p->program, lr[late]);
        p->bias1[late] = sw_program_input(p->program, bias1[late]);
        p->bias2[late] = sw_program_input(p->program, bias2[late]);
    }
}

void sw__trainer_places(const sw_trainer *t, sw__batch_program *p)
{
    p->x = sw_program_input(p->program, "x");
    p->y = sw_program_input(p->program, "y");
    find_scalars(p);
    p->loss = sw_program_output(p->program, "loss");
    p->correct = sw_program_output(p->program, "correct");
    p->scale = sw_program_output(p->program, SW_OUTPUT_SCALE);
    p->finite = sw_program_output(p->program, SW_OUTPUT_FINITE);
    p->output = sw_program_output(p->program, "output");
    p->x_elements = p->n * sw__dims_product(t->x_shape, t->x_rank);
    p->y_elements = p->n * sw__dims_product(t->y_shape, t->y_rank);
}

static sw_status compile(sw_trainer *t, sw__mode mode, int64_t n, sw__batch_program *p)
{
    sw_graph *g = NULL;
    SW_TRY(sw__trainer_graph(t, mode, n, &g));
    sw_status st = SW_OK;
    if (!t->params) st = make_params(t, mode, n, g);
    *p = (sw__batch_program){.mode = mode, .n = n, .averaged = reads_average(t, mode), .frozen = is_frozen(t, mode)};
    const bool timed = t->o.profile && (mode == SW__TRAIN || mode == SW__ACCUM);
    const sw_compile_options o = {.params = t->params, .profile = timed, .no_keep = trains(t),
                                  .build_later = true, .memory = sw__memory_for(t, g), .shares = another(t)};
    if (st == SW_OK) st = sw_compile(g, t->device, &o, &p->program);
    sw_graph_free(g);
    if (st == SW_ERR_MEMORY && mode == SW__TRAIN && t->params && t->device->full && !t->o.shrink)
        return sw__trainer_no_room(t, n);
    SW_TRY(st);
    sw__trainer_places(t, p);
    return SW_OK;
}

/* The program for this mode and size; the one that was made longest ago gives way if there are too many sizes. */
sw_status sw__trainer_program(sw_trainer *t, sw__mode mode, int64_t n, sw__batch_program **out)
{
    for (int i = 0; i < t->n_programs; i++)
        if (t->programs[i].mode == mode && t->programs[i].n == n && t->programs[i].averaged == reads_average(t, mode)) {
            *out = &t->programs[i];
            return SW_OK;
        }
    sw__batch_program p;
    SW_TRY(compile(t, mode, n, &p));
    if (t->n_programs == SW__MAX_PROGRAMS) { /* programs[0] is the training program for whole batches: keep it */
        sw_program_free(t->programs[1].program);
        memmove(&t->programs[1], &t->programs[2], (SW__MAX_PROGRAMS - 2) * sizeof p);
        t->n_programs--;
    }
    t->programs[t->n_programs] = p;
    *out = &t->programs[t->n_programs++];
    return SW_OK;
}

sw_status sw__trainer_programs(sw_trainer *t, sw__mode mode, int64_t count, int64_t batch, bool drop_last)
{
    sw__batch_program *p = NULL;
    const int64_t whole = SW_MIN(batch, count), rest = drop_last ? 0 : count % whole;
    if (mode == SW__TRAIN && t->micro.n > 0) return sw__micro_programs(t, whole, rest);
    SW_TRY(sw__trainer_program(t, mode, whole, &p));
    return rest > 0 ? sw__trainer_program(t, mode, rest, &p) : SW_OK;
}

/* Programs of steps that leave late groups alone give way to programs that learn them, each in its place. */
sw_status sw_trainer_thaw(sw_trainer *t)
{
    if (!t) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_thaw: trainer is NULL");
    if (t->thawed_at >= 0 || !has_late(t)) return SW_OK;
    t->thawed_at = t->step;
    for (int i = 0; i < t->n_programs;) {
        sw__batch_program *const p = &t->programs[i];
        if (!p->frozen) {
            i++;
            continue;
        }
        const int64_t n = p->n;
        const sw__mode mode = p->mode;
        sw_program_free(p->program);
        p->program = NULL;
        const sw_status st = compile(t, mode, n, p);
        if (st == SW_OK) continue;
        t->programs[i] = t->programs[--t->n_programs];
        return st;
    }
    return SW_OK;
}

sw_status sw__trainer_build(sw_trainer *t)
{
    for (int i = 0; i < t->n_programs; i++) SW_TRY(sw_program_build(t->programs[i].program));
    return SW_OK;
}

static sw_status check_same_shapes(const sw_trainer *t, const sw_dataset_info *d)
{
    bool same = t->x_rank == d->x_rank && t->x_dtype == d->x_dtype;
    for (int i = 0; same && i < d->x_rank; i++) same = t->x_shape[i] == d->x_shape[i];
    if (!same)
        return sw__fail(SW_ERR_DATA, "%s: its samples have another shape or type than those that the model was made for",
                        d->name);
    const bool other = d->target != t->target || (t->y_rank >= 0 && d->y_rank != t->y_rank);
    if (d->target != SW_TARGET_NONE && other)
        return sw__fail(SW_ERR_DATA, "%s: its labels are of another kind than those that the model was made for", d->name);
    if (d->target == SW_TARGET_CLASS && d->classes * t->positions > t->output_size)
        return sw__fail(SW_ERR_DATA, "%s: it has %lld classes, but the model gives %lld outputs", d->name,
                        (long long)d->classes, (long long)(t->output_size / t->positions));
    return SW_OK;
}

/* Axes of a sample's values that the model is told the product of: all of them, or an image's channels alone. */
static int value_axes(const sw_trainer *t)
{
    return t->y_rank == 3 && !t->o.model && sw__model_per_pixel(t->model_name) ? 1 : t->y_rank;
}

void sw__trainer_shapes(sw_trainer *t, const sw_dataset_info *d)
{
    t->x_dtype = d->x_dtype;
    t->x_rank = d->x_rank;
    memcpy(t->x_shape, d->x_shape, sizeof t->x_shape);
    t->target = d->target;
    t->y_dtype = d->y_dtype;
    t->y_rank = d->y_rank;
    memcpy(t->y_shape, d->y_shape, sizeof t->y_shape);
    t->classes = d->classes;
    t->longest = d->longest;
    t->positions = d->target == SW_TARGET_CLASS ? sw__dims_product(d->y_shape, d->y_rank) : 1;
    t->outputs = t->o.outputs;
    if (t->outputs == 0) t->outputs = d->classes > 0 ? d->classes : sw__dims_product(d->y_shape, value_axes(t));
}

/* Evaluation batches are not smaller than 256 so that small training batches do not make it slow; within so many bytes they are
 * as large as the step's. */
int64_t sw__eval_batch(const sw_trainer *t, int64_t count)
{
    if (t->o.memory > 0 && t->batch_of_plan > 0) return SW_MIN(t->micro.n > 0 ? t->micro.n : t->batch_of_plan, count);
    return SW_MIN(SW_MAX(t->o.batch, (int64_t)256), count);
}

static int64_t first_batch(const sw_trainer *t, sw__mode mode, int64_t count)
{
    return mode == SW__TRAIN ? SW_MIN(t->o.batch, count) : sw__eval_batch(t, count);
}

/* How a step is done is decided once, for whole batches. */
static sw_status first_program(sw_trainer *t, sw__mode mode, int64_t n)
{
    sw__batch_program *p = NULL;
    if (mode != SW__TRAIN) return sw__trainer_program(t, mode, n, &p);
    t->batch_of_plan = n;
    SW_TRY(sw__memory_decide(t, t->device, n));
    const sw_status st = t->micro.n > 0 ? sw__trainer_program(t, SW__ACCUM, SW_MIN(t->micro.n, n), &p)
                                        : sw__trainer_program(t, SW__TRAIN, n, &p);
    return st == SW_ERR_MEMORY ? sw__memory_shrink(t) : st;
}

sw_status sw__trainer_prepare(sw_trainer *t, const sw_dataset *d, sw__mode mode)
{
    const sw_dataset_info *about = sw_dataset_about(d);
    if (t->prepared) return check_same_shapes(t, about);
    sw__trainer_shapes(t, about);
    if (t->target == SW_TARGET_NONE) { /* to predict on: the outputs must be known from elsewhere */
        if (t->outputs < 1 || mode != SW__PREDICT)
            return sw__fail(SW_ERR_DATA, "%s: it has no labels%s", about->name,
                            mode == SW__PREDICT ? ", and .outputs is not given" : "");
        t->target = t->known_target == SW_TARGET_AUTO ? SW_TARGET_CLASS : t->known_target;
        t->y_dtype = t->target == SW_TARGET_VALUE ? SW_F32 : SW_I64;
        t->y_rank = t->known_rank;
        memcpy(t->y_shape, t->known_shape, sizeof t->y_shape);
        t->positions = t->target == SW_TARGET_CLASS ? sw__dims_product(t->y_shape, t->y_rank) : 1;
    }
    SW_TRY(check_vocabulary(t, about));
    SW_TRY(first_program(t, mode, first_batch(t, mode, about->count)));
    t->prepared = true;
    return SW_OK;
}

sw_status sw_trainer_prepare(sw_trainer *t, const sw_dataset *d)
{
    if (!t || !d) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_prepare: trainer or data set is NULL");
    return sw__trainer_prepare(t, d, SW__TRAIN);
}

sw_params *sw_trainer_params(sw_trainer *t)
{
    return t ? t->params : NULL;
}

const sw_plan *sw_trainer_plan(sw_trainer *t)
{
    return t && t->n_programs ? sw_program_plan(t->programs[0].program) : NULL;
}

int64_t sw_trainer_steps_done(const sw_trainer *t)
{
    return t ? t->step : 0;
}

int64_t sw_trainer_output_size(sw_trainer *t)
{
    return t && t->prepared ? t->output_size : 0;
}

sw_status sw_trainer_profile(sw_trainer *t, sw_profile_format format, char **out)
{
    if (!t || !t->n_programs) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_profile: nothing has run yet");
    return sw_program_profile(t->programs[0].program, format, out);
}

/* ---- running -------------------------------------------------------------------------------------------------------------- */

double sw__trainer_lr(const sw_trainer *t, int64_t step)
{
    if (t->swa_now && t->o.swa_lr > 0) return t->o.swa_lr;
    return sw_schedule_lr(&t->o.schedule, t->schedule_lr, step - t->schedule_from);
}

sw_status sw__trainer_set_batch(sw__batch_program *p, const sw_trainer *t, const void *x, const void *y)
{
    SW_TRY(sw_program_set(p->program, p->x, t->x_dtype, x, p->x_elements));
    return p->y < 0 ? SW_OK : sw_program_set(p->program, p->y, t->y_dtype, y, p->y_elements);
}

static sw_status set_scalar(sw_program *p, int input, double value)
{
    return input < 0 ? SW_OK : sw_program_set(p, input, SW_F64, &value, 1);
}

sw_status sw__trainer_set_scalars(sw_trainer *t, sw__batch_program *p)
{
    for (int late = 0; late < 2; late++) {
        double lr, bias1, bias2;
        const int64_t step = late ? t->step - SW_MAX(t->thawed_at, (int64_t)0) : t->step;
        sw_optimizer_scalars(&t->o.optimizer, step, sw__trainer_lr(t, t->step), &lr, &bias1, &bias2);
        SW_TRY(set_scalar(p->program, p->lr[late], lr));
        SW_TRY(set_scalar(p->program, p->bias1[late], bias1));
        SW_TRY(set_scalar(p->program, p->bias2[late], bias2));
    }
    return sw__average_weight(t, p->program);
}

static sw_status read_scalar(sw_program *p, int output, double *value)
{
    *value = 0;
    return output < 0 ? SW_OK : sw_program_get(p, output, SW_F64, value, 1);
}

sw_status sw__trainer_send(sw_trainer *t, const void *x, const void *y, int64_t n)
{
    sw__batch_program *p = NULL;
    if (t->micro.n > 0) {
        sw__micro_send(t, x, y);
        return SW_OK;
    }
    SW_TRY(sw__trainer_program(t, SW__TRAIN, n, &p));
    return sw__trainer_set_batch(p, t, x, y);
}

sw_status sw__trainer_launch(sw_trainer *t, int64_t n)
{
    sw__batch_program *p = NULL;
    if (t->micro.n > 0) return sw__micro_launch(t, n);
    SW_TRY(sw__trainer_program(t, SW__TRAIN, n, &p));
    SW_TRY(sw__trainer_set_scalars(t, p));
    return sw_program_run(p->program);
}

sw_status sw__trainer_read(sw_trainer *t, int64_t n, double *loss, double *correct)
{
    sw__batch_program *p = NULL;
    SW_TRY(t->micro.n > 0 ? sw__trainer_program(t, SW__UPDATE, 1, &p) : sw__trainer_program(t, SW__TRAIN, n, &p));
    SW_TRY(read_scalar(p->program, p->loss, loss));
    SW_TRY(read_scalar(p->program, p->correct, correct));
    double finite = 1;
    if (p->finite >= 0) {
        SW_TRY(read_scalar(p->program, p->finite, &finite));
        SW_TRY(read_scalar(p->program, p->scale, &t->scale));
    }
    t->overflow = finite == 0 && isfinite(*loss);
    if (!isfinite(*loss) || t->overflow) return SW_OK;
    t->step++;
    if (t->o.ema > 0) t->averaged++;
    return SW_OK;
}

sw_status sw_trainer_step(sw_trainer *t, const void *x, const void *y, int64_t n, double *loss)
{
    if (!t || !t->prepared) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_step: call sw_trainer_prepare first");
    if (n < 1) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_step: %lld samples, but one is the least", (long long)n);
    double value = 0, correct = 0;
    SW_TRY(sw__trainer_send(t, x, y, n));
    SW_TRY(sw__trainer_launch(t, n));
    SW_TRY(sw__trainer_read(t, n, &value, &correct));
    if (loss) *loss = value;
    return SW_OK;
}

/* Adds n labels and their outputs to the counters [true][predicted]. */
static void count_confusion(const float *outputs, const int64_t *labels, int64_t n, int64_t classes, int64_t *confusion)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (outputs[i * classes + c] > outputs[i * classes + best]) best = c;
        confusion[labels[i] * classes + best]++;
    }
}

/* What an evaluation adds up. */
typedef struct evaluation {
    double loss, correct;
    int64_t n;
    sw__sequences read;
    float *outputs;     /* of a batch, where they are looked at */
    int64_t *confusion; /* the caller's, or NULL */
} evaluation;

static sw_status evaluate_batch(sw_trainer *t, const sw_batch *b, evaluation *e)
{
    sw__batch_program *p = NULL;
    double loss, correct;
    SW_TRY(sw__trainer_program(t, SW__EVAL, b->n, &p));
    SW_TRY(sw__trainer_set_batch(p, t, b->x, b->y));
    SW_TRY(sw_program_run(p->program));
    SW_TRY(read_scalar(p->program, p->loss, &loss));
    SW_TRY(read_scalar(p->program, p->correct, &correct));
    e->loss += loss * (double)b->n;
    e->correct += correct;
    e->n += b->n;
    if (!e->outputs) return SW_OK;
    SW_TRY(sw_program_get(p->program, p->output, SW_F32, e->outputs, b->n * t->output_size));
    if (t->target == SW_TARGET_SEQUENCE) return sw__sequences_score(t, e->outputs, b->y, b->n, &e->read);
    if (e->confusion)
        count_confusion(e->outputs, b->y, b->n * t->positions, t->output_size / t->positions, e->confusion);
    return SW_OK;
}

static void sum_up(const sw_trainer *t, const evaluation *e, sw_metrics *out)
{
    const double n = (double)e->n;
    *out = (sw_metrics){.n = e->n, .loss = e->loss / n, .accuracy = NAN, .label_errors = NAN};
    if (t->target == SW_TARGET_CLASS) out->accuracy = e->correct / (n * (double)t->positions);
    if (t->target != SW_TARGET_SEQUENCE) return;
    out->accuracy = (double)e->read.right / n;
    out->label_errors = (double)e->read.errors / (double)SW_MAX(e->read.labels, (int64_t)1);
}

sw_status sw_trainer_evaluate(sw_trainer *t, const sw_dataset *d, sw_metrics *out, int64_t *confusion)
{
    if (!t || !d || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_evaluate: trainer, data set or out is NULL");
    const sw_dataset_info *about = sw_dataset_about(d);
    SW_TRY(sw__trainer_prepare(t, d, SW__EVAL));
    if (about->target == SW_TARGET_NONE) return sw__fail(SW_ERR_DATA, "%s: no labels to evaluate against", about->name);
    evaluation e = {.loss = 0};
    if (t->target == SW_TARGET_CLASS) e.confusion = confusion;
    const int64_t batch = sw__eval_batch(t, about->count);
    SW_TRY(sw__trainer_programs(t, SW__EVAL, about->count, batch, false));
    sw_loader *loader = NULL;
    const bool looked_at = e.confusion || t->target == SW_TARGET_SEQUENCE;
    sw_status st = sw_loader_open(d, &(sw_loader_options){.batch = batch}, &loader);
    if (st == SW_OK && looked_at && !(e.outputs = sw__malloc((size_t)(batch * t->output_size) * sizeof *e.outputs)))
        st = sw__no_memory((size_t)(batch * t->output_size) * sizeof *e.outputs, "outputs");
    for (sw_batch b; st == SW_OK;) {
        st = sw_loader_next(loader, &b);
        if (st != SW_OK || b.n == 0) break;
        st = evaluate_batch(t, &b, &e);
    }
    sw_loader_close(loader);
    sw__free(e.outputs);
    if (st == SW_OK) sum_up(t, &e, out);
    return st;
}

/* y: room for labels, which a data set of a callback always writes; nobody reads them. */
static sw_status predict_batch(sw_trainer *t, const sw_dataset *d, const int64_t *indices, int64_t n, void *x, void *y,
                               float *out)
{
    sw__batch_program *p = NULL;
    SW_TRY(sw_dataset_get(d, indices, n, x, y));
    SW_TRY(sw__trainer_program(t, SW__PREDICT, n, &p));
    SW_TRY(sw__trainer_set_batch(p, t, x, NULL));
    SW_TRY(sw_program_run(p->program));
    return sw_program_get(p->program, p->output, SW_F32, out, n * t->output_size);
}

sw_status sw_trainer_predict(sw_trainer *t, const sw_dataset *d, const int64_t *indices, int64_t n, float *out)
{
    if (!t || !d || (!out && n > 0))
        return sw__fail(SW_ERR_ARGUMENT, "sw_trainer_predict: trainer, data set or out is NULL");
    SW_TRY(sw__trainer_prepare(t, d, SW__PREDICT));
    if (n <= 0) return SW_OK;
    const int64_t batch = sw__eval_batch(t, n);
    const size_t bytes = (size_t)(batch * sw__dims_product(t->x_shape, t->x_rank)) * sw_dtype_size(t->x_dtype);
    const sw_dataset_info *about = sw_dataset_about(d);
    const size_t labels = (size_t)(batch * sw__dims_product(about->y_shape, about->y_rank)) * sizeof(int64_t);
    void *x = sw__malloc(bytes), *y = sw__malloc(labels);
    int64_t *counted = sw__malloc((size_t)batch * sizeof *counted);
    sw_status st = x && y && counted ? SW_OK : sw__no_memory(bytes, "a batch");
    for (int64_t i = 0; i < n && st == SW_OK; i += batch) {
        const int64_t m = SW_MIN(batch, n - i);
        for (int64_t k = 0; k < m; k++) counted[k] = indices ? indices[i + k] : i + k;
        st = predict_batch(t, d, counted, m, x, y, out + i * t->output_size);
    }
    sw__free(x);
    sw__free(y);
    sw__free(counted);
    return st;
}
