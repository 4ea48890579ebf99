/* lines.c: a file of lines LABEL, tab, TEXT as a data set for networks that say a class of a text: its bytes are tokens, cut or
 * filled up with 0 to `sequence` of them; labels are the classes, in the order of their names. Beside text.c. */
#include "data/storage.h"
#include "io/json.h"
#include <inttypes.h>
#include <stdlib.h>

typedef struct part { const uint8_t *s; size_t n; } part;

/* The file, cut into lines; label.s NULL: the line has none. */
typedef struct lines {
    uint8_t *bytes;
    part *label, *text;
    int64_t n;
    part *names; /* of classes, in order */
    int64_t classes;
    bool given;  /* names are those of a model */
} lines;

static void free_lines(lines *l)
{
    sw__free(l->bytes);
    sw__free(l->label);
    sw__free(l->text);
    sw__free(l->names);
}

static int compare(const void *a, const void *b)
{
    const part *const x = a, *const y = b;
    const int order = memcmp(x->s, y->s, SW_MIN(x->n, y->n));
    return order != 0 ? order : x->n < y->n ? -1 : x->n > y->n;
}

static sw_status cut_lines(lines *l, int64_t size)
{
    int64_t most = 1;
    for (int64_t i = 0; i < size; i++) most += l->bytes[i] == '\n';
    l->label = sw__calloc((size_t)most, sizeof *l->label);
    l->text = sw__calloc((size_t)most, sizeof *l->text);
    if (l->label == NULL || l->text == NULL) return sw__no_memory((size_t)most * sizeof *l->text, "lines");
    for (const uint8_t *p = l->bytes, *const end = p + size; p < end;) {
        const uint8_t *const newline = memchr(p, '\n', (size_t)(end - p)), *const stop = newline != NULL ? newline : end;
        const size_t n = (size_t)(stop - p) - (stop > p && stop[-1] == '\r');
        const uint8_t *const tab = memchr(p, '\t', n);
        if (n > 0) {
            if (tab != NULL) l->label[l->n] = (part){ p, (size_t)(tab - p) };
            l->text[l->n++] = tab != NULL ? (part){ tab + 1, n - (size_t)(tab + 1 - p) } : (part){ p, n };
        }
        p = stop + 1;
    }
    return SW_OK;
}

/* Every line has a label; each name once, in order. */
static sw_status name_classes(const char *path, lines *l)
{
    l->names = sw__calloc((size_t)SW_MAX(l->n, (int64_t)1), sizeof *l->names);
    if (l->names == NULL) return sw__no_memory((size_t)l->n * sizeof *l->names, "class names");
    for (int64_t i = 0; i < l->n; i++) {
        if (l->label[i].s == NULL || l->label[i].n == 0)
            return sw__fail(SW_ERR_DATA, "%s: line %" PRId64 " (of those that are not empty) has no label: a line is LABEL, tab, "
                            "TEXT", path, i + 1);
        if (sw__utf8_check((const char *)l->label[i].s, l->label[i].n) != l->label[i].n)
            return sw__fail(SW_ERR_DATA, "%s: the label '%.*s' of line %" PRId64 " is not UTF-8", path,
                            (int)SW_MIN(l->label[i].n, (size_t)60), (const char *)l->label[i].s, i + 1);
        l->names[i] = l->label[i];
    }
    qsort(l->names, (size_t)l->n, sizeof *l->names, compare);
    for (int64_t i = 0; i < l->n; i++)
        if (l->classes == 0 || compare(&l->names[i], &l->names[l->classes - 1]) != 0) l->names[l->classes++] = l->names[i];
    return SW_OK;
}

static sw_status take_names(const sw_dataset_options *o, lines *l)
{
    l->names = sw__calloc((size_t)SW_MAX(o->n_vocabulary, (int64_t)1), sizeof *l->names);
    if (l->names == NULL) return sw__no_memory((size_t)o->n_vocabulary * sizeof *l->names, "class names");
    for (int64_t i = 0; i < o->n_vocabulary; i++) {
        const char *const name = o->vocabulary[i] != NULL ? o->vocabulary[i] : "";
        l->names[i] = (part){ (const uint8_t *)name, strlen(name) };
    }
    l->classes = o->n_vocabulary;
    l->given = true;
    return SW_OK;
}

static int64_t find_class(const lines *l, const part *label)
{
    const part *found = NULL;
    if (!l->given) found = bsearch(label, l->names, (size_t)l->classes, sizeof *l->names, compare);
    for (int64_t i = 0; l->given && found == NULL && i < l->classes; i++)
        if (compare(label, &l->names[i]) == 0) found = &l->names[i];
    return found != NULL ? found - l->names : -1;
}

static sw_status fill(const char *path, const lines *l, int64_t sequence, bool labels, sw__storage *s)
{
    s->x = (sw_array){ .dtype = SW_U8, .rank = 2, .shape = { l->n, sequence } };
    SW_TRY(sw__array_alloc(&s->x, path));
    s->own_x = true;
    memset(s->x.data, 0, s->x.bytes);
    for (int64_t i = 0; i < l->n; i++)
        if (l->text[i].n > 0) memcpy((uint8_t *)s->x.data + i * sequence, l->text[i].s, SW_MIN(l->text[i].n, (size_t)sequence));
    if (!labels) return SW_OK;
    s->y = (sw_array){ .dtype = SW_I64, .rank = 1, .shape = { l->n } };
    SW_TRY(sw__array_alloc(&s->y, path));
    s->own_y = true;
    for (int64_t i = 0; i < l->n; i++) {
        const int64_t c = l->label[i].s != NULL ? find_class(l, &l->label[i]) : -1;
        if (c < 0)
            return sw__fail(SW_ERR_DATA, "%s: line %" PRId64 " (of those that are not empty) has the label '%.*s', which is none of "
                            "the %" PRId64 " that the model knows", path, i + 1, (int)SW_MIN(l->label[i].n, (size_t)60),
                            l->label[i].s != NULL ? (const char *)l->label[i].s : "", l->classes);
        ((int64_t *)s->y.data)[i] = c;
    }
    return SW_OK;
}

static sw_status set_names(const lines *l, sw_dataset *d)
{
    char **const names = sw__calloc((size_t)l->classes, sizeof *names);
    sw_status st = names != NULL ? SW_OK : sw__no_memory((size_t)l->classes * sizeof *names, "class names");
    for (int64_t i = 0; st == SW_OK && i < l->classes; i++) {
        names[i] = sw__strndup((const char *)l->names[i].s, l->names[i].n);
        if (names[i] == NULL) st = sw__no_memory(l->names[i].n, "a class name");
    }
    if (st == SW_OK) st = sw_dataset_set_class_names(d, (const char *const *)names, l->classes);
    for (int64_t i = 0; names != NULL && i < l->classes; i++) sw__free(names[i]);
    sw__free(names);
    return st;
}

static sw_status make(const char *path, const lines *l, const sw_dataset_options *o, sw_dataset **out)
{
    const bool labels = o->target != SW_TARGET_NONE;
    sw__storage *s;
    if (labels && o->num_classes > 0 && o->num_classes != l->classes)
        return sw__fail(SW_ERR_ARGUMENT, "%s: num_classes is %" PRId64 ", but there are %" PRId64 " different labels: leave it out",
                        path, o->num_classes, l->classes);
    SW_TRY(sw__storage_new(path, "lines", &s));
    const sw_status st = fill(path, l, o->sequence > 0 ? o->sequence : 128, labels, s);
    if (st != SW_OK) {
        sw__storage_release(s);
        return st;
    }
    const sw_dataset_options plain = { .tokens = true, .target = labels ? SW_TARGET_CLASS : SW_TARGET_NONE,
                                       .num_classes = l->classes };
    sw_dataset *d = NULL;
    SW_TRY(sw__dataset_over(s, &plain, &d));
    const sw_status named = labels ? set_names(l, d) : SW_OK;
    if (named != SW_OK) {
        sw_dataset_close(d);
        return named;
    }
    *out = d;
    return SW_OK;
}

sw_status sw__lines_open(const char *path, const sw_dataset_options *o, sw_dataset **out)
{
    lines l = { .n = 0 };
    int64_t size = 0;
    sw_status st = sw__text_read(path, &l.bytes, &size);
    if (st == SW_OK) st = cut_lines(&l, size);
    if (st == SW_OK && l.n == 0) st = sw__fail(SW_ERR_DATA, "%s holds no lines", path);
    if (st == SW_OK && o->vocabulary != NULL) st = take_names(o, &l);
    else if (st == SW_OK && o->target != SW_TARGET_NONE) st = name_classes(path, &l);
    if (st == SW_OK) st = make(path, &l, o, out);
    free_lines(&l);
    return st;
}
