/* stream.h: bytes from a file or from memory, gunzipped on the way if they are gzip, with offsets for messages.
 * Lowest part of io: the readers (IDX, NPY, NPZ, safetensors, YAML) stand on it. */
#ifndef SW_IO_STREAM_H
#define SW_IO_STREAM_H

#include "base/base.h"

#define SW__DEFLATE_RATIO 1032 /* deflate never expands more than this, so a file's size bounds what it can hold */

typedef struct sw__stream {
    const char *name;   /* for messages; borrowed */
    int fd;             /* -1: memory */
    uint8_t *buffer;    /* a file's window of raw bytes */
    const uint8_t *raw; /* raw bytes at hand: in buffer, or in memory */
    size_t raw_left;
    bool packed;     /* gzip, or a zip entry: */
    bool zip_entry;  /*   deflate without gzip's wrapper, and one stream only */
    bool unpacked;   /*   to the end */
    uint32_t crc;    /* of what was given out of a zip entry or of this gzip member */
    uint64_t member; /* bytes given out of this gzip member */
    struct sw__inflate *inflater;
    uint64_t offset; /* unpacked bytes given out so far */
    uint64_t limit;  /* the unpacked size cannot exceed this */
} sw__stream;

/* Opens a regular file, or n bytes of memory (borrowed). gzip is recognised by its magic number. */
sw_status sw__stream_open(sw__stream *s, const char *path);
sw_status sw__stream_memory(sw__stream *s, const char *name, const void *bytes, size_t n);
/* n bytes of raw deflate data that unpack to `size` bytes. */
sw_status sw__stream_deflate(sw__stream *s, const char *name, const void *bytes, size_t n, uint64_t size);
void sw__stream_close(sw__stream *s);

/* Exactly n bytes, or SW_ERR_FORMAT: "NAME: the file ends at byte 123, in WHAT (… bytes are missing)". */
sw_status sw__stream_read(sw__stream *s, void *dst, size_t n, const char *what);
/* Up to n bytes; *got < n only at the end. */
sw_status sw__stream_read_some(sw__stream *s, void *dst, size_t n, size_t *got);
/* Fails unless all bytes were read; for gzip, checks the checksum too. */
sw_status sw__stream_end(sw__stream *s);

/* Fails with "NAME: byte OFFSET: …". */
sw_status sw__bad_byte(const char *name, uint64_t offset, const char *fmt, ...) SW_PRINTF(3, 4);
/* SW_ERR_IO: "PATH: cannot DOING: REASON". */
sw_status sw__io_failed(const char *path, const char *doing, int err);

/* A regular file's whole content, NUL-terminated; refuses more than `most` bytes. Free with sw__free. */
sw_status sw__file_read(const char *path, size_t most, char **out, size_t *n);

/* A regular file mapped read-only; base is NULL for an empty one. */
typedef struct sw__mapping {
    const uint8_t *base;
    size_t size;
} sw__mapping;
sw_status sw__file_map(const char *path, sw__mapping *out);
void sw__file_unmap(sw__mapping *m);

#endif
