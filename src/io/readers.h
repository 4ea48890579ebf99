/* readers.h: what IDX, NPY and NPZ share: element types of files, array memory; and their entry points from memory.
 * Inside io; the dataset reader (data/open.c) and the fuzz targets use the entry points. */
#ifndef SW_IO_READERS_H
#define SW_IO_READERS_H

#include "io/stream.h"
#include "swoop/io.h"

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* Allocates data for dtype, rank and shape as set, and sets bytes. Large ones are aligned for huge pages: touching
 * 50 MB in 4 KiB pages costs as much as reading them. */
sw_status sw__array_alloc(sw_array *a, const char *what);
/* Product of the shape; false if an axis is negative or the sizes that are not 0 come to more than any memory, so that
 * no later product of some of them can overflow either. */
bool sw__shape_count(const int64_t *shape, int rank, size_t *count);
/* The same for a header: SW_ERR_FORMAT at byte `offset` of `name`. */
sw_status sw__header_count(const char *name, uint64_t offset, const int64_t *shape, int rank, size_t *count);
/* "3x28x28", for messages; buf holds SW__SHAPE_TEXT bytes. */
enum { SW__SHAPE_TEXT = 24 * SW_MAX_RANK };
const char *sw__array_shape_text(char *buf, const int64_t *shape, int rank);

/* ---- elements as files have them --------------------------------------------------------------------------------- */

typedef enum sw__element {
    SW__ELEMENT_F2,
    SW__ELEMENT_F4,
    SW__ELEMENT_F8,
    SW__ELEMENT_B1,
    SW__ELEMENT_I1,
    SW__ELEMENT_I2,
    SW__ELEMENT_I4,
    SW__ELEMENT_I8,
    SW__ELEMENT_U1,
    SW__ELEMENT_U2,
    SW__ELEMENT_U4,
    SW__ELEMENT_U8,
    SW__ELEMENT_COUNT
} sw__element;

/* The header of an IDX or NPY file: all that is known before its data are read. */
typedef struct sw__array_header {
    const char *format; /* "IDX", "NPY" */
    sw__element element;
    bool big_endian, fortran;
    int rank;
    int64_t shape[SW_MAX_RANK];
    size_t count; /* elements */
} sw__array_header;

typedef enum sw__array_format { SW__FORMAT_ANY, SW__FORMAT_IDX, SW__FORMAT_NPY } sw__array_format;

/* Reads the header; with ANY, IDX and NPY are told apart by their first bytes. */
sw_status sw__array_header_read(sw__stream *s, sw__array_format format, sw__array_header *h);
/* Fails if the source cannot hold what the header promises: to be asked before memory is. */
sw_status sw__array_check(const sw__stream *s, const sw__array_header *h);
/* Allocates *out and reads the elements, to native byte order and C order; then the source must end. */
sw_status sw__array_body_read(sw__stream *s, const sw__array_header *h, sw_array *out);
/* Both, for a stream that was just opened (whose status is passed in), and closes it. */
sw_status sw__array_read(sw_status opened, sw__stream *s, sw__array_format format, sw_array *out);

/* The formats' own part: the header after its first four bytes. */
enum { SW__MAGIC = 4 };
sw_status sw__idx_header(sw__stream *s, const uint8_t magic[SW__MAGIC], sw__array_header *h);
sw_status sw__npy_header(sw__stream *s, const uint8_t magic[SW__MAGIC], sw__array_header *h);

/* ---- from memory; name is for messages --------------------------------------------------------------------------- */

sw_status sw__idx_parse(const char *name, const void *bytes, size_t n, sw_array *out);
sw_status sw__npy_parse(const char *name, const void *bytes, size_t n, sw_array *out);
sw_status sw__npz_parse(const char *name, const void *bytes, size_t n, sw_npz **out); /* bytes must outlive it */
sw_status sw__safetensors_parse(const char *name, const void *bytes, size_t n, sw_safetensors **out); /* the same */

#endif
