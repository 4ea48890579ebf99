/* fake.h: what the fake libcuda (libcuda.so.1) offers to the other fakes (cuBLASLt, cuDNN, NCCL, NVML) besides CUDA's own
 * functions: memory through its checks, work in its streams, reports, and which GPU is played. They find these by
 * dlopen("libcuda.so.1") and dlsym, as real libraries find the driver. */
#ifndef FAKECUDA_FAKE_H
#define FAKECUDA_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Host memory behind a device address, for work that runs now (within fk_work's run). Reports and returns NULL where the
 * range is out of bounds, freed, or not ordered after who wrote it. who: "cublasLtMatmul: A". */
void *fk_map(uint64_t address, size_t bytes, bool write, const char *who);

/* Queues work into a stream (a CUstream; NULL: the legacy stream), or into the graph that it captures. run may be called
 * more than once (graph replays), done once at the end. 0 or a CUresult. */
int fk_work(void *stream, const char *name, void (*run)(void *data), void (*done)(void *data), void *data);

/* A fault that a test is to see: to stderr, counted, and FAKECUDA_STRICT ends the process with 97 at exit. */
void fk_report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* "function" as in FAKECUDA_FAIL=function:n:code, where this is its n-th call: the code to return; otherwise 0. */
int fk_fail(const char *function);

/* The GPU that is played: compute capability times ten (FAKECUDA_SM, 90 by default), and a random number from
 * FAKECUDA_SEED. */
int fk_sm(void);
uint64_t fk_random(void);

#endif
