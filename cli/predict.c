/* predict.c: `swoop predict`: what a trained model says about each sample, as CSV, JSON lines or an NPY array.
 * sw_run_predict hands over one prediction at a time; rows are written as they come, an array at the end. */
#include "cli.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct ranked {
    float value;
    int64_t label;
} ranked;

typedef struct output {
    FILE *f;
    const char *file;     /* --out, or NULL: stdout */
    char temporary[1100]; /* written first, then renamed to file; "" for devices and pipes */
    const char *format;
    int64_t top; /* so many classes a row */
    bool all;    /* --top all */
    ranked *ranking;
    float *array; /* npy: [count, n] */
    int64_t *mask; /* npy of images with a class for each place: [count, height, width] */
    int rank;      /* … their axes, 0: one answer a sample */
    int64_t shape[SW_MAX_RANK], positions;
    int64_t count, n;
    size_t capacity;
    struct timespec drawn;
    bool shown;
} output;

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const ranked *const x = a, *const y = b;
    if (x->value > y->value || x->value < y->value) return x->value > y->value ? -1 : 1;
    return x->label < y->label ? -1 : x->label > y->label;
}

/* The classes of p, likeliest first; for a single one nothing needs to be sorted. */
static void rank(const output *o, const sw_prediction *p)
{
    if (o->top == 1) {
        o->ranking[0] = (ranked){ p->outputs[p->label], p->label };
        return;
    }
    for (int64_t i = 0; i < p->n; i++) o->ranking[i] = (ranked){ p->outputs[i], i };
    qsort(o->ranking, (size_t)p->n, sizeof *o->ranking, by_value);
}

static const char *name_of(const sw_prediction *p, int64_t label)
{
    return p->class_names != NULL ? p->class_names[label] : NULL;
}

static void put_csv_text(FILE *f, const char *s)
{
    if (s == NULL) return;
    if (strpbrk(s, ",\"\r\n") == NULL) {
        fputs(s, f);
        return;
    }
    fputc('"', f);
    for (; *s != '\0'; s++) {
        if (*s == '"') fputc('"', f);
        fputc(*s, f);
    }
    fputc('"', f);
}

static void csv_head(const output *o, const sw_prediction *p)
{
    fputs(p->positions > 1 ? "index,position" : "index", o->f);
    if (p->labels != NULL) {
        fputs(",labels", o->f);
    } else if (p->label >= 0) {
        fputs(",label,class,probability", o->f);
        for (int64_t k = 2; k <= o->top; k++) {
            fprintf(o->f, ",label_%lld,class_%lld,probability_%lld", (long long)k, (long long)k, (long long)k);
        }
    } else if (p->n == 1) {
        fputs(",value", o->f);
    } else {
        for (int64_t i = 0; i < p->n; i++) fprintf(o->f, ",value_%lld", (long long)i);
    }
    fputc('\n', o->f);
}

static void csv_row(const output *o, const sw_prediction *p)
{
    if (o->count == 0 && p->position == 0) csv_head(o, p);
    fprintf(o->f, "%lld", (long long)p->index);
    if (p->positions > 1) fprintf(o->f, ",%lld", (long long)p->position);
    if (p->labels != NULL) {
        for (int64_t i = 0; i < p->n_labels; i++) fprintf(o->f, "%c%lld", i > 0 ? ' ' : ',', (long long)p->labels[i]);
        if (p->n_labels == 0) fputc(',', o->f);
    } else if (p->label >= 0) {
        for (int64_t k = 0; k < o->top; k++) {
            const int64_t label = o->ranking[k].label;
            fprintf(o->f, ",%lld,", (long long)label);
            put_csv_text(o->f, name_of(p, label));
            fprintf(o->f, ",%.6g", (double)o->ranking[k].value);
        }
    } else {
        for (int64_t i = 0; i < p->n; i++) fprintf(o->f, ",%.9g", (double)p->outputs[i]);
    }
    fputc('\n', o->f);
}

static void json_class(FILE *f, const sw_prediction *p, const ranked *r)
{
    cli_json_int(f, "label", r->label);
    cli_json_text(f, "class", name_of(p, r->label));
    cli_json_single(f, "probability", r->value);
}

/* All places of a mask are one line, which is open from the first to the last. */
static void json_place(const output *o, const sw_prediction *p)
{
    if (p->position == 0) {
        cli_json_open(o->f, NULL, '{');
        cli_json_int(o->f, "index", p->index);
        cli_json_open(o->f, "shape", '[');
        for (int i = 0; i < p->rank; i++) cli_json_int(o->f, NULL, p->shape[i]);
        cli_json_close(o->f, ']');
        cli_json_open(o->f, "labels", '[');
    }
    cli_json_int(o->f, NULL, p->label);
    if (p->position + 1 < p->positions) return;
    cli_json_close(o->f, ']');
    cli_json_close(o->f, '}');
}

static void json_row(const output *o, const sw_prediction *p)
{
    cli_json_open(o->f, NULL, '{');
    cli_json_int(o->f, "index", p->index);
    if (p->labels != NULL) {
        cli_json_open(o->f, "labels", '[');
        for (int64_t i = 0; i < p->n_labels; i++) cli_json_int(o->f, NULL, p->labels[i]);
        cli_json_close(o->f, ']');
    } else if (p->label >= 0) {
        json_class(o->f, p, &o->ranking[0]);
        if (o->top > 1) {
            cli_json_open(o->f, "top", '[');
            for (int64_t k = 0; k < o->top; k++) {
                cli_json_open(o->f, NULL, '{');
                json_class(o->f, p, &o->ranking[k]);
                cli_json_close(o->f, '}');
            }
            cli_json_close(o->f, ']');
        }
    } else if (p->n == 1) {
        cli_json_single(o->f, "value", p->outputs[0]);
    } else {
        cli_json_open(o->f, "values", '[');
        for (int64_t i = 0; i < p->n; i++) cli_json_single(o->f, NULL, p->outputs[i]);
        cli_json_close(o->f, ']');
    }
    cli_json_close(o->f, '}');
}

/* ---- taking predictions ------------------------------------------------------------------------------------------ */

/* What went wrong in this file while the library was at work: the callback itself gives a status only. */
static char trouble[300];

/* Room for one more row of n values of so many bytes. */
static sw_status grow(output *o, void **array, int64_t n, size_t bytes)
{
    const size_t need = (size_t)(o->count + 1) * (size_t)n;
    if (need <= o->capacity) return SW_OK;
    const size_t capacity = need * 2;
    void *const bigger = capacity < SIZE_MAX / bytes ? realloc(*array, capacity * bytes) : NULL;
    if (bigger == NULL) {
        snprintf(trouble, sizeof trouble, "out of memory: %zu predictions of %lld values", (size_t)o->count, (long long)n);
        return SW_ERR_MEMORY;
    }
    *array = bigger;
    o->capacity = capacity;
    return SW_OK;
}

static sw_status keep(output *o, const sw_prediction *p)
{
    if (p->positions > 1) {
        void *mask = o->mask;
        const sw_status st = grow(o, &mask, p->positions, sizeof *o->mask);
        o->mask = mask;
        if (st == SW_OK) o->mask[o->count * p->positions + p->position] = p->label;
        return st;
    }
    void *array = o->array;
    const sw_status st = grow(o, &array, p->n, sizeof *o->array);
    o->array = array;
    if (st == SW_OK) memcpy(o->array + (size_t)o->count * (size_t)p->n, p->outputs, (size_t)p->n * sizeof *o->array);
    return st;
}

static sw_status first(output *o, const sw_prediction *p)
{
    o->n = p->n;
    o->rank = p->rank;
    o->positions = p->positions;
    for (int i = 0; i < p->rank; i++) o->shape[i] = p->shape[i];
    if (p->positions > 1 && o->format[0] == 'j' && (o->all || o->top > 1)) {
        snprintf(trouble, sizeof trouble, "--top of a mask is for csv: a JSON line holds the likeliest class of each place");
        return SW_ERR_ARGUMENT;
    }
    if (o->all || o->top > p->n) o->top = p->n;
    o->ranking = malloc((size_t)(p->n > 0 ? p->n : 1) * sizeof *o->ranking);
    if (o->ranking != NULL) return SW_OK;
    snprintf(trouble, sizeof trouble, "out of memory: a ranking of %lld classes", (long long)p->n);
    return SW_ERR_MEMORY;
}

static void show(output *o)
{
    struct timespec t;
    if (!cli.tty_err || cli.quiet || o->file == NULL) return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if ((double)(t.tv_sec - o->drawn.tv_sec) + 1e-9 * (double)(t.tv_nsec - o->drawn.tv_nsec) < 0.1) return;
    cli_text b;
    fprintf(stderr, "\r%s samples\033[K", cli_count(b, o->count));
    fflush(stderr);
    o->drawn = t;
    o->shown = true;
}

static sw_status each(void *context, const sw_prediction *p)
{
    output *const o = context;
    if (o->ranking == NULL) {
        const sw_status st = first(o, p);
        if (st != SW_OK) return st;
    }
    if (p->label >= 0) rank(o, p);
    if (o->format[0] == 'n') {
        const sw_status st = keep(o, p);
        if (st != SW_OK) return st;
    } else if (o->format[0] == 'c') {
        csv_row(o, p);
    } else {
        (p->positions > 1 ? json_place : json_row)(o, p);
    }
    if (o->f != NULL && ferror(o->f)) { /* no need to compute for a full disk */
        snprintf(trouble, sizeof trouble, "%s: %s", o->file != NULL ? o->file : "stdout", strerror(errno));
        return SW_ERR_IO;
    }
    if (p->position + 1 < p->positions) return SW_OK;
    o->count++;
    show(o);
    return SW_OK;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int open_output(output *o)
{
    struct stat s;
    o->f = stdout;
    if (o->file == NULL) return CLI_GOOD;
    o->f = NULL;
    if (o->format[0] == 'n') return CLI_GOOD; /* sw_npy_write makes it */
    const bool special = stat(o->file, &s) == 0 && !S_ISREG(s.st_mode);
    if (!special) snprintf(o->temporary, sizeof o->temporary, "%.1000s.%ld.tmp", o->file, (long)getpid());
    o->f = fopen(special ? o->file : o->temporary, "w");
    if (o->f != NULL) return CLI_GOOD;
    return cli_error(CLI_DATA, "%s: it cannot be written: %s", o->file, strerror(errno));
}

static int close_output(output *o, int code)
{
    const char *why = NULL;
    if (o->file != NULL && o->f != NULL) {
        errno = 0;
        const bool bad = ferror(o->f) != 0;
        if (fclose(o->f) != 0 || bad) why = errno != 0 ? strerror(errno) : "write error";
        const bool moved = why == NULL && code == CLI_GOOD && *o->temporary != '\0';
        if (moved && rename(o->temporary, o->file) != 0) why = strerror(errno);
        if (*o->temporary != '\0' && (!moved || why != NULL)) unlink(o->temporary);
    }
    if (why != NULL && code == CLI_GOOD) return cli_error(CLI_DATA, "%s: it cannot be written: %s", o->file, why);
    return code;
}

static int write_array(const output *o)
{
    sw_array a = { .dtype = SW_F32,
                   .rank = 2,
                   .shape = { o->count, o->n },
                   .data = o->array,
                   .bytes = (size_t)o->count * (size_t)o->n * sizeof *o->array };
    if (o->rank > 0) {
        a = (sw_array){ .dtype = SW_I64, .rank = o->rank + 1, .shape = { o->count }, .data = o->mask,
                        .bytes = (size_t)(o->count * o->positions) * sizeof *o->mask };
        for (int i = 0; i < o->rank; i++) a.shape[i + 1] = o->shape[i];
    }
    const sw_status st = sw_npy_write(o->file, &a);
    return st == SW_OK ? CLI_GOOD : cli_fail(st, NULL);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static bool ends_in(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static int settle(output *o, const char *top)
{
    if (o->format == NULL && o->file != NULL)
        o->format = ends_in(o->file, ".npy") ? "npy" : ends_in(o->file, ".jsonl") ? "jsonl" : NULL;
    if (o->format == NULL) o->format = cli.json && o->file == NULL ? "jsonl" : "csv";
    if (cli.json && o->file == NULL && o->format[0] != 'j') {
        return cli_error(CLI_USAGE, "--json and --format %s to stdout do not go together; give --out FILE", o->format);
    }
    if (o->format[0] == 'n' && o->file == NULL) return cli_error(CLI_USAGE, "--format npy needs --out FILE");
    o->top = 1;
    if (top == NULL) return CLI_GOOD;
    if (o->format[0] == 'n') return cli_error(CLI_USAGE, "--top is for csv and jsonl: an npy array holds every output");
    o->all = strcmp(top, "all") == 0;
    char *end = NULL;
    errno = 0;
    const long long k = o->all ? 1 : strtoll(top, &end, 10);
    if (!o->all && (end == top || *end != '\0' || errno != 0 || k < 1)) {
        return cli_error(CLI_USAGE, "--top is '%.100s', and must be a whole number from 1, or all", top);
    }
    o->top = k;
    return CLI_GOOD;
}

static void say_done(const output *o)
{
    if (o->file == NULL) return;
    if (cli.json) {
        cli_json_open(stdout, NULL, '{');
        cli_json_open(stdout, "result", '{');
        cli_json_text(stdout, "out", o->file);
        cli_json_text(stdout, "format", o->format);
        cli_json_int(stdout, "samples", o->count);
        cli_json_int(stdout, "outputs", o->n);
        cli_json_close(stdout, '}');
        cli_json_close(stdout, '}');
    } else if (!cli.quiet) {
        cli_text b;
        printf("%s samples %s ", cli_count(b, o->count), cli_sign("→", "->"));
        cli_put(stdout, o->file);
        putchar('\n');
    }
}

static int predict(output *o, const char *path, const char *data, const char *split, const char *device, int threads)
{
    int code = open_output(o);
    if (code != CLI_GOOD) return code;
    const sw_status st = sw_run_predict(path, data, split, device, threads, each, o);
    if (o->shown) fputs("\r\033[K", stderr);
    if (st != SW_OK)
        code = *trouble != '\0' ? cli_error(cli_code(st, device), "%s", trouble) : cli_fail(st, device);
    else if (o->format[0] == 'n')
        code = write_array(o);
    code = close_output(o, code);
    if (code == CLI_GOOD) say_done(o);
    return code;
}

/* A prompt takes the place of data and of files. */
static int write_on(const char *path, const cli_prompt *p, const output *o, const char *data, const char *split)
{
    const char *const given = data != NULL        ? "data"
                              : split != NULL     ? "--split"
                              : o->file != NULL   ? "--out"
                              : o->format != NULL ? "--format" : NULL;
    if (given != NULL) return cli_error(CLI_USAGE, "--prompt goes on from a text, and takes no %s", given);
    return cli_generate(path, p);
}

static int run(const cli_command *self, int argc, char **argv)
{
    static const char *split, *device, *top, *data;
    static int threads;
    static bool no_tune;
    static output o;
    static cli_prompt p = { .length = 200 };
    static const cli_option options[] = {
        { "format", "csv|jsonl|npy", "default: csv, or as the name of --out says", CLI_CHOICE, &o.format, 0, 0 },
        { "out", "FILE", "write to this file; default: stdout", CLI_TEXT, &o.file, 0, 0 },
        { "top", "K", "the K likeliest classes of each sample, or all; with --prompt: draw from those", CLI_TEXT, &top, 0, 0 },
        { "prompt", "TEXT", "write on from this text, instead of data: gpt, lstm, gru", CLI_TEXT, &p.prompt, 0, 0 },
        { "length", "N", "with --prompt: write so many characters, or tokens; default: 200", CLI_NUMBER, &p.length, 0, 1 << 30 },
        { "temperature", "X", "with --prompt: 0 takes always the likeliest; default: 1, as likely as the model says", CLI_TEXT, &p.temperature, 0, 0 },
        { "seed", "N", "with --prompt: the same seed, the same text; default: 0", CLI_NUMBER, &p.seed, 0, INT_MAX },
        { "data", "DATA", "the same as giving it behind the model", CLI_TEXT, &data, 0, 0 },
        { "split", "test|val|train", "which part of the data; default: test", CLI_CHOICE, &split, 0, 0 },
        { "device", "DEVICE", "auto, cpu, ... (see swoop devices)", CLI_TEXT, &device, 0, 0 },
        { "threads", "N", "threads that compute; default: one per core", CLI_NUMBER, &threads, 1, 1024 },
        { "no-tune", NULL, "do not measure which of a GPU's kernels are the fastest", CLI_FLAG, &no_tune, 0, 0 },
        { NULL, NULL, NULL, CLI_FLAG, NULL, 0, 0 },
    };
    const char *positional[2] = { NULL, NULL };
    cli_arguments a = { .options = options, .positional = positional, .max_positional = 2 };
    int code;
    if (!cli_parse(self, &a, argc, argv, &code)) return code;
    if (no_tune) setenv("SWOOP_NO_TUNE", "1", 1);
    if (positional[0] == NULL) return cli_error(CLI_USAGE, "which model? swoop predict %s", self->usage);
    if (positional[1] != NULL && data != NULL)
        return cli_error(CLI_USAGE, "two data sets: '%s' and '%s'", positional[1], data);
    const char *const on = positional[1] != NULL ? positional[1] : data;
    p.top = top;
    p.device = device;
    p.threads = threads;
    if (p.prompt != NULL) return write_on(positional[0], &p, &o, on, split);
    if (p.temperature != NULL) return cli_error(CLI_USAGE, "--temperature is for --prompt");
    code = settle(&o, top);
    if (code == CLI_GOOD)
        code = predict(&o, positional[0], on, split, device, threads);
    free(o.array);
    free(o.mask);
    free(o.ranking);
    return code;
}

const cli_command cli_predict = {
    .name = "predict",
    .about = "what a trained model says about each sample: csv, jsonl, npy",
    .usage = "RUN|MODEL.safetensors [DATA | --prompt TEXT] [options]",
    .text = "Runs the best model of a run folder, or a model file, on data (default: the run's own). Labels are not "
            "needed. "
            "Classes: index,label,class,probability; values: index,value. An npy array is [samples, outputs]. "
            "Images with a class for each pixel (unet): a csv row a pixel, index,position,label,...; a JSON line with "
            "shape and labels; or an npy array of the classes, [samples, height, width]. What crnn reads: index,labels. "
            "Of text, what comes after each sample; with --prompt a model of text writes on from yours.",
    .examples = "swoop predict runs/train digits\n"
                "swoop predict runs/train images.npy --top 3 --format jsonl\n"
                "swoop predict best.safetensors images.npy --out probabilities.npy\n"
                "swoop predict runs/train --prompt \"It was \" --length 500 --temperature 0.8",
    .run = run,
};
