/* get.c: samples as the network reads them: scaled, normalised, channels first; and the statistics for that.
 * Inside data: the inner loop of loading. */
#include "data/storage.h"
#include <inttypes.h>
#include <math.h>

enum { TABLE_CHANNELS = 16 }; /* beyond this a table leaves the first-level cache, and arithmetic is as fast */

/* The delivered value of an 8-bit one. Written once, so that table and loop agree to the bit. */
static inline float scale_u8(uint8_t v, float mean, float std)
{
    return ((float)v / 255.0f - mean) / std;
}

static int64_t normalization_index(const sw_dataset *d, int64_t channel)
{
    return d->normalization.channels == 1 ? 0 : channel;
}

/* First axis of x: what statistics count along. 1 if x has no axes. */
static int64_t planes(const sw_dataset *d)
{
    return d->info.x_rank > 0 ? d->info.x_shape[0] : 1;
}

sw_status sw__dataset_tabulate(sw_dataset *d)
{
    const int64_t n = planes(d);
    sw__free(d->table);
    d->table = NULL;
    if (d->storage->has_callback || d->storage->tokens || d->storage->x.dtype != SW_U8 || n > TABLE_CHANNELS)
        return SW_OK;
    d->table = sw__malloc_aligned(64, (size_t)n * 256 * sizeof *d->table);
    if (d->table == NULL) return sw__no_memory((size_t)n * 256 * sizeof *d->table, "a table of pixel values");
    for (int64_t c = 0; c < n; c++) {
        const int64_t k = normalization_index(d, c);
        const float mean = d->has_normalization ? d->normalization.mean[k] : 0;
        const float std = d->has_normalization ? d->normalization.std[k] : 1;
        for (int v = 0; v < 256; v++) d->table[c * 256 + v] = scale_u8((uint8_t)v, mean, std);
    }
    return SW_OK;
}

/* One plane of 8-bit values, `step` apart. */
static void look_up(float *SW_RESTRICT out, const uint8_t *SW_RESTRICT in, int64_t n, int64_t step,
                    const float *SW_RESTRICT table)
{
    for (int64_t i = 0; i < n; i++) out[i] = table[in[i * step]];
}

static void scale_plane(float *SW_RESTRICT out, const uint8_t *SW_RESTRICT in, int64_t n, int64_t step, float mean,
                        float std)
{
    for (int64_t i = 0; i < n; i++) out[i] = scale_u8(in[i * step], mean, std);
}

static void normalise_plane(float *x, int64_t n, float mean, float std)
{
    for (int64_t i = 0; i < n; i++) x[i] = (x[i] - mean) / std;
}

static void get_u8(const sw_dataset *d, const uint8_t *in, float *out)
{
    const bool last = d->storage->channels_last;
    const int64_t n = planes(d), inner = d->elements / n;
    for (int64_t c = 0; c < n; c++, out += inner) {
        const uint8_t *const from = last ? in + c : in + c * inner;
        const int64_t step = last ? n : 1;
        if (d->table != NULL) {
            look_up(out, from, inner, step, d->table + c * 256);
        } else {
            const int64_t k = normalization_index(d, c);
            scale_plane(out, from, inner, step, d->has_normalization ? d->normalization.mean[k] : 0,
                        d->has_normalization ? d->normalization.std[k] : 1);
        }
    }
}

static void normalise(const sw_dataset *d, float *x)
{
    const int64_t n = d->normalization.channels, inner = d->elements / n;
    for (int64_t c = 0; c < n; c++) {
        normalise_plane(x + c * inner, inner, d->normalization.mean[c], d->normalization.std[c]);
    }
}

/* x of one row of an array-backed storage. */
static void get_x(const sw_dataset *d, int64_t row, void *out)
{
    const sw_array *const x = &d->storage->x;
    const size_t n = (size_t)d->elements;
    const void *const from = (const char *)x->data + (size_t)row * n * sw_dtype_size(x->dtype);
    if (x->dtype == d->info.x_dtype) {
        memcpy(out, from, n * sw_dtype_size(x->dtype));
    } else if (x->dtype == SW_U8 && d->info.x_dtype == SW_F32) {
        get_u8(d, from, out);
        return;
    } else {
        sw__convert(out, d->info.x_dtype, from, x->dtype, n);
    }
    if (d->has_normalization) normalise(d, out);
}

static size_t y_bytes(const sw_dataset *d)
{
    size_t n = sw_dtype_size(d->info.y_dtype);
    for (int i = 0; i < d->info.y_rank; i++) n *= (size_t)d->info.y_shape[i];
    return n;
}

/* One sample of a callback; its labels are checked here, as they come. */
static sw_status get_called(const sw_dataset *d, int64_t row, void *x, void *y)
{
    const sw_dataset_callback *const c = &d->storage->callback;
    SW_TRY(c->get(c->context, row, x, y));
    if (d->has_normalization) normalise(d, x);
    const bool sequence = d->info.target == SW_TARGET_SEQUENCE; /* filled up with -1 */
    if (d->info.target != SW_TARGET_CLASS && !sequence) return SW_OK;
    const int64_t *const labels = y;
    const size_t n = y_bytes(d) / sizeof *labels;
    for (size_t i = 0; i < n; i++)
        if (labels[i] < (sequence ? -1 : 0) || labels[i] >= d->info.classes || (sequence && labels[i] == 0))
            return sw__fail(SW_ERR_DATA,
                            "%s: label %" PRId64 " of sample %" PRId64 " is out of range: there are %" PRId64 " classes",
                            d->info.name, labels[i], row, d->info.classes);
    return SW_OK;
}

sw_status sw_dataset_get(const sw_dataset *d, const int64_t *indices, int64_t n, void *x, void *y)
{
    if (d == NULL || (n > 0 && (indices == NULL || x == NULL)))
        return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_get: data set, indices or x is NULL");
    const sw__storage *const s = d->storage;
    SW_TRY(sw__storage_ready(s));
    const size_t x_step = (size_t)d->elements * sw_dtype_size(d->info.x_dtype);
    const size_t y_step = d->info.target != SW_TARGET_NONE ? y_bytes(d) : 0;
    if (s->has_callback && y_step > 0 && y == NULL) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: y is NULL, and a callback writes both x and y", d->info.name);
    }
    char *to_x = x, *to_y = y;
    for (int64_t i = 0; i < n; i++, to_x += x_step) {
        if (indices[i] < 0 || indices[i] >= d->info.count) {
            return sw__fail(SW_ERR_ARGUMENT, "%s: there is no sample %" PRId64 " among %" PRId64, d->info.name,
                            indices[i], d->info.count);
        }
        const int64_t row = sw__dataset_row(d, indices[i]);
        if (s->has_callback) {
            SW_TRY(get_called(d, row, to_x, to_y));
        } else {
            get_x(d, row, to_x);
            if (to_y != NULL && y_step > 0) memcpy(to_y, (const char *)s->y.data + (size_t)row * y_step, y_step);
        }
        if (to_y != NULL) to_y += y_step;
    }
    return SW_OK;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

/* Sums over one plane of 8-bit values. Blocks keep the squares within 32 bits (65,536 × 255² < 2³²): that vectorises.
 */
static void sum_u8(const uint8_t *in, int64_t n, int64_t step, uint64_t *sum, uint64_t *squares)
{
    for (int64_t at = 0; at < n; at += 65536) {
        const int64_t end = SW_MIN(at + 65536, n);
        uint32_t a = 0, b = 0;
        if (step == 1) {
            for (int64_t i = at; i < end; i++) a += in[i], b += (uint32_t)in[i] * in[i];
        } else {
            for (int64_t i = at; i < end; i++) a += in[i * step], b += (uint32_t)in[i * step] * in[i * step];
        }
        *sum += a;
        *squares += b;
    }
}

static sw_status measure_u8(const sw_dataset *d, int64_t channels, double *mean, double *variance)
{
    const int64_t n = planes(d), inner = d->elements / n;
    const bool last = d->storage->channels_last;
    uint64_t *const sums = sw__calloc((size_t)(2 * channels), sizeof *sums);
    if (sums == NULL) return sw__no_memory((size_t)(2 * channels) * sizeof *sums, "image statistics");
    for (int64_t i = 0; i < d->info.count; i++) {
        const uint8_t *const row = (const uint8_t *)d->storage->x.data + sw__dataset_row(d, i) * d->elements;
        if (channels == 1) {
            sum_u8(row, d->elements, 1, &sums[0], &sums[1]);
            continue;
        }
        for (int64_t c = 0; c < n; c++) {
            sum_u8(last ? row + c : row + c * inner, inner, last ? n : 1, &sums[2 * c], &sums[2 * c + 1]);
        }
    }
    const int64_t per_channel = d->elements / channels;
    const double values = (double)d->info.count * (double)per_channel;
    for (int64_t c = 0; c < channels; c++) {
        const double m = (double)sums[2 * c] / values;
        mean[c] = m / 255;
        variance[c] = ((double)sums[2 * c + 1] / values - m * m) / (255.0 * 255.0);
    }
    sw__free(sums);
    return SW_OK;
}

/* One sample without the normalisation that d has: x is left raw in the buffer. */
static sw_status raw_sample(const sw_dataset *d, int64_t i, float *x, void *y)
{
    sw_dataset plain = *d;
    plain.has_normalization = false;
    plain.table = NULL;
    return sw_dataset_get(&plain, &i, 1, x, y);
}

/* Adds, per channel, the values less `less` (NULL: 0), or the squares of that. */
static void add_sample(const float *x, int64_t channels, int64_t inner, const double *less, bool squared, double *sums)
{
    for (int64_t c = 0; c < channels; c++, x += inner) {
        double sum = 0;
        const double m = less != NULL ? less[c] : 0;
        for (int64_t i = 0; i < inner; i++) sum += squared ? (x[i] - m) * (x[i] - m) : x[i] - m;
        sums[c] += sum;
    }
}

static sw_status measure_any(const sw_dataset *d, int64_t channels, double *mean, double *variance)
{
    const int64_t inner = d->elements / channels;
    const double values = (double)d->info.count * (double)inner;
    float *const x = sw__malloc((size_t)d->elements * sizeof *x);
    void *const y = sw__malloc(y_bytes(d));
    sw_status st = x != NULL && y != NULL ? SW_OK : sw__no_memory((size_t)d->elements * sizeof *x, "statistics");
    for (int64_t i = 0; st == SW_OK && i < d->info.count; i++) {
        st = raw_sample(d, i, x, y);
        if (st == SW_OK) add_sample(x, channels, inner, NULL, false, mean);
    }
    for (int64_t c = 0; c < channels; c++) mean[c] /= values;
    for (int64_t i = 0; st == SW_OK && i < d->info.count; i++) {
        st = raw_sample(d, i, x, y);
        if (st == SW_OK) add_sample(x, channels, inner, mean, true, variance);
    }
    for (int64_t c = 0; c < channels; c++) variance[c] /= values;
    sw__free(x);
    sw__free(y);
    return st;
}

sw_status sw_dataset_measure(const sw_dataset *d, sw_normalization *out)
{
    if (d == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_measure: data set or out is NULL");
    const sw__storage *const s = d->storage;
    if (s->tokens) return sw__fail(SW_ERR_ARGUMENT, "%s holds tokens, which have no mean", d->info.name);
    SW_TRY(sw__storage_ready(s));
    const int64_t n = d->channels;
    double *const sums = sw__calloc((size_t)(2 * n), sizeof *sums);
    sw_normalization result = { .channels = n,
                                .mean = sw__calloc((size_t)n, sizeof(float)),
                                .std = sw__calloc((size_t)n, sizeof(float)) };
    sw_status st = sums != NULL && result.mean != NULL && result.std != NULL
                       ? SW_OK
                       : sw__no_memory((size_t)n * 2 * sizeof *sums, "statistics");
    const bool bytes = !s->has_callback && s->x.dtype == SW_U8;
    if (st == SW_OK) st = (bytes ? measure_u8 : measure_any)(d, n, sums, sums + n);
    for (int64_t c = 0; st == SW_OK && c < n; c++) {
        const double std = sqrt(fmax(sums[n + c], 0));
        result.mean[c] = (float)sums[c];
        /* below this, spread is rounding: dividing by it would only magnify noise */
        result.std[c] = std > 1e-7 * (1 + fabs(sums[c])) ? (float)std : 1;
    }
    sw__free(sums);
    if (st != SW_OK) {
        sw_normalization_free(&result);
        return st;
    }
    *out = result;
    return SW_OK;
}
