/* test_golden_ctc.c: CTC loss against PyTorch's values and gradients of logits (tests/golden/make_recurrent.py): no
 * labels, repeated ones, impossible alignments, every reduction. */
/* double: SWOOP_TEST_DEVICE=cuda:0 */
#include "golden_run.h"

#include "swoop/nn.h"

#define CTC(...) sw_ctc_loss(sw_log_softmax(x[0], 2), x[1], x[2], x[3], __VA_ARGS__)
/* clang-format off */
#define CASES(CASE) \
    CASE(ctc_none, 4, CTC(.reduction = SW_REDUCE_NONE)) \
    CASE(ctc_mean, 4, CTC(.blank = 0)) \
    CASE(ctc_sum, 4, CTC(.reduction = SW_REDUCE_SUM)) \
    CASE(ctc_blank, 4, CTC(.blank = 3, .reduction = SW_REDUCE_NONE)) \
    CASE(ctc_no_labels, 4, CTC(.blank = 0)) \
    CASE(ctc_impossible, 4, CTC(.zero_infinity = true)) \
    CASE(ctc_long, 4, CTC(.reduction = SW_REDUCE_NONE))
/* clang-format on */
CASES(GOLDEN_FUNCTION)
static const golden_case golden_cases[] = { CASES(GOLDEN_ENTRY) };

GOLDEN_MAIN("ops_ctc", golden_cases)
