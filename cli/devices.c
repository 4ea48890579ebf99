/* devices.c: `swoop devices`: what this machine can compute on, one line a device.
 * Over sw_device_list. */
#include "cli.h"
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 64
enum { DEVICE, NAME, MEMORY, FREE, COMPUTE, DRIVER, STATUS, COLUMNS };

static const struct {
    const char *title;
    bool right;
    int least;
} columns[COLUMNS] = {
    [DEVICE] = { "DEVICE", false, 0 }, [NAME] = { "NAME", false, 12 },       [MEMORY] = { "MEMORY", true, 0 },
    [FREE] = { "FREE", true, 0 },      [COMPUTE] = { "COMPUTE", false, 16 }, [DRIVER] = { "DRIVER", false, 8 },
    [STATUS] = { "STATUS", false, 20 },
};

typedef struct row {
    char cell[COLUMNS][164];
} row;

static void fill(row *r, const sw_device_properties *d)
{
    cli_text b;
    snprintf(r->cell[DEVICE], sizeof r->cell[0], "%s", d->id);
    snprintf(r->cell[NAME], sizeof r->cell[0], "%s", d->name);
    snprintf(r->cell[MEMORY], sizeof r->cell[0], "%s",
             d->memory_total > 0 ? cli_bytes(b, (double)d->memory_total) : "-");
    snprintf(r->cell[FREE], sizeof r->cell[0], "%s", d->memory_total > 0 ? cli_bytes(b, (double)d->memory_free) : "-");
    snprintf(r->cell[COMPUTE], sizeof r->cell[0], "%s", *d->compute != '\0' ? d->compute : "-");
    snprintf(r->cell[DRIVER], sizeof r->cell[0], "%s", *d->driver != '\0' ? d->driver : "-");
    snprintf(r->cell[STATUS], sizeof r->cell[0], "%s", d->status);
}

/* As wide as the longest cell; on a narrow terminal the widest columns give way. */
static void measure(const row *rows, int n, int *width)
{
    int sum = 2 * (COLUMNS - 1);
    for (int c = 0; c < COLUMNS; c++) {
        width[c] = (int)strlen(columns[c].title);
        for (int i = 0; i < n; i++) {
            const int w = (int)cli_width(rows[i].cell[c]);
            if (w > width[c]) width[c] = w;
        }
        sum += width[c];
    }
    while (cli.tty_out && sum > cli_columns()) {
        int widest = -1;
        for (int c = 0; c < COLUMNS; c++) {
            if (columns[c].least > 0 && width[c] > columns[c].least && (widest < 0 || width[c] > width[widest]))
                widest = c;
        }
        if (widest < 0) return;
        width[widest]--;
        sum--;
    }
}

/* Moves as many words from *rest to part as fit; a word that is too long alone. */
static void take_words(const char **rest, int width, char *part, size_t size)
{
    const char *end = *rest;
    for (const char *word = end; *word != '\0';) {
        const char *const next = word + strspn(word, " "), *const after = next + strcspn(next, " ");
        snprintf(part, size, "%.*s", (int)(after - *rest), *rest);
        if (end != *rest && (int)cli_width(part) > width) break;
        end = word = after;
    }
    snprintf(part, size, "%.*s", (int)(end - *rest), *rest);
    *rest = end + strspn(end, " ");
}

/* A cell that is wider than its column goes on in the next line. */
static void put_row(const row *r, const int *width)
{
    const char *rest[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) rest[c] = r->cell[c];
    for (bool more = true; more;) {
        more = false;
        for (int c = 0; c < COLUMNS; c++) {
            const bool last = c == COLUMNS - 1;
            char part[sizeof r->cell[0]];
            take_words(&rest[c], width[c], part, sizeof part);
            cli_pad(stdout, part, last && (int)cli_width(part) < width[c] ? (int)cli_width(part) : width[c],
                    columns[c].right);
            fputs(last ? "\n" : "  ", stdout);
            more |= *rest[c] != '\0';
        }
    }
}

static void put_table(const sw_device_properties *list, int n)
{
    row head, rows[MAX_DEVICES];
    int width[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) snprintf(head.cell[c], sizeof head.cell[0], "%s", columns[c].title);
    for (int i = 0; i < n; i++) fill(&rows[i], &list[i]);
    measure(rows, n, width);
    fputs(cli_paint(stdout, CLI_BOLD), stdout);
    put_row(&head, width);
    fputs(cli_paint(stdout, CLI_PLAIN), stdout);
    for (int i = 0; i < n; i++) put_row(&rows[i], width);
}

/* What the driver tells of how it fares; nothing where it does not. */
static void put_state(const sw_device_properties *d)
{
    if (d->bandwidth > 0) cli_json_number(stdout, "bandwidth", d->bandwidth);
    if (d->clock > 0) cli_json_int(stdout, "clock_mhz", d->clock);
    if (d->power > 0) cli_json_number(stdout, "power_watts", d->power);
    if (d->power_limit > 0) cli_json_number(stdout, "power_limit_watts", d->power_limit);
    if (d->temperature > 0) cli_json_int(stdout, "temperature_celsius", d->temperature);
    if (d->busy > 0) cli_json_int(stdout, "busy_percent", d->busy);
}

static void put_json(const sw_device_properties *list, int n, const char *chosen)
{
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, "devices", '[');
    for (int i = 0; i < n; i++) {
        const sw_device_properties *const d = &list[i];
        cli_json_open(stdout, NULL, '{');
        cli_json_text(stdout, "id", d->id);
        cli_json_text(stdout, "backend", d->backend);
        cli_json_text(stdout, "name", d->name);
        cli_json_text(stdout, "compute", d->compute);
        cli_json_int(stdout, "compute_units", d->compute_units);
        cli_json_text(stdout, "driver", d->driver);
        cli_json_int(stdout, "memory", (int64_t)d->memory_total);
        cli_json_int(stdout, "free", (int64_t)d->memory_free);
        put_state(d);
        cli_json_text(stdout, "status", d->status);
        cli_json_bool(stdout, "usable", d->usable);
        cli_json_close(stdout, '}');
    }
    cli_json_close(stdout, ']');
    cli_json_text(stdout, "default", chosen);
    cli_json_open(stdout, "missing", '{');
    const char *backend = NULL, *why;
    for (int i = 0; (why = sw_device_missing(i, &backend)) != NULL; i++) cli_json_text(stdout, backend, why);
    cli_json_close(stdout, '}');
    cli_json_close(stdout, '}');
}

/* Kinds of devices that there could be: "no opencl: …". */
static void put_missing(void)
{
    const char *backend = NULL, *why;
    for (int i = 0; (why = sw_device_missing(i, &backend)) != NULL; i++) {
        const int column = printf("no %s: ", backend);
        cli_wrap(stdout, column, 4, cli.tty_out ? cli_columns() : 1000, why);
        fputc('\n', stdout);
    }
}

static int run(const cli_command *self, int argc, char **argv)
{
    static bool all;
    static sw_device_properties list[MAX_DEVICES];
    static const cli_option options[] = {
        { "all", NULL, "also ref (checks, slowly, in double precision) and null (plans only)", CLI_FLAG, &all, 0, 0 },
        { NULL, NULL, NULL, CLI_FLAG, NULL, 0, 0 },
    };
    cli_arguments a = { .options = options };
    int code;
    if (!cli_parse(self, &a, argc, argv, &code)) return code;
    int n = sw_device_list(list, MAX_DEVICES, all || cli.verbose > 0);
    if (n > MAX_DEVICES) n = MAX_DEVICES;
    sw_device *d = NULL;
    const sw_status st = sw_device_open("auto", NULL, &d);
    const char *const chosen = st == SW_OK ? sw_device_info(d)->id : NULL;
    if (cli.json)
        put_json(list, n, chosen);
    else if (!cli.quiet)
        put_table(list, n);
    if (st == SW_OK && !cli.json && !cli.quiet)
        printf("default: %s   (change with --device or SWOOP_DEVICE)\n", chosen);
    if (!cli.json && !cli.quiet) put_missing();
    code = st == SW_OK ? CLI_GOOD : cli_fail(st, getenv("SWOOP_DEVICE"));
    sw_device_close(d);
    return code;
}

const cli_command cli_devices = {
    .name = "devices",
    .about = "list devices",
    .usage = "[options]",
    .text = "Lists what this machine can compute on: the id for --device, memory, what it is capable of, and whether "
            "it works. NVIDIA devices also tell clock, power and temperature. A device that you miss: swoop train --device "
            "cuda:0 says what to install.",
    .examples = "swoop devices\n"
                "swoop devices --json | jq -r '.devices[].id'\n"
                "SWOOP_DEVICE=cpu swoop devices        # the default changes",
    .run = run,
};
