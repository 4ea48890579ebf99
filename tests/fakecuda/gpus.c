/* gpus.c: the table of GPUs that the fakes play, and how the environment chooses among them. Linked into the fake
 * libcuda and the fake NVML, so that the two tell the same. */
#include "gpus.h"

#include <stdlib.h>
#include <string.h>

/* Memory, bandwidth (memory clock × 2 × bus) and power as in the catalogue of GPUs, limits as in NVIDIA's programming
 * guide by compute capability. */
static const fk_gpu gpus[] = {
    { 75, "Tesla T4", 40, 1590000, 5001000, 256, 4096, 64, 64, 1024, 16, 15109, 70, 32 },
    { 80, "NVIDIA A100-SXM4-80GB", 108, 1410000, 1593000, 5120, 40960, 164, 163, 2048, 32, 81153, 400, 2 },
    { 86, "NVIDIA GeForce RTX 3090", 82, 1695000, 9751000, 384, 6144, 100, 99, 1536, 16, 24137, 350, 64 },
    { 89, "NVIDIA GeForce RTX 4090", 128, 2520000, 10501000, 384, 73728, 100, 99, 1536, 24, 24082, 450, 64 },
    { 90, "NVIDIA H100 80GB HBM3", 132, 1980000, 2619000, 5120, 51200, 228, 227, 2048, 32, 81104, 700, 2 },
    { 100, "NVIDIA B200", 148, 1965000, 3906000, 8192, 129536, 228, 227, 2048, 32, 182642, 1000, 2 },
    { 120, "NVIDIA GeForce RTX 5090", 170, 2407000, 14001000, 512, 98304, 100, 99, 1536, 24, 32109, 575, 64 },
};

const fk_gpu *fk_gpu_of(int sm)
{
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (gpus[i].sm == sm) return &gpus[i];
    return NULL;
}

void fk_gpu_uuid(int i, unsigned char uuid[16])
{
    for (int b = 0; b < 16; b++) uuid[b] = (unsigned char)(0x5b + 29 * b + 101 * i);
}

int fk_gpu_bus(int i)
{
    return 0x17 + 0x11 * i;
}

uint64_t fk_gpu_bytes(const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    uint64_t n = strtoull(text, &end, 0);
    const char *const unit = *end != '\0' ? strchr(units, *end) : NULL;
    for (long i = 0; unit != NULL && i <= unit - units; i++) n <<= 10;
    return n;
}

int fk_gpu_list(int *sm, int most)
{
    const char *const count = getenv("FAKECUDA_DEVICES");
    const char *text = getenv("FAKECUDA_SM");
    int n = count != NULL ? (int)strtol(count, NULL, 10) : 1;
    if (n > most) n = most;
    int last = 90;
    for (int i = 0; i < n; i++) { /* the last one stands for all that follow */
        if (text != NULL && *text != '\0') {
            char *end;
            const int wish = (int)strtol(text, &end, 10);
            if (fk_gpu_of(wish) != NULL) last = wish;
            text = *end == ',' ? end + 1 : NULL;
        }
        sm[i] = last;
    }
    return n;
}
