/* inflate.c: a DEFLATE decoder (RFC 1951) made for speed on large outputs: one table look-up per symbol, a 64-bit bit
 * buffer filled without branches, matches copied in words. Under stream.c, which adds gzip's and zip's wrappers. */
#include "io/inflate.h"

enum {
    WINDOW = 32768,       /* how far a match may reach back */
    INPUT = 256 * 1024,   /* compressed bytes at hand */
    PADDING = 64,         /* zeros after the input's end: the bit buffer is filled 8 bytes at a time */
    PRIMARY = 11,         /* bits of the first look-up: literals and lengths; */
    PRIMARY_DISTANCE = 9, /* distances; */
    PRIMARY_LENGTHS = 7,  /* code lengths, whose codes are no longer than that */
    LITERALS = 288,
    DISTANCES = 32,
    LENGTHS = 19,
    LONGEST_CODE = 15,
    LONGEST_MATCH = 258,
    FAST_OUTPUT = LONGEST_MATCH + 16, /* room that the fast loop needs: a match copied in words, and literals */
    STEP_BYTES = 32                   /* input that one turn of the loop can need */
};

/* A table entry: bits 0-7 what to take from the bit buffer (code and extra bits); bits 8-12 the code's part of it; bits
 * 16-27 a literal, the base of a length or, in 15 bits, of a distance, or where a second table begins. */
#define ENTRY_LITERAL 0x80000000u
#define ENTRY_SECOND 0x40000000u /* bits 8-12: bits of the second look-up */
#define ENTRY_END 0x20000000u    /* end of block */
#define ENTRY_BAD 0x10000000u    /* no code begins so */
/* Distances use bits 16-30, and have no literals: their flags are in bits 13-15. */
#define DISTANCE_SECOND 0x4000u
#define DISTANCE_BAD 0x2000u

typedef enum mode { BLOCK, STORED, CODES, ENDED } mode;

struct sw__inflate {
    sw__inflate_source source;
    void *context;

    uint64_t bits; /* the next `count` bits, first in the lowest; what is above them repeats at a refill */
    unsigned count;
    const uint8_t *in, *end; /* not yet in the bit buffer; into input */
    bool source_ended;

    mode mode;
    bool last_block;
    size_t stored_left;                  /* of a stored block */
    unsigned match_left, match_distance; /* of a match that did not fit into the output */

    size_t history; /* bytes in window */
    /* The last output of earlier calls; twice the need, so that small pieces rarely move it. */
    uint8_t window[2 * WINDOW];
    uint32_t literals[4096]; /* (1 << PRIMARY) and second tables: at most 2,342 for 288 codes of up to 15 bits */
    uint32_t distances[1024];
    uint8_t input[INPUT + PADDING];
};

/* Output of one call. */
typedef struct output {
    uint8_t *start, *at, *end;
} output;

/* ---- input ------------------------------------------------------------------------------------------------------- */

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

/* At least 56 bits. The bytes that only partly fit are loaded again next time: their bits fall on themselves. */
static inline void fill(sw__inflate *z)
{
    z->bits |= load64(z->in) << z->count;
    z->in += (63 - z->count) >> 3;
    z->count |= 56;
}

static inline unsigned take(sw__inflate *z, unsigned n)
{
    const unsigned v = (unsigned)(z->bits & ((1u << n) - 1));
    z->bits >>= n;
    z->count -= n;
    return v;
}

/* Gives the whole bytes in the bit buffer back to the input. */
static void unfill(sw__inflate *z)
{
    z->in -= z->count >> 3;
    z->bits = 0;
    z->count = 0;
}

/* The bytes taken so far are really there (and not the padding). */
static bool is_true(const sw__inflate *z)
{
    return z->in - (z->count >> 3) <= z->end;
}

/* Makes sure of STEP_BYTES bytes at z->in; zeros stand for what is missing at the source's end. */
static sw_status more_input(sw__inflate *z)
{
    while (!z->source_ended && z->end - z->in < STEP_BYTES) {
        const size_t held = z->count >> 3; /* in the bit buffer; unfill may want them back */
        const size_t left = (size_t)(z->end - z->in) + held;
        memmove(z->input, z->in - held, left);
        z->in = z->input + held;
        z->end = z->input + left;
        size_t got = 0;
        SW_TRY(z->source(z->context, z->input + left, INPUT - left, &got));
        z->end += got;
        z->source_ended = got == 0;
        if (z->source_ended) memset(z->input + left, 0, PADDING);
    }
    return SW_OK;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static const uint16_t length_bases[29] = { 3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                           31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258 };
static const uint8_t length_extra[29] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                          2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0 };
static const uint16_t distance_bases[30] = { 1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                             33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                             1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577 };

static uint32_t literal_entry(unsigned symbol, unsigned bits)
{
    if (symbol < 256) return ENTRY_LITERAL | symbol << 16 | bits << 8 | bits;
    if (symbol == 256) return ENTRY_END | bits << 8 | bits;
    if (symbol > 285) return ENTRY_BAD;
    return (uint32_t)length_bases[symbol - 257] << 16 | bits << 8 | (bits + length_extra[symbol - 257]);
}

static uint32_t distance_entry(unsigned symbol, unsigned bits)
{
    if (symbol > 29) return DISTANCE_BAD;
    const unsigned extra = symbol < 4 ? 0 : symbol / 2 - 1;
    return (uint32_t)distance_bases[symbol] << 16 | bits << 8 | (bits + extra);
}

static uint32_t length_entry(unsigned symbol, unsigned bits)
{
    return symbol << 16 | bits << 8 | bits;
}

/* A code to build: lengths of its symbols' codes, and how its entries look. */
typedef struct code {
    const uint8_t *lengths;
    unsigned symbols, primary;
    uint32_t (*entry)(unsigned symbol, unsigned bits);
    uint32_t second, bad; /* flags */
    uint32_t *table;
    size_t capacity;
} code;

/* Steps a bit-reversed code of n bits to the next one. */
static unsigned next_reversed(unsigned c, unsigned n)
{
    unsigned bit = 1u << (n - 1);
    while (c & bit) bit >>= 1;
    return bit != 0 ? (c & (bit - 1)) + bit : 0;
}

/* Bits of the second table for codes of n bits and more that share a beginning: it grows until they fill it. */
static unsigned second_bits(const unsigned counts[LONGEST_CODE + 1], unsigned n, unsigned primary)
{
    unsigned bits = n - primary;
    int left = 1 << bits;
    while (bits + primary < LONGEST_CODE) {
        left -= (int)counts[bits + primary];
        if (left <= 0) break;
        bits++;
        left <<= 1;
    }
    return bits;
}

/* Symbols in the order of their codes; counts per length. Returns the longest length. */
static unsigned sort_symbols(const code *k, unsigned counts[LONGEST_CODE + 1], uint16_t *sorted)
{
    unsigned offsets[LONGEST_CODE + 2] = { 0 }, longest = 0;
    memset(counts, 0, (LONGEST_CODE + 1) * sizeof *counts);
    for (unsigned s = 0; s < k->symbols; s++) counts[k->lengths[s]]++;
    for (unsigned n = 1; n <= LONGEST_CODE; n++) {
        offsets[n + 1] = offsets[n] + counts[n];
        if (counts[n] > 0) longest = n;
    }
    for (unsigned s = 0; s < k->symbols; s++) {
        if (k->lengths[s] > 0) sorted[offsets[k->lengths[s]]++] = (uint16_t)s;
    }
    return longest;
}

/* The codes must use up all bit strings, no more and no less; one lone code of one bit is allowed, as in zlib. */
static bool is_complete(const unsigned counts[LONGEST_CODE + 1], unsigned longest, bool lone_allowed)
{
    int left = 1;
    for (unsigned n = 1; n <= LONGEST_CODE; n++) {
        left = left * 2 - (int)counts[n];
        if (left < 0) return false;
    }
    return left == 0 || (lone_allowed && longest <= 1);
}

/* Fills the table so that the next bits of the input, as an index, give the symbol whose code they begin with. */
static bool build(const code *k, bool lone_allowed)
{
    unsigned counts[LONGEST_CODE + 1];
    uint16_t sorted[LITERALS];
    const unsigned longest = sort_symbols(k, counts, sorted);
    if (!is_complete(counts, longest, lone_allowed)) return false;
    const size_t size = (size_t)1 << k->primary;
    if (longest <= 1) { /* not all of the table is filled below */
        for (size_t i = 0; i < size; i++) k->table[i] = k->bad;
    }
    unsigned reversed = 0, at = 0, open = UINT32_MAX, bits = 0;
    size_t second = 0, used = size;
    for (unsigned n = 1; n <= longest; n++) {
        for (unsigned left = counts[n]; left > 0; left--) {
            const unsigned symbol = sorted[at++];
            if (n <= k->primary) {
                const uint32_t e = k->entry(symbol, n);
                for (size_t i = reversed; i < size; i += (size_t)1 << n) k->table[i] = e;
            } else {
                const unsigned begin = reversed & (unsigned)(size - 1);
                if (begin != open) {
                    open = begin;
                    second = used;
                    counts[n] = left; /* those before are done */
                    bits = second_bits(counts, n, k->primary);
                    used += (size_t)1 << bits;
                    if (used > k->capacity) return false;
                    k->table[begin] = k->second | (uint32_t)second << 16 | bits << 8 | k->primary;
                }
                const uint32_t e = k->entry(symbol, n - k->primary);
                for (size_t i = reversed >> k->primary; i < (size_t)1 << bits; i += (size_t)1 << (n - k->primary)) {
                    k->table[second + i] = e;
                }
            }
            reversed = next_reversed(reversed, n);
        }
    }
    return true;
}

static bool build_both(sw__inflate *z, const uint8_t *lengths, unsigned literals, unsigned distances)
{
    const code a = { .lengths = lengths,
                     .symbols = literals,
                     .primary = PRIMARY,
                     .entry = literal_entry,
                     .second = ENTRY_SECOND,
                     .bad = ENTRY_BAD,
                     .table = z->literals,
                     .capacity = SW_COUNT(z->literals) };
    const code b = { .lengths = lengths + literals,
                     .symbols = distances,
                     .primary = PRIMARY_DISTANCE,
                     .entry = distance_entry,
                     .second = DISTANCE_SECOND,
                     .bad = DISTANCE_BAD,
                     .table = z->distances,
                     .capacity = SW_COUNT(z->distances) };
    return build(&a, true) && build(&b, true);
}

/* ---- block headers ----------------------------------------------------------------------------------------------- */

static const char *begin_fixed(sw__inflate *z)
{
    uint8_t lengths[LITERALS + DISTANCES];
    for (unsigned s = 0; s < LITERALS; s++) lengths[s] = s < 144 ? 8 : s < 256 ? 9 : s < 280 ? 7 : 8;
    memset(lengths + LITERALS, 5, DISTANCES);
    build_both(z, lengths, LITERALS, DISTANCES);
    z->mode = CODES;
    return NULL;
}

/* The code lengths of a dynamic block, themselves coded, with runs. */
static const char *read_lengths(sw__inflate *z, const uint32_t *table, uint8_t *lengths, unsigned n, sw_status *st)
{
    for (unsigned at = 0; at < n;) {
        *st = more_input(z);
        if (*st != SW_OK) return NULL;
        if (!is_true(z)) return "they are cut short";
        fill(z);
        const uint32_t e = table[z->bits & ((1u << PRIMARY_LENGTHS) - 1)];
        const unsigned symbol = e >> 16;
        take(z, e & 0xFF);
        if (symbol < 16) {
            lengths[at++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && at == 0) return "a run of code lengths has nothing to repeat";
        const uint8_t value = symbol == 16 ? lengths[at - 1] : 0;
        unsigned run = symbol == 16 ? 3 + take(z, 2) : symbol == 17 ? 3 + take(z, 3) : 11 + take(z, 7);
        if (run > n - at) return "a run of code lengths is too long";
        while (run-- > 0) lengths[at++] = value;
    }
    return NULL;
}

static const char *begin_dynamic(sw__inflate *z, sw_status *st)
{
    static const uint8_t order[LENGTHS] = { 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15 };
    fill(z);
    const unsigned literals = take(z, 5) + 257, distances = take(z, 5) + 1, n = take(z, 4) + 4;
    if (literals > 286 || distances > 30) return "too many codes";
    uint8_t code_lengths[LENGTHS] = { 0 }, lengths[LITERALS + DISTANCES];
    for (unsigned i = 0; i < n; i++) {
        if (z->count < 3) fill(z);
        code_lengths[order[i]] = (uint8_t)take(z, 3);
    }
    uint32_t table[1 << PRIMARY_LENGTHS];
    const code k = { .lengths = code_lengths,
                     .symbols = LENGTHS,
                     .primary = PRIMARY_LENGTHS,
                     .entry = length_entry,
                     .table = table,
                     .capacity = SW_COUNT(table) };
    if (!build(&k, false)) return "the code of code lengths is not complete";
    const char *const wrong = read_lengths(z, table, lengths, literals + distances, st);
    if (wrong != NULL || *st != SW_OK) return wrong;
    if (lengths[256] == 0) return "there is no code for the end of the block";
    if (!build_both(z, lengths, literals, distances)) return "a code is not complete";
    z->mode = CODES;
    return NULL;
}

static const char *begin_stored(sw__inflate *z)
{
    take(z, z->count & 7);
    unfill(z);
    const unsigned length = z->in[0] | (unsigned)z->in[1] << 8, check = z->in[2] | (unsigned)z->in[3] << 8;
    z->in += 4;
    if ((length ^ check) != 0xFFFF) return "the length of a stored block is wrong";
    z->stored_left = length;
    z->mode = STORED;
    return NULL;
}

static const char *begin_block(sw__inflate *z, sw_status *st)
{
    if (z->last_block) {
        unfill(z);
        z->mode = ENDED;
        return NULL;
    }
    fill(z);
    z->last_block = take(z, 1) != 0;
    switch (take(z, 2)) {
    case 0:
        return begin_stored(z);
    case 1:
        return begin_fixed(z);
    case 2:
        return begin_dynamic(z, st);
    default:
        return "a block has no known type";
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* A match within the output, with room for whole words after it. */
static inline uint8_t *copy_words(uint8_t *to, unsigned length, unsigned distance)
{
    uint8_t *const end = to + length;
    const uint8_t *from = to - distance;
    if (distance >= 8) {
        do {
            memcpy(to, from, 8);
            memcpy(to + 8, from + 8, 8);
            to += 16;
            from += 16;
        } while (to < end);
    } else if (distance == 1) {
        const uint64_t v = 0x0101010101010101u * *from;
        do {
            memcpy(to, &v, 8);
            memcpy(to + 8, &v, 8);
            to += 16;
        } while (to < end);
    } else {
        do *to++ = *from++;
        while (to < end);
    }
    return end;
}

/* The bit buffer in local variables. FILL gives at least 56 bits; LOOK_UP wants 15 of them, and takes a first table's
 * bits if the code goes on in a second. */
#define FILL()                                                                                                         \
    do {                                                                                                               \
        bits |= load64(in) << count;                                                                                   \
        in += (63 - count) >> 3;                                                                                       \
        count |= 56;                                                                                                   \
    } while (0)
#define FIRST(table, primary) ((table)[bits & ((1u << (primary)) - 1)])
#define SECOND(entry, table, primary)                                                                                  \
    do {                                                                                                               \
        bits >>= (primary);                                                                                            \
        count -= (primary);                                                                                            \
        (entry) = (table)[((entry) >> 16 & 0xFFF) + (bits & ((1u << ((entry) >> 8 & 31)) - 1))];                       \
    } while (0)
#define TAKE(entry)                                                                                                    \
    do {                                                                                                               \
        bits >>= (entry)&63;                                                                                           \
        count -= (entry)&63;                                                                                           \
    } while (0)
/* base + the extra bits between the code and the entry's end */
#define VALUE(entry, base) ((base) + (unsigned)((bits & (((uint64_t)1 << ((entry)&63)) - 1)) >> ((entry) >> 8 & 31)))

#define LITERAL()                                                                                                      \
    do {                                                                                                               \
        TAKE(e);                                                                                                       \
        *out++ = (uint8_t)(e >> 16);                                                                                   \
    } while (0)

#define LOAD_STATE()                                                                                                   \
    uint64_t bits = z->bits;                                                                                           \
    unsigned count = z->count;                                                                                         \
    const uint8_t *in = z->in;                                                                                         \
    uint8_t *out = o->at
#define STORE_STATE()                                                                                                  \
    do {                                                                                                               \
        z->bits = bits;                                                                                                \
        z->count = count;                                                                                              \
        z->in = in;                                                                                                    \
        o->at = out;                                                                                                   \
    } while (0)

/* Decodes while there is plenty of input and output, up to the end of the block at most. Leaves the rest, and matches
 * that begin in the output of an earlier call, to decode_one. */
static inline __attribute__((always_inline)) const char *decode_fast_body(sw__inflate *z, output *o)
{
    LOAD_STATE();
    const uint32_t *const literals = z->literals, *const distances = z->distances;
    const uint8_t *const in_end = z->end - STEP_BYTES, *const out_end = o->end - FAST_OUTPUT;
    const char *wrong = NULL;
    while (in <= in_end && out < out_end) {
        FILL();
        uint32_t e = FIRST(literals, PRIMARY);
        if (e & ENTRY_LITERAL) { /* three take at most 33 bits of 56 */
            LITERAL();
            e = FIRST(literals, PRIMARY);
            if (e & ENTRY_LITERAL) {
                LITERAL();
                e = FIRST(literals, PRIMARY);
                if (e & ENTRY_LITERAL) {
                    LITERAL();
                    continue;
                }
            }
        }
        if (e & (ENTRY_SECOND | ENTRY_END | ENTRY_BAD)) {
            if (e & ENTRY_SECOND) SECOND(e, literals, PRIMARY); /* 22 bits for literals, 15 for this code: 19 left */
            if (e & ENTRY_LITERAL) {
                LITERAL();
                continue;
            }
            if (e & (ENTRY_END | ENTRY_BAD)) {
                TAKE(e);
                z->mode = BLOCK;
                if (e & ENTRY_BAD) wrong = "no code begins with these bits";
                break;
            }
        }
        const unsigned length = VALUE(e, e >> 16 & 0xFFF);
        TAKE(e);
        FILL();
        e = FIRST(distances, PRIMARY_DISTANCE);
        if (e & DISTANCE_SECOND) SECOND(e, distances, PRIMARY_DISTANCE);
        const unsigned distance = VALUE(e, e >> 16);
        TAKE(e);
        if ((e & DISTANCE_BAD) || distance > (size_t)(out - o->start)) { /* decode_one's copy, or an error */
            z->match_left = length;
            z->match_distance = (e & DISTANCE_BAD) ? UINT32_MAX : distance;
            break;
        }
        out = copy_words(out, length, distance);
    }
    STORE_STATE();
    return wrong;
}

static const char *decode_fast_plain(sw__inflate *z, output *o)
{
    return decode_fast_body(z, o);
}

#if defined(__x86_64__)
/* Shifts by a variable amount and bit fields in one instruction each. */
static __attribute__((target("bmi,bmi2"))) const char *decode_fast_bmi2(sw__inflate *z, output *o)
{
    return decode_fast_body(z, o);
}

static const char *decode_fast(sw__inflate *z, output *o)
{
    return __builtin_cpu_supports("bmi2") ? decode_fast_bmi2(z, o) : decode_fast_plain(z, o);
}
#else
static const char *decode_fast(sw__inflate *z, output *o)
{
    return decode_fast_plain(z, o);
}
#endif

/* One symbol, near the ends of input or output. */
static const char *decode_one(sw__inflate *z, output *o)
{
    LOAD_STATE();
    FILL();
    uint32_t e = FIRST(z->literals, PRIMARY);
    if (e & ENTRY_SECOND) SECOND(e, z->literals, PRIMARY);
    if (e & ENTRY_LITERAL) {
        LITERAL();
    } else if (e & (ENTRY_END | ENTRY_BAD)) {
        TAKE(e);
        z->mode = BLOCK;
    } else {
        z->match_left = VALUE(e, e >> 16 & 0xFFF);
        TAKE(e);
        FILL();
        uint32_t d = FIRST(z->distances, PRIMARY_DISTANCE);
        if (d & DISTANCE_SECOND) SECOND(d, z->distances, PRIMARY_DISTANCE);
        z->match_distance = (d & DISTANCE_BAD) ? UINT32_MAX : VALUE(d, d >> 16);
        TAKE(d);
    }
    STORE_STATE();
    return (e & ENTRY_BAD) ? "no code begins with these bits" : NULL;
}

/* As much of the pending match as fits, byte by byte; it may begin in the output of an earlier call. */
static const char *copy_match(sw__inflate *z, output *o)
{
    if (z->match_distance == UINT32_MAX) return "no distance has such a code";
    if (z->match_distance > (size_t)(o->at - o->start) + z->history) return "a match reaches back before the beginning";
    const size_t n = SW_MIN((size_t)z->match_left, (size_t)(o->end - o->at));
    for (size_t i = 0; i < n; i++) {
        const size_t have = (size_t)(o->at - o->start);
        *o->at = z->match_distance <= have ? o->at[-(ptrdiff_t)z->match_distance]
                                           : z->window[z->history - (z->match_distance - have)];
        o->at++;
    }
    z->match_left -= (unsigned)n;
    return NULL;
}

static void copy_stored(sw__inflate *z, output *o)
{
    size_t n = SW_MIN(z->stored_left, (size_t)(o->end - o->at));
    n = z->in < z->end ? SW_MIN(n, (size_t)(z->end - z->in)) : 0;
    if (n > 0) memcpy(o->at, z->in, n);
    o->at += n;
    z->in += n;
    z->stored_left -= n;
    if (z->stored_left == 0) z->mode = BLOCK;
}

/* Keeps the last WINDOW bytes of all output for matches of the next call. */
static void keep_history(sw__inflate *z, const output *o)
{
    const size_t n = SW_MIN((size_t)(o->at - o->start), (size_t)WINDOW);
    if (z->history + n > sizeof z->window) {
        memmove(z->window, z->window + z->history - WINDOW, WINDOW);
        z->history = WINDOW;
    }
    if (n > 0) memcpy(z->window + z->history, o->at - n, n);
    z->history += n;
}

/* One turn: a block's header, or as much of its content as possible. */
static const char *turn(sw__inflate *z, output *o, sw_status *st)
{
    switch (z->mode) {
    case BLOCK:
        return begin_block(z, st);
    case STORED:
        copy_stored(z, o);
        return NULL;
    case CODES:
        break;
    case ENDED:
        return NULL;
    }
    if (z->match_left > 0) return copy_match(z, o);
    if (z->end - z->in > STEP_BYTES && o->end - o->at > FAST_OUTPUT) return decode_fast(z, o);
    return decode_one(z, o);
}

sw_status sw__inflate_read(sw__inflate *z, void *dst, size_t n, size_t *got, const char **wrong)
{
    output o = { .start = dst, .at = dst, .end = (uint8_t *)dst + n };
    sw_status st = SW_OK;
    *wrong = NULL;
    /* A block may end, and the next begin, without any output: only then is the end known. */
    while (st == SW_OK && *wrong == NULL && z->mode != ENDED && (o.at < o.end || z->mode == BLOCK)) {
        st = more_input(z);
        if (st != SW_OK) break;
        *wrong = turn(z, &o, &st);
        const bool stored_ends =
            z->mode == STORED && z->stored_left > 0 && z->source_ended && z->in >= z->end && o.at < o.end;
        /* Whatever the zeros in the place of what is missing looked like. */
        if (stored_ends || !is_true(z)) *wrong = "they are cut short";
    }
    keep_history(z, &o);
    *got = (size_t)(o.at - o.start);
    return st;
}

bool sw__inflate_ended(const sw__inflate *z)
{
    return z->mode == ENDED;
}

sw_status sw__inflate_plain(sw__inflate *z, void *dst, size_t n, size_t *got)
{
    uint8_t *to = dst;
    unfill(z);
    for (*got = 0; *got < n;) {
        SW_TRY(more_input(z));
        if (z->in >= z->end) break;
        const size_t some = SW_MIN(n - *got, (size_t)(z->end - z->in));
        memcpy(to + *got, z->in, some);
        z->in += some;
        *got += some;
    }
    return SW_OK;
}

void sw__inflate_restart(sw__inflate *z)
{
    unfill(z);
    z->mode = BLOCK;
    z->last_block = false;
    z->history = 0;
    z->match_left = 0;
}

sw__inflate *sw__inflate_new(sw__inflate_source source, void *context)
{
    sw__inflate *const z = sw__malloc(sizeof *z);
    if (z == NULL) return NULL;
    memset(z, 0, offsetof(sw__inflate, window)); /* the rest is written before it is read */
    z->source = source;
    z->context = context;
    z->in = z->end = z->input;
    return z;
}

void sw__inflate_rebind(sw__inflate *z, void *context)
{
    z->context = context;
}
