/* cache.c: one file per compiled program: a header, then its bytes. Under backend/gpu/gpu_build.c; see cache.h.
 * Files are written under a temporary name and renamed, so that a reader sees a whole one or none; whatever else is
 * found (cut off, damaged, of another version) is removed. */
#include "kernel/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define SUFFIX ".swk"
enum { VERSION = 1, HASH_DIGITS = 32, DEFAULT_MB = 256, STALE_SECONDS = 3600 };

/* In the machine's own byte order: the binary after it is the machine's too. */
typedef struct header {
    char magic[8];
    uint32_t version, bytes; /* of the header */
    uint64_t key_bytes, key_high, key_low, payload_bytes, checksum;
} header;

static const char magic[8] = { 'S', 'W', 'K', 'C', 'A', 'C', 'H', 'E' };

/* ---- where ------------------------------------------------------------------------------------------------------- */

static const char *environment(const char *name)
{
    const char *const value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Why nothing is kept, once a process: the program works all the same. */
static void log_off(const char *folder, const char *why)
{
    static atomic_bool said;
    if (atomic_exchange(&said, true)) return;
    sw__log(SW_LOG_INFO, "compiled kernels are not kept%s%s: %s", folder ? " in " : "", folder ? folder : "", why);
}

/* *out NULL: no folder is known. A relative XDG_CACHE_HOME is to be ignored (XDG base directory specification). */
static sw_status cache_folder(char **out)
{
    const char *const own = environment("SWOOP_CACHE_DIR"), *const home = environment("HOME");
    const char *xdg = environment("XDG_CACHE_HOME");
    if (xdg != NULL && xdg[0] != '/') xdg = NULL;
    *out = NULL;
    if (own != NULL) *out = sw__strdup(own);
    else if (xdg != NULL) *out = sw__asprintf("%s/swoop", xdg);
    else if (home != NULL) *out = sw__asprintf("%s/.cache/swoop", home);
    else {
        log_off(NULL, "none of SWOOP_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
        return SW_OK;
    }
    return *out != NULL ? SW_OK : sw__no_memory(64, "a folder's name");
}

static uint64_t limit_bytes(void)
{
    const char *const text = environment("SWOOP_CACHE_MB");
    if (text == NULL) return (uint64_t)DEFAULT_MB << 20;
    char *end;
    errno = 0;
    const long long mb = strtoll(text, &end, 10);
    if (*end == '\0' && errno == 0 && mb >= 0 && mb < 1LL << 40) return (uint64_t)mb << 20;
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        sw__log(SW_LOG_WARN, "SWOOP_CACHE_MB=%s is not a number of megabytes; %d is used", text, DEFAULT_MB);
    return (uint64_t)DEFAULT_MB << 20;
}

/* Makes the folder and those above it; false: it cannot be. */
static bool make_folder(char *path)
{
    for (char *s = path + 1; *s != '\0'; s++) {
        if (*s != '/') continue;
        *s = '\0';
        const bool made = mkdir(path, 0700) == 0 || errno == EEXIST || errno == EACCES || errno == EROFS;
        *s = '/';
        if (!made) return false; /* one that is not ours to make may still be there: the last mkdir tells */
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* What an entry of this key is called, and what its header says but for the payload. */
static sw_status entry_of(const char *folder, const char *key, size_t key_bytes, header *h, char **path)
{
    const XXH128_hash_t hash = XXH3_128bits(key, key_bytes);
    *h = (header){ .version = VERSION, .bytes = sizeof *h, .key_bytes = key_bytes,
                   .key_high = hash.high64, .key_low = hash.low64 };
    memcpy(h->magic, magic, sizeof magic);
    *path = sw__asprintf("%s/%016llx%016llx" SUFFIX, folder, (unsigned long long)hash.high64,
                         (unsigned long long)hash.low64);
    return *path != NULL ? SW_OK : sw__no_memory(strlen(folder) + 64, "a file name");
}

/* ---- get --------------------------------------------------------------------------------------------------------- */

static bool read_all(int fd, void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = read(fd, (char *)bytes + done, n - done);
        if (got > 0) done += (size_t)got;
        else if (got == 0) errno = EIO; /* shorter than fstat said */
        if (got == 0 || (got < 0 && errno != EINTR)) return false;
    }
    return true;
}

static void missed(const char *path, const char *doing)
{
    sw__log(SW_LOG_INFO, "kernel cache: %s: cannot %s: %s", path, doing, strerror(errno));
}

/* Removing may take away a good file that another process has just put there: it is compiled once more, no harm. */
static void discard(const char *path, const char *why)
{
    sw__log(SW_LOG_INFO, "kernel cache: %s is %s; removed", path, why);
    if (unlink(path) != 0 && errno != ENOENT) missed(path, "remove it");
}

/* Drivers load what they are given as code: only files of this user's or root's are trusted. */
static bool trusted(const char *path, const struct stat *s)
{
    if (S_ISREG(s->st_mode) && (s->st_uid == geteuid() || s->st_uid == 0)) return true;
    sw__log(SW_LOG_INFO, "kernel cache: %s is no file of this user's: not read", path);
    return false;
}

/* Header and payload of an open file; *bytes stays NULL on a miss. */
static sw_status read_entry(int fd, const char *path, const header *want, void **bytes, size_t *n)
{
    struct stat s;
    header h;
    if (fstat(fd, &s) != 0) return missed(path, "read it"), SW_OK;
    if (!trusted(path, &s)) return SW_OK;
    if (s.st_size < (off_t)sizeof h) return discard(path, "cut off"), SW_OK;
    if (!read_all(fd, &h, sizeof h)) return missed(path, "read it"), SW_OK;
    if (memcmp(&h, want, offsetof(header, payload_bytes)) != 0)
        return discard(path, "not what its name says"), SW_OK;
    if (h.payload_bytes != (uint64_t)s.st_size - sizeof h) return discard(path, "cut off"), SW_OK;
    const size_t size = (size_t)h.payload_bytes;
    void *const payload = sw__malloc(size);
    if (payload == NULL) return sw__no_memory(size, "a compiled program from the cache");
    if (!read_all(fd, payload, size)) {
        missed(path, "read it");
    } else if (XXH3_64bits(payload, size) != h.checksum) {
        discard(path, "damaged");
    } else {
        *bytes = payload;
        *n = size;
        if (futimens(fd, NULL) != 0) missed(path, "mark it as used");
        return SW_OK;
    }
    sw__free(payload);
    return SW_OK;
}

sw_status sw__kcache_get(const char *key_text, size_t key_bytes, void **bytes, size_t *n)
{
    char *folder, *path;
    header want;
    *bytes = NULL;
    *n = 0;
    if (limit_bytes() == 0) return SW_OK;
    SW_TRY(cache_folder(&folder));
    if (folder == NULL) return SW_OK;
    sw_status st = entry_of(folder, key_text, key_bytes, &want, &path);
    sw__free(folder);
    if (st != SW_OK) return st;
    /* not blocking: whatever has that name may be a pipe */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) st = read_entry(fd, path, &want, bytes, n);
    else if (errno != ENOENT) missed(path, "read it");
    if (fd >= 0) close(fd);
    sw__free(path);
    return st;
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    char name[64];
    struct timespec used;
    uint64_t bytes;
} entry;

typedef struct listing {
    entry *e;
    size_t n, capacity;
    uint64_t bytes;
} listing;

/* Only what is certainly the cache's own is ever removed: 32 hexadecimal digits and the suffix. */
static bool own_name(const char *name)
{
    const size_t length = strlen(name);
    return length < sizeof((entry *)0)->name && strspn(name, "0123456789abcdef") == HASH_DIGITS &&
           strncmp(name + HASH_DIGITS, SUFFIX, strlen(SUFFIX)) == 0;
}

static bool temporary_name(const char *name)
{
    return strlen(name) > HASH_DIGITS + strlen(SUFFIX);
}

static sw_status list_one(listing *l, int folder, const char *name)
{
    struct stat s;
    struct timespec now;
    if (!own_name(name) || fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode)) return SW_OK;
    if (temporary_name(name)) { /* left by a process that was killed, or being written at this moment */
        if (clock_gettime(CLOCK_REALTIME, &now) == 0 && now.tv_sec - s.st_mtim.tv_sec > STALE_SECONDS)
            unlinkat(folder, name, 0);
        return SW_OK;
    }
    SW_TRY(sw__grow(&l->e, &l->capacity, l->n + 1, sizeof *l->e, "the list of cached programs"));
    entry *const e = &l->e[l->n++];
    *e = (entry){ .used = s.st_mtim, .bytes = (uint64_t)s.st_size };
    memcpy(e->name, name, strlen(name) + 1);
    l->bytes += e->bytes;
    return SW_OK;
}

static int older(const void *pa, const void *pb)
{
    const entry *const a = pa, *const b = pb;
    if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec) return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Removes the least recently used until `limit` is kept; never `keep`, which has just been put. */
static sw_status make_room(const char *folder, const char *keep, uint64_t limit)
{
    DIR *const dir = opendir(folder);
    if (dir == NULL) return missed(folder, "list it"), SW_OK;
    listing l = { 0 };
    sw_status st = SW_OK;
    for (const struct dirent *d = NULL; st == SW_OK && (d = readdir(dir)) != NULL;)
        st = list_one(&l, dirfd(dir), d->d_name);
    if (st == SW_OK && l.bytes > limit) {
        qsort(l.e, l.n, sizeof *l.e, older);
        for (size_t i = 0; i < l.n && l.bytes > limit; i++) {
            if (strcmp(l.e[i].name, keep) == 0) continue;
            if (unlinkat(dirfd(dir), l.e[i].name, 0) == 0 || errno == ENOENT) l.bytes -= l.e[i].bytes;
            else missed(l.e[i].name, "remove it");
        }
    }
    sw__free(l.e);
    closedir(dir);
    return st;
}

/* ---- put --------------------------------------------------------------------------------------------------------- */

static bool write_all(int fd, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t put = write(fd, (const char *)bytes + done, n - done);
        if (put > 0) done += (size_t)put;
        if (put < 0 && errno != EINTR) return false;
    }
    return true;
}

/* False: it is not there, and the log says why. `temporary` ends in XXXXXX. */
static bool write_entry(const char *path, char *temporary, const header *h, const void *bytes)
{
    const int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        if (errno == EACCES || errno == EROFS || errno == EPERM) log_off(path, strerror(errno));
        else missed(path, "write it");
        return false;
    }
    bool good = write_all(fd, h, sizeof *h) && write_all(fd, bytes, (size_t)h->payload_bytes) && fsync(fd) == 0;
    int err = errno;
    if (close(fd) != 0 && good) {
        good = false;
        err = errno;
    }
    if (good && rename(temporary, path) != 0) {
        good = false;
        err = errno;
    }
    if (good) return true;
    unlink(temporary);
    errno = err;
    missed(path, "write it");
    return false;
}

static sw_status put_in(const char *folder, const char *key, size_t key_bytes, const void *bytes, size_t n, bool *kept)
{
    header h;
    char *path;
    const uint64_t limit = limit_bytes();
    if (n > limit || limit - n < sizeof h) {
        sw__log(SW_LOG_INFO, "kernel cache: a program of %zu bytes is more than is kept (SWOOP_CACHE_MB)", n);
        return SW_OK;
    }
    SW_TRY(entry_of(folder, key, key_bytes, &h, &path));
    h.payload_bytes = n;
    h.checksum = XXH3_64bits(bytes, n);
    char *const temporary = sw__asprintf("%s.XXXXXX", path);
    sw_status st = temporary != NULL ? SW_OK : sw__no_memory(strlen(path) + 8, "a file name");
    *kept = st == SW_OK && write_entry(path, temporary, &h, bytes);
    if (*kept) st = make_room(folder, strrchr(path, '/') + 1, limit);
    sw__free(temporary);
    sw__free(path);
    return st;
}

sw_status sw__kcache_put(const char *key_text, size_t key_bytes, const void *bytes, size_t n, bool *kept)
{
    char *folder;
    bool unused;
    if (kept == NULL) kept = &unused;
    *kept = false;
    if (limit_bytes() == 0) return SW_OK;
    SW_TRY(cache_folder(&folder));
    if (folder == NULL) return SW_OK;
    sw_status st = SW_OK;
    if (make_folder(folder)) st = put_in(folder, key_text, key_bytes, bytes, n, kept);
    else log_off(folder, strerror(errno));
    sw__free(folder);
    return st;
}

/* ---- lock -------------------------------------------------------------------------------------------------------- */

int sw__kcache_lock(void)
{
    char *folder = NULL;
    if (limit_bytes() == 0 || cache_folder(&folder) != SW_OK || folder == NULL) return -1;
    char *const path = make_folder(folder) ? sw__asprintf("%s/lock", folder) : NULL;
    const int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600) : -1;
    int code = 0;
    while (fd >= 0 && (code = flock(fd, LOCK_EX)) != 0 && errno == EINTR) {}
    if (fd < 0 || code != 0) sw__log(SW_LOG_INFO, "kernel cache: %s: cannot lock it: %s", folder, strerror(errno));
    sw__free(path);
    sw__free(folder);
    return fd;
}

void sw__kcache_unlock(int lock)
{
    if (lock >= 0) close(lock); /* which ends the lock */
}
