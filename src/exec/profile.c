/* profile.c: what each launch cost, and its share of what the device can do: as a table, as JSON, as a trace for ui.perfetto.dev.
 * Reads what program.c measured when the program was compiled with .profile. */
#include "exec/exec.h"
#include <stdio.h>
#include <stdlib.h>

static const char *note_of(const sw_program *p, const sw__launch *l)
{
    return l->is_op && l->built && p->device->backend->op_note ? p->device->backend->op_note(l->built) : "";
}

static int by_seconds(const void *a, const void *b)
{
    const sw__launch *x = *(const sw__launch *const *)a, *y = *(const sw__launch *const *)b;
    return x->seconds < y->seconds ? 1 : x->seconds > y->seconds ? -1 : x < y ? -1 : x > y;
}

/* Launches, slowest first. */
static sw_status ranked(const sw_program *p, const sw__launch ***out)
{
    const sw__launch **r = sw__malloc(SW_MAX(p->n_launches, 1u) * sizeof *r);
    if (!r) return sw__no_memory(p->n_launches * sizeof *r, "the profile");
    for (uint32_t i = 0; i < p->n_launches; i++) r[i] = &p->launches[i];
    qsort(r, p->n_launches, sizeof *r, by_seconds);
    *out = r;
    return SW_OK;
}

/* All launches as if they were one: what the last line of the table says. */
static sw__launch sum_of(const sw_program *p)
{
    sw__launch sum = {.kind = "total", .name = "all launches"};
    for (uint32_t i = 0; i < p->n_launches; i++) {
        sum.seconds += p->launches[i].seconds;
        sum.flops += p->launches[i].flops;
        sum.bytes += p->launches[i].bytes;
    }
    return sum;
}

static double bytes_of(const sw__io_slot *s)
{
    return (double)s->info.elements * (double)sw_dtype_size(s->stored);
}

/* Seconds of everything that was measured: the runs, and setting the inputs. */
static double all_seconds(const sw_program *p)
{
    double sum = p->run_seconds;
    for (uint32_t i = 0; i < p->n_inputs; i++) sum += p->inputs[i].seconds;
    return sum;
}

/* The least time that the device could take by its peaks, of a launch's mean time: of arithmetic and memory what takes longer.
 * Above 1 where the data is in a cache, or the arithmetic in fewer bits than the peak's. */
static double share_of_peak(const sw_device_peak *peak, const sw__launch *l, double mean)
{
    const double least = SW_MAX(l->flops / peak->flops, l->bytes / peak->bandwidth);
    return mean > 0 ? least / mean : 0;
}

/* The peaks of the program's device; NULL where there are none, which the report then says: *why. */
static const sw_device_peak *peak_of(const sw_program *p, sw_device_peak *room, char why[160])
{
    if (sw_device_measure(p->device, room) == SW_OK) return room;
    snprintf(why, 160, "%s", sw_error());
    return NULL;
}

/* ---- the table: at most 100 columns -------------------------------------------------------------------------------- */

static void put_share(sw__text *t, double share)
{
    sw__text_add(t, " %5.1f %%", 100 * share);
}

static void table_line(const sw_program *p, const sw__launch *l, int64_t calls, const sw_device_peak *peak, sw__text *t)
{
    const double mean = l->seconds / (double)p->runs, all = all_seconds(p);
    sw__text_add(t, "%8.4f", mean * 1e3);
    put_share(t, all > 0 ? l->seconds / all : 0);
    sw__text_add(t, " %6lld %8.1f %6.1f ", (long long)calls, mean > 0 ? l->flops / mean / 1e9 : 0,
                 mean > 0 ? l->bytes / mean / 1e9 : 0);
    if (peak)
        sw__text_add(t, "%4.0f %%", 100 * share_of_peak(peak, l, mean));
    else
        sw__text_add(t, "%6s", "-");
    const char *note = note_of(p, l);
    sw__text_add(t, "  %-14.14s %-*.20s%s%.16s\n", l->kind, *note ? 20 : 0, l->name, *note ? " " : "", note);
}

/* Inputs, which are no part of a run: on the host's clock, what it takes to have them on the device. */
static void upload_lines(const sw_program *p, sw__text *t)
{
    const double all = all_seconds(p);
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        const sw__io_slot *s = &p->inputs[i];
        if (s->seconds <= 0) continue;
        sw__text_add(t, "%8.4f", s->seconds / (double)p->runs * 1e3);
        put_share(t, all > 0 ? s->seconds / all : 0);
        sw__text_add(t, " %6lld %8s %6.1f %6s  %-14s %.30s\n", (long long)s->sets, "",
                     bytes_of(s) * (double)s->sets / s->seconds / 1e9, "", "upload", s->info.name);
    }
}

static void between_line(const sw_program *p, const sw__launch *sum, sw__text *t)
{
    const double all = all_seconds(p), rest = SW_MAX(p->run_seconds - sum->seconds, 0);
    sw__text_add(t, "%8.4f", rest / (double)p->runs * 1e3);
    put_share(t, all > 0 ? rest / all : 0);
    sw__text_add(t, " %6s %8s %6s %6s  %s\n", "", "", "", "", "between launches: launching, waiting, clocks");
}

static void head_lines(const sw_program *p, const sw__launch *sum, const sw_device_peak *peak, const char *why, sw__text *t)
{
    const double all = all_seconds(p), runs = (double)p->runs;
    sw__text_add(t, "%s: %lld run%s, %.4f ms each, %u launches; %.1f %% of the time not in kernels\n", p->device->info.id,
                 (long long)p->runs, p->runs == 1 ? "" : "s", all / runs * 1e3, p->n_launches,
                 all > 0 ? 100 * (all - sum->seconds) / all : 0);
    if (peak)
        sw__text_add(t, "peak, measured: %.1f GFLOP/s, %.1f GB/s (%d thread%s);\n  %s; more than 100 %%: out of a cache\n",
                     peak->flops * 1e-9, peak->bandwidth * 1e-9, peak->threads, peak->threads == 1 ? "" : "s", peak->how);
    else
        sw__text_add(t, "peak: none to compare with: %.68s\n", why);
    sw__text_add(t, "%8s %7s %6s %8s %6s %6s  %-14s %-20s %s\n", "mean ms", "share", "calls", "GFLOP/s", "GB/s", "peak",
                 "kind", "name", "implementation");
}

static sw_status print_table(const sw_program *p, sw__text *t)
{
    const sw__launch **r = NULL;
    SW_TRY(ranked(p, &r));
    const sw__launch sum = sum_of(p);
    sw_device_peak room;
    char why[160] = "";
    const sw_device_peak *const peak = peak_of(p, &room, why);
    head_lines(p, &sum, peak, why, t);
    table_line(p, &sum, p->runs * p->n_launches, peak, t);
    for (uint32_t i = 0; i < p->n_launches; i++) table_line(p, r[i], p->runs, peak, t);
    upload_lines(p, t);
    between_line(p, &sum, t);
    sw__free(r);
    return SW_OK;
}

/* ---- JSON ----------------------------------------------------------------------------------------------------------- */

/* A JSON string; names may hold anything. */
static void put_string(sw__text *t, const char *s)
{
    sw__text_add(t, "\"");
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            sw__text_add(t, "\\%c", c);
        else if (c < 0x20)
            sw__text_add(t, "\\u%04x", c);
        else
            sw__text_put(t, s, 1);
    }
    sw__text_add(t, "\"");
}

static void json_launch(const sw_program *p, const sw__launch *l, const sw_device_peak *peak, sw__text *t)
{
    const double mean = l->seconds / (double)p->runs;
    sw__text_add(t, "\n  {\"name\": ");
    put_string(t, l->name);
    sw__text_add(t, ", \"kind\": \"%s\", \"calls\": %lld, \"seconds\": %.9f, \"least\": %.9f, \"flops\": %.0f, \"bytes\": %.0f, "
                 "\"gflops\": %.6g, \"gbs\": %.6g, ", l->kind, (long long)p->runs, l->seconds, l->least, l->flops, l->bytes,
                 mean > 0 ? l->flops / mean * 1e-9 : 0, mean > 0 ? l->bytes / mean * 1e-9 : 0);
    if (peak) sw__text_add(t, "\"of_peak\": %.6g, ", share_of_peak(peak, l, mean));
    sw__text_add(t, "\"implementation\": ");
    put_string(t, note_of(p, l));
    sw__text_add(t, "}");
}

static void json_head(const sw_program *p, const sw_device_peak *peak, const char *why, sw__text *t)
{
    const sw__launch sum = sum_of(p);
    const double all = all_seconds(p);
    sw__text_add(t, "{\"device\": \"%s\", \"runs\": %lld, \"seconds\": %.9f, \"kernel_seconds\": %.9f, \"not_in_kernels\": %.5f, "
                 "\"flops\": %.0f, \"bytes\": %.0f,\n\"peak\": ", p->device->info.id, (long long)p->runs, all, sum.seconds,
                 all > 0 ? (all - sum.seconds) / all : 0, sum.flops, sum.bytes);
    if (peak) {
        sw__text_add(t, "{\"flops\": %.0f, \"bandwidth\": %.0f, \"threads\": %d, \"how\": ", peak->flops, peak->bandwidth,
                     peak->threads);
        put_string(t, peak->how);
        sw__text_add(t, "}, ");
    } else {
        sw__text_add(t, "null, \"why_no_peak\": ");
        put_string(t, why);
        sw__text_add(t, ", ");
    }
}

static sw_status print_json(const sw_program *p, sw__text *t)
{
    const sw__launch **r = NULL;
    SW_TRY(ranked(p, &r));
    sw_device_peak room;
    char why[160] = "";
    const sw_device_peak *const peak = peak_of(p, &room, why);
    json_head(p, peak, why, t);
    sw__text_add(t, "\"launches\": [");
    for (uint32_t i = 0; i < p->n_launches; i++) {
        if (i > 0) sw__text_add(t, ",");
        json_launch(p, r[i], peak, t);
    }
    sw__free(r);
    sw__text_add(t, "\n], \"uploads\": [");
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        const sw__io_slot *s = &p->inputs[i];
        sw__text_add(t, "%s\n  {\"name\": ", i ? "," : "");
        put_string(t, s->info.name);
        sw__text_add(t, ", \"times\": %lld, \"seconds\": %.9f, \"least\": %.9f, \"bytes\": %.0f}", (long long)s->sets,
                     s->seconds, s->least, bytes_of(s));
    }
    sw__text_add(t, "\n]}\n");
    return SW_OK;
}

/* ---- the trace ------------------------------------------------------------------------------------------------------ */

/* On a thread of their own in the trace: since the first run that it shows. */
static void trace_uploads(const sw_program *p, double zero, sw__text *t)
{
    sw__text_add(t, ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": 2, \"args\": {\"name\": \"uploads\"}}");
    for (uint32_t i = 0; i < p->n_inputs; i++)
        for (int64_t k = 0; k < SW_MIN(p->inputs[i].sets, (int64_t)SW__TRACE_RUNS); k++) {
            const double *event = &p->set_trace[2 * ((size_t)i * SW__TRACE_RUNS + (size_t)k)];
            if (event[0] < zero) continue;
            sw__text_add(t, ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": 2, \"ts\": %.3f, \"dur\": %.3f, \"cat\": \"upload\", "
                         "\"name\": ", (event[0] - zero) * 1e6, event[1] * 1e6);
            put_string(t, p->inputs[i].info.name);
            sw__text_add(t, ", \"args\": {\"bytes\": %.0f}}", bytes_of(&p->inputs[i]));
        }
}

/* Chrome's trace event format; X events on one thread, which nest by construction. */
static void print_trace(const sw_program *p, sw__text *t)
{
    const int64_t kept = SW_MIN(p->runs, (int64_t)SW__TRACE_RUNS), first = p->runs - kept;
    const double zero = kept ? p->trace[2 * (size_t)(first % SW__TRACE_RUNS) * p->n_launches] : 0;
    sw__text_add(t, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
                 "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 1, \"args\": {\"name\": \"swoop %s\"}},\n"
                 "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": 1, \"args\": {\"name\": \"launches\"}}",
                 p->device->info.id);
    for (int64_t run = first; run < p->runs; run++)
        for (uint32_t i = 0; i < p->n_launches; i++) {
            const double *event = &p->trace[2 * ((size_t)(run % SW__TRACE_RUNS) * p->n_launches + i)];
            const sw__launch *l = &p->launches[i];
            sw__text_add(t, ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": %.3f, \"dur\": %.3f, \"cat\": \"%s\", "
                         "\"name\": ", (event[0] - zero) * 1e6, event[1] * 1e6, l->kind);
            put_string(t, l->name);
            sw__text_add(t, ", \"args\": {\"run\": %lld, \"GFLOP/s\": %.1f, \"GB/s\": %.1f}}", (long long)run,
                         event[1] > 0 ? l->flops / event[1] / 1e9 : 0, event[1] > 0 ? l->bytes / event[1] / 1e9 : 0);
        }
    if (p->n_inputs) trace_uploads(p, zero, t);
    sw__text_add(t, "\n]}\n");
}

sw_status sw_program_profile(const sw_program *p, sw_profile_format format, char **out)
{
    if (!p || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_program_profile: program or out is NULL");
    if (!p->profile || p->runs == 0)
        return sw__fail(SW_ERR_ARGUMENT, "nothing was measured: compile with .profile = true and run the program first");
    sw__text t = {0};
    sw_status st = SW_OK;
    if (format == SW_PROFILE_TABLE)
        st = print_table(p, &t);
    else if (format == SW_PROFILE_JSON)
        st = print_json(p, &t);
    else
        print_trace(p, &t);
    if (st == SW_OK && t.failed) st = sw__no_memory(t.capacity, "the profile");
    if (st != SW_OK) {
        sw__text_free(&t);
        return st;
    }
    *out = t.s;
    return SW_OK;
}
