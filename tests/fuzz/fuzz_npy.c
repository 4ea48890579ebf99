/* fuzz_npy.c: any bytes as an NPY file: an array or a message, never a crash, a leak or memory without end.
 * libFuzzer target over src/io/npy.c; seeds in corpus/npy. */
#include "io/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    sw_array a;
    if (sw__npy_parse("fuzz", bytes, n, &a) == SW_OK) sw_array_free(&a);
    return 0;
}
