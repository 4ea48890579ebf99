/* test_loader.c: the loader's order, determinism over workers, exact positions, errors from workers, prompt closing.
 * Tests of src/data/loader.c. */
/* link: -Wl,--wrap=pthread_create */
#include "io_test.h"
#include "swoop/data.h"
#include <pthread.h>
#include <time.h>

/* After this many, pthread_create fails; -1: never. */
static int threads_left = -1;
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *argument)
{
    if (threads_left == 0) return 11; /* EAGAIN */
    if (threads_left > 0) threads_left--;
    return __real_pthread_create(t, a, f, argument);
}

enum { SAMPLES = 103 };

/* Sample i is (i, 2 i), class i % 5; some take longer than others, so that workers overtake one another. */
static sw_status numbered(void *context, int64_t i, void *x, void *y)
{
    const int64_t *const bad = context;
    if (bad != NULL && i == *bad) return sw_dataset_error(SW_ERR_IO, "sample is gone");
    if (i % 7 == 0) nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
    ((float *)x)[0] = (float)i;
    ((float *)x)[1] = (float)(2 * i);
    *(int64_t *)y = i % 5;
    return SW_OK;
}

static sw_dataset *open_numbered(int64_t *bad)
{
    sw_dataset *d;
    OK(sw_dataset_from_callback(&(sw_dataset_callback){ .count = SAMPLES,
                                                        .x_rank = 1,
                                                        .x_shape = { 2 },
                                                        .num_classes = 5,
                                                        .target = SW_TARGET_CLASS,
                                                        .get = numbered,
                                                        .context = bad },
                                &d));
    return d;
}

/* The indices of n batches, end marks as -1; checks that x and y belong to them. */
static size_t take(sw_loader *l, int n, int64_t *out)
{
    size_t count = 0;
    for (int k = 0; k < n; k++) {
        sw_batch b;
        const sw_loader_position p = sw_loader_tell(l);
        OK(sw_loader_next(l, &b));
        assert_int_equal(b.epoch, p.epoch);
        assert_int_equal(b.index, p.batch);
        if (b.n == 0) out[count++] = -1;
        for (int64_t i = 0; i < b.n; i++) {
            out[count++] = b.samples[i];
            assert_true(((const float *)b.x)[2 * i + 1] == (float)(2 * b.samples[i]));
            assert_int_equal(((const int64_t *)b.y)[i], b.samples[i] % 5);
        }
    }
    return count;
}

static void order(void **state)
{
    (void)state;
    sw_dataset *const d = open_numbered(NULL);
    sw_loader *l;
    int64_t got[2 * SAMPLES + 2];
    OK(sw_loader_open(d, &(sw_loader_options){ .batch = 10 }, &l));
    assert_int_equal(sw_loader_batches(l), 11);
    assert_int_equal(take(l, 12, got), SAMPLES + 1);
    for (int64_t i = 0; i < SAMPLES; i++) assert_int_equal(got[i], i);
    assert_int_equal(got[SAMPLES], -1);
    sw_loader_close(l);

    OK(sw_loader_open(d, &(sw_loader_options){ .batch = 10, .shuffle = true, .seed = 3 }, &l));
    assert_int_equal(take(l, 24, got), 2 * SAMPLES + 2);
    int seen[2][SAMPLES] = { { 0 } }, moved = 0, changed = 0;
    for (int i = 0; i < SAMPLES; i++) {
        seen[0][got[i]]++;
        seen[1][got[SAMPLES + 1 + i]]++;
        moved += got[i] != i;
        changed += got[i] != got[SAMPLES + 1 + i];
    }
    for (int i = 0; i < SAMPLES; i++) assert_true(seen[0][i] == 1 && seen[1][i] == 1);
    assert_true(moved > SAMPLES / 2 && changed > SAMPLES / 2);
    sw_loader_close(l);

    OK(sw_loader_open(d, &(sw_loader_options){ .batch = 10, .drop_last = true }, &l));
    assert_int_equal(sw_loader_batches(l), 10);
    assert_int_equal(take(l, 11, got), 101);
    sw_loader_close(l);
    OK(sw_loader_open(d, &(sw_loader_options){ .batch = 1000, .workers = 2 }, &l));
    assert_int_equal(take(l, 3, got), 2 * SAMPLES + 1);
    sw_loader_close(l);
    sw_loader_close(NULL);
    sw_dataset_close(d);
}

/* Any number of workers and slots gives the batches of none. */
static void workers(void **state)
{
    (void)state;
    sw_dataset *const d = open_numbered(NULL);
    static int64_t want[6 * SAMPLES], got[6 * SAMPLES];
    size_t n = 0;
    for (int w = 0; w <= 4; w++) {
        for (int prefetch = 1; prefetch <= 9; prefetch += 4) {
            sw_loader *l;
            OK(sw_loader_open(
                d, &(sw_loader_options){ .batch = 7, .shuffle = true, .seed = 1, .workers = w, .prefetch = prefetch },
                &l));
            const size_t m = take(l, 70, w == 0 ? want : got);
            if (w == 0) n = m;
            assert_int_equal(m, n);
            if (w > 0) assert_memory_equal(want, got, n * sizeof *want);
            assert_true(sw_loader_wait_seconds(l) > 0);
            sw_loader_close(l);
        }
    }
    sw_dataset_close(d);
}

/* From any position on, the same batches as without the interruption. */
static void positions(void **state)
{
    (void)state;
    sw_dataset *const d = open_numbered(NULL);
    const sw_loader_options o = { .batch = 25, .shuffle = true, .seed = 9, .workers = 2 };
    static int64_t want[6 * SAMPLES], got[6 * SAMPLES];
    enum { TOTAL = 15 };
    for (int at = 0; at < TOTAL; at++) {
        sw_loader *a, *b;
        OK(sw_loader_open(d, &o, &a));
        (void)take(a, at, want);
        const sw_loader_position p = sw_loader_tell(a);
        const size_t n = take(a, TOTAL - at, want);
        OK(sw_loader_open(d, &o, &b));
        OK(sw_loader_seek(b, p));
        assert_int_equal(take(b, TOTAL - at, got), n);
        assert_memory_equal(want, got, n * sizeof *want);
        OK(sw_loader_seek(b, p)); /* and back, in a loader that has run */
        assert_int_equal(take(b, TOTAL - at, got), n);
        assert_memory_equal(want, got, n * sizeof *want);
        sw_loader_close(a);
        sw_loader_close(b);
    }
    sw_loader *l;
    OK(sw_loader_open(d, &o, &l));
    FAILS(SW_ERR_ARGUMENT, sw_loader_seek(l, (sw_loader_position){ .epoch = 0, .batch = 6 }), "no batch 6 in epoch 0",
          "has 5");
    FAILS(SW_ERR_ARGUMENT, sw_loader_seek(l, (sw_loader_position){ .epoch = -1 }), "epoch -1");
    OK(sw_loader_seek(l, (sw_loader_position){ .epoch = 3, .batch = 5 }));
    assert_int_equal(take(l, 1, got), 1); /* the end mark */
    assert_int_equal(sw_loader_tell(l).epoch, 4);
    sw_loader_close(l);
    sw_dataset_close(d);
}

/* An error comes out at its batch, again and again, with the message of the thread that met it. */
static void errors(void **state)
{
    (void)state;
    for (int w = 0; w <= 3; w++) {
        int64_t bad = 42, got[SAMPLES];
        sw_dataset *const d = open_numbered(&bad);
        sw_loader *l;
        sw_batch b;
        OK(sw_loader_open(d, &(sw_loader_options){ .batch = 10, .workers = w }, &l));
        assert_int_equal(take(l, 4, got), 40);
        FAILS(SW_ERR_IO, sw_loader_next(l, &b), "sample is gone");
        FAILS(SW_ERR_IO, sw_loader_next(l, &b), "sample is gone");
        assert_int_equal(sw_loader_tell(l).batch, 4);
        OK(sw_loader_seek(l, (sw_loader_position){ .batch = 5 }));
        assert_int_equal(take(l, 1, got), 10);
        assert_int_equal(got[0], 50);
        sw_loader_close(l);
        sw_dataset_close(d);
    }
}

static void bad_options(void **state)
{
    (void)state;
    sw_dataset *const d = open_numbered(NULL);
    sw_loader *l;
    FAILS(SW_ERR_ARGUMENT, sw_loader_open(d, &(sw_loader_options){ .batch = -1 }, &l), "negative");
    FAILS(SW_ERR_ARGUMENT, sw_loader_open(d, &(sw_loader_options){ .workers = 5000 }, &l), "1024");
    FAILS(SW_ERR_ARGUMENT, sw_loader_open(d, &(sw_loader_options){ .batch = 104, .drop_last = true }, &l),
          "103 samples", "batch of 104");
    OK(sw_loader_open(d, NULL, &l));
    assert_int_equal(sw_loader_batches(l), 2);
    sw_loader_close(l);
    sw_dataset_close(d);
}

/* A thread that cannot be started is an error, not a slower loader. */
static void no_threads(void **state)
{
    (void)state;
    sw_dataset *const d = open_numbered(NULL);
    sw_loader *l;
    sw_batch b;
    for (int i = 0; i < 3; i++) {
        threads_left = i;
        FAILS(SW_ERR_THREAD, sw_loader_open(d, &(sw_loader_options){ .workers = 3 }, &l), "worker", "of 3");
    }
    threads_left = 3;
    OK(sw_loader_open(d, &(sw_loader_options){ .workers = 3 }, &l));
    FAILS(SW_ERR_THREAD, sw_loader_seek(l, (sw_loader_position){ 0 }), "worker 1 of 3");
    FAILS(SW_ERR_THREAD, sw_loader_next(l, &b), "could not be started");
    threads_left = -1;
    OK(sw_loader_seek(l, (sw_loader_position){ 0 }));
    OK(sw_loader_next(l, &b));
    sw_loader_close(l);
    threads_left = 0;
    sw_dataset *background;
    FAILS(SW_ERR_THREAD, sw_dataset_open("digits", &(sw_dataset_options){ .background = true }, &background), "thread");
    threads_left = -1;
    sw_dataset_close(d);
}

/* Closing does not wait for more than the batches under way. */
static void closing(void **state)
{
    (void)state;
    sw_dataset *const d = open_numbered(NULL);
    for (int i = 0; i < 50; i++) {
        sw_loader *l;
        sw_batch b;
        OK(sw_loader_open(d, &(sw_loader_options){ .batch = 5, .workers = 1 + i % 4, .shuffle = true }, &l));
        for (int k = 0; k < i % 5; k++) OK(sw_loader_next(l, &b));
        const double start = sw__now();
        sw_loader_close(l);
        assert_true(sw__now() - start < 2);
    }
    sw_dataset_close(d);
}

/* Loader threads and a background read at once: for the thread sanitizer. */
static void everything_at_once(void **state)
{
    (void)state;
    sw_dataset *d, *rest, *held;
    OK(sw_dataset_open("digits", &(sw_dataset_options){ .background = true }, &d));
    OK(sw_dataset_split(d, 0.2, 1, &rest, &held));
    sw_loader *a, *b;
    sw_batch x, y;
    OK(sw_loader_open(rest, &(sw_loader_options){ .batch = 32, .workers = 3, .shuffle = true }, &a));
    OK(sw_loader_open(held, &(sw_loader_options){ .batch = 32, .workers = 2 }, &b));
    for (int i = 0; i < 100; i++) {
        OK(sw_loader_next(a, &x));
        OK(sw_loader_next(b, &y));
    }
    sw_loader_close(a);
    sw_loader_close(b);
    sw_dataset_close(rest);
    sw_dataset_close(held);
    sw_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),       cmocka_unit_test(workers),
        cmocka_unit_test(positions),   cmocka_unit_test(errors),
        cmocka_unit_test(bad_options), cmocka_unit_test(no_threads),
        cmocka_unit_test(closing),     cmocka_unit_test(everything_at_once),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
