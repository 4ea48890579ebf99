/* test_kernel_cache.c: compiled programs on disk: what is put comes back, whatever is damaged is a miss and goes, and
 * no failing call, full disk or second process does harm. */
/* clang-format off */
/* link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=open,--wrap=read,--wrap=write,--wrap=fstat,--wrap=fstatat,--wrap=fsync,--wrap=rename,--wrap=mkostemp,--wrap=mkdir,--wrap=opendir,--wrap=futimens,--wrap=unlink,--wrap=unlinkat */
/* clang-format on */
#include "kernel/cache.h"

#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- calls that fail --------------------------------------------------------------------------------------------- */

static long left = -1; /* calls until one fails; -1: none does */

static bool fails(void)
{
    return left >= 0 && left-- == 0;
}

#define WRAP(type, name, parameters, arguments, error, value)                                                          \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        if (fails()) {                                                                                                 \
            errno = error;                                                                                             \
            return value;                                                                                              \
        }                                                                                                              \
        return __real_##name arguments;                                                                                \
    }

WRAP(void *, malloc, (size_t n), (n), ENOMEM, NULL)
WRAP(void *, calloc, (size_t n, size_t m), (n, m), ENOMEM, NULL)
WRAP(void *, realloc, (void *p, size_t n), (p, n), ENOMEM, NULL)
WRAP(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), EIO, -1)
WRAP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), ENOSPC, -1)
WRAP(int, fstat, (int fd, struct stat *s), (fd, s), EIO, -1)
WRAP(int, fstatat, (int fd, const char *p, struct stat *s, int flags), (fd, p, s, flags), EIO, -1)
WRAP(int, fsync, (int fd), (fd), EIO, -1)
WRAP(int, rename, (const char *a, const char *b), (a, b), EIO, -1)
WRAP(int, mkostemp, (char *name, int flags), (name, flags), EMFILE, -1)
WRAP(int, mkdir, (const char *p, mode_t mode), (p, mode), ENOSPC, -1)
WRAP(DIR *, opendir, (const char *p), (p), EMFILE, NULL)
WRAP(int, futimens, (int fd, const struct timespec t[2]), (fd, t), EPERM, -1)
WRAP(int, unlink, (const char *p), (p), EIO, -1)
WRAP(int, unlinkat, (int fd, const char *p, int flags), (fd, p, flags), EIO, -1)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, int mode);
int __wrap_open(const char *path, int flags, int mode)
{
    if (!fails()) return __real_open(path, flags, mode);
    errno = EMFILE;
    return -1;
}

/* ---- a folder of the test's own ---------------------------------------------------------------------------------- */

static char scratch[64], folder[128];

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *f)
{
    (void)s;
    (void)type;
    (void)f;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "/tmp/swoop-cache-XXXXXX");
    if (mkdtemp(scratch) == NULL) return -1;
    snprintf(folder, sizeof folder, "%s/a/b", scratch);
    unsetenv("SWOOP_CACHE_MB");
    return setenv("SWOOP_CACHE_DIR", folder, 1);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(scratch, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The path of the only entry, or of the n-th; NULL: there are fewer. Also counts them. */
static int entries(char *first, size_t size)
{
    DIR *const d = opendir(folder);
    int n = 0;
    if (d == NULL) return 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        if (n++ == 0 && first != NULL) snprintf(first, size, "%s/%.100s", folder, e->d_name);
    }
    closedir(d);
    return n;
}

static void put(const char *key, const void *bytes, size_t n)
{
    if (sw__kcache_put(key, strlen(key), bytes, n, NULL) != SW_OK) fail_msg("put: %s", sw_error());
}

/* What is there is what was put, or nothing; true: it is there. */
static bool got(const char *key, const void *bytes, size_t n)
{
    void *have;
    size_t size;
    if (sw__kcache_get(key, strlen(key), &have, &size) != SW_OK) fail_msg("get: %s", sw_error());
    if (have == NULL) return false;
    assert_int_equal(size, n);
    assert_memory_equal(have, bytes, n);
    sw__free(have);
    return true;
}

static const char program[] = "the bytes of a compiled program";

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    (void)state;
    assert_false(got("key", program, sizeof program));
    put("key", program, sizeof program);
    assert_true(got("key", program, sizeof program));
    assert_false(got("other", program, sizeof program));
    assert_false(got("key2", program, sizeof program));
    put("key", program, 7); /* again: the newer */
    assert_true(got("key", program, 7));
    put("empty", "", 0);
    assert_true(got("empty", "", 0));
    const char zeros[] = "a\0b";
    assert_int_equal(sw__kcache_put(zeros, 3, program, 3, NULL), SW_OK);
    assert_false(got("a", program, 3));
    assert_int_equal(entries(NULL, 0), 3);
}

static void test_folders(void **state)
{
    (void)state;
    char path[256];
    struct stat s;
    unsetenv("SWOOP_CACHE_DIR");
    setenv("XDG_CACHE_HOME", "relative", 1); /* to be ignored */
    setenv("HOME", scratch, 1);
    put("key", program, 5);
    snprintf(path, sizeof path, "%s/.cache/swoop", scratch);
    assert_int_equal(stat(path, &s), 0);
    assert_true(S_ISDIR(s.st_mode));
    assert_true(got("key", program, 5));
    setenv("XDG_CACHE_HOME", scratch, 1);
    assert_false(got("key", program, 5));
    put("key", program, 6);
    assert_true(got("key", program, 6));
    snprintf(path, sizeof path, "%s/swoop", scratch);
    assert_int_equal(stat(path, &s), 0);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    put("key", program, 5); /* nowhere: no error */
    assert_false(got("key", program, 5));
}

/* Each byte of the file in turn is another one. */
static void test_corrupt(void **state)
{
    (void)state;
    char path[256];
    put("key", program, sizeof program);
    assert_int_equal(entries(path, sizeof path), 1);
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    for (off_t at = 0; at < s.st_size; at++) {
        const int fd = open(path, O_RDWR, 0);
        unsigned char byte = 0;
        assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        if (got("key", program, sizeof program)) fail_msg("byte %lld makes no difference", (long long)at);
        assert_int_equal(entries(NULL, 0), 0); /* removed */
        put("key", program, sizeof program);
        assert_true(got("key", program, sizeof program));
    }
}

static void test_truncated(void **state)
{
    (void)state;
    char path[256];
    struct stat s;
    put("key", program, sizeof program);
    assert_int_equal(entries(path, sizeof path), 1);
    assert_int_equal(stat(path, &s), 0);
    for (off_t size = 0; size <= s.st_size + 1; size++) {
        if (size == s.st_size) continue;
        assert_int_equal(truncate(path, size), 0);
        if (got("key", program, sizeof program)) fail_msg("%lld bytes are taken", (long long)size);
        assert_int_equal(entries(NULL, 0), 0);
        put("key", program, sizeof program);
    }
    char other[300]; /* an entry under another's name */
    put("other key", program, 3);
    snprintf(other, sizeof other, "%s/x", folder);
    assert_int_equal(rename(path, other), 0);
    char second[256];
    assert_int_equal(entries(second, sizeof second), 2);
    if (strcmp(second, other) == 0) {
        assert_int_equal(unlink(other), 0);
        assert_int_equal(entries(second, sizeof second), 1);
    }
    assert_int_equal(rename(second, path), 0);
    assert_false(got("key", program, sizeof program));
}

static void test_strange_files(void **state)
{
    (void)state;
    char path[256];
    put("key", program, sizeof program);
    assert_int_equal(entries(path, sizeof path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* reading it would wait for ever */
    assert_false(got("key", program, sizeof program));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(got("key", program, sizeof program));
    put("key", program, sizeof program);
    assert_false(got("key", program, sizeof program));
    assert_int_equal(entries(NULL, 0), 1); /* no temporary file is left */
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_false(got("key", program, sizeof program));
}

/* Four processes put and get the same key: each get finds a whole entry of one of them. */
static void test_processes(void **state)
{
    (void)state;
    enum { PROCESSES = 4, TURNS = 50, BYTES = 100000 };
    pid_t child[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] > 0) continue;
        static char bytes[BYTES];
        bool good = true;
        memset(bytes, 'a' + i, BYTES);
        for (int k = 0; k < TURNS && good; k++) {
            void *have = NULL;
            size_t n = 0;
            good = sw__kcache_put("key", 3, bytes, BYTES, NULL) == SW_OK && sw__kcache_get("key", 3, &have, &n) == SW_OK &&
                   have != NULL && n == BYTES;
            for (size_t b = 1; good && b < n; b++) good = ((char *)have)[b] == ((char *)have)[0];
            sw__free(have);
        }
        _exit(good ? 0 : 1);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(entries(NULL, 0), 1);
}

static void age(const char *key, int seconds)
{
    char path[256];
    void *have;
    size_t n;
    assert_int_equal(sw__kcache_get(key, strlen(key), &have, &n), SW_OK);
    assert_non_null(have);
    sw__free(have);
    DIR *const d = opendir(folder); /* the one that was used last is the one just read */
    char newest[256] = "";
    struct timespec best = { 0, 0 };
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat s;
        snprintf(path, sizeof path, "%s/%.100s", folder, e->d_name);
        if (e->d_name[0] == '.' || stat(path, &s) != 0) continue;
        if (s.st_mtim.tv_sec < best.tv_sec ||
            (s.st_mtim.tv_sec == best.tv_sec && s.st_mtim.tv_nsec < best.tv_nsec)) continue;
        best = s.st_mtim;
        snprintf(newest, sizeof newest, "%s", path);
    }
    closedir(d);
    const struct timespec then[2] = { { best.tv_sec - seconds, 0 }, { best.tv_sec - seconds, 0 } };
    assert_int_equal(utimensat(AT_FDCWD, newest, then, 0), 0);
}

static void test_limit(void **state)
{
    (void)state;
    enum { BYTES = 300 * 1024 };
    char *const bytes = calloc(1, 2 << 20), path[300];
    assert_non_null(bytes);
    setenv("SWOOP_CACHE_MB", "1", 1);
    const char *const key[] = { "one", "two", "three", "four", "five" };
    for (int i = 0; i < 3; i++) {
        put(key[i], bytes, BYTES);
        age(key[i], 1000 - 10 * i);
    }
    snprintf(path, sizeof path, "%s/not-of-the-cache", folder);
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0 && write(fd, bytes, 2 << 20) == 2 << 20);
    close(fd);
    assert_true(got("one", bytes, BYTES)); /* touched: "two" is the oldest now */
    put(key[3], bytes, BYTES);
    assert_true(got("one", bytes, BYTES));
    assert_false(got("two", bytes, BYTES));
    assert_true(got("three", bytes, BYTES));
    assert_true(got("four", bytes, BYTES));
    put("big", bytes, 2 << 20); /* more than is kept: nothing else goes for it */
    assert_false(got("big", bytes, 2 << 20));
    assert_true(got("one", bytes, BYTES));
    put("most", bytes, (1 << 20) - 100);
    assert_true(got("most", bytes, (1 << 20) - 100));
    assert_false(got("one", bytes, BYTES));
    assert_int_equal(access(path, F_OK), 0); /* what is not the cache's stays */
    setenv("SWOOP_CACHE_MB", "0", 1);
    assert_false(got("most", bytes, (1 << 20) - 100));
    put("none", bytes, 3);
    setenv("SWOOP_CACHE_MB", "many", 1); /* said in the log; the default */
    assert_false(got("none", bytes, 3));
    assert_true(got("most", bytes, (1 << 20) - 100));
    free(bytes);
}

/* Temporary files of a process that was killed go after an hour, those being written stay. */
static void test_stale(void **state)
{
    (void)state;
    char path[256], old[300], fresh[300];
    put("key", program, 5);
    assert_int_equal(entries(path, sizeof path), 1);
    snprintf(old, sizeof old, "%s.abcdef", path);
    snprintf(fresh, sizeof fresh, "%s.ABCDEF", path);
    close(open(old, O_CREAT | O_WRONLY, 0600));
    close(open(fresh, O_CREAT | O_WRONLY, 0600));
    const struct timespec then[2] = { { 1000, 0 }, { 1000, 0 } };
    assert_int_equal(utimensat(AT_FDCWD, old, then, 0), 0);
    put("other", program, 5);
    assert_int_not_equal(access(old, F_OK), 0);
    assert_int_equal(access(fresh, F_OK), 0);
}

/* Root may write anywhere: an ordinary user's rights are tried in a child process. */
static void test_read_only(void **state)
{
    (void)state;
    put("key", program, sizeof program);
    assert_int_equal(chmod(folder, 0555), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (chmod(scratch, 0755) != 0 || setuid(65534) != 0)) _exit(2);
        void *have = NULL;
        size_t n = 0;
        const bool good = sw__kcache_put("new", 3, program, 3, NULL) == SW_OK &&
                          sw__kcache_get("new", 3, &have, &n) == SW_OK && have == NULL;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(entries(NULL, 0), 1);
    setenv("SWOOP_CACHE_DIR", "/proc/no/such", 1);
    put("key", program, 5);
    assert_false(got("key", program, 5));
}

/* A file size limit stands for the full disk: writing stops in the middle of the file. */
static void test_disk_full(void **state)
{
    (void)state;
    static char bytes[100000];
    put("key", bytes, 10);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 50000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const sw_status st = sw__kcache_put("key", 3, bytes, sizeof bytes, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(st, SW_OK);
    assert_true(got("key", bytes, 10)); /* the old entry is whole */
    assert_int_equal(entries(NULL, 0), 1); /* and nothing half-written beside it */
}

static sw_status scenario(void)
{
    void *have = NULL;
    size_t n = 0;
    SW_TRY(sw__kcache_put("one", 3, program, sizeof program, NULL));
    SW_TRY(sw__kcache_put("two", 3, program, 5, NULL));
    SW_TRY(sw__kcache_get("one", 3, &have, &n));
    const bool good = have == NULL || (n == sizeof program && memcmp(have, program, n) == 0);
    sw__free(have);
    return good ? SW_OK : SW_ERR_DATA;
}

/* Out of memory is an error with a message, any other failure a miss. */
static void test_every_call_fails(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        left = n;
        const sw_status st = scenario();
        const bool unused = left >= 0;
        left = -1;
        if (st != SW_OK) {
            assert_int_equal(st, SW_ERR_MEMORY);
            assert_non_null(strstr(sw_error(), "out of memory"));
        }
        for (int i = 0; i < 2; i++) assert_int_equal(scenario(), SW_OK); /* no damage was done */
        assert_true(got("one", program, sizeof program));
        if (unused) {
            assert_true(n > 20);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folders, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_corrupt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_truncated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strange_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_processes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stale, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_read_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_disk_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_call_fails, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
