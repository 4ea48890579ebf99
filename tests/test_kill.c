/* test_kill.c: kill -9 at ten random moments of `swoop train`, then --resume: the weights end with the bits of the
 * uninterrupted run. A checkpoint is written after every step, so many kills fall into the writing of one. Ctrl-C too. */
/* serial */
/* timeout: 600 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[256];

static pid_t start(const char *const *extra)
{
    const char *argv[48] = {SWOOP_COMMAND, "train", "--model", "cnn:4", "--data", "digits", "--epochs", "2", "--batch-size", "128",
                            "--save-every", "1", "--device", "cpu", "--threads", "2", "-q"};
    int n = 17;
    for (; *extra; extra++) argv[n++] = *extra;
    const pid_t pid = fork();
    if (pid == 0) {
        if (chdir(folder) != 0) _exit(126);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pause_for(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)((s - (double)(time_t)s) * 1e9)}, NULL);
}

static char *read_whole(const char *run, const char *name, size_t *size)
{
    char path[600];
    snprintf(path, sizeof path, "%s/runs/%s/%s", folder, run, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size);
    if (fread(data, 1, *size, f) != *size) fail_msg("%s: short read", path);
    fclose(f);
    return data;
}

static void assert_same_model(const char *a, const char *b)
{
    static const char *const names[] = {"last.safetensors", "best.safetensors"};
    for (int i = 0; i < 2; i++) {
        size_t n = 0, m = 0;
        char *x = read_whole(a, names[i], &n), *y = read_whole(b, names[i], &m);
        if (!x || !y) fail_msg("%s is missing in %s", names[i], x ? b : a);
        if (n != m || memcmp(x, y, n) != 0) fail_msg("%s of %s and %s differ", names[i], a, b);
        free(x);
        free(y);
    }
}

/* Resumes until a run ends by itself; a folder without checkpoint yet is started anew. */
static void finish(const char *run)
{
    char path[300], name[64];
    size_t size;
    snprintf(path, sizeof path, "runs/%s", run);
    snprintf(name, sizeof name, "%s", run);
    char *state = read_whole(run, "checkpoint/state.safetensors", &size);
    const char *const resume[] = {"--resume", path, NULL}, *const anew[] = {"--name", name, "--exist-ok", NULL};
    const int status = wait_for(start(state ? resume : anew));
    free(state);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("%s: resuming ended with status %x", run, (unsigned)status);
}

static double whole_run(void)
{
    const double from = seconds();
    const int status = wait_for(start((const char *const[]){"--name", "whole", "--exist-ok", NULL}));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return seconds() - from;
}

static void test_kill(void **state)
{
    (void)state;
    double length = whole_run();
    uint64_t random = 20260101;
    int killed = 0, runs = 0;
    for (; killed < 10 && runs < 60; runs++) {
        char name[32];
        snprintf(name, sizeof name, "killed-%d", runs);
        random = random * 6364136223846793005u + 1442695040888963407u;
        const double when = length * ((double)(random >> 40) / 16777216.0 * 0.9 + 0.05);
        const pid_t pid = start((const char *const[]){"--name", name, NULL});
        pause_for(when);
        kill(pid, SIGKILL);
        if (WIFSIGNALED(wait_for(pid))) killed++;
        else length = when; /* the machine is faster now: it was done by then */
        finish(name);
        assert_same_model("whole", name);
    }
    print_message("%d of %d runs were killed before their end\n", killed, runs);
    assert_int_equal(killed, 10);
}

/* Its first checkpoint is there, so it is about to do its first step: a time would be right on an idle machine only. */
static void wait_for_checkpoint(const char *run)
{
    size_t size;
    char *state = NULL;
    for (int i = 0; i < 30000 && !state; i++) {
        pause_for(0.001);
        state = read_whole(run, "checkpoint/state.safetensors", &size);
    }
    if (!state) fail_msg("%s: no checkpoint within 30 s", run);
    free(state);
}

/* Ctrl-C: the step is finished, the state saved, 130 returned. */
static void test_interrupt(void **state)
{
    (void)state;
    whole_run();
    for (int signal_number = SIGINT, i = 0; i < 2; i++, signal_number = SIGTERM) {
        const char *name = i == 0 ? "interrupted" : "terminated";
        const pid_t pid = start((const char *const[]){"--name", name, NULL});
        wait_for_checkpoint(name);
        kill(pid, signal_number);
        const int status = wait_for(pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 130);
        finish(name);
        assert_same_model("whole", name);
    }
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/swoop-kill-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kill), cmocka_unit_test(test_interrupt)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
