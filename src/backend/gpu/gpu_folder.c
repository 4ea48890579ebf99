/* gpu_folder.c: a program's kernels written to a folder, for compilers that run elsewhere (FPGA, cross compilers), and
 * taken from one. HASH.cl (or .cu) is a program's text, HASH.bin its binary, kernels.txt says which kernel is where,
 * manifest.json (for people and their tools) what launches what.
 * Called by gpu_build.c. Docs: docs/kernel-folder.md. */
#include "backend/gpu/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *suffix(const sw__gpu *g)
{
    return g->target.lang == SW_LANG_CUDA ? "cu" : "cl";
}

static char *path_of(const char *folder, uint64_t program, const char *kind)
{
    return sw__asprintf("%s/%016llx.%s", folder, (unsigned long long)program, kind);
}

/* ---- writing --------------------------------------------------------------------------------------------------------- */

/* Under a name of its own first: a reader never sees half a file. */
static sw_status write_file(const char *path, const void *bytes, size_t n)
{
    char *const temporary = sw__asprintf("%s.%ld", path, (long)getpid());
    if (temporary == NULL) return sw__no_memory(strlen(path), "a file name");
    FILE *const f = fopen(temporary, "wbe");
    bool good = f != NULL && fwrite(bytes, 1, n, f) == n;
    if (f != NULL && fclose(f) != 0) good = false;
    if (good && rename(temporary, path) != 0) good = false;
    const int why = errno;
    if (!good && f != NULL) unlink(temporary);
    sw__free(temporary);
    return good ? SW_OK : sw__fail(SW_ERR_IO, "%s: cannot be written: %s", path, strerror(why));
}

static sw_status write_text(const sw__gpu *g, const char *name, sw__text *t)
{
    char *const path = sw__asprintf("%s/%s", g->write_to, name);
    sw_status st = path == NULL || t->failed ? sw__no_memory(t->len, name) : SW_OK;
    if (st == SW_OK) st = write_file(path, t->s, t->len);
    sw__free(path);
    sw__text_free(t);
    return st;
}

static void put_quoted(sw__text *t, const char *s)
{
    sw__text_add(t, "\"");
    for (; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\') sw__text_add(t, "\\%c", *s);
        else if ((unsigned char)*s < 32) sw__text_add(t, "\\u%04x", (unsigned)(unsigned char)*s);
        else sw__text_put(t, s, 1);
    }
    sw__text_add(t, "\"");
}

static void put_argument(sw__text *t, const sw__gpu_arg *a)
{
    switch ((sw__gpu_arg_kind)a->kind) {
    case SW_GPU_BUFFER: sw__text_add(t, "{\"buffer\": %d}", a->bind); break;
    case SW_GPU_I32: sw__text_add(t, "{\"i32\": %lld}", (long long)a->i); break;
    case SW_GPU_I64: sw__text_add(t, "{\"i64\": %lld}", (long long)a->i); break;
    case SW_GPU_ERRORS: sw__text_add(t, "\"errors\""); break;
    }
}

static void put_launch(sw__text *t, const sw__gpu_plan *p, const sw__gpu_launch *l)
{
    sw__text_add(t, "    {\"for\": ");
    put_quoted(t, p->name);
    sw__text_add(t, ", \"program\": \"%016llx.%s\", \"kernel\": ", (unsigned long long)sw__gpu_kernel_program(l->kernel),
                 suffix(p->gpu));
    put_quoted(t, sw__gpu_kernel_entry(l->kernel));
    sw__text_add(t, ", \"groups\": [%u, %u, %u], \"local\": [%u, %u, %u], \"arguments\": [", l->groups[0], l->groups[1],
                 l->groups[2], l->local[0], l->local[1], l->local[2]);
    for (int i = 0; i < l->n_args; i++) {
        if (i > 0) sw__text_add(t, ", ");
        put_argument(t, &l->arg[i]);
    }
    sw__text_add(t, "]}");
}

/* Of all plans that live, in the order in which they were made. */
static sw_status write_manifest(const sw__gpu *g)
{
    sw__text t = {0};
    sw__text_add(&t, "{\n  \"device\": ");
    put_quoted(&t, g->key);
    sw__text_add(&t, ",\n  \"launches\": [\n");
    int n = 0;
    const sw__gpu_plan *last = NULL;
    for (;;) { /* the list is newest first, and short */
        const sw__gpu_plan *p = g->plans;
        while (p != NULL && p->next != last) p = p->next;
        if (p == NULL) break;
        for (int i = 0; i < p->n_launches; i++) {
            if (n++ > 0) sw__text_add(&t, ",\n");
            put_launch(&t, p, &p->launch[i]);
        }
        last = p;
    }
    sw__text_add(&t, "\n  ]\n}\n");
    return write_text(g, "manifest.json", &t);
}

/* In the order of asking. */
static sw_status write_index(const sw__gpu *g)
{
    sw__text t = {0};
    sw__text_add(&t, "# kernel, hash of its text, program that holds it\n");
    sw__gpu_index(g, &t);
    return write_text(g, "kernels.txt", &t);
}

sw_status sw__gpu_folder_describe(sw__gpu *g)
{
    SW_TRY(write_index(g));
    return write_manifest(g);
}

sw_status sw__gpu_folder_write(sw__gpu *g, uint64_t program, const char *text, void *module)
{
    void *bytes = NULL;
    size_t n = 0;
    if (mkdir(g->write_to, 0777) != 0 && errno != EEXIST)
        return sw__fail(SW_ERR_IO, "%s: cannot be made: %s", g->write_to, strerror(errno));
    char *const source = path_of(g->write_to, program, suffix(g)),
         *const binary = path_of(g->write_to, program, "bin");
    sw_status st = source == NULL || binary == NULL ? sw__no_memory(strlen(text), "a file name") : SW_OK;
    if (st == SW_OK) st = write_file(source, text, strlen(text));
    if (st == SW_OK && g->driver->binary(g->dev, module, &bytes, &n) == SW_OK) st = write_file(binary, bytes, n);
    sw__free(bytes);
    sw__free(source);
    sw__free(binary);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

static sw_status read_file(const char *path, char **bytes, size_t *n)
{
    FILE *const f = fopen(path, "rbe");
    if (f == NULL) return sw__fail(SW_ERR_IO, "%s: %s", path, strerror(errno));
    struct stat s;
    sw_status st = fstat(fileno(f), &s) == 0 && S_ISREG(s.st_mode) && s.st_size >= 0 && s.st_size < (1 << 30)
                       ? SW_OK
                       : sw__fail(SW_ERR_IO, "%s: is no file of kernels", path);
    char *const to = st == SW_OK ? sw__malloc((size_t)s.st_size + 1) : NULL;
    if (st == SW_OK && to == NULL) st = sw__no_memory((size_t)s.st_size, path);
    if (st == SW_OK && fread(to, 1, (size_t)s.st_size, f) != (size_t)s.st_size)
        st = sw__fail(SW_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    fclose(f);
    if (st != SW_OK) {
        sw__free(to);
        return st;
    }
    to[s.st_size] = '\0';
    *bytes = to;
    *n = (size_t)s.st_size;
    return SW_OK;
}

/* kernels.txt: a line for each kernel: its entry, the hash of its text, the program that holds it. */
sw_status sw__gpu_folder_find(sw__gpu *g, const char *entry, uint64_t text, uint64_t *program)
{
    char *bytes = NULL, *const path = sw__asprintf("%s/kernels.txt", g->read_from), line[160];
    size_t n = 0;
    if (path == NULL) return sw__no_memory(64, "a file name");
    sw_status st = read_file(path, &bytes, &n);
    sw__free(path);
    SW_TRY(st);
    const int length = snprintf(line, sizeof line, "%.100s %016llx ", entry, (unsigned long long)text);
    const char *at = bytes;
    while ((at = strstr(at, line)) != NULL && at != bytes && at[-1] != '\n') at++;
    if (at != NULL) *program = strtoull(at + length, NULL, 16);
    sw__free(bytes);
    if (at != NULL) return SW_OK;
    return sw__fail(SW_ERR_DATA, "%s has no kernel %s: it was written for another model, batch size, device or version of swoop",
                    g->read_from, entry);
}

/* The binary, or else the text, which may have been edited. */
sw_status sw__gpu_folder_load(sw__gpu *g, uint64_t program, void **module)
{
    char *bytes = NULL;
    size_t n = 0;
    char *const source = path_of(g->read_from, program, suffix(g)), *const binary = path_of(g->read_from, program, "bin");
    sw_status st = source == NULL || binary == NULL ? sw__no_memory(64, "a file name") : SW_OK;
    const bool compiled = st == SW_OK && access(binary, R_OK) == 0;
    const char *const path = compiled ? binary : source;
    if (st == SW_OK) st = read_file(path, &bytes, &n);
    if (st == SW_OK) {
        st = compiled ? g->driver->load(g->dev, bytes, n, module) : g->driver->compile(g->dev, bytes, module);
        if (st != SW_OK) sw__prefix(st, "%s", path);
    }
    sw__free(bytes);
    sw__free(source);
    sw__free(binary);
    return st;
}
