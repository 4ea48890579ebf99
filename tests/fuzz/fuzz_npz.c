/* fuzz_npz.c: any bytes as an NPZ archive, all of whose entries are read.
 * libFuzzer target over src/io/npz.c, stream.c and npy.c; seeds in corpus/npz. */
#include "io/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    sw_npz *z;
    if (sw__npz_parse("fuzz", bytes, n, &z) != SW_OK) return 0;
    for (size_t i = 0; i < sw_npz_count(z); i++) {
        sw_array a;
        if (sw_npz_find(z, sw_npz_name(z, i)) != (int64_t)i) __builtin_trap();
        if (sw_npz_read(z, i, &a) == SW_OK) sw_array_free(&a);
    }
    sw_npz_close(z);
    return 0;
}
