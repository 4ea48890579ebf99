/* hashes.c: a hash of every variable after some steps, as rows of a run folder's hashes.csv: see hashes.h. */
#include "train/hashes.h"
#include "io/atomic.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define FIRST_STEPS 10

sw_status sw__hashes_header(const sw_params *p, sw__text *out)
{
    sw__text_add(out, "step");
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        SW_TRY(sw_params_info(p, i, &v));
        if (v.kind != SW_VAR_STATE) sw__text_add(out, ",%s", v.name);
    }
    sw__text_add(out, ",(optimizer)");
    return out->failed ? sw__no_memory(out->capacity, "hashes") : SW_OK;
}

static sw_status hash_variable(sw_params *p, int i, const sw_var_info *v, uint64_t seed, uint64_t *hash)
{
    const size_t bytes = (size_t)v->elements * sw_dtype_size(v->dtype);
    void *const data = sw__malloc(SW_MAX(bytes, (size_t)1));
    if (!data) return sw__no_memory(bytes, "a variable's hash");
    const sw_status st = sw_params_get(p, i, v->dtype, data, v->elements);
    if (st == SW_OK) *hash = XXH3_64bits_withSeed(data, bytes, seed);
    sw__free(data);
    return st;
}

sw_status sw__hashes_row(sw_params *p, sw__text *out)
{
    uint64_t state = 0;
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        uint64_t hash = 0;
        SW_TRY(sw_params_info(p, i, &v));
        const bool own = v.kind != SW_VAR_STATE;
        SW_TRY(hash_variable(p, i, &v, own ? 0 : state, &hash));
        if (own) sw__text_add(out, "%s%016llx", out->len ? "," : "", (unsigned long long)hash);
        else state = hash;
    }
    sw__text_add(out, ",%016llx", (unsigned long long)state);
    return out->failed ? sw__no_memory(out->capacity, "hashes") : SW_OK;
}

/* What stays of an earlier part of the run: the rows before `step`, if they are of the same variables. */
static void keep_earlier(const char *path, int64_t step, sw__text *text)
{
    FILE *const in = fopen(path, "r");
    char *line = NULL;
    size_t size = 0;
    bool first = true;
    if (!in) return;
    for (ssize_t n; (n = getline(&line, &size, in)) > 0; first = false) {
        const bool header = first && (size_t)n == text->len && strncmp(line, text->s, text->len) == 0;
        if (first && !header) break;
        if (!first && (line[n - 1] != '\n' || strtoll(line, NULL, 10) >= step)) break;
        if (!first) sw__text_put(text, line, (size_t)n);
    }
    free(line); /* getline's own allocation */
    fclose(in);
}

static sw_status open_file(sw__hashes *h, const sw_params *p, int64_t step)
{
    sw__text text = {0};
    sw_status st = sw__hashes_header(p, &text);
    sw__text_add(&text, "\n");
    if (st == SW_OK) keep_earlier(h->path, step, &text);
    if (st == SW_OK && text.failed) st = sw__no_memory(text.capacity, "hashes");
    if (st == SW_OK) st = sw__atomic_write(h->path, text.s, text.len);
    sw__text_free(&text);
    SW_TRY(st);
    h->file = fopen(h->path, "a");
    return h->file ? SW_OK : sw__fail(SW_ERR_IO, "%s: %s", h->path, strerror(errno));
}

sw_status sw__hashes_event(sw__hashes *h, sw_params *p, const sw_event *e)
{
    if (e->kind != SW_EVENT_STEP) return SW_OK;
    if (e->step > FIRST_STEPS && e->step % h->every != 0 && e->epoch_step != e->epoch_steps) return SW_OK;
    if (!h->file) SW_TRY(open_file(h, p, e->step));
    sw__text row = {0};
    const sw_status st = sw__hashes_row(p, &row);
    const bool written = st == SW_OK && fprintf(h->file, "%lld,%s\n", (long long)e->step, row.s) > 0 && fflush(h->file) == 0;
    sw__text_free(&row);
    SW_TRY(st);
    return written ? SW_OK : sw__fail(SW_ERR_IO, "%s: a row cannot be written: %s", h->path, strerror(errno));
}

void sw__hashes_close(sw__hashes *h)
{
    if (h->file) fclose(h->file);
    h->file = NULL;
}
