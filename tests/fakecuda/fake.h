/* fake.h: what the fake libcuda (libcuda.so.1) offers to the other fakes (cuBLASLt, cuDNN, NCCL, NVML) and to tests
 * besides CUDA's own functions: memory through its checks, work in its streams, reports, failures, and which GPU is
 * played. They find these by dlopen("libcuda.so.1") and dlsym, as real libraries find the driver. All may be called
 * from any thread. */
/* The environment that the double obeys:
 *   FAKECUDA_SM=90[,75…]      the GPU that is played, for each device: 75 80 86 89 90 100 120 (gpus.c)
 *   FAKECUDA_DEVICES=n        how many; 0: a machine with the driver and no GPU. CUDA_VISIBLE_DEVICES=1,0 chooses
 *   FAKECUDA_MEM=64M          memory of each device; as the GPU has, if not set
 *   FAKECUDA_DRIVER=12040     CUDA version of the driver
 *   FAKECUDA_SEED=n           order of streams, of blocks and of threads
 *   FAKECUDA_FAIL=f:n:code,…  the n-th call of f fails with code (700 and the like: so does all that follows); f may be *
 *   FAKECUDA_STRICT=1         ends the process with 97 instead of 0 if anything was reported, leaks included
 *   FAKECUDA_RACES=0          does not look for races between threads (faster)
 *   FAKECUDA_UNINIT=1         reports reads of device memory that nothing has written
 *   FAKECUDA_POISON=1         bytes set to 0xFF are dead until they are written again, as by fk_poison: what a program
 *                             of swoop's fills so, with SWOOP_POISON=1, once nobody is to read it
 *   FAKECUDA_INSTRUCTIONS=n   of a block, after which it is taken for a hang
 *   FAKECUDA_OPERATIONS=n     of a stream, after which all are run and clocks begin anew; millions, if not set
 *   FAKECUDA_TOOLKIT=folder   where the real NVRTC is, before CUDA_HOME and CUDA_PATH
 *   FAKECUDA_NVRTC_ARCHS=75,… compute capabilities that NVRTC compiles for, of those that it can
 *   FAKECUDA_TEMPERATURE, _POWER (milliwatts), _UTILIZATION, _REASONS (bits): what NVML tells */
#ifndef FAKECUDA_FAKE_H
#define FAKECUDA_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Host memory behind a device address (or pinned memory), for work that runs now (within fk_work's run or ready).
 * Reports and returns NULL where the range is out of bounds or freed; reports where it is not ordered after who wrote
 * it, or read it for a write. Outside of such work the order is not checked. who: "cublasLtMatmul: A". */
void *fk_map(uint64_t address, size_t bytes, bool write, const char *who);

/* The bytes are dead until they are written again: a read of them is a report. Filled with 0xFF. fk_poison: now,
 * the host being the one who does it; fk_poison_async: when the stream gets there, also within a capture. 0 or a
 * CUresult. */
int fk_poison(uint64_t address, size_t bytes);
int fk_poison_async(void *stream, uint64_t address, size_t bytes);

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* Queues work into a stream (a CUstream; NULL: the legacy stream), or into the graph that it captures. run may be
 * called more than once (graph replays), done once at the end, also where this fails. Only one run is under way in a
 * process; it must not wait for another stream, nor call CUDA's functions that do. 0 or a CUresult. */
int fk_work(void *stream, const char *name, void (*run)(void *data), void (*done)(void *data), void *data);

/* The same for work that may have to wait for other processes or threads: ready is asked before run, again and again;
 * while it answers false other streams run, and other threads may call. */
int fk_work_when(void *stream, const char *name, bool (*ready)(void *data), void (*run)(void *data),
                 void (*done)(void *data), void *data);

/* Within run: the work failed as a kernel does, every later call returns the code (700 …). */
void fk_lose(int code);

/* ---- reports and failures ---------------------------------------------------------------------------------------- */

/* A fault that a test is to see: to stderr, counted, and FAKECUDA_STRICT ends the process with 97 at exit. */
void fk_report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
long fk_reports(void); /* so far */

/* "function" as in FAKECUDA_FAIL=function:n:code[,…], where this is its n-th call: the code to return; otherwise 0.
 * _v2 and the like are left out of names; "*" counts all calls. Counts the call. */
int fk_fail(const char *function);
/* FAKECUDA_FAIL's text anew, counts from zero; NULL or "": nothing fails. */
void fk_fail_set(const char *spec);
/* Calls of a function since fk_fail_set or the start, failed ones included. NULL: of all. */
long fk_calls(const char *function);
/* Heals a device that was lost (700 …), as a new process would find it. */
void fk_heal(void);

/* An object of a library: it is on the list of leaks until it is gone, and its context is not to be released before.
 * fk_gone: false, and a report, if there is no such object of that kind. */
void fk_made(const char *kind, const void *object);
bool fk_gone(const char *kind, const void *object);
/* Objects that live: "allocation", "pinned", "stream", "event", "module", "graph", "graph exec", "context", or a kind
 * of fk_made's. NULL: all. */
long fk_live(const char *kind);

/* ---- the GPU that is played -------------------------------------------------------------------------------------- */

/* Compute capability times ten (FAKECUDA_SM, 90 by default) of this thread's device (or the first), and a random number
 * from FAKECUDA_SEED. */
int fk_sm(void);
uint64_t fk_random(void);
void fk_seed(uint64_t seed); /* FAKECUDA_SEED anew */
uint64_t fk_memory_used(int physical); /* bytes that this process holds of the i-th GPU, as NVML counts them */

#endif
