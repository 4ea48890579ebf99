/* train.c: `swoop train`: reads a run's keys, trains, shows how it goes; stops in good order on Ctrl-C.
 * The work is sw_run_train's; progress.c draws, this file connects the two. */
#include "progress.h"
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* The first one lets the step finish and the state be saved; from then on the default action holds: the next one kills.
 * A pipe whose reader went away (| head) counts once: what is printed while saving meets it again. */
static volatile sig_atomic_t stop;
static const int stopping[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };

static void on_signal(int number)
{
    static const char text[] = "\nswoop: finishing this step, then saving; once more ends at once\n";
    (void)number;
    stop = 1;
    for (size_t i = 0; i < CLI_COUNT(stopping); i++)
        signal(stopping[i], stopping[i] == SIGPIPE ? SIG_IGN : SIG_DFL);
    if (!cli.quiet) {
        const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        (void)written; /* nothing can be done about it here */
    }
}

static void catch_signals(void)
{
    for (size_t i = 0; i < CLI_COUNT(stopping); i++) {
        struct sigaction old, act = { .sa_handler = on_signal };
        sigemptyset(&act.sa_mask);
        act.sa_flags = SA_RESTART;
        if (sigaction(stopping[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN) continue; /* nohup, background job */
        sigaction(stopping[i], &act, NULL);
    }
}

/* ---- the profile of a run (--profile) ---------------------------------------------------------------------------- */

#define PROFILE_LINES 18 /* of the table, on the terminal: what it is of, the peaks, the total, the slowest kernels */

static FILE *profile_file(const sw_run_result *r, const char *name)
{
    char path[2400];
    if (*r->folder == '\0') return NULL; /* a dry run */
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    return fopen(path, "re");
}

/* One object on a line, as all that --json prints. */
static void profile_json(const sw_run_result *r)
{
    FILE *const f = profile_file(r, "profile.json");
    if (f == NULL) return;
    fputs("{\"profile\": ", stdout);
    for (int c; (c = fgetc(f)) != EOF;)
        if (c != '\n') fputc(c, stdout);
    fputs("}\n", stdout);
    fclose(f);
}

static void profile_text(const progress *p, const sw_run_result *r)
{
    char line[2400];
    FILE *const f = profile_file(r, "profile.txt");
    if (f == NULL) return;
    for (int i = 0; i < PROFILE_LINES && fgets(line, sizeof line, f) != NULL; i++) fputs(line, stdout);
    fclose(f);
    snprintf(line, sizeof line, "%s/profile.txt has all kernels, trace.json is for ui.perfetto.dev", r->folder);
    progress_line(p, "profile", line);
}

/* ---- the end of a run -------------------------------------------------------------------------------------------- */

static void result_json(const sw_run_result *r, const char *monitor)
{
    const sw_fit_result *const f = &r->fit;
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, "result", '{');
    cli_json_text(stdout, "folder", *r->folder != '\0' ? r->folder : NULL);
    cli_json_int(stdout, "epochs", f->epochs);
    cli_json_int(stdout, "steps", f->steps);
    cli_json_int(stdout, "samples", f->samples);
    cli_json_number(stdout, "seconds", f->seconds);
    cli_json_number(stdout, "loss", f->loss);
    cli_json_number(stdout, "acc", f->accuracy);
    cli_json_number(stdout, "val_loss", f->valid.n > 0 ? f->valid.loss : (double)NAN);
    cli_json_number(stdout, "val_acc", f->valid.n > 0 ? f->valid.accuracy : (double)NAN);
    cli_json_text(stdout, "monitor", monitor);
    cli_json_number(stdout, "best", f->best_epoch > 0 ? f->best : (double)NAN);
    cli_json_int(stdout, "best_epoch", f->best_epoch);
    cli_json_bool(stdout, "early", f->early);
    cli_json_int(stdout, "skipped", f->skipped);
    cli_json_int(stdout, "overflows", f->overflows);
    if (f->loss_scale > 0) cli_json_number(stdout, "loss_scale", f->loss_scale);
    cli_json_number(stdout, "test_loss", r->has_test ? r->test.loss : (double)NAN);
    cli_json_number(stdout, "test_acc", r->has_test ? r->test.accuracy : (double)NAN);
    cli_json_close(stdout, '}');
    cli_json_close(stdout, '}');
}

static void result_text(const progress *p, const sw_config *c, const sw_run_result *r)
{
    const char *const dot = cli_sign("·", "|"), *const arrow = cli_sign("→", "->");
    cli_text a, b;
    char line[2400];
    if (*r->folder == '\0') {
        progress_line(p, "done", "dry run: all is checked, nothing was trained or written");
        return;
    }
    cli_seconds(a, r->fit.seconds);
    if (r->fit.best_epoch > 0) {
        char figures[160];
        progress_best(p, &r->fit, figures, sizeof figures);
        snprintf(line, sizeof line, "epoch %lld, %s %s %s/best.safetensors    %s in all", (long long)r->fit.best_epoch,
                 figures, arrow, r->folder, a);
        progress_line(p, "best", line);
    } else {
        snprintf(line, sizeof line, "%lld steps %s %s/last.safetensors    %s in all", (long long)r->fit.steps, arrow,
                 r->folder, a);
        progress_line(p, "last", line);
    }
    if (r->fit.loss_scale > 0) {
        snprintf(line, sizeof line, "%lld steps skipped because f16 overflowed, loss scale %g at the end",
                 (long long)r->fit.overflows, r->fit.loss_scale);
        progress_line(p, "scale", line);
    }
    if (r->has_test) {
        const int n = snprintf(line, sizeof line, "loss %.4f", r->test.loss);
        if (!isnan(r->test.accuracy)) snprintf(line + n, sizeof line - (size_t)n, ", acc %.4f", r->test.accuracy);
        const size_t m = strlen(line);
        snprintf(line + m, sizeof line - m, "    %s samples", cli_count(b, r->test.n));
        progress_line(p, "test", line);
    }
    if (sw_config_int(c, SW_KEY_PROFILE) > 0) profile_text(p, r);
    snprintf(line, sizeof line, "swoop eval %s   %s   swoop predict %s DATA", r->folder, dot, r->folder);
    progress_line(p, "next", line);
}

static int interrupted(const sw_run_result *r)
{
    if (*r->folder == '\0') return cli_error(CLI_INTERRUPTED, "interrupted before the first step; nothing was written");
    return cli_error(CLI_INTERRUPTED, "interrupted at step %lld; all is saved\n  go on with: swoop train --resume %s",
                     (long long)r->fit.steps, r->folder);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int print_config(sw_config *c)
{
    const char *text = NULL;
    const sw_status st = cli.json ? sw_config_json(c, &text) : sw_config_yaml(c, &text);
    if (st != SW_OK) return cli_fail(st, NULL);
    const size_t n = strlen(text);
    fputs(text, stdout);
    if (n == 0 || text[n - 1] != '\n') fputc('\n', stdout);
    return CLI_GOOD;
}

static int train(sw_config *c)
{
    progress p;
    sw_run_result r = { 0 };
    const bool fresh = *sw_config_text(c, SW_KEY_RESUME) == '\0';
    if (fresh && *sw_config_text(c, SW_KEY_DATA) == '\0') {
        return cli_error(CLI_USAGE,
                         "there is no data to train on: --data fashion-mnist, or a folder or files of yours\n"
                         "  swoop train --help has examples");
    }
    if (fresh && *sw_config_text(c, SW_KEY_MODEL) == '\0') {
        return cli_error(CLI_USAGE, "there is no model to train: --model lenet, or --model mlp:256,128\n"
                                    "  swoop train --help has examples");
    }
    progress_init(&p, c);
    catch_signals();
    const sw_run_callbacks callbacks = { .note = progress_note, .event = progress_event, .context = &p, .stop = &stop };
    const sw_status st = sw_run_train(c, &callbacks, &r);
    progress_clear(&p);
    if (st == SW_ERR_INTERRUPTED) return interrupted(&r);
    if (st != SW_OK) return cli_fail(st, sw_config_text(c, SW_KEY_DEVICE));
    if (cli.json && !cli.quiet && sw_config_int(c, SW_KEY_PROFILE) > 0) profile_json(&r);
    if (cli.json)
        result_json(&r, p.monitor);
    else if (!cli.quiet)
        result_text(&p, c, &r);
    return CLI_GOOD;
}

static int go(sw_config *c, void *context)
{
    const bool *const only_print = context;
    return *only_print ? print_config(c) : train(c);
}

static int run(const cli_command *self, int argc, char **argv)
{
    static bool only_print;
    static const char *config_file;
    static const cli_option options[] = {
        { "config", "FILE", "run file (YAML, the same keys); the same as giving it first", CLI_TEXT, &config_file, 0,
          0 },
        { "print-config", NULL, "print every key as it would be used, as a run file, and stop", CLI_FLAG, &only_print,
          0, 0 },
        { NULL, NULL, NULL, CLI_FLAG, NULL, 0, 0 },
    };
    return cli_with_config(self, options, &config_file, argc, argv, go, &only_print);
}

const cli_command cli_train = {
    .name = "train",
    .about = "train a network, or go on with a run",
    .usage = "[RUN.yaml] [--KEY VALUE ...]",
    .text = "Trains a model on data and writes a run folder: runs/train, runs/train-2, ... with the best and the last "
            "model, a "
            "checkpoint, results.csv and every key in config.yaml. Each key can stand in a run file and on the command "
            "line, "
            "which wins. The first Ctrl-C finishes the step and saves; --resume goes on from there.",
    .examples = "swoop train --model lenet --data fashion-mnist --epochs 5\n"
                "swoop train run.yaml --lr 3e-4 --name slower\n"
                "swoop train --model mlp:256,128 --data x.npy:y.npy --val-split 0.2\n"
                "swoop train --resume                 # the last run, where it was left\n"
                "swoop train --resume runs/train --epochs 40\n"
                "swoop train --model resnet18 --data photos.npz --dry-run\n"
                "swoop train run.yaml --print-config > all-keys.yaml",
    .run = run,
};
