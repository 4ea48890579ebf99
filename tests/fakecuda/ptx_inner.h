/* ptx_inner.h: what the parts of the PTX interpreter share: the decoded program, tables of operations, a launch in
 * progress. ptx_lex.c and ptx_parse.c read the text, ptx_decode.c makes instructions of statements by the tables of
 * ptx_ops.c and its neighbours, ptx_run.c runs blocks, ptx_memory.c loads and stores, ptx_race.c watches, ptx_warp.c
 * exchanges. */
#ifndef FAKECUDA_PTX_INNER_H
#define FAKECUDA_PTX_INNER_H

#include "ptx.h"

/* Threads go through a program LANES at a time: two warps. */
enum { LANES = 64, WARP = 32 };
typedef uint64_t ptx_mask; /* a bit per lane */
typedef struct ptx_group ptx_group;

/* An operand: where its LANES values lie in the registers of a group or, with the top bit, among the constants. A
 * predicate takes a byte, up to 32 bits take 4 bytes, 64 bits take 8. */
enum { PTX_CONST = 1 << 30, PTX_NONE = -1 };

/* One operation on all lanes, whatever they hold: it may not trap. d may be one of the sources. */
typedef void ptx_fn(void *d, const void *a, const void *b, const void *c);
/* sig: what d, a, b, c are: p predicate, h 16, w 32, d 64 bits, f f32, F f64, x any width, - absent. names: as in PTX,
 * without rounding, .ftz and .sat, which ptx_run.c does around fn; separated by spaces. */
typedef struct ptx_op { const char *names, *sig; ptx_fn *fn; } ptx_op;
typedef struct ptx_scan { uint64_t low, high, bits; bool same; uint64_t step; /* 0: not at even steps */ } ptx_scan;
/* What is compiled once for any CPU and once for AVX2. */
typedef struct ptx_isa {
    const ptx_op *tables[6]; /* each ends with names == NULL; the list ends with NULL */
    void (*addresses)(uint64_t *at, const void *operand, bool wide, uint64_t offset);
    void (*scan)(ptx_scan *s, const uint64_t *addresses, size_t bytes);
    void (*blend)(void *d, const void *s, const uint32_t *mask, int bytes);
    void (*spread)(uint32_t *mask32, ptx_mask mask);
    ptx_mask (*bits)(const void *predicate);
    /* host: where the address `origin` lies */
    void (*gather)(void *d, const unsigned char *host, uint64_t origin, const uint64_t *addresses, int bytes,
                   bool is_signed);
    void (*row)(void *d, const unsigned char *from, int bytes, bool is_signed); /* side by side */
    void (*scatter)(unsigned char *host, uint64_t origin, const uint64_t *addresses, const void *s, int bytes,
                    ptx_mask mask);
    void (*row_out)(unsigned char *to, const void *s, int bytes);
} ptx_isa;
extern const ptx_isa ptx_isa_base;
#ifdef PTX_WITH_AVX2
extern const ptx_isa ptx_isa_avx2;
#endif

typedef struct ptx_inst ptx_inst;
/* What is not lane by lane; moves group->pc itself. 0 or a fault's code. */
typedef int ptx_exec(ptx_group *g, const ptx_inst *i, ptx_mask lanes);
enum { PTX_FTZ = 1, PTX_SAT = 2, PTX_RELU = 4 };
enum { PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM, PTX_GENERIC };
struct ptx_inst {
    ptx_fn *fn;
    ptx_exec *exec;
    int32_t d, a, b, c;
    int32_t v[8];        /* the elements of a vector; of others what they need */
    int32_t guard;       /* a predicate or PTX_NONE */
    const char *sig;
    unsigned char guard_not, flags, round; /* round: fesetround's plus 1, 0 for nearest */
    unsigned char bytes, n, is_signed, space, wide, mode;
    int64_t offset;      /* of an address */
    int32_t target;      /* of a branch */
    int32_t number;      /* of a memory instruction, for what a launch remembers of it */
    int line;
    uint64_t (*atomic)(uint64_t old, uint64_t b, uint64_t c);
};

enum { PTX_SPECIALS = 40 };
struct ptx_kernel {
    char *name;
    ptx_module *module;
    ptx_inst *code;
    int n_code, n_memory;
    int *tables, n_tables;      /* of brx.idx: a count, then the targets */
    unsigned char *constants;
    size_t constant_bytes, register_bytes;
    int32_t special[PTX_SPECIALS]; /* where %tid.x and so on go, PTX_NONE: not used */
    size_t *param_at, *param_size;
    int n_params;
    size_t param_bytes, shared_bytes, local_bytes;
    int max_threads, registers;
    bool required_size;
    int granule_shared, granule_global; /* least bytes that an instruction accesses */
};
struct ptx_module {
    ptx_kernel **kernels;
    int n_kernels;
    const ptx_isa *isa;
};

/* Windows of the generic address space; allocations lie below. */
#define PTX_WINDOW_SHARED ((uint64_t)1 << 56)
#define PTX_WINDOW_LOCAL ((uint64_t)2 << 56)
#define PTX_WINDOW_PARAM ((uint64_t)3 << 56)
enum { PTX_SHARED_AT = 1024 }; /* where shared memory begins: an address of 0 is a fault */

/* ---- reading (ptx_lex.c, ptx_parse.c, ptx_decode.c) -------------------------------------------------------------- */

enum { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_MARK };
typedef struct ptx_token { const char *s; int n, line, kind; } ptx_token;

enum { NAME_REG, NAME_VARIABLE, NAME_DYNAMIC };
/* Registers %r<n> (count n), one register (count 0), or a variable at an address. */
typedef struct ptx_name {
    ptx_token name;
    int kind, count, bytes; /* of a register: 1, 2, 4, 8 */
    int32_t *at;            /* of each register, PTX_NONE until it is met */
    int space;
    uint64_t address;
    size_t size;
} ptx_name;
typedef struct ptx_label { ptx_token name; int scope, pc, table; } ptx_label;
typedef struct ptx_fixup { ptx_token name; int scope, code, table; } ptx_fixup; /* code's target, or tables[table] */
typedef struct ptx_function { ptx_token name; int results, params, body; } ptx_function; /* tokens; 0: none */

enum { ARG_REG, ARG_NUMBER, ARG_VARIABLE, ARG_LABEL, ARG_VECTOR, ARG_ADDRESS, ARG_SINK };
typedef struct ptx_arg {
    int kind, bytes; /* of a register */
    int32_t at;
    bool negated, real;
    uint64_t bits;   /* of a number: an integer, an f32 or f64 (real: a double's) */
    int digits;      /* of 0f (8) and 0d (16), else 0 */
    ptx_token name;
    const ptx_name *variable;
    int64_t offset;
    int n;           /* of a vector; ARG_REG: 1 where a second predicate follows p| */
    int32_t v[8];
    int v_bytes[8];  /* 0: a number, of v_bits */
    uint64_t v_bits[8];
} ptx_arg;
typedef struct ptx_const { uint64_t bits; int bytes; int32_t at; } ptx_const;
enum { MAX_PARTS = 12, PART = 24 };
typedef struct ptx_parts { int n; char text[MAX_PARTS][PART]; } ptx_parts; /* add.sat.s32 */

enum { MAX_ARGS = 8, MAX_FUNCTION_DEPTH = 16 };
typedef struct ptx_reader {
    ptx_token *tokens;
    int n_tokens, at;
    const ptx_memory *memory;
    ptx_module *module;
    char *error;
    size_t error_size;
    bool failed;
    ptx_name *names;
    int n_names;
    ptx_function *functions;
    int n_functions;
    ptx_label *labels;
    int n_labels;
    ptx_fixup *fixups;
    int n_fixups;
    int *scopes, n_scopes, scope; /* parent of each */
    ptx_kernel *k;
    int calls;                    /* depth of what is being inlined */
    int return_label;             /* number of the label at the end of it */
    ptx_const *constants;
    int n_constants, dynamic;     /* dynamic: the one that is the address of dynamic shared memory, or -1 */
    int32_t scratch[8], carry;    /* registers of our own, PTX_NONE until they are used */
    struct ptx_op_slot { const ptx_op *op; const char *name; } *ops; /* hash table of operations by name */
    /* the statement */
    ptx_token mnemonic;
    int32_t guard;
    bool guard_not;
    ptx_arg args[MAX_ARGS];
    int n_args;
} ptx_reader;
enum { OP_SLOTS = 4096 };

bool ptx_lex(ptx_reader *r, const char *text);
void ptx_error(ptx_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool ptx_is(const ptx_token *t, const char *s);
bool ptx_accept(ptx_reader *r, const char *s);
void ptx_expect(ptx_reader *r, const char *s);
ptx_token ptx_next(ptx_reader *r);
ptx_token ptx_word(ptx_reader *r, const char *what);
uint64_t ptx_number(ptx_reader *r, ptx_arg *a);
/* *p has room for one more than n */
bool ptx_grow(ptx_reader *r, void *p, int n, size_t size);

ptx_name *ptx_name_find(ptx_reader *r, const ptx_token *t, int32_t *at);
ptx_name *ptx_name_add(ptx_reader *r, int kind, ptx_token name);
void ptx_names_drop(ptx_reader *r, int to);
int ptx_read_type(ptx_reader *r, bool *predicate);
void ptx_read_variable(ptx_reader *r, int space, bool is_extern);
void ptx_read_body(ptx_reader *r);
void ptx_skip_line(ptx_reader *r);
void ptx_fix_labels(ptx_reader *r);
uint64_t ptx_take(size_t *used, size_t size, size_t align);

int32_t ptx_register(ptx_reader *r, int bytes);
int32_t ptx_constant(ptx_reader *r, uint64_t bits, int bytes);
int32_t ptx_address_of(ptx_reader *r, const ptx_name *v, int64_t offset, int bytes);
int32_t ptx_special(ptx_reader *r, const ptx_token *t, int *bytes); /* ptx_special.c */
void ptx_specials_set(ptx_group *g, bool first);
void ptx_jump(ptx_reader *r, ptx_token name, int code);
void ptx_return(ptx_reader *r, int code);

bool ptx_ops_index(ptx_reader *r);
void ptx_decode(ptx_reader *r);
bool ptx_decode_memory(ptx_reader *r, const ptx_parts *p); /* false: not one of these */
bool ptx_decode_control(ptx_reader *r, const ptx_parts *p);
ptx_inst *ptx_emit(ptx_reader *r);
void ptx_emit_op(ptx_reader *r, const char *name, int32_t d, int32_t a, int32_t b, int32_t c);
int32_t ptx_scratch(ptx_reader *r, int number, int bytes);
/* An argument as an operand of the class of a ptx_op's sig. */
int32_t ptx_source(ptx_reader *r, const ptx_arg *a, char type);
int32_t ptx_target(ptx_reader *r, const ptx_arg *a, char type);
uint64_t (*ptx_atomic_find(const char *operation, const char *type))(uint64_t old, uint64_t b, uint64_t c);
bool ptx_want(ptx_reader *r, int least, int most); /* as many arguments */

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct ptx_path { int pc; ptx_mask lanes; bool parked; } ptx_path; /* parked: waits for others of its warp */
typedef struct ptx_barred { ptx_mask lanes; int pc; const ptx_inst *inst; uint32_t id, count; } ptx_barred;
typedef struct ptx_run_state ptx_run_state;
struct ptx_group {
    ptx_run_state *run;
    unsigned char *base[2]; /* registers, constants */
    int number, pc, limit;  /* limit: the lowest pc at which others wait */
    ptx_mask lanes, alive;  /* that run now; that have not left */
    ptx_path paths[LANES];
    int n_paths;
    ptx_barred barred[LANES]; /* that wait at a barrier */
    int n_barred;
    ptx_mask spread_of;
    uint32_t spread[LANES];
    uint32_t warp_time[LANES / WARP]; /* bar.warp.sync's since the block's barrier */
};
typedef struct ptx_range { uint64_t lo, hi; unsigned char *host; } ptx_range;
typedef struct ptx_shadow ptx_shadow;
enum { BARRIERS = 16 };
struct ptx_run_state {
    const ptx_kernel *k;
    const ptx_launch *l;
    const ptx_memory *memory;
    const ptx_isa *isa;
    ptx_fault *fault;
    ptx_group *groups;
    int n_groups, n_threads;
    unsigned char *registers, *shared, *local;
    size_t shared_bytes;
    uint32_t block[3];
    uint64_t block_number, n_blocks, executed, most, random;
    uint32_t epoch;               /* counts the barriers of all blocks */
    uint32_t arrived[BARRIERS];   /* bar.arrive */
    ptx_range *ranges;            /* the last one of each memory instruction */
    bool *reported;               /* by instruction: a report comes once */
    uint64_t *shared_shadow;      /* per granule: last writer, last reader */
    ptx_shadow *global_shadow;
};

static inline void *ptx_at(const ptx_group *g, int32_t operand)
{
    return g->base[operand >> 30] + (operand & (PTX_CONST - 1));
}
static inline int ptx_first(ptx_mask m)
{
    return __builtin_ctzll(m);
}
static inline int ptx_thread(const ptx_group *g, int lane)
{
    return g->number * LANES + lane;
}
uint64_t ptx_random(uint64_t *state);
/* Fills in run->fault: kernel, line, block, thread, message. Returns code. A fault of code 0 is reported. */
int ptx_fail(ptx_group *g, const ptx_inst *i, int lane, int code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Values of the lanes into a register: 1, 4 or 8 bytes each. */
void ptx_write(ptx_group *g, int32_t d, const void *s, int bytes, ptx_mask lanes);
const uint32_t *ptx_spread(ptx_group *g, ptx_mask lanes);
void ptx_wait(ptx_group *g, int pc, ptx_mask lanes, bool parked);

ptx_exec ptx_load_inst, ptx_store_inst, ptx_atomic_inst;
ptx_exec ptx_branch, ptx_branch_indexed, ptx_exit, ptx_barrier, ptx_trap, ptx_clock, ptx_nothing;
ptx_exec ptx_shuffle, ptx_vote, ptx_match, ptx_reduce, ptx_active, ptx_warp_sync;
int ptx_barriers_open(ptx_run_state *run, bool *any);

/* An access of `size` bytes in a row at each lane's address, before it happens; host: where the address `origin` lies;
 * row: all lanes take part and lie side by side. */
int ptx_race_shared(ptx_group *g, const ptx_inst *i, const uint64_t *addresses, ptx_mask lanes, size_t size,
                    bool write);
int ptx_race_global(ptx_group *g, const ptx_inst *i, const uint64_t *addresses, ptx_mask lanes, size_t size, bool write,
                    const unsigned char *host, uint64_t origin, bool row);
bool ptx_race_begin(ptx_run_state *run);
void ptx_race_end(ptx_run_state *run);

#endif
