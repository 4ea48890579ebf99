/* ops_resample.c: builders of interpolation, adaptive pooling and pixel shuffling. The first two write tables, axis by
 * axis, of which elements each element of the result is made; resample.c has the op. Between swoop/graph.h and
 * sw__node_add. */
#include "graph/build.h"
#include "graph/resample.h"

#include <math.h>

/* The number of spatial axes of x [N, C, spatial…], none of them empty; 0 and the error recorded otherwise. */
static int spatial(const char *what, sw_t x)
{
    sw_t invalid;
    char text[SW__TEXT_BYTES];
    if (!sw__operands(SW_OP_RESAMPLE, &x, 1, &invalid)) return 0;
    const int nd = sw_rank(x) - 2;
    bool full = true;
    for (int i = 0; i < nd; i++) full = full && sw_dim(x, i + 2) > 0;
    if (nd >= 1 && nd <= 3 && full && sw__dtype_is_float(sw_type(x))) return nd;
    sw__op_error(x.graph, SW_OP_RESAMPLE, SW_ERR_SHAPE,
                 "%s takes x [N, C, spatial…] of floats with 1 to 3 spatial axes that are "
                 "not empty, not %s",
                 what, sw__value_text(x.graph, x.id, text));
    return 0;
}

/* ---- adaptive pooling ----------------------------------------------------------------------------------------------
 */

static int64_t window_start(int64_t i, int64_t n, int64_t m)
{
    return i * n / m;
}

static int64_t window_end(int64_t i, int64_t n, int64_t m)
{
    return ((i + 1) * n + m - 1) / m;
}

static int64_t longest_window(int64_t n, int64_t m)
{
    int64_t longest = 1;
    for (int64_t i = 0; i < m; i++) longest = SW_MAX(longest, window_end(i, n, m) - window_start(i, n, m));
    return longest;
}

/* Sizes with -1 replaced by what x has. */
static int adaptive_sizes(const char *what, sw_t x, const int64_t *size, int64_t out[3])
{
    const int nd = spatial(what, x);
    char text[SW__TEXT_BYTES];
    for (int i = 0; i < nd; i++) {
        out[i] = size != NULL && size[i] == -1 ? sw_dim(x, i + 2) : size != NULL ? size[i] : 0;
        if (out[i] >= 1 && out[i] <= INT32_MAX) continue;
        sw__op_error(x.graph, SW_OP_RESAMPLE, SW_ERR_ARGUMENT,
                     "%s of %s: the result's size along spatial axis %d is %lld: "
                     "give 1 or more for each axis, or -1 for what it is now",
                     what, sw__value_text(x.graph, x.id, text), i, (long long)out[i]);
        return 0;
    }
    return nd;
}

/* The average of each window along one axis. */
static sw_t average_axis(sw_t x, int axis, int64_t m)
{
    const int64_t n = sw_dim(x, axis), width = n > 0 ? longest_window(n, m) : 1;
    sw__taps t;
    if (!sw_valid(x) || !sw__taps_new(x.graph, n, m, width, &t)) return SW_NONE;
    for (int64_t i = 0; i < m; i++) {
        const int64_t start = window_start(i, n, m), length = window_end(i, n, m) - start;
        for (int64_t k = 0; k < length; k++) {
            t.index[i * width + k] = (int32_t)(start + k);
            t.weight[i * width + k] = 1.0 / (double)length;
        }
    }
    x = sw__resample(x, axis, &t);
    sw__taps_free(&t);
    return x;
}

/* The windows one after the other, all as long as the longest: a shorter one has its last element again, which a
 * maximum does not see. */
static sw_t windows_in_a_row(sw_t x, int axis, int64_t m, int64_t width)
{
    const int64_t n = sw_dim(x, axis);
    sw__taps t;
    if (!sw_valid(x) || !sw__taps_new(x.graph, n, m * width, 1, &t)) return SW_NONE;
    for (int64_t e = 0; e < m * width; e++) {
        const int64_t i = e / width, last = window_end(i, n, m) - 1;
        t.index[e] = (int32_t)SW_MIN(window_start(i, n, m) + e % width, last);
        t.weight[e] = 1.0;
    }
    x = sw__resample(x, axis, &t);
    sw__taps_free(&t);
    return x;
}

/* Axes that the sizes divide are an ordinary pooling's; the others are brought to that first. */
static sw_t adaptive(const char *what, sw_t x, const int64_t *size, bool maximum)
{
    int64_t to[3];
    const int nd = adaptive_sizes(what, x, size, to);
    if (nd == 0) return (sw_t){ x.graph, 0 };
    sw_pool_options pool = { .count_include_pad = false };
    bool pooled = false;
    for (int i = 0; i < nd && sw_valid(x); i++) {
        const int64_t n = sw_dim(x, i + 2), even = n % to[i] == 0 ? n / to[i] : 0;
        pool.kernel[i] = even ? even : maximum ? longest_window(n, to[i]) : 1;
        pooled = pooled || pool.kernel[i] > 1;
        if (even) continue;
        x = maximum ? windows_in_a_row(x, i + 2, to[i], pool.kernel[i]) : average_axis(x, i + 2, to[i]);
    }
    if (!pooled || !sw_valid(x)) return x;
    return maximum ? sw_max_pool_op(x, &pool) : sw_avg_pool_op(x, &pool);
}

sw_t sw_adaptive_avg_pool(sw_t x, const int64_t *size)
{
    return adaptive("adaptive average pooling", x, size, false);
}

sw_t sw_adaptive_max_pool(sw_t x, const int64_t *size)
{
    return adaptive("adaptive maximum pooling", x, size, true);
}

static uint32_t spatial_axes(int nd)
{
    return ((1u << nd) - 1u) << 2;
}

sw_t sw_global_avg_pool(sw_t x)
{
    const int nd = spatial("global average pooling", x);
    return nd > 0 ? sw_mean(x, spatial_axes(nd), false) : (sw_t){ x.graph, 0 };
}

sw_t sw_global_max_pool(sw_t x)
{
    const int nd = spatial("global maximum pooling", x);
    return nd > 0 ? sw_reduce_max(x, spatial_axes(nd), false) : (sw_t){ x.graph, 0 };
}

/* ---- interpolation: src = where element i of the result lies among x's ----------------------------------------------
 */

/* One axis: n elements to m; step: how far apart in x two neighbours of the result are. */
typedef struct axis_scale {
    int64_t n, m;
    double step;
    bool align_corners;
} axis_scale;

static double source(const axis_scale *a, int64_t i)
{
    if (a->align_corners) return a->step * (double)i;
    return a->step * ((double)i + 0.5) - 0.5;
}

/* In single precision, as PyTorch's: so that the same elements are taken. */
static void nearest_taps(const axis_scale *a, bool exact, sw__taps *t)
{
    const float step = (float)a->step;
    for (int64_t i = 0; i < a->m; i++) {
        const float at = exact ? ((float)i + 0.5f) * step : (float)i * step;
        const int64_t k = a->n == a->m ? i : !exact && a->m == 2 * a->n ? i / 2 : (int64_t)floorf(at);
        t->index[i] = (int32_t)SW_MIN(k, a->n - 1);
        t->weight[i] = 1.0;
    }
}

static void linear_taps(const axis_scale *a, sw__taps *t)
{
    for (int64_t i = 0; i < a->m; i++) {
        const double at = a->n == a->m ? (double)i : SW_MAX(source(a, i), 0.0);
        const int64_t low = SW_MIN((int64_t)at, a->n - 1), high = SW_MIN(low + 1, a->n - 1);
        const double share = SW_MIN(SW_MAX(at - (double)low, 0.0), 1.0);
        t->index[2 * i] = (int32_t)low;
        t->index[2 * i + 1] = (int32_t)high;
        t->weight[2 * i] = high == low ? 1.0 : 1.0 - share;
        t->weight[2 * i + 1] = high == low ? 0.0 : share;
    }
}

/* Keys' kernel at distance d: two cubics that meet at 1. */
static double cubic(double d)
{
    const double a = -0.75;
    d = fabs(d);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

static void cubic_taps(const axis_scale *a, sw__taps *t)
{
    for (int64_t i = 0; i < a->m; i++) {
        const double at = source(a, i);
        const int64_t low = SW_MIN((int64_t)floor(at), a->n - 1);
        const double share = SW_MIN(SW_MAX(at - (double)low, 0.0), 1.0);
        for (int64_t k = 0; k < 4; k++) {
            t->index[4 * i + k] = (int32_t)SW_MIN(SW_MAX(low - 1 + k, 0), a->n - 1);
            t->weight[4 * i + k] = cubic(share + 1.0 - (double)k);
        }
    }
}

static sw_t interpolate_axis(sw_t x, int axis, sw_interpolation mode, const axis_scale *a)
{
    static const int64_t width[] = { [SW_INTERPOLATE_NEAREST] = 1,
                                     [SW_INTERPOLATE_NEAREST_EXACT] = 1,
                                     [SW_INTERPOLATE_LINEAR] = 2,
                                     [SW_INTERPOLATE_CUBIC] = 4 };
    sw__taps t;
    if (mode == SW_INTERPOLATE_LINEAR && a->n == a->m) return x;
    if (!sw__taps_new(x.graph, a->n, a->m, width[mode], &t)) return SW_NONE;
    if (mode == SW_INTERPOLATE_LINEAR)
        linear_taps(a, &t);
    else if (mode == SW_INTERPOLATE_CUBIC)
        cubic_taps(a, &t);
    else
        nearest_taps(a, mode == SW_INTERPOLATE_NEAREST_EXACT, &t);
    x = sw__resample(x, axis, &t);
    sw__taps_free(&t);
    return x;
}

/* What the options say of one axis; false and the error recorded if that is nothing. PyTorch takes the step from a
 * scale that was given, and from the sizes otherwise. */
static bool scale_of(sw_t x, const sw_interpolate_options *o, int i, axis_scale *a)
{
    const int64_t n = sw_dim(x, i + 2), size = o->sizes[i] ? o->sizes[i] : o->size;
    const double scale = o->scales[i] != 0 ? o->scales[i] : o->scale;
    char text[SW__TEXT_BYTES];
    *a = (axis_scale){ .n = n, .m = size, .align_corners = o->align_corners };
    const bool one = (size != 0) != (scale != 0), good = size >= 0 && scale >= 0 && scale * (double)n < INT32_MAX;
    if (one && good && size == 0) a->m = (int64_t)floor((double)n * scale);
    if (!one || !good || a->m < 1 || a->m > INT32_MAX) {
        sw__op_error(x.graph, SW_OP_RESAMPLE, SW_ERR_ARGUMENT,
                     "interpolate %s: size %lld, scale %g for spatial axis %d: give "
                     "either, and one that leaves an element or more",
                     sw__value_text(x.graph, x.id, text), (long long)size, scale, i);
        return false;
    }
    if (o->align_corners)
        a->step = a->m > 1 ? (double)(n - 1) / (double)(a->m - 1) : 0.0;
    else
        a->step = size == 0 ? 1.0 / scale : (double)n / (double)a->m;
    return true;
}

static bool mode_fits(sw_t x, const sw_interpolate_options *o, int nd)
{
    char text[SW__TEXT_BYTES];
    sw__value_text(x.graph, x.id, text);
    if ((unsigned)o->mode > SW_INTERPOLATE_AREA) {
        sw__op_error(x.graph, SW_OP_RESAMPLE, SW_ERR_ARGUMENT, "interpolate %s: there is no mode %d", text,
                     (int)o->mode);
        return false;
    }
    if (o->mode == SW_INTERPOLATE_CUBIC && nd != 2) {
        sw__op_error(x.graph, SW_OP_RESAMPLE, SW_ERR_SHAPE, "interpolate %s: cubic is for [N, C, H, W]", text);
        return false;
    }
    if (o->align_corners && o->mode != SW_INTERPOLATE_LINEAR && o->mode != SW_INTERPOLATE_CUBIC) {
        sw__op_error(x.graph, SW_OP_RESAMPLE, SW_ERR_ARGUMENT, "interpolate %s: align_corners is for linear and cubic",
                     text);
        return false;
    }
    return true;
}

sw_t sw_interpolate_with(sw_t x, sw_interpolate_options o)
{
    const int nd = spatial("interpolate", x);
    if (nd == 0 || !mode_fits(x, &o, nd)) return (sw_t){ x.graph, 0 };
    axis_scale a[3];
    int64_t size[3] = { 0 };
    for (int i = 0; i < nd; i++) {
        if (!scale_of(x, &o, i, &a[i])) return (sw_t){ x.graph, 0 };
        size[i] = a[i].m;
    }
    if (o.mode == SW_INTERPOLATE_AREA) return sw_adaptive_avg_pool(x, size);
    for (int i = 0; i < nd && sw_valid(x); i++) x = interpolate_axis(x, i + 2, o.mode, &a[i]);
    return x;
}

/* ---- pixel shuffling -----------------------------------------------------------------------------------------------
 */

/* The sizes [batch, C, H, W] of x [.., C, H, W]. */
static bool image_sizes(const char *what, sw_t x, int64_t r, int64_t dim[4])
{
    sw_t invalid;
    char text[SW__TEXT_BYTES];
    if (!sw__operands(SW_OP_RESHAPE, &x, 1, &invalid)) return false;
    const int lead = sw_rank(x) - 3;
    if (lead < 0 || r < 1 || r > INT16_MAX) {
        sw__op_error(x.graph, SW_OP_RESHAPE, SW_ERR_SHAPE,
                     "%s by %lld of %s: it takes [.., C, H, W] and a factor of 1 or more", what, (long long)r,
                     sw__value_text(x.graph, x.id, text));
        return false;
    }
    dim[0] = sw__dims_product(sw__node_of(x)->dim, lead);
    for (int i = 0; i < 3; i++) dim[i + 1] = sw_dim(x, lead + i);
    return true;
}

/* x's leading axes, then these three. */
static sw_t with_image(sw_t x, int rank, const int64_t *lead, int64_t c, int64_t h, int64_t w)
{
    int64_t shape[SW_MAX_RANK];
    for (int i = 0; i < rank - 3; i++) shape[i] = lead[i];
    shape[rank - 3] = c;
    shape[rank - 2] = h;
    shape[rank - 1] = w;
    return sw_reshape(x, rank, shape);
}

sw_t sw_pixel_shuffle(sw_t x, int64_t r)
{
    int64_t d[4];
    if (!image_sizes("pixel_shuffle", x, r, d)) return (sw_t){ x.graph, 0 };
    char text[SW__TEXT_BYTES];
    const int64_t square = r * r;
    if (d[1] % square != 0)
        return sw__op_error(x.graph, SW_OP_RESHAPE, SW_ERR_SHAPE,
                            "pixel_shuffle by %lld: the channels of %s are not a multiple "
                            "of %lld",
                            (long long)r, sw__value_text(x.graph, x.id, text), (long long)square);
    const sw__node from = *sw__node_of(x);
    const int64_t c = d[1] / square, split[6] = { d[0], c, r, r, d[2], d[3] };
    const sw_t y = sw_permute(sw_reshape(x, 6, split), (int[]){ 0, 1, 4, 2, 5, 3 });
    return with_image(y, from.rank, from.dim, c, d[2] * r, d[3] * r);
}

sw_t sw_pixel_unshuffle(sw_t x, int64_t r)
{
    int64_t d[4];
    if (!image_sizes("pixel_unshuffle", x, r, d)) return (sw_t){ x.graph, 0 };
    char text[SW__TEXT_BYTES];
    if (d[2] % r != 0 || d[3] % r != 0)
        return sw__op_error(x.graph, SW_OP_RESHAPE, SW_ERR_SHAPE,
                            "pixel_unshuffle by %lld: height and width of %s are not "
                            "multiples of it",
                            (long long)r, sw__value_text(x.graph, x.id, text));
    const sw__node from = *sw__node_of(x);
    const int64_t split[6] = { d[0], d[1], d[2] / r, r, d[3] / r, r };
    const sw_t y = sw_permute(sw_reshape(x, 6, split), (int[]){ 0, 1, 3, 5, 2, 4 });
    return with_image(y, from.rank, from.dim, d[1] * r * r, d[2] / r, d[3] / r);
}
