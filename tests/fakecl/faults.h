/* faults.h: what the tests on the doubtful OpenCL library (fakecl.h) share: opening and healing it, a training step, what is
 * to be true after whatever happened. Everything is static: each test program includes it. */
#ifndef FAKECL_FAULTS_H
#define FAKECL_FAULTS_H

#include "fakecl.h"
#include "swoop/swoop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

#ifndef SWOOP_FAKECL /* built without OpenCL */
#define SWOOP_FAKECL ""
#endif

enum { WIDTH = 6, HIDDEN = 8, CLASSES = 3, MOST = 4096 };

static fakecl *fake; /* the library's; NULL before it is opened */
static char cache[64];

/* ---- the library ------------------------------------------------------------------------------------------------- */

/* The same copy as the backend opens: the loader knows it by its path. */
static UNUSED bool open_fake(void)
{
    void *const library = dlopen(getenv("SWOOP_OPENCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    void *const symbol = library != NULL ? dlsym(library, "fakecl_control") : NULL;
    fakecl_control_function control;
    if (symbol == NULL) return false;
    memcpy(&control, &symbol, sizeof control);
    fake = control();
    return true;
}

static UNUSED void heal(void)
{
    if (fake == NULL) return;
    fake->fail_name[0] = '\0';
    fake->fail_at = fake->lose_at = 0;
    fake->memory = fake->max_alloc = 0;
    fake->races = fake->unflushed = 0;
    fake->failed = 0;
    fake->calls = 0;
    memset(fake->name, 0, sizeof fake->name);
}

static UNUSED long live(void)
{
    long n = 0;
    for (int k = 0; k < FAKECL_KINDS; k++) n += fake->live[k];
    return n;
}

/* ---- a training step --------------------------------------------------------------------------------------------- */

static UNUSED sw_status make_graph(int64_t batch, sw_graph **out)
{
    const int64_t xs[] = { batch, WIDTH }, ts[] = { batch }, s1[] = { WIDTH, HIDDEN }, s2[] = { HIDDEN, CLASSES };
    sw_status st = sw_graph_new(out);
    if (st != SW_OK) return st;
    sw_graph *const g = *out;
    const sw_t x = sw_input(g, "x", SW_F32, 2, xs), target = sw_input(g, "target", SW_I64, 1, ts);
    const sw_init init = { .kind = SW_INIT_UNIFORM, .a = -0.5, .b = 0.5 };
    const sw_t w[2] = { sw_param(g, "w1", 2, s1, init), sw_param(g, "w2", 2, s2, init) };
    const sw_t loss = sw_cross_entropy(sw_matmul(sw_relu(sw_matmul(x, w[0])), w[1]), target);
    sw_t dw[2];
    st = sw_grad(loss, w, 2, dw);
    if (st != SW_OK) return st;
    for (int i = 0; i < 2; i++) sw_assign(w[i], sw_sub(w[i], sw_mul_scalar(dw[i], 0.5)));
    sw_output(loss, "loss");
    return sw_graph_status(g);
}

static UNUSED sw_status set_inputs(sw_program *p, int64_t batch)
{
    static float x[MOST * WIDTH];
    static int64_t target[MOST];
    for (int64_t e = 0; e < batch * WIDTH; e++) x[e] = (float)(e * 7 % 13) * 0.125f - 0.75f;
    for (int64_t e = 0; e < batch; e++) target[e] = e % CLASSES;
    const sw_status st = sw_program_set(p, sw_program_input(p, "x"), SW_F32, x, batch * WIDTH);
    return st != SW_OK ? st : sw_program_set(p, sw_program_input(p, "target"), SW_I64, target, batch);
}

static UNUSED sw_status run_once(sw_program *p, float *loss)
{
    const sw_status st = sw_program_run(p);
    return st != SW_OK ? st : sw_program_get(p, sw_program_output(p, "loss"), SW_F32, loss, 1);
}

static char message[1024]; /* of the first failure of a scenario */
static UNUSED bool profiled;      /* launches are timed by events */

static UNUSED sw_status keep_message(sw_status st)
{
    if (st != SW_OK) snprintf(message, sizeof message, "%s", sw_error());
    return st;
}

/* Two steps. If one fails, the program is tried again once nothing fails any more, unless the device is lost. */
static UNUSED sw_status run_steps(sw_program *p, int64_t batch, float loss[2])
{
    sw_status st = set_inputs(p, batch);
    for (int i = 0; i < 2 && st == SW_OK; i++) st = run_once(p, &loss[i]);
    if (keep_message(st) == SW_OK || fake->lose_at > 0) return st;
    heal();
    sw_status again = set_inputs(p, batch);
    if (again == SW_OK) again = run_once(p, loss);
    if (again != SW_OK) fail_msg("not to be run again after '%s': %s", message, sw_error());
    return st;
}

/* Opens, compiles, steps, frees all. */
static UNUSED sw_status scenario(const char *id, int64_t batch, float loss[2])
{
    sw_device *d = NULL;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    message[0] = '\0';
    sw_status st = make_graph(batch, &g);
    if (st == SW_OK) st = sw_device_open(id, NULL, &d);
    if (st == SW_OK) st = sw_compile(g, d, &(sw_compile_options){ .profile = profiled }, &p);
    keep_message(st);
    if (st == SW_OK) st = run_steps(p, batch, loss);
    sw_program_free(p);
    sw_device_close(d);
    sw_graph_free(g);
    return st;
}

/* After whatever happened: nothing is left, and a smaller batch goes. */
static UNUSED void expect_recovery(const char *after)
{
    float loss[2] = { 0 }, want[2] = { 0 };
    if (fake->races != 0 || fake->unflushed != 0)
        fail_msg("%s ('%s'): %ld uses of memory in no order, %ld waits for what was not flushed", after, message,
                 fake->races, fake->unflushed);
    if (live() != 0 || fake->faults != 0)
        fail_msg("%s ('%s'): %ld objects left (%ld contexts, %ld queues, %ld programs, %ld kernels, %ld buffers, %ld "
                 "events), %ld released twice", after, message, live(), fake->live[0], fake->live[1], fake->live[2],
                 fake->live[3], fake->live[4], fake->live[5], fake->faults);
    heal();
    if (scenario("cpu", 4, want) != SW_OK || scenario("opencl:0", 4, loss) != SW_OK)
        fail_msg("after %s: %s", after, message);
    for (int i = 0; i < 2; i++) assert_true(fabsf(loss[i] - want[i]) < 1e-5f);
    assert_int_equal(live(), 0);
}

/* ---- in processes of their own: the list of devices is made once ------------------------------------------------- */

/* Runs f in a child with these variables set ("A=1 B=2"); its exit status is to be 0. */
static UNUSED void in_child(const char *environment, int (*f)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char text[300], *rest = text;
        snprintf(text, sizeof text, "%s", environment);
        for (char *pair; (pair = strtok_r(rest, " ", &rest)) != NULL;) {
            char *const equals = strchr(pair, '=');
            *equals = '\0';
            setenv(pair, equals + 1, 1);
        }
        _exit(open_fake() ? f() : 3);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) fail_msg("%s: exit status %d, signal %d", environment, WEXITSTATUS(status), WTERMSIG(status));
}

/* ---- set-up and tear-down of a group --------------------------------------------------------------------------------------------------- */

static UNUSED int opens(void)
{
    sw_device *d = NULL;
    const bool good = sw_device_open("opencl:0", NULL, &d) == SW_OK;
    sw_device_close(d);
    return good ? 0 : 1;
}

/* Whether there is a device at all is found out in a child, too: later ones are to see other limits. */
static UNUSED bool has_device(void)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(open_fake() ? opens() : 3);
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static UNUSED int remove_one(const char *path, const struct stat *s, int type, struct FTW *f)
{
    (void)s;
    (void)type;
    (void)f;
    return remove(path);
}

static UNUSED int set_up(void **state)
{
    (void)state;
    snprintf(cache, sizeof cache, "/tmp/swoop-faults-XXXXXX");
    if (mkdtemp(cache) == NULL) return -1;
    setenv("SWOOP_CACHE_DIR", cache, 1);
    setenv("SWOOP_NO_TUNE", "1", 1); /* trials may fail without harm */
    setenv("SWOOP_OPENCL_LIBRARY", SWOOP_FAKECL, 1);
    if (has_device()) return 0;
    fprintf(stderr, "skipped: there is no OpenCL device\n");
    unsetenv("SWOOP_OPENCL_LIBRARY");
    return 0;
}

static UNUSED int tear_down(void **state)
{
    (void)state;
    return nftw(cache, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* From here on the library is in this process. */
static UNUSED int load_fake(void **state)
{
    (void)state;
    return getenv("SWOOP_OPENCL_LIBRARY") == NULL || fake != NULL || open_fake() ? 0 : -1;
}

#endif
