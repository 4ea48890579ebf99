/* npy.c: NumPy's NPY files, versions 1 to 3: a Python dictionary with type, order and shape, then the data.
 * A reader and writer of io; npz.c reads archives of them. */
#include "io/atomic.h"
#include "io/readers.h"
#include <inttypes.h>
#include <stdio.h>

/* The format (numpy.org/neps/nep-0001): "\x93NUMPY", version (2 bytes), header length (2 bytes little-endian in version
 * 1, else 4), then the header text: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and padding. */
enum { HEADER_MOST = 1024 * 1024, START = 8 };

static bool npy_element(char kind, char digit, sw__element *out)
{
    static const struct {
        char kind, digit;
        sw__element element;
    } kinds[] = { { 'f', '2', SW__ELEMENT_F2 }, { 'f', '4', SW__ELEMENT_F4 }, { 'f', '8', SW__ELEMENT_F8 },
                  { 'b', '1', SW__ELEMENT_B1 }, { 'i', '1', SW__ELEMENT_I1 }, { 'i', '2', SW__ELEMENT_I2 },
                  { 'i', '4', SW__ELEMENT_I4 }, { 'i', '8', SW__ELEMENT_I8 }, { 'u', '1', SW__ELEMENT_U1 },
                  { 'u', '2', SW__ELEMENT_U2 }, { 'u', '4', SW__ELEMENT_U4 }, { 'u', '8', SW__ELEMENT_U8 } };
    for (size_t i = 0; i < SW_COUNT(kinds); i++) {
        if (kinds[i].kind != kind || kinds[i].digit != digit) continue;
        *out = kinds[i].element;
        return true;
    }
    return false;
}

/* The header text while it is parsed; positions in messages count from the start of the file. */
typedef struct cursor {
    const char *name, *text;
    size_t at, n, base;
} cursor;

static sw_status bad(const cursor *c, const char *what)
{
    return sw__bad_byte(c->name, c->base + c->at, "NPY header: %s", what);
}

static void skip_space(cursor *c)
{
    while (c->at < c->n && strchr(" \t\r\n", c->text[c->at]) != NULL && c->text[c->at] != '\0') c->at++;
}

static bool accept(cursor *c, char wanted)
{
    skip_space(c);
    if (c->at >= c->n || c->text[c->at] != wanted) return false;
    c->at++;
    return true;
}

static bool accept_word(cursor *c, const char *word)
{
    skip_space(c);
    const size_t n = strlen(word);
    if (c->n - c->at < n || memcmp(c->text + c->at, word, n) != 0) return false;
    c->at += n;
    return true;
}

/* A quoted string without escapes; *s points into the text. */
static sw_status parse_string(cursor *c, const char **s, size_t *n)
{
    skip_space(c);
    if (c->at >= c->n || (c->text[c->at] != '\'' && c->text[c->at] != '"'))
        return bad(c, "a quoted string should be here");
    const char quote = c->text[c->at];
    const char *const start = c->text + c->at + 1;
    const char *const end = memchr(start, quote, c->n - c->at - 1);
    if (end == NULL) return bad(c, "the string that begins here does not end");
    *s = start;
    *n = (size_t)(end - start);
    c->at += *n + 2;
    return SW_OK;
}

static sw_status parse_descr(cursor *c, sw__array_header *h)
{
    skip_space(c);
    cursor place = *c;
    if (c->at < c->n && c->text[c->at] == '[') {
        return sw__fail(SW_ERR_UNSUPPORTED,
                        "%s: byte %zu: records (structured types) are not read: save one array per "
                        "field",
                        c->name, c->base + c->at);
    }
    const char *s = NULL;
    size_t n = 0;
    SW_TRY(parse_string(c, &s, &n));
    if (n < 3 || strchr("<>|=", s[0]) == NULL || s[0] == '\0') return bad(&place, "not a type such as '<f4'");
    if (n == 3 && npy_element(s[1], s[2], &h->element)) {
        h->big_endian = s[0] == '>' || (s[0] == '=' && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
        return SW_OK;
    }
    return sw__fail(SW_ERR_UNSUPPORTED,
                    "%s: byte %zu: type '%.*s' is not read; convert the array, for instance with "
                    "astype('float32')",
                    c->name, c->base + place.at, (int)SW_MIN(n, (size_t)40), s);
}

static sw_status parse_size(cursor *c, int64_t *out)
{
    skip_space(c);
    const size_t start = c->at;
    int64_t v = 0;
    for (; c->at < c->n && c->text[c->at] >= '0' && c->text[c->at] <= '9'; c->at++) {
        if (__builtin_mul_overflow(v, (int64_t)10, &v) || __builtin_add_overflow(v, c->text[c->at] - '0', &v)) {
            c->at = start;
            return bad(c, "the size is too large");
        }
    }
    if (c->at == start) return bad(c, "an axis size should be here");
    if (c->at < c->n && c->text[c->at] == 'L') c->at++; /* Python 2 wrote long integers so */
    *out = v;
    return SW_OK;
}

static sw_status parse_shape(cursor *c, sw__array_header *h)
{
    if (!accept(c, '(')) return bad(c, "a shape such as (60000, 28, 28) should be here");
    h->rank = 0;
    while (!accept(c, ')')) {
        if (h->rank == SW_MAX_RANK) {
            return sw__fail(SW_ERR_UNSUPPORTED, "%s: byte %zu: more than %d axes", c->name, c->base + c->at,
                            SW_MAX_RANK);
        }
        SW_TRY(parse_size(c, &h->shape[h->rank++]));
        if (accept(c, ',')) continue;
        if (!accept(c, ')')) return bad(c, "the shape should go on with , or )");
        break;
    }
    return SW_OK;
}

static sw_status parse_order(cursor *c, sw__array_header *h)
{
    h->fortran = accept_word(c, "True");
    return h->fortran || accept_word(c, "False") ? SW_OK : bad(c, "True or False should be here");
}

/* The keys, each of which must come exactly once, in any order. */
static sw_status parse_entry(cursor *c, sw__array_header *h, bool seen[3])
{
    static const struct {
        const char *key;
        sw_status (*parse)(cursor *c, sw__array_header *h);
    } keys[3] = { { "descr", parse_descr }, { "fortran_order", parse_order }, { "shape", parse_shape } };
    skip_space(c);
    const cursor place = *c;
    const char *s = NULL;
    size_t n = 0;
    SW_TRY(parse_string(c, &s, &n));
    if (!accept(c, ':')) return bad(c, "a colon should be here");
    for (size_t i = 0; i < SW_COUNT(keys); i++) {
        if (strlen(keys[i].key) != n || memcmp(keys[i].key, s, n) != 0) continue;
        if (seen[i]) return bad(&place, "this key comes twice");
        seen[i] = true;
        return keys[i].parse(c, h);
    }
    return bad(&place, "the key is none of descr, fortran_order, shape");
}

static sw_status parse_header(cursor *c, sw__array_header *h)
{
    bool seen[3] = { false };
    if (!accept(c, '{')) return bad(c, "it should begin with {");
    while (!accept(c, '}')) {
        SW_TRY(parse_entry(c, h, seen));
        if (accept(c, ',')) continue;
        if (!accept(c, '}')) return bad(c, "a comma or } should be here");
        break;
    }
    if (!seen[0] || !seen[1] || !seen[2]) return bad(c, "one of descr, fortran_order, shape is missing");
    skip_space(c);
    if (c->at != c->n) return bad(c, "there is something after the }");
    return sw__header_count(c->name, c->base, h->shape, h->rank, &h->count);
}

sw_status sw__npy_header(sw__stream *s, const uint8_t magic[SW__MAGIC], sw__array_header *h)
{
    uint8_t rest[START - SW__MAGIC], length[4] = { 0 };
    *h = (sw__array_header){ .format = "NPY" };
    SW_TRY(sw__stream_read(s, rest, sizeof rest, "the magic number"));
    if (memcmp(magic, "\x93NUM", 4) != 0 || memcmp(rest, "PY", 2) != 0) {
        return sw__bad_byte(s->name, 0, "not an NPY file: it does not begin with \\x93NUMPY");
    }
    if (rest[2] < 1 || rest[2] > 3) return sw__bad_byte(s->name, 6, "NPY version %d.%d is not known", rest[2], rest[3]);
    SW_TRY(sw__stream_read(s, length, rest[2] == 1 ? 2 : 4, "the header length"));
    const size_t n = length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    if (n > HEADER_MOST) return sw__bad_byte(s->name, START, "an NPY header of %zu bytes is not plausible", n);
    const size_t base = (size_t)s->offset;
    char *const text = sw__malloc(n);
    if (text == NULL) return sw__no_memory(n, s->name);
    sw_status st = sw__stream_read(s, text, n, "the header");
    cursor c = { .name = s->name, .text = text, .n = n, .base = base };
    if (st == SW_OK) st = parse_header(&c, h);
    sw__free(text);
    return st;
}

sw_status sw_npy_read(const char *path, sw_array *out)
{
    if (path == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_npy_read: path or out is NULL");
    sw__stream s;
    return sw__array_read(sw__stream_open(&s, path), &s, SW__FORMAT_NPY, out);
}

sw_status sw__npy_parse(const char *name, const void *bytes, size_t n, sw_array *out)
{
    sw__stream s;
    return sw__array_read(sw__stream_memory(&s, name, bytes, n), &s, SW__FORMAT_NPY, out);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const char *const descr_of[SW_DTYPE_COUNT] = {
    [SW_F32] = "f4", [SW_F64] = "f8", [SW_F16] = "f2",  [SW_I32] = "i4",
    [SW_I64] = "i8", [SW_U8] = "u1",  [SW_BOOL] = "b1", [SW_U32] = "u4",
};

sw_status sw_npy_write(const char *path, const sw_array *a)
{
    if (path == NULL || a == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_npy_write: path or array is NULL");
    if ((unsigned)a->dtype >= SW_DTYPE_COUNT || a->rank < 0 || a->rank > SW_MAX_RANK) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: cannot write an array with dtype %d and %d axes", path, (int)a->dtype,
                        a->rank);
    }
    size_t count;
    if (!sw__shape_count(a->shape, a->rank, &count) || count * sw_dtype_size(a->dtype) != a->bytes) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: the shape of the array does not make %zu bytes", path, a->bytes);
    }
    if (a->data == NULL && a->bytes > 0) return sw__fail(SW_ERR_ARGUMENT, "%s: the array's data is NULL", path);
    const char *const descr = descr_of[a->dtype];
    if (descr == NULL) return sw__fail(SW_ERR_UNSUPPORTED, "%s: NPY has no type for %s", path, sw_dtype_name(a->dtype));
    const char order = descr[1] == '1' ? '|' : __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>';
    char head[512]; /* eight axes of 20 digits and the rest come to fewer than 300 */
    int n = snprintf(head, sizeof head, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order, descr);
    for (int i = 0; i < a->rank; i++) {
        n += snprintf(head + n, sizeof head - (size_t)n, "%" PRId64 "%s", a->shape[i],
                      a->rank == 1      ? ","
                      : i + 1 < a->rank ? ", "
                                        : "");
    }
    n += snprintf(head + n, sizeof head - (size_t)n, "), }");
    while ((START + 2 + n + 1) % 64 != 0) head[n++] = ' ';
    head[n++] = '\n';
    const uint8_t start[START + 2] = { 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)(n & 255), (uint8_t)(n >> 8) };

    sw__atomic file;
    SW_TRY(sw__atomic_begin(&file, path));
    sw_status st = sw__atomic_put(&file, start, sizeof start);
    if (st == SW_OK) st = sw__atomic_put(&file, head, (size_t)n);
    if (st == SW_OK) st = sw__atomic_put(&file, a->data, a->bytes);
    if (st == SW_OK) return sw__atomic_commit(&file);
    sw__atomic_abort(&file);
    return st;
}
