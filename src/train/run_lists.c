/* run_lists.c: keys that hold lists: patterns of parameter names, epochs, weights of classes. Read here from their text; used
 * by run_options.c, which turns keys into a trainer's options. */
#include "train/run_options.h"
#include "base/base.h"
#include <ctype.h>
#include <fnmatch.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The next part of "a, b,c": begins at *at, which moves behind its comma. Spaces around it are cut; false: there is none. */
static bool next_part(char **at, char **part)
{
    if (!*at) return false;
    char *p = *at, *const comma = strchr(p, ',');
    *at = comma ? comma + 1 : NULL;
    if (comma) *comma = 0;
    while (isspace((unsigned char)*p)) p++;
    for (size_t n = strlen(p); n > 0 && isspace((unsigned char)p[n - 1]); n--) p[n - 1] = 0;
    *part = p;
    return true;
}

/* A finite number that is the whole text. */
static bool read_number(const char *text, double *out)
{
    const locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) return false;
    char *end;
    *out = strtod_l(text, &end, c);
    freelocale(c);
    return end != text && *end == 0 && isfinite(*out);
}

/* ---- groups of parameters ---------------------------------------------------------------------------------------- */

static sw_status add_group(sw__run_lists *l, const char *key, const sw_param_group *group)
{
    if (!*group->pattern) return sw__fail(SW_ERR_ARGUMENT, "%s: there is an empty pattern between two commas", key);
    if (l->n_groups == SW_MAX_PARAM_GROUPS)
        return sw__fail(SW_ERR_ARGUMENT, "%s: freeze and lr_scale together have more than %d patterns", key,
                        SW_MAX_PARAM_GROUPS);
    l->groups[l->n_groups++] = *group;
    return SW_OK;
}

static sw_status copy_text(const char *text, char **copy)
{
    *copy = sw__strdup(text);
    return *copy ? SW_OK : sw__no_memory(strlen(text), "a list of keys");
}

static sw_status read_freeze(sw__run_lists *l, const sw_config *c)
{
    const char *const text = sw_config_text(c, SW_KEY_FREEZE);
    if (!*text) return SW_OK;
    SW_TRY(copy_text(text, &l->freeze));
    char *at = l->freeze, *part;
    while (next_part(&at, &part)) SW_TRY(add_group(l, "freeze", &(sw_param_group){.pattern = part, .frozen = true}));
    return SW_OK;
}

static sw_status read_scales(sw__run_lists *l, const sw_config *c)
{
    const char *const text = sw_config_text(c, SW_KEY_LR_SCALE);
    if (!*text) return SW_OK;
    SW_TRY(copy_text(text, &l->scales));
    char *at = l->scales, *part;
    while (next_part(&at, &part)) {
        char *const equals = strrchr(part, '=');
        double scale;
        if (!equals || !read_number(equals + 1, &scale) || scale < 0)
            return sw__fail(SW_ERR_ARGUMENT, "lr_scale: '%s' is not PATTERN=FACTOR, such as layer1.*=0.1", part);
        *equals = 0;
        SW_TRY(add_group(l, "lr_scale", &(sw_param_group){.pattern = part, .lr_scale = scale == 0 ? SW_ZERO : scale}));
    }
    return SW_OK;
}

sw_status sw__run_lists_read(sw__run_lists *l, const sw_config *c)
{
    *l = (sw__run_lists){0};
    if (sw_config_int(c, SW_KEY_FREEZE_EPOCHS) > 0 && !*sw_config_text(c, SW_KEY_FREEZE))
        return sw__fail(SW_ERR_ARGUMENT, "freeze_epochs says for how long, but freeze does not say which parameters");
    sw_status st = read_freeze(l, c);
    if (st == SW_OK) st = read_scales(l, c);
    if (st != SW_OK) sw__run_lists_free(l);
    return st;
}

void sw__run_lists_free(sw__run_lists *l)
{
    sw__free(l->freeze);
    sw__free(l->scales);
    sw__free(l->class_weights);
    *l = (sw__run_lists){0};
}

sw_status sw__run_lists_check(const sw__run_lists *l, const sw_params *p)
{
    for (int i = 0; i < l->n_groups; i++) {
        bool found = false;
        sw__text names = {0};
        for (int k = 0; k < sw_params_count(p) && !found; k++) {
            sw_var_info v;
            SW_TRY(sw_params_info(p, k, &v));
            if (v.kind != SW_VAR_PARAM) continue;
            found = fnmatch(l->groups[i].pattern, v.name, 0) == 0;
            if (names.len < 200) sw__text_add(&names, "%s%s", names.len ? ", " : "", v.name);
        }
        const sw_status st = found ? SW_OK
                                   : sw__fail(SW_ERR_ARGUMENT, "%s: no parameter has a name like '%s'; there are %s%s",
                                              l->groups[i].frozen ? "freeze" : "lr_scale", l->groups[i].pattern,
                                              names.s ? names.s : "none", names.len >= 200 ? " …" : "");
        sw__text_free(&names);
        SW_TRY(st);
    }
    return SW_OK;
}

/* ---- epochs ------------------------------------------------------------------------------------------------------ */

sw_status sw__run_milestones(const sw_config *c, int64_t epoch_steps, sw_schedule *s)
{
    const char *const text = sw_config_text(c, SW_KEY_MILESTONES);
    if (s->kind != SW_SCHEDULE_MULTISTEP)
        return !*text ? SW_OK : sw__fail(SW_ERR_ARGUMENT, "milestones are of the multistep schedule, but schedule is %s",
                                         sw_schedule_name(s->kind));
    if (!*text) return sw__fail(SW_ERR_ARGUMENT, "the multistep schedule needs milestones: epochs after which it cuts, 30,60");
    char *copy = NULL;
    SW_TRY(copy_text(text, &copy));
    char *at = copy, *part;
    double before = 0, epoch = 0;
    sw_status st = SW_OK;
    while (st == SW_OK && next_part(&at, &part)) {
        if (!read_number(part, &epoch) || epoch != floor(epoch) || epoch <= before || epoch > 1e9)
            st = sw__fail(SW_ERR_ARGUMENT, "milestones: '%s' is no whole number of epochs above those before it", part);
        else if (s->n_milestones == SW_MAX_MILESTONES)
            st = sw__fail(SW_ERR_ARGUMENT, "milestones: there are more than %d", SW_MAX_MILESTONES);
        else
            s->milestones[s->n_milestones++] = (int64_t)epoch * epoch_steps;
        before = epoch;
    }
    sw__free(copy);
    return st;
}

/* ---- weights of classes ------------------------------------------------------------------------------------------ */

/* n / (classes n_c) (King & Zeng 2001): the mean over all labels is 1. A class that does not occur weighs 1, which nobody sees. */
static sw_status balance(sw__run_lists *l, const sw_dataset *d)
{
    const int64_t classes = l->n_class_weights;
    int64_t *const counts = sw__malloc((size_t)classes * sizeof *counts);
    if (!counts) return sw__no_memory((size_t)classes * sizeof *counts, "class counts");
    const sw_status st = sw_dataset_class_counts(d, counts);
    int64_t all = 0;
    for (int64_t i = 0; i < classes && st == SW_OK; i++) all += counts[i];
    for (int64_t i = 0; i < classes && st == SW_OK; i++)
        l->class_weights[i] = counts[i] ? (double)all / ((double)classes * (double)counts[i]) : 1;
    sw__free(counts);
    return st;
}

static sw_status read_weights(sw__run_lists *l, const char *text)
{
    char *copy = NULL;
    SW_TRY(copy_text(text, &copy));
    char *at = copy, *part;
    int64_t n = 0;
    sw_status st = SW_OK;
    for (; st == SW_OK && next_part(&at, &part); n++) {
        double w;
        if (!read_number(part, &w) || w < 0)
            st = sw__fail(SW_ERR_ARGUMENT, "class_weights: '%s' is no weight; none, balanced, or a list such as 1,2.5,1", part);
        else if (n < l->n_class_weights)
            l->class_weights[n] = w;
    }
    double sum = 0;
    for (int64_t i = 0; i < SW_MIN(n, l->n_class_weights); i++) sum += l->class_weights[i];
    if (st == SW_OK && sum <= 0)
        st = sw__fail(SW_ERR_ARGUMENT, "class_weights: all are 0, and the loss is divided by their sum");
    if (st == SW_OK && n != l->n_class_weights)
        st = sw__fail(SW_ERR_ARGUMENT, "class_weights: %lld weights for %lld classes", (long long)n,
                      (long long)l->n_class_weights);
    sw__free(copy);
    return st;
}

sw_status sw__run_class_weights(sw__run_lists *l, const sw_config *c, const sw_dataset *d)
{
    const char *const text = sw_config_text(c, SW_KEY_CLASS_WEIGHTS);
    if (strcmp(text, "none") == 0) return SW_OK;
    if (sw_dataset_about(d)->target != SW_TARGET_CLASS)
        return sw__fail(SW_ERR_ARGUMENT, "class_weights: the answers are values, not classes");
    const sw_dataset_info *const about = sw_dataset_about(d);
    if (strcmp(text, "balanced") == 0 && about->x_dtype == SW_I64 && about->y_rank > 0)
        return sw__fail(SW_ERR_ARGUMENT, "class_weights: balanced makes rare labels count more, but those of %s are the tokens that "
                        "come next: rare ones would be foretold too often. Leave it out, or give a list of %lld weights",
                        about->name, (long long)about->classes);
    l->n_class_weights = about->classes;
    l->class_weights = sw__malloc((size_t)l->n_class_weights * sizeof *l->class_weights);
    if (!l->class_weights) return sw__no_memory((size_t)l->n_class_weights * sizeof *l->class_weights, "class weights");
    return strcmp(text, "balanced") == 0 ? balance(l, d) : read_weights(l, text);
}

/* ---- shadow ------------------------------------------------------------------------------------------------------ */

sw_status sw__run_shadow_of(const sw_config *c, sw__run_shadow *out)
{
    const char *const text = sw_config_text(c, SW_KEY_SHADOW);
    double every;
    *out = (sw__run_shadow){0};
    if (!*text) return SW_OK;
    const int n = snprintf(out->text, sizeof out->text, "%s", text);
    char *const colon = strrchr(out->text, ':');
    const char *const number = colon ? colon + 1 : out->text;
    if (n >= (int)sizeof out->text || !read_number(number, &every) || every < 1 || every != floor(every) || every > 1e15 ||
        colon == out->text)
        return sw__fail(SW_ERR_ARGUMENT, "shadow: '%.60s' is not DEVICE:STEPS, such as ref:100 for every 100th step", text);
    out->every = (int64_t)every;
    if (!colon) return SW_OK; /* ref */
    *colon = 0;
    if (strcmp(out->text, "null") == 0)
        return sw__fail(SW_ERR_ARGUMENT, "shadow: device null computes nothing to compare with: choose ref or cpu");
    out->device = out->text;
    return SW_OK;
}
