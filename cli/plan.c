/* plan.c: `swoop plan`: does a model fit, what takes the room, the largest batch; on each device beside the others.
 * Over sw_run_plan; nothing is trained, and nothing is allocated on a device. */
#include "cli.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 16, MAX_GPUS = 128, FEW_GPUS = 4 /* of more, cuDNN is not asked: a second or two each */ };
typedef struct column {
    char id[64];
    sw_gpu_entry gpu; /* with --gpus */
    sw_status status;
    char why[600];
    sw_device_plan p;
} column;

/* ---- what is planned --------------------------------------------------------------------------------------------- */

/* "3x224x224" (also with the sign for times). false: it is no shape. */
static bool read_shape(const char *s, sw_plan_request *q)
{
    while (*s != '\0') {
        char *end;
        errno = 0;
        const long long n = strtoll(s, &end, 10);
        if (end == s || n < 1 || errno != 0 || *s < '0' || *s > '9' || q->rank == SW_MAX_RANK - 1) return false;
        q->shape[q->rank++] = n;
        if (strncmp(end, "\xc3\x97", 2) == 0) end += 1;
        else if (*end != 'x' && *end != '\0') return false;
        s = *end == '\0' ? end : end + 1;
        if (*s == '\0' && *end != '\0') return false;
    }
    return q->rank > 0;
}

/* The parts of a list with commas, as ids. -1, said: one is empty, or there are too many. */
static int split(const char *option, const char *list, column *columns, int most)
{
    int n = 0;
    for (const char *p = list;; p++) {
        const size_t length = strcspn(p, ",");
        if (length == 0) return cli_error(CLI_USAGE, "--%s '%.200s': a name is empty", option, list), -1;
        if (n == most) return cli_error(CLI_USAGE, "--%s: at most %d at once", option, most), -1;
        snprintf(columns[n++].id, sizeof columns->id, "%.*s", (int)(length < 63 ? length : 63), p);
        p += length;
        if (*p == '\0') return n;
    }
}

/* The ids of a list, or of all devices that work. */
static int list_devices(const char *wanted, column *columns)
{
    static sw_device_properties list[64];
    int n = 0;
    if (wanted != NULL) return split("devices", wanted, columns, MAX_DEVICES);
    const int all = sw_device_list(list, 64, false);
    for (int i = 0; i < all && i < 64 && n < MAX_DEVICES; i++) {
        if (list[i].usable) snprintf(columns[n++].id, sizeof columns->id, "%.60s", list[i].id);
    }
    return n;
}

/* The GPUs of a list of names, or of the whole catalogue. -1, said: there is none of a name. */
static int list_gpus(const char *wanted, column *columns)
{
    static sw_gpu_entry list[MAX_GPUS];
    const bool every = strcmp(wanted, "all") == 0;
    const int all = sw_gpu_list(list, MAX_GPUS), known = all < MAX_GPUS ? all : MAX_GPUS;
    const int n = every ? known : split("gpus", wanted, columns, MAX_GPUS);
    for (int i = 0; i < n; i++) {
        if (every) columns[i].gpu = list[i];
        else if (sw_gpu_find(columns[i].id, &columns[i].gpu) != SW_OK)
            return cli_error(CLI_USAGE, "%s", sw_error()), -1;
        snprintf(columns[i].id, sizeof columns->id, "%s", columns[i].gpu.model.name);
    }
    return n;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

static uint64_t of_params(const sw_plan *p) { return p->params; }
static uint64_t of_buffers(const sw_plan *p) { return p->buffers; }
static uint64_t of_state(const sw_plan *p) { return p->state; }
static uint64_t of_inputs(const sw_plan *p) { return p->inputs + p->constants; }
static uint64_t of_arena(const sw_plan *p) { return p->arena; }
static uint64_t of_activations(const sw_plan *p) { return p->peak.activations; }
static uint64_t of_gradients(const sw_plan *p) { return p->peak.gradients; }
static uint64_t of_peak_workspace(const sw_plan *p) { return p->peak.workspace; }
static uint64_t of_unused(const sw_plan *p) { return p->peak.unused; }
static uint64_t of_total(const sw_plan *p) { return p->total; }

static const struct {
    const char *label, *key;
    uint64_t (*bytes)(const sw_plan *p);
} rows[] = {
    { "parameters", "params", of_params },        { "statistics", "buffers", of_buffers },
    { "optimizer state", "state", of_state },     { "inputs, constants", "inputs", of_inputs },
    { "arena", "arena", of_arena },               { "  activations", "activations", of_activations },
    { "  gradients", "gradients", of_gradients }, { "  workspace", "workspace", of_peak_workspace },
    { "  unused", "unused", of_unused },
    { "total", "total", of_total },
};

enum { LABEL = 24, WIDTH = 24 };

static void put_cell(const char *s)
{
    cli_pad(stdout, s, WIDTH, false);
}

static void put_label(const char *s)
{
    cli_pad(stdout, s, LABEL, false);
}

/* A line; on a terminal, as many as it takes. */
static void put_wrapped(const char *line)
{
    if (cli.tty_out) cli_wrap(stdout, 0, 4, cli_columns(), line);
    else fputs(line, stdout);
    fputc('\n', stdout);
}

static void put_title(const sw_config *c, const column *columns, int n)
{
    const column *first = NULL;
    for (int i = n - 1; i >= 0; i--) {
        if (columns[i].status == SW_OK) first = &columns[i];
    }
    if (first == NULL) return;
    const sw_device_plan *const p = &first->p;
    cli_text a;
    char line[1024], shape[160] = "", classes[40] = "";
    size_t used = 0;
    for (int i = 0; i < p->sample_rank && used < sizeof shape - 24; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", i > 0 ? "x" : "", (long long)p->sample_shape[i]);
    if (p->tokens) snprintf(shape + used, sizeof shape - used, " tokens");
    if (p->classes > 0) snprintf(classes, sizeof classes, " to %lld classes", (long long)p->classes);
    const char *model = sw_config_text(c, SW_KEY_MODEL);
    if (sw_model_layers_of(model) != NULL) model = "layers";
    snprintf(line, sizeof line, "%.400s: %s parameters, %s%s; a step on %lld samples, %s, %s", model,
             cli_count(a, p->parameters), shape, classes, (long long)p->batch, sw_config_text(c, SW_KEY_PRECISION),
             sw_config_text(c, SW_KEY_OPTIMIZER));
    put_wrapped(line);
}

static void put_fits(const column *columns, int n)
{
    cli_text a, b;
    char cell[128];
    put_label("fits");
    for (int i = 0; i < n; i++) {
        const sw_device_plan *const p = &columns[i].p;
        snprintf(cell, sizeof cell, "%s, of %s", p->fits ? "yes" : "NO", cli_bytes(a, (double)p->device.memory_free));
        put_cell(columns[i].status == SW_OK ? cell : "-");
    }
    fputc('\n', stdout);
    put_label("largest batch");
    for (int i = 0; i < n; i++) {
        const sw_device_plan *const p = &columns[i].p;
        const bool whole = p->count > 0 && p->largest_batch == p->count;
        snprintf(cell, sizeof cell, "%s%s", p->largest_batch > 0 ? cli_count(b, p->largest_batch) : "none",
                 whole ? ", all data" : "");
        put_cell(columns[i].status == SW_OK ? cell : "-");
    }
    fputc('\n', stdout);
}

/* 214 GFLOP, 11.0 FLOP */
static const char *operations(cli_text b, double flops)
{
    cli_text a;
    cli_si(a, flops);
    snprintf(b, sizeof(cli_text), "%.20s%sFLOP", a, a[strcspn(a, "kMGTP")] == '\0' ? " " : "");
    return b;
}

static void put_work(const column *columns, int n)
{
    cli_text a;
    char cell[128];
    put_label("operations a step");
    for (int i = 0; i < n; i++) {
        put_cell(columns[i].status == SW_OK ? operations(a, columns[i].p.plan.flops) : "-");
    }
    fputc('\n', stdout);
    put_label("launches a step");
    for (int i = 0; i < n; i++) {
        snprintf(cell, sizeof cell, "%d", columns[i].p.plan.launches);
        put_cell(columns[i].status == SW_OK ? cell : "-");
    }
    fputc('\n', stdout);
}

/* One device beside the other. */
static void put_columns(const column *columns, int n)
{
    put_label("");
    fputs(cli_paint(stdout, CLI_BOLD), stdout);
    for (int i = 0; i < n; i++) put_cell(columns[i].id);
    printf("%s\n", cli_paint(stdout, CLI_PLAIN));
    for (size_t r = 0; r < CLI_COUNT(rows); r++) {
        put_label(rows[r].label);
        for (int i = 0; i < n; i++) {
            cli_text b;
            put_cell(columns[i].status == SW_OK ? cli_bytes(b, (double)rows[r].bytes(&columns[i].p.plan)) : "-");
        }
        fputc('\n', stdout);
    }
    put_fits(columns, n);
    put_work(columns, n);
}

/* What is done so that it fits; where the arena is fullest, and with what. */
static void put_peak(const column *d)
{
    const sw_plan *const p = &d->p.plan;
    cli_text a;
    char line[1024];
    if (d->status != SW_OK) return;
    if (p->again.launches > 0) {
        snprintf(line, sizeof line, "%.60s: %d launch%s recomputed, %d of them %s: %.1f %% more operations, some %.0f %% more "
                 "time; without, %s", d->id, p->again.launches, p->again.launches == 1 ? "" : "es", p->again.products,
                 p->again.products == 1 ? "a product" : "products", 100 * p->again.flops / (p->flops - p->again.flops),
                 100 * p->again.slower, cli_bytes(a, (double)p->again.without));
        put_wrapped(line);
    }
    if (d->p.micro_batch < d->p.batch)
        printf("%s: in micro-batches of %lld; batch norm sees those\n", d->id, (long long)d->p.micro_batch);
    if (p->peak.n_largest == 0) return;
    int n = snprintf(line, sizeof line, "%s: fullest at launch %d of %d, %s:", d->id, p->peak.launch + 1, p->launches,
                     p->peak.name);
    for (int i = 0; i < p->peak.n_largest && i < 5 && n < (int)sizeof line; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s %s %s (%s)", i > 0 ? "," : "",
                      cli_bytes(a, (double)p->peak.largest[i].bytes), p->peak.largest[i].name, p->peak.largest[i].kind);
    put_wrapped(line);
}

/* What a device has no arithmetic for. */
static void put_notes(const sw_config *c, const column *columns, int n)
{
    sw_precision precision = SW_PRECISION_F32;
    char text[256];
    sw_precision_find(sw_config_text(c, SW_KEY_PRECISION), &precision);
    for (int i = 0; i < n; i++) {
        if (columns[i].status != SW_OK) continue;
        sw_precision_note(precision, &columns[i].p.plan, &columns[i].p.device, text, sizeof text);
        if (*text != '\0') printf("note: %s: %s\n", columns[i].id, text);
    }
}

/* As many beside each other as the terminal is wide. */
static void put_all_columns(const column *columns, int n)
{
    const int room = cli.tty_out ? (cli_columns() - LABEL) / WIDTH : n, each = room > 1 ? room : 1;
    for (int i = 0; i < n; i += each) {
        if (i > 0) fputc('\n', stdout);
        put_columns(columns + i, n - i < each ? n - i : each);
    }
}

/* GPUs to choose from, one a line. */
static void put_gpus(const column *columns, int n)
{
    printf("%s%-28s %10s  %-4s  %11s  %11s  %9s  %6s%s\n", cli_paint(stdout, CLI_BOLD), "GPU", "MEMORY", "FITS", "STEP TAKES",
           "MAX BATCH", "PRICE", "YEAR", cli_paint(stdout, CLI_PLAIN));
    for (int i = 0; i < n; i++) {
        const column *const g = &columns[i];
        cli_text a, b, d, price = "-";
        if (g->gpu.price > 0) snprintf(price, sizeof price, "$%.0f", g->gpu.price);
        if (g->status != SW_OK) continue;
        printf("%-28s %10s  %-4s  %11s  %11s  %9s  %6d\n", g->id, cli_bytes(a, (double)g->gpu.model.memory),
               g->p.fits ? "yes" : "NO", cli_bytes(b, (double)g->p.plan.total),
               g->p.largest_batch > 0 ? cli_count(d, g->p.largest_batch) : "none", price, g->gpu.year);
    }
    puts("Memory as the maker states it: driver and screen take some of it. Price at launch.");
    if (n > FEW_GPUS) puts("Planned with swoop's own kernels; of up to four GPUs cuDNN is asked for its engines, if it is installed.");
}

static void put_launch(void *context, const sw_plan_launch *l)
{
    const char *const id = context;
    cli_text a, b;
    if (cli.json) {
        cli_json_open(stdout, NULL, '{');
        cli_json_text(stdout, "device", id);
        cli_json_text(stdout, "kind", l->kind);
        cli_json_text(stdout, "name", l->name);
        cli_json_text(stdout, "note", l->note);
        cli_json_number(stdout, "flops", l->flops);
        cli_json_number(stdout, "traffic", l->traffic);
        cli_json_int(stdout, "workspace", (int64_t)l->workspace);
        cli_json_close(stdout, '}');
        return;
    }
    cli_pad(stdout, l->kind, 16, false);
    cli_pad(stdout, l->name, 36, false);
    printf("%12s %10s  %s", operations(a, l->flops), cli_bytes(b, (double)l->workspace), l->note);
    fputc('\n', stdout);
}

/* ---- for scripts ------------------------------------------------------------------------------------------------- */

static void put_json_peak(const sw_device_plan *d)
{
    const sw_plan *const p = &d->plan;
    cli_json_open(stdout, "peak", '{');
    cli_json_int(stdout, "launch", p->peak.launch);
    cli_json_text(stdout, "name", p->peak.name);
    cli_json_open(stdout, "largest", '[');
    for (int i = 0; i < p->peak.n_largest; i++) {
        cli_json_open(stdout, NULL, '{');
        cli_json_text(stdout, "name", p->peak.largest[i].name);
        cli_json_text(stdout, "kind", p->peak.largest[i].kind);
        cli_json_int(stdout, "bytes", (int64_t)p->peak.largest[i].bytes);
        cli_json_close(stdout, '}');
    }
    cli_json_close(stdout, ']');
    cli_json_close(stdout, '}');
    cli_json_int(stdout, "micro_batch", d->micro_batch);
    cli_json_open(stdout, "recomputed", '{');
    cli_json_int(stdout, "launches", p->again.launches);
    cli_json_int(stdout, "products", p->again.products);
    cli_json_number(stdout, "flops", p->again.flops);
    cli_json_number(stdout, "slower", p->again.slower);
    cli_json_int(stdout, "without", (int64_t)p->again.without);
    cli_json_close(stdout, '}');
}

static void put_json(const column *columns, int n)
{
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, "plans", '[');
    for (int i = 0; i < n; i++) {
        const column *const d = &columns[i];
        cli_json_open(stdout, NULL, '{');
        cli_json_text(stdout, "device", d->id);
        cli_json_text(stdout, "error", d->status == SW_OK ? NULL : d->why);
        if (d->status == SW_OK) {
            cli_json_text(stdout, "name", d->p.device.name);
            cli_json_int(stdout, "batch", d->p.batch);
            cli_json_int(stdout, "parameters", d->p.parameters);
            cli_json_open(stdout, "bytes", '{');
            for (size_t r = 0; r < CLI_COUNT(rows); r++)
                cli_json_int(stdout, rows[r].key, (int64_t)rows[r].bytes(&d->p.plan));
            cli_json_close(stdout, '}');
            put_json_peak(&d->p);
            cli_json_int(stdout, "free", (int64_t)d->p.device.memory_free);
            cli_json_bool(stdout, "fits", d->p.fits);
            cli_json_int(stdout, "largest_batch", d->p.largest_batch);
            cli_json_number(stdout, "flops", d->p.plan.flops);
            cli_json_int(stdout, "launches", d->p.plan.launches);
        }
        cli_json_close(stdout, '}');
    }
    cli_json_close(stdout, ']');
    cli_json_close(stdout, '}');
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

typedef struct wishes {
    const char *devices, *gpus, *shape, *config;
    bool ops, tokens;
} wishes;

/* Good if the step fits on one of them at least. */
static int verdict(const wishes *w, const column *columns, int n)
{
    int failed = -1;
    for (int i = 0; i < n; i++) {
        if (columns[i].status == SW_OK && columns[i].p.fits) return CLI_GOOD;
        if (columns[i].status != SW_OK && failed < 0) failed = i;
    }
    if (failed < 0) return cli_error(CLI_DEVICE, "the step fits on none of these devices");
    const char *const device = w->gpus != NULL ? NULL : columns[failed].id;
    return cli_error(cli_code(columns[failed].status, device), "%s", columns[failed].why);
}

static void plan_each(sw_config *c, const wishes *w, sw_plan_request *q, column *columns, int n)
{
    for (int i = 0; i < n; i++) {
        q->device = columns[i].id;
        q->own_kernels = n > FEW_GPUS && !w->ops;
        q->gpu = w->gpus != NULL ? &columns[i].gpu.model : NULL;
        q->launch = w->ops ? put_launch : NULL;
        q->context = columns[i].id;
        const bool titled = w->ops && !cli.json;
        if (titled) printf("%s%s%s\n", cli_paint(stdout, CLI_BOLD), columns[i].id, cli_paint(stdout, CLI_PLAIN));
        columns[i].status = sw_run_plan(c, q, &columns[i].p);
        if (columns[i].status != SW_OK) snprintf(columns[i].why, sizeof columns[i].why, "%s", sw_error());
        if (titled) fputc('\n', stdout);
    }
}

static int plan(sw_config *c, void *context)
{
    const wishes *const w = context;
    static column columns[MAX_GPUS];
    const char *const shape = w->shape;
    sw_plan_request q = { .tokens = w->tokens };
    if (shape != NULL && !read_shape(shape, &q))
        return cli_error(CLI_USAGE, "--shape '%s' is no shape: 3x224x224 has three axes, without the batch; 128 is so many tokens "
                                    "to a model that reads them", shape);
    if (w->tokens && shape == NULL) return cli_error(CLI_USAGE, "--tokens says what samples of a --shape are: give it, such as 128");
    if (shape == NULL && *sw_config_text(c, SW_KEY_DATA) == '\0')
        return cli_error(CLI_USAGE, "a plan of what? --data fashion-mnist, or yours, or --shape 3x224x224 --num-classes 1000\n"
                                    "  swoop plan --help has examples");
    if (w->devices != NULL && w->gpus != NULL) return cli_error(CLI_USAGE, "--devices are in this machine, --gpus are not: give one");
    const char *const one = sw_config_is_auto(c, SW_KEY_DEVICE) ? NULL : sw_config_text(c, SW_KEY_DEVICE);
    const int n = w->gpus != NULL ? list_gpus(w->gpus, columns) : list_devices(w->devices != NULL ? w->devices : one, columns);
    if (n < 0) return CLI_USAGE;
    plan_each(c, w, &q, columns, n);
    int good = 0;
    for (int i = 0; i < n; i++) good += columns[i].status == SW_OK;
    if (cli.json) {
        put_json(columns, n);
    } else if (!cli.quiet && good > 0) {
        put_title(c, columns, n);
        if (w->gpus != NULL) put_gpus(columns, n);
        else put_all_columns(columns, n);
        for (int i = 0; i < n && w->gpus == NULL; i++) put_peak(&columns[i]);
        if (w->gpus == NULL) put_notes(c, columns, n);
    }
    for (int i = 0; i < n && !cli.json && good > 0; i++) {
        if (columns[i].status != SW_OK) fprintf(stderr, "%s: %s\n", columns[i].id, columns[i].why);
    }
    return verdict(w, columns, n);
}

static int run(const cli_command *self, int argc, char **argv)
{
    static wishes w;
    static const cli_option options[] = {
        { "devices", "LIST", "devices to plan for, with commas: cpu,cuda:0 [all that work]", CLI_TEXT, &w.devices, 0, 0 },
        { "gpus", "LIST", "GPUs that one might buy or rent instead: 4090,h100; all: the catalogue", CLI_TEXT, &w.gpus, 0, 0 },
        { "gpu", "NAME", "the same for one", CLI_TEXT, &w.gpus, 0, 0 },
        { "shape", "AxBxC", "samples of this shape instead of data, with --num-classes", CLI_TEXT, &w.shape, 0, 0 },
        { "tokens", NULL, "samples of the shape are tokens; so they are anyhow to gpt, lstm, gru, transformer", CLI_FLAG, &w.tokens, 0, 0 },
        { "ops", NULL, "also list every launch of the step: how it is done, its workspace", CLI_FLAG, &w.ops, 0, 0 },
        { "config", "FILE", "run file (YAML, the same keys); the same as giving it first", CLI_TEXT, &w.config, 0, 0 },
        { NULL, NULL, NULL, CLI_FLAG, NULL, 0, 0 },
    };
    return cli_with_config(self, options, &w.config, argc, argv, plan, &w);
}

const cli_command cli_plan = {
    .name = "plan",
    .about = "does a model fit, what takes the room, the largest batch",
    .usage = "[RUN.yaml] [--devices LIST] [--KEY VALUE ...]",
    .text = "Plans one training step on each device and prints where its memory goes, to the byte, before anything is "
            "allocated there; and the largest batch that fits into what is free (found to within a sixty-fourth). With "
            "--memory: the largest that fits into that at once, recomputed if need be, and not in micro-batches. Exit status "
            "3: it fits nowhere.",
    .examples = "swoop plan --model lenet --data fashion-mnist\n"
                "swoop plan run.yaml --devices cpu,opencl:0\n"
                "swoop plan --model resnet18 --shape 3x32x32 --num-classes 10 --batch-size 512\n"
                "swoop plan --model lenet --data fashion-mnist --device cpu --ops\n"
                "swoop plan --model gpt:124m --shape 1024 --num-classes 50257  # tokens\n"
                "swoop plan run.yaml --memory 8G              # what is recomputed to fit\n"
                "swoop plan run.yaml --gpus 4060,4090,h100    # not in this machine\n"
                "swoop plan run.yaml --json | jq '.plans[].largest_batch'",
    .run = run,
};
