/* test_nccl.c: several devices that sum together (backend.h's collectives, NCCL), on the doubles of GPUs and NCCL:
 * ranks are threads, each with a device of its own. Sums launched, recorded and replayed in every type; gradients of
 * two halves of a batch, summed, are those of the whole; what happens where a rank is missing, sums something else, or
 * NCCL is missing, too old or fails. */
#include "cuda_step.h"

#include <pthread.h>
#include <sys/wait.h>

/* timeout: 300 */
/* needs: FAKENCCL */

enum { RANKS = 2, ROWS = 6, COLS = 5 };

static const char *program; /* this one */

typedef struct rank {
    int number, ranks;
    sw__comm_id id;
    sw_device *device;
    int (*run)(struct rank *);
    double result[64];
    char message[900]; /* of what failed */
    sw_status status;
} rank;

static bool set(rank *r, sw_status st)
{
    if (st == SW_OK) return true;
    r->status = st;
    snprintf(r->message, sizeof r->message, "%s", sw_error());
    return false;
}

/* A thread's whole life: its device, the group, what it is there for. */
static void *live(void *data)
{
    rank *const r = data;
    char name[16];
    snprintf(name, sizeof name, "cuda:%d", r->number);
    if (!set(r, sw_device_open(name, NULL, &r->device))) return NULL;
    const sw__backend *const b = r->device->backend;
    if (set(r, b->comm_open(r->device->dev, &r->id, r->number, r->ranks))) (void)r->run(r);
    sw_device_close(r->device);
    return NULL;
}

static void together(rank r[RANKS], int (*run)(rank *))
{
    pthread_t thread[RANKS];
    sw_device *d = NULL;
    sw__comm_id id;
    ok(sw_device_open("cuda:0", NULL, &d));
    ok(d->backend->comm_id(d->dev, &id));
    sw_device_close(d);
    for (int i = 0; i < RANKS; i++) r[i] = (rank){ .number = i, .ranks = RANKS, .id = id, .run = run };
    for (int i = 0; i < RANKS; i++) assert_int_equal(pthread_create(&thread[i], NULL, live, &r[i]), 0);
    for (int i = 0; i < RANKS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
}

static void expect_good(const rank r[RANKS])
{
    for (int i = 0; i < RANKS; i++)
        if (r[i].status != SW_OK) fail_msg("rank %d: %s", i, r[i].message);
}

static void expect_clean(void)
{
    assert_int_equal(fake.fk_live(NULL), 0);
    assert_int_equal(fake.fk_reports(), 0);
}

static sw_t sum_over_ranks(sw_t x)
{
    return sw__node_add(x.graph, SW_OP_ALL_REDUCE, &x, 1, NULL, NULL);
}

/* ---- sums ----------------------------------------------------------------------------------------------------------
 */

/* y = 2 sum(x turned) + 1: a kernel before, a copy since the sum wants dense memory, a kernel behind. */
static sw_program *sums(sw_device *d, sw_dtype type)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    ok(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", type, 2, (int64_t[]){ ROWS, COLS });
    const sw_t s = sum_over_ranks(sw_transpose(x, 0, 1));
    sw_output(sw_add_scalar(sw_add(s, s), 1), "y");
    ok(sw_graph_status(g));
    ok(sw_compile(g, d, NULL, &p));
    sw_graph_free(g);
    return p;
}

static const sw_dtype types[] = { SW_F32, SW_F64, SW_F16, SW_BF16, SW_I32, SW_I64, SW_U32 };

static int run_sums(rank *r)
{
    for (size_t t = 0; t < SW_COUNT(types); t++) {
        sw_program *const p = sums(r->device, types[t]);
        double x[ROWS * COLS], y[ROWS * COLS];
        for (int run = 0; run < 4; run++) { /* launched, recorded, replayed twice */
            for (int i = 0; i < ROWS * COLS; i++) x[i] = i + run + 3 * r->number;
            if (!set(r, sw_program_set(p, 0, SW_F64, x, ROWS * COLS)) || !set(r, sw_program_run(p)) ||
                !set(r, sw_program_get(p, 0, SW_F64, y, ROWS * COLS))) {
                sw_program_free(p);
                return 1;
            }
            for (int i = 0; i < ROWS * COLS; i++) {
                const double want = 2 * (2.0 * (i % ROWS * COLS + i / ROWS + run) + 3) + 1;
                if (y[i] != want) r->status = SW_ERR_DATA;
                if (y[i] != want)
                    snprintf(r->message, sizeof r->message, "%s, run %d: %g, not %g", sw_dtype_name(types[t]), run,
                             y[i], want);
            }
        }
        if (step_cu(r->device)->replays == 0) r->status = SW_ERR_DATA;
        sw_program_free(p);
    }
    return 0;
}

static void test_sums(void **state)
{
    (void)state;
    rank r[RANKS];
    together(r, run_sums);
    expect_good(r);
    expect_clean();
}

/* One rank: no NCCL, no launch, the value itself. */
static void test_one_rank(void **state)
{
    (void)state;
    rank r = { .number = 0, .ranks = 1 };
    ok(sw_device_open("cuda:0", NULL, &r.device));
    ok(r.device->backend->comm_open(r.device->dev, &r.id, 0, 1));
    assert_int_equal(r.device->backend->comm_open(r.device->dev, &r.id, 1, 1), SW_ERR_ARGUMENT);
    sw_program *const p = sums(r.device, SW_F32);
    assert_int_equal(sw_program_plan(p)->ops, 0);
    double x[ROWS * COLS] = { 5 }, y[ROWS * COLS];
    ok(sw_program_set(p, 0, SW_F64, x, ROWS * COLS));
    ok(sw_program_run(p));
    ok(sw_program_get(p, 0, SW_F64, y, ROWS * COLS));
    assert_true(y[0] == 11);
    sw_program_free(p);
    sw_device_close(r.device);
    expect_clean();
}

/* ---- gradients of a batch in two halves -----------------------------------------------------------------------------
 */

enum { BATCH = 8, WIDE = 7, OUTS = 4 };

/* The gradient of the sum of squared outputs; over == 1 device: of all rows. */
static sw_program *gradient(sw_device *d, int64_t rows)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    ok(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 2, (int64_t[]){ rows, WIDE }),
               w = sw_input(g, "w", SW_F32, 2, (int64_t[]){ WIDE, OUTS });
    sw_t dw = { 0 };
    const sw_t loss = sw_sum(sw_square(sw_relu(sw_matmul(x, w))), SW_ALL_AXES, false);
    ok(sw_grad(loss, &w, 1, &dw));
    sw_output(sum_over_ranks(dw), "dw");
    ok(sw_graph_status(g));
    ok(sw_compile(g, d, NULL, &p));
    sw_graph_free(g);
    return p;
}

static sw_status take_gradient(sw_device *d, int64_t first, int64_t rows, double *dw)
{
    float x[BATCH * WIDE], w[WIDE * OUTS];
    sw_program *const p = gradient(d, rows);
    for (int64_t i = 0; i < rows * WIDE; i++) x[i] = (float)sin((double)(first * WIDE + i));
    for (int i = 0; i < WIDE * OUTS; i++) w[i] = (float)cos((double)i);
    sw_status st = sw_program_set(p, 0, SW_F32, x, rows * WIDE);
    if (st == SW_OK) st = sw_program_set(p, 1, SW_F32, w, WIDE * OUTS);
    if (st == SW_OK) st = sw_program_run(p);
    if (st == SW_OK) st = sw_program_get(p, 0, SW_F64, dw, WIDE * OUTS);
    sw_program_free(p);
    return st;
}

static int half_a_batch(rank *r)
{
    (void)set(r, take_gradient(r->device, r->number * BATCH / 2, BATCH / 2, r->result));
    return 0;
}

static void test_gradients(void **state)
{
    (void)state;
    double want[WIDE * OUTS];
    rank r[RANKS];
    sw_device *d = NULL;
    ok(sw_device_open("ref", NULL, &d));
    ok(take_gradient(d, 0, BATCH, want));
    sw_device_close(d);
    together(r, half_a_batch);
    expect_good(r);
    for (int i = 0; i < WIDE * OUTS; i++) {
        assert_true(r[0].result[i] == r[1].result[i]);
        if (fabs(r[0].result[i] - want[i]) > 1e-5) fail_msg("dw[%d] is %g, not %g", i, r[0].result[i], want[i]);
    }
    expect_clean();
}

/* ---- what goes wrong, each in a process of its own
 * ------------------------------------------------------------------- */

static void show(const rank *r)
{
    printf("%d: %s: %s\n", r->number, sw_status_name(r->status), r->message);
}

/* Rank 1 runs one step less; the device of rank 0 works on without it. */
static int run_fewer(rank *r)
{
    double x[ROWS * COLS] = { 0 }, y[ROWS * COLS];
    sw_program *const p = sums(r->device, SW_F32);
    for (int run = 0; run < 4 - r->number; run++)
        if (!set(r, sw_program_set(p, 0, SW_F64, x, ROWS * COLS)) || !set(r, sw_program_run(p)) ||
            !set(r, sw_program_get(p, 0, SW_F64, y, ROWS * COLS)))
            break;
    if (r->number == 0) {
        if (sw_program_run(p) == SW_OK) snprintf(r->message, sizeof r->message, "it ran again without a communicator");
        sw_program *const alone = step_program(r->device, 8, NULL);
        if (!(fabs(step_trained(alone, 8) - step_on_cpu(8)) < 1e-5))
            snprintf(r->message, sizeof r->message, "wrong afterwards");
        sw_program_free(alone);
    }
    sw_program_free(p);
    return 0;
}

static int missing_step(void)
{
    rank r[RANKS];
    together(r, run_fewer);
    show(&r[0]);
    return r[1].status == SW_OK && fake.fk_live(NULL) == 0 ? 0 : 1;
}

/* Nobody else comes. */
static int missing_rank(void)
{
    rank r = { .ranks = RANKS };
    ok(sw_device_open("cuda:0", NULL, &r.device));
    const sw__backend *const b = r.device->backend;
    if (set(&r, b->comm_id(r.device->dev, &r.id))) (void)set(&r, b->comm_open(r.device->dev, &r.id, 0, RANKS));
    show(&r);
    sw_program *const p = step_program(r.device, 8, NULL);
    const bool good = fabs(step_trained(p, 8) - step_on_cpu(8)) < 1e-5;
    sw_program_free(p);
    sw_device_close(r.device);
    return good && fake.fk_live(NULL) == 0 ? 0 : 1;
}

static int run_other(rank *r)
{
    const sw_dtype type = r->number ? SW_F32 : SW_I32;
    double x[ROWS * COLS] = { 0 }, y[ROWS * COLS];
    sw_program *const p = sums(r->device, type);
    if (set(r, sw_program_set(p, 0, SW_F64, x, ROWS * COLS)) && set(r, sw_program_run(p)))
        (void)set(r, sw_program_get(p, 0, SW_F64, y, ROWS * COLS));
    sw_program_free(p);
    return 0;
}

static int other_sums(void)
{
    rank r[RANKS];
    together(r, run_other);
    for (int i = 0; i < RANKS; i++) show(&r[i]);
    return fake.fk_live(NULL) == 0 ? 0 : 1;
}

static int sums_here(void)
{
    rank r[RANKS];
    together(r, run_sums);
    for (int i = 0; i < RANKS; i++) show(&r[i]);
    return fake.fk_live(NULL) == 0 ? 0 : 1;
}

static const struct {
    const char *name;
    int (*run)(void);
} modes[] = {
    { "missing-step", missing_step },
    { "missing-rank", missing_rank },
    { "other-sums", other_sums },
    { "sums", sums_here },
};

static void expect(const char *environment, const char *mode, const char *words)
{
    char command[1400], text[6000];
    snprintf(command, sizeof command, "env %.500s '%.300s' %.40s 2>&1", environment, program, mode);
    FILE *const f = popen(command, "r"); // NOLINT(cert-env33-c): this very program
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    const int status = pclose(f);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || strstr(text, words) == NULL)
        fail_msg("%s %s: exit status %d, or no '%s':\n%s", environment, mode, WEXITSTATUS(status), words, text);
}

static void test_missing(void **state)
{
    (void)state;
    expect("SWOOP_COMM_TIMEOUT=0.3", "missing-rank", "rank 0 of 2: ncclCommInitRankConfig: another rank did not come");
    expect("SWOOP_COMM_TIMEOUT=1.5", "missing-step",
           "0: device failed: rank 0 of 2: ncclAllReduce: another rank did not come");
    /* the library itself finds out */
    expect("FAKECUDA_NCCL_TIMEOUT=0.3 FAKECUDA_STRICT=0", "missing-rank",
           "remote process exited or there was a network error (6): "
           "rank 1 of 2 never joined");
    expect("FAKECUDA_STRICT=0", "other-sums", "ncclAllReduce: invalid usage (5): sum 0");
}

static void test_absent(void **state)
{
    (void)state;
    expect("SWOOP_WITHOUT=nccl", "missing-rank", "SWOOP_WITHOUT leaves it out): install NCCL 2.14 or a later 2");
    expect("SWOOP_NCCL_LIBRARY=libnone.so", "missing-rank", "NCCL cannot be opened (libnone.so");
    expect("SWOOP_NCCL_LIBRARY=libm.so.6", "missing-rank", "NCCL has no nccl");
    expect("FAKECUDA_NCCL=21304", "missing-rank", "NCCL 2.13.4 is too old: install NCCL 2.14");
    char command[900];
    snprintf(command, sizeof command, "'%.600s' devices | grep -q '^cuda:0.*NCCL 2.28.9'", SWOOP_COMMAND);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "SWOOP_WITHOUT=nccl '%.600s' devices | grep '^cuda:0' | grep -qv NCCL",
             SWOOP_COMMAND);
    assert_int_equal(system(command), 0);
}

static void test_failures(void **state)
{
    (void)state;
    expect("FAKECUDA_FAIL=ncclGetUniqueId:1:2", "missing-rank", "ncclGetUniqueId: unhandled system error (2)");
    expect("FAKECUDA_FAIL=ncclCommInitRank:1:3", "missing-rank", "ncclCommInitRankConfig: internal error (3)");
    expect("FAKECUDA_FAIL=ncclAllReduce:1:1 SWOOP_COMM_TIMEOUT=1.5", "sums", "ncclAllReduce: unhandled cuda error (1)");
}

static int set_up(void **state)
{
    return fake_open() ? step_set_up(state) : -1;
}

int main(int argc, char **argv)
{
    setenv("FAKECUDA_DEVICES", "2", 1);
    for (size_t i = 0; i < SW_COUNT(modes) && argc > 1; i++)
        if (strcmp(argv[1], modes[i].name) == 0) return fake_open() ? modes[i].run() : 2;
    program = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),    cmocka_unit_test(test_one_rank), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_missing), cmocka_unit_test(test_absent),   cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, set_up, step_tear_down);
}
