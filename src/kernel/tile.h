/* tile.h: the tile interpreter: runs a kernel of the IR (kir.h) on the CPU, a tile of some hundred elements at a time,
 * with vectorised inner loops. Compiled once, run every step. Between kernel IR and backend/cpu.
 *
 * compile chooses everything: order of axes, tile shape, registers, vector code for this machine, number of threads.
 * run allocates nothing and, for a given program, gives the same bits whatever the number of threads.
 *
 * What may overlap in memory: an output may be the very memory of an input if both have the same element size, offset
 * and strides (the input is read before it is overwritten, tile by tile; in a row kernel, row by row). Nothing else. */
#ifndef SW_KERNEL_TILE_H
#define SW_KERNEL_TILE_H

#include "kernel/cpuid.h"
#include "kernel/kir.h"

typedef struct sw__tile_program sw__tile_program;

/* The kernel is copied. `threads`: the most that a run may use. *workspace: bytes that a run needs (0: none), at any
 * alignment; two runs at the same time need one each. SW_ERR_UNSUPPORTED, _MEMORY. */
sw_status sw__tile_compile(const sw__kernel *k, int threads, sw__tile_program **out, size_t *workspace);
/* buffers[i]: address of kernel buffer i, byte offset already added, aligned to its element size. SW_ERR_DATA: an index
 * of a gather was out of range (the outputs are then incomplete, nothing outside the buffers was touched). */
sw_status sw__tile_run(const sw__tile_program *p, void *const *buffers, void *workspace);
void sw__tile_free(sw__tile_program *p);
/* Skeleton, tile, threads and bytecode as text, for SWOOP_DUMP and tests. */
void sw__tile_print(const sw__tile_program *p, sw__text *out);

/* n elements side by side between f32 and f16 or bf16 (one of the two types is f32), rounded to nearest even. */
void sw__tile_convert(sw__simd level, void *to, sw_dtype to_type, const void *from, sw_dtype from_type, size_t n);

#endif
