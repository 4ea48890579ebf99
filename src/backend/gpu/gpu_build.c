/* gpu_build.c: kernels that were asked for become one program: from the cache on disk, or compiled. A kernel is known by
 * its text, so that equal ones are compiled and kept once per device. See gpu.h; the cache is kernel/cache.h. */
#include "backend/gpu/gpu.h"

#include "kernel/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

typedef struct module { void *handle; int users; uint64_t text; } module; /* users: kernels; text: its hash */

struct sw__gpu_kernel {
    sw__gpu_kernel *next;
    uint64_t hash;           /* of text */
    char *text, *entry, *wanted_by;
    int users;
    bool alone, plain;       /* in a program of its own; without the prelude (a user's) */
    module *module;          /* NULL: asked for, not built */
    void *handle;
    sw_status failed;        /* what the last try to build it came to, and why: it keeps no other kernel from being */
    char *failure;           /* built, and is tried again by itself */
};

/* ---- asking -------------------------------------------------------------------------------------------------------- */

static void drop_module(sw__gpu *g, module *m)
{
    if (m == NULL || --m->users > 0) return;
    g->driver->unload(g->dev, m->handle);
    sw__free(m);
}

static void free_kernel(sw__gpu *g, sw__gpu_kernel *k)
{
    if (k->handle != NULL) g->driver->kernel_free(g->dev, k->handle);
    drop_module(g, k->module);
    sw__free(k->text);
    sw__free(k->entry);
    sw__free(k->wanted_by);
    sw__free(k->failure);
    sw__free(k);
}

static sw_status want(sw__gpu *g, const char *wanted_by, const char *text, const char *entry, bool alone, bool plain,
                      sw__gpu_kernel **out)
{
    const uint64_t hash = XXH3_64bits(text, strlen(text));
    for (sw__gpu_kernel *k = g->kernels; k != NULL; k = k->next) {
        if (k->hash != hash || strcmp(k->entry, entry) != 0 || strcmp(k->text, text) != 0) continue;
        if (k->alone != alone || k->plain != plain) continue;
        k->users++;
        *out = k;
        return SW_OK;
    }
    sw__gpu_kernel *const k = sw__calloc(1, sizeof *k);
    if (k == NULL) return sw__no_memory(sizeof *k, "a kernel");
    k->hash = hash;
    k->users = 1;
    k->alone = alone;
    k->plain = plain;
    k->text = sw__strdup(text);
    k->entry = sw__strdup(entry);
    k->wanted_by = sw__strdup(wanted_by);
    if (k->text == NULL || k->entry == NULL || k->wanted_by == NULL) {
        free_kernel(g, k);
        return sw__no_memory(strlen(text), "a kernel's text");
    }
    sw__gpu_kernel **last = &g->kernels; /* at the end: programs hold kernels in the order of asking */
    while (*last != NULL) last = &(*last)->next;
    *last = *out = k;
    return SW_OK;
}

sw_status sw__gpu_want(sw__gpu *g, const char *wanted_by, const char *text, const char *entry, sw__gpu_kernel **out)
{
    return want(g, wanted_by, text, entry, false, false, out);
}

sw_status sw__gpu_want_alone(sw__gpu *g, const char *wanted_by, const char *text, const char *entry, bool plain,
                             sw__gpu_kernel **out)
{
    return want(g, wanted_by, text, entry, true, plain, out);
}

void sw__gpu_unwant(sw__gpu *g, sw__gpu_kernel *k)
{
    if (k == NULL || --k->users > 0) return;
    sw__gpu_kernel **p = &g->kernels;
    while (*p != k) p = &(*p)->next;
    *p = k->next;
    free_kernel(g, k);
}

void *sw__gpu_kernel_handle(const sw__gpu_kernel *k)
{
    return k->handle;
}

const char *sw__gpu_kernel_entry(const sw__gpu_kernel *k)
{
    return k->entry;
}

uint64_t sw__gpu_kernel_program(const sw__gpu_kernel *k)
{
    return k->module != NULL ? k->module->text : 0;
}

sw_status sw__gpu_want_portable(sw__gpu *g, const char *wanted_by, const char *file, const sw__gpu_macro *macros, int n,
                                bool alone, sw__gpu_kernel **out)
{
    const char *const body = sw__portable(file);
    if (body == NULL) return sw__fail(SW_ERR_DEVICE, "there is no portable kernel '%s'", file);
    sw__text head = {0}, text = {0};
    for (int i = 0; i < n; i++) {
        sw__text_add(&head, "#define %s ", macros[i].name);
        if (macros[i].text != NULL) sw__text_add(&head, "%s\n", macros[i].text);
        else sw__text_add(&head, "%lld\n", (long long)macros[i].value);
    }
    const uint64_t hash = XXH3_64bits_withSeed(head.s != NULL ? head.s : "", head.len, XXH3_64bits(body, strlen(body)));
    char entry[96];
    snprintf(entry, sizeof entry, "sw_%.60s_%016llx", file, (unsigned long long)hash);
    sw__text_add(&text, "#define NAME %s\n%s#line 1 \"%s.k\"\n%s\n#undef NAME\n", entry, head.s != NULL ? head.s : "", file,
                 body);
    for (int i = 0; i < n; i++) sw__text_add(&text, "#undef %s\n", macros[i].name);
    sw_status st = head.failed || text.failed ? sw__no_memory(text.len, "a kernel's text") : SW_OK;
    if (st == SW_OK) st = want(g, wanted_by, text.s, entry, alone, false, out);
    sw__text_free(&head);
    sw__text_free(&text);
    return st;
}

/* ---- the program's text --------------------------------------------------------------------------------------------- */

static void add_prelude(const sw__gpu *g, sw__text *t)
{
    if (g->target.fp64) sw__text_add(t, "#define SW_FP64 1\n");
    if (g->target.serial) sw__text_add(t, "#define SW_SERIAL 1\n");
    const char *const dialect = sw__portable(g->target.lang == SW_LANG_CUDA ? "cuda" : "opencl");
    const char *const common = sw__portable("common");
    sw__text_put(t, dialect, strlen(dialect));
    sw__text_put(t, common, strlen(common));
}

/* Belongs into the program that is being built: that of kernel `only`, or the one which all share that need none. */
static bool is_due(const sw__gpu_kernel *k, const sw__gpu_kernel *only)
{
    return k->module == NULL && (only != NULL ? k == only : !k->alone && k->failed == SW_OK);
}

/* An entry of a text that an earlier kernel of this program has brought. */
static bool is_there(const sw__gpu *g, const sw__gpu_kernel *k)
{
    for (const sw__gpu_kernel *e = g->kernels; e != k && !k->alone; e = e->next)
        if (is_due(e, NULL) && e->hash == k->hash && strcmp(e->text, k->text) == 0) return true;
    return false;
}

static void add_kernel(const sw__gpu_kernel *k, sw__text *t)
{
    sw__text_add(t, "#line 1 \"kernel\"\n");
    sw__text_put(t, k->text, strlen(k->text));
}

/* ---- compile errors -------------------------------------------------------------------------------------------------- */

/* The lines around the first "file:line" or, from NVRTC, "file(line)" of a compiler's log, numbered. */
static void quote(const char *log, const sw__gpu_kernel *k, sw__text *out)
{
    char file[64] = "";
    long line = 0;
    for (const char *p = log; (p = strpbrk(p, ":(")) != NULL; p++) {
        char *end;
        line = strtol(p + 1, &end, 10);
        if (end == p + 1 || line <= 0 || (*p == '(' && *end != ')')) continue;
        const char *s = p;
        while (s > log && strchr(" \n\t\"<>/", s[-1]) == NULL) s--;
        snprintf(file, sizeof file, "%.*s", (int)SW_MIN(p - s, 63), s);
        break;
    }
    char *const dot = strstr(file, ".k");
    if (dot != NULL) *dot = '\0';
    const char *text = dot != NULL ? sw__portable(file) : NULL;
    if (text == NULL) text = k->text;
    for (long at = 1; text != NULL && *text != '\0'; at++) {
        const size_t n = strcspn(text, "\n");
        if (at >= line - 2 && at <= line + 2) sw__text_add(out, "\n%s%4ld | %.*s", at == line ? ">" : " ", at, (int)n, text);
        text += n + (text[n] == '\n');
    }
}

/* Keeps the present message: the kernel is not built because of it. */
static void keep_failure(sw__gpu_kernel *k, sw_status st)
{
    char *const text = sw__strdup(sw_error());
    sw__free(k->failure);
    k->failure = text;
    k->failed = text != NULL ? st : SW_ERR_MEMORY;
}

/* Says more about a kernel that the compiler refuses. */
static sw_status refuse(const sw__gpu *g, const sw__gpu_kernel *k, sw_status st)
{
    char log[700];
    sw__text lines = {0};
    snprintf(log, sizeof log, "%.699s", sw_error());
    quote(log, k, &lines);
    st = sw__fail(st, "%s: kernel %s of %s does not compile: %s%.300s", g->backend, k->entry, k->wanted_by, log,
                  lines.s != NULL ? lines.s : "");
    sw__text_free(&lines);
    return st;
}

/* Which of the kernels of the program that all share does not compile: each by itself. True: they are marked, so that
 * the others can be built without them. False: each of them compiles. */
static bool blame(sw__gpu *g)
{
    bool found = false;
    for (sw__gpu_kernel *k = g->kernels; k != NULL; k = k->next) {
        if (!is_due(k, NULL)) continue;
        sw__text t = {0};
        void *alone = NULL;
        add_prelude(g, &t);
        add_kernel(k, &t);
        const sw_status st = t.failed ? sw__no_memory(t.len, "a kernel's text")
                                      : g->driver->compile(g->dev, t.s, &alone);
        sw__text_free(&t);
        if (st == SW_OK) {
            g->driver->unload(g->dev, alone);
            continue;
        }
        refuse(g, k, st);
        keep_failure(k, st);
        found = true;
    }
    return found;
}

/* ---- building -------------------------------------------------------------------------------------------------------- */

/* From the cache, or NULL. What the driver does not take any more is compiled again. */
static void *from_cache(sw__gpu *g, const char *key, size_t n)
{
    void *bytes = NULL, *handle = NULL;
    size_t size = 0;
    if (sw__kcache_get(key, n, &bytes, &size) != SW_OK || bytes == NULL) return NULL;
    if (g->driver->load(g->dev, bytes, size, &handle) != SW_OK) {
        sw__log(SW_LOG_INFO, "%s: a cached program cannot be used (%s); it is compiled again", g->backend, sw_error());
        handle = NULL;
    }
    sw__free(bytes);
    if (handle != NULL) g->cached++;
    return handle;
}

static bool to_cache(sw__gpu *g, const char *key, size_t n, void *handle)
{
    void *bytes = NULL;
    size_t size = 0;
    bool kept = false;
    sw_status st = g->driver->binary(g->dev, handle, &bytes, &size);
    if (st == SW_OK) st = sw__kcache_put(key, n, bytes, size, &kept);
    if (st != SW_OK) sw__log(SW_LOG_INFO, "%s: the compiled program is not kept: %s", g->backend, sw_error());
    sw__free(bytes);
    return kept;
}

/* All entries, or none: kernels that were asked for stay asked for if one of them fails. */
static sw_status take_entries(sw__gpu *g, module *m, const sw__gpu_kernel *only)
{
    sw_status st = SW_OK;
    for (sw__gpu_kernel *k = g->kernels; k != NULL && st == SW_OK; k = k->next) {
        if (!is_due(k, only) || k->handle != NULL) continue;
        st = g->driver->kernel(g->dev, m->handle, k->entry, &k->handle);
        if (st != SW_OK) sw__prefix(st, "%s: kernel %s of %s", g->backend, k->entry, k->wanted_by);
    }
    for (sw__gpu_kernel *k = g->kernels; k != NULL; k = k->next) {
        if (!is_due(k, only) || k->handle == NULL) continue;
        if (st == SW_OK) {
            k->module = m;
            m->users++;
            continue;
        }
        g->driver->kernel_free(g->dev, k->handle);
        k->handle = NULL;
    }
    return st;
}

/* Compiles, and keeps what came of it. Whoever asked to be told of this (it may take seconds) is told. */
static sw_status compile(sw__gpu *g, const sw__text *key, const char *text, int kernels, void **handle)
{
    const double start = sw__now();
    sw_build_event e = {.device = g->name, .kernels = kernels};
    sw__tell_build(&e);
    const sw_status st = g->driver->compile(g->dev, text, handle);
    if (st == SW_OK) {
        g->compiled++;
        e.kept = to_cache(g, key->s, key->len, *handle);
    }
    e.done = true;
    e.failed = st != SW_OK;
    e.seconds = sw__now() - start;
    sw__tell_build(&e);
    if (st == SW_OK)
        sw__log(SW_LOG_INFO, "%s: %d kernels (%zu bytes) compiled for %s in %.1f s%s", g->backend, kernels,
                strlen(text), g->name, e.seconds, e.kept ? ", kept for the next time" : "");
    return st;
}

static sw_status make_module(sw__gpu *g, const sw__text *key, const char *text, int kernels, module **out)
{
    module *const m = sw__calloc(1, sizeof *m);
    if (m == NULL) return sw__no_memory(sizeof *m, "a program of kernels");
    m->users = 1; /* ours, until the kernels have it */
    m->text = XXH3_64bits(text, strlen(text));
    const double start = sw__now();
    m->handle = from_cache(g, key->s, key->len);
    if (m->handle != NULL)
        sw__log(SW_LOG_INFO, "%s: %d kernels loaded in %.0f ms", g->backend, kernels, (sw__now() - start) * 1e3);
    const sw_status st = m->handle != NULL ? SW_OK : compile(g, key, text, kernels, &m->handle);
    if (st == SW_OK) *out = m;
    else sw__free(m);
    return st;
}

/* ---- from a folder (gpu_folder.c) ------------------------------------------------------------------------------------- */

void sw__gpu_index(const sw__gpu *g, sw__text *out)
{
    for (const sw__gpu_kernel *k = g->kernels; k != NULL; k = k->next)
        if (k->module != NULL)
            sw__text_add(out, "%s %016llx %016llx\n", k->entry, (unsigned long long)k->hash,
                         (unsigned long long)k->module->text);
}

static sw_status module_from_folder(sw__gpu *g, uint64_t program, module **out)
{
    for (const sw__gpu_kernel *k = g->kernels; k != NULL; k = k->next) {
        if (k->module == NULL || k->module->text != program) continue;
        *out = k->module;
        return SW_OK;
    }
    module *const m = sw__calloc(1, sizeof *m);
    if (m == NULL) return sw__no_memory(sizeof *m, "a program of kernels");
    m->text = program;
    const sw_status st = sw__gpu_folder_load(g, program, &m->handle);
    if (st != SW_OK) sw__free(m);
    else *out = m;
    return st;
}

static sw_status take_from_folder(sw__gpu *g, sw__gpu_kernel *k)
{
    uint64_t program = 0;
    module *m = NULL;
    sw_status st = sw__gpu_folder_find(g, k->entry, k->hash, &program);
    if (st == SW_OK) st = module_from_folder(g, program, &m);
    if (m != NULL) m->users++;
    if (st == SW_OK && m != NULL) st = g->driver->kernel(g->dev, m->handle, k->entry, &k->handle);
    if (st == SW_OK) {
        k->module = m;
        return SW_OK;
    }
    drop_module(g, m);
    return sw__prefix(st, "%s: kernel of %s", g->backend, k->wanted_by);
}

/* only: that kernel in a program of its own. NULL: all that share one; *compiler: it is the compiler that refused. */
static sw_status build_program(sw__gpu *g, const sw__gpu_kernel *only, bool *compiler)
{
    sw__text key = {0};
    int n = 0;
    sw__text_put(&key, g->key, sizeof g->key);
    if (only == NULL || !only->plain) add_prelude(g, &key);
    for (const sw__gpu_kernel *k = g->kernels; k != NULL; k = k->next) {
        if (!is_due(k, only)) continue;
        n++;
        if (!is_there(g, k)) add_kernel(k, &key);
    }
    module *m = NULL;
    sw_status st = key.failed ? sw__no_memory(key.len, "a program's text") : SW_OK;
    if (st == SW_OK && n > 0) {
        st = make_module(g, &key, key.s + sizeof g->key, n, &m);
        *compiler = st != SW_OK;
    }
    if (st == SW_OK && n > 0) st = take_entries(g, m, only);
    if (st == SW_OK && n > 0 && g->write_to != NULL)
        st = sw__gpu_folder_write(g, m->text, key.s + sizeof g->key, m->handle);
    if (st == SW_OK && n > 0 && g->write_to != NULL) st = sw__gpu_folder_describe(g);
    sw__text_free(&key);
    drop_module(g, m);
    return st;
}

static sw_status build_one(sw__gpu *g, sw__gpu_kernel *k)
{
    bool compiler = false;
    if (g->read_from != NULL) return take_from_folder(g, k);
    const sw_status st = build_program(g, k, &compiler);
    return compiler ? refuse(g, k, st) : st;
}

sw_status sw__gpu_build(sw__gpu *g)
{
    bool compiler = false;
    if (g->read_from == NULL) {
        sw_status st = build_program(g, NULL, &compiler);
        if (compiler && blame(g)) st = build_program(g, NULL, &compiler);
        SW_TRY(st);
    }
    for (sw__gpu_kernel *k = g->kernels; k != NULL; k = k->next) {
        if (k->module != NULL) continue;
        const sw_status st = build_one(g, k);
        if (st != SW_OK) keep_failure(k, st);
        else k->failed = SW_OK;
    }
    return SW_OK;
}

sw_status sw__gpu_build_alone(sw__gpu *g, sw__gpu_kernel *k)
{
    return k->module != NULL ? SW_OK : build_one(g, k);
}

sw_status sw__gpu_kernel_ready(const sw__gpu_kernel *k)
{
    if (k->handle != NULL) return SW_OK;
    return sw__fail(k->failed != SW_OK ? k->failed : SW_ERR_DEVICE, "%s",
                    k->failure != NULL ? k->failure : "a kernel that is not built yet was to be launched");
}
