/* ptx.h: runs the PTX that NVRTC makes, on a CPU, and checks what a GPU would not tell. Used by the fake libcuda
 * (fakecuda.c), which owns memory and streams; ptx_parse.c reads a module, ptx_run.c and ptx_ops.c run a kernel. Knows
 * neither swoop nor CUDA's functions. An unknown instruction is an error when the module is read, with its line.
 * FAKECUDA_NO_AVX2=1 in the environment: the code for any CPU. Why it is as it is: docs/decisions/037. */
#ifndef FAKECUDA_PTX_H
#define FAKECUDA_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx_module ptx_module;
typedef struct ptx_kernel ptx_kernel;

/* Where and why a kernel was stopped; code: the CUresult that a GPU gives (700 illegal address, 716 misaligned address,
 * 719 launch failure, 702 hang; 1: a block of a size that the kernel is not made for, 2: no host memory); a fault that
 * a GPU does not report (a race) has code 0, comes once of each instruction, and the kernel goes on. text names kernel,
 * PTX line, block, thread, address. */
typedef struct ptx_fault { int code; char text[480]; } ptx_fault;

/* Memory as kernels see it. */
enum { PTX_READ, PTX_WRITE, PTX_ATOMIC };
typedef struct ptx_memory {
    void *user;
    /* The allocation that holds the address: its bounds and where the host finds lo. false: none that lives. The answer
     * is kept during a launch. */
    bool (*range)(void *user, uint64_t address, uint64_t *lo, uint64_t *hi, unsigned char **host);
    /* Told of each access before it happens (bytes in a row, a whole group's where they lie side by side); NULL: nobody
     * wants to know. block: its linear number. false: it is not to be: `why` says what is wrong. */
    bool (*touch)(void *user, uint64_t address, size_t bytes, int access, uint64_t block, char *why, size_t n);
    /* Module globals and constants: device memory of the loader's. */
    uint64_t (*global)(void *user, size_t bytes, size_t align, const void *initial);
    void (*report)(void *user, const ptx_fault *f); /* faults with code 0 */
} ptx_memory;

/* text: one PTX module, as NVRTC writes it. NULL: error[] says what and at which line. */
ptx_module *ptx_load(const char *text, const ptx_memory *memory, char *error, size_t n);
void ptx_unload(ptx_module *m);
const ptx_kernel *ptx_find(const ptx_module *m, const char *entry);

typedef struct ptx_info {
    int n_params;
    size_t param_bytes;
    size_t shared_bytes, local_bytes; /* static */
    int max_threads;                  /* .maxntid or .reqntid, product; 1024 where there is none */
    int registers;                    /* of 32 bits, declared: not what ptxas will need */
} ptx_info;
ptx_info ptx_kernel_info(const ptx_kernel *k);
void ptx_param(const ptx_kernel *k, int i, size_t *offset, size_t *size);

typedef struct ptx_launch {
    uint32_t grid[3], block[3];
    size_t dynamic_shared;
    const void *params;        /* param_bytes, laid out as ptx_param says */
    uint64_t seed;             /* order of blocks and of groups of threads within them */
    bool check_races;          /* of shared memory within a block, of global memory between blocks */
    uint64_t max_instructions; /* per block; more is a hang: code 702. 0: no limit */
} ptx_launch;
/* 0, or the fault's code. */
int ptx_run(const ptx_kernel *k, const ptx_launch *l, const ptx_memory *memory, ptx_fault *fault);

#endif
