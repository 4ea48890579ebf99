/* cu.h: what the files of the fake libcuda share. A call enters through FK_ENTER (cu_call.c), which takes the one lock,
 * injects failures and checks init, sticky error, context and capture. Work becomes an fk_op in its stream's queue
 * (cu_stream.c), with a vector clock that says what must have run before; cu_order.c compares it with the clocks of who
 * touched each word; cu_memory.c owns addresses. What CUDA offers: cu_device.c, cu_event.c, cu_copy.c, cu_module.c,
 * cu_launch.c, cu_capture.c, cu_graph.c. */
#ifndef FAKECUDA_CU_H
#define FAKECUDA_CU_H

#include <cuda.h>

#include "fake.h"
#include "gpus.h"
#include "ptx.h"

#define FK_EXPORT __attribute__((visibility("default")))
#define FK_DEVICES 16
#define FK_IDS 255 /* entries of a clock; 0 is nobody; 255 in a shadow word is poison */

/* ---- calls (cu_call.c) ------------------------------------------------------------------------------------------- */

enum {
    FK_NO_INIT = 1, /* may be called before cuInit */
    FK_CONTEXT = 2, /* needs a current context */
    FK_RELEASE = 4, /* does its work also where it is told to fail or the device is lost; then fk_result */
    FK_UNSAFE = 8,  /* forbidden while a stream of this thread (or, in global mode, any) is capturing */
    FK_ANYWAY = 16  /* answers after a sticky error */
};
typedef struct fk_guard { CUresult code, told; char name[48]; } fk_guard;
fk_guard fk_enter(const char *name, int flags);
void fk_leave(fk_guard *g);
/* Opens a call: returns where it is not to be made. */
#define FK_ENTER(flags)                                                                                                \
    fk_guard guard __attribute__((cleanup(fk_leave))) = fk_enter(__func__, flags);                                     \
    if (guard.code != CUDA_SUCCESS) return guard.code
CUresult fk_result(const fk_guard *g, CUresult code); /* what a FK_RELEASE call returns */
/* A misuse: reported as "NAME: …"; returns the code. */
CUresult fk_misuse(const fk_guard *g, CUresult code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

typedef struct fk_settings {
    uint64_t memory;       /* FAKECUDA_MEM, or 0: as the GPU has */
    uint64_t instructions; /* FAKECUDA_INSTRUCTIONS: of a block, before it is taken for a hang */
    uint32_t operations;   /* FAKECUDA_OPERATIONS: of a stream, before its numbers begin anew */
    int n_devices, sm[FK_DEVICES], physical[FK_DEVICES];
    int driver;            /* FAKECUDA_DRIVER */
    bool strict, races, uninit, poison; /* FAKECUDA_STRICT; _RACES=0: not between threads; _UNINIT; _POISON */
} fk_settings;
extern fk_settings fk_set;
extern CUresult fk_sticky; /* CUDA_SUCCESS, or what every call returns from now on */
void fk_lock(void);
void fk_unlock(void);
void fk_pause(void); /* lets other threads in for a moment */
uint64_t fk_random_below(uint64_t n);
bool fk_is_sticky(CUresult code);

/* ---- objects (cu_object.c) --------------------------------------------------------------------------------------- */

/* The structs behind handles are never freed, so that a handle is recognised after its end. */
typedef enum fk_kind { FK_CTX, FK_STREAM, FK_EVENT, FK_MODULE, FK_FUNCTION, FK_GRAPH, FK_EXEC, FK_KINDS } fk_kind;
typedef struct fk_object {
    struct fk_object *next, *bucket;
    fk_kind kind;
    bool live;
    int device;
    uint64_t number; /* for messages: the n-th of its kind */
} fk_object;
extern const char *const fk_kind_name[FK_KINDS];
void *fk_new(fk_kind kind, size_t bytes, int device); /* NULL: no memory */
void fk_end(void *object);
/* The object behind a handle; NULL, reported, *code set: it is none, of another kind, or gone. */
void *fk_object_of(const fk_guard *g, const void *handle, fk_kind kind, CUresult *code);
fk_object *fk_objects(void); /* all that were ever made, newest first */
long fk_leaks(int device);   /* lists what lives on a device, contexts left out; -1: on all, with them */

/* ---- order (cu_order.c) ------------------------------------------------------------------------------------------ */

typedef struct fk_clock { uint32_t seq[FK_IDS + 1]; } fk_clock;
typedef struct fk_op fk_op;
typedef struct fk_alloc fk_alloc;
#define FK_SEQ_MAX ((1u << 23) - 2)

extern fk_clock fk_host, fk_done; /* what the host knows to be done; what is done */
void fk_join(fk_clock *to, const fk_clock *from);
bool fk_before(const fk_clock *a, const fk_clock *b); /* a ≤ b in every entry */
bool fk_is_due(const fk_op *op); /* all that comes before is done */
int fk_id_new(void); /* an entry; -1: none is free */
void fk_id_free(int id);

/* Checks and notes an access (PTX_READ …); one report for an operation. */
void fk_touch(fk_alloc *a, uint64_t address, size_t bytes, int access, const fk_op *op, const char *who);
void fk_touch_free(fk_alloc *a); /* all who touched it are known to the host to be done: else a report */
void fk_touch_poison(fk_alloc *a, uint64_t address, size_t bytes);
void fk_order_name(const fk_op *op); /* remembers the name for reports */
void fk_order_forget(fk_alloc *a);
void fk_order_rebase(void); /* all work is done: sequence numbers begin anew */
extern uint64_t fk_epoch;   /* times that they did */

/* ---- memory (cu_memory.c) ---------------------------------------------------------------------------------------- */

struct fk_alloc {
    uint64_t lo;
    size_t bytes;
    unsigned char *host;
    int device;
    bool live, pinned, of_module;
    uint64_t number;
    uint64_t version; /* of pinned memory: writes by devices so far */
    uint32_t *writer; /* a word each: id, one bit: atomic, 23 bits: its sequence number */
    uint32_t *reader[FK_IDS + 1];
};
fk_alloc *fk_find(uint64_t address); /* of those that live or lived; NULL: none was there */
fk_alloc *fk_find_live(uint64_t address, size_t bytes); /* that holds all of it */
void fk_explain(uint64_t address, size_t bytes, char *text, size_t n); /* what is wrong with a range, in words */
CUresult fk_allocate(int device, size_t bytes, bool of_module, fk_alloc **out);
void fk_deallocate(fk_alloc *a);
void fk_memory_each(void (*visit)(fk_alloc *a, void *data), void *data); /* those that live */
/* The memory of a range for the operation that runs. NULL, reported: it cannot be reached. */
unsigned char *fk_reach(uint64_t address, size_t bytes, int access, const fk_op *op, const char *who);

/* ---- contexts (cu_device.c) -------------------------------------------------------------------------------------- */

typedef struct fk_stream fk_stream;
typedef struct fk_context {
    fk_object o;
    int refs;
    bool peer[FK_DEVICES]; /* this one's kernels reach that one's memory */
    fk_stream *legacy;
} fk_context;
extern _Thread_local fk_context *fk_current;
const fk_gpu *fk_device_gpu(int device);
uint64_t fk_device_memory(int device);
uint64_t fk_device_used(int device);
bool fk_device_sees(int device, int owner); /* itself, or a peer that was enabled */

/* ---- streams (cu_stream.c) --------------------------------------------------------------------------------------- */

/* What an operation does; shared by the launches of a graph. */
typedef struct fk_task {
    char name[80];
    int refs;
    CUresult (*run)(const fk_op *op, void *data); /* not CUDA_SUCCESS: the device is lost */
    bool (*ready)(void *data);                    /* or NULL */
    void (*start)(void *data);                    /* or NULL: when it is queued */
    void (*done)(void *data);                     /* or NULL */
    void *data;
} fk_task;
/* data is owned: done(data) is called at the end, also if this fails (NULL). */
fk_task *fk_task_new(const char *name, CUresult (*run)(const fk_op *op, void *data), void (*done)(void *data),
                     void *data);
void fk_task_release(fk_task *t);

struct fk_op {
    fk_op *next;
    fk_task *task;
    fk_clock clock; /* what must have run; its own entry is its number */
    int id, device;
};

typedef struct fk_graph fk_graph;
typedef struct fk_links { int n, cap, *node; } fk_links; /* nodes of a graph that come before */
struct fk_stream {
    fk_object o;
    fk_stream *next_stream;
    int id;
    unsigned flags;
    int priority;
    bool hidden, closing; /* a graph's own or the legacy one; ends when its queue is empty */
    fk_clock clock;       /* of its last operation, and what it waited for since */
    fk_op *head, *tail;
    fk_graph *capture; /* not NULL: it captures */
    int lane;
    fk_links before;
};
extern const fk_op *fk_running; /* the operation that runs */
fk_stream *fk_stream_make(int device, unsigned flags, int priority, bool hidden);
void fk_stream_close(fk_stream *s);
/* The stream of a call that puts work into it: live, of the current context; NULL is the legacy one. */
fk_stream *fk_stream_of(const fk_guard *g, CUstream handle, CUresult *code);
/* Queues the task, or adds it to the graph that the stream captures; takes one reference, also on failure. */
CUresult fk_submit(const fk_guard *g, fk_stream *s, fk_task *t);
/* The same with a clock that is joined in, past captures; what the launch of a graph uses. */
CUresult fk_queue(fk_stream *s, fk_task *t, const fk_clock *after);
void fk_wait(const fk_clock *until); /* runs work, also others', until all of it is done; the host knows it then */
void fk_wait_device(int device);     /* -1: all; the host does not come to know */
bool fk_step(void);                  /* runs one operation, any that may; false: there is none */
void fk_stream_clock_device(int device, fk_clock *all);
void fk_streams_end(int device);

/* ---- events (cu_event.c) ----------------------------------------------------------------------------------------- */

typedef struct fk_event {
    fk_object o;
    unsigned flags;
    uint64_t recorded; /* times; 0: never */
    double time;       /* seconds, when the last record ran; NAN: it has not */
    fk_clock clock;
    fk_graph *capture; /* not NULL: the last record was within a capture */
    fk_links before;
} fk_event;

/* ---- modules (cu_module.c) --------------------------------------------------------------------------------------- */

typedef struct fk_function fk_function;
typedef struct fk_module {
    fk_object o;
    ptx_module *ptx; /* NULL: a library's, which is only held */
    fk_function *functions;
    unsigned char *cubin; /* the real one within FKCUBIN, or NULL */
    size_t cubin_bytes;
} fk_module;
struct fk_function {
    fk_object o;
    fk_function *next_function;
    fk_module *module;
    const ptx_kernel *kernel;
    ptx_info info;
    int registers, stack; /* bytes */
    int max_dynamic; /* bytes that cuFuncSetAttribute allowed; -1: what the static part leaves of 48 KiB */
    char name[128];
};
void fk_module_end(fk_module *m);
/* What ptxas noted of a kernel; -1: unknown; cu_cubin.c */
enum { FK_CUBIN_STACK = 0x11, FK_CUBIN_REGISTERS = 0x2f };
int fk_cubin_value(const unsigned char *elf, size_t n, const char *kernel, int what);
size_t fk_cubin_bytes(const unsigned char *elf);
size_t fk_function_dynamic_limit(const fk_function *f);

/* ---- capture and graphs (cu_capture.c, cu_graph.c) --------------------------------------------------------------- */

typedef struct fk_node { fk_task *task; int lane; fk_links before; } fk_node;
struct fk_graph {
    fk_object o;
    fk_node *node;
    int n_nodes, cap_nodes, n_lanes;
    /* while it is captured */
    bool capturing;
    CUresult broken; /* what the end of the capture will return */
    fk_stream *origin;
    CUstreamCaptureMode mode;
    unsigned long thread;
    bool has_blocking; /* one of its streams waits for the legacy one */
};
bool fk_links_add(fk_links *l, int node); /* false: no memory */
bool fk_links_join(fk_links *to, const fk_links *from);
void fk_links_free(fk_links *l);
CUresult fk_capture_add(fk_stream *s, fk_task *t); /* takes the reference */
fk_graph *fk_capture_forbids(bool legacy);         /* the capture that an unsafe call of this thread breaks, or NULL */
CUresult fk_capture_break(const fk_guard *g, fk_graph *capture, CUresult code, const char *why);
CUresult fk_capture_wait(const fk_guard *g, fk_stream *s, fk_event *e);
typedef struct fk_exec {
    fk_object o;
    fk_node *node;
    int n_nodes, n_lanes;
    fk_stream **lane; /* [0] is the stream that it is launched in */
    fk_clock last;    /* of the last launch: launches of one exec never overlap */
} fk_exec;
void fk_graph_end(fk_graph *g);
void fk_exec_end(fk_exec *e);

#endif
