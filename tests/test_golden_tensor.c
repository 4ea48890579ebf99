/* test_golden_tensor.c: ops that are made of others (einsum, top-k, norms, padding, the short-time Fourier transform …)
 * against PyTorch's numbers (tests/golden/make_tensor.py). */
#include "golden_run.h"
#include "swoop/nn.h"

#define DIMS(...) (sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ }
#define L(...) (const int64_t[]){ __VA_ARGS__ }
#define LAST_TWO (SW_AXIS(0) | SW_AXIS(2))

/* values (1 + indices): both are looked at */
static sw_t marked(sw_t values, sw_t indices)
{
    return sw_mul(values, sw_add_scalar(sw_cast(indices, sw_type(values)), 1));
}

static sw_t topk(sw_t x, int64_t k, int axis, bool largest, bool mark)
{
    sw_t values, indices;
    sw_topk(x, k, axis, largest, &values, &indices);
    return mark ? marked(values, indices) : values;
}

static sw_t split(const sw_t *x)
{
    sw_t part[3];
    if (!sw_split(x[0], L(2, 1, 4), 3, -2, part)) return SW_NONE;
    return sw_concat((sw_t[]){ part[2], part[0] }, 2, 1);
}

static sw_t chunk(const sw_t *x)
{
    sw_t part[3];
    if (sw_chunk(x[0], 3, -1, part) != 3) return SW_NONE;
    return sw_mul(part[2], sw_narrow(part[0], 1, 0, 1));
}

static sw_t cumulative(sw_t x, int axis, bool least, bool mark)
{
    sw_t values, indices;
    if (least)
        sw_cummin(x, axis, &values, &indices);
    else
        sw_cummax(x, axis, &values, &indices);
    return mark ? marked(values, indices) : values;
}

/* The gradient is not looked at: x's own, times 0. */
static sw_t without_gradient(sw_t y, sw_t x)
{
    return sw_add(sw_stop_gradient(y), sw_sum(sw_where(sw_lt(sw_abs(x), sw_const(x.graph, sw_type(x), INFINITY)),
                                                       sw_mul_scalar(x, 0),
                                                       sw_const(x.graph, sw_type(x), 0)), SW_AXIS(1), false));
}

static sw_t stft(sw_t x, sw_stft_options o)
{
    sw_t re, im;
    sw_stft(x, o, &re, &im);
    return sw_concat((sw_t[]){ re, im }, 2, -2);
}

static const sw_mel_options htk = { .sample_rate = 16000, .n_mels = 5 };
static const sw_mel_options slaney = { .sample_rate = 8000, .n_mels = 6, .f_min = 100, .f_max = 3500,
                                       .scale = SW_MEL_SLANEY,
                                       .area_norm = true, .magnitude = true };
static const sw_mel_options high_floor = { .sample_rate = 16000, .n_mels = 4, .floor = 1e3 };

#define STFT(...) stft(x[0], (sw_stft_options){ __VA_ARGS__ })
#define LOG_MEL(n, h, mel) sw_log_mel(x[0], (sw_stft_options){ .n_fft = n, .hop = h }, mel)

/* clang-format off */
#define EINSUM_CASES(CASE)                                                                                             \
    CASE(einsum_matmul, 2, sw_einsum("ij,jk->ik", x, 2))                                                               \
    CASE(einsum_implicit, 2, sw_einsum("kj, ji", x, 2))                                                                \
    CASE(einsum_capitals, 2, sw_einsum("bA,Ac", x, 2))                                                                 \
    CASE(einsum_batch, 2, sw_einsum("bij,bkj->bik", x, 2))                                                             \
    CASE(einsum_attention, 2, sw_einsum("bqhd,bkhd->bhqk", x, 2))                                                      \
    CASE(einsum_outer, 2, sw_einsum("i,j->ji", x, 2))                                                                  \
    CASE(einsum_inner, 2, sw_einsum("i,i->", x, 2))                                                                    \
    CASE(einsum_trace, 1, sw_einsum("ii", x, 1))                                                                       \
    CASE(einsum_diagonal, 1, sw_einsum("bii->ib", x, 1))                                                               \
    CASE(einsum_diagonal_twice, 1, sw_einsum("ijij->ij", x, 1))                                                        \
    CASE(einsum_diagonal_three, 1, sw_einsum("iii->i", x, 1))                                                          \
    CASE(einsum_transpose, 1, sw_einsum("abc->cab", x, 1))                                                             \
    CASE(einsum_sum, 1, sw_einsum("abc->b", x, 1))                                                                     \
    CASE(einsum_scalar, 2, sw_einsum(",ij->ij", x, 2))                                                                 \
    CASE(einsum_ellipsis, 2, sw_einsum("...ij,...jk->...ik", x, 2))                                                    \
    CASE(einsum_ellipsis_implicit, 2, sw_einsum("i...j,j...", x, 2))                                                   \
    CASE(einsum_ellipsis_summed, 1, sw_einsum("...i->i", x, 1))                                                        \
    CASE(einsum_empty, 2, sw_einsum("ij,jk->ik", x, 2))                                                                \
    CASE(einsum_no_rows, 2, sw_einsum("bij,bjk->bik", x, 2))                                                           \
    CASE(einsum_ellipsis_one, 2, sw_einsum("...i,...i->...", x, 2))                                                    \
    CASE(einsum_size_one, 2, sw_einsum("ij,ij->i", x, 2))                                                              \
    CASE(einsum_hadamard, 2, sw_einsum("ij,ij->ij", x, 2))                                                             \
    CASE(einsum_three, 3, sw_einsum("ij,jk,kl->il", x, 3))                                                             \
    CASE(einsum_bilinear, 3, sw_einsum("bi,oij,bj->bo", x, 3))                                                         \
    CASE(einsum_four, 4, sw_einsum("ai,bi,ci,di->abcd", x, 4))                                                         \
    CASE(einsum_chain_four, 4, sw_einsum("ab,bc,cd,de->ae", x, 4))                                                     \
    CASE(einsum_one, 2, sw_einsum("i,ij->j", x, 2))

#define ARRANGE_CASES(CASE)                                                                                            \
    CASE(topk, 1, topk(x[0], 3, 1, true, true))                                                                        \
    CASE(topk_smallest, 1, topk(x[0], 2, -1, false, true))                                                             \
    CASE(topk_all, 1, topk(x[0], 4, -2, true, false))                                                                  \
    CASE(topk_nan, 1, topk(x[0], 2, 1, true, false))                                                                   \
    CASE(masked_fill, 2, sw_masked_fill(x[0], x[1], -3))                                                               \
    CASE(index_select, 2, sw_index_select(x[0], x[1], 1))                                                              \
    CASE(index_select_0, 2, sw_index_select(x[0], x[1], 0))                                                            \
    CASE(index_select_last, 2, sw_index_select(x[0], x[1], -1))                                                        \
    CASE(index_select_none, 2, sw_index_select(x[0], x[1], 1))                                                         \
    CASE(gather_nd, 2, sw_gather_nd(x[0], x[1]))                                                                       \
    CASE(gather_nd_all, 2, sw_gather_nd(x[0], x[1]))                                                                   \
    CASE(gather_nd_rows, 2, sw_gather_nd(x[0], x[1]))                                                                  \
    CASE(scatter_nd_add, 3, sw_scatter_nd_add(x[0], x[1], x[2]))                                                       \
    CASE(stack, 2, sw_stack((sw_t[]){ x[0], x[1], x[0] }, 3, -1))                                                      \
    CASE(stack_front, 2, sw_stack(x, 2, 0))                                                                            \
    CASE(split, 1, split(x))                                                                                           \
    CASE(chunk, 1, chunk(x))                                                                                           \
    CASE(tile, 1, sw_tile(x[0], DIMS(2, 1, 3)))                                                                        \
    CASE(tile_none, 1, sw_tile(x[0], DIMS(2, 0)))                                                                      \
    CASE(repeat_interleave, 1, sw_repeat_interleave(x[0], 3, -2))                                                      \
    CASE(roll, 1, sw_roll(x[0], 2, 1))                                                                                 \
    CASE(roll_back, 1, sw_roll(x[0], -13, -2))                                                                         \
    CASE(roll_empty, 1, sw_roll(x[0], 2, 0))                                                                           \
    CASE(flip_one, 1, sw_flip(x[0], SW_ALL_AXES))                                                                      \
    CASE(flip, 1, sw_flip(x[0], LAST_TWO))                                                                             \
    CASE(tril, 1, sw_tril(x[0], 0))                                                                                    \
    CASE(tril_up, 1, sw_tril(x[0], 2))                                                                                 \
    CASE(tril_far, 1, sw_tril(x[0], -9))                                                                               \
    CASE(triu, 1, sw_triu(x[0], 1))                                                                                    \
    CASE(triu_down, 1, sw_triu(x[0], -1))                                                                              \
    CASE(triu_nan, 1, sw_triu(x[0], 0))                                                                                \
    CASE(pad_reflect, 1, sw_pad_with(x[0], L(0, 0, 1, 3), L(0, 0, 2, 2), SW_PAD_REFLECT))                              \
    CASE(pad_reflect_1d, 1, sw_pad_with(x[0], L(0, 0, 0), L(0, 0, 4), SW_PAD_REFLECT))                                 \
    CASE(pad_replicate, 1, sw_pad_with(x[0], L(0, 0, 1, 3), L(0, 0, 7, 0), SW_PAD_REPLICATE))                          \
    CASE(pad_circular, 1, sw_pad_with(x[0], L(0, 0, 0, 4), L(0, 0, 3, 1), SW_PAD_CIRCULAR))

#define VALUE_CASES(CASE)                                                                                              \
    CASE(norm_2, 1, sw_norm(x[0], 2, SW_AXIS(1), false))                                                               \
    CASE(norm_2_zero, 1, sw_norm(x[0], 2, SW_AXIS(1), false))                                                          \
    CASE(norm_1, 1, sw_norm(x[0], 1, SW_AXIS(1), true))                                                                \
    CASE(norm_3, 1, sw_norm(x[0], 3, LAST_TWO, false))                                                                 \
    CASE(norm_1_5, 1, sw_norm(x[0], 1.5, SW_AXIS(1), false))                                                           \
    CASE(norm_half, 1, sw_norm(x[0], 0.5, SW_AXIS(1), false))                                                          \
    CASE(norm_minus_2, 1, sw_norm(x[0], -2, SW_AXIS(1), false))                                                        \
    CASE(norm_inf, 1, sw_norm(x[0], INFINITY, SW_AXIS(1), false))                                                      \
    CASE(norm_minus_inf, 1, sw_norm(x[0], -INFINITY, SW_AXIS(1), false))                                               \
    CASE(norm_0, 1, sw_norm(x[0], 0, SW_AXIS(1), false))                                                               \
    CASE(norm_empty, 1, sw_norm(x[0], 2, SW_AXIS(1), false))                                                           \
    CASE(logsumexp, 1, sw_logsumexp(x[0], SW_AXIS(1), false))                                                          \
    CASE(logsumexp_axes, 1, sw_logsumexp(x[0], LAST_TWO, true))                                                        \
    CASE(logsumexp_empty, 1, sw_logsumexp(x[0], SW_AXIS(1), false))                                                    \
    CASE(logsumexp_far, 1, sw_logsumexp(x[0], SW_AXIS(1), false))                                                      \
    CASE(logsumexp_all_inf, 1, sw_mul_scalar(sw_logsumexp(x[0], SW_AXIS(1), false), 2))                                \
    CASE(logsumexp_inf, 1, without_gradient(sw_logsumexp(x[0], SW_AXIS(1), false), x[0]))                              \
    CASE(var, 1, sw_var(x[0], SW_AXIS(1), 1, false))                                                                   \
    CASE(var_biased, 1, sw_var(x[0], SW_ALL_AXES, 0, true))                                                            \
    CASE(var_one, 1, sw_var(x[0], SW_AXIS(1), 1, false))                                                               \
    CASE(std, 1, sw_std(x[0], SW_AXIS(1), 1, false))                                                                   \
    CASE(std_zero, 1, sw_std(x[0], SW_AXIS(1), 1, false))                                                              \
    CASE(cumprod, 1, sw_cumprod(x[0], -2))                                                                             \
    CASE(cumprod_zero, 1, sw_cumprod(x[0], 0))                                                                         \
    CASE(cumprod_one, 1, sw_cumprod(x[0], 1))                                                                          \
    CASE(cummax, 1, cumulative(x[0], 1, false, true))                                                                  \
    CASE(cummin, 1, cumulative(x[0], -1, true, true))                                                                  \
    CASE(cummax_nan, 1, cumulative(x[0], 0, false, false))                                                             \
    CASE(frame, 1, sw_frame(x[0], 5, 2))                                                                               \
    CASE(frame_gaps, 1, sw_frame(x[0], 2, 5))                                                                          \
    CASE(frame_whole, 1, sw_frame(x[0], 6, 1))                                                                         \
    CASE(stft, 1, STFT(.n_fft = 8, .hop = 3))                                                                          \
    CASE(stft_odd, 1, STFT(.n_fft = 7, .hop = 2, .win_length = 5, .window_kind = SW_WINDOW_HAMMING))                   \
    CASE(stft_no_center, 1, STFT(.n_fft = 8, .hop = 8, .window_kind = SW_WINDOW_BLACKMAN, .no_center = true))          \
    CASE(stft_window, 2, STFT(.n_fft = 6, .hop = 2, .win_length = 4, .window = x[1], .normalized = true))              \
    CASE(stft_rectangular, 1, STFT(.n_fft = 4, .window_kind = SW_WINDOW_RECTANGULAR))                                  \
    CASE(log_mel_htk, 1, LOG_MEL(16, 5, htk))                                                                          \
    CASE(log_mel_slaney, 1, LOG_MEL(32, 0, slaney))                                                                    \
    CASE(log_mel_floor, 1, LOG_MEL(16, 8, high_floor))
/* clang-format on */

EINSUM_CASES(GOLDEN_FUNCTION)
ARRANGE_CASES(GOLDEN_FUNCTION)
VALUE_CASES(GOLDEN_FUNCTION)
static const golden_case golden_cases[] = {
    EINSUM_CASES(GOLDEN_ENTRY) ARRANGE_CASES(GOLDEN_ENTRY) VALUE_CASES(GOLDEN_ENTRY)
};

GOLDEN_MAIN("ops_tensor", golden_cases)
