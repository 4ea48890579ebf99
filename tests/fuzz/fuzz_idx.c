/* fuzz_idx.c: any bytes as an IDX file: an array or a message, never a crash, a leak or memory without end.
 * libFuzzer target over src/io/idx.c; seeds in corpus/idx. */
#include "io/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    sw_array a;
    if (sw__idx_parse("fuzz", bytes, n, &a) == SW_OK) sw_array_free(&a);
    return 0;
}
