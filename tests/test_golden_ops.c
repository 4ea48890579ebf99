/* test_golden_ops.c: the ops, activations and losses of golden_cases.h against PyTorch's numbers (tests/golden/make_ops.py). */
#include "golden_cases.h"

GOLDEN_MAIN("ops", golden_cases)
