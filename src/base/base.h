/* base.h: what every folder of swoop stands on: failure with a message, memory, arena, log, data types, Philox.
 * Lowest floor of the house; includes nothing of swoop but the public status.h. */
#ifndef SW_BASE_BASE_H
#define SW_BASE_BASE_H

#include "swoop/status.h"
#include <stdarg.h>
#include <string.h>

#if defined(__GNUC__)
#define SW_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SW_UNUSED __attribute__((unused))
#define SW_RESTRICT __restrict__
#define SW_LIKELY(x) __builtin_expect(!!(x), 1)
#define SW_UNLIKELY(x) __builtin_expect(!!(x), 0)
#endif

#define SW_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define SW_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SW_MAX(a, b) ((a) > (b) ? (a) : (b))

/* ---- failure ---------------------------------------------------------------------------------------------------- */

/* Stores this thread's message (at most 1,023 bytes) and returns s: `return sw__fail(SW_ERR_IO, "%s: …", path);` */
sw_status sw__fail(sw_status s, const char *fmt, ...) SW_PRINTF(2, 3);
sw_status sw__failv(sw_status s, const char *fmt, va_list ap);
/* Puts "what: " in front of the present message, to add the place as a failure travels up. Returns s. */
sw_status sw__prefix(sw_status s, const char *fmt, ...) SW_PRINTF(2, 3);
/* "out of memory: %zu bytes for WHAT" */
sw_status sw__no_memory(size_t bytes, const char *what);

/* clang's analyzer sees one file at a time and would try the path where a failure comes back as SW_OK. */
#ifdef __clang_analyzer__
#define sw__fail(s, ...) ((void)sw__fail(s, __VA_ARGS__), (s))
#define sw__failv(s, fmt, ap) ((void)sw__failv(s, fmt, ap), (s))
#define sw__prefix(s, ...) ((void)sw__prefix(s, __VA_ARGS__), (s))
#define sw__no_memory(bytes, what) ((void)sw__no_memory(bytes, what), SW_ERR_MEMORY)
#endif

/* Returns from the calling function if expr fails. */
#define SW_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        const sw_status sw_try_ = (expr);                                                                              \
        if (sw_try_ != SW_OK) return sw_try_;                                                                          \
    } while (0)
/* The same, jumping to a clean-up label; the variable `st` (sw_status) must be in scope. */
#define SW_TRY_GOTO(expr, label)                                                                                       \
    do {                                                                                                               \
        st = (expr);                                                                                                   \
        if (st != SW_OK) goto label;                                                                                   \
    } while (0)

/* ---- memory: all of swoop allocates through these (tests make the n-th one fail by wrapping malloc and friends) --- */

void *sw__malloc(size_t bytes);                            /* never returns NULL for 0 bytes unless memory is out */
void *sw__calloc(size_t n, size_t size);                   /* overflow-checked */
void *sw__realloc(void *p, size_t n, size_t size);         /* overflow-checked; p stays valid on failure */
char *sw__strdup(const char *s);                           /* NULL in, NULL out */
char *sw__strndup(const char *s, size_t n);
char *sw__asprintf(const char *fmt, ...) SW_PRINTF(1, 2);  /* NULL if out of memory */
void sw__free(void *p);
void *sw__malloc_aligned(size_t align, size_t bytes);      /* align: power of two; free with sw__free */

/* A growing array without a type of its own: makes room for `need` elements of `size` bytes at *items. */
sw_status sw__grow(void *items, size_t *capacity, size_t need, size_t size, const char *what);

/* Checked size arithmetic: true and *out = a*b (a+b), or false on overflow. */
bool sw__mul_size(size_t a, size_t b, size_t *out);
bool sw__add_size(size_t a, size_t b, size_t *out);

/* An arena: many small allocations freed at once. Zero-initialise it; memory comes zeroed and 16-byte aligned. */
typedef struct sw__arena {
    struct sw__arena_block *head;
    size_t used; /* bytes handed out, for statistics */
} sw__arena;
void *sw__arena_alloc(sw__arena *a, size_t bytes); /* NULL if out of memory */
char *sw__arena_strdup(sw__arena *a, const char *s);
char *sw__arena_printf(sw__arena *a, const char *fmt, ...) SW_PRINTF(2, 3);
void sw__arena_free(sw__arena *a);

/* A growing text. On failed allocation it turns sticky-bad (failed = true, further appends ignored). */
typedef struct sw__text {
    char *s; /* NUL-terminated once anything was appended; NULL before */
    size_t len, capacity;
    bool failed;
} sw__text;
void sw__text_add(sw__text *t, const char *fmt, ...) SW_PRINTF(2, 3);
void sw__text_put(sw__text *t, const void *bytes, size_t n);
void sw__text_free(sw__text *t);

/* ---- log: SWOOP_LOG = error | warn | info | debug | trace (default warn), to stderr or a callback ----------------- */

enum { SW_LOG_ERROR = 0, SW_LOG_WARN, SW_LOG_INFO, SW_LOG_DEBUG, SW_LOG_TRACE };
void sw__log(int level, const char *fmt, ...) SW_PRINTF(2, 3);
bool sw__log_on(int level);

/* ---- data types --------------------------------------------------------------------------------------------------- */

uint16_t sw__f32_to_f16(float x);   /* round to nearest even, IEEE; NaN stays NaN */
float sw__f16_to_f32(uint16_t h);
uint16_t sw__f32_to_bf16(float x);  /* round to nearest even; NaN stays NaN */
float sw__bf16_to_f32(uint16_t h);
bool sw__dtype_is_float(sw_dtype t);
bool sw__dtype_parse(const char *name, sw_dtype *out);
/* Converts n elements from one type to another as a C cast would, floats to integers by truncation with saturation,
 * NaN to 0, to bool by != 0. Any two types. Buffers do not overlap. */
void sw__convert(void *dst, sw_dtype to, const void *src, sw_dtype from, size_t n);

/* ---- Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) ------------------------ */

void sw__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A host-side stream on Philox for initial weights and shuffles: same seed and stream, same numbers everywhere. */
typedef struct sw__rng {
    uint32_t key[2], counter[4], out[4];
    int left;
} sw__rng;
void sw__rng_init(sw__rng *r, uint64_t seed, uint64_t stream);
uint32_t sw__rng_u32(sw__rng *r);
double sw__rng_uniform(sw__rng *r);                   /* [0, 1), 53 bits */
double sw__rng_normal(sw__rng *r);                    /* Box-Muller, two draws each */
/* The i-th number of a fresh stream and those after it: what n calls of the above give, from any place. */
void sw__rng_uniforms(const sw__rng *fresh, uint64_t i, double *out, size_t n);
void sw__rng_normals(const sw__rng *fresh, uint64_t i, double *out, size_t n);
uint64_t sw__rng_below(sw__rng *r, uint64_t n);       /* unbiased, n > 0 */
void sw__rng_shuffle(sw__rng *r, int64_t *items, size_t n);

/* ---- names --------------------------------------------------------------------------------------------------------- */

/* A table from names to numbers. Zero-initialise it; keys are the caller's and must stay. */
typedef struct sw__name { const char *key; uint32_t value; } sw__name;
typedef struct sw__names { sw__name *slot; size_t n, capacity; } sw__names;
bool sw__names_find(const sw__names *t, const char *key, uint32_t *value);
sw_status sw__names_put(sw__names *t, const char *key, uint32_t value); /* replaces */
void sw__names_free(sw__names *t);
uint64_t sw__name_hash(const char *s); /* FNV-1a */

/* The candidate nearest to `word` (edit distance at most a third of its length, at least 1), or NULL. For messages. */
const char *sw__nearest(const char *word, const char *const *candidates, size_t n);

/* Seconds on a clock that never jumps. */
double sw__now(void);

/* A library's function (dlopen's handle) into the pointer at `pointer`, which is left alone where there is none: false. */
bool sw__symbol(void *library, const char *name, void *pointer, size_t size);

#endif
