/* gpus.h: the GPUs that the fakes can play, one for each compute capability that NVRTC compiles for, with the figures
 * that CUDA's attributes and NVML tell of them. FAKECUDA_SM chooses; gpus.c. */
#ifndef FAKECUDA_GPUS_H
#define FAKECUDA_GPUS_H

#include <stddef.h>
#include <stdint.h>

typedef struct fk_gpu {
    int sm; /* compute capability times ten */
    const char *name;
    int units, clock_khz, memory_khz, bus_bits;
    int l2_kib, shared_kib, shared_optin_kib; /* shared_kib: of a multiprocessor */
    int threads, blocks;                      /* that a multiprocessor holds */
    int memory_mib, watts;
    int f64_ratio; /* f32 operations to one of f64 */
} fk_gpu;

const fk_gpu *fk_gpu_of(int sm); /* NULL: none such */

/* How the i-th GPU of the machine is known to both CUDA and NVML. */
void fk_gpu_uuid(int i, unsigned char uuid[16]);
int fk_gpu_bus(int i); /* PCI: domain 0, device 0 */
uint64_t fk_gpu_bytes(const char *text); /* "512M", "8G", "1000" */

/* The list of FAKECUDA_SM ("90" or "90,75") for FAKECUDA_DEVICES GPUs: their number. */
int fk_gpu_list(int *sm, int most);

#endif
