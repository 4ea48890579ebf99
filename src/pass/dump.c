/* dump.c: SWOOP_DUMP: graphs before and after a pass, and the text form of a schedule with its memory plan.
 * Called by exec/compile.c around each pass. Output goes to stderr. */
#include "pass/pass.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool sw__dump_wanted(const char *pass)
{
    const char *s = getenv("SWOOP_DUMP");
    const size_t n = strlen(pass);
    while (s && *s) {
        const size_t len = strcspn(s, ",");
        if ((len == n && strncmp(s, pass, n) == 0) || (len == 3 && strncmp(s, "all", 3) == 0)) return true;
        s += len;
        if (*s == ',') s++;
    }
    return false;
}

void sw__dump_graph(const char *pass, const char *when, const sw_graph *g)
{
    char *text = NULL;
    if (!sw__dump_wanted(pass) || sw_graph_print(g, SW_PRINT_TEXT, &text) != SW_OK) return;
    fprintf(stderr, "---- %s %s ----\n%s", when, pass, text);
    sw_string_free(text);
}

static const char *const storage_name[] = {"arena", "input", "var", "group", "const", "kept"};

static void print_ref(const sw__ref *r, sw__text *out)
{
    sw__text_add(out, " s%d", (int)r->storage);
    if (r->offset) sw__text_add(out, "+%" PRId64, r->offset);
    sw__text_add(out, ":%s[", sw_dtype_name((sw_dtype)r->desc.dtype));
    for (int i = 0; i < r->desc.rank; i++) sw__text_add(out, "%s%" PRId64, i ? "," : "", r->desc.dim[i]);
    sw__text_add(out, "]");
    int64_t dense = 1;
    bool plain = true;
    for (int i = r->desc.rank - 1; i >= 0; i--) {
        if (r->desc.dim[i] != 1 && r->desc.stride[i] != dense) plain = false;
        dense *= r->desc.dim[i];
    }
    if (plain) return;
    sw__text_add(out, "{");
    for (int i = 0; i < r->desc.rank; i++) sw__text_add(out, "%s%" PRId64, i ? "," : "", r->desc.stride[i]);
    sw__text_add(out, "}");
}

static void print_step(const sw__schedule *s, uint32_t i, sw__text *out)
{
    const sw__step *t = &s->steps[i];
    const char *kind = t->kind == SW_STEP_KERNEL ? (t->copy ? "copy" : "kernel") : sw__op_table[t->op].name;
    sw__text_add(out, "%u %s%s%s '%s':", (unsigned)i, i < s->n_once ? "once " : "", t->kind == SW_STEP_PACK ? "pack " : "",
                 kind, t->name);
    for (int k = 0; k < t->n_in; k++) print_ref(&t->refs[k], out);
    sw__text_add(out, " ->");
    for (int k = t->n_in; k < t->n_in + t->n_out; k++) print_ref(&t->refs[k], out);
    if (t->workspace >= 0) sw__text_add(out, " workspace s%d", (int)t->workspace);
    sw__text_add(out, " (%.3g flop, %.3g B)%s\n", t->flops, t->bytes, t->again ? ", again" : "");
    if (t->kernel && !t->copy && sw__dump_wanted("fuse")) sw__kernel_print(t->kernel, out);
}

void sw__schedule_print(const sw__schedule *s, sw__text *out)
{
    for (uint32_t i = 0; i < s->n_steps; i++) print_step(s, i, out);
    for (uint32_t i = 0; i < s->n_storages; i++) {
        const sw__storage *t = &s->storages[i];
        if (t->kind == SW_STORE_ARENA && t->bytes == 0) continue;
        sw__text_add(out, "s%u %s", (unsigned)i, storage_name[t->kind]);
        if (t->kind != SW_STORE_ARENA && t->kind != SW_STORE_CONST && t->kind != SW_STORE_KEPT) sw__text_add(out, " %u", (unsigned)t->index);
        sw__text_add(out, " %zu bytes", t->bytes);
        if (t->kind == SW_STORE_ARENA && t->first >= 0) {
            sw__text_add(out, " at %zu, steps %d to %d", t->offset, (int)t->first, (int)t->last);
            if (t->reuse >= 0) sw__text_add(out, ", takes over s%d", (int)t->reuse);
        }
        sw__text_add(out, "\n");
    }
    sw__text_add(out, "arena %zu bytes\n", s->arena_bytes);
}

void sw__dump_schedule(const sw__schedule *s)
{
    sw__text text = {0};
    if (!sw__dump_wanted("schedule") && !sw__dump_wanted("plan") && !sw__dump_wanted("fuse")) return;
    sw__schedule_print(s, &text);
    if (text.s) fprintf(stderr, "---- schedule and memory plan ----\n%s", text.s);
    sw__text_free(&text);
}
