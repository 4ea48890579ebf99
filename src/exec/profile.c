/* profile.c: what each launch cost: as a table, as JSON, and as a trace for ui.perfetto.dev.
 * Reads what program.c measured when the program was compiled with .profile. */
#include "exec/exec.h"
#include <stdlib.h>

static const char *note_of(const sw_program *p, const sw__launch *l)
{
    return l->is_op && p->device->backend->op_note ? p->device->backend->op_note(l->built) : "";
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

static double total_seconds(const sw_program *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) sum += p->launches[i].seconds;
    return sum;
}

static void table_line(const sw_program *p, const sw__launch *l, double total, sw__text *t)
{
    const double mean = l->seconds / (double)p->runs;
    sw__text_add(t, "%9.4f %5.1f %% %9.4f %9.1f %8.1f  %-14s %-36.36s %s\n", mean * 1e3,
                 total > 0 ? 100 * l->seconds / total : 0, l->least * 1e3, mean > 0 ? l->flops / mean / 1e9 : 0,
                 mean > 0 ? l->bytes / mean / 1e9 : 0, l->kind, l->name, note_of(p, l));
}

static double bytes_of(const sw__io_slot *s)
{
    return (double)s->info.elements * (double)sw_dtype_size(s->stored);
}

/* Inputs, which are no part of a run: on the host's clock, what it takes to have them on the device. */
static void upload_lines(const sw_program *p, sw__text *t)
{
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        const sw__io_slot *s = &p->inputs[i];
        const double mean = s->sets ? s->seconds / (double)s->sets : 0;
        if (mean <= 0) continue;
        sw__text_add(t, "%9.4f %7s %9.4f %9s %8.1f  %-14s %s\n", mean * 1e3, "", s->least * 1e3, "", bytes_of(s) / mean / 1e9,
                     "upload", s->info.name);
    }
}

static sw_status print_table(const sw_program *p, sw__text *t)
{
    const sw__launch **r = NULL;
    SW_TRY(ranked(p, &r));
    const double total = total_seconds(p);
    sw__text_add(t, "%s: %lld runs, %.4f ms each, %u launches\n", p->device->info.id, (long long)p->runs,
                 total / (double)p->runs * 1e3, p->n_launches);
    sw__text_add(t, "%9s %7s %9s %9s %8s  %-14s %-36s %s\n", "mean ms", "share", "least ms", "GFLOP/s", "GB/s", "kind",
                 "name", "implementation");
    for (uint32_t i = 0; i < p->n_launches; i++) table_line(p, r[i], total, t);
    upload_lines(p, t);
    sw__free(r);
    return SW_OK;
}

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

static void print_json(const sw_program *p, sw__text *t)
{
    sw__text_add(t, "{\"device\": \"%s\", \"runs\": %lld, \"seconds\": %.9f, \"launches\": [", p->device->info.id,
                 (long long)p->runs, total_seconds(p));
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const sw__launch *l = &p->launches[i];
        sw__text_add(t, "%s\n  {\"name\": ", i ? "," : "");
        put_string(t, l->name);
        sw__text_add(t, ", \"kind\": \"%s\", \"seconds\": %.9f, \"least\": %.9f, \"flops\": %.0f, \"bytes\": %.0f, "
                     "\"implementation\": ", l->kind, l->seconds, l->least, l->flops, l->bytes);
        put_string(t, note_of(p, l));
        sw__text_add(t, "}");
    }
    sw__text_add(t, "\n], \"uploads\": [");
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        const sw__io_slot *s = &p->inputs[i];
        sw__text_add(t, "%s\n  {\"name\": ", i ? "," : "");
        put_string(t, s->info.name);
        sw__text_add(t, ", \"times\": %lld, \"seconds\": %.9f, \"least\": %.9f, \"bytes\": %.0f}", (long long)s->sets,
                     s->seconds, s->least, bytes_of(s));
    }
    sw__text_add(t, "\n]}\n");
}

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
        print_json(p, &t);
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
