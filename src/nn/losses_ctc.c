/* losses_ctc.c: CTC loss with PyTorch's reductions, over the op (graph/ops_recurrent.c). As losses.c. */
#include "graph/build.h"
#include "swoop/nn.h"

#include <math.h>

sw_t sw_ctc_loss_with(sw_t log_probs, sw_t targets, sw_t input_lengths, sw_t target_lengths, sw_ctc_loss_options o)
{
    sw_t each = sw_ctc_loss_op(log_probs, targets, input_lengths, target_lengths, o.blank);
    if (!sw_valid(each)) return each;
    sw_graph *const g = each.graph;
    const sw_dtype type = sw_type(each);
    if (o.zero_infinity) each = sw_where(sw_eq(each, sw_const(g, type, (double)INFINITY)), sw_const(g, type, 0), each);
    if (o.reduction == SW_REDUCE_NONE) return each;
    if (o.reduction == SW_REDUCE_SUM) return sw_sum(each, SW_ALL_AXES, false);
    const sw_t labels = sw_max(sw_cast(target_lengths, type), sw_const(g, type, 1));
    return sw_mean(sw_div(each, labels), SW_ALL_AXES, false);
}

sw_t sw_ctc(sw_t logits, sw_t target)
{
    if (!sw_valid(logits) || !sw_valid(target)) return SW_NONE;
    sw_graph *const g = logits.graph;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    if (sw_rank(logits) != 3 || sw_rank(target) != 2 || sw__dtype_is_float(sw_type(target)) ||
        sw_dim(logits, 0) != sw_dim(target, 0))
        return sw__graph_error(g, SW_ERR_SHAPE, "ctc: takes logits [N, T, C] and integers [N, S], but they are %s and %s",
                               sw__value_text(g, logits.id, a), sw__value_text(g, target.id, b));
    const sw_dtype type = sw_type(target);
    const sw_t zero = sw_const(g, type, 0), labels = sw_max(target, zero);
    const sw_t length = sw_sum(sw_cast(sw_ge(target, zero), SW_I64), SW_AXIS(1), false);
    const int64_t n = sw_dim(logits, 0);
    const sw_t steps = sw_full(g, SW_I64, 1, &n, (double)sw_dim(logits, 1));
    return sw_ctc_loss(sw_log_softmax(logits, 2), labels, steps, length, .blank = 0);
}

int64_t sw_ctc_greedy(const float *logits, int64_t steps, int64_t classes, int64_t *labels)
{
    int64_t n = 0, before = 0;
    for (int64_t t = 0; t < steps; t++, logits += classes) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (logits[c] > logits[best]) best = c;
        if (best != 0 && best != before) labels[n++] = best;
        before = best;
    }
    return n;
}
