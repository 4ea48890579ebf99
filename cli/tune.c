/* tune.c: `swoop tune`: measures on a GPU which kernels are the fastest for a run's products and convolutions, or for
 * some square products, and keeps it for later runs. Over sw_run_tune and sw_device_tuned. */
#include "progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const int64_t sizes[] = { 512, 1024, 2048 };

/* ---- without a run: square products ------------------------------------------------------------------------------ */

static sw_status compile_products(sw_device *d)
{
    sw_graph *g = NULL;
    sw_program *p = NULL;
    sw_status st = sw_graph_new(&g);
    for (size_t i = 0; i < CLI_COUNT(sizes) && st == SW_OK; i++) {
        const int64_t shape[2] = { sizes[i], sizes[i] };
        char name[32];
        snprintf(name, sizeof name, "a%d", (int)i);
        const sw_t a = sw_input(g, name, SW_F32, 2, shape);
        snprintf(name, sizeof name, "b%d", (int)i);
        const sw_t b = sw_input(g, name, SW_F32, 2, shape);
        snprintf(name, sizeof name, "c%d", (int)i);
        sw_output(sw_matmul(a, b), name);
        snprintf(name, sizeof name, "d%d", (int)i);
        sw_output(sw_matmul(a, sw_transpose(b, 0, 1)), name);
    }
    if (st == SW_OK) st = sw_graph_status(g);
    if (st == SW_OK) st = sw_compile(g, d, NULL, &p);
    sw_program_free(p);
    sw_graph_free(g);
    return st;
}

static sw_status tune_products(const sw_config *c, sw_tune_result *r)
{
    sw_device *d = NULL;
    const sw_device_options o = { .tune_all = true };
    sw_status st = sw_device_open(sw_config_is_auto(c, SW_KEY_DEVICE) ? NULL : sw_config_text(c, SW_KEY_DEVICE), &o, &d);
    if (st == SW_OK) st = compile_products(d);
    if (st == SW_OK) st = sw_device_tuned(d, r);
    sw_device_close(d);
    return st;
}

/* ---- what was found ---------------------------------------------------------------------------------------------- */

static const char *rate(cli_text b, const sw_tuned *t, double seconds)
{
    snprintf(b, sizeof(cli_text), seconds > 0 ? "%.1f" : "-", t->flops / seconds * 1e-9);
    return b;
}

static void put_text(const sw_tune_result *r)
{
    cli_text rule, best, library;
    int faster = 0, width = 2;
    for (int i = 0; i < r->n; i++) {
        const int n = (int)cli_width(r->ops[i].op);
        if (n > width) width = n;
        faster += r->ops[i].faster;
    }
    if (r->n > 0)
        printf("%-*s  %10s  %10s  %10s   GFLOP/s\n%-*s  %10s  %10s  %10s   %s\n", width, "", "by rules", "fastest",
               "library", width, "OP", "", "", "", "USED FROM NOW ON");
    for (int i = 0; i < r->n; i++) {
        const sw_tuned *const t = &r->ops[i];
        printf("%-*s  %10s  %10s  %10s   %s%s%s\n", width, t->op, rate(rule, t, t->rule), rate(best, t, t->best),
               rate(library, t, t->library), t->faster ? cli_paint(stdout, CLI_GREEN) : "", t->chosen,
               t->faster ? cli_paint(stdout, CLI_PLAIN) : "");
    }
    if (r->n > 0) printf("%d measured, %d faster than by the rules; kept for later runs\n", r->n, faster);
    else puts("nothing was measured: products and convolutions below 2 MFLOP are quick in every way");
}

static void put_json(const sw_tune_result *r)
{
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, "tuned", '[');
    for (int i = 0; i < r->n; i++) {
        const sw_tuned *const t = &r->ops[i];
        cli_json_open(stdout, NULL, '{');
        cli_json_text(stdout, "op", t->op);
        cli_json_number(stdout, "flops", t->flops);
        cli_json_number(stdout, "rule_s", t->rule);
        cli_json_number(stdout, "best_s", t->best);
        if (t->library > 0) cli_json_number(stdout, "library_s", t->library);
        cli_json_text(stdout, "chosen", t->chosen);
        cli_json_bool(stdout, "faster", t->faster);
        cli_json_close(stdout, '}');
    }
    cli_json_close(stdout, ']');
    cli_json_close(stdout, '}');
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Adds text to the table; with none only finds out whether that will be possible, and leaves no file behind. */
static int add_to_table(const char *path, const char *text)
{
    FILE *const f = fopen(path, "a");
    bool good = f != NULL && fputs(text, f) >= 0;
    const bool empty = good && ftell(f) == 0;
    if (f != NULL && fclose(f) != 0) good = false;
    if (!good) return cli_error(CLI_DATA, "%s cannot be written: %s", path, strerror(errno));
    if (empty) remove(path);
    return CLI_GOOD;
}

static void show(const sw_tune_result *r)
{
    if (cli.json)
        put_json(r);
    else if (!cli.quiet)
        put_text(r);
}

static int measure(sw_config *c, const char *path)
{
    progress p;
    sw_tune_result r = { 0 };
    sw_status st;
    if (*sw_config_text(c, SW_KEY_DATA) != '\0') {
        progress_init(&p, c);
        const sw_run_callbacks callbacks = { .note = progress_note, .context = &p };
        st = sw_run_tune(c, &callbacks, &r);
        progress_clear(&p);
    } else {
        st = tune_products(c, &r);
    }
    if (st != SW_OK) return cli_fail(st, sw_config_text(c, SW_KEY_DEVICE));
    show(&r);
    const int code = path != NULL ? add_to_table(path, r.table) : CLI_GOOD;
    sw_tune_result_free(&r);
    return code;
}

static int tune(sw_config *c, void *context)
{
    const char *const path = *(const char **)context;
    const char *const never = getenv("SWOOP_NO_TUNE");
    if (never != NULL && *never != '\0' && strcmp(never, "0") != 0)
        return cli_error(CLI_USAGE, "SWOOP_NO_TUNE in the environment forbids what swoop tune is for");
    if (sw_config_bool(c, SW_KEY_NO_TUNE) || *sw_config_text(c, SW_KEY_KERNELS) != '\0')
        return cli_error(CLI_USAGE, "--no-tune and --kernels forbid what swoop tune is for");
    if (*sw_config_text(c, SW_KEY_MODEL) != '\0' && *sw_config_text(c, SW_KEY_DATA) == '\0')
        return cli_error(CLI_USAGE, "a model without data, which says how large its products are: --data fashion-mnist, or "
                                    "yours; without either square products are measured\n  swoop tune --help has examples");
    const int writable = path != NULL ? add_to_table(path, "") : CLI_GOOD; /* before the work: it may take long */
    return writable == CLI_GOOD ? measure(c, path) : writable;
}

static int run(const cli_command *self, int argc, char **argv)
{
    static const char *table;
    static const cli_option options[] = {
        { "table", "FILE", "add what was found to a table for other machines (SWOOP_TUNING_TABLE)", CLI_TEXT, &table, 0, 0 },
        { NULL, NULL, NULL, CLI_FLAG, NULL, 0, 0 },
    };
    return cli_with_config(self, options, NULL, argc, argv, tune, &table);
}

const cli_command cli_tune = {
    .name = "tune",
    .about = "measure which of a GPU's kernels are the fastest",
    .usage = "[RUN.yaml] --device DEVICE [--KEY VALUE ...]",
    .text = "Measures the products of matrices and the convolutions of a run, for training and evaluation, in every variant "
            "that swoop has of them and, where CLBlast is installed, through it; keeps what was the fastest for later runs on "
            "this device. A run does a short form of this by itself when it is compiled for the first time, within two "
            "seconds and without CLBlast. Without a run: square products. Nothing else should compute meanwhile.",
    .examples = "swoop tune run.yaml --device opencl:0\n"
                "swoop tune --model resnet18 --data photos/ --device opencl:0 --json\n"
                "swoop tune --device opencl:0            # square products\n"
                "swoop tune run.yaml --device opencl:0 --table fleet.txt",
    .run = run,
};
