/* verify.c: `swoop verify RUN`: replays steps of a run and says whether they come to the same bits.
 * The work is sw_run_verify's; this prints it. */
#include "cli.h"
#include <stdlib.h>
#include <string.h>

static void on_note(void *context, const char *label, const char *text)
{
    (void)context;
    if (cli.quiet) return;
    if (cli.json) {
        cli_json_note(label, text);
        return;
    }
    printf("%-8s", label);
    cli_put(stdout, text);
    putchar('\n');
}

static void put_json(const char *folder, const sw_verify_result *r)
{
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, "verify", '{');
    cli_json_text(stdout, "folder", folder);
    cli_json_bool(stdout, "equal", r->equal);
    cli_json_int(stdout, "from", r->from);
    cli_json_int(stdout, "to", r->to);
    cli_json_int(stdout, "compared", r->compared);
    cli_json_int(stdout, "tensors", r->tensors);
    cli_json_int(stdout, "same_to", r->same_to);
    cli_json_text(stdout, "tensor", r->equal ? NULL : r->tensor);
    cli_json_int(stdout, "step", r->step);
    cli_json_int(stdout, "differing", r->differing);
    cli_json_bool(stdout, "elsewhere", r->elsewhere);
    cli_json_close(stdout, '}');
    cli_json_close(stdout, '}');
}

/* Behind a word of eight columns, and on a terminal beneath itself. */
static void put_wrapped(const char *line)
{
    if (cli.tty_out) cli_wrap(stdout, 8, 8, cli_columns(), line);
    else cli_put(stdout, line);
    putchar('\n');
}

static void put_text(const char *folder, const sw_verify_result *r)
{
    char line[1600];
    if (r->equal) {
        printf("%sequal%s   ", cli_paint(stdout, CLI_GREEN), cli_paint(stdout, CLI_PLAIN));
        snprintf(line, sizeof line, "%.1024s: steps %lld to %lld come to the same bits, compared after %lld of them: %d tensor%s",
                 folder, (long long)r->from + 1, (long long)r->to, (long long)r->compared, r->tensors,
                 r->tensors == 1 ? "" : "s");
        put_wrapped(line);
        return;
    }
    char others[64], before[96];
    if (r->differing > 1) snprintf(others, sizeof others, " and %d more of %d tensors differ", r->differing - 1, r->tensors);
    else snprintf(others, sizeof others, " differs");
    if (r->same_to > 0) snprintf(before, sizeof before, "after step %lld all were the same", (long long)r->same_to);
    else snprintf(before, sizeof before, "it is the first that was compared, of those after step %lld", (long long)r->from);
    snprintf(line, sizeof line, "%.1024s: after step %lld %s%s; %s", folder, (long long)r->step, r->tensor, others, before);
    printf("%sdiffers%s ", cli_paint(stdout, CLI_BOLD), cli_paint(stdout, CLI_PLAIN));
    put_wrapped(line);
    if (!r->elsewhere)
        printf("        device, driver, threads and version are those of the run: its data or starting weights may have\n"
               "        changed, or something computes without order\n");
}

static int run(const cli_command *self, int argc, char **argv)
{
    static const char *from, *device;
    static int steps, threads;
    static bool no_tune;
    static const cli_option options[] = {
        { "steps", "N", "replay so many steps; default: up to the last that was recorded", CLI_NUMBER, &steps, 1, 2147483647 },
        { "from", "checkpoint|start", "where to begin: the run's checkpoint before the last (default), or its first step",
          CLI_CHOICE, &from, 0, 0 },
        { "device", "DEVICE", "auto, cpu, ... (see swoop devices); default: the run's", CLI_TEXT, &device, 0, 0 },
        { "threads", "N", "threads that compute; default: as many as the run had", CLI_NUMBER, &threads, 1, 1024 },
        { "no-tune", NULL, "do not measure which of a GPU's kernels are the fastest", CLI_FLAG, &no_tune, 0, 0 },
        { NULL, NULL, NULL, CLI_FLAG, NULL, 0, 0 },
    };
    const char *folder = NULL;
    cli_arguments a = { .options = options, .positional = &folder, .max_positional = 1 };
    int code;
    if (!cli_parse(self, &a, argc, argv, &code)) return code;
    if (no_tune) setenv("SWOOP_NO_TUNE", "1", 1);
    if (folder == NULL) return cli_error(CLI_USAGE, "which run? swoop verify %s", self->usage);
    sw_verify_result r;
    const sw_verify_options o = { .steps = steps, .from_start = from != NULL && strcmp(from, "start") == 0, .device = device,
                                  .threads = threads };
    const sw_status st = sw_run_verify(folder, &o, &(sw_run_callbacks){ .note = on_note }, &r);
    if (st != SW_OK) return cli_fail(st, device);
    if (cli.json)
        put_json(folder, &r);
    else if (!cli.quiet)
        put_text(folder, &r);
    return r.equal ? CLI_GOOD : CLI_DIFFERS;
}

const cli_command cli_verify = {
    .name = "verify",
    .about = "replay steps of a run: do they come to the same bits?",
    .usage = "RUN [options]",
    .text = "Does steps of a run again, from its checkpoint before the last or from the start, and compares hashes of all "
            "weights with those that the run recorded in hashes.csv: after each of its first ten steps, every log_every "
            "steps, and at each epoch's end. Says the first step and tensor that differ, and what is not as it was: device, "
            "driver, threads, version. Writes nothing.",
    .examples = "swoop verify runs/train               # its last epoch\n"
                "swoop verify runs/train --from start --steps 10\n"
                "swoop verify runs/last --threads 1\n"
                "swoop verify runs/train --json | jq .verify.equal",
    .run = run,
};
