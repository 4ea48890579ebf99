/* run_data.c: the data sets of a run as its configuration names them: training, validation, test; checked against
 * each other. Beneath run.c (training) and infer.c (evaluating and predicting on a run's own data). */
#include "io/layers.h"
#include "nn/models.h"
#include "train/run.h"
#include <stdio.h>

void sw__sample_shape(int rank, const int64_t *shape, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld", i ? "x" : "", (long long)shape[i]);
}

static const char *target_text(sw_target t)
{
    return t == SW_TARGET_CLASS ? "classes" : t == SW_TARGET_VALUE ? "values" : t == SW_TARGET_SEQUENCE ? "sequences" : "missing";
}

/* What the model and the loss say of data that does not say it itself. */
static void as_read_by(const sw_config *c, sw_dataset_options *o)
{
    const char *const model = sw_config_text(c, SW_KEY_MODEL), *const loss = sw_config_text(c, SW_KEY_LOSS);
    const bool guess = strcmp(loss, "auto") == 0 && sw__model_reads_sequences(model);
    o->integers_are_tokens = sw__model_reads_tokens(model) || sw__layers_read_tokens(model);
    if (guess || strcmp(loss, "ctc") == 0) o->target = SW_TARGET_SEQUENCE;
}

static sw_dataset_options how_to_open(const sw_config *c, const char *split, bool background)
{
    sw_dataset_options o = {
        .split = split,
        .format = sw_config_text(c, SW_KEY_FORMAT),
        .num_classes = sw_config_is_auto(c, SW_KEY_NUM_CLASSES) ? 0 : sw_config_int(c, SW_KEY_NUM_CLASSES),
        .sequence = sw_config_int(c, SW_KEY_SEQUENCE),
        .background = background,
    };
    as_read_by(c, &o);
    return o;
}

/* What is validated or tested on has to be of the kind that is trained on; said here, before the first step. */
static sw_status check_same_kind(const sw_dataset *train, const sw_dataset *other)
{
    const sw_dataset_info *a = sw_dataset_about(train), *b = sw_dataset_about(other);
    char want[96], have[96];
    sw__sample_shape(a->x_rank, a->x_shape, want, sizeof want);
    sw__sample_shape(b->x_rank, b->x_shape, have, sizeof have);
    if (strcmp(want, have) != 0 || a->x_dtype != b->x_dtype)
        return sw__fail(SW_ERR_DATA, "%s: its samples are %s, but those of %s are %s", b->name, have, a->name, want);
    sw__sample_shape(a->y_rank, a->y_shape, want, sizeof want);
    sw__sample_shape(b->y_rank, b->y_shape, have, sizeof have);
    if (a->target != b->target || strcmp(want, have) != 0)
        return sw__fail(SW_ERR_DATA, "%s: its answers are %s%s%s, but those of %s are %s%s%s", b->name,
                        target_text(b->target), *have ? " " : "", have, a->name, target_text(a->target), *want ? " " : "",
                        want);
    return SW_OK;
}

/* The set `name` beside the training data: its test split, or all of it where single files are named. Its labels have to
 * be among the training data's classes. */
static sw_status open_beside(const sw_config *c, const char *name, bool background, const sw_dataset *train,
                             sw_dataset **out)
{
    sw_dataset_options o = how_to_open(c, "test", background);
    sw_dataset *d = NULL;
    const bool own = strcmp(name, "test") == 0;
    const char *path = own ? sw_config_text(c, SW_KEY_DATA) : name;
    if (!own && !sw_dataset_has_split(path, &o, "test")) o.split = "train";
    const sw_dataset_info *const known = sw_dataset_about(train);
    if (known->classes > 0) o.num_classes = known->classes;
    const char **names = NULL;
    if (known->x_dtype == SW_I64 && sw_dataset_class_name(train, 0)) { /* text: the same characters, numbered alike */
        names = sw__calloc((size_t)known->classes, sizeof *names);
        if (!names) return sw__no_memory((size_t)known->classes * sizeof *names, "a vocabulary");
        for (int64_t i = 0; i < known->classes; i++) names[i] = sw_dataset_class_name(train, i);
        o.vocabulary = names;
        o.n_vocabulary = known->classes;
    }
    sw_status st = sw_dataset_open(path, &o, &d);
    sw__free(names);
    SW_TRY(st);
    st = check_same_kind(train, d);
    if (st == SW_OK)
        *out = d;
    else
        sw_dataset_close(d);
    return st;
}

/* val, test: "test" is the data's own test split; a name or path is a set of its own; else a part of the training data. */
sw_status sw__run_open_data(const sw_config *c, bool background, sw_dataset **train, sw_dataset **val, sw_dataset **test)
{
    const char *data = sw_config_text(c, SW_KEY_DATA), *given = sw_config_text(c, SW_KEY_VAL);
    const double split = sw_config_number(c, SW_KEY_VAL_SPLIT);
    if (!*data) return sw__fail(SW_ERR_ARGUMENT, "no data: say --data, for instance --data fashion-mnist or --data digits");
    *train = *val = *test = NULL;
    sw_dataset *whole = NULL;
    const sw_dataset_options o = how_to_open(c, "train", background);
    SW_TRY(sw_dataset_open(data, &o, &whole));
    sw_status st = SW_OK;
    if (*given)
        st = open_beside(c, given, background, whole, val);
    else if (split > 0)
        st = sw_dataset_split(whole, split, (uint64_t)sw_config_int(c, SW_KEY_SEED), train, val);
    if (st == SW_OK && *train)
        sw_dataset_close(whole);
    else
        *train = whole;
    const char *other = sw_config_text(c, SW_KEY_TEST);
    if (st == SW_OK && *other) st = open_beside(c, other, background, *train, test);
    return st;
}
