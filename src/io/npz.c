/* npz.c: NumPy's NPZ: a zip archive of NPY files, stored or deflated, zip64 or not.
 * A reader of io on top of npy.c; the dataset reader takes keys x and y from it. */
#include "io/readers.h"
#include <inttypes.h>
#include <stdlib.h>
#ifdef SWOOP_HAVE_ZLIB
#include <zlib.h>

/* Zip (PKWARE's APPNOTE.TXT): entries, then the central directory that lists them, then its end record. Sizes that do
 * not fit into 32 bits are 0xFFFFFFFF, and stand in a zip64 record or extra field. All numbers are little-endian. */
enum {
    END_SIGNATURE = 0x06054b50,
    END_BYTES = 22,
    END64_SIGNATURE = 0x06064b50,
    END64_BYTES = 56,
    LOCATOR_SIGNATURE = 0x07064b50,
    LOCATOR_BYTES = 20,
    CENTRAL_SIGNATURE = 0x02014b50,
    CENTRAL_BYTES = 46,
    LOCAL_SIGNATURE = 0x04034b50,
    LOCAL_BYTES = 30,
    COMMENT_MOST = 65535,
    ZIP64_EXTRA = 1,
    STORED = 0,
    DEFLATED = 8,
    FLAG_ENCRYPTED = 1
};

typedef struct entry {
    char *name;  /* without ".npy" */
    char *place; /* "file.npz: x.npy", for messages */
    unsigned method, flags;
    uint32_t crc;
    uint64_t packed, size, local; /* local: where its local header is */
    uint64_t central;             /* where its central record is, for messages */
} entry;

struct sw_npz {
    sw__mapping map; /* base NULL if the bytes are the caller's */
    const uint8_t *bytes;
    size_t n;
    char *name;
    entry *entries;
    entry **by_name; /* sorted */
    size_t count, capacity;
};

static uint16_t u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32(const uint8_t *p)
{
    return (uint32_t)u16(p) | (uint32_t)u16(p + 2) << 16;
}

static uint64_t u64(const uint8_t *p)
{
    return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
}

/* True if n bytes at offset lie within the file. */
static bool within(const sw_npz *z, uint64_t offset, uint64_t n)
{
    return offset <= z->n && n <= z->n - offset;
}

typedef struct directory {
    uint64_t at, size, entries;
} directory;

/* The zip64 end record, if a locator stands before the end record. */
static sw_status find_end64(const sw_npz *z, uint64_t end, directory *d)
{
    if (end < LOCATOR_BYTES || u32(z->bytes + end - LOCATOR_BYTES) != LOCATOR_SIGNATURE) return SW_OK;
    const uint64_t at = u64(z->bytes + end - LOCATOR_BYTES + 8);
    if (!within(z, at, END64_BYTES) || u32(z->bytes + at) != END64_SIGNATURE) {
        return sw__bad_byte(z->name, end - LOCATOR_BYTES + 8, "no zip64 end record is at %" PRIu64, at);
    }
    *d = (directory){ .entries = u64(z->bytes + at + 32),
                      .size = u64(z->bytes + at + 40),
                      .at = u64(z->bytes + at + 48) };
    return SW_OK;
}

/* The end record is at the end, save for a comment: it is sought backwards. */
static sw_status find_directory(const sw_npz *z, directory *d)
{
    if (z->n < END_BYTES) return sw__bad_byte(z->name, z->n, "too short for a zip archive");
    uint64_t end = z->n - END_BYTES;
    const uint64_t stop = end > COMMENT_MOST ? end - COMMENT_MOST : 0;
    while (u32(z->bytes + end) != END_SIGNATURE) {
        if (end == stop) {
            return sw__bad_byte(z->name, z->n, "not a zip archive, or cut short: its end record is missing");
        }
        end--;
    }
    const uint8_t *const p = z->bytes + end;
    *d = (directory){ .entries = u16(p + 10), .size = u32(p + 12), .at = u32(p + 16) };
    SW_TRY(find_end64(z, end, d));
    if (d->at > end || d->size > end - d->at) {
        return sw__bad_byte(z->name, end, "the directory (%" PRIu64 " bytes at %" PRIu64 ") is not in the file",
                            d->size, d->at);
    }
    if (d->entries > d->size / CENTRAL_BYTES) {
        return sw__bad_byte(z->name, end, "%" PRIu64 " entries do not fit into a directory of %" PRIu64 " bytes",
                            d->entries, d->size);
    }
    return SW_OK;
}

/* Takes the sizes that did not fit into 32 bits from the zip64 extra field. */
static sw_status read_extra(const sw_npz *z, entry *e, const uint8_t *extra, size_t n)
{
    uint64_t *const wide[3] = { &e->size, &e->packed, &e->local };
    for (size_t at = 0; at + 4 <= n;) {
        const size_t id = u16(extra + at), size = u16(extra + at + 2);
        at += 4;
        if (size > n - at) break;
        for (size_t i = 0, used = 0; id == ZIP64_EXTRA && i < SW_COUNT(wide); i++) {
            if (*wide[i] != UINT32_MAX) continue;
            if (used + 8 > size) return sw__bad_byte(z->name, e->central, "its zip64 field is too short");
            *wide[i] = u64(extra + at + used);
            used += 8;
        }
        at += size;
    }
    return SW_OK;
}

static void free_entry(entry *e)
{
    sw__free(e->name);
    sw__free(e->place);
}

/* Reads the central record at `at`; *next is where the one after it begins. Skips files that are not arrays. */
static sw_status read_central(sw_npz *z, uint64_t at, uint64_t end, uint64_t *next)
{
    const uint8_t *const p = z->bytes + at;
    if (end - at < CENTRAL_BYTES || u32(p) != CENTRAL_SIGNATURE) {
        return sw__bad_byte(z->name, at, "a directory record should be here");
    }
    const size_t name_n = u16(p + 28), extra_n = u16(p + 30), comment_n = u16(p + 32);
    if (end - at - CENTRAL_BYTES < name_n + extra_n + comment_n) {
        return sw__bad_byte(z->name, at, "a directory record reaches beyond the directory");
    }
    *next = at + CENTRAL_BYTES + name_n + extra_n + comment_n;
    const char *const name = (const char *)p + CENTRAL_BYTES;
    if (name_n < 4 || memcmp(name + name_n - 4, ".npy", 4) != 0) return SW_OK;

    entry e = { .flags = u16(p + 8),
                .method = u16(p + 10),
                .crc = u32(p + 16),
                .packed = u32(p + 20),
                .size = u32(p + 24),
                .local = u32(p + 42),
                .central = at };
    SW_TRY(read_extra(z, &e, p + CENTRAL_BYTES + name_n, extra_n));
    SW_TRY(sw__grow(&z->entries, &z->capacity, z->count + 1, sizeof *z->entries, "a zip directory"));
    e.name = sw__strndup(name, name_n - 4);
    e.place = e.name != NULL ? sw__asprintf("%s: %s.npy", z->name, e.name) : NULL;
    if (e.place == NULL) {
        free_entry(&e);
        return sw__no_memory(name_n, "a zip directory");
    }
    z->entries[z->count++] = e; /* from here on, closing frees it */
    return SW_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(entry *const *)a)->name, (*(entry *const *)b)->name);
}

static sw_status sort_names(sw_npz *z)
{
    z->by_name = sw__calloc(z->count, sizeof *z->by_name);
    if (z->by_name == NULL) return sw__no_memory(z->count * sizeof *z->by_name, "a zip directory");
    for (size_t i = 0; i < z->count; i++) z->by_name[i] = &z->entries[i];
    qsort(z->by_name, z->count, sizeof *z->by_name, compare_names);
    for (size_t i = 1; i < z->count; i++) {
        const entry *const a = z->by_name[i - 1], *const b = z->by_name[i];
        if (strcmp(a->name, b->name) == 0) {
            return sw__bad_byte(z->name, SW_MAX(a->central, b->central), "the entry '%s.npy' is there twice", b->name);
        }
    }
    return SW_OK;
}

static sw_status read_directory(sw_npz *z)
{
    directory d = { 0 };
    SW_TRY(find_directory(z, &d));
    uint64_t at = d.at;
    for (uint64_t i = 0; i < d.entries; i++) SW_TRY(read_central(z, at, d.at + d.size, &at));
    return sort_names(z);
}

sw_status sw__npz_parse(const char *name, const void *bytes, size_t n, sw_npz **out)
{
    sw_npz *const z = sw__calloc(1, sizeof *z);
    if (z == NULL) return sw__no_memory(sizeof *z, "an NPZ file");
    z->bytes = bytes;
    z->n = n;
    z->name = sw__strdup(name);
    const sw_status st = z->name != NULL ? read_directory(z) : sw__no_memory(strlen(name), "a file name");
    if (st != SW_OK) {
        sw_npz_close(z);
        return st;
    }
    *out = z;
    return SW_OK;
}

sw_status sw_npz_open(const char *path, sw_npz **out)
{
    if (path == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_npz_open: path or out is NULL");
    sw__mapping map;
    SW_TRY(sw__file_map(path, &map));
    const sw_status st = sw__npz_parse(path, map.base, map.size, out);
    if (st == SW_OK) {
        (*out)->map = map;
    } else {
        sw__file_unmap(&map);
    }
    return st;
}

void sw_npz_close(sw_npz *z)
{
    if (z == NULL) return;
    for (size_t i = 0; i < z->count; i++) free_entry(&z->entries[i]);
    sw__free(z->entries);
    sw__free(z->by_name);
    sw__free(z->name);
    sw__file_unmap(&z->map);
    sw__free(z);
}

size_t sw_npz_count(const sw_npz *z)
{
    if (z == NULL) return 0;
    return z->count;
}

const char *sw_npz_name(const sw_npz *z, size_t i)
{
    if (z == NULL) return NULL;
    return i < z->count ? z->entries[i].name : NULL;
}

int64_t sw_npz_find(const sw_npz *z, const char *name)
{
    if (z == NULL || name == NULL) return -1;
    size_t low = 0, high = z->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(name, z->by_name[middle]->name);
        if (order == 0) return z->by_name[middle] - z->entries;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

/* Checks what the directory says of an entry against the file; *data is where its bytes are. */
static sw_status locate(const sw_npz *z, const entry *e, const uint8_t **data)
{
    if (e->flags & FLAG_ENCRYPTED) return sw__fail(SW_ERR_UNSUPPORTED, "%s is encrypted", e->place);
    if (e->method != STORED && e->method != DEFLATED) {
        return sw__fail(SW_ERR_UNSUPPORTED,
                        "%s: byte %" PRIu64 ": packed with zip method %u; only stored and deflated "
                        "entries are read",
                        z->name, e->central + 10, e->method);
    }
    if (!within(z, e->local, LOCAL_BYTES) || u32(z->bytes + e->local) != LOCAL_SIGNATURE) {
        return sw__bad_byte(z->name, e->central + 42, "'%s.npy' is said to begin at %" PRIu64 ", but does not", e->name,
                            e->local);
    }
    const uint8_t *const p = z->bytes + e->local;
    const uint64_t skip = (uint64_t)LOCAL_BYTES + u16(p + 26) + u16(p + 28);
    if (!within(z, e->local, skip) || !within(z, e->local + skip, e->packed)) {
        return sw__bad_byte(z->name, e->local, "'%s.npy' (%" PRIu64 " bytes) reaches beyond the end of the file",
                            e->name, e->packed);
    }
    const bool possible = e->method == STORED ? e->size == e->packed : e->size / SW__DEFLATE_RATIO <= e->packed;
    if (!possible) {
        return sw__bad_byte(z->name, e->central + 20, "'%s.npy' cannot have %" PRIu64 " bytes when it takes %" PRIu64,
                            e->name, e->size, e->packed);
    }
    *data = p + skip;
    return SW_OK;
}

/* zlib's crc32 takes 32-bit lengths. */
static uint32_t checksum(uint32_t crc, const uint8_t *p, uint64_t n)
{
    while (n > 0) {
        const uInt some = (uInt)SW_MIN(n, (uint64_t)1 << 30);
        crc = (uint32_t)crc32(crc, p, some);
        p += some;
        n -= some;
    }
    return crc;
}

sw_status sw_npz_read(sw_npz *z, size_t i, sw_array *out)
{
    if (z == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_npz_read: archive or out is NULL");
    if (i >= z->count) {
        return sw__fail(SW_ERR_ARGUMENT, "%s has %zu arrays, there is no number %zu", z->name, z->count, i);
    }
    const entry *const e = &z->entries[i];
    const uint8_t *data = NULL;
    SW_TRY(locate(z, e, &data));
    sw__stream s;
    const bool stored = e->method == STORED;
    SW_TRY(stored ? sw__stream_memory(&s, e->place, data, e->packed)
                  : sw__stream_deflate(&s, e->place, data, e->packed, e->size));
    sw_array a = { 0 };
    sw__array_header h = { 0 };
    sw_status st = sw__array_header_read(&s, SW__FORMAT_NPY, &h);
    if (st == SW_OK) st = sw__array_body_read(&s, &h, &a);
    const uint64_t size = s.offset;
    const uint32_t crc = stored ? checksum(0, data, e->packed) : s.crc;
    sw__stream_close(&s);
    SW_TRY(st);
    if (size == e->size && crc == e->crc) {
        *out = a;
        return SW_OK;
    }
    sw_array_free(&a);
    return sw__bad_byte(z->name, e->local,
                        size != e->size ? "'%s.npy' does not have the size that the directory gives"
                                        : "the checksum of '%s.npy' is wrong: the file is damaged",
                        e->name);
}

#else /* without zlib */

sw_status sw__npz_parse(const char *name, const void *bytes, size_t n, sw_npz **out)
{
    (void)bytes;
    (void)n;
    (void)out;
    return sw__fail(SW_ERR_UNSUPPORTED, "%s: NPZ files need zlib, and swoop was built without it", name);
}

sw_status sw_npz_open(const char *path, sw_npz **out)
{
    if (path == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_npz_open: path or out is NULL");
    return sw__npz_parse(path, NULL, 0, out);
}

/* There is no handle to call the others with. */
void sw_npz_close(sw_npz *z)
{
    (void)z;
}

size_t sw_npz_count(const sw_npz *z)
{
    if (z == NULL) return 0;
    (void)z;
    return 0;
}

const char *sw_npz_name(const sw_npz *z, size_t i)
{
    if (z == NULL) return NULL;
    (void)z;
    (void)i;
    return NULL;
}

int64_t sw_npz_find(const sw_npz *z, const char *name)
{
    if (z == NULL || name == NULL) return -1;
    (void)z;
    (void)name;
    return -1;
}

sw_status sw_npz_read(sw_npz *z, size_t i, sw_array *out)
{
    if (z == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_npz_read: archive or out is NULL");
    (void)z;
    (void)i;
    (void)out;
    return sw__fail(SW_ERR_UNSUPPORTED, "NPZ files need zlib, and swoop was built without it");
}
#endif
