/* io_test.h: what the tests of io and data share: files as bytes, a scratch folder, expected values, messages. */
#ifndef IO_TEST_H
#define IO_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "io/readers.h"
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The call succeeds; otherwise the test prints its message. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const sw_status ok_ = (call);                                                                                  \
        if (ok_ != SW_OK) fail_msg("%s: %s", #call, sw_error());                                                       \
    } while (0)

/* The call fails with that status, and with a message that holds every one of the texts (NULL-terminated). */
#define FAILS(status, call, ...) check_failure((status), (call), #call, (const char *[]){ __VA_ARGS__, NULL })

static inline void check_failure(sw_status wanted, sw_status got, const char *call, const char *const *texts)
{
    if (got != wanted) fail_msg("%s: status %d (%s) instead of %d", call, got, got == SW_OK ? "" : sw_error(), wanted);
    for (; *texts != NULL; texts++) {
        if (strstr(sw_error(), *texts) == NULL) fail_msg("%s: '%s' is not in: %s", call, *texts, sw_error());
    }
}

/* A file of tests/data/io. */
static inline const char *sample_path(const char *name)
{
    static char path[4][1024];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], SWOOP_TEST_DATA "/data/io/%s", name);
    return path[turn];
}

static inline uint8_t *read_sample(const char *name, size_t *n)
{
    char *bytes;
    OK(sw__file_read(sample_path(name), 1 << 24, &bytes, n));
    return (uint8_t *)bytes;
}

/* Exactly n bytes on the heap: reading one too many is found by the address sanitizer. */
static inline uint8_t *exact_copy(const uint8_t *bytes, size_t n)
{
    uint8_t *const copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    if (n > 0) memcpy(copy, bytes, n);
    return copy;
}

/* Part of a file that a test makes up: bytes, not a string. */
static inline void place(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
}

/* ---- scratch folder ---------------------------------------------------------------------------------------------- */

static char scratch[64];

static inline const char *scratch_path(const char *name)
{
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", scratch, name);
    return path[turn];
}

static inline int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "/tmp/swoop-test-XXXXXX");
    return mkdtemp(scratch) != NULL ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

static inline int remove_scratch(void **state)
{
    (void)state;
    return nftw(scratch, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void write_scratch(const char *name, const void *bytes, size_t n)
{
    FILE *const f = fopen(scratch_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- expected values (tests/data/io/make.py) --------------------------------------------------------------------- */

static inline double element_of(const sw_array *a, size_t i)
{
    double v;
    sw__convert(&v, SW_F64, (const char *)a->data + i * sw_dtype_size(a->dtype), a->dtype, 1);
    return v;
}

/* kind: NumPy's letter, size: bytes in the file. */
static inline double expected_element(char kind, int size, size_t i)
{
    const double n = 3 * (double)i - 7;
    switch (kind) {
    case 'f':
        return ((double)i - 5) / 4;
    case 'b':
        return (double)(i % 2);
    case 'u':
        return size == 1 ? fmod(n + 256, 256) : fabs(n);
    default:
        return n;
    }
}

static inline void check_elements(const sw_array *a, char kind, int size)
{
    const size_t n = (size_t)sw_array_count(a);
    assert_int_equal(a->bytes, n * sw_dtype_size(a->dtype));
    for (size_t i = 0; i < n; i++) {
        if (element_of(a, i) != expected_element(kind, size, i)) {
            fail_msg("element %zu is %g instead of %g", i, element_of(a, i), expected_element(kind, size, i));
        }
    }
}

#endif
