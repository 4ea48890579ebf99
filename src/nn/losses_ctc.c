/* losses_ctc.c: CTC loss with PyTorch's reductions, over the op (graph/ops_recurrent.c). As losses.c. */
#include "graph/graph.h"
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
