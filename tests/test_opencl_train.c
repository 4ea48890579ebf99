/* test_opencl_train.c: training on an OpenCL device (tests/fakecl) that is closed early, whose inputs go beside what runs,
 * that is lost in the middle of a fit or has too little memory for one. Skipped without OpenCL. */
/* timeout: 600 */
#include "fakecl/faults.h"

/* ---- closing -------------------------------------------------------------------------------------------------------- */

/* The device is closed first: it lives until the last that was made on it is freed, in any order. */
static void test_closed_first(void **state)
{
    (void)state;
    if (fake == NULL) skip();
    for (int order = 0; order < 3; order++) {
        sw_device *d = NULL;
        sw_graph *g = NULL;
        sw_params *params = NULL;
        sw_program *p = NULL;
        sw_buffer *b = NULL;
        float loss = 0;
        heal();
        assert_int_equal(make_graph(16, &g), SW_OK);
        assert_int_equal(sw_device_open("opencl:0", NULL, &d), SW_OK);
        assert_int_equal(sw_params_new(d, g, 0, &params), SW_OK);
        assert_int_equal(sw_compile(g, d, &(sw_compile_options){ .params = params }, &p), SW_OK);
        assert_int_equal(sw_buffer_new(d, 64, &b), SW_OK);
        sw_device_close(d);
        sw_graph_free(g);
        assert_int_equal(set_inputs(p, 16), SW_OK);
        assert_int_equal(run_once(p, &loss), SW_OK);
        assert_true(loss > 0);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(fake->live[FAKECL_CONTEXT], 1);
            if ((k + order) % 3 == 0) sw_program_free(p);
            if ((k + order) % 3 == 1) sw_params_free(params);
            if ((k + order) % 3 == 2) sw_buffer_free(b);
        }
        assert_int_equal(live(), 0);
        assert_int_equal(fake->faults, 0);
    }
}

/* ---- uploads beside what runs --------------------------------------------------------------------------------------- */

enum { STEPS = 30 };

/* Steps on other data each, so large that they are sent beside what runs; losses are read every few of them. */
static sw_status run_many(sw_program *p, int every, float *loss)
{
    static float x[MOST * WIDTH];
    static int64_t target[MOST];
    sw_status st = SW_OK;
    for (int s = 0; s < STEPS && st == SW_OK; s++) {
        for (int e = 0; e < MOST * WIDTH; e++) x[e] = (float)((e + s) * 7 % 13) * 0.125f - 0.75f;
        for (int e = 0; e < MOST; e++) target[e] = (e + s) % CLASSES;
        st = sw_program_set(p, sw_program_input(p, "x"), SW_F32, x, MOST * WIDTH);
        if (st == SW_OK) st = sw_program_set(p, sw_program_input(p, "target"), SW_I64, target, MOST);
        if (st == SW_OK) st = sw_program_run(p);
        loss[s] = 0;
        if (st == SW_OK && s % every == every - 1) st = sw_program_get(p, 0, SW_F32, &loss[s], 1);
    }
    return st;
}

static sw_status train_many(int every, float *loss)
{
    sw_device *d = NULL;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    sw_status st = make_graph(MOST, &g);
    if (st == SW_OK) st = sw_device_open("opencl:0", NULL, &d);
    if (st == SW_OK) st = sw_compile(g, d, NULL, &p);
    fake->waits = fake->across = 0; /* compiling may try out kernels */
    if (st == SW_OK) st = run_many(p, every, loss);
    keep_message(st);
    sw_program_free(p);
    sw_device_close(d);
    sw_graph_free(g);
    return st;
}

/* The same bits as with one queue; the queues wait for each other as they must, and the host only if it is far ahead. */
static void test_copy_queue(void **state)
{
    (void)state;
    static const int every[] = { 1, 2, 7, STEPS };
    if (fake == NULL) skip();
    for (size_t k = 0; k < sizeof every / sizeof every[0]; k++) {
        float loss[2][STEPS];
        long across = 0, waits = 0;
        for (int beside = 0; beside < 2; beside++) {
            heal();
            setenv("SWOOP_OPENCL_COPY_QUEUE", beside ? "1" : "0", 1);
            if (train_many(every[k], loss[beside]) != SW_OK) fail_msg("%s", message);
            if (!beside) assert_int_equal(fake->across, 0);
        }
        across = fake->across;
        waits = fake->waits;
        unsetenv("SWOOP_OPENCL_COPY_QUEUE");
        assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
        assert_true(across >= 2L * STEPS); /* each copy to a slot waits, and each use of a piece again */
        if (every[k] <= 2 && waits > 0) fail_msg("the host waited %ld times beside reading", waits);
        expect_recovery("uploads beside what runs");
    }
}

/* A device with memory of its own has the second queue without being told. */
static int compare_beside(void)
{
    float loss[STEPS];
    if (train_many(1, loss) != SW_OK) return 1;
    if (fake->across < STEPS || fake->waits > 0) return 2;
    return live() == 0 && fake->faults == 0 && fake->races == 0 && fake->unflushed == 0 ? 0 : 4;
}

static void test_memory_of_its_own(void **state)
{
    (void)state;
    if (getenv("SWOOP_OPENCL_LIBRARY") == NULL) skip();
    in_child("FAKECL_GPU=1", compare_beside);
}

/* ---- fits ------------------------------------------------------------------------------------------------------------- */

enum { SAMPLES = 1024, BATCH = 100, EPOCHS = 3 };

static sw_dataset *dataset(void)
{
    static float x[SAMPLES][WIDTH];
    static int64_t y[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = i % CLASSES;
        for (int k = 0; k < WIDTH; k++) x[i][k] = (float)((i * 31 + k * 7) % 23) / 23.0f + (k == y[i] ? 1.0f : 0.0f);
    }
    const sw_array xs = { .dtype = SW_F32, .rank = 2, .shape = { SAMPLES, WIDTH }, .data = x, .bytes = sizeof x };
    const sw_array ys = { .dtype = SW_I64, .rank = 1, .shape = { SAMPLES }, .data = y, .bytes = sizeof y };
    sw_dataset *d = NULL;
    assert_int_equal(sw_dataset_from_memory(&xs, &ys, NULL, &d), SW_OK);
    return d;
}

typedef struct seen {
    int steps, lose_after; /* 0: never */
    int full_after, launch; /* the launch of the step that follows for which the device has no memory */
    long copies[2];        /* clEnqueueCopyBuffer so far, at the first two steps' ends */
} seen;

static long calls_of(const char *name)
{
    for (int i = 0; i < FAKECL_NAMES && fake->name[i].name != NULL; i++)
        if (strcmp(fake->name[i].name, name) == 0) return fake->name[i].calls;
    return 0;
}

static sw_status on_event(void *context, const sw_event *e)
{
    seen *const s = context;
    if (e->kind != SW_EVENT_STEP) return SW_OK;
    if (s->steps < 2) s->copies[s->steps] = calls_of("clEnqueueCopyBuffer");
    if (++s->steps == s->full_after) {
        snprintf(fake->fail_name, sizeof fake->fail_name, "clEnqueueNDRangeKernel");
        fake->fail_code = -4; /* CL_MEM_OBJECT_ALLOCATION_FAILURE: drivers allocate when memory is first used */
        fake->fail_at = s->launch;
    }
    if (s->steps != s->lose_after) return SW_OK;
    fake->lose_code = -36; /* invalid command queue: what drivers say of a device that is gone */
    fake->lose_at = fake->calls + 5;
    return SW_OK;
}

/* Of the last whole epoch. */
static sw_status fit_on(const char *id, int64_t batch, const char *folder, const char *from, seen *s, double *loss)
{
    sw_device *d = NULL;
    sw_trainer *t = NULL;
    sw_dataset *const data = dataset();
    sw_fit_result r = { 0 };
    const sw_fit_options o = { .epochs = EPOCHS, .checkpoint = folder, .resume = from, .save_every = 4, .event = on_event,
                               .context = s };
    sw_status st = sw_device_open(id, NULL, &d);
    if (st == SW_OK) st = sw_trainer_new(d, &(sw_trainer_options){ .model_name = "mlp:16", .batch = batch, .seed = 3 }, &t);
    if (st == SW_OK) st = sw_trainer_fit(t, data, &o, &r);
    keep_message(st);
    sw_trainer_free(t);
    sw_device_close(d);
    sw_dataset_close(data);
    *loss = r.loss;
    return st;
}

/* The device is lost in the second epoch: a status, and the process goes on: from the last checkpoint, on that device once
 * it is back (the same bits as if nothing had been), or on another. */
static void test_lost_in_a_fit(void **state)
{
    (void)state;
    char folder[2][96];
    double want = 0, loss = 0;
    seen all = { 0 }, some = { .lose_after = 17 }, rest = { 0 };
    if (fake == NULL) skip();
    for (int k = 0; k < 2; k++) snprintf(folder[k], sizeof folder[k], "%s/fit-%d", cache, k);
    heal();
    assert_int_equal(fit_on("opencl:0", BATCH, NULL, NULL, &all, &want), SW_OK);
    assert_int_equal(all.steps, 33);
    for (int k = 0; k < 2; k++) {
        heal();
        some.steps = rest.steps = 0;
        assert_int_equal(fit_on("opencl:0", BATCH, folder[k], NULL, &some, &loss), SW_ERR_DEVICE);
        if (strstr(message, "opencl: cl") == NULL) fail_msg("the call is not named: %s", message);
        assert_int_equal(some.steps, 17);
        assert_int_equal(live(), 0);
        if (k == 0) heal(); /* the other device needs no OpenCL */
        if (fit_on(k == 0 ? "opencl:0" : "cpu", BATCH, folder[k], folder[k], &rest, &loss) != SW_OK) fail_msg("%s", message);
        assert_int_equal(rest.steps, 33 - 16); /* every fourth step is saved */
        if (k == 0) assert_memory_equal(&loss, &want, sizeof loss);
        assert_true(fabs(loss - want) < 1e-4 * want);
        expect_recovery("a fit that lost its device");
    }
}

/* The device runs out of memory in the middle of a step of the second epoch: what was learnt until then is saved, though no step
 * was due to be, and the fit goes on from there to the same bits. */
static void test_full_in_a_fit(void **state)
{
    (void)state;
    double want = 0, loss = 0;
    seen all = { 0 };
    if (fake == NULL) skip();
    heal();
    assert_int_equal(fit_on("opencl:0", BATCH, NULL, NULL, &all, &want), SW_OK);
    for (int launch = 1; launch <= 3; launch++) {
        char folder[96];
        seen some = { .full_after = 18, .launch = launch }, rest = { 0 };
        snprintf(folder, sizeof folder, "%s/full-%d", cache, launch);
        heal();
        assert_int_equal(fit_on("opencl:0", BATCH, folder, NULL, &some, &loss), SW_ERR_MEMORY);
        if (strstr(message, "clEnqueueNDRangeKernel") == NULL) fail_msg("the call is not named: %s", message);
        assert_int_equal(some.steps, 18);
        assert_int_equal(fake->failed, 1);
        assert_int_equal(live(), 0);
        heal();
        if (fit_on("opencl:0", BATCH, folder, folder, &rest, &loss) != SW_OK) fail_msg("%s", message);
        assert_int_equal(rest.steps, 33 - 18); /* 16 was the last that was due to be saved */
        assert_memory_equal(&loss, &want, sizeof loss);
        expect_recovery("a fit whose device was full");
    }
}

/* The next batch is on its way before the loss of this one is waited for. */
static void test_sent_ahead(void **state)
{
    (void)state;
    double loss = 0;
    seen s = { 0 };
    if (fake == NULL) skip();
    heal();
    setenv("SWOOP_OPENCL_COPY_QUEUE", "1", 1);
    assert_int_equal(fit_on("opencl:0", BATCH, NULL, NULL, &s, &loss), SW_OK);
    unsetenv("SWOOP_OPENCL_COPY_QUEUE");
    const long per_step = s.copies[1] - s.copies[0];
    assert_true(per_step >= 3); /* samples, labels, the learning rate */
    assert_int_equal(s.copies[0], per_step + 2);
    expect_recovery("a fit");
}

/* An input larger than a piece of staging memory arrives in parts, whose memory does not grow with it. */
static void test_in_parts(void **state)
{
    (void)state;
    enum { LARGE = (70 << 20) / 4 };
    if (fake == NULL) skip();
    heal();
    setenv("SWOOP_OPENCL_COPY_QUEUE", "1", 1);
    sw_device *d = NULL;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    float *const x = malloc((size_t)LARGE * sizeof *x), most = 0;
    assert_non_null(x);
    for (int i = 0; i < LARGE; i++) x[i] = (float)(i % 1000);
    x[LARGE - 1] = 4321;
    assert_int_equal(sw_device_open("opencl:0", NULL, &d), SW_OK);
    assert_int_equal(sw_graph_new(&g), SW_OK);
    sw_output(sw_reduce_max(sw_input(g, "x", SW_F32, 1, (int64_t[]){LARGE}), SW_ALL_AXES, false), "most");
    assert_int_equal(sw_compile(g, d, NULL, &p), SW_OK);
    const size_t before = fake->bytes;
    for (int run = 0; run < 4; run++) {
        assert_int_equal(sw_program_set(p, 0, SW_F32, x, LARGE), SW_OK);
        assert_int_equal(sw_program_run(p), SW_OK);
        assert_int_equal(sw_program_get(p, 0, SW_F32, &most, 1), SW_OK);
        assert_true(most == 4321.0f);
    }
    assert_true(fake->bytes - before <= (size_t)260 << 20); /* four pieces of 32 MiB, pinned and staged */
    sw_program_free(p);
    sw_graph_free(g);
    sw_device_close(d);
    free(x);
    unsetenv("SWOOP_OPENCL_COPY_QUEUE");
    expect_recovery("a large input");
}

/* Which batch fits is said, and it does; one twice as large does not. */
static void test_no_room(void **state)
{
    (void)state;
    double loss = 0;
    seen s = { 0 };
    if (fake == NULL) {
        skip();
        return;
    }
    heal();
    fake->memory = 40 << 10;
    assert_int_equal(fit_on("opencl:0", SAMPLES, NULL, NULL, &s, &loss), SW_ERR_MEMORY);
    if (strstr(message, "a step on a batch of 1024") == NULL || strstr(message, "bytes in all") == NULL ||
        strstr(message, "clCreateBuffer") == NULL)
        fail_msg("%s", message);
    const char *const at = strstr(message, "a batch of ");
    const char *const fits = at != NULL ? strstr(at + 1, "; a batch of ") : NULL;
    if (fits == NULL) fail_msg("%s", message);
    const long batch = fits != NULL ? strtol(fits + strlen("; a batch of "), NULL, 10) : 0;
    assert_in_range(batch, 8, SAMPLES / 2);
    assert_int_equal(fit_on("opencl:0", 2 * batch, NULL, NULL, &s, &loss), SW_ERR_MEMORY);
    if (fit_on("opencl:0", batch, NULL, NULL, &s, &loss) != SW_OK) fail_msg("batch %ld: %s", batch, message);
    fake->memory = 600; /* not even the weights */
    assert_int_equal(fit_on("opencl:0", 1, NULL, NULL, &s, &loss), SW_ERR_MEMORY);
    expect_recovery("too little memory for a fit");
}

/* ---- the group --------------------------------------------------------------------------------------------------- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_its_own),
        cmocka_unit_test_setup(test_closed_first, load_fake),
        cmocka_unit_test_setup(test_copy_queue, load_fake),
        cmocka_unit_test_setup(test_in_parts, load_fake),
        cmocka_unit_test_setup(test_sent_ahead, load_fake),
        cmocka_unit_test_setup(test_no_room, load_fake),
        cmocka_unit_test_setup(test_lost_in_a_fit, load_fake),
        cmocka_unit_test_setup(test_full_in_a_fit, load_fake),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
