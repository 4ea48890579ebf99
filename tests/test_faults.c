/* test_faults.c: a small training run (read data, train, checkpoint, evaluate) in which every allocation, file call and
 * thread creation fails in turn. Each ends in success or in a status with a message, without leak or half-written file. */
/* link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free,--wrap=open,--wrap=fopen,--wrap=fdopen,--wrap=read,--wrap=fwrite,--wrap=fflush,--wrap=fsync,--wrap=rename,--wrap=mkdir,--wrap=mmap,--wrap=ftruncate,--wrap=close,--wrap=fclose,--wrap=stat,--wrap=fstat,--wrap=pthread_create */
/* timeout: 900 */
#include "swoop/swoop.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- the calls, and which one fails ---------------------------------------------------------------------------------------- */

enum { MEMORY, FILES, THREADS, KINDS };
static const char *const kind_names[] = {"allocation", "file call", "thread"};
static atomic_long calls[KINDS], fail_at[KINDS]; /* fail_at 0: none */
static atomic_bool counting;
static atomic_int hit;

static bool fails(int kind)
{
    if (!atomic_load(&counting)) return false;
    if (atomic_fetch_add(&calls[kind], 1) + 1 != atomic_load(&fail_at[kind])) return false;
    atomic_fetch_add(&hit, 1);
    return true;
}

/* Pointers that were handed out while counting and not freed yet: an open hash table. */
#define SLOTS (1u << 18)
static void *live[SLOTS];
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t slot_of(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15u >> 46) & (SLOTS - 1);
}

static void *remember(void *p)
{
    if (!p || !atomic_load(&counting)) return p;
    pthread_mutex_lock(&live_lock);
    size_t i = slot_of(p);
    while (live[i] && live[i] != (void *)1) i = (i + 1) & (SLOTS - 1);
    live[i] = p;
    pthread_mutex_unlock(&live_lock);
    return p;
}

static void forget(const void *p)
{
    if (!p) return;
    pthread_mutex_lock(&live_lock);
    for (size_t i = slot_of(p); live[i]; i = (i + 1) & (SLOTS - 1))
        if (live[i] == p) {
            live[i] = (void *)1; /* a grave */
            break;
        }
    pthread_mutex_unlock(&live_lock);
}

static int count_live(void)
{
    int n = 0;
    for (size_t i = 0; i < SLOTS; i++) n += live[i] && live[i] != (void *)1;
    return n;
}

#define REAL(type, name, args) \
    type __real_##name args;   \
    type __wrap_##name args;   \
    type __wrap_##name args

REAL(void *, malloc, (size_t n))
{
    return fails(MEMORY) ? NULL : remember(__real_malloc(n));
}
REAL(void *, calloc, (size_t n, size_t size))
{
    return fails(MEMORY) ? NULL : remember(__real_calloc(n, size));
}
REAL(void *, aligned_alloc, (size_t align, size_t n))
{
    return fails(MEMORY) ? NULL : remember(__real_aligned_alloc(align, n));
}
REAL(void *, realloc, (void *p, size_t n))
{
    if (fails(MEMORY)) return NULL;
    void *q = __real_realloc(p, n);
    if (q || n == 0) forget(p);
    return remember(q);
}
REAL(void, free, (void *p))
{
    forget(p);
    __real_free(p);
}

static int refuse(int error)
{
    errno = error;
    return -1;
}
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = flags & O_CREAT ? (mode_t)va_arg(ap, int) : 0;
    va_end(ap);
    return fails(FILES) ? refuse(EIO) : __real_open(path, flags, mode);
}
REAL(FILE *, fopen, (const char *path, const char *mode))
{
    return fails(FILES) ? (refuse(EMFILE), NULL) : __real_fopen(path, mode);
}
REAL(FILE *, fdopen, (int fd, const char *mode))
{
    return fails(FILES) ? (refuse(ENOMEM), NULL) : __real_fdopen(fd, mode);
}
REAL(ssize_t, read, (int fd, void *to, size_t n))
{
    return fails(FILES) ? refuse(EIO) : __real_read(fd, to, n);
}
REAL(size_t, fwrite, (const void *from, size_t size, size_t n, FILE *f))
{
    return fails(FILES) ? (refuse(ENOSPC), (size_t)0) : __real_fwrite(from, size, n, f);
}
REAL(int, fflush, (FILE * f))
{
    return fails(FILES) ? (refuse(ENOSPC), EOF) : __real_fflush(f);
}
REAL(int, fsync, (int fd)) /* whether the disk has it is of no interest here, and waiting for it takes most of the time */
{
    (void)fd;
    return fails(FILES) ? refuse(EIO) : 0;
}
REAL(int, rename, (const char *from, const char *to))
{
    return fails(FILES) ? refuse(EACCES) : __real_rename(from, to);
}
REAL(int, mkdir, (const char *path, mode_t mode))
{
    return fails(FILES) ? refuse(EROFS) : __real_mkdir(path, mode);
}
REAL(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset))
{
    return fails(FILES) ? (refuse(ENOMEM), MAP_FAILED) : __real_mmap(at, n, prot, flags, fd, offset);
}
REAL(int, ftruncate, (int fd, off_t n))
{
    return fails(FILES) ? refuse(EIO) : __real_ftruncate(fd, n);
}
REAL(int, close, (int fd))
{
    const bool bad = fails(FILES);
    const int r = __real_close(fd);
    return bad ? refuse(EIO) : r;
}
REAL(int, fclose, (FILE * f))
{
    const bool bad = fails(FILES);
    const int r = __real_fclose(f);
    return bad ? (refuse(EIO), EOF) : r;
}
REAL(int, stat, (const char *path, struct stat *s))
{
    return fails(FILES) ? refuse(EIO) : __real_stat(path, s);
}
REAL(int, fstat, (int fd, struct stat *s))
{
    return fails(FILES) ? refuse(EIO) : __real_fstat(fd, s);
}
REAL(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *x))
{
    return fails(THREADS) ? EAGAIN : __real_pthread_create(t, a, f, x);
}

/* ---- the run ----------------------------------------------------------------------------------------------------------------- */

static char folder[256], data[600];

static sw_status set_all(sw_config *c)
{
    char project[300];
    snprintf(project, sizeof project, "%s/runs", folder);
    const char *const keys[][2] = {{"data", data},     {"model", "cnn:2"},     {"epochs", "1"},   {"batch_size", "8"},
                                   {"workers", "1"},   {"val_split", "0.25"},  {"save_every", "1"}, {"project", project},
                                   {"exist_ok", "true"}, {"device", "cpu"},    {"threads", "1"},  {"patience", "3"}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const sw_status st = sw_config_set(c, keys[i][0], keys[i][1]);
        if (st != SW_OK) return st;
    }
    return SW_OK;
}

static sw_status run_once(void)
{
    sw_config *c = NULL;
    sw_run_result result;
    sw_eval_result eval;
    char run[400];
    sw_status st = sw_config_new(&c);
    if (st == SW_OK) st = set_all(c);
    if (st == SW_OK) st = sw_run_train(c, NULL, &result);
    if (st == SW_OK) st = sw_config_set(c, "epochs", "2");
    snprintf(run, sizeof run, "%s/runs/train", folder);
    if (st == SW_OK) st = sw_config_set(c, "resume", run);
    if (st == SW_OK) st = sw_run_train(c, NULL, &result);
    if (st == SW_OK) st = sw_run_eval(run, NULL, "val", "cpu", 1, &eval);
    if (st == SW_OK) sw_eval_result_free(&eval);
    sw_config_free(c);
    return st;
}

/* Every weight file in the run folder can be read, and no temporary file of a failed writing is left. */
static void check_files(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        char full[1024];
        struct stat s;
        if (e->d_name[0] == '.' || strcmp(e->d_name, "last") == 0) continue;
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        if (strstr(e->d_name, ".tmp")) fail_msg("left behind: %s", full);
        if (strstr(e->d_name, ".safetensors")) {
            sw_safetensors *f = NULL;
            if (sw_safetensors_open(full, &f) != SW_OK) fail_msg("half-written: %s: %s", full, sw_error());
            sw_safetensors_close(f);
        } else if (stat(full, &s) == 0 && S_ISDIR(s.st_mode)) {
            check_files(full);
        }
    }
    closedir(d);
}

static void remove_runs(void)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s/runs'", folder);
    if (system(command) != 0) fail_msg("cannot clean up");
}

/* Runs with the n-th call of one kind failing (0: none); returns whether such a call came. */
static bool run_with_fault(int kind, long n)
{
    memset(live, 0, sizeof live);
    for (int k = 0; k < KINDS; k++) {
        atomic_store(&calls[k], 0);
        atomic_store(&fail_at[k], k == kind ? n : 0);
    }
    atomic_store(&hit, 0);
    atomic_store(&counting, true);
    const sw_status st = run_once();
    atomic_store(&counting, false);
    const bool came = atomic_load(&hit) > 0;
    if (!came && st != SW_OK) fail_msg("without a fault: %s: %s", sw_status_name(st), sw_error());
    if (st != SW_OK && !*sw_error()) fail_msg("%s %ld: status %s without a message", kind_names[kind], n, sw_status_name(st));
    const int leaked = count_live();
    if (leaked) fail_msg("%s %ld failing: %d allocations leaked (status %s: %s)", kind_names[kind], n, leaked,
                         sw_status_name(st), sw_error());
    check_files(folder);
    remove_runs();
    return came;
}

static void each_in_turn(int kind)
{
    run_with_fault(kind, 0);
    print_message("%ld %ss in a run\n", atomic_load(&calls[kind]), kind_names[kind]);
    const char *every = getenv("SWOOP_FAULTS_STEP"); /* under sanitizers each run takes long: every n-th then */
    const long wish = every ? strtol(every, NULL, 10) : 1, step = wish > 0 ? wish : 1;
    long n = 1, failed = 0;
    for (; run_with_fault(kind, n); n += step) failed++;
    print_message("%ld %ss failed in turn\n", failed, kind_names[kind]);
    assert_true(failed > 0);
}

static void test_memory(void **state)
{
    (void)state;
    each_in_turn(MEMORY);
}
static void test_files(void **state)
{
    (void)state;
    each_in_turn(FILES);
}
static void test_threads(void **state)
{
    (void)state;
    each_in_turn(THREADS);
}

static int set_up(void **state)
{
    (void)state;
    static float x[32 * 36];
    static int64_t y[32];
    char path[2][300];
    snprintf(folder, sizeof folder, "%s/swoop-faults-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder)) return -1;
    for (int i = 0; i < 32 * 36; i++) x[i] = (float)((i * 37) % 101) / 101.0f;
    for (int i = 0; i < 32; i++) y[i] = i % 3;
    const sw_array ax = {.dtype = SW_F32, .rank = 4, .shape = {32, 1, 6, 6}, .data = x, .bytes = sizeof x};
    const sw_array ay = {.dtype = SW_I64, .rank = 1, .shape = {32}, .data = y, .bytes = sizeof y};
    snprintf(path[0], sizeof path[0], "%s/x.npy", folder);
    snprintf(path[1], sizeof path[1], "%s/y.npy", folder);
    snprintf(data, sizeof data, "%s:%s", path[0], path[1]);
    if (sw_npy_write(path[0], &ax) != SW_OK || sw_npy_write(path[1], &ay) != SW_OK) return -1;
    setenv("SWOOP_LOG", "error", 1);
    if (run_once() != SW_OK) { /* what libraries allocate once and keep is allocated now */
        print_error("%s\n", sw_error());
        return -1;
    }
    remove_runs();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads), cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
