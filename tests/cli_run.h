/* cli_run.h: running the command in a test: its output, errors, exit code, JSON; a fresh folder with the digits at hand.
 * For test_cli*.c: include it once. Not every test uses all of it. */
#ifndef SW_TESTS_CLI_RUN_H
#define SW_TESTS_CLI_RUN_H

#include "base/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ftw.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MLP "--model mlp:16 --data digits --device cpu --threads 1 "

/* ---- running
 * --------------------------------------------------------------------------------------------------------- */

static inline char *slurp(const char *path)
{
    sw__text t = { 0 };
    char block[4096];
    FILE *const f = fopen(path, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) sw__text_put(&t, block, n);
    sw__text_put(&t, "", 0);
    fclose(f);
    assert_false(t.failed);
    return t.s != NULL ? t.s : sw__strdup("");
}

static char *out, *err; /* of the last run */

static inline void forget(void)
{
    sw__free(out);
    sw__free(err);
    out = err = NULL;
}

/* Runs "swoop ARGUMENTS" through the shell (so ARGUMENTS may redirect) and gives the exit code. */
static inline int run(const char *arguments)
{
    char line[1200];
    forget();
    snprintf(line, sizeof line, "exec >out 2>err; '%s' %s", SWOOP_COMMAND, arguments);
    const int status = system(line);
    assert_true(WIFEXITED(status));
    out = slurp("out");
    err = slurp("err");
    return WEXITSTATUS(status);
}

static inline void must(const char *arguments)
{
    const int code = run(arguments);
    if (code != 0) fail_msg("swoop %s: exit %d\n%s", arguments, code, err);
}

static inline void has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("no '%s' in:\n%s", part, text);
}

static inline void has_not(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) fail_msg("'%s' in:\n%s", part, text);
}

static inline int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p++) n++;
    return n;
}

static inline bool there(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0;
}

/* Every line of text is a JSON object; gives the last one that has `key`. */
static inline json_t *json_lines(const char *text, const char *key)
{
    json_t *found = NULL;
    for (const char *p = text; *p != '\0';) {
        const size_t n = strcspn(p, "\n");
        json_error_t e;
        json_t *const line = json_loadb(p, n, 0, &e);
        if (line == NULL) fail_msg("%s in: %.*s", e.text, (int)n, p);
        assert_true(json_is_object(line));
        json_t *const value = json_object_get(line, key);
        if (value != NULL) {
            json_decref(found);
            found = json_incref(value);
        }
        json_decref(line);
        p += n + (p[n] == '\n');
    }
    if (found == NULL) fail_msg("no line with '%s' in:\n%s", key, text);
    return found;
}

static inline double number(const json_t *object, const char *key)
{
    const json_t *const v = json_object_get(object, key);
    if (!json_is_number(v)) fail_msg("'%s' is no number", key);
    return json_number_value(v);
}

static inline void assert_close(double a, double b, double most)
{
    if (!(fabs(a - b) <= most)) fail_msg("%.17g and %.17g differ by more than %g", a, b, most);
}

static char folder[300];

static inline int remove_entry(const char *path, const struct stat *s, int type, struct FTW *f)
{
    (void)s;
    (void)type;
    (void)f;
    return remove(path);
}

static inline int set_up(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.200s/swoop-cli-XXXXXX", tmp != NULL && *tmp != '\0' ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return -1;
    if (setenv("SWOOP_DATA", SWOOP_TEST_DATA "/../data", 1) != 0 || setenv("LC_ALL", "C.UTF-8", 1) != 0) return -1;
    unsetenv("SWOOP_DEVICE");
    unsetenv("NO_COLOR");
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    forget();
    if (chdir("/") != 0) return -1;
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
