/* cpu.c: the CPU backend's table of functions: device, memory, kernels through the tile interpreter, whole ops through
 * sw__cpu_ops. Called by exec/ through backend.h. */
#include "backend/cpu/cpu.h"

#include "kernel/tile.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

/* ---- what the machine is ----------------------------------------------------------------------------------------- */

#define MAX_THREADS 1024

static int cpu_count(void)
{
    return 1;
}

/* Cores that this process may use: its affinity mask, and no more than OMP_NUM_THREADS. */
static int usable_cores(void)
{
    int n = omp_get_num_procs(); /* libgomp counts the affinity mask */
    const char *const wish = getenv("OMP_NUM_THREADS");
    if (wish != NULL) {
        const long v = strtol(wish, NULL, 10); /* "4,2" is legal: the outermost level counts */
        if (v > 0 && v < n) n = (int)v;
    }
    return SW_MAX(1, SW_MIN(n, MAX_THREADS));
}

/* The value of "key : value" in a file such as /proc/cpuinfo, without the newline. */
static bool file_value(const char *path, const char *key, char *out, size_t size)
{
    FILE *const f = fopen(path, "re");
    if (f == NULL) return false;
    char line[512];
    bool found = false;
    const size_t n = strlen(key);
    while (!found && fgets(line, sizeof line, f) != NULL) {
        const char *v = line + n;
        if (strncmp(line, key, n) != 0) continue;
        v += strspn(v, " \t:");
        snprintf(out, size, "%.*s", (int)strcspn(v, "\n"), v);
        found = true;
    }
    fclose(f);
    return found;
}

static void cpu_memory(sw_device_properties *p)
{
    struct sysinfo s;
    char text[64];
    if (sysinfo(&s) == 0) {
        p->memory_total = (uint64_t)s.totalram * s.mem_unit;
        p->memory_free = (uint64_t)s.freeram * s.mem_unit;
    }
    /* what the page cache could give back counts as free */
    if (file_value("/proc/meminfo", "MemAvailable", text, sizeof text)) p->memory_free = strtoull(text, NULL, 10) << 10;
}

static sw_status cpu_properties(int index, sw_device_properties *p)
{
    (void)index;
    static const char *const simd[] = {"no AVX2", "AVX2", "AVX-512"};
    memset(p, 0, sizeof *p);
    snprintf(p->id, sizeof p->id, "cpu");
    snprintf(p->backend, sizeof p->backend, "cpu");
    snprintf(p->type, sizeof p->type, "cpu");
    (void)file_value("/proc/cpuinfo", "vendor_id", p->vendor, sizeof p->vendor);
    if (!file_value("/proc/cpuinfo", "model name", p->name, sizeof p->name)) snprintf(p->name, sizeof p->name, "CPU");
    p->compute_units = usable_cores();
    char version[32] = "missing";
    p->usable = sw__dnn_version(version, sizeof version) == SW_OK;
    snprintf(p->compute, sizeof p->compute, "%d core%s, %s, oneDNN %s", p->compute_units,
             p->compute_units == 1 ? "" : "s", simd[sw__simd_level()], version);
    snprintf(p->driver, sizeof p->driver, "-");
    snprintf(p->status, sizeof p->status, "%.150s", p->usable ? "ok" : sw_error());
    cpu_memory(p);
    return SW_OK;
}

/* ---- device ------------------------------------------------------------------------------------------------------ */

/* A thread that lives until the gate opens. */
static void *wait_at(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* libgomp ends the process if it cannot start a thread. So they are started once by hand, all alive at the same time:
 * what the system refuses is an error here. Afterwards libgomp makes its own, which stay. */
static sw_status try_threads(int n)
{
    if (n <= 1) return SW_OK;
    pthread_t *const t = sw__calloc((size_t)n, sizeof *t);
    if (t == NULL) return sw__no_memory((size_t)n * sizeof *t, "threads");
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&gate);
    int started = 0, e = 0;
    while (started < n - 1 && (e = pthread_create(&t[started], NULL, wait_at, &gate)) == 0) started++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++) pthread_join(t[i], NULL);
    sw__free(t);
    if (e == 0) return SW_OK;
    return sw__fail(SW_ERR_THREAD, "cpu: thread %d of %d could not be started: %s; use fewer (OMP_NUM_THREADS)",
                    started + 2, n, strerror(e));
}

static void set_traits(sw__cpu *cpu)
{
    sw__traits *const t = &cpu->traits;
    t->fuse = t->views = t->keeps = true;
    t->float_storage = SW_F32;
    t->alignment = 64;
    t->compute_units = cpu->threads;
    for (int op = 0; op < SW_OP_COUNT; op++) t->takes[op] = sw__cpu_ops[op].plan != NULL;
    static const uint16_t images[] = {SW_OP_CONV,          SW_OP_CONV_GRAD_X, SW_OP_CONV_GRAD_W, SW_OP_MAX_POOL,
                                      SW_OP_MAX_POOL_GRAD, SW_OP_AVG_POOL,    SW_OP_AVG_POOL_GRAD};
    for (size_t i = 0; i < SW_COUNT(images); i++) t->channels_last[images[i]] = true;
    t->small_tables = true;
    t->bias_act[SW_OP_MATMUL] = t->bias_act[SW_OP_CONV] = true;
}

static void cpu_close(void *dev)
{
    sw__cpu *const cpu = dev;
    if (cpu == NULL) return;
    sw__dnn_close(cpu->dnn);
    sw__free(cpu);
}

static sw_status cpu_open(int index, const sw_device_options *o, void **dev)
{
    (void)index;
    const int threads = o != NULL && o->threads != 0 ? o->threads : usable_cores();
    if (threads < 1 || threads > MAX_THREADS)
        return sw__fail(SW_ERR_ARGUMENT, "cpu: %d threads: there can be 1 to %d (0: all cores)", threads, MAX_THREADS);
    SW_TRY(try_threads(threads));
    sw__cpu *const cpu = sw__calloc(1, sizeof *cpu);
    if (cpu == NULL) return sw__no_memory(sizeof *cpu, "the cpu device");
    cpu->threads = threads;
    cpu->simd = sw__simd_level();
    cpu->bf16 = sw__simd_bf16();
    set_traits(cpu);
    const sw_status st = sw__dnn_open((int)cpu->simd, &cpu->dnn);
    if (st != SW_OK) {
        cpu_close(cpu);
        return st;
    }
    *dev = cpu;
    return SW_OK;
}

static const sw__traits *cpu_traits(void *dev)
{
    return &((sw__cpu *)dev)->traits;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

#define HUGE_PAGE ((size_t)2 << 20)

typedef struct buffer {
    void *raw;   /* what calloc gave */
    char *data;  /* aligned */
} buffer;

/* calloc, not malloc and memset: a large block comes as untouched pages, so that zeroing costs nothing and each page
 * first belongs to the thread that writes it. Huge pages where the system leaves the choice: fewer page faults. */
static sw_status cpu_alloc(void *dev, size_t bytes, void **out)
{
    (void)dev;
    const size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 64;
    size_t room;
    buffer *const b = sw__calloc(1, sizeof *b);
    if (b != NULL && sw__add_size(bytes, align, &room)) b->raw = sw__calloc(room, 1);
    if (b == NULL || b->raw == NULL) {
        sw__free(b);
        return sw__no_memory(bytes, "a buffer on the cpu");
    }
    b->data = (char *)(((uintptr_t)b->raw + align - 1) & ~(uintptr_t)(align - 1));
    if (align == HUGE_PAGE) (void)madvise(b->data, bytes & ~(HUGE_PAGE - 1), MADV_HUGEPAGE); /* advice only */
    *out = b;
    return SW_OK;
}

static void cpu_release(void *dev, void *buf)
{
    (void)dev;
    buffer *const b = buf;
    if (b == NULL) return;
    sw__free(b->raw);
    sw__free(b);
}

static sw_status cpu_upload(void *dev, void *buf, size_t offset, const void *src, size_t bytes)
{
    (void)dev;
    if (bytes > 0) memcpy(((buffer *)buf)->data + offset, src, bytes);
    return SW_OK;
}

static sw_status cpu_download(void *dev, const void *buf, size_t offset, void *dst, size_t bytes)
{
    (void)dev;
    if (bytes > 0) memcpy(dst, ((const buffer *)buf)->data + offset, bytes);
    return SW_OK;
}

static sw_status cpu_fill(void *dev, void *buf, size_t offset, size_t bytes, uint8_t byte)
{
    (void)dev;
    if (bytes > 0) memset(((buffer *)buf)->data + offset, byte, bytes);
    return SW_OK;
}

static sw_status cpu_sync(void *dev)
{
    (void)dev;
    return SW_OK;
}

static void *cpu_host_pointer(void *buf)
{
    return ((buffer *)buf)->data;
}

/* Where a tensor without elements is: code for vectors looks at a first element before it counts. */
static _Alignas(64) unsigned char nothing[64];

void *sw__cpu_address(const sw__bind *b)
{
    return b->buffer != NULL ? (void *)(((buffer *)b->buffer)->data + b->offset) : nothing;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

typedef struct built {
    sw__tile_program *program;
    int n_buffers;
    size_t workspace;
} built;

static void cpu_kernel_free(void *dev, void *kernel)
{
    (void)dev;
    built *const b = kernel;
    if (b == NULL) return;
    sw__tile_free(b->program);
    sw__free(b);
}

static sw_status cpu_kernel_build(void *dev, const sw__kernel *k, void **out, size_t *workspace)
{
    built *const b = sw__calloc(1, sizeof *b);
    if (b == NULL) return sw__no_memory(sizeof *b, "a built kernel");
    const sw_status st = sw__tile_compile(k, ((sw__cpu *)dev)->threads, &b->program, &b->workspace);
    if (st != SW_OK) {
        sw__free(b);
        return sw__prefix(st, "cpu: kernel '%s'", k->name);
    }
    b->n_buffers = k->n_buffers;
    *workspace = b->workspace;
    *out = b;
    return SW_OK;
}

static sw_status cpu_kernel_launch(void *dev, void *kernel, const sw__bind *bind)
{
    (void)dev;
    const built *const b = kernel;
    void *ptr[SW_K_MAX_BUFFERS];
    for (int i = 0; i < b->n_buffers; i++) ptr[i] = sw__cpu_address(&bind[i]);
    return sw__tile_run(b->program, ptr, b->workspace > 0 ? sw__cpu_address(&bind[b->n_buffers]) : NULL);
}

/* ---- whole ops --------------------------------------------------------------------------------------------------- */

static bool cpu_op_accepts(void *dev, const sw__op_desc *d, int i)
{
    const sw__cpu_op *const op = &sw__cpu_ops[d->op];
    if (op->widens && sw__cpu_has_half(d) && !sw__cpu_packed(&d->in[i])) return false;
    return op->accepts == NULL || op->accepts(dev, d, i);
}

void sw__cpu_drop_state(sw__cpu_plan *p)
{
    if (p->state != NULL && p->drop != NULL) p->drop(p->state);
    else sw__free(p->state);
}

static void cpu_op_free(void *dev, void *plan)
{
    (void)dev;
    sw__cpu_plan *const p = plan;
    if (p == NULL) return;
    sw__cpu_drop_state(p);
    sw__free(p->name);
    sw__free(p);
}

/* OpenMP's thread count belongs to the calling thread and oneDNN goes by it: set around a call, then put back. */
static int set_threads(int threads)
{
    const int before = omp_get_max_threads();
    if (before != threads) omp_set_num_threads(threads);
    return before;
}

void sw__cpu_plan_threads(sw__cpu_plan *p, double work)
{
    p->threads = work < 1e6 ? 1 : p->cpu->threads;
    set_threads(p->threads);
}

/* Ops whose plan takes bf16 too, where the CPU or the shape allows it. */
static const bool in_bf16[SW_OP_COUNT] = {
    [SW_OP_MATMUL] = true, [SW_OP_DOT] = true, [SW_OP_CONV] = true, [SW_OP_CONV_GRAD_X] = true,
    [SW_OP_CONV_GRAD_W] = true, [SW_OP_LSTM] = true, [SW_OP_LSTM_GRAD] = true, [SW_OP_GRU] = true,
    [SW_OP_GRU_GRAD] = true, [SW_OP_RNN] = true, [SW_OP_RNN_GRAD] = true,
};

/* oneDNN computes in bf16 where the CPU has AVX-512; its reference code, which it falls back to, is not worth having.
 * Own code for bf16 wants AVX512_BF16, save Winograd's convolutions, which compute in f32: op_conv.c looks by itself. */
static sw_status plan_bf16(sw__cpu_plan *p)
{
    const sw__cpu_plan before = *p;
    bool all = p->cpu->simd == SW_SIMD_AVX512 || (sw__op)p->d.op == SW_OP_CONV || (sw__op)p->d.op == SW_OP_CONV_GRAD_X ||
               (sw__op)p->d.op == SW_OP_CONV_GRAD_W;
    for (int i = 0; i < p->d.n_in + p->d.n_out; i++)
        all = all && (p->desc[i].dtype == SW_BF16 || !sw__dtype_is_float((sw_dtype)p->desc[i].dtype));
    if (!all) return sw__fail(SW_ERR_UNSUPPORTED, "not in bf16");
    sw_status st = sw__cpu_ops[p->d.op].plan(p);
    if (st == SW_OK && strncmp(p->note, "ref", 3) == 0) st = sw__fail(SW_ERR_UNSUPPORTED, "oneDNN has but %s", p->note);
    if (st == SW_OK) return st;
    sw__cpu_drop_state(p);
    *p = before;
    return st;
}

static sw_status plan_half(sw__cpu_plan *p)
{
    const sw_status st = in_bf16[p->d.op] ? plan_bf16(p) : SW_ERR_UNSUPPORTED;
    return st == SW_ERR_UNSUPPORTED ? sw__cpu_half_plan(p) : st;
}

static sw_status plan_named(sw__cpu_plan *p)
{
    const int before = set_threads(p->threads);
    const sw__cpu_op *const op = &sw__cpu_ops[p->d.op];
    const sw_status st = op->widens && sw__cpu_has_half(&p->d) ? plan_half(p) : op->plan(p);
    set_threads(before);
    return st == SW_OK ? st : sw__prefix(st, "cpu: %s '%s'", sw__op_table[p->d.op].name, p->name);
}

static sw_status cpu_op_plan(void *dev, const sw__op_desc *d, void **out, size_t *workspace)
{
    if (sw__cpu_ops[d->op].plan == NULL || d->n_in + d->n_out > SW__CPU_MAX_REFS)
        return sw__fail(SW_ERR_UNSUPPORTED, "cpu: %s is not taken whole", sw__op_table[d->op].name);
    sw__cpu_plan *const p = sw__calloc(1, sizeof *p);
    if (p == NULL) return sw__no_memory(sizeof *p, "a planned op");
    p->cpu = dev;
    p->threads = p->cpu->threads;
    p->d = *d;
    if (d->attr != NULL) p->attr = *d->attr;
    for (int i = 0; i < d->n_in; i++) p->desc[i] = d->in[i];
    for (int i = 0; i < d->n_out; i++) p->desc[d->n_in + i] = d->out[i];
    p->d.attr = &p->attr;
    p->d.in = p->desc;
    p->d.out = p->desc + d->n_in;
    p->d.name = p->name = sw__strdup(d->name != NULL ? d->name : "");
    const sw_status st = p->name != NULL ? plan_named(p) : sw__no_memory(1, "an op's name");
    if (st != SW_OK) {
        cpu_op_free(dev, p);
        return st;
    }
    *workspace = p->workspace;
    *out = p;
    return SW_OK;
}

static sw_status cpu_op_exec(void *dev, void *plan, const sw__bind *bind)
{
    (void)dev;
    sw__cpu_plan *const p = plan;
    void *ptr[SW__CPU_MAX_REFS + 1] = {NULL};
    const int n = p->d.n_in + p->d.n_out;
    for (int i = 0; i < n; i++) ptr[i] = sw__cpu_address(&bind[i]);
    if (p->workspace > 0) ptr[n] = sw__cpu_address(&bind[n]);
    const int before = set_threads(p->threads);
    const sw_status st = p->exec(p, ptr);
    set_threads(before);
    return st == SW_OK ? st : sw__prefix(st, "cpu: %s '%s'", sw__op_table[p->d.op].name, p->name);
}

static size_t cpu_op_packs(void *plan, int input)
{
    const sw__cpu_plan *const p = plan;
    return p->packs != NULL && sw__cpu_fixed(p, input) ? p->packs(p, input) : 0;
}

static sw_status cpu_op_pack(void *dev, void *plan, int input, const sw__bind *bind)
{
    (void)dev;
    sw__cpu_plan *const p = plan;
    const int before = set_threads(p->threads);
    const sw_status st = p->pack(p, input, sw__cpu_address(&bind[0]), sw__cpu_address(&bind[1]));
    set_threads(before);
    return st == SW_OK ? st : sw__prefix(st, "cpu: %s '%s'", sw__op_table[p->d.op].name, p->name);
}

static const char *cpu_op_note(void *plan)
{
    return ((sw__cpu_plan *)plan)->note;
}

static bool cpu_op_on_copies(void *plan)
{
    return ((sw__cpu_plan *)plan)->on_copies;
}

const sw__cpu_op sw__cpu_ops[SW_OP_COUNT] = {
    [SW_OP_MATMUL] = {sw__cpu_matmul_accepts, sw__cpu_matmul_plan, true},
    [SW_OP_DOT] = {sw__cpu_matmul_accepts, sw__cpu_matmul_plan, true},
    [SW_OP_CONV] = {sw__cpu_conv_accepts, sw__cpu_conv_plan, true},
    [SW_OP_CONV_GRAD_X] = {sw__cpu_conv_accepts, sw__cpu_conv_plan, true},
    [SW_OP_CONV_GRAD_W] = {sw__cpu_conv_accepts, sw__cpu_conv_plan, true},
    [SW_OP_MAX_POOL] = {sw__cpu_pool_accepts, sw__cpu_pool_plan, true},
    [SW_OP_MAX_POOL_GRAD] = {sw__cpu_pool_accepts, sw__cpu_pool_plan, true},
    [SW_OP_AVG_POOL] = {sw__cpu_pool_accepts, sw__cpu_pool_plan, true},
    [SW_OP_AVG_POOL_GRAD] = {sw__cpu_pool_accepts, sw__cpu_pool_plan, true},
    [SW_OP_ARGMAX] = {NULL, sw__cpu_argreduce_plan, false},
    [SW_OP_ARGMIN] = {NULL, sw__cpu_argreduce_plan, false},
    [SW_OP_SCAN_SUM] = {NULL, sw__cpu_scan_plan, false},
    [SW_OP_SORT] = {NULL, sw__cpu_sort_plan, false},
    [SW_OP_ARGSORT] = {NULL, sw__cpu_sort_plan, false},
    [SW_OP_SCATTER_ADD] = {NULL, sw__cpu_scatter_plan, false},
    [SW_OP_SCATTER_SET] = {NULL, sw__cpu_scatter_plan, false},
    [SW_OP_SCATTER_MAX] = {NULL, sw__cpu_scatter_plan, false},
    [SW_OP_EMBEDDING_GRAD] = {NULL, sw__cpu_embedding_grad_plan, false},
    [SW_OP_LSTM] = {sw__cpu_dense_accepts, sw__cpu_recurrent_plan, true},
    [SW_OP_GRU] = {sw__cpu_dense_accepts, sw__cpu_recurrent_plan, true},
    [SW_OP_RNN] = {sw__cpu_dense_accepts, sw__cpu_recurrent_plan, true},
    [SW_OP_LSTM_GRAD] = {sw__cpu_dense_accepts, sw__cpu_recurrent_plan, true},
    [SW_OP_GRU_GRAD] = {sw__cpu_dense_accepts, sw__cpu_recurrent_plan, true},
    [SW_OP_RNN_GRAD] = {sw__cpu_dense_accepts, sw__cpu_recurrent_plan, true},
    [SW_OP_CTC_LOSS] = {sw__cpu_dense_accepts, sw__cpu_ctc_plan, true},
    [SW_OP_ATTENTION] = {sw__cpu_attention_accepts, sw__cpu_attention_plan, true},
    [SW_OP_ATTENTION_GRAD] = {sw__cpu_attention_accepts, sw__cpu_attention_plan, true},
    [SW_OP_CUSTOM] = {sw__cpu_dense_accepts, sw__cpu_custom_plan, false},
    [SW_OP_CUSTOM_GRAD] = {sw__cpu_dense_accepts, sw__cpu_custom_plan, false},
};

/* ---- the table --------------------------------------------------------------------------------------------------- */

const sw__backend sw__backend_cpu = {
    .name = "cpu",
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .properties = cpu_properties,
    .traits = cpu_traits,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_upload,
    .download = cpu_download,
    .fill = cpu_fill,
    .sync = cpu_sync,
    .host_pointer = cpu_host_pointer,
    .peak = sw__cpu_peak,
    .kernel_build = cpu_kernel_build,
    .kernel_free = cpu_kernel_free,
    .kernel_launch = cpu_kernel_launch,
    .op_accepts = cpu_op_accepts,
    .op_plan = cpu_op_plan,
    .op_free = cpu_op_free,
    .op_exec = cpu_op_exec,
    .op_packs = cpu_op_packs,
    .op_pack = cpu_op_pack,
    .op_note = cpu_op_note,
    .op_on_copies = cpu_op_on_copies,
    .source_build = sw__cpu_source_build,
    .source_free = sw__cpu_source_free,
    .source_launch = sw__cpu_source_launch,
};
