/* fuzz_safetensors.c: any bytes as a safetensors file; every byte that a view claims is touched.
 * libFuzzer target over src/io/safetensors.c; seeds in corpus/safetensors. */
#include "io/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    sw_safetensors *f;
    if (sw__safetensors_parse("fuzz", bytes, n, &f) != SW_OK) return 0;
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < sw_safetensors_count(f); i++) {
        const sw_safetensors_info *const t = sw_safetensors_at(f, i);
        if (sw_safetensors_find(f, t->name) != t) __builtin_trap();
        if (t->supported && (size_t)sw_array_count(&t->array) * sw_dtype_size(t->array.dtype) != t->array.bytes) {
            __builtin_trap();
        }
        const uint8_t *const data = t->array.data;
        for (size_t k = 0; k < t->array.bytes; k++) sum = (uint8_t)(sum + data[k]);
    }
    const char *value;
    for (size_t i = 0; i < sw_safetensors_metadata_count(f); i++) {
        if (sw_safetensors_metadata(f, sw_safetensors_metadata_at(f, i, &value)) != value) __builtin_trap();
    }
    sw_safetensors_close(f);
    return 0;
}
