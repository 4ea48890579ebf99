/* test_io_failures.c: every allocation, file call and thread of reading, writing and loading fails in turn: an error
 * with a message, nothing leaked (under the address sanitizer), no half-written file, and the next try succeeds. */
/* clang-format off */
/* link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=open,--wrap=read,--wrap=fstat,--wrap=mmap,--wrap=fsync,--wrap=rename,--wrap=ftruncate,--wrap=fdopen,--wrap=fwrite,--wrap=fflush,--wrap=opendir,--wrap=pthread_create */
/* clang-format on */
#include "io_test.h"
#include "io/atomic.h"
#include "swoop/config.h"
#include "swoop/data.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Calls left until one fails; -1: none does. Background threads take part. */
static _Atomic long left = -1;

static bool fails(void)
{
    if (left < 0) return false;
    return left-- == 0;
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
WRAP(void *, aligned_alloc, (size_t a, size_t n), (a, n), ENOMEM, NULL)
WRAP(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), EIO, -1)
WRAP(int, fstat, (int fd, struct stat *s), (fd, s), EIO, -1)
WRAP(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at), ENOMEM,
     MAP_FAILED)
WRAP(int, fsync, (int fd), (fd), EIO, -1)
WRAP(int, rename, (const char *a, const char *b), (a, b), EIO, -1)
WRAP(int, ftruncate, (int fd, off_t n), (fd, n), EIO, -1)
WRAP(FILE *, fdopen, (int fd, const char *mode), (fd, mode), ENOMEM, NULL)
WRAP(size_t, fwrite, (const void *p, size_t n, size_t m, FILE *f), (p, n, m, f), ENOSPC, 0)
WRAP(int, fflush, (FILE * f), (f), ENOSPC, -1)
WRAP(DIR *, opendir, (const char *p), (p), EMFILE, NULL)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, int mode);
int __wrap_open(const char *path, int flags, int mode)
{
    if (!fails()) return __real_open(path, flags, mode);
    errno = EMFILE;
    return -1;
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument)
{
    return fails() ? EAGAIN : __real_pthread_create(t, a, f, argument);
}

/* Runs the scenario with its 1st, 2nd, … call failing, until it gets by without one. */
static void each_fails(sw_status (*scenario)(void), const char *name)
{
    for (long n = 0;; n++) {
        left = n;
        const sw_status st = scenario();
        const bool unused = left >= 0;
        left = -1;
        if (unused) {
            if (st != SW_OK) fail_msg("%s: %s", name, sw_error());
            assert_true(n > 0);
            return;
        }
        if (st == SW_OK) continue; /* a failure that did no harm, such as no lock */
        if (st != SW_ERR_MEMORY && st != SW_ERR_IO && st != SW_ERR_THREAD) {
            fail_msg("%s, call %ld: status %d: %s", name, n, st, sw_error());
        }
        if (sw_error()[0] == '\0') fail_msg("%s, call %ld: no message", name, n);
    }
}

static sw_status read_file(const char *name, sw_status (*read)(const char *path, sw_array *out))
{
    sw_array a = { 0 };
    const sw_status st = read(sample_path(name), &a);
    sw_array_free(&a);
    return st;
}

static sw_status read_idx(void)
{
    SW_TRY(read_file("i2.idx", sw_idx_read));
    return read_file("two_members.idx.gz", sw_idx_read);
}

static sw_status read_npy(void)
{
    SW_TRY(read_file("f4_be_f.npy", sw_npy_read));
    return read_file("gzipped.npy.gz", sw_npy_read);
}

static sw_status read_npz(void)
{
    sw_npz *z;
    SW_TRY(sw_npz_open(sample_path("deflated.npz"), &z));
    sw_status st = SW_OK;
    for (size_t i = 0; st == SW_OK && i < sw_npz_count(z); i++) {
        sw_array a = { 0 };
        st = sw_npz_read(z, i, &a);
        sw_array_free(&a);
    }
    sw_npz_close(z);
    return st;
}

static sw_status read_safetensors(void)
{
    sw_safetensors *f;
    SW_TRY(sw_safetensors_open(sample_path("numpy.safetensors"), &f));
    sw_array a;
    const sw_status st = sw_safetensors_array(f, "weight", &a);
    sw_safetensors_close(f);
    return st;
}

static sw_status read_unaligned(void)
{
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                 "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[1,9]}}";
    uint8_t bytes[8 + sizeof header - 1 + 9] = { sizeof header - 1 };
    memcpy(bytes + 8, header, sizeof header - 1);
    sw_safetensors *f;
    SW_TRY(sw__safetensors_parse("unaligned", bytes, sizeof bytes, &f));
    sw_safetensors_close(f);
    return SW_OK;
}

static sw_status run_file(void)
{
    static const char yaml[] = "epochs: 3\nbetas: [0.5, 0.5]\nname: \"a b\"\n";
    sw_config *c;
    const char *text;
    SW_TRY(sw_config_new(&c));
    sw_status st = sw_config_parse(c, "run.yaml", yaml, sizeof yaml - 1);
    char *argv[] = { "--lr=0.5", "--resume", NULL };
    bool taken;
    for (int i = 0; st == SW_OK && i < 2;) st = sw_config_argument(c, 2, argv, &i, NULL, &taken);
    if (st == SW_OK) st = sw_config_yaml(c, &text);
    if (st == SW_OK) st = sw_config_json(c, &text);
    sw_config_free(c);
    return st;
}

/* The files of a failed writing: the old content, and no temporary file. */
static const char *const target = "kept.safetensors";

static sw_status write_safetensors(void)
{
    static float data[3] = { 1, 2, 3 };
    const sw_named_array t = { "w",
                               { .dtype = SW_F32, .rank = 1, .shape = { 3 }, .data = data, .bytes = sizeof data } };
    const sw_text_pair m = { "key", "value" };
    const sw_status st = sw_safetensors_write(scratch_path(target), &t, 1, &m, 1);
    const long paused = left;
    left = -1;
    assert_int_equal(access(scratch_path("kept.safetensors.tmp"), F_OK), -1);
    sw_safetensors *f; /* whole, be it the old file or the new one */
    OK(sw_safetensors_open(scratch_path(target), &f));
    sw_safetensors_close(f);
    left = paused;
    return st;
}

static sw_status train_on(sw_dataset *d)
{
    sw_dataset *rest = NULL, *held = NULL;
    sw_loader *l = NULL;
    sw_normalization n = { 0 };
    sw_batch b;
    sw_status st = sw_dataset_split(d, 0.1, 1, &rest, &held);
    if (st == SW_OK) st = sw_dataset_measure(rest, &n);
    if (st == SW_OK) st = sw_dataset_normalize(rest, &n);
    if (st == SW_OK) st = sw_loader_open(rest, &(sw_loader_options){ .batch = 500, .workers = 2, .shuffle = true }, &l);
    for (int i = 0; st == SW_OK && i < 4; i++) st = sw_loader_next(l, &b);
    if (st == SW_OK) st = sw_loader_seek(l, (sw_loader_position){ .epoch = 1 });
    if (st == SW_OK) st = sw_loader_next(l, &b);
    sw_loader_close(l);
    sw_normalization_free(&n);
    sw_dataset_close(rest);
    sw_dataset_close(held);
    return st;
}

static sw_status data_set(bool background)
{
    sw_dataset *d;
    SW_TRY(sw_dataset_open("digits", &(sw_dataset_options){ .background = background }, &d));
    const sw_status st = train_on(d);
    sw_dataset_close(d);
    return st;
}

static sw_status data_at_once(void)
{
    return data_set(false);
}

static sw_status data_in_background(void)
{
    return data_set(true);
}

static sw_status data_from_files(void)
{
    sw_dataset *d;
    SW_TRY(sw_dataset_open(sample_path("numpy.npz"), NULL, &d));
    sw_dataset_close(d);
    SW_TRY(sw_dataset_open(sample_path("f8.idx"), &(sw_dataset_options){ .target = SW_TARGET_NONE }, &d));
    sw_dataset_close(d);
    return SW_OK;
}

static void everything(void **state)
{
    (void)state;
    OK(sw_safetensors_write(scratch_path(target), NULL, 0, NULL, 0));
    each_fails(read_idx, "IDX");
    each_fails(read_npy, "NPY");
    each_fails(read_npz, "NPZ");
    each_fails(read_safetensors, "safetensors");
    each_fails(read_unaligned, "unaligned safetensors");
    each_fails(run_file, "run file");
    each_fails(write_safetensors, "writing");
    each_fails(data_at_once, "data set");
    each_fails(data_in_background, "data set in the background");
    each_fails(data_from_files, "data sets from files");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(everything) };
    return cmocka_run_group_tests_name("io_failures", tests, make_scratch, remove_scratch);
}
