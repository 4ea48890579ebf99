/* safetensors.h: the element types of safetensors, shared by its reader and writer.
 * Inside io. */
#ifndef SW_IO_SAFETENSORS_H
#define SW_IO_SAFETENSORS_H

#include "io/readers.h"

typedef struct sw__safetensors_type {
    const char *name;
    unsigned bits;
    bool supported;
    sw_dtype dtype;
} sw__safetensors_type;

/* NULL if the format knows no such type. */
const sw__safetensors_type *sw__safetensors_type_named(const char *name);
const sw__safetensors_type *sw__safetensors_type_of(sw_dtype dtype);

/* A file: 8 bytes header length (little-endian), JSON header, data. */
enum { SW__SAFETENSORS_LENGTH = 8, SW__SAFETENSORS_HEADER_MOST = 100 * 1000 * 1000 };

#endif
