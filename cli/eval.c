/* eval.c: `swoop eval`: the figures of a trained model on a split: loss, accuracy, each class, confusion matrix.
 * sw_run_eval counts; this file derives precision, recall and F1 from the confusion matrix and prints. */
#include "cli.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of one class: shares are NaN where nothing was predicted, or there are no samples. */
typedef struct scores {
    double precision, recall, f1;
    int64_t samples;
} scores;

static scores of_class(const sw_eval_result *r, int64_t c)
{
    int64_t is = 0, said = 0;
    for (int64_t k = 0; k < r->classes; k++) {
        is += r->confusion[c * r->classes + k];
        said += r->confusion[k * r->classes + c];
    }
    const double right = (double)r->confusion[c * r->classes + c];
    return (scores){
        .precision = said > 0 ? right / (double)said : (double)NAN,
        .recall = is > 0 ? right / (double)is : (double)NAN,
        .f1 = is + said > 0 ? 2 * right / (double)(is + said) : (double)NAN,
        .samples = is,
    };
}

/* Plain mean over the classes that occur. */
static scores macro(const sw_eval_result *r)
{
    scores m = { 0, 0, 0, 0 };
    int64_t n = 0;
    for (int64_t c = 0; c < r->classes; c++) {
        const scores s = of_class(r, c);
        m.samples += s.samples;
        if (s.samples == 0) continue;
        m.precision += isnan(s.precision) ? 0 : s.precision; /* never predicted: none was right */
        m.recall += s.recall;
        m.f1 += s.f1;
        n++;
    }
    const double k = n > 0 ? 1 / (double)n : (double)NAN;
    m.precision *= k;
    m.recall *= k;
    m.f1 *= k;
    return m;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

#define MAX_NAME 24

static void class_label(const sw_eval_result *r, int64_t c, char *out, size_t size)
{
    const char *const name = r->class_names != NULL ? r->class_names[c] : NULL;
    char number[24], visible[64];
    snprintf(number, sizeof number, "%lld", (long long)c);
    if (name == NULL || strcmp(name, number) == 0)
        snprintf(out, size, "%s", number);
    else
        snprintf(out, size, "%s %s", number, cli_visible(name, visible, sizeof visible));
}

static int label_columns(const sw_eval_result *r)
{
    int most = 10;
    for (int64_t c = 0; c < r->classes; c++) {
        char label[300];
        class_label(r, c, label, sizeof label);
        const int w = (int)cli_width(label);
        if (w > most) most = w;
    }
    return most < MAX_NAME ? most : MAX_NAME;
}

static void put_share(double x)
{
    if (isnan(x))
        printf("%11s", "-");
    else
        printf("%11.4f", x);
}

static void put_scores(const char *label, int columns, const scores *s)
{
    cli_text b;
    cli_pad(stdout, label, columns, false);
    put_share(s->precision);
    put_share(s->recall);
    put_share(s->f1);
    printf("%11s\n", cli_count(b, s->samples));
}

static void put_table(const sw_eval_result *r)
{
    const int columns = label_columns(r);
    char label[300];
    printf("\n%s%-*s%11s%11s%11s%11s%s\n", cli_paint(stdout, CLI_BOLD), columns, "class", "precision", "recall", "F1",
           "samples", cli_paint(stdout, CLI_PLAIN));
    for (int64_t c = 0; c < r->classes; c++) {
        const scores s = of_class(r, c);
        class_label(r, c, label, sizeof label);
        put_scores(label, columns, &s);
    }
    const scores m = macro(r);
    put_scores("macro mean", columns, &m);
}

static void put_matrix(const sw_eval_result *r, int columns, int cell)
{
    char label[300];
    cli_text b;
    printf("\n%s", cli_paint(stdout, CLI_BOLD));
    cli_pad(stdout, cli_sign("true \\ predicted →", "true \\ predicted"), columns, false);
    for (int64_t c = 0; c < r->classes; c++) printf("%*lld", cell, (long long)c);
    printf("%s\n", cli_paint(stdout, CLI_PLAIN));
    for (int64_t t = 0; t < r->classes; t++) {
        class_label(r, t, label, sizeof label);
        cli_pad(stdout, label, columns, false);
        for (int64_t p = 0; p < r->classes; p++) {
            const int64_t n = r->confusion[t * r->classes + p];
            snprintf(b, sizeof b, "%lld", (long long)n);
            fputs(cli_paint(stdout, t == p ? CLI_GREEN : n == 0 ? CLI_DIM : CLI_PLAIN), stdout);
            cli_pad(stdout, n == 0 ? cli_sign("·", ".") : b, cell, true);
            fputs(cli_paint(stdout, CLI_PLAIN), stdout);
        }
        putchar('\n');
    }
}

/* For many classes: the pairs that are taken for each other most often. */
static void put_confused(const sw_eval_result *r)
{
    enum { MOST = 10 };
    int64_t top[MOST];
    int n = 0;
    const int64_t all = r->classes * r->classes;
    for (int64_t i = 0; i < all; i++) {
        if (i / r->classes == i % r->classes || r->confusion[i] == 0) continue;
        if (n == MOST && r->confusion[top[n - 1]] >= r->confusion[i]) continue;
        int k = n < MOST ? n++ : n - 1; /* insertion, the most frequent first */
        for (; k > 0 && r->confusion[top[k - 1]] < r->confusion[i]; k--) top[k] = top[k - 1];
        top[k] = i;
    }
    if (n > 0)
        printf("\n%smost often confused (true, predicted)%s\n", cli_paint(stdout, CLI_BOLD),
               cli_paint(stdout, CLI_PLAIN));
    for (int k = 0; k < n; k++) {
        char is[300], said[300];
        cli_text b;
        class_label(r, top[k] / r->classes, is, sizeof is);
        class_label(r, top[k] % r->classes, said, sizeof said);
        printf("%8s  ", cli_count(b, r->confusion[top[k]]));
        cli_put(stdout, is);
        printf(" %s ", cli_sign("→", "->"));
        cli_put(stdout, said);
        putchar('\n');
    }
}

static void put_text(const sw_eval_result *r)
{
    cli_text b;
    int64_t largest = 0;
    printf("model   ");
    cli_put(stdout, r->model);
    printf(", ");
    cli_put(stdout, r->file);
    printf("\ndata    ");
    cli_put(stdout, r->data);
    printf(", %s: %s samples\nloss    %.4f\n", r->split, cli_count(b, r->metrics.n), r->metrics.loss);
    if (!isnan(r->metrics.accuracy)) printf("acc     %.4f\n", r->metrics.accuracy);
    if (!isnan(r->metrics.label_errors)) printf("errors  %.4f for each label\n", r->metrics.label_errors);
    if (r->confusion == NULL) return;
    put_table(r);
    for (int64_t i = 0; i < r->classes * r->classes; i++) {
        if (r->confusion[i] > largest) largest = r->confusion[i];
    }
    const int numbers = snprintf(NULL, 0, "%lld", (long long)largest),
              heads = snprintf(NULL, 0, "%lld", (long long)r->classes - 1);
    const int cell = (numbers > heads ? numbers : heads) + 1;
    const int head = (int)cli_width(cli_sign("true \\ predicted →", "true \\ predicted"));
    const int columns = label_columns(r) > head ? label_columns(r) : head;
    const int64_t width = columns + cell * r->classes;
    if (width <= (cli.tty_out ? cli_columns() : 200))
        put_matrix(r, columns, cell);
    else
        put_confused(r);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void put_json(const sw_eval_result *r)
{
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, "eval", '{');
    cli_json_text(stdout, "model", r->model);
    cli_json_text(stdout, "file", r->file);
    cli_json_text(stdout, "data", r->data);
    cli_json_text(stdout, "split", r->split);
    cli_json_int(stdout, "samples", r->metrics.n);
    cli_json_number(stdout, "loss", r->metrics.loss);
    cli_json_number(stdout, "acc", r->metrics.accuracy);
    cli_json_number(stdout, "label_errors", r->metrics.label_errors);
    if (r->confusion != NULL) {
        const scores m = macro(r);
        cli_json_number(stdout, "macro_f1", m.f1);
        cli_json_open(stdout, "classes", '[');
        for (int64_t c = 0; c < r->classes; c++) {
            const scores s = of_class(r, c);
            cli_json_open(stdout, NULL, '{');
            cli_json_int(stdout, "label", c);
            cli_json_text(stdout, "class", r->class_names != NULL ? r->class_names[c] : NULL);
            cli_json_number(stdout, "precision", s.precision);
            cli_json_number(stdout, "recall", s.recall);
            cli_json_number(stdout, "f1", s.f1);
            cli_json_int(stdout, "samples", s.samples);
            cli_json_close(stdout, '}');
        }
        cli_json_close(stdout, ']');
        cli_json_open(stdout, "confusion", '[');
        for (int64_t t = 0; t < r->classes; t++) {
            cli_json_open(stdout, NULL, '[');
            for (int64_t p = 0; p < r->classes; p++) cli_json_int(stdout, NULL, r->confusion[t * r->classes + p]);
            cli_json_close(stdout, ']');
        }
        cli_json_close(stdout, ']');
    }
    cli_json_close(stdout, '}');
    cli_json_close(stdout, '}');
}

static int run(const cli_command *self, int argc, char **argv)
{
    static const char *data, *split, *device;
    static int threads;
    static bool no_tune;
    static const cli_option options[] = {
        { "data", "DATA", "what to evaluate on (as in training); default: the run's own data", CLI_TEXT, &data, 0, 0 },
        { "split", "test|val|train", "which part of it; default: test, or val where there is no test part", CLI_CHOICE,
          &split, 0, 0 },
        { "device", "DEVICE", "auto, cpu, ... (see swoop devices)", CLI_TEXT, &device, 0, 0 },
        { "threads", "N", "threads that compute; default: one per core", CLI_NUMBER, &threads, 1, 1024 },
        { "no-tune", NULL, "do not measure which of a GPU's kernels are the fastest", CLI_FLAG, &no_tune, 0, 0 },
        { NULL, NULL, NULL, CLI_FLAG, NULL, 0, 0 },
    };
    const char *path = NULL;
    cli_arguments a = { .options = options, .positional = &path, .max_positional = 1 };
    int code;
    if (!cli_parse(self, &a, argc, argv, &code)) return code;
    if (no_tune) setenv("SWOOP_NO_TUNE", "1", 1);
    if (path == NULL) return cli_error(CLI_USAGE, "which model? swoop eval %s", self->usage);
    sw_eval_result r = { .classes = 0 };
    const sw_status st = sw_run_eval(path, data, split, device, threads, &r);
    if (st != SW_OK) return cli_fail(st, device);
    if (cli.json)
        put_json(&r);
    else if (!cli.quiet)
        put_text(&r);
    sw_eval_result_free(&r);
    return CLI_GOOD;
}

const cli_command cli_eval = {
    .name = "eval",
    .about = "loss, accuracy, precision and recall by class, confusion matrix",
    .usage = "RUN|MODEL.safetensors [options]",
    .text =
        "Evaluates the best model of a run folder, or a model file. Normalisation and class names come from the file.",
    .examples = "swoop eval runs/train\n"
                "swoop eval runs/train --split val\n"
                "swoop eval best.safetensors --data fashion-mnist --split test\n"
                "swoop eval runs/train --json | jq .eval.acc",
    .run = run,
};
