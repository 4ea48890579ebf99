/* text.c: a text file as a data set for networks that predict what comes next: characters or bytes are tokens, a sample is
 * `sequence` of them, its labels the same moved by one. Beside open.c; samples are cut out as they are asked for. */
#include "data/storage.h"
#include "io/json.h"
#include <inttypes.h>
#include <stdlib.h>

#define LARGEST_FILE ((uint64_t)1 << 34)
#define CODE_POINTS 0x110000

typedef struct text {
    uint8_t *bytes;     /* the file; as tokens where there are at most 256 of them */
    uint32_t *wide;     /* or these */
    int64_t n, sequence;
} text;

static void free_text(void *context)
{
    text *const t = context;
    if (t == NULL) return;
    sw__free(t->bytes);
    sw__free(t->wide);
    sw__free(t);
}

static int64_t token(const text *t, int64_t i)
{
    return t->wide != NULL ? (int64_t)t->wide[i] : (int64_t)t->bytes[i];
}

static sw_status get(void *context, int64_t index, void *x, void *y)
{
    const text *const t = context;
    int64_t *const to_x = x, *const to_y = y;
    const int64_t from = index * t->sequence;
    for (int64_t i = 0; i < t->sequence; i++) {
        to_x[i] = token(t, from + i);
        to_y[i] = token(t, from + i + 1);
    }
    return SW_OK;
}

/* ---- characters ---------------------------------------------------------------------------------------------------- */

static size_t decode_at(const text *t, int64_t i, uint32_t *code)
{
    return sw__utf8_decode((const char *)t->bytes + i, (size_t)(t->n - i), code);
}

static void encode(uint32_t c, char out[5])
{
    const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t first[5] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    memset(out, 0, 5);
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(first[n] | c);
}

/* Which characters there are: numbered[code] is 1 + its token; they count in the order of their code points. */
static sw_status number_characters(const char *path, const text *t, uint32_t *numbered, int64_t *classes)
{
    uint32_t code = 0;
    for (int64_t i = 0; i < t->n;) {
        const size_t n = decode_at(t, i, &code);
        if (n == 0)
            return sw__bad_byte(path, (uint64_t)i, "no UTF-8 character begins with 0x%02x here: is this text? format bytes "
                                "takes any file", t->bytes[i]);
        numbered[code] = 1;
        i += (int64_t)n;
    }
    *classes = 0;
    for (uint32_t c = 0; c < CODE_POINTS; c++)
        if (numbered[c] != 0) numbered[c] = (uint32_t)++*classes;
    return SW_OK;
}

/* The same from a vocabulary that is given: that of a model. */
static sw_status number_given(const sw_dataset_options *o, uint32_t *numbered)
{
    for (int64_t c = 0; c < o->n_vocabulary; c++) {
        const char *const s = o->vocabulary[c];
        uint32_t code = 0;
        const size_t len = s != NULL ? strlen(s) : 0;
        const size_t n = s == NULL ? 0 : sw__utf8_decode(s, SW_MAX(len, (size_t)1), &code);
        if (n == 0 || n != SW_MAX(len, (size_t)1))
            return sw__fail(SW_ERR_ARGUMENT, "vocabulary: entry %" PRId64 " is not one character", c);
        numbered[code] = (uint32_t)c + 1;
    }
    return SW_OK;
}

/* Bytes become tokens: in place while there are at most 256 of them, as a token is no longer than its character. */
static sw_status tokenize(const char *path, text *t, const uint32_t *numbered, int64_t classes)
{
    int64_t n = 0;
    if (classes > 256 && !(t->wide = sw__malloc((size_t)t->n * sizeof *t->wide)))
        return sw__no_memory((size_t)t->n * sizeof *t->wide, "a text's characters");
    for (int64_t i = 0; i < t->n; n++) {
        uint32_t code = 0;
        const size_t length = decode_at(t, i, &code);
        if (length == 0) return sw__bad_byte(path, (uint64_t)i, "no UTF-8 character begins with 0x%02x here", t->bytes[i]);
        if (numbered[code] == 0) {
            char shown[5];
            encode(code, shown);
            return sw__bad_byte(path, (uint64_t)i, "the character '%s' (U+%04" PRIX32 ") is none of the %" PRId64 " that the "
                                "model knows", shown, code, classes);
        }
        if (t->wide != NULL)
            t->wide[n] = numbered[code] - 1;
        else
            t->bytes[n] = (uint8_t)(numbered[code] - 1);
        i += (int64_t)length;
    }
    t->n = n;
    return SW_OK;
}

static sw_status name_characters(const uint32_t *numbered, int64_t classes, sw_dataset *d)
{
    char(*const spelt)[5] = sw__calloc((size_t)classes, sizeof *spelt);
    const char **const names = sw__calloc((size_t)classes, sizeof *names);
    sw_status st = SW_OK;
    if (spelt == NULL || names == NULL) st = sw__no_memory((size_t)classes * sizeof *spelt, "a vocabulary");
    for (uint32_t c = 0; st == SW_OK && c < CODE_POINTS; c++) {
        if (numbered[c] == 0) continue;
        encode(c, spelt[numbered[c] - 1]);
        names[numbered[c] - 1] = spelt[numbered[c] - 1];
    }
    if (st == SW_OK) st = sw_dataset_set_class_names(d, names, classes);
    sw__free(spelt);
    sw__free(names);
    return st;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

sw_status sw__text_read(const char *path, uint8_t **bytes, int64_t *n)
{
    sw__stream s;
    size_t room = 1 << 16, got = 0;
    *n = 0;
    SW_TRY(sw__stream_open(&s, path));
    sw_status st = SW_OK;
    for (bool more = true; st == SW_OK && more;) {
        uint8_t *const larger = (uint64_t)room <= LARGEST_FILE ? sw__realloc(*bytes, room, 1) : NULL;
        if (larger == NULL) {
            st = sw__no_memory(room, "a text");
            break;
        }
        *bytes = larger;
        st = sw__stream_read_some(&s, larger + *n, room - (size_t)*n, &got);
        *n += (int64_t)got;
        more = (size_t)*n == room;
        room *= 2;
    }
    if (st == SW_OK) st = sw__stream_end(&s);
    sw__stream_close(&s);
    return st;
}

static sw_status make_dataset(const char *path, text *t, int64_t classes, const char *format, sw_dataset **out)
{
    if (t->n < t->sequence + 1)
        return sw__fail(SW_ERR_DATA, "%s: %" PRId64 " tokens, too few for one sequence of %" PRId64 " and what comes next",
                        path, t->n, t->sequence);
    const sw_dataset_callback c = { .name = path, .count = (t->n - 1) / t->sequence, .tokens = true, .x_rank = 1,
                                    .x_shape = { t->sequence }, .target = SW_TARGET_CLASS, .num_classes = classes,
                                    .y_rank = 1, .y_shape = { t->sequence }, .get = get, .release = free_text,
                                    .context = t };
    SW_TRY(sw_dataset_from_callback(&c, out));
    (*out)->storage->format = (*out)->info.format = format;
    (*out)->storage->in_order = true;
    return SW_OK;
}

static bool ends_in(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

bool sw__is_lines(const char *path, const char *format)
{
    if (format != NULL && strcmp(format, "lines") == 0) return true;
    const bool open = format == NULL || strcmp(format, "auto") == 0;
    return open && (ends_in(path, ".tsv") || ends_in(path, ".tsv.gz"));
}

bool sw__is_text(const char *path, const char *format)
{
    if (format != NULL && (strcmp(format, "text") == 0 || strcmp(format, "bytes") == 0)) return true;
    const bool open = format == NULL || strcmp(format, "auto") == 0;
    return open && (ends_in(path, ".txt") || ends_in(path, ".txt.gz"));
}

sw_status sw__text_open(const char *path, const sw_dataset_options *o, sw_dataset **out)
{
    const bool bytes = o->format != NULL && strcmp(o->format, "bytes") == 0;
    int64_t classes = bytes ? 256 : o->n_vocabulary;
    text *const t = sw__calloc(1, sizeof *t);
    uint32_t *const numbered = bytes ? NULL : sw__calloc(CODE_POINTS, sizeof *numbered);
    sw_dataset *d = NULL;
    sw_status st = t && (bytes || numbered) ? SW_OK : sw__no_memory(CODE_POINTS * sizeof *numbered, "a vocabulary");
    if (st == SW_OK) st = sw__text_read(path, &t->bytes, &t->n);
    if (st == SW_OK) t->sequence = o->sequence > 0 ? o->sequence : 128;
    if (st == SW_OK && !bytes)
        st = o->vocabulary ? number_given(o, numbered) : number_characters(path, t, numbered, &classes);
    if (st == SW_OK && !bytes) st = tokenize(path, t, numbered, classes);
    if (st == SW_OK && o->num_classes > 0 && o->num_classes != classes)
        st = sw__fail(SW_ERR_ARGUMENT, "%s: num_classes is %" PRId64 ", but there are %" PRId64 " %s: leave it out",
                      path, o->num_classes, classes, bytes ? "bytes" : "different characters");
    if (st == SW_OK) st = make_dataset(path, t, classes, bytes ? "bytes" : "text", &d);
    if (d == NULL) free_text(t); /* else it is the data set's */
    if (st == SW_OK && !bytes) st = name_characters(numbered, classes, d);
    sw__free(numbered);
    if (st != SW_OK) {
        sw_dataset_close(d);
        return st;
    }
    *out = d;
    return SW_OK;
}
