/* array.c: memory for arrays that readers fill, and the elements of IDX and NPY files turned into swoop's types.
 * Inside io, between the streams and the formats. */
#include "io/readers.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 * 1024 * 1024, CHUNK = 64 * 1024 };

int64_t sw_array_count(const sw_array *a)
{
    if (a == NULL) return 0;
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++) n *= a->shape[i];
    return n;
}

void sw_array_free(sw_array *a)
{
    if (a == NULL) return;
    sw__free(a->data);
    *a = (sw_array){ 0 };
}

sw_status sw__array_alloc(sw_array *a, const char *what)
{
    a->bytes = (size_t)sw_array_count(a) * sw_dtype_size(a->dtype);
    const bool large = a->bytes >= 2 * (size_t)HUGE_PAGE;
    a->data = sw__malloc_aligned(large ? HUGE_PAGE : 64, a->bytes);
    if (a->data == NULL) return sw__no_memory(a->bytes, what);
    if (large) madvise(a->data, a->bytes, MADV_HUGEPAGE); /* a wish; nothing is lost if it is not granted */
    return SW_OK;
}

bool sw__shape_count(const int64_t *shape, int rank, size_t *count)
{
    size_t product = 16; /* room for the widest element, and for rounding up to an alignment */
    bool empty = false, fits = true;
    for (int i = 0; i < rank; i++) {
        fits = fits && shape[i] >= 0 && sw__mul_size(product, (size_t)SW_MAX(shape[i], 1), &product);
        empty = empty || shape[i] == 0;
    }
    *count = empty ? 0 : product / 16;
    return fits && product < (size_t)INT64_MAX;
}

sw_status sw__header_count(const char *name, uint64_t offset, const int64_t *shape, int rank, size_t *count)
{
    if (sw__shape_count(shape, rank, count)) return SW_OK;
    char text[SW__SHAPE_TEXT];
    return sw__bad_byte(name, offset, "the shape %s is larger than any memory",
                        sw__array_shape_text(text, shape, rank));
}

const char *sw__array_shape_text(char *buf, const int64_t *shape, int rank)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int i = 0; i < rank; i++) {
        n += (size_t)snprintf(buf + n, SW__SHAPE_TEXT - n, i > 0 ? "x%" PRId64 : "%" PRId64, shape[i]);
    }
    return rank > 0 ? buf : "scalar";
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static const struct {
    size_t size;
    sw_dtype dtype;
} elements[SW__ELEMENT_COUNT] = {
    [SW__ELEMENT_F2] = { 2, SW_F16 },  [SW__ELEMENT_F4] = { 4, SW_F32 }, [SW__ELEMENT_F8] = { 8, SW_F64 },
    [SW__ELEMENT_B1] = { 1, SW_BOOL }, [SW__ELEMENT_I1] = { 1, SW_I32 }, [SW__ELEMENT_I2] = { 2, SW_I32 },
    [SW__ELEMENT_I4] = { 4, SW_I32 },  [SW__ELEMENT_I8] = { 8, SW_I64 }, [SW__ELEMENT_U1] = { 1, SW_U8 },
    [SW__ELEMENT_U2] = { 2, SW_I32 },  [SW__ELEMENT_U4] = { 4, SW_U32 }, [SW__ELEMENT_U8] = { 8, SW_I64 },
};

static bool host_is_big_endian(void)
{
    const uint16_t one = 1;
    return *(const uint8_t *)&one == 0;
}

static void swap_bytes(uint8_t *p, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++, p += size) {
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            const uint8_t t = p[a];
            p[a] = p[b];
            p[b] = t;
        }
    }
}

/* n native elements at src to dst, for the types that swoop does not hold as they are. */
static sw_status widen(const sw__stream *s, sw__element e, const uint8_t *src, size_t n, void *dst, uint64_t offset)
{
    int32_t *const i32 = dst;
    int64_t *const i64 = dst;
    uint8_t *const bytes = dst;
    for (size_t i = 0; i < n; i++, src += elements[e].size) {
        int16_t i16;
        uint16_t u16;
        uint64_t u64;
        switch (e) {
        case SW__ELEMENT_I1:
            i32[i] = (*src ^ 0x80) - 0x80; /* the sign bit, extended */
            break;
        case SW__ELEMENT_I2:
            memcpy(&i16, src, 2), i32[i] = i16;
            break;
        case SW__ELEMENT_U2:
            memcpy(&u16, src, 2), i32[i] = u16;
            break;
        case SW__ELEMENT_B1:
            bytes[i] = *src != 0;
            break;
        default: /* U8 */
            memcpy(&u64, src, 8);
            if (u64 > INT64_MAX) {
                return sw__bad_byte(s->name, offset + 8 * i, "%" PRIu64 " does not fit into a signed 64-bit integer",
                                    u64);
            }
            i64[i] = (int64_t)u64;
        }
    }
    return SW_OK;
}

static bool needs_widening(sw__element e)
{
    return e == SW__ELEMENT_I1 || e == SW__ELEMENT_I2 || e == SW__ELEMENT_U2 || e == SW__ELEMENT_B1 ||
           e == SW__ELEMENT_U8;
}

static sw_status read_elements(sw__stream *s, const sw__array_header *h, uint8_t *dst)
{
    const size_t size = elements[h->element].size, to = sw_dtype_size(elements[h->element].dtype);
    const bool swap = size > 1 && h->big_endian != host_is_big_endian();
    if (!needs_widening(h->element)) {
        SW_TRY(sw__stream_read(s, dst, h->count * size, "its data"));
        if (swap) swap_bytes(dst, h->count, size);
        return SW_OK;
    }
    uint8_t chunk[CHUNK / 8];
    const size_t most = sizeof chunk / size;
    for (size_t done = 0; done < h->count;) {
        const size_t n = SW_MIN(most, h->count - done);
        const uint64_t offset = s->offset;
        SW_TRY(sw__stream_read(s, chunk, n * size, "its data"));
        if (swap) swap_bytes(chunk, n, size);
        SW_TRY(widen(s, h->element, chunk, n, dst + done * to, offset));
        done += n;
    }
    return SW_OK;
}

/* Fortran order (first axis fastest) to C order (last axis fastest), walking the result in its order. */
static void reorder(uint8_t *dst, const uint8_t *src, const sw_array *a)
{
    const size_t size = sw_dtype_size(a->dtype), count = (size_t)sw_array_count(a);
    size_t stride[SW_MAX_RANK], at = 0;
    int64_t index[SW_MAX_RANK] = { 0 };
    for (int i = 0; i < a->rank; i++) stride[i] = i == 0 ? size : stride[i - 1] * (size_t)a->shape[i - 1];
    for (size_t n = 0; n < count; n++, dst += size) {
        memcpy(dst, src + at, size);
        for (int i = a->rank - 1; i >= 0; i--) {
            at += stride[i];
            if (++index[i] < a->shape[i]) break;
            at -= stride[i] * (size_t)a->shape[i];
            index[i] = 0;
        }
    }
}

sw_status sw__array_header_read(sw__stream *s, sw__array_format format, sw__array_header *h)
{
    uint8_t magic[SW__MAGIC];
    SW_TRY(sw__stream_read(s, magic, sizeof magic, "the magic number"));
    const bool npy = magic[0] == 0x93, idx = magic[0] == 0 && magic[1] == 0;
    if (format == SW__FORMAT_NPY || (format == SW__FORMAT_ANY && npy)) return sw__npy_header(s, magic, h);
    if (format == SW__FORMAT_IDX || idx) return sw__idx_header(s, magic, h);
    return sw__bad_byte(s->name, 0, "neither an IDX nor an NPY file: it begins with %02x %02x %02x %02x", magic[0],
                        magic[1], magic[2], magic[3]);
}

sw_status sw__array_check(const sw__stream *s, const sw__array_header *h)
{
    const uint64_t need = (uint64_t)h->count * elements[h->element].size;
    const uint64_t have = s->limit > s->offset ? s->limit - s->offset : 0;
    if (need <= have) return SW_OK;
    char text[SW__SHAPE_TEXT];
    return sw__bad_byte(s->name, s->offset, "the header promises %" PRIu64 " bytes of data (shape %s), but %s %" PRIu64,
                        need, sw__array_shape_text(text, h->shape, h->rank),
                        s->packed ? "a gzip file of this size cannot hold more than" : "there are only", have);
}

sw_status sw__array_body_read(sw__stream *s, const sw__array_header *h, sw_array *out)
{
    SW_TRY(sw__array_check(s, h));
    sw_array a = { .dtype = elements[h->element].dtype, .rank = h->rank };
    memcpy(a.shape, h->shape, sizeof a.shape);
    sw_array other = a; /* the second buffer of a reordering */
    sw_status st = sw__array_alloc(&a, s->name);
    if (st == SW_OK) st = read_elements(s, h, a.data);
    if (st == SW_OK) st = sw__stream_end(s);
    if (st == SW_OK && h->fortran && h->rank > 1) {
        const sw_array columns = a;
        st = sw__array_alloc(&other, s->name);
        if (st == SW_OK) {
            reorder(other.data, columns.data, &columns);
            a = other;
            other = columns;
        }
    }
    sw_array_free(&other);
    if (st != SW_OK) {
        sw_array_free(&a);
        return st;
    }
    *out = a;
    return SW_OK;
}

sw_status sw__array_read(sw_status opened, sw__stream *s, sw__array_format format, sw_array *out)
{
    SW_TRY(opened);
    sw__array_header h = { 0 };
    sw_status st = sw__array_header_read(s, format, &h);
    if (st == SW_OK) st = sw__array_body_read(s, &h, out);
    sw__stream_close(s);
    return st;
}
