/* cli.h: what the commands of `swoop` share: options, terminal, numbers for people, JSON, errors and exit codes.
 * main.c picks a command from the table; each command is a file. Only the public headers of swoop are used. */
#ifndef SWOOP_CLI_H
#define SWOOP_CLI_H

#include <stdio.h>
#include <swoop/swoop.h>

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif
#define CLI_COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { CLI_GOOD = 0, CLI_DATA = 1, CLI_USAGE = 2, CLI_DEVICE = 3, CLI_DIVERGED = 4, CLI_DIFFERS = 5, CLI_INTERRUPTED = 130 };

/* ---- commands ---------------------------------------------------------------------------------------------------- */

typedef struct cli_command {
    const char *name, *about; /* about: one line, for the list */
    const char *usage;        /* what stands behind "swoop NAME" */
    const char *text;         /* a paragraph */
    const char *examples;     /* lines, as typed */
    /* argv[0] is the command's name. Gives the exit code. */
    int (*run)(const struct cli_command *self, int argc, char **argv);
} cli_command;

extern const cli_command cli_train, cli_eval, cli_predict, cli_devices, cli_kernels, cli_plan, cli_tune, cli_verify;

/* What the options that every command has say, and what the terminal can do. Set by cli_start and cli_parse. */
typedef struct cli_state {
    bool json, quiet, utf8, color_out, color_err, no_color;
    int verbose;
    bool tty_out, tty_err; /* tty_err: lines can be redrawn there */
} cli_state;
extern cli_state cli;

void cli_start(int argc, char *const *argv); /* locale, terminal; --json and --no-color count before they are parsed */

/* swoop predict with a prompt: generate.c. Gives the exit code. */
typedef struct cli_prompt {
    const char *prompt, *temperature, *top, *device;
    int length, seed, threads;
} cli_prompt;
int cli_generate(const char *path, const cli_prompt *p);

void cli_on_build(void *context, const sw_build_event *e); /* for sw_on_build: build.c */

/* ---- options: options.c ------------------------------------------------------------------------------------------ */

typedef enum cli_type {
    CLI_FLAG,   /* bool */
    CLI_TEXT,   /* const char * */
    CLI_NUMBER, /* int, least … most */
    CLI_CHOICE  /* const char *, one of `value` ("csv|jsonl|npy") */
} cli_type;

typedef struct cli_option {
    const char *name, *value, *help; /* value: what stands for it in --help: FILE, N */
    cli_type type;
    void *to;
    int least, most;
} cli_option;

typedef struct cli_arguments {
    const cli_option *options; /* the command's own; name NULL ends the list */
    sw_config *config;         /* takes every flag that is a key; or NULL */
    const char **positional;
    int max_positional, n_positional; /* n: filled */
} cli_arguments;

/* A command whose flags are a run's keys: reads argv and the run file (the one positional, or *config_file where the command
 * has an option for it, else NULL), then gives the configuration to go. Gives the exit code. */
int cli_with_config(const cli_command *self, const cli_option *options, const char *const *config_file, int argc, char **argv,
                    int (*go)(sw_config *c, void *context), void *context);
/* Reads argv. false: the command is over with *code (help was printed, or an error). `--` ends the options. */
bool cli_parse(const cli_command *self, cli_arguments *a, int argc, char **argv, int *code);
void cli_help(const cli_command *self, const cli_arguments *a, FILE *f);
/* The candidate nearest to word (edit distance at most a third of its length, at least 1), or NULL; - and _ are the
 * same. */
const char *cli_nearest(const char *word, const char *const *candidates, size_t n);

/* ---- errors: options.c ------------------------------------------------------------------------------------------- */

/* "swoop: error: …" to stderr, with --json {"error": …} to stdout too. Gives back the code. */
int cli_error(int code, const char *fmt, ...) CLI_PRINTF(2, 3);
/* The same for a status of the library, with its message. device: what was asked for, NULL: nothing. */
int cli_fail(sw_status st, const char *device);
int cli_code(sw_status st, const char *device);
/* Flushes stdout; a full disk is an error here. */
int cli_finish(int code);

/* ---- terminal: term.c -------------------------------------------------------------------------------------------- */

int cli_columns(void);           /* of the terminal; 80 if that is not known */
size_t cli_width(const char *s); /* columns that s takes */
/* Text from elsewhere: control characters become ?, and outside UTF-8 locales × → · and the like become ASCII. */
void cli_put(FILE *f, const char *s);
void cli_pad(FILE *f, const char *s, int columns, bool right); /* cli_put, filled up with spaces; cut if longer */
/* Breaks lines between words; the first begins at column, the others at indent. No newline at the end. */
void cli_wrap(FILE *f, int column, int indent, int width, const char *s);
typedef enum cli_color { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW } cli_color;
/* A name as it can be read: as it is, or in quotes with escapes if it has control characters or is only spaces. */
const char *cli_visible(const char *s, char *buffer, size_t size);
const char *cli_paint(FILE *f, cli_color c); /* "" where there are no colours */
const char *cli_sign(const char *utf8, const char *ascii);

/* ---- numbers: format.c. Each fills and gives back buffer --------------------------------------------------------- */

typedef char cli_text[40];
const char *cli_si(cli_text b, double x);        /* 971, 138 k, 1.38 M */
const char *cli_bytes(cli_text b, double bytes); /* 241 KiB, 11.3 MiB */
const char *cli_seconds(cli_text b, double s);   /* 0.4 s, 12 s, 3 min 05 s, 2 h 05 min */
const char *cli_count(cli_text b, int64_t n);    /* 54 000 */

/* ---- JSON: json.c. One object per line on stdout: cli_json_begin … cli_json_end ---------------------------------- */

/* key NULL: an element of an array. NaN and infinities are written as null, bytes that are not UTF-8 as U+FFFD. */
void cli_json_open(FILE *f, const char *key, char bracket);  /* { or [ */
void cli_json_close(FILE *f, char bracket);                  /* } or ] ; the outermost ends the line */
void cli_json_text(FILE *f, const char *key, const char *s); /* s NULL: null */
void cli_json_number(FILE *f, const char *key, double x);
void cli_json_single(FILE *f, const char *key, float x); /* as many digits as a float has */
void cli_json_int(FILE *f, const char *key, int64_t x);
void cli_json_bool(FILE *f, const char *key, bool x);
void cli_json_note(const char *label, const char *text); /* a line of its own: what a run says of itself */

#endif
