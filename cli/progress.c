/* progress.c: drawing a run: notes, epoch lines, the redrawn line with its bar; the same as JSON.
 * Between train.c and the terminal. What does not fit the terminal's width is left out, least important first. */
#include "progress.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define REDRAW_SECONDS 0.1
#define LABEL_COLUMNS 8
#define MAX_PARTS 12
#define LEAST_BAR 8

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_init(progress *p, const sw_config *c)
{
    *p = (progress){ .valid = "val" };
    p->stops_on_nan = strcmp(sw_config_text(c, SW_KEY_ON_NAN), "stop") == 0;
    p->log_every = sw_config_int(c, SW_KEY_LOG_EVERY);
    if (strcmp(sw_config_text(c, SW_KEY_VAL), "test") == 0) p->valid = "test";
    const char *const monitor = sw_config_text(c, SW_KEY_MONITOR);
    if (strncmp(monitor, "val_", 4) == 0)
        snprintf(p->monitor_text, sizeof p->monitor_text, "%s_%s", p->valid, monitor + 4);
    else
        snprintf(p->monitor_text, sizeof p->monitor_text, "%s", monitor);
    p->monitor = p->monitor_text;
    setvbuf(stdout, NULL, _IOLBF, 0); /* into a file, too, a line is there when its epoch is over */
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

void progress_clear(progress *p)
{
    if (!p->drawn) return;
    fputs("\r\033[K", stderr);
    p->drawn = false;
}

void progress_line(const progress *p, const char *label, const char *text)
{
    (void)p;
    fputs(cli_paint(stdout, CLI_BOLD), stdout);
    cli_pad(stdout, label, LABEL_COLUMNS - 1, false);
    fprintf(stdout, "%s ", cli_paint(stdout, CLI_PLAIN));
    if (cli.tty_out)
        cli_wrap(stdout, LABEL_COLUMNS, LABEL_COLUMNS, cli_columns(), text);
    else
        cli_put(stdout, text);
    fputc('\n', stdout);
}

void progress_note(void *context, const char *label, const char *text)
{
    progress *const p = context;
    if (cli.quiet) return;
    progress_clear(p);
    if (!cli.json) {
        progress_line(p, label, text);
        return;
    }
    cli_json_note(label, text);
}

/* Parts of a line, each with a rank: the highest ranks go first when the line is too long. */
typedef struct parts {
    struct {
        char text[64];
        int rank;
    } part[MAX_PARTS];
    int n;
} parts;

static void add(parts *s, int rank, const char *fmt, ...) CLI_PRINTF(3, 4);
static void add(parts *s, int rank, const char *fmt, ...)
{
    va_list ap;
    if (s->n == MAX_PARTS) return;
    va_start(ap, fmt);
    vsnprintf(s->part[s->n].text, sizeof s->part[0].text, fmt, ap);
    va_end(ap);
    s->part[s->n++].rank = rank;
}

static int parts_width(const parts *s)
{
    int width = 0;
    for (int i = 0; i < s->n; i++) width += (int)cli_width(s->part[i].text) + (i > 0 ? 2 : 0);
    return width;
}

static void parts_fit(parts *s, int columns)
{
    while (parts_width(s) > columns) {
        int worst = 0;
        for (int i = 1; i < s->n; i++) {
            if (s->part[i].rank >= s->part[worst].rank) worst = i;
        }
        if (s->part[worst].rank == 0) return;
        memmove(&s->part[worst], &s->part[worst + 1], sizeof s->part[0] * (size_t)(s->n - worst - 1));
        s->n--;
    }
}

static void parts_put(const parts *s, FILE *f)
{
    for (int i = 0; i < s->n; i++) fprintf(f, "%s%s", i > 0 ? "  " : "", s->part[i].text);
}

/* "val_loss 0.2671"; an accuracy that is NaN is none at all. */
static void add_figure(parts *s, int rank, const char *a, const char *b, double x)
{
    const char *const join = *a != '\0' ? "_" : "";
    if (isnan(x) && strcmp(b, "acc") == 0) return;
    if (isnan(x))
        add(s, rank, "%s%s%s NaN", a, join, b);
    else
        add(s, rank, fabs(x) < 1000 ? "%s%s%s %.4f" : "%s%s%s %.4g", a, join, b, x);
}

static double memory_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? 1024.0 * (double)usage.ru_maxrss : (double)NAN;
}

/* ---- one line per epoch ------------------------------------------------------------------------------------------ */

static void add_where(parts *s, const sw_event *e)
{
    char total[24] = "";
    const int width = e->epochs > 0 ? snprintf(total, sizeof total, "%lld", (long long)e->epochs) : 0;
    add(s, 0, "epoch %*lld%s%s", width, (long long)e->epoch, width > 0 ? "/" : "", total);
}

static void epoch_text(const progress *p, const sw_event *e)
{
    parts s = { .n = 0 };
    cli_text b;
    add_where(&s, e);
    add_figure(&s, 0, "", "loss", e->loss);
    add_figure(&s, 1, "", "acc", e->accuracy);
    if (e->has_valid) {
        add_figure(&s, 0, p->valid, "loss", e->valid.loss);
        add_figure(&s, 0, p->valid, "acc", e->valid.accuracy);
    }
    char *const last = s.part[s.n - 1].text;
    strncat(last, e->best ? " *" : "  ", sizeof s.part[0].text - strlen(last) - 1);
    add(&s, 5, "lr %.1e", e->lr);
    add(&s, 2, "%s", cli_seconds(b, e->epoch_seconds));
    add(&s, 4, "%s samples/s", cli_si(b, e->samples_per_second));
    add(&s, 7, "input wait %.0f %%", 100 * e->input_wait);
    if (!isnan(memory_bytes())) add(&s, 6, "mem %s", cli_bytes(b, memory_bytes()));
    if (e->eta > 0) add(&s, 3, "eta %s", cli_seconds(b, e->eta));
    if (cli.tty_out) parts_fit(&s, cli_columns());
    parts_put(&s, stdout);
    fputc('\n', stdout);
}

static void event_json(const char *kind, const progress *p, const sw_event *e)
{
    cli_json_open(stdout, NULL, '{');
    cli_json_open(stdout, kind, '{');
    cli_json_int(stdout, "epoch", e->epoch);
    cli_json_int(stdout, "epochs", e->epochs);
    cli_json_int(stdout, "step", e->step);
    cli_json_int(stdout, "steps", e->steps);
    cli_json_number(stdout, "loss", e->loss);
    cli_json_number(stdout, "acc", e->accuracy);
    if (e->kind == SW_EVENT_EPOCH) {
        cli_json_number(stdout, "val_loss", e->has_valid ? e->valid.loss : (double)NAN);
        cli_json_number(stdout, "val_acc", e->has_valid ? e->valid.accuracy : (double)NAN);
        cli_json_text(stdout, "val_is", e->has_valid ? p->valid : NULL);
        cli_json_bool(stdout, "best", e->best);
        cli_json_int(stdout, "mem", isnan(memory_bytes()) ? 0 : (int64_t)memory_bytes());
    }
    cli_json_number(stdout, "lr", e->lr);
    cli_json_number(stdout, "seconds", e->seconds);
    cli_json_number(stdout, "epoch_seconds", e->epoch_seconds);
    cli_json_number(stdout, "samples_per_second", e->samples_per_second);
    cli_json_number(stdout, "input_wait", e->input_wait);
    cli_json_number(stdout, "eta", e->eta);
    cli_json_close(stdout, '}');
    cli_json_close(stdout, '}');
}

static void on_epoch(progress *p, const sw_event *e)
{
    if (e->best) p->best = *e;
    if (!e->has_valid && strncmp(p->monitor_text, p->valid, strlen(p->valid)) == 0) {
        p->monitor = strchr(p->monitor_text, '_') + 1; /* as the fit does: the training figure stands in */
    } else {
        p->monitor = p->monitor_text;
    }
    if (cli.quiet) return;
    progress_clear(p);
    if (cli.json)
        event_json("epoch", p, e);
    else
        epoch_text(p, e);
}

void progress_best(const progress *p, const sw_fit_result *r, char *out, size_t size)
{
    const sw_event *const e = &p->best;
    parts s = { .n = 0 };
    size_t n = 0;
    if (e->epoch != r->best_epoch || e->epoch == 0) { /* it was before this process went on */
        add_figure(&s, 0, "", p->monitor, r->best);
    } else if (e->has_valid) {
        add_figure(&s, 0, p->valid, "loss", e->valid.loss);
        add_figure(&s, 0, p->valid, "acc", e->valid.accuracy);
    } else {
        add_figure(&s, 0, "", "loss", e->loss);
        add_figure(&s, 0, "", "acc", e->accuracy);
    }
    *out = '\0';
    for (int i = 0; i < s.n && n < size; i++) {
        n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? ", " : "", s.part[i].text);
    }
}

/* ---- the redrawn line -------------------------------------------------------------------------------------------- */

static void put_bar(double share, int columns)
{
    const int full = (int)(share * columns);
    for (int i = 0; i < columns; i++) {
        if (i == full) fputs(cli_paint(stderr, CLI_DIM), stderr);
        fputs(i < full ? cli_sign("━", "#") : cli_sign("─", "-"), stderr);
    }
    fputs(cli_paint(stderr, CLI_PLAIN), stderr);
}

static void draw(progress *p, const sw_event *e)
{
    parts head = { .n = 0 }, tail = { .n = 0 };
    cli_text b;
    const bool whole = e->epochs == 0 && e->steps > 0; /* so many steps: the bar is all of them */
    const int64_t done = whole ? e->step : e->epoch_step, left = e->steps - (e->step - e->epoch_step);
    const bool last = e->steps > 0 && left < e->epoch_steps; /* the run ends within this epoch */
    const int64_t all = whole ? e->steps : last ? left : e->epoch_steps;
    const bool validating = done == all;
    const double share = all > 0 ? fmin(1, (double)done / (double)all) : 0;
    if (whole)
        add(&head, 0, "step %lld/%lld", (long long)e->step, (long long)e->steps);
    else
        add_where(&head, e);
    add(&tail, 0, "%3.0f %%", floor(100 * share));
    add_figure(&tail, 0, "", "loss", p->loss_sum / (double)p->epoch_steps);
    add_figure(&tail, 3, "", "acc", e->accuracy);
    add(&tail, 2, "%s samples/s", cli_si(b, e->samples_per_second));
    if (validating)
        add(&tail, 1, "validating");
    else if (!isnan(e->eta))
        add(&tail, 1, "eta %s", cli_seconds(b, e->eta));
    const int columns =
        cli_columns() - 3; /* room for ^C; and the last column moves the cursor on, on some terminals */
    parts_fit(&tail, columns - parts_width(&head) - 4 - LEAST_BAR);
    int bar = columns - parts_width(&head) - parts_width(&tail) - 4;
    if (bar > 30) bar = 30;
    fputc('\r', stderr);
    parts_put(&head, stderr);
    fputs("  ", stderr);
    if (bar >= LEAST_BAR) {
        put_bar(share, bar);
        fputs("  ", stderr);
    }
    parts_put(&tail, stderr);
    fputs("\033[K", stderr);
    fflush(stderr);
    p->drawn = true;
}

static void step_text(const sw_event *e)
{
    parts s = { .n = 0 };
    cli_text b;
    add(&s, 0, "step %lld", (long long)e->step);
    add_where(&s, e);
    add_figure(&s, 0, "", "loss", e->loss);
    add_figure(&s, 1, "", "acc", e->accuracy);
    add(&s, 3, "lr %.1e", e->lr);
    add(&s, 2, "%s samples/s", cli_si(b, e->samples_per_second));
    if (cli.tty_err) parts_fit(&s, cli_columns());
    parts_put(&s, stderr);
    fputc('\n', stderr);
}

static void on_step(progress *p, const sw_event *e)
{
    if (e->epoch != p->epoch) {
        p->epoch = e->epoch;
        p->epoch_steps = 0;
        p->loss_sum = 0;
    }
    p->epoch_steps++;
    p->loss_sum += e->loss;
    if (cli.quiet) return;
    if (cli.verbose > 0 && (e->step % p->log_every == 0 || e->step == 1)) {
        progress_clear(p);
        if (cli.json)
            event_json("step", p, e);
        else
            step_text(e);
    }
    if (!cli.tty_err) return;
    const double t = now();
    if (t - p->drawn_at < REDRAW_SECONDS &&
        !((e->epoch_step == e->epoch_steps || e->step == e->steps) && e->epoch_seconds > 1))
        return;
    p->drawn_at = t;
    draw(p, e);
}

/* ---- other events ------------------------------------------------------------------------------------------------ */

static void say(progress *p, const char *kind, cli_color color, const sw_event *e)
{
    const char *const message = e->message != NULL ? e->message : "";
    if (cli.quiet) return;
    progress_clear(p);
    if (cli.json) {
        cli_json_open(stdout, NULL, '{');
        cli_json_open(stdout, kind, '{');
        cli_json_int(stdout, "epoch", e->epoch);
        cli_json_int(stdout, "step", e->step);
        cli_json_text(stdout, "message", message);
        cli_json_close(stdout, '}');
        cli_json_close(stdout, '}');
        return;
    }
    fprintf(stderr, "%s%s%s ", cli_paint(stderr, color), kind, cli_paint(stderr, CLI_PLAIN));
    cli_put(stderr, message);
    fputc('\n', stderr);
}

/* Of many skipped steps, the 1st, 2nd, 4th, 8th … is shown. */
static void on_not_finite(progress *p, const sw_event *e)
{
    p->skipped++;
    if (!p->stops_on_nan && (p->skipped & (p->skipped - 1)) == 0) say(p, "skipped", CLI_YELLOW, e);
}

sw_status progress_event(void *context, const sw_event *e)
{
    progress *const p = context;
    switch (e->kind) {
    case SW_EVENT_STEP:
        on_step(p, e);
        break;
    case SW_EVENT_EPOCH:
        on_epoch(p, e);
        break;
    case SW_EVENT_NOT_FINITE:
        on_not_finite(p, e);
        break;
    case SW_EVENT_OVERFLOW:
        p->overflows++;
        if ((p->overflows & (p->overflows - 1)) == 0) say(p, "overflow", CLI_YELLOW, e);
        break;
    case SW_EVENT_STOPPED:
        say(p, "stopped", CLI_YELLOW, e);
        break;
    case SW_EVENT_CHECKPOINT:
        if (cli.verbose > 1) say(p, "checkpoint", CLI_DIM, e);
        break;
    }
    return SW_OK;
}
