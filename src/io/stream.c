/* stream.c: sequential input from a file or memory, through zlib if it is gzip; whole-file read and mapping.
 * Lowest part of io; see stream.h. */
#include "io/stream.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
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
    if (s->raw_left > 0) return SW_OK;
    if (s->fd < 0) {
        s->raw = s->source;
        s->raw_left = s->source_left;
        s->source_left = 0;
        return SW_OK;
    }
    s->raw = s->buffer;
    return read_fd(s->name, s->fd, s->buffer, WINDOW, &s->raw_left);
}

#ifdef SWOOP_HAVE_ZLIB
/* zlib allocates through swoop's allocator like everything else. */
static void *zlib_alloc(void *context, unsigned n, unsigned size)
{
    (void)context;
    return sw__calloc(n, size);
}

static void zlib_free(void *context, void *p)
{
    (void)context;
    sw__free(p);
}

static sw_status gz_start(sw__stream *s)
{
    z_stream *const z = sw__calloc(1, sizeof *z);
    if (z == NULL) return sw__no_memory(sizeof *z, "the decoder of compressed data");
    z->zalloc = zlib_alloc;
    z->zfree = zlib_free;
    const int window = s->raw_deflate ? -15 : 15 + 16; /* 15: full window; +16: gzip wrapper; negative: no wrapper */
    if (inflateInit2(z, window) != Z_OK) {
        sw__free(z);
        return sw__no_memory(0, "the decoder of compressed data");
    }
    s->inflater = z;
    return SW_OK;
}

static void gz_stop(sw__stream *s)
{
    if (s->inflater != NULL) inflateEnd(s->inflater);
    sw__free(s->inflater);
}

/* Decodes until n bytes are there or the last member ends. */
static sw_status gz_read(sw__stream *s, uint8_t *dst, size_t n, size_t *got)
{
    z_stream *const z = s->inflater;
    *got = 0;
    while (*got < n) {
        SW_TRY(refill(s));
        if (s->gz_member_done && (s->raw_left == 0 || s->raw_deflate)) return SW_OK;
        if (s->raw_left == 0) {
            return sw__bad_byte(s->name, s->offset + *got, "the compressed data are cut short (offset after unpacking)");
        }
        if (s->gz_member_done) { /* members may follow one another */
            inflateReset(z);
            s->gz_member_done = false;
        }
        z->next_in = (Bytef *)(uintptr_t)s->raw; /* zlib's type lacks const; it does not write there */
        z->avail_in = (uInt)SW_MIN(s->raw_left, (size_t)UINT_MAX);
        z->next_out = dst + *got;
        z->avail_out = (uInt)SW_MIN(n - *got, (size_t)UINT_MAX);
        const uInt in = z->avail_in, out = z->avail_out;
        const int r = inflate(z, Z_NO_FLUSH);
        s->raw += in - z->avail_in;
        s->raw_left -= in - z->avail_in;
        if (s->raw_deflate) s->crc = (uint32_t)crc32(s->crc, dst + *got, out - z->avail_out);
        *got += out - z->avail_out;
        if (r == Z_STREAM_END) {
            s->gz_member_done = true;
        } else if (r == Z_MEM_ERROR) {
            return sw__no_memory(0, "the decoder of compressed data");
        } else if (r != Z_OK) {
            return sw__bad_byte(s->name, s->offset + *got, "damaged compressed data: %s (offset after unpacking)",
                                z->msg != NULL ? z->msg : "no way to go on");
        }
    }
    return SW_OK;
}
#else
static sw_status gz_start(sw__stream *s)
{
    return sw__fail(SW_ERR_UNSUPPORTED, "%s is compressed, and swoop was built without zlib: unpack it first", s->name);
}

static void gz_stop(sw__stream *s)
{
    (void)s;
}

static sw_status gz_read(sw__stream *s, uint8_t *dst, size_t n, size_t *got)
{
    (void)dst;
    (void)n;
    *got = 0;
    return gz_start(s);
}
#endif

/* Looks at the first bytes for gzip's magic number, and sets the bound on the decoded size. */
static sw_status start(sw__stream *s, size_t size)
{
    s->limit = size;
    SW_TRY(refill(s));
    if (s->raw_left < 2 || s->raw[0] != 0x1f || s->raw[1] != 0x8b) return SW_OK;
    s->gz = true;
    s->limit = size > UINT64_MAX / SW__DEFLATE_RATIO ? UINT64_MAX : (uint64_t)size * SW__DEFLATE_RATIO;
    return gz_start(s);
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
    *s = (sw__stream){ .name = name, .fd = -1, .source = bytes, .source_left = n };
    const sw_status st = start(s, n);
    if (st != SW_OK) sw__stream_close(s);
    return st;
}

sw_status sw__stream_deflate(sw__stream *s, const char *name, const void *bytes, size_t n, uint64_t size)
{
    *s = (sw__stream){
        .name = name, .fd = -1, .source = bytes, .source_left = n, .gz = true, .raw_deflate = true, .limit = size
    };
    return gz_start(s);
}

void sw__stream_close(sw__stream *s)
{
    gz_stop(s);
    if (s->fd >= 0) close(s->fd);
    sw__free(s->buffer);
    *s = (sw__stream){ .fd = -1 };
}

/* Plain bytes: first what is at hand, then straight to their place. */
static sw_status plain_read(sw__stream *s, uint8_t *dst, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        size_t some = 0;
        if (s->fd >= 0 && s->raw_left == 0 && n - *got >= WINDOW) {
            SW_TRY(read_fd(s->name, s->fd, dst + *got, n - *got, &some));
        } else {
            SW_TRY(refill(s));
            some = SW_MIN(s->raw_left, n - *got);
            if (some > 0) memcpy(dst + *got, s->raw, some);
            s->raw += some;
            s->raw_left -= some;
        }
        if (some == 0) return SW_OK;
        *got += some;
    }
    return SW_OK;
}

sw_status sw__stream_read_some(sw__stream *s, void *dst, size_t n, size_t *got)
{
    SW_TRY(s->gz ? gz_read(s, dst, n, got) : plain_read(s, dst, n, got));
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
