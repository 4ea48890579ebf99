/* losses.c: what a training can minimise, as graphs of primitives; definitions are torch.nn.functional's, each with its
 * paper where there is one. Cross-entropy and mean squared error by themselves are graph.h's. */
#include "graph/build.h"
#include "swoop/nn.h"
#include <math.h>

static sw_t like(sw_t x, double c)
{
    return sw_const(x.graph, sw_type(x), c);
}

static sw_t reduced(sw_t each, sw_reduction r)
{
    return r == SW_REDUCE_NONE ? each
           : r == SW_REDUCE_SUM ? sw_sum(each, SW_ALL_AXES, false) : sw_mean(each, SW_ALL_AXES, false);
}

static bool same_shape(sw_t a, sw_t b)
{
    if (sw_rank(a) != sw_rank(b)) return false;
    for (int i = 0; i < sw_rank(a); i++)
        if (sw_dim(a, i) != sw_dim(b, i)) return false;
    return true;
}

/* A target that would be broadcast is a mistake that trains wrongly in silence. */
static bool pair(const char *loss, sw_t a, sw_t b)
{
    if (!a.graph || !b.graph || !sw_valid(a) || !sw_valid(b)) return false;
    const bool shapes = same_shape(a, b);
    if (shapes && sw_type(a) == sw_type(b)) return true;
    char text_a[SW__TEXT_BYTES], text_b[SW__TEXT_BYTES];
    sw__graph_error(a.graph, SW_ERR_SHAPE, "%s: prediction %s and target %s have different %s: they must be equal", loss,
                    sw__value_text(a.graph, a.id, text_a), sw__value_text(b.graph, b.id, text_b),
                    shapes ? "types (sw_cast one)" : "shapes");
    return false;
}

/* ---- of values -------------------------------------------------------------------------------------------------------------- */

sw_t sw_l1_loss(sw_t prediction, sw_t target, sw_reduction r)
{
    if (!pair("l1_loss", prediction, target)) return SW_NONE;
    return reduced(sw_abs(sw_sub(prediction, target)), r);
}

sw_t sw_mse_loss(sw_t prediction, sw_t target, sw_reduction r)
{
    if (!pair("mse_loss", prediction, target)) return SW_NONE;
    return reduced(sw_square(sw_sub(prediction, target)), r);
}

sw_t sw_huber_loss(sw_t prediction, sw_t target, double delta, sw_reduction r)
{
    if (!pair("huber_loss", prediction, target)) return SW_NONE;
    const sw_t d = sw_sub(prediction, target), size = sw_abs(d);
    const sw_t near = sw_mul_scalar(sw_square(d), 0.5), far = sw_mul_scalar(sw_add_scalar(size, -0.5 * delta), delta);
    return reduced(sw_where(sw_lt(size, like(d, delta)), near, far), r);
}

sw_t sw_smooth_l1_loss(sw_t prediction, sw_t target, double beta, sw_reduction r)
{
    if (beta <= 0) return sw_l1_loss(prediction, target, r);
    const sw_t huber = sw_huber_loss(prediction, target, beta, r);
    return sw_valid(huber) ? sw_mul_scalar(huber, 1 / beta) : huber;
}

sw_t sw_gaussian_nll_loss(sw_t mean, sw_t target, sw_t variance, bool full, sw_reduction r)
{
    if (!pair("gaussian_nll_loss", mean, target) || !pair("gaussian_nll_loss", mean, variance)) return SW_NONE;
    const sw_t least = like(variance, 1e-6); /* as PyTorch: a smaller one counts as this, with the gradient of its own */
    const sw_t v = sw_add(variance, sw_stop_gradient(sw_sub(sw_max(variance, least), variance)));
    const sw_t each = sw_mul_scalar(sw_add(sw_log(v), sw_div(sw_square(sw_sub(mean, target)), v)), 0.5);
    return reduced(full ? sw_add_scalar(each, 0.5 * log(2 * acos(-1))) : each, r);
}

sw_t sw_poisson_nll_loss(sw_t log_rate, sw_t target, sw_reduction r)
{
    if (!pair("poisson_nll_loss", log_rate, target)) return SW_NONE;
    return reduced(sw_sub(sw_exp(log_rate), sw_mul(target, log_rate)), r);
}

/* ---- of two classes --------------------------------------------------------------------------------------------------------- */

/* (1 - t) x + (1 + (w - 1) t) softplus(-x), softplus(-x) = -log sigmoid(x) */
static sw_t bce_each(sw_t logits, sw_t target, sw_t pos_weight)
{
    const sw_t rest = sw_mul(sw_sub(like(target, 1), target), logits), log_p = sw_log_sigmoid(logits);
    if (!sw_valid(pos_weight)) return sw_sub(rest, log_p);
    const sw_t factor = sw_add_scalar(sw_mul(sw_add_scalar(pos_weight, -1), target), 1);
    return sw_sub(rest, sw_mul(factor, log_p));
}

sw_t sw_bce_with_logits_loss(sw_t logits, sw_t target, sw_t pos_weight, sw_reduction r)
{
    if (!pair("bce_with_logits_loss", logits, target)) return SW_NONE;
    return reduced(bce_each(logits, target, pos_weight), r);
}

/* alpha_t (1 - p_t)^gamma (-log p_t), p_t the probability of what is true (Lin et al. 2017). */
sw_t sw_focal_loss(sw_t logits, sw_t target, double alpha, double gamma, sw_reduction r)
{
    if (!pair("focal_loss", logits, target)) return SW_NONE;
    const sw_t p = sw_sigmoid(logits), not = sw_sub(like(target, 1), target);
    const sw_t wrong = sw_add(sw_mul(target, sw_sub(like(p, 1), p)), sw_mul(not, p)); /* 1 - p_t */
    const sw_t each = sw_mul(sw_pow(wrong, like(wrong, gamma)), bce_each(logits, target, SW_NONE));
    if (alpha < 0) return reduced(each, r);
    return reduced(sw_mul(each, sw_add(sw_mul_scalar(target, alpha), sw_mul_scalar(not, 1 - alpha))), r);
}

/* 1 - (2 sum p t + 1) / (sum p + sum t + 1) for each sample, p = sigmoid(logits) (Milletari et al. 2016, smoothed by 1). */
sw_t sw_dice_loss(sw_t logits, sw_t target, sw_reduction r)
{
    if (!pair("dice_loss", logits, target)) return SW_NONE;
    const uint32_t rest = SW_ALL_AXES & ~SW_AXIS(0) & ((1u << sw_rank(logits)) - 1);
    const sw_t p = sw_sigmoid(logits), both = sw_sum(sw_mul(p, target), rest, false);
    const sw_t sizes = sw_add(sw_sum(p, rest, false), sw_sum(target, rest, false));
    const sw_t dice = sw_div(sw_add_scalar(sw_mul_scalar(both, 2), 1), sw_add_scalar(sizes, 1));
    return reduced(sw_sub(like(dice, 1), dice), r);
}

/* target +1 or -1 */
sw_t sw_hinge_loss(sw_t prediction, sw_t target, sw_reduction r)
{
    if (!pair("hinge_loss", prediction, target)) return SW_NONE;
    return reduced(sw_relu(sw_sub(like(prediction, 1), sw_mul(prediction, target))), r);
}

/* ---- of many classes -------------------------------------------------------------------------------------------------------- */

/* target log(target) - target input, where 0 log 0 is 0 */
sw_t sw_kl_div_loss(sw_t log_p, sw_t target, sw_reduction r)
{
    if (!pair("kl_div_loss", log_p, target)) return SW_NONE;
    const sw_t zero = like(target, 0), some = sw_gt(target, zero);
    const sw_t entropy = sw_where(some, sw_mul(target, sw_log(sw_where(some, target, like(target, 1)))), zero);
    return reduced(sw_sub(entropy, sw_mul(target, log_p)), r);
}

/* Weights of the rows by the class of each, 0 for those that are ignored; and the index where one can look. */
static sw_t row_weights(sw_t logits, sw_t target, const sw_cross_entropy_options *o, sw_t *index)
{
    const sw_dtype type = sw_type(target);
    const sw_t ignored = sw_eq(target, sw_const(target.graph, type, (double)o->ignore_index));
    *index = o->ignore ? sw_where(ignored, sw_const(target.graph, type, 0), target) : target;
    const sw_t one = like(logits, 1);
    sw_t w = SW_NONE;
    if (sw_valid(o->weight)) {
        const int64_t column[2] = {sw_dim(o->weight, 0), 1};
        int64_t shape[SW_MAX_RANK];
        for (int i = 0; i < sw_rank(target); i++) shape[i] = sw_dim(target, i);
        w = sw_reshape(sw_embedding_op(sw_reshape(o->weight, 2, column), *index), sw_rank(target), shape);
    }
    if (!o->ignore) return w;
    return sw_where(ignored, like(logits, 0), sw_valid(w) ? w : one);
}

/* (1 - s) the loss of the class + s / C the sum of the losses of all, each with the weight of its class; the mean is over
 * the rows' weights (Szegedy et al. 2016; torch.nn.functional.cross_entropy). */
sw_t sw_cross_entropy_with(sw_t logits, sw_t target, sw_cross_entropy_options o)
{
    if (!sw_valid(logits) || !sw_valid(target)) return SW_NONE;
    if (!o.ignore && !sw_valid(o.weight) && o.label_smoothing == 0)
        return o.reduction == SW_REDUCE_MEAN ? sw_cross_entropy(logits, target)
                                             : reduced(sw_cross_entropy_rows(logits, target), o.reduction);
    if (sw_rank(target) != sw_rank(logits) - 1)
        return sw__graph_error(logits.graph, SW_ERR_ARGUMENT, "cross_entropy: class weights, ignore_index and label_smoothing "
                               "want class indices as the target");
    const int last = sw_rank(logits) - 1;
    sw_t index = SW_NONE;
    const sw_t w = row_weights(logits, target, &o, &index);
    sw_t rows = sw_cross_entropy_rows(logits, index);
    if (sw_valid(w)) rows = sw_mul(rows, w);
    if (o.label_smoothing > 0) {
        const double s = o.label_smoothing;
        sw_t all = sw_neg(sw_log_softmax(logits, last));
        if (sw_valid(o.weight)) all = sw_mul(all, o.weight);
        sw_t smooth = sw_sum(all, SW_AXIS(last), false);
        if (o.ignore)
            smooth = sw_where(sw_eq(target, sw_const(target.graph, sw_type(target), (double)o.ignore_index)), like(logits, 0), smooth);
        rows = sw_add(sw_mul_scalar(rows, 1 - s), sw_mul_scalar(smooth, s / (double)sw_dim(logits, last)));
    }
    if (o.reduction != SW_REDUCE_MEAN || !sw_valid(w)) return reduced(rows, o.reduction);
    return sw_div(sw_sum(rows, SW_ALL_AXES, false), sw_sum(w, SW_ALL_AXES, false));
}

/* ---- of embeddings ---------------------------------------------------------------------------------------------------------- */

static sw_t rows_dot(sw_t a, sw_t b)
{
    return sw_sum(sw_mul(a, b), SW_AXIS(sw_rank(a) - 1), false);
}

sw_t sw_cosine_similarity(sw_t a, sw_t b)
{
    if (!pair("cosine_similarity", a, b)) return SW_NONE;
    const sw_t norm_a = sw_sqrt(rows_dot(a, a)), norm_b = sw_sqrt(rows_dot(b, b)), least = like(a, 1e-8);
    return sw_div(rows_dot(a, b), sw_mul(sw_max(norm_a, least), sw_max(norm_b, least)));
}

/* target +1: 1 - cos; -1: max(0, cos - margin) */
sw_t sw_cosine_embedding_loss(sw_t a, sw_t b, sw_t target, double margin, sw_reduction r)
{
    const sw_t cosine = sw_cosine_similarity(a, b);
    if (!pair("cosine_embedding_loss", cosine, target)) return SW_NONE;
    const sw_t alike = sw_sub(like(cosine, 1), cosine), unlike = sw_relu(sw_add_scalar(cosine, -margin));
    return reduced(sw_where(sw_gt(target, like(target, 0)), alike, unlike), r);
}

/* Euclidean; 1e-6 is added to each difference, as PyTorch does, so that there is a gradient at 0. */
static sw_t distance(sw_t a, sw_t b)
{
    const sw_t d = sw_add_scalar(sw_sub(a, b), 1e-6);
    return sw_sqrt(rows_dot(d, d));
}

/* Schroff et al. 2015 */
sw_t sw_triplet_loss(sw_t anchor, sw_t positive, sw_t negative, double margin, sw_reduction r)
{
    if (!pair("triplet_loss", anchor, positive) || !pair("triplet_loss", anchor, negative)) return SW_NONE;
    return reduced(sw_relu(sw_add_scalar(sw_sub(distance(anchor, positive), distance(anchor, negative)), margin)), r);
}

/* target 1: the squared distance; 0: max(0, margin - distance)² (Hadsell et al. 2006), without their 1/2 */
sw_t sw_contrastive_loss(sw_t a, sw_t b, sw_t target, double margin, sw_reduction r)
{
    if (!pair("contrastive_loss", a, b)) return SW_NONE;
    const sw_t d = distance(a, b);
    if (!pair("contrastive_loss", d, target)) return SW_NONE;
    const sw_t apart = sw_relu(sw_sub(like(d, margin), d));
    return reduced(sw_where(sw_gt(target, like(target, 0)), sw_square(d), sw_square(apart)), r);
}
