/* dataset.c: data set handles: made from storage, memory or a callback; splits, subsets, normalisation, class names.
 * In data, above storage.c and arrange.c; open.c brings the files. */
#include "data/storage.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const sw_dataset_options no_options = { 0 };

/* Random streams of one seed: splitting and shuffling (loader.c) must not draw the same numbers. */
enum { SPLIT_STREAM = 0x53504c49 };

static void free_class_names(sw_dataset *d)
{
    for (int64_t c = 0; d->class_names != NULL && c < d->info.classes; c++) sw__free(d->class_names[c]);
    sw__free(d->class_names);
    d->class_names = NULL;
}

void sw_dataset_close(sw_dataset *d)
{
    if (d == NULL) return;
    free_class_names(d);
    sw_normalization_free(&d->normalization);
    sw__free(d->table);
    sw__free(d->indices);
    sw__storage_release(d->storage);
    sw__free(d);
}

/* The parts of a handle that follow from its info. */
static sw_status finish(sw_dataset *d)
{
    const sw_dataset_info *const info = &d->info;
    d->elements = 1;
    for (int i = 0; i < info->x_rank; i++) d->elements *= info->x_shape[i];
    const bool flat_bytes = info->x_storage == SW_U8 && info->x_rank < 2;
    d->channels = flat_bytes || info->x_rank == 0 ? 1 : info->x_shape[0];
    return sw__dataset_tabulate(d);
}

sw_status sw__dataset_over(sw__storage *s, const sw_dataset_options *o, sw_dataset **out)
{
    sw_dataset *const d = sw__calloc(1, sizeof *d);
    if (d == NULL) {
        sw__storage_release(s);
        return sw__no_memory(sizeof *d, "a data set");
    }
    d->storage = s;
    d->info.name = s->name;
    d->info.format = s->format;
    sw_status st = sw__arrange_x(s, o, &d->info);
    if (st == SW_OK) st = sw__arrange_y(s, o, &d->info);
    if (st == SW_OK) st = finish(d);
    if (st != SW_OK) {
        sw_dataset_close(d);
        return st;
    }
    *out = d;
    return SW_OK;
}

static sw_status check_array(const sw_array *a, const char *what)
{
    size_t count;
    if (a->data != NULL && a->rank >= 1 && a->rank <= SW_MAX_RANK && sw_dtype_size(a->dtype) > 0 &&
        sw__shape_count(a->shape, a->rank, &count) && count * sw_dtype_size(a->dtype) == a->bytes) {
        return SW_OK;
    }
    return sw__fail(SW_ERR_ARGUMENT, "%s: data, shape (samples first), dtype and bytes of the array do not agree",
                    what);
}

sw_status sw_dataset_from_memory(const sw_array *x, const sw_array *y, const sw_dataset_options *options,
                                 sw_dataset **out)
{
    if (x == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_from_memory: x or out is NULL");
    SW_TRY(check_array(x, "x"));
    if (y != NULL) SW_TRY(check_array(y, "y"));
    sw__storage *s;
    SW_TRY(sw__storage_new("memory", "memory", &s));
    s->x = *x;
    s->x_name = "x";
    s->y_name = "y";
    if (y != NULL) s->y = *y;
    return sw__dataset_over(s, options != NULL ? options : &no_options, out);
}

/* What a callback promises must make sense before anybody allocates by it. */
static sw_status check_callback(const sw_dataset_callback *c)
{
    size_t x = 0, y = 0;
    const bool good = c->get != NULL && c->x_rank >= 0 && c->x_rank < SW_MAX_RANK && c->y_rank >= 0 &&
                      c->y_rank < SW_MAX_RANK && sw__shape_count(c->x_shape, c->x_rank, &x) &&
                      sw__shape_count(c->y_shape, c->y_rank, &y);
    if (!good || x == 0 || y == 0)
        return sw__fail(SW_ERR_ARGUMENT, "callback data set: get is missing, or a shape is not positive");
    if (c->count < 1) return sw__fail(SW_ERR_DATA, "callback data set: it holds no samples");
    const bool classes = c->target == SW_TARGET_CLASS || c->target == SW_TARGET_SEQUENCE;
    const bool targets = classes || c->target == SW_TARGET_VALUE || c->target == SW_TARGET_NONE;
    if (!targets || (classes && c->num_classes < 1) || (c->target == SW_TARGET_SEQUENCE && c->y_rank != 1)) {
        return sw__fail(SW_ERR_ARGUMENT, "callback data set: target must be CLASS (with num_classes), SEQUENCE (with "
                        "num_classes, y of one axis), VALUE or NONE");
    }
    return SW_OK;
}

sw_status sw_dataset_from_callback(const sw_dataset_callback *c, sw_dataset **out)
{
    if (c == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_from_callback: callback or out is NULL");
    SW_TRY(check_callback(c));
    sw__storage *s;
    SW_TRY(sw__storage_new(c->name != NULL ? c->name : "callback", "callback", &s));
    sw_dataset *const d = sw__calloc(1, sizeof *d);
    if (d == NULL) {
        sw__storage_release(s);
        return sw__no_memory(sizeof *d, "a data set");
    }
    const bool classes = c->target == SW_TARGET_CLASS || c->target == SW_TARGET_SEQUENCE;
    d->storage = s;
    s->has_callback = true;
    s->callback = *c;
    s->callback.release = NULL; /* until nothing can fail any more, the context stays the caller's */
    s->tokens = c->tokens;
    d->info = (sw_dataset_info){ .name = s->name,
                                 .format = s->format,
                                 .count = c->count,
                                 .x_rank = c->x_rank,
                                 .x_dtype = c->tokens ? SW_I64 : SW_F32,
                                 .x_storage = c->tokens ? SW_I64 : SW_F32,
                                 .target = c->target,
                                 .y_rank = c->y_rank,
                                 .y_dtype = classes ? SW_I64 : SW_F32,
                                 .classes = classes ? c->num_classes : 0 };
    memcpy(d->info.x_shape, c->x_shape, sizeof d->info.x_shape);
    memcpy(d->info.y_shape, c->y_shape, sizeof d->info.y_shape);
    const sw_status st = finish(d);
    if (st != SW_OK) {
        sw_dataset_close(d);
        return st;
    }
    s->callback.release = c->release;
    *out = d;
    return SW_OK;
}

sw_status sw_dataset_error(sw_status st, const char *message)
{
    return sw__fail(st != SW_OK ? st : SW_ERR_DATA, "%s", message);
}

const sw_dataset_info *sw_dataset_about(const sw_dataset *d)
{
    if (d == NULL) return NULL;
    return &d->info;
}

sw_status sw_dataset_ready(sw_dataset *d)
{
    if (d == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_ready: the data set is NULL");
    return sw__storage_ready(d->storage);
}

/* ---- class names ------------------------------------------------------------------------------------------------- */

const char *sw_dataset_class_name(const sw_dataset *d, int64_t c)
{
    if (d == NULL) return NULL;
    return d->class_names != NULL && c >= 0 && c < d->info.classes ? d->class_names[c] : NULL;
}

sw_status sw_dataset_set_class_names(sw_dataset *d, const char *const *names, int64_t n)
{
    if (d == NULL || (names == NULL && n > 0))
        return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_set_class_names: data set or names is NULL");
    if ((d->info.target != SW_TARGET_CLASS && d->info.target != SW_TARGET_SEQUENCE) || n != d->info.classes) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: %" PRId64 " names for %" PRId64 " classes", d->info.name, n,
                        d->info.classes);
    }
    char **const copies = sw__calloc((size_t)n, sizeof *copies);
    bool good = copies != NULL;
    for (int64_t c = 0; good && c < n; c++) {
        copies[c] = sw__strdup(names[c]);
        good = copies[c] != NULL || names[c] == NULL;
    }
    if (!good) {
        for (int64_t c = 0; copies != NULL && c < n; c++) sw__free(copies[c]);
        sw__free(copies);
        return sw__no_memory((size_t)n * sizeof *copies, "class names");
    }
    free_class_names(d);
    d->class_names = copies;
    return SW_OK;
}

/* ---- normalisation ----------------------------------------------------------------------------------------------- */

void sw_normalization_free(sw_normalization *n)
{
    if (n == NULL) return;
    sw__free(n->mean);
    sw__free(n->std);
    *n = (sw_normalization){ 0 };
}

static sw_status check_normalization(const sw_dataset *d, const sw_normalization *n)
{
    const int64_t planes = d->info.x_rank > 0 ? d->info.x_shape[0] : 1;
    if (d->storage->tokens) return sw__fail(SW_ERR_ARGUMENT, "%s holds tokens, which are not normalised", d->info.name);
    if (n->channels != 1 && n->channels != planes) {
        return sw__fail(SW_ERR_SHAPE, "%s: normalisation for %" PRId64 " channels, but its samples have %" PRId64,
                        d->info.name, n->channels, planes);
    }
    for (int64_t c = 0; c < n->channels; c++) {
        if (isfinite(n->mean[c]) && isfinite(n->std[c]) && n->std[c] > 0) continue;
        return sw__fail(SW_ERR_ARGUMENT,
                        "%s: mean %g and std %g of channel %" PRId64 " cannot normalise (std must be above 0)",
                        d->info.name, (double)n->mean[c], (double)n->std[c], c);
    }
    return SW_OK;
}

sw_status sw_dataset_normalize(sw_dataset *d, const sw_normalization *n)
{
    if (d == NULL || (n != NULL && n->channels > 0 && (n->mean == NULL || n->std == NULL)))
        return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_normalize: data set, mean or std is NULL");
    sw_normalization copy = { 0 };
    if (n != NULL) {
        SW_TRY(check_normalization(d, n));
        const size_t bytes = (size_t)n->channels * sizeof(float);
        copy = (sw_normalization){ .channels = n->channels, .mean = sw__malloc(bytes), .std = sw__malloc(bytes) };
        if (copy.mean == NULL || copy.std == NULL) {
            sw_normalization_free(&copy);
            return sw__no_memory(2 * bytes, "normalisation");
        }
        memcpy(copy.mean, n->mean, bytes);
        memcpy(copy.std, n->std, bytes);
    }
    const sw_normalization old = d->normalization;
    const bool had = d->has_normalization;
    d->normalization = copy;
    d->has_normalization = n != NULL;
    const sw_status st = sw__dataset_tabulate(d);
    if (st != SW_OK) { /* as it was; without the table it is slower, not different */
        d->normalization = old;
        d->has_normalization = had;
        sw_normalization_free(&copy);
        return st;
    }
    sw_normalization unused = old;
    sw_normalization_free(&unused);
    return SW_OK;
}

const sw_normalization *sw_dataset_normalization(const sw_dataset *d)
{
    if (d == NULL) return NULL;
    return d->has_normalization ? &d->normalization : NULL;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static sw_status check_indices(const sw_dataset *d, const int64_t *indices, int64_t n)
{
    if (n < 1) return sw__fail(SW_ERR_ARGUMENT, "%s: a subset needs at least one sample", d->info.name);
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] >= 0 && indices[i] < d->info.count) continue;
        return sw__fail(SW_ERR_ARGUMENT, "%s: there is no sample %" PRId64 " among %" PRId64, d->info.name, indices[i],
                        d->info.count);
    }
    return SW_OK;
}

sw_status sw_dataset_subset(const sw_dataset *d, const int64_t *indices, int64_t n, sw_dataset **out)
{
    if (d == NULL || out == NULL || (indices == NULL && n > 0))
        return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_subset: data set, indices or out is NULL");
    SW_TRY(check_indices(d, indices, n));
    sw_dataset *const part = sw__calloc(1, sizeof *part);
    if (part == NULL) return sw__no_memory(sizeof *part, "a data set");
    part->storage = d->storage;
    atomic_fetch_add(&part->storage->handles, 1);
    part->info = d->info;
    part->info.count = n;
    part->indices = sw__calloc((size_t)n, sizeof *part->indices);
    sw_status st = part->indices != NULL ? finish(part) : sw__no_memory((size_t)n * sizeof *part->indices, "a subset");
    if (st == SW_OK) {
        for (int64_t i = 0; i < n; i++) part->indices[i] = sw__dataset_row(d, indices[i]);
        if (d->has_normalization) st = sw_dataset_normalize(part, &d->normalization);
    }
    if (st == SW_OK && d->class_names != NULL) {
        st = sw_dataset_set_class_names(part, (const char *const *)d->class_names, d->info.classes);
    }
    if (st != SW_OK) {
        sw_dataset_close(part);
        return st;
    }
    *out = part;
    return SW_OK;
}

/* Is the class of a sample one number that can be looked up? */
static bool has_class(const sw_dataset *d)
{
    return d->info.target == SW_TARGET_CLASS && d->info.y_rank == 0 && !d->storage->has_callback;
}

/* The class of a sample, for stratifying; 0 for all when there are none or several, or when only a callback knows. */
static int64_t class_of(const sw_dataset *d, int64_t i)
{
    if (!has_class(d)) return 0;
    return ((const int64_t *)d->storage->y.data)[sw__dataset_row(d, i)];
}

sw_status sw_dataset_class_counts(const sw_dataset *d, int64_t *counts)
{
    if (d == NULL || counts == NULL)
        return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_class_counts: data set or counts is NULL");
    if (d->info.target != SW_TARGET_CLASS || d->storage->has_callback) {
        return sw__fail(SW_ERR_ARGUMENT, "%s has no labels to count", d->info.name);
    }
    memset(counts, 0, (size_t)d->info.classes * sizeof *counts);
    int64_t each = 1;
    for (int i = 0; i < d->info.y_rank; i++) each *= d->info.y_shape[i];
    for (int64_t i = 0; i < d->info.count; i++) {
        const int64_t *const labels = (const int64_t *)d->storage->y.data + sw__dataset_row(d, i) * each;
        for (int64_t k = 0; k < each; k++) counts[labels[k]]++;
    }
    return SW_OK;
}

typedef struct leftover {
    double part;
    int64_t class_;
} leftover;

static int compare_leftovers(const void *a, const void *b)
{
    const leftover *const s = a, *const t = b;
    if (s->part != t->part) return s->part > t->part ? -1 : 1;
    return s->class_ < t->class_ ? -1 : s->class_ > t->class_;
}

/* How many of each class to hold out: its exact share rounded down, and one more for those with the largest remainders,
 * until `total` is reached. counts becomes that. */
static void share_out(int64_t *counts, leftover *remainders, int64_t classes, int64_t total, int64_t all)
{
    int64_t given = 0;
    for (int64_t c = 0; c < classes; c++) {
        const double share = (double)counts[c] * ((double)total / (double)all);
        const int64_t whole = SW_MIN((int64_t)share, counts[c]);
        remainders[c] = (leftover){ .part = counts[c] > whole ? share - (double)whole : -1, .class_ = c };
        counts[c] = whole;
        given += whole;
    }
    qsort(remainders, (size_t)classes, sizeof *remainders, compare_leftovers);
    for (int64_t i = 0; i < classes && given < total; i++, given++) counts[remainders[i].class_]++;
}

/* Marks the samples to hold out: in a random order, each class takes until its share is full. */
static void draw(const sw_dataset *d, int64_t *order, int64_t *shares, bool *held, uint64_t seed)
{
    const int64_t n = d->info.count;
    for (int64_t i = 0; i < n; i++) order[i] = d->storage->in_order ? n - 1 - i : i;
    sw__rng rng;
    sw__rng_init(&rng, seed, SPLIT_STREAM);
    if (!d->storage->in_order) sw__rng_shuffle(&rng, order, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t *const share = &shares[class_of(d, order[i])];
        held[order[i]] = *share > 0;
        if (*share > 0) --*share;
    }
}

static sw_status split_marked(const sw_dataset *d, const bool *held, int64_t *order, sw_dataset **rest,
                              sw_dataset **held_out)
{
    int64_t n = 0, m = 0;
    for (int64_t i = 0; i < d->info.count; i++) {
        if (!held[i]) order[n++] = i;
    }
    for (int64_t i = 0; i < d->info.count; i++) {
        if (held[i]) order[n + m++] = i;
    }
    sw_dataset *first;
    SW_TRY(sw_dataset_subset(d, order, n, &first));
    const sw_status st = sw_dataset_subset(d, order + n, m, held_out);
    if (st != SW_OK) {
        sw_dataset_close(first);
        return st;
    }
    *rest = first;
    return SW_OK;
}

sw_status sw_dataset_split(const sw_dataset *d, double fraction, uint64_t seed, sw_dataset **rest,
                           sw_dataset **held_out)
{
    if (d == NULL || rest == NULL || held_out == NULL)
        return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_split: data set, rest or held_out is NULL");
    const int64_t n = d->info.count;
    if (!(fraction > 0 && fraction < 1)) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: a part of %g cannot be held out; it must be between 0 and 1",
                        d->info.name, fraction);
    }
    if (n < 2) return sw__fail(SW_ERR_DATA, "%s has one sample, which cannot be split in two", d->info.name);
    const int64_t total = SW_MAX(1, SW_MIN(n - 1, (int64_t)llround(fraction * (double)n)));
    const bool stratified = has_class(d);
    const int64_t classes = stratified ? d->info.classes : 1;
    int64_t *const shares = sw__calloc((size_t)classes, sizeof *shares);
    leftover *const remainders = sw__calloc((size_t)classes, sizeof *remainders);
    int64_t *const order = sw__calloc((size_t)n, sizeof *order);
    bool *const held = sw__calloc((size_t)n, sizeof *held);
    sw_status st = SW_OK;
    if (shares == NULL || remainders == NULL || order == NULL || held == NULL) {
        st = sw__no_memory((size_t)n * sizeof *order, "splitting a data set");
    } else {
        if (stratified)
            st = sw_dataset_class_counts(d, shares);
        else
            shares[0] = n;
        share_out(shares, remainders, classes, total, n);
        draw(d, order, shares, held, seed);
        st = st == SW_OK ? split_marked(d, held, order, rest, held_out) : st;
    }
    sw__free(shares);
    sw__free(remainders);
    sw__free(order);
    sw__free(held);
    return st;
}
