/* inflate.h: DEFLATE (RFC 1951) decoding for large files: gzipped data sets are unpacked before the first step can be
 * taken, and zlib's decoder takes twice as long. Under stream.c; docs/decisions tells why it is here. */
#ifndef SW_IO_INFLATE_H
#define SW_IO_INFLATE_H

#include "base/base.h"

typedef struct sw__inflate sw__inflate;

/* Where compressed bytes come from: writes up to n to dst; *got is 0 at the end only. */
typedef sw_status (*sw__inflate_source)(void *context, void *dst, size_t n, size_t *got);

/* NULL if memory is out. Free with sw__free. */
sw__inflate *sw__inflate_new(sw__inflate_source source, void *context);

/* The context of the source has moved. */
void sw__inflate_rebind(sw__inflate *z, void *context);

/* Unpacks up to n bytes. *got < n only at the end of the deflate stream, and *wrong is NULL; or when the data are bad:
 * then *wrong says what is wrong, and *got is what could be unpacked before. Fails only if the source does. */
sw_status sw__inflate_read(sw__inflate *z, void *dst, size_t n, size_t *got, const char **wrong);

/* True once the stream's last block has been read to its end. */
bool sw__inflate_ended(const sw__inflate *z);
/* Up to n of the bytes as they are, past what was decoded: gzip's header and trailer. Fewer only at the end. */
sw_status sw__inflate_plain(sw__inflate *z, void *dst, size_t n, size_t *got);
/* Begins a new deflate stream at the present byte. */
void sw__inflate_restart(sw__inflate *z);

#endif
