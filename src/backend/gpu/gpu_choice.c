/* gpu_choice.c: the choices that are known: an op as text, the list of a device, its file in the kernel cache, the table
 * that ships. Asked by gpu_op.c when an op is planned, filled by gpu_tune.c. See tune.h. */
#include "backend/desc.h"
#include "backend/gpu/tune.h"
#include "kernel/cache.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

/* ---- an op as text ----------------------------------------------------------------------------------------------------- */

static bool is_conv(uint16_t op)
{
    return op == SW_OP_CONV || op == SW_OP_CONV_GRAD_X || op == SW_OP_CONV_GRAD_W;
}

/* Which of two indices is contiguous: "k", "m", or "-". */
static char along(int64_t first, char a, int64_t second, char b)
{
    return second == 1 ? b : first == 1 ? a : '-';
}

static void product_key(const sw__op_desc *d, sw__text *out)
{
    const sw__matrices g = sw__matrices_of(d);
    sw__text_add(out, "product %s %lldx%lldx%lld", sw_dtype_name((sw_dtype)d->out[0].dtype), (long long)g.m, (long long)g.n,
                 (long long)g.k);
    for (int i = 0; i < g.rank; i++)
        sw__text_add(out, " of %lld%s%s", (long long)g.batch[i], g.as[i] == 0 ? "=a" : "", g.bs[i] == 0 ? "=b" : "");
    sw__text_add(out, " %c%c%c", along(g.am, 'm', g.ak, 'k'), along(g.bk, 'k', g.bn, 'n'), along(g.cm, 'm', g.cn, 'n'));
    if (d->n_in > 2) sw__text_add(out, " bias");
    if (d->op == SW_OP_MATMUL && d->attr->act.act == SW_ACT_RELU) sw__text_add(out, " relu");
}

/* Sizes, then the order of the axes from the slowest on: "8x3x5x5:0231"; a + where they do not lie densely. */
static void tensor_key(const sw__desc *t, sw__text *out)
{
    int order[SW_MAX_RANK], n = 0;
    for (int i = 0; i < t->rank; i++) {
        int at = n++;
        while (at > 0 && t->stride[order[at - 1]] < t->stride[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    bool dense = true;
    int64_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        if (t->dim[order[i]] > 1 && t->stride[order[i]] != stride) dense = false;
        stride *= t->dim[order[i]];
    }
    for (int i = 0; i < n; i++) sw__text_add(out, "%s%lld", i > 0 ? "x" : " ", (long long)t->dim[i]);
    sw__text_add(out, ":");
    for (int i = 0; i < n; i++) sw__text_add(out, "%d", order[i]);
    if (!dense) sw__text_add(out, "+");
}

static void list_key(const char *name, const int64_t *v, int n, sw__text *out)
{
    sw__text_add(out, " %s", name);
    for (int i = 0; i < n; i++) sw__text_add(out, "%s%lld", i > 0 ? "," : "", (long long)v[i]);
}

static void conv_key(const sw__op_desc *d, sw__text *out)
{
    const int nd = d->attr->conv.nd;
    sw__text_add(out, "%s %s", sw__op_table[d->op].name, sw_dtype_name((sw_dtype)d->out[0].dtype));
    for (int i = 0; i < SW_MIN(d->n_in, 2); i++) tensor_key(&d->in[i], out);
    tensor_key(&d->out[0], out);
    list_key("s", d->attr->conv.stride, nd, out);
    list_key("d", d->attr->conv.dilation, nd, out);
    list_key("p", d->attr->conv.pad_lo, nd, out);
    list_key("g", &d->attr->conv.groups, 1, out);
    if (d->n_in > 2) sw__text_add(out, " bias");
    if (d->op == SW_OP_CONV && d->attr->conv.act == SW_ACT_RELU) sw__text_add(out, " relu");
}

bool sw__gpu_op_key(const sw__gpu *g, const sw__op_desc *d, sw__text *out)
{
    char label[64];
    if (d->op == SW_OP_MATMUL || d->op == SW_OP_DOT) product_key(d, out);
    if (is_conv(d->op)) conv_key(d, out);
    const bool by_library = out->s != NULL && g->driver->library_label != NULL && g->read_from == NULL && g->write_to == NULL;
    if (by_library && g->driver->library_label(g->dev, d, label, sizeof label)) sw__text_add(out, " %s", label);
    return !out->failed;
}

void sw__gpu_device_label(const sw__gpu *g, char *out, size_t size)
{
    const sw__target *const t = &g->target;
    snprintf(out, size, "%s %s w%d u%d g%d l%zu %s", g->backend, t->serial ? "cpu" : "gpu", t->width, t->units, t->max_group,
             t->local_bytes, g->key);
}

/* ---- the list ---------------------------------------------------------------------------------------------------------- */

static sw__gpu_choice *find(const sw__gpu_tuning *t, const char *key, uint64_t hash)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->list[i].hash == hash && strcmp(t->list[i].key, key) == 0) return &t->list[i];
    return NULL;
}

sw_status sw__gpu_choose(sw__gpu *g, const char *key, const sw__gpu_choice *c)
{
    sw__gpu_tuning *const t = g->tuning;
    const uint64_t hash = XXH3_64bits(key, strlen(key));
    sw__gpu_choice *to = find(t, key, hash);
    if (to == NULL) {
        SW_TRY(sw__grow(&t->list, &t->capacity, t->n + 1, sizeof *t->list, "the list of variants"));
        char *const copy = sw__strdup(key);
        if (copy == NULL) return sw__no_memory(strlen(key), "the list of variants");
        to = &t->list[t->n++];
        *to = (sw__gpu_choice){.key = copy};
    }
    char *const own = to->key;
    *to = *c;
    to->key = own;
    to->hash = hash;
    return SW_OK;
}

/* ---- as text ----------------------------------------------------------------------------------------------------------- */

/* Microseconds with one digit behind the point, which is a point in every locale. */
static void write_time(double seconds, sw__text *out)
{
    const long long tenths = llround(SW_MIN(seconds, 1e6) * 1e7);
    sw__text_add(out, " %lld.%lld", tenths / 10, tenths % 10);
}

static bool read_time(const char **at, double *seconds)
{
    char *end;
    const long long whole = strtoll(*at, &end, 10);
    if (end == *at || whole < 0 || whole >= 1000000000000) return false;
    *seconds = (double)whole * 1e-6;
    if (*end == '.') end++;
    for (double unit = 1e-7; *end >= '0' && *end <= '9'; unit /= 10) *seconds += unit * (*end++ - '0');
    *at = end;
    return *end == ' ';
}

void sw__gpu_write_choice(const sw__gpu_choice *c, sw__text *out)
{
    sw__text_add(out, "%d", c->variant);
    write_time(c->rule, out);
    write_time(c->best, out);
    write_time(c->library, out);
    sw__text_add(out, " %s\n", c->key);
}

typedef struct reading {
    const char *label;   /* of this device */
    bool table;          /* which gives way to all that is known; otherwise the file, whose word holds */
    bool mine;           /* … but for what was measured in this process */
    bool here;           /* lines are for this device */
    bool current;        /* … and of this version of the variants */
    int bad;
} reading;

/* "variant rule best library key", times in microseconds */
static sw_status read_line(sw__gpu *g, reading *r, const char *line)
{
    sw__gpu_choice c = {.kept = !r->table, .table = r->table};
    char *end;
    double time[3];
    const long variant = strtol(line, &end, 10);
    const char *p = end;
    bool good = p != line && variant >= 0 && variant < SW__GPU_MOST_WAYS * SW__GPU_WAY;
    for (int i = 0; i < 3 && good; i++) good = read_time(&p, &time[i]);
    if (!good || p[1] == '\0') {
        r->bad++;
        return SW_OK;
    }
    p++;
    c.variant = (int)variant;
    c.rule = time[0];
    c.best = time[1];
    c.library = time[2];
    const sw__gpu_choice *const old = find(g->tuning, p, XXH3_64bits(p, strlen(p)));
    if (old != NULL && (r->table || (r->mine && *old->note != '\0'))) return SW_OK;
    return sw__gpu_choose(g, p, &c);
}

/* Lines as sw__gpu_write_choice makes them; "[PATTERN]": those after it are for devices whose label matches, "version N":
 * for these variants; # begins a remark. */
static sw_status read_text(sw__gpu *g, reading *r, const char *text, size_t n)
{
    char line[512];
    for (size_t at = 0; at < n;) {
        const char *const end = memchr(text + at, '\n', n - at);
        const size_t length = end != NULL ? (size_t)(end - (text + at)) : n - at;
        snprintf(line, sizeof line, "%.*s", (int)SW_MIN(length, sizeof line - 1), text + at);
        at += length + 1;
        char *const close = strrchr(line, ']');
        if (*line == '\0' || *line == '#') continue;
        if (*line == '[' && close != NULL) {
            *close = '\0';
            r->here = fnmatch(line + 1, r->label, 0) == 0;
        } else if (strncmp(line, "version ", 8) == 0) {
            r->current = strtol(line + 8, NULL, 10) == SW__GPU_VARIANTS;
        } else if (strcmp(line, "library") == 0) {
            g->tuning->library_tried = true;
        } else if (r->here && r->current && length < sizeof line) {
            SW_TRY(read_line(g, r, line));
        }
    }
    return SW_OK;
}

/* ---- the file ---------------------------------------------------------------------------------------------------------- */

static char *file_key(const sw__gpu *g)
{
    char label[384];
    sw__gpu_device_label(g, label, sizeof label);
    return sw__asprintf("swoop tuning %d|%s", SW__GPU_VARIANTS, label);
}

static sw_status read_file(sw__gpu *g, bool mine)
{
    void *bytes = NULL;
    size_t n = 0;
    char *const key = file_key(g);
    if (key == NULL) return sw__no_memory(256, "a file's name");
    sw_status st = sw__kcache_get(key, strlen(key), &bytes, &n);
    reading r = {.mine = mine, .here = true, .current = true};
    if (st == SW_OK && bytes != NULL) st = read_text(g, &r, bytes, n);
    if (r.bad > 0) sw__log(SW_LOG_INFO, "%s: %d lines of the tuning file cannot be read", g->backend, r.bad);
    sw__free(bytes);
    sw__free(key);
    return st;
}

/* The table that ships, or the one that SWOOP_TUNING_TABLE names. */
static sw_status read_table(sw__gpu *g)
{
    const char *const path = getenv("SWOOP_TUNING_TABLE");
    char label[384];
    sw__text own = {0};
    const char *text = sw__portable("tuned");
    sw__gpu_device_label(g, label, sizeof label);
    if (path != NULL && *path != '\0') {
        char piece[4096];
        FILE *const f = fopen(path, "rb");
        for (size_t n; f != NULL && (n = fread(piece, 1, sizeof piece, f)) > 0;) sw__text_put(&own, piece, n);
        if (f == NULL) sw__log(SW_LOG_WARN, "SWOOP_TUNING_TABLE=%s cannot be opened", path);
        if (f != NULL) (void)fclose(f);
        text = own.s;
    }
    reading r = {.label = label, .table = true};
    const sw_status st = own.failed ? sw__no_memory(own.len, "the tuning table")
                         : text != NULL ? read_text(g, &r, text, strlen(text)) : SW_OK;
    if (r.bad > 0) sw__log(SW_LOG_WARN, "%s: %d lines of the tuning table cannot be read", g->backend, r.bad);
    sw__text_free(&own);
    return st;
}

/* The file first: what the table says of the same ops does not count then. */
static sw_status load(sw__gpu *g)
{
    if (g->tuning->loaded) return SW_OK;
    g->tuning->loaded = true;
    SW_TRY(read_file(g, false));
    return read_table(g);
}

sw__gpu_choice *sw__gpu_find_choice(sw__gpu *g, const char *key)
{
    if (load(g) != SW_OK) sw__log(SW_LOG_WARN, "%s: the tuning file is not read: %s", g->backend, sw_error());
    return find(g->tuning, key, XXH3_64bits(key, strlen(key)));
}

static sw_status write_file(const sw__gpu *g)
{
    sw__text text = {0};
    char *const key = file_key(g);
    if (g->tuning->library_tried) sw__text_add(&text, "library\n");
    for (size_t i = 0; i < g->tuning->n; i++)
        if (!g->tuning->list[i].table) sw__gpu_write_choice(&g->tuning->list[i], &text);
    sw_status st = key == NULL || text.failed ? sw__no_memory(text.len, "the tuning file") : SW_OK;
    if (st == SW_OK && text.len > 0) st = sw__kcache_put(key, strlen(key), text.s, text.len, NULL); // NOLINT: not NULL, see above
    sw__text_free(&text);
    sw__free(key);
    return st;
}

void sw__gpu_keep_choices(sw__gpu *g, bool over)
{
    const int lock = sw__kcache_lock(); /* two processes may have found different variants: the first one's hold */
    sw_status st = read_file(g, over);
    if (st == SW_OK) st = write_file(g);
    sw__kcache_unlock(lock);
    for (size_t i = 0; i < g->tuning->n && st == SW_OK; i++) g->tuning->list[i].kept = !g->tuning->list[i].table;
    if (st != SW_OK) sw__log(SW_LOG_INFO, "%s: what was found is not kept: %s", g->backend, sw_error());
}

int sw__gpu_variant_of(sw__gpu *g, const sw__op_desc *d)
{
    const sw__gpu_op *const op = &sw__gpu_ops[d->op];
    if (op->variants == NULL || g->tuning == NULL || g->read_from != NULL || g->write_to != NULL) return 0;
    sw__text key = {0};
    const sw__gpu_choice *const c = sw__gpu_op_key(g, d, &key) && key.s != NULL ? sw__gpu_find_choice(g, key.s) : NULL;
    const int variant = c != NULL ? c->variant : 0, own = variant & (SW__GPU_LIBRARY - 1);
    sw__text_free(&key);
    return own < op->variants(g, d) ? variant : variant - own;
}

bool sw__gpu_kernels_alone(const sw__gpu_plan *p)
{
    const sw__gpu *const g = p->gpu;
    const bool trials = g->tuning != NULL && !g->tuning->never && g->read_from == NULL && g->write_to == NULL;
    return trials && sw__gpu_ops[p->d.op].variants != NULL;
}

void sw__gpu_tuning_free(sw__gpu *g)
{
    sw__gpu_tuning *const t = g->tuning;
    if (t == NULL) return;
    for (size_t i = 0; i < t->n; i++) sw__free(t->list[i].key);
    sw__free(t->list);
    sw__free(t);
    g->tuning = NULL;
}
