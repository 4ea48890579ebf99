/* cpu.h: what the files of the CPU backend share: the open device, a planned op, the table of ops taken whole.
 * cpu.c is the backend's table of functions; op_*.c plan and run ops; *_simd.c are compiled once per instruction set;
 * dnn.c is oneDNN.
 *
 * Memory is plain host memory. A plan holds everything that running needs (copies of the descriptors, handles, tables);
 * what it needs beside its operands lies in the workspace. */
#ifndef SW_BACKEND_CPU_CPU_H
#define SW_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/dnn.h"
#include "backend/desc.h"
#include "kernel/cpuid.h"

typedef struct sw__cpu {
    int threads;
    sw__simd simd; /* vector code that this machine may run */
    bool bf16;     /* and whether it has dot products of bf16 (AVX512_BF16): *_bf16.c */
    sw__dnn *dnn;
    sw__traits traits;
} sw__cpu;

extern const sw__backend sw__backend_cpu;

#define SW__CPU_MAX_REFS 24 /* a user's op has that many, see swoop/kernel.h */

typedef struct sw__cpu_plan sw__cpu_plan;
struct sw__cpu_plan {
    sw__cpu *cpu;
    sw__op_desc d;                    /* points into this struct */
    sw__desc desc[SW__CPU_MAX_REFS];  /* in, then out */
    sw__attr attr;
    char *name;
    /* ptr: inputs, outputs, workspace, offsets applied */
    sw_status (*exec)(sw__cpu_plan *p, void *const *ptr);
    /* d.fixed says which inputs may be packed: bytes packed, or 0; and packs. packs NULL: none is */
    size_t (*packs)(const sw__cpu_plan *p, int input);
    sw_status (*pack)(sw__cpu_plan *p, int input, void *from, void *to);
    void (*drop)(void *state);        /* frees state; NULL: sw__free */
    void *state;                      /* the op's own */
    size_t workspace;
    int threads;                      /* 1 or the device's: see sw__cpu_plan_threads */
    bool on_copies;                   /* halves are copied to f32 for it */
    char note[112];
};

typedef struct sw__cpu_op {
    bool (*accepts)(const sw__cpu *cpu, const sw__op_desc *d, int i); /* NULL: any strides */
    sw_status (*plan)(sw__cpu_plan *p); /* sets exec, state, workspace, note */
    bool widens;                        /* computes in f32 and f64 only: halves go through sw__cpu_half_plan */
} sw__cpu_op;

void sw__cpu_drop_state(sw__cpu_plan *p); /* frees the op's own (cpu.c) */

/* plan is NULL for ops that the CPU backend does not take whole. */
extern const sw__cpu_op sw__cpu_ops[SW_OP_COUNT];

/* ---- helpers over descriptors (cpu_desc.c) ----------------------------------------------------------------------- */

sw__desc sw__cpu_dense(sw_dtype t, int rank, const int64_t *dim);           /* row-major */
sw__desc sw__cpu_channels_last(sw_dtype t, int rank, const int64_t *dim);   /* [N, C, …] stored N, …, C */
bool sw__cpu_same_strides(const sw__desc *a, const sw__desc *b);            /* on axes longer than 1 */
bool sw__cpu_overlaps(const sw__desc *d); /* some axis longer than 1 has stride 0 */
/* Each axis lies wholly inside a step of the next: oneDNN takes no others, though a slice with steps may interleave. */
bool sw__cpu_nested(const sw__desc *d);

/* Copies elements of one type between two layouts of the same dims; threaded when large. */
void sw__cpu_copy(const sw__cpu *cpu, void *to, const sw__desc *to_desc, const void *from, const sw__desc *from_desc);

/* max(y, 0) in place; NaN stays, which is why oneDNN's own relu (NaN -> 0) is not used. */
void sw__cpu_relu(sw__simd level, float *y, const sw__desc *d, int threads);

/* The same for bf16, side by side in memory. */
void sw__cpu_relu_bf16(uint16_t *y, const sw__desc *d, int threads);

/* Threads worth starting for so much work (in elementary operations): 1 when a fork and join would cost more. */
static inline int sw__cpu_threads(const sw__cpu *cpu, double work)
{
    return work < 20000.0 ? 1 : cpu->threads;
}

/* To be called first by a plan function that hands its threads to a library: decides by the work (multiplications), and
 * sets OpenMP's count, which oneDNN goes by when a primitive is made and run. */
void sw__cpu_plan_threads(sw__cpu_plan *p, double work);

/* This thread's number in its team. */
int sw__cpu_thread(void);

static inline size_t sw__cpu_align(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Index i of i32 or i64. */
static inline int64_t sw__cpu_index(sw_dtype t, const void *p, int64_t i)
{
    return t == SW_I32 ? ((const int32_t *)p)[i] : ((const int64_t *)p)[i];
}

/* All elements lie side by side, in whatever order of the axes. */
bool sw__cpu_packed(const sw__desc *d);

/* ---- ops --------------------------------------------------------------------------------------------------------- */

bool sw__cpu_matmul_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i);
sw_status sw__cpu_matmul_plan(sw__cpu_plan *p);
bool sw__cpu_pool_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i);
bool sw__cpu_conv_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i);
sw_status sw__cpu_conv_plan(sw__cpu_plan *p);
sw_status sw__cpu_pool_plan(sw__cpu_plan *p);
sw_status sw__cpu_argreduce_plan(sw__cpu_plan *p);
sw_status sw__cpu_scan_plan(sw__cpu_plan *p);
sw_status sw__cpu_sort_plan(sw__cpu_plan *p);
sw_status sw__cpu_scatter_plan(sw__cpu_plan *p);
sw_status sw__cpu_embedding_grad_plan(sw__cpu_plan *p);
bool sw__cpu_dense_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i); /* row-major only */
sw_status sw__cpu_recurrent_plan(sw__cpu_plan *p);
sw_status sw__cpu_ctc_plan(sw__cpu_plan *p);
bool sw__cpu_attention_accepts(const sw__cpu *cpu, const sw__op_desc *d, int i);
sw_status sw__cpu_attention_plan(sw__cpu_plan *p);
sw_status sw__cpu_custom_plan(sw__cpu_plan *p);
sw_status sw__cpu_source_build(void *dev, const sw_kernel_source *s, void **built);
void sw__cpu_source_free(void *dev, void *built);
sw_status sw__cpu_source_launch(void *dev, void *built, const sw__source_launch *l);
sw_status sw__cpu_peak(void *dev, sw_device_peak *out); /* backend.h: peak (peak.c) */
void *sw__cpu_address(const sw__bind *b); /* where a bound tensor is; never NULL (cpu.c) */
static inline bool sw__cpu_fixed(const sw__cpu_plan *p, int input)
{
    return input >= 0 && input < 32 && (p->d.fixed >> input & 1u) != 0;
}
bool sw__cpu_has_half(const sw__op_desc *d); /* some tensor is f16 or bf16 */
sw_status sw__cpu_half_plan(sw__cpu_plan *p);

#endif
