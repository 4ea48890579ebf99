/* ops_signal.c: signals: frames, the short-time Fourier transform as a matrix product, mel filters, the log-mel
 * spectrogram. Differentiable graphs of primitives. Between swoop/graph.h and the builders of primitives. */
#include "graph/compose.h"
#include <math.h>

static const double pi = 3.14159265358979323846;

/* ---- constants --------------------------------------------------------------------------------------------------- */

/* Element i of a matrix with `columns` columns. */
typedef double (*entry_fn)(const void *about, int64_t row, int64_t column);

static void store(void *to, sw_dtype type, int64_t i, double v)
{
    switch (type) {
    case SW_F64: ((double *)to)[i] = v; break;
    case SW_F16: ((uint16_t *)to)[i] = sw__f32_to_f16((float)v); break;
    case SW_BF16: ((uint16_t *)to)[i] = sw__f32_to_bf16((float)v); break;
    default: ((float *)to)[i] = (float)v; break;
    }
}

static sw_t literal_of(sw_graph *g, const char *what, sw_dtype type, int64_t rows, int64_t columns, entry_fn entry,
                       const void *about)
{
    const int64_t shape[2] = { rows, columns };
    char text[SW__TEXT_BYTES];
    if (columns > 0 && rows > INT64_MAX / 16 / columns)
        return sw__compose_error(g, what, SW_ERR_SHAPE, "a matrix %s is too large",
                                 sw__dims_text(2, shape, text, sizeof text));
    void *const data = sw__malloc((size_t)(rows * columns) * sw_dtype_size(type));
    if (data == NULL)
        return sw__compose_error(g, what, SW_ERR_MEMORY, "no memory for a matrix %s",
                                 sw__dims_text(2, shape, text, sizeof text));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) store(data, type, i * columns + k, entry(about, i, k));
    const sw_t y = sw_literal(g, type, 2, shape, data);
    sw__free(data);
    return y;
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

/* [.., L] as blocks of `hop`; a frame is the `size` first of r = size/hop (rounded up) blocks in a row: r cuts beside
 * each other. No index tensor; the gradient is r pads that are added. */
sw_t sw_frame(sw_t x, int64_t size, int64_t hop)
{
    sw_t invalid;
    if (!sw__compose_operand("frame", x, &invalid)) return invalid;
    int64_t dim[SW_MAX_RANK + 1], length, lo[2] = { 0, 0 }, hi[2] = { 0, 0 };
    const int rank = sw__dims_of(x, dim);
    char text[SW__TEXT_BYTES];
    if (rank < 1 || rank == SW_MAX_RANK || size < 1 || hop < 1 || (length = dim[rank - 1]) < size)
        return sw__compose_error(x.graph, "frame", SW_ERR_SHAPE,
                                 "%s cannot be cut into frames of %lld every %lld: the last axis "
                                 "must have a frame's size or more, both numbers be 1 or more",
                                 sw__value_text(x.graph, x.id, text), (long long)size, (long long)hop);
    const int64_t frames = (length - size) / hop + 1, r = size / hop + (size % hop != 0), blocks = frames + r - 1;
    const int64_t outer = sw__dims_product(dim, rank - 1), used = SW_MIN(blocks * hop, length);
    hi[1] = blocks * hop - used;
    x = sw_narrow(sw_reshape(x, 2, (int64_t[]){ outer, length }), 1, 0, used);
    x = sw_reshape(sw_pad(x, lo, hi, NULL, 0), 3, (int64_t[]){ outer, blocks, hop });
    sw_t *const cut = sw__malloc((size_t)r * sizeof *cut);
    if (cut == NULL)
        return sw__compose_error(x.graph, "frame", SW_ERR_MEMORY, "no memory for %lld cuts", (long long)r);
    for (int64_t i = 0; i < r; i++) cut[i] = sw_narrow(x, 1, i, frames);
    sw_t y = sw_narrow(sw_concat(cut, (int)r, 2), 2, 0, size);
    sw__free(cut);
    dim[rank - 1] = frames;
    dim[rank] = size;
    y = sw_reshape(y, rank + 1, dim);
    return y;
}

/* ---- the short-time Fourier transform ---------------------------------------------------------------------------- */

typedef struct transform {
    int64_t n_fft, win_length, bins;
    double scale;
    sw_window_kind window;
    bool given; /* the window is a value: not in the matrix */
} transform;

/* Periodic windows, as torch.hann_window and the like give them. */
static double window_at(const transform *t, int64_t i)
{
    const int64_t at = i - (t->n_fft - t->win_length) / 2;
    if (at < 0 || at >= t->win_length) return 0;
    const double phase = 2 * pi * (double)at / (double)t->win_length;
    switch (t->window) {
    case SW_WINDOW_HAMMING: return 0.54 - 0.46 * cos(phase);
    case SW_WINDOW_BLACKMAN: return 0.42 - 0.5 * cos(phase) + 0.08 * cos(2 * phase);
    case SW_WINDOW_RECTANGULAR: return 1;
    default: return 0.5 - 0.5 * cos(phase);
    }
}

/* Column k < bins: scale window[i] cos(2 pi i k / n); the others: -sin. The angle is reduced as integers. */
static double dft_entry(const void *about, int64_t i, int64_t k)
{
    const transform *const t = about;
    const int64_t bin = k % t->bins, turn = i * bin % t->n_fft;
    const double angle = 2 * pi * (double)turn / (double)t->n_fft;
    return t->scale * (t->given ? 1 : window_at(t, i)) * (k < t->bins ? cos(angle) : -sin(angle));
}

/* [n_fft, 2 bins]: a frame times it gives the real parts, then the imaginary ones. */
static sw_t dft_matrix(sw_t x, const transform *t, sw_t window)
{
    const sw_t m = literal_of(x.graph, "stft", sw_type(x), t->n_fft, 2 * t->bins, dft_entry, t);
    if (!t->given) return m;
    const int64_t lo[2] = { (t->n_fft - t->win_length) / 2, 0 }, hi[2] = { t->n_fft - t->win_length - lo[0], 0 };
    const sw_t column = sw_pad(sw_reshape(window, 2, (int64_t[]){ t->win_length, 1 }), lo, hi, NULL, 0);
    return sw_mul(m, column);
}

/* Fills in t; false and the error if the options do not fit. */
static bool stft_options(sw_t x, const sw_stft_options *o, transform *t)
{
    char text[SW__TEXT_BYTES];
    sw__value_text(x.graph, x.id, text);
    *t = (transform){ .n_fft = o->n_fft, .win_length = o->win_length ? o->win_length : o->n_fft,
                      .window = o->window_kind };
    t->bins = t->n_fft / 2 + 1;
    t->scale = o->normalized ? 1 / sqrt((double)t->n_fft) : 1;
    t->given = sw_valid(o->window);
    if (!sw__compose_float("stft", x)) return false;
    if (o->n_fft < 1 || o->n_fft > INT32_MAX || t->win_length < 1 || t->win_length > o->n_fft || o->hop < 0 ||
        sw_rank(x) < 1)
        sw__compose_error(x.graph, "stft", SW_ERR_SHAPE,
                          "%s with n_fft %lld, hop %lld, win_length %lld: it takes [.., L], and "
                          "1 <= win_length <= n_fft, hop >= 1", text, (long long)o->n_fft, (long long)o->hop,
                          (long long)t->win_length);
    else if (t->given && (sw_rank(o->window) != 1 || sw_dim(o->window, 0) != t->win_length))
        sw__compose_error(x.graph, "stft", SW_ERR_SHAPE, "the window is %s where [%lld], win_length, is wanted",
                          sw__value_text(x.graph, o->window.id, text), (long long)t->win_length);
    else if (sw_dim(x, -1) + (o->no_center ? 0 : 2 * (t->n_fft / 2)) < t->n_fft ||
             (!o->no_center && sw_dim(x, -1) <= t->n_fft / 2))
        sw__compose_error(x.graph, "stft", SW_ERR_SHAPE, "%s is too short for n_fft %lld%s", text, (long long)o->n_fft,
                          o->no_center ? ": it must have as many samples"
                                       : ": reflecting at the ends takes more than half of it");
    return x.graph->status == SW_OK;
}

/* Frames of the padded signal times the matrix: [.., T, 2 bins]. */
static sw_t stft_rows(sw_t x, const sw_stft_options *o, transform *t)
{
    if (!stft_options(x, o, t)) return (sw_t){ x.graph, 0 };
    const int last = sw_rank(x) - 1;
    if (!o->no_center) {
        int64_t ends[SW_MAX_RANK] = { 0 };
        ends[last] = t->n_fft / 2;
        x = sw_pad_with(x, ends, ends, SW_PAD_REFLECT);
    }
    return sw_matmul(sw_frame(x, t->n_fft, o->hop ? o->hop : SW_MAX(t->n_fft / 4, 1)), dft_matrix(x, t, o->window));
}

void sw_stft(sw_t x, sw_stft_options o, sw_t *re, sw_t *im)
{
    transform t = { 0 };
    sw_t y;
    if (sw__compose_operand("stft", x, &y)) y = stft_rows(x, &o, &t);
    if (re != NULL) *re = sw_valid(y) ? sw_transpose(sw_narrow(y, -1, 0, t.bins), -2, -1) : y;
    if (im != NULL) *im = sw_valid(y) ? sw_transpose(sw_narrow(y, -1, t.bins, t.bins), -2, -1) : y;
}

/* ---- mel --------------------------------------------------------------------------------------------------------- */

typedef struct mel_bank {
    const sw_mel_options *o;
    int64_t bins;
    double low, high; /* in mel */
} mel_bank;

/* O'Shaughnessy's formula, HTK's; or Slaney's: linear up to 1000 Hz, 27 steps a factor of 6.4 above. */
static double to_mel(sw_mel_scale scale, double hz)
{
    if (scale == SW_MEL_HTK) return 2595 * log10(1 + hz / 700);
    return hz < 1000 ? hz * 3 / 200 : 15 + log(hz / 1000) * 27 / log(6.4);
}

static double to_hz(sw_mel_scale scale, double mel)
{
    if (scale == SW_MEL_HTK) return 700 * (pow(10, mel / 2595) - 1);
    return mel < 15 ? mel * 200 / 3 : 1000 * exp(log(6.4) / 27 * (mel - 15));
}

static double mel_edge(const mel_bank *b, int64_t i)
{
    return to_hz(b->o->scale, b->low + (b->high - b->low) * (double)i / (double)(b->o->n_mels + 1));
}

/* Triangle m over its three edges, at the frequency of a bin. */
static double mel_entry(const void *about, int64_t bin, int64_t m)
{
    const mel_bank *const b = about;
    const double hz = b->bins > 1 ? b->o->sample_rate / 2 * (double)bin / (double)(b->bins - 1) : 0;
    const double left = mel_edge(b, m), middle = mel_edge(b, m + 1), right = mel_edge(b, m + 2);
    const double up = (hz - left) / (middle - left), down = (right - hz) / (right - middle);
    return fmax(0, fmin(up, down)) * (b->o->area_norm ? 2 / (right - left) : 1);
}

sw_t sw_mel_filters(sw_graph *g, sw_dtype type, int64_t bins, sw_mel_options o)
{
    if (g == NULL || g->status != SW_OK) return (sw_t){ g, 0 };
    const double top = o.f_max > 0 ? o.f_max : o.sample_rate / 2;
    if (bins < 1 || o.n_mels < 1 || !(o.sample_rate > 0) || !(o.f_min >= 0) || !(o.f_min < top) ||
        !sw__dtype_is_float(type))
        return sw__compose_error(g, "mel_filters", SW_ERR_ARGUMENT,
                                 "%lld filters over %lld bins, %g to %g Hz at %g Hz, of %s: "
                                 "all but f_min must be above 0, f_min below f_max, the type a floating-point one",
                                 (long long)o.n_mels, (long long)bins, o.f_min, top, o.sample_rate,
                                 sw_dtype_name(type));
    const mel_bank bank = { &o, bins, to_mel(o.scale, o.f_min), to_mel(o.scale, top) };
    // cppcheck-suppress returnDanglingLifetime ; sw_t is a value: it keeps no pointer to the bank
    return literal_of(g, "mel_filters", type, bins, o.n_mels, mel_entry, &bank);
}

sw_t sw_log_mel(sw_t x, sw_stft_options stft, sw_mel_options o)
{
    sw_t invalid;
    transform t = { 0 };
    if (!sw__compose_operand("log_mel", x, &invalid)) return invalid;
    const sw_t y = stft_rows(x, &stft, &t);
    if (!sw_valid(y)) return y;
    const sw_t re = sw_narrow(y, -1, 0, t.bins), im = sw_narrow(y, -1, t.bins, t.bins);
    sw_t power = sw_add(sw_square(re), sw_square(im));
    if (o.magnitude) power = sw__safe_sqrt(power);
    const sw_t mel = sw_matmul(power, sw_mel_filters(x.graph, sw_type(x), t.bins, o));
    const sw_t floor = sw_const(x.graph, sw_type(x), o.floor > 0 ? o.floor : 1e-10);
    return sw_transpose(sw_log(sw_max(mel, floor)), -2, -1);
}
