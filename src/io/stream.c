/* stream.c: sequential input from a file or memory, through zlib if it is gzip; whole-file read and mapping.
 * Lowest part of io; see stream.h. */
#include "io/stream.h"
#include "io/inflate.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef SWOOP_HAVE_ZLIB
#include <zlib.h>
#endif

enum { WINDOW = 256 * 1024 }; /* raw bytes read at once: large enough for full speed, small beside any data set */

sw_status sw__bad_byte(const char *name, uint64_t offset, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    sw__failv(SW_ERR_FORMAT, fmt, ap);
    va_end(ap);
    return sw__prefix(SW_ERR_FORMAT, "%s: byte %" PRIu64, name, offset);
}

sw_status sw__io_failed(const char *path, const char *doing, int err)
{
    return sw__fail(SW_ERR_IO, "%s: cannot %s: %s", path, doing, strerror(err));
}

/* Opens for reading and makes sure that it is a regular file: the size of others is not known beforehand. */
static sw_status open_regular(const char *path, int *out, size_t *size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nonblocking: a FIFO must not hang us */
    if (fd < 0) return sw__io_failed(path, "open it", errno);
    struct stat info;
    sw_status st = SW_OK;
    if (fstat(fd, &info) != 0) {
        st = sw__io_failed(path, "look at it", errno);
    } else if (!S_ISREG(info.st_mode)) {
        st = sw__fail(SW_ERR_IO, "%s is %s, not a regular file", path,
                      S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    }
    if (st != SW_OK) {
        close(fd);
        return st;
    }
    *out = fd;
    *size = (size_t)info.st_size;
    return SW_OK;
}

/* read(2), again after signals; *got is 0 at the end. */
static sw_status read_fd(const char *path, int fd, void *dst, size_t n, size_t *got)
{
    for (;;) {
        const ssize_t r = read(fd, dst, SW_MIN(n, (size_t)1 << 30));
        if (r >= 0) {
            *got = (size_t)r;
            return SW_OK;
        }
        if (errno != EINTR) return sw__io_failed(path, "read it", errno);
    }
}

/* Makes sure that raw bytes are at hand, unless the source has ended (raw_left stays 0). */
static sw_status refill(sw__stream *s)
{
    if (s->raw_left > 0 || s->fd < 0) return SW_OK;
    s->raw = s->buffer;
    return read_fd(s->name, s->fd, s->buffer, WINDOW, &s->raw_left);
}

/* Up to n raw bytes: first what is at hand, then straight from the file. */
static sw_status take_raw(sw__stream *s, uint8_t *dst, size_t n, size_t *got)
{
    if (s->raw_left == 0 && s->fd >= 0 && n >= WINDOW) return read_fd(s->name, s->fd, dst, n, got);
    SW_TRY(refill(s));
    *got = SW_MIN(s->raw_left, n);
    if (*got > 0) memcpy(dst, s->raw, *got);
    s->raw += *got;
    s->raw_left -= *got;
    return SW_OK;
}

/* ---- gzip (RFC 1952) and zip entries ----------------------------------------------------------------------------- */

static sw_status bad_packed(const sw__stream *s, size_t got, const char *what)
{
    return sw__bad_byte(s->name, s->offset + got, "%s (offset after unpacking)", what);
}

#ifdef SWOOP_HAVE_ZLIB
enum { PIECE = 1024 * 1024 }; /* unpacked and then summed while still in the cache */

static sw_status inflate_source(void *context, void *dst, size_t n, size_t *got)
{
    return take_raw(context, dst, n, got);
}

static sw_status cut_short(const sw__stream *s)
{
    return bad_packed(s, 0, "the compressed data are cut short");
}

/* Skips a zero-terminated text. */
static sw_status skip_text(sw__stream *s)
{
    for (uint8_t c = 1; c != 0;) {
        size_t got;
        SW_TRY(sw__inflate_plain(s->inflater, &c, 1, &got));
        if (got == 0) return cut_short(s);
    }
    return SW_OK;
}

static sw_status skip_extra(sw__stream *s)
{
    uint8_t b[2];
    size_t got;
    SW_TRY(sw__inflate_plain(s->inflater, b, 2, &got));
    for (unsigned n = got == 2 ? b[0] | (unsigned)b[1] << 8 : 0; got > 0 && n > 0; n--) {
        SW_TRY(sw__inflate_plain(s->inflater, b, 1, &got));
    }
    return got > 0 ? SW_OK : cut_short(s);
}

/* The header of a gzip member; sets unpacked if there is none any more. */
static sw_status gzip_header(sw__stream *s, bool first)
{
    enum { HEADER_CRC = 2, EXTRA = 4, NAME = 8, COMMENT = 16 };
    uint8_t h[10], crc[2];
    size_t got;
    SW_TRY(sw__inflate_plain(s->inflater, h, sizeof h, &got));
    s->unpacked = got == 0 && !first;
    if (s->unpacked) return SW_OK;
    if (got >= 2 && (h[0] != 0x1f || h[1] != 0x8b)) return bad_packed(s, 0, "after the gzip data comes something else");
    if (got < sizeof h) return cut_short(s);
    if (h[2] != 8 || (h[3] & 0xE0) != 0) return bad_packed(s, 0, "a gzip header with an unknown method or flag");
    if (h[3] & EXTRA) SW_TRY(skip_extra(s));
    if (h[3] & NAME) SW_TRY(skip_text(s));
    if (h[3] & COMMENT) SW_TRY(skip_text(s));
    if (h[3] & HEADER_CRC) {
        SW_TRY(sw__inflate_plain(s->inflater, crc, 2, &got));
        if (got < 2) return cut_short(s);
    }
    sw__inflate_restart(s->inflater);
    s->crc = 0;
    s->member = 0;
    return SW_OK;
}

/* Checks a member's trailer, its checksum and length, and goes on to the next member. */
static sw_status gzip_trailer(sw__stream *s, size_t done)
{
    uint8_t t[8];
    size_t got;
    SW_TRY(sw__inflate_plain(s->inflater, t, sizeof t, &got));
    if (got < sizeof t) return bad_packed(s, done, "the compressed data are cut short");
    const uint32_t crc = t[0] | (uint32_t)t[1] << 8 | (uint32_t)t[2] << 16 | (uint32_t)t[3] << 24;
    const uint32_t size = t[4] | (uint32_t)t[5] << 8 | (uint32_t)t[6] << 16 | (uint32_t)t[7] << 24;
    if (crc != s->crc) return bad_packed(s, done, "the checksum of the gzip data is wrong: the file is damaged");
    if (size != (uint32_t)s->member)
        return bad_packed(s, done, "the length of the gzip data is wrong: the file is damaged");
    return gzip_header(s, false);
}

static sw_status start_packed(sw__stream *s)
{
    s->packed = true;
    s->inflater = sw__inflate_new(inflate_source, s);
    if (s->inflater == NULL) return sw__no_memory(0, "the decoder of compressed data");
    return s->zip_entry ? SW_OK : gzip_header(s, true);
}

/* Unpacks until n bytes are there or the data end. */
static sw_status read_packed(sw__stream *s, uint8_t *dst, size_t n, size_t *got)
{
    sw__inflate_rebind(s->inflater, s);
    *got = 0;
    while (*got < n && !s->unpacked) {
        size_t some;
        const char *wrong;
        SW_TRY(sw__inflate_read(s->inflater, dst + *got, SW_MIN(n - *got, (size_t)PIECE), &some, &wrong));
        s->crc = (uint32_t)crc32(s->crc, dst + *got, (uInt)some);
        s->member += some;
        *got += some;
        if (wrong != NULL) {
            return sw__bad_byte(s->name, s->offset + *got, "damaged compressed data: %s (offset after unpacking)",
                                wrong);
        }
        if (!sw__inflate_ended(s->inflater)) continue;
        if (s->zip_entry)
            s->unpacked = true;
        else
            SW_TRY(gzip_trailer(s, *got));
    }
    return SW_OK;
}
#else
static sw_status start_packed(sw__stream *s)
{
    return sw__fail(SW_ERR_UNSUPPORTED, "%s is compressed, and swoop was built without zlib: unpack it first", s->name);
}

static sw_status read_packed(sw__stream *s, uint8_t *dst, size_t n, size_t *got)
{
    (void)dst;
    (void)n;
    *got = 0;
    return start_packed(s);
}
#endif

/* ---- the stream -------------------------------------------------------------------------------------------------- */

/* Looks at the first bytes for gzip's magic number, and sets the bound on the decoded size. */
static sw_status start(sw__stream *s, size_t size)
{
    s->limit = size;
    SW_TRY(refill(s));
    if (s->raw_left < 2 || s->raw[0] != 0x1f || s->raw[1] != 0x8b) return SW_OK;
    s->limit = size > UINT64_MAX / SW__DEFLATE_RATIO ? UINT64_MAX : (uint64_t)size * SW__DEFLATE_RATIO;
    return start_packed(s);
}

sw_status sw__stream_open(sw__stream *s, const char *path)
{
    *s = (sw__stream){ .name = path, .fd = -1 };
    size_t size;
    SW_TRY(open_regular(path, &s->fd, &size));
    s->buffer = sw__malloc(WINDOW);
    const sw_status st = s->buffer != NULL ? start(s, size) : sw__no_memory(WINDOW, "reading a file");
    if (st != SW_OK) sw__stream_close(s);
    return st;
}

sw_status sw__stream_memory(sw__stream *s, const char *name, const void *bytes, size_t n)
{
    *s = (sw__stream){ .name = name, .fd = -1, .raw = bytes, .raw_left = n };
    const sw_status st = start(s, n);
    if (st != SW_OK) sw__stream_close(s);
    return st;
}

sw_status sw__stream_deflate(sw__stream *s, const char *name, const void *bytes, size_t n, uint64_t size)
{
    *s = (sw__stream){ .name = name, .fd = -1, .raw = bytes, .raw_left = n, .zip_entry = true, .limit = size };
    return start_packed(s);
}

void sw__stream_close(sw__stream *s)
{
    sw__free(s->inflater);
    if (s->fd >= 0) close(s->fd);
    sw__free(s->buffer);
    *s = (sw__stream){ .fd = -1 };
}

static sw_status read_plain(sw__stream *s, uint8_t *dst, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        size_t some = 0;
        SW_TRY(take_raw(s, dst + *got, n - *got, &some));
        if (some == 0) return SW_OK;
        *got += some;
    }
    return SW_OK;
}

sw_status sw__stream_read_some(sw__stream *s, void *dst, size_t n, size_t *got)
{
    SW_TRY(s->packed ? read_packed(s, dst, n, got) : read_plain(s, dst, n, got));
    s->offset += *got;
    return SW_OK;
}

sw_status sw__stream_read(sw__stream *s, void *dst, size_t n, const char *what)
{
    size_t got;
    SW_TRY(sw__stream_read_some(s, dst, n, &got));
    if (got == n) return SW_OK;
    return sw__bad_byte(s->name, s->offset, "the file ends here, in %s: %zu bytes are missing", what, n - got);
}

sw_status sw__stream_end(sw__stream *s)
{
    uint8_t extra;
    size_t got;
    const uint64_t end = s->offset;
    SW_TRY(sw__stream_read_some(s, &extra, 1, &got));
    if (got == 0) return SW_OK;
    return sw__bad_byte(s->name, end, "there is more in the file than its header says");
}

sw_status sw__file_read(const char *path, size_t most, char **out, size_t *n)
{
    int fd;
    size_t size;
    SW_TRY(open_regular(path, &fd, &size));
    sw_status st = SW_OK;
    char *text = NULL;
    size_t have = 0;
    if (size > most) {
        st = sw__fail(SW_ERR_FORMAT, "%s: %zu bytes are too many for such a file (at most %zu)", path, size, most);
    } else if ((text = sw__malloc(size + 1)) == NULL) {
        st = sw__no_memory(size + 1, path);
    }
    while (st == SW_OK && have < size) {
        size_t got = 0;
        st = read_fd(path, fd, text + have, size - have, &got);
        have += got;
        if (got == 0) break;
    }
    close(fd);
    if (st != SW_OK) {
        sw__free(text);
        return st;
    }
    text[have] = '\0';
    *out = text;
    *n = have;
    return SW_OK;
}

sw_status sw__file_map(const char *path, sw__mapping *out)
{
    int fd;
    size_t size;
    SW_TRY(open_regular(path, &fd, &size));
    void *base = NULL;
    if (size > 0) base = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int err = errno;
    close(fd);
    if (base == MAP_FAILED) return sw__io_failed(path, "map it into memory", err);
    *out = (sw__mapping){ .base = base, .size = size };
    return SW_OK;
}

void sw__file_unmap(sw__mapping *m)
{
    if (m->base != NULL) munmap((void *)(uintptr_t)m->base, m->size);
    *m = (sw__mapping){ 0 };
}
