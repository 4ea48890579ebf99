/* open.c: data sets by name or path: known names, folders, pairs of files, archives; which split is which file.
 * The top of data's reading side, over io's readers and arrange.c. */
#include "data/storage.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where to read: either a pair of files or an archive with two keys. */
typedef struct source {
    char *x, *y;      /* files; y NULL: none */
    char *archive;    /* or this one */
    const char *kind; /* of an archive: "NPZ", "safetensors" */
    char x_key[32], y_key[32];
    const char *const *class_names;
    int64_t classes;
} source;

static void free_source(source *s)
{
    sw__free(s->x);
    sw__free(s->y);
    sw__free(s->archive);
    *s = (source){ 0 };
}

/* ---- known names ------------------------------------------------------------------------------------------------- */

static const char *const fashion_classes[] = { "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                               "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot" };
static const char *const digit_classes[] = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9" };

/* In the source tree, while swoop is being built and tested. */
#ifndef SWOOP_SOURCE_DATA_DIR
#define SWOOP_SOURCE_DATA_DIR NULL
#endif

typedef struct known {
    const char *name;
    const char *folder; /* that holds a folder of that name; $SWOOP_DATA and share/swoop are searched first */
    const char *advice;
    const char *const *class_names;
    int64_t classes;
} known;

static const known known_sets[] = {
    { "fashion-mnist", "/usr/share/datasets",
      "apt install dataset-fashion-mnist, or put its four files into $SWOOP_DATA/fashion-mnist", fashion_classes, 10 },
    { "digits", SWOOP_SOURCE_DATA_DIR,
      "it ships with swoop in share/swoop/digits; set SWOOP_DATA to the folder that holds digits/", digit_classes, 10 },
};

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* PREFIX/share/swoop, wherever swoop was installed: found from the file that holds this code, PREFIX/lib/libswoop.so,
 * PREFIX/lib/x86_64-linux-gnu/libswoop.so or PREFIX/bin/program. *out stays NULL if there is none. */
static sw_status find_share(char **out)
{
    static const char here = 0;
    static const char *const ways[] = { "/../share/swoop", "/../../share/swoop" };
    Dl_info info;
    if (dladdr(&here, &info) == 0 || info.dli_fname == NULL) return SW_OK;
    const char *const slash = strrchr(info.dli_fname, '/');
    for (size_t i = 0; slash != NULL && i < SW_COUNT(ways); i++) {
        char *const path = sw__asprintf("%.*s%s", (int)(slash - info.dli_fname), info.dli_fname, ways[i]);
        if (path == NULL) return sw__no_memory(strlen(info.dli_fname), "a path");
        if (is_folder(path)) {
            *out = path;
            return SW_OK;
        }
        sw__free(path);
    }
    return SW_OK;
}

/* PLACE/NAME if it is a folder; *found stays as it is otherwise. */
static sw_status look_in(const char *place, const char *name, char **found)
{
    if (*found != NULL || place == NULL || place[0] == '\0') return SW_OK;
    char *const path = sw__asprintf("%s/%s", place, name);
    if (path == NULL) return sw__no_memory(strlen(place), "a path");
    if (is_folder(path)) {
        *found = path;
    } else {
        sw__free(path);
    }
    return SW_OK;
}

/* The folder of a known set. */
static sw_status find_known(const known *k, char **found)
{
    char *share = NULL;
    SW_TRY(find_share(&share));
    sw_status st = look_in(getenv("SWOOP_DATA"), k->name, found);
    if (st == SW_OK) st = look_in(share, k->name, found);
    if (st == SW_OK) st = look_in(k->folder, k->name, found);
    sw__free(share);
    if (st != SW_OK || *found != NULL) return st;
    return sw__fail(SW_ERR_DATA, "%s is not on this machine: %s", k->name, k->advice);
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static bool has_prefix(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Shorter first: train-images-idx3-ubyte before the same with .gz; then by name. */
static bool preferred(const char *a, const char *b)
{
    const size_t m = strlen(a), n = strlen(b);
    return m != n ? m < n : strcmp(a, b) < 0;
}

/* The file in `folder` whose name begins with one of two prefixes; *out stays NULL if there is none. */
static sw_status find_in(const char *folder, const char *const prefixes[2], char **out)
{
    DIR *const dir = opendir(folder);
    if (dir == NULL) return sw__io_failed(folder, "open the folder", errno);
    sw_status st = SW_OK;
    char *best = NULL;
    for (const struct dirent *e; st == SW_OK && (e = readdir(dir)) != NULL;) {
        const bool fits =
            has_prefix(e->d_name, prefixes[0]) || (prefixes[1] != NULL && has_prefix(e->d_name, prefixes[1]));
        if (!fits || (best != NULL && !preferred(e->d_name, best))) continue;
        char *const name = sw__strdup(e->d_name);
        if (name == NULL) st = sw__no_memory(strlen(e->d_name), "a file name");
        sw__free(best);
        best = name;
    }
    closedir(dir);
    if (st == SW_OK && best != NULL) {
        *out = sw__asprintf("%s/%s", folder, best);
        if (*out == NULL) st = sw__no_memory(strlen(best), "a path");
    }
    sw__free(best);
    return st;
}

static bool is_test(const char *split)
{
    return strcmp(split, "test") == 0;
}

/* The names that files of a split go by. */
typedef struct file_names {
    const char *x[2], *y[2];
} file_names;

static const file_names idx_names[2] = { { { "train-images", NULL }, { "train-labels", NULL } },
                                         { { "t10k-images", "test-images" }, { "t10k-labels", "test-labels" } } };
static const file_names npy_names[2] = { { { "x_train.npy", "x.npy" }, { "y_train.npy", "y.npy" } },
                                         { { "x_test.npy", NULL }, { "y_test.npy", NULL } } };

static sw_status resolve_folder(const char *folder, const char *split, source *s)
{
    const file_names *const tables[] = { idx_names, npy_names };
    const int which = is_test(split) ? 1 : 0;
    for (size_t i = 0; i < SW_COUNT(tables) && s->x == NULL; i++) {
        SW_TRY(find_in(folder, tables[i][which].x, &s->x));
        if (s->x != NULL) SW_TRY(find_in(folder, tables[i][which].y, &s->y));
    }
    if (s->x != NULL) return SW_OK;
    const char *const *const wanted = idx_names[which].x;
    return sw__fail(SW_ERR_DATA,
                    "%s has no %s* and no %s: folders are read if they hold IDX or NPY files of such names", folder,
                    wanted[0], npy_names[which].x[0]);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* What a single file is, by its first bytes; NULL for a plain array. Anything with a JSON header is safetensors. */
static sw_status archive_kind(const char *path, const char **kind)
{
    sw__stream s;
    SW_TRY(sw__stream_open(&s, path));
    uint8_t head[9] = { 0 };
    size_t got;
    const sw_status st = sw__stream_read_some(&s, head, sizeof head, &got);
    sw__stream_close(&s);
    SW_TRY(st);
    *kind = memcmp(head, "PK", 2) == 0 ? "NPZ" : head[8] == '{' && head[0] != 0x93 ? "safetensors" : NULL;
    return SW_OK;
}

static bool has_key(const sw_npz *z, const sw_safetensors *f, const char *key)
{
    if (z != NULL) return sw_npz_find(z, key) >= 0;
    return f != NULL && sw_safetensors_find(f, key) != NULL;
}

/* x_train and y_train, or for the training split x and y. */
static sw_status find_keys(source *s, const char *split, const sw_npz *z, const sw_safetensors *f)
{
    snprintf(s->x_key, sizeof s->x_key, "x_%s", split);
    snprintf(s->y_key, sizeof s->y_key, "y_%s", split);
    if (has_key(z, f, s->x_key)) return SW_OK;
    if (!is_test(split) && has_key(z, f, "x")) {
        snprintf(s->x_key, sizeof s->x_key, "x");
        snprintf(s->y_key, sizeof s->y_key, "y");
        return SW_OK;
    }
    return sw__fail(SW_ERR_DATA, "%s has no array called '%s'%s", s->archive, s->x_key,
                    is_test(split) ? "" : " or 'x'");
}

/* "X:Y", split at the colon that leaves two existing files; or one file alone. */
static sw_status resolve_files(const char *path, const char *split, source *s)
{
    const char *colon = exists(path) ? NULL : strchr(path, ':');
    if (colon == NULL) {
        const char *kind = NULL;
        SW_TRY(archive_kind(path, &kind));
        char *const copy = sw__strdup(path);
        if (copy == NULL) return sw__no_memory(strlen(path), "a path");
        s->kind = kind;
        if (kind != NULL)
            s->archive = copy;
        else
            s->x = copy;
    } else {
        for (const char *c = colon; c != NULL; c = strchr(c + 1, ':')) {
            if (exists(c + 1)) colon = c;
        }
        s->x = sw__strndup(path, (size_t)(colon - path));
        s->y = sw__strdup(colon + 1);
        if (s->x == NULL || s->y == NULL) return sw__no_memory(strlen(path), "a path");
    }
    if (s->archive == NULL && is_test(split)) {
        return sw__fail(SW_ERR_DATA, "%s has no test split: it is named file by file", path);
    }
    return SW_OK;
}

static sw_status resolve(const char *name, const char *split, source *s)
{
    for (size_t i = 0; i < SW_COUNT(known_sets); i++) {
        const known *const k = &known_sets[i];
        if (strcmp(name, k->name) != 0) continue;
        char *folder = NULL;
        SW_TRY(find_known(k, &folder));
        s->class_names = k->class_names;
        s->classes = k->classes;
        const sw_status st = resolve_folder(folder, split, s);
        sw__free(folder);
        return st;
    }
    if (is_folder(name)) return resolve_folder(name, split, s);
    if (exists(name) || strchr(name, ':') != NULL) return resolve_files(name, split, s);
    const char *names[SW_COUNT(known_sets)];
    for (size_t i = 0; i < SW_COUNT(known_sets); i++) names[i] = known_sets[i].name;
    const char *const near = sw__nearest(name, names, SW_COUNT(names));
    return sw__fail(SW_ERR_DATA, "'%s' is neither a file, a folder nor a known data set (fashion-mnist, digits)%s%s%s",
                    name, near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Copies a place for messages into the storage. */
static sw_status keep_name(sw__storage *s, const char **name, const char *file, const char *key)
{
    *name = key != NULL ? sw__arena_printf(&s->arena, "%s: %s", file, key) : sw__arena_strdup(&s->arena, file);
    return *name != NULL ? SW_OK : sw__no_memory(strlen(file), "a path");
}

/* Reads x now, or starts reading it: headers and memory come first in both cases. */
static sw_status read_x(sw__storage *s, const sw_dataset_options *o)
{
    sw__stream stream;
    SW_TRY(sw__stream_open(&stream, s->x_name));
    sw__array_header h = { 0 };
    sw_status st = sw__array_header_read(&stream, SW__FORMAT_ANY, &h);
    s->format = h.format;
    const bool later = st == SW_OK && o->background && !o->tokens && h.element == SW__ELEMENT_U1 && !h.fortran;
    if (!later) {
        if (st == SW_OK) st = sw__array_body_read(&stream, &h, &s->x);
        sw__stream_close(&stream);
        s->own_x = st == SW_OK;
        return st;
    }
    s->x = (sw_array){ .dtype = SW_U8, .rank = h.rank };
    memcpy(s->x.shape, h.shape, sizeof h.shape);
    s->background = sw__calloc(1, sizeof *s->background);
    if (s->background == NULL) st = sw__no_memory(sizeof *s->background, "a background read");
    if (st == SW_OK) st = sw__array_check(&stream, &h);
    if (st == SW_OK) st = sw__array_alloc(&s->x, s->x_name);
    s->own_x = st == SW_OK;
    if (st == SW_OK) {
        st = sw__background_start(s->background, &stream, &s->x);
    } else {
        sw__stream_close(&stream);
    }
    if (st != SW_OK) { /* nothing was started that closing would have to stop */
        sw__free(s->background);
        s->background = NULL;
    }
    return st;
}

static sw_status read_pair(const source *from, const sw_dataset_options *o, sw__storage *s)
{
    SW_TRY(keep_name(s, &s->x_name, from->x, NULL));
    SW_TRY(read_x(s, o));
    if (from->y == NULL || o->target == SW_TARGET_NONE) return SW_OK;
    SW_TRY(keep_name(s, &s->y_name, from->y, NULL));
    sw__stream stream;
    SW_TRY(sw__array_read(sw__stream_open(&stream, s->y_name), &stream, SW__FORMAT_ANY, &s->y));
    s->own_y = true;
    return SW_OK;
}

/* Lengths of sequences, of any integers: the storage's own, i64. */
static sw_status take_lengths(sw__storage *s, const sw_array *a)
{
    sw_array to = *a;
    to.dtype = SW_I64;
    if (sw__dtype_is_float(a->dtype) || a->rank != 1)
        return sw__fail(SW_ERR_DATA, "%s: its lengths must be integers, one for each sample", s->y_name);
    SW_TRY(sw__array_alloc(&to, "lengths"));
    sw__convert(to.data, SW_I64, a->data, a->dtype, (size_t)sw_array_count(a));
    s->lengths = to;
    return SW_OK;
}

static sw_status read_npz(source *from, const char *split, const sw_dataset_options *o, sw__storage *s)
{
    sw_npz *z;
    SW_TRY(sw_npz_open(from->archive, &z));
    sw_status st = find_keys(from, split, z, NULL);
    if (st == SW_OK) st = keep_name(s, &s->x_name, from->archive, from->x_key);
    if (st == SW_OK) st = keep_name(s, &s->y_name, from->archive, from->y_key);
    if (st == SW_OK) st = sw_npz_read(z, (size_t)sw_npz_find(z, from->x_key), &s->x);
    s->own_x = st == SW_OK;
    const int64_t y = st == SW_OK ? sw_npz_find(z, from->y_key) : -1;
    if (y >= 0 && o->target != SW_TARGET_NONE) {
        st = sw_npz_read(z, (size_t)y, &s->y);
        s->own_y = st == SW_OK;
    }
    char key[48];
    snprintf(key, sizeof key, "%s_lengths", from->y_key);
    const int64_t lengths = st == SW_OK && o->target == SW_TARGET_SEQUENCE ? sw_npz_find(z, key) : -1;
    if (lengths >= 0) {
        sw_array a = { 0 };
        st = sw_npz_read(z, (size_t)lengths, &a);
        if (st == SW_OK) st = take_lengths(s, &a);
        sw_array_free(&a);
    }
    sw_npz_close(z);
    return st;
}

static sw_status read_safetensors(source *from, const char *split, const sw_dataset_options *o, sw__storage *s)
{
    SW_TRY(sw_safetensors_open(from->archive, &s->file));
    SW_TRY(find_keys(from, split, NULL, s->file));
    SW_TRY(keep_name(s, &s->x_name, from->archive, from->x_key));
    SW_TRY(keep_name(s, &s->y_name, from->archive, from->y_key));
    SW_TRY(sw_safetensors_array(s->file, from->x_key, &s->x));
    if (o->target == SW_TARGET_NONE || sw_safetensors_find(s->file, from->y_key) == NULL) return SW_OK;
    SW_TRY(sw_safetensors_array(s->file, from->y_key, &s->y));
    char key[48];
    snprintf(key, sizeof key, "%s_lengths", from->y_key);
    if (o->target != SW_TARGET_SEQUENCE || sw_safetensors_find(s->file, key) == NULL) return SW_OK;
    sw_array a;
    SW_TRY(sw_safetensors_array(s->file, key, &a));
    return take_lengths(s, &a);
}

/* The format that the user names must be the one that is there. */
static sw_status check_format(const sw__storage *s, const char *wanted)
{
    static const char *const names[][2] = {
        { "idx", "IDX" }, { "npy", "NPY" }, { "npz", "NPZ" }, { "safetensors", "safetensors" }
    };
    if (wanted == NULL || strcmp(wanted, "auto") == 0 || strcmp(wanted, "batches") == 0) return SW_OK;
    for (size_t i = 0; i < SW_COUNT(names); i++) {
        if (strcmp(wanted, names[i][0]) != 0) continue;
        if (strcmp(s->format, names[i][1]) == 0) return SW_OK;
        return sw__fail(SW_ERR_DATA, "%s is %s, not %s as format says", s->x_name, s->format, wanted);
    }
    return sw__fail(SW_ERR_ARGUMENT, "format '%s' is none of auto, idx, npy, npz, safetensors, batches, text, bytes, lines", wanted);
}

static sw_status check_options(const sw_dataset_options *o, const char *split)
{
    if (strcmp(split, "train") != 0 && !is_test(split)) {
        return sw__fail(SW_ERR_ARGUMENT, "split '%s' is neither train nor test", split);
    }
    if (o->num_classes < 0 || o->shape_rank < 0 || o->sequence < 0 || o->n_vocabulary < 0) {
        return sw__fail(SW_ERR_ARGUMENT, "num_classes, shape_rank, sequence and n_vocabulary cannot be negative");
    }
    return SW_OK;
}

/* From a resolved source to a handle. */
static sw_status read_source(const char *name, source *from, const char *split, const sw_dataset_options *o,
                             sw_dataset **out)
{
    sw__storage *s;
    SW_TRY(sw__storage_new(name, from->kind, &s));
    sw_status st = from->archive == NULL            ? read_pair(from, o, s)
                   : strcmp(from->kind, "NPZ") == 0 ? read_npz(from, split, o, s)
                                                    : read_safetensors(from, split, o, s);
    if (st == SW_OK) st = check_format(s, o->format);
    if (st == SW_OK && s->y.data == NULL && o->target != SW_TARGET_NONE) {
        st = sw__fail(SW_ERR_DATA, "%s comes without y; give both files as X:Y, or put y beside x", s->x_name);
    }
    if (st != SW_OK) {
        sw__storage_release(s);
        return st;
    }
    sw_dataset_options options = *o;
    const bool named = from->class_names != NULL && (o->target == SW_TARGET_AUTO || o->target == SW_TARGET_CLASS);
    if (named && options.num_classes == 0) options.num_classes = from->classes;
    sw_dataset *d;
    SW_TRY(sw__dataset_over(s, &options, &d));
    if (named && d->info.classes == from->classes) st = sw_dataset_set_class_names(d, from->class_names, from->classes);
    if (st != SW_OK) {
        sw_dataset_close(d);
        return st;
    }
    *out = d;
    return SW_OK;
}

sw_status sw_dataset_open(const char *name_or_path, const sw_dataset_options *options, sw_dataset **out)
{
    if (name_or_path == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_dataset_open: name or out is NULL");
    const sw_dataset_options o = options != NULL ? *options : (sw_dataset_options){ 0 };
    const char *const split = o.split != NULL ? o.split : "train";
    SW_TRY(check_options(&o, split));
    const bool lines = sw__is_lines(name_or_path, o.format);
    if ((lines || sw__is_text(name_or_path, o.format)) && !is_folder(name_or_path)) {
        if (is_test(split)) return sw__fail(SW_ERR_DATA, "%s has no test split: it is one text", name_or_path);
        return (lines ? sw__lines_open : sw__text_open)(name_or_path, &o, out);
    }
    source from = { 0 };
    sw_status st = resolve(name_or_path, split, &from);
    if (st == SW_OK) st = read_source(name_or_path, &from, split, &o, out);
    free_source(&from);
    return st;
}

bool sw_dataset_has_split(const char *name_or_path, const sw_dataset_options *options, const char *split)
{
    if (name_or_path == NULL || split == NULL) return false;
    const sw_dataset_options o = options != NULL ? *options : (sw_dataset_options){ 0 };
    if (sw__is_text(name_or_path, o.format) || sw__is_lines(name_or_path, o.format)) return !is_test(split) && exists(name_or_path);
    source from = { 0 };
    bool has = check_options(&o, split) == SW_OK && resolve(name_or_path, split, &from) == SW_OK;
    if (has && from.archive != NULL) {
        sw_npz *z = NULL;
        sw_safetensors *f = NULL;
        const bool npz = strcmp(from.kind, "NPZ") == 0;
        has = (npz ? sw_npz_open(from.archive, &z) : sw_safetensors_open(from.archive, &f)) == SW_OK;
        has = has && find_keys(&from, split, z, f) == SW_OK;
        sw_npz_close(z);
        sw_safetensors_close(f);
    }
    free_source(&from);
    return has;
}
