/* arrange.c: from the arrays that a file or a caller brings to x and y as data sets have them: shapes, types, labels.
 * Inside data, between the sources (open.c, dataset.c) and the handle. */
#include "data/storage.h"
#include <inttypes.h>
#include <math.h>

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Replaces an array by its conversion; a borrowed one stays with its owner. */
static sw_status convert(sw_array *a, bool *own, sw_dtype to, const char *what)
{
    if (a->dtype == to) return SW_OK;
    sw_array b = *a;
    b.dtype = to;
    SW_TRY(sw__array_alloc(&b, what));
    sw__convert(b.data, to, a->data, a->dtype, (size_t)sw_array_count(a));
    if (*own) sw__free(a->data);
    *a = b;
    *own = true;
    return SW_OK;
}

/* format "batches": [steps, batch, …] is [steps × batch, …]. */
static sw_status merge_batches(sw_array *a, const char *name)
{
    if (a->rank < 2) {
        return sw__fail(SW_ERR_DATA, "%s: format batches wants axes step and sample first, and there is only one",
                        name);
    }
    a->shape[0] *= a->shape[1];
    for (int i = 1; i + 1 < a->rank; i++) a->shape[i] = a->shape[i + 1];
    a->rank--;
    return SW_OK;
}

/* The samples' shape that the user names, if it has the right size. */
static sw_status reshape(const sw__storage *s, const sw_dataset_options *o, sw_dataset_info *info)
{
    size_t want = 0;
    const bool fits = o->shape_rank < SW_MAX_RANK && sw__shape_count(o->shape, o->shape_rank, &want);
    const size_t have = (size_t)(sw_array_count(&s->x) / s->x.shape[0]);
    if (!fits || want != have) {
        char a[SW__SHAPE_TEXT], b[SW__SHAPE_TEXT];
        return sw__fail(SW_ERR_DATA, "%s: samples of shape %s cannot be taken for %s", s->x_name,
                        sw__array_shape_text(a, s->x.shape + 1, s->x.rank - 1),
                        fits ? sw__array_shape_text(b, o->shape, o->shape_rank) : "a shape of that many axes");
    }
    info->x_rank = o->shape_rank;
    memcpy(info->x_shape, o->shape, (size_t)o->shape_rank * sizeof *o->shape);
    return SW_OK;
}

static bool is_channels(int64_t n)
{
    return n == 1 || n == 3 || n == 4;
}

/* [N] → [1]; [N, H, W] → [1, H, W]; 8-bit [N, H, W, 1|3|4] → [C, H, W]; else the axes after the first. */
static void default_shape(sw__storage *s, sw_dataset_info *info)
{
    const sw_array *const x = &s->x;
    const bool grey = x->rank == 3 && !s->tokens;
    int n = 0;
    if (grey || x->rank == 1) info->x_shape[n++] = 1;
    for (int i = 1; i < x->rank; i++) info->x_shape[n++] = x->shape[i];
    info->x_rank = n;
    if (x->rank != 4 || x->dtype != SW_U8 || !is_channels(x->shape[3]) || is_channels(x->shape[1])) return;
    s->channels_last = true;
    info->x_shape[0] = x->shape[3];
    info->x_shape[1] = x->shape[1];
    info->x_shape[2] = x->shape[2];
}

static bool wide_integers(sw_dtype t)
{
    return t == SW_I32 || t == SW_I64 || t == SW_U32;
}

/* Codes, with an answer for each: integers in files, both of one shape. */
static bool are_tokens(const sw__storage *s)
{
    const sw_array *const x = &s->x, *const y = &s->y;
    if (!y->data || !wide_integers(x->dtype) || !wide_integers(y->dtype) || x->rank < 2 || x->rank != y->rank) return false;
    for (int i = 0; i < x->rank; i++)
        if (x->shape[i] != y->shape[i]) return false;
    return x->rank > 2 || x->shape[1] > 1;
}

/* Codes for a model that reads codes, whatever is to be said of them. */
static bool are_codes(const sw__storage *s, const sw_dataset_options *o)
{
    return o->integers_are_tokens && s->x.rank == 2 && s->x.shape[1] > 1 && !sw__dtype_is_float(s->x.dtype);
}

static void measure_vocabulary(const sw__storage *s, sw_dataset_info *info)
{
    const int64_t *const codes = s->x.data, n = sw_array_count(&s->x);
    for (int64_t i = 0; i < n; i++) info->vocabulary = SW_MAX(info->vocabulary, codes[i] + 1);
}

sw_status sw__arrange_x(sw__storage *s, const sw_dataset_options *o, sw_dataset_info *info)
{
    const bool in_memory = strcmp(s->format, "memory") == 0;
    const bool values = o->target == SW_TARGET_VALUE || o->target == SW_TARGET_NONE;
    s->tokens = o->tokens || are_codes(s, o) || (!in_memory && !values && are_tokens(s));
    if (s->x.rank < 1)
        return sw__fail(SW_ERR_DATA, "%s: x is a single number; its first axis should count samples", s->x_name);
    if (o->format != NULL && strcmp(o->format, "batches") == 0) SW_TRY(merge_batches(&s->x, s->x_name));
    info->count = s->x.shape[0];
    if (info->count == 0) return sw__fail(SW_ERR_DATA, "%s holds no samples", s->x_name);
    if (s->x.bytes == 0) {
        char text[SW__SHAPE_TEXT];
        return sw__fail(SW_ERR_DATA, "%s: samples of shape %s are empty", s->x_name,
                        sw__array_shape_text(text, s->x.shape + 1, s->x.rank - 1));
    }
    if (o->shape_rank > 0) {
        SW_TRY(reshape(s, o, info));
    } else if (in_memory) {
        info->x_rank = s->x.rank - 1;
        memcpy(info->x_shape, s->x.shape + 1, (size_t)info->x_rank * sizeof *info->x_shape);
    } else {
        default_shape(s, info);
    }
    if (s->tokens && sw__dtype_is_float(s->x.dtype)) {
        return sw__fail(SW_ERR_DATA, "%s holds %s; tokens are integers", s->x_name, sw_dtype_name(s->x.dtype));
    }
    info->x_dtype = s->tokens ? SW_I64 : SW_F32;
    if (s->tokens) {
        SW_TRY(convert(&s->x, &s->own_x, SW_I64, "x"));
        measure_vocabulary(s, info);
    } else if (s->x.dtype != SW_U8 && s->x.dtype != SW_F32 && !in_memory) {
        SW_TRY(convert(&s->x, &s->own_x, SW_F32, "x"));
    }
    info->x_storage = s->x.dtype;
    return sw__check_finite(s);
}

/* The first value that is not finite, or n. A sum of x − x is 0 exactly if all are: that vectorises. */
static size_t find_not_finite(const float *x, size_t n)
{
    enum { BLOCK = 1024 };
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t end = SW_MIN(at + BLOCK, n);
        float sum = 0;
        for (size_t i = at; i < end; i++) sum += x[i] - x[i];
        if (sum == 0) continue;
        for (size_t i = at; i < end; i++) {
            if (!isfinite(x[i])) return i;
        }
    }
    return n;
}

sw_status sw__check_finite(const sw__storage *s)
{
    if (!sw__dtype_is_float(s->x.dtype)) return SW_OK;
    const size_t n = (size_t)sw_array_count(&s->x), size = sw_dtype_size(s->x.dtype);
    const size_t per_sample = n / (size_t)s->x.shape[0];
    float chunk[1024];
    for (size_t at = 0, some; at < n; at += some) {
        some = s->x.dtype == SW_F32 ? n : SW_MIN(n - at, SW_COUNT(chunk));
        const void *const from = (const char *)s->x.data + at * size;
        if (s->x.dtype != SW_F32) sw__convert(chunk, SW_F32, from, s->x.dtype, some);
        const float *const values = s->x.dtype == SW_F32 ? from : chunk;
        const size_t bad = find_not_finite(values, some);
        if (bad == some) continue;
        return sw__fail(SW_ERR_DATA, "%s: value %zu of sample %zu is %s", s->x_name, (at + bad) % per_sample,
                        (at + bad) / per_sample,
                        isnan(values[bad]) ? "NaN (missing)" : "infinite, or too large for f32");
    }
    return SW_OK;
}

/* ---- y ----------------------------------------------------------------------------------------------------------- */

/* Class numbers: whole, not negative, below num_classes (or taken for the number of classes). */
static sw_status check_labels(sw__storage *s, const sw_dataset_options *o, sw_dataset_info *info)
{
    enum { PLAUSIBLE = 1000000 }; /* more classes than samples, and more than this: not class numbers */
    int64_t most = -1;
    const int64_t *const labels = s->y.data;
    const int64_t n = sw_array_count(&s->y), each = n / info->count;
    const int64_t limit = o->num_classes > 0 ? o->num_classes : SW_MAX(info->count, PLAUSIBLE);
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = labels[i];
        if (v < 0) {
            return sw__fail(SW_ERR_DATA,
                            "%s: label %" PRId64 " of sample %" PRId64 " is negative; classes count from 0", s->y_name,
                            v, i / each);
        }
        if (v >= limit) {
            return sw__fail(
                SW_ERR_DATA,
                "%s: label %" PRId64 " of sample %" PRId64 " is out of range: %s %" PRId64 " classes, 0 to %" PRId64,
                s->y_name, v, i / each, o->num_classes > 0 ? "there are" : "without num_classes at most", limit, limit - 1);
        }
        most = SW_MAX(most, v);
    }
    if (s->tokens && info->y_rank > 0) { /* what comes next is of the vocabulary of what was there */
        const int64_t *const codes = s->x.data, m = sw_array_count(&s->x);
        for (int64_t i = 0; i < m; i++) most = SW_MAX(most, codes[i]);
    }
    info->classes = o->num_classes > 0 ? o->num_classes : most + 1;
    return SW_OK;
}

/* ---- sequences for CTC ------------------------------------------------------------------------------------------- */

/* One answer of room labels: those beyond its length become -1. *steps: what CTC needs to say it. */
static sw_status settle_sequence(const sw__storage *s, int64_t sample, int64_t *y, int64_t room, int64_t *steps, int64_t *most)
{
    int64_t n = room;
    if (s->lengths.data != NULL) n = ((const int64_t *)s->lengths.data)[sample];
    if (n < 0 || n > room)
        return sw__fail(SW_ERR_DATA, "%s: the length of sample %" PRId64 " is %" PRId64 ", but there is room for %" PRId64,
                        s->y_name, sample, n, room);
    for (int64_t i = 0; s->lengths.data == NULL && i < n; i++)
        if (y[i] < 0) n = i;
    *steps = n;
    for (int64_t i = 0; i < room; i++) {
        if (i >= n && s->lengths.data == NULL && y[i] >= 0)
            return sw__fail(SW_ERR_DATA, "%s: sample %" PRId64 " has label %" PRId64 " after a negative one, which ends it",
                            s->y_name, sample, y[i]);
        if (i >= n) y[i] = -1;
        else if (y[i] <= 0)
            return sw__fail(SW_ERR_DATA, "%s: label %" PRId64 " of sample %" PRId64 " is %" PRId64 ": labels of sequences count "
                            "from 1, as 0 is the blank of CTC; what comes after the last is -1, or the lengths say so", s->y_name,
                            i, sample, y[i]);
        *steps += i > 0 && i < n && y[i] == y[i - 1];
        *most = SW_MAX(*most, y[i]);
    }
    return SW_OK;
}

/* y [N, S] becomes i64 of the storage's own, filled up with -1. */
static sw_status arrange_sequences(sw__storage *s, const sw_dataset_options *o, sw_dataset_info *info)
{
    sw_array *const y = &s->y;
    int64_t most = 0;
    if (sw__dtype_is_float(y->dtype) || info->y_rank != 1 || y->bytes == 0)
        return sw__fail(SW_ERR_DATA, "%s: sequences are integers [samples, labels]", s->y_name);
    if (s->lengths.data != NULL && s->lengths.shape[0] != info->count)
        return sw__fail(SW_ERR_DATA, "%s has %" PRId64 " samples, but %" PRId64 " lengths", s->y_name, info->count,
                        s->lengths.shape[0]);
    sw_array own = *y;
    own.dtype = SW_I64;
    SW_TRY(sw__array_alloc(&own, "labels"));
    sw__convert(own.data, SW_I64, y->data, y->dtype, (size_t)sw_array_count(y));
    if (s->own_y) sw__free(y->data);
    *y = own;
    s->own_y = true;
    info->y_dtype = SW_I64;
    for (int64_t i = 0; i < info->count; i++) {
        int64_t steps = 0;
        SW_TRY(settle_sequence(s, i, (int64_t *)y->data + i * info->y_shape[0], info->y_shape[0], &steps, &most));
        info->longest = SW_MAX(info->longest, steps);
    }
    if (o->num_classes > 0 && most >= o->num_classes)
        return sw__fail(SW_ERR_DATA, "%s: label %" PRId64 " is out of range: there are %" PRId64 " classes, with the blank",
                        s->y_name, most, o->num_classes);
    info->classes = o->num_classes > 0 ? o->num_classes : most + 1;
    return SW_OK;
}

/* Floats that are to be class numbers must be whole. */
static sw_status check_whole(const sw__storage *s)
{
    const int64_t n = sw_array_count(&s->y);
    const size_t size = sw_dtype_size(s->y.dtype);
    for (int64_t i = 0; i < n; i++) {
        double v;
        sw__convert(&v, SW_F64, (const char *)s->y.data + (size_t)i * size, s->y.dtype, 1);
        if (v == floor(v) && fabs(v) < 9e15) continue;
        return sw__fail(SW_ERR_DATA, "%s: label %g of sample %" PRId64 " is no class number", s->y_name, v, i);
    }
    return SW_OK;
}

/* A class for each place of an image: whole numbers, as many as x's samples [C, H, W …] have places. */
static bool are_masks(const sw__storage *s, const sw_dataset_info *info)
{
    const sw_array *const y = &s->y;
    const int axes = y->rank - 1;
    if (s->tokens || axes < 2 || info->x_rank != axes + 1) return false;
    for (int i = 0; i < axes; i++)
        if (y->shape[i + 1] != info->x_shape[i + 1]) return false;
    return true;
}

/* [N, 1, H, W] of masks, as frameworks with channels have them, is [N, H, W]. */
static void squeeze_masks(sw__storage *s, const sw_dataset_info *info)
{
    sw_array *const y = &s->y, was = *y;
    if (y->rank < 4 || y->shape[1] != 1 || info->x_rank != y->rank - 1) return;
    memmove(&y->shape[1], &y->shape[2], (size_t)(y->rank - 2) * sizeof *y->shape);
    y->rank--;
    if (!are_masks(s, info)) *y = was;
}

sw_status sw__arrange_y(sw__storage *s, const sw_dataset_options *o, sw_dataset_info *info)
{
    sw_array *const y = &s->y;
    info->target = o->target;
    if (o->target == SW_TARGET_NONE || y->data == NULL) {
        if (o->target != SW_TARGET_NONE && o->target != SW_TARGET_AUTO) {
            return sw__fail(SW_ERR_DATA, "%s has no y", s->x_name);
        }
        info->target = SW_TARGET_NONE;
        return SW_OK;
    }
    if (o->format != NULL && strcmp(o->format, "batches") == 0) SW_TRY(merge_batches(y, s->y_name));
    if (y->rank < 1 || y->shape[0] != info->count) {
        return sw__fail(SW_ERR_DATA, "%s has %" PRId64 " samples, but %s has %" PRId64 " answers", s->x_name,
                        info->count, s->y_name, y->rank < 1 ? 1 : y->shape[0]);
    }
    if (y->rank == 2 && y->shape[1] == 1 && o->target != SW_TARGET_SEQUENCE) y->rank = 1; /* a column of numbers */
    const bool whole = !sw__dtype_is_float(y->dtype);
    if (o->target == SW_TARGET_CLASS || (o->target == SW_TARGET_AUTO && whole)) squeeze_masks(s, info);
    const bool single = y->rank == 1;
    if (o->target == SW_TARGET_AUTO)
        info->target = whole && (single || s->tokens || are_masks(s, info)) ? SW_TARGET_CLASS : SW_TARGET_VALUE;
    info->y_rank = y->rank - 1;
    memcpy(info->y_shape, y->shape + 1, (size_t)info->y_rank * sizeof *info->y_shape);
    if (info->target == SW_TARGET_SEQUENCE) return arrange_sequences(s, o, info);
    if (info->target == SW_TARGET_CLASS) {
        if (y->bytes == 0) return sw__fail(SW_ERR_DATA, "%s: samples without labels", s->y_name);
        if (!whole) SW_TRY(check_whole(s));
        info->y_dtype = SW_I64;
        SW_TRY(convert(y, &s->own_y, SW_I64, "labels"));
        return check_labels(s, o, info);
    }
    info->y_dtype = whole && !single ? SW_I64 : SW_F32;
    SW_TRY(convert(y, &s->own_y, info->y_dtype, "y"));
    if (info->y_dtype != SW_F32) return SW_OK;
    const size_t n = (size_t)sw_array_count(y), bad = find_not_finite(y->data, n);
    if (bad == n) return SW_OK;
    return sw__fail(SW_ERR_DATA, "%s: y of sample %zu is not finite", s->y_name, bad / (n / (size_t)info->count));
}
