/* idx.c: IDX, the format of MNIST: two zero bytes, element type, rank, sizes (32 bits, big-endian), big-endian data.
 * A reader of io; data/open.c reads folders of such files. */
#include "io/readers.h"

static bool idx_element(uint8_t code, sw__element *out)
{
    static const struct {
        uint8_t code;
        sw__element element;
    } codes[] = { { 0x08, SW__ELEMENT_U1 }, { 0x09, SW__ELEMENT_I1 }, { 0x0B, SW__ELEMENT_I2 },
                  { 0x0C, SW__ELEMENT_I4 }, { 0x0D, SW__ELEMENT_F4 }, { 0x0E, SW__ELEMENT_F8 } };
    for (size_t i = 0; i < SW_COUNT(codes); i++) {
        if (codes[i].code != code) continue;
        *out = codes[i].element;
        return true;
    }
    return false;
}

sw_status sw__idx_header(sw__stream *s, const uint8_t magic[SW__MAGIC], sw__array_header *h)
{
    *h = (sw__array_header){ .format = "IDX", .big_endian = true };
    if (magic[0] != 0 || magic[1] != 0) {
        return sw__bad_byte(s->name, 0, "not an IDX file: it begins with %02x %02x, not 00 00", magic[0], magic[1]);
    }
    if (!idx_element(magic[2], &h->element)) {
        return sw__bad_byte(s->name, 2, "0x%02x is no IDX element type (08 09 0b 0c 0d 0e)", magic[2]);
    }
    if (magic[3] == 0 || magic[3] > SW_MAX_RANK) {
        return sw__bad_byte(s->name, 3, "%d axes: swoop reads 1 to %d", magic[3], SW_MAX_RANK);
    }
    h->rank = magic[3];
    uint8_t sizes[4 * SW_MAX_RANK];
    SW_TRY(sw__stream_read(s, sizes, 4 * (size_t)h->rank, "the axis sizes"));
    for (int i = 0; i < h->rank; i++) {
        const uint8_t *const b = sizes + 4 * i;
        h->shape[i] = (int64_t)((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]);
    }
    return sw__header_count(s->name, SW__MAGIC, h->shape, h->rank, &h->count);
}

sw_status sw_idx_read(const char *path, sw_array *out)
{
    if (path == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_idx_read: path or out is NULL");
    sw__stream s;
    return sw__array_read(sw__stream_open(&s, path), &s, SW__FORMAT_IDX, out);
}

sw_status sw__idx_parse(const char *name, const void *bytes, size_t n, sw_array *out)
{
    sw__stream s;
    return sw__array_read(sw__stream_memory(&s, name, bytes, n), &s, SW__FORMAT_IDX, out);
}
